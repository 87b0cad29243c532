"""Effect sizes: kernel correlations, on one scale for all estimators.

The effect is the root of HSIC(x, y) / sqrt(HSIC(x, x) HSIC(y, y)), which lies in [0, 1]; with linear kernels it is
|corr(x, y)|. With the sample label as y it is the root of p q MMD^2 / sqrt(HSIC(x, x)), where p and q are the shares of
the two samples. The denominator is corrected for chance as in the complete estimator: tr(K) tr(L) / (n - 1), the mean
of tr(K L) over permutations of the rows, is subtracted.

**Noise of the denominator.** Numerator and denominator depend on the same rows. To first order the effect squared is a
ratio T / D, and its error that of the mean of h - T (log D)', where h are the draws that T averages and (log D)' the
influence of their rows on log D. For a row x the influence on log sqrt(HSIC(x, x)) is E k(x, X)^2 / HSIC(x, x) - 1 with
k centred, which depends on kernel values on a column's points only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.tables import Table, spaced_rows
from kernsift.estimators.draws.batches import Draws
from kernsift.estimators.draws.moments import FeatureDraws, on_threads, scores_from_batches
from kernsift.estimators.feature_blocks import FeatureBlock
from kernsift.estimators.null_laws.student import widening
from kernsift.estimators.scores import EffectSizes, Scores, ScoreScales
from kernsift.estimators.ustatistic import Resample, batches
from kernsift.execution.arrays import Array, accumulator_dtype, namespace, slices, to_numpy
from kernsift.kernels.contingency import tabulate
from kernsift.kernels.fitted import FeatureKernels
from kernsift.kernels.quantisation import POINTS, fit_grid

# The fewest draws whose mean has a confidence interval: that of fewer is too skewed.
_MANY_DRAWS = 40
# Rows that a denominator is computed from: of a column, which is rounded to a grid, and with one point per row.
_ROWS, _POINT_ROWS = 2**14, 2**10
# Features per block.
_BLOCK = 16
# Elements of one array: influences of rows, and kernel values on points.
_NUMBERS, _GRAM = 2**22, 2**20


class SelfDependence(NamedTuple):
    """A centred kernel over all pairs of rows of each of b features."""

    size: np.ndarray  # (b,) its root mean square, sqrt(HSIC(x, x))
    trace: np.ndarray  # (b,) its mean on the diagonal
    influence: np.ndarray  # (b, G) influence of a row at each point on log(size)

    @classmethod
    def of(cls, squares: Array, diagonal: Array, counts: Array) -> SelfDependence:
        """From mean squares and the diagonal of the centred kernel at each point (b, G)."""
        xp = namespace(squares)
        weights = counts / xp.sum(counts, axis=1, keepdims=True)
        square, trace = (to_numpy(xp.sum(weights * part, axis=1)) for part in (squares, diagonal))
        # The centred kernel of a constant feature is rounding error.
        square = np.where(square > 1e-24 * np.maximum(trace, 1e-300) ** 2, square, 0.0)
        relative = np.divide(to_numpy(squares), square[:, None], out=np.ones(squares.shape), where=square[:, None] > 0)
        return cls(np.sqrt(square), trace, relative - 1.0)

    @classmethod
    def of_factor(cls, factor: Array, counts: Array) -> SelfDependence:
        """From a factor (b, m, G) that is centred over the rows."""
        xp = namespace(factor)
        gram = (factor * counts[:, None, :]) @ xp.matrix_transpose(factor) / xp.sum(counts, axis=1)[:, None, None]
        return cls.of(xp.sum(factor * (gram @ factor), axis=1), xp.sum(factor * factor, axis=1), counts)

    @classmethod
    def of_kernel(cls, kernels: FeatureKernels, points: Array, counts: Array) -> SelfDependence:
        """From the kernels on points (G, columns)."""
        xp = namespace(points)
        gram = xp.permute_dims(kernels.matched(points[:, None, :], points[None, :, :]), (2, 0, 1))
        gram = xp.astype(gram, accumulator_dtype(points))
        weights = counts / xp.sum(counts, axis=1, keepdims=True)
        means = (gram @ weights[:, :, None])[:, :, 0]
        gram = gram - means[:, None, :] - means[:, :, None] + xp.sum(weights * means, axis=1)[:, None, None]
        squares = ((gram * gram) @ weights[:, :, None])[:, :, 0]
        return cls.of(squares, xp.linalg.diagonal(gram), counts)


def mmd_scale(own: SelfDependence, rows: int, share: float) -> np.ndarray:
    """(b,) the MMD^2 of an effect of 1 between samples with shares `share` and 1 - `share` of the rows."""
    return (own.size - own.trace / (rows - 1)) / (share * (1.0 - share))


def hsic_scale(own: SelfDependence, response: SelfDependence, rows: int) -> np.ndarray:
    """(b,) the HSIC of an effect of 1."""
    return own.size * response.size - own.trace * response.trace / (rows - 1)


def effect_of(means: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The effects of mean scores; 0 for constant features."""
    share = np.divide(means, scale, out=np.zeros(len(scale)), where=scale > 0)
    return np.sqrt(np.clip(share, 0.0, 1.0))


@dataclass(frozen=True)
class EffectScales(ABC):
    """Measures the scales of blocks of features whose values are in memory.

    Where the scores are means of many independent `draws` they have standard deviations; `design` (l, c) are the rows
    of the table that the draws use.
    """

    draws: Draws | None = field(default=None, kw_only=True)
    design: np.ndarray | None = field(default=None, kw_only=True)

    @abstractmethod
    def scale(self, own: SelfDependence, rows: int) -> np.ndarray:
        """(b,) the mean scores at an effect of 1."""

    @abstractmethod
    def influence(self, n: int, rows: np.ndarray, own: np.ndarray) -> np.ndarray:
        """(n, b) influences of all rows on the logarithm of the scale; `own` (rows, b) are those through a feature."""

    def __call__(self, block: FeatureBlock, estimate: np.ndarray) -> ScoreScales:
        """The scales of the features of a block, which have these scores."""
        parts = block.split(max(1, _NUMBERS // block.table.n) if self._has_intervals else _BLOCK)
        estimates = np.array_split(estimate, len(parts))
        return ScoreScales.joined(list(on_threads(self._of, zip(parts, estimates, strict=True), block)))

    def _of(self, part: tuple[FeatureBlock, np.ndarray]) -> ScoreScales:
        block, estimate = part
        scale, spread = np.empty(len(estimate)), np.empty(len(estimate))
        for places, rows, own, codes in _self_dependence(block.table, block.kernels, block.own):
            scale[places] = self.scale(own, len(rows))
            if self._has_intervals:
                at_rows = np.take_along_axis(own.influence, codes, axis=1).T / len(rows)
                influence = estimate[places] * self.influence(block.table.n, rows, at_rows)
                some = replace(block, features=block.features[places], own=block.own[places])
                spread[places] = self._spread(influence, some)
        return ScoreScales(scale, spread if self._has_intervals else None)

    @property
    def _has_intervals(self) -> bool:
        return self.draws is not None and self.draws.count >= _MANY_DRAWS

    def _spread(self, influence: np.ndarray, block: FeatureBlock) -> np.ndarray:
        """Standard deviations of means of draws less the influences (n, d) of their rows."""
        assert self.draws is not None and self.design is not None
        count = self.draws.count
        unused = np.ones(len(influence), dtype=bool)
        total = np.zeros((count, len(block.own)))
        for rows in self.design.T:
            total -= influence[rows]
            unused[rows] = False
        for part in batches(count, block.width * self.draws.kernel_values, block.table.prototype):
            total[part] += to_numpy(self.draws.of(block, part)) / count
        variance = total.var(axis=0, ddof=1) * count + (influence[unused] ** 2).sum(axis=0)
        return np.sqrt(variance) * widening(count - 1)


@dataclass(frozen=True)
class MMDScales(EffectScales):
    """Scales of MMD^2 between two samples of which the first has `first` rows."""

    first: int
    n: int

    def scale(self, own: SelfDependence, rows: int) -> np.ndarray:
        return mmd_scale(own, rows, self.first / self.n)

    def influence(self, n: int, rows: np.ndarray, own: np.ndarray) -> np.ndarray:
        # The sample sizes are fixed: the rows of each sample vary around their own mean.
        for sample in (rows < self.first, rows >= self.first):
            own[sample] -= own[sample].mean(axis=0) if sample.any() else 0.0
        out = np.zeros((n, own.shape[1]))
        out[rows] = own
        return out


@dataclass(frozen=True)
class HSICScales(EffectScales):
    """Scales of HSIC with a response."""

    y: Table
    response_kernels: FeatureKernels

    @cached_property
    def _response(self) -> tuple[SelfDependence, np.ndarray]:
        """The response's self-dependence, and the influence (n, 1) of each row on its logarithm."""
        [(_, rows, own, codes)] = _self_dependence(self.y, self.response_kernels, np.array([0]))
        out = np.zeros((self.y.n, 1))
        out[rows] = np.take_along_axis(own.influence, codes, axis=1).T / len(rows)
        return own, out

    def scale(self, own: SelfDependence, rows: int) -> np.ndarray:
        return hsic_scale(own, self._response[0], rows)

    def influence(self, n: int, rows: np.ndarray, own: np.ndarray) -> np.ndarray:
        out = np.repeat(self._response[1], own.shape[1], axis=1)
        out[rows] += own
        return out


def scores_with_effects(
    draws: FeatureDraws[Any],
    scales: EffectScales,
    all_effects: bool,
    *,
    variance_factor: float | None = None,
    resample: Resample | None = None,
) -> Scores:
    """`scores_from_batches` with effect sizes; with `all_effects` a table on disk is not read again for them."""
    measure_scales = scales if all_effects and not draws.in_memory else None
    scores, known = scores_from_batches(draws, measure_scales, variance_factor=variance_factor, resample=resample)
    return with_effects(scores, draws, scales, known)


def with_effects(
    scores: Scores, draws: FeatureDraws[Any], scales: EffectScales, known: ScoreScales | None = None
) -> Scores:
    """Scores with effect sizes, whose scales are measured on demand unless those of all features are `known`."""

    def measured(features: np.ndarray) -> ScoreScales:
        order = np.argsort(features)
        found = draws.map(partial(_measured, scales, scores.estimate), 0, features[order])
        return ScoreScales.joined(list(found)).take(np.argsort(order))

    def sizes(features: np.ndarray) -> EffectSizes:
        scale, spread = measured(features) if known is None else known.take(features)
        return EffectSizes(effect_of(scores.estimate[features], scale), spread, lambda means: effect_of(means, scale))

    return replace(scores, effects=sizes)


def _measured(scales: EffectScales, estimate: np.ndarray, block: FeatureBlock) -> ScoreScales:
    return scales(block, estimate[block.features])


def _self_dependence(
    table: Table, kernels: FeatureKernels, features: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, SelfDependence, np.ndarray]]:
    """By blocks: places among `features`, the rows used, the self-dependence, and the points (b, rows) of these rows.

    The rows are evenly spaced over the table.
    """
    chosen = kernels.select(features)
    levels = np.array([len(table.levels.get(table.names[j], ())) for j in features])
    alone = (np.diff(table.offsets)[features] > 1) | (levels > POINTS) | (not chosen.rounds)
    single = np.flatnonzero(~alone)
    for block in [*np.split(single, range(_BLOCK, len(single), _BLOCK)), *np.flatnonzero(alone)[:, None]]:
        if len(block) == 0:
            continue
        rows = spaced_rows(table.n, _POINT_ROWS if alone[block[0]] else _ROWS)
        part = table.sample(features[block], rows)
        own = chosen.select(block)
        whole = np.arange(part.d)
        grid = fit_grid(part, whole, None, rounded=chosen.rounds)
        known = tabulate(part, whole, grid)
        codes = np.arange(len(rows))[None, :] if known.codes is None else to_numpy(known.codes).astype(np.intp)
        step = max(1, _GRAM // grid.points.shape[0] ** 2)
        for some in slices(0, len(block), step):
            inside = grid.part(some)
            found = SelfDependence.of_kernel(own.select(whole[some]), inside.points, known.part(some).counts)
            yield block[some], rows, found, codes[some]
