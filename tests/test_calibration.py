"""Calibration: the script of the grid, and the warnings of the library where p-values are not right."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernsift import Block, CalibrationWarning, Incomplete, Multiscale, compare, relate, screen, topk_pvalues
from kernsift.cli import main as command_line
from kernsift.estimators.scores import DenseCovariance, Scores
from kernsift.experiments.studies import read_rows
from kernsift.inference import TESTS
from kernsift.inference.selection_rules import TopK

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
if not BENCHMARKS.is_dir():
    pytest.skip("the benchmarks are not part of an installation", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

import calibrate  # noqa: E402
import calibrate_page  # noqa: E402

# --- warnings ---------------------------------------------------------------------------------------------------------


def normal(n: int, d: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def two(n: int, **options: Any) -> Callable[[], Any]:
    return lambda: compare(normal(n), normal(n, seed=1), random_state=0, **options)


def response(n: int, **options: Any) -> Callable[[], Any]:
    return lambda: relate(normal(n), normal(n, 1, 1)[:, 0], random_state=0, **options)


def several(n: int, **options: Any) -> Callable[[], Any]:
    candidates = {str(i): normal(n, seed=i + 1) for i in range(3)}
    return lambda: screen(normal(n), candidates, random_state=0, **options)


OFF = {
    "multiscale, one winner": (two(60, k=1, test=Multiscale(replicates=50)), "test='exact' keeps the level"),
    "multiscale, one winner, response": (response(60, k=1, test=Multiscale(replicates=50)), "test='exact'"),
    "many draws": (two(100, estimator=Incomplete(r=11)), "r=11 rejects too often on 100 rows.*take r up to 10"),
    "many draws, response": (response(50, estimator=Incomplete(r=6)), "estimator='complete'.*r up to 5"),
    "a small sample, cut in half": (
        lambda: compare(normal(35), normal(10, seed=1), estimator="cross", random_state=0),
        "10 rows against 35 gives too many very small p-values.*use estimator='complete'",
    ),
    "few units, cut in half": (
        lambda: compare(
            normal(260), by=np.arange(260) < 40, unit=np.arange(260) // 4, k=1, estimator="cross", random_state=0
        ),
        "10 units against 55 gives too many very small p-values",
    ),
    "few blocks": (two(40, estimator=Block(block_size=10)), "4 blocks rejects too often.*block_size up to 8"),
    "five blocks": (two(40, estimator=Block(block_size=8)), "5 blocks gives too many very small p-values"),
    "blocks of unequal samples": (
        lambda: compare(normal(80), normal(400, seed=1), estimator="block", random_state=0),
        "80 rows against 400 rejects too often in columns with rare values.*use estimator='complete'",
    ),
    "few blocks by default": (two(9, estimator="block"), "3 blocks rejects too often"),
    "few blocks, response": (response(40, estimator=Block(block_size=20)), "2 blocks rejects too often"),
    "one winner of scores alone": (
        lambda: topk_pvalues(np.arange(4.0), np.eye(4), k=1, test="multiscale", random_state=0),
        "k=1 rejects only about half as often.*test='exact'",
    ),
    "near ties": (
        lambda: compare(1.0 * (normal(90) > 0), 1.0 * (normal(80, seed=1) > 0), test="polyhedral", random_state=0),
        "'polyhedral' with features of two values may reject too often.*test='exact'",
    ),
    "near ties, response": (
        lambda: relate(1.0 * (normal(90) > 0), normal(90, 1, 2), test="polyhedral", random_state=0),
        "'polyhedral' with features of two values",
    ),
    "a linear kernel and many rows": (two(300_000, k=1, kernel="linear"), "600,000 rows.*use kernel='gaussian'"),
    "large blocks": (response(400, estimator=Block(block_size=20)), "20 blocks of 20 rows.*block_size=5"),
}


@pytest.mark.parametrize("name", OFF)
def test_a_combination_that_is_off_says_so_and_names_a_better_one(name: str) -> None:
    call, said = OFF[name]
    with pytest.warns(CalibrationWarning, match=said) as caught:
        call()
    assert len(caught) == 1
    # The line to look at is the caller's.
    assert caught[0].filename == __file__


RIGHT = {
    "defaults": two(10),
    "defaults, response": response(10),
    "defaults, data sets": several(10),
    "one winner, exact": two(60, k=1),
    "multiscale, two winners": two(60, k=2, test=Multiscale(replicates=50)),
    "multiscale, the only feature": lambda: compare(normal(60, 1), normal(60, 1, 1), k=1, test="multiscale"),
    "multiscale, threshold": two(60, threshold=0.0, test=Multiscale(replicates=50)),
    "the paper's draws": two(30, estimator="incomplete"),
    "few draws": two(4, estimator="incomplete"),
    "few pairs": two(8, estimator="linear"),
    "few draws, data sets": several(20, estimator="incomplete"),
    "a tenth of the rows": two(100, estimator=Incomplete(r=10)),
    "few draws, response": response(20, estimator="incomplete"),
    "eight blocks": two(40, estimator=Block(block_size=5)),
    "five blocks, response": response(25, estimator=Block(block_size=5)),
    "small blocks": response(100, estimator=Block(block_size=5)),
    "cross": two(20, estimator="cross"),
    "cross, a small sample": lambda: compare(normal(27), normal(9, seed=1), estimator="cross", random_state=0),
    "polyhedral": two(60, test="polyhedral"),
    "a linear kernel": two(60, kernel="linear"),
    "two values, exact": lambda: compare(1.0 * (normal(60) > 0), 1.0 * (normal(60, seed=1) > 0), random_state=0),
    "scores alone": lambda: topk_pvalues(np.arange(4.0), np.eye(4), k=2, test="multiscale", random_state=0),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_in_peace(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalibrationWarning)
        assert len(RIGHT[name]().pvalues) > 0


@pytest.mark.filterwarnings("default::kernsift.CalibrationWarning")
def test_the_command_line_says_it_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "ab":
        np.savetxt(tmp_path / f"{name}.csv", normal(60), delimiter=",", header="w,x,y,z", comments="")
    files = [str(tmp_path / f"{name}.csv") for name in "ab"]
    options = ["--test", "multiscale", "--k", "1", "--option", "replicates=50"]
    assert command_line(["compare", *files, *options]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "multiscale" in line]
    assert len(said) == 1 and said[0].startswith("note: ") and "--test exact" in said[0]


# --- samples of unequal size ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::kernsift.CalibrationWarning")  # which is about levels below 0.01, with 5 rows
@pytest.mark.parametrize(("one", "two", "unit"), [(5, 95, False), (20, 300, False), (12, 60, True)])
def test_rare_values_of_a_small_sample_keep_the_level_of_cross(one: int, two: int, unit: bool) -> None:
    """With separate variances, 0.1 to 0.3 of the columns were significant: small samples without a rare value."""
    rows = np.repeat(np.arange(one + two), 5) if unit else np.arange(one + two)
    columns = 1.0 * (np.random.default_rng(1).random((len(rows), 500)) < 0.05)
    options = {"unit": rows} if unit else {}
    found = compare(columns, by=rows < one, estimator="cross", correction=None, random_state=0, **options).pvalues
    # 0.05, and three standard errors of a share of 500.
    assert (found <= 0.05).mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 500)


# --- ties -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", ["exact", "polyhedral"])
def test_a_tie_at_the_cut_is_no_evidence(test: str) -> None:
    """The second score ties with the third, which the first one's noise moves: no room above, and p was 1e-308."""
    cov = np.array([[1.0, 0.0, 0.5], [0.0, 0.0, 0.0], [0.5, 0.0, 1.0]])
    scores = Scores(("a", "b", "c"), np.array([0.4, 0.0, 0.0]), DenseCovariance(cov))
    rule = TopK(2)
    selected = rule.select(scores.estimate)
    assert selected.tolist() == [0, 1]
    pvalues = TESTS[test](scores, rule, selected, rng=np.random.default_rng(0)).pvalues
    assert pvalues[0] > 0.3 and pvalues[1] == 1.0


# --- the grid's script ------------------------------------------------------------------------------------------------

STORE = calibrate.Store("compare", "incomplete", "independent", 30)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is written without its picture, which takes seconds."""
    monkeypatch.setattr(calibrate_page, "draw_grid", lambda *given: None)


def run(folder: Path, *more: str, only: str = "compare incomplete independent n=30") -> int:
    place = ["--folder", str(folder / "out")]
    return calibrate.main(["grid", "--workers", "1", "--replicates", "20", "--only", only, *place, *more])


def numbers(folder: Path) -> list[Any]:
    """All figures but their dates."""
    cells = read_rows(folder / "out" / "compare.csv", calibrate.Cell)
    return [[value for name, value in vars(cell).items() if name != "date"] for cell in cells]


def test_the_grid_is_the_one_that_was_asked_for() -> None:
    plain = [store for store in calibrate.stores() if store.variant in calibrate.QUESTIONS[store.question]]
    assert len(plain) == (5 + 4 + 5) * (7 * 3 + 1)
    assert calibrate.KS == (1, calibrate.D // 3, calibrate.D - 1)
    assert {store.n for store in plain} == {30, 100, 1000, 1050}
    assert calibrate.SETTINGS["50 against 1000"].rows(1050) == (50, 1000)
    assert calibrate.SETTINGS["95/5"].rows(100) == (95, 5)
    assert len({store.name for store in calibrate.stores()}) == len(calibrate.stores())


@pytest.mark.usefixtures("undrawn")
def test_a_killed_run_goes_on_and_comes_to_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    both = "compare incomplete independent n=30,compare linear independent n=30"
    assert run(whole, only=both) == 0
    # As a kill leaves it: one setting is done.
    assert run(killed) == 0
    capsys.readouterr()
    assert run(killed, only=both) == 0
    assert "compare linear" in (said := capsys.readouterr().out) and "compare incomplete" not in said
    assert numbers(killed) == numbers(whole)
    # Nothing is left to do, unless everything is to be measured again.
    before = (killed / "out" / "compare.csv").read_bytes()
    assert run(killed, only=both) == 0
    assert "compare linear" not in capsys.readouterr().out
    assert run(killed, "--fresh", only="compare linear independent n=30") == 0
    assert "compare linear" in capsys.readouterr().out
    assert (killed / "out" / "compare.csv").read_bytes() == before


def test_a_cell_near_the_limit_gets_more_replicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in ten p-values of the exact test is 0.01: its 200 replicates become 800, and those of the bootstrap stay."""
    store = calibrate.Store("compare", "complete", "independent", 30)

    def batch(given: calibrate.Batch) -> Any:
        high, low = (1, 0, 0, 0.5), (1, 1, 1, 0.01)
        counts = {"exact": [low] + [high] * 9, "multiscale": [high] * 10}
        return given, [{test: [counts[test][i]] * len(calibrate.KS) for test in given.tests} for i in range(10)]

    monkeypatch.setattr(calibrate, "run_batch", batch)
    monkeypatch.setattr(calibrate, "wanted", lambda store, replicates: {"exact": 200, "multiscale": 20})
    calibrate.run_grid([store], None, tmp_path, 1, fresh=False)
    cells = read_rows(tmp_path / "compare.csv", calibrate.Cell)
    assert {(cell.test, cell.replicates) for cell in cells} == {("exact", 800), ("multiscale", 20)}


def test_data_do_not_depend_on_the_estimator_and_designs_do() -> None:
    other = STORE._replace(variant="linear")
    one, two = (store.generator(3, "data").random(4) for store in (STORE, other))
    np.testing.assert_array_equal(one, two)
    assert (STORE.generator(3, STORE.variant).random(4) != other.generator(3, other.variant).random(4)).all()
    assert (STORE.generator(4, "data").random(4) != one).all()


@pytest.mark.parametrize("setting", ["correlated with signals", "counts and ties"])
@pytest.mark.parametrize("question", ["compare", "relate"])
def test_p_values_of_the_grid_are_those_of_the_call(question: str, setting: str) -> None:
    """The grid computes scores once for all tests; a call with the same data must give the same p-values."""
    sample = calibrate.draw(question, calibrate.SETTINGS[setting], 100, np.random.default_rng(5))
    scores = calibrate.score(calibrate.VARIANTS["complete"], sample, np.random.default_rng(6))
    rule = TopK(4)
    selected = rule.select(scores.estimate)
    pvalues = TESTS["exact"](scores, rule, selected, rng=np.random.default_rng(7)).pvalues
    given = {"k": 4, "correction": None, "random_state": 6}
    if question == "compare":
        result = compare(sample.X, sample.Y, **given)
    else:
        result = relate(sample.X, sample.y, response="numeric", **given)
    np.testing.assert_array_equal(result.selected, selected)
    np.testing.assert_allclose(result.pvalues, pvalues, rtol=1e-8)


@pytest.mark.parametrize("question", calibrate.QUESTIONS)
def test_true_features_are_true_and_their_mates_are_null(question: str) -> None:
    setting = calibrate.SETTINGS["correlated with signals"]
    # Few rows make the signal large: it is scaled so that its visibility stays the same.
    sample = calibrate.draw(question, setting, 20_000, np.random.default_rng(0))
    assert sample.truth.sum() == 3
    if question == "compare":
        effect = sample.Y.mean(axis=0) - sample.X.mean(axis=0)
    elif question == "relate":
        effect = np.array([np.cov(column, sample.y)[0, 1] for column in sample.X.T])
    else:
        effect = np.array([table.mean() for table in sample.candidates.values()])
    signal = 0.4 * np.sqrt(100 / 20_000)
    expected = np.where(sample.truth, signal * (0.6 if question == "relate" else 1.0), 0.0)
    # Means of 10,000 rows on each side, or products of 20,000: standard errors of at most 0.0142.
    np.testing.assert_allclose(effect, expected, atol=4 * 0.0142)


def test_rates_have_the_standard_error_of_clusters() -> None:
    """All features of a replicate go together: 400 independent decisions, not 4,400."""
    rng = np.random.default_rng(5)
    together = np.where(rng.random(400) < 0.05, 11, 0)
    rate, error = calibrate.share(together, np.full(400, 11))
    assert rate == pytest.approx(together.mean() / 11)
    assert error == pytest.approx(np.sqrt(rate * (1 - rate) / 399))
    apart = rng.binomial(11, 0.05, 400)
    assert calibrate.share(apart, np.full(400, 11))[1] == pytest.approx(np.sqrt(0.05 * 0.95 / 4400), rel=0.15)
    assert all(np.isnan(calibrate.share(np.zeros(3), np.zeros(3))))


@pytest.mark.usefixtures("undrawn")
def test_a_refused_cell_says_why(tmp_path: Path) -> None:
    """28 rows against 2 are no four rows for the linear estimator."""
    assert run(tmp_path, only="compare linear 95/5 n=30") == 0
    [reason] = {cell.refused for cell in read_rows(tmp_path / "out" / "compare.csv", calibrate.Cell)}
    assert "at least 4 rows" in reason


def test_the_page_has_the_grid_in_colour(tmp_path: Path) -> None:
    only = "compare incomplete independent n=30,compare complete 95/5 n=30,compare incomplete r=3 independent n=30"
    assert run(tmp_path, only=only) == 0
    page = (tmp_path / "calibration.md").read_text(encoding="utf-8")
    assert "compare.png" in page and "20 replicates" in page
    assert (tmp_path / "out" / "compare.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("rate", "error", "expected"),
    [
        (0.05, 0.01, "right"),
        (0.079, 0.01, "right"),
        (0.081, 0.01, "above"),
        (0.019, 0.01, "below"),
        (0.0, 0.0, "below"),
    ],
)
def test_what_counts_as_off(rate: float, error: float, expected: str) -> None:
    cell = calibrate.Cell("compare", "complete", "exact", "independent", 30, 1, 400, 400, rate, error, *[0.0] * 6, "")
    assert calibrate_page.verdict(cell) == expected


def test_a_batch_counts_selected_null_features() -> None:
    _, replicates = calibrate.run_batch(calibrate.Batch(STORE, 0, ("exact", "naive")))
    assert [set(one) for one in replicates] == [{"exact", "naive"}] * calibrate.BATCH
    # With nothing true every selected feature is null: k of them, and the level 0.01 rejects no more than 0.05.
    for one in replicates:
        for (among, hits, hits01, pvalue), k in zip(one["exact"], calibrate.KS, strict=True):
            assert among == k and hits01 <= hits <= among and 0 < pvalue <= 1


# --- the default combination ------------------------------------------------------------------------------------------

_NIGHTLY = [
    store
    for store in calibrate.stores()
    if store.variant == calibrate.DEFAULT and (store.question != "screen" or store.n == 100)
]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("store", _NIGHTLY, ids=lambda store: store.name)
def test_the_default_combination_keeps_its_level(store: calibrate.Store) -> None:
    """Within three standard errors of 0.05 or below, and the naive p-values, with one winner, far above.

    The standard error is that of the level where the observed one is smaller: k features of a replicate count as one,
    which is the most that their dependence can do.
    """
    count = 100 if store.question == "screen" else 300
    batches = calibrate.batches(store, {"exact": count, "naive": count}, {})
    for cell in calibrate.cells_of(store, [calibrate.run_batch(batch)[1] for batch in batches]):
        assert not cell.refused or "rows" in cell.refused
        if cell.test == "exact" and cell.counted > 30:
            assert cell.rate <= 0.05 + 3 * max(cell.error, np.sqrt(0.05 * 0.95 / cell.counted)), cell
        if cell.test == "naive" and cell.k == 1 and store.setting == "independent":
            assert cell.rate > 0.2, cell
