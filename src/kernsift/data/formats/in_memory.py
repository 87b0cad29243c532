"""A table in memory, behind the same face as those that are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernsift.data.columns import Columns
from kernsift.data.formats.source import Rows, Source

_CHUNK = 4 << 20


class MemorySource(Source):
    """Columns that were read already; pieces of them are copies."""

    def __init__(self, columns: Columns, argument: str) -> None:
        n, p = columns.values.shape
        size = columns.values.dtype.itemsize
        rows = max(1, _CHUNK // max(1, p * size))
        number = "float32" if columns.values.dtype == np.float32 else "float64"
        kinds = ["category" if i in columns.levels else number for i in range(p)]
        kinds = ["truth" if columns.boolean[i] else kind for i, kind in enumerate(kinds)]
        edges = np.append(np.arange(0, n, rows), n)
        super().__init__(
            argument, columns.names, kinds, edges, np.full(p, float(size)), named=columns.named, flat=columns.flat
        )
        self._columns = columns

    def fetch(self, chunk: int, columns: Sequence[int], rows: Rows) -> Columns:
        start, stop = self.edges[chunk : chunk + 2]
        cells = replace(self._columns, values=self._columns.values[start:stop])
        cells = replace(cells, values=cells.values[rows]).pick(columns)
        return cells

    @property
    def in_memory(self) -> bool:
        return True

    @property
    def must_be_sent(self) -> bool:
        return True

    def handed(self, columns: Sequence[int], rows: Rows) -> tuple[Any, list[Any]]:
        cells = replace(self._columns, values=self._columns.values[rows]).pick(columns)
        return _Handed(replace(cells, values=np.empty((0, len(columns)))), self.argument), [cells.values]


@dataclass(frozen=True)
class _Handed:
    """Columns on their way, without their values."""

    columns: Columns
    argument: str

    def unpack(self, values: list[Any]) -> Source:
        # Copied: what arrives may not be written into, as pieces are.
        return MemorySource(replace(self.columns, values=np.array(values[0])), self.argument)
