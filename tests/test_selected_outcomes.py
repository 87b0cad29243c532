"""Selective p-values of columns with few outcomes: the probability of their outcomes beyond the cut is counted."""

from itertools import product

import numpy as np
import pytest
from scipy.special import comb, gammaln
from scipy.stats import hypergeom, multivariate_hypergeom, norm

from kernsift import compare, relate, screen


def none_of(marked, rows, drawn):
    """The probability that none of `marked` rows is among those drawn."""
    return comb(rows - marked, drawn, exact=True) / comb(rows, drawn, exact=True)


@pytest.mark.parametrize("values", ["equal", "different"])
@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_a_column_competes_with_one_that_cannot_be_less_related(values, order):
    # The second column is not 0 in four rows, none of which is among the five: p = 1. The first is selected where any
    # of its fifteen rows is among the five, and that one is tells nothing beyond the selection, although nearly all of
    # a normal score is above that of p = 1. With different values outcomes are drawn, a share of 0.17 of 8,192 with one
    # of the rows: four standard errors.
    X = np.zeros((405, 2))
    X[[0, *range(5, 19)], 0] = 1.0 if values == "equal" else np.random.default_rng(0).permutation(15) + 20.0
    X[[50, 60, 70, 80], 1] = 1.0
    result = compare(X[:5, order], X[5:, order], k=1)
    assert result.selected[0] == order.index(0)
    expected = result.unconditional_pvalues[0] / (1.0 - none_of(15, 405, 5))
    error = 1e-6 if values == "equal" else 4 * np.sqrt(0.83 / 0.17 / 8192)
    assert result.pvalues[0] == pytest.approx(expected, rel=error)


def test_a_common_value_of_two_is_counted_up_to_the_cut():
    # 100 v 100 rows, and columns with 100 ones of 200 each, which are uncorrelated: the p-value is the probability of
    # as uneven a column among those that are more uneven than the runner-up, whose own one does not count.
    half = np.zeros((100, 2))
    half[:58, 0] = 1.0
    half[[*range(32), *range(58, 81)], 1] = 1.0
    other = np.zeros((100, 2))
    other[:42, 0] = 1.0
    other[[*range(18), *range(42, 69)], 1] = 1.0
    assert np.corrcoef(np.vstack([half, other]).T)[0, 1] == pytest.approx(0.0, abs=1e-12)
    result = compare(half, other, k=1)
    law = hypergeom(200, 100, 100)
    assert result.selected[0] == 0
    assert result.pvalues[0] == pytest.approx(law.sf(57) / law.sf(55), rel=1e-6)


@pytest.mark.parametrize("response", ["class", "numeric"])
def test_drawn_outcomes_are_counted_up_to_the_cut(response):
    # As the first test, with a response of which five rows of 405 have different values: outcomes are drawn.
    X = np.zeros((405, 2))
    X[[0, *range(5, 19)], 0] = np.random.default_rng(1).permutation(15) + 20.0
    X[[50, 60, 70, 80], 1] = 1.0
    y = np.zeros(405)
    y[:5] = [1.0, 1.0, 2.0, 2.0, 2.0] if response == "class" else [5.0, 6.0, 7.0, 8.0, 9.0]
    settings = {"k": 1, "response": "category" if response == "class" else "numeric"}
    result = relate(X, y, **settings, random_state=0)
    assert result.selected[0] == 0
    expected = result.unconditional_pvalues[0] / (1.0 - none_of(15, 405, 5))
    assert result.pvalues[0] == pytest.approx(expected, rel=4 * np.sqrt(0.83 / 0.17 / 8192))


def test_outcomes_within_strata_are_counted_up_to_the_cut():
    # Two strata of 5 v 200 rows. The first column has 15 ones in each stratum, three of them among the ten of the first
    # sample, where one is nearest to the mean. The second column has p = 1, so that any other number is selected.
    X, sample, stratum = np.zeros((410, 2)), np.tile(np.repeat([0, 1], [5, 200]), 2), np.repeat([0, 1], 205)
    X[[0, 1, *range(5, 18), 205, *range(210, 224)], 0] = 1.0
    X[[50, 60, 260, 270], 1] = 1.0
    result = relate(X, sample, response="category", strata=stratum, k=1, random_state=0)
    one = hypergeom(205, 15, 5).pmf(np.arange(6))
    both = np.convolve(one, one)
    assert result.selected[0] == 0
    assert result.unconditional_pvalues[0] == pytest.approx(both[3:].sum(), rel=1e-6)
    assert result.pvalues[0] == pytest.approx(both[3:].sum() / (1.0 - both[1]), rel=1e-6)


def test_candidates_of_a_screen_with_few_outcomes():
    # One of four nonzero rows is in the second candidate, which has p = 0.18. The other one, without any, has p = 1:
    # the second is selected exactly if it has a nonzero row, so that its selective p-value is 1.
    reference = np.zeros((100, 1))
    reference[:3] = 1.0
    candidates = {"none": np.zeros((5, 1)), "one": np.array([[1.0], [0.0], [0.0], [0.0], [0.0]])}
    result = screen(reference, candidates, k=1)
    assert result.unconditional_pvalues[0] == pytest.approx(1.0 - none_of(4, 105, 5))
    assert result.pvalues[0] == pytest.approx(1.0)


def every_table(counts, cells):
    """Columns with all tables of values by cells with these margins, the cells, and the probability of each column."""
    rows = [
        [row for row in product(*(range(min(cell, count) + 1) for cell in cells)) if sum(row) == count]
        for count in counts[1:]
    ]
    tables = np.array(list(product(*rows)))
    first = np.array(cells) - tables.sum(axis=1)
    tables = np.concatenate([first[:, None], tables], axis=1)[(first >= 0).all(axis=1)]
    chance, left = np.ones(len(tables)), np.tile(cells, (len(tables), 1))
    for value, count in enumerate(counts):
        chance *= multivariate_hypergeom.pmf(tables[:, value], left, count)
        left = left - tables[:, value]
    X = np.array([np.concatenate([np.repeat(np.arange(len(counts)), cell) for cell in table.T]) for table in tables])
    return X.T.astype(float), np.repeat(np.arange(len(cells)), cells), chance


def tails(pvalues, chance):
    """The probability of a p-value at most as large as each of these."""
    return np.array([chance[pvalues <= p * (1 + 1e-9)].sum() for p in pvalues])


@pytest.mark.parametrize(
    ("counts", "cells"),
    [((30, 30), (20, 20, 20)), ((27, 26), (3, 10, 40)), ((54, 4, 2), (20, 20, 20)), ((8, 8, 8), (8, 8, 8))],
)
def test_columns_with_few_tables_against_classes_are_exact(counts, cells):
    X, y, chance = every_table(counts, cells)
    assert chance.sum() == pytest.approx(1.0)
    pvalues = relate(X, y, response="category", k=None, random_state=0).all_pvalues
    small = pvalues < 0.15
    assert pvalues[small] == pytest.approx(tails(pvalues, chance)[small], rel=1e-6)


@pytest.mark.parametrize(
    ("counts", "cells"),
    [((24, 23, 23), (10, 60)), ((10, 1, 1, 1, 1, 1, 1), (8, 8)), ((330, 1, 1, 1, 1), (4, 30, 300))],
)
def test_outcomes_just_above_a_threshold_count(counts, cells):
    # The selective p-value is the probability of as small a p-value over that of a selected one, however near to the
    # threshold the largest selected one is.
    X, y, chance = every_table(counts, cells)
    result = relate(X, y, response="category", k=None, threshold=1.0, random_state=0)
    selected = np.asarray(result.selected)
    share = chance[selected]
    expected = tails(result.unconditional_pvalues, share) / share.sum()
    assert result.pvalues == pytest.approx(expected, rel=1e-6)


def test_tails_that_underflow_are_counted_up_to_the_cut():
    # 4000 v 4000 rows and columns with 4000 ones, of which 3900, 3500 or 2100 are in the first sample: all outcomes
    # beyond a score of 45 have probabilities below 1e-308.
    ones = [3900, 3500, 2100]
    X = np.array([np.repeat([1.0, 0.0, 1.0, 0.0], [some, 4000 - some, 4000 - some, some]) for some in ones]).T
    result = compare(X[:4000], X[4000:], k=None, threshold=45.0)
    # Outcomes with 2000 + m and 2000 - m ones in the first sample are equally probable and deviate as much.
    tails = np.log(2.0) + np.logaddexp.accumulate(hypergeom(8000, 4000, 4000).logpmf(np.arange(4000, 2000, -1)))
    beyond = tails[tails <= norm.logsf(45.0)].max()
    assert list(result.selected) == [0, 1]
    assert result.log_pvalues == pytest.approx([tails[4000 - some] - beyond for some in ones[:2]], rel=1e-6)


def test_tables_whose_probabilities_underflow():
    # The values are two of three classes, and the columns as related to them as they can be.
    y = np.repeat([0, 1, 2], [100_000, 100, 90])
    result = relate(np.array([y == 1, y == 2]).T.astype(float), y, response="category", k=None)
    log_choices = [gammaln(100_191) - gammaln(some + 1) - gammaln(100_191 - some) for some in (100, 90)]
    assert norm.logsf(result.scores) == pytest.approx(-np.array(log_choices), rel=1e-6)
