"""Median distances, the default bandwidths of kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np

from kernsift.data.sparse import SparseTable
from kernsift.data.table_parts import read_part, run_of
from kernsift.data.tables import Table
from kernsift.execution.arrays import (
    Array,
    accumulator_dtype,
    asarray_like,
    dtype_of,
    namespace,
    on_host,
    slices,
    sorted_columns,
    take,
    to_numpy,
)
from kernsift.execution.progress import report_progress
from kernsift.execution.threads import parallel_map
from kernsift.kernels.sparse_columns import midpoint, sparse_medians

# Order statistics per column behind the median distance: 2016 differences, the same for any row order.
_QUANTILES = 64
# Elements of one temporary array while medians are computed: few enough to stay in the cache; more on a device.
_CHUNK, _DEVICE_CHUNK = 1 << 17, 1 << 26
# Elements up to which one thread sorts them: starting more would take longer.
_FEW = 1 << 18
# Sparse columns per block.
_SPARSE_BLOCK = 128
# Up to this many rows order statistics are those of all rows, whose order then does not matter; of longer tables a
# random subset of this size is sorted.
_SORTED = 1 << 14


def rows_to_sort(n: int) -> np.ndarray | None:
    """The rows of n whose order statistics give median distances and the points of columns; None for all of them.

    They are a random subset that depends on n alone, so that scores do not depend on the seed of a call.
    """
    return None if n <= _SORTED else _subset(n, _SORTED)


@lru_cache(maxsize=4)
def _subset(n: int, size: int) -> np.ndarray:
    return np.sort(np.random.default_rng(0).choice(n, size, replace=False))


def column_medians(table: Table, columns: np.ndarray, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The median distance and the median of each of those value columns, from `rows`, those of `rows_to_sort`.

    The distances are those between at most 64 evenly spaced order statistics; where ties make their median 0, only
    positive distances count, and a constant column gets 1. Up to 2^14 rows all of them are used, so that the result
    does not depend on their order; of a longer table 2^14 rows are used.
    """
    if table.incomplete is not None and table.incomplete[columns].any():
        return _of_present_values(table, columns, rows)
    distances, middles = _in_blocks(table, columns, rows)
    # The other rows may vary: columns that are constant on the subset are read in full.
    flat = np.isnan(distances)
    if rows is not None and table.span is not None:
        low, high = table.span
        flat &= low[columns] < high[columns]
    if rows is not None and flat.any():
        distances[flat], middles[flat] = _in_blocks(table, columns[flat], None)
    return np.where(np.isnan(distances), 1.0, distances), middles


def _of_present_values(table: Table, columns: np.ndarray, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Medians of columns of which some have missing values."""
    assert table.incomplete is not None
    distances, middles = np.ones(len(columns)), np.zeros(len(columns))
    complete = ~table.incomplete[columns]
    if complete.any():
        distances[complete], middles[complete] = column_medians(table, columns[complete], rows)
    for place in np.flatnonzero(~complete):
        for asked in [rows, None] if rows is not None else [None]:
            values = to_numpy(table.part(columns[[place]], asked))
            values = values[~np.isnan(values)]
            if not len(values):
                continue
            [distance], [middles[place]] = _medians_of(np.sort(values)[None, :])
            distances[place] = 1.0 if np.isnan(distance) else distance
            if not np.isnan(distance):
                break
    return distances, middles


def _in_blocks(table: Table, columns: np.ndarray, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    count = table.n if rows is None else len(rows)
    if isinstance(table, SparseTable):
        blocks = [columns[some] for some in slices(0, len(columns), _SPARSE_BLOCK)]
        return _joined(parallel_map(lambda own: sparse_medians(table.stored(own).within(rows), _QUANTILES), blocks))
    if table.memory is None:
        return _of_columns(lambda block: table.part(run_of(block), rows), columns, count, table.prototype)
    # Read as many columns of a file at a time as memory allows.
    step = max(1, table.memory // (64 * count))

    def of_part(part: slice) -> tuple[np.ndarray, np.ndarray]:
        values = read_part(table, columns[part], rows)
        found = _of_columns(lambda block: values[:, run_of(block)], np.arange(values.shape[1]), count, values)
        report_progress("looking for bandwidths", part.stop, len(columns))
        return found

    return _joined(map(of_part, slices(0, len(columns), step)))


def _joined(found: Iterable[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    distances, middles = (np.concatenate(part) for part in zip(*found, strict=True))
    return distances, middles


def _of_columns(
    read: Callable[[np.ndarray], Array], columns: np.ndarray, count: int, prototype: Array
) -> tuple[np.ndarray, np.ndarray]:
    """Medians of columns, read in blocks."""
    size = max(count, _QUANTILES * (_QUANTILES - 1) // 2)
    step = max(1, (_CHUNK if on_host(prototype) else _DEVICE_CHUNK) // size)
    blocks = np.array_split(columns, -(-len(columns) // step))
    several = None if count * len(columns) > _FEW else 1
    return _joined(parallel_map(lambda block: _medians_of(sorted_columns(read(block))), blocks, several))


def medians_of_sorted(ordered: Array) -> tuple[np.ndarray, np.ndarray]:
    """Median distance and median of sorted columns (b, n) of a table; NaN within a constant column."""
    step = max(1, 2 * (_CHUNK if on_host(ordered) else _DEVICE_CHUNK) // _QUANTILES**2)
    return _joined(_medians_of(ordered[some, :]) for some in slices(0, ordered.shape[0], step))


def _medians_of(ordered: Array) -> tuple[np.ndarray, np.ndarray]:
    xp, n = namespace(ordered), ordered.shape[1]
    m = min(n, _QUANTILES)
    middle = to_numpy(midpoint(ordered[:, (n - 1) // 2], ordered[:, n // 2]))
    if m == 1:
        return np.full(len(middle), np.nan), middle
    chosen = take(ordered, ((np.arange(m) + 0.5) * n / m).astype(np.intp), 1)
    medians = to_numpy(midpoint(*_middle_gaps(chosen))).astype(float)
    tied = np.flatnonzero(medians == 0)
    if len(tied):
        medians[tied] = to_numpy(_positive_median(_gaps(take(chosen, tied, 0))))
    tied = tied[medians[tied] == 0]
    if len(tied):
        # All order statistics are equal: use the values that differ from the median, if there are any.
        off = xp.abs(take(ordered, tied, 0) - asarray_like(middle[tied, None], ordered))
        medians[tied] = to_numpy(_positive_median(off))
        medians[tied[medians[tied] == 0]] = np.nan
    return medians, middle


def _middle_gaps(ordered: Array) -> tuple[Array, Array]:
    """Row by row, the two middle ones of the differences of all pairs of ordered values."""
    count = ordered.shape[1] * (ordered.shape[1] - 1) // 2
    low, high = (count - 1) // 2, count // 2
    gaps = _gaps(ordered, high)
    if isinstance(gaps, np.ndarray):
        # For two places NumPy does not partition with AVX-512, which takes three times as long on some processors.
        gaps.partition((low, high), axis=1)
    else:
        gaps = namespace(gaps).sort(gaps, axis=1)
    return gaps[:, low], gaps[:, high]


def _gaps(ordered: Array, rank: int | None = None) -> Array:
    """Row by row, the differences of all pairs of ordered values, or those that the ranks up to `rank` may have."""
    ones, others = _pairs(int(ordered.shape[1]), rank)
    gaps = take(ordered, others, 1)
    gaps -= take(ordered, ones, 1)
    return gaps


@lru_cache(maxsize=8)
def _pairs(count: int, rank: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of places. The nearest come first: their differences are nearly in order, which a partition makes use of.

    Within a pair that is `lag` places apart lie lag (lag + 1) / 2 - 1 others, whose differences are no larger.
    """
    lags = [lag for lag in range(1, count) if rank is None or lag * (lag + 1) // 2 - 1 <= rank]
    ones = np.concatenate([np.arange(count - lag) for lag in lags])
    return ones, ones + np.repeat(lags, [count - lag for lag in lags])


def _positive_median(rows: Array) -> Array:
    """Row by row, the median of the values above 0; 0 where there are none."""
    xp = namespace(rows)
    rows = xp.sort(rows, axis=1)
    zeros = xp.sum(xp.astype(rows == 0, xp.int64), axis=1, keepdims=True)
    count = rows.shape[1] - zeros
    last = rows.shape[1] - 1
    low, high = (xp.clip(zeros + rank // 2, 0, last) for rank in (count - 1, count))
    return midpoint(xp.take_along_axis(rows, low, axis=1), xp.take_along_axis(rows, high, axis=1))[:, 0]


def joint_median(table: Table, columns: np.ndarray, scale: np.ndarray, most: int, rng: np.random.Generator) -> float:
    """Median Euclidean distance between rows over those columns, each divided by its scale; `most` rows at most."""
    n = table.n
    rows = np.arange(n) if n <= most else rng.choice(n, most, replace=False)
    points = table.part(run_of(columns), rows)
    xp = namespace(points)
    points = xp.astype(points, accumulator_dtype(points)) / asarray_like(scale, points)
    ordered = xp.sort(points, axis=0)
    points -= midpoint(ordered[(len(rows) - 1) // 2, :], ordered[len(rows) // 2, :])
    size = float(xp.max(xp.abs(points)))
    if size == 0 or len(rows) < 2:
        return 1.0
    points /= size
    gram = to_numpy(points @ xp.matrix_transpose(points)).astype(float, copy=False)
    norms = np.diagonal(gram)
    low, high = np.triu_indices(len(rows), 1)
    squares = gram[low, high]
    squares *= -2.0
    total = norms[low]
    total += norms[high]
    squares += total
    # Rounding leaves a nonzero distance between equal rows.
    total *= 1e-13 if dtype_of(points) == np.float64 else 1e-6
    squares[squares <= total] = 0.0
    distances = np.sqrt(squares, out=squares)
    median = float(np.median(distances, overwrite_input=True)) or float(_positive_median(distances[None])[0])
    return size * median if median > 0 else 1.0
