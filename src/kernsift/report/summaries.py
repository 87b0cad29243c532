"""Pictures and descriptions of the listed features, computed from some of the rows.

A result holds these records in place of its tables, so that it can be drawn, described and pickled without them.
Pictures are tuples of plain numbers and names, a few kilobytes for each feature, computed on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, overload

import numpy as np

from kernsift.data.tables import MOST_DESCRIBED, Table, rows_to_show, stack
from kernsift.execution.arrays import to_numpy
from kernsift.report.descriptions import Description
from kernsift.report.feature_descriptions import describe_against, describe_samples
from kernsift.report.held_fixed import AdjustedRows, HeldFixed
from kernsift.report.pictures import (
    Bars,
    Histogram,
    Picture,
    ShownResponse,
    first_component,
    response_picture,
    samples_picture,
    value_name,
)

MOST_PICTURES = 200
"""Listed features with a picture; those with the largest scores come first."""

Item = TypeVar("Item")


class LazyRecords(Sequence[Item], Generic[Item]):
    """Records that are computed on first use, as most callers read only the numbers of a result.

    Until all are computed it holds some rows of their features; a pickle holds only the records.
    """

    def __init__(self, make: Callable[[int], Item] | None, count: int, known: Sequence[Item] = ()) -> None:
        self._make = make
        self._known: dict[int, Item] = dict(enumerate(known))
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Item: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, place: int | slice) -> Item | tuple[Item, ...]:
        if isinstance(place, slice):
            return tuple(self[i] for i in range(*place.indices(self._count)))
        place = range(self._count)[place]
        if place not in self._known:
            assert self._make is not None
            self._known[place] = self._make(place)
            if len(self._known) == self._count:
                self._make = None
        return self._known[place]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (None, self._count, tuple(self))


class Summaries(NamedTuple):
    """What a result keeps of its data."""

    # Of the first listed features.
    pictures: Sequence[Picture] = ()
    descriptions: Sequence[Description] = ()
    labels: tuple[str, ...] = ()  # names of the samples, or of the response
    # How many features hold numbers, how many categories, and how many are groups of columns.
    kinds: tuple[int, int, int] = (0, 0, 0)


def summarise_samples(
    tables: Sequence[Table],
    series: Sequence[str],
    features: np.ndarray,
    *,
    means: bool = False,
    gaps: bool = False,
    held: HeldFixed | None = None,
    views: np.ndarray | None = None,
) -> Summaries:
    """Each feature in several samples that have the same features.

    Descriptions are of means only where the test sees nothing else (`means`), and of missing values where it sees these
    (`gaps`). `held` is what the test holds fixed for all rows, `views` the pair of views of each feature with the
    smallest p-value.
    """
    parts, places = _shown_tables(tables, features)
    adjusted = None
    if held is not None:
        starts = np.cumsum([0, *(table.n for table in tables[:-1])])
        rows = np.concatenate([start + own for start, own in zip(starts, places, strict=True)])
        label = np.repeat(np.arange(len(parts)), [part.n for part in parts])
        adjusted = AdjustedRows(stack(parts), np.eye(len(parts))[label], held.take(rows))
    draw = partial(samples_picture, parts, tuple(series))
    describe = partial(describe_samples, parts, tuple(series), means=means, gaps=gaps, adjusted=adjusted, views=views)
    return _summaries(draw, describe, parts[0].d, series, _kind_counts(tables[0]))


def summarise_candidates(
    reference: Table,
    candidates: Sequence[Table],
    names: Sequence[str],
    features: np.ndarray,
    *,
    means: bool = False,
    views: np.ndarray | None = None,
) -> Summaries:
    """Each chosen candidate data set and the reference; views are not used, because a data set has many columns."""
    chosen = features[:MOST_PICTURES].tolist()

    def kept(table: Table) -> Table:
        # Tables are copies already, so small ones are kept as they are.
        rows = rows_to_show(table.n, 1)
        return table if table.copied and len(rows) == table.n else _sampled(table, np.arange(table.d), rows)

    base = kept(reference)
    pairs = [((base, kept(candidates[i])), ("reference", names[i])) for i in chosen]

    def draw(place: int) -> Picture:
        tables, series = pairs[place]
        return samples_picture(tables, series, 0, series[1])

    def describe(place: int) -> Description:
        return describe_samples(*pairs[place], 0, means=means).renamed("")

    return _summaries(draw, describe, len(pairs), ("reference",), (0, 0, len(names)))


def summarise_response(
    X: Table,
    y: Table,
    features: np.ndarray,
    *,
    means: bool = False,
    linear: bool = False,
    gaps: bool = False,
    held: HeldFixed | None = None,
    views: np.ndarray | None = None,
) -> Summaries:
    """Each feature against the response; `gaps`, `held` and `views` are as in `summarise_samples`.

    With `linear` the test sees means of the response, as it does of log-rank scores, and any shape of the feature.
    """
    (table,), (places,) = _shown_tables([X], features)
    (response,), _ = _shown_tables([y], np.array([0]), len(features))
    name = response.names[0]
    target, label = first_component(response.values, name)
    origin, levels = y.origin.get(name), response.levels.get(name)
    two_valued = np.unique(target) if levels is None else np.empty(0)
    if len(two_valued) == 2:
        levels = tuple(value_name(value, origin) for value in two_valued.tolist())
        target = (target == two_valued[1]).astype(float)
    adjusted = None
    if held is not None:
        known = np.nan_to_num(target)
        compared = known[:, None] if levels is None else np.eye(len(levels))[known.astype(np.intp)]
        adjusted = AdjustedRows(table, compared, held.take(places))
    given = table, ShownResponse(target, name, label, levels, origin)
    describe = partial(describe_against, *given, means=means, linear=linear, gaps=gaps, adjusted=adjusted, views=views)
    return _summaries(partial(response_picture, *given), describe, table.d, (name,), _kind_counts(X))


def _summaries(
    draw: Callable[[int], Picture],
    describe: Callable[[int], Description],
    count: int,
    labels: Sequence[str],
    kinds: tuple[int, int, int],
) -> Summaries:
    return Summaries(LazyRecords(draw, min(count, MOST_PICTURES)), LazyRecords(describe, count), tuple(labels), kinds)


def _kind_counts(table: Table) -> tuple[int, int, int]:
    categories, groups = int(table.categorical.sum()), int((np.diff(table.offsets) > 1).sum())
    return table.d - categories - groups, categories, groups


def _shown_tables(
    tables: Sequence[Table], features: np.ndarray, described: int | None = None
) -> tuple[list[Table], list[np.ndarray]]:
    """Some rows of the features that are described, and which rows of each table these are."""
    chosen = features[:MOST_DESCRIBED]
    places = [rows_to_show(table.n, described or len(chosen)) for table in tables]
    return [_sampled(table, chosen, own) for table, own in zip(tables, places, strict=True)], places


def _sampled(table: Table, features: np.ndarray, rows: np.ndarray) -> Table:
    """Some features and rows as NumPy arrays in memory."""
    some = table.sample(features, rows if len(rows) < table.n else None)
    return Table(some.names, to_numpy(some.values), some.offsets, some.categorical, some.levels, origin=some.origin)


def renamed(summaries: Summaries, labels: tuple[str, ...]) -> Summaries:
    """The same with other names for the samples."""

    def draw(place: int) -> Picture:
        picture = summaries.pictures[place]
        return replace(picture, series=labels) if isinstance(picture, Histogram | Bars) else picture

    def describe(place: int) -> Description:
        return summaries.descriptions[place].renamed(labels[-1])

    pictures = LazyRecords(draw, len(summaries.pictures))
    return Summaries(pictures, LazyRecords(describe, len(summaries.descriptions)), labels, summaries.kinds)
