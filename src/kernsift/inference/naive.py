"""The test that forgets the selection: valid only for features chosen before seeing the data."""

from __future__ import annotations

import numpy as np

from kernsift.inference.outcome import Outcome, log_tail
from kernsift.scores import Scores
from kernsift.selection import SelectionRule


def naive(scores: Scores, rule: SelectionRule, selected: np.ndarray, *, rng: np.random.Generator) -> Outcome:
    """The plain normal tail. Shown beside the selective p-values so that the difference can be seen."""
    return Outcome(log_tail(scores, selected))
