"""What a confidence interval of an effect size should cover, for each estimator.

complete, block, linear
    The kernel correlation at the population, for the kernel that spoke for the feature: computed by the same code on
    a sample so large that its own error does not count. With two looks each look has its own target.
cross
    The correlation of the learned witness with the response at the population, given the half of the rows that the
    witness was learned on: the witness is evaluated on a large fresh sample.

A null feature's target is 0 in every case, so its interval covers exactly when its lower end is 0.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from problems import Family, Problem

from kernsift.designs import halves
from kernsift.door import Door
from kernsift.factors import _NEGLIGIBLE, Factors, _against, _mix, fit_looks
from kernsift.kernels import FeatureKernels, fit_kernels
from kernsift.permutation import invariants
from kernsift.result import Result
from kernsift.scores import Scores
from kernsift.statistics import HSIC, MMD
from kernsift.statistics.complete import Response, effect_sizes, look_at, sample_label
from kernsift.tables import Table, as_pair, as_xy, stack

# Rows (of each sample, or in all) behind a population value, and points of the grid a witness is tabulated on.
_POPULATION = 20_000
_GRID = 400


class Setup(NamedTuple):
    """One call's tables and kernels: for `compare` the stacked samples and no response kernels."""

    door: Door
    one: Table
    two: Table
    pooled: Table
    kernels: FeatureKernels
    response_kernels: FeatureKernels | None

    def scores(self) -> Scores:
        more = () if self.response_kernels is None else (self.response_kernels,)
        return self.door.statistic(
            self.one, self.two, self.kernels, *more, rng=self.door.rng, **self.door.estimator_options
        )

    def answer(self, scores: Scores) -> Result:
        return self.door.answer(scores, self.pooled.constant)


def set_up(problem: Problem, data: tuple[Any, Any], seed: int, **arguments: Any) -> Setup:
    """What `compare` and `relate` do before they compute a score."""
    given: dict[str, Any] = {
        "k": "auto",
        "threshold": None,
        "estimator": "complete",
        "test": "exact",
        "kernel": "gaussian",
        "bandwidth": "auto",
        "alpha": 0.05,
        "correction": None,
        "random_state": seed,
        "options": {},
    } | arguments
    door = Door(problem.question, MMD if problem.question == "compare" else HSIC, **given)
    if problem.question == "compare":
        one, two = as_pair(*data)
        pooled = stack([one, two])
        return Setup(door, one, two, pooled, fit_kernels(pooled, "gaussian", door.bandwidth, rng=door.rng), None)
    one, two = as_xy(*data, response="category" if problem.categories else "numeric")
    kernels = fit_kernels(one, "gaussian", door.bandwidth, rng=door.rng)
    own = fit_kernels(two, "gaussian", door.bandwidth, rng=door.rng)
    return Setup(door, one, two, one, kernels, own)


# --- complete, block, linear ------------------------------------------------------------------------------------------


@cache
def _population(family: Family, adaptive: bool) -> tuple[np.ndarray, np.ndarray]:
    """Effect sizes (looks, true features) at the population, and which features are true."""
    whole = family(_POPULATION)
    rng = np.random.default_rng([20_000, int(adaptive)])
    one, two = whole.draw(rng)
    setup = set_up(whole, (one[:, whole.true], two[:, whole.true] if two.ndim > 1 else two), 0)
    if setup.response_kernels is None:
        response = sample_label(setup.one.n, setup.two.n)
    else:
        factor = fit_looks(setup.two, setup.response_kernels, False, rng=rng)[0].of(np.array([0]))[0]
        response = _response(factor)
    looks = fit_looks(setup.pooled, setup.kernels, adaptive, rng=rng)
    sizes = []
    for factors in looks:
        points = [_effect(factors, chunk, response) for chunk in factors.chunks(np.arange(setup.pooled.d))]
        sizes.append(np.concatenate(points))
    return np.array(sizes), whole.true


def _response(factor: np.ndarray) -> Response:
    return Response(factor, invariants(factor), np.inf)


def _effect(factors: Factors, features: np.ndarray, response: Response) -> np.ndarray:
    look = look_at(factors.of(features), response)
    return effect_sizes(look.laws, look.score, response).point


def kernel_targets(family: Family, scores: Scores, adaptive: bool) -> np.ndarray:
    """Each feature's population effect for the look that won."""
    sizes, true = _population(family, adaptive)
    targets = np.zeros(len(true))
    # The true features are alike, so their mean is each one's value with less noise.
    winner = scores.cov.winner if adaptive else np.zeros(len(true), dtype=int)
    targets[true] = sizes.mean(axis=1)[winner[true]]
    return targets


# --- cross ------------------------------------------------------------------------------------------------------------


class _Map(NamedTuple):
    """A look's features of the rows before they are turned, at the table's rows and at a grid, and their metric."""

    rows: np.ndarray
    grid: np.ndarray
    metric: np.ndarray


def _maps(setup: Setup, features: np.ndarray, grid: np.ndarray) -> list[_Map]:
    """What `Factors.of` and `joint_factors` make of the rows, in a form that can be read at other values."""
    adaptive = bool(setup.door.estimator_options.get("adaptive"))
    found = []
    for factors in fit_looks(setup.pooled, setup.kernels, adaptive, rng=setup.door.rng):
        rank, kernels = factors.rank[features], factors.kernels.select(features)
        points = factors.points[: max(int(rank.max(initial=1)), 1), features]
        mix = _mix(kernels, points, rank)
        rows = mix @ _against(kernels, points, factors.table.values[:, features])
        centre = rows.mean(axis=2, keepdims=True)
        values, vectors = np.linalg.eigh((rows - centre) @ np.swapaxes(rows - centre, 1, 2))
        keep = values > _NEGLIGIBLE * values[:, -1:]
        kept = np.where(keep, values, 1.0)
        weight = np.where(keep, kept**-0.5 if factors.flat else 1.0, 0.0)
        norm = np.sqrt(np.where(keep, kept * kept * weight**2, 0.0).sum(axis=1)) if adaptive else np.ones(len(values))
        metric = (vectors * (weight / norm[:, None])[:, None, :]) @ np.swapaxes(vectors, 1, 2)
        found.append(_Map(rows - centre, mix @ _against(kernels, points, grid) - centre, metric))
    return found


def cross_targets(setup: Setup, problem: Problem, family: Family) -> np.ndarray:
    """Each feature's population effect given its witness; `setup` must be fresh, with the call's own seed."""
    true = np.flatnonzero(problem.true)
    aims = np.zeros(len(problem.true))
    aims[true] = cross_effects(setup, true, fresh_sample(family))[1]
    return aims


def cross_effects(setup: Setup, features: np.ndarray, fresh: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Effects (2, features) of the witnesses that a call with this setup learns: on its other half, and on fresh data.

    The first row is what the call itself reports; it is there to check that these are the same witnesses.
    """
    grid = np.linspace(fresh[0].min() - 1.0, fresh[0].max() + 1.0, _GRID)
    if setup.response_kernels is None:
        return _cross_mmd_effects(setup, features, fresh, grid)
    return _cross_hsic_effects(setup, features, fresh, grid)


def _cross_mmd_effects(
    setup: Setup, features: np.ndarray, fresh: tuple[np.ndarray, np.ndarray], grid: np.ndarray
) -> np.ndarray:
    x_look, x_learn = halves(setup.one.n, setup.door.rng)
    y_look, y_learn = (setup.one.n + rows for rows in halves(setup.two.n, setup.door.rng))
    at_rows, at_grid = 0.0, 0.0
    for part in _maps(setup, features, np.repeat(grid[:, None], len(features), axis=1)):
        witness = part.rows[:, :, x_learn].mean(axis=2) - part.rows[:, :, y_learn].mean(axis=2)
        turned = np.einsum("dm,dmq->dq", witness, part.metric)
        at_rows = at_rows + np.einsum("dm,dmn->dn", turned, part.rows)
        at_grid = at_grid + np.einsum("dm,dmn->dn", turned, part.grid)
    out = np.empty((2, len(features)))
    for place in range(len(features)):
        out[0, place] = _label_correlation(at_rows[place, x_look], at_rows[place, y_look])
        out[1, place] = _label_correlation(*(np.interp(sample[:, place], grid, at_grid[place]) for sample in fresh))
    return out


def _label_correlation(one: np.ndarray, two: np.ndarray) -> float:
    share = len(one) / (len(one) + len(two))
    between = share * (1 - share) * max(one.mean() - two.mean(), 0.0) ** 2
    return float(np.sqrt(between / (between + share * one.var() + (1 - share) * two.var())))


def _cross_hsic_effects(
    setup: Setup, features: np.ndarray, fresh: tuple[np.ndarray, np.ndarray], grid: np.ndarray
) -> np.ndarray:
    assert setup.response_kernels is not None
    look, learn = halves(setup.one.n, setup.door.rng)
    held = fit_looks(setup.two, setup.response_kernels, False, rng=setup.door.rng)[0].of(np.array([0]))[0]
    answers = held[:, learn] - held[:, learn].mean(axis=1, keepdims=True)
    # The response is a class, so its factor at fresh rows is the one of a row of the same class.
    codes, example = np.unique(setup.two.values[:, 0], return_index=True)
    classes = held[:, example[np.searchsorted(codes, fresh[1])]]
    at_rows, at_grid = 0.0, 0.0
    for part in _maps(setup, features, np.repeat(grid[:, None], len(features), axis=1)):
        turned = answers @ np.swapaxes(part.rows[:, :, learn], 1, 2) @ part.metric
        at_rows, at_grid = at_rows + turned @ part.rows, at_grid + turned @ part.grid
    out = np.empty((2, len(features)))
    for place in range(len(features)):
        out[0, place] = _pair_correlation(at_rows[place][:, look], held[:, look])
        new = np.array([np.interp(fresh[0][:, place], grid, direction) for direction in at_grid[place]])
        out[1, place] = _pair_correlation(new, classes)
    return out


def _pair_correlation(predicted: np.ndarray, held: np.ndarray) -> float:
    predicted, held = (a - a.mean(axis=1, keepdims=True) for a in (predicted, held))
    scale = np.sqrt((predicted**2).mean(axis=1).sum() * (held**2).mean(axis=1).sum())
    return float(np.clip((predicted * held).sum(axis=0).mean() / scale, 0.0, 1.0))


@cache
def fresh_sample(family: Family) -> tuple[np.ndarray, np.ndarray]:
    """A large sample of the true features, the same for all trials: its error is small beside a trial's own."""
    whole = family(2 * _POPULATION)
    one, two = whole.draw(np.random.default_rng(_POPULATION))
    return one[:, whole.true], two[:, whole.true] if two.ndim > 1 else two
