"""Confidence intervals for effect sizes, by inverting the law of T along a family of alternatives.

T = |C|^2 is the squared norm of the cross-covariance C = mean of f(x) g(y)' between the factors of a feature and of a
response. The effect is the kernel correlation, the root of |C|^2 / sqrt(D_x D_y), with D = tr(S^2) of a factor's
covariance S. An interval holds the effects that a test based on T does not reject. The test uses the law of T *at that
effect*: its spread grows with the effect, so the spread at the observed T would make the upper end too low (the
difference between Wald's and Wilson's interval for a proportion).

**Family.** P_t(x | y) is proportional to p(x) exp(t e(x, y)) on the values of the rows, and y keeps its law q. At t = 0
the feature and the response are independent. e is the influence function of the effect up to a factor,

    e(x, y) = f(x)' C g(y) - |C|^2 / 2 (f(x)' S_x f(x) / D_x + g(y)' S_y g(y) / D_y),

at the observed C: the direction in which the effect grows fastest for a given change of the law. It includes the margin
of x, because rare values occur in few rows. It is Efron's (1981) least favourable family, started at independence; the
effect grows from 0 to 1 along it. For two samples the numbers of rows are fixed, and rows of one sample vary around
their own mean; the term of y is then a constant.

**Law of T at t.** The mean over n rows of P_t is nearly normal, with mean C_t and covariance S_t / n, so that T has the
cumulants tr(S)/n + |C|^2, 2 tr(S^2)/n^2 + 4 C'SC/n and 8 tr(S^3)/n^3 + 24 C'S^2C/n^2. The terms without C are those of
the exact permutation moments at t = 0, in proportion to the powers of tr(S). The terms with C include the noise of the
denominator through the influence function. A power of T is then nearly normal (Jensen and Solomon 1972). The difference
to the test's score at t = 0 is kept along the family, so that an interval excludes 0 exactly when the test rejects.

**Both signs.** T does not depend on the sign of C. For two samples of unequal size, and for rare values in few rows,
the opposite sign can have the larger effect that is compatible with T. There the upper end is the larger one of the
families for C and for -C.

**Unseen values.** A value of probability u does not occur in n rows with probability (1 - u)^n. The upper end is at
least the effect that one such value could have. No upper end excludes a smaller effect, so that for it all of the error
probability is on the side of the lower end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp

from kernsift.distributions.truncated_normal import log_mass
from kernsift.estimators.null_laws.permutation_law import gamma_score

# Members of a family whose moments are computed, in standard deviations of the influence function under independence,
# and how many members are interpolated from one to the next.
_TILTS = np.concatenate([[0.0], np.geomspace(0.04, 20.0, 17)])
_BETWEEN = 20
# Elements of one array (feature, value, response) of a family.
_NUMBERS = 2**17
# Up to this score the test's correction of a score is constant; and the least slope of corrected scores.
_NEAR, _LEAST_SLOPE = 2.0, 0.1
# From this score on the sign of the cross-covariance is known, and one family is enough.
_SIGN_KNOWN = 3.0
# With a response of many cells the opposite sign matters for few rows: in simulations with 16 to 30 rows it raises
# upper ends by up to 0.36 (rare values), with 200 rows by less than 0.03 and on average by 0.001.
_FEW_ROWS = 128
# The share of the test's correction that widens the upper end, and the largest correction for a discrete T.
_CONTINUITY, _MOST = 0.5, 1.0
# Bounds of the asymmetry of the rows' influence. Close to an effect of 1 few rows dominate, and the law of T has a long
# left tail; its right tail would be too short with a law fitted to three moments.
_ASYMMETRY, _LEFT_ASYMMETRY = 0.8, 3.0
# The correction for a smaller asymmetry is in proportion to it.
_LITTLE = 0.05
_LEAST_POWER = 0.1


class NullMoments(NamedTuple):
    """Mean, standard deviation and skewness (b,) of T = |sum over rows of f g'|^2 over all permutations."""

    mean: np.ndarray
    sd: np.ndarray
    skewness: np.ndarray


class FamilyMoments(NamedTuple):
    """Laws of R = T / (n^2 sqrt(D_x D_y)) along a family of alternatives, (b, t) each.

    `asymmetry` is the skewness that comes from the rows' influence on R, and `skewness` that of the quadratic form.
    """

    effect: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    skewness: np.ndarray
    asymmetry: np.ndarray

    def scores(self, statistic: np.ndarray) -> np.ndarray:
        """(b, t) normal scores of statistics (b, 1) or (b, t): a power of R is nearly normal."""
        power, centre, scale = self._power()
        with np.errstate(over="ignore"):
            score = (_signed_power(statistic / self.mean, power) - centre) / scale
        skewness = np.clip(self.asymmetry, np.where(score < 0, -_LEFT_ASYMMETRY, -_ASYMMETRY), _ASYMMETRY)
        sign = np.where(skewness < 0, -1.0, 1.0)
        size = np.maximum(np.abs(skewness), _LITTLE)
        return score + (sign * gamma_score(sign * score, size) - score) * np.abs(skewness) / size

    def null_statistics(self, scores: np.ndarray) -> np.ndarray:
        """Statistics that have these scores (b,) under independence; negative for scores below that of 0."""
        power, centre, scale = (part[:, 0] for part in self._power())
        return self.mean[:, 0] * _signed_power(centre + scores * scale, 1.0 / power)

    def _power(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The power of R / mean that is nearly normal, and its mean and deviation (Jensen and Solomon 1972)."""
        ratio = self.sd / self.mean
        power = np.clip(1.0 - self.skewness / (3.0 * ratio), _LEAST_POWER, 1.0)
        rest = (1.0 - power) * (1.0 - 3.0 * power) * ratio**2
        centre = 1.0 - 0.5 * power * (1.0 - power) * ratio**2 * (
            1.0 - 0.25 * (2.0 - power) * (1 - 3 * power) * ratio**2
        )
        return power, centre, power * ratio * np.sqrt(np.maximum(1.0 - 0.5 * rest, 0.1))


class Unseen(NamedTuple):
    """What the effect of a value that occurs in no row of a sample, or in no row at all, depends on.

    Attributes
    ----------
    rows : ndarray of shape (b, s)
        Rows of each sample, or all rows.
    share : ndarray of shape (b, s)
        Their share of all rows.
    extreme : ndarray of shape (b,)
        Largest squared distance of an observed value from the mean; an unseen value may be as far.
    size : ndarray of shape (b,)
        sqrt(D_x) of the observed values.
    target, target_size : ndarray of shape (b,)
        The same for a response with a random margin; 0 for samples.
    """

    rows: np.ndarray
    share: np.ndarray
    extreme: np.ndarray
    size: np.ndarray
    target: np.ndarray
    target_size: np.ndarray

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
        return np.sqrt(np.clip(between / (whole * response), 0.0, 1.0)).max(axis=1)


class EffectLaws(NamedTuple):
    """Observed statistics of b features under one kernel, and their laws along families of alternatives.

    Attributes
    ----------
    point : ndarray of shape (b,)
        Effects, corrected for chance.
    statistic : ndarray of shape (b,)
        R, the effect squared before that correction.
    score : ndarray of shape (b,)
        Normal scores of the tests with this kernel.
    penalty : ndarray of shape (b,)
        The correction of the score for testing several kernels.
    families : tuple of FamilyMoments
        The laws for the sign of the observed cross-covariance, and for the opposite one.
    unseen : Unseen
        What the effect of an unseen value depends on.
    whole : ndarray of shape (b,)
        The factor from R, less its mean under independence, to the effect squared; it makes that of y with itself 1.
    """

    point: np.ndarray
    statistic: np.ndarray
    score: np.ndarray
    penalty: np.ndarray
    families: tuple[FamilyMoments, FamilyMoments]
    unseen: Unseen
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
        one-sided test rejects. An effect that no upper end can be below has all of it on the other side.

        Parameters
        ----------
        level : float or ndarray of shape (b,), default=0.95
            Coverage.
        unions : sequence of ndarray of shape (k, 2), optional
            For each feature the intervals of its score, less the penalty, on which it is selected; None without
            selection.
        least : ndarray of shape (b,), optional
            The least possible upper ends; those of `least_upper_ends` if None.
        """
        miss = np.broadcast_to(1.0 - np.asarray(level, float), self.score.shape)[:, None]
        least = self.least_upper_ends(level) if least is None else least
        high = np.max([least, *(self._ends(laws, unions, miss) for laws in self.families)], axis=0)
        return np.column_stack([np.minimum(self._ends(self.families[0], unions, miss, least), high), high])

    def least_upper_ends(self, level: float | np.ndarray) -> np.ndarray:
        """(b,) the effects that a value could have of which no row tells."""
        return self.unseen.effect(np.broadcast_to(0.5 * (1.0 - np.asarray(level, float)), self.score.shape))

    def medians(self, unions: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """(b,) median-unbiased effects: the observed score is the median of its law given selection."""
        tails, effect = self._log_tails(self.families[0], unions, "middle")
        return _first_crossing(effect, np.log(0.5) - tails, beyond=effect[:, -1])

    def chance(self, probability: float = 0.05) -> np.ndarray:
        """(b,) the estimated effects that a null feature exceeds with this probability."""
        warp, laws = self._warp(self.penalty), self.families[0]
        score = np.full(len(self.score), -ndtri(probability))
        excess = laws.null_statistics(warp.inverse(score)) - laws.mean[:, 0]
        return np.sqrt(np.clip(self.whole * excess, 0.0, 1.0))

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
        # A constant feature has no family.
        return _first_crossing(effect, excess, beyond=np.where(effect[:, -1] > 0, 1.0, 0.0) if upper else effect[:, -1])

    def _log_tails(
        self, laws: FamilyMoments, unions: Sequence[np.ndarray] | None, end: Literal["lower", "middle", "upper"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """(b, t) log probability, given selection, of a T at least as large, for the upper end at most; and effects.

        The probability of the observed T itself counts for both ends; half of it counts for the median.
        """
        upper = end == "upper"
        effect = np.maximum.accumulate(laws.effect, axis=1)
        plain = np.minimum.accumulate(laws.scores(self.statistic[:, None]), axis=1)
        warp = self._warp(self.penalty)
        observed = plain
        if end == "lower":
            observed = warp(plain)
        elif upper:
            observed = self._warp(np.zeros_like(self.penalty)).widened(plain)
        if unions is None:
            return log_ndtr(observed if upper else -observed), effect
        sizes = np.array([len(union) for union in unions])
        owner, starts = np.repeat(np.arange(len(sizes)), sizes), np.cumsum(sizes) - sizes
        own, warp = _taken(laws, owner), _taken(warp, owner)
        ends = []
        for edge in np.concatenate(unions).T:
            finite = np.isfinite(edge)
            moved = own.scores(own.null_statistics(warp.inverse(np.where(finite, edge, 0.0)))[:, None])
            ends.append(np.where(finite[:, None], warp(moved) if end == "lower" else moved, edge[:, None]))
        low, high = ends
        cut = observed[owner]
        inside = (low, np.minimum(high, cut)) if upper else (np.maximum(low, cut), high)
        total, part = (np.logaddexp.reduceat(log_mass(*pair), starts, axis=0) for pair in ((low, high), inside))
        known = np.isfinite(total)
        tails = np.minimum(part - np.where(known, total, 0.0), 0.0)
        return np.where(known, tails, -np.inf if upper else 0.0), effect

    def _warp(self, penalty: np.ndarray) -> _Warp:
        independent = _each(lambda part: part[:, :1], self.families[0])
        return _Warp(independent.scores(self.statistic[:, None])[:, 0], self.score - penalty)

    def take(self, features: np.ndarray) -> EffectLaws:
        """Some of the features."""
        return _taken(self, features)


class _Warp(NamedTuple):
    """From normal scores under the laws here to those of the test, which agree with it for the observed statistic.

    `first` (b,) are the scores of the observed statistics under the law at independence, `score` those of the test. Up
    to a small score the difference is a constant, from there on it grows to that of the observed score. A test that is
    stricter than the law here, because T has few values or several kernels are tried, is stricter for small scores too;
    one that is less strict differs from it in the far tail alone.
    """

    first: np.ndarray
    score: np.ndarray

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
        gap, beyond = self.score - self.first, np.maximum(self.first - _NEAR, 0.0)
        part = np.where(gap < 0, (_NEAR / (_NEAR + beyond)) ** 2, np.maximum(1.0 - beyond, 0.0))
        # Increasing, however strict the test is.
        shift = np.where(beyond > 0, np.minimum(gap * part, self.score - _NEAR - _LEAST_SLOPE * beyond), gap)
        slope = np.divide(self.score - _NEAR - shift, beyond, out=np.ones_like(gap), where=beyond > 0)
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


@dataclass(frozen=True)
class CombinedEffects:
    """Effects of b features that are tested with several kernels: the effect is the largest that any of them sees.

    Attributes
    ----------
    views : the laws under each of the kernels.

    Notes
    -----
    The lower end of an interval is the largest of the kernels' lower ends, each from its score after the penalty for
    their number: it leaves out 0 exactly when the combined test rejects. The upper end is the largest of theirs without
    a penalty, because the kernel with the largest effect has its own upper end above it. Where scores selected, they
    did so by the kernel with the best score, which has the lower end; the upper ends of the others are conditional on
    the same selection, with the differences between the scores held fixed.
    """

    views: tuple[EffectLaws, ...]

    @property
    def point(self) -> np.ndarray:
        """(b,) effects, corrected for chance."""
        return np.max([view.point for view in self.views], axis=0)

    def chance(self, probability: float = 0.05) -> np.ndarray:
        """(b,) the estimated effects that a feature without any exceeds with at most this probability."""
        return np.max([view.chance(probability) for view in self.views], axis=0)

    def intervals(self, level: float | np.ndarray = 0.95, unions: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """(b, 2) confidence intervals; see `EffectLaws.intervals`."""
        least = np.max([view.least_upper_ends(level) for view in self.views], axis=0)
        if unions is None:
            return np.max([view.intervals(level, None, least) for view in self.views], axis=0)
        scores = np.array([view.score - view.penalty for view in self.views])
        ends = []
        for view, behind in zip(self.views, scores.max(axis=0) - scores, strict=True):
            low, high = view.intervals(level, [union - by for union, by in zip(unions, behind, strict=True)], least).T
            ends.append(np.column_stack([np.where(behind > 0, 0.0, low), high]))
        return np.max(ends, axis=0)

    def medians(self, unions: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """(b,) median-unbiased effects under the kernel with the best score."""
        out = np.zeros(len(self._best))
        for place, view in enumerate(self.views):
            best = np.flatnonzero(self._best == place)
            if len(best):
                out[best] = view.take(best).medians(None if unions is None else [unions[i] for i in best.tolist()])
        return out

    @property
    def _best(self) -> np.ndarray:
        return np.argmax([view.score - view.penalty for view in self.views], axis=0)


def penalties(scores: np.ndarray, weights: np.ndarray, combined: np.ndarray) -> np.ndarray:
    """(K, b) corrections of the scores (K, b) of kernels whose p-values have weights (K,).

    `combined` (b,) are the scores of the smallest weighted p-values, corrected for their number. The kernel with the
    smallest one keeps the combined score; the others are lower by as much as their weighted p-values are.
    """
    weighted = -ndtri_exp(np.minimum(log_ndtr(-scores) - np.log(weights)[:, None], -1e-3))
    return scores - (combined + weighted - weighted.max(axis=0))


def effect_laws(
    factor: np.ndarray,
    counts: np.ndarray,
    response_factor: np.ndarray,
    joint: np.ndarray,
    null: NullMoments,
    score: np.ndarray,
    *,
    samples: bool,
    penalty: np.ndarray | None = None,
    statistic: np.ndarray | None = None,
) -> EffectLaws:
    """The laws of the statistics of b features along their families of alternatives.

    Parameters
    ----------
    factor : ndarray of shape (b, m, G)
        Factors of the features' Gram matrices on their points, centred over the rows.
    counts : ndarray of shape (b, G)
        Rows at each point.
    response_factor : ndarray of shape (p, J)
        The response's factor on its cells.
    joint : ndarray of shape (b, G, J)
        Rows at each point and cell.
    null : NullMoments
        Moments of T over permutations.
    score : ndarray of shape (b,)
        Normal scores of T.
    samples : bool
        Whether the response is the label of samples whose sizes are fixed.
    penalty : ndarray of shape (b,), optional
        The correction of the score for testing several kernels; see `penalties`.
    statistic : ndarray of shape (b,), optional
        T, where the points and cells represent a subset of the rows, with counts scaled up to all rows; None where
        `joint` has all rows.
    """
    if statistic is None:
        statistic = ((factor @ joint @ response_factor.T) ** 2).sum(axis=(1, 2))
    penalty = np.zeros(len(factor)) if penalty is None else penalty
    step = max(1, _NUMBERS // (joint.shape[1] * max(joint.shape[2], factor.shape[1])))
    parts = []
    for start in range(0, len(factor), step):
        part = slice(start, start + step)
        moments = _taken(null, part)
        alternatives = _Alternatives(factor[part], response_factor, counts[part], joint[part], moments, samples)
        parts.append(alternatives.laws(statistic[part], score[part], penalty[part]))
    return concatenated(parts)


class _Moments(NamedTuple):
    """Moments of a joint law that the law of R depends on, (b,) each; see the formulas in the module docstring."""

    dependence: np.ndarray  # |C|^2
    whole: np.ndarray  # sqrt(D_x D_y)
    unbiased: np.ndarray  # the same, each D without what chance adds to it
    adjusted: np.ndarray  # the same, each D less what chance adds to T if x = y under independence
    trace: np.ndarray  # tr S
    linear: np.ndarray  # variance of the influence function
    third: np.ndarray  # its third central moment


class _Pieces(NamedTuple):
    """Margins of a joint law, factors centred under it, and their covariances."""

    rows: np.ndarray
    columns: np.ndarray
    f: np.ndarray
    g: np.ndarray
    cross: np.ndarray
    own: np.ndarray
    target: np.ndarray

    def witness(self) -> np.ndarray:
        """(b, G, J) f' C g."""
        return _transposed(self.f) @ (self.cross @ self.g)

    def margins(self, samples: bool) -> np.ndarray:
        """The influence of the denominator, times |C|^2; that of given samples is a constant."""
        half = 0.5 * (self.cross**2).sum(axis=(1, 2))
        size_x, size_y = ((part**2).sum(axis=(1, 2)) for part in (self.own, self.target))
        of_x = _ratio(half, size_x)[:, None] * (self.f * (self.own @ self.f)).sum(axis=1)
        if samples:
            return of_x[:, :, None]
        of_y = _ratio(half, size_y)[:, None] * (self.g * (self.target @ self.g)).sum(axis=1)
        return of_x[:, :, None] + of_y[:, None, :]


@dataclass(frozen=True)
class _Alternatives:
    """Families of alternatives of some features: joint laws on their points, and the moments of these."""

    factor: np.ndarray
    response: np.ndarray
    counts: np.ndarray
    joint: np.ndarray
    null: NullMoments
    samples: bool

    @property
    def n(self) -> int:
        return round(float(self.counts[0].sum()))

    def laws(self, statistic: np.ndarray, score: np.ndarray, penalty: np.ndarray) -> EffectLaws:
        n = self.n
        shares = self.joint[0].sum(axis=0) / n
        points = self.counts / n
        base = points[:, :, None] * shares
        start = self.moments(base)
        same = self.family(base, self.direction(base, 1.0), start)
        unsure = np.flatnonzero((score < _SIGN_KNOWN) & ((len(shares) == 2) | (n <= _FEW_ROWS)))
        opposite = same
        if len(unsure):
            some = self.take(unsure)
            turned = some.direction(base[unsure], -1.0)
            found = some.family(base[unsure], turned, _taken(start, unsure))
            opposite = _each(np.copy, same)
            for into, part in zip(opposite, found, strict=True):
                into[unsure] = part
        scale = np.where(start.whole > 0, start.whole, 1.0)
        statistic = statistic / n**2 / scale
        whole = _ratio(start.whole, start.adjusted)
        point = np.sqrt(np.clip((statistic - self.null.mean / n**2 / scale) * whole, 0.0, 1.0))
        return EffectLaws(point, statistic, score, penalty, (same, opposite), self.unseen(points, shares), whole)

    def take(self, features: np.ndarray) -> _Alternatives:
        factor, counts, joint, null = _taken((self.factor, self.counts, self.joint, self.null), features)
        return replace(self, factor=factor, counts=counts, joint=joint, null=null)

    def direction(self, base: np.ndarray, sign: float) -> np.ndarray:
        """The influence function at the rows, or that for -C, with variance 1 under independence.

        Where C is 0 it is that of the leading directions of both factors.
        """
        pieces = self.pieces(self.joint / self.n)
        found = sign * pieces.witness() - pieces.margins(self.samples)
        lead = self.factor[:, 0, :, None] * self.response[0] * sign
        none = _variance(base, found) <= 1e-20 * _variance(base, lead) ** 2
        found = np.where(none[:, None, None], lead, found)
        spread = np.sqrt(_variance(base, found))
        found = found / np.where(spread > 0, spread, 1.0)[:, None, None]
        # Exponents are at most 0, and the largest of a cell is 0; points without rows have no weight.
        found = np.where(base > 0, found, -np.inf)
        return np.where(base > 0, found - found.max(axis=1, keepdims=True), 0.0)

    def family(self, base: np.ndarray, direction: np.ndarray, start: _Moments) -> FamilyMoments:
        """The laws along exp(t direction), from those at a few t."""
        at_once = max(1, _NUMBERS // base.size)
        parts = []
        for tilts in np.split(_TILTS, range(at_once, len(_TILTS), at_once)):
            features = np.tile(np.arange(len(base)), len(tilts))
            weights = (base * np.exp(tilts[:, None, None, None] * direction)).reshape(-1, *base.shape[1:])
            weights *= (_column_sums(base)[features] / _column_sums(weights))[:, None, :]
            parts.append(np.array(self.take(features).law(weights, _taken(start, features))).reshape(5, len(tilts), -1))
        coarse = np.swapaxes(np.concatenate(parts, axis=1), 0, 1)  # (t, 5, b)
        places = np.arange(len(_TILTS), dtype=float)
        fine = np.linspace(0.0, places[-1], (len(_TILTS) - 1) * _BETWEEN + 1)
        from scipy.interpolate import PchipInterpolator  # takes a third of a second to import

        return FamilyMoments(*np.moveaxis(PchipInterpolator(places, coarse)(fine), 0, 2))

    def law(self, joint: np.ndarray, start: _Moments) -> tuple[np.ndarray, ...]:
        """Effect, mean, deviation, skewness and asymmetry of R."""
        n, found = self.n, self.moments(joint)
        varies = start.trace > 0
        growth = np.divide(found.trace, start.trace, out=np.ones(len(joint)), where=varies)
        # The mean of products around estimated means is biased by a factor of 1 - 1/n; sample means are not products.
        kept = 1.0 if self.samples else (1.0 - 1.0 / n) ** 2
        mean = kept * found.dependence + growth * self.null.mean / n**2
        # A statistic that is constant over permutations gets a law that is nearly a point mass.
        sd = np.maximum(self.null.sd, 1e-3 * self.null.mean) / n**2 * growth
        # The spread of n rows around their own mean is too small by a factor of 1 - 1/n.
        linear = 4.0 * found.linear / (n - 1)
        variance = sd**2 + linear
        third = np.where(self.null.sd > 1e-6 * self.null.mean, self.null.skewness, 0.0) * sd**3
        # C' S^2 C as if the rows varied along C alone.
        third = third + 24.0 * _ratio(found.linear**2, found.dependence) / n**2
        root = np.maximum(np.sqrt(variance), 1e-6 * np.where(varies, mean, 1.0))
        scale = np.where(found.whole > 0, found.whole, 1.0)
        effect = np.sqrt(np.clip(_ratio(found.dependence, found.unbiased), 0.0, 1.0))
        mean = np.where(varies, mean, 1.0)
        return effect, mean / scale, root / scale, third / root**3, 8.0 * found.third / n**2 / root**3

    def pieces(self, joint: np.ndarray) -> _Pieces:
        rows, columns = _row_sums(joint), _column_sums(joint)
        f = self.factor - self.factor @ rows[:, :, None]
        g = self.response[None] - self.response[None] @ columns[:, :, None]
        own = (f * rows[:, None, :]) @ _transposed(f)
        target = (g * columns[:, None, :]) @ _transposed(g)
        return _Pieces(rows, columns, f, g, f @ joint @ _transposed(g), own, target)

    def moments(self, joint: np.ndarray) -> _Moments:
        n, pieces = self.n, self.pieces(joint)
        rows, columns, f, g, *rest = pieces
        dependence, size_x, size_y = ((part**2).sum(axis=(1, 2)) for part in rest)
        diagonal, diagonal_y = (f * f).sum(axis=1), (g * g).sum(axis=1)
        trace = (diagonal * (joint @ diagonal_y[:, :, None])[:, :, 0]).sum(axis=1)
        influence = pieces.witness() - pieces.margins(self.samples)
        weighted = joint * influence
        if self.samples:
            trace = trace - (diagonal_y * _ratio(((f @ joint) ** 2).sum(axis=1), columns)).sum(axis=1)
            influence -= _ratio(_column_sums(weighted), columns)[:, None, :]
        else:
            trace = trace - dependence
            influence -= weighted.sum(axis=(1, 2))[:, None, None]
        np.multiply(joint, influence, out=weighted)
        linear = np.einsum("bij,bij->b", weighted, influence)
        weighted *= influence
        third = np.einsum("bij,bij->b", weighted, influence)
        unbiased = _without_chance(n, size_x, diagonal, rows)
        unbiased = unbiased * (size_y if self.samples else _without_chance(n, size_y, diagonal_y, columns))
        adjusted = (size_x - (rows * diagonal).sum(axis=1) ** 2 / (n - 1)) * (
            size_y - (columns * diagonal_y).sum(axis=1) ** 2 / (n - 1)
        )
        adjusted = np.maximum(adjusted, 0.01 * size_x * size_y)
        return _Moments(
            dependence, np.sqrt(size_x * size_y), np.sqrt(unbiased), np.sqrt(adjusted), trace, linear, third
        )

    def unseen(self, points: np.ndarray, shares: np.ndarray) -> Unseen:
        b, n = len(points), self.n
        own = (self.factor * points[:, None, :]) @ _transposed(self.factor)
        size = np.sqrt((own**2).sum(axis=(1, 2)))
        # The scale of a constant feature is arbitrary.
        distance = np.where(points > 0, (self.factor**2).sum(axis=1), 0.0)
        extreme = np.where(size > 0, distance.max(axis=1), 1.0)
        if self.samples:
            zero = np.zeros(b)
            return Unseen(np.tile(shares * n, (b, 1)), np.tile(shares, (b, 1)), extreme, size, zero, zero)
        spread = np.sqrt((((self.response * shares) @ self.response.T) ** 2).sum())
        target = (self.response**2).sum(axis=0).max()
        return Unseen(np.full((b, 1), float(n)), np.ones((b, 1)), extreme, size, np.full(b, target), np.full(b, spread))


def _without_chance(n: int, size: np.ndarray, diagonal: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """tr(S^2) of a factor without its bias: the U-statistic over distinct rows, from the V-statistic.

    With few rows pairs of a row with itself dominate the V-statistic. The result is clipped to at least a tenth of it,
    as the U-statistic can be negative, and to at most all of it, so that an effect of 1 is preserved.
    """
    if n < 4:
        return size
    first, second = (weights * diagonal).sum(axis=1), (weights * diagonal**2).sum(axis=1)
    found = n * size - second * n / (n - 2) + n * first**2 / ((n - 1) * (n - 2))
    return np.clip(found / (n - 3), 0.1 * size, size)


def _variance(joint: np.ndarray, values: np.ndarray) -> np.ndarray:
    mean = (joint * values).sum(axis=(1, 2))
    return np.maximum((joint * (values - mean[:, None, None]) ** 2).sum(axis=(1, 2)), 0.0)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.zeros(above.shape), where=below > 0)


def _signed_power(values: np.ndarray, power: np.ndarray) -> np.ndarray:
    return np.sign(values) * np.abs(values) ** power


def _row_sums(joint: np.ndarray) -> np.ndarray:
    """Sums over the last axis; products with ones are faster where that axis is short."""
    return joint @ np.ones(joint.shape[2])


def _column_sums(joint: np.ndarray) -> np.ndarray:
    return np.ones(joint.shape[1]) @ joint


def _transposed(values: np.ndarray) -> np.ndarray:
    return np.swapaxes(values, -1, -2)


def concatenated(parts: Sequence[EffectLaws]) -> EffectLaws:
    """The features of several parts, concatenated."""
    return parts[0] if len(parts) == 1 else _each(lambda *arrays: np.concatenate(arrays), *parts)


Arrays = TypeVar("Arrays", bound=tuple[Any, ...])


def _each(function: Callable[..., np.ndarray], first: Arrays, *others: Arrays) -> Arrays:
    """A function of the arrays of one or several tuples of the same kind, which may contain tuples."""
    found = [
        _each(function, *parts) if isinstance(parts[0], tuple) else function(*parts)
        for parts in zip(first, *others, strict=True)
    ]
    return type(first)(*found) if hasattr(first, "_fields") else type(first)(found)


def _taken(arrays: Arrays, features: np.ndarray | slice) -> Arrays:
    return _each(lambda part: part[features], arrays)
