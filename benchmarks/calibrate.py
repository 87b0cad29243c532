"""Are the p-values and intervals right? Hard settings for the default, and a grid for every estimator and test.

    python benchmarks/calibrate.py                          what is not on record yet, then the page
    python benchmarks/calibrate.py levels coverage          some parts: grid, levels, coverage, tail, seeds
    python benchmarks/calibrate.py --quick                  few replicates (give it another --folder)
    python benchmarks/calibrate.py grid --only 'relate block'   settings whose name holds all these words
    python benchmarks/calibrate.py --page                   docs/calibration.md from the figures on record
    python benchmarks/calibrate.py --fresh                  also what is on record: after a change of the library

The part `grid` is in this file, the others are in calibrate_hard.py. In the grid the scores of a replicate are computed
once; every test and every k runs on the same scores. Figures are written as soon as a setting is done, so that a run
that was stopped or killed goes on with the next one. Seeds come from the names of question, setting, rows and estimator
and from the number of the replicate, and so do not depend on what else is run, in which order, or by how many
processes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NamedTuple

import calibrate_hard
import numpy as np
from calibrate_hard import LEVELS, matches, run_by_name, share
from level_settings import Law, binary, heavy, normal
from pages import DOCS
from scipy.stats import kstest

from kernsift import InputError
from kernsift.estimators import HSIC, MMD, SCREEN
from kernsift.estimators.scores import Covariance, CurvedCovariance, DenseCovariance, Scores
from kernsift.estimators.scores import Path as ScorePath
from kernsift.experiments import methods
from kernsift.experiments.methods import Recipe
from kernsift.experiments.problems import DataSets, Sample, TwoSamples, WithResponse
from kernsift.experiments.studies import generator, read_rows, write_rows
from kernsift.inference import TESTS
from kernsift.inference.selection_rules import TopK

FOLDER = DOCS / "calibration"

D = 12
KS = (1, D // 3, D - 1)
ROWS = (30, 100, 1000)
# Columns of each data set that `screen` compares.
_WIDTH = 3
# Which features are true where some are: two of the first block of three and one of the second.
_TRUE = (0, 1, 3)
# Resampled score vectors a scale. The default is 10,000; that changes a rate by less than its standard error here (the
# page has the figures).
BOOTSTRAP = 1000
BATCH = 10
DEFAULT = "complete"
PARTS = ("grid", *calibrate_hard.PARTS, "seeds")
# Replicates of a store of the grid with --quick.
_QUICK = 10

# --- settings ---------------------------------------------------------------------------------------------------------


def _equicorrelated(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return np.sqrt(0.8) * rng.standard_normal((size[0], 1)) + np.sqrt(0.2) * rng.standard_normal(size)


def _blocks(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Blocks of three columns; within one the correlation is 0.7."""
    n, d = size
    shared = np.repeat(rng.standard_normal((n, -(-d // 3))), 3, axis=1)[:, :d]
    return np.sqrt(0.7) * shared + np.sqrt(0.3) * rng.standard_normal(size)


def _counts(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Alternating columns: Poisson(1), and counts of which four in five are 0."""
    values = rng.poisson(1.0, size)
    tied = np.where(rng.random(size) < 0.8, 0, rng.poisson(3.0, size))
    return np.where(np.arange(size[1]) % 2, tied, values).astype(float)


@dataclass(frozen=True)
class Setting:
    """How data are drawn."""

    shape: Law  # the law of the features
    share: float = 0.5  # of the rows in the second sample or class
    sizes: tuple[int, int] | None = None  # rows of both samples, where they do not follow from n and the share
    signals: bool = False  # whether the features of _TRUE are true
    classes: bool = False  # whether the response of `relate` is a class

    def rows(self, n: int) -> tuple[int, int]:
        second = round(self.share * n)
        return self.sizes or (n - second, second)


SETTINGS: Mapping[str, Setting] = {
    "independent": Setting(normal),
    "equicorrelated 0.8": Setting(_equicorrelated),
    "correlated with signals": Setting(_blocks, signals=True),
    "t(2) tails": Setting(heavy),
    "counts and ties": Setting(_counts),
    "binary": Setting(binary, classes=True),
    "95/5": Setting(normal, share=0.05, classes=True),
    "50 against 1000": Setting(normal, sizes=(50, 1000), classes=True),
}
# The sizes of the last one leave nothing for n to say.
_FIXED = 1050


def draw(question: str, setting: Setting, n: int, rng: np.random.Generator) -> Sample:
    """n rows in all: of both samples, of the table, or of the reference and any one candidate."""
    true = np.isin(np.arange(D), _TRUE) if setting.signals else np.zeros(D, dtype=bool)
    # As hard to see with many rows as with few, so that null features are selected, too.
    signal = 0.4 * np.sqrt(100 / n)
    one, two = setting.rows(n)
    if question == "compare":
        both = setting.shape(rng, (one + two, D))
        both[one:, true] += signal
        return TwoSamples(both[:one], both[one:], true)
    if question == "relate":
        x = setting.shape(rng, (n, D))
        if setting.classes:
            return WithResponse(x, rng.permutation(np.arange(n) < two).astype(int), true, categories=True)
        # Only the true features get some of the response, so their block mates stay null.
        y = setting.shape(rng, (n, 1))[:, 0]
        x[:, true] += 0.6 * signal * y[:, None]
        return WithResponse(x, y, true)
    tables = [setting.shape(rng, (rows, _WIDTH)) for rows in (one, *[two] * D)]
    for candidate in np.flatnonzero(true):
        tables[candidate + 1] += signal
    return DataSets(tables[0], {f"c{i}": table for i, table in enumerate(tables[1:])}, true)


# --- estimators -------------------------------------------------------------------------------------------------------

QUESTIONS: Mapping[str, Mapping[str, Callable[..., Scores]]] = {"compare": MMD, "relate": HSIC, "screen": SCREEN}


class Variant(NamedTuple):
    """An estimator with options; `blocks` gives the block size that makes that many blocks."""

    estimator: str
    options: tuple[tuple[str, float], ...] = ()
    blocks: int | None = None

    def recipe(self, n: int) -> Recipe:
        """The recipe for n rows (of the shorter sample)."""
        options = self.options if self.blocks is None else (("block_size", n // self.blocks),)
        return Recipe(self.estimator, "auto" if self.estimator in ("complete", "cross") else "median", options=options)


_DRAWS = (3, 10, 30, 100)
_BLOCKS = (40, 20, 10, 5, 3)
VARIANTS: Mapping[str, Variant] = (
    {name: Variant(name) for name in MMD}
    | {f"incomplete r={r}": Variant("incomplete", (("r", float(r)),)) for r in _DRAWS}
    | {f"block n/{count}": Variant("block", blocks=count) for count in _BLOCKS}
)


def score(variant: Variant, sample: Sample, rng: np.random.Generator) -> Scores:
    """The scores that `compare`, `relate` or `screen` would compute with the default kernel and bandwidth."""
    if isinstance(sample, TwoSamples):
        rows = min(len(sample.X), len(sample.Y))
    else:
        tables = [sample.X] if isinstance(sample, WithResponse) else [sample.reference, *sample.candidates.values()]
        rows = min(map(len, tables))
    scores = methods.score(sample, variant.recipe(rows), rng)
    return Scores(scores.names, scores.estimate, _known(scores.cov, len(scores)))


@dataclass(frozen=True)
class _KnownCovariance(DenseCovariance):
    """All columns of a covariance, computed once, and its paths."""

    origin: CurvedCovariance

    def paths(self, features: np.ndarray, columns: np.ndarray) -> list[ScorePath | None]:
        return self.origin.paths(features, columns)


def _known(cov: Covariance, d: int) -> Covariance:
    """The same covariance with all columns computed: several tests use the same ones."""
    matrix = cov.columns(np.arange(d))
    return _KnownCovariance(matrix, cov) if isinstance(cov, CurvedCovariance) else DenseCovariance(matrix)


# --- one replicate ----------------------------------------------------------------------------------------------------


class Store(NamedTuple):
    """The replicates of one estimator on one kind of data."""

    question: str
    variant: str
    setting: str
    n: int

    @property
    def name(self) -> str:
        return f"{self.question} {self.variant} {self.setting} n={self.n}"

    def generator(self, replicate: int, *parts: str) -> np.random.Generator:
        """Data depend on question, setting and rows alone: every estimator sees the same."""
        return generator(0, (self.question, self.setting, str(self.n), *parts), replicate)


# Selected null features, those rejected at each level, and the p-value of one of them chosen at random.
Count = tuple[int, int, int, float | None]
# For each test, for each k.
Replicate = dict[str, list[Count]]


def replicate(store: Store, number: int, tests: Iterable[str]) -> Replicate:
    """All tests and all k on the scores of one draw."""
    sample = draw(store.question, SETTINGS[store.setting], store.n, store.generator(number, "data"))
    scores = score(VARIANTS[store.variant], sample, store.generator(number, store.variant))
    return {test: [_count(store, number, test, scores, sample.truth, k) for k in KS] for test in tests}


def _count(store: Store, number: int, test: str, scores: Scores, true: np.ndarray, k: int) -> Count:
    rng = store.generator(number, store.variant, test, str(k))
    rule = TopK(k)
    selected = rule.select(scores.estimate)
    options = {"replicates": BOOTSTRAP} if test == "multiscale" else {}
    pvalues = TESTS[test](scores, rule, selected, rng=rng, **options).pvalues[~true[selected]]
    rejected = [int((pvalues <= level).sum()) for level in LEVELS]
    return len(pvalues), *rejected, round(float(rng.choice(pvalues)), 6) if len(pvalues) else None


class Batch(NamedTuple):
    """Some replicates of a store."""

    store: Store
    first: int
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.store.name


def run_batch(batch: Batch) -> tuple[Batch, list[Replicate] | str]:
    """The replicates of a batch, or why the library refuses such data."""
    try:
        numbers = range(batch.first, batch.first + BATCH)
        return batch, [replicate(batch.store, number, batch.tests) for number in numbers]
    except InputError as error:
        return batch, str(error)


def batches(store: Store, wanted: Mapping[str, int], done: Mapping[str, int]) -> Iterator[Batch]:
    """The batches that are missing, where `wanted` and `done` are numbers of replicates by test."""
    for first in range(0, max(wanted.values()), BATCH):
        tests = tuple(test for test, count in wanted.items() if done.get(test, 0) <= first < count)
        if tests:
            yield Batch(store, first, tests)


# --- figures ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One cell of the grid: error rates among selected null features with their standard errors, and KS distances.

    `counted` replicates had a selected null feature. `ks` is the distance of their p-values from uniform, `excess` the
    one-sided one: how far the share of p-values below a point is above that point, at most.
    """

    question: str
    estimator: str
    test: str
    setting: str
    n: int
    k: int
    replicates: int
    counted: int
    rate: float
    error: float
    rate01: float
    error01: float
    ks: float
    ks_p: float
    excess: float
    excess_p: float
    date: str
    refused: str = ""

    @property
    def above(self) -> float:
        """Standard errors above 0.05."""
        return (self.rate - 0.05) / self.error if self.error > 0 else (0.0 if not self.rate > 0.05 else np.inf)


def cells_of(store: Store, found: Sequence[list[Replicate] | str]) -> list[Cell]:
    """The cells of a store, one for each test and k, from the answers of its batches."""
    today = date.today().isoformat()
    cells = []
    refused = next((answer for answer in found if isinstance(answer, str)), None)
    replicates = [made for answer in found if not isinstance(answer, str) for made in answer]
    for test in TESTS:
        for place, k in enumerate(KS):
            where = (store.question, store.variant, test, store.setting, store.n, k)
            counts = [made[test][place] for made in replicates if test in made]
            if refused is not None:
                blank = [float("nan")] * 8
                cells.append(Cell(*where, 0, 0, *blank, today, refused))
                continue
            if not counts:
                continue
            among, hits, hits01 = np.array([count[:3] for count in counts]).T
            single = np.array([count[3] for count in counts if count[3] is not None])
            distances = [float("nan")] * 4
            if len(single):
                tests = [kstest(single, "uniform", alternative=side) for side in ("two-sided", "greater")]
                distances = [float(value) for one in tests for value in (one.statistic, one.pvalue)]
            rates = (*share(hits, among), *share(hits01, among))
            cells.append(Cell(*where, len(counts), len(single), *rates, *distances, today))
    return cells


# --- the run ----------------------------------------------------------------------------------------------------------


def stores() -> list[Store]:
    """The grid, and where the bounds of the warnings come from: estimators with options, independent features."""
    grid = [
        Store(question, variant, setting, n)
        for question, statistics in QUESTIONS.items()
        for variant in statistics
        for setting, how in SETTINGS.items()
        for n in (ROWS if how.sizes is None else (_FIXED,))
    ]
    bounds = [
        Store(question, name, setting, n)
        for question in ("compare", "relate")
        for name, variant in VARIANTS.items()
        if variant.options or variant.blocks
        for setting in ("independent", "t(2) tails")
        for n in ROWS
        if variant.blocks is None or _block_fits(question, n, variant.blocks)
    ]
    return grid + bounds


def _block_fits(question: str, n: int, blocks: int) -> bool:
    return n // 2 // blocks >= 2 if question == "compare" else n // blocks >= 4


def wanted(store: Store, replicates: int | None) -> dict[str, int]:
    """How many replicates each test gets: the default estimator most; `screen` and the bootstrap are slow."""
    default = 400 if store.question != "screen" else 150
    most = replicates if replicates is not None else default if store.variant == DEFAULT else 100
    return {test: min(most, 100) if test == "multiscale" else most for test in TESTS}


def near_limit(cells: Iterable[Cell]) -> bool:
    """Whether the exact test has a cell that chance alone may have put near the limit of three errors."""
    return any(cell.test == "exact" and cell.above > 2.0 for cell in cells)


# Times as many replicates where a cell is near the limit.
_MORE = 4


def run_grid(chosen: Sequence[Store], replicates: int | None, folder: Path, workers: int, fresh: bool) -> None:
    """Run the stores that are not on record, those of the default with a cell near the limit with more replicates."""
    known = {question: read_rows(folder / f"{question}.csv", Cell) for question in QUESTIONS}
    if fresh:  # so that a run that was stopped goes on without --fresh
        for question, cells in known.items():
            cells[:] = [cell for cell in cells if _store_of(cell) not in chosen]
            write_rows(folder / f"{question}.csv", Cell, cells)
    done = {_store_of(cell) for cells in known.values() for cell in cells}
    plans = {store: wanted(store, replicates) for store in chosen if store not in done}
    order = {store: place for place, store in enumerate(stores())}
    default: dict[Store, list[list[Replicate] | str]] = {store: [] for store in plans if store.variant == DEFAULT}

    def finish(batch: Batch, answers: list[list[Replicate] | str]) -> str:
        store = batch.store
        if store in default:
            answers = default[store] = default[store] + answers
        cells = cells_of(store, answers)
        kept = [cell for cell in known[store.question] if _store_of(cell) != store]
        known[store.question] = sorted([*kept, *cells], key=lambda cell: order.get(_store_of(cell), len(order)))
        write_rows(folder / f"{store.question}.csv", Cell, known[store.question])
        return _said(cells)

    first = [batch for store, plan in plans.items() for batch in batches(store, plan, {})]
    run_by_name(run_batch, first, workers, finish)
    if replicates is None:
        more = {
            store: {test: count if test == "multiscale" else _MORE * count for test, count in plans[store].items()}
            for store, answers in default.items()
            if near_limit(cells_of(store, answers))
        }
        rest = [batch for store, plan in more.items() for batch in batches(store, plan, plans[store])]
        run_by_name(run_batch, rest, workers, finish)


def _store_of(cell: Cell) -> Store:
    return Store(cell.question, cell.estimator, cell.setting, cell.n)


def _said(cells: Sequence[Cell]) -> str:
    if cells[0].refused:
        return f"refused ({cells[0].refused})"
    shown = [cell for cell in cells if cell.test in ("exact", "naive")]
    return "  ".join(f"{cell.test} k={cell.k} {cell.rate:.3f}±{cell.error:.3f}" for cell in shown)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure levels and coverage, and write docs/calibration.md.")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--replicates", type=int, help="of every setting, instead of each one's own number")
    parser.add_argument("--quick", action="store_true", help="few replicates of everything")
    parser.add_argument("--only", default="", help="only settings whose name holds all these words (comma: or)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--page", action="store_true", help="only write the page, from the figures on record")
    parser.add_argument("--fresh", action="store_true", help="measure again what is on record")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the tables and pictures go")
    given = parser.parse_args(arguments)
    unknown = set(given.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    parts = given.parts or PARTS
    chosen = [store for store in stores() if matches(store.name, given.only)]
    if not chosen and given.parts == ["grid"]:
        parser.error(f"--only: no store is called like {given.only!r}")
    if not given.page:
        try:
            _run_parts(parts, chosen, given)
        except KeyboardInterrupt:
            print("\nStopped; the same command goes on from here.", file=sys.stderr)
            return 130
    from calibrate_page import write_page

    print(f"{write_page(given.folder)}: written")
    return 0


def _run_parts(parts: Sequence[str], chosen: Sequence[Store], given: argparse.Namespace) -> None:
    """The hard parts first: they are about the default."""
    replicates = _QUICK if given.quick and given.replicates is None else given.replicates
    for part in calibrate_hard.PARTS:
        if part in parts:
            calls = calibrate_hard.QUICK_CALLS if given.quick and given.replicates is None else given.replicates
            options = {"calls": calls, "fresh": given.fresh, "only": given.only}
            calibrate_hard.run_part(part, given.folder, given.workers, **options)
    if "seeds" in parts:
        calibrate_hard.run_seeds(given.folder, quick=given.quick)
    if "grid" in parts:
        run_grid(chosen, replicates, given.folder, given.workers, given.fresh)


if __name__ == "__main__":
    sys.exit(main())
