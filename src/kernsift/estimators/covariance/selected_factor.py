"""The factor of each feature under its selected pair of views, expanded to rows on demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.table_parts import run_of
from kernsift.estimators.responses import Response, ResponseView
from kernsift.estimators.statistics import FittedStatistic
from kernsift.execution.arrays import Array, asarray_like, namespace, on_host, take, to_numpy
from kernsift.execution.codes import code_dtype, lookup
from kernsift.kernels.contingency import Tabulation
from kernsift.kernels.fitted import columns_of
from kernsift.kernels.group_views import GroupView
from kernsift.kernels.sparse_columns import SparseCodes

# The most rows that correlations are estimated from.
_ROWS = 2**14
# Trailing directions of a factor with less than this share of tr(K^2) do not count.
_NEGLIGIBLE = 1e-2
# The most directions of a response that cross-covariances are kept for.
_RESPONSE_DIRECTIONS = 16


def rows_to_align(n: int, rng: np.random.Generator) -> np.ndarray | None:
    """The rows that correlations are estimated from; None for all of them."""
    return None if n <= _ROWS else np.sort(rng.choice(n, _ROWS, replace=False))


def leading(sizes: np.ndarray) -> np.ndarray:
    """(..., q) bool: all directions, with these squared norms, but the last that together have under 1% of tr(K^2)."""
    squares = sizes**2
    behind = squares[..., ::-1].cumsum(axis=-1)[..., ::-1]
    return np.asarray(behind > _NEGLIGIBLE * squares.sum(axis=-1, keepdims=True))


def response_directions(view: ResponseView) -> int:
    """The number of leading directions of a view of the response that are used."""
    return int(min(max(leading(view.sizes).sum(), 1), _RESPONSE_DIRECTIONS))


def view_among(name: str, response: Response) -> str:
    """The view of the response of all rows that replaces the view of some rows.

    Some rows may have two values of a response with more. Their kernels are all the same up to a factor.
    """
    return name if name in response.views else next(iter(response.views))


class SelectedFactor(NamedTuple):
    """The factors of features with the same selected pair of views, truncated to their leading directions."""

    features: np.ndarray  # (b,) the features
    factor: Array  # (b, q, G) their factors on their points, in the precision of the table
    codes: Array | None  # (b, rows) the point of each row that is used; None where the points are those rows
    sizes: Array | None  # (b, q) squared norms of the directions over those rows; None if only some rows are used
    cross: Array  # (b, q, p) cross-covariances of the directions with the leading ones of the response, over all rows
    target: str  # the name of the view of the response
    ranks: np.ndarray | None = None  # (b,) numbers of directions, after which factors are 0; None for q
    # (rows,) the rows in which these features are not missing, the factors of the others being 0; None for all.
    present: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        statistic: FittedStatistic,
        target: str,
        features: np.ndarray,
        chosen: np.ndarray,
        known: Tabulation,
        response: Response,
        rows: np.ndarray | None,
        dtype: Any,
    ) -> SelectedFactor:
        """The `chosen` ones of a block of features, from their statistic under a pair of views."""
        view, cross, alike = statistic.view, statistic.cross, statistic.fitted.alike
        xp = namespace(view.sizes)
        counted, which = leading(to_numpy(view.sizes)[chosen]), asarray_like(chosen, view.sizes)
        ranks = np.maximum(counted.sum(axis=1), 1)
        count = int(ranks.max(initial=1))
        # Truncate each feature by itself: the result must not depend on the other features of the block.
        own = xp.astype(asarray_like(counted[:, :count], view.sizes), dtype)
        factor: Any
        if isinstance(view, GroupView):
            factor = view.thinned(rows, count)
        elif alike:
            one = xp.astype(view.factor[:1, :count, :], dtype) * own[:1, :, None]
            factor = xp.broadcast_to(one, (len(chosen), *one.shape[1:]))
        else:
            factor = xp.astype(xp.take(view.factor[:, :count, :], which, axis=0), dtype) * own[:, :, None]
        sizes = xp.astype(xp.take(view.sizes[:, :count], which, axis=0), dtype) * own if rows is None else None
        cross = cross[:, :count, : response_directions(response.views[target])]
        cross = xp.astype(xp.take(cross, which, axis=0), dtype) * own[:, :, None]
        codes = known.codes
        if isinstance(codes, SparseCodes):
            codes = codes[chosen]
        elif codes is not None:
            codes = xp.take(codes, which, axis=0)
            if rows is not None and codes.shape[1] != len(rows):
                codes = take(codes, rows, 1)
        elif rows is not None and not isinstance(view, GroupView):
            factor = take(factor, rows, 2)
        kind = GroupFactor if isinstance(view, GroupView) else cls
        return kind(features[chosen], factor, codes, sizes, cross, target, ranks)

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
            return self._replace(factor=take(factor, index, 2), present=present)
        dtype = code_dtype(xp, points + 1)
        codes = xp.astype(self.codes, dtype, copy=False)
        missing = xp.full((b, 1), points, dtype=dtype, device=factor.device)
        # Rows in which the features are missing have one more code, whose factor is 0.
        codes = xp.concat([codes, missing], axis=1)
        codes = take(codes, np.where(present, index, len(places)), 1)
        return self._replace(factor=factor, codes=codes, present=present)

    def against(self, response: Response, rows: np.ndarray | None) -> SelectedFactor:
        """The same with the response of all rows, whose directions may differ from those of some.

        `rows` of it are those of the factor, None for all.
        """
        xp, target = namespace(self.factor), view_among(self.target, response)
        view, share = response.views[target], 1.0 if rows is None else response.n / len(rows)
        values = xp.astype(response.at(rows, view, response_directions(view)), self.factor.dtype)
        turned, q = xp.matrix_transpose(values), self.cross.shape[1]
        found = [self.rows(slice(j, j + 1)).padded(q) @ turned for j in range(len(self.features))]
        return self._replace(cross=xp.concat(found, axis=0) * share, target=target)

    def take(self, places: np.ndarray) -> SelectedFactor:
        """The features at these places."""

        def some(part: Any) -> Any:
            return part[places] if isinstance(part, SparseCodes) else take(part, places, axis=0)

        names = ("features", "factor", "codes", "sizes", "cross", "ranks")
        return self._replace(**{name: some(part) for name in names if (part := getattr(self, name)) is not None})

    def rows(self, chosen: slice | np.ndarray, dtype: Any = None, *, packed: bool = False) -> FactorRows:
        """Some of the features, row by row, in another precision where one is given.

        Directions that are 0 are left out where that saves work: on the host, and with `packed` on a device.
        """
        whole = self.factor
        xp, targets = namespace(whole), np.full(len(self.features[chosen]), self.target)
        q = int(whole.shape[1])
        ranks = np.full(len(targets), q)
        if self.ranks is not None and (packed or on_host(whole)):
            ranks = self.ranks[chosen]
        # Of features with the same factor one is enough.
        same = self.codes is not None and isinstance(whole, np.ndarray) and whole.strides[0] == 0
        factor = whole[:1] if same else take(whole, chosen, axis=0)
        if dtype is not None:
            factor = xp.astype(factor, dtype, copy=False)
        codes = self.codes
        if codes is not None:
            codes = np.asarray(codes[chosen]) if isinstance(codes, SparseCodes) else take(codes, chosen, axis=0)
        directions = _directions(factor, codes, ranks)
        norms: tuple[Array, Array] | None = None
        if self.sizes is not None:
            sizes = take(self.sizes, chosen, axis=0)
            norms = xp.sum(sizes, axis=1), xp.sum(sizes * sizes, axis=1)
        present: Array | None = None
        if self.present is not None:
            present = xp.astype(asarray_like(self.present, directions), directions.dtype)
            present = xp.broadcast_to(present, (len(ranks), directions.shape[1]))
            if norms is None:
                mean = xp.sum(directions, axis=1, keepdims=True) / max(int(self.present.sum()), 1)
                directions = xp.where(asarray_like(self.present, directions), directions - mean, 0.0)
        elif norms is None:
            directions = directions - xp.mean(directions, axis=1, keepdims=True)
        return FactorRows(directions, ranks, *(norms or norms_of(directions, ranks)), targets, present)


class GroupFactor(SelectedFactor):
    """The factor of a group of columns, which is computed at each use: it is larger than the group."""

    @property
    def factor(self) -> Array:
        stored: Any = self[1]
        return stored().astype(self.cross.dtype, copy=False) if callable(stored) else stored


def _directions(factor: Array, codes: Array | None, ranks: np.ndarray) -> Array:
    """(directions, rows): the first `ranks` (b,) directions of factors (b, q, points) or of one, at codes (b, rows)."""
    b, q = len(ranks), int(factor.shape[1])
    if codes is not None:
        factor = lookup(factor, codes)
    flat = namespace(factor).reshape(factor, (b * q, factor.shape[2]))
    return take(flat, np.flatnonzero(np.arange(q) < ranks[:, None]), 0) if (ranks < q).any() else flat


def norms_of(directions: Array, ranks: np.ndarray) -> tuple[Array, Array]:
    """(b,) traces of the Gram matrices and of their squares."""
    xp, factor = namespace(directions), _padded(directions, ranks, int(ranks.max()))
    gram = factor @ xp.matrix_transpose(factor)
    return xp.linalg.trace(gram), xp.sum(gram * gram, axis=(1, 2))


def _padded(directions: Array, ranks: np.ndarray, q: int) -> Array:
    """(b, q, rows): directions (directions, rows) by feature, padded with zeros to q of them."""
    xp, b = namespace(directions), len(ranks)
    if (ranks < q).any():
        index = np.full(b * q, directions.shape[0])
        index[np.flatnonzero(np.arange(q) < ranks[:, None])] = np.arange(directions.shape[0])
        directions = take(xp.concat([directions, xp.zeros_like(directions[:1, :])], axis=0), index, 0)
    return xp.reshape(directions, (b, q, directions.shape[1]))


class FactorRows(NamedTuple):
    """Factors row by row."""

    directions: Array  # (directions, rows) those of the first feature, of the second, and so on
    ranks: np.ndarray  # (b,) numbers of directions of the features
    trace: Array  # (b,) of the Gram matrices K
    square: Array  # (b,) the traces of K^2
    targets: np.ndarray  # (b,) names of the views of the response
    present: Array | None = None  # (b, rows) 0 for the rows in which a feature is missing, else 1; None for all 1

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.directions.shape[1])

    @property
    def factor(self) -> Array:
        """(b, q, rows) the factors, padded with zeros."""
        return self.padded(int(self.ranks.max()))

    def padded(self, q: int) -> Array:
        """(b, q, rows) the factors, padded with zeros to q directions."""
        return _padded(self.directions, self.ranks, q)

    def sums(self, values: Array, axis: int) -> Array:
        """Sums of an array (n, directions) or, with axis 0, (directions, n) over the directions of each feature."""
        xp, b = namespace(values), len(self.ranks)
        if axis == 0 and (self.ranks == self.ranks[0]).all():
            return xp.sum(xp.reshape(values, (b, int(self.ranks[0]), -1)), axis=1)
        if isinstance(values, np.ndarray):
            return np.add.reduceat(values, np.cumsum(self.ranks) - self.ranks, axis=axis)
        indicator = asarray_like(np.eye(b)[np.repeat(np.arange(b), self.ranks)], values)
        indicator = xp.astype(indicator, values.dtype)
        return values @ indicator if axis else xp.matrix_transpose(indicator) @ values

    @property
    def counts(self) -> Array | int:
        """(b,) numbers of rows in which each feature is not missing, or one number for all."""
        return self.n if self.present is None else namespace(self.directions).sum(self.present, axis=1)

    def take(self, places: np.ndarray) -> FactorRows:
        """The features at these places."""
        index = columns_of(np.concatenate([[0], np.cumsum(self.ranks)]), places)
        rest: list[Any] = [None if part is None else take(part, places, 0) for part in self[1:]]
        return FactorRows(take(self.directions, index, 0), *rest)

    def rest(self) -> Array:
        """(b, rows) diagonals of the Gram matrices, after their trace is removed."""
        mean = self.trace / self.counts
        return self.sums(self.directions * self.directions, 0) - self.all_present() * mean[:, None]

    def all_present(self) -> Array:
        """(b, rows) `present`, or ones where that is None."""
        if self.present is not None:
            return self.present
        own = self.directions
        return namespace(own).ones((len(self.ranks), self.n), dtype=own.dtype, device=own.device)

    def shared_rows(self, other: FactorRows) -> Array:
        """(b, k) numbers of rows in which neither feature of a pair is missing."""
        if self.present is None and other.present is None:
            return self.n
        return self.all_present() @ namespace(self.directions).matrix_transpose(other.all_present())


def joined(parts: Sequence[FactorRows]) -> FactorRows:
    """The features of several parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if any(part.present is not None for part in parts):
        parts = [part._replace(present=part.all_present()) for part in parts]
    fields = zip(*parts, strict=True)
    whole: list[Any] = [None if each[0] is None else namespace(each[0]).concat(each, axis=0) for each in fields]
    return FactorRows(*whole)


def places_of(factors: Sequence[SelectedFactor], features: np.ndarray) -> np.ndarray:
    """The places of the named features among those of all factors."""
    known = np.concatenate([factor.features for factor in factors])
    order = np.argsort(known)
    return order[np.searchsorted(known, features, sorter=order)]


def gathered(factors: Sequence[SelectedFactor], features: np.ndarray) -> FactorRows:
    """The named features, in their order."""
    where = places_of(factors, features)
    chosen, ends = np.sort(where), np.cumsum([len(factor.features) for factor in factors])
    cuts = np.searchsorted(chosen, ends).tolist()
    parts = [
        factor.rows(run_of(chosen[low:high] - (end - len(factor.features))), packed=True)
        for factor, end, low, high in zip(factors, ends, [0, *cuts], cuts, strict=False)
        if high > low
    ]
    found = joined(parts)
    return found if (where[1:] > where[:-1]).all() else found.take(np.searchsorted(chosen, where))
