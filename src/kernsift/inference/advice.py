"""Warnings about combinations of estimator and test whose p-values are known to be miscalibrated.

Each entry is a condition and a sentence: what is wrong, why, and the better choice. The bounds come from the
simulations of `make calibrate`; docs/calibration.md has the rejection rates behind each.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

import numpy as np

from kernsift.data.tables import Table
from kernsift.estimators.null_laws.discreteness import MOST_PERMUTED
from kernsift.estimators.scores import Scores
from kernsift.exceptions import CalibrationWarning
from kernsift.execution.arrays import to_numpy
from kernsift.inference.selection_rules import SelectionRule, TopK

# Draws per row, as a share of the rows, beyond which an incomplete statistic is distributed like the complete one.
_DRAWS_PER_ROW = 0.1
# Fewer blocks have a sample variance that is too imprecise to studentise with; fewer than the second number in the far
# tail. Beyond so many times as many rows the values of blocks of columns with rare values are skewed.
_FEW_BLOCKS, _TAIL_BLOCKS, _UNEVEN_BLOCKS = 5, 8, 3
# Rows of the smaller sample, half of which do not tell its law, where the other sample has so many times as many.
_FEW_ROWS, _UNEVEN = 12, 5
# Fewer blocks of an HSIC leave their mean skewed, where smaller blocks would have given more of them.
_MANY_BLOCKS = 100
_SMALL_BLOCK = 5
# Rows that are checked for features with two values.
_CHECKED_ROWS = 256


@dataclass(frozen=True)
class Call:
    """The properties of a call that the conditions below depend on.

    Attributes
    ----------
    rows : int
        Rows, or units, of the smallest sample, or of the table.
    longest : int
        Rows, or units, of the largest sample.
    draws : float or None
        Number of values that the scores average, where they are averages.
    two_valued : callable
        Whether several features have two distinct values; evaluated only where a condition needs it.
    unit : str
        What is counted: "row" or "unit".
    total : int
        Rows of all samples.
    unbounded : bool
        Whether values of the kernel may be arbitrarily large.
    """

    question: str
    estimator: str
    test: str
    rule: SelectionRule
    features: int
    rows: int
    longest: int
    draws: float | None
    two_valued: Callable[[], bool]
    unit: str = "row"
    total: int = 0
    unbounded: bool = False

    @property
    def draws_per_row(self) -> float:
        return round((self.draws or 0.0) / max(self.rows, 1), 2)

    @property
    def most_draws_per_row(self) -> float:
        # One draw per row, the paper's choice, is the fewest, so it is never too many however few the rows are.
        return max(1.0, _DRAWS_PER_ROW * self.rows)

    @property
    def block_size(self) -> int:
        return int(self.rows // max(self.draws or 1.0, 1.0))

    @property
    def largest_block(self) -> int:
        return self.rows // _FEW_BLOCKS


def several_two_valued(table: Table) -> bool:
    """Whether the first rows of at least two features have two values."""
    values = to_numpy(table.part(slice(None), np.arange(min(table.n, _CHECKED_ROWS))))
    low, high = values.min(axis=0), values.max(axis=0)
    return int((((values == low) | (values == high)).all(axis=0) & (low < high)).sum()) > 1


_ADVICE: tuple[tuple[Callable[[Call], bool], str], ...] = (
    (
        lambda call: call.estimator == "complete" and call.unbounded and call.total > MOST_PERMUTED,
        "An unbounded kernel on {call.total:,} rows may give p-values that are far too small for columns with extreme "
        "outliers, because so few rows carry their statistic that its law is that of the places of these, and there "
        "are too many rows to draw permutations; use kernel='gaussian', or transform the columns.",
    ),
    (
        lambda call: call.test == "multiscale" and isinstance(call.rule, TopK) and call.rule.k == 1 < call.features,
        "test='multiscale' with k=1 rejects only about half as often as it may, because the region in which one "
        "feature wins has corners that the bootstrap's extrapolation does not follow, and too often (up to 0.2 at "
        "level 0.05) next to a correlated feature with an effect, because it draws scores from their null law; "
        "test='exact' keeps the level.",
    ),
    (
        lambda call: call.test == "polyhedral" and call.two_valued(),
        "test='polyhedral' with features of two values may reject too often (up to 0.09 at level 0.05), because their "
        "scores nearly tie at the cut, and what room that leaves comes from few values and not from a normal law; "
        "test='exact' keeps the level.",
    ),
    (
        lambda call: call.estimator == "incomplete" and (call.draws or 0.0) > call.most_draws_per_row * call.rows,
        "estimator='incomplete' with r={call.draws_per_row:g} rejects too often on {call.rows} rows (up to 0.2 at "
        "level 0.05), because so many draws have the skewed null law of the complete statistic in place of a normal "
        "one; estimator='complete' knows that law, or take r up to {call.most_draws_per_row:g}.",
    ),
    (
        lambda call: call.estimator == "cross" and call.rows < _FEW_ROWS and call.longest > _UNEVEN * call.rows,
        "estimator='cross' with {call.rows} {call.unit}s against {call.longest} gives too many very small p-values "
        "(0.002 to 0.01 at level 0.001), because the means of half of so few {call.unit}s are far from normal; use "
        "estimator='complete'.",
    ),
    (
        lambda call: call.estimator == "block" and call.draws is not None and call.draws < _FEW_BLOCKS,
        "estimator='block' with {call.draws:g} blocks rejects too often (0.06 to 0.1 at level 0.05), because the "
        "spread of so few blocks is not known well enough; use estimator='complete', or a block_size up to "
        "{call.largest_block}.",
    ),
    (
        lambda call: (
            call.estimator == "block" and call.question != "relate" and _FEW_BLOCKS <= (call.draws or 0) < _TAIL_BLOCKS
        ),
        "estimator='block' with {call.draws:g} blocks gives too many very small p-values (0.003 at level 0.001), "
        "because the spread of so few blocks is not known well enough; use estimator='complete'.",
    ),
    (
        lambda call: call.estimator == "block" and call.longest > _UNEVEN_BLOCKS * call.rows,
        "estimator='block' with {call.rows} rows against {call.longest} rejects too often in columns with rare values "
        "(up to 0.2 at level 0.05), because blocks without any in the smaller sample all have small positive values; "
        "use estimator='complete'.",
    ),
    (
        lambda call: (
            (call.question, call.estimator) == ("relate", "block")
            and call.block_size > _SMALL_BLOCK
            and _FEW_BLOCKS <= (call.draws or 0) < _MANY_BLOCKS
        ),
        "estimator='block' with {call.draws:g} blocks of {call.block_size} rows rejects only about half as often as it "
        "may, because the values of large blocks are skewed and few of them do not average that out; use "
        "estimator='complete', or block_size=5.",
    ),
)


def advise(
    question: str,
    estimator: str,
    test: str,
    rule: SelectionRule,
    scores: Scores,
    rows: tuple[int, ...],
    two_valued: Callable[[], bool] = lambda: False,
    units: tuple[int, ...] | None = None,
    unbounded: bool = False,
) -> None:
    """Warn about a combination that is known to be miscalibrated; `rows` is empty for scores without their data.

    `units` are the numbers of units of the samples, where rows belong to units; `unbounded` is a property of the
    kernel.
    """
    draws, counts, what = scores.draws if rows else None, units or rows, "unit" if units else "row"
    shortest, longest = min(counts, default=0), max(counts, default=0)
    extent = (shortest, longest, draws, two_valued, what, sum(rows), unbounded)
    call = Call(question, estimator, test, rule, len(scores), *extent)
    for applies, sentence in _ADVICE:
        if applies(call):
            warnings.warn(sentence.format(call=call), CalibrationWarning, stacklevel=_caller_level())


def _caller_level() -> int:
    """The `stacklevel` of the first frame outside this package."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "kernsift":
        level, frame = level + 1, frame.f_back
    return level
