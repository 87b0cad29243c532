"""Cells of Arrow tables as numbers and codes, and the kinds of their columns.

Numbers are read through DLPack, because Arrow's own conversion to NumPy loads pandas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernsift.data.columns.cells import MICROSECONDS, sorted_codes
from kernsift.data.columns.columns import Columns
from kernsift.data.formats.source import NUMBERS, TEXTS, Rows, count_of


def arrow_kind(arrow_type: Any) -> str:
    """The kind of a column of this Arrow type."""
    from pyarrow import types

    if types.is_floating(arrow_type):
        return "float32" if types.is_float32(arrow_type) else "float64"
    if types.is_decimal(arrow_type):
        return "float64"
    if types.is_integer(arrow_type):
        return "integer"
    if types.is_boolean(arrow_type):
        return "truth"
    if types.is_null(arrow_type):
        return "empty"
    if types.is_timestamp(arrow_type) or types.is_date(arrow_type):
        return "date"
    if types.is_duration(arrow_type) or types.is_time(arrow_type):
        return "duration"
    if types.is_dictionary(arrow_type):
        return "category"
    texts = types.is_string(arrow_type) or types.is_large_string(arrow_type) or str(arrow_type) == "string_view"
    return "text" if texts else str(arrow_type)


def arrow_columns(table: Any, names: Sequence[str], kinds: Sequence[str], rows: Rows) -> Columns:
    """Rows of an Arrow table as they would be read by `read_columns`, with texts made codes inside Arrow."""
    single = all(kind == "float32" for kind in kinds)
    if isinstance(rows, slice):
        table = table.slice(rows.start, count_of(rows))
    # Scattered rows are taken in NumPy: Arrow's own way loads pandas.
    scattered = None if isinstance(rows, slice) else rows
    # In Fortran order: columns are read, and mostly processed, one by one.
    values = np.empty((count_of(rows), len(names)), dtype=np.float32 if single else np.float64, order="F")
    levels: dict[int, tuple[str, ...]] = {}
    for i, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        column = table.column(name)
        if kind in TEXTS and column.null_count < len(column):
            values[:, i], levels[i] = text_codes(column, scattered)
        elif kind not in NUMBERS:
            values[:, i] = np.nan
        else:
            _numbers(column, values[:, i], scattered)
    return Columns(tuple(names), values, levels, tuple(kinds), True, False)


def _numbers(column: Any, out: np.ndarray, rows: np.ndarray | None) -> None:
    """Copy a column of numbers, or some rows of it."""
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif pa.types.is_decimal(column.type):
        column = column.cast(pa.string()).cast(pa.float64())  # directly, it is wrong in the last place
    elif pa.types.is_float16(column.type):
        column = column.cast(pa.float64())
    temporal = arrow_kind(column.type) in ("date", "duration")
    if temporal:
        column = _microseconds(column)
    if column.null_count:
        whole = not pa.types.is_floating(column.type)
        column = (column.cast(pa.float64(), safe=False) if whole else column).fill_null(np.nan)
    start = first = 0
    for chunk in column.chunks:
        stop = start + len(chunk)
        last = stop if rows is None else int(np.searchsorted(rows, stop))
        if last > first:
            found = np.from_dlpack(chunk)
            out[first:last] = found if rows is None else found[rows[first:last] - start]
        start, first = stop, last
    if temporal:
        out /= MICROSECONDS


def _microseconds(column: Any) -> Any:
    """Dates and times as whole numbers, and durations, which may be of nanoseconds."""
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us"))
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    elif pa.types.is_duration(column.type):
        whole = column.cast(pa.duration("us"), safe=False).cast(pa.int64())
        if column.type.unit != "ns":
            return whole
        beyond = compute.subtract(column.cast(pa.int64()), compute.multiply(whole, 1000))
        return compute.add(whole.cast(pa.float64(), safe=False), compute.divide(beyond.cast(pa.float64()), 1000.0))
    else:
        column = column.cast(pa.time64("us"), safe=False)
    return column.cast(pa.int64())


def text_codes(column: Any, rows: np.ndarray | None = None) -> tuple[np.ndarray, tuple[str, ...]]:
    """A column of text or of categories, or some rows of it, as codes in the order of its sorted texts, and these."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    array = column.unify_dictionaries().combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # what combine_chunks returns differs between versions
        array = array.chunk(0)
    texts = [None if text is None or text != text else str(text) for text in array.dictionary.to_pylist()]
    found = np.from_dlpack(array.indices.cast(pa.int64()).fill_null(-1))
    return sorted_codes(found if rows is None else found[rows], texts)
