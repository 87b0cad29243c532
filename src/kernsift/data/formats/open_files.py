"""Readers that stay open between pieces, because opening a file again costs as much as reading a few columns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# Columns of all files that are kept open: a reader takes a kilobyte for each.
_COLUMNS = 2**14
_FILES = 64


class Readers:
    """Readers of numbered files, each used by one thread at a time and then left for the next.

    Outside of `reading` nothing stays open. A pass over all files reads each of them once: where there are more than
    may stay open, the first ones stay, and the last one, which may be read again at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._idle: list[tuple[int, Any]] = []

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let readers stay open inside."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._idle.clear()

    @property
    def in_use(self) -> bool:
        """Whether a block of `reading` is active."""
        return self._users > 0

    @contextmanager
    def of(self, number: int, opened: Callable[[], Any], columns: int) -> Iterator[Any]:
        """A reader of one of the files, each of which has `columns` columns."""
        with self._lock:
            there = [place for place, (file, _) in enumerate(self._idle) if file == number]
            reader = self._idle.pop(there[0])[1] if there else None
        reader = opened() if reader is None else reader
        yield reader
        with self._lock:
            if self._users:
                most = max(1, min(_FILES, _COLUMNS // max(1, columns)))
                del self._idle[most - 1 :]
                self._idle.append((number, reader))
