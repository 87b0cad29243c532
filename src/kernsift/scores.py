"""The waist: one number per feature, and how those numbers vary together.

Everything before this file turns data into `Scores`; everything after it sees only `Scores`. The covariance is an
operator rather than a matrix, because the tests need its diagonal, the columns of the selected features, and samples,
but never all d x d entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Covariance(Protocol):
    """What the tests ask of the covariance of d scores."""

    def diagonal(self) -> np.ndarray:
        """The d variances."""

    def columns(self, features: np.ndarray) -> np.ndarray:
        """The covariance of every score with the named ones: (d, len(features))."""

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Centred normal draws with this covariance: (size, d)."""


def _root(matrix: np.ndarray) -> np.ndarray:
    """The symmetric root R of R @ R = matrix; by eigenvectors, as a covariance estimated from few draws is singular.

    The symmetric one, because eigenvectors of equal eigenvalues are arbitrary and would make draws depend on threads.
    """
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.clip(values, 0.0, None))) @ vectors.T)


@dataclass(frozen=True)
class DenseCovariance:
    """A covariance matrix somebody already has."""

    matrix: np.ndarray

    def diagonal(self) -> np.ndarray:
        return np.diagonal(self.matrix).copy()

    def columns(self, features: np.ndarray) -> np.ndarray:
        return self.matrix[:, features]

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((size, len(self.matrix))) @ _root(self.matrix)


@dataclass(frozen=True)
class DiagonalCovariance:
    """Scores that do not vary together."""

    variances: np.ndarray

    def diagonal(self) -> np.ndarray:
        return self.variances.copy()

    def columns(self, features: np.ndarray) -> np.ndarray:
        out = np.zeros((len(self.variances), len(features)))
        out[features, np.arange(len(features))] = self.variances[features]
        return out

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((size, len(self.variances))) * np.sqrt(self.variances)


@dataclass(frozen=True)
class FactorCovariance:
    """Covariance `factor.T @ factor` with a factor of shape (m, d): the draws themselves, centred and scaled."""

    factor: np.ndarray

    def diagonal(self) -> np.ndarray:
        return np.einsum("ij,ij->j", self.factor, self.factor)

    def columns(self, features: np.ndarray) -> np.ndarray:
        return self.factor.T @ self.factor[:, features]

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        root = self.factor
        if root.shape[0] > root.shape[1]:
            # d rows do the same as m, and are never larger than the draws.
            root = _root(root.T @ root)
        return rng.standard_normal((size, root.shape[0])) @ root


@dataclass(frozen=True)
class WeightedSum:
    """Covariance of a weighted sum of independent score vectors."""

    weights: tuple[float, ...]
    parts: tuple[Covariance, ...]

    def diagonal(self) -> np.ndarray:
        return np.sum([w**2 * part.diagonal() for w, part in zip(self.weights, self.parts, strict=True)], axis=0)

    def columns(self, features: np.ndarray) -> np.ndarray:
        return np.sum([w**2 * part.columns(features) for w, part in zip(self.weights, self.parts, strict=True)], axis=0)

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return np.sum([w * part.sample(size, rng) for w, part in zip(self.weights, self.parts, strict=True)], axis=0)


@dataclass(frozen=True)
class EffectSizes:
    """Some features' scores on a scale people can read: 0 for nothing, 1 for everything, like a correlation.

    Attributes
    ----------
    point : the effect sizes, in [0, 1].
    spread : standard deviations of the scores around their means when these are as large as observed; None where only
        the null variance is known, and then there are no confidence intervals.
    at : effect sizes that belong to given mean scores, one per feature, from 0 upwards; increasing in each.
    """

    point: np.ndarray
    spread: np.ndarray | None
    at: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Scores:
    """One score per feature and the covariance of the scores under the null.

    Attributes
    ----------
    names : the d feature names.
    estimate : the d scores; larger means more different, or more dependent.
    cov : covariance of `estimate` under the null hypothesis.
    draws : how many draws the estimate averages; None where the scores are no average and cannot be merged.
    resample : `resample(fraction, rng)` recomputes `estimate` on `fraction * n` rows drawn with replacement; None for
        scores that came without their data.
    effects : effect sizes of chosen features; None for scores that came without their data.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.inference import exact
    >>> from kernsift.scores import DiagonalCovariance, Scores
    >>> from kernsift.selection import TopK
    >>> scores = Scores(("a", "b", "c"), np.array([0.1, 3.2, 0.4]), DiagonalCovariance(np.ones(3)))
    >>> rule = TopK(1)
    >>> selected = rule.select(scores.estimate)
    >>> exact(scores, rule, selected, rng=np.random.default_rng()).pvalues.round(3)
    array([0.002])
    """

    names: tuple[str, ...]
    estimate: np.ndarray
    cov: Covariance
    draws: float | None = None
    resample: Callable[[float, np.random.Generator], np.ndarray] | None = None
    effects: Callable[[np.ndarray], EffectSizes] | None = None

    def __len__(self) -> int:
        return len(self.estimate)


def supported(factor: np.ndarray, estimate: np.ndarray, count: int) -> np.ndarray:
    """A covariance factor that claims no more than `count` draws can support.

    Draws that are all equal and not zero (two samples without overlap) would claim infinite precision; l draws cannot
    support more than l standard errors. Such features get a row of their own that says so.
    """
    least = (estimate / count) ** 2
    flat = np.flatnonzero(np.einsum("ij,ij->j", factor, factor) < 1e-12 * least)
    if len(flat) == 0:
        return factor
    extra = np.zeros((len(flat), len(estimate)))
    extra[np.arange(len(flat)), flat] = np.sqrt(least[flat])
    return np.vstack([factor, extra])


def scores_from_draws(
    names: Sequence[str],
    draws: np.ndarray,
    *,
    variance_factor: float | None = None,
    shared: bool = True,
    resample: Callable[[float, np.random.Generator], np.ndarray] | None = None,
) -> Scores:
    """Scores from an (l, d) array of draws: `estimate = mean(H)`, `cov = Cov(H) * variance_factor` (1/l by default).

    With `shared=False` every feature had a design of its own, so the scores are taken as uncorrelated.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.scores import scores_from_draws
    >>> draws = np.random.default_rng(0).normal(size=(400, 3))
    >>> scores = scores_from_draws(["a", "b", "c"], draws)
    >>> bool(np.allclose(scores.cov.diagonal(), draws.var(axis=0, ddof=1) / 400))
    True
    """
    count = len(draws)
    factor = 1.0 / count if variance_factor is None else variance_factor
    estimate = draws.mean(axis=0)
    scaled = (draws - estimate) * np.sqrt(factor / max(count - 1, 1))
    cov: Covariance = FactorCovariance(supported(scaled, estimate, count))
    if not shared:
        cov = DiagonalCovariance(cov.diagonal())
    return Scores(tuple(names), estimate, cov, draws=float(count), resample=resample)


def merge_scores(parts: Sequence[Scores]) -> Scores:
    """Scores of disjoint, independent row chunks as one: means weighted by draws, covariances accordingly.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.scores import merge_scores, scores_from_draws
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(30, 2)), rng.normal(size=(10, 2))
    >>> merged = merge_scores([scores_from_draws("xy", a), scores_from_draws("xy", b)])
    >>> bool(np.allclose(merged.estimate, np.vstack([a, b]).mean(axis=0)))
    True
    """
    if not parts:
        raise ValueError("parts: at least one Scores is needed, got none.")
    if any(part.names != parts[0].names for part in parts):
        raise ValueError("parts: all chunks must have the same feature names in the same order.")
    counts = []
    for part in parts:
        if part.draws is None:
            raise ValueError("parts: these scores are no average over draws and cannot be merged.")
        counts.append(part.draws)
    weights = tuple(count / sum(counts) for count in counts)
    estimate = np.sum([w * part.estimate for w, part in zip(weights, parts, strict=True)], axis=0)
    return Scores(parts[0].names, estimate, WeightedSum(weights, tuple(p.cov for p in parts)), draws=sum(counts))
