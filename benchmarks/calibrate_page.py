"""The figures of docs/calibration.md, from the tables that calibrate.py leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from calibrate import DEFAULT, KS, QUESTIONS, ROWS, SETTINGS, Cell
from calibrate_hard_page import hard_parts
from pages import fill, span, table

from kernsift.experiments.studies import read_rows
from kernsift.inference import TESTS

_ERRORS = 3.0
_TIED, _UNEQUAL = ("binary", "counts and ties"), ("95/5", "50 against 1000")


def verdict(cell: Cell) -> str:
    """Whether the rate at 0.05 is right, above or below: by more than three standard errors."""
    error = cell.error if cell.error > 0 else float(np.sqrt(0.05 * 0.95 / max(cell.counted, 1)))
    if cell.rate > 0.05 + _ERRORS * error:
        return "above"
    return "below" if cell.rate < 0.05 - _ERRORS * error else "right"


def _known(cell: Cell) -> bool:
    return cell.counted > 0


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if not _known(cell):
        return "–"
    marked = {"above": "**{}** ▲", "below": "{} ▼", "right": "{}"}[verdict(cell)]
    return marked.format(f"{cell.rate:.3f}") + f" ± {cell.error:.3f}"


# --- what the grid shows ----------------------------------------------------------------------------------------------

# Why a method is off where it is: the name of the reason, which the page explains, and its cells; the first that fits.
_REASONS: tuple[tuple[str, Callable[[Cell], bool]], ...] = (
    ("naive", lambda cell: cell.test == "naive"),
    (
        "polyhedral, near ties",
        lambda cell: cell.test == "polyhedral" and cell.setting in _TIED and verdict(cell) == "above",
    ),
    ("block, few blocks", lambda cell: cell.estimator.startswith("block") and verdict(cell) == "above"),
    ("block, skewed blocks", lambda cell: cell.estimator.startswith("block")),
    ("multiscale, one winner", lambda cell: cell.test == "multiscale" and cell.k == 1 and verdict(cell) == "below"),
    ("incomplete, many draws", lambda cell: "r=" in cell.estimator and verdict(cell) == "above"),
    (
        "incomplete, linear: few draws",
        lambda cell: cell.estimator.startswith(("incomplete", "linear")) and verdict(cell) == "above",
    ),
    (
        "incomplete HSIC, skewed draws",
        lambda cell: cell.estimator.startswith("incomplete") and cell.question == "relate",
    ),
    (
        "cross, a small sample",
        lambda cell: cell.estimator == "cross" and cell.setting in _UNEQUAL and verdict(cell) == "above",
    ),
    ("ties", lambda cell: cell.setting in _TIED and verdict(cell) == "below"),
    ("equicorrelated", lambda cell: cell.setting == "equicorrelated 0.8" and verdict(cell) == "below"),
    ("not explained", lambda cell: verdict(cell) == "above"),
    ("the safe side", lambda cell: True),
)


def _reason(cell: Cell) -> str:
    return next(name for name, applies in _REASONS if applies(cell))


def _summary(cells: Sequence[Cell]) -> str:
    """A row for each question, estimator and test, the plain grid only."""
    rows = []
    for question, statistics in QUESTIONS.items():
        for estimator in statistics:
            for test in TESTS:
                mine = [c for c in cells if (c.question, c.estimator, c.test) == (question, estimator, test)]
                known = [cell for cell in mine if _known(cell)]
                if not known:
                    continue
                off = {kind: [cell for cell in known if verdict(cell) == kind] for kind in ("above", "below")}
                most = max(known, key=lambda cell: cell.rate)
                why = dict.fromkeys(_reason(cell) for kind in off.values() for cell in kind)
                rows.append(
                    [
                        question,
                        estimator + (" (default)" if estimator == DEFAULT and test == "exact" else ""),
                        test,
                        str(len(known)),
                        f"{len(off['above'])}" if off["above"] else "none",
                        f"{len(off['below'])}" if off["below"] else "none",
                        f"{most.rate:.3f} ± {most.error:.3f} ({most.setting}, n={most.n}, k={most.k})",
                        "; ".join(why) if test != "naive" else "naive",
                    ]
                )
    return table(["question", "estimator", "test", "cells", "above", "below", "highest rate", "why off"], rows)


def _default_summary(cells: Sequence[Cell]) -> str:
    """Which cells of the default combination are above the level."""
    known = [c for c in cells if c.estimator == DEFAULT and c.test == "exact" and _known(c)]
    high = [c for c in known if verdict(c) == "above"]
    if not high:
        return f"Of {len(known)} cells none is above 0.05 by more than three standard errors."
    listed = "; ".join(f"{c.question}, {c.setting}, n={c.n}, k={c.k}: {c.rate:.3f} ± {c.error:.3f}" for c in high)
    return f"Of {len(known)} cells these are above 0.05 by more than three standard errors: {listed}."


def _default_table(cells: Sequence[Cell]) -> str:
    mine = [c for c in cells if c.estimator == DEFAULT and c.test in ("exact", "naive")]
    by_key = {(c.question, c.setting, c.n, c.test, c.k): c for c in mine}
    rows = []
    for question, setting, n in dict.fromkeys((c.question, c.setting, c.n) for c in mine):
        exact = [by_key.get((question, setting, n, "exact", k)) for k in KS]
        naive = by_key.get((question, setting, n, "naive", 1))
        first = exact[0]
        if first is None:
            continue
        if first.refused:
            rows.append([question, setting, str(n), "refused", *[""] * 7])
            continue
        at01 = [f"{c.rate01:.3f} ± {c.error01:.3f}" if c and _known(c) else "–" for c in exact]
        distance = [f"{c.ks:.3f} ({c.ks_p:.2f})" if c and _known(c) else "–" for c in exact[1:2]]
        rows.append(
            [question, setting, str(n), str(first.replicates), *map(_shown, exact), *at01, *distance, _shown(naive)]
        )
    names = ["question", "setting", "n", "replicates", *(f"k={k}" for k in KS), *(f"k={k} at 0.01" for k in KS)]
    return table([*names, f"KS, k={KS[1]} (p)", "naive, k=1"], rows)


def _bounds_table(cells: Sequence[Cell]) -> str:
    swept = [c for c in cells if c.estimator not in QUESTIONS[c.question] or c.estimator in ("incomplete", "block")]
    swept = [c for c in swept if c.test == "exact" and c.setting == "independent"]
    by_key = {(c.question, c.estimator, c.n, c.k): c for c in swept}
    rows = []
    for question, estimator in sorted(dict.fromkeys((c.question, c.estimator) for c in swept), key=_sweep_order):
        shown = [_shown(by_key.get((question, estimator, n, k))) for n in ROWS for k in KS[:2]]
        rows.append(
            [question, {"incomplete": "incomplete r=1", "block": "block, default"}.get(estimator, estimator), *shown]
        )
    return table(["question", "estimator", *(f"n={n}, k={k}" for n in ROWS for k in KS[:2])], rows)


def _sweep_order(pair: tuple[str, str]) -> tuple[str, str, float]:
    question, estimator = pair
    kind, _, option = estimator.partition(" ")
    number = option.rpartition("=")[2] if "r=" in option else option.rpartition("/")[2]
    return question, kind, (float(number) if number else 0.0) * (-1.0 if "/" in option else 1.0)


# --- the picture ------------------------------------------------------------------------------------------------------


def _places() -> list[tuple[str, int]]:
    return [(name, n) for name, how in SETTINGS.items() for n in (ROWS if how.sizes is None else (sum(how.sizes),))]


def draw_grid(path: Path, question: str, cells: Sequence[Cell]) -> None:
    """Rates at 0.05 in percent: white is right, red above, blue below; a frame where it is beyond three errors."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    places = _places()
    lines = [(estimator, test, k) for estimator in QUESTIONS[question] for test in TESTS for k in KS]
    by_key = {(c.estimator, c.test, c.k, c.setting, c.n): c for c in cells}
    height = 0.2 * len(lines) + 1.6
    figure = Figure(figsize=(11.5, height))
    axes = figure.add_axes((0.17, 0.35 / height, 0.82, 1 - 1.45 / height))
    for down, (estimator, test, k) in enumerate(lines):
        for across, (setting, n) in enumerate(places):
            cell = by_key.get((estimator, test, k, setting, n))
            colour, text, weight, ink = _look(cell)
            hatch = "////" if cell is not None and cell.refused else None
            axes.add_patch(Rectangle((across, down), 1, 1, facecolor=colour, edgecolor="#ffffff", lw=0.5, hatch=hatch))
            axes.text(across + 0.5, down + 0.54, text, ha="center", va="center", fontsize=6.4, color=ink, weight=weight)
            if cell is not None and _known(cell) and verdict(cell) == "above":
                frame = {"facecolor": "none", "edgecolor": "#111111", "lw": 1.1, "zorder": 3}
                axes.add_patch(Rectangle((across + 0.05, down + 0.07), 0.9, 0.86, **frame))
    _label(axes, lines, places)
    figure.text(0.01, 1 - 0.28 / height, _TITLES[question], fontsize=11, weight="bold", va="center")
    figure.text(
        0.17, 0.14 / height,
        "Share of selected null features rejected at 5%, in percent. Framed: more than three standard errors above. "
        "Hatched: refused, too few rows.",
        fontsize=7.5, color="#374151", va="center",
    )  # fmt: skip
    figure.savefig(path, dpi=130, metadata={"Software": None})


_TITLES = {
    "compare": "compare: which features differ between two samples",
    "relate": "relate: which features depend on a response",
    "screen": "screen: which data sets deviate from a reference",
}


def _label(axes: object, lines: Sequence[tuple[str, str, int]], places: Sequence[tuple[str, int]]) -> None:
    axes.set_xlim(0, len(places))
    axes.set_ylim(len(lines), 0)
    axes.set_xticks(np.arange(len(places)) + 0.5, [str(n) for _, n in places], fontsize=6.5)
    axes.xaxis.tick_top()
    axes.set_yticks(np.arange(len(lines)) + 0.5, [f"k={k}" for *_, k in lines], fontsize=6.2)
    axes.tick_params(length=0, pad=2)
    for spine in axes.spines.values():
        spine.set_visible(False)
    names = [name for name, _ in places]
    for name in dict.fromkeys(names):
        at = [place for place, other in enumerate(names) if other == name]
        middle = (at[0] + at[-1] + 1) / 2
        text = name.replace(" with ", "\nwith ").replace(" and ", "\nand ").replace(" against ", "\nagainst ")
        text = text.replace("equicorrelated ", "equicorrelated\n").replace("against ", "against\n")
        axes.text(middle, -1.35, text, ha="center", va="bottom", fontsize=7, weight="bold", linespacing=0.95)
        axes.axvline(at[-1] + 1, color="#ffffff", lw=3)
    for place, (estimator, test, _) in enumerate(lines):
        if place % len(KS) == 0:
            axes.text(-0.75, place + len(KS) / 2, test, ha="right", va="center", fontsize=7.2)
        if place % (len(KS) * len(TESTS)) == 0:
            axes.text(-2.35, place + 0.2, estimator, ha="right", va="top", fontsize=8.5, weight="bold")
            axes.axhline(place, color="#ffffff", lw=4)


def _look(cell: Cell | None) -> tuple[str | tuple[float, ...], str, str, str]:
    """Colour of the ground, text, its weight and its colour."""
    import matplotlib

    if cell is None:
        return "#f9fafb", "", "normal", "#000000"
    if not _known(cell):
        return "#e5e7eb", "", "normal", "#000000"
    far = float(np.clip(np.log2(max(cell.rate, 1e-3) / 0.05) / 2.5, -1, 1))
    ground = matplotlib.colormaps["RdBu_r"](0.5 + 0.5 * far)
    text = f"{100 * cell.rate:.0f}" if cell.rate >= 0.0995 else f"{100 * cell.rate:.1f}"
    off = verdict(cell) != "right"
    return ground, text, "bold" if off else "normal", "#ffffff" if abs(far) > 0.75 else "#111111"


# --- the page ---------------------------------------------------------------------------------------------------------


def _counts(cells: Sequence[Cell]) -> str:
    """The number of replicates of a cell, and their dates."""

    def replicates(default: bool) -> str:
        found = sorted({c.replicates for c in cells if c.replicates and (c.estimator == DEFAULT) == default})
        return f"{found[0]} to {found[-1]}" if len(found) > 1 else str(found[0]) if found else "no"

    dates = span(cell.date for cell in cells)
    counts = replicates(True), replicates(False)
    return "{} replicates of each cell of the default estimator and {} of the others ({}).".format(*counts, dates)


def write_page(folder: Path) -> Path:
    """Fill docs/calibration.md, next to the folder of figures, and draw the grids."""
    cells = [cell for question in QUESTIONS for cell in read_rows(folder / f"{question}.csv", Cell)]
    for question in QUESTIONS:
        mine = [cell for cell in cells if cell.question == question]
        if mine:
            draw_grid(folder / f"{question}.png", question, mine)
    plain = [cell for cell in cells if cell.estimator in QUESTIONS[cell.question]]
    parts = {
        "replicates": _counts(plain) if plain else "",
        "summary": _summary(plain),
        "default": _default_summary(plain),
        "cells of the default": _default_table(plain),
        "bounds": _bounds_table(cells),
    }
    page = folder.parent / "calibration.md"
    fill(page, hard_parts(folder) | parts)
    return page
