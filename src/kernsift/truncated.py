"""The truncated normal over a union of intervals, in log space.

Intervals are rows `(lower, upper)` of a float array, disjoint and increasing; infinities are real infinities. A
statistic of 40 standard deviations gives log p near -800, never p = 1 and never NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq
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
    if not unions:
        return np.empty(0)
    sizes = [len(union) for union in unions]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    scaled = np.concatenate(unions) / np.repeat(sd, sizes)[:, None]
    cut = np.repeat(values / sd, sizes)
    total = np.logaddexp.reduceat(log_mass(scaled[:, 0], scaled[:, 1]), starts)
    beyond = np.logaddexp.reduceat(log_mass(np.maximum(scaled[:, 0], cut), np.maximum(scaled[:, 1], cut)), starts)
    return np.minimum(beyond - total, 0.0)


def confidence_interval(value: float, intervals: np.ndarray, sd: float, level: float = 0.95) -> tuple[float, float]:
    """The means under which the truncated normal puts `value` between its two outer quantiles.

    The survival function rises with the mean, so each end is one root.

    >>> lower, upper = confidence_interval(1.0, EVERYWHERE, sd=1.0)
    >>> round(lower, 2), round(upper, 2)
    (-0.96, 2.96)
    """
    tail = 0.5 * (1.0 - level)
    return (
        _mean_with_survival(np.log(tail), value, intervals, sd),
        _mean_with_survival(np.log1p(-tail), value, intervals, sd),
    )


def _mean_with_survival(log_target: float, value: float, intervals: np.ndarray, sd: float) -> float:
    def excess(mean: float) -> float:
        return log_survival(value, intervals, mean, sd) - log_target

    low, high, step = value - sd, value + sd, sd
    # Truncation close to the value makes the likelihood flat, so the end may be far away, or at infinity.
    while excess(low) > 0:
        low, step = low - step, 2.0 * step
        if step > 1e6 * sd:
            return -np.inf
    step = sd
    while excess(high) < 0:
        high, step = high + step, 2.0 * step
        if step > 1e6 * sd:
            return np.inf
    return float(brentq(excess, low, high, xtol=1e-10 * sd, rtol=1e-12))
