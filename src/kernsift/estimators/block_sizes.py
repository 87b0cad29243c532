"""How many features are processed together, by memory, threads, workers and cache lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from kernsift.data.sparse import SparseTable
from kernsift.data.stored import StoredTable
from kernsift.data.tables import Table
from kernsift.exceptions import InputError
from kernsift.execution.arrays import Array, device_room, dtype_of, most_at_once, on_host, slices
from kernsift.execution.parallel import worker_threads
from kernsift.execution.threads import prefetched_items
from kernsift.kernels.quantisation import POINTS

# Features in one block, at least and at most: an eighth of all, so that there are blocks for several threads, and fewer
# in a long table, each of whose columns takes long.
_BLOCK, _LARGEST_BLOCK, _NUMBERS = 64, 512, 2**21
# A table with at most `_BLOCK` columns and at least this many values is long and narrow.
_MANY_VALUES = 2**22
# On a device the limit is an eighth of its free memory, with these bytes per feature and per code of a row.
_DEVICE_BLOCK, _DEVICE_BYTES, _CODE_BYTES = 2**14, 2**20, 8
# Bytes per feature while a table on disk is read: its sorted rows, counts and codes. Tables on disk are read in as few
# passes as their memory limit allows.
_BYTES = 2**16
# Bytes per row of a feature with one point per row: 256 directions, and some of them twice; and with a lookup per row.
_ROW_BYTES, _LOOKED_UP = 2**12, 2**6
# Bytes of the blocks that are being sent to workers at a time, and of one of them.
_SENT_BYTES, _MESSAGE_BYTES = 2**30, 2**25
# The share of the memory limit that blocks of a table on disk and the design may use.
_SHARE = 0.6
# Bytes of a block: enough to read at full speed; and the fewest columns with which gathering rows uses most of a cache
# line.
_BLOCK_BYTES, _ROW = 2**27, 16
# Parts of a table that were read in memory at a time, bytes of each, and bytes of its smallest pieces.
_LOADS, _LOAD_BYTES, _LEAST_PIECE = 6, 2**25, 2**20
LINE = 64
"""Bytes of a cache line. Rows that are aligned with cache lines do not load others."""


def long_and_narrow(table: Table, loaded: bool) -> bool:
    """Whether a table in memory has so few columns that blocks of them would read the same cache lines again."""
    columns = int(table.offsets[-1])
    dense = not isinstance(table, SparseTable) and isinstance(table.prototype, np.ndarray)
    return (table.memory is None or loaded) and dense and columns <= _BLOCK and table.n * columns >= _MANY_VALUES


def feature_blocks(
    table: Table, rounded: bool = True, every_row: bool = False, *, whole: bool = False, loaded: bool = False
) -> Iterator[np.ndarray]:
    """Blocks of features that are processed together: single columns in blocks, the others one by one.

    Columns that are not `rounded` are processed one by one as well. `every_row`: the codes of all rows are kept.
    `whole`: all columns of a kind are one block. Those of a table on disk that is `loaded` are those of one in memory.
    """
    widths = np.diff(table.offsets)
    many = np.array([len(table.levels.get(name, ())) > POINTS for name in table.names]) if table.levels else False
    alone = (widths > 1) | many | (not rounded)
    single = np.flatnonzero(~alone)
    least = max(1, min(_NUMBERS // table.n, _BLOCK))
    step = _BLOCK if whole else min(max(len(single) // 8, least), _LARGEST_BLOCK)
    if not on_host(table.prototype):
        each = _DEVICE_BYTES + (_CODE_BYTES * table.n if every_row else 0)
        step = int(np.clip(device_room(table.prototype) // (8 * each), _BLOCK, _DEVICE_BLOCK))
    elif table.memory is not None:
        each = _BYTES + (table.n if every_row else 0)
        step = int(np.clip(table.memory // (8 * each), 1, step if loaded else 64 * _BLOCK))
        itself = bool((widths > 1).any()) or not rounded
        if (itself and _ROW_BYTES * table.n > table.memory) or (every_row and 8 * each > table.memory):
            _refuse(table, itself)
    for kind in (single[~table.categorical[single]], single[table.categorical[single]]):
        if len(kind):
            yield from [kind] if len(kind) <= step else np.array_split(kind, -(-len(kind) // step))
    for one in np.flatnonzero(alone):
        yield np.array([one])


def _refuse(table: Table, itself: bool) -> None:
    what = "a feature with one point per row, as groups have," if itself else "the codes of all rows"
    needed = (_ROW_BYTES if itself else 8) * table.n
    raise InputError(
        f"memory: {what} of {table.n:,} rows need {needed / 1e6:,.0f} MB, but {(table.memory or 0) / 1e6:,.0f} MB may "
        f"be used; allow more, or use estimator={'incomplete' if itself else 'complete'!r}."
    )


def blocks_at_once(table: Table) -> int | None:
    """The most blocks in flight; one from a file, whose pieces are then divided among threads."""
    return most_at_once(table.prototype) if table.memory is None else 1


def parts_of(
    features: np.ndarray, prototype: Array, rows: int = 0, memory: int | None = None, several: bool = False
) -> list[slice]:
    """The parts of a block that are processed together.

    `rows` is the number of rows with a lookup for every feature; `several` cuts a small block as well, down to
    `_BLOCK` features where their counts are all that is processed: fewer cost a thread as much as these.
    """
    step = _LARGEST_BLOCK if on_host(prototype) else len(features)
    if several:
        step = max(-(-len(features) // 4), 1 if rows else _BLOCK)
    if memory is not None and rows:
        step = int(np.clip(memory // (4 * _LOOKED_UP * rows), 1, step))
    return list(slices(0, len(features), step))


def sent_columns(table: Table, columns: int) -> int:
    """Columns of a block for a worker: every worker gets some, and blocks that are sent pass the scheduler."""
    threads = worker_threads()
    # Where every block needs a pass over the whole file, two blocks per thread would take twice as long.
    fair = -(-columns // (2 * threads if table.by_column else threads))
    if table.readable:
        return max(1, fair)
    row = table.n * dtype_of(table.prototype).itemsize
    return max(1, min(fair, min(_MESSAGE_BYTES, _SENT_BYTES // (2 * threads)) // row))


def runs_of(offsets: np.ndarray, most: int) -> list[np.ndarray]:
    """Runs of features with at most `most` value columns, or of one feature."""
    bounds = [0]
    while bounds[-1] < len(offsets) - 1:
        fit = int(np.searchsorted(offsets, offsets[bounds[-1]] + most, side="right")) - 1
        bounds.append(max(fit, bounds[-1] + 1))
    return [np.arange(start, stop) for start, stop in pairwise(bounds)]


def columns_to_load(table: Table) -> int:
    """Value columns of a table on disk that are read at a time; 0 where rows are read in pieces instead, and twice."""
    tables = [one for one in table.tables if isinstance(one, StoredTable)]
    if table.memory is None or not tables:
        return 0
    each, columns = sum(one.n * one.dtype.itemsize for one in tables), int(table.offsets[-1])
    if not all(one.by_column for one in tables):
        return columns if columns * each <= _SHARE * table.memory else 0
    # A worker reads a block and processes it; here others are read and processed meanwhile.
    loads, most = (2, _BLOCK_BYTES) if worker_threads() else (_LOADS, _LOAD_BYTES)
    fit = int(_SHARE * table.memory) // (loads * each)
    # Enough for pieces that are read at full speed; a quarter of that still takes less time than a second pass.
    least = min(columns, -(-_LEAST_PIECE * sum(len(one.source.edges) - 1 for one in tables) // each))
    return min(fit, max(least, most // each)) if fit >= least / 4 else 0


def columns_that_fit(tables: Sequence[Table], design: int, at_once: int | None = None) -> int:
    """Value columns of tables on disk that fit into memory together with a design of this many bytes.

    Where there are threads there are two such blocks, or `at_once`: one is worked on while the next is read. Where not
    even a feature fits this raises.
    """
    at_once = prefetched_items() if at_once is None else at_once
    memory = min((table.memory for table in tables if table.memory is not None), default=None)
    if memory is None:
        return int(tables[0].offsets[-1])
    each = sum(table.n * dtype_of(table.prototype).itemsize for table in tables)
    widest = int(np.diff(tables[0].offsets).max())
    room = int(_SHARE * memory) - design
    if room < at_once * widest * each:
        needed = (at_once * widest * each + design) / _SHARE
        raise InputError(
            f"memory: a feature of {sum(table.n for table in tables):,} rows and the rows that are drawn of it need "
            f"{needed / 1e6:,.0f} MB, but {memory / 1e6:,.0f} MB may be used; allow more, or use estimator='complete', "
            "which reads rows piece by piece."
        )
    most = room // (at_once * each)
    if all(table.by_column for table in tables):
        # Columns that can be read separately need not all be in memory, and new memory has to be cleared first.
        most = min(most, max(_BLOCK_BYTES // each, _ROW, widest))
    return max(1, whole_lines(most, dtype_of(tables[0].prototype).itemsize))


def whole_lines(most: int, bytes_each: int = 8) -> int:
    """The largest number of columns up to `most` whose rows fill whole cache lines, if there are enough for one."""
    in_line = LINE // bytes_each
    return most - most % in_line if most > in_line else most
