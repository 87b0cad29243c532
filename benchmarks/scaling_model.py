"""The cost of a comparison of files as a sum of few terms, each a cost that can be named, fitted by least squares.

n rows in all, d columns, the k best selected, w workers; c is w, or 1 for the calling process alone; b blocks of
columns; t is 1 where columns are read a second time. Seconds are those of the clock, processors those of all
processors together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from kernsift.estimators.block_sizes import _BLOCK_BYTES, _ROW, _SHARE, whole_lines
from kernsift.estimators.draws.batches import LEARNING
from kernsift.execution.dask_workers import _PROCESS

MEMORY = 700_000_000
"""What every run may use."""

WITHIN = 0.25
"""By how much a prediction of the largest run may be off."""

IDLE = 0.1
"""The share of the processors that others may use while seconds of the clock are measured."""

Size = Mapping[str, Any]
Term = tuple[str, str, Callable[[Size], float]]


def share(size: Size) -> int:
    return max(1, int(size["workers"]))


CALL: Term = ("a call", "", lambda s: 1.0)
CELLS: Term = ("reading and scoring a cell", "n d", lambda s: s["n"] * s["d"])
FEATURES: Term = ("a feature: its points or its first draws", "d", lambda s: s["d"])
ROWS: Term = ("drawing and ordering rows", "n", lambda s: s["n"])
AGAIN: Term = ("reading a selected column again", "n k", lambda s: s["n"] * s["k"])
PAIRS: Term = ("a feature beside a selected one", "d k", lambda s: s["d"] * s["k"])
SELECTED: Term = ("a selected feature: the rows its correlations come from", "k", lambda s: s["k"])
WORKERS: Term = ("a worker", "w", lambda s: s["workers"])
TWICE: Term = ("reading a cell a second time", "n d t", lambda s: s["n"] * s["d"] * (not kept(s)))
READ: Term = ("a cell of the file", "n d", lambda s: s["n"] * s["d"])
ANSWERS: Term = ("the answer of a feature", "d", lambda s: s["d"])
KEPT: Term = ("draws of a feature that are kept", "d (1 - t)", lambda s: s["d"] * kept(s))
BETWEEN: Term = ("a feature, from one worker to another", "d (w - 1) / w", lambda s: s["d"] * (1 - 1 / share(s)))
LABELS: Term = ("the sample of a row", "n", lambda s: s["n"])
BLOCKS: Term = ("a byte of the blocks of columns that are read", "bytes", lambda s: block_bytes(s))
CHOSEN: Term = (
    "draws of a selected feature, for every worker",
    "k w t",
    lambda s: s["k"] * s["workers"] * (not kept(s)),
)
BLOCK_ROWS: Term = ("a row of a block of columns: gathering it, opening files", "n b", lambda s: s["n"] * blocks(s))
DESIGN: Term = ("the rows that are drawn, for every worker", "n w", lambda s: s["n"] * s["workers"])


def kept(size: Size) -> bool:
    """Whether the draws that correlations come from are kept, so that no column is read a second time for them."""
    draws = min(int(size["n"]) // 2, LEARNING)
    return bool(8 * draws * size["d"] <= process_memory(size) // (2 if size["workers"] else 5))


def process_memory(size: Size) -> int:
    """Bytes that `memory` leaves to one process."""
    return int(size.get("memory", MEMORY // share(size) - (_PROCESS if size["workers"] else 0)))


def block_columns(size: Size) -> int:
    """Columns of a block: what a process has room for, apart from the drawn rows and one more block to be read."""
    n, d, workers = int(size["n"]), int(size["d"]), size["workers"]
    most = int(_SHARE * process_memory(size) - 8 * n) // (8 * n * (1 if workers else 2))
    most = max(1, whole_lines(min(most, max(_BLOCK_BYTES // (8 * n), _ROW))))
    return whole_lines(min(most, -(-d // (2 * workers)))) if workers else most


def blocks(size: Size) -> int:
    """Blocks that all columns are read in."""
    return -(-int(size["d"]) // block_columns(size))


def block_bytes(size: Size) -> float:
    """Bytes of the blocks of columns that are in memory: two in one process, and one in each worker."""
    each = 8.0 * size["n"] * min(block_columns(size), int(size["d"]))
    return each * (size["workers"] or min(2, blocks(size)))


def _divided(term: Term) -> Term:
    name, size, of = term
    return name, f"{size} / c", lambda s: of(s) / share(s)


def terms(quantity: str, estimator: str, on_workers: bool) -> list[Term]:
    """What a quantity is a sum of."""
    drawn = estimator == "incomplete"
    if quantity in ("seconds", "processors"):
        shared = [CELLS, FEATURES, *([BLOCK_ROWS, TWICE] if drawn else [])]
        if quantity == "seconds":  # of the clock: the workers do these at the same time
            shared = [_divided(term) for term in shared]
        return [CALL, *shared, *([ROWS] if drawn else []), AGAIN, PAIRS, *([WORKERS] if on_workers else [])]
    if quantity == "read":
        return [CALL, READ, *([TWICE] if drawn else []), AGAIN]
    if quantity == "peak":
        own = [KEPT, BLOCKS, *([DESIGN] if on_workers else [])] if drawn else []
        return [CALL, ANSWERS, SELECTED, ROWS, *own, *([WORKERS] if on_workers else [])]
    assert quantity == "moved"
    return [CALL, WORKERS, ANSWERS, KEPT, DESIGN, CHOSEN] if drawn else [CALL, ANSWERS, BETWEEN, LABELS]


UNITS = {"seconds": "s", "processors": "s", "read": "bytes", "peak": "bytes", "moved": "bytes"}


@dataclass(frozen=True)
class Model:
    """Coefficients of the terms, none of them negative, and how far the fitted runs are from it."""

    terms: list[Term]
    coefficients: np.ndarray
    errors: np.ndarray

    def __call__(self, size: Size) -> float:
        return float(sum(c * term[2](size) for c, term in zip(self.coefficients, self.terms, strict=True)))


Models = dict[tuple[str, str, bool], Model]


def others(runs: Sequence[Size]) -> float:
    """The share of all processors that others used while the runs were made."""
    return float(np.mean([run["others"] for run in runs]))


def idle(runs: Sequence[Size]) -> bool:
    """Whether the machine was idle otherwise, as wall-clock seconds require."""
    return others(runs) < IDLE


def fit(runs: Sequence[Size]) -> Models:
    """A model for each quantity, estimator and place of work, without what is held out.

    Seconds of the clock have one only where the machine was idle but for the runs.
    """
    models: Models = {}
    for estimator in dict.fromkeys(run["estimator"] for run in runs):
        for on_workers in (False, True):
            own = [run for run in runs if run["estimator"] == estimator and bool(run["workers"]) == on_workers]
            own = [run for run in own if not run.get("held_out")]
            for quantity in UNITS:
                if own and (quantity != "moved" or on_workers) and (quantity != "seconds" or idle(runs)):
                    models[quantity, estimator, on_workers] = _fitted(own, quantity, estimator, on_workers)
    return models


def _fitted(runs: Sequence[Size], quantity: str, estimator: str, on_workers: bool) -> Model:
    chosen = terms(quantity, estimator, on_workers)
    measured = np.array([run[quantity] for run in runs], dtype=float)
    # Relative errors count: of a run of a second a tenth is as much as of a minute six seconds.
    matrix = np.array([[term[2](run) for term in chosen] for run in runs], dtype=float) / measured[:, None]
    scale = matrix.max(axis=0)
    found, _ = nnls(matrix / scale, np.ones(len(runs)))
    coefficients = found / scale
    return Model(chosen, coefficients, matrix @ coefficients - 1.0)


@dataclass(frozen=True)
class Check:
    """A run that was held out, and its prediction."""

    name: str
    quantity: str
    predicted: float
    measured: float

    @property
    def unit(self) -> str:
        return UNITS[self.quantity]

    @property
    def off(self) -> float:
        return self.predicted / self.measured - 1.0

    @property
    def within(self) -> bool:
        return abs(self.off) <= WITHIN


def checks(runs: Sequence[Size], models: Models) -> list[Check]:
    found = []
    for run in runs:
        for quantity in UNITS:
            model = models.get((quantity, run["estimator"], bool(run["workers"])))
            if run.get("held_out") and model is not None:
                where = f"{run['workers']} workers" if run["workers"] else "one process"
                name = f"{run['n']:,} × {run['d']:,}, {run['estimator']}, {where}, {quantity}"
                found.append(Check(name, quantity, model(run), float(run[quantity])))
    return found
