"""The confounders that `given` names or holds, taken out of the features: numbers, or codes of categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernsift.data.columns.columns import Columns
from kernsift.data.columns.kinds import split_kinds
from kernsift.data.columns.named_columns import align, column_names, take_columns
from kernsift.data.formats import Source
from kernsift.data.formats.in_memory import MemorySource
from kernsift.data.frames import read_columns
from kernsift.data.inputs import KeepRows
from kernsift.data.preparation import prepare
from kernsift.data.rows.samples import Samples
from kernsift.exceptions import InputError
from kernsift.execution.arrays import to_numpy
from kernsift.execution.notes import add_note


def take_confounders(X: Source, given: Any, kinds: Any) -> tuple[Source, Columns | None, Any]:
    """A table without its confounders, the confounders, and the entries of `kinds` for the other columns."""
    if given is None:
        return X, None, kinds
    rest, columns = take_columns(X, given, "given")
    return (rest, *_decide_kinds([columns], kinds))


def take_sample_confounders(samples: Samples, given: Any, kinds: Any) -> tuple[Samples, Columns | None, Any]:
    """The same for two samples: the rows of the first, then those of the second.

    Values are a pair, one for each table, or one for all rows; for samples of one table, one for each of its rows.
    """
    if given is None:
        return samples, None, kinds
    one, two = samples.first, samples.second
    named = bool(column_names(given))
    if named or (samples.rows is None and isinstance(given, tuple) and len(given) == 2):
        parts = [given, given] if named else list(given)
        (first, own), (second, other) = (
            take_columns(source, part, "given") for source, part in zip((one, two), parts, strict=True)
        )
        return (samples._replace(first=first, second=second), *_decide_kinds([own, other], kinds))
    columns = read_columns(given, "given", prefix="given")
    rows, where = (one.n + two.n, "X and Y") if samples.rows is None else (len(samples.rows[0]), "X")
    if columns.n != rows:
        fix = "check that both come from the same rows"
        if samples.rows is None:
            fix = "pass a pair, one for each table, or all rows of X and then of Y"
        raise InputError(f"given: one value for each of the {rows} rows of {where} is needed, got {columns.n}; {fix}.")
    if samples.rows is not None:
        columns = columns.take(np.concatenate([np.flatnonzero(part) for part in samples.rows]))
    return (samples, *_decide_kinds([columns], kinds))


def _decide_kinds(parts: Sequence[Columns], kinds: Any) -> tuple[Columns, Any]:
    """The concatenated rows as numbers or codes of categories, by `kinds` or else by content; the rest of `kinds`."""
    own, rest = split_kinds(kinds, parts[0].names)
    arguments = ["given", "given of Y"][: len(parts)]
    sources: Sequence[Source] = [MemorySource(part, name) for part, name in zip(parts, arguments, strict=True)]
    if len(sources) > 1:
        sources = align(*sources)
    found = prepare(sources, arguments, kinds=own, missing="column", labels=True).columns()
    if len(found) > 1:
        return replace(found[0], values=np.concatenate([to_numpy(part.values) for part in found])), rest
    return found[0], rest


def keep_complete(keep: KeepRows | None, columns: Columns | None, missing: str) -> KeepRows | None:
    """Which rows are kept: those that `keep` keeps, with "drop" without those that miss a value in `columns`."""
    if columns is None or missing != "drop":
        return keep
    absent = np.isnan(to_numpy(columns.values)).any(axis=1)

    def kept(rows: np.ndarray) -> np.ndarray:
        if lost := int((rows & absent).sum()):
            if rows.sum() - lost < 2:
                raise InputError(
                    f"given: missing='drop' leaves {rows.sum() - lost} of {len(rows):,} rows, at least 2 are needed; "
                    "leave out or fill the columns with most missing values."
                )
            add_note(f"given: rows without a value are left out: {lost:,} of {len(rows):,}.")
        return rows & ~absent if keep is None else keep(rows & ~absent)

    return kept
