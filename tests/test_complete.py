"""Estimators that use all the data: complete, cross, and screening with them."""

import sys
import tracemalloc
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from by_hand import table
from scipy import stats

import kernsift
from kernsift import Incomplete, compare, relate, screen
from kernsift.data.inputs import as_candidates, as_pair, as_xy
from kernsift.data.tables import stack
from kernsift.estimators import (
    block_sizes,
    complete_hsic,
    complete_mmd,
    complete_screen,
    cross,
    cross_hsic,
    cross_mmd,
    cross_screen,
)
from kernsift.estimators.cross import joint_factor
from kernsift.estimators.draws.designs import halves
from kernsift.estimators.responses import _distinct_rows, label_response, table_response
from kernsift.estimators.scores import ScoreScales
from kernsift.estimators.statistics import best_pairs, correlations_of, fit_statistics, scores_of
from kernsift.estimators.views import fitted_views
from kernsift.estimators.witness_scores import Drawn, difference_parts, difference_scores, witness_scores
from kernsift.execution import codes
from kernsift.execution.codes import search
from kernsift.inference import exact, naive
from kernsift.inference.selection_rules import TopK
from kernsift.kernels import contingency
from kernsift.kernels.contingency import tabulate
from kernsift.kernels.fitted import fit_kernels
from kernsift.kernels.low_rank import View
from kernsift.kernels.quantisation import Grid, fit_grid


def two_samples(rng, n=60, m=40, d=6, shift=0.0):
    X, Y = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    X[:, 1] = 0.7 * X[:, 0] + 0.7 * X[:, 1]
    Y[:, 1] = 0.7 * Y[:, 0] + 0.7 * Y[:, 1]
    Y[:, 2] += shift
    one, two = as_pair(X, Y)
    return one, two, fit_kernels(stack([one, two]), rng=rng)


def seen_by(one, two, kernels, adaptive):
    """The points of all features and their statistics under each pair of views."""
    table = stack([one, two])
    features = np.arange(table.d)
    response = label_response(one.n, two.n, table.values, adaptive)
    grid = fit_grid(table, features, None)
    known = tabulate(table, features, grid, response.cells, 2, None)
    names = [pair.feature for pair in response.pairs]
    views = fitted_views(names, grid, known.counts, table.n, kernels, features, np.arange(table.n))
    return known, fit_statistics(views, known, response), response


@pytest.mark.parametrize("adaptive", [False, True])
def test_correlations_are_those_over_permutations(adaptive):
    rng = np.random.default_rng(0)
    one, two, kernels = two_samples(rng)
    scores = complete_mmd(one, two, kernels, adaptive=adaptive, rng=rng)
    known, statistics, response = seen_by(one, two, kernels, adaptive)
    winner = best_pairs(statistics, scores_of(statistics), response)
    label = np.repeat([1.0, 0.0], [one.n, two.n])
    labels = np.array([rng.permutation(label - label.mean()) for _ in range(20_000)]).T
    T = [
        ((statistics[which].view.factor[feature][:, known.codes[feature]] @ labels) ** 2).sum(axis=0)
        for feature, which in enumerate(winner)
    ]
    claimed = scores.cov.columns(np.array([1, 0, 4]))
    measured = np.corrcoef(T)[:, [1, 0, 4]]
    # Squares of heavy-tailed T make the correlation's own error larger than 1 / sqrt(size).
    assert claimed == pytest.approx(measured, abs=0.05)
    assert claimed[0, 0] > 0.1
    assert scores.cov.diagonal().tolist() == [1.0] * 6


def test_correlations_between_pairs_of_views_are_those_over_permutations():
    rng = np.random.default_rng(14)
    n = 60
    X, y = as_xy(
        np.column_stack([rng.normal(size=n), rng.poisson(2.0, n), rng.exponential(size=n)]), rng.normal(size=n)
    )
    kernels, own = fit_kernels(X, rng=rng), fit_kernels(y, rng=rng)
    response = table_response(y, own, rng, adaptive=True)
    grid = fit_grid(X, np.arange(3), None)
    known = tabulate(X, np.arange(3), grid, response.cells, len(response.counts), None)
    names = [pair.feature for pair in response.pairs]
    views = fitted_views(names, grid, known.counts, n, kernels, np.arange(3), np.arange(n))
    statistics = fit_statistics(views, known, response)
    claimed = correlations_of(statistics, known.counts, response)
    orders = [rng.permutation(n) for _ in range(4000)]
    for feature in range(3):
        T = np.empty((len(statistics), len(orders)))
        for place, look in enumerate(statistics):
            rows = look.view.factor[feature][:, known.codes[feature]]
            target = look.target.factor[:, response.cells]
            T[place] = [((rows @ target[:, order].T) ** 2).sum() for order in orders]
        # T is skewed, so that the error of a correlation is a few times 1 / sqrt(4000).
        assert claimed[:, :, feature] == pytest.approx(np.corrcoef(T), abs=0.08)


def test_copies_of_a_feature_correlate_by_one_and_a_part_of_the_rows_is_enough(monkeypatch):
    rng = np.random.default_rng(11)
    X, Y = rng.normal(size=(700, 5)), rng.normal(size=(500, 5))
    X[:, 3], Y[:, 3] = X[:, 0], Y[:, 0]
    X[:, 1] += X[:, 0]
    Y[:, 1] += Y[:, 0]
    one, two = as_pair(X, Y)
    kernels = fit_kernels(stack([one, two]), rng=rng)
    whole = complete_mmd(one, two, kernels, adaptive=True, rng=np.random.default_rng(0)).cov.columns(np.arange(5))
    monkeypatch.setattr("kernsift.estimators.covariance.selected_factor._ROWS", 600)
    part = complete_mmd(one, two, kernels, adaptive=True, rng=np.random.default_rng(0)).cov.columns(np.arange(5))
    assert whole[0, 3] == pytest.approx(1.0, abs=1e-12) and part[0, 3] == pytest.approx(1.0, abs=1e-12)
    assert 0 < np.abs(whole - part).max() < 3 / np.sqrt(600)


@pytest.mark.parametrize(("sketch", "within"), [(6, 0.03), (5, 0.2)])
def test_samples_have_the_correlations_of_the_columns(monkeypatch, sketch, within):
    """From the matrix itself while that is small; beyond, from a sketch, whose own error is larger."""
    rng = np.random.default_rng(1)
    one, two, kernels = two_samples(rng)
    scores = complete_mmd(one, two, kernels, adaptive=True, rng=rng)
    monkeypatch.setattr("kernsift.estimators.covariance.alignment._SKETCH", sketch)
    drawn = (
        np.vstack([scores.cov.sample(200, rng) for _ in range(400)]) if sketch < 6 else scores.cov.sample(40_000, rng)
    )
    assert np.corrcoef(drawn.T) == pytest.approx(scores.cov.columns(np.arange(6)), abs=within)


@pytest.mark.parametrize("sketch", [6, 5])
def test_samples_of_features_that_cannot_vary_are_zero(monkeypatch, sketch):
    rng = np.random.default_rng(21)
    X, Y = rng.normal(size=(30, 6)), rng.normal(size=(20, 6))
    X[:, 4], Y[:, 4] = 2.0, 2.0
    one, two = as_pair(X, Y)
    scores = complete_mmd(one, two, fit_kernels(stack([one, two]), rng=rng), rng=rng)
    monkeypatch.setattr("kernsift.estimators.covariance.alignment._SKETCH", sketch)
    assert scores.cov.diagonal().tolist() == [1.0, 1.0, 1.0, 1.0, 0.0, 1.0]
    drawn = scores.cov.sample(2000, rng)
    assert (drawn[:, 4] == 0).all()
    # Each of the others has variance 1: within five of its standard errors.
    assert np.delete(drawn, 4, axis=1).var(axis=0) == pytest.approx(1.0, abs=5 * np.sqrt(2 / 2000))


def test_one_bandwidth_statistic_is_the_squared_mmd():
    """T / (n m / N)^2 is the biased MMD^2 of all rows: mean over pairs within, minus twice between."""
    rng = np.random.default_rng(2)
    one, two, kernels = two_samples(rng)
    _, [look], _ = seen_by(one, two, kernels, False)
    for feature in range(3):
        own = kernels.select(np.array([feature]))
        x, y = one.values[:, [feature]], two.values[:, [feature]]
        mmd = (
            own.matched(x[:, None], x[None]).mean()
            + own.matched(y[:, None], y[None]).mean()
            - 2 * own.matched(x[:, None], y[None]).mean()
        )
        assert look.laws.statistic[feature] / (one.n * two.n / (one.n + two.n)) ** 2 == pytest.approx(mmd, rel=0.05)


def test_comparing_is_relating_to_the_label():
    rng = np.random.default_rng(3)
    X, Y = rng.normal(size=(50, 5)), rng.normal(size=(70, 5)) + 0.2
    a = compare(X, Y, k=3, random_state=0)
    b = relate(np.vstack([X, Y]), np.repeat(["a", "b"], [50, 70]), k=3, random_state=0)
    assert a.names == b.names
    assert a.log_pvalues == pytest.approx(b.log_pvalues, rel=1e-6)
    assert a.effects == pytest.approx(b.effects, rel=1e-5)


def test_scores_ignore_row_order_units_and_which_sample_is_first():
    rng = np.random.default_rng(4)
    X, Y = rng.normal(size=(90, 4)), rng.gamma(2.0, size=(60, 4))
    base = compare(X, Y, k=None, random_state=0)
    for again in (
        compare(X[rng.permutation(90)], Y[rng.permutation(60)], k=None, random_state=1),
        compare(X * [1, 10, 1e-3, 1e5] - 7, Y * [1, 10, 1e-3, 1e5] - 7, k=None, random_state=2),
        compare(Y, X, k=None, random_state=3),
    ):
        assert again.scores == pytest.approx(base.scores, abs=1e-4)


@pytest.mark.parametrize("sizes", [(20, 20), (45, 5), (30, 12)])
def test_two_by_two_tables_get_an_exact_tail(sizes):
    rng = np.random.default_rng(5)
    X, Y = (rng.random((size, 6)) < share for size, share in zip(sizes, (0.3, 0.7), strict=True))
    result = compare(X.astype(float), Y.astype(float), k=None, correction=None)
    n, drawn = sum(sizes), sizes[0]
    for name, p in zip(result.names, result.pvalues, strict=True):
        feature = int(name[1:])
        marked, seen = int(X[:, feature].sum() + Y[:, feature].sum()), int(X[:, feature].sum())
        law = stats.hypergeom(n, marked, drawn)
        cells = np.arange(n + 1)
        far = np.abs(cells - law.mean()) >= abs(seen - law.mean()) - 1e-9
        assert p == pytest.approx(law.pmf(cells)[far].sum(), rel=1e-6)


def test_two_of_three_levels_are_a_two_by_two_table():
    """Whichever level nobody has: 3 of 20 rows against 11 of 15, by Fisher's test."""
    x, y = np.repeat([0.0, 1.0], [17, 3])[:, None], np.repeat([0.0, 1.0], [4, 11])[:, None]
    one, two = (table(np.hstack([part, part + 1, 2 * part]), None, [0, 1, 2]) for part in (x, y))
    kernels = fit_kernels(stack([one, two]), rng=np.random.default_rng(0))
    scores = complete_mmd(one, two, kernels, rng=np.random.default_rng(0))
    expected = stats.norm.isf(stats.fisher_exact([[17, 3], [4, 11]]).pvalue)
    assert scores.estimate == pytest.approx([expected] * 3, abs=1e-6)


def null_rates(make, trials, k, seed):
    """Rejection rates at 0.05 of the exact and the naive test for one random selected feature a trial."""
    rng = np.random.default_rng(seed)
    hits = []
    for _ in range(trials):
        scores = make(rng)
        rule = TopK(k)
        selected = rule.select(scores.estimate)
        one = rng.integers(k)
        hits.append([test(scores, rule, selected, rng=rng).pvalues[one] <= 0.05 for test in (exact, naive)])
    return np.mean(hits, axis=0)


def make_mmd(estimator, adaptive):
    def make(rng):
        one, two, kernels = two_samples(rng, 40, 40, 8)
        return estimator(one, two, kernels, adaptive=adaptive, rng=rng)

    return make


def make_hsic(estimator, adaptive):
    def make(rng):
        X, y = as_xy(rng.standard_t(3, size=(80, 8)), rng.normal(size=80))
        kernels, own = fit_kernels(X, rng=rng), fit_kernels(y, rng=rng)
        return estimator(X, y, kernels, own, adaptive=adaptive, rng=rng)

    return make


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize(
    ("make", "estimator"),
    [(make_mmd, complete_mmd), (make_mmd, cross_mmd), (make_hsic, complete_hsic), (make_hsic, cross_hsic)],
)
def test_null_rates_hold_where_naive_ones_do_not(make, estimator, adaptive):
    """k = 2 of 8, one random selected feature a trial; the exact test stays within 4 standard errors of its level."""
    trials = 200
    error = np.sqrt(0.05 * 0.95 / trials)
    honest, naive_outcome = null_rates(make(estimator, adaptive), trials, 2, 6)
    assert honest < 0.05 + 4 * error
    assert naive_outcome > 0.05 + 4 * error


def test_adaptive_sees_shapes_one_bandwidth_misses():
    rng = np.random.default_rng(7)
    n = 500
    modes = rng.choice([-0.9, 0.9], n) + rng.normal(scale=np.sqrt(1 - 0.81), size=n)
    X, Y = rng.normal(size=(n, 5)), rng.normal(size=(n, 5))
    Y[:, 4] = modes
    adaptive = compare(X, Y, k=1)
    assert adaptive.names == ("x4",)
    assert adaptive.pvalues[0] < 1e-6
    assert compare(X, Y, k=1, bandwidth="median").log_pvalues[0] > adaptive.log_pvalues[0]


def test_linear_kernel_effect_is_the_correlation():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(4000, 3))
    y = 0.5 * X[:, 0] - 0.3 * X[:, 1] + rng.normal(size=4000)
    expected = np.abs([np.corrcoef(column, y)[0, 1] for column in X.T])
    for estimator in ("complete", "cross"):
        result = relate(X, y, k=None, kernel="linear", estimator=estimator, random_state=0)
        found = np.zeros(3)
        found[result.selected] = result.effects
        assert found[:2] == pytest.approx(expected[:2], abs=0.03)
        assert found[2] < 0.06


@pytest.mark.filterwarnings("ignore::kernsift.CalibrationWarning")
def test_effects_reach_one_and_zero():
    X, Y = np.zeros((50, 2)), np.ones((50, 2))
    X[:, 1], Y[:, 1] = np.arange(50), np.arange(50)
    for estimator in ("complete", "cross", "incomplete", "block", "linear"):
        result = compare(X, Y, k=None, estimator=estimator, random_state=0)
        found = dict(zip(result.names, result.effects, strict=True))
        assert found["x0"] == pytest.approx(1.0, abs=0.02)
        assert found["x1"] < 0.25
        assert result.pvalues[result.names.index("x0")] < 1e-6
        assert result.pvalues[result.names.index("x1")] > 0.01


def test_cross_scores_without_spread_claim_no_more_than_their_draws():
    one, two = as_pair(np.zeros((40, 1)), np.ones((40, 1)))
    kernels = fit_kernels(stack([one, two]), "gaussian", 1.0, rng=np.random.default_rng(0))
    scores = cross_mmd(one, two, kernels, rng=np.random.default_rng(0))
    assert scores.cov.diagonal() == pytest.approx([1.0])
    assert 5 < scores.estimate[0] <= 40


@pytest.mark.parametrize("estimator", ["complete", "cross"])
def test_intervals_hold_the_effect_and_shrink_with_rows(estimator):
    rng = np.random.default_rng(9)
    widths = []
    for n in (100, 1600):
        result = compare(rng.normal(size=(n, 4)), rng.normal(size=(n, 4)) + 0.4, estimator=estimator, random_state=0)
        low, high = result.intervals.T
        assert (low <= result.effects).all()
        assert (result.effects <= high).all()
        widths.append((high - low).mean())
    assert widths[1] < widths[0] / 2


def test_screening_scores_correlate_through_the_reference():
    """Null candidates of different sizes: claimed correlations against those of 600 simulated screenings."""
    rng = np.random.default_rng(10)
    sizes = (40, 80)
    for estimator, tolerance in ((complete_screen, 0.15), (cross_screen, 0.15)):
        found, claimed = [], []
        for _ in range(600):
            base, others = as_candidates(rng.normal(size=(60, 1)), {str(m): rng.normal(size=(m, 1)) for m in sizes})
            kernels = fit_kernels(stack([base, *others.values()]), "gaussian", 2.0, rng=rng)
            scores = estimator(base, others, kernels, rng=rng)
            found.append(scores.estimate)
            claimed.append(scores.cov.columns(np.array([0]))[1, 0])
        assert np.corrcoef(np.array(found).T)[0, 1] == pytest.approx(np.mean(claimed), abs=tolerance)


def test_screening_finds_the_odd_one_whatever_the_sizes():
    rng = np.random.default_rng(11)
    candidates = {f"good{i}": rng.normal(size=(80 + 30 * i, 4)) for i in range(4)}
    candidates["odd"] = rng.normal(size=(100, 4)) * 1.8
    for estimator in ("complete", "cross"):
        result = screen(rng.normal(size=(150, 4)), candidates, k=2, estimator=estimator, random_state=0)
        assert result.names[0] == "odd"
        assert result.rejected[0]
        assert 0 < result.intervals[0, 0] <= result.effects[0] <= result.intervals[0, 1] <= 1


def test_no_score_beyond_the_number_of_matchings():
    """Three rows against three: 20 labellings, so no p-value below 1 / 20 from the permutation law."""
    X, Y = np.array([[1.0], [1.1], [1.2]]), np.array([[9.0], [9.1], [9.3]])
    assert compare(X, Y).pvalues[0] >= 1 / 20 - 1e-12


def student_by_scipy(first, seconds):
    """Normal scores of Student's one-sided t-test, column by column, and the skewness of the differences of means."""
    pairs = list(zip(first.T, seconds, strict=True))
    p = [stats.ttest_ind(one, two, alternative="greater").pvalue for one, two in pairs]
    skewness = []
    for one, two in pairs:
        within, (n, m) = np.concatenate([one - one.mean(), two - two.mean()]), (len(one), len(two))
        variance = (within**2).sum() / (n + m - 2) * (1 / n + 1 / m)
        skewness.append((within**3).mean() * (1 / n**2 - 1 / m**2) / variance**1.5)
    return stats.norm.isf(p), np.array(skewness)


def is_students_score(found, expected, far=False):
    """Whether scores are those of Student's test where the skewness is negative, else those of the gamma law."""
    score, skewness = expected
    exact = np.where(skewness > 0, stats.norm.isf(stats.pearson3.sf(score, np.maximum(skewness, 1e-3))), score)
    # The error of the cube root of a gamma variable as a normal one, with skewness up to 1.
    tolerance = np.where(skewness > 0, 0.03, 1e-6 if far else 1e-9)
    return bool((np.abs(found - exact) <= tolerance).all())


# Where effects are not looked at.
NO_SCALES = ScoreScales(np.ones(3), np.ones(3))


def of_two_samples(first: np.ndarray, second: np.ndarray) -> Any:
    one, two = Drawn.of(first), Drawn.of(second)
    parts = partial(difference_parts, lambda among: [(np.arange(3), (one, two, None))])
    return difference_scores(("a", "b", "c"), one, two, parts, NO_SCALES)


def test_witness_values_are_compared_by_students_test():
    """Two samples, as all features share their rows; and screening, where each candidate has rows of its own."""
    rng = np.random.default_rng(12)
    sides = np.array([1.0, -1.0, -1.0])
    first = [0.0, 0.5, 1.0] + sides * rng.exponential(size=(7, 3))
    seconds = [side * rng.exponential(size=n) for side, n in zip(sides, (5, 9, 14), strict=True)]
    scores = witness_scores(("a", "b", "c"), first, seconds, NO_SCALES)
    assert is_students_score(scores.estimate, student_by_scipy(first, seconds))
    second = sides * rng.exponential(size=(5, 3))
    scores = of_two_samples(first, second)
    expected = student_by_scipy(first, second.T)
    assert is_students_score(scores.estimate, expected) and set(expected[1] > 0) == {False, True}
    assert scores.cov.diagonal() == pytest.approx(1.0)
    # Far apart, too, the degrees of freedom are those of all rows.
    scores = of_two_samples(first + 20, second)
    assert is_students_score(scores.estimate, student_by_scipy(first + 20, second.T), far=True)


def test_scores_of_witness_values_correlate_as_their_means_do():
    rng = np.random.default_rng(13)
    root = rng.normal(size=(3, 3))
    first, second = rng.normal(size=(40, 3)) @ root, rng.normal(size=(25, 3)) @ root * 2
    pooled = (39 * np.cov(first.T) + 24 * np.cov(second.T)) / 63
    # Candidates share the rows of the reference alone, of whose correlations they have the share 25 / (40 + 25).
    shared = np.corrcoef(first.T) * 25 / 65
    np.fill_diagonal(shared, 1.0)
    sd = np.sqrt(np.diag(pooled))
    for scores, correlation in (
        (of_two_samples(first, second), pooled / np.outer(sd, sd)),
        (witness_scores(("a", "b", "c"), first, list(second.T), NO_SCALES), shared),
    ):
        assert scores.cov.columns(np.arange(3)) == pytest.approx(correlation, abs=1e-9)


def test_effects_of_cross_belong_to_scores_through_students_law():
    rng = np.random.default_rng(14)
    first = rng.normal([1.0, 0.3, -1.0], size=(30, 3))
    seconds = [rng.normal(size=n) for n in (20, 25, 40)]
    scale, error = np.array([2.0, 3.0, 4.0]), np.array([0.3, 0.4, 0.5])
    effects = witness_scores(("a", "b", "c"), first, seconds, ScoreScales(scale, error)).effects(np.arange(3))
    gaps = np.array([one.mean() - two.mean() for one, two in zip(first.T, seconds, strict=True)])
    assert gaps[2] < 0
    assert effects.point == pytest.approx(np.sqrt(np.clip(gaps / scale, 0.0, 1.0)), abs=1e-12)
    counts = np.array([len(two) for two in seconds])
    freedom = 28 + counts
    squares = 29 * first.var(axis=0, ddof=1) + np.array([((two - two.mean()) ** 2).sum() for two in seconds])
    unit = np.sqrt(squares / freedom * (1 / 30 + 1 / counts))
    _, skewness = student_by_scipy(first, seconds)
    skewness = np.maximum(skewness, 1e-4)
    # At a score of one, the effect of a gap whose t has the tail of that score.
    at_one = unit * stats.t.isf(stats.norm.sf(stats.pearson3.isf(stats.norm.sf(1.0), skewness)), freedom)
    assert effects.at(np.ones(3)) == pytest.approx(np.sqrt(np.minimum(at_one / scale, 1.0)), abs=1e-4)
    # A score moves with its gap as the normal score of t does.
    t_scores = [stats.norm.isf(stats.t.sf((gaps + step) / unit, freedom)) for step in (1e-4, -1e-4)]
    score = [stats.norm.isf(stats.pearson3.sf(each, skewness)) for each in t_scores]
    assert effects.spread == pytest.approx((score[0] - score[1]) / 2e-4 * error, rel=2e-3)


@pytest.mark.parametrize("question", ["compare", "relate"])
def test_the_spread_of_cross_is_what_samples_show(question):
    """Means over their scale, from 400 pairs of samples; a standard deviation is known to 3.5 percent of itself."""
    rng = np.random.default_rng(15)
    shares, claimed = [], []
    for _ in range(400):
        X = rng.normal(size=(150, 1))
        if question == "compare":
            one, two = table(X), table(rng.normal(1.0, size=(100, 1)))
            kernels = fit_kernels(one, "gaussian", 1.5, rng=rng)
            scores = cross_mmd(one, two, kernels, rng=rng)
        else:
            one, two = table(X), table(X + rng.normal(size=(150, 1)))
            kernels = fit_kernels(one, "gaussian", 1.5, rng=rng)
            scores = cross_hsic(one, two, kernels, fit_kernels(two, "gaussian", 2.0, rng=rng), rng=rng)
        sizes = scores.effects(np.array([0]))
        shares.append(sizes.point[0] ** 2)
        # From the score's scale to that of the squared effect.
        ends = [sizes.at(scores.estimate + sign * sizes.spread)[0] ** 2 for sign in (1.0, -1.0)]
        claimed.append((ends[0] - ends[1]) / 2)
    assert np.sqrt(np.mean(np.square(claimed))) == pytest.approx(np.std(shares), rel=4 * 0.035)


@pytest.mark.parametrize("estimator", ["cross", "block", "incomplete"])
def test_effects_are_the_same_for_every_estimator_and_number_of_rows(estimator):
    """20 classes and one bandwidth; the complete estimator on many rows has the limit."""
    rng = np.random.default_rng(16)

    def effect(n, estimator):
        y = rng.integers(20, size=n)
        X = 0.2 * y[:, None] + rng.normal(size=(n, 1))
        result = relate(X, y, response="category", estimator=estimator, bandwidth=2.0, random_state=0)
        return result.effects[0]

    limit = effect(20_000, "complete")
    chosen = Incomplete(r=3) if estimator == "incomplete" else estimator
    for n, replicates in ((100, 200), (2_000, 20)):
        found = np.square([effect(n, chosen) for _ in range(replicates)])
        # A negative estimate has no effect, which raises the mean where rows are few.
        error = 4 * found.std(ddof=1) / np.sqrt(replicates)
        assert abs(found.mean() - limit**2) < error + (0.02 if n == 100 and estimator != "cross" else 0.002)


@pytest.mark.parametrize("size", [2.0**-50, 2.0**50])
def test_units_of_groups_change_nothing_with_a_linear_kernel(size):
    """Such as dates in microseconds: the fourth power of the values is beyond single precision."""
    rng = np.random.default_rng(8)
    X, y = rng.normal(size=(80, 4)), rng.normal(size=(80, 2))
    y += 0.5 * X[:, :2]
    options = {"kernel": "linear", "groups": {"pair": [0, 1]}, "random_state": 0}
    for ask in (
        lambda unit: compare(X[:30] * unit, X[30:] * unit + unit, **options),
        lambda unit: relate(X * unit, y * unit, **options),
    ):
        expected, found = ask(1.0), ask(size)
        np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-6)
        np.testing.assert_allclose(found.intervals, expected.intervals, atol=1e-6)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_two_looks_weigh_the_same_whatever_their_sizes(size):
    """Side by side, the Gram matrix of each look has norm 1; a look that sees nothing stays nothing."""
    rng = np.random.default_rng(24)
    orthogonal = np.linalg.qr(rng.normal(size=(5, 5)))[0][:3]
    sizes = np.array([3.0, 2.0, 0.5])
    views = [
        View(
            scale * np.array([np.sqrt(sizes)[:, None] * orthogonal, 0 * orthogonal]),
            scale**2 * np.array([sizes, 0 * sizes]),
        )
        for scale in (1.0, size)
    ]
    both = joint_factor(views)
    assert both.shape == (2, 6, 5) and (both[1] == 0).all()
    for part in (both[0, :3], both[0, 3:]):
        assert np.linalg.norm(part.T @ part) == pytest.approx(1.0)
    assert joint_factor(views[:1]) is views[0].factor


def test_parts_of_long_columns_keep_the_variance_of_all_rows():
    """Only the first rows are kept to learn correlations from; the variance is that of all of them."""
    values = np.random.default_rng(15).normal(size=(50, 2)) * [1.0, 10.0]
    values[20:, 1] *= 3.0
    drawn = Drawn.of(values, 20)
    assert drawn.kept.base is None and drawn.kept.shape == (20, 2)
    part = drawn.part(1 / 50)
    assert (part**2).sum(axis=0) == pytest.approx(values.var(axis=0, ddof=1) / 50)
    assert np.corrcoef(part.T)[0, 1] == pytest.approx(np.corrcoef(values[:20].T)[0, 1])
    whole = Drawn.of(values).part(1 / 50)
    assert whole.T @ whole == pytest.approx(np.cov(values.T) / 50)


def test_cross_scores_are_t_statistics_along_a_witness():
    """The definitions written out, with every row its own point, so that nothing is rounded."""
    rng = np.random.default_rng(16)
    X, Y = rng.normal(size=(14, 2)), rng.normal(0.7, size=(12, 2))
    one, two = as_pair(X, Y)
    kernels = fit_kernels(stack([one, two]), "gaussian", 1.5, rng=rng)
    scores = cross_mmd(one, two, kernels, rng=np.random.default_rng(3))
    again = np.random.default_rng(3)
    x_look, x_learn = halves(14, again)
    y_look, y_learn = halves(12, again)
    for j in range(2):
        column = np.concatenate([X[:, j], Y[:, j]])
        K = np.exp(-(((column[:, None] - column) / 1.5) ** 2))
        witness = K[:, x_learn].mean(axis=1) - K[:, 14 + y_learn].mean(axis=1)
        expected = student_by_scipy(witness[x_look][:, None], [witness[14 + y_look]])
        # Factors leave out directions of less than a thousandth.
        assert scores.estimate[j] == pytest.approx(expected[0], abs=0.02)


def test_cross_hsic_is_a_t_statistic_of_products():
    rng = np.random.default_rng(17)
    X = rng.normal(size=(30, 2))
    y = X[:, 0] + 0.5 * rng.normal(size=30)
    features, response = as_xy(X, y)
    kernels, own = fit_kernels(features, "gaussian", 1.5, rng=rng), fit_kernels(response, "gaussian", 1.5, rng=rng)
    scores = cross_hsic(features, response, kernels, own, rng=np.random.default_rng(4))
    look, learn = halves(30, np.random.default_rng(4))
    L = np.exp(-(((y[:, None] - y) / 1.5) ** 2))

    def centred(part):
        return part - part.mean(axis=0) - part.mean(axis=1, keepdims=True) + part.mean()

    matrices = []
    for column in X.T:
        K = np.exp(-(((column[:, None] - column) / 1.5) ** 2))
        matrices.append(centred(K[np.ix_(look, learn)]) @ centred(L[np.ix_(look, learn)]).T)
    n = len(look)
    for j, pairs in enumerate(matrices):
        # Over all matchings of rows, mean and variance and third moment of a sum of entries (Hoeffding 1951).
        product = np.diag(pairs)
        variance, third = (pairs**2).sum() / (n - 1), n * (pairs**3).sum() / (n - 1) / (n - 2)
        independent = variance / n
        total = max(independent - product.mean() ** 2, min(independent, product.var(ddof=1)))
        score = stats.norm.isf(stats.t.sf(product.mean() / np.sqrt(total / n), n - 1))
        skewness = max(third / variance**1.5, 1e-4)
        assert scores.estimate[j] == pytest.approx(stats.norm.isf(stats.pearson3.sf(score, skewness)), abs=0.02)
    expected = np.corrcoef([np.diag(pairs) for pairs in matrices])[0, 1]
    assert scores.cov.columns(np.array([0]))[1, 0] == pytest.approx(expected, abs=0.02)


def test_cross_keeps_the_level_where_rare_values_do_not_meet():
    # 20 of 1000 rows of a feature and 50 of the response are not 0: in most halves none of them are the same rows, and
    # the products of the others hardly vary. Without their variance under independence 0.4 of p-values were at most
    # 0.05. Columns of a call share their halves, so that calls are clusters.
    shares = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x = np.where(rng.random((1000, 60)) < 0.02, rng.lognormal(size=(1000, 60)), 0.0)
        y = np.where(rng.random((1000, 1)) < 0.05, rng.lognormal(size=(1000, 1)), 0.0)
        shares.append(np.mean(relate(x, y[:, 0], estimator="cross", k=None, random_state=seed).all_pvalues <= 0.05))
    assert np.mean(shares) < 0.05 + 3.5 * max(np.sqrt(0.05 * 0.95 / 480), np.std(shares, ddof=1) / np.sqrt(8))


@pytest.mark.parametrize("question", ["compare", "relate"])
def test_cross_keeps_far_levels_where_means_are_skewed(question):
    # By Student's law alone 0.006 and 0.003 of these p-values were at most 0.001.
    small = []
    for seed in range(8):
        rng = np.random.default_rng([seed, 4])
        if question == "compare":
            columns = np.where(rng.random((440, 1000)) < 0.01, rng.exponential(size=(440, 1000)), 0.0)
            found = compare(columns[:40], columns[40:], estimator="cross", random_state=seed)
        else:
            columns, classes = rng.poisson(0.3, size=(300, 1000)), rng.permutation(np.repeat([0, 1, 2], [15, 30, 255]))
            found = relate(columns, classes.astype(str), estimator="cross", random_state=seed)
        small.append((found.all_pvalues <= 0.001).sum())
    assert sum(small) <= stats.binom.ppf(0.999, 8000, 0.001)


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_candidate_that_cannot_vary_scores_zero(adaptive):
    rng = np.random.default_rng(18)
    same = np.full((12, 1), 3.0)
    base, others = as_candidates(same, {"same": same[:8], "as well": same[:9]})
    kernels = fit_kernels(stack([base, *others.values()]), "gaussian", 1.0, rng=rng)
    scores = complete_screen(base, others, kernels, adaptive=adaptive, rng=rng)
    assert scores.estimate.tolist() == [0.0, 0.0]
    assert scores.cov.columns(np.arange(2)).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert scores.effects(np.array([1, 0])).point.tolist() == [0.0, 0.0]


def test_the_claimed_correlation_of_candidates_is_the_shared_part():
    """Sizes 40 and 80 against 60: the root of the product of their shares, squared."""
    rng = np.random.default_rng(19)
    base, others = as_candidates(rng.normal(size=(60, 1)), {str(m): rng.normal(size=(m, 1)) for m in (40, 80)})
    kernels = fit_kernels(stack([base, *others.values()]), "gaussian", 2.0, rng=rng)
    scores = complete_screen(base, others, kernels, rng=rng)
    expected = (40 / 100) * (80 / 140)
    assert scores.cov.columns(np.arange(2)) == pytest.approx(np.array([[1.0, expected], [expected, 1.0]]))


def test_a_response_of_several_columns_has_a_ceiling_from_its_ties():
    """Six rows, three of them alike: 6! / 3! = 120 matchings, and no score says less than 1 / 120."""
    rng = np.random.default_rng(20)
    pairs = np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [1.0, 5.0], [2.0, 4.0], [3.0, 3.0]])
    response = table(pairs, [2])
    kernels = fit_kernels(response, "gaussian", 1.0, rng=rng)
    assert table_response(response, kernels, rng).ceiling == pytest.approx(stats.norm.isf(1 / 120))
    single = table(np.array([[0.0, 0.0, 0.0, 1.0, 2.0, 3.0]]).T)
    kernels = fit_kernels(single, "gaussian", 1.0, rng=rng)
    assert table_response(single, kernels, rng).ceiling == pytest.approx(stats.norm.isf(1 / 120))
    # Two samples of equal size may change places, so that no labelling is alone.
    assert label_response(3, 3, single.values).ceiling == pytest.approx(stats.norm.isf(2 / 20))
    assert label_response(3, 4, single.values).ceiling == pytest.approx(stats.norm.isf(1 / 35))


@pytest.mark.parametrize("estimator", ["complete", "cross"])
@pytest.mark.parametrize("question", [compare, relate])
@pytest.mark.parametrize(("n", "size"), [(12, 3.0), (60, 0.5), (400, 1.0), (1500, 3.0)])
def test_an_effect_lies_in_its_own_interval_where_nothing_was_selected(question, estimator, n, size):
    """Also where it is many standard errors from none, and few degrees of freedom are behind it."""
    rng = np.random.default_rng(101 + n)
    X, noise = rng.normal(size=(n, 4)), rng.normal(size=(n, 4))
    other = noise + size if question is compare else size * X.sum(axis=1) + noise[:, 0]
    result = question(X, other, k=None, estimator=estimator, random_state=1)
    low, high = result.intervals.T
    assert (low <= result.effects).all()
    assert (result.effects <= high).all()
    assert (high - low > 0).all()


@pytest.mark.slow
def test_intervals_of_cross_cover_a_strong_effect():
    rng, shift, replicates = np.random.default_rng(102), 2.0, 60
    truth = compare(rng.normal(size=(40_000, 3)), rng.normal(shift, size=(40_000, 3)), k=None, estimator="cross")
    covered = []
    for seed in range(replicates):
        X, Y = rng.normal(size=(300, 3)), rng.normal(shift, size=(300, 3))
        low, high = compare(X, Y, k=None, estimator="cross", random_state=seed).intervals.T
        covered += [*((low <= truth.effects.mean()) & (truth.effects.mean() <= high))]
    # Features are independent; three standard errors of a share of 0.95.
    assert np.mean(covered) > 0.95 - 3 * np.sqrt(0.05 * 0.95 / len(covered))


def test_rare_categories_of_a_response_share_a_cell():
    """The view has a direction for each of the 256 most frequent categories; the others need no columns of counts."""
    rng = np.random.default_rng(5)
    X, y = as_xy(rng.normal(size=(900, 3)), rng.zipf(1.2, 900) % 700, response="category")
    kernels, answers = fit_kernels(X, rng=rng), fit_kernels(y, rng=rng)
    response = table_response(y, answers, rng, True)
    assert response.cells.max() + 1 == len(response.counts) <= 257
    codes = y.values[:, 0].astype(int)
    counts = np.bincount(codes).astype(float)
    points = np.arange(len(counts), dtype=float)[:, None]
    grid = Grid(points, (points[1:, 0] + points[:-1, 0])[None, :] / 2)
    views = fitted_views(["plain"], grid, counts[None, :], 900, answers, np.array([0]), np.arange(256))
    whole = views["plain"]
    for claimed, expected in zip(response.views["plain"].own, whole.own, strict=True):
        np.testing.assert_allclose(claimed, expected[0], rtol=1e-9)
    gram = [factor[:, cells].T @ factor[:, cells] for factor, cells in (
        (response.first.factor, response.cells), (whole.view.factor[0], codes)
    )]  # fmt: skip
    np.testing.assert_allclose(*gram, atol=1e-12)
    scores = complete_hsic(X, y, kernels, answers, adaptive=True, rng=rng)
    assert np.isfinite(scores.estimate).all()


@pytest.mark.parametrize("rows", [60, 20_000])
def test_correlations_of_cross_scores_are_the_same_from_kept_and_from_computed_values(rows, monkeypatch):
    rng = np.random.default_rng(17)
    shared = rng.normal(size=(2 * rows, 1))
    values = shared + rng.normal(size=(2 * rows, 70))
    values[:, 5] = 0.0
    values[rows:, 6], values[:rows, 6] = 1.0, 0.0
    one, two = as_pair(values[:rows], values[rows:])
    kernels = fit_kernels(stack([one, two]), rng=rng)
    found = []
    for kept in (2**30, 0):
        monkeypatch.setattr(cross, "_KEPT", kept)
        scores = cross_mmd(one, two, kernels, rng=np.random.default_rng(3))
        some = np.array([7, 3, 6, 69])
        found.append((scores.estimate, scores.cov.columns(some), scores.cov.diagonal()))
        draws = scores.cov.sample(4000, np.random.default_rng(4))
        assert np.corrcoef(draws[:, [7, 8]].T)[0, 1] == pytest.approx(found[-1][1][8, 0], abs=5 / np.sqrt(4000))
    for kept_rows, computed in zip(*found, strict=True):
        assert computed == pytest.approx(kept_rows, abs=1e-12)
    assert found[0][2] == pytest.approx(np.where(np.arange(70) == 5, 0.0, 1.0))


def test_cross_scores_count_rare_values_beyond_the_rows_that_correlations_are_estimated_from(monkeypatch):
    """The values at the first test rows are all equal, those at later rows are not."""
    monkeypatch.setattr(cross, "LEARNING", 8)
    values = np.zeros((4000, 2))
    values[2000:2020, 0] = 1.0
    one, two = as_pair(values[:2000], values[2000:])
    scores = [
        cross_mmd(one, two, fit_kernels(stack([one, two]), bandwidth=1.0, rng=rng), rng=rng).estimate[0]
        for rng in map(np.random.default_rng, range(5))
    ]
    assert min(scores) > 1.5


@pytest.mark.parametrize("missing", [False, True])
def test_rows_of_a_long_and_narrow_table_are_divided_among_threads(monkeypatch, missing):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(9000, 5)), rng.normal(size=(9000, 5))
    X[:, 3], Y[:, 3] = np.round(X[:, 3], 1), np.round(Y[:, 3], 1)
    if missing:
        X[::7, 2] = np.nan
    blocks = compare(X, Y, missing="value", n_jobs=1)
    monkeypatch.setattr(block_sizes, "_MANY_VALUES", 2**10)
    monkeypatch.setattr(contingency, "_NUMBERS", 2**13)
    one, three = (compare(X, Y, missing="value", n_jobs=jobs) for jobs in (1, 3))
    np.testing.assert_array_equal(one.scores, three.scores)
    np.testing.assert_array_equal(one.log_pvalues, three.log_pvalues)
    np.testing.assert_allclose(one.scores, blocks.scores, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_searching_in_intervals_is_a_binary_search(dtype):
    rng = np.random.default_rng(0)
    rows = np.stack(
        [rng.normal(size=20_000), rng.lognormal(0, 3, 20_000), rng.standard_cauchy(20_000), np.zeros(20_000)]
    )
    rows = np.concatenate([rows, 1e9 + rows[:1], np.round(rows[:1], 1), 1e30 * rows[2:3]]).astype(dtype)
    edges = np.sort(rows[:, ::100], axis=1)
    edges[5, 150:] = np.inf
    rows[:, 7], rows[:, 8] = np.finfo(dtype).max, np.finfo(dtype).min
    expected = [np.searchsorted(own, values) for own, values in zip(edges, rows, strict=True)]
    np.testing.assert_array_equal(search(edges, rows), expected)
    small = search(edges, rows, np.uint8)
    assert small.dtype == np.uint8
    np.testing.assert_array_equal(small, expected)


def test_screen_copies_its_rows_once():
    rng = np.random.default_rng(0)
    base, others = rng.normal(size=(50, 64)), rng.normal(size=(60, 500, 64))
    named = {f"c{i}": other for i, other in enumerate(others)}
    screen(base, {"c0": others[0]}, random_state=0)  # what is imported on first use takes memory of its own
    tracemalloc.start()
    try:
        screen(base, named, random_state=0, n_jobs=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * others.nbytes


@pytest.mark.parametrize("order", ["C", "F"])
def test_distinct_rows_are_those_of_numpy(order):
    rng = np.random.default_rng(0)
    for n, w in ((1, 1), (2, 3), (50, 2), (400, 3)):
        values = np.array(rng.integers(-2, 3, (n, w)), dtype=float, order=order)
        values[::3] *= -1.0  # -0.0 equals 0.0
        expected = np.unique(values, axis=0, return_inverse=True, return_counts=True)[1:]
        for found, known in zip(_distinct_rows(values), expected, strict=True):
            np.testing.assert_array_equal(found, known.ravel())


def test_a_small_call_makes_few_calls_of_functions():
    """Of a call with 500 rows and 50 features most of the time is that of calling functions, not of arithmetic."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(500, 50)), rng.integers(0, 2, 500)
    relate(X, y, k=30, random_state=0)  # what is computed once for any number of calls
    package, names = str(Path(kernsift.__file__).parent), []

    def record(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(package):
            names.append(frame.f_code.co_name)

    sys.setprofile(record)
    try:
        relate(X, y, k=30, random_state=0)
    finally:
        sys.setprofile(None)
    # Comprehensions are no functions in later versions of Python.
    assert len([name for name in names if not name.startswith("<")]) < 1000


def test_pieces_of_a_column_share_its_intervals(monkeypatch):
    """Edges are put into intervals once for each column of a long table, and not for each of its pieces of rows."""
    codes._buckets.cache_clear()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40_000, 3))
    monkeypatch.setattr(contingency, "_NUMBERS", 2**17)
    compare(X[:20_000], X[20_000:], random_state=0, n_jobs=1)
    found = codes._buckets.cache_info()
    assert found.misses == 3 and found.hits > 3
