"""How far the work is: loops that take long tell it, and whoever shows it listens.

Nothing is printed here, and without a listener telling costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str, int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def progress_callback(listener: Listener) -> Iterator[None]:
    """Call `listener(stage, done, total)` as the work inside goes on.

    >>> from kernsift.execution.progress import progress_callback, report_progress
    >>> with progress_callback(print):
    ...     report_progress("features", 3, 10)
    features 3 10
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report_progress(stage: str, done: int, total: int) -> None:
    """Say that `done` of `total` are done."""
    listener = _listener.get()
    if listener is not None:
        listener(stage, done, total)
