"""What has to hold for any data: properties of p-values, and what may not change an answer.

Examples are few and the same ones in every run. While working on the method, let it look for new ones:

    KERNSIFT_EXAMPLES=1000 python -m pytest tests/test_properties.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kernsift import InputError, Multiscale, Result, compare, relate, screen, topk_pvalues
from kernsift.estimators import HSIC, MMD, SCREEN
from kernsift.inference import TESTS

# Small samples are enough here, and that they are too small for calibration is another matter.
pytestmark = pytest.mark.filterwarnings("ignore::kernsift.CalibrationWarning")

MANY = int(os.environ.get("KERNSIFT_EXAMPLES", "0"))


def examples(count: int) -> Callable[[Any], Any]:
    """So many examples, always the same ones unless more are asked for."""
    return settings(
        max_examples=MANY or count,
        derandomize=not MANY,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


# Data -----------------------------------------------------------------------------------------------------------------

# Whole numbers have ties and constants, fractions have neither, and powers spread over many orders of magnitude.
CELLS = {
    "whole numbers": st.integers(-4, 4).map(float),
    "fractions": st.floats(-10, 10, width=32),
    "powers": st.integers(-30, 30).map(lambda power: 10.0**power),
}


@st.composite
def tables(draw: Any, rows: tuple[int, int] = (8, 16), columns: tuple[int, int] = (1, 4)) -> np.ndarray:
    shape = draw(st.integers(*rows)), draw(st.integers(*columns))
    return draw(hnp.arrays(np.float64, shape, elements=CELLS[draw(st.sampled_from(sorted(CELLS)))]))


@st.composite
def pairs(draw: Any, **sizes: Any) -> tuple[np.ndarray, np.ndarray]:
    """Two samples, which differ in their first column or in none."""
    both = draw(tables(rows=(16, 30), **sizes))
    cut = draw(st.integers(8, len(both) - 8))
    X, Y = both[:cut].copy(), both[cut:].copy()
    Y[:, 0] += draw(st.sampled_from([0.0, 0.0, 3.0, 20.0]))
    return X, Y


@st.composite
def smooth_pairs(draw: Any) -> tuple[np.ndarray, np.ndarray]:
    """Normal samples, in which no two columns tie."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    d = draw(st.integers(2, 6))
    X, Y = rng.normal(size=(draw(st.integers(10, 30)), d)), rng.normal(size=(draw(st.integers(10, 30)), d))
    Y[:, 0] += draw(st.sampled_from([0.0, 0.5, 2.0]))
    return X, Y


def sound(result: Result) -> None:
    for values in (result.pvalues, result.unconditional_pvalues, result.adjusted_pvalues):
        assert np.all((values >= 0) & (values <= 1))
        assert np.all(values > 0)  # nothing is impossible on finite data
    assert np.all(result.log_pvalues <= 0)
    # The correction starts from unconditional p-values, unless there is none.
    before = result.pvalues if result.correction is None else result.unconditional_pvalues
    assert np.all(result.adjusted_pvalues >= before)
    assert np.array_equal(result.rejected, result.adjusted_pvalues <= result.alpha)
    assert np.isfinite(result.scores).all()
    if result.effects is not None:
        assert np.all((result.effects >= 0) & (result.effects <= 1))
    if result.intervals is not None:
        assert np.all(result.intervals[:, 0] <= result.intervals[:, 1])
        assert np.all((result.intervals >= 0) & (result.intervals <= 1))


def agree(one: Result, other: Result, tolerance: float = 1e-6) -> None:
    """The same scores and p-values by name."""
    assert one.feature_names != () and set(one.feature_names) == set(other.feature_names)
    place = [other.feature_names.index(name) for name in one.feature_names]
    # Scores are normal quantiles of p-values: where p is 1 but for rounding, so is the score.
    scores = [np.maximum(values, -5) for values in (other.scores[place], one.scores)]
    np.testing.assert_allclose(*scores, rtol=tolerance, atol=tolerance)
    # Among equal scores the order of the table decides, so what is left out may differ there.
    order = np.sort(one.scores)[::-1]
    k = len(one.names)
    if k < len(order) and np.isclose(order[k - 1], order[k], rtol=1e-4, atol=1e-4):
        return
    assert set(one.names) == set(other.names)
    place = [other.names.index(name) for name in one.names]
    np.testing.assert_allclose(other.log_pvalues[place], one.log_pvalues, rtol=100 * tolerance, atol=100 * tolerance)


# p-values -------------------------------------------------------------------------------------------------------------

QUICK = {"multiscale": Multiscale(replicates=200)}


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("estimator", MMD)
@examples(8)
@given(pair=pairs(), k=st.integers(1, 4))
def test_p_of_compare(estimator: str, test: str, pair: tuple[np.ndarray, np.ndarray], k: int) -> None:
    k = min(k, pair[0].shape[1])
    sound(compare(*pair, k=k, estimator=estimator, test=QUICK.get(test, test), random_state=0))


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("estimator", HSIC)
@examples(8)
@given(table=tables(rows=(12, 24), columns=(2, 4)), k=st.integers(1, 3))
def test_p_of_relate(estimator: str, test: str, table: np.ndarray, k: int) -> None:
    X, y = table[:, 1:], table[:, 0]
    ask = {"k": min(k, X.shape[1]), "estimator": estimator, "test": QUICK.get(test, test), "random_state": 0}
    if np.ptp(y) > 0:
        sound(relate(X, y, **ask))
    else:
        with pytest.raises(InputError, match="the response must vary"):
            relate(X, y, **ask)


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("estimator", SCREEN)
@examples(5)
@given(pair=pairs(), k=st.integers(1, 2))
def test_p_of_screen(estimator: str, test: str, pair: tuple[np.ndarray, np.ndarray], k: int) -> None:
    others = {"same": pair[0][::-1], "other": pair[1]}
    sound(screen(pair[0], others, k=k, estimator=estimator, test=QUICK.get(test, test), random_state=0))


@examples(25)
@given(pair=pairs(), k=st.integers(1, 4), correction=st.sampled_from([None, "bh", "by", "holm"]))
def test_selection_only_costs(pair: tuple[np.ndarray, np.ndarray], k: int, correction: str | None) -> None:
    """Knowing that a feature was picked for its size, its size is less of a surprise."""
    k = min(k, pair[0].shape[1])
    result = compare(*pair, k=k, correction=correction, random_state=0)
    assert np.all(result.log_pvalues >= np.log(result.unconditional_pvalues) - 1e-9)


# What may not matter --------------------------------------------------------------------------------------------------

BANDWIDTHS = pytest.mark.parametrize("bandwidth", ["median", "adaptive"])


@BANDWIDTHS
@examples(20)
@given(pair=pairs(), seed=st.integers(0, 2**32))
def test_the_order_of_rows_in_compare(bandwidth: str, pair: tuple[np.ndarray, np.ndarray], seed: int) -> None:
    """The complete estimator uses every pair of rows; the others draw or cut, so that order matters to them."""
    rng = np.random.default_rng(seed)
    X, Y = pair
    ask = {"k": 1, "bandwidth": bandwidth, "random_state": 0}
    agree(compare(X, Y, **ask), compare(rng.permutation(X), rng.permutation(Y), **ask))


@BANDWIDTHS
@examples(20)
@given(table=tables(rows=(12, 24), columns=(2, 4)), seed=st.integers(0, 2**32))
def test_the_order_of_rows_in_relate(bandwidth: str, table: np.ndarray, seed: int) -> None:
    assume(np.ptp(table[:, 0]) > 0)
    shuffled = np.random.default_rng(seed).permutation(table)
    ask = {"k": 1, "bandwidth": bandwidth, "random_state": 0}
    agree(relate(table[:, 1:], table[:, 0], **ask), relate(shuffled[:, 1:], shuffled[:, 0], **ask))


def named(values: np.ndarray, order: np.ndarray) -> Any:
    import pandas as pd

    return pd.DataFrame(values, columns=[f"x{i}" for i in range(values.shape[1])]).iloc[:, order]


@pytest.mark.parametrize("estimator", HSIC)
@examples(6)
@given(pair=smooth_pairs(), seed=st.integers(0, 2**32))
def test_the_order_of_features_in_relate(estimator: str, pair: tuple[np.ndarray, np.ndarray], seed: int) -> None:
    X = pair[0]
    y = X[:, 0] + X[:, 1] ** 2
    order = np.random.default_rng(seed).permutation(X.shape[1])
    ask = {"k": 2, "estimator": estimator, "random_state": 0}
    agree(relate(named(X, np.arange(X.shape[1])), y, **ask), relate(named(X, order), y, **ask))


@pytest.mark.parametrize("test", [test for test in TESTS if test != "multiscale"])  # which draws its own noise
@pytest.mark.parametrize("estimator", MMD)
@examples(6)
@given(pair=smooth_pairs(), seed=st.integers(0, 2**32))
def test_the_order_of_features(estimator: str, test: str, pair: tuple[np.ndarray, np.ndarray], seed: int) -> None:
    X, Y = pair
    order = np.random.default_rng(seed).permutation(X.shape[1])
    ask = {"k": 2, "estimator": estimator, "test": test, "random_state": 0}
    one = compare(named(X, np.arange(X.shape[1])), named(Y, np.arange(X.shape[1])), **ask)
    agree(one, compare(named(X, order), named(Y, order), **ask))


SCALES = st.sampled_from([0.5, 3.0, 1e-6, 1e9, 1e-40, 1e40])


def distinct(values: np.ndarray) -> bool:
    """Whether a shift rounds nothing away, neither values nor differences of them."""
    return bool(np.abs(values).max() < 1e9 and np.diff(np.unique(values)).min(initial=1) > 1e-3)


@BANDWIDTHS
@pytest.mark.parametrize("estimator", ["complete", "cross"])
@examples(15)
@given(pair=pairs(), scale=SCALES, shift=st.sampled_from([0.0, 1.0, -100.0]))
def test_units_of_a_feature(
    estimator: str, bandwidth: str, pair: tuple[np.ndarray, np.ndarray], scale: float, shift: float
) -> None:
    """Celsius or Fahrenheit: the bandwidth goes along."""
    X, Y = (part.copy() for part in pair)
    assume(distinct(np.r_[X[:, 0], Y[:, 0]]))
    # Two different constants have draws without any spread, for which the cross estimator makes one up.
    assume(estimator != "cross" or (np.ptp(X[:, 0]) > 0 and np.ptp(Y[:, 0]) > 0))
    ask = {"k": 1, "estimator": estimator, "bandwidth": bandwidth, "random_state": 0}
    one = compare(X, Y, **ask)
    for part in (X, Y):
        part[:, 0] = part[:, 0] * scale + shift * scale
    agree(one, compare(X, Y, **ask), 1e-5)


@BANDWIDTHS
@examples(15)
@given(table=tables(rows=(12, 24), columns=(2, 4)), scale=SCALES, shift=st.sampled_from([0.0, 1.0, -100.0]))
def test_units_of_the_response(bandwidth: str, table: np.ndarray, scale: float, shift: float) -> None:
    X, y = table[:, 1:], table[:, 0]
    assume(np.ptp(y) > 0 and distinct(y))
    ask = {"k": 1, "bandwidth": bandwidth, "response": "numeric", "random_state": 0}
    agree(relate(X, y, **ask), relate(X, (y + shift) * scale, **ask), 1e-5)


@BANDWIDTHS
@pytest.mark.parametrize("estimator", ["complete", "cross"])
@examples(10)
@given(pair=smooth_pairs())
def test_the_sign_of_a_feature(estimator: str, bandwidth: str, pair: tuple[np.ndarray, np.ndarray]) -> None:
    """Landmarks are taken from one end on, so that this holds as well as they stand for all rows."""
    ask = {"k": None, "estimator": estimator, "bandwidth": bandwidth, "random_state": 0}
    one, other = compare(*pair, **ask), compare(*(-part for part in pair), **ask)
    np.testing.assert_allclose(other.scores, one.scores, rtol=0.05, atol=0.05)


@BANDWIDTHS
@pytest.mark.parametrize("n", [97, 120, 501])
def test_the_sign_of_a_rounded_column(bandwidth: str, n: int) -> None:
    """More rows than points: ranks are grouped in the same way from below and from above, of features and responses."""
    rng = np.random.default_rng(n)
    X = np.column_stack([rng.normal(size=n), rng.lognormal(size=n), rng.standard_cauchy(n)])
    y = 0.3 * X[:, 0] + rng.normal(size=n)
    ask = {"bandwidth": bandwidth, "random_state": 0}
    related = relate(X, y, **ask).scores
    for other in (relate(-X, y, **ask), relate(X, -y, **ask)):
        np.testing.assert_allclose(other.scores, related, atol=0.02)
    gaps = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    for values in (X, gaps):
        one, other = (compare(p[: n // 3], p[n // 3 :], missing="value", **ask) for p in (values, -values))
        np.testing.assert_allclose(other.scores, one.scores, atol=0.02)


@BANDWIDTHS
@examples(25)
@given(pair=pairs())
def test_which_sample_comes_first(bandwidth: str, pair: tuple[np.ndarray, np.ndarray]) -> None:
    ask = {"k": 1, "bandwidth": bandwidth, "random_state": 0}
    agree(compare(*pair, **ask), compare(*pair[::-1], **ask))


@pytest.mark.parametrize("estimator", MMD)
@examples(4)
@given(pair=pairs(), seed=st.integers(0, 2**32))
def test_a_seed_gives_the_same_bits(estimator: str, pair: tuple[np.ndarray, np.ndarray], seed: int) -> None:
    ask = {"k": 1, "estimator": estimator, "test": Multiscale(replicates=100), "random_state": seed}
    one, other = (compare(*pair, **ask) for _ in range(2))
    np.testing.assert_array_equal(one.scores, other.scores)
    np.testing.assert_array_equal(one.pvalues, other.pvalues)


# How much is worked on at a time, in memory; tables on disk have a test of their own in test_out_of_core.py.
PIECES = (
    "kernsift.kernels.bandwidths._CHUNK",
    "kernsift.estimators.block_sizes._BLOCK",
    "kernsift.inference.lines._BATCH",
    "kernsift.estimators.draws.moments._BATCHES",
    "kernsift.estimators.draws.moments._KEPT",
    "kernsift.estimators.covariance.alignment._NUMBERS",
    "kernsift.estimators.block._SMALL",
    "kernsift.estimators.draws.moments._COLUMNS",
    "kernsift.estimators.ustatistic.CHUNK",
    "kernsift.kernels.contingency._NUMBERS",
)


@pytest.mark.parametrize("test", ["exact", "polyhedral"])
@pytest.mark.parametrize(
    ("ask", "estimator"), [(compare, estimator) for estimator in MMD] + [(relate, estimator) for estimator in HSIC]
)
@examples(4)
@given(
    pair=smooth_pairs(),
    sizes=st.lists(st.integers(1, 100), min_size=len(PIECES) + 1, max_size=len(PIECES) + 1),
    jobs=st.integers(1, 3),
)
def test_the_size_of_pieces(
    ask: Callable[..., Result],
    estimator: str,
    test: str,
    pair: tuple[np.ndarray, np.ndarray],
    sizes: list[int],
    jobs: int,
) -> None:
    X, Y = pair
    data = (X, Y) if ask is compare else (X, X[:, 0] + X[:, 1] ** 2)
    given = {"k": 2, "estimator": estimator, "test": test, "random_state": 0}
    whole = ask(*data, **given)
    with pytest.MonkeyPatch.context() as patch:
        for name, size in zip(PIECES, sizes, strict=False):
            patch.setattr(name, size)
        patch.setattr("kernsift.estimators.draws.moments.batch_numbers", lambda like: sizes[-1])
        pieces = ask(*data, n_jobs=jobs, **given)
    agree(whole, pieces, 1e-9)


# The tests ------------------------------------------------------------------------------------------------------------


@st.composite
def scored(draw: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """Scores, their covariance, and how many to select."""
    d = draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    root = rng.normal(size=(d, draw(st.integers(1, 8)))) * draw(st.sampled_from([1e-6, 1.0, 1e6]))
    cov = root @ root.T + np.diag(rng.uniform(0.01, 1, d)) * np.trace(root @ root.T) / d
    return (
        rng.normal(size=d) * np.sqrt(np.diag(cov)) * draw(st.sampled_from([1.0, 3.0, 30.0])),
        cov,
        draw(st.integers(1, d)),
    )


@pytest.mark.parametrize("test", ["exact", "polyhedral", "naive"])
@examples(60)
@given(given_=scored(), step=st.floats(0.01, 5))
def test_a_larger_statistic_is_more_evidence(
    test: str, given_: tuple[np.ndarray, np.ndarray, int], step: float
) -> None:
    """Along the line on which the rest of the scores follow a selected one, its p-value only falls."""
    estimate, cov, k = given_
    before = topk_pvalues(estimate, cov, k, test)
    for place, i in enumerate(before.selected):
        moved = estimate + step * np.sqrt(cov[i, i]) * cov[:, i] / cov[i, i]
        after = topk_pvalues(moved, cov, k, test)
        if i not in after.selected or (test == "polyhedral" and set(after.selected) != set(before.selected)):
            continue
        p = after.pvalues[list(after.selected).index(i)]
        assert p <= before.pvalues[place] * (1 + 1e-7)


@examples(60)
@given(scored())
def test_exact_without_selection_is_naive(given_: tuple[np.ndarray, np.ndarray, int]) -> None:
    estimate, cov, _ = given_
    exact, naive = (topk_pvalues(estimate, cov, len(estimate), test) for test in ("exact", "naive"))
    np.testing.assert_array_equal(exact.selected, naive.selected)
    np.testing.assert_allclose(exact.pvalues, naive.pvalues, rtol=1e-9)


@examples(40)
@given(scored())
def test_all_tests_select_the_same_scores(given_: tuple[np.ndarray, np.ndarray, int]) -> None:
    estimate, cov, k = given_
    found = [topk_pvalues(estimate, cov, k, QUICK.get(test, test), random_state=0) for test in TESTS]
    best = np.argsort(-estimate, kind="stable")[:k]
    for answer in found:
        np.testing.assert_array_equal(answer.selected, found[0].selected)
        if k < len(estimate):  # all scores are listed in the order of their p-values
            np.testing.assert_array_equal(answer.selected, best)


@pytest.mark.parametrize("estimator", MMD)
@examples(5)
@given(pair=pairs(columns=(2, 4)), k=st.integers(1, 2))
def test_more_conditioning_never_changes_what_is_selected(
    estimator: str, pair: tuple[np.ndarray, np.ndarray], k: int
) -> None:
    ask = {"k": k, "estimator": estimator, "random_state": 0}
    first, *others = (compare(*pair, test=QUICK.get(test, test), **ask) for test in TESTS)
    for result in others:
        np.testing.assert_array_equal(result.selected, first.selected)
        np.testing.assert_array_equal(result.scores, first.scores)
