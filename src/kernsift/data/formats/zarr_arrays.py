"""Zarr arrays, in folders or in any store that the user opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernsift.data.formats.array_files import ArraySource, only_name, read_block
from kernsift.data.formats.file_stamps import FileStamp, guarded
from kernsift.exceptions import InputError, required


class ZarrArray(ArraySource):
    """An array of one or two dimensions.

    A chunk file that is not there reads as the fill value, so the folders that hold the chunks are watched: nothing may
    come or go while they are read.
    """

    def __init__(self, array: Any, argument: str, folder: str | None = None) -> None:
        self._array = array
        self._folder = folder
        self._stamps: dict[str, FileStamp] = {}
        rows = int((getattr(array, "shards", None) or array.chunks)[0])
        self._file_rows = rows
        text = array.dtype.kind not in "biufSU"
        name = folder or f"the Zarr array '{getattr(array, 'name', '') or ''}'"
        super().__init__(argument, name, array.shape, array.dtype, rows, text=text)
        self.by_column = array.ndim == 2 and array.chunks[1] < array.shape[1]
        for path in self._watched(0, self.n):
            self._stamps[path] = FileStamp.of(path, argument)

    def cells(self, columns: Sequence[int], start: int, stop: int) -> np.ndarray:
        stamps = [self._stamps[path] for path in self._watched(start, stop) if path in self._stamps]
        with guarded(self.argument, self.name, "a Zarr array", *stamps):
            return read_block(self._array, columns, start, stop)

    def _watched(self, start: int, stop: int) -> Iterator[str]:
        """The folders in which the files of these rows lie."""
        if self._folder is None:
            return
        yield self._folder
        root = Path(self._folder)
        root = root / "c" if (root / "zarr.json").exists() else root
        for chunk in range(start // self._file_rows, -(-stop // self._file_rows)):
            if (root / str(chunk)).is_dir():
                yield str(root / str(chunk))


def zarr_source(path: str, argument: str) -> ZarrArray:
    """The array in a folder, or the only one in a group; "folder::name" names one of several."""
    zarr = required("zarr", "Reading Zarr arrays needs zarr")
    folder, _, name = path.partition("::")
    with guarded(argument, folder, "a Zarr array"):
        array: Any = zarr.open(folder, mode="r")
        if name:
            array = array[name.strip("/")]
        array, inner = _only_array(array, argument, folder)
    inside = [part for part in (name.strip("/"), inner) if part]
    return ZarrArray(array, argument, str(Path(folder, *inside)))


def _only_array(found: Any, argument: str, label: str) -> tuple[Any, str]:
    if hasattr(found, "chunks"):
        return found, ""
    if found.attrs.get("encoding-type") == "anndata":
        raise InputError(f"{argument}: {label} holds AnnData; read it with anndata.read_zarr and pass that.")
    arrays = dict(sorted(found.arrays()))
    name = only_name(list(arrays), "array", argument, label, "name")
    return arrays[name], name


def opened_zarr(data: Any, argument: str) -> ZarrArray:
    """An array that the user opened, or the only one of a group."""
    array, _ = _only_array(data, argument, "this Zarr group")
    return ZarrArray(array, argument)
