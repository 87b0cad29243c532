"""The command as a whole: run, killed and resumed, on other backends, and what it says when something is wrong."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernsift.cli import main
from kernsift.experiments import datasets
from kernsift.experiments.configurations import ARTEFACTS
from kernsift.experiments.reproduce import reproduce

pytest.importorskip("matplotlib", reason="the figures need matplotlib")
pytest.importorskip("jinja2", reason="the page needs Jinja2")

DATA = bool(os.environ.get("KERNSIFT_DATA"))
# Without the data files everything that needs none of them; nothing is downloaded by a test.
NAMES = [name for name, a in ARTEFACTS.items() if name != "table2-celeba" and (DATA or not a.needs)]
TRIALS = 2
# Those that are killed and resumed: of several kinds, in the order of `ARTEFACTS`.
KILLED = NAMES[:3]


def without_seconds(folder: Path) -> list[list[str]]:
    with (folder / "summary.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    column = rows[0].index("seconds")
    return [row[:column] + row[column + 1 :] for row in rows]


def command(folder: Path) -> list[str]:
    options = ["--tiny", "--trials", str(TRIALS), "--workers", "2", "--out", str(folder)]
    return [sys.executable, "-m", "kernsift", "reproduce", *KILLED, *options]


def rows_of(folder: Path, names: list[str]) -> list[list[str]]:
    return [row for row in without_seconds(folder) if row[0] in ("artefact", *names)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    reproduce(NAMES, trials=TRIALS, out=folder, tiny=True)
    return folder


def test_a_run_leaves_a_table_the_pictures_and_a_page(undisturbed: Path) -> None:
    rows = without_seconds(undisturbed)
    assert {row[0] for row in rows[1:]} == set(NAMES)
    assert {row[6] for row in rows[1:]} == {str(TRIALS)}
    for name in NAMES:
        assert (undisturbed / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (undisturbed / f"{name}.svg").read_text(encoding="utf-8")[:1000]
    page = (undisturbed / "index.html").read_text(encoding="utf-8")
    assert all(f'id="{name}"' in page for name in NAMES)
    assert "http" not in page.replace("http://www.w3.org", "")


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="this system cannot kill a group of processes")
def test_killed_and_resumed_it_comes_to_the_same_to_the_last_bit(undisturbed: Path, tmp_path: Path) -> None:
    store = tmp_path / "trials.jsonl"
    total = TRIALS * sum(len(ARTEFACTS[name].settings) for name in KILLED)
    running = subprocess.Popen(
        command(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not store.exists() or store.read_bytes().count(b"\n") < total // 2:
        assert running.poll() is None, running.stderr.read() if running.stderr else ""
        assert time.monotonic() < deadline, "the run did not get half-way"
        time.sleep(0.02)
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    lines = store.read_bytes().split(b"\n")
    assert total // 2 <= len(lines) - 1 < total
    # Bad luck besides: a record on the disk went bad, and the last one is only half there.
    lines[3] = lines[3].replace(b"0", b"1")
    store.write_bytes(b"\n".join(lines)[: -len(lines[-1]) - 30])
    resumed = subprocess.run(command(tmp_path), capture_output=True, text=True, check=False)
    assert resumed.returncode == 0, resumed.stderr
    assert "2 damaged or half-written record(s) in trials.jsonl" in resumed.stdout
    assert "trials were finished before; continuing." in resumed.stdout
    assert without_seconds(tmp_path) == rows_of(undisturbed, KILLED)
    # Piped: whole lines, no bar.
    assert "\r" not in resumed.stdout + resumed.stderr


def test_a_finished_run_is_not_run_again(
    undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kernsift.experiments.reproduce.run_trial", lambda task: pytest.fail("a finished trial was run again")
    )
    shutil.copy(undisturbed / "trials.jsonl", tmp_path)
    options = ["--tiny", "--trials", str(TRIALS), "--workers", "1", "--out", str(tmp_path)]
    assert main(["reproduce", NAMES[0], *options]) == 0
    count = TRIALS * len(ARTEFACTS[NAMES[0]].settings)
    assert f"{count} of {count} trials were finished before" in capsys.readouterr().out
    assert without_seconds(tmp_path) == rows_of(undisturbed, NAMES[:1])


@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_comes_to_the_same(undisturbed: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'kernsift[dask]'")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        reproduce(["fig3"], trials=TRIALS, out=tmp_path, cluster=cluster.scheduler_address, tiny=True)
    assert without_seconds(tmp_path) == rows_of(undisturbed, ["fig3"])


def test_an_unknown_name_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["reproduce", "fig11", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "kernsift reproduce: fig11: is no artefact; did you mean fig1?\n"


@pytest.fixture
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNSIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KERNSIFT_DATA", raising=False)
    for key, file in list(datasets.FILES.items()):
        nowhere = datasets.DataFile(file.name, file.sha256, file.page, "http://127.0.0.1:9/x")
        monkeypatch.setitem(datasets.FILES, key, nowhere)


@pytest.mark.usefixtures("no_data")
def test_a_named_table_without_its_data_says_what_to_put_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "table1", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("kernsift reproduce: pulsar_stars.csv: is in no folder that was named")
    assert said.count("\n") == 1


@pytest.mark.usefixtures("no_data")
def test_without_names_what_has_no_data_is_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {name: ARTEFACTS[name] for name in ("fig1", "table1", "table2-celeba")}
    monkeypatch.setattr("kernsift.experiments.reproduce.ARTEFACTS", chosen)
    result = reproduce(trials=1, out=tmp_path, tiny=True)
    assert set(result.left_out) == {"table1", "table2-celeba"}
    said = capsys.readouterr().out
    assert "table1 is left out: pulsar_stars.csv" in said
    assert "fig1, n=500: done; 1 of 4 trials" in said
    assert "Left out: table1" in (tmp_path / "index.html").read_text(encoding="utf-8")
