"""The linear-time MMD (paper, section 2): disjoint pairs of rows, so the draws are independent."""

from __future__ import annotations

import numpy as np

from kernsift.designs import blocks
from kernsift.kernels import FeatureKernels
from kernsift.scores import Scores, scores_from_draws
from kernsift.statistics.effects import with_mmd_effects
from kernsift.statistics.ustatistic import batches, mmd_kernel, require_rows, resample_two
from kernsift.tables import Table


def linear_mmd(X: Table, Y: Table, kernels: FeatureKernels, *, rng: np.random.Generator) -> Scores:
    """MMD^2 of every feature from min(n, m) // 2 disjoint pairs of rows of each sample, in random order."""
    require_rows(X, 4, "X", " for the linear-time estimator")
    require_rows(Y, 4, "Y", " for the linear-time estimator")
    resample = resample_two(X, Y, 4, lambda x, y, rng: _draws(x, y, kernels, rng).mean(axis=0))
    scores = scores_from_draws(X.names, _draws(X, Y, kernels, rng), resample=resample)
    return with_mmd_effects(scores, X, Y, kernels, intervals=True)


def _draws(X: Table, Y: Table, kernels: FeatureKernels, rng: np.random.Generator) -> np.ndarray:
    count = min(X.n, Y.n) // 2
    i, j = blocks(X.n, 2, rng)[:count], blocks(Y.n, 2, rng)[:count]
    draws = np.empty((count, kernels.d))
    for part in batches(count, X.values.shape[1]):
        x, x2, y, y2 = (v.take(r, axis=0) for v, rows in ((X.values, i), (Y.values, j)) for r in rows[part].T)
        draws[part] = mmd_kernel(kernels, x, x2, y, y2)
    return draws
