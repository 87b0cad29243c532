"""How fast: the calls people make, timed on this machine, with memory, as a table and as JSON.

    python benchmarks/bench.py [--repeats 7] [--json FILE]

Times are medians of repeated calls after one warm-up. Memory is what one call adds to the peak resident set of a fresh
process. Ratios to a SciPy loop over the same features are measured in the same run, because machines differ and are
noisy. The authors' times are those of their published code for one call at n = 1000, d = 50, k = 30.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import kernsift
from kernsift import compare, relate

ROWS, FEATURES, KEPT = 1000, 50, 30


def two_samples(n: int = ROWS, d: int = FEATURES) -> tuple[np.ndarray, np.ndarray]:
    """The paper's mean shift: the first ten of d features differ by half a standard deviation."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(n, d)), rng.normal(size=(n, d))
    Y[:, :10] += 0.5
    return X, Y


def logistic(n: int = ROWS, d: int = FEATURES) -> tuple[np.ndarray, np.ndarray]:
    """The paper's logistic problem: the response depends on the sum of the first ten features."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    return X, (rng.random(n) < 1 / (1 + np.exp(-X[:, :10].sum(axis=1)))).astype(int)


def ks_loop() -> object:
    """What one would write without this library: a Kolmogorov-Smirnov test per feature."""
    from scipy.stats import ks_2samp

    X, y = logistic(500)
    return [ks_2samp(column[y == 0], column[y == 1]).pvalue for column in X.T]


def call(
    question: Callable[..., object], data: tuple[np.ndarray, np.ndarray], **options: object
) -> Callable[[], object]:
    return lambda: question(*data, k=KEPT, random_state=0, **options)


CASES: dict[str, tuple[Callable[[], object], float | None, float | None]] = {
    # name: (call, seconds to stay below, seconds of the authors' code)
    "compare incomplete + multiscale": (
        call(compare, two_samples(), estimator="incomplete", test="multiscale"),
        0.100,
        115.0,
    ),
    "compare incomplete + exact": (call(compare, two_samples(), estimator="incomplete"), 0.010, None),
    "compare incomplete + polyhedral": (
        call(compare, two_samples(), estimator="incomplete", test="polyhedral"),
        None,
        4.0,
    ),
    "relate incomplete + multiscale": (
        call(relate, logistic(), estimator="incomplete", test="multiscale"),
        0.120,
        174.0,
    ),
    "relate incomplete + polyhedral": (call(relate, logistic(), estimator="incomplete", test="polyhedral"), None, 54.0),
    "relate incomplete + exact": (call(relate, logistic(), estimator="incomplete"), None, None),
    "compare complete + exact": (call(compare, two_samples()), None, None),
    "relate complete + exact, n=500": (call(relate, logistic(500)), None, None),
    "relate complete + exact, median, n=500": (call(relate, logistic(500), bandwidth="median"), None, None),
    "scipy ks_2samp loop, n=500": (ks_loop, None, None),
}


def seconds(function: Callable[[], object], repeats: int) -> float:
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def peak_of(name: str) -> float:
    """Megabytes one call adds to the peak of a fresh process."""
    child = subprocess.run([sys.executable, __file__, "--memory", name], capture_output=True, text=True, check=True)
    return float(child.stdout)


def report_memory(name: str) -> None:
    before = peak_memory()
    CASES[name][0]()
    print(peak_memory() - before)


def peak_memory() -> float:
    """Peak resident set of this process in megabytes; the kernel's own count, as getrusage inherits the parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--memory", choices=list(CASES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        report_memory(options.memory)
        return
    rows = []
    print(f"n={ROWS}, d={FEATURES}, k={KEPT} unless said otherwise; kernsift {kernsift.__version__}")
    print(f"{'call':<42} {'ms':>9} {'to reach':>9} {'authors / ours':>15} {'MB':>6}")
    for name, (function, target, theirs) in CASES.items():
        took = seconds(function, options.repeats)
        memory = peak_of(name)
        rows.append({"call": name, "seconds": took, "target": target, "authors": theirs, "peak_mb": memory})
        goal = "" if target is None else f"{1000 * target:.0f}{'' if took <= target else ' MISSED'}"
        ratio = "" if theirs is None else f"{theirs / took:,.0f}x"
        print(f"{name:<42} {1000 * took:>9.1f} {goal:>9} {ratio:>15} {memory:>6.0f}")
    if options.json:
        machine = {"python": platform.python_version(), "numpy": np.__version__, "processor": platform.machine()}
        options.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
