"""Tables kept as text: separator, header, decimal sign and encoding are guessed as people expect, and said."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernsift.tables import InputError

if TYPE_CHECKING:
    import pandas as pd

# In the order of trial: a comma may be a decimal sign, and a space part of a name.
_SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "vertical bars", ",": "commas", " ": "spaces"}
_SAMPLE_ROWS = 50

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
        raise InputError(f"{name}: could not be read as separated values ({str(error).splitlines()[0]}).") from error
    if frame.empty:
        raise InputError(f"{name}: has column names but no rows.")
    return Text(frame, named, tuple(notes))


def _decode(data: bytes, name: str, encoding: str | None) -> str:
    if encoding is None:
        utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
        encoding = "utf-16" if utf16 else "utf-8-sig"
        if not utf16 and b"\0" in data[:100_000]:
            raise InputError(f"{name}: is no text and of no kind that is known here; save it as CSV, Parquet or .npy.")
    try:
        text = data.decode(encoding)
    except LookupError:
        raise InputError(f"--encoding: {encoding!r} is unknown; utf-8, latin-1 and cp1252 are usual.") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{name}: is no {error.encoding.upper()} text (byte 0x{data[error.start]:02x} in line {line}); say how it "
            "is written, such as --encoding latin-1."
        ) from None
    return text


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
    rows = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
    first: list[str] = []
    sample: list[list[str]] = []
    try:
        for row in rows:
            if not row or (len(row) == 1 and not row[0].strip()):
                continue  # a blank line
            if not first:
                first = row
            elif len(row) != len(first):
                raise InputError(
                    f"{name}: every row needs {len(first)} fields as in the first line, but line {rows.line_num} has "
                    f"{len(row)}; mend that line{_quote_hint(separator)}."
                )
            elif len(sample) < _SAMPLE_ROWS:
                sample.append(row)
    except csv.Error as error:
        raise InputError(f"{name}: line {rows.line_num} cannot be read ({error}).") from None
    if not first:
        raise InputError(f"{name}: is empty; a table with a line of column names is needed.")
    named = not all(_is_number(cell) for cell in first)
    decimal = "," if separator != "," and _decimal_commas(sample) else "."
    if not named:
        return [f"x{i}" for i in range(len(first))], False, decimal
    return _header(first, name), True, decimal


def _header(cells: list[str], name: str) -> list[str]:
    header = [cell.strip() or ("(row names)" if i == 0 else f"(column {i + 1})") for i, cell in enumerate(cells)]
    repeated = [cell for cell, count in Counter(header).items() if count > 1]
    if repeated:
        raise InputError(f"{name}: column names must be unique, but '{repeated[0]}' occurs more than once; rename one.")
    return header


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True


def _decimal_commas(sample: list[list[str]]) -> bool:
    cells = [cell for row in sample for cell in row if cell.strip() and _is_number(cell)]
    return any("," in cell for cell in cells) and not any("." in cell for cell in cells)


def _quote_hint(separator: str) -> str:
    return f", or quote fields that hold {_SEPARATORS[separator]}"
