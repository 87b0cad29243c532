"""Parallel maps on the workers of a Dask cluster.

Each item is the argument of one task; the function is the result of another task, which Dask copies to the workers that
need it. The scheduler can therefore repeat any task whose worker died, and results do not depend on the workers.
"""

from __future__ import annotations

import logging
import pickle
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from kernsift.exceptions import InputError, required
from kernsift.execution import threads
from kernsift.execution.arrays import keep_freed_memory
from kernsift.execution.parallel import use_workers

# How often Dask repeats a task that raised an error, which may be due to another worker that died.
_RETRIES = 2
# Seconds to wait for a connection, for a lost scheduler, for a worker that accepts tasks, and between two checks.
_TO_CONNECT, _WITHOUT_SCHEDULER, _WITHOUT_WORKERS, _INTERVAL = 10.0, 5.0, 60.0, 2.0
# Bytes that reading files takes at least, and that a worker process takes before it reads any.
_LEAST_MEMORY, _PROCESS = 32 << 20, 150 << 20


class DaskWorkers:
    """The workers of a `distributed.Client`."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._distributed: Any = sys.modules["distributed"]
        self._waiting_since: float | None = None
        self._had_workers = False

    def n_threads(self) -> int:
        """How many tasks run at the same time."""
        return sum(self._threads.values())

    @cached_property
    def _threads(self) -> dict[str, int]:
        """The threads of each worker; waits while there are no workers."""
        until, found = time.monotonic() + _WITHOUT_WORKERS, dict[str, int]()
        while not found:
            found = self._call(self._client.nthreads)
            if not found and time.monotonic() > until:
                raise self._no_workers()
            time.sleep(0 if found else 0.05)
        self._had_workers = True
        return found

    @property
    def _hosts(self) -> Counter[str]:
        """The threads of each machine."""
        hosts: Counter[str] = Counter()
        for address, count in self._threads.items():
            hosts[self._distributed.comm.get_address_host(address)] += count
        return hosts

    def task_memory(self, memory: int) -> int:
        """Bytes for each task: a share of `memory` on the machine with most threads, or of a worker's own limit."""
        share = memory // max(self._hosts.values()) - _PROCESS
        for worker in self._call(self._client.scheduler_info)["workers"].values():
            # Dask spills and pauses when its memory is nearly full.
            share = min(share, worker["memory_limit"] // (2 * worker["nthreads"]) or share)
        return min(memory, max(share, _LEAST_MEMORY))

    def on_this_machine(self) -> bool:
        """Whether all of them are on the machine of this process, by their addresses."""
        return self._hosts.keys() <= {"127.0.0.1", self._distributed.utils.get_ip()}

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """`function` of each item, in order; twice as many items as the workers have threads are submitted ahead."""
        self.__dict__.pop("_threads", None)  # workers come and go between two calls
        shared = self._submit(_receive, _pickled(function))
        futures, items = deque[Any](), iter(items)
        try:
            for item in islice(items, 2 * self.n_threads()):
                futures.append(self._submit(_run, shared, _pickled(item)))
            while futures:
                yield self._result(futures[0])
                futures.popleft().release()
                for item in islice(items, 1):
                    futures.append(self._submit(_run, shared, _pickled(item)))
        finally:
            # Released explicitly, because the traceback of an error or a timeout keeps futures alive.
            for future in (shared, *futures):
                with suppress(Exception):
                    future.release()

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        dask: Any = sys.modules["dask"]
        # Dask warns of large arguments, because most callers send the same ones again with every task.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            return self._call(self._client.submit, function, *arguments, pure=False, retries=_RETRIES)

    def _result(self, future: Any) -> Any:
        while True:
            try:
                found = self._call(future.result, timeout=_INTERVAL)
            except TimeoutError:
                if future.status == "error":  # of the task itself
                    raise
                self._check_workers()
                continue
            except self._distributed.KilledWorker:
                raise InputError(
                    "client: workers of the Dask cluster die of this work, most likely because they run out of memory; "
                    "give them more, or run more workers with fewer threads each."
                ) from None
            self._waiting_since = None
            return pickle.loads(found)

    def _call(self, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """The result of a call of the client; if its scheduler is lost, every exception becomes the same error.

        A client that reconnects has lost its tasks.
        """
        try:
            if self._client.status == "running":
                return call(*given, **named)
        except BaseException as error:
            if self._client.status == "running" and not isinstance(error, self._distributed.CancelledError):
                raise
        patience = time.monotonic() + _WITHOUT_SCHEDULER
        while self._client.status == "connecting" and time.monotonic() < patience:
            time.sleep(0.1)
        running = self._client.status == "running"
        happened = "cancelled the work, or was cut off;" if running else "is gone; start the cluster again and"
        address = self._client._start_arg or "this address"
        raise InputError(f"client: the Dask scheduler at {address} {happened} repeat the call.") from None

    def _check_workers(self) -> None:
        """Raise if no worker accepts tasks for a while: there is none, or all have paused, because memory is full."""
        with suppress(OSError, TimeoutError):
            if self._call(self._client.sync, self._client.scheduler.ncores_running, callback_timeout=_INTERVAL):
                self._waiting_since = None
                return
        now = time.monotonic()
        self._waiting_since = self._waiting_since or now
        if now < self._waiting_since + _WITHOUT_WORKERS:
            return
        if not self._call(self._client.nthreads):
            raise self._no_workers()
        raise InputError(
            f"client: all workers of the Dask cluster at {self._client.scheduler.address} have paused, because their "
            "memory is full and what they hold does not fit on their disk either; give them more memory or a "
            "local_directory with more space, or release what they hold."
        )

    def _no_workers(self) -> InputError:
        address = self._client.scheduler.address
        # A worker that dies while it starts is not started again, not even by Dask's own supervision.
        happened = (
            "has lost all its workers during this call: they were stopped, or ran out of memory; start some with more "
            "memory or fewer threads each"
            if self._had_workers
            else "has no workers; start some"
        )
        return InputError(f"client: the Dask cluster at {address} {happened}, with `dask worker {address}`.")


# On a worker ---------------------------------------------------------------------------------------------------------


class _Function:
    """A function that is pickled into one byte string: arrays that Dask moves by itself may arrive unaligned, and NumPy
    is several times slower on these."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __reduce__(self) -> tuple[Any, ...]:
        return _receive, (_pickled(self.function),)


def _receive(message: Any) -> _Function:
    return _Function(pickle.loads(message))


def _run(shared: _Function, item: Any) -> np.ndarray:
    """A task: a worker has a thread for each, so that one thread is enough inside."""
    keep_freed_memory()
    with threads.thread_limit(1):
        return _pickled(shared.function(pickle.loads(item)))


def _pickled(content: Any) -> np.ndarray:
    """As an array of bytes, which Dask passes on without copies."""
    return np.frombuffer(sys.modules["cloudpickle"].dumps(content), dtype=np.uint8)


# Which cluster -------------------------------------------------------------------------------------------------------


@contextmanager
def connected(address: str | None = None, workers: int | None = None) -> Iterator[Any]:
    """A client of the cluster at an address, or of `workers` processes on this machine, which end with it.

    None where neither is given.
    """
    if address is None and workers is None:
        yield None
        return
    dask = required("distributed", "Working on a cluster needs Dask")
    # Report an error once, and not through the logger of every part of Dask.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if address is None:
        cluster = dask.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
        )
        with cluster, dask.Client(cluster, set_as_default=False) as client:
            yield client
        return
    try:
        client = dask.Client(address, set_as_default=False, timeout=_TO_CONNECT)
    except (OSError, ValueError) as error:
        raise InputError(f"client: no Dask scheduler answers at {address}; start one with `dask scheduler`.") from error
    with client:
        yield client


@contextmanager
def client_in_use(client: Any, *data: Any) -> Iterator[None]:
    """Let `parallel_map` use the workers of a Dask client inside.

    Where none is given and some of the data are Dask collections, it is the client that Dask itself would use.
    """
    distributed: Any = sys.modules.get("distributed")
    dask: Any = sys.modules.get("dask.base")
    if client is None and distributed is not None and any(dask.is_dask_collection(one) for one in data):
        with suppress(ValueError):  # there is none
            client = distributed.default_client()
    if client is None:
        yield
        return
    if distributed is None or not isinstance(client, distributed.Client):
        raise InputError(
            f"client: a distributed.Client was needed, got {type(client).__name__}; connect with "
            "distributed.Client(address)."
        )
    if client.asynchronous:
        raise InputError("client: an asynchronous Dask client cannot be waited for; pass one without asynchronous.")
    with use_workers(DaskWorkers(client)):
        yield
