"""Strata, pairs and units in `compare` and `relate`: exact p-values, levels, refusals, every kind of input."""

from __future__ import annotations

import json
import os
import pickle
import warnings
from functools import partial
from itertools import combinations, permutations, product
from math import factorial, prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from scipy.stats import binom, hypergeom, norm, rankdata
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from kernsift import CalibrationWarning, InputError, SelectHSIC, SelectMMD, compare, relate, screen
from kernsift.cli import main
from kernsift.data.inputs import as_table
from kernsift.data.rows.aligned_tables import AlignedSparseTable, aligned
from kernsift.data.rows.exchangeability import Exchangeability, _association
from kernsift.estimators.feature_blocks import blocks_of
from kernsift.estimators.null_laws.discreteness import NULL_TAIL
from kernsift.estimators.restricted import estimator as restricted
from kernsift.estimators.restricted import stratified_counts
from kernsift.estimators.restricted.folded_covariance import ResponseMoments
from kernsift.estimators.restricted.strata import Strata
from kernsift.estimators.restricted.stratified_law import ThirdMoments
from kernsift.estimators.restricted.unit_responses import UnitResponse
from kernsift.estimators.restricted.unit_views import _shape
from kernsift.kernels.fitted import fit_kernels

# 1 - 1e-5 quantiles of how many of 100 independent null features are significant at level 0.05.
MOST, FEWEST = binom.isf(1e-5, 100, 0.05), binom.ppf(1e-5, 100, 0.05)
SLEEP = ([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0], [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
SHOES = (
    [13.2, 8.2, 10.9, 14.3, 10.7, 6.6, 9.5, 10.8, 8.8, 13.3],
    [14.0, 8.8, 11.2, 14.2, 11.8, 6.4, 9.8, 11.3, 9.3, 13.6],
)


def column(values: Any) -> np.ndarray:
    return np.asarray(values, dtype=float)[:, None]


# Values from R


@pytest.mark.parametrize(("data", "pvalue"), [(SLEEP, 0.00390625), (SHOES, 0.013671875)])
def test_few_pairs_have_the_exact_p_value_of_all_sign_flips(
    data: tuple[list[float], list[float]], pvalue: float
) -> None:
    """R: oneway_test(extra ~ group | ID, data = sleep, distribution = "exact"), and likewise for MASS::shoes.

    With one linear kernel the p-values are those of coin; several kernels cost less than a factor of 1.5 here.
    """
    X, Y = (column(part) for part in data)
    assert compare(X, Y, paired=True, kernel="linear").pvalues[0] == pytest.approx(pvalue)
    assert compare(X, Y, paired=True).pvalues[0] <= 1.5 * pvalue


def test_two_values_in_pairs_are_mcnemars_exact_test() -> None:
    """R: mh_test(matrix(c(794, 86, 150, 570), 2, byrow = TRUE), distribution = "exact"), p = 3.716e-05 (coin)."""
    first = np.repeat([1, 1, 0, 0], [794, 86, 150, 570])
    second = np.repeat([1, 0, 1, 0], [794, 86, 150, 570])
    assert compare(column(first), column(second), paired=True).pvalues[0] == pytest.approx(3.71593613957e-05, rel=1e-6)


def test_few_relabellings_within_strata_are_enumerated() -> None:
    """R: oneway_test(x ~ g | b, distribution = "exact"), p = 0.55, Z = -0.615734780388 (coin)."""
    x = np.array([2.1, -0.3, 1.7, 0.4, 3.2, -1.1, 0.9, 2.6, -0.8, 1.3, 0.2, 4.1, -2.0, 0.7])
    g = np.array([1, 2, 1, 2, 2, 1, 2, 1, 2, 1, 1, 2, 1, 2])
    b = np.array([1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4])
    frame = pd.DataFrame({"x": x, "g": g, "b": b})
    assert compare(frame, by="g", strata="b", kernel="linear").pvalues[0] == pytest.approx(0.55)
    assert relate(frame, "g", strata="b", kernel="linear").pvalues[0] == pytest.approx(0.55)


def test_pairs_with_ties_have_the_exact_p_value() -> None:
    """R: oneway_test(v ~ t | id, distribution = "exact"), p = 0.07763671875 (coin).

    Of 16 pairs 12 differ. The law of T over their sign flips is a lattice, whose steps no smooth law follows.
    """
    first = np.arange(1, 17) % 5
    second = first + np.array([0, 0, 1, 1, -1, 2, 2, 0, 3, -2, 1, 0, 2, 1, -1, 4])
    found = compare(column(first), column(second), paired=True, kernel="linear", random_state=0)
    assert found.pvalues[0] == pytest.approx(0.07763671875)


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("strata", [6, 16, 60, 150])
def test_differences_of_decimal_numbers_tie_as_those_of_whole_ones(strata: int, size: int, kernel: str) -> None:
    """Differences such as 0.3 - 0.2 and 0.2 - 0.1 are equal but for rounding errors."""
    rng = np.random.default_rng(strata)
    stratum = np.repeat(np.arange(strata), size)
    whole = rng.integers(0, 30, (strata, 3)).repeat(size, axis=0) + rng.integers(0, 8, (strata * size, 3)).astype(float)
    whole[rng.random(whole.shape) < 0.1] = np.nan
    label = rng.permuted(np.tile(np.arange(size), (strata, 1)), axis=1).ravel() > 0
    whole += label[:, None]

    def pvalues(values: np.ndarray) -> np.ndarray:
        return relate(values, label, strata=stratum, kernel=kernel, random_state=0).all_pvalues

    for values in (whole / 10, whole / 100 + 7.3, 3.7 * whole):
        np.testing.assert_allclose(pvalues(values), pvalues(whole), rtol=1e-6)


def test_columns_that_vary_in_few_strata_have_the_exact_p_value() -> None:
    """R: oneway_test(x ~ g | b, distribution = "exact"), p = 0.024 (coin).

    b <- factor(rep(1:12, each = 5)); i <- 1:60; g <- factor(1 + ((i + i %/% 5) %% 5 < 2))
    x <- ifelse(as.integer(b) %in% c(2, 7, 11), (3 * i + i^2) %% 4 + 2 * (g == 2), as.integer(b) %% 3)
    """
    i, b = np.arange(1, 61), np.repeat(np.arange(1, 13), 5)
    g = ((i + i // 5) % 5 < 2).astype(int)
    x = np.where(np.isin(b, [2, 7, 11]), (3 * i + i**2) % 4 + 2 * g, b % 3)
    found = relate(column(x), g, strata=b, kernel="linear", random_state=0)
    assert found.pvalues[0] == pytest.approx(0.024)


def test_ties_within_strata() -> None:
    """R: statistic(oneway_test(x ~ g | b)) and statistic(independence_test(x + 0.6 * y ~ y | b)) (coin).

    i <- 1:22; b <- factor(rep(1:4, c(7, 6, 5, 4)))
    g <- factor(c(1,1,1,2,2,2,2, 1,2,1,2,1,2, 2,2,1,1,1, 1,2,2,2)); y <- (5 * i + i^2) %% 4 + as.integer(b)
    x <- (7 * i^2 + 3 * i) %% 5 + 2 * (as.integer(b) - 1) + (g == 2) * (i %% 3 > 0)

    A million permutations of y within blocks give p = 0.2421.
    """
    i, b = np.arange(1, 23), np.repeat([1, 2, 3, 4], [7, 6, 5, 4])
    g = np.array([1, 1, 1, 2, 2, 2, 2, 1, 2, 1, 2, 1, 2, 2, 2, 1, 1, 1, 1, 2, 2, 2])
    x, y = (7 * i**2 + 3 * i) % 5 + 2 * (b - 1) + (g == 2) * (i % 3 > 0), (5 * i + i**2) % 4 + b
    assert standardised(x, g, b) == pytest.approx(0.28906839461, rel=1e-9)
    assert standardised(x + 0.6 * y, y, b) == pytest.approx(1.19692706578, rel=1e-9)
    found = relate(column(x + 0.6 * y), y, strata=b, kernel="linear", response="numeric", random_state=0)
    assert found.pvalues[0] == pytest.approx(0.2421, rel=0.03)


def test_several_classes_within_strata_have_the_exact_p_value() -> None:
    """R: the share of all 5,184 orders of v within b in which sum(tapply(c, k, sum)^2) is at least that of the data.

    c <- v - ave(v, b)
    """
    k, b = [1, 2, 3, 1, 1, 2, 2, 3, 3, 1, 2, 3, 3], np.repeat([1, 2, 3, 4], [3, 3, 3, 4])
    v = column([1, 2, 2, 0, 1, 3, 2, 2, 4, 5, 1, 3, 6])
    found = relate(v, k, strata=b, kernel="linear", response="category", random_state=0)
    assert found.pvalues[0] == pytest.approx(0.716049382716)


def test_two_values_within_strata_have_the_exact_p_value() -> None:
    """R: the rabbits of ?mantelhaen.test, oneway_test(x ~ delay | level, distribution = "exact") (coin).

    mantelhaen.test(Rabbits, exact = TRUE) has the same p-value.
    """
    cells = [(0, 0, 6, 5), (3, 0, 3, 6), (6, 2, 0, 4), (5, 6, 1, 0), (2, 5, 0, 0)]
    delay = np.concatenate([np.repeat([0, 1, 0, 1], count) for count in cells])
    cured = np.concatenate([np.repeat([0, 0, 1, 1], count) for count in cells])
    level = np.repeat(np.arange(5), [sum(count) for count in cells])
    found = relate(column(cured), delay, response="category", strata=level, random_state=0)
    assert found.pvalues[0] == pytest.approx(0.0399449035813, rel=1e-9)


@pytest.mark.parametrize("rows", [1, 2, 6])
def test_a_value_of_one_unit_is_no_evidence(rows: int) -> None:
    """With equal numbers of units in all classes T is the same for every labelling, of a column and of a group."""
    unit = np.repeat(np.arange(24), rows)
    table = pd.DataFrame({"a": unit == 5, "b": unit == 5, "c": unit == 5}, dtype=float)
    for classes in (2, 3, 4):
        found = relate(table, unit % classes, unit=unit, groups={"two": ["b", "c"]}, response="category")
        assert found.all_pvalues == pytest.approx(1.0)


@pytest.mark.parametrize("rows", [1, 2, 6])
def test_units_with_two_values_have_the_exact_p_value(rows: int) -> None:
    """All rows of a unit have the same of two values: the p-value is the hypergeometric tail."""
    for n, others in ((40, range(5)), (40, range(0, 12, 3)), (60, range(20)), (60, range(19, 41))):
        unit, units = np.repeat(np.arange(n), rows), len(others)
        table = column(np.isin(unit, list(others)))
        for label in (unit % 2, unit < 10):
            seen, labelled = (label[::rows] * table[::rows, 0]).sum(), label[::rows].sum()
            law = hypergeom(n, units, labelled)
            counts = np.arange(units + 1)
            pvalue = law.pmf(counts)[np.abs(counts - law.mean()) >= abs(seen - law.mean()) - 1e-9].sum()
            found = relate(table, label, unit=unit, random_state=0).all_pvalues[0]
            assert found == pytest.approx(pvalue, rel=1e-9)


@pytest.mark.parametrize(("units", "rows"), [(30, 3), (30, 20), (80, 3)])
def test_rows_with_two_values_in_few_units_have_the_exact_p_value(units: int, rows: int) -> None:
    """T is the squared deviation of a sum of numbers of rows, whose law over all labellings follows by convolution."""
    rng = np.random.default_rng(rows)
    unit, features, half = np.repeat(np.arange(units), rows), 40, units // 2
    X = (rng.random((len(unit), features)) < 0.4).astype(float)
    found = relate(X, unit >= half, unit=unit, random_state=0).all_pvalues
    expected = np.empty(features)
    for place, sums in enumerate(X.reshape(units, rows, -1).sum(axis=1).T.astype(int)):
        ways = np.zeros((half + 1, sums.sum() + 1))  # how many choices of so many units have this sum
        ways[0, 0] = 1.0
        for size in sums:
            ways[1:, size:] += ways[:-1, : ways.shape[1] - size].copy()
        deviation = np.abs(np.arange(ways.shape[1]) - sums.mean() * half)
        expected[place] = ways[half, deviation >= deviation[sums[half:].sum()] - 1e-9].sum() / ways[half].sum()
    error = np.abs(found - expected) / np.sqrt(expected * (1.0 - expected) / 8193 + 1e-18)
    # Of more than 40 units only small p-values are those of relabellings.
    assert (error[(expected < 0.15) | (units <= 40)] <= 4.5).all()


@pytest.mark.parametrize("design", ["strata", "paired", "unit"])
def test_groups_of_rare_values_have_the_pvalues_of_permutations(design: str) -> None:
    """By 20,000 permutations, with T the sum over distinct rows of the squared sum of centred labels."""
    rng, groups, rows = np.random.default_rng(5), 25, np.arange(60)
    block = {"strata": rows // 20, "paired": rows // 2, "unit": np.zeros(60, dtype=int)}[design]
    X, label = (rng.random((60, 2 * groups)) < 0.06).astype(float), rows % 2
    twice = np.repeat(rows, 2 if design == "unit" else 1)
    names = [f"x{place}" for place in range(2 * groups)]
    pairs = {f"g{place}": names[2 * place : 2 * place + 2] for place in range(groups)}
    given: dict[str, Any] = {design: rows[twice] if design == "unit" else block, "groups": pairs, "kernel": "delta"}
    found = relate(pd.DataFrame(X[twice], columns=names), label[twice], random_state=0, **given).all_pvalues
    order = np.vstack([rows, np.argsort(block + rng.random((20_000, 60)), axis=1)])
    shares = []
    for place in range(groups):
        codes = X[:, 2 * place] + 2 * X[:, 2 * place + 1]
        T = (((label - 0.5)[order] @ (codes[:, None] == np.unique(codes))) ** 2).sum(axis=1)
        shares.append((T[0] - 1e-9 <= T).mean())
    error = np.sqrt(np.multiply(shares, np.subtract(1.0, shares)) * (1 / 8193 + 1 / 20_000) + 1e-9)
    assert np.abs((found - shares) / error).max() < 4.5


UNIT_MEANS = np.array([2.3, 1.1, 3.8, 2.9, 0.7, 3.3, 4.1, 2.6, 5.0, 3.9, 4.4])


@pytest.mark.parametrize(("strata", "pvalue"), [(None, 0.030303030303), ([1, 1, 1, 2, 2, 1, 1, 2, 2, 2, 2], 0.14 / 3)])
def test_units_with_a_linear_kernel_are_tested_by_their_means(strata: list[int] | None, pvalue: float) -> None:
    """R: oneway_test(means ~ g, distribution = "exact"), and oneway_test(means ~ g | b, ...) (coin)."""
    unit, noise = np.repeat(np.arange(11), 3), np.tile([-0.5, 0.2, 0.3], 11)
    more = {} if strata is None else {"strata": np.array(strata)[unit]}
    found = relate(column(UNIT_MEANS[unit] + noise), unit >= 5, unit=unit, kernel="linear", random_state=0, **more)
    assert found.pvalues[0] == pytest.approx(pvalue, rel=1e-9)


def test_units_agree_with_mixed_models() -> None:
    """R: the p-values of g in lmer(x ~ g + (1 | unit)) (lmerTest), which are those of limma here.

    i <- 1:120; unit <- rep(1:24, each = 5); g <- as.numeric(unit > 12); design <- model.matrix(~g)
    x <- sapply(1:4, function(j) sin(1.7 * j * i) + 1.5 * sin(2.3 * j * unit) + c(0, 0.6, 1.2, 1.8)[j] * g)
    apply(x, 2, function(y) summary(lmer(y ~ g + (1 | unit)))$coefficients["g", "Pr(>|t|)"])
    apply(x, 2, function(y) {
      r <- duplicateCorrelation(rbind(y), design, block = unit)$consensus.correlation
      fit <- lmFit(rbind(y), design, block = unit, correlation = r)
      2 * pt(-abs(fit$coefficients[, 2] / (fit$stdev.unscaled[, 2] * fit$sigma)), 22) })
    apply(x, 2, function(y) t.test(y ~ g, var.equal = TRUE)$p.value)  # rows as if independent

    Permutations and the t-distribution of 24 means differ by about 0.1 in the score.
    """
    i, unit = np.arange(1, 121), np.repeat(np.arange(1, 25), 5)
    g = (unit > 12).astype(float)
    shifts = enumerate((0.0, 0.6, 1.2, 1.8), 1)
    x = np.column_stack([np.sin(1.7 * j * i) + 1.5 * np.sin(2.3 * j * unit) + shift * g for j, shift in shifts])
    found = relate(x, g, unit=unit, kernel="linear", random_state=0).all_pvalues
    expected = np.array([0.636277751086, 0.137938732157, 0.011563385006, 0.001358566007])
    np.testing.assert_allclose(norm.isf(found / 2), norm.isf(expected / 2), atol=0.15)
    alone = relate(x, g, kernel="linear", random_state=0).all_pvalues
    np.testing.assert_allclose(np.log(alone), np.log([3.44891e-01, 3.92562e-03, 4.70669e-07, 1.30769e-12]), rtol=0.2)


@pytest.mark.parametrize(("classes", "pvalue"), [([0, 0, 1], 1 / 42), ([0, 1, 2], 13 / 140)])
def test_units_with_a_distance_kernel_have_the_energy_statistic(classes: list[int], pvalue: float) -> None:
    """R: the share of relabellings whose eqdist.e (energy) is at least that of the data.

    i <- 1:36; unit <- rep(1:9, each = 4)
    x <- sin(1.7 * i) + sin(2.3 * unit) / 2 + (unit > 6) * (1 + 2 * cos(3.1 * i)); d <- as.matrix(dist(x))
    m <- outer(1:9, 1:9, Vectorize(function(u, v) mean(d[unit == u, unit == v])))
    m <- m - outer(diag(m), diag(m), "+") / 2
    e <- function(order, sizes) eqdist.e(as.dist(m[order, order]), sizes, distance = TRUE)
    two <- apply(combn(9, 3), 2, function(s) e(c(setdiff(1:9, s), s), c(6, 3)))
    three <- apply(combn(9, 3), 2, function(s) {
      r <- setdiff(1:9, s)
      apply(combn(6, 3), 2, function(q) e(c(s, r[q], r[-q]), c(3, 3, 3))) })
    c(mean(two >= two[84] - 1e-9), mean(three >= three[1, 1] - 1e-9))
    """
    i, unit = np.arange(1, 37), np.repeat(np.arange(1, 10), 4)
    x = np.sin(1.7 * i) + np.sin(2.3 * unit) / 2 + (unit > 6) * (1 + 2 * np.cos(3.1 * i))
    y = np.repeat(classes, 12)
    found = relate(column(x), y, unit=unit, response="category", kernel="triangle", bandwidth=10.0, random_state=0)
    assert found.pvalues[0] == pytest.approx(pvalue)


def test_strata_agree_with_fixed_effects() -> None:
    """R: the p-values of h in a linear model with a level for each site (limma).

    i <- 1:120; site <- (i - 1) %% 4; h <- as.numeric(sin(0.37 * i) + site / 3 > 0.5)
    z <- sapply(1:4, function(j) sin(1.7 * j * i) + 3 * site + c(0, 0.1, 0.2, 0.4)[j] * h)
    fit <- lmFit(t(z), model.matrix(~ factor(site) + h))
    2 * pt(-abs(fit$coefficients[, "h"] / (fit$stdev.unscaled[, "h"] * fit$sigma)), fit$df.residual)
    """
    i = np.arange(1, 121)
    site = (i - 1) % 4
    h = (np.sin(0.37 * i) + site / 3 > 0.5).astype(float)
    shifts = enumerate((0.0, 0.1, 0.2, 0.4), 1)
    z = np.column_stack([np.sin(1.7 * j * i) + 3 * site + shift * h for j, shift in shifts])
    found = relate(z, h, strata=site, kernel="linear", random_state=0).all_pvalues
    expected = np.array([0.67359046219, 0.97795682123, 0.19275744499, 0.01216708352])
    np.testing.assert_allclose(found, expected, rtol=0.1)
    assert (relate(z, h, kernel="linear", random_state=0).all_pvalues < 0.01).all()


def test_a_numeric_response_within_strata() -> None:
    """R: independence_test(Ozone ~ Wind | Month, data = a, distribution = approximate(nresample = 1e6)) (coin).

    a <- na.omit(airquality[, c("Ozone", "Wind", "Month")]); a <- a[a$Month %in% c(6, 9), ]
    a <- a[a$Month == 6 | seq_len(nrow(a)) %% 2 == 0, ]; Z = -1.61767113851, p = 0.1086 (99 percent: 0.1078 to 0.1094)
    """
    ozone = np.array([29, 71, 39, 23, 21, 37, 20, 12, 13, 96, 73, 47, 20, 21, 44, 28, 13, 18, 24, 13, 36, 14, 14, 20])
    wind = np.array(
        [
            *(9.7, 13.8, 11.5, 8, 14.9, 20.7, 9.2, 11.5, 10.3, 6.9, 2.8, 7.4),
            *(10.9, 10.9, 14.9, 6.3, 11.5, 13.8, 10.3, 12.6, 10.3, 16.6, 14.3, 11.5),
        ]
    )
    month = np.repeat([6, 9], [9, 15])
    assert abs(standardised(wind, ozone, month)) == pytest.approx(1.61767113851, rel=1e-9)
    found = relate(column(wind), ozone, response="numeric", strata=month, kernel="linear", random_state=0)
    assert found.pvalues[0] == pytest.approx(0.1086, rel=0.03)


def standardised(x: np.ndarray, y: np.ndarray, strata: np.ndarray) -> float:
    """Z of the linear statistic, from T and its mean."""
    own = Strata.of(strata)
    factor, response = (own.centred(part[own.order][None]) for part in (x.astype(float), y.astype(float)))
    moments = ResponseMoments.of(response, response, own)
    variance = ThirdMoments.of_features(factor[None], own, moments).folded[0, 0, 0, 0] * moments.basis[0, 0, 0]
    return float((factor[0] @ response[0]) / np.sqrt(variance))


ROUNDING_TIMES = """
5.40 5.50 5.55 5.85 5.70 5.75 5.20 5.60 5.50 5.55 5.50 5.40 5.90 5.85 5.70 5.45 5.55 5.60 5.40 5.40 5.35 5.45 5.50 5.35
5.25 5.15 5.00 5.85 5.80 5.70 5.25 5.20 5.10 5.65 5.55 5.45 5.60 5.35 5.45 5.05 5.00 4.95 5.50 5.50 5.40 5.45 5.55 5.50
5.55 5.55 5.35 5.45 5.50 5.55 5.50 5.45 5.25 5.65 5.60 5.40 5.70 5.65 5.55 6.30 6.30 6.25"""


@pytest.mark.parametrize(("ranks", "pvalue"), [(True, 0.00316), (False, 0.004266)])
def test_ranks_within_blocks_are_friedmans_test(ranks: bool, pvalue: float) -> None:
    """R: the rounding times of ?friedman.test, 22 players and 3 methods, a million permutations within players (coin).

    friedman_test(t ~ m | b, data = f, distribution = approximate(nresample = 1e6))
    independence_test(t ~ m | b, data = f, teststat = "quad", distribution = approximate(nresample = 1e6))
    """
    times = np.array(ROUNDING_TIMES.split(), dtype=float).reshape(22, 3)
    values = rankdata(times, axis=1) if ranks else times
    method, player = np.tile(["out", "narrow", "wide"], 22), np.repeat(np.arange(22), 3)
    found = relate(values.reshape(-1, 1), method, strata=player, kernel="linear", random_state=0)
    assert found.pvalues[0] == pytest.approx(pvalue, rel=0.05)


def test_job_satisfaction_within_strata() -> None:
    """R: lbl_test(jobsatisfaction, scores = list(Job.Satisfaction = c(1,3,4,5), Income = c(3,10,20,35))) (coin).

    Z = 2.48118953163, asymptotic p = 0.013094472647.
    """
    female = [[1, 2, 0, 0], [3, 3, 1, 2], [11, 17, 8, 4], [2, 3, 5, 2]]
    male = [[1, 0, 0, 0], [1, 3, 0, 1], [2, 5, 7, 9], [1, 1, 3, 6]]
    cells = [
        (satisfaction, income, gender)
        for gender, table in enumerate((female, male))
        for satisfaction, row in zip((1, 3, 4, 5), table, strict=True)
        for income, count in zip((3, 10, 20, 35), row, strict=True)
        for _ in range(count)
    ]
    satisfaction, income, gender = np.array(cells).T
    assert standardised(income, satisfaction, gender) == pytest.approx(2.48118953163, rel=1e-9)
    result = relate(column(income), satisfaction, response="numeric", strata=gender, kernel="linear")
    assert result.pvalues[0] == pytest.approx(0.013094472647, rel=0.1)


def test_log_rank_scores_within_strata() -> None:
    """R: logrank_test(Surv(time, event) ~ group | histology, data = glioma), Z = -3.67042073044 (coin).

    The scores are logrank_trafo(Surv(time, event)) of all rows, 20 of GBM and then 17 of grade III. A million
    permutations within strata give p = 7.8e-05 (99 percent: 5.7e-05 to 1.04e-04).
    """
    scores = np.array(
        [
            *(
                0.885373392249,
                -0.453410454623,
                -0.584009927614,
                0.885373392249,
                1.01037339225,
                -0.30261680383,
                -0.584009927614,
            ),
            *(
                -0.114626607751,
                -0.830909480909,
                -0.830909480909,
                -0.76531808306,
                -0.730835324439,
                -0.542343260947,
                -0.972972972973,
            ),
            *(
                -0.830909480909,
                -0.830909480909,
                -0.945195195195,
                -0.584009927614,
                -0.695121038725,
                -0.358172359385,
                0.0103733922489,
            ),
            *(
                0.641827640615,
                1.01037339225,
                1.01037339225,
                1.01037339225,
                -0.358172359385,
                0.885373392249,
                1.01037339225,
            ),
            *(
                1.01037339225,
                1.01037339225,
                0.885373392249,
                -0.181293274418,
                -0.243793274418,
                -0.798651416393,
                -0.498865000078,
            ),
            *(
                0.885373392249,
                0.885373392249,
            ),
        ]
    )
    group = np.repeat([2, 1, 2, 1], [8, 12, 11, 6])
    histology = np.repeat([0, 1], [20, 17])
    assert abs(standardised(scores, group, histology)) == pytest.approx(3.67042073044, rel=1e-8)
    pvalue = relate(column(scores), group, response="category", strata=histology, kernel="linear").pvalues[0]
    assert 4e-5 < pvalue < 1.5e-4


# Exactness----


def holds_exactly(found: np.ndarray) -> None:
    """Over all relabellings of one data set a permutation test's P(p <= t) is t for every p-value t it gives."""
    for t in np.unique(found.round(9)):
        assert (found <= t + 1e-8).mean() == pytest.approx(t, abs=1e-8)


def test_several_kernels_are_exact_over_all_sign_flips() -> None:
    rng = np.random.default_rng(0)
    pairs = rng.normal(size=(2, 6, 1)) + rng.normal(size=(6, 1))
    swap = np.array(list(product([False, True], repeat=6))).T  # a feature for each flip
    X, Y = np.where(swap, pairs[1], pairs[0]), np.where(swap, pairs[0], pairs[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        holds_exactly(compare(X, Y, paired=True, random_state=0).all_pvalues)


def test_several_kernels_are_exact_over_all_labels_of_units() -> None:
    rng = np.random.default_rng(1)
    rows, units = rng.normal(size=(21, 1)), np.repeat(np.arange(7), 3)
    orders = [[*chosen, *np.setdiff1d(np.arange(7), chosen)] for chosen in combinations(range(7), 3)]
    # A feature for each choice of the units that are labelled, whose rows come first.
    X = np.column_stack([rows.reshape(7, 3)[order].ravel() for order in orders])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        holds_exactly(relate(X, units < 3, unit=units, random_state=0).all_pvalues)


@pytest.mark.parametrize("numeric", [False, True])
def test_few_relabellings_have_the_p_value_of_all_permutations(numeric: bool) -> None:
    """With a linear kernel T is the squared sum of products of unit means and responses, each less those of strata."""
    rng, designs = np.random.default_rng(4), 0
    while designs < 12:
        sizes = rng.integers(1, 5, size=rng.integers(2, 4))
        stratum = np.repeat(np.arange(len(sizes)), sizes)
        answers = rng.normal(size=len(stratum)).round(1) if numeric else rng.integers(0, 2, size=len(stratum)) * 1.0
        varies = any(len(np.unique(answers[stratum == one])) > 1 for one in range(len(sizes)))
        if not varies or prod(map(factorial, sizes.tolist())) > 8192:
            continue
        designs += 1
        unit = np.repeat(np.arange(len(stratum)), rng.integers(1, 4))
        X = rng.normal(size=(len(unit), 2)).round(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            kind = "numeric" if numeric else "category"
            design = {"unit": unit, "strata": stratum[unit], "kernel": "linear", "random_state": 0}
            found = relate(X, answers[unit], response=kind, **design).all_pvalues
        means = np.array([X[unit == one].mean(axis=0) for one in range(len(stratum))])
        means -= np.array([means[stratum == one].mean(axis=0) for one in stratum])
        orders = product(*(permutations(np.flatnonzero(stratum == one)) for one in range(len(sizes))))
        T = (answers[np.array([np.concatenate(order) for order in orders])] @ means) ** 2
        np.testing.assert_allclose(found, (T[0] - 1e-9 * T.max(axis=0) <= T).mean(axis=0), rtol=1e-9)


def test_without_strata_the_law_is_that_of_all_rows() -> None:
    rng = np.random.default_rng(2)
    X, Y = rng.normal(size=(40, 5)), rng.normal(size=(30, 5)) * 1.4
    table, rows = as_table(np.concatenate([X, Y])), Exchangeability(np.repeat([0, 1], [40, 30]), None, None)
    found = restricted.restricted_mmd(table, fit_kernels(table, rng=rng), rows, adaptive=True, rng=rng)
    assert found is not None
    np.testing.assert_allclose(norm.sf(found.estimate), compare(X, Y, random_state=0).all_pvalues, rtol=1e-6)


def test_few_units_with_different_numbers_have_the_p_values_of_permutations() -> None:
    """Too many relabellings to enumerate are drawn, and the p-value is the share of them that are as extreme.

    The share of other permuted responses with a p-value at most p is binomial with mean p, itself known from 2^13
    draws. Twelve columns: at 4.5 standard errors one of them fails with a probability below 1e-4.
    """
    rng, others = np.random.default_rng(6), 200
    unit, y = np.repeat(np.arange(12), 5), rng.exponential(size=12) ** 2
    shifts = rng.normal(size=(12, 12)) + np.linspace(0.0, 0.8, 12) * np.log(y)[:, None]
    X = rng.normal(size=(60, 12)) + shifts[unit]

    def pvalues(order: np.ndarray) -> np.ndarray:
        return relate(X, y[order][unit], unit=unit, response="numeric", random_state=0).all_pvalues

    found = pvalues(np.arange(12))
    share = np.mean([pvalues(rng.permutation(12)) <= found * (1 + 1e-9) for _ in range(others)], axis=0)
    drawn = found < NULL_TAIL  # others have the continuous law
    error = np.sqrt(found * (1.0 - found) * (1.0 / others + 2.0**-13))
    assert drawn.sum() >= 3
    assert (np.abs(share - found) <= 4.5 * error + 1.0 / others)[drawn].all()


@pytest.mark.parametrize("question", [compare, relate])
def test_strata_and_units_that_restrict_nothing_change_nothing(question: Any) -> None:
    """Columns with few values have discrete laws, which the smooth one of strata does not equal."""
    rng = np.random.default_rng(5)
    table = pd.DataFrame({"few": rng.integers(0, 3, 24), "cat": rng.choice(list("abcd"), 24)})
    table["gap"] = rng.normal(size=24)
    table.loc[::5, "gap"] = np.nan
    label = np.repeat(["u", "v"], [16, 8])
    ask = partial(question, table, **{"by" if question is compare else "y": label}, random_state=0)
    plain = ask()
    for design in ({"strata": np.zeros(24)}, {"unit": np.arange(24)}, {"strata": np.zeros(24), "unit": np.arange(24)}):
        found = ask(**design)
        assert found.log_pvalues.tolist() == plain.log_pvalues.tolist()
        np.testing.assert_array_equal(found.intervals, plain.intervals)
        assert any("one" in note and "row" in note for note in found.notes)


def test_counts_by_stratum_give_the_law_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    strata = rng.integers(0, 4, size=1500)
    X = rng.normal(size=(1500, 3)) + strata[:, None]
    y = X[:, 0] ** 2 * 0.1 + rng.normal(size=1500)
    label = rng.random(1500) < 0.3 + 0.1 * strata
    counted = [relate(X, answer, strata=strata, random_state=0).all_pvalues for answer in (y, label)]
    monkeypatch.setattr(stratified_counts, "FEWEST", 2000)
    rows = [relate(X, answer, strata=strata, random_state=0).all_pvalues for answer in (y, label)]
    # What is left out is of the order 1 / n, in units of the score; p-values near 1 need no accuracy.
    scores = [np.maximum(norm.isf(found), -2.0) for found in (counted, rows)]
    np.testing.assert_allclose(*scores, rtol=0.01, atol=0.03)


def test_counts_by_stratum_and_response_are_those_of_two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the last stratum the label does not vary."""
    rng = np.random.default_rng(4)
    strata = np.repeat([0, 1, 2], [700, 800, 100])
    X = np.column_stack([rng.normal(size=(1600, 2)), rng.poisson(1.0, size=1600)])
    labels = rng.integers(0, 2, 1600), rng.choice(list("abc"), 1600), rng.integers(0, 100, 1600)
    answers = [np.where(strata == 2, label[0], label) for label in labels]
    ask = [partial(relate, X, answer, strata=strata, random_state=0) for answer in answers]
    apart = [call().log_pvalues for call in ask]
    monkeypatch.setattr(restricted, "on_host", lambda array: False)
    for call, expected in zip(ask, apart, strict=True):
        np.testing.assert_allclose(call().log_pvalues, expected, rtol=1e-9)


@pytest.mark.parametrize("numeric", [False, True])
def test_rare_values_and_a_rare_label_have_the_exact_moments_of_rows(
    numeric: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows carry these columns or the response, so that the moments of the limit law are far off."""
    rng = np.random.default_rng(6)
    strata = np.append(rng.integers(0, 4, size=1498), [4, 4])
    X = np.where(rng.random((1500, 12)) < 0.02, 1.0 + rng.poisson(2.0, size=(1500, 12)), 0.0)
    X[:, 9:] = rng.normal(size=(1500, 3))
    label: Any = np.append(rng.random(1498) < 0.02, [False, True])
    if numeric:
        label = np.where(label, rng.normal(size=1500), 0.0)
    given: dict[str, Any] = {"strata": strata, "random_state": 0, "response": "numeric" if numeric else "auto"}
    counted = relate(X, label, **given).all_pvalues
    monkeypatch.setattr(stratified_counts, "FEWEST", 2000)
    scores = [np.maximum(norm.isf(found), -2.0) for found in (counted, relate(X, label, **given).all_pvalues)]
    # Correlations of kernels are those of the limit law, and what is left out of moments is at most 0.02 of them.
    np.testing.assert_allclose(*scores, rtol=0.02, atol=0.03)


@pytest.mark.parametrize(("labelled", "values", "level"), [(100, 20, 0.001), (6, 100, 0.05)])
def test_many_rows_of_rare_values_and_a_rare_label_keep_the_level(labelled: int, values: int, level: float) -> None:
    rng = np.random.default_rng(7)
    strata, label = np.arange(5000) % 4, rng.permutation(5000) < labelled
    X = np.zeros((5000, 500))
    for own in X.T:
        own[rng.choice(5000, values, replace=False)] = 1.0 + rng.poisson(2.0, size=values)
    found = relate(X, label, strata=strata, random_state=0).all_pvalues
    assert (found <= level).sum() <= binom.isf(1e-4, 500, level)


def test_strata_of_one_row_next_to_large_ones() -> None:
    """Those of one row are used for nothing, and do not make the others small."""
    rng = np.random.default_rng(8)
    X, label = rng.normal(size=(5700, 3)), rng.integers(0, 2, size=5700)
    strata = np.append(np.arange(4200) % 10, 10 + np.arange(1500))
    X[:, 1] += 0.3 * label
    assert relate(X, label, strata=strata, random_state=0).all_pvalues.argmin() == 1


@pytest.mark.parametrize("response", ["label", "classes", "numeric"])
@pytest.mark.parametrize(("strata", "rows"), [(40, 10), (100, 3), (30, 60), (200, 30)])
def test_columns_that_are_constant_within_strata_are_no_evidence(strata: int, rows: int, response: str) -> None:
    """No permutation within strata changes the statistic, so that the p-value is 1; means of strata are rounded.

    The columns vary between strata, or only in a stratum in which the response does not.
    """
    rng = np.random.default_rng(3)
    stratum = np.repeat(np.arange(strata), rows)
    n, alone = len(stratum), stratum == 0
    y = rng.normal(size=n) if response == "numeric" else rng.integers(0, 2 if response == "label" else 3, size=n)
    y[alone] = 0
    X = np.column_stack(
        [
            rng.normal(size=strata)[stratum],
            rng.integers(0, 3, size=strata)[stratum] * 0.1,
            2.5 * alone,
            np.where(alone, rng.normal(size=n), 0.3),
        ]
    )
    for table in (X, sparse.csr_matrix(np.where(X == 0.3, 0.0, X))):
        assert (relate(table, y, strata=stratum, random_state=0).all_pvalues == 1.0).all()


def test_columns_that_are_constant_within_strata_have_no_effect() -> None:
    """Rounding errors are not scaled up to a factor of the linear kernel, of which no effect has a law."""
    rng = np.random.default_rng(5)
    stratum = rng.integers(0, 40, size=1500)
    X = np.column_stack([rng.normal(size=(40, 30))[stratum], np.exp(2.0 * rng.normal(size=1500))])
    found = relate(X, rng.integers(0, 2, size=1500), strata=stratum, kernel="linear", random_state=0).to_frame()
    assert (found["effect"] == 0.0).sum() >= 30


@pytest.mark.parametrize("response", ["label", "numeric"])
@pytest.mark.parametrize("units", [12, 40])
@pytest.mark.parametrize("rows", [3, 7])
def test_units_with_the_same_values_in_another_order_are_no_evidence(rows: int, units: int, response: str) -> None:
    """Sums of the same numbers in another order differ by rounding errors."""
    rng = np.random.default_rng(4)
    unit, values = np.repeat(np.arange(units), rows), rng.normal(size=rows)
    X = np.column_stack([np.concatenate([rng.permutation(values) for _ in range(units)]) for _ in range(5)])
    y = np.arange(units) % 2 if response == "label" else rng.normal(size=units)
    assert (relate(X, y[unit], unit=unit, random_state=0).all_pvalues == 1.0).all()


@pytest.mark.parametrize("gaps", [False, True])
def test_many_rows_in_strata_have_clusters_and_short_lists(gaps: bool) -> None:
    """Rows are counted by stratum from 1,024 on, and correlations come from every third row of these."""
    rng = np.random.default_rng(4)
    strata = rng.integers(0, 6, size=4600)
    label = rng.random(4600) < np.linspace(0.2, 0.8, 6)[strata]
    X = rng.normal(size=(4600, 5)) + rng.normal(size=(6, 5))[strata]
    X[:, 1] += 0.3 * label
    X[:, 2] = X[:, 1] + 0.1 * rng.normal(size=4600)
    if gaps:
        X[rng.random(X.shape) < 0.03] = np.nan
    result = relate(X, label, strata=strata, k=3, random_state=0)
    assert set(result.names[:2]) == {"x1", "x2"} and result.rejected.sum() == 2
    assert [sorted(one) for one in result.clusters] == [["x1", "x2"]]


def test_correlations_within_strata_are_those_over_permutations() -> None:
    """Columns that follow their strata are correlated, but not within these."""
    rng = np.random.default_rng(5)
    strata = rng.integers(0, 3, size=4200)
    X = (rng.random((4200, 2)) < np.array([0.1, 0.5, 0.9])[strata][:, None]).astype(float)
    rows = Exchangeability(rng.integers(0, 2, size=4200), strata, None)
    table = as_table(X)
    scores = restricted.restricted_mmd(table, fit_kernels(table, rng=rng), rows, rng=rng)
    assert scores is not None
    correlation = scores.cov.columns(np.array([0]))[1, 0]
    assert np.corrcoef(X.T)[0, 1] ** 2 > 0.15 and abs(correlation) < 0.01


# Levels and power ----------------------------------------------------------------------------------------------------


def donors(seed: int, rows: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """100 null features of 24 donors whose rows are alike; the donor; its label."""
    rng = np.random.default_rng(seed)
    donor = np.repeat(np.arange(24), rows)
    return rng.normal(size=(24, 100))[donor] + rng.normal(size=(len(donor), 100)), donor, donor < 12


def test_rows_of_units_do_not_count_as_independent() -> None:
    X, donor, label = donors(0)
    assert (relate(X, label, random_state=0).all_pvalues <= 0.05).sum() > 2 * MOST
    found = (relate(X, label, unit=donor, random_state=0).all_pvalues <= 0.05).sum()
    assert FEWEST <= found <= MOST
    answer = np.random.default_rng(1).normal(size=24)[donor]
    assert FEWEST <= (relate(X, answer, unit=donor, random_state=0).all_pvalues <= 0.05).sum() <= MOST


def test_units_with_more_rows_in_one_sample() -> None:
    """Units of 2 rows against units of 20: without evening out, skewed features reject three times too often."""
    rng = np.random.default_rng(2)
    donor = np.repeat(np.arange(16), np.repeat([2, 20], 8))
    X = np.where(rng.random((len(donor), 100)) < 0.2, rng.exponential(size=(len(donor), 100)), 0.0)
    result = relate(X, donor < 8, unit=donor, random_state=0)
    assert (result.all_pvalues <= 0.05).sum() <= MOST
    assert any("144 of 176 rows are left out at random" in note for note in result.notes)


def test_units_in_strata_with_more_rows_in_one_sample() -> None:
    """Locations of strata must not be nearer to the units that have more rows: else 0.2 of p-values are small."""
    rng = np.random.default_rng(3)
    donor = np.repeat(np.arange(80), np.tile([5, 50], 40))
    X = 0.6 * rng.normal(size=(80, 100))[donor] + 0.8 * rng.normal(size=(len(donor), 100))
    X += rng.normal(size=(40, 100))[donor // 2]
    result = relate(X, donor % 2, unit=donor, strata=donor // 2, random_state=0)
    assert FEWEST <= (result.all_pvalues <= 0.05).sum() <= MOST


def test_strata_with_other_means_and_label_shares() -> None:
    rng = np.random.default_rng(3)
    site = np.repeat(np.arange(5), 40)
    X = rng.normal(size=(200, 100)) * np.array([1, 2, 1, 0.5, 1])[site, None] + rng.normal(size=(5, 100))[site] * 2
    label = rng.random(200) < np.array([0.1, 0.3, 0.5, 0.7, 0.9])[site]
    assert (relate(X, label, random_state=0).all_pvalues <= 0.05).sum() > 2 * MOST
    assert FEWEST <= (relate(X, label, strata=site, random_state=0).all_pvalues <= 0.05).sum() <= MOST
    answer = site + rng.normal(size=200)
    assert FEWEST <= (relate(X, answer, strata=site, random_state=0).all_pvalues <= 0.05).sum() <= MOST


@pytest.mark.parametrize("numeric", [False, True])
def test_many_small_strata(numeric: bool) -> None:
    rng = np.random.default_rng(4)
    pair = np.repeat(np.arange(25), 2)
    X = rng.normal(size=(50, 100)) + 3 * rng.normal(size=(25, 100))[pair]
    answer: Any = rng.normal(size=50) if numeric else np.tile([0, 1], 25)
    assert FEWEST <= (relate(X, answer, strata=pair, random_state=0).all_pvalues <= 0.05).sum() <= MOST


def test_pairs_see_a_shift_behind_the_pair_effect_and_a_change_of_spread() -> None:
    rng = np.random.default_rng(5)
    common = 5 * rng.normal(size=(40, 20))
    shifted = compare(common + rng.normal(size=(40, 20)), common + rng.normal(size=(40, 20)) + 1, paired=True)
    assert shifted.rejected.sum() >= 18
    wider = compare(rng.normal(size=(60, 20)), 2.0 * rng.normal(size=(60, 20)), paired=True)
    assert wider.rejected.sum() >= 15


def test_a_change_of_spread_in_pairs_has_a_fifth_of_the_level() -> None:
    """As much power as the flips of sums times differences, which a change of spread correlates, at level 0.01."""
    rng = np.random.default_rng(11)
    level, first, second = rng.normal(size=(3, 25, 1500))
    X, Y = level + first, level + 2.0 * second
    products = (X + Y - (X + Y).mean(axis=0)) * (X - Y)
    flipped = np.abs(rng.choice([-1.0, 1.0], size=(2000, 25)) @ products) >= np.abs(products.sum(axis=0))
    found = compare(X, Y, paired=True, correction=None, random_state=0).all_pvalues <= 0.05
    assert found.sum() >= (flipped.mean(axis=0) <= 0.01).sum()


def test_pairs_see_a_change_of_shape_behind_the_pair_effect() -> None:
    """Differences of a normal and an exponential variable are skewed, whatever the pair has in common."""
    rng = np.random.default_rng(10)
    common = 5 * rng.normal(size=(400, 20))
    shape = rng.exponential(size=(400, 20)) - 1
    assert compare(common + rng.normal(size=(400, 20)), common + shape, paired=True).rejected.sum() >= 12


def test_the_view_of_shape_has_the_direction_of_a_third_cumulant() -> None:
    """Of two normal variables with correlation 1/2, of which one gets a small third cumulant k.

    d = (x - y) / s_d and s = (x + y) / s_s have the means k / s_d^3 of He_3(d) and k / (s_d s_s^2) of d He_2(s), whose
    variances are 6 and 2; s_d^2 = 1 and s_s^2 = 3. No other antisymmetric polynomial of third degree has a mean.
    """
    rng = np.random.default_rng(0)
    x, y = np.linalg.cholesky([[1.0, 0.5], [0.5, 1.0]]) @ rng.normal(size=(2, 20_000))
    strata, rows = Strata.of(np.repeat(np.arange(20_000), 2)), np.column_stack([x, y]).ravel()
    d = strata.centred(rows) / np.sqrt(0.25)
    smooth, aligned = (np.array([[t, t**2, t**3 - 3 * t]]) for t in (rows, d))
    found = _shape(strata, rows[None], strata.centred(smooth), strata.centred(aligned))[0, 0]
    level = np.repeat((x + y) ** 2 / 3.0 - 1.0, 2)
    best = (d**3 - 3 * d) / 6.0 + d * level / 3.0 / 2.0
    # He_3^4 has the mean 93 x 36, so that the length of He_3(d) is known up to sqrt(92 / 20,000) / 2 = 0.034, and the
    # angle of 30 degrees up to 0.43 x 0.05. Five times that is a correlation of 0.994; without sqrt(3) it is 0.98.
    assert np.corrcoef(found, best)[0, 1] > 0.994


def test_the_cross_estimator_splits_by_units() -> None:
    """Rows that repeat in a unit add nothing: the answer is that of the units as rows."""
    rng = np.random.default_rng(13)
    X = rng.normal(size=(40, 6))
    X[20:, 1] += 1.5
    unit = np.repeat(np.arange(40), 5)
    names = np.array([f"{one:02d}" for one in unit])
    options: dict[str, Any] = {"estimator": "cross", "bandwidth": 1.0, "random_state": 0}
    # The median distance of numbers depends on how often they are repeated.
    for answer, tolerance in ((np.arange(40) >= 20, 1e-6), (rng.normal(size=40), 0.02)):
        single = relate(X, answer, **options)
        repeated = relate(X[unit], answer[unit], unit=names, **options)
        np.testing.assert_allclose(repeated.all_pvalues, single.all_pvalues, rtol=tolerance)
    X, donor, label = donors(1)
    assert (relate(X, label, estimator="cross", random_state=0).all_pvalues <= 0.05).sum() > MOST
    assert (relate(X, label, unit=donor, estimator="cross", random_state=0).all_pvalues <= 0.05).sum() <= MOST


def test_short_lists_and_intervals_work_within_strata() -> None:
    rng = np.random.default_rng(6)
    site = np.repeat(np.arange(4), 50)
    X = rng.normal(size=(200, 12)) + 3 * site[:, None]
    label = rng.random(200) < 0.5
    X[label, 4] += 1.0
    result = relate(X, label, strata=site, k=3, random_state=0)
    assert result.names[0] == "x4" and result.rejected[0] and result.pvalues[0] < 1e-4
    low, high = result.intervals[0]
    assert 0.1 < low < result.effects[0] < high < 0.9
    assert (result.pvalues[1:] > 0.01).all()


def test_intervals_of_pairs_are_those_of_the_mean_difference() -> None:
    """A linear kernel sees the mean difference: its interval, relative to it, is that of the paired t-test."""
    rng = np.random.default_rng(8)
    level, X, noise = rng.normal(size=(3, 300, 3))
    Y = level + noise + np.array([0.3, 0.35, 0.4])
    result = compare(level + X, Y, paired=True, kernel="linear", correction=None, random_state=0)
    differences = (Y - level - X)[:, result.selected]
    width = 2 * norm.isf(0.025) * differences.std(axis=0) / np.sqrt(300) / np.abs(differences.mean(axis=0))
    np.testing.assert_allclose(np.diff(result.intervals)[:, 0] / result.effects, width, rtol=0.15)


# What is said-


def frame(seed: int = 0) -> pd.DataFrame:
    """Three batches of four donors with five rows each."""
    rng = np.random.default_rng(seed)
    donor = np.repeat(np.arange(12), 5)
    return pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "c"]).assign(
        donor=[f"d{one}" for one in donor], batch=donor // 4, treated=donor % 2
    )


def test_the_smallest_possible_p_value_is_noted() -> None:
    result = compare(frame(), by="treated", unit="donor", strata="batch", random_state=0)
    # (4 choose 2)^3 = 216 labellings; with all labels swapped T is the same.
    assert "12 units in 3 strata; the smallest possible p-value is 0.0093." in result.notes
    assert result.feature_names == ("a", "b", "c")
    assert result.all_pvalues.min() >= 2 / 216 - 1e-12


def test_notes_on_one_row_have_the_singular() -> None:
    rng, unit = np.random.default_rng(0), np.append(np.repeat(np.arange(8), 2), 0)
    X, label = rng.normal(size=(17, 2)), (unit >= 2).astype(int)
    strata = np.where(np.arange(17) < 16, "a", "b")
    notes = relate(X, label, strata=strata, random_state=0).notes
    assert "The response is constant in 1 of 2 strata ('b'); its 1 row carries no information." in notes
    notes = relate(X, label, unit=unit, random_state=0).notes
    assert "unit: 1 of 17 rows is left out at random" in " ".join(notes)


def test_a_design_that_cannot_reject_is_warned_about() -> None:
    few = frame().query("batch == 0")
    for k in (None, 1):
        with pytest.warns(CalibrationWarning, match=r"4 units; .* is 0.33: .*; more units are needed.$") as caught:
            result = compare(few.drop(columns="batch"), by="treated", unit="donor", k=k, random_state=0)
        assert not result.rejected.any()
        assert caught[0].filename == __file__  # the line to look at is the caller's


def test_a_short_list_that_cannot_reject_is_warned_about() -> None:
    """12 units have 462 labellings. Of a list of one among 40 features BH asks for 0.05 / 40."""
    X = np.random.default_rng(3).normal(size=(24, 40))
    unit = np.arange(24) // 2
    for options in ({"k": 2}, {"k": 1, "family": "selected"}, {"k": 1, "correction": None}):
        compare(X, by=unit % 2, unit=unit, random_state=0, **options)
    for options in ({"k": 1}, {"k": 0.02}, {"k": 2, "correction": "by"}):
        with pytest.warns(CalibrationWarning, match="is 0.0022: with 40 features .* more units or a larger k"):
            compare(X, by=unit % 2, unit=unit, random_state=0, **options)


def test_given_confounders_no_smallest_p_value_is_noted() -> None:
    """P-values given confounders are not those of relabellings: these are smaller than 0.1, that of 3 units each."""
    rng = np.random.default_rng(0)
    unit = np.repeat(np.arange(6), 20)
    X, z = rng.normal(size=(6, 1))[unit] + 30.0 * (unit % 2)[:, None], rng.normal(size=120)
    result = compare(X, by=unit % 2, unit=unit, given=z, random_state=0)
    assert result.pvalues[0] < 0.1 and "6 units." in result.notes


def test_settings_tell_the_design() -> None:
    data = frame()
    named = compare(data, by="treated", unit="donor", strata="batch", random_state=0).settings
    assert named["unit"] == "donor: 12 units" and named["strata"] == "batch: 3 strata"
    values = data[["a", "b"]].to_numpy()
    unnamed = relate(values, data["treated"], unit=pd.factorize(data["donor"])[0], random_state=0).settings
    assert unnamed["unit"] == "given as an array: 12 units" and "strata" not in unnamed
    pairs = compare(values[:30], values[30:], paired=True, random_state=0)
    assert pairs.settings["paired"] == "rows in their order: 30 pairs"
    assert pairs.to_dict()["settings"]["paired"] == pairs.settings["paired"]


def test_strata_with_one_label_are_counted_and_named() -> None:
    data = frame()
    data.loc[data["batch"] == 1, "treated"] = 1
    result = compare(data.drop(columns="donor"), by="treated", strata="batch", random_state=0)
    assert any("constant in 1 of 3 strata ('1'); its 20 rows" in note for note in result.notes)


def test_a_column_that_identifies_subjects_is_noted() -> None:
    notes = compare(frame().drop(columns="batch"), by="treated", random_state=0).notes
    assert any("'donor' looks like an identifier" in note and "unit='donor'" in note for note in notes)
    subject = np.repeat(np.arange(16), 200)
    notes = relate(np.column_stack([np.sin(np.arange(3200)), subject]), subject % 2, random_state=0).notes
    assert any("'x1' looks like an identifier: its 16 values repeat" in note for note in notes)
    mixed = frame().drop(columns="batch").assign(treated=np.arange(60) % 2)
    assert not any("identifier" in note for note in compare(mixed, by="treated", random_state=0).notes)


@pytest.mark.parametrize("memory", [None, "64MB"])
def test_dates_and_durations_are_no_identifiers(memory: str | None, tmp_path: Path) -> None:
    """Tables of different months share no day, but days repeat within each."""
    rng = np.random.default_rng(0)
    tables = []
    for month in ("2024-01-01", "2024-02-01"):
        days = pd.Timestamp(month) + pd.to_timedelta(rng.integers(0, 25, 200), unit="D")
        table = pd.DataFrame({"day": days, "x": rng.normal(size=200), "age": days - pd.Timestamp("2020-01-01")})
        table.to_parquet(tmp_path / f"{month}.parquet")
        tables.append(table if memory is None else tmp_path / f"{month}.parquet")
    result = compare(*tables, memory=memory, random_state=0)
    assert result.rejected[[result.names.index(name) for name in ("day", "age")]].all()
    assert not any("identifier" in note for note in result.notes), result.notes


@pytest.mark.parametrize("missing", [False, True])
def test_an_identifier_behind_many_counts_is_noted(missing: bool) -> None:
    rng = np.random.default_rng(0)
    subject = pd.Series(np.arange(120) // 6).mask(missing & (np.arange(120) % 17 == 0))
    table = pd.DataFrame(rng.poisson(4.0, size=(120, 30))).add_prefix("gene ").assign(subject=subject)
    notes = relate(table, np.arange(120) // 6 % 2, random_state=0).notes
    assert any("'subject' looks like an identifier: its 20 values repeat" in note for note in notes)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("numbered", [False, True])
def test_identifiers_are_noted_in_files(suffix: str, numbered: bool, tmp_path: Path) -> None:
    """Columns of counts and of dates of a visit repeat too, but in both samples."""
    data = frame().drop(columns="batch").assign(visits=np.arange(60) % 9)
    if numbered:
        data["donor"] = 1000 + pd.factorize(data["donor"])[0]
    files = []
    for label, part in data.groupby("treated"):
        files.append(tmp_path / f"{label}.{suffix}")
        part = part.drop(columns="treated")
        part.to_csv(files[-1], index=False) if suffix == "csv" else part.to_parquet(files[-1])
    notes = [note for note in compare(*files, memory="64MB", random_state=0).notes if "identifier" in note]
    assert len(notes) == 1 and "'donor' looks like an identifier: its 12 values repeat" in notes[0]


@pytest.mark.parametrize("question", ["by", "two objects", "relate"])
def test_identifiers_are_noted_in_obs(question: str) -> None:
    data = frame()
    obs = data[["donor", "batch", "treated"]].assign(depth=np.arange(60) * 0.5, plate=np.arange(60) % 7)
    cells = named_anndata(data[["a", "b", "c"]].to_numpy(), obs)
    if question == "by":
        result = compare(cells, by="treated", random_state=0)
    elif question == "relate":
        result = relate(cells, "treated", random_state=0)
    else:
        first = (obs["treated"] == 0).to_numpy()
        parts = [named_anndata(cells.X[some], obs[some]) for some in (first, ~first)]
        result = compare(*parts, random_state=0)
    notes = [note for note in result.notes if "identifier" in note]
    assert len(notes) == 1 and "'donor' looks like an identifier: its 12 values" in notes[0]


def named_anndata(values: np.ndarray, obs: pd.DataFrame) -> Any:
    """An object that looks like one of anndata."""
    kind = type("AnnData", (SimpleNamespace,), {"__module__": "anndata"})
    names = {"var_names": ["a", "b", "c"], "obs_names": [str(row) for row in obs.index]}
    return kind(X=values, obs=obs, layers={}, raw=None, **names)


X20, PAIRS = np.random.default_rng(9).normal(size=(20, 2)), np.repeat(np.arange(10), 2)
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("unit: '0'.*both samples.*use paired= or strata=", {"unit": (np.arange(20) // 2, np.arange(19) // 2)}),
    ("paired: each pair needs one row in each sample, but '19' has 1 row;", {"paired": (np.arange(20), np.arange(19))}),
    ("paired: each pair needs.*, but '0' has 3 rows", {"paired": (PAIRS, np.append(20 + PAIRS[:18], 0))}),
    ("paired: True pairs the rows.*X has 20 rows and Y has 19", {"paired": True}),
    ("strata: each stratum has one row.*use unit=", {"strata": (np.arange(20), 20 + np.arange(19))}),
    ("strata: the sample is constant within each of the 2 strata", {"strata": (np.zeros(20), np.ones(19))}),
    ("strata: for two tables a column name or a pair of arrays", {"strata": np.arange(39)}),
    ("strata: one value for each row of X", {"strata": (np.zeros(5), np.zeros(19))}),
    ("paired: pairs are strata of two rows, which cannot be combined with unit=", {"paired": "a", "unit": "b"}),
    ("estimator: strata= needs estimator='complete'.*got 'linear'", {"strata": "a", "estimator": "linear"}),
    ("strata: 'site' cannot name columns of X", {"strata": "site"}),
    ("estimator: unit= needs estimator='complete' or 'cross'.*got 'block'", {"unit": "a", "estimator": "block"}),
    ("estimator: strata= and unit= need .* leave out estimator=", {"unit": "a", "strata": "b", "estimator": "cross"}),
    ("estimator: paired= needs estimator='complete'.*got 'cross'", {"paired": True, "estimator": "cross"}),
    (
        "unit: at least 10 units are needed in each sample for the cross estimator, got 4; use estimator='complete'",
        {"unit": (np.arange(20) // 2, 10 + np.arange(19) // 5), "estimator": "cross"},
    ),
]


@pytest.mark.parametrize(("message", "given"), REFUSED)
def test_designs_that_make_no_sense_are_refused_with_the_fix(message: str, given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=message):
        compare(X20, X20[:19], **given)


@pytest.mark.parametrize(
    ("message", "given"),
    [
        ("unit: the response varies within.*use strata= for association within units, or aggregate", {"unit": PAIRS}),
        ("paired: True pairs the rows", {"paired": True}),
        ("paired: each pair needs two rows", {"paired": np.arange(20) // 4}),
        ("strata: X has no column 'sit'.*did you mean 'site'", {"strata": "sit"}),
        (
            "strata: a value for each row is needed, but 1 of 20 have none",
            {"strata": np.append(np.zeros(19), np.nan), "missing": "error"},
        ),
        (
            "strata: '0' .* has rows in several strata",
            {"unit": np.arange(20) // 2, "strata": np.arange(20) % 2, "y": 1},
        ),
    ],
)
def test_refusals_of_relate(message: str, given: dict[str, Any]) -> None:
    table = pd.DataFrame(X20, columns=["a", "b"]).assign(site=1)
    y = np.arange(20) // 10 if given.pop("y", None) else np.arange(20)
    with pytest.raises(InputError, match=message):
        relate(table, y, response="numeric", **given)


def test_a_column_has_one_purpose() -> None:
    with pytest.raises(InputError, match="strata: 'treated' is named by by= as well; name it once"):
        compare(frame(), by="treated", strata="treated")
    with pytest.raises(InputError, match="unit: 'donor' is named by strata= as well; name it once"):
        relate(frame(), "treated", unit="donor", strata="donor")
    with pytest.raises(InputError, match="unit: 'donor' is named by strata= as well; name it once"):
        relate(frame(), "treated", unit=["donor"], strata=["batch", "donor"])
    # Labels of rows are no names.
    label = ["yes", "no"] * 30
    assert len(relate(frame()[["a", "b"]], label, strata=label[:30] + label[:30][::-1], random_state=0).pvalues) == 2


def test_screen_takes_no_design() -> None:
    with pytest.raises(TypeError, match="strata"):
        screen(X20, {"a": X20}, strata=np.zeros(20))  # type: ignore[call-arg]


# Every kind of input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["arrays", "polars", "csv", "parquet", "pieces"])
def test_names_arrays_and_files_agree(kind: str, tmp_path: Path) -> None:
    data = frame()
    expected = compare(data, by="treated", unit="donor", strata="batch", random_state=0).all_pvalues
    features, options = data, {"by": "treated", "unit": "donor", "strata": "batch"}
    given: Any = features
    if kind == "arrays":
        given = data[["a", "b", "c"]].to_numpy()
        options = {name: data[column].to_numpy() for name, column in options.items()}
    elif kind == "polars":
        given = pytest.importorskip("polars").from_pandas(data)
    elif kind == "csv":
        given = tmp_path / "data.csv"
        data.to_csv(given, index=False)
    else:
        given = tmp_path / "data.parquet"
        data.to_parquet(given)
    more = {"memory": "200MB"} if kind == "pieces" else {}
    found = compare(given, random_state=0, **options, **more).all_pvalues
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_columns_of_obs_are_units() -> None:
    anndata = pytest.importorskip("anndata")
    data = frame()
    cells = anndata.AnnData(
        data[["a", "b", "c"]].to_numpy(), obs=data[["donor", "batch", "treated"]].astype(str).rename(index=str)
    )
    found = compare(cells, by="treated", unit="donor", strata="batch", random_state=0).all_pvalues
    expected = compare(data, by="treated", unit="donor", strata="batch", random_state=0).all_pvalues
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("missing", ["column", "drop", "value"])
def test_missing_values_within_strata(missing: str) -> None:
    rng = np.random.default_rng(7)
    data = pd.DataFrame(rng.normal(size=(90, 3)), columns=["a", "b", "c"])
    data["site"], data["label"] = np.arange(90) % 3, np.arange(90) // 45
    data.loc[rng.random(90) < 0.2, "b"] = np.nan
    found = compare(data, by="label", strata="site", missing=missing, random_state=0)
    assert found.all_pvalues.shape == (3,) and np.isfinite(found.all_pvalues).all()
    if missing == "column":
        whole = compare(data.drop(columns="b"), by="label", strata="site", random_state=0).all_pvalues
        np.testing.assert_allclose(found.all_pvalues[[0, 2]], whole, rtol=1e-9)
        some = compare(data.dropna()[["b", "site", "label"]], by="label", strata="site", random_state=0).all_pvalues
        np.testing.assert_allclose(found.all_pvalues[1], some[0], rtol=1e-9)
    if missing == "drop":
        rest = compare(data.dropna(), by="label", strata="site", random_state=0).all_pvalues
        np.testing.assert_allclose(found.all_pvalues, rest, rtol=1e-9)


@pytest.mark.parametrize("missing", ["column", "drop"])
def test_pairs_with_a_missing_value(missing: str) -> None:
    rng = np.random.default_rng(14)
    X, Y = rng.normal(size=(2, 30, 3))
    X[3, 0] = Y[7, 2] = np.nan
    found = compare(X, Y, paired=True, missing=missing, random_state=0)
    if missing == "drop":
        whole = np.setdiff1d(np.arange(30), [3, 7])
        expected = compare(X[whole], Y[whole], paired=True, random_state=0)
        np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9)
        assert "paired: 2 pairs with a missing value in one row are left out." in found.notes
    else:
        assert np.isfinite(found.all_pvalues).all() and found.settings["paired"] == "rows in their order: 30 pairs"
        # Without a whole pair there is nothing to test.
        Y[:15, 1], X[15:, 1] = np.nan, np.nan
        found = compare(X, Y, paired=True, random_state=0)
        assert found.all_pvalues[1] == 1.0 and any("Not testable" in note and "'x1'" in note for note in found.notes)


def test_rows_without_a_stratum_are_left_out() -> None:
    data = frame()
    data["batch"] = data["batch"].astype(float)
    data.loc[:4, "batch"] = np.nan
    found = compare(data.drop(columns="donor"), by="treated", strata="batch", missing="drop", random_state=0)
    assert any("rows without a value are left out: 5 of" in note for note in found.notes)


def test_long_identifiers_are_not_rounded(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(40, 2)), columns=["a", "b"]).assign(unit=np.repeat(np.arange(20), 2))
    table["label"] = table.unit % 2
    known = compare(table, by="label", unit="unit", random_state=0).all_pvalues
    table["unit"] += 2**53
    np.testing.assert_allclose(compare(table, by="label", unit="unit", random_state=0).all_pvalues, known, rtol=1e-9)
    table.to_parquet(tmp_path / "table.parquet")
    with pytest.raises(InputError, match="unit: integers beyond 2\\^53 in 'unit' are rounded"):
        compare(tmp_path / "table.parquet", by="label", unit="unit", random_state=0)


def test_selectors_take_units_as_metadata() -> None:
    rng = np.random.default_rng(8)
    donor = np.repeat(np.arange(30), 4)
    label = donor % 2
    X = rng.normal(size=(30, 6))[donor] + rng.normal(size=(120, 6))
    X[:, 2] += 2.5 * label
    for selector in (SelectMMD, SelectHSIC):
        direct = selector(random_state=0).fit(X, label, unit=donor)
        assert direct.get_support()[2] and "30 units" in str(direct.result_.notes)
        with sklearn.config_context(enable_metadata_routing=True):
            step = selector(random_state=0).set_fit_request(unit=True)
            pipeline = make_pipeline(step, LogisticRegression()).fit(X, label, unit=donor)
            np.testing.assert_array_equal(pipeline[0].get_support(), direct.get_support())
    with pytest.raises(InputError, match="unit: needs one value for each row"):
        SelectMMD().fit(X, label, unit="donor")


def test_names_of_units_and_strata_do_not_matter() -> None:
    """Rows are left out at random in the second response, and relabellings of the rare values are drawn."""
    rng = np.random.default_rng(4)
    sizes = rng.integers(2, 12, size=30)
    unit = np.repeat(np.arange(30), sizes)
    X = np.column_stack([rng.normal(size=len(unit)), rng.poisson(0.02, size=len(unit))])
    names = np.array([f"donor {code:02}" for code in rng.permutation(30)])
    for response in (np.arange(30) % 2, np.argsort(np.argsort(sizes + rng.random(30)))):
        for stratum in (None, np.arange(30) // 10):
            more = [{} if stratum is None else {"strata": (sign * stratum)[unit]} for sign in (1, -1)]
            one = relate(X, response[unit], unit=unit, random_state=0, **more[0])
            other = relate(X, response[unit], unit=names[unit], random_state=0, **more[1])
            np.testing.assert_allclose(other.all_pvalues, one.all_pvalues, rtol=1e-9)


def test_evening_out_keeps_units_and_equal_sizes() -> None:
    response = np.repeat([0, 1], [40, 200])
    unit = np.repeat(np.arange(20), np.repeat([4, 20], 10))
    rows = Exchangeability(response, None, unit).evened(np.random.default_rng(0))
    assert rows.units == 20 and (rows.unit_sizes == 4).all() and rows.left_out == 160
    alike = Exchangeability(response, None, np.arange(240))
    assert alike.evened(np.random.default_rng(0)).left_out == 0


@pytest.mark.skipif("KERNSIFT_DATA" not in os.environ, reason="needs KERNSIFT_DATA")
def test_voice_recordings_of_subjects() -> None:
    """R: mixed models and limma find 14 of the 22 measurements, BH 5%.

    p <- sapply(cols, function(c) { v$x <- as.numeric(scale(v[[c]]))
      summary(lmer(x ~ status + (1 | subject), v))$coefficients["status", "Pr(>|t|)"] })  # lmerTest
    E <- t(scale(as.matrix(v[, cols]))); d <- model.matrix(~status, v)
    r <- duplicateCorrelation(E, d, block = v$subject)$consensus.correlation
    q <- eBayes(lmFit(E, d, block = v$subject, correlation = r))$p.value[, 2]
    """
    voice = pd.read_csv(Path(os.environ["KERNSIFT_DATA"]) / "parkinsons_voice.csv").drop(columns="name")
    result = compare(voice, by="status", unit="subject", random_state=0)
    assert len(result.all_pvalues) == 22 and result.rejected.sum() >= 16


@pytest.mark.parametrize("design", ["unit", "strata"])
def test_sparse_tables_and_other_array_libraries(design: str) -> None:
    strict = pytest.importorskip("array_api_strict")
    rng = np.random.default_rng(11)
    table = sparse.random(300, 8, density=0.3, random_state=1, format="csr")
    group = np.repeat(np.arange(20), 15)
    label = group % 2 if design == "unit" else rng.integers(0, 2, size=300)
    expected = relate(table.toarray(), label, random_state=0, **{design: group}).all_pvalues
    for given, response in ((table, label), (strict.asarray(table.toarray()), strict.asarray(label))):
        found = relate(given, response, random_state=0, **{design: group}).all_pvalues
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("n", [300, 6000])
def test_sparse_columns_are_aligned_as_dense_ones(n: int) -> None:
    """Columns from 5% to 95% nonzero, of which the denser ones have a location in each stratum."""
    rng = np.random.default_rng(13)
    stratum, label, number = rng.integers(0, 4, size=n), rng.integers(0, 2, size=n), rng.normal(size=n)
    values = rng.normal(1.0 + stratum[:, None], size=(n, 8))
    values[rng.random(values.shape) > np.linspace(0.05, 0.95, 8)] = 0.0
    table = sparse.csr_matrix(values)
    for response in (label, number):
        expected, found = (relate(one, response, strata=stratum, random_state=0) for one in (values, table))
        np.testing.assert_array_equal(found.scores, expected.scores)
        np.testing.assert_array_equal(found.intervals, expected.intervals)
    rows = Exchangeability(label, stratum, None)
    dense, thin = aligned(as_table(values), rows), aligned(as_table(table), rows)
    assert isinstance(thin, AlignedSparseTable)
    moved = (dense.values != values).any(axis=0)
    assert moved.any() and not moved.all()
    for one in (thin, thin.select(np.arange(8)), thin.loaded(slice(0, 8))):
        np.testing.assert_array_equal(one.values, dense.values)
    assert len(thin.stored(np.flatnonzero(~moved)).values) == np.count_nonzero(values[:, ~moved])


def test_workers_get_the_same_design() -> None:
    """What is sent to another process is a copy, which must be the same pairs of views."""
    rng = np.random.default_rng(12)
    group = np.repeat(np.arange(12), 4)
    rows = Exchangeability(group % 2, None, group)
    target = UnitResponse.of({"plain": np.arange(2.0)[None]}, rows.responses, restricted.CLASSES, rows, True)
    table = as_table(rng.normal(size=(48, 3)))
    kernels = fit_kernels(table, rng=rng)
    work = restricted._Measuring(target, rows, np.arange(48), np.dtype(float), 0, None)
    for block in blocks_of(table, kernels):
        here, there = work(block), pickle.loads(pickle.dumps(work))(block)
        np.testing.assert_array_equal(here[0].score, there[0].score)


def test_the_command_line_takes_the_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame().assign(lab="l").to_csv(tmp_path / "cells.csv", index=False)
    file = str(tmp_path / "cells.csv")
    columns = ["--by", "treated", "--unit", "donor", "--strata", "batch,lab"]
    assert main(["compare", file, *columns, "--json", "--seed", "0"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = compare(frame(), by="treated", unit="donor", strata="batch", random_state=0)
    pvalues = [one["pvalue"] for one in found["features"]]
    np.testing.assert_allclose(pvalues, expected.pvalues, rtol=1e-9)
    assert any("12 units in 3 strata" in note for note in found["notes"])


@pytest.mark.parametrize("strata", [1, 3])
@pytest.mark.parametrize("response", ["two classes", "three classes", "numeric"])
def test_sizes_that_have_nothing_to_do_with_the_response_are_kept(strata: int, response: str) -> None:
    """Where sizes depend on it rows are left out; else in 0.3 of 1,000 cases (standard error 0.015)."""
    rng, count, stratum = np.random.default_rng(0), 0, np.arange(36) % strata
    labels = np.arange(36) // strata % {"two classes": 2, "three classes": 3, "numeric": 36}[response]
    for _ in range(1_000):
        unit = np.repeat(np.arange(36), (1 + stratum) * rng.geometric(0.2, size=36))
        count += Exchangeability(labels[unit], stratum[unit], unit).evened(rng).left_out > 0
    assert count <= 300 + 4.5 * 15
    unit = np.repeat(np.arange(36), np.where(labels >= np.median(labels), 5, 10))
    assert Exchangeability(labels[unit], stratum[unit], unit).evened(rng).left_out > 0


def test_sizes_of_units_that_the_label_does_not_change_leave_nothing_out() -> None:
    """Then the rows of all units are used: p-values depend neither on the seed nor on the order of rows."""
    rng = np.random.default_rng(3)
    label, sizes = np.repeat([0, 1], [14, 10]), np.append(np.arange(2, 16), np.arange(3, 13))
    unit = np.repeat(np.arange(24), sizes)
    assert not Exchangeability(label[unit], None, unit).evened(rng).left_out
    X, order = rng.normal(size=(24, 5))[unit] + rng.normal(size=(len(unit), 5)), rng.permutation(len(unit))
    one = relate(X, label[unit], unit=unit, random_state=0)
    other = relate(X[order], label[unit][order], unit=unit[order], random_state=1)
    np.testing.assert_allclose(other.all_pvalues, one.all_pvalues, rtol=1e-9)
    in_a, in_b = (label[unit] == one for one in (0, 1))
    pair = compare(X[in_b], X[in_a], unit=(unit[in_b], unit[in_a]), random_state=2)
    np.testing.assert_allclose(pair.all_pvalues, one.all_pvalues, rtol=1e-9)


@pytest.mark.parametrize("strata", [[0] * 10, [0] * 4 + [1] * 6])
def test_the_association_of_noise_and_class_has_the_level_of_all_permutations(strata: list[int]) -> None:
    """The p-value decides at 0.3: among all orders of classes within strata it is at most 0.3 in about that share."""
    stratum, classes = np.array(strata), np.array([0, 0, 1, 1, 0, 0, 0, 1, 1, 1])
    noise = 1.0 / np.array([3, 8, 5, 13, 2, 21, 9, 4, 17, 6])
    first = (
        combinations(range(10), 5)
        if not any(strata)
        else ((*one, *other) for one in combinations(range(4), 2) for other in combinations(range(4, 10), 3))
    )
    found = []
    for chosen in first:
        order = np.ones(10, dtype=int)
        order[list(chosen)] = 0
        found.append(_association(noise, order, stratum))
    assert len(found) == (120 if any(strata) else 252)
    assert 0.25 <= np.mean(np.array(found) <= 0.3) <= 0.4
    assert _association(noise, classes, stratum) == pytest.approx(_association(3 * noise, 1 - classes, stratum))


def test_row_labels_in_another_order_are_noted() -> None:
    """Rows are matched by position; two tables of pandas with the same labels in another order may mean otherwise."""
    rng = np.random.default_rng(0)
    before = pd.DataFrame({"a": rng.normal(size=20), "b": rng.normal(size=20)}, index=[f"p{i}" for i in range(20)])
    after, said = before + 1, "its row labels are those of X in another order"
    assert not any(said in note for note in compare(before, after, paired=True, random_state=0).notes)
    notes = compare(before, after[::-1], paired=True, random_state=0).notes
    assert any(note.startswith(f"Y: {said}") for note in notes)
    assert not any(said in note for note in compare(before, after[::-1], random_state=0).notes)
    y = before["a"] * 2
    assert any(note.startswith(f"y: {said}") for note in relate(before, y.sort_values(), random_state=0).notes)
    # Labels that do not match say nothing.
    assert not any(said in note for note in relate(before, y.reset_index(drop=True), random_state=0).notes)


@pytest.mark.parametrize("numbers", [False, True])
def test_units_are_equally_noisy_within_strata(numbers: bool) -> None:
    """Few rows a unit for the rare label of one stratum and the other label of the other: even over all, not within."""
    rng = np.random.default_rng(1)
    label, stratum = np.repeat([1, 0, 1, 0], [4, 12, 12, 4]), np.repeat([0, 1], 16)
    sizes = np.where((label == 1) == (stratum == 0), 2, 30)
    unit = np.repeat(np.arange(32), sizes)
    response = (label + (stratum * 2 + rng.uniform(0, 0.5, 32) if numbers else 0.0))[unit]
    codes = np.unique(response, return_inverse=True)[1]
    even = Exchangeability(codes, stratum[unit], unit).evened(rng)
    left = even.unit_sizes
    for own in (stratum == 0, stratum == 1):
        mean = [(1.0 / left[own & (label == one)]).mean() for one in (0, 1)]
        assert mean[0] == pytest.approx(mean[1], rel=0.1)
    X = rng.normal(size=(len(unit), 200))
    names = {"strata": stratum[unit].astype(str), "unit": unit.astype(str)}
    pvalues = relate(X, response, **names, random_state=0).all_pvalues
    assert (pvalues <= 0.05).mean() < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 200)
    # Sizes that differ between strata alone are left as they are.
    sizes = np.where(stratum == 0, 3, 20)
    unit = np.repeat(np.arange(32), sizes)
    assert not Exchangeability(label[unit], stratum[unit], unit).evened(rng).left_out


LINEAR: dict[str, Any] = {"kernel": "linear", "k": None, "response": "numeric", "random_state": 0}


@pytest.mark.parametrize("units", [False, True])
def test_a_linear_kernel_with_outliers_has_the_pvalues_of_permutations(units: bool) -> None:
    """By 20,000 permutations within strata, or of units."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_cauchy((60, 30)), rng.standard_cauchy(60)
    strata = np.repeat(np.arange(3 if not units else 1), 20 if not units else 60)
    if units:
        found = relate(np.repeat(x, 2, axis=0), np.repeat(y, 2), unit=np.repeat(np.arange(60), 2), **LINEAR)
    else:
        found = relate(x, y, strata=strata, **LINEAR)
    for stratum in np.unique(strata):
        x[strata == stratum] -= x[strata == stratum].mean(axis=0)
    order = np.argsort(strata + rng.random((20_000, 60)), axis=1)
    shares = ((y[order] @ x) ** 2 >= (y @ x) ** 2 * (1 - 1e-9)).mean(axis=0)
    # Four standard errors of the difference of shares of 8193 and 20,000 draws.
    assert np.abs(found.all_pvalues - shares).max() < 4 * np.sqrt(0.25 / 8193 + 0.25 / 20_000)


def test_features_with_missing_values_share_one_note_about_rows_of_units() -> None:
    rng = np.random.default_rng(6)
    donor = np.repeat(np.arange(16), np.repeat([2, 20], 8))
    X = rng.normal(size=(len(donor), 6))
    X[rng.random(X.shape) < 0.1] = np.nan
    notes = [note for note in relate(X, donor < 8, unit=donor, random_state=0).notes if "at random" in note]
    assert [note.partition(" are left out")[0] for note in notes] == [
        "unit: 144 of 176 rows",
        "unit: some rows of features with missing values",
    ]
