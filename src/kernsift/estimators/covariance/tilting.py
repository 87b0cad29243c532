"""Paths of cross-covariances along which a null statistic keeps its conditional distribution.

Let C (q x p) be the cross-covariance of a feature with the response, in orthogonal directions of both. Under
independence its entries are independent normal variables of variances w, and T = |C|^2 plus the omitted directions. A
conditional test needs a path through the observed C such that the position along it is independent of the path.
Given T = t, C has nearly the law of independent normal variables of variances w / (1 - 2 s w), with s from
sum w / (1 - 2 s w) = t (the saddlepoint, or Gibbs' conditioning principle). So the path multiplies each entry by
sqrt((1 - 2 s0 w) / (1 - 2 s w)), s0 being that of the observed T: it maps the law of C given one value of T to that
given another. With equal weights this is the ray through C, and the independence is exact. With decreasing weights a
large T is large in its leading directions, and these shrink first.
"""

from __future__ import annotations

import numpy as np

from kernsift.estimators.null_laws.permutation_law import log_saddlepoint

# Number of knots of a path, and of candidates for them.
_KNOTS, _TRIED = 40, 256
# Where a path begins and ends, in roots of T, relative to the larger of the observed T and its null mean.
_FIRST, _LAST = 0.04, 2.5
# Range of log(1 - 2 s max(w)) around the observed one.
_BELOW, _ABOVE = 7.0, 16.0


def tilted_paths(cross: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Paths (k, g, q, p) through k cross-covariances (k, q, p), and the index of each path's observed knot.

    `weights` (k, q, p) are the null variances of the entries; an entry of weight 0 must be 0.

    Examples
    --------
    With equal weights the path is the ray.

    >>> import numpy as np
    >>> path, observed = tilted_paths(np.array([[[3.0], [4.0]]]), np.ones((1, 2, 1)))
    >>> path[0, observed[0]].ravel().tolist()
    [3.0, 4.0]
    >>> bool(np.allclose(path[0, :, 0, 0] / path[0, :, 1, 0], 0.75))
    True
    """
    k = len(cross)
    squares = (cross**2).reshape(k, -1)
    weights = weights.reshape(k, -1)
    largest = np.maximum(weights.max(axis=1), 1e-300)
    relative = weights / largest[:, None]
    total = np.maximum(squares.sum(axis=1), 1e-12 * weights.sum(axis=1))
    start = log_saddlepoint(total, weights.sum(axis=1), weights, np.ones_like(weights), relative, largest)
    tried = start[:, None] + np.linspace(_ABOVE, -_BELOW, _TRIED)
    growth = _inflation(start, relative)[:, None, :] / _inflation(tried, relative)
    roots = np.sqrt((growth * squares[:, None, :]).sum(axis=2))  # increasing
    last = _LAST * np.sqrt(np.maximum(total, weights.sum(axis=1)))
    wanted = np.linspace(_FIRST, 1.0, _KNOTS) * last[:, None]
    places = np.stack([np.interp(*each) for each in zip(wanted, roots, tried, strict=True)])
    places = -np.sort(-np.concatenate([places, start[:, None]], axis=1), axis=1)
    observed = (places == start[:, None]).argmax(axis=1)
    growth = _inflation(start, relative)[:, None, :] / _inflation(places, relative)
    shape = (k, places.shape[1], *cross.shape[1:])
    return np.sqrt(growth).reshape(shape) * cross[:, None], observed


def _inflation(log_tilt: np.ndarray, relative: np.ndarray) -> np.ndarray:
    """1 - 2 s w, with v = 1 - 2 s max(w) given by its logarithm and w relative to the largest weight."""
    between = relative if log_tilt.ndim == 1 else relative[:, None, :]
    return np.exp(log_tilt)[..., None] * between + (1.0 - between)
