"""Pictures of features as plain numbers: histograms, bars, boxes and clouds, for `plots` and `svg` to draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.tables import Table, spaced_rows
from kernsift.report.contrasts import slices_along
from kernsift.report.number_format import scale_of
from kernsift.report.text import abbreviated

_MOST_POINTS = 250
_BINS, _FEW_VALUES, _FEW_GROUPS, _MOST_LEVELS = 30, 12, 3, 12
LONGEST_RESPONSE = 24
"""Letters of the name of a response before each of its levels."""
_BOX_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Histogram:
    """A number in several samples, as shares of each sample over common bins, and the share far out of them all.

    Dates are in days since `origin`, which is in days since 1970; so are those of boxes and clouds.
    """

    label: str
    series: tuple[str, ...]
    edges: tuple[float, ...]
    shares: tuple[tuple[float, ...], ...]
    beyond: float = 0.0
    origin: float | None = None


@dataclass(frozen=True)
class Bars:
    """Categories, or few different numbers, in several samples, as shares of each sample."""

    label: str
    series: tuple[str, ...]
    levels: tuple[str, ...]
    shares: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Boxes:
    """A number within each of several levels: its 5, 25, 50, 75 and 95% quantiles."""

    label: str
    by: str
    levels: tuple[str, ...]
    quantiles: tuple[tuple[float, ...], ...]
    origin: float | None = None


@dataclass(frozen=True)
class Cloud:
    """A number against another: some of the points, and the quartiles of `against` within slices of the number."""

    label: str
    against: str
    points: tuple[tuple[float, float], ...]
    middles: tuple[float, ...]
    quartiles: tuple[tuple[float, float, float], ...]
    origin: float | None = None
    against_origin: float | None = None


Picture = Histogram | Bars | Boxes | Cloud


def present_rows(values: np.ndarray) -> np.ndarray:
    """The rows without a missing value."""
    return ~np.isnan(values).any(axis=1)


def feature_columns(table: Table, j: int) -> np.ndarray:
    return np.asarray(table.values[:, table.offsets[j] : table.offsets[j + 1]], dtype=np.float64)


def samples_picture(tables: Sequence[Table], series: tuple[str, ...], j: int, label: str | None = None) -> Picture:
    first = tables[0]
    name = first.names[j]
    parts = [part[present_rows(part)] for part in (feature_columns(table, j) for table in tables)]
    label = label or name
    if first.categorical[j]:
        return _bars([part[:, 0].astype(np.intp) for part in parts], label, series, first.levels[name])
    if not any(len(part) for part in parts):
        return _no_values(label, series)
    if parts[0].shape[1] > 1:
        values, how = _projection(parts)
        return _numbers(values, f"{label}, {how}", series)
    return _numbers([part[:, 0] for part in parts], label, series, first.origin.get(name))


def _numbers(values: Sequence[np.ndarray], label: str, series: tuple[str, ...], origin: float | None = None) -> Picture:
    """Numbers as bars where few are different, as a histogram elsewhere."""
    distinct = np.unique(np.concatenate(values))
    if len(distinct) <= _FEW_VALUES:
        codes = [np.searchsorted(distinct, value) for value in values]
        return _bars(codes, label, series, tuple(value_name(value, origin) for value in distinct.tolist()))
    factor, label, day = _axis_scale(np.concatenate(values), label, origin)
    return replace(_histogram([one * factor for one in values], label, series), origin=day)


def _no_values(label: str, series: tuple[str, ...]) -> Bars:
    return Bars(label, series, ("no values",), tuple((0.0,) for _ in series))


def _axis_scale(values: np.ndarray, label: str, origin: Any) -> tuple[float, str, float | None]:
    """What the values on an axis are multiplied by, its label, and the first day of an axis of dates.

    The label names an integer that was subtracted, or the unit of durations.
    """
    if isinstance(origin, np.timedelta64):
        scale = scale_of(origin, values)
        return scale.factor, f"{label} ({scale.unit.strip()})", None
    if isinstance(origin, int):
        return 1.0, (f"{label} less {origin:,}" if origin else label), None
    return 1.0, label, origin


def value_name(value: float, origin: Any) -> str:
    """A number, a date, a duration or a truth value as a label."""
    return f"{value:.6g}" if origin is None else scale_of(origin, np.array([value])).exact(value)


def _projection(parts: Sequence[np.ndarray]) -> tuple[list[np.ndarray], str]:
    """The standardised columns of a group as one number: of two projections the one with the larger difference."""
    pooled = np.concatenate(parts)
    centre, spread = pooled.mean(axis=0), pooled.std(axis=0)
    spread[spread == 0] = 1.0
    standard = [(part - centre) / spread for part in parts]
    away = [np.sqrt((part**2).mean(axis=1)) for part in standard]
    if not all(len(part) for part in parts):
        return away, "distance from the common centre"
    direction = standard[1].mean(axis=0) - standard[0].mean(axis=0)
    length = float(np.linalg.norm(direction))
    direction = direction / length if length > 0 else np.full(len(direction), len(direction) ** -0.5)
    along = [part @ direction for part in standard]
    if _ks_distance(along) >= _ks_distance(away):
        return along, "along the line through the two means"
    return away, "distance from the common centre"


def _ks_distance(values: Sequence[np.ndarray]) -> float:
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
    return Bars(label, series, tuple(names), _to_rows(shares))


def _histogram(values: Sequence[np.ndarray], label: str, series: tuple[str, ...]) -> Histogram:
    pooled = np.concatenate(values)
    low, high = range_without_outliers(pooled)
    fewest = min(len(value) for value in values)
    bins = int(np.clip(1.2 * fewest**0.5, 8, _BINS))
    edges = np.linspace(low, high, 1 + bins)
    if (pooled == np.floor(pooled)).all():
        # Every bin covers the same number of integers.
        width = np.ceil((high - low + 1.0) / bins)
        edges = np.arange(low - 0.5, high + width, width)
    counts = np.array([np.histogram(value, edges)[0] / max(len(value), 1) for value in values])
    beyond = float(((pooled < low) | (pooled > high)).mean())
    return Histogram(label, series, _to_floats(edges), _to_rows(counts), _to_floats(np.array([beyond]))[0])


def range_without_outliers(values: np.ndarray) -> tuple[float, float]:
    """The range without far outliers, one of which would leave a single bin for all other values."""
    first, third = np.quantile(values, [0.25, 0.75])
    reach = 4.0 * (third - first)
    near = values[(values >= first - reach) & (values <= third + reach)] if reach > 0 else values
    return float(near.min()), float(near.max())


class ShownResponse(NamedTuple):
    """A response as pictures and descriptions show it."""

    values: np.ndarray  # (n,) numbers, or codes of classes
    # What it is called, and what its numbers are, which may be a component of several columns.
    name: str
    label: str
    levels: Sequence[str] | None  # the names of the classes; None for numbers
    origin: float | None  # what was subtracted from the numbers, as in `Table`


def response_picture(table: Table, response: ShownResponse, j: int) -> Picture:
    name = table.names[j]
    origin = table.origin.get(name)
    own, levels = table.levels.get(name), response.levels
    columns = feature_columns(table, j)
    present = present_rows(columns) & ~np.isnan(response.values)
    if not present.any():
        return _no_values(name, (response.label,))
    values, label = first_component(columns[present], name)
    target = response.values[present]
    named = [f"{abbreviated(response.label, LONGEST_RESPONSE)} = {level}" for level in levels or ()]
    if own is not None and levels is not None:
        return _shares_by_level(values.astype(np.intp), target.astype(np.intp), name, own, named)
    if levels is not None:
        codes = target.astype(np.intp)
        groups = [values[codes == level] for level in range(len(levels))]
        if len(levels) <= _FEW_GROUPS and min(len(group) for group in groups):
            return _numbers(groups, label, tuple(named), origin)
        two = np.unique(values)
        if len(two) == 2:  # whose quartiles show no share
            high = f"{label} = {value_name(float(two[1]), origin)}"
            return _share_by_class(values == two[1], codes, high, response.label, levels)
        return _boxes(values, codes, label, response.label, levels, origin)
    if own is not None:
        return _boxes(target, values.astype(np.intp), response.label, name, own, response.origin)
    distinct = np.unique(values)
    if len(distinct) <= _FEW_VALUES:
        named = [value_name(value, origin) for value in distinct.tolist()]
        return _boxes(target, np.searchsorted(distinct, values), response.label, label, named, response.origin)
    factor, label, day = _axis_scale(values, label, origin)
    other_factor, against, other_day = _axis_scale(target, response.label, response.origin)
    picture = _cloud(values * factor, target * other_factor, label, against)
    return replace(picture, origin=day, against_origin=other_day)


def first_component(values: np.ndarray, name: str) -> tuple[np.ndarray, str]:
    """One column as it is; several as their first principal component, in the direction in which the first rises.

    The first of the columns that have the largest part in it, that is, as the sign of a component is arbitrary.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.shape[1] == 1:
        return values[:, 0], name
    spread = values.std(axis=0)
    standard = (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    axis = np.linalg.eigh(standard.T @ standard)[1][:, -1]
    size = np.abs(axis)
    axis = axis * np.sign(axis[int((size >= 0.99 * size.max()).argmax())])
    return standard @ axis, f"{name}, first principal component"


def _shares_by_level(
    codes: np.ndarray, target: np.ndarray, name: str, own: Sequence[str], levels: Sequence[str]
) -> Bars:
    """The shares of the feature's levels within each of the most common levels of the response."""
    common = np.argsort(-np.bincount(target, minlength=len(levels)), kind="stable")[:4]
    groups = [codes[target == level] for level in np.sort(common)]
    kept = [(group, levels[level]) for group, level in zip(groups, np.sort(common), strict=True) if len(group)]
    label = f"{name} (the {len(kept)} most common of {len(levels)} shown)" if len(kept) < len(levels) else name
    return _bars([group for group, _ in kept], label, tuple(level for _, level in kept), own)


def _share_by_class(flags: np.ndarray, codes: np.ndarray, what: str, by: str, levels: Sequence[str]) -> Bars:
    """The share of flagged rows in each of the most common classes."""
    shown = _common_classes(codes, len(levels))
    shares = np.array([[flags[codes == level].mean() for level in shown]])
    return Bars(f"{what} by {by}", (what,), tuple(levels[level] for level in shown), _to_rows(shares))


def _common_classes(codes: np.ndarray, count: int) -> np.ndarray:
    """The most common of the classes that occur, in their order."""
    counts = np.bincount(codes, minlength=count)
    shown = np.sort(np.argsort(-counts, kind="stable")[:_MOST_LEVELS])
    return shown[counts[shown] > 0]


def _boxes(
    values: np.ndarray, codes: np.ndarray, label: str, by: str, levels: Sequence[str], origin: float | None
) -> Boxes:
    shown = _common_classes(codes, len(levels))
    factor, label, origin = _axis_scale(values, label, origin)
    quantiles = [_to_floats(np.quantile(values[codes == level] * factor, _BOX_QUANTILES)) for level in shown]
    return Boxes(label, by, tuple(levels[level] for level in shown), tuple(quantiles), origin)


def _cloud(values: np.ndarray, target: np.ndarray, label: str, against: str) -> Cloud:
    slices = slices_along(values, max(1, min(12, len(values) // 8)))
    middles = [float(np.median(values[part])) for part in slices]
    quartiles = [_to_floats(np.quantile(target[part], [0.25, 0.5, 0.75])) for part in slices]
    some = spaced_rows(len(values), _MOST_POINTS)
    points = tuple((a, b) for a, b in zip(_to_floats(values[some]), _to_floats(target[some]), strict=True))
    return Cloud(label, against, points, _to_floats(np.array(middles)), tuple((q[0], q[1], q[2]) for q in quartiles))


def _to_floats(values: np.ndarray) -> tuple[float, ...]:
    """Python numbers of twelve digits: their spread may be small, as that of seconds since 1970 is."""
    return tuple(float(f"{value:.12g}") for value in np.asarray(values, dtype=float).tolist())


def _to_rows(shares: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(_to_floats(row) for row in shares)
