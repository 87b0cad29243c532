"""Effect sizes of the listed features and their confidence intervals.

Where every feature is tested, the effect size is the unconditional estimate, and the intervals of the discoveries
control the false coverage rate (Benjamini and Yekutieli 2005). Where features were selected, estimates and intervals
are conditional on the selection: the median-unbiased estimate, and the interval that inverts the selective test.

They are computed when first used, as many callers only need p-values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from kernsift.distributions.truncated_normal import EVERYWHERE, confidence_intervals, median_unbiased_means
from kernsift.estimators.scores import DiagonalCovariance, EffectSizes, EffectsWithLaws, Scores
from kernsift.inference import Outcome
from kernsift.inference.multiple_testing import ROUNDING

# Features whose intervals are computed at once; each takes some milliseconds.
_MOST = 1000


class EffectEstimates(NamedTuple):
    """(k,) median-unbiased effect sizes and (k, 2) intervals; the latter None where only the null variance is known."""

    median_unbiased: np.ndarray
    intervals: np.ndarray | None


def effect_estimates(
    scores: Scores,
    selected: np.ndarray,
    sizes: EffectSizes | EffectsWithLaws,
    truncation: Sequence[np.ndarray],
    level: np.ndarray,
) -> EffectEstimates:
    """Effect sizes of selected features and their intervals, from the truncated distribution of each score.

    `level` has one level per feature: its interval excludes 0 exactly when its one-sided p-value is at most 1 - level.
    """
    if len(selected) == 0:
        return EffectEstimates(sizes.point, np.empty((0, 2)))
    if isinstance(sizes, EffectsWithLaws):
        return _from_laws(sizes, truncation, level)
    sd = np.sqrt(scores.cov.diagonal()[selected])
    varies = sd > 0
    values = scores.estimate[selected][varies]
    unions = [piece for piece, use in zip(truncation, varies, strict=True) if use]
    spread = sd if sizes.spread is None else np.where(sizes.spread > 0, sizes.spread, sd)
    means = np.zeros(len(selected))
    means[varies] = median_unbiased_means(values, unions, sd[varies], spread[varies])
    middle = _sizes_at(sizes, means, varies, sd)
    # `at` and `point` may differ by rounding: without truncation the estimate is the unconditional one, and with it the
    # estimate lies on the same side of the unconditional one as the mean does.
    lower = means <= scores.estimate[selected]
    middle = np.where(lower, np.minimum(middle, sizes.point), np.maximum(middle, sizes.point))
    middle = np.where([piece is EVERYWHERE for piece in truncation], sizes.point, middle)
    if sizes.spread is None:
        return EffectEstimates(middle, None)
    ends = np.zeros((len(selected), 2))
    ends[varies] = confidence_intervals(values, unions, sd[varies], spread[varies], level[varies])
    low, high = (_sizes_at(sizes, end, varies, sd) for end in ends.T)
    high = np.where(varies, high, 1.0)  # rows that are all equal exclude no effect
    return EffectEstimates(middle, np.column_stack([np.minimum(low, middle), np.maximum(high, middle)]))


def _from_laws(sizes: EffectsWithLaws, truncation: Sequence[np.ndarray], level: np.ndarray) -> EffectEstimates:
    everywhere = np.array([piece is EVERYWHERE for piece in truncation])
    unions = None if everywhere.all() else truncation
    middle = sizes.point
    if unions is not None:
        # Selection can only inflate an estimate.
        middle = np.where(everywhere, middle, np.minimum(middle, sizes.medians(unions)))
    low, high = sizes.intervals(level, unions).T
    # A conservative test has a conservative interval, which may exclude the estimate without this.
    return EffectEstimates(middle, np.column_stack([np.minimum(low, middle), np.maximum(high, middle)]))


def _sizes_at(sizes: EffectSizes, means: np.ndarray, varies: np.ndarray, sd: np.ndarray) -> np.ndarray:
    # Beyond this many standard deviations the effect size is 1.
    means = np.minimum(means, 1e6 * np.where(varies, sd, 1.0))
    # At a mean of 0 the effect size is 0; `at` would return its rounding error.
    return np.where(means > 0, sizes.at(means), 0.0)


@dataclass(frozen=True)
class Coverage:
    """The kind of coverage that the intervals have."""

    confidence_level: float  # the nominal level
    # (k,) which of the listed features are discoveries, where the intervals control the false coverage rate; None
    # where each interval has the nominal level.
    discoveries: np.ndarray | None = None
    share: float = 1.0  # R / d for R discoveries among d tested features

    def levels(self, count: int) -> np.ndarray:
        """One level for each feature: for the R discoveries among d tested 1 - (1 - confidence_level) R / d."""
        # An interval at whose level the test just rejects leaves out 0 in spite of rounding.
        missed = np.full(count, (1.0 - self.confidence_level) * (1.0 + ROUNDING))
        if self.discoveries is not None:
            missed[self.discoveries] *= self.share
        return 1.0 - missed

    def extended(self, intervals: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Intervals of these features, where those of features that are no discoveries begin at 0."""
        if self.discoveries is None:
            return intervals
        low = np.where(self.discoveries[rows], intervals[:, 0], 0.0)
        return np.column_stack([low, intervals[:, 1]])


class Estimates:
    """Effect sizes and intervals of the listed features.

    Attributes
    ----------
    effects : ndarray of shape (k,) or None
        Effect sizes in [0, 1], median-unbiased where a selection was conditioned on; None where the estimator has none.
    raw_effects : ndarray of shape (k,) or None
        The same without conditioning on the selection.
    intervals : ndarray of shape (k, 2) or None
        Confidence intervals; None where the estimator has none, NaN beyond the first 1000 features.
    """

    def __init__(
        self, scores: Scores, selected: np.ndarray, outcome: Outcome, coverage: Coverage, most: int = _MOST
    ) -> None:
        # Variances are all that estimates need; what covariances are computed from is as large as the data.
        scores = replace(scores, cov=DiagonalCovariance(scores.cov.diagonal()))
        self._work: tuple[Scores, np.ndarray, Outcome, Coverage] | None = (scores, selected, outcome, coverage)
        self._most = most

    def with_coverage(self, coverage: Coverage, most: int) -> Estimates:
        """The same effects, with intervals of another coverage for the first `most` features; for 0 there are none."""
        assert self._work is not None
        scores, selected, outcome, _ = self._work
        return Estimates(scores, selected, outcome, coverage, most)

    @cached_property
    def raw_effects(self) -> np.ndarray | None:
        return None if self._sizes is None else self._sizes.point

    @cached_property
    def effects(self) -> np.ndarray | None:
        if self._work is None or self._sizes is None:
            return None
        pieces = self._work[2].truncation
        if all(piece is EVERYWHERE for piece in pieces):
            return self._sizes.point
        return self._estimated(np.arange(len(pieces))).median_unbiased

    @cached_property
    def intervals(self) -> np.ndarray | None:
        count = 0 if self._work is None else len(self._work[1])
        found = self.intervals_of(np.arange(min(count, self._most))) if self._most else None
        if found is not None:
            found = np.concatenate([found, np.full((count - len(found), 2), np.nan)])
        # Nothing is left to compute, so that the data can be freed.
        self.raw_effects, self.effects  # noqa: B018
        self._work = None
        self.__dict__.pop("_sizes", None)
        return found

    def intervals_of(self, rows: np.ndarray) -> np.ndarray | None:
        """Intervals of some of the listed features, given by their positions in the list."""
        if "intervals" in self.__dict__:
            known: np.ndarray | None = self.__dict__["intervals"]
            return None if known is None else known[rows]
        if self._work is None or self._sizes is None:
            return None
        found = self._estimated(rows[:_MOST]).intervals
        if found is None:
            return None
        return np.concatenate([found, np.full((len(rows) - len(found), 2), np.nan)])

    def _estimated(self, rows: np.ndarray) -> EffectEstimates:
        assert self._work is not None and self._sizes is not None
        scores, selected, outcome, coverage = self._work
        sizes, truncation = self._sizes, outcome.truncation
        levels = coverage.levels(len(selected))[rows]
        if len(rows) < len(selected) and scores.effects is not None:
            sizes = scores.effects(selected[rows])
            truncation = tuple(truncation[row] for row in rows)
        found = effect_estimates(scores, selected[rows], sizes, truncation, levels)
        return found if found.intervals is None else found._replace(intervals=coverage.extended(found.intervals, rows))

    @cached_property
    def _sizes(self) -> EffectSizes | EffectsWithLaws | None:
        if self._work is None or self._work[0].effects is None:
            return None
        scores, selected, *_ = self._work
        if len(selected) == 0:
            return EffectSizes(np.empty(0), np.empty(0), lambda means: means)
        assert scores.effects is not None
        return scores.effects(selected)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the numbers without the data they are computed from."""
        return {name: getattr(self, name) for name in ("raw_effects", "effects", "intervals")} | {"_work": None}
