"""Progress of long loops: they report it, and a callback or a bar shows it.

Without a callback, reporting costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from kernsift.execution.context import setting

Callback = Callable[[str, int, int], None]

_callback: ContextVar[Callback | None] = ContextVar("callback", default=None)

# Seconds after which a bar appears.
_DELAY = 2.0


def progress_callback(callback: Callback) -> AbstractContextManager[Any]:
    """Call `callback(stage, done, total)` whenever the work inside reports progress.

    >>> from kernsift.execution.progress import progress_callback, report_progress
    >>> with progress_callback(print):
    ...     report_progress("features", 3, 10)
    features 3 10
    """
    return setting(_callback, callback)


def report_progress(stage: str, done: int, total: int) -> None:
    """Report that `done` of `total` are done."""
    callback = _callback.get()
    if callback is not None:
        callback(stage, done, total)


@contextmanager
def progress_bar(shown: bool = True) -> Iterator[None]:
    """Show a bar for each stage that takes longer than two seconds, in notebooks and terminals."""
    if not shown:
        yield
        return
    from tqdm.auto import tqdm

    bars: dict[str, Any] = {}

    def update(stage: str, done: int, total: int) -> None:
        bar = bars.get(stage)
        if bar is None or done < bar.n or total != bar.total:
            close()
            bar = bars[stage] = tqdm(total=total, desc=stage, delay=_DELAY, leave=False, unit_scale=True)
        bar.update(done - bar.n)

    def close() -> None:
        while bars:
            bars.popitem()[1].close()

    try:
        with progress_callback(update):
            yield
    finally:
        close()
