"""The conditional test: does a feature depend on the response beyond what confounders z explain?

With f and g the directions of the kernels of the feature and of the response, r = f(x) - E[f(x) | z] and
s = g(y) - E[g(y) | z] (`kernsift.estimators.conditional.regression`), the statistic is T = |sum_i v_i|^2 with
v_i = vec(r_i s_i'), the squared norm of the residual kernel cross-covariance. Without a confounder it is that of the
complete estimator.

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
which is exact for projections on nested spaces. Rows that belong to one unit count as one: their v_i are added. If both
residuals are skew, tr M is correlated with the sum of the v_i, and is replaced by its mean where that is larger. Where
few rows carry the response, features with two values have few outcomes (`kernsift.estimators.conditional.few_rows`).

**Pairs of views** are combined as in the complete estimator, with the correlations of their T over the same signs.

**Effect.** The partial kernel correlation, sqrt(|C|^2 / sqrt(D_x D_y)) with C = sum_i v_i / n and D = tr(S^2) of the
residuals' covariances S. Its interval inverts the law of T along C, with the noise of the denominator counted through
the influence function, as in `kernsift.estimators.effects.intervals`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, pairwise
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from kernsift.data.tables import Table, spaced_rows, stack
from kernsift.estimators.conditional.confounders import Confounders, NothingLeft
from kernsift.estimators.conditional.few_rows import FewRows
from kernsift.estimators.conditional.regression import ConfounderRegression, fit_regression
from kernsift.estimators.conditional.remaining_dependence import RemainingDependence
from kernsift.estimators.conditional.residual_alignment import (
    DIRECTIONS,
    RESPONSE_DIRECTIONS,
    ResidualAlignment,
    Winner,
    centred_at,
    every_row,
)
from kernsift.estimators.conditional.residual_statistics import (
    PairStatistic,
    ResidualView,
    correlations,
    effect_law,
    normal_scores,
    pair_statistic,
    point_effect,
)
from kernsift.estimators.covariance.selected_factor import leading
from kernsift.estimators.effects.combined import CombinedEffects, MeasuredEffects, combined, penalties
from kernsift.estimators.feature_blocks import FeatureBlock, blocks_of, map_blocks
from kernsift.estimators.null_laws.permutation_law import union_score
from kernsift.estimators.pairs import CLASSES, PLAIN, SEVERAL_CLASSES, Pair, for_several_classes
from kernsift.estimators.patterns import RowSubset
from kernsift.estimators.responses import Response, label_response, table_response
from kernsift.estimators.scores import Scores
from kernsift.estimators.statistics import tail_correlations
from kernsift.estimators.views import fitted_views
from kernsift.exceptions import InputError
from kernsift.execution.arrays import asarray_like, to_numpy
from kernsift.kernels.contingency import tabulate
from kernsift.kernels.fitted import FeatureKernels
from kernsift.kernels.functions import Linear
from kernsift.kernels.low_rank import landmark_rows
from kernsift.kernels.quantisation import fit_grid

VALUES = "values"
"""The view "moments" of the values as they are; all other views are of what confounders leave of them."""
# The share of the level of that view, for an effect that changes its sign with z; all others have the rest.
_VALUES_SHARE = 0.2
CLASSES_GIVEN = (
    *(pair._replace(weight=(1.0 - _VALUES_SHARE) * pair.weight) for pair in CLASSES),
    Pair(VALUES, "plain", _VALUES_SHARE),
)
NUMBERS_GIVEN = (
    Pair("wide", "wide", 0.55),
    Pair("moments", "wide", 0.13),
    Pair("narrow", "wide", 0.08),
    Pair("wide", "smooth", 0.15),
    Pair(VALUES, "wide", 0.09),
)
"""Pairs of views for classes and for a response of numbers, given confounders."""
# Categories have as many directions as levels but one, of equal size under the kernel of chi-square: the most of a
# response, and of products with those of a feature.
_MOST_RESPONSE, _MOST_PRODUCTS = 64, 512
# Rows from which null laws are learned, and rows that show whether numbers have many ties.
_LAW_ROWS, _TIE_ROWS = 2**13, 1000
# Numbers of residuals that are computed in one product.
_AT_ONCE = 2**24
_NONE = np.empty(0)


@dataclass(frozen=True)
class ConditionalResponse:
    """A response after the confounders are taken out of it."""

    response: Response
    views: dict[str, ResidualView]
    regression: ConfounderRegression
    law_rows: np.ndarray | None  # from which null laws are learned; None for all
    remaining: RemainingDependence
    few: FewRows | None  # the rows that carry the response, if these are few


def conditional_mmd(
    X: Table,
    Y: Table,
    kernels: FeatureKernels,
    confounders: Confounders,
    *,
    rng: np.random.Generator,
    adaptive: bool = False,
    subset: RowSubset | None = None,
    **design: Any,
) -> Scores:
    """Normal scores of the difference between two samples given confounders; these have the rows of X, then of Y.

    `design` are the `strata`, `units` and `model` of `fit_regression`.
    """
    table = stack([X, Y])
    response = _with_pairs_given(label_response(X.n, Y.n, table.prototype, adaptive))
    regression = fit_regression(confounders, _regression_targets(response, kernels), rng, **design)
    return _conditional(table, _residual_response(response, regression, rng), kernels, subset, rng)


def conditional_hsic(
    X: Table,
    y: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    confounders: Confounders,
    *,
    rng: np.random.Generator,
    adaptive: bool = False,
    subset: RowSubset | None = None,
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
    response, spent = table_response(y, response_kernels, rng, adaptive, NUMBERS_GIVEN), np.zeros(1)
    values = None
    if response.pairs == NUMBERS_GIVEN and y.values.shape[1] == 1:
        values = to_numpy(y.part(slice(None))).astype(float)
    targets = _regression_targets(response, response_kernels)
    regression = fit_regression(confounders, targets, rng, values=values, **design)
    if response.pairs == NUMBERS_GIVEN:
        y, _, spent = residual_values(y, np.array([0]), regression)
        response = table_response(y, response_kernels, rng, adaptive, NUMBERS_GIVEN)
    return _conditional(
        X, _residual_response(_with_pairs_given(response), regression, rng, spent), kernels, subset, rng
    )


def _regression_targets(response: Response, kernels: FeatureKernels) -> np.ndarray:
    """(n, m) the directions of the response that choose the regression."""
    targets = next(iter(_rows_of(response).values()))
    if not targets.any():
        raise InputError(
            "kernel: given= needs one with which some responses are similar and some not; pass another one."
        )
    # Predictions are terms beside curves of them, so that the units of the response would decide about their weights.
    return targets / targets.std() if isinstance(kernels.kernel, Linear) else targets


def _with_pairs_given(response: Response) -> Response:
    """The response with the pairs of views that are used for classes given confounders."""
    known = {CLASSES: CLASSES_GIVEN, SEVERAL_CLASSES: for_several_classes(CLASSES_GIVEN)}
    return response._replace(pairs=known.get(response.pairs, response.pairs))


def _conditional(
    table: Table,
    given: ConditionalResponse,
    kernels: FeatureKernels,
    subset: RowSubset | None,
    rng: np.random.Generator,
) -> Scores:
    landmarks = landmark_rows(table.n, rng)
    measuring = _Measuring(given, landmarks, subset or every_row(table.n, table.d))
    measured = map_blocks(measuring, blocks_of(table, kernels), table.d)
    winners = sorted(chain.from_iterable(measured), key=lambda winner: winner.feature)
    effect = np.array([winner.effect for winner in winners])
    cov = ResidualAlignment(tuple(winners), table.d)

    def effect_laws(features: np.ndarray) -> CombinedEffects:
        blocks = blocks_of(table, kernels, among=features)
        found = map_blocks(_Measuring(given, landmarks), blocks, len(features))
        return combined(chain.from_iterable(found), features)

    effects = MeasuredEffects.of(effect, effect_laws)
    return Scores(table.names, cov.scores, cov, effects=effects, views=cov.of_winners("pair", None))


def _residual_response(
    response: Response, regression: ConfounderRegression, rng: np.random.Generator, spent: np.ndarray | float = 0.0
) -> ConditionalResponse:
    """The response with the confounders taken out; `spent` are degrees of freedom that its values have lost before."""
    views = {name: regression.residuals(part).after(spent) for name, part in _rows_of(response).items()}
    if not any(view.values.any() for view in views.values()):
        raise NothingLeft(
            "given: the confounders determine the response, or the sample of each row: nothing is left to test; leave "
            "some out."
        )
    units, law_rows = regression.units, None
    if units is None and response.n > 2 * _LAW_ROWS:
        law_rows = np.sort(rng.choice(response.n, _LAW_ROWS, replace=False))
    remaining = RemainingDependence.of(response.n, regression.spaces, regression.inputs, units, rng)
    # Rows of a unit are not independent given the confounders.
    few = None
    if units is None:
        few = FewRows.of([views[pair.response].values for pair in response.pairs], response.weights, rng)
    return ConditionalResponse(response._replace(cells=None), views, regression, law_rows, remaining, few)


def _rows_of(response: Response) -> dict[str, np.ndarray]:
    """(n, m) the directions that count of each view of a response, at its rows."""
    cells = slice(None) if response.cells is None else to_numpy(response.cells)
    factors = {name: to_numpy(view.factor)[:, cells].T.astype(float) for name, view in response.views.items()}
    return {name: _leading(factor, _MOST_RESPONSE) for name, factor in factors.items()}


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


def _leading(rows: np.ndarray, most: int) -> np.ndarray:
    """The directions of a factor (n, m) that count."""
    return rows[:, : min(max(int(leading((rows**2).sum(axis=0)).sum()), 1), most)]


@dataclass(frozen=True)
class _Measuring:
    """Scores of blocks of features, whose rows are a `subset` of all; without this, their effects."""

    given: ConditionalResponse
    landmarks: np.ndarray
    subset: RowSubset | None = None

    def __call__(self, block: FeatureBlock) -> list[Any]:
        measure = self._effects if self.subset is None else self._winner
        return [measure(*of_feature) for of_feature in self._features(block)]

    @cached_property
    def targets(self) -> dict[str, np.ndarray]:
        """(p, a) the leading residuals of the response by view, at the rows that correlations are estimated from."""
        assert self.subset is not None
        views = self.given.views.items()
        found = {name: centred_at(self.subset, view.values[:, :RESPONSE_DIRECTIONS], mean=True) for name, view in views}
        return {name: values.T for name, values in found.items()}

    def _features(self, block: FeatureBlock) -> Iterator[tuple[int, dict[str, ResidualView], np.ndarray]]:
        """The residuals of each feature by view, and (n,) the first direction of the first view."""
        response, regression = self.given.response, self.given.regression
        names = list(dict.fromkeys(pair.feature for pair in response.pairs))
        spent, residual_block = np.zeros(len(block.own)), block
        if response.pairs != PLAIN:
            table, own, spent = residual_values(block.table, block.own, regression)
            if own.any():
                kernels = block.kernels.select(block.own)
                residual_block = replace(block, table=table, kernels=kernels, own=np.arange(table.d))
        kinds = {name: "moments" if name == VALUES else name for name in names}
        found = self._directions(residual_block, list(dict.fromkeys(kinds.values())))
        directions = {name: found[kind] for name, kind in kinds.items()}
        if VALUES in names and residual_block is not block:
            directions[VALUES] = self._directions(block, ["moments"])["moments"]
        different = list(dict.fromkeys(directions.values()))
        # One product with the basis for several features: it takes as long to read as to multiply.
        step = max(1, _AT_ONCE // (response.n * DIRECTIONS * len(different)))
        for start in range(0, len(block.own), step):
            places = range(start, min(start + step, len(block.own)))
            parts = [rows(place) for place in places for rows in different]
            whole = regression.residuals(np.hstack(parts))
            ends = np.cumsum([0, *(part.shape[1] for part in parts)])
            split = iter([ResidualView(*(part[..., a:b] for part in whole)) for a, b in pairwise(ends)])
            for place in places:
                left = {rows: next(split) for rows in different}
                views = {name: left[directions[name]].after(0.0 if name == VALUES else spent[place]) for name in names}
                if VALUES in views and not views[names[0]].values.any():
                    views[VALUES] = views[names[0]]  # the confounders determine the feature
                yield int(block.features[place]), views, different[0](place)[:, 0]

    def _directions(self, block: FeatureBlock, names: Sequence[str]) -> dict[str, Callable[[int], np.ndarray]]:
        """For each view a function of the place of a feature in the block: the directions that count (n, m)."""
        n = self.given.response.n
        grid = fit_grid(block.table, block.own, block.to_sort, rounded=block.kernels.rounds)
        known = tabulate(block.table, block.own, grid)
        added = self.given.response.added_rows
        views = fitted_views(names, grid, known.counts, n, block.kernels, block.own, self.landmarks, added_rows=added)
        codes = [slice(None)] * len(block.own) if known.codes is None else list(to_numpy(known.codes))

        most = DIRECTIONS
        if block.kernels.categorical[block.own].any():
            most = max(most, _MOST_PRODUCTS // max(view.values.shape[1] for view in self.given.views.values()))

        def rows(factor: np.ndarray, place: int) -> np.ndarray:
            return _leading(factor[place][:, codes[place]].T.astype(float), most)

        # Names of the same view have the same function.
        of_views = {id(view): partial(rows, to_numpy(view.view.factor)) for view in views.values()}
        return {name: of_views[id(views[name])] for name in names}

    def _statistics(self, own: dict[str, ResidualView]) -> list[PairStatistic]:
        given = self.given
        return [
            pair_statistic(own[pair.feature], given.views[pair.response], given.regression.units, given.law_rows)
            for pair in given.response.pairs
        ]

    def _combined(self, statistics: Sequence[PairStatistic], scores: np.ndarray) -> float:
        if len(scores) == 1:
            return float(scores[0])
        correlation = tail_correlations(correlations(statistics)[:, :, None], self.given.response.pairs)
        return float(union_score(scores[:, None], self.given.response.weights, correlation)[0])

    def _score(
        self, statistics: Sequence[PairStatistic], scores: np.ndarray, own: dict[str, ResidualView], values: np.ndarray
    ) -> float:
        """The score of a feature with these `values` (n,) in its first direction."""
        combined, few = self._combined(statistics, scores), self.given.few
        if few is None:
            return combined
        first = own[self.given.response.pairs[0].feature]
        return few.bounded(combined, values, first.values[:, 0], scores)

    def _winner(self, feature: int, own: dict[str, ResidualView], values: np.ndarray) -> Winner:
        assert self.subset is not None
        given, pairs = self.given, self.given.response.pairs
        statistics = self._statistics(own)
        scores = normal_scores(statistics)
        score = self._score(statistics, scores, own, values)
        smallest = log_ndtr(-scores) - np.log(given.response.weights)
        best = int(np.where([one.sd > 0 for one in statistics], smallest, np.inf).argmin())
        effect = max(
            point_effect(one, own[pair.feature], given.views[pair.response])
            for one, pair in zip(statistics, pairs, strict=True)
        )
        feature_view, response_view = own[pairs[best].feature], given.views[pairs[best].response]
        factor = centred_at(self.subset, feature_view.values[:, :DIRECTIONS])
        cross = statistics[best].total.reshape(feature_view.values.shape[1], -1)
        gram = factor.T @ factor
        square = float((gram**2).sum() - np.trace(gram) ** 2 / (len(factor) - 1))
        return Winner(
            feature,
            score,
            effect,
            factor.T.astype(np.float32),
            float(np.trace(gram)),
            max(square, 0.0) if statistics[best].sd > 0 else 0.0,
            pairs[best],
            given.remaining.pvalue(cross, feature_view.values, response_view.values),
            given.remaining.isolated_pvalue(feature_view.values, response_view.values),
            cross[:DIRECTIONS, :RESPONSE_DIRECTIONS],
            statistics[best]._replace(products=_NONE, diagonal=_NONE, gram=_NONE),
            self.targets,
        )

    def _effects(
        self, feature: int, own: dict[str, ResidualView], values: np.ndarray
    ) -> tuple[np.ndarray, CombinedEffects]:
        given, pairs = self.given, self.given.response.pairs
        statistics = self._statistics(own)
        scores = normal_scores(statistics)[:, None]
        final = np.array([self._score(statistics, scores[:, 0], own, values)])
        scores = scores if len(pairs) > 1 else final[None]

        def union(some: np.ndarray) -> np.ndarray:
            return np.array([self._combined(statistics, some[:, 0])])

        taken = penalties(scores, final, given.response.weights, union)
        laws = tuple(
            effect_law(one, own[pair.feature], given.views[pair.response], score, penalty, given.regression.units)
            for one, pair, score, penalty in zip(statistics, pairs, scores, taken, strict=True)
        )
        return np.array([feature]), CombinedEffects(laws)
