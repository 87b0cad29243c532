"""The complete estimator: all rows meet all rows, and the null law needs no resampling.

For every feature T = tr(Kc Lc), with Kc and Lc the centred Gram matrices of the feature and of the response; for two
samples the response is the sample label, which makes T the squared MMD of all rows, so one engine serves MMD and HSIC
and unequal sizes come free. T is turned into a normal score through its permutation law (`kernsift.permutation`). The
correlation between the scores of two null features is that of their T over permutations, which for large n is the
alignment of their Gram matrices.

**Adaptive bandwidth.** One bandwidth misses shapes, so each feature is looked at twice (`kernsift.factors.fit_looks`).
The larger of the two scores is turned back into one normal score with their bivariate normal law, the correlation again
that over permutations; the kernel that won speaks for the feature from then on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from kernsift.factors import Factors, fit_factors, fit_looks
from kernsift.kernels import FeatureKernels
from kernsift.permutation import (
    Invariants,
    gamma_score,
    invariants,
    larger_score,
    limit_weights,
    moment_matrix,
    moments,
    score_of,
    spectral_score,
    value_of,
)
from kernsift.progress import tell
from kernsift.scores import DenseCovariance, EffectSizes, FactorCovariance, Scores
from kernsift.tables import Table, stack

# Rows of the sketch that stands for the correlation matrix when samples are drawn (the multiscale test).
_SKETCH = 2000
# The spread of a score is estimated; dependence that sits in one direction can make it smaller than 1, but not vanish.
_LEAST_SPREAD = 0.5
# Numbers in one temporary array of inner products: 2^21 are 16 MB.
_NUMBERS = 2**21
# Directions of a factor with less than this share of tr(K^2) do not count in correlations.
_FAINT = 1e-6


def complete_mmd(
    X: Table, Y: Table, kernels: FeatureKernels, *, adaptive: bool = False, rng: np.random.Generator
) -> Scores:
    """Normal scores of the MMD between the samples, from all rows."""
    return _complete(stack([X, Y]), sample_label(X.n, Y.n), kernels, adaptive, rng)


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
    factor = fit_factors(y, response_kernels, rng=rng).of(np.array([0]))[0]
    _, counts = np.unique(y.values, axis=0, return_counts=True)
    matchings = float(gammaln(y.n + 1) - gammaln(counts + 1).sum())
    return _complete(X, Response(factor, invariants(factor), _ceiling(matchings)), kernels, adaptive, rng)


class Response(NamedTuple):
    """What the features are held against: centred factor (p, n), its invariants, and the highest score allowed.

    No permutation test can say less than one over the number of different matchings of rows.
    """

    factor: np.ndarray
    own: Invariants
    ceiling: float


def sample_label(n: int, m: int) -> Response:
    """The label of two samples as a response."""
    factor = np.repeat([1.0, 0.0], [n, m])[None, :]
    factor -= factor.mean()
    return Response(factor, invariants(factor), _ceiling(float(gammaln(n + m + 1) - gammaln(n + 1) - gammaln(m + 1))))


def _ceiling(log_matchings: float) -> float:
    return float(score_of(np.array([-max(log_matchings, math.log(2.0))]))[0])


class Laws(NamedTuple):
    """T of some features and what is known of its law.

    `size` is tr(K^2); `influence` the variance of T that the rows' influence 2 f' C g amounts to, C = F G' the
    cross-covariance, which is what T varies by when there is dependence.
    """

    statistic: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    skewness: np.ndarray
    size: np.ndarray
    influence: np.ndarray

    @property
    def standardised(self) -> np.ndarray:
        return (self.statistic - self.mean) / np.where(self.sd > 0, self.sd, 1.0)


class Look(NamedTuple):
    """One kernel's view of some features."""

    factor: np.ndarray
    own: Invariants
    laws: Laws
    score: np.ndarray


def look_at(factor: np.ndarray, response: Response) -> Look:
    """T of features with centred factors (features, m, n), its law, and its normal score."""
    own, n = invariants(factor), factor.shape[2]
    cross = factor @ response.factor.T
    mean, sd, skewness = moments(n, own, response.own)
    # A spread that is rounding error beside the mean is none: constant features.
    sd = np.where(sd > 1e-9 * mean, sd, 0.0)
    influence = 4.0 * n * ((np.swapaxes(cross, 1, 2) @ factor) * response.factor).sum(axis=1).var(axis=1)
    laws = Laws((cross**2).sum((1, 2)), mean, sd, skewness, own.second[:, 0] + own.trace**2 / (n - 1), influence)
    varies = sd > 0
    # Rows are orthogonal, so their squared lengths are the eigenvalues; any will do where nothing varies.
    sizes = np.where(varies[:, None], (factor**2).sum(axis=2), 1.0)
    weights, counts = limit_weights(sizes, (response.factor**2).sum(axis=1))
    score = spectral_score(laws.standardised, skewness, weights, counts)
    return Look(factor, own, laws, np.where(varies, score, 0.0))


def larger_of(wide: Look, narrow: Look, response: Response) -> tuple[np.ndarray, np.ndarray]:
    """One score from two looks at each feature, and which of them it comes from (0 wide, 1 narrow)."""
    cross = ((wide.factor @ np.swapaxes(narrow.factor, 1, 2)) ** 2).sum((1, 2))
    shared = np.einsum("dn,dn->d", wide.own.diagonal, narrow.own.diagonal)
    covariance = _covariance(cross, wide.own.trace * narrow.own.trace, shared, response, wide.factor.shape[2])
    varies = (wide.laws.sd > 0) & (narrow.laws.sd > 0)
    scale = np.where(varies, wide.laws.sd * narrow.laws.sd, 1.0)
    correlation = np.clip(np.where(varies, covariance / scale, 1.0), -1.0, 1.0)
    score = larger_score(wide.score, narrow.score, correlation)
    # A feature with two values, say, has one centred kernel up to a factor: there was nothing to choose between.
    score = np.where(correlation > 1.0 - 1e-9, np.maximum(wide.score, narrow.score), score)
    return score, (narrow.score > wide.score).astype(int)


def _covariance(
    products: np.ndarray, traces: np.ndarray, diagonals: np.ndarray, response: Response, n: int
) -> np.ndarray:
    """Covariance of T_i and T_j over permutations, from tr(K_i K_j), tr K_i tr K_j and the diagonals' product."""
    weight = moment_matrix(2, n) @ response.own.second
    return (products - traces / (n - 1)) * weight[0] + diagonals * weight[1]


def _complete(
    table: Table, response: Response, kernels: FeatureKernels, adaptive: bool, rng: np.random.Generator
) -> Scores:
    looks = fit_looks(table, kernels, adaptive, rng=rng)
    score, winner = np.zeros(table.d), np.zeros(table.d, dtype=int)
    laws = np.zeros((len(Laws._fields), table.d))
    done = 0
    for features in looks[-1].chunks(np.arange(table.d)):
        seen = [look_at(factors.of(features), response) for factors in looks]
        score[features] = seen[0].score
        if adaptive:
            score[features], winner[features] = larger_of(seen[0], seen[1], response)
        laws[:, features] = np.choose(winner[features], [np.array(look.laws) for look in seen])
        done += len(features)
        tell("scoring features", done, table.d)
    law = Laws(*laws)
    score = two_by_two(table, looks[0].rank, response.factor, score)
    score = np.where(law.sd > 0, np.minimum(score, response.ceiling), 0.0)

    def effects(features: np.ndarray) -> EffectSizes:
        return effect_sizes(Laws(*laws[:, features]), score[features], response)

    return Scores(table.names, score, AlignmentCovariance(looks, winner, response, law.sd), effects=effects)


def two_by_two(table: Table, rank: np.ndarray, label: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Scores of features with two values against a response with two: Fisher's exact tail.

    There T is the squared deviation of one cell of a 2 x 2 table from its mean, whose law has few atoms, and no smooth
    law does it justice. All tables that deviate at least as much count, as in any permutation test.
    """
    two = np.flatnonzero((rank == 2) & (np.diff(table.offsets) == 1))
    if len(label) > 1 or len(np.unique(np.round(label[0], 12))) != 2 or len(two) == 0:
        return score
    values = table.values[:, table.offsets[two]]
    high = values == values.max(axis=0)
    binary = (high | (values == values.min(axis=0))).all(axis=0)
    two, high = two[binary], high[:, binary]
    first = label[0] > 0
    counts = np.column_stack([high.sum(axis=0), (high & first[:, None]).sum(axis=0)])
    tables, which = np.unique(counts, axis=0, return_inverse=True)
    tails = np.array([_hypergeometric_tail(len(first), int(first.sum()), *cells) for cells in tables.tolist()])
    out = score.copy()
    if len(two):
        out[two] = score_of(np.minimum(tails, -1e-15))[which.ravel()]
    return out


def _hypergeometric_tail(n: int, drawn: int, marked: int, seen: int) -> float:
    """Log of the chance that the number marked among the drawn deviates from its mean at least as much as `seen`."""
    cells = np.arange(max(0, drawn + marked - n), min(drawn, marked) + 1)
    log_mass = _log_choose(marked, cells) + _log_choose(n - marked, drawn - cells) - _log_choose(n, np.array(drawn))
    mean = drawn * marked / n
    return float(logsumexp(log_mass[np.abs(cells - mean) >= abs(seen - mean) * (1 - 1e-9)]))


def _log_choose(n: int, k: np.ndarray) -> np.ndarray:
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


def effect_sizes(laws: Laws, score: np.ndarray, response: Response) -> EffectSizes:
    """Kernel correlations, corrected for chance: the root of (T - E T) / (sqrt(tr K^2 tr L^2) - E T).

    A score's mean moves with T through the normal score, whose slope turns the spread of T into the score's. Where
    there is no dependence the rows' influence counts the null variance twice, so it is taken off once.
    """
    varies = laws.sd > 0
    sd = np.where(varies, laws.sd, 1.0)
    target = response.own.second[0] + response.own.trace**2 / (response.factor.shape[1] - 1)
    whole = np.sqrt(laws.size * target) - laws.mean
    # The Pearson III law is close enough here, and quick to invert; what it differs by at the observed T goes with it.
    offset = gamma_score(laws.standardised, laws.skewness) - score
    step = 1e-3
    rise = gamma_score(laws.standardised + step, laws.skewness) - gamma_score(laws.standardised - step, laws.skewness)
    spread = rise / (2 * step) * np.sqrt(np.maximum(laws.influence - sd**2, 0.0)) / sd
    centre = gamma_score(np.zeros(len(sd)), laws.skewness)

    def size(standardised: np.ndarray) -> np.ndarray:
        share = np.divide(standardised * sd, whole, out=np.zeros(len(sd)), where=varies & (whole > 0))
        return np.sqrt(np.clip(share, 0.0, 1.0))

    def at(means: np.ndarray) -> np.ndarray:
        # The score of the mean of T exceeds the mean score, by `centre` where there is no dependence and by less and
        # less the further away: so a mean score of 0 is an effect of 0.
        part = np.clip(means / np.maximum(score, 1.0), 0.0, 1.0)
        return size(value_of(means + offset * part + centre / (1.0 + 0.5 * means), laws.skewness))

    return EffectSizes(size(laws.standardised), np.where(varies, np.maximum(spread, _LEAST_SPREAD), 0.0), at)


class _Speaking(NamedTuple):
    """Winning factors of features that share a look, cut to the directions that count in correlations."""

    features: np.ndarray
    factor: np.ndarray
    trace: np.ndarray
    diagonal: np.ndarray


@dataclass(frozen=True)
class AlignmentCovariance:
    """Correlation of the scores over permutations of the rows; 0 on the diagonal for features that cannot vary."""

    looks: tuple[Factors, ...]
    winner: np.ndarray
    response: Response
    sd: np.ndarray

    def diagonal(self) -> np.ndarray:
        return (self.sd > 0).astype(float)

    def columns(self, features: np.ndarray) -> np.ndarray:
        out = np.zeros((len(self.sd), len(features)))
        place = {feature: column for column, feature in enumerate(features.tolist())}
        chosen, done = list(self._speaking(features)), 0
        for others in self._speaking(np.arange(len(self.sd))):
            for part in chosen:
                columns = np.array([place[feature] for feature in part.features.tolist()])
                out[np.ix_(others.features, columns)] = self._correlation(others, part)
            done += len(others.features)
            tell("correlating features", done, len(self.sd))
        out[features, np.arange(len(features))] = self.sd[features] > 0
        return out

    def _correlation(self, one: _Speaking, other: _Speaking) -> np.ndarray:
        (d, m, n), (k, q, _) = one.factor.shape, other.factor.shape
        products = np.empty((d, k))
        step = max(1, _NUMBERS // (m * k * q))
        for start in range(0, d, step):
            part = one.factor[start : start + step]
            inner = part.reshape(-1, n) @ other.factor.reshape(k * q, n).T
            products[start : start + step] = np.square(inner, out=inner).reshape(-1, m, k, q).sum(axis=(1, 3))
        traces = np.outer(one.trace, other.trace)
        covariance = _covariance(products, traces, one.diagonal @ other.diagonal.T, self.response, n)
        scale = np.outer(self.sd[one.features], self.sd[other.features])
        return np.clip(np.divide(covariance, scale, out=np.zeros((d, k)), where=scale > 0), -1.0, 1.0)

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Normal draws from the correlation matrix, or for many features from a random sketch of it, never larger.

        With a, b normal vectors, a'K_i b has covariance tr(K_i K_j) over features.
        """
        n, d = self.looks[0].table.n, len(self.sd)
        if d <= _SKETCH:
            return DenseCovariance(self.columns(np.arange(d))).sample(size, rng)
        sketch = np.empty((_SKETCH, d))
        a, b = rng.standard_normal((2, n, _SKETCH))
        for part in self._speaking(np.arange(d)):
            step = max(1, _NUMBERS // (part.factor.shape[1] * _SKETCH))
            for start in range(0, len(part.features), step):
                factor = part.factor[start : start + step]
                sketch[:, part.features[start : start + step]] = ((factor @ a) * (factor @ b)).sum(axis=1).T
        norm = np.sqrt((sketch**2).sum(axis=0))
        sketch *= np.divide(self.sd > 0, norm, out=np.zeros(d), where=norm > 0)
        return FactorCovariance(sketch).sample(size, rng)

    def _speaking(self, features: np.ndarray) -> Iterator[_Speaking]:
        for which, factors in enumerate(self.looks):
            for chunk in factors.chunks(features[self.winner[features] == which]):
                factor = factors.of(chunk)
                diagonal = np.einsum("dmn,dmn->dn", factor, factor)
                trace = diagonal.sum(axis=1)
                squares = np.einsum("dmn,dmn->dm", factor, factor) ** 2
                # What is left behind each direction, rows being orthogonal and the largest first.
                behind = squares[:, ::-1].cumsum(axis=1)[:, ::-1] > _FAINT * squares.sum(axis=1, keepdims=True)
                count = max(int(behind.sum(axis=1).max(initial=1)), 1)
                yield _Speaking(chunk, factor[:, :count], trace, diagonal - trace[:, None] / factor.shape[2])
