"""Tables made by hand, for tests of the steps after reading."""

import numpy as np

from kernsift.data.tables import Table


def table(values: np.ndarray, widths: list[int] | None = None, categorical: list[int] | None = None) -> Table:
    """Features of the given widths, some of them categorical."""
    widths = widths or [1] * values.shape[1]
    flags = np.zeros(len(widths), dtype=bool)
    flags[categorical or []] = True
    names = tuple(f"f{j}" for j in range(len(widths)))
    levels = {names[j]: ("a", "b", "c") for j in np.flatnonzero(flags)}
    return Table(names, np.ascontiguousarray(values), np.concatenate([[0], np.cumsum(widths)]), flags, levels)
