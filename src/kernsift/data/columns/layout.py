"""Which columns of a table make up which features: one each, unless `groups` puts several together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kernsift.data.columns.cells import DURATION
from kernsift.data.columns.columns import Columns
from kernsift.data.tables import Table, flags_or_none, ranges
from kernsift.exceptions import InputError, nearest, quoted
from kernsift.execution.arrays import asarray_like, namespace, take

if TYPE_CHECKING:
    from kernsift.data.formats.source import Source


class Layout(NamedTuple):
    """Which columns make up which features; the other attributes are as in `Table`.

    Value column i is column `columns[i]` of the table where `codes[i]` is -1; otherwise it indicates which rows of that
    column have the category with this code.
    """

    names: tuple[str, ...]
    offsets: np.ndarray
    categorical: np.ndarray
    levels: Mapping[str, tuple[str, ...]]
    columns: np.ndarray
    codes: np.ndarray
    origin: Mapping[str, float]

    def select(self, features: np.ndarray) -> Layout:
        """The features at these positions, in this order."""
        offsets, places = ranges(self.offsets[features], self.offsets[features + 1])
        names = tuple(self.names[j] for j in features)
        levels = {name: self.levels[name] for name in names if name in self.levels}
        flags, columns, codes = self.categorical[features], self.columns[places], self.codes[places]
        return Layout(names, offsets, flags, levels, columns, codes, self.origin)


Levels = Mapping[int, tuple[str, ...]]
"""The level names of categorical columns, by position."""


def layout_of(
    columns: Columns | Source,
    levels: Levels,
    groups: Mapping[str, Any] | None = None,
    origin: Mapping[int, Any] | None = None,
    durations: Collection[int] = (),
) -> Layout:
    """The features of a table, from the names, the levels and the origins of its columns.

    `durations` are the positions of columns of text that is read as durations.
    """
    starts: dict[str, Any] = {columns.names[i]: start for i, start in (origin or {}).items()}
    for kind, start in (("truth", False), ("duration", DURATION)):
        if kind in columns.kinds:
            starts |= {name: start for name, own in zip(columns.names, columns.kinds, strict=True) if own == kind}
    starts |= {columns.names[i]: DURATION for i in durations}
    if groups:
        return grouped_layout(columns, levels, _members(columns, groups))._replace(origin=starts)
    d = len(columns.names)
    categorical = np.zeros(d, dtype=bool)
    categorical[list(levels)] = True
    named = {columns.names[i]: found for i, found in levels.items()}
    return Layout(tuple(columns.names), np.arange(d + 1), categorical, named, np.arange(d), np.full(d, -1), starts)


def members_of(columns: Columns | Source, groups: Mapping[str, Any] | None) -> dict[str, list[str]]:
    """The names of the columns of each group, which stay when columns are left out."""
    if groups is not None and not isinstance(groups, Mapping):
        raise InputError(
            f"groups: a mapping from group names to lists of columns is needed, got {type(groups).__name__}; pass a "
            'dict such as {"size": ["height", "width"]}.'
        )
    found = _members(columns, groups) if groups else {}
    return {label: [columns.names[i] for i in members] for label, members in found.items()}


def _members(columns: Columns | Source, groups: Mapping[str, Any]) -> dict[str, list[int]]:
    """The column positions of each group; names are looked up, integers are positions where X has no names."""
    where: dict[Any, int] = {name: i for i, name in enumerate(columns.names)}
    owner: dict[int, str] = {}
    members: dict[str, list[int]] = {}
    for group, wanted in groups.items():
        label = str(group)
        if isinstance(wanted, str) or not isinstance(wanted, Iterable):
            raise InputError(f"groups: group '{label}' must be a list of columns, got {wanted!r}; put it in brackets.")
        for column in wanted:
            position = where.get(str(column))
            if position is None and not columns.named and isinstance(column, (int, np.integer)):
                position = int(column) if 0 <= column < len(columns.names) else None
            if position is None:
                raise InputError(
                    f"groups: group '{label}' asks for column '{column}', which X does not have"
                    f"{nearest(str(column), columns.names)}; name one of its {len(columns.names)} columns."
                )
            if position in owner:
                raise InputError(
                    f"groups: column '{columns.names[position]}' is in group '{owner[position]}' already and cannot be "
                    f"in '{label}' again; leave it in one."
                )
            owner[position] = label
            members.setdefault(label, []).append(position)
        if label not in members:
            raise InputError(f"groups: group '{label}' is empty; give it a column or leave it out.")
    clash = [label for label in members if label in where and where[label] not in owner]
    if clash or len(members) < len(groups):
        clash = clash or [str(group) for group in groups]
        raise InputError(f"groups: {quoted(clash)} would name two features at once; rename the group.")
    return members


def grouped_layout(columns: Columns | Source, levels: Levels, members: Mapping[str, Sequence[int]]) -> Layout:
    """Features in order of first appearance; categories inside a group become one indicator column per level."""
    owner = {i: label for label, positions in members.items() for i in positions}
    codes = {i: range(len(levels[i])) if i in levels else [-1] for i in owner}
    inside = {label: [(i, code) for i in positions for code in codes[i]] for label, positions in members.items()}
    features: dict[str, list[tuple[int, int]]] = {}
    for i, name in enumerate(columns.names):
        features[owner.get(i, name)] = inside[owner[i]] if i in owner else [(i, -1)]
    own = {name: levels[i] for i, name in enumerate(columns.names) if i not in owner and i in levels}
    places = np.array([place for piece in features.values() for place in piece], dtype=np.intp)
    offsets = np.concatenate([[0], np.cumsum([len(piece) for piece in features.values()])])
    categorical = np.array([name in own for name in features])
    return Layout(tuple(features), offsets, categorical, own, places[:, 0], places[:, 1], {})


def make_table(columns: Columns, layout: Layout) -> Table:
    """The features of columns in memory."""
    values = columns.values
    if not np.array_equal(layout.columns, np.arange(values.shape[1])):
        values = take(values, layout.columns, 1)
    hot = layout.codes >= 0
    if hot.any():
        xp = namespace(values)
        indicators = xp.astype(values == asarray_like(layout.codes.astype(float), values), values.dtype)
        values = xp.where(asarray_like(hot, values) & ~xp.isnan(values), indicators, values)
    incomplete = flags_or_none(columns.incomplete[layout.columns])
    return Table(layout.names, values, layout.offsets, layout.categorical, layout.levels, incomplete, layout.origin)
