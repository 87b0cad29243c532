"""Rows that arrive in pieces, stored until all have arrived.

Estimators need all rows at once: a bandwidth that changed with every piece would change the kernel values of earlier
pieces. Arrays and sparse matrices of numbers go into a file without a name, after a few megabytes in memory; it is
removed even if the process is killed. Data frames and other objects stay in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import narwhals as nw
import numpy as np
from scipy import sparse

from kernsift.exceptions import InputError
from kernsift.execution.arrays import is_array, namespace

# Bytes that stay in memory.
_IN_MEMORY = 4 << 20


class RowBuffer:
    """Pieces of a table and of its response, in the order in which they came."""

    def __init__(self) -> None:
        self.rows = 0
        self._kinds: tuple[str, str] | None = None
        self._kept: list[tuple[Callable[[], Any], Callable[[], Any]]] = []
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115, closed by its owner

    def add(self, X: Any, y: Any) -> None:
        """Keep a piece; a piece that cannot be kept leaves nothing behind."""
        kinds = _kind(X), _kind(y)
        if self._kinds is not None and kinds != self._kinds:
            place = 0 if kinds[0] != self._kinds[0] else 1
            raise InputError(
                f"{'Xy'[place]}: every piece must be of the same kind, but this is {kinds[place]} and the first was "
                f"{self._kinds[place]}; convert it."
            )
        before = self._file.tell()
        try:
            kept = self._keep(X), self._keep(y)
            self._file.flush()
        except OSError as error:
            self._file.seek(before)
            self._file.truncate()
            raise InputError(
                f"X: the rows that arrive are kept in {tempfile.gettempdir()}, which cannot take this piece "
                f"({error.strerror}); make room, or name another folder in the environment variable TMPDIR."
            ) from None
        self._kept.append(kept)
        self._kinds = kinds
        self.rows += int(X.shape[0])

    def _keep(self, data: Any) -> Callable[[], Any]:
        """Store a piece; the returned function reads it again."""
        if sparse.issparse(data):
            rows = data.tocsr()
            rows_shape = rows.shape
            parts = [self._keep(part) for part in (rows.data, rows.indices, rows.indptr)]
            return lambda: sparse.csr_matrix(tuple(part() for part in parts), shape=rows_shape)
        if not isinstance(data, np.ndarray) or data.dtype.hasobject:
            return lambda: data
        place = self._file.tell()
        np.lib.format.write_array(self._file, data, allow_pickle=False)
        return lambda: self._read(place)

    def _read(self, place: int) -> np.ndarray:
        end = self._file.tell()
        self._file.seek(place)
        try:
            return np.lib.format.read_array(self._file, allow_pickle=False)
        finally:
            self._file.seek(end)

    def joined(self) -> tuple[Any, Any]:
        """All rows that arrived."""
        return _join([X() for X, _ in self._kept], "X"), _join([y() for _, y in self._kept], "y")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _kind(data: Any) -> str:
    if sparse.issparse(data):
        return "a sparse matrix"
    if isinstance(data, np.ndarray):
        return f"an array of {data.ndim} dimensions"
    return f"a {type(data).__module__.partition('.')[0]} {type(data).__name__}"


def _join(pieces: list[Any], argument: str) -> Any:
    """Concatenate pieces of one kind."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    if sparse.issparse(first):
        return sparse.vstack(pieces, format="csr")
    if isinstance(first, np.ndarray):
        return np.concatenate(pieces)
    if is_array(first):
        return namespace(first).concat(pieces, axis=0)
    frames = [nw.from_native(piece, allow_series=True) for piece in pieces]
    flat = isinstance(frames[0], nw.Series)
    try:
        whole = nw.concat([frame.to_frame() if flat else frame for frame in frames])
    except Exception as error:  # every library has errors of its own for columns that do not go together
        text = str(error).strip().splitlines()
        raise InputError(
            f"{argument}: the columns of all pieces must be of the same types, but they are not "
            f"({text[0] if text else type(error).__name__}); convert them before partial_fit."
        ) from error
    return (whole.get_column(whole.columns[0]) if flat else whole).to_native()
