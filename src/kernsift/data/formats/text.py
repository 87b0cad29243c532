"""Separated values: read once, in chunks, into numbers and codes.

A file of one chunk stays in memory. The cells of a larger one go to a temporary file, from which they are read later:
text cannot be read from the middle, and the kind of a column is known only after the last line. The temporary file has
no name, so that it is removed even if the process is killed; where workers of a cluster read it, it has one, and is
removed with the table.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.columns.columns import Columns
from kernsift.data.formats.array_files import runs
from kernsift.data.formats.file_stamps import FileStamp, first_line, guarded
from kernsift.data.formats.in_memory import MemorySource
from kernsift.data.formats.source import NUMBERS, Bounds, Rows, Source, recode
from kernsift.data.formats.text_dialects import TextTable, opened, unreadable
from kernsift.data.frames import read_columns
from kernsift.exceptions import InputError, required
from kernsift.execution.files import named_file, remove
from kernsift.execution.memory import parse_memory
from kernsift.execution.parallel import worker_threads
from kernsift.execution.progress import report_progress

# Bytes of text that are turned into columns at a time, at least, and at most as a share of the memory limit: while
# pandas reads them they take several times as much. A file that is read as a whole has one chunk.
_CHUNK, _WHOLE, _SHARE = 4 << 20, 64 << 20, 16
# Bytes of a chunk for each column: pandas spends some time on every column of a chunk.
_PER_COLUMN = 8 << 10
# pandas keeps every column apart while it reads, which takes minutes with a million of them.
_MANY_COLUMNS = 20_000
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def text_source(path: str, argument: str, encoding: str | None, whole: bool, memory: int | str | None) -> Source:
    """A text file: in memory where it is small and may be read as a whole, else read in pieces."""
    stamp = FileStamp.of(path, argument)
    with guarded(argument, path, "separated values", stamp):
        text = TextTable.of(path, argument, encoding)
        chunk = int(np.clip(_PER_COLUMN * len(text.dialect.names), _CHUNK, max(_CHUNK, parse_memory(memory) // _SHARE)))
        found: Source
        if whole and text.size <= max(chunk, _WHOLE):
            found = MemorySource(_read_whole(text), argument)
        else:
            found = TextFile(text, chunk)
    found.notes = text.dialect.notes(path)
    return found


# Chunks --------------------------------------------------------------------------------------------------------------


class _NotPlain(Exception):
    """A cell is not a plain number."""


def _chunks(text: TextTable, size: int, texts: set[str], plain: bool) -> Iterator[Columns]:
    """Chunks of the file of about `size` bytes; `texts` are columns whose numbers are texts as well.

    With `plain` all cells are taken for numbers, and another raises `_NotPlain`.
    """
    total = os.path.getsize(text.path)
    rows = -(-size * text.dialect.rows // max(1, text.size)) if size < text.size else text.dialect.rows
    with opened(text.path) as file, io.TextIOWrapper(file, text.encoding, newline="") as lines:
        try:
            for frame in _numpy_chunks(lines, text, rows) if plain else _pandas_chunks(lines, text, rows, texts):
                yield _columns(frame, text, texts)
                report_progress(f"reading {text.argument}", min(total, getattr(file, "fileobj", file).tell()), total)
        except (ValueError, OverflowError) as error:  # pandas' parser errors are ValueErrors
            raise unreadable(text.name, first_line(error)) from error


def _pandas_chunks(lines: Any, text: TextTable, rows: int, texts: set[str]) -> Iterator[Any]:
    pandas = required("pandas", "Reading text files needs pandas")
    strings = dict.fromkeys(texts, str) or None
    yield from pandas.read_csv(lines, **text.dialect.for_pandas(), dtype=strings, chunksize=rows)


def _numpy_chunks(lines: Any, text: TextTable, rows: int) -> Iterator[np.ndarray]:
    dialect = text.dialect
    for skipped in range(0, dialect.rows, rows):
        try:
            values = np.loadtxt(
                lines,
                delimiter=dialect.separator,
                skiprows=int(dialect.named and not skipped),
                comments=None,
                quotechar='"',
                ndmin=2,
                max_rows=rows,
            )
        except ValueError:
            raise _NotPlain from None
        if values.shape != (min(rows, dialect.rows - skipped), len(dialect.names)):
            raise _NotPlain
        yield values


def _columns(frame: Any, text: TextTable, texts: set[str]) -> Columns:
    """Cells as numbers and codes."""
    names, named = tuple(text.dialect.names), text.dialect.named
    if isinstance(frame, np.ndarray):
        return Columns(names, frame, {}, ("float64",) * len(names), named, False)
    found = replace(read_columns(frame, text.argument), names=names, named=named)
    # Before 3.1 pandas left a column as text where one of its numbers is beyond 64 bits, or beyond float64.
    large = [i for i, own in found.levels.items() if names[i] not in texts and all(map(_NUMBER.fullmatch, own))]
    for i in large:
        recode(found.values, i, np.array(found.levels[i], dtype=np.float64))
    levels = {i: own for i, own in found.levels.items() if i not in large}
    kinds = tuple("float64" if i in large else kind for i, kind in enumerate(found.kinds))
    return replace(found, levels=levels, kinds=kinds)


def _read_whole(text: TextTable) -> Columns:
    """The file as one chunk."""
    if _may_be_plain(text):
        with suppress(_NotPlain):
            [columns] = _chunks(text, text.size, set(), plain=True)
            return columns
    [columns] = _chunks(text, text.size, set(), plain=False)
    return columns


def _may_be_plain(text: TextTable) -> bool:
    return len(text.dialect.names) > _MANY_COLUMNS and text.dialect.decimal == "."


# A file that is read in pieces ---------------------------------------------------------------------------------------

# What a column holds over several chunks, from what it holds in each; a chunk without a value is of any kind.
_EMPTY, _INTEGER, _FLOAT, _TRUTH, _TEXT = range(5)
_KINDS = {_EMPTY: "float64", _INTEGER: "integer", _FLOAT: "float64", _TRUTH: "truth", _TEXT: "text"}
_CODES = {"integer": _INTEGER, "float64": _FLOAT, "truth": _TRUTH, "empty": _EMPTY}


class _Chunk(NamedTuple):
    """Where a chunk is: its first byte, its rows, and by column of text the first byte and the length of its texts."""

    start: int
    rows: int
    texts: dict[int, tuple[int, int]]


class TextFile(Source):
    """A text file whose cells are in a temporary file, chunk by chunk, each column of a chunk in one piece."""

    at_once = 2

    def __init__(self, text: TextTable, size: int) -> None:
        # A file without a name is removed however the process ends; workers can open only one with a name.
        self._path: str | None = None
        self._file: Any = None
        try:
            self._fill(text, size)
        except BaseException:
            if self._path is not None:  # an error that is kept keeps this object
                remove(self._path)
            raise
        kinds = [_KINDS[kind] for kind in self._found.tolist()]
        edges = np.concatenate([[0], np.cumsum([chunk.rows for chunk in self._chunks])])
        widths = np.where([kind in NUMBERS for kind in kinds], 24.0, 80.0)
        super().__init__(text.argument, text.dialect.names, kinds, edges, widths, named=text.dialect.named)

    def _fill(self, text: TextTable, size: int) -> None:
        texts: set[str] = set()
        plain = _may_be_plain(text)
        while True:
            self._open()
            try:
                mixed = self._write(text, _chunks(text, size, texts, plain))
            except _NotPlain:
                plain = False
                continue
            if not mixed:
                return
            texts |= mixed  # columns that turned out to be text after they began as numbers

    def fetch(self, chunk: int, columns: Sequence[int], rows: Rows) -> Columns:
        where = self._chunks[chunk]
        values = np.empty((where.rows, len(columns)), order="F")
        levels: dict[int, tuple[str, ...]] = {}
        for own, run in runs(columns):
            self._read(values[:, own].T, where.start + 8 * where.rows * run.start)
        for place, i in enumerate(columns):
            if i in where.texts:
                start, length = where.texts[i]
                found = np.empty(length, dtype=np.uint8)
                self._read(found, start)
                levels[place] = tuple(json.loads(found.tobytes()))
        names, kinds = tuple(self.names[i] for i in columns), tuple(self.kinds[i] for i in columns)
        return Columns(names, values[rows], levels, kinds, self.named, False)

    def bounds(self) -> Bounds:
        return Bounds(np.array([kind in NUMBERS for kind in self.kinds]), *self._spans, exact=True)

    def _open(self) -> None:
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()
            return
        if worker_threads():
            self._path = named_file(self)
            self._file = open(self._path, "w+b", buffering=0)  # noqa: SIM115, closed with its owner
        else:
            self._file = tempfile.TemporaryFile(prefix="kernsift-", buffering=0)  # noqa: SIM115, closed with its owner
        weakref.finalize(self, self._file.close)

    def _write(self, text: TextTable, chunks: Iterator[Columns]) -> set[str]:
        """Write chunks; returns the columns that hold texts in one of them and numbers in another."""
        p = len(text.dialect.names)
        self._chunks: list[_Chunk] = []
        self._found, mixed = np.full(p, _EMPTY), np.zeros(p, dtype=bool)
        self._spans = np.full(p, np.inf), np.full(p, -np.inf), np.zeros(p, dtype=np.int64)
        for cells in chunks:
            kinds = np.array([_TEXT if i in cells.levels else _CODES[kind] for i, kind in enumerate(cells.kinds)])
            low, high = cells.span
            kinds[low > high] = _EMPTY
            mixed |= ~_alike(self._found, kinds)
            self._found = np.where(kinds == _EMPTY, self._found, np.maximum(self._found, kinds))
            if mixed.any():
                continue
            np.minimum(self._spans[0], low, out=self._spans[0])
            np.maximum(self._spans[1], high, out=self._spans[1])
            some = np.flatnonzero(cells.incomplete)
            self._spans[2][some] += np.isnan(cells.values[:, some]).sum(axis=0)
            try:
                self._write_chunk(cells)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                raise InputError(
                    f"{text.argument}: there is no space left in {tempfile.gettempdir()} for the columns of "
                    f"{text.path}, which are kept there while it is read; make room, or name another folder in TMPDIR."
                ) from None
        # Missing cells make a column of integers one of floating-point numbers, as in pandas.
        self._found[(self._found == _INTEGER) & (self._spans[2] > 0)] = _FLOAT
        return {text.dialect.names[i] for i in np.flatnonzero(mixed)}

    def _write_chunk(self, cells: Columns) -> None:
        start = self._append(np.ascontiguousarray(cells.values.T))
        texts = {}
        for i, levels in cells.levels.items():
            packed = np.frombuffer(json.dumps(levels).encode(), dtype=np.uint8)
            texts[i] = (self._append(packed), len(packed))
        self._chunks.append(_Chunk(start, cells.n, texts))

    def _append(self, content: np.ndarray) -> int:
        buffer: Any = content
        start, rest = self._file.tell(), memoryview(buffer).cast("B")
        while rest:  # a full disk takes a part
            rest = rest[self._file.write(rest) :]
        return int(start)

    def _read(self, out: np.ndarray, start: int) -> None:
        if self._file is None:
            assert self._path is not None  # copies are made for workers only, where it has a name
            self._file = open(self._path, "rb", buffering=0)  # noqa: SIM115, closed with its owner
            weakref.finalize(self, self._file.close)
        buffer: Any = out
        rest = memoryview(buffer).cast("B")
        while rest:  # one call reads at most 2 GiB
            count = os.preadv(self._file.fileno(), [rest], start)
            if not count:
                raise InputError(f"{self.argument}: its temporary file was cut short; start again.")
            rest, start = rest[count:], start + count

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_file": None}


def _alike(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    numbers = [(kinds == _INTEGER) | (kinds == _FLOAT) for kinds in (one, other)]
    return (one == _EMPTY) | (other == _EMPTY) | (one == other) | (numbers[0] & numbers[1])
