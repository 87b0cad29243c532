"""Rows that are not independent: levels, power and cost with strata, pairs and units.

    python benchmarks/designs.py                       all parts, then the page
    python benchmarks/designs.py levels --trials 40    one part
    python benchmarks/designs.py again                 levels above 0.06 with 1,600 p-values of new data, then 6,400
    python benchmarks/designs.py --quick               all parts with few trials (give it another --folder)
    python benchmarks/designs.py page                  docs/designs.md, and the picture of real data

Every part writes docs/designs/<part>.csv after each row and goes on where it stopped; --fresh starts again. Data sets
have 40 independent features, so that one trial gives 40 p-values, or 13 of a short list. `real` needs KERNSIFT_DATA
with parkinsons_voice.csv and heart_disease_4sites.csv.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from pages import DOCS, fill, table
from scipy import sparse, stats

from kernsift import compare, relate
from kernsift.experiments.studies import generator, read_rows, run_tasks, write_rows

FOLDER = DOCS / "designs"
ALPHA, FEATURES = 0.05, 40
_TRIALS = {"levels": 50, "again": 40, "real": 500, "power": 40, "coverage": 10, "cost": 3}
_QUICK = {"levels": 5, "again": 10, "real": 30, "power": 5, "coverage": 1, "cost": 1}
SUSPICIOUS = 0.06
# Rows and groups of data sets that are not in the data folder: simulated in their place, with 20 features.
STAND_INS = {
    "telemonitoring": (5_875, 42, "unit"),
    "conformations": (476, 92, "unit"),
    "imaging": (1_101, 17, "strata"),
}
PLAIN, ATTAINABLE = "rows as if independent", "two values: what the exact test attains"
SHAPES = ("normal", "heavy tails", "counts", "zero-inflated", "binary")


@dataclass(frozen=True)
class Row:
    """A share of p-values at most 0.05, or of discoveries, and its standard error over trials."""

    design: str
    setting: str
    shape: str
    method: str
    share: float
    error: float
    trials: int


@dataclass(frozen=True)
class Cost:
    """CPU time of a call over that of the plain call."""

    setting: str
    seconds: float
    ratio: float


Methods = dict[str, Callable[[], np.ndarray]]
"""For each method a function that gives which features are significant."""


@dataclass(frozen=True)
class Task:
    """Some trials of a setting."""

    part: str
    design: str
    setting: str
    shape: str
    trials: int
    first: int = 0
    methods: tuple[str, ...] = ()


# --- data -------------------------------------------------------------------------------------------------------------


def values(rng: np.random.Generator, shape: str, group: np.ndarray, common: float) -> np.ndarray:
    """(n, features) null features; `common` is the share of the variance that rows of a group share."""
    n, count = len(group), int(group.max()) + 1
    level = rng.normal(size=(count, FEATURES))[group]
    latent = np.sqrt(common) * level + np.sqrt(1.0 - common) * rng.normal(size=(n, FEATURES))
    if shape == "heavy tails":
        heavy = rng.standard_t(2.5, size=(count, FEATURES))[group]
        return np.sqrt(common) * heavy + np.sqrt(1.0 - common) * rng.standard_t(2.5, size=(n, FEATURES))
    if shape == "counts":
        return rng.poisson(np.exp(0.7 + np.sqrt(common) * level)).astype(float)
    if shape == "zero-inflated":
        return np.where(latent > 0.7, np.exp(latent), 0.0)
    return (latent > 0.3).astype(float) if shape == "binary" else latent


def unit_sizes(rng: np.random.Generator, kind: str, units: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the units of two samples."""
    if kind == "equal":
        return np.full(units, rows), np.full(units, rows)
    if kind == "unequal":
        return rng.geometric(1.0 / rows, size=units), rng.geometric(1.0 / rows, size=units)
    return np.full(units, rows), np.full(units, 10 * rows)


def units_trial(setting: str, shape: str, rng: np.random.Generator) -> Methods:
    """Units, of which each belongs to one sample."""
    units, rows, kind, common = setting.split(" / ")
    first, second = unit_sizes(rng, kind, int(units), int(rows))
    unit = np.repeat(np.arange(2 * int(units)), np.append(first, second))
    X, label = values(rng, shape, unit, float(common)), (unit >= int(units)).astype(int)
    answer = rng.normal(size=2 * int(units))[unit]
    return {
        PLAIN: partial(pvalues, X, label),
        **with_list("unit=", X, label, unit=unit),
        "relate, unit=": partial(pvalues, X, answer, unit=unit, response="numeric"),
    }


def strata_of_units_trial(setting: str, shape: str, rng: np.random.Generator) -> Methods:
    """Units within strata, which have means and label shares of their own."""
    count, units, rows, kind, common = setting.split(" / ")
    half = int(count) * int(units) // 2
    stratum = np.repeat(np.arange(int(count)), int(units))
    share = rng.beta(1.0, 1.0, size=int(count))
    own = (rng.random(2 * half) < share[stratum]).astype(int)
    own[:2] = [0, 1]
    # Sizes of the units of both labels: with ten times more rows in one sample, these are those of the label.
    few, many = unit_sizes(rng, kind, 2 * half, int(rows))
    unit = np.repeat(np.arange(2 * half), np.where(own == 1, many, few))
    X, site = values(rng, shape, unit, float(common)), stratum[unit]
    if shape in ("normal", "heavy tails"):
        X = X + rng.normal(size=(int(count), FEATURES))[site]
    answer = (rng.normal(size=2 * half) + 2.0 * rng.normal(size=int(count))[stratum])[unit]
    design: dict[str, Any] = {"unit": unit, "strata": site}
    return {
        PLAIN: partial(pvalues, X, own[unit]),
        **with_list("unit= and strata=", X, own[unit], **design),
        "relate, unit= and strata=": partial(pvalues, X, answer, response="numeric", **design),
    }


def cross_trial(setting: str, shape: str, rng: np.random.Generator) -> Methods:
    """Units, of which the cross estimator takes one half to test what it learnt from the other."""
    units, rows, kind, common = setting.split(" / ")
    unit = np.repeat(np.arange(2 * int(units)), np.append(*unit_sizes(rng, kind, int(units), int(rows))))
    X, answer = values(rng, shape, unit, float(common)), rng.normal(size=2 * int(units))[unit]
    design: dict[str, Any] = {"unit": unit, "estimator": "cross"}
    return {
        "unit=, estimator='cross'": partial(pvalues, X, unit >= int(units), **design),
        "relate, unit=, estimator='cross'": partial(pvalues, X, answer, response="numeric", **design),
    }


def strata_trial(setting: str, shape: str, rng: np.random.Generator) -> Methods:
    """Strata with means, spreads and label shares of their own."""
    count, size = (int(part) for part in setting.split(" / "))
    stratum = np.repeat(np.arange(count), size)
    X = values(rng, shape, stratum, 0.8)
    if shape in ("normal", "heavy tails"):
        X *= np.exp(0.5 * rng.normal(size=count))[stratum, None]
    label = (rng.random(len(stratum)) < rng.beta(1.0, 1.0, size=count)[stratum]).astype(int)
    label[:2] = [0, 1]
    answer = rng.normal(size=len(stratum)) + 2.0 * rng.normal(size=count)[stratum]
    return {
        PLAIN: partial(pvalues, X, label),
        **with_list("strata=", X, label, strata=stratum),
        "relate, strata=": partial(pvalues, X, answer, strata=stratum, response="numeric"),
    } | ({ATTAINABLE: partial(attainable, X, label, stratum)} if shape == "binary" else {})


def pairs_trial(setting: str, shape: str, rng: np.random.Generator) -> Methods:
    """Pairs with a common effect."""
    pair = np.tile(np.arange(int(setting)), 2)
    X, label = values(rng, shape, pair, 0.5), np.repeat([0, 1], int(setting))
    return {
        PLAIN: partial(pvalues, X, label),
        **with_list("paired=", X, label, paired=pair),
    } | ({ATTAINABLE: partial(attainable, X, label, pair)} if shape == "binary" else {})


def attainable(X: np.ndarray, label: np.ndarray, stratum: np.ndarray) -> np.ndarray:
    """The level that the exact test of columns with two values attains: few p-values are possible."""
    out, sizes = [], np.bincount(stratum)
    labelled = np.bincount(stratum, label).astype(int)
    for column in X.T:
        law, marked = np.ones(1), np.bincount(stratum, column).astype(int)
        lowest = np.maximum(0, labelled + marked - sizes)
        for n, k, m, low in zip(sizes, labelled, marked, lowest, strict=True):
            law = np.convolve(law, stats.hypergeom.pmf(np.arange(low, min(k, m) + 1), n, m, k))
        distance = np.abs(lowest.sum() + np.arange(len(law)) - (labelled * marked / sizes).sum())
        tails = np.array([law[distance >= own * (1 - 1e-9)].sum() for own in distance])
        out.append(law[tails <= ALPHA].sum())
    return np.array(out)


def pvalues(X: np.ndarray, y: np.ndarray, **options: Any) -> np.ndarray:
    return relate(X, y, random_state=0, n_jobs=1, **options).all_pvalues <= ALPHA


def with_list(name: str, X: np.ndarray, y: np.ndarray, **options: Any) -> Methods:
    """All features, and a short list of a third of them; one call has both."""
    found = cache(partial(relate, X, y, k=FEATURES // 3, random_state=0, n_jobs=1, **options))
    return {name: lambda: found().all_pvalues <= ALPHA, f"{name}, k=d/3": lambda: found().pvalues <= ALPHA}


# --- power ------------------------------------------------------------------------------------------------------------


def paired_power(setting: str, shape: str, rng: np.random.Generator) -> Methods:
    """A shift, a change of spread, or another shape, behind a common effect of the pair."""
    n, common = int(setting.split(" / ")[0]), float(setting.split(" / ")[1])
    level = common * rng.normal(size=(n, FEATURES))
    first, second = rng.normal(size=(2, n, FEATURES))
    if shape == "shift":
        second = second + 0.5
    elif shape == "spread":
        second = 2.0 * second
    else:
        second = rng.exponential(size=(n, FEATURES)) - 1.0
    X, Y = level + first, level + second
    methods: Methods = {
        "paired=": lambda: compare(X, Y, paired=True, random_state=0, n_jobs=1).all_pvalues <= ALPHA,
        "paired t-test": lambda: stats.ttest_rel(X, Y).pvalue <= ALPHA,
    }
    if shape == "spread":
        methods["Pitman-Morgan test"] = lambda: stats.pearsonr(X + Y, X - Y).pvalue <= ALPHA
    elif shape == "shape":
        methods["asymmetry of differences"] = partial(asymmetry, X, Y)
        methods["most powerful test"] = partial(most_powerful, X, Y, common)
    return methods


def asymmetry(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """A test of nothing but the asymmetry of the differences: the sum of their third Hermite polynomials over flips."""
    difference = (X - Y) / np.sqrt(((X - Y) ** 2).mean(axis=0))
    cubic = difference**3 - 3.0 * difference
    return np.abs(cubic.sum(axis=0)) / np.sqrt((cubic**2).sum(axis=0)) > stats.norm.isf(ALPHA / 2.0)


def most_powerful(X: np.ndarray, Y: np.ndarray, common: float) -> np.ndarray:
    """The likelihood ratio test over swaps within pairs, which knows both densities and the variance of the effects.

    X is normal and Y exponential, each with the effect of its pair. Given the pairs without their order, the sum of the
    log ratios f(x, y) / f(y, x) has a symmetric law with the squares of the ratios as variances.
    """
    v = common**2 / (1.0 + common**2)

    def log_density(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if common == 0:
            return stats.norm.logpdf(x) + np.where(y > -1.0, -1.0 - y, -np.inf)
        tail = stats.norm.logcdf((y + 1.0 - v * x - v) / np.sqrt(v))
        return stats.norm.logpdf(x, scale=np.sqrt(1.0 + common**2)) - y - 1.0 + v * x + v / 2.0 + tail

    with np.errstate(invalid="ignore"):
        ratio = np.clip(np.nan_to_num(log_density(X, Y) - log_density(Y, X)), -40.0, 40.0)
    return ratio.sum(axis=0) / np.sqrt((ratio**2).sum(axis=0)) > stats.norm.isf(ALPHA)


def strata_power(setting: str, shape: str, rng: np.random.Generator) -> Methods:
    """The plain test on data without stratum effects, and the test within strata with and without them.

    Within a stratum of n rows the label tells n - 1 of them apart, so that the plain test on one row less of each
    stratum has as much to go by as a test within strata. A change of spread around an unknown level has a share
    1 - 2 / n of this.
    """
    count, size = (int(part) for part in setting.split(" / "))
    stratum = np.repeat(np.arange(count), size)
    label = (rng.random(len(stratum)) < 0.5).astype(int)
    noise = rng.normal(size=(len(stratum), FEATURES))
    clean = noise + 0.35 * label[:, None] if shape == "shift" else noise * (1.0 + 0.4 * label[:, None])
    shifted = clean + 3.0 * rng.normal(size=(count, FEATURES))[stratum]
    rest = np.arange(len(stratum)) % size > 0
    some = rng.permutation(len(stratum))[: round(count * (size - 1) * (1 - 2 / size))]
    return {
        "plain, no stratum effects": partial(pvalues, clean, label),
        "plain, one row less of each stratum": partial(pvalues, clean[rest], label[rest]),
        "plain, (1 - 1/n)(1 - 2/n) of the rows": partial(pvalues, clean[some], label[some]),
        "strata=, no stratum effects": partial(pvalues, clean, label, strata=stratum),
        "strata=, stratum effects": partial(pvalues, shifted, label, strata=stratum),
    }


def coverage_data(setting: str, shape: str, times: int, rng: np.random.Generator) -> tuple[Any, np.ndarray, Any]:
    """Features that all have one effect, with rows in strata, pairs or units; there are `times` as many of these."""
    design, count, size = setting.split(" / ")
    groups, rows = (int(count), times * int(size)) if design == "strata" else (times * int(count), int(size))
    group = np.repeat(np.arange(groups), rows)
    label = group % 2 if design == "unit" else np.arange(len(group)) % 2
    if design == "strata":
        label = (rng.random(len(group)) < rng.uniform(0.3, 0.7, size=groups)[group]).astype(int)
    noise = rng.normal(size=(len(group), FEATURES)) * (1.5 if shape == "spread" else 1.0) ** label[:, None]
    shift = {"nothing": 0.0, "shift": 0.7, "spread": 0.0}[shape]
    level = (0.7 if design == "unit" else 1.0) * rng.normal(size=(groups, FEATURES))
    return level[group] + noise + shift * label[:, None], label, {design: group}


@lru_cache(maxsize=64)
def true_effect(setting: str, shape: str) -> float:
    """The effect that estimates tend to, from a data set twenty times as large; nothing has the effect 0."""
    if shape == "nothing":
        return 0.0
    X, label, design = coverage_data(setting, shape, 20, generator(1, (setting, shape), 0))
    return float(np.mean(relate(X, label, random_state=0, n_jobs=1, **design).effects))


def coverage(setting: str, shape: str, rng: np.random.Generator) -> Methods:
    """Whether 95 percent intervals hold the effect."""
    X, label, design = coverage_data(setting, shape, 1, rng)

    def covered() -> np.ndarray:
        found = relate(X, label, random_state=0, n_jobs=1, correction=None, **design).intervals
        return (found[:, 0] <= true_effect(setting, shape)) & (true_effect(setting, shape) <= found[:, 1])

    return {"intervals": covered}


# --- real data --------------------------------------------------------------------------------------------------------


def real_trial(setting: str, shape: str, rng: np.random.Generator) -> Methods:
    """Random labels: of whole subjects, or with shares that differ from site to site."""
    import pandas as pd

    folder = Path(os.environ["KERNSIFT_DATA"])
    if setting == "voice recordings":
        data = pd.read_csv(folder / "parkinsons_voice.csv").drop(columns="name")
        subject, labels = np.unique(data.pop("subject"), return_inverse=True)
        status = data.pop("status").to_numpy()
        own = np.array([status[labels == one][0] for one in range(len(subject))])
        label, design = rng.permutation(own)[labels], {"unit": labels}
    elif setting == "four hospitals":
        data = pd.read_csv(folder / "heart_disease_4sites.csv").drop(columns=["num", "label"])
        site = np.unique(data.pop("site"), return_inverse=True)[1]
        label, design = (rng.random(len(site)) < rng.beta(2.0, 2.0, size=4)[site]).astype(int), {"strata": site}
    else:
        n, count, argument = STAND_INS[setting]
        group = np.sort(np.append(np.arange(count), rng.choice(count, n - count, p=rng.dirichlet(np.full(count, 3.0)))))
        data = pd.DataFrame(values(rng, "normal", group, 0.7)[:, :20])
        shares = rng.permutation(np.arange(count) % 2) if argument == "unit" else rng.beta(2.0, 2.0, size=count)
        label, design = (rng.random(n) < shares[group]).astype(int), {argument: group}
    numbers = data.to_numpy(float)

    def ks(column: np.ndarray) -> bool:
        return bool(stats.ks_2samp(*(column[(label == one) & ~np.isnan(column)] for one in (0, 1))).pvalue <= ALPHA)

    return {
        PLAIN: partial(pvalues, numbers, label),
        "Kolmogorov-Smirnov": lambda: np.array([ks(column) for column in numbers.T]),
        f"{next(iter(design))}=": partial(pvalues, numbers, label, **design),
    }


# --- parts ------------------------------------------------------------------------------------------------------------

TRIALS: dict[str, Callable[[str, str, np.random.Generator], Methods]] = {
    "units": units_trial,
    "units in strata": strata_of_units_trial,
    "cross": cross_trial,
    "strata": strata_trial,
    "pairs": pairs_trial,
    "paired power": paired_power,
    "strata power": strata_power,
    "coverage": coverage,
    "real": real_trial,
}


def tasks(part: str, trials: int) -> Iterator[Task]:
    """The settings of a part."""
    if part == "levels":
        units = [(3, 20), (5, 2), (5, 100), (10, 2), (10, 20), (20, 20), (50, 5), (10, 500)]
        for m, rows in units:
            for kind in ("equal", "unequal", "ten times"):
                for common in (0.0, 0.3, 0.9):
                    for shape in SHAPES if rows < 100 else SHAPES[:1]:
                        if m * rows <= 1000 or kind != "ten times":
                            yield Task(part, "units", f"{m} / {rows} / {kind} / {common}", shape, trials)
        for count, size, rows in ((3, 6, 20), (4, 10, 5), (10, 4, 10), (40, 2, 5)):
            for kind in ("equal", "unequal", "ten times"):
                for shape in SHAPES if (kind, count) == ("equal", 4) else SHAPES[:1]:
                    yield Task(part, "units in strata", f"{count} / {size} / {rows} / {kind} / 0.3", shape, trials)
        for m, rows in ((10, 10), (10, 20), (20, 20), (50, 5)):
            for kind in ("equal", "unequal", "ten times"):
                for common in (0.0, 0.3, 0.9):
                    for shape in SHAPES if common == 0.3 else SHAPES[:1]:
                        yield Task(part, "cross", f"{m} / {rows} / {kind} / {common}", shape, trials)
        for count, size in ((2, 50), (4, 20), (10, 10), (50, 4), (100, 2), (200, 5)):
            for shape in SHAPES:
                yield Task(part, "strata", f"{count} / {size}", shape, trials)
        for count in (5, 10, 25, 100, 200):
            for shape in SHAPES:
                yield Task(part, "pairs", str(count), shape, trials)
    elif part == "power":
        for setting in ("25 / 0", "25 / 1", "25 / 3", "100 / 1", "100 / 3"):
            for shape in ("shift", "spread", "shape"):
                yield Task(part, "paired power", setting, shape, trials)
        for setting in ("4 / 50", "20 / 20", "10 / 10"):
            for shape in ("shift", "spread"):
                yield Task(part, "strata power", setting, shape, trials)
    elif part == "coverage":
        for setting in ("strata / 4 / 50", "strata / 10 / 10", "unit / 24 / 10", "unit / 80 / 5", "paired / 60 / 2"):
            for shape in ("nothing", "shift", "spread"):
                yield Task(part, "coverage", setting, shape, trials)
    else:
        for setting in ("voice recordings", "four hospitals", *STAND_INS):
            yield Task(part, "real", setting, "as it is", trials)


def measured(task: Task) -> list[Row]:
    """The shares of significant features of all trials of a setting, method by method."""
    found: dict[str, list[float]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(task.first, task.first + task.trials):
            rng = generator(0, (task.design, task.setting, task.shape), number)
            for method, significant in TRIALS[task.design](task.setting, task.shape, rng).items():
                if method in (task.methods or [method]):
                    found.setdefault(method, []).append(float(np.mean(significant())))
    rows = []
    for method, shares in found.items():
        mean, error = float(np.mean(shares)), float(np.std(shares) / np.sqrt(len(shares)))
        rows.append(Row(task.design, task.setting, task.shape, method, mean, error, len(shares)))
    return rows


def run_part(part: str, trials: int, folder: Path, workers: int, fresh: bool) -> None:
    """Run what is not there yet, and write it down row by row."""
    path = folder / f"{part}.csv"
    rows = [] if fresh else read_rows(path, Row)
    done = {(row.design, row.setting, row.shape) for row in rows}
    rest = [task for task in tasks(part, trials) if (task.design, task.setting, task.shape) not in done]
    for number, found in enumerate(run_tasks(measured, rest, workers), 1):
        rows += found
        write_rows(path, Row, rows)
        print(f"{part}: {number} of {len(rest)}", file=sys.stderr, flush=True)


def run_again(trials: int, folder: Path, workers: int) -> None:
    """Measure the levels above 0.06 again, with new data sets that give `trials` times 40 p-values."""
    path, number = folder / "levels.csv", itertools.count(1)
    rows = read_rows(path, Row)
    high = [
        row for row in rows if row.share > SUSPICIOUS and row.method not in (PLAIN, ATTAINABLE) and row.trials < trials
    ]
    rest = [
        Task("again", row.design, row.setting, row.shape, trials * FEATURES // tested(row), row.trials, (row.method,))
        for row in sorted(high, key=lambda row: -row.share)
    ]
    for [new] in run_tasks(measured, rest, workers):
        same = [(row.design, row.setting, row.shape, row.method) for row in rows]
        rows[same.index((new.design, new.setting, new.shape, new.method))] = new
        write_rows(path, Row, rows)
        print(f"again: {next(number)} of {len(rest)}", file=sys.stderr, flush=True)


def tested(row: Row) -> int:
    """P-values of a trial."""
    return FEATURES // 3 if row.method.endswith("k=d/3") else FEATURES


def run_cost(trials: int, folder: Path) -> None:
    """CPU time of 20,000 rows and 500 features, and of 84,000 cells and 1,000 genes, over that of the plain call."""
    rng = np.random.default_rng(0)
    stratum = rng.integers(0, 20, size=20_000)
    X, label = rng.normal(size=(20_000, 500)) + rng.normal(size=(20, 500))[stratum], np.repeat([0, 1], 10_000)
    cells = sparse.random(84_000, 1_000, density=0.1, random_state=0, format="csr")
    donor = rng.integers(0, 16, size=84_000)
    dense, many = "20,000 rows, 500 features: ", "84,000 cells, 1,000 genes, sparse: "
    calls: dict[str, tuple[Any, np.ndarray, dict[str, Any]]] = {
        f"{dense}plain": (X, label, {}),
        f"{dense}20 strata": (X, label, {"strata": stratum}),
        f"{dense}100 units": (X, label, {"unit": np.arange(20_000) // 200}),
        f"{dense}10,000 pairs": (X, label, {"paired": np.tile(np.arange(10_000), 2)}),
        f"{many}plain": (cells, donor % 2, {}),
        f"{many}4 strata": (cells, donor % 2, {"strata": donor // 4}),
        f"{many}16 donors": (cells, donor % 2, {"unit": donor}),
    }
    times: dict[str, float] = dict.fromkeys(calls, np.inf)
    for _ in range(trials):
        for name, (data, response, design) in calls.items():
            start = time.process_time()
            relate(data, response, random_state=0, n_jobs=1, **design)
            times[name] = min(times[name], time.process_time() - start)
    rows = [Cost(name, seconds, seconds / times[f"{name.split(': ')[0]}: plain"]) for name, seconds in times.items()]
    write_rows(folder / "cost.csv", Cost, rows)


# --- page -------------------------------------------------------------------------------------------------------------


def write_page(folder: Path) -> None:
    """The tables of designs.md beside the folder, and the picture of real data."""
    found = {"levels": _levels(read_rows(folder / "levels.csv", Row))}
    power = read_rows(folder / "power.csv", Row)
    for name, design in (("power in strata", "strata power"), ("power in pairs", "paired power")):
        found[name] = _power([row for row in power if row.design == design])
    head = ["groups and rows of each", "change", "intervals that hold the effect"]
    covered = read_rows(folder / "coverage.csv", Row)
    found["coverage"] = table(head, [[row.setting, row.shape, f"{row.share:.3f} ± {row.error:.3f}"] for row in covered])
    costs = read_rows(folder / "cost.csv", Cost)
    rows = [[cost.setting, f"{cost.seconds:.2f}", f"{cost.ratio:.2f}"] for cost in costs]
    found["cost"] = table(["table and design", "CPU seconds", "times the plain call"], rows)
    fill(folder.parent / "designs.md", found)
    real = read_rows(folder / "real.csv", Row)
    if real:
        draw(real, folder / "real.png")


def _levels(levels: list[Row]) -> str:
    rows = []
    for design, method in dict.fromkeys((group_of(row), row.method) for row in levels):
        own = [row for row in levels if (group_of(row), row.method) == (design, method)]
        # P-values of a data set may be correlated, which their standard error over data sets shows.
        errors = [max(row.error, np.sqrt(ALPHA * (1.0 - ALPHA) / (tested(row) * row.trials))) for row in own]
        above = sum(row.share > SUSPICIOUS + 2.0 * error for row, error in zip(own, errors, strict=True))
        mean, highest = np.mean([row.share for row in own]), max(row.share for row in own)
        rows.append([design, method, str(len(own)), f"{mean:.3f}", f"{highest:.3f}", str(above)])
    attainable = f"{attainable_in_lists(126):.3f}"
    rows.append(["5 units a sample", "k=d/3: what an exact test attains", "", attainable, "", ""])
    head = ["design", "method", "settings", "false positives", "highest", "settings above 0.06 by two errors"]
    return table(head, rows)


def _power(power: list[Row]) -> str:
    """Methods side by side."""
    own = {(row.setting, row.shape, row.method): row for row in power}
    methods = list(dict.fromkeys(method for _, _, method in own))
    rows = []
    for setting, shape in dict.fromkeys((setting, shape) for setting, shape, _ in own):
        cells = [own.get((setting, shape, method)) for method in methods]
        rows.append([setting, shape, *("" if row is None else f"{row.share:.2f}" for row in cells)])
    return table(["setting", "change", *methods], rows)


def attainable_in_lists(relabellings: int) -> float:
    """The level in a short list of exact p-values, which are ranks among `relabellings` values without ties."""
    ranks = np.random.default_rng(0).integers(1, relabellings + 1, size=(100_000, FEATURES))
    ranks.sort(axis=1)
    return float((ranks[:, : FEATURES // 3] <= ALPHA * ranks[:, [FEATURES // 3]]).mean())


def group_of(row: Row) -> str:
    """The design of a level, apart where few relabellings or values keep an exact test from attaining 0.05."""
    count = int(row.setting.split(" / ")[0])
    if row.design in ("units", "pairs") and count <= {"units": 5, "pairs": 10}[row.design]:
        return {"units": "3 or 5 units a sample", "pairs": "5 or 10 pairs"}[row.design]
    return f"{row.design}, two values" if row.design in ("strata", "pairs") and row.shape == "binary" else row.design


def draw(rows: list[Row], path: Path) -> None:
    """False positives with random labels, as bars."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    titles = {
        "voice recordings": "voice recordings\n195 rows, 32 subjects",
        "four hospitals": "hospitals\n920 rows, 4 sites",
        "telemonitoring": "telemonitoring, simulated\n5,875 rows, 42 subjects",
        "conformations": "conformations, simulated\n476 rows, 92 molecules",
        "imaging": "imaging, simulated\n1,101 rows, 17 sites",
    }
    figure, ax = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    for place, (name, colour) in enumerate(((PLAIN, "#c0504d"), ("Kolmogorov-Smirnov", "#d9a18f"), ("=", "#2a9d8f"))):
        own = {row.setting: row for row in rows if row.method.endswith(name)}
        found = [own[setting] for setting in titles if setting in own]
        y = [list(titles).index(row.setting) + 0.27 * (place - 1) for row in found]
        label = "unit= or strata=" if name == "=" else name
        ax.barh(y, [row.share for row in found], 0.25, xerr=[row.error for row in found], color=colour, label=label)
    ax.axvline(ALPHA, color="black", lw=1, ls="--")
    ax.set_yticks(range(len(titles)), list(titles.values()), fontsize=9)
    ax.invert_yaxis()
    ax.set_xlabel("false positives at level 0.05")
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, fontsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*_TRIALS, "page"])
    parser.add_argument("--trials", type=int)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    for part in given.parts or [*_TRIALS, "page"]:
        trials = given.trials or (_QUICK if given.quick else _TRIALS).get(part, 0)
        if part == "page":
            write_page(given.folder)
        elif part == "cost":
            run_cost(trials, given.folder)
        elif part == "again":
            run_again(trials, given.folder, given.workers)
            run_again(4 * trials, given.folder, given.workers)
        elif part == "real" and "KERNSIFT_DATA" not in os.environ:
            print("real: left out, as KERNSIFT_DATA is not set", file=sys.stderr)
        else:
            run_part(part, trials, given.folder, given.workers, given.fresh)


if __name__ == "__main__":
    main()
