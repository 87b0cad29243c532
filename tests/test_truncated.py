"""The truncated normal: against quadrature, reference values, closed forms and extremes."""

import numpy as np
import pytest
from scipy import integrate, stats

from kernsift.distributions.truncated_normal import EVERYWHERE, confidence_intervals, log_mass, log_survivals


@pytest.mark.parametrize(
    ("lower", "upper"),
    [(-1, 2), (0.5, 0.6), (-3, -2), (5, 6), (-0.2, 0), (0, 0.3), (-8, 8), (-np.inf, -4), (3, np.inf)],
)
def test_mass_equals_quadrature(lower, upper):
    expected = integrate.quad(stats.norm.pdf, lower, upper, epsabs=0, epsrel=1e-12)[0]
    assert np.exp(log_mass(lower, upper)) == pytest.approx(expected, rel=1e-9)


# Reference values from mpmath, 60 digits: log(ncdf(-a) - ncdf(-b)).
@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        (40.0, 41.0, -804.6084420137538),
        (40.0, np.inf, -804.6084420137538),
        (10.0, 10.0 + 2.0**-30, -71.7133539546596),
        (-41.0, -40.0, -804.6084420137538),
        (200.0, 200.1, -20006.21728090024),
    ],
)
def test_mass_in_the_far_tail(lower, upper, expected):
    assert float(log_mass(lower, upper)) == pytest.approx(expected, rel=1e-9)


def test_mass_of_slivers_is_continuous_across_the_switch():
    starts = np.array([0.0, 1.0, 10.0, 35.0])[:, None]
    widths = np.geomspace(1e-9, 1e-4, 60)
    mass = log_mass(starts, starts + widths) - np.log(widths) + 0.5 * (starts + widths / 2) ** 2
    assert np.abs(mass + 0.5 * np.log(2 * np.pi)).max() < 1e-5


def test_empty_interval_has_no_mass():
    assert log_mass(2.0, 2.0) == -np.inf
    assert log_mass(2.0, 1.0) == -np.inf


def test_survival_over_a_union_matches_rejection_sampling():
    rng = np.random.default_rng(3)
    pieces = np.array([[-2.0, -1.0], [0.5, 0.8], [1.5, np.inf]])
    draws = rng.normal(0.3, 1.4, 400_000)
    kept = draws[((draws[:, None] > pieces[:, 0]) & (draws[:, None] < pieces[:, 1])).any(axis=1)]
    for value in (-1.5, 0.6, 2.0):
        share = (kept > value).mean()
        error = 4 * np.sqrt(share * (1 - share) / len(kept))
        assert np.exp(log_survivals(np.array([value - 0.3]), [pieces - 0.3], np.array([1.4]))[0]) == pytest.approx(
            share, abs=error
        )


def test_survival_is_monotone_and_finite_for_huge_statistics():
    values = np.linspace(39.0, 300.0, 50)
    logs = log_survivals(values, [np.array([[39.0, np.inf]])] * len(values), np.ones(len(values)))
    assert np.all(np.isfinite(logs))
    assert np.all(np.diff(logs) < 0)
    assert log_survivals(np.array([1e6]), [EVERYWHERE], np.ones(1))[0] < -1e11


def intervals(values, union, level=0.95, **options):
    values = np.asarray(values, float)
    return confidence_intervals(values, [union] * len(values), np.ones(len(values)), level=level, **options)


def test_interval_far_from_zero_is_the_textbook_one():
    assert intervals([30.0], EVERYWHERE, level=0.9)[0] == pytest.approx(stats.norm.interval(0.9, 30.0), abs=1e-6)


def test_interval_leaves_out_zero_exactly_when_the_one_sided_test_rejects():
    values = np.linspace(-2.0, 4.0, 200)
    for union in (EVERYWHERE, np.array([[-3.0, -1.0], [-0.5, np.inf]])):
        inside = values[((values[:, None] > union[:, 0]) & (values[:, None] < union[:, 1])).any(axis=1)]
        low, high = intervals(inside, union).T
        pvalues = np.exp(log_survivals(inside, [union] * len(inside), np.ones(len(inside))))
        assert ((low > 0) == (pvalues < 0.05)).all()
        assert (high > low).all()


@pytest.mark.parametrize("mean", [0.0, 0.5, 1.5, 4.0])
def test_intervals_cover_after_truncation(mean):
    """95% intervals for N(mu, 1) seen only above 1 cover within 4 standard errors; the plain one fails at 0."""
    rng = np.random.default_rng(11)
    draws = rng.normal(mean, 1.0, 40_000)
    seen = draws[draws > 1.0][:4000]
    low, high = intervals(seen, np.array([[1.0, np.inf]])).T
    error = np.sqrt(0.95 * 0.05 / len(seen))
    assert abs(((low <= mean) & (mean <= high)).mean() - 0.95) < 4 * error
    if mean == 0.0:
        assert abs((np.abs(seen - mean) <= 1.96).mean() - 0.95) > 4 * error


def test_spread_that_grows_with_the_mean_widens_the_interval_away_from_zero():
    values = np.array([8.0])
    plain = intervals(values, EVERYWHERE)[0]
    wide = intervals(values, EVERYWHERE, spread=np.array([2.0]))[0]
    assert wide[0] < plain[0] < plain[1] < wide[1]
    # A value at the edge of significance keeps its verdict: at mean 0 the deviation is still 1.
    assert intervals([1.6], EVERYWHERE, spread=np.array([3.0]))[0, 0] == 0


def test_interval_ends_for_a_value_right_at_its_cut():
    low, high = intervals([1.0 + 1e-7], np.array([[1.0, np.inf]]))[0]
    assert low == 0
    assert 0 < high < 1


def test_a_value_at_the_top_of_all_it_could_be_has_infinite_ends():
    """However large the mean, nothing lies beyond the value; other intervals stay what they are."""
    unions = [np.array([[0.0, 2.0]]), EVERYWHERE]
    [top, plain] = confidence_intervals(np.array([2.0, 1.0]), unions, np.ones(2))
    assert top.tolist() == [np.inf, np.inf]
    [alone] = confidence_intervals(np.array([1.0]), [EVERYWHERE], np.ones(1))
    assert plain == pytest.approx(alone, abs=1e-9)
