"""Any table a user may hold, read into one float array: numbers as they are, categories as codes, missing as NaN.

This file knows the containers (NumPy, other array libraries, SciPy sparse, everything narwhals reads), the column types
and what a usable cell is. Arrays of other libraries stay there, on their device. What the columns mean to each other
(two samples, a response, groups) is the business of `tables`.
"""

from __future__ import annotations

import datetime
import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from difflib import get_close_matches
from functools import cached_property, lru_cache
from numbers import Real
from typing import Any, NoReturn

import narwhals as nw
import numpy as np
from array_api_compat import device, is_torch_array
from scipy import sparse

from kernsift.exceptions import InputError
from kernsift.execution.arrays import Array, accumulator_dtype, is_array, namespace, take, to_numpy
from kernsift.execution.threads import parallel_map

MICROSECONDS = 86400e6
"""Microseconds of a day: dates and durations are numbers of days."""

# Beyond this, float64 does not tell neighbouring integers apart.
EXACT = 2**53

LARGEST_DENSE = 50_000_000
"""A sparse matrix is made dense up to this many cells (0.4 GB of float64)."""

CELLS_STAY = ("column", "value")
"""Ways to treat missing values that leave no row out; they stay in the table as NaN."""
MISSING = (*CELLS_STAY, "drop", "error")
"""All ways to treat missing values."""
# Values whose extremes are found at a time, and those of which blocks save nothing.
_NUMBERS, _FEW = 2**19, 2**15

_PLAIN_NUMBERS = (
    *(nw.Int8, nw.Int16, nw.Int32, nw.Int64, nw.UInt8, nw.UInt16, nw.UInt32, nw.UInt64),
    *(nw.Float32, nw.Float64),
)


@dataclass(frozen=True)
class Columns:
    """A table as it was read, before it is checked for missing values or matched with another.

    Attributes
    ----------
    names : the p column names; made up from the position where the input has none.
    values : (n, p) float32 or float64; NaN marks a missing cell.
    levels : for the position of each categorical column its level names, in the order of its codes.
    kinds : the p kinds of columns: "float32", "float64", "integer", "truth", "date", "duration" (both in days), "text",
        "category" (declared as such), "mixed" (text and numbers) or "empty".
    named : whether the names are the user's own.
    flat : whether the input was one-dimensional.
    integers : the integers of each column with some beyond 2^53, as they came; any number in a missing cell.
    origin : what was subtracted from the integers of a column before they became floating-point numbers.
    """

    names: tuple[str, ...]
    values: Array
    levels: dict[int, tuple[str, ...]]
    kinds: tuple[str, ...]
    named: bool
    flat: bool
    integers: dict[int, np.ndarray] = field(default_factory=dict)
    origin: dict[int, int] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Rows."""
        return int(self.values.shape[0])

    @cached_property
    def extremes(self) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and the largest value of each column; NaN where a cell is missing."""
        values, xp, p = self.values, namespace(self.values), max(len(self.names), 1)

        def ends(some: Array) -> tuple[np.ndarray, np.ndarray]:
            with np.errstate(invalid="ignore"):
                return to_numpy(xp.min(some, axis=0)), to_numpy(xp.max(some, axis=0))

        if not isinstance(values, np.ndarray) or not values.flags.c_contiguous or values.size <= _FEW:
            return ends(values)
        # NumPy is slow on many short rows: some are taken as one. Blocks of them are in the cache for their maxima.
        fold = max(1, 256 // p)
        cut, step = self.n - self.n % fold, max(1, _NUMBERS // (fold * p))
        long = values[:cut].reshape(cut // fold, fold * values.shape[1])
        found = list(parallel_map(ends, [long[start : start + step] for start in range(0, len(long), step)]))
        low, high = ([part[end].reshape(fold, -1) for part in found] for end in (0, 1))
        return ends(np.concatenate([*low, values[cut:]]))[0], ends(np.concatenate([*high, values[cut:]]))[1]

    @property
    def incomplete(self) -> np.ndarray:
        """(p,) bool: the columns with a missing cell."""
        return np.isnan(self.extremes[0]) if self.n else np.zeros(len(self.names), dtype=bool)

    @cached_property
    def span(self) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and the largest value of each column that are there; infinity and its negative if none is."""
        low, high = self.extremes
        some = np.flatnonzero(self.incomplete)
        if not some.size:
            return low, high
        values = to_numpy(take(self.values, some, 1))
        low, high, there = low.copy(), high.copy(), ~np.isnan(values)
        low[some] = np.min(values, axis=0, where=there, initial=np.inf)
        high[some] = np.max(values, axis=0, where=there, initial=-np.inf)
        return low, high

    def take(self, rows: np.ndarray) -> Columns:
        """The rows at these positions."""
        integers = {i: found[rows] for i, found in self.integers.items()}
        return replace(self, values=take(self.values, rows, 0), integers=integers)

    def pick(self, positions: Sequence[int]) -> Columns:
        """The columns at these positions, in this order."""
        return replace(
            self,
            names=tuple(self.names[i] for i in positions),
            values=take(self.values, np.asarray(positions, dtype=np.intp), 1),
            levels={new: self.levels[old] for new, old in enumerate(positions) if old in self.levels},
            kinds=tuple(self.kinds[i] for i in positions),
            integers={new: self.integers[old] for new, old in enumerate(positions) if old in self.integers},
            origin={new: self.origin[old] for new, old in enumerate(positions) if old in self.origin},
        )

    def with_integers(self, read: Callable[[int], np.ndarray], positions: Iterable[int]) -> Columns:
        """The same with the integers `read(i)` of those columns at `positions` that have some beyond 2^53."""
        positions = list(positions)
        if not positions or self.n == 0:
            return self
        low, high = self.extremes
        # Missing cells hide the extremes.
        large = [i for i in positions if not (low[i] >= -EXACT and high[i] <= EXACT)]
        return replace(self, integers={i: read(i) for i in large}) if large else self


def read_columns(data: Any, argument: str, *, prefix: str = "x") -> Columns:
    """Read a table; `argument` is what error messages call it, `prefix` names the columns of unnamed arrays."""
    if is_array(data):
        columns = _from_library(data, argument, prefix)
    else:
        # Plain arrays, the usual case, need not be looked up among the data frames.
        frame = None if type(data) is np.ndarray else _frame(data, argument, prefix)
        columns = _from_array(_array(data, argument), argument, prefix) if frame is None else frame
    if columns.named and len(set(columns.names)) < len(columns.names):
        repeated = [name for name, count in Counter(columns.names).items() if count > 1]
        raise InputError(
            f"{argument}: column names must be unique, but {quoted(repeated)} occur more than once; rename them."
        )
    if columns.values.shape[1] == 0:
        raise InputError(
            f"{argument}: at least one column is needed, got a table of shape {tuple(columns.values.shape)}."
        )
    return columns


def require_together(arrays: Sequence[Array], arguments: Sequence[str]) -> None:
    """Refuse arrays of different array libraries or on different devices: nothing is moved behind the user's back."""
    places = [_place(values) for values in arrays]
    for argument, place in zip(arguments, places, strict=True):
        if place != places[0]:
            raise InputError(
                f"{argument}: an array of the same library and on the same device as {arguments[0]} is needed, but "
                f"{arguments[0]} is in {places[0]} and {argument} in {place}; convert or move one of them."
            )


def _place(values: Array) -> str:
    if isinstance(values, np.ndarray):
        return "NumPy"
    name = namespace(values).__name__.removeprefix("array_api_compat.")
    return f"{name} on {device(values)}"


def quoted(names: Iterable[Any], most: int = 5) -> str:
    """At most `most` names in quotes, then how many more there are."""
    listed = [text if len(text) <= 60 else f"{text[:57]}..." for text in map(str, names)]
    shown = ", ".join(f"'{name}'" for name in listed[:most])
    return shown + (f" and {len(listed) - most} more" if len(listed) > most else "")


def nearest(name: str, names: Iterable[str]) -> str:
    """A parenthesis with the most similar name, or nothing where none is similar."""
    lowered = {known.lower(): known for known in names}
    close = get_close_matches(name.lower(), lowered, n=1)
    return f" (did you mean '{lowered[close[0]]}'?)" if close else ""


@dataclass(frozen=True)
class Annotations:
    """Columns that describe the rows of a table and are no part of its features, such as `obs` of AnnData.

    Attributes
    ----------
    table : a data frame or a mapping, from names to columns.
    rows : positions of the rows that are left of it; None for all.
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


# Containers ----------------------------------------------------------------------------------------------------------


def _frame(data: Any, argument: str, prefix: str) -> Columns | None:
    """Read a data frame or series of any library that narwhals knows; None for everything else."""
    arrow = nw.dependencies.get_pyarrow()
    if arrow is not None and isinstance(data, arrow.Array):
        data = arrow.chunked_array([data])
    if arrow is not None and isinstance(data, arrow.RecordBatch):
        data = arrow.Table.from_batches([data])
    if isinstance(data, Mapping):
        parts = [read_columns(column, f"{argument}['{name}']") for name, column in data.items()]
        return side_by_side(parts, list(map(str, data)), argument)
    if isinstance(data, type):  # a class of frames, which some releases of narwhals take for a frame
        return None
    try:
        native = nw.from_native(data, allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        found = " ".join(str(error).split())
        raise InputError(f"{argument}: column names must be unique; rename the repeated ones ({found}).") from None
    if isinstance(native, nw.LazyFrame):
        raise InputError(
            f"{argument}: a table in memory is needed, got a lazy frame; call .collect() (or .compute()) first."
        )
    if isinstance(native, nw.Series):
        # Unnamed series carry None (pandas) or an empty string (polars, pyarrow).
        named = native.name is not None and str(native.name) != ""
        name = str(native.name) if named else f"{prefix}0"
        read = _assemble([_series_column(native, name, argument)], (name,), named, True)
        return read.with_integers(lambda i: _integers(native), _long_integers([native.dtype]))
    return _from_frame(native, argument) if isinstance(native, nw.DataFrame) else None


def side_by_side(parts: Sequence[Columns], names: Sequence[str], argument: str) -> Columns:
    """One table from several columns of one length."""
    odd = [name for name, part in zip(names, parts, strict=True) if part.values.shape != (parts[0].n, 1)]
    if odd:
        raise InputError(
            f"{argument}: columns of one length are needed, but {quoted(odd)} differ; pass one value a row."
        )
    read = [_Column(to_numpy(part.values)[:, 0], part.kinds[0], part.levels.get(0)) for part in parts]
    return _assemble(read, tuple(names), True, False)


def _from_frame(frame: nw.DataFrame[Any], argument: str) -> Columns:
    """Plain numbers are copied in one go, however many columns they fill; the other columns are read one by one."""
    names = tuple(str(name) for name in frame.columns)
    types = list(frame.schema.values())
    plain = [i for i, kind in enumerate(types) if isinstance(kind, _PLAIN_NUMBERS)]
    named = {kind: _number_kind(kind) for kind in set(types)}  # there may be a million columns, but few types
    kinds = [named[kind] for kind in types]
    if plain and len(plain) == len(names):
        dtype = np.float32 if set(types) == {nw.Float32()} else np.float64
        found = Columns(names, np.ascontiguousarray(frame.to_numpy(), dtype=dtype), {}, tuple(kinds), True, False)
        return found.with_integers(lambda i: _integers(frame[:, i]), _long_integers(types))
    values = np.empty((len(frame), len(names)))
    if plain:
        values[:, plain] = frame[:, plain].to_numpy()
    levels = {}
    for i in sorted(set(range(len(names))) - set(plain)):
        column = _series_column(frame[:, i], names[i], argument)
        values[:, i], kinds[i] = column.values, column.kind
        if column.levels is not None:
            levels[i] = column.levels
    found = Columns(names, values, levels, tuple(kinds), True, False)
    return found.with_integers(lambda i: _integers(frame[:, i]), _long_integers(types))


def _number_kind(kind: Any) -> str:
    return "float32" if isinstance(kind, nw.Float32) else "integer" if kind.is_integer() else "float64"


def _long_integers(types: Sequence[Any]) -> list[int]:
    return [i for i, kind in enumerate(types) if isinstance(kind, (nw.Int64, nw.UInt64))]


def _integers(series: nw.Series[Any]) -> np.ndarray:
    """64-bit integers as they are, 0 in missing cells."""
    kind = np.uint64 if isinstance(series.dtype, nw.UInt64) else np.int64
    return np.asarray(series.fill_null(0).to_numpy()).astype(kind)


def _array(data: Any, argument: str) -> np.ndarray:
    """Anything array-like as a NumPy array of one or two dimensions, with None or NaN in masked cells."""
    if sparse.issparse(data):
        if math.prod(data.shape) > LARGEST_DENSE:
            raise InputError(
                f"{argument}: a sparse matrix is made dense, which is done up to {LARGEST_DENSE:,} cells, but this one "
                f"has shape {data.shape}; choose fewer columns or rows first."
            )
        data = data.toarray()
    try:
        array = data if isinstance(data, np.ma.MaskedArray) else _plain_array(data)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{argument}: a table or a rectangular array in host memory is needed, but this {type(data).__name__} "
            f"could not be read as one ({error})."
        ) from None
    if array.ndim not in (1, 2) or array.dtype.names is not None:
        kind = "fields" if array.dtype.names is not None else f"shape {array.shape}"
        raise InputError(
            f"{argument}: a table with rows and columns is needed, got {type(data).__name__} with {kind}; pass a 2-D "
            "array or a data frame."
        )
    if isinstance(array, np.ma.MaskedArray):
        return _unmasked(array)
    return array


def _plain_array(data: Any) -> np.ndarray:
    if isinstance(data, np.ndarray):
        return np.asarray(data)
    if isinstance(data, (list, tuple)):
        # NumPy would turn [[1, "a"]] into strings throughout, so whatever is not plainly numeric stays as it came.
        try:
            array = np.asarray(data)
        except ValueError:
            raise ValueError("its rows differ in length") from None
        return array if array.dtype.kind in "biufc" else np.array(data, dtype=object)
    return np.asarray(data.to_numpy() if hasattr(data, "to_numpy") else data)


def _unmasked(array: np.ma.MaskedArray[Any, Any]) -> np.ndarray:
    mask = np.ma.getmaskarray(array)
    if not mask.any() or array.dtype.kind == "c":
        return np.asarray(array.data)
    if array.dtype.kind in "iuf":
        out = array.data.astype(np.float32 if array.dtype == np.float32 else np.float64)
        out[mask] = np.nan
        return np.asarray(out)
    values = array.data.astype(object)
    values[mask] = None
    return np.asarray(values)


def _from_array(array: np.ndarray, argument: str, prefix: str) -> Columns:
    flat = array.ndim == 1
    array = array[:, None] if flat else array
    names = _numbered(prefix, array.shape[1])
    if array.dtype.kind in "biuf":
        dtype = np.float32 if array.dtype == np.float32 else np.float64
        with np.errstate(over="ignore"):  # long doubles beyond float64 become infinite and are refused as such
            values = np.ascontiguousarray(array, dtype=dtype)
        found = Columns(names, values, {}, (number_kind(array.dtype),) * len(names), False, flat)
        long = array.dtype.kind in "iu" and array.dtype.itemsize == 8
        return found.with_integers(lambda i: np.array(array[:, i]), range(len(names))) if long else found
    read = [_array_column(array[:, i], name, argument) for i, name in enumerate(names)]
    return _assemble(read, names, False, flat)


@lru_cache(maxsize=8)
def _numbered(prefix: str, count: int) -> tuple[str, ...]:
    """The names of columns without names."""
    return tuple(f"{prefix}{i}" for i in range(count))


def _from_library(array: Array, argument: str, prefix: str) -> Columns:
    """An array of torch, CuPy or another library stays there: numbers become float64, or float32 if that is finer."""
    if is_torch_array(array):
        if str(array.layout) != "torch.strided":
            raise InputError(f"{argument}: a dense tensor is needed, got {array.layout}; call .to_dense() first.")
        array = array.detach()
    if array.ndim not in (1, 2):
        raise InputError(
            f"{argument}: a table with rows and columns is needed, got {type(array).__name__} with shape "
            f"{tuple(array.shape)}; pass a 2-D array."
        )
    xp = namespace(array)
    flat = array.ndim == 1
    array = array[:, None] if flat else array
    names = _numbered(prefix, array.shape[1])
    if not xp.isdtype(array.dtype, ("bool", "integral", "real floating")):
        refuse_kind(argument, names[0] if names else prefix, str(array.dtype).rpartition(".")[2])
    kind = "truth" if xp.isdtype(array.dtype, "bool") else "integer" if xp.isdtype(array.dtype, "integral") else None
    if xp.isdtype(array.dtype, "real floating") and array.dtype != xp.float64:
        array = xp.astype(array, xp.float32, copy=False)
    else:
        array = xp.astype(array, accumulator_dtype(array), copy=False)
    kind = kind or ("float32" if array.dtype == xp.float32 else "float64")
    return Columns(names, array, {}, (kind,) * len(names), False, flat)


# Columns -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    values: np.ndarray
    kind: str
    levels: tuple[str, ...] | None = None


def _assemble(read: Sequence[_Column], names: tuple[str, ...], named: bool, flat: bool) -> Columns:
    single = bool(read) and all(one.values.dtype == np.float32 and one.levels is None for one in read)
    rows = len(read[0].values) if read else 0
    values = np.empty((rows, len(read)), dtype=np.float32 if single else np.float64)
    for i, one in enumerate(read):
        values[:, i] = one.values
    levels = {i: one.levels for i, one in enumerate(read) if one.levels is not None}
    return Columns(names, values, levels, tuple(one.kind for one in read), named, flat)


def _series_column(series: nw.Series[Any], name: str, argument: str) -> _Column:
    dtype = series.dtype
    if dtype.is_nested() or isinstance(dtype, nw.Binary):
        return _unusable(len(series), str(dtype))
    if isinstance(dtype, (nw.Date, nw.Datetime)):
        stamps = series.cast(nw.Datetime("us")) if isinstance(dtype, nw.Date) else series
        return _Column(_days(stamps.dt.timestamp("us")), "date")
    if isinstance(dtype, nw.Duration):
        return _Column(_days(series.dt.total_microseconds()), "duration")
    if dtype.is_numeric():
        single = isinstance(dtype, nw.Float32)
        # Casting first takes nullable integers, decimals and 128-bit integers the same way.
        values = np.asarray((series if single else series.cast(nw.Float64)).to_numpy())
        return _Column(values, _number_kind(dtype))
    if isinstance(dtype, (nw.Categorical, nw.Enum)):
        # Through a list, because pyarrow's dictionary arrays lose their nulls on the way to NumPy.
        values = _objects(series.to_list())
        return _categories(values, _missing(values), "category")
    if isinstance(dtype, nw.Time):
        return _array_column(_objects(series.to_list()), name, argument)
    try:
        values = np.asarray(series.to_numpy())
    except ArithmeticError:  # pandas 2 cannot ask a signalling NaN of decimals whether it is missing
        values = _objects(series.to_list())
    return _array_column(values, name, argument)


def _days(microseconds: nw.Series[Any]) -> np.ndarray:
    return np.asarray(microseconds.cast(nw.Float64).to_numpy(), dtype=np.float64) / MICROSECONDS


def _unusable(rows: int, kind: str) -> _Column:
    """A column of neither numbers nor categories, which is left out or refused together with the others of its kind."""
    return _Column(np.full(rows, np.nan), kind)


def _array_column(values: np.ndarray, name: str, argument: str) -> _Column:
    kind = values.dtype.kind
    if kind in "biuf":
        dtype = np.float32 if values.dtype == np.float32 else np.float64
        return _Column(values.astype(dtype), number_kind(values.dtype))
    if kind in "Mm":
        unit = values.astype(f"{kind}8[us]")
        days = np.where(np.isnat(unit), np.nan, unit.astype(np.int64) / MICROSECONDS)
        return _Column(days, number_kind(values.dtype))
    if kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    elif kind in "cV":
        return _unusable(len(values), str(values.dtype))
    elif kind == "U" and not is_unicode(values):
        raise InputError(f"{argument}: column '{name}' holds text that is no Unicode; write its file again.")
    return _object_column(values.astype(object), name, argument)


def number_kind(dtype: Any) -> str:
    """The kind of a column of this NumPy type."""
    if dtype.kind == "f":
        return "float32" if dtype == np.float32 else "float64"
    if dtype.kind in "SUT":
        return "text"
    return {"b": "truth", "i": "integer", "u": "integer", "M": "date", "m": "duration"}.get(dtype.kind, str(dtype))


def is_unicode(texts: np.ndarray) -> bool:
    """Whether an array of strings holds characters: NumPy takes any four bytes for one, which breaks Python."""
    native = np.ascontiguousarray(texts, dtype=texts.dtype.newbyteorder("="))
    codes = native.view(np.uint32) if native.dtype.itemsize else np.empty(0, dtype=np.uint32)
    return not np.any((codes > sys.maxunicode) | ((codes >= 0xD800) & (codes < 0xE000)))


def _object_column(values: np.ndarray, name: str, argument: str) -> _Column:
    """A column of Python objects: strings, real numbers, dates, or a mixture of strings and numbers."""
    missing = _missing(values)
    present = values[~missing]
    kinds = {type(value) for value in present}
    if kinds and all(issubclass(kind, str) for kind in kinds):
        return _categories(values, missing, "text")
    out = np.full(len(values), np.nan)
    if all(issubclass(kind, _NUMERIC) for kind in kinds):
        try:
            out[~missing] = [float(value) for value in present]
        except OverflowError:
            raise InputError(
                f"{argument}: column '{name}' holds a number beyond float64; rescale the column."
            ) from None
        return _Column(out, "truth" if kinds and kinds <= {bool, np.bool_} else "float64")
    for temporal, kind, days in _TEMPORAL:
        if all(issubclass(one, temporal) for one in kinds):
            out[~missing] = [days(value) for value in present]
            return _Column(out, kind)
    if all(issubclass(kind, (str, *_NUMERIC)) for kind in kinds):
        return _categories(values, missing, "mixed")
    odd = next(kind for kind in sorted(kinds, key=str) if not issubclass(kind, (str, *_NUMERIC)))
    return _unusable(len(values), odd.__name__)


def _days_since_1970(value: datetime.date) -> float:
    if not isinstance(value, datetime.datetime):
        return float(value.toordinal() - _EPOCH)
    return (value if value.tzinfo else value.replace(tzinfo=datetime.UTC)).timestamp() / 86400


_NUMERIC = (Real, Decimal, np.bool_)
_EPOCH = datetime.date(1970, 1, 1).toordinal()
# Python's own types of dates, times of day and durations, the kind of their columns, and their days.
_TEMPORAL: tuple[tuple[type, str, Callable[[Any], float]], ...] = (
    (datetime.date, "date", _days_since_1970),
    (datetime.timedelta, "duration", lambda value: value.total_seconds() / 86400),
    (datetime.time, "duration", lambda v: (v.hour * 3600 + v.minute * 60 + v.second + v.microsecond / 1e6) / 86400),
)


def _categories(values: np.ndarray, missing: np.ndarray, kind: str) -> _Column:
    texts = [str(value) for value in values[~missing]]
    levels = tuple(sorted(set(texts)))
    code = {level: i for i, level in enumerate(levels)}
    out = np.full(len(values), np.nan)
    out[~missing] = [code[text] for text in texts]
    return _Column(out, kind, levels)


def _objects(values: list[Any]) -> np.ndarray:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _missing(values: np.ndarray) -> np.ndarray:
    return np.fromiter((_is_missing(value) for value in values), dtype=bool, count=len(values))


def _is_missing(value: Any) -> bool:
    # pandas.NA answers every comparison with itself, so it is known by the name of its type.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, (float, np.floating)):
        return bool(value != value)
    if isinstance(value, Decimal):
        return value.is_nan()
    return value is np.ma.masked


def refuse_kind(argument: str, name: str, kind: str) -> NoReturn:
    """Complain about a column that holds neither numbers nor categories."""
    raise InputError(
        f"{argument}: column '{name}' has type {kind}, but numbers or categories are needed; {fix_kind(kind)}."
    )


def fix_kind(kind: str) -> str:
    """What to do with a column of this type."""
    lower = kind.lower()
    if lower.startswith("complex"):
        return "pass its real and imaginary parts as two columns"
    if lower.startswith(("list", "array", "struct", "dict")):
        return "spread its entries over columns of their own"
    return "convert it to numbers or strings first"


# Cells ---------------------------------------------------------------------------------------------------------------


def refuse_cells(
    argument: str, names: Sequence[str], infinite: np.ndarray, gaps: np.ndarray, keep: np.ndarray, missing: str | None
) -> None:
    """Complain about columns with infinite values, and about missing ones: as many as `gaps` says, in rows not kept."""
    if infinite.any():
        raise InputError(
            f"{argument}: infinite values in {quoted(names[i] for i in np.flatnonzero(infinite).tolist())}; replace or "
            "remove them."
        )
    left, n = int(np.count_nonzero(keep)), len(keep)
    suspect = np.flatnonzero(gaps)
    if not suspect.size or missing in CELLS_STAY or (missing == "drop" and left >= 2):
        return
    order = suspect[np.argsort(-gaps[suspect], kind="stable")] if missing == "drop" else suspect
    counts = [f"'{names[i]}' ({gaps[i]})" for i in order]
    listed = ", ".join(counts[:5]) + (f" and {len(counts) - 5} more" if len(counts) > 5 else "")
    if missing == "drop":
        raise InputError(
            f"{argument}: missing='drop' leaves {left} of {n} rows, at least 2 are needed; leave out or fill the "
            f"columns with most missing values: {listed}."
        )
    fix = "fill them in, or " + ("use missing='drop' or 'column'" if missing == "error" else "leave these rows out")
    raise InputError(f"{argument}: {n - left} of {n} rows have missing values, in columns {listed}; {fix}.")


def require_two(keep: np.ndarray, argument: str) -> None:
    """Complain where fewer than two rows are kept."""
    if keep.sum() < 2:
        raise InputError(f"{argument}: missing='drop' leaves {keep.sum()} of {len(keep)} rows, at least 2 are needed.")


def from_origin(parts: Sequence[Columns], arguments: Sequence[str]) -> Sequence[Columns]:
    """Integers beyond 2^53 counted from the least in all parts, which keeps their differences.

    Kernels of differences do not notice; integers whose differences are beyond 2^53 themselves are rounded.
    """
    rounded = set()
    for i in sorted({i for part in parts for i in part.integers}):
        # A part without such integers holds smaller ones, or numbers that are no integers.
        there = [~np.isnan(part.values[:, i]) for part in parts]
        columns = [part.integers.get(i, part.values[:, i])[own] for part, own in zip(parts, there, strict=True)]
        if not all(np.array_equal(column, np.trunc(column)) for column in map(to_numpy, columns)):
            continue
        known = [c for c in columns if len(c)]
        low, high = min(int(c.min()) for c in known), max(int(c.max()) for c in known)
        if max(-low, high) <= EXACT:
            continue
        if high - low > EXACT:
            rounded.add(parts[0].names[i])
            continue
        # Modulo 2^64 the differences of signed and of unsigned integers are right.
        start = np.uint64(low % 2**64)
        moved = []
        for part, own, column in zip(parts, there, columns, strict=True):
            values = part.values.copy()
            whole = column if column.dtype.kind in "iu" else column.astype(np.int64)
            values[own, i] = (whole.astype(np.uint64) - start).astype(np.float64)
            moved.append(replace(part, values=values, origin=part.origin | {i: low}))
        parts = moved
    if rounded:
        warnings.warn(
            f"{arguments[0]}: the integers in {quoted(sorted(rounded))} differ by more than 2^53, so that close ones "
            "are taken for equal; pass identifiers as text.",
            stacklevel=2,
        )
    return parts
