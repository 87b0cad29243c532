"""The script behind docs/scaling.md: the model finds the costs that runs were made of, and sees a wrong prediction."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = ("scaling", "scaling_model", "scaling_page", "out_of_core", "measure", "pages")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules of the script, which find each other as they do when it is run."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    found = SimpleNamespace(**{name: __import__(name) for name in MODULES})
    yield found
    for name in MODULES:
        sys.modules.pop(name, None)


def made_up(script: Any, costs: dict[str, float], noise: float = 0.0) -> list[dict[str, Any]]:
    """Runs that cost exactly so much for each cell, feature and so on, or nearly."""
    rng = np.random.default_rng(5)
    runs = []
    for size in script.scaling.settings():
        cost = costs["call"] + costs["cell"] * size["n"] * size["d"] + costs["pair"] * size["d"] * size["k"]
        per_clock = costs["call"] + costs["cell"] * size["n"] * size["d"] / max(1, size["workers"])
        per_clock += costs["pair"] * size["d"] * size["k"]
        figures = {"processors": cost, "seconds": per_clock, "read": 24.0 * size["n"] * size["d"]}
        figures |= {"peak": 3e8 + 2e8 * size["workers"] + 25e3 * size["d"], "moved": 1e6 + 30e3 * size["d"]}
        off = np.exp(noise * rng.normal(size=len(figures)))
        runs.append({**size, "others": 0.02, **dict(zip(figures, off * list(figures.values()), strict=True))})
    return runs


COSTS = {"call": 0.2, "cell": 4e-8, "pair": 3e-5}


def test_the_model_finds_the_costs_that_runs_were_made_of(script: Any) -> None:
    models = script.scaling_model.fit(made_up(script, COSTS))
    for estimator in ("complete", "incomplete"):
        for on_workers in (False, True):
            model = models["processors", estimator, on_workers]
            found = {name: value for (name, *_), value in zip(model.terms, model.coefficients, strict=True)}
            assert found["a call"] == pytest.approx(0.2)
            assert found["reading and scoring a cell"] == pytest.approx(4e-8)
            assert found["a feature beside a selected one"] == pytest.approx(3e-5)
            assert sum(value > 1e-12 for value in found.values()) == 3, "nothing else costs anything"
            assert np.abs(model.errors).max() < 1e-9


def test_noise_of_a_twentieth_leaves_predictions_within_the_limit(script: Any) -> None:
    runs = made_up(script, COSTS, noise=0.05)
    found = script.scaling_model.checks(runs, script.scaling_model.fit(runs))
    # Four runs of two sizes are held out; bytes between processes are counted on workers alone.
    assert len(found) == 2 * (4 * 5 - 2)
    assert all(check.within for check in found)


def test_seconds_of_the_clock_count_only_where_nobody_else_works(
    script: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = made_up(script, COSTS)
    runs[-1]["seconds"] *= 2
    assert not script.scaling.report(runs)
    for run in runs:
        run["others"] = 0.4
    assert script.scaling.report(runs)
    assert "Others used 40% of the processors meanwhile" in capsys.readouterr().out


def test_what_is_held_out_is_larger_than_all_else(script: Any) -> None:
    runs = list(script.scaling.settings())
    largest = [run["n"] * run["d"] for run in runs if run.get("held_out")]
    assert len(largest) == 2 * 4
    assert min(largest) > 2 * max(run["n"] * run["d"] for run in runs if not run.get("held_out"))


def test_a_prediction_that_is_off_is_told(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    runs = made_up(script, COSTS)
    assert script.scaling.report(runs)
    assert "MISSED" not in capsys.readouterr().out
    runs[-1]["processors"] *= 1.4
    assert not script.scaling.report(runs)
    (reported,) = [line for line in capsys.readouterr().out.splitlines() if "MISSED" in line]
    assert reported.startswith("250,000 × 1,700, incomplete, 2 workers, processors: predicted") and "(-29%)" in reported


def test_predictions_divide_what_workers_do_and_wait_for_storage(script: Any) -> None:
    page, models = script.scaling_page, script.scaling_model.fit(made_up(script, COSTS))
    size = {"n": 1e9, "d": 1e3, "k": 50, "workers": 1}
    alone = 0.2 + 3e-5 * 1e3 * 50
    one, hundred = (page.predicted(models, "complete", {**size, "workers": w}) for w in (1, 100))
    sent = 31e6 / page.NETWORK
    # 24 bytes a cell: reading takes longer than the 4e-8 s of a processor.
    assert one["seconds"] == pytest.approx(alone + 24e12 / page.PER_WORKER + sent)
    assert hundred["seconds"] == pytest.approx(alone + 24e12 / page.PER_WORKER / 100 + sent)
    assert hundred["one server"] == pytest.approx(alone + 24e12 / page.ONE_SERVER + sent)
    slow = script.scaling_model.fit(made_up(script, {**COSTS, "cell": 1e-6}))
    found = page.predicted(slow, "complete", {**size, "workers": 100})
    assert found["seconds"] == pytest.approx(alone + 1e-6 * 1e12 / 100 + sent)


def test_the_memory_of_a_worker_is_what_the_package_asks_for(script: Any) -> None:
    from kernsift.estimators.block_sizes import columns_that_fit
    from kernsift.exceptions import InputError

    n = 10**8
    models = script.scaling_model.fit(made_up(script, COSTS))
    reported = script.scaling_page.predicted(models, "incomplete", {"n": n, "d": 100, "k": 5, "workers": 2})["worker"]

    def fits(memory: int) -> int:
        layout = {"prototype": np.empty((0, 9)), "offsets": np.arange(10), "by_column": True}
        sample = SimpleNamespace(n=n // 2, memory=memory, **layout)
        return columns_that_fit([sample, sample], 16 * (n // 2), at_once=1)

    assert fits(int(reported) + 10) == 8 and fits(int(reported) - 10) == 7
    least = 16 * n / script.scaling_model._SHARE
    assert fits(int(least) + 10) == 1
    with pytest.raises(InputError, match=r"^memory: "):
        fits(int(least) - 10)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_blocks_are_those_of_the_package(script: Any, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model counts blocks of columns; the package cuts them."""
    from kernsift.estimators import block_sizes
    from kernsift.estimators.draws.batches import MMDDraws
    from kernsift.estimators.draws.moments import FeatureDraws
    from kernsift.execution.threads import thread_limit

    monkeypatch.setattr(block_sizes, "worker_threads", lambda: workers)
    model = script.scaling_model
    for size in script.scaling.settings():
        if size["workers"] != workers or size["estimator"] != "incomplete":
            continue
        n, d = size["n"], size["d"]
        memory = model.MEMORY // max(1, workers) - (model._PROCESS if workers else 0)
        same: Any = {"d": d, "memory": memory, "prototype": np.empty((0, d)), "offsets": np.arange(d + 1)}
        same |= {"by_column": True, "readable": True}
        sample = SimpleNamespace(n=n // 2, **same)
        table: Any = SimpleNamespace(n=n, tables=(sample, sample), **same)
        rows = tuple(np.broadcast_to(np.int32(0), n // 2) for _ in range(4))
        draws = FeatureDraws(table, None, MMDDraws(rows))  # type: ignore[arg-type]
        with thread_limit(1 if workers else 2):
            found = draws.features_at_once(workers)
        assert max(map(len, found)) == min(d, model.block_columns(size))
        assert len(found) == model.blocks(size)


def test_the_page(script: Any, tmp_path: Path) -> None:
    record = {"date": "2026-01-02", "commit": "abc", "machine": {"cores": 2}, "memory": 3 * 10**8}
    script.scaling_page.write_page(tmp_path / "scaling.md", {**record, "runs": made_up(script, COSTS)})
    text = (tmp_path / "scaling.md").read_text()
    for said in (
        "2026-01-02 (abc): cores 2",
        "36 of 36 predictions are within 25%",
        "| 40 ns |",
        "10^9 × 1,000, complete",
    ):
        assert said in text
    assert "{" not in text and "MISSED" not in text


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="bytes and memory are read from /proc, as Linux has it")
def test_a_run_is_measured(script: Any, tmp_path: Path) -> None:
    for workers in (0, 1):
        task = {"estimator": "incomplete", "n": 100_000, "d": 30, "k": 2, "workers": workers}
        run = script.scaling.measured(task, script.scaling.tables(tmp_path, task["n"], task["d"]))
        table = 8 * 100_000 * 30
        assert run["features"] == 2
        assert run["seconds"] > 0 and run["processors"] > 0
        assert table < run["read"] < 3 * table
        assert 5e7 < run["peak"] < 3e9
        # The workers read for themselves: what moves is the design and the answers.
        assert (run["moved"] == 0) if workers == 0 else (32 * 50_000 < run["moved"] < table)
