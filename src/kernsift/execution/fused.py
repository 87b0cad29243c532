"""Kernels of whole draws in one pass over memory, where the array version takes some twenty.

Each function here does what an array version elsewhere does, and says None where it cannot: where the library at hand
has no compiler, and where compiling would take longer than it saves. The array version is its test (tests/test_fused.py
on the host, benchmarks/gpu.py on a GPU).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import array_api_compat as compat
import numpy as np

from kernsift.execution.arrays import Array, on_host

# Numbers in all draws from which on numba is asked: it takes a quarter of a second to load, and two to compile the
# first time on a machine. Never what is loaded already: the same call has to give the same bits.
_WORTH = 2**23

# In this order h is exactly 0 where it should be (statistics/ustatistic.py). `c` is minus the squared reciprocal of the
# bandwidth.
_GAUSSIAN_MMD = """
    T p = x - x2, q = x - y2, r = y - y2, s = x2 - y;
    T h = (exp(p * p * c) - exp(q * q * c)) + (exp(r * r * c) - exp(s * s * c));
"""


def gaussian_mmd(x: Array, x2: Array, y: Array, y2: Array, c: Array) -> Array | None:
    """h(x, x', y, y') of single columns under the Gaussian kernel; None where the array version has to do it."""
    if on_host(x):
        return None
    if compat.is_torch_array(x) and x.device.type == "cuda":
        function = _for_torch()
    elif compat.is_cupy_array(x):
        function = _for_cupy()
    else:
        return None
    return None if function is None else function(x, x2, y, y2, c)


@lru_cache(maxsize=1)
def _for_torch() -> Callable[..., Array] | None:
    try:
        jiterator = importlib.import_module("torch.cuda.jiterator")
        text = f"template <typename T> T draw(T x, T x2, T y, T y2, T c) {{ {_GAUSSIAN_MMD} return h; }}"
        return jiterator._create_jit_fn(text)
    except (ImportError, AttributeError):  # not in every release of torch
        return None


@lru_cache(maxsize=1)
def _for_cupy() -> Callable[..., Array] | None:
    cupy = importlib.import_module("cupy")
    return cupy.ElementwiseKernel("T x, T x2, T y, T y2, T c", "T h", _GAUSSIAN_MMD.replace("T h =", "h ="), "draw")


def host_mmd(
    X: Array, Y: Array, rows: tuple[np.ndarray, ...], columns: slice, exponents: Array, total: int
) -> np.ndarray | None:
    """The same at given rows of two tables, for some columns; `total` says how many numbers are drawn in the end."""
    compiled = _compiled(total, X, Y)
    if compiled is None:
        return None
    out = np.empty((len(rows[0]), len(exponents)), dtype=X.dtype)
    compiled.mmd(X, Y, *rows, columns.indices(X.shape[1])[0], exponents, out)
    return out


def host_hsic(
    X: Array, rows: np.ndarray, weights: list[Array], columns: slice, exponents: Array, total: int
) -> np.ndarray | None:
    """h of quadruples of rows, from the weights of their second and third pairing (statistics/draws.py)."""
    compiled = _compiled(total, X)
    if compiled is None:
        return None
    out = np.empty((len(rows), len(exponents)), dtype=X.dtype)
    second, third = (np.asarray(weight[:, 0], dtype=X.dtype) for weight in weights)
    compiled.hsic(X, rows, second, third, columns.indices(X.shape[1])[0], exponents, out)
    return out


def host_deviations(values: Array, centre: Array, numbers: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Sums of the deviations of values from a centre, and of their squares, for each column."""
    compiled = _compiled(numbers, values)
    if compiled is None:
        return None
    total, squares = np.zeros(values.shape[1]), np.zeros(values.shape[1])
    compiled.deviations(values, centre, total, squares)
    return total, squares


def _compiled(total: int, *tables: Array) -> Any:
    """The compiled functions, where these are worth it and there is numba."""
    if total < _WORTH or not all(isinstance(table, np.ndarray) and table.flags.c_contiguous for table in tables):
        return None
    return _for_host()


@lru_cache(maxsize=1)
def _for_host() -> Any:
    try:
        return importlib.import_module("kernsift.execution.compiled")
    except ImportError:  # no numba, or none that goes with this NumPy
        return None
