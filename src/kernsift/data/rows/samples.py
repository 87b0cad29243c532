"""Two samples for `compare`: two tables, or the rows of one table that a column tells apart."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.columns.cells import MICROSECONDS
from kernsift.data.columns.encoding import date_name, number_name, value_label
from kernsift.data.columns.named_columns import take_columns
from kernsift.data.formats import Source, open_table
from kernsift.exceptions import InputError, nearest, quoted
from kernsift.execution.arrays import to_numpy
from kernsift.execution.notes import add_note


class Samples(NamedTuple):
    """Two samples as sources, what they are called, and which rows of one table they are; None for two tables."""

    first: Source
    second: Source
    labels: tuple[str, str]
    rows: tuple[np.ndarray, np.ndarray] | None = None


def as_samples(
    X: Any,
    Y: Any,
    by: Any,
    group: Any = None,
    reference: Any = None,
    *,
    layer: str | None = None,
    memory: int | str | None = None,
) -> Samples:
    """Two tables, or the rows of one table that the column `by` tells apart: first the reference, then the group.

    Without `group` there must be two groups, in the order of the categories. With it the others are the reference,
    unless `reference` names one of them.
    """
    source = open_table(X, "X", memory=memory, layer=layer)
    if by is None:
        for name, value in (("group", group), ("reference", reference)):
            if value is not None:
                raise InputError(f"{name}: names a value of the column `by`, which was not given; pass by= too.")
        if Y is None:
            raise InputError('Y: a second table is needed, got None; pass two tables, or one with by="group".')
        return Samples(source, open_table(Y, "Y", memory=memory, layer=layer), ("X", "Y"))
    if Y is not None:
        raise InputError("by: makes both samples from X; leave out Y, or leave out by.")
    rest, labels = group_rows(source, by)
    second = named_group(labels, group, "group") if group is not None else None
    first = named_group(labels, reference, "reference") if reference is not None else None
    if first is not None and first == second:
        raise InputError(f"reference: must be another group than group, got {first!r} for both; leave out one of them.")
    names = [name for name in labels if name not in (first, second)]
    if second is None and len(labels) > 2:
        every = list(labels)
        raise InputError(
            f"by: {_column_name(by)} has {len(every)} values ({quoted(every)}); choose one with group={every[0]!r} to "
            f"compare with the rest, or with reference={every[1]!r} too; relate(table, by) asks whether any group "
            "differs, and compare_groups(table, by) compares each with the rest."
        )
    if second is None:
        first, second = (names[0], names[1]) if first is None else (first, names[0])
    rows = labels[first] if first is not None else np.any([labels[name] for name in names], axis=0)
    called = first if first is not None else names[0] if len(names) == 1 else f"not {second}"
    check_group_sizes({called: rows, second: labels[second]})
    # "higher in treated = 1" is clearer than "higher in 1".
    column = f"{by} = " if isinstance(by, str) and all(is_code(name) for name in labels) else ""
    titles = (called if first is None and called != names[0] else f"{column}{called}", f"{column}{second}")
    return Samples(rest.where(rows), rest.where(labels[second]), titles, (rows, labels[second]))


def is_code(name: str) -> bool:
    """Whether a group has a number or a truth value for a name."""
    return name in ("True", "False") or name.replace(".", "", 1).lstrip("+-").isdigit()


def group_rows(source: Source, by: Any) -> tuple[Source, dict[str, np.ndarray]]:
    """The table without the column `by`, and for each of its values which rows have it, in the order of categories."""
    rest, cells = take_columns(source, by, "by")
    if len(cells.names) > 1:
        raise InputError(f"by: one column is needed, got {quoted(cells.names)}; choose one.")
    values, names = to_numpy(cells.values)[:, 0], cells.levels.get(0) or ()
    absent = np.isnan(values)
    known = np.unique(values[~absent])
    if absent.any():
        add_note(f"by: {np.count_nonzero(absent):,} of {len(absent):,} rows have no group and are left out.")
    labels = [names[int(value)] if names else value_label(value, cells.kinds[0]) for value in known.tolist()]
    found = {label: values == value for label, value in zip(labels, known.tolist(), strict=True)}
    called = _column_name(by)
    if len(found) < 2:
        only = f"only the value {quoted(found)}" if found else "no value"
        raise InputError(f"by: two groups are needed, but {called} has {only}; choose another column.")
    # Numbers that differ in most rows are measurements, text is an identifier unless the table is very small.
    if len(found) > max(10 if names else 2, 0.5 * len(values)):
        ask = "" if names else ", or ask with relate(table, by) which features depend on it"
        raise InputError(
            f"by: a column of groups is needed, but {called} has {len(found):,} different values in {len(values):,} "
            f"rows; choose another column{ask}."
        )
    return rest, found


def check_group_sizes(labels: Mapping[str, np.ndarray]) -> None:
    """Each group needs two rows."""
    for label, keep in labels.items():
        if np.count_nonzero(keep) < 2:
            raise InputError(
                f"by: at least 2 rows are needed in each group, but '{label}' has {np.count_nonzero(keep)}; add rows, "
                "or leave it out."
            )


def named_group(labels: Mapping[str, np.ndarray], wanted: Any, argument: str) -> str:
    """The label of a group that an argument names."""
    text = number_name(float(wanted)) if isinstance(wanted, Real) and not isinstance(wanted, bool) else str(wanted)
    if isinstance(wanted, datetime) and wanted.tzinfo is not None:
        wanted = wanted.astimezone(UTC).replace(tzinfo=None)
    if isinstance(wanted, date | np.datetime64):
        moment: Any = wanted
        text = date_name(float(np.datetime64(moment, "us").astype(np.int64)) / MICROSECONDS)
    if text not in labels:
        raise InputError(
            f"{argument}: the column `by` has no value '{text}'{nearest(text, labels)}; it has {quoted(labels)}."
        )
    return text


def _column_name(by: Any) -> str:
    return f"'{by}'" if isinstance(by, str) else "the column"
