"""Tables from arrays and data frames, and the errors for input that cannot be used."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from kernsift import relate
from kernsift.data.inputs import as_candidates, as_pair, as_table, as_xy
from kernsift.data.tables import Table, owned, stack
from kernsift.exceptions import InputError

FRAMES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
}
frames = pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
SERIES: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "numpy": np.array,
    "pandas": pd.Series,
    "polars": pl.Series,
    "pyarrow": pa.array,
    "chunked": lambda values: pa.chunked_array([values[:2], values[2:]]),
}


def refused(*words: str) -> Any:
    """InputError whose message is one sentence and has these words in this order."""
    return pytest.raises(InputError, match="(?s)" + ".*".join(re.escape(word) for word in words) + r".*\.$")


def same(a: Table, b: Table) -> bool:
    return (
        a.names == b.names
        and np.array_equal(a.values, b.values)
        and np.array_equal(a.offsets, b.offsets)
        and np.array_equal(a.categorical, b.categorical)
        and dict(a.levels) == dict(b.levels)
    )


# What is read


@frames
def test_every_frame_gives_the_same_table(frame: Any) -> None:
    table = as_table(frame({"i": [1, 2, 4], "f": [0.5, 1.5, -1.0], "b": [True, False, True], "s": ["v", "u", "v"]}))
    expected = Table(
        names=("i", "f", "b", "s"),
        values=np.array([[1, 0.5, 1, 1], [2, 1.5, 0, 0], [4, -1, 1, 1]], dtype=np.float64),
        offsets=np.arange(5),
        categorical=np.array([False, False, False, True]),
        levels={"s": ("u", "v")},
    )
    assert same(table, expected)
    assert (table.n, table.d) == (3, 4)
    assert table.values.flags.c_contiguous and table.values.dtype == np.float64


@frames
def test_a_numeric_frame_equals_its_array(frame: Any) -> None:
    array = np.random.default_rng(0).normal(size=(5, 3))
    table = as_table(frame({name: array[:, i] for i, name in enumerate(["x0", "x1", "x2"])}))
    for other in (array, np.asfortranarray(array), array.tolist(), tuple(map(tuple, array)), sparse.csr_array(array)):
        assert same(as_table(other), table)


@frames
def test_single_precision_stays_only_if_all_columns_have_it(frame: Any) -> None:
    single = np.array([1.5, 2.5], dtype=np.float32)
    assert as_table(frame({"a": single, "b": single})).values.dtype == np.float32
    assert as_table(frame({"a": single, "b": single.astype(np.float64)})).values.dtype == np.float64
    assert as_table(frame({"a": single, "b": np.array([1, 2], dtype=np.int8)})).values.dtype == np.float64
    assert as_table(frame({"a": single, "b": ["u", "v"]})).values.dtype == np.float64


def test_single_precision_arrays() -> None:
    single = np.array([[1.0, 2.0], [3.0, 5.0]], dtype=np.float32)
    assert as_table(single).values.dtype == np.float32
    assert [part.values.dtype for part in as_pair(single, single.astype(np.float64))] == [np.float64, np.float64]
    # Squares of these numbers would leave the range of float32.
    assert as_table(single * np.float32(1e25)).values.dtype == np.float64
    assert as_table(single * np.float32(1e-25)).values.dtype == np.float64


@pytest.mark.parametrize("dtype", ["i1", "u8", "f2", ">f4", "?", "g"])
def test_number_types_of_numpy(dtype: str) -> None:
    np.testing.assert_array_equal(as_table(np.array([[0], [1]]).astype(dtype)).values, [[0.0], [1.0]])


@pytest.mark.parametrize(
    "column",
    [
        [Decimal("1.5"), Decimal(2)],
        np.array([Decimal("1.5"), 2], dtype=object),
        pd.Series([Decimal("1.5"), Decimal(2)]),
        pl.Series([Decimal("1.5"), Decimal(2)]),
        pa.array([Decimal("1.5"), Decimal(2)]),
        pd.Series([1.5, 2], dtype="Float64"),
        pd.Series(pd.arrays.SparseArray([1.5, 2.0])),
        pd.Series([1.5, 2], dtype="float64[pyarrow]"),
        pd.Index([1.5, 2.0]),
        np.array([[1.5], [2.0]]).view(np.matrix),
        pa.record_batch({"x0": [1.5, 2.0]}),
        [np.float32(1.5), 2],
    ],
    ids=lambda column: f"{type(column).__module__}-{getattr(column, 'dtype', '')}",
)
def test_columns_that_are_numbers(column: Any) -> None:
    table = as_table(column)
    np.testing.assert_array_equal(table.values, [[1.5], [2.0]])
    assert table.names == ("x0",)


@pytest.mark.parametrize(
    "column",
    [
        ["b", "a", "b"],
        np.array(["b", "a", "b"]),
        np.array([b"b", b"a", b"b"]),
        *([np.array(["b", "a", "b"], dtype=np.dtypes.StringDType())] if hasattr(np.dtypes, "StringDType") else []),
        np.array(["b", "a", "b"], dtype=object),
        pd.Series(["b", "a", "b"], dtype=object),
        pd.Series(["b", "a", "b"], dtype="string[pyarrow]"),
        pd.Series(pd.Categorical(["b", "a", "b"], categories=["z", "b", "a"])),
        pd.Series(pd.Categorical(["b", "a", "b"], categories=["z", "b", "a"], ordered=True)),
        pl.Series(["b", "a", "b"]),
        pl.Series(["b", "a", "b"], dtype=pl.Categorical),
        pl.Series(["b", "a", "b"], dtype=pl.Enum(["z", "b", "a"])),
        pa.array(["b", "a", "b"], pa.large_string()),
        pa.array(["b", "a", "b"]).dictionary_encode(),
    ],
    ids=lambda column: f"{type(column).__module__}-{getattr(column, 'dtype', getattr(column, 'type', ''))}",
)
def test_columns_that_are_categories(column: Any) -> None:
    table = as_table(column)
    assert table.categorical.tolist() == [True]
    assert dict(table.levels) == {"x0": ("a", "b")}
    assert table.values.tolist() == [[1.0], [0.0], [1.0]]


def test_categories_of_numbers_are_categories() -> None:
    for column in (pd.Series(pd.Categorical([10, 9, 10])), pa.array([10, 9, 10]).dictionary_encode()):
        table = as_table(column)
        assert table.levels["x0"] == ("10", "9")
        assert table.values.ravel().tolist() == [0.0, 1.0, 0.0]
    for column in (pd.Series(pd.Categorical([1.5, 1.0])), pa.array([1.5, 1.0]).dictionary_encode()):
        assert as_table(column).levels == {as_table(column).names[0]: ("1.0", "1.5")}


def test_rows_of_mixed_kinds_are_read_column_by_column() -> None:
    for data in ([[1, "u"], [2, "v"]], np.array([[1, "u"], [2, "v"]], dtype=object)):
        table = as_table(data)
        assert table.categorical.tolist() == [False, True]
        assert table.values.tolist() == [[1.0, 0.0], [2.0, 1.0]]


def test_names_become_text() -> None:
    assert as_table(pd.DataFrame({3: [1, 2], "b": ["u", "v"], ("c", 1): [0, 1]})).names == ("3", "b", "('c', 1)")


def test_objects_that_can_become_arrays() -> None:
    class Exporter:
        def to_numpy(self) -> np.ndarray:
            return np.array([[1.0], [2.0]])

    class Arraylike:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.array([[1.0], [2.0]])

    for thing in (Exporter(), Arraylike()):
        assert as_table(thing).values.tolist() == [[1.0], [2.0]]


def test_a_hundred_thousand_columns() -> None:
    array = np.random.default_rng(1).normal(size=(4, 100_000))
    table = as_table(array)
    assert table.d == 100_000 and np.shares_memory(table.values, array)
    assert same(as_table(pd.DataFrame(array, columns=table.names)), table)
    mixed = pd.concat([pd.DataFrame({"z": list("uvvu")}), pd.DataFrame(array, columns=table.names)], axis=1)
    x, y = as_xy(mixed, "z")
    assert same(x, table) and y.values.ravel().tolist() == [0, 1, 1, 0]
    picked = table.select(np.arange(0, 100_000, 2))
    np.testing.assert_array_equal(picked.values, array[:, ::2])
    assert not table.constant.any()


# Rows and features of a Table


def test_parts_of_tables_and_of_stacked_tables() -> None:
    values = np.arange(60.0).reshape(12, 5)
    whole = as_table(values)
    stacked = stack([whole.take(np.arange(3)), whole.take(np.arange(3, 4)), whole.take(np.arange(4, 12))])
    assert stacked.n == 12
    columns = [slice(None), slice(1, 4), np.array([3, 0]), np.array([2])]
    rows = [None, slice(None), slice(2, 9), np.array([0, 4, 11]), np.array([11, 0, 3, 3, 2, 7]), np.arange(12)]
    for which in columns:
        for some in rows:
            expected = values[slice(None) if some is None else some][:, which]
            np.testing.assert_array_equal(whole.part(which, some), expected)
            np.testing.assert_array_equal(stacked.part(which, some), expected)
    np.testing.assert_array_equal(stacked.values, values)
    np.testing.assert_array_equal(stacked.take(np.array([5, 1])).values, values[[5, 1]])
    np.testing.assert_array_equal(stacked.select(np.array([4, 2])).values, values[:, [4, 2]])


def test_constant_features_are_found() -> None:
    values = np.zeros((9, 4))
    values[:, 1] = np.arange(9)
    # The rows that are looked at first are equal here, another one is not.
    values[2, 2] = 1.0
    for table in (as_table(values), stack([as_table(values[:4]), as_table(values[4:])])):
        assert table.constant.tolist() == [True, False, False, True]
    assert as_table(values, groups={"a": [0, 3], "b": [1, 2]}).constant.tolist() == [True, False]
    assert as_table(values, groups={"a": [0, 1], "b": [2, 3]}).constant.tolist() == [False, False]


@pytest.mark.parametrize("order", ["C", "F"])
def test_parts_of_stacked_copies_do_not_change_with_the_input(order: Any) -> None:
    rng = np.random.default_rng(0)
    X, Y = (np.array(rng.normal(size=(n, 4)), order=order) for n in (5, 3))
    tables = as_pair(X, Y)
    expected, copies = np.concatenate([X, Y]), owned(tables)
    X[:], Y[:] = 0.0, 0.0
    together = stack(copies)
    assert all(np.shares_memory(together.part(slice(1, 3)), copy.values) for copy in copies)
    for columns in (slice(None), slice(1, 3), np.array([3, 0])):
        for rows in (None, slice(2, 7), np.array([7, 0, 4])):
            found = together.part(columns, rows)
            np.testing.assert_array_equal(found, expected[slice(None) if rows is None else rows][:, columns])
    np.testing.assert_array_equal(stack(copies[::-1]).part(slice(None)), np.roll(expected, 3, axis=0))


def test_rows_of_an_array_are_stacked_only_where_they_are_all_of_it() -> None:
    whole = np.arange(24.0).reshape(8, 3)
    for rows in ([slice(0, 5), slice(5, 8)], [slice(0, 4), slice(4, 7)], [slice(3, 8), slice(0, 3)]):
        parts = [as_table(whole[some]) for some in rows]
        np.testing.assert_array_equal(stack(parts).values, np.concatenate([whole[some] for some in rows]))
    halves = [as_table(whole[::2]), as_table(whole[1::2])]
    np.testing.assert_array_equal(stack(halves).values, np.concatenate([whole[::2], whole[1::2]]))
    mixed = owned([as_table(whole[:5].astype(np.float32)), as_table(whole[5:])])
    assert [table.values.dtype for table in mixed] == [np.float32, np.float64]


def test_take_select_stack_constant() -> None:
    data = pd.DataFrame({"a": [1, 2, 3], "b": [7, 7, 7], "c": ["u", "v", "u"], "d": [5, 6, 5], "e": [0, 0, 0]})
    table = as_table(data, groups={"g": ["b", "d"]})
    assert table.names == ("a", "g", "c", "e")
    assert table.constant.tolist() == [False, False, False, True]
    picked = table.select(np.array([2, 1]))
    assert picked.names == ("c", "g")
    assert picked.offsets.tolist() == [0, 1, 3]
    assert picked.values.tolist() == [[0, 7, 5], [1, 7, 6], [0, 7, 5]]
    assert picked.categorical.tolist() == [True, False] and dict(picked.levels) == {"c": ("u", "v")}
    assert picked.values.flags.c_contiguous
    assert dict(table.select(np.array([0])).levels) == {}
    doubled = stack([table.take(np.array([2, 2])), table.take(np.array([0]))])
    assert doubled.values[:, 0].tolist() == [3, 3, 1]
    assert doubled.names == table.names
    assert table.take(np.array([0, 2])).constant.tolist() == [False, True, True, True]


# Missing and unusable cells

GAPS: dict[str, Callable[[], Any]] = {
    "numpy": lambda: np.array([[1, 5], [np.nan, 6], [3, 7], [4, 9.0]]),
    "masked": lambda: np.ma.array(
        [[1, 5], [2, 6], [3, 7], [4, 9]], mask=[[False] * 2, [True, False], [False] * 2, [False] * 2]
    ),
    "list": lambda: [[1, 5], [None, 6], [3, 7], [4, 9]],
    "object": lambda: np.array([[1, 5], [pd.NA, 6], [3, 7], [4, 9]], dtype=object),
    "pandas": lambda: pd.DataFrame({"x0": pd.array([1, None, 3, 4], dtype="Int64"), "x1": [5, 6, 7, 9]}),
    "polars": lambda: pl.DataFrame({"x0": [1, None, 3, 4], "x1": [5, 6, 7, 9]}),
    "pyarrow": lambda: pa.table({"x0": [1, None, 3, 4], "x1": [5, 6, 7, 9]}),
}
gaps = pytest.mark.parametrize("gap", GAPS.values(), ids=GAPS)


@gaps
def test_missing_values_are_refused_or_dropped(gap: Any) -> None:
    with refused("X: 1 of 4 rows", "'x0' (1)", "missing='drop'"):
        as_table(gap())
    assert as_table(gap(), missing="drop").values.tolist() == [[1, 5], [3, 7], [4, 9]]


@frames
def test_missing_categories_and_truth_values(frame: Any) -> None:
    data = frame({"s": ["b", None, "c", "b"], "t": [True, None, False, True], "z": ["p", "q", "p", "p"]})
    with refused("X: 1 of 4 rows", "'s' (1)", "'t' (1)"):
        as_table(data)
    table = as_table(data, missing="drop")
    assert table.values.tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0]]
    # A level that only dropped rows had is gone.
    assert dict(table.levels) == {"s": ("b", "c"), "z": ("p",)}


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(pd.Categorical(["b", None, "a"])),
        pl.Series(["b", None, "a"], dtype=pl.Categorical),
        pa.array(["b", None, "a"]).dictionary_encode(),
        np.ma.array(["b", "?", "a"], mask=[False, True, False]),
        np.ma.array([True, True, False], mask=[False, True, False]),
        pd.Series([Decimal(1), Decimal("nan"), Decimal(0)]),
    ],
    ids=["pandas", "polars", "pyarrow", "masked strings", "masked truth", "decimal"],
)
def test_missing_cells_of_other_kinds(column: Any) -> None:
    assert as_table(column, missing="drop").values.tolist() == [[1], [0]]


def test_missing_counts_are_listed_up_to_five() -> None:
    array = np.arange(80.0).reshape(10, 8)
    array[0, :7] = np.nan
    array[3, 1] = np.nan
    with refused("X: 2 of 10 rows", "'x0' (1), 'x1' (2), 'x2' (1), 'x3' (1), 'x4' (1) and 2 more", "missing='drop'"):
        as_table(array)


def test_a_column_of_nothing() -> None:
    for column in (pd.Series([None, None]), pl.Series([None, None]), pa.nulls(2), [None, None]):
        with refused("X: 2 of 2 rows", "missing"):
            as_table(column)


def test_dropping_too_much() -> None:
    array = np.array([[1, np.nan], [2, np.nan], [np.nan, 3], [4, 5]])
    with refused("X: missing='drop' leaves 1 of 4 rows", "'x1' (2), 'x0' (1)"):
        as_table(array, missing="drop")
    x, y = [1, np.nan, 3, np.nan], [np.nan, 1, 2, 3]
    with refused("missing='drop' leaves 1 of 4 rows"):
        as_xy(x, y, missing="drop")
    with refused("X: missing labels or values leave 1 of 4 rows"):
        relate(pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0]}), [1, 2, 3, 4], strata=["a", None, None, None])


@pytest.mark.parametrize("missing", ["error", "drop"])
def test_infinite_values_are_always_refused(missing: str) -> None:
    with refused("Z: infinite", "'x1'", "replace or remove"):
        as_table([[1, np.inf], [np.nan, 2], [1, np.nan]], argument="Z", missing=missing)
    with refused("X: infinite", "'b'"):
        as_table(pl.DataFrame({"a": [1, 2], "b": [-np.inf, 0.0]}), missing=missing)


def test_numbers_that_cannot_be_squared() -> None:
    with refused("Y: numbers beyond 1e70", "'x1'", "rescale"):
        as_pair([[1, 1], [2, 2]], [[1, 1], [2, -1e160]])
    with refused("X: the values in 'x0' differ by less than 1e-70", "rescale"):
        as_table([0, 1e-200])
    with refused("X: column 'x0'", "beyond float64", "rescale"):
        as_table([10**400, 1])
    # Equal numbers are a constant column, whatever their size, and two samples are judged together.
    assert as_table([1e-200, 1e-200]).constant.all()
    as_pair([0, 1e-200], [0, 1])


def test_unknown_options() -> None:
    with refused("missing", "'drop' or 'error'", "'ignore'"):
        as_table([[1], [2]], missing="ignore")
    with refused("response", "'auto', 'numeric', 'category'", "'labels'"):
        as_xy([[1], [2]], [1, 2], response="labels")


# What is turned away

REFUSED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "lists": (pl.DataFrame({"l": [[1], [2]]}), ("'l' holds values of type List", "'l': 'drop'")),
    "structs": (pa.table({"s": [{"a": 1}, {"a": 2}]}), ("'s' holds values of type Struct", "'s': 'drop'")),
    "arrays": (pl.DataFrame({"v": np.ones((2, 3))}), ("'v' holds values of type Array", "'v': 'drop'")),
    "binary": (pa.table({"raw": [b"a", b"b"]}), ("'raw' holds values of type Binary", "'raw': 'drop'")),
    "bytes": ([b"a", b"b"], ("'x0' holds values of type bytes", "'x0': 'drop'")),
    "complex": (np.ones((2, 2)) * 1j, ("2 columns need", "'x0', 'x1' hold values of type complex128")),
    "complex list": ([[1j], [2]], ("'x0' holds values of type complex128", "drop")),
    "complex column": (pd.DataFrame({"z": [1j, 2j]}), ("'z' holds values of type complex128", "drop")),
    "periods": (pd.DataFrame({"p": pd.period_range("2020", periods=2)}), ("'p' holds values of type Period", "drop")),
    "objects": (pd.DataFrame({"o": [object, 1]}), ("'o' holds values of type type", "drop")),
    "mixed": (pd.DataFrame({"m": [None, 1, "two", 3]}), ("'m' holds numbers and text such as 'two'", "category")),
    "mixed strings": ([["u"], [None], [2.5]], ("'x0' holds numbers and text such as 'u'", "category")),
    "records": ([{"a": 1}, {"a": 2}], ("a list of dicts", "data frame")),
    "ragged": ([[1, 2], [3]], ("rectangular", "list", "rows differ in length")),
    "scalar": (3.0, ("table with rows and columns", "float", "2-D")),
    "nothing": (None, ("table with rows and columns", "NoneType", "data frame")),
    "mapping": ({"a": [1, 2], "b": [1, 2, 3]}, ("columns of one length", "'b'")),
    "three axes": (np.ones((2, 2, 2)), ("shape (2, 2, 2)", "2-D")),
    "fields": (np.zeros((2, 1), dtype=[("a", "f8")]), ("with fields", "data frame")),
    "lazy": (pl.LazyFrame({"a": [1, 2]}), ("lazy frame", ".collect()")),
    "no rows": (np.empty((0, 3)), ("at least 2 rows", "got 0")),
    "one row": (pd.DataFrame({"a": [1]}), ("at least 2 rows", "got 1")),
    "empty list": ([], ("at least 2 rows", "got 0")),
    "no columns": (np.empty((3, 0)), ("at least one column", "(3, 0)")),
    "empty frame": (pd.DataFrame(), ("at least one column",)),
    "empty polars": (pl.DataFrame(), ("at least one column",)),
    "repeated": (pd.DataFrame(np.ones((2, 2)), columns=["a", "a"]), ("unique", "'a' occurs", "rename")),
    "repeated arrow": (pa.table([[1, 2], [3, 4]], names=["a", "a"]), ("unique", "'a' occurs", "rename")),
    "repeated as text": (pd.DataFrame(np.ones((2, 2)), columns=[1, "1"]), ("unique", "'1'", "rename")),
}


@pytest.mark.parametrize(("data", "words"), REFUSED.values(), ids=REFUSED)
def test_refused_data(data: Any, words: tuple[str, ...]) -> None:
    with refused("Z: ", *words):
        as_table(data, argument="Z")


# Two samples


@frames
def test_pairs_are_matched_by_name(frame: Any) -> None:
    X = frame({"a": [1, 2], "b": ["u", "w"], "c": [5, 6]})
    Y = frame({"c": [7, 8, 9], "a": [3, 4, 5], "b": ["v", "u", "u"]})
    x, y = as_pair(X, Y)
    assert x.names == y.names == ("a", "b", "c")
    assert dict(x.levels) == dict(y.levels) == {"b": ("u", "v", "w")}
    assert x.values.tolist() == [[1, 0, 5], [2, 2, 6]]
    assert y.values.tolist() == [[3, 1, 7], [4, 0, 8], [5, 0, 9]]
    assert y.values.flags.c_contiguous


def test_pairs_of_different_libraries_match() -> None:
    data = {"a": [1.0, 2.0], "b": ["u", "v"]}
    x, y = as_pair(pd.DataFrame(data), pa.table(data))
    assert same(x, y)


def test_unnamed_columns_match_by_position() -> None:
    frame = pd.DataFrame({"b": [1, 2], "a": [3, 4]})
    for x, y in (as_pair(frame, np.ones((2, 2))), as_pair(np.ones((2, 2)), frame)):
        assert x.names == y.names == ("b", "a")
    x, y = as_pair(frame, np.ones((3, 2)), groups={"g": ["a", "b"]})
    assert x.names == y.names == ("g",)
    x, y = as_pair(frame["a"], frame["b"])
    assert x.names == y.names == ("a",)


def test_pairs_drop_rows_separately() -> None:
    x, y = as_pair([[1], [np.nan], [3]], [[np.nan], [5], [6]], missing="drop")
    assert x.values.tolist() == [[1], [3]] and y.values.tolist() == [[5], [6]]


def test_pairs_that_do_not_match() -> None:
    with refused("Y:", "X has shape (2, 3)", "Y has shape (4, 2)"):
        as_pair(np.ones((2, 3)), np.ones((4, 2)))
    X = pd.DataFrame({"height": [1, 2], "mass": [3, 4]})
    with refused("Y:", "Y lacks 'height' (did you mean 'Heihgt'?)", "X lacks 'Heihgt'", "rename or drop"):
        as_pair(X, X.rename(columns={"height": "Heihgt"}))
    with refused("Y:", "X lacks 'extra'", "drop"):
        as_pair(X, X.assign(extra=1))
    with refused("Y:", "Y lacks 'mass'", "drop"):
        as_pair(X, X[["height"]])
    with refused("column 'mass'", "numbers in X and categories in Y", "convert"):
        as_pair(X, X.assign(mass=["3", "4"]))
    with refused("Y: at least 2 rows"):
        as_pair(X, X[:1])
    with refused("Y: 1 of 2 rows"):
        as_pair(X, X.assign(mass=[np.nan, 1]))


# A response


@pytest.mark.parametrize("series", SERIES.values(), ids=SERIES)
def test_responses_of_every_kind(series: Any) -> None:
    X = np.arange(6.0).reshape(3, 2)
    _, numeric = as_xy(X, series([1.5, 0.5, 2.5]))
    assert numeric.names == ("y",) and not numeric.categorical[0]
    assert numeric.values.ravel().tolist() == [1.5, 0.5, 2.5]
    _, labels = as_xy(X, series(["v", "u", "v"]))
    assert labels.categorical.tolist() == [True] and dict(labels.levels) == {"y": ("u", "v")}
    _, truth = as_xy(X, series([True, False, True]))
    assert dict(truth.levels) == {"y": ("False", "True")} and truth.values.ravel().tolist() == [1, 0, 1]
    _, forced = as_xy(X, series([10, 9, 10]), response="category")
    assert dict(forced.levels) == {"y": ("9", "10")} and forced.values.ravel().tolist() == [1, 0, 1]
    _, number = as_xy(X, series([True, False, True]), response="numeric")
    assert not number.categorical[0] and number.values.ravel().tolist() == [1, 0, 1]
    with refused("y: response='numeric'", "categories", "response='category'"):
        as_xy(X, series(["v", "u", "v"]), response="numeric")


@frames
def test_a_response_can_be_a_column(frame: Any) -> None:
    data = frame({"a": [1, 2, 3], "out": [7, 8, 9], "b": [4, 5, 6], "kind": ["u", "v", "u"]})
    x, y = as_xy(data, "out")
    assert x.names == ("a", "b", "kind") and y.names == ("out",) and y.values.ravel().tolist() == [7, 8, 9]
    x, y = as_xy(data, ["out", "kind"])
    assert x.names == ("a", "b") and y.names == ("y",)
    assert y.values.tolist() == [[7, 1, 0], [8, 0, 1], [9, 1, 0]] and y.offsets.tolist() == [0, 3]
    assert not y.categorical[0] and dict(y.levels) == {}
    x, y = as_xy(data, ["kind"])
    assert y.names == ("kind",) and y.categorical[0]
    # As many names as rows: still names if each is a column, else labels.
    assert as_xy(data, ["out", "kind", "b"])[0].names == ("a",)
    assert as_xy(data, ["out", "kind", "out"])[1].levels["y"] == ("kind", "out")
    with refused("y: X has no column 'kin'", "did you mean 'kind'?"):
        as_xy(data, "kin")
    with refused("y: X has no column 'oot'", "did you mean 'out'?"):
        as_xy(data, ["a", "oot"])
    with refused("X: no column is left", "'a', 'b', 'kind', 'out'"):
        as_xy(data, ["a", "b", "kind", "out"])


def test_names_of_the_response() -> None:
    X = np.ones((3, 1)) * [[1], [2], [3]]
    assert as_xy(X, pd.Series([1, 2, 3], name="target"))[1].names == ("target",)
    assert as_xy(X, pl.DataFrame({"target": [1, 2, 3]}))[1].names == ("target",)
    assert as_xy(X, pl.DataFrame({"t": [1, 2, 3], "u": [1, 2, 4]}))[1].names == ("y",)
    two = as_xy(X, np.array([[1, 2], [3, 4], [5, 7]]))[1]
    assert two.names == ("y",) and two.offsets.tolist() == [0, 2]
    assert as_xy(X, [[1, 2], [1, 3], [2, 3]], response="category")[1].values.tolist() == [
        [1, 0, 1, 0],
        [1, 0, 0, 1],
        [0, 1, 0, 1],
    ]


def test_rows_are_dropped_together() -> None:
    x, y = as_xy([[1], [np.nan], [3], [4], [5]], ["u", "v", None, "w", "u"], missing="drop")
    assert x.values.tolist() == [[1], [4], [5]] and y.values.tolist() == [[0], [1], [0]]
    assert dict(y.levels) == {"y": ("u", "w")}
    with refused("y: 1 of 3 rows", "missing='drop'"):
        as_xy([[1], [2], [3]], [1, 2, None])


def test_responses_that_do_not_fit() -> None:
    X = np.arange(8.0).reshape(4, 2)
    with refused("y:", "X has 4 rows", "y has 3"):
        as_xy(X, [1, 2, 3])
    with refused("y:", "must vary", "all 4 rows are equal"):
        as_xy(X, [1, 1, 1, 1])
    with refused("y:", "must vary"):
        as_xy(X, ["u"] * 4)
    with refused("y:", "'target'", "pass X as a data frame"):
        as_xy(X, "target")
    with refused("y:", "NoneType"):
        as_xy(X, None)
    # One column that varies is enough.
    assert as_xy(X, [[1, 0], [1, 0], [1, 0], [1, 1]])[1].d == 1


# Groups


@frames
def test_groups(frame: Any) -> None:
    data = frame({"a": [1, 2], "b": [3, 4], "c": ["v", "u"], "d": [5, 6], "e": ["p", "q"]})
    table = as_table(data, groups={"late": ["d", "b"], "mixed": ["c"]})
    assert table.names == ("a", "late", "mixed", "e")
    assert table.offsets.tolist() == [0, 1, 3, 5, 6]
    assert table.values.tolist() == [[1, 5, 3, 0, 1, 0], [2, 6, 4, 1, 0, 1]]
    assert table.categorical.tolist() == [False, False, False, True]
    assert dict(table.levels) == {"e": ("p", "q")}
    assert same(as_table(data, groups={}), as_table(data))


def test_groups_by_position() -> None:
    array = np.arange(8.0).reshape(2, 4)
    for members in ([3, 1], np.array([3, 1]), ["x3", "x1"]):
        table = as_table(array, groups={"g": members})
        assert table.names == ("x0", "g", "x2")
        assert table.values.tolist() == [[0, 3, 1, 2], [4, 7, 5, 6]]
    # A data frame goes by its own names, also where these are integers.
    table = as_table(pd.DataFrame(array, columns=[3, 2, 1, 0]), groups={"g": [3, 1]})
    assert table.values.tolist() == [[0, 2, 1, 3], [4, 6, 5, 7]]


def test_a_group_may_take_the_name_of_its_member() -> None:
    assert as_table(pd.DataFrame({"a": [1, 2], "b": [3, 4]}), groups={"a": ["a", "b"]}).names == ("a",)


def test_groups_have_the_same_indicators_in_both_samples() -> None:
    x, y = as_pair(pd.DataFrame({"a": ["u", "v"]}), pd.DataFrame({"a": ["w", "v"]}), groups={"g": ["a"]})
    assert x.values.tolist() == [[1, 0, 0], [0, 1, 0]] and y.values.tolist() == [[0, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([["a", "b"]], ("mapping", "list", "dict")),
        ({"g": "a"}, ("'g'", "list of columns", "'a'", "brackets")),
        ({"g": 3}, ("'g'", "list of columns", "3")),
        ({"g": []}, ("'g' is empty", "leave it out")),
        ({"g": ["a", "hieght"]}, ("'g'", "'hieght'", "did you mean 'height'?")),
        ({"g": [0]}, ("'g'", "'0'", "does not have")),
        ({"g": ["a"], "h": ["a"]}, ("'a'", "'g'", "'h'", "leave it in one")),
        ({"g": ["a", "a"]}, ("'a'", "'g'", "leave it in one")),
        ({"b": ["a"]}, ("'b'", "two features", "rename")),
        ({1: ["a"], "1": ["b"]}, ("'1'", "two features", "rename")),
    ],
)
def test_refused_groups(groups: Any, words: tuple[str, ...]) -> None:
    with refused("groups: ", *words):
        as_table(pd.DataFrame({"a": [1, 2], "b": [3, 4], "height": [5, 6]}), groups=groups)


def test_positions_beyond_the_array() -> None:
    for position in (4, -1):
        with refused("groups: ", f"'{position}'", "4 columns"):
            as_table(np.ones((2, 4)), groups={"g": [position]})


# Whole data sets


def test_candidates() -> None:
    reference = np.arange(6.0).reshape(3, 2)
    first, others = as_candidates(
        reference, {"a": reference[:2] + 1, "2": pd.DataFrame({"p": [True, False], "q": [0, 1]})}
    )
    assert first.names == ("reference",) and first.offsets.tolist() == [0, 2]
    assert list(others) == ["a", "2"] and others["a"].names == ("a",) and others["2"].names == ("2",)
    assert others["2"].values.tolist() == [[1, 0], [0, 1]]
    assert first.d == others["a"].d == 1
    frame = pd.DataFrame({"p": [1, 2], "q": [3, 4]})
    assert as_candidates(frame, {"a": pl.DataFrame({"q": [3, 4], "p": [1, 2]})})[1]["a"].values.tolist() == [
        [1, 3],
        [2, 4],
    ]
    flat, others = as_candidates(pd.Series([1, 2], name="u"), {"a": pd.Series([3, 4, 5], name="v"), "b": [1, 2]})
    assert flat.offsets.tolist() == [0, 1] and others["a"].n == 3
    # Row names that a CSV file holds are in some of the data sets only.
    rows = frame.assign(**{"Unnamed: 0": [7, 9]})
    for several in ((rows, frame, frame), (frame, rows, frame), (rows, rows, frame)):
        first, others = as_candidates(several[0], {"a": several[1], "b": several[2]})
        assert all(table.values.tolist() == [[1, 3], [2, 4]] for table in (first, *others.values()))


def test_refused_candidates() -> None:
    array = np.arange(6.0).reshape(3, 2)
    for wrong in ([array], array):
        with refused("candidates: ", "mapping", type(wrong).__name__, "dict"):
            as_candidates(array, wrong)  # type: ignore[arg-type]
    with refused("candidates: at least one"):
        as_candidates(array, {})
    with refused("candidates: ", "unique", "'1'"):
        as_candidates(array, {1: array, "1": array})  # type: ignore[dict-item]
    with refused("candidates['a']: ", "shape (3, 2)", "shape (3, 1)"):
        as_candidates(array, {"a": array[:, :1]})
    with refused("candidates['b']: ", "candidates['b'] lacks 'q'", "reference lacks 'r'"):
        as_candidates(pd.DataFrame({"p": [1, 2], "q": [1, 2]}), {"b": pd.DataFrame({"p": [1, 2], "r": [1, 2]})})
    with refused("candidates['a']: ", "'x1'", "categories", "encode", "'drop'"):
        as_candidates(array, {"a": [[1, "u"], [2, "v"]]})
    with pytest.raises(InputError, match=r"reference: 1 of 3 rows.*missing='drop' or 'column'\.$"):
        as_candidates(np.where(array == 0, np.nan, array), {"a": array}, missing="error")


# Properties


@settings(deadline=None)  # on a busy machine an example may take long
@given(
    st.lists(
        st.tuples(st.floats(-1e9, 1e9, width=32), st.sampled_from(["u", "v", "w", "é"]), st.integers(-(2**40), 2**40)),
        min_size=2,
        max_size=20,
    )
)
def test_reading_keeps_every_value(rows: list[tuple[float, str, int]]) -> None:
    names = ("a", "b", "c")
    data = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    tables = [as_table(frame(data)) for frame in FRAMES.values()]
    assert all(same(table, tables[0]) for table in tables)
    back = [(row[0], tables[0].levels["b"][int(row[1])], int(row[2])) for row in tables[0].values.tolist()]
    assert back == rows


LARGE = 2**60


def _large_integers():
    """The same two samples in every container: differences of 1 and 3 at 2^60, where float64 has steps of 256."""
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    x, y = np.array([0, 1, 3, 7]) + LARGE, np.array([2, 5, 1, 0]) + LARGE
    yield "NumPy", x[:, None], y[:, None]
    yield "unsigned", x[:, None].astype(np.uint64), y[:, None].astype(np.uint64)
    yield "mixed signs", x[:, None], y[:, None].astype(np.uint64)
    yield "list", [[int(v)] for v in x], [[int(v)] for v in y]
    yield "pandas", pd.DataFrame({"a": x}), pd.DataFrame({"a": y})
    yield "nullable", pd.DataFrame({"a": pd.array(x, dtype="Int64")}), pd.DataFrame({"a": pd.array(y, dtype="Int64")})
    yield "beside text", pd.DataFrame({"a": x, "b": list("uvuv")}), pd.DataFrame({"a": y, "b": list("uvvv")})
    yield "polars", pl.DataFrame({"a": x}), pl.DataFrame({"a": y})
    yield "series", pl.Series("a", x), pl.Series("a", y)
    yield "Arrow", pa.table({"a": x}), pa.table({"a": y})
    yield "dictionary", {"a": x.tolist()}, {"a": y.tolist()}
    yield "objects", pd.DataFrame({"a": x}, dtype=object), pd.DataFrame({"a": y}, dtype=object)
    yield "fields", np.array([(v,) for v in x], dtype=[("a", "i8")]), np.array([(v,) for v in y], dtype=[("a", "i8")])


@pytest.mark.parametrize("case", list(_large_integers()), ids=lambda case: case[0])
def test_differences_of_large_integers_are_kept(case) -> None:
    _, X, Y = case
    one, two = as_pair(X, Y)
    assert one.values[:, 0].tolist() == [0, 1, 3, 7]
    assert two.values[:, 0].tolist() == [2, 5, 1, 0]


def test_large_integers_with_missing_cells() -> None:
    import pandas as pd

    column = pd.array([LARGE, None, LARGE + 1, LARGE + 4], dtype="Int64")
    assert as_table(pd.DataFrame({"a": column}), missing="drop").values[:, 0].tolist() == [0, 1, 4]


def test_integers_with_differences_beyond_float64_are_told() -> None:
    with pytest.warns(UserWarning, match="X: the integers in 'x0' differ by more than 2\\^53"):
        as_table(np.array([[-LARGE], [LARGE], [LARGE + 1]]))


def test_classes_of_large_integers_keep_their_names() -> None:
    _, y = as_xy(np.arange(4.0)[:, None], np.array([0, 1, 0, 1]) + LARGE, response="category")
    assert y.levels["y"] == (str(LARGE), str(LARGE + 1))
    _, y = as_xy(
        np.arange(4.0)[:, None], np.array(["2024-01-05", "2024-01-09"] * 2, dtype="M8[D]"), response="category"
    )
    assert y.levels["y"] == ("2024-01-05", "2024-01-09")


def test_large_integers_in_a_file_are_refused(tmp_path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"a": np.arange(4) + LARGE, "b": np.arange(4.0)}), path)
    with pytest.raises(InputError, match=r"X: integers beyond 2\^53 in 'a' lose their differences"):
        as_pair(path, path)
