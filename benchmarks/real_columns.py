"""Real data sets whose columns are to be found among shuffled copies of them.

A trial draws 60 rows a class (120 rows where the response is numeric), adds 60 columns that are real ones with their
rows shuffled, and corrects over all columns by BH at 5%. The figure is the share of the real columns that is found.
Sets come with scikit-learn, or are read from the folder named by KERNSIFT_DATA.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import peer_pvalues
from level_settings import relate_pvalues
from peers import bh
from regret import OWN, own_pvalues
from shapes import Trials
from sklearn import datasets

EACH = 60
SHUFFLED = 60


class Columns(NamedTuple):
    """A data set: (n, d) columns and (n,) the response, class labels 0 and 1 or numbers."""

    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class DataSet:
    """Where a data set comes from."""

    load: Callable[[], Columns]  # reads it
    numeric: bool = False  # whether the response is numeric
    # The file that it needs in the folder KERNSIFT_DATA; None for sets that come with scikit-learn.
    file: str | None = None

    def absent(self) -> str | None:
        """Why it cannot be read here."""
        if self.file is None or (_folder() / self.file).exists():
            return None
        return f"{self.file} is not in the folder that KERNSIFT_DATA names"


def _folder() -> Path:
    return Path(os.environ.get("KERNSIFT_DATA", "") or "no-folder")


def _two_classes(bunch: Any, first: int, second: int) -> Columns:
    keep = np.isin(bunch.target, (first, second))
    return Columns(bunch.data[keep], (bunch.target[keep] == second).astype(int))


def _digits() -> Columns:
    """3 against 8, without the pixels that are constant in both."""
    x, y = _two_classes(datasets.load_digits(), 3, 8)
    return Columns(x[:, x.std(axis=0) > 0], y)


def _diabetes() -> Columns:
    found = datasets.load_diabetes()
    return Columns(found.data, found.target)


def _frame(file: str, **options: Any) -> Any:
    import pandas as pd

    return pd.read_csv(_folder() / file, encoding="utf-8-sig", **options)


def _columns(frame: Any, target: str, *, numeric: bool = False) -> Columns:
    """All columns but the target; its second value in sorted order is class 1."""
    import pandas as pd

    y = frame[target].to_numpy(float) if numeric else pd.factorize(frame[target], sort=True)[0]
    return Columns(frame.drop(columns=target).to_numpy(float), y)


def _csv(file: str, target: str, **options: Any) -> Columns:
    return _columns(_frame(file, **options).dropna(), target)


def _wine_quality() -> Columns:
    return _columns(_frame("winequalityN.csv").dropna().drop(columns="type"), "quality", numeric=True)


def _parkinsons() -> Columns:
    """The first recording of each subject: recordings of one subject are not independent."""
    frame = _frame("parkinsons_voice.csv").drop_duplicates("subject")
    return _columns(frame.drop(columns=["name", "subject"]), "status")


def _four_sites() -> Columns:
    """The columns that all hospitals measured, of the rows that have them."""
    frame = _frame("heart_disease_4sites.csv")
    return _columns(frame.drop(columns=["ca", "thal", "slope", "chol", "fbs", "site", "num"]).dropna(), "label")


_NHANES = ["Age", "Poverty", "HomeRooms", "Weight", "Height", "BMI", "Pulse", "BPDia", "HDLChol", "TotChol"]


def _nhanes(target: str, *, numeric: bool = False) -> Columns:
    """Measurements of adults, without duplicate rows."""
    frame = _frame("nhanes.csv").drop_duplicates()
    return _columns(frame.loc[frame["Age"] >= 18, [*_NHANES, target]].dropna(), target, numeric=numeric)


def _gbsg2() -> Columns:
    """Patients with and without an event."""
    frame = _frame("gbsg2_survival.csv").drop(columns="time")
    coded = {name: frame[name].astype("category").cat.codes for name in ("horTh", "menostat", "tgrade")}
    return _columns(frame.assign(**coded), "cens")


DATA_SETS: Mapping[str, DataSet] = {
    "iris, versicolor and virginica": DataSet(lambda: _two_classes(datasets.load_iris(), 1, 2)),
    "wine, cultivars 1 and 2": DataSet(lambda: _two_classes(datasets.load_wine(), 0, 1)),
    "wine, cultivars 2 and 3": DataSet(lambda: _two_classes(datasets.load_wine(), 1, 2)),
    "breast cancer": DataSet(lambda: _two_classes(datasets.load_breast_cancer(), 0, 1)),
    "digits, 3 and 8": DataSet(_digits),
    "pulsar": DataSet(lambda: _csv("pulsar_stars.csv", "target_class"), file="pulsar_stars.csv"),
    "heart": DataSet(lambda: _csv("heart.csv", "target"), file="heart.csv"),
    "wine quality, white and red": DataSet(lambda: _csv("winequalityN.csv", "type"), file="winequalityN.csv"),
    "divorce": DataSet(lambda: _csv("divorce.csv", "Class", sep=";"), file="divorce.csv"),
    "Parkinson voices": DataSet(_parkinsons, file="parkinsons_voice.csv"),
    "heart disease, four sites": DataSet(_four_sites, file="heart_disease_4sites.csv"),
    "breast cancer study, event": DataSet(_gbsg2, file="gbsg2_survival.csv"),
    "NHANES, sex": DataSet(lambda: _nhanes("Gender"), file="nhanes.csv"),
    "diabetes, progression": DataSet(_diabetes, numeric=True),
    "wine quality, grade": DataSet(_wine_quality, numeric=True, file="winequalityN.csv"),
    "NHANES, blood pressure": DataSet(lambda: _nhanes("BPSys", numeric=True), numeric=True, file="nhanes.csv"),
}

_TWO_SAMPLES = ("Kolmogorov-Smirnov", "Cramér-von Mises", "Mann-Whitney", "F (t) test", "Dcorr")
METHODS: Mapping[bool, tuple[str, ...]] = {
    False: (OWN, *_TWO_SAMPLES),
    True: (OWN, "Pearson", "Spearman", "Dcorr"),
}


@cache
def columns_of(name: str) -> Columns:
    return DATA_SETS[name].load()


def draw(name: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Real and shuffled columns, the response (labels in order), and which columns are real."""
    x, y = columns_of(name)
    if DATA_SETS[name].numeric:
        rows = rng.choice(len(x), min(2 * EACH, round(0.8 * len(x))), replace=False)
    else:
        classes = [np.flatnonzero(y == label) for label in (0, 1)]
        # Of a class with few rows most are drawn, not all, so that trials differ.
        sizes = [min(EACH, round(0.8 * len(members))) for members in classes]
        rows = np.concatenate([rng.choice(c, n, replace=False) for c, n in zip(classes, sizes, strict=True)])
    real = x[rows]
    shuffled = rng.permuted(real[:, rng.integers(0, real.shape[1], SHUFFLED)], axis=0)
    return np.hstack([real, shuffled]), y[rows], np.arange(real.shape[1] + SHUFFLED) < real.shape[1]


def found(name: str, method: str, rng: np.random.Generator) -> dict[str, float]:
    """One trial: the share of the real columns found, and the share of shuffled columns among the discoveries.

    For another test also its lead over kernsift, and the lead if it had Fisher's p-value on columns with two values.
    There every permutation test of two samples is Fisher's, and tests with other p-values are not exact.
    """
    x, y, real = draw(name, rng)
    numeric = DATA_SETS[name].numeric
    varies = np.ptp(x, axis=0) > 0
    pvalues, own = np.ones((2, x.shape[1]))
    pvalues[varies] = _pvalues(method, x[:, varies], y, numeric)
    discoveries = bh(pvalues)
    figures = {"found": discoveries[real].mean(), "fdr": (discoveries & ~real).sum() / max(discoveries.sum(), 1)}
    if method != OWN:
        own[varies] = own_pvalues_of_table(x[:, varies], y, numeric)
        theirs = {"lead": discoveries}
        if not numeric:
            two = np.array([len(np.unique(column)) == 2 for column in x.T])
            theirs["lead, exact"] = bh(np.where(two, own, pvalues))
        figures |= {name: some[real].mean() - bh(own)[real].mean() for name, some in theirs.items()}
    return {name: float(figure) for name, figure in figures.items()}


def _pvalues(method: str, x: np.ndarray, y: np.ndarray, numeric: bool) -> np.ndarray:
    if method == OWN:
        return own_pvalues_of_table(x, y, numeric)
    # Other tests see a trial a column; with a numeric response the columns share it.
    trials = Trials(x, np.repeat(y[:, None], x.shape[1], axis=1) if numeric else y)
    peers = peer_pvalues.PEERS["numeric" if numeric else "samples"]
    return np.nan_to_num(peers[method](trials), nan=1.0)


def own_pvalues_of_table(x: np.ndarray, y: np.ndarray, numeric: bool) -> np.ndarray:
    """kernsift's p-values of all columns, from one call."""
    return relate_pvalues(x, y, "numeric") if numeric else own_pvalues(Trials(x, y))
