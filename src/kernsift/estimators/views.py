"""Views of a variable: the kernels with which features and responses are tested.

A single kernel has little power against some shapes, so with an adaptive bandwidth each feature is tested with several.
A view is one kernel on one variable; a test statistic belongs to a pair of views, one of the feature and one of the
response (`kernsift.estimators.pairs`). `kernsift.kernels` makes the views; here they get what their null laws need.

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
plain
    The fitted kernel: the only view for a given bandwidth.

balanced
    Of a response of classes: the kernel 1[a = b] / p_a^1.15, p_a being the share of a class; nearly that of chi-square.

Rows at one point are ties and have their midrank. Categories have two views: the kernel 1[a = b] / p_a^1.15 in place of
the wide, smooth and local views, and 1[a = b] / p_a^0.4 in place of the others. The first is sensitive to rare levels,
the second is not dominated by them. A group of columns, which has no ranks, has two: wide, and a narrow one with
eigenvalues raised to the power 1/2. The choice is based on the study in docs/power.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from kernsift.estimators.null_laws.permutation_law import Invariants, invariants
from kernsift.execution.arrays import Array, asarray_like, namespace, take, to_numpy
from kernsift.kernels.fitted import FeatureKernels
from kernsift.kernels.group_views import GroupView
from kernsift.kernels.low_rank import COMMON, RARE, WIDE, KernelView, Levels, View, group_views, kernel_views
from kernsift.kernels.quantisation import Grid
from kernsift.kernels.rank_views import RANK_VIEWS
from kernsift.kernels.value_views import VALUE_VIEWS, wide_view, with_missing

RARE_LEVELS = ("wide", "normal-scores", "rank-scores", "smooth", "local", "balanced")
"""Views whose counterpart for categories is that of rare levels; the others have that of common levels."""


class FittedView(NamedTuple):
    """One view of b features."""

    view: View | GroupView  # factors and eigenvalues of the Gram matrices
    own: Invariants  # their invariants; those of one feature where all have the same view
    rest: Array  # (b, G) their diagonals, after the trace is removed
    alike: bool = False  # whether all features have the same view, as those of ranks without ties
    levels: bool = False  # whether the features are categorical

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


def fitted(view: View | GroupView, counts: Array, n: int, levels: bool = False) -> FittedView:
    """A view with its invariants, which the permutation moments depend on; `levels` for one of categories.

    The eigenvalues of a view of categories are nearly equal, so that its leading directions do not represent the others
    in third moments. Two rows that meet in a cell with a small expected count contribute much to these.
    """
    own, rest = invariants(view, counts, n, every_direction=levels)
    return FittedView(view, own, rest)


def without_law(view: View | GroupView, counts: Array, n: int, levels: bool = False) -> FittedView:
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
    fit: Callable[..., FittedView] = fitted,
    added_rows: float = 0.0,
) -> dict[str, FittedView]:
    """The named views of a block of features, from their points and the number of rows (b, G) at each.

    The features are numeric columns, or categorical columns, or one group of columns. The landmarks of a group are
    chosen among the rows `landmarks`. `fit` adds to a view what its law needs; `added_rows` are for `views_of_levels`.
    """
    found: dict[str, FittedView] = {}
    if kernels.categorical[features].any():
        levels = Levels.of(counts)
        fit_levels = partial(fit, counts=levels.counts, n=n, levels=True)
        return views_of_levels(names, levels, lambda view: fit_levels(view).at_points(levels), added_rows)
    if grid.edges is None:
        first, second = kernel_views(kernels, adaptive=True)
        kinds = dict.fromkeys(names, first) | {"plain": KernelView(kernels)}
        kinds |= dict.fromkeys(("scale", "location-scale", "narrow", "local"), second)
        different = {id(kinds[name]): kinds[name] for name in names}
        views: Sequence[View | GroupView] = group_views(list(different.values()), grid, counts, features, landmarks)
        scaled = [of_usable_size(view, kernels) for view in views]
        fits = {kind: fit(view, counts, n) for kind, view in zip(different, scaled, strict=True)}
        return {name: fits[id(kinds[name])] for name in names}
    wide: View | None = None
    ranks: tuple[Array, np.ndarray] | None = None
    for name in names:
        if name == "plain":
            plain = KernelView(kernels).view(grid, counts, features, landmarks)
            found[name] = fit(of_usable_size(plain, kernels), counts, n)
        elif name in ("wide", "moments", "scale", "location-scale"):
            own = kernels.select(features).rescaled(WIDE)
            if name != "wide" and grid.missing:
                found[name] = fit(with_missing(VALUE_VIEWS[name], grid.points, own, counts), counts, n)
            elif name in ("scale", "location-scale"):
                found[name] = fit(VALUE_VIEWS[name](grid.points, own, counts), counts, n)
            else:
                wide = wide or wide_view(grid.points, own, counts, None if "wide" in names else 2)
                found[name] = fit(wide.leading(2) if name == "moments" else wide, counts, n)
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
                own_view = fit(RANK_VIEWS[name](shared, grid.missing), shared, n).moved_to(counts)
                found[name] = own_view if shared.shape[0] == len(inverse) else own_view.take(inverse)
    return found


def of_usable_size(view: View | GroupView, kernels: FeatureKernels) -> View | GroupView:
    """A view whose third moments, sixth powers of the values of a linear kernel, neither overflow nor vanish."""
    return view.of_size_one() if kernels.kernel.unbounded else view


def views_of_levels(
    names: Collection[str], levels: Levels, fit: Callable[[View], FittedView], added_rows: float = 0.0
) -> dict[str, FittedView]:
    """The named views of categorical variables; names with the same kernel have the same view.

    `added_rows` is added to the rows of each level in its weight (`Response.added_rows`): with heavy tails or many
    classes of the response the part of a level with few rows in T would have a longer tail than its law.
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
    return fitted(RANK_VIEWS[name](one, missing), one, n).repeated(b, one)
