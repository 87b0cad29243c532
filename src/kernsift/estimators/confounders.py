"""Regression on confounders: what remains of the directions of features and of a response once z is taken out.

A conditional test of a feature x and a response y given z needs residuals f(x) - E[f(x) | z] and g(y) - E[g(y) | z] for
all directions f and g of the two kernels. Its p-values hold if the product of the errors of the two regressions is
small beside 1 / n (Shah and Peters 2020), so that the regression decides about the false positives.

**Terms.** Linear terms of all columns and indicators of categories; cubic splines of each column; products of the
leading terms of two columns; a wide Gaussian kernel of all columns together, and a narrow one where these are few; and
splines of the directions of z along which the response changes most. These directions are the leading eigenvectors of
the average outer product of the gradients of a kernel ridge regression, whose own metric is that matrix after each
iteration (Radhakrishnan et al. 2024): a response that depends on one combination of five confounders is found from few
rows, which a kernel of five variables would not do. With u the first direction, products of its splines and of the
columns of z are terms as well: f((w + e)'z) = f(w'z) + f'(u) e'z + ..., so that they take out what an error e of the
direction leaves. Narrow kernels of the pairs of columns that explain most of what a sum of curves leaves: a wave along
two of ten confounders is in none of the other terms. At last, splines of predictions of the leading directions of the
response: where z changes where y is and not its shape, all g(y) have means that are functions of these predictions.

**Models and penalties.** A model is a set of terms with weights, fitted by ridge regression. For each output the model
and the penalty with the smallest generalised cross-validation error are chosen, and a third of that penalty is used:
errors of the two regressions multiply, so that bias costs more than variance. All models are smoothers of one
orthonormal basis, so that a feature costs one product of its rows with that basis.

**Gaps.** A missing category is a category; a missing number is the mean, with an indicator of its own. Features that
miss different rows have terms in common, which are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import ndtri

from kernsift.data.columns import Columns
from kernsift.data.tables import Table
from kernsift.estimators.residual_statistics import ResidualView
from kernsift.exceptions import InputError
from kernsift.execution.arrays import to_numpy
from kernsift.execution.notes import add_note

# Ridge penalties by rows, and how many steps below the best one is used.
_PENALTIES = np.geomspace(1e-6, 10.0, 29)
_STEPS_BELOW = 2
# A model must leave this share of the rows as degrees of freedom; with few rows each counts 1 + _FEW / n times, as
# cross-validation then often chooses a model that fits by chance.
_LEAST_FREEDOM, _FEW = 0.3, 4.0
# Columns of the terms: splines of one confounder, all splines, all products, kernel features; categories of one column.
_KNOTS, _SPLINES, _PRODUCTS, _KERNEL_FEATURES, _LEVELS = 40, 160, 120, 80, 100
_LEADING = 10
# Features of the narrow kernel, its bandwidth in median distances, and up to how many columns it is used.
_NARROW_FEATURES, _NARROW, _NARROW_COLUMNS = 160, 0.25, 3
# Numbers in the basis: 2^26 doubles are 512 MB.
_NUMBERS = 2**26
# Outputs of the response whose predictions are terms.
_PREDICTED = 3
# Weights of the terms: linear ones are as good as unpenalised.
_LINEAR = 100.0
# Rows from which directions are learned, iterations, and bandwidths to begin with, in median distances.
_ROWS, _ITERATIONS, _WIDTHS = 700, 3, (1.0, 0.4)
# Directions with less than this share of the largest are not used; nor is an output of which z explains less.
_LEAST_DIRECTION, _LEAST_EXPLAINED, _MOST_DIRECTIONS = 0.05, 0.02, 3
# The share of a metric that stays round, so that no direction is lost for good.
_ROUND = 0.02
# Directions of the basis below this share of the largest are left out, and so are residuals below this share.
_NEGLIGIBLE, _NOTHING = 1e-8, 1e-9
# Rows from which on terms are in single precision.
_SINGLE = 2**14
# The correlation with its normal scores from which on a column is used as it is; that of a uniform one is 0.977.
_NEARLY_NORMAL = 0.97
# Rows per stratum, on average, from which on strata are a confounder.
_FEW_STRATA = 16
# Neighbours of a row, and rows with neighbours, for few confounders; rows from which traces are computed.
_NEIGHBOURS, _CHECKED_ROWS, _TRACE_ROWS = (1, 4, 16, 64), 2**14, 2**11
# Pairs of confounders: the most that are searched, the neighbours of a row, how many pairs are used, and from which
# standardised statistic on.
_MOST_PAIRS, _NEAR, _PAIRS_USED, _CLEAR = 300, 8, 2, 3.0


class NothingLeft(InputError):
    """The confounders explain everything, or may do so by chance."""


@dataclass(frozen=True, eq=False)
class Confounders:
    """Columns that are held fixed.

    Attributes
    ----------
    names : of the p columns.
    values : (N, p) numbers, or codes of categories; NaN where missing.
    categorical : (p,) which columns are categories.
    rows : (n,) the rows that are used, of all; None for all.
    """

    names: tuple[str, ...]
    values: np.ndarray
    categorical: np.ndarray
    rows: np.ndarray | None = None
    _shared: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def n(self) -> int:
        return len(self.values) if self.rows is None else len(self.rows)

    def take(self, rows: np.ndarray) -> Confounders:
        """The same for some of all rows, with the same terms."""
        return replace(self, rows=rows)

    def within(self, strata: np.ndarray | None) -> Confounders:
        """The same with codes of strata (N,) as one more where these are few, as a curve may differ between strata."""
        if strata is None or _FEW_STRATA * (int(strata.max()) + 1) > len(strata):
            return self
        if "within" not in self._shared:
            self._shared["within"] = Confounders(
                (*self.names, "strata"), np.column_stack([self.values, strata]), np.append(self.categorical, True)
            )
        return self._shared["within"]

    def terms(self, targets: np.ndarray, rng: np.random.Generator) -> Terms:
        """Terms of all rows, with directions that the first `targets` (n, k) show which this is called with."""
        if "terms" not in self._shared:
            self._shared["terms"] = _terms(self, targets, rng)
        return self._shared["terms"]


def confounders_of(columns: Columns, keep: np.ndarray, missing: str = "column") -> Confounders:
    """Confounders from the columns of all rows and which of these (n,) are kept; dates and truth values are numbers.

    Missing values are refused where `missing` is "error".
    """
    values = to_numpy(columns.values).astype(float)[np.flatnonzero(keep)]
    categorical = np.array([place in columns.levels for place in range(values.shape[1])])
    for name, column, is_category in zip(columns.names, values.T, categorical, strict=True):
        absent = int(np.isnan(column).sum())
        if missing == "error" and absent:
            raise InputError(
                f"given: '{name}' has missing values; fill them in, or use missing='drop', which leaves these rows out."
            )
        if absent:
            add_note(
                f"given: {absent:,} of {len(column):,} rows have no '{name}', which cannot be held fixed there: a "
                "feature that follows it may be significant; missing='drop' leaves these rows out."
            )
        elif np.ptp(column) == 0:
            add_note(f"given: '{name}' has one value only.")
        levels = len(np.unique(column[~np.isnan(column)])) if is_category else 0
        if 2 * levels > len(column) > 2:
            raise InputError(
                f"given: '{name}' has {levels} categories in {len(column)} rows, too few rows each to compare within "
                "them; leave it out, or convert it if these are numbers."
            )
        if levels > _LEVELS + 1:
            add_note(
                f"The {_LEVELS} commonest of the {levels} categories of '{name}' in given= are told apart, the "
                f"others are one; strata={name!r} compares within all of them."
            )
    return Confounders(columns.names, values, categorical)


def table_confounders(table: Table, features: np.ndarray, more: Confounders | None = None) -> Confounders:
    """Features of a table as confounders, and `more` beside them."""
    part = table.loaded(features)
    values = to_numpy(part.values).astype(float)
    categorical = np.repeat(part.categorical, np.diff(part.offsets))
    names = tuple(np.repeat(np.array(part.names, dtype=object), np.diff(part.offsets)).tolist())
    if more is None:
        return Confounders(names, values, categorical)
    return Confounders(
        (*more.names, *names), np.hstack([more.values, values]), np.concatenate([more.categorical, categorical])
    )


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
    numbers, scores, indicators, owner = [], [], [], []
    for place, (column, categorical) in enumerate(zip(confounders.values.T, confounders.categorical, strict=True)):
        missing = np.isnan(column)
        if categorical:
            codes = np.where(missing, -1.0, column)
            levels, counts = np.unique(codes, return_counts=True)
            # All levels but one, which is what the others are compared with: the commonest, or all of the rarest.
            order = np.argsort(-counts, kind="stable")
            for level in levels[order[1:] if len(order) <= _LEVELS + 1 else order[:_LEVELS]]:
                indicators.append(codes == level)
                owner.append(place)
            continue
        if missing.any() and not missing.all():
            indicators.append(missing)
            owner.append(place)
        filled = np.where(missing, np.nanmean(column) if not missing.all() else 0.0, column)
        spread = filled.std()
        if spread <= 1e-12 * np.abs(filled).max(initial=0.0):
            continue
        number = (filled - filled.mean()) / spread
        score = ndtri(_midranks(filled))
        score = score / score.std()
        numbers.append(number)
        scores.append(number if np.mean(number * score) > _NEARLY_NORMAL else score)
    n = len(confounders.values)

    def stacked(parts: list[np.ndarray]) -> np.ndarray:
        return np.column_stack(parts).astype(float) if parts else np.empty((n, 0))

    flags = stacked(indicators)
    return _Encoded(stacked(numbers), stacked(scores), flags - flags.mean(axis=0), np.array(owner, dtype=int))


def _midranks(values: np.ndarray) -> np.ndarray:
    """Midranks in (0, 1)."""
    ordered = np.sort(values)
    return (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / (2.0 * len(values))


def splines(values: np.ndarray, knots: int) -> np.ndarray:
    """(n, m) cubic splines of one column beyond its linear part, the smoothest first and with variance 1.

    They are the leading directions of the reproducing kernel of cubic smoothing splines on [0, 1] (Gu 2013, section
    2.3.3) on quantiles of the column; the squared lengths fall off as the penalty on roughness wants them to.
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
    terms -= terms.mean(axis=0)
    terms -= np.outer(centred, centred @ terms / (centred @ centred))
    sizes, vectors = np.linalg.eigh(terms.T @ terms / n)
    sizes, vectors = sizes[::-1], vectors[:, ::-1]
    keep = sizes > 1e-7 * sizes[0]
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
    values, marks, turned = (part.astype(_precision(n)) for part in (values, marks, turned))
    features = np.empty((n, turned.shape[1]), values.dtype)
    step = max(1, 2**20 // len(marks))
    for start in range(0, n, step):
        distances = squared_distances(values[start : start + step], marks)
        distances /= -scale
        features[start : start + step] = np.exp(distances, out=distances) @ turned
    features -= features.mean(axis=0)
    size = (features**2).sum() / n
    return features / np.sqrt(size) if size > 0 else features


def _precision(n: int) -> type[np.floating[Any]]:
    """Of terms of n rows: their errors are of no account beside those of a regression."""
    return np.float32 if n > _SINGLE else np.float64


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


def _terms(confounders: Confounders, targets: np.ndarray, rng: np.random.Generator) -> Terms:
    encoded = encode(confounders)
    numbers, scores, indicators, owner = encoded
    n, count = scores.shape
    room = max(16, _NUMBERS // n)
    share = min(1.0, room / (_SPLINES + _PRODUCTS + 2 * _KERNEL_FEATURES + _NARROW_FEATURES))
    knots = min(_KNOTS, int(share * _SPLINES) // max(count, 1))
    curves = [splines(scores[:, j], knots).astype(_precision(n)) for j in range(count)]
    own = [j for j in range(count) if numbers[0, j] != scores[0, j]]
    terms = {"linear": np.hstack([scores, numbers[:, own], indicators]), "splines": _stacked(curves, n)}
    models = [{"linear": _LINEAR}, {"linear": _LINEAR, "splines": 1.0}]
    parts = [np.column_stack([scores[:, j], curves[j]]).astype(_precision(n)) for j in range(count)]
    parts += [indicators[:, owner == place] for place in np.unique(owner)]
    joint, inputs = encoded.joint, np.hstack([numbers, indicators])
    if len(parts) < 2:
        return Terms(terms, models, [], (joint,) if len(parts) else (), inputs)
    columns = [part[:, :1] for part in parts[:count]] + parts[count:]
    features = max(int(share * _KERNEL_FEATURES), 8)
    terms["products"] = products(parts, int(share * _PRODUCTS))
    terms["kernel"] = kernel_features(joint, features, 1.0, rng)
    models += [
        {"linear": _LINEAR, "splines": 1.0, "products": 0.3},
        {"linear": _LINEAR, "splines": 0.1, "kernel": 1.0},
    ]
    if 0 < count <= _NARROW_COLUMNS:
        terms["narrow"] = kernel_features(joint, min(int(share * _NARROW_FEATURES), n // 3), _NARROW, rng)
        models.append({"linear": _LINEAR, "splines": 0.1, "narrow": 1.0})
    rows = slice(None) if confounders.rows is None else confounders.rows
    found = leading_directions(joint[rows], targets, rng)
    if found is None:
        return Terms(terms, models, columns, (joint,), inputs)
    directions, shares = found
    used = min(max(int((shares > _LEAST_DIRECTION).sum()), 1), _MOST_DIRECTIONS)
    places = joint @ directions[:, :used]
    bent = [splines(places[:, j], knots).astype(_precision(n)) for j in range(used)]
    terms["directions"] = _stacked(bent, n)
    first = np.column_stack([places[:, 0], bent[0]])[:, : max(int(share * _PRODUCTS) // joint.shape[1], 1)]
    first = first.astype(_precision(n))
    terms["errors"] = (first[:, :, None] * joint[:, None, :_PRODUCTS]).astype(first.dtype).reshape(n, -1)
    along = {"directions": 1.0}
    metric = joint @ (directions * np.sqrt(shares))
    if used > 1:
        terms["metric"] = kernel_features(metric, features // 2, 0.6, rng)
        along["metric"] = 0.5
    models += [
        {"linear": _LINEAR, **along},
        {"linear": _LINEAR, "errors": 0.3, **along},
        {"linear": _LINEAR, "splines": 0.3, "kernel": 0.3, **along},
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


def _stacked(parts: list[np.ndarray], n: int) -> np.ndarray:
    return np.hstack(parts) if parts else np.empty((n, 0))


class Neighbours(NamedTuple):
    """Some rows, and the means over the nearest of them.

    Attributes
    ----------
    rows : (m,)
    means : sparse (m, m), one for each number of neighbours: row i has the weights of a mean over the rows nearest to
        row i, without itself.
    """

    rows: np.ndarray
    means: tuple[csr_matrix, ...]

    @classmethod
    def of(cls, spaces: Sequence[np.ndarray], units: np.ndarray | None, rng: np.random.Generator) -> Neighbours:
        """Near rows in spaces (n, q), at most one of each unit, codes (n,)."""
        from sklearn.neighbors import NearestNeighbors

        rows = np.arange(len(spaces[0])) if spaces else np.empty(0, dtype=int)
        if units is not None:
            rows = np.unique(rng.permutation(rows)[np.unique(units[rows], return_index=True)[1]])
        most = _CHECKED_ROWS if spaces and spaces[0].shape[1] <= _NARROW_COLUMNS else _CHECKED_ROWS // 4
        rows = np.sort(rng.choice(rows, min(len(rows), most), replace=False))
        means: list[csr_matrix] = []
        for space in spaces:
            counts = [count for count in _NEIGHBOURS if 8 * count <= len(rows)]
            if not counts:
                continue
            # Rows with the same confounders are near to each other in random order.
            places = space[rows] + 1e-6 * rng.standard_normal((len(rows), space.shape[1]))
            near = NearestNeighbors(n_neighbors=counts[-1]).fit(places).kneighbors(return_distance=False)
            for count in counts:
                ends = np.arange(len(rows) + 1) * count
                weights = np.full(ends[-1], 1.0 / count)
                means.append(csr_matrix((weights, near[:, :count].ravel(), ends), shape=(len(rows), len(rows))))
        return cls(rows, tuple(means))


class _Model(NamedTuple):
    """A smoother of the basis.

    Attributes
    ----------
    directions : (Q, q) its directions in the basis.
    kept : (penalties, q) the share that it keeps of each.
    near : (K, q) sum_ij w_ij b_i b_j for each direction b and each mean w over neighbours.
    """

    directions: np.ndarray
    kept: np.ndarray
    near: np.ndarray


@dataclass(frozen=True)
class ConfounderRegression:
    """Regressions of any outputs on confounders.

    Attributes
    ----------
    basis : (n, Q) orthonormal columns, centred within strata.
    models : the smoothers to choose from.
    neighbours : rows with similar confounders.
    strata : (n,) codes of strata whose means are taken out first; None for the mean of all rows.
    units : (n,) codes of rows that belong together; None where every row is by itself.
    cross_fitted : predictions of outputs by a scikit-learn regressor, each row's from the other rows; None without one.
    """

    basis: np.ndarray
    models: tuple[_Model, ...]
    neighbours: Neighbours
    strata: np.ndarray | None = None
    units: np.ndarray | None = None
    cross_fitted: CrossFitted | None = None

    @property
    def n(self) -> int:
        return len(self.basis)

    def residuals(self, outputs: np.ndarray) -> ResidualView:
        """What is left of outputs (n, m)."""
        outputs = centred_within(outputs, self.strata)
        inner = self._inner(outputs)
        error, model, step = self._choose(outputs, inner)
        fitted, spent = np.zeros_like(inner), np.full(outputs.shape[1], self._means)
        near = np.zeros((len(self.neighbours.means), outputs.shape[1]))
        for place in np.unique(model):
            own, (directions, kept, between) = model == place, self.models[place]
            share = kept[np.maximum(step[own] - _STEPS_BELOW, 0)].T
            fitted[:, own] = directions @ (share * (directions.T @ inner[:, own]))
            taken = 2.0 * share - share**2
            spent[own] += taken.sum(axis=0)
            near[:, own] = between @ taken
        values = outputs - self.basis @ fitted.astype(self.basis.dtype)
        values[:, (values**2).sum(axis=0) <= _NOTHING * (outputs**2).sum(axis=0)] = 0.0
        if self.cross_fitted is not None:
            others = centred_within(outputs - self.cross_fitted.predictions(outputs), self.strata)
            closer = (others**2).mean(axis=0) < error
            values[:, closer], spent[closer], near[:, closer] = others[:, closer], self._means, 0.0
        return ResidualView(values, spent, near)

    def predictions(self, outputs: np.ndarray) -> np.ndarray:
        """(n, m) predictions of outputs (n, m), with the penalties that have the smallest errors.

        Each row's own output counts in its prediction: predictions from the other rows alone would, beside the basis,
        tell the row's error.
        """
        outputs = centred_within(outputs, self.strata)
        inner = self._inner(outputs)
        _, model, step = self._choose(outputs, inner)
        found = np.zeros_like(inner)
        for j, (place, penalty) in enumerate(zip(model, step, strict=True)):
            directions, kept, _ = self.models[place]
            found[:, j] = directions @ (kept[penalty] * (directions.T @ inner[:, j]))
        return np.asarray(self.basis @ found)

    def _inner(self, outputs: np.ndarray) -> np.ndarray:
        """(Q, m) outputs in the basis."""
        return (self.basis.T @ outputs.astype(self.basis.dtype)).astype(float)

    @property
    def _means(self) -> float:
        """How many means are taken out."""
        return 1.0 if self.strata is None else float(self.strata.max() + 1)

    def _choose(self, outputs: np.ndarray, inner: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(m,) smallest errors by generalised cross-validation of centred outputs, and their models and penalties."""
        total, columns = (outputs**2).sum(axis=0), np.arange(outputs.shape[1])
        effect = self._design_effect(outputs, inner)
        error, model, step = np.full(len(columns), np.inf), np.zeros(len(columns), int), np.zeros(len(columns), int)
        for place, (directions, kept, _) in enumerate(self.models):
            turned = directions.T @ inner
            freedom = self.n - self._means - (1.0 + _FEW / self.n) * kept.sum(axis=1)[:, None] * effect
            left = total - (2.0 * kept - kept**2) @ turned**2
            validation = np.maximum(left, 1e-12 * total) * self.n / np.maximum(freedom, 1.0) ** 2
            validation[freedom < _LEAST_FREEDOM * self.n] = np.inf
            best = validation.argmin(axis=0)
            better = validation[best, columns] < error
            error[better], model[better], step[better] = validation[best, columns][better], place, best[better]
        return error, model if self.models else model[:0], step

    def _design_effect(self, outputs: np.ndarray, inner: np.ndarray) -> np.ndarray:
        """(m,) rows for each independent one: how much more the sums over units vary than those of independent rows.

        Beyond the linear terms, as a curve that follows the units would take their errors for its own.
        """
        if self.units is None or not self.models:
            return np.ones(outputs.shape[1])
        linear = self.models[0].directions
        errors = outputs - self.basis @ (linear @ (linear.T @ inner))
        sums = np.column_stack([np.bincount(self.units, column) for column in errors.T])
        squares = np.maximum((errors**2).sum(axis=0), 1e-300)
        return np.clip((sums**2).sum(axis=0) / squares, 1.0, self.n / len(sums))


def centred_within(values: np.ndarray, strata: np.ndarray | None) -> np.ndarray:
    """Values (n, m) less their mean, or less the mean of their stratum."""
    if strata is None:
        return values - values.mean(axis=0)
    counts = np.bincount(strata)
    means = np.column_stack([np.bincount(strata, column) for column in values.T]) / counts[:, None]
    return np.asarray(values - means[strata])


def fit_regression(
    confounders: Confounders,
    targets: np.ndarray,
    rng: np.random.Generator,
    *,
    strata: np.ndarray | None = None,
    units: np.ndarray | None = None,
    model: Any = None,
) -> ConfounderRegression:
    """The regression on confounders, with directions that the leading outputs `targets` (n, k) of the response show.

    `strata` (n,) are codes whose means are taken out of everything, `units` (n,) codes of rows that belong together.
    `model` is a scikit-learn regressor that is tried beside the ridge regression.
    """
    terms, n = confounders.terms(targets, rng), confounders.n
    rows = np.arange(n) if confounders.rows is None else confounders.rows
    neighbours = Neighbours.of([space[rows] for space in terms.spaces], units, rng)
    sizes = {name: part.shape[1] for name, part in terms.named.items() if part.shape[1]}
    cross_fitted = None if model is None else CrossFitted(model, terms.inputs[rows], int(rng.integers(2**31)))
    basis, triangle = np.empty((n, 0), _precision(n)), np.empty((0, 0))
    if not sizes:
        return ConfounderRegression(basis, (), neighbours, strata, units, cross_fitted)
    if (count := sizes.get("linear", 0)) > (1.0 - _LEAST_FREEDOM) * n:
        raise NothingLeft(f"given: {count:,} columns or categories are too many for {n:,} rows; leave some out.")
    basis, triangle = _extended(basis, triangle, [centred_within(terms.named[name][rows], strata) for name in sizes])
    weights = [np.repeat([parts.get(name, 0.0) for name in sizes], list(sizes.values())) for parts in terms.models]
    smoothers = [_smoother(triangle, own, n) for own in weights]
    if terms.spaces:
        first = ConfounderRegression(basis, tuple(smoothers), Neighbours(neighbours.rows, ()), strata, units)
        predicted = first.predictions(targets[:, :_PREDICTED])
        curves = [np.column_stack([part, splines(part, _KNOTS // 2)]) for part in predicted.T if np.ptp(part) > 0]
        additive = replace(first, models=first.models[:2]).predictions(targets[:, :_PREDICTED])
        left = centred_within(targets[:, :_PREDICTED], strata) - additive
        parts, some = [part[rows] for part in terms.parts], neighbours.rows
        count = min(_NARROW_FEATURES, n // 3, max(_NUMBERS // n // 4, 4))
        for one, other in leading_pairs([part[some] for part in parts], left[some], rng):
            curves.append(kernel_features(np.hstack([parts[one], parts[other]]), count, _NARROW, rng))
        bent = centred_within(_stacked(curves, n), strata)
        basis, triangle = _extended(basis, triangle, [bent])
        smoothers = [
            one._replace(directions=np.pad(one.directions, ((0, basis.shape[1] - len(one.directions)), (0, 0))))
            for one in smoothers
        ]
        of_linear, of_most = weights[0], weights[-1]
        smoothers += [_smoother(triangle, np.append(own, np.ones(bent.shape[1])), n) for own in (of_linear, of_most)]
    between = _between(basis, neighbours)
    models = tuple(one._replace(near=_traces(between, one.directions)) for one in smoothers)
    return ConfounderRegression(basis, models, neighbours, strata, units, cross_fitted)


def _extended(basis: np.ndarray, triangle: np.ndarray, parts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """An orthonormal basis (n, Q) of what it was one of and of more terms (n, q), and all terms (Q, P) in it."""
    rest = np.hstack(parts, dtype=basis.dtype, casting="same_kind")
    largest = max(float((rest[:, j] ** 2).sum()) for j in range(rest.shape[1]))
    inner = basis.T @ rest
    if basis.shape[1]:
        rest -= basis @ inner
    gram = np.zeros((rest.shape[1],) * 2)
    for start in range(0, len(rest), _SINGLE):
        some = rest[start : start + _SINGLE].astype(float)
        gram += some.T @ some
    sizes, vectors = np.linalg.eigh(gram)
    keep = sizes > _NEGLIGIBLE * max(float(sizes[-1]), largest)
    sizes, vectors = np.sqrt(sizes[keep]), vectors[:, keep]
    lower = np.zeros((len(sizes), triangle.shape[1]))
    triangle = np.block([[triangle, inner], [lower, sizes[:, None] * vectors.T]])
    new = rest @ (vectors / sizes).astype(basis.dtype)
    return np.hstack([basis, new]) if basis.shape[1] else new, triangle


def _smoother(triangle: np.ndarray, weights: np.ndarray, n: int) -> _Model:
    """Ridge regression on terms (Q, P) of a basis with weights (P,)."""
    used = np.flatnonzero(weights)
    scaled = triangle[:, used] * np.sqrt(weights[used])
    squares, vectors = np.linalg.eigh(scaled.T @ scaled)
    keep = squares > _NEGLIGIBLE * squares[-1:].max(initial=0.0)
    squares, vectors = squares[keep], vectors[:, keep]
    kept = squares / (squares + n * _PENALTIES[:, None])
    return _Model(scaled @ (vectors / np.sqrt(squares)), kept, np.empty((0, len(squares))))


def _between(basis: np.ndarray, neighbours: Neighbours) -> list[np.ndarray]:
    """(Q, Q) sum_ij w_ij b_i b_j' of the rows b of the basis for each mean w over neighbours, from some of the rows."""
    own = basis[neighbours.rows]
    some = own[:_TRACE_ROWS]
    return [some.T @ (mean[:_TRACE_ROWS] @ own) * (len(own) / max(len(some), 1)) for mean in neighbours.means]


def _traces(between: list[np.ndarray], directions: np.ndarray) -> np.ndarray:
    """(K, q) d'B d of directions d, the columns of (Q, q)."""
    found = [((part @ directions) * directions).sum(axis=0) for part in between]
    return np.array(found).reshape(len(between), directions.shape[1])


@dataclass(frozen=True)
class CrossFitted:
    """Predictions of a scikit-learn regressor from inputs (n, q), for each of five folds from the four others."""

    model: Any
    inputs: np.ndarray
    seed: int

    def predictions(self, outputs: np.ndarray) -> np.ndarray:
        """(n, m) predictions of outputs (n, m)."""
        from sklearn.model_selection import KFold, cross_val_predict

        folds = KFold(5, shuffle=True, random_state=self.seed)
        return np.column_stack([cross_val_predict(self.model, self.inputs, column, cv=folds) for column in outputs.T])
