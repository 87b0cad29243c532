"""Incomplete HSIC on the rows the authors' code drew: kept only to show the effect of its errors.

A quadruple is drawn as one number below n! / (4! (n - 4)!), read as four digits: the number divided by
(n-1)(n-2)(n-3)/24, the rest by (n-2)(n-3)/24, the rest by (n-3)/24, the rest by 1/24. A digit that equals an earlier
one is raised by one, which can make it equal to another: then a row comes twice. A kernel of a row with itself counts
as 0. Where a feature varies little compared with the bandwidth, its other kernel values are nearly 1, and one such draw
outweighs all the others.

The numbers come from a generator seeded by the feature's place in the table, so the rows are the same in every trial,
and so is which features are hit.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb

import numpy as np

from kernsift.data.tables import Table
from kernsift.estimators.scores import DenseCovariance, Scores
from kernsift.kernels.fitted import FeatureKernels

_FIRST_SEED = 5
_PAIRINGS = (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))


@lru_cache(maxsize=256)
def published_quadruples(n: int, size: int, feature: int) -> np.ndarray:
    """Rows (size, 4) of one feature as the authors' code finds them; a few have a row twice."""
    # The legacy generator, whose numbers are those of the authors.
    rest = np.random.RandomState(_FIRST_SEED + feature).randint(0, comb(n, 4), size=size).astype(float)
    digits: list[np.ndarray] = []
    for weight in ((n - 1) * (n - 2) * (n - 3) / 24, (n - 2) * (n - 3) / 24, (n - 3) / 24, 1 / 24):
        # In floating point like theirs, rounding errors of the last digit included.
        digit = np.floor(rest / weight).astype(int)
        rest = rest - digit * weight
        for earlier in digits:
            digit = digit + (digit == earlier)
        digits.append(digit)
    return np.stack(digits, axis=1)


def published_hsic(
    table: Table,
    target: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    *,
    r: float,
) -> Scores:
    """Scores from a fixed design for each feature; the covariance is that of the draws over their number."""
    draws = np.empty((round(r * table.n), table.d))
    for feature in range(table.d):
        rows = published_quadruples(table.n, len(draws), feature)
        own = np.array([feature])
        K = _pairing_sums(table.select(own).values, rows, kernels.select(own))
        L = _pairing_sums(target.values, rows, response_kernels)
        # h of the paper's section 2, the 24 permutations gathered by pairings.
        draws[:, feature] = sum(k * (3 * one - sum(L)) for k, one in zip(K, L, strict=True)) / 12
    return Scores(table.names, draws.mean(axis=0), DenseCovariance(np.cov(draws.T) / len(draws)))


def _pairing_sums(values: np.ndarray, rows: np.ndarray, kernels: FeatureKernels) -> list[np.ndarray]:
    sums = []
    for pairing in _PAIRINGS:
        parts = []
        for a, b in pairing:
            gram = kernels.matched(values[rows[:, a]], values[rows[:, b]])[:, 0]
            parts.append(np.where(rows[:, a] == rows[:, b], 0.0, gram))
        sums.append(parts[0] + parts[1])
    return sums
