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
_ROWS_PER_DIRECTION = 8
# Effective number of rows at which their own weights count as much as equal ones in a scatter within the response.
_EFFECTIVE_ROWS = 60.0
# The least correlation of a follower, to which the second number over the rows is added; above the last it is a copy.
_RELATED, _RELATED_ROWS, SAME = 0.05, 2.0, 1.0 - 1e-5
# The most features that follow the path of one.
_FOLLOWERS = 256
# Ridge of a scatter matrix within the response before it is inverted, relative to the trace of the whole scatter:
# missing directions are zeros, and what a response that determines the feature leaves of it is rounding error.
_RIDGE = 1e-6
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
    """Weights of rows (..., rows), shrunk towards their mean where few rows have most of the total.

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
    total, squares = xp.sum(weights, axis=-1, keepdims=True), xp.sum(weights * weights, axis=-1, keepdims=True)
    # A constant response has no weights.
    own = total * total / xp.where(squares > 0, squares, xp.ones_like(squares))
    share = own / (own + _EFFECTIVE_ROWS)
    return share * weights + (1.0 - share) * xp.mean(weights, axis=-1, keepdims=True)


def regress_within(
    directions: Array, response: Array, weights: Array, moves: np.ndarray, present: Array | None = None
) -> tuple[Array, np.ndarray]:
    """Regressors (k, q', rows) of other features' directions within a response, and steps (k, g, q', p) along them.

    Multiplied with `F`, the directions of another feature, they give its scatter `W_ji` with these `directions`
    (k, q, rows) among the residuals of a regression on the `response` (p, rows), with `weights` (k, rows) shrunk by
    their effective number. The steps are `W_ii^-1` times `moves` (k, g, q, p) of the cross-covariances, so that those
    of the other feature move by `W_ji W_ii^-1 moves`. `present` (k, rows) is 0 for rows in which a feature is missing.
    At most one direction for every eight rows is used.
    """
    xp, rows = namespace(directions), directions.shape[2]
    # A regression on more directions than the rows support would overfit.
    most = max(1, rows // _ROWS_PER_DIRECTION)
    directions = directions[:, : min(most, directions.shape[1]), :]
    response = response[: min(most, response.shape[0]), :]
    inverse = np.linalg.pinv(_product(response, response), rcond=1e-6, hermitian=True)

    def residuals(values: Array, share: Array | float = 1.0) -> Array:
        fitted = asarray_like(_product(values, response) @ inverse, values)
        return values - share * xp.astype(fitted, values.dtype) @ response

    if present is None:
        residual = residuals(directions)
    else:
        # The scatter of the response over the rows that have a feature, taken as their share of that over all.
        share = (rows / xp.sum(present, axis=1))[:, None, None]
        residual = residuals(directions, share) * present[:, None, :]
    weights = row_weights(weights)[:, None, :]
    weighted = residual * weights
    within, whole = _product(weighted, residual), _product(directions * weights, directions)
    size = np.einsum("kqq->k", whole)[:, None, None]
    whole += (_RIDGE * size + 1e-300) * np.eye(whole.shape[1])
    # In coordinates in which the whole scatter is the identity.
    root = np.linalg.inv(np.linalg.cholesky(whole))
    shares, vectors = np.linalg.eigh(root @ within @ np.matrix_transpose(root))
    turned = np.matrix_transpose(vectors) @ root
    inverse_within = np.matrix_transpose(turned) @ (turned / np.maximum(shares, _LEAST_WITHIN)[:, :, None])
    # Orthogonal to the response, so that products with directions are those with their residuals.
    return residuals(weighted), inverse_within[:, None] @ moves[:, :, : within.shape[1]]


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
    regressors: Array  # (k, q, rows) those of `regress_within`


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
        xp, (k, _, rows) = namespace(chosen), chosen.shape
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
        target = xp.concat(list(views.values()), axis=0)
        # A row contributes to the variance of a cross-covariance by the distance of its response from the mean.
        distances = {name: xp.sum(part * part, axis=0) for name, part in views.items()}
        weights_of = xp.stack([distances[name] for name in targets])
        regressors, steps = regress_within(chosen, target, weights_of, path - cross[:, None], found.present)
        between = {name: {other: self._between(name, other) for other in views} for name in set(targets)}
        return _Moves(
            knots,
            [
                {other: one[:, :, : len(turn)] @ turn for other, turn in between[name].items()}
                for one, name in zip(steps, targets, strict=True)
            ],
            regressors,
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
        k, q, rows = moves.regressors.shape
        flat = namespace(moves.regressors).reshape(moves.regressors, (-1, rows))
        numbers = _NUMBERS if on_host(flat) else 128 * _NUMBERS
        for factor in self.factors:
            found = np.flatnonzero(np.isin(factor.features, features))
            step = max(1, numbers // (factor.cross.shape[1] * max(flat.shape)))
            for here in (found[some] for some in slices(0, len(found), step)):
                within = _product(factor.rows(here).padded(factor.cross.shape[1]), flat)
                yield factor, here, within.reshape(len(here), -1, k, q)


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
