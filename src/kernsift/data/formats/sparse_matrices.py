"""Sparse matrices as tables: SciPy's, those of AnnData objects, and those in .h5ad files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from kernsift.data.columns.cells import number_kind
from kernsift.data.columns.columns import Columns
from kernsift.data.columns.layout import layout_of
from kernsift.data.formats.source import Bounds, Rows, Source
from kernsift.data.sparse import CscStore, CsrStore, SparseRows, SparseTable
from kernsift.exceptions import InputError, quoted


def is_sparse_table(data: Any) -> bool:
    """Whether this is a sparse matrix or array of SciPy with rows, columns and numbers."""
    return sparse.issparse(data) and data.ndim == 2 and data.dtype.kind in "biuf"


def sparse_source(matrix: Any, argument: str, names: Sequence[str] | None = None) -> SparseSource:
    """A sparse matrix in memory, copied only where entries repeat or it is in another format than CSR and CSC."""
    if matrix.shape[1] == 0:
        raise InputError(f"{argument}: at least one column is needed, got a table of shape {matrix.shape}; add one.")
    if matrix.format not in ("csr", "csc"):
        matrix = matrix.tocsr()
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    store = CscStore(matrix) if matrix.format == "csc" else CsrStore(matrix)
    called = [f"x{i}" for i in range(matrix.shape[1])] if names is None else names
    return SparseSource(SparseRows(store, None, matrix.shape[0]), argument, called, named=names is not None)


def sparse_file(path: str, argument: str) -> SparseSource:
    """An .npz file of `scipy.sparse.save_npz`."""
    matrix = sparse.load_npz(path)
    if not is_sparse_table(matrix) or matrix.format not in ("csr", "csc", "coo"):
        raise InputError(
            f"{argument}: {path} is a sparse matrix of format {matrix.format}, type {matrix.dtype} and shape "
            f"{matrix.shape}, but numbers in rows and columns are needed; save matrix.tocsr()."
        )
    matrix = matrix.tocsr() if matrix.format == "coo" else matrix
    matrix.check_format(full_check=True)  # indices out of range would be followed out of memory
    return sparse_source(matrix, argument)


class SparseSource(Source):
    """Some rows and columns of a sparse matrix; pieces that are read of it are dense."""

    def __init__(self, rows: SparseRows, argument: str, names: Sequence[str], *, named: bool = True) -> None:
        self.rows = rows
        kinds, edges = [number_kind(rows.store.dtype)] * len(names), np.array([0, rows.n])
        super().__init__(argument, names, kinds, edges, np.full(len(names), 8.0), named=named)
        self.in_memory = not rows.store.on_disk

    def _picked(self, positions: Sequence[int], names: Sequence[str], named: bool) -> SparseSource:
        own = self.rows.pick(np.asarray(positions, dtype=np.intp))
        return SparseSource(own, self.argument, names, named=named)

    def _kept(self, keep: np.ndarray) -> SparseSource:
        places = np.where(keep, np.cumsum(keep) - 1, -1).astype(np.int32)
        old = self.rows.places
        if old is not None:
            places = np.where(old >= 0, places[old], -1)
        rows = replace(self.rows, places=places, n=int(np.count_nonzero(keep)))
        return SparseSource(rows, self.argument, self.names, named=self.named)

    def bounds(self) -> Bounds:
        """Bounds of the values in all rows of the matrix, which may be more than those of this table, and of 0."""
        own = slice(None) if self.rows.columns is None else self.rows.columns
        low, high = (part[own] for part in self.rows.store.bounds)
        absent = np.isnan(low)
        if absent.any():
            verb = "has" if absent.sum() == 1 else "have"
            raise InputError(
                f"{self.argument}: a sparse matrix must hold no missing values, but "
                f"{quoted(np.array(self.names)[absent])} {verb} some; fill them in, or pass a dense table."
            )
        low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
        return Bounds(np.ones(len(low), dtype=bool), low, high, np.zeros(len(low), dtype=np.int64), exact=True)

    def fetch(self, chunk: int, columns: Sequence[int], rows: Rows) -> Columns:
        some = self._picked(columns, [self.names[i] for i in columns], self.named)
        dtype = np.dtype(np.float32 if self.rows.store.dtype == np.float32 else np.float64)
        table = SparseTable(layout_of(some, {}), [some.rows], dtype)
        return Columns(some.names, table.part(slice(None), rows), {}, some.kinds, self.named, False)
