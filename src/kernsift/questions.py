"""The steps that all questions share: from scores to tests, corrections, descriptions and a `Result`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial, wraps
from typing import Any, TypeVar, cast

import numpy as np

from kernsift.arguments import CallSettings, selection_rule
from kernsift.data.rows.exchangeability import Exchangeability
from kernsift.data.scan import trusting_statistics
from kernsift.data.tables import Table, stack
from kernsift.estimators.conditional.confounders import Confounders, NothingLeft, table_confounders
from kernsift.estimators.conditional.patterns import measure_conditional
from kernsift.estimators.patterns import bandwidth_of, measure_features
from kernsift.estimators.scores import DiagonalCovariance, Scores
from kernsift.exceptions import HiddenMissingValues, quoted
from kernsift.execution.context import setting
from kernsift.execution.parallel import worth_sending
from kernsift.inference import Outcome, log_tail
from kernsift.inference.advice import advise, several_two_valued
from kernsift.inference.estimates import Coverage, Estimates
from kernsift.inference.multiple_testing import adjust, rank_limits, significant
from kernsift.inference.redundancy import Clusters, keep_distinct
from kernsift.inference.selection_rules import Everything
from kernsift.kernels.functions import Linear, as_kernel
from kernsift.report.held_fixed import HeldFixed
from kernsift.report.summaries import Summaries
from kernsift.result import Result

_Question = TypeVar("_Question", bound=Callable[..., Result])


def retry_with_full_read(question: _Question) -> _Question:
    """Repeat a call with files read in full where their column statistics did not report missing values."""

    @wraps(question)
    def ask(*arguments: Any, **options: Any) -> Result:
        rng = options.get("random_state")
        state: Any = rng.bit_generator.state if isinstance(rng, np.random.Generator) else None
        try:
            with trusting_statistics(True):
                return question(*arguments, **options)
        except HiddenMissingValues:
            if options.get("missing") == "error":
                raise
        if isinstance(rng, np.random.Generator):
            rng.bit_generator.state = state
        with trusting_statistics(False):
            return question(*arguments, **options)

    return cast(_Question, ask)


_lazy_reading: ContextVar[bool] = ContextVar("lazy_reading", default=False)


def lazy_reading() -> AbstractContextManager[bool]:
    """A context in which results may read their files later, because these stay unchanged until then."""
    return setting(_lazy_reading, True)


def score_and_test(
    call: CallSettings,
    tables: Sequence[Table],
    measure: Callable[..., Scores | None],
    summarise: Callable[..., Summaries],
    *,
    rows: Exchangeability | None,
    held: Confounders | None,
    missing: str,
    distinct: bool,
) -> Result:
    """Score the features of `tables`, test the scores and describe the features.

    `measure(tables, bandwidth, subset)` returns the scores; with `confounders=` it holds these fixed.
    """
    pooled = stack(tables)
    with worth_sending(in_memory=not pooled.on_disk):
        if held is None:
            found = measure_features(tables, measure, call.bandwidth, missing, call.estimator, call.rng)
        else:
            found = measure_conditional(tables, partial(measure, confounders=held), call.bandwidth, missing, call.rng)
        result = to_result(
            call,
            found.scores,
            found.constant,
            n=found.n,
            rows=tuple(table.n for table in tables),
            units=None if rows is None or rows.unit is None else _units(rows, len(tables)),
            two_valued=partial(several_two_valued, pooled),
            summarise=partial(summarise, held=None if rows is None and held is None else HeldFixed(rows, held)),
        )
        if distinct:
            result = _distinct(result, call, tables, measure, held, missing)
        if pooled.on_disk and not _lazy_reading.get() and (distinct or not found.scores.in_memory):
            # The result must not need its files: what is otherwise computed on first use is computed now.
            result.effects  # noqa: B018
            result.intervals  # noqa: B018
            result.clusters  # noqa: B018
        return result


def _units(rows: Exchangeability, samples: int) -> tuple[int, ...]:
    """The number of units, of each sample where there are two."""
    return (rows.units,) if samples == 1 else tuple(np.bincount(rows.responses, minlength=samples).tolist())


def _distinct(
    result: Result,
    call: CallSettings,
    tables: Sequence[Table],
    measure: Callable[..., Scores | None],
    held: Confounders | None,
    missing: str,
) -> Result:
    """The result with its distinct features marked."""
    pooled = stack(tables)

    def conditional_pvalues(features: np.ndarray, kept: np.ndarray) -> np.ndarray:
        confounders = table_confounders(pooled, kept, held)
        some = [table.select(features) for table in tables]
        bandwidth = bandwidth_of(call.bandwidth, features, pooled.d)
        conditional = partial(measure, confounders=confounders)
        try:
            found = measure_conditional(some, conditional, bandwidth, missing, call.rng, notes=False)
        except NothingLeft:
            return np.ones(len(features))
        return Outcome(log_tail(found.scores, np.arange(len(features)))).pvalues

    order = result.selected[result.rejected]
    kept = keep_distinct(order, _distinct_levels(call, len(order), pooled.d), conditional_pvalues)
    return replace(result, distinct=np.isin(result.selected, kept))


def _distinct_levels(call: CallSettings, discoveries: int, d: int) -> np.ndarray:
    """(m,) the largest conditional p-value of a distinct feature, by the number of those before it.

    It is at most the bound of the correction on the last of m discoveries, and on as many of m sequential tests.
    """
    last = 1 if call.correction == "holm" else discoveries
    limit = rank_limits(d, call.correction, float(call.alpha))[last - 1]
    return np.minimum(limit, rank_limits(discoveries, call.correction, float(call.alpha)))


def to_result(
    call: CallSettings,
    scores: Scores,
    constant: np.ndarray | None = None,
    *,
    n: np.ndarray,
    rows: tuple[int, ...],
    units: tuple[int, ...] | None = None,
    two_valued: Callable[[], bool] = lambda: False,
    summarise: Callable[..., Summaries],
) -> Result:
    """Select features if asked for, test them, correct, and collect everything in a `Result`.

    `n` are the numbers of rows of the scores, `units` those of units in each sample; `summarise` makes the pictures and
    descriptions of the listed features.
    """
    rule = selection_rule(call.k, call.threshold, scores)
    kernel = as_kernel(call.kernel)
    advise(call.question, call.estimator, call.test, rule, scores, rows, two_valued, units, kernel.unbounded)
    selected = rule.select(scores.estimate)
    if len(selected):
        outcome = call.run_test(scores, rule, selected, rng=call.rng, **call.test_options)
    else:
        outcome = Outcome(np.empty(0))
    every = Outcome(log_tail(scores, np.arange(len(scores)))).pvalues
    listed = not isinstance(rule, Everything)
    if call.correction is None or (listed and call.family == "selected"):
        adjusted = adjust(outcome.pvalues, call.correction)
    else:
        adjusted = adjust(every, call.correction, selected)
    rejected = significant(adjusted, call.alpha)
    controls_coverage = not listed and call.correction is not None
    share = np.count_nonzero(rejected) / len(scores)
    coverage = Coverage(float(call.confidence_level), rejected if controls_coverage else None, share)
    flat = [] if constant is None else [scores.names[i] for i in np.flatnonzero(constant)]
    views = None if scores.views is None else scores.views[selected]
    kept = summarise(selected, means=isinstance(kernel, Linear), views=views)
    # Scores of data sets are correlated because they share the reference, not because the data sets are similar.
    cov = DiagonalCovariance(np.ones(len(scores))) if call.question == "screen" else scores.cov
    return Result(
        question=call.question,
        selected=selected,
        names=tuple(map(scores.names.__getitem__, selected.tolist())),
        pvalues=outcome.pvalues,
        log_pvalues=outcome.log_pvalues,
        unconditional_pvalues=every[selected],
        adjusted_pvalues=adjusted,
        rejected=rejected,
        estimates=Estimates(scores, selected, outcome, coverage),
        scores=scores.estimate,
        feature_names=scores.names,
        all_pvalues=every,
        all_adjusted_pvalues=adjust(every, call.correction),
        listed=listed,
        alpha=float(call.alpha),
        correction=call.correction,
        family=call.family,
        confidence_level=float(call.confidence_level),
        settings=_settings(call, len(selected)),
        seed=call.seed,
        notes=(*call.notes, *([f"Constant, so without evidence (p = 1): {quoted(flat)}."] if flat else [])),
        outcome=outcome,
        n=n,
        rows=rows,
        pictures=kept.pictures,
        descriptions=kept.descriptions,
        labels=kept.labels,
        kinds=kept.kinds,
        redundancy=Clusters(cov, selected, rejected),
    )


def _settings(call: CallSettings, listed: int) -> dict[str, Any]:
    kernel, bandwidth = call.kernel, "adaptive" if call.adaptive else call.bandwidth
    return {
        "k": None if call.k is None else listed,
        "threshold": call.threshold,
        "estimator": call.estimator,
        "test": call.test,
        "kernel": kernel if isinstance(kernel, str) else getattr(kernel, "__name__", repr(kernel)),
        "bandwidth": bandwidth if isinstance(bandwidth, str) else np.asarray(bandwidth).tolist(),
        **call.options,
    }
