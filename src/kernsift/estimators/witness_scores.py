"""Scores from values along witness functions: Student statistics as normal scores, with effects.

The values at the test rows are independent given the witness. Student's law is corrected for the skewness that means
of few rows, or of rare values, have under the null. Correlations are estimated from the values at the first of these
rows, which are kept or computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kernsift.estimators.effects.kernel_correlations import effect_of
from kernsift.estimators.null_laws.student import (
    corrected_for_skewness,
    normal_scores,
    student_statistics,
    without_skewness,
)
from kernsift.estimators.scores import BlockCovariance, EffectSizes, Scores, ScoreScales, supported_variances
from kernsift.execution.arrays import Array, asarray_like, namespace, slices, take, to_numpy

# Relative error of a mean from rounding a column to a grid and its kernel to a low rank: larger than the sampling error
# only with little noise and many rows.
_ROUNDING = 2e-3
# Features whose kept values are scaled at a time.
_TOGETHER = 512


def witness_scales(scale: np.ndarray, mean: np.ndarray, variance: np.ndarray, null: np.ndarray) -> ScoreScales:
    """Scales of means, from variances over both halves in which the variance under the null is counted twice."""
    return ScoreScales(scale, np.sqrt(np.maximum(variance - null, null) + (_ROUNDING * mean) ** 2))


class Drawn(NamedTuple):
    """Values of features at the test rows: their number, their moments, and the values at the first rows.

    The rows are in random order, so that correlations can be estimated from the first ones. `third` are third central
    moments.
    """

    size: Any
    mean: np.ndarray
    variance: np.ndarray
    third: np.ndarray
    kept: Array

    @classmethod
    def empty(cls, count: int, d: int, kept: int = 0) -> Drawn:
        return cls(count, np.empty(d), np.empty(d), np.empty(d), np.empty((kept, d)))

    @classmethod
    def of(cls, values: np.ndarray, most: int | None = None) -> Drawn:
        """From values (rows, features), of which at most `most` rows are kept."""
        # A copy, because a view would keep all of them.
        kept = values if most is None or most >= len(values) else values[:most].copy()
        away = values - values.mean(axis=0)
        third = np.einsum("ij,ij,ij->j", away, away, away) / len(values)
        return cls(len(values), values.mean(axis=0), values.var(axis=0, ddof=1), third, kept)

    def put(self, features: np.ndarray, part: Drawn) -> None:
        """Store the values of some of the features."""
        self.mean[features], self.variance[features], self.third[features] = part.mean, part.variance, part.third
        if len(self.kept):
            self.kept[:, features] = to_numpy(part.kept)

    def take(self, features: np.ndarray) -> Drawn:
        """The values of the features at these places."""
        kept = self.kept if len(features) == len(self.mean) else take(self.kept, features, 1)
        return Drawn(self.size, self.mean[features], self.variance[features], self.third[features], kept)

    def part(self, share: Any) -> Array:
        """Rows whose squares add up to `share` times the variance; zeros for features that vary at other rows only.

        `share` is one number, or one per feature; 1 / size gives the variance of the mean.
        """
        xp = namespace(self.kept)
        rows = self.kept - xp.mean(self.kept, axis=0, keepdims=True)
        if int(self.kept.shape[0]) == self.size:
            return rows * asarray_like(np.sqrt(share / (self.size - 1)), rows)
        size = np.sqrt(to_numpy(xp.sum(rows**2, axis=0)))
        scale = np.divide(np.sqrt(self.variance * share), size, out=np.zeros(len(size)), where=size > 0)
        return rows * asarray_like(scale, rows)


Parts = Callable[[np.ndarray], Iterator[tuple[np.ndarray, Array]]]
"""Gives the centred, scaled draws (m, b) of some features, block by block; variance that they lack is not shared."""


def witness_scores(
    names: tuple[str, ...], first: np.ndarray, seconds: Sequence[np.ndarray], scales: ScoreScales
) -> Scores:
    """Student statistics of witness values where only the first sample's rows are shared by the features.

    `first` (rows, d) are that sample's values for every feature, `seconds` the others' values feature by feature.
    """
    one, counts = Drawn.of(first), np.array([len(column) for column in seconds])
    others = [Drawn.of(column[:, None]) for column in seconds]
    mean, variance, third = (np.concatenate(part) for part in zip(*(each[1:4] for each in others), strict=True))
    two = Drawn(counts, mean, variance, third, first[:0])
    # The first sample, whose rows the features share, has m / (n + m) of the variance of a difference of means.
    shared = _pooled_variance(one, two) * counts / (one.size + counts)
    share = np.divide(shared, one.variance, out=np.zeros(len(names)), where=one.variance > 0)
    return difference_scores(names, one, two, in_blocks(one.part(share)), scales)


def difference_parts(
    blocks: Callable[[np.ndarray], Iterable[tuple[np.ndarray, tuple[Drawn, Drawn, Any]]]], among: np.ndarray
) -> Iterator[tuple[np.ndarray, Array]]:
    """Rows of both samples whose squares add up to the variance of the difference of means, of the features `among`.

    `blocks` gives blocks of features with the values of both samples, which have these features and maybe more.
    """
    for features, (one, two, _) in blocks(among):
        inside = np.flatnonzero(np.isin(features, among))
        if len(inside):
            own, shares = features[inside], _pooled_shares(one.size, two.size)
            parts = [each.take(inside).part(share) for each, share in zip((one, two), shares, strict=True)]
            yield own, namespace(parts[0]).concat(parts, axis=0)


def _pooled_shares(one: Any, two: Any) -> tuple[Any, Any]:
    """What the variances of two samples of these sizes count for in the variance of the difference of means."""
    each = (1.0 / one + 1.0 / two) / (one + two - 2.0)
    return (one - 1) * each, (two - 1) * each


def _pooled_variance(one: Drawn, two: Drawn) -> np.ndarray:
    """(d,) variances of the differences of means of two samples that have one variance.

    With separate variances, few rows in which a rare value does not occur would differ significantly from many rows.
    """
    shares = _pooled_shares(one.size, two.size)
    return np.asarray(shares[0] * one.variance + shares[1] * two.variance)


def _pooled_skewness(one: Drawn, two: Drawn, variance: np.ndarray) -> np.ndarray:
    """(d,) the skewness of the differences of means, with this variance, of two samples that have one law."""
    third = (one.size * one.third + two.size * two.third) / (one.size + two.size)
    cumulant = third * (1.0 / one.size**2 - 1.0 / two.size**2)
    return np.divide(cumulant, variance**1.5, out=np.zeros(len(cumulant)), where=variance > 0)


def in_blocks(rows: np.ndarray) -> Parts:
    def parts(among: np.ndarray) -> Iterator[tuple[np.ndarray, Array]]:
        for own in (among[some] for some in slices(0, len(among), _TOGETHER)):
            yield own, rows[:, own]

    return parts


def difference_scores(names: tuple[str, ...], one: Drawn, two: Drawn, parts: Parts, scales: ScoreScales) -> Scores:
    """Student statistics of the values in two samples, of which the second may have other rows for each feature."""
    count = np.broadcast_to(one.size + two.size, len(names))
    variance = _pooled_variance(one, two)
    skewness = _pooled_skewness(one, two, variance)
    return student_scores(names, one.mean - two.mean, variance, parts, int(count.max()), count - 2.0, scales, skewness)


def student_scores(
    names: tuple[str, ...],
    estimate: np.ndarray,
    variance: np.ndarray,
    parts: Parts,
    count: int,
    freedom: np.ndarray,
    scales: ScoreScales,
    skewness: np.ndarray,
) -> Scores:
    """Normal scores of estimates with these variances, and with centred, scaled draws `parts`.

    `count` is the number of draws, `skewness` that of the estimates.
    """
    least = supported_variances(variance, estimate, count)
    error = np.sqrt(least)
    varies = error > 0
    # Features whose draws do not vary are uncorrelated with the others.
    scale = np.divide(1.0, error, out=np.zeros(len(error)), where=varies & (least == variance))
    statistic = np.divide(estimate, error, out=np.zeros(len(error)), where=varies)
    score = corrected_for_skewness(normal_scores(statistic, freedom), skewness)

    def blocks(some: np.ndarray) -> Iterator[tuple[np.ndarray, Array]]:
        for features, rows in parts(some):
            yield features, rows * asarray_like(scale[features], rows)

    def sizes(features: np.ndarray) -> EffectSizes:
        assert scales.spread is not None
        own, skew, whole = freedom[features], skewness[features], scales.scale[features]
        unit = np.where(varies, error, 1.0)[features]

        def at(means: np.ndarray) -> np.ndarray:
            statistics = student_statistics(without_skewness(means, skew), own)
            return effect_of(statistics * unit, np.where(varies[features], whole, 0.0))

        step = 1e-3 * (1.0 + np.abs(statistic[features]))
        ends = [
            corrected_for_skewness(normal_scores(statistic[features] + sign * step, own), skew) for sign in (1.0, -1.0)
        ]
        spread = (ends[0] - ends[1]) / (2 * step) * scales.spread[features] / unit
        return EffectSizes(effect_of(estimate[features], whole), spread, at)

    cov = BlockCovariance(varies.astype(float), blocks)
    return Scores(names, np.where(varies, score, 0.0), cov, effects=sizes)
