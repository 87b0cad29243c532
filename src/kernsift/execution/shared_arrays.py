"""Arrays that several processes of a machine have in memory once: each maps the same file."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from kernsift.exceptions import InputError
from kernsift.execution.temporary_files import named_file, remove

# Bytes of an array from which on it is shared, and rows or columns that are written at a time.
_SHARED, _ROWS = 1 << 24, 1 << 12
# A file system in memory, where there is one.
_IN_MEMORY = "/dev/shm"


@dataclass(frozen=True)
class SharedArray:
    """Columns of an array in a file, which is that array of the process where it is unpickled."""

    path: str
    dtype: Any
    shape: tuple[int, int]
    order: Any
    columns: slice

    def __reduce__(self) -> tuple[Any, ...]:
        return _columns, (self.path, self.dtype, self.shape, self.order, self.columns)


_mapped: WeakValueDictionary[str, np.ndarray] = WeakValueDictionary()


def mapped_arrays() -> list[np.ndarray]:
    """The arrays that this process has mapped: the first access to each page of a new mapping takes time."""
    return list(_mapped.values())


def _columns(path: str, dtype: Any, shape: tuple[int, int], order: Any, columns: slice) -> np.ndarray:
    whole = _mapped.get(path)
    if whole is None:
        try:
            whole = _mapped[path] = np.memmap(path, dtype, "c", shape=shape, order=order)
        except FileNotFoundError:
            raise InputError(
                "client: a worker on another machine joined the Dask cluster while it was in use; repeat the call."
            ) from None
    return whole.view(np.ndarray)[:, columns]


class SharedArrays:
    """Arrays in files of this machine, up to `room` bytes."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._files: dict[int, tuple[np.ndarray, SharedArray]] = {}

    def of(self, array: np.ndarray) -> SharedArray | None:
        """The array in a file; None where it is small, or there is no room."""
        if id(array) in self._files:
            return self._files[id(array)][1]
        if array.nbytes < _SHARED or array.nbytes > self._room:
            return None
        order = "F" if array.flags.f_contiguous else "C"
        rows = array.T if order == "F" else array
        in_memory = os.path.isdir(_IN_MEMORY) and shutil.disk_usage(_IN_MEMORY).free > 2 * array.nbytes
        path = named_file(self, _IN_MEMORY if in_memory else None)
        try:
            with open(path, "wb") as file:
                for start in range(0, len(rows), _ROWS):
                    file.write(np.ascontiguousarray(rows[start : start + _ROWS]).data)
        except OSError:  # no space
            remove(path)
            return None
        self._room -= array.nbytes
        found = SharedArray(path, array.dtype, array.shape, order, slice(None))
        self._files[id(array)] = array, found  # with the array, so that its number stays its own
        return found

    def close(self) -> None:
        """Remove the files."""
        for _, found in self._files.values():
            remove(found.path)
