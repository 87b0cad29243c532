"""The sections of docs/calibration.md on hard settings, intervals, far p-values and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from calibrate_hard import CROSSING, RARE, SPREAD, Line, SeedLine
from interval_coverage import CELLS, POPULATION, RULES
from level_settings import SETTINGS

from kernsift.experiments.studies import read_rows, table

_ERRORS = 3.0
_LEAST_COVERAGE, _MOST_COVERAGE = 0.93, 0.98
# Cells with a larger standard error have too few intervals to judge.
_LARGEST_ERROR = 0.02
_LEAST_SPARSE = 0.02


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


_GROUPS = {
    "tiny": (
        "Tiny and uneven samples",
        "With 3 v 3 rows the smallest p-value that a permutation test can give is 0.1, with 4 v 4 rows 0.029.",
    ),
    "few values": ("Columns with two, three and four values", ""),
    "many rows": ("Around and above 16,384 rows, where values are rounded to a grid", ""),
    "real": (
        "Real columns with random labels",
        "Columns of the data sets that come with scikit-learn; the response is permuted, or the rows are split into "
        "random halves.",
    ),
}


def _plain_group(lines: Sequence[Line], group: str) -> str:
    title, about = _GROUPS[group]
    mine = [line for line in lines if SETTINGS[line.setting].group == group]
    if not mine:
        return ""
    body = (
        [line.setting, str(line.calls), f"{line.counted:,}", _level(line), f"{line.rate01:.3f} ± {line.error01:.3f}"]
        for line in mine
    )
    shown = table(["setting", "calls", "p-values", "at 0.05", "at 0.01"], body)
    return f"### {title}\n\n{about}\n\n{shown}\n".replace("\n\n\n\n", "\n\n")


def _by_cell(lines: Sequence[Line], group: str) -> tuple[dict[tuple[str, str], Line], list[str], list[str]]:
    mine = [line for line in lines if SETTINGS[line.setting].group == group]
    cells = {(line.setting, line.cell): line for line in mine}
    return cells, list(dict.fromkeys(line.setting for line in mine)), list(dict.fromkeys(line.cell for line in mine))


def sparse_mean(lines: Sequence[Line]) -> float:
    """The mean level of all columns with 1 to 15 nonzero rows."""
    rates = [line.rate for line in lines if SETTINGS[line.setting].group == "sparse" and line.cell == "all"]
    return float(np.mean(rates)) if rates else float("nan")


def _sparse_group(lines: Sequence[Line]) -> str:
    cells, settings, counts = _by_cell(lines, "sparse")
    if not settings:
        return ""
    body = ([name, *(_level(cells.get((name, count))) for count in counts)] for name in settings)
    shown = table(["setting", *(count if count == "all" else f"{count} nonzero" for count in counts)], body)
    mean = sparse_mean(lines)
    said = f"The mean over all of them is {mean:.3f}" + (f", below {_LEAST_SPARSE}." if mean < _LEAST_SPARSE else ".")
    return f"""### Columns with 1 to 15 nonzero rows

P-values of such columns have few possible values, so that a level of at most 0.05 is below it on average. {said}

{shown}
"""


def _mates_group(lines: Sequence[Line]) -> str:
    cells, settings, ks = _by_cell(lines, "mates")
    if not settings:
        return ""

    def counted(name: str, k: str) -> str:
        line = cells.get((name, k))
        return "" if line is None else str(line.counted)

    body = (
        [name, *(text for k in ks for text in (_level(cells.get((name, k))), counted(name, k)))] for name in settings
    )
    shown = table(["setting", *(text for k in ks for text in (k, f"{k}, times selected"))], body)
    return f"""### Null columns that are correlated with a signal

The first of d columns has a signal, the second correlates with it at r and is null, the others are independent and
null; 50 v 50 rows, or 100 rows with a numeric response. The share is that of selective p-values of the second column at
or below 0.05, among the calls in which it is selected. {_pooled_mates(cells, ks)}

{shown}
"""


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


def levels_section(lines: Sequence[Line]) -> str:
    if not lines:
        return ""
    known = [line for line in lines if line.counted > 0]
    high = [line for line in known if above(line)]
    said = f"Of {len(known)} cells none is above 0.05 by more than three standard errors."
    if high:
        listed = "\n".join(f"- {line.setting} {line.cell}: {line.rate:.3f} ± {line.error:.3f}" for line in high)
        said = f"Of {len(known)} cells {len(high)} are above 0.05 by more than three standard errors (▲):\n\n{listed}"
    groups = [_plain_group(lines, "tiny"), _sparse_group(lines), _plain_group(lines, "few values")]
    groups += [_mates_group(lines), _plain_group(lines, "many rows"), _plain_group(lines, "real")]
    shown = "\n".join(group for group in groups if group)
    return f"""## Levels in hard settings

Calls of `compare` and `relate` with all defaults and `k=None`, without a correction (with `k` for correlated columns):
the share of null columns with a p-value at or below 0.05, with its standard error, calls being clusters
({_date(lines)}).

{said}

{shown}"""


def _date(lines: Sequence[Line]) -> str:
    dates = sorted({line.date for line in lines})
    return dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"


# --- intervals --------------------------------------------------------------------------------------------------------


def _coverage(line: Line | None) -> str:
    if line is None or line.counted == 0:
        return "–"
    text = f"{line.rate:.3f} ± {line.error:.3f}"
    return f"**{text}** ▼" if below(line) else text


def below(line: Line) -> bool:
    """Whether coverage is below 0.93, in a cell with intervals enough to tell."""
    return line.counted > 0 and line.error <= _LARGEST_ERROR and line.rate < _LEAST_COVERAGE


def coverage_section(lines: Sequence[Line]) -> str:
    if not lines:
        return ""
    cells = {(line.setting, line.cell): line for line in lines}
    settings = list(dict.fromkeys(line.setting for line in lines))
    columns = [f"{rule}, {kind}" for kind in ("true", "null") for rule in RULES]

    def shown(names: Sequence[str]) -> str:
        body = ([name, *(_coverage(cells.get((name, column))) for column in columns)] for name in names)
        return table(["setting", *columns], body)

    default = [name for name in settings if CELLS[name].estimator == "complete"]
    others = [name for name in settings if CELLS[name].estimator != "complete"]
    known = [line for line in lines if line.setting in default and line.counted > 0 and line.error <= _LARGEST_ERROR]
    low = [line for line in known if below(line)]
    said = f"None of {len(known)} cells of the default estimator is below {_LEAST_COVERAGE}."
    if low:
        least = min(low, key=lambda line: line.rate)
        said = (
            f"{len(low)} of {len(known)} cells of the default estimator are below {_LEAST_COVERAGE} (▼); the lowest is "
            f"{least.rate:.3f} ± {least.error:.3f} ({least.setting}, {least.cell})."
        )
    high = [line for line in known if line.rate > _MOST_COVERAGE]
    true = sum(line.cell.endswith("true") for line in high)
    calls = sorted({line.calls for line in lines if line.calls})
    rest = "" if not others else f"\nOther estimators, whose intervals are for the same effect:\n\n{shown(others)}\n"
    return f"""## Coverage of 95% intervals

Ten columns, of which five have an effect: a normal shift of 0.8, the same for the logarithm of lognormal values, binary
values 0.2 v 0.5, Poisson counts with means 2 v 4, and columns with 5% v 15% nonzero counts; with a numeric response
half of that times the response. The right value is the effect that the same call gives at {POPULATION:,} rows in the
same proportion, and 0 for the other five columns. Shares of the intervals of selected columns,
{" or ".join(map(str, calls))} calls a setting ({_date(lines)}). A dash: no such column was selected, or the
estimator gives no interval. Cells with a standard error above {_LARGEST_ERROR} are not judged.

{said}

{len(high)} of {len(known)} cells are above {_MOST_COVERAGE}, {true} of them of columns with an effect. Three causes
remain. The effect is the largest that several kernels see: its lower end pays for their number at every effect, and the
upper end is the largest of theirs. With few rows no upper end is below the effect that an unseen value could have, so
that nearly all errors are those of the lower end, where the spread of the statistic is estimated too large, by up to a
fifth with 16 rows. Rare values cannot be covered less: an interval leaves out 0 only where the exact test rejects, and
with 8 v 8 rows of which 5% v 15% are nonzero a p-value of 0.05 needs at least five nonzero rows in one sample and none
in the other, which happens in two of 1,000 cases.

{shown(default)}
{rest}"""


# --- far p-values and seeds -------------------------------------------------------------------------------------------


def tail_section(lines: Sequence[Line]) -> str:
    if not lines:
        return ""
    cells = {(line.setting, line.cell): line for line in lines}
    levels = list(dict.fromkeys(line.cell for line in lines))

    def ratio(name: str, level: str) -> str:
        line = cells[name, level]
        expected = line.counted * float(level)
        return f"{line.hits / expected:.2f} ± {np.sqrt(max(line.hits, 1.0)) / expected:.2f}"

    names = list(dict.fromkeys(line.setting for line in lines))
    body = ([name, f"{cells[name, levels[0]].counted:,}", *(ratio(name, level) for level in levels)] for name in names)
    shown = table(["column", "permutations", *(f"at {level}" for level in levels)], body)
    return f"""## Far p-values

A typical column, its rows permuted many times: how often its p-value is at or below a small level, divided by the level
({_date(lines)}). 1 is exact, below 1 is the safe side.

{shown}
"""


def seeds_section(folder: Path) -> str:
    lines = read_rows(folder / "seeds.csv", SeedLine)
    if not lines:
        return ""
    rare, spread, crossing = (
        [line.value for line in lines if line.quantity == name] for name in (RARE, SPREAD, CROSSING)
    )
    least, most = f"{min(rare):.2g}", f"{max(rare):.2g}"
    chances = f"p = {least}" if least == most else f"p = {least} to {most}"
    return f"""## Seeds

Above 16,384 rows values are rounded to a grid that is fitted to a sample of the rows, the same one in every call. 40
ones in 100,000 rows against 100,000 zeros have {chances} for {len(rare)} seeds of the call. The scores of {len(spread)}
null columns with 95% zeros and 20,000 v 20,000 rows have a standard deviation between seeds of {np.mean(spread):.3f} on
average and of {max(spread):.3f} at most. From 8,192 v 8,192 rows to one row more in each sample they change by
{np.mean(crossing):.3f} on average and by {max(crossing):.3f} at most.
"""


def hard_sections(folder: Path) -> str:
    """All of them, from the figures on record."""
    parts = [
        levels_section(read_rows(folder / "levels.csv", Line)),
        coverage_section(read_rows(folder / "coverage.csv", Line)),
        tail_section(read_rows(folder / "tail.csv", Line)),
        seeds_section(folder),
    ]
    return "\n".join(part for part in parts if part)
