"""A self-contained HTML page that shows the numbers of the paper and of the run side by side."""

from __future__ import annotations

import base64
import datetime
from importlib import resources
from pathlib import Path
from typing import Any

from kernsift.exceptions import required
from kernsift.execution.files import atomic_path
from kernsift.experiments.configurations import Artefact
from kernsift.experiments.figures import statements_of
from kernsift.experiments.published import DIVORCE_TABLE
from kernsift.experiments.summary import DISTANCE, ERRORS, Reproduction, Row

_TEMPLATE = "page.html.j2"


def write_page(result: Reproduction, folder: Path) -> Path:
    """Write `index.html` into the folder."""
    jinja2 = required("jinja2", "The page needs Jinja2")
    template = resources.files("kernsift.experiments").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    text = environment.from_string(template).render(
        date=datetime.date.today().isoformat(),
        result=result,
        seed=result.seed,
        judged=result.judged,
        agreed=result.agreed,
        strays=[row for row in result.judged if row.agrees is False],
        limit=ERRORS,
        distance=DISTANCE,
        artefacts=[_section(artefact, result, folder) for artefact in result.artefacts],
    )
    path = folder / "index.html"
    with atomic_path(path) as part:
        part.write_text(text, encoding="utf-8")
    return path


def _section(artefact: Artefact, result: Reproduction, folder: Path) -> dict[str, Any]:
    picture = (folder / f"{artefact.name}.svg").read_bytes()
    rows = result.rows_of(artefact)
    section: dict[str, Any] = {
        "name": artefact.name,
        "title": artefact.title,
        "note": artefact.note,
        "picture": "data:image/svg+xml;base64," + base64.b64encode(picture).decode(),
        "measures": list(dict.fromkeys(row.measure for row in rows)),
        "lines": _lines(rows),
        "printed": {row.measure for row in rows if row.paper is not None},
        "ours": {method.name for setting in artefact.settings for method in setting.methods if method.ours},
    }
    if artefact.kind == "pvalues":
        section["statements"] = [
            (text, {name: "<0.01" if p < 0.01 else f"{p:.2f}" for name, p in values.items()})
            for text, values in statements_of(artefact, result)
        ]
        section["methods"] = list(dict.fromkeys(row.method for row in rows))
        section["published"] = DIVORCE_TABLE
    return section


def _lines(rows: list[Row]) -> list[dict[str, Any]]:
    """A line per setting and method, with its rows by measure."""
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        line = lines.setdefault(
            (row.setting, row.method),
            {"setting": row.setting, "method": row.method, "seconds": row.seconds, "cells": {}},
        )
        line["cells"][row.measure] = row
    return list(lines.values())
