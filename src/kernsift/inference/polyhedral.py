"""The polyhedral test (PolyMMD, PolyHSIC): condition on the whole selected set.

The event {the selected set is S} says that every score of S stays above every score outside it. Along the line of
feature i that is one interval (Lee et al. 2016, theorem 5.2; the paper, section 3). The constraint matrix would have
k (d - k) rows; the interval ends where the lowest line of S crosses the highest line outside, so only these crossings
are computed.
"""

from __future__ import annotations

import numpy as np

from kernsift.estimators.scores import Scores
from kernsift.inference.lines import Event, truncated_test
from kernsift.inference.naive import naive
from kernsift.inference.outcome import Outcome
from kernsift.inference.selection_rules import Everything, Lines, SelectionRule


def polyhedral(scores: Scores, rule: SelectionRule, selected: np.ndarray, *, rng: np.random.Generator) -> Outcome:
    """Selective p-values given the whole selected set.

    Examples
    --------
    Given that both were selected, the lower of two scores lies above the third.

    >>> import numpy as np
    >>> from scipy.stats import norm
    >>> from kernsift.estimators.scores import DiagonalCovariance, Scores
    >>> from kernsift.inference.selection_rules import TopK
    >>> scores = Scores(("a", "b", "c"), np.array([3.0, 2.0, 1.0]), DiagonalCovariance(np.ones(3)))
    >>> pvalues = polyhedral(scores, TopK(2), np.array([0, 1]), rng=np.random.default_rng(0)).pvalues
    >>> bool(np.allclose(pvalues, norm.sf([3, 2]) / norm.sf(1)))
    True
    """
    if isinstance(rule, Everything):
        return naive(scores, rule, selected, rng=rng)

    def truncation(intercept: np.ndarray, slope: np.ndarray, feature: int) -> np.ndarray:
        above, below = rule.sides(intercept, slope, selected)
        return np.array([[-_first_crossing(_reflected(above), _reflected(below)), _first_crossing(above, below)]])

    def kept(samples: np.ndarray, feature: int) -> np.ndarray:
        still = np.zeros(samples.shape[1])
        sides = [rule.sides(sample, still, selected) for sample in samples]
        return np.array([above.intercept.min() >= below.intercept.max(initial=-np.inf) for above, below in sides])

    return truncated_test(scores, selected, Event(truncation, kept))


def _reflected(lines: Lines) -> Lines:
    return Lines(lines.intercept, -lines.slope)


def _first_crossing(above: Lines, below: Lines) -> float:
    """The least t from which on the lowest line above crosses the highest line below; inf if there is none.

    The gap, a minimum of linear functions, is concave. Newton's method from the right changes lines at each step and
    stops after finitely many, usually two or three, where the dense constraint matrix would cost k (d - k).
    """
    if len(above.intercept) == 0 or len(below.intercept) == 0:
        return np.inf
    low = np.lexsort((above.intercept, above.slope))[0]
    high = np.lexsort((-below.intercept, -below.slope))[0]
    crossing = np.inf
    while True:
        closing = below.slope[high] - above.slope[low]
        if closing <= 0:
            return crossing
        step = (above.intercept[low] - below.intercept[high]) / closing
        if not step < crossing:
            return crossing
        crossing = step
        low = np.argmin(above.intercept + above.slope * crossing)
        high = np.argmax(below.intercept + below.slope * crossing)
