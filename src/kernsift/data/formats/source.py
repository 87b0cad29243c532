"""The interface of tables that are read in pieces, and their division into pieces that fit into memory.

A format says where its chunks begin (`edges`), what a cell costs while it is read (`widths`), and reads some columns
and rows of one chunk (`fetch`). Everything else is the same for all of them and is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from kernsift.data.columns.columns import Columns
from kernsift.data.frames import read_columns
from kernsift.exceptions import InputError

Rows = slice | np.ndarray
"""Rows as a slice of step 1, or as a sorted index array in which rows may repeat."""

PLAIN = ("float32", "float64", "integer", "truth")
"""The kinds of columns that are read as they are stored."""

NUMBERS = (*PLAIN, "date", "duration")
"""The kinds of columns that are read as numbers; dates and durations are numbers of days. The others are "text",
"category" (declared as such), "mixed" (text and numbers), "empty" (nothing but missing cells), "unknown" (known only
when it is read), and the name of any type that is neither numbers nor categories."""

TEXTS = ("text", "category", "mixed")
"""The kinds of columns that are read as codes of their different texts."""

SCRATCH = 64 << 20
"""Bytes of temporary arrays while reading, by default."""


@dataclass(frozen=True)
class Cut:
    """Some cells of one chunk, before they are read: the rows `inside` it, and their place in the answer, which has a
    row for every row and a column for every column asked for.
    """

    chunk: int
    inside: Rows
    rows: slice
    columns: slice


@dataclass(frozen=True)
class Bounds:
    """Statistics of columns that a file has without being read, for those that are `known` (p,).

    `low` and `high` are the smallest and the largest number. `gaps` are the numbers of missing cells, which count NaN
    in columns of floating-point numbers only if they are `exact`.
    """

    known: np.ndarray
    low: np.ndarray
    high: np.ndarray
    gaps: np.ndarray
    exact: bool = False

    def pick(self, positions: np.ndarray) -> Bounds:
        """The columns at these positions, in this order."""
        known, low, high, gaps = (part[positions] for part in (self.known, self.low, self.high, self.gaps))
        return Bounds(known, low, high, gaps, self.exact)


@dataclass(frozen=True)
class Annotations:
    """Columns that describe the rows of a table and are not features, such as `obs` of AnnData.

    `table` is a data frame or a mapping from names to columns, `rows` the positions of the rows that are kept.
    """

    table: Any
    rows: np.ndarray | None = None

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [str(name) for name in self.table]

    def column(self, name: str, argument: str) -> Columns:
        """One of the columns."""
        cells = self.table[name]
        found = cells if isinstance(cells, Columns) else read_columns(cells, argument)
        found = replace(found, names=(name,), named=True)
        return found if self.rows is None else found.take(self.rows)

    def where(self, keep: np.ndarray) -> Annotations:
        """The same for the rows that are marked."""
        rows = np.flatnonzero(keep)
        return Annotations(self.table, rows if self.rows is None else self.rows[rows])


class Source(ABC):
    """A table that is read in pieces.

    Attributes
    ----------
    argument : what error messages call it.
    names : the p column names.
    kinds : the p kinds of columns, see `NUMBERS`.
    edges : (chunks + 1,) the first row of every chunk, and the number of rows.
    widths : (p,) bytes that one cell of each column takes while it is read.
    overhead : bytes that one row takes while it is read, whatever the columns.
    by_column : whether reading some columns takes less time than reading all.
    at_once : how many cuts may be fetched at the same time, in threads.
    in_memory : whether the cells are in memory.
    named : whether the names are the user's own.
    flat : whether the data is one-dimensional.
    notes : what was guessed about the format, one sentence each.
    annotations : columns that describe the rows; None without any.
    """

    overhead: float = 0.0
    by_column: bool = True
    at_once: int = 1
    in_memory: bool = False
    notes: tuple[str, ...] = ()
    annotations: Annotations | None = None

    def __init__(
        self,
        argument: str,
        names: Sequence[str],
        kinds: Sequence[str],
        edges: np.ndarray,
        widths: np.ndarray,
        *,
        named: bool = True,
        flat: bool = False,
    ) -> None:
        self.argument = argument
        self.names = tuple(names)
        self.kinds = tuple(kinds)
        self.edges = np.asarray(edges, dtype=np.int64)
        self.widths = np.asarray(widths, dtype=np.float64)
        self.named = named
        self.flat = flat

    @abstractmethod
    def fetch(self, chunk: int, columns: Sequence[int], rows: Rows) -> Columns:
        """Some columns of one chunk; `rows` are counted from its first row."""

    def bounds(self) -> Bounds | None:
        """Statistics of the columns that are known without reading them; None where there are none."""
        return None

    @property
    def n(self) -> int:
        """Rows."""
        return int(self.edges[-1])

    def pick(self, positions: Sequence[int], names: Sequence[str] | None = None) -> Source:
        """The columns at these positions, in this order, under other names where these are given."""
        if names is None and list(positions) == list(range(len(self.names))):
            return self
        own = [self.names[i] for i in positions] if names is None else names
        return self._derived(self._picked(positions, own, self.named), self.annotations)

    def renamed(self, names: Sequence[str], named: bool) -> Source:
        """The same columns under other names."""
        if (tuple(names), named) == (self.names, self.named):
            return self
        return self._derived(self._picked(range(len(self.names)), names, named), self.annotations)

    def between(self, start: int, stop: int) -> Source:
        """The rows from `start` to `stop`."""
        return self if (start, stop) == (0, self.n) else _Between(self, start, stop)

    def where(self, keep: np.ndarray) -> Source:
        """The rows that are marked."""
        if keep.all():
            return self
        return self._derived(self._kept(keep), None if self.annotations is None else self.annotations.where(keep))

    def _picked(self, positions: Sequence[int], names: Sequence[str], named: bool) -> Source:
        return _Picked(self, positions, names, named)

    def _kept(self, keep: np.ndarray) -> Source:
        return _Where(self, keep)

    def _derived(self, found: Source, annotations: Annotations | None) -> Source:
        """A part of this table, with the notes about the format and the columns that describe its rows."""
        found.notes, found.annotations = self.notes, annotations
        return found

    def read(self, columns: Sequence[int], rows: Rows | None = None) -> Columns:
        """Some columns in memory, and of all rows unless some are named."""
        rows = slice(0, self.n) if rows is None else rows
        single = bool(columns) and all(self.kinds[i] == "float32" for i in columns)
        values = np.full((count_of(rows), len(columns)), np.nan, dtype=np.float32 if single else np.float64)
        kinds = [self.kinds[i] for i in columns]
        found: dict[int, dict[str, int]] = {}
        for cut, cells in self.pieces(columns, rows):
            for i, kind in enumerate(cells.kinds, cut.columns.start):
                kinds[i] = kind if kinds[i] == "unknown" and kind != "empty" else kinds[i]
            for i, levels in cells.levels.items():
                codes = found.setdefault(cut.columns.start + i, {})
                numbers = np.array([codes.setdefault(level, len(codes)) for level in levels], dtype=np.float64)
                recode(cells.values, i, numbers)
            values[cut.rows, cut.columns] = cells.values
        for i, codes in found.items():
            order = {level: float(code) for code, level in enumerate(sorted(codes))}
            recode(values, i, np.array([order[level] for level in codes]))
        levels_found = {i: tuple(sorted(codes)) for i, codes in found.items()}
        names = tuple(self.names[i] for i in columns)
        return Columns(names, values, levels_found, tuple(kinds), self.named, self.flat)

    def integers(self, column: int) -> np.ndarray:
        """The integers of a column of which some are beyond 2^53, as they are stored; any number in a missing cell."""
        parts = []
        for _, cells in self.pieces([column], slice(0, self.n)):
            parts.append(cells.integers[0] if cells.integers else np.nan_to_num(cells.values[:, 0]).astype(np.int64))
        return joined_integers(parts)

    def pieces(self, columns: Sequence[int], rows: Rows, scratch: int = SCRATCH) -> Iterator[tuple[Cut, Columns]]:
        """All the cells asked for, chunk after chunk, each piece within `scratch` bytes; codes count within a piece."""
        with self.reading():
            for cut in self.cuts(columns, rows, scratch, scratch):
                yield cut, self.cells_of(columns, cut)

    def cuts(self, columns: Sequence[int], rows: Rows, scratch: int, most: int) -> Iterator[Cut]:
        """What `pieces` reads, before it is read; a single column of a chunk may take up to `most` bytes."""
        for chunk, inside, place in self._chunks_of(rows):
            length = int(self.edges[chunk + 1] - self.edges[chunk])
            for block in self._column_runs(columns, length, scratch, most):
                yield Cut(chunk, inside, place, block)

    def cells_of(self, columns: Sequence[int], cut: Cut) -> Columns:
        """The cells of a cut, which was made for these columns."""
        return self.fetch(cut.chunk, columns[cut.columns], cut.inside)

    def reading(self) -> AbstractContextManager[None]:
        """Inside, files may stay open from one piece to the next."""
        return nullcontext()

    def _chunks_of(self, rows: Rows) -> Iterator[tuple[int, Rows, slice]]:
        """The chunks that hold the rows, the rows inside each, and their place among all rows asked for."""
        if isinstance(rows, slice):
            ends = np.clip(self.edges, rows.start, rows.stop)
            for chunk in np.flatnonzero(np.diff(ends)).tolist():
                begin, low, high = int(self.edges[chunk]), int(ends[chunk]), int(ends[chunk + 1])
                yield chunk, slice(low - begin, high - begin), slice(low - rows.start, high - rows.start)
            return
        cuts = np.searchsorted(rows, self.edges)
        for chunk in np.flatnonzero(np.diff(cuts)).tolist():
            place = slice(int(cuts[chunk]), int(cuts[chunk + 1]))
            yield chunk, rows[place] - self.edges[chunk], place

    def _column_runs(self, columns: Sequence[int], length: int, scratch: int, most: int) -> Iterator[slice]:
        """Runs of columns of which `length` rows are within `scratch` bytes, or single ones within `most`."""
        allowed = scratch / max(1, length) - self.overhead
        ends = np.cumsum(self.widths[np.asarray(columns, dtype=np.intp)])
        start, spent = 0, 0.0
        while start < len(columns):
            stop = int(np.searchsorted(ends, spent + allowed, side="right"))
            if stop == start:
                needed = length * (self.overhead + self.widths[columns[start]])
                if needed > most:
                    raise InputError(
                        f"memory: {needed / 1e6:,.0f} MB are needed to read one column of {length:,} rows of "
                        f"{self.argument} at a time, but only {most / 1e6:,.0f} MB may be used for that; allow more, "
                        "or store the table in smaller chunks of rows."
                    )
                stop = start + 1
            yield slice(start, stop)
            start, spent = stop, float(ends[stop - 1])


class _View(Source):
    """Some columns or rows of another source."""

    def __init__(
        self, whole: Source, names: Sequence[str], kinds: Sequence[str], edges: np.ndarray, widths: np.ndarray
    ) -> None:
        super().__init__(whole.argument, names, kinds, edges, widths, named=whole.named, flat=whole.flat)
        self._whole = whole
        self.overhead, self.by_column, self.at_once = whole.overhead, whole.by_column, whole.at_once
        self.in_memory = whole.in_memory

    def reading(self) -> AbstractContextManager[None]:
        return self._whole.reading()


class _Picked(_View):
    """Some columns of another source."""

    def __init__(self, whole: Source, positions: Sequence[int], names: Sequence[str], named: bool) -> None:
        self._positions = np.asarray(positions, dtype=np.intp)
        super().__init__(whole, names, [whole.kinds[i] for i in positions], whole.edges, whole.widths[self._positions])
        self.named = named

    def fetch(self, chunk: int, columns: Sequence[int], rows: Rows) -> Columns:
        there = self._positions[np.asarray(columns, dtype=np.intp)].tolist()
        return replace(self._whole.fetch(chunk, there, rows), names=tuple(self.names[i] for i in columns))

    def bounds(self) -> Bounds | None:
        bounds = self._whole.bounds()
        return None if bounds is None else bounds.pick(self._positions)


class _Between(_View):
    """A run of rows of another source."""

    def __init__(self, whole: Source, start: int, stop: int) -> None:
        inner = whole.edges[(whole.edges > start) & (whole.edges < stop)]
        edges = np.concatenate([[start], inner, [stop]]) - start
        super().__init__(whole, whole.names, whole.kinds, edges, whole.widths)
        self._start = start
        self._first = int(np.searchsorted(whole.edges, start, side="right")) - 1

    def fetch(self, chunk: int, columns: Sequence[int], rows: Rows) -> Columns:
        begin = int(self.edges[chunk]) + self._start - int(self._whole.edges[chunk + self._first])
        return self._whole.fetch(chunk + self._first, columns, shifted(rows, begin))


class _Where(_View):
    """Some rows of another source."""

    def __init__(self, whole: Source, keep: np.ndarray) -> None:
        counts = [np.count_nonzero(keep[start:stop]) for start, stop in pairwise(whole.edges)]
        super().__init__(whole, whole.names, whole.kinds, np.cumsum([0, *counts]), whole.widths)
        self._keep = keep

    def fetch(self, chunk: int, columns: Sequence[int], rows: Rows) -> Columns:
        start, stop = self._whole.edges[chunk : chunk + 2]
        places = np.flatnonzero(self._keep[start:stop])[rows]
        if isinstance(rows, slice):
            # A run is read as a run and thinned out: most formats read runs faster than scattered rows.
            run = slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 0)
            return self._whole.fetch(chunk, columns, run).take(places - run.start)
        return self._whole.fetch(chunk, columns, places)


def values_name(kind: str) -> str:
    """What error messages call the values of a column of this kind, such as "dates"."""
    other = "text" if kind in TEXTS else "numbers" if kind in NUMBERS else kind
    return {"date": "dates", "duration": "durations", "truth": "truth values"}.get(kind, other)


def count_of(rows: Rows) -> int:
    """How many rows there are."""
    return int(rows.stop - rows.start) if isinstance(rows, slice) else len(rows)


def joined_integers(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Integers of several types as one; NumPy would make floating-point numbers of signed and unsigned ones."""
    unsigned = any(part.dtype == np.uint64 for part in parts)
    return np.concatenate([part.astype(np.uint64 if unsigned else np.int64) for part in parts])


def shifted(rows: Rows, by: int) -> Rows:
    """The rows shifted by `by`."""
    return slice(rows.start + by, rows.stop + by) if isinstance(rows, slice) else rows + by


def recode(values: np.ndarray, column: int, codes: np.ndarray) -> None:
    """Replace the codes in a column by `codes[code]`, in place; missing cells stay missing."""
    old = values[:, column]
    places = np.where(np.isnan(old), len(codes), old).astype(np.intp)
    values[:, column] = np.append(codes, np.nan)[places]
