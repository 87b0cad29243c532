"""How large, beside how sure: effect sizes of the selected features and their confidence intervals.

They are worked out when first looked at, as many callers only want p-values.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from kernsift.inference import Outcome
from kernsift.scores import EffectSizes, Scores
from kernsift.truncated import EVERYWHERE, confidence_intervals


class Estimates:
    """Effect sizes and intervals of selected features, from the truncated law each score has around its mean.

    Attributes
    ----------
    effects : effect sizes in [0, 1]; None where the estimator has none.
    intervals : (k, 2) confidence intervals for them, valid after selection; None where the estimator has none.
    """

    def __init__(self, scores: Scores, selected: np.ndarray, outcome: Outcome, test: str, alpha: float) -> None:
        self._work: tuple[Scores, np.ndarray, Outcome, str, float] | None = (scores, selected, outcome, test, alpha)

    @cached_property
    def effects(self) -> np.ndarray | None:
        return None if self._sizes is None else self._sizes.point

    @cached_property
    def intervals(self) -> np.ndarray | None:
        if self._work is None or self._sizes is None:
            return None
        scores, selected, outcome, test, alpha = self._work
        sizes = self._sizes
        pieces = outcome.truncation or ((EVERYWHERE,) * len(selected) if test == "naive" else None)
        if len(selected) == 0:
            return np.empty((0, 2))
        if sizes.spread is None or pieces is None:
            return None
        sd = np.sqrt(scores.cov.diagonal()[selected])
        varies = sd > 0
        ends = np.tile([0.0, np.inf], (len(selected), 1))
        ends[varies] = confidence_intervals(
            scores.estimate[selected][varies],
            [piece for piece, use in zip(pieces, varies, strict=True) if use],
            sd[varies],
            sizes.spread[varies],
            1.0 - alpha,
        )
        # Beyond this many standard deviations an end is the end of the scale.
        ends = np.minimum(ends, 1e6 * np.where(varies, sd, 1.0)[:, None])
        # What is left of no effect at all is rounding error; and around it the scale is flat.
        low, high = np.where(ends[:, 0] > 0, sizes.at(ends[:, 0]), 0.0), sizes.at(ends[:, 1])
        return np.column_stack([np.minimum(low, high), high])

    @cached_property
    def _sizes(self) -> EffectSizes | None:
        if self._work is None or self._work[0].effects is None:
            return None
        scores, selected, *_ = self._work
        if len(selected) == 0:
            return EffectSizes(np.empty(0), np.empty(0), lambda means: means)
        return scores.effects(selected) if scores.effects is not None else None

    def __getstate__(self) -> dict[str, Any]:
        """What travels between processes: the numbers, without the data they come from."""
        return {"effects": self.effects, "intervals": self.intervals, "_work": None}
