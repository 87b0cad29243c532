"""The scaling law: recovered from its own probabilities, and from regions with known geometry."""

import numpy as np
import pytest
from scipy.special import ndtr

from kernsift.inference.scaling_law import MODELS, SCALES, _fit, fit_scaling_law, mirrored

GAMMA2 = np.array(SCALES)


def expected_hits(psi, total):
    return ndtr(-psi / np.sqrt(GAMMA2)) * total


def test_the_ten_scales_are_the_papers():
    assert len(SCALES) == 10
    assert sorted([SCALES[0], SCALES[-1]]) == pytest.approx([0.5, 2.0])
    assert np.ptp(np.diff(np.log(SCALES))) < 1e-12


def test_signs_of_the_scales_are_balanced_along_the_line():
    """Half of the weight that the intercept of a line gives to the scales goes to each sign."""
    assert mirrored(np.array([1.0, 1.0, 4.0, 4.0, 9.0, 9.0])).tolist() == [1, -1, -2, 2, 3, -3]
    gamma = mirrored(GAMMA2)
    assert np.abs(gamma) == pytest.approx(np.sqrt(GAMMA2))
    weights = np.linalg.pinv(np.column_stack([np.ones_like(GAMMA2), GAMMA2]))[0]
    assert weights[gamma > 0].sum() == pytest.approx(0.5, abs=0.1)


def test_linear_law_is_recovered():
    hits = np.array([expected_hits(b0 + b1 * GAMMA2, 1e9) for b0, b1 in [(-1, 0.3), (0.5, -0.2), (2, 0.1), (-3, 0.0)]])
    fit = fit_scaling_law(hits, 10**9, GAMMA2)
    assert fit.at_zero == pytest.approx([-1, 0.5, 2, -3], abs=1e-5)
    assert fit.at_minus_one == pytest.approx([-1.3, 0.7, 1.9, -3], abs=1e-5)
    assert fit.psi[0] == pytest.approx(-1 + 0.3 * GAMMA2, abs=1e-6)


def test_aic_finds_the_model_that_made_the_data():
    gamma = np.sqrt(GAMMA2)
    laws = {
        "constant": np.full_like(GAMMA2, -1.2),
        "linear": -1.2 + 0.4 * GAMMA2,
        "quadratic": -1.2 + 1.0 * GAMMA2 - 0.5 * GAMMA2**2,
        "singular": -1.2 + 1.5 * GAMMA2 / (1 + 0.85 * (gamma - 1)),
    }
    hits = np.array([expected_hits(psi, 10**8) for psi in laws.values()])
    fit = fit_scaling_law(hits, 10**8, GAMMA2, "aic")
    assert fit.model == tuple(laws)
    assert fit.at_zero == pytest.approx([-1.2] * 4, abs=1e-3)
    assert fit.at_minus_one[2] == pytest.approx(-1.2 - 1.0 - 0.5, abs=1e-2)
    # The fitted curve passes through the law at every scale.
    assert fit.curve == pytest.approx(np.array(list(laws.values())), abs=1e-3)


def test_akaike_counts_every_parameter():
    """So that of two laws that fit alike the smaller one is taken, and the singular one counts its bend."""
    hits = expected_hits(np.array([[-1.2], [0.4]]) + 0.3 * GAMMA2, 1000)
    assert [_fit(name, hits, 1000, GAMMA2)[0].parameters for name in MODELS[:-1]] == [2, 1, 3, 3]
    assert fit_scaling_law(hits, 1000, GAMMA2, "aic").model == ("linear", "linear")


def test_singular_taylor_matches_finite_differences():
    """psi(-1) of the singular law is its second-order Taylor polynomial at gamma^2 = 1."""
    gamma, bend = np.sqrt(GAMMA2), 0.45
    fit = fit_scaling_law(
        expected_hits(-1 + 0.8 * GAMMA2 / (1 + bend * (gamma - 1)), 10**9)[None, :], 10**9, GAMMA2, "singular"
    )

    def law(v):
        return -1 + 0.8 * v / (1 + bend * (np.sqrt(v) - 1))

    step = 1e-4
    slope = (law(1 + step) - law(1 - step)) / (2 * step)
    second = (law(1 + step) - 2 * law(1.0) + law(1 - step)) / step**2
    assert fit.at_minus_one[0] == pytest.approx(law(1.0) - 2 * slope + 2 * second, abs=2e-3)


def test_zeros_and_ones_are_kept_and_finite():
    total = 10_000
    hits = np.array([[total] * 10, [0] * 10, [total] * 9 + [total - 1], [total] * 5 + [total - 3] * 5, [0] * 9 + [2]])
    for model in ("linear", "aic", "quadratic", "singular", "constant"):
        fit = fit_scaling_law(hits, total, GAMMA2[::-1], model)
        assert fit.at_zero[0] == -np.inf
        assert fit.at_zero[1] == np.inf
        assert np.all(np.isfinite(fit.at_zero[2:]))
        assert np.all(fit.at_zero[2:4] < -2)


def test_curved_region_gives_distance_and_curvature():
    """A ball of radius r in m dimensions, seen from inside: distance to its surface, read at gamma^2 = 0."""
    from scipy.stats import ncx2

    dims, radius, offset = 3, 6.0, 5.0
    hits = ncx2.cdf(radius**2 / GAMMA2, dims, offset**2 / GAMMA2) * 1e8
    fit = fit_scaling_law(hits[None, :], 10**8, GAMMA2)
    assert fit.at_zero[0] == pytest.approx(offset - radius, abs=0.02)
    slope = fit.at_zero[0] - fit.at_minus_one[0]
    assert slope == pytest.approx((dims - 1) / (2 * radius), rel=0.2)
