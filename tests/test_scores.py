"""Covariance operators of `Scores` agree with the matrices that they represent."""

import numpy as np
import pytest

from kernsift.estimators.scores import (
    BlockCovariance,
    DenseCovariance,
    DiagonalCovariance,
    FactorCovariance,
    scores_from_draws,
)

RNG = np.random.default_rng(5)
TALL, WIDE = RNG.normal(size=(40, 6)), RNG.normal(size=(4, 6))
OPERATORS = {
    "dense": (DenseCovariance(TALL.T @ TALL), TALL.T @ TALL),
    "diagonal": (DiagonalCovariance(np.arange(1.0, 7.0)), np.diag(np.arange(1.0, 7.0))),
    "tall factor": (FactorCovariance(TALL), TALL.T @ TALL),
    "wide factor": (FactorCovariance(WIDE), WIDE.T @ WIDE),
    "specific variances": (FactorCovariance(WIDE, np.arange(6.0)), WIDE.T @ WIDE + np.diag(np.arange(6.0))),
    "blocks": (
        BlockCovariance(
            (WIDE**2).sum(axis=0) + np.arange(6.0),
            lambda features: ((some, WIDE[:, some]) for some in np.split(features, 2)),
        ),
        WIDE.T @ WIDE + np.diag(np.arange(6.0)),
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operator_hands_out_the_matrix(name):
    operator, matrix = OPERATORS[name]
    assert operator.diagonal() == pytest.approx(np.diagonal(matrix))
    assert operator.columns(np.array([4, 1])) == pytest.approx(matrix[:, [4, 1]])


@pytest.mark.parametrize("name", OPERATORS)
def test_samples_have_that_covariance(name):
    operator, matrix = OPERATORS[name]
    size = 40_000
    sample = operator.sample(size, np.random.default_rng(0))
    error = np.sqrt((np.outer(np.diagonal(matrix), np.diagonal(matrix)) + matrix**2) / size)
    assert np.all(np.abs(sample.T @ sample / size - matrix) <= 5 * error)
    assert np.all(np.abs(sample.mean(axis=0)) <= 5 * np.sqrt(np.diagonal(matrix) / size))


def test_draws_become_mean_and_covariance():
    scores = scores_from_draws("abcdef", TALL)
    assert scores.estimate == pytest.approx(TALL.mean(axis=0))
    assert scores.cov.columns(np.arange(6)) == pytest.approx(np.cov(TALL.T) / 40)
    apart = scores_from_draws("abcdef", TALL, shared=False)
    assert apart.cov.columns(np.arange(6)) == pytest.approx(np.diag(np.cov(TALL.T).diagonal()) / 40)


def test_constant_draws():
    """A constant column scores 0 and cannot vary; two samples without overlap may claim at most l standard errors."""
    draws = np.column_stack([np.zeros(20), np.full(20, 2.0), RNG.normal(size=20)])
    for shared in (True, False):
        scores = scores_from_draws("abc", draws, shared=shared)
        variance = scores.cov.diagonal()
        assert variance[0] == 0
        assert scores.estimate[1] / np.sqrt(variance[1]) == pytest.approx(20)
        assert variance[2] == pytest.approx(draws[:, 2].var(ddof=1) / 20)


def test_no_d_by_d_matrix_is_formed():
    import tracemalloc

    d = 20_000
    scores = scores_from_draws([f"f{i}" for i in range(d)], np.random.default_rng(0).normal(size=(20, d)))
    tracemalloc.start()
    scores.cov.columns(np.arange(10))
    scores.cov.sample(10, np.random.default_rng(0))
    scores.cov.diagonal()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < d * d * 8 / 100
