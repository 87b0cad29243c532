"""The public functions: compare, relate, screen, and p-values for scores of the user."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kernsift.arguments import CallSettings, Seed, check_selection, check_test_options, generator, selection_rule
from kernsift.data.columns.named_columns import as_column_name, kinds_of_features
from kernsift.data.inputs import as_candidates, read_pair, read_xy
from kernsift.data.responses import classes_repeat
from kernsift.data.rows.aligned_tables import aligned
from kernsift.data.rows.confounder_columns import keep_complete, take_confounders, take_sample_confounders
from kernsift.data.rows.exchangeability import response_codes
from kernsift.data.rows.identifiers import note_identifiers
from kernsift.data.rows.row_arguments import note_row_labels
from kernsift.data.rows.samples import as_samples
from kernsift.data.stored import held_in_memory
from kernsift.data.tables import Table, owned, stack
from kernsift.estimators.conditional.confounders import Confounders, confounders_of
from kernsift.estimators.conditional.estimator import conditional_hsic, conditional_mmd
from kernsift.estimators.patterns import RowSubset
from kernsift.estimators.restricted.covariance import rows_in_use
from kernsift.estimators.restricted.estimator import restricted_hsic, restricted_mmd
from kernsift.estimators.scores import DenseCovariance, DiagonalCovariance, Scores
from kernsift.exceptions import InputError
from kernsift.execution.notes import add_note
from kernsift.inference import TESTS
from kernsift.inference.advice import advise
from kernsift.inference.regions import Indicator, RegionTest, region_test
from kernsift.inference.scaling_law import SCALES
from kernsift.kernels.fitted import fit_kernels
from kernsift.kernels.functions import Kernel, KernelFunction
from kernsift.options import TEST_OPTIONS, Options, resolve
from kernsift.questions import retry_with_full_read, score_and_test, to_result
from kernsift.report.summaries import summarise_candidates, summarise_response, summarise_samples
from kernsift.result import Result


class TopKPvalues(NamedTuple):
    """Positions of the selected scores, best first, and their selective p-values."""

    selected: np.ndarray
    pvalues: np.ndarray


@retry_with_full_read
def compare(
    X: Any,
    Y: Any = None,
    *,
    by: Any = None,
    group: Any = None,
    reference: Any = None,
    k: int | float | None = None,
    threshold: float | None = None,
    estimator: str | Options = "complete",
    test: str | Options = "exact",
    kernel: str | Kernel | KernelFunction = "gaussian",
    bandwidth: str | float | np.ndarray = "auto",
    alpha: float = 0.05,
    correction: str | None = "bh",
    family: str = "all",
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
    distinct: bool = False,
    random_state: Seed = None,
    n_jobs: int | None = None,
    progress: bool = False,
    client: Any = None,
    memory: int | str | None = None,
) -> Result:
    """Test which features are distributed differently in two samples.

    Every feature is tested by its maximum mean discrepancy (MMD), with a correction for the number of features. With
    `k` or `threshold` only the features with the largest scores are listed; their p-values, effect sizes and intervals
    are valid although the same data selected them.

    Parameters
    ----------
    X, Y : array-like, sparse matrix, data frame, AnnData or path
        Two samples with the same columns; row counts may differ. Data frames are those of pandas, polars, pyarrow and
        others; strings and categoricals are compared for equality. AnnData objects are read as the table of their
        variables. Paths (CSV, Parquet files or folders of them, Feather, .npy, HDF5, Zarr), Dask collections, Zarr
        arrays, HDF5 datasets and pyarrow data sets are read in pieces if they are large.
    by : str or array-like, optional
        The column of X that names the sample of each row, if X holds both samples and Y is left out: its name (for
        AnnData one of `obs`), or one value for each row. It is not a feature.
    group : scalar, optional
        The value of `by` whose rows are compared with all others, or with those of `reference`; required if `by` has
        more than two values.
    reference : scalar, optional
        The value of `by` with whose rows `group` is compared.
    k : int or float, optional
        List only this number, or fraction, of the features: those with the largest scores. Their p-values, effect sizes
        and intervals are conditional on the selection, so that selective p-values near the cut are large. `correction`
        counts all features in any case: a list finds no more than the default, which lists every feature.
    threshold : float, optional
        Instead of `k`: list every feature with a score of at least this many standard deviations.
    estimator : {"complete", "cross", "incomplete", "block", "linear"} or Incomplete or Block, default "complete"
        How scores are computed: "complete", from all pairs of rows; "cross", one half of the rows finds the difference
        and the other half measures it; "incomplete", "block" and "linear", the estimators of the paper, from some of
        the pairs. `Incomplete(r=5)` and `Block(block_size=8)` set options.
    test : {"exact", "multiscale", "polyhedral", "naive"} or Multiscale, default "exact"
        What p-values of a short list are conditional on: "exact", the selection of the feature; "multiscale", the same
        by the bootstrap of the paper; "polyhedral", the whole selected set; "naive", nothing, which is not valid after
        a selection. `Multiscale(replicates=20000)` sets options.
    kernel : {"gaussian", "laplace", "imq", "triangle", "linear", "polynomial", "delta"} or callable, default "gaussian"
        "gaussian", "laplace", "imq" and "triangle" detect any difference, "linear" one of means, "polynomial" one of
        the first three moments, "delta" compares for equality. A function f(A, B) gets arrays whose last axis holds the
        columns of one feature, and returns the kernel values without that axis.
    bandwidth : {"auto", "adaptive", "median", "joint"} or float or array, default "auto"
        "adaptive" tests each feature with several kernels (see Notes) and needs the Gaussian kernel and the estimator
        "complete" or "cross"; "median" is the median distance of each feature, "joint" that of whole rows for all
        features; "auto" is "adaptive" if possible, else "median". A number is in the units of the columns.
    alpha : float, default 0.05
        The error rate that `correction` controls. It determines `Result.rejected`; p-values do not depend on it.
    correction : {"bh", "by", "bky", "holm"} or None, default "bh"
        "bh" (Benjamini-Hochberg), "by" (Benjamini-Yekutieli) and "bky" (the adaptive two-stage procedure of Benjamini,
        Krieger and Yekutieli) control the false discovery rate: the expected share of the discoveries that is false.
        "holm" controls the family-wise error rate: the probability of any false discovery. None rejects each p-value
        that is at most `alpha`.
    family : {"all", "selected"}, default "all"
        The p-values that are corrected: "all", the unconditional ones of all features, also if only some are listed;
        "selected", the selective ones of the list.
    confidence_level : float, default 0.95
        Level of the confidence intervals.
    groups : dict of str to list, optional
        Columns that form one feature, as {name: columns}.
    kinds : dict of str to {"number", "category", "drop"}, optional
        Kinds of columns, which are given by name or with * and ?: "number" reads text such as "$1,037.72", "37%" or
        "2020-12-31" as numbers and other text as missing; "category" compares values for equality; "drop" leaves the
        column out. A column that is named here is not left out as an identifier.
    layer : str, optional
        The layer of AnnData objects and .h5ad files, or "raw"; the matrix `X` by default.
    missing : {"column", "value", "drop", "error"}, default "column"
        How missing values are treated: "column" tests each feature on the rows that have it; "value" makes a missing
        value a value of its own, which detects a change in the share of missing values; "drop" leaves out rows with a
        missing value in any feature; "error" raises an error.
    strata : str, list of str or array-like, optional
        Groups of rows, such as hospitals or batches, within which rows are exchangeable: the names of columns, which
        are then no features, or one value for each row (for two tables a pair of arrays).
    paired : bool, str or array-like, optional
        True if row i of X and row i of Y are a pair, such as before and after; or the column that names the pairs, each
        of which has one row in each sample.
    unit : str, list of str or array-like, optional
        What was sampled if it has several rows, such as the donor of cells: the names of columns, or one value for each
        row (for two tables a pair of arrays). All rows of a unit belong to one sample, and whole units are
        exchangeable, with `strata` within strata.
    given : str, list of str, array-like or data frame, optional
        Confounders such as age, sex and site, which are held fixed: the test is for a difference beyond what they
        explain. Names of columns, which are then no features, or values for each row (for two tables a pair of these);
        numbers and categories, missing values allowed. Requires the estimator "complete".
    given_model : scikit-learn regressor, optional
        A second regression on `given`, cross-fitted over five folds. It replaces the built-in regression of each
        direction of a kernel for which its error is smaller. A numeric feature has some 16 of these, so that it is
        fitted about 80 times for each.
    distinct : bool, default False
        Whether to mark in `Result.distinct` the discoveries that are significant given the marked ones with stronger
        evidence. Several features that measure one cause, each with noise of its own, may all be marked.
    random_state : int or numpy.random.Generator, optional
        Seed or generator; the result keeps the seed.
    n_jobs : int, optional
        Number of threads; -1 for all cores. The default is the number that BLAS may use, by `OMP_NUM_THREADS` and the
        limits of joblib, Dask and threadpoolctl. Results do not depend on it.
    progress : bool, default False
        Whether to show a progress bar for each stage that takes longer than two seconds.
    client : distributed.Client, optional
        Client of a Dask cluster whose workers score the features. If X is a Dask collection, the current client is the
        default. Results do not depend on it.
    memory : int or str, optional
        The memory for tables that are read in pieces, such as "1GB", "50%" of the machine's or a number of bytes; by
        default a quarter of the machine's. NumPy memory maps are read in pieces only if it is given.

    Returns
    -------
    Result
        What was tested and found; it prints as a table.

    See Also
    --------
    compare_groups : Compare every group of a table with the rest, under one correction.
    relate : Test which features depend on a response.
    screen : Test which whole data sets deviate from a reference.
    SelectMMD : The same test as a feature selector of scikit-learn.

    Notes
    -----
    The null hypothesis of a feature is that it has the same distribution in both samples. P-values of the complete
    estimator are those of permutations of the sample labels. The mean, variance and skewness over all permutations have
    closed forms, so that none are drawn, except for columns in which few rows carry the statistic. With the adaptive
    bandwidth, one kernel is sensitive to shifts, one to changes of spread and one to several modes and other fine
    shapes; the smallest of their p-values is corrected for their number.

    P-values and intervals of a short list are conditional on the selection of the feature (selective inference), as in
    Lim et al., "More Powerful Selective Kernel Tests for Feature Selection", AISTATS 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift import compare
    >>> rng = np.random.default_rng(1)
    >>> X, Y = rng.normal(size=(300, 8)), rng.normal(size=(200, 8))
    >>> Y[:, 3] += 1.0
    >>> result = compare(X, Y, random_state=0)
    >>> [name for name, significant in zip(result.names, result.rejected) if significant]
    ['x3']

    A short list, with p-values conditional on having been selected:

    >>> compare(X, Y, k=2, random_state=0).names[0]
    'x3'
    """
    call = CallSettings.from_arguments("compare", locals())
    by, strata, paired, unit, given = map(as_column_name, (by, strata, paired, unit, given))
    with call.execution_context(client, X, Y):
        given_rows = call.row_arguments(strata, paired, unit, by=by, groups=groups, given=given)
        note_row_labels(X, by=by, strata=strata, unit=unit, given=given, Y=Y if paired is True else None)
        if given_rows:
            X, Y = given_rows.split_samples(X, Y, layer=layer, memory=memory)
        samples = as_samples(X, Y, by, group, reference, layer=layer, memory=memory)
        call.check_given(given, given_model, distinct, client)
        kinds = kinds_of_features(kinds, samples.first.names, by, strata, paired, unit)
        samples, columns, kinds = take_sample_confounders(samples, given, kinds)
        whole = partial(given_rows.keep, missing=missing, samples=samples.rows) if given_rows else None
        rule = keep_complete(whole, columns, missing)
        (one, two), keep = read_pair(
            samples.first, samples.second, groups=groups, kinds=kinds, missing=missing, memory=memory, keep=rule
        )
        one, two = owned([one, two])
        if given_rows.reads_whole_columns:
            one, two = (held_in_memory(table, str(given_rows)) for table in (one, two))
        pooled = stack([one, two])
        check_selection(k, threshold, pooled.d)
        label = partial(np.repeat, [0, 1], [one.n, two.n])
        rows = given_rows.rows(label(), keep, samples.rows) if given_rows else None
        if rows is None:
            described = (samples.first.annotations, samples.second.annotations)
            note_identifiers(pooled, label, described, keep, by, "in one sample")
        else:
            call.advise_rows(given_rows, rows, pooled.d, symmetric=True)
            rows = None if rows.all_exchangeable else rows

        def measure(
            samples: Sequence[Table], bandwidth: Any, subset: RowSubset | None, confounders: Confounders | None = None
        ) -> Scores | None:
            least = 1 if call.estimator == "complete" else 2  # a row among many others has a permutation law
            if min(sample.n for sample in samples) < least:
                return None
            table = stack(samples)
            if confounders is not None:
                kernels = fit_kernels(table, kernel, bandwidth, rng=call.rng)
                options = call.conditional_options(confounders, given_model, rows, subset)
                return conditional_mmd(samples[0], samples[1], kernels, **options)
            if rows is not None and call.estimator == "complete":
                used, among = rows_in_use(rows, subset, call.rng)
                table = aligned(table, used) if call.adaptive else table
                kernels = call.fit_kernels(table, bandwidth)
                return restricted_mmd(table, kernels, used, among, adaptive=call.adaptive, rng=call.rng)
            kernels = call.fit_kernels(table, bandwidth)
            return call.compute_scores(*samples, kernels, rng=call.rng, **call.options_for(subset, rows))

        held = None if columns is None else confounders_of(columns, keep, missing)
        summarise = partial(summarise_samples, (one, two), samples.labels, gaps=missing == "value")
        return score_and_test(
            call, (one, two), measure, summarise, rows=rows, held=held, missing=missing, distinct=distinct
        )


@retry_with_full_read
def relate(
    X: Any,
    y: Any,
    *,
    k: int | float | None = None,
    threshold: float | None = None,
    estimator: str | Options = "complete",
    test: str | Options = "exact",
    kernel: str | Kernel | KernelFunction = "gaussian",
    bandwidth: str | float | np.ndarray = "auto",
    response: str = "auto",
    alpha: float = 0.05,
    correction: str | None = "bh",
    family: str = "all",
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
    distinct: bool = False,
    random_state: Seed = None,
    n_jobs: int | None = None,
    progress: bool = False,
    client: Any = None,
    memory: int | str | None = None,
) -> Result:
    """Test which features depend on a response.

    Every feature is tested by its Hilbert-Schmidt independence criterion (HSIC) with the response, with a correction
    for the number of features. With `k` or `threshold` only the features with the largest scores are listed; their
    p-values, effect sizes and intervals are valid although the same data selected them.

    Parameters
    ----------
    X : array-like, sparse matrix, data frame, AnnData or path
        The features; see `compare`.
    y : array-like, data frame, str or tuple
        The response: numbers, categories, several columns, or the names of columns of X. A censored response is a tuple
        of a time and an event (names or columns), or a structured array as in scikit-survival.
    k, threshold : optional
        As in `compare`.
    estimator : {"complete", "cross", "incomplete", "block"} or Incomplete or Block, default "complete"
        How scores are computed, as in `compare`; `Incomplete(r=5)` and `Block(block_size=8)` set options.
    test, kernel : optional
        As in `compare`. With `kernel="linear"` only linear dependence is detected.
    bandwidth : {"auto", "adaptive", "median", "joint"} or float or array, default "auto"
        As in `compare`. A number is the bandwidth of the features; the response then has its median distance.
    response : {"auto", "category", "numeric", "censored"}, default "auto"
        How the response is read. "auto" takes text, categoricals, truth values, numbers with two values, and whole
        numbers with up to ten values as classes, and other numbers as numbers.
    alpha, correction, family, confidence_level : optional
        As in `compare`.
    groups, kinds, layer, missing : optional
        As in `compare`. Rows without a response are left out.
    strata : str, list of str or array-like, optional
        Groups of rows, such as hospitals or batches, within which rows are exchangeable: the names of columns, which
        are then no features, or one value for each row.
    paired : str or array-like, optional
        The column that names pairs of rows, within which the responses are exchangeable.
    unit : str, list of str or array-like, optional
        What was sampled if it has several rows, such as the donor of cells: the names of columns, or one value for each
        row. All rows of a unit have the same response, and whole units are exchangeable, with `strata` within strata.
    given : str, list of str, array-like or data frame, optional
        Confounders such as age, sex and site, which are held fixed: the test is for dependence beyond what they
        explain. Names of columns, which are then no features, or values for each row; numbers and categories, missing
        values allowed. Requires the estimator "complete".
    given_model, distinct : optional
        As in `compare`.
    random_state, n_jobs, progress, client, memory : optional
        As in `compare`.

    Returns
    -------
    Result
        What was tested and found; it prints as a table.

    See Also
    --------
    compare : Test which features are distributed differently in two samples.
    SelectHSIC : The same test as a feature selector of scikit-learn.

    Notes
    -----
    The null hypothesis of a feature is that it is independent of the response, or, with `given`, conditionally
    independent of it. P-values of the complete estimator are those of permutations of the response, computed as in
    `compare`; with `given` they are asymptotic.

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
    call = CallSettings.from_arguments("relate", locals())
    y, strata, paired, unit, given = map(as_column_name, (y, strata, paired, unit, given))
    with call.execution_context(client, X, y):
        given_rows = call.row_arguments(strata, paired, unit, y=y, groups=groups, given=given)
        note_row_labels(X, y=y, strata=strata, paired=paired, unit=unit, given=given)
        X = given_rows.split(X, layer=layer, memory=memory)
        call.check_given(given, given_model, distinct, client)
        kinds = kinds_of_features(kinds, X.names, strata, paired, unit)
        X, columns, kinds = take_confounders(X, given, kinds)
        rule = keep_complete(partial(given_rows.keep, missing=missing) if given_rows else None, columns, missing)
        table, target, keep, survival = read_xy(
            X, y, response=response, groups=groups, kinds=kinds, missing=missing, layer=layer, memory=memory, keep=rule
        )
        table, target = table.owned(), target.owned()
        if given_rows.reads_whole_columns:
            table = held_in_memory(table, str(given_rows))
        check_selection(k, threshold, table.d)
        if survival is not None and given_rows:
            target = survival.table(*given_rows.codes(keep))
        rows = given_rows.rows(response_codes(target), keep) if given_rows else None
        if rows is None:
            used = y if isinstance(y, str) else None
            note_identifiers(table, partial(response_codes, target), (X.annotations,), keep, used, "with one response")
        else:
            call.advise_rows(given_rows, rows, table.d, symmetric=bool(target.categorical.all()))
            rows = None if rows.all_exchangeable else rows
        # A bandwidth given as a number is in units of the features, so the response has its own.
        own = call.bandwidth if isinstance(call.bandwidth, str) else "median"
        # Log-rank scores are linear by construction: the log hazard grows in proportion to them.
        named = "linear" if survival is not None else kernel if isinstance(kernel, str) else "gaussian"
        fit_response = partial(fit_kernels, kernel=named, bandwidth=own, rng=call.rng)
        if named == "delta" and len(np.unique(response_codes(target))) == target.n:
            add_note("kernel: 'delta' compares responses for equality, and all are different: no evidence (p = 1).")

        def measure(
            samples: Sequence[Table], bandwidth: Any, subset: RowSubset | None, confounders: Confounders | None = None
        ) -> Scores | None:
            [some], responses = samples, target if subset is None else subset.select(target)
            if subset is not None and (some.n < 2 or responses.constant[0] or not classes_repeat(responses)):
                return None
            if confounders is not None:
                both = fit_kernels(some, kernel, bandwidth, rng=call.rng), fit_response(responses)
                options = call.conditional_options(confounders, given_model, rows, subset)
                return conditional_hsic(some, responses, *both, **options)
            if rows is not None and call.estimator == "complete":
                used, among = rows_in_use(rows, subset, call.rng)
                responses = responses.take(used.first_rows)
                if call.adaptive:
                    some, responses = aligned(some, used), aligned(responses, used.by_unit)
                both = call.fit_kernels(some, bandwidth), fit_response(responses)
                return restricted_hsic(some, responses, *both, used, among, adaptive=call.adaptive, rng=call.rng)
            both = call.fit_kernels(some, bandwidth), fit_response(responses)
            return call.compute_scores(some, responses, *both, rng=call.rng, **call.options_for(subset, rows))

        held = None if columns is None else confounders_of(columns, keep, missing)
        summarise = partial(summarise_response, table, target, linear=survival is not None, gaps=missing == "value")
        return score_and_test(
            call, (table,), measure, summarise, rows=rows, held=held, missing=missing, distinct=distinct
        )


def screen(
    reference: Any,
    candidates: Mapping[str, Any],
    *,
    k: int | float | None = None,
    threshold: float | None = None,
    estimator: str | Options = "complete",
    test: str | Options = "exact",
    kernel: str | Kernel | KernelFunction = "gaussian",
    bandwidth: str | float = "auto",
    alpha: float = 0.05,
    correction: str | None = "bh",
    family: str = "all",
    confidence_level: float = 0.95,
    missing: str = "column",
    kinds: Mapping[str, str] | None = None,
    layer: str | None = None,
    random_state: Seed = None,
    n_jobs: int | None = None,
    progress: bool = False,
) -> Result:
    """Test which whole data sets deviate from a reference (the paper, section 5.3).

    Each candidate is one feature: all its columns together are compared with those of the reference. Every candidate is
    tested, with a correction for their number; `k` and `threshold` list the best, as in `compare`.

    Parameters
    ----------
    reference : array-like, data frame or path
        The data set to compare with; see `compare`.
    candidates : dict of str to array-like, data frame or path
        Data sets by name, with the same columns; row counts may differ. "incomplete", "block" and "linear" use the same
        number of rows of each candidate, that of the smallest.
    k, threshold, estimator, test, kernel, bandwidth : optional
        As in `compare`, with candidates in place of features. All candidates have the same kernel, so `bandwidth` is a
        name or one number.
    alpha, correction, family, confidence_level : optional
        As in `compare`, over all candidates.
    missing : {"column", "drop", "error"}, default "column"
        "column" and "drop" leave out rows with a missing value, as a data set is one feature; "error" raises an error.
    kinds, layer, random_state, n_jobs, progress : optional
        As in `compare`.

    Returns
    -------
    Result
        What was tested and found; it prints as a table.

    See Also
    --------
    compare : Test which single features differ between two data sets.

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
    call = CallSettings.from_arguments("screen", locals())
    with call.execution_context():
        base, others = as_candidates(reference, candidates, missing=missing, kinds=kinds, layer=layer)
        base, *copies = owned([base, *others.values()])
        others = dict(zip(others, copies, strict=True))
        check_selection(k, threshold, len(others))
        # One kernel, fitted to everything, so that the candidates' scores can be ranked against each other.
        kernels = fit_kernels(stack([base, *others.values()]), kernel, call.bandwidth, rng=call.rng)
        scores = call.compute_scores(base, others, kernels, rng=call.rng, **call.estimator_options)
        summarise = partial(summarise_candidates, base, list(others.values()), list(others))
        sizes = [other.n for other in others.values()]
        return to_result(call, scores, n=base.n + np.array(sizes), rows=(base.n, *sizes), summarise=summarise)


def topk_pvalues(
    estimate: np.ndarray,
    cov: np.ndarray,
    k: int | float | None,
    test: str | Options = "exact",
    *,
    random_state: Seed = None,
) -> TopKPvalues:
    """Compute selective p-values of the k largest of some scores.

    Parameters
    ----------
    estimate : array of shape (d,)
        Scores, which are normal with mean 0 under the null hypothesis; large values are evidence against it.
    cov : array of shape (d, d) or (d,)
        Covariance of the scores under the null hypothesis, or the variances of independent scores.
    k : int, float or None
        How many to select: a number, a fraction, or None for all. Scores without variance are selected last.
    test : {"exact", "multiscale", "polyhedral", "naive"} or Multiscale, default "exact"
        What p-values are conditional on; see `compare`.
    random_state : int or numpy.random.Generator, optional
        Seed or generator, which only the multiscale test uses.

    Returns
    -------
    selected : ndarray of int
        Positions of the selected scores, best first.
    pvalues : ndarray of float
        Their selective p-values.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift import topk_pvalues
    >>> selected, pvalues = topk_pvalues(np.array([0.3, 2.9, 1.1, 2.6]), np.eye(4), k=2)
    >>> selected.tolist(), pvalues.round(3).tolist()
    ([1, 3], [0.014, 0.034])
    """
    values, spread = _scores("estimate", estimate, cov)
    check_selection(k, None, len(values))
    scores = Scores(tuple(str(i) for i in range(len(values))), values, spread)
    rule = selection_rule(k, None, scores)
    selected = rule.select(values)
    name, options = resolve("test", test, TESTS, TEST_OPTIONS)
    check_test_options(options)
    advise("topk_pvalues", "", name, rule, scores, ())
    _, rng = generator(random_state)
    return TopKPvalues(selected, TESTS[name](scores, rule, selected, rng=rng, **options).pvalues)


def selective_bootstrap(
    mean: np.ndarray,
    cov: np.ndarray,
    in_hypothesis: Indicator,
    in_selection: Indicator,
    *,
    replicates: int = 10_000,
    scales: np.ndarray | tuple[float, ...] = SCALES,
    model: str = "linear",
    random_state: Seed = None,
) -> RegionTest:
    """Test mu in H given that y in S was observed, for regions known only through indicator functions.

    Parameters
    ----------
    mean : array-like of shape (d,)
        The observed vector y, which is normal with covariance `cov`.
    cov : array-like of shape (d, d) or (d,)
        Covariance of y, or variances of independent coordinates.
    in_hypothesis, in_selection : callable
        Functions of an (m, d) array that return m booleans.
    replicates : int, default 10000
        Resampled vectors per scale.
    scales : array-like of float, optional
        Values of gamma^2 = n / n', the ratios of the sample size to that of a replicate. A region is simulated at wider
        scales if fewer than 1% of the replicates cross its boundary at the widest of these.
    model : {"linear", "constant", "quadratic", "singular", "aic"}, default "linear"
        Scaling law, see `kernsift.inference.scaling_law.fit_scaling_law`.
    random_state : int or numpy.random.Generator, optional
        Seed or generator of the replicates.

    Returns
    -------
    RegionTest
        The p-value, Phibar(phi_H(-1)) / Phibar(phi_H(-1) + phi_S(0)), and the fitted scaling laws phi of both regions.

    Examples
    --------
    H is {first coordinate <= 0}, S is {first coordinate >= 1}: the p-value is Phibar(2) / Phibar(1) = 0.143.

    >>> import numpy as np
    >>> from kernsift import selective_bootstrap
    >>> outcome = selective_bootstrap(
    ...     np.array([2.0, 0.0]), np.eye(2), lambda y: y[:, 0] <= 0, lambda y: y[:, 0] >= 1, random_state=0
    ... )
    >>> bool(abs(outcome.pvalue - 0.143) < 0.02)
    True
    """
    values, spread = _scores("mean", mean, cov)
    check_test_options({"replicates": replicates, "scales": scales, "model": model})
    _, rng = generator(random_state)
    hypothesis, selection = (
        partial(_indicated, argument, region)
        for argument, region in (("in_hypothesis", in_hypothesis), ("in_selection", in_selection))
    )
    if not selection(values[None, :])[0]:
        raise InputError("in_selection: must hold at mean, as only selected hypotheses are tested; it does not.")
    return region_test(values, spread, hypothesis, selection, replicates, np.asarray(scales, float), model, rng)


def _indicated(argument: str, region: Callable[[np.ndarray], Any], vectors: np.ndarray) -> np.ndarray:
    """Which vectors (m, d) are in a region; an answer other than m booleans is refused."""
    found = np.asarray(region(vectors))
    if found.shape != (len(vectors),) or not (found.dtype == bool or np.isin(found, (0, 1)).all()):
        raise InputError(
            f"{argument}: must return one True or False for each of the m vectors of an (m, d) array, but for shape "
            f"{vectors.shape} it returned {found.dtype} of shape {found.shape}; compare as in lambda y: y[:, 0] > 1."
        )
    return found.astype(bool)


def _scores(argument: str, given: Any, cov: Any) -> tuple[np.ndarray, DenseCovariance | DiagonalCovariance]:
    """Scores (d,) and their covariance, checked."""
    values, spread = _numbers(given), _numbers(cov)
    if values.ndim != 1 or len(values) == 0:
        raise InputError(
            f"{argument}: needs a 1-D array of finite scores, got shape {values.shape}; pass one for each feature."
        )
    if not np.isfinite(values).all():
        raise InputError(
            f"{argument}: needs a 1-D array of finite scores, but {np.count_nonzero(~np.isfinite(values))} of the "
            f"{len(values)} given are not; leave them out, and their rows and columns of cov."
        )
    if spread.shape not in [(len(values),), (len(values),) * 2] or not np.isfinite(spread).all():
        wanted = f"{(len(values),) * 2}, or variances {(len(values),)}"
        odd = np.count_nonzero(~np.isfinite(spread))
        got = f"{spread.shape}, {odd:,} of them not finite" if odd else f"{spread.shape}"
        raise InputError(f"cov: needs finite values of shape {wanted}, got {got}; pass the covariance of these scores.")
    if spread.ndim == 1:
        if spread.min() < 0:
            raise InputError(
                "cov: needs a positive semi-definite matrix or variances, got a negative variance; pass a covariance."
            )
        return values, DiagonalCovariance(spread)
    if not np.allclose(spread, spread.T, rtol=1e-6, atol=1e-12 * np.abs(spread).max(initial=0)):
        raise InputError("cov: needs a symmetric matrix, got one that is not; pass (cov + cov.T) / 2.")
    if np.linalg.eigvalsh(spread)[0] < -1e-8 * np.abs(spread).max(initial=0):
        raise InputError("cov: needs a positive semi-definite matrix, got a negative eigenvalue; pass a covariance.")
    return values, DenseCovariance(spread)


def _numbers(given: Any) -> np.ndarray:
    """An array of floats; what cannot be one comes back as NaN, which the checks refuse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            return np.asarray(given, dtype=float)
    except (TypeError, ValueError, np.exceptions.ComplexWarning):
        return np.full(np.shape(given) if not isinstance(given, str) else (), np.nan)
