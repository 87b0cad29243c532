"""Whole data sets against a reference: each candidate is one feature (the paper, section 5.3).

All candidates are compared with the same reference rows, which makes their scores correlated under the null. With n
reference rows and m_a, m_b candidate rows the two differences of mean embeddings have the correlation
sqrt(m_a m_b / ((n + m_a) (n + m_b))), and quadratic statistics of them its square.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from kernsift.data.tables import Table, stack
from kernsift.estimators.block import block_mmd
from kernsift.estimators.complete import best_of, fit_statistics, scores_of
from kernsift.estimators.cross import Ratio, mmd_ratio, side_by_side, witness_scores
from kernsift.estimators.designs import halves
from kernsift.estimators.effect_intervals import CombinedEffects
from kernsift.estimators.effect_views import MeasuredEffects, combined, point_effects, view_effects
from kernsift.estimators.incomplete import Design, incomplete_mmd
from kernsift.estimators.linear import linear_mmd
from kernsift.estimators.responses import CrossTable, label_response
from kernsift.estimators.scores import DenseCovariance, Scores
from kernsift.estimators.ustatistic import require_rows
from kernsift.estimators.views import Pair, fitted
from kernsift.execution.arrays import Array, accumulator_dtype, asarray_like, namespace, to_numpy
from kernsift.kernels.contingency import Tabulation
from kernsift.kernels.fitted import FeatureKernels
from kernsift.kernels.low_rank import GROUP_ROWS, View, centred, kernel_views
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
    whole = _views(stack([reference, *candidates.values()]), kernels, adaptive, rng)
    sizes = np.array([table.n for table in candidates.values()])
    ends = reference.n + np.cumsum(sizes)
    score, winner, sd = np.zeros(len(sizes)), np.zeros(len(sizes), dtype=int), np.zeros(len(sizes))
    laws: list[Callable[[], CombinedEffects]] = []
    point = np.zeros(len(sizes))
    pairs = tuple(Pair("", "plain", 1 / len(whole)) for _ in whole)
    for place, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        rows = np.concatenate([np.arange(reference.n), np.arange(end - size, end)])
        label = label_response(reference.n, int(size), whole[0].factor)._replace(pairs=pairs)
        ones = _ones(len(rows), whole[0].factor)
        known = Tabulation(ones, None, None)
        cross_table = CrossTable(known, label)
        statistics = [
            fit_statistics(fitted(centred(_rows(view.factor, rows), ones), ones, label.n), cross_table)
            for view in whole
        ]
        scores = scores_of(statistics)
        smooth, [winner[place]] = best_of(statistics, scores, ones, label)
        sd[place] = statistics[winner[place]].laws.sd[0]
        score[place] = min(smooth[0], label.ceiling) if sd[place] > 0 else 0.0
        [point[place]] = point_effects(statistics)
        laws.append(partial(view_effects, statistics, scores, smooth, score[place : place + 1], known, label))
    share = sizes / (reference.n + sizes)
    correlation = np.outer(share, share)
    if adaptive:
        correlation *= np.where(winner[:, None] == winner, 1.0, _alignment(*whole))
    np.fill_diagonal(correlation, 1.0)
    correlation *= np.outer(sd > 0, sd > 0)

    def effects(features: np.ndarray) -> MeasuredEffects:
        def measure() -> CombinedEffects:
            return combined([(np.array([i]), laws[i]()) for i in features], features)

        return MeasuredEffects(point[features], measure)

    return Scores(tuple(candidates), score, DenseCovariance(correlation), effects=effects)


def _views(table: Table, kernels: FeatureKernels, adaptive: bool, rng: np.random.Generator) -> list[View]:
    """The factors of all rows under each kernel view, with one point per row."""
    values = table.part(slice(None))
    ones = _ones(table.n, values)
    landmarks = np.sort(rng.choice(table.n, min(table.n, GROUP_ROWS), replace=False))
    return [one.view(Grid(values, None), ones, np.array([0]), landmarks) for one in kernel_views(kernels, adaptive)]


def _ones(rows: int, prototype: Array) -> Array:
    return namespace(prototype).ones((1, rows), dtype=accumulator_dtype(prototype), device=prototype.device)


def _rows(factor: Array, rows: np.ndarray) -> Array:
    return namespace(factor).take(factor, asarray_like(rows, factor), axis=2)


def _alignment(one: View, other: View) -> float:
    """Cosine between two Gram matrices of the same rows."""
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
    factor = to_numpy(side_by_side(whole))[0]
    base_test, base_fit = halves(reference.n, rng)
    first, seconds, ratio = [], [], Ratio.empty(len(candidates))
    start = reference.n
    for place, table in enumerate(candidates.values()):
        test, fit = (start + rows for rows in halves(table.n, rng))
        start += table.n
        witness = factor[:, base_fit].mean(axis=1) - factor[:, fit].mean(axis=1)
        values = witness @ factor
        first.append(values[base_test])
        seconds.append(values[test])
        ratio.put(np.array([place]), _ratio(factor, (base_test, test), (base_fit, fit)))
    return witness_scores(tuple(candidates), np.column_stack(first), seconds, ratio)


def _ratio(factor: np.ndarray, *halves: tuple[np.ndarray, np.ndarray]) -> Ratio:
    """The ratio from a candidate's mean to its effect; each half has rows of the reference and of the candidate."""
    own = np.concatenate([rows for half in halves for rows in half])
    part = factor[:, own] - factor[:, own].mean(axis=1, keepdims=True)

    def share(rows: np.ndarray) -> np.ndarray:
        return np.isin(own, rows)[None, :] / len(rows)

    shares = [(share(one), share(two)) for one, two in halves]
    sizes = [(len(one), len(two)) for one, two in halves]
    return mmd_ratio(part[None, ...], np.ones((1, len(own))), shares, sizes)


def linear_screen(
    reference: Table, candidates: Candidates, kernels: FeatureKernels, *, rng: np.random.Generator
) -> Scores:
    """The linear-time MMD of every candidate, on one set of pairs."""
    one, two = _side_by_side(reference, candidates, rng)
    return linear_mmd(one, two, _repeated(kernels, candidates), rng=rng)


def incomplete_screen(
    reference: Table,
    candidates: Candidates,
    kernels: FeatureKernels,
    *,
    r: float = 1.0,
    design: Design = "shared",
    rng: np.random.Generator,
) -> Scores:
    """The incomplete MMD of every candidate, on one design."""
    one, two = _side_by_side(reference, candidates, rng)
    return incomplete_mmd(one, two, _repeated(kernels, candidates), r=r, design=design, rng=rng)


def block_screen(
    reference: Table,
    candidates: Candidates,
    kernels: FeatureKernels,
    *,
    block_size: int | None = None,
    rng: np.random.Generator,
) -> Scores:
    """The block MMD of every candidate, on one set of blocks."""
    one, two = _side_by_side(reference, candidates, rng)
    return block_mmd(one, two, _repeated(kernels, candidates), block_size=block_size, rng=rng)


def _repeated(kernels: FeatureKernels, candidates: Candidates) -> FeatureKernels:
    return kernels.select(np.zeros(len(candidates), dtype=int))


def _side_by_side(base: Table, others: Candidates, rng: np.random.Generator) -> tuple[Table, Table]:
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
