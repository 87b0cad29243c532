"""Columns that an argument names, out of every kind of table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from kernsift import InputError, compare, relate
from kernsift.data.columns.named_columns import take_columns
from kernsift.data.formats import Source, open_table
from kernsift.data.formats.in_memory import MemorySource

DATA = {"size": [1.5, 2.5, 3.5, 4.5], "site": ["b", "a", "b", None], "age": [30, 40, 50, 60]}


class AnnData(SimpleNamespace):
    __module__ = "anndata._core.anndata"


def anndata(data: dict[str, Any]) -> Any:
    obs = pd.DataFrame({name: data[name] for name in ("site", "age")})
    return AnnData(X=np.zeros((4, 2)), obs=obs, var_names=pd.Index(["g0", "g1"]), shape=(4, 2))


def parquet(folder: Path) -> str:
    pa.parquet.write_table(pa.table(DATA), folder / "t.parquet")
    return str(folder / "t.parquet")


def csv(folder: Path) -> str:
    pd.DataFrame(DATA).to_csv(folder / "t.csv", index=False)
    return str(folder / "t.csv")


def dask_frame(folder: Path) -> Any:
    frames = pytest.importorskip("dask.dataframe")
    return frames.from_pandas(pd.DataFrame(DATA), npartitions=2)


TABLES: dict[str, Callable[[Path], Any]] = {
    "pandas": lambda folder: pd.DataFrame(DATA),
    "polars": lambda folder: pl.DataFrame(DATA),
    "pyarrow": lambda folder: pa.table(DATA),
    "dictionary": lambda folder: DATA,
    "anndata": lambda folder: anndata(DATA),
    "parquet": parquet,
    "csv": csv,
    "dask": dask_frame,
}


def opened(kind: str, folder: Path) -> Source:
    return open_table(TABLES[kind](folder), "X")


@pytest.mark.parametrize("kind", TABLES)
def test_a_column_is_taken_out_of_every_kind_of_table(kind: str, tmp_path: Path) -> None:
    rest, site = take_columns(opened(kind, tmp_path), "site", "strata")
    assert site.names == ("site",) and site.levels == {0: ("a", "b")}
    np.testing.assert_array_equal(site.values[:, 0], [1, 0, 1, np.nan])
    if kind != "anndata":
        assert rest.names == ("size", "age")


@pytest.mark.parametrize("memory", [None, "64MB"])
def test_a_table_without_other_columns_is_named(memory: str | None, tmp_path: Path) -> None:
    pl.DataFrame({"site": DATA["site"]}).write_parquet(tmp_path / "t.parquet")
    source = open_table(tmp_path / "t.parquet", "X", memory=memory)
    with pytest.raises(InputError, match=r"^X: no column is left beside strata 'site'"):
        take_columns(source, "site", "strata")
    assert source.argument == "X"


@pytest.mark.parametrize("kind", TABLES)
def test_several_columns_in_the_order_asked_for(kind: str, tmp_path: Path) -> None:
    _, both = take_columns(opened(kind, tmp_path), ["age", "site"], "given")
    assert both.names == ("age", "site") and list(both.levels) == [1]
    np.testing.assert_array_equal(both.values[:, 0], DATA["age"])


@pytest.mark.parametrize("kind", TABLES)
def test_values_may_come_in_place_of_a_name(kind: str, tmp_path: Path) -> None:
    table = opened(kind, tmp_path)
    for values in (["u", "v", "u", "u"], np.array(["u", "v", "u", "u"]), pl.Series(["u", "v", "u", "u"])):
        rest, labels = take_columns(table, values, "unit")
        assert rest.names == table.names
        assert labels.levels == {0: ("u", "v")} and labels.values[:, 0].tolist() == [0, 1, 0, 0]
    with pytest.raises(
        InputError, match=r"^unit: one value for each row of X is needed, but X has 4 rows and unit has 3"
    ):
        take_columns(table, [1, 2, 3], "unit")


@pytest.mark.parametrize("kind", TABLES)
def test_a_name_that_is_not_there_is_one_sentence(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^by: X has no column 'sites' \(did you mean 'site'\?\); pass .*\.$"):
        take_columns(opened(kind, tmp_path), "sites", "by")


@pytest.mark.parametrize("argument", ["by", "strata", "unit", "paired", "given"])
def test_kinds_may_name_a_column_that_is_no_feature(argument: str) -> None:
    """One dictionary of kinds serves calls that use the columns of a table in different ways."""
    rng, place = np.random.default_rng(0), np.arange(40)
    label = {"paired": place // 2, "unit": place // 4}.get(argument, place % 2)
    frame = pd.DataFrame({"x": rng.normal(size=40), "grade": rng.choice(["1", "2"], 40), "label": label.astype(str)})
    y: Any = place // 4 % 2 if argument == "unit" else np.resize([0, 1, 1, 0], 40)
    options: Any = {"kinds": {"label": "category", "grade": "category"}, "random_state": 0}
    if argument == "by":
        y = "label"
    else:
        options[argument] = "label"
    for result in (relate(frame, y, **options), compare(frame, by=y, **options)):
        assert result.feature_names == ("x", "grade")


@pytest.mark.parametrize("argument", ["by", "strata"])
def test_values_in_place_of_a_name_leave_the_kinds_of_features(argument: str) -> None:
    """A series has the name of the column that it was taken from, and a list may hold words that are names."""
    frame = pd.DataFrame({"x": np.arange(16.0), "code": ["1", "2", "2", "1"] * 4})
    other = {"strata": np.arange(16) // 8} if argument == "by" else {"by": np.arange(16) % 2}
    for values in (frame["code"], ["x", "code", "code", "x"] * 4):
        result = compare(frame, **other, **{argument: values}, kinds={"code": "category", "x": "category"})
        assert result.kinds == (0, 2, 0)


def test_arrays_have_no_names() -> None:
    with pytest.raises(InputError, match=r"^strata: 'site' cannot name columns of Y, which has none; pass Y as"):
        take_columns(open_table(np.zeros((4, 2)), "Y"), "site", "strata")
    rest, values = take_columns(open_table(np.zeros((4, 2)), "X"), [1, 1, 2, 2], "strata")
    assert rest.names == ("x0", "x1") and values.values[:, 0].tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("names", [("x0", "x1"), ("a", "b")])
@pytest.mark.parametrize("named", [True, False])
def test_renamed_columns_know_whether_names_are_their_own(names: tuple[str, str], named: bool) -> None:
    source = open_table(np.ones((3, 2)), "X").renamed(names, named)
    assert isinstance(source, MemorySource)
    assert (source.names, source.named) == (source.columns.names, source.columns.named) == (names, named)
