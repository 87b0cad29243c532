"""Tables that stay outside of memory, and are read in pieces.

A `StoredTable` represents a file as `Table` does an array, with the same methods. Reading uses a bounded amount of
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np

from kernsift.data import tables
from kernsift.data.columns.columns import Columns
from kernsift.data.columns.encoding import Encoding
from kernsift.data.columns.layout import Layout
from kernsift.data.formats import Source
from kernsift.data.formats.source import SCRATCH, Cut, count_of
from kernsift.data.missing import check_cells
from kernsift.data.scan import scan
from kernsift.data.tables import Table, flags_or_none, rows_to_show
from kernsift.exceptions import HiddenMissingValues, InputError
from kernsift.execution.memory import reading_bytes, values_bytes
from kernsift.execution.threads import parallel_map

Answer = TypeVar("Answer")

# Pieces in memory at the same time while rows are counted: one is read, the others are processed.
_IN_FLIGHT = 6


class ShownRows:
    """The rows that pictures show, which are kept when all rows are read, so that the file is not read again for them.

    A pickle has none of them: a worker keeps those that it reads, and the caller collects them.
    """

    def __init__(self, rows: np.ndarray) -> None:
        self.rows, self.kept = rows, dict[int, np.ndarray]()

    @classmethod
    def of(cls, n: int, columns: int, memory: int) -> ShownRows:
        """The rows to show; none if the table has too many columns for its memory limit."""
        rows = rows_to_show(n, columns)
        return cls(rows if 8 * len(rows) * columns <= memory // 4 else rows[:0])

    def between(self, rows: slice) -> ShownRows:
        """Those of a run of rows."""
        first, last = np.searchsorted(self.rows, [rows.start, rows.stop])
        return ShownRows(self.rows[first:last] - rows.start)

    def collect(self, own: np.ndarray, pieces: Iterator[tables.Piece]) -> Iterator[tables.Piece]:
        """Pass on the pieces of columns of the source, and keep their rows."""
        kept: np.ndarray | None = None
        for piece in pieces:
            first, last = np.searchsorted(self.rows, [piece.rows.start, piece.rows.stop])
            kept = np.empty((len(own), len(self.rows)), dtype=piece.values.dtype) if kept is None else kept
            kept[piece.columns, first:last] = piece.values[self.rows[first:last] - piece.rows.start].T
            yield piece
        if kept is not None:
            self.keep(own, kept)

    def keep(self, own: np.ndarray, kept: np.ndarray) -> None:
        """Keep the shown rows (columns, rows) of columns of the source."""
        self.kept.update(zip(own.tolist(), kept, strict=True))

    def put(self, kept: Mapping[int, np.ndarray], start: int = 0) -> None:
        """Keep what was kept of a run of rows that begins at `start`; the other runs of its columns follow."""
        first = int(np.searchsorted(self.rows, start))
        for column, values in kept.items():
            whole = self.kept.setdefault(column, np.empty(len(self.rows), dtype=values.dtype))
            whole[first : first + len(values)] = values

    def get(self, own: np.ndarray, rows: slice | np.ndarray) -> np.ndarray | None:
        """(rows, columns) values, where they were kept."""
        columns = own.tolist()
        if isinstance(rows, slice) or not len(self.rows) or not self.kept.keys() >= set(columns):
            return None
        return np.column_stack([self.kept[i] for i in columns]) if np.array_equal(rows, self.rows) else None

    def __reduce__(self) -> tuple[Any, ...]:
        return ShownRows, (self.rows,)


class StoredTable(Table):
    """Rows of d features outside of memory, at most `memory` bytes of which are read at a time.

    `low`, `high` and `gaps` are the smallest and the largest value of each column of the source, between which lies
    whatever is read, and whether values are missing in it.
    """

    source: Source
    layout: Layout
    encoding: Encoding
    low: np.ndarray
    high: np.ndarray
    gaps: np.ndarray
    shown: ShownRows
    _memory: int

    def __init__(
        self,
        source: Source,
        layout: Layout,
        encoding: Encoding,
        low: np.ndarray,
        high: np.ndarray,
        memory: int,
        gaps: np.ndarray,
        shown: ShownRows | None = None,
    ) -> None:
        shown, incomplete = shown or ShownRows.of(source.n, len(low), memory), flags_or_none(gaps[layout.columns])
        self._set(layout, source=source, layout=layout, encoding=encoding, low=low, high=high, gaps=gaps)
        self.__dict__.update(_memory=memory, incomplete=incomplete, shown=shown)

    def __repr__(self) -> str:
        return f"StoredTable of {self.n} rows and {self.d} features, from {self.source.argument}"

    def changed(self, **given: Any) -> StoredTable:
        """The same table with some attributes replaced."""
        names = ("source", "layout", "encoding", "low", "high", "memory", "gaps", "shown")
        return StoredTable(**({name: getattr(self, name) for name in names} | given))

    @property
    def memory(self) -> int:
        return self._memory

    @property
    def n(self) -> int:
        return self.source.n

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values."""
        return self.encoding.dtype

    @property
    def prototype(self) -> np.ndarray:
        return np.empty((0, int(self.offsets[-1])), dtype=self.dtype)

    def reading(self) -> AbstractContextManager[Any]:
        return self.source.reading()

    @property
    def by_column(self) -> bool:
        return self.source.by_column

    @property
    def readable(self) -> bool:
        return not self.source.in_memory

    @property
    def span(self) -> tuple[np.ndarray, np.ndarray]:
        # An indicator varies where its column does: every level occurs somewhere.
        return self.low[self.layout.columns], self.high[self.layout.columns]

    @property
    def values(self) -> np.ndarray:
        """All values at once, where they fit."""
        return self.part(slice(None))

    def part(
        self, columns: slice | np.ndarray, rows: slice | np.ndarray | None = None, space: np.ndarray | None = None
    ) -> np.ndarray:
        """Values (rows, columns) of some value columns, in the order asked for; in `space` if that is given."""
        wanted = np.arange(int(self.offsets[-1]))[columns]
        places = slice(0, self.n) if rows is None else rows
        if isinstance(places, slice):
            places = slice(*places.indices(self.n)[:2])
        self._check_room(count_of(places) * len(wanted))
        own, codes = self.layout.columns[wanted], self.layout.codes[wanted]
        hot = np.flatnonzero(codes >= 0)
        if not hot.size:
            return self._read(own, places, space)
        # A categorical column of a group has one value column per level, but is read once.
        read, inverse = np.unique(own, return_inverse=True)
        out = np.ascontiguousarray(self._read(read, places)[:, inverse])
        out[:, hot] = out[:, hot] == codes[hot]
        return out

    def _check_room(self, numbers: int) -> None:
        size, room = numbers * self.dtype.itemsize, values_bytes(self.memory)
        if size > room:
            raise InputError(
                f"memory: {size / 1e6:,.0f} MB of {self.source.argument} are needed at a time, more than half of the "
                f"{self.memory / 1e6:,.0f} MB that may be used; allow more, or use estimator='complete' without "
                "groups, which reads rows piece by piece."
            )

    def _read(self, own: np.ndarray, places: slice | np.ndarray, space: np.ndarray | None = None) -> np.ndarray:
        """Some columns of the source."""
        known = self.shown.get(own, places)
        if known is not None:
            return known
        out = np.empty((count_of(places), len(own)), dtype=self.dtype) if space is None else space
        sorting: np.ndarray | None = None
        if not isinstance(places, slice) and np.any(places[1:] < places[:-1]):
            sorting = np.argsort(places, kind="stable")
            places = places[sorting]

        def put(rows: slice, columns: slice, values: np.ndarray) -> None:
            out[rows if sorting is None else sorting[rows], columns] = values

        for _ in self._map_pieces(put, own, places, 4, self.source.at_once):
            pass
        if isinstance(places, slice) and len(out) == self.n:
            self.shown.keep(own, out[self.shown.rows].T)
        return out

    def pieces(self, columns: np.ndarray, numbers: int) -> Iterator[tables.Piece]:
        """All rows of some value columns as the file has them, so that nothing of it is read twice."""
        if (self.layout.codes[columns] >= 0).any():
            yield from super().pieces(columns, numbers)
            return
        own = self.layout.columns[columns]
        yield from self.shown.collect(own, self._map_pieces(tables.Piece, own, slice(0, self.n), _IN_FLIGHT))

    def select(self, features: np.ndarray) -> StoredTable:
        """The features at these positions, in this order."""
        return self.changed(layout=self.layout.select(np.asarray(features, dtype=np.intp)))

    def between(self, rows: slice) -> StoredTable:
        """A run of rows."""
        return self.changed(source=self.source.between(rows.start, rows.stop), shown=self.shown.between(rows))

    def loaded(self, features: slice | np.ndarray, space: np.ndarray | None = None) -> Table:
        """The features at these positions, in memory; in `space` (n, columns) if that is given."""
        some = self.select(np.arange(self.d)[features])
        return some.with_values(some.part(slice(None), None, space))

    def row_chunks(self, columns: np.ndarray, numbers: int) -> list[tuple[int, int]]:
        """Runs of rows, each of at most `numbers` values of these value columns; they end where chunks of the file end.

        A run is never empty, so one row may hold more.
        """
        most = max(1, numbers // max(1, len(columns)))
        edges = self.source.edges
        runs: list[tuple[int, int]] = []
        start = 0
        for stop, following in zip(edges[1:].tolist(), [*edges[2:].tolist(), None], strict=True):
            if stop > start and (following is None or following - start > most):
                # A chunk of the file that is too large is cut into equal runs.
                cuts = np.linspace(start, stop, -(-(stop - start) // most) + 1).astype(np.int64)
                runs += zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
                start = stop
        return runs

    def _map_pieces(
        self,
        use: Callable[[slice, slice, np.ndarray], Answer],
        own: np.ndarray,
        rows: slice | np.ndarray,
        pieces: int,
        at_once: int = 1,
    ) -> Iterator[Answer]:
        """`use(rows, columns, values)` of each piece of a run of rows, or of sorted ones: where it belongs among those.

        At most `pieces` are in memory, and `at_once` of these are read and used in parallel threads.
        """
        if not count_of(rows):
            return
        columns = own.tolist()

        def one(cut: Cut) -> Answer:
            return use(cut.rows, cut.columns, self._encoded(self.source.cells_of(columns, cut), own[cut.columns]))

        room = reading_bytes(self.memory)
        # Pieces of more than SCRATCH bytes are not read any faster.
        cuts = self.source.cuts(columns, rows, min(room // pieces, SCRATCH), room)
        with self.source.reading():
            yield from parallel_map(one, cuts, most=at_once)

    def _encoded(self, cells: Columns, own: np.ndarray) -> np.ndarray:
        """The numbers of cells of the columns `own`, checked against the bounds of the scan."""
        values = self.encoding.values(cells, own)
        low, high = values.min(axis=0), values.max(axis=0)
        some = np.flatnonzero(self.gaps[own])
        if some.size:
            low[some], high[some] = np.fmin.reduce(values[:, some], axis=0), np.fmax.reduce(values[:, some], axis=0)
            empty = some[np.isnan(low[some])]
            low[empty], high[empty] = self.low[own[empty]], self.high[own[empty]]
        # Written so that NaN, which the statistics of files do not count, fails it.
        if not (np.all(low >= self.low[own]) and np.all(high <= self.high[own])):
            self._report_fault()
        return values

    def _report_fault(self) -> None:
        """Read everything to report what is wrong; if nothing is, the data changed after the first pass."""
        found = scan(self.source, self.memory, trust=False)
        hidden = np.where(self.gaps, 0, found.gaps)
        try:
            check_cells(self.source.argument, self.source.names, found.infinite, hidden, found.keep, "error")
        except InputError as error:
            raise HiddenMissingValues(str(error)) from None
        raise InputError(
            f"{self.source.argument}: the data changed while it was being read; start again when it is complete."
        )


def held_in_memory(table: Table, argument: str) -> Table:
    """The table in memory, because `argument` needs all rows of a column at once."""
    if table.memory is None:
        return table
    needed = 8 * table.n * int(table.offsets[-1])
    if needed > table.memory:
        raise InputError(
            f"{argument}: holds the table in memory, which takes {needed / 1e6:,.0f} MB, but {table.memory / 1e6:,.0f} "
            "MB may be used; allow more with memory=, or pass fewer columns."
        )
    return table.loaded(slice(None))
