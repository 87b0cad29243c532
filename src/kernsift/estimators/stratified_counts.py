"""The law within strata from counts of points by stratum, for many rows in few strata.

Where rows are many, the moments of each stratum by itself add nothing to those of V (see
`kernsift.estimators.restricted_law`): mean, variance and third moment are tr V, 2 tr V^2 and 8 tr V^3 up to a share of
1 / n, and V needs nothing but how many rows of each stratum a point of the feature stands for. The response is taken to
vary alike in all strata up to a factor r_b: V = (sum_b r_b S_b) (x) R.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kernsift.estimators.restricted_law import Strata
from kernsift.execution.arrays import bincount

if TYPE_CHECKING:
    from kernsift.estimators.complete import FittedStatistic

FEWEST = 2**12
"""The fewest rows that are counted by point and stratum."""
MOST_STRATA = 2**8
"""The most strata of such counts."""


class StratifiedCounts(NamedTuple):
    """The rows of a block of features, by point and stratum.

    Attributes
    ----------
    codes : (b, N) the points of the rows, sorted by stratum.
    counts : (b, G, S) how many rows of each stratum a point stands for.
    strata : the strata.
    shares : (S,) r_b, what the response varies in each stratum.
    weighted : (b, G) the rows of each point, weighted by these.
    """

    codes: np.ndarray
    counts: np.ndarray
    strata: Strata
    shares: np.ndarray
    weighted: np.ndarray

    @classmethod
    def of(cls, codes: np.ndarray, points: int, strata: Strata, target: np.ndarray) -> StratifiedCounts:
        """From codes (b, N) and a factor (p, N) of the response."""
        b, count = len(codes), len(strata.sizes)
        place = (codes.astype(np.intp) + np.arange(b)[:, None] * points) * count + strata.of_row
        counts = np.asarray(bincount(place, b * points * count), dtype=float).reshape(b, points, count)
        shares = strata.sums((target * target).sum(axis=0)) / (strata.sizes - 1)
        return cls(codes, counts, strata, shares, counts @ shares)

    def sums(self, target: np.ndarray) -> np.ndarray:
        """(b, G, p) sums of a factor (p, N) of the response over the rows of each point."""
        b, points, _ = self.counts.shape
        place = self.codes.astype(np.intp) + np.arange(b)[:, None] * points
        found = [bincount(place, b * points, np.broadcast_to(own, place.shape)) for own in target]
        return np.stack(found, axis=-1).reshape(b, points, len(target))

    def scatter(self, one: np.ndarray, other: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(b, m, q) weighted sums over strata of the scatter within strata, of factors (b, m, G) and (b, q, G)."""
        weighted = self.weighted if weights is self.shares else self.counts @ weights
        whole = (one * weighted[:, None, :]) @ other.transpose(0, 2, 1)
        first = one @ self.counts
        second = first if other is one else other @ self.counts
        return np.asarray(whole - (first * (weights / self.strata.sizes)) @ second.transpose(0, 2, 1))

    def traces(self, factor: np.ndarray) -> np.ndarray:
        """(b, S) traces of the scatter in each stratum."""
        squares = ((factor * factor).sum(axis=1)[:, None, :] @ self.counts)[:, 0]
        return np.asarray(squares - ((factor @ self.counts) ** 2).sum(axis=1) / self.strata.sizes)

    def correlation_term(self, one: FittedStatistic, other: FittedStatistic) -> np.ndarray:
        """(b,) covariances of T under two pairs of views, up to a factor."""
        inner = one.target.factor @ other.target.factor.T
        scatter = self.scatter(one.view.factor, other.view.factor, self.shares)
        return np.asarray((inner * inner).sum() * (scatter * scatter).sum(axis=(1, 2)))

    def rows(self, factor: np.ndarray, feature: int) -> np.ndarray:
        """(m, N) the factor (m, G) of one feature row by row, less the means of strata."""
        return self.strata.centred(factor[:, self.codes[feature]])
