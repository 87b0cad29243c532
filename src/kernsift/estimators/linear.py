"""The linear-time MMD (paper, section 2): disjoint pairs of rows, so the draws are independent."""

from __future__ import annotations

import numpy as np

from kernsift.data.tables import Table, stack
from kernsift.estimators.block_sizes import columns_that_fit
from kernsift.estimators.draws.batches import MMDDraws
from kernsift.estimators.draws.designs import blocks
from kernsift.estimators.draws.moments import FeatureDraws, moments_of
from kernsift.estimators.effects.kernel_correlations import MMDScales, scores_with_effects
from kernsift.estimators.null_laws.student import with_student_tails
from kernsift.estimators.scores import Scores
from kernsift.estimators.ustatistic import require_rows, resampling
from kernsift.kernels.fitted import FeatureKernels


def linear_mmd(
    X: Table, Y: Table, kernels: FeatureKernels, *, all_effects: bool = False, rng: np.random.Generator
) -> Scores:
    """MMD^2 of every feature from min(n, m) // 2 disjoint pairs of rows of each sample, in random order.

    `all_effects` as for `incomplete_mmd`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.kernels.fitted import fit_kernels
    >>> from kernsift.data.inputs import as_table
    >>> rng = np.random.default_rng(0)
    >>> X, Y = as_table(rng.normal(size=(200, 3))), as_table(rng.normal([0, 1, 0], 1, size=(200, 3)))
    >>> scores = linear_mmd(X, Y, fit_kernels(X, rng=rng), rng=rng)
    >>> int(scores.estimate.argmax())
    1
    """
    require_rows(X, 4, "X", " for the linear-time estimator")
    require_rows(Y, 4, "Y", " for the linear-time estimator")
    resample = resampling(X, Y, 4, lambda x, y, rng: moments_of(_draws(x, y, kernels, rng)).mean, joint=False)
    columns_that_fit([X, Y], 16 * (X.n + Y.n))
    draws = _draws(X, Y, kernels, rng)
    i, i2, j, j2 = draws.draws.rows
    design = np.stack([i, i2, X.n + j, X.n + j2], axis=1)
    scales = MMDScales(X.n, X.n + Y.n, draws=draws.draws, design=design)
    return with_student_tails(scores_with_effects(draws, scales, all_effects, resample=resample), draws.count - 1)


def _draws(X: Table, Y: Table, kernels: FeatureKernels, rng: np.random.Generator) -> FeatureDraws[MMDDraws]:
    count = min(X.n, Y.n) // 2
    i, j = blocks(X.n, 2, rng)[:count], blocks(Y.n, 2, rng)[:count]
    return FeatureDraws(stack([X, Y]), kernels, MMDDraws((i[:, 0], i[:, 1], j[:, 0], j[:, 1])))
