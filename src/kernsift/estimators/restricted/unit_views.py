"""Views of units and of rows in small strata, made of the views of rows in `kernsift.estimators.views`.

A unit has the mean embedding of its rows: the mean of a kernel's factor over them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kernsift.data.rows.exchangeability import Exchangeability
from kernsift.data.tables import Table
from kernsift.estimators.pairs import Pair
from kernsift.estimators.restricted.strata import ROUNDING, Strata
from kernsift.execution.arrays import Array, asarray_like, at_least, in_double, namespace, take, to_numpy
from kernsift.execution.codes import lookup
from kernsift.kernels.contingency import Tabulation

ALIGNED = "aligned "
"""Views of values less the locations of their strata have this prefix."""
SMALL_STRATA = (
    Pair("aligned location", "plain", 0.64),
    Pair("scale", "plain", 0.23),
    Pair("shape", "plain", 0.13),
)
"""Pairs of views for pairs and other small strata.

Differences d within pairs show a change of location. A change of spread shows in the correlation of d with the sum s of
a pair (Pitman 1939, Morgan 1939), which is the scale view less the means of pairs: x^2 - y^2 = s d. A change of shape
shows in both (see `_shape`). The shares have the smallest largest regret against the best single view, over changes of
location, spread, shape and tails with 25 to 100 pairs, of those within 0.08 of the paired t-test for a shift.
"""
UNITS = (
    Pair("smooth", "plain", 0.5),
    Pair("unit moments", "plain", 0.3),
    Pair("narrow", "plain", 0.2),
)
"""Pairs of views for units.

In "unit moments" location and spread count alike as units vary in them, and not as rows do: donors whose levels differ
much may have spreads that differ little.
"""
# Units are counted point by point where they have at least this many rows on average; else row by row.
_ROWS_PER_UNIT = 4
# What views are made of.
_SOURCES = {
    "aligned location": ("aligned smooth",),
    "shape": ("smooth", "aligned smooth"),
    "unit moments": ("moments",),
}


def sources_of(names: Iterable[str]) -> list[str]:
    """The views of rows that the named views are made of.

    Examples
    --------
    >>> sources_of(["narrow", "aligned location", "shape"])
    ['narrow', 'aligned smooth', 'smooth']
    """
    return list(dict.fromkeys(source for name in names for source in _SOURCES.get(name, (name,))))


def centred_views(names: Iterable[str], factors: dict[str, Array], strata: Strata, ordered: bool) -> dict[str, Array]:
    """Factors (b, m, N) of the named views, less the means of strata, from those of their sources.

    Directions of categories and of groups of columns are not `ordered` by degree; there a view is its first source. A
    single stratum is centred where it is needed.
    """
    centred = factors
    if len(strata.sizes) > 1:
        centred = {name: strata.centred(to_numpy(factor)) for name, factor in factors.items()}
    found: dict[str, Array] = {}
    for name in names:
        own = [centred[source] for source in _SOURCES.get(name, (name,))]
        found[name] = own[0]
        if ordered and name == "aligned location":
            found[name] = own[0][:, :1, :]
        elif ordered and name == "unit moments" and own[0].shape[1] > 1:
            found[name] = _whitened(own[0])
        elif ordered and name == "shape" and min(part.shape[1] for part in own) > 2:
            found[name] = _shape(strata, to_numpy(factors["smooth"])[:, 0, :], own[0], own[1])
    return found


def _whitened(factor: Array) -> Array:
    """A factor (b, m, N) with directions that are orthogonal and of length 1; those that do not vary are 0."""
    xp = namespace(factor)
    values, vectors = xp.linalg.eigh(factor @ xp.matrix_transpose(factor))
    kept = values > 1e-9 * at_least(values[:, -1:], 1e-300)
    scale = xp.where(kept, 1.0 / xp.sqrt(xp.where(kept, values, 1.0)), 0.0)
    return xp.matrix_transpose(vectors * scale[:, None, :]) @ factor


def _shape(strata: Strata, scores: np.ndarray, smooth: np.ndarray, aligned: np.ndarray) -> np.ndarray:
    """(b, m, N) a view of shape, from normal scores (b, N) and centred smooth views of values and of aligned values.

    Let d and s be the standardised difference and sum of a pair of normal values with correlation r. Another third
    cumulant of one of them gives He_3(d) / sqrt(6) and d He_2(s) / sqrt(2) means in the ratio of 1 to sqrt(3) q, with
    q = (1 - r) / (1 + r), and no other function of third degree that changes its sign with d. So their sum with these
    weights is the direction to test where pairs vary much. Where they do not, q is 1, and the directions of the values
    beyond the second see the same and changes of higher degree. The view has 1 - q of the first and q of the second.
    q is the mean square within strata over that between strata.
    """
    level = strata.sums(scores) / strata.sizes
    level -= (level @ strata.sizes / strata.sizes.sum())[:, None]
    within = ((scores - scores.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) - level**2 @ strata.sizes
    between = (level**2 @ strata.sizes) / max(len(strata.sizes) - 1, 1)
    free = len(strata.order) - len(strata.sizes)
    q = np.clip(within / free / np.where(between > 0, between, 1.0), 0.0, 1.0)[:, None]
    d, cubic, square = aligned[:, 0], aligned[:, 2], np.repeat(level**2, strata.sizes, axis=1)
    squared = d * d
    sign = np.sign(np.einsum("bn,bn,bn->b", cubic, squared, d))[:, None]
    square -= (np.einsum("bn,bn->b", squared, square) / np.maximum(squared.sum(axis=1), 1e-300))[:, None]
    square *= d
    direction = cubic * (sign / _length(cubic)) + square * (np.sqrt(3.0) * q / _length(square))
    out = np.empty((len(d), smooth.shape[1] - 1, smooth.shape[2]))
    np.multiply(direction, np.sqrt(1.0 - q) / _length(direction), out=out[:, 0])
    np.multiply(smooth[:, 2:], (np.sqrt(q) / _length(smooth[:, 2]))[:, :, None], out=out[:, 1:])
    return out


def _length(vectors: np.ndarray) -> np.ndarray:
    """(b, 1) the lengths of vectors (b, N)."""
    return np.maximum(np.sqrt(np.einsum("bn,bn->b", vectors, vectors)), 1e-300)[:, None]


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
    means = in_double(take(found, units, 2) / asarray_like(rows.unit_sizes[units].astype(float), found))
    # Units with the same values differ by rounding errors, which must not be scaled up later.
    xp = namespace(means)
    spread = xp.max(xp.max(means, axis=2) - xp.min(means, axis=2), axis=1)
    varies = spread > ROUNDING * in_double(xp.max(xp.abs(factor), axis=(1, 2)))
    return xp.where(varies[:, None, None], means, 0.0)
