"""The public functions: any table as input, every estimator with every test, and results that print themselves."""

from __future__ import annotations

import inspect
import json
import re
import tracemalloc
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats
from threadpoolctl import threadpool_limits

from kernsift import Block, Incomplete, InputError, Multiscale, Result, compare, relate, screen, topk_pvalues
from kernsift.estimators import HSIC, MMD, SCREEN
from kernsift.inference import TESTS
from kernsift.inference.multiple_testing import CORRECTIONS
from kernsift.kernels.functions import KERNELS
from kernsift.options import ESTIMATOR_OPTIONS, TEST_OPTIONS, with_options

REGISTRY = {"compare": MMD, "relate": HSIC, "screen": SCREEN}
ASKED = [(question, name) for question, registry in REGISTRY.items() for name in registry]
ON_FEATURES = [pair for pair in ASKED if pair[0] != "screen"]
# Estimators that use every row in one fixed way, so that a seed has nothing to change.
FIXED = {"complete"}

# Small tables are quick; what is off about some estimators there is said in a warning, and tested in test_calibration.
pytestmark = pytest.mark.filterwarnings("ignore::kernsift.CalibrationWarning")


@pytest.fixture(autouse=True)
def _no_floating_point_accident():
    with np.errstate(all="raise", under="ignore"):
        yield


def normal(n: int, d: int, seed: int, shift: dict[int, float] | None = None) -> np.ndarray:
    values = np.random.default_rng(seed).normal(size=(n, d))
    for column, by in (shift or {}).items():
        values[:, column] += by
    return values


EVERY_OPTION = [
    field for record in (*ESTIMATOR_OPTIONS.values(), *TEST_OPTIONS.values()) for field in record().get_params()
]


def ask(question: str, estimator: str, X: Any = None, Y: Any = None, *, test: str = "exact", **options: Any) -> Result:
    """One of the three questions about the same kind of data: column, or candidate, 1 is the odd one."""
    options.setdefault("random_state", 1)
    quick = {"replicates": 50} if test == "multiscale" else {}
    named = {name: options.pop(name) for name in EVERY_OPTION if name in options}
    chosen = with_options(estimator, test, quick | named) if isinstance(estimator, str) else (estimator, test)
    options = {"estimator": chosen[0], "test": chosen[1], **options}
    if question == "compare":
        return compare(normal(70, 6, 0) if X is None else X, normal(50, 6, 1, {1: 2.0}) if Y is None else Y, **options)
    if question == "relate":
        X = normal(80, 6, 0) if X is None else X
        return relate(X, np.asarray(X)[:, 1] + 0.1 if Y is None else Y, **options)
    candidates = {f"c{i}": normal(24 + i, 3, 10 + i) + 2.0 * (i == 1) for i in range(6)}
    return screen(normal(30, 3, 0) if X is None else X, candidates if Y is None else Y, **options)


def sane(result: Result, k: int | None = None) -> Result:
    """What has to hold for every result, whatever the data."""
    k = len(result.selected) if k is None else k
    assert len(result.selected) == len(result.names) == len(set(result.selected.tolist())) == k
    for values in (result.pvalues, result.unconditional_pvalues, result.adjusted_pvalues):
        assert values.shape == (k,)
        assert ((values > 0) & (values <= 1)).all()
    assert np.isfinite(result.scores).all()
    assert (result.log_pvalues <= 0).all()
    corrected = result.correction is not None and not (result.listed and result.family == "selected")
    if result.correction != "bky":
        assert (result.adjusted_pvalues >= (result.unconditional_pvalues if corrected else result.pvalues)).all()
    np.testing.assert_array_equal(result.rejected, result.adjusted_pvalues <= result.alpha)
    np.testing.assert_array_equal(result.unconditional_pvalues, result.all_pvalues[result.selected])
    if corrected:
        assert result.all_rejected[result.selected[result.rejected]].all()
    assert result.names == tuple(result.feature_names[i] for i in result.selected)
    # Constant columns have a score of 0 and rank last; scores of others may be negative.
    ranks = np.where((result.scores == 0) & (result.all_pvalues == 1), -np.inf, result.scores)
    if not result.listed:
        assert (np.diff(result.pvalues) >= 0).all()
    elif result.settings["threshold"] is None:
        listed = ranks[result.selected]
        assert (listed[1:] <= listed[:-1]).all()
        assert np.delete(ranks, result.selected).max(initial=-np.inf) <= listed.min()
    if result.effects is not None and result.intervals is not None:
        assert ((result.intervals[:, 0] <= result.effects) & (result.effects <= result.intervals[:, 1])).all()
    str(result)
    json.dumps(result.to_dict(), allow_nan=False)
    return result


def same(one: Result, other: Result) -> None:
    """The same bits."""
    for name in (
        "selected",
        "scores",
        "pvalues",
        "log_pvalues",
        "unconditional_pvalues",
        "adjusted_pvalues",
        "rejected",
    ):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.names == other.names


# Every estimator with every test -------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize(("question", "estimator"), ASKED)
def test_every_combination_finds_the_odd_one(question: str, estimator: str, test: str) -> None:
    result = sane(ask(question, estimator, test=test, k=3), 3)
    assert result.selected[0] == 1
    assert result.question == question
    assert (result.settings["estimator"], result.settings["test"]) == (estimator, test)


@pytest.mark.parametrize(("question", "estimator"), ASKED)
def test_unconditional_pvalues_are_those_of_the_naive_test(question: str, estimator: str) -> None:
    exact, naive = (ask(question, estimator, test=test, k=3) for test in ("exact", "naive"))
    np.testing.assert_array_equal(exact.unconditional_pvalues, naive.pvalues)
    assert (exact.pvalues >= exact.unconditional_pvalues * (1 - 1e-9)).all()


@pytest.mark.parametrize(("question", "estimator"), ASKED)
def test_nothing_selected_away_needs_no_correction_for_it(question: str, estimator: str) -> None:
    """k=None and k=d keep everything, so that the exact test has nothing to condition on."""
    for k in (None, 6):
        result = sane(ask(question, estimator, k=k), 6)
        np.testing.assert_allclose(result.pvalues, result.unconditional_pvalues, rtol=1e-10)


# Tables --------------------------------------------------------------------------------------------------------------

NAMES = ["north", "east", "south", "west", "up", "down"]
FRAMES: dict[str, Callable[[np.ndarray], Any]] = {
    "pandas": lambda values: pd.DataFrame(values, columns=NAMES),
    "polars": lambda values: pl.DataFrame(values, schema=NAMES),
    "pyarrow": lambda values: pa.table(dict(zip(NAMES, values.T, strict=True))),
}


@pytest.mark.parametrize(("question", "estimator"), ON_FEATURES)
def test_all_tables_give_the_same_bits(question: str, estimator: str) -> None:
    X, Y = normal(70, 6, 0), normal(50, 6, 1, {1: 2.0})
    response = X[:, 1] ** 2
    plain = ask(question, estimator, X, Y if question == "compare" else response, k=3)
    assert plain.feature_names == tuple(f"x{i}" for i in range(6))
    for make in FRAMES.values():
        framed = ask(question, estimator, make(X), make(Y) if question == "compare" else response, k=3)
        assert framed.feature_names == tuple(NAMES)
        assert framed.names == tuple(NAMES[i] for i in plain.selected)
        np.testing.assert_array_equal(framed.scores, plain.scores)
        np.testing.assert_array_equal(framed.pvalues, plain.pvalues)


@pytest.mark.parametrize("estimator", MMD)
def test_screen_reads_all_tables_alike(estimator: str) -> None:
    base, others = normal(60, 6, 0), {"a": normal(50, 6, 1), "b": normal(40, 6, 2) + 1}
    plain = ask("screen", estimator, base, others, k=1)
    for make in FRAMES.values():
        framed = ask("screen", estimator, make(base), {name: make(values) for name, values in others.items()}, k=1)
        same(plain, framed)


def test_columns_are_matched_by_name() -> None:
    X, Y = FRAMES["pandas"](normal(70, 6, 0)), FRAMES["pandas"](normal(50, 6, 1, {1: 2.0}))
    same(ask("compare", "block", X, Y), ask("compare", "block", X, Y[NAMES[::-1]]))


@pytest.mark.parametrize("estimator", MMD)
@pytest.mark.parametrize(("n", "m"), [(30, 200), (200, 31)])
def test_unequal_sample_sizes(estimator: str, n: int, m: int) -> None:
    result = sane(ask("compare", estimator, normal(n, 5, 3), normal(m, 5, 4, {2: 2.5}), k=2), 2)
    assert result.names[0] == "x2"


@pytest.mark.parametrize("estimator", MMD)
def test_screen_with_unequal_candidates(estimator: str) -> None:
    candidates = {"few": normal(25, 4, 1), "odd": normal(90, 4, 2) + 2, "many": normal(300, 4, 3)}
    result = sane(ask("screen", estimator, normal(80, 4, 0), candidates, k=1), 1)
    assert result.names == ("odd",)
    assert result.feature_names == ("few", "odd", "many")


def with_categories(n: int, seed: int, odd: float) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "colour": np.where(rng.random(n) < odd, "red", "blue"),
            "shape": pd.Categorical(rng.choice(["round", "flat", "tall"], n)),
            "ripe": rng.random(n) < 0.5,
        }
    )


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("estimator", MMD)
def test_categorical_columns(estimator: str, test: str) -> None:
    X, Y = with_categories(150, 0, 0.02), with_categories(120, 1, 0.98)
    assert sane(ask("compare", estimator, X, Y, test=test, k=2), 2).names[0] == "colour"


RESPONSES: dict[str, Callable[[np.ndarray], Any]] = {
    "numbers": lambda x: x,
    "list": lambda x: x.tolist(),
    "strings": lambda x: np.where(x > 0, "high", "low"),
    "list of strings": lambda x: np.where(x > 0, "high", "low").tolist(),
    "categorical": lambda x: pd.Series(np.where(x > 0, "high", "low"), dtype="category"),
    "truth values": lambda x: x > 0,
    "three classes": lambda x: np.array(["a", "b", "c"])[np.digitize(x, [-0.5, 0.5])],
    "several columns": lambda x: np.column_stack([x, x**2]),
    "mixed columns": lambda x: pd.DataFrame({"number": x, "word": np.where(x > 0, "high", "low")}),
    "polars series": lambda x: pl.Series("y", x),
}


@pytest.mark.parametrize("kind", RESPONSES)
@pytest.mark.parametrize("estimator", HSIC)
def test_responses_of_every_kind(estimator: str, kind: str) -> None:
    X = normal(300, 5, 5)
    result = sane(ask("relate", estimator, X, RESPONSES[kind](X[:, 3]), k=2), 2)
    assert result.names[0] == "x3"


@pytest.mark.parametrize("estimator", HSIC)
def test_response_by_name_leaves_the_table(estimator: str) -> None:
    values = normal(100, 6, 5)
    frame = FRAMES["polars"](values)
    by_name = ask("relate", estimator, frame, "east", k=2)
    same(by_name, ask("relate", estimator, frame.drop("east"), frame["east"], k=2))
    assert "east" not in by_name.feature_names
    two = ask("relate", estimator, frame, ["east", "up"], k=2)
    assert two.feature_names == ("north", "south", "west", "down")


@pytest.mark.parametrize("estimator", HSIC)
def test_few_integers_are_categories_unless_asked_for_as_numbers(estimator: str) -> None:
    X = normal(100, 4, 5)
    y = np.arange(100) % 4
    as_strings = ask("relate", estimator, X, y.astype(str))
    same(as_strings, ask("relate", estimator, X, y, response="category"))
    same(as_strings, ask("relate", estimator, X, y))
    assert (as_strings.scores != ask("relate", estimator, X, y, response="numeric").scores).any()


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize(("question", "estimator"), ON_FEATURES)
def test_groups(question: str, estimator: str, test: str) -> None:
    X, Y = FRAMES["pandas"](normal(70, 6, 0)), FRAMES["pandas"](normal(50, 6, 1, {1: 2.5}))
    Y = Y if question == "compare" else X["east"].to_numpy() * 2
    result = ask(question, estimator, X, Y, test=test, groups={"way": ["east", "west"]}, k=2)
    assert result.feature_names == ("north", "way", "south", "up", "down")
    assert sane(result, 2).names[0] == "way"


def dot(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.asarray((A * B).sum(axis=-1))


@pytest.mark.parametrize("kernel", [*KERNELS, dot], ids=[*KERNELS, "function"])
@pytest.mark.parametrize(("question", "estimator"), ON_FEATURES)
def test_every_kernel(question: str, estimator: str, kernel: Any) -> None:
    X, Y = normal(70, 6, 0), normal(50, 6, 1, {1: 2.0})
    X, Y = X.round(), Y.round()
    more = {} if question == "compare" else {"response": "numeric"}
    result = sane(ask(question, estimator, X, Y if question == "compare" else X[:, 1], kernel=kernel, k=3, **more), 3)
    assert result.selected[0] == 1
    assert result.settings["kernel"] == (kernel if isinstance(kernel, str) else "dot")


@pytest.mark.parametrize("bandwidth", ["median", "joint", 1.5, 2, np.float32(1.0), np.linspace(0.5, 2, 6), [1.0] * 6])
@pytest.mark.parametrize(("question", "estimator"), ON_FEATURES)
def test_every_bandwidth(question: str, estimator: str, bandwidth: Any) -> None:
    assert sane(ask(question, estimator, bandwidth=bandwidth, k=3), 3).selected[0] == 1


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name not in ("triangle", "delta")])
@pytest.mark.parametrize("bandwidth", ["median", "joint", 2.0])
def test_screen_kernels_and_bandwidths(kernel: str, bandwidth: Any) -> None:
    for estimator in MMD:
        if kernel == "linear" and bandwidth == 2.0:
            with pytest.raises(InputError, match="bandwidth: kernel='linear' has none"):
                ask("screen", estimator, kernel=kernel, bandwidth=bandwidth, k=2)
            continue
        assert sane(ask("screen", estimator, kernel=kernel, bandwidth=bandwidth, k=2), 2).selected[0] == 1


# How many features ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "kept"),
    [(1, 1), (4, 4), (6, 6), (0.5, 3), (0.01, 1), (0.99, 6), (None, 6), (np.int64(2), 2)],
)
def test_k(k: Any, kept: int) -> None:
    for question, estimator in ASKED:
        result = sane(ask(question, estimator, k=k), kept)
        assert result.settings["k"] == (None if k is None else kept)
        assert result.listed == (kept < 6)


@pytest.mark.parametrize("k", [1, 6])
@pytest.mark.parametrize("test", TESTS)
def test_the_ends_of_k_with_every_test(test: str, k: int) -> None:
    for question, estimator in ASKED:
        sane(ask(question, estimator, test=test, k=k), k)


@pytest.mark.parametrize("question", REGISTRY)
def test_everything_is_tested_by_default(question: str) -> None:
    result = sane(ask(question, "complete"), 6)
    assert not result.listed
    np.testing.assert_array_equal(np.sort(result.selected), np.arange(6))
    same(result, ask(question, "complete", k=None))


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize(("question", "estimator"), ON_FEATURES)
def test_a_single_feature(question: str, estimator: str, test: str) -> None:
    X = normal(60, 1, 0)
    result = sane(ask(question, estimator, X, X[:40] + 1 if question == "compare" else X[:, 0], test=test), 1)
    assert result.selected.tolist() == [0]


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize(("question", "estimator"), ASKED)
def test_threshold(question: str, estimator: str, test: str) -> None:
    everything, none = (ask(question, estimator, test=test, threshold=level) for level in (-1e6, 1e6))
    sane(everything, 6)
    sane(none, 0)
    assert "so none is listed" in none.summary()
    some = sane(ask(question, estimator, test=test, threshold=1.0))
    assert 1 <= len(some.selected) < 6
    assert 1 in some.selected
    assert some.settings["threshold"] == 1.0
    # Those kept and no others have a naive p-value of at most Phibar(1).
    assert (some.unconditional_pvalues <= stats.norm.sf(1.0) * (1 + 1e-9)).all()
    left = np.delete(np.arange(6), some.selected)
    naive = ask(question, estimator, test="naive", k=None)
    assert (naive.pvalues[np.isin(naive.selected, left)] >= stats.norm.sf(1.0) * (1 - 1e-9)).all()


@pytest.mark.parametrize("correction", [None, *CORRECTIONS])
def test_corrections(correction: str | None) -> None:
    """Against SciPy where it has them, and Holm written out: over the list, and over everything."""
    options: dict[str, Any] = {"correction": correction}
    for options in ({"k": 5, "family": "selected"}, {"k": None}):
        result = sane(ask("compare", "incomplete", correction=correction, **options))
        _check_correction(result.pvalues, result.adjusted_pvalues, correction)
        assert (result.correction, result.family) == (correction, options.get("family", "all"))


def _check_correction(p: np.ndarray, adjusted: np.ndarray, correction: str | None) -> None:
    order, count = np.argsort(p), len(p)
    if correction in ("bh", "by"):
        expected = stats.false_discovery_control(p, method=correction)
    elif correction == "holm":
        expected = np.empty(count)
        expected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(count, 0, -1)), 1.0)
    elif correction == "bky":
        # At each level the two stages; between levels the adjusted p-value tells.
        for alpha in (0.001, 0.05, 0.3):
            first = alpha / (1 + alpha)
            kept = count - int((stats.false_discovery_control(p) <= first).sum())
            second = stats.false_discovery_control(p) * kept / count
            np.testing.assert_array_equal(adjusted <= alpha, second <= first)
        return
    else:
        expected = p
    np.testing.assert_allclose(adjusted, expected, rtol=1e-12)


# One family of tests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("estimator", ["complete", "incomplete"])
def test_a_short_list_is_corrected_over_everything(estimator: str, correction: str) -> None:
    """What is found with k is the shape rule over all unconditional p-values, and never more than k=None finds."""
    for seed, test in enumerate(TESTS):
        X, Y = normal(60, 12, seed), normal(60, 12, 50 + seed, {1: 1.0, 2: 0.8, 3: 0.6, 4: 0.5})
        options: dict[str, Any] = {"correction": correction, "random_state": seed, "alpha": 0.1}
        every = sane(ask("compare", estimator, X, Y, k=None, **options))
        for selection in ({"k": 2}, {"k": 4}, {"k": 8}, {"threshold": 1.0}):
            result = sane(ask("compare", estimator, X, Y, test=test, **selection, **options))
            np.testing.assert_allclose(result.all_pvalues, every.all_pvalues, rtol=1e-9)
            expected = _listed_rejections(result.all_pvalues, result.selected, correction, result.alpha)
            np.testing.assert_array_equal(result.rejected, expected)
            np.testing.assert_array_equal(result.all_rejected, every.all_rejected)
            outside = np.setdiff1d(np.flatnonzero(every.all_rejected), result.selected)
            assert result.found_outside == len(outside)


def _listed_rejections(p: np.ndarray, listed: np.ndarray, correction: str, alpha: float) -> np.ndarray:
    """The rules as they are written down."""
    d, own = len(p), p[listed]
    if correction == "holm":
        order = np.argsort(p)
        passed = np.minimum.accumulate(p[order] <= alpha / np.arange(d, 0, -1))
        return np.isin(listed, order[passed])
    level, nulls = alpha, d
    if correction == "by":
        level = alpha / (1 / np.arange(1, d + 1)).sum()
    if correction == "bky":
        level = alpha / (1 + alpha)
        nulls = d - int((stats.false_discovery_control(p) <= level).sum())
    counts = [r for r in range(1, len(own) + 1) if (own * nulls <= level * r).sum() >= r]
    return own * nulls <= level * max(counts, default=0)


def test_family_selected_and_no_correction_are_the_papers_procedure() -> None:
    X, Y = normal(60, 12, 3), normal(60, 12, 4, {1: 1.0, 2: 0.8})
    options: dict[str, Any] = {"k": 5, "estimator": "incomplete", "random_state": 0}
    plain = compare(X, Y, correction=None, **options)
    np.testing.assert_array_equal(plain.adjusted_pvalues, plain.pvalues)
    selected = compare(X, Y, family="selected", **options)
    np.testing.assert_allclose(selected.adjusted_pvalues, stats.false_discovery_control(plain.pvalues), rtol=1e-12)


@pytest.mark.parametrize(("question", "estimator"), ASKED)
@pytest.mark.parametrize("test", TESTS)
def test_no_covariance_where_no_selection_needs_it(
    question: str, estimator: str, test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Testing everything, or whatever passes a threshold, takes variances only."""
    from kernsift.estimators import scores
    from kernsift.estimators.covariance import alignment
    from kernsift.estimators.draws import moments as draw_moments

    def refuse(*_: Any) -> np.ndarray:
        raise AssertionError("covariance computed")

    kinds = [getattr(scores, name) for name in dir(scores) if name.endswith("Covariance") and name != "Covariance"]
    for kind in [*kinds, draw_moments.DrawCovariance, alignment.AlignmentCovariance]:
        for method in ("columns", "sample"):
            monkeypatch.setattr(kind, method, refuse)
    result = ask(question, estimator, test=test, k=None)
    assert len(result.names) == 6
    assert result.effects is not None
    if test in ("exact", "naive"):
        ask(question, estimator, test=test, threshold=0.5)
    if test == "exact":
        with pytest.raises(AssertionError, match="covariance computed"):
            ask(question, estimator, test=test, k=2)


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize(("question", "estimator"), ON_FEATURES)
def test_constant_columns_are_selected_last(question: str, estimator: str, test: str) -> None:
    """Their score of 0 is larger than that of many columns that vary."""
    X, Y = normal(60, 8, 3), normal(50, 8, 4)
    X[:, [0, 5]] = Y[:, [0, 5]] = 1.0
    Y = Y if question == "compare" else np.arange(60) % 7
    everything = ask(question, estimator, X, Y, k=None)
    assert (everything.scores < 0).any()
    assert everything.selected[-2:].tolist() == [0, 5]
    for k in (5, 6):
        result = sane(ask(question, estimator, X, Y, test=test, k=k), k)
        assert not np.isin([0, 5], result.selected).any()
    seven = sane(ask(question, estimator, X, Y, test=test, k=7), 7)
    assert seven.selected[-1] == 0
    assert seven.pvalues[-1] == 1
    # All that can vary are on the list, whatever their scores: there is nothing to condition on.
    np.testing.assert_allclose(seven.pvalues, seven.unconditional_pvalues, rtol=1e-9)
    assert not np.isin([0, 5], ask(question, estimator, X, Y, test=test, threshold=-5.0).selected).any()


# Effects and intervals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("correction", [None, "bh", "by", "holm"])
def test_intervals_leave_out_0_exactly_for_discoveries(correction: str | None) -> None:
    """False coverage rate intervals at 1 - alpha agree with the decision; without a correction each does by itself."""
    found = 0
    for seed in range(6):
        X, Y = normal(60, 12, seed), normal(60, 12, 50 + seed, {1: 0.9, 2: 0.6, 3: 0.5, 4: 0.4})
        for alpha in (0.05, 0.2):
            result = compare(X, Y, alpha=alpha, confidence_level=1 - alpha, correction=correction, random_state=0)
            assert result.intervals is not None and result.effects is not None
            low = result.intervals[:, 0]
            if correction in (None, "bh"):
                np.testing.assert_array_equal(low > 0, result.rejected)
            else:  # stricter than the intervals ask for, so that theirs leave out 0 too
                assert (low[result.rejected] > 0).all()
                assert (low[~result.rejected] == 0).all()
            found += int(result.rejected.sum())
    assert 10 < found < 12 * 12


def test_the_level_of_intervals_is_their_own() -> None:
    X, Y = normal(80, 6, 0), normal(80, 6, 1, {1: 0.8, 2: 0.5})
    narrow, usual = (compare(X, Y, k=3, confidence_level=level, random_state=0) for level in (0.5, 0.95))
    assert narrow.intervals is not None and usual.intervals is not None
    np.testing.assert_array_equal(narrow.rejected, usual.rejected)
    assert (np.diff(narrow.intervals) <= np.diff(usual.intervals)).all()
    assert (np.diff(narrow.intervals) < np.diff(usual.intervals)).any()
    strict = compare(X, Y, k=3, alpha=0.001, random_state=0)
    np.testing.assert_array_equal(strict.intervals, usual.intervals)


@pytest.mark.parametrize("test", ["exact", "multiscale", "polyhedral"])
def test_estimates_of_a_short_list_are_below_the_raw_ones(test: str) -> None:
    X, Y = normal(60, 12, 0), normal(60, 12, 50, {1: 0.9, 2: 0.6})
    result = sane(ask("compare", "complete", X, Y, test=test, k=4))
    raw = compare(X, Y, random_state=1)
    assert result.effects is not None and result.raw_effects is not None and raw.effects is not None
    np.testing.assert_allclose(result.raw_effects, raw.effects[[raw.names.index(name) for name in result.names]])
    np.testing.assert_array_equal(raw.effects, raw.raw_effects)
    if test != "polyhedral":  # the whole set can bound a score from above, and then the estimate may be larger
        assert (result.effects <= result.raw_effects).all()
    assert (result.effects != result.raw_effects).any()


# Options -------------------------------------------------------------------------------------------------------------


def options_of(function: Callable[..., Any]) -> set[str]:
    """Keywords, but for those that no user passes."""
    names = {p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY}
    return names - {"rng", "all_effects"}


@pytest.mark.parametrize("name", ["incomplete", "block", "multiscale"])
def test_the_records_of_options_have_the_keywords_of_the_functions(name: str) -> None:
    """Every option of an estimator or test is a field of its record, and the other way round."""
    registries = (MMD, HSIC, SCREEN, TESTS)
    record = {**ESTIMATOR_OPTIONS, **TEST_OPTIONS}[name]()
    for function in [registry[name] for registry in registries if name in registry]:
        assert options_of(function) - {"adaptive"} == set(record.get_params())


@pytest.mark.parametrize("option", [*EVERY_OPTION, "no_such_option"])
@pytest.mark.parametrize(("question", "estimator"), ASKED)
def test_options_that_do_not_apply_are_refused(question: str, estimator: str, option: str) -> None:
    for test in TESTS:
        if option in options_of(REGISTRY[question][estimator]) | options_of(TESTS[test]):
            continue
        with pytest.raises(InputError, match=rf'^{option}: is no option of estimator="{estimator}".*{test}'):
            with_options(estimator, test, {option: 1})


GOOD_OPTIONS = {
    ("incomplete", "exact"): [{"r": 3}, {"r": 0.5}, {"design": "independent"}, {"r": np.int64(2), "design": "shared"}],
    ("block", "exact"): [{"block_size": 5}, {"block_size": np.int64(10)}],
    ("incomplete", "multiscale"): [{"model": model} for model in ("linear", "constant", "quadratic", "singular", "aic")]
    + [{"scales": np.array([0.5, 1.0, 2.0])}, {"scales": (0.6, 1, 1.5, 3)}, {"resampling": "rows", "replicates": 5}],
}


@pytest.mark.parametrize(
    ("estimator", "test", "options"), [(*pair, options) for pair, given in GOOD_OPTIONS.items() for options in given]
)
@pytest.mark.parametrize("question", REGISTRY)
def test_options_arrive_and_are_recorded(question: str, estimator: str, test: str, options: dict[str, Any]) -> None:
    result = sane(ask(question, estimator, test=test, k=3, **options), 3)
    assert set(options) <= set(result.settings)


# Bad input -----------------------------------------------------------------------------------------------------------

X6, Y6 = normal(40, 6, 0), normal(30, 6, 1)
F6 = FRAMES["pandas"](X6)
G6 = FRAMES["pandas"](Y6)
HOLES = F6.mask((F6.index.to_numpy()[:, None] < 3) & (np.array(NAMES) == "east"))
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "k=0": (lambda: compare(X6, Y6, k=0), r"^k: needs a whole number of at least 1.*got 0"),
    "k negative": (lambda: compare(X6, Y6, k=-2), r"^k: needs a whole number.*got -2"),
    "k too large": (lambda: compare(X6, Y6, k=7), r"^k: at most the number of features, 6,.*got 7.*k=None"),
    "k true": (lambda: compare(X6, Y6, k=True), r"^k: needs a whole number.*got True"),
    "k=2.5": (lambda: compare(X6, Y6, k=2.5), r"^k: needs a whole number.*fraction.*got 2.5"),
    "k nan": (lambda: compare(X6, Y6, k=float("nan")), r"^k: needs a whole number.*got nan"),
    "k text": (lambda: relate(X6, X6[:, 0], k="all"), r"^k: needs a whole number.*'all'"),
    "k and threshold": (lambda: compare(X6, Y6, k=3, threshold=1.0), r"^threshold: .*leave out k=3\.$"),
    "threshold nan": (lambda: compare(X6, Y6, threshold=float("nan")), r"^threshold: needs a number.*got nan"),
    "threshold text": (lambda: compare(X6, Y6, threshold="high"), r"^threshold: needs a number.*'high'"),
    "alpha=0": (lambda: compare(X6, Y6, alpha=0), r"^alpha: needs a number between 0 and 1, got 0"),
    "alpha=1": (lambda: compare(X6, Y6, alpha=1), r"^alpha: .*got 1"),
    "alpha text": (lambda: compare(X6, Y6, alpha="5%"), r"^alpha: .*got '5%'"),
    "correction": (lambda: compare(X6, Y6, correction="fdr"), r"^correction: needs None, 'bh'.*got 'fdr'"),
    "family": (lambda: compare(X6, Y6, family="list"), r"^family: needs 'all' .*or 'selected'.*got 'list'"),
    "level": (
        lambda: compare(X6, Y6, confidence_level=95),
        r"^confidence_level: needs a number.*got 95; 0.95 is usual",
    ),
    "k auto": (lambda: compare(X6, Y6, k="auto"), r"^k: needs a whole number.*None to test everything, got 'auto'"),
    "correction list": (lambda: compare(X6, Y6, correction=["bh"]), r"^correction: needs None, 'bh'"),
    "estimator": (lambda: compare(X6, Y6, estimator="incomplet"), r"^estimator: .*did you mean 'incomplete'"),
    "estimator None": (lambda: compare(X6, Y6, estimator=None), r"^estimator: needs one of .*got None"),
    "linear HSIC": (lambda: relate(X6, X6[:, 0], estimator="linear"), r"^estimator: needs one of .*got 'linear'"),
    "test": (lambda: compare(X6, Y6, test="exakt"), r"^test: .*did you mean 'exact'"),
    "kernel": (lambda: compare(X6, Y6, kernel="gausian"), r"^kernel: .*did you mean 'gaussian'"),
    "bandwidth 0": (lambda: compare(X6, Y6, bandwidth=0), r"^bandwidth: positive finite.*'median'"),
    "bandwidth length": (lambda: compare(X6, Y6, bandwidth=np.ones(5)), r"^bandwidth: one number per feature.*\(6,\)"),
    "random_state": (lambda: compare(X6, Y6, random_state=-1), r"^random_state: needs a non-negative.*got -1"),
    "random_state text": (lambda: compare(X6, Y6, random_state="1"), r"^random_state: .*got '1'"),
    "random_state true": (lambda: compare(X6, Y6, random_state=True), r"^random_state: .*got True"),
    "missing": (
        lambda: compare(HOLES, G6, missing="error"),
        r"^X: 3 of 40 rows have missing values, in columns 'east' \(3\).*'drop'",
    ),
    "missing Y": (
        lambda: compare(G6, HOLES, missing="error"),
        r"^Y: 3 of 40 rows have missing values, in columns 'east' \(3\)",
    ),
    "missing in y": (
        lambda: relate(X6, HOLES["east"].to_numpy(), missing="error"),
        r"^y: 3 of 40 rows have missing values",
    ),
    "missing choice": (
        lambda: compare(HOLES, G6, missing="ignore"),
        r"^missing: needs 'column', 'value', 'drop' or 'error', got",
    ),
    "infinite": (lambda: compare(np.where(X6 > 2, np.inf, X6), Y6), r"^X: infinite values in 'x\d"),
    "names differ": (
        lambda: compare(F6, G6.rename(columns={"east": "eats"})),
        r"^Y: the same columns.*lacks 'east'.*did you mean 'eats'",
    ),
    "widths differ": (lambda: compare(X6, Y6[:, :5]), r"^Y: as many columns.*\(40, 6\).*\(30, 5\)"),
    "strings in one": (
        lambda: compare(F6, G6.astype({"up": str})),
        r"^Y: 1 column needs a decision: 'up' holds numbers as text",
    ),
    "a string among numbers": (
        lambda: compare(F6.astype({"up": object}).replace({"up": {X6[4, 4]: "much"}}), G6),
        r"^X: 1 column needs a decision: 'up' holds numbers.* text such as 'much'",
    ),
    "complex": (lambda: compare(X6 + 1j, Y6), r"^X: 6 columns need.*'x0', .* hold values of type complex128"),
    "objects": (
        lambda: compare(np.full((40, 6), object()), Y6),
        r"^X: 6 columns need.*'x0', .* hold values of type object",
    ),
    "dates": (
        lambda: compare(F6.assign(up=pd.Timestamp(0)), G6),
        r"^Y: column 'up' must be of the same kind as in X, but it holds dates in X and numbers in Y",
    ),
    "three dimensions": (lambda: compare(X6[None], Y6), r"^X: a table with rows and columns.*\(1, 40, 6\)"),
    "a number": (lambda: compare(3, Y6), r"^X: a table with rows and columns"),
    "no columns": (lambda: compare(X6[:, :0], Y6[:, :0]), r"^X: at least one column"),
    "one row": (lambda: compare(X6[:1], Y6), r"^X: at least 2 rows are needed, got 1"),
    "constant y": (lambda: relate(X6, np.ones(40)), r"^y: the response must vary.*all 40 rows"),
    "unknown target": (lambda: relate(F6, "eastt"), r"^y: X has no column 'eastt' \(did you mean 'east'\?\)"),
    "target of an array": (lambda: relate(X6, "east"), r"^y: 'east' cannot name columns of X, which has none"),
    "short y": (lambda: relate(X6, X6[:-1, 0]), r"^y: .*X has 40 rows and y has 39"),
    "response": (lambda: relate(X6, X6[:, 0], response="class"), r"^response: needs 'auto', 'numeric', 'category'"),
    "words as numbers": (lambda: relate(X6, ["a", "b"] * 20, response="numeric"), r"^y: response='numeric' needs"),
    "two columns of words as numbers": (
        lambda: relate(X6, pd.DataFrame({"u": ["a", "b"] * 20, "v": ["c", "d"] * 20}), response="numeric"),
        r"^y: response='numeric' needs numbers, but 'u', 'v' hold categories",
    ),
    "group unknown": (lambda: compare(F6, G6, groups={"g": ["eastt"]}), r"^groups: .*'eastt'.*did you mean 'east'"),
    "group of a list": (lambda: compare(F6, G6, groups=["east"]), r"^groups: a mapping"),
    "r=0": (lambda: compare(X6, Y6, estimator=Incomplete(r=0)), r"^r: a positive finite number.*got 0"),
    "r negative": (lambda: relate(X6, X6[:, 0], estimator=Incomplete(r=-1.0)), r"^r: a positive finite.*got -1"),
    "r infinite": (lambda: compare(X6, Y6, estimator=Incomplete(r=float("inf"))), r"^r: a positive finite.*got inf"),
    "r text": (lambda: compare(X6, Y6, estimator=Incomplete(r="1")), r"^r: a positive finite.*got '1'"),
    "design": (lambda: compare(X6, Y6, estimator=Incomplete(design="x")), r"^design: 'shared' or 'independent'"),
    "block 1": (lambda: compare(X6, Y6, estimator=Block(block_size=1)), r"^block_size: .*2 to 15.*got 1"),
    "block 16": (lambda: compare(X6, Y6, estimator=Block(block_size=16)), r"^block_size: .*2 to 15.*got 16"),
    "block 3": (lambda: relate(X6, X6[:, 0], estimator=Block(block_size=3)), r"^block_size: .*4 to 20.*got 3"),
    "block 2.5": (lambda: compare(X6, Y6, estimator=Block(block_size=2.5)), r"^block_size: a whole number.*got 2.5"),
    "replicates": (lambda: compare(X6, Y6, test=Multiscale(replicates=0)), r"^replicates: needs a positive.*got 0"),
    "model": (lambda: compare(X6, Y6, test=Multiscale(model="cubic")), r"^model: needs 'linear'.*'cubic'"),
    "resampling": (
        lambda: compare(X6, Y6, test=Multiscale(resampling="x")),
        r"^resampling: needs 'normal' or 'rows'",
    ),
    "scales": (lambda: compare(X6, Y6, test=Multiscale(scales=[1, 2])), r"^scales: needs at least three"),
    "scales 0": (lambda: compare(X6, Y6, test=Multiscale(scales=[0, 1, 2])), r"^scales: needs .*positive"),
    "scales text": (lambda: compare(X6, Y6, test=Multiscale(scales="wide")), r"^scales: needs at least three"),
    "no candidates": (lambda: screen(X6, {}), r"^candidates: at least one"),
    "a list of candidates": (lambda: screen(X6, [Y6]), r"^candidates: a mapping"),
    "a candidate too narrow": (lambda: screen(X6, {"a": Y6[:, :3]}), r"^candidates\['a'\]: as many columns"),
    "scores nan": (lambda: topk_pvalues([1.0, np.nan], np.eye(2), 1), r"^estimate: needs .*finite"),
    "scores text": (lambda: topk_pvalues(["a", "b"], np.eye(2), 1), r"^estimate: needs .*finite"),
    "scores complex": (lambda: topk_pvalues([1j, 2.0], np.eye(2), 1), r"^estimate: needs .*finite"),
    "no scores": (lambda: topk_pvalues([], np.eye(0), 1), r"^estimate: needs .*finite"),
    "cov shape": (lambda: topk_pvalues([1.0, 2.0], np.eye(3), 1), r"^cov: .*\(2, 2\).*\(3, 3\)"),
    "cov not symmetric": (lambda: topk_pvalues([1.0, 2.0], [[1, 0.5], [0, 1]], 1), r"^cov: .*symmetric"),
    "cov negative": (lambda: topk_pvalues([1.0, 2.0], [[1, 2], [2, 1]], 1), r"^cov: .*positive semi-definite"),
    "variances negative": (lambda: topk_pvalues([1.0, 2.0], [1, -1], 1), r"^cov: .*positive semi-definite"),
    "topk k": (lambda: topk_pvalues([1.0, 2.0], np.eye(2), 3), r"^k: at most the number of features, 2"),
    "topk test": (lambda: topk_pvalues([1.0, 2.0], np.eye(2), 1, "bootstrap"), r"^test: needs one of"),
    "topk option": (
        lambda: topk_pvalues([1.0, 2.0], np.eye(2), 1, Multiscale(replicates=0)),
        r"^replicates: needs a positive",
    ),
    "topk seed": (lambda: topk_pvalues([1.0, 2.0], np.eye(2), 1, random_state=-1), r"^random_state: .*got -1"),
    "backend": (lambda: compare(X6, Y6).to_frame("panda"), r"^backend: needs .*'pandas'.*got 'panda'"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_name_the_argument_and_the_fix(case: str) -> None:
    call, message = BAD[case]
    with pytest.raises(InputError, match=message) as caught:
        call()
    text = str(caught.value)
    assert text.endswith((".", "?")), text
    assert "\n" not in text
    assert len(text) < 400


@pytest.mark.parametrize("question", REGISTRY)
@pytest.mark.parametrize("estimator", ["", "Incomplete ", 3, None, ["block"]])
def test_unknown_estimators_are_refused_by_every_question(question: str, estimator: Any) -> None:
    with pytest.raises(InputError, match=r"^estimator: needs one of "):
        ask(question, estimator)


def test_k_is_refused_before_the_work_starts() -> None:
    def fail(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        raise AssertionError("kernel evaluated")

    for question, bad in product(("compare", "relate"), ({"k": 0}, {"k": 99}, {"threshold": "high"})):
        with pytest.raises(InputError):
            ask(question, "incomplete", kernel=fail, **bad)
    with pytest.raises(InputError):
        ask("screen", "incomplete", kernel=fail, k=99)


# Awkward data --------------------------------------------------------------------------------------------------------

EVERY_TEST = [(*pair, test) for pair, test in product(ON_FEATURES, TESTS)]


@pytest.mark.parametrize(("question", "estimator", "test"), EVERY_TEST)
def test_constant_columns_are_no_evidence(question: str, estimator: str, test: str) -> None:
    X, Y = normal(60, 6, 0), normal(50, 6, 1, {1: 2.0})
    X[:, [0, 3]] = Y[:, [0, 3]] = 1.7
    result = sane(ask(question, estimator, X, Y if question == "compare" else X[:, 1], test=test, k=None), 6)
    flat = np.isin(result.selected, [0, 3])
    assert (result.pvalues[flat] == 1).all()
    assert (result.scores[[0, 3]] == 0).all()
    assert "'x0', 'x3'" in result.notes[0]
    assert sane(ask(question, estimator, X, Y if question == "compare" else X[:, 1], test=test, k=2), 2)


@pytest.mark.parametrize(("question", "estimator", "test"), EVERY_TEST)
def test_all_columns_constant(question: str, estimator: str, test: str) -> None:
    X = np.full((20, 3), 2.0)
    result = sane(ask(question, estimator, X, X if question == "compare" else np.arange(20.0), test=test, k=2), 2)
    assert (result.pvalues == 1).all()


@pytest.mark.parametrize(("question", "estimator", "test"), EVERY_TEST)
def test_duplicate_columns(question: str, estimator: str, test: str) -> None:
    X, Y = normal(60, 3, 0), normal(50, 3, 1, {1: 2.0})
    y = Y if question == "compare" else X[:, 1] ** 2
    X2, y2 = np.hstack([X, X]), np.hstack([Y, Y]) if question == "compare" else y
    result = sane(ask(question, estimator, X2, y2, test=test, k=3), 3)
    assert result.selected[:2].tolist() == [1, 4]  # ties in table order
    np.testing.assert_allclose(result.scores[:3], result.scores[3:], rtol=1e-9, atol=1e-12)
    both = sane(ask(question, estimator, X2, y2, test=test, k=1), 1)
    assert both.selected.tolist() == [1]


@pytest.mark.parametrize(("question", "estimator", "test"), EVERY_TEST)
def test_counts_and_truth_values_with_many_ties(question: str, estimator: str, test: str) -> None:
    rng = np.random.default_rng(4)
    X, Y = rng.integers(3, size=(60, 5)), rng.integers(3, size=(50, 5))
    X[:, 0], Y[:, 0] = 0, np.arange(50) == 7  # one row apart from all others
    y = Y if question == "compare" else np.arange(60) % 2
    sane(ask(question, estimator, X, y, test=test, k=2), 2)
    sane(ask(question, estimator, X > 0, y > 0, test=test, k=2), 2)


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 8])
@pytest.mark.parametrize(("question", "estimator", "test"), EVERY_TEST)
def test_a_few_rows_get_an_answer_or_a_reason(question: str, estimator: str, test: str, rows: int) -> None:
    X, Y = normal(rows, 4, 0), normal(rows, 4, 1)
    y = Y if question == "compare" else np.arange(rows) % 2
    try:
        result = ask(question, estimator, X, y, test=test, k=2)
    except InputError as error:
        result, reason = None, str(error)
    if result is None:
        assert rows < 8, "eight rows are enough for every estimator"
        assert "at least" in reason
    else:
        sane(result, 2)


@pytest.mark.parametrize("distance", [10.0, 1e6, 1e60])
@pytest.mark.parametrize(("question", "estimator", "test"), EVERY_TEST)
def test_huge_separation_gives_tiny_pvalues(question: str, estimator: str, test: str, distance: float) -> None:
    X, Y = normal(100, 4, 0), normal(100, 4, 1, {2: distance})
    if question == "relate":
        X, Y = np.vstack([X, Y]), np.repeat(["x", "y"], 100)
    result = sane(ask(question, estimator, X, Y, test=test, k=1), 1)
    assert result.selected.tolist() == [2]
    assert result.pvalues[0] < 0.01
    assert np.isfinite(result.log_pvalues).all()
    all_of_it = ask(question, estimator, X, Y, test=test, k=None)
    assert all_of_it.pvalues[0] < 0.01


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("height", [5.0, 40.0, 1e3, 1e8, 1e150])
def test_scores_of_any_height_give_tiny_pvalues(test: str, height: float) -> None:
    estimate = np.array([0.1, height, -0.3, 0.5])
    given = Multiscale(replicates=50) if test == "multiscale" else test
    selected, pvalues = topk_pvalues(estimate, np.eye(4), 1, given, random_state=0)
    assert selected.tolist() == [1]
    assert 0 < pvalues[0] < 1e-5


@pytest.mark.parametrize("scale", [1e-60, 1e-8, 1e8, 1e60])
@pytest.mark.parametrize(("question", "estimator"), ON_FEATURES)
def test_units_do_not_matter(question: str, estimator: str, scale: float) -> None:
    """The median bandwidth turns units with the data; a power of ten is no power of two, so up to rounding."""
    X, Y = normal(60, 4, 0), normal(50, 4, 1, {2: 1.0})
    Y = Y if question == "compare" else X[:, 2] ** 2
    one, other = (ask(question, estimator, X * by, Y * by, k=None) for by in (1.0, scale))
    np.testing.assert_allclose(other.scores, one.scores, rtol=1e-6, atol=1e-9)


# Again ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize(("question", "estimator"), ASKED)
def test_a_seed_gives_the_same_bits(question: str, estimator: str, test: str) -> None:
    one = ask(question, estimator, test=test, k=3, random_state=7)
    same(one, ask(question, estimator, test=test, k=3, random_state=7))
    same(one, ask(question, estimator, test=test, k=3, random_state=np.random.default_rng(7)))
    assert one.seed == 7
    fresh = ask(question, estimator, test=test, k=3, random_state=None)
    assert isinstance(fresh.seed, int)
    same(fresh, ask(question, estimator, test=test, k=3, random_state=fresh.seed))
    assert ask(question, estimator, k=3, random_state=np.random.default_rng(7)).seed is None


@pytest.mark.parametrize(("question", "estimator"), ASKED)
def test_another_seed_gives_another_design(question: str, estimator: str) -> None:
    one, other = (ask(question, estimator, random_state=seed) for seed in (1, 2))
    # Screening cuts the candidates to one length at random, whatever the estimator.
    if estimator in FIXED and question != "screen":
        np.testing.assert_array_equal(one.scores, other.scores)
    elif estimator not in FIXED:
        assert (one.scores != other.scores).any()


@pytest.mark.parametrize("question", REGISTRY)
def test_the_global_generator_is_left_alone(question: str) -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    for estimator in REGISTRY[question]:
        ask(question, estimator, test="multiscale", random_state=None)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("test", ["exact", "multiscale"])
@pytest.mark.parametrize(("question", "estimator"), ASKED)
def test_threads_do_not_change_the_answer(question: str, estimator: str, test: str) -> None:
    X, Y = normal(100, 20, 0), normal(100, 20, 1, {1: 1.0})
    if question == "relate":
        Y = X[:, 1]
    elif question == "screen":
        X, Y = X[:40, :3], {str(i): Y[:40, i : i + 3] for i in range(5)}
    results = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            results.append(ask(question, estimator, X, Y, test=test, k=5))
    one, two = results
    assert one.names == two.names
    # A sum in another order may differ in its last digits; p-values magnify that by at most z^2.
    np.testing.assert_allclose(one.pvalues, two.pvalues, rtol=1e-9)


# The record ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("threshold", [None, 1e6])
def test_to_frame(backend: str, threshold: float | None) -> None:
    for question, estimator in ASKED:
        result = ask(question, estimator, threshold=threshold)
        frame = result.to_frame(backend)
        assert type(frame).__module__.startswith(backend)
        columns = frame.column_names if backend == "pyarrow" else list(frame.columns)
        assert columns[0] == "feature" and {"n", "score"} <= set(columns)
        assert {"pvalue", "unconditional_pvalue", "adjusted_pvalue", "rejected"} <= set(columns)
        assert list(frame["pvalue"].to_numpy()) == list(result.pvalues)
        assert [str(name) for name in frame["feature"].to_numpy()] == list(result.names)


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("k", [None, 2])
def test_to_frame_of_all_features(backend: str, k: int | None) -> None:
    """All features in table order, with what testing everything says of them, whatever is listed."""
    result, every = (ask("compare", "complete", k=given) for given in (k, None))
    frame = result.to_frame(backend, all_features=True)
    cells = {name: frame[name].to_numpy() for name in ("feature", "score", "pvalue", "adjusted_pvalue", "listed")}
    assert [str(name) for name in cells["feature"]] == list(result.feature_names)
    np.testing.assert_array_equal(cells["score"], result.scores)
    np.testing.assert_array_equal(np.flatnonzero(cells["listed"]), np.sort(result.selected))
    whole = every.to_frame("pandas").set_index("feature").loc[list(result.feature_names)]
    np.testing.assert_allclose(cells["pvalue"], whole["pvalue"], rtol=1e-12)
    np.testing.assert_allclose(cells["adjusted_pvalue"], whole["adjusted_pvalue"], rtol=1e-12)
    np.testing.assert_array_equal(frame["rejected"].to_numpy().astype(bool), whole["rejected"])
    assert len(result.to_frame(backend)["feature"]) == (6 if k is None else k)


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize(("question", "estimator"), ASKED)
def test_to_dict_is_json(question: str, estimator: str, test: str) -> None:
    result = ask(question, estimator, test=test, k=3, random_state=5)
    read = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert [row["feature"] for row in read["features"]] == list(result.names)
    assert [row["pvalue"] for row in read["features"]] == result.pvalues.tolist()
    assert read["scores"] == dict(zip(result.feature_names, result.scores.tolist(), strict=True))
    assert read["settings"]["estimator"] == estimator
    assert read["seed"] == 5


def test_to_dict_of_numpy_options_is_json() -> None:
    result = ask(
        "compare",
        "incomplete",
        test="multiscale",
        bandwidth=np.ones(6),
        r=np.int64(2),
        scales=np.array([0.5, 1.0, 2.0]),
        k=np.int64(2),
        alpha=np.float32(0.1),
        random_state=np.int64(4),
    )
    read = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert read["settings"]["scales"] == [0.5, 1.0, 2.0]
    assert read["settings"]["r"] == 2


ORDER = "Sorted by evidence, strongest first."
LONG = ["<script>alert(1)</script>", "a name of " + "very " * 20 + "many words", "two\nlines", "ü" * 60, "e", "f"]


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize(("question", "estimator"), ON_FEATURES)
def test_printed_it_fits_a_hundred_columns(question: str, estimator: str, test: str) -> None:
    X, Y = normal(70, 6, 0), normal(50, 6, 1, {1: 2.0})
    X[:, 4] = Y[:, 4] = 0.0
    X[:, 5], Y[:, 5] = 1e-7 * X[:, 5], 1e-7 * Y[:, 5]
    frame = pd.DataFrame(X, columns=LONG)
    other = pd.DataFrame(Y, columns=LONG) if question == "compare" else X[:, 1]
    for correction, alpha in ((None, 0.001), ("holm", 0.5)):
        options = {"correction": correction, "alpha": alpha, "kernel": "linear"}
        result = ask(question, estimator, frame, other, test=test, k=5, **options)
        text = str(result)
        assert max(map(len, text.splitlines())) <= 100
        said, table, notes = text.split("\n\n")
        assert said.split() == result.summary().split()
        assert "'e'" in notes  # the constant column
        head, *rows, last = table.splitlines()
        assert last == ORDER
        start = head.find("what changed") if "what changed" in head else len(head)
        # A long description goes on in the next line, below its beginning.
        rows = [row for row in rows if row[:start].strip()]
        assert len(rows) == 5
        assert all(row.ljust(start)[start - 2 : start].strip() == "" or len(row) == start for row in rows)
        assert [row[0] == "*" for row in rows] == result.rejected.tolist()
        assert sum("<script>alert(1)" in row for row in rows) == 1


def test_printed_names_are_there() -> None:
    result = ask("compare", "incomplete", FRAMES["polars"](X6), FRAMES["polars"](Y6), k=4)
    lines = str(result).split("\n\n")[1].splitlines()
    assert [line[2:].split()[0] for line in lines[1:-1]] == list(result.names)


def test_printed_are_the_discoveries_or_the_five_best() -> None:
    many = compare(normal(200, 60, 0), normal(200, 60, 1, dict.fromkeys(range(37), 3.0)), random_state=0)
    found = int(many.rejected.sum())
    assert found >= 37
    table = str(many).split("\n\n")[1].splitlines()
    assert [line[2:].split()[0] for line in table[1:21]] == list(many.names[:20])
    assert table[21:] == [f"and {found - 20} more; {ORDER[0].lower()}{ORDER[1:-1]}"]
    few = compare(normal(200, 60, 0), normal(200, 60, 1, {3: 3.0, 7: 3.0}), correction="holm", random_state=0)
    rows = str(few).split("\n\n")[1].splitlines()[1:-1]
    assert {line[2:].split()[0] for line in rows} == {"x3", "x7"}
    none = compare(np.arange(40.0)[:, None] + np.zeros(9), np.arange(40.0)[:, None] + np.zeros(9), random_state=0)
    assert not none.rejected.any()
    assert none.summary().startswith("None of the 9 features significantly differs")
    rows = str(none).split("\n\n")[1].splitlines()[1:-1]
    assert [line[2:].split()[0] for line in rows] == list(none.names[:5])
    listed = compare(normal(50, 60, 0), normal(50, 60, 1), k=30, random_state=0)
    assert str(listed).split("\n\n")[1].splitlines()[21:] == [f"and 10 more; {ORDER[0].lower()}{ORDER[1:-1]}"]


def test_the_short_form_is_one_line() -> None:
    assert repr(ask("compare", "complete")) == "<Result of compare: 1 of 6 features significant (BH at 0.05)>"
    listed = ask("screen", "complete", k=2, correction=None)
    found = int(listed.rejected.sum())
    assert repr(listed) == f"<Result of screen: {found} of the 2 selected of 6 data sets significant (level 0.05)>"


def test_effects_and_intervals_are_printed_within_a_hundred_columns() -> None:
    from dataclasses import replace
    from types import SimpleNamespace

    result = ask("compare", "incomplete", pd.DataFrame(X6, columns=LONG), pd.DataFrame(Y6, columns=LONG), k=4)
    effects = np.linspace(0.1, 1.0, 4)
    ends = np.array([[0.0, 1.0]] * 4)
    estimates = SimpleNamespace(effects=effects, raw_effects=effects, intervals=ends, intervals_of=ends.__getitem__)
    full = replace(result, estimates=estimates, confidence_level=0.995)
    text = str(full)
    assert max(map(len, text.splitlines())) <= 100
    assert "99.5% interval" in text
    assert "[0.000, 1.000]" in text
    assert {"effect", "effect_lower", "effect_upper"} <= set(full.to_frame("polars").columns)
    json.dumps(full.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("question", "words"),
    [("compare", "differs? between"), ("relate", "depends? on the response"), ("screen", "deviates? from the ref")],
)
def test_the_summary_is_one_plain_sentence(question: str, words: str) -> None:
    result = ask(question, "incomplete", k=3)
    text = result.summary()
    assert re.search(f"significantly {words}", text)
    assert "false discovery rate 0.05, BH over all 6 " in text
    assert "each selective p-value is conditional on the selection of that" in text
    assert f"{result.rejected.sum()} of the 3 selected" in text
    assert text.count(". ") == 0
    assert text.endswith(".")
    assert "\n" not in text
    assert ("data sets" in text) == (question == "screen")
    nothing = ask(question, "incomplete", threshold=1e6).summary()
    assert nothing.startswith("No ")


def test_html_escapes_names_and_tells_the_notes() -> None:
    X, Y = X6.copy(), Y6.copy()
    X[:, 0] = Y[:, 0] = 1.0
    X, Y = pd.DataFrame(X, columns=LONG), pd.DataFrame(Y, columns=LONG)
    html = ask("compare", "incomplete", X, Y, threshold=-9.0)._repr_html_()
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 1  # the note on the constant column, which is not listed
    assert html.count("<tr>") == 6
    Y[LONG[0]] = np.arange(len(Y))
    assert ask("compare", "complete", X, Y)._repr_html_().count("&lt;script&gt;") == 1


def test_a_result_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        ask("compare", "incomplete").alpha = 0.5  # type: ignore[misc]


# Scores from elsewhere -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", TESTS)
def test_topk_pvalues(test: str) -> None:
    estimate, cov = np.array([0.3, 2.9, 1.1, 2.6]), np.eye(4)
    given = Multiscale(replicates=100) if test == "multiscale" else test
    for k, kept in ((1, [1]), (2, [1, 3]), (0.5, [1, 3]), (None, [1, 3, 2, 0])):
        selected, pvalues = topk_pvalues(estimate, cov, k, given, random_state=0)
        assert selected.tolist() == kept
        assert pvalues.shape == (len(kept),)
        assert ((pvalues > 0) & (pvalues <= 1)).all()
        variances = topk_pvalues(estimate, np.ones(4), k, given, random_state=0)
        np.testing.assert_allclose(variances.pvalues, pvalues, rtol=1e-12)


def test_topk_pvalues_of_independent_scores_by_hand() -> None:
    """The best of two is cut at the other: Phibar(2.5) / Phibar(1)."""
    _, pvalues = topk_pvalues([2.5, 1.0], np.eye(2), 1)
    np.testing.assert_allclose(pvalues, stats.norm.sf(2.5) / stats.norm.sf(1.0), rtol=1e-12)


@pytest.mark.parametrize("estimator", MMD)
def test_topk_pvalues_agree_with_compare(estimator: str) -> None:
    """The waist: scores and covariance taken out of an estimator and put in by hand give the same answer."""
    from kernsift.data.inputs import as_pair
    from kernsift.data.tables import stack
    from kernsift.kernels.fitted import fit_kernels

    one, two = as_pair(X6, Y6)
    rng = np.random.default_rng(3)
    kernels = fit_kernels(stack([one, two]), rng=rng)
    scores = MMD[estimator](one, two, kernels, rng=rng)
    result = compare(X6, Y6, k=2, estimator=estimator, bandwidth="median", random_state=3)
    selected, pvalues = topk_pvalues(scores.estimate, scores.cov.columns(np.arange(6)), 2)
    np.testing.assert_array_equal(selected, result.selected)
    # The complete estimator leaves directions of less than a millionth of tr(K^2) out of its correlations, and which
    # these are depends on the features looked at together.
    np.testing.assert_allclose(pvalues, result.pvalues, rtol=1e-4)


# Size and level ------------------------------------------------------------------------------------------------------


# The complete estimator is no average over draws; its blocks of factors have a size of their own, whatever d. The tests
# see only scores, so that one estimator is enough to try them all.
@pytest.mark.parametrize(
    ("question", "estimator", "test"),
    [("compare", "incomplete", test) for test in TESTS]
    + [(*pair, "multiscale") for pair in ON_FEATURES if pair[1] not in FIXED | {"incomplete"}]
    + [("relate", "incomplete", "exact")],
)
def test_memory_stays_below_a_square_of_the_features(question: str, estimator: str, test: str) -> None:
    d = 5000
    X, Y = normal(60, d, 0), normal(60, d, 1)
    Y = Y if question == "compare" else Y[:, 0]
    tracemalloc.start()
    try:
        ask(question, estimator, X, Y, test=test, k=20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.75 * d * d * 8


@pytest.mark.parametrize("question", ["compare", "relate"])
def test_level_after_selection(question: str) -> None:
    """One selected null feature a trial, drawn at random, is rejected at 0.05; forgetting the selection, too often."""
    trials, level = 500, 0.05
    rng = np.random.default_rng(2020)
    selective, naive = np.empty(trials), np.empty(trials)
    for trial in range(trials):
        X = rng.normal(size=(200, 10))
        options: dict[str, Any] = {"k": 3, "estimator": Incomplete(r=1), "random_state": rng}
        if question == "compare":
            result = compare(X, rng.normal(size=(200, 10)), **options)
        else:
            result = relate(X, rng.normal(size=200), **options)
        chosen = rng.integers(3)
        selective[trial], naive[trial] = result.pvalues[chosen], result.unconditional_pvalues[chosen]
    # Four standard errors of a rate over independent trials. Of ten equal features the three best hold nearly all of
    # the small naive p-values, so that their rate is near 0.05 * 10 / 3, well beyond.
    margin = 4 * np.sqrt(level * (1 - level) / trials)
    assert abs(np.mean(selective <= level) - level) < margin
    assert np.mean(naive <= level) > level + margin
