"""Corrections for testing several features at once."""

from __future__ import annotations

import numpy as np
from scipy.stats import false_discovery_control

CORRECTIONS = ("bh", "by", "holm")


def adjust(pvalues: np.ndarray, correction: str | None) -> np.ndarray:
    """Adjusted p-values in the order given: compare them with alpha.

    `None` leaves them alone; "bh" controls the false discovery rate under positive dependence (Benjamini and
    Hochberg 1995), "by" under any dependence (Benjamini and Yekutieli 2001), "holm" the chance of a single false
    rejection (Holm 1979).

    >>> import numpy as np
    >>> adjust(np.array([0.01, 0.04, 0.03]), "bh")
    array([0.03, 0.04, 0.04])
    >>> adjust(np.array([0.01, 0.04, 0.03]), "holm")
    array([0.03, 0.06, 0.06])
    """
    if correction is None or len(pvalues) == 0:
        return pvalues.copy()
    if correction == "holm":
        order = np.argsort(pvalues, kind="stable")
        steps = np.maximum.accumulate(pvalues[order] * np.arange(len(pvalues), 0, -1))
        adjusted = np.empty_like(steps)
        adjusted[order] = np.minimum(steps, 1.0)
        return adjusted
    return np.asarray(false_discovery_control(pvalues, method=correction))
