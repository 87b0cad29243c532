"""Block estimators: the complete unbiased statistic within disjoint blocks of rows, averaged over the blocks.

The blocks are independent, so the covariance of their values over their number is that of the scores (paper, section 2
and appendix, "Block HSIC").
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral

import numpy as np

from kernsift.designs import blocks
from kernsift.kernels import FeatureKernels
from kernsift.scores import Scores, scores_from_draws
from kernsift.statistics.effects import with_hsic_effects, with_mmd_effects
from kernsift.statistics.ustatistic import (
    CHUNK,
    batches,
    complete_hsic_values,
    complete_mmd_values,
    largest,
    pair_weights,
    require_rows,
    resample_joint,
    resample_two,
    settle,
)
from kernsift.tables import InputError, Table

_HSIC_BLOCK = 5  # the paper's choice, section 5.1
# Values of fewer blocks are too skewed for their mean to be normal: no confidence intervals then.
_MANY_BLOCKS = 40
# Kernel values of one block up to which it is evaluated in one go: with the rows that go in, below 64 MB.
_SMALL = 16 * CHUNK


def block_mmd(
    X: Table, Y: Table, kernels: FeatureKernels, *, block_size: int | None = None, rng: np.random.Generator
) -> Scores:
    """MMD^2 of every feature within blocks of `block_size` rows of the shorter sample; its square root by default.

    Where the samples differ in length the longer one is cut into as many blocks, of more rows.
    """
    least = min(X.n, Y.n)
    require_rows(X, 4, "X", " for two blocks")
    require_rows(Y, 4, "Y", " for two blocks")
    default = min(max(2, round(least**0.5)), least // 2)
    size = default if block_size is None else _checked_size(block_size, 2, least)

    def values(x: Table, y: Table, rng: np.random.Generator) -> np.ndarray:
        return _mmd_values(x, y, kernels, size, rng)

    resample = resample_two(X, Y, size, lambda x, y, rng: values(x, y, rng).mean(axis=0))
    draws = values(X, Y, rng)
    scores = scores_from_draws(X.names, draws, resample=resample)
    return with_mmd_effects(scores, X, Y, kernels, intervals=len(draws) >= _MANY_BLOCKS)


def block_hsic(
    X: Table,
    y: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    *,
    block_size: int | None = None,
    rng: np.random.Generator,
) -> Scores:
    """HSIC of every feature with the response within blocks of `block_size` rows, 5 by default."""
    require_rows(X, 8, "X", " for two blocks")
    size = min(_HSIC_BLOCK, X.n // 2) if block_size is None else _checked_size(block_size, 4, X.n)

    def values(x: Table, y: Table, rng: np.random.Generator) -> np.ndarray:
        return _hsic_values(x, y, kernels, response_kernels, size, rng)

    resample = resample_joint(X, y, size, lambda x, y, rng: values(x, y, rng).mean(axis=0))
    draws = values(X, y, rng)
    scores = scores_from_draws(X.names, draws, resample=resample)
    return with_hsic_effects(scores, X, y, kernels, response_kernels, intervals=len(draws) >= _MANY_BLOCKS)


def _checked_size(block_size: int, least: int, n: int) -> int:
    whole = isinstance(block_size, Integral) and not isinstance(block_size, bool)
    if not whole or not least <= int(block_size) <= n // 2:
        raise InputError(
            f"block_size: a whole number from {least} to {n // 2} was needed, so that {n} rows give at least two "
            f"blocks, got {block_size!r}."
        )
    return int(block_size)


def _mmd_values(X: Table, Y: Table, kernels: FeatureKernels, size: int, rng: np.random.Generator) -> np.ndarray:
    """The statistic of each block: (blocks, d)."""
    count = max(1, min(X.n, Y.n) // size)
    rows, others = blocks(X.n, X.n // count, rng)[:count], blocks(Y.n, Y.n // count, rng)[:count]
    n, m = rows.shape[1], others.shape[1]
    values = np.empty((count, kernels.d))
    for part in _block_batches(count, max(n * m, n * n // 2, m * m // 2), X.values.shape[1]):
        if isinstance(part, int):
            values[part] = complete_mmd_values(X.values[rows[part]], Y.values[others[part]], kernels)
            continue
        x, y = X.values.take(rows[part], axis=0), Y.values.take(others[part], axis=0)
        base = kernels.matched(x[:, :1], y[:, :1])
        eta = _pair_mean(x, x, np.triu_indices(n, 1), kernels, base)
        eta += _pair_mean(y, y, np.triu_indices(m, 1), kernels, base)
        eta -= 2 * _pair_mean(x, y, np.divmod(np.arange(n * m), m), kernels, base)
        values[part] = settle(eta, np.maximum(largest(kernels, x), largest(kernels, y)))
    return values


def _pair_mean(
    a: np.ndarray,
    b: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray],
    kernels: FeatureKernels,
    base: np.ndarray,
) -> np.ndarray:
    """Block by block, the mean of k - base over the pairs of positions in the block."""
    gram = kernels.matched(a.take(pairs[0], axis=1), b.take(pairs[1], axis=1))
    gram -= base
    return np.asarray(gram.mean(axis=1, dtype=float))


def _hsic_values(
    X: Table,
    y: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    size: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """The statistic of each block: (blocks, d)."""
    rows = blocks(X.n, size, rng)
    values = np.empty((len(rows), kernels.d))
    for part in _block_batches(len(rows), size * size // 2, X.values.shape[1]):
        if isinstance(part, int):
            here = rows[part]
            values[part] = complete_hsic_values(X.values[here], y.values[here], kernels, response_kernels)
            continue
        first, second = np.triu_indices(size, 1)
        inside, outcome = X.values.take(rows[part], axis=0), y.values.take(rows[part], axis=0)
        weights = _block_weights(outcome, response_kernels)[:, first, second]
        gram = kernels.matched(inside.take(first, axis=1), inside.take(second, axis=1))
        gram -= gram[:, :1].copy()
        scale = largest(kernels, inside) * largest(response_kernels, outcome)
        values[part] = settle((weights[:, None] @ gram)[:, 0], scale)
    return values


def _block_weights(y: np.ndarray, response_kernels: FeatureKernels) -> np.ndarray:
    """The weights of all pairs within each block, (blocks, B, B), exactly 0 where the response is constant."""
    size = y.shape[1]
    gram = response_kernels.matched(y[:, :, None], y[:, None])[..., 0]
    gram -= gram[:, :1, 1:2].copy()
    gram[:, np.arange(size), np.arange(size)] = 0.0
    sums = gram.sum(axis=2, dtype=float)
    return pair_weights(gram, sums[:, :, None] + sums[:, None], sums.sum(axis=1)[:, None, None], size)


def _block_batches(count: int, pairs: int, width: int) -> Iterator[slice | int]:
    """Batches of whole blocks while one is small; else the blocks one by one, to be cut up themselves."""
    if pairs * width <= _SMALL:
        yield from batches(count, pairs * width)
    else:
        yield from range(count)
