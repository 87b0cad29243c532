"""Order statistics, medians and codes of sparse columns, the same as those of the columns made dense."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kernsift.data.sparse import StoredColumns
from kernsift.data.tables import ranges
from kernsift.execution.arrays import Array
from kernsift.execution.codes import code_dtype


@dataclass(frozen=True)
class SortedSparse:
    """Sorted columns (b, n), in which one 0 represents all."""

    values: np.ndarray  # (b, m) increasing, with infinity behind the last
    sizes: np.ndarray  # (b,) how many of them there are
    zeros: np.ndarray  # (b,) how many rows are 0
    n: int  # rows

    @classmethod
    def of(cls, stored: StoredColumns) -> SortedSparse:
        """The columns sorted.

        >>> import numpy as np
        >>> stored = StoredColumns(np.array([3.0, -1.0, 2.0]), np.array([0, 4, 1]), np.array([0, 2, 3]), 5)
        >>> SortedSparse.of(stored).at(np.arange(5))
        array([[-1.,  0.,  0.,  0.,  3.],
               [ 0.,  0.,  0.,  0.,  2.]])
        """
        counts = stored.counts
        values = np.full((len(counts), int(counts.max(initial=0)) + 1), np.inf, dtype=stored.values.dtype)
        values[np.arange(values.shape[1]) < counts[:, None]] = stored.values
        zeros = stored.n - counts
        some = np.flatnonzero(zeros)
        values[some, counts[some]] = 0.0
        values.sort(axis=1)
        return cls(values, counts + (zeros > 0), zeros, stored.n)

    @cached_property
    def first(self) -> np.ndarray:
        """(b, m) bool: the first of equal values."""
        out = np.isfinite(self.values)
        out[:, 1:] &= self.values[:, 1:] != self.values[:, :-1]
        return out

    @cached_property
    def different(self) -> np.ndarray:
        """(b,) how many values differ."""
        return np.asarray(self.first.sum(axis=1))

    @property
    def largest(self) -> np.ndarray:
        """(b, 1) the largest values."""
        return np.take_along_axis(self.values, self.sizes[:, None] - 1, axis=1)

    @cached_property
    def _negative(self) -> np.ndarray:
        return np.asarray((self.values < 0).sum(axis=1)[:, None])

    def at(self, ranks: np.ndarray) -> np.ndarray:
        """(b, r) the values with these ranks, counted from 0."""
        zeros = self.zeros[:, None]
        behind = np.where(ranks < self._negative + zeros, self._negative, ranks - np.maximum(zeros - 1, 0))
        return np.take_along_axis(self.values, np.where(ranks < self._negative, ranks, behind), axis=1)

    def copies(self, points: np.ndarray) -> np.ndarray:
        """(b, G) how many rows have each of the points."""
        found = zip(self.values, points, strict=True)
        counts = np.stack([np.searchsorted(own, at, "right") - np.searchsorted(own, at) for own, at in found])
        return np.where((points == 0) & (counts > 0), np.maximum(self.zeros, 1)[:, None], counts)


@dataclass(frozen=True)
class SparseCodes:
    """The codes (b, rows) of sparse columns: those of the rows that are not 0, and the code of 0 for all others."""

    stored: StoredColumns  # codes of rows in place of values
    zero: np.ndarray  # (b,) codes of 0

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.zero), self.stored.n

    def __getitem__(self, index: Any) -> SparseCodes:
        """Some of the columns, by the first index."""
        which = np.arange(len(self.zero))[index[0] if isinstance(index, tuple) else index]
        offsets, own = ranges(self.stored.offsets[which], self.stored.offsets[which + 1])
        stored = StoredColumns(self.stored.values[own], self.stored.rows[own], offsets, self.stored.n)
        return SparseCodes(stored, self.zero[which])

    def at(self, rows: np.ndarray) -> SparseCodes:
        """The rows at these different positions, in this order."""
        return SparseCodes(self.stored.within(rows), self.zero)

    def joint_counts(self, points: int, cells: np.ndarray | None, count: int) -> np.ndarray:
        """(b, points, count): joint counts of each column of codes and the `cells` (n,)."""
        b, place = len(self.zero), self._places(points)
        if cells is not None:
            place *= count
            place += cells[self.stored.rows]
        joint = np.bincount(place, minlength=b * points * count).reshape(b, points, count).astype(float)
        return self._with_zeros(
            joint, np.array([self.stored.n]) if cells is None else np.bincount(cells, minlength=count)
        )

    def sums(self, points: int, values: np.ndarray) -> np.ndarray:
        """(b, points, p): sums of `values` (p, n) over the rows of each point."""
        from scipy.sparse import csr_matrix

        ones, shape = np.ones(len(self.stored.rows)), (len(self.zero) * points, self.stored.n)
        found = csr_matrix((ones, (self._places(points), self.stored.rows)), shape=shape) @ values.T
        return self._with_zeros(found.reshape(len(self.zero), points, len(values)), values.sum(axis=1))

    def _places(self, points: int) -> np.ndarray:
        """(m,) the place of each stored row in an array (b, points)."""
        place = np.repeat(np.arange(len(self.zero), dtype=np.int64) * points, self.stored.counts)
        place += self.stored.values
        return place

    def _with_zeros(self, found: np.ndarray, total: np.ndarray) -> np.ndarray:
        """Sums (b, points, p) over stored rows with those of the rows that are 0 added, from the sums (p,) of all."""
        found[np.arange(len(self.zero)), self.zero] += total - found.sum(axis=1)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        out = np.repeat(self.zero[:, None], self.stored.n, axis=1)
        out[np.repeat(np.arange(len(out)), self.stored.counts), self.stored.rows] = self.stored.values
        return out if dtype is None else out.astype(dtype)


def sparse_codes(
    stored: StoredColumns, edges: np.ndarray, cells: np.ndarray | None, count: int, rows: np.ndarray | None
) -> tuple[np.ndarray, SparseCodes]:
    """Counts (b, G, cells) of sparse columns by points and by the cells of a response, and codes of some rows."""
    b, points = edges.shape[0], edges.shape[1] + 1
    edges = edges.astype(stored.values.dtype)
    small = code_dtype(np, points)
    codes, zero = np.empty(len(stored.values), dtype=small), np.empty(b, dtype=small)
    ends = stored.offsets.tolist()
    for column, own in enumerate(edges):
        some = slice(ends[column], ends[column + 1])
        codes[some] = np.searchsorted(own, stored.values[some])
        zero[column] = np.searchsorted(own, 0.0)
    known = SparseCodes(StoredColumns(codes, stored.rows, stored.offsets, stored.n), zero)
    return known.joint_counts(points, cells, count), known if rows is None else known.at(rows)


def sparse_medians(stored: StoredColumns, quantiles: int) -> tuple[np.ndarray, np.ndarray]:
    """Median distance and median of each column; NaN for the distance within a constant column.

    The distances are those between evenly spaced order statistics. Most of these are 0: then only distances above 0
    count, each nonzero one as often as there are zeros.
    """
    ordered, n = SortedSparse.of(stored), stored.n
    count = min(n, quantiles)
    middle = midpoint(*ordered.at(np.array([(n - 1) // 2, n // 2])).T)
    chosen = ordered.at(((np.arange(count) + 0.5) * n / count).astype(np.intp))
    zeros, pairs = (chosen == 0).sum(axis=1), count * (count - 1) // 2
    mostly = zeros * (zeros - 1) // 2 > pairs // 2
    out = np.zeros(len(middle))
    if mostly.any():
        out[mostly] = _positive_distances(chosen[mostly], zeros[mostly])
    rest = np.flatnonzero(~mostly)
    if len(rest) and pairs:
        low, high = np.triu_indices(count, 1)
        gaps = np.sort(chosen[rest][:, high] - chosen[rest][:, low], axis=1)
        out[rest] = midpoint(gaps[:, (pairs - 1) // 2], gaps[:, pairs // 2])
        out[rest] = np.where(out[rest] == 0, _weighted_median(gaps, np.ones(gaps.shape, dtype=int)), out[rest])
    flat = np.flatnonzero(out == 0)
    if len(flat):
        # All order statistics are equal: use the rows that differ from the median, unless the column is constant.
        off = np.abs(ordered.values[flat] - middle[flat, None])
        copies = np.where(ordered.values[flat] == 0, ordered.zeros[flat][:, None], 1)
        out[flat] = _weighted_median(np.where(np.isfinite(off), off, 0.0), copies)
        out[flat[out[flat] == 0]] = np.nan
    return out, middle


def _positive_distances(chosen: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """(b,) the median of distances above 0 between values (b, q), `zeros` (b,) of which are 0; 0 if none is."""
    most = chosen.shape[1] - int(zeros.min())
    if not most:
        return np.zeros(len(chosen))
    order = np.argsort(chosen == 0, axis=1, kind="stable")[:, :most]
    own = np.take_along_axis(chosen, order, axis=1)
    low, high = np.triu_indices(most, 1)
    between = np.where((own[:, low] != 0) & (own[:, high] != 0), own[:, high] - own[:, low], 0.0)
    copies = np.concatenate([np.broadcast_to(zeros[:, None], own.shape), np.ones(between.shape, dtype=int)], axis=1)
    return _weighted_median(np.abs(np.concatenate([own, between], axis=1)), copies)


def _weighted_median(values: np.ndarray, copies: np.ndarray) -> np.ndarray:
    """(b,) the median of the values (b, m) above 0, each counted `copies` times; 0 where there are none."""
    order = np.argsort(values, axis=1, kind="stable")
    values = np.take_along_axis(values, order, axis=1)
    reach = np.cumsum(np.where(values > 0, np.take_along_axis(copies, order, axis=1), 0), axis=1)
    total, last = reach[:, -1:], values.shape[1] - 1
    ends = [(reach <= rank).sum(axis=1, keepdims=True) for rank in ((total - 1) // 2, total // 2)]
    found = midpoint(*(np.take_along_axis(values, np.minimum(end, last), axis=1)[:, 0] for end in ends))
    return np.where(total[:, 0] > 0, found, 0.0)


def midpoint(low: Array, high: Array) -> Array:
    """The mean of the two middle values, in a form that cannot overflow."""
    return 0.5 * low + 0.5 * high
