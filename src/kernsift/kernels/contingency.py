"""Contingency tables of the points of features and the cells of a response, in one pass over the rows.

Counts are additive, so that the result is the same to the last bit in memory, from chunks of a file and on workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.sparse import SparseTable
from kernsift.data.table_parts import row_chunks, run_of
from kernsift.data.tables import Piece, Table
from kernsift.execution import threads
from kernsift.execution.arrays import Array, accumulator_dtype, device_room, namespace, on_host, take
from kernsift.execution.codes import bincount_rows, code_dtype
from kernsift.execution.fused import host_counts, is_large
from kernsift.execution.parallel import parallel_map, worker_threads
from kernsift.execution.progress import report_progress
from kernsift.kernels.fitted import columns_of
from kernsift.kernels.quantisation import Grid
from kernsift.kernels.sparse_columns import sparse_codes

# Values whose codes are computed at a time: 2^21 codes are 16 MB. On a device each needs this many free bytes.
_NUMBERS, _DEVICE_NUMBERS, _DEVICE_BYTES = 2**21, 2**29, 2**7
# Columns of a piece of a table in memory: they fill whole cache lines, and leave enough rows for long passes. Pieces of
# tables that are not large are copied, with a code of 8 bytes for every value, so that these are smaller.
_COLUMNS, _FEWER = 32, 8


class Tabulation(NamedTuple):
    """The counts of a block of features."""

    counts: Array  # (b, G) number of rows at each point
    joint: Array | None  # (b, G, cells) number of rows at each point and cell; None without cells
    # (b, rows) the points of the requested rows, in the smallest type that holds them; `SparseCodes` for sparse
    # columns; None for a group.
    codes: Array | None

    def part(self, features: slice | np.ndarray) -> Tabulation:
        """Some of the features."""
        joint, codes = (None if part is None else part[features, ...] for part in (self.joint, self.codes))
        return Tabulation(self.counts[features, :], joint, codes)

    @classmethod
    def joined(cls, parts: Sequence[Tabulation]) -> Tabulation:
        """The counts of features, from those of some of them at a time, with different numbers of points."""
        size = max(part.counts.shape[1] for part in parts)

        def padded(array: Array) -> np.ndarray:
            more = [(0, 0), (0, size - array.shape[1]), *[(0, 0)] * (array.ndim - 2)]
            return np.pad(array, more)

        counts, joint = (
            None if each[0] is None else np.concatenate([padded(part) for part in each])
            for each in ([part.counts for part in parts], [part.joint for part in parts])
        )
        codes = [part.codes for part in parts if part.codes is not None]
        return cls(counts, joint, np.concatenate(codes) if codes else None)


def tabulate(
    table: Table,
    features: np.ndarray,
    grid: Grid,
    cells: Array | None = None,
    count: int = 1,
    rows: np.ndarray | None = None,
    large: bool | None = None,
) -> Tabulation:
    """Count the rows of a block of features, by the `cells` (n,) of a response with `count` of them.

    `rows` are those whose codes are kept, in increasing order; None for all. `large`: whether the table that these
    features are part of is large.
    """
    xp, n = namespace(grid.points), table.n
    if grid.edges is None:
        return Tabulation(xp.ones((1, n), dtype=accumulator_dtype(grid.points), device=grid.points.device), None, None)
    columns = columns_of(table.offsets, features)
    if isinstance(table, SparseTable):
        counts, stored = sparse_codes(table.stored(columns), grid.edges, cells, 1 if cells is None else count, rows)
        # Without cells the caller works row by row.
        return Tabulation(counts.sum(axis=2), *((None, np.asarray(stored)) if cells is None else (counts, stored)))
    large = is_large(n, int(table.offsets[-1])) if large is None else large
    counting = _Counting(grid, cells, 1 if cells is None else count, rows, large)
    if grid.known is not None:
        joint = bincount_rows(grid.known, grid.points.shape[0], cells, counting.count)
        codes = grid.known if rows is None else grid.known[:, rows]
    elif isinstance(grid.points, np.ndarray):
        joint, codes = _in_pieces(counting, table, columns, n if rows is None else len(rows))
    else:
        here = on_host(grid.points)
        numbers = _NUMBERS if here else min(_DEVICE_NUMBERS, device_room(grid.points) // _DEVICE_BYTES)
        runs = table.row_chunks(columns, numbers)
        whole, some = slice(0, len(columns)), run_of(columns)
        found = [counting(Piece(slice(*run), whole, table.part(some, slice(*run)))) for run in runs]
        joint = found[0].joint if len(found) == 1 else sum(one.joint for one in found)
        codes = found[0].codes if len(found) == 1 else xp.concat([one.codes for one in found], axis=1)
    joint = xp.astype(joint, accumulator_dtype(grid.points))
    # A product is faster than a sum over a short axis.
    counts = joint @ xp.ones(joint.shape[2], dtype=joint.dtype, device=joint.device)
    return Tabulation(counts, None if cells is None else joint, codes)


class _Counted(NamedTuple):
    """The counts of a piece: its columns, joint counts (b, G, cells), and codes of the requested rows."""

    columns: slice
    joint: Array
    first: int
    codes: Array


@dataclass(frozen=True)
class _Counting:
    """Counts the rows of pieces of a table, which may be `large`."""

    grid: Grid
    cells: Array | None
    count: int
    rows: np.ndarray | None
    large: bool

    def __call__(self, piece: Piece) -> _Counted:
        start, stop = piece.rows.start, piece.rows.stop
        grid = self.grid.part(piece.columns)
        xp, points = namespace(grid.points), grid.points.shape[0]
        cells = None if self.cells is None else self.cells[start:stop]
        first, rows = start, np.arange(stop - start)
        if self.rows is not None:
            first, last = np.searchsorted(self.rows, [start, stop])
            rows = self.rows[first:last] - start
        if not grid.missing:
            counted = host_counts(piece.values, grid.edges, cells, self.count, rows, self.large)
            if counted is not None:
                return _Counted(piece.columns, counted[0], int(first), counted[1])
        codes = grid.codes(piece.values)
        joint = bincount_rows(codes, points, cells, self.count)
        if self.rows is not None:
            codes = take(codes, rows, 1)
        return _Counted(piece.columns, joint, int(first), xp.astype(codes, code_dtype(xp, points)))


def _in_pieces(counting: _Counting, table: Table, columns: np.ndarray, kept: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts and codes of a table that is read in pieces, in the order of a file."""
    points = counting.grid.points.shape[0]
    joint = np.zeros((len(columns), points, counting.count), dtype=np.int64)
    codes = np.empty((len(columns), kept), dtype=code_dtype(np, points))
    done, total = 0, table.n * len(columns)
    if table.memory is None:
        counted = threads.parallel_map(counting, _pieces(table, columns, _COLUMNS if counting.large else _FEWER))
    elif worker_threads() and table.readable:
        counted = _on_workers(counting, table, columns)
    else:
        # This thread reads the pieces one after the other while others count those that were read.
        counted = threads.parallel_map(counting, table.pieces(columns, 2 * _NUMBERS), most=2)
    for found in counted:
        joint[found.columns] += found.joint
        codes[found.columns, found.first : found.first + found.codes.shape[1]] = found.codes
        if table.memory is not None:
            done += int(found.joint.sum())
            report_progress("counting cells", done, total)
    return joint, codes


def _pieces(table: Table, columns: np.ndarray, width: int) -> Iterator[Piece]:
    """All rows of some columns of a table in memory, `width` columns at a time."""
    for first in range(0, len(columns), width):
        own = columns[first : first + width]
        for start, stop in table.row_chunks(own, _NUMBERS * width // _COLUMNS):
            rows = slice(start, stop)
            yield Piece(rows, slice(first, first + len(own)), table.part(run_of(own), rows))


def _on_workers(counting: _Counting, table: Table, columns: np.ndarray) -> Iterator[_Counted]:
    """The same from the workers in use, which read and count chunks of rows."""
    items: list[_Chunk] = []
    for chunk in row_chunks(table, columns, 2 * worker_threads()):
        start, stop = chunk.start, chunk.start + chunk.rows.stop - chunk.rows.start
        first, last = (start, stop) if counting.rows is None else np.searchsorted(counting.rows, [start, stop])
        rows = None if counting.rows is None else counting.rows[first:last] - start
        cells = None if counting.cells is None else counting.cells[start:stop]
        if cells is not None:
            cells = cells.astype(np.min_scalar_type(counting.count))
        items.append(_Chunk(chunk.place, chunk.rows, int(first), cells, rows))
    tables: Sequence[Any] = table.tables
    counts = partial(_count_chunk, tables, columns, replace(counting, cells=None, rows=None))
    for item, (found, shown) in zip(items, parallel_map(counts, items), strict=True):
        tables[item.place].shown.put(shown, item.rows.start)
        yield found


class _Chunk(NamedTuple):
    """Rows of one of several tables, their cells, and which of their codes are kept, from the `first` one on."""

    place: int
    rows: slice
    first: int
    cells: np.ndarray | None
    kept: np.ndarray | None


def _count_chunk(
    tables: Sequence[Any], columns: np.ndarray, counting: _Counting, chunk: _Chunk
) -> tuple[_Counted, dict[int, np.ndarray]]:
    """The counts of a chunk, and the rows for pictures."""
    table = tables[chunk.place].between(chunk.rows)
    kept = table.n if chunk.kept is None else len(chunk.kept)
    joint, codes = _in_pieces(replace(counting, cells=chunk.cells, rows=chunk.kept), table, columns, kept)
    counted = _Counted(slice(0, len(columns)), joint.astype(np.min_scalar_type(table.n)), chunk.first, codes)
    return counted, table.shown.kept
