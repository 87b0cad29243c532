"""Columns that say something about the rows of a call, such as confounders: by name, or as values of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernsift.data.columns.columns import Columns
from kernsift.data.columns.kinds import split_kinds
from kernsift.data.columns.named_columns import take_columns
from kernsift.data.formats.in_memory import MemorySource
from kernsift.data.frames import read_columns
from kernsift.data.inputs import KeepRows
from kernsift.data.preparation import prepare
from kernsift.data.rows.samples import Samples
from kernsift.exceptions import InputError, quoted
from kernsift.execution.arrays import to_numpy
from kernsift.execution.notes import add_note


def take_sample_columns(samples: Samples, wanted: Any, argument: str) -> tuple[Samples, Columns]:
    """Two samples without some of their columns, and these columns: the rows of the first sample, then of the second.

    Values are a pair, one for each table, or one for all rows; for samples of one table, one for each of its rows.
    """
    one, two = samples.first, samples.second
    named = isinstance(wanted, str) or (
        isinstance(wanted, (list, tuple)) and len(wanted) > 0 and all(isinstance(name, str) for name in wanted)
    )
    if not named and samples.rows is not None:
        columns = read_columns(wanted, argument, prefix=argument)
        rows = len(samples.rows[0])
        if columns.n != rows:
            raise InputError(
                f"{argument}: one value for each of the {rows} rows of X is needed, got {columns.n}; check that both "
                "come from the same rows."
            )
        return samples, columns.take(np.concatenate([np.flatnonzero(part) for part in samples.rows]))
    if named or (isinstance(wanted, tuple) and len(wanted) == 2):
        parts = [wanted, wanted] if named else list(wanted)
        (first, own), (second, other) = (
            take_columns(source, part, argument) for source, part in zip((one, two), parts, strict=True)
        )
        return samples._replace(first=first, second=second), stack_columns([own, other], argument)
    columns = read_columns(wanted, argument, prefix=argument)
    if columns.n != one.n + two.n:
        raise InputError(
            f"{argument}: one value for each of the {one.n + two.n} rows of X and Y is needed, got {columns.n}; pass a "
            "pair, one for each table, or all rows of X and then of Y."
        )
    return samples, columns


def stack_columns(parts: Sequence[Columns], argument: str) -> Columns:
    """The concatenated rows of tables with the same columns, with common codes of categories."""
    first = parts[0]
    if any(part.names != first.names and (part.named or len(part.names) != len(first.names)) for part in parts):
        raise InputError(
            f"{argument}: the same columns are needed for both samples, got {quoted(first.names)} and "
            f"{quoted(parts[1].names)}; pass the same for both."
        )
    values = [to_numpy(part.values).astype(float) for part in parts]
    levels: dict[int, tuple[str, ...]] = {}
    for i in sorted({i for part in parts for i in part.levels}):
        for part, own in zip(parts, values, strict=True):
            if i not in part.levels and not np.isnan(own[:, i]).all():
                raise InputError(
                    f"{argument}: '{first.names[i]}' holds categories in one sample and numbers in the other; convert "
                    "one of them."
                )
        levels[i] = tuple(sorted({level for part in parts for level in part.levels.get(i, ())}))
        codes = {level: float(code) for code, level in enumerate(levels[i])}
        for part, own in zip(parts, values, strict=True):
            known = ~np.isnan(own[:, i])
            new = np.array([codes[level] for level in part.levels.get(i, ())])
            own[known, i] = new[own[known, i].astype(int)] if known.any() else own[known, i]
    return Columns(first.names, np.concatenate(values), levels, first.kinds, first.named, first.flat)


def decide_kinds(columns: Columns, kinds: Any, argument: str) -> tuple[Columns, Any]:
    """Columns as numbers or codes of categories, by what `kinds` says or else by what they hold; and other kinds."""
    own, rest = split_kinds(kinds, columns.names)
    prepared = prepare([MemorySource(columns, argument)], [argument], kinds=own, missing="column", labels=True)
    return prepared.columns()[0], rest


def keep_complete(keep: KeepRows | None, columns: Columns, argument: str) -> KeepRows:
    """Which rows are kept: those that `keep` keeps, without those that miss a value in `columns`."""
    absent = np.isnan(to_numpy(columns.values)).any(axis=1)

    def kept(rows: np.ndarray) -> np.ndarray:
        if lost := int((rows & absent).sum()):
            add_note(f"{argument}: rows without a value are left out: {lost:,} of {len(rows):,}.")
        return rows & ~absent if keep is None else keep(rows & ~absent)

    return kept
