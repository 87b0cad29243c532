"""Block estimators: the complete unbiased statistic within disjoint blocks of rows, averaged over the blocks.

The blocks are independent, so the covariance of their values over their number is that of the scores (paper, section 2
and appendix, "Block HSIC").
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import numpy as np

from kernsift.data.tables import Table, stack
from kernsift.estimators.block_sizes import columns_that_fit
from kernsift.estimators.draws.batches import Draws
from kernsift.estimators.draws.designs import blocks
from kernsift.estimators.draws.moments import FeatureDraws, moments_of
from kernsift.estimators.effects.kernel_correlations import HSICScales, MMDScales, scores_with_effects
from kernsift.estimators.feature_blocks import FeatureBlock
from kernsift.estimators.scores import Scores
from kernsift.estimators.ustatistic import (
    chunk_of,
    complete_hsic_values,
    complete_mmd_values,
    largest,
    pair_weights,
    require_rows,
    resampling,
    snap_to_zero,
)
from kernsift.exceptions import InputError
from kernsift.execution.arrays import Array, accumulator_dtype, asarray_like, namespace, take
from kernsift.kernels.fitted import FeatureKernels

_HSIC_BLOCK = 5  # the paper's choice, section 5.1
# Kernel values of one block, in temporary arrays, up to which blocks are evaluated together.
_SMALL = 16


def block_mmd(
    X: Table,
    Y: Table,
    kernels: FeatureKernels,
    *,
    block_size: int | None = None,
    all_effects: bool = False,
    rng: np.random.Generator,
) -> Scores:
    """MMD^2 of every feature within blocks of `block_size` rows of the shorter sample; its square root by default.

    If the samples differ in length, the longer one is split into as many blocks, of more rows. `all_effects` as for
    `incomplete_mmd`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.kernels.fitted import fit_kernels
    >>> from kernsift.data.inputs import as_table
    >>> rng = np.random.default_rng(0)
    >>> X, Y = as_table(rng.normal(size=(200, 3))), as_table(rng.normal([0, 1, 0], 1, size=(200, 3)))
    >>> scores = block_mmd(X, Y, fit_kernels(X, rng=rng), rng=rng)
    >>> int(scores.estimate.argmax())
    1
    """
    least = min(X.n, Y.n)
    require_rows(X, 4, "X", " for two blocks")
    require_rows(Y, 4, "Y", " for two blocks")
    default = min(max(2, round(least**0.5)), least // 2)
    size = default if block_size is None else _checked_size(block_size, 2, least)

    def values(x: Table, y: Table, rng: np.random.Generator) -> FeatureDraws[_MMDBlocks]:
        count = max(1, min(x.n, y.n) // size)
        rows, others = (blocks(table.n, table.n // count, rng)[:count] for table in (x, y))
        return FeatureDraws(stack([x, y]), kernels, _MMDBlocks(rows, others))

    resample = resampling(X, Y, size, lambda x, y, rng: moments_of(values(x, y, rng)).mean, joint=False)
    columns_that_fit([X, Y], 16 * (X.n + Y.n))
    draws = values(X, Y, rng)
    design = np.concatenate([draws.draws.rows, X.n + draws.draws.others], axis=1)
    scales = MMDScales(X.n, X.n + Y.n, draws=draws.draws, design=design)
    return scores_with_effects(draws, scales, all_effects, resample=resample)


def block_hsic(
    X: Table,
    y: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    *,
    block_size: int | None = None,
    all_effects: bool = False,
    rng: np.random.Generator,
) -> Scores:
    """HSIC of every feature with the response within blocks of `block_size` rows, 5 by default; options as for MMD.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.kernels.fitted import fit_kernels
    >>> from kernsift.data.inputs import as_table
    >>> rng = np.random.default_rng(0)
    >>> X = as_table(rng.normal(size=(300, 3)))
    >>> y = as_table(np.abs(X.values[:, [1]]))
    >>> scores = block_hsic(X, y, fit_kernels(X, rng=rng), fit_kernels(y, rng=rng), rng=rng)
    >>> int(scores.estimate.argmax())
    1
    """
    require_rows(X, 8, "X", " for two blocks")
    size = min(_HSIC_BLOCK, X.n // 2) if block_size is None else _checked_size(block_size, 4, X.n)

    def values(x: Table, y: Table, rng: np.random.Generator) -> FeatureDraws[_HSICBlocks]:
        return FeatureDraws(x, kernels, _HSICBlocks(y, response_kernels, blocks(x.n, size, rng)))

    resample = resampling(X, y, size, lambda x, y, rng: moments_of(values(x, y, rng)).mean, joint=True)
    columns_that_fit([X], 16 * X.n)
    draws = values(X, y, rng)
    scales = HSICScales(y, response_kernels, draws=draws.draws, design=draws.draws.rows)
    return scores_with_effects(draws, scales, all_effects, resample=resample)


def _checked_size(block_size: int, least: int, n: int) -> int:
    whole = isinstance(block_size, Integral) and not isinstance(block_size, bool)
    if not whole or not least <= int(block_size) <= n // 2:
        raise InputError(
            f"block_size: a whole number from {least} to {n // 2} was needed, so that {n} rows give at least two "
            f"blocks, got {block_size!r}."
        )
    return int(block_size)


@dataclass(frozen=True)
class _MMDBlocks(Draws):
    """The statistic of each block: `rows` (blocks, n) of one sample against `others` (blocks, m) of the other."""

    rows: np.ndarray
    others: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.others.nbytes

    @property
    def kernel_values(self) -> int:
        n, m = self.rows.shape[1], self.others.shape[1]
        return int(max(n * m, n * n // 2, m * m // 2))

    def of(self, block: FeatureBlock, draws: slice) -> Array:
        (X, Y), columns, kernels = block.table.tables, block.columns, block.own_kernels
        rows, others = self.rows[draws], self.others[draws]
        n, m = rows.shape[1], others.shape[1]
        if self.kernel_values * block.width > _SMALL * chunk_of(block.table.prototype):
            parts = [
                complete_mmd_values(X.part(columns, a), Y.part(columns, b), kernels)
                for a, b in zip(rows, others, strict=True)
            ]
            return namespace(parts[0]).stack(parts, axis=0)
        x, y = _in_blocks(X, columns, rows), _in_blocks(Y, columns, others)
        base = kernels.matched(x[:, :1, :], y[:, :1, :])
        eta = _pair_mean(x, x, np.triu_indices(n, 1), kernels, base)
        eta += _pair_mean(y, y, np.triu_indices(m, 1), kernels, base)
        eta -= 2 * _pair_mean(x, y, np.divmod(np.arange(n * m), m), kernels, base)
        return snap_to_zero(eta, namespace(x).maximum(largest(kernels, x), largest(kernels, y)))


@dataclass(frozen=True)
class _HSICBlocks(Draws):
    """The statistic of each block of `rows` (blocks, B)."""

    y: Table
    response_kernels: FeatureKernels
    rows: np.ndarray

    @property
    def kernel_values(self) -> int:
        return int(self.rows.shape[1] ** 2 // 2)

    def of(self, block: FeatureBlock, draws: slice) -> Array:
        columns, kernels = block.columns, block.own_kernels
        rows, size = self.rows[draws], self.rows.shape[1]
        if self.kernel_values * block.width > _SMALL * chunk_of(block.table.prototype):
            parts = [
                complete_hsic_values(
                    block.table.part(columns, own), self.y.part(slice(None), own), kernels, self.response_kernels
                )
                for own in rows
            ]
            return namespace(parts[0]).stack(parts, axis=0)
        x, y = _in_blocks(block.table, columns, rows), _in_blocks(self.y, slice(None), rows)
        xp = namespace(x)
        first, second = np.triu_indices(size, 1)
        weights = xp.reshape(_block_weights(y, self.response_kernels), (len(rows), size * size))
        weights = take(weights, first * size + second, 1)
        gram = kernels.matched(take(x, first, 1), take(x, second, 1))
        gram -= xp.asarray(gram[:, :1, :], copy=True)
        scale = largest(kernels, x) * largest(self.response_kernels, y)
        sums = xp.matmul(weights[:, None, :], xp.astype(gram, weights.dtype, copy=False))
        return snap_to_zero(sums[:, 0, :], scale)


def _in_blocks(table: Table, columns: slice | np.ndarray, rows: np.ndarray) -> Array:
    """Values (blocks, rows of a block, columns)."""
    values = table.part(columns, rows.reshape(-1))
    return namespace(values).reshape(values, (*rows.shape, -1))


def _pair_mean(a: Array, b: Array, pairs: tuple[np.ndarray, ...], kernels: FeatureKernels, base: Array) -> Array:
    """Block by block, the mean of k - base over the pairs of positions in the block."""
    gram = kernels.matched(take(a, pairs[0], 1), take(b, pairs[1], 1))
    gram -= base
    return namespace(gram).sum(gram, axis=1, dtype=accumulator_dtype(gram)) / len(pairs[0])


def _block_weights(y: Array, response_kernels: FeatureKernels) -> Array:
    """The weights of all pairs within each block, (blocks, B, B), exactly 0 where the response is constant."""
    xp, size = namespace(y), y.shape[1]
    gram = response_kernels.matched(y[:, :, None, :], y[:, None, :, :])[..., 0]
    gram = xp.astype(gram - gram[:, :1, 1:2], accumulator_dtype(gram), copy=False)
    gram *= asarray_like(1.0 - np.eye(size), gram)
    sums = xp.sum(gram, axis=2)
    return pair_weights(gram, sums[:, :, None] + sums[:, None, :], xp.sum(sums, axis=1)[:, None, None], size)
