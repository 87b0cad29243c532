"""Student's t distribution for means whose variance is estimated from few draws, as the normal law the tests assume."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from kernsift.estimators.null_laws.permutation_law import score_of
from kernsift.estimators.scores import Covariance, Scores

# The smallest tail that is computed from Student's t, and its normal score.
_LEAST_TAIL = 1e-290
_DEEPEST = float(-ndtri(_LEAST_TAIL))
# Below this statistic the ratio of the statistic to its normal score is that of the two densities at 0.
_NEAR_ZERO = 1e-3
# Degrees of freedom from which on the normal approximation is used.
_MANY = 60
# A smaller skewness changes no score by more than rounding does.
_LEAST_SKEWNESS = 1e-6


def normal_scores(statistic: np.ndarray, freedom: np.ndarray | float) -> np.ndarray:
    """The normal scores of Student statistics.

    Where the tail underflows, Wallace's (1959) approximation: z = (8 f + 1) / (8 f + 3) sqrt(f log(1 + t^2 / f)).
    """
    tail = stdtr(freedom, -statistic)
    far = tail <= _LEAST_TAIL
    near = score_of(np.minimum(np.log(np.where(far, 0.5, tail)), -1e-15))
    wallace = np.sqrt(freedom * np.log1p(statistic**2 / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)
    return np.where(far, np.maximum(wallace, _DEEPEST), near)


def student_statistics(score: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """The Student statistics whose `normal_scores` these are: the inverse."""
    near = -stdtrit(freedom, ndtr(-np.minimum(score, _DEEPEST)))
    with np.errstate(over="ignore"):
        wallace = np.sqrt(freedom * np.expm1((score * (8 * freedom + 3) / (8 * freedom + 1)) ** 2 / freedom))
    return np.where(score > _DEEPEST, np.maximum(wallace, near), near)


def corrected_for_skewness(score: np.ndarray, skewness: np.ndarray) -> np.ndarray:
    """The normal scores of standardised values `score` of gamma laws with this skewness, where it is positive.

    Wilson and Hilferty's (1931) approximation: the cube root of a gamma variable is nearly normal. A negative skewness,
    which would make small p-values smaller, counts as 0.
    """
    some = skewness > _LEAST_SKEWNESS
    own = np.where(some, skewness, 1.0)
    return np.where(some, 6.0 / own * (np.cbrt(1.0 + own * score / 2.0) - 1.0) + own / 6.0, score)


def without_skewness(score: np.ndarray, skewness: np.ndarray) -> np.ndarray:
    """The scores of which `corrected_for_skewness` makes these: the inverse."""
    some = skewness > _LEAST_SKEWNESS
    own = np.where(some, skewness, 1.0)
    return np.where(some, 2.0 / own * ((1.0 + own / 6.0 * (score - own / 6.0)) ** 3 - 1.0), score)


def with_student_tails(scores: Scores, freedom: float) -> Scores:
    """Scores with standard deviations inflated so that their normal tails equal the tails of Student's t.

    Each standard deviation is multiplied by t / z, where t is the score over its estimated standard deviation and z the
    normal score of t: estimates and their order are unchanged, and the test of one feature is Student's. From 60
    degrees of freedom on the normal law is close enough (a level of 0.053 in place of 0.05), and is kept as in the
    paper.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.stats import norm, t
    >>> from kernsift.estimators.scores import DiagonalCovariance
    >>> scores = with_student_tails(Scores(("a",), np.array([2.5]), DiagonalCovariance(np.ones(1))), 5)
    >>> bool(np.isclose(norm.sf(2.5, scale=np.sqrt(scores.cov.diagonal()[0])), t.sf(2.5, 5)))
    True
    """
    if freedom >= _MANY:
        return scores
    sd = np.sqrt(scores.cov.diagonal())
    statistic = np.divide(scores.estimate, sd, out=np.zeros(len(sd)), where=sd > 0)
    # The ratio is smooth and even in t; near 0 it is replaced by its value at a small t.
    size = np.maximum(np.abs(statistic), _NEAR_ZERO)
    return replace(scores, cov=RescaledCovariance(scores.cov, size / normal_scores(size, freedom)))


def widening(freedom: float) -> float:
    """The factor of standard deviations with these degrees of freedom in intervals with a level of about 95%."""
    return float(stdtrit(freedom, 0.975) / ndtri(0.975))


@dataclass(frozen=True)
class RescaledCovariance:
    """The covariance of scores that are multiplied by `scale` (d,).

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.estimators.scores import DiagonalCovariance
    >>> RescaledCovariance(DiagonalCovariance(np.ones(2)), np.array([1.0, 3.0])).diagonal()
    array([1., 9.])
    """

    cov: Covariance
    scale: np.ndarray

    def diagonal(self) -> np.ndarray:
        return self.cov.diagonal() * self.scale**2

    def columns(self, features: np.ndarray) -> np.ndarray:
        return self.cov.columns(features) * self.scale[:, None] * self.scale[features]

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return self.cov.sample(size, rng) * self.scale
