"""Vectorised root finding for increasing functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Function = Callable[[np.ndarray], np.ndarray]


def crossing(
    function: Function,
    low: np.ndarray,
    high: np.ndarray,
    *,
    tolerance: float | np.ndarray = 1e-12,
    converged: np.ndarray | None = None,
) -> np.ndarray:
    """The zeros of increasing functions between `low` and `high`, to `tolerance` in the argument.

    Chandrupatla's method: inverse quadratic interpolation where the last three points allow it, bisection elsewhere, so
    it is never much slower than bisection. The iteration does not wait for functions that `converged` marks.

    >>> crossing(lambda x: x**3 - 2.0, np.zeros(1), np.full(1, 2.0)).round(9)
    array([1.25992105])
    """
    # `b` is the newest point, `a` the end of the bracket opposite to it, `c` the point before.
    a, b = np.asarray(low, float), np.asarray(high, float)
    at_a, at_b = function(a), function(b)
    share = np.full(np.shape(a), 0.5)
    done = np.zeros(np.shape(a), dtype=bool) if converged is None else converged
    for _ in range(100):
        x = a + share * (b - a)
        found = function(x)
        same = (found < 0) == (at_a < 0)
        c, at_c = np.where(same, a, b), np.where(same, at_a, at_b)
        b, at_b = np.where(same, b, a), np.where(same, at_b, at_a)
        a, at_a = x, found
        width = np.abs(b - a)
        if (done | (found == 0) | (width <= tolerance)).all():
            break
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            xi, phi = (a - b) / (c - b), (at_a - at_b) / (at_c - at_b)
            smooth = (phi**2 < xi) & ((1.0 - phi) ** 2 < 1.0 - xi)
            quadratic = at_a / (at_b - at_a) * at_c / (at_b - at_c)
            quadratic += (c - a) / (b - a) * at_a / (at_c - at_a) * at_b / (at_c - at_b)
        least = np.minimum(0.5 * tolerance / np.maximum(width, 1e-300), 0.5)
        share = np.clip(np.where(smooth & np.isfinite(quadratic), quadratic, 0.5), least, 1.0 - least)
    return np.where(np.abs(at_a) <= np.abs(at_b), a, b)
