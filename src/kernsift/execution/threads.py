"""Thread pools: blocks of features run in parallel threads, each with one BLAS thread.

The matrices are small and many. With several threads for each of them BLAS would be about ten times slower.

`n_jobs=None` uses as many threads as BLAS is allowed, so that `OMP_NUM_THREADS`, a surrounding
`threadpoolctl.threadpool_limits` and the limits that joblib and Dask set for their workers are respected. Blocks do not
depend on the number of threads, so neither do results.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import lru_cache
from itertools import chain, islice
from typing import TypeVar

from threadpoolctl import ThreadpoolController

from kernsift.execution.context import setting

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_jobs: ContextVar[int] = ContextVar("jobs", default=1)


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    # Cached: finding the libraries takes a millisecond. NumPy, which loads BLAS, is imported by then.
    return ThreadpoolController().select(user_api="blas")


def available() -> int:
    """The number of threads for `n_jobs=None`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *(library.get_num_threads() for library in _controller().lib_controllers)]))


def jobs_of(n_jobs: int | None) -> int:
    """The number of threads behind `n_jobs`: None for what is available, -1 for all cores, -2 for all but one ..."""
    if n_jobs is None:
        return available()
    return n_jobs if n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + n_jobs)


class _SharedLimit:
    """Limits BLAS to one thread while at least one call is active.

    The limit belongs to the process. If every call saved and restored it, of two concurrent calls the later one would
    save, and restore at the end, the limit of the earlier one.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._before: list[int] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = [library.get_num_threads() for library in _controller().lib_controllers]
                self._set([1] * len(self._before))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._set(self._before)

    def _set(self, limits: list[int]) -> None:
        if max(self._before, default=1) == 1:
            return
        for library, limit in zip(_controller().lib_controllers, limits, strict=True):
            library.set_num_threads(limit)
            # threadpoolctl lets no other thread set a limit while the one that set it first is alive, unless cleared.
            getattr(library, "clear_controlling_thread", lambda: None)()


_ONE_BLAS_THREAD = _SharedLimit()


@contextmanager
def thread_limit(n_jobs: int | None) -> Iterator[None]:
    """Let `parallel_map` use this many threads in the block, with one BLAS thread each."""
    with setting(_jobs, jobs_of(n_jobs)), _ONE_BLAS_THREAD:
        yield


def limit() -> int:
    """The number of threads that `parallel_map` may use."""
    return _jobs.get()


def prefetched_items() -> int:
    """The number of items that `prefetch` holds: the current one, and the next."""
    return min(2, _jobs.get())


def prefetch(function: Callable[[Item], Answer], items: Iterable[Item]) -> Iterator[Answer]:
    """`function` of each item, in order; the next one is computed in a thread while the caller uses the current one.

    >>> list(prefetch(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    if _jobs.get() == 1:
        yield from map(function, items)
    else:
        pool = ThreadPoolExecutor(1)
        yield from _in_order(pool, lambda item: pool.submit(copy_context().run, function, item), iter(items), 2)


def parallel_map(
    function: Callable[[Item], Answer], items: Iterable[Item], most: int | None = None
) -> Iterator[Answer]:
    """`function` of each item, in order, on as many threads as `thread_limit` allows, or at most `most`.

    At most two items per thread are pending. Inside a worker thread the context variable has its default, so that
    nested calls do not multiply threads.

    >>> with thread_limit(2):
    ...     list(parallel_map(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    jobs = _jobs.get() if most is None else min(_jobs.get(), most)
    items = iter(items)
    # An item that is read into a buffer is valid until the next one is asked for: alone, no item is taken ahead.
    first = list(islice(items, 2 if jobs > 1 else 1))
    if len(first) < 2:
        yield from map(function, chain(first, items))
    else:
        pool = ThreadPoolExecutor(jobs)
        yield from _in_order(pool, lambda item: pool.submit(function, item), chain(first, items), 2 * jobs)


def _in_order(
    pool: ThreadPoolExecutor, submit: Callable[[Item], Future[Answer]], items: Iterator[Item], most: int
) -> Iterator[Answer]:
    """The results of submitted items, in order, of which at most `most` are pending."""
    finished = False
    try:
        waiting = [submit(item) for item in islice(items, most)]
        while waiting:
            yield waiting.pop(0).result()
            waiting += [submit(item) for item in islice(items, 1)]
        finished = True
    finally:
        # After an error or Ctrl-C do not wait for the running blocks.
        pool.shutdown(wait=finished, cancel_futures=True)
