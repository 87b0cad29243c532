"""The questions: compare, relate, screen, and p-values for scores brought from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from inspect import cleandoc
from typing import Any, NamedTuple

import numpy as np

from kernsift.arguments import (
    CallSettings,
    Seed,
    accepted,
    check_test_options,
    generator,
    pick,
    refuse_unknown,
    selection_rule,
)
from kernsift.data.anndata import as_samples
from kernsift.data.stored import as_stored_pair, as_stored_xy, is_stored
from kernsift.data.tables import Table, as_candidates, as_pair, as_xy, stack
from kernsift.estimators import HSIC, MMD, SCREEN
from kernsift.estimators.scores import DenseCovariance, Scores
from kernsift.exceptions import InputError
from kernsift.inference import TESTS
from kernsift.inference.advice import advise, several_two_valued
from kernsift.kernels.fitted import fit_kernels
from kernsift.kernels.functions import Kernel, KernelFunction
from kernsift.report.summaries import picture_candidates, picture_response, picture_samples
from kernsift.result import Result


class TopKPvalues(NamedTuple):
    """Positions of the selected scores, best first, and their selective p-values."""

    selected: np.ndarray
    pvalues: np.ndarray


def compare(
    X: Any,
    Y: Any = None,
    *,
    groupby: str | None = None,
    k: int | float | None = None,
    threshold: float | None = None,
    estimator: str = "complete",
    test: str = "exact",
    kernel: str | Kernel | KernelFunction = "gaussian",
    bandwidth: str | float | np.ndarray = "auto",
    alpha: float = 0.05,
    correction: str | None = "bh",
    family: str = "all",
    confidence_level: float = 0.95,
    groups: Mapping[str, Any] | None = None,
    missing: str = "error",
    random_state: Seed = None,
    n_jobs: int | None = None,
    client: Any = None,
    memory: int | str | None = None,
    **options: Any,
) -> Result:
    """Which features are distributed differently in two samples?

    Tests every feature by its maximum mean discrepancy (MMD) and corrects over all of them. With `k` or `threshold` it
    lists only the best features, and gives each of these a p-value, an effect size and an interval that are valid
    although the same data chose it.

    Parameters
    ----------
    X, Y : tables with the same columns: arrays, or data frames of pandas, polars, pyarrow and others. Row counts may
        differ. Strings and categoricals are compared for equality. AnnData objects stand for the table of their
        variables. Tables that do not fit into memory may be given as paths (Parquet files or folders of them, Feather,
        .npy, HDF5, Zarr, CSV), or as Dask collections, Zarr arrays, HDF5 datasets and pyarrow data sets; they are read
        in pieces.
    groupby : a column of `X.obs` with two values, where X is an AnnData object that holds both samples and Y is left
        out.
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
    >>> result = compare(X, Y, random_state=0)
    >>> [name for name, significant in zip(result.names, result.rejected) if significant]
    ['x3']

    A short list, with p-values conditional on having been selected:

    >>> compare(X, Y, k=2, random_state=0).names[0]
    'x3'
    """
    call = CallSettings(
        "compare",
        MMD,
        k=k,
        threshold=threshold,
        estimator=estimator,
        test=test,
        kernel=kernel,
        bandwidth=bandwidth,
        alpha=alpha,
        correction=correction,
        family=family,
        confidence_level=confidence_level,
        random_state=random_state,
        n_jobs=n_jobs,
        options=options,
    )
    with call.execution_context(client, X, Y):
        one, two = _pair(*as_samples(X, Y, groupby, missing), groups, missing, memory)
        pooled = stack([one, two])
        call.check_selection(pooled.d)
        kernels = fit_kernels(pooled, kernel, call.bandwidth, rng=call.rng, late=call.from_draws)
        scores = call.statistic(one, two, kernels, rng=call.rng, **call.estimator_options)
        draw = partial(picture_samples, (one, two), ("X", "Y"))
        few = partial(several_two_valued, pooled)
        answer = call.to_result(scores, pooled.constant, rows=(one.n, two.n), two_valued=few, draw=draw)
        return _settled(answer, pooled)


def _pair(X: Any, Y: Any, groups: Any, missing: str, memory: int | str | None) -> tuple[Table, Table]:
    """Two samples, which may be in memory or on disk."""
    if is_stored(X, Y, memory=memory):
        return as_stored_pair(X, Y, groups=groups, missing=missing, memory=memory)
    return as_pair(X, Y, groups=groups, missing=missing)


def _settled(result: Result, table: Table) -> Result:
    """A result that needs its files no longer: what would be worked out from them later is worked out now."""
    if table.memory is not None:
        result.effects  # noqa: B018
        result.intervals  # noqa: B018
    return result


def relate(
    X: Any,
    y: Any,
    *,
    k: int | float | None = None,
    threshold: float | None = None,
    estimator: str = "complete",
    test: str = "exact",
    kernel: str | Kernel | KernelFunction = "gaussian",
    bandwidth: str | float | np.ndarray = "auto",
    response: str = "auto",
    alpha: float = 0.05,
    correction: str | None = "bh",
    family: str = "all",
    confidence_level: float = 0.95,
    groups: Mapping[str, Any] | None = None,
    missing: str = "error",
    random_state: Seed = None,
    n_jobs: int | None = None,
    client: Any = None,
    memory: int | str | None = None,
    **options: Any,
) -> Result:
    """Which features depend on a response?

    Tests every feature by its Hilbert-Schmidt independence criterion (HSIC) with the response and corrects over all of
    them. With `k` or `threshold` it lists only the best features, and gives each of these a p-value, an effect size and
    an interval that are valid although the same data chose it.

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
    >>> result = relate(X, y, random_state=0)
    >>> [name for name, significant in zip(result.names, result.rejected) if significant]
    ['x2']
    """
    call = CallSettings(
        "relate",
        HSIC,
        k=k,
        threshold=threshold,
        estimator=estimator,
        test=test,
        kernel=kernel,
        bandwidth=bandwidth,
        alpha=alpha,
        correction=correction,
        family=family,
        confidence_level=confidence_level,
        random_state=random_state,
        n_jobs=n_jobs,
        options=options,
    )
    with call.execution_context(client, X, y):
        table, target = _features_and_response(X, y, groups, missing, response, memory)
        call.check_selection(table.d)
        kernels = fit_kernels(table, kernel, call.bandwidth, rng=call.rng, late=call.from_draws)
        # The response has a bandwidth of its own: one given in the features' units says nothing about its units.
        own = call.bandwidth if isinstance(call.bandwidth, str) else "median"
        response_kernels = fit_kernels(target, kernel if isinstance(kernel, str) else "gaussian", own, rng=call.rng)
        scores = call.statistic(table, target, kernels, response_kernels, rng=call.rng, **call.estimator_options)
        draw = partial(picture_response, table, target)
        few = partial(several_two_valued, table)
        return _settled(call.to_result(scores, table.constant, rows=(table.n,), two_valued=few, draw=draw), table)


def _features_and_response(
    X: Any, y: Any, groups: Any, missing: str, response: str, memory: int | str | None
) -> tuple[Table, Table]:
    """Features and a response, which may be in memory or on disk; text for the response is the name of a column."""
    if is_stored(X, memory=memory) or (not isinstance(y, str) and is_stored(y, memory=memory)):
        return as_stored_xy(X, y, groups=groups, missing=missing, response=response, memory=memory)
    return as_xy(X, y, groups=groups, missing=missing, response=response)


def screen(
    reference: Any,
    candidates: Mapping[str, Any],
    *,
    k: int | float | None = None,
    threshold: float | None = None,
    estimator: str = "complete",
    test: str = "exact",
    kernel: str | Kernel | KernelFunction = "gaussian",
    bandwidth: str | float = "auto",
    alpha: float = 0.05,
    correction: str | None = "bh",
    family: str = "all",
    confidence_level: float = 0.95,
    random_state: Seed = None,
    n_jobs: int | None = None,
    **options: Any,
) -> Result:
    """Which whole data sets deviate from a reference (the paper, section 5.3)?

    Each candidate is one feature: all its columns together are held against the reference's. Every candidate is tested,
    and the correction runs over all of them; `k` and `threshold` list the best, as in `compare`.

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
    >>> result = screen(rng.normal(size=(400, 5)), {"good": good, "odd": odd}, random_state=0)
    >>> result.names[0], bool(result.rejected[0])
    ('odd', True)
    """
    call = CallSettings(
        "screen",
        SCREEN,
        k=k,
        threshold=threshold,
        estimator=estimator,
        test=test,
        kernel=kernel,
        bandwidth=bandwidth,
        alpha=alpha,
        correction=correction,
        family=family,
        confidence_level=confidence_level,
        random_state=random_state,
        n_jobs=n_jobs,
        options=options,
    )
    with call.execution_context():
        base, others = as_candidates(reference, candidates)
        call.check_selection(len(others))
        # One kernel, fitted to everything, so that the candidates' scores can be ranked against each other.
        kernels = fit_kernels(stack([base, *others.values()]), kernel, call.bandwidth, rng=call.rng)
        scores = call.statistic(base, others, kernels, rng=call.rng, **call.estimator_options)
        draw = partial(picture_candidates, base, list(others.values()), list(others))
        return call.to_result(scores, rows=(base.n, *(other.n for other in others.values())), draw=draw)


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
    k : how many to select: a number, a fraction, or None for all. Scores without variance are selected last.
    test : "exact", "multiscale", "polyhedral" or "naive".
    random_state : seed or Generator, which only the multiscale test uses.
    **options : of the multiscale test: `replicates`, `scales` and `model`.

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
    values, spread = _numbers(estimate), _numbers(cov)
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise InputError(f"estimate: needs a 1-D array of finite scores, got shape {values.shape}.")
    if spread.shape not in [(len(values),), (len(values),) * 2] or not np.isfinite(spread).all():
        wanted = f"{(len(values),) * 2}, or variances {(len(values),)}"
        raise InputError(f"cov: needs finite values of shape {wanted}, got {spread.shape}.")
    if spread.ndim == 1:
        spread = np.diag(spread)
    if not np.allclose(spread, spread.T, rtol=1e-6, atol=1e-12 * np.abs(spread).max(initial=0)):
        raise InputError("cov: needs a symmetric matrix, got one that is not; pass (cov + cov.T) / 2.")
    if np.linalg.eigvalsh(spread)[0] < -1e-8 * np.abs(spread).max(initial=0):
        raise InputError("cov: needs a positive semi-definite matrix, got one with a negative eigenvalue.")
    scores = Scores(tuple(str(i) for i in range(len(values))), values, DenseCovariance(spread))
    rule = selection_rule(k, None, scores)
    selected = rule.select(values)
    run = pick("test", test, TESTS)
    refuse_unknown(options, accepted(run), f'test="{test}"')
    check_test_options(options)
    advise("topk_pvalues", "", test, rule, scores, ())
    _, rng = generator(random_state)
    return TopKPvalues(selected, run(scores, rule, selected, rng=rng, **options).pvalues)


def _numbers(given: Any) -> np.ndarray:
    """An array of floats; what cannot be one comes back as NaN, which the checks refuse."""
    try:
        return np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        return np.full(np.shape(given) if not isinstance(given, str) else (), np.nan)


_COMMON = """k : None tests every feature. A number, or a fraction of all features, makes a short list of those with the
        largest scores; p-values, effect sizes and intervals are then conditional on the selection.
    threshold : instead of k: list every feature whose score reaches this many standard deviations.
    estimator : ESTIMATORS.
    test : what p-values of a short list condition on: "exact" (the feature's own selection), "multiscale" (the same, by
        the paper's bootstrap), "polyhedral" (the whole selected set) or "naive" (nothing; not valid after a selection).
    kernel : "gaussian", "laplace", "imq", "linear", "polynomial", "triangle", "delta", or a function of two arrays.
    bandwidth : "adaptive" (several kernels for each feature, see `docs/explanation/method.md`; for the Gaussian kernel
        with "complete" and "cross"), "median" (per feature), "joint" (one for all, as in the paper's runs), a number,
        or one per feature; "auto" is adaptive where that exists, else median.
    alpha : the error rate that `correction` controls.
    correction : "bh" (Benjamini-Hochberg), "by" (Benjamini-Yekutieli) and "bky" (the adaptive two-stage procedure of
        Benjamini, Krieger and Yekutieli) control the false discovery rate, "holm" the family-wise error rate; None
        rejects each p-value that is at most alpha.
    family : what the correction runs over. "all": the unconditional p-values of all features, also where only some are
        listed, so that being near the cut costs no discovery. "selected": the selective p-values of the short list.
    confidence_level : of the intervals.
    groups : columns that form one feature, as {name: [columns]}.
    missing : "error", or "drop" to leave out rows with missing values.
    random_state : seed or Generator; the seed in use is kept in the result.
    n_jobs : threads; None for as many as BLAS may use here (`OMP_NUM_THREADS` and the limits of joblib, Dask and
        threadpoolctl count), -1 for all cores. Results do not depend on it.
    client : a `distributed.Client`, on whose workers the features are scored; where X is a Dask collection the current
        one is taken. Results do not depend on it.
    memory : what may be used of it for tables that are read in pieces: "1GB", "50%" (of the machine's), or bytes; a
        quarter of the machine's by default. NumPy's memory maps are read in pieces only where it is given.
    **options : of the estimator (`r`, `design`; `block_size`) and of the multiscale test (`replicates`, `model`,
        `scales`, `resampling`)."""
for _function, _known in ((compare, MMD), (relate, HSIC), (screen, SCREEN)):
    if _function.__doc__:  # absent under python -OO
        _text = _COMMON.replace("ESTIMATORS", ", ".join(f'"{name}"' for name in _known))
        if _function is screen:
            _text = "\n".join(
                line for line in _text.splitlines() if not line.lstrip().startswith(("groups :", "missing :"))
            )
            _text = _text[: _text.index("    client :")] + _text[_text.index("    **options") :]
        # Python 3.13 takes the indentation off by itself, and older ones do not.
        _function.__doc__ = cleandoc(_function.__doc__).replace("{common}", cleandoc(_text))
