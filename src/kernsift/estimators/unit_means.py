"""The mean embedding of a unit: the mean of a kernel's factor over the rows of the unit."""

from __future__ import annotations

import numpy as np

from kernsift.data.exchangeability import Exchangeability
from kernsift.data.tables import Table
from kernsift.execution.arrays import Array, asarray_like, lookup, to_numpy
from kernsift.kernels.contingency import Tabulation

# Units are counted point by point where there are at least so many rows in each; else row by row.
_ROWS_PER_UNIT = 4


def by_point(rows: Exchangeability, table: Table) -> Array | None:
    """(n,) the units of the rows, by which points are counted; None where rows are taken one by one."""
    if rows.unit is None or table.n < _ROWS_PER_UNIT * rows.units:
        return None
    return asarray_like(rows.unit, table.prototype)


def unit_means(factor: Array, known: Tabulation, rows: Exchangeability, units: np.ndarray) -> np.ndarray:
    """(b, m, units) the mean of a factor (b, m, points) over the rows of each of these units."""
    values = to_numpy(factor)
    if rows.unit is None:
        found = values[:, :, units] if known.codes is None else lookup(values, to_numpy(known.codes)[:, units])
        return np.asarray(found, dtype=float)
    if known.joint is not None:
        found = to_numpy(factor @ known.joint)
    else:
        order = np.argsort(rows.unit, kind="stable")
        values = values[:, :, order] if known.codes is None else lookup(values, to_numpy(known.codes)[:, order])
        starts = np.searchsorted(rows.unit[order], np.arange(rows.units))
        found = np.add.reduceat(values[:, :, : rows.n - rows.left_out], starts, axis=2)
    return np.asarray(found[:, :, units] / rows.unit_sizes[units], dtype=float)
