"""The record that every test returns, and unconditional tail probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from kernsift.estimators.scores import Scores
from kernsift.inference.scaling_law import ScalingFit

_SMALLEST = np.log(np.finfo(float).tiny)


@dataclass(frozen=True)
class Outcome:
    """Selective p-values of the selected features, in the order of `selected`.

    Attributes
    ----------
    log_pvalues : ndarray of shape (k,)
        Natural logarithms of the p-values, finite for statistics of any size.
    truncation : tuple of ndarray of shape (m, 2)
        For each feature the union of intervals that its score was conditioned on.
    fit : ScalingFit or None
        The fitted scaling law of the multiscale test.

    Examples
    --------
    >>> import numpy as np
    >>> Outcome(np.log([0.01, 0.5])).pvalues
    array([0.01, 0.5 ])
    """

    log_pvalues: np.ndarray
    truncation: tuple[np.ndarray, ...] = ()
    fit: ScalingFit | None = None

    @property
    def pvalues(self) -> np.ndarray:
        """The p-values, in (0, 1]: what underflows is reported as the smallest normal number, not as 0."""
        return np.exp(np.clip(self.log_pvalues, _SMALLEST, 0.0))


def standardised(scores: Scores, selected: np.ndarray) -> np.ndarray:
    """Each selected score over its standard deviation; -inf, which is no evidence, where that is 0."""
    sd = np.sqrt(scores.cov.diagonal()[selected])
    return np.divide(scores.estimate[selected], sd, out=np.full(len(selected), -np.inf), where=sd > 0)


def log_tail(scores: Scores, selected: np.ndarray) -> np.ndarray:
    """Log of the unconditional normal tail beyond each selected score; 0 where the standard deviation is 0."""
    return np.asarray(log_ndtr(-standardised(scores, selected)))
