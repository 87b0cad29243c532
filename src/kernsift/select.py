"""The questions: compare, relate, screen, and p-values for scores brought from elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from kernsift.inference import TESTS, Outcome, naive
from kernsift.kernels import FeatureKernels, Kernel, KernelFunction, fit_kernels
from kernsift.multiplicity import CORRECTIONS, adjust
from kernsift.result import Result
from kernsift.scaling import MODELS
from kernsift.scores import DenseCovariance, Scores
from kernsift.selection import Everything, SelectionRule, Threshold, TopK
from kernsift.statistics import HSIC, MMD
from kernsift.tables import InputError, Table, as_candidates, as_pair, as_xy, stack

Seed = int | np.random.Generator | None

_DEFAULT_K = 10


class TopKPvalues(NamedTuple):
    """Positions of the selected scores, best first, and their selective p-values."""

    selected: np.ndarray
    pvalues: np.ndarray


def compare(
    X: Any,
    Y: Any,
    *,
    k: int | float | str | None = "auto",
    threshold: float | None = None,
    estimator: str = "incomplete",
    test: str = "exact",
    kernel: str | Kernel | KernelFunction = "gaussian",
    bandwidth: str | float | np.ndarray = "median",
    alpha: float = 0.05,
    correction: str | None = "bh",
    groups: Mapping[str, Any] | None = None,
    missing: str = "error",
    random_state: Seed = None,
    **options: Any,
) -> Result:
    """Which features are distributed differently in two samples?

    Ranks the features by their maximum mean discrepancy (MMD), keeps the best, and gives each kept feature a p-value
    that stays valid although the same data chose it.

    Parameters
    ----------
    X, Y : tables with the same columns: arrays, or data frames of pandas, polars, pyarrow and others. Row counts may
        differ. Strings and categoricals are compared for equality.
    {common}

    Returns
    -------
    Result

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift import compare
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(300, 8)), rng.normal(size=(200, 8))
    >>> Y[:, 3] += 1.0
    >>> result = compare(X, Y, k=3, random_state=0)
    >>> result.names[0], bool(result.rejected[0])
    ('x3', True)
    """
    door = _Door(k, threshold, estimator, test, alpha, correction, random_state, options, MMD)
    one, two = as_pair(X, Y, groups=groups, missing=missing)
    pooled = stack([one, two])
    kernels = fit_kernels(pooled, kernel, bandwidth, rng=door.rng)
    scores = door.statistic(one, two, kernels, rng=door.rng, **door.estimator_options)
    return door.answer("compare", scores, pooled, kernel, bandwidth)


def relate(
    X: Any,
    y: Any,
    *,
    k: int | float | str | None = "auto",
    threshold: float | None = None,
    estimator: str = "incomplete",
    test: str = "exact",
    kernel: str | Kernel | KernelFunction = "gaussian",
    bandwidth: str | float | np.ndarray = "median",
    response: str = "auto",
    alpha: float = 0.05,
    correction: str | None = "bh",
    groups: Mapping[str, Any] | None = None,
    missing: str = "error",
    random_state: Seed = None,
    **options: Any,
) -> Result:
    """Which features depend on a response?

    Ranks the features by the Hilbert-Schmidt independence criterion (HSIC) with the response, keeps the best, and gives
    each kept feature a p-value that stays valid although the same data chose it.

    Parameters
    ----------
    X : table of features; see `compare`.
    y : the response: numbers, categories, several columns, or the name (or names) of columns of X.
    response : "auto" takes strings, categoricals and truth values as categories and numbers as numbers; "category" and
        "numeric" insist. Integer class labels want "category".
    {common}

    Returns
    -------
    Result

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift import relate
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 6))
    >>> y = X[:, 2] ** 2 + 0.2 * rng.normal(size=500)
    >>> result = relate(X, y, k=2, random_state=0)
    >>> result.names[0], bool(result.rejected[0])
    ('x2', True)
    """
    door = _Door(k, threshold, estimator, test, alpha, correction, random_state, options, HSIC)
    table, target = as_xy(X, y, groups=groups, missing=missing, response=response)
    kernels = fit_kernels(table, kernel, bandwidth, rng=door.rng)
    # The response has a bandwidth of its own: one given for the features' units says nothing about its units.
    own = bandwidth if isinstance(bandwidth, str) else "median"
    response_kernels = fit_kernels(target, "gaussian" if callable(kernel) else kernel, own, rng=door.rng)
    scores = door.statistic(table, target, kernels, response_kernels, rng=door.rng, **door.estimator_options)
    return door.answer("relate", scores, table, kernel, bandwidth)


def screen(
    reference: Any,
    candidates: Mapping[str, Any],
    *,
    k: int | float | str | None = "auto",
    threshold: float | None = None,
    estimator: str = "incomplete",
    test: str = "exact",
    kernel: str | Kernel | KernelFunction = "gaussian",
    bandwidth: str | float = "median",
    alpha: float = 0.05,
    correction: str | None = "bh",
    random_state: Seed = None,
    **options: Any,
) -> Result:
    """Which whole data sets deviate from a reference (the paper, section 5.3)?

    Each candidate is one feature: all its columns together are held against the reference's.

    Parameters
    ----------
    reference : the data set that counts as right.
    candidates : data sets by name, with the same columns; row counts may differ. Estimators that average draws use the
        same number of rows of each candidate, that of the smallest.
    {common}

    Returns
    -------
    Result

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift import screen
    >>> rng = np.random.default_rng(0)
    >>> good, odd = rng.normal(size=(400, 5)), rng.normal(size=(400, 5)) + 0.7
    >>> result = screen(rng.normal(size=(400, 5)), {"good": good, "odd": odd}, k=1, random_state=0)
    >>> result.names, bool(result.rejected[0])
    (('odd',), True)
    """
    door = _Door(k, threshold, estimator, test, alpha, correction, random_state, options, MMD)
    base, others = as_candidates(reference, candidates)
    # One kernel, fitted to everything, so that the candidates' scores can be ranked against each other.
    kernels = fit_kernels(stack([base, *others.values()]), kernel, bandwidth, rng=door.rng)
    one, two = _side_by_side(base, others, door.rng)
    scores = door.statistic(
        one, two, kernels.select(np.zeros(len(others), dtype=int)), rng=door.rng, **door.estimator_options
    )
    return door.answer("screen", scores, two, kernel, bandwidth)


def _side_by_side(base: Table, others: Mapping[str, Table], rng: np.random.Generator) -> tuple[Table, Table]:
    """The reference repeated once a candidate, and the candidates next to each other, cut to the same length."""
    rows = min(table.n for table in others.values())
    parts = [table.values[rng.permutation(table.n)[:rows]] for table in others.values()]
    width = base.values.shape[1]
    offsets = np.arange(len(others) + 1) * width
    flags = np.zeros(len(others), dtype=bool)
    names = tuple(others)
    repeated = np.tile(base.values, (1, len(others)))
    return Table(names, repeated, offsets, flags, {}), Table(names, np.hstack(parts), offsets, flags, {})


def topk_pvalues(
    estimate: np.ndarray,
    cov: np.ndarray,
    k: int | float | None,
    test: str = "exact",
    *,
    random_state: Seed = None,
    **options: Any,
) -> TopKPvalues:
    """Selective p-values for scores of your own: are the k largest of these really above zero?

    Parameters
    ----------
    estimate : (d,) scores, normal with mean 0 under the null; large means a deviation.
    cov : (d, d) covariance of the scores under the null, or (d,) variances of independent ones.
    k : how many to select: a number, a fraction, or None for all.
    test : "exact", "multiscale", "polyhedral" or "naive".

    Returns
    -------
    TopKPvalues : `selected` (positions, best first) and `pvalues`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift import topk_pvalues
    >>> selected, pvalues = topk_pvalues(np.array([0.3, 2.9, 1.1, 2.6]), np.eye(4), k=2)
    >>> selected.tolist(), pvalues.round(3).tolist()
    ([1, 3], [0.014, 0.034])
    """
    values, spread = np.asarray(estimate, float), np.asarray(cov, float)
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise InputError(f"estimate: needs a 1-D array of finite scores, got shape {values.shape}.")
    if spread.shape not in [(len(values),), (len(values),) * 2] or not np.isfinite(spread).all():
        raise InputError(
            f"cov: needs finite values of shape {(len(values),) * 2}, or variances {(len(values),)}, got {spread.shape}."
        )
    if spread.ndim == 1:
        spread = np.diag(spread)
    if not np.allclose(spread, spread.T, rtol=1e-6, atol=1e-12 * np.abs(spread).max(initial=0)):
        raise InputError("cov: needs a symmetric matrix, got one that is not; pass (cov + cov.T) / 2.")
    if np.linalg.eigvalsh(spread)[0] < -1e-8 * np.abs(spread).max(initial=0):
        raise InputError("cov: needs a positive semi-definite matrix, got one with a negative eigenvalue.")
    scores = Scores(tuple(str(i) for i in range(len(values))), values, DenseCovariance(spread))
    rule = _rule(k, None, scores)
    selected = rule.select(values)
    run = _pick("test", test, TESTS)
    chosen = _options(run, options, f'test="{test}"')
    return TopKPvalues(selected, run(scores, rule, selected, rng=np.random.default_rng(random_state), **chosen).pvalues)


@dataclass
class _Door:
    """The arguments all questions share, checked once."""

    k: int | float | str | None
    threshold: float | None
    estimator: str
    test: str
    alpha: float
    correction: str | None
    random_state: Seed
    options: Mapping[str, Any]
    statistics: Mapping[str, Callable[..., Scores]]

    def __post_init__(self) -> None:
        self.statistic = _pick("estimator", self.estimator, self.statistics)
        self.run = _pick("test", self.test, TESTS)
        if isinstance(self.alpha, bool) or not isinstance(self.alpha, Real) or not 0 < self.alpha < 1:
            raise InputError(f"alpha: needs a number between 0 and 1, got {self.alpha!r}; 0.05 is usual.")
        if self.correction is not None and self.correction not in CORRECTIONS:
            raise InputError(f"correction: needs None, 'bh', 'by' or 'holm', got {self.correction!r}.")
        self.estimator_options, self.test_options = self._split_options()
        self.seed, self.rng = _generator(self.random_state)

    def _split_options(self) -> tuple[dict[str, Any], dict[str, Any]]:
        ours, theirs = _accepted(self.statistic), _accepted(self.run)
        for name in self.options:
            if name not in ours and name not in theirs:
                known = ", ".join(sorted(ours | theirs)) or "none"
                raise InputError(
                    f'{name}: is no option of estimator="{self.estimator}" with test="{self.test}", '
                    f"which take: {known}."
                )
        estimator = {name: value for name, value in self.options.items() if name in ours}
        test = {name: value for name, value in self.options.items() if name in theirs}
        _check_test_options(test)
        return estimator, test

    def answer(self, question: str, scores: Scores, table: Table, kernel: Any, bandwidth: Any) -> Result:
        """Select, test, correct, and put it all on record."""
        rule = _rule(self.k, self.threshold, scores)
        selected = rule.select(scores.estimate)
        empty = Outcome(np.empty(0))
        outcome = self.run(scores, rule, selected, rng=self.rng, **self.test_options) if len(selected) else empty
        unaware = naive(scores, rule, selected, rng=self.rng) if len(selected) else empty
        adjusted = adjust(outcome.pvalues, self.correction)
        constant = [scores.names[i] for i in np.flatnonzero(table.constant)] if question != "screen" else []
        notes = (_constant_note(constant),) if constant else ()
        return Result(
            question=question,
            selected=selected,
            names=tuple(scores.names[i] for i in selected),
            pvalues=outcome.pvalues,
            log_pvalues=outcome.log_pvalues,
            naive_pvalues=unaware.pvalues,
            adjusted_pvalues=adjusted,
            rejected=adjusted <= self.alpha,
            effects=None,
            intervals=None,
            scores=scores.estimate,
            feature_names=scores.names,
            alpha=float(self.alpha),
            correction=self.correction,
            settings={
                "k": len(selected),
                "threshold": self.threshold,
                "estimator": self.estimator,
                "test": self.test,
                "kernel": kernel if isinstance(kernel, str) else getattr(kernel, "__name__", repr(kernel)),
                "bandwidth": bandwidth if isinstance(bandwidth, str) else np.asarray(bandwidth).tolist(),
                **self.options,
            },
            seed=self.seed,
            notes=notes,
            outcome=outcome,
        )


def _constant_note(names: list[str]) -> str:
    listed = ", ".join(repr(name) for name in names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"Constant, so without evidence (p = 1): {listed}."


def _pick(argument: str, name: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(name, str) and name in known:
        return known[name]
    near = get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise InputError(f"{argument}: needs one of {', '.join(map(repr, known))}, got {name!r}{hint}")


def _accepted(function: Callable[..., Any]) -> set[str]:
    """The options a statistic or test takes: its keyword-only parameters, the generator aside."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "rng"}


def _options(function: Callable[..., Any], options: Mapping[str, Any], where: str) -> dict[str, Any]:
    known = _accepted(function)
    for name in options:
        if name not in known:
            raise InputError(f"{name}: is no option of {where}, which takes: {', '.join(sorted(known)) or 'none'}.")
    _check_test_options(options)
    return dict(options)


def _check_test_options(options: Mapping[str, Any]) -> None:
    replicates = options.get("replicates", 1)
    if isinstance(replicates, bool) or not isinstance(replicates, Integral) or replicates < 1:
        raise InputError(f"replicates: needs a positive whole number, got {replicates!r}; 10000 is the default.")
    if options.get("model", "linear") not in MODELS:
        raise InputError(f"model: needs one of {', '.join(map(repr, MODELS))}, got {options['model']!r}.")
    if options.get("resampling", "normal") not in ("normal", "rows"):
        raise InputError(f"resampling: needs 'normal' or 'rows', got {options['resampling']!r}.")
    scales = np.asarray(options.get("scales", [0.5, 1.0, 2.0]), dtype=float)
    if scales.ndim != 1 or len(np.unique(scales)) < 3 or not (np.isfinite(scales) & (scales > 0)).all():
        raise InputError("scales: needs at least three different positive values of n / n'.")


def _generator(random_state: Seed) -> tuple[int | None, np.random.Generator]:
    """One generator; a seed is drawn where none is given, so that every result can be had again."""
    if isinstance(random_state, np.random.Generator):
        return None, random_state
    if isinstance(random_state, np.random.RandomState):  # what scikit-learn users may hold
        random_state = int(random_state.randint(2**31 - 1))
    if random_state is None:
        random_state = int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, bool) or not isinstance(random_state, Integral) or random_state < 0:
        raise InputError(f"random_state: needs a non-negative whole number, a Generator or None, got {random_state!r}.")
    return int(random_state), np.random.default_rng(int(random_state))


def _rule(k: int | float | str | None, threshold: float | None, scores: Scores) -> SelectionRule:
    """The selection rule the user asked for."""
    d = len(scores)
    if threshold is not None:
        if k is not None and k != "auto":
            raise InputError(f"threshold: selects without a number of features; leave out k (got k={k!r}).")
        if isinstance(threshold, bool) or not isinstance(threshold, Real) or not np.isfinite(threshold):
            raise InputError(f"threshold: needs a number of standard deviations, got {threshold!r}; 1 or 2 are usual.")
        return Threshold(float(threshold), np.sqrt(scores.cov.diagonal()))
    if k is None:
        return Everything()
    if isinstance(k, str) and k == "auto":
        return TopK(min(_DEFAULT_K, d))
    if isinstance(k, Real) and not isinstance(k, bool | Integral) and 0 < k < 1:
        return TopK(max(1, round(float(k) * d)))
    if isinstance(k, bool) or not isinstance(k, Integral) or k < 1:
        raise InputError(f"k: needs a whole number of at least 1, a fraction between 0 and 1, or None, got {k!r}.")
    if k > d:
        raise InputError(f"k: at most the number of features, {d}, can be selected, got {k}; use k=None for all.")
    return TopK(int(k))


_COMMON = """k : how many features to keep: a number, a fraction of all, None for all (nothing is selected), or "auto": ten, or
        all if there are fewer.
    threshold : instead of k: keep every feature whose score reaches this many standard deviations.
    estimator : ESTIMATORS.
    test : "exact" (condition on each feature's own selection), "multiscale" (the paper's bootstrap), "polyhedral"
        (condition on the whole selected set) or "naive" (forget the selection; wrong, for comparison).
    kernel : "gaussian", "laplace", "imq", "linear", "polynomial", "triangle", "delta", or a function of two arrays.
    bandwidth : "median" (per feature), "joint" (one for all, as in the paper's runs), a number, or one per feature.
    alpha : the level.
    correction : None, "bh", "by" or "holm", over the selected features.
    groups : columns that form one feature, as {name: [columns]}.
    missing : "error", or "drop" to leave out rows with missing values.
    random_state : seed or Generator; the seed in use is kept in the result.
    **options : of the estimator (`r`, `design`; `block_size`) and of the multiscale test (`replicates`, `model`,
        `scales`, `resampling`)."""
for _function, _known in ((compare, MMD), (relate, HSIC), (screen, MMD)):
    if _function.__doc__:  # absent under python -OO
        _text = _COMMON.replace("ESTIMATORS", " or ".join(f'"{name}"' for name in _known))
        if _function is screen:
            _text = "\n".join(
                line for line in _text.splitlines() if not line.lstrip().startswith(("groups :", "missing :"))
            )
        _function.__doc__ = _function.__doc__.replace("{common}", _text)
