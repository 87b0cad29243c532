"""The problems that power is measured on: each draws two tables, and knows which features are true.

A problem for `compare` draws two samples, one for `relate` a table and a response. Sizes and shapes are those of
docs/power.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernsift.experiments import problems as paper

Pair = tuple[np.ndarray, np.ndarray]
Shape = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


@dataclass(frozen=True)
class Problem:
    """A way to draw data."""

    name: str  # what the tables call it
    question: str  # "compare" or "relate"
    draw: Callable[[np.random.Generator], Pair]  # draws the two samples, or the table and the response
    true: np.ndarray  # (d,) whether each feature differs, or depends on the response

    def labelled(self, rng: np.random.Generator) -> Pair:
        """The same draw as a table and class labels, the form other packages ask for."""
        one, two = self.draw(rng)
        if self.question == "relate":
            return one, two
        return np.vstack([one, two]), np.repeat([0, 1], [len(one), len(two)])


D = 50
TRUE = np.arange(D) < 10
"""The first ten of fifty features are true."""

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


def shape_problem(name: str, shape: Shape, n: int) -> Problem:
    """Two samples of n rows: the true features have another shape in the second one."""

    def draw(rng: np.random.Generator) -> Pair:
        one, two = rng.standard_normal((n, D)), rng.standard_normal((n, D))
        two[:, TRUE] = shape(rng, (n, 10))
        return one, two

    return Problem(f"{name}, n={n}", "compare", draw, TRUE)


def logistic(n: int) -> Problem:
    """y is Bernoulli(logistic(x_1 + ... + x_10)): the paper's section 5.1."""

    def draw(rng: np.random.Generator) -> Pair:
        sample = paper.logistic({"n": n, "d": D}, None, rng)
        return sample.X, sample.y[:, 0].astype(int)

    return Problem(f"logistic, n={n}", "relate", draw, TRUE)


BH_PROBLEMS = (
    shape_problem("mean shift 0.5", _mean_shift, 200),
    shape_problem("standard deviation × 1.5", _spread(1.5), 200),
    shape_problem("variance × 1.5", _spread(1.5**0.5), 200),
    shape_problem("t(2.5) tails", _tails, 300),
    shape_problem("two modes", _modes, 100),
    shape_problem("gamma(2) skew", _skew, 200),
    logistic(500),
)
