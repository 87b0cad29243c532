"""Pages with measured figures: tables are where they belong, and are those of the figures on record."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import a module of the folder by its plain name; all are forgotten again."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    before = set(sys.modules)
    yield importlib.import_module
    for path in (ROOT / "benchmarks").glob("*.py"):
        if path.stem not in before:
            sys.modules.pop(path.stem, None)


def test_a_table_is_markdown(script: Any) -> None:
    assert script("pages").table(["a", "b"], [["1", "2"]]) == "| a | b |\n|---|---|\n| 1 | 2 |"


def test_parts_are_filled_in_and_the_rest_stays(script: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n\n<!-- one -->\nold\n<!-- end -->\n\nText.\n\n<!-- two, b -->\n<!-- end -->\n")
    parts = {"one": "new", "two, b": r"| a\1 |"}
    expected = "# A\n\n<!-- one -->\n\nnew\n\n<!-- end -->\n\nText.\n\n<!-- two, b -->\n\n| a\\1 |\n\n<!-- end -->\n"
    for _ in range(2):
        script("pages").fill(page, parts)
        assert page.read_text() == expected
    for wrong in ({"one": "x"}, parts | {"three": "x"}):
        with pytest.raises(ValueError, match="has places for one, two, b"):
            script("pages").fill(page, wrong)


def test_dates_are_one_day_or_a_span(script: Any) -> None:
    span = script("pages").span
    assert span(["2026-01-02", "2026-01-02"]) == "2026-01-02"
    assert span(["2026-01-03", "2026-01-01", "2026-01-02"]) == "2026-01-01 to 2026-01-03"


def _copy(name: str, tmp_path: Path) -> Path:
    """The records behind a page, in a folder whose parent has no page yet."""
    folder = tmp_path / name
    folder.mkdir()
    for path in [*(DOCS / name).glob("*.csv"), *(DOCS / name).glob("*.json")]:
        (folder / path.name).symlink_to(path)
    return folder


@pytest.mark.parametrize("name", ["speed", "scaling", "power", "calibration", "given", "designs"])
def test_a_page_has_the_figures_on_record(
    script: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, page = _copy(name, tmp_path), tmp_path / f"{name}.md"
    if name == "speed":
        script("speed_page").write_page(page, folder)
    elif name == "scaling":
        script("scaling_page").write_page(page, json.loads((folder / "runs.json").read_text()))
    else:
        pytest.importorskip("pandas")
        pages = {"calibration": "calibrate_page", "designs": "designs", "given": "given_page", "power": "power_page"}
        module = script(pages[name])
        # Plots take seconds.
        for place, plot in ((module, "power_plot"), (module, "draw_grid"), (module, "draw")):
            monkeypatch.setattr(place, plot, lambda *given: None, raising=False)
        if name == "power":
            monkeypatch.setattr(script("regret_page"), "_regret_plot", lambda *given: None)
        module.write_page(folder)
    assert page.read_text(encoding="utf-8") == (DOCS / page.name).read_text(encoding="utf-8")
