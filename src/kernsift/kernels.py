"""Kernels, one per feature, and the rules that choose their bandwidths.

A kernel is a small frozen record with one in-place function; `fit_kernels` ties it to the features of a table, and the
`FeatureKernels` it returns evaluates all features at once on matched rows. No Gram matrix is formed here: callers say
which rows meet.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np

from kernsift.bandwidths import column_medians, joint_median
from kernsift.tables import InputError, Table

Columns = slice | np.ndarray
KernelFunction = Callable[[np.ndarray, np.ndarray], np.ndarray]

# Rows behind a median of joint distances, where no order statistics exist: for a group, and for all columns together.
_GROUP_ROWS = 500
_JOINT_ROWS = 1000


class Kernel:
    """A kernel of one feature, as a map of one number.

    `kind` says which number: the distance in units of the bandwidth, the inner product of the two rows in those units,
    or whether the rows are equal. `scaled` tells whether a bandwidth exists, `joint` whether several columns can form
    one feature.
    """

    kind: ClassVar[Literal["distance", "product", "equality", "function"]] = "distance"
    scaled: ClassVar[bool] = True
    joint: ClassVar[bool] = True

    def profile(self, t: np.ndarray) -> np.ndarray:
        """Kernel values from `t`, written into `t`; distances may come with a sign."""
        return t


@dataclass(frozen=True)
class Gaussian(Kernel):
    """exp(-||x - y||^2 / s^2)."""

    def profile(self, t: np.ndarray) -> np.ndarray:
        np.multiply(t, t, out=t)
        np.negative(t, out=t)
        np.exp(t, out=t)
        return t


@dataclass(frozen=True)
class Laplace(Kernel):
    """exp(-||x - y|| / s)."""

    def profile(self, t: np.ndarray) -> np.ndarray:
        np.abs(t, out=t)
        np.negative(t, out=t)
        np.exp(t, out=t)
        return t


@dataclass(frozen=True)
class InverseMultiquadric(Kernel):
    """(1 + ||x - y||^2 / s^2)^(-1/2)."""

    def profile(self, t: np.ndarray) -> np.ndarray:
        np.multiply(t, t, out=t)
        t += 1.0
        np.sqrt(t, out=t)
        np.reciprocal(t, out=t)
        return t


@dataclass(frozen=True)
class Triangle(Kernel):
    """max(0, 1 - |x - y| / s), positive definite on the line only."""

    joint: ClassVar[bool] = False

    def profile(self, t: np.ndarray) -> np.ndarray:
        np.abs(t, out=t)
        np.subtract(1.0, t, out=t)
        np.maximum(t, 0.0, out=t)
        return t


@dataclass(frozen=True)
class Linear(Kernel):
    """x . y, without a bandwidth."""

    kind: ClassVar[Literal["product"]] = "product"
    scaled: ClassVar[bool] = False


@dataclass(frozen=True)
class Polynomial(Kernel):
    """(1 + <x, y> / s^2)^degree, saturating far beyond any sensible value so that its squares stay finite."""

    degree: int = 3
    kind: ClassVar[Literal["product"]] = "product"

    def __post_init__(self) -> None:
        if not isinstance(self.degree, Integral) or isinstance(self.degree, bool) or self.degree < 1:
            raise InputError(f"degree: the polynomial kernel needs a whole number of at least 1, got {self.degree!r}.")

    def profile(self, t: np.ndarray) -> np.ndarray:
        t += 1.0
        bound = (1e30 if t.dtype == np.float32 else 1e100) ** (1.0 / self.degree)
        np.clip(t, -bound, bound, out=t)
        base = t.copy() if self.degree > 1 else t
        for _ in range(self.degree - 1):
            t *= base
        return t


@dataclass(frozen=True)
class Delta(Kernel):
    """1 where x equals y, else 0."""

    kind: ClassVar[Literal["equality"]] = "equality"
    scaled: ClassVar[bool] = False


@dataclass(frozen=True)
class Custom(Kernel):
    """A function f(A, B) of two arrays (..., columns of one feature) with values (...)."""

    function: KernelFunction
    kind: ClassVar[Literal["function"]] = "function"
    scaled: ClassVar[bool] = False

    def __call__(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        values = np.asarray(self.function(A, B))
        expected = np.broadcast_shapes(A.shape, B.shape)[:-1]
        if values.shape != expected:
            raise InputError(
                f"kernel: the function must return shape {expected} for inputs {A.shape} and {B.shape}, got "
                f"{values.shape}; reduce the last axis, which holds the columns of one feature."
            )
        if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
            raise InputError("kernel: the function must return finite real numbers, got others; check its formula.")
        return values


KERNELS: Mapping[str, Kernel] = MappingProxyType(
    {
        "gaussian": Gaussian(),
        "laplace": Laplace(),
        "imq": InverseMultiquadric(),
        "linear": Linear(),
        "polynomial": Polynomial(),
        "triangle": Triangle(),
        "delta": Delta(),
    }
)


def as_kernel(kernel: str | Kernel | KernelFunction) -> Kernel:
    """The kernel of that name, the kernel itself, or a function f(A, B) made one."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str):
        if kernel in KERNELS:
            return KERNELS[kernel]
        near = difflib.get_close_matches(kernel.lower(), KERNELS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise InputError(f"kernel: one of {', '.join(KERNELS)}, or a function, was needed, got {kernel!r}{hint}")
    # A class such as Polynomial is callable too, but calling it with two arrays is never what was meant.
    if callable(kernel) and not isinstance(kernel, type):
        return Custom(kernel)
    raise InputError(
        f"kernel: a name, a Kernel instance such as Polynomial(2) or a function was needed, got {kernel!r}."
    )


@dataclass(frozen=True)
class _Part:
    """Features that are evaluated in one go: `columns` of the values, cut at `starts` where features have several."""

    kernel: Kernel
    features: Columns
    columns: Columns
    starts: np.ndarray | None


@dataclass(frozen=True)
class FeatureKernels:
    """One fitted kernel per feature of a table.

    Attributes
    ----------
    kernel : the kernel of the numeric features; categorical ones compare for equality.
    offsets, categorical : the layout of the table's value columns, as in `Table`.
    inverse : (p,) what each value column is multiplied with before distances or products are taken.
    centre : (p,) what is subtracted from each column before products are taken; None for nothing.
    bandwidth : (d,) the bandwidths, NaN for features whose kernel has none.
    """

    kernel: Kernel
    offsets: np.ndarray
    categorical: np.ndarray
    inverse: np.ndarray
    centre: np.ndarray | None
    bandwidth: np.ndarray

    @property
    def d(self) -> int:
        """The number of features."""
        return len(self.categorical)

    @cached_property
    def _parts(self) -> tuple[_Part, ...]:
        widths = np.diff(self.offsets)
        numeric = ~self.categorical
        parts = []
        for kernel, chosen in (
            (self.kernel, numeric & (widths == 1)),
            (self.kernel, numeric & (widths > 1)),
            (Delta(), self.categorical),
        ):
            features = np.flatnonzero(chosen)
            if len(features):
                counts = widths[features]
                starts = np.cumsum(counts) - counts if counts.max() > 1 else None
                parts.append(_Part(kernel, _span(features), _span(columns_of(self.offsets, features)), starts))
        return tuple(parts)

    def matched(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        """Kernel values (..., d), feature by feature, of value rows A and B (..., p) that broadcast together."""
        # Scaled distances may overflow to infinity, where every distance kernel is 0, as it should be.
        with np.errstate(over="ignore"):
            if len(self._parts) == 1 and self._parts[0].starts is None:
                return self._evaluate(self._parts[0], A, B)
            shape = np.broadcast_shapes(A.shape, B.shape)[:-1]
            out = np.empty((*shape, self.d), dtype=np.result_type(A, B))
            for part in self._parts:
                out[..., part.features] = self._evaluate(part, A[..., part.columns], B[..., part.columns])
            return out

    def _evaluate(self, part: _Part, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        kind, starts = part.kernel.kind, part.starts
        if kind == "distance":
            t = np.subtract(A, B)
            np.multiply(t, self.inverse[part.columns], out=t)
            if starts is not None:
                np.multiply(t, t, out=t)
                t = np.add.reduceat(t, starts, axis=-1)
                np.sqrt(t, out=t)
            return part.kernel.profile(t)
        if kind == "product":
            t = self._standardised(A, part.columns) * self._standardised(B, part.columns)
            return part.kernel.profile(t if starts is None else np.add.reduceat(t, starts, axis=-1))
        if kind == "equality":
            same = np.equal(A, B)
            if starts is not None:
                same = np.logical_and.reduceat(same, starts, axis=-1)
            return same.astype(np.result_type(A, B))
        return _function_values(part, A, B)

    def _standardised(self, A: np.ndarray, columns: Columns) -> np.ndarray:
        t = A * self.inverse[columns] if self.centre is None else (A - self.centre[columns]) * self.inverse[columns]
        # Bounds that only keep the product of two values finite.
        bound = 1e15 if t.dtype == np.float32 else 1e150
        np.clip(t, -bound, bound, out=t)
        return t

    def rescaled(self, factor: float) -> FeatureKernels:
        """The same kernels with every bandwidth multiplied; kernels without one stay as they are."""
        if not self.kernel.scaled:
            return self
        numeric = np.repeat(~self.categorical, np.diff(self.offsets))
        inverse = np.where(numeric, self.inverse / factor, self.inverse).astype(self.inverse.dtype)
        return replace(self, inverse=inverse, bandwidth=self.bandwidth * factor)

    def select(self, features: np.ndarray) -> FeatureKernels:
        """The kernels of those features, in that order."""
        features = np.asarray(features, dtype=np.intp)
        columns = columns_of(self.offsets, features)
        return replace(
            self,
            offsets=np.concatenate([[0], np.cumsum(np.diff(self.offsets)[features])]),
            categorical=self.categorical[features],
            inverse=self.inverse[columns],
            centre=None if self.centre is None else self.centre[columns],
            bandwidth=self.bandwidth[features],
        )


def _function_values(part: _Part, A: np.ndarray, B: np.ndarray) -> np.ndarray:
    assert isinstance(part.kernel, Custom)
    starts = np.arange(A.shape[-1]) if part.starts is None else part.starts
    bounds = [*starts.tolist(), A.shape[-1]]
    shape = np.broadcast_shapes(A.shape, B.shape)[:-1]
    out = np.empty((*shape, len(starts)), dtype=np.result_type(A, B))
    for j, (lo, hi) in enumerate(pairwise(bounds)):
        out[..., j] = part.kernel(A[..., lo:hi], B[..., lo:hi])
    return out


def columns_of(offsets: np.ndarray, features: np.ndarray) -> np.ndarray:
    """The value columns of those features, one feature after the other."""
    widths = np.diff(offsets)[features]
    inside = np.arange(widths.sum()) - np.repeat(np.cumsum(widths) - widths, widths)
    return np.repeat(offsets[:-1][features], widths) + inside


def _span(index: np.ndarray) -> Columns:
    """The same index as a slice where it is a run, because slices are views and arrays are copies."""
    if len(index) == index[-1] - index[0] + 1 and (np.diff(index) == 1).all():
        return slice(int(index[0]), int(index[-1]) + 1)
    return index


def fit_kernels(
    pooled: Table,
    kernel: str | Kernel | KernelFunction = "gaussian",
    bandwidth: str | float | np.ndarray = "median",
    *,
    rng: np.random.Generator,
) -> FeatureKernels:
    """Tie a kernel to every feature of a table.

    Parameters
    ----------
    pooled : the rows of all samples.
    kernel : a name in `KERNELS`, a `Kernel` such as `Polynomial(degree=2)`, or a function f(A, B) of two arrays
        (..., columns of one feature) with values (...). Categorical features always compare for equality.
    bandwidth : "median", the median distance of each feature by itself; "joint", one number for all features, the
        median distance of whole rows (the authors' choice); a positive number; or one number per feature. The numbers
        are used as they are, in the units of the feature.

    Notes
    -----
    With "median" a group's columns are first divided by their own median distances, so no kernel but the linear one
    depends on units; and for kernels of inner products every column is centred at its median, which leaves MMD and
    HSIC with the linear kernel as they are and keeps the polynomial kernel from being dominated by the mean.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.kernels import fit_kernels
    >>> from kernsift.tables import as_table
    >>> rng = np.random.default_rng(0)
    >>> table = as_table(rng.normal(size=(50, 3)))
    >>> fit_kernels(table, "gaussian", 1.0, rng=rng).matched(table.values[0], table.values[0])
    array([1., 1., 1.])
    """
    chosen = as_kernel(kernel)
    widths = np.diff(pooled.offsets)
    if not chosen.joint and (widths > 1).any():
        group = pooled.names[int(np.argmax(widths > 1))]
        raise InputError(
            f"kernel: the {kernel!r} kernel is for single columns, but feature {group!r} has several; use 'laplace'."
        )
    given = _checked_bandwidth(bandwidth, pooled.d)
    numeric = ~pooled.categorical
    columns = np.flatnonzero(np.repeat(numeric, widths))
    scale, centre = np.ones(pooled.values.shape[1]), None
    bandwidths = np.full(pooled.d, np.nan)
    if isinstance(given, str) and given == "median" and len(columns) and chosen.kind in ("distance", "product"):
        distances, middle = column_medians(pooled.values, columns)
        if chosen.kind == "product":
            centre = np.zeros(len(scale), dtype=pooled.values.dtype)
            centre[columns] = middle
        if chosen.scaled:
            scale[columns] = distances
            bandwidths[numeric] = scale[pooled.offsets[:-1][numeric]]
            _fit_groups(pooled, scale, bandwidths, rng)
    elif chosen.scaled and numeric.any():
        if isinstance(given, str):
            given = np.full(pooled.d, joint_median(pooled.values, columns, np.ones(len(columns)), _JOINT_ROWS, rng))
        bandwidths[numeric] = given[numeric]
        scale[columns] = np.repeat(given, widths)[columns]
    # Reciprocals of the very smallest numbers would not be finite.
    limit = 1e37 if pooled.values.dtype == np.float32 else 1e300
    inverse = (1.0 / np.clip(scale, 1.0 / limit, limit)).astype(pooled.values.dtype)
    return FeatureKernels(chosen, pooled.offsets, pooled.categorical, inverse, centre, bandwidths)


def _checked_bandwidth(bandwidth: Any, d: int) -> str | np.ndarray:
    if isinstance(bandwidth, str):
        if bandwidth in ("median", "joint"):
            return bandwidth
        raise InputError(
            f"bandwidth: 'median', 'joint', a positive number or {d} of them were needed, got {bandwidth!r}."
        )
    try:
        given = np.asarray(bandwidth, dtype=float)
    except (TypeError, ValueError):
        given = np.empty(0)
    if (
        isinstance(bandwidth, bool)
        or given.size == 0
        or (given.ndim == 0 and not isinstance(bandwidth, Real | np.ndarray))
    ):
        raise InputError(
            f"bandwidth: 'median', 'joint', a positive number or {d} of them were needed, got {bandwidth!r}."
        )
    if given.ndim > 1 or (given.ndim == 1 and len(given) != d):
        raise InputError(f"bandwidth: one number per feature was needed, shape ({d},), got shape {given.shape}.")
    if not (np.isfinite(given) & (given > 0)).all():
        bad = given.ravel()[np.argmin(np.isfinite(given) & (given > 0))]
        raise InputError(f"bandwidth: positive finite numbers were needed, got {bad}; use 'median' to have it chosen.")
    return np.broadcast_to(given, (d,))


def _fit_groups(pooled: Table, scale: np.ndarray, bandwidths: np.ndarray, rng: np.random.Generator) -> None:
    """Replace the scales of columns in groups: own median distance times the group's median of joint distances."""
    for j in np.flatnonzero(np.diff(pooled.offsets) > 1):
        columns = np.arange(pooled.offsets[j], pooled.offsets[j + 1])
        bandwidths[j] = joint_median(pooled.values, columns, scale[columns], _GROUP_ROWS, rng)
        scale[columns] *= bandwidths[j]
