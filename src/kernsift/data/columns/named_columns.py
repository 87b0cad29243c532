"""Columns that an argument names: taken out of any kind of table, or given as values of their own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from kernsift.data.columns.columns import Columns
from kernsift.data.columns.kinds import split_kinds
from kernsift.data.formats import Source
from kernsift.data.formats.in_memory import MemorySource, loaded
from kernsift.data.frames import read_columns, side_by_side
from kernsift.exceptions import InputError, check_row_count, nearest, quoted
from kernsift.execution.notes import add_note


def as_column_name(value: Any) -> Any:
    """An integer, which names a column where pandas gave the names, as text, like all names; anything else as it is."""
    return str(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def column_names(value: Any) -> list[str]:
    """The column names that an argument consists of; none where it is data."""
    names = list(value) if isinstance(value, list | tuple) else [value]
    return names if all(isinstance(name, str) for name in names) else []


def kinds_of_features(kinds: Any, features: Sequence[str], *arguments: Any) -> Any:
    """`kinds` without the entries for columns that other arguments name and that are therefore no features."""
    named = {name for value in arguments for name in column_names(value)}
    return split_kinds(kinds, named.difference(features))[1]


def take_columns(source: Source, wanted: Any, argument: str) -> tuple[Source, Columns]:
    """Like `split_columns`, with the columns in memory; the table must keep at least one column."""
    rest, columns = split_columns(source, wanted, argument)
    if not len(rest.names):
        raise InputError(
            f"{source.argument}: no column is left beside {argument} {quoted(columns.names)}; pass more columns."
        )
    return rest, loaded(columns).columns


def split_columns(source: Source, wanted: Any, argument: str) -> tuple[Source, Source]:
    """A table without some of its columns, and these columns.

    `wanted` is a column name or a list of names, which are also looked up in the annotations of the table, or the
    values themselves, one row for each row of the table, which then stays as it is. `argument` is what error messages
    call it.
    """
    table = source.argument
    own = list(source.names) if source.named else []
    aside = source.annotations.names if source.annotations is not None else []
    if not _is_names(wanted, {*own, *aside}, source.n):
        columns = read_columns(wanted, argument, prefix=argument) if not isinstance(wanted, Source) else wanted
        fix = ""
        if isinstance(wanted, list) and wanted and set(map(str, wanted)) <= {*own, *aside}:
            fix = f"to name columns, pass text, as in {list(map(str, wanted))}"
        check_row_count(argument, columns.n, source.n, table, fix)
        return source, columns if isinstance(columns, Source) else MemorySource(columns, argument)
    asked = list(dict.fromkeys([wanted] if isinstance(wanted, str) else wanted))
    if not own and not aside:
        raise InputError(
            f"{argument}: {quoted(asked)} cannot name columns of {table}, which has none; pass {table} as a data "
            f"frame, or {argument} as data."
        )
    known = {*own, *aside}
    for name in asked:
        if name not in known:
            # Among thousands of genes some have a similar name.
            has = f"; its obs has {quoted(aside)}" if aside else f"; it has {quoted(own)}"
            hint = nearest(name, aside or known) or has
            labels = not isinstance(wanted, str) and len(set(wanted)) < len(wanted)
            data = f"one value for each of its {source.n:,} rows, not {len(wanted):,}" if labels else "data"
            raise InputError(
                f"{argument}: {table} has no column '{name}'{hint}; pass a column name of {table}, or {data}."
            )
    if source.annotations is not None and set(asked) <= set(aside):
        parts = [source.annotations.column(name, argument) for name in asked]
        return source, MemorySource(parts[0] if len(parts) == 1 else side_by_side(parts, asked, argument), argument)
    if not set(asked) <= set(own):
        raise InputError(f"{argument}: {quoted(asked)} are partly columns of obs; name columns of one of the two.")
    place = {name: i for i, name in enumerate(own)}
    taken = [place[name] for name in asked]
    found = source.pick(taken, asked)
    found.argument = argument
    return source.pick(np.setdiff1d(np.arange(len(own)), taken).tolist()), found


def _is_names(wanted: Any, names: set[str], rows: int) -> bool:
    """Whether these are column names; a list of strings may also be one label per row, which repeat or are unknown."""
    if isinstance(wanted, str):
        return True
    named = column_names(wanted)
    distinct = len(set(named)) == len(named) and set(named) <= names
    return bool(named) and (distinct or len(named) != rows)


def align(first: Source, second: Source) -> tuple[Source, Source]:
    """The second table with the columns of the first, by name where both have names and else by position."""
    one, other = first.argument, second.argument
    if not (first.named and second.named) or (first.flat and second.flat):
        if len(first.names) != len(second.names):
            raise InputError(
                f"{other}: as many columns as in {one} are needed, but {one} has shape {(first.n, len(first.names))} "
                f"and {other} has shape {(second.n, len(second.names))}; pass the same columns in both."
            )
        named = first if first.named or not second.named else second
        return first.renamed(named.names, named.named), second.renamed(named.names, named.named)
    if first.names == second.names:
        return first, second
    first, second = _without_nameless(first, second), _without_nameless(second, first)
    where = {name: i for i, name in enumerate(second.names)}
    known = set(first.names)
    lacking = [name for name in first.names if name not in where]
    extra = [name for name in second.names if name not in known]
    if lacking or extra:
        found = [f"{other} lacks {quoted(lacking)}{nearest(lacking[0], extra or second.names)}"] if lacking else []
        found += [f"{one} lacks {quoted(extra)}{'' if lacking else nearest(extra[0], first.names)}"] if extra else []
        raise InputError(
            f"{other}: the same columns as in {one} are needed, but {' and '.join(found)}; rename or drop columns."
        )
    return first, second.pick([where[name] for name in first.names])


def _without_nameless(one: Source, other: Source) -> Source:
    """Without unnamed columns, such as row names, that the other table lacks."""
    known = set(other.names)
    nameless = [name for name in one.names if name not in known and re.fullmatch(r"Unnamed: \d+", name)]
    if not nameless:
        return one
    add_note(f"{one.argument}: without a name and not in {other.argument}, so left out: {quoted(nameless)}.")
    return one.pick([i for i, name in enumerate(one.names) if name not in nameless])
