"""How cells become numbers: texts and categories as codes, dates as days since the first date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, time
from functools import partial, reduce
from typing import Any

import numpy as np

from kernsift.data.columns.cells import MICROSECONDS
from kernsift.data.columns.columns import Columns
from kernsift.data.columns.kinds import ColumnDecisions
from kernsift.data.formats.in_memory import MemorySource
from kernsift.data.formats.source import TEXTS, recode, values_name
from kernsift.data.scan import Scan
from kernsift.data.tables import MISSING_LEVEL
from kernsift.exceptions import InputError, quoted
from kernsift.execution.arrays import accumulator_dtype, dtype_of, namespace, to_numpy

Span = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Encoding:
    """How the cells of tables with the same columns become numbers, in memory and piece by piece.

    Attributes
    ----------
    dtype : float64, or float32 where all the input was.
    texts : for each column of text the number of each text: a code, or the number that it is.
    categories : for each column of numbers that are categories its different numbers, sorted, and their codes.
    origin : for each column of dates the first, from which days are counted.
    gaps : the code of missing cells, for each categorical column in which they are a level.
    """

    dtype: np.dtype[Any]
    texts: Mapping[int, Mapping[str, float]]
    categories: Mapping[int, tuple[np.ndarray, np.ndarray]]
    origin: dict[int, float]
    levels: Mapping[int, tuple[str, ...]]
    gaps: Mapping[int, float] = field(default_factory=dict)

    def values(self, cells: Columns, own: np.ndarray) -> np.ndarray:
        """The numbers of cells of the columns `own`, which are overwritten where they have to change."""
        values = cells.values.astype(self.dtype, copy=False)
        for i, column in enumerate(own.tolist()) if self.texts or self.categories or self.origin else ():
            if i in cells.levels:
                known = self.texts[column]
                # A text that the scan did not see becomes -inf, which the check against the bounds refuses.
                recode(values, i, np.array([known.get(level, -np.inf) for level in cells.levels[i]]))
            elif column in self.categories:
                numbers, codes = self.categories[column]
                there = ~np.isnan(values[:, i])
                values[there, i] = codes[np.searchsorted(numbers, values[there, i]).clip(max=len(numbers) - 1)]
            elif column in self.origin:
                values[:, i] -= self.origin[column]
            if column in self.gaps:
                values[np.isnan(values[:, i]), i] = self.gaps[column]
        return values

    def columns(self, part: Columns) -> Columns:
        """A whole table in memory, whose arrays stay as they are."""
        if isinstance(part.values, np.ndarray):
            changed = bool(part.levels or self.categories or self.origin)
            copy = replace(part, values=part.values.copy()) if changed else part
            values = np.ascontiguousarray(self.values(copy, np.arange(len(part.names))))
        else:
            xp = namespace(part.values)
            kind = accumulator_dtype(part.values) if self.dtype == np.float64 else xp.float32
            values = xp.astype(part.values, kind, copy=False)
        # Unchanged columns keep their extremes.
        same = values is part.values and self.levels == part.levels
        return (
            part if same else replace(part, values=values, levels=dict(self.levels), origin=part.origin | self.origin)
        )

    def span(self, one: Scan) -> Span:
        """The smallest and the largest number of each column of a table."""
        low, high = one.low.copy(), one.high.copy()
        for i, first in self.origin.items():
            low[i], high[i] = low[i] - first, high[i] - first
        for i in {*one.levels, *self.categories}:
            if i in one.levels:
                numbers = np.array([self.texts[i][text] for text in one.levels[i]])
            else:
                values, codes = self.categories[i]
                numbers = codes[(values >= low[i]) & (values <= high[i])]
            numbers = np.append(numbers[~np.isnan(numbers)], [self.gaps[i]] if i in self.gaps and one.gaps[i] else [])
            low[i], high[i] = (numbers.min(), numbers.max()) if len(numbers) else (np.inf, -np.inf)
        return low, high

    def incomplete(self, one: Scan) -> np.ndarray:
        """(p,) bool: the columns of a table in which values are missing."""
        found = one.gaps > 0
        for i, texts in one.levels.items():  # text that is read as a number may denote a missing value
            found[i] |= any(np.isnan(self.texts[i][text]) for text in texts)
        found[list(self.gaps)] = False
        return found


# Squared differences must neither overflow nor vanish; float32 data near its own limits is carried on in float64.
_LARGEST = {np.dtype(np.float64): 1e70, np.dtype(np.float32): 1e15}


def date_name(days: float) -> str:
    """Days since 1970 as a label: a date, with its time where that is not midnight.

    >>> date_name(18262.0), date_name(18262.5)
    ('2020-01-01', '2020-01-01T12:00:00')
    """
    found = np.datetime64(round(days * MICROSECONDS), "us").astype(datetime)
    return str(found.date() if found.time() == time(0) else found.isoformat())


def number_name(value: float) -> str:
    """A number as a label."""
    return str(int(value)) if float(value).is_integer() else repr(value)


def value_label(value: float, kind: str, origin: float | None = None) -> str:
    """A value of a column of this kind as a label, where `origin` was subtracted from it.

    >>> value_label(1.0, "truth"), value_label(2.0, "integer"), value_label(0.0, "date", 18262.0)
    ('True', '2', '2020-01-01')
    """
    if kind == "truth":
        return str(bool(value))
    if isinstance(origin, int):
        return str(int(value) + origin)
    # An origin that is not an integer is the first day of dates, which may come from a column of text.
    return date_name(value + (origin or 0.0)) if kind == "date" or origin is not None else number_name(value)


def make_encoding(
    scans: Sequence[Scan], decisions: ColumnDecisions, arguments: Sequence[str], missing: str
) -> tuple[Encoding, list[Span]]:
    """One way for all tables to become numbers, and the span of each, after a check of the numbers' range over all."""
    names = scans[0].source.names
    levels: dict[int, tuple[str, ...]] = {}
    texts = dict(decisions.parsed)
    numbers = {i: [_distinct(one, i) for one in scans] for i in decisions.categories}
    # What the numbers of a column are called: truth values and dates have names where no table has other numbers.
    found = {i: {one.kinds[i] for one in scans} - {*TEXTS, "empty"} for i in numbers}
    label = {i: partial(value_label, kind=min(kinds) if len(kinds) == 1 else "number") for i, kinds in found.items()}
    for i in sorted({i for one in scans for i in one.levels} - texts.keys()):
        mixed = [one for one in scans if i not in one.levels and one.high[i] >= one.low[i]]
        if mixed and i not in numbers:
            raise _mixed_kinds_error(names[i], scans, i, mixed[0])
        labels = set().union(*(one.levels.get(i, ()) for one in scans))
        levels[i] = tuple(sorted(labels.union(*(map(label[i], own.tolist()) for own in numbers.get(i, [])))))
    distinct = {i: np.unique(np.concatenate(own)) for i, own in numbers.items()}
    named = {i: tuple(map(label[i], values.tolist())) for i, values in distinct.items()}
    levels |= {i: own for i, own in named.items() if i not in levels}
    texts |= {i: {level: float(code) for code, level in enumerate(own)} for i, own in levels.items()}
    categories = {i: (values, np.array([texts[i][name] for name in named[i]])) for i, values in distinct.items()}
    origin = {}
    for i in decisions.dates:
        firsts = [[texts[i][text] for text in one.levels[i]] if i in one.levels else [one.low[i]] for one in scans]
        days = np.concatenate(firsts)
        days = days[np.isfinite(days)]  # a column without any date has no first one
        origin[i] = float(days.min()) if len(days) else 0.0
        if i in texts:
            texts[i] = {text: number - origin[i] for text, number in texts[i].items()}
    gaps: dict[int, float] = {}
    for i in levels if missing == "value" else ():
        if any(one.gaps[i] for one in scans):
            gaps[i] = float(len(levels[i]))
            levels[i] = (*levels[i], MISSING_LEVEL)
    encoding = Encoding(_common_type(scans), texts, categories, origin, levels, gaps)
    spans = [encoding.span(one) for one in scans]
    dtype = _check_range(encoding.dtype, spans, names, arguments)
    return encoding if dtype == encoding.dtype else replace(encoding, dtype=dtype), spans


def _mixed_kinds_error(name: str, scans: Sequence[Scan], i: int, one: Scan) -> InputError:
    other = next(scan for scan in scans if i in scan.levels)
    first, second = scans[0].source.argument, (one if one is not scans[0] else other).source.argument
    return InputError(
        f"{second}: column '{name}' must be of the same kind as in {first}, but it holds "
        f"{values_name(one.kinds[i])} in {one.source.argument} and categories in {other.source.argument}; convert "
        f"one of them, or compare them for equality with kinds={{{name!r}: 'category'}}."
    )


def _distinct(one: Scan, i: int) -> np.ndarray:
    """The different numbers in a column."""
    if i in one.levels:
        return np.empty(0)
    values = to_numpy(one.source.read([i]).values)[:, 0]
    return np.unique(values[~np.isnan(values)])


def _common_type(scans: Sequence[Scan]) -> np.dtype[Any]:
    single = [np.dtype(np.float32 if set(one.kinds) <= {"float32"} else np.float64) for one in scans]
    own = [one.source.columns.values if isinstance(one.source, MemorySource) else None for one in scans]
    return np.result_type(
        *(dtype_of(values) if values is not None else kind for values, kind in zip(own, single, strict=True))
    )


def _check_range(
    dtype: np.dtype[Any], spans: Sequence[Span], names: Sequence[str], arguments: Sequence[str]
) -> np.dtype[Any]:
    """The type for numbers in these spans; those that cannot be squared are refused."""
    for argument, (low, high) in zip(arguments, spans, strict=True):
        large = np.flatnonzero(np.maximum(-low, high) > _LARGEST[np.dtype(np.float64)])
        if large.size:
            raise InputError(
                f"{argument}: numbers beyond 1e70 in {quoted(names[i] for i in large.tolist())} are too large for "
                "squares of squares; rescale these columns."
            )
    low, high = reduce(np.minimum, [low for low, _ in spans]), reduce(np.maximum, [high for _, high in spans])
    spread = high - low
    narrow = np.flatnonzero((spread > 0) & (spread < 1e-70))
    if narrow.size:
        raise InputError(
            f"{arguments[0]}: the values in {quoted(names[i] for i in narrow.tolist())} differ by less than 1e-70, "
            "too little to be squared; rescale these columns."
        )
    limit = _LARGEST[dtype]
    if (np.maximum(-low, high) > limit).any() or ((spread > 0) & (spread < 1 / limit)).any():
        return np.dtype(np.float64)
    return dtype
