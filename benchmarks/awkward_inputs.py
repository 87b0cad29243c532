"""Tables of awkward shapes: time and memory as ratios to the plain way of doing the same.

    python benchmarks/awkward_inputs.py FOLDER [--only NAME ...] [--gigabytes 0.2] [--json FILE]

Every call runs in a process of its own, whose memory is read from /proc while it runs, after imports and the making of
data. Time is processor time of the process, so that other work on the machine counts little, but for the rows that ask
how many cores are at work, where it is wall-clock time. Ratios are to the call that a job is compared with.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from measure import Call, memory_of, run_watched
from out_of_core import imported


class Job(NamedTuple):
    """A call: `make(folder, gigabytes)` prepares its data and returns the call and the bytes of its input."""

    make: Callable[[Path, float], tuple[Call, int]]
    against: str | None = None
    most_time: float | None = None
    most_memory: float | None = None
    clock: bool = False


def numbers(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Normal numbers; the first columns of odd seeds are shifted a little."""
    values = np.random.default_rng(seed).normal(size=(n, d))
    values[:, : max(1, d // 10)] += 0.1 * (seed % 2)
    return values


def written(path: Path, write: Callable[..., object], *given: Any) -> Path:
    """A file that `write(path, *given)` makes where it does not exist yet."""
    if not path.exists():
        part = path.with_name(f"part-{path.name}")
        write(part, *given)
        part.rename(path)
    return path


# Text ----------------------------------------------------------------------------------------------------------------


def write_csv(path: Path, rows: int, seed: int) -> None:
    """40 columns, some rows at a time."""
    import pandas as pd

    for start in range(0, rows, 50_000):
        part = pd.DataFrame(numbers(min(50_000, rows - start), 40, seed + 2 * start), columns=[*map(str, range(40))])
        part.add_prefix("c").to_csv(path, index=False, float_format="%.6f", mode="a", header=start == 0)


def csv_files(folder: Path, gigabytes: float) -> tuple[list[Path], int]:
    """Two files, and their bytes."""
    rows = int(gigabytes * 1e9 / (40 * 10.0))
    paths = [written(folder / f"{gigabytes:g}-{seed}.csv", write_csv, rows, seed) for seed in (0, 1)]
    return paths, sum(path.stat().st_size for path in paths)


def command_line(paths: list[Path], *options: str) -> Call:
    from kernsift.cli.app import main

    output = paths[0].with_name("answer.json")
    return lambda: main(["compare", *map(str, paths), "--output", str(output), "--seed", "0", "--quiet", *options])


def compare_paths(paths: list[Path], memory: str | None) -> Call:
    from kernsift import compare

    return lambda: compare(*map(str, paths), random_state=0, memory=memory).to_dict()


def csv_shell(folder: Path, gigabytes: float) -> tuple[Call, int]:
    paths, size = csv_files(folder, gigabytes)
    return command_line(paths), size


def csv_path(folder: Path, gigabytes: float) -> tuple[Call, int]:
    paths, size = csv_files(folder, gigabytes)
    return compare_paths(paths, memory="1GB"), size


def csv_limited(folder: Path, gigabytes: float) -> tuple[Call, int]:
    return command_line(csv_files(folder, gigabytes)[0], "--memory", "200MB"), 200_000_000


def write_text(path: Path, rows: int, columns: int) -> None:
    header = ",".join(f"c{i}" for i in range(columns))
    np.savetxt(path, numbers(rows, columns), fmt="%.6f", delimiter=",", comments="", header=header)


def text_shape(rows: int, columns: int, reader: str, folder: Path, _: float) -> tuple[Call, int]:
    """Reading a text file: everything that comes before the statistics, or pandas alone."""
    import pandas as pd

    from kernsift.data.inputs import as_table

    path = written(folder / f"{rows}x{columns}.csv", write_text, rows, columns)
    calls = {
        "pandas": lambda: pd.read_csv(path),
        "in pieces": lambda: as_table(path, memory="1GB"),
        "as a whole": lambda: as_table(path),
    }
    return calls[reader], path.stat().st_size


# Parquet -------------------------------------------------------------------------------------------------------------


def write_packed(path: Path, seed: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(seed)
    schema = pa.schema([(f"c{j}", pa.float64()) for j in range(50)])
    with pq.ParquetWriter(path, schema) as file:
        for _ in range(4):
            columns = [np.repeat(rng.integers(0, 10, 25_000), 20).astype(float) for _ in range(50)]
            file.write_table(pa.table(columns, schema=schema))


def packed_parquet(options: tuple[str, ...], folder: Path, _: float) -> tuple[Call, int]:
    """Two files that are small because their columns hold few values: 24 MB that become 1.6 GB."""
    paths = [written(folder / f"packed-{seed}.parquet", write_packed, seed) for seed in (0, 1)]
    return command_line(paths, *options), 2 * 4 * 500_000 * 50 * 8


def write_parts(path: Path, kind: str, seed: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({f"c{j}": column for j, column in enumerate(numbers(1_000_000, 20, seed).T)})
    if kind == "files":
        path.mkdir()
        for part in range(500):
            pq.write_table(table.slice(2000 * part, 2000), path / f"{part:03d}.parquet")
    else:
        pq.write_table(table, path, row_group_size=200 if kind == "groups" else 250_000)


def parquet_parts(kind: str, memory: str | None, folder: Path, _: float) -> tuple[Call, int]:
    """The same million rows of 20 columns in one file, in 5,000 groups of rows, or in 500 files."""
    paths = [written(folder / f"{kind}-{seed}", write_parts, kind, seed) for seed in (0, 1)]
    return compare_paths(paths, memory), 2 * 20 * 1_000_000 * 8


# Dask ----------------------------------------------------------------------------------------------------------------


def partitions(how: str, *_: object) -> tuple[Call, int]:
    """40,000 x 50 in 200 partitions a sample: as they are, or computed first."""
    import dask.dataframe as dd
    import pandas as pd

    from kernsift import compare

    frames = [pd.DataFrame(numbers(40_000, 50, seed)).add_prefix("c") for seed in (0, 1)]
    lazy = [dd.from_pandas(frame, npartitions=200) for frame in frames]

    def call() -> object:
        given = [one.compute() for one in lazy] if how == "computed" else lazy
        return compare(*given, random_state=0).to_dict()

    return call, 2 * 40_000 * 50 * 8


# Several columns as one ----------------------------------------------------------------------------------------------


def groups(estimator: str, *_: object) -> tuple[Call, int]:
    """Ten groups of ten columns at 20,000 rows."""
    from kernsift import compare

    X, Y = numbers(10_000, 100, 0), numbers(10_000, 100, 1)
    named = {f"g{i}": list(range(10 * i, 10 * i + 10)) for i in range(10)}
    return lambda: compare(X, Y, groups=named, estimator=estimator, random_state=0).pvalues, X.nbytes + Y.nbytes


def responses(columns: int, *_: object) -> tuple[Call, int]:
    """A response of some columns, 20 features, 200,000 rows."""
    from kernsift import relate

    X, y = numbers(200_000, 20), numbers(200_000, columns, 2)
    y[:, 0] += 0.02 * X[:, 0]
    return lambda: relate(X, y, random_state=0).pvalues, X.nbytes + y.nbytes


def screening(jobs: int, *_: object) -> tuple[Call, int]:
    """200 candidates of 500 x 64."""
    from kernsift import screen

    base, others = numbers(500, 64), {f"c{i}": numbers(500, 64, i + 2) for i in range(200)}
    return lambda: screen(base, others, random_state=0, n_jobs=jobs).pvalues, 201 * base.nbytes


def few_columns(jobs: int, *_: object) -> tuple[Call, int]:
    """10^6 x 20."""
    from kernsift import compare

    X, Y = numbers(500_000, 20, 0), numbers(500_000, 20, 1)
    return lambda: compare(X, Y, random_state=0, n_jobs=jobs).pvalues, X.nbytes + Y.nbytes


def categories(count: int, *_: object) -> tuple[Call, int]:
    """A response with `count` categories, 100,000 rows, 20 features."""
    from kernsift import relate

    X = numbers(100_000, 20)
    y = np.random.default_rng(1).integers(0, count, 100_000)
    return lambda: relate(X, y, response="category", random_state=0).pvalues, X.nbytes


JOBS: dict[str, Job] = {
    "csv, by path, 1GB": Job(csv_path),
    "csv, command line": Job(csv_shell, "csv, by path, 1GB", 1.2, 3.0),
    "csv, command line, --memory 200MB": Job(csv_limited, "csv, by path, 1GB", 1.5, 1.5),
    "pandas, 300 x 20000": Job(partial(text_shape, 300, 20_000, "pandas")),
    "300 x 20000 in pieces": Job(partial(text_shape, 300, 20_000, "in pieces"), "pandas, 300 x 20000", 2.0),
    "300 x 20000 as a whole": Job(partial(text_shape, 300, 20_000, "as a whole"), "pandas, 300 x 20000", 2.0),
    "pandas, 1000000 x 5": Job(partial(text_shape, 1_000_000, 5, "pandas")),
    "1000000 x 5 in pieces": Job(partial(text_shape, 1_000_000, 5, "in pieces"), "pandas, 1000000 x 5", 2.0),
    "1000000 x 5 as a whole": Job(partial(text_shape, 1_000_000, 5, "as a whole"), "pandas, 1000000 x 5", 2.0),
    "packed parquet, --memory 1GB": Job(partial(packed_parquet, ("--memory", "1GB"))),
    "packed parquet": Job(partial(packed_parquet, ()), "packed parquet, --memory 1GB", 1.1, 1.5),
    "one parquet file": Job(partial(parquet_parts, "one", None)),
    "5,000 groups of rows": Job(partial(parquet_parts, "groups", None), "one parquet file", 2.0),
    "500 files": Job(partial(parquet_parts, "files", None), "one parquet file", 2.0),
    "one parquet file, 200MB": Job(partial(parquet_parts, "one", "200MB")),
    "5,000 groups of rows, 200MB": Job(partial(parquet_parts, "groups", "200MB"), "one parquet file, 200MB", 2.0),
    "500 files, 200MB": Job(partial(parquet_parts, "files", "200MB"), "one parquet file, 200MB", 2.0),
    "dask, computed first": Job(partial(partitions, "computed")),
    "dask, 200 partitions": Job(partial(partitions, "lazy"), "dask, computed first", 2.0),
    "groups, incomplete": Job(partial(groups, "incomplete")),
    "groups, complete": Job(partial(groups, "complete"), "groups, incomplete", None, 3.0),
    "response of one column": Job(partial(responses, 1)),
    "response of five columns": Job(partial(responses, 5), "response of one column", None, 3.0),
    "screen, 1 thread": Job(partial(screening, 1), clock=True),
    "screen, 2 threads": Job(partial(screening, 2), "screen, 1 thread", 0.6, 3.0, clock=True),
    "10^6 x 20, 1 thread": Job(partial(few_columns, 1), clock=True),
    "10^6 x 20, 2 threads": Job(partial(few_columns, 2), "10^6 x 20, 1 thread", 0.6, clock=True),
    "1,000 categories": Job(partial(categories, 1_000)),
    "20,000 categories": Job(partial(categories, 20_000), "1,000 categories", 2.0),
}


def child(name: str, folder: Path, gigabytes: float) -> None:
    """One measurement."""
    imported()
    call, size = JOBS[name].make(folder, gigabytes)
    print("ready", flush=True)
    before = memory_of(os.getpid())
    began, spent = time.perf_counter(), time.process_time()
    call()
    seconds, cpu = time.perf_counter() - began, time.process_time() - spent
    print("done", flush=True)
    print(json.dumps({"seconds": seconds, "cpu": cpu, "size": size, "before": before}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="rows whose names contain one of these")
    parser.add_argument("--gigabytes", type=float, default=0.2, help="of each CSV file")
    parser.add_argument("--keep", action="store_true", help="leave the files there, and use those that are there")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.folder, given.gigabytes)
        return 0
    folder = given.folder / "awkward_inputs"
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [name for name in JOBS if any(part in name for part in given.only)]
    chosen += [job.against for job in map(JOBS.get, chosen) if job and job.against and job.against not in chosen]
    found: dict[str, dict[str, Any]] = {}
    failed = 0
    try:
        for name in sorted(chosen, key=list(JOBS).index):
            job = JOBS[name]
            command = [sys.executable, __file__, str(folder), "--child", name, "--gigabytes", str(given.gigabytes)]
            answer, peak = run_watched(command)
            one = found[name] = answer | {"memory": (peak - answer["before"]) / answer["size"]}
            kind = "seconds" if job.clock else "cpu"
            said = f"{name:36} {one['seconds']:7.2f} s  cpu {one['cpu']:7.2f} s"
            said += f"  memory {(peak - one['before']) / 1e6:7.0f} MB = {one['memory']:5.1f} inputs"
            if job.against:
                one["ratio"] = one[kind] / found[job.against][kind]
                said += f"  {one['ratio']:5.2f} times {job.against!r}"
            over = (job.most_time or np.inf) < one.get("ratio", 0.0) or (job.most_memory or np.inf) < one["memory"]
            failed += over
            print(said + ("  TOO MUCH" if over else ""), flush=True)
    finally:
        if not given.keep:
            shutil.rmtree(folder)
    if given.json is not None:
        given.json.write_text(json.dumps({"date": str(date.today()), "runs": found}, indent=1) + "\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
