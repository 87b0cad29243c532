"""Conditional tests of features that miss different rows: each is scored on the rows that have it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from kernsift.data.missing import Patterns, note_values
from kernsift.data.tables import Table, stack
from kernsift.estimators.conditional.confounders import NothingLeft
from kernsift.estimators.conditional.remaining_dependence import note_remaining_dependence
from kernsift.estimators.conditional.residual_alignment import ResidualAlignment, every_row
from kernsift.estimators.patterns import (
    FeatureScores,
    Measure,
    RowSubset,
    note_untested,
    pattern_effects,
    pattern_tables,
)
from kernsift.estimators.scores import Scores
from kernsift.exceptions import InputError, quoted
from kernsift.execution.notes import add_note


def measure_conditional(
    tables: Sequence[Table],
    measure: Measure,
    bandwidth: Any,
    missing: str,
    rng: np.random.Generator,
    notes: bool = True,
) -> FeatureScores:
    """Scores of the features of stacked tables, each from the rows that have it.

    `notes` says whether notes are added about missing values and about what is left of the confounders.
    """
    pooled = stack(tables)
    subset, untested = every_row(pooled.n, pooled.d), np.zeros(pooled.d, dtype=bool)
    if missing == "value" and notes:
        note_values(pooled)
    if missing != "column" or pooled.incomplete is None:
        scores = measure(tables, bandwidth, subset)
        if scores is None:
            raise InputError("X: at least two rows with different responses are needed.")
        constant, n = pooled.constant, np.full(pooled.d, pooled.n)
    else:
        patterns = Patterns(tables)
        if notes:
            patterns.note()
        scores, constant, untested = _by_pattern(patterns, pooled, measure, bandwidth, subset, rng)
        n = patterns.n
        if untested.any() and notes:
            note_untested(pooled.names, untested)
    assert isinstance(scores.cov, ResidualAlignment)
    if notes:
        doubts = (scores.cov.of_winners(name, 1.0) for name in ("remaining", "isolated"))
        note_remaining_dependence(pooled.names, *doubts)
        known = scores.cov.varies | constant | untested
        if gone := [name for name, flat in zip(pooled.names, known, strict=True) if not flat]:
            add_note(f"given= leaves nothing of these features, so without evidence (p = 1): {quoted(gone)}.")
    return FeatureScores(scores, constant, n)


def _by_pattern(
    patterns: Patterns, pooled: Table, measure: Measure, bandwidth: Any, subset: RowSubset, rng: np.random.Generator
) -> tuple[Scores, np.ndarray, np.ndarray]:
    """Scores of features that miss different rows, and (d,) which are constant, and which cannot be tested."""
    (constant, untested), winners = np.zeros((2, pooled.d), dtype=bool), []
    parts: list[tuple[np.ndarray, Scores]] = []
    refusal = InputError("X: no feature has two rows with different responses.")
    for own, part, given in pattern_tables(patterns, bandwidth, rng):
        if not len(own.features):
            continue
        found = None
        try:
            found = measure(part, given, subset._replace(rows=own.rows))
            untested[own.features] = found is None
        except NothingLeft as error:
            refusal = error
        if (rows := stack(part)).n:
            constant[own.features] = rows.constant
        if found is not None:
            assert isinstance(found.cov, ResidualAlignment)
            winners += [winner._replace(feature=int(own.features[winner.feature])) for winner in found.cov.winners]
            parts.append((own.features, found))
    if not parts:
        raise refusal
    cov = ResidualAlignment(tuple(winners), pooled.d)
    effects, views = partial(pattern_effects, parts), cov.of_winners("pair", None)
    return Scores(pooled.names, cov.scores, cov, effects=effects, views=views), constant, untested
