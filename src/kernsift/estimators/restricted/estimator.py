"""The complete estimator for rows that are exchangeable only within strata, in pairs or as units.

Within strata: T = tr(K L) with Gram matrices centred within strata, and its law over permutations within strata
(`kernsift.estimators.restricted.stratified_law`). Pairs are strata of two rows. Units, such as the donors of cells, are
what is permuted where the response belongs to the unit: a unit's factor is the mean of its rows' factors, its mean
embedding, and a unit is then treated as a row.

All that follows the factors works on units, of which there are N; a row is a unit of its own where no units are given.
Few different relabellings are enumerated (`kernsift.estimators.restricted.relabellings`).

Strata that differ in location would hide what happens within them, as a kernel that is wide enough for all strata does
not see it. So numeric columns are aligned first (Hodges and Lehmann 1962): each stratum's location is subtracted
(`kernsift.data.rows.aligned_tables.AlignedTable`). Permutations within strata do not change it, so the test stays
valid. In pairs and triples alignment takes away most of what a change of spread would show; there some views are of
aligned ranks, and the others are of the values as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.rows.aligned_tables import AlignedTable
from kernsift.data.rows.exchangeability import Exchangeability
from kernsift.data.tables import Table
from kernsift.estimators.block_sizes import parts_of
from kernsift.estimators.complete import MeasuredFeatures, measured_features, measured_table
from kernsift.estimators.covariance.selected_factor import rows_to_align
from kernsift.estimators.effects.combined import CombinedEffects
from kernsift.estimators.effects.views import view_effects
from kernsift.estimators.feature_blocks import FeatureBlock, blocks_of
from kernsift.estimators.pairs import CLASSES, PLAIN
from kernsift.estimators.responses import Response, ResponseView, table_response
from kernsift.estimators.restricted.covariance import Among, RestrictedCovariance, factor_among
from kernsift.estimators.restricted.relabellings import few_values
from kernsift.estimators.restricted.sign_flips import Flips
from kernsift.estimators.restricted.strata import Strata
from kernsift.estimators.restricted.stratified_counts import CountedFactor, RowCodes, StratifiedCounts
from kernsift.estimators.restricted.stratified_law import ThirdMoments, covariance, third_moment
from kernsift.estimators.restricted.unit_responses import UnitResponse, stratified_invariants
from kernsift.estimators.restricted.unit_views import (
    ALIGNED,
    by_point,
    centred_views,
    sources_of,
    unit_means,
)
from kernsift.estimators.scores import Scores
from kernsift.estimators.statistics import (
    FittedStatistic,
    StatisticLaws,
    best_pairs,
    combined_scores,
    correlation_of,
    correlations_of,
    distinct_rows,
    fit_statistics,
    scores_of,
)
from kernsift.estimators.views import FittedView, fitted, fitted_views, without_law
from kernsift.execution import threads
from kernsift.execution.arrays import Array, asarray_like, at_least, dtype_of, namespace, on_host, to_numpy
from kernsift.kernels.contingency import Tabulation, tabulate
from kernsift.kernels.fitted import FeatureKernels
from kernsift.kernels.low_rank import View, centred, landmark_rows
from kernsift.kernels.quantisation import Grid, fit_grid


def restricted_mmd(
    table: Table,
    kernels: FeatureKernels,
    rows: Exchangeability,
    among: Among | None = None,
    *,
    adaptive: bool = False,
    rng: np.random.Generator,
) -> Scores | None:
    """Normal scores of the MMD between two samples, whose label, `rows.response`, is permuted as `rows` allow.

    The table has both samples. None where nothing can be exchanged.
    """
    if not len(rows.informative):
        return None
    pairs = CLASSES if adaptive else PLAIN
    target = UnitResponse.of({"plain": np.arange(2.0)[None]}, rows.responses, pairs, rows, symmetric=True)
    return _restricted(table, target, kernels, rows, among, rng)


def restricted_hsic(
    table: Table,
    y: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    rows: Exchangeability,
    among: Among | None = None,
    *,
    adaptive: bool = False,
    rng: np.random.Generator,
) -> Scores | None:
    """Normal scores of the HSIC with the response of the units, which is permuted as `rows` allow."""
    if not len(rows.informative):
        return None
    known = table_response(y, response_kernels, rng, adaptive)
    cells = np.arange(rows.units) if known.cells is None else to_numpy(known.cells)
    factors = {name: to_numpy(view.factor) for name, view in known.views.items()}
    symmetric = bool(y.categorical.all()) or len(np.unique(rows.responses)) == 2
    target = UnitResponse.of(factors, cells, known.pairs, rows, symmetric)
    return _restricted(table, target, kernels, rows, among, rng)


class _Fitted(NamedTuple):
    """The statistics of a part of a block.

    `points` are those of the factors: units, or points that represent rows, which are then `counted` by stratum. The
    `response` is that of the units, on the device of the statistics. `correlation` (pairs, pairs, b) is that of T under
    two of the pairs; `unbounded` says whether the kernel of the features is.
    """

    statistics: list[FittedStatistic]
    correlation: np.ndarray
    points: Tabulation
    response: Response
    counted: StratifiedCounts | None = None
    unbounded: bool = False


@dataclass(frozen=True)
class _Measuring:
    """Measures blocks of features; rows are counted by point and the cells of a block, their units or strata."""

    target: UnitResponse
    rows: Exchangeability
    landmarks: np.ndarray
    dtype: Any
    seed: int
    to_align: np.ndarray | None
    codes: RowCodes | None = None
    final: np.ndarray | None = None

    def __call__(self, block: FeatureBlock) -> list[Any]:
        tables = [block.table]
        if any(name.startswith(ALIGNED) for name in self._sources):
            tables.append(AlignedTable(block.table, self.rows, every=True))
        rounds = block.kernels.rounds
        grids = [fit_grid(tables[0], block.own, block.to_sort, rounded=rounds, kernels=block.kernels)]
        grids += [fit_grid(table, block.own, block.to_sort, rounded=rounds) for table in tables[1:]]
        # Counts of units by point need no codes of rows.
        count, kept = self.rows.units + (self.rows.left_out > 0), None if block.cells is None else np.arange(0)
        if self.codes is not None:
            count, kept = self.codes.cell_count, None
        tabulated = [
            tabulate(table, block.own, grid, block.cells, count, kept)
            for table, grid in zip(tables, grids, strict=True)
        ]

        def measure(part: slice) -> Any:
            own, features = block.own[part], block.features[part]
            some = [(grid.part(part), known.part(part)) for grid, known in zip(grids, tabulated, strict=True)]
            levels = bool(block.kernels.categorical[own].any())
            fitted = self._fitted(some, own, block.kernels)
            statistics = [one.of_levels for one in fitted.statistics] if levels else fitted.statistics
            fitted = fitted._replace(statistics=statistics, unbounded=block.kernels.kernel.unbounded)
            known = some[0][1] if grids[0].edges is not None else distinct_rows(grids[0].points)[1]
            return self._measured(features, fitted, known)

        by_row = tabulated[0].joint is None or (self.codes is None and on_host(grids[0].points))
        rows, memory = (len(self.target.strata.order), 2**26) if by_row else (0, None)
        return list(threads.parallel_map(measure, parts_of(block.features, grids[0].points, rows, memory)))

    @property
    def _sources(self) -> list[str]:
        """Views of rows that those of the features are made of."""
        return sources_of(pair.feature for pair in self.target.response.pairs)

    def _fitted(self, tables: Sequence[tuple[Grid, Tabulation]], own: np.ndarray, kernels: FeatureKernels) -> _Fitted:
        counted = None
        # A group of columns has one point for each row.
        if self.codes is not None and tables[0][1].joint is not None:
            counted = StratifiedCounts.of(tables[0][1], self.codes, self.target.response.first.factor)
        factors: dict[str, Array] = {}
        for prefix, (grid, known) in zip(("", ALIGNED), tables, strict=False):
            own_names = [
                name.removeprefix(prefix) for name in self._sources if name.startswith(ALIGNED) == bool(prefix)
            ]
            counts, added = self._counts(known), self.target.response.added_rows
            found = fitted_views(
                own_names, grid, counts, self.rows.units, kernels, own, self.landmarks, without_law, added
            )
            for name, one in found.items():
                factor = one.view.factor
                if counted is None:
                    factor = unit_means(factor, known, self.rows, self.target.strata.order)
                factors[prefix + name] = factor
        if counted is not None:
            return self._fitted_counts(counted, factors)
        # Groups and categories have other directions.
        ordered = tables[0][0].edges is not None and not kernels.categorical[own].any()
        pairs = self.target.response.pairs
        factors = centred_views([pair.feature for pair in pairs], factors, self.target.strata, ordered)
        ones = asarray_like(np.ones((len(own), self.target.response.n)), next(iter(factors.values())))
        units = Tabulation(ones, None, None)
        if len(self.target.strata.sizes) == 1:
            return self._without_strata(factors, units)
        statistics = [self._statistic(factors[pair.feature], pair.response) for pair in pairs]
        correlation = _correlations(statistics, partial(self._correlation, statistics))
        return _Fitted(statistics, correlation, units, self.target.response)

    def _fitted_counts(self, counted: StratifiedCounts, factors: dict[str, Array]) -> _Fitted:
        """Factors (b, m, G) of the points of rows that are counted by stratum."""
        pairs, views = self.target.response.pairs, self.target.response.views
        ready = {name: counted.counted(factor) for name, factor in factors.items()}
        sums = counted.response_sums({name: view.factor for name, view in views.items()}, self.target.values)
        # The sum of squares of the first view of the response.
        spread = float(self.target.response.first.sizes.sum())
        statistics = [
            _counted_statistic(counted, ready[pair.feature], views[pair.response], sums[pair.response], spread)
            for pair in pairs
        ]
        few = [counted.carried_by_few_rows(ready[pair.feature], views[pair.response].factor) for pair in pairs]
        exact = counted.parts_of(np.flatnonzero(np.any(few, axis=0)), max(one.shape[1] for one in factors.values()))
        for place, (one, pair) in enumerate(zip(statistics, pairs, strict=True)):
            sd, skewness = one.laws.sd.copy(), one.laws.skewness.copy()
            for some in exact:
                centred, strata = counted.centred(factors[pair.feature], some)
                _, _, sd[some], third = self._moments(centred, pair.response, strata)
                skewness[some] = _skewness(third, sd[some])
            statistics[place] = one._replace(laws=one.laws._replace(sd=sd, skewness=skewness))

        def correlation(i: int, j: int) -> np.ndarray:
            one, other = statistics[i], statistics[j]
            inner = one.target.factor @ other.target.factor.T
            scatter = counted.scatter(ready[pairs[i].feature], ready[pairs[j].feature])
            found = (inner * inner).sum() * to_numpy(namespace(scatter).sum(scatter * scatter, axis=(1, 2)))
            sizes = [(part.target.sizes, to_numpy(part.view.sizes)) for part in (one, other)]
            own = [(target**2).sum() * (feature**2).sum(axis=1) for target, feature in sizes]
            limit = correlation_of(found, np.sqrt(own[0] * own[1]))
            for some in exact:
                (first, strata), (second, _) = (counted.centred(factors[pairs[at].feature], some) for at in (i, j))
                moments = self.target.moments[pairs[i].response, pairs[j].response]
                between = covariance(first, second, strata, moments)
                limit[some] = correlation_of(between, one.laws.sd[some] * other.laws.sd[some])
            return limit

        # Effects need the points of all rows.
        points = counted.points(self.to_align if self.final is None else None)
        return _Fitted(statistics, _correlations(statistics, correlation), points, self.target.response, counted)

    def _without_strata(self, factors: dict[str, Array], units: Tabulation) -> _Fitted:
        """Factors (b, m, N) of units of which any two may be exchanged: the law is that of all permutations."""
        ones, n = units.counts, self.target.response.n
        response = _moved(self.target.response, ones, ResponseView.of)
        views = {name: fitted(centred(factor, ones), ones, n) for name, factor in factors.items()}
        statistics = fit_statistics(views, units, response)
        return _Fitted(statistics, correlations_of(statistics, ones, response), units, response)

    def _correlation(self, statistics: Sequence[FittedStatistic], i: int, j: int) -> np.ndarray:
        one, other, pairs = statistics[i], statistics[j], self.target.response.pairs
        moments = self.target.moments[pairs[i].response, pairs[j].response]
        found = covariance(one.view.factor, other.view.factor, self.target.strata, moments)
        return correlation_of(found, one.laws.sd * other.laws.sd)

    def _counts(self, known: Tabulation) -> Array:
        """(b, G) shares of the units at each point, all units counting alike."""
        sizes = self.rows.unit_sizes
        if self.rows.unit is None or (not self.rows.left_out and sizes.min() == sizes.max()):
            return known.counts
        weights = np.append(1.0 / self.rows.unit_sizes, np.zeros(int(self.rows.left_out > 0)))
        if known.joint is not None:
            return known.joint @ asarray_like(weights, known.joint)
        if known.codes is None:
            return known.counts * asarray_like(weights[self.rows.unit], known.counts)
        codes, each = to_numpy(known.codes), weights[self.rows.unit]
        found = [np.bincount(own, each, known.counts.shape[1]) for own in codes]
        return asarray_like(np.array(found), known.counts)

    def _statistic(self, factor: np.ndarray, name: str) -> FittedStatistic:
        """T of features under one pair of views, and its law."""
        strata, target = self.target.strata, self.target.response.views[name]
        factor, sizes, sd, third = self._moments(factor, name, strata)
        size = ((factor @ factor.transpose(0, 2, 1)) ** 2).sum(axis=(1, 2))
        cross, traces = factor @ target.factor.T, strata.sums(np.einsum("bmn,bmn->bn", factor, factor))
        shares = strata.sums((target.factor**2).sum(axis=0)) / (strata.sizes - 1)
        moments = (np.einsum("bmp,bmp->b", cross, cross), traces @ shares, sd, third)
        return _with_law(factor, sizes, cross, target, size, traces, strata, moments)

    def _moments(
        self, factor: np.ndarray, name: str, strata: Strata
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Factors in the directions of the limit law and their sizes; the standard deviation and third moment of T."""
        response, scale = self.target.moments[name, name], self.target.scale[self.target.strata.starts][strata.of_row]
        # The rows of a pair are opposite.
        rows, scale = (factor[:, :, ::2], 2.0 * scale[::2]) if strata.are_pairs else (factor, scale)
        values, vectors = np.linalg.eigh((strata.weighted(rows) * scale) @ rows.transpose(0, 2, 1))
        factor = np.flip(vectors, axis=2).transpose(0, 2, 1) @ factor
        flips = Flips.of(factor, strata, response)
        if flips is not None:
            variance, third = flips.moments(self.target.response.views[name].factor, strata)
        else:
            own = ThirdMoments.of_features(factor, strata, response)
            variance, third = own.variance(response), third_moment(own, self.target.thirds[name], self.target.strata)
        return factor, np.maximum(np.flip(values, axis=1), 0.0), np.sqrt(variance), third

    def _measured(
        self, features: np.ndarray, fitted: _Fitted, known: Tabulation
    ) -> MeasuredFeatures | tuple[np.ndarray, CombinedEffects]:
        target, statistics, counted = self.target, fitted.statistics, fitted.counted
        scores = scores_of(statistics)
        union = partial(combined_scores, statistics, fitted.points.counts, target.response, fitted.correlation)
        if self.final is not None:
            strata = target.strata
            free = 1.0 - len(strata.sizes) / len(strata.order) if len(strata.sizes) > 1 else 1.0
            final = self.final[features]
            return features, view_effects(statistics, scores, union, final, fitted.points, fitted.response, free)
        score, winner = union(scores), best_pairs(statistics, scores, target.response)
        few = few_values(known, self.rows, target.strata, counted)
        given = (target.response.weights, few, self.seed, counted, fitted.unbounded)
        score, gaps = target.relabellings.scores(statistics, scores, score, *given)
        # Units count as their strata do; the covariance centres counted rows.
        if counted is None and len(target.strata.sizes) > 1 and (target.scale != 1.0).any():
            statistics = [one.weighted(np.sqrt(target.scale)) for one in statistics]
        dtype = getattr(namespace(statistics[0].view.sizes), self.dtype.name)
        shared = (fitted.points, target.response, self.to_align, dtype)
        return measured_features(features, statistics, score, winner, *shared)._replace(gaps=gaps)


def _correlations(statistics: Sequence[FittedStatistic], correlation: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """(pairs, pairs, b) correlations of T under different pairs of views, from those (b,) under two of the pairs."""
    found = np.ones((len(statistics), len(statistics), len(statistics[0].laws.sd)))
    for i, j in combinations(range(len(statistics)), 2):
        found[i, j] = found[j, i] = correlation(i, j)
    return found


def _counted_statistic(
    counted: StratifiedCounts, one: CountedFactor, target: ResponseView, sums: Array, spread: float
) -> FittedStatistic:
    """T of features with factors on their points, and its law."""
    xp, strata = namespace(one.factor), counted.rows.strata
    sizes = at_least(xp.flip(xp.linalg.eigvalsh(counted.scatter(one, one)), axis=1), 0.0)
    within = counted.unweighted_scatter(one)
    size = to_numpy(xp.sum(within * within, axis=(1, 2)))
    cross, known = one.factor @ sums, to_numpy(sizes)
    # The shares are those of the first view, in which the response of each view varies alike up to a factor.
    share = target.sizes / spread
    sd = np.sqrt(2.0 * (known**2).sum(axis=1) * (share**2).sum())
    third = 8.0 * (known**3).sum(axis=1) * (share**3).sum()
    means = one.traces @ (strata.sums((target.factor**2).sum(axis=0)) / (strata.sizes - 1))
    statistic = to_numpy(xp.sum(cross * cross, axis=(1, 2)))
    return _with_law(one.factor, sizes, cross, target, size, one.traces, strata, (statistic, means, sd, third))


def _with_law(
    factor: Array,
    sizes: Array,
    cross: Array,
    target: ResponseView,
    size: np.ndarray,
    traces: np.ndarray,
    strata: Strata,
    moments: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> FittedStatistic:
    """A statistic from tr K^2, the traces by stratum, and T with its mean, standard deviation and third moment."""
    own, (statistic, mean, sd, third) = stratified_invariants(traces, size, strata), moments
    laws = StatisticLaws(statistic, mean, sd, _skewness(third, sd), size, np.full(len(sd), (target.sizes**2).sum()))
    return FittedStatistic(FittedView(View(factor, sizes), own, np.zeros((len(sd), 0))), target, laws, cross)


def _skewness(third: np.ndarray, sd: np.ndarray) -> np.ndarray:
    return third / np.where(sd > 0, sd, 1.0) ** 3


def _moved(response: Response, prototype: Array, view: Callable[[FittedView], ResponseView] | None = None) -> Response:
    """A response on the device of a prototype; `view` makes new views from these."""
    views = {}
    for name, known in response.views.items():
        there = known.fitted.moved_to(prototype)
        views[name] = known._replace(fitted=there) if view is None else view(there)
    return response._replace(counts=asarray_like(response.counts, prototype), views=views)


def _restricted(
    table: Table,
    target: UnitResponse,
    kernels: FeatureKernels,
    rows: Exchangeability,
    among: Among | None,
    rng: np.random.Generator,
) -> Scores:
    to_align = rows_to_align(target.response.n, rng) if among is None else None
    landmarks = landmark_rows(table.n, rng)
    codes = RowCodes.of(rows, target.strata, target.cells, on_device=not on_host(table.prototype))
    cells = by_point(rows, table) if codes is None else asarray_like(codes.cells, table.prototype)
    if codes is not None and to_align is None:
        to_align = np.arange(target.response.n)  # sizes of points, which count by stratum, are not those of rows
    seed = int(rng.integers(2**32))
    measuring = _Measuring(target, rows, landmarks, dtype_of(table.prototype), seed, to_align, codes)
    blocks = partial(blocks_of, table, kernels, cells)
    scores, laws, factors = measured_table(table.names, blocks, measuring, target.response.ceiling)
    if among is not None:
        places = among.places(target.strata.order)
        factors = [factor_among(factor, *places, among.subset, target.response) for factor in factors]
    response = _moved(target.response, factors[0].cross) if factors else target.response
    return scores(cov=RestrictedCovariance(tuple(factors), response, laws, to_align, target.strata))
