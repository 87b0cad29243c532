"""Tables that stay on disk: what `tables` checks and settles in memory, done here in passes over pieces.

A `StoredTable` is to a file what a `Table` is to an array, and the same statistics can be asked of both. Reading takes
a bounded amount of memory, whatever the size of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from kernsift.data import tables
from kernsift.data.columns import (
    CELLS_STAY,
    EXACT,
    MISSING,
    Columns,
    harmonise,
    keep_rows,
    quoted,
    read_columns,
    require_two,
)
from kernsift.data.formats import Piece, Source, open_source, points_outside
from kernsift.data.formats.in_memory import MemorySource
from kernsift.data.formats.source import NUMBERS, Cut, count_of, recode
from kernsift.data.scan import Scan, scan
from kernsift.data.tables import (
    MISSING_LEVEL,
    Layout,
    Table,
    align,
    check_choice,
    check_kinds,
    check_rows,
    layout_of,
    response_table,
    split_response,
)
from kernsift.exceptions import InputError
from kernsift.execution.memory import answer_of, parse_memory, scratch_of
from kernsift.execution.threads import parallel_map

Answer = TypeVar("Answer")

_BLOCK = 1 << 16
# Pieces of a table that are there at the same time when its rows are counted: one is read, others are worked on.
_IN_FLIGHT = 6
# Rows that are copied in one go from columns into rows: so few that they stay in the cache.
_TILE = 1 << 10
_USABLE = (*NUMBERS, "category", "empty", "unknown")


class StoredTable(Table):
    """Rows of d features on disk.

    Attributes
    ----------
    source : the file behind it.
    layout : which of its columns make up which features.
    coded : the level names of each column of the source that holds categories, in the order of its codes.
    low, high : the smallest and the largest value of each column of the source; whatever is read lies between them.
    dtype : float64, or float32 where all the input was.
    memory : bytes that may be used.
    kept : the rows of the source that are rows of this table; None for all.
    gaps : (columns of the source,) bool: those that may have missing values; None where none may.
    """

    source: Source
    layout: Layout
    coded: Mapping[int, tuple[str, ...]]
    low: np.ndarray
    high: np.ndarray
    dtype: np.dtype[Any]
    kept: Kept | None
    gaps: np.ndarray | None
    _memory: int

    def __init__(
        self,
        source: Source,
        layout: Layout,
        coded: Mapping[int, tuple[str, ...]],
        low: np.ndarray,
        high: np.ndarray,
        dtype: np.dtype[Any],
        memory: int,
        kept: Kept | None = None,
        gaps: np.ndarray | None = None,
    ) -> None:
        given = {"source": source, "layout": layout, "coded": coded, "low": low, "high": high, "dtype": dtype}
        parts = {name: getattr(layout, name) for name in ("names", "offsets", "categorical", "levels")}
        # Frozen as tables are.
        parts["incomplete"] = None if gaps is None else tables.some_of(gaps[layout.columns])
        self.__dict__.update(given | parts | {"_memory": memory, "kept": kept, "gaps": gaps})

    def __repr__(self) -> str:
        return f"StoredTable of {self.n} rows and {self.d} features, from {self.source.argument}"

    def changed(self, **given: Any) -> StoredTable:
        """The same table but for what is given."""
        names = ("source", "layout", "coded", "low", "high", "dtype", "memory", "kept", "gaps")
        return StoredTable(**({name: getattr(self, name) for name in names} | given))

    @property
    def memory(self) -> int:
        return self._memory

    @property
    def n(self) -> int:
        return self.source.n if self.kept is None else self.kept.n

    @property
    def prototype(self) -> np.ndarray:
        return np.empty((0, int(self.offsets[-1])), dtype=self.dtype)

    def reading(self) -> AbstractContextManager[Any]:
        return self.source.reading()

    @property
    def by_column(self) -> bool:
        return self.source.by_column

    @property
    def span(self) -> tuple[np.ndarray, np.ndarray]:
        # An indicator varies where its column does: every level occurs somewhere.
        return self.low[self.layout.columns], self.high[self.layout.columns]

    @property
    def values(self) -> np.ndarray:
        """All values at once, where they fit."""
        return self.part(slice(None))

    def part(self, columns: Any, rows: Any = None) -> np.ndarray:
        """(rows, columns) float: some value columns of some rows, in the order asked for.

        `columns` and `rows` may be slices, index arrays in any order, boolean masks, or None for all.
        """
        return self._part(columns, rows)

    def _part(self, columns: Any, rows: Any, space: np.ndarray | None = None) -> np.ndarray:
        wanted = positions(columns, int(self.offsets[-1]))
        wanted = wanted if isinstance(wanted, np.ndarray) else np.arange(wanted.start, wanted.stop)
        places = positions(rows, self.n)
        self._check_room(count_of(places) * len(wanted))
        own, codes = self.layout.columns[wanted], self.layout.codes[wanted]
        hot = np.flatnonzero(codes >= 0)
        if not hot.size:
            return self._read(own, places, space)
        # Columns of categories in a group are there once for each level, but read once.
        read, inverse = np.unique(own, return_inverse=True)
        out = np.ascontiguousarray(self._read(read, places)[:, inverse])
        out[:, hot] = out[:, hot] == codes[hot]
        return out

    def _check_room(self, numbers: int) -> None:
        size, room = numbers * self.dtype.itemsize, answer_of(self.memory)
        if size > room:
            raise InputError(
                f"memory: {size / 1e6:,.0f} MB of {self.source.argument} are needed at a time, more than half of the "
                f"{self.memory / 1e6:,.0f} MB that may be used; allow more, or use estimator='complete' without "
                "groups, which reads rows piece by piece."
            )

    def _read(self, own: np.ndarray, places: slice | np.ndarray, space: np.ndarray | None = None) -> np.ndarray:
        """Some columns of the source."""
        count = count_of(places)
        space = np.empty(count * len(own), dtype=self.dtype) if space is None else space[: count * len(own)]
        out = space.reshape(count, len(own))
        sorting: np.ndarray | None = None
        if not isinstance(places, slice) and np.any(places[1:] < places[:-1]):
            sorting = np.argsort(places, kind="stable")
            places = places[sorting]

        def put(rows: slice, columns: slice, values: np.ndarray) -> None:
            if sorting is None:
                _copy(out[rows, columns], values)
            else:
                out[sorting[rows], columns] = values

        for _ in self._each(put, own, places, 4, self.source.at_once):
            pass
        return out

    def pieces(self, columns: np.ndarray, numbers: int) -> Iterator[tables.Piece]:
        """All rows of some value columns as the file has them, so that nothing of it is read twice."""
        if (self.layout.codes[columns] >= 0).any():
            yield from super().pieces(columns, numbers)
            return
        yield from self._each(tables.Piece, self.layout.columns[columns], slice(0, self.n), _IN_FLIGHT)

    def take(self, rows: np.ndarray) -> Table:
        """The rows at these positions, in this order, repeats allowed, as a table in memory."""
        values = self.part(None, rows)
        return Table(self.names, values, self.offsets, self.categorical, dict(self.levels), self.incomplete)

    def select(self, features: np.ndarray) -> StoredTable:
        """The features at these positions, in this order."""
        return self.changed(layout=self.layout.select(np.asarray(features, dtype=np.intp)))

    def between(self, rows: slice) -> StoredTable:
        """A run of rows."""
        span = rows if self.kept is None else self.kept.span(rows)
        kept = None if self.kept is None else Kept.of(self.kept.mask[span])
        return self.changed(source=self.source.between(span.start, span.stop), kept=kept)

    def handed(self, rows: np.ndarray | None = None) -> tuple[StoredTable, Any, list[Any]]:
        """A table that travels: itself without its source, what makes the source, and the values for that.

        `rows` are sorted; None for all.
        """
        own = np.unique(self.layout.columns)
        places = slice(0, self.source.n) if rows is None else rows
        if self.kept is not None:
            places = np.flatnonzero(self.kept.mask) if rows is None else self.kept.locate(rows)
        stub, values = self.source.handed(own.tolist(), places)
        nothing: Any = None
        table = self.changed(
            source=nothing,
            layout=self.layout._replace(columns=np.searchsorted(own, self.layout.columns)),
            coded={new: self.coded[old] for new, old in enumerate(own.tolist()) if old in self.coded},
            low=self.low[own],
            high=self.high[own],
            kept=None,
            gaps=None if self.gaps is None else self.gaps[own],
        )
        return table, stub, values

    def loaded(self, features: slice | np.ndarray, space: np.ndarray | None = None) -> Table:
        """The features at these positions, in memory; in `space` if that is given."""
        some = self.select(np.arange(self.d)[features])
        values = some._part(None, None, space)
        return Table(some.names, values, some.offsets, some.categorical, dict(some.levels), some.incomplete)

    def row_chunks(self, columns: np.ndarray, numbers: int) -> list[tuple[int, int]]:
        """Runs of rows of which these value columns hold at most so many numbers; they end where the file's chunks do.

        A run is never empty, so one row may hold more.
        """
        most = max(1, numbers // max(1, len(columns)))
        edges = self.source.edges if self.kept is None else self.kept.rank(self.source.edges)
        runs: list[tuple[int, int]] = []
        start = 0
        for stop, following in zip(edges[1:].tolist(), [*edges[2:].tolist(), None], strict=True):
            if stop > start and (following is None or following - start > most):
                # A chunk of the file that is too large is cut into equal runs.
                cuts = np.linspace(start, stop, -(-(stop - start) // most) + 1).astype(np.int64)
                runs += zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
                start = stop
        return runs

    def _sizes(self, pieces: int) -> tuple[int, int]:
        """Bytes for one piece where so many are there at a time, and what a single column of a chunk may take."""
        return scratch_of(self.memory) // pieces, scratch_of(self.memory)

    def _each(
        self,
        use: Callable[[slice, slice, np.ndarray], Answer],
        own: np.ndarray,
        rows: slice | np.ndarray,
        pieces: int,
        at_once: int = 1,
    ) -> Iterator[Answer]:
        """`use(rows, columns, values)` of each piece of a run of rows, or of sorted ones: where it belongs among those.

        So many pieces are there at a time, and so many of these are read and used at once, in threads.
        """
        if not count_of(rows):
            return
        columns, kept = own.tolist(), self.kept
        first = rows.start if isinstance(rows, slice) else 0
        if kept is not None:
            rows = kept.span(rows) if isinstance(rows, slice) else kept.locate(rows)

        def one(cut: Cut) -> list[Answer]:
            piece = self.source.piece(columns, cut)
            place = piece.rows
            if kept is not None and isinstance(rows, slice):
                begin = rows.start + place.start
                there = np.flatnonzero(kept.mask[begin : rows.start + place.stop])
                piece = replace(piece, cells=piece.cells.take(there))
                start = int(kept.rank(np.array([begin]))[0]) - first
                place = slice(start, start + len(there))
            return [use(place, piece.columns, self._settled(piece, own))] if place.stop > place.start else []

        with self.source.reading():
            for found in parallel_map(one, self.source.cuts(columns, rows, *self._sizes(pieces)), most=at_once):
                yield from found

    def _settled(self, piece: Piece, wanted: np.ndarray) -> np.ndarray:
        """The values of a piece with the codes of this table, after a look whether they are what was promised."""
        values = piece.cells.values.astype(self.dtype, copy=False)
        own = wanted[piece.columns]
        for i, levels in piece.cells.levels.items():
            code = self._codes.get(int(own[i]), {})
            recode(values, i, np.array([code.get(level, -1.0) for level in levels]))
        low, high = values.min(axis=0), values.max(axis=0)
        # Written so that NaN, which hides from the statistics that files keep, fails it.
        right = (low >= self.low[own]) & (high <= self.high[own])
        for i in np.flatnonzero(~right) if self.gaps is not None else ():
            there = ~np.isnan(values[:, i])
            if not there.all() and MISSING_LEVEL in self._codes.get(int(own[i]), ()):
                values[~there, i] = self._codes[int(own[i])][MISSING_LEVEL]
                right[i] = True
            elif self.gaps[own[i]]:
                some = values[there, i]
                right[i] = not some.size or (some.min() >= self.low[own[i]] and some.max() <= self.high[own[i]])
        if not right.all():
            self._complain()
        return values

    @cached_property
    def _codes(self) -> dict[int, dict[str, float]]:
        return {j: {level: float(code) for code, level in enumerate(levels)} for j, levels in self.coded.items()}

    def _complain(self) -> None:
        """Look at everything to tell what is wrong; what is right now has changed since it was looked at first."""
        if self.kept is None:
            scan(self.source, self.memory, trust=False).judge("error")
        raise InputError(
            f"{self.source.argument}: the data changed while it was being read; start again when it is complete."
        )


def _copy(out: np.ndarray, values: np.ndarray) -> None:
    """Copy values; where one side lies row by row and the other column by column, a few rows at a time."""
    if np.argmin(out.strides) == np.argmin(values.strides):
        out[...] = values
        return
    for start in range(0, len(out), _TILE):
        out[start : start + _TILE] = values[start : start + _TILE]


@dataclass(frozen=True)
class Kept:
    """Which rows are kept, and how many there are before any other: one byte a row."""

    mask: np.ndarray
    before: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, mask: np.ndarray) -> Kept | None:
        """None where all rows are kept."""
        if mask.all():
            return None
        counts = np.add.reduceat(mask, np.arange(0, len(mask), _BLOCK), dtype=np.int64)
        return cls(mask, np.concatenate([[0], np.cumsum(counts)]))

    @property
    def n(self) -> int:
        """Rows that are kept."""
        return int(self.before[-1])

    def rank(self, rows: np.ndarray) -> np.ndarray:
        """How many rows are kept before each of these."""
        blocks = rows // _BLOCK
        inside = [np.count_nonzero(self.mask[b * _BLOCK : row]) for b, row in zip(blocks, rows, strict=True)]
        return self.before[blocks] + np.asarray(inside, dtype=np.int64)

    def locate(self, rows: np.ndarray) -> np.ndarray:
        """Where the kept rows with these sorted numbers are."""
        out = np.empty(len(rows), dtype=np.int64)
        cuts = np.searchsorted(rows, self.before)
        for block in np.flatnonzero(np.diff(cuts)):
            begin = block * _BLOCK
            there = np.flatnonzero(self.mask[begin : begin + _BLOCK])
            part = slice(cuts[block], cuts[block + 1])
            out[part] = begin + there[rows[part] - self.before[block]]
        return out

    def span(self, rows: slice) -> slice:
        """The run of all rows that begins and ends with kept ones, those with these numbers."""
        first, last = self.locate(np.array([rows.start, rows.stop - 1]))
        return slice(int(first), int(last) + 1)


def positions(asked: Any, count: int) -> slice | np.ndarray:
    """A run or an index array, from whatever picks some of `count` things."""
    if asked is None:
        return slice(0, count)
    if isinstance(asked, slice):
        start, stop, step = asked.indices(count)
        return slice(start, max(start, stop)) if step == 1 else np.arange(start, stop, step)
    found = np.asarray(asked)
    if found.dtype == bool:
        return np.flatnonzero(found)
    found = found.astype(np.int64).reshape(-1)
    if found.size and (found.min() < -count or found.max() >= count):
        raise IndexError(f"positions must be below {count}, got {found.min()} to {found.max()}")
    return np.where(found < 0, found + count, found)


# Tables --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Header(Columns):
    """The names and the shape of a source: all that aligning tables and naming a response look at."""

    chosen: tuple[int, ...] = ()
    source: Source | None = None

    @classmethod
    def of(cls, source: Source) -> _Header:
        p = len(source.names)
        nothing = np.broadcast_to(np.zeros((), dtype=bool), (source.n, p))
        flags = np.zeros(p, dtype=bool)
        return cls(source.names, nothing, {}, flags, source.named, source.flat, chosen=tuple(range(p)), source=source)

    def pick(self, positions: Sequence[int]) -> _Header:
        names, chosen = tuple(self.names[i] for i in positions), tuple(self.chosen[i] for i in positions)
        values = np.broadcast_to(np.zeros((), dtype=bool), (len(self.values), len(names)))
        return replace(self, names=names, values=values, boolean=self.boolean[list(positions)], chosen=chosen)


def is_stored(*data: Any, memory: int | float | str | None = None) -> bool:
    """Whether any of these is to be read in pieces, because it is a path or another library keeps it out of memory.

    NumPy's memory maps look like arrays to those who hold them: they are read in pieces only where `memory` is given.
    """
    if memory is not None:
        parse_memory(memory)
    if any(isinstance(one, Scan) for one in data):
        return True
    return any(points_outside(one) and not (isinstance(one, np.memmap) and memory is None) for one in data)


def as_stored_pair(
    X: Any,
    Y: Any,
    *,
    groups: Mapping[str, Any] | None = None,
    missing: str = "error",
    memory: int | str | None = None,
) -> tuple[StoredTable, StoredTable]:
    """Two samples with the same features in the same order (that of X) and with the same codes.

    Each may be on disk or in memory. What is refused, and in which words, is the same as in `tables.as_pair`.
    """
    check_choice("missing", missing, MISSING)
    budget = parse_memory(memory)
    headers = align(_Header.of(_source(X, "X")), _Header.of(_source(Y, "Y")), "X", "Y")
    scans = []
    for header, data in zip(headers, (X, Y), strict=True):
        found = _looked(header, data, budget, missing)
        keep = found.judge(missing)
        tables.note_dropped(found.source.argument, keep)
        scans.append(_kept(found, keep, budget))
    check_kinds(headers[0].names, *(look.levels for look in scans))
    first_table, second_table = _tables(scans, ["X", "Y"], groups, budget, missing)
    return first_table, second_table


def as_stored_xy(
    X: Any,
    y: Any,
    *,
    groups: Mapping[str, Any] | None = None,
    missing: str = "error",
    response: str = "auto",
    memory: int | str | None = None,
) -> tuple[StoredTable, Table]:
    """Features on disk and a response in memory, row by row; `y` may name columns of X, which then leave X.

    What is refused, and in which words, is the same as in `tables.as_xy`.
    """
    check_choice("missing", missing, MISSING)
    check_choice("response", response, ("auto", "numeric", "category"))
    budget = parse_memory(memory)
    source = _source(X, "X")
    stored = None if isinstance(y, str) else open_source(y, "y")
    if stored is not None:
        features: Columns = _Header.of(source)
        target = _whole(stored, budget)
    else:
        features, target = split_response(_Header.of(source), y)
    if isinstance(target, _Header):
        target = _whole(source.pick(target.chosen), budget)
    check_rows(features, target)
    found = _looked(features, X, budget, missing)
    keep = tables.note_kept(found.judge(missing), tables.answered_rows(target, missing))
    answer = response_table(keep_rows(target, keep, "y"), response)
    (table,) = _tables([_kept(found, keep, budget)], ["X"], groups, budget, missing)
    return table, answer


def _source(data: Any, argument: str) -> Source:
    """Anything as a source; data in memory stays there."""
    if isinstance(data, Scan):
        return data.source
    source = open_source(data, argument)
    if source is None:
        columns = read_columns(data, argument)
        if not isinstance(columns.values, np.ndarray):
            raise InputError(
                f"{argument}: beside a table on disk NumPy arrays and data frames are taken, got "
                f"{type(data).__name__}; convert it to NumPy."
            )
        return MemorySource(columns, argument)
    for i, kind in enumerate(source.kinds):
        if kind not in _USABLE:
            source.refuse(i)
    return source


def _looked(header: Columns, data: Any, memory: int, missing: str) -> Scan:
    """What there is in the columns that a header chose, under its names; `data` may have been looked at already."""
    assert isinstance(header, _Header) and header.source is not None
    if isinstance(data, Scan):
        return data.pick(header.chosen, header.names)
    return scan(header.source.pick(header.chosen, header.names), memory, trust=missing == "error")


def _kept(found: Scan, keep: np.ndarray, memory: int) -> Scan:
    """What there is in the rows that are kept, which takes a second look where some are not."""
    if keep.all():
        return replace(found, keep=keep)
    require_two(keep, found.source.argument)
    return replace(scan(found.source, memory, within=keep), keep=keep)


def _tables(
    scans: Sequence[Scan], arguments: Sequence[str], groups: Mapping[str, Any] | None, memory: int, missing: str
) -> list[StoredTable]:
    """Tables with the same codes and the same float type, after a check of the range of the numbers over all."""
    for look, argument in zip(scans, arguments, strict=True):
        whole = np.array([kind == "integer" for kind in look.source.kinds])
        large = np.flatnonzero(whole & (np.maximum(-look.low, look.high) > EXACT))
        if large.size:
            raise InputError(
                f"{argument}: integers beyond 2^53 in {quoted(look.source.names[i] for i in large)} lose their "
                "differences where a table is read in pieces; subtract the smallest first, or leave these columns out."
            )
    if missing == "value":
        for look in scans:
            for i in look.levels:
                look.levels[i] |= {MISSING_LEVEL} if look.gaps[i] else set()
    dtype = harmonise([look.columns() for look in scans], arguments)[0].values.dtype
    levels = {i: tuple(sorted(set().union(*(look.levels[i] for look in scans)))) for i in sorted(scans[0].levels)}
    layout = layout_of(replace(scans[0].columns(), levels=levels), groups)
    found = []
    for look in scans:
        low, high = look.low.copy(), look.high.copy()
        for i, known in levels.items():
            codes = [code for code, level in enumerate(known) if level in look.levels[i]]
            low[i], high[i] = (codes[0], codes[-1]) if codes else (np.inf, -np.inf)
        gaps = None
        if missing in CELLS_STAY:
            coded = [i in levels and missing == "value" for i in range(len(low))]
            gaps = (look.gaps > 0) & ~np.array(coded)
        found.append(StoredTable(look.source, layout, levels, low, high, dtype, memory, Kept.of(look.keep), gaps))
    return found


def _whole(source: Source, memory: int) -> Columns:
    """All rows of a response, which has to be in memory."""
    size = source.n * len(source.names) * 8
    if size > answer_of(memory):
        raise InputError(
            f"memory: the response alone takes {size / 1e6:,.0f} MB, more than half of the {memory / 1e6:,.0f} MB that "
            "may be used; allow more."
        )
    return source.read(range(len(source.names)), 0, source.n)
