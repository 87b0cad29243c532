"""Checks of a user's kernel and bandwidth, and of missing values that they cannot be used with."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from kernsift.data.tables import Table, spaced_rows
from kernsift.exceptions import InputError
from kernsift.execution.arrays import asarray_like, dtype_of, to_numpy
from kernsift.kernels.functions import Custom

# Rows on which a user's function is checked for being a kernel, and features that are checked.
_TESTED_ROWS, _TESTED_FEATURES = 64, 8


def checked_bandwidth(bandwidth: Any, d: int) -> str | np.ndarray:
    """A bandwidth by name, or one number for each of d features."""
    if isinstance(bandwidth, str) and bandwidth in ("median", "joint"):
        return bandwidth
    try:
        given = np.empty(0) if isinstance(bandwidth, str | bool) else np.asarray(bandwidth, dtype=float)
    except (TypeError, ValueError):
        given = np.empty(0)
    if (given.size == 0 and d > 0) or (given.ndim == 0 and not isinstance(bandwidth, Real | np.ndarray)):
        raise InputError(
            f"bandwidth: 'median', 'joint', a positive number or {d} of them were needed, got {bandwidth!r}."
        )
    if given.ndim > 1 or (given.ndim == 1 and len(given) != d):
        raise InputError(f"bandwidth: one number per feature was needed, shape ({d},), got shape {given.shape}.")
    if not (np.isfinite(given) & (given > 0)).all():
        bad = given.ravel()[np.argmin(np.isfinite(given) & (given > 0))]
        raise InputError(f"bandwidth: positive finite numbers were needed, got {bad}; use 'median' to have it chosen.")
    return np.broadcast_to(given, (d,))


def check_missing(pooled: Table, bandwidth: str | np.ndarray) -> None:
    """Raise an error for settings that are undefined where a missing value is a value of its own."""
    if pooled.incomplete is None:
        return
    if isinstance(bandwidth, str) and bandwidth == "joint":
        raise InputError(
            "bandwidth: 'joint' needs rows without missing values; use missing='drop', or bandwidth='median'."
        )
    together = np.logical_or.reduceat(pooled.incomplete, pooled.offsets[:-1]) & (np.diff(pooled.offsets) > 1)
    if together.any():
        raise InputError(
            f"missing: 'value' is for features of one column, but group {pooled.names[int(together.argmax())]!r} has "
            "missing values; use 'column' or 'drop'."
        )


def check_function(kernel: Custom, pooled: Table, features: np.ndarray) -> None:
    """Raise an error if the function's matrix on distinct rows is not symmetric or has negative eigenvalues.

    Evenly spaced rows of evenly spaced features are checked. The tolerance is the square root of the machine epsilon.
    """
    rows = spaced_rows(pooled.n, _TESTED_ROWS)
    tested = features[spaced_rows(len(features), _TESTED_FEATURES)]
    tolerance = float(np.sqrt(np.finfo(dtype_of(pooled.prototype)).eps))
    for feature in tested:
        points = pooled.part(np.arange(pooled.offsets[feature], pooled.offsets[feature + 1]), rows)
        known = to_numpy(points)
        distinct = np.unique(known[~np.isnan(known).any(axis=1)], axis=0)
        if not len(distinct):
            continue
        one, two = (asarray_like(distinct[place.ravel()], points) for place in np.indices((len(distinct),) * 2))
        gram = to_numpy(kernel(one, two)).astype(float).reshape(len(distinct), -1)
        limit = tolerance * np.abs(gram).max()
        asymmetry = float(np.abs(gram - gram.T).max())
        if asymmetry > limit:
            raise InputError(
                f"kernel: the function must be symmetric, but f(a, b) and f(b, a) differ by up to {asymmetry:.3g} on "
                f"feature {pooled.names[feature]!r}; use their sum."
            )
        least = float(np.linalg.eigvalsh(gram)[0])
        if least < -limit:
            raise InputError(
                "kernel: the function must be positive semi-definite, but its matrix on rows of feature "
                f"{pooled.names[feature]!r} has the eigenvalue {least:.3g}; for a distance D use "
                "f(a, b) = D(a, 0) + D(0, b) - D(a, b)."
            )
