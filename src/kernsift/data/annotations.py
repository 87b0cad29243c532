"""Columns that describe the rows of a table and are not features, such as `obs` of AnnData."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernsift.data.columns.columns import Columns
from kernsift.data.frames import read_columns


@dataclass(frozen=True)
class Annotations:
    """Columns that describe the rows of a table and are not features, such as `obs` of AnnData.

    Attributes
    ----------
    table : a data frame or a mapping, from names to columns.
    rows : positions of the rows that are kept; None for all.
    """

    table: Any
    rows: np.ndarray | None = None

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [str(name) for name in self.table]

    def column(self, name: str, argument: str) -> Columns:
        """One of the columns."""
        cells = self.table[name]
        found = cells if isinstance(cells, Columns) else read_columns(cells, argument)
        found = replace(found, names=(name,), named=True)
        return found if self.rows is None else found.take(self.rows)

    def where(self, keep: np.ndarray) -> Annotations:
        """The same for the rows that are marked."""
        rows = np.flatnonzero(keep)
        return Annotations(self.table, rows if self.rows is None else self.rows[rows])
