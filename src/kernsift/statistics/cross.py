"""The cross estimator: one half of the rows says where to look, the other half looks.

The second half gives each feature a witness (for MMD the difference of mean embeddings, for HSIC the cross-covariance);
the first half evaluates it. Given the second half the draws are independent, so their covariance is right under the
null and under the alternative alike, which is what confidence intervals need. Scores are Student statistics turned into
normal scores, so that small halves are taken for what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy.special import log_ndtr, stdtr

from kernsift.designs import halves
from kernsift.factors import Factors, fit_factors, fit_looks
from kernsift.kernels import FeatureKernels
from kernsift.permutation import score_of
from kernsift.progress import tell
from kernsift.scores import EffectSizes, FactorCovariance, Scores, supported
from kernsift.statistics.ustatistic import require_rows
from kernsift.tables import Table, stack

Size = Callable[[np.ndarray, np.ndarray], np.ndarray]


def cross_mmd(
    X: Table, Y: Table, kernels: FeatureKernels, *, adaptive: bool = False, rng: np.random.Generator
) -> Scores:
    """Scores of the difference between the samples along a witness learned on other rows."""
    require_rows(X, 4, "X", " for the cross estimator")
    require_rows(Y, 4, "Y", " for the cross estimator")
    table = stack([X, Y])
    x_look, x_learn = halves(X.n, rng)
    y_look, y_learn = (X.n + rows for rows in halves(Y.n, rng))
    first, second = np.empty((len(x_look), table.d)), np.empty((len(y_look), table.d))
    for features, factor in joint_factors(fit_looks(table, kernels, adaptive, rng=rng)):
        witness = factor[:, :, x_learn].mean(axis=2) - factor[:, :, y_learn].mean(axis=2)
        heights = np.einsum("dm,dmn->nd", witness, factor)
        first[:, features], second[:, features] = heights[x_look], heights[y_look]
    return witness_scores(table.names, first, second)


def cross_hsic(
    X: Table,
    y: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    *,
    adaptive: bool = False,
    rng: np.random.Generator,
) -> Scores:
    """Scores of the dependence on the response along a cross-covariance learned on other rows."""
    require_rows(X, 8, "X", " for the cross estimator")
    look, learn = halves(X.n, rng)
    response = fit_factors(y, response_kernels, rng=rng).of(np.array([0]))[0]
    answers = response[:, learn] - response[:, learn].mean(axis=1, keepdims=True)
    held = response[:, look] - response[:, look].mean(axis=1, keepdims=True)
    draws, scale = np.empty((len(look), X.d)), np.empty(X.d)
    for features, factor in joint_factors(fit_looks(X, kernels, adaptive, rng=rng)):
        witness = factor[:, :, learn] @ answers.T  # centred on one side is enough
        seen = factor[:, :, look] - factor[:, :, look].mean(axis=2, keepdims=True)
        predicted = np.swapaxes(witness, 1, 2) @ seen  # (features, response directions, rows)
        draws[:, features] = (predicted * held).sum(axis=1).T
        scale[features] = np.sqrt((predicted**2).mean(axis=2).sum(axis=1) * (held**2).mean(axis=1).sum())
    count = len(look)
    estimate = draws.mean(axis=0)
    part = (draws - estimate) / np.sqrt(count * (count - 1))

    def size(features: np.ndarray, means: np.ndarray) -> np.ndarray:
        whole = scale[features]
        share = np.divide(means, whole, out=np.zeros(len(features)), where=whole > 0)
        return np.clip(share, 0.0, 1.0)

    return _student_scores(X.names, estimate, part, np.full(X.d, count - 1.0), size)


def joint_factors(looks: tuple[Factors, ...]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Features a block at a time with one factor each; two looks are put side by side with equal weight."""
    done, d = 0, looks[-1].table.d
    for features in looks[-1].chunks(np.arange(d)):
        parts = [factors.of(features) for factors in looks]
        if len(parts) > 1:
            # Rows are orthogonal: the norm of a Gram matrix is that of their squared lengths.
            norms = [np.linalg.norm((part**2).sum(axis=2), axis=1) for part in parts]
            parts = [
                part / np.sqrt(np.maximum(norm, 1e-300))[:, None, None] for part, norm in zip(parts, norms, strict=True)
            ]
        yield features, np.concatenate(parts, axis=1)
        done += len(features)
        tell("scoring features", done, d)


def witness_scores(names: tuple[str, ...], first: np.ndarray, seconds: np.ndarray | Sequence[np.ndarray]) -> Scores:
    """Welch statistics of witness values; the effect is the witness's correlation with the sample label.

    `first` (rows, d) are one sample's values for every feature, and their rows are what the scores share; `seconds` are
    the other sample's values feature by feature, or (rows, d) for all of them where those rows are shared as well.
    """
    columns = list(seconds.T) if isinstance(seconds, np.ndarray) else list(seconds)
    counts = np.array([len(column) for column in columns])
    gap = first.mean(axis=0) - np.array([column.mean() for column in columns])
    parts = [_scaled(first)]
    if isinstance(seconds, np.ndarray):
        parts.append(_scaled(seconds))
    else:
        below = np.zeros((counts.sum(), len(columns)))
        for place, (column, end) in enumerate(zip(columns, np.cumsum(counts), strict=True)):
            below[end - len(column) : end, place] = _scaled(column)
        parts.append(below)
    one, two = ((part**2).sum(axis=0) for part in parts)
    freedom = (one + two) ** 2 / np.maximum(one**2 / (len(first) - 1) + two**2 / (counts - 1), np.finfo(float).tiny)
    share = len(first) / (len(first) + counts)
    within = share * first.var(axis=0) + (1 - share) * np.array([column.var() for column in columns])

    def size(features: np.ndarray, gaps: np.ndarray) -> np.ndarray:
        between = (share * (1 - share))[features] * np.maximum(gaps, 0.0) ** 2
        total = within[features] + between
        return np.sqrt(np.divide(between, total, out=np.zeros(len(features)), where=total > 0))

    return _student_scores(names, gap, np.vstack(parts), np.maximum(freedom, 1.0), size)


def _scaled(rows: np.ndarray) -> np.ndarray:
    """Centred rows whose squares add up to the variance of their mean."""
    return (rows - rows.mean(axis=0)) / np.sqrt(len(rows) * (len(rows) - 1))


def _student_scores(
    names: tuple[str, ...], estimate: np.ndarray, part: np.ndarray, freedom: np.ndarray, size: Size
) -> Scores:
    """Normal scores of estimates whose centred, scaled draws are `part`: `part.T @ part` is their covariance."""
    part = supported(part, estimate, len(part))
    error = np.sqrt((part**2).sum(axis=0))
    varies = error > 0
    statistic = np.divide(estimate, error, out=np.zeros(len(error)), where=varies)
    tail = stdtr(freedom, -statistic)
    with np.errstate(divide="ignore"):
        log_tail = np.where(tail > 1e-290, np.log(tail), log_ndtr(-np.abs(statistic)))
    score = score_of(np.minimum(log_tail, -1e-15))
    standard = np.divide(part, error, out=np.zeros_like(part), where=varies)

    def sizes(features: np.ndarray) -> EffectSizes:
        def at(means: np.ndarray) -> np.ndarray:
            return size(features, means * error[features])

        return EffectSizes(size(features, estimate[features]), np.ones(len(features)), at)

    return Scores(names, np.where(varies, score, 0.0), FactorCovariance(standard), effects=sizes)
