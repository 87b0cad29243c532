"""Joint paths of the complete estimator's scores where features have effects.

The null correlation describes the dependence of two scores when neither feature has an effect. For a feature j with an
effect the cross-covariances are used: C_j is normal around a nonzero mean, and depends on C_i, the cross-covariance of
a null feature i, through its regression on C_i within the response. C_i follows its tilted path
(`kernsift.estimators.covariance.tilting`), C_j(t) = C_j + B (C_i(t) - C_i) with B the regression of j's directions on
those of i among the residuals of a regression on the response, and both are converted into scores.
docs/explanation/correlated-signals.md has the theory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kernsift.estimators.covariance.selected_factor import SelectedFactor, gathered, response_directions
from kernsift.estimators.covariance.tilting import tilted_paths
from kernsift.estimators.null_laws.permutation_law import gamma_score
from kernsift.estimators.responses import Response, ResponseView
from kernsift.estimators.scores import Path
from kernsift.execution.arrays import Array, asarray_like, namespace, on_host, slices, take, to_numpy

# Rows per direction that is regressed on, at least.
ROWS_PER_DIRECTION = 8
# Effective number of rows at which their own weights count as much as equal ones in a scatter within the response.
_EFFECTIVE_ROWS = 60.0
# The least correlation of a follower, to which the second number over the rows is added; above the last it is a copy.
_RELATED, _RELATED_ROWS, SAME = 0.05, 2.0, 1.0 - 1e-5
# The most features that follow the path of one.
_FOLLOWERS = 256
# Ridge of a scatter matrix within the response before it is inverted, relative to the trace of the whole scatter:
# missing directions are zeros, and what a response that determines the feature leaves of it is rounding error.
RIDGE = 1e-6
# Least share of the scatter of a direction that is taken to be within the response. A feature that varies less there,
# as one that fills a small sample does, would move others far by a regression on few rows.
_LEAST_WITHIN = 0.2
# Elements of one temporary array: 2^21 doubles are 16 MB.
_NUMBERS = 2**21


def related(rows: int) -> float:
    """The correlation, estimated from `rows` rows, above which a feature follows the path of another."""
    return _RELATED + _RELATED_ROWS / rows


def may_follow(features: np.ndarray, correlations: np.ndarray, rows: int) -> np.ndarray:
    """(d, k) which features are related to each of the k named ones, by correlations (d, k) from `rows` rows."""
    follows = (correlations > related(rows)) & (correlations < SAME)
    follows[features, np.arange(len(features))] = False
    return np.asarray(follows)


def row_weights(weights: Array) -> Array:
    """Weights of rows, shrunk towards their mean where few rows have most of the total.

    With `m = sum(w)^2 / sum(w^2)` effective rows a regression with these weights has the noise of `m` rows, and of two
    samples of 3 and 100 rows `m` is 3. Equal weights use all rows, and lead to the same regression where the dependence
    of features does not vary with the response. The mean is weighted with `1 / (1 + m / 60)`.

    Examples
    --------
    >>> import numpy as np
    >>> row_weights(np.array([0.81] * 10 + [0.01] * 90))[[0, -1]].round(3)
    array([0.213, 0.076])
    """
    xp = namespace(weights)
    total, squares = xp.sum(weights), xp.sum(weights * weights)
    # A constant response has no weights.
    own = total * total / xp.where(squares > 0, squares, xp.ones_like(squares))
    share = own / (own + _EFFECTIVE_ROWS)
    return share * weights + (1.0 - share) * xp.mean(weights)


def followers_of(feature: int, scores: np.ndarray, correlations: np.ndarray, follows: np.ndarray) -> np.ndarray:
    """The features related to one, at most `_FOLLOWERS` of them: those with the highest scores along its path."""
    found = np.flatnonzero(follows)
    if len(found) <= _FOLLOWERS:
        return found
    # The slope of one score on another is about the root of their correlation.
    reach = 2.0 * np.sqrt(correlations[found]) * max(scores[feature], 1.0)
    highest = np.argpartition(-(scores[found] + reach), _FOLLOWERS)[:_FOLLOWERS]
    return np.sort(found[highest])


class ScoreLaws(NamedTuple):
    """Scores (d,), and the selected T of each feature with its null moments."""

    score: np.ndarray
    statistic: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    skewness: np.ndarray

    def at(self, features: np.ndarray, statistic: np.ndarray) -> np.ndarray:
        """Scores of values (m, g) of the named features' T.

        They are those of the Pearson III law, which is fast, shifted to agree with the feature's score at the observed
        T.
        """
        mean, sd, skewness = (part[features][:, None] for part in (self.mean, self.sd, self.skewness))
        values = np.concatenate([self.statistic[features][:, None], statistic], axis=1)
        scores = gamma_score((values - mean) / np.where(sd > 0, sd, 1.0), np.broadcast_to(skewness, values.shape))
        return np.asarray(scores[:, 1:] + (self.score[features][:, None] - scores[:, :1]))


class _Moves(NamedTuple):
    """Selected features along their paths."""

    knots: np.ndarray  # (k, g) their scores
    # For each of them, by view of the response, (g, q, p): W^-1 (C(t) - C) mapped from its own view of the
    # response to that view, where W is the scatter of its directions within the response and C(t) its
    # cross-covariance.
    steps: list[dict[str, np.ndarray]]
    # (k * q + p, rows) multiplied with other features' directions: the weighted residuals of the directions, and
    # the response.
    scatter: Array
    # (p, k * q) the part of the products with the residuals that the regression on the response explains.
    explained: np.ndarray


@dataclass(frozen=True)
class ScorePaths:
    """The selected factors of features, their response and laws, and the paths of their scores.

    `rows` are those that correlations and regressions between features are estimated from; None for all.
    """

    factors: tuple[SelectedFactor, ...]
    response: Response
    laws: ScoreLaws
    rows: np.ndarray | None

    @property
    def row_count(self) -> int:
        """The number of these rows."""
        return self.response.n if self.rows is None else len(self.rows)

    def paths(self, features: np.ndarray, columns: np.ndarray) -> list[Path | None]:
        """The paths of scores given those of the named features; None where no other feature is related to one.

        `columns` (d, len(features)) are the null correlations of all scores with theirs.
        """
        follows = may_follow(features, columns, self.row_count)
        followers = [np.empty(0, dtype=int)] * len(features)
        for place in np.flatnonzero(follows.any(axis=0)).tolist():
            followers[place] = followers_of(features[place], self.laws.score, columns[:, place], follows[:, place])
        moving = np.flatnonzero([len(some) > 0 for some in followers])
        out: list[Path | None] = [None] * len(features)
        if len(moving) == 0:
            return out
        moves = self._moves(features[moving])
        named = [followers[place] for place in moving]
        gains = [np.empty((len(some), moves.knots.shape[1])) for some in named]
        place_of = np.empty(len(self.laws.score), dtype=int)
        for factor, here, within in self._scatters(np.unique(np.concatenate(named)), moves):
            cross = _host(factor.cross, here)
            place_of[:] = -1
            place_of[factor.features[here]] = np.arange(len(here))
            for place, some in enumerate(named):
                own = place_of[some]
                found = own >= 0
                own = own[found]
                gains[place][found] = gain_along(within[own, :, place], moves.steps[place][factor.target], cross[own])
        every = np.concatenate(named)
        scores = self.laws.at(every, self.laws.statistic[every][:, None] + np.concatenate(gains))
        parts = np.split(scores, np.cumsum([len(some) for some in named])[:-1])
        for place, feature in enumerate(moving.tolist()):
            out[feature] = Path(moves.knots[place], named[place], parts[place])
        return out

    def _moves(self, features: np.ndarray) -> _Moves:
        found, cross = gathered(self.factors, features), self._cross_covariances(features)
        chosen, targets = found.padded(cross.shape[1]), found.targets.tolist()
        xp, (k, q, rows) = namespace(chosen), chosen.shape
        sizes = to_numpy(xp.sum(chosen * chosen, axis=2)).astype(float) * (self.response.n / rows)
        weights = np.zeros_like(cross)
        for place, name in enumerate(targets):
            view = self.response.views[name]
            p = response_directions(view)
            weights[place, :, :p] = sizes[place][:, None] * view.sizes[:p] / max(self.response.n - 1, 1)
        path, observed = tilted_paths(cross, weights)
        gain = (path**2).sum(axis=(2, 3)) - (cross**2).sum(axis=(1, 2))[:, None]
        knots = self.laws.at(features, self.laws.statistic[features][:, None] + gain)
        knots[np.arange(k), observed] = self.laws.score[features]

        views = {name: self._response_rows(view, chosen) for name, view in self.response.views.items()}
        # A regression on more directions than the rows support would overfit.
        most = max(1, rows // ROWS_PER_DIRECTION)
        target = xp.concat(list(views.values()), axis=0)
        target, chosen = target[: min(most, target.shape[0]), :], chosen[:, : min(most, q), :]
        inverse = np.linalg.pinv(_product(target, target), rcond=1e-6, hermitian=True)
        fitted = xp.astype(asarray_like(_product(chosen, target) @ inverse, chosen), chosen.dtype)
        if found.present is None:
            residual = chosen - fitted @ target
        else:
            # The scatter of the response over the rows that have a feature, taken as their share of that over all.
            fitted = fitted * (rows / found.counts)[:, None, None]
            residual = (chosen - fitted @ target) * found.present[:, None, :]
        # A row contributes to the variance of a cross-covariance by the distance of its response from the mean.
        distances = {name: row_weights(xp.sum(part * part, axis=0)) for name, part in views.items()}
        weights_of = xp.stack([distances[name] for name in targets])[:, None, :]
        weighted = residual * weights_of
        own = _product(weighted, residual)
        whole = to_numpy(xp.sum(chosen * chosen * weights_of, axis=2)).astype(float)
        ridge = np.maximum(_LEAST_WITHIN * whole - np.einsum("kqq->kq", own), 0.0)
        ridge += RIDGE * whole.sum(axis=1)[:, None] + 1e-300
        own += ridge[:, :, None] * np.eye(own.shape[1])
        steps = np.linalg.solve(own[:, None], (path - cross[:, None])[:, :, : own.shape[1]])
        between = {name: {other: self._between(name, other) for other in views} for name in set(targets)}
        flat = xp.reshape(weighted, (-1, rows))
        return _Moves(
            knots,
            [
                {other: one[:, :, : len(turn)] @ turn for other, turn in between[name].items()}
                for one, name in zip(steps, targets, strict=True)
            ],
            xp.concat([flat, target], axis=0),
            inverse @ _product(target, flat),
        )

    def _response_rows(self, view: ResponseView, prototype: Array) -> Array:
        """(p, rows) leading directions of a view of the response, centred over the rows used."""
        factor = self.response.at(self.rows, view, response_directions(view))
        xp = namespace(factor)
        return xp.astype(factor - xp.mean(factor, axis=1, keepdims=True), prototype.dtype)

    def _between(self, name: str, other: str) -> np.ndarray:
        """(p, p') the regression of one view's leading directions of the response on those of another."""
        one, two = self.response.views[name], self.response.views[other]
        p, q = response_directions(one), response_directions(two)
        if name == other:
            return np.eye(p)
        inner = to_numpy(one.inner(two, self.response.counts))[:p, :q]
        return np.asarray(inner / one.sizes[:p, None])

    def _cross_covariances(self, features: np.ndarray) -> np.ndarray:
        """(k, q, p) cross-covariances of the named features, in their order, padded with zeros."""
        places = [np.intersect1d(factor.features, features, return_indices=True)[1:] for factor in self.factors]
        found = [(own, _host(f.cross, here)) for f, (here, own) in zip(self.factors, places, strict=True) if len(own)]
        out = np.zeros((len(features), *(max(cross.shape[axis] for _, cross in found) for axis in (1, 2))))
        for own, cross in found:
            out[own, : cross.shape[1], : cross.shape[2]] = cross
        return out

    def _scatters(self, features: np.ndarray, moves: _Moves) -> Iterator[tuple[SelectedFactor, np.ndarray, np.ndarray]]:
        """The named features by blocks: their places in a factor, and their scatters (m, q', k, q) with the moves."""
        k, width = len(moves.steps), moves.explained.shape[1]
        numbers = _NUMBERS if on_host(moves.scatter) else 128 * _NUMBERS
        for factor in self.factors:
            found = np.flatnonzero(np.isin(factor.features, features))
            step = max(1, numbers // (factor.cross.shape[1] * max(moves.scatter.shape)))
            for here in (found[some] for some in slices(0, len(found), step)):
                products = _product(factor.rows(here).padded(factor.cross.shape[1]), moves.scatter)
                within = products[:, :, :width] - products[:, :, width:] @ moves.explained
                yield factor, here, within.reshape(len(here), -1, k, width // k)


def _host(array: Array, places: np.ndarray) -> np.ndarray:
    """Some entries along the first axis, as doubles in host memory."""
    return to_numpy(take(array, places, 0)).astype(float)


def _product(one: Array, other: Array) -> np.ndarray:
    """Products of rows with rows, as doubles in host memory."""
    return to_numpy(one @ namespace(other).matrix_transpose(other)).astype(float)


def gain_along(within: np.ndarray, steps: np.ndarray, cross: np.ndarray) -> np.ndarray:
    """(m, g) the changes of T of features along a path with steps (g, q, p).

    They have scatters (m, q', q) with the directions of the path, and cross-covariances (m, q', p).
    """
    g, q, p = steps.shape
    moved = within @ steps.transpose(1, 0, 2).reshape(q, g * p)
    moved = moved.reshape(*within.shape[:2], g, p)
    return np.asarray((moved * (moved + 2.0 * cross[:, :, None, :])).sum(axis=(1, 3)))
