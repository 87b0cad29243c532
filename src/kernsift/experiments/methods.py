"""The methods that are compared: a recipe for scores, and a test of the selected ones.

Several tests share one recipe's scores, as they do in a call of `compare` or `relate`; so a trial computes each recipe
once. A recipe and a test go through the same functions as those calls do: kernels, statistic, selection, inference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernsift.api import TopKPvalues
from kernsift.data.inputs import as_candidates, as_pair, as_xy
from kernsift.data.tables import Table, stack
from kernsift.estimators import HSIC, MMD, SCREEN
from kernsift.estimators.scores import FactorCovariance, Scores
from kernsift.experiments.problems import DataSets, Sample, TwoSamples
from kernsift.experiments.published_rows import published_hsic
from kernsift.inference import TESTS
from kernsift.inference.selection_rules import TopK
from kernsift.kernels.fitted import FeatureKernels, fit_kernels

# The estimator of the authors' code with the rows that code drew.
PUBLISHED = "incomplete, the authors' rows"


@dataclass(frozen=True)
class Recipe:
    """How scores are made.

    `bandwidth` "auto" is the library's default (adaptive); the paper's runs have "joint". `options` go to the
    estimator. With `own_designs` every feature has quadruples of its own, but the covariance is the sample covariance
    of these unrelated draws: what the authors' HSIC code did.
    """

    estimator: str
    bandwidth: str | float = "joint"
    kernel: str = "gaussian"
    options: tuple[tuple[str, float], ...] = ()
    own_designs: bool = False


@dataclass(frozen=True)
class Method:
    """A named method: a recipe and a test; `ours` marks what the paper does not have."""

    name: str
    recipe: Recipe
    test: str
    ours: bool = False


def score(sample: Sample, recipe: Recipe, rng: np.random.Generator) -> Scores:
    """The scores of one recipe on one sample."""
    adaptive = recipe.bandwidth == "auto"
    bandwidth = "median" if adaptive else recipe.bandwidth
    options: dict[str, Any] = dict(recipe.options) | ({"adaptive": True} if adaptive else {})
    if isinstance(sample, TwoSamples):
        one, two = as_pair(sample.X, sample.Y)
        kernels = fit_kernels(stack([one, two]), recipe.kernel, bandwidth, rng=rng)
        return MMD[recipe.estimator](one, two, kernels, rng=rng, **options)
    if isinstance(sample, DataSets):
        base, others = as_candidates(sample.reference, sample.candidates)
        kernels = fit_kernels(stack([base, *others.values()]), recipe.kernel, bandwidth, rng=rng)
        return SCREEN[recipe.estimator](base, others, kernels, rng=rng, **options)
    table, target = as_xy(sample.X, sample.y, response="category" if sample.categories else "numeric")
    kernels = fit_kernels(table, recipe.kernel, bandwidth, rng=rng)
    # The response has a bandwidth of its own. A response of two values has one centred kernel, whatever the bandwidth.
    own = bandwidth if isinstance(bandwidth, str) else "median"
    response_kernels = fit_kernels(target, recipe.kernel, own, rng=rng)
    if recipe.estimator == PUBLISHED:
        return published_hsic(table, target, kernels, response_kernels, **options)
    if recipe.own_designs:
        return _own_designs(table, target, kernels, response_kernels, options, rng)
    return HSIC[recipe.estimator](table, target, kernels, response_kernels, rng=rng, **options)


def _own_designs(
    table: Table,
    target: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    options: dict[str, Any],
    rng: np.random.Generator,
) -> Scores:
    """Incomplete HSIC one feature after the other, then the covariance of the draws as if they belonged together.

    Draw by draw the features met in different rows, so their true covariance is nearly 0 and the off-diagonal entries
    are noise, on which the published power of the polyhedral test depends.
    """
    estimates, factors = [], []
    for feature in np.arange(table.d)[:, None]:
        part = HSIC["incomplete"](
            table.select(feature), target, kernels.select(feature), response_kernels, rng=rng, **options
        )
        assert isinstance(part.cov, FactorCovariance)
        estimates.append(part.estimate)
        factors.append(part.cov.factor)
    return Scores(table.names, np.concatenate(estimates), FactorCovariance(np.hstack(factors)))


def run_test(scores: Scores, method: Method, k: int, replicates: int, rng: np.random.Generator) -> TopKPvalues:
    """Select the k best and test them."""
    rule = TopK(min(k, len(scores)))
    selected = rule.select(scores.estimate)
    options = {"replicates": replicates} if method.test == "multiscale" else {}
    return TopKPvalues(selected, TESTS[method.test](scores, rule, selected, rng=rng, **options).pvalues)
