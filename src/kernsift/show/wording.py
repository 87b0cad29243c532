"""A result in words: the verdict as one sentence, and the table that fits a terminal."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from kernsift.multiplicity import adjust

if TYPE_CHECKING:
    from kernsift.result import Result

_FOUND = {
    "compare": "differ between the two samples",
    "relate": "depend on the response",
    "screen": "deviate from the reference",
}
_NARROWEST_NAME, _WIDEST_NAME = 12, 40


def things(question: str, count: int) -> str:
    """What is selected: features, or whole data sets."""
    noun = "data set" if question == "screen" else "feature"
    return noun if count == 1 else noun + "s"


def level(result: Result) -> str:
    """The correction and the level, such as "BH at 0.05"."""
    return f"{result.correction.upper()} at {result.alpha:g}" if result.correction else f"level {result.alpha:g}"


def fooled(result: Result) -> tuple[int, int]:
    """How many would pass by their naive p-values with the same correction, and how many of these do not stand."""
    passed = adjust(result.naive_pvalues, result.correction) <= result.alpha
    return int(passed.sum()), int((passed & ~result.rejected).sum())


def verdict(result: Result) -> str:
    """One sentence in plain words."""
    found, total = int(result.rejected.sum()), len(result.selected)
    if total == 0:
        noun = things(result.question, 1)
        return f"No {noun} reached the threshold, so nothing was selected and nothing was tested."
    noun = things(result.question, 2)
    found_to = f"{'is' if found == 1 else 'are'} found to {_FOUND.get(result.question, 'stand out')}"
    of_all = f", out of {len(result.scores)}," if total < len(result.scores) else ""
    said = f"{found} of the {total} selected {noun}{of_all} {found_to} ({level(result)})"
    return f"{said}; {_beside_naive(result)}."


def _beside_naive(result: Result) -> str:
    if result.settings.get("test") == "naive":
        return "these are naive p-values, which are too small after a selection"
    if len(result.selected) == len(result.scores):
        return "all were tested, so there was no selection to correct for"
    passed, lost = fooled(result)
    if passed == 0:
        return "nor would any have passed by its naive p-value" if not result.rejected.any() else "naively none would"
    believed = f"believing the naive p-values, which forget the selection, {passed} would have passed"
    if lost == 0:
        return f"{believed}, and {'it stands' if passed == 1 else 'all of these stand'}"
    return f"{believed}, of which {lost} {'does' if lost == 1 else 'do'} not stand"


def p_text(value: float) -> str:
    """A p-value for reading: four decimals, or a power of ten."""
    if value < 1e-99:
        return "<1e-99"
    return f"{value:.4f}" if value >= 1e-4 else f"{value:.1e}"


def words(result: Result, width: int = 100) -> str:
    """The verdict, and below it the notes as a list."""
    said = textwrap.wrap(clean(verdict(result)), width)
    if result.notes:
        said.append("")
    for note in result.notes:
        said += textwrap.wrap(clean(note), width, initial_indent="- ", subsequent_indent="  ")
    return "\n".join(said)


def table(result: Result, width: int = 100) -> str:
    """The selected features best first, in at most `width` columns."""
    columns = _columns(result)
    stars = ["*" if stands else " " for stands in result.rejected]
    longest = max([_cells(name) for name in map(clean, result.names)] + [7])
    columns = _fitting(columns, width - 2 - min(longest, 24))
    taken = sum(2 + max(len(head), *map(len, cells), 0) for head, cells in columns)
    room = int(np.clip(min(longest, width - 2 - taken), _NARROWEST_NAME, _WIDEST_NAME))
    lines = [" ".join([" ", _pad("feature" if result.question != "screen" else "data set", room)])]
    lines += [f"{star} {_pad(clean(name), room)}" for star, name in zip(stars, result.names, strict=True)]
    for head, cells in columns:
        wide = max(len(head), *map(len, cells), 0)
        lines = [f"{line}  {cell:>{wide}}" for line, cell in zip(lines, [head, *cells], strict=True)]
    return "\n".join(lines)


def html_table(result: Result) -> str:
    """The same table for a notebook, with the verdict above it and the notes below."""
    name = "feature" if result.question != "screen" else "data set"
    heads, columns = zip(*[(name, list(result.names)), *_columns(result)], strict=True)

    def line(tag: str, star: str, texts: Sequence[str]) -> str:
        """Names to the left, numbers to the right."""
        sides = ["left"] + ["right"] * (len(texts) - 1)
        shown = zip(sides, map(escape, texts), strict=True)
        cells = [f'<{tag} style="text-align: {side}">{text}</{tag}>' for side, text in shown]
        return f"<tr><{tag}>{star}</{tag}>{''.join(cells)}</tr>"

    stars = ["★" if stands else "" for stands in result.rejected]
    rows = "".join(line("td", star, texts) for star, texts in zip(stars, zip(*columns, strict=True), strict=True))
    notes = "".join(f"<li>{escape(note)}</li>" for note in result.notes)
    table = f"<table><thead>{line('th', '', heads)}</thead><tbody>{rows}</tbody></table>"
    return f"<p>{escape(verdict(result))}</p>{table}" + (f"<ul>{notes}</ul>" if notes else "")


def _columns(result: Result) -> list[tuple[str, list[str]]]:
    """Head and cells of every column beside the name, in the order of reading."""
    columns: list[tuple[str, list[str]]] = []
    if result.effects is not None:
        columns.append(("effect", [f"{value:.3f}" for value in result.effects]))
    if result.intervals is not None:
        ends = [f"[{low:.3f}, {high:.3f}]" for low, high in result.intervals]
        columns.append((f"{100 * (1 - result.alpha):.6g}% interval", ends))
    if result.effects is None:
        columns.append(("score", [f"{value:.4g}" for value in result.scores[result.selected]]))
    own = "p" if result.settings.get("test") == "naive" else "selective p"
    columns.append((own, [p_text(value) for value in result.pvalues]))
    if own != "p":
        columns.append(("naive p", [p_text(value) for value in result.naive_pvalues]))
    if result.correction:
        columns.append((f"{result.correction.upper()} p", [p_text(value) for value in result.adjusted_pvalues]))
    return columns


def _fitting(columns: list[tuple[str, list[str]]], room: int) -> list[tuple[str, list[str]]]:
    """Without the interval, then without the corrected p-values, where the line would be too long."""
    kept = list(columns)
    for dispensable in ("interval", "BH p", "BY p", "HOLM p"):
        if sum(2 + max(len(head), *map(len, cells), 0) for head, cells in kept) <= room:
            break
        kept = [column for column in kept if not column[0].endswith(dispensable)]
    return kept


def clean(text: str) -> str:
    """Without what would move the cursor: a line break or an escape sequence in a name is shown as a sign."""
    return "".join(sign if sign.isprintable() else "�" if sign not in "\t\r\n" else "⏎" for sign in text)


def _cells(text: str) -> int:
    """Terminal cells: East Asian wide characters take two, combining marks none."""
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    return len(text) + wide - sum(unicodedata.combining(sign) > 0 for sign in text)


def _pad(name: str, width: int) -> str:
    if _cells(name) > width:
        while _cells(name) > width - 1:
            name = name[:-1]
        name += "…"
    return name + " " * (width - _cells(name))


def legend(result: Result, width: int = 100) -> str:
    """What the columns of the table mean, in few words."""
    parts = ["* stands at this level after the correction" if result.correction else "* stands at this level"]
    if result.effects is not None:
        parts.append("effect: 0 none, 1 complete")
    if result.settings.get("test") == "naive":
        parts.append("p: as if nothing had been selected")
    else:
        parts.append("selective p: valid although the same data made the selection; naive p: forgets it")
    return "\n".join(textwrap.wrap("; ".join(parts) + ".", width))
