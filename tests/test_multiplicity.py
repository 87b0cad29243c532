"""Corrections against their textbook definitions, in the caller's order."""

import numpy as np
import pytest

from kernsift.multiplicity import adjust


def step_up(pvalues, alpha, penalty=1.0):
    """Benjamini-Hochberg as first written: reject the smallest r with p_(r) <= alpha r / m."""
    order = np.argsort(pvalues)
    m = len(pvalues)
    passing = np.nonzero(pvalues[order] <= alpha * np.arange(1, m + 1) / (m * penalty))[0]
    rejected = np.zeros(m, bool)
    if len(passing):
        rejected[order[: passing[-1] + 1]] = True
    return rejected


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_bh_and_by_reject_what_the_step_up_rule_rejects(alpha):
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 40):
        for _ in range(50):
            p = rng.uniform(size=size) ** rng.uniform(1, 6)
            harmonic = (1 / np.arange(1, size + 1)).sum()
            assert ((adjust(p, "bh") <= alpha) == step_up(p, alpha)).all()
            assert ((adjust(p, "by") <= alpha) == step_up(p, alpha, harmonic)).all()


def test_holm_is_step_down():
    rng = np.random.default_rng(1)
    for _ in range(100):
        p = rng.uniform(size=8) ** 4
        order = np.argsort(p)
        rejected = np.zeros(8, bool)
        for place, index in enumerate(order):
            if p[index] > 0.05 / (8 - place):
                break
            rejected[index] = True
        assert ((adjust(p, "holm") <= 0.05) == rejected).all()


def test_same_as_scipy():
    from scipy.stats import false_discovery_control

    p = np.random.default_rng(2).uniform(size=60) ** 3
    assert adjust(p, "bh") == pytest.approx(false_discovery_control(p, method="bh"))
    assert adjust(p, "by") == pytest.approx(false_discovery_control(p, method="by"))


def test_none_and_empty():
    p = np.array([0.3, 0.1])
    assert adjust(p, None).tolist() == [0.3, 0.1]
    assert adjust(np.empty(0), "bh").tolist() == []
