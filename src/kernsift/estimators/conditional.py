"""The conditional test: does a feature depend on the response beyond what confounders z explain?

With f and g the directions of the kernels of the feature and of the response, r = f(x) - E[f(x) | z] and
s = g(y) - E[g(y) | z] (`kernsift.estimators.confounders`), the statistic is T = |sum_i v_i|^2 with v_i = vec(r_i s_i'),
the squared norm of the residual kernel cross-covariance. Without a confounder it is that of the complete estimator.

**Location first.** With adaptive kernels f and g are directions of kernels of u = x - E[x | z] and of the same for y,
for numbers with few ties. A function of x and z is as valid as one of x; u depends less on z than x does, and for a
square of x = E[x | z] + u the product of its two parts is noise. An effect that changes its sign with z can leave the
distribution of u as it is, so one more view is of x itself.

**Null law.** If the feature and the response are independent given z, the v_i have mean 0 and are independent, and T is
nearly a sum of chi-squares weighted by the eigenvalues of W = sum_i v_i v_i'. Its first three moments are those over
random signs of the v_i: with M_ij = v_i'v_j and M0 the same without its diagonal, mean tr M, variance 2 |M0|^2, third
central moment 8 tr(M0^3). The v_i are not centred: that would make T a squared t statistic, whose tails are too long
for this law where rows are few. All follow from W and from the diagonal of M in time linear in the rows. Residuals are
smaller than errors: with p and q degrees of freedom used by two regressions, v v' is scaled by n / (n - min(p, q)),
which is exact for projections on nested spaces. Rows that belong to one unit count as one: their v_i are added.

**Pairs of views** are combined as in the complete estimator, with the correlations of their T over the same signs.

**Effect.** The partial kernel correlation, sqrt(|C|^2 / sqrt(D_x D_y)) with C = sum_i v_i / n and D = tr(S^2) of the
residuals' covariances S. Its interval inverts the law of T along C, with the noise of the denominator counted through
the influence function, as in `kernsift.estimators.effect_intervals`.

**What is left of z.** If residuals of the feature and of the response still depend on z, and in the same way, the mean
of v_i is not 0 and the p-value is too small. Then r_i goes together with the mean of s_j over rows j that have nearly
the same z, which it cannot do for another reason: rows are independent. U = |sum_i r_i (W s)_i'|^2, with W the means
over 1 to 64 neighbours, is compared with its law under independence of r and W s, a sum of chi-squares weighted
by the products of their eigenvalues. With k neighbours the noise in W s is sqrt(k) times less than in s, so that U
shows smaller errors than those that change T. Where feature and response are related, regression leaves E[r_i s_j'] =
-(2 S - S^2)_ij C with C the covariance of their errors, which is taken off first; as this is an approximation, what
explains less than 0.15 of the covariance of r and s does not count. Where more features have a p-value of U below 0.01
than chance explains, the result carries a note with their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr

from kernsift.data.missing import Patterns, note_values
from kernsift.data.tables import Table, spaced_rows, stack
from kernsift.estimators.confounders import ConfounderRegression, Confounders, Neighbours, NothingLeft, fit_regression
from kernsift.estimators.effect_intervals import CombinedEffects, EffectLaws, concatenated, penalties
from kernsift.estimators.effect_views import MeasuredEffects
from kernsift.estimators.feature_blocks import Block, blocks_of, map_blocks
from kernsift.estimators.patterns import FeatureScores, bandwidth_of, pattern_effects
from kernsift.estimators.permutation_law import gamma_score, union_score
from kernsift.estimators.residual_statistics import (
    PairStatistic,
    ResidualView,
    correlations,
    effect_law,
    normal_scores,
    pair_statistic,
    point_effect,
)
from kernsift.estimators.responses import Response, label_response, table_response
from kernsift.estimators.scores import DenseCovariance, FactorCovariance, Scores
from kernsift.estimators.views import CLASSES, NUMBERS, PLAIN, Pair, fitted_views
from kernsift.exceptions import InputError
from kernsift.execution.arrays import asarray_like, to_numpy
from kernsift.execution.notes import add_note
from kernsift.kernels.contingency import tabulate
from kernsift.kernels.fitted import FeatureKernels
from kernsift.kernels.low_rank import landmark_rows
from kernsift.kernels.quantisation import fit_grid, rows_to_sort

VALUES = "values"
"""The view "moments" of the values as they are; all other views are of what confounders leave of them."""
_VALUES_SHARE = 0.2
CLASSES_GIVEN = (
    *(pair._replace(weight=(1.0 - _VALUES_SHARE) * pair.weight) for pair in CLASSES),
    Pair(VALUES, "plain", _VALUES_SHARE),
)
NUMBERS_GIVEN = (
    Pair("wide", "wide", 0.55),
    Pair("moments", "wide", 0.15),
    Pair("narrow", "wide", 0.1),
    Pair("wide", "smooth", 0.1),
    Pair(VALUES, "wide", 0.1),
)
"""Pairs of views for classes and for a response of numbers, given confounders."""
# Directions with less than this share of tr(K^2) are left out, and so are those beyond the first few.
_FAINT, _DIRECTIONS = 1e-2, 12
# Rows from which null laws are learned, and rows that show whether numbers have many ties.
_LAW_ROWS, _TIE_ROWS = 2**13, 1000
# Numbers that correlations between features are learned from, and rows at least and at most.
_KEPT, _LEAST_KEPT, _MOST_KEPT = 2**27, 2**7, 2**12
# Features whose correlations are sampled as they are; more are sampled from a sketch of this size.
_SKETCH = 2000
# Numbers of residuals that are computed in one product.
_AT_ONCE = 2**24
# The level at which dependence on z is reported, and the least share of the observed covariance that it explains.
_CHECK_LEVEL, _LEAST_LEFT = 0.01, 0.15


class LearningRows(NamedTuple):
    """The rows from which correlations between features are learned.

    Attributes
    ----------
    kept : (a,) these rows, of all.
    present : (n,) the rows, of all, that some features have; None for all.
    """

    kept: np.ndarray
    present: np.ndarray | None = None

    @classmethod
    def of(cls, n: int, d: int) -> LearningRows:
        """Evenly spaced rows of n, for d features."""
        most = int(np.clip(_KEPT // (max(d, 1) * _DIRECTIONS), _LEAST_KEPT, _MOST_KEPT))
        return cls(spaced_rows(n, most))

    def take(self, residuals: np.ndarray) -> np.ndarray:
        """(a, m) residuals at the kept rows, centred; 0 in rows that are not present."""
        places, own = np.arange(len(self.kept)), self.kept
        if self.present is not None:
            _, places, own = np.intersect1d(self.kept, self.present, assume_unique=True, return_indices=True)
        out = np.zeros((len(self.kept), residuals.shape[1]))
        if len(own):
            out[places] = residuals[own] - residuals[own].mean(axis=0)
        return out


@dataclass(frozen=True)
class ConditionalResponse:
    """A response after the confounders are taken out of it.

    Attributes
    ----------
    response : its views and pairs of views.
    views : its residuals by view.
    regression : what takes the confounders out.
    law_rows : rows from which null laws are learned; None for all.
    smoothed : what is left of the confounders in its residuals, by view.
    """

    response: Response
    views: dict[str, ResidualView]
    regression: ConfounderRegression
    law_rows: np.ndarray | None
    smoothed: dict[str, Smoothed]


class _Spectrum(NamedTuple):
    """tr(A), tr(A^2), tr(A^3)."""

    first: float
    second: float
    third: float

    @classmethod
    def of(cls, values: np.ndarray) -> _Spectrum:
        """Of the scatter of values (m, p)."""
        scatter = values.T @ values
        square = scatter @ scatter
        return cls(float(np.trace(scatter)), float(np.trace(square)), float((square * scatter).sum()))


class Smoothed(NamedTuple):
    """Means of the residuals of a response over rows with similar confounders.

    Attributes
    ----------
    response : its residuals.
    rows : (m,) the rows at which the means are.
    means : (m, p) for each number of neighbours, centred.
    spectra : of the scatter of each.
    rows_in_unit : how many rows belong together, on average.
    """

    response: ResidualView
    rows: np.ndarray
    means: tuple[np.ndarray, ...]
    spectra: tuple[_Spectrum, ...]
    rows_in_unit: float

    @classmethod
    def of(cls, response: ResidualView, neighbours: Neighbours, rows_in_unit: float) -> Smoothed:
        values = response.values[neighbours.rows]
        found = [mean @ values for mean in neighbours.means]
        means = tuple(part - part.mean(axis=0) for part in found)
        return cls(response, neighbours.rows, means, tuple(_Spectrum.of(part) for part in means), rows_in_unit)

    def left(self, feature: ResidualView, one: PairStatistic) -> float:
        """P-value of what is left of the confounders in the residuals of both; the smallest of all means, corrected."""
        own = feature.values[self.rows]
        spectrum = _Spectrum.of(own)
        if not self.means or spectrum.second == 0:
            return 1.0
        freedom = np.maximum(len(feature.values) - np.maximum(feature.spent[:, None], self.response.spent), 1.0)
        errors = self.rows_in_unit * one.total.reshape(freedom.shape) / freedom
        best, m = -np.inf, len(own)
        for place, (mean, other) in enumerate(zip(self.means, self.spectra, strict=True)):
            expected = -np.maximum(feature.near[place][:, None], self.response.near[place]) * errors
            statistic = float(((own.T @ mean - expected) ** 2).sum())
            sd = np.sqrt(2.0 * spectrum.second * other.second) / m
            if sd > 0 and statistic > _LEAST_LEFT**2 * one.statistic * (m / len(feature.values)) ** 2:
                skewness = 8.0 * spectrum.third * other.third / m**3 / sd**3
                standardised = (statistic - spectrum.first * other.first / m) / sd
                best = max(best, float(gamma_score(np.array(standardised), np.array(skewness))))
        return min(1.0, float(ndtr(-best)) * len(self.means))


def conditional_mmd(
    X: Table,
    Y: Table,
    kernels: FeatureKernels,
    confounders: Confounders,
    *,
    rng: np.random.Generator,
    adaptive: bool = False,
    rows: LearningRows | None = None,
    **design: Any,
) -> Scores:
    """Normal scores of the difference between two samples given confounders; these have the rows of X, then of Y.

    `design` are the `strata`, `units` and `model` of `fit_regression`.
    """
    table = stack([X, Y])
    response = _given_classes(label_response(X.n, Y.n, table.prototype, adaptive))
    regression = fit_regression(confounders, _rows_of(response)["plain"], rng, **design)
    return _conditional(table, _without(response, regression, rng), kernels, rows, rng)


def conditional_hsic(
    X: Table,
    y: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    confounders: Confounders,
    *,
    rng: np.random.Generator,
    adaptive: bool = False,
    rows: LearningRows | None = None,
    **design: Any,
) -> Scores:
    """Normal scores of the dependence on a response given confounders.

    `design` are the `strata`, `units` and `model` of `fit_regression`.

    Examples
    --------
    A feature that follows age, as the response does, is not related to it beyond age:

    >>> import numpy as np
    >>> from kernsift.data.inputs import as_table
    >>> from kernsift.kernels.fitted import fit_kernels
    >>> rng = np.random.default_rng(0)
    >>> age = rng.normal(size=400)
    >>> y = np.sin(2 * age) + 0.5 * rng.normal(size=400)
    >>> X = as_table(np.column_stack([np.sin(2 * age) + 0.5 * rng.normal(size=400), y + rng.normal(size=400)]))
    >>> target = as_table(y[:, None])
    >>> age = Confounders(("age",), age[:, None], np.array([False]))
    >>> scores = conditional_hsic(X, target, fit_kernels(X, rng=rng), fit_kernels(target, rng=rng), age, rng=rng)
    >>> (scores.estimate > 3).tolist()
    [False, True]
    """
    response, spent = table_response(y, response_kernels, rng, adaptive), np.zeros(1)
    regression = fit_regression(confounders, next(iter(_rows_of(response).values())), rng, **design)
    if response.pairs == NUMBERS:
        y, _, spent = residual_values(y, np.array([0]), regression)
        response = table_response(y, response_kernels, rng, adaptive)
        views = {pair.response: response.views[pair.response] for pair in NUMBERS_GIVEN}
        response = response._replace(pairs=NUMBERS_GIVEN, views=views)
    response = _given_classes(response)
    return _conditional(X, _without(response, regression, rng, spent), kernels, rows, rng)


def _given_classes(response: Response) -> Response:
    return response._replace(pairs=CLASSES_GIVEN) if response.pairs == CLASSES else response


def _conditional(
    table: Table,
    given: ConditionalResponse,
    kernels: FeatureKernels,
    rows: LearningRows | None,
    rng: np.random.Generator,
) -> Scores:
    to_sort = rows_to_sort(table.n)
    landmarks = landmark_rows(table.n, rng)
    measuring = _Measuring(given, landmarks, rows or LearningRows.of(table.n, table.d))
    measured = map_blocks(measuring, blocks_of(table, kernels, None, to_sort), table.d)
    winners = sorted(chain.from_iterable(measured), key=lambda winner: winner.feature)
    effect = np.array([winner.effect for winner in winners])
    cov = ResidualAlignment(tuple(winners), given, np.array([winner.square > 0 for winner in winners]))

    def effects(features: np.ndarray) -> MeasuredEffects:
        def measure() -> CombinedEffects:
            blocks = blocks_of(table, kernels, None, to_sort, among=features)
            own = _EffectMeasuring(given, landmarks)
            found = [part for parts in map_blocks(own, blocks, len(features)) for part in parts]
            order = {feature: place for place, (feature, _) in enumerate(found)}
            chosen = [found[order[feature]][1] for feature in features.tolist()]
            return CombinedEffects(tuple(concatenated(each) for each in zip(*chosen, strict=True)))

        return MeasuredEffects(effect[features], measure)

    return Scores(table.names, cov.scores, cov, effects=effects, views=cov.of_winners("pair", None))


def _without(
    response: Response, regression: ConfounderRegression, rng: np.random.Generator, spent: np.ndarray | float = 0.0
) -> ConditionalResponse:
    """The response with the confounders taken out; `spent` are degrees of freedom that its values have lost before."""
    views = {name: regression.residuals(part).after(spent) for name, part in _rows_of(response).items()}
    if not any(view.values.any() for view in views.values()):
        raise NothingLeft("given: the confounders determine the response: nothing is left to test; leave some out.")
    units, law_rows = regression.units, None
    if units is None and response.n > _LAW_ROWS:
        law_rows = np.sort(rng.choice(response.n, _LAW_ROWS, replace=False))
    rows_in_unit = 1.0 if units is None else response.n / (units.max() + 1.0)
    smoothed = {name: Smoothed.of(view, regression.neighbours, rows_in_unit) for name, view in views.items()}
    slim = response._replace(cells=None)
    return ConditionalResponse(slim, views, regression, law_rows, smoothed)


def _rows_of(response: Response) -> dict[str, np.ndarray]:
    """(n, m) the directions that count of each view of a response, at its rows."""
    cells = slice(None) if response.cells is None else to_numpy(response.cells)
    return {name: _leading(to_numpy(view.factor)[:, cells].T.astype(float)) for name, view in response.views.items()}


def residual_values(
    table: Table, features: np.ndarray, regression: ConfounderRegression
) -> tuple[Table, np.ndarray, np.ndarray]:
    """A table in memory with some features, numbers with few ties less what the confounders explain of them.

    Also (b,) which features these are, and the degrees of freedom that the regression of each used up.
    """
    part = table.loaded(features)
    own, spent = np.zeros(part.d, dtype=bool), np.zeros(part.d)
    some = spaced_rows(part.n, _TIE_ROWS)
    for j in np.flatnonzero((np.diff(part.offsets) == 1) & ~part.categorical):
        if part.incomplete is None or not part.incomplete[part.offsets[j]]:
            values = to_numpy(part.part(part.offsets[[j]], some))
            own[j] = 2 * len(np.unique(values)) > len(some)
    if own.any():
        values = to_numpy(part.part(slice(None))).astype(float)
        columns = part.offsets[:-1][own]
        left = regression.residuals(values[:, columns])
        values[:, columns], spent[own] = left.values, left.spent
        values = asarray_like(values, part.prototype)
        part = Table(part.names, values, part.offsets, part.categorical, part.levels, part.incomplete)
    return part, own, spent


def _leading(rows: np.ndarray) -> np.ndarray:
    """The directions of a factor (n, m) that count."""
    squares = (rows**2).sum(axis=0) ** 2
    behind = squares[::-1].cumsum()[::-1] > _FAINT * squares.sum()
    return rows[:, : min(max(int(behind.sum()), 1), _DIRECTIONS)]


def note_doubts(names: Sequence[str], left: np.ndarray) -> None:
    """Note the features whose residuals depend on the confounders, from p-values (d,), if more do than by chance."""
    doubtful, d = np.flatnonzero(left <= _CHECK_LEVEL), len(left)
    from scipy.stats import binom  # takes half a second to import

    if left.min(initial=1.0) > _CHECK_LEVEL / d and len(doubtful) <= binom.isf(_CHECK_LEVEL, d, _CHECK_LEVEL):
        return
    listed = ", ".join(repr(names[j]) for j in doubtful[:5])
    listed += f" and {len(doubtful) - 5} more" if len(doubtful) > 5 else ""
    add_note(
        f"The regression on given= leaves dependence on the confounders in the response and in {listed}: their "
        "p-values may be too small. A regressor of scikit-learn as given_model= may fit better."
    )


class _Winner(NamedTuple):
    """The residuals of a feature under the pair of views with its smallest p-value, on some rows.

    `score` is that of all pairs together. `trace` and `square` are those of their Gram matrix there and of its square,
    `left` is the p-value of what is left of the confounders in the residuals of both.
    """

    feature: int
    score: float
    effect: float
    values: np.ndarray
    trace: float
    square: float
    pair: Pair
    left: float


@dataclass(frozen=True)
class _Residualising:
    """Turns blocks of features into their residuals, one feature at a time."""

    given: ConditionalResponse
    landmarks: np.ndarray

    @property
    def weights(self) -> np.ndarray:
        """(pairs,) shares of the level."""
        return np.array([pair.weight for pair in self.given.response.pairs])

    def _features(self, block: Block) -> Iterator[tuple[int, dict[str, ResidualView]]]:
        response, regression = self.given.response, self.given.regression
        names = list(dict.fromkeys(pair.feature for pair in response.pairs))
        spent, residual_block = np.zeros(len(block.own)), block
        if response.pairs != PLAIN:
            table, own, spent = residual_values(block.table, block.own, regression)
            if own.any():
                kernels = block.kernels.select(block.own)
                residual_block = replace(block, table=table, kernels=kernels, own=np.arange(table.d))
        directions = self._directions(residual_block, [name for name in names if name != VALUES])
        if VALUES in names:
            directions[VALUES] = self._directions(block, ["moments"])["moments"]
        # One product with the basis for several features: it takes as long to read as to multiply.
        step = max(1, _AT_ONCE // (response.n * _DIRECTIONS * len(names)))
        for start in range(0, len(block.own), step):
            places = range(start, min(start + step, len(block.own)))
            parts = [directions[name](place) for place in places for name in names]
            whole = regression.residuals(np.hstack(parts))
            ends = np.cumsum([0, *(part.shape[1] for part in parts)])
            split = iter([ResidualView(*(part[..., a:b] for part in whole)) for a, b in pairwise(ends)])
            for place in places:
                views = {name: next(split).after(0.0 if name == VALUES else spent[place]) for name in names}
                if VALUES in views and not views[names[0]].values.any():
                    views[VALUES] = views[names[0]]  # the confounders determine the feature
                yield int(block.features[place]), views

    def _directions(self, block: Block, names: Sequence[str]) -> dict[str, Callable[[int], np.ndarray]]:
        """For each view a function of the place of a feature in the block: the directions that count (n, m)."""
        n = self.given.response.n
        grid = fit_grid(block.table, block.own, block.to_sort, rounded=block.kernels.rounds)
        known = tabulate(block.table, block.own, grid, None, 1, None)
        views = fitted_views(names, grid, known.counts, n, block.kernels, block.own, self.landmarks)
        codes = [slice(None)] * len(block.own) if known.codes is None else list(to_numpy(known.codes))

        def rows(factor: np.ndarray, place: int) -> np.ndarray:
            return _leading(factor[place][:, codes[place]].T.astype(float))

        return {name: partial(rows, to_numpy(views[name].view.factor)) for name in names}

    def _statistics(self, own: dict[str, ResidualView]) -> list[PairStatistic]:
        given = self.given
        return [
            pair_statistic(own[pair.feature], given.views[pair.response], given.regression.units, given.law_rows)
            for pair in given.response.pairs
        ]

    def _combined(self, statistics: Sequence[PairStatistic], scores: np.ndarray) -> float:
        if len(scores) == 1:
            return float(scores[0])
        return float(union_score(scores[:, None], self.weights, correlations(statistics)[:, :, None])[0])


@dataclass(frozen=True)
class _Measuring(_Residualising):
    """Scores of blocks of features."""

    rows: LearningRows

    def __call__(self, block: Block) -> list[_Winner]:
        return [self._measured(feature, own) for feature, own in self._features(block)]

    def _measured(self, feature: int, own: dict[str, ResidualView]) -> _Winner:
        given, pairs = self.given, self.given.response.pairs
        statistics = self._statistics(own)
        scores = normal_scores(statistics)
        smallest = log_ndtr(-scores) - np.log(self.weights)
        best = int(np.where([one.sd > 0 for one in statistics], smallest, np.inf).argmin())
        effect = max(
            point_effect(one, own[pair.feature], given.views[pair.response])
            for one, pair in zip(statistics, pairs, strict=True)
        )
        values = self.rows.take(own[pairs[best].feature].values)
        gram = values.T @ values
        square = float((gram**2).sum() - np.trace(gram) ** 2 / (len(values) - 1))
        left = [
            given.smoothed[pair.response].left(own[pair.feature], one)
            for one, pair in zip(statistics, pairs, strict=True)
        ]
        return _Winner(
            feature,
            self._combined(statistics, scores),
            effect,
            values.T.astype(np.float32),
            float(np.trace(gram)),
            max(square, 0.0) if statistics[best].sd > 0 else 0.0,
            pairs[best],
            min(1.0, len(left) * min(left)),
        )


@dataclass(frozen=True)
class _EffectMeasuring(_Residualising):
    """The laws behind the effects of blocks of features."""

    def __call__(self, block: Block) -> list[tuple[int, tuple[EffectLaws, ...]]]:
        return [(feature, self._laws(own)) for feature, own in self._features(block)]

    def _laws(self, own: dict[str, ResidualView]) -> tuple[EffectLaws, ...]:
        given, pairs = self.given, self.given.response.pairs
        statistics = self._statistics(own)
        scores = normal_scores(statistics)[:, None]
        taken = np.zeros_like(scores)
        if len(pairs) > 1:
            taken = penalties(scores, self.weights, np.array([self._combined(statistics, scores[:, 0])]))
        return tuple(
            effect_law(one, own[pair.feature], given.views[pair.response], score, penalty, given.regression.units)
            for one, pair, score, penalty in zip(statistics, pairs, scores, taken, strict=True)
        )


@dataclass(frozen=True)
class ResidualAlignment:
    """Correlation of the scores: the alignment of the Gram matrices of residuals, times that of the response's views.

    `varies` (d,) tells which features have scores at all; the others need no winner.
    """

    winners: tuple[_Winner, ...]
    given: ConditionalResponse
    varies: np.ndarray

    def of_winners(self, name: str, absent: Any) -> np.ndarray:
        """(d,) an attribute of the winners, `absent` for features without one."""
        out = np.full(len(self.varies), absent, dtype=type(absent) if absent is not None else object)
        for winner in self.winners:
            out[winner.feature] = getattr(winner, name)
        return out

    @property
    def scores(self) -> np.ndarray:
        """(d,) normal scores, 0 for features that do not vary."""
        return np.where(self.varies, self.of_winners("score", 0.0), 0.0)

    def diagonal(self) -> np.ndarray:
        return self.varies.astype(float)

    def columns(self, features: np.ndarray) -> np.ndarray:
        out = np.zeros((len(self.varies), len(features)))
        known = {winner.feature: winner for winner in self.winners}
        places = [place for place, feature in enumerate(features.tolist()) if self.varies[feature]]
        chosen = [known[int(features[place])] for place in places]
        if not chosen:
            return out
        ends = np.cumsum([0, *(len(winner.values) for winner in chosen)])[:-1]
        stacked = np.concatenate([winner.values for winner in chosen])
        trace, square = (np.array([getattr(winner, name) for winner in chosen]) for name in ("trace", "square"))
        for winner in self.winners:
            rows = winner.values.shape[1]
            inner = np.add.reduceat(((winner.values @ stacked.T) ** 2).sum(axis=0), ends)
            covariance = inner - winner.trace * trace / (rows - 1)
            scale = np.sqrt(winner.square * square)
            shared = np.array([self._between[winner.pair.response, other.pair.response] for other in chosen])
            found = shared * np.divide(covariance, scale, out=np.zeros(len(scale)), where=scale > 0)
            out[winner.feature, places] = found
        out = np.clip(out, -1.0, 1.0) * np.outer(self.varies, self.varies[features])
        out[features, np.arange(len(features))] = self.varies[features]
        return out

    def only(self, features: np.ndarray) -> ResidualAlignment:
        """The same with what the correlations among the named features need, and no more in memory."""
        named = set(features.tolist())
        return replace(self, winners=tuple(winner for winner in self.winners if winner.feature in named))

    def among(self, features: np.ndarray) -> np.ndarray:
        """(k, k) correlations of the named features with each other."""
        known = {winner.feature: winner for winner in self.winners}
        chosen = tuple(
            known[feature]._replace(feature=place)
            for place, feature in enumerate(features.tolist())
            if feature in known
        )
        part = ResidualAlignment(chosen, self.given, self.varies[features])
        return part.columns(np.arange(len(features)))

    @cached_property
    def _between(self) -> dict[tuple[str, str], float]:
        """Alignments of the views of the response."""
        views = self.given.views
        n = self.given.response.n

        def inner(one: ResidualView, other: ResidualView) -> float:
            product = float(((one.values.T @ other.values) ** 2).sum())
            return product - float(np.trace(one.scatter) * np.trace(other.scatter)) / (n - 1)

        own = {name: np.sqrt(max(inner(view, view), 1e-300)) for name, view in views.items()}
        found = {(a, b): inner(views[a], views[b]) / (own[a] * own[b]) for a in views for b in views}
        return {(a, b): 1.0 if a == b else float(np.clip(share, 0.0, 1.0)) for (a, b), share in found.items()}

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Normal draws from the correlation matrix, or for many features from a random sketch of it."""
        d = len(self.varies)
        if d <= _SKETCH:
            return DenseCovariance(self.columns(np.arange(d))).sample(size, rng)
        rows = self.winners[0].values.shape[1]
        first, second = rng.standard_normal((2, rows, _SKETCH)).astype(np.float32)
        sketch = np.zeros((_SKETCH, d))
        for one in self.winners:
            sketch[:, one.feature] = ((one.values @ first) * (one.values @ second)).sum(axis=0)
        norm = np.sqrt((sketch**2).sum(axis=0))
        sketch *= np.divide(self.varies, norm, out=np.zeros(d), where=norm > 0)
        return FactorCovariance(sketch).sample(size, rng)


Measure = Callable[[Sequence[Table], Any, LearningRows], Scores | None]
"""`measure(tables, bandwidth, rows)`: scores of features; None where their rows are too few to be tested."""


def measure_conditional(
    tables: Sequence[Table],
    measure: Measure,
    bandwidth: Any,
    missing: str,
    rng: np.random.Generator,
    notes: bool = True,
) -> FeatureScores:
    """Scores of the features of tables that lie one below the other, each from the rows that have it.

    `notes` says whether notes are added about missing values and about what is left of the confounders.
    """
    pooled = stack(tables)
    rows = LearningRows.of(pooled.n, pooled.d)
    if missing == "value" and notes:
        note_values(pooled)
    if missing != "column" or pooled.incomplete is None:
        scores = measure(tables, bandwidth, rows)
        if scores is None:
            raise InputError("X: at least two rows with different responses are needed.")
        constant, n = pooled.constant, np.full(pooled.d, pooled.n)
    else:
        patterns = Patterns(tables)
        if notes:
            patterns.note()
        scores, constant, n = *_by_pattern(patterns, pooled, measure, bandwidth, rows, rng), patterns.n
    assert isinstance(scores.cov, ResidualAlignment)
    if notes:
        note_doubts(pooled.names, scores.cov.of_winners("left", 1.0))
    return FeatureScores(scores, constant, n)


def _by_pattern(
    patterns: Patterns, pooled: Table, measure: Measure, bandwidth: Any, rows: LearningRows, rng: np.random.Generator
) -> tuple[Scores, np.ndarray]:
    """Scores of features that miss different rows, and (d,) which of them are constant."""
    state, constant = rng.bit_generator.state, np.zeros(pooled.d, dtype=bool)
    varies, winners = np.zeros(pooled.d, dtype=bool), []
    parts: list[tuple[np.ndarray, Scores]] = []
    for own in patterns.patterns:
        if not len(own.features):
            continue
        rng.bit_generator.state = state
        part, found = patterns.tables(own), None
        with suppress(NothingLeft):
            found = measure(part, bandwidth_of(bandwidth, own.features, pooled.d), rows._replace(present=own.rows))
        constant[own.features] = stack(part).constant
        if found is not None:
            assert isinstance(found.cov, ResidualAlignment)
            varies[own.features] = found.cov.varies
            winners += [winner._replace(feature=int(own.features[winner.feature])) for winner in found.cov.winners]
            parts.append((own.features, found))
    if not parts:
        raise InputError("X: no feature has two rows with different responses.")
    first = parts[0][1].cov
    assert isinstance(first, ResidualAlignment)
    cov = replace(first, winners=tuple(winners), varies=varies)
    views = cov.of_winners("pair", None)
    return Scores(pooled.names, cov.scores, cov, effects=partial(pattern_effects, parts), views=views), constant
