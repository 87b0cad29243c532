"""The command: run the paper's experiments and put its numbers and ours side by side.

    python -m kernsift.experiments.reproduce fig1 table1 --trials 100 --workers 2 --out results

Every finished trial is kept at once, so the same command again goes on where the last one stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from kernsift.experiments.configurations import ARTEFACTS, Artefact, smaller
from kernsift.experiments.datasets import DataError, feature_folder, find_file
from kernsift.experiments.progress import Progress
from kernsift.experiments.records import FILE, Records, key_of
from kernsift.experiments.summary import Row, summarise, write_csv
from kernsift.experiments.trials import Task
from kernsift.experiments.workers import run_all

_QUICK_TRIALS = 3


@dataclass(frozen=True)
class Reproduction:
    """What a run gave: a row per number, the artefacts that were run, those left out and why, and its seconds."""

    rows: list[Row]
    artefacts: list[Artefact]
    left_out: dict[str, str]
    seconds: float
    trials: int


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
    names : artefacts, see `kernsift.experiments.configurations.ARTEFACTS`.
    trials : of each setting.
    workers : processes.
    out : folder for results; finished trials are kept in it and not run again.
    data_dir : folder with the data files; else KERNSIFT_DATA, else they are downloaded.
    quick : a few trials with a smaller bootstrap, to see everything within about a minute.
    cluster : address of a Dask scheduler to run the trials instead of processes here.
    seed : of everything.
    tiny : very small samples, for tests; the numbers mean nothing.
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
    with Records(folder) as records:
        _tell_damage(records)
        tasks = [
            Task(artefact, setting, trial, seed, data_dir)
            for artefact in wanted
            for setting in artefact.settings
            for trial in range(trials)
        ]
        missing = [task for task in tasks if key_of(task) not in records.values]
        if len(missing) < len(tasks):
            print(f"{len(tasks) - len(missing)} of {len(tasks)} trials were finished before; going on.", flush=True)
        with Progress(missing) as progress, closing(run_all(missing, workers, cluster)) as finished:
            for task, values in finished:
                records.add(key_of(task), values)
                progress.advance(task)
        rows = [
            row
            for artefact in wanted
            for setting in artefact.settings
            for row in summarise(artefact, setting, records.of(artefact, setting, seed, trials))
        ]
        result = Reproduction(rows, wanted, left_out, time.monotonic() - start, trials)
        _write(result, records, folder, data_dir, seed)
    return result


def _available(names: Sequence[str], data_dir: str | None) -> tuple[list[Artefact], dict[str, str]]:
    """The artefacts to run. One that was named must have its data; without names, those without data are left out."""
    for name in names:
        if name not in ARTEFACTS:
            near = get_close_matches(name, ARTEFACTS, n=1)
            hint = f"; did you mean {near[0]}?" if near else "; see --list."
            raise DataError(f"{name}: is no artefact{hint}")
    wanted, left_out = [], {}
    for artefact in ARTEFACTS.values():
        if names and artefact.name not in names:
            continue
        try:
            for key in artefact.needs:
                if key == "features":
                    feature_folder(data_dir)
                else:
                    find_file(key, data_dir)
        except DataError as error:
            if names:
                raise
            left_out[artefact.name] = str(error)
            print(f"{artefact.name} is left out: {error}", flush=True)
            continue
        wanted.append(artefact)
    return wanted, left_out


def _tell_damage(records: Records) -> None:
    if records.damaged:
        lines = ", ".join(map(str, records.damaged[:10])) + (" and more" if len(records.damaged) > 10 else "")
        print(
            f"{len(records.damaged)} damaged or half-written record(s) in {FILE} (line {lines}): "
            "these trials are run again.",
            flush=True,
        )


def _write(result: Reproduction, records: Records, folder: Path, data_dir: str | None, seed: int) -> None:
    from kernsift.experiments.figures import draw
    from kernsift.experiments.page import write_page

    write_csv(result.rows, folder / "summary.csv")
    figures = {}
    for artefact in result.artefacts:
        finished = {s.label: list(records.of(artefact, s, seed, result.trials)) for s in artefact.settings}
        rows = [row for row in result.rows if row.artefact == artefact.name]
        figures[artefact.name] = draw(artefact, rows, finished, folder, data_dir)
    write_page(result, records, figures, folder, data_dir, seed)


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    arguments = _parser().parse_args(argv)
    if arguments.list:
        for artefact in ARTEFACTS.values():
            print(f"{artefact.name:14} {artefact.title}")
        return 0
    start = time.monotonic()
    try:
        result = reproduce(
            arguments.names,
            trials=arguments.trials,
            workers=arguments.workers,
            out=arguments.out,
            data_dir=arguments.data_dir,
            quick=arguments.quick,
            cluster=arguments.cluster,
            seed=arguments.seed,
            tiny=arguments.tiny,
        )
    except BrokenPipeError:
        # Python would complain once more when it closes standard output, so that leads nowhere from here on.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print("Stopped, as nobody reads the output any more; the same command goes on from here.", file=sys.stderr)
        return 1
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        rest = "finished trials are kept, and the same command goes on from here."
        print(f"kernsift reproduce: {place}{error.strerror or error}; {rest}", file=sys.stderr)
        return 1
    except (DataError, ModuleNotFoundError, BrokenProcessPool) as error:
        print(f"kernsift reproduce: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped; the same command goes on from here.", file=sys.stderr)
        return 130
    judged = [row for row in result.rows if row.agrees is not None]
    if judged:
        agreed = sum(row.agrees is True for row in judged)
        print(f"{agreed} of {len(judged)} printed numbers agree with the paper's.")
    print(f"{Path(arguments.out) / 'index.html'}: written after {time.monotonic() - start:.0f} s.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kernsift reproduce",
        description="Run the paper's experiments and put its numbers and ours side by side. A run that was stopped, "
        "or killed, goes on where it was when the same command is given again.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures and tables to run (default: all; see --list)")
    parser.add_argument("--trials", type=_positive, default=100, metavar="N", help="trials of each setting (100)")
    parser.add_argument(
        "--workers", type=_positive, default=os.cpu_count() or 1, metavar="N", help="processes (one a core)"
    )
    parser.add_argument("--out", default="reproduction", metavar="DIR", help="folder for results (reproduction)")
    parser.add_argument(
        "--data-dir", metavar="DIR", help="folder with the data files (else KERNSIFT_DATA, else download)"
    )
    parser.add_argument("--list", action="store_true", help="list the figures and tables")
    parser.add_argument("--quick", action="store_true", help="everything in about a minute, with few trials")
    parser.add_argument("--cluster", metavar="ADDRESS", help="run on the Dask cluster with this scheduler")
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="seed of everything (0)")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    return parser


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"a whole number of at least 0 was needed, got {text!r}")
    return int(text)


def _positive(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"a whole number of at least 1 was needed, got {text!r}")
    return number


if __name__ == "__main__":
    sys.exit(main())
