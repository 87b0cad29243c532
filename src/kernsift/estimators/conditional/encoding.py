"""Confounders as numbers: standardised columns, normal scores of their ranks, and indicators.

A missing category is a category; a missing number is the mean, with an indicator of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from kernsift.estimators.conditional.confounders import LEVELS, Confounders

# The correlation with its normal scores from which on a column is used as it is; that of a uniform one is 0.977.
_NEARLY_NORMAL = 0.97
# The correlation from which on two columns are the same.
_SAME = 1.0 - 1e-9


class Encoded(NamedTuple):
    """Confounders as numbers: standardised, their normal scores, and indicators (n, q) with their column (q,).

    The scores of a column without heavy tails are its standardised numbers: a function of a combination of confounders
    would not be one of a combination of their ranks.
    """

    numbers: np.ndarray
    scores: np.ndarray
    indicators: np.ndarray
    owner: np.ndarray


def encode(confounders: Confounders) -> Encoded:
    """Standardised numbers, normal scores of their ranks, and indicators of categories and gaps."""
    numbers: list[np.ndarray] = []
    scores, indicators, owner = [], [], []
    ranks = [_midranks(column) for column in confounders.values.T[~confounders.categorical]]
    rank = np.sum(ranks, axis=0) if ranks else np.zeros(len(confounders.values))
    for place, (column, categorical) in enumerate(zip(confounders.values.T, confounders.categorical, strict=True)):
        missing = np.isnan(column)
        if categorical:
            codes = np.where(missing, -1.0, column)
            levels, counts = np.unique(codes, return_counts=True)
            # All levels but the reference level: the most frequent one, or all of the rarest. Of equally common ones
            # the order is that of their means of the numbers, whatever their codes.
            means = [rank[codes == level].mean() for level in levels]
            order = np.lexsort((np.round(means, 9), -counts))
            for level in levels[order[1:] if len(order) <= LEVELS + 1 else order[:LEVELS]]:
                indicators.append(codes == level)
                owner.append(place)
            continue
        filled = np.where(missing, np.nanmean(column) if not missing.all() else 0.0, column)
        spread = filled.std()
        varies = spread > 1e-12 * np.abs(filled).max(initial=0.0)
        number = (filled - filled.mean()) / (spread if varies else 1.0)
        if any(abs(np.mean(number * other)) > _SAME for other in numbers):
            continue  # the same in other units
        if missing.any() and not missing.all():
            indicators.append(missing)
            owner.append(place)
        if not varies:
            continue
        score = ndtri(_midranks(filled))
        score = score / score.std()
        numbers.append(number)
        scores.append(number if np.mean(number * score) > _NEARLY_NORMAL else score)
    shape = -1, len(confounders.values)
    number, score, flags = (
        np.array(part, dtype=float).reshape(shape).T.copy() for part in (numbers, scores, indicators)
    )
    return Encoded(number, score, flags - flags.mean(axis=0), np.array(owner, dtype=int))


def _midranks(values: np.ndarray) -> np.ndarray:
    """Midranks in (0, 1)."""
    ordered = np.sort(values)
    return (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / (2.0 * len(values))
