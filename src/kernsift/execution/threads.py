"""How many threads work: blocks of features are spread over them, and BLAS gets one thread in each.

Matrices here are small and many. Left to itself BLAS would put all cores on each of them, which costs ten times what
it gains.

`n_jobs=None` takes as many threads as BLAS may use here, so `OMP_NUM_THREADS`, a surrounding
`threadpoolctl.threadpool_limits` and the limits that joblib and Dask set for their workers all count. Blocks never
depend on the number of threads, so neither do results.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_jobs: ContextVar[int] = ContextVar("jobs", default=1)


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    # Looking for the libraries takes a millisecond, so it is done once; NumPy, which brings BLAS, is loaded by then.
    return ThreadpoolController().select(user_api="blas")


def available() -> int:
    """Threads that may be used here when nobody says how many."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *(int(library["num_threads"]) for library in _controller().info())]))


def jobs_of(n_jobs: int | None) -> int:
    """The number of threads behind `n_jobs`: None for what is available, -1 for all cores, -2 for all but one ..."""
    if n_jobs is None:
        return available()
    return n_jobs if n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + n_jobs)


class _SharedLimit:
    """One BLAS thread for as long as anybody is inside.

    The limit belongs to the process. Were every call to set it and put back what it found, of two calls at the same
    time the later one would find, and leave behind, the limit of the earlier one. It is set and put back in threads of
    their own: threadpoolctl lets one thread set it, and another only when that one has ended.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._held: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0 and max((int(one["num_threads"]) for one in _controller().info()), default=1) > 1:
                self._held = _aside(lambda: _controller().limit(limits=1))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._held is not None:
                _aside(self._held.restore_original_limits)
                self._held = None


def _aside(function: Callable[[], Answer]) -> Answer:
    """The answer of a function called in a thread that ends with it."""
    found: list[Answer] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


_ONE_BLAS_THREAD = _SharedLimit()


@contextmanager
def thread_limit(n_jobs: int | None) -> Iterator[None]:
    """Let `spread` use this many threads inside, and BLAS one in each of them."""
    token = _jobs.set(jobs_of(n_jobs))
    try:
        with _ONE_BLAS_THREAD:
            yield
    finally:
        _jobs.reset(token)


def n_threads() -> int:
    """How many items `ahead` has in hand: one that is worked with, and the next."""
    return min(2, _jobs.get())


def prefetch(function: Callable[[Item], Answer], items: Iterable[Item]) -> Iterator[Answer]:
    """`function` of each item, in order, the next one on a thread of its own while the caller works with one.

    >>> list(prefetch(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    if _jobs.get() == 1:
        yield from map(function, items)
        return
    pool, finished = ThreadPoolExecutor(1), False
    try:
        waiting: Any = None
        for item in items:
            coming = pool.submit(copy_context().run, function, item)
            if waiting is not None:
                yield waiting.result()
            waiting = coming
        if waiting is not None:
            yield waiting.result()
        finished = True
    finally:
        pool.shutdown(wait=finished, cancel_futures=True)


def parallel_map(
    function: Callable[[Item], Answer], items: Iterable[Item], most: int | None = None
) -> Iterator[Answer]:
    """`function` of each item, in order, on as many threads as `thread_limit` allows, or `most`; two a thread wait.

    Inside a worker thread the context variable has its default, so that nested calls do not multiply threads.

    >>> with thread_limit(2):
    ...     list(parallel_map(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    jobs = _jobs.get() if most is None else min(_jobs.get(), most)
    items = iter(items)
    first = list(islice(items, 2))
    if jobs == 1 or len(first) < 2:
        yield from map(function, first)
        yield from map(function, items)
        return
    pool, finished = ThreadPoolExecutor(jobs), False
    try:
        waiting = [pool.submit(function, item) for item in first]
        waiting += [pool.submit(function, item) for item in islice(items, 2 * jobs - 2)]
        while waiting:
            yield waiting.pop(0).result()
            waiting += [pool.submit(function, item) for item in islice(items, 1)]
        finished = True
    finally:
        # Who presses Ctrl-C does not want to wait for the blocks under way.
        pool.shutdown(wait=finished, cancel_futures=True)
