"""Columns that look like identifiers of subjects: rows of a subject are not independent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from kernsift.data.formats.source import Annotations, recode
from kernsift.data.rows.exchangeability import varies
from kernsift.data.sparse import SparseTable
from kernsift.data.table_parts import run_of
from kernsift.data.tables import Table, spaced_rows
from kernsift.exceptions import InputError
from kernsift.execution.arrays import to_numpy
from kernsift.execution.notes import add_note

# The fewest values of an identifier, and the most columns of features and of `obs` that are checked for being one.
_FEWEST_SUBJECTS, _CHECKED, _DESCRIBED = 6, 16, 64
# Rows that are checked first.
_SAMPLED_ROWS = 512


def note_identifiers(
    table: Table,
    response: Callable[[], np.ndarray],
    described: Sequence[Annotations | None],
    keep: np.ndarray | None,
    used: Any,
    belongs: str,
) -> None:
    """Note columns that look like identifiers of subjects: values repeat, each with one response.

    Parameters
    ----------
    table, response : the features, and a function that gives the response (n,) as codes.
    described : columns that describe the rows of each table, such as `obs` of AnnData objects.
    keep : which of their rows are in the table.
    used : the name of one of these that the response comes from.
    belongs : what the note says of the rows with a value, such as "in one sample".
    """
    if table.n < 2 * _FEWEST_SUBJECTS:
        return
    response = cache(response)
    found = dict(_identifiers(table, response))
    tables = [one for one in described if one is not None]
    if tables and len(tables) == len(described):
        for name in [name for name in tables[0].names if name != used][:_DESCRIBED]:
            if all(name in one.names for one in tables):
                column = _described(tables, name)
                found[name] = _subjects(column if keep is None else column[keep], response())
    for name, count in found.items():
        if count:
            add_note(
                f"'{name}' looks like an identifier: its {count:,} values repeat, each {belongs}. If rows with the "
                f"same value are not independent, p-values are too small; use unit='{name}'."
            )


def _identifiers(table: Table, response: Callable[[], np.ndarray]) -> Iterator[tuple[str, int]]:
    """Names of the features that may be identifiers, and their numbers of subjects."""
    if isinstance(table, SparseTable):  # whose columns are mostly 0, which identifiers are not
        return
    # Dates and durations that repeat identify no subject; two tables of different months share no day.
    times = {name for name, origin in table.origin.items() if isinstance(origin, float | np.timedelta64)}
    single = np.flatnonzero(np.diff(table.offsets) == 1)
    if times:
        single = single[[table.names[feature] not in times for feature in single.tolist()]]
    # A few rows suffice to exclude most columns with fractions. Rows of a subject are often adjacent, so that the first
    # rows may have one value.
    row_sets: Iterable[np.ndarray] = (spaced_rows(rows, _SAMPLED_ROWS) for rows in (_FEWEST_SUBJECTS, table.n))
    if table.memory is not None:
        # Of a table in files the first rows of both samples are read, of columns that may have whole numbers.
        if table.span is None:
            return
        low, high = (bound[table.offsets[single]] for bound in table.span)
        single = single[(low == np.floor(low)) & (high == np.floor(high)) & (high - low >= _FEWEST_SUBJECTS - 1)]
        last = np.flatnonzero(response() == response()[-1])
        row_sets = [np.union1d(np.arange(min(table.n, _SAMPLED_ROWS)), last[:_SAMPLED_ROWS])]
    for rows in row_sets:
        if not len(single):
            return
        first = to_numpy(table.part(run_of(table.offsets[single]), rows))
        with np.errstate(invalid="ignore"):  # signalling NaNs
            whole = ((first == np.floor(first)) | np.isnan(first)).all(axis=0)
        single, first = single[whole], first[:, whole]
    single = single[[_one_response(column, response()[rows]) for column in first.T]]
    for feature in single[:_CHECKED]:
        yield table.names[feature], _subjects(to_numpy(table.part(table.offsets[[feature]]))[:, 0], response())


def _described(tables: Sequence[Annotations], name: str) -> np.ndarray:
    """(n,) one column of several tables as numbers: texts have codes, and what cannot be read is missing."""
    known: dict[str, int] = {}
    parts = []
    for one in tables:
        with suppress(InputError):
            cells = one.column(name, "obs")
            own = to_numpy(cells.values).astype(float)
            if 0 in cells.levels:
                recode(
                    own, 0, np.array([known.setdefault(level, len(known)) for level in cells.levels[0]], dtype=float)
                )
            parts.append(own[:, 0])
    return np.concatenate(parts) if len(parts) == len(tables) else np.zeros(0)


def _subjects(column: np.ndarray, response: np.ndarray) -> int:
    """The number of subjects that a column (n,) identifies; 0 where it does not look like an identifier."""
    if len(column) != len(response):
        return 0
    known = ~np.isnan(column)
    column, response = column[known], response[known]
    if (column != np.floor(column)).any():
        return 0
    values, first, sizes = np.unique(column, return_index=True, return_counts=True)
    each = np.unique(response[first], return_counts=True)[1]
    # By chance some values with few rows have one response, but not all of them.
    repeated = len(values) >= _FEWEST_SUBJECTS and np.median(sizes) >= 2 and len(each) >= 2
    return len(values) if repeated and _one_response(column, response) else 0


def _one_response(column: np.ndarray, response: np.ndarray) -> bool:
    """Whether rows with the same value of a column, which may be missing in some, have the same response."""
    known = ~np.isnan(column)
    return not (known.any() and varies(np.unique(column[known], return_inverse=True)[1], response[known]).any())
