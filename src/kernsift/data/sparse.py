"""Sparse tables: zeros that are not stored are one value with a known count.

A `SparseTable` represents a sparse matrix as `Table` does an array. Time and memory depend on the number of stored
values. A matrix that is stored by rows, in memory or in a file, is rearranged some columns at a time.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.columns.layout import Layout
from kernsift.data.frames import LARGEST_DENSE
from kernsift.data.tables import Table
from kernsift.exceptions import InputError

# Bytes of rearranged columns that are held at a time, twice.
_CHUNK = 2**27
# Columns that are read at a time.
_BLOCK = 256
# Stored values that are summarised at a time.
_PIECE = 2**20
# Numbers up to this and down to its reciprocal can be squared in any type.
_ORDINARY = 1e15


class StoredColumns(NamedTuple):
    """The `values` (m,) other than 0 of some columns of n rows, and their `rows`.

    Column j has the values from `offsets[j]` to `offsets[j + 1]`, with its rows in any order.
    """

    values: np.ndarray
    rows: np.ndarray
    offsets: np.ndarray
    n: int

    @property
    def counts(self) -> np.ndarray:
        """(b,) values of each column."""
        return np.diff(self.offsets)

    def filter(self, keep: np.ndarray, rows: np.ndarray, n: int) -> StoredColumns:
        """The values marked in `keep`, whose `rows` now count among n."""
        if keep.all():
            return StoredColumns(self.values, rows, self.offsets, n)
        before = np.concatenate([[0], np.cumsum(keep)])
        return StoredColumns(self.values[keep], rows[keep], before[self.offsets], n)

    def within(self, rows: np.ndarray | None) -> StoredColumns:
        """The rows at these different positions; None for all."""
        if rows is None:
            return self
        found = places_among(rows, self.n)[self.rows]
        return self.filter(found >= 0, found, len(rows))


def places_among(rows: np.ndarray, n: int) -> np.ndarray:
    """(n,) the place of each of n rows among some, -1 for those that are not there."""
    places = np.full(n, -1, dtype=np.int32)
    places[rows] = np.arange(len(rows), dtype=np.int32)
    return places


class SparseStore(ABC):
    """A sparse matrix whose columns can be read one by one."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    on_disk = False

    @abstractmethod
    def columns(self, columns: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Values and rows of each of these columns."""

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds (p,) of the stored values of each column, NaN where one is NaN.

        Where the bounds of the whole matrix suffice, every column has these.
        """
        low, high, least, columns = 0.0, 0.0, np.inf, self.shape[1]
        for _, values in self._pieces():
            # NaN passes through.
            low, high = float(np.minimum(low, values.min())), float(np.maximum(high, values.max()))
            if values.dtype.kind == "f":
                least = min(least, float(np.min(np.abs(values), where=values != 0, initial=np.inf)))
        if max(-low, high) < _ORDINARY and least > 1 / _ORDINARY:
            return np.full(columns, low), np.full(columns, high)
        # Find the columns with numbers that cannot be used.
        lows, highs = np.full(columns, np.inf), np.full(columns, -np.inf)
        with np.errstate(invalid="ignore"):
            for own, values in self._pieces():
                np.minimum.at(lows, own, values.astype(float))
                np.maximum.at(highs, own, values.astype(float))
        return lows, highs

    @abstractmethod
    def _pieces(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The columns and the values of what is stored, some at a time."""

    def limit(self, memory: int) -> None:
        """Use at most `memory` bytes; a matrix in memory stays there."""
        return


class CscStore(SparseStore):
    """A matrix in memory that is stored by columns."""

    def __init__(self, matrix: Any) -> None:
        self._matrix, self.shape, self.dtype = matrix, matrix.shape, matrix.dtype

    def columns(self, columns: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        return _slices(self._matrix, columns)

    def _pieces(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        matrix = self._matrix
        for start in range(0, matrix.nnz, _PIECE):
            stop = min(start + _PIECE, matrix.nnz)
            first, last = np.searchsorted(matrix.indptr, [start, stop - 1], side="right") - 1
            ends = np.clip(matrix.indptr[first : last + 2], start, stop)
            yield np.repeat(np.arange(first, last + 1), np.diff(ends)), matrix.data[start:stop]


class ChunkedStore(SparseStore):
    """A matrix that is rearranged some columns at a time; the last two chunks are kept."""

    def __init__(self, shape: tuple[int, int], dtype: np.dtype[Any], size: int) -> None:
        self.shape, self.dtype, self._size = shape, dtype, size
        self._held: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._cut(_CHUNK)

    def _cut(self, chunk: int) -> None:
        """Set chunks of columns of about `chunk` bytes."""
        count = max(1, min(-(-self._size // chunk), self.shape[1]))
        self._edges = np.linspace(0, self.shape[1], count + 1).astype(np.int64)

    @abstractmethod
    def rearranged(self, start: int, stop: int) -> Any:
        """The columns from `start` to `stop`, stored by columns."""

    def columns(self, columns: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        chunks = np.searchsorted(self._edges, columns, side="right") - 1
        out: list[Any] = [None] * len(columns)
        for chunk in np.unique(chunks).tolist():
            here = np.flatnonzero(chunks == chunk)
            found = _slices(self._chunk(chunk), columns[here] - self._edges[chunk])
            for place, one in zip(here.tolist(), found, strict=True):
                out[place] = one
        return out

    def _chunk(self, chunk: int) -> Any:
        with self._lock:
            if chunk not in self._held:
                while len(self._held) > 1:
                    del self._held[next(iter(self._held))]
                self._held[chunk] = self.rearranged(*self._edges[chunk : chunk + 2].tolist())
            return self._held[chunk]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_held", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _held={}, _lock=threading.Lock())


class CsrStore(ChunkedStore):
    """A matrix in memory that is stored by rows."""

    def __init__(self, matrix: Any) -> None:
        self._matrix = matrix
        super().__init__(matrix.shape, matrix.dtype, matrix.nnz * (matrix.data.itemsize + matrix.indices.itemsize))

    def rearranged(self, start: int, stop: int) -> Any:
        return self._matrix[:, start:stop].tocsc()

    def _pieces(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        matrix = self._matrix
        for start in range(0, matrix.nnz, _PIECE):
            some = slice(start, min(start + _PIECE, matrix.nnz))
            yield matrix.indices[some], matrix.data[some]


def _slices(matrix: Any, columns: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    starts, stops = matrix.indptr[columns].tolist(), matrix.indptr[columns + 1].tolist()
    return [(matrix.data[a:b], matrix.indices[a:b]) for a, b in zip(starts, stops, strict=True)]


@dataclass(frozen=True)
class SparseRows:
    """Some rows and columns of a sparse matrix.

    `places` has for each row of the matrix its number among the n rows, -1 where it is not one of them; `columns` (p,)
    are the columns of the matrix that are used. None stands for all.
    """

    store: SparseStore
    places: np.ndarray | None
    n: int
    columns: np.ndarray | None = None

    @property
    def key(self) -> tuple[int, bytes | None]:
        """Equal for parts of one matrix with the same columns."""
        return id(self.store), None if self.columns is None else self.columns.tobytes()

    def pick(self, columns: np.ndarray) -> SparseRows:
        """The same rows of some columns of the table."""
        return replace(self, columns=columns if self.columns is None else self.columns[columns])

    def read(self, columns: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Values and rows of the matrix of some columns of the table."""
        return self.store.columns(columns if self.columns is None else self.columns[columns])


class SparseTable(Table):
    """Rows of d features that are mostly 0: the rows of `parts`, concatenated."""

    layout: Layout
    parts: tuple[SparseRows, ...]
    dtype: np.dtype[Any]

    def __init__(self, layout: Layout, parts: Sequence[SparseRows], dtype: np.dtype[Any]) -> None:
        self._set(layout, layout=layout, parts=tuple(parts), dtype=dtype, incomplete=None)

    @property
    def n(self) -> int:
        return sum(part.n for part in self.parts)

    @property
    def prototype(self) -> np.ndarray:
        return np.empty((0, int(self.offsets[-1])), dtype=self.dtype)

    @property
    def values(self) -> np.ndarray:
        """All values at once, where they fit."""
        if self.n * int(self.offsets[-1]) > LARGEST_DENSE:
            raise InputError(
                f"X: a sparse table is made dense up to {LARGEST_DENSE:,} cells, but this one has {self.n:,} rows and "
                f"{self.offsets[-1]:,} columns; use estimator='complete' without groups, or choose fewer columns."
            )
        return self.part(slice(None))

    def above(self, others: Sequence[Table]) -> Table:
        if not all(isinstance(other, SparseTable) for other in others):
            return super().above(others)
        parts = [part for table in (self, *others) if isinstance(table, SparseTable) for part in table.parts]
        return SparseTable(self.layout, parts, self.dtype)

    @property
    def on_disk(self) -> bool:
        return any(part.store.on_disk for part in self.parts)

    @cached_property
    def constant(self) -> np.ndarray:
        flat = np.zeros(int(self.offsets[-1]), dtype=bool)
        for start in range(0, len(flat), _BLOCK):
            some = np.arange(start, min(start + _BLOCK, len(flat)))
            stored = self.stored(some)
            counts = stored.counts
            flat[some[counts == 0]] = True
            for column in np.flatnonzero(counts == self.n):
                values = stored.values[stored.offsets[column] : stored.offsets[column + 1]]
                flat[some[column]] = bool((values == values[0]).all())
        return np.logical_and.reduceat(flat, self.offsets[:-1])

    def stored(self, columns: np.ndarray) -> StoredColumns:
        """The values other than 0 of some value columns."""
        own, start = self.layout.columns[columns], 0
        found: list[list[tuple[np.ndarray, np.ndarray]]] = []
        for part in self._matrices:
            pieces = part.read(own)
            if start:
                pieces = [(values, rows + np.int64(start)) for values, rows in pieces]
            found.append(pieces)
            start += part.n
        flat = [piece for column in zip(*found, strict=True) for piece in column]
        counts = np.array([len(values) for values, _ in flat]).reshape(len(own), -1).sum(axis=1)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        values = np.concatenate([values for values, _ in flat]).astype(self.dtype, copy=False)
        rows = np.concatenate([rows for _, rows in flat])
        out = StoredColumns(values, rows, offsets, self.n)
        if self._places is not None:
            places = self._places[rows]
            out = out.filter(places >= 0, places, self.n)
        return out if out.values.all() else out.filter(out.values != 0, out.rows, out.n)

    @cached_property
    def _matrices(self) -> list[SparseRows]:
        """The parts, rows of one and the same matrix together."""
        different = {part.key: part for part in self.parts}
        return [replace(part, places=None, n=part.store.shape[0]) for part in different.values()]

    @cached_property
    def _places(self) -> np.ndarray | None:
        """The row of this table of each row of the concatenated matrices; None where they are the same."""
        matrices = self._matrices
        ends = np.cumsum([one.n for one in matrices])
        starts = {one.key: int(end) - one.n for one, end in zip(matrices, ends, strict=True)}
        if all(part.places is None for part in self.parts) and len(matrices) == len(self.parts):
            return None
        out, first = np.full(ends[-1], -1, dtype=np.int32), 0
        for part in self.parts:
            begin = starts[part.key]
            own = np.arange(part.n) if part.places is None else part.places
            rows = np.flatnonzero(own >= 0)
            out[begin + rows] = own[rows] + first
            first += part.n
        return out

    def part(self, columns: slice | np.ndarray, rows: slice | np.ndarray | None = None) -> np.ndarray:
        own, n, again = np.arange(int(self.offsets[-1]))[columns], self.n, None
        wanted = np.arange(n)[rows] if isinstance(rows, slice) else rows
        if wanted is not None:
            wanted, again = np.unique(wanted, return_inverse=True)
            n = len(wanted)
        out = np.zeros((n, len(own)), dtype=self.dtype)
        for start in range(0, len(own), _BLOCK):
            stored = self.stored(own[start : start + _BLOCK]).within(wanted)
            out[stored.rows, start + np.repeat(np.arange(len(stored.counts)), stored.counts)] = stored.values
        return out if again is None or np.array_equal(again, np.arange(n)) else out[again]

    def select(self, features: np.ndarray) -> SparseTable:
        return SparseTable(self.layout.select(np.asarray(features, dtype=np.intp)), self.parts, self.dtype)

    def loaded(self, features: slice | np.ndarray, space: np.ndarray | None = None) -> SparseTable:
        from scipy.sparse import csc_matrix

        some = self.select(np.arange(self.d)[features])
        every = np.arange(int(some.offsets[-1]))
        stored = some.stored(every)
        matrix = csc_matrix((stored.values, stored.rows, stored.offsets), shape=(self.n, len(every)))
        return SparseTable(
            some.layout._replace(columns=every), [SparseRows(CscStore(matrix), None, self.n)], self.dtype
        )

    def dense(self) -> Table:
        """The same table in memory, where it fits."""
        return self.with_values(self.values)
