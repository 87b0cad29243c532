"""Draws of the MMD and HSIC kernels at given rows, in batches of features and draws, on the device of the values.

The rows are drawn beforehand, so that draws can be recomputed and do not depend on the batch size. `Draws` hold rows
and no tables: `Draws.of` computes them for a block of features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from kernsift.data.tables import Table
from kernsift.estimators.feature_blocks import FeatureBlock
from kernsift.estimators.ustatistic import mmd_kernel
from kernsift.execution.arrays import Array, asarray_like, batch_numbers, namespace, on_host, slices
from kernsift.execution.fused import device_mmd_sums, host_hsic, host_mmd
from kernsift.kernels.fitted import FeatureKernels

LEARNING = 2**14
"""Draws that the correlations of scores are estimated from; the scores and their variances use all draws."""
# The three ways to split four rows into two pairs.
_PAIRINGS = (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))


class Draws(ABC):
    """The rows of each draw of a statistic's kernel, for any features."""

    rows: Any

    @property
    def count(self) -> int:
        """The number of draws."""
        return len(self.rows)

    @abstractmethod
    def of(self, block: FeatureBlock, draws: slice) -> Array:
        """(draws, features) some draws of a block whose table is in memory; the caller may overwrite them."""

    @property
    def nbytes(self) -> int:
        """Bytes of the index arrays."""
        return int(self.rows.nbytes)

    def sums(self, block: FeatureBlock, draws: slice, pilot: Array) -> tuple[Array, Array] | None:
        """(p,) sums of deviations from a pilot and of their squares, compiled for a GPU; None elsewhere."""
        return None

    @property
    def kernel_values(self) -> int:
        """The number of kernel values per draw and column."""
        return 1

    @property
    def shared(self) -> bool:
        """Whether all features use the same rows."""
        return True


@dataclass(frozen=True)
class MMDDraws(Draws):
    """h(x, x', y, y') at rows (x, x', y, y'), given as four index arrays (l,)."""

    rows: tuple[np.ndarray, ...]

    @property
    def count(self) -> int:
        return len(self.rows[0])

    @property
    def nbytes(self) -> int:
        return sum(rows.nbytes for rows in self.rows)

    def of(self, block: FeatureBlock, draws: slice) -> Array:
        (X, Y), columns, kernels = block.table.tables, block.columns, block.own_kernels
        some = tuple(rows[draws] for rows in self.rows)
        if isinstance(columns, slice) and kernels.exponents is not None:
            total = self.count * block.all_columns
            h = host_mmd(X.values, Y.values, some, columns, kernels.exponents, total)
            if h is not None:
                return h
        points = [table.part(columns, rows) for table, rows in zip((X, X, Y, Y), some, strict=True)]
        return mmd_kernel(kernels, *points)

    def sums(self, block: FeatureBlock, draws: slice, pilot: Array) -> tuple[Array, Array] | None:
        (X, Y), columns, exponents = block.table.tables, block.columns, block.own_kernels.exponents
        if exponents is None or not self.shared or on_host(X.prototype):
            return None
        rows, numbers = tuple(own[draws] for own in self.rows), self.count * block.all_columns
        return device_mmd_sums(X.part(columns), Y.part(columns), rows, exponents, pilot, numbers)


@dataclass(frozen=True)
class OwnMMDDraws(MMDDraws):
    """The same with separate rows for each feature: index arrays (l, d)."""

    @property
    def shared(self) -> bool:
        return False

    def of(self, block: FeatureBlock, draws: slice) -> Array:
        X, Y = block.table.tables
        kernels = block.own_kernels
        points = [
            own_rows(table.part(block.columns), rows[draws, block.features], np.diff(kernels.offsets))
            for table, rows in zip((X, X, Y, Y), self.rows, strict=True)
        ]
        return mmd_kernel(kernels, *points)


@dataclass(frozen=True)
class HSICDraws(Draws):
    """h at quadruples of rows, an index array (l, 4); `weights` (l, 1) are those of the second and third pairing."""

    rows: np.ndarray
    weights: tuple[Array, Array]

    @classmethod
    def at(cls, rows: np.ndarray, y: Table, response_kernels: FeatureKernels) -> HSICDraws:
        """The draws at these rows, with their weights, which cost as much as the draws of a batch of features."""
        batches = slices(0, len(rows), batch_numbers(y.prototype))
        parts = [_pairing_weights(y, rows[batch], response_kernels) for batch in batches]
        xp = namespace(y.prototype)
        second, third = (xp.concat(part, axis=0)[:, None] for part in zip(*parts, strict=True))
        return cls(rows, (second, third))

    def of(self, block: FeatureBlock, draws: slice) -> Array:
        columns, kernels = block.columns, block.own_kernels
        rows, weights = self.rows[draws], [weight[draws, :] for weight in self.weights]
        if isinstance(columns, slice) and kernels.exponents is not None:
            h = host_hsic(block.table.values, rows, weights, columns, kernels.exponents, self.count * block.all_columns)
            if h is not None:
                return h
        points = [block.table.part(columns, some) for some in rows.T]
        return _hsic_kernel(kernels, points, weights)


@dataclass(frozen=True)
class OwnHSICDraws(Draws):
    """The same with separate quadruples for each feature: an index array (l, d, 4)."""

    rows: np.ndarray
    y: Table
    response_kernels: FeatureKernels

    @property
    def shared(self) -> bool:
        return False

    def of(self, block: FeatureBlock, draws: slice) -> Array:
        kernels, rows = block.own_kernels, self.rows[draws, block.features]
        weights = _pairing_weights(self.y, rows, self.response_kernels)
        values, widths = block.table.part(block.columns), np.diff(kernels.offsets)
        return _hsic_kernel(kernels, [own_rows(values, rows[..., a], widths) for a in range(4)], weights)


def index_type(*tables: Table) -> np.dtype[Any]:
    """The smallest integer type that can index the rows of tables."""
    return np.dtype(np.int32 if max(table.n for table in tables) < 2**31 else np.int64)


def own_rows(values: Array, rows: np.ndarray, widths: np.ndarray) -> Array:
    """Value rows (l, p) in which feature j's columns come from rows[:, j]."""
    return namespace(values).take_along_axis(values, asarray_like(np.repeat(rows, widths, axis=1), values), axis=0)


def _pairing_weights(y: Table, rows: np.ndarray, response_kernels: FeatureKernels) -> list[Array]:
    """Weights of the second and third pairing of each quadruple, from the response; the first has minus their sum.

    h of the paper's section 2 gives the pair ab the weight [4(L_ab + L_uv) - 2(L_au + L_av + L_bu + L_bv)]/24, where u
    and v are the other two rows. That is the same for ab and uv: with P_1, P_2, P_3 the sums of L over the three
    pairings it is [2 P_1 - P_2 - P_3]/12 and so on, and the three weights add up to 0.
    """
    reshape, shape = namespace(y.prototype).reshape, rows.shape[:-1]
    points = [y.part(slice(None), rows[..., a].reshape(-1)) for a in range(4)]
    gram: dict[tuple[int, int], Any] = {
        (a, b): reshape(response_kernels.matched(points[a], points[b]), shape) for a, b in combinations(range(4), 2)
    }
    first, second, third = (gram[one] + gram[other] for one, other in _PAIRINGS)
    return [(2 * second - (first + third)) / 12, (2 * third - (first + second)) / 12]


def _hsic_kernel(kernels: FeatureKernels, points: list[Array], weights: list[Array]) -> Array:
    """h of the quadruples: the weights times the sums of K over the pairings, exactly 0 where all K are equal."""
    first, second, third = (
        kernels.matched(points[a], points[b]) + kernels.matched(points[u], points[v]) for (a, b), (u, v) in _PAIRINGS
    )
    for pairing, weight in zip((second, third), weights, strict=True):
        pairing -= first
        pairing *= namespace(pairing).astype(weight, pairing.dtype, copy=False)
    second += third
    return second
