"""Combinations whose p-values are known to be off: what is said about them, and what to use instead.

Each entry is a condition and a sentence: what is wrong, why, and the better choice. The bounds come from the grid of
`make calibrate`; docs/calibration.md has the figures behind each.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

import numpy as np

from kernsift.data.tables import Table
from kernsift.estimators.scores import Scores
from kernsift.exceptions import CalibrationWarning
from kernsift.execution.arrays import to_numpy
from kernsift.inference.selection_rules import SelectionRule, TopK

# Draws a row beyond which an incomplete statistic behaves like the complete one: a tenth of the rows.
_DRAWS_A_ROW = 0.1
# Blocks whose sample variance is too rough to divide by.
_FEW_BLOCKS = 5
# Rows of a sample, half of which measure a spread, where the other sample has more than twice as many.
_FEW_ROWS = 30
# Blocks of an HSIC below which their skewness is felt in the mean, where smaller blocks would have given more of them.
_MANY_BLOCKS = 100
_SMALL_BLOCK = 5
# Rows that tell whether a feature has two values.
_LOOKED_AT = 256


@dataclass(frozen=True)
class Call:
    """What decides whether p-values can be trusted.

    Attributes
    ----------
    rows : of the shorter sample, or of the table; `longest`: of the longest sample.
    draws : values that the scores average, where they are averages.
    two_valued : whether several features have two values only; asked where it matters.
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

    @property
    def draws_a_row(self) -> float:
        return (self.draws or 0.0) / max(self.rows, 1)

    @property
    def block_size(self) -> int:
        return int(self.rows // max(self.draws or 1.0, 1.0))


def _few_blocks(call: Call) -> bool:
    return call.estimator == "block" and call.draws is not None and call.draws < _FEW_BLOCKS


def _large_blocks(call: Call) -> bool:
    averages = call.question == "relate" and call.estimator == "block"
    return averages and call.block_size > _SMALL_BLOCK and _FEW_BLOCKS <= (call.draws or 0) < _MANY_BLOCKS


def _many_draws(call: Call) -> bool:
    # The paper's one draw a row is as far from the complete statistic as one can go, however few the rows.
    return call.estimator == "incomplete" and call.draws_a_row > max(1.0, _DRAWS_A_ROW * call.rows)


def _small_sample(call: Call) -> bool:
    # Of two samples of one size, Student's law knows how rough the spread is.
    return call.estimator == "cross" and call.rows < _FEW_ROWS and call.longest > 2 * call.rows


def _one_winner(call: Call) -> bool:
    return call.test == "multiscale" and isinstance(call.rule, TopK) and call.rule.k == 1 < call.features


def _near_ties(call: Call) -> bool:
    return call.test == "polyhedral" and call.two_valued()


def several_two_valued(table: Table) -> bool:
    """Whether the first rows of at least two features have two values."""
    values = to_numpy(table.part(slice(None), np.arange(min(table.n, _LOOKED_AT))))
    low, high = values.min(axis=0), values.max(axis=0)
    return int((((values == low) | (values == high)).all(axis=0) & (low < high)).sum()) > 1


_ADVICE: tuple[tuple[Callable[[Call], bool], str], ...] = (
    (
        _one_winner,
        "test='multiscale' with k=1 rejects only about half as often as it may, because the region in which one "
        "feature wins has corners that the bootstrap's extrapolation does not follow; test='exact' keeps the level.",
    ),
    (
        _near_ties,
        "test='polyhedral' with features of two values may reject too often (up to 0.09 at level 0.05), because their "
        "scores nearly tie at the cut, and what room that leaves comes from few values and not from a normal law; "
        "test='exact' keeps the level.",
    ),
    (
        _many_draws,
        "estimator='incomplete' with r={a_row:g} rejects too often on {rows} rows (up to 0.2 at level 0.05), because "
        "so many draws have the skewed null law of the complete statistic in place of a normal one; "
        "estimator='complete' knows that law, or take r up to {most_a_row:g}.",
    ),
    (
        _small_sample,
        "estimator='cross' with {rows} rows against {longest} rejects too often (0.07 to 0.4 at level 0.05 with k=1), "
        "because half of so few rows do not tell the spread, which the other sample hides; use estimator='complete'.",
    ),
    (
        _few_blocks,
        "estimator='block' with {draws:g} blocks rejects too often (0.06 to 0.1 at level 0.05), because the spread of "
        "so few blocks is not known well enough; use estimator='complete', or a block_size up to {largest_block}.",
    ),
    (
        _large_blocks,
        "estimator='block' with {draws:g} blocks of {block_size} rows rejects only about half as often as it may, "
        "because the values of large blocks are skewed and few of them do not average that out; "
        "use estimator='complete', or block_size=5.",
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
) -> None:
    """Warn about a combination that is known to be off; `rows` is empty for scores that came without their data."""
    draws, shortest, longest = scores.draws if rows else None, min(rows, default=0), max(rows, default=0)
    call = Call(question, estimator, test, rule, len(scores), shortest, longest, draws, two_valued)
    for applies, sentence in _ADVICE:
        if applies(call):
            said = sentence.format(
                estimator=estimator,
                rows=call.rows,
                longest=call.longest,
                draws=call.draws,
                a_row=round(call.draws_a_row, 2),
                most_a_row=max(1.0, _DRAWS_A_ROW * call.rows),
                block_size=call.block_size,
                largest_block=call.rows // _FEW_BLOCKS,
            )
            warnings.warn(said, CalibrationWarning, stacklevel=_outside())


def _outside() -> int:
    """How far up the first line is that is not the library's own: the one to point at."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "kernsift":
        level, frame = level + 1, frame.f_back
    return level
