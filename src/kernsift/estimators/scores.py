"""Scores of features and their null covariance: the interface between estimators and tests.

Estimators compute `Scores` from data; tests depend on `Scores` only. The covariance is an operator rather than a
matrix, because the tests need its diagonal, the columns of the selected features, and samples, but never all d x d
entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from kernsift.execution.arrays import Array, namespace, take, to_numpy


class Covariance(Protocol):
    """The interface of the covariance of d scores."""

    def diagonal(self) -> np.ndarray:
        """The d variances."""

    def columns(self, features: np.ndarray) -> np.ndarray:
        """The covariance of every score with the named ones: (d, len(features))."""

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Centred normal draws with this covariance: (size, d)."""


class Path(NamedTuple):
    """Scores as functions of the score of one feature, with everything that is independent of that feature fixed."""

    knots: np.ndarray  # (g,) increasing values of the feature's own score
    followers: np.ndarray  # (m,) features whose scores follow a curve; others follow the line of the null covariance
    values: np.ndarray  # (m, g) scores of the followers at the knots; linear in between, constant beyond the ends


@runtime_checkable
class CurvedCovariance(Covariance, Protocol):
    """A covariance that also models the dependence of scores of features with an effect.

    The null covariance describes two scores when neither feature has an effect. The score of a feature with an effect
    depends differently on that of a correlated null feature; `paths` describes this for the conditional tests.
    """

    def paths(self, features: np.ndarray, columns: np.ndarray) -> list[Path | None]:
        """The paths of the named features, given their columns (d, len(features)); None for straight lines."""


def _root(matrix: np.ndarray) -> np.ndarray:
    """The symmetric root R of R @ R = matrix, from eigenvectors: a covariance estimated from few draws is singular.

    The symmetric root does not depend on the choice of eigenvectors for equal eigenvalues, which varies with threads.
    """
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.clip(values, 0.0, None))) @ vectors.T)


@dataclass(frozen=True)
class DenseCovariance:
    """A dense covariance matrix.

    Examples
    --------
    >>> import numpy as np
    >>> covariance = DenseCovariance(np.array([[2.0, 1.0], [1.0, 3.0]]))
    >>> covariance.diagonal()
    array([2., 3.])
    >>> covariance.columns(np.array([0]))
    array([[2.],
           [1.]])
    """

    matrix: np.ndarray

    def diagonal(self) -> np.ndarray:
        return np.diagonal(self.matrix).copy()

    def columns(self, features: np.ndarray) -> np.ndarray:
        return self.matrix[:, features]

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((size, len(self.matrix))) @ _root(self.matrix)


@dataclass(frozen=True)
class DiagonalCovariance:
    """Uncorrelated scores.

    Examples
    --------
    >>> import numpy as np
    >>> DiagonalCovariance(np.array([2.0, 3.0])).columns(np.array([1]))
    array([[0.],
           [3.]])
    """

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
    """Covariance `factor.T @ factor` with a factor of shape (m, d), and additional independent variances (d,).

    The factor is the draws themselves, centred and scaled.

    Examples
    --------
    >>> import numpy as np
    >>> factor = np.array([[1.0, 1.0], [1.0, -1.0], [0.0, 2.0]])
    >>> FactorCovariance(factor).diagonal()
    array([2., 6.])
    """

    factor: np.ndarray
    specific: np.ndarray | float = 0.0

    def diagonal(self) -> np.ndarray:
        return np.asarray(np.einsum("ij,ij->j", self.factor, self.factor) + self.specific)

    def columns(self, features: np.ndarray) -> np.ndarray:
        out = self.factor.T @ self.factor[:, features]
        out[features, np.arange(len(features))] += np.broadcast_to(self.specific, len(out))[features]
        return out

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        root = self.factor
        if root.shape[0] > root.shape[1]:
            # A root with d rows has the same covariance and is smaller than the draws.
            root = _root(root.T @ root)
        out = rng.standard_normal((size, root.shape[0])) @ root
        if np.any(self.specific):
            out += rng.standard_normal(out.shape) * np.sqrt(self.specific)
        return out


@dataclass(frozen=True)
class BlockCovariance:
    """A `FactorCovariance` whose factor (m, d) is not kept but computed when it is needed.

    `variances` (d,) is the diagonal; the part that the factor lacks is independent between scores. `blocks` yields the
    numbers of some of the given features and their columns of the factor, block by block.
    """

    variances: np.ndarray
    blocks: Callable[[np.ndarray], Iterator[tuple[np.ndarray, Array]]]

    def diagonal(self) -> np.ndarray:
        return self.variances.copy()

    def columns(self, features: np.ndarray) -> np.ndarray:
        chosen, out = self._factor(features), np.zeros((len(self.variances), len(features)))
        for some, part in self.blocks(np.arange(len(out))):
            out[some] = to_numpy(namespace(part).matrix_transpose(part) @ chosen)
        out[features, np.arange(len(features))] = self.variances[features]
        return out

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        factor = to_numpy(self._factor(np.arange(len(self.variances))))
        specific = self.variances - np.einsum("ij,ij->j", factor, factor)
        # A smaller difference is rounding error.
        return FactorCovariance(factor, np.where(specific > 1e-9 * self.variances, specific, 0.0)).sample(size, rng)

    def _factor(self, features: np.ndarray) -> Array:
        """(m, len(features)) the columns of the factor in the order of `features`."""
        found = list(self.blocks(features))
        whole = namespace(found[0][1]).concat([part for _, part in found], axis=1)
        order = np.argsort(np.concatenate([some for some, _ in found]))[np.argsort(np.argsort(features))]
        return take(whole, order, axis=1)


@runtime_checkable
class EffectsWithLaws(Protocol):
    """Effect sizes of some features whose statistics have a known law at every effect."""

    @property
    def point(self) -> np.ndarray:
        """(b,) the effect sizes, in [0, 1]."""

    def intervals(self, level: np.ndarray, unions: Sequence[np.ndarray] | None) -> np.ndarray:
        """(b, 2) confidence intervals; `unions` are the intervals of each score on which it is selected."""

    def medians(self, unions: Sequence[np.ndarray]) -> np.ndarray:
        """(b,) median-unbiased effect sizes."""


@dataclass(frozen=True)
class EffectSizes:
    """Effect sizes of some features on the scale of a correlation, from 0 to 1.

    Attributes
    ----------
    point : ndarray of shape (b,)
        The effect sizes, in [0, 1].
    spread : ndarray of shape (b,) or None
        Standard deviations of the scores at means equal to the observed scores; None where only the null variance is
        known, and then there are no confidence intervals.
    at : callable
        The effect sizes of nonnegative mean scores, one per feature; increasing in each.

    Examples
    --------
    Correlations in tenths as scores, without intervals:

    >>> import numpy as np
    >>> sizes = EffectSizes(np.array([0.5]), None, lambda means: np.minimum(means / 10, 1.0))
    >>> sizes.at(np.array([3.0]))
    array([0.3])
    """

    point: np.ndarray
    spread: np.ndarray | None
    at: Callable[[np.ndarray], np.ndarray]


class ScoreScales(NamedTuple):
    """The scale from means of draws, such as scores, to effects."""

    scale: np.ndarray  # (b,) the means at an effect of 1
    spread: np.ndarray | None  # (b,) their standard deviations with the noise of the scale; None without intervals

    @classmethod
    def joined(cls, parts: Sequence[ScoreScales]) -> ScoreScales:
        """The scales of all features, from those of some of them at a time."""
        spreads = [part.spread for part in parts if part.spread is not None]
        return cls(np.concatenate([part.scale for part in parts]), np.concatenate(spreads) if spreads else None)

    def take(self, features: np.ndarray) -> ScoreScales:
        """The scales of the features at these places."""
        return ScoreScales(self.scale[features], None if self.spread is None else self.spread[features])


@dataclass(frozen=True)
class Scores:
    """One score per feature and the covariance of the scores under the null.

    Attributes
    ----------
    names : tuple of str
        The d feature names.
    estimate : ndarray of shape (d,)
        The scores; larger means more different, or more dependent.
    cov : Covariance
        Covariance of `estimate` under the null hypothesis.
    draws : float or None
        Number of draws that the estimate averages; None where the scores are no average.
    resample : callable or None
        `resample(fraction, rng)` recomputes `estimate` on `fraction * n` rows drawn with replacement; None for scores
        without their data.
    effects : callable or None
        Effect sizes of chosen features; None for scores without their data.
    views : ndarray of object of shape (d,) or None
        The pair of views (`kernsift.estimators.pairs.Pair`) with the smallest p-value of each feature, which tells what
        the test saw; None, as a whole or for some features, where there is no such pair.
    gaps : ndarray of object of shape (d,) or None
        Increasing intervals (g, 2) between neighbouring log p-values of features that have few; the first one begins at
        -inf. None for features that may have nearly any p-value.
    in_memory : bool
        Whether effects are computed without reading files.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.inference import exact
    >>> from kernsift.estimators.scores import DiagonalCovariance, Scores
    >>> from kernsift.inference.selection_rules import TopK
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
    effects: Callable[[np.ndarray], EffectSizes | EffectsWithLaws] | None = None
    views: np.ndarray | None = None
    gaps: np.ndarray | None = None
    in_memory: bool = False

    def __len__(self) -> int:
        return len(self.estimate)


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
    >>> from kernsift.estimators.scores import scores_from_draws
    >>> draws = np.random.default_rng(0).normal(size=(400, 3))
    >>> scores = scores_from_draws(["a", "b", "c"], draws)
    >>> bool(np.allclose(scores.cov.diagonal(), draws.var(axis=0, ddof=1) / 400))
    True
    """
    count = len(draws)
    factor = 1.0 / count if variance_factor is None else variance_factor
    estimate = draws.mean(axis=0)
    scaled = (draws - estimate) * np.sqrt(factor / max(count - 1, 1))
    sampled = np.einsum("ij,ij->j", scaled, scaled)
    variances = supported_variances(sampled, estimate, count)
    cov: Covariance = DiagonalCovariance(variances)
    if shared:
        # Features whose draws do not vary are uncorrelated with the others.
        alone = variances > sampled
        cov = FactorCovariance(np.where(alone, 0.0, scaled), np.where(alone, variances, 0.0))
    return Scores(tuple(names), estimate, cov, draws=float(count), resample=resample)


def supported_variances(variances: np.ndarray, estimate: np.ndarray, count: int) -> np.ndarray:
    """Variances of the means of `count` draws, with a lower bound.

    Draws that are all equal and not zero (two samples without overlap) have an estimated variance of 0; the score of l
    draws is bounded by l standard errors.
    """
    least = (estimate / count) ** 2
    return np.where(variances < 1e-12 * least, least, variances)
