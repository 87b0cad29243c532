"""Which rows may change places under the null hypothesis: strata, pairs and units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kernsift.data.columns import Annotations, Columns, quoted
from kernsift.data.formats import Source, open_table
from kernsift.data.named_columns import take_columns
from kernsift.data.sparse import SparseTable
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
# The fewest values of an identifier, and the most columns of features and of `obs` that are checked for being one.
_FEWEST_SUBJECTS, _CHECKED, _DESCRIBED = 6, 16, 64
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
        return np.flatnonzero(_varies(self.strata_of_units, self.responses)[self.strata_of_units])

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


def _varies(group: np.ndarray, response: np.ndarray) -> np.ndarray:
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


def note_identifiers(
    table: Table,
    response: np.ndarray,
    described: Sequence[Annotations | None] = (),
    keep: np.ndarray | None = None,
    used: Any = None,
) -> None:
    """Note columns that look like identifiers of subjects: values repeat, each with one response.

    Parameters
    ----------
    table, response : the features, and the response (n,) as codes.
    described : columns that describe the rows, as `obs` of AnnData objects, of tables one below the other.
    keep : which of their rows are in the table.
    used : the name of one of these that the response comes from.
    """
    if table.n < 2 * _FEWEST_SUBJECTS:
        return
    found = dict(_identifiers(table, response))
    tables = [one for one in described if one is not None]
    if tables and len(tables) == len(described):
        for name in [name for name in tables[0].names if name != used][:_DESCRIBED]:
            if all(name in one.names for one in tables):
                column = _described(tables, name)
                found[name] = _subjects(column if keep is None else column[keep], response)
    for name, count in found.items():
        if count:
            add_note(
                f"'{name}' looks like an identifier: its {count:,} values repeat, each with one response. Rows may not "
                f"be independent, which makes p-values too small; use unit='{name}'."
            )


def _identifiers(table: Table, response: np.ndarray) -> Iterator[tuple[str, int]]:
    """Names of the features that may be identifiers, and how many subjects they tell apart."""
    if isinstance(table, SparseTable):  # whose columns are mostly 0, which identifiers are not
        return
    single = np.flatnonzero(np.diff(table.offsets) == 1)
    # A few rows tell most columns of numbers that are not whole. Rows of a subject often follow each other, so that the
    # first rows may have one value.
    looks = [np.arange(_FEWEST_SUBJECTS), spaced_rows(table.n, _LOOKED_AT)]
    if table.memory is not None:
        # Of a table in files the first rows of both samples are read, of columns that may have whole numbers.
        if table.span is None:
            return
        low, high = (bound[table.offsets[single]] for bound in table.span)
        single = single[(low == np.floor(low)) & (high == np.floor(high)) & (high - low >= _FEWEST_SUBJECTS - 1)]
        looks = [np.unique([*range(min(table.n, _LOOKED_AT)), *np.flatnonzero(response == response[-1])[:_LOOKED_AT]])]
    for rows in looks:
        if not len(single):
            return
        first = to_numpy(table.part(run_of(table.offsets[single]), rows))
        single, first = single[whole := (first == np.floor(first)).all(axis=0)], first[:, whole]
    if table.memory is None:
        single = single[[len(np.unique(column)) >= _FEWEST_SUBJECTS for column in first.T]]
    else:
        single = single[[_one_response(column, response[rows]) for column in first.T]]
    for feature in single[:_CHECKED]:
        yield table.names[feature], _subjects(to_numpy(table.part(table.offsets[[feature]]))[:, 0], response)


def _described(tables: Sequence[Annotations], name: str) -> np.ndarray:
    """(n,) one column of several tables as numbers: texts have codes, and what cannot be read is missing."""
    known: dict[str, int] = {}
    parts = []
    for one in tables:
        with suppress(InputError):
            cells = one.column(name, "obs")
            own, levels = to_numpy(cells.values)[:, 0].astype(float), cells.levels.get(0)
            if levels:
                codes = np.array([known.setdefault(level, len(known)) for level in levels], dtype=float)
                own = np.where(np.isnan(own), np.nan, codes[np.nan_to_num(own).astype(int)])
            parts.append(own)
    return np.concatenate(parts) if len(parts) == len(tables) else np.zeros(0)


def _subjects(column: np.ndarray, response: np.ndarray) -> int:
    """The number of subjects that a column (n,) tells apart; 0 where it does not look like an identifier."""
    known = ~np.isnan(column)
    if len(column) != len(response) or (column[known] != np.floor(column[known])).any():
        return 0
    values, first, sizes = np.unique(column[known], return_index=True, return_counts=True)
    each = np.unique(response[known][first], return_counts=True)[1]
    # By chance some small values have one response; that all of them have is no chance.
    repeated = len(values) >= _FEWEST_SUBJECTS and np.median(sizes) >= 2 and len(each) >= 2
    return len(values) if repeated and _one_response(column[known], response[known]) else 0


def _one_response(column: np.ndarray, response: np.ndarray) -> bool:
    """Whether rows with the same value of a column have the same response."""
    return not _varies(np.unique(column, return_inverse=True)[1].ravel(), response).any()


# From arguments ------------------------------------------------------------------------------------------------------


class RowArguments:
    """The arguments `strata`, `paired` and `unit` of a question, taken out of its tables."""

    def __init__(self, question: str, strata: Any, paired: Any, unit: Any) -> None:
        self._question = question
        if isinstance(paired, bool | np.bool_) and not paired:
            paired = None
        self._given = {
            name: value for name, value in (("strata", strata), ("paired", paired), ("unit", unit)) if value is not None
        }
        if "paired" in self._given and len(self._given) > 1:
            other = next(name for name in self._given if name != "paired")
            raise InputError(
                f"paired: pairs are strata of two rows, which cannot be combined with {other}=; use strata= and unit= "
                "for more rows than two."
            )
        self._labels: dict[str, list[np.ndarray]] = {name: [] for name in self._given}
        self._sources = dict.fromkeys(self._given, "rows in their order")

    def __bool__(self) -> bool:
        return bool(self._given)

    def __str__(self) -> str:
        return " and ".join(f"{name}=" for name in self._given)

    @property
    def only_units(self) -> bool:
        return set(self._given) == {"unit"}

    def settings(self, rows: Exchangeability) -> dict[str, str]:
        """Where strata, pairs and units come from, and how many of them can be used."""
        used = rows.strata_of_units[rows.informative]
        strata = len(np.unique(used))
        counts = {"strata": f"{strata:,} strata", "paired": f"{strata:,} pairs", "unit": f"{len(used):,} units"}
        return {name: f"{source}: {counts[name]}" for name, source in self._sources.items()}

    @property
    def reads_whole_columns(self) -> bool:
        """Whether all rows of a column are needed at once."""
        return "strata" in self._given or "paired" in self._given

    def split_samples(self, X: Any, Y: Any, **options: Any) -> tuple[Any, Any]:
        """The tables without the columns that the arguments name; Y is None where X holds both samples."""
        if Y is None:
            if self._given.get("paired") is True:
                raise InputError(
                    "paired: True pairs the rows of X and Y in their order, but there is one table; name the column "
                    'that identifies pairs, as in paired="patient".'
                )
            return self.split(X, **options), None
        tables: list[Source] = [open_table(data, name, **options) for data, name in ((X, "X"), (Y, "Y"))]
        for argument, given in self._given.items():
            if given is True:
                if tables[0].n != tables[1].n:
                    raise InputError(
                        f"paired: True pairs the rows of X and Y in their order, but X has {tables[0].n} rows and Y "
                        f"has {tables[1].n}; pass as many, or name the column that identifies pairs."
                    )
                self._labels[argument] += [np.arange(table.n).astype(str) for table in tables]
                continue
            named = isinstance(given, str) or (isinstance(given, list) and all(isinstance(one, str) for one in given))
            if not named and not (isinstance(given, list | tuple) and len(given) == 2):
                raise InputError(
                    f"{argument}: for two tables a column name or a pair of arrays, one for each, is needed, got "
                    f"{type(given).__name__}; pass ({argument}_of_X, {argument}_of_Y)."
                )
            parts = [given, given] if named else list(given)
            for place, part in enumerate(parts):
                tables[place], columns = take_columns(tables[place], part, argument, table="XY"[place])
                self._keep(argument, columns)
        return tables[0], tables[1]

    def split(self, X: Any, **options: Any) -> Any:
        """One table without the columns that the arguments name."""
        source: Any = open_table(X, "X", **options)
        for argument, given in self._given.items():
            if given is True:
                raise InputError(
                    'paired: needs the column or array that identifies pairs here, got True; use paired="patient".'
                )
            source, columns = take_columns(source, given, argument, table="X")
            self._keep(argument, columns)
        return source

    def _keep(self, argument: str, columns: Columns) -> None:
        self._labels[argument].append(labels_of(columns))
        self._sources[argument] = " and ".join(columns.names) if columns.named else "given as an array"

    def keep(self, keep: np.ndarray, missing: str, samples: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """Those of the rows that are kept which have a stratum, a unit, and the other row of their pair.

        Parameters
        ----------
        keep : which rows of the tables, one below the other, are kept.
        samples : which rows of one table are in each of two samples.
        """
        found = keep.copy()
        for argument, labels in self._stacked(samples).items():
            absent = np.array([label is None for label in labels], dtype=bool) & keep
            if absent.any():
                if missing == "error":
                    raise InputError(
                        f"{argument}: {int(absent.sum())} rows have no value; fill them in, leave these rows out, or "
                        "use missing='drop'."
                    )
                add_note(f"{argument}: {int(absent.sum()):,} rows have no value and are left out.")
                found &= ~absent
            if argument == "paired" and not keep.all():
                gone = set(labels[~keep])
                alone = np.array([label in gone for label in labels], dtype=bool) & found
                if alone.any():
                    count = len(set(labels[alone]))
                    add_note(
                        f"paired: {count:,} pair{'' if count == 1 else 's'} with a missing value in one row "
                        f"{'is' if count == 1 else 'are'} left out."
                    )
                    found &= ~alone
        if not found.any():
            raise InputError(f"{self}: no row is left that has a value; pass other columns.")
        return found

    def rows(
        self, response: np.ndarray, keep: np.ndarray, samples: Sequence[np.ndarray] | None = None
    ) -> Exchangeability:
        """What the arguments say of the rows that are kept, whose sample or response, as codes, is `response`."""
        found = {argument: labels[keep] for argument, labels in self._stacked(samples).items()}
        return _checked(found, response, self._question)

    def _stacked(self, samples: Sequence[np.ndarray] | None) -> dict[str, np.ndarray]:
        """The labels of all rows; with `samples` of one table, those of the first and then those of the second."""
        found = self._labels
        if samples is not None:
            found = {argument: [labels[0][some] for some in samples] for argument, labels in found.items()}
        return {argument: np.concatenate(labels) for argument, labels in found.items()}


def labels_of(columns: Columns) -> np.ndarray:
    """(n,) one label for each row, None where it is missing; several columns make one label together."""
    values = to_numpy(columns.values)
    parts = []
    for place in range(values.shape[1]):
        own, levels = values[:, place], columns.levels.get(place)
        start = columns.origin.get(place, 0)
        names = np.empty(len(own), dtype=object)
        known, inverse = np.unique(own, return_inverse=True)
        texts = [
            None
            if np.isnan(value)
            else levels[int(value)]
            if levels
            else f"{int(value) + start}"
            if float(value).is_integer()
            else repr(float(value))
            for value in known
        ]
        names[:] = np.array(texts, dtype=object)[inverse.ravel()]
        parts.append(names)
    if len(parts) == 1:
        return parts[0]
    rows = zip(*parts, strict=True)
    return np.array([None if None in row else " / ".join(row) for row in rows], dtype=object)


def _checked(labels: dict[str, np.ndarray], response: np.ndarray, question: str) -> Exchangeability:
    """Codes of strata and units, after checks of what they say about the response."""
    unit = strata = None
    if "unit" in labels:
        names, unit = np.unique(labels["unit"].astype(str), return_inverse=True)
        _check_units(names, unit.ravel(), response, question)
        unit = unit.ravel()
    argument = "paired" if "paired" in labels else "strata"
    if argument in labels:
        known, strata = np.unique(labels[argument].astype(str), return_inverse=True)
        strata = strata.ravel()
        if argument == "paired":
            _check_pairs(known, strata, response, question)
    if unit is not None and len(names) == len(unit):
        add_note("unit: each unit has one row, so that rows count as units.")
        unit = None
    rows = Exchangeability(response, strata, unit)
    if strata is not None:
        if unit is not None:
            _check_nested(names, rows)
        _check_strata(known, rows, argument, question)
    return rows


def _check_units(names: np.ndarray, unit: np.ndarray, response: np.ndarray, question: str) -> None:
    mixed = np.flatnonzero(_varies(unit, response))
    if len(mixed):
        which = _some(names[mixed])
        raise InputError(
            f"unit: {which} has rows in both samples, but a unit belongs to one; use paired= or strata= for units that "
            "were measured in both."
            if question == "compare"
            else f"unit: the response varies within {which}, but it must belong to the unit; use strata= for "
            "association within units, or aggregate their rows."
        )


def _check_pairs(names: np.ndarray, pair: np.ndarray, response: np.ndarray, question: str) -> None:
    sizes = np.bincount(pair)
    wrong = np.flatnonzero(sizes != 2)
    if question == "compare" and not len(wrong):
        wrong = np.flatnonzero(np.bincount(pair, response) != 1)
    if len(wrong):
        many = int(sizes[wrong[0]])
        needed = "one row in each sample" if question == "compare" else "two rows"
        raise InputError(
            f"paired: each pair needs {needed}, but {_some(names[wrong])} has {many} row{'s' if many > 1 else ''}"
            f"{' in one sample' if many == 2 else ''}; leave it out, or use strata= for groups of other sizes."
        )


def _check_nested(names: np.ndarray, rows: Exchangeability) -> None:
    assert rows.stratum is not None and rows.unit is not None
    outside = rows.stratum != rows.strata_of_units[rows.unit]
    if outside.any():
        raise InputError(
            f"strata: {_some(names[np.unique(rows.unit[outside])])} has rows in several strata, but a unit must be "
            "within one; name units by stratum, or leave out strata=."
        )


def _check_strata(names: np.ndarray, rows: Exchangeability, argument: str, question: str) -> None:
    what = "sample" if question == "compare" else "response"
    sizes = np.bincount(rows.strata_of_units, minlength=len(names))
    if sizes.max() < 2:
        thing = "row" if rows.unit is None else "unit"
        raise InputError(
            f"{argument}: each stratum has one {thing}, so that nothing can be exchanged within strata; use unit= if "
            "these are subjects with several rows, or wider strata."
        )
    used = np.unique(rows.strata_of_units[rows.informative])
    if not len(used):
        raise InputError(
            f"{argument}: the {what} is constant within each of the {len(names)} strata, so that nothing can be "
            "exchanged within them; use unit= if these are what was labelled, or other strata."
        )
    lost = np.setdiff1d(np.arange(len(names)), used)
    if len(lost):
        count = int(rows.unit_sizes[np.isin(rows.strata_of_units, lost)].sum())
        add_note(
            f"The {what} is constant in {len(lost)} of {len(names)} strata ({quoted(names[lost].tolist())}); their "
            f"{count:,} rows are used for nothing."
        )


def _some(names: np.ndarray) -> str:
    return f"'{names[0]}'" if len(names) == 1 else f"'{names[0]}' (and {len(names) - 1} more)"
