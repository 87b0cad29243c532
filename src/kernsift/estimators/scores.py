"""The waist: one number per feature, and how those numbers vary together.

Everything before this file turns data into `Scores`; everything after it sees only `Scores`. The covariance is an
operator rather than a matrix, because the tests need its diagonal, the columns of the selected features, and samples,
but never all d x d entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np


class Covariance(Protocol):
    """What the tests ask of the covariance of d scores."""

    def diagonal(self) -> np.ndarray:
        """The d variances."""

    def columns(self, features: np.ndarray) -> np.ndarray:
        """The covariance of every score with the named ones: (d, len(features))."""

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Centred normal draws with this covariance: (size, d)."""


class Path(NamedTuple):
    """How scores change with the score of one feature while all that is independent of that feature stays.

    Attributes
    ----------
    knots : (g,) increasing values of the feature's own score.
    followers : (m,) the features whose scores follow a curve; all others follow the line of the null covariance.
    values : (m, g) scores of the followers at the knots; in between they are straight, beyond the ends constant.
    """

    knots: np.ndarray
    followers: np.ndarray
    values: np.ndarray


@runtime_checkable
class CurvedCovariance(Covariance, Protocol):
    """A covariance that knows more than the null covariance about how scores move together.

    The null covariance says how two scores move together when neither feature has an effect. A feature with an effect
    responds differently to a correlated null feature; `paths` describes that for the tests that condition.
    """

    def paths(self, features: np.ndarray, columns: np.ndarray) -> list[Path | None]:
        """The paths of the named features, whose columns (d, len(features)) are given; None for straight lines."""


def _root(matrix: np.ndarray) -> np.ndarray:
    """The symmetric root R of R @ R = matrix; by eigenvectors, as a covariance estimated from few draws is singular.

    The symmetric one, because eigenvectors of equal eigenvalues are arbitrary and would make draws depend on threads.
    """
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.clip(values, 0.0, None))) @ vectors.T)


@dataclass(frozen=True)
class DenseCovariance:
    """A covariance matrix somebody already has.

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
    """Scores that do not vary together.

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
    """Covariance `factor.T @ factor` with a factor of shape (m, d): the draws themselves, centred and scaled.

    Examples
    --------
    >>> import numpy as np
    >>> factor = np.array([[1.0, 1.0], [1.0, -1.0], [0.0, 2.0]])
    >>> FactorCovariance(factor).diagonal()
    array([2., 6.])
    """

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


@runtime_checkable
class EffectsWithLaws(Protocol):
    """Effect sizes of some features whose statistics have laws of their own at every effect."""

    @property
    def point(self) -> np.ndarray:
        """(b,) the effect sizes, in [0, 1]."""

    def intervals(self, level: float | np.ndarray = 0.95, unions: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """(b, 2) confidence intervals; `unions` are the values of each score with which it would have been selected."""

    def medians(self, unions: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """(b,) median-unbiased effect sizes."""


@dataclass(frozen=True)
class EffectSizes:
    """Some features' scores on a scale people can read: 0 for nothing, 1 for everything, like a correlation.

    Attributes
    ----------
    point : the effect sizes, in [0, 1].
    spread : standard deviations of the scores around their means when these are as large as observed; None where only
        the null variance is known, and then there are no confidence intervals.
    at : effect sizes that belong to given mean scores, one per feature, from 0 upwards; increasing in each.

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


@dataclass(frozen=True)
class Scores:
    """One score per feature and the covariance of the scores under the null.

    Attributes
    ----------
    names : the d feature names.
    estimate : the d scores; larger means more different, or more dependent.
    cov : covariance of `estimate` under the null hypothesis.
    draws : how many draws the estimate averages; None where the scores are no average.
    resample : `resample(fraction, rng)` recomputes `estimate` on `fraction * n` rows drawn with replacement; None for
        scores that came without their data.
    effects : effect sizes of chosen features; None for scores that came without their data.

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
    cov: Covariance = FactorCovariance(supported(scaled, estimate, count))
    if not shared:
        cov = DiagonalCovariance(cov.diagonal())
    return Scores(tuple(names), estimate, cov, draws=float(count), resample=resample)


def supported_variances(variances: np.ndarray, estimate: np.ndarray, count: int) -> np.ndarray:
    """The same floor for variances alone."""
    least = (estimate / count) ** 2
    return np.where(variances < 1e-12 * least, least, variances)
