"""How part of a table travels to another machine: its values, or what says where to read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from kernsift.data.stored import StoredTable
from kernsift.data.tables import Table, stack
from kernsift.exceptions import InputError
from kernsift.execution.dask_workers import current_workers, memory_here, parallel_map, shared_memory

Rows = slice | np.ndarray


class TablePart(Protocol):
    """A table without its values, which travel beside it."""

    def unpack(self, values: list[Any]) -> Table:
        """The table with its values."""


def must_be_sent(table: Table) -> bool:
    """Whether the values are sent; else whoever works with them reads them."""
    return any(not isinstance(one, StoredTable) or one.source.must_be_sent for one in _tables_of(table))


def _tables_of(table: Table) -> tuple[Table, ...]:
    return getattr(table, "tables", (table,))


def pack(table: Table, features: np.ndarray, rows: Rows | None = None) -> tuple[TablePart, list[Any]]:
    """Some features and rows of a table, all rows by default, and the values that travel beside them.

    Rows are a run, or sorted.
    """
    if not isinstance(table.prototype, np.ndarray):
        raise InputError(
            "client: NumPy arrays, data frames and files can be sent to workers, got an array of "
            f"{type(table.prototype).__module__.partition('.')[0]}; convert it, or leave out the client."
        )
    if table.memory is None:
        return _in_memory(table, features, rows)
    packed = [_stored(one.select(features), own) for one, own in _shared_out(table, rows)]
    values = [value for _, own in packed for value in own]
    return _Stack([parcel for parcel, _ in packed], [len(own) for _, own in packed]), values


def _shared_out(table: Table, rows: Rows | None) -> Iterator[tuple[Table, Rows | None]]:
    """The tables that have the rows, and which rows of each these are."""
    start = 0
    for one in _tables_of(table):
        if rows is None:
            yield one, None
        elif isinstance(rows, slice):
            low, high = max(rows.start - start, 0), min(rows.stop - start, one.n)
            if low < high:
                yield one, slice(low, high)
        else:
            first, last = np.searchsorted(rows, [start, start + one.n])
            if first < last:
                yield one, rows[first:last] - start
        start += one.n


def _in_memory(table: Table, features: np.ndarray, rows: Rows | None) -> tuple[TablePart, list[Any]]:
    widths = np.diff(table.offsets)
    columns = np.concatenate([np.arange(table.offsets[j], table.offsets[j + 1]) for j in features])
    names = tuple(table.names[j] for j in features)
    shape = Table(
        names,
        None,
        np.concatenate([[0], np.cumsum(widths[features])]),
        table.categorical[features],
        {name: table.levels[name] for name in names if name in table.levels},
    )
    return _InMemory(shape), [np.ascontiguousarray(table.part(run_of(columns), rows))]


def to_be_read(table: Table) -> Table:
    """A table that all workers know: each reads what it needs of it, within its share of the memory."""
    assert isinstance(table, StoredTable)
    return table.changed(memory=shared_memory(table.memory))


def read_here(table: Table, features: np.ndarray) -> Table:
    """Some features of such a table, on a worker."""
    assert isinstance(table, StoredTable)
    return table.select(features).changed(memory=memory_here(table.memory))


def run_of(columns: np.ndarray) -> slice | np.ndarray:
    """Neighbouring columns as a slice: slices are views, and copied five times as fast as what is gathered."""
    first, last = int(columns[0]), int(columns[-1])
    return slice(first, last + 1) if last - first + 1 == len(columns) else columns


def _stored(table: Table, rows: Rows | None) -> tuple[TablePart, list[Any]]:
    assert isinstance(table, StoredTable)
    table = table.changed(memory=shared_memory(table.memory))
    if isinstance(rows, slice):
        table, rows = table.between(rows), None
    if not table.source.must_be_sent:
        return _OnDisk(table, rows), []
    table, stub, values = table.handed(rows)
    return _Handed(table, stub), values


@dataclass(frozen=True)
class _InMemory:
    """A table that was in memory."""

    table: Table

    def unpack(self, values: list[Any]) -> Table:
        return replace(self.table, values=values[0])


@dataclass(frozen=True)
class _OnDisk:
    """A table that is read where it is worked on."""

    table: StoredTable
    rows: np.ndarray | None

    def unpack(self, values: list[Any]) -> Table:
        table = self.table.changed(memory=memory_here(self.table.memory))
        return table if self.rows is None else table.take(self.rows)


@dataclass(frozen=True)
class _Handed:
    """A table whose source is made from values that arrive."""

    table: StoredTable
    stub: Any

    def unpack(self, values: list[Any]) -> Table:
        return self.table.changed(source=self.stub.unpack(values))


@dataclass(frozen=True)
class _Stack:
    """Tables one below the other."""

    parcels: list[TablePart]
    counts: list[int]

    def unpack(self, values: list[Any]) -> Table:
        return stack(unpack_all(self.parcels, self.counts, values))


def unpack_all(parcels: Sequence[TablePart], counts: Sequence[int], values: list[Any]) -> list[Table]:
    """The tables of several parcels, whose values came one after the other, so many of each."""
    ends = np.cumsum(counts).tolist()
    return [parcel.unpack(values[end - count : end]) for parcel, count, end in zip(parcels, counts, ends, strict=True)]


# Rows ----------------------------------------------------------------------------------------------------------------


def part_of(table: Table, columns: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    """`table.part(columns, rows)`, for sorted rows; of a table outside of memory the workers in use read them."""
    workers = current_workers()
    if workers is None or table.memory is None or (np.diff(table.offsets) > 1).any():
        return np.asarray(table.part(columns, rows))
    asked = np.arange(table.n) if rows is None else rows
    # Where the runs of rows end in the file, so that no chunk is read twice.
    runs = table.row_chunks(columns, -(-table.n * len(columns) // (2 * workers.threads())))
    cuts = np.searchsorted(asked, [start for start, _ in runs[1:]])
    own = [part for part in np.split(asked, cuts) if len(part)]
    return np.concatenate(list(parallel_map(_values, [_Some(table, columns, part) for part in own])))


@dataclass(frozen=True)
class _Some:
    """Some rows of some features, each of one column."""

    table: Table
    features: np.ndarray
    rows: np.ndarray

    def pack(self) -> tuple[TablePart, list[Any]]:
        return pack(self.table, self.features, self.rows)


def _values(table: Table) -> np.ndarray:
    return np.asarray(table.part(slice(None)))
