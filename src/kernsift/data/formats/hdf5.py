"""Datasets in HDF5 files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from kernsift.data.formats.array_files import ArraySource, only_name, read_block
from kernsift.data.formats.file_stamps import FileStamp, guarded
from kernsift.exceptions import InputError, quoted, required


class Hdf5Dataset(ArraySource):
    """A dataset of one or two dimensions, of records, or of texts.

    With a path the file is opened for every piece, so that nothing stays open and workers can have their own.
    """

    def __init__(self, dataset: Any, argument: str, path: str | None = None) -> None:
        self._where = dataset.name
        self._path = path
        self._dataset = None if path else dataset
        self._stamps = [FileStamp.of(path, argument)] if path else []
        name = f"{path or dataset.file.filename}::{dataset.name}"
        self._strings = import_h5py().check_string_dtype(dataset.dtype) is not None
        rows = dataset.chunks[0] if dataset.chunks else None
        super().__init__(argument, name, dataset.shape, dataset.dtype, rows, text=self._strings)
        width = dataset.chunks[-1] if dataset.chunks else dataset.shape[-1]
        self.by_column = dataset.ndim == 2 and width < dataset.shape[1]

    def cells(self, columns: Sequence[int], start: int, stop: int) -> np.ndarray:
        with guarded(self.argument, self.name, "an HDF5 dataset", *self._stamps), self._opened() as dataset:
            cells = read_block(dataset, columns, start, stop)
            if not self._strings:
                return cells
            texts = np.empty(cells.shape, dtype=object)
            texts.reshape(-1)[:] = decoded(np.ravel(cells))
            return texts

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        if self._dataset is not None:
            yield self._dataset
            return
        with import_h5py().File(self._path, "r") as file:
            yield file[self._where]


def import_h5py() -> Any:
    return required("h5py", "Reading HDF5 files needs h5py")


def hdf5_source(path: str, argument: str) -> Hdf5Dataset:
    """The only dataset of a file, or the one that "file.h5::/name" names."""
    file_name, _, name = path.partition("::")
    with guarded(argument, path, "an HDF5 file"), import_h5py().File(file_name, "r") as file:
        if name and name not in file:
            raise InputError(
                f"{argument}: {file_name} has no dataset '{name}'; it has {quoted(_datasets(file)) or 'none'}."
            )
        return Hdf5Dataset(_only_dataset(file[name] if name else file, argument, file_name), argument, file_name)


def opened_hdf5(data: Any, argument: str) -> Hdf5Dataset:
    """A dataset that the user opened, or the only one of a file or group."""
    return Hdf5Dataset(_only_dataset(data, argument, "this HDF5 file"), argument)


def _only_dataset(found: Any, argument: str, label: str) -> Any:
    if not hasattr(found, "visititems"):
        return found
    return found[only_name(_datasets(found), "dataset", argument, label, "/name")]


def _datasets(group: Any) -> list[str]:
    names: list[str] = []
    group.visititems(lambda name, item: names.append(name) if hasattr(item, "dtype") else None)
    return names


def decoded(cells: Iterable[Any]) -> list[str]:
    """Texts, which come as bytes."""
    return [cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell) for cell in cells]
