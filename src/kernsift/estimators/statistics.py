"""T = tr(Kc Lc) of a block of features under pairs of views: its value, its null moments and its normal scores.

The complete estimator, that within strata and the screen of data sets share it. Each feature has a T for every pair of
a view of the feature and a view of the response (`kernsift.estimators.views`); their scores become one score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr

from kernsift.data.tables import spaced_rows
from kernsift.estimators.null_laws.discrete_tails import DiscreteLaws, Law, fisher_laws
from kernsift.estimators.null_laws.discreteness import (
    FEW_LABELLED,
    MOST_PERMUTED,
    NULL_TAIL,
    OUTLIER_ROWS,
    SMALL_ROWS,
    carried_by_few_rows,
    diagonal_share,
    few_outcomes,
    few_products,
    few_tables,
    has_rare_rows,
    outliers_match,
    two_valued,
)
from kernsift.estimators.null_laws.enumeration import (
    ViewedFeature,
    enumerated_laws,
    permuted_laws,
)
from kernsift.estimators.null_laws.permutation_law import (
    limit_weights,
    moment_matrix,
    moments,
    score_of,
    spectral_score,
    union_score,
)
from kernsift.estimators.pairs import Pair
from kernsift.estimators.responses import Response, ResponseView, response_sums
from kernsift.estimators.views import RARE_LEVELS, FittedView
from kernsift.execution.arrays import Array, asarray_like, in_double, namespace, take, to_numpy
from kernsift.execution.codes import bincount_rows
from kernsift.kernels.contingency import Tabulation
from kernsift.kernels.group_views import GroupView
from kernsift.kernels.low_rank import View

# Rows of a group of columns among which few have to be different, so that its distinct rows are counted; and the most
# distinct rows.
_SEEN_ROWS, _MOST_DISTINCT = 2**8, 2**13
# Elements of one array of joint counts.
_NUMBERS = 2**23
# Powers of correlations between T under two pairs of views, see `tail_correlations`: in general, with one of some views
# in one of the pairs (of two of them the larger), and with views of categories of which one weighs the rare and the
# other the common levels.
_TAIL_POWER = 1.25
_TAIL_POWERS = {"location-scale": 1.5, "moments": 1.5, "unit moments": 1.5, "wide": 1.0, "normal-scores": 1.0}
_LEVELS_TAIL_POWER = 2.0


class StatisticLaws(NamedTuple):
    """T of some features and its null moments.

    `size` is tr(K^2) and `target` tr(L^2).
    """

    statistic: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    skewness: np.ndarray
    size: np.ndarray
    target: np.ndarray


class FittedStatistic(NamedTuple):
    """The statistic of some features under one pair of views.

    `target` is the view of the response; `cross` (b, m, p) has the cross-covariances of the feature's directions with
    those of the response. `step` is the distance between neighbouring values of T, 0 where these are close.
    """

    fitted: FittedView
    target: ResponseView
    laws: StatisticLaws
    cross: Array
    step: np.ndarray | float = 0.0

    @property
    def standardised(self) -> np.ndarray:
        """(b,) T less half a step, less its mean, over its standard deviation: the continuity correction."""
        laws, varies = self.laws, self.laws.sd > 0
        return np.where(varies, (laws.statistic - self.step / 2 - laws.mean) / np.where(varies, laws.sd, 1.0), 0.0)

    @property
    def view(self) -> View | GroupView:
        return self.fitted.view

    @property
    def of_levels(self) -> FittedStatistic:
        """The same, marked as that of categorical features."""
        return self._replace(fitted=self.fitted._replace(levels=True))

    def weighted(self, weights: np.ndarray) -> FittedStatistic:
        """The same with points that count in proportion to the squares of their weights (G,)."""
        view = View(self.view.factor * weights, self.view.sizes)
        return self._replace(fitted=self.fitted._replace(view=view))


def fit_statistics(views: Mapping[str, FittedView], known: Tabulation, response: Response) -> list[FittedStatistic]:
    """T of features under every pair of views, and its law."""
    found: dict[Pair, FittedStatistic] = {}
    # Several names may be those of one view, as of several columns. The sums of one view at a time are in memory.
    different = {id(view.fitted): view for view in response.views.values()}
    for own, view in different.items():
        pairs = [pair for pair in response.pairs if id(response.views[pair.response].fitted) == own]
        sums = response_sums(known, response, view) if pairs else None
        for pair in pairs:
            found[pair] = _fit_statistic(views[pair.feature], response.views[pair.response], sums, response.n)
        del sums
    return [found[pair] for pair in response.pairs]


def _fit_statistic(fitted: FittedView, target: ResponseView, sums: Any, n: int) -> FittedStatistic:
    view, own = fitted.view, fitted.own
    xp = namespace(view.sizes)
    cross = _products(sums, fitted)
    statistic = to_numpy(xp.sum(cross * cross, axis=(1, 2)))
    sizes = (one.second[..., 0] + one.trace**2 / (n - 1) for one in (own, target.own))
    laws = np.empty((len(StatisticLaws._fields), len(statistic)))
    for place, values in enumerate((statistic, *moments(n, own, target.own), *sizes)):
        laws[place] = values
    return FittedStatistic(fitted, target, StatisticLaws(*laws), cross)


def scores_of(statistics: Sequence[FittedStatistic]) -> np.ndarray:
    """(pairs, b) normal scores of T."""
    varies = np.array([one.laws.sd > 0 for one in statistics])
    weights, counts = [], []
    for one, some in zip(statistics, varies, strict=True):
        sizes = in_double(one.view.sizes[:1, :] if one.fitted.alike else one.view.sizes)
        xp = namespace(sizes)
        if not some.all():
            # The eigenvalues of constant features are arbitrary.
            sizes = xp.where(asarray_like(some[: sizes.shape[0], None], sizes), sizes, 1.0)
        target = asarray_like(one.target.sizes if one.target.sizes.any() else np.ones(1), sizes)
        weight, count = (xp.broadcast_to(part, (len(some), part.shape[1])) for part in limit_weights(sizes, target))
        weights.append(weight)
        counts.append(count)
    weight, count = (xp.concat(parts, axis=0) for parts in (weights, counts))
    standardised = asarray_like(np.concatenate([one.standardised for one in statistics]), weight)
    skewness = asarray_like(np.concatenate([one.laws.skewness for one in statistics]), weight)
    score = to_numpy(spectral_score(standardised, skewness, weight, count))
    return np.where(varies, score.reshape(varies.shape), 0.0)


def best_pairs(statistics: Sequence[FittedStatistic], scores: np.ndarray, response: Response) -> np.ndarray:
    """(b,) the pair of views with the smallest weighted p-value, from the scores (pairs, b) of each feature."""
    smallest = log_ndtr(-scores) - np.log(response.weights)[:, None]
    # A feature that is constant under a view has no score there.
    varies = np.array([one.laws.sd > 0 for one in statistics])
    return np.where(varies, smallest, np.inf).argmin(axis=0)


def combined_scores(
    statistics: Sequence[FittedStatistic],
    counts: Array,
    response: Response,
    correlation: np.ndarray,
    scores: np.ndarray,
) -> np.ndarray:
    """(b,) one score from the scores (pairs, b) of each feature, given the correlations (pairs, pairs, b) of T."""
    if len(statistics) == 1:
        return scores[0]
    correlation = tail_correlations(correlation, response.pairs, statistics[0].fitted.levels)
    return union_score(scores, response.weights, correlation, counts)


def correlations_of(statistics: Sequence[FittedStatistic], counts: Array, response: Response) -> np.ndarray:
    """(pairs, pairs, b) correlations of T under different pairs of views, over permutations of the rows."""
    count, b, n = len(statistics), len(statistics[0].laws.sd), response.n
    matrix = moment_matrix(2, n)
    out = np.ones((count, count, b))
    for i, one in enumerate(statistics):
        for j, other in enumerate(statistics[:i]):
            ours = _between(one.fitted, other.fitted, counts, n)
            theirs = _between(one.target.fitted, other.target.fitted, response.counts[None, :], n)
            found = correlation_of(((ours @ matrix) * theirs).sum(axis=1), one.laws.sd * other.laws.sd)
            out[i, j] = out[j, i] = found
    return out


def tail_correlations(correlation: np.ndarray, pairs: Sequence[Pair], levels: bool = False) -> np.ndarray:
    """(pairs, pairs, b) correlations of T under different pairs of views, as `union_score` needs them for joint tails.

    `union_score` treats T as the square of one normal variable. With several directions, which two views weight
    differently, both statistics exceed high levels together less often. With these powers of the correlation the joint
    probabilities are those of simulated columns. `levels` for categories.
    """
    out = np.maximum(correlation, 0.0)
    for i, j in permutations(range(len(pairs)), 2):
        names = {*pairs[i][:2]} ^ {*pairs[j][:2]}
        power = max((_TAIL_POWERS.get(name, _TAIL_POWER) for name in names), default=1.0)
        if levels:
            alike = (pairs[i].feature in RARE_LEVELS) == (pairs[j].feature in RARE_LEVELS)
            power = 1.0 if alike else _LEVELS_TAIL_POWER
        out[i, j] **= power
    return out


def correlation_of(covariance: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """(b,) correlations from covariances and products of standard deviations; 1 where something is constant."""
    return np.clip(np.divide(covariance, scale, out=np.ones(len(scale)), where=scale > 0), -1.0, 1.0)


def _between(one: FittedView, other: FittedView, counts: Array, n: int) -> np.ndarray:
    """(b, 2) the invariants of second order of two views of the same features; (1, 2) where these are alike."""
    if one is other:
        return one.own.second
    if one.alike and other.alike:
        one, other, counts = one.first, other.first, counts[:1, :]
    xp = namespace(counts)
    if isinstance(one.view, GroupView) and isinstance(other.view, GroupView):
        inner: Array = one.view.inner(other.view)
    else:
        if one.alike:
            one, other = other, one
        inner = _products(xp.matrix_transpose(one.view.factor * counts[:, None, :]), other)
    products = to_numpy(xp.sum(inner**2, axis=(1, 2))) - one.own.trace * other.own.trace / (n - 1)
    return np.stack([products, to_numpy(xp.sum(counts * one.rest * other.rest, axis=1))], axis=1)


def _products(sums: Array, fitted: FittedView) -> Array:
    """(b, m, p): the factors (b, m, G) of a view times `sums` (b, G, p), or a function that gives these for rows."""
    if isinstance(fitted.view, GroupView):
        return fitted.view.products(sums)
    sums = sums(slice(None))[None, ...] if callable(sums) else sums
    factor = fitted.view.factor
    if not fitted.alike:
        return factor @ sums
    # One product for all features instead of many small ones.
    xp, (b, points, p) = namespace(factor), sums.shape
    turned = xp.reshape(xp.matrix_transpose(sums), (b * p, points)) @ xp.matrix_transpose(factor[0, ...])
    return xp.matrix_transpose(xp.reshape(turned, (b, p, factor.shape[1])))


Outcomes = tuple[Tabulation, Sequence[FittedStatistic], Response]
"""What enumeration needs: counts of features, their statistics, and the response."""


def at_distinct_rows(
    known: Tabulation,
    statistics: Sequence[FittedStatistic],
    response: Response,
    values: Array | None,
    unbounded: bool = False,
) -> Outcomes:
    """The same with a point per distinct row of a group of columns, `values` (n, w), and of a response of several.

    Unchanged where nothing is enumerated: most rows of a group are different, no cell of the response is rare, and the
    kernel is bounded; or they are too many to compute all of their factors at once.
    """
    same = known, statistics, response
    if response.cells is None:
        if response.alike is None or response.n > _MOST_DISTINCT:
            return same
        response, targets = response.at_distinct_rows()
        statistics = [one._replace(target=targets[id(one.target)]) for one in statistics]
    if values is None:
        return known, statistics, response
    cells, n = to_numpy(response.counts), int(values.shape[0])
    some = _rows_as_bytes(take(values, spaced_rows(n, _SEEN_ROWS), 0))
    different = len(some) < n and 2 * len(np.unique(some)) > len(some)
    if different and (n > _MOST_DISTINCT or not (unbounded or has_rare_rows(cells[cells > 0], False))):
        return same
    first, rows = distinct_rows(values)
    if len(first) > _MOST_DISTINCT:
        return same
    views = {id(one.fitted): View(to_numpy(one.view.at(first)), to_numpy(one.view.sizes)) for one in statistics}
    merged = [one._replace(fitted=one.fitted._replace(view=views[id(one.fitted)])) for one in statistics]
    return rows, merged, response


def distinct_rows(values: Array) -> tuple[np.ndarray, Tabulation]:
    """The first of each of the distinct rows of values (n, w), and the rows counted by these."""
    _, first, codes, counts = np.unique(
        _rows_as_bytes(values), return_index=True, return_inverse=True, return_counts=True
    )
    return first, Tabulation(counts[None, :].astype(float), None, codes.ravel()[None, :])


def _rows_as_bytes(values: Array) -> np.ndarray:
    """(n,) the rows of values (n, w) as bytes, which are equal for equal rows."""
    own = np.ascontiguousarray(to_numpy(values) + 0.0)  # -0.0 equals 0.0
    return own.view(np.dtype((np.void, own.itemsize * own.shape[1])))[:, 0]


class DiscreteScores(NamedTuple):
    """Scores of b features, and (b,) as objects the gaps between the log p-values of each, as in `Scores`."""

    score: np.ndarray
    gaps: np.ndarray

    def put(self, features: np.ndarray, laws: DiscreteLaws) -> None:
        """Replace the scores of some features."""
        self.score[features] = score_of(np.minimum(laws.log_pvalues, -1e-15))  # a finite score where p is 1
        for feature, gaps in zip(features, laws.gaps, strict=True):
            self.gaps[feature] = gaps

    def put_one(self, feature: int, law: Law) -> None:
        self.put(np.array([feature]), DiscreteLaws(np.array([law[0]]), [law[1]]))


def enumerated_scores(
    outcomes: Outcomes, scores: np.ndarray, score: np.ndarray, seed: int, unbounded: bool = False
) -> DiscreteScores:
    """Scores, replaced for features whose permutation law has few outcomes (see `enumeration`).

    `unbounded`: whether the kernel is, so that few rows may dominate a feature.
    """
    known, statistics, response = outcomes
    if known.joint is None and (known.codes is None or response.cells is None):
        return DiscreteScores(score, np.full(len(score), None))
    used = to_numpy(response.counts) > 0
    cells, out = to_numpy(response.counts)[used].astype(int), DiscreteScores(score.copy(), np.full(len(score), None))
    fisher = two_valued(known.counts) if len(cells) == 2 else np.zeros(len(score), dtype=bool)
    if fisher.any():
        chosen = np.flatnonzero(fisher)
        out.put(chosen, fisher_laws(_joint(known, chosen, response)[:, :, used]))
    by_view = {id(one.target): to_numpy(one.target.factor)[:, used] for one in statistics}
    targets = [by_view[id(one.target)] for one in statistics]
    few = few_outcomes(known.counts, cells)
    if len(cells) > 2 and response.n <= OUTLIER_ROWS:
        large = np.array([one.laws.mean + one.laws.sd for one in statistics])
        few |= outliers_match([to_numpy(one.view.factor) for one in statistics], targets, to_numpy(known.counts), large)
    rare = has_rare_rows(cells, statistics[0].fitted.levels)
    drawn = rare or (len(cells) > 2 and response.n <= SMALL_ROWS)
    small = (log_ndtr(-score) <= np.log(NULL_TAIL)) & ~fisher
    if drawn:
        few |= small
    elif len(unknown := np.flatnonzero(small & ~few)):
        few[unknown] = few_tables(take(known.counts, unknown, 0), cells)
    heavy, meet = np.zeros_like(few), np.zeros_like(few)
    permuted, few_labelled = unbounded and response.n <= MOST_PERMUTED, cells.sum() - cells.max() <= FEW_LABELLED
    for one in statistics if permuted or few_labelled else ():
        own, other = (diagonal_share(part, response.n) for part in (one.fitted.own, one.target.own))
        if permuted:
            heavy |= carried_by_few_rows(own, other, response.n) & ~few & ~fisher
        else:
            meet |= few_products(own, other, response.n) & ~few & small
    at_once = max(1, _NUMBERS // (known.counts.shape[1] * len(used)))
    few_laws, rare_laws = (partial(enumerated_laws, rare=one) for one in (rare, True))
    for some, law in ((few, few_laws), (heavy, permuted_laws), (meet, rare_laws)):
        every = np.flatnonzero(some)
        for start in range(0, len(every), at_once):
            chosen = every[start : start + at_once]
            joint = _joint(known, chosen, response)
            tails = log_ndtr(-scores[:, chosen])
            features = _viewed_features(chosen, known, joint, statistics, tails, used, targets, response.weights)
            out.put(chosen, law(features, seed))
    return out


def _joint(known: Tabulation, chosen: np.ndarray, response: Response) -> np.ndarray:
    """(chosen, G, J) rows of each value of the chosen features in each cell of the response."""
    if known.joint is not None:
        return to_numpy(take(known.joint, chosen, 0))
    codes, cells = to_numpy(known.codes)[chosen], to_numpy(response.cells)
    return to_numpy(bincount_rows(codes, known.counts.shape[1], cells, response.counts.shape[0])).astype(float)


def _viewed_features(
    chosen: np.ndarray,
    known: Tabulation,
    joint: np.ndarray,
    statistics: Sequence[FittedStatistic],
    log_tails: np.ndarray,
    used: np.ndarray,
    targets: Sequence[np.ndarray],
    shares: np.ndarray,
) -> list[ViewedFeature]:
    """The chosen features at the points and in the cells that have rows."""
    counts = to_numpy(take(known.counts, chosen, 0))
    factors: dict[int, list[np.ndarray]] = {}
    for one in statistics:
        if id(one.fitted) not in factors:
            # Features with the same view have the same counts.
            alike = one.fitted.alike
            own = to_numpy(take(one.view.factor, chosen[:1] if alike else chosen, 0))
            found = [factor[:, some > 0] for factor, some in zip(own, counts[: len(own)], strict=True)]
            factors[id(one.fitted)] = found * len(chosen) if alike else found
    return [
        ViewedFeature(
            counts[place, own].astype(int),
            joint[place][np.ix_(own, used)],
            [factors[id(one.fitted)][place] for one in statistics],
            targets,
            shares,
            log_tails[:, place],
        )
        for place, own in enumerate(counts > 0)
    ]
