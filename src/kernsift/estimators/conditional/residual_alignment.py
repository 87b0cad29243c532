"""Correlations between the scores of features given confounders, from residuals on some of the rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.tables import spaced_rows
from kernsift.estimators.complete import RowSubset
from kernsift.estimators.conditional.residual_statistics import ResidualView
from kernsift.estimators.scores import DenseCovariance, FactorCovariance
from kernsift.estimators.views import Pair

DIRECTIONS = 12
"""The most directions of a view of a feature, but of one with categories."""
# Numbers that correlations between features are estimated from, and rows at least and at most.
_KEPT, _LEAST_KEPT, _MOST_KEPT = 2**27, 2**7, 2**12
# Features whose correlations are sampled as they are; more are sampled from a sketch of this size.
_SKETCH = 2000


def every_row(n: int, d: int) -> RowSubset:
    """All of n rows, with evenly spaced ones that correlations between d features are estimated from."""
    most = int(np.clip(_KEPT // (max(d, 1) * DIRECTIONS), _LEAST_KEPT, _MOST_KEPT))
    return RowSubset(None, n, spaced_rows(n, most))


def centred_at(subset: RowSubset, residuals: np.ndarray) -> np.ndarray:
    """(a, m) residuals at the rows that correlations are estimated from, centred; 0 in rows outside the subset."""
    own, places, count = subset.aligned
    out = np.zeros((count, residuals.shape[1]))
    if len(places):
        out[places] = residuals[own] - residuals[own].mean(axis=0)
    return out


class Winner(NamedTuple):
    """The residuals of a feature under the pair of views with its smallest p-value, on some rows.

    `score` is that of all pairs together. `trace` and `square` are those of their Gram matrix there and of its square,
    `left` is the p-value of what is left of the confounders in the residuals of both.
    """

    feature: int
    score: float
    effect: float
    values: np.ndarray
    trace: float
    square: float
    pair: Pair
    left: float


@dataclass(frozen=True)
class ResidualAlignment:
    """Correlation of the scores: the alignment of the Gram matrices of residuals, times that of the response's views.

    `responses` are the residuals of the response by view; `varies` (d,) tells which features have scores at all: the
    others need no winner.
    """

    winners: tuple[Winner, ...]
    responses: dict[str, ResidualView]
    varies: np.ndarray

    def of_winners(self, name: str, absent: Any) -> np.ndarray:
        """(d,) an attribute of the winners, `absent` for features without one."""
        out = np.full(len(self.varies), absent, dtype=type(absent) if absent is not None else object)
        for winner in self.winners:
            out[winner.feature] = getattr(winner, name)
        return out

    @property
    def scores(self) -> np.ndarray:
        """(d,) normal scores, 0 for features that do not vary."""
        return np.where(self.varies, self.of_winners("score", 0.0), 0.0)

    def diagonal(self) -> np.ndarray:
        return self.varies.astype(float)

    def columns(self, features: np.ndarray) -> np.ndarray:
        out = np.zeros((len(self.varies), len(features)))
        known = {winner.feature: winner for winner in self.winners}
        places = [place for place, feature in enumerate(features.tolist()) if self.varies[feature]]
        chosen = [known[int(features[place])] for place in places]
        if not chosen:
            return out
        ends = np.cumsum([0, *(len(winner.values) for winner in chosen)])[:-1]
        stacked = np.concatenate([winner.values for winner in chosen])
        trace, square = (np.array([getattr(winner, name) for winner in chosen]) for name in ("trace", "square"))
        for winner in self.winners:
            rows = winner.values.shape[1]
            inner = np.add.reduceat(((winner.values @ stacked.T) ** 2).sum(axis=0), ends)
            covariance = inner - winner.trace * trace / (rows - 1)
            scale = np.sqrt(winner.square * square)
            shared = np.array([self._between[winner.pair.response, other.pair.response] for other in chosen])
            found = shared * np.divide(covariance, scale, out=np.zeros(len(scale)), where=scale > 0)
            out[winner.feature, places] = found
        out = np.clip(out, -1.0, 1.0) * np.outer(self.varies, self.varies[features])
        out[features, np.arange(len(features))] = self.varies[features]
        return out

    def only(self, features: np.ndarray) -> ResidualAlignment:
        """The same with what the correlations among the named features need, and no more in memory."""
        named = set(features.tolist())
        return replace(self, winners=tuple(winner for winner in self.winners if winner.feature in named))

    def among(self, features: np.ndarray) -> np.ndarray:
        """(k, k) correlations of the named features with each other."""
        known = {winner.feature: winner for winner in self.winners}
        chosen = tuple(
            known[feature]._replace(feature=place)
            for place, feature in enumerate(features.tolist())
            if feature in known
        )
        part = ResidualAlignment(chosen, self.responses, self.varies[features])
        return part.columns(np.arange(len(features)))

    @cached_property
    def _between(self) -> dict[tuple[str, str], float]:
        """Alignments of the views of the response."""
        views, n = self.responses, len(next(iter(self.responses.values())).values)

        def inner(one: ResidualView, other: ResidualView) -> float:
            product = float(((one.values.T @ other.values) ** 2).sum())
            return product - float(np.trace(one.scatter) * np.trace(other.scatter)) / (n - 1)

        own = {name: np.sqrt(max(inner(view, view), 1e-300)) for name, view in views.items()}
        found = {(a, b): inner(views[a], views[b]) / (own[a] * own[b]) for a in views for b in views}
        return {(a, b): 1.0 if a == b else float(np.clip(share, 0.0, 1.0)) for (a, b), share in found.items()}

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Normal draws from the correlation matrix, or for many features from a random sketch of it."""
        d = len(self.varies)
        if d <= _SKETCH:
            return DenseCovariance(self.columns(np.arange(d))).sample(size, rng)
        rows = self.winners[0].values.shape[1]
        first, second = rng.standard_normal((2, rows, _SKETCH)).astype(np.float32)
        sketch = np.zeros((_SKETCH, d))
        for one in self.winners:
            sketch[:, one.feature] = ((one.values @ first) * (one.values @ second)).sum(axis=0)
        norm = np.sqrt((sketch**2).sum(axis=0))
        sketch *= np.divide(self.varies, norm, out=np.zeros(d), where=norm > 0)
        return FactorCovariance(sketch).sample(size, rng)
