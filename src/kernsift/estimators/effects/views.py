"""Effects of the complete estimator: the laws of its statistics under every pair of views."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kernsift.data.tables import spaced_rows
from kernsift.estimators.effects.alternatives import effect_laws
from kernsift.estimators.effects.combined import CombinedEffects, penalties
from kernsift.estimators.effects.family_laws import NullMoments
from kernsift.estimators.responses import Response
from kernsift.estimators.statistics import FittedStatistic, StatisticLaws
from kernsift.execution.arrays import asarray_like, to_numpy
from kernsift.kernels.contingency import Tabulation

# Rows that represent a feature, or a feature and a response, with one point per row, or with points that are counted;
# and rows among which the most extreme ones are looked for.
_ROWS, _RESPONSE_ROWS, _COUNTED_ROWS, _FAR_ROWS = 2**10, 192, 2**16, 2**14
# The most different responses that rows with a point each are merged into.
_FEW_RESPONSES = 64


def point_effects(statistics: Sequence[FittedStatistic]) -> np.ndarray:
    """(b,) the largest effect under any pair of views: the root of (T - E T) / sqrt(A_x A_y).

    A = tr K^2 - (tr K)^2 / (n - 1) is what T - E T would be if the response were the feature: that has effect 1.
    """
    laws = StatisticLaws(*np.array([one.laws for one in statistics]).swapaxes(0, 1))
    products = np.empty_like(laws.size)
    for place, one in enumerate(statistics):
        products[place] = one.fitted.own.second[:, 0] * one.target.own.second[0]
    size = np.maximum(laws.size, 1e-300) * np.maximum(laws.target, 1e-300)
    whole = np.sqrt(np.maximum(products, 0.01 * size))
    varies = laws.sd > 0
    share = np.where(varies, laws.statistic - laws.mean, 0.0) / np.where(varies, whole, 1.0)
    return np.sqrt(np.minimum(np.maximum(share.max(axis=0), 0.0), 1.0))


def view_effects(
    statistics: Sequence[FittedStatistic],
    scores: np.ndarray,
    union: Callable[[np.ndarray], np.ndarray],
    final: np.ndarray,
    known: Tabulation,
    response: Response,
    free: float = 1.0,
) -> CombinedEffects:
    """The laws of a block of features under every pair of views, from their statistics and normal scores (pairs, b).

    `union` gives the combined scores (b,) of scores (pairs, b), before features with few outcomes are enumerated, and
    `final` (b,) are those of the features after that. `free` is the number of degrees of freedom for each row. Rows
    that are centred within strata have fewer of them than rows: the two rows of a pair differ in one number.
    """
    weights = np.array([pair.weight for pair in response.pairs])
    smooth = union(scores)
    taken = penalties(scores, smooth, weights, union)
    # Enumeration lowers a score by the probability of single outcomes, which applies to both ends of an interval.
    stricter = np.minimum(final - smooth, 0.0)
    counts, joint, places, cells = _represented(known, response)
    samples = len(cells) == 2 and joint.shape[2] == 2
    views = []
    for one, score, penalty in zip(statistics, scores, taken, strict=True):
        laws = one.laws
        sd = np.where(laws.sd > 0, laws.sd, 0.0)
        factor, share = _with_size(to_numpy(one.view.at(places)), counts, laws.size)
        target = to_numpy(one.target.at(asarray_like(cells, response.counts)))
        (target,), target_share = _with_size(target[None], joint[:1].sum(axis=1), laws.target[:1])
        extremes = None
        if known.joint is None:
            own, other = _extremes(one, known, response)
            extremes = own * share / free**2, other * float(target_share[0])
        views.append(
            effect_laws(
                factor / free,
                target,
                free * joint,
                NullMoments(laws.statistic, laws.mean, sd, laws.skewness),
                score + stricter,
                penalty - np.column_stack([np.maximum(final - smooth, 0.0), np.zeros(len(final))]),
                samples=samples,
                extremes=extremes,
            )
        )
    return CombinedEffects(tuple(views))


def _represented(
    known: Tabulation, response: Response
) -> tuple[np.ndarray, np.ndarray, np.ndarray | slice, np.ndarray]:
    """Counts (b, G), joint counts (b, G, J), and the points of the features and of the response that they belong to.

    If every row is a point, a subset of the rows is used.
    """
    used = np.flatnonzero(to_numpy(response.counts) > 0)
    if known.joint is not None:
        return to_numpy(known.counts), to_numpy(known.joint)[:, :, used], slice(None), used
    n, b = response.n, known.counts.shape[0]
    own = _distinct_responses(response) if response.cells is None else to_numpy(response.cells)
    # Rows that share points and responses cost nothing but counting.
    rows = spaced_rows(n, _RESPONSE_ROWS if own is None else _ROWS if known.codes is None else _COUNTED_ROWS)
    if own is None:
        cells, columns = rows, np.arange(len(rows))
    else:
        # A rare value of the response may be in none of the rows.
        cells, columns = np.unique(own[rows], return_inverse=True)
    places: np.ndarray | slice = rows
    points = np.broadcast_to(np.arange(len(rows)), (b, len(rows)))
    if known.codes is not None:
        places, points = slice(None), to_numpy(known.codes)[:, rows].astype(int)
    size = known.counts.shape[1] if known.codes is not None else len(rows)
    joint = np.zeros((b, size, len(cells)))
    np.add.at(joint, (np.arange(b)[:, None], points, columns[None, :]), n / len(rows))
    return joint.sum(axis=2), joint, places, cells


def _distinct_responses(response: Response) -> np.ndarray | None:
    """(n,) for each row the first one with the same response in all views, where few responses are different.

    Within strata every row has a point of its own, but labels have few values in each stratum.
    """
    factor = np.concatenate([to_numpy(view.factor) for view in response.views.values()])
    factor = np.round(factor / max(np.abs(factor).max(), 1e-300), 10)
    some = factor[:, spaced_rows(response.n, 4 * _FEW_RESPONSES)]
    if np.unique(some, axis=1).shape[1] > _FEW_RESPONSES:
        return None
    _, first, inverse = np.unique(factor, axis=1, return_index=True, return_inverse=True)
    return np.asarray(first[inverse.ravel()]) if len(first) <= _FEW_RESPONSES else None


def _extremes(one: FittedStatistic, known: Tabulation, response: Response) -> tuple[np.ndarray, float]:
    """The largest squared norms (b,) of the factors of the features, and that of the factor of the response."""
    rows = spaced_rows(response.n, _FAR_ROWS)
    if known.codes is None:
        norms = (to_numpy(one.view.at(rows)) ** 2).sum(axis=1)
    else:
        norms = (to_numpy(one.view.at(slice(None))) ** 2).sum(axis=1) * (to_numpy(known.counts) > 0)
    target = to_numpy(response.at(rows, one.target))
    return norms.max(axis=1), float((target**2).sum(axis=0).max())


def _with_size(factor: np.ndarray, counts: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Factors (b, m, G) with mean 0 over the counts (b, G) and tr K^2 = `size` (b,), and what K was multiplied by.

    An effect is relative to tr K^2, which differs between a subset of the rows and all rows.
    """
    centred = factor - factor @ (counts / counts.sum(axis=1, keepdims=True))[:, :, None]
    scatter = (centred * counts[:, None, :]) @ np.swapaxes(centred, 1, 2)
    own = (scatter**2).sum(axis=(1, 2))
    share = np.sqrt(np.divide(size, own, out=np.ones(len(own)), where=(own > 0) & (size > 0)))
    return np.asarray(centred * np.sqrt(share)[:, None, None]), share
