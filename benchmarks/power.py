"""How much power: what this package and others find, and how often they err.

    python benchmarks/power.py                      all parts, then the page
    python benchmarks/power.py regret --trials 50   one part
    python benchmarks/power.py --quick              all parts with ten trials (give it another --folder)
    python benchmarks/power.py page                 docs/power.md and its plots from the figures on record

Every part writes docs/power/<part>.csv after each cell and goes on where it stopped; --fresh starts again. Seeds are
fixed: trial t of a row always sees the same data, whatever the method.
"""

from __future__ import annotations

import argparse
import os
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import category_shapes
import numpy as np
import peers
import problems
import real_columns
import regret
from pages import DOCS
from power_figures import Line
from problems import Problem
from shapes import ROWS, SHAPES

from kernsift import Incomplete, compare, relate
from kernsift.experiments.studies import read_rows, run_tasks, write_rows

FOLDER = DOCS / "power"
ALPHA = 0.05
_TRIALS = {"regret": 400, "levels": 500, "categories": 400, "real": 150, "bh": 200, "peers": 200}
PARTS = tuple(_TRIALS)
# Methods shown for comparison get by with fewer trials.
_FEWER = 100
_QUICK = 10
# Rows of the regret study's check of levels.
_LEVEL_ROWS = 200


# --- one trial of the parts on multiple testing -----------------------------------------------------------------------

BH_METHODS: Mapping[str, dict[str, Any]] = {
    "kernsift, k=None": {"k": None},
    "kernsift, k=30": {"k": 30},
    "kernsift, k=None, median bandwidth": {"k": None, "bandwidth": "median"},
    "kernsift, k=None, cross": {"k": None, "estimator": "cross"},
}
# The paper's test, with its one draw a row.
_PAPER_PEER = "Multi (paper) + BH"
_PEERS = {peer.name: peer for peer in peers.PEERS}
_PAPER: dict[str, Any] = {"k": 30, "test": "multiscale", "estimator": Incomplete(r=1.0), "bandwidth": "joint"}


def bh_trial(problem: Problem, method: str, rng: np.random.Generator, seed: int) -> dict[str, float]:
    """The share of all true features that a method finds with BH at 5%, its false discovery proportion and its time."""
    peer = _PEERS.get(method)
    data = problem.draw(rng) if peer is None else problem.labelled(rng)
    start = time.process_time()
    if peer is None:
        settings = BH_METHODS.get(method, _PAPER) | {"alpha": ALPHA, "correction": "bh", "random_state": seed}
        if problem.question == "compare":
            result = compare(*data, **settings)
        else:
            result = relate(*data, response="category", **settings)
        chosen = np.isin(np.arange(len(problem.true)), result.selected[result.rejected])
    else:
        chosen = peer.choose(*data, seed)
    seconds = time.process_time() - start
    false = float((chosen & ~problem.true).sum()) / max(int(chosen.sum()), 1)
    return {"tpr": float(chosen[problem.true].mean()), "fdr": false, "seconds": seconds}


# --- cells, and what is on record -------------------------------------------------------------------------------------


PROBLEMS = {problem.name: problem for problem in problems.BH_PROBLEMS}


class Cell(NamedTuple):
    part: str
    row: str
    method: str
    trials: int


def shape_row(key: str, n: int) -> str:
    return f"{key}, n={n}"


def _shape_cells(part: str, trials: int) -> list[Cell]:
    """Every shape with every n; its null at one n."""
    sizes = ROWS if part == "regret" else (_LEVEL_ROWS,)
    return [
        Cell(part, shape_row(key, n), method, regret.trials_of(method, trials))
        for key, shape in SHAPES.items()
        for n in sizes
        for method in regret.methods_of(shape, n)
    ]


def cells_of(part: str, trials: int | None) -> list[Cell]:
    most = _TRIALS[part] if trials is None else trials
    if part in ("regret", "levels"):
        return _shape_cells(part, most)
    if part == "categories":
        rows = {shape_row(name, n): category_shapes.methods_of(name) for name in category_shapes.SHAPES for n in ROWS}
        return [Cell(part, row, method, most) for row, methods in rows.items() for method in methods]
    if part == "real":
        sets = {name: one for name, one in real_columns.DATA_SETS.items() if one.absent() is None}
        return [Cell(part, name, how, most) for name, one in sets.items() for how in real_columns.METHODS[one.numeric]]
    if part == "bh":
        limits = {name: most if place < 2 else min(most, _FEWER) for place, name in enumerate(BH_METHODS)}
    else:
        limits = {peer.name: min(most, peer.trials) for peer in peers.PEERS} | {_PAPER_PEER: min(most, _FEWER)}
    return [Cell(part, row, method, limit) for row in PROBLEMS for method, limit in limits.items()]


def one_trial(cell: Cell, trial: int) -> dict[str, float]:
    """Seeds depend on the row and the trial alone, so every method sees the same data."""
    data, own = np.random.SeedSequence([zlib.crc32(cell.row.encode()), trial]).spawn(2)
    rng = np.random.default_rng(data)
    if cell.part == "real":
        return real_columns.found(cell.row, cell.method, rng)
    return bh_trial(PROBLEMS[cell.row], cell.method, rng, int(own.generate_state(1)[0]))


def run_cell(cell: Cell) -> tuple[Cell, list[dict[str, float]]]:
    """All trials of a cell; most methods of the studies of single features take them in one call."""
    if cell.part == "categories":
        found = category_shapes.rejections(cell.row, cell.method, cell.trials)
        return cell, [{"power": float(value)} for value in found]
    if cell.part not in ("regret", "levels"):
        return cell, [one_trial(cell, trial) for trial in range(cell.trials)]
    key, _, n = cell.row.rpartition(", n=")
    found = regret.measured(key, int(n), cell.method, cell.trials, null=cell.part == "levels")
    columns = [[float(value) for value in values] for values in found.values()]
    return cell, [dict(zip(found, trial, strict=True)) for trial in zip(*columns, strict=True)]


def summary(trials: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float, int]]:
    """Means with their standard errors, trials being independent, and the number of trials."""
    out = {}
    for name in trials[0] if trials else ():
        values = np.array([trial[name] for trial in trials])
        error = float(values.std() / np.sqrt(len(values))) if len(values) > 1 else float("nan")
        out[name] = (float(values.mean()), error, len(values))
    return out


class Record:
    """A part's CSV, which is written after every cell, in the order of the study's cells."""

    def __init__(self, part: str, folder: Path, cells: Iterable[Cell] = ()) -> None:
        self.path = folder / f"{part}.csv"
        self.lines = read_rows(self.path, Line)
        self.place = {(cell.row, cell.method): number for number, cell in enumerate(cells)}

    def holds(self, cell: Cell) -> bool:
        key = (cell.row, cell.method)
        return any((line.row, line.method) == key and line.trials >= cell.trials for line in self.lines)

    def put(self, cell: Cell, figures: Mapping[str, tuple[float, float, int]]) -> None:
        self.lines = [line for line in self.lines if (line.row, line.method) != (cell.row, cell.method)]
        for quantity, found in figures.items():
            self.lines.append(Line(cell.row, cell.method, quantity, *found, cell.trials, date.today().isoformat()))
        self.lines.sort(key=lambda line: self.place.get((line.row, line.method), len(self.place)))
        write_rows(self.path, Line, self.lines, number=".5f")


def run_part(part: str, trials: int | None, workers: int, folder: Path, fresh: bool, only: str = "") -> None:
    every = cells_of(part, trials)
    record = Record(part, folder, every)
    wanted = [cell for cell in every if only in f"{cell.row} {cell.method}" and (fresh or not record.holds(cell))]
    start = time.perf_counter()
    for cell, results in run_tasks(run_cell, wanted, workers):
        figures = summary(results)
        record.put(cell, figures)
        shown = "  ".join(f"{name} {mean:.3f}±{error:.3f}" for name, (mean, error, _) in figures.items())
        print(f"{part} | {cell.row} | {cell.method} | {shown} | {time.perf_counter() - start:.0f} s", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measure power and error rates, and write docs/power.md.")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}, page; all by default")
    parser.add_argument("--trials", type=int, help="trials a cell, instead of each part's own number")
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK} trials a cell")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the CSV files and plots go")
    parser.add_argument("--fresh", action="store_true", help="measure again what is on record")
    parser.add_argument("--only", default="", help="only cells whose row and method contain this")
    given = parser.parse_args(arguments)
    unknown = set(given.parts) - {*PARTS, "page"}
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    parts = given.parts or [*PARTS, "page"]
    if "real" in parts:
        for name, one in real_columns.DATA_SETS.items():
            if (reason := one.absent()) is not None:
                print(f"real: {name} is left out: {reason}.", flush=True)
    trials = _QUICK if given.quick and given.trials is None else given.trials
    for part in parts:
        if part != "page":
            run_part(part, trials, given.workers, given.folder, given.fresh, given.only)
    if "page" in parts:
        from power_page import write_page

        write_page(given.folder)


if __name__ == "__main__":
    main()
