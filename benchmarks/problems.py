"""The problems that power is measured on: each draws two tables, and knows which features are true.

A problem for `compare` draws two samples, one for `relate` a table and a response. Sizes and shapes are those of
docs/power.md; the data sets of the paper's tables are read from the folder named by KERNSIFT_DATA.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

Pair = tuple[np.ndarray, np.ndarray]
Shape = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


@dataclass(frozen=True)
class Problem:
    """A way to draw data.

    Attributes
    ----------
    name : what the tables call it.
    question : "compare" or "relate".
    draw : draws the two samples, or the table and the response.
    true : (d,) whether each feature differs, or depends on the response.
    categories : whether the response holds classes.
    """

    name: str
    question: str
    draw: Callable[[np.random.Generator], Pair]
    true: np.ndarray
    categories: bool = False

    def labelled(self, rng: np.random.Generator) -> Pair:
        """The same draw as a table and class labels, the form other packages ask for."""
        one, two = self.draw(rng)
        if self.question == "relate":
            return one, two
        return np.vstack([one, two]), np.repeat([0, 1], [len(one), len(two)])


def first(count: int, d: int) -> np.ndarray:
    """The first `count` of d features are true."""
    return np.arange(d) < count


# --- ten of fifty features differ in shape ----------------------------------------------------------------------------


def _mean_shift(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return rng.standard_normal(size) + 0.5


def _spread(ratio: float) -> Shape:
    return lambda rng, size: ratio * rng.standard_normal(size)


def _tails(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return rng.standard_t(2.5, size) / np.sqrt(5.0)


def _modes(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return 0.9 * rng.choice([-1.0, 1.0], size) + np.sqrt(1.0 - 0.9**2) * rng.standard_normal(size)


def _skew(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return (rng.gamma(2.0, size=size) - 2.0) / np.sqrt(2.0)


def shape_problem(name: str, shape: Shape, n: int, *, d: int = 50, count: int = 10) -> Problem:
    """Two samples of n rows: the first `count` features have another shape in the second one."""

    def draw(rng: np.random.Generator) -> Pair:
        one, two = rng.standard_normal((n, d)), rng.standard_normal((n, d))
        two[:, :count] = shape(rng, (n, count))
        return one, two

    return Problem(name, "compare", draw, first(count, d))


def logistic(n: int, *, d: int = 50, count: int = 10) -> Problem:
    """y is Bernoulli(logistic(x_1 + ... + x_10)): the paper's section 5.1."""

    def draw(rng: np.random.Generator) -> Pair:
        x = rng.standard_normal((n, d))
        chance = 1.0 / (1.0 + np.exp(-x[:, :count].sum(axis=1)))
        return x, (rng.random(n) < chance).astype(int)

    return Problem(f"logistic, n={n}", "relate", draw, first(count, d), categories=True)


def mean_shift(n: int) -> Problem:
    return shape_problem(f"mean shift 0.5, n={n}", _mean_shift, n)


def deviation(n: int) -> Problem:
    return shape_problem(f"standard deviation × 1.5, n={n}", _spread(1.5), n)


def variance(n: int) -> Problem:
    return shape_problem(f"variance × 1.5, n={n}", _spread(1.5**0.5), n)


BH_PROBLEMS = (
    mean_shift(200),
    deviation(200),
    variance(200),
    shape_problem("t(2.5) tails, n=300", _tails, 300),
    shape_problem("two modes, n=100", _modes, 100),
    shape_problem("gamma(2) skew, n=200", _skew, 200),
    logistic(500),
)

# --- the paper's data sets with fake features -------------------------------------------------------------------------

_FAKES = 30
_SETS = {
    "Pulsar": ("pulsar_stars.csv", "target_class", 100, 100),
    "Heart": ("heart.csv", "target", 138, 138),
    "Wine": ("winequalityN.csv", "type", 100, 200),
}


def data_folder() -> Path | None:
    """Where the paper's data sets are, if somebody has them here."""
    named = os.environ.get("KERNSIFT_DATA")
    if not named or not all((Path(named) / file).exists() for file, *_ in _SETS.values()):
        return None
    return Path(named)


@cache
def _data_set(name: str) -> Pair:
    """Features and class labels 0 and 1; rows with missing cells left out, as in the paper's runs."""
    import pandas as pd

    file, target, *_ = _SETS[name]
    folder = data_folder()
    if folder is None:
        raise FileNotFoundError(f"{file}: set KERNSIFT_DATA to the folder that holds it.")
    frame = pd.read_csv(folder / file, encoding="utf-8-sig").dropna()
    labels = pd.factorize(frame[target])[0]
    return frame.drop(columns=target).to_numpy(float), labels


def _with_fakes(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.hstack([rows, rng.standard_normal((len(rows), _FAKES))])


def _classes_with_fakes(name: str, n: int) -> Callable[[np.random.Generator], Pair]:
    def draw(rng: np.random.Generator) -> Pair:
        x, y = _data_set(name)
        one, two = (_with_fakes(x[rng.choice(np.flatnonzero(y == c), n, replace=False)], rng) for c in (0, 1))
        return one, two

    return draw


def _rows_with_fakes(name: str, n: int) -> Callable[[np.random.Generator], Pair]:
    def draw(rng: np.random.Generator) -> Pair:
        x, y = _data_set(name)
        rows = rng.choice(len(x), n, replace=False)
        return _with_fakes(x[rows], rng), y[rows]

    return draw


def data_problems() -> tuple[Problem, ...]:
    """The paper's tables: its features count as true, 30 standard normal ones are added (section 5.2, appendix)."""
    if data_folder() is None:
        return ()
    found = []
    for name, (_, _, each, total) in _SETS.items():
        true = first(_data_set(name)[0].shape[1], _data_set(name)[0].shape[1] + _FAKES)
        label = f"{name} + 30 fakes, n={each} a class"
        found.append(Problem(label, "compare", _classes_with_fakes(name, each), true))
        label = f"{name} + 30 fakes, n={total}"
        found.append(Problem(label, "relate", _rows_with_fakes(name, total), true, categories=True))
    return tuple(sorted(found, key=lambda problem: problem.question))


def paper_problems() -> tuple[Problem, ...]:
    return (mean_shift(500), mean_shift(100), logistic(500), logistic(200), *data_problems())
