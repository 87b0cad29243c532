"""Kernel functions. A new kernel is a class here and an entry in `KERNELS`.

A kernel is a small frozen record with one in-place function of a distance or an inner product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np

from kernsift.exceptions import InputError, suggestion
from kernsift.execution.arrays import Array, bounded, dtype_of, in_place, namespace

KernelFunction = Callable[[Array, Array], Array]


class Kernel:
    """A kernel of one feature, as a function of one number.

    `kind` is what that number is: the distance in units of the bandwidth, the inner product of the two rows in those
    units, or whether the rows are equal. `scaled`: whether the kernel has a bandwidth; `joint`: whether several columns
    can form one feature.
    """

    kind: ClassVar[Literal["distance", "product", "equality", "function"]] = "distance"
    scaled: ClassVar[bool] = True
    joint: ClassVar[bool] = True

    @property
    def unbounded(self) -> bool:
        """Whether its values may be arbitrarily large."""
        return self.kind in ("product", "function")

    def profile(self, t: Array) -> Array:
        """Kernel values from `t`, in place where the array library allows it; distances may be signed."""
        return t


@dataclass(frozen=True)
class Gaussian(Kernel):
    """exp(-||x - y||^2 / s^2)."""

    def profile(self, t: Array) -> Array:
        t *= t
        return in_place("exp", in_place("negative", t))


@dataclass(frozen=True)
class Laplace(Kernel):
    """exp(-||x - y|| / s)."""

    def profile(self, t: Array) -> Array:
        return in_place("exp", in_place("negative", in_place("abs", t)))


@dataclass(frozen=True)
class InverseMultiquadric(Kernel):
    """(1 + ||x - y||^2 / s^2)^(-1/2)."""

    def profile(self, t: Array) -> Array:
        t *= t
        t += 1.0
        return in_place("reciprocal", in_place("sqrt", t))


@dataclass(frozen=True)
class Triangle(Kernel):
    """max(0, 1 - |x - y| / s), positive definite on the line only."""

    joint: ClassVar[bool] = False

    def profile(self, t: Array) -> Array:
        t = in_place("negative", in_place("abs", t))
        t += 1.0
        return bounded(t, 0.0, 1.0)


@dataclass(frozen=True)
class Linear(Kernel):
    """x . y, without a bandwidth."""

    kind: ClassVar[Literal["product"]] = "product"
    scaled: ClassVar[bool] = False


@dataclass(frozen=True)
class Polynomial(Kernel):
    """(1 + <x, y> / s^2)^degree, clipped at a huge value so that its squares stay finite.

    Examples
    --------
    >>> from kernsift import compare
    >>> means_and_spreads = Polynomial(degree=2)
    >>> result = compare([[1.0], [2.0], [4.0]], [[1.0], [3.0], [9.0]], kernel=means_and_spreads)
    >>> bool(0 < result.pvalues[0] <= 1)
    True
    """

    degree: int = 3
    kind: ClassVar[Literal["product"]] = "product"

    def __post_init__(self) -> None:
        if not isinstance(self.degree, Integral) or isinstance(self.degree, bool) or self.degree < 1:
            raise InputError(f"degree: the polynomial kernel needs a whole number of at least 1, got {self.degree!r}.")

    def profile(self, t: Array) -> Array:
        t += 1.0
        bound = (1e30 if dtype_of(t) == np.float32 else 1e100) ** (1.0 / self.degree)
        t = bounded(t, -bound, bound)
        base = namespace(t).asarray(t, copy=True) if self.degree > 1 else t
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

    def __call__(self, A: Array, B: Array) -> Array:
        xp = namespace(A)
        values = self.function(A, B)
        values = np.asarray(values) if isinstance(A, np.ndarray) else values
        expected = np.broadcast_shapes(A.shape, B.shape)[:-1]
        if tuple(np.shape(values)) != expected:
            raise InputError(
                f"kernel: the function must return shape {expected} for inputs {tuple(A.shape)} and {tuple(B.shape)}, "
                f"got {tuple(np.shape(values))}; reduce the last axis, which holds the columns of one feature."
            )
        real = xp.isdtype(values.dtype, ("bool", "integral", "real floating"))
        if not real or not bool(xp.all(xp.isfinite(xp.astype(values, A.dtype)))):
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
    """The kernel with a name, a kernel itself, or a function f(A, B) as a kernel."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str):
        if kernel in KERNELS:
            return KERNELS[kernel]
        hint = suggestion(kernel, KERNELS, "; 'gaussian' is the default.")
        raise InputError(f"kernel: needs one of {', '.join(map(repr, KERNELS))}, or a function, got {kernel!r}{hint}")
    # A class such as Polynomial is callable too, but is not a function of two arrays.
    if callable(kernel) and not isinstance(kernel, type):
        return Custom(kernel)
    raise InputError(
        f"kernel: needs a name, a Kernel instance such as Polynomial(2) or a function, got {kernel!r}; 'gaussian' is "
        "the default."
    )
