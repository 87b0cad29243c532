"""The truncated normal over a union of intervals, in log space.

Intervals are rows `(lower, upper)` of a float array, disjoint and increasing; infinities are real infinities. A
statistic of 40 standard deviations gives log p near -800, never p = 1 and never NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import log_ndtr

EVERYWHERE = np.array([[-np.inf, np.inf]])

_LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)


def log_mass(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Log of P(lower < N(0,1) < upper), elementwise; -inf where the interval is empty.

    >>> import numpy as np
    >>> np.round(log_mass(np.array([-np.inf, 40.0]), np.array([np.inf, np.inf])), 3)
    array([  -0.   , -804.608])
    """
    lower, upper = np.broadcast_arrays(np.asarray(lower, float), np.asarray(upper, float))
    # Mirror intervals that lie right of zero: differences of left tails keep their digits.
    mirrored = lower > 0
    a, b = np.where(mirrored, -upper, lower), np.where(mirrored, -lower, upper)
    log_a, log_b = log_ndtr(a), log_ndtr(b)
    out = np.full(a.shape, -np.inf)
    inside = b > a
    with np.errstate(invalid="ignore"):
        gap = np.where(inside, log_a - log_b, -np.inf)
        width = np.where(np.isfinite(a) & np.isfinite(b), b - a, np.inf)
        middle = np.where(np.isfinite(width), 0.5 * (a + b), 0.0)
    # Straddling zero: 1 - both tails.
    straddle = inside & (a <= 0) & (b >= 0)
    out[straddle] = np.log1p(-np.minimum(np.exp(log_a[straddle]) + np.exp(log_ndtr(-b[straddle])), 1.0 - 1e-16))
    tail = inside & ~straddle
    out[tail] = log_b[tail] + _log1mexp(gap[tail])
    # A sliver: the difference of two tails would cancel, the density at the middle does not.
    sliver = inside & (width * np.maximum(np.abs(middle), 1.0) < 1e-6)
    out[sliver] = np.log(width[sliver]) - 0.5 * middle[sliver] ** 2 - _LOG_SQRT_2PI
    return out


def _log1mexp(x: np.ndarray) -> np.ndarray:
    """log(1 - exp(x)) for x <= 0."""
    x = np.minimum(x, -1e-300)
    near = x > -np.log(2.0)
    return np.where(near, np.log(-np.expm1(np.where(near, x, -1.0))), np.log1p(-np.exp(np.where(near, -1.0, x))))


def log_survival(value: float, intervals: np.ndarray, mean: float = 0.0, sd: float = 1.0) -> float:
    """Log of P(X >= value | X in the intervals) for X ~ N(mean, sd^2).

    >>> float(np.round(np.exp(log_survival(1.0, EVERYWHERE)), 4))
    0.1587
    >>> float(np.round(log_survival(40.0, np.array([[39.0, np.inf]])), 3))
    -39.525
    """
    return float(log_survivals(np.array([value - mean]), [np.asarray(intervals) - mean], np.array([sd]))[0])


def log_survivals(values: np.ndarray, unions: Sequence[np.ndarray], sd: np.ndarray) -> np.ndarray:
    """`log_survival` of many centred normals at once, each with its own union of intervals."""
    return _Unions(values, unions, sd).log_survival(np.zeros(len(values)))


class _Unions:
    """Many unions of intervals laid end to end, in units of each one's standard deviation."""

    def __init__(self, values: np.ndarray, unions: Sequence[np.ndarray], sd: np.ndarray) -> None:
        sizes = np.array([len(union) for union in unions], dtype=int)
        self.owner = np.repeat(np.arange(len(sizes)), sizes)
        self.starts = np.cumsum(sizes) - sizes
        ends = np.concatenate(unions) if len(unions) else np.empty((0, 2))
        self.lower, self.upper = (ends / np.asarray(sd)[self.owner, None]).T
        self.values = values / sd

    def log_survival(self, mean: np.ndarray) -> np.ndarray:
        """Log of the mass beyond each value over the mass of its union, for normals with these means and variance 1."""
        if len(self.starts) == 0:
            return np.empty(0)
        shift = mean[self.owner]
        lower, upper, cut = self.lower - shift, self.upper - shift, self.values[self.owner] - shift
        total = np.logaddexp.reduceat(log_mass(lower, upper), self.starts)
        beyond = np.logaddexp.reduceat(log_mass(np.maximum(lower, cut), np.maximum(upper, cut)), self.starts)
        return np.minimum(beyond - total, 0.0)


def confidence_intervals(
    values: np.ndarray, unions: Sequence[np.ndarray], sd: np.ndarray, level: float = 0.95
) -> np.ndarray:
    """(k, 2) intervals: the means under which each truncated normal puts its value between its two outer quantiles.

    The survival function rises with the mean, so each end is one root.

    >>> confidence_intervals(np.array([1.0]), [EVERYWHERE], np.array([1.0])).round(2)
    array([[-0.96,  2.96]])
    """
    tail = 0.5 * (1.0 - level)
    twice = _Unions(np.tile(values, 2), [*unions, *unions], np.tile(sd, 2))
    target = np.repeat([np.log(tail), np.log1p(-tail)], len(values))
    return (_mean_with_survival(target, twice) * np.tile(sd, 2)).reshape(2, -1).T


# Doubling steps away from the value, in standard deviations, after which an end counts as infinite: truncation close to
# the value makes the likelihood flat.
_DOUBLINGS = 20


def _mean_with_survival(log_target: np.ndarray, unions: _Unions) -> np.ndarray:
    """The means at which the log survival meets its targets: bracket by doubling, then Illinois steps."""

    def excess(mean: np.ndarray) -> np.ndarray:
        return unions.log_survival(mean) - log_target

    low, high = unions.values - 1.0, unions.values + 1.0
    below, above = excess(low), excess(high)
    for step in 2.0 ** np.arange(_DOUBLINGS):
        low, high = np.where(below > 0, low - step, low), np.where(above < 0, high + step, high)
        below, above = excess(low), excess(high)
        if not ((below > 0) | (above < 0)).any():
            break
    never_low, never_high = below > 0, above < 0
    for _ in range(100):
        gap = above - below
        middle = np.where(gap > 0, low - below * (high - low) / np.where(gap > 0, gap, 1.0), 0.5 * (low + high))
        middle = np.clip(middle, low, high)
        found = excess(middle)
        left = found < 0
        # Illinois: an end that stays put has its value halved, so that the other end moves too.
        above, below = np.where(left, 0.5 * above, found), np.where(left, found, 0.5 * below)
        low, high = np.where(left, middle, low), np.where(left, high, middle)
        if np.all((np.abs(found) < 1e-11) | (high - low < 1e-10) | never_low | never_high):
            break
    return np.where(never_low, -np.inf, np.where(never_high, np.inf, middle))


def confidence_interval(value: float, intervals: np.ndarray, sd: float, level: float = 0.95) -> tuple[float, float]:
    """One interval; see `confidence_intervals`."""
    [[low, high]] = confidence_intervals(np.array([value]), [np.asarray(intervals)], np.array([sd]), level)
    return float(low), float(high)
