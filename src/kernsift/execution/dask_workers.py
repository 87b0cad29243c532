"""Blocks of work on the machines of a Dask cluster: the functions that threads call, called there.

A piece of work is a function of one item. What all items share is part of the function and is sent once; an item is
sent with its own values alone. Values in memory go straight to a worker, files are read by the worker itself, and of
Dask collections the worker gets the columns and rows it needs from the other workers. Nothing depends on who works on
what, so neither do results.

A worker that dies takes with it what was sent to it, and that is sent again. A scheduler that is gone ends the call
with an error.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import pickle
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, Protocol, TypeVar

import numpy as np

from kernsift.exceptions import INSTALL, InputError
from kernsift.execution import threads

Answer = TypeVar("Answer")

# How often an item is sent before its workers are taken to die of it; Dask itself tries three times.
_TRIES = 3
# Seconds without a scheduler, without a single worker, and until a scheduler answers.
_WITHOUT_SCHEDULER, _WITHOUT_WORKERS, _TO_CONNECT = 5.0, 60.0, 10.0
# Seconds in which not one worker takes on work, and between looks whether that is so.
_PAUSED, _LOOK = 30.0, 2.0
# Below the first not even ordinary files can be read; the second is what a worker takes before it reads any.
_LEAST_MEMORY, _PROCESS = 32 << 20, 150 << 20


class WorkItem(Protocol):
    """An item that can be sent: without its values, which travel beside it."""

    def pack(self) -> tuple[Any, list[Any]]:
        """What `unpack(values)` makes the item from, and the values: arrays, or Dask collections."""


class Split(Protocol):
    """Work on an item that can be cut into runs of rows: begun once, counted run by run, and finished once."""

    def begin(self, item: Any) -> Any:
        """What every run needs to know."""

    def count(self, run: Any, begun: Any) -> Any:
        """What there is in a run."""

    def finish(self, item: Any, begun: Any, counted: Sequence[Any]) -> Any:
        """The answer, from what there is in all runs."""


class DaskWorkers:
    """The workers behind a Dask client."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._distributed: Any = sys.modules["distributed"]
        # Around the scheduler only where the workers can be reached: on one machine they can.
        local = any(host in str(client.scheduler.address) for host in ("127.0.0.1", "localhost", "inproc://"))
        self._direct = bool(client.direct_to_workers) or local
        self._looked = self._at_work = time.monotonic()

    def threads(self) -> int:
        """How many items are worked on at the same time; waits a while for the first worker."""
        patience = time.monotonic() + _WITHOUT_WORKERS
        while True:
            self._check()
            found = sum(self._wait(self._client.scheduler.ncores()).values())
            if found:
                return int(found)
            if time.monotonic() > patience:
                raise self._without_workers()
            time.sleep(0.2)

    @cached_property
    def threads_per_host(self) -> int:
        """How many items are worked on at the same time on one machine, the one with the most."""
        self.threads()
        found: Counter[str] = Counter()
        for address, count in self._wait(self._client.scheduler.ncores()).items():
            found[self._distributed.comm.get_address_host(address)] += count
        return max(found.values(), default=1)

    def parallel_map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """`work` of each item, in order; as many are on their way as keep all workers busy."""
        ahead = 2 * self.threads()
        shared = _Shared(self, work)
        rest = iter(items)
        waiting = deque(_Sent(self, shared, item) for item in islice(rest, ahead))
        try:
            while waiting:
                yield waiting[0].answer()
                waiting.popleft()
                waiting.extend(_Sent(self, shared, item) for item in islice(rest, 1))
        finally:
            # By hand, because the traceback of an error keeps this frame and all it knows.
            for sent in waiting:
                sent.withdraw()
            shared.withdraw()

    def send(self, values: Sequence[Any], everywhere: bool = False) -> list[Any]:
        """Values in the memory of workers."""
        patience = time.monotonic() + _WITHOUT_WORKERS
        how = {"broadcast": everywhere, "direct": self._direct, "hash": False, "asynchronous": True}
        while True:
            try:
                return list(self._wait(self._client.scatter(list(values), **how)))
            except (OSError, ValueError) as error:
                # The worker that was to get them died just now, or nobody is there to broadcast to ("replicate"): the
                # next try asks who is there.
                if isinstance(error, ValueError) and "replicate" not in str(error):
                    raise
                self._check()
                if time.monotonic() > patience:
                    raise self._without_workers() from None
                time.sleep(0.2)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A call on a worker, of values there and of Dask collections."""
        collections = any(_is_collection(part) for part in _flat(arguments))
        self._check()
        try:
            if not collections:
                return self._client.submit(function, *arguments, pure=False)
            dask: Any = sys.modules["dask"]
            return self._client.compute(dask.delayed(function, pure=False)(*arguments))
        except Exception:
            # What goes wrong while the scheduler goes away says so in many ways.
            self._check()
            raise

    def result(self, future: Any) -> Any:
        """What a call gave, or `Gone` when values it needs were lost with a worker."""
        try:
            return self._wait(self._client.gather(future, direct=self._direct, asynchronous=True))
        except BaseException as error:
            if _cancelled(error):
                raise LostWorkerData from None
            raise

    def _wait(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        """What the scheduler or a worker answers to a call, for as long as there is a scheduler."""
        waiting = self._begun(call)
        while True:
            try:
                return waiting.result(0.5)
            except TimeoutError:
                if waiting.done():
                    raise
            except BaseException:
                self._check()
                raise
            try:
                self._check()
                self._check_workers()
            except InputError:
                waiting.cancel()
                raise

    def _without_workers(self) -> InputError:
        address = self._client.scheduler.address
        return InputError(
            f"client: the Dask cluster at {address} has no workers; start some, with `dask worker {address}`."
        )

    def _check(self) -> None:
        """Raise if the scheduler is gone; one that was only cut off may come back."""
        patience = time.monotonic() + _WITHOUT_SCHEDULER
        while self._client.status != "running":
            if self._client.status != "connecting" or time.monotonic() > patience:
                raise InputError(
                    f"client: the Dask scheduler at {self._client._start_arg or 'this address'} is gone; start the "
                    "cluster again and repeat the call."
                )
            time.sleep(0.1)

    def _check_workers(self) -> None:
        """Raise if all workers have paused: they do when their memory is full, and wait for somebody to free it."""
        now = time.monotonic()
        if now < self._looked + _LOOK:
            return
        if now > self._looked + 10 * _LOOK:  # nobody waited for them in between
            self._at_work = now
        self._looked = now
        try:
            scheduler = self._client.scheduler
            paused = not self._told(scheduler.ncores_running()) and bool(self._told(scheduler.ncores()))
        except Exception:  # whether there is a scheduler at all is looked at elsewhere
            return
        if not paused:
            self._at_work = now
        elif now > self._at_work + _PAUSED:
            address = self._client.scheduler.address
            raise InputError(
                f"client: all workers of the Dask cluster at {address} have paused, because their memory is full and "
                "what they hold does not fit on their disk either; give them more memory or a local_directory with "
                "more space, or let go of what they hold."
            )

    def _begun(self, call: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        try:
            return asyncio.run_coroutine_threadsafe(call, self._client.loop.asyncio_loop)
        except RuntimeError:  # the client was closed just now
            call.close()
            raise

    def _told(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        """What the scheduler answers at once; nothing of the call is left where it does not."""
        waiting = self._begun(call)
        try:
            return waiting.result(_LOOK)
        finally:
            waiting.cancel()


class LostWorkerData(Exception):
    """Values that were in the memory of a worker are there no longer."""


class _Shared:
    """What all items share, in the memory of every worker."""

    def __init__(self, current_workers: DaskWorkers, work: Callable[[Any], Any]) -> None:
        self._crew, self.work = current_workers, work
        self._future: Any = None

    def future(self) -> Any:
        if self._future is None or self._future.status != "finished":
            (self._future,) = self._crew.send([_Whole(self.work)], everywhere=True)
        return self._future

    def withdraw(self) -> None:
        self._future = None


class _Sent:
    """One item on its way; `cut` into runs of rows where it is long."""

    def __init__(self, current_workers: DaskWorkers, shared: _Shared, item: Any) -> None:
        self._crew, self._shared, self._item = current_workers, shared, item
        self._future = self._send()

    def _send(self) -> Any:
        current_workers, item = self._crew, self._item
        runs = item.runs() if hasattr(item, "runs") else []
        work = self._shared.future()
        if len(runs) < 2:
            return current_workers.submit(_whole, work, *self._packed(item))
        sampled = [current_workers.submit(_values, *self._packed(sample)) for sample in item.samples()]
        begun = current_workers.submit(_begun, work, item.head(), sampled)
        counted = [current_workers.submit(_counted, work, begun, *self._packed(run)) for run in runs]
        return current_workers.submit(_finished, work, begun, item.head(), counted)

    def _packed(self, item: Any) -> tuple[Any, list[Any]]:
        stub, values = item.pack()
        own = [place for place, value in enumerate(values) if isinstance(value, np.ndarray)]
        if own:
            for place, future in zip(own, self._crew.send([values[place] for place in own]), strict=True):
                values[place] = future
        return stub, values

    def answer(self) -> Any:
        for _ in range(_TRIES):
            try:
                return self._crew.result(self._future).content
            except LostWorkerData:
                self._future = self._send()
            except self._crew._distributed.KilledWorker:
                break
        raise InputError(
            "client: workers of the Dask cluster die of this work, most likely for want of memory; give them more, or "
            "run more workers with fewer threads each."
        )

    def withdraw(self) -> None:
        with suppress(Exception):
            self._future.cancel()
        self._future = None


class _Whole:
    """Something that arrives in one piece.

    Dask hands over the arrays inside of what it sends as parts of the message they came in, wherever these begin. NumPy
    works several times slower on numbers that do not begin at a multiple of their size.
    """

    def __init__(self, content: Any) -> None:
        self.content = content

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (sys.modules["cloudpickle"].dumps(self.content),)


def _arrived(message: bytes) -> _Whole:
    return _Whole(pickle.loads(message))


def _whole(work: _Whole, stub: Any, values: list[Any]) -> _Whole:
    with _at_work():
        return _Whole(work.content(_unpacked(stub, values)))


def _values(stub: Any, values: list[Any]) -> _Whole:
    with _at_work():
        return _Whole(_unpacked(stub, values).values())


def _begun(work: _Whole, head: Any, sampled: list[_Whole]) -> _Whole:
    with _at_work():
        return _Whole(work.content.begin(head.threads_per_host([part.content for part in sampled])))


def _counted(work: _Whole, begun: _Whole, stub: Any, values: list[Any]) -> _Whole:
    with _at_work():
        return _Whole(work.content.count(_unpacked(stub, values), begun.content))


def _finished(work: _Whole, begun: _Whole, head: Any, counted: list[_Whole]) -> _Whole:
    with _at_work():
        return _Whole(work.content.finish(head, begun.content, [part.content for part in counted]))


def _unpacked(stub: Any, values: list[Any]) -> Any:
    # Values are large: these are copied only where they have to be, for the reason given above.
    return stub.unpack([np.require(one, requirements="A") if isinstance(one, np.ndarray) else one for one in values])


@contextmanager
def _at_work() -> Iterator[None]:
    """On a worker: one thread for each piece of work, as it has a thread for each already."""
    _keep_freed_memory()
    with threads.thread_limit(1):
        yield


def shared_memory(asked: int) -> int:
    """Bytes for each piece of work, where all workers of one machine together may use as many as asked for."""
    workers = current_workers()
    return asked if workers is None else max(asked // workers.threads_per_host - _PROCESS, min(asked, _LEAST_MEMORY))


def memory_here(asked: int) -> int:
    """Bytes that one piece of work may hold: what was asked for, or half of this worker's share if that is less."""
    distributed: Any = sys.modules.get("distributed")
    try:
        worker = distributed.get_worker()
        limit, count = worker.memory_manager.memory_limit, worker.state.nthreads
    except (AttributeError, ValueError):  # not on a worker
        return asked
    return min(asked, max(limit // (2 * count), _LEAST_MEMORY)) if limit else asked


@lru_cache(maxsize=1)
def _keep_freed_memory() -> None:
    """Let this process keep up to 128 MB of freed memory for the next temporary.

    Dask tells the C library of its workers to give every freed block back to the system, so that every temporary costs
    page faults: they took twice as long as the work itself.
    """
    if "MALLOC_TRIM_THRESHOLD_" in os.environ:
        with suppress(OSError, AttributeError, TypeError):  # not the GNU C library
            library = ctypes.CDLL(None)
            trim_threshold, mmap_threshold = -1, -3  # their numbers in malloc.h
            library.mallopt(trim_threshold, 1 << 27)
            library.mallopt(mmap_threshold, 1 << 25)


def _cancelled(error: BaseException) -> bool:
    return any("Cancelled" in kind.__name__ for kind in type(error).__mro__)


def _is_collection(value: Any) -> bool:
    dask = sys.modules.get("dask.base")
    return dask is not None and bool(dask.is_dask_collection(value))


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


# Which cluster -------------------------------------------------------------------------------------------------------

_crew: ContextVar[DaskWorkers | None] = ContextVar("crew", default=None)


def current_workers() -> DaskWorkers | None:
    """The workers in use here; None where there are none but threads."""
    return _crew.get()


@contextmanager
def client_in_use(client: Any, *data: Any) -> Iterator[None]:
    """Let `spread` use the workers of a Dask client inside.

    Where none is given and some of the data are Dask collections, the client that Dask itself would use is taken.
    """
    client = _client_for(data) if client is None else _checked(client)
    if client is None:
        yield
        return
    token = _crew.set(DaskWorkers(client))
    try:
        yield
    finally:
        _crew.reset(token)


def _client_for(data: Iterable[Any]) -> Any:
    if "distributed" not in sys.modules or not any(_is_collection(one) for one in data):
        return None
    distributed: Any = sys.modules["distributed"]
    try:
        return distributed.default_client()
    except ValueError:  # there is none
        return None


def _checked(client: Any) -> Any:
    distributed: Any = sys.modules.get("distributed")
    if distributed is None or not isinstance(client, distributed.Client):
        raise InputError(
            f"client: a distributed.Client was needed, got {type(client).__name__}; connect with "
            "distributed.Client(address)."
        )
    if client.asynchronous:
        raise InputError("client: an asynchronous Dask client cannot be waited for; pass one without asynchronous.")
    return client


def parallel_map(work: Callable[[Any], Answer], items: Iterable[Any], most: int | None = None) -> Iterator[Answer]:
    """`work` of each item, in order: on the workers of the cluster in use, or else on threads (`threads.spread`)."""
    workers = _crew.get()
    return threads.parallel_map(work, items, most) if workers is None else workers.parallel_map(work, items)


@contextmanager
def connected(address: str | None = None, workers: int | None = None) -> Iterator[Any]:
    """A client of the cluster at an address, or of so many worker processes here, which end with it.

    None where neither is given.
    """
    if address is None and workers is None:
        yield None
        return
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"Working on a cluster needs Dask: {INSTALL}.") from error
    dask: Any = distributed  # without types
    # What goes wrong is told in one sentence, and not by every part of Dask that hears of it.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if address is not None:
        try:
            client = dask.Client(address, set_as_default=False, timeout=_TO_CONNECT)
        except (OSError, ValueError) as error:
            raise InputError(
                f"client: no Dask scheduler answers at {address}; start one with `dask scheduler`."
            ) from error
        with client:
            yield client
        return
    with (
        dask.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as cluster,
        dask.Client(cluster, set_as_default=False) as client,
    ):
        yield client
