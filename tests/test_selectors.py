"""The scikit-learn selectors: every check of scikit-learn, and how people use selectors in pipelines."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from kernsift import Block, Incomplete, InputError, Multiscale, SelectHSIC, SelectMMD, compare, relate
from kernsift.estimators import HSIC, MMD
from kernsift.inference import TESTS

BOTH = [SelectMMD, SelectHSIC]
REGISTRY = {SelectMMD: MMD, SelectHSIC: HSIC}
FUNCTION = {SelectMMD: compare, SelectHSIC: relate}

# Small tables are quick; what is off about some estimators there is said in a warning, and tested in test_calibration.
pytestmark = pytest.mark.filterwarnings("ignore::kernsift.CalibrationWarning")


# "rejected" may keep nothing, of which scikit-learn's SelectorMixin warns; the checks ask for answers, not for silence.
@pytest.mark.filterwarnings("ignore:No features were selected:UserWarning")
@parametrize_with_checks([cls(keep=keep) for cls in BOTH for keep in ("auto", "selected")])
def test_scikit_learn_is_content(estimator: Any, check: Any) -> None:
    check(estimator)


def labelled(n: int = 80, d: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Two samples that differ in column 2, and less in column 4."""
    rng = np.random.default_rng(11)
    X, y = rng.normal(size=(n, d)), np.arange(n) % 2
    X[:, 2] += 3 * y
    X[:, 4] += 2 * y
    return X, y


NAMES = ["a", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize("cls", BOTH)
def test_parameters_are_written_out_and_have_the_defaults_of_the_functions(cls: type) -> None:
    own, theirs = (inspect.signature(f).parameters for f in (cls, FUNCTION[cls]))
    assert all(p.kind is not p.VAR_KEYWORD for p in own.values())
    # In `by` a column names the samples, which for a selector is what y is for; a connection to a cluster cannot
    # be cloned, and how tables on disk are read says nothing of arrays.
    elsewhere = {"by", "group", "reference", "layer", "client", "memory"}
    # What belongs to the rows is given to `fit`.
    fitted = {"strata", "paired", "unit", "given"} & set(theirs)
    assert fitted <= set(inspect.signature(cls.fit).parameters)
    shared = {p.name for p in theirs.values() if p.kind is p.KEYWORD_ONLY} - elsewhere - fitted
    assert shared <= set(own)
    assert {name: own[name].default for name in shared} == {name: theirs[name].default for name in shared}


@pytest.mark.parametrize("cls", BOTH)
def test_parameters_are_kept(cls: type) -> None:
    """Every parameter of the signature is the attribute of its name."""
    values = {name: object() for name in inspect.signature(cls).parameters}
    assert cls(**values).get_params(deep=False) == values


@pytest.mark.parametrize("cls", BOTH)
def test_parameters_arrive(cls: type) -> None:
    """Each parameter set to something else than its default is what the function records."""
    X, y = labelled()
    given = {
        "k": 2,
        "kernel": "laplace",
        "bandwidth": "joint",
        "alpha": 0.2,
        "correction": "holm",
        "family": "selected",
        "confidence_level": 0.8,
    }
    options = {"replicates": 60, "block_size": 8}
    estimator, test = Block(block_size=8), Multiscale(replicates=60)
    result = cls(**given, estimator=estimator, test=test, random_state=3).fit(X, y).result_
    recorded = result.to_dict()
    flat = recorded["settings"] | {
        name: recorded[name] for name in ("alpha", "correction", "family", "confidence_level", "seed")
    }
    assert {name: flat[name] for name in given} == given
    assert {name: flat[name] for name in options} == options
    assert flat["seed"] == 3


@pytest.mark.parametrize("cls", BOTH)
def test_same_answer_as_the_function(cls: type) -> None:
    X, y = labelled()
    selector = cls(k=3, random_state=5).fit(X, y)
    if cls is SelectMMD:
        result = compare(X[y == 0], X[y == 1], k=3, random_state=5)
    else:
        result = relate(X, y, k=3, random_state=5)
    np.testing.assert_array_equal(selector.result_.pvalues, result.pvalues)
    np.testing.assert_array_equal(selector.scores_, result.scores)
    np.testing.assert_array_equal(np.flatnonzero(selector.support_), np.sort(result.selected))
    np.testing.assert_array_equal(selector.pvalues_[result.selected], result.pvalues)
    assert np.isnan(np.delete(selector.pvalues_, result.selected)).all()


@pytest.mark.parametrize("cls", BOTH)
def test_discoveries_are_kept_unless_a_list_is_asked_for(cls: type) -> None:
    """As SelectFdr without k, as SelectKBest with it."""
    X, y = labelled(n=200)
    for given in ({}, {"k": 5, "keep": "rejected"}, {"k": 6, "keep": "rejected"}):
        selector = cls(**given, random_state=0).fit(X, y)
        result = selector.result_
        assert 0 < result.rejected.sum() < 5
        np.testing.assert_array_equal(np.flatnonzero(selector.support_), np.sort(result.selected[result.rejected]))
    assert np.isfinite(cls(random_state=0).fit(X, y).pvalues_).all()
    for given in ({"k": 5}, {"k": 6}, {"threshold": 0.0}, {"keep": "selected"}):
        selector = cls(**given, random_state=0).fit(X, y)
        np.testing.assert_array_equal(np.flatnonzero(selector.support_), np.sort(selector.result_.selected))


@pytest.mark.parametrize("cls", BOTH)
def test_nothing_is_found_and_scikit_learn_says_so(cls: type) -> None:
    X = np.random.default_rng(0).normal(size=(30, 3))
    X[:, :] = X[:1]
    selector = cls(random_state=0).fit(X, np.arange(30) % 2)
    with pytest.warns(UserWarning, match="No features were selected"):
        assert selector.transform(X).shape == (30, 0)


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize("test", TESTS)
def test_every_estimator_and_test_in_a_pipeline(cls: type, test: str) -> None:
    X, y = labelled()
    given = Multiscale(replicates=50) if test == "multiscale" else test
    for estimator in REGISTRY[cls]:
        selector = cls(k=2, estimator=estimator, test=given, random_state=0)
        pipe = make_pipeline(StandardScaler(), selector, LogisticRegression()).fit(X, y)
        assert pipe[:-1].transform(X).shape == (len(X), 2)
        assert pipe.score(X, y) > 0.5


@pytest.mark.parametrize("cls", BOTH)
def test_grid_search_over_k_and_estimator(cls: type) -> None:
    X, y = labelled()
    pipe = make_pipeline(cls(random_state=0), LogisticRegression())
    name = cls.__name__.lower()
    grid = {f"{name}__k": [1, 3, 0.5, None], f"{name}__estimator": list(REGISTRY[cls])}
    search = GridSearchCV(pipe, grid, cv=2, error_score="raise").fit(X, y)
    assert len(search.cv_results_["params"]) == 4 * len(REGISTRY[cls])
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("cls", BOTH)
def test_clone_and_set_params(cls: type) -> None:
    selector = cls(k=3, groups={"g": ["a"]}, estimator=Incomplete(r=2), random_state=1)
    copy = clone(selector)
    assert copy.get_params() == selector.get_params()
    assert copy.set_params(k=0.5, keep="rejected").k == 0.5
    assert copy.estimator is not selector.estimator
    assert copy.set_params(estimator__r=4).get_params()["estimator__r"] == 4 and selector.estimator.r == 2


@pytest.mark.parametrize("cls", BOTH)
def test_grid_search_over_the_options_of_estimator_and_test(cls: type) -> None:
    X, y = labelled()
    selector = cls(k=2, estimator=Incomplete(), test=Multiscale(replicates=50), random_state=0)
    grid = {"select__estimator__r": [1, 3], "select__test__model": ["linear", "aic"]}
    pipe = Pipeline([("select", selector), ("classify", LogisticRegression())])
    search = GridSearchCV(pipe, grid, cv=2, error_score="raise").fit(X, y)
    best = search.best_estimator_.named_steps["select"].result_.settings
    expected = {name.split("__")[-1]: value for name, value in search.best_params_.items()}
    assert {"r": best["r"], "model": best["model"]} == expected


@pytest.mark.parametrize("cls", BOTH)
def test_random_state(cls: type) -> None:
    X, y = labelled()
    fit = {seed: cls(estimator="incomplete", random_state=seed).fit(X, y).scores_ for seed in (0, 1)}
    np.testing.assert_array_equal(cls(estimator="incomplete", random_state=0).fit(X, y).scores_, fit[0])
    assert (fit[0] != fit[1]).any()
    for make in (np.random.default_rng, np.random.RandomState):
        one, two = (cls(estimator="incomplete", random_state=make(7)).fit(X, y).scores_ for _ in range(2))
        np.testing.assert_array_equal(one, two)


# Tables --------------------------------------------------------------------------------------------------------------

FRAMES = {
    "pandas": lambda columns: pd.DataFrame(columns),
    "polars": lambda columns: pl.DataFrame(columns),
    "pyarrow": lambda columns: pa.table(columns),
}


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES.keys())
def test_frames_give_the_same_bits_and_their_names(cls: type, make: Any) -> None:
    X, y = labelled()
    plain = cls(k=2, random_state=0).fit(X, y)
    frame = make({name: X[:, i] for i, name in enumerate(NAMES)})
    selector = cls(k=2, random_state=0).fit(frame, y)
    np.testing.assert_array_equal(selector.scores_, plain.scores_)
    np.testing.assert_array_equal(selector.pvalues_, plain.pvalues_)
    assert selector.get_feature_names_out().tolist() == ["c", "e"]
    assert set(selector.result_.names) == {"c", "e"}
    assert plain.get_feature_names_out().tolist() == ["x2", "x4"]
    np.testing.assert_array_equal(np.asarray(selector.transform(frame), dtype=float), X[:, [2, 4]])


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize("output", ["pandas", "polars"])
@pytest.mark.parametrize("make", [FRAMES["pandas"], FRAMES["polars"]], ids=["from pandas", "from polars"])
def test_set_output(cls: type, output: str, make: Any) -> None:
    X, y = labelled()
    frame = make({name: X[:, i] for i, name in enumerate(NAMES)})
    out = cls(k=2, random_state=0).set_output(transform=output).fit_transform(frame, y)
    assert type(out).__module__.startswith(output)
    assert list(out.columns) == ["c", "e"]
    np.testing.assert_array_equal(out.to_numpy(), X[:, [2, 4]])


def mixed(y: np.ndarray) -> dict[str, Any]:
    """Numbers, strings and truth values; "colour" and "flag" follow y, the others do not."""
    rng = np.random.default_rng(2)
    other = np.where(rng.random(len(y)) < 0.1, 1 - y, y)
    return {
        "noise": rng.normal(size=len(y)),
        "colour": np.array(["red", "blue"], dtype=object)[y],
        "shape": np.array(["round", "flat", "tall"], dtype=object)[rng.integers(3, size=len(y))],
        "flag": other.astype(bool),
        "count": rng.integers(9, size=len(y)),
    }


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES.keys())
def test_strings_and_truth_values_in_frames(cls: type, make: Any) -> None:
    _, y = labelled(n=120)
    frame = make(mixed(y))
    selector = cls(k=2, random_state=0).fit(frame, y)
    assert selector.get_feature_names_out().tolist() == ["colour", "flag"]
    assert selector.transform(frame).shape == (120, 2)


@pytest.mark.parametrize("cls", BOTH)
def test_categoricals_keep_their_type_in_pandas_output(cls: type) -> None:
    _, y = labelled(n=120)
    frame = pd.DataFrame(mixed(y)).astype({"colour": "category", "shape": "category"})
    out = cls(k=2, random_state=0).set_output(transform="pandas").fit_transform(frame, y)
    assert out["colour"].dtype == "category"


@pytest.mark.parametrize("cls", BOTH)
def test_integer_column_names_are_no_feature_names(cls: type) -> None:
    X, y = labelled()
    selector = cls(k=2, random_state=0).fit(pd.DataFrame(X), y)
    assert not hasattr(selector, "feature_names_in_")
    np.testing.assert_array_equal(selector.get_support(indices=True), [2, 4])


@pytest.mark.parametrize("cls", BOTH)
def test_sparse_input(cls: type) -> None:
    X, y = labelled()
    X[np.abs(X) < 0.5] = 0.0
    dense = cls(k=2, random_state=0).fit(X, y)
    selector = cls(k=2, random_state=0).fit(sparse.csr_array(X), y)
    np.testing.assert_array_equal(selector.scores_, dense.scores_)
    assert sparse.issparse(selector.transform(sparse.csr_array(X)))


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize("as_frame", [False, True])
def test_groups_stay_together(cls: type, as_frame: bool) -> None:
    X, y = labelled()
    X[:, 0] += 3 * y
    data = pd.DataFrame(X, columns=NAMES) if as_frame else X
    groups = {"pair": ["c", "a"] if as_frame else [2, 0]}
    selector = cls(k=1, groups=groups, random_state=0).fit(data, y)
    np.testing.assert_array_equal(selector.get_support(indices=True), [0, 2])
    assert selector.scores_[0] == selector.scores_[2]
    assert selector.pvalues_[0] == selector.pvalues_[2]
    assert selector.result_.names == ("pair",)
    assert len(selector.result_.feature_names) == 5


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize("as_frame", [False, True])
def test_missing_values_dropped_in_fit_and_kept_in_transform(cls: type, as_frame: bool) -> None:
    X, y = labelled()
    X[3, 0] = X[10, 5] = np.nan
    data = pd.DataFrame(X, columns=NAMES) if as_frame else X
    selector = cls(k=2, missing="drop", random_state=0).fit(data, y)
    whole = np.delete(np.arange(80), [3, 10])
    np.testing.assert_array_equal(selector.scores_, cls(k=2, random_state=0).fit(X[whole], y[whole]).scores_)
    assert selector.transform(data).shape == (80, 2)
    with pytest.raises(ValueError, match=r"(?i)nan|missing"):
        cls(missing="error", random_state=0).fit(data, y)


# Responses -----------------------------------------------------------------------------------------------------------

WORDS = np.array(["no", "yes"], dtype=object)
TWO_LABELS = {
    "list": lambda y: y.tolist(),
    "list of strings": lambda y: WORDS[y].tolist(),
    "strings": lambda y: WORDS[y],
    "truth values": lambda y: y.astype(bool),
    "column": lambda y: y[:, None],
    "floats": lambda y: y.astype(float),
    "pandas": lambda y: pd.Series(y, name="y", index=np.arange(len(y)) + 100),
    "pandas strings": lambda y: pd.Series(WORDS[y]),
    "pandas categorical": lambda y: pd.Series(WORDS[y], dtype="category"),
    "pandas nullable": lambda y: pd.Series(y, dtype="Int64"),
    "polars": lambda y: pl.Series(y),
    "polars categorical": lambda y: pl.Series(WORDS[y].tolist(), dtype=pl.Categorical),
    "pyarrow": lambda y: pa.chunked_array([y]),
}


@pytest.mark.parametrize("kind", TWO_LABELS)
@pytest.mark.parametrize("as_frame", [False, True])
def test_labels_of_any_kind_mean_the_same(kind: str, as_frame: bool) -> None:
    X, y = labelled()
    data = pd.DataFrame(X, columns=NAMES) if as_frame else X
    expected = SelectMMD(k=2, random_state=0).fit(X, y)
    selector = SelectMMD(k=2, random_state=0).fit(data, TWO_LABELS[kind](y))
    np.testing.assert_array_equal(selector.scores_, expected.scores_)
    category = SelectHSIC(k=2, response="category", random_state=0)
    expected_scores = clone(category).fit(X, y).scores_
    np.testing.assert_array_equal(category.fit(data, TWO_LABELS[kind](y)).scores_, expected_scores)


@pytest.mark.parametrize("missing", [np.nan, None])
@pytest.mark.parametrize("classes", [2, 3])
def test_rows_without_a_label_belong_to_no_sample(classes: int, missing: Any) -> None:
    """NumPy would turn the missing labels in a list of text into a label of their own."""
    X, _ = labelled(n=120)
    X[::2, 0] += 50  # rows without a label
    words = [missing if i % 2 == 0 else "uvw"[i // 2 % classes] for i in range(120)]
    data = pd.DataFrame(X, columns=NAMES)
    expected = SelectMMD(random_state=0).fit(data[1::2], words[1::2])
    for y in (words, tuple(words), pd.Series(words)):
        selector = SelectMMD(random_state=0).fit(data, y)
        np.testing.assert_array_equal(selector.scores_, expected.scores_)
        assert selector.result_.notes[0] == "y: 60 of 120 rows have no label and are left out."
        category = SelectHSIC(random_state=0).fit(data, y)
        np.testing.assert_array_equal(category.result_.n, 60)
    of_rows = SelectMMD(random_state=0).fit(data, np.arange(120) // 12 % 2, strata=words)
    assert "strata: rows without a value are left out: 60 of 120." in of_rows.result_.notes


def test_text_labels_with_nan_are_refused_beside_an_array() -> None:
    X, _ = labelled(n=60)
    with pytest.raises(ValueError, match="contains NaN"):
        SelectMMD().fit(X, [np.nan, "u", "v"] * 20)


@pytest.mark.parametrize("labels", [["case", "control"], ["low", "mid", "top"], [0, 1], [3, 7, 12], [False, True]])
@pytest.mark.parametrize("kind", [np.array, pd.Series, lambda y: pl.Series(y.tolist())])
def test_descriptions_name_the_labels(labels: list[Any], kind: Any) -> None:
    """The first label has the largest values."""
    X = np.random.default_rng(0).normal(size=(90, 2))
    y = np.array(labels)[np.arange(90) % len(labels)]
    X[:, 0] -= 5.0 * (np.arange(90) % len(labels))
    named = labels if isinstance(labels[0], str) else [f"y = {label}" for label in labels]
    result = SelectMMD(random_state=0).fit(X, kind(y)).result_
    if len(labels) == 2:
        assert result.labels == tuple(named)
        assert result.describe(0).startswith(f"lower in {named[1]}: median")
    else:
        named = [f"y = {label}" for label in labels]
        text = result.describe(0)
        assert re.fullmatch(rf"differs by class: highest in {named[0]} \(.*\), lowest in {named[2]} \(.*\)", text), text


@pytest.mark.parametrize("estimator", [*(name for name in MMD if name in HSIC), Incomplete(r=2)])
def test_three_samples(estimator: str | Incomplete) -> None:
    X, _ = labelled(n=240)
    y = np.random.default_rng(1).integers(3, size=240)
    X[:, 1] += 3 * y
    for labels in (y, np.array(["u", "v", "w"])[y]):
        selector = SelectMMD(k=2, estimator=estimator, random_state=0).fit(X, labels)
        assert selector.result_.selected[0] == 1
        assert selector.result_.rejected[0]


def test_labels_of_distinct_strings_that_are_column_names_are_labels() -> None:
    """A list of strings as long as X is wide and high must not be read as names of columns."""
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(6, 6)), columns=NAMES)
    with pytest.raises(InputError, match=r"^y: .*each of the 6 rows has its own"):
        SelectHSIC(k=2, random_state=0).fit(X, NAMES)


def test_several_responses() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 5))
    Y = np.column_stack([X[:, 1] + 0.1 * rng.normal(size=300), X[:, 3] + 0.1 * rng.normal(size=300)])
    for y in (Y, pd.DataFrame(Y, columns=["u", "v"]), pl.DataFrame(Y, schema=["u", "v"])):
        for data in (X, pd.DataFrame(X, columns=NAMES[:5])):
            selector = SelectHSIC(k=2, random_state=0).fit(data, y)
            np.testing.assert_array_equal(selector.get_support(indices=True), [1, 3])
    pipe = make_pipeline(SelectHSIC(k=2, random_state=0), Ridge()).fit(X, Y)
    assert pipe.score(X, Y) > 0.9


def test_response_is_taken_as_asked() -> None:
    """Ten integer classes without order: as numbers a smooth kernel sees neighbours, as categories it does not."""
    X, _ = labelled()
    y = np.random.default_rng(1).integers(0, 10, len(X))
    numeric, category = (SelectHSIC(response=kind, random_state=0).fit(X, y) for kind in ("numeric", "category"))
    assert (numeric.scores_ != category.scores_).any()


# Errors --------------------------------------------------------------------------------------------------------------


def one_sentence(message: str) -> None:
    assert message[-1] in ".?"
    assert len(message) < 400


X40, Y40 = labelled(n=40)
F40 = pd.DataFrame(X40, columns=NAMES)
BAD: dict[str, tuple[Any, Any, Any, str]] = {
    "keep": (SelectMMD(keep="best"), X40, Y40, r"^keep: .*'auto', 'selected' or 'rejected'.*'best'"),
    "no y": (SelectHSIC(), X40, None, r"^y: .*requires y"),
    "a name": (SelectHSIC(), F40, "a", r"^y: .*one value for each row, got the name 'a'"),
    "one label": (SelectMMD(), X40, np.zeros(40), r"^y: at least two labels"),
    "two columns": (SelectMMD(), X40, np.column_stack([Y40, Y40]), r"^y: one column of labels.*got 2.*SelectHSIC"),
    "numbers": (SelectMMD(), X40, X40[:, 0], r"^y: labels of samples.*SelectHSIC"),
    "three labels": (SelectMMD(estimator="linear"), X40, np.arange(40) % 3, r"^estimator: 3 labels.*'incomplete'"),
    "short y": (SelectMMD(), F40, Y40[:-1], r"^y: .*40 rows and y has 39"),
    "short y, HSIC": (SelectHSIC(), F40, Y40[:-1], r"^y: .*40 rows and y has 39"),
    "missing label": (
        SelectMMD(missing="error"),
        F40,
        np.where(np.arange(40) == 3, np.nan, Y40),
        r"^y: 1 of 40 rows .*missing",
    ),
    "missing value": (
        SelectMMD(missing="error"),
        F40.assign(c=F40["c"].mask(F40["c"] > 2)),
        Y40,
        r"^X: .*missing values, in columns 'c'",
    ),
    "options of a test": (SelectMMD(estimator=Multiscale()), X40, Y40, r"^estimator: needs one of"),
    "k": (SelectHSIC(k=7), X40, Y40, r"^k: at most the number of features, 6"),
    "estimator": (SelectHSIC(estimator="incomplet"), X40, Y40, r"^estimator: .*did you mean 'incomplete'"),
    "random_state": (SelectHSIC(random_state=-1), X40, Y40, r"^random_state: .*non-negative"),
    "lazy": (SelectMMD(), pl.DataFrame(X40).lazy(), Y40, r"^X: .*lazy frame.*collect"),
    "repeated names": (SelectMMD(), pd.DataFrame(X40, columns=["a"] * 6), Y40, r"^X: column names must be unique"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_name_the_argument(case: str) -> None:
    selector, X, y, message = BAD[case]
    with pytest.raises(InputError, match=message) as caught:
        selector.fit(X, y)
    one_sentence(str(caught.value))


def test_few_whole_numbers_select_better_as_classes() -> None:
    """Digits: the 15 pixels chosen for the labels as classes, the default, against those for labels as amounts."""
    X, y = load_digits(return_X_y=True)
    scores = {}
    for response in ("auto", "numeric"):
        selector = SelectHSIC(k=15, response=response, random_state=0)
        model = make_pipeline(selector, StandardScaler(), LogisticRegression(max_iter=500))
        scores[response] = cross_val_score(model, X, y, cv=5).mean()
    assert scores["auto"] > scores["numeric"] > 0.8


def test_dates_beside_numbers_stay_in_a_data_frame() -> None:
    X = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=40), "x": np.arange(40.0)})
    selector = SelectMMD(k=1, random_state=0).fit(X, np.arange(40) < 20)
    with pytest.raises(InputError, match=r"X: columns of dates.*set_output\(transform='pandas'\)"):
        selector.transform(X)
    assert selector.set_output(transform="pandas").transform(X).shape == (40, 1)
