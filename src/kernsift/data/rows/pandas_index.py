"""Row labels of pandas, by which rows are not matched."""

from __future__ import annotations

from typing import Any

from kernsift.execution.notes import add_note


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
