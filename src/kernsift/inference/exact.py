"""The exact test: condition on no more than "feature i was selected".

Given the nuisance part u, the event {i selected} is a union of intervals for T_i, found from the crossings of d lines
with the diagonal. The p-value is the normal tail beyond T_i over the normal mass of that union. It is the test the
multiscale bootstrap approximates, without resampling and without extrapolation; conditioning on u makes it the
uniformly most powerful unbiased test of its hypothesis in the normal model (Fithian et al. 2014).

Where the covariance models how features with an effect depend on a null feature, scores follow curves instead of lines
(`kernsift.inference.lines`).

Where the event does not depend on the other scores (a threshold, or no selection at all), no covariance is computed.
"""

from __future__ import annotations

import numpy as np

from kernsift.estimators.scores import Scores
from kernsift.inference.lines import Event, separate_test, truncated_test
from kernsift.inference.outcome import Outcome
from kernsift.inference.selection_rules import SelectionRule


def exact(scores: Scores, rule: SelectionRule, selected: np.ndarray, *, rng: np.random.Generator) -> Outcome:
    """Exact selective p-values under the minimal conditioning event.

    Examples
    --------
    The larger of two independent scores, 2 and 1: the tail probability beyond 2 over the one beyond 1.

    >>> import numpy as np
    >>> from scipy.stats import norm
    >>> from kernsift.estimators.scores import DiagonalCovariance, Scores
    >>> from kernsift.inference.selection_rules import TopK
    >>> scores = Scores(("a", "b"), np.array([2.0, 1.0]), DiagonalCovariance(np.ones(2)))
    >>> [pvalue] = exact(scores, TopK(1), np.array([0]), rng=np.random.default_rng()).pvalues
    >>> bool(np.isclose(pvalue, norm.sf(2) / norm.sf(1)))
    True
    """
    own = rule.own_truncation(selected)
    if own is not None:
        return separate_test(scores, selected, own)

    def kept(samples: np.ndarray, feature: int) -> np.ndarray:
        return rule.keeps(samples, np.array([feature]))[:, 0]

    return truncated_test(scores, selected, Event(rule.truncation, kept, rule.lowest))
