"""The U-statistics behind every estimator: their kernels, their complete unbiased values, their null variances.

MMD (paper, section 2) is the mean of h(x, x', y, y') = k(x,x') + k(y,y') - k(x,y') - k(x',y) over different rows x, x'
of one sample and y, y' of the other. HSIC is the mean of a kernel of four rows that is linear in K, with weights from
the response alone (Song et al. 2012), so that one weight per pair of rows serves all features. Both are unchanged when
a constant is added to K: subtracting one kernel value makes them exactly 0 where a feature is constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import comb
from typing import Any

import numpy as np

from kernsift.kernels import FeatureKernels
from kernsift.tables import InputError, Table

# Elements of one temporary array: a megabyte of doubles, which stays in the cache while a kernel works on it.
CHUNK = 1 << 17

Resample = Callable[[float, np.random.Generator], np.ndarray]


def mmd_kernel(kernels: FeatureKernels, x: np.ndarray, x2: np.ndarray, y: np.ndarray, y2: np.ndarray) -> np.ndarray:
    """h(x, x', y, y') of matched value rows (..., p): (..., d)."""
    # In this order h is exactly 0 where it should be: when x = y or x' = y', as with three equal rows out of four.
    h = kernels.matched(x, x2)
    h -= kernels.matched(x, y2)
    rest = kernels.matched(y, y2)
    rest -= kernels.matched(x2, y)
    h += rest
    return h


def mmd_null_ratio(n: int, m: int) -> float:
    """Var(U) / Var(h) of the two-sample statistic under the null.

    Centred in feature space, the kernel values of different pairs of rows are uncorrelated and have one variance s2.
    So Var(h) = 4 s2, and the three means that make up U have variances 2 s2/(n(n-1)), 2 s2/(m(m-1)) and 4 s2/(nm).
    """
    return 1 / (2 * n * (n - 1)) + 1 / (2 * m * (m - 1)) + 1 / (n * m)


def hsic_null_ratio(n: int) -> float:
    """Var(U) / Var(h) of the four-row statistic under the null.

    Hoeffding's formula with zeta_1 = 0: the kernel is degenerate. With centred K and L, whose pairs are uncorrelated,
    adding up the squared weights of the pairs among c given rows shows zeta_2 = Var(h)/18 and zeta_3 = Var(h)/4.
    """
    return (6 * comb(n - 4, 2) / 18 + 4 * (n - 4) / 4 + 1) / comb(n, 4)


def pair_weights(pairs: np.ndarray, ends: np.ndarray, total: Any, size: int) -> np.ndarray:
    """Weights c with HSIC = sum over pairs a < b of c_ab K_ab, among `size` rows.

    The closed form of Song et al. (2012) read as a linear function of K: `pairs` holds L_ab, `ends` the row sums
    r_a + r_b of L without its diagonal, and `total` the sum of all row sums.
    """
    weights = pairs + total / ((size - 1) * (size - 2)) - ends / (size - 2)
    weights *= 2 / (size * (size - 3))
    return np.asarray(weights)


def largest(kernels: FeatureKernels, rows: np.ndarray) -> np.ndarray:
    """The largest k(a, a) over the rows (..., B, p), a bound on all |k(a, b)| among them: (..., d)."""
    parts = [
        kernels.matched(rows[..., part, :], rows[..., part, :]) for part in batches(rows.shape[-2], rows.shape[-1])
    ]
    return np.max([np.abs(part).max(axis=-2) for part in parts], axis=0)


def settle(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """`values` with rounding errors of sums of numbers up to `scale` replaced by 0, in place.

    A feature with one deviating row in a block has the value 0 there. Left as rounding errors, a score made only of
    such values would be compared with a spread as meaningless as itself.
    """
    values[np.abs(values) <= 1e-14 * scale] = 0.0
    return values


def batches(count: int, width: int) -> Iterator[slice]:
    """Cuts `count` rows of `width` values into runs of at most CHUNK values, at least one row each."""
    step = max(1, CHUNK // max(width, 1))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def _tiles(rows: int, columns: int, width: int, *, upper: bool) -> Iterator[tuple[slice, slice]]:
    """Cuts the pairs of rows and columns into tiles of at most CHUNK values; `upper`: only those above a diagonal."""
    tall = max(1, CHUNK // max(columns * width, 1))
    for top in range(0, rows, tall):
        high = slice(top, min(top + tall, rows))
        wide = max(1, CHUNK // ((high.stop - top) * width))
        for left in range(top if upper else 0, columns, wide):
            yield high, slice(left, min(left + wide, columns))


def _above(rows: slice, columns: slice) -> np.ndarray:
    """1 for the pairs of a tile above the diagonal, 0 for the others."""
    return np.less.outer(np.arange(rows.start, rows.stop), np.arange(columns.start, columns.stop)).astype(float)


def _pair_sum(
    kernels: FeatureKernels,
    A: np.ndarray,
    B: np.ndarray,
    base: np.ndarray,
    weights: Callable[[slice, slice], np.ndarray] | None = None,
) -> np.ndarray:
    """Sum of (k(a, b) - base) over all pairs of rows; with weights, of the pairs above the diagonal only."""
    total = np.zeros(kernels.d)
    for rows, columns in _tiles(len(A), len(B), A.shape[1], upper=weights is not None):
        values = kernels.matched(A[rows, None], B[None, columns])
        values -= base
        if weights is None:
            total += values.sum(axis=(0, 1), dtype=float)
        else:
            total += weights(rows, columns).ravel() @ values.reshape(-1, kernels.d)
    return total


def mmd_ustat(X: Table, Y: Table, kernels: FeatureKernels) -> np.ndarray:
    """The complete unbiased MMD^2 of every feature, in O(n^2 d) time and bounded memory."""
    require_rows(X, 2, "X")
    require_rows(Y, 2, "Y")
    return complete_mmd_values(X.values, Y.values, kernels)


def complete_mmd_values(x: np.ndarray, y: np.ndarray, kernels: FeatureKernels) -> np.ndarray:
    """`mmd_ustat` of bare value rows."""
    n, m = len(x), len(y)
    base = kernels.matched(x[0], y[0])
    within = _pair_sum(kernels, x, x, base, _above) * (2 / (n * (n - 1)))
    within += _pair_sum(kernels, y, y, base, _above) * (2 / (m * (m - 1)))
    within -= _pair_sum(kernels, x, y, base) * (2 / (n * m))
    return settle(within, np.maximum(largest(kernels, x), largest(kernels, y)))


def hsic_ustat(X: Table, y: Table, kernels: FeatureKernels, response_kernels: FeatureKernels) -> np.ndarray:
    """The complete unbiased HSIC of every feature with the response, in O(n^2 d) time and bounded memory."""
    require_rows(X, 4, "X")
    return complete_hsic_values(X.values, y.values, kernels, response_kernels)


def complete_hsic_values(
    x: np.ndarray, y: np.ndarray, kernels: FeatureKernels, response_kernels: FeatureKernels
) -> np.ndarray:
    """`hsic_ustat` of bare value rows."""
    n = len(x)
    base = response_kernels.matched(y[0], y[1])
    diagonal = response_kernels.matched(y, y)[:, 0] - base
    sums = np.zeros(n)
    for rows, columns in _tiles(n, n, y.shape[1], upper=False):
        sums[rows] += (response_kernels.matched(y[rows, None], y[None, columns])[..., 0] - base).sum(
            axis=1, dtype=float
        )
    sums -= diagonal
    total = sums.sum()

    def weights(rows: slice, columns: slice) -> np.ndarray:
        pairs = response_kernels.matched(y[rows, None], y[None, columns])[..., 0] - base
        ends = np.add.outer(sums[rows], sums[columns])
        return _above(rows, columns) * pair_weights(pairs, ends, total, n)

    values = _pair_sum(kernels, x, x, kernels.matched(x[0], x[1]), weights)
    return settle(values, largest(kernels, x) * largest(response_kernels, y))


def require_rows(table: Table, needed: int, argument: str, reason: str = "") -> None:
    """Refuse a table that is too short for an estimator."""
    if table.n < needed:
        raise InputError(f"{argument}: at least {needed} rows are needed{reason}, got {table.n}.")


def bootstrap_rows(n: int, fraction: float, least: int, rng: np.random.Generator) -> np.ndarray:
    """`fraction * n` rows with replacement, but never fewer than the estimator needs."""
    return rng.integers(n, size=max(least, round(fraction * n)))


def resample_two(X: Table, Y: Table, least: int, estimate: Callable[[Table, Table, Any], np.ndarray]) -> Resample:
    """The slow alternative of the paper's section 3: the estimate again, on rows of both samples with replacement."""

    def resample(fraction: float, rng: np.random.Generator) -> np.ndarray:
        x, y = (table.take(bootstrap_rows(table.n, fraction, least, rng)) for table in (X, Y))
        return estimate(x, y, rng)

    return resample


def resample_joint(X: Table, y: Table, least: int, estimate: Callable[[Table, Table, Any], np.ndarray]) -> Resample:
    """The same for features and a response, whose rows stay together."""

    def resample(fraction: float, rng: np.random.Generator) -> np.ndarray:
        rows = bootstrap_rows(X.n, fraction, least, rng)
        return estimate(X.take(rows), y.take(rows), rng)

    return resample
