"""Effect sizes of scores that estimate MMD^2 or HSIC.

The kernel correlation HSIC(x, y) / sqrt(HSIC(x, x) HSIC(y, y)) lies in [0, 1]; its square root is a correlation: with
linear kernels it is |corr(x, y)|. With the sample label as y it reads p q MMD^2 / sqrt(HSIC(x, x)), where p and q are
the shares of the two samples.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernsift.kernels import FeatureKernels
from kernsift.scores import EffectSizes, Scores
from kernsift.tables import Table

# Points behind HSIC(x, x): order statistics of a column, spread-out rows of a group.
_POINTS, _GROUP_POINTS = 64, 200


def mmd_effects(
    X: Table, Y: Table, kernels: FeatureKernels, scores: Callable[[], Scores], *, intervals: bool
) -> Callable[[np.ndarray], EffectSizes]:
    """Effect sizes of MMD^2 scores; `intervals` says whether the covariance holds under the alternative."""
    share = X.n / (X.n + Y.n)

    def sizes(features: np.ndarray) -> EffectSizes:
        both = np.concatenate([spread_points(X, features), spread_points(Y, features)])
        whole = self_dependence(both, kernels.select(features)) / (share * (1 - share))
        return _root_scale(scores(), features, whole, intervals)

    return sizes


def hsic_effects(
    X: Table,
    y: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    scores: Callable[[], Scores],
    *,
    intervals: bool,
) -> Callable[[np.ndarray], EffectSizes]:
    """Effect sizes of HSIC scores."""

    def sizes(features: np.ndarray) -> EffectSizes:
        own = self_dependence(spread_points(X, features), kernels.select(features))
        target = self_dependence(spread_points(y, np.array([0])), response_kernels)
        return _root_scale(scores(), features, own * target, intervals)

    return sizes


def _root_scale(scores: Scores, features: np.ndarray, whole: np.ndarray, intervals: bool) -> EffectSizes:
    def at(means: np.ndarray) -> np.ndarray:
        share = np.divide(means, whole, out=np.zeros(len(features)), where=whole > 0)
        return np.sqrt(np.clip(share, 0.0, 1.0))

    spread = np.sqrt(scores.cov.diagonal()[features]) if intervals else None
    return EffectSizes(at(scores.estimate[features]), spread, at)


def spread_points(table: Table, features: np.ndarray) -> np.ndarray:
    """A few value rows that stand for the features' distributions."""
    chosen = table.select(features)
    group = np.diff(chosen.offsets).max() > 1
    most = _GROUP_POINTS if group else _POINTS
    values = chosen.values if group else np.sort(chosen.values, axis=0)
    return values if len(values) <= most else values[((np.arange(most) + 0.5) * len(values) / most).astype(int)]


def self_dependence(points: np.ndarray, kernels: FeatureKernels) -> np.ndarray:
    """sqrt(HSIC(x, x)) of each feature: the root mean square of its centred kernel."""
    out = np.empty(kernels.d)
    step = max(1, 2**20 // len(points) ** 2)
    for start in range(0, kernels.d, step):
        features = np.arange(start, min(start + step, kernels.d))
        columns = slice(kernels.offsets[features[0]], kernels.offsets[features[-1] + 1])
        own = points[:, columns]
        gram = kernels.select(features).matched(own[:, None, :], own[None, :, :])
        gram = gram - gram.mean(axis=0) - gram.mean(axis=1, keepdims=True) + gram.mean(axis=(0, 1))
        out[features] = np.sqrt((gram**2).mean(axis=(0, 1)))
    return out
