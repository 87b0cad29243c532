"""The hard parts of the calibration study: levels, coverage, far p-values and seeds."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
if not BENCHMARKS.is_dir():
    pytest.skip("the benchmarks are not part of an installation", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

import calibrate  # noqa: E402
import calibrate_hard  # noqa: E402
import calibrate_hard_page  # noqa: E402
import exact_coverage  # noqa: E402
import far_tail  # noqa: E402
import interval_coverage  # noqa: E402
import level_settings  # noqa: E402

from kernsift.experiments.studies import read_rows  # noqa: E402

# --- the script -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "only"),
    [
        ("levels", "compare, 4 v 4, normal"),
        ("levels", "relate, t(2) response, n=40, counts"),
        ("levels", "compare, r=0.7, weak signal, d=2"),
        ("levels", "relate, wine, 40 rows"),
        ("coverage", "compare, 8 v 8, normal"),
        ("coverage", "relate, n=16, binary"),
    ],
)
def test_three_calls_of_each_part(tmp_path, capsys, part, only):
    folder = tmp_path / "calibration"
    arguments = [part, "--quick", "--workers", "1", "--folder", str(folder), "--only", only]
    assert calibrate.main(arguments) == 0
    lines = read_rows(folder / f"{part}.csv", calibrate_hard.Line)
    assert lines and {line.calls for line in lines} <= {3, 30}
    assert all(0 <= line.rate <= 1 for line in lines if line.counted)
    assert lines[0].setting in (tmp_path / "calibration.md").read_text(encoding="utf-8")
    # What is on record is not run again, and reads back as it was written.
    before = (folder / f"{part}.csv").read_bytes()
    capsys.readouterr()
    assert calibrate.main(arguments) == 0
    assert " | " not in capsys.readouterr().out
    assert (folder / f"{part}.csv").read_bytes() == before


def test_an_unknown_part_is_an_error(capsys):
    with pytest.raises(SystemExit):
        calibrate.main(["level"])
    assert "no such part: level; choose from grid, levels" in capsys.readouterr().err


def test_rates_have_the_standard_error_of_clusters_and_at_least_the_binomial_one():
    together = [(10, 10 * (call % 20 == 0), 0) for call in range(200)]
    rate, error = calibrate_hard.share_at(together, 1)
    assert rate == 0.05 and error == pytest.approx(np.sqrt(0.05 * 0.95 / 199))
    assert calibrate_hard.share_at([(100, 0, 0)] * 10, 1) == (0.0, pytest.approx(np.sqrt(0.05 * 0.95 / 1000)))
    assert all(np.isnan(calibrate_hard.share_at([(0, 0, 0)] * 3, 1)))


def _line(setting, cell, rate, error, counted=1000):
    return calibrate_hard.Line(setting, cell, 100, counted, int(rate * counted), rate, error, 0.01, 0.003, "2026-01-01")


def test_the_page_flags_what_is_off():
    setting = "compare, 6 v 6, normal"
    right, high = _line(setting, "", 0.064, 0.005), _line(setting, "", 0.066, 0.005)
    assert "none is above" in calibrate_hard_page.levels_summary([right])
    assert "1 are above 0.05" in calibrate_hard_page.levels_summary([high])
    cell = "compare, 8 v 8, normal"
    covers, misses = (_line(cell, "k=3, true", rate, 0.005) for rate in (0.93, 0.929))
    assert "Of 1 cells of the default estimator 0 are below" in calibrate_hard_page.coverage_summary([covers])
    assert "Of 1 cells of the default estimator 1 are below" in calibrate_hard_page.coverage_summary([misses])
    # Four intervals say nothing about a coverage of 0.95.
    assert not calibrate_hard_page.below(_line(cell, "k=3, true", 0.75, 0.25, counted=4))


def test_far_p_values_are_shown_as_a_ratio_to_the_level():
    line = calibrate_hard.Line(
        "compare, 50 v 50, normal", "1e-05", 2000, 1_000_000, 13, 1.3e-5, 0.0, 0.0, 0.0, "2026-01-01"
    )
    assert "1.30 ± 0.36" in calibrate_hard_page.tail_table([line])


def test_seeds_are_compared(tmp_path, monkeypatch):
    """P-values by seed, standard deviations of scores between seeds, and what one more row in each sample changes."""

    def fake(x, y, *, random_state, **settings):
        scores = np.full(20, 0.25 * random_state + (0.5 if len(x) == 8193 else 0.0))
        return SimpleNamespace(pvalues=np.array([0.5 / (random_state + 1)]), scores=scores)

    monkeypatch.setattr(calibrate_hard, "compare", fake)
    calibrate_hard.run_seeds(tmp_path, quick=True)
    lines = read_rows(tmp_path / "seeds.csv", calibrate_hard.SeedLine)
    by_name = {name: [line.value for line in lines if line.quantity == name] for name in {x.quantity for x in lines}}
    assert by_name[calibrate_hard.RARE] == [0.5, 0.25]
    np.testing.assert_allclose(by_name[calibrate_hard.SPREAD], [0.25 / np.sqrt(2)] * 20, rtol=1e-4)
    assert by_name[calibrate_hard.CROSSING] == [0.5] * 20
    assert "p = 0.25 to 0.5 for 2 seeds" in calibrate_hard_page.seeds_sentence(lines)


# --- settings ---------------------------------------------------------------------------------------------------------


def test_settings_are_those_asked_for():
    groups = {setting.group for setting in level_settings.SETTINGS.values()}
    assert groups == {"tiny", "sparse", "few values", "mates", "many rows", "real"}
    assert {(3, 3), (6, 6), (4, 12), (10, 60)} <= set(level_settings.SIZES)
    assert min(level_settings.NONZEROS) == 1 and max(level_settings.NONZEROS) == 15
    cells = [cell for cell in interval_coverage.CELLS.values() if cell.estimator == "complete"]
    assert len(cells) == 5 * 5 * 2 and len(interval_coverage.RULES) == 3


@pytest.mark.parametrize("kind", ["binary", "counts", "continuous"])
def test_sparse_columns_have_as_many_nonzeros_as_they_should(kind):
    x = level_settings.nonzeros(np.random.default_rng(0), 100, 7, 50, kind)
    assert ((x != 0).sum(axis=0) == 7).all()
    # Their rows are random: a row holds one in 7% of the columns, and not always the same row.
    assert (x != 0).any(axis=1).sum() > 50


def test_the_mate_of_a_signal_is_null_and_correlated():
    rng = np.random.default_rng(0)
    tables = [level_settings._mate_table(rng, 3, 0.9) for _ in range(50)]
    correlations = np.mean([np.corrcoef(x.T) for x in tables], axis=0)
    assert correlations[0, 1] == pytest.approx(0.9, abs=0.02)
    assert abs(correlations[0, 2]) < 0.06 and abs(correlations[1, 2]) < 0.06


@pytest.mark.parametrize("law", interval_coverage.LAWS)
def test_laws_differ_with_the_predictor_alone(law):
    rng = np.random.default_rng(1)
    draw = interval_coverage.LAWS[law]
    one, again, shifted = (draw(rng, np.full(4000, shift)) for shift in (0.0, 0.0, 1.0))
    assert stats.mannwhitneyu(one, again).pvalue > 1e-4
    assert stats.mannwhitneyu(one, shifted).pvalue < 1e-20


def test_binary_and_sparse_laws_have_the_stated_shares():
    rng = np.random.default_rng(2)
    zero, one = np.zeros(40_000), np.ones(40_000)
    for law, low, high in (("binary", 0.2, 0.5), ("5% nonzero", 0.05, 0.15)):
        for predictor, share in ((zero, low), (one, high)):
            found = (interval_coverage.LAWS[law](rng, predictor) > 0).mean()
            assert found == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 40_000))


def test_coverage_counts_true_and_null_intervals_apart(monkeypatch):
    cell = interval_coverage.Cell("normal", (8, 8), "compare")
    result = SimpleNamespace(
        selected=np.array([0, 1, 7, 8]), intervals=np.array([[0.1, 0.5], [0.4, 0.5], [0.0, 0.2], [0.01, 0.2]])
    )
    monkeypatch.setattr(interval_coverage.Cell, "call", lambda *given, **settings: result)
    monkeypatch.setattr(interval_coverage, "target", lambda cell: 0.3)
    found = interval_coverage.covered(cell, "k=3", np.random.default_rng(0))
    assert found == {"true": (1, 2), "null": (1, 2)}


def test_permuted_copies_have_the_values_of_the_column(monkeypatch):
    seen = []

    def pvalues(rng, x):
        seen.append(x)
        return np.repeat([1e-6, 5e-4, 0.5], [2, 3, x.shape[1] - 5])

    column = far_tail.Column(lambda rng: np.arange(10.0), pvalues)
    monkeypatch.setattr(far_tail, "COLUMNS", {"ten": column})
    assert far_tail.below("ten", 0) == [5, 2, 2]
    assert (np.sort(seen[0], axis=0) == np.arange(10.0)[:, None]).all()
    assert len(np.unique(seen[0], axis=1).T) > 400


# --- exact intervals --------------------------------------------------------------------------------------------------


def test_pvalues_of_two_proportions_are_those_of_scipy():
    """In samples of equal size the order by distance is that by probability."""
    found = exact_coverage.fisher(6, 6)
    expected = [[stats.fisher_exact([[a, 6 - a], [b, 6 - b]]).pvalue for b in range(7)] for a in range(7)]
    np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.parametrize("selected", [False, True])
@pytest.mark.parametrize(("n", "m"), [(8, 8), (5, 12)])
def test_exact_intervals_have_their_level(n, m, selected):
    shares = [(0.1, 0.1), (0.05, 0.3), (0.3, 0.05), (0.2, 0.6), (0.1, 0.9)]
    assert min(exact_coverage.exact_coverage(n, m, pair, selected=selected) for pair in shares) >= 0.95 - 1e-9


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_exact_intervals_without_an_effect_by_hand(share):
    """With 8 v 8 rows a p-value is at most 0.05 where one sample has at least five ones more than the other."""
    mass = stats.binom.pmf(np.arange(9), 8, share)
    gap = np.abs(np.subtract.outer(np.arange(9), np.arange(9)))
    expected = 1.0 - np.outer(mass, mass)[gap >= 5].sum()
    assert exact_coverage.exact_coverage(8, 8, (share, share), selected=False) == pytest.approx(expected, abs=1e-12)
