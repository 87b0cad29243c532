"""Open files: closed after reading, limited in number, and not shared by threads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from kernsift import Incomplete, compare
from kernsift.data.formats import arrow, open_source
from kernsift.data.formats.arrow import Readers
from kernsift.data.formats.parquet import ParquetFragment
from kernsift.data.inputs import as_pair
from kernsift.exceptions import InputError
from kernsift.execution.threads import thread_limit


class Files:
    """Counts how often each file is opened, and how many of what was opened are still held."""

    def __init__(self) -> None:
        self.opened: Counter[int] = Counter()
        self.readers = Readers()

    def read(self, number: int, columns: int = 1) -> Any:
        def opened() -> object:
            self.opened[number] += 1
            return object()

        with self.readers.of(number, opened, columns) as reader:
            return reader


def test_readers_are_used_again_while_somebody_reads() -> None:
    files = Files()
    assert files.read(3) is not files.read(3)
    with files.readers.reading():
        first = files.read(3)
        assert files.read(3) is first and files.read(4) is not first and files.read(3) is first
        with files.readers.reading():
            assert files.read(3) is first
        assert files.read(3) is first
    assert files.read(3) is not first
    assert files.opened == {3: 4, 4: 1}


def test_what_stays_open_is_bounded_and_a_second_pass_finds_most_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_FILES", 4)
    monkeypatch.setattr(arrow, "_COLUMNS", 30)
    for columns, stay in ((1, 4), (10, 3), (29, 1), (1000, 1)):
        files = Files()
        with files.readers.reading():
            for _ in range(2):
                for number in range(6):
                    files.read(number, columns)
                    assert len(files.readers._idle) <= stay
                    again = sum(files.opened.values())
                    files.read(number, columns)  # the next group of rows of the same file
                    assert sum(files.opened.values()) == again
        # Of the second pass all but the last find their file open; one gives way to whatever is read just now.
        assert sum(files.opened.values()) <= 12 - (stay - 1)


def test_no_reader_is_used_by_two_threads() -> None:
    files, busy, lock = Files(), set(), threading.Lock()

    def read(number: int) -> None:
        with files.readers.of(number % 3, object, 1) as reader:
            with lock:
                assert id(reader) not in busy
                busy.add(id(reader))
            threading.Event().wait(0.0005)
            with lock:
                busy.remove(id(reader))

    with files.readers.reading(), ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(200)))
    assert not files.readers._idle


def test_a_reader_that_failed_is_not_used_again() -> None:
    files = Readers()
    with files.reading():
        with pytest.raises(InterruptedError), files.of(0, object, 1):
            raise InterruptedError
        assert not files._idle


def parts(folder: Path, tables: list[pa.Table]) -> str:
    folder.mkdir()
    for number, table in enumerate(tables):
        pa.parquet.write_table(table, folder / f"{number}.parquet", row_group_size=1000)
    return str(folder)


@pytest.fixture
def samples(tmp_path: Path) -> list[str]:
    rng = np.random.default_rng(5)
    return [
        parts(tmp_path / name, [pa.table({f"c{j}": rng.normal(size=4000) for j in range(20)}) for _ in range(3)])
        for name in ("one", "two")
    ]


def test_blocks_of_columns_open_no_file_anew(samples: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: Counter[str] = Counter()
    whole = ParquetFragment.opened

    def counting(self: ParquetFragment) -> Any:
        opened[self.name] += 1
        return whole(self)

    monkeypatch.setattr(ParquetFragment, "opened", counting)
    source = open_source(samples[0], "X")
    for inside in (source, source.pick(range(19, 0, -1)), source.between(10, 11_990)):
        opened.clear()
        with inside.reading():
            for column in range(19):
                inside.read([column])
        assert set(opened.values()) == {1} and len(opened) == 3
    # Without a word about it, once for each block.
    opened.clear()
    for column in range(4):
        source.read([column])
    assert set(opened.values()) == {4}
    # A call whose blocks have 8 of 20 columns: 3 of them, and two threads.
    monkeypatch.setattr("kernsift.estimators.block_sizes._BLOCK_BYTES", 8 * 8 * 24_000)
    monkeypatch.setattr("kernsift.estimators.block_sizes._ROW", 1)
    opened.clear()
    compare(*samples, estimator=Incomplete(r=5), memory="40MB", n_jobs=2, random_state=0)
    several = max(opened.values())
    opened.clear()
    monkeypatch.setattr("kernsift.estimators.block_sizes._BLOCK_BYTES", 8 * 24_000)
    compare(*samples, estimator=Incomplete(r=5), memory="40MB", n_jobs=2, random_state=0)
    assert max(opened.values()) <= several + 2  # 20 blocks: a second thread may want a reader of its own


@pytest.mark.parametrize("missing", ["error", "drop"])
def test_two_threads_read_what_one_does(missing: str, samples: list[str], tmp_path: Path) -> None:
    table = pa.concat_tables([pa.parquet.read_table(f"{samples[0]}/{part}.parquet") for part in range(3)])
    if missing == "drop":
        holes = np.random.default_rng(0).random(len(table)) < 0.3
        holes[:2500] = True  # pieces of which nothing is left
        table = table.set_column(3, "c3", pa.array(table["c3"].to_numpy(), mask=holes))
    path = parts(tmp_path / "holes", [table.slice(start, 1700) for start in range(0, len(table), 1700)])
    X, _ = as_pair(path, samples[1], missing=missing, memory="40MB")
    rng = np.random.default_rng(1)
    for rows in (None, slice(100, 7000), rng.integers(X.n, size=500), np.sort(rng.integers(X.n, size=500))):
        columns = rng.permutation(20)[:11]
        found = []
        for jobs in (1, 2):
            with thread_limit(jobs):
                found.append(X.part(columns, rows))
        np.testing.assert_array_equal(*found)
        expected = np.column_stack([table.column(int(j)).to_numpy() for j in range(20)])
        expected = expected[~np.isnan(expected).any(axis=1)]
        np.testing.assert_array_equal(found[0], expected[slice(None) if rows is None else rows][:, columns])


def test_an_error_in_one_of_the_threads_is_the_only_one(samples: list[str]) -> None:
    X, _ = as_pair(*samples, memory="40MB")
    Path(samples[0], "1.parquet").write_bytes(b"PAR1 nothing PAR1")
    with (
        thread_limit(2),
        pytest.raises(InputError, match=r"^X: .*1\.parquet was changed while it was being read; .*\.$"),
    ):
        X.part(slice(None))
    assert not X.source._readers._idle  # type: ignore[attr-defined]


def test_a_reader_holds_on_to_nothing_that_it_read(tmp_path: Path) -> None:
    """Or a folder of files that stay open would be in memory as a whole."""
    table = pa.table({f"c{j}": np.random.default_rng(j).normal(size=50_000) for j in range(10)})
    pa.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=10_000)
    part = ParquetFragment(str(tmp_path / "t.parquet"), "X")
    before = pa.total_allocated_bytes()
    reader = part.opened()
    read = part.load(0, 5, table.column_names, reader)
    assert comes_down_to(before + 1.1 * read.nbytes)
    del read
    assert comes_down_to(before + 10_000)


def comes_down_to(most: float) -> bool:
    """Whether Arrow has at most so many bytes in the end; its own threads let go of theirs a moment later."""
    patience = time.monotonic() + 5
    while pa.total_allocated_bytes() > most and time.monotonic() < patience:
        time.sleep(0.01)
    return bool(pa.total_allocated_bytes() <= most)
