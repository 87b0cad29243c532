"""Functions for arrays of every library: what the array API standard lacks, and transfers from and to a device.

Values stay in the library and on the device of the user (NumPy, torch, CuPy or any library of the array API standard)
until there are `Scores`. Layout, designs and everything computed from `Scores` are NumPy.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, Literal

import array_api_compat as compat
import numpy as np
from scipy.special import ndtri

Array = Any
"""An array of any library that follows the array API standard."""

INDEX_MODE: Literal["clip", "raise"] = "clip"
"""The mode of NumPy's `take`. Indices are known to be valid, and "clip" skips the bounds check; tests set "raise"."""
RUN = 1 << 16
"""Values per pass, so that they and their codes stay in the cache, and threads do not wait between short passes."""


def _numpy() -> Any:
    """The namespace of NumPy, with ufuncs and methods for functions that call these through several others.

    In a call with a small table that would take as long as the arithmetic.
    """
    # NumPy before 2.1 lacks some functions of the standard.
    own = SimpleNamespace(
        **vars(np if hasattr(np, "cumulative_sum") else importlib.import_module("array_api_compat.numpy"))
    )
    reductions = (np.add, np.maximum, np.logical_and, np.logical_or)
    own.sum, own.max, own.all, own.any = (partial(ufunc.reduce, axis=None) for ufunc in reductions)
    own.take = lambda x, indices, *, axis=0: x.take(indices, axis=axis, mode=INDEX_MODE)
    own.matrix_transpose = attrgetter("mT")
    own.astype = lambda x, dtype, *, copy=True: x.astype(dtype, copy=copy)
    return own


_HOST = _numpy()


def slices(start: int, stop: int, step: int) -> Iterator[slice]:
    """The numbers from `start` to `stop` in slices of `step`; the last one may be shorter.

    >>> list(slices(0, 5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    for low in range(start, stop, step):
        yield slice(low, min(low + step, stop))


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

    Dask fixes the limit for its workers through the environment, so it is set explicitly there.
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

    The general functions launch three more kernels over all indices.
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
    # torch warns of arrays that cannot be written to, such as cached ones.
    return namespace(array).asarray(np.require(values, requirements=["C", "W"]), device=compat.device(array))


def dtype_of(array: Array) -> np.dtype[Any]:
    """The NumPy dtype of an array."""
    if isinstance(array, np.ndarray):
        return array.dtype
    # torch has "torch.float32", the others "float32" or a NumPy dtype.
    return np.dtype(str(array.dtype).rpartition(".")[2].removesuffix("'>").strip("<>'"))


def in_place(name: str, array: Array) -> Array:
    """`xp.<name>(array)`, in place where the library supports it, which saves a temporary array."""
    xp = namespace(array)
    if isinstance(array, np.ndarray) or compat.is_torch_array(array) or compat.is_cupy_array(array):
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
    if isinstance(array, np.ndarray):
        # `take` would copy the whole of a view first.
        copied = axis == 0 and not array.flags.c_contiguous
        return array[index] if copied else array.take(index, axis=axis, mode=INDEX_MODE)
    return namespace(array).take(array, asarray_like(index, array), axis=axis)


def sorted_columns(array: Array) -> Array:
    """The columns of an (n, p) array, each in increasing order, as rows: (p, n)."""
    if isinstance(array, np.ndarray):
        rows = transposed(array)  # so that the sorted axis is contiguous
        rows.sort(axis=1)
        return rows
    xp = namespace(array)
    return xp.sort(xp.matrix_transpose(array), axis=1)


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
    return np.array(array.T, order="C") if isinstance(array, np.ndarray) else namespace(array).matrix_transpose(array)


def column_sums(array: Array) -> Array:
    """The sum of each column of an (n, d) array, in float64 where the device has it."""
    if isinstance(array, np.ndarray):
        # Not with BLAS, whose order of additions depends on the number of threads.
        return np.add.reduce(array if array.dtype == np.float64 else array.astype(np.float64), axis=0)
    return namespace(array).sum(array, axis=0, dtype=accumulator_dtype(array))


def most_at_once(array: Array) -> int | None:
    """The most blocks in flight, None for no limit: on a device each needs memory, and few keep it busy."""
    if on_host(array):
        return None
    if compat.is_torch_array(array):
        # torch loads its linear algebra at first use, which is not thread-safe.
        xp = namespace(array)
        xp.linalg.eigh(xp.ones((1, 1), device=array.device))
    return 3
