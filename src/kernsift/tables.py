"""The door: whatever the user holds becomes a `Table`, and every complaint about data is raised here.

A `Table` is a float array whose columns are cut into features. One column is one feature unless `groups` says
otherwise; categories are codes; nothing is missing or infinite. Everything behind this file trusts that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np

from kernsift.columns import Columns, InputError, complete_rows, keep_rows, quoted, read_columns, settle

__all__ = ["InputError", "Table", "as_candidates", "as_pair", "as_table", "as_xy", "stack"]


@dataclass(frozen=True)
class Table:
    """Rows of d features, each owning one or more columns of `values`.

    Attributes
    ----------
    names : the d feature names.
    values : (n, p) float64, or float32 where all the input was; a categorical column holds codes 0..L-1.
    offsets : (d+1,); feature j owns the columns `offsets[j]:offsets[j+1]`.
    categorical : (d,) bool; a categorical feature has exactly one column.
    levels : the level names of each categorical feature, in the order of its codes.
    """

    names: tuple[str, ...]
    values: np.ndarray
    offsets: np.ndarray
    categorical: np.ndarray
    levels: Mapping[str, tuple[str, ...]]

    @property
    def n(self) -> int:
        """Rows."""
        return int(self.values.shape[0])

    @property
    def d(self) -> int:
        """Features."""
        return len(self.names)

    @cached_property
    def constant(self) -> np.ndarray:
        """(d,) bool: the features all of whose rows are equal."""
        flat = self.values.min(axis=0) == self.values.max(axis=0)
        return np.logical_and.reduceat(flat, self.offsets[:-1])

    def take(self, rows: np.ndarray) -> Table:
        """The rows at these positions, in this order, repeats allowed."""
        return replace(self, values=np.take(self.values, rows, axis=0))

    def select(self, features: np.ndarray) -> Table:
        """The features at these positions, in this order."""
        chosen = np.asarray(features, dtype=np.intp)
        offsets, columns = _ranges(self.offsets[chosen], self.offsets[chosen + 1])
        names = tuple(self.names[j] for j in chosen)
        return Table(
            names=names,
            values=np.take(self.values, columns, axis=1),
            offsets=offsets,
            categorical=self.categorical[chosen],
            levels={name: self.levels[name] for name in names if name in self.levels},
        )


def stack(tables: Sequence[Table]) -> Table:
    """The rows of several tables with the same features and codes, one below the other."""
    return replace(tables[0], values=np.concatenate([table.values for table in tables]))


def as_table(X: Any, *, argument: str = "X", groups: Mapping[str, Any] | None = None, missing: str = "error") -> Table:
    """One sample as a Table; `argument` is what error messages call it.

    Examples
    --------
    >>> from kernsift.tables import as_table
    >>> table = as_table([[1, "red"], [2, "blue"], [4, "red"]])
    >>> table.names, table.levels
    (('x0', 'x1'), {'x1': ('blue', 'red')})
    >>> table.values[:, 1].tolist()
    [1.0, 0.0, 1.0]
    """
    _check_choice("missing", missing, ("error", "drop"))
    columns = read_columns(X, argument)
    columns = keep_rows(columns, complete_rows(columns, argument, missing), argument)
    return _table(settle([columns], [argument])[0], groups)


def as_pair(X: Any, Y: Any, *, groups: Mapping[str, Any] | None = None, missing: str = "error") -> tuple[Table, Table]:
    """Two samples with the same features in the same order (that of X) and with the same codes."""
    _check_choice("missing", missing, ("error", "drop"))
    first, second = _align(read_columns(X, "X"), read_columns(Y, "Y"), "X", "Y")
    first = keep_rows(first, complete_rows(first, "X", missing), "X")
    second = keep_rows(second, complete_rows(second, "Y", missing), "Y")
    differing = sorted(first.levels.keys() ^ second.levels.keys())
    if differing:
        numeric, strings = ("Y", "X") if differing[0] in first.levels else ("X", "Y")
        raise InputError(
            f"Y: column '{first.names[differing[0]]}' must be of the same kind as in X, but it holds numbers in "
            f"{numeric} and categories in {strings}; convert one of them."
        )
    first, second = settle([first, second], ["X", "Y"])
    return _table(first, groups), _table(second, groups)


def as_xy(
    X: Any, y: Any, *, groups: Mapping[str, Any] | None = None, missing: str = "error", response: str = "auto"
) -> tuple[Table, Table]:
    """Features and a response, row by row; the response is a Table with one feature, a group if it has several columns.

    `y` may name columns of X, which then leave X. `response="auto"` takes strings, categoricals and truth values as
    categories and other numbers as numbers; "category" and "numeric" insist.
    """
    _check_choice("missing", missing, ("error", "drop"))
    _check_choice("response", response, ("auto", "numeric", "category"))
    features, target = _split_response(read_columns(X, "X"), y)
    if len(features.values) != len(target.values):
        raise InputError(
            f"y: one response for each row of X is needed, but X has {len(features.values)} rows and y has "
            f"{len(target.values)}; check that both come from the same rows."
        )
    keep = complete_rows(features, "X", missing) & complete_rows(target, "y", missing)
    features, target = keep_rows(features, keep, "X"), keep_rows(target, keep, "y")
    target = _respond(settle([target], ["y"])[0], response)
    name = target.names[0] if target.named and len(target.names) == 1 else "y"
    if len(target.names) == 1:
        answer = _table(replace(target, names=(name,)), None)
    else:
        answer = _grouped(target, {name: list(range(len(target.names)))})
    if answer.constant[0]:
        raise InputError(f"y: the response must vary, but all {answer.n} rows are equal; choose another response.")
    return _table(settle([features], ["X"])[0], groups), answer


def as_candidates(reference: Any, candidates: Mapping[str, Any]) -> tuple[Table, dict[str, Table]]:
    """A reference data set and others to hold against it, each a Table with one feature that owns all its columns."""
    if not isinstance(candidates, Mapping):
        raise InputError(
            f"candidates: a mapping from names to data sets is needed, got {type(candidates).__name__}; pass a dict "
            'such as {"a": A, "b": B}.'
        )
    if not candidates:
        raise InputError("candidates: at least one data set is needed, got an empty mapping; add one.")
    labels = [str(name) for name in candidates]
    if len(set(labels)) < len(labels):
        raise InputError(f"candidates: names must be unique as text, got {quoted(labels)}; rename them.")
    arguments = ["reference", *(f"candidates['{label}']" for label in labels)]
    first = read_columns(reference, "reference")
    parts = [first]
    for argument, data in zip(arguments[1:], candidates.values(), strict=True):
        parts.append(_align(first, read_columns(data, argument), "reference", argument)[1])
    for argument, part in zip(arguments, parts, strict=True):
        if part.levels:
            raise InputError(
                f"{argument}: whole data sets are compared on numbers, but "
                f"{quoted(part.names[i] for i in part.levels)} hold categories; drop or encode these columns."
            )
        complete_rows(part, argument, None)
    everything = list(range(len(first.names)))
    settled = settle(parts, arguments)
    tables = [_grouped(part, {name: everything}) for part, name in zip(settled, ["reference", *labels], strict=True)]
    return tables[0], dict(zip(labels, tables[1:], strict=True))


# Columns -------------------------------------------------------------------------------------------------------------


def _align(first: Columns, second: Columns, one: str, other: str) -> tuple[Columns, Columns]:
    """The second table with the columns of the first, by name where both have names and else by position."""
    if not (first.named and second.named) or (first.flat and second.flat):
        if len(first.names) != len(second.names):
            raise InputError(
                f"{other}: as many columns as in {one} are needed, but {one} has shape {first.values.shape} and "
                f"{other} has shape {second.values.shape}; pass the same columns in both."
            )
        names = first.names if first.named or not second.named else second.names
        named = first.named or second.named
        return replace(first, names=names, named=named), replace(second, names=names, named=named)
    if first.names == second.names:
        return first, second
    where = {name: i for i, name in enumerate(second.names)}
    known = set(first.names)
    lacking = [name for name in first.names if name not in where]
    extra = [name for name in second.names if name not in known]
    if lacking or extra:
        found = [f"{other} lacks {quoted(lacking)}{_nearest(lacking[0], extra or second.names)}"] if lacking else []
        found += [f"{one} lacks {quoted(extra)}{'' if lacking else _nearest(extra[0], first.names)}"] if extra else []
        raise InputError(
            f"{other}: the same columns as in {one} are needed, but {' and '.join(found)}; rename or drop columns."
        )
    return first, second.pick([where[name] for name in first.names])


def _split_response(table: Columns, y: Any) -> tuple[Columns, Columns]:
    """The features and the response, which is read on its own or taken out of the table by name."""
    if isinstance(y, str):
        wanted = [y]
    elif isinstance(y, (list, tuple)) and y and all(isinstance(name, str) for name in y):
        wanted = list(y)
        # A list of strings is either names or one label for each row; labels repeat or are no column names.
        distinct = len(set(wanted)) == len(wanted) and set(wanted) <= set(table.names)
        if len(wanted) == len(table.values) and not (table.named and distinct):
            return table, read_columns(y, "y", prefix="y")
    else:
        return table, read_columns(y, "y", prefix="y")
    if not table.named:
        raise InputError(
            f"y: {quoted(wanted)} cannot name columns of X, which has none; pass X as a data frame, or y as data."
        )
    where = {name: i for i, name in enumerate(table.names)}
    for name in wanted:
        if name not in where:
            raise InputError(
                f"y: X has no column '{name}'{_nearest(name, table.names)}; pass a column name of X, or data."
            )
    taken = list(dict.fromkeys(where[name] for name in wanted))
    rest = np.setdiff1d(np.arange(len(table.names)), taken)
    if not rest.size:
        raise InputError(f"X: no column is left beside the response {quoted(wanted)}; pass more columns.")
    return table.pick(rest.tolist()), table.pick(taken)


def _respond(columns: Columns, response: str) -> Columns:
    """Turn response columns into codes, or insist on numbers, as `response` says."""
    if response == "numeric":
        if columns.levels:
            names = quoted(columns.names[i] for i in columns.levels)
            raise InputError(
                f"y: response='numeric' needs numbers, but {names} holds categories; use response='category'."
            )
        return columns
    levels, values = dict(columns.levels), columns.values.copy()
    for i in range(len(columns.names)):
        if i not in levels and (response == "category" or columns.boolean[i]):
            found, values[:, i] = np.unique(columns.values[:, i], return_inverse=True)
            level: Callable[[float], str] = (lambda v: str(bool(v))) if columns.boolean[i] else _number_name
            levels[i] = tuple(level(float(value)) for value in found)
    return replace(columns, values=values, levels=levels)


def _number_name(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


# Features ------------------------------------------------------------------------------------------------------------


def _table(columns: Columns, groups: Mapping[str, Any] | None) -> Table:
    if groups is not None and not isinstance(groups, Mapping):
        raise InputError(
            f"groups: a mapping from group names to lists of columns is needed, got {type(groups).__name__}; pass a "
            'dict such as {"size": ["height", "width"]}.'
        )
    if groups:
        return _grouped(columns, _members(columns, groups))
    d = len(columns.names)
    categorical = np.zeros(d, dtype=bool)
    categorical[list(columns.levels)] = True
    levels = {columns.names[i]: found for i, found in columns.levels.items()}
    return Table(columns.names, columns.values, np.arange(d + 1), categorical, levels)


def _members(columns: Columns, groups: Mapping[str, Any]) -> dict[str, list[int]]:
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
                    f"{_nearest(str(column), columns.names)}; name one of its {len(columns.names)} columns."
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


def _grouped(columns: Columns, members: Mapping[str, Sequence[int]]) -> Table:
    """Features in order of first appearance; categories inside a group become one indicator column per level."""
    blocks, width = [columns.values], columns.values.shape[1]
    owner: dict[int, str] = {}
    pieces: dict[str, list[int]] = {label: [] for label in members}
    for label, positions in members.items():
        for i in positions:
            owner[i] = label
            if i not in columns.levels:
                pieces[label].append(i)
                continue
            codes = np.arange(len(columns.levels[i]))
            blocks.append((columns.values[:, i, None] == codes).astype(columns.values.dtype))
            pieces[label].extend(range(width, width + len(codes)))
            width += len(codes)
    features: dict[str, list[int]] = {}
    for i, name in enumerate(columns.names):
        label = owner.get(i, name)
        features[label] = pieces[label] if i in owner else [i]
    names = tuple(features)
    own = {name: i for i, name in enumerate(columns.names) if i not in owner}
    levels = {name: columns.levels[own[name]] for name in names if name in own and own[name] in columns.levels}
    values = np.concatenate(blocks, axis=1) if len(blocks) > 1 else columns.values
    order = np.concatenate([np.asarray(piece, dtype=np.intp) for piece in features.values()])
    return Table(
        names=names,
        values=np.take(values, order, axis=1),
        offsets=np.concatenate([[0], np.cumsum([len(piece) for piece in features.values()])]),
        categorical=np.array([name in levels for name in names]),
        levels=levels,
    )


# Names ---------------------------------------------------------------------------------------------------------------


def _ranges(starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets of the ranges put end to end, and their members one after the other."""
    offsets = np.concatenate([[0], np.cumsum(stops - starts)])
    return offsets, np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], stops - starts)


def _nearest(name: str, names: Iterable[str]) -> str:
    """A parenthesis with the most similar name, or nothing where none is similar."""
    lowered = {known.lower(): known for known in names}
    close = get_close_matches(name.lower(), lowered, n=1)
    return f" (did you mean '{lowered[close[0]]}'?)" if close else ""


def _check_choice(argument: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        options = ", ".join(f"'{choice}'" for choice in choices)
        raise InputError(f"{argument}: one of {options} is needed, got {value!r}; choose one of them.")
