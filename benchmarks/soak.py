"""Memory, threads and open files of a process over an hour of calls.

    python benchmarks/soak.py --minutes 60
    python benchmarks/soak.py --minutes 2 --threads 8

Calls cycle through all questions, estimators and tests, strata, pairs, units, confounders, censored responses, missing
values, sparse matrices, groups and files; results are printed and made into reports. Memory, threads and open
files are read at regular times. After a fifth of the time, which caches may fill, memory must show no trend beyond its
noise, and the number of threads and files must not rise. With --threads the calls come from that many threads, and
every answer is checked against the one a single thread got. The exit code is 1 if anything grows or differs.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from measure import memory_of
from scipy.sparse import csr_array
from scipy.stats import linregress

from kernsift import CalibrationWarning, InputError, Multiscale, SelectMMD, compare, compare_groups, relate, screen
from kernsift.estimators import HSIC, MMD, SCREEN
from kernsift.inference import TESTS

_SAMPLES = 240
_WARM = 0.2
# Growth an hour, in MB, that an allocator may keep for later.
_NOTHING = 1.0


class Reading(NamedTuple):
    """What the process holds at a moment: seconds since the start, MB in memory, threads and open files."""

    seconds: float
    memory: float
    threads: int
    files: int


def read(start: float) -> Reading:
    threads, files = (len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd"))
    return Reading(time.monotonic() - start, memory_of(os.getpid()) / 2**20, threads, files)


# --- calls ------------------------------------------------------------------------------------------------------------


def options(rng: np.random.Generator, estimator: str, test: str) -> dict[str, Any]:
    chosen = Multiscale(replicates=200) if test == "multiscale" else test
    return {"estimator": estimator, "test": chosen, "k": 4, "random_state": int(rng.integers(2**31))}


def two_samples(estimator: str, test: str, rng: np.random.Generator) -> Any:
    x, y = rng.normal(size=(120, 10)), rng.normal(size=(90, 10))
    return compare(x, y + 0.2, **options(rng, estimator, test))


def response(estimator: str, test: str, rng: np.random.Generator) -> Any:
    x = rng.normal(size=(120, 10))
    return relate(x, x[:, 0] + rng.normal(size=120), **options(rng, estimator, test))


def data_sets(estimator: str, test: str, rng: np.random.Generator) -> Any:
    candidates = {str(i): rng.normal(size=(60, 3)) for i in range(6)}
    return screen(rng.normal(size=(60, 3)), candidates, **options(rng, estimator, test))


def shifted(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two samples of 60 rows and six features, all of which differ."""
    return rng.normal(size=(60, 6)), rng.normal(size=(60, 6)) + 0.3


def two_samples_by_design(design: Callable[[], dict[str, Any]], rng: np.random.Generator) -> Any:
    return compare(*shifted(rng), k=3, random_state=0, **design())


def response_by_design(design: Callable[[], dict[str, Any]], rng: np.random.Generator) -> Any:
    x = rng.normal(size=(120, 6))
    return relate(x, x[:, 0] + rng.normal(size=120), k=3, random_state=0, **design())


def strata() -> dict[str, Any]:
    return {"strata": (np.arange(60) % 4, np.arange(60) % 4)}


def pairs() -> dict[str, Any]:
    return {"paired": True}


def units() -> dict[str, Any]:
    return {"unit": (np.arange(60) // 4, 15 + np.arange(60) // 4)}


def units_in_strata() -> dict[str, Any]:
    return units() | {"strata": tuple(np.arange(60) // 4 % 2 for _ in range(2))}


def confounders() -> dict[str, Any]:
    return {"given": (np.linspace(0, 1, 60), np.linspace(0.2, 1.2, 60)), "distinct": True}


def strata_of_rows() -> dict[str, Any]:
    return {"strata": np.arange(120) % 4}


def confounders_of_rows() -> dict[str, Any]:
    return {"given": np.sin(np.arange(120.0)), "distinct": True}


def censored(design: Callable[[], dict[str, Any]], rng: np.random.Generator) -> Any:
    x = rng.normal(size=(120, 6))
    time, limit = rng.exponential(np.exp(x[:, 0])), rng.exponential(2, size=120)
    return relate(x, (np.minimum(time, limit), time <= limit), random_state=0, **design())


def gaps(missing: str, rng: np.random.Generator) -> Any:
    tables = shifted(rng)
    for table in tables:
        table[rng.random(table.shape) < 0.1] = np.nan
    return compare(*map(pd.DataFrame, tables), missing=missing, random_state=0)


def sparse(rng: np.random.Generator) -> Any:
    return compare(*(csr_array(np.maximum(table - 0.5, 0)) for table in shifted(rng)), random_state=0)


def groups(rng: np.random.Generator) -> Any:
    return compare_groups(pd.DataFrame(rng.normal(size=(90, 5))), np.arange(90) % 3, random_state=0)


def files(kind: str, rng: np.random.Generator) -> Any:
    """Tables that are read in pieces; the files last as long as the call."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder, f"{name}.{kind}")) for name in "XY"]
        for path, table in zip(paths, shifted(rng), strict=True):
            frame = pd.DataFrame(table).add_prefix("x")
            if kind == "npy":
                np.save(path, table)
            elif kind == "csv":
                frame.to_csv(path, index=False)
            else:
                getattr(frame, f"to_{kind}")(path)
        return compare(*paths, random_state=0)


def selector(rng: np.random.Generator) -> Any:
    x = rng.normal(size=(80, 6))
    return SelectMMD(k=2).fit(x, np.arange(80) % 2).transform(x)


def mistake(rng: np.random.Generator) -> Any:
    try:
        compare(rng.normal(size=(20, 3)), rng.normal(size=(20, 4)))
    except InputError as error:
        return str(error)
    raise AssertionError("two tables that do not fit were compared")


def calls() -> list[Callable[[np.random.Generator], Any]]:
    """One of everything; each takes its data and its seed from the generator."""
    kinds = ((two_samples, MMD), (response, HSIC), (data_sets, SCREEN))
    every = [partial(kind, estimator, test) for kind, known in kinds for estimator in known for test in TESTS]
    every += [partial(two_samples_by_design, design) for design in (strata, pairs, units, units_in_strata, confounders)]
    every += [partial(response_by_design, design) for design in (strata_of_rows, confounders_of_rows)]
    every += [partial(censored, design) for design in (dict, strata_of_rows, confounders_of_rows)]
    every += [partial(gaps, missing) for missing in ("column", "value", "drop")]
    every += [partial(files, kind) for kind in ("parquet", "feather", "csv", "npy")]
    return [*every, sparse, groups, selector, mistake]


def outcome(result: Any) -> Any:
    """Use the result as a caller does, and return what must be reproducible."""
    if isinstance(result, pd.DataFrame):
        return result.to_csv()
    if not hasattr(result, "to_dict"):
        return result.tolist() if isinstance(result, np.ndarray) else result
    html = result.to_html()
    return result.log_pvalues.tolist(), result.scores.tolist(), result.to_text(), len(html)


def answer(number: int) -> Any:
    every = calls()
    return outcome(every[number % len(every)](np.random.default_rng(number)))


# --- the run ----------------------------------------------------------------------------------------------------------


def soak(minutes: float, threads: int) -> tuple[list[Reading], int, set[int]]:
    """Readings at even times, the number of calls, and which answers differed from the single thread's."""
    expected = [answer(number) for number in range(len(calls()))] if threads > 1 else []
    start, readings, counted, wrong = time.monotonic(), [], 0, set()
    end = start + 60 * minutes
    lock, stop = threading.Lock(), threading.Event()

    def work(first: int) -> None:
        nonlocal counted
        number = first
        while not stop.is_set():
            place = number % len(expected) if expected else number
            found = answer(place)
            with lock:
                counted += 1
            if expected and found != expected[place]:
                wrong.add(place)
            number += threads

    with ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(work, first) for first in range(threads)]
        try:
            while time.monotonic() < end and not any(future.done() for future in running):
                time.sleep(min(60 * minutes / _SAMPLES, 10.0))
                gc.collect()
                readings.append(read(start))
        finally:
            stop.set()
        for future in running:
            future.result()
    return readings, counted, wrong


def trend(readings: list[Reading]) -> tuple[float, float]:
    """MB an hour and its standard error, from the means of ten stretches: neighbouring readings are much alike."""
    stretches = np.array_split(np.array([[one.seconds / 3600, one.memory] for one in readings]), 10)
    line = linregress(*np.array([stretch.mean(axis=0) for stretch in stretches]).T)
    return float(line.slope), float(line.stderr)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Call the library for a long time and watch what the process holds.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=1, help="calling at once")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore", CalibrationWarning)
    readings, counted, wrong = soak(given.minutes, given.threads)
    warm = [one for one in readings if one.seconds > _WARM * 60 * given.minutes]
    if len(warm) < 10:
        print("too short to tell; give it more minutes.")
        return 1
    slope, error = trend(warm)
    hours = (warm[-1].seconds - warm[0].seconds) / 3600
    # Pools of threads come and go with the calls: what counts is how many are usual.
    first, last = (np.median(half, axis=0) for half in (warm[: len(warm) // 2], warm[len(warm) // 2 :]))
    grown = {
        "memory": slope > 3 * error and slope * hours > _NOTHING * max(hours, 0.1),
        "threads": last[2] > first[2] + 1,
        "files": last[3] > first[3],
    }
    print(
        f"{counted} calls in {readings[-1].seconds / 60:.1f} minutes on {given.threads} thread(s)\n"
        f"memory: {warm[0].memory:.1f} MB after warming up, {warm[-1].memory:.1f} MB at the end, "
        f"trend {slope:+.2f} ± {error:.2f} MB an hour\n"
        f"threads: {min(one.threads for one in warm)} to {max(one.threads for one in warm)}, "
        f"open files: {min(one.files for one in warm)} to {max(one.files for one in warm)}"
    )
    if given.threads > 1:
        print(f"questions answered differently than by one thread: {sorted(wrong) or 'none'}")
    for name, grows in grown.items():
        if grows:
            print(f"{name}: grows")
    return int(any(grown.values()) or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
