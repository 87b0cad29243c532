"""Whole data sets against a reference: each candidate is one feature (the paper, section 5.3).

All candidates are compared with the same reference rows, which makes their scores correlated under the null. With n
reference rows and m_a, m_b candidate rows the two differences of mean embeddings have the correlation
sqrt(m_a m_b / ((n + m_a) (n + m_b))), and quadratic statistics of them its square.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.tables import Table, stack
from kernsift.estimators.cross import joint_factor, mmd_scales
from kernsift.estimators.draws.designs import halves
from kernsift.estimators.effects.combined import CombinedEffects, MeasuredEffects, combined
from kernsift.estimators.effects.views import point_effects, view_effects
from kernsift.estimators.pairs import Pair
from kernsift.estimators.responses import Response, label_response
from kernsift.estimators.scores import DenseCovariance, Scores, ScoreScales
from kernsift.estimators.statistics import (
    FittedStatistic,
    at_distinct_rows,
    best_pairs,
    combined_scores,
    correlations_of,
    enumerated_scores,
    fit_statistics,
    scores_of,
)
from kernsift.estimators.ustatistic import require_rows
from kernsift.estimators.views import fitted, of_usable_size
from kernsift.estimators.witness_scores import witness_scores
from kernsift.execution.arrays import Array, accumulator_dtype, most_at_once, namespace, take, to_numpy
from kernsift.execution.progress import report_progress
from kernsift.execution.threads import parallel_map
from kernsift.kernels.contingency import Tabulation
from kernsift.kernels.fitted import FeatureKernels
from kernsift.kernels.group_views import GroupView
from kernsift.kernels.low_rank import View, centred, group_views, kernel_views, landmark_rows
from kernsift.kernels.quantisation import Grid

Candidates = Mapping[str, Table]


def complete_screen(
    reference: Table,
    candidates: Candidates,
    kernels: FeatureKernels,
    *,
    adaptive: bool = False,
    rng: np.random.Generator,
) -> Scores:
    """Normal scores of every candidate's MMD to the reference, from all rows."""
    table = stack([reference, *candidates.values()])
    whole = _views(table, kernels, adaptive, rng)
    sizes = np.array([table.n for table in candidates.values()])
    first = [view.at(np.arange(reference.n)) for view in whole]
    ends, seed = reference.n + np.cumsum([0, *sizes]), int(rng.integers(2**32))
    measured = _Measured(whole, first, ends, table.values, seed, kernels.kernel.unbounded)
    score, winner, sd, point = (np.zeros(len(sizes)) for _ in range(4))
    gaps = np.empty(len(sizes), dtype=object)
    for place, found in enumerate(parallel_map(measured.score, range(len(sizes)), most_at_once(whole[0].sizes))):
        score[place], gaps[place], winner[place], sd[place], point[place] = found
        report_progress("scoring candidates", place + 1, len(sizes))
    share = sizes / (reference.n + sizes)
    correlation = np.outer(share, share)
    if adaptive:
        correlation *= np.where(winner[:, None] == winner, 1.0, _alignment(*whole))
    np.fill_diagonal(correlation, 1.0)
    correlation *= np.outer(sd > 0, sd > 0)

    def effect_laws(features: np.ndarray) -> CombinedEffects:
        laws = parallel_map(partial(measured.effects, score), features.tolist(), most_at_once(whole[0].sizes))
        return combined(zip(features[:, None], laws, strict=True), features)

    effects = MeasuredEffects.of(point, effect_laws)
    return Scores(tuple(candidates), score, DenseCovariance(correlation), effects=effects, gaps=gaps)


class _Measured(NamedTuple):
    """The statistics of candidates, recomputed at each use: those of all would fill the memory."""

    views: Sequence[View | GroupView]  # views of the rows of the reference and of all candidates
    reference: Sequence[Array]  # the factors (1, m, n) of the reference's rows
    ends: np.ndarray  # (candidates + 1,) the first row of each candidate
    values: Array  # (rows, columns) the rows of the reference and of all candidates
    seed: int  # for sampled outcomes
    unbounded: bool  # whether the kernel is unbounded

    def score(self, place: int) -> tuple[float, np.ndarray | None, int, float, float]:
        """Score, gaps between its log p-values, view, standard deviation and effect of a candidate."""
        statistics, scores, union, label, known = self._statistics(place)
        winner = int(best_pairs(statistics, scores, label)[0])
        rows = np.append(np.arange(self.ends[0]), np.arange(self.ends[place], self.ends[place + 1]))
        outcomes = at_distinct_rows(known, statistics, label, take(self.values, rows, 0), self.unbounded)
        score, (gaps,) = enumerated_scores(outcomes, scores, union(scores), self.seed, self.unbounded)
        sd = float(statistics[winner].laws.sd[0])
        final = min(score[0], label.ceiling) if sd > 0 else 0.0
        return final, gaps, winner, sd, float(point_effects(statistics)[0])

    def effects(self, final: np.ndarray, place: int) -> CombinedEffects:
        """The laws of the effect of a candidate; `final` are the scores of all."""
        statistics, scores, union, label, known = self._statistics(place)
        return view_effects(statistics, scores, union, final[place : place + 1], known, label)

    def _statistics(
        self, place: int
    ) -> tuple[list[FittedStatistic], np.ndarray, Callable[[np.ndarray], np.ndarray], Response, Tabulation]:
        """Statistics and scores under each view, what combines such scores, the response, and counts of the rows."""
        n, rows = self.reference[0].shape[2], np.arange(self.ends[place], self.ends[place + 1])
        label = label_response(n, len(rows), self.views[0].sizes)
        label = label._replace(pairs=tuple(Pair(str(i), "plain", 1 / len(self.views)) for i in range(len(self.views))))
        ones = _ones(label.n, self.views[0].sizes)
        known = Tabulation(ones, None, None)
        views = {}
        for pair, view, first in zip(label.pairs, self.views, self.reference, strict=True):
            factor = namespace(first).concat([first, view.at(rows)], axis=2)
            views[pair.feature] = fitted(centred(factor, ones), ones, label.n)
        statistics = fit_statistics(views, known, label)
        union = partial(combined_scores, statistics, ones, label, correlations_of(statistics, ones, label))
        return statistics, scores_of(statistics), union, label, known


def _views(
    table: Table, kernels: FeatureKernels, adaptive: bool, rng: np.random.Generator
) -> Sequence[View | GroupView]:
    """The factors of all rows under each kernel view, with one point per row."""
    values = table.values
    ones = _ones(table.n, values)
    landmarks = landmark_rows(table.n, rng)
    views = group_views(kernel_views(kernels, adaptive), Grid(values, None), ones, np.array([0]), landmarks)
    return [of_usable_size(view, kernels) for view in views]


def _ones(rows: int, prototype: Array) -> Array:
    return namespace(prototype).ones((1, rows), dtype=accumulator_dtype(prototype), device=prototype.device)


def _alignment(one: View | GroupView, other: View | GroupView) -> float:
    """Cosine between two Gram matrices of the same rows."""
    if isinstance(one, GroupView) and isinstance(other, GroupView):
        between = one.inner(other)
    else:
        between = to_numpy(one.factor[0, ...] @ namespace(one.factor).matrix_transpose(other.factor[0, ...]))
    norms = np.linalg.norm(to_numpy(one.sizes)) * np.linalg.norm(to_numpy(other.sizes))
    return float((between**2).sum() / norms) if norms > 0 else 0.0


def cross_screen(
    reference: Table,
    candidates: Candidates,
    kernels: FeatureKernels,
    *,
    adaptive: bool = False,
    rng: np.random.Generator,
) -> Scores:
    """Scores of every candidate along a witness function fitted on other rows; all share the reference's rows."""
    for name, table in [("reference", reference), *candidates.items()]:
        require_rows(table, 4, name, " for the cross estimator")
    whole = _views(stack([reference, *candidates.values()]), kernels, adaptive, rng)
    factor = to_numpy(joint_factor(whole))[0]
    base_test, base_fit = halves(reference.n, rng)
    first, seconds, scales = [], [], []
    start = reference.n
    for table in candidates.values():
        test, fit = (start + rows for rows in halves(table.n, rng))
        start += table.n
        witness = factor[:, base_fit].mean(axis=1) - factor[:, fit].mean(axis=1)
        first.append(witness @ factor[:, base_test])
        seconds.append(witness @ factor[:, test])
        scales.append(_scales(factor, (base_test, test), (base_fit, fit)))
    return witness_scores(tuple(candidates), np.column_stack(first), seconds, ScoreScales.joined(scales))


def _scales(factor: np.ndarray, *halves: tuple[np.ndarray, np.ndarray]) -> ScoreScales:
    """The scale from a candidate's mean to its effect; each half has rows of the reference and of the candidate."""
    own = np.concatenate([rows for half in halves for rows in half])
    part = factor[:, own] - factor[:, own].mean(axis=1, keepdims=True)

    def share(rows: np.ndarray) -> np.ndarray:
        return np.isin(own, rows)[None, :] / len(rows)

    shares = [(share(one), share(two)) for one, two in halves]
    sizes = [(len(one), len(two)) for one, two in halves]
    return mmd_scales(part[None, ...], np.ones((1, len(own))), shares, sizes)


def screened_by(mmd: Callable[..., Scores]) -> Callable[..., Scores]:
    """A screen with an estimator of two samples: the candidates are features of one call, which share its design."""

    @wraps(mmd)
    def screen(reference: Table, candidates: Candidates, kernels: FeatureKernels, **options: Any) -> Scores:
        one, two = _candidates_as_columns(reference, candidates, options["rng"])
        return mmd(one, two, kernels.select(np.zeros(len(candidates), dtype=int)), **options)

    return screen


def _candidates_as_columns(base: Table, others: Candidates, rng: np.random.Generator) -> tuple[Table, Table]:
    """The reference repeated for each candidate, and the candidates as columns, truncated to the same length."""
    rows = min(table.n for table in others.values())
    parts = [table.part(slice(None), rng.permutation(table.n)[:rows]) for table in others.values()]
    width = int(base.offsets[-1])
    offsets = np.arange(len(others) + 1) * width
    flags = np.zeros(len(others), dtype=bool)
    repeated = base.part(np.tile(np.arange(width), len(others)))
    names = tuple(others)
    columns = namespace(repeated).concat(parts, axis=1)
    return Table(names, repeated, offsets, flags, {}), Table(names, columns, offsets, flags, {})
