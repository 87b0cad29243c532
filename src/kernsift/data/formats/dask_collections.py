"""Dask arrays and data frames: a chunk is a partition, computed by the active Dask scheduler.

On a worker this is the cluster: a task that computes a partition secedes from its thread meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernsift.data.columns.cells import number_kind
from kernsift.data.columns.columns import Columns
from kernsift.data.formats.array_files import ArraySource
from kernsift.data.formats.file_stamps import guarded
from kernsift.data.formats.source import Rows, Source
from kernsift.data.frames import read_columns
from kernsift.exceptions import InputError


class DaskArray(ArraySource):
    """A dask.array of one or two dimensions."""

    def __init__(self, array: Any, argument: str) -> None:
        with guarded(argument, "the Dask array", "a table"):
            if any(np.isnan(size) for size in array.shape):
                array = array.compute_chunk_sizes()
        self._array = array
        super().__init__(argument, "the Dask array", array.shape, array.dtype, None)
        self.edges = np.concatenate([[0], np.cumsum(array.chunks[0])])
        if array.dtype.kind == "O":
            self.kinds = ("unknown",) * len(self.names)

    def cells(self, columns: Sequence[int], start: int, stop: int) -> np.ndarray:
        chunk = int(np.searchsorted(self.edges, start, side="right")) - 1
        with guarded(self.argument, f"partition {chunk} of the Dask array", "a table"):
            part = self._array[start:stop] if self.flat else self._array[start:stop, list(columns)]
            return np.asarray(part.compute())


class DaskFrame(Source):
    """A dask.dataframe without its index."""

    def __init__(self, frame: Any, argument: str) -> None:
        flat = frame.ndim == 1
        frame = frame.to_frame(name=frame.name if frame.name is not None else "x0") if flat else frame
        self._frame = frame
        with guarded(argument, "the Dask data frame", "a table"):
            lengths = frame.map_partitions(len).compute()
        kinds = [_frame_kind(dtype) for dtype in frame.dtypes]
        widths = [96.0 if kind in ("category", "text", "unknown") else 24.0 for kind in kinds]
        edges = np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64))])
        names = [str(name) for name in frame.columns]
        super().__init__(argument, names, kinds, edges, np.asarray(widths), flat=flat)

    def fetch(self, chunk: int, columns: Sequence[int], rows: Rows) -> Columns:
        with guarded(self.argument, f"partition {chunk} of the Dask data frame", "a table"):
            part = self._frame[[self._frame.columns[i] for i in columns]].partitions[chunk].compute()
        expected = int(self.edges[chunk + 1] - self.edges[chunk])
        if len(part) != expected:
            raise InputError(
                f"{self.argument}: partition {chunk} of the Dask data frame has {len(part)} rows where it had "
                f"{expected} before: its files changed, or what makes it is random; call .persist() first."
            )
        return replace(read_columns(part.iloc[rows], self.argument), flat=self.flat)


def _frame_kind(dtype: Any) -> str:
    if str(dtype) == "category":
        return "category"
    if str(dtype).startswith("str"):
        return "text"
    if getattr(dtype, "kind", "O") == "O":
        return "unknown"
    numpy_type = getattr(dtype, "numpy_dtype", dtype)  # of pandas' nullable numbers
    return number_kind(numpy_type) if isinstance(numpy_type, np.dtype) else str(dtype)


def dask_source(data: Any, argument: str) -> Source:
    """A Dask array, data frame or series."""
    return DaskFrame(data, argument) if hasattr(data, "map_partitions") else DaskArray(data, argument)


def compute_if_small(data: Any, argument: str, memory: int) -> Columns | None:
    """All cells of a Dask collection if reading them takes at most `memory` bytes, else None.

    Every partition of a data frame is assumed to have as many rows as the first.
    """
    frame = hasattr(data, "map_partitions")
    if data.ndim > 2:
        return None
    with guarded(argument, "the Dask collection", "a table"):
        rows = data.npartitions * len(data.partitions[0].compute()) if frame else data.shape[0]
        types = [data.dtype] if data.ndim == 1 else list(data.dtypes) if frame else [data.dtype] * data.shape[1]
        # Numbers are held as they are and as float64, texts as Python objects.
        width = sum(24 if getattr(dtype, "kind", "O") in "biuf" else 96 for dtype in types)
        if not rows * width <= memory:  # or the number of rows is not known
            return None
        return read_columns(data.compute(), argument)
