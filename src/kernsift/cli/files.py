"""Files as people keep them, read into data frames: what a file is, is told by its first bytes, not by its name.

Nothing that is read here can run code: pickles are refused in every disguise, and archives that would unpack to an
absurd size are refused before they are unpacked.
"""

from __future__ import annotations

import gzip
import io
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernsift.cli.textfiles import read_text
from kernsift.tables import InputError

if TYPE_CHECKING:
    import pandas as pd

LARGEST_UNPACKED = 2 << 30
"""Compressed files are unpacked up to this many bytes."""

_LARGEST_RATIO, _RATIO_MATTERS = 200, 100 << 20
_FEATHER_1 = b"FEA1"


@dataclass(frozen=True)
class Loaded:
    """One file's table.

    Attributes
    ----------
    name : what messages call the file.
    frame : the table.
    named : whether the column names are the file's own.
    notes : guesses that were made while reading, one sentence each.
    """

    name: str
    frame: pd.DataFrame
    named: bool = True
    notes: tuple[str, ...] = ()


def read_file(path: str, *, encoding: str | None = None) -> Loaded:
    """Read a table from CSV, TSV, Parquet, Feather, Excel or NumPy files; "-" is standard input."""
    _pandas()
    name = "standard input" if path == "-" else path
    with _bytes(path) as source:
        return _read(source, name, _kind(source, name), encoding)


def _read(source: Any, name: str, kind: str, encoding: str | None) -> Loaded:
    try:
        if kind == "text":
            text = read_text(source.read(), name, encoding)
            return Loaded(name, text.frame, text.named, text.notes)
        return _READERS[kind](source, name)
    except InputError:
        raise
    except ModuleNotFoundError as error:
        raise _install(kind, error) from None
    except MemoryError:
        raise InputError(f"{name}: does not fit into memory; choose fewer rows or columns first.") from None
    except Exception as error:  # what the readers raise on a broken file is not listed anywhere
        raise InputError(f"{name}: could not be read as {kind} ({_first_line(error)}).") from error


def read_arrays(path: str, *, encoding: str | None = None) -> dict[str, Loaded]:
    """Data sets by name: every array of an .npz, or the one table of any other file under the file's name."""
    stem = Path(path).name.split(".")[0] or path
    if path == "-":
        raise InputError("standard input: can be the reference, but no candidate; write it to a file.")
    _pandas()
    with _bytes(path) as source:
        kind = _kind(source, path)
        if kind != "NumPy archive":
            return {stem: _read(source, path, kind, encoding)}
        arrays = _open_npz(source, path)
    if len(arrays) == 1:
        return {stem: _array_table(next(iter(arrays.values())), path)}
    return {name: _array_table(array, f"{path}, array '{name}'") for name, array in arrays.items()}


def _bytes(path: str) -> Any:
    """The file, opened for reading; a pipe, which can be read only once, as a whole."""
    if path == "-":
        return io.BytesIO(sys.stdin.buffer.read())
    try:
        file = open(path, "rb")  # noqa: SIM115  (the caller closes it)
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; name a file in it.") from None
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file{_beside(path)}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be opened ({_first_line(error)}).") from None
    if file.seekable():
        return file
    with file:
        return io.BytesIO(file.read())


def _beside(path: str) -> str:
    from difflib import get_close_matches

    folder = Path(path).parent
    try:
        near = get_close_matches(Path(path).name, [file.name for file in folder.iterdir()], n=1)
    except OSError:
        return "."
    return f"; did you mean {folder / near[0]}?" if near else "."


# What it is ----------------------------------------------------------------------------------------------------------


def _kind(source: Any, name: str) -> str:
    start = source.read(8)
    source.seek(0)
    if not start:
        raise InputError(f"{name}: is empty; a table with a line of column names is needed.")
    known = [(b"PAR1", "Parquet"), (b"ARROW1", "Feather"), (b"\x93NUMPY", "NumPy array"), (b"\x1f\x8b", "gzip")]
    for magic, kind in known:
        if start.startswith(magic):
            return kind
    if start.startswith(b"PK"):
        return _archive_kind(source, name)
    refused = [
        (b"\xd0\xcf\x11\xe0", "an Excel file of the old kind (.xls)", "save it as .xlsx or CSV"),
        (b"\x80", "a Python pickle, which could run code and is never opened", "save it as CSV, Parquet or .npy"),
        (b"\x89HDF", "an HDF5 file, which is not read", "save it as CSV, Parquet or .npy"),
        (b"%PDF", "a PDF", "export the table as CSV"),
        (_FEATHER_1, "a Feather file of version 1", "save it again as version 2 or Parquet"),
    ]
    for magic, what, fix in refused:
        if start.startswith(magic):
            raise InputError(f"{name}: is {what}; {fix}.")
    return "text"


def _archive_kind(source: Any, name: str) -> str:
    try:
        with zipfile.ZipFile(source) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise InputError(f"{name}: is a broken archive ({_first_line(error)}).") from None
    finally:
        source.seek(0)
    unpacked = sum(member.file_size for member in members)
    packed = max(1, sum(member.compress_size for member in members))
    if unpacked > LARGEST_UNPACKED or (unpacked > _RATIO_MATTERS and unpacked > _LARGEST_RATIO * packed):
        raise InputError(
            f"{name}: would unpack from {packed / 1e6:.3g} to {unpacked / 1e6:,.0f} MB, which no honest table does; "
            "save it as CSV if it is one."
        )
    names = [member.filename for member in members]
    if "xl/workbook.xml" in names:
        return "Excel"
    if names and all(member.endswith(".npy") for member in names):
        return "NumPy archive"
    raise InputError(f"{name}: is a zip archive with something else than a table; unpack it first.")


# Readers -------------------------------------------------------------------------------------------------------------


def _read_parquet(source: Any, name: str) -> Loaded:
    import pyarrow.parquet

    return Loaded(name, _from_arrow(pyarrow.parquet.read_table(source)))


def _read_feather(source: Any, name: str) -> Loaded:
    import pyarrow.feather

    return Loaded(name, _from_arrow(pyarrow.feather.read_table(source)))


def _from_arrow(table: Any) -> pd.DataFrame:
    # An index that pandas wrote comes back as a column of its own, which is then known as an index by its name.
    return table.to_pandas(ignore_metadata=True)


def _read_excel(source: Any, name: str) -> Loaded:
    import openpyxl  # noqa: F401  (pandas names its missing package less clearly)

    pd = _pandas()
    with pd.ExcelFile(source, engine="openpyxl") as book:
        sheets = book.sheet_names
        frame = pd.read_excel(book, sheet_name=sheets[0])
    if frame.empty:
        raise InputError(f"{name}: the first sheet, '{sheets[0]}', holds no table; move it to the front.")
    frame.columns = [str(column) for column in frame.columns]
    others = f"; the first of {len(sheets)} sheets was read" if len(sheets) > 1 else ""
    notes = (f"{name}: sheet '{sheets[0]}'{others}.",) if others else ()
    return Loaded(name, frame, True, notes)


def _read_npy(source: Any, name: str) -> Loaded:
    return _array_table(_load(source, name), name)


def _read_npz(source: Any, name: str) -> Loaded:
    """One array is the table; several of one dimension and one length are its columns."""
    arrays = _open_npz(source, name)
    if len(arrays) == 1:
        return _array_table(next(iter(arrays.values())), name)
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) > 1 or len(next(iter(shapes))) != 1:
        listed = ", ".join(f"{key} {array.shape}" for key, array in list(arrays.items())[:5])
        raise InputError(f"{name}: one table, or columns of one length, are needed, but it holds {listed}.")
    return Loaded(name, _pandas().DataFrame(arrays))


def _open_npz(source: Any, name: str) -> dict[str, np.ndarray]:
    try:
        with np.load(source, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except ValueError as error:
        raise _pickled(name, error) from None


def _load(source: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(np.load(source, allow_pickle=False))
    except (ValueError, EOFError) as error:
        raise _pickled(name, error) from None


def _pickled(name: str, error: Exception) -> InputError:
    if "allow_pickle" in str(error):
        return InputError(
            f"{name}: holds pickled Python objects, which could run code and are never opened; save numbers: "
            "np.save(file, array.astype(float))."
        )
    return InputError(f"{name}: is a broken NumPy file ({_first_line(error)}).")


def _array_table(array: np.ndarray, name: str) -> Loaded:
    pd = _pandas()
    if array.dtype.names:
        return Loaded(name, pd.DataFrame({field: array[field] for field in array.dtype.names}))
    if array.ndim not in (1, 2):
        raise InputError(f"{name}: an array with rows and columns is needed, got shape {array.shape}; reshape it.")
    array = array[:, None] if array.ndim == 1 else array
    return Loaded(name, pd.DataFrame(array, columns=[f"x{i}" for i in range(array.shape[1])]), named=False)


def _read_gzip(source: Any, name: str) -> Loaded:
    with gzip.open(source) as unpacked:
        text = unpacked.read(LARGEST_UNPACKED + 1)
    if len(text) > LARGEST_UNPACKED:
        raise InputError(f"{name}: unpacks to more than {LARGEST_UNPACKED >> 30} GB; unpack and thin it out first.")
    inner = _kind(io.BytesIO(text), name)
    if inner != "text":
        raise InputError(f"{name}: is {inner} inside gzip; unpack it first.")
    read = read_text(text, name, None)
    return Loaded(name, read.frame, read.named, read.notes)


_READERS: dict[str, Callable[[Any, str], Loaded]] = {
    "Parquet": _read_parquet,
    "Feather": _read_feather,
    "Excel": _read_excel,
    "NumPy array": _read_npy,
    "NumPy archive": _read_npz,
    "gzip": _read_gzip,
}


# Words ---------------------------------------------------------------------------------------------------------------


def _pandas() -> Any:
    try:
        import pandas
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Reading files needs pandas: pip install 'kernsift[files]'.") from None
    return pandas


def _install(kind: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    package = {"Excel": "openpyxl", "Parquet": "pyarrow", "Feather": "pyarrow"}.get(kind, error.name or "a package")
    return ModuleNotFoundError(f"Reading {kind} files needs {package}: pip install 'kernsift[files]'.")


def _first_line(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")
