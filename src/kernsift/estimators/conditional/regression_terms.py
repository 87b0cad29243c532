"""Functions of confounders that regressions on them are made of.

Linear terms of all columns and indicators of categories; cubic splines of each column; products of the
leading terms of two columns; a wide Gaussian kernel of all columns together, and a narrow one where these are few; and
splines of the directions of z along which the response changes most. These directions are the leading eigenvectors of
the average outer product of the gradients of a kernel ridge regression, whose own metric is that matrix after each
iteration (Radhakrishnan et al. 2024): a response that depends on one combination of five confounders is found from few
rows, which a kernel of five variables would not do. With u the first direction, products of its splines and of the
columns of z are terms as well: f((w + e)'z) = f(w'z) + f'(u) e'z + ..., so that they take out what an error e of the
direction leaves. Narrow kernels of the pairs of columns that explain most of what a sum of curves leaves: a wave along
two of ten confounders is in none of the other terms. Finally, splines of predictions of the leading directions of the
response: where z changes where y is and not its shape, all g(y) have means that are functions of these predictions. And
the leaves of a small regression tree of these directions, for thresholds, at which all curves are inexact, and curves
that differ beyond the leading thresholds, and beyond those at which curves change most.

**Gaps.** A missing category is a category; a missing number is the mean, with an indicator of its own. Features that
miss different rows have terms in common, which are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from kernsift.estimators.conditional.confounders import LEVELS, Confounders

# Columns of the terms: splines of one confounder, all splines, all products, kernel features.
KNOTS, _SPLINES, _PRODUCTS, _KERNEL_FEATURES = 40, 160, 120, 80
# The most leading terms of a confounder that are multiplied with those of another.
_LEADING = 10
# Features of the narrow kernel, its bandwidth in median distances, and up to how many columns it is used.
NARROW_FEATURES, NARROW, NARROW_COLUMNS = 160, 0.25, 3
# Numbers in the basis: 2^26 doubles are 512 MB.
NUMBERS = 2**26
# Weights of the terms: linear ones are as good as unpenalised.
LINEAR = 100.0
# Rows from which directions are learned, iterations, and bandwidths to begin with, in median distances.
_ROWS, _ITERATIONS, _WIDTHS = 700, 3, (1.0, 0.4)
# Directions with less than this share of the largest are not used; nor is an output of which z explains less.
_LEAST_DIRECTION, _LEAST_EXPLAINED, _MOST_DIRECTIONS = 0.05, 0.02, 3
# The share of a metric that stays round, so that no direction is lost for good.
_ROUND = 0.02
# Rows from which on terms are in single precision.
SINGLE = 2**14
# The correlation with its normal scores from which on a column is used as it is; that of a uniform one is 0.977.
_NEARLY_NORMAL = 0.97
# The correlation from which on two columns are the same.
_SAME = 1.0 - 1e-9
# Pairs of confounders: the most that are searched, the neighbours of a row, how many pairs are used, and from which
# standardised statistic on.
_MOST_PAIRS, _NEAR, _PAIRS_USED, _CLEAR = 300, 8, 2, 3.0
# Regression trees: the most leaves, the rows they are fitted to, the least share of these and the fewest units in a
# leaf, how many log(n) / n of the noise a split must explain, and thresholds beyond which curves are others.
_LEAVES, _TREE_ROWS, _LEAST_LEAF, _FEWEST, _SPLIT, _THRESHOLDS = 16, 2**13, 0.02, 5, 4.0, 4
# Thresholds at which curves change: the most, the least share of rows on either side, and from which standardised
# statistic on, the largest of those at all values of a confounder.
_CHANGES, _LEAST_SIDE, _CLEAR_CHANGE = 2, 0.1, 5.0


class _Encoded(NamedTuple):
    """Confounders as numbers: standardised, their normal scores, and indicators (n, q) with their column (q,).

    The scores of a column without heavy tails are its standardised numbers: a function of a combination of confounders
    would not be one of a combination of their ranks.
    """

    numbers: np.ndarray
    scores: np.ndarray
    indicators: np.ndarray
    owner: np.ndarray

    @property
    def joint(self) -> np.ndarray:
        """All of them, for kernels of several columns."""
        return np.hstack([self.scores, self.indicators])


def encode(confounders: Confounders) -> _Encoded:
    """Standardised numbers, normal scores of their ranks, and indicators of categories and gaps."""
    numbers: list[np.ndarray] = []
    scores, indicators, owner = [], [], []
    ranks = [_midranks(column) for column in confounders.values.T[~confounders.categorical]]
    rank = np.sum(ranks, axis=0) if ranks else np.zeros(len(confounders.values))
    for place, (column, categorical) in enumerate(zip(confounders.values.T, confounders.categorical, strict=True)):
        missing = np.isnan(column)
        if categorical:
            codes = np.where(missing, -1.0, column)
            levels, counts = np.unique(codes, return_counts=True)
            # All levels but one, which is what the others are compared with: the commonest, or all of the rarest. Of
            # equally common ones the order is that of their means of the numbers, whatever their codes.
            means = [rank[codes == level].mean() for level in levels]
            order = np.lexsort((np.round(means, 9), -counts))
            for level in levels[order[1:] if len(order) <= LEVELS + 1 else order[:LEVELS]]:
                indicators.append(codes == level)
                owner.append(place)
            continue
        filled = np.where(missing, np.nanmean(column) if not missing.all() else 0.0, column)
        spread = filled.std()
        varies = spread > 1e-12 * np.abs(filled).max(initial=0.0)
        number = (filled - filled.mean()) / (spread if varies else 1.0)
        if any(abs(np.mean(number * other)) > _SAME for other in numbers):
            continue  # the same in other units
        if missing.any() and not missing.all():
            indicators.append(missing)
            owner.append(place)
        if not varies:
            continue
        score = ndtri(_midranks(filled))
        score = score / score.std()
        numbers.append(number)
        scores.append(number if np.mean(number * score) > _NEARLY_NORMAL else score)
    columns = ([part[:, None].astype(float) for part in parts] for parts in (numbers, scores, indicators))
    number, score, flags = (stacked_terms(parts, len(confounders.values)) for parts in columns)
    return _Encoded(number, score, flags - flags.mean(axis=0), np.array(owner, dtype=int))


def _midranks(values: np.ndarray) -> np.ndarray:
    """Midranks in (0, 1)."""
    ordered = np.sort(values)
    return (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / (2.0 * len(values))


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


def products(parts: list[np.ndarray], most: int) -> np.ndarray:
    """(n, m) products of the leading terms of every two parts; none where even one product of each two is too many."""
    n, pairs = len(parts[0]), len(parts) * (len(parts) - 1) // 2
    leading = min(_LEADING, int(np.sqrt(most / pairs))) if pairs else 0
    if leading == 0:
        return np.empty((n, 0))
    found = [
        (parts[i][:, :leading, None] * parts[j][:, None, :leading]).reshape(n, -1)
        for i in range(len(parts))
        for j in range(i)
    ]
    terms = np.hstack(found)
    return np.asarray(terms - terms.mean(axis=0))


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


def leading_directions(
    values: np.ndarray, targets: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray] | None:
    """Directions (p, p) of `values` (n, p) along which E[targets | values] changes, and their shares (p,), descending.

    `targets` are (n, k), each with the weight of its variance. None where nothing of them is explained.
    """
    n, p = values.shape
    rows = rng.choice(n, min(n, _ROWS), replace=False)
    z, y = values[rows], targets[rows] - targets[rows].mean(axis=0)
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
    return vectors[:, ::-1], size[::-1] / size[-1]


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
    """Functions of confounders.

    Attributes
    ----------
    named : (N, q) terms by name.
    models : weights of terms by name.
    parts : (N, q) places of the rows in each confounder.
    spaces : (N, q) places of the rows in which near rows have similar confounders.
    inputs : (N, q) confounders as a scikit-learn regressor takes them.
    """

    named: dict[str, np.ndarray]
    models: list[dict[str, float]]
    parts: list[np.ndarray]
    spaces: tuple[np.ndarray, ...]
    inputs: np.ndarray


def terms_of(confounders: Confounders, targets: np.ndarray, rng: np.random.Generator) -> Terms:
    """Terms of all rows, with directions that the first `targets` (n, k) show which this is called with."""
    if "terms" not in confounders.shared:
        confounders.shared["terms"] = _terms(confounders, targets, rng)
    return confounders.shared["terms"]


def _terms(confounders: Confounders, targets: np.ndarray, rng: np.random.Generator) -> Terms:
    encoded = encode(confounders)
    numbers, scores, indicators, owner = encoded
    n, count = scores.shape
    room = max(16, NUMBERS // n)
    share = min(1.0, room / (_SPLINES + _PRODUCTS + 2 * _KERNEL_FEATURES + NARROW_FEATURES))
    knots = min(KNOTS, int(share * _SPLINES) // max(count, 1))
    curves = [splines(scores[:, j], knots).astype(precision(n)) for j in range(count)]
    own = [j for j in range(count) if numbers[0, j] != scores[0, j]]
    terms = {"linear": np.hstack([scores, numbers[:, own], indicators]), "splines": stacked_terms(curves, n)}
    models = [{"linear": LINEAR}, {"linear": LINEAR, "splines": 1.0}]
    parts = [np.column_stack([scores[:, j], curves[j]]).astype(precision(n)) for j in range(count)]
    parts += [indicators[:, owner == place] for place in np.unique(owner)]
    joint, inputs = encoded.joint, np.hstack([numbers, indicators])
    if len(parts) < 2:
        return Terms(terms, models, [], (joint,) if len(parts) else (), inputs)
    columns = [part[:, :1] for part in parts[:count]] + parts[count:]
    features = max(int(share * _KERNEL_FEATURES), 8)
    terms["products"] = products(parts, int(share * _PRODUCTS))
    terms["kernel"] = kernel_features(joint, features, 1.0, rng)
    models += [
        {"linear": LINEAR, "splines": 1.0, "products": 0.3},
        {"linear": LINEAR, "splines": 0.1, "kernel": 1.0},
    ]
    if 0 < count <= NARROW_COLUMNS:
        terms["narrow"] = kernel_features(joint, min(int(share * NARROW_FEATURES), n // 3), NARROW, rng)
        models.append({"linear": LINEAR, "splines": 0.1, "narrow": 1.0})
    rows = slice(None) if confounders.rows is None else confounders.rows
    found = leading_directions(joint[rows], targets, rng)
    if found is None:
        return Terms(terms, models, columns, (joint,), inputs)
    directions, shares = found
    used = min(max(int((shares > _LEAST_DIRECTION).sum()), 1), _MOST_DIRECTIONS)
    places = joint @ directions[:, :used]
    bent = [splines(places[:, j], knots).astype(precision(n)) for j in range(used)]
    terms["directions"] = stacked_terms(bent, n)
    first = np.column_stack([places[:, 0], bent[0]])[:, : max(int(share * _PRODUCTS) // joint.shape[1], 1)]
    first = first.astype(precision(n))
    terms["errors"] = (first[:, :, None] * joint[:, None, :_PRODUCTS]).astype(first.dtype).reshape(n, -1)
    along = {"directions": 1.0}
    metric = joint @ (directions * np.sqrt(shares))
    if used > 1:
        terms["metric"] = kernel_features(metric, features // 2, 0.6, rng)
        along["metric"] = 0.5
    models += [
        {"linear": LINEAR, **along},
        {"linear": LINEAR, "errors": 0.3, **along},
        {"linear": LINEAR, "splines": 0.3, "kernel": 0.3, **along},
    ]
    return Terms(terms, models, columns, (joint, metric), inputs)


def leading_pairs(parts: Sequence[np.ndarray], left: np.ndarray, rng: np.random.Generator) -> list[tuple[int, int]]:
    """The pairs of confounders, with places (n, q) of the rows, that explain most of what is `left` (n, k).

    The statistic is the sum over rows of `left` times its mean over the nearest rows in the pair; with k neighbours its
    variance is at most 2 m / k for m rows, if `left` does not depend on the confounders and its squared variances add
    up to 1.
    """
    from sklearn.neighbors import NearestNeighbors

    n, pairs = len(left), list(combinations(range(len(parts)), 2))
    rows = np.sort(rng.choice(n, min(n, _ROWS), replace=False))
    if len(parts) < 3 or len(pairs) > _MOST_PAIRS or len(rows) < 8 * _NEAR:
        return []
    own = left[rows] - left[rows].mean(axis=0)
    own = own / max(float(((own**2).mean(axis=0) ** 2).sum()), 1e-300) ** 0.25
    found = np.zeros(len(pairs))
    for place, (one, other) in enumerate(pairs):
        space = np.hstack([parts[one][rows], parts[other][rows]])
        space = space + 1e-6 * rng.standard_normal(space.shape)
        near = NearestNeighbors(n_neighbors=_NEAR, algorithm="kd_tree").fit(space).kneighbors(return_distance=False)
        found[place] = (own * own[near].mean(axis=1)).sum() / np.sqrt(2.0 * len(rows) / _NEAR)
    best = np.argsort(-found, kind="stable")[:_PAIRS_USED]
    return [pairs[place] for place in best if found[place] > _CLEAR]


def tree_terms(
    inputs: np.ndarray,
    targets: np.ndarray,
    left: np.ndarray,
    curves: np.ndarray,
    noise: float,
    rows_in_unit: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Indicators (n, m) of the leaves of a regression tree of `targets` (n, k) on `inputs` (n, q), and curves beyond
    thresholds: their indicators times the leading terms of `curves` (n, p).

    The thresholds are those at which the curves of what a sum of curves has `left` (n, k) change, and then those of the
    leading splits: a tree does not find a threshold at which a wave changes its sign, as means are 0 on both sides. A
    split must explain more of the targets than the best of n splits does by chance, where `noise` is their mean
    square beyond what is known of them.
    """
    from sklearn.tree import DecisionTreeRegressor

    n = len(inputs)
    rows = rng.choice(n, min(n, _TREE_ROWS), replace=False)
    count = len(rows) / rows_in_unit
    least = max(int(_LEAST_LEAF * len(rows)), int(_FEWEST * rows_in_unit))
    tree = DecisionTreeRegressor(
        max_leaf_nodes=_LEAVES,
        min_samples_leaf=max(least, 1),
        min_impurity_decrease=_SPLIT * np.log(count) / count * noise,
        random_state=int(rng.integers(2**31)),
    ).fit(inputs[rows], targets[rows])
    leaves = tree.apply(inputs)
    found, splits = tree.tree_, np.flatnonzero(tree.tree_.children_left >= 0)
    impurity = found.weighted_n_node_samples * found.impurity
    gain = impurity[splits] - impurity[found.children_left[splits]] - impurity[found.children_right[splits]]
    best = splits[np.argsort(-gain, kind="stable")]
    leading = curves[:, np.argsort(-curves[rows].var(axis=0), kind="stable")]
    changes = _changes_of_curves(inputs[rows], leading[rows, : _PRODUCTS // _THRESHOLDS], left[rows], rows_in_unit)
    thresholds = [*changes, *zip(found.feature[best], found.threshold[best], strict=True)][:_THRESHOLDS]
    beyond = np.array([inputs[:, column] > value for column, value in thresholds], precision(n)).reshape(-1, n)
    most = min(_PRODUCTS, NUMBERS // n // 4) // max(len(thresholds), 1)
    bent = (beyond.T[:, :, None] * leading[:, None, :most]).reshape(n, -1)
    return np.equal.outer(leaves, np.unique(leaves)[1:]).astype(precision(n)), bent


def _changes_of_curves(
    inputs: np.ndarray, curves: np.ndarray, left: np.ndarray, rows_in_unit: float
) -> list[tuple[int, float]]:
    """Columns of `inputs` (n, q) and values beyond which the regression of `left` (n, k) on `curves` (n, p) is another.

    The sums of products of `left` and the curves over the rows below a value are compared with those over all rows
    (Zeileis and Hornik 2007). The largest squared length, over its standard deviation, decides.
    """
    n, least = len(inputs), max(int(_LEAST_SIDE * len(inputs)), 1)
    products = (curves[:, :, None] / np.maximum(curves.std(axis=0), 1e-300)[:, None] * left[:, None, :]).reshape(n, -1)
    products -= products.mean(axis=0)
    scatter = products.T @ products * (rows_in_unit / n)
    mean, sd = float(np.trace(scatter)), float(np.sqrt(2.0 * (scatter**2).sum()))
    found = []
    for column, values in enumerate(inputs.T):
        order = np.argsort(values, kind="stable")
        ordered = values[order]
        ends = least + np.flatnonzero(np.diff(ordered[least - 1 : n - least + 1]) > 0)
        if len(ends) and sd > 0:
            squares = (products[order].cumsum(axis=0)[ends - 1] ** 2).sum(axis=1)
            statistics = (squares / (ends * (1.0 - ends / n)) - mean) / sd
            best = int(statistics.argmax())
            middle = float(ordered[ends[best] - 1 : ends[best] + 1].mean())
            found.append((float(statistics[best]), column, middle))
    return [(column, value) for size, column, value in sorted(found, reverse=True)[:_CHANGES] if size > _CLEAR_CHANGE]


def stacked_terms(parts: list[np.ndarray], n: int) -> np.ndarray:
    return np.hstack(parts) if parts else np.empty((n, 0))
