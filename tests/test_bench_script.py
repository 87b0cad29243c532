"""The script behind `make bench`: what it prints, records and reports. Times are made up where possible."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "benchmarks"
MODULES = (
    "bench",
    "gpu",
    "measure",
    "multiscale_error",
    "pages",
    "peers",
    "speed_cases",
    "speed_page",
    "speed_parts",
    "speed_rows",
)


@pytest.fixture
def script(monkeypatch):
    """Import a module of the folder by its plain name; all are forgotten again."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield importlib.import_module
    for name in MODULES:
        if name not in before:
            sys.modules.pop(name, None)


MACHINE = {"processor": "an abacus", "cores": 2, "system": "Linux", "python": "3.11.7", "numpy": "2.0", "scipy": "1.12"}


def made_up(script, seconds: float = 0.004, peak: float = 120.0, **machine: object) -> dict:
    """A run in which one call takes that long beside a yardstick of a millisecond."""
    Row = script("speed_rows").Row
    rows = [
        Row("calls", "compare", seconds, most_value=0.005, peak_mb=peak, yardsticks=seconds / 0.001),
        Row("calls", "relate", 2.0, against="hyppo Hsic", other=200.0, ratio=0.01, most_ratio=1 / 150, yardsticks=2e3),
        Row("growth", "complete, end to end", 1.05, "", most_value=1.1, note="10: 1 s, 100: 11 s"),
        Row("error", "worst feature", float("nan"), "", against="the authors'", ratio=1.25),
    ]
    return {
        "date": "2026-01-02",
        "version": "0.1.0",
        "commit": "abc",
        "machine": {**MACHINE, **machine},
        "rows": [row.as_dict() for row in rows],
        "left_out": [{"part": "calls", "name": "knockpy", "why": "not there"}],
    }


# --- measuring --------------------------------------------------------------------------------------------------------


def test_calls_take_turns_and_slow_ones_have_two(script, monkeypatch):
    measure = script("measure")
    order: list[str] = []
    calls = {name: (lambda name=name: order.append(name)) for name in "abc"}
    monkeypatch.setattr(measure, "_TURN", 0.0)  # no call is short
    times = measure.take_turns(calls, budget=0.0, least=4, slow=["c"])
    assert "".join(order[:6]) == "aabbcc"  # the warm-up
    assert "".join(order[6:]) == "abc" * 2 + "ab" * 2
    assert [len(times.turns[name]) for name in "abc"] == [4, 4, 2]


def test_a_short_call_counts_with_the_median_of_its_repetitions_in_a_turn(script, monkeypatch):
    measure = script("measure")
    seconds = iter([0.01, *[0.03, 0.01, 0.02, 0.01, 0.02], *[0.05, 0.01, 0.01, 0.01, 0.01]])
    monkeypatch.setattr(measure, "clock", lambda call: next(seconds) if call is short else 1.0)

    def short() -> None: ...

    times = measure.take_turns({"short": short, "long": lambda: None}, budget=0.0, least=2)
    assert times.turns["short"] == [0.02, 0.01]
    assert times.first["short"] == [0.03, 0.05]
    assert times.turns["long"] == times.first["long"] == [1.0, 1.0]


def test_a_ratio_is_the_median_over_turns(script):
    """One turn that somebody disturbed changes neither figure, and slow calls are compared in the turns they had."""
    times = script("measure").Times(
        {"own": [1.0, 2.0, 90.0, 4.0, 5.0], "other": [2.0, 4.0, 1.0, 8.0, 10.0], "slow": [4.0]}
    )
    assert times.ratio("own", "other") == 0.5
    assert times.ratio("own", "slow") == 0.25
    assert times.median("own") == 4.0


def test_an_exponent_is_found(script):
    sizes = np.array([1e3, 1e4, 1e5, 1e6])
    assert script("measure").slope(sizes, 3e-7 * sizes**1.3) == pytest.approx(1.3)


def test_threads_make_the_right_number_of_exp(script, monkeypatch):
    measure = script("measure")
    made = []
    real = np.exp
    monkeypatch.setattr(measure.np, "exp", lambda values, out: made.append(values.size) or real(values, out=out))
    measure.exp_in_cache(10 * measure.CACHED, 2)()
    assert sum(made) == 10 * measure.CACHED
    made.clear()
    measure.exp_in_memory(30, 7, 4, 2)()
    assert sum(made) == 4 * 30 * 7


def test_memory_at_the_peak_is_seen(script):
    """A temporary of 80 MB shows, though it is gone afterwards; and the count starts anew."""
    measure = script("measure")
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("this system cannot start the count of a process anew")
    # In a process of its own: of a large one the system may take back more than that meanwhile.
    program = """if True:
        import sys
        sys.path.insert(0, sys.argv[1])
        import measure, numpy as np
        before = measure.reset_peak_memory()
        np.ones(10_000_000).sum()
        assert measure.peak_memory() - before > 70
        assert measure.reset_peak_memory() - before < 70
    """
    subprocess.run([sys.executable, "-c", program, str(Path(measure.__file__).parent)], check=True)


def test_a_failing_child_says_why(script, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no room')\n")
    with pytest.raises(RuntimeError, match="no room"):
        script("measure").run_in_child(broken, {})


# --- rows and table ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"value": 0.004, "most_value": 0.005}, "reached"),
        ({"value": 0.006, "most_value": 0.005}, "MISSED"),
        ({"value": 9.0, "ratio": 1.6, "most_ratio": 1.5}, "MISSED"),
        ({"value": 9.0, "ratio": 0.0067, "most_ratio": 1 / 150}, "MISSED"),
        ({"value": 9.0, "ratio": 0.0066, "most_ratio": 1 / 150}, "reached"),
        ({"value": 9.0, "ratio": float("nan"), "most_ratio": 1.0}, "MISSED"),
        ({"value": 9.0}, ""),
    ],
)
def test_what_counts_as_reached(script, fields, verdict):
    assert script("speed_rows").Row("part", "name", **fields).verdict == verdict


def test_a_line_has_the_figure_the_ratio_and_the_goal(script):
    rows = script("speed_rows")
    row = rows.Row(
        "part", "relate", 1234.5, "MB", against="mutual_info", ratio=1 / 25817, most_ratio=1 / 150, peak_mb=1999.4
    )
    assert rows.line(row) == "relate: 1,234 MB, 1/25817 of mutual_info, ≤ 1/150 reached, 1,999 MB"
    assert rows.line(rows.Row("part", "compare", 0.0051)) == "compare: 5.1 ms"


def test_the_end_names_what_was_missed_and_what_is_missing(script):
    rows = script("speed_rows")
    run = made_up(script, seconds=0.008)
    text = rows.closing(
        [rows.Row.from_dict(row) for row in run["rows"]], [rows.LeftOut("others", "hyppo", "not there")]
    )
    assert "1 of 3 goals reached" in text
    assert "MISSED: calls | compare: 8.0 ms (≤ 5 ms)" in text
    assert "MISSED: calls | relate | hyppo Hsic: 1/100 (≤ 1/150)" in text
    assert "left out: others: hyppo: not there" in text


# --- the parts, on tiny data ------------------------------------------------------------------------------------------


@pytest.fixture
def plan(script, monkeypatch):
    """Tiny sizes, two turns, and children that are no processes."""
    parts, cases, measure = script("speed_parts"), script("speed_cases"), script("measure")
    monkeypatch.setattr(parts, "take_turns", lambda calls, **_: measure.take_turns(calls, budget=0.0, least=2, most=2))
    return parts.Plan(cases.child, budget=0.0, seeds=3, shrink=1e6)


def figures(script, plan, name):
    found = list(script("speed_parts").PARTS[name](plan))
    Row = script("speed_rows").Row
    return [row for row in found if isinstance(row, Row)], [row for row in found if not isinstance(row, Row)]


def test_scores_are_compared_with_both_kinds_of_exp(script, plan):
    rows, _ = figures(script, plan, "scores")
    alone = [row for row in rows if "NumPy alone" in row.name]
    assert len(alone) == 2 and all(row.most_ratio is None and row.ratio > 0 for row in alone)
    rows = [row for row in rows if row not in alone]
    compared = {(row.name, row.against) for row in rows}
    assert compared == {(f"incomplete {s}", f"exp {w}") for s in ("MMD", "HSIC") for w in ("in cache", "on arrays")}
    for row in rows:
        assert row.most_ratio == 1.5 and row.ratio > 0 and row.yardsticks > 0 and row.peak_mb is not None


def test_the_calls_and_their_goals(script, plan):
    rows, _ = figures(script, plan, "calls")
    goals = {row.name: row.most_value for row in rows if row.most_value}
    assert goals["compare incomplete + multiscale"] == 0.040
    assert goals["compare incomplete + exact"] == 0.005
    assert {row.other for row in rows if row.against == "authors' code"} == {115.0, 4.0, 174.0, 54.0}


def test_a_missing_package_is_left_out_with_a_reason(script, plan, monkeypatch):
    parts = script("speed_parts")
    real = importlib.import_module

    def without(name: str, *rest: object) -> object:
        if name in ("hyppo", "knockpy"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *rest)

    monkeypatch.setattr(parts.importlib, "import_module", without)
    rows, gone = figures(script, plan, "others")
    assert {row.against for row in rows} == {"", "scipy ks_2samp", "f_classif", "mutual_info"}
    assert {row.name for row in gone} == {"hyppo Dcorr + BH", "hyppo Hsic + BH", "knockoffs, q=0.1"}
    assert all("kernsift[bench]" in row.why for row in gone)


def test_float32_and_threads(script, plan):
    rows, _ = figures(script, plan, "precision")
    assert len(rows) == 4 and {row.against for row in rows} == {"float64"}
    rows, _ = figures(script, plan, "jobs")
    assert len(rows) == 5 and {row.against for row in rows} == {"n_jobs=1"}


def test_float32_data_is_float32(script):
    Case = script("speed_cases").Case
    for question in ("compare", "relate"):
        assert Case(question, 20, 12, dtype="float32").data()[0].dtype == np.float32


def test_large_tables_have_a_time_and_a_memory(script, plan):
    rows, _ = figures(script, plan, "large")
    assert len(rows) == 18
    assert [row.most_value for row in rows[:2]] == [2.0, 2000.0]
    assert sum(row.against == "with numba" for row in rows) == 2
    assert {row.unit for row in rows} == {"s", "MB"}


def test_growth_over_part_of_the_range_reaches_nothing(script):
    parts = script("speed_parts")
    sizes = [10, 100, 1000, 10_000]
    whole = list(parts._exponents("t", "cross", sizes, {"seconds": [1, 8, 90, 1000], "beyond_mb": 5.0}))
    assert [row.reached for row in whole] == [True, True]
    assert whole[0].value == pytest.approx(1.0)
    assert whole[1].value == pytest.approx(np.polyfit([2, 3, 4], np.log10([8, 90, 1000]), 1)[0])
    short, *rest = parts._exponents("t", "cross", sizes, {"seconds": [1, 8, 90], "beyond_mb": 5.0})
    assert "10" in short.why and [row.reached for row in rest] == [None, None]
    (nothing,) = parts._exponents("t", "cross", sizes, {"seconds": [1, 80], "beyond_mb": 5.0})
    assert "too long" in nothing.why


def test_growing_stops_where_patience_ends(script, monkeypatch):
    cases = script("speed_cases")
    sizes: list[int] = []
    monkeypatch.setattr(cases.Case, "prepare", lambda self, data: lambda: sizes.append(len(data[0])))
    monkeypatch.setattr(cases, "_median_seconds", lambda call: call() or sizes[-1] / 10)
    found = cases.growing(cases.Case("compare", 1, 3), "rows", [10, 100, 1000], patience=50.0)
    assert found["seconds"] == [1.0, 10.0]
    assert sizes == [10, 10, 100]  # the first is warmed up


# --- Monte Carlo error ------------------------------------------------------------------------------------------------


def test_the_authors_procedure_finds_the_p_value_of_a_half_space(script):
    """Two independent scores, the larger kept: the selected set is a half-space, whose distance to y is known."""
    error = script("multiscale_error")
    from scipy.stats import norm

    from kernsift.estimators.scores import DiagonalCovariance, Scores
    from kernsift.inference.selection_rules import TopK

    estimate = np.array([2.0, 1.2])
    scores = Scores(("a", "b"), estimate, DiagonalCovariance(np.ones(2)))
    seeds = 40
    found = np.array(
        [
            error.authors_pvalues(scores, TopK(1), np.array([0]), np.random.default_rng(s), 2_000)[0]
            for s in range(seeds)
        ]
    )
    distance = -(estimate[0] - estimate[1]) / np.sqrt(2)
    expected = norm.sf(2.0) / norm.sf(2.0 + distance)
    # The mean of 40 within four of its standard errors; a bias of the fit is far smaller, as the boundary is flat.
    assert abs(found.mean() - expected) < 4 * found.std(ddof=1) / np.sqrt(seeds)
    scatter = error.scatter(scores, TopK(1), 20, replicates=500)
    assert scatter.ours.shape == scatter.theirs.shape == (1,)
    # A twentieth of the replicates have 4.5 times the scatter. Twenty seeds know it to a factor of exp(0.23), so 2 is
    # 3.5 standard errors away.
    assert scatter.theirs[0] > 2 * scatter.ours[0] > 0


def test_scatter_of_all_and_of_small_p(script):
    error = script("multiscale_error")
    found = error.Scatter(
        np.array([3.0, 4.0, 0.0]), np.array([1.0, 8.0, 0.0]), np.array([0.05, 0.5, 1.0]), np.array([0.05, 0.6, 1.0])
    )
    assert found.overall(0.1) == (3.0, 1.0)
    assert found.overall()[0] == pytest.approx(np.sqrt(25 / 3))
    assert found.worst() == 3.0
    assert found.apart() == pytest.approx(0.1 / np.sqrt(3))


# --- comparison with the run on record --------------------------------------------------------------------------------


def test_a_slower_version_is_noticed(script):
    comparison, before = script("speed_rows").comparison, made_up(script, 0.004)
    same = comparison(made_up(script, 0.0049), before)
    assert "4 rows compared with 2026-01-02, 0.1.0 (abc): none is more than 25% slower" in same
    slower = comparison(made_up(script, 0.0052, numpy="3.0"), made_up(script, 0.004, numpy="2.0"))
    assert "1.30 times slower: calls | compare (4 to 5.2 yardsticks)" in slower
    assert "numpy 2.0 then" in slower and "relate" not in slower
    larger = comparison(made_up(script, 0.004, peak=240.0), before)
    assert "2.00 times larger: calls | compare (120 to 240 MB)" in larger


def test_a_slower_machine_is_not_a_slower_version(script):
    """Everything takes three times as long, the yardstick too."""
    before, now = made_up(script), made_up(script)
    for row in now["rows"]:
        row["value"] *= 3
    assert "none is more than 25% slower" in script("speed_rows").comparison(now, before)


def test_no_like_machine(script):
    for other in ({"processor": "another"}, {"cores": 64}):
        assert "no earlier run" in script("speed_rows").comparison(made_up(script), made_up(script, **other))


# --- the whole script -------------------------------------------------------------------------------------------------


@pytest.fixture
def bench(script, monkeypatch, tmp_path):
    """The script, with parts that cost nothing and files that are nobody's."""
    bench, parts = script("bench"), script("speed_parts")
    Row, LeftOut = script("speed_rows").Row, script("speed_rows").LeftOut
    monkeypatch.setattr(script("measure"), "machine", lambda: dict(MACHINE))
    speed = {"factor": 1.0}

    def part(name):
        def run(plan):
            yield Row(name, "a call", 0.004 * speed["factor"], most_value=0.005, yardsticks=4 * speed["factor"])
            yield Row(name, "nothing", float("nan"), "")
            yield LeftOut(name, "a peer", "not there")

        return run

    monkeypatch.setattr(parts, "PARTS", {name: part(name) for name in parts.PARTS})
    files = ["--on-record", str(tmp_path / "speed")]

    def run(*given: str, factor: float = 1.0) -> None:
        speed["factor"] = factor
        bench.main([*given, "--json", str(tmp_path / "run.json"), *files])

    return run


def test_a_run_prints_keeps_and_notices(bench, capsys, tmp_path):
    bench("calls", "--record")
    out = capsys.readouterr().out
    assert "4.0 ms" in out and "≤ 5 ms reached" in out and "left out: calls: a peer: not there" in out
    assert "no earlier run" in out
    run = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert run["rows"][0]["reached"] is True and run["rows"][1]["value"] is None
    assert run["machine"]["processor"] == "an abacus"
    assert json.loads((tmp_path / "speed" / "cpu.json").read_text(encoding="utf-8")) == run
    bench("calls", factor=2.0)
    out = capsys.readouterr().out
    assert "MISSED: calls | a call: 8.0 ms" in out
    assert "2.00 times slower: calls | a call" in out
    assert json.loads((tmp_path / "speed" / "cpu.json").read_text(encoding="utf-8")) == run  # not recorded


@pytest.mark.parametrize(
    ("flags", "there", "gone"),
    [
        ([], {"scores", "large"}, {"growth"}),
        (["--growth"], {"scores", "large", "growth"}, set()),
        (["--quick"], {"scores", "calls"}, {"large", "growth"}),
        (["jobs"], {"jobs"}, {"scores", "large", "growth"}),
    ],
)
def test_which_parts_run(bench, capsys, flags, there, gone):
    bench(*flags)
    done = {line[1:].partition(":")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("(")}
    assert there <= done and not gone & done


@pytest.mark.parametrize("wrong", [["growht"], ["calls", "--record", "--shrink", "9"]])
def test_what_makes_no_sense_is_refused(bench, capsys, wrong):
    with pytest.raises(SystemExit):
        bench(*wrong)
    assert "growht" in capsys.readouterr().err or "--record" in wrong


def test_a_part_that_fails_costs_only_itself(script, bench, capsys, monkeypatch):
    parts = script("speed_parts")

    def broken(plan):
        raise RuntimeError("out of memory")
        yield

    monkeypatch.setitem(parts.PARTS, "calls", broken)
    bench("calls", "start")
    out = capsys.readouterr().out
    assert "left out: calls: the rest of the part: out of memory" in out
    assert "1 of 1 goals reached" in out


def test_the_page(script, tmp_path):
    page, folder = tmp_path / "speed.md", tmp_path / "speed"
    script("bench").write_json(folder / "cpu.json", made_up(script, seconds=0.008))
    gpu = {
        **{name: made_up(script)[name] for name in ("date", "version", "commit")},
        "machine": {"device": "a card"},
        "checks": [{"name": "torch a", "agrees": True, "why": ""}, {"name": "torch b", "agrees": False, "why": "off"}],
        "ceilings": [{"name": "copy", "rate": 4.3, "unit": "TB/s"}],
        "calls": [
            {
                "name": "compare",
                "seconds": 2.0,
                "most": 1.6,
                "peak_gb": 3.0,
                "limits": [{"name": "input read once", "seconds": 0.003, "share": 0.0015}],
            }
        ],
    }
    (folder / "gpu.json").write_text(json.dumps(gpu), encoding="utf-8")
    script("speed_page").write_page(page, folder)
    text = page.read_text(encoding="utf-8")
    assert "input read once 0.003 s (0%)" in text
    assert "**1 of 3 goals are reached.**" in text
    assert "| compare | 8.0 ms |  |  |  | ≤ 5 ms | **MISSED** | 120 MB |" in text
    assert "- calls: knockpy: not there" in text
    assert "1 of 2 combinations" in text and "- torch b: off" in text and "| 2.000 | ≤ 1.6 | **MISSED** |" in text


def test_the_gpu_script_sees_a_wrong_answer(script):
    pytest.importorskip("torch", reason="the GPU script is written for torch")
    gpu = script("gpu")
    there = np.array([10.0, 1e-9, -5.0])
    assert gpu.disagreement(there.copy(), there) == 0.0
    assert gpu.disagreement(there * (1 + 1e-7), there) == pytest.approx(1e-7)
    assert gpu.disagreement(there + np.array([0, 1.0, 0]), there) > 0.1
    assert np.isnan(gpu.disagreement(np.array([np.nan, 0, 0]), there))
    asked = list(gpu.combinations())
    assert len(asked) == len(set(asked)) and {name for name, *_ in asked} == {"compare", "relate", "screen"}
