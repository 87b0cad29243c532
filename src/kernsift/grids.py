"""A column as few values: the points that stand for its rows, and how many rows each point stands for.

What a kernel test knows about a feature by itself depends on its values and their counts alone. So each column is
rounded to at most 96 of its own order statistics, densest in the tails, and from then on costs the same for a
thousand rows as for a billion. A column with fewer different values is left as it is. The points depend on the pooled
feature values and never on the response, so every permutation test stays valid: it is a test of the rounded feature.

A group of columns has no order to round by: each of its rows stands for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from kernsift.arrays import Array, beside, most_at_once, namespace, on_host, search, sorted_columns, wide
from kernsift.kernels import columns_of
from kernsift.tables import InputError, Table

POINTS = 96
"""Values that stand for a column."""
# Up to this many rows the points are order statistics of them all, so that the order of rows does not matter; of longer
# tables a random part is sorted.
_SORTED, _SORTED_PART = 2**14, 2**12
# Features in one block: so few that their factors stay near the processor, and so many that calls are few; a device
# wants as many as its memory holds, here counted in numbers.
_BLOCK, _DEVICE_NUMBERS = 64, 2**29
# What a feature takes while a table on disk is read: its rows that are sorted, its counts, its codes. Tables on disk
# are read in as few passes as their memory allows.
_BYTES = 2**16
# What a row of a feature takes where rows stand for themselves: 256 directions, and some of them twice; and where a
# number is looked up for each row.
_ROW_BYTES, _LOOKED_UP = 2**12, 2**6


class Grid(NamedTuple):
    """The points of b features.

    Attributes
    ----------
    points : (G, columns of the features) values; a single column's are increasing, the last one repeated to fill up.
    edges : (b, G - 1) where one point ends and the next begins; None for a group, each of whose rows is a point.
    """

    points: Array
    edges: Array | None

    def part(self, features: slice) -> Grid:
        """Some of the features, each of one column; a group is alone in its block."""
        return self if self.edges is None else Grid(self.points[:, features], self.edges[features, :])

    def codes(self, values: Array) -> Array | None:
        """(b, rows) the point of each row of `values` (rows, b); None for a group."""
        return None if self.edges is None else search(self.edges, namespace(values).matrix_transpose(values))


def feature_blocks(table: Table, rounded: bool = True, every_row: bool = False) -> Iterator[np.ndarray]:
    """The features cut into blocks that are worked on in one go: single columns together, the others one by one.

    Columns are one by one, too, where they are not `rounded`. `every_row` tells that the codes of all rows are kept.
    """
    widths = np.diff(table.offsets)
    many = np.array([len(table.levels.get(name, ())) > POINTS for name in table.names]) if table.levels else False
    alone = (widths > 1) | many | (not rounded)
    single = np.flatnonzero(~alone)
    step = _BLOCK
    if not on_host(table.like):
        step = int(np.clip(_DEVICE_NUMBERS // table.n, _BLOCK, 8192))
    elif table.memory is not None:
        each = _BYTES + (table.n if every_row else 0)
        step = int(np.clip(table.memory // (8 * each), 1, 64 * _BLOCK))
        itself = bool((widths > 1).any()) or not rounded
        if (itself and _ROW_BYTES * table.n > table.memory) or (every_row and 8 * each > table.memory):
            _refuse(table, itself)
    if len(single):
        yield from np.array_split(single, -(-len(single) // step))
    for one in np.flatnonzero(alone):
        yield np.array([one])


def _refuse(table: Table, itself: bool) -> None:
    what = "a feature whose rows stand for themselves, as those of groups do," if itself else "the codes of all rows"
    needed = (_ROW_BYTES if itself else 8) * table.n
    raise InputError(
        f"memory: {what} of {table.n:,} rows need {needed / 1e6:,.0f} MB, but {(table.memory or 0) / 1e6:,.0f} MB may "
        f"be used; allow more, or use estimator={'incomplete' if itself else 'complete'!r}."
    )


def blocks_at_once(table: Table) -> int | None:
    """How many blocks may be worked on at the same time; from a file one, whose pieces are then spread over threads."""
    return most_at_once(table.like) if table.memory is None else 1


def parts_of(features: np.ndarray, like: Array, rows: int = 0, memory: int | None = None) -> list[slice]:
    """A block that was read in one go, cut into parts that are worked on in one go.

    `rows` are those whose numbers are looked up for every feature, all at once.
    """
    step = _BLOCK if on_host(like) else len(features)
    if memory is not None and rows:
        step = int(np.clip(memory // (4 * _LOOKED_UP * rows), 1, step))
    return [slice(start, min(start + step, len(features))) for start in range(0, len(features), step)]


def rows_to_sort(n: int, rng: np.random.Generator) -> np.ndarray | None:
    """The rows whose order statistics become points; None for all of them."""
    return None if n <= _SORTED else np.sort(rng.choice(n, _SORTED_PART, replace=False))


def fit_grid(
    table: Table, features: np.ndarray, rows: np.ndarray | None, points: int = POINTS, rounded: bool = True
) -> Grid:
    """Points for a block of features; `rows` as from `rows_to_sort`.

    Not `rounded`, every value is a point: a kernel that only knows equality must not see neighbours as equal.
    """
    columns = columns_of(table.offsets, features)
    if len(columns) > len(features):
        return Grid(table.part(columns), None)
    levels = len(table.levels.get(table.names[features[0]], ())) if len(features) == 1 else 0
    if levels > points:
        # Codes of categories are no order: rounding would make one level of two.
        chosen = beside(np.arange(levels, dtype=float)[None, :], table.like)
    else:
        chosen = _representatives(table.part(columns, rows if rounded else None), points if rounded else table.n)
    return Grid(namespace(chosen).matrix_transpose(chosen), (chosen[:, 1:] + chosen[:, :-1]) / 2)


def _representatives(values: Array, most: int) -> Array:
    """(b, G) increasing values of each column of `values` (rows, b): all that differ, or `most` order statistics."""
    xp = namespace(values)
    ordered = sorted_columns(values)
    n = ordered.shape[1]
    if n <= min(most, POINTS):
        return xp.astype(ordered, wide(values))
    first = ordered[:, 1:] != ordered[:, :-1]
    different = xp.sum(xp.astype(first, xp.int64), axis=1) + 1
    few = different <= most
    points = ordered if n <= most else xp.take(ordered, beside(_places(n, most), values), axis=1)
    if bool(xp.any(few)):
        # The values that differ, in order, and then the largest again and again.
        which = xp.nonzero(few)[0]
        part = xp.take(ordered, which, axis=0)
        repeated = ~xp.take(first, which, axis=0)
        tail = xp.where(repeated, xp.broadcast_to(part[:, -1:], repeated.shape), part[:, 1:])
        distinct = xp.sort(xp.concat([part[:, :1], tail], axis=1), axis=1)[:, : min(most, n)]
        position = xp.astype(xp.cumulative_sum(xp.astype(few, xp.int64)), xp.int64) - 1
        points = xp.where(few[:, None], xp.take(distinct, xp.where(few, position, 0 * position), axis=0), points)
        points = points[:, : min(most, int(xp.max(different)))]
    return xp.astype(points, wide(values))


@lru_cache(maxsize=64)
def _places(n: int, most: int) -> np.ndarray:
    """Ranks of the order statistics that are kept: ever denser towards the ends, evenly spaced in between."""
    tail = np.unique(np.geomspace(1, max(n / most, 2), most // 8).round().astype(int)) - 1
    inner = np.linspace(tail[-1], n - 1 - tail[-1], most - 2 * len(tail) + 2)[1:-1].round().astype(int)
    return np.concatenate([tail, inner, n - 1 - tail[::-1]])
