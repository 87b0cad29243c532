"""Quantisation of columns: a few points that represent their rows, with counts.

A kernel test depends on a feature through its values and their counts. Each column is rounded to at most 96 points (384
in a long table), densest in the tails, after which the cost does not depend on the number of rows. A column with fewer
distinct values is unchanged. In a long table the points come from a sample of the rows. A value that is common in the
sample has a point of its own, and between two adjacent such values another point represents the values that the sample
missed: a rare value is never counted as a common one. The points depend on the pooled feature values and never on the
response, so every permutation test stays valid: it is a test of the rounded feature.

Groups of columns are not ordered and cannot be rounded: each of their rows is a point.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from kernsift.data.sparse import SparseTable
from kernsift.data.table_parts import read_part, run_of
from kernsift.data.tables import Table
from kernsift.execution.arrays import (
    Array,
    accumulator_dtype,
    asarray_like,
    namespace,
    sorted_columns,
    take,
    to_numpy,
    transposed,
)
from kernsift.execution.codes import code_dtype, codes_in_order, search, sorted_with_order
from kernsift.kernels.fitted import FeatureKernels, columns_of
from kernsift.kernels.sparse_columns import SortedSparse

POINTS = 96
"""Points of a column with up to 2^13 rows; a longer one has four times as many."""
_LONG = 2**13
# Distance from an edge, in distances between points, up to which a value is in the middle of two points.
_ON_EDGE = 1e-6


class Grid(NamedTuple):
    """The points of b features."""

    # (G, columns of the features) values; those of a single column are increasing, padded with the last one.
    points: Array
    edges: Array | None  # (b, G - 1) boundaries between the points; None for a group, each of whose rows is a point
    missing: bool = False  # whether the last point is NaN, the value of missing cells
    known: np.ndarray | None = None  # (b, rows) the point of each row, where all rows were sorted; else None

    def part(self, features: slice | np.ndarray) -> Grid:
        """Some of the features, each of one column; a group is alone in its block."""
        if self.edges is None:
            return self
        known = None if self.known is None else self.known[features]
        return Grid(self.points[:, features], self.edges[features, :], self.missing, known)

    @classmethod
    def joined(cls, grids: Sequence[Grid]) -> Grid:
        """The points of features without missing values, from those of some of them at a time."""
        size = max(grid.points.shape[0] for grid in grids)
        points = [_widened(grid.points.T, size, grid.points[-1:].T) for grid in grids]
        edges = [_widened(grid.edges, size - 1, np.full((grid.points.shape[1], 1), np.inf)) for grid in grids]
        return cls(np.ascontiguousarray(np.concatenate(points).T), np.concatenate(edges))

    def codes(self, values: Array) -> Array | None:
        """(b, rows) the point of each row of `values` (rows, b); None for a group."""
        if self.edges is None:
            return None
        xp = namespace(values)
        turned = transposed(values)
        codes = search(self.edges, turned, code_dtype(np, self.points.shape[0]))
        return xp.where(xp.isnan(turned), self.points.shape[0] - 1, codes) if self.missing else codes


def fit_grid(
    table: Table,
    features: np.ndarray,
    rows: np.ndarray | None,
    points: int | None = None,
    rounded: bool = True,
    kernels: FeatureKernels | None = None,
) -> Grid:
    """Points for a block of features; `rows` as from `rows_to_sort`.

    If not `rounded`, every distinct value is a point: the equality kernel must not merge neighbouring values. `kernels`
    that are not fitted yet are fitted to the sorted columns.
    """
    columns = columns_of(table.offsets, features)
    if len(columns) > len(features):
        return Grid(table.part(columns if table.memory is not None else run_of(columns)), None)
    points = points or (POINTS if table.n <= _LONG and rows is None else 4 * POINTS)
    if table.incomplete is not None and table.incomplete[columns].any():
        return _with_missing_point(table, features, rows, points, rounded)
    if rows is None and not table.categorical[features].any():
        # Even numbers of rows have even numbers of points, and odd ones odd numbers: of -x they are the same points.
        points -= table.n % 2
    if isinstance(table, SparseTable):
        return _sparse_grid(table, columns, rows, points, rounded)
    levels = len(table.levels.get(table.names[features[0]], ())) if len(features) == 1 else 0
    known = None
    if levels and (rows is None or levels > min(points, POINTS)):
        # Codes of categories are not ordered: rounding would merge levels.
        chosen = asarray_like(np.arange(levels, dtype=float)[None, :], table.prototype)
        if rows is None and table.memory is None and isinstance(chosen, np.ndarray):
            known = transposed(table.part(run_of(columns))).astype(code_dtype(np, levels))
    elif rows is None or not rounded:
        values = table.part(columns if table.memory is not None else run_of(columns))
        in_memory = isinstance(values, np.ndarray) and table.memory is None
        ordered, order = sorted_with_order(values) if in_memory else (sorted_columns(values), None)
        if kernels is not None:
            kernels.learn(features, ordered)
        chosen = _representatives(ordered, points if rounded else table.n)
        chosen, edges = _at_fixed_ranks(chosen, SortedColumns(ordered), points)
        if order is not None:
            regular = table.n > points == chosen.shape[1]
            ends = _rank_ranges(table.n, points)[0] if regular else np.arange(1, edges.shape[1] + 1)
            known = codes_in_order(edges, ordered, order, ends)
        return Grid(namespace(chosen).matrix_transpose(chosen), edges, known=known)
    else:
        ordered = sorted_columns(read_part(table, columns, rows))
        if kernels is not None:
            kernels.learn(features, ordered)
        chosen, edges = _from_sample(_representatives(ordered, points), SortedColumns(ordered), points)
        return Grid(transposed(chosen), edges)
    return Grid(namespace(chosen).matrix_transpose(chosen), (chosen[:, 1:] + chosen[:, :-1]) / 2, known=known)


def _with_missing_point(
    table: Table, features: np.ndarray, rows: np.ndarray | None, points: int, rounded: bool
) -> Grid:
    """Points of features of which some have missing values: those of the present values, and NaN."""
    assert table.incomplete is not None
    some = table.incomplete[table.offsets[:-1][features]]
    grids: dict[int, Grid] = {}
    if not some.all():
        whole = fit_grid(table, features[~some], rows, points, rounded)
        grids |= {int(place): whole.part(slice(i, i + 1)) for i, place in enumerate(np.flatnonzero(~some))}
    for place in np.flatnonzero(some):
        column = table.offsets[features[[place]]]
        for subset in [rows, None] if rows is not None else [None]:
            values = to_numpy(table.part(column, subset))
            values = values[~np.isnan(values)]
            if len(values):
                break
        part = Table(("",), values[:, None] if len(values) else np.zeros((1, 1)), np.arange(2), np.zeros(1, bool), {})
        sample = None if rows is None else np.arange(part.n)
        grids[int(place)] = fit_grid(part, np.array([0]), sample, points, rounded)
    size = max(grid.points.shape[0] for grid in grids.values())
    found, edges = np.full((size + 1, len(features)), np.nan), np.full((len(features), size), np.inf)
    for feature, grid in grids.items():
        own = to_numpy(grid.points)[:, 0]
        found[: len(own), feature], found[len(own) : size, feature] = own, own[-1]
        edges[feature, : len(own) - 1] = to_numpy(grid.edges)[0]
    return Grid(asarray_like(found, table.prototype), asarray_like(edges, table.prototype), missing=True)


def _sparse_grid(table: SparseTable, columns: np.ndarray, rows: np.ndarray | None, points: int, rounded: bool) -> Grid:
    """Points of sparse columns, as of dense ones."""
    ordered = SortedSparse.of(table.stored(columns).within(rows if rounded else None))
    chosen = _sparse_representatives(ordered, points if rounded else table.n)
    if rows is None or not rounded:
        chosen, edges = _at_fixed_ranks(chosen, ordered, points)
    else:
        chosen, edges = _with_gaps(chosen, ordered, points)
    return Grid(np.ascontiguousarray(chosen.T), edges)


class SortedColumns(NamedTuple):
    """Sorted columns (b, n)."""

    values: Array

    @property
    def n(self) -> int:
        """Rows."""
        return int(self.values.shape[1])

    @property
    def largest(self) -> np.ndarray:
        """(b, 1) the largest values."""
        return to_numpy(self.values[:, -1:])

    @property
    def different(self) -> np.ndarray:
        """(b,) numbers of distinct values."""
        xp = namespace(self.values)
        return to_numpy(xp.sum(xp.astype(self.values[:, 1:] > self.values[:, :-1], xp.int64), axis=1) + 1)

    def at(self, ranks: np.ndarray) -> Array:
        """(b, r) the values with these ranks, counted from 0."""
        return take(self.values, ranks, 1)

    def copies(self, points: np.ndarray) -> np.ndarray:
        """(b, G) numbers of rows with the value of each point."""
        if isinstance(self.values, np.ndarray):
            found = zip(self.values, points, strict=True)
            return np.stack([np.searchsorted(own, at, "right") - np.searchsorted(own, at) for own, at in found])
        xp = namespace(self.values)
        at = xp.astype(asarray_like(points, self.values), self.values.dtype)
        above = xp.nextafter(at, xp.full_like(at, xp.inf))
        return to_numpy(search(self.values, above) - search(self.values, at))

    def repeated(self, times: int) -> np.ndarray:
        """(b,) whether any value occurs at least `times` times."""
        xp = namespace(self.values)
        return to_numpy(xp.any(self.values[:, times - 1 :] == self.values[:, : self.n - times + 1], axis=1))

    def take(self, columns: np.ndarray) -> SortedColumns:
        """Some of the columns."""
        return SortedColumns(take(self.values, columns, 0))


def _at_fixed_ranks(chosen: Array, ordered: SortedColumns | SortedSparse, most: int) -> tuple[Array, Array]:
    """Points (b, G) and edges (b, G - 1), from points chosen from sorted columns (b, n).

    Where the points are order statistics at fixed ranks, each represents the rows of fixed ranks around it and is moved
    to the mean of their quartiles. All columns without ties then have the same counts, and so the same views of their
    ranks. Elsewhere a row belongs to the nearest point.
    """
    xp, n = namespace(chosen), ordered.n
    edges = _between(chosen, ordered)
    if n <= most or chosen.shape[1] != most:
        return chosen, edges
    ends, lower, upper = _rank_ranges(n, most)

    def at(ranks: np.ndarray) -> Array:
        return xp.astype(ordered.at(ranks), edges.dtype, copy=False)

    regular = xp.all(chosen == at(_places(n, most)), axis=1)[:, None]
    middle = at(lower) / 2 + at(upper) / 2
    return xp.where(regular, middle, chosen), xp.where(regular, at(ends - 1) / 2 + at(ends) / 2, edges)


def _between(chosen: Array, ordered: SortedColumns | SortedSparse) -> Array:
    """(b, G - 1) edges between points (b, G) of sorted columns, or of samples of these.

    A value in the middle of two points belongs to the one farther from the median: -x has the same points as x, and so
    has a x + b in spite of rounding errors.
    """
    xp, middle = namespace(chosen), ordered.at(np.array([(ordered.n - 1) // 2, ordered.n // 2]))
    middle = to_numpy(middle) if isinstance(chosen, np.ndarray) else middle
    median = xp.sum(xp.astype(middle, chosen.dtype) / 2, axis=1, keepdims=True)
    edges = chosen[:, :-1] / 2 + chosen[:, 1:] / 2
    margin = _ON_EDGE * (chosen[:, 1:] - chosen[:, :-1])
    return xp.where(edges < median, edges + margin, edges - margin)


def _from_sample(chosen: Array, ordered: SortedColumns, most: int) -> tuple[Array, Array]:
    """Points (b, P) and edges (b, P - 1) of long columns, from points (b, G) chosen from a sorted sample (b, rows)."""
    xp = namespace(chosen)
    few = ordered.different <= most
    tied = ~to_numpy(xp.all(chosen[:, 1:] > chosen[:, :-1], axis=1))
    some = np.flatnonzero(few | tied | ordered.repeated(-(-ordered.n // (2 * most))))
    if not len(some):
        return _with_outer_points(chosen, ordered)
    found = _with_gaps(to_numpy(take(chosen, some, 0)), ordered.take(some), most)
    own, upper = (asarray_like(part, chosen) for part in found)
    if len(some) == len(few):
        return own, upper
    points, edges = _with_outer_points(chosen, ordered)
    size = max(points.shape[1], own.shape[1])
    order = np.arange(len(few))
    order[some] = len(few) + np.arange(len(some))
    points, own = (_widened(part, size, part[:, -1:]) for part in (points, own))
    edges, upper = (_widened(part, size - 1, xp.full_like(part[:, -1:], xp.inf)) for part in (edges, upper))
    both = (xp.concat([points, own], axis=0), xp.concat([edges, upper], axis=0))
    return take(both[0], order, 0), take(both[1], order, 0)


def _widened(array: Array, size: int, column: Array) -> Array:
    """An array (b, p) with copies of a column (b, 1) at its end, so that it has `size` columns."""
    more = size - array.shape[1]
    return array if not more else namespace(array).concat([array, *[column] * more], axis=1)


def _with_outer_points(chosen: Array, ordered: SortedColumns) -> tuple[Array, Array]:
    """`_with_gaps` of columns without common values: a point is added below the first point and one above the last."""
    xp = namespace(chosen)
    low, high = chosen[:, :1], chosen[:, -1:]
    away = (high - low) / 4
    middle = _between(chosen, ordered)
    points = xp.concat([low - 2 * away, chosen, high + 2 * away], axis=1)
    return points, xp.concat([low - away, middle, high + away], axis=1)


def _with_gaps(chosen: np.ndarray, ordered: SortedColumns | SortedSparse, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Points (b, P) and edges (b, P - 1) of long columns, from points (b, G) chosen from a sorted sample (b, rows).

    The point of a common value represents this value only. Between two adjacent common values, below the first and
    above the last value, a point represents the rows whose values are not in the sample. Beyond a first or last value
    that is not common, such a point begins a quarter of the range away.
    """
    b, size = chosen.shape
    # Move repeated values to the end, where they become copies of the largest.
    first = np.concatenate([np.ones((b, 1), dtype=bool), chosen[:, 1:] > chosen[:, :-1]], axis=1)
    chosen = np.take_along_axis(chosen, np.argsort(~first, axis=1, kind="stable"), axis=1)
    first = np.arange(size) < first.sum(axis=1)[:, None]
    chosen = np.where(first, chosen, ordered.largest)
    # All points of a column with few values are common; otherwise those with at least half the rows of a point.
    few = ordered.different <= most
    common = first & (few[:, None] | (ordered.copies(chosen) >= ordered.n / (2 * most)))
    last = np.concatenate([first[:, 1:] == 0, np.ones((b, 1), dtype=bool)], axis=1) & first
    following = np.concatenate([common[:, 1:], np.zeros((b, 1), dtype=bool)], axis=1)
    gap = (common & following) | last  # whether there is a point after this one
    step = np.maximum(np.abs(chosen).max(axis=1), 1.0) * 0.5
    spacing = np.where(last, step[:, None], np.concatenate([np.diff(chosen, axis=1), np.zeros((b, 1))], axis=1))
    lowest = np.where(first.sum(axis=1) > 1, chosen[:, min(1, size - 1)] - chosen[:, 0], step)
    away = (chosen[:, -1:] - chosen[:, :1]) / 4
    spacing = np.where(last & ~common, 4 * away, spacing)
    lowest = np.where(common[:, 0], lowest, 2 * away[:, 0])
    # Interleave the point before the first, and each point with the gap after it; unused places move to the end.
    points = np.empty((b, 2 * size + 1))
    points[:, 0], points[:, 1::2], points[:, 2::2] = chosen[:, 0] - lowest, chosen, chosen + spacing / 2
    upper = np.empty((b, 2 * size + 1))  # the largest value that a point represents
    below = np.nextafter(chosen, -np.inf)
    upper[:, 0] = below[:, 0]
    middle = _between(chosen, ordered)
    ends = np.where(common[:, :-1], chosen[:, :-1], np.where(common[:, 1:], below[:, 1:], middle))
    upper[:, 1:-2:2], upper[:, 2:-1:2] = ends, below[:, 1:]
    upper[:, -2], upper[:, -1] = chosen[:, -1], np.inf
    upper[:, 0] -= np.where(common[:, 0], 0.0, away[:, 0])
    upper[:, 1::2] += np.where(last & ~common, away, 0.0)
    used = np.empty((b, 2 * size + 1), dtype=bool)
    used[:, 0], used[:, 1::2], used[:, 2::2] = True, first, gap
    order = np.argsort(~used, axis=1, kind="stable")[:, : int(used.sum(axis=1).max())]
    points, upper, used = (np.take_along_axis(part, order, axis=1) for part in (points, upper, used))
    final = used.sum(axis=1) - 1
    place = np.arange(points.shape[1])
    points = np.where(place <= final[:, None], points, np.take_along_axis(points, final[:, None], axis=1))
    edges = np.where(place < final[:, None], upper, np.inf)[:, :-1]
    return points, edges


def _representatives(ordered: Array, most: int) -> Array:
    """(b, G) increasing values of sorted columns (b, rows): all distinct ones, or `most` order statistics."""
    xp = namespace(ordered)
    n = ordered.shape[1]
    points = ordered if n <= most else take(ordered, _places(n, most), 1)
    tied = xp.any(points[:, 1:] == points[:, :-1], axis=1)
    if n > most and not bool(xp.any(tied)):
        return xp.astype(points, accumulator_dtype(ordered))
    first = ordered[:, 1:] != ordered[:, :-1]
    different = xp.sum(xp.astype(first, xp.int64), axis=1) + 1
    few = different <= most
    if n > most:
        for feature in np.flatnonzero(to_numpy(tied & ~few)):
            values, copies = np.unique(to_numpy(ordered[int(feature), :]), return_counts=True)
            points[int(feature), :] = asarray_like(_spread_values(values, copies, n, most), points)
    if bool(xp.any(few)):
        # The distinct values in order, padded with the largest.
        which = xp.nonzero(few)[0]
        part = xp.take(ordered, which, axis=0)
        repeated = ~xp.take(first, which, axis=0)
        tail = xp.where(repeated, xp.broadcast_to(part[:, -1:], repeated.shape), part[:, 1:])
        distinct = xp.sort(xp.concat([part[:, :1], tail], axis=1), axis=1)[:, : min(most, n)]
        position = xp.astype(xp.cumulative_sum(xp.astype(few, xp.int64)), xp.int64) - 1
        points = xp.where(few[:, None], xp.take(distinct, xp.where(few, position, 0 * position), axis=0), points)
        points = points[:, : min(most, int(xp.max(different)))]
    return xp.astype(points, accumulator_dtype(ordered))


def _spread_values(values: np.ndarray, copies: np.ndarray, n: int, most: int) -> np.ndarray:
    """(most,) distinct values of one column of n rows, in which the counts of very frequent values are capped.

    They are the same for -x. The medians are among them, see `_between`; the largest is repeated at the end.
    """
    medians = np.searchsorted(np.cumsum(copies), [(n - 1) // 2, n // 2], "right")
    reach = np.cumsum(np.minimum(copies, max(n // most, 1)))
    total = int(reach[-1])
    places = np.searchsorted(reach, _places(total, most - 2 - (most - total) % 2), "right")
    found = values[np.unique(np.concatenate([places, medians]))]
    return np.concatenate([found, np.repeat(found[-1:], most - len(found))])


def _sparse_representatives(ordered: SortedSparse, most: int) -> np.ndarray:
    """`_representatives` of sparse columns."""
    first, different = ordered.first, ordered.different
    few = different <= most
    size = min(most, int(different.max()))
    points = np.empty((len(few), size))
    if few.any():
        # The distinct values in order, padded with the largest.
        part = np.where(first[few], ordered.values[few], np.inf)
        part.sort(axis=1)
        part = part[:, :size]
        points[few, : part.shape[1]] = np.where(np.isfinite(part), part, ordered.largest[few])
    many = np.flatnonzero(~few)
    if len(many):
        points[many] = ordered.at(_places(ordered.n, most))[many]
        tied = (points[many, 1:] == points[many, :-1]).any(axis=1)
        for feature in many[tied]:
            where = np.flatnonzero(first[feature])
            values, copies = ordered.values[feature, where], np.diff(where, append=ordered.sizes[feature])
            if ordered.zeros[feature]:
                copies[np.searchsorted(values, 0)] = ordered.zeros[feature]
            points[feature] = _spread_values(values, copies, ordered.n, most)
    return points


@lru_cache(maxsize=4096)
def _rank_ranges(n: int, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ranks between the order statistics of `_places`, the same counted from below and from above.

    Also returns the ranks of the quartiles of the rows between these.
    """
    places = _places(n, most)
    ends = (places[1:] + places[:-1] + 1) // 2
    half = len(ends) // 2
    ends = np.concatenate([ends[: len(ends) - half], n - ends[:half][::-1]])
    starts, stops = np.concatenate([[0], ends]), np.concatenate([ends, [n]])
    quarter = (stops - starts - 1) // 4
    return ends, starts + quarter, stops - 1 - quarter


@lru_cache(maxsize=4096)
def _places(n: int, most: int) -> np.ndarray:
    """Ranks of the order statistics that become points: denser towards the ends, evenly spaced in between.

    They are the same counted from below and from above, where n and `most` are both even or both odd.
    """
    tail = np.unique(np.geomspace(1, max(n / most, 2), most // 8).round().astype(int)) - 1
    inner = np.linspace(tail[-1], n - 1 - tail[-1], most - 2 * len(tail) + 2)[1:-1].round().astype(int)
    half = len(inner) // 2
    inner = np.concatenate([inner[: len(inner) - half], n - 1 - inner[:half][::-1]])
    return np.concatenate([tail, inner, n - 1 - tail[::-1]])
