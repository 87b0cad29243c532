"""Selection rules, and the selection events that the tests condition on.

A rule has these methods. `select`: the selected features. `keeps`: for many resampled score vectors, which of the given
features are selected. `truncation`: the values t for which feature i is selected when all scores move along a line
`intercept + slope * t` and feature i's own score is t; the conditioning event of the exact test. `own_truncation`: the
same where it does not depend on the scores of other features, so that no covariance has to be computed.

Ties go to the feature that comes first in the table. A feature whose score has variance 0 (a constant column) ranks
behind all others whatever its score: a score of 0 is no evidence, and other scores may be negative.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kernsift.distributions.truncated_normal import EVERYWHERE, joined

# Slopes closer than this to 1, and then intercepts closer than this to 0, are the same line (duplicate columns).
_PARALLEL = 1e-10


class Lines(NamedTuple):
    """Straight lines `intercept + slope * t`."""

    intercept: np.ndarray
    slope: np.ndarray


class SelectionRule(ABC):
    """A selection rule; without other definitions, one whose event does not depend on the scores of other features.

    Examples
    --------
    >>> import numpy as np
    >>> rule: SelectionRule = TopK(1)
    >>> rule.select(np.array([0.5, 2.0]))
    array([1])
    """

    @abstractmethod
    def select(self, estimate: np.ndarray) -> np.ndarray:
        """Indices of the kept features, best first."""

    @abstractmethod
    def keeps(self, samples: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Whether each of `features` is kept in each row of `samples`: (rows, len(features)), boolean.

        `samples` may be overwritten: a copy would cost as much as the computation.
        """

    def lowest(self, intercept: np.ndarray, slope: np.ndarray, features: np.ndarray) -> np.ndarray:
        """(k,) where `truncation` from the lines (k, d) of each of k features begins, if it is a half-line; else NaN.

        NaN also where only `truncation` tells which of the two it is.
        """
        return np.full(len(features), np.nan)

    def truncation(self, intercept: np.ndarray, slope: np.ndarray, feature: int) -> np.ndarray:
        """The values t of `feature`'s own score for which it is kept, as a union of intervals."""
        own = self.own_truncation(np.array([feature]))
        assert own is not None
        return own[0]

    @abstractmethod
    def own_truncation(self, features: np.ndarray) -> list[np.ndarray] | None:
        """`truncation` of the named features where it depends on no other score; None where it does."""

    def sides(self, intercept: np.ndarray, slope: np.ndarray, selected: np.ndarray) -> tuple[Lines, Lines]:
        """Upper and lower lines: `selected` is the selected set while every upper one is above every lower one."""
        none = Lines(np.empty(0), np.empty(0))
        return none, none


def by_score(estimate: np.ndarray, varies: np.ndarray | None = None) -> np.ndarray:
    """All features, best first; ties in table order, and those with variance 0 last."""
    return np.argsort(-estimate if varies is None else np.where(varies, -estimate, np.inf), kind="stable")


def _standardised_order(estimate: np.ndarray, sd: np.ndarray) -> np.ndarray:
    return by_score(estimate / np.where(sd > 0, sd, 1.0), sd > 0)


@dataclass(frozen=True)
class Everything(SelectionRule):
    """Keep all features, so that there is no selection to condition on.

    Features are ordered by their scores in units of their standard deviations `sd`, where given: by p-value.

    Examples
    --------
    >>> import numpy as np
    >>> Everything().select(np.array([0.5, 2.0, 1.0]))
    array([1, 2, 0])
    """

    sd: np.ndarray | None = None

    def select(self, estimate: np.ndarray) -> np.ndarray:
        return by_score(estimate) if self.sd is None else _standardised_order(estimate, self.sd)

    def keeps(self, samples: np.ndarray, features: np.ndarray) -> np.ndarray:
        return np.ones((len(samples), len(features)), dtype=bool)

    def own_truncation(self, features: np.ndarray) -> list[np.ndarray] | None:
        return [EVERYWHERE] * len(features)


@dataclass(frozen=True)
class Threshold(SelectionRule):
    """Keep every feature whose score reaches `level` of its standard deviations `sd`.

    Examples
    --------
    >>> import numpy as np
    >>> Threshold(2.0, np.ones(3)).select(np.array([2.5, 0.3, 3.1]))
    array([2, 0])
    """

    level: float
    sd: np.ndarray

    @property
    def cuts(self) -> np.ndarray:
        return self.level * self.sd

    def select(self, estimate: np.ndarray) -> np.ndarray:
        order = _standardised_order(estimate, self.sd)
        return order[(estimate[order] >= self.cuts[order]) & (self.sd[order] > 0)]

    def keeps(self, samples: np.ndarray, features: np.ndarray) -> np.ndarray:
        return (samples[:, features] >= self.cuts[features]) & (self.sd[features] > 0)

    def own_truncation(self, features: np.ndarray) -> list[np.ndarray] | None:
        return list(np.stack([self.cuts[features], np.full(len(features), np.inf)], axis=1)[:, None, :])

    def sides(self, intercept: np.ndarray, slope: np.ndarray, selected: np.ndarray) -> tuple[Lines, Lines]:
        # Subtract each score's own threshold, so that all are compared with 0.
        kept = _mask(len(slope), selected)
        left = ~kept & (self.sd > 0)
        height = intercept - self.cuts
        above = Lines(np.append(height[kept], 0.0), np.append(slope[kept], 0.0))
        below = Lines(np.append(height[left], 0.0), np.append(slope[left], 0.0))
        return above, below


@dataclass(frozen=True)
class TopK(SelectionRule):
    """Keep the k highest scores; features for which `varies` is False only if no others are left.

    Examples
    --------
    >>> import numpy as np
    >>> TopK(2).select(np.array([0.5, 2.0, 1.0]))
    array([1, 2])

    With the other scores fixed, the second score is among the best two from 0.5 upwards.

    >>> TopK(2).truncation(np.array([0.5, 0.0, 1.0]), np.array([0.0, 1.0, 0.0]), 1)
    array([[0.5, inf]])
    """

    k: int
    varies: np.ndarray | None = None

    def select(self, estimate: np.ndarray) -> np.ndarray:
        return by_score(estimate, self.varies)[: self.k]

    def keeps(self, samples: np.ndarray, features: np.ndarray) -> np.ndarray:
        d = samples.shape[1]
        if self.k >= d:
            return np.ones((len(samples), len(features)), dtype=bool)
        if self.varies is not None and not self.varies.all():
            moving = int(self.varies.sum())
            if self.k >= moving:
                # The constant features that complete the selection are the same in every sample.
                kept = np.isin(features, by_score(np.zeros(d), self.varies)[: self.k])
                return np.broadcast_to(kept, (len(samples), len(features)))
            samples[:, ~self.varies] = -np.inf
        chosen = samples.take(features, axis=1)
        samples.partition(d - self.k, axis=1)
        return chosen >= samples[:, d - self.k, None]

    def lowest(self, intercept: np.ndarray, slope: np.ndarray, features: np.ndarray) -> np.ndarray:
        if self.k >= slope.shape[1]:
            return super().lowest(intercept, slope, features)
        gap, own = 1.0 - slope, (np.arange(len(features)), features)
        gap[own] = 1.0
        ahead = gap > _PARALLEL
        crossing = intercept / np.where(ahead, gap, 1.0)
        crossing[own] = -np.inf
        if self.varies is not None:
            crossing[:, ~self.varies] = -np.inf  # constant features never rank above one that varies
        crossing.partition(-self.k, axis=1)
        # As a rule all slopes are smaller, and every line is above the diagonal left of its crossing.
        return np.where(ahead.all(axis=1), crossing[:, -self.k], np.nan)

    def truncation(self, intercept: np.ndarray, slope: np.ndarray, feature: int) -> np.ndarray:
        if self.varies is not None and not self.varies.all():
            if not self.varies[feature]:
                return EVERYWHERE
            # Constant features never rank above one that varies.
            feature = int(np.count_nonzero(self.varies[:feature]))
            intercept, slope = intercept[self.varies], slope[self.varies]
        gap = 1.0 - slope
        gap[feature] = 1.0
        scale = np.max(np.abs(intercept), initial=0.0)
        parallel = np.abs(gap) < _PARALLEL
        tied = parallel & (np.abs(intercept) <= _PARALLEL * scale)
        earlier = np.arange(len(slope)) < feature
        always_above = parallel & np.where(tied, earlier, intercept > 0)
        # Feature i is kept where at most `room` of the remaining lines lie above the diagonal.
        room = self.k - 1 - int(always_above.sum())
        moving = ~parallel
        moving[feature] = False
        crossing = intercept[moving] / gap[moving]
        falling = gap[moving] > 0  # above the diagonal left of its crossing; the others are above right of it
        return _intervals_with_few_above(crossing, falling, room)

    def own_truncation(self, features: np.ndarray) -> list[np.ndarray] | None:
        # With k at least the number of features that vary, these are kept whatever their scores.
        return None if self.varies is None or self.k < self.varies.sum() else [EVERYWHERE] * len(features)

    def sides(self, intercept: np.ndarray, slope: np.ndarray, selected: np.ndarray) -> tuple[Lines, Lines]:
        kept = _mask(len(slope), selected)
        left = ~kept
        if self.varies is not None:
            kept, left = kept & self.varies, left & self.varies
        return Lines(intercept[kept], slope[kept]), Lines(intercept[left], slope[left])


def _mask(size: int, chosen: np.ndarray) -> np.ndarray:
    mask = np.zeros(size, dtype=bool)
    mask[chosen] = True
    return mask


def _intervals_with_few_above(crossing: np.ndarray, falling: np.ndarray, room: int) -> np.ndarray:
    """The intervals with at most `room` lines above the diagonal, from a sweep over the crossings."""
    if len(crossing) <= room:
        return EVERYWHERE
    order = np.argsort(crossing, kind="stable")
    edges = np.concatenate([[-np.inf], crossing[order], [np.inf]])
    above = int(falling.sum()) + np.concatenate([[0], np.cumsum(np.where(falling[order], -1, 1))])
    kept = (above <= room) & (edges[1:] > edges[:-1])
    return joined(np.column_stack([edges[:-1][kept], edges[1:][kept]]))
