"""Files that are named on the command line, and the columns that its options name."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from kernsift.cli.options import split_names
from kernsift.data.columns.kinds import matching_columns
from kernsift.data.formats import Source, open_table
from kernsift.data.formats.archives import archive_kind
from kernsift.data.formats.in_memory import MemorySource
from kernsift.data.formats.numpy_files import array_columns, npz_arrays
from kernsift.data.formats.source import NUMBERS
from kernsift.exceptions import InputError, nearest, quoted, suggestion
from kernsift.execution.files import named_file
from kernsift.execution.notes import add_note

# Copies of standard input and pipes, which can be read only once, and what these are called.
_COPIED_STREAMS: list[tuple[str, str]] = []
_FIRST_BYTES = 100_000


def open_files(paths: Mapping[str, str], given: Mapping[str, Any]) -> list[Source]:
    """Open the files of the arguments of a question."""
    return [
        open_table(
            seekable_path(path),
            argument,
            memory=given.get("memory"),
            layer=given.get("layer"),
            encoding=_encoding(path, given["encoding"]),
        )
        for argument, path in paths.items()
    ]


def open_candidates(paths: Sequence[str], given: Mapping[str, Any]) -> dict[str, Source]:
    """Data sets by name: every array of an .npz, or the one table of any other file under the file's name."""
    found: dict[str, Source] = {}
    for path in paths:
        if path == "-":
            raise InputError("standard input: can be the reference, but no candidate; write it to a file.")
        stem = Path(path).name.split(".")[0] or path
        for name, source in _candidates(path, stem, given).items():
            found[name if name not in found else f"{path}:{name}" if name not in path else path] = source
    return found


def _candidates(path: str, stem: str, given: Mapping[str, Any]) -> dict[str, Source]:
    argument = f"candidates['{stem}']"
    if not (is_zipfile(path) and archive_kind(path, f"{argument}: {path}") == "NumPy archive"):
        return {stem: open_files({argument: path}, given)[0]}
    arrays = npz_arrays(path, argument)
    if len(arrays) == 1:
        arrays = {stem: next(iter(arrays.values()))}
    return {name: MemorySource(array_columns(array, argument, path), argument) for name, array in arrays.items()}


def check_encodings(given: Sequence[str], files: Collection[str]) -> None:
    """Refuse the encoding of a file that is not read."""
    for value in given:
        file, equals, _ = value.rpartition("=")
        if equals and file not in files:
            raise InputError(
                f"--encoding: no file {file!r} is read{nearest(file, files)}; write it as it is in the command."
            )


def _encoding(path: str, given: Sequence[str]) -> str | None:
    """The encoding for a file: what was given for it as FILE=NAME, or for all."""
    own = [value.rpartition("=")[2] for value in given if value.rpartition("=")[0] == path]
    every = [value for value in given if "=" not in value]
    return own[-1] if own else every[-1] if every else None


def seekable_path(path: str) -> str:
    """A file that can be read more than once: standard input and pipes are copied to one."""
    if path != "-" and (not os.path.exists(path) or os.path.isfile(path) or os.path.isdir(path)):
        return path
    name = named_file()
    with open(name, "wb") as copy, sys.stdin.buffer if path == "-" else open(path, "rb") as stream:
        start = stream.read(_FIRST_BYTES)
        copy.write(start)
        # A stream that is neither a table nor text may be endless, and is refused after its start.
        known = start.startswith(
            (b"PAR1", b"ARROW1", b"\x93NUMPY", b"PK", b"\x89HDF", b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff")
        )
        if known or b"\0" not in start:
            shutil.copyfileobj(stream, copy)
    _COPIED_STREAMS.append((name, "standard input" if path == "-" else path))
    return name


def with_user_paths(message: str) -> str:
    """A message with the names that the user has for copied files."""
    for copy, name in _COPIED_STREAMS:
        message = message.replace(copy, name)
    return message


# Columns -------------------------------------------------------------------------------------------------------------


def select_columns(
    sources: Sequence[Source], files: Sequence[str], given: Mapping[str, Any], keep: Mapping[str, str] | None = None
) -> list[Source]:
    """The columns that the options name, of all files; `keep` has those that stay, and the option that names each."""
    keep = keep or {}
    sources = _with_shared_names(sources)
    columns, exclude = split_names(given["columns"]), split_names(given["exclude"])
    others = [set(source.names) for source in sources[1:]]
    everywhere = [name for name in sources[0].names if all(name in other for other in others)]
    known = set(everywhere)
    anywhere = list(dict.fromkeys(name for source in sources for name in source.names))
    if not everywhere:
        raise InputError(
            f"{files[1]}: shares no column with {files[0]}, which has {quoted(sources[0].names)} where this file has "
            f"{quoted(sources[1].names)}; rename columns."
        )
    described = sources[0].annotations
    for name, option in keep.items():
        if name not in known and not (described is not None and name in described.names):
            where, names = ("it", everywhere) if described is None else ("its obs", described.names)
            hint = suggestion(name, names, f"; {where} has {quoted(names)}.")
            raise InputError(f"{option}: {files[0]} has no column '{name}'{hint}")
    wanted = set(matching_names("--columns", columns, anywhere, files[0])) if columns else set(anywhere)
    wanted = (wanted - set(matching_names("--exclude", exclude, anywhere, files[0]))) | set(keep)
    nameless = {name for name in anywhere if name not in known and re.fullmatch(r"Unnamed: \d+", name)}
    lacking = [name for name in anywhere if name in wanted - nameless and name not in known]
    if lacking:
        if not given.get("common_columns"):
            lacks = next(i for i, source in enumerate(sources) if lacking[0] not in source.names)
            where = _where_columns_are(lacking, sources, files, 8)
            raise InputError(
                f"{files[lacks]}: every file needs the same columns, but {where}; rename or --exclude, or use the "
                "others with --common-columns."
            )
        add_note(f"Left out with --common-columns: {_where_columns_are(lacking, sources, files, 100)}.")
    rest = [name for name in everywhere if name in wanted]
    if not [name for name in rest if name not in keep]:
        raise InputError(f"{files[0]}: no column is left to look at; choose fewer with --exclude.")
    found = []
    for source in sources:
        place = {name: i for i, name in enumerate(source.names)}
        # Columns without a name stay for the library to leave out, and to say so.
        own = [name for name in source.names if name in nameless]
        found.append(source.pick([place[name] for name in (*rest, *own)]))
    return found


def _where_columns_are(names: Sequence[str], sources: Sequence[Source], files: Sequence[str], most: int) -> str:
    """Which of two files has columns that are not in both; of more files, that they are not in all."""

    def said(own: Sequence[str], where: str) -> str:
        return f"{quoted(own, most)} {'is' if len(own) == 1 else 'are'} {where}"

    if len(sources) > 2:
        return said(names, "not in all of them")
    known = [set(source.names) for source in sources]
    own = [[name for name in names if name in there] for there in known]
    return " and ".join(said(some, f"only in {file}") for some, file in zip(own, files, strict=True) if some)


def _with_shared_names(sources: Sequence[Source]) -> list[Source]:
    """Files without names of their own take those of a file with as many columns."""
    model = next((source for source in sources if source.named), sources[0])
    return [
        source.renamed(model.names, True) if not source.named and len(source.names) == len(model.names) else source
        for source in sources
    ]


def column_kinds(source: Source, file: str, given: Mapping[str, Any], keep: Collection[str] = ()) -> dict[str, str]:
    """What --number and --category say of columns; numbers that --columns names are not left out as identifiers."""
    found = dict.fromkeys((name for name in split_names(given["columns"]) if name in source.names), "number")
    numeric = {name for name, kind in zip(source.names, source.kinds, strict=True) if kind in NUMBERS}
    found = {name: kind for name, kind in found.items() if name in numeric and name not in keep}
    wanted = {kind: split_names(given[kind]) for kind in ("number", "category")}
    if twice := [name for name in wanted["number"] if name in wanted["category"]]:
        raise InputError(f"--category: {quoted(twice)} is named by --number as well; name it once.")
    for kind, patterns in wanted.items():
        found |= dict.fromkeys(matching_names(f"--{kind}", patterns, source.names, file), kind)
    return found


def matching_names(option: str, patterns: Iterable[str], names: Sequence[str], where: str) -> list[str]:
    """The columns an option names, exactly or with * and ?."""
    found = {name: None for pattern in patterns for name in matching_columns(pattern, names, f"{option}: {where}")}
    return list(found)
