"""Which rows may change places under the null hypothesis: strata, pairs and units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kernsift.data.tables import Piece, Table
from kernsift.exceptions import InputError
from kernsift.execution.arrays import Array, asarray_like, namespace, to_numpy

# Strata with fewer rows than this on average are small: what alignment takes away matters there.
_SMALL = 8
# Noise of units that may differ between classes by this factor.
_UNEVEN = 1.5
# A numeric column with at most this many different values among its first rows is discrete, and is not aligned.
_DISCRETE, _LOOKED_AT = 16, 512
# Numbers of one array of aligned columns.
_NUMBERS = 2**22


@dataclass(frozen=True)
class Exchangeability:
    """The strata and units of n rows.

    Attributes
    ----------
    stratum : (n,) codes 0..S-1 of strata within which units are exchangeable; None for a single one.
    unit : (n,) codes 0..U-1 of units whose rows move together; None where each row is a unit.
    n : rows.
    left_out : rows that belong to no unit; they have the code U.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Exchangeability(np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 2, 3]), 5)
    >>> rows.units, rows.strata_of_units.tolist(), rows.informative(np.array([0, 1, 1, 1])).tolist()
    (4, [0, 0, 1, 1], [0, 1])
    """

    stratum: np.ndarray | None
    unit: np.ndarray | None
    n: int
    left_out: int = 0

    @property
    def units(self) -> int:
        return self.n if self.unit is None else len(self.unit_sizes)

    @cached_property
    def unit_sizes(self) -> np.ndarray:
        """(U,) rows of each unit."""
        if self.unit is None:
            return np.ones(self.n, dtype=int)
        sizes = np.bincount(self.unit)
        return sizes[:-1] if self.left_out else sizes

    @cached_property
    def first_rows(self) -> np.ndarray:
        """(U,) the first row of each unit."""
        return np.arange(self.n) if self.unit is None else np.unique(self.unit, return_index=True)[1][: self.units]

    @cached_property
    def strata_of_units(self) -> np.ndarray:
        """(U,) the stratum of each unit."""
        if self.stratum is None:
            return np.zeros(self.units, dtype=int)
        return self.stratum[self.first_rows]

    @property
    def small_strata(self) -> bool:
        """Whether strata have few rows, as pairs do."""
        return self.stratum is not None and self.n < _SMALL * len(np.unique(self.stratum))

    @property
    def large_strata(self) -> bool:
        return self.stratum is not None and not self.small_strata

    def informative(self, response: np.ndarray) -> np.ndarray:
        """The units of strata in which the response, one value for each unit, varies."""
        strata = self.strata_of_units
        order = np.argsort(strata, kind="stable")
        starts = np.flatnonzero(np.append(True, np.diff(strata[order]) != 0))
        low, high = (bound.reduceat(response[order], starts) for bound in (np.minimum, np.maximum))
        varies = np.zeros(int(strata.max()) + 1, dtype=bool)
        varies[strata[order][starts]] = high > low
        return np.flatnonzero(varies[strata])

    def evened(self, classes: np.ndarray, rng: np.random.Generator) -> Exchangeability:
        """The same with rows left out at random where units of some classes (units,) have more rows than others.

        The mean of few rows is noisier than that of many. Where noise depends on the label, units are not exchangeable
        even if nothing else differs. So the largest unit of each class keeps as many rows as the smallest of these
        largest units has, and so on down the order of sizes. Nothing is left out where the mean noise of the classes
        differs by less than half.
        """
        if self.unit is None:
            return self
        sizes = self.unit_sizes
        members = [np.flatnonzero(classes == one) for one in np.unique(classes)]
        noise = [float((1.0 / sizes[some]).mean()) for some in members]
        if max(noise) <= _UNEVEN * min(noise):
            return self
        levels = (np.arange(max(map(len, members))) + 0.5) / max(map(len, members))
        ordered = [np.sort(sizes[some]) for some in members]
        least = np.min([own[(levels * len(own)).astype(int)] for own in ordered], axis=0)
        keep = np.empty(len(sizes), dtype=int)
        for some in members:
            place = ((np.arange(len(some)) + 0.5) / len(some) * len(levels)).astype(int)
            keep[some[np.argsort(sizes[some], kind="stable")]] = least[place]
        keep = np.minimum(keep, sizes)
        shuffled = rng.permutation(self.n)
        order = shuffled[np.argsort(self.unit[shuffled], kind="stable")]
        rank = np.arange(self.n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        unit = self.unit.copy()
        out = order[rank >= np.repeat(keep, sizes)]
        unit[out] = len(sizes)
        return Exchangeability(self.stratum, unit, self.n, len(out))

    def take(self, rows: np.ndarray) -> Exchangeability:
        """The same for some of the rows."""

        def kept(codes: np.ndarray | None) -> np.ndarray | None:
            return None if codes is None else np.unique(codes[rows], return_inverse=True)[1].ravel()

        return Exchangeability(kept(self.stratum), kept(self.unit), len(rows))


class AlignedTable(Table):
    """A table whose numeric columns have each stratum's median subtracted (Hodges and Lehmann 1962).

    Permutations within strata leave the medians as they are, so that tests of the aligned values are valid. Discrete
    columns stay as they are unless `discrete` is given: their values, and not the distances between these, are what
    strata have in common.
    """

    def __init__(self, table: Table, rows: Exchangeability, *, discrete: bool = False) -> None:
        assert rows.stratum is not None
        parts = {name: getattr(table, name) for name in ("names", "offsets", "categorical", "levels")}
        self.__dict__.update(parts | {"_table": table, "_rows": rows, "_discrete": discrete})

    _table: Table
    _rows: Exchangeability
    _discrete: bool

    @property
    def values(self) -> Array:
        return self.part(slice(None))

    @property
    def n(self) -> int:
        return self._table.n

    @property
    def prototype(self) -> Array:
        return self._table.prototype

    def row_chunks(self, columns: np.ndarray, numbers: int) -> list[tuple[int, int]]:
        return self._table.row_chunks(columns, numbers)

    def pieces(self, columns: np.ndarray, numbers: int) -> Iterator[Piece]:
        for start, stop in self.row_chunks(columns, numbers):
            rows = slice(start, stop)
            yield Piece(rows, slice(0, len(columns)), self.part(columns, rows))

    def part(self, columns: slice | np.ndarray, rows: slice | np.ndarray | None = None) -> Array:
        values = self._table.part(columns, rows)
        stratum = self._rows.stratum
        assert stratum is not None
        medians = self._medians[stratum if rows is None else stratum[rows]][:, columns]
        return values - namespace(values).astype(asarray_like(medians, values), values.dtype)

    @cached_property
    def _medians(self) -> np.ndarray:
        """(S, p) medians of the value columns; 0 for those that are not aligned."""
        stratum = self._rows.stratum
        assert stratum is not None
        sizes = np.bincount(stratum)
        by_size = np.argsort(sizes, kind="stable")
        place = np.argsort(by_size)
        order = np.argsort(place[stratum], kind="stable")
        width = int(self.offsets[-1])
        out = np.zeros((len(sizes), width))
        columns = np.flatnonzero(np.repeat(~self.categorical, np.diff(self.offsets)))
        step = max(1, _NUMBERS // self.n)
        for start in range(0, len(columns), step):
            some = columns[start : start + step]
            values = to_numpy(self._table.part(some))
            if not self._discrete:
                kept = [len(np.unique(column)) > _DISCRETE for column in values[:_LOOKED_AT].T]
                some, values = some[kept], values[:, kept]
            values, first = values[order], 0
            for run in np.split(by_size, np.flatnonzero(np.diff(sizes[by_size])) + 1):
                n = int(sizes[run[0]])
                part = values[first : first + n * len(run)].reshape(len(run), n, -1)
                out[np.ix_(run, some)] = np.median(part, axis=1)
                first += n * len(run)
        return out


def held_in_memory(table: Table, argument: str) -> Table:
    """A table in memory: what `argument` asks for is worked out from all rows of a column at once."""
    if table.memory is None:
        return table
    needed = 8 * table.n * int(table.offsets[-1])
    if needed > table.memory:
        raise InputError(
            f"{argument}: holds the table in memory, which takes {needed / 1e6:,.0f} MB, but {table.memory / 1e6:,.0f} "
            "MB may be used; allow more with memory=, or pass fewer columns."
        )
    return table.loaded(slice(None))


def codes_of(values: Any) -> np.ndarray:
    """(n,) codes 0.. of the rows of an array (n, columns)."""
    return np.unique(np.asarray(values), axis=0, return_inverse=True)[1].ravel()
