"""The script behind docs/power.md: every part runs, resumes and renders, and the other tests are what they claim."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"

pytest.importorskip("threadpoolctl")

_MODULES = (
    "pages", "power", "power_figures", "power_page", "regret", "regret_page", "real_columns", "shapes", "peer_pvalues",
    "peers", "problems", "category_shapes",
)  # fmt: skip


@pytest.fixture
def power(monkeypatch):
    """The script as a module; its siblings have plain names, so they are forgotten again."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    import peer_pvalues
    import power

    monkeypatch.setattr(peer_pvalues, "_MI_PERMUTATIONS", 99)
    yield power
    for name in _MODULES:
        if name not in before:
            sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("part", "only"),
    [
        ("regret", "line: a x + normal, n=60"),
        ("regret", "modes: normal around -a and a, n=60"),
        ("levels", "Cauchy"),
        ("categories", "new level, 5 others, n=60"),
        ("categories", "numbers: mean of a rare level of 5, n=60"),
        ("categories", "classes: mean of a rare class of 3, n=60"),
        ("real", "iris"),
        ("real", "diabetes"),
        ("bh", "two modes"),
        ("peers", "two modes, n=100 KS"),
        ("peers", "two modes, n=100 f_classif"),
        ("peers", "two modes, n=100 mutual"),
        ("peers", "two modes, n=100 Multi"),
    ],
)
def test_two_trials_of_each_part(power, tmp_path, capsys, part, only):
    folder = tmp_path / "power"
    arguments = [part, "page", "--trials", "2", "--workers", "1", "--folder", str(folder), "--only", only]
    power.main(arguments)
    assert "| " in capsys.readouterr().out
    lines = power.Record(part, folder).lines
    assert lines
    for line in lines:
        assert only in f"{line.row} {line.method}"
        assert line.mean >= 0 or line.quantity.startswith("lead")
    assert "# How much power" in (tmp_path / "power.md").read_text(encoding="utf-8")
    arguments.remove("page")
    power.main(arguments)  # everything is on record: nothing is measured again
    assert " | " not in capsys.readouterr().out


def test_the_whole_page_from_two_lines_a_part(power, tmp_path):
    folder = tmp_path / "power"
    for part in power.PARTS:
        names = {
            "regret": ("power",),
            "levels": ("power",),
            "categories": ("power",),
            "real": ("found", "fdr"),
        }.get(part, ("tpr", "fdr", "seconds"))
        record = power.Record(part, folder)
        for cell in power.cells_of(part, 2):
            record.put(cell, dict.fromkeys(names, (0.5, 0.1, 2)))
    power.main(["page", "--folder", str(folder)])
    page = (tmp_path / "power.md").read_text(encoding="utf-8")
    for name in ("regret", "bh"):
        assert f"power/{name}.png" in page
        assert (folder / f"{name}.png").stat().st_size > 10_000


def test_quick_runs_ten_trials_and_absent_data_sets_are_named(power, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("KERNSIFT_DATA", raising=False)
    folder = tmp_path / "power"
    power.main(["real", "--quick", "--workers", "1", "--folder", str(folder), "--only", "iris"])
    assert "divorce is left out: divorce.csv is not in the folder that KERNSIFT_DATA names" in capsys.readouterr().out
    assert {line.trials for line in power.Record("real", folder).lines} == {10}


def test_seeds_depend_on_row_and_trial_alone(power, monkeypatch):
    one, two = (power.Cell("bh", "two modes, n=100", method, 2) for method in ("kernsift, k=None", "kernsift, k=30"))
    again = [power.one_trial(one, 1)["tpr"] for _ in range(2)]
    assert again[0] == again[1]
    seen = []
    problem = power.PROBLEMS["two modes, n=100"]
    for cell in (one, two):
        monkeypatch.setattr(power, "bh_trial", lambda p, m, rng, seed: seen.append((p.draw(rng)[0], seed)) or {})
        power.one_trial(cell, 1)
    assert problem.question == "compare"
    np.testing.assert_array_equal(seen[0][0], seen[1][0])
    assert seen[0][1] == seen[1][1]


def test_means_and_their_errors(power):
    mean, error, counted = power.summary([{"x": 1.0}, {"x": 0.0}, {"x": 0.0}, {"x": 1.0}])["x"]
    assert (mean, error, counted) == (0.5, 0.25, 4)
    assert np.isnan(power.summary([{"x": 1.0}])["x"][1])


def test_regret_is_the_best_other_power_less_our_own(power, tmp_path):
    import regret_page
    from power_figures import Figures

    record = power.Record("regret", tmp_path)
    row = "numeric: line: a x + normal, n=200"
    for method, value in (("kernsift", 0.5), ("Pearson", 0.8), ("Dcorr", 0.7), ("MGC", 0.95)):
        record.put(power.Cell("regret", row, method, 400), {"power": (value, 0.02, 400)})
    [found] = regret_page.rows_of(Figures(tmp_path / "regret.csv"))
    # MGC has too few trials to be the best by more than chance.
    assert (found.best, found.regret) == ("Pearson", pytest.approx(0.3))


# --- the shapes and the other tests -----------------------------------------------------------------------------------


def test_shapes_are_those_of_the_study(power):
    from shapes import NUMERIC, ROWS, SAMPLES, SHAPES

    assert len(NUMERIC) >= 10 and len(SAMPLES) >= 10 and len(SHAPES) == len(NUMERIC) + len(SAMPLES)
    # The constants of the first study of a numeric response at n = 200.
    known = {"line": 0.2, "line, heavy tails": 0.25, "exponential": 0.12, "square": 0.18, "wave": 0.45, "spread": 0.25}
    amplitudes = {shape.name.partition(":")[0]: shape.amplitudes for shape in NUMERIC}
    assert {name: amplitudes[name][200] for name in known} == known
    for shape in SHAPES.values():
        assert tuple(shape.amplitudes) == ROWS
        x, y = shape.draw(np.random.default_rng(0), 60, 3)
        assert x.shape == ((60, 3) if shape.question == "numeric" else (120, 3)) and len(y) == len(x)
        assert np.isfinite(x).all() and np.isfinite(y).all()


def test_vectorised_tests_agree_with_scipy(power):
    import peer_pvalues
    from shapes import SHAPES

    x, y = numeric = SHAPES["numeric: line: a x + normal"].draw(np.random.default_rng(1), 60, 4)
    expected = [stats.spearmanr(x[:, j], y[:, j]).pvalue for j in range(4)]
    np.testing.assert_allclose(peer_pvalues.spearman(numeric), expected, rtol=1e-10)
    x, labels = samples = SHAPES["samples: spread: exp(a) normal"].draw(np.random.default_rng(2), 60, 4)
    expected = [stats.levene(x[labels == 0, j], x[labels == 1, j]).pvalue for j in range(4)]
    np.testing.assert_allclose(peer_pvalues.levene(samples), expected, rtol=1e-10)


@pytest.mark.parametrize("key", ["numeric: line: a x + normal", "samples: shift: normal + a"])
def test_distance_correlation_is_that_of_u_centred_matrices(power, key):
    """The definition of Szekely and Rizzo, in double precision."""
    import peer_pvalues
    from shapes import SHAPES

    def centred(values):
        a = np.abs(values[:, None] - values[None, :]).astype(float)
        n = len(a)
        a = a - a.sum(0) / (n - 2) - a.sum(1)[:, None] / (n - 2) + a.sum() / ((n - 1) * (n - 2))
        np.fill_diagonal(a, 0.0)
        return a

    trials = SHAPES[key].draw(np.random.default_rng(3), 60, 5)
    expected = []
    for x, y in peer_pvalues._pairs(trials):
        a, b = centred(x), centred(y)
        expected.append(stats.chi2.sf(len(x) * (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()) + 1, 1))
    np.testing.assert_allclose(peer_pvalues.dcorr(trials), expected, rtol=2e-3)


@pytest.mark.parametrize("key", ["numeric: line: a x + normal", "samples: shift: normal + a"])
def test_distance_correlation_is_that_of_hyppo(power, key):
    independence = pytest.importorskip("hyppo.independence")
    import peer_pvalues
    from shapes import SHAPES

    trials = SHAPES[key].draw(np.random.default_rng(3), 60, 5)
    pairs = peer_pvalues._pairs(trials)
    expected = [independence.Dcorr().test(x[:, None], 1.0 * y[:, None], auto=True)[1] for x, y in pairs]
    np.testing.assert_allclose(peer_pvalues.dcorr(trials), expected, rtol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "zeros, a more of them",
        pytest.param("Cauchy shift: Cauchy + a", marks=pytest.mark.nightly),
        pytest.param("counts: Poisson(2 + 2a)", marks=pytest.mark.nightly),
    ],
)
def test_other_tests_keep_their_level(power, name):
    """A test that rejects too often has no power to compare with: 400 nulls, four standard errors."""
    import peer_pvalues
    import regret

    trials = regret.draw(f"samples: {name}", 60, 400, null=True)
    for peer in peer_pvalues.PEERS["samples"].values():
        assert (peer(trials) <= 0.05).mean() <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 400)


def test_shuffled_columns_are_null_and_real_ones_stay(power):
    import real_columns

    name = "iris, versicolor and virginica"
    x, y, real = real_columns.draw(name, np.random.default_rng(0))
    assert real.sum() == 4 and x.shape == (80, 64) and y.sum() == 40
    # Shuffled columns have the values of a real column in another order.
    for column in x[:, ~real].T[:5]:
        assert any(np.array_equal(np.sort(column), np.sort(own)) for own in x[:, real].T)
    figures = real_columns.found(name, "F (t) test", np.random.default_rng(1))
    assert figures["found"] >= 0.5 and figures["fdr"] < 0.5
    own = real_columns.found(name, "kernsift", np.random.default_rng(1))
    assert figures["lead"] == figures["found"] - own["found"] == figures["lead, exact"]  # no column has two values
