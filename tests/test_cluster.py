"""Calls on a Dask cluster give the results of one process, also when workers are lost.

The clusters are real ones, with processes of their own; each number of workers is started once.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from threading import Timer
from typing import Any

import cloudpickle
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, Status

from kernsift import Incomplete, InputError, Multiscale, Result, compare, relate
from kernsift.data.inputs import as_pair, as_table
from kernsift.data.table_parts import row_chunks
from kernsift.data.tables import stack
from kernsift.estimators import HSIC, MMD
from kernsift.estimators.feature_blocks import blocks_of
from kernsift.execution import dask_workers as cluster
from kernsift.execution import parallel
from kernsift.execution.progress import progress_callback
from kernsift.kernels.fitted import fit_kernels

# Windows has no such signal, and ends the process for any.
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)

# What is off about some estimators on few rows is said in a warning, and tested in test_calibration.
pytestmark = [
    pytest.mark.filterwarnings("ignore::kernsift.CalibrationWarning"),
    # Dask's own: data that the tests put into graphs, and files that it closes a little late.
    pytest.mark.filterwarnings("ignore:Sending large graph:UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def clients() -> Iterator[Callable[..., Client]]:
    """A client of a cluster with so many workers, none of which is the default client."""
    with ExitStack() as stack:
        known: dict[int, Client] = {}

        def start(workers: int) -> Client:
            with dask.config.set({"distributed.worker.profile.enabled": False}):  # which takes processor time
                started = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0")
            stack.callback(lambda: started.close(timeout=20))
            return stack.enter_context(Client(started, set_as_default=False))

        def client(workers: int, *, new: bool = False) -> Client:
            if new or workers not in known:
                known[workers] = start(workers)
            # Tests kill workers. Dask starts new ones, but not those that die while they start.
            known[workers].cluster.scale(workers)
            try:
                known[workers].wait_for_workers(workers, timeout=30)
                wait_for_nannies(known[workers].cluster)
            except TimeoutError:
                known[workers] = start(workers)
            return known[workers]

        yield client


def wait_for_nannies(started: LocalCluster, timeout: float = 30) -> None:
    """Until each of them knows that its worker runs: a worker that dies before is not started again."""
    until = time.monotonic() + timeout
    while any(nanny.status != Status.running for nanny in started.workers.values()):
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def sends_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As to workers on other machines."""
    monkeypatch.setattr(cluster.DaskWorkers, "on_this_machine", lambda self: False)


@pytest.fixture
def client(clients: Callable[..., Client]) -> Client:
    return clients(3)


@pytest.fixture
def never_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask collections are left on the cluster, however small they are."""
    monkeypatch.setattr("kernsift.data.formats.opening.values_bytes", lambda memory: 0)


def samples(n: int = 300, d: int = 130, seed: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(n, d)), rng.normal(size=(n + 17, d))
    Y[:, 1] += 0.7
    Y[:, 2] *= 1.8
    return X, Y


def mixed(n: int = 20_000) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Numbers, whole numbers and categories, one of which is in one sample only."""
    rng = np.random.default_rng(8)
    frames = []
    for count, letters in ((n, "abc"), (n - 900, "abcd")):
        frame = pd.DataFrame(rng.normal(size=(count, 4)), columns=list("uvwx"))
        frames.append(frame.assign(dice=rng.integers(1, 7, count), letter=rng.choice(list(letters), count)))
    frames[1]["v"] += 0.05
    return frames[0], frames[1]


def a_worker(client: Client, rng: np.random.Generator | None = None) -> int:
    """The process of a worker, the first or any; one that dies just now cannot be asked."""
    for _ in range(50):
        try:
            found = sorted(client.run(os.getpid).values())
            return int(found[0] if rng is None else rng.choice(found))
        except (OSError, IndexError):
            time.sleep(0.2)
    raise AssertionError("no worker answers")


def same(one: Result, other: Result, *, names: bool = True) -> None:
    assert not names or one.names == other.names
    np.testing.assert_array_equal(one.selected, other.selected)
    np.testing.assert_allclose(other.pvalues, one.pvalues, rtol=1e-9, atol=0)
    np.testing.assert_allclose(other.scores, one.scores, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(other.effects, one.effects, rtol=1e-9, atol=1e-12)


# Answers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("estimator", ["complete", "cross", Incomplete(r=40)], ids=["complete", "cross", "incomplete"])
def test_any_number_of_workers_gives_the_answer_of_one_process(
    clients: Callable[..., Client], workers: int, estimator: Any
) -> None:
    X, Y = samples()
    given = {"k": 6, "estimator": estimator, "random_state": 3}
    same(compare(X, Y, **given), compare(X, Y, client=clients(workers), **given))


def test_workers_on_this_machine_are_sent_no_arrays(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """They share its cores, so that as many threads do the same."""
    monkeypatch.undo()
    sent: list[Any] = []
    submit = cluster.DaskWorkers._submit
    monkeypatch.setattr(cluster.DaskWorkers, "_submit", lambda self, *call: sent.append(call) or submit(self, *call))
    X, Y = samples(60, 4)
    expected = compare(X, Y, random_state=3)
    same(expected, compare(X, Y, random_state=3, client=client, n_jobs=3))
    assert not sent
    same(expected, compare(X, Y, random_state=3, client=client, n_jobs=2))
    assert sent, "three workers are more than two threads"
    sent.clear()
    monkeypatch.setattr(cluster.DaskWorkers, "_hosts", Counter({"203.0.113.9": 3}))
    same(expected, compare(X, Y, random_state=3, client=client, n_jobs=3))
    assert sent, "workers elsewhere have cores of their own"


@pytest.mark.parametrize("estimator", list(MMD))
def test_every_estimator_of_samples(client: Client, estimator: str) -> None:
    X, Y = samples(120, 70)
    given = {"k": 4, "estimator": estimator, "random_state": 3, "test": Multiscale(replicates=500)}
    same(compare(X, Y, **given), compare(X, Y, client=client, **given))


@pytest.mark.parametrize("estimator", list(HSIC))
def test_every_estimator_of_a_response(client: Client, estimator: str) -> None:
    X, _ = samples(200, 70)
    y = np.column_stack([X[:, 1] ** 2, X[:, 5]])
    for response in (y[:, 0], y, np.where(y[:, 1] > 0, "high", "low")):
        given = {"k": 4, "estimator": estimator, "random_state": 3}
        same(relate(X, response, **given), relate(X, response, client=client, **given))


def test_groups_categories_and_kernels_of_the_users_own(client: Client) -> None:
    X, Y = (frame.iloc[:400] for frame in mixed())
    given: dict[str, Any] = {"k": None, "groups": {"pair": ["u", "w"], "both": ["x", "letter"]}, "random_state": 1}
    same(compare(X, Y, **given), compare(X, Y, client=client, **given))
    X, Y = samples(80, 5)
    # A function that only this process knows by name.
    given = {"kernel": lambda a, b: np.exp(-np.abs(a - b).sum(axis=-1)), "random_state": 1}
    same(compare(X, Y, **given), compare(X, Y, client=client, **given))


def test_a_worker_is_sent_the_columns_of_its_block_and_nothing_else() -> None:
    X, Y = samples()
    table = stack([as_table(X), as_table(Y)])
    kernels = fit_kernels(table, rng=np.random.default_rng(0))
    block, *_ = blocks_of(table, kernels, np.arange(table.n) % 2)
    message = pickle.dumps(block)
    back = pickle.loads(message)
    assert len(message) < 1.1 * 8 * table.n * len(block.features)
    np.testing.assert_array_equal(back.table.values, np.vstack([X, Y])[:, block.features])
    np.testing.assert_array_equal(back.features, block.features)
    np.testing.assert_array_equal(back.cells, block.cells)
    assert back.cells.dtype == np.uint8
    np.testing.assert_array_equal(back.kernels.bandwidth, kernels.bandwidth[block.features])


# Tables that are not in memory ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    for name, frame in zip("XY", mixed(), strict=True):
        (folder / name).mkdir()
        for part in range(4):
            frame.iloc[part * 5000 : (part + 1) * 5000].to_parquet(folder / name / f"{part}.parquet")
        np.save(folder / f"{name}.npy", frame[list("uvwx")].to_numpy())
    return folder


@pytest.mark.parametrize("estimator", ["complete", "cross", "incomplete"])
def test_workers_read_files_themselves(client: Client, files: Path, estimator: str) -> None:
    given = {"k": 3, "estimator": estimator, "random_state": 2}
    X, Y = mixed()
    same(compare(X, Y, **given), compare(files / "X", files / "Y", client=client, **given))
    X, Y = (frame[list("uvwx")].to_numpy() for frame in (X, Y))
    same(compare(X, Y, **given), compare(files / "X.npy", files / "Y.npy", client=client, **given))


def test_chunks_of_rows_end_where_those_of_the_files_do(files: Path) -> None:
    X, Y = as_pair(files / "X", files / "Y", memory="1GB")
    table = stack([X, Y])
    chunks = list(row_chunks(table, np.arange(3), 4))
    assert [(chunk.place, chunk.start, chunk.rows) for chunk in chunks] == [
        (0, 0, slice(0, 5000)),
        (0, 5000, slice(5000, 10000)),
        (0, 10000, slice(10000, 15000)),
        (0, 15000, slice(15000, 20000)),
        (1, 20000, slice(0, 5000)),
        (1, 25000, slice(5000, 10000)),
        (1, 30000, slice(10000, 19100)),
    ]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("estimator", ["complete", "incomplete"])
def test_files_on_any_number_of_workers(
    clients: Callable[..., Client], files: Path, workers: int, estimator: str
) -> None:
    given = {"k": 3, "estimator": estimator, "random_state": 2}
    found = compare(files / "X", files / "Y", client=clients(workers), memory="100MB", **given)
    same(compare(*mixed(), **given), found)


def test_workers_on_one_machine_share_its_memory(clients: Callable[..., Client], files: Path) -> None:
    assert parallel.task_memory(10**9) == 10**9
    for workers in (1, 3):
        with cluster.client_in_use(clients(workers)):
            share = 10**9 // workers - (150 << 20)  # less what a process takes for itself
            assert parallel.task_memory(10**9) == share
            assert as_pair(files / "X", files / "Y", memory="1GB")[0].memory == share
    with cluster.client_in_use(clients(3)):
        assert parallel.task_memory(40 << 20) == 32 << 20  # less than this is of no use


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="bytes that a process read are counted by Linux")
@pytest.mark.parametrize(
    ("estimator", "k", "passes"),
    [
        ("incomplete", 1, 1.4),
        ("incomplete", None, 1.1),
        ("linear", None, 1.1),
        ("cross", None, 1.1),
        ("complete", None, 1.1),
    ],
)
def test_how_often_workers_read_a_file(
    client: Client, tmp_path: Path, estimator: str, k: int | None, passes: float
) -> None:
    """Bandwidths, scales of effects and rows for pictures are found by whoever reads a block of columns.

    With k, draw-based estimators read the selected features again for their effects.
    """
    X, Y = samples(20_000, 60)
    for name, values in zip("xy", (X, Y), strict=True):
        frame = pd.DataFrame(values, columns=[f"c{j}" for j in range(60)])
        frame.to_parquet(tmp_path / name, row_group_size=5000)
        frame[:300].to_parquet(tmp_path / f"short_{name}", row_group_size=100)
    size = sum((tmp_path / name).stat().st_size for name in "xy")

    def read() -> int:
        return _bytes_read() + sum(client.run(_bytes_read).values())

    given: dict[str, Any] = {"estimator": estimator, "k": k, "random_state": 0, "missing": "error"}
    # What a worker imports is read from files, too.
    client.run(_compare_once, tmp_path / "short_x", tmp_path / "short_y", given)
    expected, before = compare(X, Y, **given), read()
    result = compare(tmp_path / "x", tmp_path / "y", client=client, memory="1GB", **given)
    assert 0.9 * size < read() - before < passes * size
    same(expected, result, names=False)


def _compare_once(X: Path, Y: Path, given: dict[str, Any]) -> None:
    compare(X, Y, memory="1GB", **given)


def _bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])


@pytest.mark.usefixtures("never_fits")
@pytest.mark.parametrize("estimator", ["complete", "cross", "incomplete"])
def test_dask_collections_are_computed_by_the_workers(client: Client, estimator: str) -> None:
    given = {"k": 3, "estimator": estimator, "random_state": 2}
    X, Y = mixed()
    lazy = dd.from_pandas(X, npartitions=3), dd.from_pandas(Y, npartitions=2)
    number = X["u"].to_numpy() + X["v"].to_numpy()
    same(relate(X, number, **given), relate(lazy[0].assign(y=number_of(lazy[0])), "y", client=client, **given))
    if estimator == "cross":  # reads as the complete one does
        return
    # One of the two may be in memory.
    same(compare(X, Y, **given), compare(lazy[0], Y, client=client, **given))
    X, Y = (frame[list("uvwx")].to_numpy() for frame in (X, Y))
    arrays = da.from_array(X, chunks=(7000, 3)), da.from_array(Y, chunks=(9000, 4))
    same(compare(X, Y, **given), compare(*arrays, client=client, **given))


def number_of(frame: Any) -> Any:
    return frame["u"] + frame["v"]


def test_rows_with_missing_cells_are_left_out_as_in_memory(client: Client, never_fits: None) -> None:
    X, Y = mixed()
    X.loc[::7, "u"] = np.nan
    Y.loc[3:40, "letter"] = None
    given = {"missing": "drop", "random_state": 2}
    lazy = dd.from_pandas(X, npartitions=3), dd.from_pandas(Y, npartitions=2)
    same(compare(X, Y, **given), compare(*lazy, client=client, **given))
    with pytest.raises(InputError, match=r"^X: 2858 of 20000 rows have missing values, in columns 'u' \(2858\)"):
        compare(*lazy, client=client, missing="error")


def test_the_current_client_is_taken_for_dask_collections_alone(client: Client, monkeypatch: Any) -> None:
    X, Y = samples(60, 4)
    sent = []
    submit = cluster.DaskWorkers._submit
    monkeypatch.setattr(cluster.DaskWorkers, "_submit", lambda self, *call: sent.append(call) or submit(self, *call))
    lazy = da.from_array(X, chunks=(30, 4)), da.from_array(Y, chunks=(40, 4))
    with client.as_current():
        compare(X, Y, random_state=0)
        assert not sent
        compare(*lazy, random_state=0)
        assert sent
    sent.clear()
    compare(*lazy, random_state=0)  # Dask's own threads
    assert not sent


# What can go wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("estimator", ["complete", "cross"])
def test_a_killed_worker_does_not_change_the_answer(
    clients: Callable[..., Client], workers: int, estimator: str
) -> None:
    X, Y = samples(300, 64 * 10)
    given = {"k": 5, "estimator": estimator, "random_state": 9}
    used, killed = clients(workers), []
    # Dask does not always start another worker in place of a killed one, which may be the only one.
    another = Timer(10.0, used.cluster.scale, (workers + 1,))

    def kill(stage: str, done: int, total: int) -> None:
        if stage == "scoring features" and 0 < done < total / 2 and not killed:
            killed.append(a_worker(used))
            os.kill(killed[0], KILL)
            another.start()

    with progress_callback(kill):
        result = compare(X, Y, client=used, **given)
    another.cancel()
    assert killed
    same(compare(X, Y, **given), result)


@pytest.mark.usefixtures("never_fits")
def test_a_killed_worker_does_not_change_the_answer_from_dask_collections(clients: Callable[..., Client]) -> None:
    X, Y = mixed()
    used, killed = clients(3), []

    def kill(stage: str, done: int, total: int) -> None:
        if not killed:
            killed.append(a_worker(used))
            os.kill(killed[0], KILL)

    with progress_callback(kill):
        lazy = dd.from_pandas(X, npartitions=3), dd.from_pandas(Y, npartitions=2)
        result = compare(*lazy, client=used, random_state=1)
    assert killed
    same(compare(X, Y, random_state=1), result)


@pytest.mark.parametrize("estimator", ["complete", Incomplete(r=5)], ids=["complete", "incomplete"])
def test_a_killed_worker_does_not_change_the_answer_from_files(
    clients: Callable[..., Client], tmp_path: Path, estimator: Any
) -> None:
    frames = [pd.DataFrame(values[:, :100], columns=[f"c{j}" for j in range(100)]) for values in samples(3000, 100)]
    for name, frame in zip("xy", frames, strict=True):
        frame.to_parquet(tmp_path / name, row_group_size=400)
    given = {"k": 5, "estimator": estimator, "random_state": 9}
    used, killed = clients(3), []

    def kill(stage: str, done: int, total: int) -> None:
        if stage == "scoring features" and done < total and not killed:
            killed.append(a_worker(used))
            os.kill(killed[0], KILL)

    with progress_callback(kill):
        result = compare(tmp_path / "x", tmp_path / "y", client=used, memory="50MB", **given)
    assert killed
    same(compare(*frames, **given), result)


def test_a_moment_without_workers_is_waited_out(clients: Callable[..., Client]) -> None:
    used = clients(1)
    X, Y = samples(60, 4)
    expected = compare(X, Y, random_state=0)
    used.cluster.scale(0)
    while used.nthreads():
        time.sleep(0.05)
    timer = Timer(1.0, used.cluster.scale, (1,))
    timer.start()
    same(expected, compare(X, Y, random_state=0, client=used))
    timer.join()


@pytest.mark.usefixtures("never_fits")
@pytest.mark.slow
@pytest.mark.nightly
def test_workers_killed_at_random_moments_do_not_change_the_answer(clients: Callable[..., Client], files: Path) -> None:
    """One of three workers dies at any moment of a call: while data is sent, read, worked on or sent back."""
    used, rng = clients(3), np.random.default_rng()
    X, Y = samples(300, 64 * 6)
    frames = mixed()
    lazy = dd.from_pandas(frames[0], npartitions=3), dd.from_pandas(frames[1], npartitions=2)
    calls: list[tuple[tuple[Any, Any], tuple[Any, Any], dict[str, Any]]] = [
        ((X, Y), (X, Y), {}),
        (frames, (files / "X", files / "Y"), {}),
        ((X, Y), (X, Y), {"estimator": Incomplete(r=40)}),
        (frames, lazy, {}),
        (frames, (files / "X", files / "Y"), {"estimator": "incomplete"}),
        (frames, (files / "X", files / "Y"), {"estimator": "cross"}),
    ]
    expected = [compare(*plain, k=4, random_state=3, **given) for plain, _, given in calls]
    seconds = [0.0] * len(calls)
    for place, (_, data, given) in enumerate(calls):
        start = time.monotonic()
        same(expected[place], compare(*data, k=4, random_state=3, client=used, **given))
        seconds[place] = time.monotonic() - start
    for place in 4 * list(range(len(calls))):
        used = clients(3)
        victim = a_worker(used, rng)
        timer = Timer(float(rng.uniform(0, seconds[place])), os.kill, (victim, KILL))
        timer.start()
        same(expected[place], compare(*calls[place][1], k=4, random_state=3, client=used, **calls[place][2]))
        timer.join()


def test_work_that_kills_every_worker_is_told(clients: Callable[..., Client]) -> None:
    X, Y = samples(40, 3)
    # Dask starts it again, three times, unless it dies while it starts.
    message = r"^client: (workers .* die .*memory|the Dask cluster .* has lost all its workers .* out of memory)"
    with pytest.raises(InputError, match=message):
        compare(X, Y, kernel=_deadly, client=clients(1))
    # Another cluster: Dask may give up on the last worker of this one at any later moment.
    same(compare(X, Y, random_state=0), compare(X, Y, random_state=0, client=clients(1, new=True)))


def _deadly(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:  # not on a worker
        return np.exp(-np.abs(a - b).sum(axis=-1))
    os._exit(1)


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A scheduler and a worker as programs of their own: the scheduler and its address."""
    reported = tmp_path / "scheduler.json"
    program = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard", "--port", "0"]
    with ExitStack() as stack:

        def start(arguments: list[str]) -> subprocess.Popen[bytes]:
            process = stack.enter_context(subprocess.Popen(arguments, stderr=subprocess.DEVNULL))
            stack.callback(process.kill)
            return process

        scheduler = start([*program, "--host", "127.0.0.1", "--scheduler-file", str(reported)])
        patience = time.monotonic() + 30
        while not reported.exists() or not reported.read_text().strip().endswith("}"):
            assert time.monotonic() < patience
            time.sleep(0.1)
        address = pd.read_json(reported, typ="series")["address"]
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-dashboard", "--no-nanny"]
        start([*worker, "--nthreads", "1", "--death-timeout", "5"])
        yield scheduler, address


def test_a_lost_scheduler_is_one_clear_error_within_seconds(remote: tuple[subprocess.Popen[bytes], str]) -> None:
    scheduler, address = remote
    X, Y = samples(300, 64 * 8)
    lost = []

    def kill(stage: str, done: int, total: int) -> None:
        if not lost and stage == "scoring features":
            scheduler.kill()
            scheduler.wait()
            lost.append(time.monotonic())

    with cluster.connected(address) as used:
        with (
            progress_callback(kill),
            pytest.raises(InputError, match=rf"^client: the Dask scheduler at {address} is gone;"),
        ):
            compare(X, Y, client=used)
        assert time.monotonic() - lost[0] < 30
        # Dask lets go of futures in a thread of its own, and of those in a traceback when it is collected.
        patience = time.monotonic() + 10
        while used.futures and time.monotonic() < patience:
            gc.collect()
            time.sleep(0.1)
        assert not used.futures
    # And afterwards this process works on by itself.
    assert parallel.worker_threads() == 0
    assert len(compare(X[:, :3], Y[:, :3], random_state=0).names) == 3


def test_a_cluster_that_loses_its_only_worker_is_told(
    remote: tuple[subprocess.Popen[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_WITHOUT_WORKERS", 1.0)
    monkeypatch.setattr(cluster, "_INTERVAL", 0.2)
    X, Y = samples(40, 3)
    # The worker cannot import the tests.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        with cluster.connected(remote[1]) as used:
            used.wait_for_workers(1, timeout=30)
            with pytest.raises(InputError, match=r"^client: the Dask cluster at .* has lost all its workers .* memory"):
                compare(X, Y, kernel=_deadly, client=used)
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_the_command_line_tells_of_a_lost_scheduler_and_leaves_nothing(
    remote: tuple[subprocess.Popen[bytes], str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from kernsift.cli import main

    scheduler, address = remote
    for name, values in zip("xy", samples(300, 64 * 8), strict=True):
        np.save(tmp_path / f"{name}.npy", values)
    before = set(tmp_path.iterdir())

    def kill(stage: str, done: int, total: int) -> None:
        if stage == "scoring features":
            scheduler.kill()
            scheduler.wait()

    written = ["--report", str(tmp_path / "r.html"), "--json", "-o", str(tmp_path / "answer.json")]
    with progress_callback(kill):
        code = main(["compare", str(tmp_path / "x.npy"), str(tmp_path / "y.npy"), "--cluster", address, *written])
    out, err = capfd.readouterr()
    assert code == 2 and out == ""
    assert err.splitlines()[-1] == (
        f"kernsift: --cluster: the Dask scheduler at {address} is gone; start the cluster again and repeat the call."
    )
    assert set(tmp_path.iterdir()) == before


def test_a_file_removed_in_the_middle_is_one_clear_error(client: Client, tmp_path: Path) -> None:
    X, Y = (frame[list("uvwx")].to_numpy() for frame in mixed())
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "Y.npy", Y)

    def remove(stage: str, done: int, total: int) -> None:
        (tmp_path / "Y.npy").unlink(missing_ok=True)

    with progress_callback(remove), pytest.raises(InputError, match=r"^Y: .*Y\.npy was removed"):
        compare(tmp_path / "X.npy", tmp_path / "Y.npy", client=client)


def test_what_is_no_client_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_TO_CONNECT", 1.0)
    X, Y = samples(30, 3)
    with pytest.raises(InputError, match=r"^client: a distributed\.Client was needed, got str; connect"):
        compare(X, Y, client="tcp://127.0.0.1:8786")
    message = r"^client: no Dask scheduler answers at tcp://127\.0\.0\.1:9;"
    with pytest.raises(InputError, match=message), cluster.connected("tcp://127.0.0.1:9"):
        pass


def test_arrays_on_a_device_are_refused(client: Client) -> None:
    strict = pytest.importorskip("array_api_strict")
    X, Y = (strict.asarray(part) for part in samples(30, 3))
    with pytest.raises(InputError, match=r"^client: .*array_api_strict"):
        compare(X, Y, client=client)


def test_workers_that_have_no_space_to_spill_into_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their memory is full, Dask pauses them, and nothing would ever happen again."""
    monkeypatch.setattr(cluster, "_WITHOUT_WORKERS", 3.0)
    monkeypatch.setattr(cluster, "_INTERVAL", 0.5)
    memory = {"target": 0.5, "spill": 0.6, "max-spill": 1000, "pause": 0.7, "terminate": False}
    X, Y = np.random.default_rng(0).normal(size=(2, 2000, 20))
    with (
        dask.config.set({f"distributed.worker.memory.{name}": value for name, value in memory.items()}),
        LocalCluster(n_workers=1, threads_per_worker=1, memory_limit="400MB", dashboard_address=":0") as full,
        Client(full, set_as_default=False) as client,
    ):
        expected = compare(X, Y, random_state=1)
        held = client.submit(np.ones, 40_000_000)
        patience = time.monotonic() + 20
        while client.sync(client.scheduler.ncores_running) and time.monotonic() < patience:
            time.sleep(0.1)
        start = time.monotonic()
        with pytest.raises(
            InputError, match=r"^client: all workers .* have paused, because their memory is full .*\.$"
        ):
            compare(X, Y, random_state=1, client=client)
        assert time.monotonic() - start < 30
        # Where there is room again, they go on.
        del held
        found = compare(X, Y, random_state=1, client=client)
        assert found.names == expected.names
        np.testing.assert_allclose(found.pvalues, expected.pvalues, rtol=1e-9)


def test_a_cluster_without_workers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_WITHOUT_WORKERS", 0.5)
    X, Y = samples(30, 3)
    with (
        LocalCluster(n_workers=0, dashboard_address=":0") as empty,
        Client(empty, set_as_default=False) as used,
        pytest.raises(InputError, match=r"^client: the Dask cluster at tcp://.* has no workers; start some"),
    ):
        compare(X, Y, client=used)


def test_nothing_is_left_on_the_cluster(client: Client) -> None:
    X, Y = samples()
    # What other tests withdrew from may still be on its way out.
    before = set(client.run_on_scheduler(_keys))
    compare(X, Y, client=client)
    patience = time.monotonic() + 10
    while (left := set(client.run_on_scheduler(_keys)) - before) and time.monotonic() < patience:
        time.sleep(0.1)
    assert left == set()


def _keys(dask_scheduler: Any) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks]


# Around it -----------------------------------------------------------------------------------------------------------


def test_progress_is_told_as_blocks_finish(client: Client) -> None:
    X, Y = samples(100, 64 * 4)
    reported: list[int] = []
    with progress_callback(lambda stage, done, total: reported.append(done) if stage == "scoring features" else None):
        compare(X, Y, client=client)
        once = reported.copy()
        reported.clear()
        compare(X, Y, client=client, estimator=Incomplete(r=200), k=2)
    first, second = np.split(np.array(reported), 2)  # the second time for correlations
    np.testing.assert_array_equal(first, second)
    for done in (np.array(once), first):
        assert len(done) >= 4 and (np.diff(done) > 0).all() and done[-1] == 256


@pytest.mark.parametrize("option", ["--workers", "--cluster"])
def test_the_command_line_works_on_a_cluster_and_says_where_to_look(
    client: Client, tmp_path: Path, capfd: pytest.CaptureFixture[str], option: str
) -> None:
    from kernsift.cli import main

    for name, frame in zip("xy", mixed(1500), strict=True):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    asked = ["compare", str(tmp_path / "x.csv"), str(tmp_path / "y.csv"), "--seed", "1", "--csv"]
    assert main(asked) == 0
    alone = capfd.readouterr().out
    names, numbers = figures(alone)
    assert names[0] == "letter"
    assert main([*asked, option, "1" if option == "--workers" else client.scheduler.address]) == 0
    found = capfd.readouterr()
    assert figures(found.out)[0] == names
    np.testing.assert_allclose(figures(found.out)[1], numbers, rtol=1e-9)
    assert "Dask dashboard: http://" in found.err
    assert main([*asked, "--workers", "1", "--cluster", "x"]) == 2


def figures(table: str) -> tuple[list[str], np.ndarray]:
    """The names and p-values in a CSV table."""
    rows = pd.read_csv(StringIO(table))
    return rows["feature"].tolist(), rows[["pvalue", "unconditional_pvalue"]].to_numpy()
