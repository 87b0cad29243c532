"""What a call returns: a frozen record that prints itself as a table."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, overload

import numpy as np

from kernsift.exceptions import INSTALL, InputError, check_choice, suggestion
from kernsift.inference import Outcome
from kernsift.inference.estimates import Estimates
from kernsift.inference.multiple_testing import significant
from kernsift.inference.redundancy import Clusters
from kernsift.report import export, plots, text
from kernsift.report.descriptions import Description
from kernsift.report.pictures import Picture
from kernsift.report.summaries import Summaries, renamed

BACKENDS = ("pandas", "polars", "pyarrow")


def as_frame(columns: Mapping[str, Any], backend: str) -> Any:
    """Named columns as a data frame of `backend`."""
    import narwhals as nw

    try:
        return nw.from_dict(columns, backend=cast(Any, backend)).to_native()
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"backend={backend!r} needs {backend}: {INSTALL}.") from error


@dataclass(frozen=True)
class FeatureRecord:
    """One feature of a result: what `result["age"]` gives.

    `effect`, `interval`, `missing` and `description` are None or empty where the feature is not listed; `pvalue` is
    then the unconditional one.
    """

    name: str
    score: float
    pvalue: float
    adjusted_pvalue: float
    rejected: bool
    listed: bool
    effect: float | None = None
    interval: tuple[float, float] | None = None
    n: int | None = None
    missing: float | None = None
    description: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """What was tested, what was found, and how large it is.

    Without `k` and `threshold` every feature is tested and listed. With one of them only the selected features are
    listed, with p-values, effect sizes and intervals that are conditional on their selection; what is found among them
    (`rejected`) is still corrected over all features, unless `family="selected"` was asked for.

    Intervals, clusters, pictures and descriptions are computed when they are first used; until then the result keeps
    the data that they need. Arrays of more than 64 MB are not copied, and must not be changed before that. Two results
    are equal if they are the same object.

    Attributes
    ----------
    question : {"compare", "relate", "screen"}
        The function that was called.
    selected : ndarray of int of shape (k,)
        Positions of the listed features, best first; what follows is in this order.
    names : tuple of str
        Their names.
    pvalues : ndarray of shape (k,)
        P-values in (0, 1]; those of a short list are selective: conditional on the feature having been selected.
        `log_pvalues` are their logarithms, exact where p-values underflow.
    unconditional_pvalues : ndarray of shape (k,)
        Unconditional p-values, from which the correction over all features is computed; the same as `pvalues` where
        every feature is tested.
    adjusted_pvalues : ndarray of shape (k,)
        P-values after `correction`; compare these with `alpha`. Those of a short list come from the unconditional
        p-values of all features, see `kernsift.inference.multiple_testing`; without a correction, or with
        `family="selected"`, from `pvalues`.
    rejected : ndarray of bool of shape (k,)
        Which features are significant, the discoveries: adjusted p-value at most alpha.
    effects : ndarray of shape (k,) or None
        Effect sizes in [0, 1]; of a short list the median-unbiased ones, which the selection does not inflate; None
        where the estimator has none. `raw_effects` are the unconditional ones. `estimates` computes them when they are
        used.
    intervals : ndarray of shape (k, 2) or None
        Confidence intervals for `effects`; None where the estimator has none, NaN beyond the first 1000 features.
        Where everything is tested and corrected, the expected share of discoveries whose interval misses the true
        effect is at most 1 - `confidence_level` (false coverage rate), and intervals of the other features reach down
        to 0; where nothing is corrected, each interval has the level by itself; in a short list conditionally on its
        selection.
    scores : ndarray of shape (d,)
        The scores of all features, in table order; `feature_names` are their names.
    all_pvalues, all_adjusted_pvalues : ndarray of shape (d,)
        Of all features in table order, whatever is listed: unconditional p-values, and those after the correction over
        all of them. `all_rejected` tells which of all features are significant.
    listed : bool
        Whether a short list was asked for.
    alpha, correction, family : float, str or None, str
        The level and the correction of `rejected`, and the features that it is over.
    confidence_level : float
        The level of `intervals`.
    settings : mapping
        Estimator, test, kernel and the rest, as used.
    seed : int or None
        The seed that gives this result again; None if a Generator was passed in.
    notes : tuple of str
        What a reader should know about the data, one sentence each.
    outcome : Outcome
        The record of the test: truncation intervals, scaling law.
    n : ndarray of int of shape (d,)
        Number of rows of each score, in table order: those without a missing value where `missing="column"`.
    rows : tuple of int
        Numbers of rows: of X and Y; of X; of the reference and each candidate.
    pictures : sequence of Picture
        Counts and quantiles of the listed features (of the best 200), which `plot_feature` draws.
    descriptions : sequence of Description
        What changed in each listed feature (in the best 2000), in words. Pictures and descriptions of longer tables
        show at most 5,000 evenly spaced rows of each; tests use all rows.
    labels : tuple of str
        Names of the samples, or of the response.
    kinds : tuple of int
        Numbers of numeric features, categorical features, and groups of columns.
    redundancy : Clusters
        Computes, when they are first used, `cluster_labels` (k,): the cluster of each discovery among those that are
        alike (`kernsift.inference.redundancy`), and -1 for the other features.
    distinct : ndarray of bool of shape (k,) or None
        Which of the listed features are significant given the distinct ones before them; None unless `distinct=True`
        was asked for.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift import compare
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(100, 5)), rng.normal(size=(100, 5))
    >>> Y[:, 2] += 1.0
    >>> result = compare(X, Y, random_state=0)
    >>> result
    <Result of compare: 1 of 5 features significant (BH at 0.05)>
    >>> [name for name, significant in zip(result.names, result.rejected) if significant]
    ['x2']
    >>> result.to_frame().shape[0], result.settings["estimator"], result.seed
    (5, 'complete', 0)

    The two best by themselves, each p-value conditional on its selection:

    >>> best = compare(X, Y, k=2, random_state=0)
    >>> bool(best.pvalues[0] >= best.unconditional_pvalues[0])
    True
    """

    question: str
    selected: np.ndarray
    names: tuple[str, ...]
    pvalues: np.ndarray
    log_pvalues: np.ndarray
    unconditional_pvalues: np.ndarray
    adjusted_pvalues: np.ndarray
    rejected: np.ndarray
    estimates: Estimates
    scores: np.ndarray
    feature_names: tuple[str, ...]
    all_pvalues: np.ndarray
    all_adjusted_pvalues: np.ndarray
    listed: bool
    alpha: float
    correction: str | None
    family: str
    confidence_level: float
    settings: Mapping[str, Any]
    seed: int | None
    notes: tuple[str, ...]
    outcome: Outcome
    n: np.ndarray
    redundancy: Clusters
    rows: tuple[int, ...] = ()
    pictures: Sequence[Picture] = ()
    descriptions: Sequence[Description] = ()
    labels: tuple[str, ...] = ()
    kinds: tuple[int, int, int] = (0, 0, 0)
    distinct: np.ndarray | None = None

    @property
    def cluster_labels(self) -> np.ndarray:
        return self.redundancy.labels

    @property
    def clusters(self) -> tuple[tuple[str, ...], ...]:
        """The discoveries in clusters of similar features, the best feature of each cluster first.

        Features are alike where the null correlation of their scores is at least 0.3. P-values do not depend on it.
        """
        labels = self.cluster_labels
        rows = (np.flatnonzero(labels == label) for label in range(int(labels.max(initial=-1)) + 1))
        return tuple(tuple(self.names[row] for row in own) for own in rows)

    def __contains__(self, name: object) -> bool:
        """Whether a feature of this name was tested."""
        return str(name) in self.feature_names

    __iter__ = None

    @property
    def effects(self) -> np.ndarray | None:
        return self.estimates.effects

    @property
    def raw_effects(self) -> np.ndarray | None:
        return self.estimates.raw_effects

    @property
    def intervals(self) -> np.ndarray | None:
        return self.estimates.intervals

    @property
    def all_rejected(self) -> np.ndarray:
        return significant(self.all_adjusted_pvalues, self.alpha)

    @property
    def found_outside(self) -> int:
        """How many features that are not listed are significant when all are tested with the same correction."""
        return int(self.all_rejected.sum() - self.all_rejected[self.selected].sum())

    @property
    def missing(self) -> np.ndarray:
        """(k,) share of the rows in which each listed feature is missing."""
        if self.question == "screen" or not self.rows:
            return np.zeros(len(self.selected))
        return np.maximum(1.0 - self.n[self.selected] / sum(self.rows), 0.0)

    def describe(self, row: int) -> str:
        """What changed in the listed feature at this place, in words.

        Where it is not significant there is no direction to report, and only medians or shares are given.
        """
        if row >= len(self.descriptions):
            return ""
        found = self.descriptions[row]
        return found.text if self.rejected[row] else found.typical

    def feature(self, name: Hashable) -> FeatureRecord:
        """The record of one feature, by its name, which may be a number or a tuple where the columns have such names.

        Examples
        --------
        >>> import numpy as np
        >>> from kernsift import compare
        >>> rng = np.random.default_rng(0)
        >>> X, Y = rng.normal(size=(100, 3)), rng.normal([0, 2, 0], 1, size=(100, 3))
        >>> result = compare(X, Y, random_state=0)
        >>> result["x1"].rejected, result["x1"].description
        (True, 'higher in Y: median 2.05 v -0.0917')
        """
        name = str(name)
        if name not in self.feature_names:
            hint = suggestion(name, self.feature_names, "; see result.feature_names.")
            raise InputError(f"name: needs one of the {len(self.feature_names)} features, got {name!r}{hint}")
        if name not in self.names:
            i = self.feature_names.index(name)
            p, adjusted = float(self.all_pvalues[i]), float(self.all_adjusted_pvalues[i])
            found = bool(self.all_rejected[i])
            return FeatureRecord(name, float(self.scores[i]), p, adjusted, found, listed=False, n=int(self.n[i]))
        row = self.names.index(name)
        ends = self.estimates.intervals_of(np.array([row]))
        return FeatureRecord(
            name,
            float(self.scores[self.selected[row]]),
            float(self.pvalues[row]),
            float(self.adjusted_pvalues[row]),
            bool(self.rejected[row]),
            listed=True,
            effect=None if self.effects is None else float(self.effects[row]),
            interval=None if ends is None else (float(ends[0, 0]), float(ends[0, 1])),
            n=int(self.n[self.selected[row]]),
            missing=float(self.missing[row]),
            description=self.describe(row),
        )

    __getitem__ = feature

    def renamed(self, labels: tuple[str, ...]) -> Result:
        """The same result with other names for the samples in pictures and descriptions."""
        kept = renamed(Summaries(self.pictures, self.descriptions, self.labels, self.kinds), labels)
        return replace(self, pictures=kept.pictures, descriptions=kept.descriptions, labels=labels)

    def order(self, sort: str = "p") -> np.ndarray:
        """Places of the listed features by "p" (strongest evidence first), "effect" (largest first) or "name"."""
        check_choice("sort", sort, ("p", "name") if self.effects is None else ("p", "effect", "name"))
        if sort == "name":
            return np.array(sorted(range(len(self.names)), key=lambda row: self.names[row]), dtype=int)
        if sort == "effect":
            return np.argsort(-np.asarray(self.effects), kind="stable")
        return np.arange(len(self.names))

    def columns(self, sort: str = "p") -> dict[str, Any]:
        """The table as named columns, one row a listed feature."""
        table: dict[str, Any] = {
            "feature": list(self.names),
            "n": self.n[self.selected],
            "missing": self.missing,
            "score": self.scores[self.selected],
            "pvalue": self.pvalues,
            "unconditional_pvalue": self.unconditional_pvalues,
            "adjusted_pvalue": self.adjusted_pvalues,
            "rejected": self.rejected,
        }
        if self.effects is not None:
            table["effect"], table["raw_effect"] = self.effects, self.raw_effects
        if self.intervals is not None:
            table["effect_lower"], table["effect_upper"] = self.intervals.T
        if self.question == "compare" and len(self.labels) == 2 and self.descriptions:
            medians = [(found.medians or (np.nan, np.nan)) for found in self.descriptions]
            medians += [(np.nan, np.nan)] * (len(self.names) - len(medians))
            table["median_first"], table["median_second"] = np.array(medians).T
        if self.rejected.any():
            table["cluster"] = self.cluster_labels
        if self.distinct is not None:
            table["distinct"] = self.distinct
        if self.descriptions:
            table["description"] = [self.describe(row) for row in range(len(self.names))]
        order = self.order(sort)
        return {
            name: [column[row] for row in order] if isinstance(column, list) else np.asarray(column)[order]
            for name, column in table.items()
        }

    def all_columns(self) -> dict[str, Any]:
        """All features that were scored as named columns, in table order, whatever is listed."""
        listed = np.zeros(len(self.scores), dtype=bool)
        listed[self.selected] = True
        return {
            "feature": list(self.feature_names),
            "n": self.n,
            "score": self.scores,
            "pvalue": self.all_pvalues,
            "adjusted_pvalue": self.all_adjusted_pvalues,
            "rejected": self.all_rejected,
            "listed": listed,
        }

    def to_frame(self, backend: str = "pandas", *, sort: str = "p", all_features: bool = False) -> Any:
        """The table as a data frame of `backend`: "pandas", "polars" or "pyarrow".

        It has a row for each listed feature, which are all features unless `k` or `threshold` was given, sorted by "p"
        (strongest evidence first), "effect" (largest first) or "name". With `all_features` it has the scores and
        unconditional p-values of all features in table order in any case.

        `n` are the rows used and `missing` the share of rows without a value; `median_first` and `median_second` are
        medians of the two samples (of dates in days since the first of all), and `description` says what changed.
        """
        check_choice("backend", backend, BACKENDS)
        return as_frame(self.all_columns() if all_features else self.columns(sort), backend)

    def to_dict(self, sort: str = "p") -> dict[str, Any]:
        """Everything in plain values, ready for JSON: None for NaN and infinities. `sort` is as in `to_frame`."""
        columns = {name: np.asarray(column).tolist() for name, column in self.columns(sort).items()}
        found = {
            "question": self.question,
            "features": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
            "listed": self.listed,
            "tested": len(self.scores),
            "discoveries": int(self.rejected.sum()),
            "alpha": self.alpha,
            "correction": self.correction,
            "family": self.family,
            "confidence_level": self.confidence_level,
            "settings": self.settings,
            "seed": self.seed,
            "notes": self.notes,
            "rows": self.rows,
            "scores": dict(zip(self.feature_names, self.scores.tolist(), strict=True)),
            "all_pvalues": dict(zip(self.feature_names, self.all_pvalues.tolist(), strict=True)),
            "all_adjusted_pvalues": dict(zip(self.feature_names, self.all_adjusted_pvalues.tolist(), strict=True)),
        }
        return {name: export.plain(value) for name, value in found.items()}

    def to_text(self, width: int = 100, *, sort: str = "p") -> str:
        """What is printed, in at most `width` columns: the verdict, the table, and notes on the data.

        Of a result that tests everything the table has the discoveries, at most 20; where there are none, the five best
        features. A short list is printed in full, up to 20 features. `sort` is as in `to_frame`.
        """
        return text.text(self, width, sort)

    def __str__(self) -> str:
        return self.to_text(text.printed_width())

    def __repr__(self) -> str:
        return f"<Result of {self.question}: {text.short(self)}>"

    summary = text.verdict
    _repr_html_ = text.html_table

    plot = plots.plot_overview
    plot_scores = plots.plot_scores
    plot_intervals = plots.plot_intervals
    plot_best = plots.plot_best
    plot_pvalues = plots.plot_pvalues
    plot_feature = plots.plot_feature
    plot_scaling = plots.plot_scaling

    def save(self, path: str | Path, *, sort: str = "p") -> None:
        """Write a file in the format of its suffix: .csv, .tsv, .json, .html, .md, .txt, .parquet or .xlsx.

        `sort` is as in `to_frame`.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from kernsift import compare
        >>> rng = np.random.default_rng(0)
        >>> result = compare(rng.normal(size=(50, 3)), rng.normal(size=(50, 3)), random_state=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result.save(Path(folder) / "result.csv")
        ...     (Path(folder) / "result.csv").read_text().split(",")[:3]
        ['feature', 'n', 'missing']
        """
        export.written(self, path, export.check_suffix(path), sort=sort)

    @overload
    def to_csv(self, path: None = None, *, sort: str = "p") -> str: ...
    @overload
    def to_csv(self, path: str | Path, *, sort: str = "p") -> None: ...
    def to_csv(self, path: str | Path | None = None, *, sort: str = "p") -> str | None:
        """The table as CSV; where `path` is given it is written there, and nothing is returned, as by pandas."""
        return export.written(self, path, ".csv", sort=sort)

    @overload
    def to_json(self, path: None = None, *, sort: str = "p") -> str: ...
    @overload
    def to_json(self, path: str | Path, *, sort: str = "p") -> None: ...
    def to_json(self, path: str | Path | None = None, *, sort: str = "p") -> str | None:
        """Everything as JSON, which is returned, or written to `path` where that is given."""
        return export.written(self, path, ".json", sort=sort)

    @overload
    def to_markdown(self, path: None = None, *, sort: str = "p") -> str: ...
    @overload
    def to_markdown(self, path: str | Path, *, sort: str = "p") -> None: ...
    def to_markdown(self, path: str | Path | None = None, *, sort: str = "p") -> str | None:
        """Verdict, table and notes in Markdown, returned, or written to `path` where that is given."""
        return export.written(self, path, ".md", sort=sort)

    @overload
    def to_html(
        self, path: None = None, *, title: str | None = None, command: str | None = None, sort: str = "p"
    ) -> str: ...
    @overload
    def to_html(
        self, path: str | Path, *, title: str | None = None, command: str | None = None, sort: str = "p"
    ) -> None: ...
    def to_html(
        self,
        path: str | Path | None = None,
        *,
        title: str | None = None,
        command: str | None = None,
        sort: str = "p",
    ) -> str | None:
        """The report: one HTML page with verdict, table and pictures. Needs Jinja2.

        It is returned, or written to `path` where that is given. `title` is its heading; `command` is what makes it
        again, if that is not a line of Python; `sort` is the order of its table when the page opens, as in `to_frame`.
        """
        return export.written(self, path, ".html", sort=sort, title=title, command=command)

    def to_excel(self, path: str | Path, *, sort: str = "p") -> None:
        """The table as an Excel file. Needs openpyxl."""
        export.written(self, path, ".xlsx", sort=sort)

    def to_parquet(self, path: str | Path, *, sort: str = "p") -> None:
        """The table as a Parquet file. Needs pyarrow."""
        export.written(self, path, ".parquet", sort=sort)
