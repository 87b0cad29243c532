"""What a regression on confounders leaves of them in the residuals of features and of a response.

Let a_i and s_i be the residuals of a feature and of the response along the leading pair of singular vectors of their
cross-covariance. If both still depend on z, and in the same way, this makes C = sum_i a_i s_i and the statistic T too
large, and the p-value too small. Then Q = sum_ij w_ij a_i s_j is large as well, with w_ij the symmetric weights of
means over 1 to 64 rows j near to row i in z, and so is sum_ij w_ij a_i a_j. If a does not depend on z, whatever s does,
the second has the mean 0 over random signs of the a_i, and Q has that given C if its regression on C is taken off,
which has the coefficient sum_i a_i^2 s_i (W s)_i / sum_i a_i^2 s_i^2. Both are compared with their standard deviation
over these signs, wherever the spread is large. The same with a and s exchanged holds if s does not depend on z, and
both must be significant. With k neighbours Q has sqrt(k) times less noise than C, so that it shows smaller errors than
those that change T; what is less than 0.15 of C does not count. Where more features have a p-value below 0.01 than
chance explains, the result carries a note with their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import ndtr

from kernsift.estimators.conditional.regression import one_row_of_each_unit
from kernsift.exceptions import quoted
from kernsift.execution.notes import add_note

# The level at which dependence on z is reported, and the least share of the observed covariance that it explains.
_CHECK_LEVEL, _LEAST_LEFT = 0.01, 0.15
# Neighbours of a row, each with at least eight times as many rows, and the most rows that are checked.
_NEIGHBOURS, _CHECKED_ROWS = (1, 4, 16, 64), 2**13


class RemainingDependence(NamedTuple):
    """Some rows, and symmetric weights (m, m) of means over the nearest of them, for each number of neighbours."""

    rows: np.ndarray
    weights: tuple[csr_array, ...]

    @classmethod
    def of(
        cls, n: int, spaces: Sequence[np.ndarray], units: np.ndarray | None, rng: np.random.Generator
    ) -> RemainingDependence:
        """Near rows in spaces (n, q), at most one of each unit, codes (n,)."""
        from sklearn.neighbors import NearestNeighbors

        rows = one_row_of_each_unit(n, units, rng)
        rows = np.sort(rng.choice(rows, min(len(rows), _CHECKED_ROWS), replace=False))
        weights = []
        for space in spaces:
            # Rows with the same confounders are near to each other in random order.
            places = space[rows] + 1e-6 * rng.standard_normal((len(rows), space.shape[1]))
            nearest = NearestNeighbors().fit(places)
            for count in _NEIGHBOURS:
                if 8 * count <= len(rows):
                    near = csr_array(nearest.kneighbors_graph(n_neighbors=count))
                    weights.append((near + near.T) / (2.0 * count))
        return cls(rows, tuple(weights))

    def pvalue(self, cross: np.ndarray, feature: np.ndarray, response: np.ndarray) -> float:
        """P-value of what is left of the confounders in residuals (n, p) and (n, q) with the cross-covariance (p, q).

        It is the smallest for all weights, corrected.
        """
        left, _, right = np.linalg.svd(cross, full_matrices=False)
        a, s = feature[self.rows] @ left[:, 0], response[self.rows] @ right[0]
        covariance, pvalue = a @ s, 1.0
        for weights in self.weights:
            means = weights @ np.column_stack([a, s])
            statistic = a @ means[:, 1]
            if statistic / (covariance or 1.0) > _LEAST_LEFT:
                scores = (
                    _dependence_score(a, s, means[:, 0], means[:, 1]),
                    _dependence_score(s, a, means[:, 1], means[:, 0]),
                )
                pvalue = min(pvalue, 2 * len(self.weights) * float(ndtr(-min(scores))))
        return pvalue


def _dependence_score(one: np.ndarray, other: np.ndarray, mean: np.ndarray, other_mean: np.ndarray) -> float:
    """The larger score of the dependence of residuals (n,) on z, from means of them and of others over near rows."""
    rest = other_mean - other * (one**2 @ (other * other_mean)) / max(one**2 @ other**2, 1e-300)
    given_covariance = np.sign(one @ other) * (one @ rest) / max(np.linalg.norm(one * rest), 1e-300)
    alone = one @ mean / max(np.sqrt(2.0) * np.linalg.norm(one * mean), 1e-300)
    return float(max(given_covariance, alone))


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
