"""What a call gives back: a frozen record that prints itself as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kernsift.estimates import Estimates
from kernsift.inference import Outcome
from kernsift.pictures import Picture
from kernsift.tables import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BACKENDS = ("pandas", "polars", "pyarrow")


@dataclass(frozen=True)
class Result:
    """The selected features with p-values that stay valid after the selection.

    Attributes
    ----------
    question : "compare", "relate" or "screen".
    selected : positions of the selected features, best first; everything below is in this order.
    names : their names.
    pvalues : selective p-values, in (0, 1]. `log_pvalues` are their logarithms, exact where p-values underflow.
    naive_pvalues : what one would get by forgetting that the features were selected on the same data.
    adjusted_pvalues : `pvalues` after `correction`; compare these with `alpha`.
    rejected : whether each feature stands: adjusted p-value at most alpha.
    effects : effect sizes in [0, 1]; None where the estimator has none. `estimates` works them out when asked.
    intervals : (k, 2) confidence intervals for `effects`, valid after selection; None where the estimator has none.
    scores : the scores of all features, in table order; `feature_names` are their names.
    alpha, correction : the level and the correction behind `rejected`.
    settings : estimator, test, kernel and the rest, as used.
    seed : the seed that gives this result again; None if a Generator was passed in.
    notes : what a reader should know about the data, one sentence each.
    outcome : the test's own record: truncation intervals, scaling law.
    rows : how many rows there were: of X and Y; of X; of the reference and each candidate.
    pictures : counts and quantiles of the selected features (of the best 200), which `plot_feature` draws.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift import compare
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(100, 5)), rng.normal(size=(100, 5))
    >>> Y[:, 2] += 1.0
    >>> result = compare(X, Y, k=2, random_state=0)
    >>> [name for name, stands in zip(result.names, result.rejected) if stands]
    ['x2']
    >>> bool(result.pvalues[0] >= result.naive_pvalues[0])
    True
    >>> result.settings["estimator"], result.settings["test"], result.seed
    ('complete', 'exact', 0)
    >>> sorted(result.to_dict()["features"][0])[:3]
    ['adjusted_pvalue', 'effect', 'effect_lower']
    """

    question: str
    selected: np.ndarray
    names: tuple[str, ...]
    pvalues: np.ndarray
    log_pvalues: np.ndarray
    naive_pvalues: np.ndarray
    adjusted_pvalues: np.ndarray
    rejected: np.ndarray
    estimates: Estimates
    scores: np.ndarray
    feature_names: tuple[str, ...]
    alpha: float
    correction: str | None
    settings: Mapping[str, Any]
    seed: int | None
    notes: tuple[str, ...]
    outcome: Outcome
    rows: tuple[int, ...] = ()
    pictures: Sequence[Picture] = ()

    @property
    def effects(self) -> np.ndarray | None:
        return self.estimates.effects

    @property
    def intervals(self) -> np.ndarray | None:
        return self.estimates.intervals

    def columns(self) -> dict[str, Any]:
        """The table as named columns, one row a selected feature."""
        table: dict[str, Any] = {
            "feature": list(self.names),
            "score": self.scores[self.selected],
            "pvalue": self.pvalues,
            "naive_pvalue": self.naive_pvalues,
            "adjusted_pvalue": self.adjusted_pvalues,
            "rejected": self.rejected,
        }
        if self.effects is not None:
            table["effect"] = self.effects
        if self.intervals is not None:
            table["effect_lower"], table["effect_upper"] = self.intervals.T
        return table

    def to_frame(self, backend: str = "pandas") -> Any:
        """The table as a data frame of `backend`: "pandas", "polars" or "pyarrow"."""
        import narwhals as nw

        if backend not in _BACKENDS:
            raise InputError(f"backend: needs one of {', '.join(map(repr, _BACKENDS))}, got {backend!r}.")
        try:
            return nw.from_dict(self.columns(), backend=cast(Any, backend)).to_native()
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"to_frame(backend={backend!r}) needs {backend}: pip install {backend}, or use to_dict()."
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain Python values, ready for JSON."""
        return {
            "question": self.question,
            "features": [dict(zip(self.columns(), row, strict=True)) for row in zip(*self._plain(), strict=True)],
            "alpha": self.alpha,
            "correction": self.correction,
            "settings": {name: _plain_value(value) for name, value in self.settings.items()},
            "seed": self.seed,
            "notes": list(self.notes),
            "rows": list(self.rows),
            "scores": dict(zip(self.feature_names, self.scores.tolist(), strict=True)),
        }

    def _plain(self) -> list[list[Any]]:
        return [np.asarray(column).tolist() for column in self.columns().values()]

    def summary(self) -> str:
        """One sentence in plain words."""
        from kernsift.show.wording import verdict

        return verdict(self)

    def to_text(self, width: int = 100) -> str:
        """The table as printed, in at most `width` columns, with the verdict and the notes below it."""
        from kernsift.show.wording import table, words

        return f"{table(self, width)}\n\n{words(self, width)}"

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        from kernsift.show.wording import html_table

        return html_table(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """All scores best first, the cut, and which selected features stand. Needs matplotlib."""
        from kernsift.show.plots import plot_scores

        return plot_scores(self, ax)

    def plot_pvalues(self, ax: Axes | None = None) -> Axes:
        """Selective against naive p-values of the selected features. Needs matplotlib."""
        from kernsift.show.plots import plot_pvalues

        return plot_pvalues(self, ax)

    def plot_feature(self, name: str | None = None, ax: Axes | None = None) -> Axes:
        """One selected feature (the best by default) in both samples, or against the response. Needs matplotlib."""
        from kernsift.show.feature_plot import plot_feature

        return plot_feature(self, name, ax)

    def to_html(self, *, title: str | None = None, command: str | None = None) -> str:
        """The report: one HTML file with the verdict, the table and the pictures. Needs Jinja2.

        `title` is its heading; `command` is what makes it again, if that is not the line of Python it would tell.
        """
        from kernsift.show.report import report

        return report(self, title=title, command=command)

    def plot_scaling(self, name: str | None = None, ax: Axes | None = None) -> Axes:
        """The multiscale test's scaling law for one feature (the best that has one by default), read at 0."""
        from kernsift.show.plots import plot_scaling

        return plot_scaling(self, name, ax)


def _plain_value(value: Any) -> Any:
    """A setting as JSON knows it: NumPy numbers and arrays, which a user may pass as options, become Python's own."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
