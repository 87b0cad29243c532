"""The regret study: the power of kernsift and of other tests on every shape of `shapes.py`, one feature at a time.

Regret is the power of the best other test less that of kernsift. No test is best on every shape; a test whose largest
regret is small can be used without knowing the shape.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from peer_pvalues import PEERS, SLOW_PEERS
from peers import LEVEL
from shapes import SHAPES, Shape, Trials

from kernsift import compare, relate

OWN = "kernsift"
# MGC takes half a second a trial of 60 rows, and some seconds one of 200.
SLOW_ROWS, SLOW_TRIALS = 200, 30
# Tests that take milliseconds a trial have more trials: the best of several tests is above its true power by about a
# standard error.
_QUICK = (OWN, "Pearson", "Spearman", "Kolmogorov-Smirnov", "Cramér-von Mises", "Mann-Whitney", "F (t) test", "Levene")
_TIMES_MORE = 2.5
# Columns a call of `compare`: each is a trial.
COLUMNS = 50


def own_pvalues(trials: Trials, **settings: Any) -> np.ndarray:
    """The p-values of `compare` or `relate`, one a trial, each with its own feature and no correction."""
    settings = {"correction": None, "random_state": 0} | settings
    x, y = trials
    if y.ndim == 2:
        columns = range(x.shape[1])
        return np.array([relate(x[:, [j]], y[:, j], response="numeric", **settings).pvalues[0] for j in columns])
    parts = [x[:, first : first + COLUMNS] for first in range(0, x.shape[1], COLUMNS)]
    return np.concatenate([compare(part[y == 0], part[y == 1], **settings).all_pvalues for part in parts])


def methods_of(shape: Shape, n: int) -> list[str]:
    return [OWN, *PEERS[shape.question], *(SLOW_PEERS if n <= SLOW_ROWS else ())]


def trials_of(method: str, trials: int) -> int:
    """The number of trials of a method, where most have `trials`."""
    if method in SLOW_PEERS:
        return min(trials, SLOW_TRIALS)
    return int(trials * _TIMES_MORE) if method in _QUICK else trials


def pvalues_of(method: str, trials: Trials) -> np.ndarray:
    """The p-values of a method of `methods_of`."""
    if method == OWN:
        return own_pvalues(trials)
    question = "numeric" if trials.y.ndim == 2 else "samples"
    return (PEERS[question] | SLOW_PEERS)[method](trials)


def draw(key: str, n: int, trials: int, *, null: bool = False) -> Trials:
    """The trials of a cell, from a seed of its own; under the null the rows of the feature are permuted."""
    rng = np.random.default_rng([zlib.crc32(key.encode()), n, null])
    drawn = SHAPES[key].draw(rng, n, trials)
    return Trials(rng.permuted(drawn.x, axis=0), drawn.y) if null else drawn


def measured(key: str, n: int, method: str, trials: int, *, null: bool = False) -> dict[str, np.ndarray]:
    """Which trials a method rejects at level 0.05; for a slow method also what kernsift does on its fewer trials."""
    drawn = draw(key, n, trials, null=null)
    if method not in SLOW_PEERS:
        return {"power": pvalues_of(method, drawn) <= LEVEL}
    y = drawn.y[:, :SLOW_TRIALS] if drawn.y.ndim == 2 else drawn.y
    few = Trials(drawn.x[:, :SLOW_TRIALS], y)
    own = own_pvalues(few) <= LEVEL
    found = pvalues_of(method, few) <= LEVEL
    return {"power": found, "kernsift's power": own, "lead": found.astype(float) - own}
