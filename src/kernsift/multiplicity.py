"""Corrections for testing several features at once.

SciPy has the step-up rules too, in a module that takes half a second to load; a test holds these against it.
"""

from __future__ import annotations

import numpy as np

CORRECTIONS = ("bh", "by", "holm")


def adjust(pvalues: np.ndarray, correction: str | None) -> np.ndarray:
    """Adjusted p-values in the order given: compare them with alpha.

    `None` leaves them alone; "bh" controls the false discovery rate under positive dependence (Benjamini and
    Hochberg 1995), "by" under any dependence (Benjamini and Yekutieli 2001), "holm" the chance of a single false
    rejection (Holm 1979).

    Examples
    --------
    >>> import numpy as np
    >>> adjust(np.array([0.01, 0.04, 0.03]), "bh")
    array([0.03, 0.04, 0.04])
    >>> adjust(np.array([0.01, 0.04, 0.03]), "holm")
    array([0.03, 0.06, 0.06])
    """
    if correction is None or len(pvalues) == 0:
        return pvalues.copy()
    count = len(pvalues)
    order = np.argsort(pvalues, kind="stable")
    ranks = np.arange(1, count + 1)
    if correction == "holm":
        steps = np.maximum.accumulate(pvalues[order] * (count + 1 - ranks))
    else:
        penalty = (1.0 / ranks).sum() if correction == "by" else 1.0
        steps = np.minimum.accumulate((pvalues[order] * (count * penalty / ranks))[::-1])[::-1]
    adjusted = np.empty(count)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted
