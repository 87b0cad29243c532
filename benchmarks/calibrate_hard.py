"""The hard parts of the calibration study: levels in hard settings, coverage of intervals, and far p-values.

Each part has a CSV file with a line for every setting and cell. Settings on record are not run again unless asked for.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import far_tail
import interval_coverage
import level_settings
import numpy as np
from level_settings import SETTINGS

from kernsift import InputError, compare
from kernsift.experiments.studies import Progress, read_rows, run_tasks, write_rows

PARTS = ("levels", "coverage", "tail")
LEVELS = (0.05, 0.01)
_COVERAGE_CALLS = 200
QUICK_CALLS = 3
# Calls that one task makes, so that the processes end at about the same time.
_BATCH = {"levels": 25, "coverage": 20, "tail": 20}


class Task(NamedTuple):
    part: str
    setting: str
    first: int
    last: int

    @property
    def name(self) -> str:
        return f"{self.part} | {self.setting}"


# Of one call: intervals or p-values that were counted, and those that hit (at each level).
Count = tuple[int, int, int]
Counts = dict[str, list[Count]]


@dataclass(frozen=True)
class Line:
    """A cell of a part: a share of p-values or intervals with its standard error, calls being clusters.

    `rate` is the share at level 0.05, or the coverage; `rate01` the share at level 0.01. `hits` is the number of
    p-values or intervals behind `rate`.
    """

    setting: str
    cell: str
    calls: int
    counted: int
    hits: int
    rate: float
    error: float
    rate01: float
    error01: float
    date: str
    refused: str = ""


def share(hits: np.ndarray, among: np.ndarray) -> tuple[float, float]:
    """The share of hits, and its standard error with replicates as clusters: features of one replicate go together."""
    total = among.sum()
    if total == 0:
        return float("nan"), float("nan")
    rate = hits.sum() / total
    clusters = int((among > 0).sum())
    error = np.sqrt(((hits - rate * among) ** 2).sum() * clusters / max(clusters - 1, 1)) / total
    return float(rate), float(error)


def share_at(counts: Sequence[Count], place: int) -> tuple[float, float]:
    """The share at a level, its error at least the binomial one of that level for as many independent features."""
    among, hits = np.array([(count[0], count[place]) for count in counts], dtype=float).T
    rate, error = share(hits, among)
    level = LEVELS[place - 1]
    return rate, error if error != error else max(error, float(np.sqrt(level * (1.0 - level) / among.sum())))


# --- one task of each part --------------------------------------------------------------------------------------------


def _generator(setting: str, call: int) -> np.random.Generator:
    return np.random.default_rng([zlib.crc32(setting.encode()), call])


def _levels(setting: str, call: int) -> dict[str, Count]:
    found = {}
    for cell, pvalues in SETTINGS[setting].pvalues(_generator(setting, call)).items():
        # A p-value of exactly the level may be rounded to either side of it.
        hits = [int((pvalues <= level * (1.0 + 1e-9)).sum()) for level in LEVELS]
        found[cell] = (len(pvalues), *hits)
    return found


def _coverage(setting: str, call: int) -> dict[str, Count]:
    found = {}
    for rule in interval_coverage.RULES:
        # The same data for every rule.
        covered = interval_coverage.covered(interval_coverage.CELLS[setting], rule, _generator(setting, call))
        found |= {f"{rule}, {kind}": (among, inside, 0) for kind, (inside, among) in covered.items()}
    return found


def _tail(setting: str, call: int) -> dict[str, Count]:
    counts = zip(far_tail.LEVELS, far_tail.below(setting, call), strict=True)
    return {f"{level:g}": (far_tail.COPIES, hits, 0) for level, hits in counts}


# The counts of one call by cell.
_RUN: dict[str, Callable[[str, int], dict[str, Count]]] = {"levels": _levels, "coverage": _coverage, "tail": _tail}


def run_task(task: Task) -> tuple[Task, Counts | str]:
    """The counts of a task, or why the library refuses such data."""
    found: Counts = {}
    with warnings.catch_warnings():
        # Some settings are ones that the library warns about.
        warnings.simplefilter("ignore")
        try:
            for call in range(task.first, task.last):
                for cell, count in _RUN[task.part](task.setting, call).items():
                    found.setdefault(cell, []).append(count)
        except InputError as error:
            return task, str(error)
    return task, found


# --- the run ----------------------------------------------------------------------------------------------------------


def settings_of(part: str) -> list[str]:
    return list({"levels": SETTINGS, "coverage": interval_coverage.CELLS, "tail": far_tail.COLUMNS}[part])


def calls_of(part: str, setting: str) -> int:
    if part == "levels":
        return SETTINGS[setting].calls
    return _COVERAGE_CALLS if part == "coverage" else far_tail.PERMUTATIONS // far_tail.COPIES


def matches(name: str, only: str) -> bool:
    """Whether a name holds all words of one of the lists that commas separate."""
    return any(all(word in name for word in words.split()) for words in only.split(","))


def run_part(part: str, folder: Path, workers: int, *, calls: int | None, fresh: bool, only: str) -> None:
    """Run the settings that are not on record; a setting's lines are written when its last task is done.

    `calls` is the number of calls of every setting, instead of each one's own.
    """
    path = folder / f"{part}.csv"
    known = {} if fresh and not only else _by_setting(read_rows(path, Line))
    done = set() if fresh else set(known)
    chosen = [name for name in settings_of(part) if name not in done and matches(name, only)]
    tasks = [
        Task(part, name, first, min(first + _BATCH[part], last))
        for name in chosen
        for last in [calls or calls_of(part, name)]
        for first in range(0, last, _BATCH[part])
    ]

    def finish(task: Task, answers: list[Counts | str]) -> str:
        known[task.setting] = lines_of(part, task.setting, answers)
        write_rows(path, Line, [line for one in settings_of(part) if one in known for line in known[one]])
        return _said(known[task.setting])

    run_by_name(run_task, tasks, workers, finish)


def run_by_name(
    run: Callable[[Any], tuple[Any, Any]], tasks: Sequence[Any], workers: int, finish: Callable[[Any, list[Any]], str]
) -> None:
    """Run tasks, and call `finish` with the last one of each name and the answers of all of that name."""
    progress = Progress([task.name for task in tasks], "task")
    answers: dict[str, list[Any]] = {}
    for task, answer in run_tasks(run, tasks, workers):
        answers.setdefault(task.name, []).append(answer)
        said = finish(task, answers.pop(task.name)) if progress.left[task.name] == 1 else ""
        progress.advance(task.name, lambda said=said: said)


def _said(lines: Sequence[Line]) -> str:
    return "  ".join(f"{line.cell} {line.rate:.3g}±{line.error:.2g}".strip() for line in lines)


def lines_of(part: str, setting: str, answers: Sequence[Counts | str]) -> list[Line]:
    today = date.today().isoformat()
    found: Counts = {}
    for answer in answers:
        if isinstance(answer, str):
            return [Line(setting, "", 0, 0, 0, *[float("nan")] * 4, today, answer)]
        for cell, counts in answer.items():
            found.setdefault(cell, []).extend(counts)
    if part == "levels" and len(found) > 1 and "k=1" not in found:
        found = found | {"all": [count for counts in found.values() for count in counts]}
    lines = []
    for cell, counts in found.items():
        among, hits, _ = np.array(counts).sum(axis=0).tolist()
        shares = (*share_at(counts, 1), *share_at(counts, 2))
        lines.append(Line(setting, cell, len(counts), among, hits, *shares, today))
    return lines


def _by_setting(lines: Iterable[Line]) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line.setting, []).append(line)
    return found


# --- seeds above 16,384 rows ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeedLine:
    """A quantity for one seed of the call, or for one column."""

    quantity: str
    number: int
    value: float


RARE = "p-value of 40 ones in 100,000 rows against 100,000 zeros, by seed"
SPREAD = "standard deviation between seeds of the score of a null column of 95% zeros, 20,000 v 20,000, by column"
CROSSING = "change of the score of such a column from 8,192 v 8,192 rows to one row more in each, by column"


def _call(x: np.ndarray, first: int, seed: int) -> Any:
    return compare(x[:first], x[first:], k=None, correction=None, random_state=seed)


def run_seeds(folder: Path, *, quick: bool) -> None:
    """What the seed of a call and the rounding of values change where there are more than 16,384 rows."""
    seeds = range(2 if quick else 8)
    rare = np.zeros((200_000, 1))
    rare[:40] = 1.0
    zeros = level_settings.zero_inflated(np.random.default_rng(0), (40_000, 20))
    scores = [np.asarray(_call(zeros, 20_000, seed).scores) for seed in seeds]
    few = zeros[:16_386]
    below = _call(np.delete(few, [8192, 16_385], axis=0), 8192, 0).scores
    change = np.abs(np.asarray(_call(few, 8193, 0).scores) - np.asarray(below))
    lines = [SeedLine(RARE, seed, float(_call(rare, 100_000, seed).pvalues[0])) for seed in seeds]
    lines += [SeedLine(SPREAD, place, float(v)) for place, v in enumerate(np.std(scores, axis=0, ddof=1))]
    lines += [SeedLine(CROSSING, place, float(value)) for place, value in enumerate(change)]
    write_rows(folder / "seeds.csv", SeedLine, lines)
    print("seeds | " + "  ".join(f"{line.value:.3g}" for line in lines), flush=True)
