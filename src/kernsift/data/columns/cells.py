"""One column of a data frame or array as floating-point numbers: numbers, days, or codes of categories."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import narwhals as nw
import numpy as np

from kernsift.data.columns.columns import EXACT
from kernsift.exceptions import InputError

MICROSECONDS = 86400e6
"""Microseconds of a day: dates and durations are numbers of days."""


DURATION = np.timedelta64(0, "D")
"""The origin of times and durations, which descriptions and pictures show in a suitable unit."""


def narwhals_kind(kind: Any) -> str:
    return "float32" if isinstance(kind, nw.Float32) else "integer" if kind.is_integer() else "float64"


@dataclass(frozen=True)
class ColumnCells:
    values: np.ndarray
    kind: str
    levels: tuple[str, ...] | None = None
    integers: np.ndarray | None = None


def series_column(series: nw.Series[Any], name: str, argument: str) -> ColumnCells:
    dtype = series.dtype
    if dtype.is_nested() or isinstance(dtype, nw.Binary):
        return _unusable(len(series), str(dtype))
    if isinstance(dtype, (nw.Date, nw.Datetime)):
        stamps = series.cast(nw.Datetime("us")) if isinstance(dtype, nw.Date) else series
        return ColumnCells(_days(stamps.dt.timestamp("us")), "date")
    if isinstance(dtype, nw.Duration):
        # The library's own conversion to microseconds cuts off numbers of seconds in floating point.
        return array_column(np.asarray(series.to_numpy()), name, argument)
    if dtype.is_numeric():
        single = isinstance(dtype, nw.Float32)
        if isinstance(dtype, nw.Decimal) and not nw.dependencies.is_polars_series(series.to_native()):
            series = series.cast(nw.String)  # Arrow's own conversion is wrong in the last place, that of text is not
        # Casting first takes nullable integers, decimals and 128-bit integers the same way.
        values = np.asarray((series if single else series.cast(nw.Float64)).to_numpy())
        return ColumnCells(values, narwhals_kind(dtype))
    if isinstance(dtype, (nw.Categorical, nw.Enum, nw.String)):
        found = _texts(series, "text" if isinstance(dtype, nw.String) else "category")
        if found.levels or found.kind == "category":  # a column of text without any may be of any kind
            return found
    if isinstance(dtype, nw.Time):
        return array_column(_object_array(series.to_list()), name, argument)
    try:
        values = np.asarray(series.to_numpy())
    except ArithmeticError:  # pandas 2 cannot ask a signalling NaN of decimals whether it is missing
        values = _object_array(series.to_list())
    return array_column(values, name, argument)


def _texts(series: nw.Series[Any], kind: str) -> ColumnCells:
    """A column of text or of categories as codes, with the function of its library that finds different texts."""
    native = series.to_native()
    if nw.dependencies.is_pyarrow_chunked_array(native):
        from kernsift.data.formats.arrow_cells import text_codes

        values, levels = text_codes(native)
    elif nw.dependencies.is_pandas_series(native):
        codes, texts = native.factorize(sort=True)
        if kind == "text":
            return ColumnCells(np.where(codes < 0, np.nan, codes), kind, tuple(map(str, texts)))
        values, levels = sorted_codes(codes, list(map(str, texts)))  # categories have an order of their own
    else:
        return _categories(series.to_list(), kind)
    return ColumnCells(values, kind, levels)


def sorted_codes(codes: np.ndarray, texts: Sequence[str | None]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Codes (n,) in the order of the sorted texts that occur, and those texts, from codes of `texts` in any order.

    Cells with code -1 and those without a text are missing.
    """
    used = np.zeros(len(texts) + 1, dtype=bool)
    used[codes] = True  # -1 marks the place behind the last
    levels = tuple(sorted({text for text, there in zip(texts, used, strict=False) if there and text is not None}))
    code = {level: float(i) for i, level in enumerate(levels)}
    numbers = [np.nan if text is None else code.get(text, np.nan) for text in texts]
    return np.array([*numbers, np.nan])[codes], levels


def _days(microseconds: nw.Series[Any]) -> np.ndarray:
    # Arrow refuses to round to floating point, as for the year 9999.
    days = np.asarray(microseconds.fill_null(0).to_numpy(), dtype=np.float64) / MICROSECONDS
    return np.where(np.asarray(microseconds.is_null().to_numpy(), dtype=bool), np.nan, days)


def _unusable(rows: int, kind: str) -> ColumnCells:
    """A column of a type that cannot be tested, such as lists, which is left out or refused."""
    return ColumnCells(np.full(rows, np.nan), kind)


def array_column(values: np.ndarray, name: str, argument: str) -> ColumnCells:
    kind = values.dtype.kind
    if kind in "biuf":
        dtype = np.float32 if values.dtype == np.float32 else np.float64
        return ColumnCells(values.astype(dtype), number_kind(values.dtype))
    if kind in "Mm":
        whole = values.astype(f"{kind}8[us]")
        beyond = (values - whole).astype("m8[ns]").astype(np.int64) / 1000.0 if kind == "m" else 0.0
        days = np.where(np.isnat(whole), np.nan, (whole.astype(np.int64) + beyond) / MICROSECONDS)
        return ColumnCells(days, number_kind(values.dtype))
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
    return {"b": "truth", "i": "integer", "u": "integer", "M": "date", "m": "duration"}.get(dtype.kind) or str(dtype)


def is_unicode(texts: np.ndarray) -> bool:
    """Whether an array of strings holds valid characters: NumPy accepts any four bytes, and Python fails on some."""
    native = np.ascontiguousarray(texts, dtype=texts.dtype.newbyteorder("="))
    codes = native.view(np.uint32) if native.dtype.itemsize else np.empty(0, dtype=np.uint32)
    return not np.any((codes > sys.maxunicode) | ((codes >= 0xD800) & (codes < 0xE000)))


def _object_column(values: np.ndarray, name: str, argument: str) -> ColumnCells:
    """A column of Python objects: strings, real numbers, dates, or a mixture of strings and numbers."""
    missing = np.array([_is_missing(value) for value in values], dtype=bool)
    present = values[~missing]
    kinds = {type(value) for value in present}
    if kinds and all(issubclass(kind, str) for kind in kinds):
        return _categories(values, "text")
    out = np.full(len(values), np.nan)
    if all(issubclass(kind, _NUMERIC) for kind in kinds):
        try:
            out[~missing] = [float(value) for value in present]
        except OverflowError:
            raise InputError(
                f"{argument}: column '{name}' holds a number beyond float64; rescale the column."
            ) from None
        if kinds and kinds <= {bool, np.bool_}:
            return ColumnCells(out, "truth")
        exact = np.zeros(len(values), dtype=np.int64)
        if all(issubclass(kind, (int, np.integer)) for kind in kinds) and np.abs(out[~missing]).max(initial=0) > EXACT:
            try:
                exact[~missing] = present
                return ColumnCells(out, "integer", integers=exact)
            except OverflowError:  # beyond 64 bits only their size counts
                pass
        return ColumnCells(out, "float64")
    for temporal, kind, days in _TEMPORAL:
        if all(issubclass(one, temporal) for one in kinds):
            out[~missing] = [days(value) for value in present]
            return ColumnCells(out, kind)
    if all(issubclass(kind, (str, *_NUMERIC)) for kind in kinds):
        return _categories(values, "mixed")
    odd = next(kind for kind in sorted(kinds, key=str) if not issubclass(kind, (str, *_NUMERIC)))
    return _unusable(len(values), odd.__name__)


def days_since_1970(value: datetime.date) -> float:
    """The days of a date, with its time if it has one; one without a time zone is in UTC."""
    if not isinstance(value, datetime.datetime):
        return float(value.toordinal() - _EPOCH)
    return (value if value.tzinfo else value.replace(tzinfo=datetime.UTC)).timestamp() / 86400


def days_since_midnight(value: datetime.time) -> float:
    """A time of day as a part of the day."""
    return (value.hour * 3600 + value.minute * 60 + value.second + value.microsecond / 1e6) / 86400


_NUMERIC = (Real, Decimal, np.bool_)
_EPOCH = datetime.date(1970, 1, 1).toordinal()
# Python's own types of dates, times of day and durations, the kind of their columns, and their days.
_TEMPORAL: tuple[tuple[type, str, Callable[[Any], float]], ...] = (
    (datetime.date, "date", days_since_1970),
    (datetime.timedelta, "duration", lambda value: value.total_seconds() / 86400),
    (datetime.time, "duration", days_since_midnight),
)


def _categories(cells: Iterable[Any], kind: str) -> ColumnCells:
    """Python objects as codes of their texts."""
    texts = [cell if type(cell) is str else None if _is_missing(cell) else str(cell) for cell in cells]
    levels = tuple(sorted(text for text in set(texts) if text is not None))
    code: dict[str | None, float] = {level: float(i) for i, level in enumerate(levels)}
    return ColumnCells(np.array([code.get(text, np.nan) for text in texts], dtype=np.float64), kind, levels)


def _object_array(values: list[Any]) -> np.ndarray:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _is_missing(value: Any) -> bool:
    # pandas.NA answers every comparison with itself, so it is known by the name of its type.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, (float, np.floating)):
        return bool(value != value)
    if isinstance(value, Decimal):
        return value.is_nan()
    return value is np.ma.masked
