"""Tables with the location of each stratum subtracted."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from kernsift.data.rows.exchangeability import Exchangeability
from kernsift.data.sparse import SparseTable, StoredColumns
from kernsift.data.table_parts import run_of
from kernsift.data.tables import Table, spaced_rows
from kernsift.execution.arrays import Array, asarray_like, dtype_of, namespace, on_host, take, to_numpy
from kernsift.execution.codes import code_dtype

# Variance of a midmean over that of a mean, and the interquartile range over the standard deviation, for normal values.
_MIDMEAN, _QUARTILES = 1.2, 1.349
# Locations of strata are shrunk to 0 where their variance is within this many standard errors of that of noise.
_CHANCE = 2.0
# A numeric column with at most this many different values among some of its rows is discrete, and is not aligned.
_DISCRETE, _SAMPLED_ROWS = 16, 512
# Aligned values that agree in this share of the digits of a column are ties: locations of pairs are means, so that
# equal differences of decimal numbers would differ by rounding errors.
_DIGITS = 0.8
# The most rows of a stratum that its location is computed from.
_ENOUGH = 256
# Numbers of one array of aligned columns, more on a device.
_NUMBERS, _DEVICE_NUMBERS = 2**22, 2**28


def aligned(table: Table, rows: Exchangeability) -> Table:
    """The table less the locations of strata, where these have enough rows to estimate them."""
    if rows.stratum is None or rows.small_strata:
        return table
    return AlignedSparseTable(table, rows) if isinstance(table, SparseTable) else AlignedTable(table, rows)


class AlignedTable(Table):
    """A table whose numeric columns have the location of each stratum subtracted (Hodges and Lehmann 1962).

    The location is the midmean, the mean of the middle half. Permutations within strata leave it as it is, so that
    tests of the aligned values are valid. Midmeans of strata that do not differ are noise, which must not be
    subtracted: they are shrunk towards their mean by the share of their variance that noise explains (James and Stein
    1961).

    Discrete columns stay as they are: their values, and not the distances between these, are what strata have in
    common. With `every`, as for pairs, all columns are aligned, nothing is shrunk, and values that differ by rounding
    errors are equal.
    """

    def __init__(self, table: Table, rows: Exchangeability, *, every: bool = False) -> None:
        locations = _StratumLocations(table, rows, every)
        self._set(table, incomplete=table.incomplete, _table=table, _locations=locations)

    _table: Table
    _locations: _StratumLocations

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

    def part(self, columns: slice | np.ndarray, rows: slice | np.ndarray | None = None) -> Array:
        return self._locations.subtracted(self._table.part(columns, rows), columns, rows)


class AlignedSparseTable(SparseTable):
    """The same of a sparse table. Locations of columns most of whose values are 0 in each stratum are 0."""

    def __init__(self, table: SparseTable, rows: Exchangeability) -> None:
        super().__init__(table.layout, table.parts, table.dtype)
        self.__dict__.update(_table=table, _rows=rows, _locations=_StratumLocations(table, rows))

    _table: SparseTable
    _rows: Exchangeability
    _locations: _StratumLocations

    def select(self, features: np.ndarray) -> SparseTable:
        return AlignedSparseTable(self._table.select(features), self._rows)

    def part(self, columns: slice | np.ndarray, rows: slice | np.ndarray | None = None) -> np.ndarray:
        found: np.ndarray = self._locations.subtracted(self._table.part(columns, rows), columns, rows)
        return found

    def stored(self, columns: np.ndarray) -> StoredColumns:
        found = self._table.stored(columns)
        moved = np.flatnonzero(self._locations.of(columns).any(axis=0))
        if not len(moved):
            return found
        values, rows = (np.split(part, found.offsets[1:-1]) for part in (found.values, found.rows))
        for place in moved.tolist():
            [dense] = self.part(columns[[place]]).T
            rows[place] = np.flatnonzero(dense)
            values[place] = dense[rows[place]]
        offsets = np.concatenate([[0], np.cumsum([len(own) for own in rows])])
        return StoredColumns(np.concatenate(values), np.concatenate(rows), offsets, self.n)


class _StratumLocations:
    """The locations of strata that are subtracted from the columns of a table, found when they are first asked for."""

    def __init__(self, table: Table, rows: Exchangeability, every: bool = False) -> None:
        assert rows.stratum is not None
        self._table, self._rows, self._every = table, rows, every
        strata, columns = int(rows.stratum.max()) + 1, int(table.offsets[-1])
        self._known, self._found = np.zeros(columns, dtype=bool), np.zeros((strata, columns))
        self._steps = np.zeros(columns)  # aligned values are rounded to multiples of these; 0 for no rounding

    def subtracted(self, values: Array, columns: slice | np.ndarray, rows: slice | np.ndarray | None) -> Array:
        """Values (rows, columns) less the locations of their strata."""
        stratum = self._rows.stratum
        assert stratum is not None
        found, own = self.of(columns).astype(dtype_of(values)), stratum if rows is None else stratum[rows]
        steps = self._steps[columns].astype(found.dtype)
        out = values - take(asarray_like(found, values), own, 0)
        if not steps.any():
            return out
        xp, there = namespace(values), asarray_like(steps, values)
        return xp.where(there > 0, xp.round(out / xp.where(there > 0, there, 1.0)) * there, out)

    def of(self, columns: slice | np.ndarray) -> np.ndarray:
        """(S, columns) locations of value columns; 0 for those that are not aligned."""
        asked = np.arange(len(self._known))[columns]
        new = asked[~self._known[asked]]
        numeric = new[np.repeat(~self._table.categorical, np.diff(self._table.offsets))[new]]
        numbers = _NUMBERS if on_host(self._table.prototype) else _DEVICE_NUMBERS
        step = max(1, numbers // len(self._sorted[0]))
        for start in range(0, len(numeric), step):
            self._locate(numeric[start : start + step])
        self._known[new] = True
        return self._found[:, columns]

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows that locations are computed from, by stratum and these by size; and the numbers (S,) of them."""
        stratum = self._rows.stratum
        assert stratum is not None
        order = np.argsort(stratum.astype(code_dtype(np, int(stratum.max()) + 1)), kind="stable")
        if self._rows.unit is not None and self._rows.left_out:
            # Units with many rows must not be nearer to the location than others.
            order = order[self._rows.unit[order] < self._rows.units]
        sizes = np.bincount(stratum[order])
        if sizes.max() > _ENOUGH:
            # Rows that are evenly spaced in large strata are enough for their locations.
            rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            order = order[rank % np.repeat(-(-sizes // _ENOUGH), sizes) == 0]
            sizes = np.bincount(stratum[order], minlength=len(sizes))
        place = np.argsort(np.argsort(sizes, kind="stable"))
        return order[np.argsort(place[stratum[order]], kind="stable")], sizes

    def _locate(self, columns: np.ndarray) -> None:
        """Find the locations of numeric columns."""
        order, sizes = self._sorted
        by_size, first = np.argsort(sizes, kind="stable"), 0
        if isinstance(self._table, SparseTable):
            columns = columns[self._middle_differs(self._table.stored(columns).within(order))]
        if not len(columns):
            return
        if not self._every:
            sample = self._table.part(run_of(columns), spaced_rows(self._table.n, _SAMPLED_ROWS))
            xp = namespace(sample)
            sample = xp.sort(sample, axis=0)
            changes = xp.astype(sample[1:, :] > sample[:-1, :], xp.int64)
            columns = columns[to_numpy(xp.sum(changes, axis=0)) >= _DISCRETE]
        values, spread = self._table.part(run_of(columns), order), np.zeros(len(columns))
        for run in np.split(by_size, np.flatnonzero(np.diff(sizes[by_size])) + 1):
            n = int(sizes[run[0]])
            part = values[first : first + n * len(run), :]
            found, ranges = _midmeans(namespace(part).reshape(part, (len(run), n, len(columns))))
            self._found[np.ix_(run, columns)] = found
            spread += n * ranges.sum(axis=0)
            first += n * len(run)
        if self._every:
            largest = to_numpy(namespace(values).abs(values))
            largest = np.where(np.isnan(largest), 0.0, largest).max(axis=0)
            digits = int(_DIGITS * (np.finfo(largest.dtype).nmant + 1))
            self._steps[columns] = np.where(largest > 0, np.ldexp(1.0, np.frexp(largest)[1] - digits), 0.0)
        else:
            variance = (spread / len(order) / _QUARTILES) ** 2
            self._found[:, columns] = _shrunk(self._found[:, columns], _MIDMEAN * variance / sizes[:, None])

    def _middle_differs(self, stored: StoredColumns) -> np.ndarray:
        """(b,) bool: the columns whose middle half is not 0 throughout in some stratum, from the rows of locations."""
        order, sizes = self._sorted
        assert self._rows.stratum is not None
        b, place = len(stored.counts), self._rows.stratum[order][stored.rows]
        place = place + len(sizes) * np.repeat(np.arange(b), stored.counts)
        signs = [np.bincount(place[some], minlength=b * len(sizes)) for some in (stored.values > 0, stored.values < 0)]
        return np.asarray((np.maximum(*signs).reshape(b, -1) > sizes // 4).any(axis=1))


def _midmeans(values: Array) -> tuple[np.ndarray, np.ndarray]:
    """(s, p) means of the middle half of values (s, n, p), and the ranges of that half; missing values are left out."""
    xp, n = namespace(values), values.shape[1]
    if bool(xp.any(xp.isnan(values))):
        values = to_numpy(values)
        known = np.isnan(values).sum(axis=1) < n
        values = np.where(known[:, None], values, 0.0)
        low, middle, high = np.nanquantile(values, [0.25, 0.5, 0.75], axis=1)
        return np.asarray(middle), np.asarray(high - low)
    low, high = n // 4, n - n // 4
    if low == 0:
        return to_numpy(xp.mean(values, axis=1)), to_numpy(xp.max(values, axis=1) - xp.min(values, axis=1))
    if isinstance(values, np.ndarray):
        half = np.partition(values, sorted({low, high - 1}), axis=1)[:, low:high]
    else:
        half = xp.sort(values, axis=1)[:, low:high, :]
    return to_numpy(xp.mean(half, axis=1)), to_numpy(half[:, -1, :] - half[:, 0, :])


def _shrunk(locations: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Locations (S, p) less what is common to them, each shrunk by its share of noise (S, p)."""
    centred, free, expected = locations - locations.mean(axis=0), max(len(locations) - 1, 1), noise.mean(axis=0)
    variance = (centred**2).sum(axis=0) / free
    # Variation that noise alone can explain is taken as noise.
    between = np.where(variance > (1.0 + _CHANCE * np.sqrt(2.0 / free)) * expected, variance - expected, 0.0)
    total = between + noise
    return np.asarray(centred * between / np.where(total > 0, total, 1.0))
