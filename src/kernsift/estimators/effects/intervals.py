"""Confidence intervals for effect sizes, by inverting the law of T along a family of alternatives.

T = |C|^2 is the squared norm of the cross-covariance C = mean of f(x) g(y)' between the factors of a feature and of a
response. The effect is the kernel correlation, the root of |C|^2 / sqrt(D_x D_y), with D = tr(S^2) of a factor's
covariance S. An interval holds the effects that a test based on T does not reject. The test uses the law of T *at that
effect* (`kernsift.estimators.effects.alternatives`): its spread grows with the effect, so the spread at the observed T
would make the upper end too low (the difference between Wald's and Wilson's interval for a proportion). The difference
to the test's score at independence is kept along the family, so that an interval excludes 0 exactly when the test
rejects.

**Both signs.** T does not depend on the sign of C. For two samples of unequal size, and for rare values in few rows,
the opposite sign can have the larger effect that is compatible with T. There the upper end is the larger one of the
families for C and for -C.

**Unseen rows.** A value of probability u does not occur in n rows with probability (1 - u)^n. The upper end is at
least the effect that one such value could have. No upper end excludes a smaller effect, so that for it all of the error
probability is on the side of the lower end. Likewise a lower end is at most the effect that is left if a share of the
rows is independent of the response, of which none occurs among the n.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from kernsift.distributions.truncated_normal import log_mass
from kernsift.estimators.effects.family_laws import FamilyMoments, map_arrays, take_features

# Up to this score the test's correction of a score is constant; and the least slope of corrected scores.
_NEAR, _LEAST_SLOPE = 2.0, 0.1
# Scores that differ by less are equal up to rounding.
_TIED = 1e-9
# The share of the test's correction that widens the upper end, and the largest correction for a discrete T.
_CONTINUITY, _MOST = 0.5, 1.0


class Unseen(NamedTuple):
    """What the effect of a value that occurs in no row of a sample, or in no row at all, depends on."""

    rows: np.ndarray  # (b, s) rows of each sample, or all rows
    share: np.ndarray  # (b, s) their share of all rows
    extreme: np.ndarray  # (b,) largest squared distance of a value from the mean; an unseen value may be as far
    size: np.ndarray  # (b,) sqrt(D_x) of the observed values
    target: np.ndarray  # (b,) as `extreme`, for a response with a random margin; 0 for samples
    target_size: np.ndarray  # (b,) as `size`, likewise

    def effect(self, miss: np.ndarray) -> np.ndarray:
        """(b,) the largest effect of a value that stays unseen with probability `miss` (b,)."""
        unseen = 1.0 - miss[:, None] ** (1.0 / self.rows)
        weight = self.share * unseen
        extreme, size = self.extreme[:, None], self.size[:, None]
        whole = np.hypot((1.0 - weight) * size, weight * (1.0 - weight) * extreme)
        # With samples: the label's own variance; with a response: the value occurs with the most extreme of its cells.
        label = self.share * (1.0 - self.share)
        between = (label * unseen) ** 2 * extreme
        target, target_size = self.target[:, None], self.target_size[:, None]
        given = target == 0
        between = np.where(given, between, (weight * (1.0 - weight)) ** 2 * extreme * target)
        response = np.where(given, label, np.hypot((1.0 - weight) * target_size, weight * (1.0 - weight) * target))
        # Where no two rows have the same class, no effect is excluded.
        scale = whole * response
        found = np.divide(between, scale, out=np.ones_like(scale), where=scale > 0)
        return np.sqrt(np.clip(found, 0.0, 1.0)).max(axis=1)

    def independent(self, miss: np.ndarray) -> np.ndarray:
        """(b,) the largest effect with such a share of independent rows that `miss` (b,) is the chance to see none.

        With a share v of rows independent of the response the effect is at most 1 - v. With samples, such a row looks
        like its own sample with the probability of that sample's share.
        """
        shares = np.linspace(0.0, 1.0, 513)[:-1]
        other = np.where(self.target[:, None] == 0, 1.0 - self.share, 1.0)
        log_unseen = (self.rows[:, None, :] * np.log1p(-shares[:, None] * other[:, None, :])).sum(axis=2)
        return 1.0 - np.array(
            [np.interp(-np.log(one), -row, shares) for one, row in zip(miss, log_unseen, strict=True)]
        )


class EffectLaws(NamedTuple):
    """Observed statistics of b features under one kernel, and their laws along families of alternatives."""

    point: np.ndarray  # (b,) effects, corrected for chance
    statistic: np.ndarray  # (b,) R, the effect squared before that correction
    score: np.ndarray  # (b,) normal scores of the tests with this kernel
    # (b, 2) the corrections for testing several kernels, of the score and of scores near the ends of intervals
    penalty: np.ndarray
    # The laws for the sign of the observed cross-covariance, and for the opposite one.
    families: tuple[FamilyMoments, FamilyMoments]
    unseen: Unseen  # what the effect of an unseen value depends on
    # (b,) the factor from R, less its mean under independence, to the effect squared; it makes that of y with
    # itself 1.
    whole: np.ndarray

    def intervals(
        self,
        level: float | np.ndarray = 0.95,
        unions: Sequence[np.ndarray] | None = None,
        least: np.ndarray | None = None,
    ) -> np.ndarray:
        """(b, 2) confidence intervals.

        The error probability is divided between the two sides as in
        `kernsift.distributions.truncated_normal.confidence_intervals`: the interval excludes 0 exactly when the
        one-sided test rejects. An effect below `least`, the least possible upper end (by default that of
        `least_upper_ends`), has all of it on the other side. `unions` are for each feature the intervals (k, 2) of its
        score, less the penalty, on which it is selected.
        """
        miss = np.broadcast_to(1.0 - np.asarray(level, float), self.score.shape)[:, None]
        least = self.least_upper_ends(level) if least is None else least
        high = np.max([least, *(self._ends(laws, unions, miss) for laws in self.families)], axis=0)
        most = np.minimum(high, self.unseen.independent(0.5 * miss[:, 0]))
        return np.column_stack([np.minimum(self._ends(self.families[0], unions, miss, least), most), high])

    def least_upper_ends(self, level: float | np.ndarray) -> np.ndarray:
        """(b,) the effects that a value could have that occurs in no row."""
        return self.unseen.effect(np.broadcast_to(0.5 * (1.0 - np.asarray(level, float)), self.score.shape))

    def medians(self, unions: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """(b,) median-unbiased effects: the observed score is the median of its law given selection."""
        tails, effect = self._log_tails(self.families[0], unions, "middle")
        return _first_crossing(effect, np.log(0.5) - tails, beyond=effect[:, -1])

    def _ends(
        self,
        laws: FamilyMoments,
        unions: Sequence[np.ndarray] | None,
        miss: np.ndarray,
        least: np.ndarray | None = None,
    ) -> np.ndarray:
        """(b,) upper ends, or with the least possible upper ends the lower ends."""
        upper = least is None
        tails, effect = self._log_tails(laws, unions, "upper" if upper else "lower")
        away = (laws.mean - laws.mean[:, :1]) / laws.sd
        below = miss * (ndtr(np.maximum(away, 0.0)) - 0.5)  # the error probability on the lower side
        if least is not None:
            below = np.where(effect <= least[:, None], 0.0, below)
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = tails - np.log(below) if upper else np.log(miss - below) - tails
        return _first_crossing(effect, excess, beyond=self._beyond(laws, miss[:, 0]) if upper else effect[:, -1])

    def _beyond(self, laws: FamilyMoments, miss: np.ndarray) -> np.ndarray:
        """(b,) upper ends where no member of the family is excluded.

        A feature with two values that is a function of the response has an effect below 1, which depends on the law of
        the response. Beyond the last member R has its spread around a larger mean.
        """
        effect, gain = laws.effect.max(axis=1), laws.mean[:, -1] - laws.mean[:, 0]
        further = self.statistic + ndtri(1.0 - 0.5 * miss) * laws.sd[:, -1] - laws.mean[:, -1]
        slope = np.divide(effect**2, gain, out=np.ones_like(gain), where=gain > 0)
        # A constant feature has no family.
        return np.where(effect > 0, np.sqrt(np.clip(effect**2 + slope * np.maximum(further, 0.0), 0.0, 1.0)), 0.0)

    def _log_tails(
        self, laws: FamilyMoments, unions: Sequence[np.ndarray] | None, end: Literal["lower", "middle", "upper"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """(b, t) log probability, given selection, of a T at least as large, for the upper end at most; and effects.

        The probability of the observed T itself counts for both ends; half of it counts for the median.
        """
        upper = end == "upper"
        effect = np.maximum.accumulate(laws.effect, axis=1)
        plain = laws.decreasing_scores(self.statistic)
        to_test = self._test_scores(self.penalty)
        observed = plain
        if end == "lower":
            observed = to_test(plain)
        elif upper:
            observed = self._test_scores(np.zeros_like(self.penalty)).widened(plain)
        if unions is None:
            return log_ndtr(observed if upper else -observed), effect
        sizes = np.array([len(union) for union in unions])
        owner, starts = np.repeat(np.arange(len(sizes)), sizes), np.cumsum(sizes) - sizes
        own, to_test = take_features(laws, owner), take_features(to_test, owner)
        ends = []
        for edge in np.concatenate(unions).T:
            finite = np.isfinite(edge)
            moved = own.decreasing_scores(own.null_statistics(to_test.inverse(np.where(finite, edge, 0.0))))
            ends.append(np.where(finite[:, None], to_test(moved) if end == "lower" else moved, edge[:, None]))
        low, high = ends
        cut = observed[owner]
        inside = (low, np.minimum(high, cut)) if upper else (np.maximum(low, cut), high)
        total, part = (np.logaddexp.reduceat(log_mass(*pair), starts, axis=0) for pair in ((low, high), inside))
        # A score that ties with another one at the cut excludes no effect.
        tied = np.array([union[0, 0] for union in unions]) >= self.score - self.penalty[:, 0] - _TIED
        known = np.isfinite(total) & np.isfinite(part) & ~tied[:, None]
        tails = np.where(known, part, 0.0) - np.where(known, total, 0.0)
        return np.minimum(tails, 0.0), effect

    def _test_scores(self, penalty: np.ndarray) -> _TestScores:
        independent = map_arrays(lambda part: part[:, :1], self.families[0])
        return _TestScores(independent.scores(self.statistic[:, None])[:, 0], self.score, penalty)

    def take(self, features: np.ndarray) -> EffectLaws:
        """Some of the features."""
        return take_features(self, features)


def concatenated(parts: Sequence[EffectLaws]) -> EffectLaws:
    """The features of several parts, concatenated."""
    return parts[0] if len(parts) == 1 else map_arrays(lambda *arrays: np.concatenate(arrays), *parts)


class _TestScores(NamedTuple):
    """A map from normal scores under the laws of effects to scores of the test, exact for the observed statistic.

    `first` (b,) are the scores of the observed statistics under the law at independence, `alone` those of the test with
    this kernel alone, and `penalty` (b, 2) the corrections of these, and of small scores, for testing several kernels.
    The difference between the two scores is constant up to a small score, and grows linearly from there to that of the
    observed score. A test that is stricter than the law, because T has few values or several kernels are tested, is
    stricter for small scores too; one that is less strict differs in the far tail only.
    """

    first: np.ndarray
    alone: np.ndarray
    penalty: np.ndarray

    @property
    def score(self) -> np.ndarray:
        """(b,) scores of the test."""
        return np.asarray(self.alone - self.penalty[:, 0])

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        shift, slope = (part[:, None] for part in self._shape())
        first, score = self.first[:, None], self.score[:, None]
        between = _NEAR + shift + slope * (scores - _NEAR)
        out = np.where(scores <= _NEAR, scores + shift, between)
        return np.where(scores >= first, scores + score - first, out)

    def widened(self, scores: np.ndarray) -> np.ndarray:
        """Larger scores where the test's are smaller: the probability of the observed T counts on both sides."""
        return scores + _CONTINUITY * np.clip(scores - self(scores), 0.0, _MOST)

    def inverse(self, scores: np.ndarray) -> np.ndarray:
        """Scores (b,) under the law here of statistics with these test scores (b,)."""
        shift, slope = self._shape()
        between = _NEAR + (scores - _NEAR - shift) / slope
        out = np.where(scores <= _NEAR + shift, scores - shift, between)
        return np.where(scores >= self.score, scores - self.score + self.first, out)

    def _shape(self) -> tuple[np.ndarray, np.ndarray]:
        """The shift of small scores, and the slope between a small score and the observed one."""
        gap, beyond = self.alone - self.first, np.maximum(self.first - _NEAR, 0.0)
        part = np.where(gap < 0, (_NEAR / (_NEAR + beyond)) ** 2, np.maximum(1.0 - beyond, 0.0))
        # Increasing, however strict the test is.
        score = self.score
        near = np.minimum(gap * part - self.penalty[:, 1], score - _NEAR - _LEAST_SLOPE * beyond)
        shift = np.where(beyond > 0, near, score - self.first)
        slope = np.divide(score - _NEAR - shift, beyond, out=np.ones_like(gap), where=beyond > 0)
        return shift, slope


def _first_crossing(effect: np.ndarray, excess: np.ndarray, beyond: float | np.ndarray) -> np.ndarray:
    """(b,) effects at which functions (b, t) are 0 or less for the first time; `beyond` where they never are."""
    b = np.arange(len(effect))
    outside = ~(excess > 0)
    never = ~outside.any(axis=1)
    after = np.where(never, effect.shape[1] - 1, outside.argmax(axis=1))
    before = np.maximum(after - 1, 0)
    above, below = excess[b, before], excess[b, after]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = above / (above - below)
    share = np.where(np.isfinite(share), share, 1.0)
    found = effect[b, before] + share * (effect[b, after] - effect[b, before])
    return np.where(after == 0, 0.0, np.where(never, beyond, found))
