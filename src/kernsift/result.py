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
    listed, with p-values, effect sizes and intervals that are conditional on their selection; `rejected` is still
    corrected over all features, except with `family="selected"`.

    Intervals, clusters, pictures and descriptions are computed when they are first used; until then the result keeps
    the data that they need. Arrays of more than 64 MB are not copied, and must not be changed before that. Two results
    are equal if they are the same object.

    Attributes
    ----------
    question : {"compare", "relate", "screen"}
        The function that was called.
    selected : ndarray of int of shape (k,)
        Positions of the listed features, best first. Arrays of shape (k,) are in this order.
    names : tuple of str
        Their names.
    pvalues : ndarray of shape (k,)
        P-values in (0, 1]; those of a short list are selective: conditional on the selection of the feature.
        `log_pvalues` are their logarithms, which do not underflow.
    unconditional_pvalues : ndarray of shape (k,)
        Unconditional p-values, which the correction over all features uses; equal to `pvalues` if every feature is
        tested.
    adjusted_pvalues : ndarray of shape (k,)
        P-values after `correction`, to be compared with `alpha`. Those of a short list are computed from the
        unconditional p-values of all features, see `kernsift.inference.multiple_testing`; without a correction, or
        with `family="selected"`, from `pvalues`.
    rejected : ndarray of bool of shape (k,)
        Which features are significant (the discoveries): adjusted p-value at most `alpha`.
    effects, intervals : ndarray of shape (k,) and (k, 2), or None
        Effect sizes and their confidence intervals, which `estimates` computes when they are used; see below.
    scores : ndarray of shape (d,)
        The scores of all features, in table order; `feature_names` are their names.
    all_pvalues, all_adjusted_pvalues : ndarray of shape (d,)
        Unconditional p-values of all features in table order, whatever is listed, before and after the correction.
        `all_rejected` are the significant ones.
    listed : bool
        Whether a short list was asked for.
    alpha, correction, family : float, str or None, str
        The error rate and the correction of `rejected`, and the p-values that are corrected.
    confidence_level : float
        The level of `intervals`.
    settings : mapping
        Estimator, test, kernel and other arguments of the call.
    seed : int or None
        The seed that repeats this result; None if a Generator was passed in.
    notes : tuple of str
        Notes on the data, one sentence each.
    outcome : Outcome
        The record of the test: truncation intervals, scaling law.
    n : ndarray of int of shape (d,)
        Number of rows of each score, in table order; with `missing="column"` those without a missing value.
    rows : tuple of int
        Numbers of rows of X and Y in `compare`, of X in `relate`, of the reference and each candidate in `screen`.
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
        Computes `cluster_labels` (k,) when they are first used: the cluster of each discovery, and -1 for the other
        features. See `kernsift.inference.redundancy`.
    distinct : ndarray of bool of shape (k,) or None
        Which of the listed features are significant given the distinct ones before them; None without `distinct=True`.

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
        """Cluster (k,) of each discovery, counted from 0; -1 for the other listed features."""
        return self.redundancy.labels

    @property
    def clusters(self) -> tuple[tuple[str, ...], ...]:
        """The discoveries in clusters of similar features, the best feature of each cluster first.

        Features are similar if the null correlation of their scores is at least 0.3. P-values do not depend on
        clusters.
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
        """Effect sizes (k,) in [0, 1]: kernel correlations; None if the estimator has none.

        In a short list they are median-unbiased after the selection; `raw_effects` ignore it.
        """
        return self.estimates.effects

    @property
    def raw_effects(self) -> np.ndarray | None:
        """Effect sizes (k,) that ignore the selection; None if the estimator has none."""
        return self.estimates.raw_effects

    @property
    def intervals(self) -> np.ndarray | None:
        """Confidence intervals (k, 2) of `effects`; None if the estimator has none, NaN beyond the first 1000 features.

        If every feature is tested and corrected, the expected share of discoveries whose interval misses the true
        effect is at most 1 - `confidence_level` (false coverage rate), and intervals of the other features begin at 0.
        Without a correction each interval has that level by itself, and in a short list conditionally on the selection.
        """
        return self.estimates.intervals

    @property
    def all_rejected(self) -> np.ndarray:
        """Which of all d features are significant, in table order, whatever is listed."""
        return significant(self.all_adjusted_pvalues, self.alpha)

    @property
    def found_outside(self) -> int:
        """Number of features outside the list that are significant when all are tested with the same correction."""
        return int(self.all_rejected.sum() - self.all_rejected[self.selected].sum())

    @property
    def missing(self) -> np.ndarray:
        """Share of the rows (k,) without a value of each listed feature."""
        if self.question == "screen" or not self.rows:
            return np.zeros(len(self.selected))
        return np.maximum(1.0 - self.n[self.selected] / sum(self.rows), 0.0)

    def describe(self, row: int) -> str:
        """What changed in the listed feature at position `row`, in words.

        A feature that is not significant has no direction; only its medians or shares are given.
        """
        if row >= len(self.descriptions):
            return ""
        found = self.descriptions[row]
        return found.text if self.rejected[row] else found.typical

    def feature(self, name: Hashable) -> FeatureRecord:
        """The record of one feature; `result[name]` is the same.

        Parameters
        ----------
        name : hashable
            The name of its column, which may be a number or a tuple.

        Returns
        -------
        FeatureRecord
            Score, p-values, effect, interval, number of rows, share of missing values and description. Features outside
            a short list have no effect, interval and description.

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
        """The same result with other names of the samples, or of the response, in pictures and descriptions."""
        kept = renamed(Summaries(self.pictures, self.descriptions, self.labels, self.kinds), labels)
        return replace(self, pictures=kept.pictures, descriptions=kept.descriptions, labels=labels)

    def order(self, sort: str = "p") -> np.ndarray:
        """Positions of the listed features, sorted by "p" (strongest evidence first), "effect" or "name"."""
        check_choice("sort", sort, ("p", "name") if self.effects is None else ("p", "effect", "name"))
        if sort == "name":
            return np.array(sorted(range(len(self.names)), key=lambda row: self.names[row]), dtype=int)
        if sort == "effect":
            return np.argsort(-np.asarray(self.effects), kind="stable")
        return np.arange(len(self.names))

    def columns(self, sort: str = "p") -> dict[str, Any]:
        """The table as named columns, with one row for each listed feature."""
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
        """The table as a data frame, with one row for each listed feature.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, default "pandas"
            The library of the data frame.
        sort : {"p", "effect", "name"}, default "p"
            Strongest evidence first, largest effect first, or by name.
        all_features : bool, default False
            Whether to return the scores and unconditional p-values of all features in table order, also if `k` or
            `threshold` made a list.

        Returns
        -------
        data frame
            `n` is the number of rows used and `missing` the share of rows without a value; `median_first` and
            `median_second` are the medians of the two samples (of dates in days since 1970-01-01, of durations in
            days); `description` says what changed.
        """
        check_choice("backend", backend, BACKENDS)
        return as_frame(self.all_columns() if all_features else self.columns(sort), backend)

    def to_dict(self, sort: str = "p") -> dict[str, Any]:
        """Everything as plain values for JSON, with None for NaN and infinities; `sort` is as in `to_frame`."""
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
        """The verdict, the table and the notes as text.

        If every feature is tested, the table has the discoveries, at most 20, or the five best features if there are
        none. A short list is printed in full, up to 20 features.

        Parameters
        ----------
        width : int, default 100
            The most characters of a line.
        sort : {"p", "effect", "name"}, default "p"
            As in `to_frame`.

        Returns
        -------
        str
            What `print(result)` prints.
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
        """Write the result in the format of the file's suffix.

        Parameters
        ----------
        path : str or Path
            A name that ends in .csv, .tsv, .json, .html, .md, .txt, .parquet or .xlsx.
        sort : {"p", "effect", "name"}, default "p"
            As in `to_frame`.

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
        """The table as CSV: written to `path` if that is given, else returned, as in pandas."""
        return export.written(self, path, ".csv", sort=sort)

    @overload
    def to_json(self, path: None = None, *, sort: str = "p") -> str: ...
    @overload
    def to_json(self, path: str | Path, *, sort: str = "p") -> None: ...
    def to_json(self, path: str | Path | None = None, *, sort: str = "p") -> str | None:
        """Everything as JSON: written to `path` if that is given, else returned."""
        return export.written(self, path, ".json", sort=sort)

    @overload
    def to_markdown(self, path: None = None, *, sort: str = "p") -> str: ...
    @overload
    def to_markdown(self, path: str | Path, *, sort: str = "p") -> None: ...
    def to_markdown(self, path: str | Path | None = None, *, sort: str = "p") -> str | None:
        """Verdict, table and notes in Markdown: written to `path` if that is given, else returned."""
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
        """The report: one self-contained HTML page with verdict, table and pictures. Requires Jinja2.

        Parameters
        ----------
        path : str or Path, optional
            The file to write; by default the page is returned.
        title : str, optional
            The heading.
        command : str, optional
            The command that repeats the call, if it is not a line of Python.
        sort : {"p", "effect", "name"}, default "p"
            The order of the table when the page opens, as in `to_frame`.

        Returns
        -------
        str or None
            The page, or None if it was written.
        """
        return export.written(self, path, ".html", sort=sort, title=title, command=command)

    def to_excel(self, path: str | Path, *, sort: str = "p") -> None:
        """The table as an Excel file. Requires openpyxl."""
        export.written(self, path, ".xlsx", sort=sort)

    def to_parquet(self, path: str | Path, *, sort: str = "p") -> None:
        """The table as a Parquet file. Requires pyarrow."""
        export.written(self, path, ".parquet", sort=sort)
