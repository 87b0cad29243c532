"""Separated values: small files are read into memory, and larger ones once, in chunks, into a private folder of Arrow
files, which then serve all further reading.

Text has no types and no places to jump to: what a column holds is known when the last line was seen, as it is when the
whole file is read at once. The folder goes when nobody holds the table any more, or the program ends.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kernsift.data.columns import Columns, read_columns
from kernsift.data.formats.archives import unpack
from kernsift.data.formats.arrow import ArrowSource
from kernsift.data.formats.feather import FeatherPart
from kernsift.data.formats.file_stamps import FileStamp, first_line, guarded, needed
from kernsift.data.formats.in_memory import MemorySource
from kernsift.data.formats.source import Bounds, Rows, Source
from kernsift.data.formats.text_dialects import SAMPLE, Dialect, check_rows, encoding_of, separator_of, unreadable
from kernsift.exceptions import InputError
from kernsift.execution.memory import machine_memory
from kernsift.execution.progress import report_progress

# Text that is turned into columns at a time; as Python objects it takes several times as much.
_CHUNK = 4 << 20
# Files above this share of the machine's memory are read in pieces: as a whole they take several times their size.
_SHARE = 4
# pandas keeps every column apart while it reads, which takes minutes with a million of them.
_MANY_COLUMNS = 20_000
_START = 100_000


class TextFile(Source):
    """A text file and its columns; `encoding` is guessed where it is None."""

    at_once = ArrowSource.at_once

    def __init__(self, path: str, argument: str, encoding: str | None = None) -> None:
        mark = FileStamp.of(path, argument)
        with guarded(argument, path, "separated values", mark):
            dialect, encoding = _dialect(path, argument, encoding)
            folder = tempfile.mkdtemp(prefix="kernsift-")
            # Also when the program ends or the rest of this raises; a fork of this process removes nothing.
            self._removal = weakref.finalize(self, _remove, folder, os.getpid())
            try:
                parts = _spool(path, argument, dialect, encoding, folder)
            except BaseException:
                self._removal()
                raise
        self.notes = dialect.notes(path)
        self._stored = ArrowSource([FeatherPart(part, argument) for part in parts], argument)
        stored = self._stored
        super().__init__(argument, stored.names, stored.kinds, stored.edges, stored.widths, named=dialect.named)

    def fetch(self, chunk: int, columns: Sequence[int], rows: Rows) -> Columns:
        return self._stored.fetch(chunk, columns, rows)

    def reading(self) -> AbstractContextManager[None]:
        return self._stored.reading()

    def bounds(self) -> Bounds | None:
        return None

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process reads the folder, but it is not the one that removes it.
        return self.__dict__ | {"_removal": None}


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def text_source(path: str, argument: str, encoding: str | None = None, *, whole: bool = True) -> Source:
    """A text file: in memory where it is small and may be read as a whole, else read in pieces."""
    if not whole or os.path.getsize(path) > machine_memory() // _SHARE:
        return TextFile(path, argument, encoding)
    stamp = FileStamp.of(path, argument)
    with guarded(argument, path, "separated values", stamp):
        columns, dialect = _read_whole(path, argument, encoding)
    found = MemorySource(columns, argument)
    found.notes = dialect.notes(path)
    return found


def _read_whole(path: str, argument: str, encoding: str | None) -> tuple[Columns, Dialect]:
    name = f"{argument}: {path}"
    data = unpack(path, name) if _is_packed(path) else Path(path).read_bytes()
    text = _decode(data, name, encoding)
    # newline="" lets lines end in any way, that of old Macintoshes included.
    dialect = check_rows(io.StringIO(text, newline=""), separator_of(text), name)
    if len(dialect.names) > _MANY_COLUMNS and dialect.decimal == ".":
        values = _numbers_only(text, dialect)
        if values is not None:
            found = read_columns(values, argument)
            return replace(found, names=tuple(dialect.names), named=dialect.named), dialect
    try:
        frame = _pandas().read_csv(io.StringIO(text), **dialect.for_pandas())
    except (ValueError, OverflowError) as error:  # pandas' parser errors are ValueErrors
        raise unreadable(name, first_line(error)) from error
    return replace(read_columns(frame, argument), named=dialect.named), dialect


def _numbers_only(text: str, dialect: Dialect) -> np.ndarray | None:
    """A table of very many columns, all of plain numbers, as one block; None where a cell is anything else."""
    lines = io.StringIO(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a table without rows, which is refused later
            values = np.loadtxt(
                lines, delimiter=dialect.separator, skiprows=int(dialect.named), comments=None, quotechar='"', ndmin=2
            )
    except ValueError:
        return None
    return values if values.shape[1] == len(dialect.names) else None


def _decode(data: bytes, name: str, encoding: str | None) -> str:
    encoding = _encoding(data[:_START], name) if encoding is None else encoding
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some codecs comment on what they decode
            text = data.decode(encoding)
    except (LookupError, ValueError) as error:
        if not isinstance(error, UnicodeDecodeError):
            raise _unknown(encoding) from None
        raise _no_text(name, error.encoding, data[error.start], data.count(b"\n", 0, error.start) + 1) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(f"{name}: line {line} holds a zero byte, which text does not; mend it.")
    return text


def _encoding(start: bytes, name: str) -> str:
    """The encoding of a text that begins like this; zero bytes in UTF-8 mean another encoding, or no text."""
    found = encoding_of(start[:4])
    if found != "utf-8-sig" or b"\0" not in start:
        return found
    for encoding, zeros, others in (("utf-16-le", start[1::2], start[::2]), ("utf-16-be", start[::2], start[1::2])):
        if zeros.count(0) > 0.9 * len(zeros) and 0 not in others:
            raise InputError(
                f"{name} looks like UTF-16 without a mark at its start; read it with encoding='{encoding}'."
            )
    raise InputError(f"{name} is no text and of no kind that is known here; save it as CSV, Parquet or .npy.")


def _unknown(encoding: str) -> InputError:
    return InputError(f"encoding: {encoding!r} is unknown; utf-8, latin-1 and cp1252 are usual.")


def _no_text(name: str, encoding: str, byte: int, line: int | None = None) -> InputError:
    where = "" if line is None else f" in line {line}"
    return InputError(
        f"{name} is no {encoding.upper()} text (byte 0x{byte:02x}{where}); save it as UTF-8, or read it with "
        "encoding='latin-1' or what it is."
    )


def _dialect(path: str, argument: str, encoding: str | None) -> tuple[Dialect, str]:
    name = f"{argument}: {path}"
    if encoding is None:
        with _opened(path) as file:
            encoding = _encoding(file.read(_START), name)
    try:
        with _opened(path) as file, io.TextIOWrapper(file, encoding, newline="") as lines:
            separator = separator_of(lines.read(SAMPLE + 1))
        with _opened(path) as file, io.TextIOWrapper(file, encoding, newline="") as lines:
            return check_rows(lines, separator, name), encoding
    except LookupError:
        raise _unknown(encoding) from None
    except UnicodeDecodeError as error:
        raise _no_text(name, error.encoding, error.object[error.start]) from None


def _is_packed(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _opened(path: str) -> Any:
    return gzip.open(path) if _is_packed(path) else open(path, "rb")


def _spool(path: str, argument: str, dialect: Dialect, encoding: str, folder: str) -> list[str]:
    """Write the columns to Arrow files; a second time if a column turned out to be text after it began as numbers."""
    texts: set[str] = set()
    while True:
        kinds: dict[str, str] = {}
        mixed: set[str] = set()
        parts = _Parts(folder, argument, path)
        with parts.writing():
            for frame in _frames(path, argument, dialect, encoding, texts):
                table = _arrow(frame)
                for name, kind in zip(table.schema.names, map(_kind, table.schema.types), strict=True):
                    if kind != "empty" and kinds.setdefault(name, kind) != kind:
                        mixed.add(name)
                if not mixed:
                    parts.add(table)
        if not parts.rows and not mixed:
            raise InputError(f"{argument}: {path} has column names but no rows.")
        if not mixed:
            return parts.paths
        parts.remove()
        texts |= mixed


class _Parts:
    """Arrow files in a folder; a new one begins where the types change."""

    def __init__(self, folder: str, argument: str, path: str) -> None:
        self.paths: list[str] = []
        self.rows = 0
        self._folder, self._argument, self._path = folder, argument, path
        self._schema: Any = None
        self._writer: Any = None

    @contextmanager
    def writing(self) -> Iterator[None]:
        try:
            yield
            self._close()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise InputError(
                f"{self._argument}: there is no space left in {os.path.dirname(self._folder)} for the columns of "
                f"{self._path}, which are kept there while it is read; make room, or name another folder in TMPDIR."
            ) from None
        finally:
            # Closing writes a footer, for which there may be no space either.
            writer, self._writer = self._writer, None
            if writer is not None:
                with suppress(Exception):
                    writer.close()

    def add(self, table: Any) -> None:
        import pyarrow as pa

        if table.schema != self._schema:
            self._close()
            self._schema = table.schema
            self.paths.append(os.path.join(self._folder, f"{len(self.paths):06d}.arrow"))
            self._writer = pa.ipc.new_file(self.paths[-1], table.schema)
        self._writer.write_table(table)
        self.rows += len(table)

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def remove(self) -> None:
        for path in self.paths:
            os.remove(path)


def _frames(path: str, argument: str, dialect: Dialect, encoding: str, texts: set[str]) -> Iterator[Any]:
    """Chunks of the file as pandas reads them; `texts` are columns whose numbers are texts as well."""
    total = os.path.getsize(path)
    with _opened(path) as file, io.TextIOWrapper(file, encoding, newline="") as lines:
        length = max(1, len(lines.read(SAMPLE)))
        lines.seek(0)
        rows = max(1, _CHUNK * max(1, _count_lines(path)) // length)
        try:
            for frame in _pandas().read_csv(
                lines, **dialect.for_pandas(), dtype=dict.fromkeys(texts, str) or None, chunksize=rows
            ):
                yield frame
                raw = getattr(file, "fileobj", file)
                report_progress(f"reading {argument}", min(total, raw.tell()), total)
        except (ValueError, OverflowError) as error:  # pandas' parser errors are ValueErrors
            raise unreadable(f"{argument}: {path}", first_line(error)) from error


def _pandas() -> Any:
    try:
        import pandas
    except ModuleNotFoundError:
        raise needed("pandas", "text files", "files") from None
    return pandas


def _count_lines(path: str) -> int:
    """Lines in the part of the file that is looked at first."""
    with _opened(path) as file:
        return int(file.read(SAMPLE).count(b"\n"))


def _arrow(frame: Any) -> Any:
    import pyarrow as pa

    for name, dtype in frame.dtypes.items():
        if dtype.kind != "O":
            continue
        # Whole numbers beyond 64 bits come as Python's own.
        if any(isinstance(cell, int) and not isinstance(cell, bool) for cell in frame[name]):
            frame[name] = frame[name].astype(float)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return table.replace_schema_metadata(None)


def _kind(arrow_type: Any) -> str:
    """What pandas took a column for: numbers, truth values, texts, or nothing at all."""
    from pyarrow import types

    if types.is_null(arrow_type):
        return "empty"
    if types.is_boolean(arrow_type):
        return "truth"
    return "number" if types.is_integer(arrow_type) or types.is_floating(arrow_type) else "text"
