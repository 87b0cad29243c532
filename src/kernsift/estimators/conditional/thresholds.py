"""Terms for thresholds of confounders, which smooth curves do not fit: leaves of a regression tree, curves that differ
beyond a threshold, and products of step functions, which a tree does not find if no single split explains anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from kernsift.data.tables import spaced_rows
from kernsift.estimators.conditional.regression_terms import NUMBERS, precision

# Regression trees: the most leaves, the rows they are fitted to, the least share of these and the fewest units in a
# leaf, and how many log(n) / n of the noise a split must explain.
_LEAVES, _TREE_ROWS, _LEAST_LEAF, _FEWEST, _SPLIT = 16, 2**13, 0.02, 5, 4.0
# Thresholds beyond which curves differ, and the columns of these curves.
_THRESHOLDS, _PRODUCTS = 4, 120
# Thresholds at which curves change: the most, the least share of rows on either side, and from which standardised
# statistic on, the largest of those at all values of a confounder.
_CHANGES, _LEAST_SIDE, _CLEAR_CHANGE = 2, 0.1, 5.0
# Products of step functions: rows in a cell of the table with which the search begins, the fewest and the most cells
# along a confounder, and how often each function is fitted given the others.
_CELL_ROWS, _LEAST_CELLS, _MOST_CELLS, _SWEEPS = 3.0, 3, 12, 4
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
    # Centred, so that a confounder with the opposite sign has the same terms; with the size of indicators.
    beyond = np.array([inputs[:, column] > value for column, value in thresholds], precision(n)).reshape(-1, n)
    beyond = (beyond - 0.5) * np.sqrt(precision(n)(2.0))
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


def products_of_steps(
    groups: Sequence[Sequence[np.ndarray]], left: np.ndarray, rows_in_unit: float
) -> list[np.ndarray]:
    """(n, 1) products of step functions, one of each confounder in a group, that explain much of what is `left` (n, k).

    Confounders are their places (n, q). The functions are regression trees, each fitted given the others, beginning
    with the product that is nearest to the sums of `left` over a table of quantiles. A group has none if its table has
    more cells than rows, or if a function is constant: a split must explain more than the best of n splits of noise
    does by chance.
    """
    rows = spaced_rows(len(left), _TREE_ROWS)
    found = (_product_of_steps(parts, [part[rows] for part in parts], left[rows], rows_in_unit) for parts in groups)
    return [one for one in found if one is not None]


def _product_of_steps(
    every: Sequence[np.ndarray], parts: Sequence[np.ndarray], left: np.ndarray, rows_in_unit: float
) -> np.ndarray | None:
    """(n, 1) the product at `every` place (n, q), from some of them and what is `left` there, (m, q) and (m, k)."""
    from sklearn.tree import DecisionTreeRegressor

    cells = [_cells(part, len(parts)) for part in parts]
    # Functions are fitted one after the other, and the order of the confounders must not matter.
    order = np.argsort([-_explained(own, left) for own in cells], kind="stable")
    every, parts, cells = ([own[place] for place in order] for own in (every, parts, cells))
    if np.prod([float(own.max()) + 1.0 for own in cells]) > len(left):
        return None
    starts = [_nearest_product(cells, column) for column in left.T]
    best = int(np.argmax([size for size, _ in starts]))
    if not starts[best][0] > 0:
        return None
    target, factors = left[:, best], [one[own] for one, own in zip(starts[best][1], cells, strict=True)]
    least = _SPLIT * np.log(len(left) / rows_in_unit) * rows_in_unit
    noise = float((target**2).mean())
    trees = [DecisionTreeRegressor()] * len(parts)
    for sweep, place in product(range(_SWEEPS), range(len(parts))):
        others = np.prod([one for other, one in enumerate(factors) if other != place], axis=0)
        weights = others**2
        some = weights > _CONSTANT * weights.mean()
        trees[place] = DecisionTreeRegressor(
            max_leaf_nodes=_LEAVES,
            min_samples_leaf=max(int(_FEWEST * rows_in_unit), 1),
            ccp_alpha=least * noise / weights.sum(),
            random_state=sweep,
        ).fit(parts[place][some], target[some] / others[some], weights[some])
        if trees[place].get_n_leaves() < 2:
            return None
        factors[place] = trees[place].predict(parts[place])
        noise = float(((target - factors[place] * others) ** 2).mean())
        factors[place] /= np.abs(factors[place]).max()
    values = [tree.predict(part) for tree, part in zip(trees, every, strict=True)]
    return np.prod([one / np.abs(one).max() for one in values], axis=0)[:, None]


def _cells(part: np.ndarray, size: int) -> np.ndarray:
    """(n,) the cell of each row along one confounder (n, q) of a group: quantiles, or values where these are few."""
    n = len(part)
    count = int(np.clip((n / _CELL_ROWS) ** (1.0 / size), _LEAST_CELLS, _MOST_CELLS))
    values, codes = np.unique(part, axis=0, return_inverse=True)
    if part.shape[1] > 1 or len(values) <= count:
        return codes.ravel()
    edges = np.quantile(part[:, 0], np.arange(1, count) / count)
    return np.searchsorted(edges, part[:, 0], "right")


def _explained(cells: np.ndarray, values: np.ndarray) -> float:
    """The sum of squares of values (n, k) that their means in cells (n,) explain."""
    sums = np.array([np.bincount(cells, column) for column in values.T])
    return float((sums**2 / np.maximum(np.bincount(cells), 1)).sum())


def _nearest_product(cells: Sequence[np.ndarray], values: np.ndarray) -> tuple[float, list[np.ndarray]]:
    """The length of the product of functions of cells that is nearest to the sums of values (n,) over these, and the
    functions.
    """
    shape = [int(own.max()) + 1 for own in cells]
    table = np.bincount(np.ravel_multi_index(tuple(cells), shape), values, int(np.prod(shape))).reshape(shape)
    table = np.subtract(table, table.mean())
    factors = [
        np.linalg.svd(np.moveaxis(table, axis, 0).reshape(shape[axis], -1), full_matrices=False)[0][:, 0]
        for axis in range(len(shape))
    ]
    size = 0.0
    for _ in range(_SWEEPS):
        for axis in range(len(shape)):
            one = np.moveaxis(table, axis, 0)
            for other in reversed([factor for place, factor in enumerate(factors) if place != axis]):
                one = one @ other
            size = float(np.linalg.norm(one))
            factors[axis] = one / (size or 1.0)
    return size, factors
