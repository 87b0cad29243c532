"""Every group of a table against the rest, or against one of them, under one correction."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernsift.api import compare
from kernsift.arguments import CallSettings, Seed
from kernsift.data.columns.named_columns import as_column_name
from kernsift.data.formats import open_table
from kernsift.data.rows.samples import check_group_sizes, group_rows, named_group
from kernsift.exceptions import check_choice, check_flag
from kernsift.inference.estimates import Coverage
from kernsift.inference.multiple_testing import adjust, significant
from kernsift.kernels.functions import Kernel, KernelFunction
from kernsift.options import Options
from kernsift.questions import lazy_reading
from kernsift.report.summaries import LazyRecords
from kernsift.report.text import clean, controlled, table_and_order
from kernsift.result import BACKENDS, Result, as_frame


def compare_groups(
    X: Any,
    by: Any,
    *,
    reference: Any = None,
    k: int | float | None = None,
    threshold: float | None = None,
    estimator: str | Options = "complete",
    test: str | Options = "exact",
    kernel: str | Kernel | KernelFunction = "gaussian",
    bandwidth: str | float | np.ndarray = "auto",
    alpha: float = 0.05,
    correction: str | None = "bh",
    intervals: bool = False,
    confidence_level: float = 0.95,
    groups: Mapping[str, Any] | None = None,
    kinds: Mapping[str, str] | None = None,
    layer: str | None = None,
    missing: str = "column",
    strata: Any = None,
    paired: Any = None,
    unit: Any = None,
    given: Any = None,
    given_model: Any = None,
    random_state: Seed = None,
    n_jobs: int | None = None,
    progress: bool = False,
    client: Any = None,
    memory: int | str | None = None,
    backend: str = "pandas",
) -> Any:
    """Test which features differ between each group and the rest.

    Runs `compare` for every value of `by`, with one correction for the number of features of all groups together.

    Parameters
    ----------
    X : array-like, sparse matrix, data frame, AnnData or path
        One table, which holds all groups; see `compare`.
    by : str or array-like
        The column that names the group of each row: its name (for AnnData one of `obs`), or one value for each row.
    reference : scalar, optional
        The value of `by` that each other group is compared with; by default each group is compared with all others.
    k, threshold, estimator, test, kernel, bandwidth : optional
        As in `compare`, for each group.
    alpha : float, default 0.05
        The error rate that `correction` controls.
    correction : {"bh", "by", "bky", "holm"} or None, default "bh"
        As in `compare`, over all features of all groups.
    intervals : bool, default False
        Whether to compute confidence intervals of the effects. Of the discoveries' intervals, at most a share
        1 - `confidence_level` misses the true effect on average (false coverage rate).
    confidence_level, groups, kinds, layer, missing : optional
        As in `compare`.
    strata, paired, unit, given, given_model : optional
        As in `compare`. Units that have rows in several groups, such as donors with cells of several types, are
        `strata`.
    random_state, n_jobs, progress, client, memory : optional
        As in `compare`.
    backend : {"pandas", "polars", "pyarrow"}, default "pandas"
        The library of the data frame.

    Returns
    -------
    data frame
        A row for each listed feature of each group, with the group in the first column and the columns of
        `Result.to_frame` after it. Medians, descriptions and intervals are those of the 1000 features with the
        strongest evidence over all groups, as each takes some milliseconds. A frame of pandas has the notes of all
        comparisons in `attrs["notes"]`.

    See Also
    --------
    compare : Compare two samples, or one group with the rest.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift import compare_groups
    >>> rng = np.random.default_rng(0)
    >>> X, by = rng.normal(size=(300, 4)), np.repeat(["a", "b", "c"], 100)
    >>> X[by == "b", 2] += 1.0
    >>> frame = compare_groups(X, by, random_state=0)
    >>> frame[frame.rejected][["group", "feature"]].values.tolist()
    [['a', 'x2'], ['b', 'x2'], ['c', 'x2']]
    """
    options = {name: value for name, value in locals().items() if name not in ("X", "by", "backend")}
    check_choice("backend", backend, BACKENDS)
    return group_results(X, by, **options).to_frame(backend)


def group_results(X: Any, by: Any, *, reference: Any = None, intervals: bool = False, **options: Any) -> GroupResults:
    """The comparison of each group, corrected over all; `options` are those of `compare_groups`."""
    check_flag("intervals", intervals)
    alpha, correction = options["alpha"], options["correction"]
    call = CallSettings.from_arguments("compare", {**options, "family": "all"})
    source = open_table(X, "X", memory=options["memory"], layer=options.pop("layer"))
    by = as_column_name(by)
    rows = group_rows(source, by)[1]
    against = None if reference is None else named_group(rows, reference, "reference")
    check_group_sizes(rows)
    options |= {"correction": None, "random_state": call.rng if call.seed is None else call.seed}
    with lazy_reading():
        results = {
            name: compare(source, by=by, group=name, reference=against, **options) for name in rows if name != against
        }
    return GroupResults.corrected(results, alpha, correction, intervals)


STRONGEST = 1000
"""Features over all groups that are described and may have intervals, each of which takes some milliseconds."""


@dataclass(frozen=True, eq=False)
class GroupResults:
    """The results of all groups, with adjusted p-values and discoveries of the correction over all of them.

    Attributes
    ----------
    results : the result of each group.
    alpha, correction : the level, and the correction over all features of all groups.
    """

    results: Mapping[str, Result]
    alpha: float
    correction: str | None

    @classmethod
    def corrected(
        cls, results: Mapping[str, Result], alpha: float, correction: str | None, intervals: bool
    ) -> GroupResults:
        """Correct over all groups."""
        every = list(results.values())
        pvalues = np.concatenate([result.all_pvalues for result in every])
        starts = np.cumsum([0, *(len(result.all_pvalues) for result in every)])
        listed = [result.selected + start for result, start in zip(every, starts, strict=False)]
        ends = np.cumsum([len(own) for own in listed])[:-1]
        if correction is None:  # selective p-values stay as they are
            adjusted = np.concatenate([result.adjusted_pvalues for result in every])
        else:
            adjusted = adjust(pvalues, correction, np.concatenate(listed))
        all_adjusted = np.split(adjust(pvalues, correction), starts[1:-1])
        rejected = significant(adjusted, alpha)
        share = np.count_nonzero(rejected) / len(pvalues)
        order = np.argsort(np.concatenate([result.log_pvalues for result in every]), kind="stable")
        strongest = np.isin(np.arange(len(adjusted)), order[:STRONGEST])
        found = {}
        split = (np.split(values, ends) for values in (adjusted, rejected, strongest))
        for (name, result), own, own_adjusted, own_rejected, own_strongest in zip(
            results.items(), all_adjusted, *split, strict=True
        ):
            discoveries = None if result.listed or correction is None else own_rejected
            coverage = Coverage(result.confidence_level, discoveries, share)
            # Features are in the order of their evidence.
            count = int(np.count_nonzero(own_strongest))
            described = min(count, len(result.descriptions))
            found[name] = replace(
                result,
                correction=correction,
                adjusted_pvalues=own_adjusted,
                all_adjusted_pvalues=own,
                rejected=own_rejected,
                estimates=result.estimates.with_coverage(coverage, count if intervals else 0),
                descriptions=LazyRecords(result.descriptions.__getitem__, described),
                redundancy=result.redundancy.within(own_rejected),
            )
        return cls(found, alpha, correction)

    @property
    def rejected(self) -> np.ndarray:
        """Which of all listed features are significant, group after group."""
        return np.concatenate([result.rejected for result in self.results.values()])

    @property
    def tested(self) -> int:
        """The number of p-values of all groups, which the correction counts."""
        return sum(len(result.scores) for result in self.results.values())

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know about the data; notes on one group alone begin with its name."""
        every = [result.notes for result in self.results.values()]
        common = [note for note in every[0] if all(note in notes for notes in every)]
        own = [f"{name}: {note}" for name, one in self.results.items() for note in one.notes if note not in common]
        return (*common, *own)

    @property
    def seed(self) -> int | None:
        return next(iter(self.results.values())).seed

    def order(self, sort: str) -> None:
        """Refuse an order that no table can have."""
        for result in self.results.values():
            result.order(sort)

    def columns(self, sort: str = "p") -> dict[str, list[Any]]:
        """The table as named columns, group after group."""
        parts = {name: result.columns(sort) for name, result in self.results.items()}
        columns: dict[str, list[Any]] = {"group": []}
        # A column that a group lacks, such as `distinct`, is empty in its rows.
        columns |= {name: [] for part in parts.values() for name in part}
        for group, part in parts.items():
            count = len(part["feature"])
            columns["group"] += [group] * count
            for name in columns.keys() - {"group"}:
                absent = "" if name == "description" else None
                columns[name] += np.asarray(part[name]).tolist() if name in part else [absent] * count
        return columns

    def to_frame(self, backend: str = "pandas", *, sort: str = "p") -> Any:
        """The table as a data frame."""
        frame = as_frame(self.columns(sort), backend)
        if backend == "pandas":
            frame.attrs["notes"] = self.notes
        return frame

    def to_dict(self, sort: str = "p") -> dict[str, Any]:
        """Everything in plain Python values."""
        return {
            "question": "compare",
            "alpha": self.alpha,
            "correction": self.correction,
            "tested": self.tested,
            "discoveries": int(self.rejected.sum()),
            "seed": self.seed,
            "notes": list(self.notes),
            "groups": {name: result.to_dict(sort) for name, result in self.results.items()},
        }

    def summary(self, width: int = 100) -> str:
        """One sentence in plain words."""
        level = controlled(self.correction, self.alpha, "all of them")
        found = int(self.rejected.sum())
        said = f"{found:,} of {self.tested:,} comparisons of {len(self.results)} groups {'is' if found == 1 else 'are'}"
        return "\n".join(textwrap.wrap(f"{said} significant ({level}).", width))

    def tables(self, width: int = 100, sort: str = "p") -> str:
        """The table of each group."""
        parts = []
        for name, result in self.results.items():
            against = " v ".join(reversed(result.labels)) if result.labels else name
            said = f"{int(result.rejected.sum()):,} of {len(result.names):,} significant"
            said = said if len(result.names) else "no feature reached the threshold"
            parts.append(f"{clean(against)}: {said}\n{table_and_order(result, width, sort)}".strip())
        return "\n\n".join(parts)

    def to_text(self, width: int = 100, *, sort: str = "p") -> str:
        """What is printed: the summary, and the table of each group."""
        return f"{self.summary(width)}\n\n{self.tables(width, sort)}"
