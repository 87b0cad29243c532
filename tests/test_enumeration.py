"""Permutation laws of columns and samples with few outcomes, against all permutations of the rows."""

import math
from itertools import combinations, permutations, product

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import comb

from kernsift import compare, relate, screen
from kernsift.estimators.null_laws.discreteness import MOST_ENUMERATED, few_outcomes, few_tables
from kernsift.estimators.null_laws.enumeration import (
    ViewedFeature,
    _drawn_rows,
    _labelled,
    distinct_integers,
    enumerated_laws,
    log_share,
    permuted_laws,
)


def test_drawn_integers_are_different_in_every_order_alike():
    rng = np.random.default_rng(0)
    found = distinct_integers(6, 3, 60_000, rng) @ [36, 6, 1]
    orders = [36 * a + 6 * b + c for a, b, c in permutations(range(6), 3)]
    # Orders have equal chances: a chi-square test at level 1e-9.
    assert stats.chisquare([np.count_nonzero(found == order) for order in orders]).pvalue > 1e-9
    assert np.isin(found, orders).all()
    # Half of 512 rows, of which no draw is without repeated ones at first.
    assert (np.diff(np.sort(distinct_integers(512, 256, 2**13, rng), axis=1), axis=1) > 0).all()


def statistics_of(factors, targets, values, cells):
    """T of every pair of views for rows with these values and cells, written out."""
    return [
        ((factor[:, values] @ target[:, cells].T) ** 2).sum() for factor, target in zip(factors, targets, strict=True)
    ]


def smallest_tail(table, weights):
    """For each row of outcomes (N, pairs), the smallest weighted share of outcomes that reach its statistics."""
    tails = np.array([[(column >= value * (1 - 1e-9)).mean() for value in column] for column in table.T])
    return (tails / weights[:, None]).min(axis=0)


def exact_pvalue(feature, values, cells, orders):
    """By permuting the rows of the response, every order in turn; the first is the observed one."""
    table = np.array([statistics_of(feature.factors, feature.targets, values, cells[order]) for order in orders])
    smallest = smallest_tail(table, feature.weights)
    return (smallest <= smallest[0] * (1 + 1e-9)).mean()


def problem(rng, values, cells, pairs=3):
    counts, classes = np.bincount(values), np.bincount(cells)
    joint = np.zeros((len(counts), len(classes)))
    np.add.at(joint, (values, cells), 1)
    factors = [rng.normal(size=(2, len(counts))) for _ in range(pairs)]
    factors = [part - (part * counts).sum(axis=1, keepdims=True) / len(values) for part in factors]
    targets = [rng.normal(size=(1 if len(classes) == 2 else 2, len(classes))) for _ in range(pairs)]
    targets = [part - (part * classes).sum(axis=1, keepdims=True) / len(values) for part in targets]
    weights = np.array([0.5, 0.3, 0.2])[:pairs]
    weights = weights / weights.sum()
    return ViewedFeature(counts, joint, factors, targets, weights, np.zeros(pairs))


@pytest.mark.parametrize(
    ("values", "cells"),
    [
        ([0, 0, 0, 0, 1, 2], [0, 0, 0, 1, 1, 1]),
        ([0, 1, 2, 3, 4, 4], [0, 0, 1, 1, 1, 1]),
        ([0, 0, 1, 1, 2], [0, 1, 2, 2, 2]),
        ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]),
    ],
)
def test_enumerated_pvalues_are_those_of_all_permutations(values, cells):
    rng = np.random.default_rng(0)
    values, cells = np.array(values), np.array(cells)
    orders = list(permutations(range(len(values))))
    for _ in range(3):
        feature = problem(rng, values, cells)
        expected = exact_pvalue(feature, values, cells, np.array(orders))
        assert math.exp(enumerated_laws([feature], 0).log_pvalues[0]) == pytest.approx(expected, abs=1e-9)
        cells = rng.permutation(cells)


@pytest.mark.parametrize(
    ("values", "cells"),
    [([0, 0, 0, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6]), ([0, 0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 2, 3, 4])],
)
def test_drawn_pvalues_are_near_those_of_all_permutations(values, cells, monkeypatch):
    """Within four standard errors of 8,192 draws, and two outcomes that tie in truth and not among the draws."""
    monkeypatch.setattr("kernsift.estimators.null_laws.enumeration.MOST_ENUMERATED", 1)
    rng = np.random.default_rng(0)
    values, cells = np.array(values), np.array(cells)
    orders = np.array(list(permutations(range(len(values)))))
    outcomes = len(orders) / math.prod(math.factorial(count) for count in np.bincount(values))
    for seed in range(4):
        feature = problem(rng, values, cells)
        expected = exact_pvalue(feature, values, cells, orders)
        error = 4 * math.sqrt(0.25 / 8192) + 2 / outcomes
        assert math.exp(enumerated_laws([feature], seed).log_pvalues[0]) == pytest.approx(expected, abs=error)
        cells = rng.permutation(cells)


def test_outliers_of_both_variables_keep_the_level():
    """One row dominates each variable: T is large exactly if these are matched, with probability 1/12."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 12))
    x[0] = y[0] = 40.0
    X = rng.permuted(np.tile(x[:, None], 1000), axis=0)
    pvalues = relate(X, y, response="numeric", correction=None, random_state=0).all_pvalues
    assert (pvalues <= 0.05).mean() < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1000)


@pytest.mark.parametrize("values", [(-2, -1, -1, -1, 0, 0, 0, 1), (-1, -1, 0, 0, 0, 1, 1, 2)])
def test_an_outlying_response_and_few_values_keep_the_level(values):
    """All orders of a column with few values, against a response that two rows dominate: true permutations."""
    y = np.array([0.01, -0.02, 0.0, 0.015, -0.01, 0.005, 50.0, -3.0])
    X = np.unique(np.array(list(permutations(values))), axis=0).T.astype(float)
    pvalues = relate(X, y, response="numeric", correction=None, random_state=0).all_pvalues
    for level in (0.01, 0.05, 0.1):
        assert (pvalues <= level).mean() < level + 4 * np.sqrt(level / 8192)


def test_the_number_of_labellings_of_two_equal_samples_counts_once():
    """Three rows against three that are fully apart: two labellings of twenty reach that."""
    assert compare([[1.0], [2.0], [3.0]], [[7.0], [8.0], [9.5]]).pvalues == pytest.approx([0.1])


@pytest.mark.parametrize("sizes", [(3, 3), (4, 5), (3, 8)])
def test_tiny_samples_are_exact(sizes):
    """Over all labellings of one column, the share with p <= a is at most a, and reaches a where a is attainable."""
    rng = np.random.default_rng(3)
    n = sum(sizes)
    column = rng.standard_t(2, n)
    pvalues = []
    for chosen in combinations(range(n), sizes[0]):
        mask = np.zeros(n, dtype=bool)
        mask[list(chosen)] = True
        pvalues.append(compare(column[mask, None], column[~mask, None], random_state=0).pvalues[0])
    pvalues = np.array(pvalues)
    for level in np.unique(pvalues.round(9)):
        assert (pvalues <= level + 1e-9).mean() == pytest.approx(level, abs=1e-8)


def test_sparse_counts_have_their_own_law():
    """Four nonzero rows 1, 1, 1, 2 of 200, all in one sample: the chance is that of four rows on one side."""
    X, Y = np.zeros((100, 1)), np.zeros((100, 1))
    X[:4, 0] = [1, 1, 1, 2]
    expected = 2 * math.comb(100, 4) / math.comb(200, 4)
    assert compare(X, Y).pvalues == pytest.approx([expected], rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("response", ["samples", "classes", "numbers"])
def test_sparse_columns_keep_their_level(response):
    """Columns with 1 to 15 nonzero rows of 120: within four standard errors of 0.05, not below 0.02 on average.

    `benchmarks/calibrate.py` has the same with many more columns.
    """
    rng = np.random.default_rng({"samples": 5, "classes": 6, "numbers": 7}[response])
    n, each, trials = 120, 12, 5
    hits = np.zeros(15)
    for _ in range(trials):
        X = np.zeros((n, 15 * each))
        for column in range(15 * each):
            nonzero = 1 + column // each
            X[rng.choice(n, nonzero, replace=False), column] = rng.geometric(0.6, nonzero)
        if response == "samples":
            pvalues = compare(X[:60], X[60:]).all_pvalues
        else:
            y = rng.integers(0, 3, n).astype(str) if response == "classes" else rng.standard_t(2, n)
            pvalues = relate(X, y).all_pvalues
        hits += (pvalues <= 0.05).reshape(15, each).sum(axis=1)
    rates = hits / (each * trials)
    error = np.sqrt(0.05 * 0.95 / (each * trials))
    assert rates.max() < 0.05 + 4 * error
    # Columns of one trial share the response, so that the mean is less certain than their number says.
    assert 0.02 < rates.mean() < 0.05 + 4 * error / np.sqrt(5)


def test_drawn_rows_are_uniform_and_different():
    for n in (30, 100, 1000):
        rows = _drawn_rows(n, min(n - 1, 15), 8192, 1)
        assert all(len(set(row)) == rows.shape[1] for row in rows.tolist()[:500])
        share = np.bincount(rows.ravel(), minlength=n) / rows.size
        assert np.abs(share - 1 / n).max() < 5 * np.sqrt(1 / n / rows.size)


def test_a_tail_beyond_the_draws_continues_the_smooth_law():
    """Where draws are enough their share counts; further out the smooth tail, scaled to agree at the edge."""
    draws = np.sort(np.random.default_rng(2).chisquare(1, 8192))[::-1]
    at = np.array([4.0, 40.0])
    found = [
        math.exp(log_share(np.append(value, draws)[None, :], np.ones(1), stats.chi2(1).logsf([value]))) for value in at
    ]
    assert found[0] == pytest.approx((draws >= 4.0).mean(), rel=0.01)
    assert found[1] == pytest.approx(stats.chi2(1).sf(40.0), rel=0.6)


def test_a_column_with_the_largest_number_of_tables_that_are_enumerated():
    """Five, ten, eleven, five and two numbers of rows in the first sample: 5,500 tables, as many as are enumerated."""
    counts, label = np.array([4, 9, 12, 10, 4, 1]), np.repeat([0, 1], 20)
    rng = np.random.default_rng(1)
    values = np.repeat(np.arange(6), counts)
    rng.shuffle(values)
    feature = problem(rng, values, label)
    assert few_outcomes(counts[None, :], np.array([20, 20])).all()
    orders = np.array([rng.permutation(40) for _ in range(20_000)])
    orders[0] = np.arange(40)
    expected = exact_pvalue(feature, values, label, orders)
    error = 4.0 * np.sqrt(expected * (1.0 - expected) / len(orders))
    assert math.exp(enumerated_laws([feature], 0).log_pvalues[0]) == pytest.approx(expected, abs=error)


def test_few_outcomes_are_small_samples_and_sparse_columns():
    counts = np.array([[90, 8, 2, 0], [40, 30, 30, 0], [50, 50, 0, 0]])
    assert few_outcomes(counts, np.array([50, 50])).tolist() == [True, True, False]
    assert few_outcomes(counts, np.array([30, 30, 40])).tolist() == [True, False, False]
    assert few_outcomes(np.array([[1, 1, 1, 1, 1, 1]]), np.array([3, 3])).tolist() == [True]


@pytest.mark.parametrize("n", [12, 40, 64, 66])
def test_two_values_against_two_numbers_is_fishers_test(n):
    """`relate` with a response of two numbers is `compare` of its two samples, and both are Fisher's test."""
    rng = np.random.default_rng(n)
    X, y = (rng.random((n, 6)) < 0.4).astype(float), np.repeat([0.0, 1.0], [n // 3, n - n // 3])
    related = relate(X, y, response="numeric").all_pvalues
    compared = compare(X[y == 0], X[y == 1]).all_pvalues
    assert related.tolist() == compared.tolist()
    for column, found in zip(X.T, related, strict=True):
        law = stats.hypergeom(n, int(column.sum()), int((y == 0).sum()))
        cells, seen = np.arange(n + 1), column[y == 0].sum()
        far = np.abs(cells - law.mean()) >= abs(seen - law.mean()) - 1e-9
        assert found == pytest.approx(min(law.pmf(cells)[far].sum(), 1.0), rel=1e-6)


@pytest.mark.parametrize("sizes", [(8, 8), (30, 30), (5, 60)])
def test_groups_and_data_sets_with_two_different_rows_are_fishers_test(sizes):
    """Every table of two different rows by two samples; where only one row differs, equal samples say nothing."""
    first, second = sizes
    for marked in (1, 3):
        for seen in range(marked + 1):
            X, Y = (np.zeros((rows, 2)) for rows in sizes)
            X[:seen], Y[: marked - seen] = 1.0, 1.0
            expected = compare(X[:, :1], Y[:, :1]).all_pvalues
            found = compare(X, Y, groups={"both": [0, 1]}).all_pvalues
            screened = screen(X, {"candidate": Y}).all_pvalues
            np.testing.assert_allclose([*found, *screened], [*expected, *expected], rtol=1e-9)
            assert marked > 1 or first != second or found[0] == pytest.approx(1.0)


def test_a_response_of_two_columns_and_six_rows_is_exact():
    """All 720 orders of a feature: no p-value is smaller than the share of orders with one as small."""
    rng = np.random.default_rng(5)
    x, y = rng.standard_cauchy(6), rng.standard_cauchy((6, 2))
    X = np.array([x[list(order)] for order in permutations(range(6))]).T
    pvalues = np.sort(relate(X, y, correction=None, random_state=0).all_pvalues)
    assert (pvalues >= (np.arange(720) + 1) / 720 - 1e-9).all()
    assert pvalues[0] == pytest.approx(1 / 720)


@pytest.mark.parametrize("n", [12, 40])
def test_a_response_of_two_columns_with_two_different_rows_is_fishers_test(n):
    rng = np.random.default_rng(n)
    X, label = (rng.random((n, 5)) < 0.3).astype(float), np.repeat([0.0, 1.0], [n // 4, n - n // 4])
    found = relate(X, np.column_stack([label, -label]), correction=None).all_pvalues
    np.testing.assert_allclose(found, compare(X[label == 0], X[label == 1], correction=None).all_pvalues, rtol=1e-9)


def test_groups_of_few_rows_are_exact():
    """With 3 against 6 different rows the p-value is the share of the 84 labellings with a statistic as large."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(9, 2))
    labellings = [list(rows) for rows in combinations(range(9), 3)]
    pvalues = np.sort(
        [
            compare(X[rows], np.delete(X, rows, axis=0), groups={"both": [0, 1]}, random_state=0).all_pvalues[0]
            for rows in labellings
        ]
    )
    np.testing.assert_allclose(pvalues * 84, np.round(pvalues * 84), atol=1e-6)
    # The order of the rows decides on landmarks, and so on the order of statistics that are nearly equal.
    assert (pvalues >= np.arange(84) / 84 - 1e-9).all()


@pytest.mark.parametrize("sizes", [(500, 500), (500, 501), (200, 200)])
def test_values_that_are_all_different_say_nothing_under_equality(sizes):
    rng = np.random.default_rng(1)
    one, two = (rng.normal(size=(size, 2)) for size in sizes)
    assert compare(one, two, kernel="delta").all_pvalues.tolist() == [1.0, 1.0]
    names = [[f"id{i}"] for i in range(sum(sizes))]
    assert compare(np.array(names[: sizes[0]]), np.array(names[sizes[0] :])).all_pvalues.tolist() == [1.0]


@pytest.mark.parametrize(("pairs", "split"), [(10, (10, 10)), (15, (15, 15)), (30, (30, 30)), (15, (10, 20))])
def test_levels_of_two_rows_count_ties_in_full(pairs, split):
    """T grows with the number of levels whose rows are all in one sample, which has a closed form."""
    n, first = 2 * pairs, split[0]
    together = np.arange(first // 2 + 1)  # levels with both rows in the first sample
    single = first - 2 * together
    possible = single <= pairs - together
    together, single = together[possible], single[possible]
    ways = comb(pairs, together) * comb(pairs - together, single) * 2.0**single
    tails = np.cumsum((ways / comb(n, first))[::-1])[::-1]
    for both, one, tail in zip(together, single, tails, strict=True):
        if not 0.005 < tail < 0.5:
            continue
        # The first sample has both rows of `both` levels and one row of `one` levels.
        rows = [*range(2 * both), *range(2 * both, 2 * (both + one), 2)]
        label = np.isin(np.arange(n), rows)
        values = pd.DataFrame({"level": [f"level {row // 2}" for row in range(n)]})
        result = compare(values[label], values[~label], kinds={"level": "category"})
        # A continuous law is off where few values of T are in a tail, but not below the tail.
        assert 0.95 * tail < result.pvalues[0] < 1.7 * tail


@pytest.mark.parametrize("counts", [(50, 52, 51, 53), (120, 40, 30, 16)])
def test_few_rows_against_many_with_few_values_are_exact(counts):
    """One column for each table of four values by 6 and 200 rows: no p-value up to 0.15 is below its probability."""
    n, first = sum(counts), 6
    tables = [table for table in product(range(first + 1), repeat=len(counts)) if sum(table) == first]
    weight = np.exp([sum(np.log(comb(counts, table))) - np.log(comb(n, first)) for table in tables])
    values = np.arange(len(counts), dtype=float)
    X = np.column_stack([np.repeat(values, table) for table in tables])
    Y = np.column_stack([np.repeat(values, np.array(counts) - table) for table in tables])
    pvalues = compare(X, Y, correction=None).all_pvalues
    small = pvalues[pvalues <= 0.15]
    assert len(small) > 5
    for pvalue in small:
        assert weight[pvalues <= pvalue * (1 + 1e-9)].sum() <= pvalue * (1 + 1e-6)


def test_a_response_with_few_nonzero_rows_keeps_the_level():
    """Three rows of the response and three of the feature are far from the others: T is large where two meet."""
    n, columns = 150, 6_000
    rng = np.random.default_rng(8)
    y = np.zeros(n)
    y[:3] = [-8.0, 1.0, 20.0]
    feature = np.append([50.0, 50.5, 51.0], stats.norm.ppf((np.arange(n - 3) + 0.5) / (n - 3)))
    X = rng.permuted(np.tile(feature[:, None], columns), axis=0)
    pvalues = relate(X, y, response="numeric", correction=None, random_state=0).all_pvalues
    for level in (0.05, 0.01):
        error = np.sqrt(level * (1 - level) * (1 / columns + 1 / 8_192))
        assert (pvalues <= level).mean() < level + 4 * error


def test_three_rows_against_many_keep_the_level():
    """T of 3 rows is a sum of few terms; 10,000 columns share 8,192 drawn labellings, and both have sampling error."""
    X = np.random.default_rng(4).normal(size=(123, 10_000))
    pvalues = compare(X[:3], X[3:], correction=None, random_state=0).all_pvalues
    error = np.sqrt(0.05 * 0.95 * (1 / 10_000 + 1 / 8_192))
    assert abs((pvalues <= 0.05).mean() - 0.05) < 3 * error


@pytest.mark.parametrize("cells", [[0] * 6 + [1, 1], [0] * 4 + [1, 1, 2, 2]])
def test_drawn_labellings_are_near_all_permutations(cells, monkeypatch):
    """Within four standard errors of 8,192 draws, and two outcomes that tie in truth and not among the draws."""
    monkeypatch.setattr("kernsift.estimators.null_laws.enumeration.MOST_ENUMERATED", 1)
    rng = np.random.default_rng(2)
    values, cells = np.array([0, 1, 2, 3, 4, 5, 6, 6]), np.array(cells)
    orders = np.array(list(permutations(range(8))))
    for seed in range(3):
        cells = rng.permutation(cells)
        feature = problem(rng, values, cells)
        # One order of each labelling; the first order keeps the observed one.
        own = orders[np.sort(np.unique(cells[orders], axis=0, return_index=True)[1])]
        expected = exact_pvalue(feature, values, cells, own)
        found = math.exp(enumerated_laws([feature], seed, rare=True).log_pvalues[0])
        assert found == pytest.approx(expected, abs=4 * math.sqrt(0.25 / 8192) + 2 / len(own))


@pytest.mark.parametrize(
    ("directions", "points", "size"), [(1, 30, 4), (12, 30, 4), (12, 9, 12), (8, 8, 20), (12, 1030, 4)]
)
def test_statistics_of_labellings_are_those_of_their_rows(directions, points, size):
    """By sums of directions, by pairs of rows, by points, by points with the kernel of equality, and of many points."""
    rng = np.random.default_rng(directions)
    counts = rng.integers(2, 6, points)
    factor = np.diag(rng.random(points)) if directions == points else rng.normal(size=(directions, points))
    factor = factor - (factor * counts).sum(axis=1, keepdims=True) / counts.sum()
    differences, codes = rng.normal(size=(2, size)), rng.integers(0, points, (50, size))
    expected = [((factor[:, row] @ differences.T) ** 2).sum() for row in codes]
    np.testing.assert_allclose(_labelled(factor, counts, differences, codes), expected, rtol=1e-9)


def test_levels_beyond_the_most_frequent_ones():
    """300 levels of two rows, of which 44 are pooled, 15 rows against 585.

    With the kernel of equality T depends on the numbers of other levels with both rows and with one row in the first
    sample, which have a closed form. If no level has both, and the first sample has none of the pooled rows, only the
    latter can speak against the null; its probability is 0.09.
    """
    pairs, kept, first = 300, 256, 15
    n, pooled = 2 * pairs, 2 * (pairs - kept)
    both, one = (part.ravel() for part in np.meshgrid(np.arange(8), np.arange(first + 1), indexing="ij"))
    ways = comb(kept, both) * comb(kept - both, one) * 2.0**one * comb(pooled, first - 2 * both - one)
    share = 2 * first / n

    def statistic(both, one):
        return both * (2 - share) ** 2 + one * (1 - share) ** 2 + (kept - both - one) * share**2

    def samples(both, one):
        rest = first - 2 * both - one
        rows = [*range(2 * both), *range(2 * both, 2 * (both + one), 2), *range(2 * kept, 2 * kept + rest)]
        label = np.isin(np.arange(n), rows)
        values = pd.DataFrame({"level": [f"level {row // 2:03d}" for row in range(n)]})
        return values[label], values[~label]

    for seen in ((1, 13), (2, 9)):
        tail = ways[statistic(both, one) >= statistic(*seen) - 1e-9].sum() / comb(n, first)
        found = compare(*samples(*seen), kernel="delta", kinds={"level": "category"}).pvalues[0]
        assert found == pytest.approx(tail, abs=4 * np.sqrt(tail / 8192))
    assert compare(*samples(0, 15), kinds={"level": "category"}).pvalues[0] > comb(n - pooled, first) / comb(n, first)


def test_permutations_are_near_all_permutations():
    # Two standard errors of a share of 8192 draws are at most 0.011; four are allowed.
    rng = np.random.default_rng(0)
    for cells in (np.array([0, 0, 1, 1, 1, 1]), np.array([0, 1, 2, 3, 3, 0])):
        values = np.array([0, 1, 2, 3, 4, 4])
        feature = problem(rng, values, cells)
        orders = np.array(list(permutations(range(6))))
        found = math.exp(permuted_laws([feature, feature], 0).log_pvalues[1])
        assert abs(found - exact_pvalue(feature, values, cells, orders)) < 0.022


def permuted_share(x, g, rng, draws=20_000):
    """(columns,) shares of permutations whose squared covariance with `g` is at least the observed one."""
    x, g = x - x.mean(axis=0), g - g.mean()
    drawn = rng.permuted(np.tile(g, (draws, 1)), axis=1) @ x
    return (drawn**2 >= (g @ x) ** 2 * (1 - 1e-9)).mean(axis=0)


@pytest.mark.parametrize("question", ["compare", "relate"])
def test_a_linear_kernel_with_outliers_has_the_pvalues_of_permutations(question):
    # 66 and 60 rows are not rounded. Both shares have draws, of which 8192 give the larger standard error: four of the
    # difference are at most 4 * sqrt(0.25 / 8193 + 0.25 / 20000) = 0.026.
    rng = np.random.default_rng(0)
    if question == "compare":
        x, g = rng.standard_cauchy((66, 40)), np.repeat([0.0, 1.0], [6, 60])
        found = compare(x[:6], x[6:], kernel="linear", k=None, random_state=0).all_pvalues
    else:
        x, g = rng.standard_cauchy((60, 40)), rng.standard_cauchy(60)
        found = relate(x, g, kernel="linear", k=None, random_state=0).all_pvalues
    assert np.abs(found - permuted_share(x, g, rng)).max() < 0.026


def test_levels_and_two_values_against_outliers_have_the_pvalues_of_permutations():
    # The error that is allowed is derived above. With the equality kernel T is the sum of squares of the sums of the
    # response over the levels; with two values it is the squared covariance.
    rng = np.random.default_rng(0)
    y, levels = rng.standard_normal(60), np.arange(60) % 3
    y[:3] = [100.0, -90.0, 60.0]
    x = np.column_stack([rng.permutation(levels) for _ in range(40)])
    found = relate(x, y, kernel="linear", kinds={"*": "category"}, k=None, random_state=0).all_pvalues
    drawn = rng.permuted(np.tile(y - y.mean(), (20_000, 1)), axis=1)
    for own, pvalue in zip(x.T, found, strict=True):
        within = (own == np.arange(3)[:, None]).astype(float).T
        statistic = (((y - y.mean()) @ within) ** 2).sum()
        assert abs((((drawn @ within) ** 2).sum(axis=1) >= statistic * (1 - 1e-9)).mean() - pvalue) < 0.026
    values = (x == 0).astype(float)
    found = relate(values, y, kernel="linear", response="numeric", k=None, random_state=0).all_pvalues
    assert np.abs(found - permuted_share(values, y, rng)).max() < 0.026


@pytest.mark.parametrize("kernel", ["linear", "polynomial"])
def test_outliers_and_an_unbounded_kernel_keep_the_level(kernel):
    # Without permutations 0.64 of the p-values of the linear kernel were at most 0.05. Columns of one call share their
    # response and their permutations, so that the number of rejections of a call varies more than a binomial one.
    rejected = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_cauchy((300, 50)), rng.standard_cauchy(300)
        rejected.append(relate(x, y, kernel=kernel, k=None, random_state=seed).all_pvalues <= 0.05)
    shares = np.mean(rejected, axis=1)
    error = max(np.sqrt(0.05 * 0.95 / 500), shares.std(ddof=1) / np.sqrt(10))
    assert shares.mean() < 0.05 + 3.5 * error


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0], [1.0, 3.0]])
def test_the_only_outcome_of_a_column_that_is_selected_is_no_evidence(values):
    # 5 against 400 rows, few of which are not 0. If none of them is among the five the column has p = 1 and is not
    # selected, so that one there is what the selection tells already: the true p-value is the probability of as extreme
    # an outcome given that one. The normal column beside it makes the cut; with its mass the p-value was 0.01 / 0.5.
    rejected, intervals = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        x = np.column_stack([np.zeros(405), rng.normal(size=405)])
        x[[0, *range(5, 4 + len(values))], 0] = values
        result = compare(x[:5], x[5:], k=1, random_state=seed)
        if result.selected[0] == 0:
            rejected.append(result.pvalues[0] <= 0.05)
            intervals.append(result.intervals[0, 0] > 0)
    assert len(rejected) > 20 and rejected == intervals
    # Three and a half standard errors of a binomial share.
    assert np.mean(rejected) < 0.05 + 3.5 * np.sqrt(0.05 * 0.95 / len(rejected))


@pytest.mark.parametrize("labelled", [12, 20])
def test_rare_values_and_a_rare_label_keep_the_level(labelled):
    """Few labelled rows are expected to have one of the rare values, so that T is a sum of few terms."""
    rng = np.random.default_rng(8)
    X, label = np.zeros((5000, 500)), rng.permutation(5000) < labelled
    for own in X.T:
        own[rng.choice(5000, 100, replace=False)] = 1.0 + rng.poisson(2.0, size=100)
    pvalues = relate(X, label, random_state=0).all_pvalues
    assert (pvalues <= 0.05).sum() <= stats.binom.isf(1e-4, 500, 0.05)


def test_outcomes_of_a_column_that_are_drawn_count_where_it_is_selected():
    # Two rows of 200 have the column's rare value, and four have a response other than 0. If none of the two is among
    # the four the column has p = 1 and is not selected. Given that one is, which has probability 0.04, the p-value is
    # at most 0.1 in at most that share. With the normal mass above the cut it was at most 0.1 wherever the normal
    # column beside it had p > 0.4.
    rejected, rng = [], np.random.default_rng(0)
    y = np.zeros(200)
    y[:4] = [5.0, 6.0, 7.0, 8.0]
    for seed in range(30):
        while (rows := rng.choice(200, 2, replace=False)).min() >= 4:
            pass
        x = np.column_stack([np.isin(np.arange(200), rows), rng.normal(size=200)])
        result = relate(x, y, k=1, response="numeric", alpha=0.1, confidence_level=0.9, random_state=seed)
        if result.selected[0] == 0:
            rejected.append(result.pvalues[0] <= 0.1)
            assert (result.intervals[0, 0] > 0) == rejected[-1]
    # Three and a half standard errors of a binomial share.
    assert len(rejected) > 20 and np.mean(rejected) < 0.1 + 3.5 * np.sqrt(0.1 * 0.9 / len(rejected))


@pytest.mark.parametrize("kind", ["numeric", "category"])
def test_rare_values_against_a_response_with_few_values_are_exact(kind):
    """Over all pairs of rows that may have the rare value, a share p of the p-values is at most p."""
    response = np.repeat([0.0, 1.0, 5.0, 6.0], [30, 26, 2, 2])
    pairs = np.array(list(combinations(range(60), 2)))
    X = np.zeros((60, len(pairs)))
    X[pairs.T, np.arange(len(pairs))] = 1.0
    pvalues = relate(X, response, response=kind, correction=None, random_state=0).pvalues
    attained = np.unique(pvalues.round(12))
    assert 2 < len(attained) <= 10
    assert [np.mean(pvalues <= p + 1e-9) for p in attained] == pytest.approx(attained, abs=1e-9)


def test_no_pvalue_is_below_the_probability_of_the_table():
    """Two ones of 200 rows fall on the first two in one of 19,900 cases."""
    response = np.random.default_rng(2).normal(size=200)
    response[:4] += 8.0
    X = np.zeros((200, 1))
    X[:2] = 1.0
    assert relate(X, response, correction=None, random_state=0).pvalues[0] >= 1 / 19_900 - 1e-12


@pytest.mark.parametrize("values", [3, 13, 14, 15, 20])
@pytest.mark.parametrize(
    "cells", [(300, 3), (300, 4), (300, 5), (300, 2, 2), (300, 2, 2, 1), (40, 1, 1, 1, 1, 1), (60, 20)]
)
def test_few_tables_are_counted_for_any_numbers_of_values_and_rows(values: int, cells: tuple[int, ...]) -> None:
    # Columns have few tables where there are few ways to share out the rows of all values but the commonest among the
    # cells, or those of all cells but the commonest among the values. The commonest value has the other rows.
    counts = np.full((2, values), 1)
    counts[1] = 2
    counts[:, 0] = sum(cells) - counts[:, 1:].sum(axis=1)
    of_cells = math.prod(math.comb(cell + values - 1, values - 1) for cell in sorted(cells)[:-1])
    of_values = [math.prod(math.comb(c + len(cells) - 1, c) for c in sorted(own)[:-1]) for own in counts.tolist()]
    few = [min(of_cells, one) <= MOST_ENUMERATED for one in of_values]
    assert few_tables(counts.astype(float), np.array(cells)).tolist() == few
