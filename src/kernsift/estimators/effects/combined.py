"""Effects of features that are tested with several kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from kernsift.estimators.effects.intervals import EffectLaws


@dataclass(frozen=True)
class CombinedEffects:
    """Effects of b features that are tested with several kernels: the effect is the largest that any of them sees.

    Attributes
    ----------
    views : the laws under each of the kernels.

    Notes
    -----
    The lower end of an interval is the largest of the kernels' lower ends, each from its score after the penalty for
    their number: it leaves out 0 exactly when the combined test rejects. The upper end is the largest of theirs without
    a penalty, because the kernel with the largest effect has its own upper end above it. Where scores selected, they
    did so by the kernel with the best score, which has the lower end; the upper ends of the others are conditional on
    the same selection, with the differences between the scores held fixed.
    """

    views: tuple[EffectLaws, ...]

    @property
    def point(self) -> np.ndarray:
        """(b,) effects, corrected for chance."""
        return np.max([view.point for view in self.views], axis=0)

    def intervals(self, level: float | np.ndarray = 0.95, unions: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """(b, 2) confidence intervals; see `EffectLaws.intervals`."""
        least = np.max([view.least_upper_ends(level) for view in self.views], axis=0)
        if unions is None:
            return np.max([view.intervals(level, None, least) for view in self.views], axis=0)
        scores = np.array([view.score - view.penalty for view in self.views])
        ends = []
        for view, behind in zip(self.views, scores.max(axis=0) - scores, strict=True):
            low, high = view.intervals(level, [union - by for union, by in zip(unions, behind, strict=True)], least).T
            ends.append(np.column_stack([np.where(behind > 0, 0.0, low), high]))
        return np.max(ends, axis=0)

    def medians(self, unions: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """(b,) median-unbiased effects under the kernel with the best score."""
        out = np.zeros(len(self._best))
        for place, view in enumerate(self.views):
            best = np.flatnonzero(self._best == place)
            if len(best):
                out[best] = view.take(best).medians(None if unions is None else [unions[i] for i in best.tolist()])
        return out

    @property
    def _best(self) -> np.ndarray:
        return np.argmax([view.score - view.penalty for view in self.views], axis=0)


def penalties(scores: np.ndarray, weights: np.ndarray, combined: np.ndarray) -> np.ndarray:
    """(K, b) corrections of the scores (K, b) of kernels whose p-values have weights (K,).

    `combined` (b,) are the scores of the smallest weighted p-values, corrected for their number. The kernel with the
    smallest one keeps the combined score; the others are lower by as much as their weighted p-values are.
    """
    weighted = -ndtri_exp(np.minimum(log_ndtr(-scores) - np.log(weights)[:, None], -1e-3))
    return scores - (combined + weighted - weighted.max(axis=0))
