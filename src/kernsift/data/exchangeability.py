"""Which rows may change places under the null hypothesis: strata, pairs and units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernsift.data.table_parts import run_of
from kernsift.data.tables import Piece, Table, spaced_rows
from kernsift.exceptions import InputError
from kernsift.execution.arrays import Array, asarray_like, dtype_of, namespace, on_host, take, to_numpy
from kernsift.execution.notes import add_note

# Strata with fewer rows than this on average are small: what alignment takes away matters there.
_SMALL = 4
# Variance of a midmean over that of a mean, and the interquartile range over the standard deviation, for normal values.
_MIDMEAN, _QUARTILES = 1.2, 1.349
# Locations of strata are shrunk to nothing where their variance is within so many standard errors of that of noise.
_CHANCE = 2.0
# Noise of units that may differ between classes by this factor.
_UNEVEN = 1.1
# A numeric column with at most this many different values among some of its rows is discrete, and is not aligned.
_DISCRETE, _LOOKED_AT = 16, 512
# The most rows of a stratum that its location is computed from.
_ENOUGH = 256
# Numbers of one array of aligned columns, more on a device; and rows that are aligned while they are in the cache.
_NUMBERS, _DEVICE_NUMBERS, _CHUNK = 2**22, 2**28, 2**8


@dataclass(frozen=True)
class Exchangeability:
    """The strata and units of n rows.

    Attributes
    ----------
    response : (n,) the sample or the value of the response of each row, as codes.
    stratum : (n,) codes 0..S-1 of strata within which units are exchangeable; None for a single one.
    unit : (n,) codes 0..U-1 of units whose rows move together; None where each row is a unit.
    left_out : rows that belong to no unit; they have the code U.

    Examples
    --------
    >>> import numpy as np
    >>> label = np.array([0, 0, 1, 1, 1])
    >>> rows = Exchangeability(label, np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 2, 3]))
    >>> rows.units, rows.strata_of_units.tolist(), rows.informative.tolist()
    (4, [0, 0, 1, 1], [0, 1])
    """

    response: np.ndarray
    stratum: np.ndarray | None
    unit: np.ndarray | None
    left_out: int = 0

    @property
    def n(self) -> int:
        return len(self.response)

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

    @property
    def described(self) -> str:
        """The numbers of units and strata that can be used."""
        used = self.strata_of_units[self.informative]
        strata = len(np.unique(used))
        if self.unit is None and len(used) == 2 * strata:
            return f"{strata:,} pairs"
        what = f"{len(used):,} {'rows' if self.unit is None else 'units'}"
        return what if self.stratum is None else f"{what} in {strata:,} strat{'um' if strata == 1 else 'a'}"

    @cached_property
    def responses(self) -> np.ndarray:
        """(U,) the response of each unit."""
        return self.response[self.first_rows]

    @cached_property
    def informative(self) -> np.ndarray:
        """The units of strata in which the response varies."""
        return np.flatnonzero(varies(self.strata_of_units, self.responses)[self.strata_of_units])

    def evened(self, rng: np.random.Generator) -> Exchangeability:
        """The same with rows left out at random where units with some responses have more rows than others.

        The mean of few rows is noisier than that of many. Where noise depends on the label, units are not exchangeable
        even if nothing else differs. So the largest unit of each class keeps as many rows as the smallest of these
        largest units has, and so on down the order of sizes. Nothing is left out where the mean noise of the classes
        differs by less than a tenth.
        """
        if self.unit is None:
            return self
        sizes, classes = self.unit_sizes, _classes(self.responses)
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
        add_note(
            f"unit: {len(out):,} of {self.n:,} rows are left out at random, so that units with different responses are "
            "equally noisy."
        )
        return Exchangeability(self.response, self.stratum, unit, len(out))

    def take(self, rows: np.ndarray) -> Exchangeability:
        """The same for some of the rows."""

        def kept(codes: np.ndarray | None) -> np.ndarray | None:
            return None if codes is None else np.unique(codes[rows], return_inverse=True)[1].ravel()

        return Exchangeability(self.response[rows], kept(self.stratum), kept(self.unit))

    def units_of(self, rows: np.ndarray) -> np.ndarray:
        """The units that some of the rows belong to, in the order in which `take` numbers them."""
        return rows if self.unit is None else np.unique(self.unit[rows])


def varies(group: np.ndarray, response: np.ndarray) -> np.ndarray:
    """(G,) bool: the groups, given as codes of rows, in which the response varies."""
    order = np.lexsort((response, group))
    own = group[order]
    changes = (np.diff(own) == 0) & (np.diff(response[order]) != 0)
    return np.bincount(own[1:][changes], minlength=int(own[-1]) + 1) > 0


def _classes(response: np.ndarray) -> np.ndarray:
    """Classes of a response (N,): its values where these are few, else the quarters of their order."""
    count = len(np.unique(response))
    if 4 * count <= len(response):
        return response
    return np.argsort(np.argsort(response, kind="stable")) * 4 // len(response)


class AlignedTable(Table):
    """A table whose numeric columns have the location of each stratum subtracted (Hodges and Lehmann 1962).

    The location is the midmean, the mean of the middle half. Permutations within strata leave it as it is, so that
    tests of the aligned values are valid. Midmeans of strata that do not differ are noise, which must not be
    subtracted: they are shrunk towards their mean by the share of their variance that noise explains (James and Stein
    1961).

    Discrete columns stay as they are: their values, and not the distances between these, are what strata have in
    common. With `every`, as for pairs, all columns are aligned, and nothing is shrunk.
    """

    def __init__(self, table: Table, rows: Exchangeability, *, every: bool = False) -> None:
        assert rows.stratum is not None
        parts = {name: getattr(table, name) for name in ("names", "offsets", "categorical", "levels", "incomplete")}
        strata, columns = int(rows.stratum.max()) + 1, int(table.offsets[-1])
        own = {"_known": np.zeros(columns, dtype=bool), "_found": np.zeros((strata, columns))}
        self.__dict__.update(parts | own | {"_table": table, "_rows": rows, "_every": every})

    _table: Table
    _rows: Exchangeability
    _every: bool
    # Locations (S, p) of the value columns that are known.
    _known: np.ndarray
    _found: np.ndarray

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
        found, own = self._locations(columns).astype(dtype_of(values)), stratum if rows is None else stratum[rows]
        if isinstance(values, np.ndarray):
            out = np.empty_like(values)
            for some in map(slice, range(0, len(own), _CHUNK), range(_CHUNK, len(own) + _CHUNK, _CHUNK)):
                np.subtract(values[some], found.take(own[some], axis=0), out=out[some])
            return out
        return values - take(asarray_like(found, values), own, 0)

    def _locations(self, columns: slice | np.ndarray) -> np.ndarray:
        """(S, columns) locations of value columns; 0 for those that are not aligned."""
        asked = np.arange(len(self._known))[columns]
        new = asked[~self._known[asked]]
        numeric = new[np.repeat(~self.categorical, np.diff(self.offsets))[new]]
        numbers = _NUMBERS if on_host(self.prototype) else _DEVICE_NUMBERS
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
        sizes = np.bincount(stratum)
        order = np.argsort(stratum, kind="stable")
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
        if not self._every:
            looked = self._table.part(run_of(columns), spaced_rows(self.n, _LOOKED_AT))
            xp = namespace(looked)
            looked = xp.sort(looked, axis=0)
            changes = xp.astype(looked[1:, :] > looked[:-1, :], xp.int64)
            columns = columns[to_numpy(xp.sum(changes, axis=0)) >= _DISCRETE]
        values, spread = self._table.part(run_of(columns), order), np.zeros(len(columns))
        for run in np.split(by_size, np.flatnonzero(np.diff(sizes[by_size])) + 1):
            n = int(sizes[run[0]])
            part = values[first : first + n * len(run), :]
            found, ranges = _midmeans(namespace(part).reshape(part, (len(run), n, len(columns))))
            self._found[np.ix_(run, columns)] = found
            spread += n * ranges.sum(axis=0)
            first += n * len(run)
        if not self._every:
            variance = (spread / len(order) / _QUARTILES) ** 2
            self._found[:, columns] = _shrunk(self._found[:, columns], _MIDMEAN * variance / sizes[:, None])


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
    if isinstance(values, np.ndarray):
        half = np.partition(values, sorted({low, high - 1}), axis=1)[:, low:high]
    else:
        half = xp.sort(values, axis=1)[:, low:high, :]
    return to_numpy(xp.mean(half, axis=1)), to_numpy(half[:, -1, :] - half[:, 0, :])


def _shrunk(locations: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Locations (S, p) less what is common to them, each shrunk by its share of noise (S, p)."""
    centred, free, expected = locations - locations.mean(axis=0), max(len(locations) - 1, 1), noise.mean(axis=0)
    variance = (centred**2).sum(axis=0) / free
    # What noise alone may well make is taken for noise.
    between = np.where(variance > (1.0 + _CHANCE * np.sqrt(2.0 / free)) * expected, variance - expected, 0.0)
    total = between + noise
    return np.asarray(centred * between / np.where(total > 0, total, 1.0))


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


def codes_of(target: Table) -> np.ndarray:
    """(n,) codes of the rows of a response, equal where all its columns are."""
    return np.unique(to_numpy(target.values), axis=0, return_inverse=True)[1].ravel()
