"""Compiled kernels of draws: one pass over memory, where the array version takes about twenty.

Each function computes the same as an array version elsewhere, and returns None where it cannot: where there is no
compiler for the array library, and where compiling would take longer than it saves. Tests compare it with the array
version (tests/test_fused.py on the host, benchmarks/gpu.py on a GPU).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import array_api_compat as compat
import numpy as np

from kernsift.execution.arrays import Array, asarray_like
from kernsift.execution.codes import code_dtype

# Numba is used from this many elements in all draws: it takes a quarter of a second to import, and two to compile for
# the first time on a machine. The choice must not depend on previous imports: equal calls give equal bits.
_WORTH = 2**23
# Likewise for Triton, and values and features of a table from which on it is large. Counts are the same bits without
# numba, so that a table of fewer values is large where the functions are compiled already.
_DEVICE_WORTH, _VALUES, _FEATURES, _COMPILED_VALUES = 2**30, 2**25, 2**14, 2**22

# In this order h is exactly 0 when x = y or x' = y' (estimators/ustatistic.py). `c` is minus the squared reciprocal
# bandwidth.
_GAUSSIAN_MMD = """
    T p = x - x2, q = x - y2, r = y - y2, s = x2 - y;
    h = (exp(p * p * c) - exp(q * q * c)) + (exp(r * r * c) - exp(s * s * c));
"""


def gaussian_mmd(x: Array, x2: Array, y: Array, y2: Array, c: Array) -> Array | None:
    """h(x, x', y, y') of single columns under the Gaussian kernel; None where there is no compiled version."""
    return _for_cupy()(x, x2, y, y2, c) if compat.is_cupy_array(x) else None


@lru_cache(maxsize=1)
def _for_cupy() -> Callable[..., Array]:
    cupy = importlib.import_module("cupy")
    return cupy.ElementwiseKernel("T x, T x2, T y, T y2, T c", "T h", _GAUSSIAN_MMD, "draw")


def host_mmd(
    X: Array, Y: Array, rows: tuple[np.ndarray, ...], columns: slice, exponents: Array, total: int
) -> np.ndarray | None:
    """The same at given rows of two tables, for some columns; `total` is the number of elements in all draws."""
    compiled = _compiled(total, X, Y)
    if compiled is None:
        return None
    out = np.empty((len(rows[0]), len(exponents)), dtype=X.dtype)
    compiled.mmd(X, Y, *rows, columns.indices(X.shape[1])[0], exponents, out)
    return out


def device_mmd_sums(
    X: Array, Y: Array, rows: Sequence[np.ndarray], exponents: Array, pilot: Array, total: int
) -> tuple[Array, Array] | None:
    """Sums of deviations of the same from a pilot (p,), and of their squares, on a GPU; None elsewhere."""
    on_gpu = compat.is_torch_array(X) and X.device.type == "cuda" and X.stride(1) == Y.stride(1) == 1
    compiled = _compiled_module("compiled_triton") if on_gpu and total >= _DEVICE_WORTH else None
    return compiled and compiled.mmd_sums(X, Y, asarray_like(np.array(rows, dtype=np.int32), X), exponents, pilot)


def host_hsic(
    X: Array, rows: np.ndarray, weights: list[Array], columns: slice, exponents: Array, total: int
) -> np.ndarray | None:
    """h of quadruples of rows, from the weights of their second and third pairing (estimators/draws/batches.py)."""
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


def is_large(n: int, columns: int) -> bool:
    """Whether a table is large enough for compiled loops."""
    least = _COMPILED_VALUES if "kernsift.execution.compiled" in sys.modules else _VALUES
    return n * columns >= least or columns >= _FEATURES


def host_counts(
    values: Array, edges: Array, cells: Array | None, count: int, kept: np.ndarray, large: bool
) -> tuple[np.ndarray, np.ndarray] | None:
    """Joint counts (b, G, count) of rows by edges (b, G - 1) and cells, and the codes (b, kept) of some rows."""
    compiled = _for_host() if large and isinstance(values, np.ndarray) and edges.shape[1] else None
    if compiled is None:
        return None
    (n, b), points = values.shape, edges.shape[1] + 1
    joint = np.zeros((b, points * count), dtype=np.int64)
    codes = np.empty((b, len(kept)), dtype=code_dtype(np, points))
    cells = np.zeros(n, dtype=np.int64) if cells is None else cells
    compiled.count_cells(values, edges.astype(values.dtype), cells, kept, joint, codes)
    return joint.reshape(b, points, count), codes


def _compiled(total: int, *tables: Array) -> Any:
    """The compiled functions, where there are enough elements and numba is installed."""
    if total < _WORTH or not all(isinstance(table, np.ndarray) and table.flags.c_contiguous for table in tables):
        return None
    return _for_host()


@lru_cache(maxsize=1)
def _for_host() -> Any:
    return _compiled_module("compiled")


def _compiled_module(name: str) -> Any:
    try:
        return importlib.import_module(f"kernsift.execution.{name}")
    except ImportError:  # no compiler, or none that goes with this NumPy
        return None
