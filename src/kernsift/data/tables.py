"""`Table`, the input of the statistics: a float array whose columns are grouped into features.

One column is one feature unless `groups` says otherwise. Categories are codes, and a value is a finite number or, where
missing values may stay, NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from kernsift.execution.arrays import Array, batch_numbers, namespace, take, to_numpy

MISSING_LEVEL = "(missing)"
"""The level that represents missing cells of a categorical column."""
# Tables up to this many bytes are copied, so that lazy computations do not depend on later changes of the input.
_COPIED = 2**26

__all__ = ["Table", "owned", "spaced_rows", "stack"]


class Piece(NamedTuple):
    """Some values of a table: `rows` among all, `columns` among those asked for."""

    rows: slice
    columns: slice
    values: Array


@dataclass(frozen=True)
class Table:
    """Rows of d features, each owning one or more columns of `values`.

    Attributes
    ----------
    names : the d feature names.
    values : (n, p) float64, or float32 where all the input was; a categorical column holds codes 0..L-1. An array of
        the library of the input, on its device.
    offsets : (d+1,); feature j owns the columns `offsets[j]:offsets[j+1]`.
    categorical : (d,) bool; a categorical feature has exactly one column.
    levels : the level names of each categorical feature, in the order of its codes.
    incomplete : (p,) bool: the value columns with missing values, which are NaN; None where no value is missing.
    origin : what was subtracted from features of dates and of integers beyond 2^53, as in `Columns`, which descriptions
        and pictures add again; False for truth values, a `numpy.timedelta64` for times and durations.

    Examples
    --------
    >>> from kernsift.data.inputs import as_table
    >>> table = as_table([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], groups={"both": [0, 1]})
    >>> table.names, table.offsets.tolist()
    (('both', 'x2'), [0, 2, 3])
    """

    names: tuple[str, ...]
    values: Array
    offsets: np.ndarray
    categorical: np.ndarray
    levels: Mapping[str, tuple[str, ...]]
    incomplete: np.ndarray | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)

    def _set(self, features: Any, **own: Any) -> None:
        """Set the attributes of a subclass, which has the features of a table or a layout; tables are frozen."""
        shared = {name: getattr(features, name) for name in ("names", "offsets", "categorical", "levels", "origin")}
        self.__dict__.update(shared | own)

    @property
    def n(self) -> int:
        """Rows."""
        return int(self.values.shape[0])

    @property
    def d(self) -> int:
        """Features."""
        return len(self.names)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables that are stacked, from top to bottom; the table itself where it is one."""
        return (self,)

    @property
    def memory(self) -> int | None:
        """Bytes that may be held at a time; None for a table that is in memory anyway."""
        return None

    @property
    def readable(self) -> bool:
        """Whether a worker can read the values itself, because they are not in the memory of this process."""
        return False

    def row_chunks(self, columns: np.ndarray, numbers: int) -> list[tuple[int, int]]:
        """Runs of rows, each of at most `numbers` values of these value columns."""
        step = max(1, numbers // max(len(columns), 1))
        return [(start, min(start + step, self.n)) for start in range(0, self.n, step)]

    def pieces(self, columns: np.ndarray, numbers: int) -> Iterator[Piece]:
        """All rows of some value columns in pieces of about `numbers` values."""
        for start, stop in self.row_chunks(columns, numbers):
            rows = slice(start, stop)
            yield Piece(rows, slice(0, len(columns)), self.part(columns, rows))

    def loaded(self, features: slice | np.ndarray, space: np.ndarray | None = None) -> Table:
        """The features at these positions, in memory; a table on disk may read them into `space` (n, columns)."""
        return self.select(np.arange(self.d)[features])

    def owned(self) -> Table:
        """The same with a copy of the values, which the caller cannot change later; large tables are not copied."""
        return self.with_values(self.values.copy(order="K")) if self.copied else self

    @property
    def copied(self) -> bool:
        """Whether `owned` copies the values."""
        return type(self) is Table and isinstance(self.values, np.ndarray) and self.values.nbytes <= _COPIED

    def reading(self) -> AbstractContextManager[Any]:
        """A context in which files stay open between reads."""
        return nullcontext()

    def above(self, others: Sequence[Table]) -> Table:
        """The rows of this table, and below them those of others."""
        return _Stacked([self, *others])

    @property
    def on_disk(self) -> bool:
        """Whether values are read from files."""
        return self.memory is not None

    @property
    def by_column(self) -> bool:
        """Whether reading some columns takes less time than reading all."""
        return True

    @property
    def prototype(self) -> Array:
        """An empty array with the library, device and type of the values."""
        return self.values[:0, :]

    @property
    def span(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The smallest and the largest number of each value column, where that is known without reading them."""
        return None

    @cached_property
    def constant(self) -> np.ndarray:
        """(d,) bool: the features all of whose rows are equal; missing values are a value of their own."""
        if self.span is not None:
            low, high = self.span
            return np.logical_and.reduceat(low == high, self.offsets[:-1])
        ends = to_numpy(self.part(slice(None), np.array([0, self.n // 2, self.n - 1])))
        # Few columns of numbers agree in three rows, and only those need to be read.
        suspect = np.flatnonzero((ends == ends[0]).all(axis=0))
        flat = np.zeros(ends.shape[1], dtype=bool)
        step = max(1, 64 * batch_numbers(self.prototype) // self.n)
        for start in range(0, len(suspect), step):
            some = suspect[start : start + step]
            values = self.part(some)
            flat[some] = to_numpy(namespace(values).all(values == values[:1, :], axis=0))
        if self.incomplete is not None:
            some = np.flatnonzero(self.incomplete)
            flat[some] = np.isnan(to_numpy(self.part(some))).all(axis=0)
        return np.logical_and.reduceat(flat, self.offsets[:-1])

    def part(self, columns: slice | np.ndarray, rows: slice | np.ndarray | None = None) -> Array:
        """Values (rows, columns) of some value columns, and of all rows unless some are named."""
        values = self.values
        if isinstance(columns, slice):
            values = values if columns == slice(None) else values[:, columns]
            return values if rows is None else take(values, rows, 0)
        return take(values if rows is None else take(values, rows, 0), columns, 1)

    def take(self, rows: np.ndarray) -> Table:
        """The rows at these positions, in this order, repeats allowed."""
        return self.with_values(self.part(slice(None), np.asarray(rows)))

    def with_values(self, values: Array) -> Table:
        """A table in memory with the same features and other rows."""
        return Table(self.names, values, self.offsets, self.categorical, self.levels, self.incomplete, self.origin)

    def select(self, features: np.ndarray) -> Table:
        """The features at these positions, in this order."""
        return self.sample(features, None)

    def sample(self, features: np.ndarray, rows: np.ndarray | None) -> Table:
        """The features at these positions, in this order, in memory; all rows unless some are named."""
        chosen = np.asarray(features, dtype=np.intp)
        offsets, columns = ranges(self.offsets[chosen], self.offsets[chosen + 1])
        names = tuple(map(self.names.__getitem__, chosen.tolist()))
        return Table(
            names=names,
            values=self.part(columns, rows),
            offsets=offsets,
            categorical=self.categorical[chosen],
            levels={name: self.levels[name] for name in names if name in self.levels},
            incomplete=None if self.incomplete is None else flags_or_none(self.incomplete[columns]),
            origin=self.origin,
        )


class _Stacked(Table):
    """Tables whose rows are concatenated. Their values are concatenated only when all are requested at once."""

    def __init__(self, tables: Sequence[Table]) -> None:
        found = [table.incomplete for table in tables if table.incomplete is not None]
        incomplete, ends = np.any(found, axis=0) if found else None, np.cumsum([table.n for table in tables])
        whole = _array_of_rows(tables)
        known = {} if whole is None else {"values": whole}
        self._set(tables[0], incomplete=incomplete, _tables=tuple(tables), _ends=ends, **known)

    _tables: tuple[Table, ...]
    _ends: np.ndarray

    @property
    def tables(self) -> tuple[Table, ...]:
        return self._tables

    @property
    def n(self) -> int:
        return int(self._ends[-1])

    @property
    def prototype(self) -> Array:
        return self.tables[0].prototype

    @property
    def memory(self) -> int | None:
        return min((table.memory for table in self.tables if table.memory is not None), default=None)

    @property
    def readable(self) -> bool:
        return all(table.readable for table in self.tables)

    @property
    def by_column(self) -> bool:
        return all(table.by_column for table in self.tables)

    @contextmanager
    def reading(self) -> Iterator[None]:
        with ExitStack() as open_files:
            for table in self.tables:
                open_files.enter_context(table.reading())
            yield

    @cached_property
    def values(self) -> Array:
        return self.part(slice(None))

    @property
    def span(self) -> tuple[np.ndarray, np.ndarray] | None:
        spans = [span for table in self.tables if (span := table.span) is not None]
        if len(spans) < len(self.tables):
            return None
        return np.min([low for low, _ in spans], axis=0), np.max([high for _, high in spans], axis=0)

    def row_chunks(self, columns: np.ndarray, numbers: int) -> list[tuple[int, int]]:
        return [
            (start + end - table.n, stop + end - table.n)
            for table, end in zip(self.tables, self._ends.tolist(), strict=True)
            for start, stop in table.row_chunks(columns, numbers)
        ]

    def pieces(self, columns: np.ndarray, numbers: int) -> Iterator[Piece]:
        for table, end in zip(self.tables, self._ends.tolist(), strict=True):
            before = end - table.n
            for rows, place, values in table.pieces(columns, numbers):
                yield Piece(slice(rows.start + before, rows.stop + before), place, values)

    def loaded(self, features: slice | np.ndarray, space: np.ndarray | None = None) -> Table:
        return _Stacked([table.loaded(features) for table in self.tables])

    def part(self, columns: slice | np.ndarray, rows: slice | np.ndarray | None = None) -> Array:
        if "values" in self.__dict__:
            return super().part(columns, rows)
        concat = namespace(self.prototype).concat
        if rows is None:
            return concat([table.part(columns) for table in self.tables], axis=0)
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(self.n)
            parts = []
            for table, end in zip(self.tables, self._ends.tolist(), strict=True):
                low, high = max(start - (end - table.n), 0), min(stop - (end - table.n), table.n)
                if low < high:
                    parts.append(table.part(columns, slice(low, high)))
            return parts[0] if len(parts) == 1 else concat(parts, axis=0)
        rows = np.asarray(rows)
        owner = np.searchsorted(self._ends, rows, side="right")
        parts = []
        for place, table in enumerate(self.tables):
            start = self._ends[place] - table.n
            parts.append(table.part(columns, rows[owner == place] - start))
        found = concat(parts, axis=0)
        if (owner[1:] >= owner[:-1]).all():
            return found
        order = np.empty(len(rows), dtype=np.intp)
        order[np.argsort(owner, kind="stable")] = np.arange(len(rows))
        return take(found, order, 0)


def stack(tables: Sequence[Table]) -> Table:
    """The concatenated rows of several tables with the same features and codes."""
    return tables[0] if len(tables) == 1 else tables[0].above(tables[1:])


def owned(tables: Sequence[Table]) -> list[Table]:
    """The same with copies of the values, as `Table.owned`, of tables with the same features.

    The copies are rows of one array, so that stacking them takes no more memory.
    """
    if not all(table.copied and table.values.dtype == tables[0].values.dtype for table in tables):
        return [table.owned() for table in tables]
    parts = [table.values for table in tables]
    rows = np.split(np.concatenate(parts), np.cumsum([len(part) for part in parts[:-1]]))
    return [table.with_values(own) for table, own in zip(tables, rows, strict=True)]


def _array_of_rows(tables: Sequence[Table]) -> np.ndarray | None:
    """The array whose rows are those of the tables, in this order, as those of `owned` are; None if there is none."""
    if any(type(table) is not Table or not isinstance(table.values, np.ndarray) for table in tables):
        return None
    whole = tables[0].values.base
    if type(whole) is not np.ndarray or whole.shape != (sum(table.n for table in tables), *tables[0].values.shape[1:]):
        return None
    start = 0
    for table in tables:
        own = whole[start : start + table.n]
        if own.__array_interface__ != table.values.__array_interface__:
            return None
        start += table.n
    return whole


def spaced_rows(n: int, most: int) -> np.ndarray:
    """At most `most` of n rows, evenly spaced; nothing is drawn, so that no random number depends on it.

    Examples
    --------
    >>> spaced_rows(9, 3).tolist(), spaced_rows(2, 3).tolist()
    ([0, 4, 8], [0, 1])
    """
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).round().astype(np.intp)


MOST_DESCRIBED, _SHOWN_ROWS = 2000, 5000
"""Listed features with a description; those with the largest scores come first. Rows that are shown of each table."""


def rows_to_show(n: int, features: int) -> np.ndarray:
    """The rows that pictures and descriptions show: fewer where there are many features."""
    return spaced_rows(n, min(_SHOWN_ROWS, 2**21 // max(1, min(features, MOST_DESCRIBED))))


def flags_or_none(flags: np.ndarray) -> np.ndarray | None:
    """The flags, or None where none is set."""
    return flags if flags.any() else None


def ranges(starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets of concatenated ranges, and their concatenated members."""
    offsets = np.concatenate([[0], np.cumsum(stops - starts)])
    return offsets, np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], stops - starts)
