"""The calls that are timed, each as plain data, so that a fresh process can be told to make the same one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from unittest.mock import patch

import numpy as np
from measure import Call, clock, peak_memory, reset_peak_memory, yardstick

from kernsift import compare, relate
from kernsift.data.inputs import as_pair, as_xy
from kernsift.data.tables import stack
from kernsift.estimators import incomplete_hsic, incomplete_mmd
from kernsift.execution import fused, threads
from kernsift.kernels.fitted import fit_kernels


@dataclass(frozen=True)
class Case:
    """One call."""

    # "compare" or "relate"; "mmd" and "hsic" are the incomplete scores alone, of tables with fitted kernels.
    question: str
    rows: int  # rows of each of two samples, or of the one table
    # Columns, and how many of them are selected; None for no selection.
    features: int
    kept: int | None = 30
    options: Mapping[str, Any] = field(default_factory=dict)  # what else the call is given
    dtype: str = "float64"  # of the data
    response: str = "class"  # "class" or "number"

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        if self.question in ("compare", "mmd"):
            return two_samples(self.rows, self.features, self.dtype)
        return logistic(self.rows, self.features, self.dtype, self.response)

    def prepare(self, data: tuple[np.ndarray, np.ndarray] | None = None) -> Call:
        """The call to be timed, after everything that is not timed."""
        one, two = self.data() if data is None else data
        if self.question in ("mmd", "hsic"):
            return _scores(self.question, one, two)
        ask = compare if self.question == "compare" else relate
        return lambda: ask(one, two, k=self.kept, random_state=0, **self.options)


def two_samples(n: int, d: int, dtype: str = "float64") -> tuple[np.ndarray, np.ndarray]:
    """The paper's mean shift: the first ten of d features differ by half a standard deviation."""
    rng = np.random.default_rng(0)
    X, Y = (rng.standard_normal((n, d), dtype=np.dtype(dtype)) for _ in range(2))
    Y[:, :10] += 0.5
    return X, Y


def logistic(n: int, d: int, dtype: str = "float64", response: str = "class") -> tuple[np.ndarray, np.ndarray]:
    """The paper's logistic problem: the response depends on the sum of the first ten features."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.dtype(dtype))
    total = X[:, :10].sum(axis=1)
    if response == "number":
        return X, (total + rng.standard_normal(n)).astype(dtype)
    return X, (rng.random(n) < 1 / (1 + np.exp(-total))).astype(int)


def _scores(question: str, one: np.ndarray, two: np.ndarray) -> Call:
    """The incomplete scores on all cores."""
    rng = np.random.default_rng(0)
    first, second = as_pair(one, two) if question == "mmd" else as_xy(one, two)
    kernels = fit_kernels(stack([first, second]) if question == "mmd" else first, rng=rng)
    own = None if question == "mmd" else fit_kernels(second, rng=rng)

    def call() -> object:
        with threads.thread_limit(-1):
            if own is None:
                return incomplete_mmd(first, second, kernels, rng=np.random.default_rng(0))
            return incomplete_hsic(first, second, kernels, own, rng=np.random.default_rng(0))

    return call


def without_numba() -> AbstractContextManager[Any]:
    """A context in which NumPy computes everything, as where numba, the extra 'fast', is not installed."""
    return patch.object(fused, "_for_host", lambda: None)


# --- in a fresh process -----------------------------------------------------------------------------------------------


def one_call(case: Case) -> dict[str, Any]:
    """Seconds, and megabytes at the peak beyond what the process held with the input loaded."""
    # Load what is loaded on first use.
    replace(case, rows=50, features=max(12, case.kept or 0), dtype="float64").prepare()()
    data = case.data()
    call = case.prepare(data)
    yardstick()
    unit = clock(yardstick)
    before = reset_peak_memory()
    seconds = clock(call)
    beyond = peak_memory() - before
    return {
        "seconds": seconds,
        "yardstick": (unit + clock(yardstick)) / 2,
        "input_mb": sum(array.nbytes for array in data) / 1e6,
        "beyond_mb": beyond,
    }


def growing(case: Case, axis: str, sizes: list[int], patience: float) -> dict[str, Any]:
    """Seconds at each size of one axis, smallest first; sizes that would take longer than `patience` are left out.

    Data is made once, at the largest size, and the smaller calls get a part of it.
    """
    largest = replace(case, **{axis: sizes[-1]})
    data = largest.data()
    seconds: list[float] = []
    beyond = 0.0
    for number, size in enumerate(sizes):
        if number and seconds[-1] * size / sizes[number - 1] > patience:
            break
        part = data if size == sizes[-1] else _part(data, axis, size)
        call = replace(case, **{axis: size}).prepare(part)
        if number == 0:
            call()
        before = reset_peak_memory()
        seconds.append(_median_seconds(call))
        beyond = peak_memory() - before
    return {"seconds": seconds, "beyond_mb": beyond}


def _part(data: tuple[np.ndarray, np.ndarray], axis: str, size: int) -> tuple[np.ndarray, np.ndarray]:
    if axis == "rows":
        return data[0][:size].copy(), data[1][:size].copy()
    return data[0][:, :size].copy(), data[1][:, :size].copy() if data[1].ndim > 1 else data[1]


def _median_seconds(call: Call) -> float:
    """The median of at most seven calls that fit into two seconds, at least one."""
    times: list[float] = []
    start = time.perf_counter()
    while not times or (len(times) < 7 and time.perf_counter() - start + times[-1] < 2.0):
        times.append(clock(call))
    return float(np.median(times))


def child(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run a task of the parent process."""
    case = Case(**task["case"])
    if task["kind"] == "growth":
        return growing(case, task["axis"], task["sizes"], task["patience"])
    with nullcontext() if task.get("compiled", True) else without_numba():
        return one_call(case)


def task_of(case: Case, kind: str = "call", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "case": asdict(case), **more}


Runner = Callable[[Mapping[str, Any]], dict[str, Any]]
