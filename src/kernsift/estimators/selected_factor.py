"""The factor of each feature under its selected pair of views, expanded to rows on demand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.table_parts import run_of
from kernsift.estimators.responses import Response, ResponseView
from kernsift.execution.arrays import Array, asarray_like, lookup, namespace, take, to_numpy
from kernsift.kernels.contingency import Tabulation
from kernsift.kernels.group_views import GroupView
from kernsift.kernels.low_rank import View
from kernsift.kernels.sparse_columns import SparseCodes

# The most rows that correlations are estimated from.
_ROWS = 2**14
# Trailing directions of a factor with less than this share of tr(K^2) are dropped from correlations.
_NEGLIGIBLE = 1e-2
# The most directions of a response that cross-covariances are kept for.
_RESPONSE_DIRECTIONS = 16


def rows_to_align(n: int, rng: np.random.Generator) -> np.ndarray | None:
    """The rows that correlations are estimated from; None for all of them."""
    return None if n <= _ROWS else np.sort(rng.choice(n, _ROWS, replace=False))


def response_directions(view: ResponseView) -> int:
    """The number of leading directions of a view of the response that are used."""
    squares = view.sizes**2
    behind = squares[::-1].cumsum()[::-1] > _NEGLIGIBLE * squares.sum()
    return int(min(max(behind.sum(), 1), _RESPONSE_DIRECTIONS))


class SelectedFactor(NamedTuple):
    """The factors of features with the same selected pair of views, truncated to their leading directions.

    Attributes
    ----------
    features : ndarray of shape (b,)
        The features.
    factor : array of shape (b, q, G)
        Their factors on their points, in the precision of the table.
    codes : array of shape (b, rows) or None
        The point of each row that is used; None where the points are those rows.
    sizes : array of shape (b, q) or None
        Squared norms of the directions over those rows; None if only some of all rows are used.
    cross : array of shape (b, q, p)
        Cross-covariances of the directions with the leading ones of the response, over all rows.
    target : str
        The name of the view of the response.
    present : ndarray of bool of shape (rows,) or None
        The rows in which these features are not missing, the factors of the others being 0; None for all.
    """

    features: np.ndarray
    factor: Array
    codes: Array | None
    sizes: Array | None
    cross: Array
    target: str
    present: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        features: np.ndarray,
        chosen: np.ndarray,
        known: Tabulation,
        view: View | GroupView,
        cross: Array,
        target: str,
        response: Response,
        rows: np.ndarray | None,
        dtype: Any,
        alike: bool = False,
    ) -> SelectedFactor:
        """The `chosen` ones of a block of features; `cross` (b, m, p) has all directions of both views.

        `alike` where all features have the same view.
        """
        xp = namespace(view.sizes)
        squares = to_numpy(view.sizes)[chosen] ** 2
        # The sum of squares from each direction on, the largest first.
        behind = squares[:, ::-1].cumsum(axis=1)[:, ::-1] > _NEGLIGIBLE * squares.sum(axis=1, keepdims=True)
        count = max(int(behind.sum(axis=1).max(initial=1)), 1)
        which = asarray_like(chosen, view.sizes)
        # Truncate each feature by itself: the result must not depend on the other features of the block.
        own = xp.astype(asarray_like(behind[:, :count], view.sizes), dtype)
        factor: Any
        if isinstance(view, GroupView):
            factor = partial(view.thinned(rows, count).at, slice(None))
        elif alike:
            one = xp.astype(view.factor[:1, :count, :], dtype) * own[:1, :, None]
            factor = xp.broadcast_to(one, (len(chosen), *one.shape[1:]))
        else:
            factor = xp.astype(xp.take(view.factor[:, :count, :], which, axis=0), dtype) * own[:, :, None]
        sizes = xp.astype(xp.take(view.sizes[:, :count], which, axis=0), dtype) * own if rows is None else None
        cross = cross[:, :count, : response_directions(response.views[target])]
        cross = xp.astype(xp.take(cross, which, axis=0), dtype) * own[:, :, None]
        if isinstance(view, GroupView):
            return GroupFactor(features[chosen], factor, None, sizes, cross, target)
        if known.codes is None:
            if rows is not None:
                factor = xp.take(factor, asarray_like(rows, factor), axis=2)
            return cls(features[chosen], factor, None, sizes, cross, target)
        if isinstance(known.codes, SparseCodes):
            return cls(features[chosen], factor, known.codes[chosen], sizes, cross, target)
        codes = xp.take(known.codes, which, axis=0)
        if rows is not None and codes.shape[1] != len(rows):
            codes = xp.take(codes, asarray_like(rows, codes), axis=1)
        return cls(features[chosen], factor, codes, sizes, cross, target)

    def among(self, places: np.ndarray, rows: int) -> SelectedFactor:
        """The same features among more rows, in which they are missing except at `places`."""
        xp, (b, q, points) = namespace(self.factor), self.factor.shape
        index = np.full(rows, -1)
        index[places] = np.arange(len(places))
        present = index >= 0
        zeros = xp.zeros((b, q, 1), dtype=self.factor.dtype, device=self.factor.device)
        factor = xp.concat([self.factor, zeros], axis=2)
        if self.codes is None:
            index = np.where(present, index, points)
            return self._replace(factor=xp.take(factor, asarray_like(index, factor), axis=2), present=present)
        dtype = xp.uint8 if points < 256 else xp.int16 if points < 2**15 else xp.int32
        codes = xp.astype(self.codes, dtype, copy=False)
        missing = xp.full((b, 1), points, dtype=dtype, device=factor.device)
        # Rows in which the features are missing have one more code, whose factor is 0.
        codes = xp.concat([codes, missing], axis=1)
        index = asarray_like(np.where(present, index, len(places)), codes)
        return self._replace(factor=factor, codes=xp.take(codes, index, axis=1), present=present)

    def take(self, places: np.ndarray) -> SelectedFactor:
        """The features at these places."""
        xp, which = namespace(self.factor), asarray_like(places, self.factor)
        codes = self.codes
        if codes is not None:
            codes = codes[places] if isinstance(codes, SparseCodes) else xp.take(codes, which, axis=0)
        return self._replace(
            features=self.features[places],
            factor=xp.take(self.factor, which, axis=0),
            codes=codes,
            sizes=None if self.sizes is None else xp.take(self.sizes, which, axis=0),
            cross=xp.take(self.cross, which, axis=0),
        )

    def rows(self, chosen: slice | np.ndarray, dtype: Any = None) -> FactorRows:
        """Some of the features, row by row, in another precision where one is given."""
        whole = self.factor
        xp, targets = namespace(whole), np.full(len(self.features[chosen]), self.target)
        # Of features with the same factor one is enough.
        same = self.codes is not None and isinstance(whole, np.ndarray) and whole.strides[0] == 0
        factor = whole[:1] if same else take(whole, chosen, axis=0)
        if dtype is not None:
            factor = xp.astype(factor, dtype, copy=False)
        if self.codes is not None:
            some = self.codes[chosen] if isinstance(self.codes, SparseCodes) else take(self.codes, chosen, axis=0)
            factor = lookup(factor, np.asarray(some) if isinstance(some, SparseCodes) else some)
        if self.sizes is not None:
            sizes = take(self.sizes, chosen, axis=0)
            trace, square = xp.sum(sizes, axis=1), xp.sum(sizes * sizes, axis=1)
            return FactorRows(factor, trace, square, targets, self._present(factor))
        if self.present is None:
            factor = factor - xp.mean(factor, axis=2, keepdims=True)
        else:
            mean = xp.sum(factor, axis=2, keepdims=True) / max(int(self.present.sum()), 1)
            factor = xp.where(asarray_like(self.present, factor), factor - mean, 0.0)
        gram = factor @ xp.matrix_transpose(factor)
        square = xp.sum(gram * gram, axis=(1, 2))
        return FactorRows(factor, xp.linalg.trace(gram), square, targets, self._present(factor))

    def _present(self, factor: Array) -> Array | None:
        if self.present is None:
            return None
        xp, (b, _, rows) = namespace(factor), factor.shape
        return xp.broadcast_to(xp.astype(asarray_like(self.present, factor), factor.dtype), (b, rows))


class GroupFactor(SelectedFactor):
    """The factor of a group of columns, which is computed when it is asked for: it is larger than the group."""

    @property
    def factor(self) -> Array:
        stored: Any = self[1]
        return stored().astype(self.cross.dtype, copy=False) if callable(stored) else stored


class Directions(NamedTuple):
    """The nonzero directions (directions, rows) of several features, and the first one (b,) of each feature."""

    directions: Array
    firsts: np.ndarray

    def sums(self, values: Array, axis: int) -> Array:
        """Sums of an array (n, directions) or, with axis 0, (directions, n) over the directions of each feature."""
        if isinstance(values, np.ndarray):
            return np.add.reduceat(values, self.firsts, axis=axis)
        owner = np.searchsorted(self.firsts, np.arange(values.shape[axis]), side="right") - 1
        indicator = asarray_like(np.eye(len(self.firsts))[owner], values)
        indicator = namespace(values).astype(indicator, values.dtype)
        return values @ indicator if axis else namespace(values).matrix_transpose(indicator) @ values


class FactorRows(NamedTuple):
    """Factors row by row.

    Attributes
    ----------
    factor : array of shape (b, q, rows)
        The factors.
    trace, square : array of shape (b,)
        Traces of the Gram matrices K and of their squares.
    targets : ndarray of shape (b,)
        Names of the views of the response.
    present : array of shape (b, rows) or None
        0 for the rows in which a feature is missing and 1 for the others; None for all 1.
    packed : Directions or None
        The factors without the zeros that features with few directions are padded with.
    """

    factor: Array
    trace: Array
    square: Array
    targets: np.ndarray
    present: Array | None = None
    packed: Directions | None = None

    def without_zeros(self) -> FactorRows:
        """The same with `packed`."""
        xp, (b, q, rows) = namespace(self.factor), self.factor.shape
        flat = xp.reshape(self.factor, (b * q, rows))
        used = to_numpy(xp.any(flat != 0, axis=1)).reshape(b, q).copy()
        used[:, 0] = True
        counts = used.sum(axis=1)
        return self._replace(packed=Directions(take(flat, np.flatnonzero(used), 0), np.cumsum(counts) - counts))

    @property
    def counts(self) -> Array | int:
        """(b,) numbers of rows in which each feature is not missing, or one number for all."""
        return self.factor.shape[2] if self.present is None else namespace(self.factor).sum(self.present, axis=1)

    def take(self, places: np.ndarray) -> FactorRows:
        """The features at these places."""
        xp, which = namespace(self.factor), asarray_like(places, self.factor)
        factor, trace, square = (xp.take(part, which, axis=0) for part in (self.factor, self.trace, self.square))
        present = None if self.present is None else xp.take(self.present, which, axis=0)
        found = FactorRows(factor, trace, square, self.targets[places], present)
        return found if self.packed is None else found.without_zeros()

    def rest(self) -> Array:
        """(b, rows) diagonals of the Gram matrices, after their trace is removed."""
        xp = namespace(self.factor)
        mean = self.trace / self.counts
        return xp.sum(self.factor * self.factor, axis=1) - self.all_present() * mean[:, None]

    def all_present(self) -> Array:
        """(b, rows) `present`, or ones where that is None."""
        if self.present is not None:
            return self.present
        xp, (b, _, rows) = namespace(self.factor), self.factor.shape
        return xp.ones((b, rows), dtype=self.factor.dtype, device=self.factor.device)

    def shared_rows(self, other: FactorRows) -> Array:
        """(b, k) numbers of rows in which neither feature of a pair is missing."""
        if self.present is None and other.present is None:
            return self.factor.shape[2]
        return self.all_present() @ namespace(self.factor).matrix_transpose(other.all_present())


def _filled(factor: Array, directions: int) -> Array:
    xp, (b, q, rows) = namespace(factor), factor.shape
    if q == directions:
        return factor
    return xp.concat([factor, xp.zeros((b, directions - q, rows), dtype=factor.dtype, device=factor.device)], axis=1)


def gathered(factors: Sequence[SelectedFactor], features: np.ndarray) -> FactorRows:
    """The named features, in their order, with directions padded with zeros."""
    known = np.concatenate([factor.features for factor in factors])
    order = np.argsort(known)
    where = order[np.searchsorted(known, features, sorter=order)]
    chosen, ends = np.sort(where), np.cumsum([len(factor.features) for factor in factors])
    cuts = np.searchsorted(chosen, ends).tolist()
    parts = [
        factor.rows(run_of(chosen[low:high] - (end - len(factor.features))))
        for factor, end, low, high in zip(factors, ends, [0, *cuts], cuts, strict=False)
        if high > low
    ]
    xp, most = namespace(parts[0].factor), max(part.factor.shape[1] for part in parts)
    places_of = np.searchsorted(chosen, where)
    order = asarray_like(places_of, parts[0].factor)
    present = None
    if any(part.present is not None for part in parts):
        present = xp.take(xp.concat([part.all_present() for part in parts], axis=0), order, axis=0)
    return FactorRows(
        xp.take(xp.concat([_filled(part.factor, most) for part in parts], axis=0), order, axis=0),
        xp.take(xp.concat([part.trace for part in parts]), order),
        xp.take(xp.concat([part.square for part in parts]), order),
        np.concatenate([part.targets for part in parts])[places_of],
        present,
    )
