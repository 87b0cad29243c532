"""Tables made by hand, for tests of the steps after reading."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernsift.data.tables import Table
from kernsift.estimators.draws.batches import Draws
from kernsift.estimators.draws.moments import FeatureDraws, scores_from_batches
from kernsift.estimators.feature_blocks import FeatureBlock
from kernsift.estimators.scores import Scores


def table(values: np.ndarray, widths: list[int] | None = None, categorical: list[int] | None = None) -> Table:
    """Features of the given widths, some of them categorical."""
    widths = widths or [1] * values.shape[1]
    flags = np.zeros(len(widths), dtype=bool)
    flags[categorical or []] = True
    names = tuple(f"f{j}" for j in range(len(widths)))
    levels = {names[j]: ("a", "b", "c") for j in np.flatnonzero(flags)}
    return Table(names, np.ascontiguousarray(values), np.concatenate([[0], np.cumsum(widths)]), flags, levels)


@dataclass(frozen=True)
class KnownDraws(Draws):
    """Draws that are the rows of a table."""

    rows: np.ndarray

    def of(self, block: FeatureBlock, draws: slice) -> np.ndarray:
        return np.array(block.table.part(block.columns, draws))


def scores_of_draws(values: np.ndarray) -> Scores:
    """The scores of known draws (l, d)."""
    kernels: Any = None
    draws = FeatureDraws(table(values), kernels, KnownDraws(np.arange(len(values))))
    return scores_from_batches(draws, None, variance_factor=None, resample=None)[0]
