"""A function over parts of the work, in order: on threads, or on the workers of the cluster in use.

The statistics import this module and no cluster. A function and its items are pickled where they are sent to workers;
neither the number of threads nor the workers change a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from kernsift.execution import threads
from kernsift.execution.context import setting

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Workers(Protocol):
    """Processes on this machine or on others."""

    def n_threads(self) -> int:
        """How many tasks run at the same time."""

    def task_memory(self, memory: int) -> int:
        """Bytes for each task, where the workers of one machine together may use `memory` bytes."""

    def on_this_machine(self) -> bool:
        """Whether all of them are on the machine of this process."""

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """`function` of each item, in order."""


_workers: ContextVar[Workers | None] = ContextVar("workers", default=None)


def use_workers(workers: Workers) -> AbstractContextManager[Any]:
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
    """Inside, the workers stay in use unless values that are in memory here would be sent to them for nothing.

    Workers on this machine share its cores. They are no faster than as many threads, which are sent nothing.
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
