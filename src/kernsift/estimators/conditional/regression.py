"""Regression on confounders: what remains of the directions of features and of a response once z is taken out.

A conditional test of a feature x and a response y given z needs residuals f(x) - E[f(x) | z] and g(y) - E[g(y) | z] for
all directions f and g of the two kernels. Its p-values hold if the product of the errors of the two regressions is
small compared with 1 / n (Shah and Peters 2020), so that the regression decides about the false positives.

**Models and penalties.** A model is a set of terms with weights, fitted by ridge regression. Beside smooth terms
(`kernsift.estimators.conditional.regression_terms`) and those with thresholds (`thresholds`) these are splines of
predictions of the leading directions of the response: if z shifts the distribution of y without changing its shape, the
means of all g(y) are functions of these predictions. For each output the model and the penalty with the smallest
generalised cross-validation error are chosen, and a third of that penalty is used: errors of the two regressions
multiply, so that bias costs more than variance. All models are smoothers of one orthonormal basis, so that a feature
costs one product of its rows with that basis.

**Unequal spread.** A smoother S reduces the expected sum of squared residuals of pure noise with variances v_i by about
2 sum_i S_ii v_i. If the spread is largest at values of z that few rows have, where S_ii is largest too, that is far
more than its degrees of freedom tr S suggest, and generalised cross-validation would choose a model that follows the
noise. So degrees of freedom are counted with the weights v_i / mean(v), with v_i from the residuals of a first choice
that counts all rows alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.tables import spaced_rows
from kernsift.estimators.conditional.confounders import Confounders, NothingLeft
from kernsift.estimators.conditional.regression_terms import (
    KNOTS,
    SINGLE,
    leading_groups,
    leading_triples,
    pair_features,
    splines,
    stacked_terms,
    terms_of,
    triple_features,
)
from kernsift.estimators.conditional.residual_statistics import ResidualView
from kernsift.estimators.conditional.thresholds import products_of_steps, threshold_terms

# Ridge penalties by rows, and how many steps below the best one is used.
_PENALTIES = np.geomspace(1e-6, 10.0, 29)
_STEPS_BELOW = 2
# A model must leave this share of the rows as degrees of freedom; with few rows each counts 1 + _FEW / n times, as
# cross-validation then often chooses a model that fits by chance.
_LEAST_FREEDOM, _FEW = 0.3, 4.0
# Rows from which weights in degrees of freedom are computed, and the largest weight, so that no row decides alone.
_LEVERAGE_ROWS, _MOST_WEIGHT = 2**12, 30.0
# The models, with the weights of their terms: linear ones are as good as unpenalised.
_LINEAR = {"linear": 100.0}
_ADDITIVE = (_LINEAR, {**_LINEAR, "splines": 1.0})
_ALONG = {"directions": 1.0, "metric": 0.5}
_JOINT = {**_LINEAR, "splines": 0.3, "kernel": 0.3, **_ALONG}
_SMOOTH = (*_ADDITIVE, {**_LINEAR, "splines": 0.1, "kernel": 1.0}, {**_LINEAR, "errors": 0.3, **_ALONG}, _JOINT)
# The response is not predicted from leaves: they are chosen where it is high or low by chance, which cross-validation
# does not take into account.
_PREDICTING = (*_SMOOTH, {**_LINEAR, "splines": 1.0, "beyond": 1.0})
_SEARCHED = {"predictions": 1.0, "pairs": 1.0, "triples": 1.0, "products": 100.0}
_MODELS = (
    *_SMOOTH,
    {**_LINEAR, **_SEARCHED},
    {**_JOINT, **_SEARCHED},
    {**_LINEAR, "splines": 1.0, "leaves": 100.0, "beyond": 1.0, "products": 100.0},
)
# Numbers of confounders of which all together may have a product of step functions, beside pairs and triples.
_STEPPED = (3, 4)
# Outputs of the response whose predictions are terms, and the most degrees of freedom, of n, that these may use up.
_PREDICTED, _MOST_SPENT = 3, 0.5
# Directions of the basis below this share of the largest are left out, and so are residuals below this share.
_NEGLIGIBLE, _NOTHING = 1e-8, 1e-9


class _Model(NamedTuple):
    """A smoother S of the basis."""

    directions: np.ndarray  # (Q, q) its directions in the basis
    kept: np.ndarray  # (penalties, q) the share that it keeps of each
    freedom: np.ndarray  # (q,) degrees of freedom, of n, that a direction has; 1 where every row is by itself
    leverage: np.ndarray  # (rows, penalties) S_ii at `_leverage_rows`, scaled to the mean tr S / n


@dataclass(frozen=True)
class ConfounderRegression:
    """Regressions of any outputs on confounders."""

    basis: np.ndarray  # (n, Q) orthonormal columns, centred within strata
    models: tuple[_Model, ...]
    spaces: tuple[np.ndarray, ...]  # (n, q) places in which near rows have similar confounders
    inputs: np.ndarray  # (n, q) standardised numbers, and indicators
    strata: np.ndarray | None = None  # (n,) codes of strata whose means are taken out first, not that of all rows
    units: np.ndarray | None = None  # (n,) codes of rows that belong together
    cross_fitted: Callable[[np.ndarray], np.ndarray] | None = None  # predictions of outputs by a regressor of the user

    @property
    def n(self) -> int:
        return len(self.basis)

    def residuals(self, outputs: np.ndarray, steps_below: int = _STEPS_BELOW) -> ResidualView:
        """What is left of outputs (n, m), with penalties some steps below those with the smallest errors."""
        outputs = centred_within(outputs, self.strata)
        inner = (self.basis.T @ outputs.astype(self.basis.dtype)).astype(float)
        error, model, step = self._choose(outputs, inner)
        means = self._means * _rows_in_unit(self.units)
        fitted, spent = np.zeros_like(inner), np.full(outputs.shape[1], means)
        for place in np.unique(model):
            own, (directions, kept, freedom, _) = model == place, self.models[place]
            share = kept[np.maximum(step[own] - steps_below, 0)].T
            fitted[:, own] = directions @ (share * (directions.T @ inner[:, own]))
            spent[own] += freedom @ (2.0 * share - share**2)
        values = outputs - self.basis @ fitted.astype(self.basis.dtype)
        values[:, (values**2).sum(axis=0) <= _NOTHING * (outputs**2).sum(axis=0)] = 0.0
        if self.cross_fitted is not None:
            others = centred_within(outputs - self.cross_fitted(outputs), self.strata)
            closer = (others**2).mean(axis=0) < error
            values[:, closer], spent[closer] = others[:, closer], means
        return ResidualView(values, spent)

    @property
    def _means(self) -> float:
        """How many means are taken out."""
        return 1.0 if self.strata is None else float(self.strata.max() + 1)

    def _choose(self, outputs: np.ndarray, inner: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(m,) smallest errors by generalised cross-validation of centred outputs, and their models and penalties."""
        total, rows = (outputs**2).sum(axis=0), _leverage_rows(self.n)
        turned = [one.directions.T @ inner for one in self.models]
        effect = (1.0 + _FEW / self.n) * self._design_effect(outputs, inner)
        used = [one.kept.sum(axis=1)[:, None] * effect for one in self.models]
        _, model, step = self._validate(total, turned, used, used)
        fitted, leverage = np.zeros_like(inner), np.zeros((len(rows), outputs.shape[1]))
        for place in np.unique(model):
            own, one = model == place, self.models[place]
            fitted[:, own] = one.directions @ (one.kept[step[own]].T * turned[place][:, own])
            leverage[:, own] = one.leverage[:, step[own]]
        squares = (outputs[rows] - self.basis[rows] @ fitted.astype(self.basis.dtype)) ** 2
        # The squared error of predicting a row from the others.
        deleted = squares / np.maximum(1.0 - leverage, 1e-6) ** 2
        weights = np.minimum(deleted, _MOST_WEIGHT * squares.mean(axis=0))
        weights *= effect / np.maximum(weights.mean(axis=0), 1e-300) * (self.n / len(rows))
        return self._validate(total, turned, used, [one.leverage.T @ weights for one in self.models])

    def _validate(
        self, total: np.ndarray, turned: list[np.ndarray], used: list[np.ndarray], weighted: list[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What `_choose` returns, from sums of squares (m,) and outputs along the directions (q, m) of each model.

        Also from the degrees of freedom (penalties, m) that each uses up, and the same with weights of rows.
        """
        columns = np.arange(len(total))
        error, model, step = np.full(len(columns), np.inf), np.zeros(len(columns), int), np.zeros(len(columns), int)
        for place, (one, own) in enumerate(zip(self.models, turned, strict=True)):
            left = total - (2.0 * one.kept - one.kept**2) @ own**2
            freedom = np.maximum(self.n - self._means - weighted[place], 1.0)
            validation = np.maximum(left, 1e-12 * total) * self.n / freedom**2
            validation[self.n - self._means - used[place] < _LEAST_FREEDOM * self.n] = np.inf
            best = validation.argmin(axis=0)
            better = validation[best, columns] < error
            error[better], model[better], step[better] = validation[best, columns][better], place, best[better]
        return error, model if self.models else model[:0], step

    def _design_effect(self, outputs: np.ndarray, inner: np.ndarray) -> np.ndarray:
        """(m,) rows for each independent one: how much more the sums over units vary than those of independent rows.

        Only beyond the linear terms, because a curve that follows the units would fit their errors.
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
    sums = np.reshape([np.bincount(strata, column) for column in values.T], (values.shape[1], len(counts)))
    return np.asarray(values - (sums / counts).T[strata])


def fit_regression(
    confounders: Confounders,
    targets: np.ndarray,
    rng: np.random.Generator,
    *,
    values: np.ndarray | None = None,
    strata: np.ndarray | None = None,
    units: np.ndarray | None = None,
    model: Any = None,
) -> ConfounderRegression:
    """The regression on confounders, with directions that the leading outputs `targets` (n, k) of the response show.

    `values` (n, 1) are those of a response of numbers: its outputs under a bounded kernel show little of large ones.
    `strata` (n,) are codes whose means are taken out of everything, `units` (n,) codes of rows that belong together.
    `model` is a scikit-learn regressor that is compared with the ridge regression.
    """
    shared, n = terms_of(confounders, targets, rng), confounders.n
    rows = slice(None) if confounders.rows is None else confounders.rows
    terms = {name: centred_within(part[rows], strata) for name, part in shared.named.items()}
    if (count := terms["linear"].shape[1]) > (1.0 - _LEAST_FREEDOM) * n:
        raise NothingLeft(f"given: {count:,} columns or categories are too many for {n:,} rows; leave some out.")
    spaces, inputs = tuple(space[rows] for space in shared.spaces), shared.inputs[rows]
    fit = partial(_ridge_regression, spaces=spaces, inputs=inputs, strata=strata, units=units)
    if spaces:
        leading = centred_within(targets[:, :_PREDICTED], strata)
        left = fit(terms, _ADDITIVE).residuals(leading, steps_below=0).values
        smooth = np.hstack([terms["linear"], terms["splines"]])
        in_unit = _rows_in_unit(units)
        leaves, beyond = threshold_terms(inputs, leading, left, smooth, in_unit, rng)
        terms |= {"leaves": centred_within(leaves, strata), "beyond": centred_within(beyond, strata)}
        columns, apart = [part[rows] for part in shared.columns], one_row_of_each_unit(n, units, rng)
        added = {"predictions": _predictions(fit(terms, _PREDICTING), leading, values)}
        places = [part[apart] for part in columns]
        pairs = leading_groups(places, left[apart], rng)
        added["pairs"] = pair_features(columns, pairs, n, rng)
        triples = leading_triples(places, left[apart], rng)
        added["triples"] = triple_features(columns, triples, left, apart, rng)
        groups = [*pairs, *triples, *([range(len(columns))] if len(columns) in _STEPPED else [])]
        added["products"] = products_of_steps([[columns[j] for j in group] for group in groups], left, in_unit)
        terms |= {name: centred_within(stacked_terms(parts, n), strata) for name, parts in added.items()}
    found = fit(terms, _MODELS)
    if model is None:
        return found
    return replace(found, cross_fitted=partial(_cross_fitted, model, inputs, int(rng.integers(2**31))))


def _predictions(regression: ConfounderRegression, leading: np.ndarray, values: np.ndarray | None) -> list[np.ndarray]:
    """(n, q) curves of each prediction of the leading outputs (n, k), and of the values (n, 1), of a response."""
    if values is not None:
        numbers = centred_within(values, regression.strata)
        leading = np.column_stack([leading, numbers * (leading[:, 0].std() / max(float(numbers.std()), 1e-300))])
    # Each row's own output counts in its prediction: predictions from the other rows alone, together with the basis,
    # would reveal the row's error.
    residuals = regression.residuals(leading)
    predicted = leading - residuals.values
    # A prediction that consists of rounding errors, or of a row's own output, would reveal the response.
    some = (predicted**2).sum(axis=0) > _NOTHING * (leading**2).sum(axis=0)
    some &= residuals.spent <= _MOST_SPENT * regression.n
    return [np.column_stack([part, splines(part, KNOTS // 2)]) for part in predicted.T[some]]


def _ridge_regression(
    terms: dict[str, np.ndarray],
    models: Sequence[dict[str, float]],
    spaces: tuple[np.ndarray, ...],
    inputs: np.ndarray,
    strata: np.ndarray | None,
    units: np.ndarray | None,
) -> ConfounderRegression:
    """Ridge regressions on centred terms (n, q) by name, with the weights of each of the models."""
    parts = {name: part for name, part in terms.items() if part.shape[1] and any(name in one for one in models)}
    basis, triangle = _orthonormal(terms["linear"], [part for name, part in parts.items() if name != "linear"])
    counts = [part.shape[1] for part in parts.values()]
    # Models that differ in terms without columns are the same.
    weights = dict.fromkeys(tuple(one.get(name, 0.0) for name in parts) for one in models if parts)
    smoothers = [_smoother(basis, triangle, np.repeat(one, counts), units) for one in weights]
    return ConfounderRegression(basis, tuple(smoothers), spaces, inputs, strata, units)


def _orthonormal(linear: np.ndarray, others: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """An orthonormal basis (n, Q) of terms (n, q), and all terms in it (Q, P).

    Linear terms come first, as directions that are left out of others must not leave a part of what these determine.
    """
    first, own = _principal(stacked_terms([linear], len(linear)))
    rest = stacked_terms(others, len(linear))
    inner = first.T @ rest
    second, beyond = _principal(rest - first @ inner, float(np.einsum("ij,ij->j", rest, rest).max(initial=0.0)))
    below = np.zeros((len(beyond), own.shape[1]))
    return np.hstack([first, second]), np.block([[own, inner], [below, beyond]])


def _principal(terms: np.ndarray, largest: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """The principal directions of terms (n, q) as an orthonormal basis (n, Q), and the terms in it (Q, q).

    Those that are negligible beside the longest, or beside a term with the squared length `largest`, are left out.
    """
    gram = np.zeros((terms.shape[1],) * 2)
    for start in range(0, len(terms), SINGLE):
        some = terms[start : start + SINGLE].astype(float)
        gram += some.T @ some
    sizes, vectors = np.linalg.eigh(gram)
    keep = sizes > _NEGLIGIBLE * max(float(sizes.max(initial=0.0)), largest)
    sizes, vectors = np.sqrt(sizes[keep]), vectors[:, keep]
    return terms @ (vectors / sizes).astype(terms.dtype), sizes[:, None] * vectors.T


def _smoother(basis: np.ndarray, triangle: np.ndarray, weights: np.ndarray, units: np.ndarray | None) -> _Model:
    """Ridge regression on terms (Q, P) of a basis (n, Q) with weights (P,)."""
    used = np.flatnonzero(weights)
    scaled = triangle[:, used] * np.sqrt(weights[used])
    squares, vectors = np.linalg.eigh(scaled.T @ scaled)
    keep = squares > _NEGLIGIBLE * squares[-1:].max(initial=0.0)
    squares, vectors = squares[keep], vectors[:, keep]
    kept = squares / (squares + len(basis) * _PENALTIES[:, None])
    directions = scaled @ (vectors / np.sqrt(squares))
    leverage = (basis[_leverage_rows(len(basis))] @ directions) ** 2 @ kept.T
    leverage *= kept.sum(axis=1) / np.maximum(leverage.mean(axis=0) * len(basis), 1e-300)
    return _Model(directions, kept, _freedom(basis, directions, units), leverage)


def _leverage_rows(n: int) -> np.ndarray:
    return spaced_rows(n, _LEVERAGE_ROWS)


def one_row_of_each_unit(n: int, units: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
    """Rows of n, at random one of each unit, codes (n,); all rows where every row is by itself."""
    if units is None:
        return np.arange(n)
    order = rng.permutation(n)
    return np.sort(order[np.unique(units[order], return_index=True)[1]])


def _rows_in_unit(units: np.ndarray | None) -> float:
    return 1.0 if units is None else len(units) / (float(units.max()) + 1.0)


def _freedom(basis: np.ndarray, directions: np.ndarray, units: np.ndarray | None) -> np.ndarray:
    """(q,) degrees of freedom of n that directions (Q, q) of the basis have in sums over units.

    Of N units a direction that is constant within them has 1 of N, which are n / N of n. One that varies within units
    has the share of it that is constant.
    """
    if units is None:
        return np.ones(directions.shape[1])
    sums = np.column_stack([np.bincount(units, column) for column in basis.T])
    within = sums / np.sqrt(np.bincount(units))[:, None] @ directions
    return np.asarray((within**2).sum(axis=0) * _rows_in_unit(units))


def _cross_fitted(model: Any, inputs: np.ndarray, seed: int, outputs: np.ndarray) -> np.ndarray:
    """(n, m) predictions of outputs by a scikit-learn regressor, for each of five folds from the four others."""
    from sklearn.model_selection import KFold, cross_val_predict

    folds = KFold(5, shuffle=True, random_state=seed)
    return np.column_stack([cross_val_predict(model, inputs, column, cv=folds) for column in outputs.T])
