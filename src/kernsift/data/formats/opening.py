"""The format of a table that is given as a path, or as an object of another library that is not in memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from kernsift.data.columns.columns import EXACT
from kernsift.data.formats.anndata import anndata_source, h5ad_source, is_anndata, is_h5ad
from kernsift.data.formats.archives import archive_kind
from kernsift.data.formats.arrow import ArrowSource, Fragment
from kernsift.data.formats.dask_collections import compute_if_small, dask_source
from kernsift.data.formats.excel import excel_source
from kernsift.data.formats.feather import FeatherFragment
from kernsift.data.formats.file_stamps import first_line, guarded
from kernsift.data.formats.hdf5 import hdf5_source, opened_hdf5
from kernsift.data.formats.in_memory import MemorySource, loaded
from kernsift.data.formats.numpy_files import MappedArray, NumpyFile, read_npz
from kernsift.data.formats.parquet import ParquetFragment
from kernsift.data.formats.pyarrow_datasets import dataset_source
from kernsift.data.formats.source import Source
from kernsift.data.formats.sparse_matrices import is_sparse_table, sparse_file, sparse_source
from kernsift.data.formats.text import text_source
from kernsift.data.formats.zarr_arrays import opened_zarr, zarr_source
from kernsift.data.frames import read_columns
from kernsift.exceptions import InputError, required
from kernsift.execution.memory import parse_memory, values_bytes
from kernsift.execution.parallel import worker_threads

SMALL = 16
"""Tables that take at most 1 / SMALL of the memory limit are read as a whole."""

_TEXTS = tuple(text + packed for text in (".csv", ".tsv") for packed in ("", ".gz", ".bz2", ".xz", ".zip"))
_TABLES = (".parquet", ".pq", ".arrow", ".feather", ".ipc", ".npy", ".h5", *_TEXTS)
_REFUSED = [
    (b"\x80", "is a Python pickle, which could run code and is never opened", "save it as Parquet or .npy"),
    (b"\xd0\xcf\x11\xe0", "is an Excel file of the old kind (.xls)", "save it as .xlsx or CSV"),
    (b"FEA1", "is a Feather file of version 1", "save it again as version 2 or Parquet"),
    (b"%PDF", "is a PDF", "export the table as CSV"),
    (b"\x28\xb5\x2f\xfd", "is packed with zstd", "unpack it, or pack it with gzip"),
]


def open_source(
    data: Any,
    argument: str,
    *,
    encoding: str | None = None,
    layer: str | None = None,
    whole: bool = False,
    memory: int | str | None = None,
) -> Source:
    """A table outside of memory, for paths and for what other libraries keep there.

    Paths name Parquet files or folders of them, Feather and Arrow files, .npy and .npz files (of SciPy too), HDF5 files
    ("file.h5::/name" for one of several datasets), .h5ad files, Zarr folders, Excel files, and text files. Archives and
    Excel files are read into memory, and small text and .h5ad files too where they may be read as a `whole`. Objects
    may be NumPy memory maps, Zarr arrays, HDF5 datasets, pyarrow data sets, and Dask arrays or data frames.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from kernsift.data.formats import open_source
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "x.npy")
    ...     np.save(path, np.arange(6.0).reshape(3, 2))
    ...     source = open_source(path, "X")
    ...     source.n, source.names, source.read([1], slice(1, 3)).values.tolist()
    (3, ('x0', 'x1'), [[3.0], [5.0]])
    """
    if isinstance(data, Source):
        return data
    if isinstance(data, (str, os.PathLike)):
        path = os.path.expanduser(os.fspath(data))  # as pandas does
        with guarded(argument, str(path), "a table"):
            return _open_path(path, argument, encoding, layer, whole, memory)
    opener = _opener_of(data)
    assert opener is not None  # callers ask `is_outside_memory` first
    return opener(data, argument)


def open_table(
    data: Any,
    argument: str,
    *,
    memory: int | str | None = None,
    layer: str | None = None,
    encoding: str | None = None,
) -> Source:
    """Any table as a source: what is outside of memory stays there, all else is read into numbers and codes.

    NumPy's memory maps are arrays unless `memory` is given. A Dask collection that fits into memory is computed once,
    because every pass over it computes all of it again. A small table is read once where no limit is given, because
    every pass over many small files or groups of rows takes longer than that.
    """
    if isinstance(data, Source):
        return data
    if is_anndata(data):
        return anndata_source(data, argument, layer, whole=memory is None)
    if is_sparse_table(data):
        source: Source = sparse_source(data, argument)
    elif is_outside_memory(data) and not (isinstance(data, np.memmap) and memory is None):
        lazy = _opener_of(data) is dask_source
        cells = compute_if_small(data, argument, values_bytes(parse_memory(memory))) if lazy else None
        if cells is not None:
            source = MemorySource(cells, argument)
        else:
            source = open_source(data, argument, encoding=encoding, layer=layer, whole=memory is None, memory=memory)
        if memory is None and isinstance(data, (str, os.PathLike)):
            source = _loaded_if_small(source)
    else:
        if isinstance(data, list) and data and all(isinstance(one, str) and os.path.isfile(one) for one in data):
            raise InputError(
                f"{argument}: one path is needed, got a list of {len(data)}; pass the folder of these files, or "
                "pyarrow.dataset.dataset of the list."
            )
        source = MemorySource(read_columns(data, argument), argument)
    if layer is not None and source.annotations is None:
        got = data if isinstance(data, (str, os.PathLike)) else type(data).__name__
        raise InputError(f"layer: is for AnnData objects and .h5ad files, got {got}; leave it out.")
    return source


def _loaded_if_small(source: Source) -> Source:
    """A small table, read as a whole; the same source where it is not small, and where workers can read it."""
    if source.in_memory or source.annotations is not None or worker_threads() or source.n < 2:
        return source
    if 8 * source.n * len(source.names) > parse_memory(None) // SMALL:
        return source
    found = loaded(source)
    low, high = found.columns.span
    large = np.flatnonzero(np.maximum(-low, high) > EXACT).tolist()
    exact = {i: source.integers(i) for i in large if found.kinds[i] == "integer"}
    found.columns = replace(found.columns, integers=exact) if exact else found.columns
    return found


def is_outside_memory(data: Any) -> bool:
    """Whether `open_source` can open this."""
    return isinstance(data, (Source, str, os.PathLike)) or _opener_of(data) is not None


def _opener_of(data: Any) -> Callable[[Any, str], Source] | None:
    """What opens an object of another library, known by its type without importing that library."""
    # The result of a computation with a memory map has its type but no file: it is in memory.
    if isinstance(data, np.memmap):
        return MappedArray if data.filename is not None else None
    home = type(data).__module__.partition(".")[0]
    if home == "zarr" and hasattr(data, "store"):
        return opened_zarr
    if home == "h5py" and hasattr(data, "file"):
        return opened_hdf5
    if home == "pyarrow" and hasattr(data, "get_fragments") and hasattr(data, "schema"):
        return dataset_source
    return dask_source if home in ("dask", "dask_expr") and hasattr(data, "dask") else None


def _open_path(
    path: Any, argument: str, encoding: str | None, layer: str | None, whole: bool, memory: int | str | None
) -> Source:
    if not isinstance(path, str):
        raise InputError(f"{argument}: a path as text is needed, got {path!r:.60}; use os.fsdecode.")
    place = path.partition("::")[0]
    if "://" in place:
        raise InputError(
            f"{argument}: {path} is an address, and only files are opened by path; open it with "
            "pyarrow.dataset.dataset or dask.dataframe and pass that."
        )
    if os.path.isdir(place):
        return _open_folder(path, argument)
    start = _first_bytes(place, argument)
    if start.startswith(b"\x89HDF"):
        return h5ad_source(place, argument, layer, whole) if is_h5ad(path) else hdf5_source(path, argument)
    if start.startswith(b"\x93NUMPY"):
        return NumpyFile(place, argument)
    if start.startswith((b"PAR1", b"ARROW1")):
        return _open_arrow_files([place], argument)
    if start.startswith(b"PK"):
        kind = archive_kind(place, f"{argument}: {place}")
        if kind == "sparse matrix":
            return sparse_file(place, argument)
        if kind == "Excel":
            return excel_source(place, argument)
        if kind == "NumPy archive":
            return MemorySource(read_npz(place, argument), argument)
    for magic, what, fix in _REFUSED:
        if start.startswith(magic):
            raise InputError(f"{argument}: {path} {what}; {fix}.")
    return text_source(place, argument, encoding, whole, memory)


def _open_folder(path: str, argument: str) -> Source:
    folder = Path(path.partition("::")[0])
    if any((folder / name).exists() for name in ("zarr.json", ".zarray", ".zgroup")):
        return zarr_source(path, argument)
    every = sorted(file for file in folder.rglob("*") if file.is_file())
    files = [file for file in every if not any(part[0] in "._" for part in file.relative_to(folder).parts)]
    if any("=" in part for file in files for part in file.relative_to(folder).parts[:-1]):
        _require_pyarrow()
        from pyarrow import dataset

        # Folders named key=value, where the keys are columns.
        return dataset_source(dataset.dataset(str(folder), format="parquet", partitioning="hive"), argument)
    tables = [str(file) for file in files if _first_bytes(str(file), argument)[:4] in (b"PAR1", b"ARRO")]
    if not tables:
        raise InputError(
            f"{argument}: the folder {folder} holds no Parquet or Arrow files and no Zarr array; name a file in it."
        )
    if len(tables) < len(files):
        other = next(file for file in files if str(file) not in tables)
        if other.name.lower().endswith(_TABLES):
            raise InputError(f"{argument}: {other} is no Parquet or Arrow file; mend it, or take it out of the folder.")
    return _open_arrow_files(tables, argument)


def _open_arrow_files(paths: list[str], argument: str) -> Source:
    _require_pyarrow()
    makers: dict[bytes, Callable[[str, str], Fragment]] = {b"PAR1": ParquetFragment, b"ARRO": FeatherFragment}
    return ArrowSource([makers[_first_bytes(path, argument)[:4]](path, argument) for path in paths], argument)


def _require_pyarrow() -> None:
    required("pyarrow.parquet", "Reading Parquet and Arrow files needs pyarrow")


def _first_bytes(path: str, argument: str) -> bytes:
    """The first bytes of a file, which tell what it is."""
    try:
        with open(path, "rb") as file:
            start = file.read(8)
    except FileNotFoundError:
        raise InputError(f"{argument}: there is no file {path}{_similar_file(path)}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{argument}: {path} cannot be opened ({first_line(error)}); check its name.") from None
    if not start:
        raise InputError(f"{argument}: {path} is empty; a table with a line of column names is needed.")
    return start


def _similar_file(path: str) -> str:
    folder = Path(path).parent
    try:
        # Names of files share suffixes, so that they must be more similar than words.
        near = get_close_matches(Path(path).name, [file.name for file in folder.iterdir()], n=1, cutoff=0.75)
    except OSError:
        near = []
    return f"; did you mean {folder / near[0]}?" if near else "; check the path, or pass data."
