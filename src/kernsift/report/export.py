"""A result as a file: CSV, JSON, HTML, Markdown, text, Parquet or Excel, by the suffix of its name.

Files are complete or absent, and cells of text are never formulas of a spreadsheet.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernsift.exceptions import InputError, required
from kernsift.execution.files import atomic_path
from kernsift.report import text as wording

if TYPE_CHECKING:
    from kernsift.result import Result

# First characters that spreadsheets take for a formula, in either width; signed numbers are excluded.
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\n")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def check_suffix(path: str | Path, argument: str = "path") -> str:
    """The suffix, if it is one that can be written."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise InputError(
            f"{argument}: the suffix says what is written and must be one of {known}, got {str(path)!r}; rename it."
        )
    return suffix


def check_format(path: str | Path, suffix: str, argument: str, instead: str) -> None:
    """Refuse the suffix of another format than that of `suffix`, except CSV in a .txt file."""
    own = Path(path).suffix.lower()
    if SUFFIXES.get(own, SUFFIXES[suffix]) is not SUFFIXES[suffix] and (suffix, own) != (".csv", ".txt"):
        raise InputError(
            f"{argument}: the name of what is written here must end in {suffix}, got {str(path)!r}; rename it, or "
            f"{instead}."
        )


def written(result: Result, path: str | Path | None, suffix: str, **options: Any) -> str | None:
    """Write a file in the format of `suffix`, and return None, so that a notebook does not show a whole file.

    Without a path the content is returned.
    """
    if path is not None:
        check_format(path, suffix, "path", "use save")
    content = content_of(result, suffix, **options)
    if path is None:
        return str(content)
    write_whole(path, content)
    return None


def content_of(result: Result, suffix: str, *, sort: str = "p", **page: Any) -> str | bytes:
    """The content of a file with this suffix; `page` are the title of a report, and the command that makes it again."""
    make = SUFFIXES[suffix]
    return make(result, sort, **page) if make is _as_html else make(result, sort)


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file in one step: a reader sees the old one or the new one, and a failure leaves the old one."""
    # File names that are not valid Unicode may occur in the content; they become question marks.
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    target = Path(path)
    if os.path.isdir(target):
        raise InputError(f"{path}: is a folder; name a file in it.")
    try:
        if os.path.exists(target) and not os.path.isfile(target):  # a device or a pipe cannot be replaced
            target.write_bytes(data)
        else:
            with atomic_path(target) as part:
                part.write_bytes(data)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror or error}); name a file in a folder that can be written to."
        ) from None


def as_json(result: Result, sort: str = "p") -> str:
    """The result as JSON."""
    return json.dumps(result.to_dict(sort), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """A value as JSON has it: dictionaries, lists and Python's own numbers, with None for NaN and infinities."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def as_csv(result: Result, sort: str = "p", *, delimiter: str = ",") -> str:
    """The table as CSV; a text that a spreadsheet would take for a formula gets an apostrophe in front."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", delimiter=delimiter)
    for row in _rows(result, sort):
        writer.writerow([_without_formulas(cell) if isinstance(cell, str) else cell for cell in row])
    return out.getvalue()


def _rows(result: Result, sort: str) -> Iterator[Sequence[Any]]:
    """The names of the columns, then the rows of the table."""
    columns = result.columns(sort)
    yield list(columns)
    yield from zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True)


def _without_formulas(text: str) -> str:
    # A carriage return ends a row for some readers, and what follows it would begin a cell.
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text


def as_markdown(result: Result, sort: str = "p") -> str:
    """The verdict, the table of the discoveries and the notes, for an issue, a wiki or a notebook."""
    rows = wording.shown_rows(result, sort)
    columns = [(wording.noun_for(result.question, 1), [result.names[row] for row in rows])]
    columns += wording.table_columns(result, rows)
    stars = ["\\*" if result.rejected[row] else "" for row in rows]
    lines = [
        "| | " + " | ".join(head for head, _ in columns) + " |",
        "|" + "---|" * (len(columns) + 1),
        *(
            f"| {star} | " + " | ".join(_cell(cell) for cell in cells) + " |"
            for star, *cells in zip(stars, *(cells for _, cells in columns), strict=True)
        ),
    ]
    notes = "\n".join(f"- {_cell(note)}" for note in result.notes)
    parts = [_cell(wording.verdict(result)), "\n".join(lines) if len(rows) else "", wording.more(result, sort), notes]
    return "\n\n".join(filter(None, parts)) + "\n"


def _cell(text: str) -> str:
    """Text that Markdown takes as text: names come from data."""
    return re.sub(r"([\\`*_{}\[\]<>#|$~])", r"\\\1", wording.clean(text))


def _as_html(result: Result, sort: str, **page: Any) -> str:
    from kernsift.report.html import report

    return report(result, sort=sort, **page)


def _as_parquet(result: Result, sort: str) -> bytes:
    out, parquet = io.BytesIO(), required("pyarrow.parquet", "Writing Parquet files needs pyarrow")
    parquet.write_table(result.to_frame("pyarrow", sort=sort), out)
    return out.getvalue()


def _as_excel(result: Result, sort: str) -> bytes:
    book = required("openpyxl", "Writing Excel files needs openpyxl").Workbook()
    sheet = book.active
    for row in _rows(result, sort):
        sheet.append([_without_formulas(_printable(cell)) if isinstance(cell, str) else plain(cell) for cell in row])
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def _printable(text: str) -> str:
    """The text without control characters, which Excel files cannot hold."""
    return "".join(char if char.isprintable() or char in "\t\n" else "�" for char in text)


SUFFIXES: dict[str, Callable[..., str | bytes]] = {
    ".csv": as_csv,
    ".tsv": lambda result, sort: as_csv(result, sort, delimiter="\t"),
    ".json": as_json,
    ".html": _as_html,
    ".htm": _as_html,
    ".md": as_markdown,
    ".txt": lambda result, sort: result.to_text(sort=sort) + "\n",
    ".parquet": _as_parquet,
    ".xlsx": _as_excel,
}
