"""Files as people keep them, read into data frames: what a file is, is told by its first bytes, not by its name.

Nothing that is read here can run code: pickles are refused in every disguise, and archives that would unpack to an
absurd size are refused before they are unpacked.
"""

from __future__ import annotations

import gzip
import io
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from kernsift.cli.textfiles import read_text, refuse_binary
from kernsift.data.columns import is_unicode
from kernsift.data.formats.text_dialects import header_names, refuse_repeated
from kernsift.exceptions import INSTALL, InputError

if TYPE_CHECKING:
    import pandas as pd

    from kernsift.data.formats import Source

LARGEST_UNPACKED = 2 << 30
"""Compressed files are unpacked up to this many bytes."""

LARGEST_SHEET = 50_000_000
"""The cells of a spreadsheet, empty ones included, that are read: one cell in the last corner makes 17 billion."""

_LARGEST_RATIO, _RATIO_MATTERS = 200, 100 << 20
_FEATHER_1 = b"FEA1"
_START = 100_000

# Text that stands for nothing: what pandas takes so in text files, and the errors of spreadsheets.
_ERRORS = ["#N/A", "#DIV/0!", "#REF!", "#NAME?", "#NUM!", "#NULL!", "#VALUE!"]
_GAPS = {"", "?", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "-nan", "-NaN", "#NA", *_ERRORS}

_T = TypeVar("_T")


@dataclass(frozen=True)
class Loaded:
    """One file's table.

    Attributes
    ----------
    name : what messages call the file.
    frame : the table.
    named : whether the column names are the file's own.
    notes : guesses that were made while reading, one sentence each.
    source : what reads the file in pieces; then `frame` holds its first rows.
    places : for each column of `frame` its position in `source`.
    """

    name: str
    frame: pd.DataFrame
    named: bool = True
    notes: tuple[str, ...] = ()
    source: Source | None = None
    places: tuple[int, ...] = ()


def read_file(path: str, *, encoding: str | None = None) -> Loaded:
    """Read a table from CSV, TSV, Parquet, Feather, Excel or NumPy files; "-" is standard input."""
    _pandas()
    name = "standard input" if path == "-" else path
    with _bytes(path) as source:
        return _read(source, name, _kind(source, name), encoding)


def file_kind(path: str) -> str:
    """What a file is, by its first bytes."""
    with _bytes(path) as source:
        if source.read(4) == b"\x89HDF":
            return "HDF5"
        source.seek(0)
        return _kind(source, path)


def _read(source: Any, name: str, kind: str, encoding: str | None) -> Loaded:
    def read() -> Loaded:
        if kind in ("text", "gzip"):
            text = read_text(_unpack(source, name) if kind == "gzip" else _text(source, name, encoding), name, encoding)
            return Loaded(name, text.frame, text.named, text.notes)
        return _READERS[kind](source, name)

    return _guarded(read, name, kind)


def _guarded(read: Callable[[], _T], name: str, kind: str) -> _T:
    """What `read` gives; whatever it raises on a broken file becomes one sentence, and what it warns of is left out."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return read()
    except InputError:
        raise
    except ModuleNotFoundError as error:
        raise _install(kind, error) from None
    except MemoryError:
        raise InputError(f"{name}: does not fit into memory; choose fewer rows or columns first.") from None
    except Exception as error:  # what the readers raise on a broken file is not listed anywhere
        raise InputError(
            f"{name}: could not be read as {kind} ({_first_line(error)}); save or copy the file again."
        ) from error


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

        def read() -> dict[str, Loaded]:
            arrays = _open_npz(source, path)
            if len(arrays) == 1:
                return {stem: _array_table(next(iter(arrays.values())), path)}
            return {name: _array_table(array, f"{path}, array '{name}'") for name, array in arrays.items()}

        return _guarded(read, path, kind)


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
        raise InputError(f"{path}: cannot be opened ({_first_line(error)}); check its name and permissions.") from None
    if file.seekable():
        return file
    with file:
        return io.BytesIO(file.read())


def _text(source: Any, name: str, encoding: str | None) -> bytes:
    """All of a text file; what is no text, and may have no end, is refused after its start."""
    start = source.read(_START)
    if encoding is None and not start.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")):
        refuse_binary(start, name)
    return start + source.read()


def _beside(path: str) -> str:
    from difflib import get_close_matches

    folder = Path(path).parent
    try:
        # Endings are alike anyway, so names must be more so than words.
        near = get_close_matches(Path(path).name, [file.name for file in folder.iterdir()], n=1, cutoff=0.75)
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
        raise InputError(f"{name}: is a broken archive ({_first_line(error)}); save or copy it again.") from None
    finally:
        source.seek(0)
    # Members may overlap, so that what is packed is at most the file.
    _refuse_bomb(name, min(_size(source), sum(m.compress_size for m in members)), sum(m.file_size for m in members))
    names = [member.filename for member in members]
    if "xl/workbook.xml" in names:
        return "Excel"
    if names and all(member.endswith(".npy") for member in names):
        return "NumPy archive"
    raise InputError(f"{name}: is a zip archive with something else than a table; unpack it first.")


def _refuse_bomb(name: str, packed: int, unpacked: int) -> None:
    """A small file that would fill the memory is no table."""
    if unpacked > LARGEST_UNPACKED or (unpacked > _RATIO_MATTERS and unpacked > _LARGEST_RATIO * packed):
        raise InputError(
            f"{name}: would unpack from {packed / 1e6:.3g} to {unpacked / 1e6:,.0f} MB or more, which no honest table "
            "does; save it as CSV if it is one."
        )


def _size(source: Any) -> int:
    end = int(source.seek(0, io.SEEK_END))
    source.seek(0)
    return end


# Readers -------------------------------------------------------------------------------------------------------------


def _read_parquet(source: Any, name: str) -> Loaded:
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(source)
    refuse_repeated(file.schema_arrow.names, name)
    metadata = file.metadata
    cells = metadata.num_rows * max(1, metadata.num_columns)
    size = _size(source)
    # Columns of one value pack without end, and honest ones pack well: only both together are refused.
    if 8 * cells > max(LARGEST_UNPACKED, _LARGEST_RATIO * size):
        _refuse_bomb(name, size, 8 * cells)
    return Loaded(name, _from_arrow(pyarrow.parquet.read_table(source)))


def _read_feather(source: Any, name: str) -> Loaded:
    import pyarrow.feather

    table = pyarrow.feather.read_table(source)
    refuse_repeated(table.column_names, name)
    return Loaded(name, _from_arrow(table))


def _from_arrow(table: Any) -> pd.DataFrame:
    # Broken offsets would be followed into memory that is not the table's, so nothing is used before it is checked.
    table.validate(full=True)
    # An index that pandas wrote comes back as a column of its own, which is then known as an index by its name.
    return table.to_pandas(ignore_metadata=True)


def _read_excel(source: Any, name: str) -> Loaded:
    import openpyxl

    book = openpyxl.load_workbook(source, read_only=True, data_only=True, keep_links=False)
    try:
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # what the file says of its own size may be wrong
        rows = _filled(sheet.iter_rows(values_only=True), name)
        title, sheets = sheet.title, len(book.sheetnames)
    finally:
        book.close()
    if len(rows) < 2:
        raise InputError(f"{name}: the first sheet, '{title}', holds no table; move the table's sheet to the front.")
    width = max(map(len, rows))
    header = header_names([_text_cell(cell) for cell in rows[0]] + [""] * (width - len(rows[0])), name)
    body = [[_cell(cell) for cell in row] + [None] * (width - len(row)) for row in rows[1:]]
    frame = _pandas().DataFrame(body, columns=header)
    notes = (f"{name}: sheet '{title}'; the first of {sheets} sheets was read.",) if sheets > 1 else ()
    return Loaded(name, frame, True, notes)


def _filled(rows: Iterable[tuple[Any, ...]], name: str) -> list[tuple[Any, ...]]:
    """The rows that hold anything, without the empty cells at their ends."""
    found: list[tuple[Any, ...]] = []
    width = cells = 0
    for row in rows:
        end = next((i for i in range(len(row), 0, -1) if row[i - 1] is not None), 0)
        if end:
            found.append(row[:end])
            width, cells = max(width, end), cells + len(row)
        if width * len(found) > LARGEST_SHEET or cells > LARGEST_SHEET:
            raise InputError(f"{name}: the first sheet has more than {LARGEST_SHEET:,} cells; save it as CSV.")
    return found


def _text_cell(cell: Any) -> str:
    return "" if cell is None else str(cell)


def _cell(cell: Any) -> Any:
    return None if isinstance(cell, str) and cell.strip() in _GAPS else cell


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
        raise InputError(
            f"{name}: one table, or columns of one length, are needed, but it holds {listed}; save one table."
        )
    return Loaded(name, _pandas().DataFrame({key: _native(array) for key, array in arrays.items()}))


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
    return InputError(f"{name}: is a broken NumPy file ({_first_line(error)}); save or copy it again.")


def _array_table(array: np.ndarray, name: str) -> Loaded:
    pd = _pandas()
    if array.dtype.names:
        if array.ndim != 1:
            raise InputError(f"{name}: an array with fields needs one dimension, got shape {array.shape}; flatten it.")
        return Loaded(name, pd.DataFrame({field: _native(array[field]) for field in array.dtype.names}))
    if array.ndim not in (1, 2):
        raise InputError(f"{name}: an array with rows and columns is needed, got shape {array.shape}; reshape it.")
    array = _native(array[:, None] if array.ndim == 1 else array)
    return Loaded(name, pd.DataFrame(array, columns=[f"x{i}" for i in range(array.shape[1])]), named=False)


def _unpack(source: Any, name: str) -> bytes:
    """The text in a gzip file, a piece at a time: how large it gets is not known before."""
    packed, text = _size(source), io.BytesIO()
    with gzip.open(source) as unpacked:
        while piece := unpacked.read(1 << 24):
            text.write(piece)
            _refuse_bomb(name, packed, text.tell())
    text.seek(0)
    inner = _kind(text, name)
    if inner != "text":
        raise InputError(f"{name}: is {inner} inside gzip; unpack it first.")
    return text.getvalue()


_READERS: dict[str, Callable[[Any, str], Loaded]] = {
    "Parquet": _read_parquet,
    "Feather": _read_feather,
    "Excel": _read_excel,
    "NumPy array": _read_npy,
    "NumPy archive": _read_npz,
}


def _native(array: np.ndarray) -> np.ndarray:
    """In this machine's byte order, without which pandas cannot compare; text has to be Unicode."""
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    if array.dtype.kind == "U" and not is_unicode(array):
        raise ValueError("its text is no Unicode")
    return array


# Words ---------------------------------------------------------------------------------------------------------------


def _pandas() -> Any:
    try:
        import pandas
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"Reading files needs pandas: {INSTALL}.") from None
    return pandas


def _install(kind: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    package = {"Excel": "openpyxl", "Parquet": "pyarrow", "Feather": "pyarrow"}.get(kind, error.name or "a package")
    return ModuleNotFoundError(f"Reading {kind} files needs {package}: {INSTALL}.")


def _first_line(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")
