"""The complete estimator: all rows meet all rows, and the null law needs no resampling.

For every feature T = tr(Kc Lc), with Kc and Lc the centred Gram matrices of the feature and of the response; for two
samples the response is the sample label, which makes T the squared MMD of all rows, so one engine serves MMD and HSIC
and unequal sizes come free. T is turned into a normal score through its permutation law (`kernsift.permutation`). The
correlation between the scores of two null features is that of their T over permutations, which for large n is the
alignment of their Gram matrices.

**Adaptive bandwidth.** One kernel misses shapes, so each feature is tested under several pairs of a view of the
feature and a view of the response (`kernsift.views`). The smallest of the weighted p-values is turned back into one
normal score with the joint normal law of the pairs' scores, their correlations again those over permutations; the pair
that won represents the feature from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr

from kernsift import threads
from kernsift.arrays import Array, namespace, to_numpy
from kernsift.blocks import Block, blocks_of
from kernsift.cluster import spread
from kernsift.enumeration import ViewedFeature, enumerated_log_pvalue, few_outcomes, fisher_scores
from kernsift.factors import GROUP_ROWS, View
from kernsift.grids import Grid, blocks_at_once, fit_grid, parts_of, rows_to_sort
from kernsift.intervals import CombinedEffects
from kernsift.kernels import FeatureKernels, Gaussian
from kernsift.permutation import (
    gamma_score,
    limit_weights,
    moment_matrix,
    moments,
    score_of,
    spectral_score,
    union_score,
    value_of,
)
from kernsift.progress import tell
from kernsift.scores import EffectSizes, Scores
from kernsift.statistics.alignment import AlignmentCovariance
from kernsift.statistics.effect_views import MeasuredEffects, combined, point_effects, view_effects
from kernsift.statistics.paths import ScoreLaws
from kernsift.statistics.responses import Meeting, Response, ResponseView, label_response, table_response
from kernsift.statistics.selected_factor import SelectedFactor, rows_to_align
from kernsift.tables import Table, stack
from kernsift.tabulation import Tabulation, joined, tabulate
from kernsift.views import FittedView, fitted_views

# The spread of a score is estimated; dependence that sits in one direction can make it smaller than 1, but not vanish.
_LEAST_SPREAD = 0.5


def complete_mmd(
    X: Table, Y: Table, kernels: FeatureKernels, *, adaptive: bool = False, rng: np.random.Generator
) -> Scores:
    """Normal scores of the MMD between the samples, from all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.kernels import fit_kernels
    >>> from kernsift.tables import as_table
    >>> rng = np.random.default_rng(0)
    >>> X, Y = as_table(rng.normal(size=(200, 3))), as_table(rng.normal([0, 1, 0], 1, size=(200, 3)))
    >>> scores = complete_mmd(X, Y, fit_kernels(X, rng=rng), rng=rng)
    >>> int(scores.estimate.argmax())
    1
    """
    table = stack([X, Y])
    return _complete(table, label_response(X.n, Y.n, table.like, _several(kernels, adaptive)), kernels, rng)


def complete_hsic(
    X: Table,
    y: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    *,
    adaptive: bool = False,
    rng: np.random.Generator,
) -> Scores:
    """Normal scores of the HSIC with the response, from all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.kernels import fit_kernels
    >>> from kernsift.tables import as_table
    >>> rng = np.random.default_rng(0)
    >>> X = as_table(rng.normal(size=(300, 3)))
    >>> y = as_table(np.abs(X.values[:, [1]]))
    >>> scores = complete_hsic(X, y, fit_kernels(X, rng=rng), fit_kernels(y, rng=rng), rng=rng)
    >>> int(scores.estimate.argmax())
    1
    """
    adaptive = _several(kernels, adaptive)
    return _complete(X, table_response(y, response_kernels, rng, adaptive), kernels, rng)


def _several(kernels: FeatureKernels, adaptive: bool) -> bool:
    """Whether features are tested under several views: those are made of the Gaussian kernel."""
    return adaptive and isinstance(kernels.kernel, Gaussian)


class Laws(NamedTuple):
    """T of some features and what is known of its law.

    `size` is tr(K^2) and `target` tr(L^2); `influence` the variance of T that the rows' influence 2 f' C g amounts to,
    C = F G' the cross-covariance, which is what T varies by when there is dependence.
    """

    statistic: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    skewness: np.ndarray
    size: np.ndarray
    target: np.ndarray
    influence: np.ndarray

    @property
    def standardised(self) -> np.ndarray:
        varies = self.sd > 0
        return np.where(varies, (self.statistic - self.mean) / np.where(varies, self.sd, 1.0), 0.0)


class Look(NamedTuple):
    """The statistic of some features under one pair of views.

    `target` is the view of the response; `cross` (b, m, p) has the cross-covariances of the feature's directions with
    those of the response.
    """

    fitted: FittedView
    target: ResponseView
    laws: Laws
    cross: Array

    @property
    def view(self) -> View:
        return self.fitted.view


def look_at(fitted: FittedView, meeting: Meeting, response_view: str = "plain") -> Look:
    """T of features under one pair of views, and its law."""
    response, (view, own, _) = meeting.response, fitted
    target = response.views[response_view]
    xp, n = namespace(view.factor), response.n
    cross = view.factor @ meeting.sums[response_view]
    mean, sd, skewness = moments(n, own, target.own)
    influence = 4.0 * n * to_numpy(meeting.variance(xp.matrix_transpose(view.factor) @ cross, response_view))
    statistic = to_numpy(xp.sum(cross**2, axis=(1, 2)))
    size = own.second[:, 0] + own.trace**2 / (n - 1)
    target_size = np.full(len(size), target.own.second[0] + target.own.trace**2 / (n - 1))
    return Look(fitted, target, Laws(statistic, mean, sd, skewness, size, target_size, influence), cross)


def scores_of(looks: Sequence[Look]) -> np.ndarray:
    """(looks, b) normal scores of T."""
    weights, counts = [], []
    for look in looks:
        # The eigenvalues; any will do where nothing varies.
        sizes = np.where((look.laws.sd > 0)[:, None], to_numpy(look.view.sizes), 1.0)
        weight, count = limit_weights(sizes, look.target.sizes)
        weights.append(weight)
        counts.append(count)
    score = spectral_score(
        np.concatenate([look.laws.standardised for look in looks]),
        np.concatenate([look.laws.skewness for look in looks]),
        np.concatenate(weights),
        np.concatenate(counts),
    )
    varies = np.array([look.laws.sd > 0 for look in looks])
    return np.where(varies, score.reshape(varies.shape), 0.0)


def best_of(
    looks: Sequence[Look], scores: np.ndarray, counts: Array, response: Response
) -> tuple[np.ndarray, np.ndarray]:
    """One score from the scores (looks, b) of the looks at each feature, and which of them it comes from."""
    weights = np.array([pair.weight for pair in response.pairs])
    smallest = log_ndtr(-scores) - np.log(weights)[:, None]
    # A feature that a view cannot tell apart from a constant has no score there.
    varies = np.array([look.laws.sd > 0 for look in looks])
    winner = np.where(varies, smallest, np.inf).argmin(axis=0)
    if len(looks) == 1:
        return scores[0], winner
    return union_score(scores, weights, correlations_of(looks, counts, response)), winner


def correlations_of(looks: Sequence[Look], counts: Array, response: Response) -> np.ndarray:
    """(looks, looks, b) correlations of T under different pairs of views, over permutations of the rows."""
    count, b, n = len(looks), len(looks[0].laws.sd), response.n
    matrix = moment_matrix(2, n)
    out = np.ones((count, count, b))
    for i, one in enumerate(looks):
        for j, other in enumerate(looks[:i]):
            ours = _between(one.fitted, other.fitted, counts, n)
            theirs = _between(one.target.fitted, other.target.fitted, response.counts[None, :], n)
            scale = one.laws.sd * other.laws.sd
            covariance = ((ours @ matrix) * theirs).sum(axis=1)
            out[i, j] = out[j, i] = np.clip(np.divide(covariance, scale, out=np.ones(b), where=scale > 0), -1.0, 1.0)
    return out


def _between(one: FittedView, other: FittedView, counts: Array, n: int) -> np.ndarray:
    """(b, 2) the invariants of second order of two views of the same features."""
    if one is other:
        return one.own.second
    xp = namespace(counts)
    inner = (one.view.factor * counts[:, None, :]) @ xp.matrix_transpose(other.view.factor)
    products = to_numpy(xp.sum(inner**2, axis=(1, 2))) - one.own.trace * other.own.trace / (n - 1)
    return np.column_stack([products, to_numpy(xp.sum(counts * one.rest * other.rest, axis=1))])


class _Measured(NamedTuple):
    """All that is kept of a block of features."""

    features: np.ndarray
    score: np.ndarray
    laws: np.ndarray
    effect: np.ndarray
    factors: list[SelectedFactor]


@dataclass(frozen=True)
class Measuring:
    """How blocks of features are measured; all that they share, but for the cells of the response's rows."""

    response: Response
    to_align: np.ndarray | None
    landmarks: np.ndarray
    dtype: Any
    seed: int

    def __call__(self, block: Block) -> list[_Measured]:
        grid = self.begin(block)
        return self.finish(block, grid, [self.count(block, grid)])

    def begin(self, block: Block) -> Grid:
        """The points of the features."""
        return fit_grid(block.table, block.own, block.to_sort, rounded=block.kernels.rounds)

    def count(self, block: Block, grid: Grid) -> Tabulation:
        """What the rows of the block amount to."""
        # Without cells every row's code is needed, to look up the response's own row.
        kept = block.within(self.to_align) if block.cells is not None else None
        return tabulate(block.table, block.own, grid, block.cells, self.response.factor.shape[1], kept)

    def finish(self, block: Block, grid: Grid, counted: Sequence[Tabulation]) -> list[_Measured]:
        """The features measured, from what all rows amount to."""
        known = joined(counted)
        response = self.response._replace(cells=block.cells)

        def measure(part: slice) -> _Measured:
            places = block.features[part], block.own[part]
            shared = (block.kernels, response, self.landmarks, self.to_align, self.dtype, self.seed)
            return _measure(grid.part(part), known.part(part), places, *shared)

        rows, memory = (0, None) if block.cells is not None or block.table is None else (response.n, block.table.memory)
        # In a thread of its own these are done one after the other; a block from a file has all threads.
        return list(threads.spread(measure, parts_of(block.features, grid.points, rows, memory)))


@dataclass(frozen=True)
class EffectMeasuring(Measuring):
    """How the laws behind the effects of features are measured; `score` (d,) are their final scores."""

    score: np.ndarray

    def finish(self, block: Block, grid: Grid, counted: Sequence[Tabulation]) -> list[Any]:
        """The places of the features of each part, and their laws."""
        known = joined(counted)
        response = self.response._replace(cells=block.cells)

        def measure(part: slice) -> tuple[np.ndarray, CombinedEffects]:
            features, some = block.features[part], known.part(part)
            looks = _looks(grid.part(part), some, block.own[part], block.kernels, response, self.landmarks)
            scores = scores_of(looks)
            smooth, _ = best_of(looks, scores, some.counts, response)
            return features, view_effects(looks, scores, smooth, self.score[features], some, response)

        rows, memory = (0, None) if block.cells is not None or block.table is None else (response.n, block.table.memory)
        return list(threads.spread(measure, parts_of(block.features, grid.points, rows, memory)))


def _complete(table: Table, response: Response, kernels: FeatureKernels, rng: np.random.Generator) -> Scores:
    to_sort, to_align = rows_to_sort(table.n, rng), rows_to_align(table.n, rng)
    landmarks = np.sort(rng.choice(table.n, min(table.n, GROUP_ROWS), replace=False))
    measuring = Measuring(
        response._replace(cells=None), to_align, landmarks, table.like.dtype, int(rng.integers(2**32))
    )
    blocks = blocks_of(table, kernels, response.cells, to_sort, runs=True)
    score, effect, laws = np.zeros(table.d), np.zeros(table.d), np.zeros((len(Laws._fields), table.d))
    factors: list[SelectedFactor] = []
    done = 0
    for measured in spread(measuring, blocks, blocks_at_once(table)):
        for part in measured:
            score[part.features], laws[:, part.features] = part.score, part.laws
            effect[part.features] = part.effect
            factors += part.factors
            done += len(part.features)
        tell("scoring features", done, table.d)
    sd = Laws(*laws).sd
    score = np.where(sd > 0, np.minimum(score, response.ceiling), 0.0)

    def effects(features: np.ndarray) -> MeasuredEffects:
        def measure() -> CombinedEffects:
            again = EffectMeasuring(*(getattr(measuring, part.name) for part in fields(measuring)), score[features])
            part = table.select(features)
            found = spread(
                again, blocks_of(part, kernels.select(features), response.cells, to_sort), blocks_at_once(part)
            )
            return combined([pair for pairs in found for pair in pairs], len(features))

        return MeasuredEffects(effect[features], measure)

    known = ScoreLaws(score, *laws[:4])
    cov = AlignmentCovariance(tuple(factors), response, known, to_align)
    return Scores(table.names, score, cov, effects=effects)


def _measure(
    grid: Grid,
    known: Tabulation,
    places: tuple[np.ndarray, np.ndarray],
    kernels: FeatureKernels,
    response: Response,
    landmarks: np.ndarray,
    to_align: np.ndarray | None,
    dtype: Any,
    seed: int,
) -> _Measured:
    features, own = places
    seen = _looks(grid, known, own, kernels, response, landmarks)
    scores = scores_of(seen)
    score, winner = best_of(seen, scores, known.counts, response)
    score = enumerated_scores(known, seen, scores, response, score, seed)
    laws = np.choose(winner, [np.array(look.laws) for look in seen])
    factors = [
        SelectedFactor.of(
            features,
            np.flatnonzero(winner == which),
            known,
            look.view,
            look.cross,
            response.pairs[which].response,
            response,
            to_align,
            dtype,
        )
        for which, look in enumerate(seen)
        if (winner == which).any()
    ]
    return _Measured(features, score, laws, point_effects(seen), factors)


def _looks(
    grid: Grid, known: Tabulation, own: np.ndarray, kernels: FeatureKernels, response: Response, landmarks: np.ndarray
) -> list[Look]:
    """The statistics of a block of features under every pair of views."""
    meeting = Meeting(known, response)
    names = dict.fromkeys(pair.feature for pair in response.pairs)
    views = fitted_views(names, grid, known.counts, response.n, kernels, own, landmarks)
    return [look_at(views[pair.feature], meeting, pair.response) for pair in response.pairs]


def enumerated_scores(
    known: Tabulation, looks: Sequence[Look], scores: np.ndarray, response: Response, score: np.ndarray, seed: int
) -> np.ndarray:
    """Scores with those of features replaced whose permutation law has few outcomes (`kernsift.enumeration`)."""
    if known.joint is None:
        return score
    counts = to_numpy(known.counts)
    used = to_numpy(response.counts) > 0
    cells = to_numpy(response.counts)[used].astype(int)
    out = score.copy()
    if len(cells) == 2:
        out = fisher_scores(to_numpy(known.joint)[:, :, used], out)
    chosen = few_outcomes(counts, cells)
    if not chosen.any():
        return out
    targets = [to_numpy(look.target.factor)[:, used] for look in looks]
    shares = np.array([pair.weight for pair in response.pairs])
    joint, factors = to_numpy(known.joint), [to_numpy(look.view.factor) for look in looks]
    for place in np.flatnonzero(chosen):
        own = counts[place] > 0
        feature = ViewedFeature(
            counts[place, own].astype(int),
            joint[place][np.ix_(own, used)],
            [factor[place][:, own] for factor in factors],
            targets,
            shares,
            log_ndtr(-scores[:, place]),
        )
        out[place] = score_of(np.minimum(enumerated_log_pvalue(feature, seed), -1e-15))
    return out


def effect_sizes(laws: Laws, score: np.ndarray, response: Response) -> EffectSizes:
    """Kernel correlations, corrected for chance: the root of (T - E T) / (sqrt(tr K^2 tr L^2) - E T).

    A score's mean moves with T through the normal score, whose slope turns the spread of T into the score's. Where
    there is no dependence the rows' influence counts the null variance twice, so it is taken off once.
    """
    varies = laws.sd > 0
    sd = np.where(varies, laws.sd, 1.0)
    whole = np.sqrt(laws.size * laws.target) - laws.mean
    # The Pearson III law is close enough here, and quick to invert; what it differs by at the observed T goes with it.
    offset = gamma_score(laws.standardised, laws.skewness) - score
    step = 1e-3
    rise = gamma_score(laws.standardised + step, laws.skewness) - gamma_score(laws.standardised - step, laws.skewness)
    spread = rise / (2 * step) * np.sqrt(np.maximum(laws.influence - sd**2, 0.0)) / sd
    centre = gamma_score(np.zeros(len(sd)), laws.skewness)

    def size(standardised: np.ndarray) -> np.ndarray:
        share = np.divide(standardised * sd, whole, out=np.zeros(len(sd)), where=varies & (whole > 0))
        return np.sqrt(np.clip(share, 0.0, 1.0))

    def at(means: np.ndarray) -> np.ndarray:
        # The score of the mean of T exceeds the mean score, by `centre` where there is no dependence and by less and
        # less the further away: so a mean score of 0 is an effect of 0.
        part = np.clip(means / np.maximum(score, 1.0), 0.0, 1.0)
        return size(value_of(means + offset * part + centre / (1.0 + 0.5 * means), laws.skewness))

    return EffectSizes(size(laws.standardised), np.where(varies, np.maximum(spread, _LEAST_SPREAD), 0.0), at)
