"""AnnData objects, the tables of single-cell biology: one sample, or two told apart by a column of `obs`.

anndata is never imported here: an object of it can only come from somebody who has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernsift.data.columns import quoted
from kernsift.exceptions import InputError


def is_anndata(data: Any) -> bool:
    """Whether this is an AnnData object, or a view of one."""
    return type(data).__module__.partition(".")[0] == "anndata" and hasattr(data, "var_names")


def as_samples(X: Any, Y: Any, groupby: str | None, missing: str) -> tuple[Any, Any]:
    """The two samples as tables: AnnData becomes a frame of its variables, cut in two by `groupby` where that is given.

    The samples come in the order of the categories of that column, or sorted where it has none.
    """
    if groupby is None:
        if Y is None:
            hint = 'pass two tables, or an AnnData object with groupby="condition"'
            raise InputError(f"Y: a second table is needed, got None; {hint}.")
        return _frame(X), _frame(Y)
    if not is_anndata(X):
        raise InputError(f"groupby: is for AnnData objects, got {type(X).__name__}; split the table, and pass X and Y.")
    if Y is not None:
        raise InputError("groupby: makes both samples from X; leave out Y, or leave out groupby.")
    first, second = _two_groups(X, groupby, missing)
    whole = _frame(X)
    return whole.iloc[first], whole.iloc[second]


def _frame(data: Any) -> Any:
    """AnnData as a pandas frame, which anndata itself needs; anything else as it is."""
    if not is_anndata(data):
        return data
    import pandas as pd

    values = data.X
    if values is None:
        raise InputError("X: this AnnData object holds no matrix X, only layers; set adata.X to the one to compare.")
    if hasattr(values, "to_memory"):  # a sparse matrix that was left in its file
        values = values.to_memory()
    dense = values.toarray() if hasattr(values, "toarray") else np.asarray(values)
    return pd.DataFrame(dense, columns=data.var_names.astype(str))


def _two_groups(data: Any, groupby: str, missing: str) -> tuple[np.ndarray, np.ndarray]:
    if groupby not in data.obs.columns:
        raise InputError(
            f"groupby: must be a column of adata.obs, got {groupby!r}; there are {quoted(data.obs.columns)}."
        )
    labels = data.obs[groupby]
    absent = labels.isna().to_numpy()
    if absent.any() and missing != "drop":
        raise InputError(
            f"groupby: {int(absent.sum())} observations have no value in obs[{groupby!r}]; "
            'leave them out, or use missing="drop".'
        )
    present = labels.cat.categories if hasattr(labels, "cat") else sorted(labels[~absent].unique())
    rows = {str(level): np.flatnonzero((labels == level).to_numpy()) for level in present}
    found = {level: where for level, where in rows.items() if len(where)}
    if len(found) != 2:
        raise InputError(
            f"groupby: obs[{groupby!r}] must have exactly two values, got {len(found)} ({quoted(found)}); "
            f"keep two, as in adata[adata.obs[{groupby!r}].isin([...])]."
        )
    first, second = found.values()
    return first, second
