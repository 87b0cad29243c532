"""Failures around the library: kills, Ctrl-C, full disks, closed pipes, many calls at once."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from kernsift import Multiscale, compare, relate, screen
from kernsift.execution.files import atomic_path
from kernsift.execution.threads import thread_limit
from kernsift.experiments.trials import FILE, TrialStore

pytest.importorskip("matplotlib", reason="the figures need matplotlib")
pytest.importorskip("jinja2", reason="the page needs Jinja2")
posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork a process")

TRIALS = 2
REPRODUCE = ["reproduce", "fig1", "--tiny", "--trials", str(TRIALS)]


class ForkServer:
    """Children that may be killed; see fork_server.py."""

    def __init__(self) -> None:
        program = Path(__file__).parent / "fork_server.py"
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, question: dict[str, Any]) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, *arguments: object, **conditions: Any) -> int:
        return int(self.ask({"start": [str(argument) for argument in arguments], **conditions}))

    def wait(self, child: int) -> int:
        return int(self.ask({"wait": child}))

    def run(self, *arguments: object, **conditions: Any) -> int:
        return self.wait(self.start(*arguments, **conditions))

    def kill(self, child: int, after: float) -> int:
        time.sleep(after)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        return self.wait(child)


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    opened = ForkServer()
    yield opened
    opened.process.communicate()


@pytest.fixture(scope="module")
def undisturbed(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert fork_server.run(*REPRODUCE, "--workers", 1, "--out", folder) == 0
    return folder


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(4)
    for name in "ab":
        values = rng.normal(size=(120, 6)) + (name == "b") * np.arange(6) / 5
        np.savetxt(folder / f"{name}.csv", values, delimiter=",", header="u,v,w,x,y,z", comments="")
    return folder / "a.csv", folder / "b.csv"


def numbers(folder: Path) -> list[list[str]]:
    """The summary without the seconds, which are never the same."""
    with (folder / "summary.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    column = rows[0].index("seconds")
    return [row[:column] + row[column + 1 :] for row in rows]


ENDS: dict[str, Callable[[bytes], bool]] = {
    ".png": lambda content: content.startswith(b"\x89PNG") and content.endswith(b"IEND\xaeB`\x82"),
    ".svg": lambda content: content.rstrip().endswith(b"</svg>"),
    ".html": lambda content: content.rstrip().endswith(b"</html>"),
    ".csv": lambda content: content.endswith(b"\n"),
    ".json": lambda content: bool(json.loads(content)),
}


def half_files(folder: Path) -> list[str]:
    """Output files that are there but not whole; hidden ones, and the store of trials, are no output."""
    seen = [path for path in folder.iterdir() if path.name != FILE and not path.name.startswith(".")]
    return [path.name for path in seen if not ENDS[path.suffix](path.read_bytes())]


# --- kills ------------------------------------------------------------------------------------------------------------


def killed_again_and_again(fork_server: ForkServer, undisturbed: Path, folder: Path, times: int) -> None:
    rng = np.random.default_rng(times)
    start = time.monotonic()
    assert fork_server.run(*REPRODUCE, "--workers", 1, "--out", folder / "timed") == 0
    longest = time.monotonic() - start
    out = folder / "killed"
    killed = 0
    for number in range(times):
        child = fork_server.start(*REPRODUCE, "--workers", 1, "--out", out)
        code = fork_server.kill(child, float(rng.uniform(0, 0.6 * longest)))
        assert code in (0, -signal.SIGKILL)
        killed += code != 0
        assert not out.exists() or half_files(out) == [], number
        if code == 0 and number % 2:  # from the beginning, or else there is soon nothing left to do
            for path in out.iterdir():
                path.unlink()
    assert killed >= max(1, times // 4), "the kills came too late"
    assert fork_server.run(*REPRODUCE, "--workers", 1, "--out", out) == 0
    assert numbers(out) == numbers(undisturbed)
    for picture in ("fig1.svg", "fig1.png"):
        assert (out / picture).read_bytes() == (undisturbed / picture).read_bytes()


@posix
def test_killed_at_any_moment_files_are_whole_and_the_rest_is_resumed(
    fork_server: ForkServer, undisturbed: Path, tmp_path: Path
) -> None:
    killed_again_and_again(fork_server, undisturbed, tmp_path, 5)


@posix
@pytest.mark.nightly
@pytest.mark.slow
def test_killed_fifty_times(fork_server: ForkServer, undisturbed: Path, tmp_path: Path) -> None:
    killed_again_and_again(fork_server, undisturbed, tmp_path, 50)


@posix
@pytest.mark.parametrize("count", [0, 2])
def test_killed_on_the_point_of_writing_a_file(
    fork_server: ForkServer, undisturbed: Path, tmp_path: Path, count: int
) -> None:
    """The summary, two pictures and the page are put in place one after the other; `count` of them get there."""
    (tmp_path / FILE).write_bytes((undisturbed / FILE).read_bytes())
    code = fork_server.run(*REPRODUCE, "--workers", 1, "--out", tmp_path, killed_at=count)
    assert code == -signal.SIGKILL
    there = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")} - {FILE}
    assert there == set(["summary.csv", "fig1.png", "fig1.svg", "index.html"][:count])
    assert half_files(tmp_path) == []


def reports_killed(fork_server: ForkServer, tables: tuple[Path, Path], folder: Path, times: int) -> None:
    rng = np.random.default_rng(times)
    start = time.monotonic()
    arguments = ["compare", *tables, "--seed", 1, "--json", "-o", folder / "r.json", "--report", folder / "r.html"]
    assert fork_server.run(*arguments) == 0
    longest = time.monotonic() - start
    expected = (folder / "r.json").read_bytes()
    for _ in range(times):
        for path in folder.iterdir():
            path.unlink()
        assert fork_server.kill(fork_server.start(*arguments), float(rng.uniform(0, longest))) in (0, -signal.SIGKILL)
        assert half_files(folder) == []
    assert fork_server.run(*arguments) == 0
    assert (folder / "r.json").read_bytes() == expected
    (folder / "r.html").write_text("the old one</html>")
    assert fork_server.run(*arguments, killed_at=0) == -signal.SIGKILL
    assert (folder / "r.html").read_text() == "the old one</html>"


@posix
def test_a_report_is_whole_or_absent(fork_server: ForkServer, tables: tuple[Path, Path], tmp_path: Path) -> None:
    reports_killed(fork_server, tables, tmp_path, 5)


@posix
@pytest.mark.nightly
@pytest.mark.slow
def test_reports_killed_fifty_times(fork_server: ForkServer, tables: tuple[Path, Path], tmp_path: Path) -> None:
    reports_killed(fork_server, tables, tmp_path, 50)


def test_a_file_is_not_put_in_place_if_writing_it_fails(tmp_path: Path) -> None:
    target = tmp_path / "answer.txt"
    target.write_text("old")

    def fail() -> None:
        with atomic_path(target) as part:
            part.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["answer.txt"]
    assert target.read_text() == "old"


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


def alive(group: int) -> list[int]:
    """Processes of a group that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            state, _, grouped = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            if entry.name.isdigit() and int(grouped) == group and state != "Z":
                found.append(int(entry.name))
    return found


def gone(group: int) -> bool:
    deadline = time.monotonic() + 5
    while alive(group) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(group)


linux = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="this system has no /proc to look for processes"
)


def command(*arguments: object) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "kernsift", *map(str, arguments)]
    # Shells ignore SIGINT in what they start in the background, and so would the command if the tests run there.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    finally:
        signal.signal(signal.SIGINT, before)


def ended(running: subprocess.Popen[str]) -> tuple[str, str]:
    """What it printed, once it has ended; if it does not, it is killed."""
    try:
        return running.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        return running.communicate()


def until(ready: Callable[[], bool], running: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not ready():
        if running.poll() is not None or time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            pytest.fail(f"it did not get so far: {running.communicate()[1]}")
        time.sleep(0.02)


def patience() -> float:
    """Seconds to stop in: one is what a user may wait; the rest is for machines that run other tests beside."""
    return 4.0 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@linux
@pytest.mark.parametrize(("everyone", "early"), [(True, True), (True, False), (False, False)])
def test_an_interrupted_reproduction_stops_at_once_and_leaves_no_worker(
    tmp_path: Path, everyone: bool, early: bool
) -> None:
    """At a terminal Ctrl-C reaches the workers, too; early, while they are still being started."""
    out = tmp_path / "out"
    running = command("reproduce", "fig1", "--trials", 50, "--workers", 2, "--out", out)
    store = out / FILE
    if early:
        until(lambda: len(alive(running.pid)) > 2, running)
    else:
        until(lambda: store.exists() and store.stat().st_size > 0, running)
    start = time.monotonic()
    (os.killpg if everyone else os.kill)(running.pid, signal.SIGINT)
    _, said = ended(running)
    assert time.monotonic() - start < patience()
    assert running.returncode == 130
    assert said == "\nStopped; the same command continues from here.\n"
    assert gone(running.pid)
    assert TrialStore(out).log.damaged == []


@linux
def test_workers_do_not_outlive_a_killed_reproduction(tmp_path: Path) -> None:
    running = command("reproduce", "fig1", "--trials", 50, "--workers", 2, "--out", tmp_path)
    until(lambda: (tmp_path / FILE).exists() and (tmp_path / FILE).stat().st_size > 0, running)
    os.kill(running.pid, signal.SIGKILL)
    ended(running)
    assert gone(running.pid)


@linux
@pytest.mark.parametrize("options", [["--test", "multiscale", "--option", "replicates=1000000000"]], ids=["resampling"])
def test_an_interrupted_question_stops_at_once(tables: tuple[Path, Path], options: list[str]) -> None:
    running = command("compare", *tables, "--k", "3", *options)
    # Working, once it has used more processor time than starting takes.
    until(lambda: _seconds(running.pid) > 2.0, running)
    start = time.monotonic()
    os.killpg(running.pid, signal.SIGINT)
    shown, said = ended(running)
    assert time.monotonic() - start < patience()
    assert (running.returncode, shown, said.strip()) == (130, "", "kernsift: interrupted.")


@linux
@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("seconds", [1.0, 2.5, 4.0])
def test_an_interrupted_large_table_stops_at_once(tmp_path: Path, seconds: float) -> None:
    rng = np.random.default_rng(0)
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(30_000, 1500)).astype(np.float32))
    running = command("compare", tmp_path / "a.npy", tmp_path / "b.npy")
    until(lambda: _seconds(running.pid) > seconds, running)
    start = time.monotonic()
    os.killpg(running.pid, signal.SIGINT)
    _, said = ended(running)
    assert time.monotonic() - start < patience()
    assert (running.returncode, said.strip()) == (130, "kernsift: interrupted.")


def _seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- disks and pipes --------------------------------------------------------------------------------------------------


@posix
def test_a_full_disk_stops_a_reproduction_with_one_line_and_it_goes_on_later(
    fork_server: ForkServer, undisturbed: Path, tmp_path: Path
) -> None:
    out, said = tmp_path / "out", tmp_path / "said"
    line = [*REPRODUCE, "--workers", 1, "--out", out]
    # Three records fit, and half of the next.
    content = (undisturbed / FILE).read_bytes().splitlines(keepends=True)
    fits = sum(map(len, content[:3])) + 40
    assert fork_server.run(*line, stderr=str(said), largest=fits) == 1
    expected = (
        f"kernsift reproduce: {out / FILE}: File too large; finished trials are kept, and the same command continues "
    )
    assert said.read_text() == expected + "from here.\n"
    assert len(TrialStore(out).values) == 3
    assert fork_server.run(*line) == 0
    assert numbers(out) == numbers(undisturbed)


@posix
def test_a_full_disk_leaves_no_half_report(fork_server: ForkServer, tables: tuple[Path, Path], tmp_path: Path) -> None:
    said, report = tmp_path / "said", tmp_path / "out" / "r.html"
    report.parent.mkdir()
    assert fork_server.run("compare", *tables, "--report", report, stderr=str(said), largest=5000) == 2
    assert said.read_text().startswith(f"kernsift: {report}: cannot be written (File too large)")
    assert said.read_text().count("\n") == 1
    assert list(report.parent.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_output_to_a_full_disk_is_one_line(fork_server: ForkServer, tables: tuple[Path, Path], tmp_path: Path) -> None:
    said = tmp_path / "said"
    assert fork_server.run("compare", *tables, stdout="/dev/full", stderr=str(said)) == 2
    assert said.read_text() == "kernsift: standard output: cannot be written (No space left on device); use --output.\n"


def unwritable(tmp_path: Path) -> Path:
    """A folder in which not even root can make a file."""
    if os.geteuid() != 0:
        folder = tmp_path / "locked"
        folder.mkdir(mode=0o500)
        return folder
    if not Path("/sys/kernel").is_dir():
        pytest.skip("root may write everywhere here")
    return Path("/sys/kernel")


@posix
def test_a_folder_that_cannot_be_written_to_is_one_line(
    fork_server: ForkServer, tables: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, said = unwritable(tmp_path), tmp_path / "said"
    assert fork_server.run(*REPRODUCE, "--workers", 1, "--out", folder / "new", stderr=str(said)) == 1
    assert fork_server.run(*REPRODUCE, "--workers", 1, "--out", folder, stderr=str(said)) == 1
    assert fork_server.run("compare", *tables, "--report", folder / "r.html", stderr=str(said)) == 2
    lines = said.read_text().splitlines()
    assert len(lines) == 3
    for line, start in zip(lines, ["kernsift reproduce: ", "kernsift reproduce: ", "kernsift: "], strict=True):
        assert line.startswith(f"{start}{folder}/") and ("ermi" in line or "Read-only" in line), line


@posix
@pytest.mark.parametrize("options", [[], ["--json"], ["--csv"]])
def test_a_closed_pipe_is_no_error_for_an_answer(
    fork_server: ForkServer, tables: tuple[Path, Path], tmp_path: Path, options: list[str]
) -> None:
    said = tmp_path / "said"
    assert fork_server.run("compare", *tables, *options, closed=True, stderr=str(said)) == 0
    assert said.read_text() == ""


@posix
def test_a_closed_pipe_stops_a_reproduction_that_can_be_resumed(
    fork_server: ForkServer, undisturbed: Path, tmp_path: Path
) -> None:
    out, said = tmp_path / "out", tmp_path / "said"
    line = [*REPRODUCE, "--workers", 1, "--out", out]
    assert fork_server.run(*line, closed=True, stderr=str(said)) == 1
    expected = "Stopped, because the output was closed; the same command continues from here.\n"
    assert said.read_text() == expected
    assert fork_server.run(*line) == 0
    assert numbers(out) == numbers(undisturbed)


@posix
def test_two_runs_in_one_folder_do_not_spoil_it(fork_server: ForkServer, undisturbed: Path, tmp_path: Path) -> None:
    line = [*REPRODUCE, "--workers", 1, "--out", tmp_path]
    both = [fork_server.start(*line) for _ in range(2)]
    assert [fork_server.wait(child) for child in both] == [0, 0]
    assert numbers(tmp_path) == numbers(undisturbed)
    assert half_files(tmp_path) == []
    assert not list(tmp_path.glob(".*.part"))
    records = TrialStore(tmp_path)
    assert records.log.damaged == []
    assert set(records.values) == set(TrialStore(undisturbed).values)


# --- many at once -----------------------------------------------------------------------------------------------------


def question(number: int) -> Any:
    """One of several questions with data of its own."""
    rng = np.random.default_rng(number)
    x, y = rng.normal(size=(150, 9)), rng.normal(size=(130, 9)) + 0.3
    options: dict[str, Any] = {"k": 3, "random_state": number}
    kinds: list[Callable[[], Any]] = [
        lambda: compare(x, y, **options),
        lambda: relate(x, x[:, 0] + x[:, 1] ** 2, **options),
        lambda: screen(x, {"a": y, "b": x[:100] * 2, "c": rng.normal(size=(90, 9))}, **options),
        lambda: compare(x, y, estimator="cross", **options),
        lambda: compare(x, y, estimator="incomplete", test=Multiscale(replicates=300), **options),
        lambda: relate(x, x[:, 2] > 0, estimator="block", test="polyhedral", **options),
    ]
    result = kinds[number % len(kinds)]()
    return result.selected.tolist(), result.scores.tolist(), result.log_pvalues.tolist(), result.to_text()


def test_eight_threads_get_the_answers_that_one_gets() -> None:
    one = [question(number) for number in range(24)]
    together = threading.Barrier(8)

    def ask(number: int) -> Any:
        if number < 8:
            together.wait(30)
        return question(number)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(24))) == one


def test_calls_at_once_leave_the_threads_of_blas_as_they_were() -> None:
    """The first call in is the first out: the second one found the limit of the first, and put that back."""
    entered, left = threading.Event(), threading.Event()

    def first() -> None:
        with thread_limit(1):
            assert entered.wait(30)
        left.set()

    def second() -> None:
        with thread_limit(1):
            entered.set()
            assert left.wait(30)

    with threadpool_limits(2, user_api="blas"), ThreadPoolExecutor(2) as pool:
        before = [library["num_threads"] for library in threadpool_info()]
        for future in [pool.submit(first), pool.submit(second)]:
            future.result()
        assert [library["num_threads"] for library in threadpool_info()] == before
