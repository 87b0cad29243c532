"""The truncated normal: against quadrature, reference values, closed forms and extremes."""

import numpy as np
import pytest
from scipy import integrate, stats

from kernsift.truncated import EVERYWHERE, confidence_interval, log_mass, log_survival


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
        assert np.exp(log_survival(value, pieces, 0.3, 1.4)) == pytest.approx(share, abs=error)


def test_survival_is_monotone_and_finite_for_huge_statistics():
    values = np.linspace(39.0, 300.0, 50)
    logs = [log_survival(v, np.array([[39.0, np.inf]])) for v in values]
    assert np.all(np.isfinite(logs))
    assert np.all(np.diff(logs) < 0)
    assert log_survival(1e6, EVERYWHERE) < -1e11


def test_interval_without_truncation_is_the_textbook_one():
    lower, upper = confidence_interval(1.3, EVERYWHERE, 2.0, level=0.9)
    assert (lower, upper) == pytest.approx(stats.norm.interval(0.9, 1.3, 2.0), abs=1e-8)


def test_interval_covers_after_truncation():
    """95% intervals for N(mu, 1) seen only above 1: coverage within 4 standard errors, the plain interval fails."""
    rng = np.random.default_rng(11)
    cut = np.array([[1.0, np.inf]])
    covered, plain, trials = 0, 0, 0
    for mean in (0.0, 1.0):
        draws = rng.normal(mean, 1.0, 4000)
        for value in draws[draws > 1.0][:400]:
            lower, upper = confidence_interval(value, cut, 1.0)
            covered += lower <= mean <= upper
            plain += abs(value - mean) <= 1.96
            trials += 1
    error = np.sqrt(0.95 * 0.05 / trials)
    assert abs(covered / trials - 0.95) < 4 * error
    assert abs(plain / trials - 0.95) > 4 * error


def test_interval_ends_may_be_infinite():
    lower, upper = confidence_interval(1.0 + 1e-7, np.array([[1.0, np.inf]]), 1.0)
    assert lower == -np.inf
    assert np.isfinite(upper)
