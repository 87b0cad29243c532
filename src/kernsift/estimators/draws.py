"""Draws of the MMD and HSIC kernels at given rows, a few features and a few draws at a time, on the values' device.

The rows are drawn beforehand, so the same draws can be made again, and no size of a batch changes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any, Self, TypeGuard

import numpy as np

from kernsift.data.table_parts import TablePart, must_be_sent, pack, read_here, to_be_read, unpack_all
from kernsift.data.tables import Table
from kernsift.estimators.scores import LEARNING
from kernsift.estimators.ustatistic import mmd_kernel
from kernsift.exceptions import InputError
from kernsift.execution.arrays import Array, asarray_like, batch_numbers, dtype_of, namespace, on_host
from kernsift.execution.fused import host_hsic, host_mmd
from kernsift.execution.threads import n_threads
from kernsift.kernels.fitted import FeatureKernels, columns_of

# Value columns that are worked on together: a row of them is long enough to be copied at full speed.
_COLUMNS = 2**12
# The share of the memory that blocks of a table on disk and the rows that are drawn may take.
_SHARE = 0.6
# Bytes of a block that is read and worked on at a time: enough to read at full speed; and columns without which a row
# that is gathered would waste most of what comes from memory.
_BLOCK_BYTES, _ROW = 2**27, 16
# Bytes that come from memory together. Rows that begin with such a line and end with one bring nothing else along.
_LINE = 64
# Fewer draws than this for each row are made in a few times what it takes to send the rows, which is more than a
# cluster on the same cores may lose; and 64 MB a message at most.
_WORTH, _MESSAGE = 32, 2**23
# The three ways to split four rows into two pairs.
_PAIRINGS = (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))

Selection = tuple[slice | np.ndarray, FeatureKernels]


@dataclass(frozen=True)
class FeatureDraws:
    """What all draws share: a table, its kernels, and the features in runs."""

    X: Table
    kernels: FeatureKernels
    _chosen: dict[tuple[int, int], Selection] = field(default_factory=dict, init=False, repr=False, compare=False)
    _shelf: BufferPool = field(default_factory=lambda: BufferPool(), init=False, repr=False, compare=False)

    @property
    def count(self) -> int:
        """The number of draws."""
        raise NotImplementedError

    def of(self, features: slice | np.ndarray, draws: slice) -> Array:
        """Some draws of some features, the caller's to write into."""
        raise NotImplementedError

    @property
    def prototype(self) -> Array:
        return self.kernels.inverse

    @property
    def samples(self) -> list[Table]:
        """The tables that have the features."""
        return [table for table in (self.X, getattr(self, "Y", None)) if table is not None]

    @property
    def in_memory(self) -> bool:
        return all(table.memory is None for table in self.samples)

    def loaded(self, features: slice | np.ndarray) -> Self:
        places = np.arange(self.X.d)[features]
        columns = len(columns_of(self.X.offsets, places))
        spaces = self._shelf.spaces([(table.n * columns, dtype_of(table.prototype)) for table in self.samples])
        tables = [table.loaded(places, space) for table, space in zip(self.samples, spaces, strict=True)]
        return self.filled(_Tables(tables, self.kernels.on(places, tables), places))

    @contextmanager
    def reading(self) -> Iterator[None]:
        with ExitStack() as stack:
            for table in self.samples:
                stack.enter_context(table.reading())
            yield

    @property
    def blocks(self) -> list[slice]:
        # A device has room for all of them, unless there are very many.
        most = _COLUMNS if on_host(self.prototype) else 16 * _COLUMNS
        if not self.in_memory:
            most = min(most, columns_that_fit(self.samples, self.design_bytes))
        return _runs(self.X.offsets, most)

    @property
    def design_bytes(self) -> int:
        """Bytes of the index arrays."""
        found = [getattr(self, name, ()) for name in ("rows", "others")]
        return sum(part.nbytes for one in found for part in (one if isinstance(one, tuple) else [np.asarray(one)]))

    def numbers(self, features: slice) -> int:
        return int(self.X.offsets[features.stop] - self.X.offsets[features.start])

    @cached_property
    def total(self) -> int:
        """How many numbers all draws have."""
        return self.count * int(self.X.offsets[-1])

    def one_pass(self, columns: slice | np.ndarray, kernels: FeatureKernels) -> TypeGuard[slice]:
        """Whether there may be a function that needs one pass over memory for all that a draw takes."""
        return isinstance(columns, slice) and kernels.exponents is not None and self.in_memory

    def chosen(self, features: slice | np.ndarray) -> Selection:
        """The value columns of those features, and their kernels."""
        if isinstance(features, np.ndarray):
            return columns_of(self.X.offsets, features), self.kernels.select(features)
        start, stop = features.start, features.stop
        if (start, stop) == (0, self.X.d):
            return slice(None), self.kernels
        if (start, stop) not in self._chosen:
            columns = slice(int(self.X.offsets[start]), int(self.X.offsets[stop]))
            self._chosen[start, stop] = columns, self.kernels.select(np.arange(start, stop))
        return self._chosen[start, stop]

    def worth_sending(self, count: int) -> bool:
        # Kernel values for each column of each row.
        each = count * self.numbers(slice(0, self.X.d)) / int(self.X.offsets[-1])
        return not self.in_memory or each >= _WORTH * self.X.n

    def parcels(self, least: int) -> list[_Tables]:
        rows = sum(table.n for table in self.samples)
        # Whoever reads them does so by the block: what is sent is few of those, so that it is seen how far it is.
        message = _MESSAGE if self._travel else max(_BLOCK_BYTES // 4, _ROW * rows)
        most = max(1, min(message // rows, -(-int(self.X.offsets[-1]) // least)))
        if not self._travel:
            # Nobody is left with a block of few columns.
            block = columns_that_fit([to_be_read(table) for table in self.samples], self.design_bytes, at_once=1)
            most = most - most % block if most > block else whole_lines(most, dtype_of(self.X.prototype).itemsize)
        runs = _runs(self.X.offsets, most)
        tables = self.samples if self._travel else []
        return [_Tables(tables, self.kernels, np.arange(run.start, run.stop)) for run in runs]

    @property
    def _travel(self) -> bool:
        """Whether the values have to be sent; else workers know the tables, and read what they need."""
        return any(must_be_sent(table) for table in self.samples)

    def emptied(self) -> Self:
        nothing: Any = None
        tables = [None if self._travel else to_be_read(table) for table in self.samples]
        return self._with_total(self._of(tables, nothing))

    def filled(self, tables: _Tables) -> Self:
        own = tables.tables or [read_here(table, tables.features) for table in self.samples]
        return self._with_total(self._of(own, tables.kernels))

    def _of(self, tables: Sequence[Any], kernels: FeatureKernels) -> Self:
        others: dict[str, Any] = {"Y": tables[1]} if hasattr(self, "Y") else {}
        return replace(self, X=tables[0], kernels=kernels, **others)

    def _with_total(self, other: Self) -> Self:
        """How draws of some features are made depends on how many there are of all: not on the blocks they come in."""
        other.__dict__["total"] = self.total
        return other


def _runs(offsets: np.ndarray, most: int) -> list[slice]:
    """Runs of features with at most so many value columns, or of one feature."""
    bounds = [0]
    while bounds[-1] < len(offsets) - 1:
        fit = int(np.searchsorted(offsets, offsets[bounds[-1]] + most, side="right")) - 1
        bounds.append(max(fit, bounds[-1] + 1))
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def columns_that_fit(tables: Sequence[Table], design: int, at_once: int | None = None) -> int:
    """Value columns of tables on disk that may be in memory at a time, beside a design of so many bytes.

    Where there are threads there are two such blocks, or `at_once`: one is worked on while the next is read. Where not
    even a feature fits this raises.
    """
    at_once = n_threads() if at_once is None else at_once
    memory = min((table.memory for table in tables if table.memory is not None), default=None)
    if memory is None:
        return int(tables[0].offsets[-1])
    each = sum(table.n * dtype_of(table.prototype).itemsize for table in tables)
    widest = int(np.diff(tables[0].offsets).max())
    room = int(_SHARE * memory) - design
    if room < at_once * widest * each:
        needed = (at_once * widest * each + design) / _SHARE
        raise InputError(
            f"memory: a feature of {sum(table.n for table in tables):,} rows and the rows that are drawn of it need "
            f"{needed / 1e6:,.0f} MB, but {memory / 1e6:,.0f} MB may be used; allow more, or use estimator='complete', "
            "which reads rows piece by piece."
        )
    most = room // (at_once * each)
    if all(table.by_column for table in tables):
        # Columns that can be read by themselves need not all be there at once, and memory has to be cleared first.
        most = min(most, max(_BLOCK_BYTES // each, _ROW, widest))
    return max(1, whole_lines(most, dtype_of(tables[0].prototype).itemsize))


def whole_lines(most: int, bytes_each: int = 8) -> int:
    """Columns, at most so many, of which a row fills lines of memory where there are enough for one."""
    in_line = _LINE // bytes_each
    return most - most % in_line if most > in_line else most


class BufferPool:
    """Room for blocks that are read one after the other: each time anew, the system would clear it first.

    With threads two blocks are in use at a time: one is worked on, the next is read.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._rooms: dict[tuple[int, int], np.ndarray] = {}

    def spaces(self, sizes: Sequence[tuple[int, np.dtype[Any]]]) -> list[np.ndarray]:
        """An array of at least so many numbers for each table."""
        self._turn = (self._turn + 1) % n_threads()
        for place, (numbers, dtype) in enumerate(sizes):
            room = self._rooms.pop((self._turn, place), None)
            if room is None or len(room) < numbers or room.dtype != dtype:
                del room
                room = _from_a_line_on(numbers, dtype)
            self._rooms[self._turn, place] = room
        return [self._rooms[self._turn, place] for place in range(len(sizes))]


def _from_a_line_on(numbers: int, dtype: np.dtype[Any]) -> np.ndarray:
    """An empty array that begins where a line of memory does."""
    room = np.empty(numbers + _LINE // dtype.itemsize, dtype=dtype)
    start = -room.ctypes.data % _LINE // dtype.itemsize
    return room[start : start + numbers]


def index_type(*tables: Table) -> np.dtype[Any]:
    """The smallest type that counts the rows of tables."""
    return np.dtype(np.int32 if max(table.n for table in tables) < 2**31 else np.int64)


def in_order(rows: np.ndarray, *tables: Table) -> np.ndarray:
    """The same tuples of rows, the columns of `rows`, with the first row of each going up; in as few bytes as will do.

    In a long column every row is out of the cache's reach, and so one in four is not. The draws that correlations are
    learned from stay in front.
    """
    order = np.argsort(rows[0, LEARNING:], kind="stable") + LEARNING
    out = np.empty(rows.shape, index_type(*tables))
    out[:, :LEARNING] = rows[:, :LEARNING]
    for own, one in zip(out, rows, strict=True):
        own[LEARNING:] = one[order]
    return out


def room_to_keep(table: Table) -> int:
    """Bytes of draws that may be kept, so that a table on disk need not be read again for them."""
    return 0 if table.memory is None else table.memory // 5


def held(tables: Sequence[Table]) -> list[Table]:
    """The tables in memory, where they fit."""
    stored = any(table.memory is not None for table in tables)
    if stored and columns_that_fit(tables, 0) >= int(tables[0].offsets[-1]):
        return [table.loaded(slice(0, table.d)) for table in tables]
    return list(tables)


@dataclass(frozen=True)
class _Tables:
    """Some features of one or two tables, and their kernels."""

    tables: list[Table]
    kernels: FeatureKernels
    features: np.ndarray

    def pack(self) -> tuple[_PackedTables, list[Any]]:
        packed = [pack(table, self.features) for table in self.tables]
        kernels = self.kernels.sent(self.features)
        parcels, counts = [parcel for parcel, _ in packed], [len(own) for _, own in packed]
        values = [value for _, own in packed for value in own]
        return _PackedTables(parcels, counts, kernels, self.features), values


@dataclass(frozen=True)
class _PackedTables:
    parcels: list[TablePart]
    counts: list[int]
    kernels: FeatureKernels
    features: np.ndarray

    def unpack(self, values: list[Any]) -> _Tables:
        return _Tables(unpack_all(self.parcels, self.counts, values), self.kernels, self.features)


@dataclass(frozen=True)
class MMDDraws(FeatureDraws):
    """h(x, x', y, y') at rows (x, x', y, y'), given as four index arrays (l,)."""

    Y: Table
    rows: tuple[np.ndarray, ...]

    @property
    def count(self) -> int:
        return len(self.rows[0])

    def of(self, features: slice | np.ndarray, draws: slice) -> Array:
        columns, kernels = self.chosen(features)
        some = tuple(rows[draws] for rows in self.rows)
        if self.one_pass(columns, kernels):
            h = host_mmd(self.X.prototype, self.Y.prototype, some, columns, kernels.exponents, self.total)
            if h is not None:
                return h
        tables = (self.X, self.X, self.Y, self.Y)
        points = [table.part(columns, rows) for table, rows in zip(tables, some, strict=True)]
        return mmd_kernel(kernels, *points)


@dataclass(frozen=True)
class OwnMMDDraws(MMDDraws):
    """The same with rows of its own for each feature: index arrays (l, d)."""

    def worth_sending(self, count: int) -> bool:
        return False  # drawn for a few features at a time, as they are needed

    def of(self, features: slice | np.ndarray, draws: slice) -> Array:
        columns, kernels = self.chosen(features)
        widths = np.diff(kernels.offsets)
        tables = (self.X, self.X, self.Y, self.Y)
        points = [
            own_rows(table.part(columns), rows[draws, features], widths)
            for table, rows in zip(tables, self.rows, strict=True)
        ]
        return mmd_kernel(kernels, *points)

    def filled(self, tables: _Tables) -> Self:
        return replace(super().filled(tables), rows=tuple(rows[:, tables.features] for rows in self.rows))


@dataclass(frozen=True)
class HSICDraws(FeatureDraws):
    """h at quadruples of rows: an index array (l, 4)."""

    y: Table
    response_kernels: FeatureKernels
    rows: np.ndarray

    @property
    def count(self) -> int:
        return len(self.rows)

    def of(self, features: slice | np.ndarray, draws: slice) -> Array:
        columns, kernels = self.chosen(features)
        rows, weights = self.rows[draws], [weight[draws, :] for weight in self._weights]
        if self.one_pass(columns, kernels):
            h = host_hsic(self.X.prototype, rows, weights, columns, kernels.exponents, self.total)
            if h is not None:
                return h
        points = [self.X.part(columns, some) for some in rows.T]
        return _hsic_kernel(kernels, points, weights)

    def emptied(self) -> Self:
        return self._with_weights(super().emptied())

    def filled(self, tables: _Tables) -> Self:
        return self._with_weights(super().filled(tables))

    def _with_weights(self, other: Self) -> Self:
        """Weights are not made twice."""
        other.__dict__["_weights"] = self._weights
        return other

    @cached_property
    def _weights(self) -> tuple[Array, Array]:
        """Weights of all draws, (l, 1): for the few features of a batch they would cost as much as the features."""
        step = batch_numbers(self.y.prototype)
        parts = [
            _pairing_weights(self.y, self.rows[start : start + step], self.response_kernels)
            for start in range(0, self.count, step)
        ]
        xp = namespace(self.y.prototype)
        second, third = (xp.concat(part, axis=0)[:, None] for part in zip(*parts, strict=True))
        return second, third


@dataclass(frozen=True)
class OwnHSICDraws(HSICDraws):
    """The same with quadruples of its own for each feature: an index array (l, d, 4)."""

    def worth_sending(self, count: int) -> bool:
        return False  # drawn for a few features at a time, as they are needed

    def of(self, features: slice | np.ndarray, draws: slice) -> Array:
        columns, kernels = self.chosen(features)
        widths = np.diff(kernels.offsets)
        rows = self.rows[draws, features]
        weights = _pairing_weights(self.y, rows, self.response_kernels)
        points = [own_rows(self.X.part(columns), rows[..., a], widths) for a in range(4)]
        return _hsic_kernel(kernels, points, weights)

    def filled(self, tables: _Tables) -> Self:
        return replace(self, X=tables.tables[0], kernels=tables.kernels, rows=self.rows[:, tables.features])


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
    sums = []
    for (a, b), (u, v) in _PAIRINGS:
        # The last pairing needs nothing of the rows afterwards.
        last = (a, b) == (0, 3)
        pairing = kernels.matched(points[a], points[b], spend=last)
        pairing += kernels.matched(points[u], points[v], spend=last)
        sums.append(pairing)
    for pairing, weight in zip(sums[1:], weights, strict=True):
        pairing -= sums[0]
        pairing *= namespace(pairing).astype(weight, pairing.dtype, copy=False)
    sums[1] += sums[2]
    return sums[1]
