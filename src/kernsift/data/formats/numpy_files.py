""".npy and .npz files, and NumPy's memory maps. Pickles, which could run code, are refused.

Files are read, not mapped: pages of a map count as memory of this process until something else needs it, and a file
that is cut short under a map ends the process instead of raising an error. Archives are read as a whole.
"""

from __future__ import annotations

import math
import mmap
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernsift.data.columns.columns import Columns
from kernsift.data.formats.array_files import ArraySource, check_shape, read_array
from kernsift.data.formats.file_stamps import FileStamp, first_line, guarded
from kernsift.data.frames import read_columns, side_by_side
from kernsift.exceptions import InputError

# Where fewer than one row in this many is needed, seeking each of them is faster than reading all.
_SPARSE = 16
_COLUMN_ROWS = 1 << 16


class NumpyFile(ArraySource):
    """A .npy file with numbers, truth values or texts of fixed width, in either order, or with records of those."""

    def __init__(self, path: str, argument: str) -> None:
        self._stamp = FileStamp.of(path, argument)
        try:
            array: Any = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError, OSError, SyntaxError) as error:
            raise _broken(path, argument, error) from None
        self.by_column = _is_by_column(array)
        super().__init__(argument, path, array.shape, array.dtype, _COLUMN_ROWS if self.by_column else None)
        self._dtype, self._offset, self._width = array.dtype, array.offset, math.prod(array.shape[1:])
        if not self.by_column:  # a row is read as a whole, whatever is needed of it
            self.overhead = float(self._width * self._dtype.itemsize)

    def cells(self, columns: Sequence[int], start: int, stop: int) -> np.ndarray:
        with self._reading(), open(self.name, "rb") as file:
            if not self.by_column:
                block = self._numbers(file, start * self._width, (stop - start) * self._width)
                return block if self._fields else block.reshape(stop - start, self._width)[:, columns]
            out = np.empty((stop - start, len(columns)), dtype=self._dtype, order="F")
            for i, column in enumerate(columns):
                out[:, i] = self._numbers(file, column * self.n + start, stop - start)
            return out

    def scattered(self, columns: Sequence[int], rows: np.ndarray) -> np.ndarray:
        if self.by_column or len(rows) * _SPARSE > rows[-1] - rows[0]:
            return super().scattered(columns, rows)
        with self._reading(), open(self.name, "rb") as file:
            block = np.stack([self._numbers(file, int(row) * self._width, self._width) for row in rows])
            return block[:, 0] if self._fields else block[:, columns]

    def _reading(self) -> Any:
        return guarded(self.argument, self.name, "a NumPy file", self._stamp)

    def _numbers(self, file: Any, first: int, count: int) -> np.ndarray:
        file.seek(self._offset + first * self._dtype.itemsize)
        found = np.fromfile(file, dtype=self._dtype, count=count)
        if len(found) < count:
            raise ValueError("it ends too early")
        return found


class MappedArray(ArraySource):
    """A memory map that the user opened; pages that were read are released after each piece."""

    def __init__(self, array: Any, argument: str) -> None:
        self._array = array
        name = str(array.filename or "a memory map")
        self._stamps = [FileStamp.of(name, argument)] if array.filename and array.mode in ("r", "c") else []
        self.by_column = _is_by_column(array)
        super().__init__(argument, name, array.shape, array.dtype, _COLUMN_ROWS if self.by_column else None)

    def cells(self, columns: Sequence[int], start: int, stop: int) -> np.ndarray:
        for stamp in self._stamps:
            stamp.check(self.argument)  # beforehand: a map of a file that was cut short must not be touched
        rows = self._array[start:stop]
        block = np.array(rows if self._array.ndim == 1 else rows[:, columns])
        pages = getattr(self._array, "_mmap", None)
        # Not in mode "c", in which the user's changes exist in these pages only.
        if self._array.mode != "c" and hasattr(mmap, "MADV_DONTNEED") and isinstance(pages, mmap.mmap):
            pages.madvise(mmap.MADV_DONTNEED)
        for stamp in self._stamps:
            stamp.check(self.argument)
        return block


def _is_by_column(array: np.ndarray) -> bool:
    return array.ndim == 2 and array.flags.f_contiguous and not array.flags.c_contiguous


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
            raise _broken(path, argument, error) from None
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError("a member is no array")
        return arrays


def array_columns(array: np.ndarray, argument: str, name: str) -> Columns:
    """An array with rows and columns, or of records."""
    check_shape(array.shape, array.dtype, argument, name)
    return read_array(array, array.dtype.names, argument)


def _broken(path: str, argument: str, error: Exception) -> InputError:
    if "allow_pickle" in str(error) or "Python objects" in str(error):
        return InputError(
            f"{argument}: {path} holds pickled Python objects, which could run code and are never opened; save "
            "numbers: np.save(file, array.astype(float))."
        )
    return InputError(f"{argument}: {path} is a broken NumPy file ({first_line(error)}); save or copy it again.")
