"""Descriptions within strata, of units, and given confounders.

A test that holds something fixed may find the opposite of what the whole samples show (Simpson's paradox), so its
description holds the same fixed. Numbers are aligned as the test aligns them, or replaced by residuals of its
regression. Rows get overlap weights (Li, Morgan and Zaslavsky 2018), with which strata or confounders have the same
distribution in all classes, and every unit has the same total weight. Rows are then taken in proportion to their
weights, so that they are described as any other rows are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernsift.data.rows.aligned_tables import AlignedTable
from kernsift.data.rows.exchangeability import Exchangeability
from kernsift.data.tables import Table
from kernsift.estimators.conditional.confounders import Confounders
from kernsift.estimators.conditional.regression import ConfounderRegression, fit_regression
from kernsift.report.text import given_phrase

# A row is taken at most this often: a value that is repeated more often would look like a common value.
_REPEATS = 4.0
# Shares of classes given confounders are estimates, which may lie outside [0, 1].
_LEAST_SHARE = 0.02
# Columns with at most this many distinct values, or a value with a larger share than this, are not aligned: weights
# suffice, and the residual of a code or of a zero is neither.
_DISCRETE, _COMMON = 12, 0.05


@dataclass(frozen=True)
class HeldFixed:
    """What the test of some rows holds fixed: strata, pairs and units, confounders."""

    rows: Exchangeability | None = None
    confounders: Confounders | None = None

    def take(self, places: np.ndarray) -> HeldFixed:
        """The same for some of the rows."""
        held = self.confounders
        if held is not None:
            held = Confounders(held.names, held.values[places], held.categorical)
        return HeldFixed(None if self.rows is None else self.rows.take(places), held)

    @property
    def words(self) -> str:
        """What is held fixed, for a description."""
        within = ""
        if self.rows is not None and self.rows.stratum is not None:
            within = "within pairs" if self.rows.described.endswith("pairs") else "within strata"
        given = "" if self.confounders is None else given_phrase(self.confounders.names)
        return " ".join(filter(None, [within, given]))


class AdjustedRows:
    """Rows of a table adjusted for what is held fixed.

    `target` (n, m) is what the rows are compared by: numbers, or indicators of classes.
    """

    def __init__(self, table: Table, target: np.ndarray, held: HeldFixed) -> None:
        self._table, self._target, self._held = table, target, held
        self.words = held.words

    @cached_property
    def _regression(self) -> ConfounderRegression | None:
        held = self._held
        if held.confounders is None:
            return None
        strata = None if held.rows is None else held.rows.stratum
        return fit_regression(held.confounders, self._target, np.random.default_rng(0), strata=strata)

    @cached_property
    def _numbers(self) -> np.ndarray:
        """All columns of the table, aligned or as residuals; categories are meaningless codes there."""
        return self._without(self._table)

    @cached_property
    def target(self) -> np.ndarray:
        """(n,) a response of numbers, aligned or as residuals."""
        one = self._target[:, :1]
        return self._without(Table(("y",), one, np.array([0, 1]), np.array([False]), {}))[:, 0]

    def _without(self, table: Table) -> np.ndarray:
        values = np.asarray(table.values, dtype=float)
        rows = self._held.rows
        if self._regression is not None:
            gone = np.isnan(values)
            means = np.where(gone.all(axis=0), 0.0, np.nansum(values, axis=0) / np.maximum((~gone).sum(axis=0), 1))
            left = np.where(gone, np.nan, self._regression.residuals(np.where(gone, means, values)).values)
        elif rows is not None and rows.stratum is not None:
            left = AlignedTable(table, rows, every=rows.small_strata).part(slice(None))
        else:
            return values
        known = ~np.isnan(values).all(axis=0)
        left[:, known] += np.nanmedian(values[:, known], axis=0) - np.nanmedian(left[:, known], axis=0)
        return left

    def columns(self, j: int, view: str = "", *, classes: bool = True) -> list[np.ndarray]:
        """(n, c) the columns of a feature for a comparison of classes, or with a response of numbers.

        Given confounders, adaptive kernels are of residuals. Another kernel is of the values, and the test sees
        residuals of its functions: then there are residuals, which show a shift best, and values as they are.
        """
        columns = slice(int(self._table.offsets[j]), int(self._table.offsets[j + 1]))
        own = np.asarray(self._table.values[:, columns], dtype=float)
        rows = self._held.rows
        # In pairs some views are of aligned ranks, and the others are of values as they are.
        as_it_is = self._regression is None and rows is not None and rows.small_strata
        as_it_is = as_it_is and view != "" and not view.startswith("aligned")
        if self._table.categorical[j] or as_it_is or (classes and own.shape[1] == 1 and has_common_value(own)):
            return [own]
        of_values = self._regression is not None and view in ("", "plain", "values")
        return [self._numbers[:, columns], own] if of_values else [self._numbers[:, columns]]

    def chosen(self, codes: np.ndarray, order: np.ndarray | None = None) -> np.ndarray:
        """Rows in proportion to their weights for a comparison of the classes `codes` (n,), along `order` if given.

        Rows whose code is NaN are left out. No row is chosen where all are, or where classes have nothing in common.
        """
        known = ~np.isnan(codes)
        if not known.any():
            return np.empty(0, dtype=np.intp)
        weights = self._weights(np.where(known, codes, codes[known][0]), known.astype(float))
        found = []
        for level in np.unique(codes[known]):
            own = np.flatnonzero((codes == level) & (weights > 0))
            if not len(own):
                return np.empty(0, dtype=np.intp)
            if order is not None:
                own = own[np.argsort(order[own], kind="stable")]
            share = np.minimum(weights[own] / weights[own].mean(), _REPEATS)
            ends = np.cumsum(share)
            found.append(own[np.searchsorted(ends, (np.arange(len(own)) + 0.5) / len(own) * ends[-1])])
        return np.concatenate(found)

    def _weights(self, codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Weights (n,) of rows times one for each unit, times the overlap weights of the classes."""
        rows = self._held.rows
        if rows is not None and rows.unit is not None:
            weights = weights / np.maximum(np.bincount(rows.unit, weights), 1.0)[rows.unit]
        levels, own = np.unique(codes, return_inverse=True)
        indicators = (own[:, None] == np.arange(len(levels))).astype(float)
        if self._regression is not None:
            shares = indicators - self._regression.residuals(indicators).values
            shares = np.clip(shares, _LEAST_SHARE, None)
        elif rows is not None and rows.stratum is not None:
            strata = np.column_stack([np.bincount(rows.stratum, weights * one) for one in indicators.T])
            shares = (strata / np.maximum(strata.sum(axis=1, keepdims=True), 1e-300))[rows.stratum]
        else:
            return weights
        with np.errstate(divide="ignore"):
            overlap = 1.0 / (1.0 / shares).sum(axis=1)
        return np.asarray(weights * overlap / np.maximum(shares[np.arange(len(own)), own], _LEAST_SHARE * 1e-6))


def has_common_value(values: np.ndarray) -> bool:
    """Whether a column has few different values, or one that is common, before rows are repeated."""
    known = values[~np.isnan(values)]
    _, counts = np.unique(known, return_counts=True)
    return len(counts) <= _DISCRETE or counts.max() > _COMMON * len(known)
