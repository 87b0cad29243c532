"""Codes of values among edges, counts of codes, and values by code, for arrays of every library."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import array_api_compat as compat
import numpy as np

from kernsift.execution.arrays import INDEX_MODE, RUN, Array, asarray_like, namespace, to_numpy, transposed

# Columns with fewer values than this are left to np.searchsorted.
_FEW = 1 << 9
# Intervals of equal length that a search starts from, and the number of values from which on they are used.
_INTERVALS, _MANY = 1 << 14, 1 << 13


def code_dtype(xp: Any, size: int) -> Any:
    """The smallest type that holds the codes 0 .. size-1."""
    return xp.uint8 if size <= 256 else xp.int16 if size <= 2**15 else xp.int32


def search(edges: Array, values: Array, dtype: Any = np.intp) -> Array:
    """`np.searchsorted` by rows: how many of the increasing `edges` (b, E) are below each of the `values` (b, n).

    `dtype` is that of codes in NumPy arrays.
    """
    xp = namespace(values)
    edges = xp.astype(edges, values.dtype)
    if isinstance(values, np.ndarray):
        codes: Array = np.empty(values.shape, dtype=dtype)
        below = np.empty(values.shape[1], dtype=np.intp)
        with np.errstate(over="ignore", invalid="ignore"):
            for own, column, found in zip(edges, values, codes, strict=True):
                if len(column) < _FEW:
                    found[:] = np.searchsorted(own, column)
                else:
                    _count_below(own, column, below)
                    found[:] = below
        return codes
    if compat.is_torch_array(values):
        import torch

        return torch.searchsorted(edges.contiguous(), values.contiguous(), out_int32=True)
    return xp.stack([xp.searchsorted(edges[i, :], values[i, :]) for i in range(values.shape[0])])


def _count_below(edges: np.ndarray, values: np.ndarray, found: np.ndarray) -> None:
    """Set `found` to the number of increasing edges below each value.

    A vectorised binary search: three times as fast as `np.searchsorted`, whose branches depend on each comparison. With
    many values the search starts from the interval of a value; most intervals contain at most one edge.
    """
    found[:] = 0
    bucket, start, most = None, found, len(edges)
    if len(values) >= _MANY:
        bucket, start, most = _buckets(edges.tobytes(), edges.dtype)
    largest = 1 << max(most.bit_length() - 1, 0)
    padded = np.full(len(edges) + 2 * largest, np.inf, dtype=edges.dtype)
    padded[: len(edges)] = edges
    for begin in range(0, len(values), RUN):
        part, codes = values[begin : begin + RUN], found[begin : begin + RUN]
        if bucket is not None:
            start.take(bucket(part), out=codes, mode="clip")  # values below the first interval count as in it
        step = largest
        while step > 1:
            codes += np.multiply(padded[step - 1 :].take(codes, mode=INDEX_MODE) < part, step)
            step //= 2
        codes += padded.take(codes, mode=INDEX_MODE) < part


@lru_cache(maxsize=32)
def _buckets(known: bytes, dtype: np.dtype[Any]) -> tuple[Callable[[np.ndarray], np.ndarray] | None, np.ndarray, int]:
    """A function from values to intervals of equal length, the first edge of each interval, and the most edges of one.

    The edges are `known` by their bytes, so that the result is cached for all pieces of a column.

    The intervals lie between the outer edges or, where that puts several into one interval, between the outer ones but
    a few, which leaves room for long tails. Rounding is monotone, so that an edge in an earlier interval than a value
    is below it. None where the edges are too uneven for intervals.
    """
    edges = np.frombuffer(known, dtype)
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
    in_order: np.ndarray = points.repeat(np.diff(np.concatenate([[0], ends, [n]])))
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


def lookup(table: Array, codes: Array) -> Array:
    """(b, q, n): the entries of each row's `table` (b, q, G), or of one table for all, at its `codes` (b, n)."""
    xp = namespace(table)
    if isinstance(table, np.ndarray):
        out = np.empty((codes.shape[0], table.shape[1], codes.shape[1]), dtype=table.dtype)
        tables = table if len(table) > 1 else [table[0]] * len(codes)
        for own, code, found in zip(tables, codes, out, strict=True):
            own.take(code, axis=1, out=found, mode=INDEX_MODE)
        return out
    b, q, _ = table.shape
    index = xp.broadcast_to(xp.astype(codes, xp.int64)[:, None, :], (b, q, codes.shape[1]))
    return xp.take_along_axis(table, index, axis=2)


def bincount(codes: Array, size: int, weights: Array | None = None) -> Array:
    """Counts of the codes 0 .. size-1, or sums of their weights."""
    xp = namespace(codes)
    codes = xp.reshape(codes, (-1,))
    weights = None if weights is None else xp.reshape(weights, (-1,))
    if compat.is_torch_array(codes):
        # Three times as fast on a GPU as torch.bincount, which searches for the largest code first.
        amounts = xp.ones(1, dtype=xp.int32, device=codes.device).expand(codes.shape) if weights is None else weights
        return xp.zeros(size, dtype=amounts.dtype, device=codes.device).index_add_(0, codes, amounts)
    if isinstance(codes, np.ndarray) or compat.is_cupy_array(codes):
        # Not in the standard, but NumPy and CuPy have it with the same arguments.
        return xp.bincount(codes, weights=weights, minlength=size)
    sums = np.bincount(to_numpy(codes), None if weights is None else to_numpy(weights), size)
    return asarray_like(sums, codes)


def bincount_rows(codes: Array, size: int, cells: Array | None = None, count: int = 1) -> Array:
    """(b, size, count): joint counts of each row of `codes` (b, n) and the `cells` (n,)."""
    xp, b = namespace(codes), codes.shape[0]
    if isinstance(codes, np.ndarray):
        # As many rows at a time as have their counts in the cache.
        out = np.empty((b, size * count), dtype=np.int64)
        step = max(1, RUN // max(codes.shape[1], size * count))
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
