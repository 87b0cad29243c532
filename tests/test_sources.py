"""Tables read in pieces: the same cells from every format, however they are cut, and one sentence for every fault."""

from __future__ import annotations

import datetime as dt
import errno
import gc
import gzip
import os
import pickle
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import dask.array
import dask.dataframe
import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernsift.data.columns.columns import Columns
from kernsift.data.formats import Source, arrow, is_outside_memory, open_source, open_table, text, text_dialects
from kernsift.data.formats import array_files as rectangles
from kernsift.data.formats.in_memory import MemorySource, loaded
from kernsift.data.formats.parquet import ParquetFragment
from kernsift.data.formats.source import Rows
from kernsift.data.frames import read_columns
from kernsift.data.inputs import as_pair, as_table
from kernsift.data.scan import scan
from kernsift.exceptions import InputError
from kernsift.execution.parallel import use_workers

LETTERS = st.sampled_from(["", "a", "b", "Ä", "two words", "NaN?", "z"])
COLUMNS: dict[str, Any] = {
    "f": (st.floats(allow_nan=True, allow_infinity=True), pa.float64()),
    "f4": (st.floats(width=32), pa.float32()),
    "i": (st.integers(-(2**62), 2**62), pa.int64()),
    "u": (st.integers(0, 255), pa.uint8()),
    "b": (st.booleans(), pa.bool_()),
    "s": (LETTERS, pa.string()),
    "c": (LETTERS, pa.dictionary(pa.int32(), pa.string())),
}

# Files are written, so examples are few and take their time.
slowly = settings(
    max_examples=12,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def refused(*words: str) -> Any:
    """InputError whose message is one sentence and has these words in this order."""
    return pytest.raises(InputError, match="(?s)^X: .*" + ".*".join(re.escape(word) for word in words) + r".*[.?]$")


@st.composite
def tables(draw: Any) -> pa.Table:
    """A table of some columns of every type, with missing cells."""
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4, unique=True))
    n = draw(st.integers(2, 40))
    cells = {}
    for name in names:
        values, kind = COLUMNS[name]
        cells[name] = pa.array(draw(st.lists(st.none() | values, min_size=n, max_size=n)), type=kind)
    return pa.table(cells)


def assert_same(found: Columns, expected: Columns) -> None:
    assert found.names == expected.names
    assert found.levels == expected.levels
    assert found.values.dtype == expected.values.dtype
    assert found.kinds == expected.kinds or np.isnan(expected.values).all(axis=0).any()
    np.testing.assert_array_equal(found.values, expected.values)


def expected_of(table: pa.Table, columns: Sequence[int], rows: Any) -> Columns:
    """What reading these rows in memory gives; a text column without any text is a category all the same."""
    return read_columns(table.select(columns).take(pa.array(rows, type=pa.int64())), "X")


def write_parts(table: pa.Table, folder: Path) -> str:
    """Three files of different length, the second with its columns backwards."""
    folder.mkdir()
    cuts = [0, len(table) // 3, len(table) // 2, len(table)]
    for i in range(3):
        part = table.slice(cuts[i], cuts[i + 1] - cuts[i])
        part = part.select(part.column_names[::-1]) if i == 1 else part
        pa.parquet.write_table(part, folder / f"part-{i}.parquet", row_group_size=3)
    (folder / "_SUCCESS").write_text("")
    return str(folder)


def write_parquet(table: pa.Table, path: Path, **options: Any) -> str:
    pa.parquet.write_table(table, path, **options)
    return str(path)


def write_feather(table: pa.Table, path: Path, **options: Any) -> str:
    pa.feather.write_feather(table, str(path), **options)
    return str(path)


FORMATS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "parquet": lambda table, folder: write_parquet(table, folder / "t.parquet", row_group_size=7),
    "path object": lambda table, folder: Path(write_parquet(table, folder / "t.parquet", row_group_size=11)),
    "plain parquet": lambda table, folder: write_parquet(table, folder / "t.pq", use_dictionary=False),
    "parts": lambda table, folder: write_parts(table, folder / "parts"),
    "feather": lambda table, folder: write_feather(table, folder / "t.feather", chunksize=7),
    "uncompressed": lambda table, folder: write_feather(table, folder / "t", chunksize=7, compression="uncompressed"),
    "data set": lambda table, folder: pa.dataset.dataset(write_parts(table, folder / "parts"), format="parquet"),
    "data set in memory": lambda table, folder: pa.dataset.dataset(table),
    "feather data set": lambda table, folder: pa.dataset.dataset(
        write_feather(table, folder / "t.feather"), format="feather"
    ),
    "memory": lambda table, folder: MemorySource(read_columns(table, "X"), "X"),
}


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a few rows, where files of this size would be read at once."""
    monkeypatch.setattr(arrow, "_TOGETHER", 1)
    monkeypatch.setattr(rectangles, "CHUNK", 500)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", FORMATS)
@slowly
@given(table=tables(), data=st.data())
def test_every_format_gives_the_same_cells_however_it_is_cut(name: str, table: pa.Table, data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = open_source(FORMATS[name](table, Path(folder)), "X")
        assert (source.names, source.n) == (tuple(table.column_names), len(table))
        columns = data.draw(st.lists(st.integers(0, len(source.names) - 1), min_size=1, max_size=3, unique=True))
        stop = data.draw(st.integers(1, source.n))
        start = data.draw(st.integers(0, stop - 1))
        assert_cells(source.read(columns, slice(start, stop)), table, columns, np.arange(start, stop))
        rows = np.sort(data.draw(st.lists(st.integers(0, source.n - 1), min_size=1, max_size=9)))
        assert_cells(source.read(columns, rows), table, columns, rows)


def assert_cells(found: Columns, table: pa.Table, columns: list[int], rows: np.ndarray) -> None:
    """Texts are compared as texts, because a source in memory keeps the levels of all its rows."""
    expected = expected_of(table, columns, rows)
    assert found.names == expected.names
    assert found.values.shape == expected.values.shape
    single = all(table.schema.field(i).type == pa.float32() for i in columns)
    # A whole table in memory has one type; a part of it on disk has that of its own columns.
    assert found.values.dtype == np.float64 or single
    for i in range(len(columns)):
        if i in expected.levels:
            assert texts(found, i) == texts(expected, i)
        else:
            np.testing.assert_array_equal(found.values[:, i], expected.values[:, i].astype(found.values.dtype))


def texts(columns: Columns, i: int) -> list[str | None]:
    return [None if np.isnan(code) else columns.levels[i][int(code)] for code in columns.values[:, i]]


@slowly
@given(table=tables(), data=st.data())
def test_single_precision_is_kept_where_all_columns_have_it(table: pa.Table, data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = open_source(FORMATS["parquet"](table, Path(folder)), "X")
        columns = data.draw(st.lists(st.integers(0, len(source.names) - 1), min_size=1, unique=True))
        single = all(table.schema.field(i).type == pa.float32() for i in columns)
        assert source.read(columns).values.dtype == (np.float32 if single else np.float64)


CELLS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-1000, 1000).map(str),
    st.sampled_from(["", "NA", "?", "True", "False", "a", "b c", '"x,y"', "1e3"]),
)


@slowly
@given(data=st.data())
def test_text_in_chunks_is_read_as_the_whole_is(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    width = data.draw(st.integers(1, 3))
    columns = [
        data.draw(st.lists(st.sampled_from([CELLS, st.integers(-9, 99).map(str)]), min_size=1, max_size=3))
        for _ in range(width)
    ]
    n = data.draw(st.integers(2, 12))
    rows = [[data.draw(column[min(i, len(column) - 1)]) for column in columns] for i in range(n)]
    lines = "\n".join(["id," + ",".join(f"c{i}" for i in range(width)), *(f"r,{','.join(row)}" for row in rows)])
    monkeypatch.setattr(text, "_CHUNK", data.draw(st.sampled_from([20, 60, 4 << 20])))
    monkeypatch.setattr(text, "_PER_COLUMN", 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_text(lines, encoding="utf-8")
        whole = loaded(open_table(path, "X")).columns
        source = open_source(path, "X")
        found = source.read(range(width + 1))
    assert found.names == whole.names
    for i in range(width + 1):
        if i in whole.levels or i in found.levels:
            assert texts(found, i) == texts(whole, i)
        else:
            np.testing.assert_array_equal(found.values[:, i], whole.values[:, i])


# Arrays

ARRAY = np.random.default_rng(1).normal(size=(23, 5))


def saved(folder: Path, array: np.ndarray) -> str:
    np.save(folder / "a.npy", array)
    return str(folder / "a.npy")


def in_zarr(folder: Path, array: np.ndarray, **options: Any) -> str:
    stored = zarr.create_array(str(folder / "a.zarr"), shape=array.shape, dtype=array.dtype, **options)
    stored[...] = array
    return str(folder / "a.zarr")


def in_hdf5(folder: Path, array: Any, **options: Any) -> str:
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("deep/x", data=array, **options)
    return str(folder / "a.h5")


ARRAYS: dict[str, Callable[[Path, np.ndarray], Any]] = {
    "C": saved,
    "Fortran": lambda folder, array: saved(folder, np.asfortranarray(array)),
    "mapped": lambda folder, array: np.load(saved(folder, array), mmap_mode="r"),
    "mapped Fortran": lambda folder, array: np.load(saved(folder, np.asfortranarray(array)), mmap_mode="r"),
    "part of a map": lambda folder, array: np.load(saved(folder, np.vstack([array, array])), mmap_mode="r")[
        len(array) :
    ],
    "zarr": lambda folder, array: in_zarr(folder, array, chunks=(4, 2)),
    "zarr 2": lambda folder, array: in_zarr(folder, array, chunks=(4, 2), zarr_format=2),
    "zarr shards": lambda folder, array: in_zarr(folder, array, chunks=(2, 2), shards=(4, 6)),
    "zarr object": lambda folder, array: zarr.open_array(in_zarr(folder, array, chunks=(5, 5)), mode="r"),
    "hdf5": in_hdf5,
    "hdf5 chunks": lambda folder, array: in_hdf5(folder, array, chunks=(4, 2), compression="gzip"),
    "hdf5 named": lambda folder, array: in_hdf5(folder, array) + "::/deep/x",
    "dask": lambda folder, array: dask.array.from_array(array, chunks=(4, 2)),
}


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int16, bool])
@pytest.mark.parametrize("name", ARRAYS)
def test_every_kind_of_array_gives_the_same_cells(name: str, kind: Any, tmp_path: Path) -> None:
    array = (10 * ARRAY).astype(kind)
    with dask.config.set(scheduler="synchronous"):
        source = open_source(ARRAYS[name](tmp_path, array), "X")
        assert not source.named and not source.flat
        assert len(source.edges) > 2 or "Fortran" in name
        assert_same(source.read(range(5), slice(0, 23)), read_columns(array, "X"))
        for columns in ([3], [4, 0, 2], [1, 2]):
            for rows in ([0], [0, 22], [3, 4, 4, 5, 19], list(range(23))):
                found = source.read(columns, np.array(rows))
                np.testing.assert_array_equal(found.values, array[rows][:, columns].astype(found.values.dtype))
                assert found.names == tuple(f"x{i}" for i in columns)
            np.testing.assert_array_equal(source.read(columns, slice(2, 13)).values, array[2:13, columns])


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", ["C", "mapped", "zarr", "hdf5", "dask"])
def test_one_dimension_is_one_column(name: str, tmp_path: Path) -> None:
    options = {"chunks": (4,)}
    column = ARRAY[:, 0].copy()
    makers = {
        "zarr": lambda: in_zarr(tmp_path, column, **options),
        "dask": lambda: dask.array.from_array(column, chunks=4),
    }
    source = open_source(makers.get(name, lambda: ARRAYS[name](tmp_path, column))(), "X")
    assert source.flat
    assert_same(source.read([0], slice(0, 23)), read_columns(column, "X"))
    assert source.read([0], np.array([2, 9])).values.tolist() == column[[2, 9], None].tolist()


WORDS = np.array([["b", "a"], ["c", "a"], ["b", ""], ["ä", "z"]])


@pytest.mark.filterwarnings("ignore:The (codec `vlen-utf8`|dtype `StringDType)")  # of the first releases of zarr 3
@pytest.mark.parametrize("name", ["npy", "bytes", "zarr", "hdf5", "hdf5 fixed"])
def test_arrays_of_texts_are_categories(name: str, tmp_path: Path) -> None:
    words = WORDS.copy()
    if name in ("bytes", "hdf5 fixed"):
        words[3, 0] = "y"
    if name == "zarr":
        path = str(tmp_path / "a.zarr")
        stored = zarr.create_array(path, shape=words.shape, chunks=(3, 1), dtype=str)
        stored[...] = words
    else:
        makers: dict[str, Callable[[], str]] = {
            "npy": lambda: saved(tmp_path, words),
            "bytes": lambda: saved(tmp_path, words.astype("S")),
            "hdf5": lambda: in_hdf5(tmp_path, words.astype(object), dtype=h5py.string_dtype()),
            "hdf5 fixed": lambda: in_hdf5(tmp_path, words.astype("S")),
        }
        path = makers[name]()
    source = open_source(path, "X")
    assert source.kinds == ("text", "text")
    assert_same(source.read([0, 1], slice(0, 4)), read_columns(words, "X"))


@pytest.mark.parametrize("name", ["npy", "mapped", "hdf5"])
def test_records_have_named_columns(name: str, tmp_path: Path) -> None:
    records = np.zeros(6, dtype=[("height", "f8"), ("count", "i4"), ("city", "S4")])
    records["height"], records["count"] = np.arange(6) / 4, np.arange(6) % 3
    records["city"] = [b"Rome", b"Oslo"] * 3
    path = in_hdf5(tmp_path, records) if name == "hdf5" else saved(tmp_path, records)
    source = open_source(np.load(path, mmap_mode="r") if name == "mapped" else path, "X")
    assert source.named and source.names == ("height", "count", "city")
    found = source.read([2, 0], slice(1, 5))
    assert found.levels == {0: ("Oslo", "Rome")}
    assert found.values.tolist() == [[0, 0.25], [1, 0.5], [0, 0.75], [1, 1.0]]
    assert source.read([1], np.array([0, 5])).values.tolist() == [[0], [2]]


def test_changes_in_a_private_map_are_seen_and_kept(tmp_path: Path) -> None:
    """Pages of such a map are nowhere else, so they must not be given back."""
    mapped = np.load(saved(tmp_path, ARRAY), mmap_mode="c")
    mapped[3, 1] = 77.0
    source = open_source(mapped, "X")
    for _ in range(2):
        assert source.read([1], slice(3, 4)).values.tolist() == [[77.0]]


# Dask


@pytest.mark.parametrize("npartitions", [1, 3])
def test_a_dask_frame_is_its_partitions(npartitions: int) -> None:
    frame = pd.DataFrame(
        {
            "f": np.arange(9) / 4,
            "n": pd.array([1, None, 3] * 3, dtype="Int64"),
            "s": ["u", "v", None] * 3,
            "c": pd.Categorical(["x", "y", "y"] * 3),
            "b": [True, False, True] * 3,
        }
    )
    with dask.config.set(scheduler="synchronous"):
        source = open_source(dask.dataframe.from_pandas(frame, npartitions=npartitions), "X")
        assert source.kinds == ("float64", "integer", "text", "category", "truth")
        assert_same(source.read(range(5), slice(0, 9)), read_columns(frame, "X"))
        assert_same(source.read([3, 0], np.array([1, 8])), read_columns(frame[["c", "f"]].iloc[[1, 8]], "X"))
        series = open_source(dask.dataframe.from_pandas(frame, npartitions=npartitions)["f"], "X")
        assert series is not None
        assert series.flat and series.names == ("f",)


def test_a_dask_frame_that_changes_is_refused() -> None:
    lengths = iter([4, 5])

    def part(_: Any) -> pd.DataFrame:
        return pd.DataFrame({"a": np.zeros(next(lengths))})

    with dask.config.set(scheduler="synchronous"):
        frame = dask.dataframe.from_map(part, [0], meta=pd.DataFrame({"a": [0.0]}))
        source = open_source(frame, "X")
        with refused("partition 0", "5 rows where it had 4", ".persist()"):
            source.read([0], slice(0, 2))


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([1, 2, 3, 4.5, None, 6], "float64"),
        (["a", "b", "a", None, None, None, "c", "a", None], "text"),
        ([1, "b", "a", "c", "d", "e"], "mixed"),
        ([1, 2, 3, "a", "b", "c"], None),
        (["a", "b", "c", None, None, None, 1, 2, 3], None),
    ],
)
def test_the_kind_of_dask_objects_is_that_of_all_chunks(cells: list[Any], kind: str | None) -> None:
    objects = np.empty((len(cells), 1), dtype=object)
    objects[:, 0] = cells
    with dask.config.set(scheduler="synchronous"):
        source = open_source(dask.array.from_array(objects, chunks=(3, 1)), "X")
        if kind is None:
            with pytest.raises(InputError, match=r"^X: column 'x0' must hold only numbers or only strings, .* convert"):
                scan(source, 10**7)
            return
        found = scan(source, 10**7)
    assert found.kinds == [kind]
    assert found.gaps.tolist() == [cells.count(None)]
    assert found.levels.get(0, set()) == (set() if kind == "float64" else {str(cell) for cell in cells if cell})


def test_an_error_inside_dask_names_the_partition() -> None:
    def broken(block: np.ndarray) -> np.ndarray:
        raise OSError("disk on fire")

    array = dask.array.ones((6, 2), chunks=(3, 2)).map_blocks(broken, meta=np.zeros((0, 0)), dtype=float)
    with dask.config.set(scheduler="synchronous"):
        source = open_source(array, "X")
        with refused("partition 1 of the Dask array", "disk on fire"):
            source.read([0], slice(4, 6))


# Threads


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", ["parquet", "feather", "npy", "zarr", "hdf5", "text"])
def test_threads_may_read_at_the_same_time(name: str, tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(400, 6))
    table = pa.table({f"c{i}": array[:, i] for i in range(6)})
    makers: dict[str, Callable[[], str]] = {
        "parquet": lambda: write_parquet(table, tmp_path / "t.parquet", row_group_size=20),
        "feather": lambda: write_feather(table, tmp_path / "t.feather", chunksize=20),
        "npy": lambda: saved(tmp_path, array),
        "zarr": lambda: in_zarr(tmp_path, array, chunks=(20, 2)),
        "hdf5": lambda: in_hdf5(tmp_path, array, chunks=(20, 2)),
        "text": lambda: written(tmp_path, "t.csv", table.to_pandas().to_csv(index=False).encode()),
    }
    source = open_source(makers[name](), "X")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: source.read([i % 6], slice(0, 400)).values[:, 0], range(24)))
    for i, column in enumerate(found):
        np.testing.assert_allclose(column, array[:, i % 6], rtol=1e-12)  # pandas reads texts to a few units in the end


# Pieces


class Counting(Source):
    """Cells that are their own row and column, 10 bytes a cell and 7 a row."""

    overhead = 7.0

    def __init__(self, lengths: list[int], p: int) -> None:
        edges = np.concatenate([[0], np.cumsum(lengths)])
        super().__init__("X", [f"c{i}" for i in range(p)], ["float64"] * p, edges, np.full(p, 10.0))
        self.fetched: list[tuple[int, int]] = []

    def fetch(self, chunk: int, columns: Sequence[int], rows: Rows) -> Columns:
        start, stop = self.edges[chunk : chunk + 2]
        self.fetched.append((chunk, len(columns)))
        cells = np.arange(start, stop)[rows][:, None] * 100.0 + np.asarray(columns)
        return Columns(tuple(self.names[i] for i in columns), cells, {}, np.zeros(len(columns), bool), True, False)


@settings(derandomize=True, database=None, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=6).filter(any),
    p=st.integers(1, 6),
    scratch=st.integers(150, 1000),
    data=st.data(),
)
def test_pieces_cover_everything_once_and_stay_within_bounds(
    lengths: list[int], p: int, scratch: int, data: Any
) -> None:
    source = Counting(lengths, p)
    columns = data.draw(st.lists(st.integers(0, p - 1), min_size=1, unique=True))
    rows = np.sort(np.asarray(data.draw(st.lists(st.integers(0, source.n - 1), max_size=8)), dtype=np.int64))
    stop = data.draw(st.integers(0, source.n))
    start = data.draw(st.integers(0, stop))
    for asked, members in ((rows, rows), (slice(start, stop), np.arange(start, stop))):
        source.fetched.clear()
        seen = np.zeros((len(members), len(columns)))
        cells = np.full((len(members), len(columns)), -1.0)
        for cut, found in source.pieces(columns, asked, scratch):
            seen[cut.rows, cut.columns] += 1
            cells[cut.rows, cut.columns] = found.values
        assert np.all(seen == 1)
        np.testing.assert_array_equal(cells, members[:, None] * 100.0 + np.asarray(columns))
        assert all(lengths[chunk] * (7 + 10 * width) <= scratch for chunk, width in source.fetched)
        touched = set(np.searchsorted(source.edges, members, side="right") - 1)
        assert {chunk for chunk, _ in source.fetched} == touched


@settings(derandomize=True, database=None, deadline=None)
@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=6).filter(any), data=st.data())
def test_rows_that_are_kept_are_read(lengths: list[int], data: Any) -> None:
    source: Source = Counting(lengths, 2)
    there = np.arange(source.n)
    for _ in range(2):  # rows of the table, and rows of these rows
        keep = np.array(data.draw(st.lists(st.booleans(), min_size=source.n, max_size=source.n)), dtype=bool)
        source, there = source.where(keep), there[keep]
        assert source.n == len(there)
        stop = data.draw(st.integers(0, source.n))
        some = np.sort(np.asarray(data.draw(st.lists(st.integers(0, max(stop - 1, 0)), max_size=stop)), dtype=np.int64))
        for rows in (slice(data.draw(st.integers(0, stop)), stop), some):
            np.testing.assert_array_equal(source.read([1], rows).values[:, 0], there[rows] * 100.0 + 1)


def test_a_column_that_does_not_fit_is_an_error_about_memory() -> None:
    with pytest.raises(InputError, match=r"^memory: .* one column of 1,000 rows of X .* allow more, or .*\.$"):
        list(Counting([1000], 2).pieces([0], slice(0, 3), 10_000))


def test_picked_columns_are_columns_of_their_own(tmp_path: Path) -> None:
    table = pa.table({"a": [1.0, 2.0], "b": ["u", "v"], "c": np.array([1, 2], dtype=np.float32)})
    source = open_source(write_parquet(table, tmp_path / "t.parquet"), "X")
    picked = source.pick([2, 1], ["C", "B"])
    assert (picked.names, picked.kinds) == (("C", "B"), ("float32", "text"))
    assert picked.read([1, 0], slice(0, 2)).names == ("B", "C")
    assert picked.read([1, 0], slice(0, 2)).values.tolist() == [[0, 1], [1, 2]]
    assert source.pick([0, 1, 2]) is source


def test_only_the_groups_and_columns_asked_for_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_TOGETHER", 1)
    table = pa.table({name: np.arange(100.0) for name in "abc"})
    source = open_source(write_parquet(table, tmp_path / "t.parquet", row_group_size=10), "X")
    asked: list[Any] = []
    load = ParquetFragment.load

    def spy(self: ParquetFragment, first: int, last: int, names: Sequence[str], reader: Any) -> Any:
        asked.append((first, last, list(names)))
        return load(self, first, last, names, reader)

    monkeypatch.setattr(ParquetFragment, "load", spy)
    source.read([1], np.array([3, 57, 58]))
    assert asked == [(0, 1, ["b"]), (5, 6, ["b"])]


def test_small_groups_are_read_together(tmp_path: Path) -> None:
    table = pa.table({"a": np.arange(100.0)})
    source = open_source(write_parquet(table, tmp_path / "t.parquet", row_group_size=1), "X")
    assert len(source.edges) == 2


# What is pointed at


def test_data_in_memory_is_no_source() -> None:
    for data in (ARRAY, ARRAY.tolist(), pd.DataFrame(ARRAY), pa.table({"a": [1]}), None, 3):
        assert not is_outside_memory(data)
    assert is_outside_memory("x.csv") and is_outside_memory(Path("x.csv"))


def test_what_was_computed_from_a_map_is_in_memory(tmp_path: Path) -> None:
    mapped = np.load(saved(tmp_path, ARRAY), mmap_mode="r")
    assert is_outside_memory(mapped) and not is_outside_memory(mapped + 1)


def test_the_index_of_a_frame_is_no_feature(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": [7, 8, 9], "a": [1.0, 2.0, 3.0]}).set_index("id")
    frame.to_parquet(tmp_path / "t.parquet")
    frame[frame.a > 1].to_parquet(tmp_path / "u.parquet")
    for path in (tmp_path / "t.parquet", tmp_path):
        source = open_source(path, "X")
        assert source.names == ("a",)


def test_keys_in_the_names_of_folders_are_columns(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": np.arange(6.0), "year": [2020, 2020, 2021, 2021, 2021, 2021]})
    frame.to_parquet(tmp_path / "t", partition_cols=["year"])
    source = open_source(tmp_path / "t", "X")
    assert source.names == ("a", "year")
    assert source.read([1, 0], slice(1, 4)).values.tolist() == [[2020, 1], [2021, 2], [2021, 3]]


def test_what_a_parquet_file_says_of_its_columns(tmp_path: Path) -> None:
    n = 3000
    table = pa.table(
        {
            "f": np.arange(n) / 2 - 7,
            "i": pa.array([None, *range(n - 1)]),
            "b": np.arange(n) > 5,
            "s": ["a"] * n,
            "n": np.where(np.arange(n) == 9, np.nan, 1.0),
            "u": np.full(n, 200, dtype=np.uint8),
            "d": pa.array(range(n), type=pa.decimal128(9, 2)),
        }
    )
    folder = tmp_path / "parts"
    folder.mkdir()
    write_parquet(table.slice(0, 1200), folder / "a.parquet")
    write_parquet(table.slice(1200), folder / "b.parquet")
    source = open_source(folder, "X")
    bounds = source.bounds()
    assert bounds is not None
    assert bounds.known.tolist() == [True, True, True, False, True, True, False]
    known = bounds.known
    assert bounds.low[known].tolist() == [-7, 0, 0, 1, 200]
    assert bounds.high[known].tolist() == [(n - 1) / 2 - 7, n - 2, 1, 1, 200]
    assert bounds.gaps[known].tolist() == [0, 1, 0, 0, 0]
    picked = source.pick([4, 0]).bounds()
    assert picked is not None and picked.low.tolist() == [1, -7]


@pytest.mark.parametrize("name", ["parquet", "parts", "feather"])
def test_sources_of_files_travel_to_other_processes(name: str, tmp_path: Path) -> None:
    table = pa.table({"a": np.arange(20.0), "s": ["u", "v"] * 10})
    source = open_source(FORMATS[name](table, tmp_path), "X")
    copy = pickle.loads(pickle.dumps(source))
    assert_same(copy.read([0, 1], slice(0, 20)), read_columns(table, "X"))


@pytest.mark.parametrize("package", ["zarr", "h5py"])
def test_a_missing_package_is_named(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = {"zarr": lambda: in_zarr(tmp_path, ARRAY, chunks=(4, 2)), "h5py": lambda: in_hdf5(tmp_path, ARRAY)}[
        package
    ]()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"needs {package}: pip install '\.\[all\]'"):
        open_source(path, "X")


# What is wrong with files


def test_a_column_missing_in_one_part_is_named_with_the_part(tmp_path: Path) -> None:
    write_parquet(pa.table({"a": [1.0], "b": [1.0]}), tmp_path / "1.parquet")
    write_parquet(pa.table({"a": [1.0]}), tmp_path / "2.parquet")
    with refused("2.parquet lacks the column 'b', which", "1.parquet has"):
        open_source(tmp_path, "X")
    with refused("2.parquet lacks the column 'b'"):
        open_source(pa.dataset.dataset(tmp_path, format="parquet"), "X")
    write_parquet(pa.table({"a": [1.0], "b": [1.0], "c": [2.0]}), tmp_path / "2.parquet")
    with refused("1.parquet lacks the column 'c', which", "2.parquet has"):
        open_source(tmp_path, "X")


@pytest.mark.parametrize(
    ("second", "kind"),
    [
        (pa.array([3]), "float64"),
        (pa.array([3.0], pa.float32()), "float64"),
        (pa.array([True]), "float64"),
        (pa.nulls(1), "float64"),
        (pa.array(["x"]), None),
        (pa.array([0], pa.timestamp("s")), None),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
@pytest.mark.parametrize("backwards", [False, True])
def test_numbers_of_different_types_go_together_and_texts_do_not(
    second: pa.Array, kind: str | None, backwards: bool, tmp_path: Path
) -> None:
    names = ["2", "1"] if backwards else ["1", "2"]
    write_parquet(pa.table({"a": [1.5]}), tmp_path / f"{names[0]}.parquet")
    write_parquet(pa.table({"a": second}), tmp_path / f"{names[1]}.parquet")
    if kind is None:
        with refused("column 'a' holds", "2.parquet", "1.parquet", "convert one of them"):
            open_source(tmp_path, "X")
        return
    source = open_source(tmp_path, "X")
    assert source.kinds == (kind,)
    cells = [1.5, float(second[0].as_py()) if second[0].as_py() is not None else np.nan]
    np.testing.assert_array_equal(source.read([0], slice(0, 2)).values[:, 0], cells[::-1] if backwards else cells)


def test_texts_with_and_without_dictionary_go_together(tmp_path: Path) -> None:
    write_parquet(pa.table({"a": ["v", None]}), tmp_path / "1.parquet")
    write_parquet(pa.table({"a": pa.array(["u", "v"]).dictionary_encode()}), tmp_path / "2.parquet")
    source = open_source(tmp_path, "X")
    found = source.read([0], slice(0, 4))
    assert found.levels == {0: ("u", "v")}
    np.testing.assert_array_equal(found.values[:, 0], [1, np.nan, 0, 1])


BROKEN: dict[str, tuple[Callable[[Path], str], str]] = {
    "parquet": (lambda folder: write_parquet(pa.table({"a": ARRAY[:, 0]}), folder / "t.parquet"), "Parquet"),
    "feather": (lambda folder: write_feather(pa.table({"a": ARRAY[:, 0]}), folder / "t.feather"), "Feather"),
    "npy": (lambda folder: saved(folder, ARRAY), "NumPy"),
    "hdf5": (lambda folder: in_hdf5(folder, ARRAY), "HDF5"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_cut_short_is_named(name: str, tmp_path: Path) -> None:
    path, what = BROKEN[name][0](tmp_path), BROKEN[name][1]
    os.truncate(path, os.path.getsize(path) - 100)
    with refused(os.path.basename(path), what):
        source = open_source(path, "X")
        source.read([0], slice(0, 23))


@pytest.mark.parametrize("fault", ["removed", "cut short", "changed"])
@pytest.mark.parametrize("name", [*BROKEN, "mapped"])
def test_a_file_that_changes_after_it_was_opened_is_named(name: str, fault: str, tmp_path: Path) -> None:
    path = BROKEN["npy" if name == "mapped" else name][0](tmp_path)
    source = open_source(np.load(path, mmap_mode="r") if name == "mapped" else path, "X")
    source.read([0], slice(0, 5))
    if fault == "removed":
        os.remove(path)
    elif fault == "cut short":
        os.truncate(path, os.path.getsize(path) // 2)
    else:
        os.utime(path, ns=(1, 1))
    with refused(os.path.basename(path), "removed" if fault == "removed" else "changed", "while it was being read"):
        source.read([0], slice(0, 23))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_chunk_that_goes_missing_is_no_chunk_of_zeros(zarr_format: int, tmp_path: Path) -> None:
    path = Path(in_zarr(tmp_path, ARRAY, chunks=(4, 5), zarr_format=zarr_format))
    source = open_source(path, "X")
    source.read([0], slice(0, 23))
    os.remove(path / ("2.0" if zarr_format == 2 else "c/2/0"))
    with refused("a.zarr", "changed while it was being read"):
        source.read([0], slice(8, 12))


def test_a_broken_chunk_is_named(tmp_path: Path) -> None:
    path = Path(in_zarr(tmp_path, ARRAY, chunks=(4, 5)))
    source = open_source(path, "X")
    os.truncate(path / "c/2/0", 10)
    with refused("a.zarr could not be read as a Zarr array"):
        source.read([0], slice(0, 23))


def pickled(folder: Path) -> str:
    np.save(folder / "p.npy", np.array([{}], dtype=object), allow_pickle=True)
    return str(folder / "p.npy")


def written(folder: Path, name: str, content: bytes) -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


def two_datasets(folder: Path) -> str:
    with h5py.File(folder / "two.h5", "w") as file:
        file["a"], file["b"] = ARRAY, ARRAY
    return str(folder / "two.h5")


def two_arrays(folder: Path) -> str:
    group = zarr.open_group(str(folder / "g.zarr"), mode="w")
    for name in "ab":
        group.create_array(name, shape=(3, 2), dtype="f8")
    return str(folder / "g.zarr")


WRONG: dict[str, tuple[Callable[[Path], Any], list[str]]] = {
    "absent": (lambda folder: folder / "t.csv", ["there is no file", "t.csv"]),
    "misspelt": (
        lambda folder: written(folder, "table.csv", b"a\n1\n").replace("table", "tabel"),
        ["there is no file", "did you mean", "table.csv"],
    ),
    "empty": (lambda folder: written(folder, "t.csv", b""), ["t.csv is empty"]),
    "header alone": (lambda folder: written(folder, "t.csv", b"a,b\n"), ["has column names but no rows"]),
    "ragged": (lambda folder: written(folder, "t.csv", b"a,b\n1,2\n1,2,3\n"), ["line 3 has 3"]),
    "open quotation": (
        lambda folder: written(folder, "t.csv", b'a,b\n1,"2\n3,4\n'),
        ["a quotation mark in about line 2 is never closed"],
    ),
    "late quotation": (
        lambda folder: written(folder, "t.csv", b'a,b\n1,"2\n3",4\n'),
        ["a quotation mark in line 2 is open until line 3"],
    ),
    "comment": (lambda folder: written(folder, "t.csv", b"# mine\na,b\n1,2\n"), ["remove the comment lines"]),
    "long cell": (lambda folder: written(folder, "t.csv", b"a,b\n1," + b"x" * 200_000 + b"\n"), ["line 2 is longer"]),
    "zero byte": (lambda folder: written(folder, "t.csv", b"a,b\n" + b"1,2\n" * 40_000 + b"\0,1\n"), ["zero byte"]),
    "binary": (lambda folder: written(folder, "t.bin", b"abc\0\1\2"), ["no text"]),
    "latin-1": (lambda folder: written(folder, "t.csv", b"a,b\n1,\xe9\n"), ["no UTF-8 text", "0xe9"]),
    "zip": (lambda folder: written(folder, "t.xlsx", b"PK\3\4...."), ["archive"]),
    "pickle": (lambda folder: written(folder, "t.pkl", pickle.dumps([1])), ["pickle", "never opened"]),
    "pickled array": (pickled, ["pickled Python objects"]),
    "cube": (lambda folder: saved(folder, np.zeros((2, 2, 2))), ["shape (2, 2, 2)"]),
    "address": (lambda folder: "s3://bucket/t.parquet", ["is an address", "pyarrow.dataset"]),
    "folder": (lambda folder: folder, ["holds no Parquet"]),
    "two datasets": (two_datasets, ["one dataset is needed", "'a', 'b'", "::/name"]),
    "no such dataset": (lambda folder: two_datasets(folder) + "::c", ["no dataset 'c'", "'a', 'b'"]),
    "two arrays": (two_arrays, ["one array is needed", "'a', 'b'", "::name"]),
    "not parquet": (lambda folder: written(folder, "t.parquet", b"PAR1 no, not really"), ["Parquet"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_opened_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    maker, words = WRONG[name]
    with refused(*words):
        open_source(maker(tmp_path), "X")


def test_one_of_several_arrays_can_be_named(tmp_path: Path) -> None:
    for path in (two_datasets(tmp_path) + "::/b", two_arrays(tmp_path) + "::b"):
        source = open_source(path, "X")
        assert source.read([0], slice(0, 2)).values.shape == (2, 1)


@pytest.mark.parametrize("name", ["2.parquet", "2.csv"])
def test_another_file_in_a_folder_of_tables_is_not_passed_over(name: str, tmp_path: Path) -> None:
    write_parquet(pa.table({"a": [1.0]}), tmp_path / "1.parquet")
    written(tmp_path, name, b"a\n1\n2\n")
    with refused(f"{name} is no Parquet or Arrow file"):
        open_source(tmp_path, "X")


def test_a_list_of_paths_is_not_taken_for_a_table_of_text(tmp_path: Path) -> None:
    paths = [str(write_parquet(pa.table({"a": [1.0, 2.0]}), tmp_path / f"{i}.parquet")) for i in range(2)]
    with refused("one path is needed, got a list of 2"):
        open_table(paths, "X")


@pytest.mark.parametrize("kind", ["list", "complex"])
def test_a_column_that_is_no_feature_is_refused_when_it_is_used(kind: str, tmp_path: Path) -> None:
    if kind == "list":
        path = write_parquet(pa.table({"a": [1.0, 2.0], "when": [[1], [2]]}), tmp_path / "t.parquet")
    else:
        path = saved(tmp_path, np.zeros((2, 2), dtype=complex))
    with refused("a decision", "'when'" if kind == "list" else "'x1'", f"values of type {kind}", "'drop'"):
        as_pair(path, path)


def test_decimals_are_rounded_as_python_does(tmp_path: Path) -> None:
    """Equal numbers must be equal in tables of all kinds; Arrow's conversion changes one in eight of these."""
    decimals = [Decimal(i) / 1000 for i in range(2000)]
    table = pa.table({"x": pa.array([*decimals, None], pa.decimal128(12, 3))})
    path = write_parquet(table, tmp_path / "t.parquet")
    arrow_typed = table.to_pandas(types_mapper=pd.ArrowDtype)
    for data in (table, arrow_typed, pl.from_arrow(table), table.to_pandas(), path):
        found = loaded(open_table(data, "X")).columns.values[:, 0]
        assert np.isnan(found[-1]) and found[:-1].tolist() == [float(one) for one in decimals]
    assert open_source(path, "X").read([0]).values[:-1, 0].tolist() == [float(one) for one in decimals]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_statistics_of_durations_are_not_taken_for_days(tmp_path: Path, unit: str) -> None:
    """Parquet stores durations as integers in their own unit, and has the statistics of these."""
    hours = [1, 5, 2, 30, 12, 7]
    took = pa.array([dt.timedelta(hours=one) for one in hours], pa.duration(unit))
    path = str(tmp_path / "x.parquet")
    pa.parquet.write_table(pa.table({"took": took, "count": pa.array(hours)}), path, row_group_size=2)
    found = scan(open_source(path, "X"), 1 << 26)
    assert np.array_equal(found.low, [1 / 24, 1]) and np.array_equal(found.high, [30 / 24, 30])
    table, _ = as_pair(path, path, memory="64MB")
    assert np.array_equal(np.asarray(table.values)[:, 0], np.array(hours) / 24)


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_durations_are_the_same_numbers_in_every_library(tmp_path: Path, unit: str) -> None:
    """To the last bit, as equal durations would be different values; and nanoseconds count."""
    counts = np.r_[np.arange(1000) * 1000, np.arange(1, 1000), 86_400_000_000 * np.arange(1, 60)]
    exact = counts * (1 if unit == "us" else Fraction(1, 1000))
    days = np.array([float(one // 1) + float(one % 1) for one in exact]) / 86400e6
    times = counts.astype(f"m8[{unit}]")
    table = pa.table({"took": pa.array(times)})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    pa.feather.write_feather(table, tmp_path / "t.feather")
    frames = [pd.DataFrame({"took": times}), pl.DataFrame({"took": times}), table, {"took": times}]
    frames.append(pd.DataFrame({"took": pd.array(times, dtype=pd.ArrowDtype(pa.duration(unit)))}))
    for frame in frames:
        np.testing.assert_array_equal(read_columns(frame, "X").values[:, 0], days)
    for file in ("t.parquet", "t.feather"):
        source = open_source(tmp_path / file, "X")
        np.testing.assert_array_equal(source.read([0]).values[:, 0], days)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_dates_far_away_are_days_in_every_library(tmp_path: Path, zone: str | None) -> None:
    """31 December 9999 stands for "until further notice" in many tables."""
    stamps = [dt.datetime(9999, 12, 31), None, dt.datetime(1970, 1, 2, 12), dt.datetime(1, 1, 1)]
    days = [(dt.date(9999, 12, 31) - dt.date(1970, 1, 1)).days, np.nan, 1.5, 1 - dt.date(1970, 1, 1).toordinal()]
    table = pa.table({"until": pa.array(stamps, pa.timestamp("us", zone))})
    path = write_parquet(table, tmp_path / "t.parquet")
    for data in (table, table.to_pandas(types_mapper=pd.ArrowDtype), pl.from_arrow(table), table.to_pandas()):
        np.testing.assert_array_equal(read_columns(data, "X").values[:, 0], days)
    np.testing.assert_array_equal(open_source(path, "X").read([0]).values[:, 0], days)


def test_dates_and_durations_are_days(tmp_path: Path) -> None:
    stamps = [dt.datetime(2020, 1, 1, 12), None, dt.datetime(2020, 1, 3)]
    table = pa.table(
        {
            "stamp": pa.array(stamps, pa.timestamp("ns")),
            "zoned": pa.array(stamps, pa.timestamp("ms", "UTC")),
            "day": pa.array([dt.date(2020, 1, 1), None, dt.date(2020, 1, 4)]),
            "took": pa.array([dt.timedelta(hours=36), None, dt.timedelta(days=2)], pa.duration("s")),
            "clock": pa.array([dt.time(6), None, dt.time(18)], pa.time32("s")),
        }
    )
    expected = [[0, 0, 0, 1.5, 0.25], [1.5, 1.5, 3, 2, 0.75]]
    path = write_parquet(table, tmp_path / "t.parquet")
    for data in (path, table, table.to_pandas(), pl.from_arrow(table), table.to_pandas().astype(object)):
        first, second = as_pair(data, data, missing="drop")
        for one in (first, second):
            np.testing.assert_allclose(one.part(slice(None)), expected, atol=1e-9)


# Text


LINES = "name,x,b\n" + "".join(f"n{i % 3},{i / 4},{'True' if i % 2 else 'False'}\n" for i in range(50))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", LINES.encode()),
        # Without the time of packing, which would make the name of the test another one in every process of xdist.
        ("t.csv.gz", gzip.compress(LINES.encode(), mtime=0)),
        ("t.tsv", LINES.replace(",", "\t").encode()),
        ("mark.csv", LINES.encode("utf-8-sig")),
        ("wide.txt", LINES.replace(",", "\t").encode("utf-16")),
        ("wider.csv", LINES.encode("utf-32")),
        ("german.csv", LINES.replace(",", ";").replace(".", ",").encode()),
        ("windows.csv", LINES.replace("\n", "\r\n").encode()),
    ],
)
def test_text_is_read_however_it_is_written(name: str, content: bytes, tmp_path: Path, spool: Path) -> None:
    path = written(tmp_path, name, content)
    with use_workers(SomeWorkers()):
        source = open_source(path, "X")
    assert (source.names, source.kinds) == (("name", "x", "b"), ("text", "float64", "truth"))
    found = source.read([1, 2, 0], slice(10, 13))
    assert found.values.tolist() == [[2.5, 0, 1], [2.75, 1, 2], [3.0, 0, 0]]
    copy = pickle.loads(pickle.dumps(source))
    del copy
    assert len(os.listdir(spool)) == 1, "a copy must not take the file with it"
    del source
    assert os.listdir(spool) == []
    alone = open_source(path, "X")
    assert os.listdir(spool) == [], "without workers the file has no name, and is gone however the process ends"
    assert alone.read([1, 2, 0], slice(10, 13)).values.tolist() == found.values.tolist()


class SomeWorkers:
    """Workers that no work is sent to."""

    def n_threads(self) -> int:
        return 2

    def task_memory(self, memory: int) -> int:
        return memory

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        return map(function, items)


def test_numbers_alone_have_no_names(tmp_path: Path) -> None:
    source = open_source(written(tmp_path, "t.csv", b"1,2\n3,4\n"), "X")
    assert not source.named and source.names == ("x0", "x1") and source.n == 2


def test_an_encoding_can_be_named(tmp_path: Path) -> None:
    source = open_source(written(tmp_path, "t.csv", "a,b\n1,é\n2,e\n".encode("latin-1")), "X", encoding="latin-1")
    assert source.read([1], slice(0, 2)).levels == {0: ("e", "é")}
    with pytest.raises(InputError, match="encoding: 'klingon' is unknown"):
        open_source(written(tmp_path, "t.csv", b"a\n1\n"), "X", encoding="klingon")


def test_a_column_that_turns_out_to_be_text_is_text_from_its_first_row(
    tmp_path: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "_CHUNK", 20)
    monkeypatch.setattr(text, "_PER_COLUMN", 1)
    lines = "a,b\n" + "".join(f"{i}.50,{i}\n" for i in range(9)) + "x,True\n"
    source = open_source(written(tmp_path, "t.csv", lines.encode()), "X")
    assert source.kinds == ("text", "text")
    found = source.read([0, 1], slice(0, 10))
    assert texts(found, 0) == [*(f"{i}.50" for i in range(9)), "x"]
    assert texts(found, 1) == [*(str(i) for i in range(9)), "True"]


@pytest.mark.parametrize("late", ["9", "0.5", "", "x", "True", str(2**60), str(2**63 + 2)])
def test_a_whole_text_does_not_depend_on_its_chunks(late: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "a,b,c\n" + "".join(f"{i},{i}.5, {i}\n" for i in range(30)) + f"{late},1,1\n"
    path = written(tmp_path, "t.csv", lines.encode())
    expected = open_source(path, "X", whole=True)
    monkeypatch.setattr(text, "_CHUNK", 20)
    monkeypatch.setattr(text, "_PER_COLUMN", 1)
    found = open_source(path, "X", whole=True)
    assert isinstance(found, MemorySource) and isinstance(expected, MemorySource)
    for name in ("names", "kinds", "levels"):
        assert getattr(found.columns, name) == getattr(expected.columns, name)
    np.testing.assert_array_equal(found.columns.values, expected.columns.values)
    assert found.columns.integers.keys() == expected.columns.integers.keys()


def test_numbers_beyond_64_bits_are_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pandas leaves such columns as text, or as objects, depending on its version."""
    monkeypatch.setattr(text, "_CHUNK", 20)
    monkeypatch.setattr(text, "_PER_COLUMN", 1)
    cells = [*range(12), 10**25, None, 3 * 10**30, -4]
    rows = "".join(
        f"{'' if cell is None else cell},{'007'[i % 3 :]},{'x' if i > 13 else 5}\n" for i, cell in enumerate(cells)
    )
    path = written(tmp_path, "t.csv", b"a,b,c\n" + rows.encode())
    for whole in (True, False):
        source = open_source(path, "X", whole=whole)
        found = source.read([0, 1, 2])
        expected = [np.nan if cell is None else float(cell) for cell in cells]
        np.testing.assert_array_equal(found.values[:, 0], expected)
        assert found.kinds[0] == "float64" and not {0, 1} & found.levels.keys()
        assert found.levels[2] == ("5", "x")


@pytest.mark.parametrize("fault", ["no space", "interrupted"])
@pytest.mark.parametrize("workers", [True, False])
def test_nothing_is_left_behind_when_writing_fails(
    fault: str, workers: bool, tmp_path: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "_CHUNK", 60)
    monkeypatch.setattr(text, "_PER_COLUMN", 1)
    path = written(tmp_path, "t.csv", LINES.encode())
    put, made = text.TextFile._write_chunk, []

    def failing(self: text.TextFile, cells: Any) -> None:
        put(self, cells)
        made.append(len(os.listdir(spool)))
        if len(made) == 2:
            raise KeyboardInterrupt if fault == "interrupted" else OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(text.TextFile, "_write_chunk", failing)
    expected = pytest.raises(KeyboardInterrupt) if fault == "interrupted" else refused("no space left in", "TMPDIR")
    with expected as caught, use_workers(SomeWorkers()) if workers else nullcontext():
        open_source(path, "X")
    assert made == [int(workers)] * 2 and caught.value
    del caught  # an error that is kept keeps everything that was there when it was raised
    gc.collect()
    assert os.listdir(spool) == []


def test_a_text_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "t.csv", LINES.encode())
    whole = text._columns

    def grow(frame: Any, *given: Any) -> Any:
        with open(path, "a") as file:
            file.write("n0,1,True\n")
        return whole(frame, *given)

    monkeypatch.setattr(text, "_columns", grow)
    with refused("t.csv was changed while it was being read"):
        open_source(path, "X")
    assert os.listdir(spool) == []


def test_reading_text_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernsift.execution.progress import progress_callback

    monkeypatch.setattr(text, "_CHUNK", 200)
    monkeypatch.setattr(text, "_PER_COLUMN", 1)
    heard: list[tuple[str, int, int]] = []
    with progress_callback(lambda *said: heard.append(said)):
        open_source(written(tmp_path, "t.csv", LINES.encode()), "X")
    assert {stage for stage, _, _ in heard} == {"reading X"}
    done = [at for _, at, _ in heard]
    assert done == sorted(done) and done[-1] == heard[-1][2] == len(LINES)


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"a,b\n1,2\n3,4\n", (3, False)),
        (b"a,b\n1, 2\n3,4\n", (3, True)),
        (b"a,b\r\n1,2\r\n\r\n3,4", (3, False)),
        (b"\xef\xbb\xbfa,b\n\n1,\xc3\xa9\n", (2, False)),
        (b"a_long_name_of_a_column,b\n-0.123456789012,he\n", (2, False)),
        (b'a,b\n"1,5",2\n', None),
        (b"a,b\n1,2,3\n", None),
        (b"a,b\n1\n", None),
        (b"a,b\r1,2\r", None),
        (b"a,b\n1,\xe9\n", None),
        (b"a,b\n1,\0\n", None),
        (b"a\n1\n", None),
        (b"a,b\n1," + b"x" * 131_100 + b"\n", None),
    ],
)
@pytest.mark.parametrize("block", [3, 1 << 20])
def test_lines_of_equal_fields_are_counted_by_the_block(
    content: bytes, rows: tuple[int, bool] | None, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is odd in any way is left to the reader of rows, which tells what is wrong."""
    monkeypatch.setattr(text_dialects, "_BLOCK", block)
    found = text_dialects._regular_rows(str(written(tmp_path, "t.csv", content)), ",", "utf-8-sig", "X")
    assert found == (None if rows is None else (*rows, len(content)))


def test_compressed_text_is_unpacked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once to check its lines, once to read it."""
    content = b"a,b\n" + b"1.5,2.5\n" * 200_000
    path, unpacked = written(tmp_path, "t.csv.gz", gzip.compress(content)), []

    class Counted(gzip.GzipFile):
        def read(self, size: int | None = -1) -> bytes:
            unpacked.append(len(found := super().read(size)))
            return found

        def read1(self, size: int = -1) -> bytes:
            unpacked.append(len(found := super().read1(size)))
            return found

    monkeypatch.setitem(text_dialects._PACKED, b"\x1f\x8b", Counted)
    assert as_table(path).n == 200_000
    assert sum(unpacked) < 2.5 * len(content)


@pytest.mark.parametrize("digits", [6, 13, 16, 17])
def test_numbers_of_a_text_are_read_to_the_last_digit(digits: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(digits)
    cells = [f"{value:.{digits}g}" for value in rng.uniform(0.1, 1e3, 4000)] + ["0.1", "123456789012345", "0", "-.5"]
    path = written(tmp_path, "t.csv", "\n".join(["a,b", *(f"{cell},x" for cell in cells)]).encode())
    assert as_table(path).part(slice(0, 1))[:, 0].tolist() == list(map(float, cells))


def test_long_numbers_in_the_first_line_are_read_to_the_last_digit(tmp_path: Path) -> None:
    """Without names the first line has numbers, too."""
    cells = [f"{value:.17g}" for value in np.random.default_rng(0).uniform(0.1, 1e3, 300)]
    path = written(tmp_path, "t.csv", "\n".join([",".join(cells), ",".join(["0.5"] * 300)]).encode())
    assert as_table(path).part(slice(0, 300))[0].tolist() == list(map(float, cells))


def test_data_sets_of_files_are_read_by_the_readers_of_files(tmp_path: Path) -> None:
    """Groups of rows are read by themselves, whether a file is named or a part of a data set."""
    table = pa.table({"a": np.arange(10.0), "s": ["x", "y", None, "x", "x"] * 2, "k": ["u", "v"] * 5})
    keyed = pa.dataset.partitioning(pa.schema([("k", pa.string())]), flavor="hive")
    pa.dataset.write_dataset(table, tmp_path / "keyed", format="parquet", partitioning=keyed)
    write_feather(table, tmp_path / "plain.feather", chunksize=3)
    cast = pa.schema([("a", pa.float32()), ("s", pa.string()), ("k", pa.string())])
    sources = [
        open_source(tmp_path / "keyed", "X"),
        open_source(pa.dataset.dataset(tmp_path / "keyed", format="parquet", partitioning="hive"), "X"),
        open_source(pa.dataset.dataset(tmp_path / "plain.feather", format="feather"), "X"),
        # A schema of the user's casts, which takes a fragment.
        open_source(pa.dataset.dataset(tmp_path / "keyed", format="parquet", partitioning="hive", schema=cast), "X"),
    ]
    kinds = [{type(one).__name__ for one in source._fragments} for source in sources]  # type: ignore[union-attr]
    assert kinds == [{"ParquetFragment"}, {"ParquetFragment"}, {"FeatherFragment"}, {"DatasetFragment"}]
    order = [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]
    for source in sources:
        found = source.read([source.names.index(name) for name in ("a", "s", "k")], slice(0, 10))
        rows = slice(None) if len(source._fragments) == 1 else order  # type: ignore[attr-defined]
        assert found.values[:, 0].tolist() == np.arange(10.0)[rows].tolist()
        assert texts(found, 1) == np.array(table["s"].to_pylist(), dtype=object)[rows].tolist()
        assert texts(found, 2) == np.array(table["k"].to_pylist(), dtype=object)[rows].tolist()


def test_small_files_with_one_schema_are_read_together(tmp_path: Path) -> None:
    """A piece for each of many small files would take longer than reading them."""
    parts = [
        pa.table({"a": [0.0, 1.0, 2.0], "s": ["y", "x", "y"]}),
        pa.table({"a": [3.0, 4.0], "s": ["z", None]}),
        pa.table({"a": [5, 6, 7, 8, 9], "s": ["x", "w", "x", "u", "w"]}),  # of another type: read by itself
    ]
    for number, part in enumerate(parts):
        pa.parquet.write_table(part, tmp_path / f"{number}.parquet")
    source = open_source(tmp_path, "X")
    assert source is not None
    assert source.edges.tolist() == [0, 5, 10]
    labels = [text for part in parts for text in part["s"].to_pylist()]
    for rows in (slice(0, 10), slice(2, 9), np.array([1, 4, 4, 6, 9])):
        found = source.read([0, 1], rows)
        assert found.values[:, 0].tolist() == np.arange(10.0)[rows].tolist()
        assert texts(found, 1) == np.array(labels, dtype=object)[rows].tolist()
    pa.parquet.write_table(parts[1].slice(1), tmp_path / "1.parquet")
    with pytest.raises(InputError, match=r"^X: .*1\.parquet was changed while it was being read"):
        source.read([0, 1])
