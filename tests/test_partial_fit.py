"""Rows that arrive in pieces: the result is that of all rows at once."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from kernsift import InputError, SelectHSIC, SelectMMD
from kernsift.estimators import HSIC, MMD

# What is off about some estimators on few rows is said in a warning, and tested in test_calibration.
pytestmark = pytest.mark.filterwarnings("ignore::kernsift.CalibrationWarning")

N, D = 240, 7


def rows(seed: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns, a label that column 2 knows of, and a number that column 4 knows of."""
    rng = np.random.default_rng(seed)
    X, label = rng.normal(size=(N, D)), rng.integers(0, 2, size=N)
    X[:, 2] += 1.5 * label
    return X, label, X[:, 4] ** 2 + 0.3 * rng.normal(size=N)


def fed(selector: Any, X: Any, y: Any, cuts: tuple[int, ...] = (1, 50, 51, 180)) -> Any:
    for start, stop in zip((0, *cuts), (*cuts, N), strict=True):
        selector.partial_fit(X[start:stop], y[start:stop])
    return selector


def same(one: Any, other: Any) -> None:
    one.finish(), other.finish()
    np.testing.assert_array_equal(one.support_, other.support_)
    np.testing.assert_array_equal(one.scores_, other.scores_)
    np.testing.assert_array_equal(one.pvalues_, other.pvalues_)


@pytest.mark.parametrize("estimator", list(MMD))
@pytest.mark.parametrize("test", ["exact", "multiscale"])
def test_samples_in_pieces_give_the_answer_of_all_rows(estimator: str, test: str) -> None:
    X, label, _ = rows()
    given = {"k": 3, "estimator": estimator, "test": test, "random_state": 5}
    same(fed(SelectMMD(**given), X, label), SelectMMD(**given).fit(X, label))


@pytest.mark.parametrize("estimator", list(HSIC))
def test_a_response_in_pieces_gives_the_answer_of_all_rows(estimator: str) -> None:
    X, _, number = rows()
    given = {"k": 3, "estimator": estimator, "random_state": 5}
    pieces = fed(SelectHSIC(**given), X, number)
    same(pieces, SelectHSIC(**given).fit(X, number))
    assert pieces.support_[4]
    assert pieces.transform(X).shape == (N, 3)


def test_several_labels_single_precision_and_several_responses() -> None:
    X, label, number = rows()
    three = label + (number > 2)
    same(fed(SelectMMD(random_state=1), X, three), SelectMMD(random_state=1).fit(X, three))
    single = X.astype(np.float32)
    same(fed(SelectMMD(random_state=1), single, label), SelectMMD(random_state=1).fit(single, label))
    both = np.column_stack([number, label])
    same(fed(SelectHSIC(random_state=1), X, both), SelectHSIC(random_state=1).fit(X, both))


def test_data_frames_keep_their_categories() -> None:
    X, label, number = rows()
    letters = np.where(label == 1, "b", "a").astype(object)
    letters[-40:] = "c"  # a level that arrives late
    frame = pd.DataFrame(X[:, :3], columns=["u", "v", "w"]).assign(letter=letters)
    whole = SelectHSIC(k=2, random_state=2).fit(frame, number)
    pieces = SelectHSIC(k=2, random_state=2)
    for start in range(0, N, 60):
        pieces.partial_fit(frame.iloc[start : start + 60], number[start : start + 60])
    same(pieces, whole)
    assert list(pieces.feature_names_in_) == ["u", "v", "w", "letter"]
    category = frame.assign(letter=frame["letter"].astype("category"))
    same(
        fed(SelectMMD(random_state=2), _Sliced(category), pd.Series(label)), SelectMMD(random_state=2).fit(frame, label)
    )
    many = pl.from_pandas(frame)
    same(fed(SelectHSIC(k=2, random_state=2), many, pl.Series("y", number)), whole)


class _Sliced:
    """A pandas frame that is cut as arrays are."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame

    def __getitem__(self, rows: slice) -> pd.DataFrame:
        return self._frame.iloc[rows]


def test_sparse_rows() -> None:
    X, label, _ = rows()
    thin = sparse.csr_matrix(np.where(np.abs(X) > 1, X, 0.0))
    same(fed(SelectMMD(random_state=1), thin, label), SelectMMD(random_state=1).fit(thin, label))


def test_an_array_that_is_used_again_for_the_next_piece() -> None:
    X, label, _ = rows()
    batch, labels = np.empty((60, D)), np.empty(60, dtype=label.dtype)
    selector = SelectMMD(random_state=0)
    for start in range(0, N, 60):
        batch[:], labels[:] = X[start : start + 60], label[start : start + 60]
        selector.partial_fit(batch, labels)
    same(selector, SelectMMD(random_state=0).fit(X, label))


def test_missing_rows_are_dropped_as_from_the_whole() -> None:
    X, label, _ = rows()
    X[::17, 3] = np.nan
    given = {"missing": "drop", "random_state": 1}
    same(fed(SelectMMD(**given), X, label), SelectMMD(**given).fit(X, label))


def test_the_answer_is_worked_out_when_it_is_looked_at_and_again_after_more_rows(monkeypatch: Any) -> None:
    X, label, _ = rows()
    asked = []
    ask = SelectMMD._result_of
    monkeypatch.setattr(SelectMMD, "_result_of", lambda self, X, y, rows: asked.append(len(y)) or ask(self, X, y, rows))
    selector = SelectMMD(k=2, random_state=0).partial_fit(X[:100], label[:100])
    selector.partial_fit(X[100:200], label[100:200])
    assert not hasattr(selector, "result_")
    assert asked == []
    assert selector.finish().support_.sum() == 2 and selector.result_.rows and len(selector.pvalues_) == D
    assert asked == [200]
    selector.partial_fit(X[200:], label[200:])
    assert len(selector.get_feature_names_out()) == 2
    assert asked == [200, N]
    same(selector, SelectMMD(k=2, random_state=0).fit(X, label))


def test_nothing_is_fitted_before_the_first_piece_and_fit_lets_go_of_the_pieces() -> None:
    X, label, _ = rows()
    selector = SelectMMD(random_state=0)
    with pytest.raises(AttributeError, match="result_"):
        _ = selector.result_
    with pytest.raises(NotFittedError):
        selector.transform(X)
    selector.partial_fit(X, label).fit(X[:100], label[:100])
    same(selector, SelectMMD(random_state=0).fit(X[:100], label[:100]))
    # And the first piece after a fit is the beginning.
    same(fed(selector, X, label), SelectMMD(random_state=0).fit(X, label))


def test_one_label_so_far_is_an_error_that_the_next_piece_mends() -> None:
    X, label, _ = rows()
    order = np.argsort(label, kind="stable")
    selector = SelectMMD(random_state=0).partial_fit(X[order[:20]], label[order[:20]])
    with pytest.raises(InputError, match="two labels"):
        selector.finish()
    selector.partial_fit(X[order[20:]], label[order[20:]])
    same(selector, SelectMMD(random_state=0).fit(X[order], label[order]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X[:, :-1], y), "6 features"),
        (lambda X, y: (pd.DataFrame(X), y), "same kind.*pandas DataFrame.*an array"),
        (lambda X, y: (X, pd.Series(y)), "^y: .*same kind.*pandas Series"),
        (lambda X, y: (X, y[:-1]), "[Ii]nconsistent"),
        (lambda X, y: (np.where(X > 1, np.inf, X), y), "infinity"),
        (lambda X, y: (X, None), "^y: .*None"),
    ],
)
@pytest.mark.filterwarnings("ignore:X has feature names:UserWarning")
def test_a_piece_that_does_not_fit_is_refused_and_leaves_no_trace(change: Any, message: str) -> None:
    X, label, _ = rows()
    selector = SelectMMD(random_state=0).partial_fit(X[:150], label[:150])
    with pytest.raises(ValueError, match=message):
        selector.partial_fit(*change(X[150:200], label[150:200]))
    selector.partial_fit(X[150:], label[150:])
    same(selector, SelectMMD(random_state=0).fit(X, label))


def test_frames_whose_columns_differ_are_refused() -> None:
    X, label, _ = rows()
    frame = pd.DataFrame(X, columns=list("abcdefg"))
    selector = SelectMMD().partial_fit(frame[:100], label[:100])
    with pytest.raises(ValueError, match="feature names"):
        selector.partial_fit(frame[100:].rename(columns={"a": "z"}), label[100:])
    many = pl.from_pandas(frame)
    mixed = SelectMMD().partial_fit(many[:100], label[:100])
    mixed.partial_fit(many[100:].with_columns(a=pl.col("a").cast(pl.String)), label[100:])
    with pytest.raises(InputError, match=r"^X: .*same types"):
        mixed.finish()


def test_copies_and_pickles_go_on_where_the_original_is() -> None:
    X, label, _ = rows()
    whole = SelectMMD(random_state=0).fit(X, label)
    selector = SelectMMD(random_state=0).partial_fit(X[:150], label[:150])
    for other in (pickle.loads(pickle.dumps(selector)), copy.deepcopy(selector)):
        same(other.partial_fit(X[150:], label[150:]), whole)
    assert not hasattr(clone(selector), "result_")
    same(selector.partial_fit(X[150:], label[150:]), whole)
