"""Files that stay open for as long as somebody reads them, because opening one anew costs as much as a few columns."""

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

    Outside of `reading` nothing stays open. A pass over all files comes by each of them once: where there are more
    than may stay open, those that came first stay, and one more for whoever reads the same file again at once.
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
        """Whether somebody reads."""
        return self._users > 0

    @contextmanager
    def of(self, number: int, opened: Callable[[], Any], columns: int) -> Iterator[Any]:
        """A reader of one of the files, all of which have so many columns."""
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
