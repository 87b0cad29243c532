"""Incomplete U-statistics: the kernel of MMD or HSIC averaged over a random design (paper, sections 2 and 4.1).

The null variance counts both sources of randomness. Given the data the l draws are independent, and the mean over all
tuples varies itself: Var = Var(h)/l + (1 - 1/l) Var(U), with Var(U)/Var(h) known exactly under the null.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Literal

import numpy as np

from kernsift.designs import pairs, quadruples
from kernsift.kernels import FeatureKernels
from kernsift.scores import Scores, scores_from_draws
from kernsift.statistics.effects import with_hsic_effects, with_mmd_effects
from kernsift.statistics.ustatistic import (
    batches,
    hsic_null_ratio,
    mmd_kernel,
    mmd_null_ratio,
    require_rows,
    resample_joint,
    resample_two,
)
from kernsift.tables import InputError, Table

Design = Literal["shared", "independent"]

# Features whose own designs are drawn together; part of what a seed means, unlike the size of a batch.
_FEATURES = 64
# The three ways to split four rows into two pairs.
_PAIRINGS = (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))


def incomplete_mmd(
    X: Table,
    Y: Table,
    kernels: FeatureKernels,
    *,
    r: float = 1.0,
    design: Design = "shared",
    rng: np.random.Generator,
) -> Scores:
    """MMD^2 of every feature from about r * min(n, m) draws of two different rows of each sample.

    With `design="shared"` all features meet in the same rows, which makes the covariance of the draws that of the
    scores; with "independent" every feature has its own, and the scores are taken as uncorrelated.
    """
    _check(r, design)
    require_rows(X, 2, "X")
    require_rows(Y, 2, "Y")

    def draws(x: Table, y: Table, rng: np.random.Generator) -> np.ndarray:
        return _mmd_draws(x, y, kernels, _count(r, min(x.n, y.n)), design, rng)

    values = draws(X, Y, rng)
    scores = scores_from_draws(
        X.names,
        values,
        variance_factor=_variance_factor(len(values), mmd_null_ratio(X.n, Y.n)),
        shared=design == "shared",
        resample=resample_two(X, Y, 2, lambda x, y, rng: draws(x, y, rng).mean(axis=0)),
    )
    return with_mmd_effects(scores, X, Y, kernels, intervals=False)


def incomplete_hsic(
    X: Table,
    y: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    *,
    r: float = 1.0,
    design: Design = "shared",
    rng: np.random.Generator,
) -> Scores:
    """HSIC of every feature with the response from about r * n draws of four different rows; `design` as for MMD."""
    _check(r, design)
    require_rows(X, 4, "X")

    def draws(x: Table, y: Table, rng: np.random.Generator) -> np.ndarray:
        return _hsic_draws(x, y, kernels, response_kernels, _count(r, x.n), design, rng)

    values = draws(X, y, rng)
    scores = scores_from_draws(
        X.names,
        values,
        variance_factor=_variance_factor(len(values), hsic_null_ratio(X.n)),
        shared=design == "shared",
        resample=resample_joint(X, y, 4, lambda x, y, rng: draws(x, y, rng).mean(axis=0)),
    )
    return with_hsic_effects(scores, X, y, kernels, response_kernels, intervals=False)


def _check(r: float, design: str) -> None:
    if isinstance(r, bool) or not isinstance(r, int | float | np.integer | np.floating) or not 0 < r < np.inf:
        raise InputError(f"r: a positive finite number of draws per row was needed, got {r!r}; the paper uses 1 to 10.")
    if design not in ("shared", "independent"):
        raise InputError(f"design: 'shared' or 'independent' was needed, got {design!r}.")


def _count(r: float, n: int) -> int:
    return max(2, round(float(r) * n))


def _variance_factor(count: int, ratio: float) -> float:
    """Null variance of the estimate over the sample variance of the draws.

    The draws share rows, so their sample variance falls short of Var(h) by the variance of their common mean: it
    estimates Var(h) - Var(U) = (1 - ratio) Var(h). With n = 4 every draw is the same quadruple and nothing is left.
    """
    return 1 / count + min(ratio, 0.9) / (1 - min(ratio, 0.9))


def _feature_blocks(X: Table) -> Iterator[np.ndarray]:
    for start in range(0, X.d, _FEATURES):
        yield np.arange(start, min(start + _FEATURES, X.d))


def _own_rows(table: Table, rows: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Value rows (l, p) in which feature j's columns come from rows[:, j]."""
    return np.take_along_axis(table.values, np.repeat(rows, widths, axis=1), axis=0)


def _mmd_draws(
    X: Table, Y: Table, kernels: FeatureKernels, count: int, design: Design, rng: np.random.Generator
) -> np.ndarray:
    draws = np.empty((count, kernels.d))
    if design == "shared":
        rows = [*pairs(X.n, count, rng), *pairs(Y.n, count, rng)]
        for part in batches(count, X.values.shape[1]):
            taken = [table.values.take(index[part], axis=0) for table, index in zip((X, X, Y, Y), rows, strict=True)]
            draws[part] = mmd_kernel(kernels, *taken)
        return draws
    for features in _feature_blocks(X):
        own, x, y = kernels.select(features), X.select(features), Y.select(features)
        widths = np.diff(x.offsets)
        rows = [*pairs(X.n, (count, len(features)), rng), *pairs(Y.n, (count, len(features)), rng)]
        for part in batches(count, x.values.shape[1]):
            taken = [_own_rows(table, index[part], widths) for table, index in zip((x, x, y, y), rows, strict=True)]
            draws[part, features[0] : features[-1] + 1] = mmd_kernel(own, *taken)
    return draws


def _hsic_draws(
    X: Table,
    y: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    count: int,
    design: Design,
    rng: np.random.Generator,
) -> np.ndarray:
    draws = np.empty((count, kernels.d))
    if design == "shared":
        rows = quadruples(X.n, count, rng)
        for part in batches(count, X.values.shape[1]):
            weights = _pairing_weights(y.values, rows[part], response_kernels)
            points = [X.values.take(rows[part, a], axis=0) for a in range(4)]
            draws[part] = _hsic_kernel(kernels, points, [w[:, None] for w in weights])
        return draws
    for features in _feature_blocks(X):
        own, x = kernels.select(features), X.select(features)
        widths = np.diff(x.offsets)
        rows = quadruples(X.n, (count, len(features)), rng)
        for part in batches(count, x.values.shape[1]):
            weights = _pairing_weights(y.values, rows[part], response_kernels)
            points = [_own_rows(x, rows[part, :, a], widths) for a in range(4)]
            draws[part, features[0] : features[-1] + 1] = _hsic_kernel(own, points, weights)
    return draws


def _pairing_weights(y: np.ndarray, rows: np.ndarray, response_kernels: FeatureKernels) -> list[np.ndarray]:
    """Weights of the second and third pairing of each quadruple, from the response; the first has minus their sum.

    h of the paper's section 2 gives the pair ab the weight [4(L_ab + L_uv) - 2(L_au + L_av + L_bu + L_bv)]/24, where u
    and v are the other two rows. That is the same for ab and uv: with P_1, P_2, P_3 the sums of L over the three
    pairings it is [2 P_1 - P_2 - P_3]/12 and so on, and the three weights add up to 0.
    """
    points = [y.take(rows[..., a], axis=0) for a in range(4)]
    gram = {(a, b): response_kernels.matched(points[a], points[b])[..., 0] for a, b in combinations(range(4), 2)}
    first, second, third = (gram[one] + gram[other] for one, other in _PAIRINGS)
    return [(2 * second - (first + third)) / 12, (2 * third - (first + second)) / 12]


def _hsic_kernel(kernels: FeatureKernels, points: list[np.ndarray], weights: list[np.ndarray]) -> np.ndarray:
    """h of the quadruples: the weights times the sums of K over the pairings, exactly 0 where all K are equal."""
    sums = []
    for (a, b), (u, v) in _PAIRINGS:
        pairing = kernels.matched(points[a], points[b])
        pairing += kernels.matched(points[u], points[v])
        sums.append(pairing)
    for pairing, weight in zip(sums[1:], weights, strict=True):
        pairing -= sums[0]
        pairing *= weight
    sums[1] += sums[2]
    return sums[1]
