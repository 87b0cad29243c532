"""scikit-learn selectors for `compare` and `relate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import narwhals as nw
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from kernsift.api import compare, relate
from kernsift.data.columns.encoding import number_name, value_label
from kernsift.data.formats.in_memory import MemorySource
from kernsift.data.frames import plain_array, read_columns
from kernsift.data.inputs import as_table
from kernsift.data.preparation import prepare
from kernsift.data.row_buffer import RowBuffer
from kernsift.data.rows.samples import is_code
from kernsift.estimators import HSIC
from kernsift.exceptions import InputError, check_choice, check_row_count
from kernsift.execution.arrays import to_numpy
from kernsift.options import Options
from kernsift.result import Result

_FITTED = ("result_", "support_", "scores_", "pvalues_")


@dataclass(kw_only=True, eq=False, repr=False)
class _KernelSelector(SelectorMixin, BaseEstimator):
    """The parameters and methods of both selectors."""

    k: int | float | None = field(default=None, kw_only=False)
    keep: str = "auto"
    threshold: float | None = None
    estimator: str | Options = "complete"
    test: str | Options = "exact"
    kernel: Any = "gaussian"
    bandwidth: Any = "auto"
    alpha: float = 0.05
    correction: str | None = "bh"
    family: str = "all"
    confidence_level: float = 0.95
    groups: Mapping[str, Any] | None = None
    kinds: Mapping[str, str] | None = None
    missing: str = "column"
    given_model: Any = None
    distinct: bool = False
    random_state: Any = None
    n_jobs: int | None = None
    progress: bool = False

    def fit(
        self, X: Any, y: Any, *, strata: Any = None, paired: Any = None, unit: Any = None, given: Any = None
    ) -> Self:
        """Test the columns of X, and select some of them.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n, columns)
            The table; columns of data frames may be strings and categoricals.
        y : array-like of shape (n,)
            Labels or the response.
        strata, paired, unit : array-like of shape (n,), optional
            Which rows may be exchanged, as in `kernsift.compare`. A pipeline passes them on where metadata routing is
            enabled and `set_fit_request(unit=True)` was called.
        given : array or table with n rows, optional
            Confounders, as in `kernsift.compare`.

        Returns
        -------
        self : object
            The fitted selector.
        """
        self._check(y)
        X, y = self._validated(X, y)
        self.__dict__.pop("_buffer", None)
        labels = {"strata": strata, "paired": paired, "unit": unit}
        rows: dict[str, Any] = {name: _row_labels(name, part) for name, part in labels.items() if part is not None}
        if given is not None:
            rows["given"] = given if _frame(given) is not None else _row_labels("given", given)
        self._test_rows(X, y, rows)
        return self

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Collect rows in batches.

        `finish` tests the features, with the result of `fit` on all rows so far, for every estimator. The rows are
        kept in memory for it, and in pickles. After `fit` the first call begins a new collection.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n, columns)
            As in `fit`, with the same columns in every batch; one row is enough.
        y : array-like of shape (n,)
            Labels or the response.

        Returns
        -------
        self : object
            The selector.
        """
        self._check(y)
        buffer: RowBuffer | None = self.__dict__.get("_buffer")
        if isinstance(y, np.ndarray) and y.dtype.names is not None:
            raise InputError("y: a censored response cannot arrive in pieces; pass all rows to fit.")
        X, y = self._validated(X, y, first=buffer is None, least=1)
        check_row_count("y", len(y), X.shape[0])
        if buffer is None:
            buffer = self._buffer = RowBuffer()
        buffer.add(X, y)
        for name in _FITTED:
            self.__dict__.pop(name, None)
        return self

    def finish(self) -> Self:
        """Test the features on the rows that `partial_fit` collected.

        `transform` and `get_support` call it. `result_`, `support_`, `scores_` and `pvalues_` exist from then
        on, until `partial_fit` adds rows.
        """
        rows: RowBuffer | None = self.__dict__.get("_buffer")
        if rows is None:
            check_is_fitted(self)
        elif "result_" not in self.__dict__:
            self._test_rows(*rows.joined())
        return self

    def _check(self, y: Any) -> None:
        check_choice("keep", self.keep, ("auto", "selected", "rejected"))
        if y is None:
            raise InputError(f"y: {type(self).__name__} requires y to be passed, but the target y is None; pass it.")
        if isinstance(y, str):
            raise InputError(f"y: needs one value for each row, got the name {y!r}; pass that column, not in X.")

    def _validated(self, X: Any, y: Any, *, first: bool = True, least: int = 2) -> tuple[Any, Any]:
        """Arrays go through scikit-learn's checks; data frames keep names and categories, and `tables` checks them.

        What is not the `first` piece must have its columns; `least` rows are needed.
        """
        # Times and events, which `relate` reads.
        censored = isinstance(y, tuple) and [np.ndim(part) for part in y] == [1, 1]
        if _frame(X) is not None:
            validate_data(self, X, reset=first, skip_check_array=True)
            # A list of strings would be taken for column names of X.
            return X, plain_array(y) if isinstance(y, list | tuple) and not censored else y
        check: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "reset": first}
        if censored or (isinstance(y, np.ndarray) and y.dtype.names is not None):
            return validate_data(self, X, ensure_all_finite="allow-nan", **check), y
        finite = True if self.missing == "error" else "allow-nan"
        check |= {"ensure_all_finite": finite, "ensure_min_samples": least, "multi_output": True}
        X, checked = validate_data(self, X, plain_array(y) if isinstance(y, list | tuple) else y, **check)
        native = nw.from_native(y, allow_series=True, pass_through=True)
        return X, y if isinstance(native, nw.Series | nw.DataFrame) else checked

    def _result_of(self, X: Any, y: Any, rows: Mapping[str, Any]) -> Result:
        raise NotImplementedError

    def _test_rows(self, X: Any, y: Any, rows: Mapping[str, Any] | None = None) -> None:
        """Set the attributes of a fitted selector, by column: the columns of a group share what it got."""
        result = self.result_ = self._result_of(X, y, rows or {})
        pvalue = dict(zip(result.names, result.pvalues, strict=True))
        score = dict(zip(result.feature_names, result.scores, strict=True))
        keep = self.keep if self.keep != "auto" else "rejected" if self.k is self.threshold is None else "selected"
        found = result.rejected if result.distinct is None else result.distinct
        kept = {result.names[row] for row in (range(len(found)) if keep == "selected" else np.flatnonzero(found))}
        features = _feature_of_column(X, self.groups)
        self.support_ = np.array([name in kept for name in features])
        # Columns that are left out, such as identifiers, have no score.
        self.scores_ = np.array([score.get(name, np.nan) for name in features])
        self.pvalues_ = np.array([pvalue.get(name, np.nan) for name in features])

    def _call_arguments(self) -> dict[str, Any]:
        """The parameters that go to `compare` or `relate`."""
        given = self.get_params(deep=False)
        return {name: value for name, value in given.items() if name not in ("keep", "response")}

    def transform(self, X: Any) -> Any:
        """Reduce `X` to the selected columns, after the test of rows that `partial_fit` collected."""
        try:
            return super().transform(X)
        except np.exceptions.DTypePromotionError:
            raise InputError(
                "X: columns of dates and of numbers do not fit into one array; keep data frames with "
                "set_output(transform='pandas')."
            ) from None

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        self.finish()
        return self.support_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing != "error"
        return tags


class SelectMMD(_KernelSelector):
    """Select the features in which the samples labelled by y differ.

    With two labels this is `kernsift.compare` of the two samples; with more it asks whether any of the samples differ,
    which is `kernsift.relate` with the label as the response.

    Parameters
    ----------
    k : int or float, optional
        None keeps the discoveries among all features, as `SelectFdr` does; a number or a fraction keeps the features
        with the largest scores, as `SelectKBest` does.
    keep : {"auto", "selected", "rejected"}, default "auto"
        "selected" keeps every feature that `k` or `threshold` selects, "rejected" only the significant ones of them;
        "auto" is "selected" if `k` or `threshold` is given, else "rejected".
    threshold, estimator, test, kernel, bandwidth, alpha, correction, family, confidence_level : optional
        As in `kernsift.compare`. Options of an estimator or test are parameters too: with `estimator=Incomplete(r=5)`
        there is a parameter `estimator__r`.
    groups : dict of str to list, optional
        Columns that form one feature; they are kept or left out together.
    kinds : dict of str to {"number", "category", "drop"}, optional
        Kinds of columns, as in `kernsift.compare`; dropped columns are not selected.
    missing : {"column", "value", "drop", "error"}, default "column"
        How missing values are treated, as in `kernsift.compare`. `transform` keeps every row.
    given_model : scikit-learn regressor, optional
        A second regression on the confounders that `fit` is given; see `kernsift.relate`.
    distinct : bool, default False
        Whether to keep only the discoveries that are significant given the kept ones with stronger evidence.
    random_state : int, Generator or RandomState, optional
        Seed or generator.
    n_jobs : int, optional
        Number of threads; -1 for all cores. The default is the number that BLAS may use.
    progress : bool, default False
        Whether to show a progress bar for each stage that takes longer than two seconds.

    Attributes
    ----------
    result_ : Result
        The full result.
    support_ : array of bool
        Mask of the kept columns.
    scores_ : array of float
        Score of every column.
    pvalues_ : array of float
        P-values of the columns; with `k` or `threshold` selective ones, and NaN for columns that were not selected.
        `result_.all_pvalues` has the unconditional p-value of every feature.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from kernsift import SelectMMD
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> SelectMMD(random_state=0).fit_transform(X, y).shape[1] > 20  # the columns found to differ
    True
    >>> SelectMMD(k=5, random_state=0).fit_transform(X, y).shape
    (569, 5)
    """

    def _result_of(self, X: Any, y: Any, rows: Mapping[str, Any]) -> Result:
        shared = self._call_arguments()
        if self.missing == "error":
            # Checked as a whole first, so that errors refer to X and its rows, not to one of the samples.
            as_table(X, groups=self.groups, kinds=self.kinds, missing=self.missing)
        count = X.shape[0] if (frame := _frame(X)) is None else len(frame)
        # Rows without a label belong to no sample.
        labels, labelled, names = _labels(y, "error" if self.missing == "error" else "drop")
        for name, values in {"y": labels, **rows}.items():
            check_row_count(name, len(values), count)
        found = np.unique(labels[labelled])
        if len(found) < 2:
            raise InputError("y: at least two labels (classes) are needed to compare samples, got one class; add rows.")
        if len(found) == 2:
            first, second = (np.flatnonzero(labels == label) for label in found)
            given: dict[str, Any] = {name: (_rows(part, first), _rows(part, second)) for name, part in rows.items()}
            result = compare(_rows(X, first), _rows(X, second), **given, **shared)
            titles = [f"y = {name}" if is_code(name) else name for name in names]
            return _noted(result.renamed((titles[0], titles[1])), labelled)
        if isinstance(self.estimator, str) and self.estimator not in HSIC:
            known = ", ".join(map(repr, HSIC))
            raise InputError(
                f"estimator: {len(found)} labels in y need one of {known}, got {self.estimator!r}; "
                "choose one of them, or pass the rows of two labels."
            )
        keep = np.flatnonzero(labelled)
        given = {name: _rows(values, keep) for name, values in rows.items()}
        named = names != [number_name(label) for label in found.tolist()]
        answer = np.array(names)[np.searchsorted(found, labels[keep])] if named else labels[keep]
        return _noted(relate(_rows(X, keep), answer, response="category", **given, **shared), labelled)


@dataclass(kw_only=True, eq=False, repr=False)
class SelectHSIC(_KernelSelector):
    """Select the features that y depends on.

    Parameters
    ----------
    k, keep, threshold, estimator, test, kernel, bandwidth, alpha, correction, family, confidence_level : optional
        As in `SelectMMD`.
    groups, kinds, missing, given_model, distinct, random_state, n_jobs, progress : optional
        As in `SelectMMD`.
    response : {"auto", "category", "numeric", "censored"}, default "auto"
        How y is read; see `kernsift.relate`. A structured array of events and times, as scikit-survival has it, is a
        censored response.

    Attributes
    ----------
    result_, support_, scores_, pvalues_
        As in `SelectMMD`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from kernsift import SelectHSIC
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> selector = SelectHSIC(k=3, random_state=0).fit(X, y)
    >>> "bmi" in selector.get_feature_names_out()
    True
    """

    response: str = "auto"

    def _result_of(self, X: Any, y: Any, rows: Mapping[str, Any]) -> Result:
        return relate(X, y, response=self.response, **rows, **self._call_arguments())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _noted(result: Result, labelled: np.ndarray) -> Result:
    """The result with a note on rows that are in no sample."""
    absent = np.count_nonzero(~labelled)
    note = f"y: {absent:,} of {len(labelled):,} rows have no label and are left out."
    return replace(result, notes=(note, *result.notes)) if absent else result


def _row_labels(argument: str, values: Any) -> np.ndarray:
    """One value for each row."""
    if isinstance(values, str | bool):
        raise InputError(
            f"{argument}: needs one value for each row, got {values!r}; pass the column, which must not be in X."
        )
    return plain_array(values)


def _frame(X: Any) -> nw.DataFrame[Any] | None:
    """X as a data frame; None for arrays and everything else that scikit-learn reads itself."""
    try:
        frame = nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError:
        frame = None
    if frame is None or isinstance(frame, nw.LazyFrame):
        read_columns(X, "X")  # refuses repeated names and lazy frames
    return frame if isinstance(frame, nw.DataFrame) else None


def _rows(X: Any, rows: np.ndarray) -> Any:
    frame = _frame(X)
    return X[rows] if frame is None else frame[rows.tolist()].to_native()


def _feature_of_column(X: Any, groups: Mapping[str, Any] | None) -> list[str]:
    """For each column the name of the feature it belongs to: its group's, or its own."""
    frame = _frame(X)
    names = [f"x{i}" for i in range(X.shape[1])] if frame is None else [str(name) for name in frame.columns]
    owner = {str(column): str(group) for group, columns in (groups or {}).items() for column in columns}
    # Arrays have no names, so their columns may be given by position.
    places = names if frame is not None else [str(i) for i in range(len(names))]
    return [owner.get(name, owner.get(place, name)) for name, place in zip(names, places, strict=True)]


def _labels(y: Any, missing: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """One code for each row, the rows that have one, and the names of the different codes in ascending order."""
    columns = read_columns(y, "y", prefix="y")
    if len(columns.names) > 1:
        raise InputError(f"y: one column of labels is needed, got {len(columns.names)}; use SelectHSIC for several.")
    present = prepare([MemorySource(columns, "y")], ["y"], missing=missing, labels=True).keep[0]
    codes, levels = to_numpy(columns.values)[:, 0], columns.levels.get(0)
    known = np.unique(codes[present]).tolist()
    if not levels and any(value % 1 != 0 for value in known):
        example = next(value for value in known if value % 1 != 0)
        raise InputError(
            f"y: labels of samples are needed, got numbers such as {example:g}; use SelectHSIC for numbers."
        )
    names = [levels[int(value)] if levels else value_label(value, columns.kinds[0]) for value in known]
    return codes, present, names
