"""What tables larger than memory cost: a model fitted to measured runs, checked on a larger one, and what it foretells.

    python benchmarks/scaling.py FOLDER                    # makes tables in FOLDER, runs, fits, checks; some minutes
    python benchmarks/scaling.py FOLDER --record           # also keeps the runs in docs/scaling/runs.json
    python benchmarks/scaling.py --page docs/scaling.md    # the page, from the runs that were kept

Every run compares two samples in Parquet files that were pushed out of the system's cache, in a process of its own. The
terms of the model are few, and each is a cost that can be named (scaling_model.py). They are fitted without the largest
size. The script fails where a prediction of that one is off by more than a quarter.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from measure import commit, machine
from out_of_core import forget, memory_of
from scaling_model import WITHIN, checks, fit
from scaling_page import write_page

HERE = Path(__file__).resolve().parent
RECORD = HERE.parent / "docs" / "scaling" / "runs.json"
PART = 25_000
"""Rows of a file; each sample has half of a table's rows."""

MEMORY = 300_000_000
ESTIMATORS = ("complete", "incomplete")
# Rows, columns, k; 0 workers is the calling process alone, with a thread for each core.
ALONE = [
    *((n, d, 10) for d in (60, 120) for n in (100_000, 400_000, 800_000)),
    *((n, 240, k) for n in (100_000, 400_000) for k in (10, 120)),
]
ON_WORKERS = [(100_000, 60, 10), (400_000, 60, 10), (400_000, 120, 10), (100_000, 240, 10), (400_000, 240, 120)]
LARGEST = (1_200_000, 360, 40)


def settings() -> Iterator[dict[str, Any]]:
    """All runs, the largest last."""
    for estimator in ESTIMATORS:
        for n, d, k in ALONE:
            yield {"estimator": estimator, "n": n, "d": d, "k": k, "workers": 0}
        for workers in (1, 2):
            for n, d, k in ON_WORKERS:
                yield {"estimator": estimator, "n": n, "d": d, "k": k, "workers": workers}
    for estimator in ESTIMATORS:
        for workers in (0, 2):
            n, d, k = LARGEST
            yield {"estimator": estimator, "n": n, "d": d, "k": k, "workers": workers, "held_out": True}


def tables(folder: Path, n: int, d: int) -> list[Path]:
    """Two samples of normal numbers, made where they are not there; shorter tables are the first files of longer ones."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    samples = []
    for sample in range(2):
        pool, own = folder / f"columns-{d}" / str(sample), folder / f"rows-{n}-columns-{d}" / str(sample)
        for part in range(n // 2 // PART):
            file = pool / f"{part:04d}.parquet"
            if not file.exists():
                pool.mkdir(parents=True, exist_ok=True)
                values = np.random.default_rng([sample, part, d]).standard_normal((d, PART))
                values[:5] += 0.05 * sample
                pq.write_table(pa.table({f"c{j:03d}": values[j] for j in range(d)}), file, use_dictionary=False)
            if not (own / file.name).exists():
                own.mkdir(parents=True, exist_ok=True)
                os.link(file, own / file.name)
        samples.append(own)
    return samples


# In the child --------------------------------------------------------------------------------------------------------


def work(task: dict[str, Any]) -> dict[str, Any]:
    """One run: seconds of wall and processor time, bytes that were read, and bytes that went through sockets."""
    from kernsift import compare
    from kernsift.cluster import connected

    options = {"r": 1} if task["estimator"] == "incomplete" else {}
    small = [np.random.default_rng(i).normal(size=(300, 5)) for i in range(2)]
    given = {"estimator": task["estimator"], "random_state": 0, **options}
    with connected(workers=task["workers"] or None) as client:
        # Imports and machine code are no part of it; neither is the start of the workers.
        compare(*small, client=client, **given)
        _ready()
        if client is not None:
            client.run(_ready)
        print("ready", flush=True)
        before, began = _spent(client), time.perf_counter()
        result = compare(*task["samples"], k=task["k"], memory=MEMORY, client=client, **given)
        seconds, after = time.perf_counter() - began, _spent(client)
        print("done", flush=True)
    cpu, read, moved = (float(now - then) for now, then in zip(after, before, strict=True))
    return {"seconds": seconds, "cpu": cpu, "read": read, "moved": moved, "features": len(result.names)}


def _ready() -> None:
    """Have all there that a run needs."""
    import pyarrow.parquet  # noqa: F401

    from kernsift.fused import host_mmd

    values, rows = np.zeros((64, 4)), tuple(np.zeros((4, 8), dtype=np.int64))
    host_mmd(values, values, rows, slice(0, 4), np.full(4, -1.0), 2**40)


def _spent(client: Any) -> tuple[float, int, int]:
    """Processor time and bytes read so far, here and by the workers; bytes through this machine's own sockets."""
    every = [_own(), *(client.run(_own).values() if client is not None else ())]
    with open("/proc/net/dev") as lines:
        local = next(line for line in lines if line.strip().startswith("lo:"))
    return sum(one[0] for one in every), sum(one[1] for one in every), int(local.split(":")[1].split()[0])


def _own() -> tuple[float, int]:
    with open("/proc/self/io") as lines:
        return time.process_time(), int(next(line for line in lines if line.startswith("rchar")).split()[1])


# In the parent -------------------------------------------------------------------------------------------------------


def measured(task: dict[str, Any], samples: list[Path]) -> dict[str, Any]:
    """A run in a process of its own, and the most memory that it and its children had while it lasted."""
    forget(samples)
    told = json.dumps({**task, "samples": [str(sample) for sample in samples]})
    child = subprocess.Popen([sys.executable, __file__, "--child", told], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.02):
            peak = max(peak, memory_of(child.pid))

    watcher = threading.Thread(target=watch)
    answer = ""
    for line in child.stdout:
        if line.startswith("ready"):
            watcher.start()
        elif line.startswith("done"):
            done.set()
        else:
            answer = line
    done.set()
    if child.wait():
        sys.exit(f"{task}: ended with {child.returncode}")
    watcher.join()
    return {**task, "peak": peak, "load": os.getloadavg()[0], **json.loads(answer)}


def run_all(folder: Path, repeats: int) -> list[dict[str, Any]]:
    """All settings; of several runs the fastest, as whatever else a machine does only makes it slower."""
    found = []
    for task in settings():
        samples = tables(folder, task["n"], task["d"])
        runs = [measured(task, samples) for _ in range(repeats)]
        best = min(runs, key=lambda run: float(run["seconds"]))
        best["peak"] = max(run["peak"] for run in runs)
        best["moved"] = min(run["moved"] for run in runs)
        found.append(best)
        print(
            f"{task['estimator']:10} n={task['n']:9,} d={task['d']:3} k={task['k']:3} workers={task['workers']}: "
            f"{best['seconds']:6.2f} s, processors {best['cpu']:6.2f} s, read {best['read'] / 1e6:6,.0f} MB, moved "
            f"{best['moved'] / 1e6:6.1f} MB, peak {best['peak'] / 1e6:5,.0f} MB",
            flush=True,
        )
    return found


def report(runs: list[dict[str, Any]]) -> bool:
    """Print predictions of what was held out; whether all of them are within the limit."""
    fine = True
    for check in checks(runs, fit(runs)):
        fine &= check.within
        print(
            f"{check.name}: predicted {check.predicted:.4g}, measured {check.measured:.4g} {check.unit} "
            f"({check.off:+.0%}){'' if check.within else f'  MISSED: more than {WITHIN:.0%}'}"
        )
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--repeats", type=int, default=2, help="how often each setting is run")
    parser.add_argument("--record", action="store_true", help=f"keep the runs in {RECORD.name}")
    parser.add_argument("--keep", action="store_true", help="leave the tables there")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page from the runs that were kept")
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(work(given.child)))
        return 0
    if given.folder is None and given.page is None:
        parser.error("a folder for the tables is needed, some 6 GB")
    if given.folder is not None:
        folder = given.folder / "scaling"
        try:
            runs = run_all(folder, given.repeats)
        finally:
            if not given.keep:
                shutil.rmtree(folder, ignore_errors=True)
        if given.record:
            kept = {"date": str(date.today()), "commit": commit(HERE), "machine": machine(), "memory": MEMORY}
            RECORD.parent.mkdir(exist_ok=True)
            RECORD.write_text(json.dumps({**kept, "runs": runs}, indent=1) + "\n")
    record = json.loads(RECORD.read_text()) if given.folder is None or given.record else {"runs": runs}
    fine = report(record["runs"])
    if given.page is not None:
        write_page(given.page, record)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
