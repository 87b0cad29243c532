"""The columns of a table as they were read: one float array, names, kinds, and the levels of categories."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from array_api_compat import device

from kernsift.exceptions import InputError, caller_level, quoted
from kernsift.execution.arrays import Array, namespace, take, to_numpy
from kernsift.execution.threads import parallel_map

Entry = TypeVar("Entry")

# Beyond this, neighbouring integers are equal in float64.
EXACT = 2**53
# Values per block when extremes are computed, the size up to which blocks save nothing, and values of a long row: NumPy
# then takes half as long as with 2^8, and the row of extremes stays in the first cache.
_NUMBERS, _FEW, _LONG = 2**19, 2**15, 2**11


@dataclass(frozen=True)
class Columns:
    """A table as it was read, before it is checked for missing values or matched with another.

    Attributes
    ----------
    names : the p column names; made up from the position where the input has none.
    values : (n, p) float32 or float64; NaN marks a missing cell.
    levels : for the position of each categorical column its level names, in the order of its codes.
    kinds : the p kinds of columns: "float32", "float64", "integer", "truth", "date", "duration" (both in days), "text",
        "category" (declared as such), "mixed" (text and numbers) or "empty".
    named : whether the names are the user's own.
    flat : whether the input was one-dimensional.
    integers : the integers of each column with some beyond 2^53, as they came; any number in a missing cell.
    origin : what was subtracted from the values of a column: from integers an integer, from dates the first date, a
        floating-point number of days since 1970.
    """

    names: tuple[str, ...]
    values: Array
    levels: dict[int, tuple[str, ...]]
    kinds: tuple[str, ...]
    named: bool
    flat: bool
    integers: dict[int, np.ndarray] = field(default_factory=dict)
    origin: dict[int, float] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Rows."""
        return int(self.values.shape[0])

    @cached_property
    def extremes(self) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and the largest value of each column; NaN where a cell is missing."""
        values, xp, p = self.values, namespace(self.values), max(len(self.names), 1)

        def ends(some: Array) -> tuple[np.ndarray, np.ndarray]:
            with np.errstate(invalid="ignore"):
                return to_numpy(xp.min(some, axis=0)), to_numpy(xp.max(some, axis=0))

        if not isinstance(values, np.ndarray) or not values.flags.c_contiguous or values.size <= _FEW:
            return ends(values)
        # NumPy is slow on many short rows, so several are viewed as one; a block stays in the cache for its maxima.
        fold = max(1, _LONG // p)
        cut, step = self.n - self.n % fold, max(1, _NUMBERS // (fold * p))
        long = values[:cut].reshape(cut // fold, fold * values.shape[1])
        found = list(parallel_map(ends, [long[start : start + step] for start in range(0, len(long), step)]))
        low, high = ([part[end].reshape(fold, -1) for part in found] for end in (0, 1))
        return ends(np.concatenate([*low, values[cut:]]))[0], ends(np.concatenate([*high, values[cut:]]))[1]

    @property
    def incomplete(self) -> np.ndarray:
        """(p,) bool: the columns with a missing cell."""
        return np.isnan(self.extremes[0]) if self.n else np.zeros(len(self.names), dtype=bool)

    @cached_property
    def span(self) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and the largest present value of each column; inf and -inf if none is present."""
        low, high = self.extremes
        some = np.flatnonzero(self.incomplete)
        if not some.size:
            return low, high
        values = to_numpy(take(self.values, some, 1))
        low, high, there = low.copy(), high.copy(), ~np.isnan(values)
        low[some] = np.min(values, axis=0, where=there, initial=np.inf)
        high[some] = np.max(values, axis=0, where=there, initial=-np.inf)
        return low, high

    def take(self, rows: np.ndarray) -> Columns:
        """The rows at these positions."""
        integers = {i: found[rows] for i, found in self.integers.items()}
        return replace(self, values=take(self.values, rows, 0), integers=integers)

    def pick(self, positions: Sequence[int]) -> Columns:
        """The columns at these positions, in this order."""
        return replace(
            self,
            names=tuple(self.names[i] for i in positions),
            values=take(self.values, np.asarray(positions, dtype=np.intp), 1),
            levels=pick_entries(self.levels, positions),
            kinds=tuple(self.kinds[i] for i in positions),
            integers=pick_entries(self.integers, positions),
            origin=pick_entries(self.origin, positions),
        )

    def with_integers(self, read: Callable[[int], np.ndarray], positions: Iterable[int]) -> Columns:
        """The same with the integers `read(i)` of those columns at `positions` that have some beyond 2^53."""
        positions = list(positions)
        if not positions or self.n == 0:
            return self
        low, high = self.extremes
        # Extremes of a column with missing cells are NaN.
        large = [i for i in positions if not (low[i] >= -EXACT and high[i] <= EXACT)]
        return replace(self, integers={i: read(i) for i in large}) if large else self


def pick_entries(entries: Mapping[int, Entry], positions: Iterable[int]) -> dict[int, Entry]:
    """Entries by position, for the columns at some positions, which are renumbered."""
    return {new: entries[old] for new, old in enumerate(positions) if old in entries}


def require_same_device(arrays: Sequence[Array], arguments: Sequence[str]) -> None:
    """Refuse arrays of different array libraries or on different devices: nothing is moved implicitly."""
    places = [_place(values) for values in arrays]
    for argument, place in zip(arguments, places, strict=True):
        if place != places[0]:
            raise InputError(
                f"{argument}: an array of the same library and on the same device as {arguments[0]} is needed, but "
                f"{arguments[0]} is in {places[0]} and {argument} in {place}; convert or move one of them."
            )


def _place(values: Array) -> str:
    if isinstance(values, np.ndarray):
        return "NumPy"
    name = namespace(values).__name__.removeprefix("array_api_compat.")
    return f"{name} on {device(values)}"


def subtract_origin(parts: Sequence[Columns], arguments: Sequence[str]) -> Sequence[Columns]:
    """Integers beyond 2^53 counted from the least in all parts, which keeps their differences.

    Kernels of differences do not notice; integers whose differences are beyond 2^53 themselves are rounded.
    """
    rounded = set()
    for i in sorted({i for part in parts for i in part.integers}):
        # A part without such integers holds smaller ones, or numbers with fractions.
        there = [~np.isnan(part.values[:, i]) for part in parts]
        columns = [part.integers.get(i, part.values[:, i])[own] for part, own in zip(parts, there, strict=True)]
        known = [c for c in columns if len(c)]
        if not known or not all(np.array_equal(column, np.trunc(column)) for column in map(to_numpy, columns)):
            continue
        low, high = min(int(c.min()) for c in known), max(int(c.max()) for c in known)
        if max(-low, high) <= EXACT:
            continue
        if high - low > EXACT:
            rounded.add(parts[0].names[i])
            continue
        # Modulo 2^64 the differences of signed and of unsigned integers are right.
        start = np.uint64(low % 2**64)
        moved = []
        for part, own, column in zip(parts, there, columns, strict=True):
            values = part.values.copy()
            whole = column if column.dtype.kind in "iu" else column.astype(np.int64)
            values[own, i] = (whole.astype(np.uint64) - start).astype(np.float64)
            moved.append(replace(part, values=values, origin=part.origin | {i: low}))
        parts = moved
    if rounded:
        warnings.warn(
            f"{arguments[0]}: the integers in {quoted(sorted(rounded))} differ by more than 2^53, so that close ones "
            "are taken for equal; pass identifiers as text.",
            stacklevel=caller_level(),
        )
    return parts
