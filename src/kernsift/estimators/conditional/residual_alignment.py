"""Correlations between the scores of features given confounders, from residuals on some of the rows, and their paths.

Paths are those of `kernsift.estimators.covariance.paths`, with the residuals that confounders leave in the place of the
directions of the kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.tables import spaced_rows
from kernsift.estimators.conditional.residual_statistics import PairStatistic
from kernsift.estimators.covariance.paths import (
    ScoreLaws,
    followers_of,
    gain_along,
    may_follow,
    regress_within,
)
from kernsift.estimators.covariance.tilting import tilted_paths
from kernsift.estimators.pairs import Pair
from kernsift.estimators.patterns import RowSubset
from kernsift.estimators.scores import DenseCovariance, FactorCovariance, Path

DIRECTIONS = 12
"""The most directions of a view of a feature, but of one with categories."""
RESPONSE_DIRECTIONS = 16
"""The most directions of a view of the response that paths are computed from."""
# Numbers that correlations between features are estimated from, and rows at least and at most.
_KEPT, _LEAST_KEPT, _MOST_KEPT = 2**27, 2**7, 2**12
# Features whose correlations are sampled as they are; more are sampled from a sketch of this size.
_SKETCH = 2000


def every_row(n: int, d: int) -> RowSubset:
    """All of n rows, with evenly spaced ones that correlations between d features are estimated from."""
    most = int(np.clip(_KEPT // (max(d, 1) * DIRECTIONS), _LEAST_KEPT, _MOST_KEPT))
    return RowSubset(None, n, spaced_rows(n, most))


def centred_at(subset: RowSubset, residuals: np.ndarray, mean: bool = False) -> np.ndarray:
    """(a, m) residuals at the rows that correlations are estimated from, centred; 0 in rows outside the subset.

    With units these are sums over units, or means.
    """
    own: np.ndarray | None
    if subset.units is None:
        own, places, count = subset.aligned
    else:
        units = subset.units if subset.rows is None else subset.units[subset.rows]
        count = int(subset.units.max()) + 1
        sizes = np.bincount(units, minlength=count)
        residuals = np.column_stack([np.bincount(units, column, count) for column in residuals.T])
        residuals = residuals / np.maximum(sizes, 1)[:, None] if mean else residuals
        used = spaced_rows(count, _MOST_KEPT if subset.to_align is None else len(subset.to_align))
        places = np.flatnonzero(sizes[used])
        own, count = used[places], len(used)
    out = np.zeros((count, residuals.shape[1]))
    if len(places):
        out[places] = residuals[own] - residuals[own].mean(axis=0)
    return out


class Winner(NamedTuple):
    """The residuals of a feature under the pair of views with its smallest p-value, on some rows.

    `score` is that of all pairs together. `trace` and `square` are those of their Gram matrix there and of its square,
    `remaining` is the p-value of what is left of the confounders in the residuals of both, `isolated` that of evidence
    from isolated rows alone. `cross` (m, p) is the cross-covariance with the leading directions of the response,
    `statistic` the T of the pair with its null moments, and `targets` (p, a) are the residuals of the response by view.
    """

    feature: int
    score: float
    effect: float
    values: np.ndarray
    trace: float
    square: float
    pair: Pair
    remaining: float
    isolated: float
    cross: np.ndarray
    statistic: PairStatistic
    targets: dict[str, np.ndarray]

    @property
    def target(self) -> np.ndarray:
        """(p, a) the response under the pair of views."""
        return self.targets[self.pair.response]


@dataclass(frozen=True)
class ResidualAlignment:
    """Correlation of the scores: the alignment of the Gram matrices of residuals, times that of the response's views.

    Features without a winner, of `d`, have no score.
    """

    winners: tuple[Winner, ...]
    d: int

    @cached_property
    def varies(self) -> np.ndarray:
        """(d,) which features have scores that vary."""
        return self.of_winners("square", 0.0) > 0

    def of_winners(self, name: str, absent: Any) -> np.ndarray:
        """(d,) an attribute of the winners, `absent` for features without one; its name may have dots."""
        out = np.full(self.d, absent, dtype=type(absent) if absent is not None else object)
        value = attrgetter(name)
        for winner in self.winners:
            out[winner.feature] = value(winner)
        return out

    @property
    def _by_feature(self) -> dict[int, Winner]:
        return {winner.feature: winner for winner in self.winners}

    @property
    def scores(self) -> np.ndarray:
        """(d,) normal scores, 0 for features that do not vary."""
        return np.where(self.varies, self.of_winners("score", 0.0), 0.0)

    def diagonal(self) -> np.ndarray:
        return self.varies.astype(float)

    def columns(self, features: np.ndarray) -> np.ndarray:
        out, known = np.zeros((self.d, len(features))), self._by_feature
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
            shared = np.array([self._between(winner, other) for other in chosen])
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
        """(k, k) correlations of the named features with each other, as if all had the same view of the response."""
        known, pair = self._by_feature, self.winners[0].pair
        chosen = tuple(
            known[feature]._replace(feature=place, pair=pair)
            for place, feature in enumerate(features.tolist())
            if feature in known
        )
        return ResidualAlignment(chosen, len(features)).columns(np.arange(len(features)))

    def paths(self, features: np.ndarray, columns: np.ndarray) -> list[Path | None]:
        """The paths of related features' scores given those of the named ones; None where no feature is related."""
        known, out = self._by_feature, list[Path | None]([None] * len(features))
        laws = ScoreLaws(self.scores, *(self.of_winners(f"statistic.{name}", 0.0) for name in ScoreLaws._fields[1:]))
        follows = may_follow(features, columns, self.winners[0].values.shape[1])
        for place in np.flatnonzero(follows.any(axis=0) & self.varies[features]).tolist():
            feature = int(features[place])
            named = followers_of(feature, laws.score, columns[:, place], follows[:, place])
            out[place] = _path(known[feature], [known[other] for other in named.tolist()], named, laws)
        return out

    def _between(self, one: Winner, other: Winner) -> float:
        """The alignment of the views of the response of two features."""
        names = frozenset((one.pair.response, other.pair.response))
        if len(names) > 1 and names not in self._alignments:
            rows, inner = one.target.shape[1], ((one.target @ other.target.T) ** 2).sum()
            (first, own), (second, theirs) = (
                ((t * t).sum(), ((t @ t.T) ** 2).sum()) for t in (one.target, other.target)
            )
            found = np.array([inner, own, theirs]) - np.array([first * second, first**2, second**2]) / (rows - 1)
            share = found[0] / np.sqrt(max(found[1] * found[2], 1e-300))
            self._alignments[names] = float(np.clip(share, 0.0, 1.0))
        return self._alignments.get(names, 1.0)

    @cached_property
    def _alignments(self) -> dict[frozenset[str], float]:
        """Alignments of two views of the response, as far as they are known."""
        return {}

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Normal draws from the correlation matrix, or for many features from a random sketch of it."""
        if self.d <= _SKETCH:
            return DenseCovariance(self.columns(np.arange(self.d))).sample(size, rng)
        rows = self.winners[0].values.shape[1]
        first, second = rng.standard_normal((2, rows, _SKETCH)).astype(np.float32)
        sketch = np.zeros((_SKETCH, self.d))
        for one in self.winners:
            sketch[:, one.feature] = ((one.values @ first) * (one.values @ second)).sum(axis=0)
        norm = np.sqrt((sketch**2).sum(axis=0))
        sketch *= np.divide(self.varies, norm, out=np.zeros(self.d), where=norm > 0)
        return FactorCovariance(sketch).sample(size, rng)


def _path(one: Winner, others: list[Winner], named: np.ndarray, laws: ScoreLaws) -> Path:
    """The path of a feature, and those of the scores of related ones along it."""
    values, target = one.values.astype(float), one.target
    # The null covariance of the cross-covariance, in orthogonal directions; its trace is the mean of T.
    products = (values[:, None, :] * target[None]).reshape(-1, values.shape[1])
    sizes, vectors = np.linalg.eigh(products @ products.T)
    sizes = sizes.clip(1e-12 * sizes[-1])
    turned = vectors.T @ one.cross.ravel()
    path, observed = tilted_paths(turned[None, :, None], (sizes * (one.statistic.mean / sizes.sum()))[None, :, None])
    gain = (path[0, :, :, 0] ** 2).sum(axis=1) - turned @ turned
    knots = laws.at(np.array([one.feature]), one.statistic.statistic + gain[None])[0]
    knots[observed[0]] = laws.score[one.feature]
    moved = (path[0, :, :, 0] @ vectors.T).reshape(-1, *one.cross.shape) - one.cross
    response = np.concatenate(list(one.targets.values()))
    distance = (target**2).sum(axis=0)
    (regressors,), (steps,) = regress_within(values[None], response, distance[None], moved[None])
    scores = np.empty((len(others), len(knots)))
    for place, other in enumerate(others):
        turn = np.eye(len(target))
        if other.target is not target:
            turn = target @ other.target.T / np.maximum((target**2).sum(axis=1), 1e-300)[:, None]
        gain = gain_along((other.values @ regressors.T)[None], steps @ turn, other.cross[None])
        scores[place] = laws.at(named[[place]], other.statistic.statistic + gain)[0]
    return Path(knots, named, scores)
