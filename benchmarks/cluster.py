"""Two Dask workers compared with two threads: what the cluster costs on data in memory, and where that goes.

    python benchmarks/cluster.py [--rows 20000] [--columns 1000] [--rounds 5] [--json FILE]

Both ways take turns, so that whatever else runs on the machine hits both. A round is one call of each; the ratio is
that of the medians. The workers are started beforehand and called once, so that their imports do not count.

Workers on the machine of the caller are sent no arrays. The rows with "sent" allow the caller one thread, so that the
workers get them all the same: what sending costs workers elsewhere, apart from their network.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from distributed import Client, LocalCluster, get_task_stream

from kernsift import Incomplete, Result, compare

SETTINGS: dict[str, dict[str, Any]] = {
    "complete": {},
    "cross": {"estimator": "cross"},
    "incomplete, r=10": {"estimator": Incomplete(r=10)},
    "incomplete, r=1": {"estimator": Incomplete(r=1)},
}


def samples(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(rows, columns)), rng.normal(size=(rows, columns))
    Y[:, ::50] += 0.1
    return X, Y


def timed(call: Callable[[], Result], client: Client) -> tuple[np.ndarray, Result]:
    """Seconds by the clock, and of all processors: the latter say more where others use the machine too."""

    def now() -> np.ndarray:
        return np.array([time.perf_counter(), time.process_time() + sum(client.run(time.process_time).values())])

    start = now()
    result = call()
    return now() - start, result


def against_memory(
    X: np.ndarray, Y: np.ndarray, client: Client, rounds: int, given: dict[str, Any], jobs: int
) -> dict[str, Any]:
    """Seconds of both ways, and whether they agree; with the client the caller may use `jobs` threads."""
    memory, cluster, apart = [], [], 0.0
    stages: Counter[str] = Counter()
    for _ in range(rounds):
        seconds, one = timed(lambda: compare(X, Y, random_state=1, n_jobs=2, **given), client)
        memory.append(seconds)
        with get_task_stream(client) as stream:
            seconds, two = timed(lambda: compare(X, Y, random_state=1, n_jobs=jobs, client=client, **given), client)
        cluster.append(seconds)
        for task in stream.data:
            for part in task["startstops"]:
                stages[part["action"]] += (part["stop"] - part["start"]) / rounds
        assert one.names == two.names
        apart = max(apart, float(np.abs(one.log_pvalues - two.log_pvalues).max()))
    (memory_s, memory_cpu), (cluster_s, cluster_cpu) = np.median(memory, axis=0), np.median(cluster, axis=0)
    return {
        "memory_s": float(memory_s),
        "cluster_s": float(cluster_s),
        "ratio": float(cluster_s / memory_s),
        "ratios": [round(float(b[0] / a[0]), 2) for a, b in zip(memory, cluster, strict=True)],
        "memory_cpu_s": float(memory_cpu),
        "cluster_cpu_s": float(cluster_cpu),
        "cpu_ratio": float(cluster_cpu / memory_cpu),
        "on_workers_s": {name: round(value, 2) for name, value in stages.items()},
        "log_p_apart": apart,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000, help="of each sample")
    parser.add_argument("--columns", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    asked = parser.parse_args()
    X, Y = samples(asked.rows, asked.columns)
    found: dict[str, Any] = {
        "rows": asked.rows,
        "columns": asked.columns,
        "load_before": os.getloadavg()[0],
        "cores": os.cpu_count(),
    }
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for given in SETTINGS.values():
            compare(X[:200, :20], Y[:200, :20], client=client, **given)
        jobs = dict.fromkeys(SETTINGS, 2) | {f"{name}, sent": 1 for name in ("complete", "cross")}
        for name, allowed in jobs.items():
            row = found[name] = against_memory(
                X, Y, client, asked.rounds, SETTINGS[name.removesuffix(", sent")], allowed
            )
            print(
                f"{name:18s} memory {row['memory_s']:6.2f} s, 2 workers {row['cluster_s']:6.2f} s, ratio "
                f"{row['ratio']:.2f} {row['ratios']}; processors {row['memory_cpu_s']:.2f} s and "
                f"{row['cluster_cpu_s']:.2f} s, ratio {row['cpu_ratio']:.2f}; on the workers {row['on_workers_s']}",
                flush=True,
            )
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
