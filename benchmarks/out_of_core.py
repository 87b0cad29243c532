"""A table larger than the memory it may use: how much is used, and how fast it is compared with reading alone.

    python benchmarks/out_of_core.py FOLDER                    # 8 GB of Parquet files, made in FOLDER, 1 GB of memory
    python benchmarks/out_of_core.py FOLDER --gigabytes 2 --keep

Every call runs in a process of its own, whose memory is read from /proc while it runs, with that of its children. The
files are pushed out of the system's cache before each measurement, as a table larger than memory is not in there.
Reading alone is what pyarrow takes for the same columns of the same files, the faster of two ways: groups of rows as a
whole, or columns by the block.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from contextlib import suppress
from datetime import date
from pathlib import Path

import numpy as np
from measure import resources_of_all, run_watched

COLUMNS, GROUP_ROWS, GROUPS = 500, 50_000, 5
"""Columns of the table; rows of a group, 200 MB; groups in a file."""

MOST, LEAST = 1.5, 0.5
"""Memory in budgets that may be used at most, and the share of the speed of reading alone that must be reached."""

WORKERS = 2
"""Processes of a cluster, which are measured too."""


def make(folder: Path, gigabytes: float) -> list[Path]:
    """Two samples of normal numbers in files of 1 GB; the first ten columns of the second are shifted a little."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = round(gigabytes * 1e9 / (8 * COLUMNS)) // 2
    names = [f"c{j:03d}" for j in range(COLUMNS)]
    schema = pa.schema([(name, pa.float64()) for name in names])
    samples = [folder / "first", folder / "second"]
    for number, sample in enumerate(samples):
        sample.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(number)
        for part, start in enumerate(range(0, rows, GROUP_ROWS * GROUPS)):
            stop = min(start + GROUP_ROWS * GROUPS, rows)
            with pq.ParquetWriter(sample / f"part-{part:04d}.parquet", schema) as writer:
                for first in range(start, stop, GROUP_ROWS):
                    values = rng.standard_normal((COLUMNS, min(GROUP_ROWS, stop - first)))
                    values[:10] += 0.02 * number
                    writer.write_table(pa.table(list(values), names=names))
            print(f"\r{sample.name}: {part + 1} files ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return samples


def files_of(samples: list[Path]) -> list[Path]:
    return [file for sample in samples for file in sorted(sample.glob("*.parquet"))]


def forget(samples: list[Path]) -> None:
    """Push the files out of the system's cache."""
    os.sync()
    for file in files_of(samples):
        handle = os.open(file, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def read_alone(samples: list[Path], columns: int) -> None:
    """Everything, this many columns at a time."""
    import pyarrow.parquet as pq

    names = [f"c{j:03d}" for j in range(COLUMNS)]
    for start in range(0, COLUMNS, columns):
        for file in files_of(samples):
            reader = pq.ParquetFile(file)
            for group in range(reader.num_row_groups):
                reader.read_row_group(group, columns=names[start : start + columns])


def work(job: str, samples: list[Path], memory: str) -> dict[str, object]:
    """One measurement: seconds of wall and processor time, and bytes that were read."""
    from kernsift import compare
    from kernsift.execution.dask_workers import connected

    estimator, _, workers = job.partition(", ")
    with connected(workers=int(workers.split()[0]) if workers else None) as client:
        imported()
        if client is not None:
            client.run(imported)
        before, began = resources_of_all(client), time.perf_counter()
        said: object = None
        if job.startswith("read"):
            read_alone(samples, int(job.split()[1]))
        else:
            result = compare(*samples, estimator=estimator, memory=memory, random_state=0, client=client)
            said = [len(result.names), float(result.pvalues.min())]
        seconds, spent = time.perf_counter() - began, resources_of_all(client) - before
    return {"seconds": seconds, "cpu": spent[0], "read": spent[1], "said": said}


def imported() -> None:
    """Imports are no part of it, here and on the workers."""
    import kernsift.estimators
    import kernsift.report.summaries

    with suppress(ImportError):  # numba is there or is not
        import pandas  # noqa: F401
        import pyarrow.parquet  # noqa: F401

        import kernsift.execution.compiled  # noqa: F401


def measured(job: str, samples: list[Path], memory: str) -> dict[str, object]:
    """A measurement in a process of its own, with the files out of the cache."""
    forget(samples)
    found, peak = run_watched([sys.executable, __file__, "--child", job, "--memory", memory, *map(str, samples)])
    return {"job": job, "peak": peak, **found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="+", type=Path)
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--keep", action="store_true", help="leave the table there, and use one that is there")
    parser.add_argument("--runs", type=int, default=1, help="how often reading and incomplete are measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures there")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(work(given.child, given.folder, given.memory)))
        return 0
    from kernsift.execution.memory import parse_memory

    budget = parse_memory(given.memory)
    folder = given.folder[0] / "out_of_core"
    samples = [folder / "first", folder / "second"]
    if not (given.keep and folder.exists()):
        make(folder, given.gigabytes)
    try:
        size = sum(file.stat().st_size for file in files_of(samples))
        print(f"{date.today()}: {size / 1e9:.1f} GB in {len(files_of(samples))} files, memory {budget / 1e9:.1f} GB")
        found: dict[str, list[dict[str, object]]] = {}
        jobs = ["read 500", "read 25", "incomplete"] * given.runs + ["complete"]
        jobs += [f"{job}, {WORKERS} workers" for job in ("incomplete", "complete")]
        for job in jobs:
            one = measured(job, samples, given.memory)
            found.setdefault(job, []).append(one)
            print(
                f"{job:21} {one['seconds']:7.1f} s  {size / 1e9 / one['seconds']:5.2f} GB/s  cpu {one['cpu']:6.1f} s  "
                f"read {one['read'] / 1e9:5.1f} GB  peak {one['peak'] / 1e9:.2f} GB  {one['said'] or ''}",
                flush=True,
            )
    finally:
        if not given.keep:
            shutil.rmtree(folder)
    alone = min(one["seconds"] for job in ("read 500", "read 25") for one in found[job])
    shares = {job: alone / min(one["seconds"] for one in found[job]) for job in ("incomplete", "complete")}
    peak = max(one["peak"] for job in shares for one in found[job]) / budget
    said = ", ".join(f"{job} {share:.2f}" for job, share in shares.items())
    print(
        f"memory: {peak:.2f} budgets (at most {MOST}); share of the speed of reading alone: {said} (at least {LEAST})"
    )
    if given.json is not None:
        kept = {"date": str(date.today()), "bytes": size, "memory": budget, "load": os.getloadavg()[0]}
        given.json.write_text(json.dumps({**kept, "runs": found}, indent=1) + "\n")
    return 0 if peak < MOST and min(shares.values()) >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
