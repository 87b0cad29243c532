"""The kind of a column: numbers, categories, dates, an identifier, or text whose kind the user has to declare.

Text is judged by its different values, so that a column is treated the same in memory and from a file.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from kernsift.data.columns.written_numbers import (
    ISO_DATE,
    LOCAL_DATE,
    is_number,
    may_be_numbers,
    parse_dates,
    parse_local_dates,
    parse_numbers,
)
from kernsift.data.formats.source import NUMBERS, PLAIN, TEXTS, values_name
from kernsift.data.scan import Scan
from kernsift.exceptions import InputError, listed, quoted, suggestion
from kernsift.execution.arrays import to_numpy
from kernsift.execution.notes import add_note

KINDS = ("number", "category", "drop")
"""What `kinds=` may say of a column."""

# With fewer rows, columns are not taken for identifiers if all their values are different.
_FEW_ROWS = 12
# Columns whose decisions are written out.
_MOST_NAMED = 50
# Rows that are read to see whether whole numbers identify rows.
_HEAD = 1_000_000
_ID_NAME = re.compile(
    r"(?i:(^|[_\W])(id|ids|uid|uuid|guid|key|index|idx|row|rowid|rownr|nr|no|number)$)|[a-z]I[dD]$|^Unnamed: "
    r"|^__index_level_"
)
# Names that only identifiers have, whose values may repeat; an index or a number can be a measurement.
_CERTAIN_ID = re.compile(r"(?i:(^|[_\W])(id|ids|uid|uuid|guid|rowid)$)|[a-z]I[dD]$")


@dataclass
class ColumnDecisions:
    """What is done with the columns of one or several tables, by position.

    Attributes
    ----------
    parsed : for each text column that is read as numbers the number of each of its texts.
    dates : columns of dates, which are counted from the first.
    durations : columns of text that is read as times or durations.
    categories : columns of numbers that are to be categories.
    guesses : the columns of each guess, see `_NOTES`.
    repeated : the numbers of values and of rows of identifiers that are left out although some of their values repeat.
    """

    left_out: set[int] = field(default_factory=set)
    parsed: dict[int, dict[str, float]] = field(default_factory=dict)
    dates: set[int] = field(default_factory=set)
    durations: set[int] = field(default_factory=set)
    categories: set[int] = field(default_factory=set)
    guesses: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    repeated: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """One sentence for each guess."""
        return [_NOTES[guess].format(listed(columns)) for guess, columns in self.guesses.items() if columns]

    def note_repeated(self) -> None:
        """Note identifiers whose rows may belong together, in questions that can take them as units."""
        for name, (values, rows) in self.repeated.items():
            add_note(
                f"'{name}' has {values:,} different values in {rows:,} rows. If rows with the same value are not "
                f"independent, p-values are too small; use unit='{name}'."
            )


def chosen_kinds(kinds: Mapping[str, str] | None, names: Sequence[str], argument: str) -> dict[int, str]:
    """The choice for each column that `kinds` names, exactly or with * and ?."""
    if kinds is None:
        return {}
    if not isinstance(kinds, Mapping):
        raise InputError(
            f"kinds: a mapping from columns to 'number', 'category' or 'drop' is needed, got {type(kinds).__name__}; "
            "pass a dict such as {'price': 'number'}."
        )
    found: dict[int, str] = {}
    where = {name: i for i, name in enumerate(names)}
    for pattern, kind in kinds.items():
        if kind not in KINDS:
            raise InputError(
                f"kinds: one of 'number', 'category', 'drop' is needed for '{pattern}', got {kind!r}; use one."
            )
        fits = [pattern] if pattern in where else matching_columns(str(pattern), names, f"kinds: {argument}")
        found.update(dict.fromkeys((where[name] for name in fits), kind))
    return found


def matching_columns(pattern: str, names: Sequence[str], table: str) -> list[str]:
    """The columns that match a name or a pattern with * and ?; `table` is what error messages call the table."""
    found = [pattern] if pattern in names else [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise InputError(f"{table} has no column '{pattern}'{suggestion(pattern, names, f'; it has {quoted(names)}.')}")
    return found


def split_kinds(kinds: Any, names: Collection[str]) -> tuple[dict[str, str], Any]:
    """The entries of `kinds` for the columns `names`, and those for other columns; checked where they are used."""
    if not isinstance(kinds, Mapping):
        return {}, kinds
    own = {name: kind for name, kind in kinds.items() if str(name) in names}
    return own, {name: kind for name, kind in kinds.items() if name not in own} if own else kinds


def decide_kinds(
    scans: Sequence[Scan], chosen: Mapping[int, str], stay: Collection[int], few: int, *, empty: bool
) -> ColumnDecisions:
    """Decide on the columns of tables that have the same ones; columns at the positions `stay` are never left out.

    Columns without any value are left out where `empty`. Text with at most `few` different numbers is taken as
    categories; two differ as much as numbers as they do as text.

    Text that is mostly numbers or dates, text mixed with numbers, and types that are neither numbers nor categories are
    refused unless `chosen` says what they are, all columns in one sentence.
    """
    source, decisions = scans[0].source, ColumnDecisions()
    problems = UndecidedColumns(source.argument)
    unclean = [scan.kinds for scan in scans if not _CLEAN.issuperset(scan.kinds)]
    odd = {i for kinds in unclean for i, kind in enumerate(kinds) if kind not in _CLEAN}
    for i in sorted(odd | set(chosen)):
        _decide(i, scans, chosen.get(i), few, decisions, problems)
    if problems.kinds:
        undecided = [source.names.index(name) for name in problems.kinds]
        usable = {*NUMBERS, "empty", "unknown", *(TEXTS if problems.unusable >= problems.kinds.keys() else ())}
        problems.argument = next(
            scan.source.argument for scan in scans if any(scan.kinds[i] not in usable for i in undecided)
        )
        raise problems
    if source.named:
        _leave_out(scans, {*stay, *chosen}, empty, decisions)
    return decisions


_CLEAN = frozenset([*PLAIN, "empty", "unknown"])
_NOTES = {
    "identifier": "Different values in more than half of the rows, so left out as identifiers: {}.",
    "row number": "Row numbers, so left out: {}.",
    "empty": "Empty, so left out: {}.",
    "category": "Text, compared for equality: {}.",
    "date": "Dates, compared in days: {}.",
    "duration": "Times and durations, in days: {}.",
    "number": "Text, read as numbers: {}.",
    "written date": "Text, read as dates: {}.",
}


def _decide(
    i: int, scans: Sequence[Scan], choice: str | None, few: int, decisions: ColumnDecisions, problems: UndecidedColumns
) -> None:
    """Decide on a column that does not hold plain numbers everywhere, or whose kind is given."""
    name = scans[0].source.names[i]
    kinds = {scan.kinds[i] for scan in scans} - {"empty", "unknown"}
    unusable = kinds - {*NUMBERS, *TEXTS}
    if unusable:
        problems.add(f"values of type {min(unusable)}, which cannot be tested", name, "drop")
        problems.unusable.add(name)
        return
    texts = sorted(set().union(*(scan.levels.get(i, ()) for scan in scans)))
    if choice == "category":
        decisions.categories |= {i} if kinds & set(NUMBERS) else set()
    elif not kinds & set(TEXTS):
        if kinds & {"date", "duration"}:
            if len(kinds) > 1:
                first = next(scan for scan in scans if scan.kinds[i] in kinds)
                other = next(scan for scan in scans if scan.kinds[i] in kinds - {first.kinds[i]})
                one, two = ((scan.source.argument, values_name(scan.kinds[i])) for scan in (first, other))
                raise InputError(
                    f"{two[0]}: column '{name}' must be of the same kind as in {one[0]}, but it holds {one[1]} in "
                    f"{one[0]} and {two[1]} in {two[0]}; convert one of them."
                )
            decisions.guesses["date" if "date" in kinds else "duration"].append(f"'{name}'")
            decisions.dates |= {i} if "date" in kinds else set()
    elif choice == "number":
        readings = ((parse, parse(texts)) for parse in (parse_numbers, parse_dates, parse_local_dates))
        parse, numbers = next((found for found in readings if _share(found[1]) > 0.5), (None, None))
        if numbers is None and _mostly_local(texts):
            raise InputError(
                f"kinds: day and month of the dates in column '{name}', such as {texts[0]!r}, cannot be told apart; "
                "write them as 2020-12-31, or use 'drop'."
            )
        if numbers is None:
            raise InputError(
                f"kinds: column '{name}' cannot be read as numbers, because few of its {len(texts)} different texts "
                "are numbers; use 'category' or 'drop'."
            )
        decisions.parsed[i] = dict(zip(texts, numbers.tolist(), strict=True))
        gaps = [text for text, number in decisions.parsed[i].items() if np.isnan(number)]
        lost = f", with {quoted(gaps, 3)} as missing" if gaps else ""
        example = next(text for text, number in decisions.parsed[i].items() if not np.isnan(number))
        day = ISO_DATE.fullmatch(example) or LOCAL_DATE.fullmatch(example)
        decisions.dates |= {i} if day else set()
        decisions.durations |= {i} if parse is parse_dates and not day else set()
        decisions.guesses["written date" if day else "number"].append(f"'{name}' (such as {example!r:.40}{lost})")
    elif "category" not in kinds:
        _guess(i, name, texts, few, "mixed" in kinds, decisions, problems)


def _guess(
    i: int, name: str, texts: list[str], few: int, mixed: bool, decisions: ColumnDecisions, problems: UndecidedColumns
) -> None:
    """Guess the kind of a text column for which `kinds` says nothing."""
    readable = texts if may_be_numbers(texts) else []
    numbers, dates = parse_numbers(readable), parse_dates(readable)
    if _share(numbers) > 0.5 and np.count_nonzero(~np.isnan(numbers)) > few:
        written = next(
            (text for text, number in zip(texts, numbers, strict=True) if number == number and not is_number(text)), ""
        )
        lost = next((text for text, number in zip(texts, numbers, strict=True) if number != number), "")
        what = f"numbers written as {written!r:.40}" if written else "numbers as text"
        problems.add(what + (f" and also text such as {lost!r:.40}" if lost else ""), name, "number")
    elif _share(dates) == 1:
        decisions.parsed[i] = dict(zip(texts, dates.tolist(), strict=True))
        day = ISO_DATE.fullmatch(texts[0]) is not None
        (decisions.dates if day else decisions.durations).add(i)
        decisions.guesses["date" if day else "duration"].append(f"'{name}'")
    elif _share(dates) > 0.5:
        lost = texts[int(np.flatnonzero(np.isnan(dates))[0])]
        problems.add(f"dates, but also text such as {lost!r:.40}", name, "number")
    elif _mostly_local(readable):
        kind = "number" if _share(parse_local_dates(texts)) > 0.5 else "drop"
        problems.add(f"dates written as {texts[0]!r:.40} and not as 2020-12-31", name, kind)
    elif mixed:
        problems.add(f"numbers and text such as {texts[-1]!r:.40}", name, "category")
    elif len(texts) > 1:
        decisions.guesses["category"].append(f"'{name}' ({len(texts)} values)")


def _mostly_local(texts: Sequence[str]) -> bool:
    return 2 * sum(LOCAL_DATE.fullmatch(text) is not None for text in texts) > len(texts)


def _share(numbers: np.ndarray) -> float:
    return float(np.mean(~np.isnan(numbers))) if len(numbers) else 0.0


class UndecidedColumns(InputError):
    """Columns whose kind must be given, all in one sentence: what they hold, and what each of them may be."""

    def __init__(self, argument: str) -> None:
        self.argument = argument
        self.reasons: dict[str, list[str]] = {}
        self.kinds: dict[str, str] = {}
        self.unusable: set[str] = set()

    def add(self, reason: str, name: str, kind: str) -> None:
        self.reasons.setdefault(reason, []).append(name)
        self.kinds[name] = kind

    def __str__(self) -> str:
        held = [
            f"{quoted(names, 8)} {'holds' if len(names) == 1 else 'hold'} {reason}"
            for reason, names in self.reasons.items()
        ]
        number = len(self.kinds)
        fix = ", ".join([f"{name!r}: {kind!r}" for name, kind in self.kinds.items()][:_MOST_NAMED])
        ask = f"say {'' if number == 1 else 'for each '}whether it is a 'number', a 'category' or to 'drop', as in "
        if self.unusable >= self.kinds.keys():
            it = "it" if number == 1 else "them"
            ask = f"convert {it} to numbers or text, or leave {it} out as with "
        if self.argument == "y" and number == 1:
            if self.unusable:
                return f"y: the response {held[0]}; choose another response, or convert it to numbers or categories."
            return f"y: the response {held[0]}; say whether it is a 'number' or a 'category', as in kinds={{{fix}}}."
        return (
            f"{self.argument}: {number} {'column needs' if number == 1 else 'columns need'} a decision: "
            f"{'; '.join(held)}; {ask}kinds={{{fix}}}."
        )

    def merged_with(self, check: Callable[[], object]) -> UndecidedColumns:
        """The same with the columns that `check` finds."""
        try:
            check()
        except UndecidedColumns as more:
            for reason, names in more.reasons.items():
                for name in names:
                    self.add(reason, name, more.kinds[name])
            self.unusable |= more.unusable
        except InputError:  # reported when the kinds of these columns are given
            pass
        return self


def _leave_out(scans: Sequence[Scan], stay: set[int], empty: bool, decisions: ColumnDecisions) -> None:
    """Leave out columns that cannot be features: empty ones, and identifiers of rows."""
    names = scans[0].source.names
    present = np.array([scan.source.n for scan in scans])[:, None] - [scan.gaps for scan in scans]
    total = present.sum(axis=0)
    found = dict.fromkeys(np.flatnonzero(total == 0).tolist() if empty else (), "empty")
    # Numbers of different values and of rows, added over the tables.
    counts: defaultdict[int, np.ndarray] = defaultdict(lambda: np.zeros(2, dtype=int))
    if sum(scan.source.n for scan in scans) >= _FEW_ROWS:
        for i in {i for scan in scans for i in scan.levels} - decisions.parsed.keys() - found.keys():
            own = [scan.levels.get(i, ()) for scan in scans]
            # The same rows may be in several tables.
            different = all(len(texts) == count for texts, count in zip(own, present[:, i], strict=True))
            if total[i] >= _FEW_ROWS and (different or len(set().union(*own)) > 0.5 * total[i]):
                found[i] = "identifier"
                counts[i] += sum(map(len, own)), total[i]
        for scan in scans:
            found |= _integer_identifiers(scan, counts)
    found = {i: reason for i, reason in sorted(found.items()) if i not in stay}
    if len(found) == len(names):  # a table of identifiers alone is tested
        return
    for i, reason in found.items():
        decisions.left_out.add(i)
        if reason == "identifier":
            categories = decisions.guesses["category"]
            decisions.guesses["category"] = [one for one in categories if not one.startswith(f"'{names[i]}' (")]
            values, rows = counts[i].tolist()
            if values < rows and _CERTAIN_ID.search(names[i]):
                decisions.repeated[names[i]] = values, rows
        decisions.guesses[reason].append(f"'{names[i]}'")


def _integer_identifiers(scan: Scan, counts: defaultdict[int, np.ndarray]) -> dict[int, str]:
    """Columns of whole numbers that go up by one from row to row, or differ and are called identifiers.

    Their numbers of different values and of rows are added to `counts`.
    """
    source = scan.source
    if source.n < _FEW_ROWS:
        return {}
    # Whole numbers that are all different span as many numbers as there are rows.
    with np.errstate(invalid="ignore"):
        wide = (scan.high - scan.low >= source.n - 1) & (scan.gaps == 0) & (scan.low == np.floor(scan.low))
    found: dict[int, str] = {}
    for i in np.flatnonzero(wide).tolist():
        called = _ID_NAME.search(source.names[i]) is not None
        if scan.kinds[i] not in ("integer", "float64", "float32") or not (
            called or scan.high[i] - scan.low[i] == source.n - 1
        ):
            continue
        values = to_numpy(source.read([i], slice(0, min(source.n, _HEAD))).values)[:, 0]
        if (values[1:] - values[:-1] == 1).all():
            found[i] = "row number"
        elif called and (values == np.floor(values)).all():
            enough = 0.5 * len(values) if _CERTAIN_ID.search(source.names[i]) else len(values) - 1
            if (different := len(np.unique(values))) > enough:
                found[i] = "identifier"
                counts[i] += different, len(values)
    return found
