"""What a picture of a selected feature needs, and no more: counts and quantiles instead of the data.

A result carries these records, so that it can be drawn, kept and sent without the tables it came from. They are made
of tuples of plain numbers and names, a few kilobytes for each feature, and only when somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import overload

import numpy as np

from kernsift.data.tables import Table
from kernsift.execution.arrays import to_numpy

MOST_PICTURES = 200
"""Only the best features are pictured when more are selected."""

# A picture shows no more than this many rows can tell.
_ROWS, _POINTS = 5_000, 250
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


class Album(Sequence[Picture]):
    """Pictures made when somebody looks: most results are read as numbers, and drawing costs more than testing.

    Until then it holds some rows of the features in question, afterwards only the pictures.
    """

    def __init__(self, draw: Callable[[], tuple[Picture, ...]], count: int) -> None:
        self._draw: Callable[[], tuple[Picture, ...]] | None = draw
        self._count = count
        self._pictures: tuple[Picture, ...] = ()

    def _drawn(self) -> tuple[Picture, ...]:
        if self._draw is not None:
            self._pictures, self._draw = self._draw(), None
        return self._pictures

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Picture: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Picture, ...]: ...
    def __getitem__(self, place: int | slice) -> Picture | tuple[Picture, ...]:
        return self._drawn()[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Album | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(self._drawn())


def picture_samples(tables: Sequence[Table], series: Sequence[str], features: np.ndarray) -> Album:
    """Each feature in several samples that have the same features."""
    chosen = features[:MOST_PICTURES]
    parts = [_thinned(table.select(chosen)) for table in tables]
    return Album(partial(_draw_samples, parts, tuple(series)), len(chosen))


def _draw_samples(parts: Sequence[Table], series: tuple[str, ...]) -> tuple[Picture, ...]:
    return tuple(_samples(parts, series, j) for j in range(parts[0].d))


def picture_candidates(
    reference: Table, candidates: Sequence[Table], names: Sequence[str], features: np.ndarray
) -> Album:
    """Each chosen candidate data set beside the reference."""
    chosen = features[:MOST_PICTURES].tolist()
    others = [(names[position], _thinned(candidates[position])) for position in chosen]
    return Album(partial(_draw_candidates, _thinned(reference), others), len(others))


def _draw_candidates(base: Table, others: Sequence[tuple[str, Table]]) -> tuple[Picture, ...]:
    return tuple(_samples((base, table), ("reference", name), 0, name) for name, table in others)


def picture_response(X: Table, y: Table, features: np.ndarray) -> Album:
    """Each feature against the response."""
    chosen = features[:MOST_PICTURES]
    return Album(partial(_draw_response, _thinned(X.select(chosen)), _thinned(y)), len(chosen))


def _draw_response(table: Table, response: Table) -> tuple[Picture, ...]:
    target, target_label = _line(response.values, response.names[0])
    levels = response.levels.get(response.names[0])
    return tuple(_against(table, j, target, target_label, levels) for j in range(table.d))


def renamed(pictures: Sequence[Picture], series: tuple[str, ...]) -> Album:
    """The pictures with other names for the samples."""
    return Album(partial(_draw_renamed, pictures, series), len(pictures))


def _draw_renamed(pictures: Sequence[Picture], series: tuple[str, ...]) -> tuple[Picture, ...]:
    return tuple(replace(one, series=series) if isinstance(one, Histogram | Bars) else one for one in pictures)


def _thinned(table: Table) -> Table:
    """At most so many rows, evenly spread; nothing is drawn, so a picture changes no random number of the tests."""
    if table.n > _ROWS:
        table = table.take(np.linspace(0, table.n - 1, _ROWS).astype(np.intp))
    values = to_numpy(table.part(slice(None)))
    return Table(table.names, values, table.offsets, table.categorical, table.levels)


# Two samples ---------------------------------------------------------------------------------------------------------


def _samples(tables: Sequence[Table], series: tuple[str, ...], j: int, label: str | None = None) -> Picture:
    first = tables[0]
    name = first.names[j]
    columns = slice(first.offsets[j], first.offsets[j + 1])
    parts = [np.asarray(table.values[:, columns], dtype=np.float64) for table in tables]
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
    shares = counts / counts.sum(axis=1, keepdims=True)
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
    edges = np.linspace(low, high, 1 + int(np.clip(1.2 * fewest**0.5, 8, _BINS)))
    counts = np.array([np.histogram(value, edges)[0] / len(value) for value in values])
    beyond = float(((pooled < low) | (pooled > high)).mean())
    return Histogram(label, series, _plain(edges), _rounded(counts), _plain(np.array([beyond]))[0])


def usual_range(values: np.ndarray) -> tuple[float, float]:
    """Where values lie but for those far out, as one of these would leave a single bin for all the others."""
    first, third = np.quantile(values, [0.25, 0.75])
    reach = 4.0 * (third - first)
    near = values[(values >= first - reach) & (values <= third + reach)] if reach > 0 else values
    return float(near.min()), float(near.max())


# Against a response --------------------------------------------------------------------------------------------------


def _against(table: Table, j: int, target: np.ndarray, target_label: str, levels: Sequence[str] | None) -> Picture:
    name = table.names[j]
    own = table.levels.get(name)
    values, label = _line(table.values[:, table.offsets[j] : table.offsets[j + 1]], name)
    if own is not None and levels is not None:
        named = [f"{target_label} = {level}" for level in levels]
        return _shares_by_level(values.astype(np.intp), target.astype(np.intp), name, own, named)
    if levels is not None:
        codes = target.astype(np.intp)
        groups = [values[codes == level] for level in range(len(levels))]
        if len(levels) <= _FEW_GROUPS and min(len(group) for group in groups):
            return _numbers(groups, label, tuple(f"{target_label} = {level}" for level in levels))
        return _boxes(values, target.astype(np.intp), label, target_label, levels)
    if own is not None:
        return _boxes(target, values.astype(np.intp), target_label, name, own)
    return _cloud(values, target, label, target_label)


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
    some = np.linspace(0, len(values) - 1, min(_POINTS, len(values))).astype(np.intp)
    points = tuple((a, b) for a, b in zip(_plain(values[some]), _plain(target[some]), strict=True))
    return Cloud(label, against, points, _plain(np.array(middles)), tuple((q[0], q[1], q[2]) for q in quartiles))


def _plain(values: np.ndarray) -> tuple[float, ...]:
    """Python numbers of six digits: what a picture can show."""
    return tuple(float(f"{value:.6g}") for value in np.asarray(values, dtype=float).tolist())


def _rounded(shares: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(_plain(row) for row in shares)
