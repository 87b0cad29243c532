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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.table_parts import tables_of
from kernsift.data.tables import Table, spaced_rows, stack
from kernsift.estimators.draws.batches import Draws
from kernsift.estimators.draws.moments import FeatureDraws
from kernsift.estimators.feature_blocks import FeatureBlock, columns_that_fit
from kernsift.estimators.null_laws.student import widening
from kernsift.estimators.scores import EffectSizes, Scores
from kernsift.estimators.ustatistic import batches
from kernsift.execution.arrays import Array, accumulator_dtype, namespace, to_numpy
from kernsift.kernels.contingency import tabulate
from kernsift.kernels.fitted import FeatureKernels
from kernsift.kernels.quantisation import POINTS, fit_grid

# The fewest draws whose mean has a confidence interval: that of fewer is too skewed.
_MANY_DRAWS = 40
# Rows that a denominator is computed from: of a column, which is rounded to a grid, and with one point per row.
_ROWS, _POINT_ROWS = 2**14, 2**10
# Features per block.
_BLOCK = 64
# Elements of one array: influences of rows, and kernel values on points.
_NUMBERS = 2**22


class SelfDependence(NamedTuple):
    """A centred kernel over all pairs of rows of each of b features.

    Attributes
    ----------
    size : ndarray of shape (b,)
        Its root mean square, sqrt(HSIC(x, x)).
    trace : ndarray of shape (b,)
        Its mean on the diagonal.
    influence : ndarray of shape (b, G)
        Influence of a row at each point on log(size).
    """

    size: np.ndarray
    trace: np.ndarray
    influence: np.ndarray

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


# The scale (f,) of some features, and the influence (n, f) of each row on its logarithm.
_Denominator = tuple[np.ndarray, np.ndarray]


def with_mmd_effects(
    scores: Scores,
    X: Table,
    Y: Table,
    kernels: FeatureKernels,
    draws: FeatureDraws[Any] | None = None,
    design: Sequence[np.ndarray] = (),
) -> Scores:
    """MMD^2 scores with effect sizes.

    They have intervals where the scores are means of many independent `draws`; `design` are the rows (l, c) of X and
    of Y that the draws use.
    """
    share = X.n / (X.n + Y.n)

    def denominator(table: Table, kernels: FeatureKernels, features: np.ndarray) -> _Denominator:
        scale, influence = np.empty(len(features)), np.zeros((table.n, len(features)))
        for places, rows, own, codes in _self_dependence(table, kernels, features):
            scale[places] = mmd_scale(own, len(rows), share)
            at_rows = np.take_along_axis(own.influence, codes, axis=1).T / len(rows)
            # The sample sizes are fixed: the rows of each sample vary around their own mean.
            for sample in (rows < X.n, rows >= X.n):
                at_rows[sample] -= at_rows[sample].mean(axis=0) if sample.any() else 0.0
            influence[np.ix_(rows, places)] = at_rows
        return scale, influence

    shifted = [part + start for part, start in zip(design, (0, X.n), strict=False)]
    return _with_effects(scores, stack([X, Y]), kernels, denominator, draws, shifted)


def with_hsic_effects(
    scores: Scores,
    X: Table,
    y: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    draws: FeatureDraws[Any] | None = None,
    design: Sequence[np.ndarray] = (),
) -> Scores:
    """HSIC scores with effect sizes; `draws` and `design` as for MMD, with the rows of X alone."""

    def denominator(table: Table, kernels: FeatureKernels, features: np.ndarray) -> _Denominator:
        scale, influence = np.empty(len(features)), np.zeros((table.n, len(features)))
        [(_, target_rows, target, cells)] = _self_dependence(y, response_kernels, np.array([0]))
        influence[target_rows] += np.take_along_axis(target.influence, cells, axis=1).T / len(target_rows)
        for places, rows, own, codes in _self_dependence(table, kernels, features):
            scale[places] = hsic_scale(own, target, len(rows))
            influence[np.ix_(rows, places)] += np.take_along_axis(own.influence, codes, axis=1).T / len(rows)
        return scale, influence

    return _with_effects(scores, X, kernels, denominator, draws, design)


def _with_effects(
    scores: Scores,
    table: Table,
    kernels: FeatureKernels,
    denominator: Callable[[Table, FeatureKernels, np.ndarray], _Denominator],
    draws: FeatureDraws[Any] | None,
    design: Sequence[np.ndarray],
) -> Scores:
    draws = None if draws is None or draws.count < _MANY_DRAWS else draws

    def sizes(features: np.ndarray) -> EffectSizes:
        step = max(1, _NUMBERS // table.n)
        if draws is not None:
            fit = columns_that_fit(tables_of(table), draws.draws.nbytes) // int(np.diff(table.offsets).max())
            step = max(1, min(step, fit))
        scales, spreads = [], []
        for some in np.split(features, range(step, len(features), step)):
            if draws is None:
                scales.append(denominator(table, kernels, some)[0])
                continue
            block = draws.block(some).loaded()
            scale, influence = denominator(block.table, block.kernels, block.own)
            scales.append(scale)
            spreads.append(_spread(scores.estimate[some] * influence, draws.draws, block, design))
        scale, spread = np.concatenate(scales), np.concatenate(spreads) if draws is not None else None
        return EffectSizes(effect_of(scores.estimate[features], scale), spread, lambda means: effect_of(means, scale))

    return replace(scores, effects=sizes)


def _spread(influence: np.ndarray, draws: Draws, block: FeatureBlock, design: Sequence[np.ndarray]) -> np.ndarray:
    """Standard deviations of means of draws less the influences (n, d) of their rows."""
    count = draws.count
    unused = np.ones(len(influence), dtype=bool)
    total = np.zeros((count, len(block.own)))
    for rows in design:
        for column in rows.T:
            total -= influence[column]
            unused[column] = False
    for part in batches(count, block.width * draws.kernel_values, block.table.prototype):
        total[part] += to_numpy(draws.of(block, part)) / count
    variance = total.var(axis=0, ddof=1) * count + (influence[unused] ** 2).sum(axis=0)
    return np.sqrt(variance) * widening(count - 1)


def _self_dependence(
    table: Table, kernels: FeatureKernels, features: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, SelfDependence, np.ndarray]]:
    """By blocks: places among `features`, the rows used, the self-dependence, and the points (b, rows) of these rows.

    The rows are evenly spaced over the table.
    """
    most = _ROWS if table.memory is None else min(_ROWS, table.memory // 64)
    chosen = kernels.select(features)
    levels = np.array([len(table.levels.get(table.names[j], ())) for j in features])
    alone = (np.diff(table.offsets)[features] > 1) | (levels > POINTS) | (not chosen.rounds)
    single = np.flatnonzero(~alone)
    for block in [*np.split(single, range(_BLOCK, len(single), _BLOCK)), *np.flatnonzero(alone)[:, None]]:
        if len(block) == 0:
            continue
        rows = spaced_rows(table.n, _POINT_ROWS if alone[block[0]] else most)
        part = table.select(features[block]).take(rows)
        own = chosen.select(block)
        whole = np.arange(part.d)
        grid = fit_grid(part, whole, None, rounded=chosen.rounds)
        known = tabulate(part, whole, grid, None, 1, None)
        codes = np.arange(len(rows))[None, :] if known.codes is None else to_numpy(known.codes).astype(np.intp)
        step = max(1, _NUMBERS // grid.points.shape[0] ** 2)
        for start in range(0, len(block), step):
            some = slice(start, min(start + step, len(block)))
            inside = grid.part(some)
            found = SelfDependence.of_kernel(own.select(whole[some]), inside.points, known.part(some).counts)
            yield block[some], rows, found, codes[some]
