"""Kernels fitted to the features of a table, one per feature.

`fit_kernels` chooses bandwidths, and the `FeatureKernels` it returns evaluates all features at once on matched rows. No
Gram matrix is formed here: callers choose the pairs of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from kernsift.data.sparse import SparseTable
from kernsift.data.table_parts import run_of
from kernsift.data.tables import Table
from kernsift.exceptions import InputError
from kernsift.execution.arrays import (
    Array,
    asarray_like,
    bounded,
    dtype_of,
    in_place,
    keep_freed_memory,
    namespace,
    slices,
    take,
    to_numpy,
)
from kernsift.kernels.bandwidths import column_medians, joint_median, medians_of_sorted, rows_to_sort
from kernsift.kernels.checks import check_function, check_missing, checked_bandwidth
from kernsift.kernels.functions import Custom, Delta, Gaussian, Kernel, KernelFunction, as_kernel

Columns = slice | np.ndarray

# Rows whose joint distances have a median: of a group of columns, and of all columns together.
_GROUP_ROWS = 500
_JOINT_ROWS = 1000
# Columns of a feature up to which they are added column by column.
_NARROW = 8


@dataclass(frozen=True)
class _Part:
    """Features that are evaluated together: `columns` of the values, `width` of them for each feature."""

    kernel: Kernel
    features: np.ndarray
    columns: Columns
    width: int


@dataclass(frozen=True)
class FeatureKernels:
    """One fitted kernel per feature of a table.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.data.inputs import as_table
    >>> kernels = fit_kernels(as_table([[0.0], [1.0], [3.0]]), "laplace", rng=np.random.default_rng(0))
    >>> kernels.bandwidth
    array([2.])
    >>> kernels.matched(np.array([0.0]), np.array([2.0])).round(3)
    array([0.368])
    """

    kernel: Kernel  # the kernel of the numeric features; categorical ones have the equality kernel
    offsets: np.ndarray  # the layout of the table's value columns, as in `Table`
    categorical: np.ndarray
    # (p,) factors of the value columns before distances or products are taken, in the array library and on the
    # device of the values.
    inverse: Array
    centre: Array | None  # (p,) subtracted from each column before products are taken
    bandwidth: np.ndarray  # (d,) the bandwidths, NaN for features whose kernel has none
    # Whether NaN is a value of its own, with kernel value 1 with itself and 0 with all others. Groups of columns have
    # none.
    missing: bool = field(default=False, kw_only=True)

    @property
    def d(self) -> int:
        """The number of features."""
        return len(self.categorical)

    @property
    def rounds(self) -> bool:
        """Whether neighbouring values may be merged into one point: not with the equality kernel."""
        return self.kernel.kind != "equality"

    @cached_property
    def _parts(self) -> tuple[_Part, ...]:
        """Features by kernel and number of columns; usually one part."""
        widths = np.where(self.categorical, 0, np.diff(self.offsets))
        parts = []
        for width in np.unique(widths).tolist():
            features = np.flatnonzero(widths == width)
            kernel = self.kernel if width else Delta()
            parts.append(_Part(kernel, features, run_of(columns_of(self.offsets, features)), max(width, 1)))
        return tuple(parts)

    @cached_property
    def _order(self) -> np.ndarray | None:
        """The position of each feature in the concatenated parts; None where that is their own order."""
        places = np.argsort(np.concatenate([part.features for part in self._parts]))
        return None if np.array_equal(places, np.arange(self.d)) else places

    @cached_property
    def exponents(self) -> Array | None:
        """(d,) c of exp(c (x - y)^2) where all features are single columns with the Gaussian kernel; else None."""
        [part, *others] = self._parts
        if self.missing or others or part.width > 1 or not isinstance(part.kernel, Gaussian):
            return None
        # Squares of the reciprocal bandwidths must neither overflow nor underflow.
        limit, inverse = 1e15 if dtype_of(self.inverse) == np.float32 else 1e100, to_numpy(self.inverse)
        squarable = bool((inverse > 1 / limit).all() and (inverse < limit).all())
        return -(self.inverse * self.inverse) if squarable else None

    def matched(self, A: Array, B: Array) -> Array:
        """Kernel values (..., d), feature by feature, of value rows A and B (..., p) that broadcast together."""
        if not self.missing:
            return self._values(A, B)
        xp = namespace(A)
        one, other = xp.isnan(A), xp.isnan(B)
        values = self._values(xp.where(one, 0.0, A), xp.where(other, 0.0, B))
        if self.offsets[-1] > self.d:  # groups of columns have no missing values
            one, other = (take(gaps, self.offsets[:-1], -1) for gaps in (one, other))
        return xp.where(one | other, xp.astype(one & other, values.dtype), values)

    def _values(self, A: Array, B: Array) -> Array:
        # Scaled distances may overflow to infinity, where every distance kernel is 0.
        with np.errstate(over="ignore"):
            if len(self._parts) == 1:
                return self._evaluate(self._parts[0], A, B)
            pieces = [
                self._evaluate(part, take(A, part.columns, -1), take(B, part.columns, -1)) for part in self._parts
            ]
            joined = namespace(A).concat(pieces, axis=-1)
            return joined if self._order is None else take(joined, self._order, -1)

    def _evaluate(self, part: _Part, A: Array, B: Array) -> Array:
        kind, width = part.kernel.kind, part.width
        if kind == "distance":
            t = A - B
            t *= take(self.inverse, part.columns, 0)
            if width > 1:
                t *= t
                t = in_place("sqrt", _sums(t, width))
            return part.kernel.profile(t)
        if kind == "product":
            t = self._standardised(A, part.columns) * self._standardised(B, part.columns)
            return part.kernel.profile(_sums(t, width))
        if kind == "equality":
            xp = namespace(A)
            same = xp.astype(A == B, xp.result_type(A.dtype, B.dtype))
            return same if width == 1 else xp.astype(_sums(same, width) == width, same.dtype)
        assert isinstance(part.kernel, Custom)
        xp, parts = namespace(A), slices(0, A.shape[-1], width)
        dtype = xp.result_type(A.dtype, B.dtype)
        return xp.stack([xp.astype(part.kernel(A[..., own], B[..., own]), dtype) for own in parts], axis=-1)

    def _standardised(self, A: Array, columns: Columns) -> Array:
        t = A if self.centre is None else A - take(self.centre, columns, 0)
        t = t * take(self.inverse, columns, 0)
        # Clip so that the product of two values is finite.
        bound = 1e15 if dtype_of(t) == np.float32 else 1e150
        return bounded(t, -bound, bound)

    def rescaled(self, factor: float) -> FeatureKernels:
        """The same kernels with every bandwidth multiplied by a factor; kernels without one are unchanged."""
        if not self.kernel.scaled:
            return self
        numeric = np.repeat(~self.categorical, np.diff(self.offsets))
        inverse = namespace(self.inverse).where(
            asarray_like(numeric, self.inverse), self.inverse / factor, self.inverse
        )
        return replace(self, inverse=inverse, bandwidth=self.bandwidth * factor)

    def learn(self, features: np.ndarray, ordered: Array) -> None:
        """Fit those features from their sorted columns (b, rows), at `rows_to_sort`."""

    def within(self, features: np.ndarray, table: Table) -> FeatureKernels:
        """The kernels of those features, for a table of these features only; not fitted yet where they need not be."""
        return self.select(features)

    def select(self, features: np.ndarray) -> FeatureKernels:
        """The kernels of those features, in that order."""
        features = np.asarray(features, dtype=np.intp)
        if np.array_equal(features, np.arange(self.d)):
            return self
        columns = columns_of(self.offsets, features)
        return replace(
            self,
            offsets=np.concatenate([[0], np.cumsum(np.diff(self.offsets)[features])]),
            categorical=self.categorical[features],
            inverse=take(self.inverse, columns, 0),
            centre=None if self.centre is None else take(self.centre, columns, 0),
            bandwidth=self.bandwidth[features],
        )


def _sums(t: Array, width: int) -> Array:
    """Sums over each `width` neighbours of the last axis."""
    if width == 1:
        return t
    if width > _NARROW:
        return namespace(t).sum(namespace(t).reshape(t, (*t.shape[:-1], -1, width)), axis=-1)
    # Sums over a short last axis are slow; adding strided columns is fast.
    total = t[..., ::width] + t[..., 1::width]
    for place in range(2, width):
        total += t[..., place::width]
    return total


def columns_of(offsets: np.ndarray, features: np.ndarray) -> np.ndarray:
    """The value columns of those features, concatenated."""
    if offsets[-1] == len(offsets) - 1:  # one for each
        return np.asarray(features, dtype=np.intp)
    widths = np.diff(offsets)[features]
    inside = np.arange(widths.sum()) - np.repeat(np.cumsum(widths) - widths, widths)
    return np.repeat(offsets[:-1][features], widths) + inside


def fit_kernels(
    pooled: Table,
    kernel: str | Kernel | KernelFunction = "gaussian",
    bandwidth: str | float | np.ndarray = "median",
    *,
    rng: np.random.Generator,
    late: str | None = None,
) -> FeatureKernels:
    """Fit a kernel to every feature of a table.

    Parameters
    ----------
    pooled : Table
        The rows of all samples.
    kernel : str, Kernel or callable, default="gaussian"
        A name in `KERNELS`, a `Kernel` such as `Polynomial(degree=2)`, or a function f(A, B) of two arrays (...,
        columns of one feature) with values (...). Categorical features always have the equality kernel.
    bandwidth : {"median", "joint"}, float or array of shape (d,), default="median"
        "median", the median distance of each feature; "joint", one number for all features, the median distance of
        whole rows (the authors' choice); a positive number; or one number per feature, in the units of the feature.
    rng : numpy.random.Generator
        Draws the rows of joint distances.
    late : {"read", "sorted"}, optional
        "read": kernels of a table on disk may be fitted when its columns are read; "sorted": those of any table
        when `fit_grid` sorts them.

    Notes
    -----
    With "median" a group's columns are first divided by their own median distances, so no kernel but the linear one
    depends on units; and for kernels of inner products every column is centred at its median, which leaves MMD and
    HSIC with the linear kernel as they are and keeps the polynomial kernel from being dominated by the mean.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.kernels.fitted import fit_kernels
    >>> from kernsift.data.inputs import as_table
    >>> rng = np.random.default_rng(0)
    >>> table = as_table(rng.normal(size=(50, 3)))
    >>> fit_kernels(table, "gaussian", 1.0, rng=rng).matched(table.values[0], table.values[0])
    array([1., 1., 1.])
    """
    keep_freed_memory()
    chosen = as_kernel(kernel)
    widths = np.diff(pooled.offsets)
    if not chosen.joint and (widths > 1).any():
        group = pooled.names[int(np.argmax(widths > 1))]
        raise InputError(
            f"kernel: the {kernel!r} kernel is for single columns, but feature {group!r} has several; use 'laplace'."
        )
    given = checked_bandwidth(bandwidth, pooled.d)
    missing = pooled.incomplete is not None
    check_missing(pooled, given)
    numeric = ~pooled.categorical
    if isinstance(chosen, Custom):
        check_function(chosen, pooled, np.flatnonzero(numeric))
    median = isinstance(given, str) and given == "median" and numeric.any() and chosen.kind in ("distance", "product")
    waits = late == "sorted" or (late == "read" and pooled.memory is not None) or isinstance(pooled, SparseTable)
    if median and waits and (widths == 1).all():
        return LateKernels.of(pooled, chosen)
    columns = np.flatnonzero(np.repeat(numeric, widths))
    scale, centre = np.ones(int(pooled.offsets[-1])), None
    bandwidths = np.full(pooled.d, np.nan)
    if median:
        distances, middle = column_medians(pooled, columns, rows_to_sort(pooled.n))
        if chosen.kind == "product":
            centre = np.zeros(len(scale), dtype=dtype_of(pooled.prototype))
            centre[columns] = middle
            centre = asarray_like(centre, pooled.prototype)
        if chosen.scaled:
            scale[columns] = distances
            bandwidths[numeric] = scale[pooled.offsets[:-1][numeric]]
            _fit_groups(pooled, scale, bandwidths, rng)
    elif chosen.scaled and numeric.any():
        if isinstance(given, str):
            given = np.full(pooled.d, joint_median(pooled, columns, np.ones(len(columns)), _JOINT_ROWS, rng))
        bandwidths[numeric] = given[numeric]
        scale[columns] = np.repeat(given, widths)[columns]
    inverse = asarray_like(_reciprocal(scale, dtype_of(pooled.prototype)), pooled.prototype)
    return FeatureKernels(chosen, pooled.offsets, pooled.categorical, inverse, centre, bandwidths, missing=missing)


def _reciprocal(scale: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Reciprocals, clipped so that they are finite."""
    limit = 1e37 if dtype == np.float32 else 1e300
    return np.asarray((1.0 / np.clip(scale, 1.0 / limit, limit)).astype(dtype))


@dataclass(frozen=True)
class LateKernels(FeatureKernels):
    """Kernels of a table with one column per feature, fitted when a feature is first used.

    Estimators that read or sort blocks of columns fit the kernels to these, which saves a pass over the table.
    """

    pooled: Table
    found: np.ndarray  # (d,) bool: the features whose kernels are fitted
    # The kernels of more features, which learn what these do, and the places of these features there; else None.
    whole: tuple[LateKernels, np.ndarray] | None = None

    @classmethod
    def of(cls, pooled: Table, kernel: Kernel) -> LateKernels:
        """The kernels, not fitted yet but for categorical features, which need no fitting."""
        dtype = dtype_of(pooled.prototype)
        centre = np.zeros(pooled.d, dtype=dtype) if kernel.kind == "product" else None
        inverse, bandwidth = np.ones(pooled.d, dtype=dtype), np.full(pooled.d, np.nan)
        found = pooled.categorical.copy()
        missing = pooled.incomplete is not None
        own = (inverse, centre, bandwidth, pooled, found)
        return cls(kernel, pooled.offsets, pooled.categorical, *own, missing=missing)

    def select(self, features: np.ndarray) -> FeatureKernels:
        features = np.asarray(features, dtype=np.intp)
        return self._fitted(features).select(features)

    def within(self, features: np.ndarray, table: Table) -> FeatureKernels:
        own = ("categorical", "inverse", "centre", "bandwidth", "found")
        some = {name: value[features] for name in own if (value := getattr(self, name)) is not None}
        return replace(self, pooled=table, offsets=np.arange(len(features) + 1), whole=(self, features), **some)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"whole": None}

    def learn(self, features: np.ndarray, ordered: Array) -> None:
        if self.found[features].any():
            return
        distances, middle = medians_of_sorted(ordered)
        # Columns that are constant on these rows are read in full.
        varies = ~np.isnan(distances)
        self._keep(features[varies], distances[varies], middle[varies])

    def rescaled(self, factor: float) -> FeatureKernels:
        return self._fitted(np.arange(self.d)).rescaled(factor)

    def _fitted(self, features: np.ndarray) -> FeatureKernels:
        """The kernels, after fitting those of some features."""
        new = features[~self.found[features]]
        if len(new):
            self._keep(new, *column_medians(self.pooled, new, rows_to_sort(self.pooled.n)))
        there = self.pooled.prototype
        centre = None if self.centre is None else asarray_like(self.centre, there)
        own = (asarray_like(self.inverse, there), centre, self.bandwidth)
        return FeatureKernels(self.kernel, self.offsets, self.categorical, *own, missing=self.missing)

    def _keep(self, features: np.ndarray, distances: np.ndarray, middle: np.ndarray) -> None:
        if self.centre is not None:
            self.centre[features] = middle
        if self.kernel.scaled:
            self.bandwidth[features] = distances
            self.inverse[features] = _reciprocal(distances, self.inverse.dtype)
        self.found[features] = True
        if self.whole is not None:
            whole, places = self.whole
            whole._keep(places[features], distances, middle)


def _fit_groups(pooled: Table, scale: np.ndarray, bandwidths: np.ndarray, rng: np.random.Generator) -> None:
    """Scale the columns of groups by their own median distance times the group's median joint distance."""
    for j in np.flatnonzero(np.diff(pooled.offsets) > 1):
        columns = np.arange(pooled.offsets[j], pooled.offsets[j + 1])
        bandwidths[j] = joint_median(pooled, columns, scale[columns], _GROUP_ROWS, rng)
        scale[columns] *= bandwidths[j]
