"""Functions for arrays of every library: what the array API standard lacks, and transfers from and to a device.

Values stay in the library and on the device of the user (NumPy, torch, CuPy or any library of the array API standard)
until there are `Scores`. Layout, designs and everything computed from `Scores` are NumPy.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any, Literal

import array_api_compat as compat
import numpy as np
from scipy.special import ndtri

Array = Any
"""An array of any library that follows the array API standard."""

INDEX_MODE: Literal["clip", "raise"] = "clip"
"""The mode of NumPy's `take`. Indices are known to be valid, and "clip" skips the bounds check; tests set "raise"."""
# Values per pass of a search, so that they and their codes stay in the cache, and that threads do not wait for each
# other between short passes; and how many np.searchsorted handles.
_RUN, _FEW = 1 << 16, 1 << 9
# Intervals in which a search among many edges begins, and from how many values on.
_INTERVALS, _MANY = 1 << 14, 1 << 13
# Rows that are transposed at a time, at least.
_LINES = 1 << 8

# NumPy before 2.1 lacks some functions of the standard.
_HOST = np if hasattr(np, "cumulative_sum") else importlib.import_module("array_api_compat.numpy")


def is_array(data: Any) -> bool:
    """Whether this is an array of another library than NumPy that estimators can use directly.

    Arrays that cannot be written to (Dask, JAX, PyData sparse, ndonnx) are not; they are converted to NumPy.
    """
    if isinstance(data, np.ndarray | np.generic) or not compat.is_array_api_obj(data):
        return False
    others = (compat.is_dask_array, compat.is_jax_array, compat.is_pydata_sparse_array, compat.is_ndonnx_array)
    return not any(other(data) for other in others)


def on_host(array: Array) -> bool:
    """Whether the values are in the memory of the CPU, where threads and caches matter."""
    return isinstance(array, np.ndarray) or "cpu" in str(compat.device(array)).lower()


def device_room(array: Array) -> int:
    """Bytes that are free on the device of an array; 16 GB where that is not known."""
    if compat.is_torch_array(array) and array.device.type == "cuda":
        torch = importlib.import_module("torch").cuda
        kept = torch.memory_reserved(array.device) - torch.memory_allocated(array.device)
        return int(torch.mem_get_info(array.device)[0] + kept)
    if compat.is_cupy_array(array):
        pool = importlib.import_module("cupy").get_default_memory_pool()
        return int(array.device.mem_info[0] + pool.free_bytes())
    return 1 << 34


def batch_numbers(array: Array) -> int:
    """Elements of one temporary array: on the host 2^15 doubles, which stay in the cache; more on a device."""
    return 1 << 15 if on_host(array) else 1 << 26


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Make the C library keep the memory of temporary arrays instead of returning it to the system.

    glibc returns freed blocks above 128 kB to the system, and every page of the next one causes a page fault, which
    costs more than the arithmetic on it. It raises that limit to the size of the largest block freed so far, of up to
    32 MB: allocating and freeing one such block, without touching it, is enough. Elsewhere this has no effect.

    Dask fixes the limit for its workers through the environment, so that it has to be set.
    """
    if "MALLOC_TRIM_THRESHOLD_" in os.environ:
        with suppress(OSError, AttributeError, TypeError):  # another C library
            library, trim_threshold, mmap_threshold = ctypes.CDLL(None), -1, -3  # as in malloc.h
            library.mallopt(trim_threshold, 1 << 27)
            library.mallopt(mmap_threshold, 1 << 25)
    np.empty(2**25 - 2**16, dtype=np.uint8)


def accumulator_dtype(array: Array) -> Any:
    """The type for sums over rows: float64, or float32 on devices without it."""
    if isinstance(array, np.ndarray):
        return np.float64
    xp, device = namespace(array), str(compat.device(array))
    # Only Apple's GPUs, which torch supports, lack float64; a device of array-api-strict represents them in tests.
    return xp.float32 if "mps" in device or "no_float64" in device else xp.float64


def namespace(array: Array) -> Any:
    """The array API namespace of an array."""
    # Called in inner loops, so that NumPy is checked first.
    if isinstance(array, np.ndarray):
        return _HOST
    return _torch() if compat.is_torch_array(array) else compat.array_namespace(array)


@lru_cache(maxsize=1)
def _torch() -> Any:
    """The namespace of torch, with functions for indices that are not negative.

    The general ones start three more kernels on as many indices as there are.
    """
    import array_api_compat.torch
    import torch

    own = SimpleNamespace(**vars(array_api_compat.torch))
    own.take = lambda x, indices, *, axis=0: torch.index_select(x, axis, indices)
    own.take_along_axis = lambda x, indices, *, axis=-1: torch.gather(x, axis, indices)
    return own


def to_numpy(array: Array) -> np.ndarray:
    """The array as a NumPy array in host memory."""
    if isinstance(array, np.ndarray | np.generic):
        return np.asarray(array)
    if compat.is_cupy_array(array):
        return np.asarray(array.get())
    if compat.is_torch_array(array):
        return np.asarray(array.detach().cpu().numpy())
    devices = getattr(namespace(array), "Device", None)
    return np.asarray(array if devices is None else array.to_device(devices("CPU_DEVICE")))


def asarray_like(values: Any, array: Array) -> Array:
    """NumPy values (or a list of numbers) as an array in the library and on the device of `array`."""
    values = np.asarray(values)
    if isinstance(array, np.ndarray):
        return values
    if values.dtype == np.float64 and dtype_of(array) == np.float32 and accumulator_dtype(array) == array.dtype:
        values = values.astype(np.float32)
    return namespace(array).asarray(np.require(values, requirements="C"), device=compat.device(array))


def dtype_of(array: Array) -> np.dtype[Any]:
    """The NumPy dtype of an array."""
    if isinstance(array, np.ndarray):
        return array.dtype
    # torch has "torch.float32", the others "float32" or a NumPy dtype.
    return np.dtype(str(array.dtype).rpartition(".")[2].removesuffix("'>").strip("<>'"))


def in_place(name: str, array: Array) -> Array:
    """`xp.<name>(array)`, in place where the library supports it, which saves a temporary array."""
    xp = namespace(array)
    if xp is np or compat.is_torch_array(array) or compat.is_cupy_array(array):
        return getattr(xp, name)(array, out=array)
    return getattr(xp, name)(array)


def bounded(array: Array, low: float, high: float) -> Array:
    """The values clipped to [low, high], in place for NumPy arrays."""
    if isinstance(array, np.ndarray):
        return np.clip(array, low, high, out=array)
    return namespace(array).clip(array, low, high)


def at_least(array: Array, low: float) -> Array:
    """The values, or `low` where they are smaller."""
    # Faster than clipping, and for numbers too.
    return np.maximum(array, low) if isinstance(array, np.ndarray | np.generic) else namespace(array).clip(array, low)


def in_double(array: Array) -> Array:
    """Double precision: on the device of the array where that has it, else on the host."""
    if isinstance(array, np.ndarray) or accumulator_dtype(array) != namespace(array).float64:
        return to_numpy(array).astype(np.float64, copy=False)
    return namespace(array).astype(array, namespace(array).float64, copy=False)


def computed_at(prototype: Array, function: Callable[..., Array], *values: np.ndarray) -> np.ndarray:
    """A function of NumPy arrays of doubles, computed on the device of a prototype where that has these."""
    there = in_double(prototype[:0, ...])
    return to_numpy(function(*(asarray_like(one, there) for one in values)))


def take(array: Array, index: slice | np.ndarray, axis: int) -> Array:
    """The entries at `index` along an axis, counted from 0: a view for a slice, else a copy."""
    if isinstance(index, slice):
        axis = axis % array.ndim
        return array[(slice(None),) * axis + (index,) + (slice(None),) * (array.ndim - axis - 1)]
    if isinstance(array, np.ndarray) and axis == 0 and array.ndim == 2 and array.shape[1] == 1:
        # For single elements the bounds check would take most of the time.
        return array.take(index, axis=0, mode=INDEX_MODE)
    if isinstance(array, np.ndarray) and not array.flags.c_contiguous and axis == 0:
        # `take` would copy the whole view first.
        return array[index]
    return namespace(array).take(array, asarray_like(index, array), axis=axis)


def sorted_columns(array: Array) -> Array:
    """The columns of an (n, p) array, each in increasing order, as rows: (p, n)."""
    if isinstance(array, np.ndarray):
        # Copied first, so that the sorted axis is contiguous.
        rows = np.array(array.T, order="C")
        rows.sort(axis=1)
        return rows
    xp = namespace(array)
    return xp.sort(xp.matrix_transpose(array), axis=1)


def sorted_with_order(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`sorted_columns`, and the place (p, n) of each value in the flattened transpose."""
    rows = transposed(array)
    order = np.argsort(rows, axis=1)
    order += np.arange(0, rows.size, rows.shape[1])[:, None]
    return rows.reshape(-1).take(order, mode=INDEX_MODE), order


def codes_in_order(edges: np.ndarray, ordered: np.ndarray, order: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """`search` for values of which `sorted_with_order` is known, in the smallest type that holds the codes.

    `ends` (E,) are the numbers of values up to each edge in most rows.
    """
    (b, n), size, edges = ordered.shape, edges.shape[1] + 1, edges.astype(ordered.dtype, copy=False)
    points = np.arange(size, dtype=code_dtype(np, size))
    in_order: np.ndarray = np.repeat(points, np.diff(ends, prepend=0, append=n))
    below, above = (ordered.take(ranks, axis=1, mode=INDEX_MODE) for ranks in (ends - 1, np.minimum(ends, n - 1)))
    wrong = np.flatnonzero(~((below <= edges) & (edges < above)).all(axis=1))
    if len(wrong):
        found = np.tile(ends, (b, 1))
        for row in wrong:
            found[row] = ordered[row].searchsorted(edges[row], "right")
        counts = np.diff(found, axis=1, prepend=0, append=n)
        in_order = np.repeat(np.tile(points, b), counts.ravel()).reshape(b, n)
    codes = np.empty((b, n), dtype=points.dtype)
    codes.reshape(-1)[order] = in_order
    return codes


def code_dtype(xp: Any, size: int) -> Any:
    """The smallest type that holds the codes 0 .. size-1."""
    return xp.uint8 if size <= 256 else xp.int16 if size <= 2**15 else xp.int32


def normal_quantiles(probabilities: Array) -> Array:
    """Quantiles of the standard normal distribution."""
    if compat.is_torch_array(probabilities):
        import torch

        return torch.special.ndtri(probabilities)
    return asarray_like(ndtri(to_numpy(probabilities)), probabilities)


def transposed(array: Array) -> Array:
    """The transpose of an (n, p) array, contiguous in memory."""
    if compat.is_torch_array(array):
        return array.mT.contiguous()
    if not isinstance(array, np.ndarray):
        return namespace(array).matrix_transpose(array)
    out = np.empty(array.shape[::-1], dtype=array.dtype)
    # By blocks of rows, whose cache lines are then reused for the next column.
    step = max(_LINES, _RUN // max(array.shape[1], 1))
    for start in range(0, len(array), step):
        out[:, start : start + step] = array[start : start + step].T
    return out


def column_sums(array: Array) -> Array:
    """The sum of each column of an (n, d) array, in float64 where the device has it."""
    if isinstance(array, np.ndarray):
        # Not with BLAS, whose order of additions depends on the number of threads.
        return np.add.reduce(array if array.dtype == np.float64 else array.astype(np.float64), axis=0)
    return namespace(array).sum(array, axis=0, dtype=accumulator_dtype(array))


def bincount(codes: Array, size: int, weights: Array | None = None) -> Array:
    """Counts of the codes 0 .. size-1, or sums of their weights."""
    xp = namespace(codes)
    codes = xp.reshape(codes, (-1,))
    weights = None if weights is None else xp.reshape(weights, (-1,))
    if compat.is_torch_array(codes):
        # Three times as fast on a GPU as torch.bincount, which searches for the largest code first.
        amounts = xp.ones(1, dtype=xp.int32, device=codes.device).expand(codes.shape) if weights is None else weights
        return xp.zeros(size, dtype=amounts.dtype, device=codes.device).index_add_(0, codes, amounts)
    if xp is np or compat.is_cupy_array(codes):
        # Not in the standard, but NumPy and CuPy have it with the same arguments.
        return xp.bincount(codes, weights=weights, minlength=size)
    return bincount_by_sorting(codes, size, weights)


def bincount_rows(codes: Array, size: int, cells: Array | None = None, count: int = 1) -> Array:
    """(b, size, count): joint counts of each row of `codes` (b, n) and the `cells` (n,)."""
    xp, b = namespace(codes), codes.shape[0]
    if xp is np:
        # As many rows at a time as have their counts in the cache.
        out = np.empty((b, size * count), dtype=np.int64)
        step = max(1, _RUN // max(codes.shape[1], size * count))
        first = np.arange(step)[:, None] * (size * count)
        for start in range(0, b, step):
            place = np.multiply(codes[start : start + step], count, dtype=np.intp)
            if cells is not None:
                place += cells
            if step > 1:
                place += first[: len(place)]
            found = np.bincount(place.ravel(), minlength=len(place) * size * count)
            out[start : start + step] = found.reshape(len(place), -1)
        return out.reshape(b, size, count)
    # Half the memory of the default type, where it is enough.
    dtype = xp.int32 if b * size * count < 2**31 else xp.int64
    first = xp.arange(0, b * size, size, dtype=dtype, device=compat.device(codes))
    place = xp.astype(codes, dtype, copy=False) + first[:, None]
    if cells is not None:
        place *= count
        place += xp.astype(cells, dtype, copy=False)
    return xp.reshape(bincount(place, b * size * count), (b, size, count))


def bincount_by_sorting(codes: Array, size: int, weights: Array | None = None) -> Array:
    """`bincount` with functions of the standard only: equal codes are adjacent after sorting."""
    xp = namespace(codes)
    order = xp.argsort(codes)
    ends = xp.arange(size + 1, dtype=codes.dtype, device=compat.device(codes))
    edges = xp.searchsorted(xp.take(codes, order), ends)
    if weights is None:
        return edges[1:] - edges[:-1]
    sums = xp.cumulative_sum(xp.take(weights, order), include_initial=True)
    at = xp.take(sums, edges)
    return at[1:] - at[:-1]


def search(edges: Array, values: Array) -> Array:
    """`np.searchsorted` by rows: how many of the increasing `edges` (b, E) are below each of the `values` (b, n)."""
    xp = namespace(values)
    edges = xp.astype(edges, values.dtype)
    if xp is np:
        codes = np.empty(values.shape, dtype=np.intp)
        for own, column, found in zip(edges, values, codes, strict=True):
            if len(column) < _FEW:
                found[:] = np.searchsorted(own, column)
            else:
                _count_below(own, column, found)
        return codes
    if compat.is_torch_array(values):
        import torch

        return torch.searchsorted(edges.contiguous(), values.contiguous(), out_int32=True)
    return binary_search(edges, values)


def _count_below(edges: np.ndarray, values: np.ndarray, found: np.ndarray) -> None:
    """Set `found` to the number of increasing edges below each value.

    A vectorised binary search: three times as fast as `np.searchsorted`, whose branches depend on each comparison. Of
    many values the search begins in one of many intervals of equal length, most of which have no edge or one.
    """
    found[:] = 0
    bucket, start, most = _buckets(edges) if len(values) >= _MANY else (None, found, len(edges))
    largest = 1 << max(most.bit_length() - 1, 0)
    padded = np.full(len(edges) + 2 * largest, np.inf, dtype=edges.dtype)
    padded[: len(edges)] = edges
    for begin in range(0, len(values), _RUN):
        part, codes = values[begin : begin + _RUN], found[begin : begin + _RUN]
        if bucket is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                start.take(bucket(part), out=codes, mode="clip")  # what is below the first interval belongs to it
        step = largest
        while step > 1:
            codes += np.multiply(padded[step - 1 :].take(codes, mode=INDEX_MODE) < part, step)
            step //= 2
        codes += padded.take(codes, mode=INDEX_MODE) < part


def _buckets(edges: np.ndarray) -> tuple[Callable[[np.ndarray], np.ndarray] | None, np.ndarray, int]:
    """Intervals of equal length: the one of a value, the first edge of each, and the most edges of one.

    The intervals lie between the outer edges or, where that puts several into one interval, between the outer ones but
    a few, which leaves room for long tails. Rounding is monotone, so that an edge in an earlier interval than a value
    is below it. None where the edges are too uneven for intervals.
    """
    finite = edges[edges < np.inf]
    best: tuple[Callable[[np.ndarray], np.ndarray] | None, np.ndarray, int] = (None, edges, len(edges))
    for outer in sorted({0, len(finite) // 64}) if len(finite) else []:
        low, high = finite[outer], finite[-1 - outer]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            scale = np.divide(_INTERVALS - 1, high - low, dtype=edges.dtype)
            if not 0 < scale < np.inf or best[2] == 1:
                continue
            bucket = partial(_bucket, low, scale)
            counts = np.bincount(np.maximum(bucket(finite), 0), minlength=_INTERVALS)
        most = int(counts.max())
        if most < best[2] and 8 * most <= len(edges):
            best = bucket, np.cumsum(counts) - counts, most
    return best


def _bucket(low: Any, scale: Any, values: np.ndarray) -> np.ndarray:
    place = np.subtract(values, low)
    place *= scale
    return np.minimum(place, _INTERVALS - 1, out=place).astype(np.intp)


def binary_search(edges: Array, values: Array) -> Array:
    """`search` with functions of the standard only: a vectorised binary search."""
    xp = namespace(values)
    size = edges.shape[1]
    found = xp.zeros(values.shape, dtype=xp.int64, device=compat.device(values))
    step = 1 << max(size.bit_length() - 1, 0)
    while step and size:
        tried = found + step
        below = xp.take_along_axis(edges, xp.clip(tried - 1, 0, size - 1), axis=1) < values
        found = xp.where(below & (tried <= size), tried, found)
        step //= 2
    return found


def lookup(table: Array, codes: Array) -> Array:
    """(b, q, n): the entries of each row's `table` (b, q, G), or of one table for all, at its `codes` (b, n)."""
    xp = namespace(table)
    if xp is np:
        out = np.empty((codes.shape[0], table.shape[1], codes.shape[1]), dtype=table.dtype)
        if len(table) == 1:
            codes = codes.astype(np.intp, copy=False)
            for direction, own in enumerate(table[0]):
                out[:, direction] = own.take(codes, mode=INDEX_MODE)
            return out
        for own, code, found in zip(table, codes, out, strict=True):
            own.take(code, axis=1, out=found, mode=INDEX_MODE)
        return out
    b, q, _ = table.shape
    index = xp.broadcast_to(xp.astype(codes, xp.int64)[:, None, :], (b, q, codes.shape[1]))
    return xp.take_along_axis(table, index, axis=2)


def most_at_once(array: Array) -> int | None:
    """The most blocks in flight, None for no limit: on a device each needs memory, and few keep it busy."""
    if on_host(array):
        return None
    if compat.is_torch_array(array):
        # torch loads its linear algebra at first use, which is not thread-safe.
        xp = namespace(array)
        xp.linalg.eigh(xp.ones((1, 1), device=array.device))
    return 3
