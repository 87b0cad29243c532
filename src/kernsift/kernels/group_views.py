"""Factors of groups of columns, evaluated for some rows at a time.

Every row of a group is a point of its own, and the factor of all rows would be many times as large as the table. It is
linear in the kernel values of a row x at some landmarks, F(x) = W (k(landmarks, x) - mean), so that W and sums of
products of kernel values are enough; the factor itself is computed for the requested rows.

Sums of products, whose small eigenvalues count, are computed in double precision. Where the factor of every row is
needed for sums over rows, it is computed in single precision, which takes half the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular

from kernsift.execution.arrays import slices
from kernsift.execution.threads import parallel_map
from kernsift.kernels.fitted import FeatureKernels
from kernsift.kernels.functions import Gaussian

# Rows whose kernel values are computed at a time: few enough to stay in the cache; and those that one thread works on,
# over which sums are added in their order, whatever the threads.
_ROWS, _STRIP = 512, 4096
# Rows whose kernel values are kept while they are added to the sums of each feature.
_SUMMED = 2048
# Squared norms, in bandwidths, up to which distances may be computed from inner products without loss.
_FAR = 1e4
# The share of its norms below which a squared distance is computed from differences.
_NEAR = 1e-4
NEGLIGIBLE = 1e-9
"""Eigenvalues of a factor below this share of the largest are rounding error."""

Rows = slice | np.ndarray


class Landmarks:
    """The kernel of a group of columns, the only feature of `kernels`, at the landmarks `points` (m, w)."""

    def __init__(self, kernels: FeatureKernels, points: np.ndarray) -> None:
        self.kernels, self.points = kernels, points
        self._centre = np.median(points, axis=0)
        self._scaled = self._scale(points)
        self._norms = np.einsum("ij,ij->i", self._scaled, self._scaled)
        self._dual = np.vstack([2.0 * self._scaled.T, np.ones(len(points)), -self._norms])

    def at(self, values: np.ndarray) -> np.ndarray:
        """(rows, m) kernel values of rows (rows, w) and the landmarks."""
        kernel = self.kernels.kernel
        if kernel.kind != "distance":
            found = self.kernels.matched(values[:, None, :], self.points[None, :, :])
            return np.asarray(found[..., 0], dtype=np.float64)
        scaled = self._scale(values)
        norms = np.einsum("ij,ij->i", scaled, scaled)
        # Minus squared distances: -|x - y|^2 is the inner product of (x, -|x|^2, 1) and (2 y, 1, -|y|^2).
        squares = np.column_stack([scaled, -norms, np.ones(len(norms))]) @ self._dual
        np.minimum(squares, 0.0, out=squares)
        for place in np.flatnonzero(norms > _FAR):
            squares[place] = -((self._scaled - scaled[place]) ** 2).sum(axis=1)
        for place in np.flatnonzero(self._norms > _FAR):
            squares[:, place] = -((scaled - self._scaled[place]) ** 2).sum(axis=1)
        if isinstance(kernel, Gaussian):
            return np.exp(squares, out=squares)
        np.negative(squares, out=squares)
        # A small square of a distance has a large relative error, and its root an error that counts.
        one, other = np.nonzero(squares < _NEAR * (norms[:, None] + self._norms))
        squares[one, other] = ((scaled[one] - self._scaled[other]) ** 2).sum(axis=1)
        return np.asarray(kernel.profile(np.sqrt(squares, out=squares)))

    def _scale(self, values: np.ndarray) -> np.ndarray:
        # Distances that overflow are far beyond every bandwidth, where they are cut off.
        with np.errstate(over="ignore"):
            found = (values - self._centre) * np.asarray(self.kernels.inverse, dtype=np.float64)
        return np.clip(found, -1e140, 1e140)


@dataclass(frozen=True)
class GroupView:
    """The centred Gram matrix of a group of columns under one kernel, as `View` but with a factor on demand."""

    values: np.ndarray  # (n, w) the rows
    landmarks: Landmarks  # the points at which the kernel is evaluated
    weights: np.ndarray  # (q, m) the directions, in terms of the kernel values
    mean: np.ndarray  # (m,) mean kernel values over all rows, which are subtracted to centre them
    sizes: np.ndarray  # (1, q) as in `View`
    second: np.ndarray  # (M, M) sums of products of centred kernel values at the M landmarks of all views of the group
    place: slice  # the landmarks of this view among those of all views

    @property
    def factor(self) -> np.ndarray:
        """(1, q, n) the factor of all rows."""
        return self.at(slice(None))

    def at(self, rows: Rows, count: int | None = None) -> np.ndarray:
        """(1, q, rows) the factor at some rows, or its first `count` directions."""
        values = self.values[rows]
        weights = self.weights[:count]
        out = np.empty((1, len(weights), len(values)))
        for part in slices(0, len(values), _ROWS):
            out[0, :, part] = weights @ (self.landmarks.at(values[part]) - self.mean).T
        return out

    def of_size_one(self) -> GroupView:
        """The kernel times a power of 2, as `View.of_size_one`."""
        unit = root_unit(self.sizes.max())
        return replace(self, weights=self.weights / unit, sizes=self.sizes / unit**2)

    def thinned(self, rows: np.ndarray | None, count: int) -> Callable[[], np.ndarray]:
        """The factor's first `count` directions at some rows, on demand; the sums over all rows are not kept."""
        values, chosen = self.values, slice(None) if rows is None else rows
        if values.base is None:
            # A copy, whose other rows are not needed; a view of the table takes no memory.
            values, chosen = values[chosen], slice(None)
        weights, nothing = self.weights[:count].copy(), np.empty((0, 0))
        kept = replace(self, values=values, weights=weights, sizes=self.sizes[:, :count], second=nothing)
        return partial(kept.at, chosen)

    def _centred(self, rows: slice) -> np.ndarray:
        """(rows, m) centred kernel values."""
        found = self.landmarks.at(self.values[rows])
        found -= self.mean
        return found

    def inner(self, other: GroupView) -> np.ndarray:
        """(1, q, q') inner products of the directions with those of another view of the group, over all rows."""
        return np.asarray(self.weights @ self.second[self.place, other.place] @ other.weights.T)[None, ...]

    def products(self, targets: Callable[[slice], np.ndarray]) -> np.ndarray:
        """(1, q, p) sums over all rows of the factor times `targets`, a function from rows to (rows, p)."""

        def work(strip: slice) -> Any:
            return sum(self._centred(part).T @ targets(part) for part in slices(strip.start, strip.stop, _ROWS))

        return np.asarray(self.weights @ sum(parallel_map(work, slices(0, len(self.values), _STRIP))))[None, ...]

    def summed(self, codes: np.ndarray, points: int) -> np.ndarray:
        """(b, points, q) sums of the factor over the rows of each point, for b features with `codes` (b, n)."""
        found = np.zeros((len(codes), points, len(self.landmarks.points)))
        kernel = np.empty((min(_SUMMED, len(self.values)), found.shape[2]))
        for strip in slices(0, len(self.values), _SUMMED):
            self._add_sums(found, codes, strip, kernel[: strip.stop - strip.start])
        directions = found[:, :, : len(self.weights)]
        for feature in range(len(codes)):
            directions[feature] = found[feature] @ self.weights.T  # in place: the sums are large
        return directions

    def _add_sums(self, sums: np.ndarray, codes: np.ndarray, rows: slice, kernel: np.ndarray) -> None:
        """Add centred kernel values of some rows to the sums (b, points, m); `kernel` (rows, m) is working space."""
        shape, ones, ends = (sums.shape[1], len(kernel)), np.ones(len(kernel)), np.arange(len(kernel) + 1)

        def fill(part: slice) -> None:
            kernel[part.start - rows.start : part.stop - rows.start] = self._centred(part)

        def add(feature: int) -> None:
            # A product with a matrix of zeros and ones adds whole rows, which is faster than any look-up.
            sums[feature] += sparse.csc_matrix((ones, codes[feature, rows], ends), shape) @ kernel

        for _ in chain(parallel_map(fill, slices(rows.start, rows.stop, _ROWS)), parallel_map(add, range(len(codes)))):
            pass

    def row_sums(self, count: int, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What null moments need of single rows.

        Diagonals (1, n) of the Gram matrix and of its square, the first `count` directions (1, count, n), and the sums
        (1, q) of all directions weighted by the diagonal less `level`.
        """
        n = len(self.values)
        diagonal, square, leading = np.empty((1, n)), np.empty((1, n)), np.empty((1, count, n))
        # Kernels without a bound have values beyond those of single precision. Units of 2^k change no digit.
        kernel, unit = root_unit(np.diagonal(self.second[self.place, self.place]).max()), root_unit(self.sizes.max())
        weights = (self.weights.T * (kernel / unit)).astype(np.float32)
        level, sizes = level / unit**2, (self.sizes[0] / unit**2).astype(np.float32)

        def work(strip: slice) -> np.ndarray:
            along = np.zeros(len(self.weights))
            for part in slices(strip.start, strip.stop, _ROWS):
                values = self._centred(part)
                values /= kernel
                factor = values.astype(np.float32) @ weights
                leading[0, :, part] = factor[:, :count].T
                diagonal[0, part] = np.einsum("ij,ij->i", factor, factor)
                along += (diagonal[0, part] - level).astype(np.float32) @ factor
                factor *= factor
                square[0, part] = factor @ sizes
            return along

        along = np.asarray(sum(parallel_map(work, slices(0, n, _STRIP))))[None, :]
        for part, power in ((diagonal, 2), (square, 4), (leading, 1), (along, 3)):
            part *= unit**power
        return diagonal, square, leading, along


def root_unit(square: Any) -> Any:
    """The powers of 2 next above the roots of numbers, which are at least 0."""
    return np.ldexp(1.0, np.frexp(np.sqrt(square))[1])


def views_of_rows(
    values: np.ndarray, landmarks: Sequence[Landmarks], lower: Sequence[np.ndarray], powers: Sequence[float]
) -> list[GroupView]:
    """Views of a group of columns; the eigenvalues of each are raised to a power.

    `lower` are Cholesky triangles (m, m) of the kernels at the landmarks.
    """
    n, ends = len(values), np.cumsum([0, *(len(one.points) for one in landmarks)])
    # Products of values that are nearly centred lose nothing when the mean is taken out of their sums.
    level = np.concatenate([one.at(values[:_ROWS]).mean(axis=0) for one in landmarks])

    def work(strip: slice) -> tuple[np.ndarray, np.ndarray]:
        first, second = np.zeros(ends[-1]), np.zeros((ends[-1], ends[-1]))
        space = np.empty((_ROWS, ends[-1]))
        for part in slices(strip.start, strip.stop, _ROWS):
            kernel = space[: part.stop - part.start]
            for one, start, stop in zip(landmarks, ends[:-1], ends[1:], strict=True):
                np.subtract(one.at(values[part]), level[start:stop], out=kernel[:, start:stop])
            first += kernel.sum(axis=0)
            second += kernel.T @ kernel
        return first, second

    first, second = np.zeros(ends[-1]), np.zeros((ends[-1], ends[-1]))
    for some, products in parallel_map(work, slices(0, n, _STRIP)):
        first += some
        second += products
    product = np.outer(first, first)
    product /= n
    second -= product
    del product, products
    found = []
    for one, triangle, power, start, stop in zip(landmarks, lower, powers, ends[:-1], ends[1:], strict=True):
        place = slice(int(start), int(stop))
        mean = (level + first / n)[place]
        weights, sizes = _directions(triangle, second[place, place], mean, n, power)
        found.append(GroupView(values, one, weights, mean, sizes[None, :], second, place))
    return found


def _directions(
    lower: np.ndarray, second: np.ndarray, mean: np.ndarray, n: int, power: float
) -> tuple[np.ndarray, np.ndarray]:
    """Orthogonal directions (q, m) in terms of kernel values at landmarks, and their eigenvalues, as of `centred`."""
    if not lower.any():
        return np.zeros((1, len(lower))), np.zeros(1)
    inverse = solve_triangular(lower, np.eye(len(lower)), lower=True)
    gram = inverse @ second @ inverse.T
    # The centred factor of a constant group is rounding error, which must not be scaled up later.
    if not np.trace(gram) > 1e-24 * n * ((inverse @ mean) ** 2).sum():
        return np.zeros((1, len(lower))), np.zeros(1)
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    keep = values > NEGLIGIBLE * values[0]
    values, vectors = values[keep], vectors[:, keep]
    return (vectors * values ** ((power - 1.0) / 2.0)).T @ inverse, values**power
