"""Columns that are not clean numbers: the same decision in memory and from files, and always reported."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernsift import InputError, SelectHSIC, SelectMMD, compare, relate, screen
from kernsift.data.columns.written_numbers import may_be_numbers, parse_dates, parse_local_dates, parse_numbers
from kernsift.data.inputs import as_pair, as_table, as_xy
from kernsift.execution.notes import collect_notes

RNG = np.random.default_rng(5)
N = 60


# Text -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["$789.98", "-$5", "$ 1,000"], [789.98, -5, 1000]),
        (["37.4%", "5 %", "-1%"], [0.374, 0.05, -0.01]),
        (["1,037.72", "2", "12,345,678"], [1037.72, 2, 12345678]),
        (["1.037,72", "0,5", "3"], [1037.72, 0.5, 3]),
        (["1 037,72", "5,25", "1 000 000"], [1037.72, 5.25, 1e6]),
        (["1'037.5", "2.25"], [1037.5, 2.25]),
        (["12 €", "€3,50"], [12, 3.5]),
        (["1e5", "2.5E-3", ".5", "+4"], [1e5, 2.5e-3, 0.5, 4]),
        (["12.5 kg", "1,300 kg", "-3kg", "300 g"], [12.5, 1300, -3, np.nan]),
        (["5 days", "7 days"], [5, 7]),
        (["1A", "2A", "18-25 years", "26-35 years"], [np.nan] * 4),
        (["(1,250.50)", "3", "($4)", "(-1)"], [-1250.5, 3, -4, np.nan]),
        (["unknown", "1.5", "", "-", "n/a", "12-13"], [np.nan, 1.5, np.nan, np.nan, np.nan, np.nan]),
        (["E10", "E11", "e-3", ".e5", "5."], [np.nan, np.nan, np.nan, np.nan, 5]),  # codes of diseases
    ],
)
def test_numbers_as_people_write_them(texts: list[str], numbers: list[float]) -> None:
    np.testing.assert_allclose(parse_numbers(texts), numbers, rtol=1e-12)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_every_number_that_python_writes_is_read_back(numbers: list[float]) -> None:
    np.testing.assert_allclose(parse_numbers([repr(number) for number in numbers]), numbers, rtol=1e-12)


def test_dates_and_times() -> None:
    found = parse_dates(
        ["1970-01-02", "1970-01-03T12:00:00", "1970-01-01 06:00+06:00", "12:00", "1/2/2020", "1970-13-01"]
    )
    np.testing.assert_allclose(found, [1, 2.5, 0, 0.5, np.nan, np.nan])


WRITTEN = st.text("0123456789.,-+−()$€%eE '/: days", min_size=1, max_size=20)
WRITTEN |= st.sampled_from(["1 days 02:03:04", "2020-12-31", "31/12/2020", " (-.5)", "€ -,5"])


@given(st.lists(WRITTEN, min_size=1))
def test_what_does_not_begin_as_numbers_do_is_none(texts: list[str]) -> None:
    for parse in (parse_numbers, parse_dates, parse_local_dates):
        assert may_be_numbers(texts) or np.count_nonzero(~np.isnan(parse(texts))) <= len(texts) / 2


def test_codes_of_a_letter_and_digits_are_categories() -> None:
    codes = pd.DataFrame({"icd": np.resize(["E10", "E11", "E66"], N), "size": RNG.normal(size=N)})
    assert as_table(codes).levels == {"icd": ("E10", "E11", "E66")}


def prices(factor: float) -> pd.DataFrame:
    values = RNG.lognormal(5, 0.8, N) * factor
    return pd.DataFrame({"price": [f"${value:,.2f}" for value in values], "size": RNG.normal(size=N)})


@pytest.mark.parametrize("stored", [False, True])
def test_a_price_is_refused_or_read_and_not_compared_for_equality(stored: bool, tmp_path: Path) -> None:
    samples: list[Any] = [prices(1.0), prices(7.4)]
    if stored:
        for i, frame in enumerate(samples):
            samples[i] = str(tmp_path / f"{i}.parquet")
            frame.to_parquet(samples[i])
    with pytest.raises(
        InputError, match=r"^X: 1 column needs a decision: 'price' holds numbers written as '\$.*'number'"
    ):
        compare(*samples)
    result = compare(*samples, kinds={"pri*": "number"}, random_state=0)
    assert result.feature("price").pvalue < 1e-5
    assert any("read as numbers: 'price'" in note for note in result.notes)
    assert compare(*samples, kinds={"price": "drop"}).feature_names == ("size",)
    whole = compare(*samples, kinds={"price": "category"}, random_state=0)
    assert whole.feature("price").pvalue > 0.01


def test_text_in_files_becomes_what_it_becomes_in_memory(tmp_path: Path) -> None:
    """Parsed numbers with placeholders, dates, categories of numbers, text, all with gaps."""

    def table(n: int) -> pa.Table:
        price = [None if i % 11 == 0 else "unknown" if i % 7 == 0 else f"{1000 + i:,}.5" for i in range(n)]
        return pa.table(
            {
                "price": price,
                "seen": [None if i % 5 == 0 else f"2020-01-{1 + i % 28:02d}" for i in range(n)],
                "code": pa.array([None if i % 9 == 0 else 100 + i % 3 for i in range(n)], pa.int64()),
                "city": [None if i % 8 == 0 else "RO"[i % 2] for i in range(n)],
            }
        )

    kinds = {"price": "number", "code": "category"}
    first, second = table(40), table(60)
    paths = []
    for i, one in enumerate((first, second)):
        paths.append(str(tmp_path / f"{i}.parquet"))
        pa.parquet.write_table(one, paths[-1], row_group_size=16)
    for missing in ("column", "value", "drop"):
        expected = as_pair(first, second, kinds=kinds, missing=missing)
        for stored, memory in zip(as_pair(*paths, kinds=kinds, missing=missing), expected, strict=True):
            assert dict(stored.levels) == dict(memory.levels)
            np.testing.assert_array_equal(stored.part(slice(None)), memory.values)
    assert min(np.nanmin(table.values[:, 1]) for table in expected) == 0


def test_all_columns_that_need_a_decision_are_in_one_sentence() -> None:
    frame = pd.DataFrame(
        {
            "a": [f"{i}%" for i in range(N)],
            "b": [f"{i} €" for i in range(N)],
            "when": [f"{1 + i % 28}/01/2020" for i in range(N)],
            "list": [[i] for i in range(N)],
            "mixed": pd.Series([1.5, "x", "y", "z"] * (N // 4), dtype=object),
        }
    )
    with pytest.raises(InputError) as caught:
        as_table(frame)
    said = str(caught.value)
    assert said.startswith("X: 5 columns need a decision: ")
    assert said.endswith("{'a': 'number', 'b': 'number', 'when': 'number', 'list': 'drop', 'mixed': 'category'}.")


@pytest.mark.parametrize(
    ("texts", "days"),
    [
        (["02/01/1970", "31/01/1970", "03/02/70"], [1, 30, 33]),
        (["01/02/1970", "01/31/1970"], [1, 30]),
        (["1.2.1970", "2.1.1970 12:00"], [31, 1.5]),
        (["1970/01/02", "1970/02/01"], [1, 31]),
        (["02/01/1970", "03/01/1970"], [np.nan, np.nan]),
        (["02/01/1970", "31/02/1970", "13/01/1970", "never"], [1, np.nan, 12, np.nan]),
    ],
)
def test_dates_as_people_write_them(texts: list[str], days: list[float]) -> None:
    np.testing.assert_allclose(parse_local_dates(texts), days)


def test_local_dates_are_read_where_that_is_asked_for() -> None:
    def frame(first: int, rows: int = N) -> pd.DataFrame:
        days = pd.date_range("2020-01-01", periods=rows) + pd.Timedelta(days=first)
        return pd.DataFrame({"when": days.strftime("%d/%m/%Y"), "size": RNG.normal(size=rows)})

    kinds = {"when": "number"}
    found = compare(frame(0), frame(30), kinds=kinds, random_state=0)
    assert found.names[0] == "when" and found.pvalues[0] < 1e-6
    with pytest.raises(InputError, match=r"^kinds: day and month of the dates in column 'when', such as '01/01"):
        compare(frame(0, 10), frame(0, 12), kinds=kinds)


def test_declared_categories_are_what_they_are() -> None:
    codes = pd.Categorical([str(i % 5) for i in range(N)])
    with collect_notes() as notes:
        table = as_table(pd.DataFrame({"code": codes, "text": ["u", "v"] * (N // 2)}))
    assert table.categorical.tolist() == [True, True]
    assert notes == ["Text, compared for equality: 'text' (2 values)."]


def test_a_column_may_be_text_in_one_sample_only() -> None:
    first = pd.DataFrame({"dose": [1.5, 2.0, 4.0, 3.0]})
    second = pd.DataFrame({"dose": ["1.5", "2", "unknown", "7"]})
    with pytest.raises(InputError, match="'dose' holds numbers as text and also text such as 'unknown'"):
        as_pair(first, second)
    one, two = as_pair(first, second, kinds={"dose": "number"}, missing="drop")
    assert (one.values[:, 0].tolist(), two.values[:, 0].tolist()) == ([1.5, 2, 4, 3], [1.5, 2, 7])
    one, two = as_pair(first, second, kinds={"dose": "category"})
    assert dict(one.levels) == {"dose": ("1.5", "2", "3", "4", "7", "unknown")}
    assert one.values[:, 0].tolist() == [0, 1, 3, 2]


# Identifiers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [False, True])
def test_identifiers_are_left_out_and_measurements_are_not(stored: bool, tmp_path: Path) -> None:
    seven = RNG.permutation(9_000_000)[:N] + 1_000_000
    frame = pd.DataFrame(
        {
            "Unnamed: 0": np.arange(N),
            "rank": np.arange(1, N + 1) * 1.0,
            "patient_id": seven,
            "name": [f"person {i}" for i in range(N)],
            "income": seven,
            "lipid": RNG.permutation(1000)[:N],
            "city": RNG.choice(["Rome", "Oslo"], N),
        }
    )
    data: Any = frame
    if stored:
        data = str(tmp_path / "t.parquet")
        frame.to_parquet(data)
    with collect_notes() as notes:
        table = as_table(data)
    assert table.names == ("income", "lipid", "city")
    assert "Row numbers, so left out: 'Unnamed: 0', 'rank'." in notes
    assert "Different values in more than half of the rows, so left out as identifiers: 'patient_id', 'name'." in notes
    kept = as_table(data, kinds={"rank": "number", "name": "category"})
    assert kept.names == ("rank", "name", "income", "lipid", "city")
    assert "rank" not in as_table(data, groups={"g": ["rank", "lipid"]}).names
    assert "g" in as_table(data, groups={"g": ["rank", "lipid"]}).names


def test_names_of_rows_that_both_tables_have_are_identifiers() -> None:
    first, second = (pd.DataFrame({"person": [f"p{i}" for i in range(N)], "size": RNG.normal(size=N)}) for _ in "ab")
    result = compare(first, second, random_state=0)
    assert result.feature_names == ("size",) and "identifiers: 'person'" in result.notes[0]
    second.loc[0, "person"] = "p1"
    assert compare(first, second, random_state=0).feature_names == ("person", "size")


def test_what_has_no_name_or_is_alone_is_meant() -> None:
    assert as_table(np.arange(40.0)[:, None]).d == 1
    assert as_table(pd.DataFrame({"day": range(40)})).d == 1


def test_selectors_leave_out_what_is_left_out() -> None:
    frame = pd.DataFrame({"id": range(N), "x": np.repeat([0.0, 3.0], N // 2) + RNG.normal(size=N)})
    y = np.repeat([0, 1], N // 2)
    for selector in (SelectMMD(random_state=0), SelectHSIC(random_state=0)):
        selector.fit(frame, y)
        assert selector.get_feature_names_out().tolist() == ["x"]
        assert np.isnan(selector.scores_[0]) and np.isnan(selector.pvalues_[0])


# Responses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "levels"),
    [
        (np.arange(N) % 2, ("0", "1")),
        (np.arange(N) % 4 * 1.0, ("0", "1", "2", "3")),
        (np.where(np.arange(N) % 2, 0.25, -1.5), ("-1.5", "0.25")),
        (np.arange(N), None),
        (np.arange(N) % 11, None),
        (np.arange(N) % 3 + 0.5, None),
    ],
)
def test_few_whole_numbers_are_classes(y: np.ndarray, levels: tuple[str, ...] | None) -> None:
    X = RNG.normal(size=(N, 2))
    with collect_notes() as notes:
        _, target = as_xy(X, y)
    assert target.levels.get("y") == levels
    assert any("taken as classes; response='numeric'" in note for note in notes) == (levels is not None)
    assert not as_xy(X, y, response="numeric")[1].levels


def test_the_response_is_in_the_same_sentence_as_the_features() -> None:
    cells = [f"${i}.50" for i in range(N)]
    frame = pd.DataFrame({"price": cells, "share": [f"{i}%" for i in range(N)], "size": RNG.normal(size=N)})
    with pytest.raises(InputError, match=r"^X: 2 columns need .*kinds=\{'share': 'number', 'price': 'number'\}\.$"):
        relate(frame, "price")
    with pytest.raises(InputError, match=r"^X: 1 column needs a decision: 'share' holds"):
        relate(frame.drop(columns="price"), "size")


def test_whole_data_sets_name_the_categories_alone() -> None:
    frame = pd.DataFrame({"city": ["Rome", "Oslo"] * (N // 2), "price": [f"${i}" for i in range(N)], "size": 1.0})
    with pytest.raises(InputError, match=r"^reference: .* but 'city' holds categories; .* kinds=\{'city': 'drop'\}\.$"):
        screen(frame, {"other": frame}, kinds={"price": "number"})


def test_a_response_of_text_that_is_numbers_needs_a_decision() -> None:
    frame = pd.DataFrame({"x": RNG.normal(size=N), "price": [f"${i}.50" for i in range(N)]})
    with pytest.raises(
        InputError, match=r"^y: the response 'price' holds numbers written as.*a 'number' or a 'category', as"
    ):
        relate(frame, "price")
    mixed = [1 if i % 2 else "one" for i in range(N)]
    with pytest.raises(InputError, match=r"^y: the response 'y' holds numbers and text such as 'one'"):
        relate(frame[["x"]], pd.Series(mixed))
    assert as_xy(frame[["x"]], pd.Series(mixed), response="category")[1].levels == {"y": ("1", "one")}
    assert not as_xy(frame, "price", kinds={"price": "number"})[1].levels
    assert as_xy(frame[["x"]], ["0", "1", "2"] * (N // 3))[1].levels == {"y": ("0", "1", "2")}
    # A column of that name in the table is not the response.
    table, response = as_xy(frame[["x"]].assign(y="a"), np.arange(N) % 2, kinds={"y": "drop"})
    assert table.names == ("x",) and response.names == ("y",)


def test_a_response_of_identifiers_is_noted() -> None:
    frame = pd.DataFrame({"x": RNG.normal(size=N), "id": [f"p{max(i, 3)}" for i in range(N)]})
    with collect_notes() as notes:
        as_xy(frame, "id")
    assert f"The response holds 57 different values in {N} rows, as an identifier does; few rows" in " ".join(notes)
    with collect_notes() as notes:
        as_xy(frame[["x"]], [f"p{i % 30}" for i in range(N)])
    assert not any("identifier" in note for note in notes)


# Groups ---------------------------------------------------------------------------------------------------------------


def grouped() -> pd.DataFrame:
    frame = pd.DataFrame(RNG.normal(size=(90, 3)), columns=["u", "v", "w"])
    frame["site"] = np.repeat(["a", "b", "c"], 30)
    frame.loc[frame["site"] == "b", "v"] += 2
    return frame


def test_by_is_for_every_kind_of_table(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    frames = pytest.importorskip("dask.dataframe")
    frame = grouped()
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    features = ["u", "v", "w"]
    rows = frame["site"] == "b"
    expected = compare(frame.loc[~rows, features], frame.loc[rows, features], random_state=0)
    tables = [frame, pl.from_pandas(frame), pa.Table.from_pandas(frame), frame.to_dict("list")]
    tables += [tmp_path / "t.csv", tmp_path / "t.parquet", frames.from_pandas(frame, npartitions=3)]
    for table in tables:
        found = compare(table, by="site", group="b", random_state=0)
        assert found.feature_names == ("u", "v", "w")
        np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9)
    by_values = compare(frame[features].to_numpy(), by=frame["site"], group="b", random_state=0)
    np.testing.assert_allclose(by_values.all_pvalues, expected.all_pvalues, rtol=1e-9)


def test_one_group_against_another() -> None:
    frame = grouped()
    one, two = (frame.loc[frame["site"] == site, ["u", "v", "w"]] for site in "ab")
    expected = compare(one, two, random_state=0)
    found = compare(frame, by="site", group="b", reference="a", random_state=0)
    np.testing.assert_array_equal(found.all_pvalues, expected.all_pvalues)
    assert found.rows == (30, 30)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"by": "site"},
            r"^by: 'site' has 3 values \('a', 'b', 'c'\); choose one with group='a'.*reference.*relate.*\.$",
        ),
        ({"by": "sit"}, r"^by: X has no column 'sit' \(did you mean 'site'\?\)"),
        ({"by": "site", "group": "z"}, "^group: the column `by` has no value 'z'; it has 'a', 'b', 'c'"),
        ({"by": "site", "group": "a", "reference": "a"}, "^reference: must be another group"),
        ({"by": "one"}, "^by: two groups are needed, but 'one' has only the value '1'; choose another"),
        ({"by": "rare", "group": "1"}, "^by: at least 2 rows are needed in each group, but '1' has 1"),
        ({"by": ["site", "one"]}, "^by: one column is needed, got 'site', 'one'"),
        ({"group": "a"}, "^group: names a value of the column `by`"),
        ({}, '^Y: a second table is needed, got None; pass two tables, or one with by="group"'),
    ],
)
def test_misuse_of_groups_is_one_sentence(options: dict[str, Any], words: str) -> None:
    frame = grouped().assign(one=1, rare=[1, *[0] * 89])
    with pytest.raises(InputError, match=words):
        compare(frame, **options)


def test_groups_of_dates_are_called_by_their_dates() -> None:
    frame = grouped()
    day, later = pd.Timestamp("2020-01-01"), pd.Timestamp("2021-03-01 06:30")
    frame["site"] = np.where(frame["site"] == "a", day, later)
    result = compare(frame, by="site", random_state=0)
    assert result.labels == ("2020-01-01", "2021-03-01T06:30:00")
    for wanted in (day, "2020-01-01", day.date(), day.to_datetime64()):
        assert compare(frame, by="site", group=wanted, random_state=0).labels[1] == "2020-01-01"
    frame["site"] = pd.to_datetime(frame["site"]).dt.tz_localize("Europe/Rome")
    found = compare(frame, by="site", group=day.tz_localize("Europe/Rome"), random_state=0)
    assert found.labels[1] == "2019-12-31T23:00:00"


def test_identifiers_that_repeat_are_left_out_by_their_names() -> None:
    numbers = np.append(RNG.permutation(10**6)[: N - 10], RNG.permutation(10**6)[:5].repeat(2))
    frame = pd.DataFrame({"patient_id": numbers, "pain_index": numbers, "size": RNG.normal(size=N)})
    assert as_table(frame).names == ("pain_index", "size")
    half = np.arange(N) >= N // 2
    said = f"'patient_id' has {N - 5} different values in {N} rows.*p-values are too small; use unit='patient_id'"
    for ids in (numbers, [f"p{number}" for number in numbers]):
        found = compare(frame.assign(patient_id=ids), by=half, random_state=0)
        assert any(re.search(said, note) for note in found.notes)
    # One row for each value, or a unit already.
    single = compare(frame.assign(patient_id=RNG.permutation(10**6)[:N]), by=half, random_state=0)
    units = relate(frame, numbers % 2, unit="patient_id", random_state=0)
    assert not any("unit='patient_id'" in note for note in (*single.notes, *units.notes))


@pytest.mark.parametrize("dtype", [object, "string"])
def test_a_column_of_strings_without_any_goes_with_numbers(dtype: Any) -> None:
    numbers = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 4.0]})
    empty = numbers.assign(a=pd.Series([None] * 3, dtype=dtype))
    _, found = as_pair(numbers, empty, missing="column")
    assert np.isnan(found.values[:, 0]).all() and found.values[:, 1].tolist() == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("missing", ["column", "value"])
@pytest.mark.parametrize("kind", ["number", "category"])
@pytest.mark.parametrize("dtype", ["Int64", "Float64", "float64"])
def test_a_declared_column_without_a_value_is_no_evidence(dtype: str, kind: str, missing: str) -> None:
    """A column that `kinds` names is not left out."""
    frame = pd.DataFrame({"x": RNG.normal(size=20), "e": pd.array([None] * 20, dtype=dtype)})
    for result in (
        compare(frame, by=np.arange(20) % 2, kinds={"e": kind}, missing=missing, random_state=0),
        relate(frame, np.arange(20.0), kinds={"e": kind}, missing=missing, random_state=0),
    ):
        assert result.feature_names == ("x", "e") and result["e"].pvalue == 1
