"""Confounders: columns that are held fixed in a conditional test."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from kernsift.data.columns.columns import Columns
from kernsift.data.tables import Table
from kernsift.exceptions import InputError
from kernsift.execution.arrays import to_numpy
from kernsift.execution.notes import add_note

LEVELS = 100
"""The most categories of one confounder that are distinguished; all others are one."""
# Rows per stratum, on average, from which on strata are a confounder: where curves differ between strata, all null
# features were below 0.05 without, and with 6 rows 0.13, with 10 rows 0.05. At 60 rows equal curves lose 0.05 power.
_FEW_STRATA = 5
# Rows per combination of two categories, on average, from which on a regression follows their interaction: with 3.2
# rows 0.12 of null features were below 0.05, with 6 rows 0.05.
_ROWS_PER_CELL = 4


class NothingLeft(InputError):
    """The confounders explain everything, or may do so by chance."""


@dataclass(frozen=True, eq=False)
class Confounders:
    """Columns that are held fixed."""

    names: tuple[str, ...]
    values: np.ndarray  # (N, p) numbers, or codes of categories; NaN where missing
    categorical: np.ndarray  # (p,) which columns are categories
    rows: np.ndarray | None = None  # (n,) the rows that are used, of all
    shared: dict[str, Any] = field(default_factory=dict, repr=False)  # what is computed once for all choices of rows

    @property
    def n(self) -> int:
        return len(self.values) if self.rows is None else len(self.rows)

    def take(self, rows: np.ndarray) -> Confounders:
        """The same for some of all rows, with the same terms."""
        return replace(self, rows=rows)

    def within(self, strata: np.ndarray | None) -> Confounders:
        """The same with codes of strata (N,) as one more where these are few, as a curve may differ between strata."""
        if strata is None or _FEW_STRATA * (int(strata.max()) + 1) > len(strata):
            return self
        if "within" not in self.shared:
            self.shared["within"] = Confounders(
                (*self.names, "strata"), np.column_stack([self.values, strata]), np.append(self.categorical, True)
            )
        return self.shared["within"]


def confounders_of(columns: Columns, keep: np.ndarray, missing: str) -> Confounders:
    """Confounders from the columns of all rows and which of these (n,) are kept; dates and truth values are numbers.

    Missing values are refused where `missing` is "error".
    """
    values = to_numpy(columns.values).astype(float)[np.flatnonzero(keep)]
    categorical = np.array([place in columns.levels for place in range(values.shape[1])])
    for name, column, is_category in zip(columns.names, values.T, categorical, strict=True):
        absent = int(np.isnan(column).sum())
        if missing == "error" and absent:
            raise InputError(
                f"given: '{name}' has missing values; fill them in, or use missing='drop', which leaves these rows out."
            )
        if absent:
            add_note(
                f"given: {absent:,} of {len(column):,} rows have no '{name}', which cannot be held fixed there: a "
                "feature that follows it may be significant; missing='drop' leaves these rows out."
            )
        elif np.ptp(column) == 0:
            add_note(f"given: '{name}' has one value only.")
        levels = len(np.unique(column[~np.isnan(column)])) if is_category else 0
        if 2 * levels > len(column) > 2:
            raise InputError(
                f"given: '{name}' has {levels} categories in {len(column)} rows, too few rows each to compare within "
                "them; leave it out, or convert it if these are numbers."
            )
        if levels > LEVELS + 1:
            add_note(
                f"The {LEVELS} commonest of the {levels} categories of '{name}' in given= are distinguished, the "
                "others are one; as strata= it would be held fixed in full."
            )
    _note_few_rows_per_cell(columns.names, values, np.flatnonzero(categorical))
    return Confounders(columns.names, values, categorical)


def _note_few_rows_per_cell(names: tuple[str, ...], values: np.ndarray, categories: np.ndarray) -> None:
    """Note the two categories with most combinations, where these are too many for their interaction to be followed."""
    codes = {j: np.unique(values[:, j], return_inverse=True)[1] for j in categories}
    cells = {(i, j): len(np.unique(codes[i] * len(values) + codes[j])) for i, j in combinations(categories, 2)}
    if not cells or _ROWS_PER_CELL * max(cells.values()) <= len(values):
        return
    most = max(cells, key=cells.__getitem__)
    one, other = (names[j] for j in most)
    add_note(
        f"given: '{one}' and '{other}' have {cells[most]:,} combinations in {len(values):,} rows, too few rows each to "
        f"hold their interaction fixed: a feature that follows '{one}' in ways that differ with '{other}' may be "
        "significant. strata= with both compares within their combinations."
    )


def table_confounders(table: Table, features: np.ndarray, more: Confounders | None) -> Confounders:
    """Features of a table as confounders, added to `more`."""
    part = table.loaded(features)
    values = to_numpy(part.values).astype(float)
    categorical = np.repeat(part.categorical, np.diff(part.offsets))
    names = tuple(np.repeat(np.array(part.names, dtype=object), np.diff(part.offsets)).tolist())
    if more is None:
        return Confounders(names, values, categorical)
    return Confounders(
        (*more.names, *names), np.hstack([more.values, values]), np.concatenate([more.categorical, categorical])
    )
