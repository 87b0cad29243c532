"""What the studies of this package share: random streams, process pools and records on disk.

The paper's experiments use it, and so do the scripts in `benchmarks/`.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import signal
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from itertools import islice
from multiprocessing import active_children, get_context, parent_process, resource_tracker
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from kernsift.execution.files import atomic_path

Task = TypeVar("Task")
Found = TypeVar("Found")
Row = TypeVar("Row")


def generator(seed: int, names: Iterable[str], number: int) -> np.random.Generator:
    """The generator of a replicate, a function of the seed, the names and its number alone."""
    key = [zlib.crc32(name.encode()) for name in names]
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(*key, number)))


# --- processes --------------------------------------------------------------------------------------------------------


def run_tasks(function: Callable[[Task], Found], tasks: Sequence[Task], workers: int) -> Generator[Found]:
    """The results of all tasks as they finish, each computed with one thread. Closing the iterator stops the work."""
    function = partial(_single_threaded, function)
    if workers == 1 or len(tasks) < 2:
        yield from map(function, tasks)
    else:
        yield from _on_processes(function, tasks, workers)


def _single_threaded(function: Callable[[Task], Found], task: Task) -> Found:
    """Call the function with one BLAS thread: sums over several depend on their number in the last bits."""
    with threadpool_limits(1):
        return function(task)


def _on_processes(function: Callable[[Task], Found], tasks: Sequence[Task], workers: int) -> Iterator[Found]:
    """Run tasks in spawned processes, which ignore Ctrl-C and end when this process ends for any reason."""
    pool = ProcessPoolExecutor(min(workers, len(tasks)), get_context("spawn"), _end_with_parent)
    rest, others = iter(tasks), set(active_children())
    try:
        with _interrupts_blocked():  # the first task starts all workers
            waiting = {pool.submit(function, task) for task in islice(rest, 3 * workers)}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
            waiting |= {pool.submit(function, task) for task in islice(rest, len(done))}
    finally:
        for worker in set(active_children()) - others:
            worker.terminate()
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """End this worker when its parent has ended, for any reason."""

    def watch() -> None:
        parent = parent_process()
        assert parent is not None
        parent.join()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block SIGINT, which reaches every process at a terminal: a worker interrupted while it starts prints a traceback.

    A process inherits the signal mask, so it stays blocked in the workers. Here another thread may receive the signal,
    and Python would then interrupt the main thread; the handler is called afterwards instead.
    """
    if not hasattr(signal, "pthread_sigmask") or threading.current_thread() is not threading.main_thread():
        yield
        return
    resource_tracker.ensure_running()  # the first worker would start it, with SIGINT unblocked
    pending: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: pending.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
        for number in pending:
            signal.raise_signal(number)


class Progress:
    """Counts finished tasks by group: a bar on a terminal, elsewhere a line when a group is done."""

    def __init__(self, groups: Iterable[str], unit: str = "task") -> None:
        self.left, self.unit, self.done, self.start = Counter(groups), unit, 0, time.monotonic()
        self.total = self.left.total()
        shown = sys.stderr.isatty() and self.total
        self.bar = tqdm(total=self.total, unit=unit, smoothing=0.05, dynamic_ncols=True) if shown else None

    def advance(self, group: str, text: Callable[[], str] = lambda: "done") -> bool:
        """Count a task, and return whether it was the last of its group; `text` describes the finished group."""
        self.done += 1
        self.left[group] -= 1
        last = self.left[group] == 0
        if self.bar is not None:
            self.bar.set_description(group)
            self.bar.update()
        elif last:
            seconds = time.monotonic() - self.start
            rest = seconds / self.done * (self.total - self.done)
            counted = f"{self.done} of {self.total} {self.unit}s after {seconds:.0f} s, about {rest:.0f} s left"
            print(f"{group}: {text()}; {counted}", flush=True)
        if self.bar is not None and self.done == self.total:
            self.bar.close()
        return last


# --- records ----------------------------------------------------------------------------------------------------------


def digest(content: bytes) -> str:
    """The first 16 digits of the SHA-256."""
    return hashlib.sha256(content).hexdigest()[:16]


class Log:
    """An append-only file of JSON records, one a line with a checksum in front; safe to kill at any moment.

    A record is on the disk when `append` returns. A line that was cut off or damaged fails its checksum and is listed
    in `damaged` by its number. Numbers read back bit for bit.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[dict[str, Any]] = []
        self.damaged: list[int] = []
        content = path.read_bytes() if path.exists() else b""
        for number, line in enumerate(content.split(b"\n"), start=1):
            checksum, _, body = line.partition(b" ")
            if line and checksum.decode("ascii", "replace") == digest(body):
                self.records.append(json.loads(body))
            elif line:
                self.damaged.append(number)
        # Half a line was being written when the run was killed: end it, so that the next record starts on its own line.
        self._before = b"" if content.endswith(b"\n") or not content else b"\n"

    def append(self, record: dict[str, Any]) -> dict[str, Any]:
        """Store a record, and return it as it will be read back, so that a resumed run cannot differ from this one."""
        body = json.dumps(record, separators=(",", ":"), allow_nan=False).encode()
        try:
            # One write to a file opened for appending: records of two runs in one folder do not mix.
            with self.path.open("ab") as file:
                file.write(self._before + digest(body).encode() + b" " + body + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        self._before = b""
        self.records.append(json.loads(body))
        return self.records[-1]


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """The lines of a CSV file as records of a dataclass of strings, integers and floats; none without a file."""
    if not path.exists():
        return []
    types = {field.name: {"int": int, "float": float}.get(str(field.type), str) for field in fields(kind)}  # type: ignore[arg-type]
    with path.open(encoding="utf-8", newline="") as file:
        return [kind(**{name: types[name](value) for name, value in row.items()}) for row in csv.DictReader(file)]


def write_rows(
    path: Path, kind: type[Row], rows: Iterable[Row], *, columns: Sequence[str] = (), number: str = ".5g"
) -> None:
    """Write records of a dataclass, their fields or `columns`, as CSV; `number` is the format of floats."""
    names = columns or [field.name for field in fields(kind)]  # type: ignore[arg-type]
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for row in rows:
            values = (getattr(row, name) for name in names)
            writer.writerow([format(value, number) if isinstance(value, float) else value for value in values])
