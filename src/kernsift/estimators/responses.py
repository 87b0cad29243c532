"""Responses and sample labels, and sums of their factors over the points of features."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from kernsift.data.tables import Table
from kernsift.estimators.null_laws.permutation_law import Invariants, score_of
from kernsift.estimators.pairs import CLASSES, NUMBERS, PLAIN, SCORES, SEVERAL_CLASSES, Pair
from kernsift.estimators.views import FittedView, fitted, fitted_views, views_of_levels
from kernsift.execution.arrays import Array, asarray_like, namespace, take, to_numpy
from kernsift.execution.codes import bincount
from kernsift.kernels.bandwidths import rows_to_sort
from kernsift.kernels.contingency import Tabulation, tabulate
from kernsift.kernels.fitted import FeatureKernels
from kernsift.kernels.functions import Linear
from kernsift.kernels.group_views import GroupView
from kernsift.kernels.low_rank import CATEGORIES, Levels, View, landmark_rows
from kernsift.kernels.quantisation import fit_grid

# Points of a response: its factor has at most about 25 directions, so that more points would not matter.
_POINTS = 64
# Rows added to each class in the weights of the balanced view: the mean of a feature over few rows is far from normal.
_ADDED_ROWS = 5.0


class ResponseView(NamedTuple):
    """One view of a response."""

    fitted: FittedView  # the view, as of a feature
    sizes: np.ndarray  # (p,) eigenvalues of its Gram matrix
    own: Invariants  # its invariants, which the permutation moments depend on

    @classmethod
    def of(cls, fitted: FittedView) -> ResponseView:
        own = Invariants(*(part[0] for part in fitted.own))
        return cls(fitted, to_numpy(fitted.view.sizes)[0], own)

    @property
    def factor(self) -> Array:
        """(p, points) its centred factor; that of several columns is recomputed at each use."""
        return self.fitted.view.factor[0, ...]

    def at(self, points: Array | slice, count: int | None = None) -> Array:
        """(p, points) the factor at some points, or its first `count` directions."""
        view = self.fitted.view
        if isinstance(view, GroupView):
            return view.at(points, count)[0]
        factor = self.factor[:count, :]
        return factor[:, points] if isinstance(points, slice) else namespace(factor).take(factor, points, axis=1)

    def inner(self, other: ResponseView, counts: Array) -> Array:
        """(p, p') inner products of the directions with those of another view, over all rows."""
        one, two = self.fitted.view, other.fitted.view
        if isinstance(one, GroupView) and isinstance(two, GroupView):
            return one.inner(two)[0]
        return (self.factor * counts) @ namespace(self.factor).matrix_transpose(other.factor)


class Response(NamedTuple):
    """A response of n rows, rounded like a feature."""

    n: int  # number of rows
    cells: Array | None  # (n,) the point of each row; None where each row is a point, as for several columns
    counts: Array  # (points,) number of rows at each point
    views: dict[str, ResponseView]  # its views by name
    pairs: tuple[Pair, ...]  # the pairs of views whose statistics are combined
    ceiling: float  # the highest score: a permutation p-value is at least one over the number of matchings
    alike: np.ndarray | None = None  # (n,) of several columns: the same number for rows with the same values

    @property
    def first(self) -> ResponseView:
        """The only view, or the first of several."""
        return next(iter(self.views.values()))

    @property
    def weights(self) -> np.ndarray:
        """(pairs,) shares of the level that the pairs have."""
        return np.array([pair.weight for pair in self.pairs])

    def at(self, rows: slice | np.ndarray | None, view: ResponseView, count: int | None = None) -> Array:
        """(p, rows) the factor of a view at some rows, None for all, or its first `count` directions."""
        points = slice(None) if rows is None else rows
        if not isinstance(points, slice):
            points = asarray_like(points, self.counts)
        if self.cells is not None:
            points = self.cells[points] if isinstance(points, slice) else namespace(self.cells).take(self.cells, points)
        return view.at(points, count)

    def at_distinct_rows(self) -> tuple[Response, dict[int, ResponseView]]:
        """The response with a point per distinct row, and by the `id` of its views those with these points."""
        assert self.alike is not None
        _, first, cells, counts = np.unique(self.alike, return_index=True, return_inverse=True, return_counts=True)
        views = {}
        for view in self.views.values():
            own = View(to_numpy(view.at(asarray_like(first, self.counts)))[None], view.sizes[None])
            views[id(view)] = view._replace(fitted=view.fitted._replace(view=own))
        return self._replace(cells=cells, counts=counts.astype(float)), views

    @property
    def added_rows(self) -> float:
        """Rows that are added to those of each level of a categorical feature in its weight.

        The largest E|g|^4 / (E|g|^2)^2 - 3 of a view with the factor g, or 0 if all are negative: where it is large, as
        with a rare class, the mean of g over few rows is far from normal. Of several classes with shares q at least
        sqrt(2 / sum q^2) - 2, where the root is the number of rows of which two are expected to be in one class: of
        fewer, the share in T is mostly 0 and rarely large.
        """
        known = [view.fitted.own for view in self.views.values()]
        rows = [float(self.n * own.second[0, 1] / max(own.trace[0] ** 2, 1e-300)) - 2.0 for own in known]
        if "balanced" in self.views:
            shares = to_numpy(self.counts) / self.n
            rows.append(float(np.sqrt(2.0 / (shares * shares).sum())) - 2.0)
        return max(0.0, *rows)


def label_response(n: int, m: int, values: Array, adaptive: bool = False) -> Response:
    """The label of two samples whose rows are stacked."""
    cells = asarray_like(np.repeat([0, 1], [n, m]), values)
    counts = asarray_like(np.array([n, m], dtype=float), values)
    return _two_classes(n + m, cells, counts, adaptive)


def _two_classes(n: int, cells: Array, counts: Array, adaptive: bool) -> Response:
    """A response with two values, for which all kernels are equal up to a factor."""
    view, log_matchings = _two_values(n, float(to_numpy(counts)[0]))
    pairs = CLASSES if adaptive else PLAIN
    return _response(n, cells, counts, {"plain": view.moved_to(counts)}, pairs, log_matchings)


@lru_cache(maxsize=256)
def _two_values(n: int, first: float) -> tuple[FittedView, float]:
    """The view of n rows, `first` of which have the first of two values, and the log number of their matchings."""
    share, counts = first / n, np.array([first, n - first])
    view = View(np.array([[[1.0 - share, -share]]]), np.array([[first * (1.0 - share)]]))
    return fitted(view, counts[None, :], n), _log_matchings(counts)


def table_response(
    y: Table,
    kernels: FeatureKernels,
    rng: np.random.Generator,
    adaptive: bool = False,
    numbers: tuple[Pair, ...] = NUMBERS,
) -> Response:
    """A numeric or categorical response, or one of several columns, with its own kernels.

    `numbers` are the pairs of views for a response of numbers.
    """
    feature = np.array([0])
    grid = fit_grid(y, feature, rows_to_sort(y.n), _POINTS, kernels.rounds)
    known = tabulate(y, feature, grid)
    landmarks = landmark_rows(y.n, rng)
    xp, counts = namespace(known.counts), known.counts[0, :]
    cells = None if known.codes is None else xp.astype(known.codes[0, :], xp.int64)
    used = to_numpy(counts) > 0
    if cells is not None and used.sum() == 2:
        cells = xp.astype(cells == int(np.flatnonzero(used)[1]), xp.int64)
        return _two_classes(y.n, cells, take(counts, np.flatnonzero(used), 0), adaptive)
    pairs: tuple[Pair, ...] = PLAIN
    if adaptive:
        linear = isinstance(kernels.kernel, Linear)
        pairs = SEVERAL_CLASSES if kernels.categorical[0] else SCORES if linear else numbers
    names = dict.fromkeys(pair.response for pair in pairs)
    alike, rows = None, to_numpy(counts)
    if cells is None:
        alike, rows = _distinct_rows(to_numpy(y.values))
    symmetric = bool(kernels.categorical[0])
    if symmetric and cells is not None and used.sum() > CATEGORIES:
        # A table of counts of every feature by every category would be large.
        levels = Levels.of(known.counts)
        cells, counts = xp.take(levels.places[0, :], cells), levels.counts[0, :]
        views = views_of_levels(names, levels, lambda view: fitted(view, levels.counts, y.n, levels=True), _ADDED_ROWS)
    else:
        views = fitted_views(names, grid, known.counts, y.n, kernels, feature, landmarks, added_rows=_ADDED_ROWS)
    found = _response(y.n, cells, counts, views, pairs, _log_matchings(rows, symmetric))
    return found._replace(alike=alike)


def _distinct_rows(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n,) the number of each row's values among the distinct ones in increasing order, and the rows with each.

    As `numpy.unique` of rows, which takes several times the memory of the rows.
    """
    order = np.lexsort(values.T[::-1])
    new = np.zeros(len(order), dtype=bool)
    for column in values.T:
        ordered = column[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    alike = np.empty(len(order), dtype=np.intp)
    alike[order] = new.cumsum()
    return alike, np.bincount(alike)


def _log_matchings(counts: np.ndarray, symmetric: bool = True) -> float:
    """Log of the number of distinguishable matchings of rows, for values with these counts.

    `symmetric` for classes: exchanging classes of equal size does not change the statistic.
    """
    counts = counts[counts > 0]
    total = gammaln(counts.sum() + 1) - gammaln(counts + 1).sum()
    if symmetric:
        total -= gammaln(np.unique(counts, return_counts=True)[1] + 1).sum()
    return float(total)


def _response(
    n: int,
    cells: Array | None,
    counts: Array,
    views: dict[str, FittedView],
    pairs: tuple[Pair, ...],
    log_matchings: float,
) -> Response:
    known = {name: ResponseView.of(view) for name, view in views.items()}
    # A single matching has the score of p = 1.
    ceiling = float(score_of(np.array([-max(log_matchings, 1e-15)]))[0])
    return Response(n, cells, counts, known, pairs, ceiling)


def response_sums(known: Tabulation, response: Response, view: ResponseView) -> Any:
    """Sums (b, G, p) of the factor of a view of the response over the rows of each point of a block of features.

    For features with one point per row in host memory, a function from rows to their factor (rows, p).
    """

    def rows_of(rows: slice) -> Array:
        found = response.at(rows, view)
        return namespace(found).matrix_transpose(found)

    if known.joint is not None:
        return known.joint @ namespace(known.joint).matrix_transpose(view.factor)
    if known.codes is None:
        return rows_of if isinstance(known.counts, np.ndarray) else rows_of(slice(None))[None, ...]
    points = known.counts.shape[1]
    if isinstance(view.fitted.view, GroupView):
        return view.fitted.view.summed(known.codes, points)
    return summed_rows(known.codes, response.at(None, view), points)


def summed_rows(codes: Array, values: Array, points: int) -> Array:
    """(b, G, p): sums of `values` (p, rows) over the rows at each point; `codes` are (b, rows)."""
    xp, b = namespace(codes), codes.shape[0]
    place = xp.astype(codes, xp.int64) + xp.arange(b, device=codes.device)[:, None] * points
    sums = [
        bincount(place, b * points, xp.broadcast_to(values[direction, :][None, :], place.shape))
        for direction in range(values.shape[0])
    ]
    return xp.reshape(xp.stack(sums, axis=-1), (b, points, values.shape[0]))
