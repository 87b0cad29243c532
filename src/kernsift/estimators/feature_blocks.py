"""Blocks of features that are processed together: in memory, from files, and on the workers of a cluster.

A block refers to its table and to the positions of its features there, without a copy. Pickled for a worker it holds
only its own columns, or where to read them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain, groupby, islice
from typing import Any, Generic, TypeVar

import numpy as np

from kernsift.data.table_parts import keep_shown, run_of, shown_rows, to_send, with_sources
from kernsift.data.tables import Table, stack
from kernsift.estimators.block_sizes import (
    LINE,
    blocks_at_once,
    columns_that_fit,
    columns_to_load,
    feature_blocks,
    long_and_narrow,
    sent_columns,
)
from kernsift.execution.arrays import dtype_of
from kernsift.execution.fused import is_large
from kernsift.execution.parallel import parallel_map, worker_threads
from kernsift.execution.progress import report_progress
from kernsift.execution.threads import prefetch, prefetched_items
from kernsift.kernels.bandwidths import rows_to_sort
from kernsift.kernels.fitted import FeatureKernels, columns_of

Output = TypeVar("Output")


@dataclass(frozen=True)
class FeatureBlock:
    """Some features of a table, with their kernels."""

    features: np.ndarray  # (b,) which features, among all
    table: Table  # where they are; several samples are stacked
    kernels: FeatureKernels
    own: np.ndarray  # (b,) their places in `table` and `kernels`
    cells: Any = None  # (n,) the cell of a response that each row is in; None for a response without cells
    all_columns: int = 0  # the number of value columns of all features
    by_rows: bool = False  # whether threads divide the rows, as of a long table with few features, and not the blocks
    load: bool = False  # whether a worker reads the values as a whole before it processes the block
    limit: int | None = None  # the memory limit of the table on disk that the values were read from
    parts: Iterator[FeatureBlock] | None = None  # blocks in memory with some of the features each, where all do not fit

    @cached_property
    def columns(self) -> slice | np.ndarray:
        """The value columns of the features in the table."""
        return run_of(columns_of(self.table.offsets, self.own))

    @property
    def large(self) -> bool:
        """Whether the table of all features is so large that loops over it are compiled."""
        return is_large(self.table.n, self.all_columns)

    @property
    def width(self) -> int:
        """The number of value columns of the features."""
        return int(np.diff(self.table.offsets)[self.own].sum())

    @property
    def memory(self) -> int | None:
        """Bytes that may be used for the block; None for a table that is in memory anyway."""
        return self.limit or self.table.memory

    @cached_property
    def own_kernels(self) -> FeatureKernels:
        """The kernels of the features of the block."""
        return self.kernels.select(self.own)

    @property
    def to_sort(self) -> np.ndarray | None:
        """The rows whose order statistics become points; None for all."""
        return rows_to_sort(self.table.n)

    @property
    def counted_by_rows(self) -> bool:
        """Whether workers count chunks of rows instead of blocks of features: each then reads a part of the files."""
        single = (np.diff(self.table.offsets)[self.own] == 1).all()
        sampled = self.cells is not None and self.to_sort is not None and self.kernels.rounds
        return bool(sampled and single and not self.load and self.table.readable)

    def loaded(self, pool: BufferPool | None = None) -> FeatureBlock:
        """The same features with a table in memory."""
        if self.table.memory is None:
            return self
        tables = self.table.tables
        sizes = [((table.n, self.width), dtype_of(table.prototype)) for table in tables]
        spaces = [None] * len(tables) if pool is None else pool.spaces(sizes)
        found = stack([table.loaded(self.own, space) for table, space in zip(tables, spaces, strict=True)])
        return self._with(found, self.kernels.within(self.own, found).select(np.arange(len(self.own))))

    def split(self, most: int) -> list[FeatureBlock]:
        """Blocks of at most `most` features."""
        if len(self.own) <= most:
            return [self]
        parts = np.array_split(np.arange(len(self.own)), -(-len(self.own) // most))
        return [replace(self, features=self.features[part], own=self.own[part]) for part in parts]

    def _with(self, table: Table, kernels: FeatureKernels) -> FeatureBlock:
        """The block in a table that holds its features only."""
        return replace(self, table=table, kernels=kernels, own=np.arange(len(self.own)))

    def __reduce__(self) -> tuple[Any, ...]:
        table, cells = stack([to_send(table, self.own) for table in self.table.tables]), self.cells
        if cells is not None:
            cells = cells.astype(np.min_scalar_type(int(cells.max(initial=0))))
        sent = replace(self._with(table, self.kernels.within(self.own, table)), cells=cells)
        return FeatureBlock, tuple(getattr(sent, field.name) for field in fields(sent))


def map_blocks(
    work: Callable[[FeatureBlock], Output], blocks: Iterable[FeatureBlock], total: int, *, local: bool = False
) -> Iterator[Output]:
    """`work` of each block, in order; reports progress out of `total` features.

    Blocks run on threads or on the workers in use; those from a file or divided by rows, and all of them with `local`,
    run one after the other in this thread, so that the parallel maps inside of `work` have all threads or workers.
    """
    done, sizes = 0, deque[int]()

    def counted() -> Iterator[FeatureBlock]:
        for block in blocks:
            sizes.append(len(block.features))
            yield block

    def most_of(block: FeatureBlock) -> int | None:
        if local or block.by_rows or (worker_threads() and block.counted_by_rows):
            return 1
        return None if worker_threads() else blocks_at_once(block.table)

    for most, run in groupby(counted(), most_of):
        on_workers = worker_threads() and most is None
        for found in _on_workers(work, run) if on_workers else parallel_map(work, run, most):
            yield found
            done += sizes.popleft()
            report_progress("scoring features", done, total)


def _on_workers(work: Callable[[FeatureBlock], Output], blocks: Iterator[FeatureBlock]) -> Iterator[Output]:
    """`work` of each block of one table; the rows for pictures that the workers read are kept here."""
    first = next(blocks)

    def sent() -> Iterator[FeatureBlock]:
        for block in chain([first], blocks):
            assert block.table is first.table  # whose files the workers keep open
            yield replace(block, cells=None)

    common = replace(first, features=first.features[:0], own=first.own[:0])
    for found, shown in parallel_map(_Task(work, common), sent()):
        keep_shown(first.table, shown)
        yield found


class _Task(Generic[Output]):
    """`work` of a block, with the arguments `common` that all blocks share; also returns the rows for pictures that
    were read.

    A worker keeps it for all its blocks, and the files open.
    """

    def __init__(self, work: Callable[[FeatureBlock], Output], common: FeatureBlock) -> None:
        self._work, self._common = work, common

    def __call__(self, block: FeatureBlock) -> tuple[Output, Any]:
        self._reading  # noqa: B018 - opened at the first block, closed with this object
        stored = with_sources(block.table, self._common.table)
        block = replace(block, table=stored, cells=self._common.cells)
        return self._work(read_together([block])[0] if block.load else block), shown_rows(stored)

    @cached_property
    def _reading(self) -> AbstractContextManager[Any]:
        reading = self._common.table.reading()
        reading.__enter__()
        return reading

    def __reduce__(self) -> tuple[Any, ...]:
        return _Task, (self._work, self._common)


def blocks_of(
    table: Table,
    kernels: FeatureKernels,
    cells: Any = None,
    *,
    among: np.ndarray | None = None,
    by_rows: bool = False,
    is_known: Callable[[np.ndarray], bool] = lambda features: False,
) -> Iterator[FeatureBlock]:
    """Blocks of the features of a table, of all or of those in `among`.

    Columns of a table on disk are read once where some of them fit into memory, and the next ones while a block is
    processed; what `is_known` need not be read. `by_rows` where the counts of a block may come from threads that divide
    its rows, and from `parts` of a block that does not fit into memory.
    """
    threads, fit, all_columns = worker_threads(), columns_to_load(table), int(table.offsets[-1])
    by_column = threads > 0 and table.readable and table.by_column
    in_parts, by_rows = by_rows, by_rows and not threads and cells is not None and long_and_narrow(table, fit > 0)

    def blocks() -> Iterator[FeatureBlock]:
        for features in feature_blocks(table, kernels.rounds, cells is None, whole=by_rows, loaded=fit > 0):
            chosen = features if among is None else features[np.isin(features, among)]
            if len(chosen):
                block = FeatureBlock(chosen, table, kernels, chosen, cells, all_columns, by_rows)
                # Of few columns workers read parts of the rows.
                if by_column and block.width <= fit * len(chosen):
                    block = replace(block, load=table.d >= 2 * threads or not block.counted_by_rows)
                most = sent_columns(table, table.d) if threads and not block.counted_by_rows else len(chosen)
                yield from block.split(min(most, fit) if block.load else most)

    if threads or not fit:
        yield from blocks()
        return
    cut = in_parts and table.incomplete is None
    whole = [(one, one.split(fit) if cut and not is_known(one.features) else [one]) for one in blocks()]
    loads = list[list[FeatureBlock]]()
    for part in (part for _, parts in whole for part in parts):
        if not loads or sum(one.width for one in loads[-1]) + part.width > fit:
            loads.append([])
        loads[-1].append(part)

    def read(load: list[FeatureBlock]) -> list[FeatureBlock]:
        unread = load[0].width > fit or all(is_known(part.features) for part in load)
        return load if unread else read_together(load)

    def arriving() -> Iterator[FeatureBlock]:
        total, done = sum(block.width for block, _ in whole), 0
        for load in prefetch(read, loads):
            done += sum(part.width for part in load)
            report_progress("reading columns", done, total)
            yield from load

    with table.reading():
        found = arriving()
        for block, parts in whole:
            yield next(found) if len(parts) == 1 else replace(block, parts=islice(found, len(parts)))


# Blocks of a table on disk that are in memory as a whole ------------------------------------------------------------


def loaded_if_it_fits(table: Table) -> Table:
    """The table in memory, where it fits."""
    if table.memory is None or columns_that_fit(table.tables, 0) < int(table.offsets[-1]):
        return table
    return table.loaded(slice(0, table.d))


def read_together(blocks: Sequence[FeatureBlock]) -> list[FeatureBlock]:
    """Blocks with their values in memory, in one table that is contiguous by column.

    Kernels are fitted when the columns are sorted.
    """
    tables, features = blocks[0].table.tables, np.concatenate([block.own for block in blocks])
    width = sum(block.width for block in blocks)
    spaces = [np.empty((width, one.n), dtype_of(one.prototype)).T if one.on_disk else None for one in tables]
    table = stack([one.loaded(features, space) for one, space in zip(tables, spaces, strict=True)])
    kernels, places = blocks[0].kernels.within(features, table), np.arange(len(features))
    own = np.split(places, np.cumsum([len(block.own) for block in blocks[:-1]]))
    return [
        replace(block, table=table, kernels=kernels, own=some, limit=block.table.memory)
        for block, some in zip(blocks, own, strict=True)
    ]


class BufferPool:
    """Reusable buffers for blocks: the system would clear newly allocated ones first.

    With threads two blocks are in use at a time: the current one, and the next, which is being read.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._buffers: dict[tuple[int, int], np.ndarray] = {}

    def spaces(self, sizes: Sequence[tuple[tuple[int, int], np.dtype[Any]]]) -> list[np.ndarray]:
        """An array of this shape for each table."""
        self._turn = (self._turn + 1) % prefetched_items()
        found = []
        for place, ((n, columns), dtype) in enumerate(sizes):
            buffer = self._buffers.pop((self._turn, place), None)
            if buffer is None or len(buffer) < n * columns or buffer.dtype != dtype:
                del buffer
                buffer = _aligned(n * columns, dtype)
            self._buffers[self._turn, place] = buffer
            found.append(buffer[: n * columns].reshape(n, columns))
        return found


def _aligned(numbers: int, dtype: np.dtype[Any]) -> np.ndarray:
    """An empty array that is aligned with cache lines."""
    buffer = np.empty(numbers + LINE // dtype.itemsize, dtype=dtype)
    start = -buffer.ctypes.data % LINE // dtype.itemsize
    return buffer[start : start + numbers]
