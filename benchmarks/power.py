"""How much power: error rates, power and interval coverage, of this package and of others.

    python benchmarks/power.py                     all parts, then the page
    python benchmarks/power.py null --trials 500   one part
    python benchmarks/power.py page                docs/power.md and its plots from the figures at hand

Every part writes docs/power/<part>.csv after each cell and goes on where it stopped; --fresh starts again. Seeds are
fixed: trial t of a row always sees the same data, whatever the method.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import peers
import problems
import targets
from problems import Problem
from threadpoolctl import threadpool_limits

from kernsift import compare, relate
from kernsift.inference import exact
from kernsift.result import Result
from kernsift.selection import TopK

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "power"
ALPHA = 0.05
_TRIALS = {"paper": 200, "bh": 200, "peers": 200, "null": 1000, "intervals": 200}
PARTS = tuple(_TRIALS)
# Methods shown for comparison get by with fewer trials.
_FEWER = 100


class Figure(NamedTuple):
    """One trial's value of a quantity and its weight: 0 where there was nothing to count."""

    value: float
    weight: float = 1.0


def share(hits: np.ndarray, among: np.ndarray) -> Figure:
    """The share of `hits` among some features, one vote a trial, as the paper's appendix defines TPR and FPR."""
    return Figure(float(hits[among].mean()), 1.0) if among.any() else Figure(0.0, 0.0)


def pooled(hits: np.ndarray, among: np.ndarray) -> Figure:
    """The same share with one vote a feature."""
    return Figure(float(hits[among].mean()), float(among.sum())) if among.any() else Figure(0.0, 0.0)


# --- the library's calls ----------------------------------------------------------------------------------------------


def call(problem: Problem, data: tuple[np.ndarray, np.ndarray], seed: int, **settings: Any) -> Result:
    if problem.question == "compare":
        return compare(*data, random_state=seed, **settings)
    response = "category" if problem.categories else "numeric"
    return relate(*data, response=response, random_state=seed, **settings)


_PAPER = {"estimator": "incomplete", "bandwidth": "joint"}
PAPER_METHODS: Mapping[str, Mapping[str, Any]] = {
    "complete, exact (default)": {},
    "complete, exact, median bandwidth": {"bandwidth": "median"},
    "cross, exact": {"estimator": "cross"},
    "Multi (paper)": _PAPER | {"test": "multiscale"},
    "Poly (paper)": _PAPER | {"test": "polyhedral"},
}
BH_METHODS: Mapping[str, Mapping[str, Any]] = {
    "kernsift, k=None": {"k": None},
    "kernsift, k=30": {"k": 30},
    "kernsift, k=None, median bandwidth": {"k": None, "bandwidth": "median"},
    "kernsift, k=None, cross": {"k": None, "estimator": "cross"},
}
_PAPER_PEER = "Multi (paper) + BH"


def _own_settings(settings: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    """The paper's draws a row: one, and five in its HSIC tables."""
    if settings.get("estimator") != "incomplete":
        return dict(settings)
    return dict(settings) | {"r": 5.0 if problem.question == "relate" and "fakes" in problem.name else 1.0}


# --- one trial of each part -------------------------------------------------------------------------------------------


def paper_trial(problem: Problem, method: str, rng: np.random.Generator, seed: int) -> dict[str, Figure]:
    """Shares of the selected true and null features that are rejected at level 0.05, 30 being selected."""
    data = problem.draw(rng)
    settings = _own_settings(PAPER_METHODS[method], problem)
    start = time.process_time()
    result = call(problem, data, seed, k=30, alpha=ALPHA, correction=None, **settings)
    seconds = time.process_time() - start
    true = problem.true[result.selected]
    return {
        "tpr": share(result.rejected, true),
        "fpr": share(result.rejected, ~true),
        "seconds": Figure(seconds),
    }


def discoveries(chosen: np.ndarray, true: np.ndarray, seconds: float) -> dict[str, Figure]:
    """Power over all true features, and the false discovery proportion."""
    false = float((chosen & ~true).sum()) / max(int(chosen.sum()), 1)
    return {"tpr": share(chosen, true), "fdr": Figure(false), "seconds": Figure(seconds)}


def bh_trial(problem: Problem, method: str, rng: np.random.Generator, seed: int) -> dict[str, Figure]:
    """What BH at 5% finds of all true features."""
    data = problem.draw(rng)
    settings = BH_METHODS[method] if method in BH_METHODS else {"k": 30, "test": "multiscale"} | _PAPER
    start = time.process_time()
    result = call(problem, data, seed, alpha=ALPHA, correction="bh", **_own_settings(settings, problem))
    seconds = time.process_time() - start
    chosen = np.zeros(len(problem.true), dtype=bool)
    chosen[result.selected[result.rejected]] = True
    return discoveries(chosen, problem.true, seconds)


def peers_trial(problem: Problem, method: str, rng: np.random.Generator, seed: int) -> dict[str, Figure]:
    """The same of another package."""
    if method == _PAPER_PEER:
        return bh_trial(problem, method, rng, seed)
    x, labels = problem.labelled(rng)
    peer = {peer.name: peer for peer in peers.PEERS}[method]
    start = time.process_time()
    chosen = peer.choose(x, labels, seed)
    return discoveries(chosen, problem.true, time.process_time() - start)


def null_trial(problem: Problem, method: str, rng: np.random.Generator, seed: int) -> dict[str, Figure]:
    """Rejected shares of the selected null features, for three k on the same scores."""
    setup = targets.set_up(problem, problem.draw(rng), seed)
    scores = setup.scores()
    d = len(scores)
    figures = {}
    for name, k in (("k=1", 1), ("k=d/3", round(d / 3)), ("k=d-1", d - 1)):
        selected = TopK(k).select(scores.estimate)
        pvalues = exact(scores, TopK(k), selected, rng=rng).pvalues
        for level in (0.05, 0.01):
            figures[f"{name} at {level:g}"] = share(pvalues <= level, ~problem.true[selected])
    return figures


INTERVAL_METHODS: Mapping[str, Mapping[str, Any]] = {
    "complete (default)": {},
    "complete, median bandwidth": {"bandwidth": "median"},
    "cross": {"estimator": "cross"},
    "block": {"estimator": "block"},
    "linear": {"estimator": "linear"},
}


def intervals_trial(problem: Problem, method: str, rng: np.random.Generator, seed: int) -> dict[str, Figure]:
    """Whether 95% intervals of the selected features cover, true and null ones apart, for two k."""
    family, data = problems.family_of(problem), problem.draw(rng)
    settings = dict(INTERVAL_METHODS[method])
    setup = targets.set_up(problem, data, seed, **settings)
    scores = setup.scores()
    if settings.get("estimator") == "cross":
        aims = targets.cross_targets(targets.set_up(problem, data, seed, **settings), problem, family)
    else:
        aims = targets.kernel_targets(family, setup)
    figures: dict[str, Figure] = {}
    for k in (10, 30):
        setup.door.k = k
        result = setup.answer(scores)
        if result.intervals is None:
            return {}
        aim, true = aims[result.selected], problem.true[result.selected]
        low, high = aim < result.intervals[:, 0] - 1e-9, aim > result.intervals[:, 1] + 1e-9
        figures |= {
            f"k={k} true": pooled(~low & ~high, true),
            f"k={k} null": pooled(~low & ~high, ~true),
            f"k={k} true below": pooled(low, true),
            f"k={k} true above": pooled(high, true),
            f"k={k} width": pooled(result.intervals[:, 1] - result.intervals[:, 0], true),
        }
    return figures


_TRIAL = {
    "paper": paper_trial,
    "bh": bh_trial,
    "peers": peers_trial,
    "null": null_trial,
    "intervals": intervals_trial,
}

# --- cells, and what is on record -------------------------------------------------------------------------------------


@cache
def rows_of(part: str) -> dict[str, Problem]:
    found: Iterable[Problem] = {
        "paper": problems.paper_problems,
        "bh": lambda: problems.BH_PROBLEMS,
        "peers": lambda: problems.BH_PROBLEMS,
        "null": problems.null_problems,
        "intervals": lambda: problems.INTERVAL_PROBLEMS,
    }[part]()
    return {key(part, problem): problem for problem in found}


def key(part: str, problem: Problem) -> str:
    return f"{problem.question}: {problem.name}" if part == "null" else problem.name


class Cell(NamedTuple):
    part: str
    row: str
    method: str
    trials: int


def cells_of(part: str, trials: int | None) -> list[Cell]:
    most = _TRIALS[part] if trials is None else trials
    rows = rows_of(part)
    if part == "null":
        return [Cell(part, row, "complete, exact (default)", most) for row in rows]
    methods = {"paper": PAPER_METHODS, "bh": BH_METHODS, "intervals": INTERVAL_METHODS}.get(part, {})
    main = {"paper": 1, "bh": 2, "intervals": len(methods)}.get(part, 0)
    limits = {name: most if place < main else min(most, _FEWER) for place, name in enumerate(methods)}
    if part == "peers":
        limits = {peer.name: min(most, peer.trials) for peer in peers.PEERS} | {_PAPER_PEER: min(most, _FEWER)}
    cells = [Cell(part, row, method, limit) for row in rows for method, limit in limits.items()]
    return [cell for cell in cells if not (cell.method == "linear" and rows[cell.row].question == "relate")]


def one_trial(task: tuple[Cell, int]) -> dict[str, Figure]:
    """Seeds depend on the row and the trial alone, so every method sees the same data."""
    cell, trial = task
    problem = rows_of(cell.part)[cell.row]
    data, own = np.random.SeedSequence([zlib.crc32(cell.row.encode()), trial]).spawn(2)
    seed = int(own.generate_state(1)[0])
    return _TRIAL[cell.part](problem, cell.method, np.random.default_rng(data), seed)


def summary(trials: list[dict[str, Figure]]) -> dict[str, tuple[float, float, int]]:
    """Weighted means with their standard errors, trials being independent, and how many trials counted."""
    out = {}
    for name in trials[0] if trials else ():
        value, weight = np.array([trial[name] for trial in trials]).T
        total = weight.sum()
        mean = float((weight * value).sum() / total) if total > 0 else float("nan")
        counted = int((weight > 0).sum())
        error = float(np.sqrt(((weight * (value - mean)) ** 2).sum()) / total) if counted > 1 else float("nan")
        out[name] = (mean, error, counted)
    return out


@dataclass
class Record:
    """A part's CSV: one line a row, method and quantity."""

    path: Path
    lines: list[dict[str, str]]

    fields = ("row", "method", "quantity", "mean", "error", "counted", "trials", "date")

    @classmethod
    def read(cls, part: str, folder: Path) -> Record:
        path = folder / f"{part}.csv"
        if not path.exists():
            return cls(path, [])
        with path.open(newline="") as file:
            return cls(path, list(csv.DictReader(file)))

    def holds(self, cell: Cell) -> bool:
        return any(
            line["row"] == cell.row and line["method"] == cell.method and int(line["trials"]) >= cell.trials
            for line in self.lines
        )

    def put(self, cell: Cell, figures: Mapping[str, tuple[float, float, int]]) -> None:
        self.lines = [line for line in self.lines if (line["row"], line["method"]) != (cell.row, cell.method)]
        for quantity, (mean, error, counted) in figures.items():
            line = [cell.row, cell.method, quantity, f"{mean:.5f}", f"{error:.5f}", counted, cell.trials, date.today()]
            self.lines.append({name: str(value) for name, value in zip(self.fields, line, strict=True)})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("w", newline="") as file:
            writer = csv.DictWriter(file, self.fields, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.lines)


def run_part(part: str, trials: int | None, pool: Any, folder: Path, fresh: bool, only: str = "") -> None:
    record = Record.read(part, folder)
    for cell in cells_of(part, trials):
        if only not in f"{cell.row} {cell.method}" or (record.holds(cell) and not fresh):
            continue
        start = time.perf_counter()
        tasks = [(cell, trial) for trial in range(cell.trials)]
        results = list(pool.imap(one_trial, tasks, chunksize=4) if pool else map(one_trial, tasks))
        figures = summary(results)
        if figures:
            record.put(cell, figures)
        shown = "  ".join(f"{name} {mean:.3f}±{error:.3f}" for name, (mean, error, _) in figures.items())
        print(f"{part} | {cell.row} | {cell.method} | {shown} | {time.perf_counter() - start:.0f} s", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measure power and error rates, and write docs/power.md.")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}, page; all by default")
    parser.add_argument("--trials", type=int, help="trials a cell, instead of each part's own number")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the CSV files and plots go")
    parser.add_argument("--fresh", action="store_true", help="measure again what is on record")
    parser.add_argument("--only", default="", help="only cells whose row and method contain this")
    given = parser.parse_args(arguments)
    unknown = set(given.parts) - {*PARTS, "page"}
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    parts = given.parts or [*PARTS, "page"]
    if "paper" in parts and problems.data_folder() is None:
        print("paper: the data sets are left out, as KERNSIFT_DATA names no folder that holds them.", flush=True)
    # One thread a process: the processes share the cores between them.
    threadpool_limits(1)
    pool = Pool(given.workers, threadpool_limits, (1,)) if given.workers > 1 else None
    try:
        for part in parts:
            if part != "page":
                run_part(part, given.trials, pool, given.folder, given.fresh, given.only)
    finally:
        if pool:
            pool.terminate()
    if "page" in parts:
        from power_page import write_page

        write_page(given.folder)


if __name__ == "__main__":
    main()
