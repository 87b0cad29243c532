"""Features with two values given confounders, where few rows carry the response: T has few outcomes.

The law over random signs takes the outcomes of few rows for continuous. All of five cases have the same of two equally
frequent values with probability 1 / 16, but T is then beyond the 5% point of that law. Given the confounders the values
are independent, and a regression of a feature with two values estimates their probabilities. With these the values of
the rows that carry the response are drawn; the other rows add little to T.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from kernsift.estimators.null_laws.discrete_tails import log_share
from kernsift.estimators.null_laws.discreteness import NULL_TAIL
from kernsift.estimators.null_laws.permutation_law import score_of

# The largest effective number of rows that counts as few; the squared residual of the others, of the largest one; and
# how many outcomes are drawn.
_FEW, _CARRY, _DRAWN = 10, 0.02, 2**13


@dataclass(frozen=True)
class FewRows:
    """The k rows that carry the residual response, and the shares of the level of its pairs of views."""

    rows: np.ndarray  # (k,)
    targets: tuple[np.ndarray, ...]  # the residuals (k, a) of the response of each pair
    weights: np.ndarray  # (pairs,)
    uniform: np.ndarray  # (draws, k) numbers in [0, 1)

    @classmethod
    def of(cls, targets: Sequence[np.ndarray], weights: np.ndarray, rng: np.random.Generator) -> FewRows | None:
        """From the residuals (n, a) of the response of each pair; None where they are carried by many rows."""
        squares = (targets[0] ** 2).sum(axis=1)
        if squares.sum() ** 2 > _FEW * (squares**2).sum():
            return None
        rows = np.flatnonzero(squares > _CARRY * squares.max())
        own = tuple(target[rows] for target in targets)
        return cls(rows, own, weights, rng.random((_DRAWN, len(rows))))

    def bounded(self, score: float, values: np.ndarray, left: np.ndarray, scores: np.ndarray) -> float:
        """A score, or that of drawn values if it is lower, for a feature with two values.

        `values` and `left` (n,) are a direction of the feature and its residuals, `scores` (pairs,) those of the law
        over random signs.
        """
        low, high = values.min(), values.max()
        if log_ndtr(-score) > math.log(NULL_TAIL) or not ((values == low) | (values == high)).all():
            return score
        share = np.clip(((values - left)[self.rows] - low) / (high - low), 0.0, 1.0)
        drawn = np.vstack([values[self.rows] == high, self.uniform < share]) - share
        statistics = np.array([((drawn @ target) ** 2).sum(axis=1) for target in self.targets])
        return min(score, float(score_of(np.array([log_share(statistics, self.weights, log_ndtr(-scores))]))[0]))
