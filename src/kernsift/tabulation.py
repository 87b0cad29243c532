"""One pass over the rows of a table: how often each point of each feature meets each cell of a response.

Counts add up, whatever the size of a chunk and whoever counts it: in memory, from a file piece by piece, or on many
machines, the answer is the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kernsift.arrays import Array, beside, namespace, on_host, tally, wide
from kernsift.grids import Grid
from kernsift.kernels import columns_of
from kernsift.tables import Table

# Values that are looked up in one go: 2^22 codes are 32 MB.
_NUMBERS, _DEVICE_NUMBERS = 2**22, 2**29


class Tabulation(NamedTuple):
    """What all rows of a block of features amount to.

    Attributes
    ----------
    counts : (b, G) how many rows each point stands for.
    joint : (b, G, cells) how many of them fall into each cell; None where there are no cells, or no points but rows.
    codes : (b, rows) the points of the rows that were asked for, in the least type that holds them; None for a group.
    """

    counts: Array
    joint: Array | None
    codes: Array | None

    def part(self, features: slice) -> Tabulation:
        """Some of the features."""
        joint, codes = (None if part is None else part[features, ...] for part in (self.joint, self.codes))
        return Tabulation(self.counts[features, :], joint, codes)


def joined(parts: Sequence[Tabulation]) -> Tabulation:
    """What runs of rows, in their order, amount to together."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    xp = namespace(first.counts)
    counts, joint = first.counts, first.joint
    for part in parts[1:]:
        counts = counts + part.counts
        joint = None if joint is None else joint + part.joint
    return Tabulation(counts, joint, xp.concat([part.codes for part in parts], axis=1))


def tabulate(
    table: Table, features: np.ndarray, grid: Grid, cells: Array | None, count: int, rows: np.ndarray | None
) -> Tabulation:
    """Count the rows of a block of features, by the `cells` (n,) of a response with `count` of them.

    `rows` are those whose codes are kept, in increasing order; None for all.
    """
    xp, n = namespace(grid.points), table.n
    if grid.edges is None:
        return Tabulation(xp.ones((1, n), dtype=wide(grid.points), device=grid.points.device), None, None)
    b, points = len(features), grid.points.shape[0]
    columns = columns_of(table.offsets, features)
    first = xp.arange(b, device=grid.points.device)[:, None] * points
    cell_count = 1 if cells is None else count
    total = None
    small = xp.uint8 if points <= 256 else xp.int32
    kept = []
    for start, stop in table.row_chunks(columns, _NUMBERS if on_host(grid.points) else _DEVICE_NUMBERS):
        codes = grid.codes(table.part(columns, slice(start, stop)))
        place = codes + first
        if cells is not None:
            place = place * count + cells[start:stop]
        found = tally(place, b * points * cell_count)
        total = found if total is None else total + found
        if rows is not None:
            here = rows[np.searchsorted(rows, start) : np.searchsorted(rows, stop)] - start
            codes = xp.take(codes, beside(here, codes), axis=1)
        kept.append(xp.astype(codes, small))
    joint = xp.astype(xp.reshape(total, (b, points, cell_count)), wide(grid.points))
    codes = kept[0] if len(kept) == 1 else xp.concat(kept, axis=1)
    return Tabulation(xp.sum(joint, axis=2), None if cells is None else joint, codes)
