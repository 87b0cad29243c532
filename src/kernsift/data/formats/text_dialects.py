"""The dialect of a table in a text file: encoding, separator, header and decimal sign, guessed from its lines.

Every line is checked: all rows must have as many cells as the first.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.columns.written_numbers import is_number
from kernsift.data.formats.archives import check_unpacked_size, text_member
from kernsift.exceptions import InputError, check_unique

# In the order of trial: a comma may be a decimal sign, and a space part of a name.
_SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "vertical bars", ",": "commas", " ": "spaces"}
# Characters that show the separator, and rows that show the decimal sign.
_SAMPLE, _SAMPLE_ROWS = 200_000, 50
# The longest cell that is read, in characters: no number, category or name is longer.
_LONGEST_CELL = 131_072
# Bytes that show the encoding, that are read at a time, and of the longest line.
_START, _BLOCK, _LONGEST_LINE = 100_000, 1 << 20, 1 << 26
# Encodings in which the signs that cut a text into cells are single bytes, and these bytes nothing else.
_ONE_BYTE = {"utf-8", "utf-8-sig", "latin-1", "iso-8859-1", "cp1252", "ascii"}

# The longer marks first: that of UTF-32 begins as that of UTF-16 does.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

# Missing values that pandas does not know; "-" and "." may be categories.
_GAPS = ["?"]


@dataclass(frozen=True)
class Dialect:
    """How the values of a text are written."""

    separator: str
    names: list[str]
    named: bool  # whether the names are the file's own
    decimal: str
    rows: int
    spaces: bool = True  # whether cells may begin with spaces

    def for_pandas(self) -> dict[str, Any]:
        """The arguments of `pandas.read_csv`."""
        import pandas as pd

        version = [int(part) for part in pd.__version__.split(".")[:2]]
        return {
            "sep": self.separator,
            "header": 0 if self.named else None,
            "names": self.names,
            "index_col": False,
            "decimal": self.decimal,
            "na_values": _GAPS,
            "skipinitialspace": self.spaces,  # which takes time
            "low_memory": False,
            # Before 3.1 the last digit of some long numbers is wrong without it.
            "float_precision": "round_trip" if version < [3, 1] else None,
        }

    def notes(self, name: str) -> tuple[str, ...]:
        """What was guessed, except for the usual form, in one sentence."""
        said = []
        usual = self.separator == "\t" and name.lower().endswith((".tsv", ".tab", ".txt"))
        if self.separator != "," and not usual:
            said.append(f"columns are separated by {_SEPARATORS[self.separator]}")
        if self.decimal == ",":
            said.append("numbers have decimal commas")
        if not self.named:
            said.append("the first line holds numbers, so the columns are called x0, x1 and so on")
        elif _counts_columns(self.names):
            said.append("the first line counts the columns from 0, so it is read as their names")
        return (f"{name}: {'; '.join(said)}.",) if said else ()


class TextTable(NamedTuple):
    """A text file whose lines were all checked; `size` is in bytes, after unpacking."""

    path: str
    argument: str
    encoding: str
    dialect: Dialect
    size: int

    @property
    def name(self) -> str:
        return f"{self.argument}: {self.path}"

    @classmethod
    def of(cls, path: str, argument: str, encoding: str | None) -> TextTable:
        name = f"{argument}: {path}"
        if encoding is None:
            with opened(path) as file:
                encoding = _encoding(file.read(_START), name)
        try:
            with opened(path) as file, io.TextIOWrapper(file, encoding, newline="") as lines:
                sample = lines.read(_SAMPLE + 1)
            _check_format(sample, name)
            separator = _separator_of(sample)
            regular = _regular_rows(path, separator, encoding, name)
            size = _unpacked_size(path, name) if regular is None else regular.size
            # newline="" lets lines end in any way, that of old Macintoshes included.
            with opened(path) as file, io.TextIOWrapper(file, encoding, newline="") as lines:
                dialect = _check_rows(lines if regular is None else islice(lines, _SAMPLE_ROWS), separator, name)
                if regular is not None:
                    dialect = replace(dialect, rows=regular.rows - dialect.named, spaces=regular.spaces)
                return cls(path, argument, encoding, dialect, size)
        except (LookupError, UnicodeError) as error:  # the codec "undefined" decodes nothing
            if not isinstance(error, UnicodeDecodeError):
                raise InputError(f"encoding: {encoding!r} is unknown; utf-8, latin-1 and cp1252 are usual.") from None
            byte = error.object[error.start]
            # Text of Windows has the sign of the euro and typographic quotes where Latin-1 has control characters.
            windows = any(0x80 <= one < 0xA0 for one in error.object[error.start :])
            code, called = ("cp1252", "text of Windows") if windows else ("latin-1", "Latin-1")
            raise InputError(
                f"{name} is no {error.encoding.upper()} text (byte 0x{byte:02x}{_line_of(path, encoding)}); save it as "
                f"UTF-8, or pass pandas.read_csv(path, encoding='{code}') if it is {called}."
            ) from None


def _unpacked_size(path: str, name: str) -> int:
    """Bytes of text, after unpacking."""
    packed, unpacked = os.path.getsize(path), 0
    if _unpacking(path) is None:
        return packed
    with opened(path) as file:
        while read := len(file.read(1 << 24)):
            unpacked += read
            check_unpacked_size(name, packed, unpacked, np.inf)
    return unpacked


class RegularRows(NamedTuple):
    """What is known of a file without quotation marks whose lines all have the same number of separators."""

    rows: int
    spaces: bool  # whether there are any
    size: int  # in bytes, after unpacking


def _regular_rows(path: str, separator: str, encoding: str, name: str) -> RegularRows | None:
    """The rows of such a file, which messages call `name`; None of another.

    Separators and ends of lines are counted by the block, which takes a tenth of the time of a reader of rows.
    """
    if separator == " " or encoding.lower().replace("_", "-") not in _ONE_BYTE:
        return None
    mark, rows, fields, spaces, rest = ord(separator), 0, 0, False, b""
    packed, size = os.path.getsize(path), 0
    with opened(path) as file:
        while True:
            read = file.read(_BLOCK)
            size += len(read)
            check_unpacked_size(name, packed, size, np.inf)
            block = rest + (read or b"\n")
            end = block.rfind(b"\n") + 1
            block, rest = block[:end], block[end:]
            if len(rest) > _LONGEST_LINE or b'"' in block or b"\0" in block:
                return None
            returns = b"\r" in block
            if returns and block.count(b"\r") != block.count(b"\r\n"):
                return None
            try:
                block.decode(encoding)
            except UnicodeDecodeError:
                return None
            data = np.frombuffer(block, dtype=np.uint8)
            marks = np.flatnonzero((data == mark) | (data == ord("\n")))
            if np.diff(marks, prepend=-1).max(initial=0) > _LONGEST_CELL:
                return None
            ends = np.flatnonzero(data[marks] == ord("\n"))
            counts = np.diff(ends, prepend=-1) - 1
            counts = counts[np.diff(marks[ends], prepend=-1) - 1 > int(returns)]  # without blank lines
            fields = fields or (int(counts[0]) if len(counts) else 0)
            if (counts != fields).any() or (len(counts) and not fields):
                return None
            rows += len(counts)
            spaces = spaces or b" " in block
            if not read:
                return RegularRows(rows, spaces, size)


def _line_of(path: str, encoding: str) -> str:
    """Where the first byte is that cannot be decoded."""
    with opened(path) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode(encoding)
            except UnicodeDecodeError:
                return f" in line {number}" if b"\0" not in line else ""
    return ""


def _encoding(start: bytes, name: str) -> str:
    """The encoding that the mark at the start of a text names, else UTF-8, in which zero bytes mean no such text."""
    found = next((known for mark, known in _MARKS.items() if start.startswith(mark)), "utf-8-sig")
    if found != "utf-8-sig" or b"\0" not in start:
        return found
    for encoding, zeros, others in (("utf-16-le", start[1::2], start[::2]), ("utf-16-be", start[::2], start[1::2])):
        if zeros.count(0) > 0.9 * len(zeros) and 0 not in others:
            raise InputError(
                f"{name} looks like UTF-16 without a mark at its start; pass pandas.read_csv(path, "
                f"encoding='{encoding}')."
            )
    raise InputError(f"{name} is no text and of no kind that is known here; save it as CSV, Parquet or .npy.")


def opened(path: str) -> Any:
    """A file of text for reading, unpacked on the way."""
    return (_unpacking(path) or partial(open, mode="rb"))(path)


def _unpacking(path: str) -> Callable[[str], Any] | None:
    """How to open a compressed file; None for others."""
    with open(path, "rb") as file:
        start = file.read(8)
    return next((opens for magic, opens in _PACKED.items() if start.startswith(magic)), None)


def _only_member(path: str) -> Any:
    with zipfile.ZipFile(path) as archive:
        return archive.open(text_member(archive.namelist()) or "")


_PACKED: dict[bytes, Callable[[str], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
    b"PK": _only_member,
}


# How text begins that is no table, what it is, and the fix.
_OTHER_FORMATS = [
    (r'\[?\s*\{\s*"', "is JSON", "save it as CSV or Parquet"),
    (r"<(!doctype|html|\?xml)", "is HTML or XML", "export or download the table as CSV"),
    ("%%MatrixMarket", "is a Matrix Market file", "save scipy.io.mmread of it with scipy.sparse.save_npz"),
    ("version https://git-lfs", "is a pointer to a file in Git LFS", "fetch the file with git lfs pull"),
]


def _check_format(text: str, name: str) -> None:
    """Refuse text of formats that are no tables."""
    for pattern, what, fix in _OTHER_FORMATS:
        if re.match(rf"\s*{pattern}", text, re.IGNORECASE):
            raise InputError(f"{name} {what}; {fix}.")


def _separator_of(text: str) -> str:
    """The character that cuts all of the first lines into the same number of columns, more than one."""
    lines = [line for line in text[:_SAMPLE].splitlines()[:_SAMPLE_ROWS] if line.strip()]
    if len(text) > _SAMPLE and len(lines) > 1:
        lines = lines[:-1]
    best, most = ",", (0.0, 0)
    for character in _SEPARATORS:
        try:
            counts = Counter(len(row) for row in csv.reader(lines, delimiter=character, skipinitialspace=True) if row)
        except csv.Error:
            continue
        width, often = counts.most_common(1)[0] if counts else (1, 0)
        share = often / max(1, counts.total())
        if width > 1 and share == 1.0:
            return character
        if width > 1 and character != " " and (share, width) > most:
            best, most = character, (share, width)
    return best


def _check_rows(lines: Iterable[str], separator: str, name: str) -> Dialect:
    """The dialect of a text; each of its rows must have as many cells as the first."""
    rows = csv.reader(_checked_lines(lines, name), delimiter=separator, skipinitialspace=True)
    first: list[str] = []
    sample: list[list[str]] = []
    begun, count = 1, 0
    try:
        for row in rows:
            if not row or (len(row) == 1 and not row[0].strip()):
                begun = rows.line_num + 1  # a blank line
                continue
            if not first:
                first = row
            elif len(row) != len(first):
                raise _ragged_error(name, first, begun, rows.line_num, len(row), separator)
            elif len(sample) < _SAMPLE_ROWS:
                sample.append(row)
            begun = rows.line_num + 1
            count += 1
    except csv.Error as error:
        if "limit" in str(error):
            raise InputError(
                f"{name}: a cell in line {begun} is longer than {_LONGEST_CELL:,} characters; shorten it, or close a "
                "quotation mark that is open there."
            ) from None
        raise InputError(f"{name}: line {rows.line_num} cannot be read ({error}); mend that line.") from None
    if not first:
        raise InputError(f"{name}: is empty; a table with a line of column names is needed.")
    named = not all(_is_number(cell) for cell in first) or _counts_columns(first)
    decimal = "," if separator != "," and _decimal_commas(sample) else "."
    if named and not sample:
        raise InputError(f"{name}: has column names but no rows; add some.")
    names = header_names(first, name) if named else [f"x{i}" for i in range(len(first))]
    return Dialect(separator, names, named, decimal, count - named)


def header_names(cells: list[str], name: str) -> list[str]:
    """The names in the first line of a table: made up where a cell is empty, and each only once."""
    header = [cell.strip() or f"Unnamed: {i}" for i, cell in enumerate(cells)]  # as pandas calls them
    check_unique(name, header, fix="rename one")
    return header


def _counts_columns(cells: list[str]) -> bool:
    """Whether these are 0, 1, 2 and so on, the names that pandas gives columns without names.

    A file without names may well begin with the numbers 0 and 1.
    """
    return len(cells) > 2 and [cell.strip() for cell in cells] == [str(i) for i in range(len(cells))]


def _is_number(cell: str) -> bool:
    return is_number(cell.replace(",", "."))


def _decimal_commas(sample: list[list[str]]) -> bool:
    cells = [cell for row in sample for cell in row if cell.strip() and _is_number(cell)]
    return any("," in cell for cell in cells) and not any("." in cell for cell in cells)


def _checked_lines(lines: Iterable[str], name: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if "\0" in line:
            raise InputError(f"{name}: line {number} holds a zero byte, which text does not; mend it.")
        yield line


def unreadable(name: str, said: str) -> InputError:
    """The error for a text that pandas cannot read, with the message of pandas."""
    opened = re.search(r"EOF inside string starting at row (\d+)", said)
    if opened:
        return InputError(f"{name}: a quotation mark in about line {int(opened[1]) + 1} is never closed; close it.")
    return InputError(f"{name}: could not be read as separated values ({said}); save the table as CSV again.")


def _ragged_error(name: str, first: list[str], begun: int, line: int, width: int, separator: str) -> InputError:
    if line > begun:
        return InputError(f"{name}: a quotation mark in line {begun} is open until line {line}; close or remove it.")
    fix = f"mend that line, or quote fields that hold {_SEPARATORS[separator]}"
    if len(first) == 1:
        fix = (
            "remove the comment lines at the top" if first[0].startswith("#") else "remove lines above the column names"
        )
    fields = "1 field" if len(first) == 1 else f"{len(first)} fields"
    return InputError(f"{name}: every row needs {fields} as in the first line, but line {line} has {width}; {fix}.")
