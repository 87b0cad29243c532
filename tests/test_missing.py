"""Missing values: each feature on its own rows, a gap as a value, rows left out, or an error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from kernsift import InputError, SelectHSIC, SelectMMD, compare, relate, screen
from kernsift.data.inputs import as_pair
from kernsift.data.tables import Table, stack
from kernsift.estimators import HSIC, MMD
from kernsift.estimators.complete import complete_mmd
from kernsift.estimators.patterns import RowSubset, measure_features
from kernsift.estimators.scores import Scores
from kernsift.kernels.fitted import fit_kernels

RNG = np.random.default_rng(20)


def exactly(value: float) -> Any:
    """But for the order in which numbers are added."""
    return pytest.approx(value, rel=1e-10)


def with_gaps(shape: tuple[int, int], share: float, rng: np.random.Generator, common: float = 0.5) -> np.ndarray:
    """Normal columns that share a part, with gaps unrelated to the values; the first column has none."""
    values = np.sqrt(common) * rng.normal(size=(shape[0], 1)) + np.sqrt(1 - common) * rng.normal(size=shape)
    gaps = rng.random(shape) < share
    gaps[:, 0] = False
    return np.where(gaps, np.nan, values)


X, Y = with_gaps((90, 5), 0.4, RNG), with_gaps((70, 5), 0.1, RNG)
Y[:, 3] += 1.0
RESPONSE = np.random.default_rng(21).normal(size=120)
RESPONSES: dict[str, Any] = {
    "numbers": RNG.normal(size=160) + np.nan_to_num(np.vstack([X, Y])[:, 1]),
    "classes": np.array(["a", "b", "c"])[RNG.integers(3, size=160)],
    "columns": RNG.normal(size=(160, 2)),
}


@pytest.mark.parametrize("options", [{}, {"kernel": "laplace"}, {"bandwidth": 0.7}, {"kernel": "delta"}])
def test_a_feature_has_the_answer_of_its_own_rows_in_compare(options: dict[str, Any]) -> None:
    found = compare(X, Y, random_state=3, **options)
    for j in range(5):
        one, two = (sample[~np.isnan(sample[:, j])][:, [j]] for sample in (X, Y))
        alone = compare(one, two, random_state=3, **options)
        assert found.all_pvalues[j] == exactly(alone.all_pvalues[0])
        assert found.n[j] == len(one) + len(two)
        place = int(np.flatnonzero(found.selected == j)[0])
        assert found.raw_effects is not None and alone.raw_effects is not None
        assert found.raw_effects[place] == exactly(alone.raw_effects[0])


@pytest.mark.parametrize("kind", RESPONSES)
def test_a_feature_has_the_answer_of_its_own_rows_in_relate(kind: str) -> None:
    table, y = np.vstack([X, Y]), RESPONSES[kind]
    found = relate(table, y, random_state=3, correction=None)
    for j in range(5):
        own = ~np.isnan(table[:, j])
        alone = relate(table[own][:, [j]], y[own], random_state=3, correction=None)
        assert found.all_pvalues[j] == exactly(alone.all_pvalues[0])
        place = int(np.flatnonzero(found.selected == j)[0])
        assert found.intervals is not None and alone.intervals is not None
        np.testing.assert_allclose(found.intervals[place], alone.intervals[0], rtol=1e-9)


@pytest.mark.parametrize("rows_that_belong_together", ["none", "strata", "unit", "given"])
def test_a_feature_whose_rows_have_two_values_of_a_number(rows_that_belong_together: str) -> None:
    """The others have more values of the response, whose views have other names."""
    rng = np.random.default_rng(0)
    group, turn = np.arange(90) // 3, np.arange(30) % 3
    two = turn < 2
    y = np.where(two, turn, rng.normal(size=30))[group]
    X = rng.normal(size=(90, 4))
    X[:, 1] = X[:, 0] + 0.1 * X[:, 1]
    X[~two[group], 1] = np.nan
    by_row = {"none": {}, "strata": {"strata": group % 5}, "unit": {"unit": group}, "given": {"given": group % 7 - 3.0}}
    options = by_row[rows_that_belong_together]
    some = {name: values[two[group]] for name, values in options.items()}
    alone = relate(X[two[group]][:, [1]], y[two[group]], random_state=0, **some).pvalues[0]
    # The terms of a regression on a confounder are those of all rows, which changes p-values a little.
    assert relate(X, y, random_state=0, **options).all_pvalues[1] == pytest.approx(alone, abs=1e-3)
    # Which of two nearly equal columns is first says little: the selective p-value is above the unconditional one.
    listed = relate(X, y, k=1, random_state=0, **options)
    assert listed.unconditional_pvalues[0] < listed.pvalues[0] < 1


def test_selective_pvalues_within_strata_do_not_depend_on_the_directions_of_responses() -> None:
    """The rows of each feature have other directions of a response of several columns, with either sign."""
    rng = np.random.default_rng(1)
    for _ in range(6):
        X = rng.normal(size=(60, 4))
        X[:, 1] = X[:, 0] + 0.1 * X[:, 1]
        y, strata = np.column_stack([rng.normal(size=60) + 0.5 * X[:, 0], rng.normal(size=60)]), np.arange(60) % 3
        X[rng.random(X.shape) < 0.15] = np.nan
        order = rng.permutation(60)
        one = relate(X, y, strata=strata, k=1, random_state=0)
        other = relate(X[order], y[order], strata=strata[order], k=1, random_state=0)
        # Rows in another order have other landmarks, which changes p-values a little.
        assert one.names == other.names and one.pvalues == pytest.approx(other.pvalues, abs=0.04)


def test_long_tables_and_groups_of_columns() -> None:
    rng = np.random.default_rng(4)
    long = with_gaps((18_000, 3), 0.3, rng)
    label = np.arange(len(long)) % 2 == 0
    long[label, 1] += 0.05
    found = compare(long[label], long[~label], random_state=1, k=1)
    own = ~np.isnan(long[:, 1])
    alone = compare(long[label & own][:, [1]], long[~label & own][:, [1]], random_state=1)
    assert found.all_pvalues[1] == exactly(alone.all_pvalues[0])
    together = compare(X, Y, groups={"both": ["x1", "x2"]}, random_state=2)
    complete = [~np.isnan(sample[:, 1:3]).any(axis=1) for sample in (X, Y)]
    alone = compare(X[complete[0], 1:3], Y[complete[1], 1:3], groups={"both": ["x0", "x1"]}, random_state=2)
    assert together.all_pvalues[list(together.feature_names).index("both")] == exactly(alone.all_pvalues[0])


def test_correlations_come_from_the_rows_that_have_both() -> None:
    """Against the covariance of T = (sum f g)^2 for the linear kernel: the squared correlation in the shared rows."""
    rng = np.random.default_rng(5)
    values = with_gaps((3_000, 3), 0.4, rng, common=0.8)
    tables = as_pair(values[:1500], values[1500:], missing="column")

    def measure(samples: Sequence[Table], bandwidth: Any, subset: RowSubset | None) -> Scores:
        return complete_mmd(*samples, fit_kernels(stack(samples), "linear", rng=rng), subset=subset, rng=rng)

    scores = measure_features(tables, measure, "median", "column", "complete", rng).scores
    columns = scores.cov.columns(np.arange(3))
    centred = np.nan_to_num(values - np.nanmean(values, axis=0))
    inner = centred.T @ centred
    expected = inner**2 / np.outer(np.diag(inner), np.diag(inner))
    np.testing.assert_allclose(columns, expected, atol=0.01)
    assert 0.1 < expected[1, 2] < 0.5  # with all rows it is 0.64


def test_what_cannot_be_tested_is_told() -> None:
    table = X.copy()
    table[:, 2] = np.nan
    table[2:, 4] = np.nan
    table[:, 4][:2] = 1.0
    found = compare(table, Y, random_state=0, k=2)
    assert found.all_pvalues[2] == 1.0 and found.n[2] == np.count_nonzero(~np.isnan(Y[:, 2]))
    assert 2 not in found.selected
    assert any("'x2'" in note and "Not testable" in note for note in found.notes)
    assert any(re.match(r"4 of 5 features have missing values.* on the fewest", note) for note in found.notes)
    same = np.where(np.arange(160) < 80, 1.0, 2.0)
    alone = np.column_stack([np.vstack([X, Y])[:, 0], np.where(same == 1.0, RNG.normal(size=160), np.nan)])
    assert relate(alone, same, random_state=0).all_pvalues[1] == 1.0
    frame = found.to_frame()
    assert frame["n"].tolist() == found.n[found.selected].tolist()


@pytest.mark.parametrize("strata", [False, True])
def test_pvalues_of_a_sample_with_one_value_are_exact_over_all_rows_that_it_may_be(strata: bool) -> None:
    rows = np.random.default_rng(3).standard_cauchy((14, 2))
    rows[11:, 1] = np.nan
    pvalues = []
    for alone in range(11):
        others = np.delete(rows[:11], alone, axis=0)
        samples = others, rows[[alone, 11, 12, 13]]
        given = {"strata": (np.zeros(10), np.zeros(4))} if strata else {}
        pvalues.append(compare(*samples, random_state=0, **given).all_pvalues[1])
        assert compare(*samples[::-1], random_state=0).all_pvalues[1] == exactly(pvalues[-1])
        by_label = relate(np.vstack(samples), ["x"] * 10 + ["y"] * 4, random_state=0)
        assert by_label.all_pvalues[1] == exactly(pvalues[-1])
    found = np.array(pvalues)
    assert found == exactly((found <= found[:, None] * (1 + 1e-9)).mean(axis=1))


def test_every_kind_of_gap() -> None:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    numbers = [1.5, None, 2.5, 4.0, 0.5, 3.0, None, 2.0]
    other = [0.5, 1.0, 4.5, None, 2.0, 6.0, 7.0, 1.0]
    plain = compare(np.array(numbers, float)[:, None], np.array(other, float)[:, None], random_state=0)
    masked = [np.ma.masked_invalid(np.array(column, float)[:, None]) for column in (numbers, other)]
    kinds = {
        "masked": masked,
        "objects": [np.array(column, object)[:, None] for column in (numbers, other)],
        "pandas": [pd.DataFrame({"x0": column}) for column in (numbers, other)],
        "nullable": [pd.DataFrame({"x0": pd.array(column, dtype="Float64")}) for column in (numbers, other)],
        "polars": [pl.DataFrame({"x0": column}) for column in (numbers, other)],
        "arrow": [pa.table({"x0": column}) for column in (numbers, other)],
    }
    for kind, (one, two) in kinds.items():
        found = compare(one, two, random_state=0)
        assert found.all_pvalues[0] == exactly(plain.all_pvalues[0]), kind
        assert found.n.tolist() == [13], kind
    words = pd.DataFrame({"w": ["a", "b", None, "a", "b", "a", "a", "b"]})
    left = words.dropna()
    found = compare(words, words.iloc[::-1].reset_index(drop=True).fillna("b"), random_state=0)
    alone = compare(left, words.iloc[::-1].reset_index(drop=True).fillna("b"), random_state=0)
    assert found.all_pvalues[0] == exactly(alone.all_pvalues[0])


def test_rows_that_are_left_out_are_counted() -> None:
    table, y = np.vstack([X, Y]), RESPONSES["numbers"].copy()
    y[:12] = np.nan
    for missing in ("column", "value", "drop"):
        found = relate(table, y, missing=missing, random_state=0)
        assert any("y" in note and ("148" in note or "12" in note) for note in found.notes), found.notes
    complete = int((~np.isnan(X).any(axis=1)).sum())
    found = compare(X, Y, missing="drop", random_state=0)
    assert any(f"{complete} of 90 rows" in note for note in found.notes)
    with pytest.raises(InputError, match=r"^y: 12 of 160 rows have missing values"):
        relate(np.nan_to_num(table), y, missing="error")
    with pytest.raises(InputError, match=r"^X: .* rows have missing values"):
        compare(X, Y, missing="error")


def test_whole_data_sets_use_their_complete_rows() -> None:
    reference, other = X.copy(), Y.copy()
    found = screen(reference, {"other": other}, random_state=0)
    one, two = (sample[~np.isnan(sample).any(axis=1)] for sample in (reference, other))
    alone = screen(one, {"other": two}, random_state=0)
    assert found.all_pvalues[0] == exactly(alone.all_pvalues[0]) and found.n[0] == len(one) + len(two)
    with pytest.raises(InputError, match=r"^missing: needs 'column', 'drop' or 'error', got 'value'"):
        screen(reference, {"other": other}, missing="value")
    with pytest.raises(InputError, match=r"^reference: .* rows have missing values"):
        screen(reference, {"other": other}, missing="error")


@pytest.mark.parametrize("estimator", ["cross", "incomplete", "linear", "block"])
def test_estimators_that_need_all_rows_refuse(estimator: str) -> None:
    with pytest.raises(InputError, match=r"^missing: 'column' needs estimator='complete'.*use missing='drop'"):
        compare(X, Y, estimator=estimator)
    compare(X[:, :1], Y[:, :1], estimator=estimator, random_state=0)
    with pytest.raises(InputError, match=r"^bandwidth: 'joint' needs rows without missing values"):
        compare(X, Y, bandwidth="joint")


@pytest.mark.parametrize("missing", ["column", "value", "drop"])
def test_files_and_other_libraries_have_the_answer_of_tables_in_memory(tmp_path: Path, missing: str) -> None:
    import array_api_strict
    import dask.dataframe as dd
    import pandas as pd

    names = [f"x{i}" for i in range(5)]
    one, two = (pd.DataFrame(part, columns=names) for part in (X, Y))
    expected = compare(one, two, missing=missing, random_state=0, k=2)
    one.to_parquet(tmp_path / "one.parquet")
    two.to_csv(tmp_path / "two.csv", index=False)
    inputs = {
        "files": (tmp_path / "one.parquet", tmp_path / "two.csv"),
        "dask": (dd.from_pandas(one, npartitions=3), dd.from_pandas(two, npartitions=1)),
        "library": tuple(array_api_strict.asarray(part) for part in (X, Y)),
    }
    for kind, (first, second) in inputs.items():
        found = compare(first, second, missing=missing, random_state=0, k=2)
        np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9, err_msg=kind)
        np.testing.assert_allclose(found.pvalues, expected.pvalues, rtol=1e-6, err_msg=kind)
        assert found.n.tolist() == expected.n.tolist() and found.notes == expected.notes, kind


def test_missing_values_that_hide_from_the_statistics_of_a_file(tmp_path: Path) -> None:
    """NaN that is no null: polars and Arrow keep the two apart, and the statistics of Parquet count nulls alone."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = []
    for name, part in (("one", X), ("two", Y)):
        paths.append(tmp_path / f"{name}.parquet")
        pq.write_table(
            pa.table({f"x{i}": pa.array(column, from_pandas=False) for i, column in enumerate(part.T)}), paths[-1]
        )
    expected = compare(X, Y, random_state=0)
    for rng in (0, np.random.default_rng(0)):
        found = compare(*paths, random_state=rng)
        np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9)
    with pytest.raises(InputError, match=r"^X: .* rows have missing values"):
        compare(*paths, missing="error")


def test_more_missing_values_than_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    values = rng.normal(size=(40_000, 60))
    values[0] = np.nan
    np.save(tmp_path / "large.npy", values)
    with pytest.raises(InputError, match=r"^memory: 60 features have missing values and take .* use missing='drop'"):
        compare(tmp_path / "large.npy", tmp_path / "large.npy", memory="32MiB")


def _gram(values: np.ndarray, bandwidth: float) -> np.ndarray:
    """The Gaussian kernel between all rows, a gap being equal to gaps and unlike everything else."""
    gaps = np.isnan(values)
    known = np.where(gaps, 0.0, values)
    gram = np.exp(-(((known[:, None] - known[None, :]) / bandwidth) ** 2))
    return np.where(gaps[:, None] | gaps[None, :], gaps[:, None] & gaps[None, :], gram)


@pytest.mark.parametrize("column", [1, 3])
def test_a_gap_is_a_value(column: int) -> None:
    """Against permutations of the label with the kernel written out."""
    one, two = X[:, [column]], Y[:, [column]]
    found = compare(one, two, missing="value", bandwidth=0.7, random_state=0)
    pooled = np.concatenate([one, two])[:, 0]
    gram, rng, label = _gram(pooled, 0.7), np.random.default_rng(1), np.repeat([1 / 90, -1 / 70], [90, 70])
    draws = np.array([rng.permutation(label) for _ in range(20_000)])
    statistics = np.einsum("ri,ri->r", draws @ gram, draws)
    expected = (1 + np.count_nonzero(statistics >= label @ gram @ label)) / 20_001
    # Four standard errors of the permutations, and what the law of three moments may be off.
    assert abs(found.all_pvalues[0] - expected) < 4 * np.sqrt(expected / 20_000) + 0.02 * expected


@pytest.mark.parametrize("estimator", ["complete", "cross", "incomplete", "linear", "block"])
def test_a_change_in_the_share_of_gaps_is_found(estimator: str) -> None:
    rng = np.random.default_rng(2)
    one, two = rng.normal(size=(600, 3)), rng.normal(size=(500, 3))
    one[rng.random(600) < 0.1, 1] = np.nan
    two[rng.random(500) < 0.6, 1] = np.nan
    one[:, 2] = two[:, 2] = np.nan
    found = compare(one, two, missing="value", estimator=estimator, random_state=0)
    assert found.all_pvalues[1] < 0.01 and found.all_pvalues[2] == 1.0
    assert found.n.tolist() == [1100] * 3
    assert any(note.startswith("2 of 3 features have missing values, which count") for note in found.notes)
    assert compare(one, two, random_state=0).all_pvalues[1] > 0.01


def test_gaps_of_categories_are_a_level() -> None:
    import pandas as pd

    rng = np.random.default_rng(3)
    words = pd.DataFrame({"w": rng.choice(["a", "b", None], size=200), "v": rng.choice(["a", "b"], size=200)})
    filled = words.fillna("(missing)")
    for question in (
        lambda table, **o: compare(table[:90], table[90:], **o),
        lambda table, **o: relate(table, "v", **o),
    ):
        found = question(words, missing="value", random_state=0)
        np.testing.assert_allclose(found.all_pvalues, question(filled, random_state=0).all_pvalues, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::kernsift.CalibrationWarning")
@pytest.mark.parametrize("kernel", ["gaussian", "polynomial", "delta"])
@pytest.mark.parametrize(
    ("question", "estimator"),
    [("compare", name) for name in MMD] + [("relate", name) for name in HSIC],
)
def test_groups_without_gaps_have_the_score_of_tables_without_gaps(question: str, estimator: str, kernel: str) -> None:
    rng = np.random.default_rng(7)
    table = with_gaps((120, 5), 0.3, rng)
    table[:, 3:] = rng.normal(size=(120, 2))  # a group of three with the first column, which has no gaps either
    options: dict[str, Any] = {"missing": "value", "estimator": estimator, "kernel": kernel, "random_state": 1}

    def ask(columns: list[int], group: list[int]) -> float:
        part = table[:, columns]
        options["groups"] = {"together": group}
        found = compare(part[:60], part[60:], **options) if question == "compare" else relate(part, RESPONSE, **options)
        return float(found.scores[found.feature_names.index("together")])

    assert ask([0, 1, 2, 3, 4], [0, 3, 4]) == exactly(ask([0, 3, 4], [0, 1, 2]))


def test_groups_with_gaps_cannot_be_values() -> None:
    with pytest.raises(InputError, match=r"^missing: 'value' is for features of one column, but group 'both'"):
        compare(X, Y, missing="value", groups={"both": ["x1", "x2"]})


@pytest.mark.parametrize("rows", [60, 20_000])
def test_columns_without_gaps_are_not_touched_by_those_with(rows: int) -> None:
    rng = np.random.default_rng(6)
    values = with_gaps((2 * rows, 4), 0.2, rng)
    alone = compare(values[:rows, :1], values[rows:, :1], random_state=0)
    for missing in ("column", "value"):
        found = compare(values[:rows], values[rows:], missing=missing, random_state=0)
        np.testing.assert_allclose(found.all_pvalues[0], alone.all_pvalues[0], rtol=1e-9)


def test_selectors() -> None:
    table, y = np.vstack([X, Y]), np.repeat([0, 1], [90, 70])
    found = SelectMMD(random_state=0).fit(table, y)
    np.testing.assert_allclose(found.pvalues_, _in_table_order(compare(X, Y, random_state=0)))
    hsic = SelectHSIC(random_state=0).fit(table, RESPONSES["numbers"])
    np.testing.assert_allclose(hsic.pvalues_, _in_table_order(relate(table, RESPONSES["numbers"], random_state=0)))
    assert found.transform(table).shape[0] == 160


def _in_table_order(result: Any) -> np.ndarray:
    return np.asarray(result.all_pvalues)


@pytest.mark.slow
@pytest.mark.parametrize("question", ["compare", "relate", "as values"])
def test_level_with_uneven_gaps(question: str) -> None:
    """40% of one sample missing and 10% of the other, unrelated to the values: p-values keep their level.

    As values the gaps must be as frequent in both samples.
    """
    rng, found, selective, trials = np.random.default_rng(8), [], [], 120
    for seed in range(trials):
        shares = (0.2, 0.2) if question == "as values" else (0.4, 0.1)
        one, two = (with_gaps((size, 3), share, rng, common=0.6) for size, share in zip((60, 80), shares, strict=True))
        if question == "as values":
            result = compare(one, two, random_state=seed, k=1, missing="value")
        elif question == "compare":
            result = compare(one, two, random_state=seed, k=1)
        else:
            result = relate(np.vstack([one, two]), rng.normal(size=140), random_state=seed, k=1)
        found.append(result.all_pvalues[2])
        selective.append(result.pvalues[0])
    # Binomial limits that a correct test crosses once in 10,000 runs.
    for pvalues in (found, selective):
        for level in (0.05, 0.2, 0.5):
            low, high = binom.ppf([5e-5, 1 - 5e-5], trials, level)
            assert low <= np.count_nonzero(np.array(pvalues) <= level) <= high, (level, question)


@pytest.mark.parametrize("others", [{}, {"strata": np.arange(60) % 2}, {"given": np.arange(60.0) % 7}])
@pytest.mark.parametrize("response", ["two classes", "three classes", "numbers", "several columns", "censored"])
def test_a_feature_that_no_row_has_together_with_the_response(response: str, others: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    absent = np.arange(60) >= 40
    numbers = np.where(absent, np.nan, rng.normal(size=60))
    classes = rng.choice(["u", "v", "w"], 60)
    y: Any = {
        "two classes": pd.Series(np.where(classes == "w", "u", classes)).mask(absent),
        "three classes": pd.Series(classes).mask(absent),
        "numbers": numbers,
        "several columns": pd.DataFrame({"p": numbers, "q": rng.normal(size=60)}),
        "censored": (np.abs(numbers), rng.random(60) < 0.6),
    }[response]
    X = pd.DataFrame({"number": rng.normal(size=60), "level": rng.choice(list("abc"), 60), "own": rng.normal(size=60)})
    X.loc[~absent, ["number", "level"]] = np.nan
    result = relate(X, y, random_state=0, **others)
    for name in ("number", "level"):
        record = result[name]
        assert (record.pvalue, record.n, record.description) == (1.0, 0, "")
    assert any("Not testable" in note and "'number', 'level'" in note for note in result.notes)
    assert "no values" in result.to_html()
    assert "number" in result.to_text() and len(result.to_frame()) == 3


@pytest.mark.parametrize("present", [0, 30])
@pytest.mark.parametrize("response", ["samples", "classes", "numbers"])
def test_a_group_without_a_complete_row(response: str, present: int) -> None:
    """In all rows, or in all of one sample or class."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 3)), columns=list("abc"))
    X.loc[present:, "a"] = np.nan
    late, numbers = np.arange(60) >= 30, rng.normal(size=60)
    asked = {"samples": compare, "classes": relate, "numbers": relate}[response]
    y = {"by": late} if response == "samples" else {"y": late if response == "classes" else numbers}
    result = asked(X, **y, groups={"g": ["a", "b"]}, random_state=0)
    assert (result["g"].n, response == "numbers" or result["g"].pvalue == 1.0) == (present, True)
    assert ("no values" in result.to_html()) == (present == 0)
    result.plot_best()


@pytest.mark.parametrize("classes", [40, 400])
def test_classes_that_do_not_repeat_where_a_feature_has_values(classes: int) -> None:
    """Every relabelling of rows that all have classes of their own is the same table."""
    rng = np.random.default_rng(0)
    y = pd.Series([f"class {i % classes}" for i in range(2 * classes)])
    X = pd.DataFrame(rng.normal(size=(2 * classes, 2)), columns=["all", "half"])
    X.loc[: classes - 1, "half"] = np.nan
    result = relate(X, y, random_state=0)
    assert result["half"].pvalue == 1 and 0 < result["all"].pvalue < 1
    assert any("Not testable" in note and "'half'" in note for note in result.notes)


@pytest.mark.parametrize("missing", ["column", "value", "drop"])
def test_signalling_nans_are_missing_values(missing: str) -> None:
    """Their conversion to double precision sets a floating-point flag, of which NumPy warns."""
    rows = np.random.default_rng(3).normal(size=(60, 2)).astype(np.float32)
    quiet, signalling = rows.copy(), rows.copy()
    quiet[3, 0] = np.nan
    signalling.view(np.uint32)[3, 0] = 0x7FA00000
    found = [compare(X, rows[:50] + 1, missing=missing, random_state=0).pvalues for X in (quiet, signalling)]
    np.testing.assert_array_equal(*found)


def test_a_column_that_is_empty_in_one_table_is_noted_with_the_way_to_test_it() -> None:
    rng = np.random.default_rng(0)
    X, Y = (pd.DataFrame({"a": rng.normal(size=60), "b": rng.normal(size=60)}) for _ in range(2))
    Y["a"] = np.nan
    result = compare(X, Y, random_state=0)
    assert result["a"].pvalue == 1.0
    (note,) = [one for one in result.notes if "Not testable" in one]
    assert "'a'. Whether values are missing is tested with missing='value'." in note
    found = compare(X, Y, missing="value", random_state=0)["a"]
    assert found.rejected and found.description == "more missing in Y: 100% v 0%"
