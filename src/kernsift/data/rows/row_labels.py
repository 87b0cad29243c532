"""Labels of rows, such as the stratum or the unit of each; and those of pandas, by which rows are not matched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.columns.columns import Columns
from kernsift.data.columns.encoding import number_name
from kernsift.execution.arrays import to_numpy
from kernsift.execution.notes import add_note


class RowLabels(NamedTuple):
    """One label for each row.

    Attributes
    ----------
    names : (L,) the different labels.
    codes : (n,) the position of each row's label in `names`; -1 where it is missing.
    """

    names: np.ndarray
    codes: np.ndarray

    @classmethod
    def of(cls, columns: Columns) -> RowLabels:
        """The labels in a column; several columns make one label together."""
        parts = [cls._of_column(columns, place) for place in range(len(columns.names))]
        if len(parts) == 1:
            return parts[0]
        there = np.all([part.codes >= 0 for part in parts], axis=0)
        known, inverse = np.unique([part.codes[there] for part in parts], axis=1, return_inverse=True)
        names = [" / ".join(part.names[code] for part, code in zip(parts, own, strict=True)) for own in known.T]
        codes = np.full(len(there), -1)
        codes[there] = inverse.ravel()
        return _sorted(names, codes)

    @classmethod
    def _of_column(cls, columns: Columns, place: int) -> RowLabels:
        own, levels = to_numpy(columns.values)[:, place], columns.levels.get(place)
        # Integers beyond 2^53, such as hashes, would be rounded as floating-point numbers.
        known, inverse = np.unique(columns.integers.get(place, own), return_inverse=True)
        names = [levels[int(value)] if levels and value == value else number_name(value) for value in known.tolist()]
        return _sorted(names, np.where(np.isnan(own), -1, inverse))

    @classmethod
    def joined(cls, parts: Sequence[RowLabels]) -> RowLabels:
        """The labels of several tables, one below the other."""
        if all(part.names is parts[0].names for part in parts):
            return cls(parts[0].names, np.concatenate([part.codes for part in parts]))
        names = np.unique(np.concatenate([part.names for part in parts]))
        codes = [np.append(names.searchsorted(part.names), -1)[part.codes] for part in parts]
        return cls(names, np.concatenate(codes))

    def take(self, rows: np.ndarray) -> RowLabels:
        """The labels of some rows."""
        return RowLabels(self.names, self.codes[rows])

    def used(self) -> tuple[np.ndarray, np.ndarray]:
        """The labels that occur, and the position (n,) of each row's label among these; none is missing.

        They are in the order of the rows, so that no random choice among units depends on their names.
        """
        known, first, place = np.unique(self.codes, return_index=True, return_inverse=True)
        order = np.argsort(first)
        return self.names[known[order]], np.argsort(order)[place.ravel()]


def _sorted(names: Sequence[str], codes: np.ndarray) -> RowLabels:
    """Labels in alphabetical order, equal ones once."""
    known, place = np.unique(np.array(names, dtype=str), return_inverse=True)
    return RowLabels(known, np.append(place, -1)[codes])


def note_row_labels(table: Any, **arguments: Any) -> None:
    """Note which arguments have the row labels of a table in another order: rows are matched by position.

    Only data frames and series of pandas have labels.
    """
    own = _labels(table)
    for argument, value in arguments.items():
        other = _labels(value)
        if own is None or other is None or len(own) != len(other) or own.equals(other):
            continue
        if own.is_unique and own.isin(other).all():
            add_note(
                f"{argument}: its row labels are those of X in another order, but rows are matched by position; sort "
                "one like the other where labels tell which rows belong together."
            )


def _labels(table: Any) -> Any:
    labels = getattr(table, "index", None)
    return labels if type(labels).__module__.partition(".")[0] == "pandas" else None
