"""What a regression on confounders leaves of them in the residuals of features and of a response.

If residuals of the feature and of the response still depend on z, and in the same way, the mean of v_i is not 0 and the
p-value is too small. Then r_i is correlated with the mean of s_j over rows j that have nearly the same z, which it
cannot do for another reason: rows are independent. U = |sum_i r_i (W s)_i'|^2, with W the means over 1 to 64
neighbours, is compared with its law under independence of r and W s, a sum of chi-squares weighted by the products of
their eigenvalues. If the spread of both follows z, rows with large r have large W s, and the law is scaled to the mean
sum_i |r_i|^2 |(W s)_i|^2 over random signs. With k neighbours the noise in W s is sqrt(k) times less than in s, so that
U shows smaller errors than those that change T. Where feature and response are related, regression leaves E[r_i s_j'] =
-(2 S - S^2)_ij C with C the covariance of their errors, which is taken off first; as this is an approximation, what
explains less than 0.15 of the covariance of r and s does not count. Where more features have a p-value of U below 0.01
than chance explains, the result carries a note with their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from kernsift.estimators.conditional.regression import Neighbours
from kernsift.estimators.conditional.residual_statistics import PairStatistic, ResidualView
from kernsift.estimators.null_laws.permutation_law import gamma_score
from kernsift.exceptions import quoted
from kernsift.execution.notes import add_note

# The level at which dependence on z is reported, and the least share of the observed covariance that it explains.
_CHECK_LEVEL, _LEAST_LEFT = 0.01, 0.15


def _power_traces(values: np.ndarray) -> tuple[float, float, float]:
    """tr(A), tr(A^2) and tr(A^3) of the scatter A of values (m, p)."""
    scatter = values.T @ values
    square = scatter @ scatter
    return float(np.trace(scatter)), float(np.trace(square)), float((square * scatter).sum())


def _squares(rows: np.ndarray) -> np.ndarray:
    """(m,) squared lengths of rows."""
    return np.asarray((rows**2).sum(axis=1))


class Smoothed(NamedTuple):
    """Means of the residuals of a response over rows with similar confounders.

    Attributes
    ----------
    response : its residuals.
    rows : (m,) the rows at which the means are.
    means : (m, p) for each number of neighbours, centred.
    traces : tr(A), tr(A^2) and tr(A^3) of the scatter A of each.
    rows_in_unit : how many rows belong together, on average.
    """

    response: ResidualView
    rows: np.ndarray
    means: tuple[np.ndarray, ...]
    traces: tuple[tuple[float, float, float], ...]
    rows_in_unit: float

    @classmethod
    def of(cls, response: ResidualView, neighbours: Neighbours, rows_in_unit: float) -> Smoothed:
        values = response.values[neighbours.rows]
        found = [mean @ values for mean in neighbours.means]
        means = tuple(part - part.mean(axis=0) for part in found)
        return cls(response, neighbours.rows, means, tuple(map(_power_traces, means)), rows_in_unit)

    def remaining(self, feature: ResidualView, one: PairStatistic) -> float:
        """P-value of what is left of the confounders in the residuals of both; the smallest of all means, corrected."""
        own = feature.values[self.rows]
        first, second, third = _power_traces(own)
        if not self.means or second == 0:
            return 1.0
        freedom = np.maximum(len(feature.values) - np.maximum(feature.spent[:, None], self.response.spent), 1.0)
        errors = self.rows_in_unit * one.total.reshape(freedom.shape) / freedom
        best, m, squares = -np.inf, len(own), _squares(own)
        for place, (mean, other) in enumerate(zip(self.means, self.traces, strict=True)):
            expected = -np.maximum(feature.near[place][:, None], self.response.near[place]) * errors
            statistic = float(((own.T @ mean - expected) ** 2).sum())
            spread = max(float(squares @ _squares(mean)) * m / max(first * other[0], 1e-300), 1.0)
            sd = spread * np.sqrt(2.0 * second * other[1]) / m
            if sd > 0 and statistic > _LEAST_LEFT**2 * one.statistic * (m / len(feature.values)) ** 2:
                skewness = 8.0 * third * other[2] * (spread / (m * sd)) ** 3
                standardised = (statistic - spread * first * other[0] / m) / sd
                best = max(best, float(gamma_score(np.array(standardised), np.array(skewness))))
        return min(1.0, float(ndtr(-best)) * len(self.means))


def note_remaining_dependence(names: Sequence[str], remaining: np.ndarray) -> None:
    """Note the features whose residuals depend on the confounders, from p-values (d,), if more do than by chance."""
    doubtful, d = np.flatnonzero(remaining <= _CHECK_LEVEL).tolist(), len(remaining)
    from scipy.stats import binom  # takes half a second to import

    if remaining.min(initial=1.0) > _CHECK_LEVEL / d and len(doubtful) <= binom.isf(_CHECK_LEVEL, d, _CHECK_LEVEL):
        return
    add_note(
        "The regression on given= leaves dependence on the confounders in the response and in "
        f"{quoted([names[j] for j in doubtful])}: their p-values may be too small. A regressor of scikit-learn as "
        "given_model= may fit better."
    )
