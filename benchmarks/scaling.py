"""What tables larger than memory cost: a model fitted to measured runs, checked on larger ones, and its predictions.

    python benchmarks/scaling.py FOLDER                    # makes tables in FOLDER, runs, fits, checks; 20 minutes
    python benchmarks/scaling.py FOLDER --record           # also keeps the runs in docs/scaling/runs.json
    python benchmarks/scaling.py --page docs/scaling.md    # the page, from the runs that were kept

Every run compares two samples in Parquet files that were pushed out of the system's cache, in a process of its own. The
terms of the model are few, and each is a cost that can be named (scaling_model.py). They are fitted without the largest
sizes. The script fails where a prediction of these is off by more than a quarter.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from measure import commit, machine, resources, resources_of_all, run_watched
from out_of_core import forget, imported
from scaling_model import MEMORY, WITHIN, checks, fit, idle, others
from scaling_page import write_page

HERE = Path(__file__).resolve().parent
RECORD = HERE.parent / "docs" / "scaling" / "runs.json"
PART, LONG_PART = 25_000, 200_000
"""Rows of a file, and of one with few columns; each sample has half of a table's rows."""

ESTIMATORS = ("complete", "incomplete")
# Rows, columns, k; 0 workers is the calling process alone, with a thread for each core.
ALONE = [
    *((n, d, 10) for d in (60, 120) for n in (100_000, 400_000, 800_000)),
    *((n, 240, k) for n in (100_000, 400_000) for k in (10, 120)),
    (800_000, 240, 10),
    (50_000, 1_100, 10),
    (100_000, 1_400, 20),
    (1_600_000, 8, 5),
]
ON_WORKERS = [
    (100_000, 60, 10),
    (400_000, 60, 10),
    (400_000, 120, 10),
    (100_000, 240, 10),
    (800_000, 120, 10),
    (800_000, 240, 10),
    (400_000, 240, 120),
    (50_000, 1_100, 10),
    (100_000, 1_400, 20),
    (1_600_000, 8, 5),
]
HELD_OUT = [(1_500_000, 300, 30), (250_000, 1_700, 30)]


def settings() -> Iterator[dict[str, Any]]:
    """All runs, the largest last: long ones, and wide ones."""
    for estimator in ESTIMATORS:
        for n, d, k in ALONE:
            yield {"estimator": estimator, "n": n, "d": d, "k": k, "workers": 0}
        for workers in (1, 2):
            for n, d, k in ON_WORKERS:
                yield {"estimator": estimator, "n": n, "d": d, "k": k, "workers": workers}
    for n, d, k in HELD_OUT:
        for estimator in ESTIMATORS:
            for workers in (0, 2):
                yield {"estimator": estimator, "n": n, "d": d, "k": k, "workers": workers, "held_out": True}


def tables(folder: Path, n: int, d: int) -> list[Path]:
    """Two samples of normal numbers, made where they are not there; short tables are the first files of long ones."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    samples = []
    for sample in range(2):
        pool, own = folder / f"columns-{d}" / str(sample), folder / f"rows-{n}-columns-{d}" / str(sample)
        rows = PART if d > 10 else LONG_PART
        for part in range(n // 2 // rows):
            file = pool / f"{part:04d}.parquet"
            if not file.exists():
                pool.mkdir(parents=True, exist_ok=True)
                values = np.random.default_rng([sample, part, d]).standard_normal((d, rows))
                values[:5] += 0.05 * sample
                pq.write_table(pa.table({f"c{j:03d}": values[j] for j in range(d)}), file, use_dictionary=False)
            if not (own / file.name).exists():
                own.mkdir(parents=True, exist_ok=True)
                os.link(file, own / file.name)
        samples.append(own)
    return samples


# In the child --------------------------------------------------------------------------------------------------------


def work(task: dict[str, Any]) -> dict[str, Any]:
    """One run: seconds of the clock and of processors, bytes that were read, and bytes that processes sent."""
    from kernsift import compare
    from kernsift.execution.dask_workers import connected

    small = [np.random.default_rng(i).normal(size=(300, 5)) for i in range(2)]
    given = {"estimator": task["estimator"], "random_state": 0}
    with connected(workers=task["workers"] or None) as client:
        # Imports and machine code are no part of it; neither is the start of the workers.
        compare(*small, client=client, **given)
        _ready()
        if client is not None:
            client.run(_ready)
        print("ready", flush=True)
        before, busy, began = resources_of_all(client, _own), _busy(), time.perf_counter()
        result = compare(*task["samples"], k=task["k"], memory=MEMORY, client=client, **given)
        seconds, busy, after = time.perf_counter() - began, _busy() - busy, resources_of_all(client, _own)
        print("done", flush=True)
    processors, read, moved = (after - before).tolist()
    others = max(0.0, busy - processors) / (seconds * (os.cpu_count() or 1))
    found = {"seconds": seconds, "processors": processors, "read": read, "moved": moved, "others": others}
    return {**found, "features": len(result.names)}


def _ready() -> None:
    """Import and compile what a run needs, and count the bytes that are sent."""
    from distributed.comm.tcp import TCP

    from kernsift.execution.fused import host_mmd

    imported()
    values, rows = np.zeros((64, 4)), tuple(np.zeros((4, 8), dtype=np.int32))  # as tables on disk have them
    host_mmd(values, values, rows, slice(0, 4), np.full(4, -1.0), 2**40)
    whole = TCP.write

    async def write(self: Any, *message: Any, **given: Any) -> int:
        sent = await whole(self, *message, **given)
        TCP.sent = getattr(TCP, "sent", 0) + sent
        return int(sent)

    TCP.write = write


def _busy() -> float:
    """Processor seconds of all processes on this machine."""
    with open("/proc/stat") as lines:
        user, nice, system, _, _, interrupts, soft, stolen = map(int, lines.readline().split()[1:9])
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")


def _own() -> tuple[float, int, int]:
    from distributed.comm.tcp import TCP

    return *resources(), getattr(TCP, "sent", 0)


# In the parent -------------------------------------------------------------------------------------------------------


def measured(task: dict[str, Any], samples: list[Path]) -> dict[str, Any]:
    """A run in a process of its own, and the most memory that it and its children had while it lasted."""
    forget(samples)
    given = json.dumps({**task, "samples": [str(sample) for sample in samples]})
    found, peak = run_watched([sys.executable, __file__, "--child", given])
    return {**task, "peak": peak, **found}


def run_all(folder: Path, repeats: int) -> list[dict[str, Any]]:
    """All settings; of several runs the fastest, as other load of the machine only makes it slower.

    What was measured is kept next to the tables, so that an interrupted run is resumed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "runs.json"
    found = json.loads(kept.read_text()) if kept.exists() else []
    for task in list(settings())[len(found) :]:
        samples = tables(folder, task["n"], task["d"])
        runs = [measured(task, samples) for _ in range(repeats)]
        best = min(runs, key=lambda run: float(run["processors"]))
        best["peak"] = max(run["peak"] for run in runs)
        best["moved"] = min(run["moved"] for run in runs)
        found.append(best)
        kept.write_text(json.dumps(found))
        print(
            f"{task['estimator']:10} n={task['n']:9,} d={task['d']:3} k={task['k']:3} workers={task['workers']}: "
            f"{best['seconds']:6.2f} s, processors {best['processors']:6.2f} s; read {best['read'] / 1e6:6,.0f}, "
            f"moved {best['moved'] / 1e6:5.1f}, peak {best['peak'] / 1e6:5,.0f} MB",
            flush=True,
        )
    return found


def report(runs: list[dict[str, Any]]) -> bool:
    """Print predictions of what was held out; whether all of them are within the limit."""
    if not idle(runs):
        print(f"Others used {others(runs):.0%} of the processors meanwhile: wall-clock seconds are not meaningful.")
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
        parser.error("a folder for the tables is needed, some 13 GB")
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
