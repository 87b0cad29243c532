"""The parts of the reproduction: problems, methods, trials, records, summary."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from kernsift.api import TopKPvalues
from kernsift.experiments import problems, published
from kernsift.experiments.configurations import ARTEFACTS, FIG1, FIG3, LAWS, TABLE2, Artefact, Setting, smaller
from kernsift.experiments.methods import PUBLISHED, Recipe, run_test, score
from kernsift.experiments.problems import PROBLEMS, DataSets, TwoSamples
from kernsift.experiments.published_rows import published_quadruples
from kernsift.experiments.studies import read_rows, run_tasks, write_rows
from kernsift.experiments.summary import COLUMNS, Row, summarise
from kernsift.experiments.trials import MEASURES, Task, TrialStore, fingerprint, generator, run_trial

TINY = smaller(FIG1, most_rows=60, replicates=50, samples=5)


def task(artefact: Artefact = TINY, setting: int = 0, trial: int = 0, seed: int = 0) -> Task:
    return Task(artefact, artefact.settings[setting], trial, seed, None)


def without_seconds(values: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    return {method: {k: v for k, v in found.items() if k != "seconds"} for method, found in values.items()}


# --- configurations -------------------------------------------------------------------------------------------------


def test_every_printed_number_belongs_to_something_that_is_run() -> None:
    for artefact in ARTEFACTS.values():
        run = {(m.name, s.label) for s in artefact.settings for m in s.methods}
        assert {key[:2] for key in artefact.paper} <= run, artefact.name


def test_the_numbers_asked_for_are_those_of_figures_1_to_3_and_tables_1_and_3() -> None:
    counted = {name: len(a.paper) for name, a in ARTEFACTS.items() if a.counted and a.paper and name != "table2-celeba"}
    assert counted == {"fig1": 16, "fig2": 16, "fig3": 16, "table1": 12, "table3": 12}


def test_every_artefact_shows_the_librarys_own_methods() -> None:
    for artefact in ARTEFACTS.values():
        if artefact.kind != "law":
            for setting in artefact.settings:
                ours = {(m.recipe.estimator, m.test) for m in setting.methods if m.ours}
                assert {("complete", "exact"), ("cross", "exact")} <= ours, artefact.name


def test_every_problem_and_reason_has_its_place() -> None:
    for artefact in ARTEFACTS.values():
        assert all(setting.problem in PROBLEMS for setting in artefact.settings)
    for artefact_name, setting_label, method, measure in published.REASONS:
        assert (method, setting_label, measure) in ARTEFACTS[artefact_name].paper


# --- problems -------------------------------------------------------------------------------------------------------


def test_the_mean_shift_is_half_a_unit_in_ten_features() -> None:
    sample = PROBLEMS["mean shift"]({"n": 4000, "d": 20}, None, np.random.default_rng(0))
    assert isinstance(sample, TwoSamples)
    shift = sample.Y.mean(axis=0) - sample.X.mean(axis=0)
    # Each mean difference has standard deviation sqrt(2 / 4000) = 0.022; twenty of them stay within five of these.
    assert np.abs(shift - 0.5 * sample.truth).max() < 5 * math.sqrt(2 / 4000)
    assert sample.truth.sum() == 10


def test_the_variance_shift_is_one_and_a_half() -> None:
    sample = PROBLEMS["variance shift"]({"n": 4000, "d": 20}, None, np.random.default_rng(0))
    assert isinstance(sample, TwoSamples)
    # A sample variance of n normals has relative standard deviation sqrt(2 / n).
    ratio = sample.Y.var(axis=0) / np.where(sample.truth, 1.5, 1.0)
    assert np.abs(ratio - 1).max() < 5 * math.sqrt(2 / 4000)


def test_the_digits_have_the_shares_of_fakes_they_say() -> None:
    sample = PROBLEMS["digits"]({"n": 200}, None, np.random.default_rng(0))
    assert isinstance(sample, DataSets)
    images, _ = problems._digits_and_model()
    known = {image.tobytes() for image in images}
    assert all(row.tobytes() in known for row in sample.reference)
    fakes = [sum(row.tobytes() not in known for row in rows) for rows in sample.candidates.values()]
    assert fakes == [0, 20, 40, 60, 80, 100]


# --- methods --------------------------------------------------------------------------------------------------------


def test_designs_of_their_own_leave_only_noise_between_the_features() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 1))
    copies = problems.WithResponse(np.repeat(x, 6, axis=1), (x > 0).astype(float), np.ones(6, dtype=bool))
    own = score(copies, Recipe("incomplete", options=(("r", 5),), own_designs=True), np.random.default_rng(2))
    shared = score(copies, Recipe("incomplete", options=(("r", 5),)), np.random.default_rng(2))
    every = np.arange(6)

    def correlations(matrix: np.ndarray) -> np.ndarray:
        sd = np.sqrt(np.diagonal(matrix))
        return (matrix / np.outer(sd, sd))[np.triu_indices(6, 1)]

    # Six copies of one feature: with shared rows the same number six times, with own rows 1,000 unrelated draws each,
    # whose correlations have standard deviation 1 / sqrt(1000).
    assert np.allclose(correlations(shared.cov.columns(every)), 1.0)
    assert np.abs(correlations(own.cov.columns(every))).max() < 5 / math.sqrt(1000)
    assert len(set(own.estimate.tolist())) == 6


def test_methods_with_one_recipe_select_the_same_features() -> None:
    sample = PROBLEMS["mean shift"]({"n": 60, "d": 40}, None, np.random.default_rng(0))
    scores = score(sample, FIG1.settings[0].methods[0].recipe, np.random.default_rng(0))
    tested = [run_test(scores, m, 30, 50, np.random.default_rng(0)) for m in FIG1.settings[0].methods[:2]]
    assert tested[0].selected.tolist() == tested[1].selected.tolist()
    assert len(tested[0].selected) == 30
    assert not np.array_equal(tested[0].pvalues, tested[1].pvalues)


# --- trials ---------------------------------------------------------------------------------------------------------


def test_a_trial_is_the_same_whenever_it_runs() -> None:
    first = without_seconds(run_trial(task(trial=3))[1])
    run_trial(task(setting=2))
    assert without_seconds(run_trial(task(trial=3))[1]) == first


def test_trials_settings_and_seeds_have_streams_of_their_own() -> None:
    tasks = [task(), task(trial=1), task(setting=1), task(seed=1), task(artefact=smaller(FIG3, 60, 50, 5))]
    draws = [generator(t, "data").random() for t in tasks] + [generator(task(), "other").random()]
    assert len(set(draws)) == len(draws)


def test_rates_are_shares_of_the_selected() -> None:
    truth = np.array([True, True, True, False, False, False, False])
    sample = TwoSamples(np.empty((0, 7)), np.empty((0, 7)), truth)
    # Selected: two true ones (one rejected) and three null ones (one rejected); the third true one was not selected.
    tested = TopKPvalues(np.array([0, 1, 3, 4, 5]), np.array([0.01, 0.2, 0.04, 0.05, 0.9]))
    assert MEASURES["rates"](task(), sample, tested) == {"TPR": 1 / 2, "FPR": 1 / 3}


def test_a_data_set_counts_as_rejected_only_where_it_was_selected() -> None:
    sample = DataSets(np.empty((0, 1)), {"a": np.empty((0, 1)), "b": np.empty((0, 1)), "c": np.empty((0, 1))})
    tested = TopKPvalues(np.array([2, 0]), np.array([0.001, 0.5]))
    assert MEASURES["screen"](task(), sample, tested) == {"a": 0.0, "b": 0.0, "c": 1.0}


def test_statistics_are_scaled_by_the_root_of_their_draws() -> None:
    laws = smaller(LAWS, most_rows=40, replicates=1, samples=400)
    wide = {s.label: s for s in laws.settings}
    spreads = []
    for label in ("MMD, shift 0, r=1", "MMD, shift 0, r=10"):
        [values] = run_trial(Task(laws, wide[label], 0, 0, None))[1].values()
        spreads.append(np.std(values["statistics"]))
    # Under the null both have the kernel's own standard deviation, the second plus that of the complete statistic:
    # a factor of sqrt(1 + 10 n * 2 / (n (n - 1))) = 1.23 for n = 40, and each is known to 1 / sqrt(800) = 3.5%.
    assert spreads[1] / spreads[0] == pytest.approx(1.23, rel=5 * math.sqrt(2) * 0.035)


# --- records --------------------------------------------------------------------------------------------------------

VALUES = {"m": {"TPR": 0.1 + 0.2, "statistics": [1 / 3, 5e-324], "seconds": 0.1}}


def stored(folder: Path, *trials: int) -> TrialStore:
    records = TrialStore(folder)
    for trial in trials:
        records.add(task(trial=trial).key, VALUES)
    return records


def test_records_read_back_bit_for_bit(tmp_path: Path) -> None:
    stored(tmp_path, 0)
    again = TrialStore(tmp_path)
    assert again.values == {task().key: VALUES}
    assert again.log.damaged == []


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_half_written_record_is_noticed_and_the_next_one_is_whole(tmp_path: Path, cut: int) -> None:
    stored(tmp_path, 0, 1)
    path = tmp_path / "trials.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    records, lost = TrialStore(tmp_path), task(trial=1).key
    # Without its newline alone the record is still whole.
    assert (lost in records.values) == (cut == 1)
    assert records.log.damaged == ([] if cut == 1 else [2])
    records.add(lost, VALUES)
    assert set(TrialStore(tmp_path).values) == {task(trial=0).key, lost}


def test_a_damaged_record_is_noticed(tmp_path: Path) -> None:
    stored(tmp_path, 0, 1, 2)
    path = tmp_path / "trials.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[1] = lines[1].replace(b'"seconds":0.1', b'"seconds":0.2')
    path.write_bytes(b"\n".join(lines))
    records = TrialStore(tmp_path)
    assert records.log.damaged == [2]
    assert {key[-1] for key in records.values} == {0, 2}


def test_results_of_another_configuration_are_not_mixed_in(tmp_path: Path) -> None:
    other = dataclasses.replace(TINY, k=29)
    prints = [fingerprint(a, a.settings[0], s) for a, s in ((TINY, 0), (other, 0), (TINY, 1), (FIG1, 0))]
    assert len(set(prints)) == 4
    records = stored(tmp_path, 0)
    assert records.values == {task().key: VALUES}
    assert dataclasses.replace(task(), artefact=other).key not in records.values


def test_a_table_of_records_reads_back(tmp_path: Path) -> None:
    rows = [Row("a", "s, 1", "m", "TPR", 1 / 3, 0.0, 2, 0.5), Row("b", "s", "m", "FPR", math.inf, 0.1, 3, 1e-9)]
    columns = ("artefact", "setting", "method", "measure", "mean", "standard_error", "trials", "seconds")
    write_rows(tmp_path / "rows.csv", Row, rows, columns=columns, number="")
    assert read_rows(tmp_path / "rows.csv", Row) == rows
    assert read_rows(tmp_path / "none.csv", Row) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_all_tasks_run_once_each_on_one_thread(workers: int) -> None:
    found = list(run_tasks(blas_threads, range(7), workers))
    assert sorted(number for number, _ in found) == list(range(7))
    assert {threads for _, threads in found} == {1}


def blas_threads(number: int) -> tuple[int, int]:
    return number, max(pool["num_threads"] for pool in threadpool_info())


# --- summary --------------------------------------------------------------------------------------------------------


def row(mean: float, error: float, paper: float | None, paper_error: float | None, counted: bool = True) -> Row:
    return Row("a", "s", "m", "TPR", mean, error, 100, 0.1, paper, paper_error, counted)


@pytest.mark.parametrize(
    ("found", "apart", "agrees"),
    [
        (row(0.50, 0.03, 0.60, 0.04), -2.0, True),
        (row(0.80, 0.03, 0.60, 0.04), 4.0, False),
        (row(0.62, 0.001, 0.60, 0.001), 14.14, True),
        (row(0.80, 0.03, 0.60, 0.04, counted=False), 4.0, None),
        (row(0.80, 0.03, None, None), None, None),
    ],
)
def test_agreement_is_three_errors_or_three_hundredths(found: Row, apart: float | None, agrees: bool | None) -> None:
    assert found.errors_apart == (None if apart is None else pytest.approx(apart, abs=0.01))
    assert found.agrees is agrees


def test_means_and_standard_errors(tmp_path: Path) -> None:
    artefact = dataclasses.replace(TINY, settings=(dataclasses.replace(TINY.settings[0]),))
    [setting] = artefact.settings
    rates = [0.2, 0.4, 0.9]
    finished = [
        (i, {m.name: {"TPR": rate, "FPR": 0.0, "seconds": 1.0 + i} for m in setting.methods})
        for i, rate in enumerate(rates)
    ]
    rows = summarise(artefact, setting, finished)
    [first] = [r for r in rows if r.method == "MultiMMD-Inc" and r.measure == "TPR"]
    assert first.mean == pytest.approx(np.mean(rates))
    assert first.standard_error == pytest.approx(np.std(rates, ddof=1) / math.sqrt(3))
    assert (first.trials, first.seconds, first.paper) == (3, 2.0, 0.675)
    # Ten true features in each of 100 trials.
    assert first.paper_error == pytest.approx(math.sqrt(0.675 * 0.325 / 1000))
    write_rows(tmp_path / "summary.csv", Row, rows, columns=COLUMNS, number="")
    lines = (tmp_path / "summary.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * len(setting.methods)
    assert lines[0].startswith("artefact,setting,method,measure,mean,standard_error,trials,seconds")
    assert lines[1].startswith(f"fig1,n=500,MultiMMD-Inc,TPR,{first.mean!r},{first.standard_error!r},3,2.0,0.675")


# --- the folder of image features -----------------------------------------------------------------------------------


def celeba(tmp_path: Path, real: np.ndarray, fake: np.ndarray) -> Setting:
    folder = tmp_path / "celeba_features"
    folder.mkdir(exist_ok=True)
    np.save(folder / "ref_smile.npy", real)
    np.save(folder / "gen_smile.npy", fake)
    return dataclasses.replace(TABLE2.settings[0], label="celeba", problem="celeba", size={"n": 60})


def test_image_features_go_through_the_papers_protocol(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    real, fake = rng.normal(size=(150, 8)), rng.normal(size=(90, 8)) + 3.0
    setting = celeba(tmp_path, real, fake)
    sample = PROBLEMS["celeba"](setting.size, str(tmp_path), np.random.default_rng(1))
    assert isinstance(sample, DataSets)
    reference = {r.tobytes() for r in sample.reference}
    assert len(reference) == 60
    for share, rows in zip(problems.SHARES, sample.candidates.values(), strict=True):
        assert sum(r.mean() > 1.5 for r in rows) == round(60 * share)
        assert not any(r.tobytes() in reference for r in rows)
    values = run_trial(Task(ARTEFACTS["table2-celeba"], setting, 0, 0, str(tmp_path)))[1]
    assert values["Complete, exact"]["50% fakes"] == 1.0


@pytest.mark.parametrize(
    ("real", "fake", "said"),
    [
        (np.zeros((150, 8)), np.zeros((90, 7)), "same columns"),
        (np.zeros(150), np.zeros((90, 8)), "one row an image"),
        (np.full((150, 8), np.nan), np.zeros((90, 8)), "finite"),
        (np.zeros((119, 8)), np.zeros((90, 8)), "120 real images"),
        (np.array([[None]]), np.zeros((90, 8)), "npy file"),
    ],
)
def test_image_features_that_cannot_be_used_are_refused(
    tmp_path: Path, real: np.ndarray, fake: np.ndarray, said: str
) -> None:
    setting = celeba(tmp_path, real, fake)
    with pytest.raises(ValueError, match=said):
        PROBLEMS["celeba"](setting.size, str(tmp_path), np.random.default_rng(1))


# --- the authors' rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "features", "hit"), [(100, 8, [3, 5]), (138, 13, [1, 2, 3, 4, 5, 6, 8]), (200, 12, [])])
def test_the_authors_rows_repeat_where_their_code_repeated_them(n: int, features: int, hit: list[int]) -> None:
    # Found by running their arithmetic number by number: which of the true features of Pulsar, Heart and Wine are hit.
    repeats = []
    for feature in range(features):
        rows = published_quadruples(n, 5 * n, feature)
        assert rows.min() >= 0
        assert rows.max() < n
        repeats.append(any(len(set(row)) < 4 for row in rows.tolist()))
    assert np.flatnonzero(repeats).tolist() == hit


def test_on_rows_that_differ_it_is_the_librarys_hsic() -> None:
    rng = np.random.default_rng(0)
    sample = problems.WithResponse(rng.normal(size=(300, 4)), rng.normal(size=(300, 1)), np.zeros(4, dtype=bool))
    sample.X[:, 0] += 2 * sample.y[:, 0]
    theirs = score(sample, Recipe(PUBLISHED, "median", options=(("r", 20),)), np.random.default_rng(1))
    ours = score(sample, Recipe("incomplete", "median", options=(("r", 20),)), np.random.default_rng(2))
    # Two unbiased estimates of the same numbers, but for a few draws in 6,000 with a row twice.
    spread = np.sqrt(theirs.cov.diagonal() + ours.cov.diagonal())
    assert np.abs(theirs.estimate - ours.estimate).max() < 5 * spread.max()
    assert theirs.estimate[0] > 10 * spread[0]
