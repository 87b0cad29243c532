"""The complete estimator: all pairs of rows, with a null law that needs no resampling.

For every feature T = tr(Kc Lc), with Kc and Lc the centred Gram matrices of the feature and of the response; for two
samples the response is the sample label, which makes T the squared MMD of all rows, so that MMD and HSIC share one
implementation and unequal sizes are no special case. T is converted into a normal score by its permutation law
(`kernsift.estimators.null_laws.permutation_law`). The correlation between the scores of two null features is that of
their T over permutations, which for large n is the alignment of their Gram matrices.

**Adaptive bandwidth.** A single kernel has little power against some shapes, so each feature is tested with several
pairs of a view of the feature and a view of the response (`kernsift.estimators.views`). The smallest of the weighted
p-values is converted into one normal score with the joint normal law of the pairs' scores, whose correlations are again
those over permutations; the covariance of the scores uses the pair with the smallest one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.tables import Table, stack
from kernsift.estimators.block_sizes import parts_of
from kernsift.estimators.covariance.alignment import AlignmentCovariance
from kernsift.estimators.covariance.paths import ScoreLaws
from kernsift.estimators.covariance.selected_factor import SelectedFactor, rows_to_align
from kernsift.estimators.effects.combined import CombinedEffects, MeasuredEffects, combined
from kernsift.estimators.effects.views import point_effects, view_effects
from kernsift.estimators.feature_blocks import FeatureBlock, blocks_of, map_blocks
from kernsift.estimators.null_laws.discreteness import lattice_step
from kernsift.estimators.pairs import PLAIN, chosen_pairs, merged
from kernsift.estimators.patterns import RowSubset
from kernsift.estimators.responses import Response, label_response, table_response
from kernsift.estimators.scores import Scores
from kernsift.estimators.statistics import (
    FittedStatistic,
    Outcomes,
    StatisticLaws,
    at_distinct_rows,
    best_pairs,
    combined_scores,
    correlations_of,
    enumerated_scores,
    fit_statistics,
    scores_of,
)
from kernsift.estimators.views import RARE_LEVELS, fitted_views
from kernsift.execution.arrays import to_numpy
from kernsift.execution.parallel import no_workers, parallel_map
from kernsift.kernels.contingency import Tabulation, tabulate
from kernsift.kernels.fitted import FeatureKernels
from kernsift.kernels.low_rank import Levels, landmark_rows
from kernsift.kernels.quantisation import Grid, fit_grid


def complete_mmd(
    X: Table,
    Y: Table,
    kernels: FeatureKernels,
    *,
    adaptive: bool = False,
    subset: RowSubset | None = None,
    rng: np.random.Generator,
) -> Scores:
    """Normal scores of the MMD between the samples, from all rows; `subset` says which of more rows these are.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.kernels.fitted import fit_kernels
    >>> from kernsift.data.inputs import as_table
    >>> rng = np.random.default_rng(0)
    >>> X, Y = as_table(rng.normal(size=(200, 3))), as_table(rng.normal([0, 1, 0], 1, size=(200, 3)))
    >>> scores = complete_mmd(X, Y, fit_kernels(X, rng=rng), rng=rng)
    >>> int(scores.estimate.argmax())
    1
    """
    table = stack([X, Y])
    return _complete(table, label_response(X.n, Y.n, table.prototype, adaptive), kernels, subset, rng)


def complete_hsic(
    X: Table,
    y: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    *,
    adaptive: bool = False,
    subset: RowSubset | None = None,
    rng: np.random.Generator,
) -> Scores:
    """Normal scores of the HSIC with the response, from all rows; `subset` says which of more rows these are.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.kernels.fitted import fit_kernels
    >>> from kernsift.data.inputs import as_table
    >>> rng = np.random.default_rng(0)
    >>> X = as_table(rng.normal(size=(300, 3)))
    >>> y = as_table(np.abs(X.values[:, [1]]))
    >>> scores = complete_hsic(X, y, fit_kernels(X, rng=rng), fit_kernels(y, rng=rng), rng=rng)
    >>> int(scores.estimate.argmax())
    1
    """
    return _complete(X, table_response(y, response_kernels, rng, adaptive), kernels, subset, rng)


Counted = tuple[np.ndarray, Grid, Tabulation]
"""Some features, their points and the counts of these."""


class MeasuredFeatures(NamedTuple):
    """The results of a block of features.

    `counted` by a worker, for the cache of the caller; `gaps` as in `Scores`.
    """

    features: np.ndarray
    score: np.ndarray
    laws: np.ndarray
    effect: np.ndarray
    factors: list[SelectedFactor]
    views: np.ndarray
    counted: Sequence[Counted] = ()
    gaps: np.ndarray | None = None


def measured_features(
    features: np.ndarray,
    statistics: Sequence[FittedStatistic],
    score: np.ndarray,
    winner: np.ndarray,
    known: Tabulation,
    response: Response,
    to_align: np.ndarray | None,
    dtype: Any,
) -> MeasuredFeatures:
    """The scores of features, their laws, and the factors (in `dtype`) that the covariance is computed from."""
    factors = [
        SelectedFactor.of(
            one, pair.response, features, np.flatnonzero(winner == which), known, response, to_align, dtype
        )
        for which, (one, pair) in enumerate(zip(statistics, response.pairs, strict=True))
        if (winner == which).any()
    ]
    laws, views = np.choose(winner, [np.array(one.laws) for one in statistics]), chosen_pairs(response.pairs, winner)
    return MeasuredFeatures(features, score, laws, point_effects(statistics), factors, views)


class CountCache:
    """Points and counts of the features of a table on disk, so that it is not read again for effects.

    An eighth of the table's memory limit is used. A copy on a worker holds what it counted until that is sent back.
    """

    def __init__(self, memory: int | None = None, on_worker: bool = False) -> None:
        self._memory, self._on_worker = memory, on_worker
        self._room, self._blocks = (memory or 0) // 8, list[Counted]()

    def put(self, features: np.ndarray, grid: Grid, known: Tabulation) -> None:
        """Keep a block, where there is room; codes of rows are for correlations, and not kept."""
        if not self._room or known.joint is None or grid.edges is None:
            return
        size = sum(part.nbytes for part in (grid.points, grid.edges, known.counts, known.joint))
        if size <= self._room:
            self._room -= size
            self._blocks.append((features, grid, known._replace(codes=None)))

    def sent(self) -> list[Counted]:
        """What a worker counted; blocks with missing values cannot be joined."""
        if not self._on_worker:
            return []
        self._room, found, self._blocks = (self._memory or 0) // 8, self._blocks, []
        return [one for one in found if not one[1].missing]

    def get(self, features: np.ndarray) -> tuple[Grid, Tabulation] | None:
        """Some features of the blocks that were kept, in their order."""
        found = [(own, *block) for block in self._blocks if len(own := np.flatnonzero(np.isin(block[0], features)))]
        if sum(len(own) for own, *_ in found) < len(features):
            return None
        grids, counts = [grid.part(own) for own, _, grid, _ in found], [known.part(own) for own, *_, known in found]
        return (grids[0], counts[0]) if len(found) == 1 else (Grid.joined(grids), Tabulation.joined(counts))

    def has(self, features: np.ndarray) -> bool:
        """Whether all of these features were kept."""
        return bool(self._blocks) and bool(np.isin(features, np.concatenate([own for own, *_ in self._blocks])).all())

    def __len__(self) -> int:
        return sum(len(features) for features, _, _ in self._blocks)

    def __reduce__(self) -> tuple[Any, ...]:
        return CountCache, (self._memory, True)


@dataclass(frozen=True)
class _Measuring:
    """The computation for blocks of features, with what `_complete` has for all of them."""

    response: Response  # without the cells of its rows, which blocks have
    to_align: np.ndarray | None
    landmarks: np.ndarray
    cache: CountCache
    dtype: Any  # of the factors that correlations are computed from
    seed: int  # for sampled outcomes
    # (d,) the scores of all features, with which the laws of effects are measured; None to measure scores.
    final: np.ndarray | None = None

    def __call__(self, block: FeatureBlock) -> list[Any]:
        cells, features = block.cells, block.features
        grid, known = self.cache.get(features) or self._counted(block)
        rows, memory = (0, None) if cells is not None else (self.response.n, block.memory)
        parts = parts_of(features, grid.points, rows, memory, several=block.by_rows)
        some = [(features[part], block.own[part], grid.part(part), known.part(part)) for part in parts]
        response = self.response._replace(cells=cells if known.joint is None else None)
        # Inside a worker thread this is sequential; a block from a file uses all threads or workers.
        found: list[Any] = list(parallel_map(partial(self._measure, block.kernels, response), some))
        return found if self.final is not None else [found[0]._replace(counted=self.cache.sent()), *found[1:]]

    def _counted(self, block: FeatureBlock) -> tuple[Grid, Tabulation]:
        if block.parts is None:
            grid, known = self._grid_and_counts(block)
        else:
            grids, counted = zip(*map(self._grid_and_counts, block.parts), strict=True)
            grid, known = Grid.joined(grids), Tabulation.joined(counted)
        self.cache.put(block.features, grid, known)
        return grid, known

    def _grid_and_counts(self, block: FeatureBlock) -> tuple[Grid, Tabulation]:
        grid = fit_grid(block.table, block.own, block.to_sort, rounded=block.kernels.rounds, kernels=block.kernels)
        # Without cells every row's code is needed, to look up the response's own row.
        kept = self.to_align if block.cells is not None else None
        count = int(self.response.counts.shape[0])
        return grid, tabulate(block.table, block.own, grid, block.cells, count, kept, block.large)

    def _measure(
        self, kernels: FeatureKernels, response: Response, part: tuple[np.ndarray, np.ndarray, Grid, Tabulation]
    ) -> MeasuredFeatures | tuple[np.ndarray, CombinedEffects]:
        features, own, grid, known = part
        if kernels.categorical[own].any() and kernels.rounds and response.pairs != PLAIN:
            # Rare levels have the same factor, and the outcomes of few levels may be enumerated.
            known = Levels.of(known.counts).merged(known)
        statistics, response = _statistics(grid, known, own, kernels, response, self.landmarks)
        scores = scores_of(statistics)
        correlation = correlations_of(statistics, known.counts, response)
        union = partial(combined_scores, statistics, known.counts, response, correlation)
        if self.final is not None:
            return features, view_effects(statistics, scores, union, self.final[features], known, response)
        smooth, winner = union(scores), best_pairs(statistics, scores, response)
        outcomes: Outcomes = known, statistics, response
        unbounded = kernels.kernel.unbounded  # categories are bounded, but their response need not be
        if known.joint is None:
            outcomes = at_distinct_rows(*outcomes, grid.points if grid.edges is None else None, unbounded)
        score, gaps = enumerated_scores(outcomes, scores, smooth, self.seed, unbounded)
        found = measured_features(features, statistics, score, winner, known, response, self.to_align, self.dtype)
        return found._replace(gaps=gaps)


def _complete(
    table: Table, response: Response, kernels: FeatureKernels, subset: RowSubset | None, rng: np.random.Generator
) -> Scores:
    to_align = rows_to_align(table.n, rng)
    if subset is not None:
        to_align, places, count = subset.aligned
    landmarks = landmark_rows(table.n, rng)
    cache = CountCache(table.memory)
    seed, dtype = int(rng.integers(2**32)), table.prototype.dtype
    measuring = _Measuring(response._replace(cells=None), to_align, landmarks, cache, dtype, seed)
    blocks = partial(blocks_of, table, kernels, response.cells, by_rows=True, is_known=cache.has)
    scores, laws, factors = measured_table(table.names, blocks, measuring, response.ceiling, cache)
    if subset is not None:
        assert subset.response is not None
        factors = [factor.among(places, count).against(subset.response, subset.to_align) for factor in factors]
    cov = AlignmentCovariance(tuple(factors), response, laws, to_align)
    return scores(cov=cov, in_memory=len(cache) == table.d)


def measured_table(
    names: tuple[str, ...],
    blocks: Callable[..., Iterable[FeatureBlock]],
    measuring: Any,
    ceiling: float,
    cache: CountCache | None = None,
) -> tuple[Callable[..., Scores], ScoreLaws, list[SelectedFactor]]:
    """`Scores` of all features without their covariance, and the laws and factors to compute it from.

    `measuring` is a record that is called with a block. Effects need the final scores, so that they are measured on
    demand, with these as the field `final` of the record; here, where the counts are in the `cache`.
    """
    d = len(names)
    score, effect, laws = np.zeros(d), np.zeros(d), np.zeros((len(StatisticLaws._fields), d))
    factors: list[SelectedFactor] = []
    views, gaps = np.empty(d, dtype=object), np.empty(d, dtype=object)
    for measured in map_blocks(measuring, blocks(), d):
        for part in measured:
            score[part.features], laws[:, part.features] = part.score, part.laws
            effect[part.features], views[part.features] = part.effect, part.views
            gaps[part.features] = part.gaps
            factors += part.factors
            for counted in part.counted:
                if cache is not None and not cache.has(counted[0]):  # a task may be repeated
                    cache.put(*counted)
    score = np.where(StatisticLaws(*laws).sd > 0, np.minimum(score, ceiling), 0.0)

    def effect_laws(features: np.ndarray) -> CombinedEffects:
        with no_workers() if cache is not None and cache.has(features) else nullcontext():
            found = list(map_blocks(replace(measuring, final=score), blocks(among=features), len(features)))
        return combined(chain.from_iterable(found), features)

    effects = MeasuredEffects.of(effect, effect_laws)
    scores = partial(Scores, names, score, effects=effects, views=views, gaps=gaps)
    return scores, ScoreLaws(score, *laws[:4]), factors


def _statistics(
    grid: Grid, known: Tabulation, own: np.ndarray, kernels: FeatureKernels, response: Response, landmarks: np.ndarray
) -> tuple[list[FittedStatistic], Response]:
    """The statistics of a block of features under every pair of views, and the response with these pairs."""
    names = dict.fromkeys(pair.feature for pair in response.pairs)
    views = fitted_views(names, grid, known.counts, response.n, kernels, own, landmarks, added_rows=response.added_rows)
    # Several names may be those of one view, as of a group.
    pairs = merged(response.pairs, lambda pair: (id(views[pair.feature]), id(response.views[pair.response].fitted)))
    response = response._replace(pairs=pairs)
    statistics = fit_statistics(views, known, response)
    if kernels.categorical[own].any() and known.joint is not None:
        cells = to_numpy(response.counts)
        cells = cells[cells > 0]
        for place, pair in enumerate(pairs if len(cells) == 2 else ()):
            step = lattice_step(known.counts, cells, pair.feature in RARE_LEVELS)
            statistics[place] = statistics[place]._replace(step=step * statistics[place].laws.mean)
    return statistics, response
