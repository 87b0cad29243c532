"""AnnData objects, the tables of single-cell biology: a matrix of observations and variables, with columns `obs`.

anndata is never imported here: an object of it can only come from somebody who has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernsift.data.columns import Annotations, quoted, read_columns
from kernsift.data.formats.in_memory import MemorySource
from kernsift.data.formats.source import Source
from kernsift.exceptions import InputError


def is_anndata(data: Any) -> bool:
    """Whether this is an AnnData object, a view of one, or what `adata.raw` is."""
    return type(data).__module__.partition(".")[0] == "anndata" and hasattr(data, "var_names")


def anndata_source(data: Any, argument: str, layer: str | None) -> Source:
    """The matrix `X` of an AnnData object, one of its layers, or `layer="raw"` for that of `raw`."""
    names, values = data.var_names, data.X
    layers = getattr(data, "layers", None) or {}
    if layer is not None and layer in layers:
        values = layers[layer]
    elif layer == "raw" and getattr(data, "raw", None) is not None:
        names, values = data.raw.var_names, data.raw.X
    elif layer is not None:
        raise no_layer(argument, layer, list(layers), getattr(data, "raw", None) is not None)
    if values is None:
        raise InputError(
            f"{argument}: this AnnData object holds no matrix X, only layers; choose one of {quoted(layers)} with "
            "layer=."
        )
    if hasattr(values, "to_memory"):  # a sparse matrix that was left in its file
        values = values.to_memory()
    return matrix_source(values, [str(name) for name in names], getattr(data, "obs", {}), argument)


def matrix_source(values: Any, names: list[str], obs: Any, argument: str) -> Source:
    """A matrix in memory, the names of its columns, and the columns that describe its rows."""
    columns = replace(read_columns(values, argument), names=tuple(names), named=True)
    repeated = len(set(names)) < len(names)
    if repeated:
        found = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        raise InputError(
            f"{argument}: names of variables must be unique, but {quoted(found)} occur more than once; call "
            "adata.var_names_make_unique()."
        )
    source = MemorySource(columns, argument)
    source.annotations = Annotations(obs)
    return source


def no_layer(argument: str, layer: str, layers: list[str], raw: bool) -> InputError:
    """The error for a layer that does not exist."""
    known = [*layers, *(["raw"] if raw else [])]
    return InputError(f"layer: {argument} has no layer '{layer}'; it has {quoted(known) if known else 'none'}.")
