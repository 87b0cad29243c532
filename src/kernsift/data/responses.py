"""The response of `relate` as a table of one feature: classes, or numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernsift.data.columns.columns import Columns
from kernsift.data.columns.encoding import value_label
from kernsift.data.columns.layout import grouped_layout, layout_of, make_table
from kernsift.data.tables import Table
from kernsift.exceptions import InputError, quoted
from kernsift.execution.arrays import asarray_like, to_numpy
from kernsift.execution.notes import add_note

FEW = 10
"""The most distinct integers of a response that are taken as classes."""


def response_table(target: Columns, response: str) -> Table:
    """The response as one feature, from columns without missing cells."""
    target = _encode_response(target, response)
    name = target.names[0] if target.named and len(target.names) == 1 else "y"
    if len(target.names) == 1:
        target = replace(target, names=(name,))
        answer = make_table(target, layout_of(target, target.levels, origin=target.origin))
    else:
        answer = make_table(target, grouped_layout(target, target.levels, {name: range(len(target.names))}))
    if answer.constant[0]:
        raise InputError(f"y: the response must vary, but all {answer.n} rows are equal; choose another response.")
    if not classes_repeat(answer):
        raise InputError(
            f"y: a response of classes must have classes that repeat, but each of the {answer.n} rows has its own; "
            "pass numbers, or choose another response."
        )
    if answer.categorical[0] and 2 * len(answer.levels[answer.names[0]]) > answer.n:
        add_note(
            f"The response holds {len(answer.levels[answer.names[0]]):,} different values in {answer.n:,} rows, as an "
            "identifier does; few rows have a class in common."
        )
    return answer


def classes_repeat(response: Table) -> bool:
    """Whether some rows of a response have similar values: it is numeric, or a class has more than one row."""
    return not response.categorical[0] or len(np.unique(to_numpy(response.values))) < response.n


def _encode_response(columns: Columns, response: str) -> Columns:
    """Turn response columns into codes, or require numbers, depending on `response`."""
    if response == "numeric":
        if columns.levels:
            names = quoted(columns.names[i] for i in columns.levels)
            hold = "holds" if len(columns.levels) == 1 else "hold"
            raise InputError(
                f"y: response='numeric' needs numbers, but {names} {hold} categories; use response='category'."
            )
        return columns
    coded = [i for i, kind in enumerate(columns.kinds) if response == "category" or kind == "truth"]
    known: dict[int, np.ndarray] = {}
    if response == "auto" and not coded and len(columns.names) == 1 and not columns.levels:
        values = to_numpy(columns.values)[:, 0]
        distinct = known[0] = np.unique(values)
        few = len(distinct) <= FEW and 2 * len(distinct) <= len(values)
        if few and (len(distinct) == 2 or (distinct == np.floor(distinct)).all()):
            coded = [0]
            held = "two different numbers" if len(distinct) == 2 else f"{len(distinct)} different whole numbers"
            held = f"{len(distinct)} different dates" if columns.kinds[0] == "date" else held
            add_note(f"The response holds {held}, taken as classes; response='numeric' takes them as numbers.")
    if not set(coded) - columns.levels.keys():
        return columns
    levels, values = dict(columns.levels), to_numpy(columns.values).copy()
    for i in coded:
        if i not in levels:
            found = known[i] if i in known else np.unique(values[:, i])
            values[:, i] = np.searchsorted(found, values[:, i])
            kind, origin = columns.kinds[i], columns.origin.get(i)
            levels[i] = tuple(value_label(value, kind, origin) for value in found.tolist())
    return replace(columns, values=asarray_like(values, columns.values), levels=levels)
