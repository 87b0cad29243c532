"""Parts of tables for the workers of a cluster: values in memory are sent, everything else a worker reads itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from kernsift.data.stored import StoredTable
from kernsift.data.tables import Table, stack
from kernsift.exceptions import InputError
from kernsift.execution.arrays import Array
from kernsift.execution.parallel import parallel_map, worker_threads


def to_send(table: Table, features: np.ndarray) -> Table:
    """These features of a table and nothing else: with their values, unless a worker can read these."""
    if table.readable:
        return table.select(features)
    if not isinstance(table.prototype, np.ndarray):
        raise InputError(
            "client: NumPy arrays, data frames and files can be sent to workers, got an array of "
            f"{type(table.prototype).__module__.partition('.')[0]}; convert it, or leave out the client."
        )
    return table.loaded(features)


def with_sources(table: Table, other: Table) -> Table:
    """The table with the files of another table of the same rows, whose footers may have been read already."""
    pairs = zip(table.tables, other.tables, strict=True)
    return stack(
        [
            one.changed(source=its.source) if isinstance(one, StoredTable) and isinstance(its, StoredTable) else one
            for one, its in pairs
        ]
    )


def shown_rows(table: Table) -> list[dict[int, np.ndarray]]:
    """The rows for pictures that were kept of each of the stacked tables when they were read."""
    return [one.shown.kept if isinstance(one, StoredTable) else {} for one in table.tables]


def keep_shown(table: Table, kept: Sequence[Mapping[int, np.ndarray]]) -> None:
    """Keep the rows for pictures that a worker read."""
    for one, rows in zip(table.tables, kept, strict=True):
        if isinstance(one, StoredTable):
            one.shown.put(rows)


class RowChunk(NamedTuple):
    """Some rows of one of several stacked tables, and the number of the first among the rows of all."""

    place: int
    rows: slice
    start: int


def row_chunks(table: Table, columns: np.ndarray, count: int) -> Iterator[RowChunk]:
    """About `count` chunks of rows; they end where the chunks of the files do, so that none of these is read twice."""
    start = 0
    for place, one in enumerate(table.tables):
        for first, last in one.row_chunks(columns, -(-table.n * len(columns) // count)):
            yield RowChunk(place, slice(first, last), start + first)
        start += one.n


def read_part(table: Table, columns: np.ndarray, rows: np.ndarray | None) -> Array:
    """`table.part(columns, rows)` for sorted rows, which the workers in use read where they can."""
    threads = worker_threads()
    if not threads or not table.readable:
        return table.part(columns if table.memory is not None else run_of(columns), rows)
    asked = np.arange(table.n) if rows is None else rows
    chunks = list(row_chunks(table, columns, 2 * threads))
    parts = np.split(asked, np.searchsorted(asked, [chunk.start for chunk in chunks[1:]]))
    items = [(chunk.place, part - chunk.start + chunk.rows.start) for chunk, part in zip(chunks, parts, strict=True)]
    read = partial(_read, table.tables, columns)
    return np.concatenate(list(parallel_map(read, [item for item in items if len(item[1])])))


def _read(tables: Sequence[Table], columns: np.ndarray, item: tuple[int, np.ndarray]) -> np.ndarray:
    place, rows = item
    return np.asarray(tables[place].part(columns, rows))


def run_of(columns: np.ndarray) -> slice | np.ndarray:
    """Contiguous columns as a slice, which is a view and is copied five times as fast as an index array."""
    if len(columns) and (np.diff(columns) == 1).all():
        return slice(int(columns[0]), int(columns[-1]) + 1)
    return columns
