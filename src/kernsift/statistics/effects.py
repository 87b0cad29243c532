"""Effect sizes of scores that estimate MMD^2 or HSIC.

The kernel correlation HSIC(x, y) / sqrt(HSIC(x, x) HSIC(y, y)) lies in [0, 1]; its square root is a correlation: with
linear kernels it is |corr(x, y)|. With the sample label as y it reads p q MMD^2 / sqrt(HSIC(x, x)), where p and q are
the shares of the two samples.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernsift.arrays import Array, namespace, to_numpy, wide
from kernsift.kernels import FeatureKernels, columns_of
from kernsift.scores import EffectSizes, Scores
from kernsift.tables import Table

# Rows of each table behind HSIC(x, x): its square root enters, so their sampling error is a few percent of the effect,
# far below the error of the scores themselves.
_ROWS = 64


def with_mmd_effects(scores: Scores, X: Table, Y: Table, kernels: FeatureKernels, *, intervals: bool) -> Scores:
    """MMD^2 scores with effect sizes; `intervals` says whether their covariance holds under the alternative too."""
    share = X.n / (X.n + Y.n)

    def sizes(features: np.ndarray) -> EffectSizes:
        points = [spread_points(X, features), spread_points(Y, features)]
        both = namespace(points[0]).concat(points, axis=0)
        whole = self_dependence(both, kernels.select(features)) / (share * (1 - share))
        return _root_scale(scores, features, whole, intervals)

    return replace(scores, effects=sizes)


def with_hsic_effects(
    scores: Scores,
    X: Table,
    y: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    *,
    intervals: bool,
) -> Scores:
    """HSIC scores with effect sizes."""

    def sizes(features: np.ndarray) -> EffectSizes:
        own = self_dependence(spread_points(X, features), kernels.select(features))
        target = self_dependence(spread_points(y, np.array([0])), response_kernels)
        return _root_scale(scores, features, own * target, intervals)

    return replace(scores, effects=sizes)


def _root_scale(scores: Scores, features: np.ndarray, whole: np.ndarray, intervals: bool) -> EffectSizes:
    def at(means: np.ndarray) -> np.ndarray:
        share = np.divide(means, whole, out=np.zeros(len(features)), where=whole > 0)
        return np.sqrt(np.clip(share, 0.0, 1.0))

    spread = np.sqrt(scores.cov.diagonal()[features]) if intervals else None
    return EffectSizes(at(scores.estimate[features]), spread, at)


def spread_points(table: Table, features: np.ndarray) -> Array:
    """Value rows of these features, evenly spaced over the table."""
    rows = np.arange(table.n) if table.n <= _ROWS else ((np.arange(_ROWS) + 0.5) * table.n / _ROWS).astype(int)
    return table.part(columns_of(table.offsets, features), rows)


def self_dependence(points: Array, kernels: FeatureKernels) -> np.ndarray:
    """sqrt(HSIC(x, x)) of each feature: the root mean square of its centred kernel."""
    # Column by column, so that what is done to one feature's kernel is done along its own memory.
    points = np.asfortranarray(points) if isinstance(points, np.ndarray) else points
    xp, n = namespace(points), points.shape[0]
    out = np.empty(kernels.d)
    step = max(1, 2**20 // n**2)
    for start in range(0, kernels.d, step):
        features = np.arange(start, min(start + step, kernels.d))
        own = points[:, int(kernels.offsets[start]) : int(kernels.offsets[features[-1] + 1])]
        gram = kernels.select(features).matched(own[:, None, :], own[None, :, :])
        gram -= xp.mean(gram, axis=0)
        gram -= xp.mean(gram, axis=1, keepdims=True)
        gram *= gram
        out[features] = np.sqrt(to_numpy(xp.sum(gram, axis=(0, 1), dtype=wide(gram)))) / n
    return out
