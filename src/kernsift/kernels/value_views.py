"""Views of values: kernels on a column that depend on distances between its values.

Each function makes the view of b columns from their points (G, b), the kernels of these columns with the bandwidth of
the wide view, and `counts` (b, G), the number of rows at each point.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernsift.execution.arrays import Array, asarray_like, namespace, transposed
from kernsift.kernels.fitted import FeatureKernels
from kernsift.kernels.low_rank import View, centred, pivoted, row_sums

WIDE_RANK = 40
"""The largest rank of the wide kernel, which is nearly a polynomial of low degree."""
WIDE_TOLERANCE = 1e-6
"""Its tolerance: so small that the leading directions do not depend on the points."""
_SCALE_POWER, _LOCATION_WEIGHT = 1.6, 0.6


def wide_view(points: Array, kernels: FeatureKernels, counts: Array, most: int | None = None) -> View:
    """The kernel itself, with at most `most` directions."""
    factor, _ = pivoted(points, kernels, counts, WIDE_RANK, WIDE_TOLERANCE)
    return centred(factor, counts, most=most)


def _moments(points: Array, kernels: FeatureKernels, counts: Array) -> View:
    """The first two directions of the wide view with equal weight."""
    return wide_view(points, kernels, counts, 2).leading(2)


def _location_scale(points: Array, kernels: FeatureKernels, counts: Array, power: float = _SCALE_POWER) -> View:
    """A power of the distance from the median, less its regression on the signed distance, and the signed distance."""
    # The second direction of the wide view, nearly the same for normal values, can change places with the first one for
    # values with heavy tails.
    xp, n = namespace(counts), row_sums(counts)
    values = xp.astype(transposed(points), counts.dtype)
    reach, places = xp.cumulative_sum(counts, axis=1), xp.arange(values.shape[1], device=values.device)
    middle = [places == row_sums(xp.astype(below, xp.int64)) for below in (reach < n / 2, reach <= n / 2)]
    median = sum(row_sums(xp.where(place, values, 0.0)) for place in middle) / 2
    away = (values - median) * xp.astype(kernels.inverse, counts.dtype)[:, None]
    signed = xp.where(counts > 0, xp.clip(away, -1.0, 1.0), 0.0)
    scale = xp.abs(signed) ** power
    whole = row_sums(counts * scale * scale)
    signed, scale = (part - row_sums(counts * part) / n for part in (signed, scale))
    spread = row_sums(counts * signed * signed)
    scale = scale - signed * (row_sums(counts * signed * scale) / xp.where(spread > 0, spread, 1.0))
    size = row_sums(counts * scale * scale)
    # Values of two kinds have a location alone.
    lengths = xp.concat([xp.where(size > 1e-10 * whole, size, 0.0), spread], axis=1)
    weights = asarray_like(np.array([[1.0, _LOCATION_WEIGHT]]), counts)
    sizes = xp.where(lengths > 0, weights, 0.0)
    factor = xp.sqrt(sizes / xp.where(lengths > 0, lengths, 1.0))[:, :, None] * xp.stack([scale, signed], axis=1)
    return View(factor, sizes)


def _scale(points: Array, kernels: FeatureKernels, counts: Array) -> View:
    """The square of the distance from the median, less its regression on the signed distance."""
    both = _location_scale(points, kernels, counts, 2.0)
    return View(both.factor[:, :1, :], both.sizes[:, :1])


def with_missing(
    view: Callable[[Array, FeatureKernels, Array], View], points: Array, kernels: FeatureKernels, counts: Array
) -> View:
    """A view of the present values, with the share of missing values as one more direction of the same weight.

    The last point represents missing values.
    """
    xp = namespace(counts)
    there, n = counts[:, :-1], row_sums(counts)
    # A column without any value gets a point with a count of 1, whose factor is 0 after centring.
    first = asarray_like(np.eye(1, int(there.shape[1])), counts)
    there = xp.where(row_sums(there) > 0, there, first)
    own = view(points[:-1, :], kernels, there)
    factor = xp.concat([own.factor, xp.zeros_like(own.factor[:, :, :1])], axis=2)
    share = counts[:, -1:] / n
    indicator = xp.concat([xp.zeros_like(there), xp.ones_like(share)], axis=1) - share
    some = share * (1.0 - share) > 0
    indicator = xp.where(some, indicator / xp.sqrt(xp.where(some, n * share * (1.0 - share), 1.0)), 0.0)
    sizes = xp.concat([own.sizes, xp.astype(some, own.sizes.dtype)], axis=1)
    return View(xp.concat([factor, indicator[:, None, :]], axis=1), sizes)


VALUE_VIEWS: dict[str, Callable[[Array, FeatureKernels, Array], View]] = {
    "moments": _moments,
    "scale": _scale,
    "location-scale": _location_scale,
}
"""Views of values by name, other than the wide one."""
