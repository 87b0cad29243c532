"""The complete estimator: all rows meet all rows, and the null law needs no resampling.

For every feature T = tr(Kc Lc), with Kc and Lc the centred Gram matrices of the feature and of the response; for two
samples the response is the sample label, which makes T the squared MMD of all rows, so one engine serves MMD and HSIC
and unequal sizes come free. T is turned into a normal score through its permutation law (`kernsift.permutation`). The
correlation between the scores of two null features is that of their T over permutations, which for large n is the
alignment of their Gram matrices.

**Adaptive bandwidth.** One bandwidth misses shapes. Each feature is looked at twice: with a wide kernel (4 times the
median distance: shifts of mean and spread), and with a narrow one (0.7 times) whose spectrum is flattened by a square
root, F (F'F)^(-1/2) F', so that finer shapes count too. The larger of the two scores is turned back into one normal
score with their bivariate normal law, the correlation again that over permutations; the kernel that won speaks for the
feature from then on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from kernsift.factors import Factors, fit_looks
from kernsift.kernels import FeatureKernels
from kernsift.permutation import (
    Invariants,
    gamma_score,
    invariants,
    larger_score,
    moment_matrix,
    moments,
    score_of,
    value_of,
)
from kernsift.scores import EffectSizes, FactorCovariance, Scores
from kernsift.tables import Table, stack

# Rows of the sketch that stands for the correlation matrix when samples are drawn (the multiscale test).
_SKETCH = 2000


def complete_mmd(
    X: Table, Y: Table, kernels: FeatureKernels, *, adaptive: bool = False, rng: np.random.Generator
) -> Scores:
    """Normal scores of the MMD between the samples, from all rows."""
    label = np.repeat([1.0, 0.0], [X.n, Y.n])[None, :]
    label -= label.mean()
    matchings = gammaln(X.n + Y.n + 1) - gammaln(X.n + 1) - gammaln(Y.n + 1)
    return _complete(stack([X, Y]), label, matchings, kernels, adaptive, rng)


def complete_hsic(
    X: Table,
    y: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    *,
    adaptive: bool = False,
    rng: np.random.Generator,
) -> Scores:
    """Normal scores of the HSIC with the response, from all rows."""
    response = fit_looks(y, response_kernels, False, rng=rng)[0].of(np.array([0]))[0]
    _, counts = np.unique(y.values, axis=0, return_counts=True)
    matchings = gammaln(y.n + 1) - gammaln(counts + 1).sum()
    return _complete(X, response, matchings, kernels, adaptive, rng)


def _complete(
    table: Table,
    response: np.ndarray,
    log_matchings: float,
    kernels: FeatureKernels,
    adaptive: bool,
    rng: np.random.Generator,
) -> Scores:
    target = invariants(response)
    looks = fit_looks(table, kernels, adaptive, rng=rng)
    score, sd, winner = np.zeros(table.d), np.zeros(table.d), np.zeros(table.d, dtype=int)
    for features in looks[-1].chunks(np.arange(table.d)):
        seen = [look_at(factors.of(features), response, target) for factors in looks]
        best = seen[0]
        if adaptive:
            best = larger_of(seen[0], seen[1], target)
            winner[features] = seen[1].score > seen[0].score
        score[features], sd[features] = best.score, best.sd
    # No permutation test can say less than one over the number of different matchings.
    score = np.minimum(score, score_of(np.array([-max(log_matchings, math.log(2.0))])))
    score = np.where(sd > 0, score, 0.0)

    def sizes(features: np.ndarray) -> EffectSizes:
        parts = [looks[winner[feature]].of(np.array([feature]))[0] for feature in features]
        return effect_sizes(parts, [response] * len(parts), [target] * len(parts), score[features])

    return Scores(table.names, score, AlignmentCovariance(looks, winner, target, sd), effects=sizes)


def effect_sizes(
    factors: list[np.ndarray], responses: list[np.ndarray], targets: list[Invariants], score: np.ndarray
) -> EffectSizes:
    """Kernel correlations, corrected for chance: (T - E T) / (sqrt(tr K^2 tr L^2) - E T), and the root of that."""
    details = [_detail(*parts) for parts in zip(factors, responses, targets, score, strict=True)]
    sd, skewness, whole, standardised, gap, spread = np.array(details).reshape(-1, 6).T

    def size(value: np.ndarray) -> np.ndarray:
        share = np.divide(value * sd, whole, out=np.zeros(len(sd)), where=whole > 0)
        return np.sqrt(np.clip(share, 0.0, 1.0))

    def at(means: np.ndarray) -> np.ndarray:
        return size(value_of(means + gap, skewness))

    return EffectSizes(size(standardised), spread, at)


def _detail(factor: np.ndarray, response: np.ndarray, target: Invariants, score: float) -> tuple[float, ...]:
    """One feature's standard deviation, skewness, largest excess, standardised T, score lost in choosing, and spread.

    Under the alternative T varies with the rows' influence 2 f' C g, C = F G' the cross-covariance. Where there is no
    dependence that counts the null variance twice, so it is taken off once.
    """
    n = factor.shape[1]
    own = invariants(factor)
    cross = factor @ response.T
    mean, sd, skewness = moments(n, own, target)
    if not sd > 1e-9 * mean:
        return 0.0, 0.0, 0.0, 0.0, 0.0, 1.0
    influence = 2.0 * np.einsum("mn,mn->n", factor, cross @ response)
    variance = n * influence.var() - sd**2
    standardised = ((cross**2).sum() - mean) / sd
    step = 1e-3
    ends = gamma_score(standardised + np.array([-step, step]), np.full(2, skewness))
    spread = max(1.0, (ends[1] - ends[0]) / (2 * step) * np.sqrt(max(variance, 0.0)) / sd)
    squares = own.second[0] + own.trace**2 / (n - 1), target.second[0] + target.trace**2 / (n - 1)
    whole = np.sqrt(squares[0] * squares[1]) - mean
    gap = gamma_score(np.array([standardised]), np.array([skewness]))[0] - score
    return float(sd), float(skewness), float(whole), float(standardised), float(gap), float(spread)


class Look(NamedTuple):
    """One kernel's view of some features."""

    factor: np.ndarray
    own: Invariants
    score: np.ndarray
    sd: np.ndarray


def look_at(factor: np.ndarray, response: np.ndarray, target: Invariants) -> Look:
    own = invariants(factor)
    statistic = ((factor @ response.T) ** 2).sum((1, 2))
    mean, sd, skewness = moments(factor.shape[2], own, target)
    # A spread that is rounding error beside the mean is none: constant features, and responses.
    sd = np.where(sd > 1e-9 * mean, sd, 0.0)
    varies = sd > 0
    standardised = (statistic - mean) / np.where(varies, sd, 1.0)
    return Look(factor, own, np.where(varies, gamma_score(standardised, skewness), 0.0), sd)


def larger_of(wide: Look, narrow: Look, target: Invariants) -> Look:
    cross = ((wide.factor @ np.swapaxes(narrow.factor, 1, 2)) ** 2).sum((1, 2))
    shared = np.einsum("dn,dn->d", wide.own.diagonal, narrow.own.diagonal)
    n = wide.factor.shape[2]
    correlation = _covariance(cross, wide.own.trace * narrow.own.trace, shared, target, n)
    varies = (wide.sd > 0) & (narrow.sd > 0)
    correlation = np.where(varies, correlation / np.where(varies, wide.sd * narrow.sd, 1.0), 1.0)
    score = larger_score(wide.score, narrow.score, np.clip(correlation, -1.0, 1.0))
    # A feature with two values, say, has one centred kernel up to a factor: nothing was chosen between.
    score = np.where(correlation > 1.0 - 1e-9, np.maximum(wide.score, narrow.score), score)
    return narrow._replace(score=score, sd=np.where(narrow.score > wide.score, narrow.sd, wide.sd))


def _covariance(
    products: np.ndarray, traces: np.ndarray, diagonals: np.ndarray, target: Invariants, n: int
) -> np.ndarray:
    """Covariance of T_i and T_j over permutations, from tr(K_i K_j), tr K_i tr K_j and the diagonals' product."""
    weight = moment_matrix(2, n) @ target.second
    return (products - traces / (n - 1)) * weight[0] + diagonals * weight[1]


@dataclass(frozen=True)
class AlignmentCovariance:
    """Correlation of the scores over permutations of the rows; 0 on the diagonal for features that cannot vary."""

    looks: tuple[Factors, ...]
    winner: np.ndarray
    target: Invariants
    sd: np.ndarray

    def diagonal(self) -> np.ndarray:
        return (self.sd > 0).astype(float)

    def columns(self, features: np.ndarray) -> np.ndarray:
        out = np.zeros((len(self.sd), len(features)))
        n = self.looks[0].table.n
        chosen = [self._speaking(np.array([feature])) for feature in features]
        for chunk, factor, trace, rest in self._all():
            for place, (_, own, own_trace, own_rest) in enumerate(chosen):
                products = ((factor @ own[0].T) ** 2).sum((1, 2))
                covariance = _covariance(products, trace * own_trace[0], rest @ own_rest[0], self.target, n)
                scale = self.sd[chunk] * self.sd[features[place]]
                out[chunk, place] = np.divide(covariance, scale, out=np.zeros(len(chunk)), where=scale > 0)
        out[features, np.arange(len(features))] = self.sd[features] > 0
        return np.clip(out, -1.0, 1.0)

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Normal draws by a random sketch: with a, b normal vectors, a'K_i b has covariance tr(K_i K_j)."""
        n, d = self.looks[0].table.n, len(self.sd)
        sketch = np.empty((_SKETCH, d))
        a, b = rng.standard_normal((2, n, _SKETCH))
        for chunk, factor, _, _ in self._all():
            sketch[:, chunk] = ((factor @ a) * (factor @ b)).sum(axis=1).T
        norm = np.sqrt((sketch**2).sum(axis=0))
        sketch *= np.divide((self.sd > 0), norm, out=np.zeros(d), where=norm > 0)
        return FactorCovariance(sketch).sample(size, rng)

    def _all(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        for which, factors in enumerate(self.looks):
            for chunk in factors.chunks(np.flatnonzero(self.winner == which)):
                yield self._speaking(chunk)

    def _speaking(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The winning factor of features that share one look, its traces, and its diagonals without their mean."""
        factor = self.looks[self.winner[features[0]]].of(features)
        diagonal = np.einsum("dmn,dmn->dn", factor, factor)
        return features, factor, diagonal.sum(axis=1), diagonal - diagonal.mean(axis=1, keepdims=True)
