"""Regression on confounders: what remains of the directions of features and of a response once z is taken out.

A conditional test of a feature x and a response y given z needs residuals f(x) - E[f(x) | z] and g(y) - E[g(y) | z] for
all directions f and g of the two kernels. Its p-values hold if the product of the errors of the two regressions is
small beside 1 / n (Shah and Peters 2020), so that the regression decides about the false positives.

**Terms.** Linear terms of all columns and indicators of categories; cubic splines of each column; products of the
leading terms of two columns; a Gaussian kernel of all columns together; and splines of the directions of z along which
the response changes most. These directions are the leading eigenvectors of the average outer product of the gradients
of a kernel ridge regression, whose own metric is that matrix after each iteration (Radhakrishnan et al. 2024): a
response that depends on one combination of five confounders is found from few rows, which a kernel of five variables
would not do.

**Models and penalties.** A model is a set of terms with weights, fitted by ridge regression. For each output the model
and the penalty with the smallest generalised cross-validation error are chosen, and a third of that penalty is used:
errors of the two regressions multiply, so that bias costs more than variance. All models are smoothers of one
orthonormal basis, so that a feature costs one product of its rows with that basis.

**Gaps.** A missing category is a category; a missing number is the mean, with an indicator of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from kernsift.data.columns import Columns, quoted
from kernsift.data.tables import Table
from kernsift.exceptions import InputError
from kernsift.execution.arrays import to_numpy

# Ridge penalties by rows, and how many steps below the best one is used.
_PENALTIES = np.geomspace(1e-6, 10.0, 29)
_STEPS_BELOW = 2
# A model must leave this share of the rows as degrees of freedom.
_LEAST_FREEDOM = 0.3
# Columns of the terms: splines of one confounder, all splines, all products, kernel features; categories of one column.
_KNOTS, _SPLINES, _PRODUCTS, _KERNEL_FEATURES, _LEVELS = 20, 120, 120, 80, 100
_LEADING = 5
# Numbers in the basis: 2^26 doubles are 512 MB.
_NUMBERS = 2**26
# Weights of the terms: linear ones are as good as unpenalised.
_LINEAR = 100.0
# Rows from which directions are learned, iterations, and bandwidths to begin with, in median distances.
_ROWS, _ITERATIONS, _WIDTHS = 700, 3, (1.0, 0.4)
# Directions with less than this share of the largest are not used; nor is an output of which z explains less.
_LEAST_DIRECTION, _LEAST_EXPLAINED, _MOST_DIRECTIONS = 0.05, 0.02, 3
# The share of a metric that stays round, so that no direction is lost for good.
_ROUND = 0.02
_NEGLIGIBLE = 1e-9
# Rows per stratum, on average, from which on strata are a confounder.
_FEW_STRATA = 16


class Confounders(NamedTuple):
    """Columns that are held fixed.

    Attributes
    ----------
    names : of the p columns.
    values : (n, p) numbers, or codes of categories; NaN where missing.
    categorical : (p,) which columns are categories.
    """

    names: tuple[str, ...]
    values: np.ndarray
    categorical: np.ndarray

    @property
    def n(self) -> int:
        return len(self.values)

    def take(self, rows: np.ndarray) -> Confounders:
        return self._replace(values=self.values[rows])


def confounders_of(columns: Columns, keep: np.ndarray) -> Confounders:
    """Confounders from the columns of all rows and which of these (n,) are kept; dates and truth values are numbers."""
    values = to_numpy(columns.values).astype(float)[np.flatnonzero(keep)]
    categorical = np.array([place in columns.levels for place in range(values.shape[1])])
    infinite = [name for name, column in zip(columns.names, values.T, strict=True) if np.isinf(column).any()]
    if infinite:
        raise InputError(f"given: needs finite numbers, but {quoted(infinite)} has infinite ones; replace them.")
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


class Residuals(NamedTuple):
    """(n, m) residuals of m outputs, and how many degrees of freedom (m,) were used up: n - tr((I - S)^2)."""

    values: np.ndarray
    spent: np.ndarray


class _Encoded(NamedTuple):
    """Confounders as numbers: standardised, their normal scores, and indicators (n, q) with their column (q,)."""

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
            # All levels but the commonest, which is what the others are compared with.
            for level in levels[np.argsort(-counts, kind="stable")][1 : _LEVELS + 1]:
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
        numbers.append((filled - filled.mean()) / spread)
        score = ndtri(_midranks(filled))
        scores.append(score / score.std())
    n = confounders.n

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
    at = np.unique(np.quantile(place, (np.arange(knots) + 0.5) / knots))
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

    fourth = np.abs(one - other) - 0.5
    return second(one) * second(other) - (fourth**4 - fourth**2 / 2.0 + 7.0 / 240.0) / 24.0


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
    step = max(1, 2**22 // len(marks))
    parts = [
        np.exp(-squared_distances(values[start : start + step], marks) / scale) @ turned for start in range(0, n, step)
    ]
    features = np.concatenate(parts)
    features -= features.mean(axis=0)
    size = (features**2).sum() / n
    return features / np.sqrt(size) if size > 0 else features


def squared_distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(n, m) between the rows of two arrays."""
    found = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None, :] - 2.0 * one @ other.T
    return np.maximum(found, 0.0)


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


class _Model(NamedTuple):
    """A smoother of the basis: its directions (Q, q) there, and the share (penalties, q) that it keeps of each."""

    directions: np.ndarray
    kept: np.ndarray


def _terms(
    encoded: _Encoded, targets: np.ndarray, rng: np.random.Generator, room: int
) -> tuple[dict[str, np.ndarray], list[dict[str, float]]]:
    """Named terms (n, q), and models as weights of terms; at most about `room` terms in all."""
    share = min(1.0, room / (_SPLINES + _PRODUCTS + 2 * _KERNEL_FEATURES))
    numbers, scores, indicators, owner = encoded
    count = scores.shape[1]
    knots = min(_KNOTS, int(share * _SPLINES) // max(count, 1))
    curves = [splines(scores[:, j], knots) for j in range(count)]
    # Where ranks and values say the same, the column is there once.
    own = [j for j in range(count) if abs(float(np.mean(numbers[:, j] * scores[:, j]))) < 0.999]
    terms = {"linear": np.hstack([scores, numbers[:, own], indicators]), "splines": _stacked(curves, len(scores))}
    models = [{"linear": _LINEAR}, {"linear": _LINEAR, "splines": 1.0}]
    parts = [np.column_stack([scores[:, j], curves[j][:, : _LEADING - 1]]) for j in range(count)]
    parts += [indicators[:, owner == place] for place in np.unique(owner)]
    if len(parts) < 2:
        return terms, models
    joint = encoded.joint
    features = max(int(share * _KERNEL_FEATURES), 8)
    terms["products"] = products(parts, int(share * _PRODUCTS))
    terms["kernel"] = kernel_features(joint, features, 1.0, rng)
    models += [
        {"linear": _LINEAR, "splines": 1.0, "products": 0.3},
        {"linear": _LINEAR, "splines": 0.1, "kernel": 1.0},
    ]
    found = leading_directions(joint, targets, rng)
    if found is None:
        return terms, models
    directions, shares = found
    used = min(max(int((shares > _LEAST_DIRECTION).sum()), 1), _MOST_DIRECTIONS)
    places = joint @ directions[:, :used]
    terms["directions"] = _stacked([splines(places[:, j], knots) for j in range(used)], len(joint))
    along = {"directions": 1.0}
    if used > 1:
        terms["metric"] = kernel_features(joint @ (directions * np.sqrt(shares)), features // 2, 0.6, rng)
        along["metric"] = 0.5
    models += [{"linear": _LINEAR, **along}, {"linear": _LINEAR, "splines": 0.3, "kernel": 0.3, **along}]
    return terms, models


def _stacked(parts: list[np.ndarray], n: int) -> np.ndarray:
    return np.hstack(parts) if parts else np.empty((n, 0))


@dataclass(frozen=True)
class ConfounderRegression:
    """Regressions of any outputs on confounders.

    Attributes
    ----------
    basis : (n, Q) orthonormal columns, centred within strata.
    models : the smoothers to choose from.
    strata : (n,) codes of strata whose means are taken out first; None for the mean of all rows.
    cross_fitted : predictions of outputs by a scikit-learn regressor, each row's from the other rows; None without one.
    """

    basis: np.ndarray
    models: tuple[_Model, ...]
    strata: np.ndarray | None = None
    cross_fitted: CrossFitted | None = None

    @property
    def n(self) -> int:
        return len(self.basis)

    def residuals(self, outputs: np.ndarray) -> Residuals:
        """What is left of outputs (n, m)."""
        outputs = centred_within(outputs, self.strata)
        means = 1.0 if self.strata is None else float(self.strata.max() + 1)
        inner, total = self.basis.T @ outputs, (outputs**2).sum(axis=0)
        error = np.full(outputs.shape[1], np.inf)
        fitted, spent = np.zeros_like(inner), np.full(outputs.shape[1], means)
        for directions, kept in self.models:
            turned = directions.T @ inner
            freedom = self.n - means - kept.sum(axis=1)
            left = total - (2.0 * kept - kept**2) @ turned**2
            validation = np.maximum(left, 1e-12 * total) * self.n / np.maximum(freedom, 1.0)[:, None] ** 2
            validation[freedom < _LEAST_FREEDOM * self.n] = np.inf
            best = validation.argmin(axis=0)
            found = validation[best, np.arange(len(best))]
            better = np.flatnonzero(found < error)
            if len(better):
                error[better] = found[better]
                share = kept[np.maximum(best[better] - _STEPS_BELOW, 0)].T
                fitted[:, better] = directions @ (share * turned[:, better])
                spent[better] = means + (2.0 * share - share**2).sum(axis=0)
        values = outputs - self.basis @ fitted
        if self.cross_fitted is not None:
            others = centred_within(outputs - self.cross_fitted.predictions(outputs), self.strata)
            closer = (others**2).mean(axis=0) < error
            values[:, closer], spent[closer] = others[:, closer], means
        return Residuals(values, spent)


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
    model: Any = None,
) -> ConfounderRegression:
    """The regression on confounders, with directions that the leading outputs `targets` (n, k) of the response show.

    `strata` (n,) are codes whose means are taken out of everything; where they are few, they are a confounder as well,
    as a curve may differ between strata. `model` is a scikit-learn regressor that is tried beside the ridge regression.
    """
    if strata is not None and _FEW_STRATA * (int(strata.max()) + 1) <= confounders.n:
        confounders = Confounders(
            (*confounders.names, "strata"),
            np.column_stack([confounders.values, strata]),
            np.append(confounders.categorical, True),
        )
    encoded = encode(confounders)
    n = confounders.n
    terms, weights = _terms(encoded, targets, rng, max(16, _NUMBERS // n))
    named = {name: centred_within(part, strata) for name, part in terms.items() if part.shape[1]}
    cross_fitted = None if model is None else CrossFitted(model, encoded, int(rng.integers(2**31)))
    if not named:
        return ConfounderRegression(np.empty((n, 0)), (), strata, cross_fitted)
    matrix = np.hstack(list(named.values()))
    widths = np.cumsum([0, *(part.shape[1] for part in named.values())])
    places = {name: slice(widths[i], widths[i + 1]) for i, name in enumerate(named)}
    sizes, vectors = np.linalg.eigh(matrix.T @ matrix)
    keep = sizes > _NEGLIGIBLE * sizes[-1]
    sizes, vectors = sizes[keep], vectors[:, keep]
    basis = matrix @ (vectors / np.sqrt(sizes))
    triangle = np.sqrt(sizes)[:, None] * vectors.T  # matrix = basis @ triangle
    models = []
    for parts in weights:
        scale = np.zeros(matrix.shape[1])
        for name, weight in parts.items():
            if name in places:
                scale[places[name]] = np.sqrt(weight)
        used = scale > 0
        if not used.any():
            continue
        directions, lengths, _ = np.linalg.svd(triangle[:, used] * scale[used], full_matrices=False)
        squares = lengths**2 / n
        models.append(_Model(directions, squares / (squares + _PENALTIES[:, None])))
    return ConfounderRegression(basis, tuple(models), strata, cross_fitted)


@dataclass(frozen=True)
class CrossFitted:
    """Predictions of a scikit-learn regressor for each of five folds from the four others."""

    model: Any
    encoded: _Encoded
    seed: int

    def predictions(self, outputs: np.ndarray) -> np.ndarray:
        """(n, m) predictions of outputs (n, m)."""
        from sklearn.model_selection import KFold, cross_val_predict

        folds = KFold(5, shuffle=True, random_state=self.seed)
        inputs = np.hstack([self.encoded.numbers, self.encoded.indicators])
        return np.column_stack([cross_val_predict(self.model, inputs, column, cv=folds) for column in outputs.T])
