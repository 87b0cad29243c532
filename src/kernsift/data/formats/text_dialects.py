"""How a table is kept as text: separator, header and decimal sign, guessed from its first lines as people expect."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kernsift.exceptions import InputError

# In the order of trial: a comma may be a decimal sign, and a space part of a name.
SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "vertical bars", ",": "commas", " ": "spaces"}
SAMPLE = 200_000
"""Characters that are looked at to find the separator."""

SAMPLE_ROWS = 50
"""Rows that are looked at to find the decimal sign."""

LONGEST_CELL = 131_072
"""The longest cell that is read, in characters: what is longer is no number, no category and no name."""

# The longer marks first: that of UTF-32 begins as that of UTF-16 does.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

# Not among pandas' own markers, but common where numbers are missing; "-" and "." may be honest categories.
_GAPS = ["?"]


@dataclass(frozen=True)
class Dialect:
    """How the values of a text are written.

    Attributes
    ----------
    separator : the sign between columns.
    names : the column names.
    named : whether they are the file's own.
    decimal : the decimal sign.
    rows : rows, without the line of names.
    spaces : whether cells may begin with spaces.
    """

    separator: str
    names: list[str]
    named: bool
    decimal: str
    rows: int
    spaces: bool = True

    def for_pandas(self) -> dict[str, Any]:
        """What `pandas.read_csv` has to be told."""
        return {
            "sep": self.separator,
            "header": 0 if self.named else None,
            "names": self.names,
            "index_col": False,
            "decimal": self.decimal,
            "na_values": _GAPS,
            "skipinitialspace": self.spaces,  # which takes time
            "low_memory": False,
            **_exactly(),
        }

    def notes(self, name: str) -> tuple[str, ...]:
        """What was guessed, but for what everybody expects, one sentence each."""
        said = []
        usual = self.separator == "\t" and name.lower().endswith((".tsv", ".tab", ".txt"))
        if self.separator != "," and not usual:
            said.append(f"{name}: columns are separated by {SEPARATORS[self.separator]}.")
        if self.decimal == ",":
            said.append(f"{name}: numbers have decimal commas.")
        if not self.named:
            said.append(f"{name}: the first line holds numbers, so the columns are called x0, x1 and so on.")
        return tuple(said)


def encoding_of(start: bytes) -> str:
    """The encoding that the mark at the start of a file names; UTF-8 where there is none."""
    return next((known for mark, known in _MARKS.items() if start.startswith(mark)), "utf-8-sig")


def separator_of(text: str) -> str:
    """The sign that cuts all of the first lines into the same number of columns, more than one."""
    lines = [line for line in text[:SAMPLE].splitlines()[:SAMPLE_ROWS] if line.strip()]
    if len(text) > SAMPLE and len(lines) > 1:
        lines = lines[:-1]
    best, most = ",", (0.0, 0)
    for sign in SEPARATORS:
        try:
            counts = Counter(len(row) for row in csv.reader(lines, delimiter=sign, skipinitialspace=True) if row)
        except csv.Error:
            continue
        width, often = counts.most_common(1)[0] if counts else (1, 0)
        share = often / max(1, counts.total())
        if width > 1 and share == 1.0:
            return sign
        if width > 1 and sign != " " and (share, width) > most:
            best, most = sign, (share, width)
    return best


def check_rows(lines: Iterable[str], separator: str, name: str) -> Dialect:
    """How a text is written, after a look at every line: each row must be as long as the first."""
    rows = csv.reader(_whole_lines(lines, name), delimiter=separator, skipinitialspace=True)
    first: list[str] = []
    sample: list[list[str]] = []
    begun, count = 1, 0
    try:
        for row in rows:
            if not row or (len(row) == 1 and not row[0].strip()):
                continue  # a blank line
            if not first:
                first = row
            elif len(row) != len(first):
                raise _ragged(name, first, begun, rows.line_num, len(row), separator)
            elif len(sample) < SAMPLE_ROWS:
                sample.append(row)
            begun = rows.line_num + 1
            count += 1
    except csv.Error as error:
        if "limit" in str(error):
            raise InputError(
                f"{name}: a cell in line {begun} is longer than {LONGEST_CELL:,} characters; shorten it, or close a "
                "quotation mark that is open there."
            ) from None
        raise InputError(f"{name}: line {rows.line_num} cannot be read ({error}); mend that line.") from None
    if not first:
        raise InputError(f"{name}: is empty; a table with a line of column names is needed.")
    named = not all(_is_number(cell) for cell in first)
    decimal = "," if separator != "," and _decimal_commas(sample) else "."
    if named and not sample:
        raise InputError(f"{name}: has column names but no rows; add some.")
    names = header_names(first, name) if named else [f"x{i}" for i in range(len(first))]
    return Dialect(separator, names, named, decimal, count - named)


def header_names(cells: list[str], name: str) -> list[str]:
    """The names in the first line of a table: made up where a cell is empty, and each only once."""
    header = [cell.strip() or f"Unnamed: {i}" for i, cell in enumerate(cells)]  # as pandas calls them
    refuse_repeated(header, name)
    return header


def refuse_repeated(names: list[str], name: str) -> None:
    """Complain about columns of one name."""
    if len(set(names)) < len(names):
        repeated = [cell for cell, count in Counter(names).items() if count > 1]
        raise InputError(f"{name}: column names must be unique, but '{repeated[0]}' occurs more than once; rename one.")


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True


def _decimal_commas(sample: list[list[str]]) -> bool:
    cells = [cell for row in sample for cell in row if cell.strip() and _is_number(cell)]
    return any("," in cell for cell in cells) and not any("." in cell for cell in cells)


def _whole_lines(lines: Iterable[str], name: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if "\0" in line:
            raise InputError(f"{name}: line {number} holds a zero byte, which text does not; mend it.")
        yield line


def unreadable(name: str, said: str) -> InputError:
    """The error for what pandas says of a text that it cannot read."""
    opened = re.search(r"EOF inside string starting at row (\d+)", said)
    if opened:
        return InputError(f"{name}: a quotation mark in about line {int(opened[1]) + 1} is never closed; close it.")
    return InputError(f"{name}: could not be read as separated values ({said}); save the table as CSV again.")


def _ragged(name: str, first: list[str], begun: int, line: int, width: int, separator: str) -> InputError:
    if line > begun:
        return InputError(f"{name}: a quotation mark in line {begun} is open until line {line}; close or remove it.")
    fix = f"mend that line, or quote fields that hold {SEPARATORS[separator]}"
    if first[0].startswith("#") and len(first) == 1:
        fix = "remove the comment lines at the top"
    return InputError(
        f"{name}: every row needs {len(first)} fields as in the first line, but line {line} has {width}; {fix}."
    )


def _exactly() -> dict[str, str]:
    """Makes pandas read numbers as they are written: before 3.1 the last digit of some was wrong unless one asked."""
    import pandas as pd

    major, minor = (int(part) for part in pd.__version__.split(".")[:2])
    return {"float_precision": "round_trip"} if (major, minor) < (3, 1) else {}
