"""How part of a table travels to another machine: its values, or what says where to read them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from kernsift.columns import InputError
from kernsift.tables import Table

Rows = slice | np.ndarray


class Parcel(Protocol):
    """A table without its values, which travel beside it."""

    def unpack(self, values: list[Any]) -> Table:
        """The table with its values."""


def pack(table: Table, features: np.ndarray, rows: Rows | None = None) -> tuple[Parcel, list[Any]]:
    """Some features and rows of a table, all rows by default, and the values that travel beside them."""
    if not isinstance(table.like, np.ndarray):
        raise InputError(
            "client: NumPy arrays, data frames and files can be sent to workers, got an array of "
            f"{type(table.like).__module__.partition('.')[0]}; convert it, or leave out the client."
        )
    widths = np.diff(table.offsets)
    columns = np.flatnonzero(np.repeat(np.isin(np.arange(table.d), features), widths))
    names = tuple(table.names[j] for j in features)
    shape = Table(
        names,
        None,
        np.concatenate([[0], np.cumsum(widths[features])]),
        table.categorical[features],
        {name: table.levels[name] for name in names if name in table.levels},
    )
    return _InMemory(shape), [np.ascontiguousarray(table.part(columns, rows))]


@dataclass(frozen=True)
class _InMemory:
    """A table that was in memory."""

    table: Table

    def unpack(self, values: list[Any]) -> Table:
        return replace(self.table, values=values[0])
