"""Rows that arrive in pieces, kept until all have arrived.

Estimators need all rows at once: a bandwidth that changed with every piece would change the kernel values of earlier
pieces.
"""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
from scipy import sparse

from kernsift.exceptions import InputError
from kernsift.execution.arrays import is_array, namespace


class RowBuffer:
    """Pieces of a table and of its response, in the order in which they came."""

    def __init__(self) -> None:
        self._pieces: list[tuple[Any, Any]] = []

    def add(self, X: Any, y: Any) -> None:
        """Keep a piece; arrays are copied, because the caller may reuse them."""
        for name, data, first in zip("Xy", (X, y), self._pieces[0] if self._pieces else (X, y), strict=True):
            if _kind(data) != _kind(first):
                raise InputError(
                    f"{name}: every piece must be of the same kind, but this is {_kind(data)} and the first was "
                    f"{_kind(first)}; convert it."
                )
        copies = [data.copy() if isinstance(data, np.ndarray) or sparse.issparse(data) else data for data in (X, y)]
        self._pieces.append((copies[0], copies[1]))

    def joined(self) -> tuple[Any, Any]:
        """All rows that arrived."""
        return _join([X for X, _ in self._pieces], "X"), _join([y for _, y in self._pieces], "y")


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
    except Exception as error:  # libraries raise different errors for columns that cannot be concatenated
        text = str(error).strip().splitlines()
        raise InputError(
            f"{argument}: the columns of all pieces must be of the same types, but they are not "
            f"({text[0] if text else type(error).__name__}); convert them before partial_fit."
        ) from error
    return (whole.get_column(whole.columns[0]) if flat else whole).to_native()
