"""Low-rank factors of centred Gram matrices on the points of a grid, without any n x n matrix.

A pivoted Cholesky factorisation of the kernel on a feature's points gives k(x, y) = F(x) . F(y) with a relative error
of 1e-3: some 5 to 20 directions for a smooth kernel of one column. Truncation at the largest rank, which rougher
kernels and groups of columns reach, amounts to a slightly different kernel: the factors depend on the pooled feature
values alone, so every permutation test stays valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kernsift.execution.arrays import (
    Array,
    accumulator_dtype,
    asarray_like,
    at_least,
    in_place,
    namespace,
    on_host,
    slices,
    take,
    to_numpy,
    transposed,
)
from kernsift.kernels.contingency import Tabulation
from kernsift.kernels.fitted import FeatureKernels
from kernsift.kernels.group_views import NEGLIGIBLE, GroupView, Landmarks, root_unit, views_of_rows
from kernsift.kernels.quantisation import Grid

# The largest rank of a column, and of a group; rows among which a group's landmarks are chosen.
_RANK, _GROUP_RANK, _LANDMARK_ROWS = 32, 256, 256
CATEGORIES = 256
"""The most categories of a variable with a direction of their own."""
# Directions are added until the weighted residual of every point is at most this share of the mean over the points.
TOLERANCE = 1e-3
# Relative preference for earlier points, so that ties between residuals do not depend on rounding.
_TILT = 1e-9
# Directions that are added on a device between two checks for convergence, for each of which the host has to wait.
_EVERY = 4
# Rows of a group's sample whose kernel values with all others are computed at a time.
_TOGETHER = 32
WIDE = 4.0
"""Bandwidth of the wide kernel, in median distances."""
# That of the narrow kernel.
_NARROW = 0.7
RARE, COMMON = 1.15, 0.4
"""Powers of the rows of a level in its weight, for changes of rare and of common levels.

With the power 1 T would be chi-square, with the power 0 the distance covariance of the levels' indicators. A new level
is found more often with the first of these powers than by chi-square (docs/power.md).
"""


class View(NamedTuple):
    """The centred Gram matrices of b features under one kernel, as factors."""

    # (b, m, G) centred over the rows and with orthogonal directions, leading first: `F.T @ F` is the centred Gram
    # matrix on the points.
    factor: Array
    sizes: Array  # (b, m) squared norms of the directions over all rows: the eigenvalues of the Gram matrix of the rows

    def raised(self, power: float) -> View:
        """The same directions with their eigenvalues raised to a power; one below 1 gives weight to finer shapes."""
        xp = namespace(self.factor)
        if power == 1.0:
            return View(xp.where((self.sizes > 0)[:, :, None], self.factor, 0.0), self.sizes)
        some = self.sizes > 0
        values = xp.where(some, self.sizes, 1.0)
        weight = xp.where(some, values ** ((power - 1.0) / 2.0), 0.0)
        return View(self.factor * weight[:, :, None], xp.where(some, values**power, 0.0))

    def of_size_one(self) -> View:
        """The kernels times powers of 2, so that the largest eigenvalue of each is near 1."""
        unit = asarray_like(root_unit(to_numpy(self.sizes).max(axis=1, keepdims=True)), self.sizes)
        return View(self.factor / unit[:, :, None], self.sizes / unit**2)

    def leading(self, count: int) -> View:
        """The first directions alone, all with eigenvalue 1."""
        return View(self.factor[:, :count, :], self.sizes[:, :count]).raised(0.0)

    def at(self, points: slice | np.ndarray) -> Array:
        """(b, m, points) the factor at some points."""
        return take(self.factor, points, 2)

    def take(self, features: np.ndarray) -> View:
        """The views of some of the features, or of repeated ones."""
        return View(take(self.factor, features, 0), take(self.sizes, features, 0))


class KernelView(NamedTuple):
    """The kernels of all features, and whether the square root of the Gram matrix is taken (`flat`).

    The root flattens the spectrum, which gives more weight to finer shapes. Categories have the kernel that weights
    levels by their rarity in its place, whose spectrum is nearly flat.
    """

    kernels: FeatureKernels
    flat: bool = False

    def view(self, grid: Grid, counts: Array, features: np.ndarray, landmark_rows: np.ndarray) -> View:
        """The factors of these features, from their points and the rows (b, G) that each point represents.

        The landmarks of a group of columns are chosen among `landmark_rows`.
        """
        own = self.kernels.select(features)
        if grid.edges is None:
            factor = _group_factor(grid.points, own, landmark_rows)
        elif own.categorical.all() or not own.rounds:
            levels = Levels.of(counts)
            view = levels.weighted() if self.flat else levels.equality()
            return View(levels.at_points(view.factor), view.sizes)
        else:
            factor, _ = pivoted(grid.points, own, counts, _RANK)
        return centred(factor, counts, 0.5 if self.flat else 1.0)


def landmark_rows(n: int, rng: np.random.Generator) -> np.ndarray:
    """Some of n rows, increasing, among which the landmarks of groups of columns are chosen."""
    return np.sort(rng.choice(n, min(n, _LANDMARK_ROWS), replace=False))


def kernel_views(kernels: FeatureKernels, adaptive: bool) -> tuple[KernelView, ...]:
    """The kernel of each feature; or, adaptive, a wide and a narrow kernel.

    The wide kernel is sensitive to shifts of mean and spread, the narrow one, its spectrum flattened, also to finer
    shapes. The two bandwidths had the best power over shifts, spreads, tails, modes and skews (docs/power.md).
    """
    if not adaptive:
        return (KernelView(kernels),)
    return KernelView(kernels.rescaled(WIDE)), KernelView(kernels.rescaled(_NARROW), flat=True)


def pivoted(
    points: Array, kernels: FeatureKernels, weights: Array, limit: int, tolerance: float = TOLERANCE
) -> tuple[Array, Array]:
    """Pivoted Cholesky of each feature's kernel on its points (G, columns): factors (b, m, G) and pivots (b, m).

    The next pivot is the point with the largest weight times residual of k(x, x). The further directions of a feature
    that has converged are 0.
    """
    xp, (b, size) = namespace(points), weights.shape
    index = xp.arange(size, device=points.device)
    preference = weights * (1.0 - _TILT * xp.astype(index, weights.dtype))
    residual = xp.ones_like(weights)
    if kernels.exponents is None:
        residual = xp.astype(xp.matrix_transpose(kernels.matched(points, points)), weights.dtype)
    used = xp.sum(xp.astype(weights > 0, weights.dtype), axis=1)
    enough = tolerance * xp.sum(residual * weights, axis=1) / used
    limit = min(limit, size)
    every = 1 if on_host(points) else _EVERY
    rows = xp.empty((b, limit, size), dtype=weights.dtype, device=points.device)
    rows[:, 0, :] = 0.0
    feature = xp.arange(b, device=points.device)
    above = feature[:, None] * (limit * size) + xp.arange(limit, device=points.device)[None, :] * size
    exponents, turned = kernels.exponents, transposed(points)
    pivots: list[Array] = []
    more: list[Array] = []
    for step in range(limit):
        gain = residual * preference
        pivot = xp.argmax(gain, axis=1)
        place = feature * size + pivot
        open_ = xp.take(xp.reshape(gain, (-1,)), place) > enough
        more.append(xp.any(open_))
        # A check makes the host wait for a device, so that not every step has one.
        if step % every == 0 and not bool(more[-1]):
            break
        if exponents is not None:
            # As in `matched`, but a row for each feature.
            column = turned - xp.take(xp.reshape(turned, (-1,)), place)[:, None]
            column *= column
            column *= exponents[:, None]
            column = in_place("exp", column)
        elif points.shape[1] == b:
            at = xp.take(xp.reshape(points, (-1,)), pivot * b + feature)[None, :]
            column = xp.matrix_transpose(kernels.matched(points, at))
        else:
            column = xp.matrix_transpose(kernels.matched(points, xp.take(points, pivot, axis=0)))
        if step:
            there = xp.take(xp.reshape(rows, (-1,)), xp.reshape(above[:, :step] + pivot[:, None], (-1,)))
            column = column - (xp.reshape(there, (b, 1, step)) @ rows[:, :step, :])[:, 0, :]
        largest = xp.take(xp.reshape(residual, (-1,)), place)
        column = column * xp.where(open_, 1.0 / xp.sqrt(xp.where(open_, largest, 1.0)), 0.0)[:, None]
        rows[:, step, :] = column
        residual = xp.where(index == pivot[:, None], 0.0, residual - column * column)
        pivots.append(pivot[:, None])
    count = int(xp.sum(xp.astype(xp.stack(more), xp.int64)))
    found = xp.concat(pivots[:count], axis=1) if count else xp.zeros((b, 1), dtype=index.dtype, device=points.device)
    return rows[:, : max(count, 1), :], found


class Levels(NamedTuple):
    """The levels of b categorical variables: the most frequent ones, and all others as one.

    Levels of one row are pooled, as equality with one of them tells nothing about other rows; so are those beyond
    `CATEGORIES`. A variable whose values are all different has one level, and a constant statistic.
    """

    counts: Array  # (b, g) rows of each level, the pooled one last
    places: Array  # (b, G) the level of each point

    @classmethod
    def of(cls, counts: Array) -> Levels:
        """From the rows (b, G) of each point."""
        known = to_numpy(counts)
        order = np.argsort(-known, axis=1, kind="stable")
        ranked = np.take_along_axis(known, order, axis=1)
        limit = CATEGORIES if known.shape[1] > CATEGORIES + 1 else known.shape[1]
        size = min(max(int((ranked > 1).sum(axis=1).max()), 1), limit)
        kept = np.where(ranked[:, :size] > 1, ranked[:, :size], 0.0)
        rest = ranked.sum(axis=1) - kept.sum(axis=1)
        places = np.full(known.shape, size)
        np.put_along_axis(places, order[:, :size], np.where(kept > 0, np.arange(size), size), axis=1)
        return cls(asarray_like(np.column_stack([kept, rest]), counts), asarray_like(places, counts))

    def merged(self, known: Tabulation) -> Tabulation:
        """The counts of the levels, from those of the points."""
        xp = namespace(self.counts)
        if not bool(xp.any(self.counts[:, -1] > 0)):
            return known
        b, size = self.counts.shape
        joint, codes = known.joint, known.codes
        if joint is not None:
            same = self.places[:, None, :] == xp.arange(size, device=self.places.device)[None, :, None]
            joint = xp.astype(same, joint.dtype) @ joint
        if codes is not None:
            start = xp.arange(b, device=codes.device)[:, None] * self.places.shape[1]
            index = xp.reshape(xp.astype(codes, xp.int64) + start, (-1,))
            codes = xp.astype(xp.reshape(xp.take(xp.reshape(self.places, (-1,)), index), codes.shape), codes.dtype)
        return Tabulation(self.counts, joint, codes)

    def equality(self) -> View:
        """The kernel 1[a = b]; pooled values differ from one another."""
        size = self.counts.shape[1]
        identity = asarray_like(np.eye(size - 1, size), self.counts)
        ones = namespace(self.counts).ones_like(self.counts)[:, None, :]
        return centred(identity * ones, self.counts)

    def weighted(self, power: float = RARE, added_rows: float = 0.0) -> View:
        """The kernel 1[a = b] / (n_a + added_rows)^power, n_a being the rows of a level; pooled values are equal."""
        scale = (at_least(self.counts, 1.0) + added_rows) ** (-power / 2.0)
        identity = asarray_like(np.eye(self.counts.shape[1]), self.counts)
        return centred(identity * scale[:, None, :], self.counts)

    def at_points(self, values: Array) -> Array:
        """(b, m, G) values (b, m, g) of the levels at the points."""
        xp, (b, m, size) = namespace(values), values.shape
        index = self.places + xp.arange(b, device=values.device)[:, None] * size
        rows = xp.take(xp.reshape(xp.matrix_transpose(values), (b * size, m)), xp.reshape(index, (-1,)), axis=0)
        return xp.matrix_transpose(xp.reshape(rows, (b, -1, m)))


def group_views(
    kinds: Sequence[KernelView], grid: Grid, counts: Array, features: np.ndarray, rows: np.ndarray
) -> list[View] | list[GroupView]:
    """The views of one group of columns, each row of which is a point, with landmarks among some rows."""
    values = grid.points
    if not isinstance(values, np.ndarray) or bool((counts != 1).any()):
        return [kind.view(grid, counts, features, rows) for kind in kinds]
    landmarks, lower, sample = [], [], values[rows].astype(np.float64)
    for kind in kinds:
        own = kind.kernels.select(features)
        triangle, pivots = _pivoted_rows(sample, own)
        landmarks.append(Landmarks(own, sample[pivots]))
        lower.append(triangle[:, pivots].T)
    return views_of_rows(values, landmarks, lower, [0.5 if kind.flat else 1.0 for kind in kinds])


def _pivoted_rows(sample: np.ndarray, kernels: FeatureKernels) -> tuple[np.ndarray, np.ndarray]:
    """`pivoted` of one feature whose points are rows with equal weights: a triangle (m, rows) and pivots (m,)."""
    size = len(sample)
    gram = np.empty((size, size))
    for part in slices(0, size, _TOGETHER):
        gram[part] = kernels.matched(sample[part, None, :], sample[None, :, :])[..., 0]
    residual = gram.diagonal().copy()
    enough = TOLERANCE * residual.sum() / size
    preference = 1.0 - _TILT * np.arange(size)
    rows, pivots = np.zeros((min(_GROUP_RANK, size), size)), np.zeros(size, dtype=np.intp)
    count = 0
    while count < len(rows):
        gain = residual * preference
        pivot = int(gain.argmax())
        if not gain[pivot] > enough:
            break
        column = (gram[pivot] - rows[:count, pivot] @ rows[:count]) / np.sqrt(residual[pivot])
        residual -= column * column
        residual[pivot] = 0.0
        rows[count], pivots[count] = column, pivot
        count += 1
    return rows[: max(count, 1)], pivots[: max(count, 1)]


def _group_factor(values: Array, kernels: FeatureKernels, rows: np.ndarray) -> Array:
    """(1, m, n): the Nyström factor from landmarks among some rows."""
    xp = namespace(values)
    sample = take(values, rows, 0)
    ones = xp.ones((1, len(rows)), dtype=accumulator_dtype(values), device=values.device)
    triangle, pivots = pivoted(sample, kernels, ones, _GROUP_RANK)
    landmarks = xp.take(sample, pivots[0, :], axis=0)
    # Rows at the pivots are the transposed Cholesky triangle: K(landmarks) = L L', and F = L^-1 K(landmarks, rows).
    lower = xp.matrix_transpose(xp.take(triangle[0, ...], pivots[0, :], axis=1))
    between = [xp.matrix_transpose(kernels.matched(values, landmarks[t, :])) for t in range(landmarks.shape[0])]
    gram = xp.astype(xp.concat(between, axis=0), ones.dtype)
    if not bool(xp.any(lower != 0)):
        return gram[None, ...] * 0.0
    return xp.linalg.solve(lower, gram)[None, ...]


def row_sums(values: Array) -> Array:
    """(b, 1) sums of values (b, G)."""
    return namespace(values).sum(values, axis=1, keepdims=True)


def centred(factor: Array, counts: Array, power: float = 1.0, most: int | None = None) -> View:
    """The factor centred over the rows, with orthogonal directions, at most `most` of them.

    The eigenvalues are raised to `power`.
    """
    xp = namespace(factor)
    n = xp.sum(counts, axis=1)[:, None, None]
    mean = factor @ counts[:, :, None] / n
    factor = factor - mean
    # A product with its own transpose takes half the time of another.
    alone = isinstance(counts, np.ndarray) and bool((counts == 1).all())
    gram = (factor if alone else factor * counts[:, None, :]) @ xp.matrix_transpose(factor)
    # The centred factor of a constant feature is rounding error, which must not be scaled up later.
    varies = xp.linalg.trace(gram) > 1e-24 * xp.sum(n * mean**2, axis=(1, 2))
    gram = xp.where(varies[:, None, None], gram, 0.0)
    values, vectors = xp.linalg.eigh(gram)
    values, vectors = xp.flip(values, axis=1), xp.flip(vectors, axis=2)
    keep = (values > NEGLIGIBLE * values[:, :1]) & (values > 0)
    deepest = min(max(int(xp.max(xp.sum(xp.astype(keep, xp.int64), axis=1))), 1), most or keep.shape[1])
    sizes = xp.where(keep, values, 0.0)[:, :deepest]
    return View(xp.matrix_transpose(vectors[:, :, :deepest]) @ factor, sizes).raised(power)
