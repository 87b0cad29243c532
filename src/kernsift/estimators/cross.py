"""The cross estimator: a witness function fitted on one half of the rows is evaluated on the other half.

The second half gives each feature a witness (for MMD the difference of mean embeddings, for HSIC the cross-covariance);
the first half evaluates it. Given the second half the draws are independent, and their mean estimates MMD^2 or HSIC
without bias. Scores are Student statistics converted into normal scores, which accounts for small halves. Two samples
have one law under the null: their variance and skewness are pooled, because few rows alone give poor estimates of them.

Effect sizes are those of `kernsift.estimators.effects.kernel_correlations`. MMD^2 = |D|^2 is estimated by <D + e1, D +
e2> with the errors of the two halves, so that its variance is that of <D, e1> + <D, e2> + <e1, e2>. The variance of the
first half's values contains the first and the third of these, that of the second half's values along the first half's
witness the second and the third, and the third, which is the only one under the null, is subtracted once. HSIC
likewise.

Units, such as the donors of cells, go as a whole to one half or the other. A unit has the mean of its rows' factors,
and is then treated as a row: its value is the mean of the witness over its rows, so that rows of a unit may be
dependent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

import numpy as np

from kernsift.data.rows.exchangeability import Exchangeability
from kernsift.data.tables import Table, stack
from kernsift.estimators.block_sizes import parts_of
from kernsift.estimators.draws.batches import LEARNING
from kernsift.estimators.draws.designs import halves
from kernsift.estimators.effects.kernel_correlations import SelfDependence, hsic_scale, mmd_scale
from kernsift.estimators.feature_blocks import FeatureBlock, blocks_of, map_blocks
from kernsift.estimators.responses import summed_rows, table_response
from kernsift.estimators.restricted.unit_views import by_point, unit_means
from kernsift.estimators.scores import Scores, ScoreScales
from kernsift.estimators.ustatistic import require_rows
from kernsift.estimators.witness_scores import (
    Drawn,
    difference_parts,
    difference_scores,
    in_blocks,
    student_scores,
    witness_scales,
)
from kernsift.exceptions import InputError
from kernsift.execution.arrays import Array, asarray_like, namespace, on_host, to_numpy
from kernsift.execution.codes import bincount_rows, lookup
from kernsift.kernels.contingency import Tabulation, tabulate
from kernsift.kernels.fitted import FeatureKernels
from kernsift.kernels.group_views import GroupView
from kernsift.kernels.low_rank import View, kernel_views, landmark_rows
from kernsift.kernels.quantisation import fit_grid

# The most witness values that are kept to estimate correlations from; beyond, they are computed again when needed.
# On a device, which holds 8 bytes of each, they stay there.
_KEPT, _DEVICE_KEPT = 2**24, 2**29
# Test rows whose values of several response columns give the skewness.
_LISTED = 256


def cross_mmd(
    X: Table,
    Y: Table,
    kernels: FeatureKernels,
    *,
    rows: Exchangeability | None = None,
    adaptive: bool = False,
    rng: np.random.Generator,
) -> Scores:
    """Scores of the difference between the samples along a witness fitted on other rows, or on other units of `rows`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.kernels.fitted import fit_kernels
    >>> from kernsift.data.inputs import as_table
    >>> rng = np.random.default_rng(0)
    >>> X, Y = as_table(rng.normal(size=(200, 3))), as_table(rng.normal([0, 1, 0], 1, size=(200, 3)))
    >>> scores = cross_mmd(X, Y, fit_kernels(X, rng=rng), rng=rng)
    >>> int(scores.estimate.argmax())
    1
    """
    table = stack([X, Y])
    samples = [np.arange(X.n), X.n + np.arange(Y.n)]
    if rows is None or rows.unit is None:
        require_rows(X, 4, "X", " for the cross estimator")
        require_rows(Y, 4, "Y", " for the cross estimator")
    else:
        rows = rows.evened(rng)
        samples = [rows.informative[rows.responses[rows.informative] == label] for label in (0, 1)]
        _require_units(min(map(len, samples)), 10, " in each sample")
    (x_test, x_fit), (y_test, y_fit) = ([own[half] for half in halves(len(own), rng)] for own in samples)
    landmarks = landmark_rows(table.n, rng)
    learning = min(len(x_test), LEARNING // 2), min(len(y_test), LEARNING // 2)
    room = _KEPT if on_host(table.prototype) else _DEVICE_KEPT
    kept = learning if sum(learning) * table.d <= room else (0, 0)
    one, two, scales = Drawn.empty(len(x_test), table.d), Drawn.empty(len(y_test), table.d), np.empty((2, table.d))
    known: list[tuple[np.ndarray, tuple[Drawn, Drawn, ScoreScales | None]]] = []
    values = WitnessValues((x_test, x_fit), (y_test, y_fit), kept)
    for features, (high, low, own) in over_blocks(table, kernels, adaptive, values, landmarks, rows):
        one.put(features, high)
        two.put(features, low)
        scales[:, features] = own
        if kept == learning:
            known.append((features, (high, low, None)))
    again = replace(values, kept=learning, scales=False)
    computed = partial(over_blocks, table, kernels, adaptive, again, landmarks, rows)
    # What was kept does not refer to the table.
    parts = partial(difference_parts, (lambda among: known) if known else computed)
    return difference_scores(table.names, one, two, parts, ScoreScales(*scales))


def _require_units(units: int, needed: int, where: str = "") -> None:
    if units < needed:
        raise InputError(
            f"unit: at least {needed} units are needed{where} for the cross estimator, got {units}; use "
            "estimator='complete'."
        )


@dataclass(frozen=True)
class WitnessValues:
    """The witness values of features in each sample; `x` and `y` are its test rows and its fit rows.

    The values at the first `kept` test rows of each sample are kept. The scales of effects are computed if `scales`.
    """

    x: tuple[np.ndarray, np.ndarray]
    y: tuple[np.ndarray, np.ndarray]
    kept: tuple[int, int]
    scales: bool = True

    def __call__(self, known: Tabulation, factor: Array) -> tuple[Drawn, Drawn, ScoreScales | None]:
        xp = namespace(factor)
        halves = [(_share(known, x), _share(known, y)) for x, y in zip(self.x, self.y, strict=True)]
        sizes = [(len(x), len(y)) for x, y in zip(self.x, self.y, strict=True)]
        witness = _witness(factor, *halves[1])
        # A witness that is constant over the rows up to rounding is set to 0: rounding errors must not be tested.
        used = halves[0][0] + halves[0][1] > 0
        top = xp.max(xp.where(used, witness, -xp.inf), axis=1)
        bottom = xp.min(xp.where(used, witness, xp.inf), axis=1)
        some = top - bottom > 1e-10 * xp.max(xp.abs(witness), axis=1)
        witness = xp.where(some[:, None], witness, 0.0)
        one, two = (
            Drawn(size, *_moments(witness, share, size), _at_rows(known, witness, rows[:kept]))
            for size, share, rows, kept in zip(sizes[0], halves[0], (self.x[0], self.y[0]), self.kept, strict=True)
        )
        return one, two, mmd_scales(factor, known.counts, halves, sizes) if self.scales else None


def _moments(values: Array, shares: Array, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(b,) means, variances and third central moments of values (b, G) over `size` rows with shares (b, G)."""
    xp = namespace(values)
    mean = xp.sum(shares * values, axis=1)
    away = values - mean[:, None]
    squares = shares * away**2
    variance = xp.sum(squares, axis=1) * (size / (size - 1))
    return to_numpy(mean), to_numpy(variance), to_numpy(xp.sum(squares * away, axis=1))


def _witness(factor: Array, one: Array, two: Array) -> Array:
    """(b, G) the difference of mean embeddings at each point, of rows with these shares (b, G) of the points."""
    xp = namespace(factor)
    return (xp.matrix_transpose(factor @ (one - two)[:, :, None]) @ factor)[:, 0, :]


def mmd_scales(
    factor: Array, counts: Array, halves: Sequence[tuple[Array, Array]], sizes: Sequence[tuple[int, int]]
) -> ScoreScales:
    """From each half's shares (b, G) of the points, sample by sample, and its numbers of rows."""
    own = SelfDependence.of_factor(factor, counts)
    first, second = sizes
    rows, samples = [sum(pair) for pair in zip(first, second, strict=True)], zip(*halves, strict=True)
    total, share = sum(rows), rows[0] / sum(rows)
    xp = namespace(factor)
    witnesses = [_witness(factor, *half) for half in halves]
    mean = xp.sum((halves[0][0] - halves[0][1]) * witnesses[1], axis=1)
    relative = mean[:, None] * asarray_like(own.influence, factor) / total
    variance = np.zeros(int(mean.shape[0]))
    for sample, sign in zip(samples, (1.0, -1.0), strict=True):
        for half, (weights, witness) in enumerate(zip(sample, witnesses[::-1], strict=True)):
            size = sizes[half][0 if sign > 0 else 1]
            influence = sign * witness / size - relative
            squares = xp.sum(weights * influence**2, axis=1) - xp.sum(weights * influence, axis=1) ** 2
            variance += size * size / (size - 1) * np.maximum(to_numpy(squares), 0.0)
    null = own.size**2 * (1 / first[0] + 1 / first[1]) * (1 / second[0] + 1 / second[1])
    return witness_scales(mmd_scale(own, total, share), to_numpy(mean), variance, null)


def _share(known: Tabulation, rows: np.ndarray) -> Array:
    """(b, G) the share of these rows at each point."""
    xp, index = namespace(known.counts), asarray_like(rows, known.counts)
    codes = index[None, :] if known.codes is None else xp.take(known.codes, index, axis=1)
    return xp.astype(bincount_rows(codes, known.counts.shape[1])[:, :, 0], known.counts.dtype) / len(rows)


def _at_rows(known: Tabulation, values: Array, rows: np.ndarray) -> Array:
    """(rows, b) the values (b, G) at the points of the rows."""
    xp, index = namespace(values), asarray_like(rows, values)
    if known.codes is not None:
        values = lookup(values[:, None, :], xp.take(known.codes, index, axis=1))[:, 0, :]
        return xp.matrix_transpose(values)
    return xp.matrix_transpose(xp.take(values, index, axis=1))


def cross_hsic(
    X: Table,
    y: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    *,
    rows: Exchangeability | None = None,
    adaptive: bool = False,
    rng: np.random.Generator,
) -> Scores:
    """Scores of the dependence on the response along a cross-covariance fitted on other rows, or other units of `rows`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.kernels.fitted import fit_kernels
    >>> from kernsift.data.inputs import as_table
    >>> rng = np.random.default_rng(0)
    >>> X = as_table(rng.normal(size=(300, 3)))
    >>> y = as_table(np.abs(X.values[:, [1]]))
    >>> scores = cross_hsic(X, y, fit_kernels(X, rng=rng), fit_kernels(y, rng=rng), rng=rng)
    >>> int(scores.estimate.argmax())
    1
    """
    used = np.arange(X.n)
    if rows is None or rows.unit is None:
        require_rows(X, 8, "X", " for the cross estimator")
    else:
        rows = rows.evened(rng)
        used, y = rows.informative, y.take(rows.first_rows)
        _require_units(len(used), 12)
    test, fit = (used[half] for half in halves(len(used), rng))
    response = table_response(y, response_kernels, rng)
    at_fit, at_test = (response.at(rows, response.first) for rows in (fit, test))
    at_fit, at_test = (rows - namespace(rows).mean(rows, axis=1, keepdims=True) for rows in (at_fit, at_test))
    target = SelfDependence.of_factor(response.first.factor[None, ...], response.counts[None, :])
    cells = np.arange(y.n) if response.cells is None else to_numpy(response.cells)
    influence = target.influence[0, cells]
    # The distinct values of the response at the test rows; of several columns, those at the first of these rows.
    listed = test if response.cells is not None else test[:_LISTED]
    _, first, copies = np.unique(cells[listed], return_index=True, return_counts=True)
    distinct = asarray_like(first, at_test), asarray_like(copies / len(listed), at_test)
    draws, scales = Drawn.empty(len(test), X.d, min(len(test), LEARNING)), np.empty((2, X.d))
    null = np.empty((2, X.d))
    predictions = Predictions(test, fit, at_test, at_fit, target._replace(influence=influence), *distinct)
    for features, (products, own_null, own) in over_blocks(
        X, kernels, adaptive, predictions, landmark_rows(X.n, rng), rows
    ):
        draws.put(features, products)
        null[:, features] = own_null
        scales[:, features] = own
    # The sample variance of the products is too small if rare values of both variables did not coincide. With the
    # variance under independence, less the square of the mean, the statistic is that of a correlation.
    independent, skewness = null
    total = np.maximum(independent - draws.mean**2, np.minimum(independent, draws.variance))
    share = np.divide(total, draws.variance, out=np.ones(X.d), where=draws.variance > 0) / draws.size
    variance, freedom = draws.variance * share, np.full(X.d, draws.size - 1.0)
    parts = in_blocks(draws.part(share))
    return student_scores(X.names, draws.mean, variance, parts, draws.size, freedom, ScoreScales(*scales), skewness)


@dataclass(frozen=True)
class Predictions:
    """Products of the prediction and the response at the test rows, and the scales of effects.

    `at_test` and `at_fit` (p, rows) are the response's centred factor at the test rows and at the fit rows, `target`
    its self-dependence, with the influence of each row (n,). `distinct` are test rows with different values of the
    response, and `frequencies` the shares of the test rows with each of these values.
    """

    test: np.ndarray
    fit: np.ndarray
    at_test: Array
    at_fit: Array
    target: SelfDependence
    distinct: Array
    frequencies: Array

    def __call__(self, known: Tabulation, factor: Array) -> tuple[Drawn, tuple[np.ndarray, np.ndarray], ScoreScales]:
        """The products; their variance, and the skewness of their mean, over all matchings of rows; and the scales."""
        found, variance, predicted = _products(known, factor, (self.fit, self.at_fit), (self.test, self.at_test))
        null = variance, self._skewness(predicted, _share(known, self.test), variance)
        return Drawn.of(found, LEARNING), null, self._scales(known, factor, found)

    def _skewness(self, predicted: Array, shares: Array, variance: np.ndarray) -> np.ndarray:
        """(b,) from the predictions (b, G, p) at the points, which have these shares (b, G) of the test rows.

        The sum of m[i, pi(i)] over the n rows i, for a random permutation pi and a doubly centred matrix m, has the
        third moment n / (n - 1) / (n - 2) times the sum of all m[i, j]^3.
        """
        xp, n = namespace(predicted), len(self.test)
        response = xp.take(self.at_test, self.distinct, axis=1)
        cubes = []
        for i in range(len(variance)):
            products = predicted[i, ...] @ response
            cubes.append(shares[i, :] @ (products * products * products) @ self.frequencies)
        third = to_numpy(xp.stack(cubes)) * n**3 / (n - 1) / (n - 2)
        return np.divide(third, (n * variance) ** 1.5, out=np.zeros(len(third)), where=variance > 0)

    def _scales(self, known: Tabulation, factor: Array, found: np.ndarray) -> ScoreScales:
        own = SelfDependence.of_factor(factor, known.counts)
        first, second, total = len(self.test), len(self.fit), len(self.test) + len(self.fit)
        mean, variance = found.mean(axis=0), np.zeros(found.shape[1])
        others, *_ = _products(known, factor, (self.test, self.at_test), (self.fit, self.at_fit))
        for rows, products in ((self.test, found), (self.fit, others)):
            influence = to_numpy(_at_rows(known, asarray_like(own.influence, factor), rows))
            relative = influence + self.target.influence[rows, None]
            variance += len(rows) * np.var(products / first - mean * relative / total, axis=0, ddof=1)
        null = (own.size * self.target.size) ** 2 * second / first
        # The halves are centred at their own means, and the witness is a sum over the fit rows.
        unit = second * (1 - 1 / first) * (1 - 1 / second)
        return witness_scales(unit * hsic_scale(own, self.target, total), mean, variance, null)


def _products(
    known: Tabulation, factor: Array, fit: tuple[np.ndarray, Array], test: tuple[np.ndarray, Array]
) -> tuple[np.ndarray, np.ndarray, Array]:
    """(rows, b) products of the response at the test rows and its prediction from the fit rows.

    Also returns their variances (b,) over all pairs of a prediction and a response, and the predictions (b, G, p).
    """
    xp, (b, points) = namespace(factor), known.counts.shape
    index = [asarray_like(rows, factor) for rows, _ in (fit, test)]
    if known.codes is None:
        estimated, seen = (rows[None, :] for rows in index)
    else:
        estimated, seen = (xp.take(known.codes, rows, axis=1) for rows in index)
    witness = factor @ summed_rows(estimated, fit[1], points)  # centring one side suffices
    shares = _share(known, test[0])
    raw = xp.matrix_transpose(factor) @ witness
    predicted = raw - xp.sum(shares[:, :, None] * raw, axis=1, keepdims=True)
    squares = xp.sum(shares * xp.sum(predicted**2, axis=2), axis=1)
    # A prediction that is constant over the rows up to rounding is set to 0: rounding errors must not be tested. It is
    # compared with its bound, which it reaches if rows and witness have the same direction.
    bound = xp.sum(shares * xp.sum(factor**2, axis=1), axis=1) * xp.sum(witness**2, axis=(1, 2))
    some = squares > 1e-20 * bound
    predicted, squares = xp.where(some[:, None, None], predicted, 0.0), xp.where(some, squares, 0.0)
    own = xp.matrix_transpose(test[1])
    seen = xp.astype(seen, xp.int64)
    products = [xp.sum(xp.take(predicted[i, ...], seen[i, :], axis=0) * own, axis=1) for i in range(b)]
    found = to_numpy(xp.stack(products, axis=1))
    # Where prediction and response are orthogonal, their product is rounding error too.
    most = np.sqrt(to_numpy(squares) * float(xp.sum(xp.mean(test[1] ** 2, axis=1))))
    second = xp.matrix_transpose(predicted * shares[:, :, None]) @ predicted
    null = to_numpy(xp.sum(second * (test[1] @ own), axis=(1, 2))) / (len(found) - 1)
    some = np.abs(found).max(axis=0) > 1e-10 * most
    return np.where(some, found, 0.0), np.where(some, null, 0.0), predicted


Output = TypeVar("Output")


@dataclass(frozen=True)
class BlockScoring(Generic[Output]):
    """`work(known, factor)` of blocks of features; with units, these are the points of the factor."""

    work: Callable[[Tabulation, Array], Output]
    adaptive: bool
    landmarks: np.ndarray
    rows: Exchangeability | None = None

    def __call__(self, block: FeatureBlock) -> list[tuple[np.ndarray, Output]]:
        whole = fit_grid(block.table, block.own, block.to_sort, rounded=block.kernels.rounds, kernels=block.kernels)
        kinds, places = kernel_views(block.own_kernels, self.adaptive), np.arange(len(block.own))
        units, cells = (1, 1) if self.rows is None else (self.rows.units, self.rows.units + (self.rows.left_out > 0))
        counted = tabulate(block.table, block.own, whole, block.cells, cells, None, block.large)
        outputs = []
        for part in parts_of(block.features, whole.points, block.table.n, block.memory):
            grid, known = whole.part(part), counted.part(part)
            views = [each.view(grid, known.counts, places[part], self.landmarks) for each in kinds]
            factor = joint_factor(views)
            if self.rows is not None and self.rows.unit is not None:
                means = unit_means(factor, known, self.rows, np.arange(units))
                factor = means - namespace(means).mean(means, axis=2, keepdims=True)
                codes = np.tile(np.arange(units), (factor.shape[0], 1))
                known = Tabulation(asarray_like(np.ones(codes.shape), factor), None, asarray_like(codes, factor))
            outputs.append((block.features[part], self.work(known, factor)))
        return outputs


def over_blocks(
    table: Table,
    kernels: FeatureKernels,
    adaptive: bool,
    work: Callable[[Tabulation, Array], Output],
    landmarks: np.ndarray,
    rows: Exchangeability | None = None,
    among: np.ndarray | None = None,
) -> Iterator[tuple[np.ndarray, Output]]:
    """`work(known, factor)` for one block of features after the other, of all features or of some."""
    cells = None if rows is None else by_point(rows, table)
    blocks = blocks_of(table, kernels, cells, among=among)
    for outputs in map_blocks(BlockScoring(work, adaptive, landmarks, rows), blocks, table.d):
        yield from outputs


def joint_factor(views: Sequence[View | GroupView]) -> Array:
    """One factor (b, m, G) for each feature; two views are concatenated with equal weight."""
    if len(views) == 1:
        return views[0].factor
    xp = namespace(views[0].factor)
    # Directions are orthogonal: the norm of a Gram matrix is that of its eigenvalues.
    norms = [xp.sqrt(xp.sum(view.sizes**2, axis=1)) for view in views]
    parts = [
        view.factor / xp.sqrt(xp.where(norm > 0, norm, 1.0))[:, None, None]
        for view, norm in zip(views, norms, strict=True)
    ]
    return xp.concat(parts, axis=1)
