"""Arrays on disk: everything that is one rectangle of cells, or one row of records, of a single NumPy type."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernsift.data.columns.cells import number_kind
from kernsift.data.columns.columns import Columns
from kernsift.data.formats.source import Rows, Source
from kernsift.data.frames import read_columns, side_by_side
from kernsift.exceptions import InputError, quoted

CHUNK = 8 << 20
"""Bytes of an array that are read at a time where nothing else suggests a size."""


class ArraySource(Source):
    """An array whose rows are read in runs; names are made up from the positions unless it has fields."""

    def __init__(
        self,
        argument: str,
        name: str,
        shape: tuple[int, ...],
        dtype: Any,
        chunk_rows: int | None,
        *,
        text: bool = False,
    ) -> None:
        self.name = name
        self._text = text
        self._fields = getattr(dtype, "names", None)
        self._flat = len(shape) == 1
        check_shape(shape, dtype, argument, name)
        p = len(self._fields) if self._fields else 1 if self._flat else shape[1]
        types = [dtype[field] for field in self._fields] if self._fields else [dtype] * p
        names = self._fields or [f"x{i}" for i in range(p)]
        # A cell is in memory as it is stored and as a number; texts are Python objects in between.
        widths = [
            2 * one.itemsize + 8.0 if not text and one.kind in "biuf" else 2.0 * one.itemsize + 80 for one in types
        ]
        # Whole chunks of the file, several where they are small.
        rows = (chunk_rows or 1) * max(1, int(CHUNK // ((chunk_rows or 1) * sum(widths))))
        edges = np.append(np.arange(0, shape[0], rows), shape[0])
        kinds = ["text" if text else number_kind(one) for one in types]
        super().__init__(
            argument, names, kinds, edges, np.asarray(widths), named=bool(self._fields), flat=self._flat and p == 1
        )

    @abstractmethod
    def cells(self, columns: Sequence[int], start: int, stop: int) -> np.ndarray:
        """Some rows of the table as an array with a column for each of `columns`, or of records with all fields."""

    def fetch(self, chunk: int, columns: Sequence[int], rows: Rows) -> Columns:
        begin = int(self.edges[chunk])
        if isinstance(rows, slice):
            block = self.cells(columns, begin + rows.start, begin + rows.stop)
        else:
            block = self.scattered(columns, begin + rows)
        names = tuple(self.names[i] for i in columns)
        return replace(read_array(block, names if self._fields else None, self.argument), names=names)

    def scattered(self, columns: Sequence[int], rows: np.ndarray) -> np.ndarray:
        """The cells at sorted rows: the run that holds all of them is read and thinned out."""
        first = int(rows[0])
        return self.cells(columns, first, int(rows[-1]) + 1)[rows - first]


def only_name(names: Sequence[str], what: str, argument: str, label: str, example: str) -> str:
    """The name of the only array of a file or folder."""
    if len(names) != 1:
        raise InputError(
            f"{argument}: one {what} is needed, but {label} holds {quoted(names) or 'none'}; name it, as in "
            f"'{label}::{example}'."
        )
    return names[0]


def check_shape(shape: tuple[int, ...], dtype: Any, argument: str, name: str) -> None:
    """Refuse an array that has no rows and columns."""
    records = getattr(dtype, "names", None)
    if len(shape) not in (1, 2) or (records and len(shape) == 2) or (len(shape) == 2 and shape[1] == 0):
        raise InputError(
            f"{argument}: a table with rows and columns is needed, but {name} has shape {shape}; reshape it."
        )


def read_array(array: np.ndarray, fields: Sequence[str] | None, argument: str) -> Columns:
    """Rows of cells, or some fields of records, as columns."""
    if fields:
        return side_by_side([read_columns(array[field], argument) for field in fields], fields, argument)
    return read_columns(array[:, None] if array.ndim == 1 else array, argument)


def read_block(array: Any, columns: Sequence[int], start: int, stop: int) -> np.ndarray:
    """Some rows of an HDF5 dataset or a Zarr array; neighbouring columns are read together."""
    if array.ndim == 1:
        return np.asarray(array[start:stop])
    return np.concatenate([np.asarray(array[start:stop, there]) for _, there in runs(columns)], axis=1)


def runs(columns: Sequence[int]) -> Iterator[tuple[slice, slice]]:
    """Neighbouring columns together: their place in the answer, and in the array."""
    wanted = np.asarray(columns, dtype=np.intp)
    cuts = np.flatnonzero(np.diff(wanted) != 1) + 1
    for start, stop in zip([0, *cuts], [*cuts, len(wanted)], strict=True):
        yield slice(int(start), int(stop)), slice(int(wanted[start]), int(wanted[stop - 1]) + 1)
