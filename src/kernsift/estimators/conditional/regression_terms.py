"""Terms of regressions on confounders.

Linear terms of all columns and indicators of categories; cubic splines of each column; a wide Gaussian kernel of all
columns together; splines of the directions of z along which the response changes most, and a kernel in their metric.
These directions are the leading eigenvectors of the average outer product of the gradients of a kernel ridge
regression, whose own metric is that matrix after each iteration (Radhakrishnan et al. 2024): a response that depends on
one combination of five confounders is found from few rows, which a kernel of five variables would not do. With u the
first direction, products of its splines and of the columns of z are terms as well: f((w + e)'z) = f(w'z) + f'(u) e'z +
..., so that they take out what an error e of the direction leaves. Narrow kernels of the pairs of columns that explain
most of what a sum of curves leaves: a wave along two of ten confounders is in none of the other terms. For the three
columns that explain most of it, splines of the directions along which it changes: among four or more, a wave along a
combination of three is too fast for directions that are learned from all columns. Features that miss different rows
have terms in common, which are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from kernsift.estimators.conditional.confounders import Confounders
from kernsift.estimators.conditional.encoding import encode

# Columns of the terms: splines of one confounder, all splines, products with the first direction, and features of the
# wide kernel.
KNOTS, _SPLINES, _ERRORS, _KERNEL_FEATURES = 40, 160, 120, 80
# Features of the narrow kernel of a pair, and its bandwidth in median distances.
_NARROW_FEATURES, _NARROW = 160, 0.25
# Numbers in the basis: 2^26 doubles are 512 MB.
NUMBERS = 2**26
# Rows from which directions are learned, iterations, and bandwidths to begin with, in median distances.
_ROWS, _ITERATIONS, _WIDTHS = 700, 3, (1.0, 0.4)
# Directions with less than this share of the largest are not used; nor is an output of which z explains less.
_LEAST_DIRECTION, _LEAST_EXPLAINED, _MOST_DIRECTIONS = 0.05, 0.02, 3
# The share of the identity in a metric, so that no direction is lost.
_ROUND = 0.02
# Rows from which on terms are in single precision.
SINGLE = 2**14
# Pairs of confounders, and groups of three: the most that are searched, the neighbours of a row, how many are used, and
# from which standardised statistic on, which is larger for three, as their directions are then learned as well.
_MOST_GROUPS, _NEAR, _GROUPS_USED, _CLEAR, _VERY_CLEAR = 300, 8, 2, 3.0, 5.0


def splines(values: np.ndarray, knots: int) -> np.ndarray:
    """(n, m) cubic splines of one column beyond its linear part, the smoothest first and with variance 1.

    They are the leading directions of the reproducing kernel of cubic smoothing splines on [0, 1] (Gu 2013, section
    2.3.3) on quantiles of the column; their squared lengths decrease as the penalty on roughness requires.
    """
    n = len(values)
    if knots < 1 or (len(np.unique(values[: 4 * knots + 100])) <= 2 and len(np.unique(values)) <= 2):
        return np.empty((n, 0))
    low, high = values.min(), values.max()
    place = (values - low) / (high - low)
    half = (np.arange((knots + 1) // 2) + 0.5) / ((knots + 1) // 2)
    at = np.unique(np.concatenate([np.quantile(place, half), half]))
    weights, vectors = np.linalg.eigh(_spline_kernel(at[:, None], at[None, :]))
    keep = weights > 1e-8 * weights[-1]
    terms = _spline_kernel(place[:, None], at[None, :]) @ (vectors[:, keep] / np.sqrt(weights[keep]))
    centred = values - values.mean()
    whole = float((terms**2).sum()) / n
    terms -= terms.mean(axis=0)
    terms -= np.outer(centred, centred @ terms / (centred @ centred))
    sizes, vectors = np.linalg.eigh(terms.T @ terms / n)
    sizes, vectors = sizes[::-1], vectors[:, ::-1]
    # Two values up to rounding errors, as predictions from a category with two levels, have a linear part alone.
    keep = sizes > max(1e-7 * sizes[0], 1e-12 * whole)
    return np.asarray(terms @ vectors[:, keep] / np.sqrt(sizes[0]))


def _spline_kernel(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    def second(t: np.ndarray) -> np.ndarray:
        return np.asarray(((t - 0.5) ** 2 - 1.0 / 12.0) / 2.0)

    square = (np.abs(one - other) - 0.5) ** 2
    return second(one) * second(other) - (square * (square - 0.5) + 7.0 / 240.0) / 24.0


def kernel_features(values: np.ndarray, count: int, width: float, rng: np.random.Generator) -> np.ndarray:
    """(n, m) features of a Gaussian kernel of several columns, with total variance 1; `width` in median distances."""
    n = len(values)
    marks = values[rng.choice(n, min(n, max(4 * count, 300)), replace=False)]
    between = squared_distances(marks, marks)
    scale = 2.0 * width**2 * max(float(np.median(between[np.triu_indices(len(marks), 1)])), 1e-12)
    sizes, vectors = np.linalg.eigh(np.exp(-between / scale))
    sizes, vectors = sizes[::-1][:count], vectors[:, ::-1][:, :count]
    keep = sizes > 1e-6 * sizes[0]
    turned = vectors[:, keep] / np.sqrt(sizes[keep])
    values, marks, turned = (part.astype(precision(n)) for part in (values, marks, turned))
    features = np.empty((n, turned.shape[1]), values.dtype)
    step = max(1, 2**20 // len(marks))
    for start in range(0, n, step):
        distances = squared_distances(values[start : start + step], marks)
        distances /= -scale
        features[start : start + step] = np.exp(distances, out=distances) @ turned
    features -= features.mean(axis=0)
    size = (features**2).sum() / n
    return features / np.sqrt(size) if size > 0 else features


def precision(n: int) -> type[np.floating[Any]]:
    """The precision of terms of n rows: its errors are negligible compared with those of a regression."""
    return np.float32 if n > SINGLE else np.float64


def squared_distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(n, m) between the rows of two arrays."""
    found = one @ (-2.0 * other.T)
    found += (one**2).sum(axis=1)[:, None]
    found += (other**2).sum(axis=1)
    return np.maximum(found, 0.0, out=found)


class Directions(NamedTuple):
    """Directions (p, p) of `values` (n, p) along which E[targets | values] changes, and their shares (p,), descending.

    `error` is that of a kernel ridge regression in their metric, by generalised cross-validation.
    """

    values: np.ndarray
    vectors: np.ndarray
    shares: np.ndarray
    error: float

    @property
    def places(self) -> np.ndarray:
        """(n, q) the values along the directions that count."""
        used = min(max(int((self.shares > _LEAST_DIRECTION).sum()), 1), _MOST_DIRECTIONS)
        return self.values @ self.vectors[:, :used]

    @property
    def in_metric(self) -> np.ndarray:
        """(n, p) the values in a metric in which the targets change as fast along all directions."""
        return self.values @ (self.vectors * np.sqrt(self.shares))


def leading_directions(
    candidates: Sequence[np.ndarray],
    targets: np.ndarray,
    rng: np.random.Generator,
    used: slice | np.ndarray = slice(None),
) -> Directions | None:
    """Those directions of several candidates for values (n, p) which have the smallest error.

    They are learned from the rows that are `used`; `targets` are (m, k) there, each with the weight of its variance.
    None where nothing of these is explained.
    """
    rows = rng.choice(len(targets), min(len(targets), _ROWS), replace=False)
    found = [_learn_directions(values, values[used][rows], targets[rows]) for values in candidates]
    return min((one for one in found if one is not None), key=lambda one: one.error, default=None)


def _learn_directions(values: np.ndarray, z: np.ndarray, y: np.ndarray) -> Directions | None:
    """The directions of values (n, p) that targets y (m, k) at some of them, z (m, p), show."""
    p, y = z.shape[1], y - y.mean(axis=0)
    metric = np.eye(p) / p
    widths: tuple[float, ...] = _WIDTHS
    for _ in range(_ITERATIONS):
        size, vectors = np.linalg.eigh(metric)
        turned = z @ (vectors * np.sqrt(np.maximum(size, 0.0)))
        distances = squared_distances(turned, turned)
        distances /= 2.0 * max(float(np.median(distances[np.triu_indices(len(z), 1)])), 1e-12)
        fits = [_gradient_products(np.exp(-distances / width**2), z, y) for width in widths]
        best = int(np.argmin([error for _, error in fits]))
        widths = widths[best : best + 1]
        gradients = metric @ fits[best][0] @ metric
        trace = np.trace(gradients)
        if not trace > 0:
            return None
        metric = (1.0 - _ROUND) * gradients / trace + _ROUND * np.eye(p) / p
    size, vectors = np.linalg.eigh(metric)
    return Directions(values, vectors[:, ::-1], size[::-1] / size[-1], fits[best][1])


def _gradient_products(kernel: np.ndarray, z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """(p, p) average outer product of the gradients, up to the metric and a factor, of the kernel ridge regressions of
    y on z; and their error, by generalised cross-validation.
    """
    rows = len(z)
    sizes, vectors = np.linalg.eigh(kernel)
    sizes = np.maximum(sizes, 0.0)
    coefficients = vectors.T @ y
    total = (coefficients**2).sum(axis=0)
    penalties = np.geomspace(1e-4, 10.0, 15)[:, None] * np.sqrt(rows)
    kept = sizes / (sizes + penalties)
    error = ((1.0 - kept) ** 2) @ coefficients**2 / (1.0 - (kept.sum(axis=1, keepdims=True) + 1.0) / rows) ** 2
    best = error.argmin(axis=0)
    found = np.zeros((z.shape[1],) * 2)
    for j in range(y.shape[1]):
        if error[best[j], j] > (1.0 - _LEAST_EXPLAINED) * total[j]:
            continue
        weighted = kernel * (vectors @ (coefficients[:, j] / (sizes + penalties[best[j]])))
        gradient = weighted @ z - weighted.sum(axis=1)[:, None] * z
        found += gradient.T @ gradient / rows
    return found, float(error[best, np.arange(len(best))].sum())


class Terms(NamedTuple):
    """Functions of confounders: terms (N, q) by name, and what else regressions need.

    `columns` are each confounder (N, q), for pairs of them, of which one alone has none; `spaces` are places (N, q) of
    the rows in which near rows have similar confounders; `inputs` (N, q) are for trees and regressors of scikit-learn.
    """

    named: dict[str, np.ndarray]
    columns: list[np.ndarray]
    spaces: tuple[np.ndarray, ...]
    inputs: np.ndarray


def terms_of(confounders: Confounders, targets: np.ndarray, rng: np.random.Generator) -> Terms:
    """Terms of all rows, with directions that the first `targets` (n, k) show which this is called with."""
    if "terms" not in confounders.shared:
        confounders.shared["terms"] = _terms(confounders, targets, rng)
    return confounders.shared["terms"]


def _terms(confounders: Confounders, targets: np.ndarray, rng: np.random.Generator) -> Terms:
    numbers, scores, indicators, owner = encode(confounders)
    n, count = scores.shape
    share = min(1.0, max(16, NUMBERS // n) / (_SPLINES + _ERRORS + 2 * _KERNEL_FEATURES))
    knots, features = min(KNOTS, int(share * _SPLINES) // max(count, 1)), max(int(share * _KERNEL_FEATURES), 8)
    curves = [splines(column, knots) for column in scores.T]
    others = [j for j in range(count) if numbers[0, j] != scores[0, j]]
    terms = {"linear": np.hstack([scores, numbers[:, others], indicators]), "splines": stacked_terms(curves, n)}
    joint, inputs = np.hstack([scores, indicators]), np.hstack([numbers, indicators])
    columns = [scores[:, [j]] for j in range(count)] + [indicators[:, owner == place] for place in np.unique(owner)]
    if len(columns) < 2:
        return Terms(terms, [], (joint,) if columns else (), inputs)
    terms["kernel"] = kernel_features(joint, features, 1.0, rng)
    rows = slice(None) if confounders.rows is None else confounders.rows
    # A combination of columns with heavy tails may be one of their numbers, or of their normal scores.
    found = leading_directions([joint, inputs] if others else [joint], targets, rng, rows)
    if found is None:
        return Terms(terms, columns, (joint,), inputs)
    places, metric = found.places, found.in_metric
    curves = [splines(column, knots) for column in places.T]
    terms["directions"] = stacked_terms(curves, n)
    first = np.column_stack([places[:, 0], curves[0]])[:, : max(int(share * _ERRORS) // joint.shape[1], 1)]
    terms["errors"] = (first[:, :, None] * found.values[:, None, :_ERRORS]).reshape(n, -1).astype(precision(n))
    if places.shape[1] > 1:
        terms["metric"] = kernel_features(metric, features // 2, 0.6, rng)
    return Terms(terms, columns, (joint, metric), inputs)


def triple_features(
    columns: Sequence[np.ndarray],
    triples: Sequence[tuple[int, ...]],
    left: np.ndarray,
    rows: np.ndarray,
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """(n, m) splines of the directions of three confounders along which what is `left` (n, k) in `rows` changes."""
    parts = []
    for group in triples:
        found = leading_directions([np.hstack([columns[place] for place in group])], left[rows], rng, rows)
        if found is not None:
            parts += [np.column_stack([column, splines(column, KNOTS)]) for column in found.places.T]
    return parts


def pair_features(
    columns: Sequence[np.ndarray], pairs: Sequence[tuple[int, ...]], n: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """(n, m) narrow kernels of pairs of confounders."""
    count = min(_NARROW_FEATURES, n // 3, max(NUMBERS // n // 4, 4))
    return [kernel_features(np.hstack([columns[i], columns[j]]), count, _NARROW, rng) for i, j in pairs]


def leading_triples(parts: Sequence[np.ndarray], left: np.ndarray, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """The three of four or more confounders that explain most, if they are clear; among three there is no choice."""
    return leading_groups(parts, left, rng, 3, _VERY_CLEAR)[:1] if len(parts) > 3 else []


def leading_groups(
    parts: Sequence[np.ndarray], left: np.ndarray, rng: np.random.Generator, size: int = 2, clear: float = _CLEAR
) -> list[tuple[int, ...]]:
    """The pairs of confounders, or groups of another `size`, that explain most of what is `left` (n, k).

    `parts` are their places (n, q). The statistic is the sum over rows of `left` times its mean over the nearest rows
    in the group, and must be more than `clear` standard deviations; with k neighbours its variance is at most 2 m / k
    for m rows, if `left` does not depend on the confounders and its squared variances add up to 1.
    """
    from sklearn.neighbors import NearestNeighbors

    n, groups = len(left), list(combinations(range(len(parts)), size))
    rows = np.sort(rng.choice(n, min(n, _ROWS), replace=False))
    if len(groups) > _MOST_GROUPS or len(rows) < 8 * _NEAR:
        return []
    own = left[rows] - left[rows].mean(axis=0)
    own = own / max(float(((own**2).mean(axis=0) ** 2).sum()), 1e-300) ** 0.25
    found = np.zeros(len(groups))
    for place, group in enumerate(groups):
        space = np.hstack([parts[member][rows] for member in group])
        space = space + 1e-6 * rng.standard_normal(space.shape)
        near = NearestNeighbors(n_neighbors=_NEAR, algorithm="kd_tree").fit(space).kneighbors(return_distance=False)
        found[place] = (own * own[near].mean(axis=1)).sum() / np.sqrt(2.0 * len(rows) / _NEAR)
    best = np.argsort(-found, kind="stable")[:_GROUPS_USED]
    return [groups[place] for place in best if found[place] > clear]


def stacked_terms(parts: list[np.ndarray], n: int) -> np.ndarray:
    """(n, q) terms side by side, in the precision of n rows."""
    return np.hstack(parts).astype(precision(n)) if parts else np.empty((n, 0), precision(n))
