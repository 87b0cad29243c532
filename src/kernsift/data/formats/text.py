"""Separated values: read once, in chunks, into a private folder of Arrow files, which then serve all further reading.

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
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from kernsift.data.columns import Columns
from kernsift.data.formats.arrow import ArrowSource
from kernsift.data.formats.feather import FeatherPart
from kernsift.data.formats.file_stamps import FileStamp, first_line, guarded, needed
from kernsift.data.formats.source import Bounds, Rows, Source
from kernsift.data.formats.text_dialects import SAMPLE, Dialect, check_rows, encoding_of, separator_of, unreadable
from kernsift.exceptions import InputError
from kernsift.execution.progress import report_progress

# Text that is turned into columns at a time; as Python objects it takes several times as much.
_CHUNK = 4 << 20


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
        self.dialect = dialect
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


def _dialect(path: str, argument: str, encoding: str | None) -> tuple[Dialect, str]:
    name = f"{argument}: {path}"
    if encoding is None:
        with _opened(path) as file:
            start = file.read(100_000)
        encoding = encoding_of(start)
        if encoding == "utf-8-sig" and b"\0" in start:
            raise InputError(f"{name} is no text and of no kind that is known here; save it as CSV, Parquet or .npy.")
    try:
        with _opened(path) as file, io.TextIOWrapper(file, encoding, newline="") as lines:
            separator = separator_of(lines.read(SAMPLE + 1))
        with _opened(path) as file, io.TextIOWrapper(file, encoding, newline="") as lines:
            return check_rows(lines, separator, name), encoding
    except LookupError:
        raise InputError(f"encoding: {encoding!r} is unknown; utf-8, latin-1 and cp1252 are usual.") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name} is no {error.encoding.upper()} text (it has a byte 0x{error.object[error.start]:02x}); save it as "
            "UTF-8, or read it first and pass the table."
        ) from None


def _opened(path: str) -> Any:
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path) if packed else open(path, "rb")


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
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise needed("pandas", "text files", "files") from None
    total = os.path.getsize(path)
    with _opened(path) as file, io.TextIOWrapper(file, encoding, newline="") as lines:
        length = max(1, len(lines.read(SAMPLE)))
        lines.seek(0)
        rows = max(1, _CHUNK * max(1, _count_lines(path)) // length)
        try:
            for frame in pd.read_csv(
                lines, **dialect.for_pandas(), dtype=dict.fromkeys(texts, str) or None, chunksize=rows
            ):
                yield frame
                raw = getattr(file, "fileobj", file)
                report_progress(f"reading {argument}", min(total, raw.tell()), total)
        except (ValueError, OverflowError) as error:  # pandas' parser errors are ValueErrors
            raise unreadable(f"{argument}: {path}", first_line(error)) from error


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
