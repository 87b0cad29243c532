"""A table in memory, with the interface of those that are read in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kernsift.data.columns.columns import Columns
from kernsift.data.formats.source import Rows, Source
from kernsift.exceptions import InputError
from kernsift.execution.arrays import dtype_of
from kernsift.execution.memory import values_bytes

_CHUNK = 4 << 20


class MemorySource(Source):
    """Columns that were read already; pieces of them are copies."""

    in_memory = True

    def __init__(self, columns: Columns, argument: str) -> None:
        n, p = columns.values.shape
        size = dtype_of(columns.values).itemsize
        rows = max(1, _CHUNK // max(1, p * size))
        edges = np.append(np.arange(0, n, rows), n)
        widths = np.full(p, float(size))
        super().__init__(argument, columns.names, columns.kinds, edges, widths, named=columns.named, flat=columns.flat)
        self.columns = columns

    def _picked(self, positions: Sequence[int], names: Sequence[str], named: bool) -> MemorySource:
        columns = self.columns if list(positions) == list(range(len(self.names))) else self.columns.pick(positions)
        if (tuple(names), named) != (columns.names, columns.named):
            columns = replace(columns, names=tuple(names), named=named)
        return MemorySource(columns, self.argument)

    def _kept(self, keep: np.ndarray) -> MemorySource:
        return MemorySource(self.columns.take(np.flatnonzero(keep)), self.argument)

    def fetch(self, chunk: int, columns: Sequence[int], rows: Rows) -> Columns:
        start, stop = self.edges[chunk : chunk + 2]
        return replace(self.columns, values=self.columns.values[start:stop][rows]).pick(columns)


def loaded(source: Source, memory: int | None = None) -> MemorySource:
    """All rows of a table that has to be in memory."""
    if isinstance(source, MemorySource):
        return source
    size = source.n * len(source.names) * 8
    if memory is not None and size > values_bytes(memory):
        raise InputError(
            f"memory: the response alone takes {size / 1e6:,.0f} MB, more than half of the {memory / 1e6:,.0f} MB that "
            "may be used; allow more."
        )
    found = MemorySource(source.read(range(len(source.names))), source.argument)
    found.notes = source.notes
    return found
