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
from kernsift.estimators.restricted.strata import ROUNDING, Strata
from kernsift.execution.arrays import Array, asarray_like, namespace, slices, take, to_numpy
from kernsift.execution.codes import bincount_rows
from kernsift.kernels.contingency import Tabulation
from kernsift.kernels.sparse_columns import SparseCodes

FEWEST = 2**10
"""The fewest rows that are counted by point and stratum."""
# Moments are exact where those of V leave out more than this share.
_LEFT_OUT = 0.02
# The most numbers of factors with exact moments.
_NUMBERS = 2**22
# The most strata, and the fewest rows of these on average: a table has a column for every stratum.
_MOST_STRATA, _ROWS_PER_STRATUM = 2**8, 2**4
# The most cells of a table that has a column for every response in every stratum.
_MOST_CELLS = 2**7


class RowCodes(NamedTuple):
    """The stratum and the response of each row of a table, by which rows are counted.

    Attributes
    ----------
    strata : of the rows that can be exchanged.
    stratum, response : (n,) codes; rows that cannot be exchanged have the last ones.
    responses : how many responses there are among the rows that can be exchanged.
    together : whether rows are counted by stratum and response in one pass. That is faster on a device, and slower on
        the host, where the table of counts no longer fits into the cache.
    """

    strata: Strata
    stratum: np.ndarray
    response: np.ndarray
    responses: int
    together: bool

    @classmethod
    def of(
        cls, rows: Exchangeability, strata: Strata, response: np.ndarray, *, on_device: bool = False
    ) -> RowCodes | None:
        """From the response (N,) of sorted rows, as codes.

        None where rows are taken one by one: few of them, small strata, or units.
        """
        most = min(_MOST_STRATA, len(strata.order) // _ROWS_PER_STRATUM)
        if rows.unit is not None or len(strata.order) < FEWEST or len(strata.sizes) > most:
            return None
        count = int(response.max()) + 1
        stratum, responses = np.full(rows.n, len(strata.sizes)), np.full(rows.n, count)
        stratum[strata.order], responses[strata.order] = strata.of_row, response
        together = on_device and len(strata.sizes) * count < _MOST_CELLS
        return cls(strata, stratum, responses, count, together)

    @property
    def cells(self) -> np.ndarray:
        """(n,) what rows are counted by; those that cannot be exchanged have the last cell."""
        if not self.together:
            return self.stratum
        return np.minimum(self.stratum * self.responses + self.response, self.cell_count - 1)

    @property
    def cell_count(self) -> int:
        return len(self.strata.sizes) * (self.responses if self.together else 1) + 1


class CountedFactor(NamedTuple):
    """Factors of features on their points, and what their scatter within strata needs."""

    factor: Array  # (b, m, G); 0 for features that are constant within strata
    weighted: Array  # (b, m, G) the same, weighted by rows times r_b
    sums: Array  # (b, m, S) sums by stratum
    traces: np.ndarray  # (b, S) traces of the scatter in each stratum; exactly 0 where the feature is constant there


class StratifiedCounts(NamedTuple):
    """The rows of a block of features, by point and stratum.

    Attributes
    ----------
    rows : what they are counted by.
    codes : (b, n) the points of the rows of the table.
    counts : (b, G, S) rows of each stratum at each point.
    totals : (b, G) rows at each point, of all strata.
    joint : (b, G, C) rows of each response at each point; None where these are not counted together.
    shares : (S,) r_b, what the response varies in each stratum.
    """

    rows: RowCodes
    codes: Array | SparseCodes
    counts: Array
    totals: Array
    joint: Array | None
    shares: np.ndarray

    @classmethod
    def of(cls, known: Tabulation, rows: RowCodes, target: np.ndarray) -> StratifiedCounts:
        """From counts by the cells of rows and a factor (p, N) of the response."""
        assert known.joint is not None
        shares = rows.strata.sums((target * target).sum(axis=0)) / (rows.strata.sizes - 1)
        counts, joint = known.joint[:, :, : rows.cell_count - 1], None
        # Products are faster than sums over a short axis.
        if rows.together:
            strata, responses = np.eye(len(shares)), np.eye(rows.responses)
            joint = counts @ asarray_like(np.tile(responses, (len(shares), 1)), counts)
            counts = counts @ asarray_like(np.repeat(strata, rows.responses, axis=0), counts)
        return cls(rows, known.codes, counts, counts @ asarray_like(np.ones(len(shares)), counts), joint, shares)

    def points(self, rows: np.ndarray | None) -> Tabulation:
        """The points of the features, with the codes of some sorted rows, or of all."""
        order = self.rows.strata.order
        order = order if rows is None else order[rows]
        sparse = isinstance(self.codes, SparseCodes)
        codes = np.asarray(self.codes.at(order)) if sparse else take(self.codes, order, 1)
        return Tabulation(self.totals, None, codes)

    def response_sums(self, targets: dict[str, np.ndarray], values: dict[str, np.ndarray]) -> dict[str, Array]:
        """(b, G, p) sums of factors (p, N) of the response over the rows of each point.

        `values` (p, C) are the factors of different responses, of which those of rows differ by the means of strata.
        """
        strata, response, points = self.rows.strata, self.rows.response, self.counts.shape[1]
        firsts, count, joint = strata.order[strata.starts], self.rows.responses, self.joint
        if joint is None and count > points:
            by_row = {name: np.zeros((len(target), len(response))) for name, target in targets.items()}
            for name, target in targets.items():
                by_row[name][:, strata.order] = target
            if isinstance(self.codes, SparseCodes):
                return {name: self.codes.sums(points, own) for name, own in by_row.items()}
            codes = self.codes
            return {name: summed_rows(codes, asarray_like(own, self.counts), points) for name, own in by_row.items()}
        # Rows that cannot be exchanged have one more response.
        if joint is None and isinstance(self.codes, SparseCodes):
            joint = self.codes.joint_counts(points, response, count + 1)[:, :, :count]
        elif joint is None:
            joint = bincount_rows(self.codes, points, asarray_like(response, self.codes), count + 1)[:, :, :count]
        joint, found = namespace(joint).astype(joint, self.counts.dtype), {}
        for name, target in targets.items():
            means = values[name][:, response[firsts]] - target[:, strata.starts]
            sums = joint @ asarray_like(values[name][:, :count].T, joint)
            found[name] = sums - self.counts @ asarray_like(means.T, joint)
        return found

    def counted(self, factor: Array) -> CountedFactor:
        """A factor (b, m, G) with what its scatter within strata needs."""
        xp, sums = namespace(factor), factor @ self.counts
        squares = to_numpy((xp.sum(factor * factor, axis=1)[:, None, :] @ self.counts)[:, 0, :])
        traces = squares - to_numpy(xp.sum(sums * sums, axis=1)) / self.rows.strata.sizes
        # What is left of features that are constant within a stratum is rounding error.
        traces = np.where(traces > ROUNDING * squares, traces, 0.0)
        varies = (traces > 0).any(axis=1)
        if not varies.all():
            kept = asarray_like(varies.astype(float), factor)[:, None, None]
            factor, sums = factor * kept, sums * kept
        rows = self.counts @ asarray_like(self.shares, self.counts)
        return CountedFactor(factor, factor * rows[:, None, :], sums, traces)

    def scatter(self, one: CountedFactor, other: CountedFactor) -> Array:
        """(b, m, q) sums over strata of r_b S_b."""
        means = one.sums * asarray_like(self.shares / self.rows.strata.sizes, one.sums)
        turned = namespace(one.sums).matrix_transpose
        return one.weighted @ turned(other.factor) - means @ turned(other.sums)

    def unweighted_scatter(self, one: CountedFactor) -> Array:
        """(b, m, m) sums over strata of S_b."""
        turned = namespace(one.sums).matrix_transpose
        means = one.sums / asarray_like(self.rows.strata.sizes.astype(float), one.sums)
        return (one.factor * self.totals[:, None, :]) @ turned(one.factor) - means @ turned(one.sums)

    def carried_by_few_rows(self, one: CountedFactor, target: np.ndarray) -> np.ndarray:
        """(b,) whether the moments of V are not those of features with this factor and a response with one of (p, N).

        Diagonals are those before strata are centred, so that none is missed that varies mostly between strata.
        """
        xp = namespace(one.factor)
        diagonal, response = xp.sum(one.factor * one.factor, axis=1), (target * target).sum(axis=0)
        squares = to_numpy(xp.sum(diagonal * diagonal * self.totals, axis=1))
        trace = one.traces.sum(axis=1)
        share = squares / np.where(trace > 0, trace, np.inf) ** 2
        return np.asarray(len(response) * share * (response**2).sum() > _LEFT_OUT * response.sum() ** 2)

    def parts_of(self, features: np.ndarray, directions: int) -> list[np.ndarray]:
        """Some features in parts, whose `centred` values in so many directions are not too many."""
        strata = self.rows.strata
        values = min(self.counts.shape[1] * len(strata.sizes), len(strata.order))
        step = max(1, _NUMBERS // (directions * values))
        return [features[part] for part in slices(0, len(features), step)]

    def centred(self, factor: Array, features: np.ndarray) -> tuple[np.ndarray, Strata]:
        """Factors (b, m, values) of some of the features less the means of strata, from those (b, m, G) of all.

        Values are those of all points in each stratum, with weights, or those of the rows if these are fewer.
        """
        strata, own = self.rows.strata, to_numpy(take(factor, features, 0)).astype(float)
        counts = to_numpy(take(self.counts, features, 0)).astype(float)
        used = counts.any(axis=(0, 2))
        if int(used.sum()) * len(strata.sizes) < len(strata.order):
            own, counts = own[:, :, used], counts[:, used]
            values = own[:, :, None, :] - (own @ counts / strata.sizes)[..., None]
            weights = counts.transpose(0, 2, 1).reshape(len(counts), -1)
            return values.reshape(*own.shape[:2], -1), strata._replace(weights=weights)
        rows = [one[:, self.row_codes(place)] for one, place in zip(own, features.tolist(), strict=True)]
        return strata.centred(np.stack(rows)), strata

    def row_codes(self, feature: int) -> np.ndarray:
        """(N,) the points of the sorted rows of one feature."""
        codes = self.codes[feature : feature + 1, :]
        return (np.asarray(codes) if isinstance(codes, SparseCodes) else to_numpy(codes))[0, self.rows.strata.order]
