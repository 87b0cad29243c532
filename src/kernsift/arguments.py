"""The arguments that all questions share, checked once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, fields
from numbers import Integral, Real
from typing import Any

import numpy as np

from kernsift.data.columns.named_columns import column_names
from kernsift.data.rows.exchangeability import Exchangeability
from kernsift.data.rows.row_arguments import RowArguments
from kernsift.data.tables import Table
from kernsift.estimators import HSIC, MMD, SCREEN
from kernsift.estimators.conditional.confounders import Confounders
from kernsift.estimators.patterns import RowSubset
from kernsift.estimators.restricted.unit_responses import smallest_pvalue
from kernsift.estimators.scores import Scores
from kernsift.exceptions import CalibrationWarning, InputError, caller_level, check_choice, check_flag, suggestion
from kernsift.execution import dask_workers
from kernsift.execution.notes import add_note, collect_notes
from kernsift.execution.progress import progress_bar
from kernsift.execution.threads import thread_limit
from kernsift.inference import TESTS
from kernsift.inference.multiple_testing import CORRECTIONS, adjust
from kernsift.inference.scaling_law import MODELS
from kernsift.inference.selection_rules import Everything, SelectionRule, Threshold, TopK
from kernsift.kernels.fitted import FeatureKernels, fit_kernels
from kernsift.kernels.functions import Gaussian, as_kernel
from kernsift.options import ESTIMATOR_OPTIONS, TEST_OPTIONS, resolve

Seed = int | np.random.Generator | None

# Smallest possible p-values below this need no note.
_NEGLIGIBLE = 1e-6
_FROM_DRAWS = ("incomplete", "block", "linear")
_ESTIMATORS = {"compare": MMD, "relate": HSIC, "screen": SCREEN}


@dataclass
class CallSettings:
    """The arguments of one call, checked."""

    question: str
    _: KW_ONLY
    k: int | float | None
    threshold: float | None
    estimator: Any
    test: Any
    kernel: Any
    bandwidth: Any
    alpha: float
    correction: str | None
    family: str
    confidence_level: float
    random_state: Seed
    n_jobs: int | None
    progress: bool
    notes: list[str] = field(init=False, default_factory=list)

    @classmethod
    def from_arguments(cls, question: str, arguments: Mapping[str, Any]) -> CallSettings:
        """The settings among the arguments of a public function, which may have others."""
        return cls(question, **{name: arguments[name] for name in _SETTINGS})

    def __post_init__(self) -> None:
        estimators = _ESTIMATORS[self.question]
        self.estimator, self.estimator_options = resolve("estimator", self.estimator, estimators, ESTIMATOR_OPTIONS)
        self.test, self.test_options = resolve("test", self.test, TESTS, TEST_OPTIONS)
        self.options = self.estimator_options | self.test_options
        self.compute_scores, self.run_test = estimators[self.estimator], TESTS[self.test]
        check_test_options(self.test_options)
        _check_share("alpha", self.alpha, 0.05)
        _check_share("confidence_level", self.confidence_level, 0.95)
        check_choice("correction", self.correction, (None, *CORRECTIONS))
        check_choice("family", self.family, ("all", "selected"))
        self.bandwidth, adaptive = self._bandwidth(self.bandwidth)
        if adaptive:
            self.estimator_options = self.estimator_options | {"adaptive": True}
        self.seed, self.rng = generator(self.random_state)
        jobs = self.n_jobs
        if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, Integral) or jobs == 0):
            raise InputError(
                f"n_jobs: needs a whole number of threads, -1 for all cores, or None, got {jobs!r}; leave it out."
            )
        check_flag("progress", self.progress)

    @contextmanager
    def execution_context(self, client: Any = None, *data: Any) -> Iterator[None]:
        """The context of the computation: threads, the workers of a Dask client, progress bar and notes."""
        with (
            thread_limit(self.n_jobs),
            dask_workers.client_in_use(client, *data),
            progress_bar(self.progress),
            collect_notes() as self.notes,
        ):
            yield

    def options_for(self, subset: RowSubset | None, rows: Exchangeability | None) -> dict[str, Any]:
        """The options of the estimator, for all rows or for some of them."""
        every = self.from_draws and self.k is None and self.threshold is None
        more = {"subset": subset, "rows": rows, "all_effects": every or None}
        return self.estimator_options | {name: value for name, value in more.items() if value is not None}

    @property
    def adaptive(self) -> bool:
        """Whether features are tested with several kernels."""
        return bool(self.estimator_options.get("adaptive"))

    def row_arguments(self, strata: Any, paired: Any, unit: Any, *, given: Any, **others: Any) -> RowArguments:
        """The strata, pairs and units of rows; `given` and `others` may name columns too, a mapping in its values."""
        _check_named_once(**others, strata=strata, paired=paired, unit=unit, given=given)
        rows = RowArguments(self.question, strata, paired, unit)
        if rows and self.estimator != "complete" and not (self.estimator == "cross" and rows.only_units):
            able = "'complete' or 'cross'" if rows.only_units else "'complete'"
            raise InputError(
                f"estimator: {rows} need{'' if ' and ' in str(rows) else 's'} estimator={able}, whose null law "
                f"accounts for which rows are exchangeable, got {self.estimator!r}; leave out estimator=."
            )
        return rows

    def check_given(self, given: Any, model: Any, distinct: Any, client: Any) -> None:
        """Refuse arguments that a conditional test does not support, and record the others as settings."""
        check_flag("distinct", distinct)
        if given is None and model is not None and not distinct:
            raise InputError("given_model: is the regression on the confounders given=, which are missing; pass both.")
        if given is None and not distinct:
            return
        argument = "distinct" if given is None else "given"
        if self.estimator != "complete":
            raise InputError(
                f"{argument}: needs estimator='complete', whose factors can be regressed on other columns, got "
                f"{self.estimator!r}; leave out estimator=."
            )
        if client is not None:
            raise InputError(f"client: {argument}= is computed on this machine; leave out client.")
        if model is not None and not _is_regressor(model):
            raise InputError(
                f"given_model: needs a scikit-learn regressor, got {model!r}; pass for instance "
                "HistGradientBoostingRegressor()."
            )
        recorded = {
            "given": None if given is None else column_names(given) or "data",
            "given_model": None if model is None else repr(model),
            "distinct": distinct or None,
        }
        self.options = self.options | {name: value for name, value in recorded.items() if value is not None}

    def conditional_options(
        self, confounders: Confounders, model: Any, rows: Exchangeability | None, subset: RowSubset | None
    ) -> dict[str, Any]:
        """The options of the conditional test of features that `subset` has the rows of."""
        assert subset is not None
        confounders = subset.select(confounders.within(None if rows is None else rows.stratum))
        if rows is not None:
            rows, subset = subset.select(rows), subset._replace(units=rows.unit)
        return {
            "confounders": confounders,
            "adaptive": self.adaptive,
            "units": None if rows is None else rows.unit,
            "strata": None if rows is None else rows.stratum,
            "model": model,
            "subset": subset,
            "rng": self.rng,
        }

    def advise_rows(self, given: RowArguments, rows: Exchangeability, d: int, symmetric: bool) -> None:
        """Record strata, pairs and units; warn if no p-value can be small enough for a discovery."""
        self.options = self.options | given.settings(rows)
        if self.estimator == "cross" or "given" in self.options:
            # Their p-values are not those of relabellings.
            add_note(f"{rows.described}.")
            return
        smallest = smallest_pvalue(rows, symmetric)
        said = rows.described
        if smallest > _NEGLIGIBLE:
            said += f"; the smallest possible p-value is {smallest:.2g}"
        add_note(f"{said}.")

        def discoveries_are_possible(k: int | float | None) -> bool:
            listed = np.arange(_listed(k, d))
            family = np.full(d if self.family == "all" else len(listed), smallest)
            return bool(adjust(family, self.correction, listed).min() <= self.alpha)

        if not discoveries_are_possible(self.k):
            warnings.warn(
                f"{said}: with {d} feature{'' if d == 1 else 's'} no p-value can be significant at "
                f"alpha={self.alpha:g}; more {'rows' if rows.unit is None else 'units'}"
                f"{' or a larger k' if discoveries_are_possible(None) else ''} are needed.",
                CalibrationWarning,
                stacklevel=caller_level(),
            )

    @property
    def from_draws(self) -> bool:
        """Whether the scores are averages of draws, made of a block of features at a time."""
        return self.estimator in _FROM_DRAWS

    def fit_kernels(self, table: Table, bandwidth: Any) -> FeatureKernels:
        """The kernels of features, whose bandwidths may wait until the estimator has read or sorted a column."""
        return fit_kernels(table, self.kernel, bandwidth, rng=self.rng, late="read" if self.from_draws else "sorted")

    def _bandwidth(self, bandwidth: Any) -> tuple[Any, bool]:
        """What to fit the kernels with, and whether the estimator uses more than one kernel."""
        gaussian = isinstance(self.kernel, Gaussian) or (isinstance(self.kernel, str) and self.kernel == "gaussian")
        if isinstance(bandwidth, str) and bandwidth in ("auto", "adaptive"):
            if bandwidth == "adaptive" and self.from_draws:
                raise InputError(
                    "bandwidth: 'adaptive' needs estimator='complete' or 'cross', "
                    f"got estimator={self.estimator!r}; use 'median'."
                )
            if bandwidth == "adaptive" and not gaussian:
                raise InputError(
                    f"bandwidth: 'adaptive' needs kernel='gaussian', got kernel={self.kernel!r}; use 'median'."
                )
            return "median", gaussian and not self.from_draws
        if isinstance(bandwidth, str) and bandwidth not in _BANDWIDTHS:
            raise InputError(
                f"bandwidth: needs one of {', '.join(map(repr, _BANDWIDTHS))}, a positive number or one for each "
                f"feature, got {bandwidth!r}{suggestion(bandwidth, _BANDWIDTHS, '; leave it out for the default.')}"
            )
        if not isinstance(bandwidth, str) and not as_kernel(self.kernel).scaled:
            raise InputError(f"bandwidth: kernel={self.kernel!r} has none, got {bandwidth!r}; leave it out.")
        return bandwidth, False


_BANDWIDTHS = ("auto", "adaptive", "median", "joint")
# The settings that are arguments of public functions.
_SETTINGS = tuple(setting.name for setting in fields(CallSettings) if setting.kw_only and setting.init)


def _check_named_once(**arguments: Any) -> None:
    """Refuse a column that two arguments name."""
    purpose: dict[str, str] = {}
    for argument, value in arguments.items():
        for names in map(column_names, value.values() if isinstance(value, Mapping) else [value]):
            # Repeated text values are one label for each row, not names of columns.
            for name in names if len(names) == len(set(names)) else ():
                if purpose.setdefault(name, argument) != argument:
                    raise InputError(f"{argument}: '{name}' is named by {purpose[name]}= as well; name it once.")


def _check_share(argument: str, value: Any, usual: float) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
        raise InputError(f"{argument}: needs a number between 0 and 1, got {value!r}; {usual:g} is usual.")


def _is_regressor(model: Any) -> bool:
    from sklearn.base import is_regressor

    return not isinstance(model, type) and hasattr(model, "predict") and bool(is_regressor(model))


def check_test_options(options: Mapping[str, Any]) -> None:
    """The multiscale test's options."""
    replicates = options.get("replicates", 1)
    if isinstance(replicates, bool) or not isinstance(replicates, Integral) or replicates < 1:
        raise InputError(f"replicates: needs a positive whole number, got {replicates!r}; 10000 is the default.")
    check_choice("model", options.get("model", "linear"), MODELS)
    check_choice("resampling", options.get("resampling", "normal"), ("normal", "rows"))
    if "scales" not in options:
        return
    try:
        scales = np.asarray(options["scales"], dtype=float)
    except (TypeError, ValueError):
        scales = np.empty(0)
    if scales.ndim != 1 or len(np.unique(scales)) < 3 or not (np.isfinite(scales) & (scales > 0)).all():
        raise InputError(
            f"scales: needs at least three different positive values of n / n', got {options['scales']!r}; leave it "
            "out for the usual ten."
        )


def generator(random_state: Seed) -> tuple[int | None, np.random.Generator]:
    """The seed and the generator of a call; a seed is drawn where none is given, so every result is reproducible."""
    if isinstance(random_state, np.random.Generator):
        return None, random_state
    if isinstance(random_state, np.random.RandomState):  # what scikit-learn users may hold
        random_state = int(random_state.randint(2**31 - 1))
    if random_state is None:
        random_state = int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, bool) or not isinstance(random_state, Integral) or random_state < 0:
        raise InputError(
            f"random_state: needs a non-negative whole number, a Generator or None, got {random_state!r}; 0 is usual."
        )
    return int(random_state), np.random.default_rng(int(random_state))


def check_selection(k: int | float | None, threshold: float | None, d: int) -> None:
    """Refuse k or a threshold that cannot select from d features."""
    if threshold is not None:
        if k is not None:
            raise InputError(f"threshold: selects without a number of features; leave out k={k!r}.")
        if isinstance(threshold, bool) or not isinstance(threshold, Real) or not np.isfinite(threshold):
            raise InputError(f"threshold: needs a number of standard deviations, got {threshold!r}; 1 or 2 are usual.")
    elif k is None or _is_share(k):
        return
    elif isinstance(k, bool) or not isinstance(k, Integral) or k < 1:
        raise InputError(
            "k: needs a whole number of at least 1, a fraction between 0 and 1, or None to test everything, got "
            f"{k!r}; 10 or 0.1 are usual."
        )
    elif k > d:
        raise InputError(f"k: at most the number of features, {d}, can be selected, got {k}; use k=None for all.")


def _is_share(k: Any) -> bool:
    return isinstance(k, Real) and not isinstance(k, bool | Integral) and 0 < float(k) < 1


def selection_rule(k: int | float | None, threshold: float | None, scores: Scores) -> SelectionRule:
    """The selection rule for a checked k or threshold; to select as many features as there are is `Everything`."""
    d = len(scores)
    sd = np.sqrt(scores.cov.diagonal())
    if threshold is not None:
        return Threshold(float(threshold), sd)
    count = _listed(k, d)
    return Everything(sd) if count == d else TopK(count, sd > 0)


def _listed(k: int | float | None, d: int) -> int:
    """How many of d features are listed."""
    return d if k is None else max(1, round(float(k) * d)) if _is_share(k) else int(k)
