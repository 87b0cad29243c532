"""Tables kept as text: separator, header, decimal sign and encoding are guessed as people expect, and said."""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kernsift.tables import InputError

if TYPE_CHECKING:
    import pandas as pd

# In the order of trial: a comma may be a decimal sign, and a space part of a name.
_SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "vertical bars", ",": "commas", " ": "spaces"}
_SAMPLE_ROWS = 50

# pandas keeps every column apart while it reads, which takes minutes with a million of them.
_MANY_COLUMNS = 20_000

_LONGEST_CELL = 131_072
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
class Text:
    """A table read from text, whether its column names are its own, and what was guessed."""

    frame: pd.DataFrame
    named: bool
    notes: tuple[str, ...]


def read_text(data: bytes, name: str, encoding: str | None) -> Text:
    """Read separated values from the bytes of a file."""
    import pandas as pd

    text = _decode(data, name, encoding)
    separator = _separator(text)
    header, named, decimal = _check_rows(text, separator, name)
    notes = []
    if separator != "," and not (separator == "\t" and name.lower().endswith((".tsv", ".tab", ".txt"))):
        notes.append(f"{name}: columns are separated by {_SEPARATORS[separator]}.")
    if decimal == ",":
        notes.append(f"{name}: numbers have decimal commas.")
    if not named:
        notes.append(f"{name}: the first line holds numbers, so the columns are called x0, x1 and so on.")
    frame = _wide(text, separator, header, named) if len(header) > _MANY_COLUMNS and decimal == "." else None
    if frame is None:
        try:
            frame = pd.read_csv(
                io.StringIO(text),
                sep=separator,
                header=0 if named else None,
                names=header,
                index_col=False,
                decimal=decimal,
                na_values=_GAPS,
                skipinitialspace=True,
                low_memory=False,
            )
        except (ValueError, OverflowError) as error:  # pandas' parser errors are ValueErrors
            raise _unreadable(name, str(error).splitlines()[0]) from error
    if frame.empty:
        raise InputError(f"{name}: has column names but no rows; add some.")
    return Text(frame, named, tuple(notes))


def _wide(text: str, separator: str, header: list[str], named: bool) -> pd.DataFrame | None:
    """A table of very many columns, all of plain numbers, as one block; None where a cell is anything else."""
    import pandas as pd

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a table without rows, which is refused below
            values = np.loadtxt(
                io.StringIO(text), delimiter=separator, skiprows=int(named), comments=None, quotechar='"', ndmin=2
            )
    except ValueError:
        return None
    return pd.DataFrame(values, columns=header) if values.shape[1] == len(header) else None


def _decode(data: bytes, name: str, encoding: str | None) -> str:
    if encoding is None:
        encoding = next((known for mark, known in _MARKS.items() if data.startswith(mark)), "utf-8-sig")
        if encoding == "utf-8-sig":
            refuse_binary(data[:100_000], name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some codecs comment on what they decode
            text = data.decode(encoding)
    except (LookupError, ValueError) as error:
        if not isinstance(error, UnicodeDecodeError):
            raise InputError(f"--encoding: {encoding!r} is unknown; utf-8, latin-1 and cp1252 are usual.") from None
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{name}: is no {error.encoding.upper()} text (byte 0x{data[error.start]:02x} in line {line}); say how it "
            "is written, such as --encoding latin-1."
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(f"{name}: line {line} holds a zero byte, which text does not; mend it, or say --encoding.")
    return text


def refuse_binary(start: bytes, name: str) -> None:
    """Complain about zero bytes at the start of what should be UTF-8, where they mean another encoding or no text."""
    if b"\0" not in start:
        return
    for encoding, zeros, others in (("utf-16-le", start[1::2], start[::2]), ("utf-16-be", start[::2], start[1::2])):
        if zeros.count(0) > 0.9 * len(zeros) and 0 not in others:
            raise InputError(f"{name}: looks like UTF-16 without a mark at its start; say so: --encoding {encoding}.")
    raise InputError(f"{name}: is no text and of no kind that is known here; save it as CSV, Parquet or .npy.")


def _separator(text: str) -> str:
    """The sign that cuts all of the first lines into the same number of columns, more than one."""
    lines = [line for line in text[:200_000].splitlines()[:_SAMPLE_ROWS] if line.strip()]
    if len(text) > 200_000 and len(lines) > 1:
        lines = lines[:-1]
    best, most = ",", (0.0, 0)
    for sign in _SEPARATORS:
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


def _check_rows(text: str, separator: str, name: str) -> tuple[list[str], bool, Any]:
    """Column names, whether they are the file's own, and the decimal sign; every row must be as long as the first."""
    # newline="" lets lines end in any way, that of old Macintoshes included.
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
    first: list[str] = []
    sample: list[list[str]] = []
    begun = 1
    try:
        for row in rows:
            if not row or (len(row) == 1 and not row[0].strip()):
                continue  # a blank line
            if not first:
                first = row
            elif len(row) != len(first):
                raise _ragged(name, first, begun, rows.line_num, len(row), separator)
            elif len(sample) < _SAMPLE_ROWS:
                sample.append(row)
            begun = rows.line_num + 1
    except csv.Error as error:
        if "limit" in str(error):
            raise InputError(
                f"{name}: a cell in line {begun} is longer than {_LONGEST_CELL:,} characters; shorten it, or close a "
                "quotation mark that is open there."
            ) from None
        raise InputError(f"{name}: line {rows.line_num} cannot be read ({error}); mend that line.") from None
    if not first:
        raise InputError(f"{name}: is empty; a table with a line of column names is needed.")
    named = not all(_is_number(cell) for cell in first)
    decimal = "," if separator != "," and _decimal_commas(sample) else "."
    if not named:
        return [f"x{i}" for i in range(len(first))], False, decimal
    if not sample:
        raise InputError(f"{name}: has column names but no rows; add some.")
    return header_names(first, name), True, decimal


def header_names(cells: list[str], name: str) -> list[str]:
    """The names in the first line of a table: made up where a cell is empty, and each only once."""
    header = [cell.strip() or ("(row names)" if i == 0 else f"(column {i + 1})") for i, cell in enumerate(cells)]
    refuse_repeated(header, name)
    return header


def refuse_repeated(names: list[str], name: str) -> None:
    """Complain about columns of one name."""
    repeated = [cell for cell, count in Counter(names).items() if count > 1]
    if repeated:
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


def _unreadable(name: str, said: str) -> InputError:
    opened = re.search(r"EOF inside string starting at row (\d+)", said)
    if opened:
        return InputError(f"{name}: a quotation mark in about line {int(opened[1]) + 1} is never closed; close it.")
    return InputError(f"{name}: could not be read as separated values ({said}); save the table as CSV again.")


def _ragged(name: str, first: list[str], begun: int, line: int, width: int, separator: str) -> InputError:
    if line > begun:
        return InputError(f"{name}: a quotation mark in line {begun} is open until line {line}; close or remove it.")
    fix = f"mend that line, or quote fields that hold {_SEPARATORS[separator]}"
    if first[0].startswith("#") and len(first) == 1:
        fix = "remove the comment lines at the top"
    return InputError(
        f"{name}: every row needs {len(first)} fields as in the first line, but line {line} has {width}; {fix}."
    )
