"""Files as anndata writes them, which is not installed everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse


def write_h5ad(path: Path, X: Any, obs: pd.DataFrame, names: list[str], layers: dict[str, Any] | None = None) -> str:
    """A matrix X in CSR, CSC or dense, `obs`, the names of `var`, layers, and the first three columns as raw."""
    h5py = pytest.importorskip("h5py")

    def matrix(parent: Any, name: str, values: Any) -> None:
        if not sparse.issparse(values):
            parent.create_dataset(name, data=values).attrs["encoding-type"] = "array"
            return
        group = parent.create_group(name)
        group.attrs["encoding-type"] = f"{values.format}_matrix"
        group.attrs["shape"] = values.shape
        for part in ("data", "indices", "indptr"):
            group.create_dataset(part, data=getattr(values, part))

    with h5py.File(path, "w") as file:
        file.attrs["encoding-type"] = "anndata"
        matrix(file, "X", X)
        var = file.create_group("var")
        var.attrs["_index"] = "_index"
        var.create_dataset("_index", data=np.array(names, dtype=object), dtype=h5py.string_dtype())
        frame = file.create_group("obs")
        frame.attrs["_index"] = "_index"
        frame.attrs["column-order"] = list(obs.columns)
        frame.create_dataset("_index", data=np.array(obs.index.astype(str), dtype=object), dtype=h5py.string_dtype())
        for name, column in obs.items():
            if column.dtype.kind == "f":
                frame.create_dataset(name, data=column.to_numpy())
                continue
            # Categories in another order than that of their names.
            levels = sorted(column.dropna().unique(), reverse=True)
            group = frame.create_group(name)
            group.create_dataset("codes", data=np.array([levels.index(v) if v in levels else -1 for v in column]))
            group.create_dataset("categories", data=np.array(levels, dtype=object), dtype=h5py.string_dtype())
        group = file.create_group("layers")
        for name, values in (layers or {}).items():
            matrix(group, name, values)
        raw = file.create_group("raw")
        matrix(raw, "X", X[:, :3] if not sparse.issparse(X) else X[:, :3].tocsr())
        raw.create_group("var").attrs["_index"] = "gene"
        raw["var"].create_dataset("gene", data=np.array(names[:3], dtype=object), dtype=h5py.string_dtype())
    return str(path)
