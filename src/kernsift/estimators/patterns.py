"""Features that miss different rows: each is scored on the rows that have it, and the scores are combined.

The score of a feature, its null law and its effect size are those of its own rows. How two scores vary together follows
from the rows that have both features: T = |sum_i f_i g_i'|^2 over a feature's rows, f and g the factors of feature and
response, so that the covariance of two sums has the products of both features' factors in the rows that they share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from kernsift.data.missing import Patterns, RowPattern, note_values
from kernsift.data.sparse import SparseTable
from kernsift.data.tables import Table, stack
from kernsift.estimators.covariance.alignment import AlignmentCovariance
from kernsift.estimators.covariance.paths import ScoreLaws
from kernsift.estimators.covariance.selected_factor import SelectedFactor
from kernsift.estimators.responses import Response
from kernsift.estimators.scores import EffectSizes, EffectsWithLaws, Scores
from kernsift.exceptions import InputError, quoted
from kernsift.execution.arrays import asarray_like, namespace, to_numpy
from kernsift.execution.notes import add_note
from kernsift.kernels.checks import checked_bandwidth

Rows = TypeVar("Rows", bound=Any)


class RowSubset(NamedTuple):
    """The rows of a table among more rows, where features miss different rows."""

    rows: np.ndarray | None  # (n,) their numbers, increasing; None for all
    of: int  # how many rows there are
    to_align: np.ndarray | None  # (a,) the rows, of all, that correlations are estimated from, increasing; None for all
    units: np.ndarray | None = None  # codes of all rows, alike within units, for correlations of sums over units
    response: Response | None = None  # of all rows, where factors are put among all rows; else None

    def select(self, whole: Rows) -> Rows:
        """These rows of a table, or of anything else that has `take`."""
        return whole if self.rows is None else whole.take(self.rows)

    @property
    def aligned(self) -> tuple[np.ndarray | None, np.ndarray, int]:
        """Which rows of the table correlations are estimated from, their places among all such rows, and how many."""
        if self.to_align is None:
            return None, np.arange(self.of) if self.rows is None else self.rows, self.of
        if self.rows is None:
            return self.to_align, np.arange(len(self.to_align)), len(self.to_align)
        _, own, places = np.intersect1d(self.rows, self.to_align, assume_unique=True, return_indices=True)
        return own, places, len(self.to_align)


Measure = Callable[[Sequence[Table], Any, RowSubset | None], Scores | None]
"""`measure(tables, bandwidth, subset)`: scores of features; None where their rows are too few to be tested."""


class FeatureScores(NamedTuple):
    """Scores of all features, and what is known of each."""

    scores: Scores
    constant: np.ndarray  # (d,) bool: the features that do not vary
    n: np.ndarray  # (d,) how many rows have each feature


def measure_features(
    tables: Sequence[Table], measure: Measure, bandwidth: Any, missing: str, estimator: str, rng: np.random.Generator
) -> FeatureScores:
    """Scores of the features of stacked tables, each from the rows that have it.

    Features that miss the same rows are measured together, as if there were no others, and with the same random
    numbers: a score is the one of a call with these rows alone.
    """
    if estimator not in ("complete", "cross"):
        tables = [table.dense() if isinstance(table, SparseTable) else table for table in tables]
    pooled = stack(tables)
    if missing == "value":
        note_values(pooled)
    if missing != "column" or pooled.incomplete is None:
        scores = measure(tables, bandwidth, None)
        assert scores is not None
        return FeatureScores(scores, _constant(pooled, scores), np.full(pooled.d, pooled.n))
    _check(bandwidth, estimator)
    patterns = Patterns(tables)
    patterns.note()
    constant, parts = np.zeros(pooled.d, dtype=bool), list[tuple[np.ndarray, Scores]]()
    for own, part, given in pattern_tables(patterns, bandwidth, rng):
        subset = None
        if parts and own.rows is not None:
            whole = _covariance(parts[0][1])
            subset = RowSubset(own.rows, patterns.rows, whole.rows, response=whole.response)
        found = measure(part, given, subset)
        if found is not None:
            parts.append((own.features, found))
            constant[own.features] = stack(part).constant if len(own.features) else False
    return FeatureScores(_merged(pooled.names, parts), constant, patterns.n)


def _constant(table: Table, scores: Scores) -> np.ndarray:
    """(d,) bool: the features whose rows are equal."""
    if not isinstance(table, SparseTable):
        return table.constant
    # Reading a sparse table again would take as long as scoring it; numbers with scores that vary do too.
    flat = scores.cov.diagonal() == 0
    if flat.any():
        flat[flat] = table.select(np.flatnonzero(flat)).constant
    return flat


def pattern_tables(
    patterns: Patterns, bandwidth: Any, rng: np.random.Generator
) -> Iterator[tuple[RowPattern, list[Table], str | np.ndarray]]:
    """Each pattern with its tables and bandwidths; `rng` begins with the same random numbers for each of them."""
    state = rng.bit_generator.state
    for own in patterns.patterns:
        rng.bit_generator.state = state
        yield own, patterns.tables(own), bandwidth_of(bandwidth, own.features, len(patterns.names))


def _check(bandwidth: Any, estimator: str) -> None:
    if estimator != "complete":
        raise InputError(
            f"missing: 'column' needs estimator='complete' where values are missing, got {estimator!r}; use "
            "missing='drop' or 'value'."
        )
    if isinstance(bandwidth, str) and bandwidth == "joint":
        raise InputError(
            "bandwidth: 'joint' needs rows without missing values; use missing='drop', or bandwidth='median'."
        )


def bandwidth_of(bandwidth: Any, features: np.ndarray, d: int) -> str | np.ndarray:
    """The bandwidths of some of d features, or the name of a rule."""
    given = checked_bandwidth(bandwidth, d)
    return given if isinstance(given, str) else given[features]


def _covariance(scores: Scores) -> AlignmentCovariance:
    assert isinstance(scores.cov, AlignmentCovariance)
    return scores.cov


def note_untested(names: Sequence[str], untested: np.ndarray) -> None:
    """Note the features (d,) that cannot be tested on the rows that have them."""
    columns = quoted([names[j] for j in np.flatnonzero(untested).tolist()])
    add_note(
        f"Not testable on the rows that have a value, so without evidence (p = 1): {columns}. Whether values are "
        "missing is tested with missing='value'."
    )


def _merged(names: tuple[str, ...], parts: Sequence[tuple[np.ndarray, Scores]]) -> Scores:
    """Scores of all features, from those of patterns, the first of which has all rows, and which features these are."""
    d, whole = len(names), _covariance(parts[0][1])
    laws, views, factors = ScoreLaws(*np.zeros((len(ScoreLaws._fields), d))), np.empty(d, dtype=object), []
    untested, gaps = np.ones(d, dtype=bool), np.empty(d, dtype=object)
    for features, scores in parts:
        untested[features], views[features], gaps[features] = False, scores.views, scores.gaps
        cov = _covariance(scores)
        for every, own in zip(laws, cov.laws, strict=True):
            every[features] = own
        for factor in cov.factors:
            factors.append(factor._replace(features=features[factor.features]))
            if factor.target not in cov.response.views:
                scale = _scale(factor, cov.response, whole)
                for every in (laws.statistic, laws.mean, laws.sd):
                    every[factors[-1].features] *= scale
    if untested.any():
        note_untested(names, untested)
        factors.append(_no_factor(np.flatnonzero(untested), whole, factors))
    cov = AlignmentCovariance(tuple(factors), whole.response, laws, whole.rows)
    effects = partial(pattern_effects, parts)
    return Scores(names, laws.score, cov, effects=effects, views=views, gaps=gaps)


def _scale(factor: SelectedFactor, response: Response, whole: AlignmentCovariance) -> float:
    """The factor of T under the view of the response of all rows that replaces the view of these rows.

    These rows have two values of the response (`view_among`).
    """
    values = to_numpy(whole.response.at(whole.rows, whole.response.views[factor.target]))[:, factor.present]
    return float(values.var(axis=1).sum() / max(response.first.sizes.sum() / response.n, 1e-300))


def pattern_effects(parts: Sequence[tuple[np.ndarray, Scores]], features: np.ndarray) -> PatternEffects:
    """Effects of some features, from the scores of patterns and which features these are."""
    found = []
    for own, scores in parts:
        _, here, places = np.intersect1d(features, own, return_indices=True)
        if len(here):
            assert scores.effects is not None
            found.append((here, scores.effects(places)))
    return PatternEffects(len(features), tuple(found))


def _no_factor(features: np.ndarray, whole: AlignmentCovariance, others: Sequence[SelectedFactor]) -> SelectedFactor:
    """Factors of features that cannot be tested: nothing varies."""
    prototype = others[0].factor if others else whole.response.first.factor
    codes = asarray_like(np.zeros((len(features), whole.row_count), dtype=np.uint8), prototype)
    factor = asarray_like(np.zeros((len(features), 1, 1)), prototype)
    factor = namespace(prototype).astype(factor, prototype.dtype)
    return SelectedFactor(features, factor, codes, factor[:, :, 0], factor, next(iter(whole.response.views)))


@dataclass(frozen=True)
class PatternEffects:
    """Effects of features from several patterns; 0 for features that cannot be tested."""

    count: int
    parts: tuple[tuple[np.ndarray, EffectSizes | EffectsWithLaws], ...]  # places among the features, and effects there

    @property
    def point(self) -> np.ndarray:
        return self._filled(np.zeros(self.count), lambda effects, places: effects.point)

    def intervals(self, level: float | np.ndarray = 0.95, unions: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """(b, 2) confidence intervals."""
        levels, every = np.broadcast_to(level, (self.count,)), np.tile([0.0, 1.0], (self.count, 1))
        return self._filled(every, lambda effects, own: effects.intervals(levels[own], _at(unions, own)))

    def medians(self, unions: Sequence[np.ndarray]) -> np.ndarray:
        """(b,) median-unbiased effects."""
        return self._filled(np.zeros(self.count), lambda effects, own: effects.medians(_at(unions, own)))

    def _filled(self, out: np.ndarray, values: Callable[[Any, np.ndarray], np.ndarray]) -> np.ndarray:
        for places, effects in self.parts:
            out[places] = values(effects, places)
        return out


def _at(unions: Sequence[np.ndarray] | None, places: np.ndarray) -> list[np.ndarray] | None:
    return None if unions is None else [unions[place] for place in places]
