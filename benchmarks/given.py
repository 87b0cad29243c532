"""False positives, power and time of conditional tests, of survival tests and of distinct features: docs/given.md.

    python benchmarks/given.py                      # all parts, a few minutes on two cores
    python benchmarks/given.py levels --trials 200  # one part, with more data sets
    python benchmarks/given.py power --only "index, .*, 300, " --trials 400  # some rows of a part; others are kept
    python benchmarks/given.py page                 # the page, from the records in docs/given/

Peers that are not installed are left out, which is said: causal-learn (KCI), hyppo (FCIT, conditional distance
correlation), statsmodels (Cox), pyHSICLasso, knockpy. GCM and PCM are the generalised covariance measure of Shah and
Peters (2020) and the projected covariance measure of Lundborg et al. (2024) with random forests, the two tests of
pycomets, written out here.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from given_page import write_page
from pages import DOCS
from scipy.stats import norm

from kernsift import relate
from kernsift.experiments.studies import generator, run_tasks

Data = tuple[np.ndarray, np.ndarray, np.ndarray]
LINKS: tuple[Callable[[np.ndarray], np.ndarray], ...] = (np.sin, np.square, np.tanh, np.abs, np.cos)
FEATURES = 20
TREES = 100
SEED = 20
# The second problem played no part in the choice of the threshold of clusters.
FIVE, THREE = "five signals, four copies each", "three signals, eight weak copies each"


def _scaled(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / values.std()


def _link(rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    return LINKS[rng.integers(len(LINKS))]


# Scenarios: features and a response that are independent given the confounders ---------------------------------------


def index(rng: np.random.Generator, n: int, p: int) -> Data:
    """Everything follows one combination of the confounders."""
    z = rng.normal(size=(n, p))
    along = 1.5 * z @ (weights := rng.normal(size=p)) / np.linalg.norm(weights)
    X = np.column_stack([_scaled(LINKS[j % 3](along)) + 0.7 * rng.normal(size=n) for j in range(FEATURES)])
    return X, _scaled(LINKS[rng.integers(3)](along)) + 0.7 * rng.normal(size=n), z


def post_nonlinear(rng: np.random.Generator, n: int, p: int) -> Data:
    """Each variable is a curve of noise and a curve of its own combination."""
    z = rng.normal(size=(n, p))

    def one() -> np.ndarray:
        weights = rng.normal(size=p)
        return _link(rng)(_scaled(_link(rng)(z @ weights / np.linalg.norm(weights))) + 0.7 * rng.normal(size=n))

    return np.column_stack([one() for _ in range(FEATURES)]), one(), z


def interaction(rng: np.random.Generator, n: int, p: int) -> Data:
    """Products of confounders; with one, its square."""
    z = rng.normal(size=(n, p))
    curve = _scaled(z[:, 0] * z[:, 1 % p] + (z[:, 0] * z[:, 2] if p > 2 else 0.0))
    X = np.column_stack([(-1) ** j * curve + 0.7 * rng.normal(size=n) for j in range(FEATURES)])
    return X, curve + 0.7 * rng.normal(size=n), z


def mixed(rng: np.random.Generator, n: int, p: int) -> Data:
    """A site with four levels that changes the curve of another confounder, and the noise."""
    z = rng.normal(size=(n, p))
    z[:, 0] = rng.integers(4, size=n)
    curve = rng.normal(size=4)[z[:, 0].astype(int)] + (np.sin(2 * z[:, 1]) * (1 + (z[:, 0] > 1)) if p > 1 else 0.0)
    spread = 0.7 * (1 + 0.5 * (z[:, 0] == 1))
    curve = _scaled(curve + (z[:, 2] if p > 2 else 0.0))
    return (
        np.column_stack([curve + spread * rng.normal(size=n) for _ in range(FEATURES)]),
        (curve + spread * rng.normal(size=n)),
        z,
    )


def additive(rng: np.random.Generator, n: int, p: int) -> Data:
    """Sums of curves of single confounders."""
    z = rng.uniform(-2, 2, size=(n, p))
    one, other = (_scaled(sum(LINKS[(j + shift) % 5](1.5 * z[:, j]) for j in range(p))) for shift in (0, 1))
    X = np.column_stack([(one if j % 2 else other) + 0.7 * rng.normal(size=n) for j in range(FEATURES)])
    return X, one + 0.7 * rng.normal(size=n), z


def waves(rng: np.random.Generator, n: int, p: int) -> Data:
    """A fast wave along a combination of two confounders; with one, along it."""
    z = rng.normal(size=(n, p))
    curve = _scaled(np.sin(3.0 * z[:, :2].sum(axis=1)))
    X = np.column_stack([curve + 0.7 * rng.normal(size=n) for _ in range(FEATURES)])
    return X, curve + 0.7 * rng.normal(size=n), z


def unequal_spread(rng: np.random.Generator, n: int, p: int) -> Data:
    """Only the spread follows a combination of the confounders, and is largest where rows are rare."""
    z = rng.normal(size=(n, p))
    spread = 0.3 + (z @ (weights := rng.normal(size=p)) / np.linalg.norm(weights)) ** 2
    return spread[:, None] * rng.normal(size=(n, FEATURES)), spread * rng.normal(size=n), z


def noisy(rng: np.random.Generator, n: int, p: int) -> Data:
    """The confounders are measured with noise: half of their variance. No test can hold its level."""
    X, y, z = index(rng, n, p)
    return X, y, z + rng.normal(size=z.shape)


SCENARIOS = {
    "index": index,
    "post-nonlinear": post_nonlinear,
    "interaction": interaction,
    "mixed types": mixed,
    "additive": additive,
    "fast waves": waves,
    "unequal spread": unequal_spread,
    "measured with noise": noisy,
}
SIZES = (
    *((n, p) for n in (200, 300) for p in (1, 2, 3)),
    *((1000, p) for p in (2, 3, 5, 10)),
    (20_000, 2),
)
EFFECTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "line": lambda t: t,
    "square": lambda t: (t**2 - 1) / np.sqrt(2),
    "wave": lambda t: np.sqrt(2) * np.sin(3 * t),
}
EFFECT_SIZES = (
    ("line, index", 0.15),
    ("square, index", 0.25),
    ("wave, index", 0.4),
    ("line, interaction", 0.15),
    # No effect: the level, on the same data. A power counts only where the level holds.
    ("line, index", 0.0),
    ("line, interaction", 0.0),
)


def with_effect(rng: np.random.Generator, n: int, p: int, effect: str, scenario: str, strength: float) -> Data:
    """Some of the noise of the first feature also enters the response."""
    X, y, z = SCENARIOS[scenario](rng, n, p)
    noise = rng.normal(size=n)
    X[:, 0] += 0.7 * noise
    return X[:, :1], y + strength * EFFECTS[effect](noise), z


# Tests ---------------------------------------------------------------------------------------------------------------


def kernsift(X: np.ndarray, y: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, bool]:
    result = relate(X, y, given=z, correction=None, random_state=0, n_jobs=1)
    return result.all_pvalues, any("p-values may be too small" in note for note in result.notes)


def _each(test: Callable[[np.ndarray, np.ndarray, np.ndarray], float]) -> Callable[..., tuple[np.ndarray, bool]]:
    def run(X: np.ndarray, y: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, bool]:
        with contextlib.redirect_stdout(io.StringIO()):
            return np.array([test(column, y, z) for column in X.T]), False

    return run


@_each
def kci(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> float:
    from causallearn.utils.KCI.KCI import KCI_CInd

    return float(KCI_CInd().compute_pvalue(x[:, None], y[:, None], z)[0])


@_each
def fcit(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> float:
    from hyppo.conditional import FCIT
    from joblib import parallel_config

    np.random.seed(0)  # noqa: NPY002, FCIT permutes with NumPy's global state
    with parallel_config(backend="sequential"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(FCIT().test(x[:, None], y[:, None], z)[1])


@_each
def conditional_dcorr(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> float:
    """With 19 permutations, the fewest that allow a p-value of 0.05: its time is in proportion to them."""
    from hyppo.conditional import ConditionalDcorr

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(ConditionalDcorr().test(x[:, None], y[:, None], z, reps=19, random_state=0)[1])


def _forest(inputs: np.ndarray, outputs: np.ndarray) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(TREES, min_samples_leaf=5, oob_score=True, random_state=0).fit(inputs, outputs)


def _products(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> float:
    """Standardised mean of the products of residuals of x and y, with the predictions of the trees that miss a row."""
    product = np.prod([part - _forest(z, part).oob_prediction_ for part in (x, y)], axis=0)
    return float(np.sqrt(len(x)) * product.mean() / product.std())


@_each
def gcm(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> float:
    return float(2 * norm.sf(abs(_products(x, y, z))))


@_each
def pcm(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> float:
    """On one half, a direction in which x and z explain y beyond z, over the variance of y; tested on the other."""
    half = np.random.default_rng(0).permutation(len(x)) < len(x) // 2
    both = np.column_stack([x, z])
    whole = _forest(both[half], y[half])
    fitted = whole.predict(both[half])
    known = _forest(z[half], fitted)
    sign = np.sign(np.mean((y[half] - known.predict(z[half])) * fitted))
    squares = (y[half] - fitted) ** 2
    variance = _forest(both[half], squares).predict(both[~half])
    direction = sign * (whole.predict(both[~half]) - known.predict(z[~half]))
    direction = direction / np.maximum(variance, 0.05 * squares.mean())
    return float(norm.sf(_products(direction, y[~half], z[~half])))


@_each
def partial_correlation(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> float:
    basis = np.linalg.qr(np.column_stack([np.ones(len(x)), z]))[0]
    r, s = (part - basis @ (basis.T @ part) for part in (x, y))
    correlation = r @ s / np.sqrt((r @ r) * (s @ s))
    return float(2 * norm.sf(abs(np.arctanh(correlation)) * np.sqrt(len(x) - z.shape[1] - 3)))


TESTS = {
    "kernsift": kernsift,
    "KCI": kci,
    "FCIT": fcit,
    "conditional dcorr": conditional_dcorr,
    "GCM": gcm,
    "PCM": pcm,
    "partial correlation": partial_correlation,
}
# Rows up to which slow tests are run, and on how many features: conditional dcorr takes 0.7 seconds a test at 200 rows
# and 2.2 at 300, KCI 0.02 and at 1,000 rows 0.6.
SLOW = {"KCI": 1000, "FCIT": 1000, "conditional dcorr": 200, "GCM": 1000, "PCM": 1000}
FEW_FEATURES = {**dict.fromkeys(SLOW, 4), "conditional dcorr": 1}


# Parts ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """One data set."""

    part: str
    case: str
    n: int
    p: int
    number: int
    methods: tuple[str, ...]


def _row(
    case: str, n: int, p: int, method: str, value: float, note: float | None = 0.0, **more: float
) -> dict[str, Any]:
    """One figure; a `note` is a second one, or what has to be known about the first."""
    return {"case": case, "n": n, "p": p, "method": method, "value": value, "note": note, **more}


def _conditional(task: Task) -> list[dict[str, Any]]:
    rng = generator(SEED, (task.part, task.case, str(task.n), str(task.p)), task.number)
    if task.part == "levels":
        X, y, z = SCENARIOS[task.case](rng, task.n, task.p)
    else:
        effect, scenario, strength = task.case.split(", ")
        X, y, z = with_effect(rng, task.n, task.p, effect, scenario, float(strength))
    rows = []
    for name in task.methods:
        try:
            pvalues, warned = TESTS[name](X[:, : FEW_FEATURES.get(name, FEATURES)], y, z)
        except ImportError as missing:
            print(f"{name} is left out: {missing}", file=sys.stderr)
            continue
        share = float(np.mean(pvalues <= 0.05))
        rows.append(_row(task.case, task.n, task.p, name, share, float(warned), pvalue=float(pvalues[0])))
    return rows


# Log hazards of a normal feature.
HAZARDS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "line": lambda x: x / 4,
    "U": lambda x: x**2 / 2,
    "step": lambda x: 0.6 * (x > 0),
    "bump": lambda x: 1.5 * np.exp(-(x**2)),
    # The weights of the views were chosen with those above.
    "threshold": lambda x: 1.2 * (x > 1),
    "two-sided": lambda x: 1.2 * (np.abs(x) > 1.2),
    "falling": lambda x: 0.4 * np.exp(-np.clip(x, -2, 2)),
    "saturating": lambda x: 0.35 * np.tanh(2 * x),
    "line, bathtub": lambda x: x / 4,
    "line, Weibull": lambda x: x / 4,
    "none": lambda x: 0.0 * x,
}
CENSORED = {"line": (0.2, 0.3, 0.5, 0.8), "U": (0.3, 0.7), "none": (0.2, 0.5, 0.8)}
SURVIVAL = [f"{hazard}, {share}" for hazard in HAZARDS for share in CENSORED.get(hazard, (0.2, 0.6))]


def _trial(rng: np.random.Generator, hazard: str, n: int, censored: float) -> Data:
    x = rng.normal(size=n)
    event = rng.exponential(size=n) / np.exp(HAZARDS[hazard](x))
    if "Weibull" in hazard:
        event = event**0.5
    elif "bathtub" in hazard:
        grid = np.linspace(0.0, 4.0, 4000)
        event = np.interp(event, (np.sqrt(grid) + grid**3) / 2, grid)
    # The scale of the exponential limits with which this share is censored: P(event > limit) falls with the scale.
    limit, low, high = rng.exponential(size=n), 1e-6, 1e6
    for _ in range(60):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if np.mean(event > middle * limit) > censored else (low, middle)
    limit *= high
    return x[:, None], np.minimum(event, limit), event <= limit


def _cox(X: np.ndarray, observed: np.ndarray, event: np.ndarray) -> float:
    from statsmodels.duration.hazard_regression import PHReg

    return float(PHReg(observed, X, status=event.astype(int)).fit().pvalues[0])


def _survival(task: Task) -> list[dict[str, Any]]:
    hazard, _, censored = task.case.rpartition(", ")
    rng = generator(SEED, (task.part, task.case, str(task.n)), task.number)
    X, observed, event = _trial(rng, hazard, task.n, float(censored))
    if hazard == "none":
        X = rng.normal(size=(task.n, 10))
    pvalues = relate(X, (observed, event), random_state=0, n_jobs=1).all_pvalues
    found = {"kernsift": pvalues}
    with contextlib.suppress(ImportError):
        found["Cox"] = np.array([_cox(X[:, [j]], observed, event) for j in range(X.shape[1])])
    return [_row(task.case, task.n, task.p, name, float(np.mean(own <= 0.05))) for name, own in found.items()]


def _redundant(rng: np.random.Generator, n: int, case: str) -> tuple[np.ndarray, np.ndarray, set[int]]:
    """Signals, noisy copies of each, and as many features without any; the signals come first among their copies."""
    count, copies, noise = (5, 4, 0.5) if case == FIVE else (3, 8, 1.0)
    signals = rng.normal(size=(n, count))
    X = np.repeat(signals, copies + 1, axis=1)
    copied = np.arange(X.shape[1]) % (copies + 1) > 0
    X[:, copied] += noise * rng.normal(size=(n, int(copied.sum())))
    X = np.column_stack([X, rng.normal(size=X.shape)])
    if case == FIVE:
        y = signals[:, 0] + signals[:, 1] ** 2 + np.sin(2 * signals[:, 2]) + np.abs(signals[:, 3]) + signals[:, 4]
    else:
        y = signals[:, 0] + 2.0 * (signals[:, 1] > 0) + np.cos(2 * signals[:, 2])
    return X, y + 0.5 * rng.normal(size=n), set(np.flatnonzero(~copied).tolist())


def _lasso(X: np.ndarray, y: np.ndarray, count: int) -> set[int]:
    from pyHSICLasso import HSICLasso

    with contextlib.redirect_stdout(io.StringIO()):
        model = HSICLasso()
        model.input(X, y)
        model.regression(count, n_jobs=1)
        return set(map(int, model.get_index()))


def _knockoffs(X: np.ndarray, y: np.ndarray, count: int) -> set[int]:
    from knockpy import KnockoffFilter

    with contextlib.redirect_stdout(io.StringIO()):
        chosen = KnockoffFilter(ksampler="gaussian", fstat="randomforest").forward(X=X, y=y, fdr=0.1)
    return set(np.flatnonzero(chosen).tolist())


def _distinct(task: Task) -> list[dict[str, Any]]:
    X, y, signals = _redundant(generator(SEED, (task.part, task.case, str(task.n)), task.number), task.n, task.case)
    result = relate(X, y, distinct=True, random_state=0, n_jobs=1)
    chosen = {
        "kernsift, distinct": set(result.selected[result.distinct].tolist()),
        "kernsift, all discoveries": set(result.selected[result.rejected].tolist()),
        "kernsift, best of each cluster": {int(members[0][1:]) for members in result.clusters},
    }
    for name, method in (("HSIC Lasso (told how many)", _lasso), ("knockpy (random forest, 10%)", _knockoffs)):
        with contextlib.suppress(ImportError):
            chosen[name] = method(X, y, len(signals))
    # Precision and recall of the signals themselves.
    return [
        _row(task.case, task.n, task.p, name, len(own & signals) / max(len(own), 1), len(own & signals) / len(signals))
        for name, own in chosen.items()
    ]


def _tasks(part: str, trials: int, tests: Container[str]) -> Iterator[Task]:
    def chosen(n: int, number: int) -> tuple[str, ...]:
        few = {"conditional dcorr": trials // 4} | dict.fromkeys(("KCI", "FCIT"), trials if n <= 300 else trials // 5)
        if part == "levels":
            few |= dict.fromkeys(("GCM", "PCM"), trials // 5 if n == 300 else 0)
        return tuple(
            name for name in TESTS if name in tests and n <= SLOW.get(name, n) and number < few.get(name, trials)
        )

    if part == "levels":
        for case in SCENARIOS:
            for n, p in SIZES:
                for number in range(trials if n < 20_000 else max(trials // 8, 1)):
                    yield Task(part, case, n, p, number, chosen(n, number))
    elif part == "power":
        for n, p, weaker in ((300, 1, 1.0), (300, 2, 1.0), (1000, 2, 0.55), (20_000, 2, 0.12)):
            for name, strength in EFFECT_SIZES:
                case = f"{name}, {strength * weaker:.3g}"
                for number in range(trials if n < 20_000 else max(trials // 4, 1)):
                    yield Task(part, case, n, p, number, chosen(n, number))
    elif part == "survival":
        for case in SURVIVAL:
            for number in range(4 * trials):
                yield Task(part, case, 200, 1, number, ())
    elif part == "distinct":
        for case, n, d in ((FIVE, 500, 50), (THREE, 400, 54)):
            for number in range(max(trials // 2, 4)):
                yield Task(part, case, n, d, number, ())


RUN = {"levels": _conditional, "power": _conditional, "survival": _survival, "distinct": _distinct}


def _run(task: Task) -> list[dict[str, Any]]:
    return RUN[task.part](task)


def seconds() -> Iterator[dict[str, Any]]:
    """CPU seconds a feature, those of the regression on the confounders counted for 100 features."""
    for n in (1000, 2000, 4000):
        X, y, z = index(np.random.default_rng(SEED), n, 2)
        X = np.tile(X, 20)
        relate(X[:, :1], y, given=z, random_state=0, n_jobs=1)
        start = time.process_time()
        relate(X, y, given=z, random_state=0, n_jobs=1)
        yield _row("a feature", n, 2, "kernsift", (time.process_time() - start) / X.shape[1])
        with contextlib.suppress(ImportError):
            start = time.process_time()
            kci(X[:, :1], y, z)
            yield _row("a feature", n, 2, "KCI", time.process_time() - start)
    rng = np.random.default_rng(SEED)
    z = rng.normal(size=(100_000, 2))
    X = np.sin(z.sum(axis=1))[:, None] + rng.normal(size=(100_000, 100))
    y = np.sin(z.sum(axis=1)) + rng.normal(size=100_000)
    wall, cpu = time.perf_counter(), time.process_time()
    relate(X, y, given=z, random_state=0)
    seconds = {"wall clock": time.perf_counter() - wall, "all cores together": time.process_time() - cpu}
    for name, value in seconds.items():
        yield _row(f"100 features, {name}", 100_000, 2, "kernsift", value, os.cpu_count())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[*RUN, "seconds", "page"])
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, default=DOCS / "given", help="where the records go")
    parser.add_argument("--tests", default=",".join(TESTS), help="tests to run, separated by commas; others are kept")
    parser.add_argument("--only", default="", metavar="PATTERN", help='rows to run, such as "index, 1000, 5"')
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for part in given.parts:
        if part == "page":
            write_page(given.folder)
        else:
            record(part, given)


def _size_adjusted(records: Any) -> Any:
    """Whether each p-value is at most the 0.05 quantile of those without an effect; NaN where none were computed."""
    import pandas as pd

    scenario = records.case.str.split(", ").str[1]
    out = pd.Series(np.nan, index=records.index)
    for _, own in records.groupby([scenario, "n", "p", "method"]):
        null = own.pvalue[own.case.str.endswith(", 0")]
        if len(null):
            out[own.index] = (own.pvalue <= null.quantile(0.05)).astype(float)
    return out


def record(part: str, given: argparse.Namespace) -> None:
    """Run one part and write its means; with `--only` and `--tests`, other rows keep theirs."""
    import pandas as pd

    start = time.perf_counter()
    if part == "seconds":
        rows = list(seconds())
    else:
        tasks = list(_tasks(part, given.trials, given.tests.split(",")))
        tasks = [task for task in tasks if re.search(given.only, f"{task.case}, {task.n}, {task.p}")]
        rows = [row for found in run_tasks(_run, tasks, given.workers) for row in found]
    known = pd.DataFrame(rows)
    wanted = {name: ("value", how) for name, how in (("value", "mean"), ("sd", "std"), ("trials", "size"))}
    if part == "power":
        known["adjusted"] = _size_adjusted(known)
        wanted["adjusted"] = ("adjusted", "mean")
    table = known.groupby(["case", "n", "p", "method"], sort=False)
    means = table.agg(note=("note", "mean"), **wanted)
    means = means.reset_index().assign(date=datetime.now(UTC).date().isoformat(), trials_asked=given.trials)
    path, keys = given.folder / f"{part}.csv", ["case", "n", "p", "method"]
    if (given.only or given.tests != ",".join(TESTS)) and path.exists():
        means = pd.concat([pd.read_csv(path), means.round(4)]).drop_duplicates(keys, keep="last")
        cells = dict.fromkeys((task.case, task.n, task.p) for task in _tasks(part, 8, TESTS))
        methods = dict.fromkeys([*TESTS, *means.method])
        place = {(*cell, name): order for order, (cell, name) in enumerate(product(cells, methods))}
        means = means.iloc[np.argsort([place[key] for key in zip(*(means[name] for name in keys), strict=True)])]
    means.round(4).to_csv(path, index=False)
    print(f"{part}: {len(rows)} figures in {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
