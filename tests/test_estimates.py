"""Estimates and intervals in the normal model, where the truth is known: after a selection, and after a correction."""

from __future__ import annotations

import pickle
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy.stats import norm

from kernsift import compare, relate
from kernsift.estimators.scores import DenseCovariance, DiagonalCovariance, EffectSizes, Scores
from kernsift.inference import exact, naive
from kernsift.inference.estimates import Coverage, Estimates, effect_estimates
from kernsift.inference.multiple_testing import adjust
from kernsift.inference.selection_rules import Everything, TopK

SCALE = 20.0


def scores_around(mean: np.ndarray, rng: np.random.Generator, root: np.ndarray | None = None) -> Scores:
    """Normal scores with these means and standard deviation 1; an effect is a twentieth of a mean."""
    d = len(mean)
    noise = rng.normal(size=d) if root is None else root @ rng.normal(size=d)
    cov = DiagonalCovariance(np.ones(d)) if root is None else DenseCovariance(root @ root.T)
    values = mean + noise

    def effects(features: np.ndarray) -> EffectSizes:
        point = np.clip(values[features] / SCALE, 0.0, 1.0)
        return EffectSizes(point, np.ones(len(features)), lambda means: np.minimum(means / SCALE, 1.0))

    return Scores(tuple(map(str, range(d))), values, cov, effects=effects)


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_estimates_of_a_short_list_are_median_unbiased_and_its_intervals_cover(correlation: float) -> None:
    """Given the selection each estimate is above the truth half of the time, and each interval has its level."""
    rng = np.random.default_rng(11)
    d, k, trials, level = 12, 3, 500, 0.9
    mean = np.linspace(0.5, 2.0, d)
    root = np.linalg.cholesky(np.full((d, d), correlation) + (1 - correlation) * np.eye(d))
    above, raw_above, covered = [], [], []
    for _ in range(trials):
        scores = scores_around(mean, rng, root)
        rule = TopK(k)
        selected = rule.select(scores.estimate)
        outcome = exact(scores, rule, selected, rng=rng)
        found = Estimates(scores, selected, outcome, Coverage(level))
        assert found.effects is not None and found.raw_effects is not None and found.intervals is not None
        # One of the three, drawn at random, so that trials are independent.
        one = int(rng.integers(k))
        truth = mean[selected[one]] / SCALE
        above.append(found.effects[one] > truth)
        raw_above.append(found.raw_effects[one] > truth)
        low, high = found.intervals[one]
        covered.append(low <= truth <= high)
        assert (found.intervals[:, 0] <= found.effects).all()
        assert (found.effects <= found.intervals[:, 1]).all()
    # Four standard errors of a share over independent trials.
    assert abs(np.mean(above) - 0.5) < 4 * np.sqrt(0.25 / trials)
    assert np.mean(raw_above) > 0.5 + 4 * np.sqrt(0.25 / trials)
    assert abs(np.mean(covered) - level) < 4 * np.sqrt(level * (1 - level) / trials)


@pytest.mark.slow
@pytest.mark.parametrize("strength", [0.5, 2.0])
def test_the_false_coverage_rate_of_discoveries_is_kept(strength: float) -> None:
    """Of the discoveries' intervals at most 10% miss on average; at the nominal level far more of them would."""
    rng = np.random.default_rng(12)
    d, trials, alpha = 40, 250, 0.1
    mean = np.where(np.arange(d) < 30, strength, 0.0)
    selected = np.arange(d)
    missed, missed_plainly = np.zeros(trials), np.zeros(trials)
    for trial in range(trials):
        scores = scores_around(mean, rng)
        outcome = naive(scores, Everything(), selected, rng=rng)
        rejected = adjust(norm.sf(scores.estimate), "bh") <= alpha
        found = Estimates(scores, selected, outcome, Coverage(1 - alpha, rejected, rejected.mean())).intervals
        plain = Estimates(scores, selected, outcome, Coverage(1 - alpha)).intervals
        assert found is not None and plain is not None
        np.testing.assert_array_equal(found[:, 0] > 0, rejected)
        if rejected.any():
            outside = (found[:, 0] > mean / SCALE) | (found[:, 1] < mean / SCALE)
            missed[trial] = outside[rejected].mean()
            outside = (plain[:, 0] > mean / SCALE) | (plain[:, 1] < mean / SCALE)
            missed_plainly[trial] = outside[rejected].mean()
        # What was not found reaches 0, and is otherwise the plain interval.
        np.testing.assert_allclose(found[~rejected, 1], plain[~rejected, 1], rtol=1e-9)
    assert missed.mean() < alpha + 4 * missed.std() / np.sqrt(trials)
    if strength < 1:  # few are found, and those that are, by luck
        assert missed_plainly.mean() > alpha + 4 * missed_plainly.std() / np.sqrt(trials)


def test_levels_follow_the_share_of_discoveries() -> None:
    found = np.array([True, False, True, False])
    np.testing.assert_allclose(Coverage(0.9, found, 2 / 8).levels(4), [0.975, 0.9, 0.975, 0.9])
    np.testing.assert_allclose(Coverage(0.9).levels(2), [0.9, 0.9])
    np.testing.assert_allclose(Coverage(0.9, np.zeros(2, bool), 0.0).levels(2), [0.9, 0.9])


def test_each_interval_has_its_own_level() -> None:
    rng = np.random.default_rng(13)
    scores = scores_around(np.full(3, 3.0), rng)
    every = np.arange(3)
    assert scores.effects is not None
    sizes, outcome = scores.effects(every), naive(scores, Everything(), every, rng=rng)
    levels = np.array([0.5, 0.9, 0.99])
    together = effect_estimates(scores, every, sizes, outcome.truncation, levels).intervals
    assert together is not None
    for row, level in enumerate(levels):
        alone = effect_estimates(scores, every, sizes, outcome.truncation, np.full(3, level)).intervals
        assert alone is not None
        np.testing.assert_allclose(alone[row], together[row], rtol=1e-6, atol=1e-9)


def test_estimates_survive_a_pickle_without_their_scores() -> None:
    scores = scores_around(np.full(4, 2.0), np.random.default_rng(14))
    rule = TopK(2)
    selected = rule.select(scores.estimate)
    outcome = exact(scores, rule, selected, rng=np.random.default_rng(0))
    found = Estimates(scores, selected, outcome, Coverage(0.95))
    again = pickle.loads(pickle.dumps(found))
    for name in ("effects", "raw_effects", "intervals"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))


@pytest.mark.parametrize("estimator", ["complete", "cross"])
def test_rows_without_any_variation_exclude_no_effect(estimator: str) -> None:
    """A constant feature, and one whose rows have classes of their own: the interval is not [0, 0], and not NaN."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 2))
    X[:, 1] = 3.0
    constant = compare(X[:12], X[12:], estimator=estimator, random_state=0)
    assert constant.intervals is not None and constant.names[1] == "x1"
    assert constant.intervals[1, 0] == 0 and constant.intervals[1, 1] > 0.3
    if estimator == "complete":
        X[3:, 1] = np.nan
        X[:3, 1] = [1.0, 2.0, 3.0]
        single = relate(X, list("abc") * 8, estimator=estimator, random_state=0)
        assert single.intervals is not None
        np.testing.assert_array_equal(single.intervals[1], [0.0, 1.0])


@pytest.mark.parametrize(
    ("rows", "d", "separated", "alpha"), [(3, 1, 1, 0.1), (3, 5, 5, 0.1), (4, 7, 4, 0.05), (5, 63, 10, 0.05)]
)
def test_pvalues_that_equal_the_level_are_significant(rows, d, separated, alpha):
    # Two of all divisions of the rows are as extreme, and the step-up rule compares 2 / C(2n, n) with alpha r / d.
    assert Fraction(2, comb(2 * rows, rows)) * Fraction(d, separated) == Fraction(str(alpha))
    X, Y = np.zeros((rows, d)), np.zeros((rows, d))
    X[:, :separated], Y[:, :separated] = np.arange(rows)[:, None], 10.0 + np.arange(rows)[:, None]
    result = compare(X, Y, alpha=alpha, confidence_level=1 - alpha, random_state=0)
    assert result.rejected.sum() == result.all_rejected.sum() == separated
    assert ((result.intervals[:, 0] > 0) == result.rejected).all()


def test_single_pvalues_that_equal_the_level_are_significant():
    X, Y = np.arange(3.0)[:, None], 10.0 + np.arange(3.0)[:, None]
    result = compare(X, Y, alpha=0.1, confidence_level=0.9, correction=None, random_state=0)
    assert result.rejected.all() and result["x0"].rejected and (result.intervals[:, 0] > 0).all()
