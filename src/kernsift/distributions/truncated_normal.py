"""The truncated normal over a union of intervals, in log space.

Intervals are rows `(lower, upper)` of a float array, disjoint and increasing; infinities are real infinities. A
statistic of 40 standard deviations gives log p near -800, never p = 1 and never NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import log_ndtr, ndtr

EVERYWHERE = np.array([[-np.inf, np.inf]])

_LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)


def joined(intervals: np.ndarray) -> np.ndarray:
    """Increasing intervals with those that touch merged.

    >>> joined(np.array([[0.0, 1.0], [1.0, 2.0], [3.0, 4.0]]))
    array([[0., 2.],
           [3., 4.]])
    """
    if len(intervals) < 2:
        return intervals
    apart = intervals[1:, 0] > intervals[:-1, 1]
    starts = intervals[np.concatenate([[True], apart]), 0]
    ends = intervals[np.concatenate([apart, [True]]), 1]
    return np.column_stack([starts, ends])


def log_mass(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Log of P(lower < N(0,1) < upper), elementwise; -inf where the interval is empty.

    >>> import numpy as np
    >>> np.round(log_mass(np.array([-np.inf, 40.0]), np.array([np.inf, np.inf])), 3)
    array([  -0.   , -804.608])
    """
    lower, upper = np.broadcast_arrays(np.asarray(lower, float), np.asarray(upper, float))
    # Reflect intervals right of zero: differences of left tails keep their relative precision.
    mirrored = lower > 0
    a, b = np.where(mirrored, -upper, lower), np.where(mirrored, -lower, upper)
    log_a, log_b = log_ndtr(a), log_ndtr(b)
    out = np.full(a.shape, -np.inf)
    inside = b > a
    with np.errstate(invalid="ignore"):
        gap = np.where(inside, log_a - log_b, -np.inf)
        width = np.where(np.isfinite(a) & np.isfinite(b), b - a, np.inf)
        middle = np.where(np.isfinite(width), 0.5 * (a + b), 0.0)
    # Intervals that contain zero: 1 minus both tails.
    straddle = inside & (a <= 0) & (b >= 0)
    out[straddle] = np.log1p(-np.minimum(np.exp(log_a[straddle]) + np.exp(log_ndtr(-b[straddle])), 1.0 - 1e-16))
    tail = inside & ~straddle
    out[tail] = log_b[tail] + _log1mexp(gap[tail])
    # Very short intervals: the difference of two tails would cancel, width times the density at the midpoint does not.
    short = inside & (width * np.maximum(np.abs(middle), 1.0) < 1e-6)
    out[short] = np.log(width[short]) - 0.5 * middle[short] ** 2 - _LOG_SQRT_2PI
    return out


def _log1mexp(x: np.ndarray) -> np.ndarray:
    """log(1 - exp(x)) for x <= 0."""
    x = np.minimum(x, -1e-300)
    near = x > -np.log(2.0)
    return np.where(near, np.log(-np.expm1(np.where(near, x, -1.0))), np.log1p(-np.exp(np.where(near, -1.0, x))))


def log_survivals(values: np.ndarray, unions: Sequence[np.ndarray], sd: np.ndarray) -> np.ndarray:
    """Log of P(X >= value | X in the union of intervals) for X ~ N(0, sd^2), one for each value.

    >>> log_survivals(np.array([1.0, 40.0]), [EVERYWHERE, np.array([[39.0, np.inf]])], np.ones(2)).round(3)
    array([ -1.841, -39.525])
    """
    return _Unions(values, unions).log_survival(np.zeros(len(values)), sd)


class _Unions:
    """Many values, each with its union of intervals; the intervals are concatenated."""

    def __init__(self, values: np.ndarray, unions: Sequence[np.ndarray]) -> None:
        sizes = np.array([len(union) for union in unions], dtype=int)
        self.values = values
        self.owner = np.repeat(np.arange(len(sizes)), sizes)
        self.starts = np.cumsum(sizes) - sizes
        ends = np.concatenate(unions) if len(unions) else np.empty((0, 2))
        self.lower, self.upper = ends[:, 0], ends[:, 1]

    def log_survival(self, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
        """Log of the mass beyond each value over the mass of its union, for normals with these means and deviations."""
        if len(self.starts) == 0:
            return np.empty(0)
        shift, scale = mean[self.owner], sd[self.owner]
        lower, upper = (self.lower - shift) / scale, (self.upper - shift) / scale
        cut = (self.values[self.owner] - shift) / scale
        # Both masses in one call: with few features the overhead of a call outweighs the arithmetic.
        masses = log_mass(
            np.concatenate([lower, np.maximum(lower, cut)]), np.concatenate([upper, np.maximum(upper, cut)])
        )
        total, beyond = (np.logaddexp.reduceat(part, self.starts) for part in masses.reshape(2, -1))
        return np.minimum(beyond - total, 0.0)


def confidence_intervals(
    values: np.ndarray,
    unions: Sequence[np.ndarray],
    sd: np.ndarray,
    spread: np.ndarray | None = None,
    level: float | np.ndarray = 0.95,
) -> np.ndarray:
    """(k, 2) confidence intervals for nonnegative means of normals truncated to unions of intervals.

    `sd` are the standard deviations at mean 0 and `spread` those at a mean equal to the value, if they differ; the
    deviation is interpolated linearly in between. The error probability is divided between the two sides depending on
    the mean: at 0 no mean is below, so all of it is on one side, and the interval excludes 0 exactly when the one-sided
    test rejects; far from 0 it is divided evenly. Any division that is monotone in the mean gives intervals with the
    exact level (Puza and O'Neill 2006). `level` may be an array with one level for each mean.

    Examples
    --------
    >>> far = confidence_intervals(np.array([10.0]), [EVERYWHERE], np.array([1.0]))
    >>> near = confidence_intervals(np.array([1.0]), [EVERYWHERE], np.array([1.0]))
    >>> far.round(2).tolist(), near.round(2).tolist()
    ([[8.04, 11.96]], [[0.0, 2.96]])
    """
    k = len(values)
    sd, spread = np.tile(sd, 2), np.tile(sd if spread is None else spread, 2)
    missed = np.tile(np.broadcast_to(1.0 - np.asarray(level, float), k), 2)
    above = np.repeat([True, False], k)

    def target(mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
        below = missed * (ndtr(mean / scale) - 0.5)  # the error probability on the lower side at this mean
        return np.where(above, np.log(missed - below), np.log1p(-below))

    return _means_with_survival(np.tile(values, 2), [*unions, *unions], sd, spread, target).reshape(2, k).T


def median_unbiased_means(
    values: np.ndarray, unions: Sequence[np.ndarray], sd: np.ndarray, spread: np.ndarray | None = None
) -> np.ndarray:
    """(k,) nonnegative means under which each value is the median of its truncated normal distribution.

    The estimate is median-unbiased conditionally on the truncation, and lies in every interval of
    `confidence_intervals` with a level of at least one half.

    Examples
    --------
    Just above a truncation point at 2, a value of 2.1 is little evidence beyond having passed it.

    >>> median_unbiased_means(np.array([2.1, 2.1]), [EVERYWHERE, np.array([[2.0, np.inf]])], np.ones(2)).round(
    ...     2
    ... ).tolist()
    [2.1, 0.0]
    """
    half = np.full(len(values), np.log(0.5))
    return _means_with_survival(values, unions, sd, sd if spread is None else spread, lambda mean, scale: half)


def _means_with_survival(
    values: np.ndarray,
    unions: Sequence[np.ndarray],
    sd: np.ndarray,
    spread: np.ndarray,
    target: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """Nonnegative means under which the log survival function at the observed value equals a target."""
    truncated = _Unions(values, unions)

    def excess(mean: np.ndarray) -> np.ndarray:
        part = np.clip(mean / np.maximum(values, sd), 0.0, 1.0)
        scale = sd + (spread - sd) * part
        return truncated.log_survival(mean, scale) - target(mean, scale)

    return _positive_root(excess, np.maximum(values, 0.0) + sd, sd)


# Doublings of the upper bracket, in standard deviations, after which a root counts as infinite.
_DOUBLINGS = 40


def _positive_root(excess: Callable[[np.ndarray], np.ndarray], start: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Roots of increasing functions; 0 where a function is nonnegative at 0, inf where it stays negative."""
    low, high = np.zeros(len(start)), start
    below, above = excess(low), excess(high)
    for step in 2.0 ** np.arange(_DOUBLINGS):
        if not (above < 0).any():
            break
        high = np.where(above < 0, high + step * unit, high)
        above = excess(high)
    at_zero, never = below >= 0, above < 0
    found = crossing(excess, low, high, 1e-10 * unit, at_zero | never)
    return np.where(at_zero, 0.0, np.where(never, np.inf, found))


def crossing(
    function: Callable[[np.ndarray], np.ndarray],
    low: np.ndarray,
    high: np.ndarray,
    tolerance: float | np.ndarray,
    converged: np.ndarray,
) -> np.ndarray:
    """The zeros of increasing functions between `low` and `high`, to `tolerance` in the argument.

    Chandrupatla's method: inverse quadratic interpolation where the last three points allow it, bisection elsewhere, so
    it is never much slower than bisection. The iteration does not wait for functions that `converged` marks.

    >>> crossing(lambda x: x**3 - 2.0, np.zeros(1), np.full(1, 2.0), 1e-12, np.zeros(1, bool)).round(9)
    array([1.25992105])
    """
    # `b` is the newest point, `a` the end of the bracket opposite to it, `c` the point before.
    a, b = low, high
    at_a, at_b = function(a), function(b)
    share = np.full(len(a), 0.5)
    for _ in range(100):
        x = a + share * (b - a)
        found = function(x)
        same = (found < 0) == (at_a < 0)
        c, at_c = np.where(same, a, b), np.where(same, at_a, at_b)
        b, at_b = np.where(same, b, a), np.where(same, at_b, at_a)
        a, at_a = x, found
        width = np.abs(b - a)
        if (converged | (found == 0) | (width <= tolerance)).all():
            break
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            xi, phi = (a - b) / (c - b), (at_a - at_b) / (at_c - at_b)
            smooth = (phi**2 < xi) & ((1.0 - phi) ** 2 < 1.0 - xi)
            quadratic = at_a / (at_b - at_a) * at_c / (at_b - at_c)
            quadratic += (c - a) / (b - a) * at_a / (at_c - at_a) * at_b / (at_c - at_b)
        least = np.minimum(0.5 * tolerance / np.maximum(width, 1e-300), 0.5)
        share = np.clip(np.where(smooth & np.isfinite(quadratic), quadratic, 0.5), least, 1.0 - least)
    return np.where(np.abs(at_a) <= np.abs(at_b), a, b)
