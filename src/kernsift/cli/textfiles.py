"""Tables kept as text: separator, header, decimal sign and encoding are guessed as people expect, and said."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernsift.data.formats.text_dialects import check_rows, encoding_of, separator_of, unreadable
from kernsift.exceptions import InputError

if TYPE_CHECKING:
    import pandas as pd

# pandas keeps every column apart while it reads, which takes minutes with a million of them.
_MANY_COLUMNS = 20_000


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
    # newline="" lets lines end in any way, that of old Macintoshes included.
    dialect = check_rows(io.StringIO(text, newline=""), separator_of(text), name)
    separator, header, named = dialect.separator, dialect.names, dialect.named
    wide = len(header) > _MANY_COLUMNS and dialect.decimal == "."
    frame = _wide(text, separator, header, named) if wide else None
    if frame is None:
        try:
            frame = pd.read_csv(io.StringIO(text), **dialect.for_pandas())
        except (ValueError, OverflowError) as error:  # pandas' parser errors are ValueErrors
            raise unreadable(name, str(error).splitlines()[0]) from error
    if frame.empty:
        raise InputError(f"{name}: has column names but no rows; add some.")
    return Text(frame, named, dialect.notes(name))


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
        encoding = encoding_of(data[:4])
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
