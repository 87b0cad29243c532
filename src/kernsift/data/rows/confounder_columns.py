"""The confounders that `given` names or holds, taken out of the features: numbers, or codes of categories."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernsift.data.columns.columns import Columns
from kernsift.data.columns.kinds import split_kinds
from kernsift.data.columns.named_columns import take_columns
from kernsift.data.formats import Source
from kernsift.data.formats.in_memory import MemorySource
from kernsift.data.formats.source import recode
from kernsift.data.frames import read_columns
from kernsift.data.inputs import KeepRows
from kernsift.data.preparation import prepare
from kernsift.data.rows.samples import Samples
from kernsift.exceptions import InputError, quoted
from kernsift.execution.arrays import to_numpy
from kernsift.execution.notes import add_note


def take_confounders(X: Source, given: Any, kinds: Any) -> tuple[Source, Columns | None, Any]:
    """A table without its confounders, the confounders, and the entries of `kinds` for the other columns."""
    if given is None:
        return X, None, kinds
    rest, columns = take_columns(X, given, "given")
    return (rest, *_decide_kinds(columns, kinds))


def take_sample_confounders(samples: Samples, given: Any, kinds: Any) -> tuple[Samples, Columns | None, Any]:
    """The same for two samples: the rows of the first, then those of the second.

    Values are a pair, one for each table, or one for all rows; for samples of one table, one for each of its rows.
    """
    if given is None:
        return samples, None, kinds
    one, two = samples.first, samples.second
    named = isinstance(given, str) or (
        isinstance(given, (list, tuple)) and len(given) > 0 and all(isinstance(name, str) for name in given)
    )
    if named or (samples.rows is None and isinstance(given, tuple) and len(given) == 2):
        parts = [given, given] if named else list(given)
        (first, own), (second, other) = (
            take_columns(source, part, "given") for source, part in zip((one, two), parts, strict=True)
        )
        return (samples._replace(first=first, second=second), *_decide_kinds(_stack(own, other), kinds))
    columns = read_columns(given, "given", prefix="given")
    rows, where = (one.n + two.n, "X and Y") if samples.rows is None else (len(samples.rows[0]), "X")
    if columns.n != rows:
        fix = "check that both come from the same rows"
        if samples.rows is None:
            fix = "pass a pair, one for each table, or all rows of X and then of Y"
        raise InputError(f"given: one value for each of the {rows} rows of {where} is needed, got {columns.n}; {fix}.")
    if samples.rows is not None:
        columns = columns.take(np.concatenate([np.flatnonzero(part) for part in samples.rows]))
    return (samples, *_decide_kinds(columns, kinds))


def _stack(first: Columns, second: Columns) -> Columns:
    """The concatenated rows of two tables with the same columns, with common codes of categories."""
    parts = (first, second)
    if first.names != second.names and (second.named or len(first.names) != len(second.names)):
        raise InputError(
            f"given: the same columns are needed for both samples, got {quoted(first.names)} and "
            f"{quoted(second.names)}; pass the same for both."
        )
    values = [to_numpy(part.values).astype(float) for part in parts]
    levels: dict[int, tuple[str, ...]] = {}
    for i in sorted({*first.levels, *second.levels}):
        levels[i] = tuple(sorted({level for part in parts for level in part.levels.get(i, ())}))
        codes = {level: float(code) for code, level in enumerate(levels[i])}
        for part, own in zip(parts, values, strict=True):
            known = ~np.isnan(own[:, i])
            if known.any() and i not in part.levels:
                raise InputError(
                    f"given: '{first.names[i]}' holds categories in one sample and numbers in the other; convert one "
                    "of them."
                )
            if known.any():
                recode(own, i, np.array([codes[level] for level in part.levels[i]]))
    return Columns(first.names, np.concatenate(values), levels, first.kinds, first.named, first.flat)


def _decide_kinds(columns: Columns, kinds: Any) -> tuple[Columns, Any]:
    """Columns as numbers or codes of categories, by `kinds` or else by content; and the other entries of `kinds`."""
    own, rest = split_kinds(kinds, columns.names)
    prepared = prepare([MemorySource(columns, "given")], ["given"], kinds=own, missing="column", labels=True)
    return prepared.columns()[0], rest


def keep_complete(keep: KeepRows | None, columns: Columns | None, missing: str) -> KeepRows | None:
    """Which rows are kept: those that `keep` keeps, with "drop" without those that miss a value in `columns`."""
    if columns is None or missing != "drop":
        return keep
    absent = np.isnan(to_numpy(columns.values)).any(axis=1)

    def kept(rows: np.ndarray) -> np.ndarray:
        if lost := int((rows & absent).sum()):
            add_note(f"given: rows without a value are left out: {lost:,} of {len(rows):,}.")
        return rows & ~absent if keep is None else keep(rows & ~absent)

    return kept
