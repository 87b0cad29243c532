"""Columns that an argument names: taken out of any kind of table, or given as values of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import narwhals as nw
import numpy as np

from kernsift.data.anndata import is_anndata
from kernsift.data.columns import Columns, quoted, read_columns
from kernsift.data.formats import open_source, points_outside
from kernsift.exceptions import InputError


def take_columns(data: Any, wanted: Any, argument: str, *, table: str = "X") -> tuple[Any, Columns]:
    """A table without some of its columns, and these columns in memory.

    Parameters
    ----------
    data : any table that `compare` and `relate` take: a data frame, a dictionary of columns, an AnnData object (names
        are looked up in `obs`, which is no part of the features), a path, a Dask collection or a `Source`.
    wanted : a column name, a list of names, or the values themselves: an array, series or table with one row for each
        row of `data`, which then stays as it is.
    argument : what error messages call `wanted`.
    table : what error messages call `data`.

    Returns
    -------
    rest : the table without these columns: of the same kind, or a `Source` for what is outside of memory.
    columns : the columns as numbers and codes, with their levels and missing values.

    Examples
    --------
    >>> from kernsift.data.named_columns import take_columns
    >>> rest, site = take_columns({"size": [1, 2, 3], "site": ["a", "b", "a"]}, "site", "strata")
    >>> list(rest), site.levels[0], site.values[:, 0].tolist()
    (['size'], ('a', 'b'), [0.0, 1.0, 0.0])
    """
    if points_outside(data):
        data = open_source(data, table)
    names, rows = _names(data), _rows(data)
    if not _is_names(wanted, names, rows):
        columns = read_columns(wanted, argument, prefix=argument)
        if rows is not None and columns.n != rows:
            raise InputError(
                f"{argument}: one value for each row of {table} is needed, but {table} has {rows} rows and {argument} "
                f"has {columns.n}; check that both come from the same rows."
            )
        return data, columns
    asked = list(dict.fromkeys([wanted] if isinstance(wanted, str) else wanted))
    if not names:
        raise InputError(
            f"{argument}: {quoted(asked)} cannot name columns of {table}, which has none; pass {table} as a data "
            f"frame, or {argument} as data."
        )
    for name in asked:
        if name not in names:
            raise InputError(
                f"{argument}: {table} has no column '{name}'{nearest(name, names)}; pass a column name of {table}, or "
                "data."
            )
    return _split(data, asked, argument)


def _names(data: Any) -> list[str]:
    """The columns that can be named; none for arrays."""
    if is_anndata(data):
        return [str(name) for name in data.obs.columns]
    if hasattr(data, "named") and hasattr(data, "names"):  # a source
        return list(data.names) if data.named else []
    if isinstance(data, Mapping):
        return [str(name) for name in data]
    frame = nw.from_native(data, pass_through=True)
    return [str(name) for name in frame.columns] if isinstance(frame, nw.DataFrame) else []


def _rows(data: Any) -> int | None:
    if hasattr(data, "edges"):  # a source
        return int(data.n)
    if isinstance(data, Mapping):
        return len(next(iter(data.values()))) if data else 0
    shape = getattr(data, "shape", None)
    if shape:
        return int(shape[0])
    return len(data) if isinstance(data, (list, tuple)) else None


def _is_names(wanted: Any, names: list[str], rows: int | None) -> bool:
    """A list of strings is either names or one label for each row; labels repeat or are no column names."""
    if isinstance(wanted, str):
        return True
    if not (isinstance(wanted, (list, tuple)) and wanted and all(isinstance(name, str) for name in wanted)):
        return False
    distinct = len(set(wanted)) == len(wanted) and set(wanted) <= set(names)
    return distinct or len(wanted) != rows


def _split(data: Any, asked: list[str], argument: str) -> tuple[Any, Columns]:
    if is_anndata(data):
        return data, read_columns(data.obs[asked], argument)
    if hasattr(data, "edges"):
        own = [data.names.index(name) for name in asked]
        rest = np.setdiff1d(np.arange(len(data.names)), own)
        return data.pick(rest.tolist()), data.read(own, 0, data.n)
    if isinstance(data, Mapping):
        parts = [read_columns(data[name], argument) for name in asked]
        columns = Columns(
            tuple(asked),
            np.concatenate([part.values for part in parts], axis=1),
            {i: part.levels[0] for i, part in enumerate(parts) if part.levels},
            np.concatenate([part.boolean for part in parts]),
            True,
            False,
        )
        return {name: column for name, column in data.items() if name not in asked}, columns
    frame = nw.from_native(data)
    original = {str(name): name for name in frame.columns}
    own = [original[name] for name in asked]
    return frame.drop(own).to_native(), read_columns(frame.select(own).to_native(), argument)


def nearest(name: str, names: Iterable[str]) -> str:
    """A parenthesis with the most similar name, or nothing where none is similar."""
    lowered = {known.lower(): known for known in names}
    close = get_close_matches(name.lower(), lowered, n=1)
    return f" (did you mean '{lowered[close[0]]}'?)" if close else ""
