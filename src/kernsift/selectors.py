"""scikit-learn selectors: the same questions in a Pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from kernsift.result import Result
from kernsift.select import compare, relate
from kernsift.tables import InputError


class _KernelSelector(SelectorMixin, BaseEstimator):
    """What both selectors share: parameters in, a `Result` and a support mask out."""

    def __init__(
        self,
        k: int | float | str | None = "auto",
        *,
        keep: str = "selected",
        threshold: float | None = None,
        estimator: str = "incomplete",
        test: str = "exact",
        kernel: Any = "gaussian",
        bandwidth: Any = "median",
        alpha: float = 0.05,
        correction: str | None = "bh",
        options: dict[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        self.k = k
        self.keep = keep
        self.threshold = threshold
        self.estimator = estimator
        self.test = test
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.alpha = alpha
        self.correction = correction
        self.options = options
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> _KernelSelector:
        """Rank, select and test the features of X."""
        if self.keep not in ("selected", "rejected"):
            raise InputError(f"keep: needs 'selected' or 'rejected', got {self.keep!r}.")
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        if _has_categories(X):
            validate_data(self, X, y, skip_check_array=True)
        else:
            X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], multi_output=True, ensure_min_samples=2)
        self.result_ = self._ask(X, y)
        keep = self.result_.selected if self.keep == "selected" else self.result_.selected[self.result_.rejected]
        self.support_ = np.zeros(self.n_features_in_, dtype=bool)
        self.support_[keep] = True
        self.scores_ = self.result_.scores
        self.pvalues_ = np.full(self.n_features_in_, np.nan)
        self.pvalues_[self.result_.selected] = self.result_.pvalues
        return self

    def _ask(self, X: Any, y: Any) -> Result:
        raise NotImplementedError

    def _shared(self) -> dict[str, Any]:
        names = ("k", "threshold", "estimator", "test", "kernel", "bandwidth", "alpha", "correction", "random_state")
        return {name: getattr(self, name) for name in names} | (self.options or {})

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        return self.support_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.string = False
        return tags


_PARAMETERS = """
    Parameters
    ----------
    k : how many features to keep: a number, a fraction, None for all, or "auto" (ten, or all if fewer).
    keep : "selected" keeps the k best in `transform`; "rejected" only those of them that stand after testing.
    threshold, estimator, test, kernel, bandwidth, alpha, correction : as in `kernsift.FUNCTION`.
    options : further keywords of `kernsift.FUNCTION`, such as {"r": 5}.
    random_state : seed, Generator or RandomState.

    Attributes
    ----------
    result_ : the full `Result`.
    support_ : mask of the kept features.
    scores_ : score of every feature.
    pvalues_ : selective p-values; NaN for features that were not selected, which were not tested.
"""


class SelectMMD(_KernelSelector):
    """Select the features in which the samples labelled by y differ.

    With two labels this is `kernsift.compare` of the two samples; with more it asks whether any of the samples differ,
    which is `kernsift.relate` with the label as the response.
    {parameters}
    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from kernsift import SelectMMD
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> SelectMMD(k=5, random_state=0).fit_transform(X, y).shape
    (569, 5)
    """

    def _ask(self, X: Any, y: Any) -> Result:
        labels = np.asarray(y)
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        check_classification_targets(labels)
        found = np.unique(labels)
        if len(found) == 1:
            raise InputError("y: at least two labels (classes) are needed to compare samples, got one class.")
        if len(found) > 2:
            shared = self._shared()
            if shared["estimator"] == "linear":
                raise InputError('estimator: "linear" compares two samples, but y has more labels; use "incomplete".')
            return relate(X, labels, response="category", **shared)
        samples = [_rows(X, np.flatnonzero(labels == label)) for label in found]
        return compare(*samples, **self._shared())


class SelectHSIC(_KernelSelector):
    """Select the features that y depends on.
    {parameters}
    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from kernsift import SelectHSIC
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> selector = SelectHSIC(k=3, random_state=0).fit(X, y)
    >>> "bmi" in selector.get_feature_names_out()
    True
    """

    def _ask(self, X: Any, y: Any) -> Result:
        return relate(X, y, **self._shared())


def _has_categories(X: Any) -> bool:
    """Whether X is a data frame with columns that are no numbers, which scikit-learn's own check would refuse."""
    import narwhals as nw

    frame = nw.from_native(X, eager_only=True, pass_through=True)
    return isinstance(frame, nw.DataFrame) and not all(kind.is_numeric() for kind in frame.schema.values())


def _rows(X: Any, rows: np.ndarray) -> Any:
    import narwhals as nw

    frame = nw.from_native(X, eager_only=True, pass_through=True)
    return nw.to_native(frame[rows.tolist()]) if isinstance(frame, nw.DataFrame) else X[rows]


for _class, _name in ((SelectMMD, "compare"), (SelectHSIC, "relate")):
    if _class.__doc__:
        _class.__doc__ = _class.__doc__.replace("{parameters}", _PARAMETERS.replace("FUNCTION", _name))
