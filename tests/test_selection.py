"""Selection rules: the selected part of a line against evaluation at many points."""

import numpy as np
import pytest

from kernsift.inference.selection_rules import Everything, Threshold, TopK


def inside(pieces, t):
    return bool(((pieces[:, 0] < t) & (t < pieces[:, 1])).any())


@pytest.mark.parametrize("k", [1, 3, 6])
@pytest.mark.parametrize("spread", [0.5, 1.5])
def test_truncation_of_top_k_is_where_the_feature_is_kept(k, spread):
    """Slopes above 1 (spread 1.5) let lines overtake from below, so the set is a union of several intervals."""
    rng = np.random.default_rng(1)
    unions = 0
    for _ in range(60):
        d = 6
        rule = TopK(k)
        intercept, slope = rng.normal(size=d), rng.normal(scale=spread, size=d)
        feature = int(rng.integers(d))
        intercept[feature], slope[feature] = 0.0, 1.0
        pieces = rule.truncation(intercept.copy(), slope.copy(), feature)
        unions += len(pieces) > 1
        for t in np.linspace(-8, 8, 331):
            assert inside(pieces, t) == (feature in rule.select(intercept + slope * t))
    if spread > 1 and k == 3:
        assert unions > 5


@pytest.mark.parametrize("k", [1, 2, 4])
def test_truncation_among_parallel_lines(k):
    """Few slopes and intercepts: scores that move as one, above, below or tied, before the feature and after it."""
    rng = np.random.default_rng(3)
    for _ in range(150):
        intercept, slope = rng.choice([-0.5, 0.0, 0.5], size=5), rng.choice([0.5, 1.0, 1.0, 1.5], size=5)
        feature = int(rng.integers(5))
        intercept[feature], slope[feature] = 0.0, 1.0
        pieces = TopK(k).truncation(intercept.copy(), slope.copy(), feature)
        # Lines cross at 0 and at +-1: between these and beyond.
        for t in (-1.7, -0.6, -0.3, 0.2, 0.7, 1.6):
            assert inside(pieces, t) == (feature in TopK(k).select(intercept + slope * t))


@pytest.mark.parametrize("k", [1, 3, 5, 6])
def test_half_lines_of_several_features_begin_where_each_is_kept(k):
    """Lines of many features at once: the beginning agrees with evaluation at many points, or is left open."""
    rng = np.random.default_rng(7)
    known = 0
    for spread in (0.3, 0.8):
        varies = rng.random(8) < 0.8
        rule = TopK(k, varies)
        features = np.flatnonzero(varies)
        intercept, slope = rng.normal(size=(2, len(features), 8))
        slope *= spread
        intercept[:, ~varies], slope[:, ~varies] = 0.0, 0.0
        own = (np.arange(len(features)), features)
        intercept[own], slope[own] = 0.0, 1.0
        lowest = rule.lowest(intercept.copy(), slope.copy(), features)
        for i, feature in enumerate(features):
            if np.isnan(lowest[i]):
                assert k >= 8 or (np.delete(slope[i], feature) >= 1.0).any()
                continue
            known += 1
            for t in np.linspace(-8, 8, 331):
                assert (t > lowest[i]) == (feature in rule.select(intercept[i] + slope[i] * t))
    assert known > 5


def test_pieces_are_disjoint_and_increasing():
    rng = np.random.default_rng(2)
    for _ in range(50):
        slope = rng.normal(scale=2, size=8)
        slope[0] = 1.0
        intercept = rng.normal(size=8)
        intercept[0] = 0.0
        pieces = TopK(3).truncation(intercept, slope, 0)
        flat = pieces.ravel()
        assert np.all(np.diff(flat) > 0)


def test_duplicate_columns_tie_in_table_order():
    rule = TopK(1)
    assert rule.select(np.array([1.0, 2.0, 2.0])).tolist() == [1]
    intercept, slope = np.array([0.3, 0.0, 0.0]), np.array([0.0, 1.0, 1.0])
    assert rule.truncation(intercept.copy(), slope.copy(), 1).tolist() == [[0.3, np.inf]]
    assert len(rule.truncation(intercept.copy(), slope.copy(), 2)) == 0


def test_keeps_agrees_with_select_row_by_row():
    rng = np.random.default_rng(4)
    samples = rng.normal(size=(200, 7))
    features = np.array([2, 0, 6])
    for rule in (TopK(1), TopK(3), TopK(7), Threshold(0.4, np.linspace(0.5, 2, 7)), Everything()):
        kept = rule.keeps(samples.copy(), features)
        for row, sample in zip(kept, samples, strict=True):
            chosen = set(rule.select(sample).tolist())
            assert row.tolist() == [f in chosen for f in features]


@pytest.mark.parametrize("k", [1, 3, 5])
def test_features_that_cannot_vary_rank_last(k):
    """Select, keeps, truncation and sides agree on it: a constant's score of 0 beats no other score, however low."""
    rng = np.random.default_rng(5)
    varies = np.array([True, False, True, True, False, True])
    rule = TopK(k, varies)
    for _ in range(60):
        intercept, slope = rng.normal(-1.0, 1.0, size=6), rng.normal(scale=0.7, size=6)
        intercept[~varies], slope[~varies] = 0.0, 0.0
        feature = int(rng.choice(np.flatnonzero(varies)))
        intercept[feature], slope[feature] = 0.0, 1.0
        pieces = rule.truncation(intercept.copy(), slope.copy(), feature)
        lines = intercept + slope * np.linspace(-6, 6, 61)[:, None]
        kept = rule.keeps(lines.copy(), np.arange(6))
        for t, row, values in zip(np.linspace(-6, 6, 61), kept, lines, strict=True):
            chosen = rule.select(values)
            assert inside(pieces, t) == (feature in chosen)
            assert row.tolist() == [i in chosen for i in range(6)]
            assert set(chosen[: min(k, 4)]) <= set(np.flatnonzero(varies))
    above, below = rule.sides(intercept, slope, rule.select(intercept))
    assert len(above.intercept) == min(k, 4)
    assert len(below.intercept) == max(4 - k, 0)
    own = rule.own_truncation(np.array([0, 2]))
    assert (own is None) == (k < 4)


def test_everything_ranks_by_standard_deviations():
    rule = Everything(np.array([1.0, 10.0, 0.0, 1.0]))
    assert rule.select(np.array([3.0, 20.0, 0.0, -0.5])).tolist() == [0, 1, 3, 2]


def test_a_threshold_keeps_nothing_that_cannot_vary():
    rule = Threshold(-1.0, np.array([1.0, 0.0]))
    assert rule.select(np.zeros(2)).tolist() == [0]
    assert rule.keeps(np.zeros((1, 2)), np.array([0, 1])).tolist() == [[True, False]]
    assert [piece.tolist() for piece in rule.own_truncation(np.array([0]))] == [[[-1.0, np.inf]]]


def test_threshold_orders_by_standard_deviations():
    rule = Threshold(1.0, np.array([1.0, 10.0, 1.0]))
    assert rule.select(np.array([3.0, 20.0, 0.5])).tolist() == [0, 1]
    assert rule.truncation(np.zeros(3), np.zeros(3), 1).tolist() == [[10.0, np.inf]]


def test_everything_keeps_all_and_cuts_nothing():
    assert Everything().select(np.array([1.0, 3.0, 2.0])).tolist() == [1, 2, 0]
    assert Everything().truncation(np.zeros(3), np.zeros(3), 0).tolist() == [[-np.inf, np.inf]]
