"""One trial: draw a sample, run every method on it, measure; and the store of finished trials.

All randomness of a trial comes from seeds made of the names of its artefact and setting and of its number, so a result
depends neither on the order of the trials nor on which process, machine or backend runs them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from kernsift.api import TopKPvalues
from kernsift.experiments import studies
from kernsift.experiments.configurations import Artefact, Setting
from kernsift.experiments.methods import run_test, score
from kernsift.experiments.problems import PROBLEMS, DataSets, Sample

# method -> measure -> value, all of it JSON
Values = dict[str, dict[str, Any]]
# Artefact, setting, fingerprint and number of a trial.
Key = tuple[str, str, str, int]
FILE = "trials.jsonl"


@dataclass(frozen=True)
class Task:
    """What a worker needs to run one trial."""

    artefact: Artefact
    setting: Setting
    trial: int
    seed: int
    data_dir: str | None

    @property
    def group(self) -> str:
        return f"{self.artefact.name}, {self.setting.label}"

    @cached_property
    def key(self) -> Key:
        """The key of the trial in the store."""
        configuration = fingerprint(self.artefact, self.setting, self.seed)
        return self.artefact.name, self.setting.label, configuration, self.trial


def generator(task: Task, *parts: str) -> np.random.Generator:
    """The generator of one part of a trial."""
    return studies.generator(task.seed, (task.artefact.name, task.setting.label, *parts), task.trial)


def run_trial(task: Task) -> tuple[Task, Values]:
    """One trial of one setting, for every method."""
    if task.artefact.kind == "law":
        return task, _law(task)
    sample = PROBLEMS[task.setting.problem](task.setting.size, task.data_dir, generator(task, "data"))
    return task, _all_methods(task, sample)


def _all_methods(task: Task, sample: Sample) -> Values:
    values: Values = {}
    made = {}
    measure = MEASURES[task.artefact.kind]
    for method in task.setting.methods:
        start = time.perf_counter()
        if method.recipe not in made:
            scores = score(sample, method.recipe, generator(task, repr(method.recipe)))
            made[method.recipe] = (scores, time.perf_counter() - start)
        scores, seconds = made[method.recipe]
        start = time.perf_counter()
        tested = run_test(scores, method, task.artefact.k, task.artefact.replicates, generator(task, method.name))
        seconds += time.perf_counter() - start
        values[method.name] = measure(task, sample, tested) | {"seconds": seconds}
    return values


def _rates(task: Task, sample: Sample, tested: TopKPvalues) -> dict[str, Any]:
    """TPR and FPR: shares of the selected true and of the selected null features (appendix, section A)."""
    assert not isinstance(sample, DataSets)
    rejected, true = tested.pvalues < task.artefact.alpha, sample.truth[tested.selected]
    return {
        "TPR": float(rejected[true].sum() / max(true.sum(), 1)),
        "FPR": float(rejected[~true].sum() / max((~true).sum(), 1)),
    }


def _rejections(task: Task, sample: Sample, tested: TopKPvalues) -> dict[str, Any]:
    """For every data set whether it was selected and rejected."""
    assert isinstance(sample, DataSets)
    rejected = set(tested.selected[tested.pvalues < task.artefact.alpha].tolist())
    return {name: float(place in rejected) for place, name in enumerate(sample.candidates)}


def _pvalues(task: Task, sample: Sample, tested: TopKPvalues) -> dict[str, Any]:
    """The p-values themselves, and how many are significant."""
    return {
        "significant": int((tested.pvalues < task.artefact.alpha).sum()),
        "selected": tested.selected.tolist(),
        "pvalues": tested.pvalues.tolist(),
    }


MEASURES: dict[str, Callable[[Task, Sample, TopKPvalues], dict[str, Any]]] = {
    "rates": _rates,
    "screen": _rejections,
    "pvalues": _pvalues,
}


def _law(task: Task) -> Values:
    """Statistics of many small samples, times the root of the number of draws."""
    rng, size, start = generator(task, "data"), task.setting.size, time.perf_counter()
    [method] = task.setting.methods
    root = np.sqrt(dict(method.recipe.options)["r"] * size["n"])
    statistics = []
    for _ in range(int(size["samples"])):
        sample = PROBLEMS[task.setting.problem](size, task.data_dir, rng)
        statistics.append(float(root * score(sample, method.recipe, rng).estimate[0]))
    return {method.name: {"statistics": statistics, "seconds": time.perf_counter() - start}}


# --- the store --------------------------------------------------------------------------------------------------------


def fingerprint(artefact: Artefact, setting: Setting, seed: int) -> str:
    """Digest of what a trial's result depends on: results of an edited configuration are not mixed with others."""
    size = sorted((name, float(value)) for name, value in setting.size.items())
    limits = (artefact.kind, artefact.k, artefact.alpha, artefact.replicates)
    try:
        installed = version("kernsift")
    except PackageNotFoundError:  # run from a checkout that is not installed
        installed = "unknown"
    return studies.digest(f"{installed} {(*limits, setting.problem, size, setting.methods, seed)!r}".encode())


class TrialStore:
    """The finished trials of one output folder."""

    def __init__(self, folder: Path) -> None:
        self.log = studies.Log(folder / FILE)
        self.values: dict[Key, Values] = {}
        for record in self.log.records:
            # Records with the same key differ only in their seconds; the first is used.
            self.values.setdefault(tuple(record["key"]), record["values"])

    def add(self, key: Key, values: Values) -> None:
        """Store a finished trial."""
        self.values[key] = self.log.append({"key": key, "values": values})["values"]
