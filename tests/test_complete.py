"""Estimators that use all the data: complete, cross, and screening with them."""

import numpy as np
import pytest
from scipy import stats

from kernsift import compare, relate, screen
from kernsift.factors import lenses
from kernsift.grids import fit_grid
from kernsift.inference import exact, naive
from kernsift.kernels import fit_kernels
from kernsift.selection import TopK
from kernsift.statistics import complete_hsic, complete_mmd, complete_screen, cross_hsic, cross_mmd, cross_screen
from kernsift.statistics.complete import best_of, look_at
from kernsift.statistics.responses import Meeting, label_response
from kernsift.tables import as_candidates, as_pair, as_xy, stack
from kernsift.tabulation import tabulate


def two_samples(rng, n=60, m=40, d=6, shift=0.0):
    X, Y = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    X[:, 1] = 0.7 * X[:, 0] + 0.7 * X[:, 1]
    Y[:, 1] = 0.7 * Y[:, 0] + 0.7 * Y[:, 1]
    Y[:, 2] += shift
    one, two = as_pair(X, Y)
    return one, two, fit_kernels(stack([one, two]), rng=rng)


def seen_by(one, two, kernels, adaptive):
    """The points of all features and what the lenses see there."""
    table = stack([one, two])
    features = np.arange(table.d)
    response = label_response(one.n, two.n, table.values)
    grid = fit_grid(table, features, None)
    known = tabulate(table, features, grid, response.cells, 2, None)
    views = [lens.view(grid, known.counts, features, np.arange(table.n)) for lens in lenses(kernels, adaptive)]
    return known, [look_at(view, known.counts, Meeting(known, response)) for view in views], response


@pytest.mark.parametrize("adaptive", [False, True])
def test_correlations_are_those_over_permutations(adaptive):
    rng = np.random.default_rng(0)
    one, two, kernels = two_samples(rng)
    scores = complete_mmd(one, two, kernels, adaptive=adaptive, rng=rng)
    known, looks, response = seen_by(one, two, kernels, adaptive)
    _, winner = best_of(looks, known.counts, response)
    label = np.repeat([1.0, 0.0], [one.n, two.n])
    labels = np.array([rng.permutation(label - label.mean()) for _ in range(20_000)]).T
    T = [
        ((looks[which].view.factor[feature][:, known.codes[feature]] @ labels) ** 2).sum(axis=0)
        for feature, which in enumerate(winner)
    ]
    claimed = scores.cov.columns(np.array([1, 0, 4]))
    measured = np.corrcoef(T)[:, [1, 0, 4]]
    # Squares of heavy-tailed T make the correlation's own error larger than 1 / sqrt(size).
    assert claimed == pytest.approx(measured, abs=0.05)
    assert claimed[0, 0] > 0.2
    assert scores.cov.diagonal().tolist() == [1.0] * 6


def test_copies_of_a_feature_correlate_by_one_and_a_part_of_the_rows_is_enough(monkeypatch):
    rng = np.random.default_rng(11)
    X, Y = rng.normal(size=(700, 5)), rng.normal(size=(500, 5))
    X[:, 3], Y[:, 3] = X[:, 0], Y[:, 0]
    X[:, 1] += X[:, 0]
    Y[:, 1] += Y[:, 0]
    one, two = as_pair(X, Y)
    kernels = fit_kernels(stack([one, two]), rng=rng)
    whole = complete_mmd(one, two, kernels, adaptive=True, rng=np.random.default_rng(0)).cov.columns(np.arange(5))
    monkeypatch.setattr("kernsift.statistics.alignment._ROWS", 600)
    part = complete_mmd(one, two, kernels, adaptive=True, rng=np.random.default_rng(0)).cov.columns(np.arange(5))
    assert whole[0, 3] == pytest.approx(1.0, abs=1e-12) and part[0, 3] == pytest.approx(1.0, abs=1e-12)
    assert 0 < np.abs(whole - part).max() < 3 / np.sqrt(600)


@pytest.mark.parametrize(("sketch", "within"), [(6, 0.03), (5, 0.2)])
def test_samples_have_the_correlations_of_the_columns(monkeypatch, sketch, within):
    """From the matrix itself while that is small; beyond, from a sketch, whose own error is larger."""
    rng = np.random.default_rng(1)
    one, two, kernels = two_samples(rng)
    scores = complete_mmd(one, two, kernels, adaptive=True, rng=rng)
    monkeypatch.setattr("kernsift.statistics.alignment._SKETCH", sketch)
    drawn = (
        np.vstack([scores.cov.sample(200, rng) for _ in range(400)]) if sketch < 6 else scores.cov.sample(40_000, rng)
    )
    assert np.corrcoef(drawn.T) == pytest.approx(scores.cov.columns(np.arange(6)), abs=within)


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
    trials = 300
    error = np.sqrt(0.05 * 0.95 / trials)
    honest, unaware = null_rates(make(estimator, adaptive), trials, 2, 6)
    assert honest < 0.05 + 4 * error
    assert unaware > 0.05 + 4 * error


def test_adaptive_sees_shapes_one_bandwidth_misses():
    rng = np.random.default_rng(7)
    n = 300
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
        found = dict(zip(result.names, result.effects, strict=True)) if result.effects is not None else None
        if found is not None:
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
