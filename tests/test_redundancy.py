"""Clusters of alike discoveries, and distinct ones."""

import pickle

import numpy as np
import pandas as pd
import pytest

from kernsift import SelectMMD, compare, relate, screen
from kernsift.estimators.scores import DenseCovariance, DiagonalCovariance
from kernsift.inference.redundancy import Clusters, keep_distinct, leader_clusters


def _stories(rng, n=300, copies=3, noise=0.3):
    """Two signals with noisy copies of each, and two features without any."""
    first, second = rng.normal(size=(2, n))
    columns = [signal + noise * rng.normal(size=n) for signal in (first, second) for _ in range(copies)]
    return np.column_stack([*columns, *rng.normal(size=(2, n))]), first + second + 0.5 * rng.normal(size=n)


def test_the_best_feature_represents_its_cluster():
    correlation = np.array([[1.0, 0.2, 0.6, 0.1], [0.2, 1.0, 0.7, 0.0], [0.6, 0.7, 1.0, 0.0], [0.1, 0.0, 0.0, 1.0]])
    assert leader_clusters(correlation).tolist() == [0, 1, 0, 2]


def test_clusters_are_stories():
    X, y = _stories(np.random.default_rng(0))
    result = relate(X, y, random_state=0)
    assert sorted(map(sorted, result.clusters)) == [["x0", "x1", "x2"], ["x3", "x4", "x5"]]
    assert [members[0] for members in result.clusters] == [
        next(name for name in result.names if name in members) for members in result.clusters
    ]
    assert "similar" in result.to_text() and "and 2 similar" in result.to_text()
    long = relate(pd.DataFrame(X, columns=[f"measurement number {i}" for i in range(8)]), y, random_state=0)
    best = long.clusters[0][0]
    assert f"like measureme…er {best[-1]}" in long.to_markdown()
    frame = result.to_frame()
    assert frame.groupby("cluster").size().to_dict() == {-1: 2, 0: 3, 1: 3}
    assert pickle.loads(pickle.dumps(result)).clusters == result.clusters


@pytest.mark.parametrize("estimator", ["complete", "incomplete", "block", "cross"])
def test_copies_are_alike_under_every_estimator(estimator):
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(400, 3)), rng.normal(1.5, 1.0, size=(400, 3))
    X[:, 1], Y[:, 1] = X[:, 0], Y[:, 0]
    assert ("x0", "x1") in [tuple(sorted(one)) for one in compare(X, Y, estimator=estimator, random_state=0).clusters]


def test_data_sets_that_share_a_reference_are_not_alike():
    rng = np.random.default_rng(0)
    # The fewer rows the reference has, the more it correlates the scores.
    candidates = {"shifted": rng.normal(2.0, 1.0, size=(800, 2)), "wide": rng.normal(0.0, 4.0, size=(800, 2))}
    result = screen(rng.normal(size=(100, 2)), candidates, random_state=0)
    assert result.rejected.all() and sorted(result.clusters) == [("shifted",), ("wide",)]
    assert "tell the same" not in result.to_html()


def test_correlations_among_many_rows_are_those_of_all_columns():
    rng = np.random.default_rng(2)
    X, y = _stories(rng, n=5000)
    features = np.array([3, 0, 1])
    cov, *_ = relate(X, y, random_state=0).redundancy._work
    assert np.allclose(cov.among(features), cov.columns(features)[features], atol=0.05)
    X, y = X[:300], y[:300]
    for given in (None, rng.normal(size=300)):
        # With a bandwidth of its own the response has one view.
        cov, *_ = relate(X, y, given=given, bandwidth="median", random_state=0).redundancy._work
        assert np.allclose(cov.among(features), cov.columns(features)[features], atol=1e-6)


def test_copies_are_alike_whichever_view_of_the_response_finds_them():
    """Forms of one column: rounded values may have their smallest p-value under another view of the response."""
    rng, views = np.random.default_rng(5), set()
    for _ in range(6):
        x, noise = rng.normal(size=(2, 300))
        X = np.column_stack([x, np.round(x), np.round(2 * x), np.exp(x), x + 0.2 * rng.normal(size=300)])
        result = relate(X, x + 0.7 * noise, random_state=0)
        cov, *_ = result.redundancy._work
        views.add(len({one.target for one in cov.factors}))
        assert len(result.clusters) == 1
    assert max(views) > 1


def test_features_that_were_not_found_have_no_cluster():
    cov = DenseCovariance(np.full((3, 3), 0.9) + 0.1 * np.eye(3))
    assert Clusters(cov, np.arange(3), np.array([True, False, True])).labels.tolist() == [0, -1, 0]
    assert Clusters(DiagonalCovariance(np.ones(3)), np.arange(3), np.zeros(3, dtype=bool)).labels.tolist() == [-1] * 3


def test_distinct_features_are_tested_given_those_before_them():
    """Feature i adds something to the kept ones unless one of them is its partner i - 1."""
    asked = []

    def pvalues(features, kept):
        asked.append((features.tolist(), kept.tolist()))
        return np.array([1.0 if feature % 2 and feature - 1 in kept else 0.0 for feature in features])

    assert keep_distinct(np.array([0, 1, 2, 3, 5, 4]), np.full(6, 0.01), pvalues).tolist() == [0, 2, 5, 4]
    assert asked[0] == ([1, 2, 3, 5, 4], [0])
    assert keep_distinct(np.array([], dtype=int), np.empty(0), pvalues).tolist() == []


def test_one_feature_of_each_story_is_distinct():
    """The response follows one feature of each story, and noisy copies add nothing to it: each of four copies is kept
    with a probability of about 0.04."""
    extra = []
    for seed in range(8):
        rng = np.random.default_rng([3, seed])
        X = rng.normal(size=(300, 8))
        X[:, [1, 2]] = X[:, [0]] + 0.7 * rng.normal(size=(300, 2))
        X[:, [4, 5]] = X[:, [3]] + 0.7 * rng.normal(size=(300, 2))
        y = X[:, 0] + X[:, 3] + 0.5 * rng.normal(size=300)
        result = relate(X, y, distinct=True, random_state=0)
        distinct = {name for name, own in zip(result.names, result.distinct, strict=True) if own}
        assert result.rejected.sum() >= 6
        assert {"x0", "x3"} <= distinct
        extra.append(len(distinct) - 2)
    # 32 copies: 3.5 standard deviations above 0.04.
    assert np.sum(extra) <= 32 * 0.04 + 3.5 * np.sqrt(32 * 0.04)
    assert np.allclose(result.all_pvalues, relate(X, y, random_state=0).all_pvalues)
    labels = y > 0
    selector = SelectMMD(distinct=True, random_state=0).fit(X, labels)
    assert 2 <= selector.support_.sum() < compare(X, by=labels, random_state=0).rejected.sum()


def test_many_copies_of_one_feature_leave_one_distinct_feature():
    """The false discovery rate of distinct features does not grow with the number of copies that are tested."""
    shares = []
    for seed in range(12):
        rng = np.random.default_rng([5, seed])
        cause = rng.normal(size=200)
        X = np.column_stack([cause, cause[:, None] + 0.5 * rng.normal(size=(200, 20))])
        labels = rng.random(200) < 1.0 / (1.0 + np.exp(-4.0 * cause))
        result = compare(X, by=labels, distinct=True, random_state=0)
        distinct = result.selected[result.distinct]
        if distinct[0] == 0:
            shares.append(1.0 - 1.0 / len(distinct))
    assert len(shares) >= 8
    # One false feature beside the cause is a share of 1/2, which has at most a probability of 0.1.
    assert sum(shares) <= 0.5 * (0.1 * len(shares) + 3.0 * np.sqrt(0.1 * len(shares)))
