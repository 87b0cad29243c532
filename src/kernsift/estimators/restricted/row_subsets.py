"""Rows of a table among more rows, where features miss different rows.

Scores are those of a feature's own rows. Their correlations come from factors that are put among the units of all rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernsift.data.rows.exchangeability import Exchangeability
from kernsift.estimators.covariance.selected_factor import SelectedFactor, response_directions, view_among
from kernsift.estimators.patterns import RowSubset
from kernsift.estimators.responses import Response
from kernsift.estimators.restricted.strata import informative_strata
from kernsift.execution.arrays import asarray_like, take, to_numpy


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
