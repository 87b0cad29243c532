"""What pictures and descriptions of listed features are made of: some rows instead of the whole data.

A result carries these records, so that it can be drawn, described, kept and sent without the tables it came from.
Pictures are tuples of plain numbers and names, a few kilobytes for each feature; they are made when first used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, overload

import numpy as np

from kernsift.data.tables import Table, spaced_rows, stack
from kernsift.estimators.views import Pair
from kernsift.execution.arrays import to_numpy
from kernsift.report.descriptions import (
    Description,
    describe_by_level,
    describe_cells,
    describe_columns,
    describe_curve,
    describe_levels,
    describe_numbers,
    more_missing,
)
from kernsift.report.held_fixed import AdjustedRows, HeldFixed

MOST_PICTURES, MOST_DESCRIBED = 200, 2000
"""Listed features with a picture, and with a description; those with the largest scores come first."""

# Rows kept of each table: evenly spaced ones where there are more, and in all at most so many numbers of a table.
_ROWS, _FEWEST_ROWS, _NUMBERS = 5_000, 1_000, 2**21
_POINTS = 250
_BINS, _FEW_VALUES, _FEW_GROUPS, _MOST_LEVELS = 30, 12, 3, 12
_SPREAD = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Histogram:
    """A number in several samples, as shares of each sample over common bins, and the share far out of them all."""

    label: str
    series: tuple[str, ...]
    edges: tuple[float, ...]
    shares: tuple[tuple[float, ...], ...]
    beyond: float = 0.0


@dataclass(frozen=True)
class Bars:
    """Categories, or few different numbers, in several samples, as shares of each sample."""

    label: str
    series: tuple[str, ...]
    levels: tuple[str, ...]
    shares: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Boxes:
    """A number within each of several levels: the 5, 25, 50, 75 and 95 % points, and how many rows there are."""

    label: str
    by: str
    levels: tuple[str, ...]
    quantiles: tuple[tuple[float, ...], ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Cloud:
    """A number against another: some of the points, and the quartiles of `against` within slices of the number."""

    label: str
    against: str
    points: tuple[tuple[float, float], ...]
    middles: tuple[float, ...]
    quartiles: tuple[tuple[float, float, float], ...]


Picture = Histogram | Bars | Boxes | Cloud


Item = TypeVar("Item")


class Records(Sequence[Item], Generic[Item]):
    """Records that are made when first used, as most results are read as numbers.

    Until all are made it holds some rows of the features in question; when it is pickled, only the records.
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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Records | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (None, self._count, tuple(self))


class Summaries(NamedTuple):
    """What a result keeps of the data.

    Attributes
    ----------
    pictures, descriptions : of the listed features, as far as they have some.
    labels : names of the samples, or of the response.
    kinds : how many features hold numbers, how many categories, and how many are groups of columns.
    """

    pictures: Sequence[Picture] = ()
    descriptions: Sequence[Description] = ()
    labels: tuple[str, ...] = ()
    kinds: tuple[int, int, int] = (0, 0, 0)


def picture_samples(
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
    parts, places = _kept(tables, features)
    adjusted = None
    if held is not None:
        starts = np.cumsum([0, *(table.n for table in tables[:-1])])
        rows = np.concatenate([start + own for start, own in zip(starts, places, strict=True)])
        label = np.repeat(np.arange(len(parts)), [part.n for part in parts])
        adjusted = AdjustedRows(stack(parts), np.eye(len(parts))[label], held.take(rows))
    draw = partial(_samples, parts, tuple(series))
    describe = partial(_describe_samples, parts, tuple(series), means=means, gaps=gaps, adjusted=adjusted, views=views)
    return _summaries(draw, describe, parts[0].d, series, _kinds(tables[0]))


def picture_candidates(
    reference: Table,
    candidates: Sequence[Table],
    names: Sequence[str],
    features: np.ndarray,
    *,
    means: bool = False,
    views: np.ndarray | None = None,
) -> Summaries:
    """Each chosen candidate data set beside the reference; the views of data sets with many columns tell nothing."""
    chosen = features[:MOST_PICTURES].tolist()

    def kept(table: Table) -> Table:
        # Tables are owned here, so that small ones need no other copy.
        return table if table.copied and table.n <= _ROWS else _thinned(table, spaced_rows(table.n, _ROWS))

    base, others = kept(reference), [(names[i], kept(candidates[i])) for i in chosen]

    def pair(place: int) -> tuple[tuple[Table, Table], tuple[str, str]]:
        name, table = others[place]
        return (base, table), ("reference", name)

    def draw(place: int) -> Picture:
        tables, series = pair(place)
        return _samples(tables, series, 0, series[1])

    def describe(place: int) -> Description:
        return _describe_samples(*pair(place), 0, means=means).renamed("")

    return _summaries(draw, describe, len(others), ("reference",), (0, 0, len(names)))


def picture_response(
    X: Table,
    y: Table,
    features: np.ndarray,
    *,
    means: bool = False,
    linear: bool = False,
    held: HeldFixed | None = None,
    views: np.ndarray | None = None,
) -> Summaries:
    """Each feature against the response; `held` and `views` are as in `picture_samples`.

    With `linear` the test sees means of the response, as it does of log-rank scores, and any shape of the feature.
    """
    (table,), (places,) = _kept([X], features)
    (response,), _ = _kept([y], np.array([0]), len(features))
    name = response.names[0]
    target, label = _line(response.values, name)
    levels = response.levels.get(name)
    two_valued = np.unique(target) if levels is None else np.empty(0)
    if len(two_valued) == 2:
        levels = tuple(f"{value:.6g}" for value in two_valued)
        target = (target == two_valued[1]).astype(float)
    adjusted = None
    if held is not None:
        known = np.nan_to_num(target)
        compared = known[:, None] if levels is None else np.eye(len(levels))[known.astype(np.intp)]
        adjusted = AdjustedRows(table, compared, held.take(places))
    draw = partial(_against, table, target, label, levels)
    describe = partial(_describe_against, table, target, name, levels, means, linear, adjusted, views)
    return _summaries(draw, describe, table.d, (name,), _kinds(X))


def _summaries(
    draw: Callable[[int], Picture],
    describe: Callable[[int], Description],
    count: int,
    labels: Sequence[str],
    kinds: tuple[int, int, int],
) -> Summaries:
    return Summaries(Records(draw, min(count, MOST_PICTURES)), Records(describe, count), tuple(labels), kinds)


def _kinds(table: Table) -> tuple[int, int, int]:
    categories, groups = int(table.categorical.sum()), int((np.diff(table.offsets) > 1).sum())
    return table.d - categories - groups, categories, groups


def _kept(
    tables: Sequence[Table], features: np.ndarray, described: int | None = None
) -> tuple[list[Table], list[np.ndarray]]:
    """Some rows of the features that are described, and which rows of each table these are."""
    chosen = features[:MOST_DESCRIBED]
    count = min(described or len(chosen), MOST_DESCRIBED)
    rows = int(np.clip(_NUMBERS // max(count, 1), _FEWEST_ROWS, _ROWS))
    places = [spaced_rows(table.n, rows) for table in tables]
    found = []
    for table, own in zip(tables, places, strict=True):
        if table.memory is None and len(own) * table.d < len(chosen) * table.n:  # fewer values than in the columns
            table, own = table.take(own), np.arange(len(own))
        found.append(_thinned(table.select(chosen), own))
    return found, places


def renamed(summaries: Summaries, labels: tuple[str, ...]) -> Summaries:
    """The same with other names for the samples."""

    def draw(place: int) -> Picture:
        picture = summaries.pictures[place]
        return replace(picture, series=labels) if isinstance(picture, Histogram | Bars) else picture

    def describe(place: int) -> Description:
        return summaries.descriptions[place].renamed(labels[-1])

    pictures = Records(draw, len(summaries.pictures))
    return Summaries(pictures, Records(describe, len(summaries.descriptions)), labels, summaries.kinds)


def _thinned(table: Table, places: np.ndarray) -> Table:
    """Some rows in memory."""
    if len(places) < table.n:
        table = table.take(places)
    values = np.array(to_numpy(table.part(slice(None))))
    return Table(table.names, values, table.offsets, table.categorical, table.levels)


def _present(values: np.ndarray) -> np.ndarray:
    """The rows without a missing value."""
    return ~np.isnan(values).any(axis=1)


# Two samples ---------------------------------------------------------------------------------------------------------


def _columns(table: Table, j: int) -> np.ndarray:
    return np.asarray(table.values[:, table.offsets[j] : table.offsets[j + 1]], dtype=np.float64)


def _describe_samples(
    tables: Sequence[Table],
    series: tuple[str, ...],
    j: int,
    *,
    means: bool = False,
    gaps: bool = False,
    adjusted: AdjustedRows | None = None,
    views: np.ndarray | None = None,
) -> Description:
    own = tables[0].levels.get(tables[0].names[j])
    values = np.concatenate([_columns(table, j) for table in tables])
    codes = np.repeat(np.arange(float(len(tables))), [table.n for table in tables])
    return _describe_classes(values, codes, own, series, means, None if views is None else views[j], adjusted, j, gaps)


def _describe_classes(
    values: np.ndarray,
    codes: np.ndarray,
    own: Sequence[str] | None,
    classes: Sequence[str],
    means: bool,
    view: Pair | None,
    adjusted: AdjustedRows | None,
    j: int,
    gaps: bool = False,
) -> Description:
    """The values of feature j in classes, of which there are codes (n,), with whatever is held fixed."""

    def describe(values: np.ndarray, codes: np.ndarray) -> Description:
        there = _present(values) & ~np.isnan(codes)
        found = _describe_values(values[there], codes[there], own, classes, means, view)
        if gaps and own is None and values.shape[1] == 1 and len(classes) == 2:
            return more_missing(values[codes == 0, 0], values[codes == 1, 0], found, classes[-1])
        return found

    found, tried = describe(values, codes), []
    if adjusted is None:
        return found
    for column in adjusted.columns(j, "" if view is None else view.feature):
        known = codes if gaps else np.where(_present(column), codes, np.nan)
        rows = adjusted.chosen(known, column[:, 0] if column.shape[1] == 1 else None)
        if not len(rows):
            return replace(found, change="", where="", detail="")
        tried.append(describe(column[rows], codes[rows]))
    best = max(tried, key=lambda one: one.size)
    return replace(best, typical=found.typical, medians=found.medians, held=adjusted.words)


def _samples(tables: Sequence[Table], series: tuple[str, ...], j: int, label: str | None = None) -> Picture:
    first = tables[0]
    name = first.names[j]
    parts = [part[_present(part)] for part in (_columns(table, j) for table in tables)]
    label = label or name
    if first.categorical[j]:
        return _bars([part[:, 0].astype(np.intp) for part in parts], label, series, first.levels[name])
    if parts[0].shape[1] > 1:
        values, how = _one_number(parts)
        return _numbers(values, f"{label}, {how}", series)
    return _numbers([part[:, 0] for part in parts], label, series)


def _numbers(values: Sequence[np.ndarray], label: str, series: tuple[str, ...]) -> Picture:
    """Numbers as bars where few are different, as a histogram elsewhere."""
    distinct = np.unique(np.concatenate(values))
    if not len(distinct):
        return Bars(label, series, ("no values",), tuple((0.0,) for _ in series))
    if len(distinct) <= _FEW_VALUES:
        codes = [np.searchsorted(distinct, value) for value in values]
        return _bars(codes, label, series, tuple(f"{value:.6g}" for value in distinct))
    return _histogram(values, label, series)


def _one_number(parts: Sequence[np.ndarray]) -> tuple[list[np.ndarray], str]:
    """A group's standardised columns as one number, of two the one that tells the samples further apart."""
    pooled = np.concatenate(parts)
    centre, spread = pooled.mean(axis=0), pooled.std(axis=0)
    spread[spread == 0] = 1.0
    standard = [(part - centre) / spread for part in parts]
    direction = standard[1].mean(axis=0) - standard[0].mean(axis=0)
    length = float(np.linalg.norm(direction))
    direction = direction / length if length > 0 else np.full(len(direction), len(direction) ** -0.5)
    along = [part @ direction for part in standard]
    away = [np.sqrt((part**2).mean(axis=1)) for part in standard]
    if _gap(along) >= _gap(away):
        return along, "along the line through the two means"
    return away, "distance from the common centre"


def _gap(values: Sequence[np.ndarray]) -> float:
    """The largest difference between the two distribution functions."""
    grid = np.sort(np.concatenate(values))
    first, second = (np.searchsorted(np.sort(part), grid, side="right") / len(part) for part in values)
    return float(np.abs(first - second).max())


def _bars(codes: Sequence[np.ndarray], label: str, series: tuple[str, ...], levels: Sequence[str]) -> Bars:
    counts = np.array([np.bincount(code, minlength=len(levels)) for code in codes], dtype=float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    names = list(levels)
    if len(levels) > _MOST_LEVELS:
        order = np.argsort(-shares.sum(axis=0), kind="stable")
        kept = order[: _MOST_LEVELS - 1]
        rest = shares[:, order[_MOST_LEVELS - 1 :]].sum(axis=1, keepdims=True)
        names = [levels[i] for i in kept] + [f"{len(levels) - len(kept)} others"]
        shares = np.concatenate([shares[:, kept], rest], axis=1)
    return Bars(label, series, tuple(names), _rounded(shares))


def _histogram(values: Sequence[np.ndarray], label: str, series: tuple[str, ...]) -> Histogram:
    pooled = np.concatenate(values)
    low, high = usual_range(pooled)
    fewest = min(len(value) for value in values)
    bins = int(np.clip(1.2 * fewest**0.5, 8, _BINS))
    edges = np.linspace(low, high, 1 + bins)
    if (pooled == np.floor(pooled)).all():
        # As many whole numbers in each bin, so that none has fewer because of rounding.
        width = np.ceil((high - low + 1.0) / bins)
        edges = np.arange(low - 0.5, high + width, width)
    counts = np.array([np.histogram(value, edges)[0] / max(len(value), 1) for value in values])
    beyond = float(((pooled < low) | (pooled > high)).mean())
    return Histogram(label, series, _plain(edges), _rounded(counts), _plain(np.array([beyond]))[0])


def usual_range(values: np.ndarray) -> tuple[float, float]:
    """Where values lie but for those far out, as one of these would leave a single bin for all the others."""
    first, third = np.quantile(values, [0.25, 0.75])
    reach = 4.0 * (third - first)
    near = values[(values >= first - reach) & (values <= third + reach)] if reach > 0 else values
    return float(near.min()), float(near.max())


# Against a response --------------------------------------------------------------------------------------------------


def _against(table: Table, target: np.ndarray, target_label: str, levels: Sequence[str] | None, j: int) -> Picture:
    name = table.names[j]
    own = table.levels.get(name)
    values, target, label = _rows_of(table, target, j)
    if own is not None and levels is not None:
        named = [f"{target_label} = {level}" for level in levels]
        return _shares_by_level(values.astype(np.intp), target.astype(np.intp), name, own, named)
    if levels is not None:
        codes = target.astype(np.intp)
        groups = [values[codes == level] for level in range(len(levels))]
        if len(levels) <= _FEW_GROUPS and min(len(group) for group in groups):
            return _numbers(groups, label, tuple(f"{target_label} = {level}" for level in levels))
        return _boxes(values, codes, label, target_label, levels)
    if own is not None:
        return _boxes(target, values.astype(np.intp), target_label, name, own)
    distinct = np.unique(values)
    if len(distinct) <= _FEW_VALUES:
        named = [f"{value:.6g}" for value in distinct]
        return _boxes(target, np.searchsorted(distinct, values), target_label, label, named)
    return _cloud(values, target, label, target_label)


def _describe_against(
    table: Table,
    target: np.ndarray,
    response: str,
    levels: Sequence[str] | None,
    means: bool,
    linear: bool,
    adjusted: AdjustedRows | None,
    views: np.ndarray | None,
    j: int,
) -> Description:
    own, columns = table.levels.get(table.names[j]), _columns(table, j)
    view: Pair | None = None if views is None else views[j]
    if levels is not None:
        named = [f"{response} = {level}" for level in levels]
        return replace(_describe_classes(columns, target, own, named, means, view, adjusted, j), medians=())

    def by_level(numbers: np.ndarray, codes: np.ndarray) -> Description:
        there = ~np.isnan(numbers[:, 0]) & ~np.isnan(codes)
        return _describe_values(numbers[there], codes[there], None, own or (), means or linear, what=response)

    if own is not None:
        found = by_level(target[:, None], columns[:, 0])
        if adjusted is None:
            return found
        numbers = adjusted.target
        rows = adjusted.chosen(columns[:, 0], numbers)
        return replace(by_level(numbers[rows, None], columns[rows, 0]), held=adjusted.words) if len(rows) else found
    seen = "linear" if linear else "" if view is None else view.response

    def along(values: np.ndarray, numbers: np.ndarray) -> Description:
        there = _present(values) & ~np.isnan(numbers)
        return describe_curve(_line(values[there], "")[0], numbers[there], response, means=means, view=seen)

    if adjusted is None:
        return along(columns, target)
    # Two values are two classes, which weights make alike; more of them are aligned.
    two_valued = columns.shape[1] == 1 and len(np.unique(columns[_present(columns)])) == 2
    rows = adjusted.chosen(columns[:, 0] if two_valued else np.zeros(len(target)), adjusted.target)
    tried = [columns] if two_valued else adjusted.columns(j, "" if view is None else view.feature, classes=False)
    best = max((along(values[rows], adjusted.target[rows]) for values in tried), key=lambda one: one.size)
    return replace(best, held=adjusted.words)


def _describe_values(
    values: np.ndarray,
    target: np.ndarray,
    own: Sequence[str] | None,
    classes: Sequence[str],
    means: bool,
    view: Pair | None = None,
    what: str = "",
) -> Description:
    """Values in several classes, of which there are codes; `what` names a response in the levels of a feature."""
    codes, seen = target.astype(np.intp), "" if view is None else view.feature
    used = np.flatnonzero(np.bincount(codes, minlength=len(classes)))
    if len(used) == 2:
        first, second = (values[codes == level] for level in used)
        where = f"'{classes[used[1]]}'" if what else classes[used[1]]
        if own is not None:
            return describe_levels(first[:, 0].astype(np.intp), second[:, 0].astype(np.intp), own, where)
        if values.shape[1] > 1:
            return describe_columns(first, second, where, means=means)
        found = describe_numbers(first[:, 0], second[:, 0], where, means=means, view=seen)
        return replace(found, change=f"{what} {found.change}", medians=()) if what and found.change else found
    if own is not None:
        return describe_cells(values[:, 0].astype(np.intp), codes, own, classes)
    return describe_by_level(_line(values, "")[0], codes, classes, what, means=means, view=seen)


def _rows_of(table: Table, target: np.ndarray, j: int) -> tuple[np.ndarray, np.ndarray, str]:
    """A feature as one number, and the response, in the rows where neither is missing; and what the number is."""
    columns = _columns(table, j)
    present = _present(columns) & ~np.isnan(target)
    values, label = _line(columns[present], table.names[j])
    return values, target[present], label


def _line(values: np.ndarray, name: str) -> tuple[np.ndarray, str]:
    """One column as it is; several as their first principal component."""
    values = np.asarray(values, dtype=np.float64)
    if values.shape[1] == 1:
        return values[:, 0], name
    spread = values.std(axis=0)
    standard = (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    axis = np.linalg.eigh(standard.T @ standard)[1][:, -1]
    return standard @ axis, f"{name}, first principal component"


def _shares_by_level(
    codes: np.ndarray, target: np.ndarray, name: str, own: Sequence[str], levels: Sequence[str]
) -> Bars:
    """How the feature's levels are made up in each of the most common levels of the response."""
    common = np.argsort(-np.bincount(target, minlength=len(levels)), kind="stable")[:4]
    groups = [codes[target == level] for level in np.sort(common)]
    kept = [(group, levels[level]) for group, level in zip(groups, np.sort(common), strict=True) if len(group)]
    label = f"{name} (the {len(kept)} most common of {len(levels)} shown)" if len(kept) < len(levels) else name
    return _bars([group for group, _ in kept], label, tuple(level for _, level in kept), own)


def _boxes(values: np.ndarray, codes: np.ndarray, label: str, by: str, levels: Sequence[str]) -> Boxes:
    counts = np.bincount(codes, minlength=len(levels))
    shown = np.sort(np.argsort(-counts, kind="stable")[:_MOST_LEVELS])
    shown = shown[counts[shown] > 0]
    quantiles = [_plain(np.quantile(values[codes == level], _SPREAD)) for level in shown]
    names, sizes = tuple(levels[level] for level in shown), tuple(int(counts[level]) for level in shown)
    return Boxes(label, by, names, tuple(quantiles), sizes)


def _cloud(values: np.ndarray, target: np.ndarray, label: str, against: str) -> Cloud:
    order = np.argsort(values, kind="stable")
    slices = [part for part in np.array_split(order, max(1, min(12, len(order) // 8))) if len(part)]
    middles = [float(np.median(values[part])) for part in slices]
    quartiles = [_plain(np.quantile(target[part], [0.25, 0.5, 0.75])) for part in slices]
    some = spaced_rows(len(values), _POINTS)
    points = tuple((a, b) for a, b in zip(_plain(values[some]), _plain(target[some]), strict=True))
    return Cloud(label, against, points, _plain(np.array(middles)), tuple((q[0], q[1], q[2]) for q in quartiles))


def _plain(values: np.ndarray) -> tuple[float, ...]:
    """Python numbers of six digits: what a picture can show."""
    return tuple(float(f"{value:.6g}") for value in np.asarray(values, dtype=float).tolist())


def _rounded(shares: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(_plain(row) for row in shares)
