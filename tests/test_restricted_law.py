"""Permutations within strata: closed forms against full enumeration, and against values from R."""

from __future__ import annotations

from itertools import combinations, permutations, product

import numpy as np
import pytest

from kernsift.estimators.null_laws.permutation_law import Invariants, invariants, moments
from kernsift.estimators.restricted import sign_flips, stratified_law
from kernsift.estimators.restricted.folded_covariance import ResponseMoments
from kernsift.estimators.restricted.relabellings import Relabellings
from kernsift.estimators.restricted.sign_flips import Flips
from kernsift.estimators.restricted.strata import Strata
from kernsift.estimators.restricted.stratified_law import ThirdMoments, covariance, third_moment
from kernsift.kernels.low_rank import View

SIZES = [[3, 4, 3, 2], [6], [2] * 7, [2, 2, 2, 5], [3, 4, 3], [4, 4, 3], [3, 1, 4]]


def enumerated(strata: Strata, factor: np.ndarray, response: np.ndarray) -> np.ndarray:
    """(outcomes, b) T for every permutation within strata."""
    orders = [list(permutations(range(start, start + n))) for start, n in zip(strata.starts, strata.sizes, strict=True)]
    rows = np.array([np.concatenate(order) for order in product(*orders)])
    cross = np.einsum("bmn,pan->abmp", factor, response[:, rows], optimize=True)
    return (cross**2).sum(axis=(2, 3))


def problem(sizes: list[int], m: int, p: int, rng: np.random.Generator) -> tuple[Strata, np.ndarray, np.ndarray]:
    sizes = [n for n in sizes if n > 1]
    strata = Strata.of(np.repeat(np.arange(len(sizes)), sizes))
    n = len(strata.order)
    return strata, strata.centred(rng.exponential(size=(2, m, n))), strata.centred(rng.normal(size=(p, n)) ** 3)


def test_strata_are_sorted_by_their_rows() -> None:
    """Codes without a row, strata of one row and strata of one size: each is a run of rows in their order."""
    codes = np.random.default_rng(0).integers(0, 40, size=60)
    strata = Strata.of(codes)
    assert strata.sizes.tolist() == sorted(np.unique_counts(codes).counts) and strata.sizes[0] == 1
    runs = np.split(strata.order, np.cumsum(strata.sizes)[:-1])
    assert sorted(run.tolist() for run in runs) == sorted(np.flatnonzero(codes == code).tolist() for code in set(codes))


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("sizes", SIZES)
def test_moments_are_those_of_all_permutations(sizes: list[int], p: int) -> None:
    rng = np.random.default_rng([sum(sizes), p])
    strata, factor, response = problem(sizes, 3, p, rng)
    every = enumerated(strata, factor, response)
    own = ResponseMoments.of(response, response, strata)
    scatter = strata.sums((response**2).sum(axis=0)) / (strata.sizes - 1)
    third = third_moment(
        ThirdMoments.of_features(factor, strata, own), ThirdMoments.of_response(response, strata, own), strata
    )
    np.testing.assert_allclose(strata.sums((factor**2).sum(axis=1)) @ scatter, every.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(covariance(factor, factor, strata, own), every.var(axis=0), rtol=1e-9)
    expected = ((every - every.mean(axis=0)) ** 3).mean(axis=0)
    np.testing.assert_allclose(third, expected, rtol=1e-8, atol=1e-9 * every.std() ** 3)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("sizes", [[3, 4, 3, 2], [2, 2, 2, 5], [6]])
def test_points_with_weights_have_the_moments_of_their_rows(sizes: list[int], p: int) -> None:
    """Rows at three points, of which a stratum may lack some; more directions than third moments are summed over."""
    rng = np.random.default_rng([sum(sizes), p, 1])
    strata, _, response = problem(sizes, 1, p, rng)
    points, codes = rng.exponential(size=(2, 14, 3)), rng.integers(0, 3, size=len(strata.order))
    every = enumerated(strata, strata.centred(points[:, :, codes]), response)
    own = ResponseMoments.of(response, response, strata)
    counts = np.zeros((len(strata.sizes), 3))
    np.add.at(counts, (strata.of_row, codes), 1.0)
    values = points[:, :, None, :] - (points @ counts.T / strata.sizes)[..., None]
    factor, weights = values.reshape(2, 14, -1), np.tile(counts.ravel(), (2, 1))
    layout = strata._replace(weights=weights)
    # The leading directions come first.
    factor = np.flip(np.linalg.eigh((factor * weights[:, None]) @ factor.transpose(0, 2, 1))[1], 2).mT @ factor
    third = third_moment(
        ThirdMoments.of_features(factor, layout, own), ThirdMoments.of_response(response, strata, own), strata
    )
    np.testing.assert_allclose(covariance(factor, factor, layout, own), every.var(axis=0), rtol=1e-9)
    expected = ((every - every.mean(axis=0)) ** 3).mean(axis=0)
    np.testing.assert_allclose(third, expected, rtol=1e-8, atol=1e-9 * every.std() ** 3)


def test_third_moments_have_all_directions_of_few_rows() -> None:
    """With nearly equal eigenvalues no direction can be left out; T is that of all relabellings of two strata."""
    rng = np.random.default_rng(6)
    strata = Strata.of(np.repeat([0, 1], 8))
    gram = np.exp(-np.abs(np.subtract.outer(*[100.0 * rng.normal(size=16)] * 2)))
    sizes, vectors = np.linalg.eigh(gram)
    rows = strata.centred(np.flip(vectors * np.sqrt(np.maximum(sizes, 0.0)), 1).T[None])
    rows = np.flip(np.linalg.eigh(rows @ rows.mT)[1], 2).mT @ rows
    label = strata.centred(np.tile(np.repeat([0.0, 1.0], 4), 2)[None])
    chosen = np.array([np.isin(np.arange(8), some) for some in combinations(range(8), 4)], dtype=float)
    labels = strata.centred(np.array([np.concatenate(pair) for pair in product(chosen, chosen)]))
    every = ((labels @ rows[0].T) ** 2).sum(axis=1)
    own = ResponseMoments.of(label, label, strata)
    third = third_moment(
        ThirdMoments.of_features(rows, strata, own), ThirdMoments.of_response(label, strata, own), strata
    )
    expected = ((every - every.mean()) ** 3).mean()
    assert third[0] == pytest.approx(expected, abs=0.1 * every.std() ** 3)


@pytest.mark.parametrize("sizes", SIZES)
def test_covariances_of_two_views_are_those_of_all_permutations(sizes: list[int]) -> None:
    rng = np.random.default_rng([sum(sizes), 9])
    strata, factor, response = problem(sizes, 3, 2, rng)
    _, other, target = problem(sizes, 2, 3, rng)
    moments_of = ResponseMoments.of(response, target, strata)
    one, two = enumerated(strata, factor, response), enumerated(strata, other, target)
    expected = ((one - one.mean(axis=0)) * (two - two.mean(axis=0))).mean(axis=0)
    found = covariance(factor, other, strata, moments_of)
    np.testing.assert_allclose(found, np.maximum(expected, 0.0), rtol=1e-8, atol=1e-9 * one.std() * two.std())


def test_sign_flips_of_pairs() -> None:
    """With M_bc = <d_b, d_c> and M0 = M without its diagonal: mean tr M, variance 2 |M0|^2, third moment 8 tr M0^3."""
    rng = np.random.default_rng(5)
    differences = rng.normal(size=(40, 4))
    gram = differences @ differences.T
    off = gram - np.diag(np.diag(gram))
    strata = Strata.of(np.repeat(np.arange(40), 2))
    factor = strata.centred(np.stack([differences, 0 * differences], axis=1).reshape(80, 4).T[None])
    label = strata.centred(np.tile([1.0, 0.0], 40)[None])
    own = ResponseMoments.of(label, label, strata)
    third = third_moment(
        ThirdMoments.of_features(factor, strata, own), ThirdMoments.of_response(label, strata, own), strata
    )
    # T is |sum of +-d_b / 2|^2.
    assert covariance(factor, factor, strata, own)[0] == pytest.approx(2 * (off**2).sum() / 16)
    assert third[0] == pytest.approx(8 * np.trace(off @ off @ off) / 64)
    flips = Flips.of(factor, strata, own)
    assert flips is not None
    assert flips.moments(label, strata)[1][0] == pytest.approx(third[0])


def test_closed_forms_of_sign_flips_are_those_of_all_flips() -> None:
    rng = np.random.default_rng(7)
    strata = Strata.of(np.repeat(np.arange(7), 2))
    one, other = (strata.centred(rng.normal(size=(3, directions, 14)) ** 3) for directions in (2, 4))
    answer = strata.centred(rng.exponential(size=(1, 14)))
    own = ResponseMoments.of(answer, answer, strata)
    signs = np.repeat(np.array(list(product([1.0, -1.0], repeat=7))), 2, axis=1)
    every = [(((part * answer) @ signs.T) ** 2).sum(axis=1) for part in (one, other)]
    away = [part - part.mean(axis=1, keepdims=True) for part in every]
    flips = [Flips.of(part, strata, own) for part in (one, other)]
    assert flips[0] is not None and flips[1] is not None
    # Negative covariances count as none.
    expected = np.maximum((away[0] * away[1]).mean(axis=1), 0.0)
    np.testing.assert_allclose(flips[0].covariance(flips[1]), expected, rtol=1e-10)
    np.testing.assert_allclose(flips[0].covariance(flips[0]), (away[0] ** 2).mean(axis=1), rtol=1e-10)
    np.testing.assert_allclose(flips[0].moments(answer, strata)[1], (away[0] ** 3).mean(axis=1), rtol=1e-10)


@pytest.mark.parametrize("directions", [(1, 1), (2, 2), (6, 3)], ids=["matrices", "more pairs", "fewer pairs"])
def test_flips_of_a_response_with_several_directions_are_those_of_all_flips(directions: tuple[int, int]) -> None:
    """Nine pairs are more and fewer than products of directions, which changes what is summed."""
    rng = np.random.default_rng([9, *directions])
    m, p = directions
    strata = Strata.of(np.repeat(np.arange(9), 2))
    one, other = (strata.centred(rng.exponential(size=(3, q, 18))) for q in (m, m + 1))
    answer, target = (strata.centred(rng.normal(size=(q, 18)) ** 3) for q in (p, p + 1))
    signs = np.repeat(np.array(list(product([1.0, -1.0], repeat=9))), 2, axis=1)
    every = [
        (np.einsum("bmn,pn,an->abmp", factor, response, signs, optimize=True) ** 2).sum(axis=(2, 3))
        for factor, response in ((one, answer), (other, target))
    ]
    away = [part - part.mean(axis=0) for part in every]
    flips = Flips.of(one, strata, ResponseMoments.of(answer, answer, strata))
    assert flips is not None
    variance, third = flips.moments(answer, strata)
    np.testing.assert_allclose(variance, (away[0] ** 2).mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(third, (away[0] ** 3).mean(axis=0), rtol=1e-10)
    found = covariance(one, other, strata, ResponseMoments.of(answer, target, strata))
    expected = np.maximum((away[0] * away[1]).mean(axis=0), 0.0)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12 * np.sqrt(variance).max() * every[1].std())


@pytest.mark.parametrize("numbers", [2**20, 2**9])
def test_flips_of_many_pairs_have_the_moments_of_their_products(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """M_bc = <d_b, d_c> <g_b, g_c> without its diagonal has the variance 2 |M0|^2 and the third moment 8 tr(M0^3)."""
    monkeypatch.setattr(sign_flips, "NUMBERS", numbers)
    rng = np.random.default_rng(12)
    strata = Strata.of(np.repeat(np.arange(300), 2))
    factor, response = strata.centred(rng.normal(size=(4, 9, 600)) ** 3), strata.centred(rng.normal(size=(8, 600)))
    grams = factor[:, :, ::2].transpose(0, 2, 1) @ factor[:, :, ::2], response[:, ::2].T @ response[:, ::2]
    off = 4.0 * grams[0] * grams[1] * (1.0 - np.eye(300))
    flips = Flips.of(factor, strata, ResponseMoments.of(response, response, strata))
    assert flips is not None
    variance, third = flips.moments(response, strata)
    np.testing.assert_allclose(variance, 2.0 * (off**2).sum(axis=(1, 2)), rtol=1e-10)
    np.testing.assert_allclose(third, 8.0 * np.trace(off @ off @ off, axis1=1, axis2=2), rtol=1e-10)
    own = ResponseMoments.of(response, response, strata)
    np.testing.assert_allclose(covariance(factor, factor, strata, own), variance, rtol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_moments_of_features_do_not_depend_on_the_others(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    strata, _, response = problem([3, 4, 3, 5], 1, 2, rng)
    layout, factor = strata, strata.centred(rng.normal(size=(7, 3, 15)))
    if weighted:
        weights = rng.dirichlet(np.ones(6), size=(7, 4)) * strata.sizes[:, None]
        layout = strata._replace(weights=weights.reshape(7, -1))
        factor = rng.normal(size=(7, 3, 24))
        factor = factor - np.repeat(layout.sums(factor.swapaxes(0, 1)).swapaxes(0, 1) / strata.sizes, 6, axis=2)
    own, found = ResponseMoments.of(response, response, strata), []
    for numbers in (2**20, 1):
        monkeypatch.setattr(stratified_law, "CACHED", numbers)
        monkeypatch.setattr(stratified_law, "NUMBERS", numbers)
        features = ThirdMoments.of_features(factor, layout, own)
        target = ThirdMoments.of_response(response, strata, own)
        both = covariance(factor, factor, layout, own) if not weighted else features.variance(own)
        found.append([features.variance(own), both, third_moment(features, target, strata)])
    np.testing.assert_allclose(found[0][1], found[0][0], rtol=1e-12)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)


def test_responses_with_many_directions_have_the_skewness_of_drawn_relabellings() -> None:
    """In strata of three rows, with scatter matrices of the response that differ from stratum to stratum."""
    rng = np.random.default_rng(5)
    strata = Strata.of(np.repeat(np.arange(90), 3))

    def leading(columns: int, directions: int) -> np.ndarray:
        y = rng.normal(size=(270, columns))
        values, vectors = np.linalg.eigh(np.exp(-2.0 * ((y[:, None] - y) ** 2).sum(axis=2)))
        return strata.centred((vectors * np.sqrt(np.maximum(values, 0.0))).T[::-1][:directions])

    factor, target = leading(1, 12), leading(3, 130)
    response = ResponseMoments.of(target, target, strata)
    features = ThirdMoments.of_features(factor[None], strata, response)
    third = third_moment(features, ThirdMoments.of_response(target, strata, response), strata)
    gram, other, drawn = factor.T @ factor, target.T @ target, np.empty(8000)
    for place in range(len(drawn)):
        order = (3 * np.arange(90)[:, None] + np.argsort(rng.random((90, 3)), axis=1)).ravel()
        drawn[place] = np.vdot(gram, other[np.ix_(order, order)])
    cubes = ((drawn - drawn.mean()) / drawn.std()) ** 3
    found = third[0] / features.variance(response)[0] ** 1.5
    assert found == pytest.approx(cubes.mean(), abs=4.0 * cubes.std() / np.sqrt(len(cubes)))


def test_relabellings_of_many_pairs_are_counted_without_a_table_of_all_values() -> None:
    """A table of 60,000 strata and 120,000 values has 58 GB."""
    strata = Strata.of(np.repeat(np.arange(60_000), 2))
    assert Relabellings(np.arange(120_000), strata, symmetric=False).log_count == pytest.approx(60_000 * np.log(2.0))
    assert Relabellings(np.arange(120_000) % 2, strata, symmetric=True).log_count == pytest.approx(59_999 * np.log(2.0))


def test_classes_with_equal_numbers_in_every_stratum_change_places() -> None:
    strata = Strata.of(np.repeat([0, 1], [4, 5]))
    kinds = np.array([0, 1, 2, 2, 0, 1, 2, 3, 3])
    every = {tuple(row) for row in product(permutations(kinds[:4].tolist()), permutations(kinds[4:].tolist()))}
    assert Relabellings(kinds, strata, symmetric=False).log_count == pytest.approx(np.log(len(every)))
    # Exchanging the first two classes gives the same statistics.
    assert Relabellings(kinds, strata, symmetric=True).log_count == pytest.approx(np.log(len(every) / 2))


@pytest.mark.parametrize("directions", [1, 9], ids=["products of directions", "products of rows"])
def test_drawn_statistics_are_those_of_the_drawn_orders(directions: int) -> None:
    """One direction and others that are rounding errors, as those of a column with two values, or several."""
    rng = np.random.default_rng(directions)
    strata = Strata.of(np.repeat(np.arange(3), [4, 5, 6]))
    factor, target = strata.centred(rng.normal(size=(9, 15))), strata.centred(rng.normal(size=(2, 15)))
    factor[directions:] *= 1e-16
    relabellings = Relabellings(rng.permutation(15), strata, symmetric=False)
    [[found]] = relabellings._permuted([[factor]], [target], 7)
    drawn = [((factor @ target[:, order].T) ** 2).sum() for part in relabellings._orders(7, 15) for order in part]
    np.testing.assert_allclose(found, drawn, rtol=1e-10)
    assert found[0] == pytest.approx(((factor @ target.T) ** 2).sum())


def test_a_single_stratum_has_the_law_of_all_permutations() -> None:
    rng = np.random.default_rng(6)
    strata = Strata.of(np.zeros(30, dtype=int))
    factors = []
    for directions in (4, 3):
        values = strata.centred(rng.normal(size=(directions, 30)) ** 2)
        _, vectors = np.linalg.eigh(values @ values.T)
        factors.append(vectors[:, ::-1].T @ values)
    factor, response = factors
    plain = [invariants(View(f[None], (f**2).sum(axis=1)[None]), np.ones((1, 30)), 30)[0] for f in factors]
    _, sd, skewness = moments(30, plain[0], Invariants(*(part[0] for part in plain[1])))
    own = ResponseMoments.of(response, response, strata)
    assert np.sqrt(covariance(factor[None], factor[None], strata, own)) == pytest.approx(sd)
    third = third_moment(
        ThirdMoments.of_features(factor[None], strata, own), ThirdMoments.of_response(response, strata, own), strata
    )
    assert third / sd**3 == pytest.approx(skewness)


def test_covariance_of_the_linear_statistic_from_coin() -> None:
    """R: coin's covariance of the linear statistic of (x, x^2) with y within four strata.

    x <- c(2.1,-0.3,1.7,0.4,3.2,-1.1,0.9,2.6,-0.8,1.3,0.2,4.1,-2.0,0.7)
    y <- c(0.5,1.9,-0.7,2.2,3.1,0.1,-1.4,0.8,1.1,2.7,-0.2,1.6,0.3,-0.9)
    b <- factor(c(1,1,1,1,1,2,2,2,2,3,3,3,4,4))
    it <- independence_test(x + I(x^2) ~ y | b, teststat = "quadratic")
    statistic(it, "linear"); expectation(it); covariance(it)
    """
    x = np.array([2.1, -0.3, 1.7, 0.4, 3.2, -1.1, 0.9, 2.6, -0.8, 1.3, 0.2, 4.1, -2.0, 0.7])
    y = np.array([0.5, 1.9, -0.7, 2.2, 3.1, 0.1, -1.4, 0.8, 1.1, 2.7, -0.2, 1.6, 0.3, -0.9])
    strata = Strata.of(np.array([1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4]))
    factor = strata.centred(np.stack([x, x**2])[:, strata.order])
    response = strata.centred(y[strata.order][None])
    own = ResponseMoments.of(response, response, strata)
    folded = ThirdMoments.of_features(factor[None], strata, own).folded[0, 0] * own.basis[0, 0, 0]
    reference = [[48.2162888889, 139.505100], [139.505100, 559.156415]]
    np.testing.assert_allclose(folded, reference, rtol=1e-10)
    np.testing.assert_allclose(factor @ response[0], [18.72 - 18.2233333333, 69.758 - 50.31], rtol=1e-9)
