"""Laws of the statistic along a family of alternatives: a power of it is nearly normal (Jensen and Solomon 1972)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from kernsift.estimators.null_laws.permutation_law import gamma_score

# Bounds of the asymmetry of the rows' influence. Close to an effect of 1 few rows dominate, and the law of T has a long
# left tail; its right tail would be too short with a law fitted to three moments.
_ASYMMETRY, _LEFT_ASYMMETRY = 0.8, 3.0
# The correction for a smaller asymmetry is in proportion to it.
_LITTLE = 0.05
# Powers are positive, so that they increase and have an inverse.
_LEAST_POWER = 0.1

Arrays = TypeVar("Arrays", bound=tuple[Any, ...])


class NullMoments(NamedTuple):
    """T = |sum over rows of f g'|^2, and its mean, standard deviation and skewness (b,) over all permutations."""

    statistic: np.ndarray
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

    def decreasing_scores(self, statistic: np.ndarray) -> np.ndarray:
        """(b, t) normal scores of statistics (b,), decreasing in the effect.

        A power fitted to the centre of a law may give a statistic in its far tail a larger score at a larger effect.
        """
        return np.minimum.accumulate(self.scores(statistic[:, None]), axis=1)

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


def _signed_power(values: np.ndarray, power: np.ndarray) -> np.ndarray:
    return np.sign(values) * np.abs(values) ** power


def map_arrays(function: Callable[..., np.ndarray], first: Arrays, *others: Arrays) -> Arrays:
    """A function of the arrays of one or several tuples of the same kind, which may contain tuples."""
    found = [
        map_arrays(function, *parts) if isinstance(parts[0], tuple) else function(*parts)
        for parts in zip(first, *others, strict=True)
    ]
    return type(first)(*found) if hasattr(first, "_fields") else type(first)(found)


def take_features(arrays: Arrays, features: np.ndarray | slice) -> Arrays:
    """Some of the features, the first axis of all arrays."""
    return map_arrays(lambda part: part[features], arrays)
