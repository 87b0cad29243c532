"""Low-rank factors of centred Gram matrices: linear in the rows, no n x n matrix.

For each feature a few landmark values z are chosen and the kernel is replaced by its Nystroem form
k(x, z) K_zz^{-1} k(z, y) = F(x) . F(y). For a smooth kernel of one column some 20 landmarks reproduce it closely; for
rougher kernels and for groups it is a slightly different kernel, which is as good: the landmarks depend on the
pooled feature values alone, so every permutation test stays valid.

Landmarks come from a pivoted Cholesky factorisation of the kernel on representative points: order statistics of a
column, so that the order of rows does not matter; a sample of rows for a group of columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernsift.kernels import FeatureKernels, columns_of
from kernsift.tables import Table

# Points that represent a column, rows that represent a group, and the largest rank of each.
_POINTS, _GROUP_POINTS = 128, 256
_RANK, _GROUP_RANK = 64, 256
# Extreme order statistics at either end that are always among a column's points: outliers stand alone.
_EXTREMES = 16
# Landmarks are added until no representative point is missed by more than this share of the largest k(x, x).
_TOLERANCE = 1e-7
# Directions of a factor below this share of the largest are rounding error.
_NEGLIGIBLE = 1e-9
# Bandwidths of the two looks, in median distances.
_WIDE, _NARROW = 4.0, 0.7
# Numbers in one block of factors: 2^21 are 16 MB.
_BLOCK = 2**21


@dataclass(frozen=True)
class Factors:
    """Centred factors of every feature of a table, computed for a few features at a time when asked for.

    Attributes
    ----------
    table : the rows.
    kernels : one kernel per feature.
    points : (m, p) landmarks; the t-th landmark of a feature sits in row t, in the feature's own columns.
    rank : (d,) how many of the m landmarks each feature uses.
    flat : whether the square root of the Gram matrix is taken, which flattens its spectrum.
    """

    table: Table
    kernels: FeatureKernels
    points: np.ndarray
    rank: np.ndarray
    flat: bool = False

    def of(self, features: np.ndarray) -> np.ndarray:
        """Factors (features, m, n), rows orthogonal and leading first: `F.T @ F` is the centred Gram matrix."""
        columns = columns_of(self.table.offsets, features)
        rank = self.rank[features]
        points = self.points[: max(int(rank.max(initial=1)), 1), columns]
        kernels = self.kernels.select(features)
        factor = _mix(kernels, points, rank) @ _against(kernels, points, self.table.values[:, columns])
        size = np.einsum("dmn,dmn->d", factor, factor)
        factor -= factor.mean(axis=2, keepdims=True)
        # What centring leaves of a constant feature is rounding error, which must not be scaled up later.
        factor[np.einsum("dmn,dmn->d", factor, factor) <= 1e-24 * size] = 0.0
        return principal(factor, self.flat)

    def chunks(self, features: np.ndarray) -> Iterator[np.ndarray]:
        """The features cut so that each piece's factors fit the memory allowed; groups, of high rank, alone."""
        group = np.diff(self.table.offsets)[features] > 1
        single = features[~group]
        step = max(1, _BLOCK // (self.table.n * max(int(self.rank[single].max(initial=1)), 1)))
        for start in range(0, len(single), step):
            yield single[start : start + step]
        for one in features[group]:
            yield np.array([one])


def fit_factors(table: Table, kernels: FeatureKernels, *, flat: bool = False, rng: np.random.Generator) -> Factors:
    """Choose landmarks for every feature: single columns in blocks, groups of columns one by one."""
    widths = np.diff(table.offsets)
    single, groups = np.flatnonzero(widths == 1), np.flatnonzero(widths > 1)
    step = max(1, _BLOCK // (_RANK * _POINTS))
    blocks = [single[start : start + step] for start in range(0, len(single), step)]
    blocks += [groups[i : i + 1] for i in range(len(groups))]
    rank = np.zeros(table.d, dtype=int)
    found = []
    for block in blocks:
        points, rank[block] = _fit(table, kernels, block, rng)
        found.append(points)
    landmarks = np.zeros((max(len(points) for points in found), len(table.values.T)))
    for block, points in zip(blocks, found, strict=True):
        landmarks[: len(points), columns_of(table.offsets, block)] = points
    return Factors(table, kernels, landmarks, rank, flat)


def fit_looks(
    table: Table, kernels: FeatureKernels, adaptive: bool, *, rng: np.random.Generator
) -> tuple[Factors, ...]:
    """One look at each feature with its own kernel; or, adaptive, two looks that between them miss few shapes.

    The wide kernel sees shifts of mean and spread. The narrow one, its spectrum flattened by a square root, counts
    finer shapes too. The two bandwidths did best over shifts, spreads, tails, modes and skews (docs/power.md).
    """
    if not adaptive:
        return (fit_factors(table, kernels, rng=rng),)
    wide, narrow = kernels.rescaled(_WIDE), kernels.rescaled(_NARROW)
    return fit_factors(table, wide, rng=rng), fit_factors(table, narrow, flat=True, rng=rng)


def _fit(
    table: Table, kernels: FeatureKernels, features: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    own, columns = kernels.select(features), columns_of(table.offsets, features)
    values = table.values[:, columns]
    group = len(columns) > len(features)
    most = _GROUP_POINTS if group else _POINTS
    if not group:
        values = np.sort(values, axis=0)
    if table.n > most:
        values = values[np.sort(rng.choice(table.n, most, replace=False)) if group else _spread_out(table.n, most)]
    order, rank = _pivots(values, own, min(_GROUP_RANK if group else _RANK, len(values)))
    return np.take_along_axis(values, np.repeat(order, np.diff(own.offsets), axis=1), axis=0), rank


def _spread_out(n: int, count: int) -> np.ndarray:
    """Places of `count` order statistics: the outermost ones, and evenly spaced ones between them."""
    inner = np.linspace(_EXTREMES, n - 1 - _EXTREMES, count - 2 * _EXTREMES).round().astype(int)
    return np.concatenate([np.arange(_EXTREMES), inner, np.arange(n - _EXTREMES, n)])


def _pivots(points: np.ndarray, kernels: FeatureKernels, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Pivoted Cholesky of every feature's kernel on the points: the pivots (m, d) and each feature's rank."""
    widths, features = np.diff(kernels.offsets), np.arange(kernels.d)
    residual = kernels.matched(points, points)
    enough = _TOLERANCE * residual.max(axis=0)
    rows = np.empty((limit, *residual.shape), dtype=residual.dtype)
    order = np.zeros((limit, kernels.d), dtype=int)
    rank = np.zeros(kernels.d, dtype=int)
    for step in range(limit):
        pivot = residual.argmax(axis=0)
        largest = residual[pivot, features]
        open_ = largest > enough
        if not open_.any():
            break
        at = np.take_along_axis(points, np.repeat(pivot, widths)[None, :], axis=0)
        column = kernels.matched(points, at)
        column -= np.einsum("tqd,td->qd", rows[:step], rows[:step, pivot, features])
        column *= np.where(open_, 1.0 / np.sqrt(np.where(open_, largest, 1.0)), 0.0)
        rows[step], order[step] = column, pivot
        residual -= column**2
        residual[pivot, features] = 0.0
        rank += open_
    deepest = max(int(rank.max()), 1)
    return order[:deepest], rank


def _mix(kernels: FeatureKernels, points: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """(d, m, m): what turns kernel values at the landmarks into factors, the inverse of the Cholesky triangle."""
    gram = _against(kernels, points, points)
    size = gram.shape[1]
    unused = np.arange(size) >= rank[:, None]
    gram[np.broadcast_to(unused[:, :, None] | unused[:, None, :], gram.shape)] = 0.0
    feature, place = np.nonzero(unused)
    gram[feature, place, place] = 1.0
    # The pivots leave residuals of at least _TOLERANCE, far above rounding; the tiny ridge is for functions that are
    # not quite positive definite.
    scale = np.diagonal(gram, axis1=1, axis2=2).max(axis=1)
    gram += (1e-13 * size) * scale[:, None, None] * np.eye(size)
    inverse = np.linalg.inv(np.linalg.cholesky(gram))
    inverse[feature, place, :] = 0.0
    return inverse


def principal(factor: np.ndarray, flat: bool = False) -> np.ndarray:
    """The same Gram matrix from orthogonal rows, largest first; `flat` gives its square root instead."""
    values, vectors = np.linalg.eigh(factor @ np.swapaxes(factor, 1, 2))
    values, vectors = values[:, ::-1], vectors[:, :, ::-1]
    keep = values > _NEGLIGIBLE * np.maximum(values[:, :1], np.finfo(float).tiny)
    weight = np.where(keep, np.where(keep, values, 1.0) ** -0.25 if flat else 1.0, 0.0)
    deepest = max(int(keep.sum(axis=1).max(initial=1)), 1)
    return np.swapaxes(vectors[:, :, :deepest] * weight[:, None, :deepest], 1, 2) @ factor


def _against(kernels: FeatureKernels, points: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Kernel values (d, m, n) of each feature between m points and n rows."""
    singles = len(kernels.inverse) == kernels.d and not kernels.categorical.any()
    if singles and kernels.kernel.kind == "distance":
        with np.errstate(over="ignore"):
            distance = np.subtract(values.T[:, None, :], points.T[:, :, None])
            distance *= kernels.inverse[:, None, None]
            return kernels.kernel.profile(distance)
    out = np.empty((kernels.d, len(points), len(values)))
    for place, point in enumerate(points):
        out[:, place, :] = kernels.matched(values, point).T
    return out
