"""The parts of the speed table: each measures its rows, and says why where one cannot be measured here."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import peers
from measure import YARDSTICK, Call, Times, exp_in_cache, exp_in_memory, on_cores, slope, take_turns, wall_time
from multiscale_error import REPLICATES, scatter
from speed_cases import Case, Runner, task_of, without_numba
from speed_rows import LeftOut, Row

from kernsift.execution import threads
from kernsift.inference.selection_rules import TopK

Figures = Iterator[Row | LeftOut]


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    run: Runner  # makes a fresh process do a task
    budget: float = 6.0  # seconds for calls that take turns
    seeds: int = 100  # repetitions behind the scatter of p-values
    patience: float = 300.0  # seconds that one call of the growth part may take
    shrink: float = 1.0  # sizes are divided by this; for trying the script

    def size(self, number: int, least: int = 40) -> int:
        return number if self.shrink == 1 else max(least, math.ceil(number / self.shrink))

    def peak(self, case: Case) -> float:
        return float(self.run(task_of(case))["beyond_mb"])


def _row(title: str, name: str, times: Times, baseline: str | None = None, **more: Any) -> Row:
    """The row of a call that took turns, compared with another one that did."""
    if baseline is not None:
        more = {"against": baseline, "other": times.median(baseline), "ratio": times.ratio(name, baseline), **more}
    return Row(title, name, times.median(name), yardsticks=times.ratio(name, YARDSTICK), **more)


# --- the scores alone -------------------------------------------------------------------------------------------------


def scores(plan: Plan) -> Figures:
    """Incomplete scores against nothing but the exp they need, both on all cores."""
    n, d = plan.size(10_000), plan.size(1_000)
    jobs = threads.jobs_of(-1)
    cases = {"incomplete MMD": (Case("mmd", n, d), 4), "incomplete HSIC": (Case("hsic", n, d), 6)}
    calls: dict[str, Call] = {}
    for name, (case, count) in cases.items():
        calls[name] = case.prepare()
        calls[f"{name}, NumPy alone"] = _by_numpy(case.prepare())
        calls[f"{name} exp, cached"] = exp_in_cache(count * n * d, jobs)
        calls[f"{name} exp, memory"] = exp_in_memory(n, d, count, jobs)
    times = take_turns(calls, budget=plan.budget)
    title = f"scores: n={n:,} d={d:,} r=1, {jobs} threads"
    for name, (case, count) in cases.items():
        peak = plan.peak(case)
        for kind, words in (("cached", "exp in cache"), ("memory", "exp on arrays")):
            other = f"{name} exp, {kind}"
            note = f"{count} exp a draw and feature, " + (
                "on blocks that stay in cache" if kind == "cached" else f"np.exp(a, out=b) on {n:,} x {d:,} arrays"
            )
            yield _row(title, name, times, other, against=words, most_ratio=1.5, peak_mb=peak, note=note)
        note = "where numba, the extra 'fast', is not installed"
        yield _row(title, f"{name}, NumPy alone", times, f"{name} exp, cached", against="exp in cache", note=note)


def _by_numpy(call: Call) -> Call:
    def plain() -> object:
        with without_numba():
            return call()

    return plain


# --- the calls of the paper -------------------------------------------------------------------------------------------

_INCOMPLETE = {"estimator": "incomplete"}


def calls(plan: Plan) -> Figures:
    """The paper's problem in one call; the authors' times are those of their published code."""
    n, d, k = plan.size(1_000), plan.size(50, 12), plan.size(30, 6)
    rows: list[tuple[str, dict[str, Any], float | None, float | None]] = [
        # question and options, seconds to reach, seconds of the authors' code
        ("compare", {**_INCOMPLETE, "test": "multiscale"}, 0.040, 115.0),
        ("compare", _INCOMPLETE, 0.005, None),
        ("compare", {**_INCOMPLETE, "test": "polyhedral"}, None, 4.0),
        ("relate", {**_INCOMPLETE, "test": "multiscale"}, 0.120, 174.0),
        ("relate", _INCOMPLETE, None, None),
        ("relate", {**_INCOMPLETE, "test": "polyhedral"}, None, 54.0),
        ("compare", {}, None, None),
        ("compare", {"estimator": "cross"}, None, None),
        ("relate", {}, None, None),
        ("relate", {"estimator": "cross"}, None, None),
    ]
    cases = {_name(question, options): Case(question, n, d, k, options) for question, options, _, _ in rows}
    times = take_turns({name: case.prepare() for name, case in cases.items()}, budget=2 * plan.budget)
    title = f"calls: n={n:,} d={d} k={k}"
    for question, options, most, authors in rows:
        name = _name(question, options)
        compared: dict[str, Any] = {}
        if authors is not None:
            compared = {"against": "authors' code", "other": authors, "ratio": times.median(name) / authors}
            compared["note"] = "the authors' time was measured on another machine"
        yield _row(title, name, times, most_value=most, peak_mb=plan.peak(cases[name]), **compared)


def _name(question: str, options: Mapping[str, Any]) -> str:
    return f"{question} {options.get('estimator', 'complete')} + {options.get('test', 'exact')}"


def error(plan: Plan) -> Figures:
    """The Monte Carlo error of multiscale p-values against that of the authors' procedure, on the same scores."""
    n, d, k = plan.size(1_000), plan.size(50, 12), plan.size(30, 6)
    replicates = plan.size(REPLICATES, 200)
    waist = Case("mmd", n, d).prepare()()
    found = scatter(waist, TopK(k), plan.seeds, replicates)  # type: ignore[arg-type]
    title = f"scatter of multiscale p-values over {plan.seeds} seeds, same scores; authors' B={replicates:,}"
    against = "the authors'"
    for name, below in (("sd of p, all selected", 1.0), ("sd of p, where p < 0.1", 0.1), ("sd of p, p < 0.01", 0.01)):
        ours, theirs = found.overall(below)
        if ours != ours:
            yield LeftOut(title, name, "no feature has such a p-value here")
            continue
        yield Row(title, name, ours, "", against, theirs, ours / theirs, most_ratio=1.0, note="root mean square")
    note = f"the largest of {k} ratios, each known to {100 / np.sqrt(plan.seeds):.0f}%"
    yield Row(title, "worst feature", float("nan"), "", against, ratio=found.worst(), note=note)
    yield Row(title, "means of p apart by", found.apart(), "", note="both have to estimate the same thing")


# --- other packages ---------------------------------------------------------------------------------------------------

_PACKAGES = {"hyppo": "hyppo", "knockoffs": "knockpy"}
_SLOW = ("hyppo", "knockoffs", "mutual")
_GOALS = {"KS + BH": 1.0, "hyppo Hsic + BH": 1 / 150}
# What the table calls those whose full names are long.
_CALLED = {
    "KS + BH": "scipy ks_2samp",
    "f_classif + BH": "f_classif",
    "mutual information, top 10": "mutual_info",
    "hyppo Dcorr + BH": "hyppo Dcorr",
    "hyppo Hsic + BH": "hyppo Hsic",
    "knockoffs, q=0.1": "knockpy",
}


def others(plan: Plan) -> Figures:
    """`relate` against what else answers the question, on the same table."""
    n, d, k = plan.size(500), plan.size(50, 12), plan.size(30, 6)
    case = Case("relate", n, d, k)
    name = _name("relate", {})
    title = f"other packages: n={n} d={d} k={k}"
    x, labels = case.data()
    todo: dict[str, Call] = {name: case.prepare((x, labels))}
    for peer in peers.PEERS:
        if peer.name == "knockoffs, q=0.05":
            continue  # the same work as q=0.1
        missing = _missing(peer.name)
        if missing:
            yield LeftOut(title, peer.name, missing)
        else:
            todo[peer.name] = partial(peer.choose, x, labels, 0)
    slow = [peer for peer in todo if peer.startswith(_SLOW)]
    times = take_turns(todo, budget=plan.budget, slow=slow)
    peak = plan.peak(case)
    yield _row(title, name, times, most_value=0.004, peak_mb=peak)
    after = Times(times.first).median(name)
    yield Row(
        title, f"{name}, first of a turn", after, note="after calls of other packages, with their data in the caches"
    )
    for peer in todo:
        if peer != name:
            shown = {"against": _CALLED.get(peer, peer), "most_ratio": _GOALS.get(peer), "peak_mb": peak}
            yield _row(title, name, times, peer, **shown)


def _missing(peer: str) -> str:
    """Why a package cannot be asked; empty where it can."""
    package = next((package for start, package in _PACKAGES.items() if peer.startswith(start)), None)
    if package is None:
        return ""
    try:
        importlib.import_module(package)
    except ImportError as problem:
        return f"{package} could not be imported ({problem}); pip install 'kernsift[bench]'"
    return ""


# --- precision and threads --------------------------------------------------------------------------------------------


def _middle(plan: Plan) -> list[Case]:
    """Calls that are long enough for precision and threads to show."""
    n, d, k = plan.size(5_000), plan.size(400, 12), plan.size(30, 6)
    return [
        Case("compare", n, d, k),
        Case("relate", n, d, k),
        Case("compare", n, d, k, {"estimator": "cross"}),
        Case("compare", n, d, k, _INCOMPLETE),
    ]


def precision(plan: Plan) -> Figures:
    """float32 input against the same call in float64."""
    cases = _middle(plan)
    title = f"float32: n={cases[0].rows:,} d={cases[0].features}"
    yield from _side_by_side(plan, title, "float64", [(case, replace(case, dtype="float32"), case) for case in cases])


def jobs(plan: Plan) -> Figures:
    """All threads against one."""
    cases = _middle(plan)
    title = f"threads, n_jobs=-1: n={cases[0].rows:,} d={cases[0].features}"

    def with_jobs(case: Case, count: int) -> Case:
        return replace(case, options={**case.options, "n_jobs": count})

    triples = [(case, with_jobs(case, -1), with_jobs(case, 1)) for case in cases]
    yield from _side_by_side(plan, title, "n_jobs=1", triples)
    few = Case("compare", plan.size(500_000), 20, None)
    title = f"threads, few columns, n_jobs=-1: n={2 * few.rows:,} d={few.features}"
    yield from _side_by_side(plan, title, "n_jobs=1", [(few, with_jobs(few, -1), with_jobs(few, 1))], most=0.59)


def _side_by_side(
    plan: Plan, title: str, against: str, triples: Sequence[tuple[Case, Case, Case]], most: float = 1.0
) -> Figures:
    """One way of making a call against another; no goal but that it is no slower, or takes at most that share."""
    for case, first, second in triples:
        name = _name(case.question, case.options)
        times = take_turns({name: first.prepare(), against: second.prepare()}, budget=plan.budget)
        yield _row(title, name, times, against, most_ratio=most, peak_mb=plan.peak(first))


# --- starting up ------------------------------------------------------------------------------------------------------

_HEAVY = ("torch", "dask", "matplotlib", "plotly")


def start(plan: Plan) -> Figures:
    """Whole processes, interpreter and all, against an interpreter that does nothing."""
    python = sys.executable
    commands = {
        "import kernsift": [python, "-c", "import kernsift"],
        "kernsift --help": [python, "-m", "kernsift", "--help"],
        "import of all functions": [python, "-c", "from kernsift import *"],
    }
    nothing = "python -c pass"
    todo = {name: wall_time(command) for name, command in commands.items()}
    times = take_turns({**todo, nothing: wall_time([python, "-c", "pass"])}, budget=plan.budget, most=11)
    for name in commands:
        most = None if name == "import of all functions" else 1.0
        yield _row("start", name, times, nothing, most_value=most, note="a whole process")
    seconds = [float(part) for part in _output(_FIRST).split()]
    note = "beyond the second call, with the import, in a fresh process; 500 x 50"
    yield Row("start", "first call", seconds[0] - seconds[1], most_value=1.0, note=note)
    for name in ("import kernsift", "import of all functions"):
        loaded = loaded_by(commands[name][-1])
        note = f"of {', '.join(_HEAVY)}: {', '.join(loaded) or 'none'}"
        yield Row("start", f"{name}: heavy packages", len(loaded), "", most_value=0.0, note=note)


def loaded_by(program: str) -> list[str]:
    """Which of the heavy packages a program loads."""
    code = f"import json, sys\n{program}\nprint(json.dumps([name for name in {_HEAVY!r} if name in sys.modules]))"
    return list(json.loads(_output(code).splitlines()[-1]))


_FIRST = """
import time
import numpy as np
X, Y = np.random.default_rng(0).normal(size=(2, 250, 50))
for _ in range(2):
    start = time.perf_counter()
    from kernsift import compare
    compare(X, Y, k=30, random_state=0)
    print(time.perf_counter() - start)
"""


def _output(program: str) -> str:
    """What a program prints in a fresh process."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


# --- size -------------------------------------------------------------------------------------------------------------


def large(plan: Plan) -> Figures:
    """Long and wide tables in a fresh process on two cores; n counts all rows: each of two samples has half of them."""
    for word, n, d, k, most in (("large", 100_000, 1_000, 50, 2.0), ("wide", 500, 100_000, 100, 6.0)):
        n, d, k = plan.size(n), plan.size(d, 12), plan.size(k, 6)
        compared = {
            "compare": Case("compare", n // 2, d, k),
            "compare, k=None": Case("compare", n // 2, d, None),
            "relate, class": Case("relate", n, d, k),
            "relate, number": Case("relate", n, d, k, response="number"),
        }
        with on_cores(2) as cores:
            took = {name: plan.run(task_of(case)) for name, case in compared.items()}
            plain = plan.run(task_of(compared["compare, k=None"], compiled=False))
        megabytes = took["compare"]["input_mb"]
        title = f"{word}: complete + exact, n={n:,} d={d:,} k={k}, {cores} cores, input {megabytes:,.0f} MB"
        for name, one in took.items():
            unit, peak = one["seconds"] / one["yardstick"], one["beyond_mb"]
            goal = 60.0 if name == "relate, number" else most
            yield Row(title, name, one["seconds"], most_value=goal, peak_mb=peak, yardsticks=unit)
            yield Row(title, f"{name}: memory", peak, "MB", most_value=2000.0, note="beyond the input")
        with_numba = took["compare, k=None"]["seconds"]
        note = "where numba, the extra 'fast', is not installed"
        ratio = plain["seconds"] / with_numba
        name = "compare, k=None, NumPy alone"
        yield Row(title, name, plain["seconds"], "s", "with numba", with_numba, ratio, most_ratio=2.0, note=note)


def growth(plan: Plan) -> Figures:
    """The exponent of time in rows and in columns: end to end, and by least squares without the smallest size."""
    rows = [plan.size(size // 2, 40 * 2**place) for place, size in enumerate((10**3, 10**4, 10**5, 10**6))]
    columns = [plan.size(size, 12 * 2**place) for place, size in enumerate((50, 1_000, 10_000, 100_000))]
    axes = (
        ("rows", "n", rows, 2, Case("compare", rows[0], plan.size(50, 12), plan.size(30, 6))),
        ("features", "d", columns, 1, Case("compare", plan.size(250), columns[0], None)),
    )
    for axis, letter, sizes, times, base in axes:
        fixed = f"d={base.features}" if axis == "rows" else f"n={2 * base.rows:,}"
        kept = f"k={base.kept}"
        reach = f"{letter}={times * sizes[0]:,} to {times * sizes[-1]:,}"
        title = f"growth in {letter}: compare + exact, {reach}, {fixed} {kept}"
        for estimator in ("complete", "cross", "incomplete"):
            case = replace(base, options={"estimator": estimator})
            found = plan.run(task_of(case, "growth", axis=axis, sizes=sizes, patience=plan.patience))
            most = 1.05 if axis == "features" and estimator == "complete" else 1.1
            yield from _exponents(title, estimator, [times * size for size in sizes], found, most)


def _exponents(
    title: str, estimator: str, sizes: Sequence[int], found: Mapping[str, Any], goal: float = 1.1
) -> Figures:
    seconds = found["seconds"]
    reached = sizes[: len(seconds)]
    whole = len(reached) == len(sizes)
    at = ", ".join(f"{size:,}: {took:.3g} s" for size, took in zip(reached, seconds, strict=True))
    if len(reached) < 3:
        yield LeftOut(title, estimator, f"one call takes too long ({at})")
        return
    if not whole:
        yield LeftOut(title, f"{estimator} beyond {reached[-1]:,}", f"one call would take too long ({at})")
    kinds = {
        "end to end": slope([reached[0], reached[-1]], [seconds[0], seconds[-1]]),
        f"fit from {reached[1]:,}": slope(reached[1:], seconds[1:]),
    }
    for kind, exponent in kinds.items():
        # An exponent over part of the range has shown nothing about the whole.
        most = goal if whole else None
        yield Row(title, f"{estimator}, {kind}", exponent, "", most_value=most, peak_mb=found["beyond_mb"], note=at)


PARTS: Mapping[str, Callable[[Plan], Figures]] = {
    part.__name__: part for part in (scores, calls, error, others, precision, jobs, start, large, growth)
}
