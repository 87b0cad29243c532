"""Measurements of time, memory and growth that can be compared between days and machines.

Machines differ and are noisy, so everything is a ratio of things measured side by side: calls take turns, and a ratio
is the median over the turns. A call without a counterpart is divided by a yardstick, a few milliseconds of NumPy.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

Call = Callable[[], object]

YARDSTICK = "yardstick"
# 2^15 numbers are 256 KB: read and written they stay in the second-level cache of one core.
CACHED = 2**15


def clock(call: Call) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


# Seconds of a turn, up to which a short call is repeated in it, and the most repetitions.
_TURN, _MOST_REPEATED = 0.05, 20


@dataclass(frozen=True)
class Times:
    """Seconds of calls that took turns: turn i of one call is compared with turn i of another."""

    turns: Mapping[str, Sequence[float]]
    # The first call of every turn, when the caches hold what another call left there.
    first: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def median(self, name: str) -> float:
        return statistics.median(self.turns[name])

    def ratio(self, name: str, other: str) -> float:
        """How many times as long the first takes: the median over the turns that both had."""
        pairs = zip(self.turns[name], self.turns[other], strict=False)
        return statistics.median(a / b for a, b in pairs)


def take_turns(
    calls: Mapping[str, Call], *, budget: float, least: int = 3, most: int = 31, slow: Sequence[str] = ()
) -> Times:
    """Time the calls in turns, after two warm-ups each, for about `budget` seconds; the slow ones have two turns.

    As in `timeit`, a short call is repeated within a turn, whose figure is the median of the repetitions.
    """
    calls = {**calls, YARDSTICK: yardstick}
    repeated = {}
    for name, call in calls.items():
        call()
        repeated[name] = max(1, min(_MOST_REPEATED, int(_TURN / clock(call))))
    turns: dict[str, list[float]] = {name: [] for name in calls}
    first: dict[str, list[float]] = {name: [] for name in calls}
    start, number = time.perf_counter(), 0
    while number < least or (number < most and time.perf_counter() - start < budget):
        for name, call in calls.items():
            if number < 2 or name not in slow:
                seconds = [clock(call) for _ in range(repeated[name])]
                turns[name].append(statistics.median(seconds))
                first[name].append(seconds[0])
        number += 1
    return Times(turns, first)


# --- yardsticks -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _numbers() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    exponents = -(rng.standard_normal(CACHED) ** 2)
    return exponents, np.empty_like(exponents), rng.random(2**17)


def yardstick() -> None:
    """A million exp in cache and a sort of 131,072 numbers on one thread, the operations that take most of the time."""
    exponents, out, unsorted = _numbers()
    for _ in range(2**20 // CACHED):
        np.exp(exponents, out=out)
    np.sort(unsorted)


def exp_in_cache(count: int, threads: int) -> Call:
    """`count` exp of NumPy on blocks that stay in cache, on that many threads."""
    each = max(1, round(count / threads / CACHED))
    blocks = [(_numbers()[0].copy(), np.empty(CACHED)) for _ in range(threads)]

    def work(block: tuple[np.ndarray, np.ndarray]) -> None:
        values, out = block
        for _ in range(each):
            np.exp(values, out=out)

    return lambda: _on_threads(work, blocks)


def exp_in_memory(rows: int, columns: int, calls: int, threads: int) -> Call:
    """`calls` times `np.exp(a, out=b)` on arrays (rows, columns) that no cache holds, the rows divided over threads."""
    values = -(np.random.default_rng(0).standard_normal((rows, columns)) ** 2)
    out = np.empty_like(values)
    edges = np.linspace(0, rows, threads + 1).astype(int)
    parts = [(values[a:b], out[a:b]) for a, b in pairwise(edges)]

    def work(part: tuple[np.ndarray, np.ndarray]) -> None:
        for _ in range(calls):
            np.exp(part[0], out=part[1])

    return lambda: _on_threads(work, parts)


def _on_threads(work: Callable[[Any], None], items: Sequence[Any]) -> None:
    with ThreadPoolExecutor(len(items)) as pool:
        list(pool.map(work, items))


# --- memory -----------------------------------------------------------------------------------------------------------


def peak_memory() -> float:
    """Peak resident set of this process in MB; by the kernel's own count, as getrusage inherits the parent's."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:"))
    import resource  # not on every system

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def reset_peak_memory() -> float:
    """Start counting the peak anew where the system can; returns the MB from which it counts."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()


# --- child processes --------------------------------------------------------------------------------------------------


def run_in_child(script: Path, task: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a fresh process to a task, both as JSON: it gets the task after `--child` and prints the answer."""
    command = [sys.executable, str(script), "--child", json.dumps(task)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    if child.returncode:
        reason = child.stderr.strip().splitlines()
        raise RuntimeError(f"the process ended with {child.returncode}: {reason[-1] if reason else 'without a word'}")
    return dict(json.loads(child.stdout.splitlines()[-1]))


def run_watched(command: Sequence[str]) -> tuple[dict[str, Any], int]:
    """The JSON that a process prints last, and the most memory that it and its children had while it ran.

    Where it prints "ready" and "done" the memory between these lines counts.
    """
    peak, done, answer = 0, threading.Event(), ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:

        def watch() -> None:
            nonlocal peak
            while not done.wait(0.02):
                peak = max(peak, memory_of(child.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        for line in child.stdout or ():
            if line.startswith("ready"):
                peak = 0
            elif line.startswith("done"):
                done.set()
            else:
                answer = line
        done.set()
        watcher.join()
    if child.returncode:
        sys.exit(f"{' '.join(command)}: ended with {child.returncode}")
    return dict(json.loads(answer)), peak


def memory_of(process: int) -> int:
    """Bytes of memory that a process and all its children have now."""
    total = 0
    with suppress(OSError, ValueError):  # it may end in the meantime
        total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for task in os.listdir(f"/proc/{process}/task"):
            children = Path(f"/proc/{process}/task/{task}/children").read_text().split()
            total += sum(memory_of(int(child)) for child in children)
    return total


def resources() -> tuple[float, int]:
    """Seconds of processor time and bytes read by this process so far."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return time.process_time(), int(counts["rchar"])


def resources_of_all(client: Any, own: Callable[[], Sequence[float]] = resources) -> np.ndarray:
    """What `own` returns, summed over this process and the workers of a Dask client."""
    return np.sum([own(), *(client.run(own).values() if client is not None else ())], axis=0)


@contextmanager
def on_cores(count: int) -> Iterator[int]:
    """Let this process, and those it starts, use at most `count` cores; gives how many these are."""
    if not hasattr(os, "sched_setaffinity"):
        yield os.cpu_count() or 1
        return
    before = os.sched_getaffinity(0)
    chosen = sorted(before)[:count]
    os.sched_setaffinity(0, chosen)
    try:
        yield len(chosen)
    finally:
        os.sched_setaffinity(0, before)


def wall_time(command: Sequence[str]) -> Call:
    """A whole process from start to end."""
    return lambda: subprocess.run(command, capture_output=True, check=True)


# --- growth and the machine -------------------------------------------------------------------------------------------


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The exponent b of time = a size^b: least squares in logarithms.

    >>> round(slope([10, 100, 1000], [0.02, 0.2, 2.0]), 3)
    1.0
    """
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def machine() -> dict[str, Any]:
    """The properties of the machine and the versions that figures depend on."""
    import scipy

    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def conditions(run: Mapping[str, Any]) -> str:
    """Date, version and machine of a run on record, in one line."""
    version = f", kernsift {run['version']}" if "version" in run else ""
    at = f" ({run['commit']})" if run.get("commit") else ""
    return f"{run['date']}{version}{at}: " + ", ".join(f"{name} {value}" for name, value in run["machine"].items())


def commit(folder: Path) -> str | None:
    """The commit of a checkout, marked where files differ from it; None without git."""
    try:
        run = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return run.stdout.strip() or None
