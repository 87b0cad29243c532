"""Thresholds of confounders, at which all curves are inexact: leaves of a regression tree, and curves that change."""

from __future__ import annotations

import numpy as np

from kernsift.estimators.conditional.regression_terms import NUMBERS, precision

# Regression trees: the most leaves, the rows they are fitted to, the least share of these and the fewest units in a
# leaf, and how many log(n) / n of the noise a split must explain.
_LEAVES, _TREE_ROWS, _LEAST_LEAF, _FEWEST, _SPLIT = 16, 2**13, 0.02, 5, 4.0
# Thresholds beyond which curves are others, and the columns of these curves.
_THRESHOLDS, _PRODUCTS = 4, 120
# Thresholds at which curves change: the most, the least share of rows on either side, and from which standardised
# statistic on, the largest of those at all values of a confounder.
_CHANGES, _LEAST_SIDE, _CLEAR_CHANGE = 2, 0.1, 5.0
# The standard deviation of curves that are constant but for rounding, relative to that of the curve that varies most.
_CONSTANT = 1e-6


def threshold_terms(
    inputs: np.ndarray,
    targets: np.ndarray,
    left: np.ndarray,
    curves: np.ndarray,
    rows_in_unit: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Indicators (n, m) of the leaves of a regression tree of `targets` (n, k) on `inputs` (n, q), and curves beyond
    thresholds: their indicators times the leading terms of `curves` (n, p).

    The thresholds are those at which the curves of what a sum of curves has `left` (n, k) change, and then those of the
    leading splits: a tree does not find a threshold at which a wave changes its sign, as means are 0 on both sides. A
    split must explain more of the targets than the best of n splits of noise does by chance.
    """
    from sklearn.tree import DecisionTreeRegressor

    n = len(inputs)
    rows = rng.choice(n, min(n, _TREE_ROWS), replace=False)
    count = len(rows) / rows_in_unit
    least = max(int(_LEAST_LEAF * len(rows)), int(_FEWEST * rows_in_unit))
    tree = DecisionTreeRegressor(
        max_leaf_nodes=_LEAVES,
        min_samples_leaf=max(least, 1),
        min_impurity_decrease=_SPLIT * np.log(count) / count * float((left**2).mean()),
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
    scale = curves.std(axis=0)
    varies = scale > _CONSTANT * scale.max(initial=0.0)
    products = ((curves[:, varies] / scale[varies])[:, :, None] * left[:, None, :]).reshape(n, -1)
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
