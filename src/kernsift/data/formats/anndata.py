"""AnnData objects and .h5ad files, the tables of single-cell biology: a matrix of observations and variables, often
sparse, and columns `obs` that describe the observations.

anndata is not imported: its objects have their own methods, and files are read by h5py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from kernsift.data.columns.cells import sorted_codes
from kernsift.data.columns.columns import Columns
from kernsift.data.formats.dask_collections import DaskArray
from kernsift.data.formats.file_stamps import FileStamp, guarded
from kernsift.data.formats.hdf5 import Hdf5Dataset, decoded, import_h5py
from kernsift.data.formats.in_memory import MemorySource
from kernsift.data.formats.source import Annotations, Source
from kernsift.data.formats.sparse_matrices import SparseSource, is_sparse_table, sparse_source
from kernsift.data.frames import read_columns
from kernsift.data.sparse import ChunkedStore, SparseRows
from kernsift.exceptions import InputError, check_unique, quoted
from kernsift.execution.memory import machine_memory

# Matrices above this share of the machine's memory stay in their files.
_SHARE = 4
# Stored numbers that are read at a time.
_CHUNK = 1 << 22


def is_anndata(data: Any) -> bool:
    """Whether this is an AnnData object, a view of one, or its `raw`."""
    return type(data).__module__.partition(".")[0] == "anndata" and hasattr(data, "var_names")


def anndata_source(data: Any, argument: str, layer: str | None, *, whole: bool) -> Source:
    """The matrix `X` of an AnnData object, one of its layers, or `layer="raw"` for that of `raw`."""
    if getattr(data, "isbacked", False) and not getattr(data, "is_view", False):
        return h5ad_source(str(data.filename), argument, layer, whole)
    layers: Any = getattr(data, "layers", None)
    raw: Any = getattr(data, "raw", None)
    layers = {} if layers is None else layers
    place = _matrix_path(argument, layer, list(layers), raw is not None)
    owner = raw if place == "raw/X" else data
    names, values = owner.var_names, layers[layer] if place.startswith("layers") else owner.X
    if values is None:
        raise _no_matrix(argument, "this AnnData object", layers)
    if hasattr(values, "to_memory"):  # a sparse matrix that was left in its file
        values = values.to_memory()
    elif sparse.issparse(getattr(values, "_meta", None)):  # a Dask array of sparse chunks
        values = values.compute()
    _check_names(getattr(data, "obs_names", ()), argument, "observations")
    return _matrix_source(values, [str(name) for name in names], getattr(data, "obs", {}), argument)


def _matrix_source(values: Any, names: Sequence[str], obs: Any, argument: str) -> Source:
    """A matrix in memory, the names of its columns, and the columns that describe its rows."""
    _check_names(names, argument)
    if is_sparse_table(values):
        source: Source = sparse_source(values, argument, names)
    elif hasattr(values, "dask"):
        source = DaskArray(values, argument).renamed(names, True)
    else:
        source = MemorySource(replace(read_columns(values, argument), names=tuple(names), named=True), argument)
    source.annotations = Annotations(obs)
    return source


def _check_names(names: Sequence[str], argument: str, what: str = "variables") -> None:
    method = "var_names_make_unique" if what == "variables" else "obs_names_make_unique"
    check_unique(argument, decoded(names), f"names of {what}", f"call adata.{method}()")


def _matrix_path(argument: str, layer: str | None, layers: list[str], raw: bool) -> str:
    """Where a file has the matrix of a layer: in X, in its layers, or in raw."""
    if layer is None:
        return "X"
    if layer in layers:
        return f"layers/{layer}"
    if layer == "raw" and raw:
        return "raw/X"
    known = [*layers, *(["raw"] if raw else [])]
    raise InputError(f"layer: {argument} has no layer '{layer}'; it has {quoted(known) or 'none'}.")


def _no_matrix(argument: str, what: str, layers: Iterable[str]) -> InputError:
    return InputError(
        f"{argument}: {what} holds no matrix X; choose one of its layers with layer=, of which it has "
        f"{quoted(layers) or 'none'}."
    )


# Files ---------------------------------------------------------------------------------------------------------------


def is_h5ad(path: str) -> bool:
    """Whether an HDF5 file holds AnnData; a path that names one of its datasets is read as plain HDF5."""
    if "::" in path:
        return False
    try:
        with import_h5py().File(path, "r") as file:
            return file.attrs.get("encoding-type") == "anndata" or {"X", "obs", "var"} <= set(file)
    except OSError:  # which the reader of HDF5 files explains
        return False


def h5ad_source(path: str, argument: str, layer: str | None, whole: bool) -> Source:
    """The matrix of a file: in memory where it is small and may be read as a `whole`, else read in pieces."""
    h5ad = _H5adFile(path, argument, FileStamp.of(path, argument))
    with h5ad.opened() as file:
        layers = list(file.get("layers", {}))
        place = _matrix_path(argument, layer, layers, "raw" in file)
        if place not in file:
            raise _no_matrix(argument, path, layers)
        names = decoded(_index(file["raw/var" if place == "raw/X" else "var"]))
        _check_names(names, argument)
        _check_names(_index(file["obs"]).tolist(), argument, "observations")
        obs = _FileColumns(h5ad)
        node = file[place]
        if hasattr(node, "shape"):
            if whole and node.size * 8 <= machine_memory() // _SHARE:
                return _matrix_source(node[:], names, obs, argument)
            source = Hdf5Dataset(node, argument, path).renamed(names, True)
        elif whole and node["data"].size * 12 <= machine_memory() // _SHARE:
            kind = sparse.csc_matrix if _is_csc(node) else sparse.csr_matrix
            shape = tuple(int(size) for size in _shape(node))
            matrix = kind((node["data"][:], node["indices"][:], node["indptr"][:]), shape=shape)
            return _matrix_source(matrix, names, obs, argument)
        else:
            store = H5adStore(h5ad, place, node)
            source = SparseSource(SparseRows(store, None, store.shape[0]), argument, names)
    source.annotations = Annotations(obs)
    return source


class _H5adFile(NamedTuple):
    """A file that is opened for every piece."""

    path: str
    argument: str
    stamp: FileStamp

    @contextmanager
    def opened(self) -> Iterator[Any]:
        with guarded(self.argument, self.path, "an .h5ad file", self.stamp), import_h5py().File(self.path, "r") as file:
            yield file


class H5adStore(ChunkedStore):
    """A sparse matrix in an .h5ad file, stored by rows or by columns.

    By rows, the whole file is read for each chunk of columns that memory allows.
    """

    on_disk = True

    def __init__(self, h5ad: _H5adFile, place: str, node: Any) -> None:
        self._h5ad, self._matrix_path = h5ad, place
        self._by_column = _is_csc(node)
        self._starts = node["indptr"][:].astype(np.int64)
        rows, columns = (int(size) for size in _shape(node))
        dtype, count = node["data"].dtype, int(self._starts[-1])
        super().__init__((rows, columns), dtype, count * (dtype.itemsize + 4))

    def limit(self, memory: int) -> None:
        # Two chunks are held, and while another is made there are two copies of it.
        self._cut(max(memory // 8, 1 << 20))

    def rearranged(self, start: int, stop: int) -> Any:
        with self._h5ad.opened() as file:
            node = file[self._matrix_path]
            if self._by_column:
                first, last = (int(place) for place in self._starts[[start, stop]])
                parts = node["data"][first:last], node["indices"][first:last], self._starts[start : stop + 1] - first
                return sparse.csc_matrix(parts, shape=(self.shape[0], stop - start))
            values, columns, counts = [], [], []
            for first, last in self._runs():
                indices = node["indices"][int(self._starts[first]) : int(self._starts[last])]
                inside = np.flatnonzero((indices >= start) & (indices < stop))
                columns.append((indices[inside] - start).astype(np.int32))
                values.append(node["data"][int(self._starts[first]) : int(self._starts[last])][inside])
                counts.append(np.diff(np.searchsorted(inside, self._starts[first : last + 1] - self._starts[first])))
        ends = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
        parts = np.concatenate(values), np.concatenate(columns), ends
        del values, columns
        return sparse.csr_matrix(parts, shape=(self.shape[0], stop - start)).tocsc()

    def _pieces(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        with self._h5ad.opened() as file:
            node = file[self._matrix_path]
            for start in range(0, int(self._starts[-1]), _CHUNK):
                some = slice(start, min(start + _CHUNK, int(self._starts[-1])))
                own = node["indices"][some]
                if self._by_column:
                    own = np.searchsorted(self._starts, np.arange(some.start, some.stop), side="right") - 1
                yield own, node["data"][some]

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Runs of rows with about as many stored numbers each."""
        cuts = np.searchsorted(self._starts, np.arange(0, self._starts[-1], _CHUNK), side="left")
        yield from pairwise(np.unique([0, *cuts.tolist(), self.shape[0]]).tolist())


class _FileColumns:
    """The columns of `obs` in a file, read when they are asked for."""

    def __init__(self, h5ad: _H5adFile) -> None:
        self._h5ad = h5ad

    def __iter__(self) -> Iterator[str]:
        with self._h5ad.opened() as file:
            names = [str(name) for name in file["obs"].attrs.get("column-order", [])]
        return iter(names)

    def __getitem__(self, name: str) -> Any:
        with self._h5ad.opened() as file:
            node = file["obs"][name]
            if hasattr(node, "keys"):
                if "codes" in node:
                    return _categories(name, node["codes"][:], decoded(node["categories"][:]))
                return np.ma.masked_array(node["values"][:], node["mask"][:])
            cells = node[:]
            if "categories" in node.attrs:  # as anndata 0.7 wrote them
                return _categories(name, cells, decoded(file[node.attrs["categories"]][:]))
        return np.array(decoded(cells), dtype=object) if cells.dtype.kind in "OS" else cells


def _categories(name: str, codes: np.ndarray, levels: Sequence[str]) -> Columns:
    """A column of categories; code -1 is a missing value."""
    values, texts = sorted_codes(codes.astype(np.intp), levels)
    return Columns((name,), values[:, None], {0: texts}, ("category",), True, True)


def _index(frame: Any) -> np.ndarray:
    """The index of a data frame in a file."""
    return np.asarray(frame[str(frame.attrs.get("_index", "_index"))][:])


def _shape(node: Any) -> Any:
    return node.attrs["shape"] if "shape" in node.attrs else node.attrs["h5sparse_shape"]


def _is_csc(node: Any) -> bool:
    return "csc" in str(node.attrs.get("encoding-type", node.attrs.get("h5sparse_format", "csr")))
