"""Data frames, arrays and sparse matrices in memory, read into `Columns`.

Arrays of other libraries than NumPy stay there, on their device.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import narwhals as nw
import numpy as np
from array_api_compat import is_torch_array
from scipy import sparse

from kernsift.data.columns.cells import ColumnCells, array_column, narwhals_kind, number_kind, series_column
from kernsift.data.columns.columns import Columns
from kernsift.exceptions import InputError, check_unique, quoted
from kernsift.execution.arrays import Array, accumulator_dtype, is_array, namespace, to_numpy

# The labels of rows, as pandas calls them in Arrow tables and files: no column of its data frame.
_STORED_INDEX = re.compile(r"__index_level_\d+__")
LARGEST_DENSE = 50_000_000
"""A sparse matrix is made dense up to this many cells (0.4 GB of float64)."""
_PLAIN_NUMBERS = (
    *(nw.Int8, nw.Int16, nw.Int32, nw.Int64, nw.UInt8, nw.UInt16, nw.UInt32, nw.UInt64),
    *(nw.Float32, nw.Float64),
)


def read_columns(data: Any, argument: str, *, prefix: str = "x") -> Columns:
    """Read a table; `argument` is what error messages call it, `prefix` names the columns of unnamed arrays."""
    if is_array(data):
        columns = _from_library(data, argument, prefix)
    else:
        # Plain arrays, the usual case, are not passed to narwhals.
        frame = None if type(data) is np.ndarray and not data.dtype.names else _frame(data, argument, prefix)
        columns = _from_array(_array(data, argument), argument, prefix) if frame is None else frame
    if columns.named:
        check_unique(argument, columns.names)
    if columns.values.shape[1] == 0:
        raise InputError(
            f"{argument}: at least one column is needed, got a table of shape {tuple(columns.values.shape)}; add one."
        )
    return columns


def _frame(data: Any, argument: str, prefix: str) -> Columns | None:
    """Read a data frame or series of any library that narwhals knows; None for everything else."""
    arrow = nw.dependencies.get_pyarrow()
    if arrow is not None and isinstance(data, arrow.Array):
        data = arrow.chunked_array([data])
    if arrow is not None and isinstance(data, arrow.RecordBatch):
        data = arrow.Table.from_batches([data])
    if isinstance(data, np.ndarray) and data.dtype.names and data.ndim == 1 and not np.ma.isMaskedArray(data):
        data = {name: data[name] for name in data.dtype.names}
    if isinstance(data, Mapping):
        parts = [read_columns(column, f"{argument}['{name}']") for name, column in data.items()]
        return side_by_side(parts, list(map(str, data)), argument)
    if isinstance(data, type):  # a class of frames, which some releases of narwhals take for a frame
        return None
    try:
        native = nw.from_native(data, allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        names = data.column_names if hasattr(data, "column_names") else data.columns
        check_unique(argument, names)
        raise
    if isinstance(native, nw.LazyFrame):
        raise InputError(
            f"{argument}: a table in memory is needed, got a lazy frame; call .collect() (or .compute()) first."
        )
    if isinstance(native, nw.Series):
        # Unnamed series carry None (pandas) or an empty string (polars, pyarrow).
        named = native.name is not None and str(native.name) != ""
        name = str(native.name) if named else f"{prefix}0"
        read = _assemble([series_column(native, name, argument)], (name,), named, True)
        return read.with_integers(lambda i: _integers(native), _long_integers([native.dtype]))
    return _from_frame(native, argument) if isinstance(native, nw.DataFrame) else None


def side_by_side(parts: Sequence[Columns], names: Sequence[str], argument: str) -> Columns:
    """One table from several columns of one length."""
    odd = [name for name, part in zip(names, parts, strict=True) if part.values.shape != (parts[0].n, 1)]
    if odd:
        raise InputError(
            f"{argument}: columns of one length are needed, but not those of {quoted(odd)}; pass one value a row."
        )
    read = [
        ColumnCells(to_numpy(part.values)[:, 0], part.kinds[0], part.levels.get(0), part.integers.get(0))
        for part in parts
    ]
    return _assemble(read, tuple(names), True, False)


def _from_frame(frame: nw.DataFrame[Any], argument: str) -> Columns:
    """Columns of plain numbers are copied together, the others one by one."""
    kept = [name for name in frame.columns if not _STORED_INDEX.fullmatch(str(name))]
    if 0 < len(kept) < len(frame.columns):
        frame = frame.select(kept)
    names = tuple(str(name) for name in frame.columns)
    types = list(frame.schema.values())
    plain = [i for i, kind in enumerate(types) if isinstance(kind, _PLAIN_NUMBERS)]
    named = {kind: narwhals_kind(kind) for kind in set(types)}  # there may be a million columns, but few types
    kinds = [named[kind] for kind in types]
    if plain and len(plain) == len(names):
        dtype = np.float32 if set(types) == {nw.Float32()} else np.float64
        found = Columns(names, np.ascontiguousarray(frame.to_numpy(), dtype=dtype), {}, tuple(kinds), True, False)
        return found.with_integers(lambda i: _integers(frame[:, i]), _long_integers(types))
    values = np.empty((len(frame), len(names)))
    if plain:
        values[:, plain] = frame[:, plain].to_numpy()
    rest = sorted(set(range(len(names))) - set(plain))
    read = {i: series_column(frame[:, i], names[i], argument) for i in rest}
    for i, column in read.items():
        values[:, i], kinds[i] = column.values, column.kind
    levels = {i: column.levels for i, column in read.items() if column.levels is not None}
    found = Columns(names, values, levels, tuple(kinds), True, False)
    found = found.with_integers(lambda i: _integers(frame[:, i]), _long_integers(types))
    exact = {i: column.integers for i, column in read.items() if column.integers is not None}
    return replace(found, integers=found.integers | exact) if exact else found


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
    if isinstance(data, (list, tuple)) and data and isinstance(data[0], Mapping):
        raise InputError(
            f"{argument}: a table is needed, got a {type(data).__name__} of dicts; pass a data frame of it."
        )
    if hasattr(data, "__arrow_c_stream__"):  # it may be read only once, as a reader of record batches
        raise InputError(
            f"{argument}: a table in memory is needed, got a stream of Arrow data ({type(data).__name__}); pass "
            f"pyarrow.table({argument})."
        )
    try:
        array = data if isinstance(data, np.ma.MaskedArray) else plain_array(data)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{argument}: a table or a rectangular array in host memory is needed, but this {type(data).__name__} "
            f"could not be read as one ({error}); convert it to one."
        ) from None
    if array.ndim not in (1, 2) or array.dtype.names is not None:
        kind = "fields" if array.dtype.names is not None else f"shape {array.shape}"
        how = f", such as {argument}.reshape(len({argument}), -1)," if array.ndim > 2 else ""
        raise InputError(
            f"{argument}: a table with rows and columns is needed, got {type(data).__name__} with {kind}; pass a 2-D "
            f"array{how} or a data frame."
        )
    if isinstance(array, np.ma.MaskedArray):
        return _fill_masked(array)
    return array


def plain_array(data: Any) -> np.ndarray:
    """An array of numbers, or of the values as they came: text beside a missing value does not turn it into text."""
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


def _fill_masked(array: np.ma.MaskedArray[Any, Any]) -> np.ndarray:
    mask = np.ma.getmaskarray(array)
    if not mask.any() or array.dtype.kind == "c":
        return np.asarray(array.data)
    if array.dtype.kind in "iuf":
        return np.ma.filled(array.astype(np.float32 if array.dtype == np.float32 else np.float64), np.nan)
    values = array.data.astype(object)
    values[mask] = None
    return np.asarray(values)


def _from_array(array: np.ndarray, argument: str, prefix: str) -> Columns:
    flat = array.ndim == 1
    array = array[:, None] if flat else array
    names = _default_names(prefix, array.shape[1])
    if array.dtype.kind in "biuf":
        dtype = np.float32 if array.dtype == np.float32 else np.float64
        with np.errstate(over="ignore"):  # long doubles beyond float64 become infinite and are refused as such
            values = np.ascontiguousarray(array, dtype=dtype)
        found = Columns(names, values, {}, (number_kind(array.dtype),) * len(names), False, flat)
        long = array.dtype.kind in "iu" and array.dtype.itemsize == 8
        return found.with_integers(lambda i: np.array(array[:, i]), range(len(names))) if long else found
    read = [array_column(array[:, i], name, argument) for i, name in enumerate(names)]
    return _assemble(read, names, False, flat)


@lru_cache(maxsize=8)
def _default_names(prefix: str, count: int) -> tuple[str, ...]:
    """The names of columns without names."""
    return tuple(f"{prefix}{i}" for i in range(count))


def _from_library(array: Array, argument: str, prefix: str) -> Columns:
    """An array of torch, CuPy or another library stays there; integers become float64, half precision float32."""
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
    names = _default_names(prefix, array.shape[1])
    if not xp.isdtype(array.dtype, ("bool", "integral", "real floating")):
        raise InputError(
            f"{argument}: column '{prefix}0' has type {str(array.dtype).rpartition('.')[2]}, but numbers or categories "
            "are needed; pass its real and imaginary parts as two columns."
        )
    kind = "truth" if xp.isdtype(array.dtype, "bool") else "integer" if xp.isdtype(array.dtype, "integral") else None
    if xp.isdtype(array.dtype, "real floating") and array.dtype != xp.float64:
        array = xp.astype(array, xp.float32, copy=False)
    else:
        array = xp.astype(array, accumulator_dtype(array), copy=False)
    kind = kind or ("float32" if array.dtype == xp.float32 else "float64")
    return Columns(names, array, {}, (kind,) * len(names), False, flat)


def _assemble(read: Sequence[ColumnCells], names: tuple[str, ...], named: bool, flat: bool) -> Columns:
    single = bool(read) and all(one.values.dtype == np.float32 and one.levels is None for one in read)
    rows = len(read[0].values) if read else 0
    values = np.empty((rows, len(read)), dtype=np.float32 if single else np.float64)
    for i, one in enumerate(read):
        values[:, i] = one.values
    levels = {i: one.levels for i, one in enumerate(read) if one.levels is not None}
    integers = {i: one.integers for i, one in enumerate(read) if one.integers is not None}
    return Columns(names, values, levels, tuple(one.kind for one in read), named, flat, integers)
