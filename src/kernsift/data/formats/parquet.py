"""Parquet files: columns and row groups are read separately, and row groups have statistics of their columns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from kernsift.data.formats.archives import check_unpacked_size
from kernsift.data.formats.arrow import Fragment
from kernsift.data.formats.file_stamps import FileStamp
from kernsift.data.formats.source import Bounds
from kernsift.execution.threads import prefetched_items

_PLAIN = {"BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE"}
_PLAIN_LOGICAL = {"NONE", "INT"}

# The largest ratio of the size of all cells to that of the file.
_LARGEST_RATIO = 10_000


class ParquetFragment(Fragment):
    """One file; it is opened when pieces are read, so that nothing stays open and workers can have their own.

    `keys` are columns with one value, an Arrow array of length 1 each: those in the names of its folders.
    """

    kind = "a Parquet file"

    def __init__(self, path: str, argument: str, keys: Mapping[str, Any] | None = None) -> None:
        import pyarrow as pa

        super().__init__(path, argument, FileStamp.of(path, argument))
        self._keys = keys or {}
        with self._reading():
            self.schema = self._metadata.schema.to_arrow_schema()
            for name, value in self._keys.items():
                self.schema = self.schema.append(pa.field(name, value.type))
            self.sizes = np.array([group.num_rows for group in self._groups()], dtype=np.int64)
            cells = 8 * int(self.sizes.sum()) * max(1, self._metadata.num_columns)
            # Columns of one value compress without limit, so that only extreme ratios are refused.
            if cells > _LARGEST_RATIO * os.path.getsize(path):
                check_unpacked_size(f"{argument}: {path}", os.path.getsize(path), cells)

    def opened(self) -> Any:
        import pyarrow.parquet

        with self._reading():
            return pyarrow.parquet.ParquetFile(self.name, metadata=self._metadata, read_dictionary=self._texts)

    def load(self, first: int, last: int, names: Sequence[str], reader: Any) -> Any:
        import pyarrow as pa

        with self._reading():
            # Arrow's threads are used only if no other thread reads at the same time.
            groups, threads = list(range(first, last)), prefetched_items() > 1
            own = [name for name in names if name not in self._keys]
            table = reader.read_row_groups(groups, columns=own, use_threads=threads)
            # A reader keeps the bytes that it read last; reading no columns releases them.
            reader.read_row_groups(groups[:1], columns=[])
            if len(own) < len(names):
                everywhere = pa.array(np.zeros(int(self.sizes[first:last].sum()), dtype=np.int8))
                columns = [
                    self._keys[name].take(everywhere) if name in self._keys else table.column(name) for name in names
                ]
                table = pa.table(columns, names=list(names))
            return table

    def statistics(self, names: Sequence[str]) -> Bounds | None:
        where = {field.name: i for i, field in enumerate(self._file_fields)}
        if len(self._metadata.schema) != len(where):
            return None  # nested columns, which are refused, shift the positions
        known = np.ones(len(names), dtype=bool)
        low, high = np.full((2, self._metadata.num_row_groups, len(names)), np.nan)
        gaps = np.zeros(len(names), dtype=np.int64)
        plain = [self._metadata.schema.column(where[name]) if name in where else None for name in names]
        usable = [
            one is not None and one.physical_type in _PLAIN and one.logical_type.type in _PLAIN_LOGICAL for one in plain
        ]
        with self._reading():
            for number, group in enumerate(self._groups()):
                for i, name in enumerate(names):
                    if not known[i]:
                        continue
                    reported = group.column(where[name]).statistics if usable[i] else None
                    if reported is None or not reported.has_null_count:
                        known[i] = False
                        continue
                    gaps[i] += reported.null_count
                    if reported.has_min_max:
                        low[number, i], high[number, i] = reported.min, reported.max
                    else:
                        known[i] = reported.null_count == group.num_rows
        return Bounds(known, np.fmin.reduce(low, initial=np.nan), np.fmax.reduce(high, initial=np.nan), gaps)

    @cached_property
    def _metadata(self) -> Any:
        import pyarrow.parquet

        return pyarrow.parquet.read_metadata(self.name)

    @cached_property
    def _texts(self) -> list[str]:
        """Columns that come as codes and their texts, which is how Parquet keeps most of them."""
        from pyarrow import types

        return [field.name for field in self._file_fields if types.is_string(field.type)]

    @property
    def _file_fields(self) -> list[Any]:
        """The fields of the schema without the keys, which come last."""
        return list(self.schema)[: len(self.schema) - len(self._keys)]

    def _groups(self) -> list[Any]:
        return [self._metadata.row_group(i) for i in range(self._metadata.num_row_groups)]

    def __getstate__(self) -> dict[str, Any]:
        # The footer of a wide file is large, and quickly read again.
        return {name: value for name, value in self.__dict__.items() if name != "_metadata"}
