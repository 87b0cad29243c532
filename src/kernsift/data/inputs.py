"""From any input to tables: the one path that data in memory, files, Dask collections and AnnData objects take.

input -> `formats.open_table` -> Source -> `scan` -> kinds of columns (`columns.kinds`) -> rows to keep (`preparation`)
      -> numbers (`columns.encoding`) -> Table
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.columns.columns import require_same_device
from kernsift.data.columns.kinds import UndecidedColumns, split_kinds
from kernsift.data.columns.layout import grouped_layout, make_table
from kernsift.data.columns.named_columns import align, split_columns
from kernsift.data.formats import Source, is_outside_memory, open_table
from kernsift.data.formats.in_memory import MemorySource, loaded
from kernsift.data.formats.source import TEXTS
from kernsift.data.missing import MISSING
from kernsift.data.preparation import prepare
from kernsift.data.responses import response_table
from kernsift.data.survival import Survival, hint_at_censoring, is_censored, read_survival, survival_of
from kernsift.data.tables import Table
from kernsift.exceptions import InputError, check_choice, check_unique, quoted
from kernsift.execution.memory import parse_memory
from kernsift.execution.notes import add_note, collect_notes


def as_table(X: Any, *, argument: str = "X", **options: Any) -> Table:
    """One sample as a Table; `argument` is what error messages call it, `options` are those of `as_pair`.

    Examples
    --------
    >>> from kernsift.data.inputs import as_table
    >>> table = as_table([[1, "red"], [2, "blue"], [4, "red"]])
    >>> table.names, table.levels
    (('x0', 'x1'), {'x1': ('blue', 'red')})
    >>> table.values[:, 1].tolist()
    [1.0, 0.0, 1.0]
    """
    source = open_table(X, argument, memory=options.get("memory"), layer=options.pop("layer", None))
    return prepare([source], [argument], **options).tables()[0]


def as_pair(X: Any, Y: Any, **options: Any) -> tuple[Table, Table]:
    """Two samples with the same features in the same order (that of X) and with the same codes.

    Each may be in memory or outside of it: anything that `open_table` takes. `options` are `groups`, `missing`,
    `kinds`, `layer` and `memory` of `compare`.
    """
    return read_pair(X, Y, **options)[0]


KeepRows = Callable[[np.ndarray], np.ndarray]
"""From a mask of rows (n,), for two tables one after the other, to the mask of those that are used."""


def read_pair(
    X: Any,
    Y: Any,
    *,
    layer: str | None = None,
    memory: int | str | None = None,
    keep: KeepRows | None = None,
    **options: Any,
) -> tuple[tuple[Table, Table], np.ndarray]:
    """Like `as_pair`, and which of the rows (n + m,) are kept."""
    one, other = (open_table(data, name, memory=memory, layer=layer) for data, name in ((X, "X"), (Y, "Y")))
    prepared = prepare(align(one, other), ["X", "Y"], memory=memory, **options)
    prepared.decisions.note_repeated()
    if keep is not None:
        prepared.keep = np.split(keep(np.concatenate(prepared.keep)), [len(prepared.keep[0])])
    first, second = prepared.tables()
    return (first, second), np.concatenate(prepared.keep)


def as_xy(X: Any, y: Any, **options: Any) -> tuple[Table, Table]:
    """Features and a response, row by row; the response is a Table with one feature, a group if it has several columns.

    `y` may name columns of X, which then leave X. `options` are those of `as_pair`, and `response` of `relate`.
    """
    found = read_xy(X, y, **options)
    return found.table, found.response


class FeaturesAndResponse(NamedTuple):
    """Features and a response, which rows (n,) are kept, and the times and events of these if the response is censored.

    A censored response is the column of its log-rank scores.
    """

    table: Table
    response: Table
    keep: np.ndarray
    survival: Survival | None


def read_xy(
    X: Any,
    y: Any,
    *,
    response: str = "auto",
    layer: str | None = None,
    memory: int | str | None = None,
    keep: KeepRows | None = None,
    **options: Any,
) -> FeaturesAndResponse:
    """Like `as_xy`, with the rows that are kept."""
    check_choice("response", response, ("auto", "numeric", "category", "censored"))
    X = open_table(X, "X", memory=memory, layer=layer)
    censored = is_censored(y, response)
    if censored and not all(isinstance(name, str) for name in y):
        y = MemorySource(read_survival(y), "y")
    elif is_outside_memory(y) and not isinstance(y, str):
        y = open_table(y, "y", memory=memory)
    features, target = split_columns(X, y, "y")
    target = loaded(target, parse_memory(memory))
    if not len(features.names):
        raise InputError(f"X: no column is left beside the response {quoted(target.names)}; pass more columns.")
    if not target.named and len(target.names) == 1 and "y" not in features.names:
        target = target.renamed(["y"], False)  # what messages and `kinds` call it
    own, rest = split_kinds(options.pop("kinds", None), target.names)
    if response == "category":  # decides on text that is mixed with numbers
        own = {name: "category" for name, kind in zip(target.names, target.kinds, strict=True) if kind in TEXTS} | own
    # Rows without a response are never used.
    absent = "error" if options.get("missing", "error") == "error" else "drop"
    prepare_target = partial(prepare, [target], ["y"], kinds=own, missing=absent, labels=True)
    try:
        prepared = prepare([features], ["X"], memory=memory, kinds=rest, **options)
    except UndecidedColumns as undecided:
        with collect_notes():
            raise undecided.merged_with(prepare_target) from None
    prepared.decisions.note_repeated()
    answers = prepare_target()
    kept = prepared.keep[0] & answers.keep[0]
    kept = kept if keep is None else keep(kept)
    prepared.keep, answers.keep = [kept], [kept]
    (table,), (columns,) = prepared.tables(), answers.columns()
    if censored:
        survival = survival_of(columns)
        rest = "" if survival.event.all() else ", the others are censored"
        add_note(
            f"{int(survival.event.sum()):,} of {len(survival.event):,} times end with an event{rest}; the risk score "
            "is the log-rank score, which is high where events come early."
        )
        return FeaturesAndResponse(table, survival.table(), kept, survival)
    if features.named or target.named:
        hint_at_censoring(table, columns)
    answered = response_table(columns, response)
    require_same_device([table.prototype, answered.prototype], ["X", "y"])
    return FeaturesAndResponse(table, answered, kept, None)


def as_candidates(
    reference: Any,
    candidates: Mapping[str, Any],
    *,
    missing: str = "column",
    kinds: Mapping[str, str] | None = None,
    layer: str | None = None,
) -> tuple[Table, dict[str, Table]]:
    """A reference data set and others to compare with it, each a Table with one feature that has all its columns.

    A feature is tested on the rows that have it, so that "column" and "drop" are the same here.
    """
    check_choice("missing", missing, [choice for choice in MISSING if choice != "value"])
    if not isinstance(candidates, Mapping):
        raise InputError(
            f"candidates: a mapping from names to data sets is needed, got {type(candidates).__name__}; pass a dict "
            'such as {"a": A, "b": B}.'
        )
    if not candidates:
        raise InputError("candidates: at least one data set is needed, got an empty mapping; add one.")
    labels = [str(name) for name in candidates]
    check_unique("candidates", labels, "names", "rename them")
    arguments = ["reference", *(f"candidates['{label}']" for label in labels)]
    sources: list[Source] = [
        loaded(open_table(data, argument, layer=layer))
        for data, argument in zip([reference, *candidates.values()], arguments, strict=True)
    ]
    first, *others = sources
    for other in others if first.named else ():
        first = align(first, other)[0]  # without columns that have no name and that another data set lacks
    parts = [first, *(align(first, other)[1] for other in others)]
    prepared = prepare(parts, arguments, missing="drop" if missing == "column" else missing, kinds=kinds)
    for one, argument in zip(prepared.scans, arguments, strict=True):
        texts = [one.source.names[i] for i in sorted(one.levels.keys() - prepared.decisions.parsed.keys())]
        if texts:
            fix = ", ".join(f"{name!r}: 'drop'" for name in texts)
            raise InputError(
                f"{argument}: whole data sets are compared on numbers, but {quoted(texts)} "
                f"{'holds' if len(texts) == 1 else 'hold'} categories; encode them, or leave them out as in "
                f"kinds={{{fix}}}."
            )
    columns = prepared.columns()
    everything = list(range(len(columns[0].names)))
    tables = [
        make_table(part, grouped_layout(part, part.levels, {name: everything}))
        for part, name in zip(columns, ["reference", *labels], strict=True)
    ]
    return tables[0], dict(zip(labels, tables[1:], strict=True))
