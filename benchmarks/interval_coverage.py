"""Coverage of the 95% intervals of effects, for the calibration study.

Ten columns, of which the first five depend on the sample or the response. The right value of an effect is what the same
call gives for samples so large that their own error does not count, in the same proportion; it is 0 for the other five.
Calls use the public functions alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from kernsift import compare, relate
from kernsift.result import Result

D, TRUE = 10, 5
SIZES = ((8, 8), (15, 15), (30, 30), (10, 60), (100, 100))
RULES: Mapping[str, Mapping[str, Any]] = {
    "k=None": {"k": None},
    "k=3": {"k": 3},
    "threshold=1": {"k": None, "threshold": 1.0},
}
# Rows in all behind a population value, and how many columns are averaged.
POPULATION, _COLUMNS = 8_000, 20

# A column given its linear predictor: 0 without an effect, a shift or a slope times the response with one.
Law = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def _normal(rng: np.random.Generator, predictor: np.ndarray) -> np.ndarray:
    return 0.8 * predictor + rng.standard_normal(predictor.shape)


def _lognormal(rng: np.random.Generator, predictor: np.ndarray) -> np.ndarray:
    return np.exp(_normal(rng, predictor))


def _bernoulli(rng: np.random.Generator, base: float, odds: float, predictor: np.ndarray) -> np.ndarray:
    chance = 1.0 / (1.0 + np.exp(-(base + odds * predictor)))
    return (rng.random(predictor.shape) < chance).astype(float)


def _binary(rng: np.random.Generator, predictor: np.ndarray) -> np.ndarray:
    """One in five against one in two."""
    return _bernoulli(rng, -np.log(4.0), np.log(4.0), predictor)


def _counts(rng: np.random.Generator, predictor: np.ndarray) -> np.ndarray:
    """Poisson(2) against Poisson(4)."""
    return rng.poisson(2.0 * 2.0**predictor).astype(float)


def _sparse(rng: np.random.Generator, predictor: np.ndarray) -> np.ndarray:
    """5% against 15% nonzero counts."""
    found = _bernoulli(rng, np.log(0.05 / 0.95), np.log(0.15 / 0.85) - np.log(0.05 / 0.95), predictor)
    return found * (1.0 + rng.poisson(1.0, predictor.shape))


LAWS: Mapping[str, Law] = {
    "normal": _normal,
    "lognormal": _lognormal,
    "binary": _binary,
    "counts": _counts,
    "5% nonzero": _sparse,
}


@dataclass(frozen=True)
class Cell:
    """A law, sizes of the samples (`relate` has as many rows in all), a question and an estimator."""

    law: str
    sizes: tuple[int, int]
    question: str
    estimator: str = "complete"

    @property
    def name(self) -> str:
        one, two = self.sizes
        rows = f"{one} v {two}" if self.question == "compare" else f"n={one + two}"
        kind = "" if self.estimator == "complete" else f", {self.estimator}"
        return f"{self.question}, {rows}, {self.law}{kind}"

    def call(self, rng: np.random.Generator, sizes: tuple[int, int], true: np.ndarray, **settings: Any) -> Result:
        """One call on fresh data."""
        law = LAWS[self.law]
        settings = {"correction": None, "random_state": 0, "estimator": self.estimator} | settings
        if self.question == "compare":
            one = law(rng, np.zeros((sizes[0], len(true))))
            two = law(rng, np.where(true, 1.0, np.zeros((sizes[1], len(true)))))
            return compare(one, two, **settings)
        y = rng.standard_normal(sum(sizes))
        return relate(law(rng, np.where(true, 0.5 * y[:, None], 0.0)), y, response="numeric", **settings)

    @property
    def population(self) -> tuple[int, int]:
        total = sum(self.sizes)
        first = round(POPULATION * self.sizes[0] / total)
        return first, POPULATION - first


@cache
def target(cell: Cell) -> float:
    """The effect at the population, the mean of several columns, under the kernels that the cell's estimator uses.

    The estimators that average draws use the median bandwidth, "cross" the sum of a wide and a narrow kernel.
    """
    rng = np.random.default_rng(0)
    own = cell if cell.estimator == "cross" else Cell(cell.law, cell.sizes, cell.question)
    bandwidth = "auto" if cell.estimator in ("complete", "cross") else "median"
    result = own.call(rng, own.population, np.ones(_COLUMNS, dtype=bool), k=None, bandwidth=bandwidth)
    return float(np.mean(result.effects))


_OTHERS = tuple(
    Cell("normal", (n, n), "compare", estimator) for estimator in ("cross", "block", "linear") for n in (200, 5000)
)
CELLS: Mapping[str, Cell] = {
    cell.name: cell
    for cell in (
        *(Cell(law, sizes, question) for question in ("compare", "relate") for law in LAWS for sizes in SIZES),
        *_OTHERS,
    )
}


def covered(cell: Cell, rule: str, rng: np.random.Generator) -> dict[str, tuple[int, int]]:
    """Of one call: intervals that hold the right value, and intervals, for true and for null features."""
    true = np.arange(D) < TRUE
    result = cell.call(rng, cell.sizes, true, **RULES[rule])
    if result.intervals is None or len(result.selected) == 0:
        return {"true": (0, 0), "null": (0, 0)}
    selected = np.asarray(result.selected)
    right = np.where(true[selected], target(cell), 0.0)
    low, high = np.asarray(result.intervals).T
    inside = (low <= right + 1e-9) & (right <= high + 1e-9)
    kinds = {"true": true[selected], "null": ~true[selected]}
    return {name: (int(inside[mask].sum()), int(mask.sum())) for name, mask in kinds.items()}
