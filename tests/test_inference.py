"""The tests: against the definition of their p-value, against each other, and calibrated where naive is not."""

import sys

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_ndtr

from kernsift import InputError, selective_bootstrap, topk_pvalues
from kernsift.estimators.scores import DenseCovariance, DiagonalCovariance, FactorCovariance, Scores
from kernsift.execution.threads import thread_limit
from kernsift.inference import TESTS, exact, multiscale, naive, polyhedral
from kernsift.inference.lines import _containing, _open_at_tie
from kernsift.inference.scaling_law import SCALES, fit_scaling_law
from kernsift.inference.selection_rules import Everything, Threshold, TopK


def make(estimate, cov):
    estimate = np.asarray(estimate, float)
    cov = np.asarray(cov, float)
    operator = DenseCovariance(cov) if cov.ndim == 2 else DiagonalCovariance(cov)
    return Scores(tuple(f"f{i}" for i in range(len(estimate))), estimate, operator)


def random_covariance(d, rng, spread=1.0):
    root = rng.normal(size=(d, d + 3))
    scale = np.exp(rng.normal(scale=spread, size=d))
    corr = np.corrcoef(root)
    return corr * np.outer(scale, scale)


def run(test, scores, rule, seed=0, **options):
    selected = rule.select(scores.estimate)
    return selected, test(scores, rule, selected, rng=np.random.default_rng(seed), **options)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_exact_is_the_conditional_law_by_rejection_sampling(k):
    """Draw feature i's score from its null law along its line, keep draws that would select i, count those beyond."""
    rng, compared = np.random.default_rng(7), 0
    for _ in range(6):
        d = 6
        cov = random_covariance(d, rng)
        scores = make(rng.multivariate_normal(np.zeros(d), cov), cov)
        rule = TopK(k)
        selected, outcome = run(exact, scores, rule)
        for feature, p in zip(selected, outcome.pvalues, strict=True):
            slope = cov[:, feature] / cov[feature, feature]
            draws = rng.normal(scale=np.sqrt(cov[feature, feature]), size=200_000)
            moved = scores.estimate - slope * scores.estimate[feature] + slope * draws[:, None]
            kept = draws[rule.keeps(moved, np.array([feature]))[:, 0]]
            if len(kept) < 500:
                continue
            compared += 1
            share = (kept >= scores.estimate[feature]).mean()
            assert p == pytest.approx(share, abs=5 * np.sqrt(0.25 / len(kept)))
    assert compared >= 3 * k


def test_exact_and_polyhedral_agree_on_uncorrelated_scores():
    rng = np.random.default_rng(8)
    for k in (1, 4, 9):
        scores = make(rng.normal(size=10), rng.uniform(0.5, 2, 10))
        a, b = run(exact, scores, TopK(k))[1], run(polyhedral, scores, TopK(k))[1]
        assert a.log_pvalues == pytest.approx(b.log_pvalues, rel=1e-9)


def test_polyhedral_bounds_equal_the_dense_constraint_matrix():
    """A T <= 0 with one row per (kept, left out) pair; V- and V+ by the textbook formula (Lee et al. 2016)."""
    rng = np.random.default_rng(9)
    for k in (1, 3, 7):
        for _ in range(10):
            d = 8
            cov = random_covariance(d, rng)
            scores = make(rng.multivariate_normal(np.zeros(d), cov), cov)
            selected, outcome = run(polyhedral, scores, TopK(k))
            left = np.setdiff1d(np.arange(d), selected)
            rows = np.array([[float(j == b) - float(j == a) for j in range(d)] for a in selected for b in left])
            for feature, pieces in zip(selected, outcome.truncation, strict=True):
                c = cov[:, feature] / cov[feature, feature]
                u = scores.estimate - c * scores.estimate[feature]
                change, level = rows @ c, rows @ u
                upper = np.min(-level[change > 0] / change[change > 0], initial=np.inf)
                lower = np.max(-level[change < 0] / change[change < 0], initial=-np.inf)
                assert pieces == pytest.approx(np.array([[lower, upper]]), rel=1e-7, abs=1e-9)


def test_polyhedral_threshold_bounds_hold_the_selected_set():
    rng = np.random.default_rng(10)
    for _ in range(30):
        d = 6
        cov = random_covariance(d, rng, 0.3)
        scores = make(rng.multivariate_normal(np.zeros(d), cov), cov)
        rule = Threshold(0.5, np.sqrt(cov.diagonal()))
        selected, outcome = run(polyhedral, scores, rule)
        for feature, pieces in zip(selected, outcome.truncation, strict=True):
            slope = cov[:, feature] / cov[feature, feature]
            base = scores.estimate - slope * scores.estimate[feature]
            for t in rng.normal(scale=np.sqrt(cov[feature, feature]), size=50):
                same = set(rule.select(base + slope * t)) == set(selected)
                assert same == bool(pieces[0, 0] <= t <= pieces[0, 1])


def test_threshold_has_a_closed_form():
    z = np.array([3.0, 1.2, 0.1])
    scores = make(z * 2.0, np.full(3, 4.0))
    selected, outcome = run(exact, scores, Threshold(1.0, np.full(3, 2.0)))
    assert selected.tolist() == [0, 1]
    assert outcome.pvalues == pytest.approx(stats.norm.sf(z[:2]) / stats.norm.sf(1.0))


def test_multiscale_matches_the_closed_form_of_a_half_space():
    """d = 2, k = 1: "first beats second" is a half-space at distance (T1 - T2) / sqrt(s11 + s22 - 2 s12)."""
    cov = np.array([[1.0, 0.4], [0.4, 2.0]])
    total = 100_000
    for gap in (0.3, 1.0, 2.5):
        scores = make([1.5, 1.5 - gap], cov)
        _, outcome = run(multiscale, scores, TopK(1), replicates=total)
        distance = -gap / np.sqrt(1.0 + 2.0 - 0.8)
        expected = log_ndtr(-1.5) - log_ndtr(-(1.5 + distance))
        assert outcome.fit.at_zero[0] == pytest.approx(distance, abs=0.05)
        assert outcome.log_pvalues[0] == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("offset", [0.0, 1.5])
def test_algorithm_one_on_half_spaces(offset):
    """H = {a.y <= 0}, S = {b.y >= offset}: both boundaries flat, so the p-value is known."""
    cov = np.array([[1.0, 0.3], [0.3, 1.5]])
    mean, a, b = np.array([1.0, 2.0]), np.array([1.0, 0.5]), np.array([0.2, 1.0])
    outcome = selective_bootstrap(
        mean, cov, lambda y: y @ a <= 0, lambda y: y @ b >= offset, replicates=200_000, random_state=1
    )
    beta_h = a @ mean / np.sqrt(a @ cov @ a)
    beta_s = -(b @ mean - offset) / np.sqrt(b @ cov @ b)
    assert outcome.hypothesis.at_minus_one[0] == pytest.approx(beta_h, abs=0.06)
    assert outcome.selection.at_zero[0] == pytest.approx(beta_s, abs=0.05)
    assert outcome.pvalue == pytest.approx(stats.norm.sf(beta_h) / stats.norm.sf(beta_h + beta_s), rel=0.15)


def test_algorithm_one_corrects_curvature():
    """H a ball, y outside it: psi(-1) = distance - curvature is nearer the exact p-value than the bootstrap's own."""
    dims, radius, distance = 4, 5.0, 1.5
    mean = np.array([radius + distance, 0, 0, 0])
    outcome = selective_bootstrap(
        mean,
        np.eye(dims),
        lambda y: (y**2).sum(axis=1) <= radius**2,
        lambda y: np.ones(len(y), bool),
        replicates=100_000,
        model="aic",
        random_state=2,
    )
    exact_p = stats.ncx2.sf((radius + distance) ** 2, dims, radius**2)
    plain = stats.ncx2.cdf(radius**2, dims, (radius + distance) ** 2)
    assert abs(outcome.pvalue - exact_p) < 0.25 * abs(plain - exact_p)


def test_algorithm_one_needs_a_selected_observation():
    with pytest.raises(InputError, match="in_selection"):
        selective_bootstrap(np.zeros(2), np.eye(2), lambda y: y[:, 0] < 0, lambda y: y[:, 0] > 1)


@pytest.mark.parametrize("size", [7.0, 40.0, 1e4])
@pytest.mark.parametrize("cut", [0.0, 0.75])
def test_algorithm_one_reaches_far_half_spaces(size, cut):
    """H = {y <= 0} and S = {y >= cut * size}, out of reach of the usual scales; log p has an sd of 4.5 percent."""
    outcome = selective_bootstrap(
        np.array([size, 0.0]), np.eye(2), lambda y: y[:, 0] <= 0, lambda y: y[:, 0] >= cut * size, random_state=3
    )
    expected = log_ndtr(-size) - log_ndtr(-cut * size)
    assert outcome.log_pvalue == pytest.approx(expected, rel=0.2)
    assert outcome.pvalue > 0


def test_algorithm_one_claims_no_more_than_was_simulated_where_no_replicate_ever_reaches_the_hypothesis():
    outcome = selective_bootstrap(
        np.array([30.0]), np.eye(1), lambda y: y[:, 0] == 0, lambda y: y[:, 0] > -np.inf, random_state=0
    )
    widest = np.sqrt(2.0)
    assert outcome.pvalue == pytest.approx(stats.norm.sf(-widest * stats.norm.ppf(0.5 / 10_000)))


def covariance_of(kind, d):
    if kind == "independent":
        return np.eye(d)
    if kind == "equicorrelated":
        return np.full((d, d), 0.8) + 0.2 * np.eye(d)
    rng = np.random.default_rng(99)
    return random_covariance(d, rng, 0.7)


@pytest.mark.parametrize("kind", ["independent", "equicorrelated", "mixed"])
@pytest.mark.parametrize("k", [1, 4, 9])
@pytest.mark.parametrize("test", [exact, polyhedral])
def test_null_pvalues_are_uniform_and_naive_ones_are_not(kind, k, test):
    """One selected feature a replicate, so p-values are independent; KS at a level of 1e-4."""
    rng = np.random.default_rng(12)
    d, trials = 10, 1500
    cov = covariance_of(kind, d)
    root = np.linalg.cholesky(cov)
    selective, naive_outcome = [], []
    for _ in range(trials):
        scores = make(root @ rng.normal(size=d), cov)
        rule = TopK(k)
        selected = rule.select(scores.estimate)
        one = rng.integers(k)
        selective.append(test(scores, rule, selected, rng=rng).pvalues[one])
        naive_outcome.append(naive(scores, rule, selected, rng=rng).pvalues[one])
    assert stats.kstest(selective, "uniform").pvalue > 1e-4
    if k < 9:
        assert stats.kstest(naive_outcome, "uniform").pvalue < 1e-4


def test_multiscale_null_rate_is_near_its_level():
    """The paper's test is approximate; at k = 4 of 10 its null rate stays within 4 standard errors of 0.05."""
    rng = np.random.default_rng(13)
    trials, hits = 800, 0
    for _ in range(trials):
        scores = make(rng.normal(size=10), np.ones(10))
        rule = TopK(4)
        selected = rule.select(scores.estimate)
        outcome = multiscale(scores, rule, selected, rng=rng, replicates=1000)
        hits += outcome.pvalues[rng.integers(4)] < 0.05
    assert abs(hits / trials - 0.05) < 4 * np.sqrt(0.05 * 0.95 / trials)


@pytest.mark.parametrize("block", [2**22, 200])
def test_multiscale_probabilities_are_right_and_better_than_counted(block, monkeypatch):
    """The half-space again: mean within 4 standard errors at every scale, scatter below that of a plain share."""
    monkeypatch.setattr(sys.modules[multiscale.__module__], "_BLOCK", block)
    cov, gap, total, seeds = np.array([[4.0, 0.5], [0.5, 1.0]]), 1.5, 400, 200
    scores = make([1.5, 1.5 - gap], cov)
    fits = [run(multiscale, scores, TopK(1), seed, replicates=total)[1].fit for seed in range(seeds)]
    gamma = np.sqrt(fits[0].gamma2)
    found = stats.norm.sf(np.array([fit.psi[0] for fit in fits]) / gamma)
    expected = stats.norm.cdf(gap / np.sqrt(cov[0, 0] + cov[1, 1] - 2 * cov[0, 1]) / gamma)
    assert np.all(np.abs(found.mean(axis=0) - expected) < 4 * found.std(axis=0) / np.sqrt(seeds))
    assert np.all(found.std(axis=0) < 0.9 * np.sqrt(expected * (1 - expected) / total))


@pytest.mark.parametrize(("correlation", "most"), [(0.0, 0.95), (0.5, 1.15)])
def test_multiscale_scatters_no_more_than_with_replicates_of_their_own_for_every_scale(correlation, most):
    """Shared normals save time; they must not cost precision. Used plainly they scatter 1.2 and 1.3 times as much."""
    d, rule, total, seeds = 12, TopK(6), 1000, 100
    rng = np.random.default_rng(21)
    cov = np.full((d, d), correlation) + (1 - correlation) * np.eye(d)
    scores = make(np.linspace(2.0, -0.7, d), cov)
    selected = rule.select(scores.estimate)
    gamma2, beta = np.asarray(SCALES), scores.estimate[selected]

    def afresh():
        samples = [scores.estimate + np.sqrt(g) * scores.cov.sample(total, rng) for g in gamma2]
        hits = np.column_stack([np.count_nonzero(rule.keeps(sample, selected), axis=0) for sample in samples])
        distance = np.minimum(fit_scaling_law(hits, total, gamma2).at_zero, 0.0)
        return stats.norm.sf(beta) / stats.norm.sf(beta + distance)

    theirs = np.array([afresh() for _ in range(seeds)]).std(axis=0)
    ours = np.array([run(multiscale, scores, rule, seed, replicates=total)[1].pvalues for seed in range(seeds)])
    ratio = ours.std(axis=0) / theirs
    assert np.sqrt(np.mean(ratio**2)) < most


def test_multiscale_does_not_depend_on_threads():
    rng = np.random.default_rng(22)
    scores = make(rng.normal(size=9), random_covariance(9, rng))
    found = []
    for jobs in (1, 3):
        with thread_limit(jobs):
            found.append(run(multiscale, scores, TopK(4), replicates=500)[1].log_pvalues)
    assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("unit", [2.0**-12, 2.0**9])
def test_the_unit_of_scores_does_not_matter(name, unit):
    """A power of two changes no digit, so not even the counts of the multiscale test change."""
    rng = np.random.default_rng(23)
    cov = random_covariance(8, rng)
    estimate = rng.multivariate_normal(np.ones(8), cov)
    one, other = (
        run(TESTS[name], make(u * estimate, u**2 * cov), TopK(3), replicates=300)
        if name == "multiscale"
        else run(TESTS[name], make(u * estimate, u**2 * cov), TopK(3))
        for u in (1.0, unit)
    )
    assert other[0].tolist() == one[0].tolist()
    assert other[1].log_pvalues == pytest.approx(one[1].log_pvalues, rel=1e-9)


def test_counting_is_in_single_precision_where_that_is_enough():
    precision = sys.modules[multiscale.__module__]._precision
    assert precision(make([0.3, 0.1], [0.01, 0.04])) is np.float32
    assert precision(make([0.3, 0.1], [0.0, 0.04])) is np.float32
    # Scores a hundred thousand times their spread, or one another's; and numbers that single precision does not have.
    assert precision(make([1e5, 0.1], [1.0, 1.0])) is np.float64
    assert precision(make([-1e5, 0.1], [1.0, 1.0])) is np.float64
    assert precision(make([0.3, 0.1], [1.0, 1e10])) is np.float64
    assert precision(make([1e-21, 1e-22], [1e-44, 1e-44])) is np.float64
    assert precision(make([1e21, 1e22], [1e42, 1e42])) is np.float64


def test_selecting_everything_leaves_the_naive_test():
    rng = np.random.default_rng(14)
    cov = random_covariance(5, rng)
    scores = make(rng.normal(size=5), cov)
    plain = run(naive, scores, Everything())[1].log_pvalues
    for name, test in TESTS.items():
        for rule in (Everything(), TopK(5)):
            assert run(test, scores, rule)[1].log_pvalues == pytest.approx(plain, abs=1e-9), name


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("size", [8.0, 40.0, 300.0])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_huge_statistics_give_tiny_pvalues(name, size, k):
    scores = make([size, size - 5, 1.0, 0.5, -2.0], np.ones(5))
    _, outcome = run(TESTS[name], scores, TopK(k))
    assert np.all(np.isfinite(outcome.log_pvalues))
    assert np.all((outcome.pvalues > 0) & (outcome.pvalues <= 1))
    assert outcome.pvalues[0] < 0.01
    if k == 5:
        assert outcome.log_pvalues[0] == pytest.approx(log_ndtr(-size), rel=1e-6)


@pytest.mark.parametrize("name", TESTS)
def test_scores_that_cannot_vary_have_p_one(name):
    scores = make([0.0, 0.0, 1.0, -1.0], [0.0, 0.0, 1.0, 1.0])
    selected, outcome = run(TESTS[name], scores, TopK(3))
    assert selected.tolist() == [2, 0, 1]
    assert outcome.pvalues[1:].tolist() == [1.0, 1.0]
    assert np.isfinite(outcome.log_pvalues).all()


@pytest.mark.parametrize("name", TESTS)
def test_duplicate_columns_answer(name):
    factor = np.random.default_rng(15).normal(size=(30, 4))[:, [0, 1, 1, 1, 2, 3]]
    scores = Scores(tuple("abcdef"), factor.mean(axis=0), FactorCovariance(factor / 30))
    for k in range(1, 7):
        _, outcome = run(TESTS[name], scores, TopK(k))
        assert np.isfinite(outcome.log_pvalues).all()


@pytest.mark.parametrize("name", TESTS)
def test_one_feature(name):
    scores = make([1.3], [1.0])
    assert run(TESTS[name], scores, TopK(1))[1].pvalues == pytest.approx(stats.norm.sf([1.3]))


def test_multiscale_same_seed_same_bits_and_row_resampling_needs_rows():
    scores = make([2.0, 1.0, 0.0], np.ones(3))
    a, b = (run(multiscale, scores, TopK(1), seed=4)[1].log_pvalues for _ in range(2))
    assert a.tobytes() == b.tobytes()
    with pytest.raises(InputError) as raised:
        run(multiscale, scores, TopK(1), resampling="rows")
    assert str(raised.value) == (
        'resampling: "rows" needs scores made from data by an estimator that averages draws; '
        'these came without rows to resample. Use resampling="normal".'
    )


def test_multiscale_by_resampling_rows():
    """Resampled rows of a sample mean have law N(T, gamma^2 cov), so both ways agree within Monte Carlo error."""
    rng = np.random.default_rng(16)
    rows = rng.normal([0.3, 0.15, 0.0], 1.0, size=(100, 3))

    def resample(fraction, rng):
        return rows[rng.integers(0, 100, round(100 * fraction))].mean(axis=0)

    factor = (rows - rows.mean(axis=0)) / np.sqrt(100 * 99)
    scores = Scores(tuple("abc"), rows.mean(axis=0), FactorCovariance(factor), resample=resample)
    fast = run(multiscale, scores, TopK(1), replicates=20_000)[1]
    slow = run(multiscale, scores, TopK(1), replicates=2_000, resampling="rows")[1]
    assert slow.fit.at_zero[0] == pytest.approx(fast.fit.at_zero[0], abs=0.25)
    assert slow.log_pvalues[0] == pytest.approx(fast.log_pvalues[0], abs=0.3)


PIECES = np.array([[-np.inf, 0.0], [1.0, 2.0], [5.0, np.inf]])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.5, [[-np.inf, 0.0], [1.0, 2.0], [5.0, np.inf]]),
        (2.0, [[-np.inf, 0.0], [1.0, 2.0], [5.0, np.inf]]),
        (0.25, [[-np.inf, 0.25], [1.0, 2.0], [5.0, np.inf]]),
        (0.75, [[-np.inf, 0.0], [0.75, 2.0], [5.0, np.inf]]),
        (2.25, [[-np.inf, 0.0], [1.0, 2.25], [5.0, np.inf]]),
        (4.5, [[-np.inf, 0.0], [1.0, 2.0], [4.5, np.inf]]),
    ],
)
def test_a_score_that_rounding_put_outside_is_let_in(value, expected):
    """By the nearest interval, and by no more than it needs."""
    pieces = PIECES.copy()
    assert _containing(pieces, value).tolist() == expected
    assert pieces.tolist() == PIECES.tolist()


@pytest.mark.parametrize("value", [0.0, 3.0, -2e6, 1e-12])
def test_a_score_without_any_interval_gets_a_sliver(value):
    [[low, high]] = _containing(np.empty((0, 2)), value).tolist()
    assert low == value < high <= value + 1.1e-9 * abs(value) + 1e-300


@pytest.mark.parametrize("sd", [1.0, 1e-3, 1e4])
def test_a_score_at_the_end_of_its_interval_is_no_evidence(sd):
    pieces = sd * np.array([[-3.0, -1.0], [1.0, 2.0], [4.0, 5.0]])
    for value in (1.0, 1.5, 2.0 - 1e-8):
        assert _open_at_tie(pieces, sd * value, sd) is pieces
    for value in (2.0, 2.0 - 1e-10):
        assert _open_at_tie(pieces, sd * value, sd).tolist() == [[sd * value, np.inf]]
    # Where two intervals meet, the upper one has room.
    assert _open_at_tie(np.array([[0.0, sd], [sd, 2 * sd]]), sd, sd).shape == (2, 2)


@pytest.mark.parametrize("test", ["exact", "multiscale", "polyhedral", "naive"])
def test_variances_are_a_diagonal_covariance(test: str) -> None:
    rng = np.random.default_rng(0)
    scores, variances = rng.normal(size=30), rng.uniform(0.5, 2.0, 30)
    one, other = (topk_pvalues(scores, cov, 5, test, random_state=0) for cov in (variances, np.diag(variances)))
    np.testing.assert_array_equal(one.selected, other.selected)
    np.testing.assert_allclose(one.pvalues, other.pvalues, rtol=1e-6)


def test_independent_scores_need_no_matrix() -> None:
    """A matrix of 200,000 scores has 320 GB. The largest of independent scores has a truncated normal law."""
    scores = np.random.default_rng(0).normal(size=200_000)
    selected, pvalues = topk_pvalues(scores, np.ones(len(scores)), 3)
    best = np.argsort(-scores)[:4]
    np.testing.assert_array_equal(selected, best[:3])
    np.testing.assert_allclose(pvalues, stats.norm.sf(scores[best[:3]]) / stats.norm.sf(scores[best[3]]), rtol=1e-9)
