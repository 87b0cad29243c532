"""The unconditional test: valid for features chosen before seeing the data, and where all features are tested."""

from __future__ import annotations

import numpy as np

from kernsift.distributions.truncated_normal import EVERYWHERE
from kernsift.estimators.scores import Scores
from kernsift.inference.outcome import Outcome, log_tail
from kernsift.inference.selection_rules import SelectionRule


def naive(scores: Scores, rule: SelectionRule, selected: np.ndarray, *, rng: np.random.Generator) -> Outcome:
    """The normal tail probability of each score.

    Examples
    --------
    The tail probability beyond 2, whatever the other score is.

    >>> import numpy as np
    >>> from kernsift.estimators.scores import DiagonalCovariance, Scores
    >>> from kernsift.inference.selection_rules import TopK
    >>> scores = Scores(("a", "b"), np.array([2.0, 1.0]), DiagonalCovariance(np.ones(2)))
    >>> naive(scores, TopK(1), np.array([0]), rng=np.random.default_rng(0)).pvalues.round(4)
    array([0.0228])
    """
    return Outcome(log_tail(scores, selected), (EVERYWHERE,) * len(selected))
