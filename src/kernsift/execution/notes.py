"""Sentences about the data that the result of the call in progress carries as its `notes`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from kernsift.execution.context import setting

_notes: ContextVar[list[str] | None] = ContextVar("notes", default=None)


def add_note(sentence: str) -> None:
    """Add a sentence to the notes of the call in progress, once.

    Outside of a call it is dropped.
    """
    notes = _notes.get()
    if notes is not None and sentence not in notes:
        notes.append(sentence)


def collect_notes() -> AbstractContextManager[Any]:
    """The notes that are added inside, in order.

    >>> with collect_notes() as notes:
    ...     add_note("Two rows were left out.")
    >>> notes
    ['Two rows were left out.']
    """
    return setting(_notes, [])
