""".npy files and NumPy's memory maps.

Files are read, not mapped: pages of a map count as memory of this process until something else needs it, and a file
that is cut short under a map ends the process instead of raising an error.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernsift.data.formats.array_files import ArraySource
from kernsift.data.formats.file_stamps import FileStamp, first_line, guarded
from kernsift.exceptions import InputError

# One row in this many, and it is quicker to jump from row to row than to read all of them.
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
        if array.ndim == 0:
            raise InputError(
                f"{argument}: a table with rows and columns is needed, but {path} has shape (); reshape it."
            )
        shape, self._dtype, self._offset = array.shape, array.dtype, array.offset
        by_column = array.ndim == 2 and array.flags.f_contiguous and not array.flags.c_contiguous
        self._by_column = bool(by_column)
        self._width = 1 if array.ndim == 1 else shape[1]
        super().__init__(argument, path, shape, self._dtype, _COLUMN_ROWS if by_column else None)
        if not by_column:
            # A row comes as a whole, whatever is wanted of it.
            self.overhead = float(self._width * self._dtype.itemsize)
            self.by_column = False

    def cells(self, columns: Sequence[int], start: int, stop: int) -> np.ndarray:
        with self._reading(), open(self.name, "rb") as file:
            if not self._by_column:
                block = self._numbers(file, start * self._width, (stop - start) * self._width)
                return block if self._fields else block.reshape(stop - start, self._width)[:, columns]
            out = np.empty((stop - start, len(columns)), dtype=self._dtype, order="F")
            for i, column in enumerate(columns):
                out[:, i] = self._numbers(file, column * self.n + start, stop - start)
            return out

    def scattered(self, columns: Sequence[int], rows: np.ndarray) -> np.ndarray:
        if self._by_column or len(rows) * _SPARSE > rows[-1] - rows[0]:
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
    """A memory map that the user opened; pages that were read are given back after each piece."""

    def __init__(self, array: Any, argument: str) -> None:
        self._array = array
        name = str(array.filename or "a memory map")
        self._stamps = [FileStamp.of(name, argument)] if array.filename and array.mode in ("r", "c") else []
        by_column = array.ndim == 2 and array.flags.f_contiguous and not array.flags.c_contiguous
        super().__init__(argument, name, array.shape, array.dtype, _COLUMN_ROWS if by_column else None)
        self.by_column = bool(by_column)

    def cells(self, columns: Sequence[int], start: int, stop: int) -> np.ndarray:
        for stamp in self._stamps:
            stamp.check(self.argument)  # beforehand: a map of a file that was cut short must not be touched
        rows = self._array[start:stop]
        block = np.array(rows if self._array.ndim == 1 else rows[:, columns])
        pages = getattr(self._array, "_mmap", None)
        # Not for "c": its pages are the only place where the user's changes are.
        if self._array.mode != "c" and hasattr(mmap, "MADV_DONTNEED") and isinstance(pages, mmap.mmap):
            pages.madvise(mmap.MADV_DONTNEED)
        for stamp in self._stamps:
            stamp.check(self.argument)
        return block


def _broken(path: str, argument: str, error: Exception) -> InputError:
    if "allow_pickle" in str(error) or "Python objects" in str(error):
        return InputError(
            f"{argument}: {path} holds pickled Python objects, which could run code and are never opened; save "
            "numbers: np.save(file, array.astype(float))."
        )
    return InputError(f"{argument}: {path} is a broken NumPy file ({first_line(error)}); save or copy it again.")
