"""Excel files: the first sheet, read as a whole."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from kernsift.data.formats.file_stamps import FileStamp, guarded
from kernsift.data.formats.in_memory import MemorySource
from kernsift.data.formats.text_dialects import header_names
from kernsift.data.frames import read_columns
from kernsift.exceptions import InputError, required

LARGEST_SHEET = 50_000_000
"""The cells of a spreadsheet, empty ones included, that are read: one cell in the last corner makes 17 billion."""

# Texts of missing cells: those of pandas, and the errors of spreadsheets.
_ERRORS = ["#N/A", "#DIV/0!", "#REF!", "#NAME?", "#NUM!", "#NULL!", "#VALUE!"]
_GAPS = {"", "?", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "-nan", "-NaN", "#NA", *_ERRORS}


def excel_source(path: str, argument: str) -> MemorySource:
    """The first sheet of a workbook."""
    openpyxl, name = required("openpyxl", "Reading Excel files needs openpyxl"), f"{argument}: {path}"
    with guarded(argument, path, "an Excel file", FileStamp.of(path, argument)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about styles and extensions, which hold no cells
        with open(path, "rb") as file:  # which openpyxl leaves open where the workbook is broken
            book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
            sheet = book.worksheets[0]
            sheet.reset_dimensions()  # what the file says of its own size may be wrong
            rows = _filled(sheet.iter_rows(values_only=True), name)
            title, sheets = sheet.title, len(book.sheetnames)
        if len(rows) < 2:
            raise InputError(f"{name}: the first sheet, '{title}', holds no table; move the sheet of the table first.")
        width = max(map(len, rows))
        first = ["" if cell is None else str(cell) for cell in rows[0]]
        columns: dict[str, Any] = {}
        for i, label in enumerate(header_names(first + [""] * (width - len(first)), name)):
            cells = np.empty(len(rows) - 1, dtype=object)
            cells[:] = [_cell(row[i]) if i < len(row) else None for row in rows[1:]]
            columns[label] = cells
        source = MemorySource(read_columns(columns, argument), argument)
    source.notes = (f"{path}: sheet '{title}'; the first of {sheets} sheets was read.",) if sheets > 1 else ()
    return source


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
