"""The line every conditional test walks along.

Split the scores into feature i's own score and a part independent of it: with c = Sigma[:, i] / Sigma[i, i] and
u = T - c T_i, moving T_i to t moves the scores along u + c t while u, the nuisance part, stays as observed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernsift.inference.outcome import Outcome
from kernsift.scores import Scores
from kernsift.truncated import EVERYWHERE, log_survivals

# Columns of the covariance fetched at a time: k columns of d = 100,000 scores stay below 52 MB.
_BATCH = 64


def truncated_test(
    scores: Scores,
    selected: np.ndarray,
    truncation: Callable[[np.ndarray, np.ndarray, int], np.ndarray],
) -> Outcome:
    """One-sided test of each selected score, its normal law cut to `truncation(intercept, slope, feature)`."""
    values = scores.estimate[selected]
    variances = np.zeros(len(selected))
    unions = [EVERYWHERE] * len(selected)
    for start in range(0, len(selected), _BATCH):
        batch = selected[start : start + _BATCH]
        columns = scores.cov.columns(batch)
        for place, feature in enumerate(batch):
            variance = variances[start + place] = columns[feature, place]
            if variance > 0:
                slope = columns[:, place] / variance
                value = values[start + place]
                pieces = truncation(scores.estimate - slope * value, slope, int(feature))
                unions[start + place] = _holding(pieces, value)
    # A score that cannot vary is no evidence: p = 1.
    varies = variances > 0
    log_pvalues = log_survivals(values, unions, np.sqrt(np.where(varies, variances, 1.0)))
    return Outcome(np.where(varies, log_pvalues, 0.0), tuple(unions))


def _holding(pieces: np.ndarray, value: float) -> np.ndarray:
    """The same intervals with `value` inside: a tie at the cut may fall outside by a rounding error."""
    if len(pieces) == 0:
        return np.array([[value, value + abs(value) * 1e-9 + 1e-300]])
    inside = (pieces[:, 0] <= value) & (value <= pieces[:, 1])
    if not inside.any():
        distance = np.maximum(pieces[:, 0] - value, value - pieces[:, 1])
        nearest = int(np.argmin(distance))
        pieces = pieces.copy()
        pieces[nearest] = min(pieces[nearest, 0], value), max(pieces[nearest, 1], value)
    return pieces
