"""Archives and compressed files: read as a whole, after a check that they are no bombs.

Nothing that is read here can run code: pickles are refused in every container. Decompression bombs are refused before
they are unpacked.
"""

from __future__ import annotations

import os
import warnings
import zipfile
from collections.abc import Iterable
from typing import Any

import numpy as np

from kernsift.data.columns.columns import Columns
from kernsift.data.formats.file_stamps import FileStamp, first_line, guarded
from kernsift.data.formats.text_dialects import header_names
from kernsift.data.frames import read_columns, side_by_side
from kernsift.exceptions import InputError, required

LARGEST_UNPACKED = 2 << 30
"""Compressed files are unpacked up to this many bytes."""

LARGEST_SHEET = 50_000_000
"""The cells of a spreadsheet, empty ones included, that are read: one cell in the last corner makes 17 billion."""

_LARGEST_RATIO, _RATIO_MATTERS = 200, 100 << 20

# Texts of missing cells: those of pandas, and the errors of spreadsheets.
_ERRORS = ["#N/A", "#DIV/0!", "#REF!", "#NAME?", "#NUM!", "#NULL!", "#VALUE!"]
_GAPS = {"", "?", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "-nan", "-NaN", "#NA", *_ERRORS}


def refuse_bomb(name: str, packed: int, unpacked: int, most: float = LARGEST_UNPACKED) -> None:
    """Refuse a small file that would fill the memory when unpacked."""
    if unpacked > most or (unpacked > _RATIO_MATTERS and unpacked > _LARGEST_RATIO * packed):
        raise InputError(
            f"{name} would unpack from {packed / 1e6:.3g} to {unpacked / 1e6:,.0f} MB or more, which no honest table "
            "does; save it as CSV if it is one."
        )


def archive_kind(path: str, name: str) -> str:
    """What a zip archive is: "Excel" or "NumPy archive"."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise InputError(f"{name} is a broken archive ({first_line(error)}); save or copy it again.") from None
    # Members may overlap, so that what is packed is at most the file.
    packed = min(os.path.getsize(path), sum(member.compress_size for member in members))
    refuse_bomb(name, packed, sum(member.file_size for member in members))
    names = [member.filename for member in members]
    if "xl/workbook.xml" in names:
        return "Excel"
    if names and all(member.endswith(".npy") for member in names):
        return "NumPy archive"
    raise InputError(f"{name} is a zip archive with something else than a table; unpack it first.")


def read_excel(path: str, argument: str) -> tuple[Columns, tuple[str, ...]]:
    """The first sheet of a workbook, and what was guessed."""
    openpyxl = required("openpyxl", "Reading Excel files needs openpyxl")
    name = f"{argument}: {path}"
    with open(path, "rb") as file:  # which openpyxl leaves open where the workbook is broken
        book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # what the file says of its own size may be wrong
        rows = _filled(sheet.iter_rows(values_only=True), name)
        title, sheets = sheet.title, len(book.sheetnames)
    if len(rows) < 2:
        raise InputError(f"{name}: the first sheet, '{title}', holds no table; move the table's sheet to the front.")
    width = max(map(len, rows))
    header = header_names(["" if cell is None else str(cell) for cell in rows[0]] + [""] * (width - len(rows[0])), name)
    columns: dict[str, Any] = {}
    for i, label in enumerate(header):
        cells = np.empty(len(rows) - 1, dtype=object)
        cells[:] = [_cell(row[i]) if i < len(row) else None for row in rows[1:]]
        columns[label] = cells
    notes = (f"{path}: sheet '{title}'; the first of {sheets} sheets was read.",) if sheets > 1 else ()
    return read_columns(columns, argument), notes


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


def _cell(cell: Any) -> Any:
    return None if isinstance(cell, str) and cell.strip() in _GAPS else cell


def read_npz(path: str, argument: str) -> Columns:
    """One array is the table; several of one dimension and one length are its columns."""
    arrays = npz_arrays(path, argument)
    if len(arrays) == 1:
        return array_columns(next(iter(arrays.values())), argument, path)
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) > 1 or len(next(iter(shapes))) != 1:
        listed = ", ".join(f"{key} {array.shape}" for key, array in list(arrays.items())[:5])
        raise InputError(
            f"{argument}: {path}: one table, or columns of one length, are needed, but it holds {listed}; save one "
            "table."
        )
    return side_by_side([read_columns(array, argument) for array in arrays.values()], list(arrays), argument)


def npz_arrays(path: str, argument: str) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, by name."""
    with guarded(argument, path, "a NumPy archive", FileStamp.of(path, argument)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about headers that an old version of Python wrote
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {key: archive[key] for key in archive.files}
        except ValueError as error:
            if "allow_pickle" not in str(error):
                raise
            raise InputError(
                f"{argument}: {path} holds pickled Python objects, which could run code and are never opened; save "
                "numbers: np.save(file, array.astype(float))."
            ) from None
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError("a member is no array")
        return arrays


def array_columns(array: np.ndarray, argument: str, name: str) -> Columns:
    """An array with rows and columns, or with fields."""
    if array.dtype.names:
        if array.ndim != 1:
            raise InputError(
                f"{argument}: {name} has fields and needs one dimension, got shape {array.shape}; flatten it."
            )
        fields = [read_columns(array[field], argument) for field in array.dtype.names]
        return side_by_side(fields, list(array.dtype.names), argument)
    if array.ndim not in (1, 2):
        raise InputError(
            f"{argument}: a table with rows and columns is needed, but {name} has shape {array.shape}; reshape it."
        )
    return read_columns(array[:, None] if array.ndim == 1 else array, argument)
