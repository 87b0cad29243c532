"""Views of ranks: kernels on a column that no monotone transformation changes.

Each function makes the view of b columns from `counts` (b, G), the number of rows at each point in increasing order.
Rows at one point are ties and have their midrank. With `missing` the last point represents missing values, which have
no rank; their share is one more direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import ndtri

from kernsift.execution.arrays import Array, asarray_like, at_least, namespace, normal_quantiles, to_numpy, transposed
from kernsift.kernels.fitted import FeatureKernels
from kernsift.kernels.functions import Gaussian
from kernsift.kernels.low_rank import TOLERANCE, WIDE, View, centred, pivoted, row_sums
from kernsift.kernels.value_views import WIDE_RANK, WIDE_TOLERANCE

# Median distance between two standard normal variables, sqrt(2) times the upper quartile, and two uniform ones.
_NORMAL_MEDIAN = float(np.sqrt(2.0) * ndtri(0.75))
_UNIFORM_MEDIAN = 1.0 - float(np.sqrt(0.5))
# Bandwidths in median distances, powers of eigenvalues, the number of directions and weights of score functions.
_NARROW, _NARROW_POWER, _NARROW_RANK = 0.7, 0.5, 32
_LOCAL, _LOCAL_POWER = 0.65, 0.5
_SMOOTH_POWER, _SMOOTH_DIRECTIONS = 0.35, 5
_SQUARE_WEIGHT, _SCORE_WEIGHTS = 0.1, (0.3, 0.25, 0.25)


def _midranks(counts: Array) -> Array:
    """(b, G) midranks of points in (0, 1), from the number of rows at each."""
    xp = namespace(counts)
    ends = xp.cumulative_sum(counts, axis=1)
    return xp.clip((ends - counts / 2) / xp.where(ends[:, -1:] > 0, ends[:, -1:], 1.0), 1e-300, 1.0 - 1e-16)


def _on_normal_scores(counts: Array, missing: bool, bandwidth: float, rank: int, tolerance: float) -> View:
    """The Gaussian kernel on normal scores of the ranks; the bandwidth is in median distances."""
    scores = normal_quantiles(_midranks(counts[:, :-1] if missing else counts))
    return _gaussian(scores, counts, missing, bandwidth * _NORMAL_MEDIAN, rank, tolerance)


def _gaussian(scores: Array, counts: Array, missing: bool, bandwidth: float, rank: int, tolerance: float) -> View:
    """The Gaussian kernel on scores of the points that are not missing."""
    xp, b = namespace(counts), int(counts.shape[0])
    if missing:
        scores = xp.concat([scores, xp.full_like(scores[:, :1], xp.nan)], axis=1)
    width, flags = np.full(b, bandwidth), np.zeros(b, dtype=bool)
    inverse = asarray_like(1.0 / width, counts)
    kernels = FeatureKernels(Gaussian(), np.arange(b + 1), flags, inverse, None, width, missing=missing)
    factor, _ = pivoted(transposed(scores), kernels, counts, rank, tolerance)
    return centred(factor, counts)


def _of_ranks(
    counts: Array, missing: bool, others: Callable[[Array, Array], Sequence[Array]], weights: Sequence[float]
) -> View:
    """Normal scores z of the ranks u, and with smaller weights other functions of u and z of mean 0 and variance 1."""
    xp, there = namespace(counts), counts[:, :-1] if missing else counts
    n = at_least(row_sums(there), 1.0)
    # Points without rows have ranks of 0 or 1.
    ranks = xp.minimum(xp.maximum(_midranks(there), 0.5 / n), 1.0 - 0.5 / n)
    normal = normal_quantiles(ranks)
    parts = [math.sqrt(weight) * part for weight, part in zip(weights, others(ranks, normal), strict=True)]
    factor = xp.stack([normal, *parts], axis=1)
    if missing:
        # Missing values have the mean score, and one more direction for their share.
        factor = factor - factor @ there[:, :, None] / n[:, :, None]
        share = counts[:, -1:] / row_sums(counts)
        variance = share * (1.0 - share)
        apart = xp.where(variance > 0, 1.0 / xp.sqrt(at_least(variance, 1e-30)), 0.0)[:, :, None]
        zeros = xp.zeros_like(factor[:, :1, :])
        factor = xp.concat(
            [xp.concat([factor, zeros], axis=1), xp.concat([xp.zeros_like(factor[:, :, :1]), apart], axis=1)], axis=2
        )
    return centred(factor, counts)


def _normal_scores(counts: Array, missing: bool) -> View:
    """Normal scores, and their squares with a small weight."""
    return _of_ranks(counts, missing, lambda _, normal: [_square(normal)], [_SQUARE_WEIGHT])


def _rank_scores(counts: Array, missing: bool) -> View:
    """Score functions of rank tests for a shift of normal and of Cauchy values, for spread and for skewness."""

    def others(ranks: Array, normal: Array) -> list[Array]:
        sine, middle = namespace(ranks).sin(2.0 * math.pi * ranks), 2.0 * ranks - 1.0
        return [math.sqrt(2.0) * sine, _square(normal), math.sqrt(1.75) * (5.0 * middle * middle - 3.0) * middle]

    return _of_ranks(counts, missing, others, _SCORE_WEIGHTS)


def _square(normal: Array) -> Array:
    return math.sqrt(0.5) * (normal * normal - 1.0)


def _smooth(counts: Array, missing: bool) -> View:
    """The first directions of a wide Gaussian kernel on normal scores."""
    view = _on_normal_scores(counts, missing, WIDE, WIDE_RANK, WIDE_TOLERANCE)
    some = to_numpy(counts[:, -1]) > 0 if missing else np.zeros(counts.shape[0], dtype=bool)
    # One more direction for the share of missing values, where there are any.
    size = min(_SMOOTH_DIRECTIONS + int(some.any()), view.sizes.shape[1])
    kept = np.arange(size) < _SMOOTH_DIRECTIONS + some[:, None]
    sizes = namespace(counts).where(asarray_like(kept, counts), view.sizes[:, :size], 0.0)
    return View(view.factor[:, :size, :], sizes).raised(_SMOOTH_POWER)


def _narrow(counts: Array, missing: bool) -> View:
    """A narrow Gaussian kernel on normal scores."""
    return _on_normal_scores(counts, missing, _NARROW, _NARROW_RANK, TOLERANCE).raised(_NARROW_POWER)


def _local(counts: Array, missing: bool) -> View:
    """A narrow Gaussian kernel on ranks."""
    ranks = _midranks(counts[:, :-1] if missing else counts)
    width = _LOCAL * _UNIFORM_MEDIAN
    return _gaussian(ranks, counts, missing, width, _NARROW_RANK, TOLERANCE).raised(_LOCAL_POWER)


RANK_VIEWS: dict[str, Callable[[Array, bool], View]] = {
    "normal-scores": _normal_scores,
    "rank-scores": _rank_scores,
    "smooth": _smooth,
    "narrow": _narrow,
    "local": _local,
}
"""Views of ranks by name."""
