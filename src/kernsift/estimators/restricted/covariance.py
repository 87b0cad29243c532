"""Correlations of scores over permutations within strata, also of features that miss different rows.

Scores are those of a feature's own rows. Their correlations come from factors that are put among the units of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kernsift.data.rows.exchangeability import Exchangeability
from kernsift.data.table_parts import run_of
from kernsift.estimators.covariance.alignment import AlignmentCovariance
from kernsift.estimators.covariance.selected_factor import (
    FactorRows,
    SelectedFactor,
    response_directions,
    view_among,
)
from kernsift.estimators.patterns import RowSubset
from kernsift.estimators.responses import Response
from kernsift.estimators.restricted.strata import Strata, informative_strata
from kernsift.execution.arrays import asarray_like, namespace, take, to_numpy


@dataclass(frozen=True)
class RestrictedCovariance(AlignmentCovariance):
    """Correlation of the scores over permutations within strata: chance adds to tr(K_i K_j) within strata only."""

    strata: Strata

    def _correlation(self, one: FactorRows, other: FactorRows) -> np.ndarray:
        if len(self.strata.sizes) == 1:
            return super()._correlation(one, other)
        # The strata of the rows in use: of all, of a sample, or of every second or third of these.
        stratum = self.strata.of_row if self.rows is None else self.strata.of_row[self.rows]
        stratum = stratum[:: -(-len(stratum) // one.factor.shape[2])]
        strata = Strata.of(stratum)
        used = strata.order[np.repeat(strata.sizes > 1, strata.sizes)]
        strata = strata._replace(order=used, sizes=strata.sizes[strata.sizes > 1])
        own, theirs = (take(part.factor, run_of(used), 2) for part in (one, other))
        xp, turned = namespace(own), namespace(own).matrix_transpose
        (b, q, _), (k, p, _) = own.shape, theirs.shape
        sizes, free = (xp.astype(asarray_like(part, own), own.dtype) for part in (strata.sizes, strata.sizes - 1))
        sums = [strata.sums(part) for part in (own, theirs)]
        inner = xp.reshape(own, (b * q, -1)) @ turned(xp.reshape(theirs, (k * p, -1)))
        inner -= xp.reshape(sums[0] / sizes, (b * q, -1)) @ turned(xp.reshape(sums[1], (k * p, -1)))
        products = xp.sum(xp.reshape(inner * inner, (b, q, k, p)), axis=(1, 3))
        traces, variances = [], []
        for part, total in zip((own, theirs), sums, strict=True):
            gram = part @ turned(part) - (total / sizes) @ turned(total)
            traces.append(strata.sums(xp.sum(part * part, axis=1)) - xp.sum(total * total, axis=1) / sizes)
            variances.append(to_numpy(xp.sum(gram * gram, axis=(1, 2)) - xp.sum(traces[-1] ** 2 / free, axis=1)))
        found = to_numpy(products - (traces[0] / free) @ turned(traces[1]))
        first, names = str(one.targets[0]), other.targets.tolist()
        main = np.array([self._weights[first, name][0] for name in names])
        scale = np.array([self._weights[name, name][0] for name in names]) * self._weights[first, first][0]
        scale = np.outer(*variances) * scale
        some = scale > 0
        return np.where(some, np.clip(found * main / np.sqrt(np.where(some, scale, 1.0)), -1.0, 1.0), 0.0)


class Among(NamedTuple):
    """All rows that a table has a subset of."""

    rows: Exchangeability
    subset: RowSubset

    def places(self, units: np.ndarray) -> tuple[np.ndarray, int]:
        """Where units of the subset are among all units that can be relabelled, and how many these are."""
        order = informative_strata(self.rows).order
        place = np.empty(self.rows.units, dtype=int)
        place[order] = np.arange(len(order))
        assert self.subset.rows is not None
        return place[self.rows.units_of(self.subset.rows)[units]], len(order)


def rows_in_use(
    rows: Exchangeability, subset: RowSubset | None, rng: np.random.Generator
) -> tuple[Exchangeability, Among | None]:
    """The rows of a table, a subset of `rows`, less those that would make units of one class less noisy."""
    if subset is None:
        return rows.evened(rng), None
    return subset.select(rows).evened(rng, whole=subset.rows is None), Among(rows, subset)


def factor_among(
    factor: SelectedFactor,
    units: np.ndarray,
    count: int,
    subset: RowSubset,
    response: Response,
) -> SelectedFactor:
    """A factor of these of `count` units, 0 at the others, at the units `subset.to_align`.

    Its cross-covariances with the `response` of these units become those with the response of all.
    """
    to_align, whole = subset.to_align, subset.response
    assert whole is not None
    if factor.codes is not None:
        found = factor.among(units, count)
        assert found.codes is not None and found.present is not None
        assert to_align is not None
        codes = take(found.codes, to_align, 1)
        return found._replace(codes=codes, present=found.present[to_align]).against(whole, to_align)
    known, target = to_numpy(factor.factor), view_among(factor.target, whole)
    values = np.zeros((*known.shape[:2], count), dtype=known.dtype)
    values[:, :, units] = known
    # Factors are weighted by stratum and cross-covariances are not, so that these are turned.
    view, every = response.views[factor.target], whole.views[target]
    own, others = (to_numpy(one.factor)[: response_directions(one)] for one in (view, every))
    turn = others[:, units] @ own.T / np.maximum((own * own).sum(axis=1), 1e-300)
    cross = factor.cross @ asarray_like(turn.T.astype(known.dtype), factor.cross)
    present = np.isin(np.arange(count), units)
    if to_align is not None:
        values, present, factor = values[:, :, to_align], present[to_align], factor._replace(sizes=None)
    return factor._replace(factor=asarray_like(values, factor.factor), cross=cross, target=target, present=present)
