"""Tables that stay on disk: the same values, codes and errors as in memory, within a bounded amount of memory."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernsift.data.formats import array_files as rectangles
from kernsift.data.formats import arrow, parquet
from kernsift.data.inputs import as_pair, as_xy
from kernsift.data.stored import StoredTable
from kernsift.data.tables import Table
from kernsift.exceptions import InputError
from kernsift.execution import memory as budget
from kernsift.execution.memory import machine_memory, parse_memory
from kernsift.execution.progress import progress_callback

slowly = settings(
    max_examples=25,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def parquet_file(table: pa.Table, folder: Any, name: str = "t", **options: Any) -> str:
    path = os.path.join(str(folder), f"{name}.parquet")
    pa.parquet.write_table(table, path, **options)
    return path


def outcome(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a function returns, or the words with which it refuses."""
    try:
        return function(*arguments, **options)
    except InputError as error:
        return str(error)


def read_pair(*paths: str, missing: str) -> None:
    """Both tables, read: NaN in a column of fractions is seen only then."""
    for table in as_pair(*paths, missing=missing):
        table.part(slice(None))


def message(function: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        function(*arguments, **options)
    return str(caught.value)


def assert_same(stored: StoredTable, table: Table) -> None:
    assert (stored.names, stored.n, stored.d) == (table.names, table.n, table.d)
    assert stored.offsets.tolist() == table.offsets.tolist()
    assert stored.categorical.tolist() == table.categorical.tolist()
    assert dict(stored.levels) == dict(table.levels)
    assert stored.constant.tolist() == table.constant.tolist()
    found = stored.values
    assert found.dtype == stored.dtype == table.values.dtype
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, table.values)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a few rows, where files of this size would be read at once."""
    monkeypatch.setattr(arrow, "_TOGETHER", 1)
    monkeypatch.setattr(rectangles, "CHUNK", 100)


NUMBERS = st.sampled_from([0.0, 1.0, 2.5, -3.0, 1e9]) | st.floats(-1e6, 1e6)
KINDS: dict[str, tuple[Any, Any]] = {
    "f": (NUMBERS, pa.float64()),
    "f4": (st.floats(-100, 100, width=32), pa.float32()),
    "i": (st.integers(-5, 5), pa.int32()),
    "b": (st.booleans(), pa.bool_()),
    "s": (st.sampled_from(["u", "v", "w", ""]), pa.string()),
}


@st.composite
def tables(draw: Any, names: list[str], gaps: bool) -> pa.Table:
    n = draw(st.integers(8, 30))
    cells = {}
    for name in names:
        values, kind = KINDS[name.rstrip("_")]
        if gaps:
            # Few gaps: rows must be left when those with one are dropped.
            values = st.integers(0, 15).flatmap(lambda roll, some=values: st.none() if roll == 0 else some)
        cells[name] = pa.array(draw(st.lists(values, min_size=n, max_size=n)), type=kind)
    return pa.table(cells)


@st.composite
def pairs(draw: Any) -> tuple[pa.Table, pa.Table, bool]:
    names = draw(st.lists(st.sampled_from([*KINDS, "f_", "s_"]), min_size=1, max_size=4, unique=True))
    gaps = draw(st.booleans())
    return draw(tables(names, gaps)), draw(tables(draw(st.permutations(names)), gaps)), gaps


@pytest.mark.usefixtures("small_chunks")
@slowly
@given(pair=pairs(), data=st.data())
def test_two_samples_are_what_they_are_in_memory(pair: Any, data: Any) -> None:
    first, second, gaps = pair
    missing = "drop" if gaps else "error"
    expected = outcome(as_pair, first, second, missing=missing)
    with tempfile.TemporaryDirectory() as folder:
        one = parquet_file(first, folder, "x", row_group_size=4)
        other = parquet_file(second, folder, "y", row_group_size=9)
        # One of the two may be in memory.
        pair = [one, data.draw(st.sampled_from([other, second]))]
        if isinstance(expected, str):
            assert outcome(as_pair, *pair, missing=missing) == expected
            return
        for stored, table in zip(as_pair(*pair, missing=missing), expected, strict=True):
            assert_same(stored, table)
            rows = data.draw(st.lists(st.integers(0, table.n - 1), max_size=12))
            columns = data.draw(st.lists(st.integers(0, table.d - 1), min_size=1, unique=True))
            some = stored.part(np.array(columns), np.array(rows, dtype=int))
            np.testing.assert_array_equal(some, table.values[rows][:, columns])
            start, stop = sorted(data.draw(st.tuples(*[st.integers(0, table.n)] * 2)))
            np.testing.assert_array_equal(stored.part(slice(None), slice(start, stop)), table.values[start:stop])
            taken = stored.take(np.array(rows, dtype=int))
            np.testing.assert_array_equal(taken.values, table.take(np.array(rows, dtype=int)).values)
            assert isinstance(taken, Table) and taken.levels == table.levels
            assert_same(stored.select(np.array(columns)), table.select(np.array(columns)))
            size = data.draw(st.integers(1, 400))
            runs = stored.row_chunks(np.arange(table.d), size)
            assert [row for run in runs for row in range(*run)] == list(range(table.n))
            assert all((b - a) * table.d <= max(size, table.d) for a, b in runs)


TABLE = pa.table(
    {
        "a": [1.0, 2.0, None, 4.0, 5.0, 6.0],
        "b": [True, False, True, True, None, False],
        "s": ["u", "v", "v", "v", "u", "w"],
        "i": [1, 2, 3, 1, 2, 3],
    }
)
RESPONSES: dict[str, Any] = {
    "number": ("i", "auto"),
    "category": ("s", "auto"),
    "truth": ("b", "auto"),
    "number as category": ("i", "category"),
    "several": (["i", "s"], "auto"),
    "array": (np.array([1.0, np.nan, 3.0, 3.0, 0.0, 1.0]), "auto"),
    "list of labels": (["u", "v", "u", "v", "u", "v"], "auto"),
    "series": (pd.Series([1, 2, 3, 4, 5, 6], name="target"), "numeric"),
    "texts are no numbers": ("s", "numeric"),
    "constant": (np.ones(6), "auto"),
    "no such column": ("S ", "auto"),
    "too short": (np.ones(5), "auto"),
    "all columns": (["a", "b", "s", "i"], "auto"),
}


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("missing", ["drop", "error"])
@pytest.mark.parametrize("name", RESPONSES)
def test_a_response_is_what_it_is_in_memory(name: str, missing: str, tmp_path: Path) -> None:
    y, response = RESPONSES[name]
    path = parquet_file(TABLE, tmp_path, row_group_size=4)
    expected = outcome(as_xy, TABLE, y, missing=missing, response=response)
    if isinstance(expected, str):
        assert outcome(as_xy, path, y, missing=missing, response=response) == expected
        return
    X, answer = as_xy(path, y, missing=missing, response=response)
    assert_same(X, expected[0])
    assert answer.names == expected[1].names and answer.levels == expected[1].levels
    np.testing.assert_array_equal(answer.values, expected[1].values)


def test_at_least_some_responses_are_accepted() -> None:
    """The test above must not be one of errors alone."""
    for name in ("number", "category", "truth", "several", "array", "list of labels", "series"):
        X, answer = as_xy(TABLE, RESPONSES[name][0], missing="drop", response=RESPONSES[name][1])
        assert X.n == answer.n > 1


def test_a_response_may_be_on_disk(tmp_path: Path) -> None:
    X, y = np.random.default_rng(0).normal(size=(9, 2)), np.arange(9.0)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    stored, answer = as_xy(tmp_path / "X.npy", tmp_path / "y.npy")
    table, expected = as_xy(X, y)
    assert_same(stored, table)
    assert answer.names == expected.names
    np.testing.assert_array_equal(answer.values, expected.values)


def columns(**cells: Any) -> pa.Table:
    return pa.table(cells)


GOOD = columns(a=[1.0, 2.0, 3.0], s=["u", "v", "u"])
BAD: dict[str, tuple[pa.Table, pa.Table]] = {
    "other names": (GOOD, GOOD.rename_columns(["a", "z"])),
    "fewer columns": (GOOD, GOOD.select(["a"])),
    "one row": (GOOD.slice(0, 1), GOOD),
    "one row in Y": (GOOD, GOOD.slice(0, 1)),
    "infinite": (GOOD, columns(a=[1.0, np.inf, 2.0], s=["u", "v", "u"])),
    "minus infinity and missing": (columns(a=[1.0, -np.inf, None], s=["u", None, "u"]), GOOD),
    "missing": (columns(a=[1.0, None, None], s=["u", None, "u"]), GOOD),
    "missing as NaN": (columns(a=[1.0, np.nan, 2.0], s=["u", "v", "u"]), GOOD),
    "missing everywhere": (columns(a=[None, 1.0, None], s=["u", None, None]), GOOD),
    "nothing but missing": (GOOD, columns(a=pa.nulls(3), s=["u", "v", "u"])),
    "numbers and texts": (columns(a=["x", "y", "x"], s=["u", "v", "u"]), GOOD),
    "texts and numbers": (GOOD, columns(a=["x", "y", "x"], s=["u", "v", "u"])),
    "huge": (columns(a=[1.0, 1e80, 3.0], s=["u", "v", "u"]), GOOD),
    "narrow": tuple([columns(a=[0.0, 1e-80, 0.0])] * 2),
    "dates": (GOOD, GOOD.set_column(0, "a", pa.array([0, 1, 2], pa.timestamp("us")))),
}


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("missing", ["error", "drop", "wrong"])
@pytest.mark.parametrize("name", BAD)
def test_complaints_are_those_of_tables_in_memory(name: str, missing: str, tmp_path: Path) -> None:
    first, second = BAD[name]
    paths = [parquet_file(first, tmp_path, "x", row_group_size=2), parquet_file(second, tmp_path, "y")]
    expected = outcome(as_pair, first, second, missing=missing)
    if isinstance(expected, str):
        assert outcome(read_pair, *paths, missing=missing) == expected
        return
    assert missing == "drop"
    for stored, table in zip(as_pair(*paths, missing=missing), expected, strict=True):
        assert_same(stored, table)


def test_tables_without_names_are_aligned_by_position(tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(5, 2))
    np.save(tmp_path / "a.npy", array)
    X, Y = as_pair(tmp_path / "a.npy", pd.DataFrame(array, columns=["p", "q"]))
    assert X.names == Y.names == ("p", "q")
    np.testing.assert_array_equal(X.values, Y.values)
    other = array[:, :1]
    expected = message(as_pair, array, other)
    assert message(as_pair, tmp_path / "a.npy", other) == expected


@pytest.mark.usefixtures("small_chunks")
def test_single_precision_stays_only_if_all_is_single(tmp_path: Path) -> None:
    single = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
    np.save(tmp_path / "s.npy", single)
    np.save(tmp_path / "d.npy", single.astype(np.float64))
    assert [table.dtype for table in as_pair(tmp_path / "s.npy", single)] == [np.float32] * 2
    for stored in as_pair(tmp_path / "s.npy", tmp_path / "d.npy"):
        assert stored.dtype == stored.values.dtype == np.float64
    # Numbers near the limits of single precision are carried on in double, as they are in memory.
    np.save(tmp_path / "s.npy", single * np.float32(1e20))
    X, _ = as_pair(tmp_path / "s.npy", single)
    assert X.dtype == as_pair(single * np.float32(1e20), single)[0].values.dtype == np.float64


def test_numbers_that_a_file_vouches_for_are_not_read_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 4000
    table = pa.table({"f": np.arange(n) / 2, "g": np.ones(n), "s": ["u", "v"] * (n // 2)})
    path = parquet_file(table, tmp_path)
    asked: list[list[str]] = []
    load = parquet.ParquetFragment.load

    def spy(self: Any, first: int, last: int, names: Any, reader: Any) -> Any:
        asked.append(list(names))
        return load(self, first, last, names, reader)

    monkeypatch.setattr(parquet.ParquetFragment, "load", spy)
    X, _ = as_pair(path, table)
    assert asked == [["s"]]
    assert X.constant.tolist() == [False, True, False]
    assert (X.low.tolist(), X.high.tolist()) == ([0, 1, 0], [(n - 1) / 2, 1, 1])
    asked.clear()
    as_pair(path, table, missing="drop")
    assert asked == [["f", "g", "s"]], "NaN may hide in fractions"


def test_nan_that_hides_from_what_a_file_says_is_found_when_it_is_read(tmp_path: Path) -> None:
    n = 3000
    values = np.arange(n, dtype=float)
    values[[5, 2900]] = np.nan
    table = pa.table({"f": values, "g": np.ones(n)})
    X, _ = as_pair(parquet_file(table, tmp_path), columns(f=[1.0, 2.0], g=[1.0, 1.0]))
    assert X.part([1]).shape == (n, 1)
    expected = message(as_pair, table, columns(f=[1.0, 2.0], g=[1.0, 1.0]))
    assert message(X.part, [0]) == expected
    assert message(X.part, [1, 0], np.array([7, 5])) == expected
    dropped, _ = as_pair(parquet_file(table, tmp_path), columns(f=[1.0, 2.0], g=[1.0, 1.0]), missing="drop")
    assert dropped.n == n - 2 and not np.isnan(dropped.values).any()


def test_values_outside_of_what_was_seen_are_a_change(tmp_path: Path) -> None:
    table = pa.table({"f": np.arange(10.0), "s": ["u", "v"] * 5})
    X, _ = as_pair(parquet_file(table, tmp_path), table)
    for wrong in (X.changed(high=X.high - 1), X.changed(encoding=replace(X.encoding, texts={1: {"u": 0.0, "w": 1.0}}))):
        with pytest.raises(InputError, match=r"^X: the data changed while it was being read; .*\.$"):
            wrong.part(slice(None))


@pytest.mark.parametrize("fault", ["removed", "cut short", "changed"])
def test_a_file_that_changes_between_two_parts_is_named(fault: str, tmp_path: Path) -> None:
    table = pa.table({"f": np.arange(2000.0)})
    path = parquet_file(table, tmp_path)
    X, _ = as_pair(path, table)
    X.part([0])
    if fault == "removed":
        os.remove(path)
    elif fault == "cut short":
        os.truncate(path, 100)
    else:
        parquet_file(table.slice(1), tmp_path)
    with pytest.raises(InputError, match=rf"^X: .*t\.parquet was {fault.replace('cut short', 'changed')} while"):
        X.part([0])


def test_a_part_may_be_asked_for_in_every_way(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(20, 4))
    np.save(tmp_path / "a.npy", values)
    X, _ = as_pair(tmp_path / "a.npy", values)
    some = np.array([7, 0, 19, 7])
    np.testing.assert_array_equal(X.part(np.array([2, 0]), some), values[some][:, [2, 0]])
    np.testing.assert_array_equal(X.part(slice(1, 3), slice(5, 9)), values[5:9, 1:3])
    np.testing.assert_array_equal(X.part(slice(None), slice(15, None)), values[15:])
    assert X.part(np.array([], dtype=int)).shape == (20, 0)
    with pytest.raises(IndexError):
        X.part(np.array([4]))


def test_tables_travel_to_other_processes(tmp_path: Path) -> None:
    path = parquet_file(TABLE, tmp_path)
    X, _ = as_pair(path, TABLE, missing="drop")
    copy = pickle.loads(pickle.dumps(X))
    np.testing.assert_array_equal(copy.values, X.values)


# Memory


@pytest.mark.parametrize(
    ("given", "bytes_"),
    [
        ("1GB", 10**9),
        ("500 MB", 5 * 10**8),
        ("2GiB", 2 << 30),
        ("1.5g", 15 * 10**8),
        (10**8, 10**8),
        ("40000kb", 4 * 10**7),
    ],
)
def test_sizes_are_read(given: Any, bytes_: int) -> None:
    assert parse_memory(given) == bytes_


def test_shares_of_the_machine_are_read() -> None:
    assert parse_memory("50%") == pytest.approx(machine_memory() / 2, abs=1)
    assert parse_memory(None) == max(budget.SMALLEST_MEMORY, machine_memory() // 4)


@pytest.mark.parametrize("given", ["", "a lot", "1XB", "-1GB", "101%", "1GB2", True, [1], float("nan"), "12", 5, "1MB"])
def test_what_is_no_size_is_refused(given: Any) -> None:
    with pytest.raises(InputError, match=r"^memory: .*" + re.escape(repr(given)) + r".*\.$"):
        parse_memory(given)


def test_memory_that_is_too_little_for_a_column_is_an_error(tmp_path: Path) -> None:
    path = parquet_file(pa.table({"f": np.zeros(1_500_000), "g": np.arange(1_500_000)}), tmp_path, row_group_size=10**7)
    with pytest.raises(InputError, match=r"^memory: 36 MB are needed to read one column of 1,500,000 rows of X"):
        as_xy(path, np.arange(1_500_000), memory="40MB", missing="drop")


def test_a_response_that_is_too_large_is_an_error(tmp_path: Path) -> None:
    path = parquet_file(pa.table({"f": np.zeros(3_000_000)}), tmp_path)
    with pytest.raises(InputError, match=r"^memory: the response alone takes 24 MB, more than half of the 40 MB"):
        as_xy(np.zeros((3_000_000, 1)), Path(path), memory="40MB")


def test_labels_of_rows_do_not_fill_the_memory(tmp_path: Path) -> None:
    table = pa.table({"id": [f"{i:040d}" for i in range(100_000)]})
    with pytest.raises(InputError, match=r"^memory: the different texts in column 'id' of X, .* leave out columns"):
        as_pair(parquet_file(table, tmp_path), table, memory="33MiB")


def test_the_first_look_tells_how_far_it_is(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(2_000_000, 2)))
    heard: list[tuple[str, int, int]] = []
    with progress_callback(lambda *said: heard.append(said)):
        as_xy(tmp_path / "a.npy", np.arange(2_000_000))
    assert {stage for stage, _, _ in heard} == {"cells of X"}
    done = [at for _, at, _ in heard]
    assert len(done) > 3 and done == sorted(done) and done[-1] == heard[-1][2] == 4_000_000


PEAK = """
import sys
import numpy as np
import kernsift.data.tables, pyarrow.parquet
from kernsift.data.scan import scan
from kernsift.data.inputs import as_xy

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024

before = peak()
X, y = as_xy(sys.argv[1], "c0", memory="64MB")
scan(X.source, X.memory, trust=False)
every = np.arange(X.d)
total = sum(X.part(block).sum() for block in np.array_split(every, X.d * X.n * 8 // (X.memory // 2) + 1))
total -= sum(X.part(slice(None), slice(*run)).sum() for run in X.row_chunks(every, X.memory // 16))
X.take(np.arange(0, X.n, 1000))
assert abs(total) < 1e-4, total
print(peak() - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the peak of memory is read from /proc")
@pytest.mark.parametrize(
    "kind", ["parquet", pytest.param("npy", marks=pytest.mark.slow), pytest.param("feather", marks=pytest.mark.slow)]
)
def test_reading_a_large_table_takes_little_memory(kind: str, tmp_path: Path) -> None:
    """200 MB with a budget of 64 MB: at most one and a half budgets, the libraries that are loaded on the way included.

    Reading it as a whole takes three budgets.
    """
    path = str(tmp_path / f"t.{kind}")
    chunk = np.random.default_rng(0).normal(size=(50_000, 100))
    table = pa.table({f"c{i}": chunk[:, i] for i in range(100)})
    if kind == "npy":
        records = np.dtype([(f"c{i}", "f8") for i in range(100)])
        file = np.lib.format.open_memmap(path, mode="w+", dtype=records, shape=(250_000,))
        for start in range(0, 250_000, 50_000):
            file[start : start + 50_000] = chunk.view(records)[:, 0]
        del file
    elif kind == "feather":
        with pa.ipc.new_file(path, table.schema) as writer:
            for _ in range(5):
                writer.write_table(table)
    else:
        with pa.parquet.ParquetWriter(path, table.schema, compression="none", use_dictionary=False) as writer:
            for _ in range(5):
                writer.write_table(table)
    assert os.path.getsize(path) > 195e6
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", PEAK, path], capture_output=True, text=True, check=False, env=one_thread
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 1.5 * 64e6
