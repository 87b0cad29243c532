"""Views of a variable: the kernels with which features and responses are tested.

A single kernel has little power against some shapes, so with an adaptive bandwidth each feature is tested with several.
A view is one kernel on one variable; a test statistic belongs to a pair of views, one of the feature and one of the
response.

wide
    The Gaussian kernel on the values, four median distances wide: nearly linear, and bounded for outlying values.
moments
    The first two directions of the wide view with equal weight: location and spread.
scale
    The square of the distance from the median, in bandwidths of the wide view and at most 1, less its regression on the
    signed distance.
location-scale
    The same with the distance to the power 1.6, between the distance, which is best for heavy tails, and its square,
    which sees few outlying values; and the signed distance with 0.6 of its weight.
normal-scores
    Normal scores of the ranks, and their squares with a tenth of their weight: monotone relations, whatever the scale.
rank-scores
    Score functions of rank tests: normal scores z, best for a shift of normal values, and with 0.3, 0.25 and 0.25 of
    their weight sin(2 pi u) of the ranks u in (0, 1), best for a shift of Cauchy values, the square of z, for a change
    of spread, and the Legendre polynomial of degree 3 in u, for skewness.
smooth
    The first five directions of the Gaussian kernel on normal scores of the ranks, equally wide, with eigenvalues
    raised to the power 0.35: nearly polynomials of increasing degree, with decreasing weights.
narrow
    The Gaussian kernel on normal scores of the ranks, 0.7 median distances wide, its eigenvalues raised to the power
    1/2: several modes, and other shapes with many sign changes.
local
    The Gaussian kernel on the ranks, 0.65 median distances wide, its eigenvalues raised to the power 1/2. On ranks all
    parts of the distribution have the same width, so that with a local view of the response the pair sees rings,
    checkerboards and other relations without a trend.
location
    The first direction of the smooth view: nearly the normal scores themselves.
plain
    The fitted kernel: the only view for a given bandwidth.

balanced
    Of a response of classes: the kernel 1[a = b] / p_a^1.15, p_a being the share of a class; nearly that of chi-square.

Rows at one point are ties and have their midrank. Categories have two views: the kernel 1[a = b] / p_a^1.15 in place of
the wide, smooth, location and local views, and 1[a = b] / p_a^0.4 in place of the others. The first sees rare levels,
the second is not diluted by them. A group of columns, which has no ranks, has two: wide, and a narrow one with
flattened eigenvalues. The choice is based on the study in docs/power.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from kernsift.estimators.null_laws.permutation_law import Invariants, invariants
from kernsift.execution.arrays import (
    Array,
    asarray_like,
    at_least,
    namespace,
    normal_quantiles,
    take,
    to_numpy,
    transposed,
)
from kernsift.kernels.fitted import FeatureKernels
from kernsift.kernels.functions import Gaussian
from kernsift.kernels.group_views import GroupView
from kernsift.kernels.low_rank import (
    COMMON,
    RARE,
    TOLERANCE,
    WIDE,
    KernelView,
    Levels,
    View,
    centred,
    group_views,
    kernel_views,
    pivoted,
)
from kernsift.kernels.quantisation import Grid

# Median distance between two standard normal variables, sqrt(2) times the upper quartile, and two uniform ones.
_NORMAL_MEDIAN = float(np.sqrt(2.0) * ndtri(0.75))
_UNIFORM_MEDIAN = 1.0 - float(np.sqrt(0.5))
# Bandwidths in median distances, powers of eigenvalues and the number of directions, as described above.
_NARROW, _NARROW_POWER = 0.7, 0.5
_LOCAL, _LOCAL_POWER = 0.65, 0.5
_SMOOTH_POWER, _SMOOTH_DIRECTIONS = 0.35, 5
_SCALE_POWER, _LOCATION_WEIGHT = 1.6, 0.6
_SQUARE_WEIGHT, _SCORE_WEIGHTS = 0.1, (0.3, 0.25, 0.25)
# The wide kernel is nearly a polynomial of low degree.
_WIDE_RANK, _NARROW_RANK = 40, 32
# Its tolerance is so small that its leading directions do not depend on the points.
_WIDE_TOLERANCE = 1e-6
RARE_LEVELS = ("wide", "normal-scores", "rank-scores", "smooth", "location", "local", "balanced")
"""Views whose counterpart for categories is that of rare levels; the others have that of common levels."""
# The share of the level of the first pair for classes that goes to the balanced view, where there are more than two.
_BALANCED_SHARE = 0.7


class Pair(NamedTuple):
    """A view of the feature, a view of the response, and the share of the level that their statistic has."""

    feature: str
    response: str
    weight: float


PLAIN = (Pair("plain", "plain", 1.0),)
CLASSES = (
    Pair("rank-scores", "plain", 0.58),
    Pair("location-scale", "plain", 0.3),
    Pair("narrow", "plain", 0.12),
)
"""Pairs for two samples, and responses with two values."""


def for_several_classes(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """The pairs of two classes for more: the first one also with the balanced view, as a class may be rare."""
    first, *others = pairs
    shares = (("plain", 1.0 - _BALANCED_SHARE), ("balanced", _BALANCED_SHARE))
    return (*(Pair(first.feature, name, share * first.weight) for name, share in shares), *others)


SEVERAL_CLASSES = for_several_classes(CLASSES)
"""Pairs for a response of several classes."""
NUMBERS = (
    Pair("wide", "wide", 0.3),
    Pair("normal-scores", "normal-scores", 0.43),
    Pair("narrow", "wide", 0.08),
    Pair("wide", "location-scale", 0.05),
    Pair("local", "local", 0.14),
)
"""Pairs for a response of numbers."""
SCORES = (
    Pair("wide", "plain", 0.65),
    Pair("smooth", "plain", 0.2),
    Pair("narrow", "plain", 0.15),
)
"""Pairs for a response with a linear kernel, as log-rank scores: a hazard that grows with the feature comes first."""


def merged(pairs: Sequence[Pair], same: Callable[[Pair], Hashable]) -> tuple[Pair, ...]:
    """The pairs without those that are the same as earlier ones, which have their shares of the level as well.

    Examples
    --------
    >>> merged((Pair("smooth", "plain", 0.5), Pair("scale", "plain", 0.3), Pair("narrow", "plain", 0.2)), len)
    (Pair(feature='smooth', response='plain', weight=1.0),)
    """
    found: dict[Hashable, Pair] = {}
    for pair in pairs:
        known = found.setdefault(same(pair), pair._replace(weight=0.0))
        found[same(pair)] = known._replace(weight=known.weight + pair.weight)
    return tuple(found.values())


def chosen_pairs(pairs: Sequence[Pair], winner: np.ndarray) -> np.ndarray:
    """(b,) the pairs with these numbers, as objects."""
    found = np.empty(len(pairs), dtype=object)
    for place, pair in enumerate(pairs):
        found[place] = pair
    return found[winner]


class FittedView(NamedTuple):
    """One view of b features.

    Attributes
    ----------
    view : View
        Factors and eigenvalues of the Gram matrices.
    own : Invariants
        Their invariants; those of one feature where all have the same view.
    rest : array of shape (b, G)
        Their diagonals, after the trace is removed.
    alike : bool
        Whether all features have the same view, as those of ranks without ties.
    levels : bool
        Whether the features are categorical.
    """

    view: View | GroupView
    own: Invariants
    rest: Array
    alike: bool = False
    levels: bool = False

    def take(self, features: np.ndarray) -> FittedView:
        """The views of some of the features, or of repeated ones."""
        assert isinstance(self.view, View)
        own = Invariants(*(part[features] for part in self.own))
        return FittedView(self.view.take(features), own, take(self.rest, features, 0), levels=self.levels)

    def at_points(self, levels: Levels) -> FittedView:
        """A view of the levels of categories, at their points."""
        assert isinstance(self.view, View)
        rest = levels.at_points(self.rest[:, None, :])[:, 0, :] if self.rest.shape[1] else self.rest
        return self._replace(view=View(levels.at_points(self.view.factor), self.view.sizes), rest=rest, levels=True)

    @property
    def first(self) -> FittedView:
        """The view of the first of features that are alike."""
        view = View(self.view.factor[:1, ...], self.view.sizes[:1, :])
        return FittedView(view, self.own, self.rest[:1, :])

    def repeated(self, b: int, prototype: Array) -> FittedView:
        """The view of one feature for b features, on the device of a prototype."""
        xp, there = namespace(prototype), self.moved_to(prototype)
        parts = (there.view.factor, there.view.sizes, there.rest)
        factor, sizes, rest = (xp.broadcast_to(part, (b, *part.shape[1:])) for part in parts)
        return FittedView(View(factor, sizes), self.own, rest, alike=True)

    def moved_to(self, prototype: Array) -> FittedView:
        """The view on the device of a prototype, from there or from the host."""
        if not isinstance(self.rest, np.ndarray):
            return self
        parts = (self.view.factor, self.view.sizes, self.rest)
        factor, sizes, rest = (asarray_like(part, prototype) for part in parts)
        return self._replace(view=View(factor, sizes), rest=rest)


def fitted(view: View | GroupView, counts: Array, n: int) -> FittedView:
    """A view with its invariants, which the permutation moments depend on."""
    own, rest = invariants(view, counts, n)
    return FittedView(view, own, rest)


def without_law(view: View | GroupView, counts: Array, n: int) -> FittedView:
    """A view without invariants, where the law of its statistic comes from elsewhere."""
    b = int(view.sizes.shape[0])
    own = Invariants(np.zeros(b), np.zeros((b, 2)), np.zeros((b, 5)))
    return FittedView(view, own, asarray_like(np.zeros((b, 0)), counts))


def fitted_views(
    names: Collection[str],
    grid: Grid,
    counts: Array,
    n: int,
    kernels: FeatureKernels,
    features: np.ndarray,
    landmarks: np.ndarray,
    fit: Callable[[View | GroupView, Array, int], FittedView] = fitted,
    added_rows: float = 0.0,
) -> dict[str, FittedView]:
    """The named views of a block of features, from their points and the number of rows (b, G) at each.

    The features are numeric columns, or categorical columns, or one group of columns. The landmarks of a group are
    chosen among the rows `landmarks`. `fit` adds to a view what its law needs; `added_rows` are for `views_of_levels`.
    """
    found: dict[str, FittedView] = {}
    if kernels.categorical[features].any():
        levels = Levels.of(counts)
        return views_of_levels(names, levels, lambda view: fit(view, levels.counts, n).at_points(levels), added_rows)
    if grid.edges is None:
        wide, narrow = kernel_views(kernels, adaptive=True)
        kinds = dict.fromkeys(names, wide) | {"plain": KernelView(kernels)}
        kinds |= dict.fromkeys(("scale", "location-scale", "narrow", "local"), narrow)
        different = {id(kinds[name]): kinds[name] for name in names}
        views: Sequence[View | GroupView] = group_views(list(different.values()), grid, counts, features, landmarks)
        fits = {kind: fit(view, counts, n) for kind, view in zip(different, views, strict=True)}
        return {name: fits[id(kinds[name])] for name in names}
    wide_view: View | None = None
    ranks: tuple[Array, np.ndarray] | None = None
    for name in names:
        if name == "plain":
            found[name] = fit(KernelView(kernels).view(grid, counts, features, landmarks), counts, n)
        elif name in ("wide", "moments", "scale", "location-scale"):
            own = kernels.select(features).rescaled(WIDE)
            if name != "wide" and grid.missing:
                found[name] = fit(_present(_VALUE_VIEWS[name], grid.points, own, counts), counts, n)
            elif name in ("scale", "location-scale"):
                found[name] = fit(_VALUE_VIEWS[name](grid.points, own, counts), counts, n)
            else:
                wide_view = wide_view or _wide(grid.points, own, counts, None if "wide" in names else 2)
                found[name] = fit(wide_view.leading(2) if name == "moments" else wide_view, counts, n)
        else:
            if ranks is None:
                ranks = _distinct(counts)
            shared, inverse = ranks
            if shared.shape[0] == 1:
                here = isinstance(counts, np.ndarray)
                known = to_numpy(shared).astype(float).tobytes()
                one = _without_ties(name, known, grid.missing, n, len(inverse) if here else 1)
                found[name] = one if here else one.repeated(len(inverse), counts)
            else:
                own_view = fit(_RANK_VIEWS[name](shared, grid.missing, kernels.large), shared, n).moved_to(counts)
                found[name] = own_view if shared.shape[0] == len(inverse) else own_view.take(inverse)
    return found


def views_of_levels(
    names: Collection[str], levels: Levels, fit: Callable[[View], FittedView], added_rows: float = 0.0
) -> dict[str, FittedView]:
    """The named views of categorical variables; names with the same kernel have the same view.

    `added_rows` is added to the rows of each level in its weight. It is the excess kurtosis of the response: with heavy
    tails the part of a level with few rows in T would have a longer tail than its law.
    """
    powers = {name: None if name == "plain" else RARE if name in RARE_LEVELS else COMMON for name in names}
    found = {
        power: fit(levels.equality() if power is None else levels.weighted(power, added_rows))
        for power in set(powers.values())
    }
    return {name: found[power] for name, power in powers.items()}


def _distinct(counts: Array) -> tuple[Array, np.ndarray]:
    """The distinct rows of counts, and the index of each row among them: columns without ties have equal counts.

    On a device the search stops at rows that are not all equal. Without double precision, which views of ranks need,
    the rows are returned on the host.
    """
    xp, b = namespace(counts), int(counts.shape[0])
    if bool(xp.all(counts == counts[:1, :])):
        return counts[:1, :], np.zeros(b, dtype=np.intp)
    if not isinstance(counts, np.ndarray) and counts.dtype == xp.float64:
        return counts, np.arange(b)
    on_host = to_numpy(counts).astype(float)
    # Faster than np.unique, which sorts rows as records.
    place: dict[bytes, int] = {}
    inverse = np.array([place.setdefault(row.tobytes(), len(place)) for row in on_host])
    return np.frombuffer(b"".join(place)).reshape(len(place), -1), inverse


@lru_cache(maxsize=512)
def _without_ties(name: str, counts: bytes, missing: bool, n: int, b: int) -> FittedView:
    """A view of the ranks of b columns; cached because it is the same for all columns without ties."""
    one = np.frombuffer(counts)[None, :]
    return fitted(_RANK_VIEWS[name](one, missing, False), one, n).repeated(b, one)


def _row_sums(values: Array) -> Array:
    return namespace(values).sum(values, axis=1, keepdims=True)


def _wide(points: Array, kernels: FeatureKernels, counts: Array, most: int | None) -> View:
    factor, _ = pivoted(points, kernels, counts, _WIDE_RANK, _WIDE_TOLERANCE)
    return centred(factor, counts, most=most)


def _moments(points: Array, kernels: FeatureKernels, counts: Array) -> View:
    return _wide(points, kernels, counts, 2).leading(2)


def _location_scale(points: Array, kernels: FeatureKernels, counts: Array, power: float = _SCALE_POWER) -> View:
    # The second direction of the wide view, nearly the same for normal values, can change places with the first one for
    # values with heavy tails.
    xp, n = namespace(counts), _row_sums(counts)
    values = xp.astype(transposed(points), counts.dtype)
    reach, places = xp.cumulative_sum(counts, axis=1), xp.arange(values.shape[1], device=values.device)
    middle = [places == _row_sums(xp.astype(below, xp.int64)) for below in (reach < n / 2, reach <= n / 2)]
    median = sum(_row_sums(xp.where(place, values, 0.0)) for place in middle) / 2
    away = (values - median) * xp.astype(kernels.inverse, counts.dtype)[:, None]
    signed = xp.where(counts > 0, xp.clip(away, -1.0, 1.0), 0.0)
    scale = xp.abs(signed) ** power
    whole = _row_sums(counts * scale * scale)
    signed, scale = (part - _row_sums(counts * part) / n for part in (signed, scale))
    spread = _row_sums(counts * signed * signed)
    scale = scale - signed * (_row_sums(counts * signed * scale) / xp.where(spread > 0, spread, 1.0))
    size = _row_sums(counts * scale * scale)
    # Values of two kinds have a location alone.
    lengths = xp.concat([xp.where(size > 1e-10 * whole, size, 0.0), spread], axis=1)
    weights = asarray_like(np.array([[1.0, _LOCATION_WEIGHT]]), counts)
    sizes = xp.where(lengths > 0, weights, 0.0)
    factor = xp.sqrt(sizes / xp.where(lengths > 0, lengths, 1.0))[:, :, None] * xp.stack([scale, signed], axis=1)
    return View(factor, sizes)


def _scale(points: Array, kernels: FeatureKernels, counts: Array) -> View:
    both = _location_scale(points, kernels, counts, 2.0)
    return View(both.factor[:, :1, :], both.sizes[:, :1])


def _present(
    of: Callable[[Array, FeatureKernels, Array], View], points: Array, kernels: FeatureKernels, counts: Array
) -> View:
    """A view of the present values, with the share of missing values as one more direction of the same weight."""
    xp = namespace(counts)
    there, n = counts[:, :-1], _row_sums(counts)
    # A column without any value gets a point with a count of 1, whose factor is 0 after centring.
    first = asarray_like(np.eye(1, int(there.shape[1])), counts)
    there = xp.where(_row_sums(there) > 0, there, first)
    own = of(points[:-1, :], kernels, there)
    factor = xp.concat([own.factor, xp.zeros_like(own.factor[:, :, :1])], axis=2)
    share = counts[:, -1:] / n
    indicator = xp.concat([xp.zeros_like(there), xp.ones_like(share)], axis=1) - share
    some = share * (1.0 - share) > 0
    indicator = xp.where(some, indicator / xp.sqrt(xp.where(some, n * share * (1.0 - share), 1.0)), 0.0)
    sizes = xp.concat([own.sizes, xp.astype(some, own.sizes.dtype)], axis=1)
    return View(xp.concat([factor, indicator[:, None, :]], axis=1), sizes)


def _midranks(counts: Array) -> Array:
    """(b, G) midranks of points in (0, 1), from the number of rows at each."""
    xp = namespace(counts)
    ends = xp.cumulative_sum(counts, axis=1)
    return xp.clip((ends - counts / 2) / xp.where(ends[:, -1:] > 0, ends[:, -1:], 1.0), 1e-300, 1.0 - 1e-16)


def _on_normal_scores(counts: Array, missing: bool, large: bool, bandwidth: float, rank: int, tolerance: float) -> View:
    """The Gaussian kernel on normal scores of the ranks; the bandwidth is in median distances."""
    scores = normal_quantiles(_midranks(counts[:, :-1] if missing else counts))
    return _gaussian(scores, counts, missing, large, bandwidth * _NORMAL_MEDIAN, rank, tolerance)


def _gaussian(
    scores: Array, counts: Array, missing: bool, large: bool, bandwidth: float, rank: int, tolerance: float
) -> View:
    """The Gaussian kernel on scores of the points.

    With `missing` the last point represents missing values, which have no score.
    """
    xp, b = namespace(counts), int(counts.shape[0])
    if missing:
        scores = xp.concat([scores, xp.full_like(scores[:, :1], xp.nan)], axis=1)
    width, flags = np.full(b, bandwidth), np.zeros(b, dtype=bool)
    inverse = asarray_like(1.0 / width, counts)
    kernels = FeatureKernels(Gaussian(), np.arange(b + 1), flags, inverse, None, width, missing=missing, large=large)
    factor, _ = pivoted(transposed(scores), kernels, counts, rank, tolerance)
    return centred(factor, counts)


def _of_ranks(
    counts: Array, missing: bool, others: Callable[[Array, Array], Sequence[Array]], weights: Sequence[float]
) -> View:
    """Normal scores z of the ranks u, and with smaller weights other functions of u and z of mean 0 and variance 1."""
    xp, there = namespace(counts), counts[:, :-1] if missing else counts
    n = at_least(_row_sums(there), 1.0)
    # Points without rows have ranks of 0 or 1.
    ranks = xp.minimum(xp.maximum(_midranks(there), 0.5 / n), 1.0 - 0.5 / n)
    normal = normal_quantiles(ranks)
    parts = [math.sqrt(weight) * part for weight, part in zip(weights, others(ranks, normal), strict=True)]
    factor = xp.stack([normal, *parts], axis=1)
    if missing:
        # Missing values have the mean score, and one more direction for their share.
        factor = factor - factor @ there[:, :, None] / n[:, :, None]
        share = counts[:, -1:] / _row_sums(counts)
        variance = share * (1.0 - share)
        apart = xp.where(variance > 0, 1.0 / xp.sqrt(at_least(variance, 1e-30)), 0.0)[:, :, None]
        zeros = xp.zeros_like(factor[:, :1, :])
        factor = xp.concat(
            [xp.concat([factor, zeros], axis=1), xp.concat([xp.zeros_like(factor[:, :, :1]), apart], axis=1)], axis=2
        )
    return centred(factor, counts)


def _normal_scores(counts: Array, missing: bool, large: bool) -> View:
    return _of_ranks(counts, missing, lambda _, normal: [_square(normal)], [_SQUARE_WEIGHT])


def _rank_scores(counts: Array, missing: bool, large: bool) -> View:
    def others(ranks: Array, normal: Array) -> list[Array]:
        sine, middle = namespace(ranks).sin(2.0 * math.pi * ranks), 2.0 * ranks - 1.0
        return [math.sqrt(2.0) * sine, _square(normal), math.sqrt(1.75) * (5.0 * middle * middle - 3.0) * middle]

    return _of_ranks(counts, missing, others, _SCORE_WEIGHTS)


def _square(normal: Array) -> Array:
    return math.sqrt(0.5) * (normal * normal - 1.0)


def _smooth(counts: Array, missing: bool, large: bool) -> View:
    view = _on_normal_scores(counts, missing, large, WIDE, _WIDE_RANK, _WIDE_TOLERANCE)
    some = to_numpy(counts[:, -1]) > 0 if missing else np.zeros(counts.shape[0], dtype=bool)
    # One more direction for the share of missing values, where there are any.
    size = min(_SMOOTH_DIRECTIONS + int(some.any()), view.sizes.shape[1])
    kept = np.arange(size) < _SMOOTH_DIRECTIONS + some[:, None]
    sizes = namespace(counts).where(asarray_like(kept, counts), view.sizes[:, :size], 0.0)
    return View(view.factor[:, :size, :], sizes).raised(_SMOOTH_POWER)


def _narrow(counts: Array, missing: bool, large: bool) -> View:
    return _on_normal_scores(counts, missing, large, _NARROW, _NARROW_RANK, TOLERANCE).raised(_NARROW_POWER)


def _local(counts: Array, missing: bool, large: bool) -> View:
    ranks = _midranks(counts[:, :-1] if missing else counts)
    width = _LOCAL * _UNIFORM_MEDIAN
    return _gaussian(ranks, counts, missing, large, width, _NARROW_RANK, TOLERANCE).raised(_LOCAL_POWER)


def _location(counts: Array, missing: bool, large: bool) -> View:
    return _on_normal_scores(counts, missing, large, WIDE, _WIDE_RANK, _WIDE_TOLERANCE).leading(1)


_VALUE_VIEWS: dict[str, Callable[[Array, FeatureKernels, Array], View]] = {
    "moments": _moments,
    "scale": _scale,
    "location-scale": _location_scale,
}
_RANK_VIEWS: dict[str, Callable[[Array, bool, bool], View]] = {
    "normal-scores": _normal_scores,
    "rank-scores": _rank_scores,
    "smooth": _smooth,
    "narrow": _narrow,
    "local": _local,
    "location": _location,
}
