"""One trial: draw a sample, run every method on it, measure.

All randomness of a trial comes from seeds made of the names of its artefact and setting and of its number, so a result
depends neither on the order of the trials nor on which process, machine or backend runs them.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from kernsift.experiments.configurations import Artefact, Setting
from kernsift.experiments.methods import Decisions, run_test, score
from kernsift.experiments.problems import PROBLEMS, DataSets, Sample

# method -> measure -> value, all of it JSON
Values = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Task:
    """What a worker needs to run one trial."""

    artefact: Artefact
    setting: Setting
    trial: int
    seed: int
    data_dir: str | None


def generator(task: Task, *parts: str) -> np.random.Generator:
    """The generator of one part of a trial."""
    names = (task.artefact.name, task.setting.label, *parts)
    key = [zlib.crc32(name.encode()) for name in names]
    return np.random.default_rng(np.random.SeedSequence(task.seed, spawn_key=(*key, task.trial)))


def run_trial(task: Task) -> tuple[Task, Values]:
    """One trial of one setting, for every method."""
    # One thread each: sums over several threads depend on their number in the last bits.
    with threadpool_limits(1):
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


def _rates(task: Task, sample: Sample, tested: Decisions) -> dict[str, Any]:
    """TPR and FPR: shares of the selected true and of the selected null features (appendix, section A)."""
    assert not isinstance(sample, DataSets)
    rejected, true = tested.pvalues < task.artefact.alpha, sample.truth[tested.selected]
    return {
        "TPR": float(rejected[true].sum() / max(true.sum(), 1)),
        "FPR": float(rejected[~true].sum() / max((~true).sum(), 1)),
    }


def _rejections(task: Task, sample: Sample, tested: Decisions) -> dict[str, Any]:
    """For every data set whether it was selected and rejected."""
    assert isinstance(sample, DataSets)
    rejected = set(tested.selected[tested.pvalues < task.artefact.alpha].tolist())
    return {name: float(place in rejected) for place, name in enumerate(sample.candidates)}


def _pvalues(task: Task, sample: Sample, tested: Decisions) -> dict[str, Any]:
    """The p-values themselves, and how many are significant."""
    return {
        "significant": int((tested.pvalues < task.artefact.alpha).sum()),
        "selected": tested.selected.tolist(),
        "pvalues": tested.pvalues.tolist(),
    }


MEASURES: dict[str, Callable[[Task, Sample, Decisions], dict[str, Any]]] = {
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
