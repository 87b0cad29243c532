"""The mean embedding of a unit: the mean of a kernel's factor over the rows of the unit."""

from __future__ import annotations

import numpy as np

from kernsift.data.rows.exchangeability import Exchangeability
from kernsift.data.tables import Table
from kernsift.execution.arrays import Array, asarray_like, in_double, take, to_numpy
from kernsift.execution.codes import lookup
from kernsift.kernels.contingency import Tabulation

# Units are counted point by point where there are at least so many rows in each; else row by row.
_ROWS_PER_UNIT = 4


def by_point(rows: Exchangeability, table: Table) -> Array | None:
    """(n,) the units of the rows, by which points are counted; None where rows are taken one by one."""
    if rows.unit is None or table.n < _ROWS_PER_UNIT * rows.units:
        return None
    return asarray_like(rows.unit, table.prototype)


def unit_means(factor: Array, known: Tabulation, rows: Exchangeability, units: np.ndarray) -> Array:
    """(b, m, units) the mean of a factor (b, m, points) over the rows of each of these units."""
    if rows.unit is None:
        factor = take(factor, units, 2) if known.codes is None else lookup(factor, take(known.codes, units, 1))
        return in_double(factor)
    if known.joint is not None:
        found = factor @ known.joint
    else:
        order = np.argsort(rows.unit, kind="stable")
        values = take(factor, order, 2) if known.codes is None else lookup(factor, take(known.codes, order, 1))
        starts = np.searchsorted(rows.unit[order], np.arange(rows.units))
        whole = to_numpy(values)[:, :, : rows.n - rows.left_out]
        found = asarray_like(np.add.reduceat(whole, starts, axis=2), factor)
    return in_double(take(found, units, 2) / asarray_like(rows.unit_sizes[units].astype(float), found))
