"""The U-statistics of all estimators: their kernels, complete unbiased values and null variances.

MMD (paper, section 2) is the mean of h(x, x', y, y') = k(x,x') + k(y,y') - k(x,y') - k(x',y) over different rows x, x'
of one sample and y, y' of the other. HSIC is the mean of a kernel of four rows that is linear in K, with weights from
the response alone (Song et al. 2012), so that all features share one weight per pair of rows. Both are unchanged when a
constant is added to K: subtracting one kernel value makes them exactly 0 for a constant feature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import comb
from typing import Any

import numpy as np
from array_api_compat import device

from kernsift.data.tables import Table
from kernsift.exceptions import InputError
from kernsift.execution.arrays import (
    Array,
    accumulator_dtype,
    asarray_like,
    dtype_of,
    in_place,
    namespace,
    on_host,
    slices,
    to_numpy,
)
from kernsift.execution.fused import gaussian_mmd
from kernsift.kernels.fitted import FeatureKernels

# Elements of one temporary array: a megabyte of doubles, which stays in the cache; more on a device.
CHUNK, DEVICE_CHUNK = 1 << 17, 1 << 25

Resample = Callable[[float, np.random.Generator], np.ndarray]


def mmd_kernel(kernels: FeatureKernels, x: Array, x2: Array, y: Array, y2: Array) -> Array:
    """h(x, x', y, y') of matched value rows (l, p): (l, d)."""
    fused = None if kernels.exponents is None else gaussian_mmd(x, x2, y, y2, kernels.exponents)
    if fused is not None:
        return fused
    # In this order h is exactly 0 when x = y or x' = y', as with three equal rows out of four.
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


def pair_weights(pairs: Array, ends: Array, total: Any, size: int) -> Array:
    """Weights c with HSIC = sum over pairs a < b of c_ab K_ab, among `size` rows.

    The closed form of Song et al. (2012) read as a linear function of K: `pairs` holds L_ab, `ends` the row sums
    r_a + r_b of L without its diagonal, and `total` the sum of all row sums.
    """
    weights = pairs + total / ((size - 1) * (size - 2)) - ends / (size - 2)
    weights *= 2 / (size * (size - 3))
    return weights


def largest(kernels: FeatureKernels, rows: Array) -> Array:
    """The largest k(a, a) over the rows (..., B, p), a bound on all |k(a, b)| among them: (..., d)."""
    xp = namespace(rows)
    bound = None
    for part in batches(rows.shape[-2], rows.shape[-1], rows):
        some = rows[..., part, :]
        found = xp.max(in_place("abs", kernels.matched(some, some)), axis=-2)
        bound = found if bound is None else xp.maximum(bound, found)
    return bound


def snap_to_zero(values: Array, scale: Array) -> Array:
    """`values` with rounding errors of sums of numbers up to `scale` replaced by 0.

    A feature with one deviating row in a block has the value 0 there. A score that averages rounding errors would be
    studentised with a meaningless spread.
    """
    xp = namespace(values)
    # Sums are in float64 where the device has it; the kernel values themselves may be coarser.
    tolerance = 1e-14 if dtype_of(values) == np.float64 else 1e-6
    return xp.where(xp.abs(values) <= tolerance * scale, xp.zeros_like(values), values)


def chunk_of(array: Array) -> int:
    """Numbers of one temporary array."""
    return CHUNK if on_host(array) else DEVICE_CHUNK


def batches(count: int, width: int, prototype: Array) -> Iterator[slice]:
    """Slices of `count` rows of `width` values that suit the device of `prototype`, at least one row each."""
    return slices(0, count, max(1, chunk_of(prototype) // max(width, 1)))


def _tiles(rows: int, columns: int, width: int, prototype: Array, *, upper: bool) -> Iterator[tuple[slice, slice]]:
    """Tiles of the pairs of rows and columns, of a size that suits the device; `upper`: those above the diagonal."""
    chunk = chunk_of(prototype)
    tall = max(1, chunk // max(columns * width, 1))
    for high in slices(0, rows, tall):
        step = max(1, chunk // ((high.stop - high.start) * width))
        for wide in slices(high.start if upper else 0, columns, step):
            yield high, wide


def _above(rows: slice, columns: slice) -> np.ndarray:
    """1 for the pairs of a tile above the diagonal, 0 for the others."""
    return np.less.outer(np.arange(rows.start, rows.stop), np.arange(columns.start, columns.stop)).astype(float)


def _pair_sum(
    kernels: FeatureKernels,
    A: Array,
    B: Array,
    base: Array,
    weights: Callable[[slice, slice], Array] | None = None,
) -> Array:
    """Sum of (k(a, b) - base) over all pairs of rows; with weights, of the pairs above the diagonal only."""
    xp = namespace(A)
    total = xp.zeros(kernels.d, dtype=accumulator_dtype(A), device=device(A))
    for rows, columns in _tiles(A.shape[0], B.shape[0], A.shape[1], A, upper=weights is not None):
        values = kernels.matched(A[rows, None, :], B[None, columns, :])
        values -= base
        if weights is None:
            total += xp.sum(values, axis=(0, 1), dtype=total.dtype)
        else:
            weight = xp.reshape(weights(rows, columns), (-1,))
            total += weight @ xp.astype(xp.reshape(values, (-1, kernels.d)), weight.dtype, copy=False)
    return total


def mmd_ustat(X: Table, Y: Table, kernels: FeatureKernels) -> np.ndarray:
    """The complete unbiased MMD^2 of every feature, in O(n^2 d) time and bounded memory.

    Examples
    --------
    With a linear kernel it is the squared difference of means without its bias.

    >>> import numpy as np
    >>> from kernsift.kernels.fitted import fit_kernels
    >>> from kernsift.data.inputs import as_table
    >>> X, Y = as_table([[1.0], [3.0]]), as_table([[6.0], [6.0]])
    >>> mmd_ustat(X, Y, fit_kernels(X, "linear", 1.0, rng=np.random.default_rng(0)))
    array([15.])
    """
    require_rows(X, 2, "X")
    require_rows(Y, 2, "Y")
    return to_numpy(complete_mmd_values(X.values, Y.values, kernels))


def complete_mmd_values(x: Array, y: Array, kernels: FeatureKernels) -> Array:
    """`mmd_ustat` of arrays of rows."""
    n, m = x.shape[0], y.shape[0]
    base = kernels.matched(x[0, :], y[0, :])

    def above(rows: slice, columns: slice) -> Array:
        return asarray_like(_above(rows, columns), x)

    within = _pair_sum(kernels, x, x, base, above) * (2 / (n * (n - 1)))
    within += _pair_sum(kernels, y, y, base, above) * (2 / (m * (m - 1)))
    within -= _pair_sum(kernels, x, y, base) * (2 / (n * m))
    return snap_to_zero(within, namespace(x).maximum(largest(kernels, x), largest(kernels, y)))


def hsic_ustat(X: Table, y: Table, kernels: FeatureKernels, response_kernels: FeatureKernels) -> np.ndarray:
    """The complete unbiased HSIC of every feature with the response, in O(n^2 d) time and bounded memory.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.kernels.fitted import fit_kernels
    >>> from kernsift.data.inputs import as_table
    >>> rng = np.random.default_rng(0)
    >>> X = as_table(rng.normal(size=(300, 3)))
    >>> y = as_table(np.abs(X.values[:, [1]]))
    >>> hsic_ustat(X, y, fit_kernels(X, rng=rng), fit_kernels(y, rng=rng)).round(2)
    array([-0.  ,  0.05, -0.  ])
    """
    require_rows(X, 4, "X")
    return to_numpy(complete_hsic_values(X.values, y.values, kernels, response_kernels))


def complete_hsic_values(x: Array, y: Array, kernels: FeatureKernels, response_kernels: FeatureKernels) -> Array:
    """`hsic_ustat` of arrays of rows."""
    xp, n = namespace(x), x.shape[0]
    base = response_kernels.matched(y[0, :], y[1, :])

    def response_values(rows: slice, columns: slice) -> Array:
        values = response_kernels.matched(y[rows, None, :], y[None, columns, :])
        values -= base
        return xp.astype(values[..., 0], accumulator_dtype(y), copy=False)

    sums = base[0] - response_kernels.matched(y, y)[:, 0]
    sums = xp.astype(sums, accumulator_dtype(y))
    for rows, columns in _tiles(n, n, y.shape[1], y, upper=False):
        sums[rows] += xp.sum(response_values(rows, columns), axis=1)
    total = xp.sum(sums)

    def weights(rows: slice, columns: slice) -> Array:
        ends = sums[rows, None] + sums[None, columns]
        return asarray_like(_above(rows, columns), x) * pair_weights(response_values(rows, columns), ends, total, n)

    values = _pair_sum(kernels, x, x, kernels.matched(x[0, :], x[1, :]), weights)
    return snap_to_zero(values, largest(kernels, x) * largest(response_kernels, y))


def require_rows(table: Table, needed: int, argument: str, reason: str = "") -> None:
    """Raise an error if a table has too few rows for an estimator."""
    if table.n < needed:
        raise InputError(
            f"{argument}: at least {needed} rows are needed{reason}, got {table.n}; estimator='complete' needs 2."
        )


def bootstrap_rows(n: int, fraction: float, least: int, rng: np.random.Generator) -> np.ndarray:
    """`fraction * n` rows with replacement, at least `least`."""
    return rng.integers(n, size=max(least, round(fraction * n)))


def resampling(
    X: Table, y: Table, least: int, estimate: Callable[[Table, Table, Any], np.ndarray], *, joint: bool
) -> Resample:
    """The slow alternative of the paper's section 3: the estimate on rows drawn with replacement.

    The rows of features and a response are drawn jointly, those of two samples are not.
    """

    def resample(fraction: float, rng: np.random.Generator) -> np.ndarray:
        rows = bootstrap_rows(X.n, fraction, least, rng)
        others = rows if joint else bootstrap_rows(y.n, fraction, least, rng)
        return estimate(X.take(rows), y.take(others), rng)

    return resample
