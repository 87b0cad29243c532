"""From trials to a table: a row per setting, method and measure, with the paper's number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np
from scipy import stats

from kernsift.experiments.configurations import Artefact, Setting
from kernsift.experiments.published import REASONS
from kernsift.experiments.trials import Values

# The columns of summary.csv.
COLUMNS = (
    *("artefact", "setting", "method", "measure", "mean", "standard_error", "trials", "seconds"),
    *("paper", "errors_apart", "agrees"),
)
# The agreement that is asked for: within 3 standard errors, the paper's and ours together, or within 0.03.
ERRORS, DISTANCE = 3.0, 0.03
_PAPER_TRIALS = 100
# Of the data sets; the other problems have ten.
_TRUE_FEATURES = {"pulsar": 8, "heart": 13, "wine": 12}


@dataclass(frozen=True)
class Row:
    """One measured number.

    `seconds` is the mean time of the method in a trial. `paper_error` is the standard error of the printed number,
    taken as binomial over the paper's 100 trials and the features a trial has; `errors_apart` is the difference in
    units of both standard errors together.
    """

    artefact: str
    setting: str
    method: str
    measure: str
    mean: float
    standard_error: float
    trials: int
    seconds: float
    paper: float | None = None
    paper_error: float | None = None
    counted: bool = False
    reason: str = ""

    @property
    def errors_apart(self) -> float | None:
        if self.paper is None or self.paper_error is None:
            return None
        spread = math.hypot(self.standard_error, self.paper_error)
        if spread == 0:
            return 0.0 if self.mean == self.paper else math.copysign(math.inf, self.mean - self.paper)
        return (self.mean - self.paper) / spread

    @property
    def agrees(self) -> bool | None:
        """Whether the number agrees with the printed one; None where none was printed for the same data."""
        apart = self.errors_apart
        if apart is None or self.paper is None or not self.counted:
            return None
        return abs(apart) <= ERRORS or abs(self.mean - self.paper) <= DISTANCE


@dataclass(frozen=True)
class Reproduction:
    """What a run gave.

    `rows` has a row per number, `finished` the trials by artefact and setting; `left_out` says why others were not run.
    """

    artefacts: list[Artefact]
    rows: list[Row]
    finished: Mapping[str, Mapping[str, list[tuple[int, Values]]]]
    left_out: dict[str, str]
    seconds: float
    trials: int
    seed: int
    data_dir: str | None

    def rows_of(self, artefact: Artefact) -> list[Row]:
        return [row for row in self.rows if row.artefact == artefact.name]

    @property
    def judged(self) -> list[Row]:
        """The rows whose agreement with the paper is asked for."""
        return [row for row in self.rows if row.agrees is not None]

    @property
    def agreed(self) -> int:
        return sum(row.agrees is True for row in self.judged)


def summarise(artefact: Artefact, setting: Setting, finished: Iterable[tuple[int, Values]]) -> list[Row]:
    """The rows of one setting, its trials in order."""
    trials = [values for _, values in finished]
    rows: list[Row] = []
    for method in setting.methods:
        mine = [values[method.name] for values in trials]
        if mine:
            seconds = round(fmean(values["seconds"] for values in mine), 4)
            rows += _rows(artefact, setting, method.name, mine, seconds)
    return rows


def _rows(artefact: Artefact, setting: Setting, method: str, mine: list[dict[str, Any]], seconds: float) -> list[Row]:
    place = (artefact.name, setting.label, method)
    if artefact.kind == "law":
        pooled = np.concatenate([values["statistics"] for values in mine])
        return [Row(*place, name, *pair, len(mine), seconds) for name, pair in _shape(pooled).items()]
    measures = [name for name, value in mine[0].items() if name != "seconds" and not isinstance(value, list)]
    rows = []
    for measure in measures:
        numbers = [float(values[measure]) for values in mine]
        mean, error = fmean(numbers), _deviation(numbers) / math.sqrt(len(numbers))
        printed = artefact.paper.get((method, setting.label, measure))
        paper_error = None if printed is None else _paper_error(artefact, setting, measure, printed, numbers)
        reason = REASONS.get((*place, measure), "")
        rows.append(
            Row(*place, measure, mean, error, len(numbers), seconds, printed, paper_error, artefact.counted, reason)
        )
    return rows


def _deviation(numbers: list[float]) -> float:
    return stdev(numbers) if len(numbers) > 1 else 0.0


def _paper_error(artefact: Artefact, setting: Setting, measure: str, printed: float, numbers: list[float]) -> float:
    if measure == "significant":
        # One trial was printed: it varies as our trials do.
        return _deviation(numbers)
    features = _TRUE_FEATURES.get(setting.problem.split(",")[0], 10)
    count = {"TPR": features, "FPR": max(artefact.k - features, 1)}.get(measure, 1)
    return math.sqrt(printed * (1.0 - printed) / (_PAPER_TRIALS * count))


def _shape(sample: np.ndarray) -> dict[str, tuple[float, float]]:
    """How far from normal a sample is: value and standard error (that of a normal sample for the last two)."""
    n = len(sample)
    mean, sd = float(sample.mean()), float(sample.std(ddof=1))
    distance = float(stats.kstest((sample - mean) / sd, "norm").statistic)
    return {
        "mean": (mean, sd / math.sqrt(n)),
        "standard deviation": (sd, sd / math.sqrt(2 * n)),
        "skewness": (float(stats.skew(sample)), math.sqrt(6 / n)),
        "distance from normal": (distance, 0.0),
    }
