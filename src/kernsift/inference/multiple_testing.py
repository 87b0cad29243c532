"""Corrections for multiple testing, of all features or of a short list of them.

The family is all features that were tested. Where only some of them are listed, a listed feature is rejected by the
rule of the correction over the family, with the number of rejections counted within the list:

- "bh": reject the listed features with p <= alpha r / d, r the largest number such that at least r listed features have
  that. With the k smallest p-values as the list this is the step-up rule with the shape function min(r, k), which
  controls the false discovery rate where Benjamini and Hochberg's does (Blanchard and Roquain 2008); `tests` show by
  simulation that it also holds for lists in another order than that of the p-values.
- "by": the same with alpha / (1 + 1/2 + ... + 1/d); this holds for any list and any dependence (Blanchard and Roquain).
- "holm": the listed features among those that Holm's procedure rejects of all d; dropping rejections adds no error.
- "bky": the number of true nulls is estimated from all d features; the second stage is the rule of "bh" with that
  number in the place of d, at level alpha / (1 + alpha).

The rejections in a list are always among those of all features, and a list of all features is the correction itself.

scipy.stats has two of the step-up rules but takes half a second to import; a test compares these with it.
"""

from __future__ import annotations

import numpy as np

CORRECTIONS = ("bh", "by", "bky", "holm")

# Relative rounding error of a p-value that equals the level, as p-values of few rows can: 2/20 comes out as
# 0.10000000000000002.
ROUNDING = 1e-9


def adjust(pvalues: np.ndarray, correction: str | None, listed: np.ndarray | None = None) -> np.ndarray:
    """Adjusted p-values in the order given: a feature is rejected if its adjusted p-value is at most alpha.

    `pvalues` are those of all d features. `listed` are the positions of a short list, whose adjusted p-values are
    returned in that order; by default all features.

    `None` returns the p-values unchanged; "bh" controls the false discovery rate under positive dependence (Benjamini
    and Hochberg 1995), "by" under any dependence (Benjamini and Yekutieli 2001), "holm" the chance of a single false
    rejection (Holm 1979). "bky" is the adaptive two-stage procedure of Benjamini, Krieger and Yekutieli (2006), which
    rejects more where many features differ; it controls the false discovery rate of independent p-values.

    Examples
    --------
    >>> import numpy as np
    >>> adjust(np.array([0.01, 0.04, 0.03]), "bh")
    array([0.03, 0.04, 0.04])
    >>> adjust(np.array([0.01, 0.04, 0.03]), "holm")
    array([0.03, 0.06, 0.06])

    A list of one of them: a single rejection needs p <= alpha / 3.

    >>> adjust(np.array([0.01, 0.04, 0.03]), "bh", np.array([2]))
    array([0.09])
    """
    count = len(pvalues)
    own = pvalues if listed is None else pvalues[listed]
    if correction is None or len(own) == 0:
        return own.copy()
    if correction == "holm":
        adjusted = _holm(pvalues)
        return adjusted if listed is None else adjusted[listed]
    steps = _step_up(own)
    if correction == "bky":
        return _two_stage(steps, _step_up(pvalues) * count)
    penalty = (1.0 / np.arange(1, count + 1)).sum() if correction == "by" else 1.0
    # At least the p-value itself, in spite of rounding.
    return np.clip(steps * (count * penalty), own, 1.0)


def significant(adjusted: np.ndarray, alpha: float) -> np.ndarray:
    """Whether adjusted p-values are at most alpha; one that equals alpha but for rounding is.

    >>> significant(np.array([0.10000000000000002, 0.11]), 0.1)
    array([ True, False])
    """
    return np.asarray(adjusted <= alpha * (1.0 + ROUNDING))


def rank_limits(count: int, correction: str | None, alpha: float) -> np.ndarray:
    """(count,) the bound that "bh", "by" or "holm" puts on each p-value by its rank, smallest first.

    >>> rank_limits(4, "bh", 0.1)
    array([0.025, 0.05 , 0.075, 0.1  ])
    """
    ranks = np.arange(1, count + 1)
    if correction is None:
        return np.full(count, alpha)
    if correction == "holm":
        return alpha / (count + 1 - ranks)
    penalty = (1.0 / ranks).sum() if correction == "by" else 1.0
    return alpha * ranks / (count * penalty)


def _step_up(pvalues: np.ndarray) -> np.ndarray:
    """The least p_(r) / r over the ranks r from each p-value's own: it is rejected when that is at most alpha / d."""
    order = np.argsort(pvalues, kind="stable")
    ranks = np.arange(1, len(pvalues) + 1)
    out = np.empty(len(pvalues))
    out[order] = np.minimum.accumulate((pvalues[order] / ranks)[::-1])[::-1]
    return out


def _holm(pvalues: np.ndarray) -> np.ndarray:
    order = np.argsort(pvalues, kind="stable")
    out = np.empty(len(pvalues))
    out[order] = np.minimum(np.maximum.accumulate(pvalues[order] * np.arange(len(pvalues), 0, -1)), 1.0)
    return out


def _two_stage(steps: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The least alpha at which the second stage rejects.

    With a = alpha / (1 + alpha), the first stage rejects the m features whose adjusted p-value `first` is at most a.
    The second rejects those with steps * (d - m) <= a. As m grows with a, the least such a is the smallest over m of
    max(m-th smallest of `first`, steps * (d - m)).
    """
    count = len(first)
    needed = np.concatenate([[0.0], np.sort(first)])
    left = count - np.arange(count + 1)
    # Increasing in m: below the first m whose ratio reaches `steps`, the second stage decides; from it on, the first.
    ratio = np.divide(needed, left, out=np.full(count + 1, np.inf), where=left > 0)
    place = np.searchsorted(ratio, steps)
    level = np.minimum(needed[place], np.where(place > 0, steps * left[place - 1], np.inf))
    return np.where(level < 0.5, level / np.where(level < 0.5, 1.0 - level, 1.0), 1.0)
