"""Intervals of effect sizes: against enumeration of 2 x 2 tables, simulated rows, closed forms and Fisher's z."""

from functools import partial

import numpy as np
import pytest
from scipy.special import log_ndtr, roots_genlaguerre
from scipy.stats import binom, hypergeom, norm

from kernsift import compare, relate
from kernsift.distributions.truncated_normal import EVERYWHERE, log_survivals
from kernsift.estimators.effects import views as effect_views
from kernsift.estimators.effects.alternatives import effect_laws
from kernsift.estimators.effects.combined import CombinedEffects, penalties
from kernsift.estimators.effects.family_laws import FamilyMoments, NullMoments
from kernsift.estimators.null_laws.permutation_law import score_of
from kernsift.estimators.scores import DiagonalCovariance, EffectsWithLaws, Scores
from kernsift.inference.estimates import effect_estimates


def label_factor(n, m):
    return np.array([[m / (n + m), -n / (n + m)]])


def gram_factor(gram, counts):
    """Factor (m, G) of a kernel on points, centred over the rows that they stand for."""
    weights = counts / counts.sum()
    gram = gram - gram @ weights - (gram @ weights)[:, None] + weights @ gram @ weights
    root = np.sqrt(counts)
    values, vectors = np.linalg.eigh(root[:, None] * gram * root)
    keep = values > 1e-9 * values.max()
    return ((vectors[:, keep] * np.sqrt(values[keep])) / root[:, None]).T[::-1]


def gaussian(values):
    gaps = np.abs(values[:, None] - values)
    return np.exp(-0.5 * (gaps / np.median(gaps[gaps > 0])) ** 2)


def permutation_moments(factor, response, rng, draws=4000):
    """Moments of T over random matchings of rows, and the normal score of the observed T."""
    n = factor.shape[1]
    total = np.zeros(draws)
    orders = rng.permuted(np.tile(np.arange(n), (draws, 1)), axis=1)
    for row in response:
        total += ((row[orders] @ factor.T) ** 2).sum(axis=1)
    seen = ((factor @ response.T) ** 2).sum()
    tail = (np.count_nonzero(total >= seen * (1 - 1e-9)) + 1) / (draws + 1)
    sd = total.std()
    return total.mean(), sd, ((total - total.mean()) ** 3).mean() / sd**3, norm.isf(min(tail, 1 - 1e-4))


def laws_of_rows(factor, response, joint, null, score, *, samples):
    """`effect_laws` of points and cells with all rows, from the mean, deviation and skewness of T."""
    statistic = ((factor @ joint @ response.T) ** 2).sum(axis=(1, 2))
    none = np.zeros((len(factor), 2))
    return effect_laws(factor, response, joint, NullMoments(statistic, *null), score, none, samples=samples)


def laws_of(columns, response_factor, cells, rng, *, samples, kernel=gaussian):
    """`EffectLaws` of columns (n, d) without ties: every row is a point."""
    n, d = columns.shape
    factors = [gram_factor(kernel(column), np.ones(n)) for column in columns.T]
    rank = max(len(factor) for factor in factors)
    factor = np.stack([np.pad(part, ((0, rank - len(part)), (0, 0))) for part in factors])
    joint = np.zeros((d, n, response_factor.shape[1]))
    joint[:, np.arange(n), cells] = 1.0
    found = [permutation_moments(part, response_factor[:, cells], rng) for part in factor]
    *null, score = np.array(found).T
    return laws_of_rows(factor, response_factor, joint, null, score, samples=samples)


def two_by_two(n, m):
    """`EffectLaws` of all tables of n and m rows with two values, with Fisher's test, and their numbers of ones."""
    ones = np.stack(np.meshgrid(np.arange(n + 1), np.arange(m + 1), indexing="ij"), axis=-1).reshape(-1, 2)
    joint = np.stack([np.array([n, m]) - ones, ones], axis=1).astype(float)
    share = ones.sum(axis=1) / (n + m)
    factor = np.stack([-share, 1 - share], axis=1)[:, None, :]
    factor[(share == 0) | (share == 1)] = 0.0
    found = []
    for a, b in ones:
        cells = np.arange(max(0, a + b - m), min(n, a + b) + 1)
        mass, gaps = hypergeom.pmf(cells, n + m, a + b, n), np.abs(cells - n * (a + b) / (n + m))
        mean = mass @ gaps**2
        sd = np.sqrt(mass @ (gaps**2 - mean) ** 2)
        third = mass @ (gaps**2 - mean) ** 3 / max(sd, 1e-100) ** 3
        tail = mass[gaps >= abs(a - n * (a + b) / (n + m)) * (1 - 1e-9)].sum()
        found.append((mean, sd if sd > 1e-9 else 0.0, third if sd > 1e-9 else 0.0, np.log(min(tail, 1 - 1e-6))))
    mean, sd, third, log_tail = np.array(found).T
    null = (mean, sd, third)
    return ones, laws_of_rows(factor, label_factor(n, m), joint, null, score_of(log_tail), samples=True)


def phi(first, second, share):
    """The effect of two proportions: the correlation between value and label."""
    pooled = share * first + (1 - share) * second
    return np.sqrt(share * (1 - share) / (pooled * (1 - pooled))) * abs(first - second)


PROPORTIONS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 0.95, 0.98)


@pytest.mark.parametrize(("n", "m"), [(5, 5), (8, 8), (15, 15), (10, 30), (30, 30), (10, 60)])
def test_coverage_of_two_proportions_by_enumeration(n, m):
    """No simulation: the probability of every table is known."""
    ones, laws = two_by_two(n, m)
    low, high = laws.intervals(0.95).T
    coverage = []
    for first in PROPORTIONS:
        for second in PROPORTIONS:
            chance = binom.pmf(ones[:, 0], n, first) * binom.pmf(ones[:, 1], m, second)
            effect = phi(first, second, n / (n + m))
            coverage.append(chance @ ((low <= effect + 1e-9) & (effect <= high + 1e-9)))
    # Discrete data cannot have the level everywhere; a conservative interval is at least as wide on average.
    assert min(coverage) > 0.93
    assert 0.955 < np.mean(coverage) < 0.999


def test_equal_rows_are_no_certainty():
    """Five rows equal to five rows: a value of probability 1 - 0.025^(1/5) may be unseen in one of the samples."""
    ones, laws = two_by_two(5, 5)
    low, high = laws.intervals(0.95)[(ones == 0).all(axis=1)][0]
    assert low == 0
    assert high == pytest.approx(phi(1 - 0.025**0.2, 0.0, 0.5), rel=1e-9)
    assert laws.point[(ones == 0).all(axis=1)] == 0


@pytest.mark.parametrize("unions", [None, np.array([[0.5, np.inf]]), np.array([[-1.0, 0.3], [0.8, 4.0]])])
def test_an_interval_leaves_out_zero_exactly_when_the_test_rejects(unions):
    rng = np.random.default_rng(5)
    n, m = 20, 30
    columns = rng.normal(size=(n + m, 6)) + np.outer(np.repeat([0, 1], [n, m]), np.linspace(0, 1, 6))
    laws = laws_of(columns, label_factor(n, m), np.repeat([0, 1], [n, m]), rng, samples=True)
    for score in (-0.5, 0.1, 0.9, 1.5, 1.9, 2.5, 3.6):
        if unions is not None and not ((unions[:, 0] <= score) & (score <= unions[:, 1])).any():
            continue
        changed = laws._replace(score=np.full(6, score))
        pvalue = norm.sf(score) if unions is None else np.exp(log_survivals(np.array([score]), [unions], np.ones(1))[0])
        for miss in (0.9 * pvalue, 1.1 * pvalue):
            low = changed.intervals(1 - miss, None if unions is None else [unions] * 6)[:, 0]
            assert ((low > 0) == (pvalue <= miss)).all(), (score, miss)


def test_a_selection_that_selects_everything_changes_nothing():
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(30, 4)) + np.outer(np.repeat([0, 1], 15), [0, 0.5, 1, 3])
    laws = laws_of(columns, label_factor(15, 15), np.repeat([0, 1], 15), rng, samples=True)
    np.testing.assert_allclose(laws.intervals(0.9), laws.intervals(0.9, [EVERYWHERE] * 4), atol=1e-9)
    np.testing.assert_allclose(laws.medians(), laws.medians([EVERYWHERE] * 4), atol=1e-9)
    low, high = laws.intervals(np.array([0.9, 0.95, 0.99, 0.5])).T
    assert ((low <= laws.medians()) & (laws.medians() <= high)).all()


def test_laws_along_the_family_are_those_of_rows_drawn_from_it():
    """R of rows that are drawn from a member of the family has scores that are nearly standard normal."""
    rng = np.random.default_rng(2)
    n, m = 30, 50
    values = np.sort(rng.gamma(2.0, size=12))
    first, second = np.full(12, 1 / 12), np.exp(0.25 * np.arange(12))
    second /= second.sum()
    law = np.stack([first, second], axis=1) * np.array([n, m]) / (n + m)
    # Counts in these proportions: with them the member of the family is close to this law.
    joint = law * (n + m)
    counts = joint.sum(axis=1)
    response = label_factor(n, m)
    factor = gram_factor(gaussian(values), counts)
    spread = [(factor**2 * counts).sum(axis=1), (response**2 * [n, m]).sum()]
    mean = spread[0].sum() * spread[1] / (n + m - 1)
    sd = np.sqrt(2 * (spread[0] ** 2).sum()) * spread[1] / (n + m)
    skewness = np.sqrt(8) * (spread[0] ** 3).sum() / (spread[0] ** 2).sum() ** 1.5
    null = [np.array([part]) for part in (mean, sd, skewness)]
    laws = laws_of_rows(factor[None], response, joint[None], null, np.array([3.0]), samples=True)
    # The member whose effect is that of the law, and R of 4000 tables.
    effect = np.sqrt(laws.statistic * laws.whole)
    place = np.abs(laws.families[0].effect[0] - effect).argmin()
    draws = np.stack([rng.multinomial(n, first, 4000), rng.multinomial(m, second, 4000)], axis=2)
    rows = draws.sum(axis=2)
    centred = factor[None] - (factor @ rows[:, :, None]) / (n + m)
    cross = centred @ draws @ response.T
    own = (centred * rows[:, None, :]) @ np.swapaxes(centred, 1, 2)
    found = (cross**2).sum(axis=(1, 2)) / np.sqrt((own**2).sum(axis=(1, 2))) / spread[1]
    at = type(laws.families[0])(*(np.full((4000, 1), part[0, place]) for part in laws.families[0]))
    scores = at.scores(found[:, None])[:, 0]
    for level in (0.025, 0.05, 0.5, 0.95, 0.975):
        # Four standard errors of a share of 4000, and a fifth of the tail for a law from three moments.
        error = 4 * np.sqrt(level * (1 - level) / 4000) + 0.2 * min(level, 1 - level)
        assert abs((scores <= norm.ppf(level)).mean() - level) < error


@pytest.mark.parametrize(("weight", "degrees"), [(0.25, (2, 6)), (4.0, (2, 2))])
def test_scores_of_a_sum_of_chi_squares_have_the_moments_of_the_normal_law(weight, degrees):
    """chi^2 + weight chi^2: the mean of scores is an expansion with an error of n^-5/2, the deviation of n^-2.

    Moments are sums over the nodes of Gauss and Laguerre. With n twice as large the errors are 5.7 and 4 times as
    small, but for higher orders; with a wrong last term of the mean its error is 2.8 times as small.
    """
    errors = []
    for n in (8, 16):
        (x, first), (y, second) = (roots_genlaguerre(60, 0.5 * n * own - 1.0) for own in degrees)
        share = np.outer(first / first.sum(), second / second.sum()).ravel()
        values = 2.0 * (x[:, None] + weight * y).reshape(1, -1)
        # Cumulants of a chi-square are its degrees of freedom times 1, 2 and 8.
        mean, variance, third = (
            n * factor * np.dot(degrees, [1.0, weight**power]) for power, factor in ((1, 1.0), (2, 2.0), (3, 8.0))
        )
        moments = (0.0, mean, np.sqrt(variance), third / variance**1.5, 0.0)
        scores = FamilyMoments(*(np.array([[value]]) for value in moments)).scores(values)[0]
        centre = share @ scores
        errors.append(np.abs([centre, np.sqrt(share @ (scores - centre) ** 2) - 1.0]))
    assert (errors[0] > [4.0, 3.0] * errors[1]).all()


def test_points_without_rows_change_nothing():
    """Columns with fewer values than others are filled up with points that stand for no rows."""
    rng = np.random.default_rng(1)
    cells = np.repeat([0, 1], 12)
    factor = gram_factor(gaussian(rng.normal(size=24) + cells), np.ones(24))
    joint, response = np.eye(2)[cells], label_factor(12, 12)
    *null, score = (np.array([part]) for part in permutation_moments(factor, response[:, cells], rng))
    laws = laws_of_rows(factor[None], response, joint[None], null, score, samples=True)
    filled = np.concatenate([factor, 40.0 * rng.normal(size=(len(factor), 9))], axis=1)
    more = np.concatenate([joint, np.zeros((9, 2))])
    more = laws_of_rows(filled[None], response, more[None], null, score, samples=True)
    np.testing.assert_allclose(more.intervals(), laws.intervals(), atol=1e-9)


def test_linear_kernels_give_fishers_interval_of_a_correlation():
    """Half the width of the interval is within a quarter of that of Fisher's z, which assumes normal data."""
    rng = np.random.default_rng(3)
    n, ratios = 100, []
    for _ in range(12):
        y = rng.normal(size=n)
        x = 0.5 * y + np.sqrt(0.75) * rng.normal(size=n)
        response = ((y - y.mean()) / y.std())[None, :]
        laws = laws_of(
            x[:, None], response, np.arange(n), rng, samples=False, kernel=lambda column: np.outer(column, column)
        )
        low, high = laws.intervals(0.95)[0]
        correlation = np.corrcoef(x, y)[0, 1]
        assert laws.point[0] == pytest.approx(correlation, abs=0.03)
        fisher = np.tanh(np.arctanh(correlation) + 1.96 * np.array([-1, 1]) / np.sqrt(n - 3))
        ratios.append((high - low) / (fisher[1] - fisher[0]))
    assert 0.75 < np.mean(ratios) < 1.25


def test_the_upper_end_leaves_half_of_the_error_below_the_observed_statistic():
    """Where the test's law is that of the family at independence, nothing is added: 0.025 of T are as small there."""
    rng = np.random.default_rng(11)
    n, m = 40, 60
    columns = rng.normal(size=(n + m, 6)) + np.outer(np.repeat([0, 1], [n, m]), np.linspace(0.8, 1.6, 6))
    laws = laws_of(columns, label_factor(n, m), np.repeat([0, 1], [n, m]), rng, samples=True)
    laws = laws._replace(score=laws.families[0].decreasing_scores(laws.statistic)[:, 0])
    scores = [
        [np.interp(end, *pair) for end, *pair in zip(laws.intervals(0.95)[:, 1], family.effect, score, strict=True)]
        for family in laws.families
        for score in [family.decreasing_scores(laws.statistic)]
    ]
    # The end is that of the sign which allows the larger effect; between the effects of a grid, tails are interpolated.
    np.testing.assert_allclose(norm.cdf(np.max(scores, axis=0)), 0.025, rtol=0.02)


def test_effects_of_nothing_are_named():
    """A twentieth of the features without a difference have an estimate above the one with that probability."""
    rng = np.random.default_rng(4)
    above = []
    for _ in range(12):
        laws = laws_of(rng.normal(size=(20, 30)), label_factor(10, 10), np.repeat([0, 1], 10), rng, samples=True)
        tested = laws._test_scores(laws.penalty).inverse(np.full(30, norm.isf(0.05)))
        excess = laws.families[0].null_statistics(tested) - laws.families[0].mean[:, 0]
        above += [*(laws.point > np.sqrt(np.clip(laws.whole * excess, 0.0, 1.0)))]
    # 360 features: four standard errors are 0.046.
    assert abs(np.mean(above) - 0.05) < 0.046


def test_effects_grow_with_the_shift_and_reach_one():
    grid = np.linspace(0, 4, 9)
    points, lows, highs = [], [], []
    quantiles = norm.ppf((np.arange(40) + 0.5) / 40)
    for shift in grid:
        column = np.concatenate([quantiles, quantiles + shift + 1e-6])
        laws = laws_of(
            column[:, None], label_factor(40, 40), np.repeat([0, 1], 40), np.random.default_rng(0), samples=True
        )
        low, high = laws.intervals()[0]
        points.append(laws.point[0])
        lows.append(low)
        highs.append(high)
    for part in (points, lows, highs):
        assert (np.diff(part) >= 0).all()
    assert points[0] == 0
    assert points[-1] > 0.85


@pytest.mark.parametrize("samples", [True, False])
def test_the_feature_that_is_the_response_has_effect_one(samples):
    rng = np.random.default_rng(0)
    n = 40
    if samples:
        cells, response = np.repeat([0, 1], 20), label_factor(20, 20)
        column = cells + 1e-3 * rng.normal(size=n)
    else:
        column = rng.normal(size=n)
        cells, response = np.arange(n), gram_factor(gaussian(column), np.ones(n))
    laws = laws_of(column[:, None], response, cells, rng, samples=samples)
    low, high = laws.intervals()[0]
    assert laws.point[0] == pytest.approx(1.0, abs=0.01)
    assert 0.5 < low < 1.0
    assert high == pytest.approx(1.0, abs=1e-6)


def bonferroni(scores, weights):
    """The score of the smallest weighted p-value."""
    return score_of(np.minimum((log_ndtr(-scores) - np.log(weights)[:, None]).min(axis=0), -1e-3))


def test_the_lower_end_accounts_for_the_number_of_kernels_at_every_effect():
    """With half of the level for each of two kernels it is that of one kernel with half of the error probability."""
    rng, cells, weights = np.random.default_rng(5), np.repeat([0, 1], 25), np.array([0.5, 0.5])
    columns = rng.normal(size=(50, 8)) + np.outer(cells, np.linspace(1.0, 3.0, 8))
    view = laws_of(columns, label_factor(25, 25), cells, rng, samples=True, kernel=gaussian)
    view = view._replace(score=view._test_scores(view.penalty).first)  # permutations do not reach far scores
    scores, union = np.array([view.score, view.score]), partial(bonferroni, weights=weights)
    taken = penalties(scores, union(scores), weights, union)
    both = CombinedEffects(tuple(view._replace(penalty=part) for part in taken)).intervals(0.95)
    assert (both[:, 0] > 0).any()
    np.testing.assert_allclose(both[:, 0], view.intervals(0.975)[:, 0], atol=0.012)
    np.testing.assert_array_equal(both[:, 1], view.intervals(0.95)[:, 1])


def two_views(shifts):
    """Columns of 25 v 25 rows under two kernels, whose smallest weighted p-value counts; and the combined scores."""
    rng = np.random.default_rng(6)
    cells = np.repeat([0, 1], 25)
    columns = rng.normal(size=(50, len(shifts))) + np.outer(cells, shifts)

    def narrow(column):
        return np.sqrt(np.sqrt(gaussian(column))) ** 16

    views = [
        laws_of(columns, label_factor(25, 25), cells, rng, samples=True, kernel=kernel) for kernel in (gaussian, narrow)
    ]
    scores, weights = np.array([view.score for view in views]), np.array([0.7, 0.3])
    combined = bonferroni(scores, weights)
    taken = penalties(scores, combined, weights, partial(bonferroni, weights=weights))
    assert (scores - taken[:, :, 0]).max(axis=0) == pytest.approx(combined)
    return CombinedEffects(
        tuple(view._replace(penalty=part) for view, part in zip(views, taken, strict=True))
    ), combined


def test_ends_of_all_kernels_are_conditional_on_the_selection():
    """A score just above the threshold says little: both ends are lower than without selection."""
    effects, combined = two_views(np.linspace(0.5, 1.5, 8))
    plain = effects.intervals(0.95)
    near = effects.intervals(0.95, [np.array([[score - 0.1, np.inf]]) for score in combined])
    assert (near[:, 1] < plain[:, 1]).all() and (near[:, 0] <= plain[:, 0]).all()
    # A threshold far below the score changes nothing.
    far = effects.intervals(0.95, [np.array([[score - 8.0, np.inf]]) for score in combined])
    np.testing.assert_allclose(far, plain, rtol=2e-3, atol=1e-6)


def test_lower_ends_have_all_of_the_error_where_no_upper_end_can_be():
    """Effects below the least possible upper end are excluded by the one-sided test alone."""
    _, laws = two_by_two(8, 8)
    low, least = laws.intervals(0.95)[:, 0], laws.least_upper_ends(0.95)
    tails, effect = laws._log_tails(laws.families[0], None, "lower")
    one_sided = np.array([np.interp(np.log(0.05), row, at) for row, at in zip(tails, effect, strict=True)])
    some = (one_sided > 0.02) & (one_sided < 0.95 * least)
    assert some.sum() > 5
    np.testing.assert_allclose(low[some], one_sided[some], rtol=0.02)


def test_lower_ends_have_all_of_the_error_where_no_upper_end_of_any_kernel_can_be():
    """A second kernel finds nothing, but under it a value that occurs in no row may have a large effect."""
    _, laws = two_by_two(20, 20)
    unseen = laws.unseen._replace(extreme=30.0 * laws.unseen.extreme)
    other = laws._replace(score=np.full(len(laws.score), -1.0), unseen=unseen)
    own, least = laws.least_upper_ends(0.95), other.least_upper_ends(0.95)
    low = CombinedEffects((laws, other)).intervals(0.95)[:, 0]
    tails, effect = laws._log_tails(laws.families[0], None, "lower")
    one_sided = np.array([np.interp(np.log(0.05), row, at) for row, at in zip(tails, effect, strict=True)])
    some = (one_sided > 1.05 * own) & (one_sided < 0.95 * least)
    assert some.sum() > 20
    np.testing.assert_allclose(low[some], one_sided[some], rtol=0.02)


def test_several_kernels_reject_together():
    effects, combined = two_views(np.linspace(0, 1.2, 8))
    views = effects.views
    for level in (0.5, 0.8, 0.9, 0.95, 0.99):
        low, high = effects.intervals(level).T
        assert ((low > 0) == (norm.sf(combined) <= 1 - level)).all()
        assert (high >= [view.intervals(level)[:, 1] for view in views]).all()
    unions = [np.array([[score - 0.2, np.inf]]) for score in combined]
    low, high = effects.intervals(0.95, unions).T
    selective = np.exp(log_survivals(np.asarray(combined), unions, np.ones(len(combined))))
    assert ((low > 0) == (np.array(selective) <= 0.05)).all()
    assert (effects.medians(unions) <= high + 1e-9).all()
    assert (effects.point == np.max([view.point for view in views], axis=0)).all()


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m", "shift"), [(8, 8, 0.8), (15, 15, 0.8), (8, 8, 3.0), (10, 60, 0.8)])
@pytest.mark.parametrize("cut", [None, 1.0])
def test_coverage_of_a_shift(n, m, shift, cut):
    """The effect of a shift in large samples with the same kernel, with and without selection by the score."""
    rng = np.random.default_rng(7)
    quantiles = norm.ppf((np.arange(150) + 0.5) / 150)
    points = np.concatenate([quantiles, quantiles + shift])
    weights = np.repeat([n / (n + m) / 150, m / (n + m) / 150], 150)
    label = np.repeat([m / (n + m), -n / (n + m)], 150)
    covered = []
    for _ in range(40):
        columns = rng.normal(size=(n + m, 10)) + shift * np.repeat([0, 1], [n, m])[:, None]
        laws = laws_of(columns, label_factor(n, m), np.repeat([0, 1], [n, m]), rng, samples=True)
        kept = np.arange(10) if cut is None else np.flatnonzero(laws.score > cut)
        if len(kept) == 0:
            continue
        unions = None if cut is None else [np.array([[cut, np.inf]])] * len(kept)
        ends = laws.take(kept).intervals(0.95, unions)
        for column, (low, high) in zip(columns.T[kept], ends, strict=True):
            gaps = np.abs(column[:, None] - column)
            gram = np.exp(-0.5 * ((points[:, None] - points) / np.median(gaps[gaps > 0])) ** 2)
            gram = gram - gram @ weights - (gram @ weights)[:, None] + weights @ gram @ weights
            signed = weights * label
            truth = signed @ gram @ signed / (n * m / (n + m) ** 2) / np.sqrt(weights @ gram**2 @ weights)
            covered.append(low <= np.sqrt(truth) <= high)
    # Nearly 400 intervals: 0.92 is three standard errors below 0.95.
    assert np.mean(covered) > 0.95 - 3 * np.sqrt(0.05 * 0.95 / len(covered))


def test_estimates_come_from_the_laws():
    """Plain estimates where all are tested; median-unbiased ones inside their intervals where scores selected."""
    rng = np.random.default_rng(8)
    cells = np.repeat([0, 1], 20)
    columns = rng.normal(size=(40, 5)) + np.outer(cells, np.linspace(0, 1.5, 5))
    laws = laws_of(columns, label_factor(20, 20), cells, rng, samples=True)
    assert isinstance(laws, EffectsWithLaws)
    scores = Scores(tuple("abcde"), laws.score, DiagonalCovariance(np.ones(5)), effects=laws.take)
    level, listed = np.linspace(0.8, 0.99, 5), np.arange(5)
    plain = effect_estimates(scores, listed, laws, (EVERYWHERE,) * 5, level)
    assert (plain.median_unbiased == laws.point).all()
    low, high = plain.intervals.T
    assert ((low <= laws.point) & (laws.point <= high)).all()
    assert (high == np.maximum(laws.intervals(level)[:, 1], laws.point)).all()
    unions = tuple(np.array([[score - 0.1, np.inf]]) for score in laws.score)
    found = effect_estimates(scores, listed, laws, unions, level)
    low, high = found.intervals.T
    assert ((low <= found.median_unbiased) & (found.median_unbiased <= high)).all()
    assert (found.median_unbiased <= laws.medians() + 1e-9).all()


def test_selection_far_below_leaves_estimates_as_they_are():
    """With one column that depends on the response and noise beside it, a list of one is a foregone conclusion."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(400, 3))
    # The views differ: that with the best score is not the one with the largest effect.
    y = np.sin(2.0 * X[:, 0]) + X[:, 0] + 0.3 * rng.normal(size=400)
    plain, listed = relate(X, y, random_state=0), relate(X, y, k=1, random_state=0)
    assert listed.selected.tolist() == [0]
    assert listed.effects[0] == pytest.approx(plain.effects[0], abs=0.02)
    assert listed.intervals[0] == pytest.approx(plain.intervals[0], abs=0.02)


@pytest.mark.parametrize("classes", [None, 5])
def test_a_function_of_the_response_with_two_values_has_an_upper_end(classes):
    """Its effect is below 1, and its estimates over samples stay within the upper ends, which shrink with n."""
    rng = np.random.default_rng(13)

    def ask(n):
        y = rng.normal(size=n) if classes is None else rng.integers(classes, size=n)
        X = (y > (0.3 if classes is None else 1))[:, None].astype(float)
        response = "numeric" if classes is None else "category"
        return relate(X, y, response=response, correction=None, random_state=0)

    true = ask(20_000).effects[0]
    assert true < 0.9
    margins = []
    for n in (100, 400, 1600):
        ends = np.array([ask(n).intervals[0] for _ in range(8)])
        # 24 intervals of level 0.95: more than five misses have a probability of 0.001.
        margins.append((ends[:, 1].mean() - true, np.count_nonzero((ends[:, 0] > true) | (ends[:, 1] < true))))
    (first, *_), *_, (last, _) = margins
    assert 0 < last < 0.6 * first < 0.1
    assert sum(misses for _, misses in margins) <= 5


@pytest.mark.parametrize("k", [1, 2])
def test_intervals_of_strong_signals_that_compete_for_a_place(k):
    """Scores far above the null, and a cut not far below them: the interval holds the effect, which is nearly 1."""
    rng = np.random.default_rng(12)
    y = rng.normal(size=900)
    steps = np.floor(4.0 * y) / 4.0
    X = np.column_stack([steps, np.exp(steps), y + 0.02 * rng.normal(size=900), rng.normal(size=900)])
    result = relate(X, y, k=k, random_state=0)
    assert (result.raw_effects > 0.95).all()
    assert (result.intervals[:, 1] > 0.95).all()
    # The cut may carry much of the evidence, but half of the effect is left where the p-value is small.
    assert (result.effects[result.pvalues < 1e-6] > 0.5).all()


def test_a_value_in_a_single_row_has_an_interval():
    """The family in which the effect has the other sign nearly excludes the value."""
    few = np.zeros((7, 1))
    few[0] = 1.0
    (low, high) = compare(np.zeros((204, 1)), few, random_state=0).intervals[0]
    assert 0 < low < 1
    assert high == 1


def test_a_tie_at_the_cut_excludes_no_effect():
    """Two columns with the same table of counts: which of them is the best one, only their order decides."""
    rng = np.random.default_rng(13)

    def column():
        ones = rng.choice(30, 5, replace=False), 30 + rng.choice(30, 20, replace=False)
        return np.isin(np.arange(60), np.concatenate(ones)).astype(float)

    X = np.column_stack([column(), column(), rng.normal(size=60)])
    result = compare(X[:30], X[30:], k=1, random_state=0)
    assert result.pvalues[0] == 1
    assert result.raw_effects[0] > 0.4
    assert result.intervals[0].tolist() == [0, pytest.approx(1)]


def test_a_column_that_determines_the_response_beside_columns_that_follow_it():
    """What the response leaves of such a column is rounding error, which must not steer the others."""
    rng = np.random.default_rng(14)
    y = rng.integers(0, 30, 600).astype(float)
    others = y[:, None] + rng.normal(0, [2.0, 3.0, 9.0], (600, 3))
    result = relate(np.column_stack([np.exp(y / 20.0), others, rng.normal(size=(600, 2))]), y, k=3, random_state=0)
    assert result.selected[0] == 0
    assert result.pvalues[0] < 1e-20
    assert result.intervals[0, 0] > 0.9


def test_intervals_within_strata_hardly_depend_on_which_rows_represent_all(monkeypatch):
    """Every row has a point and a response of its own there; laws come from some rows, scales from all."""
    rng = np.random.default_rng(15)
    strata = np.repeat(np.arange(20), 30)
    X = rng.standard_t(4, size=(600, 4)) + strata[:, None]
    y = 0.3 * X[:, 0] + 0.02 * X[:, 1] ** 2 + rng.normal(size=600) + 0.5 * strata
    found = []
    for rows in (150, 600):
        monkeypatch.setattr(effect_views, "_RESPONSE_ROWS", rows)
        found.append(relate(X, y, strata=strata, random_state=0).intervals)
    some, every = found
    np.testing.assert_allclose(some[:2], every[:2], atol=0.01)
    np.testing.assert_allclose(some[2:], every[2:], atol=0.03)
