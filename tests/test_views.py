"""Views of a column against Gram matrices written out, and the points of long columns."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import eval_legendre

from kernsift import compare, relate
from kernsift.data.inputs import as_table
from kernsift.estimators.pairs import CLASSES, NUMBERS
from kernsift.estimators.views import fitted_views
from kernsift.kernels.contingency import tabulate
from kernsift.kernels.fitted import fit_kernels
from kernsift.kernels.quantisation import fit_grid
from kernsift.kernels.rank_views import RANK_VIEWS


def columns(rng, n):
    """No ties, many ties, two values, a skewed column."""
    return np.column_stack([rng.normal(size=n), rng.poisson(2.0, n), rng.random(n) < 0.3, rng.exponential(size=n)])


def views_of(values, names):
    table = as_table(np.asarray(values, float))
    rng = np.random.default_rng(0)
    features, n = np.arange(table.d), table.n
    grid = fit_grid(table, features, None)
    known = tabulate(table, features, grid)
    kernels = fit_kernels(table, rng=rng)
    return known, kernels, fitted_views(names, grid, known.counts, n, kernels, features, np.arange(n))


def centred_gram(kernel):
    n = len(kernel)
    centring = np.eye(n) - 1 / n
    return centring @ kernel @ centring


def raised(gram, power):
    values, vectors = np.linalg.eigh(gram)
    # Eigenvalues that are rounding error would be raised to something large.
    values = np.where(values > 1e-9 * values.max(), values, 0.0)
    return (vectors * np.where(values > 0, values, 1.0) ** power * (values > 0)) @ vectors.T


def row_gram(known, view, feature):
    rows = view.factor[feature][:, known.codes[feature]]
    return rows.T @ rows


def midranks(column):
    return (stats.rankdata(column) - 0.5) / len(column)


def test_scale_is_a_bounded_square_without_its_regression_on_the_distance():
    """And "location-scale" has a smaller power, and the distance as well, with 0.6 of the weight."""
    X = columns(np.random.default_rng(1), 61)
    known, kernels, found = views_of(X, ["scale", "location-scale"])
    for feature, column in enumerate(X.T):
        distance = np.clip((column - np.median(column)) / (4.0 * kernels.bandwidth[feature]), -1.0, 1.0)
        centred = distance - distance.mean()
        basis = np.column_stack([np.ones(len(column)), centred])
        location = np.outer(centred, centred) / (centred @ centred)
        for name, power, weight in (("scale", 2.0, 0.0), ("location-scale", 1.6, 0.6)):
            away = np.abs(distance) ** power
            rest = away - basis @ np.linalg.lstsq(basis, away, rcond=None)[0]
            expected = weight * location
            if rest @ rest > 1e-9:
                expected = expected + np.outer(rest, rest) / (rest @ rest)
            assert row_gram(known, found[name].view, feature) == pytest.approx(expected, abs=1e-9)


def score_functions(column, name):
    """Functions of the midranks of a column, and their weights."""
    u = midranks(column)
    z = stats.norm.ppf(u)
    square = (z**2 - 1) / np.sqrt(2)
    if name == "normal-scores":
        return [z, square], [1.0, 0.1]
    others = np.sqrt(2) * np.sin(2 * np.pi * u), square, np.sqrt(7) * eval_legendre(3, 2 * u - 1)
    return [z, *others], [1.0, 0.3, 0.25, 0.25]


@pytest.mark.parametrize("name", ["normal-scores", "rank-scores"])
def test_scores_are_functions_of_midranks(name):
    X = columns(np.random.default_rng(8), 60)
    known, _, found = views_of(X, [name])
    for feature, column in enumerate(X.T):
        expected = sum(weight * np.outer(one, one) for one, weight in zip(*score_functions(column, name), strict=True))
        assert row_gram(known, found[name].view, feature) == pytest.approx(centred_gram(expected), abs=1e-9)


@pytest.mark.parametrize("name", ["normal-scores", "rank-scores"])
def test_scores_have_a_direction_for_missing_values(name):
    """Of variance 1; a missing value has the mean of the other scores."""
    rows, gaps = 45, 15
    counts = np.append(np.ones(rows), gaps)[None, :]
    view = RANK_VIEWS[name](counts, True)
    indicator = np.append(np.full(rows, -gaps), rows) / np.sqrt(rows * gaps)
    expected = np.outer(indicator, indicator)
    for function, weight in zip(*score_functions(np.arange(rows), name), strict=True):
        centred = np.append(function - function.mean(), 0.0)
        expected += weight * np.outer(centred, centred)
    assert view.factor[0].T @ view.factor[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "bandwidth", "power", "law"),
    [("smooth", 4.0, 0.35, stats.norm), ("narrow", 0.7, 0.5, stats.norm), ("local", 0.65, 0.5, stats.uniform)],
)
def test_views_of_ranks_are_powers_of_a_gaussian_kernel_on_scores(name, bandwidth, power, law):
    X = columns(np.random.default_rng(2), 60)
    known, _, found = views_of(X, [name])
    median = {stats.norm: np.sqrt(2) * stats.norm.ppf(0.75), stats.uniform: 1 - np.sqrt(0.5)}[law]
    for feature, column in enumerate(X.T):
        scores = law.ppf(midranks(column))
        width = bandwidth * median
        expected = raised(centred_gram(np.exp(-(((scores[:, None] - scores) / width) ** 2))), power)
        claimed = row_gram(known, found[name].view, feature)
        # Directions below a thousandth of the heaviest point are left out, which a root makes larger.
        assert np.linalg.norm(claimed - expected) < 0.1 * np.linalg.norm(expected)
        assert claimed.sum() == pytest.approx(0.0, abs=1e-8)


def test_the_wide_view_is_the_kernel_and_moments_are_its_first_two_directions():
    X = columns(np.random.default_rng(3), 60)
    known, kernels, found = views_of(X, ["wide", "moments"])
    for feature, column in enumerate(X.T):
        distance = (column[:, None] - column) / (4 * kernels.bandwidth[feature])
        gram = centred_gram(np.exp(-(distance**2)))
        assert row_gram(known, found["wide"].view, feature) == pytest.approx(gram, abs=0.02)
        _, vectors = np.linalg.eigh(gram)
        lead = vectors[:, -2:] if len(np.unique(column)) > 2 else vectors[:, -1:]
        claimed = row_gram(known, found["moments"].view, feature)
        assert np.trace(claimed @ lead @ lead.T) == pytest.approx(lead.shape[1], abs=0.02)
        assert np.trace(claimed) == pytest.approx(lead.shape[1], abs=1e-9)


@pytest.mark.parametrize("pairs", [CLASSES, NUMBERS])
def test_shares_of_the_level_add_up_to_one(pairs):
    assert sum(pair.weight for pair in pairs) == pytest.approx(1.0)


def test_ranks_make_pvalues_of_a_response_free_of_monotone_changes():
    """Views of ranks do not change under an increasing function of the column, the others do."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(80, 3))
    for name in ("normal-scores", "rank-scores", "smooth", "narrow", "local"):
        known, _, one = views_of(X, [name])
        again, _, two = views_of(np.exp(2 * X), [name])
        for feature in range(3):
            expected = row_gram(known, one[name].view, feature)
            assert row_gram(again, two[name].view, feature) == pytest.approx(expected, abs=1e-9)


def test_a_line_between_logarithms_is_found_without_taking_them():
    """0.82 of such tables are found, 98 of 120 with a standard deviation of 4; by values alone 72 with one of 5."""
    rng = np.random.default_rng(7)
    found = 0
    for _ in range(120):
        x, noise = rng.normal(size=(2, 200))
        y = np.exp(1.5 * (0.22 * x + noise))
        found += relate(np.exp(1.5 * x)[:, None], y, k=None, random_state=0).pvalues[0] <= 0.05
    assert found >= 86


def test_a_checkerboard_is_found():
    """Without a trend in any direction: 0.84 of such tables are found, and 0.46 by the narrow view on both sides."""
    rng = np.random.default_rng(6)
    found = 0
    for _ in range(60):
        x, y = rng.uniform(0.0, 4.0, (2, 200))
        move = ((np.floor(x) + np.floor(y)) % 2 == 1) & (rng.random(200) < 0.5)
        found += relate(x[:, None], np.where(move, (y + 1.0) % 4.0, y), k=None, random_state=0).pvalues[0] <= 0.05
    assert found >= 37


def long_column(rng, n):
    values = rng.normal(size=n)
    values[rng.random(n) < 0.3] = 0.0
    return values


@pytest.mark.parametrize("kind", ["zeros", "dice", "normal", "binary"])
def test_points_of_long_columns_keep_common_values_alone(kind):
    rng = np.random.default_rng(5)
    n = 40_000
    values = {
        "zeros": long_column(rng, n),
        "dice": rng.integers(1, 7, n).astype(float),
        "normal": rng.normal(size=n),
        "binary": (rng.random(n) < 0.5).astype(float),
    }[kind]
    rare = rng.choice(n, 5, replace=False)
    if kind != "normal":
        values[rare] = {"zeros": 1e-9, "dice": 2.5, "binary": 7.0}[kind]
    rows = np.sort(rng.choice(np.setdiff1d(np.arange(n), rare), 8192, replace=False))
    grid = fit_grid(as_table(values[:, None]), np.array([0]), rows)
    [codes] = grid.codes(values[:, None])
    assert (np.diff(codes[np.argsort(values)]) >= 0).all(), "points are in the order of the values"
    assert (np.diff(grid.points[:, 0]) >= 0).all()
    if kind == "normal":
        return
    common = {"zeros": [0.0], "dice": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "binary": [0.0, 1.0]}[kind]
    for value in common:
        assert len(np.unique(codes[values == value])) == 1
        point = codes[values == value][0]
        assert (values[codes == point] == value).all(), "nothing but the common value has its point"
        assert grid.points[point, 0] == value


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_rare_values_of_long_columns_count_whatever_the_seed(seed):
    """20 ones of 40,000 rows, all in one sample: the chance is that of twenty rows on one side."""
    X, Y = np.zeros((20_000, 1)), np.zeros((20_000, 1))
    X[:20] = 1.0
    expected = stats.fisher_exact([[20, 19_980], [0, 20_000]]).pvalue
    assert compare(X, Y, random_state=seed).pvalues == pytest.approx([expected], rel=1e-6)
