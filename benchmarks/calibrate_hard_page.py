"""The parts of docs/calibration.md on hard settings, intervals, far p-values and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from calibrate_hard import CROSSING, RARE, SPREAD, Line, SeedLine
from exact_coverage import exact_coverage_table
from interval_coverage import CELLS, RULES
from level_settings import SETTINGS
from pages import span, table

from kernsift.experiments.studies import read_rows

_ERRORS = 3.0
_LEAST_COVERAGE, _MOST_COVERAGE = 0.93, 0.98
# Cells with a larger standard error have too few intervals to judge.
_LARGEST_ERROR = 0.02


# --- levels -----------------------------------------------------------------------------------------------------------


def above(line: Line) -> bool:
    """Whether a rate is above 0.05 by more than three standard errors."""
    return line.counted > 0 and line.rate > 0.05 + _ERRORS * line.error


def _level(line: Line | None) -> str:
    if line is None:
        return ""
    if line.refused:
        return "refused"
    if line.counted == 0:
        return "–"
    text = f"{line.rate:.3f} ± {line.error:.3f}"
    return f"**{text}** ▲" if above(line) else text


GROUPS = ("tiny", "few values", "many rows", "real")
"""Groups of settings that have a table with a line for each."""


def group_table(lines: Sequence[Line], group: str) -> str:
    body = (
        [line.setting, str(line.calls), f"{line.counted:,}", _level(line), f"{line.rate01:.3f} ± {line.error01:.3f}"]
        for line in lines
        if SETTINGS[line.setting].group == group
    )
    return table(["setting", "calls", "p-values", "at 0.05", "at 0.01"], body)


def _by_cell(lines: Sequence[Line], group: str) -> tuple[dict[tuple[str, str], Line], list[str], list[str]]:
    mine = [line for line in lines if SETTINGS[line.setting].group == group]
    cells = {(line.setting, line.cell): line for line in mine}
    return cells, list(dict.fromkeys(line.setting for line in mine)), list(dict.fromkeys(line.cell for line in mine))


def sparse_table(lines: Sequence[Line]) -> str:
    """Levels by setting and number of nonzero rows, and the mean over all of them."""
    cells, settings, counts = _by_cell(lines, "sparse")
    body = ([name, *(_level(cells.get((name, count))) for count in counts)] for name in settings)
    shown = table(["setting", *(count if count == "all" else f"{count} nonzero" for count in counts)], body)
    rates = [line.rate for (_, cell), line in cells.items() if cell == "all"]
    return f"{shown}\n\nThe mean over all of them is {np.mean(rates):.3f}." if rates else shown


def mates_table(lines: Sequence[Line]) -> str:
    """Levels of the null column that correlates with a signal, and those over all settings."""
    cells, settings, ks = _by_cell(lines, "mates")

    def counted(name: str, k: str) -> str:
        line = cells.get((name, k))
        return "" if line is None else str(line.counted)

    body = (
        [name, *(text for k in ks for text in (_level(cells.get((name, k))), counted(name, k)))] for name in settings
    )
    shown = table(["setting", *(text for k in ks for text in (k, f"{k}, times selected"))], body)
    return f"{shown}\n\n{_pooled_mates(cells, ks)}" if settings else shown


def _pooled_mates(cells: Mapping[tuple[str, str], Line], ks: Sequence[str]) -> str:
    """Rates over all settings of a question, with binomial standard errors."""
    said = []
    for question in ("compare", "relate"):
        for k in ks:
            mine = [line for (name, cell), line in cells.items() if cell == k and name.startswith(question)]
            hits, counted = sum(line.hits for line in mine), sum(line.counted for line in mine)
            if counted:
                rate = hits / counted
                said.append(f"{question}, {k}: {rate:.3f} ± {np.sqrt(rate * (1 - rate) / counted):.3f}")
    return f"Over all settings: {'; '.join(said)}."


def levels_summary(lines: Sequence[Line]) -> str:
    """How many cells are above the level, and which."""
    known = [line for line in lines if line.counted > 0]
    high = [line for line in known if above(line)]
    said = f"Of {len(known)} cells none is above 0.05 by more than three standard errors."
    if high:
        listed = "\n".join(f"- {line.setting} {line.cell}: {line.rate:.3f} ± {line.error:.3f}" for line in high)
        said = f"Of {len(known)} cells {len(high)} are above 0.05 by more than three standard errors (▲):\n\n{listed}"
    return f"Measured {_dates(lines)}. {said}"


def _dates(lines: Sequence[Line]) -> str:
    return span(line.date for line in lines)


# --- intervals --------------------------------------------------------------------------------------------------------


def _coverage(line: Line | None) -> str:
    if line is None or line.counted == 0:
        return "–"
    text = f"{line.rate:.3f} ± {line.error:.3f}"
    return f"**{text}** ▼" if below(line) else text


def below(line: Line) -> bool:
    """Whether coverage is below 0.93, in a cell with intervals enough to tell."""
    return line.counted > 0 and line.error <= _LARGEST_ERROR and line.rate < _LEAST_COVERAGE


def _default(line: Line) -> bool:
    return CELLS[line.setting].estimator == "complete"


def coverage_summary(lines: Sequence[Line]) -> str:
    """How many cells of the default estimator cover too little, and too much."""
    known = [line for line in lines if _default(line) and line.counted > 0 and line.error <= _LARGEST_ERROR]
    low, high = [line for line in known if below(line)], [line for line in known if line.rate > _MOST_COVERAGE]
    lowest = min(known, key=lambda line: line.rate, default=None)
    about = "" if lowest is None else f"{lowest.rate:.3f} ± {lowest.error:.3f}: {lowest.setting}, {lowest.cell}"
    calls = " or ".join(map(str, sorted({line.calls for line in lines if line.calls})))
    true = sum(line.cell.endswith("true") for line in high)
    return (
        f"{calls} calls a setting, measured {_dates(lines)}. Of {len(known)} cells of the default estimator {len(low)} "
        f"are below {_LEAST_COVERAGE} (lowest: {about}), and {len(high)} above {_MOST_COVERAGE}, {true} of these of "
        "columns with an effect."
    )


def coverage_table(lines: Sequence[Line], default: bool) -> str:
    """Coverage by setting, rule and kind of column, of the default estimator or of the others."""
    cells = {(line.setting, line.cell): line for line in lines if _default(line) == default}
    columns = [f"{rule}, {kind}" for kind in ("true", "null") for rule in RULES]
    names = dict.fromkeys(name for name, _ in cells)
    body = ([name, *(_coverage(cells.get((name, column))) for column in columns)] for name in names)
    return table(["setting", *columns], body)


# --- far p-values and seeds -------------------------------------------------------------------------------------------


def tail_table(lines: Sequence[Line]) -> str:
    """Shares of p-values below small levels, as ratios to these levels."""
    cells = {(line.setting, line.cell): line for line in lines}
    levels = list(dict.fromkeys(line.cell for line in lines))

    def ratio(name: str, level: str) -> str:
        line = cells[name, level]
        expected = line.counted * float(level)
        return f"{line.hits / expected:.2f} ± {np.sqrt(max(line.hits, 1.0)) / expected:.2f}"

    names = list(dict.fromkeys(line.setting for line in lines))
    body = ([name, f"{cells[name, levels[0]].counted:,}", *(ratio(name, level) for level in levels)] for name in names)
    shown = table(["column", "permutations", *(f"at {level}" for level in levels)], body)
    return f"{shown}\n\nMeasured {_dates(lines)}."


def seeds_sentence(lines: Sequence[SeedLine]) -> str:
    rare, spread, crossing = (
        [line.value for line in lines if line.quantity == name] for name in (RARE, SPREAD, CROSSING)
    )
    least, most = f"{min(rare):.2g}", f"{max(rare):.2g}"
    chances = f"p = {least}" if least == most else f"p = {least} to {most}"
    return (
        f"40 ones in 100,000 rows against 100,000 zeros have {chances} for {len(rare)} seeds of the call. The scores "
        f"of {len(spread)}\nnull columns with 95% zeros and 20,000 v 20,000 rows have a standard deviation between "
        f"seeds of {np.mean(spread):.3f} on\naverage and of {max(spread):.3f} at most. From 8,192 v 8,192 rows to one "
        f"row more in each sample they change by\n{np.mean(crossing):.3f} on average and by {max(crossing):.3f} at "
        "most."
    )


def hard_parts(folder: Path) -> dict[str, str]:
    """The parts of the page by name, from the figures on record."""
    levels, coverage, tail = (read_rows(folder / f"{part}.csv", Line) for part in ("levels", "coverage", "tail"))
    seeds = read_rows(folder / "seeds.csv", SeedLine)
    return {
        "levels": levels_summary(levels) if levels else "",
        **{group: group_table(levels, group) for group in GROUPS},
        "sparse": sparse_table(levels),
        "mates": mates_table(levels),
        "coverage": coverage_summary(coverage) if coverage else "",
        "coverage of the default": coverage_table(coverage, default=True),
        "coverage of exact intervals": exact_coverage_table(),
        "coverage of others": coverage_table(coverage, default=False),
        "tail": tail_table(tail) if tail else "",
        "seeds": seeds_sentence(seeds) if seeds else "",
    }
