"""A result in words: one sentence for what was found, and a table that fits a terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from html import escape
from numbers import Integral
from os.path import commonprefix
from typing import TYPE_CHECKING

import numpy as np

from kernsift.exceptions import InputError

if TYPE_CHECKING:
    from kernsift.result import Result

_FOUND = {
    "compare": ("differs between the two samples", "differ between the two samples"),
    "relate": ("depends on the response", "depend on the response"),
    "screen": ("deviates from the reference", "deviate from the reference"),
}
_CONDITIONS = {
    "exact": "conditional on the selection of that {noun}",
    "multiscale": "conditional on the selection of that {noun}",
    "polyhedral": "conditional on the whole set of selected {noun}s",
}
_NARROWEST_NAME, _WIDEST_NAME = 12, 40
_NARROWEST_TERMINAL = 50
MOST_ROWS = 20
"""Rows of a printed table."""
_BEST = 5
_CHANGE = "what changed"
# The longest name that the column "similar" shows.
_LONGEST_SIMILAR = 14
_NARROWEST_CHANGE, _WIDEST_CHANGE = 22, 48
# The longest list of confounders that is written out.
_LONGEST_GIVEN = 40


def noun_for(question: str, count: int) -> str:
    """The noun for what is tested: features, or whole data sets."""
    noun = "data set" if question == "screen" else "feature"
    return noun if count == 1 else noun + "s"


def count_phrase(question: str, count: int) -> str:
    """A number of features, or of data sets."""
    return f"{count:,} {noun_for(question, count)}"


def level(result: Result) -> str:
    """The correction and the level, such as "BH at 0.05"."""
    return f"{result.correction.upper()} at {result.alpha:g}" if result.correction else f"level {result.alpha:g}"


def family_size(result: Result) -> int:
    """The number of p-values that the correction counts."""
    return len(result.selected) if result.listed and result.family == "selected" else len(result.scores)


def error_rate(result: Result) -> str:
    """The error rate that is controlled, and over which features."""
    over = count_phrase(result.question, family_size(result))
    which = over if family_size(result) == 1 else f"all {over}"
    if result.listed and result.family == "selected":
        which = f"the {over} selected"
    return controlled(result.correction, result.alpha, which)


def controlled(correction: str | None, alpha: float, over: str) -> str:
    """The error rate of a correction over some tests."""
    if correction is None:
        return f"each at level {alpha:g}, not corrected for the number of tests"
    rate = "family-wise error rate" if correction == "holm" else "false discovery rate"
    return f"{rate} {alpha:g}, {correction.upper()} over {over}"


def short(result: Result) -> str:
    """How many discoveries there are, in a few words."""
    found, total = int(result.rejected.sum()), len(result.selected)
    of = f"of {count_phrase(result.question, total)}"
    if result.listed:
        of = f"of the {total:,} selected of {count_phrase(result.question, len(result.scores))}"
    return f"{found:,} {of} significant ({level(result)})"


def verdict(result: Result) -> str:
    """One sentence in plain words: what was tested, what is significant, and at which error rate."""
    found, total = int(result.rejected.sum()), len(result.selected)
    if total == 0:
        return f"No {noun_for(result.question, 1)} reached the threshold, so none is listed{_outside(result)}."
    noun = noun_for(result.question, total)
    one, many = _FOUND[result.question]
    if result.listed:
        noun = f"selected {noun}, out of {len(result.scores):,},"
    said = f"{f'{found:,}' if found else 'None'} of the {total:,} {noun}"
    differ = f"significantly {many if found > 1 else one}"
    if total == 1:
        said, differ = f"The {noun}", differ if found else f"does not significantly {many}"
    return f"{said} {differ}{_given(result)} ({error_rate(result)}){_outside(result)}{_condition(result)}."


def guarantee(result: Result) -> str:
    """What the correction guarantees about the discoveries, in one sentence."""
    noun = noun_for(result.question, 2)
    share = f"{100 * result.alpha:g}%"
    if result.correction is None:
        return f"Nothing is corrected for the number of tests: of {noun} without any effect, {share} are significant."
    if result.correction == "holm":
        sure, one = f"{100 * (1 - result.alpha):g}%", noun_for(result.question, 1)
        return f"With a probability of at least {sure}, no {one} called significant is a false finding."
    return f"Of the {noun} called significant, at most {share} are false findings on average."


def subject(result: Result) -> str:
    """The names of the samples, or of the response; empty where they have none of their own."""
    if result.question == "compare" and len(result.labels) == 2 and result.labels != ("X", "Y"):
        return " and ".join(result.labels)
    return result.labels[0] if result.question == "relate" and result.labels and result.labels[0] != "y" else ""


def title(result: Result) -> str:
    """A heading that names the samples or the response."""
    if result.question == "compare":
        return f"What differs between {subject(result) or 'the two samples'}"
    if result.question == "relate":
        return f"Which features depend on {subject(result) or 'the response'}"
    return "Which data sets deviate from the reference"


def _given(result: Result) -> str:
    """The confounders that are held fixed, for a sentence."""
    given = result.settings.get("given")
    return "" if given is None else " given the confounders" if isinstance(given, str) else f" {given_phrase(given)}"


def given_phrase(names: Sequence[str]) -> str:
    """The names of confounders; their number where the names are long or made up."""
    listed, of_array = ", ".join(names), [f"given{place}" for place in range(len(names))]
    if len(listed) <= _LONGEST_GIVEN and list(names) != of_array:
        return f"given {listed}"
    return f"given {len(names)} {'confounder' if len(names) == 1 else 'confounders'}"


def _outside(result: Result) -> str:
    """How many discoveries a short list leaves out."""
    if not result.listed or result.correction is None:
        return ""
    more = result.found_outside
    noun = noun_for(result.question, more or 1)
    some = len(result.selected) > 0
    if more == 0:
        return f"; no {'other ' if some else ''}{noun} is significant when all are tested"
    which = f"{more:,} more {noun} outside the list" if some else f"{more:,} {noun}"
    return f"; {which} {'is' if more == 1 else 'are'} significant when all are tested"


def _condition(result: Result) -> str:
    """What the p-values of a short list are conditional on."""
    if not result.listed:
        return ""
    condition = _CONDITIONS.get(str(result.settings.get("test")))
    if condition is None:
        return "; the p-values ignore the selection, after which they are not valid by themselves"
    return f"; each selective p-value is {condition.format(noun=noun_for(result.question, 1))}"


def p_text(value: float) -> str:
    """A p-value for reading: four decimals, or a power of ten."""
    if value < 1e-99:
        return "<1e-99"
    return f"{value:.4f}" if value >= 1e-4 else f"{value:.1e}"


def share_text(share: float) -> str:
    """A share in per cent; a small one that is not zero is not written as 0%."""
    return f"{100 * share:.1g}%" if 0 < share < 0.005 else f"{share:.0%}"


def text(result: Result, width: int = 100, sort: str = "p") -> str:
    """The printed result: the verdict, the table, how many rows it omits, and the notes."""
    if not isinstance(width, Integral) or width < _NARROWEST_NAME:
        raise InputError(f"width: needs a whole number from {_NARROWEST_NAME} on, got {width!r}; 80 columns are usual.")
    parts = [wrapped_verdict(result, width), table_and_order(result, width, sort), notes(result, width)]
    return "\n\n".join(filter(None, parts))


def printed_width() -> int:
    """100 columns; those of the terminal that standard output is, where they are fewer."""
    if sys.stdout is None or not sys.stdout.isatty():
        return 100
    return max(_NARROWEST_TERMINAL, min(shutil.get_terminal_size((100, 24)).columns, 100))


def table_and_order(result: Result, width: int = 100, sort: str = "p") -> str:
    """The table, how many rows it omits, and how it is sorted."""
    return "\n".join([table(result, width, sort=sort), more(result, sort)]) if len(result.names) else ""


def wrapped_verdict(result: Result, width: int = 100) -> str:
    """The verdict, wrapped to `width` columns."""
    return "\n".join(textwrap.wrap(clean(verdict(result)), width))


def notes(result: Result, width: int = 100) -> str:
    """The notes as a list."""
    lines = []
    for note in result.notes:
        lines += textwrap.wrap(clean(note), width, initial_indent="- ", subsequent_indent="  ")
    return "\n".join(lines)


def shown_rows(result: Result, sort: str = "p") -> np.ndarray:
    """Which rows a table shows: the discoveries, or the best where there are none; of a short list all."""
    order = result.order(sort)
    if result.listed:
        return order[:MOST_ROWS]
    found = order[result.rejected[order]]
    return found[:MOST_ROWS] if len(found) else order[np.isin(order, np.arange(_BEST))]


def more(result: Result, sort: str) -> str:
    """How many rows a table omits, and its order; nothing about a table without rows."""
    shown, total, found = len(shown_rows(result)), len(result.selected), int(result.rejected.sum())
    left = (total if result.listed else found) - shown
    if left > 0:
        return f"and {left:,} more; sorted by {_SORTED_BY[sort]}"
    best = f"The best {shown} of {total:,}, sorted" if not found and shown < total else "Sorted"
    return f"{best} by {_SORTED_BY[sort]}." if shown else ""


_SORTED_BY = {"p": "evidence, strongest first", "effect": "effect, largest first", "name": "name"}


def table(result: Result, width: int = 100, *, sort: str = "p") -> str:
    """The rows to show, strongest evidence first unless `sort` says otherwise, in at most `width` columns."""
    rows = shown_rows(result, sort)
    columns = _shown_columns(result, rows, width)
    names = [clean(result.names[row]) for row in rows]
    longest = _widest_name(names)
    taken = sum(2 + _column_width(column) for column in columns)
    room = int(np.clip(min(longest, width - 2 - taken), _NARROWEST_NAME, _WIDEST_NAME))
    lines = [" ".join([" ", _pad(noun_for(result.question, 1), room)])]
    stars = ["*" if result.rejected[row] else " " for row in rows]
    lines += [f"{star} {_pad(name, room)}" for star, name in zip(stars, abbreviations(names, room), strict=True)]
    for head, cells in columns:
        if head == _CHANGE:
            indent = "\n" + " " * (_display_width(lines[0]) + 2)
            padded = [head, *(cell.replace("\n", indent) for cell in cells)]
        else:
            wide = _column_width((head, cells))
            padded = [f"{cell:>{wide}}" for cell in [head, *cells]]
        lines = [f"{line}  {cell}" for line, cell in zip(lines, padded, strict=True)]
    return "\n".join(line.rstrip() for line in lines) if columns and columns[-1][0] == _CHANGE else "\n".join(lines)


def _shown_columns(result: Result, rows: np.ndarray, width: int) -> list[tuple[str, list[str]]]:
    """The columns that fit into a table of this width next to the names."""
    longest = _widest_name([clean(result.names[row]) for row in rows])
    return _fit_columns(table_columns(result, rows), width - 2 - int(np.clip(longest, _NARROWEST_NAME, 24)))


def _widest_name(names: Sequence[str]) -> int:
    return max([_display_width(name) for name in names] + [7])


def html_table(result: Result) -> str:
    """The same table for a notebook, with the verdict above it and the notes below."""
    rows = shown_rows(result)
    first = (noun_for(result.question, 1), [result.names[row] for row in rows])
    heads, columns = zip(*[first, *table_columns(result, rows)], strict=True)

    def line(tag: str, star: str, texts: Sequence[str]) -> str:
        """Words to the left, numbers to the right and in one line, which 1e-10 would not be."""
        sides = ["left" if head in (heads[0], _CHANGE) else "right; white-space: nowrap" for head in heads]
        shown = zip(sides, map(escape, texts), strict=True)
        cells = [f'<{tag} style="text-align: {side}">{text}</{tag}>' for side, text in shown]
        return f"<tr><{tag}>{star}</{tag}>{''.join(cells)}</tr>"

    stars = ["★" if result.rejected[row] else "" for row in rows]
    body = "".join(line("td", star, texts) for star, texts in zip(stars, zip(*columns, strict=True), strict=True))
    table = f"<table><thead>{line('th', '', heads)}</thead><tbody>{body}</tbody></table><p>{more(result, 'p')}</p>"
    listed = "".join(f"<li>{escape(note)}</li>" for note in result.notes)
    return "".join([f"<p>{escape(verdict(result))}</p>", table if body else "", f"<ul>{listed}</ul>" if listed else ""])


def p_name(result: Result) -> str:
    """The name of the p-values: those of a short list are selective."""
    return "selective p" if result.listed and result.settings.get("test") != "naive" else "p"


def interval_name(result: Result) -> str:
    """The name of the intervals: where all features are tested they control the false coverage rate."""
    kind = " FCR" if not result.listed and result.correction is not None else ""
    return f"{100 * result.confidence_level:.6g}%{kind} interval"


def table_columns(result: Result, rows: np.ndarray) -> list[tuple[str, list[str]]]:
    """Heads and cells of all columns except the names."""
    columns: list[tuple[str, list[str]]] = []
    if result.effects is not None:
        columns.append(("effect", [f"{value:.3f}" for value in result.effects[rows]]))
    if (intervals := result.estimates.intervals_of(rows)) is not None:
        ends = [f"[{low:.3f}, {high:.3f}]" for low, high in intervals]
        columns.append((interval_name(result), ends))
    if result.effects is None:
        columns.append(("score", [f"{value:.4g}" for value in result.scores[result.selected[rows]]]))
    columns.append((p_name(result), [p_text(value) for value in result.pvalues[rows]]))
    if result.correction:
        adjusted = [p_text(value) for value in result.adjusted_pvalues[rows]]
        columns.append((f"{result.correction.upper()} p", adjusted))
    if (missing := result.missing[rows]).any():
        columns.append(("n", [f"{count:,}" for count in result.n[result.selected[rows]]]))
        columns.append(("missing", [share_text(share) for share in missing]))
    if result.distinct is not None:
        columns.append(("distinct", ["yes" if result.distinct[row] else "no" for row in rows]))
    if any(similar := _similar(result, rows)):
        columns.append(("similar", similar))
    changes = [clean(result.describe(int(row))) for row in rows]
    if any(changes):
        columns.append((_CHANGE, changes))
    return columns


def _similar(result: Result, rows: np.ndarray) -> list[str]:
    """The number of other members for the best discovery of each cluster, and the name of the best for the others."""
    said = {}
    for members in result.clusters:
        if len(members) > 1:
            said[members[0]] = f"and {len(members) - 1} similar"
            name = abbreviated(clean(members[0]), _LONGEST_SIMILAR)
            said |= dict.fromkeys(members[1:], f"like {name}")
    return [said.get(result.names[row], "") for row in rows]


def _column_width(column: tuple[str, list[str]]) -> int:
    head, cells = column
    return max(_display_width(head), *(_display_width(line) for cell in cells for line in cell.split("\n")), 0)


def _fit_columns(columns: list[tuple[str, list[str]]], room: int) -> list[tuple[str, list[str]]]:
    """The columns that fit: descriptions are wrapped first, then columns that others imply are dropped."""
    kept = list(columns)
    corrected = any(head.endswith(" p") and head != "selective p" for head, _ in columns)

    def rest() -> int:
        return room - sum(2 + _column_width(column) for column in kept if column[0] != _CHANGE)

    described = [column for column in kept if column[0] == _CHANGE]
    wanted = min(_column_width(described[0]), _WIDEST_CHANGE) + 2 if described else 0
    least = min(wanted, _NARROWEST_CHANGE + 2)
    intervals = [head for head, _ in kept if head.endswith("interval")]
    dispensable = [["p"] if corrected else [], ["missing", "similar"], intervals]
    for heads, needed in zip(dispensable, (wanted, wanted, least), strict=True):
        if rest() < needed:
            kept = [column for column in kept if column[0] not in heads]
    if described:
        place = min(rest() - 2, _WIDEST_CHANGE + 24)
        kept = kept[:-1]
        if place >= _NARROWEST_CHANGE or place >= _column_width(described[0]):
            kept.append((_CHANGE, [_wrapped(cell, place) for cell in described[0][1]]))
    if rest() < 0:
        kept = [column for column in kept if column[0] in ("effect", "score", "p", "selective p", _CHANGE)]
    return kept


def clean(text: str) -> str:
    """Replace line breaks and control characters in names, which would move the cursor, by visible ones."""
    return "".join(char if char.isprintable() else "⏎" if char in "\t\r\n" else "�" for char in text)


def abbreviated(text: str, most: int) -> str:
    """The text in at most `most` terminal cells, without its middle: names often differ only at their ends."""
    found, size = text, most
    while _display_width(found) > most:
        end = (size - 1) // 3
        found = f"{text[: size - 1 - end].rstrip()}…{text[len(text) - end :].lstrip()}"
        size -= 1
    return found


def abbreviations(names: Sequence[str], most: int) -> list[str]:
    """Each name in at most `most` terminal cells; names that would be equal keep the part in which they differ.

    >>> abbreviations(["dose of drug 1, in mg a day", "dose of drug 2, in mg a day", "age"], 16)
    ['dose…1, in mg a…', 'dose…2, in mg a…', 'age']
    """
    short = {name: abbreviated(name, most) for name in names}
    groups = _grouped(short, lambda name: name[: most // 4])
    while groups:
        group = groups.pop()
        for others in _grouped(group, short.__getitem__):
            if len(others) > 1:
                # What tells them from the rest of the group stays.
                head = _cut(short[others[0]], most // 4 if len(others) == len(group) else 2 * most // 3)
                short.update(_from_difference(others, head, most))
                if len({short[name] for name in others}) > 1:
                    groups.append(others)
    return [short[name] for name in names]


def _grouped(names: Iterable[str], key: Callable[[str], str]) -> list[list[str]]:
    """Names with the same key together."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(key(name), []).append(name)
    return list(found.values())


def _from_difference(names: Sequence[str], head: str, most: int) -> dict[str, str]:
    """What each name has from the word in which they differ first, after a head that they share."""
    start = len(commonprefix(names))  # noqa: RUF071, letter by letter
    room = most - _display_width(head) - 1
    ends = (names[0].rfind(separator, max(start - room // 3, 0), start) for separator in " _-./")
    start = max(*ends) + 1 or start
    rests = ((name, name[start:]) for name in names)
    return {
        name: f"{head}…{rest if _display_width(rest) <= room else _cut(rest, room - 1) + '…'}" for name, rest in rests
    }


def _cut(text: str, most: int) -> str:
    """The start of a text, at most `most` terminal cells."""
    text = text[:most]
    while _display_width(text) > most:
        text = text[:-1]
    return text.rstrip()


def _display_width(text: str) -> int:
    """Terminal cells: East Asian wide characters take two, combining marks none."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)


def _pad(name: str, width: int) -> str:
    return name + " " * (width - _display_width(name))


def _wrapped(text: str, width: int) -> str:
    """A description in lines of at most `width` cells; longer words are cut.

    Its numbers have a line of their own where the words before them fit one.
    """
    if _display_width(text) <= width:
        return text
    lines: list[str] = []
    start, colon, numbers = text.rpartition(": ")
    for part in filter(None, [start + colon.strip(), numbers]):
        if len(lines) < 2:
            lines.append("")
        for word in part.split():
            longer = f"{lines[-1]} {word}".strip()
            if _display_width(longer) <= width:
                lines[-1] = longer
            else:
                lines.append(abbreviated(word, width))
    return "\n".join(filter(None, lines))


def legend(result: Result, width: int = 100, *, tests: int | None = None) -> str:
    """The meaning of the columns of the table, in a few words.

    `tests` is the number of p-values that the correction counts where the result is that of one of several groups.
    """
    heads = {head for head, _ in _shown_columns(result, shown_rows(result), width)}
    parts = ["* significant"]
    if "effect" in heads:
        parts.append("effect: 0 none, 1 complete")
    if result.listed and p_name(result) != "p":
        parts.append("selective p: for this feature by itself, given that it was selected")
    elif result.listed:
        parts.append("p: as if nothing had been selected")
    if result.correction and (name := f"{result.correction.upper()} p") in heads:
        size = family_size(result) if tests is None else tests
        parts.append(f"{name}: corrected for {size:,} {'test' if size == 1 else 'tests'}")
    if result.question == "compare" and len(result.labels) == 2 and _CHANGE in heads and tests is None:
        parts.append(f"{_CHANGE}: {clean(result.labels[1])} v {clean(result.labels[0])}")
    return "\n".join(textwrap.wrap("; ".join(parts) + ".", width))
