"""The covariance of the scores of the complete estimator, from the alignment of Gram matrices.

The correlation of two null features' T over permutations follows from tr(K_i K_j), which needs the rows of both
features. It is a nuisance parameter and is estimated from at most 2^14 rows: its error is below 0.01 for tables of any
size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kernsift.data.table_parts import run_of
from kernsift.estimators.covariance.paths import SAME, ScorePaths, related
from kernsift.estimators.covariance.selected_factor import (
    FactorRows,
    SelectedFactor,
    gathered,
    joined,
    norms_of,
    places_of,
)
from kernsift.estimators.null_laws.permutation_law import moment_matrix
from kernsift.estimators.responses import ResponseView
from kernsift.estimators.scores import DenseCovariance, FactorCovariance
from kernsift.execution.arrays import Array, asarray_like, dtype_of, most_at_once, namespace, on_host, slices, to_numpy
from kernsift.execution.progress import report_progress
from kernsift.execution.threads import parallel_map

# The diagonals of Gram matrices contribute a share of 1 / rows to a covariance: negligible with more rows than this.
_FEW_ROWS = 256
# Rows of the random sketch of the correlation matrix from which samples are drawn (the multiscale test).
_SKETCH = 2000
# Elements of one temporary array: 2^21 doubles are 16 MB.
_NUMBERS = 2**21
# Products of features with selected ones below which one thread makes them, and above which most have single precision.
_FEW, _MANY = 2**27, 2**32
# Values of a table up to which all features are correlated in one product.
_SMALL = 2**17
# Digits that single precision has; scores this far below those of selected features may decide on a selection, and that
# share of the distances between them.
_DIGITS, _BAND, _SLOPE = 1e-4, 1.0, 0.05
# Features whose correlations with each other are computed together, and the rows that these are computed from.
_TOGETHER, _THINNED = 64, 2**11


@dataclass(frozen=True)
class AlignmentCovariance(ScorePaths):
    """Correlation of the scores over permutations of the rows; 0 on the diagonal for constant features."""

    @property
    def varies(self) -> np.ndarray:
        return self.laws.sd > 0

    @property
    def _small(self) -> bool:
        return len(self.varies) * self.row_count <= _SMALL

    def diagonal(self) -> np.ndarray:
        return self.varies.astype(float)

    def columns(self, features: np.ndarray) -> np.ndarray:
        """Correlations (d, k) of all scores with the named ones.

        Of many features only those that may decide on a selection need all digits: those whose scores are near those of
        the named features or above, and those whose correlations are near a bound between kinds of paths.
        """
        out = np.zeros((len(self.varies), len(features)))
        if self._small and len({factor.target for factor in self.factors}) == 1:
            together = joined([factor.rows(slice(None), packed=True) for factor in self.factors])
            chosen = together.take(places_of(self.factors, features))
            out[np.concatenate([factor.features for factor in self.factors])] = self._correlation(together, chosen)
            return self._on_varying(out, features)
        # In the order of the factors, which saves a copy.
        order = np.argsort(places_of(self.factors, features))
        chosen, back = gathered(self.factors, features[order]), np.argsort(order)
        every = np.ones(len(out), dtype=bool)
        own = chosen.directions
        if not isinstance(own, np.ndarray) or own.dtype != np.float64 or len(out) * own.size < _MANY:
            self._fill(out, chosen, back, every)
        else:
            scores = self.laws.score[features]
            near = self.laws.score >= scores.min() - _BAND - _SLOPE * np.ptp(scores)
            doubtful = self._fill(out, chosen._replace(directions=own.astype(np.float32)), back, ~near)
            self._fill(out, chosen, back, near | doubtful)
        return self._on_varying(out, features)

    def _on_varying(self, out: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Correlations (d, k) with the named features that are 0 for constant features and 1 on the diagonal."""
        if not self.varies.all():
            out *= np.outer(self.varies, self.varies[features])
        out[features, np.arange(len(features))] = self.varies[features]
        return out

    def _fill(self, out: np.ndarray, chosen: FactorRows, columns: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Set the rows of `out` of the wanted features to these columns of their correlations with the chosen ones.

        Returns which features (d,) have a correlation near a bound between kinds of paths.
        """
        pieces, bound, doubtful = [], related(chosen.n), np.zeros(len(out), dtype=bool)
        for factor in self.factors:
            places = np.flatnonzero(wanted[factor.features])
            step = self._step(factor, chosen)
            pieces += [(factor, places[some]) for some in slices(0, len(places), step)]

        def correlate(piece: tuple[SelectedFactor, np.ndarray]) -> int:
            factor, places = piece
            found = self._correlation(factor.rows(run_of(places), chosen.directions.dtype), chosen)
            named = factor.features[places]
            out[named] = found[:, columns]
            near = (found > SAME - _DIGITS) | (np.abs(found - bound) < _DIGITS)
            doubtful[named] = near.any(axis=1)
            return len(named)

        # A few products are made before threads have started.
        few, done = len(out) * math.prod(chosen.directions.shape) < _FEW, 0
        for count in parallel_map(correlate, pieces, 1 if few else most_at_once(chosen.directions)):
            done += count
            report_progress("correlating features", done, int(wanted.sum()))
        return doubtful

    def only(self, features: np.ndarray) -> AlignmentCovariance:
        """The same with what the correlations among the named features need, and no more in memory if it is much."""
        if self._small:
            return self
        chosen = [(factor, np.isin(factor.features, features)) for factor in self.factors]
        kept = [factor if some.all() else factor.take(np.flatnonzero(some)) for factor, some in chosen if some.any()]
        return replace(self, factors=tuple(kept))

    def among(self, features: np.ndarray) -> np.ndarray:
        """(k, k) correlations of the named features with each other, as if all had the same view of the response.

        Which view has the smallest p-value is chance, and says nothing about what two features have in common.
        """
        out = np.zeros((len(features), len(features)))
        places = list(slices(0, len(features), _TOGETHER))
        parts = [_thinned(gathered(self.factors, features[some])) for some in places]
        parts = [part._replace(targets=np.full(len(part.targets), parts[0].targets[0])) for part in parts]
        for some, own in zip(places, parts, strict=True):
            for others, theirs in zip(places, parts, strict=True):
                out[some, others] = self._correlation(own, theirs)
        out *= np.outer(self.varies[features], self.varies[features])
        np.fill_diagonal(out, self.varies[features])
        return out

    def _step(self, factor: SelectedFactor, chosen: FactorRows) -> int:
        """Features whose correlations are computed together."""
        numbers = _NUMBERS if on_host(chosen.directions) else 128 * _NUMBERS
        return max(1, numbers // (factor.cross.shape[1] * max(chosen.directions.shape)))

    def _correlation(self, one: FactorRows, other: FactorRows) -> np.ndarray:
        xp = namespace(one.directions)
        products = _squared_products(one, other)
        # Features of one block share a view of the response.
        main, share = self._weights_of(other, str(one.targets[0]))
        # Of two features that miss different rows the trace is taken out of the rows that have both.
        own_rows = one.counts if isinstance(one.counts, int) else one.counts[:, None]
        shared = (one.shared_rows(other) - 1.0) / ((own_rows - 1.0) * (other.counts - 1.0))
        covariance = (products - one.trace[:, None] * other.trace[None, :] * shared) * main
        own = [self._variances(part) for part in (one, other)]
        if one.n <= _FEW_ROWS:
            covariance += share * (one.rest() @ xp.matrix_transpose(other.rest()))
        scale = own[0][:, None] * own[1][None, :]
        positive = scale > 0
        correlation = xp.where(positive, covariance / xp.sqrt(xp.where(positive, scale, 1.0)), 0.0)
        return to_numpy(xp.clip(correlation, -1.0, 1.0))

    def _variances(self, part: FactorRows) -> Array:
        """(b,) variances of T, on the scale of the covariances."""
        main, share = self._weights_of(part)
        variances = (part.square - part.trace**2 / (part.counts - 1)) * main
        if part.n <= _FEW_ROWS:
            rest = part.rest()
            variances = variances + share * namespace(rest).sum(rest * rest, axis=1)
        return variances

    def _weights_of(self, part: FactorRows, target: str | None = None) -> tuple[Array, Array]:
        """The two `_weights` of features with one whose view of the response is `target`, or with themselves.

        Arrays with an entry for each feature, or with one where all of them have the same view.
        """
        names = part.targets.tolist()
        names = names if len(set(names)) > 1 else names[:1]
        main, share = np.array([self._weights[name if target is None else target, name] for name in names]).T
        return asarray_like(main, part.directions), asarray_like(share, part.directions)

    @cached_property
    def _weights(self) -> dict[tuple[str, str], list[float]]:
        """Weights of tr(K_i K_j) and of the diagonals in the covariance of T_i and T_j, by views of the response."""
        views = self.response.views
        pairs = {(name, other): self._second(views[name], views[other]) for name in views for other in views}
        weights = {names: moment_matrix(2, self.row_count) @ second for names, second in pairs.items()}
        largest = max(float(both[0]) for both in weights.values())
        # A constant response gives no covariance.
        return {names: (both / largest if largest > 0 else 0.0 * both).tolist() for names, both in weights.items()}

    def _second(self, one: ResponseView, other: ResponseView) -> np.ndarray:
        """(2,) invariants of second order of two views of the response."""
        xp, counts = namespace(self.response.counts), self.response.counts
        inner = one.inner(other, counts)
        products = float(xp.sum(inner * inner)) - float(one.own.trace * other.own.trace) / (self.response.n - 1)
        return np.array([products, float(xp.sum(counts * one.fitted.rest * other.fitted.rest))])

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Normal draws from the correlation matrix, or for many features from a random sketch of it.

        With a, b normal vectors, a'K_i b has covariance tr(K_i K_j) over features.
        """
        d = len(self.varies)
        if d <= _SKETCH:
            return DenseCovariance(self.columns(np.arange(d))).sample(size, rng)
        sketch = np.empty((_SKETCH, d))
        beginning = self.factors[0].rows(slice(0, 1)).directions
        rows = beginning.shape[1]
        noise = rng.standard_normal((2, rows, _SKETCH)).astype(dtype_of(beginning))
        first, second = (asarray_like(part, beginning) for part in noise)
        for factor in self.factors:
            step = max(1, _NUMBERS // (factor.cross.shape[1] * max(_SKETCH, rows)))
            for part in slices(0, len(factor.features), step):
                own = factor.rows(part)
                products = own.sums((own.directions @ first) * (own.directions @ second), 0)
                sketch[:, factor.features[part]] = to_numpy(products).T
        norm = np.sqrt((sketch**2).sum(axis=0))
        sketch *= np.divide(self.varies, norm, out=np.zeros(d), where=norm > 0)
        return FactorCovariance(sketch).sample(size, rng)


def _squared_products(one: FactorRows, other: FactorRows) -> Array:
    """(b, k): tr(K_i K_j) of features i and j."""
    inner = one.directions @ namespace(one.directions).matrix_transpose(other.directions)
    inner *= inner
    return other.sums(one.sums(inner, 0), 1)


def _thinned(part: FactorRows) -> FactorRows:
    """The same features at evenly spaced rows, where there are many."""
    step = -(-part.n // _THINNED)
    if step == 1:
        return part
    directions, present = part.directions[:, ::step], None if part.present is None else part.present[:, ::step]
    if present is None:
        directions = directions - namespace(directions).mean(directions, axis=1, keepdims=True)
    return FactorRows(directions, part.ranks, *norms_of(directions, part.ranks), part.targets, present)
