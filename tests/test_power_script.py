"""The script behind docs/power.md: every part runs, resumes and renders, and its targets are what it says they are."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"

pytest.importorskip("threadpoolctl")


@pytest.fixture
def power(monkeypatch):
    """The script as a module; its siblings have plain names, so they are forgotten again."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    import power

    yield power
    for name in ("power", "power_page", "peers", "problems", "targets"):
        if name not in before:
            sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("part", "only"),
    [
        ("paper", "mean shift 0.5, n=100"),
        ("bh", "two modes"),
        ("peers", "two modes, n=100 KS"),
        ("peers", "two modes, n=100 f_classif"),
        ("peers", "two modes, n=100 mutual"),
        ("peers", "two modes, n=100 Multi"),
        ("null", "n=50"),
        ("intervals", "n=200 complete (default)"),
        ("intervals", "n=200 cross"),
    ],
)
def test_two_trials_of_each_part(power, tmp_path, capsys, part, only):
    folder = tmp_path / "power"
    arguments = [part, "page", "--trials", "2", "--workers", "1", "--folder", str(folder), "--only", only]
    power.main(arguments)
    assert "| " in capsys.readouterr().out
    lines = power.Record.read(part, folder).lines
    assert lines
    for line in lines:
        assert only in f"{line['row']} {line['method']}"
        assert float(line["mean"]) >= 0 or int(line["counted"]) == 0
    assert "# How much power" in (tmp_path / "power.md").read_text(encoding="utf-8")
    power.main(arguments)  # everything is on record: nothing is measured again
    assert " | " not in capsys.readouterr().out


def test_the_whole_page_from_two_lines_a_part(power, tmp_path):
    folder = tmp_path / "power"
    for part in power.PARTS:
        record = power.Record.read(part, folder)
        for cell in power.cells_of(part, 2):
            names = {
                "paper": ("tpr", "fpr", "seconds"),
                "null": tuple(f"{k} at {level}" for k in ("k=1", "k=d/3", "k=d-1") for level in (0.05, 0.01)),
                "intervals": ("k=10 true", "k=10 null", "k=30 true", "k=30 null", "k=30 width"),
            }.get(part, ("tpr", "fdr", "seconds"))
            record.put(cell, dict.fromkeys(names, (0.5, 0.1, 2)))
    power.main(["page", "--folder", str(folder)])
    page = (tmp_path / "power.md").read_text(encoding="utf-8")
    assert page.count("\n## ") == 4
    for name in ("bh", "paper", "null", "intervals"):
        assert f"power/{name}.png" in page
        assert (folder / f"{name}.png").stat().st_size > 10_000


def test_seeds_depend_on_row_and_trial_alone(power):
    one, two = (power.Cell("bh", "two modes, n=100", method, 2) for method in ("kernsift, k=None", "kernsift, k=30"))
    again = [power.one_trial((one, 1))["tpr"] for _ in range(2)]
    assert again[0] == again[1]
    seen = []
    problem = power.rows_of("bh")["two modes, n=100"]
    for cell in (one, two):
        power._TRIAL["bh"], kept = (lambda p, m, rng, seed: seen.append((p.draw(rng)[0], seed)) or {}), power.bh_trial
        power.one_trial((cell, 1))
        power._TRIAL["bh"] = kept
    assert problem.question == "compare"
    np.testing.assert_array_equal(seen[0][0], seen[1][0])
    assert seen[0][1] == seen[1][1]


def test_weighted_means_and_their_errors(power):
    trials = [{"x": power.Figure(1.0, 3.0)}, {"x": power.Figure(0.0, 1.0)}, {"x": power.Figure(9.0, 0.0)}]
    mean, error, counted = power.summary(trials)["x"]
    assert (mean, counted) == (0.75, 2)
    assert error == pytest.approx(np.sqrt((3 * 0.25) ** 2 + 0.75**2) / 4)


@pytest.mark.parametrize("bandwidth", ["auto", "median"])
@pytest.mark.parametrize("name", ["mean shift 0.5, n=200", "logistic, n=200"])
def test_the_witness_is_the_one_the_call_learned(power, name, bandwidth):
    """The targets of the cross estimator come from the same witnesses: on the call's own rows they give its effects."""
    import targets

    problem = power.rows_of("intervals")[name]
    data = problem.draw(np.random.default_rng(3))
    settings = {"estimator": "cross", "bandwidth": bandwidth, "k": 50}
    setup = targets.set_up(problem, data, 5, **settings)
    result = setup.answer(setup.scores())
    true = np.flatnonzero(problem.true)
    fresh = (data[0][:, true], data[1][:, true] if data[1].ndim > 1 else data[1])
    here, there = targets.cross_effects(targets.set_up(problem, data, 5, **settings), true, fresh)
    reported = np.empty(50)
    reported[result.selected] = result.effects
    np.testing.assert_allclose(here, reported[true], atol=1e-5)
    assert np.abs(here - there).max() > 0  # the second row is about other rows


@pytest.mark.parametrize("name", ["standard deviation × 1.5, n=200", "logistic, n=500"])
def test_the_look_is_the_one_that_spoke_in_the_call(power, name):
    """Looks taken again after the call: the winner's effects are those reported, and the other look's are not."""
    import targets

    problem = power.rows_of("intervals")[name]
    setup = targets.set_up(problem, problem.draw(np.random.default_rng(4)), 6)
    reported = setup.scores().effects(np.arange(50)).point
    _, looks, response = targets._looks(setup, True, np.random.default_rng(8))
    both = np.array([targets.effect_sizes(look.laws, np.zeros(50), response).point for look in looks])
    winner = targets.winners(setup)
    assert set(winner) == {0, 1}
    np.testing.assert_allclose(both[winner, np.arange(50)], reported, atol=1e-9)
    apart = (reported > 0) & (both[1 - winner, np.arange(50)] > 0)
    assert (np.abs(both[1 - winner, np.arange(50)] - reported)[apart] > 1e-6).all()
