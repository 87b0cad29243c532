"""Sentences about the data that the result of the call in progress carries as its `notes`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_notes: ContextVar[list[str] | None] = ContextVar("notes", default=None)


def add_note(sentence: str) -> None:
    """Add a sentence to the notes of the call in progress, once.

    Outside of a call it is dropped.
    """
    notes = _notes.get()
    if notes is not None and sentence not in notes:
        notes.append(sentence)


@contextmanager
def collect_notes() -> Iterator[list[str]]:
    """The notes that are added inside, in order.

    >>> with collect_notes() as notes:
    ...     add_note("Two rows were left out.")
    >>> notes
    ['Two rows were left out.']
    """
    found: list[str] = []
    token = _notes.set(found)
    try:
        yield found
    finally:
        _notes.reset(token)
