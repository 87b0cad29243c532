"""Strata of exchangeable rows, in an order in which sums and means over strata are taken in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kernsift.data.rows.exchangeability import Exchangeability
from kernsift.estimators.null_laws.permutation_law import moment_matrix
from kernsift.execution.arrays import Array, asarray_like, namespace, slices
from kernsift.execution.codes import code_dtype

NUMBERS = 2**20
"""Numbers of one array with a matrix for each feature and stratum."""
CACHED = 2**17
"""Numbers of such an array where several operations follow each other in the cache."""
ROUNDING = 1e-12
"""What differences within strata or units are of the values at most, where they are rounding errors."""

ROUNDED_VARIANCE = 1e-10
"""A variance below this share of its terms is rounding error: T is the same for every permutation."""


class Strata(NamedTuple):
    """Exchangeable rows, sorted by stratum, and the strata by size.

    Attributes
    ----------
    order : (N,) the rows, stratum after stratum.
    sizes : (S,) rows of the strata, increasing.
    weights : (b, N) those of points where values are not those of rows, with equally many points in each stratum.
    """

    order: np.ndarray
    sizes: np.ndarray
    weights: np.ndarray | None = None

    @classmethod
    def of(cls, codes: np.ndarray) -> Strata:
        """From the stratum (N,) of each row.

        Examples
        --------
        >>> import numpy as np
        >>> strata = Strata.of(np.array([7, 3, 7, 3, 7]))
        >>> strata.order.tolist(), strata.sizes.tolist()
        ([1, 3, 0, 2, 4], [2, 3])
        """
        counts = np.bincount(codes)
        ranks = np.argsort(counts, kind="stable")
        place = np.argsort(ranks).astype(code_dtype(np, len(counts)))  # fewer bits are sorted faster
        return cls(np.argsort(place[codes], kind="stable"), counts[ranks[counts[ranks] > 0]])

    @property
    def lengths(self) -> np.ndarray:
        """(S,) values of each stratum in an array of all values."""
        if self.weights is None:
            return self.sizes
        return np.full(len(self.sizes), self.weights.shape[1] // len(self.sizes))

    @property
    def starts(self) -> np.ndarray:
        return np.cumsum(self.lengths) - self.lengths

    @property
    def of_row(self) -> np.ndarray:
        """(N,) the stratum of each sorted row."""
        return np.repeat(np.arange(len(self.sizes)), self.lengths)

    def runs(self, numbers: int) -> Iterator[tuple[int, int]]:
        """Strata of one size that follow each other, as many at a time as arrays with `numbers` each allow."""
        step = max(1, NUMBERS // max(numbers, 1))
        edges = np.flatnonzero(np.diff(self.lengths)) + 1
        for run in np.split(np.arange(len(self.sizes)), edges):
            for part in slices(int(run[0]), int(run[-1]) + 1, step):
                yield part.start, part.stop

    def part(self, features: slice) -> Strata:
        """The same for some of the features."""
        return self if self.weights is None else self._replace(weights=self.weights[features])

    @property
    def are_pairs(self) -> bool:
        return bool(self.sizes[-1] == 2) and self.weights is None

    def sums(self, values: Array) -> Array:
        """(..., S) sums of values (..., N), or (b, N) of weighted points, over the rows of each stratum."""
        if not isinstance(values, np.ndarray):
            indicator = asarray_like(np.eye(len(self.sizes))[self.of_row], values)
            return values @ namespace(values).astype(indicator, values.dtype)
        if self.are_pairs:
            return np.asarray(values[..., ::2] + values[..., 1::2])
        if self.weights is not None:
            values = values * self.weights
        return np.asarray(np.add.reduceat(values, self.starts, axis=-1))

    def weighted(self, factor: np.ndarray) -> np.ndarray:
        """A factor (b, m, N) times the weights of points."""
        return factor if self.weights is None else factor * self.weights[:, None]

    def centred(self, factor: np.ndarray) -> np.ndarray:
        """A factor (..., m, N) of sorted rows less its mean in each stratum; 0 where it is constant in all strata."""
        if self.are_pairs:
            out, halves = np.empty_like(factor), factor[..., ::2] - factor[..., 1::2]
            halves /= 2.0
            out[..., ::2] = halves
            np.negative(halves, out=out[..., 1::2])
            return out
        out = np.asarray(factor - np.repeat(self.sums(factor) / self.sizes, self.sizes, axis=-1))
        # What is left of constant values is rounding error, which must not be scaled up later.
        size, whole = (np.einsum("...mn,...mn->...", part, part) for part in (out, factor))
        out[size <= 1e-24 * whole] = 0.0
        return out

    def split(self, values: np.ndarray, start: int, stop: int) -> np.ndarray:
        """(..., s, n) values (..., N) of strata of one size."""
        n, first = int(self.lengths[start]), int(self.starts[start])
        part = values[..., first : first + n * (stop - start)]
        return part.reshape(*values.shape[:-1], stop - start, n)

    def moment_matrices(self, order: int) -> np.ndarray:
        """(S, q, q) what `permutation_law.moment_matrix` is for each stratum."""
        sizes, inverse = np.unique(self.sizes, return_inverse=True)
        return np.stack([moment_matrix(order, int(n)) for n in sizes])[inverse]


def informative_strata(rows: Exchangeability) -> Strata:
    """The strata in which the response varies; their order has the units."""
    used = rows.informative
    strata = Strata.of(rows.strata_of_units[used])
    return strata._replace(order=used[strata.order])
