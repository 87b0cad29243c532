"""The law within strata from counts of points by stratum, for many rows in few strata.

Where rows are many, the moments of each stratum by itself add nothing to those of V (see
`kernsift.estimators.restricted.stratified_law`): mean, variance and third moment are tr V, 2 tr V^2 and 8 tr V^3, and V
depends only on the number of rows of each stratum at each point of the feature. The response is taken to vary alike in
all strata up to a factor r_b: V = (sum_b r_b S_b) (x) R.

What this leaves out is a share of about n k l, with the sums of squared diagonals of both Gram matrices over their
squared traces, k and l. These are one over the effective numbers of rows. Features that few rows carry, or many if few
rows carry the response, get exact moments.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernsift.data.rows.exchangeability import Exchangeability
from kernsift.estimators.responses import summed_rows
from kernsift.estimators.restricted.strata import Strata
from kernsift.execution.arrays import Array, asarray_like, namespace, slices, take, to_numpy
from kernsift.execution.codes import bincount_rows
from kernsift.kernels.contingency import Tabulation
from kernsift.kernels.sparse_columns import SparseCodes

FEWEST = 2**10
"""The fewest rows that are counted by point and stratum."""
# Moments are exact where those of V leave out more than this share.
_LEFT_OUT = 0.02
# Traces within strata of at most this share of those around 0 are rounding errors.
_ROUNDING = 1e-12
# The most numbers of factors with exact moments.
_NUMBERS = 2**22
# The most strata, the fewest rows of these on average, and the most cells of strata and responses together: a table has
# as many columns for every point.
_MOST_STRATA, _ROWS_PER_STRATUM, _MOST_CELLS = 2**8, 2**4, 2**9


class CountedCells(NamedTuple):
    """Cells by which rows are counted: responses within strata, or the strata if there are too many of these.

    Attributes
    ----------
    strata : of the rows that can be exchanged, which are sorted by these.
    of_row : (n,) the cell of each row of the table; rows that cannot be exchanged have the last one.
    of_sorted : (N,) the cell of each sorted row.
    indicator : (C, S) 1 for the stratum of a cell.
    one_response : whether all rows of a cell have the same response.
    response : (n,) the response of each row, as codes; the last one for rows that cannot be exchanged.
    """

    strata: Strata
    of_row: np.ndarray
    of_sorted: np.ndarray
    indicator: np.ndarray
    one_response: bool
    response: np.ndarray

    @classmethod
    def of(cls, rows: Exchangeability, strata: Strata, response: np.ndarray) -> CountedCells | None:
        """From the response (N,) of sorted rows, as codes.

        None where rows are taken one by one: few of them, small strata, or units.
        """
        most = min(_MOST_STRATA, len(strata.order) // _ROWS_PER_STRATUM)
        if rows.unit is not None or len(strata.order) < FEWEST or len(strata.sizes) > most:
            return None
        stratum, count = strata.of_row, int(response.max()) + 1
        known, inverse = np.unique(stratum * count + response, return_inverse=True)
        one_response = len(known) <= _MOST_CELLS
        cell = inverse.ravel() if one_response else stratum
        of_row = np.full(rows.n, int(cell.max()) + 1)
        of_row[strata.order] = cell
        indicator = np.zeros((int(cell.max()) + 1, len(strata.sizes)))
        indicator[cell, stratum] = 1.0
        by_row = np.full(rows.n, count)
        by_row[strata.order] = response
        return cls(strata, of_row, cell, indicator, one_response, by_row)

    @property
    def number(self) -> int:
        """Cells, with that of rows that cannot be exchanged."""
        return len(self.indicator) + 1

    def kept(self, to_align: np.ndarray | None) -> np.ndarray | None:
        """The rows of the table whose points are needed one by one; None for all.

        The sorted rows `to_align` are in the order of the table.
        """
        return self.strata.order[to_align] if self.one_response and to_align is not None else None


class CountedFactor(NamedTuple):
    """Factors (b, m, G) of features on their points, the same weighted by r_b, and their sums (b, m, S) by stratum."""

    factor: Array
    weighted: Array
    sums: Array


class CentredValues(NamedTuple):
    """Factors (b, m, values) of features less the means of strata, and weights (b, values) of points in strata."""

    factor: np.ndarray
    weights: np.ndarray | None
    strata: Strata


class StratifiedCounts(NamedTuple):
    """The rows of a block of features, by point and stratum.

    Attributes
    ----------
    cells : what is counted.
    codes : (b, rows) the points of the rows of the table, of all or of those that correlations come from.
    joint : (b, G, C) rows of each cell at each point.
    counts : (b, G, S) the same for strata.
    shares : (S,) r_b, what the response varies in each stratum.
    """

    cells: CountedCells
    codes: Array
    joint: Array
    counts: Array
    shares: np.ndarray

    @classmethod
    def of(cls, known: Tabulation, cells: CountedCells, target: np.ndarray) -> StratifiedCounts:
        """From counts by cell and a factor (p, N) of the response."""
        assert known.joint is not None
        strata, joint = cells.strata, known.joint[:, :, : cells.number - 1]
        codes = np.asarray(known.codes) if isinstance(known.codes, SparseCodes) else known.codes
        shares = strata.sums((target * target).sum(axis=0)) / (strata.sizes - 1)
        return cls(cells, codes, joint, joint @ asarray_like(cells.indicator, joint), shares)

    def points(self, rows: np.ndarray | None) -> Tabulation:
        """The points of the features, with the codes of some sorted rows, or of all."""
        codes, order = self.codes, self.cells.strata.order if rows is None else self.cells.strata.order[rows]
        if self.cells.kept(rows) is None:
            codes = take(codes, order, 1)
        return Tabulation(namespace(self.counts).sum(self.counts, axis=2), None, codes)

    def response_sums(self, targets: dict[str, np.ndarray], values: dict[str, np.ndarray]) -> dict[str, Array]:
        """(b, G, p) sums of factors (p, N) of the response over the rows of each point.

        `values` (p, C) are the factors of different responses, of which those of rows differ by the means of strata.
        """
        cells, strata, found = self.cells, self.cells.strata, {}
        # Rows that cannot be exchanged have one more response.
        points, count = self.joint.shape[1], int(cells.response[strata.order].max()) + 1
        if not cells.one_response and count <= points:
            responses = asarray_like(cells.response, self.codes)
            by_response = namespace(self.joint).astype(
                bincount_rows(self.codes, points, responses, count + 1), self.joint.dtype
            )
        for name, target in targets.items():
            if cells.one_response:
                by_cell = np.empty((cells.number - 1, len(target)))
                by_cell[cells.of_sorted] = target.T
                found[name] = self.joint @ asarray_like(by_cell, self.joint)
            elif count <= points:
                own = values[name][:, :count]
                means = own[:, cells.response[strata.order[strata.starts]]] - target[:, strata.starts]
                found[name] = by_response[:, :, :count] @ asarray_like(own.T, self.joint)
                found[name] = found[name] - self.counts @ asarray_like(means.T, self.joint)
            else:
                by_row = np.zeros((len(target), len(cells.of_row)))
                by_row[:, strata.order] = target
                found[name] = summed_rows(self.codes, asarray_like(by_row, self.joint), points)
        return found

    def counted(self, factor: Array) -> CountedFactor:
        """A factor (b, m, G) with what its scatter within strata needs."""
        rows = self.counts @ asarray_like(self.shares, self.counts)
        return CountedFactor(factor, factor * rows[:, None, :], factor @ self.counts)

    def scatter(self, one: CountedFactor, other: CountedFactor) -> Array:
        """(b, m, q) sums over strata of r_b S_b."""
        means = one.sums * asarray_like(self.shares / self.cells.strata.sizes, one.sums)
        turned = namespace(one.sums).matrix_transpose
        return one.weighted @ turned(other.factor) - means @ turned(other.sums)

    def unweighted_scatter(self, one: CountedFactor) -> Array:
        """(b, m, m) sums over strata of S_b."""
        xp = namespace(one.sums)
        means = one.sums / asarray_like(self.cells.strata.sizes.astype(float), one.sums)
        whole = one.factor * xp.sum(self.counts, axis=2)[:, None, :]
        return whole @ xp.matrix_transpose(one.factor) - means @ xp.matrix_transpose(one.sums)

    def traces(self, one: CountedFactor) -> np.ndarray:
        """(b, S) traces of the scatter in each stratum; 0 for rounding errors where the feature is constant."""
        xp = namespace(one.sums)
        squares = to_numpy((xp.sum(one.factor * one.factor, axis=1)[:, None, :] @ self.counts)[:, 0, :])
        found = squares - to_numpy(xp.sum(one.sums * one.sums, axis=1)) / self.cells.strata.sizes
        return np.where(found > _ROUNDING * squares, found, 0.0)

    def carried_by_few_rows(self, one: CountedFactor, target: np.ndarray) -> np.ndarray:
        """(b,) whether the moments of V are not those of features with this factor and a response with one of (p, N).

        Diagonals are those before strata are centred, so that none is missed that varies mostly between strata.
        """
        xp = namespace(one.factor)
        diagonal, response = xp.sum(one.factor * one.factor, axis=1), (target * target).sum(axis=0)
        squares = to_numpy(xp.sum(diagonal * diagonal * xp.sum(self.counts, axis=2), axis=1))
        trace = self.traces(one).sum(axis=1)
        share = squares / np.where(trace > 0, trace, np.inf) ** 2
        return np.asarray(len(response) * share * (response**2).sum() > _LEFT_OUT * response.sum() ** 2)

    def parts_of(self, features: np.ndarray, directions: int) -> list[np.ndarray]:
        """Some features in parts, whose `centred` values in so many directions are not too many."""
        strata = self.cells.strata
        values = min(self.counts.shape[1] * len(strata.sizes), len(strata.order))
        step = max(1, _NUMBERS // (directions * values))
        return [features[part] for part in slices(0, len(features), step)]

    def centred(self, factor: Array, features: np.ndarray) -> CentredValues:
        """Factors (b, m, G) of some of the features less the means of strata.

        Values are those of all points in each stratum, or those of the rows if these are fewer.
        """
        strata, own = self.cells.strata, to_numpy(take(factor, features, 0)).astype(float)
        counts = to_numpy(take(self.counts, features, 0)).astype(float)
        used = counts.any(axis=(0, 2))
        points = int(used.sum())
        if points * len(strata.sizes) < len(strata.order):
            own, counts = own[:, :, used], counts[:, used]
            values = own[:, :, None, :] - (own @ counts / strata.sizes)[..., None]
            weights = counts.transpose(0, 2, 1).reshape(len(counts), -1)
            return CentredValues(values.reshape(*own.shape[:2], -1), weights, strata._replace(points=points))
        rows = [one[:, self.row_codes(place)] for one, place in zip(own, features.tolist(), strict=True)]
        return CentredValues(strata.centred(np.stack(rows)), None, strata)

    def row_codes(self, feature: int) -> np.ndarray:
        """(N,) the points of the sorted rows of one feature, up to exchanges of rows of a cell with one response."""
        if not self.cells.one_response:
            return to_numpy(self.codes[feature, :])[self.cells.strata.order]
        joint = to_numpy(self.joint[feature, :, :]).astype(int)
        codes = np.empty(len(self.cells.of_sorted), dtype=int)
        points = np.tile(np.arange(len(joint)), joint.shape[1])
        codes[np.argsort(self.cells.of_sorted, kind="stable")] = np.repeat(points, joint.T.ravel())
        return codes
