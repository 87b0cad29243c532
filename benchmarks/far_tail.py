"""Calibration of small p-values: the share of permuted columns whose p-value is below 1e-3, 1e-4 and 1e-5.

A column whose rows are permuted is a null column, so that one call with many permuted copies of a column is as many
permutations. With a million of them ten are expected below 1e-5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import level_settings as laws
import numpy as np

LEVELS = (1e-3, 1e-4, 1e-5)
PERMUTATIONS = 1_000_000
# Permuted copies a call.
COPIES = 500


class Column(NamedTuple):
    """A typical column (n,) and how its permuted copies are tested."""

    values: Callable[[np.random.Generator], np.ndarray]
    pvalues: laws.Call


def _response(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return laws.relate_pvalues(x, np.random.default_rng(1).standard_normal(len(x)), "numeric")


COLUMNS: Mapping[str, Column] = {
    "compare, 50 v 50, normal": Column(lambda rng: laws.normal(rng, (100, 1))[:, 0], laws.two_samples(50)),
    "compare, 12 v 88, lognormal": Column(lambda rng: laws.lognormal(rng, (100, 1))[:, 0], laws.two_samples(12)),
    "compare, 50 v 50, counts": Column(lambda rng: laws.counts(rng, (100, 1))[:, 0], laws.two_samples(50)),
    "relate, n=100, normal": Column(lambda rng: laws.normal(rng, (100, 1))[:, 0], _response),
}


def below(name: str, call: int) -> list[int]:
    """How many permuted copies of one call have a p-value at or below each level."""
    column = COLUMNS[name]
    fixed = column.values(np.random.default_rng(0))
    rng = np.random.default_rng([call, len(name)])
    x = rng.permuted(np.repeat(fixed[:, None], COPIES, axis=1), axis=0)
    pvalues = column.pvalues(rng, x)
    return [int((pvalues <= level * (1 + 1e-9)).sum()) for level in LEVELS]
