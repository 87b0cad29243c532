"""Who runs the trials: this process, processes of its own, or a Dask cluster. All call the same function."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from multiprocessing import active_children, get_context, resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from kernsift.experiments.trials import Task, Values, run_trial

Finished = tuple[Task, Values]


def run_all(tasks: Sequence[Task], workers: int, cluster: str | None) -> Generator[Finished]:
    """The results of all tasks, as they finish. Closing the iterator stops the work at once."""
    if cluster is not None:
        yield from _on_cluster(tasks, cluster)
    elif workers == 1 or len(tasks) < 2:
        yield from map(run_trial, tasks)
    else:
        yield from _on_processes(tasks, workers)


def _on_processes(tasks: Sequence[Task], workers: int) -> Iterator[Finished]:
    """Fresh processes, which leave Ctrl-C to this one and end when this one ends, however it does."""
    context = get_context("spawn")
    # Nothing is ever sent: the workers read until the other end closes, with the last of this process at the latest.
    reported, line = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(min(workers, len(tasks)), context, _leave_when_told, (reported,))
    rest, others = iter(tasks), set(active_children())
    try:
        with _interrupts_held_back():  # the first task starts all workers
            waiting = {pool.submit(run_trial, task) for task in islice(rest, 3 * workers)}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
            waiting |= {pool.submit(run_trial, task) for task in islice(rest, len(done))}
    finally:
        line.close()
        for worker in set(active_children()) - others:  # one that is still starting does not listen yet
            worker.terminate()
        pool.shutdown(cancel_futures=True)
        reported.close()


def _leave_when_told(reported: Connection) -> None:
    """Watch the line to the process that gives out the work, and go when it breaks, in the middle of a trial."""

    def watch() -> None:
        try:
            reported.recv()
        except (EOFError, OSError):
            os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Ctrl-C reaches every process at the terminal, and a worker interrupted while it starts would print its own end.

    What is held back when a process starts is held back in it for good; here it comes through afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting it, which the first worker would do, lets interrupts through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _on_cluster(tasks: Sequence[Task], address: str) -> Iterator[Finished]:
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("--cluster needs Dask: pip install 'kernsift[dask]'.") from error
    dask: Any = distributed  # without types
    with dask.Client(address, set_as_default=False) as client:
        # Not pure: Dask would hash every task to find equal ones, and there are none.
        futures = client.map(run_trial, tasks, pure=False)
        for _, result in dask.as_completed(futures, loop=client.loop, with_results=True):
            yield result
