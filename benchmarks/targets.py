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
from kernsift.factors import lenses
from kernsift.grids import Grid, fit_grid, rows_to_sort
from kernsift.kernels import FeatureKernels, fit_kernels
from kernsift.result import Result
from kernsift.scores import Scores
from kernsift.statistics import HSIC, MMD
from kernsift.statistics.complete import Look, best_of, effect_sizes, look_at, scores_of
from kernsift.statistics.cross import side_by_side
from kernsift.statistics.responses import Meeting, Response, label_response, table_response
from kernsift.tables import Table, as_pair, as_xy, stack
from kernsift.tabulation import tabulate

# Rows (of each sample, or in all) behind a population value.
_POPULATION = 20_000
# Rows that represent a group of columns; there are no groups here.
_NO_LANDMARKS = np.empty(0, dtype=int)


class Setup(NamedTuple):
    """One call's tables and kernels: for `compare` the stacked samples and no response kernels."""

    door: Door
    one: Table
    two: Table
    pooled: Table
    kernels: FeatureKernels
    response_kernels: FeatureKernels | None

    @property
    def adaptive(self) -> bool:
        """Whether there are two looks at each feature."""
        return bool(self.door.estimator_options.get("adaptive"))

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
        "n_jobs": 1,
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


def _looks(setup: Setup, adaptive: bool, rng: np.random.Generator) -> tuple[np.ndarray, list[Look], Response]:
    """What `complete` sees of every feature: the counts of its points, each lens's look at them, the response."""
    table, features = setup.pooled, np.arange(setup.pooled.d)
    if setup.response_kernels is None:
        response = label_response(setup.one.n, setup.two.n, table.like)
    else:
        response = table_response(setup.two, setup.response_kernels, rng)
    grid = fit_grid(table, features, rows_to_sort(table.n, rng))
    known = tabulate(table, features, grid, response.cells, response.factor.shape[1], None)
    meeting = Meeting(known, response)
    views = [lens.view(grid, known.counts, features, _NO_LANDMARKS) for lens in lenses(setup.kernels, adaptive)]
    return known.counts, [look_at(view, known.counts, meeting) for view in views], response


@cache
def _population(family: Family, adaptive: bool) -> tuple[np.ndarray, np.ndarray]:
    """Effect sizes (looks, true features) at the population, and which features are true."""
    whole = family(_POPULATION)
    rng = np.random.default_rng([20_000, int(adaptive)])
    one, two = whole.draw(rng)
    setup = set_up(whole, (one[:, whole.true], two[:, whole.true] if two.ndim > 1 else two), 0)
    _, looks, response = _looks(setup, adaptive, rng)
    scores = scores_of(looks, response)
    sizes = [effect_sizes(look.laws, score, response).point for look, score in zip(looks, scores, strict=True)]
    return np.array(sizes), whole.true


def winners(setup: Setup) -> np.ndarray:
    """(d,) the look that speaks for each feature, 0 or 1.

    The scores do not keep it, so that the looks are taken again. Tables this small are sorted whole, so nothing about
    them is random and these are the looks of the call.
    """
    if not setup.adaptive:
        return np.zeros(setup.pooled.d, dtype=int)
    counts, looks, response = _looks(setup, True, np.random.default_rng(0))
    return best_of(looks, counts, response)[1]


def kernel_targets(family: Family, setup: Setup) -> np.ndarray:
    """Each feature's population effect for the look that won."""
    sizes, true = _population(family, setup.adaptive)
    targets = np.zeros(len(true))
    # The true features are alike, so their mean is each one's value with less noise.
    targets[true] = sizes.mean(axis=1)[winners(setup)[true]]
    return targets


# --- cross ------------------------------------------------------------------------------------------------------------


def cross_targets(setup: Setup, problem: Problem, family: Family) -> np.ndarray:
    """Each feature's population effect given its witness; `setup` must be fresh, with the call's own seed."""
    true = np.flatnonzero(problem.true)
    aims = np.zeros(len(problem.true))
    aims[true] = cross_effects(setup, true, fresh_sample(family))[1]
    return aims


def cross_effects(setup: Setup, features: np.ndarray, fresh: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Effects (2, features) of the witnesses that a call with this setup learns: on its other half, and on fresh data.

    The first row is what the call itself reports; it is there to check that these are the same witnesses. A witness has
    one value for each point of a feature's grid, and a fresh row takes that of the nearest point, as the call's own do.
    """
    if setup.response_kernels is None:
        return _cross_mmd_effects(setup, features, fresh)
    return _cross_hsic_effects(setup, features, fresh)


class _Joined(NamedTuple):
    """The points of some features, the (features, rows) codes of the table's rows, and factors (features, m, points).

    All looks are in a factor, side by side.
    """

    grid: Grid
    codes: np.ndarray
    factor: np.ndarray

    @classmethod
    def of(cls, setup: Setup, features: np.ndarray) -> _Joined:
        table = setup.pooled
        grid = fit_grid(table, features, rows_to_sort(table.n, setup.door.rng))
        known = tabulate(table, features, grid, None, 1, None)
        looks = lenses(setup.kernels, setup.adaptive)
        views = [look.view(grid, known.counts, features, _NO_LANDMARKS) for look in looks]
        return cls(grid, known.codes, side_by_side(views))


def _cross_mmd_effects(setup: Setup, features: np.ndarray, fresh: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    x_look, x_learn = halves(setup.one.n, setup.door.rng)
    y_look, y_learn = (setup.one.n + rows for rows in halves(setup.two.n, setup.door.rng))
    grid, codes, factor = _Joined.of(setup, features)
    new = [grid.codes(sample) for sample in fresh]
    out = np.empty((2, len(features)))
    for place, (own, directions) in enumerate(zip(codes, factor, strict=True)):
        gap = directions[:, own[x_learn]].mean(axis=1) - directions[:, own[y_learn]].mean(axis=1)
        witness = gap @ directions
        out[0, place] = _label_correlation(witness[own[x_look]], witness[own[y_look]])
        out[1, place] = _label_correlation(*(witness[sample[place]] for sample in new))
    return out


def _label_correlation(one: np.ndarray, two: np.ndarray) -> float:
    share = len(one) / (len(one) + len(two))
    between = share * (1 - share) * max(one.mean() - two.mean(), 0.0) ** 2
    return float(np.sqrt(between / (between + share * one.var() + (1 - share) * two.var())))


def _cross_hsic_effects(setup: Setup, features: np.ndarray, fresh: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    assert setup.response_kernels is not None
    look, learn = halves(setup.one.n, setup.door.rng)
    response = table_response(setup.two, setup.response_kernels, setup.door.rng)
    held = response.factor[:, response.cells]
    answers = held[:, learn] - held[:, learn].mean(axis=1, keepdims=True)
    # The response is a class, so its factor at fresh rows is the one of a row of the same class.
    classes, example = np.unique(setup.two.values[:, 0], return_index=True)
    fresh_held = held[:, example[np.searchsorted(classes, fresh[1])]]
    grid, codes, factor = _Joined.of(setup, features)
    new = grid.codes(fresh[0])
    out = np.empty((2, len(features)))
    for place, (own, directions) in enumerate(zip(codes, factor, strict=True)):
        predicted = answers @ directions[:, own[learn]].T @ directions  # (response directions, points)
        out[0, place] = _pair_correlation(predicted[:, own[look]], held[:, look])
        out[1, place] = _pair_correlation(predicted[:, new[place]], fresh_held)
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
