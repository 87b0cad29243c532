"""Incomplete U-statistics: the kernel of MMD or HSIC averaged over a random design (paper, sections 2 and 4.1).

The null variance has two sources. Given the data the l draws are independent, and the mean over all tuples varies
itself: Var = Var(h)/l + (1 - 1/l) Var(U), with Var(U)/Var(h) known exactly under the null.

The draws of an MMD are symmetric around 0 under the null, so that Student's t applies where they are few. Those of an
HSIC are skewed to the right: their mean and variance are positively correlated, so that the normal law is conservative.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Literal

import numpy as np

from kernsift.data.tables import Table, stack
from kernsift.estimators.block_sizes import columns_that_fit
from kernsift.estimators.draws.batches import Draws, HSICDraws, MMDDraws, OwnHSICDraws, OwnMMDDraws, index_type
from kernsift.estimators.draws.designs import Size, pairs, quadruples
from kernsift.estimators.draws.moments import FeatureDraws, Moments, moments_of
from kernsift.estimators.effects.kernel_correlations import (
    EffectScales,
    HSICScales,
    MMDScales,
    scores_with_effects,
    with_effects,
)
from kernsift.estimators.feature_blocks import loaded_if_it_fits
from kernsift.estimators.null_laws.student import with_student_tails
from kernsift.estimators.scores import DiagonalCovariance, Scores, supported_variances
from kernsift.estimators.ustatistic import hsic_null_ratio, mmd_null_ratio, require_rows, resampling
from kernsift.exceptions import InputError
from kernsift.execution.arrays import slices
from kernsift.kernels.fitted import FeatureKernels

Design = Literal["shared", "independent"]

# Features whose separate designs are drawn together, and draws per call: results depend on these for a given seed.
_FEATURES, _DRAWS = 64, 2**17


def incomplete_mmd(
    X: Table,
    Y: Table,
    kernels: FeatureKernels,
    *,
    r: float = 1.0,
    design: Design = "shared",
    all_effects: bool = False,
    rng: np.random.Generator,
) -> Scores:
    """MMD^2 of every feature from about r * min(n, m) draws of two different rows of each sample.

    With `design="shared"` all features use the same rows, so that the covariance of the draws estimates that of the
    scores; with "independent" every feature has its own design, and the scores are taken as uncorrelated.
    `all_effects`: effects of all features will be asked for, so that those of a table on disk are measured when it is
    read for the scores of a shared design.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.kernels.fitted import fit_kernels
    >>> from kernsift.data.inputs import as_table
    >>> rng = np.random.default_rng(0)
    >>> X, Y = as_table(rng.normal(size=(200, 3))), as_table(rng.normal([0, 1, 0], 1, size=(200, 3)))
    >>> scores = incomplete_mmd(X, Y, fit_kernels(X, rng=rng), r=10, rng=rng)
    >>> int(scores.estimate.argmax())
    1
    """
    _check(r, design)
    require_rows(X, 2, "X")
    require_rows(Y, 2, "Y")

    def draw(x: Table, y: Table, size: Size, rng: np.random.Generator) -> MMDDraws:
        rows = *pairs(x.n, size, rng), *pairs(y.n, size, rng)
        if design == "independent":
            return OwnMMDDraws(rows)
        # In few bytes where they take some of a memory limit.
        return MMDDraws(rows if x.memory is None else tuple(own.astype(index_type(x, y)) for own in rows))

    count = _count(r, X, Y)
    columns_that_fit([X, Y], 4 * index_type(X, Y).itemsize * count if design == "shared" else 0)
    factor, scales = _variance_factor(count, mmd_null_ratio(X.n, Y.n)), MMDScales(X.n, X.n + Y.n)
    scores = _scores(X, Y, kernels, r, design, draw, factor, scales, all_effects, rng, joint=False)
    # Draws that share rows have at most as many degrees of freedom as there are rows.
    freedom = max(1, min(count, X.n, Y.n) - 1)
    return with_student_tails(scores, freedom)


def incomplete_hsic(
    X: Table,
    y: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    *,
    r: float = 1.0,
    design: Design = "shared",
    all_effects: bool = False,
    rng: np.random.Generator,
) -> Scores:
    """HSIC of every feature with the response from about r * n draws of four different rows; options as for MMD.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.kernels.fitted import fit_kernels
    >>> from kernsift.data.inputs import as_table
    >>> rng = np.random.default_rng(0)
    >>> X = as_table(rng.normal(size=(300, 3)))
    >>> y = as_table(np.abs(X.values[:, [1]]))
    >>> scores = incomplete_hsic(X, y, fit_kernels(X, rng=rng), fit_kernels(y, rng=rng), r=10, rng=rng)
    >>> int(scores.estimate.argmax())
    1
    """
    _check(r, design)
    require_rows(X, 4, "X")

    def draw(x: Table, y: Table, size: Size, rng: np.random.Generator) -> Draws:
        rows = quadruples(x.n, size, rng)
        if design == "independent":
            return OwnHSICDraws(rows, y, response_kernels)
        return HSICDraws.at(rows if x.memory is None else rows.astype(index_type(x)), y, response_kernels)

    each = 4 * index_type(X).itemsize + 16  # quadruples, and their two weights
    columns_that_fit([X], each * _count(r, X) if design == "shared" else 0)
    factor, scales = _variance_factor(_count(r, X), hsic_null_ratio(X.n)), HSICScales(y, response_kernels)
    return _scores(X, y, kernels, r, design, draw, factor, scales, all_effects, rng, joint=True)


def _check(r: float, design: str) -> None:
    if isinstance(r, bool) or not isinstance(r, int | float | np.integer | np.floating) or not 0 < r < np.inf:
        raise InputError(f"r: a positive finite number of draws per row was needed, got {r!r}; the paper uses 1 to 10.")
    if design not in ("shared", "independent"):
        raise InputError(f"design: 'shared' or 'independent' was needed, got {design!r}.")


def _count(r: float, *tables: Table) -> int:
    return max(2, round(float(r) * min(table.n for table in tables)))


def _variance_factor(count: int, ratio: float) -> float:
    """Null variance of the estimate over the sample variance of the draws.

    The draws share rows, so their sample variance is below Var(h) by the variance of their common mean: it estimates
    Var(h) - Var(U) = (1 - ratio) Var(h). With n = 4 every draw is the same quadruple and this is 0.
    """
    return 1 / count + min(ratio, 0.9) / (1 - min(ratio, 0.9))


def _scores(
    X: Table,
    y: Table,
    kernels: FeatureKernels,
    r: float,
    design: Design,
    draw: Callable[[Table, Table, Size, np.random.Generator], Draws],
    factor: float,
    scales: EffectScales,
    all_effects: bool,
    rng: np.random.Generator,
    *,
    joint: bool,
) -> Scores:
    """Scores from draws that all features share, or from separate draws for each feature.

    `joint`: y is the response of the rows of X, and not a second sample.
    """

    def table(x: Table, y: Table, features: np.ndarray | None = None) -> Table:
        samples = [x] if joint else [x, y]
        return stack(samples if features is None else [one.select(features) for one in samples])

    def shared(x: Table, y: Table, rng: np.random.Generator) -> FeatureDraws[Draws]:
        return FeatureDraws(table(x, y), kernels, draw(x, y, _count(r, x, y), rng))

    resample = partial(resampling, X, y, 4 if joint else 2, joint=joint)
    if design == "shared":
        again = resample(lambda x, y, rng: moments_of(shared(x, y, rng)).mean)
        return scores_with_effects(shared(X, y, rng), scales, all_effects, variance_factor=factor, resample=again)

    def moments(x: Table, y: Table, rng: np.random.Generator) -> Moments:
        found, count = [], _count(r, x, y)
        for features in (np.arange(x.d)[some] for some in slices(0, x.d, _FEATURES)):
            own = partial(FeatureDraws, loaded_if_it_fits(table(x, y, features)), kernels.select(features))
            sizes = [(min(_DRAWS, count - done), len(features)) for done in range(0, count, _DRAWS)]
            parts = [moments_of(own(draw(x, y, size, rng))) for size in sizes]
            found.append(reduce(Moments.plus, parts))
        return Moments.joined(found)

    whole, again = moments(X, y, rng), resample(lambda x, y, rng: moments(x, y, rng).mean)
    variances = whole.squares * (factor / max(whole.count - 1, 1))
    cov = DiagonalCovariance(supported_variances(variances, whole.mean, whole.count))
    scores = Scores(X.names, whole.mean, cov, draws=float(whole.count), resample=again)
    no_draws = OwnMMDDraws((np.empty((0, X.d), dtype=int),) * 4)  # effects need the values alone
    return with_effects(scores, FeatureDraws(table(X, y), kernels, no_draws), scales)
