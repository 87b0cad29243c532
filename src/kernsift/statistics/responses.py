"""What features are held against: a response, or the sample label, and how its rows meet the points of features."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from kernsift.arrays import Array, beside, namespace, tally, to_numpy
from kernsift.factors import GROUP_ROWS, Lens, View
from kernsift.grids import fit_grid, rows_to_sort
from kernsift.kernels import FeatureKernels
from kernsift.permutation import Invariants, invariants, score_of
from kernsift.tables import Table
from kernsift.tabulation import Tabulation, tabulate

# Points of a response: as its factor has no more than some 25 directions, more would change nothing.
_POINTS = 64


class Response(NamedTuple):
    """A response of n rows, rounded like a feature.

    Attributes
    ----------
    n : rows.
    cells : (n,) which point each row has; None where each row is its own, as for a response of several columns.
    factor : (p, points) its centred factor.
    counts : (points,) how many rows each point stands for.
    sizes : (p,) eigenvalues of its Gram matrix.
    own : what the permutation moments need of it.
    ceiling : the highest score allowed: no permutation test can say less than one over the number of matchings.
    """

    n: int
    cells: Array | None
    factor: Array
    counts: Array
    sizes: np.ndarray
    own: Invariants
    ceiling: float


def label_response(n: int, m: int, beside_values: Array) -> Response:
    """The label of two samples, whose rows lie one below the other."""
    share = n / (n + m)
    factor = beside(np.array([[1.0 - share, -share]]), beside_values)
    counts = beside(np.array([n, m], dtype=float), beside_values)
    cells = beside(np.repeat([0, 1], [n, m]), beside_values)
    sizes = beside(np.array([[n * (1.0 - share)]]), beside_values)
    matchings = gammaln(n + m + 1) - gammaln(n + 1) - gammaln(m + 1)
    return _response(n + m, cells, View(factor[None, ...], sizes), counts, matchings)


def table_response(y: Table, kernels: FeatureKernels, rng: np.random.Generator) -> Response:
    """A response with kernels of its own: numbers, categories, or several columns together."""
    feature = np.array([0])
    grid = fit_grid(y, feature, rows_to_sort(y.n, rng), _POINTS, kernels.rounds)
    known = tabulate(y, feature, grid, None, 1, None)
    landmarks = np.sort(rng.choice(y.n, min(y.n, GROUP_ROWS), replace=False))
    view = Lens(kernels).view(grid, known.counts, feature, landmarks)
    alike = _multiplicities(y) if known.codes is None else to_numpy(known.counts[0, :])
    matchings = gammaln(y.n + 1) - gammaln(alike + 1).sum()
    cells = (
        None if known.codes is None else namespace(known.codes).astype(known.codes[0, :], namespace(known.codes).int64)
    )
    return _response(y.n, cells, view, known.counts[0, :], matchings)


def _multiplicities(y: Table) -> np.ndarray:
    return np.unique(to_numpy(y.values), axis=0, return_counts=True)[1]


def _response(n: int, cells: Array | None, view: View, counts: Array, log_matchings: float) -> Response:
    sums, _ = invariants(view, counts[None, :], n)
    own = Invariants(*(part[0] for part in sums))
    ceiling = float(score_of(np.array([-max(float(log_matchings), math.log(2.0))]))[0])
    return Response(n, cells, view.factor[0, ...], counts, to_numpy(view.sizes)[0], own, ceiling)


class Meeting:
    """The rows of a block of features meeting the rows of a response.

    Attributes
    ----------
    joint : (b, G, cells) how many rows of each feature have this point and that cell; None where either side has a
        point for each row.
    sums : (b, G, p) sums of the response's factor over the rows of each point.
    """

    def __init__(self, known: Tabulation, response: Response) -> None:
        self.response, self.joint = response, known.joint
        # Without cells all codes were kept.
        self._codes = known.codes if known.joint is None else None
        xp = namespace(response.factor)
        if self.joint is not None:
            self.sums = self.joint @ xp.matrix_transpose(response.factor)
        elif self._codes is None:
            self.sums = xp.matrix_transpose(self._rows())[None, ...]
        else:
            self.sums = summed_rows(self._codes, self._rows(), known.counts.shape[1])

    def _rows(self) -> Array:
        """(p, n) the response's factor row by row."""
        factor, cells = self.response.factor, self.response.cells
        return factor if cells is None else namespace(factor).take(factor, cells, axis=1)

    def variance(self, along: Array) -> Array:
        """(b,) variance over rows of the product of `along` (b, G, p) at a row's point with the response's factor."""
        xp, factor = namespace(along), self.response.factor
        if self.joint is not None:
            products = along @ factor
            weights = self.joint / self.response.n
            mean = xp.sum(weights * products, axis=(1, 2))
            return xp.sum(weights * (products - mean[:, None, None]) ** 2, axis=(1, 2))
        own = xp.matrix_transpose(self._rows())
        if self._codes is None:
            return xp.var(xp.sum(along * own[None, ...], axis=2), axis=1)
        codes = xp.astype(self._codes, xp.int64)
        each = [
            xp.var(xp.sum(xp.take(along[place, ...], codes[place, :], axis=0) * own, axis=1))
            for place in range(along.shape[0])
        ]
        return xp.stack(each)


def summed_rows(codes: Array, values: Array, points: int) -> Array:
    """(b, G, p): sums of `values` (p, rows) over the rows that have each of the points; `codes` are (b, rows)."""
    xp, b = namespace(codes), codes.shape[0]
    place = xp.astype(codes, xp.int64) + xp.arange(b, device=codes.device)[:, None] * points
    sums = [
        tally(place, b * points, xp.broadcast_to(values[direction, :][None, :], place.shape))
        for direction in range(values.shape[0])
    ]
    return xp.reshape(xp.stack(sums, axis=-1), (b, points, values.shape[0]))
