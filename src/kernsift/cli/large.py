"""Files that are read in pieces: those larger than a share of the memory, folders, and whatever --memory is given for.

Guesses about their columns are made from their first rows.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernsift.cli.files import Loaded, file_kind, read_file
from kernsift.cli.guesses import Chosen
from kernsift.data.columns import quoted, read_columns
from kernsift.data.formats import Source, open_source
from kernsift.data.formats.in_memory import MemorySource
from kernsift.data.formats.source import NUMBERS, TEXTS
from kernsift.execution.memory import machine_memory

if TYPE_CHECKING:
    import pandas as pd

# Files above this share of the machine's memory are read in pieces: as a whole they take several times their size.
_SHARE = 4
# Rows that guesses are made from, and how many cells they may have.
_HEAD, _CELLS, _FEWEST = 10_000, 2**22, 50
_WHOLE = ("Excel", "NumPy archive")


def read_any(path: str, argument: str, *, encoding: str | None, memory: str | None) -> Loaded:
    """A file as a whole where it is small, else its first rows and the `Source` that reads it in pieces."""
    if not _in_pieces(path, memory):
        return read_file(path, encoding=encoding)
    source = open_source(path, argument, encoding=encoding)
    assert source is not None
    known = (*NUMBERS, *TEXTS, "empty", "unknown")
    places = [i for i, kind in enumerate(source.kinds) if kind in known]
    rows = min(source.n, _HEAD, max(_FEWEST, _CELLS // max(1, len(places))))
    notes = [*_dialect_notes(source, path), *_unusable(source, known)]
    if rows < source.n:
        notes.append(f"{path}: read in pieces; guesses about columns are from its first {rows:,} rows.")
    return Loaded(path, _head(source, places, rows), source.named, tuple(notes), source, tuple(places))


def _in_pieces(path: str, memory: str | None) -> bool:
    place = path.partition("::")[0]
    if os.path.isdir(place) or (place != path and os.path.exists(place)):
        return True
    if not os.path.isfile(path):  # standard input and pipes can be read only once
        return False
    kind = file_kind(path)
    return kind == "HDF5" or (
        kind not in _WHOLE and (memory is not None or os.path.getsize(path) > machine_memory() // _SHARE)
    )


def harmonised(
    files: Sequence[Loaded], chosen: Chosen, stay: Collection[str], *, missing: str, memory: str | None
) -> tuple[list[Any], list[str]]:
    """What the library is called with, and one sentence for what else is left out: columns that do not vary.

    Files that are read in pieces are looked at as the library would do first, and it gets what was found.
    """
    if all(file.source is None for file in files):
        return list(chosen.frames), []
    return [_picked(file, frame, name) for file, frame, name in zip(files, chosen.frames, "XY", strict=False)], []


def _picked(file: Loaded, frame: pd.DataFrame, argument: str) -> Source:
    """The chosen columns of a file, as `frame` has them of its first rows or of all."""
    if file.source is None:
        return MemorySource(read_columns(frame, argument), argument)
    where = dict(zip(file.frame.columns.tolist(), file.places, strict=True))
    names = [str(name) for name in frame.columns.tolist()]
    found = file.source.pick([where[name] for name in names], names)
    found.named = True  # as the columns of a frame are, x0, x1 and so on included
    return found


def _head(source: Source, places: list[int], rows: int) -> pd.DataFrame:
    """The first rows as a data frame, with the types that the file has."""
    import pandas as pd

    cells = source.read(places, 0, rows)
    found: dict[str, Any] = {}
    for i, place in enumerate(places):
        values = cells.values[:, i]
        if i in cells.levels:
            levels = np.array([*cells.levels[i], None], dtype=object)
            found[source.names[place]] = levels[np.where(np.isnan(values), -1, values).astype(np.intp)]
        elif source.kinds[place] == "integer" and not np.isnan(values).any():
            found[source.names[place]] = values.astype(np.int64)
        elif source.kinds[place] == "truth" and not np.isnan(values).any():
            found[source.names[place]] = values.astype(bool)
        else:
            found[source.names[place]] = values
    return pd.DataFrame(found)


def _dialect_notes(source: Source, path: str) -> tuple[str, ...]:
    dialect = getattr(source, "dialect", None)
    return () if dialect is None else tuple(dialect.notes(path))


def _unusable(source: Source, known: tuple[str, ...]) -> list[str]:
    """Columns that hold neither numbers nor categories, which a file says of itself."""
    said: dict[str, list[str]] = {}
    for name, kind in zip(source.names, source.kinds, strict=True):
        if kind not in known:
            times = kind.lower().startswith(("date", "time", "duration"))
            said.setdefault("Dates and times" if times else "Neither numbers nor categories", []).append(name)
    return [f"{reason}, so left out: {quoted(names)}." for reason, names in said.items()]
