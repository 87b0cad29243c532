"""Effects of features that are tested with several kernels, with laws that are computed on demand.

The laws along families of alternatives (see `alternatives`) need the factors and the counts of a feature, which are not
kept for all features. They are computed again for features whose intervals are requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy.special import log_ndtr, ndtri, ndtri_exp

from kernsift.estimators.effects.intervals import EffectLaws, concatenated

# The weighted p-value of which an end of a 95% interval has about the error probability of one side.
_END_TAIL = 0.03


@dataclass(frozen=True)
class CombinedEffects:
    """Effects of b features that are tested with several kernels: the effect is the largest that any of them sees.

    Notes
    -----
    The lower end of an interval is the largest of the kernels' lower ends, each from its score after the penalty for
    their number: it leaves out 0 exactly when the combined test rejects. The upper end is the largest of theirs without
    a penalty, because the kernel with the largest effect has its own upper end above it. Features are selected by the
    kernel with the best score. Ends and medians of the other kernels are conditional on the same selection, with the
    differences between the scores held fixed, so that a cut far below the scores has no effect. A lower score has a
    larger selective p-value, so that a lower end excludes 0 only if that of the best score does.
    """

    views: tuple[EffectLaws, ...]  # the laws under each of the kernels

    @property
    def point(self) -> np.ndarray:
        """(b,) effects, corrected for chance."""
        return np.max([view.point for view in self.views], axis=0)

    def intervals(self, level: float | np.ndarray = 0.95, unions: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """(b, 2) confidence intervals; see `EffectLaws.intervals`."""
        least = np.max([view.least_upper_ends(level) for view in self.views], axis=0)
        selected = [None if unions is None else _lower(unions, behind) for behind in self._below_best]
        found = zip(self.views, selected, strict=True)
        return np.max([view.intervals(level, own, least) for view, own in found], axis=0)

    def medians(self, unions: Sequence[np.ndarray]) -> np.ndarray:
        """(b,) the largest of the median-unbiased effects under each kernel, given the selection."""
        found = zip(self.views, self._below_best, strict=True)
        return np.max([view.medians(_lower(unions, behind)) for view, behind in found], axis=0)

    @property
    def _below_best(self) -> np.ndarray:
        """(K, b) how much lower the score of each kernel is than the best one, both after the penalty."""
        scores = np.array([view.score - view.penalty[:, 0] for view in self.views])
        return np.asarray(scores.max(axis=0) - scores)


def _lower(unions: Sequence[np.ndarray], by: np.ndarray) -> list[np.ndarray]:
    """Intervals (b of them) of the best score as intervals of a score that is lower by `by` (b,)."""
    return [union - own for union, own in zip(unions, by, strict=True)]


def penalties(
    scores: np.ndarray, combined: np.ndarray, weights: np.ndarray, union: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """(K, b, 2) corrections of the scores (K, b) of kernels whose p-values have weights (K,), and of smaller scores.

    `union` gives the scores (b,) of the smallest weighted p-values, corrected for their number, which are `combined`
    for these scores. The kernel with the smallest one keeps the combined score; the others are lower by as much as
    their weighted p-values are. A factor of p-values changes a score the more the smaller it is, so that the second
    correction is that of equal weighted p-values as at the ends of intervals.
    """
    if len(scores) == 1:
        return np.zeros((*scores.shape, 2))
    weighted = -ndtri_exp(np.minimum(log_ndtr(-scores) - np.log(weights)[:, None], -1e-3))
    near = np.broadcast_to(-ndtri(_END_TAIL * weights)[:, None], scores.shape)
    return np.stack([scores - (combined + weighted - weighted.max(axis=0)), near - union(near)], axis=2)


def combined(parts: Iterable[tuple[np.ndarray, CombinedEffects]], features: np.ndarray) -> CombinedEffects:
    """The effects of blocks of features, in the order of `features`."""
    found, effects = zip(*parts, strict=True)
    own = np.concatenate(found)
    order = np.argsort(own)[np.searchsorted(np.sort(own), features)]
    # The effect is the largest of all views, so that a block with fewer views may repeat its last one.
    most = max(len(one.views) for one in effects)
    views = zip(*((one.views + most * one.views[-1:])[:most] for one in effects), strict=True)
    return CombinedEffects(tuple(concatenated(each).take(order) for each in views))


@dataclass(frozen=True)
class MeasuredEffects:
    """Effects of some features: estimates, and intervals from laws that are computed on demand."""

    point: np.ndarray  # (b,) effects, corrected for chance
    measure: Callable[[], CombinedEffects]  # computes the laws

    @classmethod
    def of(
        cls, points: np.ndarray, laws: Callable[[np.ndarray], CombinedEffects]
    ) -> Callable[[np.ndarray], MeasuredEffects]:
        """A function of features, from the effects (d,) of all and a function that computes the laws of some."""
        return lambda features: cls(points[features], partial(laws, features))

    @cached_property
    def _laws(self) -> CombinedEffects:
        return self.measure()

    def intervals(self, level: float | np.ndarray = 0.95, unions: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """(b, 2) confidence intervals; see `kernsift.estimators.effects.intervals.EffectLaws.intervals`."""
        return self._laws.intervals(level, unions)

    def medians(self, unions: Sequence[np.ndarray]) -> np.ndarray:
        """(b,) median-unbiased effects, given the selection."""
        return self._laws.medians(unions)
