"""The truncated normal over a union of intervals, in log space.

Intervals are rows `(lower, upper)` of a float array, disjoint and increasing; infinities are real infinities. A
statistic of 40 standard deviations gives log p near -800, never p = 1 and never NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import log_ndtr, ndtr

from kernsift.distributions.roots import crossing

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
    return _Unions(values, unions).log_survival(np.zeros(len(values)), sd)


class _Unions:
    """Many values, each with its union of intervals, laid end to end."""

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
        # Both masses in one call: for the few features that are tested a call costs more than its numbers.
        masses = log_mass(
            np.concatenate([lower, np.maximum(lower, cut)]), np.concatenate([upper, np.maximum(upper, cut)])
        )
        total, beyond = (np.logaddexp.reduceat(part, self.starts) for part in np.split(masses, 2))
        return np.minimum(beyond - total, 0.0)


def confidence_intervals(
    values: np.ndarray,
    unions: Sequence[np.ndarray],
    sd: np.ndarray,
    spread: np.ndarray | None = None,
    level: float | np.ndarray = 0.95,
) -> np.ndarray:
    """(k, 2) intervals for means that cannot be negative, from values seen only inside their unions of intervals.

    `sd` are the standard deviations at mean 0 and `spread` those at a mean as large as the value, if they differ; in
    between the deviation goes linearly from one to the other. How the chance of missing the mean is divided between the
    two sides depends on the mean: at 0 there is nothing to miss below, so all of it is on the one side, and the
    interval leaves out 0 exactly when the one-sided test rejects; far from 0 it is divided evenly. Any such division
    that shifts steadily gives intervals with the exact level (Puza and O'Neill 2006). `level` may be one for each.

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
        below = missed * (ndtr(mean / scale) - 0.5)  # the chance of missing a mean this large on the low side
        return np.where(above, np.log(missed - below), np.log1p(-below))

    return _means_with_survival(np.tile(values, 2), [*unions, *unions], sd, spread, target).reshape(2, k).T


def median_unbiased_means(
    values: np.ndarray, unions: Sequence[np.ndarray], sd: np.ndarray, spread: np.ndarray | None = None
) -> np.ndarray:
    """(k,) means under which each value is the median of its normal law on its union of intervals; at least 0.

    Such an estimate is as often too large as too small, also for values that are seen only because they are large, and
    lies in every interval of `confidence_intervals` of a level of at least one half.

    Examples
    --------
    Just above a cut at 2, a value of 2.1 says little beyond that it passed.

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
    """Means, at least 0, under which the log chance of a value as large as the observed one meets a target."""
    problem = _Unions(values, unions)

    def excess(mean: np.ndarray) -> np.ndarray:
        part = np.clip(mean / np.maximum(values, sd), 0.0, 1.0)
        scale = sd + (spread - sd) * part
        return problem.log_survival(mean, scale) - target(mean, scale)

    return _positive_root(excess, np.maximum(values, 0.0) + sd, sd)


# Doublings of the upper bracket, in standard deviations, after which an end counts as infinite.
_DOUBLINGS = 40


def _positive_root(excess: Callable[[np.ndarray], np.ndarray], start: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Where increasing functions cross zero, 0 if they are positive there already."""
    low, high = np.zeros(len(start)), start
    below, above = excess(low), excess(high)
    for step in 2.0 ** np.arange(_DOUBLINGS):
        if not (above < 0).any():
            break
        high = np.where(above < 0, high + step * unit, high)
        above = excess(high)
    at_zero, never = below >= 0, above < 0
    found = crossing(excess, low, high, tolerance=1e-10 * unit, converged=at_zero | never)
    return np.where(at_zero, 0.0, np.where(never, np.inf, found))
