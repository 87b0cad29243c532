"""Tables of Arrow's kinds: one or many fragments with the same columns, each a list of groups of rows."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.columns.columns import Columns
from kernsift.data.formats.arrow_cells import arrow_columns, arrow_kind
from kernsift.data.formats.file_stamps import FileStamp, guarded
from kernsift.data.formats.source import PLAIN, TEXTS, Bounds, Rows, Source, joined_integers, values_name
from kernsift.exceptions import InputError, check_unique, quoted

# Small groups of rows and small files are read together up to this many bytes, to limit the number of pieces.
_TOGETHER = 8 << 20
# Bytes that are read before Arrow releases the memory that it keeps.
_KEPT = 64 << 20
# Bytes of a text, before it becomes a code, where the file does not say.
_TEXT = 40.0
# The most columns and files of readers that are kept open; a reader takes a kilobyte for each column.
_COLUMNS, _FILES = 2**14, 64


class Fragment(ABC):
    """One file, or one fragment of a data set, of a `kind` such as "a Parquet file".

    `sizes` are the rows of each group that can be read by itself; with `reads_all_columns`, reading some columns takes
    memory for all of them.
    """

    kind: str
    schema: Any
    sizes: np.ndarray
    reads_all_columns = False

    def __init__(self, name: str, argument: str, *stamps: FileStamp) -> None:
        self.name, self._argument, self._stamps = name, argument, stamps

    def opened(self) -> Any:
        """What `load` reads with, several times; None where the file is opened for every piece."""
        return None

    @abstractmethod
    def load(self, first: int, last: int, names: Sequence[str], reader: Any) -> Any:
        """The columns `names` of the groups from `first` to before `last`, as an Arrow table."""

    def statistics(self, names: Sequence[str]) -> Bounds | None:
        """Statistics of these columns, where the fragment has them."""
        return None

    def check(self) -> None:
        """Raise if the fragment has changed since it was opened."""
        for stamp in self._stamps:
            stamp.check(self._argument)

    def _reading(self) -> AbstractContextManager[None]:
        return guarded(self._argument, self.name, self.kind, *self._stamps)


class Readers:
    """Readers of numbered files that stay open between pieces, each used by one thread at a time.

    Opening a file again costs as much as reading a few columns. Outside of `reading` nothing stays open. A pass over
    all files reads each of them once: where there are more than may stay open, the first ones stay, and the last one,
    which may be read again at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._idle: list[tuple[int, Any]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return Readers, ()  # a copy for a worker opens files itself

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let readers stay open inside."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._idle.clear()
                    _release()

    @contextmanager
    def of(self, number: int, opened: Callable[[], Any], columns: int) -> Iterator[Any]:
        """A reader of one of the files, each of which has `columns` columns."""
        with self._lock:
            there = [place for place, (file, _) in enumerate(self._idle) if file == number]
            reader = self._idle.pop(there[0])[1] if there else None
        reader = opened() if reader is None else reader
        yield reader
        with self._lock:
            if self._users:
                most = max(1, min(_FILES, _COLUMNS // max(1, columns)))
                del self._idle[most - 1 :]
                self._idle.append((number, reader))


class GroupRun(NamedTuple):
    """The groups of rows of a fragment from `start` to before `stop`."""

    fragment: int
    start: int
    stop: int


class ArrowSource(Source):
    """Concatenated fragments, whose columns are matched by name.

    A chunk is one or several groups of rows, of one or several fragments with one schema.
    """

    at_once = 2

    def __init__(self, fragments: Sequence[Fragment], argument: str) -> None:
        self._fragments = fragments
        self._readers = Readers()
        self._spent = 0
        first = fragments[0]
        for fragment in fragments:
            # Most have that of the first: a table of many files is kept and sent with one of them.
            if fragment.schema.equals(first.schema, check_metadata=True):
                fragment.schema = first.schema
        others = [fragment for fragment in fragments if fragment.schema is not first.schema]
        names, kinds = _common_columns([first, *others], argument)
        index = sorted(name for name in _index_columns(first.schema) if not name.startswith("__"))
        self.notes = (f"Index of the stored data frame, so left out: {quoted(index)}.",) if index else ()
        widths = np.array([_TEXT + 16 if kind in TEXTS else 24.0 for kind in kinds])
        self._chunks: list[list[GroupRun]] = []
        lengths: list[int] = []
        most = max(1, int(_TOGETHER // max(1.0, widths.sum())))
        for number, fragment in enumerate(fragments):
            for group, rows in enumerate(fragment.sizes.tolist()):
                last = self._chunks[-1][-1] if self._chunks else None
                # Readers may give a column of text different Arrow types.
                before = fragment if last is None else fragments[last.fragment]
                alike = type(before) is type(fragment) and before.schema is fragment.schema
                if last is None or lengths[-1] + rows > most or not alike:
                    self._chunks.append([GroupRun(number, group, group + 1)])
                    lengths.append(rows)
                    continue
                lengths[-1] += rows
                if last.fragment == number:
                    self._chunks[-1][-1] = last._replace(stop=group + 1)
                else:
                    self._chunks[-1].append(GroupRun(number, group, group + 1))
        super().__init__(argument, names, kinds, np.concatenate([[0], np.cumsum(lengths)]), widths)

    def reading(self) -> AbstractContextManager[None]:
        return self._readers.reading()

    def fetch(self, chunk: int, columns: Sequence[int], rows: Rows) -> Columns:
        import pyarrow as pa

        names, runs = [self.names[i] for i in columns], self._chunks[chunk]
        table = pa.concat_tables([self._load(run, names) for run in runs])
        fragments = [self._fragments[run.fragment] for run in runs]
        with guarded(self.argument, " or ".join(fragment.name for fragment in fragments), "a table"):
            cells = arrow_columns(table, names, [self.kinds[i] for i in columns], rows)
        for fragment in fragments:
            fragment.check()  # a file that is mapped was read only now
        # Arrow keeps memory for the next read. Where that is memory for all columns it adds up; releasing it every time
        # would take as long as reading.
        self._spent += table.nbytes if any(fragment.reads_all_columns for fragment in fragments) else 0
        del table
        if self._spent > _KEPT:
            self._spent = 0
            _release()
        return cells

    def _load(self, run: GroupRun, names: Sequence[str]) -> Any:
        """The columns `names` of some groups, as an Arrow table that is safe to use."""
        fragment = self._fragments[run.fragment]
        with self._readers.of(run.fragment, fragment.opened, len(fragment.schema)) as reader:
            table = fragment.load(run.start, run.stop, names, reader)
        if len(table) != fragment.sizes[run.start : run.stop].sum():
            raise InputError(
                f"{self.argument}: {fragment.name} was changed while it was being read; start again when it is "
                "complete."
            )
        with guarded(self.argument, fragment.name, "a table"):
            table.validate(full=True)  # broken offsets would be followed out of the file, and end the process
        return table

    def integers(self, column: int) -> np.ndarray:
        parts = []
        for run in chain.from_iterable(self._chunks):
            found = self._load(run, [self.names[column]]).column(0).fill_null(0)
            parts += [np.from_dlpack(chunk) for chunk in found.chunks]
        return joined_integers(parts)

    def bounds(self) -> Bounds | None:
        found = [fragment.statistics(self.names) for fragment in self._fragments]
        reported = [one for one in found if one is not None]
        if not reported or len(reported) < len(found):
            return None
        # Files have dates and durations in units of their own.
        plain = np.array([kind in PLAIN for kind in self.kinds])
        return Bounds(
            np.logical_and.reduce([one.known for one in reported]) & plain,
            np.fmin.reduce([one.low for one in reported]),
            np.fmax.reduce([one.high for one in reported]),
            np.sum([one.gaps for one in reported], axis=0),
        )


def _release() -> None:
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


# Columns of many fragments -------------------------------------------------------------------------------------------


def _common_columns(fragments: Sequence[Fragment], argument: str) -> tuple[list[str], list[str]]:
    """The columns that all fragments have, in the order of the first, and what kind each is over all fragments."""
    for fragment in fragments:
        check_unique(f"{argument}: {fragment.name}", fragment.schema.names)
    first = fragments[0]
    index = _index_columns(first.schema)
    names = [name for name in first.schema.names if name not in index]
    if not names:
        raise InputError(f"{argument}: at least one column is needed, but {first.name} has none; write it again.")
    kinds = [arrow_kind(first.schema.field(name).type) for name in names]
    owner = [first.name] * len(names)
    known = set(names)
    for fragment in fragments[1:]:
        own = set(fragment.schema.names) - _index_columns(fragment.schema) - (index - known)
        for one, other, lacking in ((fragment, first, known - own), (first, fragment, own - known)):
            if lacking:
                listed = [name for name in (*names, *fragment.schema.names) if name in lacking]
                raise InputError(
                    f"{argument}: {one.name} lacks the column {quoted(listed)}, which {other.name} has; write all "
                    "parts with the same columns."
                )
        for i, name in enumerate(names):
            kind = arrow_kind(fragment.schema.field(name).type)
            merged = _merged_kind(kinds[i], kind)
            if merged is None:
                words = [values_name(kinds[i]), values_name(kind)]
                raise InputError(
                    f"{argument}: column '{name}' holds {words[1]} in {fragment.name} but {words[0]} in {owner[i]}; "
                    "convert one of them."
                )
            if kinds[i] == "empty":
                owner[i] = fragment.name
            kinds[i] = merged
    return names, kinds


def _index_columns(schema: Any) -> set[str]:
    """The columns in which pandas or Dask stored the index of a frame: labels of rows, no features."""
    metadata = schema.pandas_metadata or {}
    return {name for name in metadata.get("index_columns", []) if isinstance(name, str)}


def _merged_kind(one: str, other: str) -> str | None:
    """The kind of a column that is of two kinds in two fragments; None where that cannot be."""
    if one == other or other == "empty":
        return one
    if one == "empty":
        return other
    if {one, other} <= {"text", "category"}:
        return "text"
    return "float64" if {one, other} <= set(PLAIN) else None
