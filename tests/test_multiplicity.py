"""Corrections against their textbook definitions, in the caller's order."""

import numpy as np
import pytest
from scipy.stats import norm

from kernsift.inference.multiple_testing import CORRECTIONS, adjust


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


def two_stage(pvalues, alpha, listed):
    """Benjamini, Krieger and Yekutieli (2006), definition 6, with the second stage cut to a list."""
    level = alpha / (1 + alpha)
    first = step_up(pvalues, level).sum()
    if first in (0, len(pvalues)):
        return np.full(len(listed), first > 0)
    return step_up_of_list(pvalues[listed], level, len(pvalues) - first)


def step_up_of_list(own, alpha, count):
    """Reject those with p <= alpha r / count, r the largest number such that at least r of the list have that."""
    numbers = [r for r in range(1, len(own) + 1) if (own <= alpha * r / count).sum() >= r]
    return own <= alpha * max(numbers, default=0) / count


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2, 0.5])
def test_short_lists_follow_their_rules(alpha):
    rng = np.random.default_rng(3)
    for _ in range(200):
        d = int(rng.integers(1, 30))
        p = rng.uniform(size=d) ** rng.uniform(1, 8)
        listed = rng.permutation(d)[: rng.integers(1, d + 1)]
        harmonic = (1 / np.arange(1, d + 1)).sum()
        assert ((adjust(p, "bh", listed) <= alpha) == step_up_of_list(p[listed], alpha, d)).all()
        assert ((adjust(p, "by", listed) <= alpha) == step_up_of_list(p[listed], alpha / harmonic, d)).all()
        assert ((adjust(p, "bky", listed) <= alpha) == two_stage(p, alpha, listed)).all()
        np.testing.assert_array_equal(adjust(p, "holm", listed), adjust(p, "holm")[listed])
        assert ((adjust(p, "bky") <= alpha) == two_stage(p, alpha, np.arange(d))).all()


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_a_list_finds_what_everything_finds_under_the_same_shape_rule_cut_to_the_list(correction):
    """With the k smallest p-values as the list, the rule is the step-up rule over everything with min(r, k) for r."""
    rng = np.random.default_rng(4)
    for _ in range(300):
        d = int(rng.integers(2, 30))
        k = int(rng.integers(1, d + 1))
        p = rng.uniform(size=d) ** rng.uniform(1, 8)
        listed = np.argsort(p)[:k]
        alpha = rng.choice([0.01, 0.05, 0.2])
        found = adjust(p, correction, listed) <= alpha
        everything = adjust(p, correction) <= alpha
        assert not (found & ~everything[listed]).any()
        if correction == "holm":
            expected = everything
        else:
            level, nulls = alpha, d
            if correction == "by":
                level = alpha / (1 / np.arange(1, d + 1)).sum()
            if correction == "bky":
                level = alpha / (1 + alpha)
                nulls = d - step_up(p, level).sum()
            shape = np.minimum(np.arange(1, d + 1), k)
            numbers = [r for r in range(1, d + 1) if (p * nulls <= level * shape[r - 1]).sum() >= r]
            expected = p * nulls <= level * shape[max(numbers) - 1] if numbers else np.zeros(d, bool)
        assert (found == expected[listed]).all()
        if everything.sum() <= k:
            assert found.sum() == everything.sum()  # nothing is lost to the list


@pytest.mark.slow
@pytest.mark.parametrize("dependent", [False, True])
@pytest.mark.parametrize("correction", ["bh", "bky"])
def test_the_false_discovery_rate_holds_for_lists_in_another_order_than_the_p_values(correction, dependent):
    """Scores of unequal variance, as those of the incomplete estimator: the k largest are not the most significant."""
    trials, d, k, alpha = 4000, 40, 12, 0.1
    rng = np.random.default_rng(5)
    shares, orders = np.empty(trials), 0
    for trial in range(trials):
        sd = rng.uniform(0.2, 3.0, d)
        true = np.arange(d) < 8
        noise = rng.normal(size=d)
        if dependent:
            noise = np.sqrt(0.5) * noise + np.sqrt(0.5) * rng.normal()
        z = noise + 2.5 * true
        listed = np.argsort(-z * sd)[:k]
        p = norm.sf(z)
        orders += (np.argsort(p[listed]) != np.arange(k)).any() and set(listed) != set(np.argsort(p)[:k])
        found = listed[adjust(p, correction, listed) <= alpha]
        shares[trial] = (~true[found]).mean() if len(found) else 0.0
    assert orders > 0.8 * trials
    # Four standard errors of the mean share above the level.
    assert shares.mean() < alpha + 4 * shares.std() / np.sqrt(trials)
    assert shares.mean() > 0.01  # the test could see a rate that is too high


def test_none_and_empty():
    p = np.array([0.3, 0.1])
    assert adjust(p, None).tolist() == [0.3, 0.1]
    assert adjust(np.empty(0), "bh").tolist() == []
