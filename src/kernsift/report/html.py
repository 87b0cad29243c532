"""The report: a self-contained HTML file that states the verdict first.

The result is summarised into plain values, and a template renders them. Names and values are data: the template
escapes them, and the page's content security policy lets only the script and the style sheet written here run.
"""

from __future__ import annotations

import base64
import hashlib
import platform
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from kernsift.exceptions import required
from kernsift.options import ESTIMATOR_OPTIONS, TEST_OPTIONS
from kernsift.report import text as wording
from kernsift.report.pictures import Bars, Boxes, Histogram, Picture
from kernsift.report.summaries import MOST_PICTURES
from kernsift.report.svg import draw_effect, draw_picture, draw_pvalues, draw_scores

if TYPE_CHECKING:
    from kernsift.result import Result

# Rows in the table when the page opens, each with its interval; the script of the page adds the others.
_FIRST_ROWS = MOST_PICTURES
_CALLS = {"compare": "compare(X, Y", "relate": "relate(X, y", "screen": "screen(reference, candidates"}


def report(result: Result, *, title: str | None = None, command: str | None = None, sort: str = "p") -> str:
    """The whole page; its script sorts the table, whose rows are in the order of the evidence."""
    result.order(sort)  # refuses an unknown one
    jinja2 = required("jinja2", "The report needs Jinja2")
    Markup = required("markupsafe", "The report needs Jinja2").Markup
    style, script = _asset("report.css"), _asset("report.js")
    rows = _rows(result)
    others = _other_rows(result)
    for row in rows:
        row["ruler"], row["picture"] = Markup(row["ruler"]), Markup(row["picture"])
    return _template(jinja2).render(
        title=title or wording.title(result),
        policy=_content_security_policy(script, style),
        style=Markup(style),
        script=Markup(script),
        verdict=_verdict(result),
        notes=list(result.notes),
        data=_data_rows(result),
        clusters=[members for members in result.clusters if len(members) > 1],
        distinct=[] if result.distinct is None else [result.names[row] for row in np.flatnonzero(result.distinct)],
        rows=rows,
        others=others,
        has_missing=bool(result.missing.any()),
        listed_rows=len(result.names),
        sort={"p": "rank"}.get(sort, sort),
        has_effects=result.effects is not None,
        p_name=wording.p_name(result),
        correction=result.correction.upper() if result.correction else "",
        noun=wording.noun_for(result.question, 1),
        scores_pictures=[Markup(draw_scores(result, narrow=narrow)) for narrow in (False, True)],
        pvalues_pictures=[Markup(draw_pvalues(result, narrow=narrow)) for narrow in (False, True) if result.names],
        drawn=len(rows),
        undrawn=f"{len(result.names) - len(rows):,}" if len(result.names) > len(rows) else "",
        settings=_settings(result),
        versions=_versions(),
        line=command or line_of_code(result),
        words=_glossary(result),
    )


@cache
def _template(jinja2: Any) -> Any:
    """Compiling it takes longer than filling it in."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    return environment.get_template("report.html.j2")


@cache
def _asset(name: str) -> str:
    return (files("kernsift.report") / "templates" / name).read_text(encoding="utf-8")


def _content_security_policy(script: str, style: str) -> str:
    """Nothing is loaded from anywhere; the one script and the one style sheet are known by their hashes."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# Contents of the page ------------------------------------------------------------------------------------------------


def _verdict(result: Result) -> dict[str, Any]:
    return {
        "found": f"{int(result.rejected.sum()):,}",
        "selected": f"{len(result.selected):,}",
        "all": f"{len(result.scores):,}",
        "outside": f"{result.found_outside:,}" if result.correction and result.found_outside else "",
        "sentence": wording.verdict(result),
        "guarantee": wording.guarantee(result),
        "listed": result.listed,
        "selective": wording.p_name(result) != "p",
    }


def _rows(result: Result) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    missing = result.missing
    intervals = result.estimates.intervals_of(np.arange(min(len(result.names), _FIRST_ROWS)))
    for row, name in enumerate(result.names[:_FIRST_ROWS]):
        picture = result.pictures[row] if row < len(result.pictures) else None
        effect = None if result.effects is None else float(result.effects[row])
        ends = None if intervals is None else (float(intervals[row, 0]), float(intervals[row, 1]))
        rows.append(
            {
                "rank": row + 1,
                "name": name,
                "significant": bool(result.rejected[row]),
                "score": float(result.scores[result.selected[row]]),
                "effect": effect,
                "ends": ends,
                "ruler": "" if effect is None else draw_effect(effect, ends),
                "p": _pvalue(result.pvalues[row]),
                "adjusted": _pvalue(result.adjusted_pvalues[row]),
                "n": f"{int(result.n[result.selected[row]]):,}",
                "share": round(float(missing[row]), 4),
                "missing": wording.share_text(missing[row]),
                "change": result.describe(row),
                "picture": "" if picture is None else draw_picture(picture),
                "caption": "" if picture is None else _caption(picture, name) + _picture_note(result, row),
                "series": getattr(picture, "series", ()),
            }
        )
    return rows


def _other_rows(result: Result) -> list[list[Any]]:
    """Name, significance, effect, p-value, corrected p-value, score, n, share missing and description of the others.

    Those of a short list are followed by the features that are not listed, which have an unconditional p-value alone.
    """

    def record(i: int, rejected: bool, effect: float | None, p: float, adjusted: float, *rest: Any) -> list[Any]:
        numbers = [float(f"{value:.4g}") for value in (p, adjusted)]
        score, n = float(f"{result.scores[i]:.5g}"), int(result.n[i])
        return [result.feature_names[i], int(rejected), effect, *numbers, score, n, *rest]

    found, missing = [], result.missing
    for row in range(_FIRST_ROWS, len(result.names)):
        effect = None if result.effects is None else round(float(result.effects[row]), 4)
        # A description takes a millisecond, so that only significant features have one.
        change = result.describe(row) if result.rejected[row] else ""
        values = result.rejected[row], effect, result.pvalues[row], result.adjusted_pvalues[row]
        found.append(record(result.selected[row], *values, round(float(missing[row]), 4), change))
    everyone = np.argsort(result.all_pvalues, kind="stable") if result.listed else np.empty(0, dtype=int)
    for i in everyone[~np.isin(everyone, result.selected)]:
        values = result.all_rejected[i], None, result.all_pvalues[i], result.all_adjusted_pvalues[i]
        found.append(record(i, *values, None, "not on the list"))
    return found


def _data_rows(result: Result) -> list[tuple[str, str]]:
    """The numbers of rows and features, and the kinds of features."""
    names = list(result.labels) if result.question == "compare" and len(result.labels) == len(result.rows) else []
    if result.question == "screen":
        least, most = min(result.rows[1:]), max(result.rows[1:])
        others = f"{least:,} to {most:,} in the others" if least < most else f"{least:,} in each of the others"
        rows = f"{result.rows[0]:,} in the reference, {others}"
    elif names:
        rows = ", ".join(f"{count:,} in {name}" for name, count in zip(names, result.rows, strict=True))
    else:
        rows = ", ".join(f"{count:,}" for count in result.rows)
    words = ("number", "numbers"), ("category", "categories"), ("group of columns", "groups of columns")
    kinds = [f"{count:,} {word[count > 1]}" for count, word in zip(result.kinds, words, strict=True) if count]
    found = [("Rows", rows), (wording.noun_for(result.question, 2).capitalize(), f"{len(result.scores):,}")]
    if result.question == "relate" and result.labels:
        found.append(("Response", result.labels[0]))
    if kinds and result.question != "screen":
        found.append(("Types", ", ".join(kinds)))
    missing = result.missing
    if missing.any():
        worst, some = int(missing.argmax()), wording.count_phrase(result.question, int((missing > 0).sum()))
        found.append(("Missing", f"{some}, most in {result.names[worst]} ({wording.share_text(missing[worst])})"))
    for name in ("strata", "paired", "unit", "given"):
        if result.settings.get(name) is not None:
            found.append((name.capitalize(), _setting_text(result.settings[name])))
    return [pair for pair in found if pair[1]]


def _pvalue(value: float) -> dict[str, Any]:
    return {"value": float(value), "text": wording.p_text(float(value))}


def _picture_note(result: Result, row: int) -> str:
    """Pictures show whole samples, even if the description is adjusted for strata or confounders."""
    held = row < len(result.descriptions) and result.rejected[row] and result.descriptions[row].held
    return "; the picture holds nothing fixed" if held else ""


def _caption(picture: Picture, name: str) -> str:
    """What is drawn; the card's heading has the name already."""
    about = "" if picture.label == name else f"{picture.label}: "
    if isinstance(picture, Histogram):
        far = f" ({100 * picture.beyond:.2g}% of the values, far out, not drawn)" if picture.beyond else ""
        return f"{about}shares in {len(picture.edges) - 1} bins{far}"
    if isinstance(picture, Bars):
        return f"{about}share{'' if len(picture.series) == 1 else ' of each value'}"
    if isinstance(picture, Boxes):
        return f"{picture.label} by {picture.by}: box from quartile to quartile, line from 5% to 95%"
    return f"{picture.against} (upright) against {picture.label}: points, median and quartiles"


def _settings(result: Result) -> list[tuple[str, str]]:
    shown = {name: _setting_text(value) for name, value in result.settings.items() if value is not None}
    level = {"alpha": f"{result.alpha:g}", "correction": result.correction or "none"}
    if result.listed and result.correction:
        level["family"] = result.family
    level["confidence level"] = f"{result.confidence_level:g}"
    seed = {"seed": "a generator was passed in" if result.seed is None else str(result.seed)}
    return list({"question": result.question, **shown, **level, **seed}.items())


def _setting_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    return wording.abbreviated(f"{value:g}" if isinstance(value, float) else str(value), 80)


@cache
def _versions() -> list[tuple[str, str]]:
    found = [("Python", platform.python_version())]
    for package in ("kernsift", "numpy", "scipy", "scikit-learn", "narwhals", "array-api-compat", "numba"):
        try:
            found.append((package, version(package)))
        except PackageNotFoundError:
            continue
    return found


def line_of_code(result: Result) -> str:
    """The line of Python that reproduces the result."""
    arguments: dict[str, Any] = dict(result.settings)
    for argument, records in (("estimator", ESTIMATOR_OPTIONS), ("test", TEST_OPTIONS)):
        record = records.get(str(arguments[argument]))
        names = [] if record is None else [field.name for field in fields(record) if field.name in arguments]
        if record is not None and names:
            given = ", ".join(f"{name}={_literal(arguments.pop(name))}" for name in names)
            arguments[argument] = _Code(f"kernsift.{record.__name__}({given})")
    arguments.pop("k" if arguments.get("threshold") is not None else "threshold", None)
    for argument in ("strata", "paired", "unit"):
        if argument in arguments:
            arguments[argument] = _row_argument(argument, str(arguments[argument]))
    if arguments.get("given") == "data":
        arguments["given"] = _Code("given")
    arguments |= {"alpha": result.alpha, "correction": result.correction, "family": result.family}
    arguments |= {"confidence_level": result.confidence_level, "random_state": result.seed}
    listed = ", ".join(f"{name}={_literal(value)}" for name, value in arguments.items())
    line = f"kernsift.{_CALLS[result.question]}, {listed})"
    return line if result.seed is not None else line + "  # random_state: the generator that was passed in"


def _row_argument(argument: str, setting: str) -> Any:
    """What was passed, from the setting that names the source and the number of strata, pairs or units."""
    source = setting.rpartition(": ")[0]
    if source == "rows in their order":
        return True
    columns = source.split(" and ")
    return _Code(argument) if source == "given as an array" else columns if len(columns) > 1 else source


class _Code(str):
    """A string whose `repr` is the string itself, for expressions in a line of code."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _literal(value: Any) -> str:
    text = repr(np.asarray(value).tolist() if isinstance(value, np.ndarray | np.generic) else value)
    return text if len(text) <= 200 else "..."


_PROCEDURES = {
    "bh": "Benjamini and Hochberg's procedure",
    "by": "Benjamini and Yekutieli's procedure, which allows any dependence",
    "bky": "the two-stage procedure of Benjamini, Krieger and Yekutieli",
    "holm": "Holm's procedure",
}


def _glossary(result: Result) -> Mapping[str, str]:
    """The terms of the page, explained for readers who are not statisticians."""
    noun = wording.noun_for(result.question, 1)
    words = {
        "Score": f"The evidence of a {noun} in this data, in standard deviations.",
        "p-value": "How often chance alone would give evidence at least as strong as this, if there were no effect. A "
        "small value makes chance a poor explanation. It is not the probability that the finding is wrong.",
    }
    if result.listed:
        words["Selected"] = (
            f"On the list because its score is among the largest. If no {noun} had an effect, some would have the "
            "largest scores all the same."
        )
    if wording.p_name(result) != "p":
        words["Selective p-value"] = (
            f"A p-value for one {noun} by itself that accounts for its selection by the same data."
        )
    if result.correction:
        count = wording.count_phrase(result.question, wording.family_size(result))
        how = f"because {count} were tested, by {_PROCEDURES[result.correction]}"
        words["Corrected p-value"] = f"The p-value, increased {how}. {wording.guarantee(result)}"
    own = "corrected p-value" if result.correction else wording.p_name(result) + "-value"
    words["Significant"] = f"The {own} is at most {result.alpha:g}, the error rate that was chosen beforehand."
    if result.effects is not None:
        words["Effect"] = (
            "The size of the effect, from 0 (none) to 1 (complete). It does not grow with the number of rows. "
            + _coverage(result)
        )
    return words


def _coverage(result: Result) -> str:
    """The coverage of the intervals."""
    level = f"{100 * result.confidence_level:g}%"
    if result.listed:
        return (
            "The estimate is corrected for the selection: it is as often too large as too small. "
            f"The interval covers the true value in {level} of such analyses, selection included."
        )
    if result.correction is None:
        return f"Each interval covers the true value in {level} of such analyses."
    return (
        f"Of the intervals of what is significant, {level} cover the true value on average; the others begin at 0 and "
        "cover it at least as often."
    )
