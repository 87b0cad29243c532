"""Some features of a table that are worked on in one go, and how they travel to whoever does the work.

Here a block is the whole table and the places of its features: nothing is copied. Sent to a worker it takes its own
columns along and nothing else, and a long one is sent in runs of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernsift.data.table_parts import Rows, TablePart, must_be_sent, pack
from kernsift.data.tables import Table
from kernsift.execution.dask_workers import current_workers
from kernsift.kernels.fitted import FeatureKernels
from kernsift.kernels.quantisation import feature_blocks

# Numbers that one message holds at most: 2^23 doubles are 64 MB. Fewer rows than this are no run of their own.
_MESSAGE, _ROWS = 2**23, 2**15


@dataclass(frozen=True)
class Block:
    """Some features of a table, with their kernels.

    Attributes
    ----------
    features : (b,) which features, among all.
    table, kernels : where they are.
    own : (b,) their places in `table` and `kernels`.
    cells : (n,) the cell of a response that each row is in; None for a response without cells.
    to_sort : the rows whose order statistics become points; None for all.
    start : the number, among all, of the table's first row.
    pieces : into how many runs of rows the block is cut where it is sent away.
    rows : the rows of the table that are sent; None for all.
    """

    features: np.ndarray
    table: Table
    kernels: FeatureKernels
    own: np.ndarray
    cells: Any = None
    to_sort: np.ndarray | None = None
    start: int = 0
    pieces: int = field(default=1, kw_only=True)
    rows: Rows | None = field(default=None, kw_only=True)

    def within(self, rows: np.ndarray | None) -> np.ndarray | None:
        """Those of the sorted `rows`, of all, that are in this table, counted from its first."""
        if rows is None:
            return None
        first, last = np.searchsorted(rows, [self.start, self.start + self.table.n])
        return rows[first:last] - self.start

    def runs(self) -> list[Block]:
        """The block in runs of rows; none where it stays whole."""
        if self.pieces == 1:
            return []
        numbers = -(-self.table.n // self.pieces) * len(self.own)
        found = self.table.row_chunks(self.own, numbers)
        return [replace(self, start=start, rows=slice(start, stop), pieces=1) for start, stop in found]

    def samples(self) -> list[Block]:
        """The rows that are sorted; from a table that others read, in runs."""
        assert self.to_sort is not None
        rows = [self.to_sort]
        if self.table.memory is not None:
            rows = np.split(self.to_sort, np.searchsorted(self.to_sort, [run.start for run in self.runs()[1:]]))
        return [replace(self, rows=own, to_sort=None, cells=None, pieces=1) for own in rows if len(own)]

    def values(self) -> np.ndarray:
        """The values of all rows."""
        return np.asarray(self.table.part(slice(None)))

    def asarray_like(self, values: list[np.ndarray]) -> Block:
        """The features of this block with the values of the rows that are sorted."""
        table = replace(self.table, values=np.concatenate(values))
        return replace(self, table=table, to_sort=np.arange(table.n))

    def head(self) -> Block:
        """All but the rows."""
        own = np.arange(len(self.own))
        names = tuple(self.table.names[j] for j in self.own)
        levels = {name: self.table.levels[name] for name in names if name in self.table.levels}
        table = Table(names, None, np.arange(len(own) + 1), self.table.categorical[self.own], levels)
        return replace(self, table=table, kernels=self.kernels.select(self.own), own=own, cells=None, to_sort=None)

    def pack(self) -> tuple[_Packed, list[Any]]:
        """The block without its values, and these."""
        parcel, values = pack(self.table, self.own, self.rows)
        if self.cells is not None:
            cells = self.cells if self.rows is None else self.cells[self.rows]
            # A response has at most 64 cells where it has any order, and seldom more than 256.
            values.append(cells.astype(np.uint8) if len(cells) and cells.max() < 256 else cells)
        to_sort = self.to_sort if self.rows is None else None
        kernels, has_cells = self.kernels.select(self.own), self.cells is not None
        return _Packed(self.features, parcel, kernels, to_sort, self.start, has_cells), values


@dataclass(frozen=True)
class _Packed:
    """A block on its way."""

    features: np.ndarray
    parcel: TablePart
    kernels: FeatureKernels
    to_sort: np.ndarray | None
    start: int
    has_cells: bool

    def unpack(self, values: list[Any]) -> Block:
        cells = values[-1] if self.has_cells else None
        table = self.parcel.unpack(values[:-1] if self.has_cells else values)
        own = np.arange(len(self.features))
        return Block(self.features, table, self.kernels, own, cells, self.to_sort, self.start)


def blocks_of(
    table: Table,
    kernels: FeatureKernels,
    cells: Any = None,
    to_sort: np.ndarray | None = None,
    *,
    runs: bool = False,
    among: np.ndarray | None = None,
) -> Iterator[Block]:
    """Features of a table in blocks, all or those `among` some; with `runs` a worker may be sent some of their rows."""
    found = list(feature_blocks(table, kernels.rounds, every_row=cells is None))
    if among is not None:
        chosen = [block[np.isin(block, among)] for block in found]
        found = [block for block in chosen if len(block)]
    workers = current_workers()
    single = np.diff(table.offsets) == 1
    splits = runs and workers is not None and cells is not None and to_sort is not None and kernels.rounds
    if workers is not None and not splits:
        # Columns that are sent are in the memory of a worker as a whole; and where that is the only way to cut the
        # work, all workers are to have some.
        room = max(1, 4 * _MESSAGE // table.n) if must_be_sent(table) else table.d
        most = room if runs else min(room, -(-table.d // (2 * workers.threads())))
        found = [part for block in found for part in np.array_split(block, -(-len(block) // most))]
    for features in found:
        pieces = 1
        if splits and workers is not None and single[features].all():
            pieces = -(-2 * workers.threads() // len(found))
            if must_be_sent(table):
                pieces = max(pieces, -(-table.n * len(features) // _MESSAGE))
            pieces = min(pieces, max(1, table.n // _ROWS))
        yield Block(features, table, kernels, features, cells, to_sort, pieces=pieces)
