"""The permutation law: moments against full enumeration, scores against SciPy and brute-force permutation."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from scipy import stats

from kernsift import compare, relate
from kernsift.estimators.null_laws import permutation_law as permutation
from kernsift.estimators.null_laws.permutation_law import (
    Invariants,
    gamma_score,
    invariants,
    limit_weights,
    moment_matrix,
    moments,
    score_of,
    spectral_score,
    union_score,
)
from kernsift.kernels.low_rank import View


def centred(rng, m, n, power=3):
    """A centred factor with orthogonal rows."""
    factor = rng.normal(size=(m, n)) ** power
    _, sizes, rows = np.linalg.svd(factor - factor.mean(axis=1, keepdims=True), full_matrices=False)
    return sizes[:, None] * rows


def sums_of(factor, counts=None):
    """The invariants of one feature with this factor (m, points), each point standing for one row or for several."""
    counts = np.ones(factor.shape[1]) if counts is None else counts
    sizes = ((factor * counts) @ factor.T).diagonal()
    return invariants(View(factor[None], sizes[None]), counts[None], int(counts.sum()))[0]


def one(sums):
    return Invariants(*(part[0] for part in sums))


@pytest.mark.parametrize("n", [4, 5, 6, 7])
@pytest.mark.parametrize("ranks", [(1, 1), (2, 3), (3, 1)])
def test_moments_are_exact_by_enumeration(n, ranks):
    rng = np.random.default_rng(n)
    F, G = centred(rng, ranks[0], n), centred(rng, ranks[1], n)
    K, L = F.T @ F, G.T @ G
    law = np.array([(K * L[np.ix_(p, p)]).sum() for p in itertools.permutations(range(n))])
    [mean], [sd], [skewness] = moments(n, sums_of(F), one(sums_of(G)))
    assert mean == pytest.approx(law.mean(), rel=1e-10)
    assert sd == pytest.approx(law.std(), rel=1e-9)
    assert skewness == pytest.approx(stats.skew(law), rel=1e-8, abs=1e-9)


def test_third_moments_are_exact_where_all_eigenvalues_are_nearly_equal():
    """As with a bandwidth far below the distances between rows: directions that are left out outweigh the rest."""
    rng = np.random.default_rng(2)
    n = 24
    x = rng.normal(size=(n, 1))
    gram = np.exp(-np.abs(x - x.T) / 0.003)
    centring = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(centring @ gram @ centring)
    found = sums_of((vectors * np.sqrt(np.maximum(values, 0.0))).T[:0:-1])
    rest = centring @ gram @ centring - values.sum() / (n - 1) * centring
    # The rounding error of the sums is 24^2 times 2e-16, of terms of size 1.
    assert found.second[0, 0] == pytest.approx((rest**2).sum(), abs=1e-12)
    assert found.third[0, 0] == pytest.approx(np.trace(rest @ rest @ rest), abs=1e-12)
    assert found.third[0, 2] == pytest.approx((rest**3).sum(), abs=1e-12)


@pytest.mark.parametrize("n", [24, 40])
@pytest.mark.parametrize("question", ["compare", "relate", "classes"])
def test_small_bandwidths_keep_the_level(question, n):
    """A bandwidth in the units of another column, of which T hardly depends on the order of the rows."""
    rng = np.random.default_rng(n)
    X, half = rng.normal(size=(n, 400)), n // 2
    options = {"kernel": "laplace", "bandwidth": 0.001, "random_state": 0}
    if question == "compare":
        found = compare(X[:half], X[half:], **options)
    else:
        found = relate(X, rng.normal(size=n) if question == "relate" else np.arange(n) % 4, **options)
    # Columns share the response: five standard errors of 400 independent p-values, doubled, at each of two levels.
    for level in (0.05, 0.001):
        assert (found.all_pvalues <= level).mean() <= level + 10 * np.sqrt(level * (1 - level) / 400)


def test_points_that_stand_for_several_rows_give_the_moments_of_those_rows():
    rng = np.random.default_rng(0)
    counts = np.array([3.0, 1.0, 4.0, 2.0, 5.0])
    points = rng.normal(size=(2, 5))
    points -= (points * counts).sum(axis=1, keepdims=True) / counts.sum()
    _, vectors = np.linalg.eigh((points * counts) @ points.T)
    points = vectors[:, ::-1].T @ points
    rows = np.repeat(points, counts.astype(int), axis=1)
    for few, all_ in zip(sums_of(points, counts), sums_of(rows), strict=True):
        assert few == pytest.approx(all_, rel=1e-10)


def set_partitions(items):
    if not items:
        yield []
        return
    for rest in set_partitions(items[1:]):
        yield [[items[0]], *rest]
        for i in range(len(rest)):
            yield [*rest[:i], [items[0], *rest[i]], *rest[i + 1 :]]


def sum_of(blocks, order):
    """Which invariant a pattern of indices sums to; None where centring or a zero trace makes it vanish."""
    where = {index: b for b, block in enumerate(blocks) for index in block}
    edges = [(where[2 * e], where[2 * e + 1]) for e in range(order)]
    degree = [sum((a == b) + (c == b) for a, c in edges) for b in range(len(blocks))]
    loops = [sum(a == c == b for a, c in edges) for b in range(len(blocks))]
    if 1 in degree or any(loop == 1 and deg == 2 for loop, deg in zip(loops, degree, strict=True)):
        return None
    if order == 2:
        return {2: 0, 1: 1}[len(blocks)]
    if len(blocks) == 3:
        return 0
    return 1 if len(blocks) == 1 else {0: 2, 1: 3, 2: 4}[sum(loops)]


@pytest.mark.parametrize(("order", "table"), [(2, permutation._SECOND), (3, permutation._THIRD)])
def test_pattern_tables_follow_by_moebius_inversion(order, table):
    partitions = [[frozenset(block) for block in p] for p in set_partitions(list(range(2 * order)))]
    surviving = [(q, kind) for q in partitions if (kind := sum_of(q, order)) is not None]
    found: dict = {}
    for p in partitions:
        sums = [0] * len(table[0][1])
        for q, kind in surviving:
            if all(any(a <= b for b in q) for a in p):
                inside = [sum(a <= b for a in p) for b in q]
                sums[kind] += math.prod((-1) ** (c - 1) * math.factorial(c - 1) for c in inside)
        if any(sums):
            found[len(p), tuple(sums)] = found.get((len(p), tuple(sums)), 0) + 1
    assert found == {(indices, sums): alike for indices, sums, alike in table}


def test_moment_matrix_is_symmetric():
    for order in (2, 3):
        assert moment_matrix(order, 40) == pytest.approx(moment_matrix(order, 40).T)


@pytest.mark.parametrize(("skewness", "within"), [(0.1, 1e-3), (0.5, 1e-3), (1.5, 0.006), (2.8, 0.02)])
def test_gamma_score_is_pearson_three(skewness, within):
    """r* is within 0.02 of the exact normal score right of the mean, and on the safe side there."""
    z = np.array([0.0, 0.5, 2.0, 5.0, 20.0])
    exact = stats.norm.isf(stats.pearson3(skewness).sf(z))
    score = gamma_score(z, np.full(len(z), skewness))
    assert score == pytest.approx(exact, abs=within)
    assert (score <= exact + 1e-6).all()


def test_scores_rise_and_stay_finite_for_any_statistic():
    z = np.concatenate([np.linspace(-0.5, 5.0, 2000), np.geomspace(5.1, 1e8, 400)])
    weights, counts = np.tile([[1.0, 0.5, 0.1]], (len(z), 1)), np.ones((len(z), 3))
    for skewness in (0.01, 0.5, 2.8):
        for score in (
            gamma_score(z, np.full(len(z), skewness)),
            spectral_score(z, np.full(len(z), skewness), weights, counts),
        ):
            assert np.isfinite(score).all()
            assert (np.diff(score) > -1e-6).all()


def test_negative_skewness_is_taken_as_almost_none():
    assert gamma_score(np.array([2.0]), np.array([-1.0]))[0] == pytest.approx(2.0, abs=0.05)


def test_spectral_score_with_one_weight_is_the_gamma_score():
    z = np.array([-0.4, 0.3, 2.0, 30.0])
    one = np.ones((4, 1))
    assert spectral_score(z, np.full(4, 1.3), one, one) == pytest.approx(gamma_score(z, np.full(4, 1.3)), abs=1e-8)


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.4, 0.2, 0.05], [1.0] * 6, list(0.7 ** np.arange(30))])
def test_spectral_score_is_the_law_of_weighted_chi_squares(weights):
    """Against 2,000,000 draws, and for equal weights against the chi-square itself far out."""
    weights = np.array(weights)
    w, counts = limit_weights(weights, np.ones(1))
    mean, sd = weights.sum(), np.sqrt(2 * (weights**2).sum())
    skewness = 8 * (weights**3).sum() / sd**3
    rng = np.random.default_rng(5)
    draws = sum(weight * rng.standard_normal(2_000_000) ** 2 for weight in weights)
    for p in (0.1, 0.01, 0.001):
        z = (np.quantile(draws, 1 - p) - mean) / sd
        assert stats.norm.sf(spectral_score(z, skewness, w, counts)) == pytest.approx(
            p, rel=0.06 + 4 / np.sqrt(2e6 * p)
        )
    if len(set(weights)) == 1:
        for value in (60.0, 600.0):
            claimed = stats.norm.logsf(spectral_score((value - mean) / sd, skewness, w, counts))
            assert claimed == pytest.approx(stats.chi2(len(weights)).logsf(value), abs=0.15)


def test_score_of_inverts_the_normal_tail():
    z = np.array([-3.0, 0.0, 1.0, 7.0, 40.0, 1000.0])
    assert score_of(stats.norm.logsf(z)) == pytest.approx(z, rel=1e-9, abs=1e-9)


def weighted_tails(scores, weights):
    return np.minimum(np.min(stats.norm.sf(scores) / weights) * weights, 1.0)


def chance_of_any(levels, matrix):
    """P(|x_k| > level_k for any k) of two correlated normal variables, by inclusion and exclusion."""
    h, k = levels
    law = stats.multivariate_normal([0, 0], matrix)
    inside = law.cdf([h, k]) - law.cdf([-h, k]) - law.cdf([h, -k]) + law.cdf([-h, -k])
    return 1 - inside


@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.8, 0.2)])
@pytest.mark.parametrize("correlation", [0.0, 0.36, 0.9])
def test_union_score_of_two_is_the_joint_law_of_squares(correlation, weights):
    """Two statistics of one direction each, x^2 and y^2, whose correlation is the square of that of x and y."""
    matrix = np.array([[1, np.sqrt(correlation)], [np.sqrt(correlation), 1]])
    weights = np.array(weights)
    for h in (0.3, 1.5, 3.0):
        scores = np.array([h, h - 1])
        expected = chance_of_any(stats.norm.isf(weighted_tails(scores, weights) / 2), matrix)
        found = union_score(scores[:, None], weights, np.array([[1, correlation], [correlation, 1]])[:, :, None])[0]
        assert stats.norm.sf(found) == pytest.approx(expected, rel=1e-3)


def assert_union_keeps_the_level(T, pairs):
    """Of drawn statistics (pairs, draws): p is at most 3% too small, and at most 20% too large."""
    from kernsift.estimators.statistics import tail_correlations

    tails = 1 - (T.argsort(axis=1).argsort(axis=1) + 0.5) / T.shape[1]
    weights = np.array([pair.weight for pair in pairs])
    smallest = (tails / weights[:, None]).min(axis=0)
    correlation = tail_correlations(np.corrcoef(T)[:, :, None], pairs)
    for level in (0.1, 0.02, 0.004):
        scores = stats.norm.isf(np.minimum(level * weights, 1.0))[:, None]
        claimed = stats.norm.sf(union_score(scores, weights, correlation)[0])
        true = (smallest <= level).mean()
        noise = 4 * np.sqrt(true / T.shape[1])
        assert 0.97 * true - noise < claimed < 1.2 * true + noise


@pytest.mark.parametrize("kind", ["normal", "lognormal", "poisson", "three values"])
def test_union_score_keeps_the_level_of_views(kind):
    """Against 400,000 draws of the views' joint limit law."""
    from kernsift.data.inputs import as_table
    from kernsift.estimators.pairs import CLASSES
    from kernsift.estimators.views import fitted_views
    from kernsift.kernels.contingency import tabulate
    from kernsift.kernels.fitted import fit_kernels
    from kernsift.kernels.quantisation import fit_grid

    rng = np.random.default_rng(8)
    n, draws = 300, 400_000
    column = {
        "normal": rng.normal(size=n),
        "lognormal": np.exp(rng.normal(size=n)),
        "poisson": rng.poisson(3.0, n),
        "three values": rng.choice(3, n, p=[0.6, 0.3, 0.1]),
    }[kind]
    table = as_table(np.asarray(column, float)[:, None])
    grid = fit_grid(table, np.array([0]), None)
    known = tabulate(table, np.array([0]), grid)
    names = [pair.feature for pair in CLASSES]
    views = fitted_views(names, grid, known.counts, n, fit_kernels(table, rng=rng), np.array([0]), np.arange(n))
    factors = [views[name].view.factor[0][:, known.codes[0]] for name in names]
    stacked = np.vstack(factors)
    values, vectors = np.linalg.eigh(stacked @ stacked.T)
    root = vectors[:, values > 1e-9 * values[-1]] * np.sqrt(values[values > 1e-9 * values[-1]])
    normal = rng.standard_normal((draws, root.shape[1])) @ root.T
    ends = np.cumsum([len(factor) for factor in factors])[:-1]
    T = np.array([(part**2).sum(axis=1) for part in np.split(normal, ends, axis=1)])
    assert_union_keeps_the_level(T, CLASSES)


@pytest.mark.parametrize("kind", ["normal", "lognormal", "poisson"])
def test_union_score_keeps_the_level_of_pairs_for_numbers(kind):
    """Against 100,000 draws of the joint limit law of all pairs, with a normal response."""
    from kernsift.data.inputs import as_table
    from kernsift.estimators.pairs import NUMBERS
    from kernsift.estimators.views import fitted_views
    from kernsift.kernels.contingency import tabulate
    from kernsift.kernels.fitted import fit_kernels
    from kernsift.kernels.quantisation import fit_grid

    rng = np.random.default_rng(18)
    n, draws = 200, 100_000
    column = {"normal": rng.normal(size=n), "lognormal": np.exp(rng.normal(size=n)), "poisson": rng.poisson(3.0, n)}

    def factors(values, names):
        table, one = as_table(np.asarray(values, float)[:, None]), np.array([0])
        grid = fit_grid(table, one, None)
        known = tabulate(table, one, grid)
        views = fitted_views(names, grid, known.counts, n, fit_kernels(table, rng=rng), one, np.arange(n))
        rows = {name: views[name].view.factor[0][:, known.codes[0]] for name in names}
        _, sizes, basis = np.linalg.svd(np.vstack(list(rows.values())), full_matrices=False)
        return {name: factor @ basis[sizes > 0.03 * sizes[0]].T for name, factor in rows.items()}

    features = factors(column[kind], {pair.feature for pair in NUMBERS})
    responses = factors(rng.normal(size=n), {pair.response for pair in NUMBERS})
    shape = (draws // 20, features["wide"].shape[1], responses["wide"].shape[1])
    parts = [rng.standard_normal(shape) for _ in range(20)]
    T = np.array([
        np.concatenate([((features[x] @ part @ responses[y].T) ** 2).sum(axis=(1, 2)) for part in parts])
        for x, y, _ in NUMBERS
    ])  # fmt: skip
    assert_union_keeps_the_level(T, NUMBERS)


def test_union_score_of_copies_is_that_of_one():
    scores = np.array([[2.0, -1.0, 9.0]] * 3)
    found = union_score(scores, np.array([0.5, 0.3, 0.2]), np.ones((3, 3, 3)))
    assert found == pytest.approx(scores[0], abs=1e-6)


def test_union_score_in_the_far_tail_loses_at_most_the_smallest_weight():
    h = np.array([5.0, 40.0, 300.0])
    score = union_score(np.array([h, h - 2]), np.array([0.5, 0.5]), np.full((2, 2, 3), 0.3))
    assert (score < h).all()
    assert (stats.norm.logsf(score) - stats.norm.logsf(h) <= np.log(2) + 1e-6).all()


@pytest.mark.parametrize("share", [0.5, 0.1])
@pytest.mark.parametrize("kind", ["normal", "heavy", "counts"])
def test_scores_match_brute_force_permutation(share, kind):
    """At n = 60 and true p near 0.05, 0.01 and 0.001 the closed form is near 60,000 permutations."""
    from kernsift.data.inputs import as_table
    from kernsift.estimators.pairs import CLASSES, NUMBERS
    from kernsift.estimators.views import fitted_views
    from kernsift.kernels.contingency import tabulate
    from kernsift.kernels.fitted import fit_kernels
    from kernsift.kernels.quantisation import fit_grid

    rng = np.random.default_rng(21)
    n = 60
    draw = {
        "normal": rng.normal,
        "heavy": lambda size: rng.standard_t(2, size),
        "counts": lambda size: rng.poisson(2, size),
    }
    table = as_table(np.asarray(draw[kind](size=(n, 3)), float))
    label = (np.arange(n) < share * n).astype(float)
    label -= label.mean()
    permuted = np.array([rng.permutation(label) for _ in range(60_000)]).T
    grid = fit_grid(table, np.arange(3), None)
    known = tabulate(table, np.arange(3), grid)
    names = {pair.feature for pair in CLASSES + NUMBERS}
    views = fitted_views(names, grid, known.counts, n, fit_kernels(table, rng=rng), np.arange(3), np.arange(n))
    for name, (view, own, *_) in views.items():
        law = [np.broadcast_to(part, 3) for part in moments(n, own, one(sums_of(label[None, :])))]
        weights, counts = limit_weights(view.sizes, np.array([label @ label]))
        for j in range(3):
            T = ((view.factor[j][:, known.codes[j]] @ permuted) ** 2).sum(axis=0)
            for p in (0.05, 0.01, 0.001):
                at = np.quantile(T, 1 - p)
                true = (at <= T).mean()
                z = (at - law[0][j]) / law[1][j]
                claimed = stats.norm.sf(spectral_score(z, law[2][j], weights[j], counts[j]))
                noise = 4 * np.sqrt(p / 60_000)
                # Unbalanced labels and counts give laws with atoms, which no smooth law follows closely.
                factor_of = 1.3 if share == 0.5 else 1.8
                # One direction with few large values is bounded, so that its far tail is shorter than claimed.
                safe = 2.5 if name == "location-scale" else factor_of
                assert true / factor_of - noise < claimed < true * safe + noise


def test_sums_of_cubes_are_added_in_pieces_of_points(monkeypatch):
    """The sum over all pairs written out, with counts; and less memory than a copy of the factor, which may be long."""
    rng = np.random.default_rng(0)
    factor, counts = rng.normal(size=(2, 3, 50)), rng.integers(1, 4, size=(2, 50)).astype(float)
    gram = factor.transpose(0, 2, 1) @ factor
    expected = np.einsum("bi,bij,bj->b", counts, gram**3, counts)
    for points in (7, 50):
        monkeypatch.setattr(permutation, "_POINTS", points)
        found = permutation._sum_of_cubes(factor, counts, (factor**2).sum(axis=1))
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    monkeypatch.undo()
    long = np.ones((1, 5, 2**19))
    counts, diagonal = np.ones((1, 2**19)), (long**2).sum(axis=1)
    tracemalloc.start()
    permutation._sum_of_cubes(long, counts, diagonal)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < long.nbytes / 2
