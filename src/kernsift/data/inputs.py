"""From any input to tables: the one path that data in memory, files, Dask collections and AnnData objects take.

    input -> `open_table` -> Source -> `scan` -> what the columns are (`column_kinds`) -> rows to keep -> Table

Every complaint about data is raised here. Behind this file categories are codes, text is gone, and a value is a finite
number or, where missing values may stay, NaN.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from functools import partial
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.column_kinds import UndecidedColumns, Verdict, chosen_kinds, judge
from kernsift.data.columns import (
    CELLS_STAY,
    EXACT,
    MISSING,
    Columns,
    from_origin,
    nearest,
    quoted,
    refuse_cells,
    require_together,
    require_two,
)
from kernsift.data.formats import Source, open_table, points_outside
from kernsift.data.formats.in_memory import MemorySource
from kernsift.data.formats.sparse_matrices import SparseSource
from kernsift.data.named_columns import split_columns
from kernsift.data.scan import Scan, scan, trusts
from kernsift.data.sparse import SparseTable
from kernsift.data.stored import Encoding, Span, StoredTable
from kernsift.data.survival import Survival, hint_at_censoring, is_censored, read_survival, survival_of
from kernsift.data.tables import MISSING_LEVEL, Table, check_choice, grouped, laid_out, layout_of, members_of
from kernsift.exceptions import InputError
from kernsift.execution.arrays import asarray_like, dtype_of, to_numpy
from kernsift.execution.memory import answer_of, parse_memory
from kernsift.execution.notes import add_note, collect_notes
from kernsift.execution.parallel import task_memory

# Microseconds.
_DAY = 86_400_000_000
# Squared differences must neither overflow nor vanish; float32 data near its own limits is carried on in float64.
_LARGEST = {np.dtype(np.float64): 1e70, np.dtype(np.float32): 1e15}


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


def as_pair(
    X: Any, Y: Any, *, layer: str | None = None, memory: int | str | None = None, **options: Any
) -> tuple[Table, Table]:
    """Two samples with the same features in the same order (that of X) and with the same codes.

    Each may be in memory or outside of it: a path, a Dask collection, or what else `open_table` takes. `options` are
    `groups`, `missing` and `kinds` of `compare`.
    """
    return read_pair(X, Y, layer=layer, memory=memory, **options).tables


class KeptPair(NamedTuple):
    """Two samples, and which of their rows (n + m,) are kept."""

    tables: tuple[Table, Table]
    keep: np.ndarray


KeepRows = Callable[[np.ndarray], np.ndarray]
"""Those of the rows (n,) that are kept which belong to the question; of two tables, one after the other."""


def read_pair(
    X: Any,
    Y: Any,
    *,
    layer: str | None = None,
    memory: int | str | None = None,
    keep: KeepRows | None = None,
    **options: Any,
) -> KeptPair:
    """Like `as_pair`, with the rows that are kept."""
    one, other = (open_table(data, name, memory=memory, layer=layer) for data, name in ((X, "X"), (Y, "Y")))
    prepared = prepare(align(one, other), ["X", "Y"], memory=memory, **options)
    if keep is not None:
        prepared.keep = np.split(keep(np.concatenate(prepared.keep)), [len(prepared.keep[0])])
    first, second = prepared.tables()
    return KeptPair((first, second), np.concatenate(prepared.keep))


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
    if not len(rest.names):
        raise InputError("X: no column is left beside the groups; pass more columns.")
    second = named_group(labels, group, "group") if group is not None else None
    first = named_group(labels, reference, "reference") if reference is not None else None
    if first is not None and first == second:
        raise InputError(f"reference: must be another group than group, got {first!r} for both.")
    names = [name for name in labels if name not in (first, second)]
    if second is None and len(labels) > 2:
        raise InputError(_how_many(by, list(labels)))
    if second is None:
        first, second = (names[0], names[1]) if first is None else (first, names[0])
    rows = labels[first] if first is not None else np.any([labels[name] for name in names], axis=0)
    called = first if first is not None else names[0] if len(names) == 1 else f"not {second}"
    check_group_sizes({called: rows, second: labels[second]})
    # "higher in 1" says less than "higher in treated = 1".
    column = f"{by} = " if isinstance(by, str) and all(_is_code(name) for name in labels) else ""
    titles = (called if first is None and called != names[0] else f"{column}{called}", f"{column}{second}")
    return Samples(rest.where(rows), rest.where(labels[second]), titles, (rows, labels[second]))


def _is_code(name: str) -> bool:
    """Whether a group has a number or a truth value for a name."""
    return name in ("True", "False") or name.replace(".", "", 1).lstrip("+-").isdigit()


def group_rows(source: Source, by: Any) -> tuple[Source, dict[str, np.ndarray]]:
    """The table without the column `by`, and for each of its values which rows have it, in the order of categories."""
    rest, column = split_columns(source, by, "by")
    if len(column.names) > 1:
        raise InputError(f"by: one column is needed, got {quoted(column.names)}; choose one.")
    cells = loaded(column).columns
    values = to_numpy(cells.values)[:, 0]
    known = np.unique(values[~np.isnan(values)])
    names = cells.levels.get(0) or ()
    absent = np.isnan(values)
    if absent.any():
        add_note(f"by: {np.count_nonzero(absent):,} of {len(absent):,} rows have no group and are left out.")

    def label(value: float) -> str:
        if cells.kinds[0] == "truth":
            return str(bool(value))
        if cells.kinds[0] == "date":
            return date_name(value)
        return names[int(value)] if names else number_name(float(value))

    found = {label(value): values == value for value in known.tolist()}
    if len(found) < 2:
        called = f"'{by}'" if isinstance(by, str) else "the column"
        only = f"only the value {quoted(found)}" if found else "no value"
        raise InputError(f"by: two groups are needed, but {called} has {only}; choose another column.")
    return rest, found


def check_group_sizes(labels: Mapping[str, np.ndarray]) -> None:
    """Each group needs two rows."""
    for label, keep in labels.items():
        if np.count_nonzero(keep) < 2:
            raise InputError(
                f"by: at least 2 rows are needed in each group, but '{label}' has {np.count_nonzero(keep)}; leave it "
                "out."
            )


def named_group(labels: Mapping[str, np.ndarray], wanted: Any, argument: str) -> str:
    """The label of a group that an argument names."""
    text = number_name(float(wanted)) if isinstance(wanted, Real) and not isinstance(wanted, bool) else str(wanted)
    if isinstance(wanted, datetime) and wanted.tzinfo is not None:
        wanted = wanted.astimezone(UTC).replace(tzinfo=None)
    if isinstance(wanted, date | np.datetime64):
        moment: Any = wanted
        text = date_name(float(np.datetime64(moment, "us").astype(np.int64)) / _DAY)
    if text not in labels:
        raise InputError(
            f"{argument}: the column `by` has no value '{text}'{nearest(text, labels)}; it has {quoted(labels)}."
        )
    return text


def _how_many(by: Any, names: list[str]) -> str:
    column = f"'{by}'" if isinstance(by, str) else "the column"
    return (
        f"by: {column} has {len(names)} values ({quoted(names)}); choose one with group={names[0]!r} to compare with "
        f"the rest, or with reference={names[1]!r} too; relate(table, by) asks whether any group differs, and "
        "compare_groups(table, by) compares each with the rest."
    )


def as_xy(
    X: Any, y: Any, *, response: str = "auto", layer: str | None = None, memory: int | str | None = None, **options: Any
) -> tuple[Table, Table]:
    """Features and a response, row by row; the response is a Table with one feature, a group if it has several columns.

    `y` may name columns of X, which then leave X. `response="auto"` takes text, categoricals, truth values, and whole
    numbers with few different values as categories, and other numbers as numbers; "category" and "numeric" insist.
    """
    found = read_xy(X, y, response=response, layer=layer, memory=memory, **options)
    return found.table, found.response


class KeptRows(NamedTuple):
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
) -> KeptRows:
    """Like `as_xy`, with the rows that are kept."""
    check_choice("response", response, ("auto", "numeric", "category", "censored"))
    X = open_table(X, "X", memory=memory, layer=layer)
    censored = is_censored(y, response)
    if censored and not all(isinstance(name, str) for name in y):
        y = MemorySource(read_survival(y), "y")
    elif points_outside(y) and not isinstance(y, str):
        y = open_table(y, "y", memory=memory)
    source, answer = split_columns(X, y, "y")
    if not censored and (source.named or answer.named):
        hint_at_censoring((*source.names, *answer.names))
    answer = loaded(answer, parse_memory(memory))
    if not len(source.names):
        raise InputError(f"X: no column is left beside the response {quoted(answer.names)}; pass more columns.")
    check_rows(source, answer)
    kinds = options.pop("kinds", None)
    own = {name: kind for name, kind in kinds.items() if name in answer.names} if isinstance(kinds, Mapping) else {}
    rest = {name: kind for name, kind in kinds.items() if name not in own} if own else kinds
    # Without a response a row tells nothing.
    absent = "error" if options.get("missing", "error") == "error" else "drop"
    prepare_answer = partial(prepare, [answer], ["y"], kinds=own, missing=absent, labels=True)
    try:
        prepared = prepare([source], ["X"], memory=memory, kinds=rest, **options)
    except UndecidedColumns as undecided:
        with collect_notes():
            raise undecided.and_those_of(prepare_answer) from None
    target = prepare_answer()
    kept = prepared.keep[0] & target.keep[0]
    kept = kept if keep is None else keep(kept)
    prepared.keep, target.keep = [kept], [kept]
    (table,) = prepared.tables()
    if censored:
        survival = survival_of(target.columns()[0])
        return KeptRows(table, survival.table(), kept, survival)
    answered = response_table(target.columns()[0], response)
    require_together([table.prototype, answered.prototype], ["X", "y"])
    return KeptRows(table, answered, kept, None)


def as_candidates(
    reference: Any,
    candidates: Mapping[str, Any],
    *,
    missing: str = "column",
    kinds: Mapping[str, str] | None = None,
    layer: str | None = None,
) -> tuple[Table, dict[str, Table]]:
    """A reference data set and others to hold against it, each a Table with one feature that owns all its columns.

    A feature is tested on the rows that have it, so that "column" and "drop" are the same here.
    """
    check_choice("missing", missing, MISSING)
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
    first, *others = (
        loaded(open_table(data, argument, layer=layer))
        for data, argument in zip([reference, *candidates.values()], arguments, strict=True)
    )
    parts = [first, *(align(first, other)[1] for other in others)]
    prepared = prepare(parts, arguments, missing="drop" if missing == "column" else missing, kinds=kinds)
    for one, argument in zip(prepared.scans, arguments, strict=True):
        texts = [one.source.names[i] for i in sorted(one.levels.keys() - prepared.verdict.parsed.keys())]
        if texts:
            fix = ", ".join(f"{name!r}: 'drop'" for name in texts)
            raise InputError(
                f"{argument}: whole data sets are compared on numbers, but {quoted(texts)} "
                f"{'holds' if len(texts) == 1 else 'hold'} categories; encode them, or leave them out as in "
                f"kinds={{{fix}}}."
            )
        if missing == "value" and one.gaps.any():
            raise InputError(
                f"missing: 'value' is for features of one column, but {argument}, of whose columns "
                f"{quoted(np.array(one.source.names)[one.gaps > 0])} have missing values, is one feature; use 'drop'."
            )
    columns = prepared.columns()
    everything = list(range(len(columns[0].names)))
    tables = [
        laid_out(part, grouped(part, {name: everything}))
        for part, name in zip(columns, ["reference", *labels], strict=True)
    ]
    return tables[0], dict(zip(labels, tables[1:], strict=True))


# Columns -------------------------------------------------------------------------------------------------------------


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
        return first.called(named.names, named.named), second.called(named.names, named.named)
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


def check_rows(features: Source, target: Source) -> None:
    """Features and a response must be as long as each other."""
    if features.n != target.n:
        raise InputError(
            f"y: one response for each row of X is needed, but X has {features.n} rows and y has "
            f"{target.n}; check that both come from the same rows."
        )


def _without_nameless(one: Source, other: Source) -> Source:
    """Without the columns that have no name of their own, such as row names, and are not in the other table."""
    known = set(other.names)
    nameless = [name for name in one.names if name not in known and re.fullmatch(r"Unnamed: \d+", name)]
    if not nameless:
        return one
    add_note(f"{one.argument}: without a name and not in {other.argument}, so left out: {quoted(nameless)}.")
    return one.pick([i for i, name in enumerate(one.names) if name not in nameless])


FEW = 10
"""Whole numbers with at most so many different values are classes, where they are a response."""


def response_table(target: Columns, response: str) -> Table:
    """The response as one feature, from columns without missing cells."""
    target = _respond(target, response)
    name = target.names[0] if target.named and len(target.names) == 1 else "y"
    if len(target.names) == 1:
        target = replace(target, names=(name,))
        answer = laid_out(target, layout_of(target, None))
    else:
        answer = laid_out(target, grouped(target, {name: list(range(len(target.names)))}))
    if answer.constant[0]:
        raise InputError(f"y: the response must vary, but all {answer.n} rows are equal; choose another response.")
    return answer


def _respond(columns: Columns, response: str) -> Columns:
    """Turn response columns into codes, or insist on numbers, as `response` says."""
    if response == "numeric":
        if columns.levels:
            names = quoted(columns.names[i] for i in columns.levels)
            raise InputError(
                f"y: response='numeric' needs numbers, but {names} holds categories; use response='category'."
            )
        return columns
    coded = [i for i, kind in enumerate(columns.kinds) if response == "category" or kind == "truth"]
    if response == "auto" and not coded and len(columns.names) == 1 and not columns.levels:
        values = to_numpy(columns.values)[:, 0]
        distinct = np.unique(values)
        few = len(distinct) <= FEW and 2 * len(distinct) <= len(values)
        if few and (len(distinct) == 2 or (distinct == np.floor(distinct)).all()):
            coded = [0]
            held = "two different numbers" if len(distinct) == 2 else f"{len(distinct)} different whole numbers"
            add_note(f"The response holds {held}, taken as classes; response='numeric' takes them as amounts.")
    if not set(coded) - columns.levels.keys():
        return columns
    levels, values = dict(columns.levels), to_numpy(columns.values).copy()
    for i in coded:
        if i not in levels:
            found, values[:, i] = np.unique(values[:, i], return_inverse=True)
            start = columns.origin.get(i)
            if columns.kinds[i] == "truth":
                levels[i] = tuple(str(bool(value)) for value in found)
            elif start is not None:
                levels[i] = tuple(str(int(value) + start) for value in found)
            else:
                levels[i] = tuple(number_name(float(value)) for value in found)
    return replace(columns, values=asarray_like(values, columns.values), levels=levels)


def date_name(days: float) -> str:
    """Days since 1970 as a label: a date, with its time where that is not midnight.

    >>> date_name(18262.0), date_name(18262.5)
    ('2020-01-01', '2020-01-01T12:00:00')
    """
    found = np.datetime64(round(days * _DAY), "us").astype(datetime)
    return str(found.date() if found.time() == time(0) else found.isoformat())


def number_name(value: float) -> str:
    """A number as a label."""
    return str(int(value)) if value.is_integer() else repr(value)


# The path ------------------------------------------------------------------------------------------------------------


class Prepared:
    """Tables with the same columns, looked at and decided on; `keep` marks the rows of each that are kept.

    Attributes
    ----------
    scans : what each table holds, without the columns that are left out.
    verdict : what is done with the columns.
    keep : (n,) bool for each table.
    """

    def __init__(
        self,
        scans: list[Scan],
        verdict: Verdict,
        arguments: Sequence[str],
        groups: Mapping[str, Any] | None,
        missing: str,
        memory: int,
    ) -> None:
        self.scans, self.verdict = scans, verdict
        self._arguments, self._groups, self.missing, self._memory = arguments, groups, missing, memory
        self.keep = [_rows_to_keep(scan, verdict, missing) for scan in scans]

    @property
    def _in_memory(self) -> bool:
        return all(isinstance(scan.source, MemorySource) for scan in self.scans)

    def tables(self) -> list[Table]:
        """The tables, with the same codes and the same float type; outside of memory where one of them is."""
        if self._in_memory:
            columns = self.columns()
            layout = layout_of(columns[0], self._groups)
            tables = [laid_out(part, layout) for part in columns]
        elif all(isinstance(scan.source, SparseSource) for scan in self.scans) and not self.verdict.categories:
            tables = self._sparse()
        else:
            tables = self._stored()
        return tables

    def columns(self) -> list[Columns]:
        """The rows that are kept of tables in memory, with the same codes and the same float type."""
        parts = [self._kept(place).columns for place in range(len(self.scans))]
        require_together([part.values for part in parts], self._arguments)
        moved = from_origin(parts, self._arguments)
        scans = [
            one
            if part is getattr(one.source, "columns", None)
            else scan(MemorySource(part, one.source.argument), self._memory)
            for one, part in zip(self.scans, moved, strict=True)
        ]
        encoding, _ = _encoding(scans, self.verdict, self._arguments, self.missing)
        return [encoding.columns(part) for part in moved]

    def _stored(self) -> list[Table]:
        scans = []
        for place, (one, keep) in enumerate(zip(self.scans, self.keep, strict=True)):
            _check_stored(one, self._arguments[place])
            scans.append(one if keep.all() else scan(self._kept(place), self._memory, trust=False))
        encoding, spans = _encoding(scans, self.verdict, self._arguments, self.missing)
        nothing = np.empty((0, len(scans[0].source.names)))
        named = Columns(scans[0].source.names, nothing, dict(encoding.levels), (), scans[0].source.named, False)
        layout, memory = layout_of(named, self._groups), task_memory(self._memory)
        return [
            StoredTable(one.source, layout, encoding, low, high, memory, encoding.incomplete(one))
            for one, (low, high) in zip(scans, spans, strict=True)
        ]

    def _sparse(self) -> list[Table]:
        """Sparse matrices, worked on as they are."""
        encoding, _ = _encoding(self.scans, self.verdict, self._arguments, self.missing)
        first = self.scans[0].source
        nothing = np.empty((0, len(first.names)))
        layout = layout_of(Columns(first.names, nothing, {}, (), first.named, False), self._groups)
        tables: list[Table] = []
        columns = self._kept(0).positions
        for place in range(len(self.scans)):
            source: SparseSource = self._kept(place)
            source.rows.store.limit(self._memory)
            own = columns if np.array_equal(columns, source.positions) else source.positions
            tables.append(SparseTable(layout, [replace(source.rows, columns=own)], encoding.dtype))
        return tables

    def _kept(self, place: int) -> Any:
        keep = self.keep[place]
        if not keep.all():
            require_two(keep, self._arguments[place])
        return self.scans[place].source.where(keep)


def _check_stored(one: Scan, argument: str) -> None:
    """Refuse what cannot be beside or inside a table that is read in pieces."""
    if isinstance(one.source, MemorySource) and not isinstance(one.source.columns.values, np.ndarray):
        raise InputError(
            f"{argument}: beside a table on disk NumPy arrays and data frames are taken, got "
            f"{type(one.source.columns.values).__name__}; convert it to NumPy."
        )
    whole = np.array([kind == "integer" for kind in one.kinds])
    large = np.flatnonzero(whole & (np.maximum(-one.low, one.high) > EXACT))
    if large.size:
        raise InputError(
            f"{argument}: integers beyond 2^53 in {quoted(one.source.names[i] for i in large)} lose their "
            "differences where a table is read in pieces; subtract the smallest first, or leave these columns out."
        )


def prepare(
    sources: Sequence[Source],
    arguments: Sequence[str],
    *,
    groups: Mapping[str, Any] | None = None,
    missing: str = "error",
    kinds: Mapping[str, str] | None = None,
    memory: int | str | None = None,
    labels: bool = False,
) -> Prepared:
    """Look at tables that have the same columns, and decide on the columns; of `labels` none is left out."""
    check_choice("missing", missing, MISSING)
    budget = parse_memory(memory)
    names = sources[0].names
    members = members_of(sources[0], groups)
    chosen = chosen_kinds(kinds, names, arguments[0])
    rest = [i for i in range(len(names)) if chosen.get(i) != "drop"]
    if len(rest) < len(names):
        sources = [source.pick(rest) for source in sources]
        chosen = {new: chosen[old] for new, old in enumerate(rest) if old in chosen}
    if not rest:
        raise InputError(f"{arguments[0]}: no column is left; choose fewer to drop.")
    # What a file says of itself hides NaN, which matters where rows or columns depend on it.
    scans = [scan(source, budget, trust=trusts(missing)) for source in sources]
    together = {name for part in (members or {}).values() for name in part}
    stay = [i for i, name in enumerate(sources[0].names) if labels or name in together]
    verdict = judge(scans, chosen, stay, FEW if labels else 2, empty=missing != "error")
    for note in (*dict.fromkeys(note for source in sources for note in source.notes), *verdict.notes):
        if not (labels and note.startswith("Text, compared")):  # which labels are expected to be
            add_note(note)
    if verdict.left_out:
        scans, verdict = _without(scans, verdict, budget, missing)
    return Prepared(scans, verdict, arguments, members, missing, budget)


def _without(scans: list[Scan], verdict: Verdict, memory: int, missing: str) -> tuple[list[Scan], Verdict]:
    """The same without the columns that are left out, whose missing values exclude no row."""
    rest = [i for i in range(len(scans[0].source.names)) if i not in verdict.left_out]
    again = [
        scan(one.source.pick(rest), memory, trust=trusts(missing))
        if one.gaps[list(verdict.left_out)].any()
        else one.pick(rest)
        for one in scans
    ]
    place = {old: new for new, old in enumerate(rest)}
    parsed = {place[i]: numbers for i, numbers in verdict.parsed.items() if i in place}
    dates, categories = ({place[i] for i in some if i in place} for some in (verdict.dates, verdict.categories))
    return again, replace(verdict, left_out=set(), parsed=parsed, dates=dates, categories=categories)


def _rows_to_keep(one: Scan, verdict: Verdict, missing: str) -> np.ndarray:
    """(n,) bool: the rows without a missing value, or all where missing values may stay; else what is wrong."""
    gaps, keep = one.gaps, one.keep
    lost = {i for i, numbers in verdict.parsed.items() if np.isnan(list(numbers.values())).any()}
    if lost:  # text that stands for a missing value
        gaps, keep = gaps.copy(), keep.copy()
        for i in lost & one.levels.keys():
            cells = one.source.read([i], 0, one.source.n)
            absent = np.isnan([verdict.parsed[i].get(level, np.nan) for level in cells.levels.get(0, ())])
            codes = cells.values[:, 0]
            empty = np.isnan(codes)
            empty[~empty] = absent[codes[~empty].astype(np.intp)]
            gaps[i] = empty.sum()
            keep &= ~empty
        one.gaps = gaps
    keep = np.ones(one.source.n, dtype=bool) if missing in CELLS_STAY else keep
    refuse_cells(one.source.argument, one.source.names, one.infinite, gaps, keep, missing)
    if not keep.all():
        used, what = np.count_nonzero(keep), "a response" if one.source.argument == "y" else "no missing value"
        add_note(f"{one.source.argument}: {used:,} of {len(keep):,} rows have {what} and are used.")
    return keep


def loaded(source: Source, memory: int | None = None) -> MemorySource:
    """All rows of a table that has to be in memory."""
    if isinstance(source, MemorySource):
        return source
    size = source.n * len(source.names) * 8
    if memory is not None and size > answer_of(memory):
        raise InputError(
            f"memory: the response alone takes {size / 1e6:,.0f} MB, more than half of the {memory / 1e6:,.0f} MB that "
            "may be used; allow more."
        )
    found = MemorySource(source.read(range(len(source.names)), 0, source.n), source.argument)
    found.notes = source.notes
    return found


# Numbers -------------------------------------------------------------------------------------------------------------


def _encoding(
    scans: Sequence[Scan], verdict: Verdict, arguments: Sequence[str], missing: str
) -> tuple[Encoding, list[Span]]:
    """One way for all tables to become numbers, and the span of each, after a check of the numbers' range over all."""
    names = scans[0].source.names
    levels: dict[int, tuple[str, ...]] = {}
    texts = dict(verdict.parsed)
    numbers = {i: [_distinct(one, i) for one in scans] for i in verdict.categories}
    for i in sorted({i for one in scans for i in one.levels} - texts.keys()):
        mixed = [one for one in scans if i not in one.levels and one.high[i] >= one.low[i]]
        if mixed and i not in numbers:
            raise _of_one_kind(names[i], scans, i)
        labels = set().union(*(one.levels.get(i, ()) for one in scans))
        levels[i] = tuple(sorted(labels.union(*(map(number_name, own.tolist()) for own in numbers.get(i, [])))))
        texts[i] = {level: float(code) for code, level in enumerate(levels[i])}
    categories: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for i, own in numbers.items():
        if i not in levels:
            levels[i] = tuple(map(number_name, np.unique(np.concatenate(own)).tolist()))
            texts[i] = {level: float(code) for code, level in enumerate(levels[i])}
        values = np.unique(np.concatenate(own))
        categories[i] = values, np.array([texts[i][number_name(value)] for value in values.tolist()])
    origin = {}
    for i in verdict.dates:
        days = [[texts[i][text] for text in one.levels[i]] if i in one.levels else [one.low[i]] for one in scans]
        origin[i] = float(np.nanmin(np.concatenate(days)))
        if i in texts:
            texts[i] = {text: number - origin[i] for text, number in texts[i].items()}
    gaps: dict[int, float] = {}
    for i in levels if missing == "value" else ():
        if any(one.gaps[i] for one in scans):
            gaps[i] = float(len(levels[i]))
            levels[i] = (*levels[i], MISSING_LEVEL)
    encoding = Encoding(_common_type(scans), texts, categories, origin, levels, gaps)
    spans = [encoding.span(one) for one in scans]
    return replace(encoding, dtype=_check_range(encoding.dtype, spans, names, arguments)), spans


def _of_one_kind(name: str, scans: Sequence[Scan], i: int) -> InputError:
    one = next(scan for scan in scans if i not in scan.levels and scan.high[i] >= scan.low[i])
    other = next(scan for scan in scans if i in scan.levels)
    first, second = scans[0].source.argument, (one if one is not scans[0] else other).source.argument
    return InputError(
        f"{second}: column '{name}' must be of the same kind as in {first}, but it holds numbers in "
        f"{one.source.argument} and categories in {other.source.argument}; convert one of them."
    )


def _distinct(one: Scan, i: int) -> np.ndarray:
    """The different numbers in a column."""
    if i in one.levels:
        return np.empty(0)
    values = to_numpy(one.source.read([i], 0, one.source.n).values)[:, 0]
    return np.unique(values[~np.isnan(values)])


def _common_type(scans: Sequence[Scan]) -> np.dtype[Any]:
    single = [np.dtype(np.float32 if set(one.kinds) <= {"float32"} else np.float64) for one in scans]
    own = [one.source.columns.values if isinstance(one.source, MemorySource) else None for one in scans]
    return np.result_type(
        *(dtype_of(values) if values is not None else kind for values, kind in zip(own, single, strict=True))
    )


def _check_range(
    dtype: np.dtype[Any], spans: Sequence[Span], names: Sequence[str], arguments: Sequence[str]
) -> np.dtype[Any]:
    """The type for numbers that lie in these spans; complain about those that cannot be squared."""
    for argument, (low, high) in zip(arguments, spans, strict=True):
        large = np.flatnonzero(np.maximum(-low, high) > _LARGEST[np.dtype(np.float64)])
        if large.size:
            raise InputError(
                f"{argument}: numbers beyond 1e70 in {quoted(names[i] for i in large.tolist())} are too large for "
                "squares of squares; rescale these columns."
            )
    low, high = np.min([low for low, _ in spans], axis=0), np.max([high for _, high in spans], axis=0)
    spread = high - low
    narrow = np.flatnonzero((spread > 0) & (spread < 1e-70))
    if narrow.size:
        raise InputError(
            f"{arguments[0]}: the values in {quoted(names[i] for i in narrow.tolist())} differ by less than 1e-70, "
            "too little to be squared; rescale these columns."
        )
    limit = _LARGEST[dtype]
    if np.any(np.maximum(-low, high) > limit) or np.any((spread > 0) & (spread < 1 / limit)):
        return np.dtype(np.float64)
    return dtype
