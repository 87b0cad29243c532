"""Figures in the pages of docs/: tables and sentences between `<!-- name -->` and `<!-- end -->` of a Markdown file."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
_PART = re.compile(r"<!-- (?P<name>[\w, -]+) -->\n.*?<!-- end -->", re.DOTALL)


def fill(page: Path, parts: Mapping[str, str]) -> None:
    """Put all parts into their places; a page that does not exist yet begins as a copy of that in docs/."""
    if not page.exists():
        page.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(DOCS / page.name, page)
    text = page.read_text(encoding="utf-8")
    places = [match["name"] for match in _PART.finditer(text)]
    if sorted(places) != sorted(parts):
        raise ValueError(f"{page}: has places for {', '.join(places)}, but the parts are {', '.join(parts)}.")

    def filled(match: re.Match[str]) -> str:
        return f"<!-- {match['name']} -->\n\n{parts[match['name']].strip()}\n\n<!-- end -->"

    page.write_text(_PART.sub(filled, text), encoding="utf-8")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table.

    >>> print(table(["n", "power"], [["60", "0.8"]]))
    | n | power |
    |---|---|
    | 60 | 0.8 |
    """
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def span(dates: Iterable[str]) -> str:
    """One date, or the first and the last."""
    days = sorted(set(dates))
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
