"""Warnings about combinations of estimator and test whose p-values are known to be miscalibrated.

Each sentence says what is wrong, why, and the better choice. The bounds come from the simulations of `make calibrate`;
docs/calibration.md has the rejection rates behind each.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np

from kernsift.data.tables import Table
from kernsift.estimators.null_laws.discreteness import MOST_PERMUTED
from kernsift.estimators.scores import Scores
from kernsift.exceptions import CalibrationWarning, caller_level
from kernsift.execution.arrays import to_numpy
from kernsift.inference.selection_rules import SelectionRule, TopK

# Draws per row, as a share of the rows, beyond which an incomplete statistic is distributed like the complete one.
_DRAWS_PER_ROW = 0.1
# Fewer blocks have a sample variance that is too imprecise to studentise with; fewer than the second number in the far
# tail. Beyond so many times as many rows the values of blocks of columns with rare values are skewed.
_FEW_BLOCKS, _TAIL_BLOCKS, _UNEVEN_BLOCKS = 5, 8, 3
# Fewer rows of the smaller sample are too few to estimate its law from one half, if the other sample has more than the
# second number times as many.
_FEW_ROWS, _UNEVEN = 12, 3
# The mean of fewer blocks of an HSIC is skewed if blocks have more rows than `_SMALL_BLOCK`.
_MANY_BLOCKS = 100
_SMALL_BLOCK = 5
# Rows that are checked for features with two values.
_CHECKED_ROWS = 256


def several_two_valued(table: Table) -> bool:
    """Whether the first rows of at least two features have two values."""
    values = to_numpy(table.part(slice(None), np.arange(min(table.n, _CHECKED_ROWS))))
    low, high = values.min(axis=0), values.max(axis=0)
    return int((((values == low) | (values == high)).all(axis=0) & (low < high)).sum()) > 1


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
    """Warn about a combination that is known to be miscalibrated.

    `rows` are those of each sample, `units` their units where rows belong to units; scores without their data have
    none. `two_valued` tells whether several features have two values, `unbounded` whether kernel values may be
    arbitrarily large.
    """
    found = _about_test(test, rule, len(scores), two_valued)
    if rows:
        counts, unit = units or rows, "unit" if units else "row"
        shortest, longest, draws = min(counts), max(counts), scores.draws or 0.0
        found = chain(found, _about_rows(estimator, draws, shortest, longest, unit, sum(rows) if unbounded else 0))
        if estimator == "block":
            found = chain(found, _about_blocks(question, draws, shortest, longest))
    for sentence in found:
        warnings.warn(sentence, CalibrationWarning, stacklevel=caller_level())


def _about_test(test: str, rule: SelectionRule, features: int, two_valued: Callable[[], bool]) -> Iterator[str]:
    if test == "multiscale" and isinstance(rule, TopK) and rule.k == 1 < features:
        yield (
            "test='multiscale' with k=1 rejects only about half as often as it may, because the region in which one "
            "feature wins has corners that the bootstrap's extrapolation does not follow, and too often (up to 0.2 at "
            "level 0.05) next to a correlated feature with an effect, because it draws scores from their null law; "
            "test='exact' keeps the level."
        )
    if test == "polyhedral" and two_valued():
        yield (
            "test='polyhedral' with features of two values may reject too often (up to 0.09 at level 0.05), because "
            "their scores nearly tie at the cut, and the narrow truncation intervals then depend on the few values of "
            "the scores and not on a normal law; test='exact' keeps the level."
        )


def _about_rows(
    estimator: str, draws: float, shortest: int, longest: int, unit: str, unbounded_rows: int
) -> Iterator[str]:
    """`unbounded_rows`: how many rows there are in all, if kernel values are unbounded."""
    if estimator == "complete" and unbounded_rows > MOST_PERMUTED:
        yield (
            f"An unbounded kernel on {unbounded_rows:,} rows may give p-values that are far too small for columns with "
            "extreme outliers, because a few rows determine their statistic, whose law is then known from permutations "
            "only, and there are too many rows to draw these; use kernel='gaussian', or transform the columns."
        )
    # One draw per row, the paper's choice, is the fewest, so it is never too many however few the rows are.
    most = max(1.0, _DRAWS_PER_ROW * shortest)
    if estimator == "incomplete" and draws > most * shortest:
        yield (
            f"estimator='incomplete' with r={round(draws / shortest, 2):g} rejects too often on {shortest} rows (up to "
            "0.2 at level 0.05), because the mean of so many draws has the skewed null law of the complete statistic "
            f"and not a normal one; use estimator='complete', which has that law, or take r up to {most:g}."
        )
    if estimator == "cross" and shortest < _FEW_ROWS and longest > _UNEVEN * shortest:
        yield (
            f"estimator='cross' with {shortest} {unit}s against {longest} gives too many very small p-values (0.002 to "
            f"0.01 at level 0.001), because the means of half of so few {unit}s are far from normal; use "
            "estimator='complete'."
        )


def _about_blocks(question: str, blocks: float, shortest: int, longest: int) -> Iterator[str]:
    if blocks < _FEW_BLOCKS:
        yield (
            f"estimator='block' with {blocks:g} blocks rejects too often (0.06 to 0.1 at level 0.05), because the "
            "variance of so few blocks is poorly estimated; use estimator='complete', or a block_size up to "
            f"{shortest // _FEW_BLOCKS}."
        )
    if question != "relate" and _FEW_BLOCKS <= blocks < _TAIL_BLOCKS:
        yield (
            f"estimator='block' with {blocks:g} blocks gives too many very small p-values (0.003 at level 0.001), "
            "because the variance of so few blocks is poorly estimated; use estimator='complete'."
        )
    if longest > _UNEVEN_BLOCKS * shortest:
        yield (
            f"estimator='block' with {shortest} rows against {longest} rejects too often in columns with rare values "
            "(up to 0.2 at level 0.05), because blocks without any in the smaller sample all have small positive "
            "values; use estimator='complete'."
        )
    size = int(shortest // max(blocks, 1.0))
    if question == "relate" and size > _SMALL_BLOCK and _FEW_BLOCKS <= blocks < _MANY_BLOCKS:
        yield (
            f"estimator='block' with {blocks:g} blocks of {size} rows rejects only about half as often as it may, "
            "because the values of large blocks are skewed, and so is the mean of few of them; use "
            "estimator='complete', or block_size=5."
        )
