"""What is done with the columns and rows of tables before they are tested: kinds, missing values, rows to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernsift.data.columns.columns import EXACT, Columns, pick_entries, require_same_device, subtract_origin
from kernsift.data.columns.encoding import make_encoding
from kernsift.data.columns.kinds import ColumnDecisions, chosen_kinds, decide_kinds
from kernsift.data.columns.layout import layout_of, make_table, members_of
from kernsift.data.formats import Source
from kernsift.data.formats.in_memory import MemorySource
from kernsift.data.formats.sparse_matrices import SparseSource
from kernsift.data.missing import KEEP_ALL_ROWS, MISSING, check_cells
from kernsift.data.responses import FEW
from kernsift.data.scan import Scan, scan, statistics_suffice
from kernsift.data.sparse import SparseTable
from kernsift.data.stored import StoredTable
from kernsift.data.tables import Table
from kernsift.exceptions import InputError, check_choice, listed, quoted
from kernsift.execution.memory import parse_memory
from kernsift.execution.notes import add_note
from kernsift.execution.parallel import task_memory


@dataclass
class Prepared:
    """Tables with the same columns after a scan, and the decisions on their columns and rows; `keep` (n,) for each
    table.

    The scans are without the columns that are left out.
    """

    scans: list[Scan]
    decisions: ColumnDecisions
    arguments: Sequence[str]
    groups: Mapping[str, Any] | None
    missing: str
    memory: int

    def __post_init__(self) -> None:
        self.keep = [_rows_to_keep(scan, self.decisions, self.missing) for scan in self.scans]

    def tables(self) -> list[Table]:
        """The tables, with the same codes and the same float type; outside of memory where one of them is."""
        if all(isinstance(scan.source, MemorySource) for scan in self.scans):
            columns = self.columns()
            durations = self.decisions.durations
            layout = layout_of(columns[0], columns[0].levels, self.groups, columns[0].origin, durations)
            return [make_table(part, layout) for part in columns]
        sparse = all(isinstance(scan.source, SparseSource) for scan in self.scans) and not self.decisions.categories
        return self._sparse() if sparse else self._stored()

    def columns(self) -> list[Columns]:
        """The rows that are kept of tables in memory, with the same codes and the same float type."""
        parts = [self._kept(place).columns for place in range(len(self.scans))]
        require_same_device([part.values for part in parts], self.arguments)
        moved = subtract_origin(parts, self.arguments)
        scans = [
            one
            if part is getattr(one.source, "columns", None)
            else scan(MemorySource(part, one.source.argument), self.memory)
            for one, part in zip(self.scans, moved, strict=True)
        ]
        encoding, _ = make_encoding(scans, self.decisions, self.arguments, self.missing)
        return [encoding.columns(part) for part in moved]

    def _stored(self) -> list[Table]:
        scans = []
        for place, (one, keep) in enumerate(zip(self.scans, self.keep, strict=True)):
            _check_stored(one, self.arguments[place])
            scans.append(one if keep.all() else scan(self._kept(place), self.memory, trust=False))
        encoding, spans = make_encoding(scans, self.decisions, self.arguments, self.missing)
        durations = self.decisions.durations
        layout = layout_of(scans[0].source, encoding.levels, self.groups, encoding.origin, durations)
        memory = task_memory(self.memory)
        return [
            StoredTable(one.source, layout, encoding, low, high, memory, encoding.incomplete(one))
            for one, (low, high) in zip(scans, spans, strict=True)
        ]

    def _sparse(self) -> list[Table]:
        """Tables of sparse matrices, which stay sparse."""
        encoding, _ = make_encoding(self.scans, self.decisions, self.arguments, self.missing)
        layout = layout_of(self.scans[0].source, {}, self.groups)
        parts = [self._kept(place).rows for place in range(len(self.scans))]
        for part in parts:
            part.store.limit(self.memory)
        return [SparseTable(layout, [part], encoding.dtype) for part in parts]

    def _kept(self, place: int) -> Any:
        keep = self.keep[place]
        if keep.sum() < 2:
            leave = "missing='drop' leaves" if self.missing == "drop" else "missing labels or values leave"
            raise InputError(
                f"{self.arguments[place]}: {leave} {keep.sum()} of {len(keep)} rows, at least 2 are needed; fill them "
                "in, or leave out columns that miss many."
            )
        return self.scans[place].source.where(keep)


def _check_stored(one: Scan, argument: str) -> None:
    """Refuse arrays that cannot be combined with a table in files, and integers that reading in pieces would round."""
    if isinstance(one.source, MemorySource) and not isinstance(one.source.columns.values, np.ndarray):
        raise InputError(
            f"{argument}: beside a table on disk NumPy arrays and data frames are taken, got "
            f"{type(one.source.columns.values).__name__}; convert it to NumPy."
        )
    whole = np.array([kind == "integer" for kind in one.kinds])
    large = np.flatnonzero(whole & (np.maximum(-one.low, one.high) > EXACT))
    if large.size:
        raise InputError(
            f"{argument}: integers beyond 2^53 in {quoted(one.source.names[i] for i in large)} lose their "
            "differences where a table is read in pieces; subtract the smallest first, or leave these columns out."
        )


def prepare(
    sources: Sequence[Source],
    arguments: Sequence[str],
    *,
    groups: Mapping[str, Any] | None = None,
    missing: str = "error",
    kinds: Mapping[str, str] | None = None,
    memory: int | str | None = None,
    labels: bool = False,
) -> Prepared:
    """Scan tables that have the same columns, and decide on these columns; those of `labels` are all kept."""
    check_choice("missing", missing, MISSING)
    budget = parse_memory(memory)
    names = sources[0].names
    members = members_of(sources[0], groups)
    chosen = chosen_kinds(kinds, names, arguments[0])
    rest = [i for i in range(len(names)) if chosen.get(i) != "drop"]
    if len(rest) < len(names):
        sources = [source.pick(rest) for source in sources]
        chosen = pick_entries(chosen, rest)
    if not rest:
        raise InputError(f"{arguments[0]}: no column is left; choose fewer to drop.")
    # The statistics of files do not count NaN, which matters where rows or columns depend on it.
    scans = [scan(source, budget, trust=statistics_suffice(missing)) for source in sources]
    together = {name for part in (members or {}).values() for name in part}
    stay = [i for i, name in enumerate(sources[0].names) if labels or name in together]
    decisions = decide_kinds(scans, chosen, stay, FEW if labels else 2, empty=missing != "error")
    for note in (*_file_notes(sources), *decisions.notes):
        if not (labels and note.startswith("Text, compared")):  # which labels are expected to be
            add_note(note)
    if decisions.left_out:
        scans, decisions = _without(scans, decisions, budget, missing)
    return Prepared(scans, decisions, arguments, members, missing, budget)


def _file_notes(sources: Sequence[Source]) -> list[str]:
    """The notes about files, with equal notes about several files merged into one."""
    files: dict[str, dict[str, None]] = {}
    for file, _, said in (note.partition(": ") for source in sources for note in source.notes):
        files.setdefault(said, {})[file] = None
    return [f"{listed(list(names))}: {said}" for said, names in files.items()]


def _without(
    scans: list[Scan], decisions: ColumnDecisions, memory: int, missing: str
) -> tuple[list[Scan], ColumnDecisions]:
    """The same without the columns that are left out, whose missing values exclude no row."""
    rest = [i for i in range(len(scans[0].source.names)) if i not in decisions.left_out]
    again = [
        scan(one.source.pick(rest), memory, trust=statistics_suffice(missing))
        if one.gaps[list(decisions.left_out)].any()
        else one.pick(rest)
        for one in scans
    ]
    dates, durations, categories = (
        {new for new, old in enumerate(rest) if old in some}
        for some in (decisions.dates, decisions.durations, decisions.categories)
    )
    parsed = pick_entries(decisions.parsed, rest)
    kept = replace(decisions, left_out=set(), parsed=parsed, dates=dates, durations=durations, categories=categories)
    return again, kept


def _rows_to_keep(one: Scan, decisions: ColumnDecisions, missing: str) -> np.ndarray:
    """(n,) bool: the rows without a missing value, or all where missing values may stay; refuses other cells."""
    gaps, keep = one.gaps, one.keep
    lost = {i for i, numbers in decisions.parsed.items() if np.isnan(list(numbers.values())).any()}
    if lost:  # texts that denote missing values
        gaps, keep = gaps.copy(), keep.copy()
        for i in lost & one.levels.keys():
            cells = one.source.read([i])
            absent = np.isnan([decisions.parsed[i].get(level, np.nan) for level in cells.levels.get(0, ())])
            codes = cells.values[:, 0]
            empty = np.isnan(codes)
            empty[~empty] = absent[codes[~empty].astype(np.intp)]
            gaps[i] = empty.sum()
            keep &= ~empty
        one.gaps = gaps
    keep = np.ones(one.source.n, dtype=bool) if missing in KEEP_ALL_ROWS else keep
    check_cells(one.source.argument, one.source.names, one.infinite, gaps, keep, missing)
    if not keep.all():
        used, what = np.count_nonzero(keep), "a response" if one.source.argument == "y" else "no missing value"
        add_note(f"{one.source.argument}: {used:,} of {len(keep):,} rows have {what} and are used.")
    return keep
