"""On one GPU: the same answers as NumPy, then the times, compared with what the device can do.

    PYTHONPATH=src python benchmarks/gpu.py                      everything, on cuda, at full size
    PYTHONPATH=src python benchmarks/gpu.py check                only the agreement with NumPy
    PYTHONPATH=src python benchmarks/gpu.py ceilings calls       only the times
    PYTHONPATH=src python benchmarks/gpu.py --device cpu --rows 2000 --features 50      to try the script

Needs torch; CuPy's arrays are checked too where CuPy is there. No network. The figures go into gpu.json in the folder
--out, by default $OUT. Times are medians of synchronised calls after a warm-up; ceilings are timed with CUDA events.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import statistics
import time
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import commit
from speed_page import gpu_section

from kernsift.api import compare, relate, screen
from kernsift.estimators import HSIC, MMD, SCREEN
from kernsift.exceptions import InputError
from kernsift.execution import fused
from kernsift.kernels.functions import KERNELS
from kernsift.options import Incomplete

HERE = Path(__file__).resolve().parent
CALLS = (
    "complete",
    "complete, k=None",
    "cross",
    "cross, k=None",
    "incomplete",
    "20 strata, k=None",
    "100 units, k=None",
)


def cupy_here() -> Any:
    """CuPy, where it is installed and finds a device."""
    with suppress(Exception):
        cupy = importlib.import_module("cupy")
        if cupy.cuda.runtime.getDeviceCount():
            return cupy
    return None


def wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def wall(call: Callable[[], object], device: str) -> float:
    """Seconds of one call, with everything that it started finished."""
    wait(device)
    start = time.perf_counter()
    call()
    wait(device)
    return time.perf_counter() - start


def on_device(call: Callable[[], object], device: str) -> float:
    """Median seconds of a call that only starts kernels, by CUDA events."""
    for _ in range(3):
        call()
    if not device.startswith("cuda"):
        return statistics.median(wall(call, device) for _ in range(3))
    pairs = [tuple(torch.cuda.Event(enable_timing=True) for _ in range(2)) for _ in range(20)]
    for first, last in pairs:
        first.record()
        call()
        last.record()
    torch.cuda.synchronize()
    return statistics.median(first.elapsed_time(last) for first, last in pairs) / 1e3


# --- the same answers as NumPy ----------------------------------------------------------------------------------------

TOLERANCE = {"float64": 1e-6, "float32": 1e-3}


def questions(rng: np.random.Generator, dtype: str, tied: bool) -> dict[str, tuple[Any, ...]]:
    """Fresh small data for each question; tied values where the kernel asks for equality."""

    scale = rng.uniform(0.5, 3.0, 12)

    def sample(n: int, shift: float = 0.0, columns: int = 12) -> np.ndarray:
        values = rng.normal(size=(n, columns)) * scale[:columns]
        values[:, :4] += shift
        return (np.round(values) if tied else values).astype(dtype)

    X, y = sample(240), rng.normal(size=240)
    y += X[:, 0] + np.abs(X[:, 1])
    # Two columns, so that whole rows are equal now and then where values are tied.
    candidates = {name: sample(90, 0.2 * number, 2) for number, name in enumerate("abcdefgh")}
    return {
        "compare": (sample(130), sample(110, 0.6)),
        "relate": (X, (np.round(y) if tied else y).astype(dtype)),
        "screen": (sample(100, 0.0, 2), candidates),
    }


def moved(data: Any, move: Callable[[np.ndarray], Any]) -> Any:
    return {name: move(part) for name, part in data.items()} if isinstance(data, Mapping) else move(data)


def combinations() -> Iterator[tuple[str, str, str, str]]:
    """Every question with every estimator and kernel; both bandwidths where the estimator can adapt."""
    for question, known in (("compare", MMD), ("relate", HSIC), ("screen", SCREEN)):
        for estimator in known:
            for kernel in KERNELS:
                yield question, estimator, kernel, "auto"
                if estimator in ("complete", "cross") and kernel == "gaussian":
                    yield question, estimator, kernel, "median"


def disagreement(here: np.ndarray, there: np.ndarray) -> float:
    """The largest difference, relative to the score, or to the scores' root mean square where one is close to 0."""
    size = np.maximum(np.abs(there), np.sqrt(np.mean(there**2)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.where(here == there, 0.0, np.abs(here - there) / size).max())


def designs() -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Rows of a sample, and what is exchangeable among them; many rows in few strata have an own way."""
    for n in (120, 2_400):
        rows = np.arange(n)
        units = {"unit": (rows % 12, 12 + rows % 12)}
        yield "strata", n, {"strata": (rows % 4, rows % 4)}
        yield "units", n, units
        yield "units, cross", n, units | {"estimator": "cross"}
        yield "units in strata", n, units | {"strata": (rows % 12 % 3, rows % 12 % 3)}
        yield "pairs", n, {"paired": (rows, rows)}


def check(library: str, move: Callable[[np.ndarray], Any], seed: int) -> list[dict[str, Any]]:
    """NumPy and the other library on the same data with the same seed."""
    ask = {"compare": compare, "relate": relate, "screen": screen}
    rows = []
    for dtype, tolerance in TOLERANCE.items():
        for number, (question, estimator, kernel, bandwidth) in enumerate(combinations()):
            rng = np.random.default_rng([seed, number])
            data = questions(rng, dtype, tied=kernel == "delta")[question]
            options = {"estimator": estimator, "kernel": kernel, "bandwidth": bandwidth, "random_state": number}
            name = f"{library} {dtype} {question} {estimator} {kernel} {bandwidth}"
            rows.append(agreement(name, ask[question], data, move, tolerance, options))
        for design, n, options in designs():
            rng = np.random.default_rng([seed, n])
            data = (rng.normal(size=(n, 12)).astype(dtype), (rng.normal(size=(n, 12)) * 1.2).astype(dtype))
            name = f"{library} {dtype} compare {design} {n} rows"
            rows.append(agreement(name, compare, data, move, tolerance, options | {"random_state": 0}))
    return [row for row in rows if row is not None]


def agreement(
    name: str,
    ask: Callable[..., Any],
    data: tuple[Any, ...],
    move: Callable[[np.ndarray], Any],
    tolerance: float,
    options: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Whether scores agree and the same features are selected; None for a combination that does not exist.

    Scores that tie at the cut, as those of columns without equal values under the kernel of equality, are selected by
    their rounding errors.
    """
    try:
        there = ask(*data, k=4, **options)
    except InputError:
        return None
    try:
        here = ask(*(moved(part, move) for part in data), k=4, **options)
    except Exception as problem:  # any failure is a finding, and the others still count
        return {"name": name, "agrees": False, "why": f"{type(problem).__name__}: {problem}"}
    off = disagreement(np.asarray(here.scores), there.scores)
    ordered = np.sort(there.scores)[::-1]
    gap = float(ordered[3] - ordered[4])
    tied = bool(gap <= 4 * np.finfo(float).eps * np.abs(ordered).max())
    same = tied or set(here.selected.tolist()) == set(there.selected.tolist())
    why = f"scores differ by {off:.1e}" + (
        "" if same else f", other features selected; the gap at the cut is {gap:.1e}"
    )
    finite = off if np.isfinite(off) else None
    return {"name": name, "agrees": bool(off <= tolerance) and same, "why": why, "difference": finite}


def check_all(device: str, seed: int) -> list[dict[str, Any]]:
    fused._DEVICE_WORTH = 0  # the compiled draws too, which are for more of them
    rows = check("torch", lambda values: torch.as_tensor(values, device=device), seed)
    cupy = cupy_here() if device.startswith("cuda") else None
    if cupy is None:
        print("CuPy is not here, or has no device: its arrays are not checked.")
    else:
        rows += check("cupy", cupy.asarray, seed)
    for library in ("torch", "cupy"):
        for dtype in TOLERANCE:
            own = [row for row in rows if row["name"].startswith(f"{library} {dtype}")]
            if own:
                worst = max(own, key=lambda row: np.inf if row.get("difference") is None else row["difference"])
                agree = sum(row["agrees"] for row in own)
                print(f"{library} {dtype}: {agree} of {len(own)} agree; largest: {worst['name']}: {worst['why']}")
    for row in rows:
        if not row["agrees"]:
            print(f"DISAGREES: {row['name']}: {row['why']}")
    return rows


# --- what the device can do -------------------------------------------------------------------------------------------


def ceilings(device: str) -> list[dict[str, Any]]:
    """Copy, gather, exp, sorts and matrix products, on random numbers and at sizes that no cache holds."""
    big = device.startswith("cuda")
    amounts = [
        *_moving(device, 2**29 if big else 2**22, 30_000 if big else 500),
        *_products(device, 8192 if big else 512),
    ]
    found = [{"name": name, "rate": amount / seconds, "unit": unit} for name, amount, seconds, unit in amounts]
    if big:
        rate = chained_exp(device)
        if rate is None:
            print("exp in registers: CuPy could not build the kernel; left out.")
        else:
            found.append({"name": "exp float32, in registers", "rate": rate, "unit": "Gexp/s"})
    for row in found:
        print(f"{row['name']:<32} {row['rate']:>10.3g} {row['unit']}", flush=True)
    return found


Amount = tuple[str, float, float, str]


def _moving(device: str, length: int, width: int) -> Iterator[Amount]:
    """What memory is the limit of: name, amount, seconds, unit."""
    values = torch.rand(length, device=device)
    out = torch.empty_like(values)
    yield "copy, read + written", 8e-12 * length, on_device(lambda: out.copy_(values), device), "TB/s"
    yield "exp float32, from memory", 1e-9 * length, on_device(lambda: torch.exp(values, out=out), device), "Gexp/s"
    height = length // width
    table, target = (flat[: height * width].view(height, width) for flat in (values, out))
    rows = torch.randint(height, (height,), device=device)
    gather = on_device(lambda: torch.index_select(table, 0, rows, out=target), device)
    yield "rows gathered, read + written", 8e-12 * height * width, gather, "TB/s"
    columns = values[: length // 8].view(64, -1)
    yield "columns sorted", 1e-9 * columns.numel(), on_device(lambda: torch.sort(columns, dim=1), device), "Gvalues/s"


def _products(device: str, side: int) -> Iterator[Amount]:
    """What matrix units are the limit of."""
    a, b = (torch.rand((side, side), device=device) for _ in range(2))
    before = torch.get_float32_matmul_precision()
    for name, precision in (("float32", "highest"), ("TF32", "high")):
        if name == "float32" or device.startswith("cuda"):
            torch.set_float32_matmul_precision(precision)
            yield f"matrix product {name}", 2e-12 * side**3, on_device(lambda: a @ b, device), "TFLOP/s"
    torch.set_float32_matmul_precision(before)


def chained_exp(device: str, chain: int = 64, length: int = 2**26) -> float | None:
    """exp a nanosecond where each value read goes through many, so that arithmetic is the limit and memory is not."""
    with suppress(Exception):
        cupy = importlib.import_module("cupy")
        code = f"float v = x; for (int i = 0; i < {chain}; ++i) v = expf(-v); y = v;"
        kernel = cupy.ElementwiseKernel("float32 x", "float32 y", code, "chained_exp")
        given, out = cupy.from_dlpack(torch.rand(length, device=device)), cupy.empty(length, dtype="float32")
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            return 1e-9 * chain * length / on_device(lambda: kernel(given, out), device)
    return None


# --- the calls --------------------------------------------------------------------------------------------------------


def limits(name: str, rows: int, features: int, r: int, rates: Mapping[str, float]) -> list[tuple[str, float]]:
    """Seconds that a call needs at least, by what it cannot do without: each input read once, and each exp."""
    found = []
    if "copy, read + written" in rates:
        found.append(("input read once", 4e-12 * rows * features / rates["copy, read + written"]))
    if name.startswith("incomplete"):
        draws = r * (rows // 2)
        if "rows gathered, read + written" in rates:
            found.append(("4 values a draw read", 16e-12 * draws * features / rates["rows gathered, read + written"]))
        for kind in ("exp float32, from memory", "exp float32, in registers"):
            if kind in rates:
                found.append((kind.replace("float32, ", ""), 4e-9 * draws * features / rates[kind]))
    return found


def calls(options: argparse.Namespace, rates: Mapping[str, float]) -> list[dict[str, Any]]:
    device, n, d = options.device, options.rows, options.features
    make = torch.Generator(device=device).manual_seed(options.seed % 2**31)
    X, Y = (torch.randn((n // 2, d), device=device, dtype=torch.float32, generator=make) for _ in range(2))
    if options.data == "counts":  # a table of expression: small counts, most of them 0, on a logarithmic scale
        for part in (X, Y):
            part.sub_(0.5).exp_().floor_().log1p_()
    Y[:, : max(1, d // 600)] += 0.1
    full = (n, d) == (100_000, 30_000)
    rng = np.random.default_rng(options.seed)
    strata = tuple(rng.integers(0, 20, n // 2) for _ in range(2))
    units = tuple(first + np.arange(n // 2) % 50 for first in (0, 50))
    listed = {"k": min(options.kept, d)}
    todo = {
        "complete": (listed, 0.6),
        "complete, k=None": ({}, 0.6),
        "cross": ({"estimator": "cross", **listed}, 1.0),
        "cross, k=None": ({"estimator": "cross"}, 1.0),
        "incomplete": ({"estimator": Incomplete(r=options.r), **listed}, 1.0 if options.r == 10 else None),
        "20 strata, k=None": ({"strata": strata}, None),
        "100 units, k=None": ({"unit": units}, None),
    }
    found: dict[str, dict[str, Any]] = {}
    for name in options.calls:
        settings, most = todo[name]
        if {"strata", "unit"} & set(settings) and "complete, k=None" in found:
            most = 1.5 * found["complete, k=None"]["seconds"]  # of the plain call
        found[name] = timed_call(name, X, Y, settings, most if full else None, options, rates)
    return list(found.values())


def timed_call(
    name: str,
    X: Any,
    Y: Any,
    settings: dict[str, Any],
    most: float | None,
    options: argparse.Namespace,
    rates: Mapping[str, float],
) -> dict[str, Any]:
    device, n, d = options.device, options.rows, options.features
    on_gpu = device.startswith("cuda")

    def call() -> object:
        return compare(X, Y, random_state=0, **settings)

    first = wall(call, device)
    before = torch.cuda.memory_allocated() if on_gpu else 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    times = [wall(call, device) for _ in range(1 if first > 10 else options.repeats)]
    peak = (torch.cuda.max_memory_allocated() - before) / 1e9 if on_gpu else None
    seconds = statistics.median(times)
    least = limits(name, n, d, options.r, rates)
    return {
        "name": f"compare {name}, n={n:,} d={d:,} float32 {options.data}",
        "seconds": seconds,
        "times": times,
        "first": first,
        "most": most,
        "peak_gb": peak,
        "limits": [{"name": limit, "seconds": took, "share": took / seconds} for limit, took in least],
    }


# --- all of it --------------------------------------------------------------------------------------------------------


def machine(device: str) -> dict[str, Any]:
    found = {
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else "CPU",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
    }
    cupy = cupy_here() if device.startswith("cuda") else None
    return found | ({"cupy": cupy.__version__} if cupy else {})


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ("check", "ceilings", "calls")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(known)}; all by default")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=100_000, help="of both samples together")
    parser.add_argument("--features", type=int, default=30_000)
    parser.add_argument("--kept", type=int, default=100)
    parser.add_argument("--r", type=int, default=10, help="draws a row of the incomplete estimator")
    parser.add_argument("--calls", nargs="+", default=CALLS, choices=CALLS)
    parser.add_argument("--data", default="normal", choices=["normal", "counts"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=None, help="of the checks' data; fresh by default")
    parser.add_argument(
        "--out", type=Path, default=os.environ.get("OUT"), help="folder for gpu.json, such as docs/speed"
    )
    options = parser.parse_args(given)
    unknown = set(options.parts) - set(known)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device here; --device cpu --rows 2000 --features 50 tries the script")
    options.parts = options.parts or list(known)
    if options.seed is None:
        options.seed = int(np.random.SeedSequence().generate_state(1)[0])
    return options


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    options = arguments(given)
    print(f"seed of the checks: {options.seed}", flush=True)
    run: dict[str, Any] = {
        "date": date.today().isoformat(),
        "version": tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"],
        "commit": commit(HERE),
        "machine": machine(options.device),
        "checks": check_all(options.device, options.seed) if "check" in options.parts else [],
        "ceilings": ceilings(options.device) if "ceilings" in options.parts else [],
    }
    rates = {row["name"]: row["rate"] for row in run["ceilings"]}
    run["calls"] = calls(options, rates) if "calls" in options.parts else []
    print("\n" + gpu_section(run))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "gpu.json").write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    return run


if __name__ == "__main__":
    warnings.simplefilter("default")
    main()
