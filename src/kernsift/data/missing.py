"""Missing values: checks, and groups of features (patterns) that have values in the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kernsift.data.tables import MISSING_LEVEL, Table, stack
from kernsift.exceptions import InputError, listed, quoted
from kernsift.execution.arrays import to_numpy
from kernsift.execution.memory import values_bytes
from kernsift.execution.notes import add_note

KEEP_ALL_ROWS = ("column", "value")
"""Ways to treat missing values that leave no row out; they stay in the table as NaN."""
MISSING = (*KEEP_ALL_ROWS, "drop", "error")
"""All ways to treat missing values."""


def note_values(table: Table) -> None:
    """Note how many features have missing values that count as a value."""
    some = int(np.count_nonzero(_incomplete_features(table)))
    some += sum(MISSING_LEVEL in levels for levels in table.levels.values())
    if some:
        add_note(f"{_have_missing(some, table.d)}, which count as a value of their own.")


def _incomplete_features(table: Table) -> np.ndarray:
    """(d,) bool: the features with missing values."""
    flags = np.zeros(int(table.offsets[-1]), dtype=bool) if table.incomplete is None else table.incomplete
    return np.logical_or.reduceat(flags, table.offsets[:-1])


def _have_missing(some: int, features: int) -> str:
    noun, verb = "feature" if features == 1 else "features", "has" if some == 1 else "have"
    return f"{some:,} of {features:,} {noun} {verb} missing values"


class RowPattern(NamedTuple):
    """Features (b,) with values in the same rows (m,), which are increasing; None for all rows."""

    features: np.ndarray
    rows: np.ndarray | None


class Patterns:
    """The patterns of features in tables whose rows are concatenated.

    The first pattern has the features that all rows have, of which there may be none.
    """

    def __init__(self, tables: Sequence[Table]) -> None:
        whole = stack(tables)
        self._tables, self._ends = tables, np.cumsum([table.n for table in tables])
        self.names, self.rows = whole.names, whole.n
        incomplete = _incomplete_features(whole)
        self.patterns = [RowPattern(np.flatnonzero(~incomplete), None)]
        self._loaded: Sequence[Table] = ()
        self._place = np.cumsum(incomplete) - 1
        if incomplete.any():
            self._load(np.flatnonzero(incomplete))

    def _load(self, features: np.ndarray) -> None:
        """The features with missing values, in memory; which rows have them."""
        for table in self._tables:
            widths = int(np.diff(table.offsets)[features].sum())
            if table.memory is not None and 8 * self.rows * widths > values_bytes(table.memory):
                raise InputError(
                    f"memory: {len(features)} features have missing values and take "
                    f"{8 * self.rows * widths / 1e6:,.0f} MB together, more than half of the "
                    f"{table.memory / 1e6:,.0f} MB that may be used; allow more, or use missing='drop'."
                )
        self._loaded = [table.loaded(features) for table in self._tables]
        starts = self._loaded[0].offsets[:-1]
        found: dict[bytes, list[int]] = {}
        gaps = np.concatenate([np.isnan(to_numpy(table.values)) for table in self._loaded])
        packed = np.packbits(np.logical_or.reduceat(gaps, starts, axis=1), axis=0)
        for place, feature in enumerate(features.tolist()):
            found.setdefault(packed[:, place].tobytes(), []).append(feature)
        for key, own in found.items():
            missing = np.unpackbits(np.frombuffer(key, dtype=np.uint8), count=self.rows).astype(bool)
            self.patterns.append(RowPattern(np.array(own), np.flatnonzero(~missing)))

    @property
    def n(self) -> np.ndarray:
        """(d,) how many rows have each feature."""
        out = np.full(len(self.names), self.rows)
        for own in self.patterns[1:]:
            assert own.rows is not None
            out[own.features] = len(own.rows)
        return out

    def tables(self, pattern: RowPattern) -> list[Table]:
        """The features of a pattern in the rows that have them, table by table."""
        if pattern.rows is None:
            return [table.select(pattern.features) for table in self._tables]
        own = self._place[pattern.features]
        out = []
        for table, end in zip(self._loaded, self._ends.tolist(), strict=True):
            first, last = np.searchsorted(pattern.rows, [end - table.n, end])
            part = table.sample(own, pattern.rows[first:last] - (end - table.n))
            out.append(replace(part, incomplete=None, origin={}))
        return out

    def note(self) -> None:
        """Note how many features have missing values, and which of them has the fewest rows."""
        some = sum(len(own.features) for own in self.patterns[1:])
        if some:
            least = int(self.n.argmin())
            add_note(
                f"{_have_missing(some, len(self.names))}; each feature is tested on the rows that have it, "
                f"{self.names[least]!r} on the fewest: {self.n[least]:,} of {self.rows:,}."
            )


def check_cells(
    argument: str, names: Sequence[str], infinite: np.ndarray, gaps: np.ndarray, keep: np.ndarray, missing: str | None
) -> None:
    """Refuse columns with infinite values, and rows with missing ones unless `missing` allows for them.

    `gaps` are the numbers of missing values of the columns, `keep` the rows without any.
    """
    if infinite.any():
        raise InputError(
            f"{argument}: infinite values in {quoted(names[i] for i in np.flatnonzero(infinite).tolist())}; replace or "
            "remove them."
        )
    left, n = int(np.count_nonzero(keep)), len(keep)
    suspect = np.flatnonzero(gaps)
    if not suspect.size or missing in KEEP_ALL_ROWS or (missing == "drop" and left >= 2):
        return
    order = suspect[np.argsort(-gaps[suspect], kind="stable")] if missing == "drop" else suspect
    counts = [f"'{names[i]}' ({gaps[i]})" for i in order]
    if argument == "y" and missing == "drop":
        raise InputError(f"y: at least 2 rows need a response, but {left} of {n} have one; choose another response.")
    if missing == "drop":
        raise InputError(
            f"{argument}: missing='drop' leaves {left} of {n} rows, at least 2 are needed; leave out or fill the "
            f"columns with most missing values: {listed(counts)}."
        )
    fix = "fill them in, or " + ("use missing='drop' or 'column'" if missing == "error" else "leave these rows out")
    raise InputError(f"{argument}: {n - left} of {n} rows have missing values, in columns {listed(counts)}; {fix}.")
