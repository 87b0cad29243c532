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

Where z is rare, as in heavy tails, rows have no near neighbours: a curve that changes between one row and the next is
neither taken out by a regression nor seen by Q, and nothing distinguishes it from a relation beyond z. So the
correlation of two residuals over isolated rows, whose neighbours are more than twice as far as those of the median row,
is compared with that over the others. If it is larger, and the others alone are no evidence, a second note says where
the evidence comes from. Where both are related beyond z in the same way everywhere, or not related, the two
correlations are the same, whatever the spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import ndtr, ndtri, stdtr

from kernsift.estimators.conditional.regression import one_row_of_each_unit
from kernsift.exceptions import quoted
from kernsift.execution.notes import add_note

# The level at which dependence on z is reported, and the least share of the observed covariance that it explains.
_CHECK_LEVEL, _LEAST_LEFT = 0.02, 0.15
# Neighbours of a row, each with at least eight times as many rows, and the most rows that are checked.
_NEIGHBOURS, _CHECKED_ROWS = (1, 4, 16, 64), 2**13
# Isolated rows: median distances from their neighbours, which of these is counted, and the fewest of such rows.
_ISOLATED, _NEIGHBOUR, _LEAST_ISOLATED = 2.0, 5, 8
# The level at which the other rows are evidence by themselves.
_EVIDENCE = 0.05
# The least variance of a correlation: below it the residuals are nonzero in different rows.
_NO_VARIANCE = 1e-12


class RemainingDependence(NamedTuple):
    """Some rows, and symmetric weights (m, m) of means over the nearest of them, for each number of neighbours.

    `isolated` is a mask (m,) of rows that are far from their neighbours; None where there are few.
    """

    rows: np.ndarray
    weights: tuple[csr_array, ...]
    isolated: np.ndarray | None

    @classmethod
    def of(
        cls,
        n: int,
        spaces: Sequence[np.ndarray],
        numbers: np.ndarray,
        units: np.ndarray | None,
        rng: np.random.Generator,
    ) -> RemainingDependence:
        """Near rows in spaces (n, q), and isolated rows in `numbers` (n, q); at most one of each unit, codes (n,)."""
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
        return cls(rows, tuple(weights), _isolated(numbers[rows]))

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

    def isolated_pvalue(self, feature: np.ndarray, response: np.ndarray) -> float:
        """P-value of a larger correlation of residuals (n, p) and (n, q) over isolated rows than over others.

        It is 1 where the others are evidence by themselves.
        """
        if self.isolated is None:
            return 1.0
        r, s, alone = feature[self.rows], response[self.rows], self.isolated
        own, variance = _correlations(r[alone], s[alone])
        others, others_variance = _correlations(r[~alone], s[~alone])
        # The mean weighted by precision is uncorrelated with the difference, so that its largest value and its sign can
        # choose the directions. A covariance would choose those that are large where the spread is.
        weight = np.sqrt(variance + others_variance)
        mean = (own * others_variance + others * variance) / (weight * np.sqrt(variance * others_variance))
        best = np.unravel_index(np.abs(mean).argmax(), mean.shape)
        sign = np.sign(mean[best])
        if sign * others[best] >= -ndtri(_EVIDENCE) * np.sqrt(others_variance[best]):
            return 1.0
        return float(stdtr(alone.sum() - 1, -sign * (own - others)[best] / weight[best]))


def _isolated(numbers: np.ndarray) -> np.ndarray | None:
    """A mask of rows (n, q) whose neighbours are far compared with those of the median row."""
    from sklearn.neighbors import NearestNeighbors

    if not numbers.shape[1] or len(numbers) < 2 * _LEAST_ISOLATED:
        return None
    spread = np.subtract(*np.quantile(numbers, [0.75, 0.25], axis=0))
    places = numbers / np.where(spread > 0, spread, 1.0)
    distance = NearestNeighbors(n_neighbors=_NEIGHBOUR).fit(places).kneighbors()[0][:, -1]
    middle = float(np.median(distance))
    mask = distance > _ISOLATED * middle
    return mask if middle > 0 and mask.sum() >= _LEAST_ISOLATED else None


def _correlations(r: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(p, q) correlations of residuals (n, p) and (n, q), which are not centred, and their variances over signs.

    A residual without any variation has the correlation 0 and the variance 1.
    """
    scale = np.multiply.outer((r**2).sum(axis=0), (s**2).sum(axis=0))
    varies = scale > 0
    scale = np.where(varies, scale, 1.0)
    variance = (r**2).T @ s**2 / scale
    return (r.T @ s) / np.sqrt(scale), np.where(varies & (variance > _NO_VARIANCE), variance, 1.0)


def _dependence_score(one: np.ndarray, other: np.ndarray, mean: np.ndarray, other_mean: np.ndarray) -> float:
    """The larger score of the dependence of residuals (n,) on z, from means of them and of others over near rows."""
    rest = other_mean - other * (one**2 @ (other * other_mean)) / max(one**2 @ other**2, 1e-300)
    given_covariance = np.sign(one @ other) * (one @ rest) / max(np.linalg.norm(one * rest), 1e-300)
    alone = one @ mean / max(np.sqrt(2.0) * np.linalg.norm(one * mean), 1e-300)
    return float(max(given_covariance, alone))


def note_remaining_dependence(names: Sequence[str], remaining: np.ndarray, isolated: np.ndarray) -> None:
    """Note the features whose residuals depend on the confounders, and those with evidence from isolated rows alone.

    From p-values (d,) of both, where more features are doubtful than by chance.
    """
    if doubtful := _more_than_by_chance(remaining):
        add_note(
            "The regression on given= leaves dependence on the confounders in the response and in "
            f"{quoted([names[j] for j in doubtful])}: their p-values may be too small. A regressor of scikit-learn as "
            "given_model= may fit better."
        )
    if doubtful := _more_than_by_chance(isolated):
        add_note(
            f"The evidence for {quoted([names[j] for j in doubtful])} comes from rows whose values of given= are rare, "
            "where no regression can distinguish an effect of the confounders from a relation beyond them: their "
            "p-values may be too small. Repeat the call without these rows."
        )


def _more_than_by_chance(pvalues: np.ndarray) -> list[int]:
    """The features with p-values (d,) of at most the level, if these are more, or smaller, than chance explains."""
    from scipy.stats import binom  # takes half a second to import

    doubtful, d = np.flatnonzero(pvalues <= _CHECK_LEVEL).tolist(), len(pvalues)
    if pvalues.min(initial=1.0) > _CHECK_LEVEL / d and len(doubtful) <= binom.isf(_CHECK_LEVEL, d, _CHECK_LEVEL):
        return []
    return doubtful
