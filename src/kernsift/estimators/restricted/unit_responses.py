"""The response of units that can be relabelled, and the pairs of views that are used with it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernsift.data.rows.exchangeability import Exchangeability
from kernsift.estimators.null_laws.permutation_law import Invariants
from kernsift.estimators.pairs import CLASSES, SEVERAL_CLASSES, Pair, for_several_classes
from kernsift.estimators.responses import Response, ResponseView
from kernsift.estimators.restricted.folded_covariance import ResponseMoments
from kernsift.estimators.restricted.relabellings import Relabellings
from kernsift.estimators.restricted.strata import Strata, informative_strata
from kernsift.estimators.restricted.stratified_law import ThirdMoments
from kernsift.estimators.restricted.unit_views import SMALL_STRATA, UNITS
from kernsift.estimators.views import fitted
from kernsift.kernels.low_rank import View


def smallest_pvalue(rows: Exchangeability, symmetric: bool) -> float:
    """One over the number of different relabellings."""
    strata = informative_strata(rows)
    return float(np.exp(-Relabellings(rows.responses[strata.order], strata, symmetric).log_count))


@dataclass(frozen=True)
class UnitResponse:
    """The response of the units that can be relabelled, sorted by stratum.

    Attributes
    ----------
    strata : of the units; `strata.order` are the units in the order of everything here.
    response : the response with a point for each unit.
    relabellings : all of them, where they are few.
    values, cells : the factors (p, C) of the response before they are centred, and which of these each unit has.
    """

    strata: Strata
    response: Response
    relabellings: Relabellings
    values: dict[str, np.ndarray]
    cells: np.ndarray

    @classmethod
    def of(
        cls,
        factors: dict[str, np.ndarray],
        cells: np.ndarray,
        pairs: tuple[Pair, ...],
        rows: Exchangeability,
        symmetric: bool,
    ) -> UnitResponse:
        """From factors (p, C) and the cell of each unit."""
        strata = informative_strata(rows)
        if pairs in (CLASSES, SEVERAL_CLASSES) and (rows.small_strata or rows.unit is not None):
            own = SMALL_STRATA if rows.small_strata else UNITS
            pairs = own if pairs == CLASSES else for_several_classes(own)
        relabellings = Relabellings(rows.responses[strata.order], strata, symmetric)
        cells, views, values = cells[strata.order], {}, {}
        for name, factor in factors.items():
            centred = strata.centred(factor[:, cells])
            turn = _rotation(centred @ centred.T)
            views[name], values[name] = _response_view(turn @ centred, strata), turn @ factor
        n = len(strata.order)
        response = Response(n, None, np.ones(n), views, pairs, relabellings.ceiling)
        return cls(strata, response, relabellings, values, cells)

    @cached_property
    def moments(self) -> dict[tuple[str, str], ResponseMoments]:
        """Of pairs of views."""
        views = self.response.views
        return {
            (one, two): ResponseMoments.of(views[one].factor, views[two].factor, self.strata)
            for one in views
            for two in views
        }

    @cached_property
    def thirds(self) -> dict[str, ThirdMoments]:
        """Third moments of the views."""
        views = self.response.views.items()
        return {
            name: ThirdMoments.of_response(view.factor, self.strata, self.moments[name, name]) for name, view in views
        }

    @cached_property
    def scale(self) -> np.ndarray:
        """(N,) how much a unit counts in the covariance of the cross-covariances, on average 1."""
        free, first = self.strata.sizes - 1, self.response.first.factor
        share = self.strata.sums((first * first).sum(axis=0)) / free
        mean = (share * free).sum() / free.sum()
        # With the kernel of equality no two rows of a response without ties are equal, and its factor is 0.
        return np.asarray((share / mean if mean > 0 else np.ones_like(share))[self.strata.of_row])


def _rotation(scatter: np.ndarray) -> np.ndarray:
    """(q, p) the directions of a scatter matrix (p, p), the leading ones first; those that do not vary are left out."""
    values, vectors = np.linalg.eigh(scatter)
    kept = values > 1e-9 * max(values[-1], 1e-300)
    return np.asarray(vectors[:, kept][:, ::-1].T) if kept.any() else np.zeros((1, len(scatter)))


def _response_view(factor: np.ndarray, strata: Strata) -> ResponseView:
    sizes = (factor * factor).sum(axis=1)
    n = factor.shape[1]
    plain = fitted(View(factor[None], sizes[None]), np.ones((1, n)), n)
    traces, size = strata.sums((factor * factor).sum(axis=0)), ((factor @ factor.T) ** 2).sum()
    own = stratified_invariants(traces[None], size[None], strata)
    return ResponseView(plain, sizes, Invariants(*(part[0] for part in own)))


def stratified_invariants(traces: np.ndarray, size: np.ndarray, strata: Strata) -> Invariants:
    """From traces (b, S) and tr K^2 (b,) less what chance adds to T if the response is the feature."""
    second = np.column_stack([size - (traces**2 / (strata.sizes - 1)).sum(axis=1), np.zeros(len(size))])
    return Invariants(traces.sum(axis=1), second, np.zeros((len(size), 5)))
