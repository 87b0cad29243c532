"""One pass over a table: bounds, missing values and texts of each column, in memory or in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np

from kernsift.data.columns.columns import Columns, pick_entries
from kernsift.data.formats.in_memory import MemorySource
from kernsift.data.formats.source import TEXTS, Source
from kernsift.data.missing import KEEP_ALL_ROWS
from kernsift.exceptions import InputError
from kernsift.execution.arrays import take, to_numpy
from kernsift.execution.context import setting
from kernsift.execution.memory import reading_bytes
from kernsift.execution.parallel import parallel_map, task_memory, worker_threads
from kernsift.execution.progress import report_progress

_trusting: ContextVar[bool] = ContextVar("trusting", default=False)


def trusting_statistics(trust: bool) -> AbstractContextManager[bool]:
    """Inside, `trust` decides whether a column without nulls in the statistics of a file is taken to have no NaN.

    It saves one pass over the file. A NaN that is read later raises `HiddenMissingValues`.
    """
    return setting(_trusting, trust)


def statistics_suffice(missing: str) -> bool:
    """Whether the statistics of a file suffice for this treatment of missing values."""
    return missing == "error" or (missing in KEEP_ALL_ROWS and _trusting.get())


@dataclass
class Scan:
    """What a pass over a table found, column by column: the smallest and the largest finite value (of text, the first
    and the last code), the number of missing cells, and whether there are infinite ones.

    `kinds` are as in `Source`, with those that are known only after reading; `keep` (n,) marks the rows without a
    missing cell; `levels` are the different texts of each column of text, and `room` the bytes left for more of these.
    """

    source: Source
    kinds: list[str]
    low: np.ndarray
    high: np.ndarray
    gaps: np.ndarray
    infinite: np.ndarray
    keep: np.ndarray
    levels: dict[int, set[str]]
    room: int

    def add_texts(self, column: int, texts: Sequence[str]) -> None:
        """Add texts of a column; those of all columns must fit into memory."""
        known = self.levels.setdefault(column, set())
        new = [text for text in texts if text not in known]
        known.update(new)
        self.room -= sum(100 + len(text) for text in new)
        if self.room < 0:
            raise InputError(
                f"memory: the different texts in column '{self.source.names[column]}' of {self.source.argument}, "
                f"{len(known):,} so far, do not fit; leave out columns that label rows, or allow more."
            )

    def pick(self, positions: Sequence[int]) -> Scan:
        """What was found of the columns at these positions; `keep` stays that of all columns."""
        own = np.asarray(positions, dtype=np.intp)
        levels = pick_entries(self.levels, positions)
        kinds = [self.kinds[i] for i in positions]
        source = self.source.pick(positions)
        low, high, gaps, infinite = (found[own] for found in (self.low, self.high, self.gaps, self.infinite))
        return Scan(source, kinds, low, high, gaps, infinite, self.keep, levels, self.room)


def _empty_scan(source: Source, memory: int) -> Scan:
    p = len(source.names)
    return Scan(
        source,
        kinds=list(source.kinds),
        low=np.full(p, np.inf),
        high=np.full(p, -np.inf),
        gaps=np.zeros(p, dtype=np.int64),
        infinite=np.zeros(p, dtype=bool),
        keep=np.ones(source.n, dtype=bool),
        levels={i: set() for i, kind in enumerate(source.kinds) if kind in TEXTS},
        room=reading_bytes(memory),
    )


def scan(source: Source, memory: int, *, trust: bool = True) -> Scan:
    """Read every column, or use the statistics of the file where these suffice.

    Statistics of floating-point columns do not count NaN. With `trust` they are used nevertheless: a NaN is found when
    the values are read. Where rows with missing cells are left out, the values must be read here.
    """
    p = len(source.names)
    if source.n < 2:
        raise InputError(f"{source.argument}: at least 2 rows are needed, got {source.n}; pass more data.")
    found = _empty_scan(source, memory)
    if isinstance(source, MemorySource):
        _add_cells(found, source.columns, np.arange(p), slice(0, source.n))
        return found
    unread = np.ones(p, dtype=bool)
    bounds = source.bounds()
    if bounds is not None:
        exact = np.array([kind in ("integer", "truth") for kind in source.kinds])
        known = bounds.known & (bounds.gaps == 0) & (exact | trust | bounds.exact)
        found.low[known], found.high[known] = bounds.low[known], bounds.high[known]
        found.infinite[known] = ~np.isfinite(bounds.low[known]) | ~np.isfinite(bounds.high[known])
        unread = ~known
    columns = np.flatnonzero(unread)
    if source.in_memory or not len(columns) or not worker_threads():
        _scan_columns(found, columns, memory)
    else:
        _scan_on_workers(found, columns, memory, 2 * worker_threads())
    return found


def _scan_on_workers(found: Scan, columns: np.ndarray, memory: int, chunks: int) -> None:
    """Scan the table on the workers in use, each a chunk of rows at a time."""
    source = found.source
    edges = np.unique(source.edges[np.linspace(0, len(source.edges) - 1, chunks + 1).astype(int)])
    spans = [slice(start, stop) for start, stop in pairwise(edges.tolist())]
    scan_rows = partial(_scan_rows, source.pick(columns.tolist()), task_memory(memory))
    for span, part in zip(spans, parallel_map(scan_rows, spans), strict=True):
        for i, levels in part.levels.items():
            found.add_texts(int(columns[i]), sorted(levels))
        for i, column in enumerate(columns.tolist()):
            _update_kind(found, column, part.kinds[i])
        found.low[columns] = np.minimum(found.low[columns], part.low)
        found.high[columns] = np.maximum(found.high[columns], part.high)
        found.gaps[columns] += part.gaps
        found.infinite[columns] |= part.infinite
        found.keep[span] &= part.keep
        report_progress(f"rows of {source.argument}", span.stop, source.n)


def _scan_rows(source: Source, memory: int, rows: slice) -> Scan:
    found = _empty_scan(source.between(rows.start, rows.stop), memory)
    _scan_columns(found, np.arange(len(source.names)), memory)
    return replace(found, source=cast(Any, None))  # the caller keeps the original


def _scan_columns(found: Scan, columns: np.ndarray, memory: int) -> None:
    source = found.source
    done, total = 0, source.n * len(columns)
    for cut, cells in source.pieces(columns.tolist(), slice(0, source.n), reading_bytes(memory)):
        done += cells.values.size
        if cells.n:
            _add_cells(found, cells, columns[cut.columns], cut.rows)
        report_progress(f"cells of {source.argument}", done, total)


def _update_kind(found: Scan, column: int, kind: str) -> None:
    """Record the kind of a column that the source does not know; refuse text in one part and numbers in another."""
    source, known = found.source, found.kinds[column]
    if source.kinds[column] != "unknown" or kind in ("unknown", "empty"):
        return
    if known != "unknown" and (known in TEXTS) != (kind in TEXTS):
        raise InputError(
            f"{source.argument}: column '{source.names[column]}' must hold only numbers or only strings, but it holds "
            "both, in different parts; convert the column to one of the two."
        )
    found.kinds[column] = "mixed" if "mixed" in (kind, known) else kind


def _add_cells(found: Scan, cells: Columns, own: np.ndarray, rows: slice) -> None:
    """Add one piece to what was found."""
    with np.errstate(invalid="ignore"):  # signalling NaNs, which broken files may have
        low, high = (end.astype(np.float64) for end in cells.extremes)
    # The extremes of a column show whether it is finite, without a mask of the whole piece.
    odd = np.flatnonzero(~np.isfinite(low) | ~np.isfinite(high))
    if odd.size:
        values = to_numpy(take(cells.values, odd, 1))
        gaps = np.isnan(values)
        found.gaps[own[odd]] += gaps.sum(axis=0)
        found.infinite[own[odd]] |= np.isinf(values).any(axis=0)
        found.keep[rows] &= ~gaps.any(axis=1)
        low[odd] = np.min(values, axis=0, where=~gaps, initial=np.inf)
        high[odd] = np.max(values, axis=0, where=~gaps, initial=-np.inf)
    for i, levels in cells.levels.items():
        codes = cells.values[:, i]
        used = np.unique(codes[~np.isnan(codes)]).astype(np.intp)
        found.add_texts(int(own[i]), [levels[code] for code in used])
    for i, column in enumerate(own.tolist()) if "unknown" in found.source.kinds else ():
        _update_kind(found, column, cells.kinds[i] if high[i] >= low[i] else "empty")
    found.low[own] = np.minimum(found.low[own], low)
    found.high[own] = np.maximum(found.high[own], high)
