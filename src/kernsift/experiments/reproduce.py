"""Run the paper's experiments and put its numbers and ours side by side.

    kernsift reproduce fig1 table1 --trials 100 --workers 2 --out results

Every finished trial is stored at once, so the same command again continues a run that was stopped.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kernsift.exceptions import InputError
from kernsift.execution.dask_workers import DaskWorkers, connected
from kernsift.experiments.configurations import ARTEFACTS, Artefact, smaller
from kernsift.experiments.datasets import DataError, feature_folder, find_file
from kernsift.experiments.studies import Progress, run_tasks, write_rows
from kernsift.experiments.summary import COLUMNS, Reproduction, Row, summarise
from kernsift.experiments.trials import FILE, Task, TrialStore, Values, run_trial

_QUICK_TRIALS = 3


def reproduce(
    names: Sequence[str] = (),
    *,
    trials: int = 100,
    workers: int = 1,
    out: str | os.PathLike[str] = "reproduction",
    data_dir: str | None = None,
    quick: bool = False,
    cluster: str | None = None,
    seed: int = 0,
    tiny: bool = False,
) -> Reproduction:
    """Run the named artefacts (all by default), and write a CSV, the figures and one HTML page into `out`.

    Parameters
    ----------
    names : sequence of str
        Artefacts, see `kernsift.experiments.configurations.ARTEFACTS`.
    trials : int, default=100
        Trials of each setting.
    workers : int, default=1
        Number of processes.
    out : path, default="reproduction"
        Folder for the results; finished trials are stored there and not run again.
    data_dir : str, optional
        Folder with the data files; else KERNSIFT_DATA, else they are downloaded.
    quick : bool, default=False
        A few trials with a smaller bootstrap, to see everything within about a minute.
    cluster : str, optional
        Address of a Dask scheduler that runs the trials instead of processes here.
    seed : int, default=0
        Seed of everything.
    tiny : bool, default=False
        Very small samples, for tests; the numbers mean nothing.
    """
    start = time.monotonic()
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    wanted, left_out = _available(names, data_dir)
    if quick:
        trials = min(trials, _QUICK_TRIALS)
        wanted = [smaller(artefact, most_rows=2000, replicates=1000, samples=50) for artefact in wanted]
    if tiny:
        wanted = [smaller(artefact, most_rows=60, replicates=50, samples=5) for artefact in wanted]
    records = TrialStore(folder)
    _report_damage(records.log.damaged)
    tasks = [
        Task(artefact, setting, trial, seed, data_dir)
        for artefact in wanted
        for setting in artefact.settings
        for trial in range(trials)
    ]
    missing = [task for task in tasks if task.key not in records.values]
    if len(missing) < len(tasks):
        print(f"{len(tasks) - len(missing)} of {len(tasks)} trials were finished before; continuing.", flush=True)
    progress = Progress([task.group for task in missing], "trial")
    running = _on_cluster(missing, cluster) if cluster is not None else run_tasks(run_trial, missing, workers)
    with closing(running) as results:
        for task, values in results:
            records.add(task.key, values)
            progress.advance(task.group)
    finished: dict[str, dict[str, list[tuple[int, Values]]]]
    finished = {a.name: {s.label: [] for s in a.settings} for a in wanted}
    for task in tasks:
        finished[task.artefact.name][task.setting.label].append((task.trial, records.values[task.key]))
    rows = [row for a in wanted for s in a.settings for row in summarise(a, s, finished[a.name][s.label])]
    result = Reproduction(wanted, rows, finished, left_out, time.monotonic() - start, trials, seed, data_dir)
    _write(result, folder)
    return result


def _available(names: Sequence[str], data_dir: str | None) -> tuple[list[Artefact], dict[str, str]]:
    """The artefacts to run. One that was named must have its data; without names, those without data are left out."""
    for name in names:
        if name not in ARTEFACTS:
            near = get_close_matches(name, ARTEFACTS, n=1)
            hint = f"; did you mean {near[0]}?" if near else "; see --list."
            raise DataError(f"{name}: is no artefact{hint}")
    wanted, left_out = [], {}
    for artefact in (a for a in ARTEFACTS.values() if not names or a.name in names):
        try:
            for key in artefact.needs:
                feature_folder(data_dir) if key == "features" else find_file(key, data_dir)
            wanted.append(artefact)
        except DataError as error:
            if names:
                raise
            left_out[artefact.name] = str(error)
            print(f"{artefact.name} is left out: {error}", flush=True)
    return wanted, left_out


def _report_damage(damaged: list[int]) -> None:
    if damaged:
        lines = ", ".join(map(str, damaged[:10])) + (" and more" if len(damaged) > 10 else "")
        print(
            f"{len(damaged)} damaged or half-written record(s) in {FILE} (line {lines}): these trials are run again.",
            flush=True,
        )


def _on_cluster(tasks: Sequence[Task], address: str) -> Generator[tuple[Task, Values]]:
    with connected(address) as client:
        yield from DaskWorkers(client).map(run_trial, tasks)


def _write(result: Reproduction, folder: Path) -> None:
    from kernsift.experiments.figures import draw
    from kernsift.experiments.page import write_page

    write_rows(folder / "summary.csv", Row, result.rows, columns=COLUMNS, number="")
    for artefact in result.artefacts:
        draw(artefact, result, folder)
    write_page(result, folder)


def list_artefacts() -> None:
    """Print the names and titles of the figures and tables."""
    for artefact in ARTEFACTS.values():
        print(f"{artefact.name:14} {artefact.title}")


def run(**arguments: Any) -> int:
    """`reproduce`, with its errors in one line; returns the exit status."""
    start = time.monotonic()
    try:
        result = reproduce(**arguments)
    except BrokenPipeError:
        # Python would report the error again when it closes standard output, so that is redirected.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print("Stopped, because the output was closed; the same command continues from here.", file=sys.stderr)
        return 1
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        rest = "finished trials are kept, and the same command continues from here."
        print(f"kernsift reproduce: {place}{error.strerror or error}; {rest}", file=sys.stderr)
        return 1
    except (InputError, ModuleNotFoundError, BrokenProcessPool) as error:
        print(f"kernsift reproduce: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped; the same command continues from here.", file=sys.stderr)
        return 130
    if result.judged:
        print(f"{result.agreed} of {len(result.judged)} printed numbers agree with the paper's.")
    print(f"{Path(arguments['out']) / 'index.html'}: written after {time.monotonic() - start:.0f} s.")
    return 0
