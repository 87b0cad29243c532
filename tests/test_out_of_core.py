"""Tables larger than memory: whole calls on files give the answers that tables in memory do, or one clear error."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernsift import Incomplete, InputError, Multiscale, Result, compare, relate
from kernsift.cli import main
from kernsift.data.formats import array_files as rectangles
from kernsift.data.formats import arrow, open_table, opening, parquet, text
from kernsift.data.inputs import read_pair
from kernsift.estimators import block_sizes, feature_blocks
from kernsift.execution import memory as budget
from kernsift.execution.progress import progress_callback
from kernsift.inference.advice import CalibrationWarning

pytestmark = pytest.mark.filterwarnings(f"ignore::{CalibrationWarning.__module__}.{CalibrationWarning.__name__}")

ESTIMATORS: dict[str, dict[str, Any]] = {
    "complete": {"estimator": "complete"},
    "complete, one look": {"estimator": "complete", "bandwidth": "median"},
    "cross": {"estimator": "cross"},
    "incomplete": {"estimator": Incomplete(r=2)},
    "incomplete, own rows": {"estimator": Incomplete(r=1, design="independent")},
    "incomplete, linear kernel": {"estimator": "incomplete", "kernel": "linear"},
    "incomplete, joint bandwidth": {"estimator": "incomplete", "bandwidth": "joint"},
    "block": {"estimator": "block"},
    "linear": {"estimator": "linear"},
}
HSIC = [name for name in ESTIMATORS if name != "linear"]
# About one column at a time, some, and all of them.
BUDGETS = {"tiny": 60_000, "small": 200_000, "ample": 10**9}


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is cut at large sizes is cut at small ones, in memory as on disk."""
    monkeypatch.setattr(budget, "SMALLEST_MEMORY", 1)
    monkeypatch.setattr(arrow, "_TOGETHER", 1)
    monkeypatch.setattr(rectangles, "CHUNK", 2_000)
    monkeypatch.setattr("kernsift.estimators.block_sizes._BYTES", 2_000)
    monkeypatch.setattr("kernsift.estimators.block_sizes._ROW_BYTES", 64)
    for name, value in {
        "kernsift.kernels.bandwidths._SORTED": 100,
        "kernsift.estimators.covariance.selected_factor._ROWS": 128,
        "kernsift.estimators.draws.moments._KEPT": 0,
        "kernsift.estimators.draws.moments.LEARNING": 64,
        "kernsift.estimators.incomplete._DRAWS": 100,
        "kernsift.estimators.incomplete._FEATURES": 3,
        "kernsift.data.tables._SHOWN_ROWS": 50,
    }.items():
        monkeypatch.setattr(name, value)


def numbers(n: int, seed: int, shift: float = 0.0) -> np.ndarray:
    values = np.random.default_rng(seed).normal(size=(n, 7))
    values[:, 2] += shift
    values[:, 4] = np.round(values[:, 4])
    values[:, 5] = 3.0
    values[:, 6] = values[:, 0] ** 2 + 0.1 * values[:, 6]
    return values


def mixed(n: int, seed: int, shift: float = 0.0) -> pa.Table:
    """Numbers, whole numbers, truth values and categories."""
    rng = np.random.default_rng(seed)
    values = numbers(n, seed, shift)
    columns: dict[str, Any] = {f"f{j}": values[:, j] for j in range(values.shape[1])}
    columns["i"] = rng.integers(0, 6, size=n)
    columns["b"] = rng.random(n) < 0.4
    columns["s"] = rng.choice(["u", "v", "w"], size=n)
    return pa.table(columns)


def assert_same(found: Result, expected: Result) -> None:
    """The same features, p-values, effects and pictures; sums may be added up in another order."""
    assert found.names == expected.names
    assert found.feature_names == expected.feature_names
    np.testing.assert_allclose(found.log_pvalues, expected.log_pvalues, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-9, atol=1e-12)
    assert (found.effects is None) == (expected.effects is None)
    if found.effects is not None:
        np.testing.assert_allclose(found.effects, expected.effects, rtol=1e-9, atol=1e-12)
    assert found.notes == expected.notes
    assert tuple(found.pictures) == tuple(expected.pictures)
    assert found.rows == expected.rows


# Formats -------------------------------------------------------------------------------------------------------------


def write_parts(table: pa.Table, folder: Path) -> Path:
    """Three files, the second with its columns backwards and its numbers in another type."""
    folder.mkdir()
    cuts = [0, len(table) // 3, len(table) // 2, len(table)]
    for i in range(3):
        part = table.slice(cuts[i], cuts[i + 1] - cuts[i])
        if i == 1:
            part = part.select(part.column_names[::-1])
            place = part.column_names.index("i")
            part = part.set_column(place, "i", part.column("i").cast(pa.int16()))
        pa.parquet.write_table(part, folder / f"{i}.parquet", row_group_size=41)
    return folder


def write_feather(table: pa.Table, path: Path, **options: Any) -> Path:
    pa.feather.write_feather(table, str(path), **options)
    return path


def write_parquet(table: pa.Table, path: Path, rows: int = 37) -> Path:
    pa.parquet.write_table(table, path, row_group_size=rows)
    return path


def write_csv(table: pa.Table, path: Path) -> Path:
    # pandas writes numbers so that they are read as they were.
    table.to_pandas().to_csv(path, index=False)
    return path


def write_npy(values: np.ndarray, path: Path, order: str = "C") -> Path:
    np.save(path, np.asarray(values, order=order))  # type: ignore[call-overload]
    return path


def write_zarr(values: np.ndarray, path: Path) -> Path:
    import zarr

    array = zarr.create_array(path, shape=values.shape, chunks=(50, 3), dtype=values.dtype)
    array[:] = values
    return path


def write_hdf5(values: np.ndarray, path: Path) -> Path:
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("table", data=values, chunks=(64, 2))
    return path


def opened_zarr(values: np.ndarray, path: Path) -> Any:
    import zarr

    return zarr.open(write_zarr(values, path), mode="r")


def dask_array(values: np.ndarray, path: Path) -> Any:
    import dask.array

    return dask.array.from_array(values, chunks=(60, 7))


def dask_frame(table: pa.Table, path: Path) -> Any:
    import dask.dataframe

    return dask.dataframe.from_pandas(table.to_pandas(), npartitions=4)


TABLES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "parquet": lambda table, path: str(write_parquet(table, path.with_suffix(".parquet"))),
    "parts": write_parts,
    "feather": lambda table, path: write_feather(table, path, chunksize=53),
    "plain feather": lambda table, path: write_feather(table, path, chunksize=90, compression="uncompressed"),
    "csv": lambda table, path: write_csv(table, path.with_suffix(".csv")),
    "data set": lambda table, path: pa.dataset.dataset(write_parts(table, path), format="parquet"),
    "dask frame": dask_frame,
}
ARRAYS: dict[str, Callable[[np.ndarray, Path], Any]] = {
    "npy": lambda values, path: write_npy(values, path.with_suffix(".npy")),
    "npy, Fortran": lambda values, path: write_npy(values, path.with_suffix(".npy"), "F"),
    "map": lambda values, path: np.load(write_npy(values, path.with_suffix(".npy")), mmap_mode="r"),
    "zarr": lambda values, path: str(write_zarr(values, path.with_suffix(".zarr"))),
    "zarr array": opened_zarr,
    "hdf5": lambda values, path: f"{write_hdf5(values, path.with_suffix('.h5'))}::/table",
    "dask array": dask_array,
}


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("memory", BUDGETS)
def test_a_file_gives_the_answer_of_a_table_in_memory(estimator: str, memory: str, tmp_path: Path) -> None:
    X, Y = mixed(300, 1), mixed(260, 2, 0.6)
    given = {"k": 5, "random_state": 3, **ESTIMATORS[estimator]}
    paths = write_parquet(X, tmp_path / "x.parquet"), write_parquet(Y, tmp_path / "y.parquet", 80)
    expected, *related = _in_memory(estimator)
    assert_same(compare(*paths, memory=BUDGETS[memory], **given), expected)
    for response, answer in zip(RESPONSES, related, strict=False):
        assert_same(relate(paths[0], response, memory=BUDGETS[memory], **given), answer)


RESPONSES = ("f0", "s", ["f0", "f3"])


@cache
def _in_memory(estimator: str) -> list[Result]:
    """What files must give, however much memory there is."""
    X, Y = mixed(300, 1), mixed(260, 2, 0.6)
    given = {"k": 5, "random_state": 3, **ESTIMATORS[estimator]}
    related = [relate(X, response, **given) for response in RESPONSES] if estimator in HSIC else []
    return [compare(X, Y, **given), *related]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("estimator", ["complete", "cross", "incomplete", "block"])
@pytest.mark.parametrize("name", [*TABLES, *ARRAYS])
def test_every_format_gives_the_same_answer(name: str, estimator: str, tmp_path: Path) -> None:
    given = {"k": 3, "random_state": 4, **ESTIMATORS[estimator]}
    maker: Any = mixed if name in TABLES else numbers
    data = maker(300, 5), maker(280, 6, 0.5)
    stored = [(TABLES | ARRAYS)[name](table, tmp_path / f"t{i}") for i, table in enumerate(data)]  # type: ignore[operator]
    expected, related = _of_any_format(maker, estimator)
    assert expected.pvalues.min() < 0.5  # there is something to compare
    # Parts that are known by their position in the file have the memory for one such part.
    assert_same(compare(*stored, memory=300_000, **given), expected)
    # One of the two may be in memory.
    assert_same(compare(stored[0], data[1], memory=300_000, **given), expected)
    assert_same(relate(stored[0], ANSWER, memory=300_000, **given), related)


ANSWER = np.random.default_rng(0).normal(size=300)


@cache
def _of_any_format(maker: Any, estimator: str) -> tuple[Result, Result]:
    """What all formats must give."""
    given = {"k": 3, "random_state": 4, **ESTIMATORS[estimator]}
    X, Y = maker(300, 5), maker(280, 6, 0.5)
    return compare(X, Y, **given), relate(X, ANSWER, **given)


@pytest.mark.usefixtures("small_parts")
@settings(
    max_examples=20,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    estimator=st.sampled_from(sorted(ESTIMATORS)),
    chunks=st.tuples(st.integers(1, 400), st.integers(1, 400)),
    memory=st.integers(60_000, 2_000_000),
    jobs=st.integers(1, 3),
    seed=st.integers(0, 2**20),
)
def test_no_size_of_anything_changes_an_answer(
    estimator: str, chunks: tuple[int, int], memory: int, jobs: int, seed: int
) -> None:
    X, Y = mixed(150, seed), mixed(170, seed + 1, 0.5)
    given = {"k": 4, "random_state": seed, **ESTIMATORS[estimator]}
    with tempfile.TemporaryDirectory() as folder:
        paths = [write_parquet(t, Path(folder, f"{i}.parquet"), chunks[i]) for i, t in enumerate((X, Y))]
        assert_same(compare(*paths, memory=memory, n_jobs=jobs, **given), compare(X, Y, **given))


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("estimator", ["complete", "cross", "incomplete", "incomplete, own rows", "block"])
def test_groups_of_columns_and_rows_that_are_left_out(estimator: str, tmp_path: Path) -> None:
    X, Y = mixed(300, 7), mixed(260, 8, 0.6)
    gaps = pa.array([None if i % 9 == 0 else float(i % 13) for i in range(300)])
    X = X.set_column(3, "f3", gaps)
    groups = {"both": ["f1", "f2"], "kind": ["s", "f4"], "alone": ["i"]}
    given = {"k": 4, "random_state": 9, "groups": groups, "missing": "drop", **ESTIMATORS[estimator]}
    paths = write_parquet(X, tmp_path / "x.parquet"), write_parquet(Y, tmp_path / "y.parquet", 80)
    assert_same(compare(*paths, memory=400_000, **given), compare(X, Y, **given))
    assert_same(relate(paths[0], "f0", memory=400_000, **given), relate(X, "f0", **given))


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("test", ["exact", "multiscale", "polyhedral"])
def test_all_tests_see_the_same_covariance(test: str, tmp_path: Path) -> None:
    X, Y = mixed(300, 10), mixed(260, 11, 0.4)
    given = {"k": 4, "random_state": 12, "test": test}
    paths = write_parquet(X, tmp_path / "x.parquet"), write_parquet(Y, tmp_path / "y.parquet", 80)
    for estimator in ("complete", "incomplete"):
        # Kept, and read again, draws are the same.
        for memory in (60_000, 10**8):
            found = compare(*paths, estimator=estimator, memory=memory, **given)
            assert_same(found, compare(X, Y, estimator=estimator, **given))


def test_correlations_take_one_more_pass_however_few_columns_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the draws of all features do not fit, those of the selected ones do: one pass for all of them."""
    rng = np.random.default_rng(3)
    X, Y = (pa.table({f"c{j}": rng.normal(0.02 * i, 1, size=17_000) for j in range(40)}) for i in range(2))
    paths = write_parquet(X, tmp_path / "x.parquet", 17_000), write_parquet(Y, tmp_path / "y.parquet", 17_000)
    monkeypatch.setattr(budget, "SMALLEST_MEMORY", 1)
    monkeypatch.setattr("kernsift.estimators.draws.moments._KEPT", 0)
    given = {"k": 10, "estimator": Incomplete(r=1), "random_state": 4}
    expected = compare(X, Y, **given)
    monkeypatch.setattr("kernsift.estimators.block_sizes._BLOCK_BYTES", 2 * 8 * 34_000)
    monkeypatch.setattr("kernsift.estimators.block_sizes._ROW", 1)
    read: list[int] = []
    whole = arrow.ArrowSource.fetch
    monkeypatch.setattr(
        arrow.ArrowSource,
        "fetch",
        lambda self, chunk, columns, rows: read.append(len(columns)) or whole(self, chunk, columns, rows),
    )
    assert_same(compare(*paths, memory=200_000_000, **given), expected)
    kept = sum(read)
    read.clear()
    assert_same(compare(*paths, memory=20_000_000, **given), expected)
    assert kept < 2.5 * 40 * 2
    assert sum(read) - kept <= (40 + 10) * 2


def test_single_precision_stays(tmp_path: Path) -> None:
    X, Y = numbers(200, 1).astype(np.float32), numbers(200, 2, 0.5).astype(np.float32)
    paths = write_npy(X, tmp_path / "x.npy"), write_npy(Y, tmp_path / "y.npy")
    for estimator in ("complete", "incomplete"):
        assert_same(
            compare(*paths, estimator=estimator, random_state=0), compare(X, Y, estimator=estimator, random_state=0)
        )


def test_a_map_is_an_array_unless_memory_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = [np.load(write_npy(numbers(90, i), tmp_path / f"{i}.npy"), mmap_mode="r") for i in range(2)]
    used: list[Any] = []
    monkeypatch.setattr("kernsift.api.read_pair", lambda *a, **b: used.append(read_pair(*a, **b)) or used[-1])
    expected = compare(*mapped, random_state=0)
    assert_same(compare(*mapped, random_state=0, memory="1GB"), expected)
    assert [table.memory for pair, _ in used for table in pair] == [None, None, 10**9, 10**9]


def test_memory_is_checked_for_tables_in_memory_too() -> None:
    with pytest.raises(InputError, match=r"^memory: a size is needed, got 'much'; .*\.$"):
        compare(numbers(20, 1), numbers(20, 2), memory="much")


# What is read, and how much memory it takes --------------------------------------------------------------------------


def loads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, str]]:
    """What is read from Parquet files: file, group of rows, column."""
    found: list[tuple[str, int, str]] = []
    load = parquet.ParquetFragment.load

    def spy(self: Any, first: int, last: int, names: Any, reader: Any) -> Any:
        found.extend((os.path.basename(self.name), group, name) for group in range(first, last) for name in names)
        return load(self, first, last, names, reader)

    monkeypatch.setattr(parquet.ParquetFragment, "load", spy)
    return found


@pytest.mark.parametrize(("estimator", "times", "again"), [("incomplete", 1, 4), ("linear", 1, 4), ("complete", 2, 0)])
def test_how_often_a_file_is_read(
    estimator: str, times: int, again: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draw-based estimators read a column once; the complete one for bandwidths and points, and for counts.

    Draw-based ones read the selected features again: for pictures, and for draws behind effects and correlations.
    """
    monkeypatch.setattr(budget, "SMALLEST_MEMORY", 1)
    rng = np.random.default_rng(0)
    paths = []
    for name in "xy":
        table = pa.table({f"f{j}": rng.normal(size=20_000) for j in range(12)})
        paths.append(write_parquet(table, tmp_path / name, 3_000))
    found = loads(monkeypatch)
    # One column of all rows fits into the smaller memory: reading one at a time takes longer than reading twice.
    memory = 5_000_000 if estimator == "complete" else 16_000_000
    result = compare(*paths, estimator=estimator, k=2, random_state=0, memory=memory)
    counts = {place: found.count(place) for place in set(found)}
    assert len(counts) == 2 * 7 * 12, "every column of every group"
    for (_, _, name), count in counts.items():
        assert count == times if name not in result.names else times + min(1, again) <= count <= times + again


@pytest.mark.parametrize("estimator", ["incomplete", "linear", "block", "complete"])
def test_a_file_is_read_once_where_every_feature_is_listed(
    estimator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scales of effects, rows for pictures and draws behind correlations are kept when the scores are computed."""
    rng = np.random.default_rng(1)
    values = [rng.normal(0.3 * place, 1, size=(8_000, 12)) for place in range(2)]
    tables = [pa.table({f"f{j}": column for j, column in enumerate(own.T)}) for own in values]
    paths = [write_parquet(table, tmp_path / f"{place}", 1_200) for place, table in enumerate(tables)]
    given = {"estimator": estimator, "random_state": 0}
    expected = compare(*tables, **given)
    for kept in (2**20, 0):  # few draws are kept as a whole
        monkeypatch.setattr("kernsift.estimators.draws.moments._KEPT", kept)
        with monkeypatch.context() as patch:
            found = loads(patch)
            result = compare(*paths, memory="100MB", **given)
            assert_same(result, expected)
            assert result.rejected.any() and result.clusters
        assert sorted(found) == sorted(set(found)) and len(found) == 2 * 7 * 12
        if estimator in ("linear", "block"):
            np.testing.assert_allclose(result.intervals, expected.intervals, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("estimator", ["incomplete", "complete"])
def test_pictures_and_effects_need_the_file_no_longer(estimator: str, tmp_path: Path) -> None:
    paths = [write_parquet(mixed(10_000, i, i / 20), tmp_path / f"{i}.parquet", 3_000) for i in range(2)]
    whole = compare(*paths, estimator=estimator, random_state=0)
    result = compare(*paths, estimator=estimator, random_state=0, memory="200MB")
    for path in paths:
        path.unlink()
    assert tuple(result.pictures) == tuple(whole.pictures)
    assert result.clusters == whole.clusters
    np.testing.assert_allclose(np.array(result.intervals, float), np.array(whole.intervals, float), atol=1e-9)
    np.testing.assert_allclose(result.effects, whole.effects, atol=1e-9)
    assert result.to_html()


@pytest.mark.parametrize("estimator", ["incomplete", "linear", "block", "cross"])
def test_a_column_that_does_not_fit_is_one_clear_error(
    estimator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "SMALLEST_MEMORY", 1)
    monkeypatch.setattr(rectangles, "CHUNK", 10_000)
    paths = [write_npy(np.random.default_rng(i).normal(size=(40_000, 2)), tmp_path / f"{i}.npy") for i in range(2)]
    with pytest.raises(InputError, match=r"^memory: .* MB may be used; allow more, or use estimator='complete'.*\.$"):
        compare(*paths, estimator=estimator, memory=500_000)
    compare(*paths, estimator="complete", memory=500_000, random_state=0)


def test_a_group_that_does_not_fit_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "SMALLEST_MEMORY", 1)
    paths = [write_npy(np.random.default_rng(i).normal(size=(9_000, 3)), tmp_path / f"{i}.npy") for i in range(2)]
    groups = {"pair": ["x0", "x1"]}
    with pytest.raises(InputError, match=r"^memory: .*groups.* allow more, or use estimator='incomplete'\.$"):
        compare(*paths, groups=groups, memory=8_000_000)
    compare(*paths, groups=groups, estimator="incomplete", memory=8_000_000, random_state=0)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("estimator", ["complete", "cross"])
@pytest.mark.parametrize("columns", [1, 3, 7])
def test_columns_that_are_read_at_a_time_change_no_bit(
    columns: int, estimator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [mixed(400, 1), mixed(300, 2, 0.4)]
    paths = [write_parquet(table, tmp_path / f"{i}.parquet", 50) for i, table in enumerate(tables)]
    expected = compare(*tables, estimator=estimator, random_state=0), relate(tables[0], "f0", random_state=0)
    monkeypatch.setattr(block_sizes, "_LEAST_PIECE", 1)
    read = []
    together = feature_blocks.read_together
    monkeypatch.setattr(feature_blocks, "read_together", lambda blocks: read.append(blocks) or together(blocks))
    for one in range(2):
        monkeypatch.setattr(block_sizes, "_LOAD_BYTES", 8 * (700 if one == 0 else 400) * columns)
        found = (
            compare(*paths, estimator=estimator, memory=10**9, random_state=0)
            if one == 0
            else relate(paths[0], "f0", memory=10**9, random_state=0)
        )
        assert read and all(sum(block.width for block in blocks) <= columns for blocks in read)
        read.clear()
        assert np.array_equal(found.log_pvalues, expected[one].log_pvalues)
        assert np.array_equal(found.scores, expected[one].scores)
        assert np.array_equal(found.effects, expected[one].effects)
        assert_same(found, expected[one])


def test_rows_cannot_be_resampled_from_a_table_that_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "SMALLEST_MEMORY", 1)
    monkeypatch.setattr(rectangles, "CHUNK", 10_000)
    paths = [write_npy(numbers(4_000, i), tmp_path / f"{i}.npy") for i in range(2)]
    given: dict[str, Any] = {"estimator": "incomplete", "test": Multiscale(resampling="rows", replicates=10)}
    with pytest.raises(InputError, match=r"^memory: .* are needed at a time, .*\.$"):
        compare(*paths, memory=440_000, **given)


@pytest.mark.parametrize("estimator", ["complete", "incomplete"])
def test_how_far_it_is_is_told(estimator: str, tmp_path: Path) -> None:
    paths = [write_parquet(mixed(400, i), tmp_path / f"{i}.parquet", 100) for i in range(2)]
    heard: list[tuple[str, int, int]] = []
    with progress_callback(lambda *said: heard.append(said)):
        compare(*paths, estimator=estimator, random_state=0, n_jobs=2)
    stages = {stage: (done, total) for stage, done, total in heard}
    assert stages["scoring features"] == (10, 10)
    if estimator == "complete":
        assert stages["reading columns"] == (10, 10)


# Faults --------------------------------------------------------------------------------------------------------------


@contextmanager
def at_first(stage: str, fault: Callable[[], None]) -> Iterator[None]:
    """Do something when a stage is first told of."""
    left = [fault]

    def heard(reported: str, done: int, total: int) -> None:
        if left and reported == stage and done < total:
            left.pop()()

    with progress_callback(heard):
        yield
    assert not left, "the fault did not come to pass"


def cut_short(path: Path) -> None:
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size // 2)


FAULTS: dict[str, Callable[[Path], None]] = {"removed": lambda path: path.unlink(), "changed": cut_short}
WRITERS: dict[str, Callable[[pa.Table, Path], Path]] = {
    "parquet": lambda table, path: write_parquet(table, path, 50),
    "feather": lambda table, path: write_feather(table, path, chunksize=50),
    "plain feather": lambda table, path: write_feather(table, path, chunksize=50, compression="uncompressed"),
    "npy": lambda table, path: write_npy(np.column_stack([table.column(j) for j in range(7)]), path),
    "hdf5": lambda table, path: write_hdf5(np.column_stack([table.column(j) for j in range(7)]), path),
}


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("estimator", ["complete", "incomplete"])
def test_a_file_that_goes_in_the_middle_is_named(name: str, fault: str, estimator: str, tmp_path: Path) -> None:
    paths = []
    for i, ending in enumerate(("x.npy", "y.npy")):
        paths.append(tmp_path / (ending if name == "npy" else ending[0]))
        WRITERS[name](mixed(400, i), paths[-1])
    stage = "counting cells" if estimator == "complete" else "scoring features"
    with (
        pytest.raises(InputError, match=rf"^Y: .*{paths[1].name}.* was {fault} while it was being read; .*\.$"),
        at_first(stage, lambda: FAULTS[fault](paths[1])),
    ):
        compare(*paths, estimator=estimator, memory=60_000, n_jobs=1, random_state=0)


def write_bad_parts(kind: str, folder: Path) -> Path:
    table = mixed(60, 1)
    folder.mkdir()
    pa.parquet.write_table(table, folder / "a.parquet")
    other = table.drop_columns(["f1"])
    if kind == "types":
        other = table.set_column(1, "f1", pa.array(["text"] * 60))
    pa.parquet.write_table(other, folder / "b.parquet")
    return folder


PARTS = {
    "columns": ["b.parquet lacks the column 'f1'", "a.parquet has"],
    "types": ["column 'f1' holds text in", "b.parquet but numbers in", "a.parquet"],
}


@pytest.mark.parametrize("kind", PARTS)
def test_parts_that_do_not_go_together_are_named(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_bad_parts(kind, tmp_path / "parts")
    with pytest.raises(InputError, match=r"^Y: ") as caught:
        compare(mixed(50, 2), folder)
    assert all(said in str(caught.value) for said in PARTS[kind])
    fine = write_parquet(mixed(50, 2), tmp_path / "fine.parquet")
    assert main(["compare", str(fine), str(folder), "--report", str(tmp_path / "r.html")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert all(said in err for said in PARTS[kind])
    assert not (tmp_path / "r.html").exists()


def test_text_leaves_nothing_behind(tmp_path: Path, spool: Path) -> None:
    X, Y = mixed(200, 1), mixed(150, 2, 0.5)
    paths = write_csv(X, tmp_path / "x.csv"), write_csv(Y, tmp_path / "y.csv")
    result = compare(*paths, random_state=0)
    assert result.names
    del result
    assert os.listdir(spool) == []


@pytest.mark.parametrize("way", ["library", "command line"])
def test_no_space_for_text_is_one_clear_error(
    way: str, tmp_path: Path, spool: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(text, "_CHUNK", 400)
    monkeypatch.setattr(text, "_PER_COLUMN", 10)
    paths = [str(write_csv(mixed(200, i), tmp_path / f"{i}.csv")) for i in range(2)]
    put, written = text.TextFile._write_chunk, []

    def full(self: text.TextFile, cells: Any) -> None:
        written.append(cells.n)
        if len(written) > 60:  # in the middle of the second file
            raise OSError(errno.ENOSPC, "No space left on device")
        put(self, cells)

    monkeypatch.setattr(text.TextFile, "_write_chunk", full)
    if way == "library":
        with pytest.raises(InputError, match=r"^[XY]: there is no space left in .*TMPDIR\.$"):
            compare(*paths, memory="100MB")
    else:
        report = tmp_path / "r.html"
        assert main(["compare", *paths, "--memory", "100MB", "--report", str(report)]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and "there is no space left in" in err
        assert not report.exists()
    assert len(written) > 60
    assert os.listdir(spool) == []


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("fault", FAULTS)
def test_the_command_line_names_a_file_that_goes_in_the_middle(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [write_parquet(mixed(400, i), tmp_path / f"{i}.parquet", 50) for i in range(2)]
    before = set(tmp_path.iterdir())
    report, answer = tmp_path / "r.html", tmp_path / "answer.json"
    given = ["--memory", "100000", "--report", str(report), "--json", "-o", str(answer)]
    with at_first("counting cells", lambda: FAULTS[fault](paths[1])):
        assert main(["compare", *map(str, paths), *given]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and f"was {fault} while it was being read" in err and str(paths[1]) in err
    assert set(tmp_path.iterdir()) <= before


# The command line ----------------------------------------------------------------------------------------------------


def asked(capsys: pytest.CaptureFixture[str], *arguments: Any) -> dict[str, Any]:
    assert main([str(argument) for argument in (*arguments, "--json", "--seed", "5")]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    for feature in answer["features"]:
        del feature["description"]  # which names the files
    return answer


def test_the_command_line_reads_in_pieces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, Y = mixed(300, 1), mixed(280, 2, 0.7)
    whole = [write_parquet(t, tmp_path / f"{i}.parquet") for i, t in enumerate((X, Y))]
    expected = asked(capsys, "compare", *whole, "--k", 3)
    for name in ("parquet", "parts", "feather", "csv"):
        folder = tmp_path / name.replace(" ", "")
        folder.mkdir()
        stored = [TABLES[name](t, folder / f"t{i}") for i, t in enumerate((X, Y))]
        found = asked(capsys, "compare", *stored, "--k", 3, "--memory", "100MB")
        assert found["features"] == expected["features"], name
        assert (
            asked(capsys, "relate", stored[0], "--target", "f0", "--memory", "100MB")["features"]
            == (asked(capsys, "relate", whole[0], "--target", "f0")["features"])
        )


@pytest.mark.parametrize("name", ["zarr", "hdf5"])
def test_the_command_line_reads_arrays(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = [numbers(300, 5), numbers(280, 6, 0.5)]
    whole = [write_npy(values, tmp_path / f"{i}.npy") for i, values in enumerate(data)]
    stored = [ARRAYS[name](values, tmp_path / f"t{i}") for i, values in enumerate(data)]
    expected = asked(capsys, "compare", *whole, "--exclude", "x5")
    assert asked(capsys, "compare", *stored, "--exclude", "x5")["features"] == expected["features"]
    found = asked(capsys, "relate", stored[0], "--target", "x0", "--exclude", "x5")
    assert found["features"] == asked(capsys, "relate", whole[0], "--target", "x0", "--exclude", "x5")["features"]


def test_large_text_is_read_in_pieces_without_being_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [TABLES["csv"](mixed(300, i), tmp_path / str(i)) for i in range(2)]
    opened: list[str] = []
    whole = text.TextFile
    monkeypatch.setattr(text, "TextFile", lambda read, *given: opened.append(read.path) or whole(read, *given))
    expected = asked(capsys, "compare", *paths)
    assert opened == []
    for limit in ("_CHUNK", "_WHOLE"):
        monkeypatch.setattr(text, limit, 1000)
    monkeypatch.setattr(text, "_PER_COLUMN", 10)
    assert asked(capsys, "compare", *paths)["features"] == expected["features"]
    assert opened == [str(path) for path in paths]


@pytest.mark.parametrize("name", ["parquet", "parts", "feather"])
def test_small_tables_are_read_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pass over many small groups of rows would take longer than reading all of them once."""
    paths = [TABLES[name](mixed(300, i), tmp_path / str(i)) for i in range(2)]
    expected = compare(*paths, random_state=0)
    monkeypatch.setattr(opening, "SMALL", 16)
    assert open_table(paths[0], "X").in_memory
    assert not open_table(paths[0], "X", memory="100MB").in_memory
    assert_same(compare(*paths, random_state=0), expected)
    size = 8 * 300 * mixed(2, 0).num_columns
    for spare in (0, -1):
        monkeypatch.setattr(opening, "parse_memory", lambda _, spare=spare: 16 * size + spare)
        assert open_table(paths[0], "X").in_memory == (spare == 0)


@pytest.mark.parametrize("kind", ["parquet", "feather", "npy", "records"])
def test_integers_beyond_float64_in_small_files_are_those_of_memory(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "SMALL", 16)
    frames = [pd.DataFrame({"a": np.arange(0, 60, 2) % 40 + 2**60 + 9 * i, "b": np.arange(30) % 7}) for i in range(2)]
    expected, paths = compare(*frames, random_state=0), [str(tmp_path / f"{i}.{kind}") for i in range(2)]
    for frame, path in zip(frames, paths, strict=True):
        if kind == "parquet":
            frame.to_parquet(path, row_group_size=8)
        elif kind == "feather":
            frame.to_feather(path)
        else:
            with open(path, "wb") as file:
                np.save(file, frame.to_numpy() if kind == "npy" else frame.to_records(index=False))
    found = compare(*paths, random_state=0)
    np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9)
    assert "median 1,152,921,504,606,846,999 v" in found.describe(0) == expected.describe(0)
    with pytest.raises(InputError, match=r"integers beyond 2\^53 in '(a|x0)'"):
        compare(*paths, memory="100MB")


def test_an_index_in_a_parquet_file_is_left_out_with_a_note(tmp_path: Path) -> None:
    frame = pd.DataFrame({"city": ["u", "v"] * 10, "x": np.arange(20.0)})
    frame.set_index("city").to_parquet(tmp_path / "x.parquet")
    found = compare(tmp_path / "x.parquet", tmp_path / "x.parquet", random_state=0)
    assert "Index of the stored data frame, so left out: 'city'." in found.notes


def test_guesses_about_large_files_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for i in range(2):
        table = mixed(400, i).append_column("row_id", pa.array(range(400)))
        table = table.append_column("name", pa.array([f"n{i}{j}" for j in range(400)]))
        table = table.append_column("when", pa.array(range(0, 4000, 10), type=pa.timestamp("s")))
        paths.append(write_parquet(table, tmp_path / f"{i}.parquet"))
    answer = asked(capsys, "compare", *paths, "--memory", "100MB", "--k", "all")
    notes = " ".join(answer["notes"])
    assert "Row numbers, so left out: 'row_id'." in notes
    assert "left out as identifiers: 'name'." in notes
    assert notes.count("Dates, compared in days: 'when'.") == 1
    assert "when" in [feature["feature"] for feature in answer["features"]]


def test_a_spreadsheet_beside_a_large_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, Y = mixed(60, 1), mixed(50, 2)
    Y.to_pandas().to_excel(tmp_path / "y.xlsx", index=False)
    path = write_parquet(X, tmp_path / "x.parquet")
    expected = asked(capsys, "compare", path, tmp_path / "y.xlsx")
    assert asked(capsys, "compare", path, tmp_path / "y.xlsx", "--memory", "1GB")["features"] == expected["features"]


@pytest.mark.parametrize(("given", "said"), [("much", "a size is needed"), ("1kB", "at least 32MiB are needed")])
def test_a_size_that_is_none_is_refused(
    given: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write_parquet(mixed(60, 1), tmp_path / "x.parquet"))
    assert main(["compare", path, path, "--memory", given]) == 2
    assert capsys.readouterr().err.startswith(f"kernsift: --memory: {said}")
