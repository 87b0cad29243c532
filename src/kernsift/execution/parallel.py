"""A function over parts of the work, in order: on threads, or on the workers of the cluster in use.

The statistics import this module and no cluster. A function and its items are pickled where they are sent to workers;
neither the number of threads nor the workers change a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from kernsift.execution import threads
from kernsift.execution.context import setting

if TYPE_CHECKING:
    from kernsift.execution.dask_workers import DaskWorkers

Item = TypeVar("Item")
Answer = TypeVar("Answer")


_workers: ContextVar[DaskWorkers | None] = ContextVar("workers", default=None)


def use_workers(workers: DaskWorkers) -> AbstractContextManager[Any]:
    """Let `parallel_map` use these workers inside."""
    return setting(_workers, workers)


def worker_threads() -> int:
    """How many tasks the workers in use run at the same time; 0 where there are no workers."""
    workers = _workers.get()
    return 0 if workers is None else workers.n_threads()


def task_memory(memory: int) -> int:
    """Bytes for each task, where all of them together may use `memory` bytes on a machine."""
    workers = _workers.get()
    return memory if workers is None else workers.task_memory(memory)


def worth_sending(in_memory: bool) -> AbstractContextManager[Any]:
    """Inside, the workers stay in use unless sending them values that are in memory here gains nothing.

    Workers on this machine share its cores, so they are no faster than as many threads, which need no copies.
    """
    workers = _workers.get()
    here = workers is not None and in_memory and workers.n_threads() <= threads.limit() and workers.on_this_machine()
    return no_workers() if here else nullcontext()


def no_workers() -> AbstractContextManager[Any]:
    """Inside, `parallel_map` uses threads."""
    return setting(_workers, None)


def parallel_map(
    function: Callable[[Item], Answer], items: Iterable[Item], most: int | None = None
) -> Iterator[Answer]:
    """`function` of each item, in order: on the workers in use, else on at most `most` threads.

    With `most=1` the calls are made here, one after the other, so that parallel maps inside of `function` have all
    workers or threads to themselves.
    """
    workers = _workers.get()
    if workers is None or most == 1:
        return threads.parallel_map(function, items, most)
    return workers.map(function, items)
