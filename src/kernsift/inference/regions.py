"""The paper's algorithm 1: the selective multiscale bootstrap for any hypothesis and any selection region."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtri

from kernsift.scaling import SCALES, ScalingFit, fit_scaling_law, mirrored
from kernsift.scores import DenseCovariance
from kernsift.tables import InputError

Indicator = Callable[[np.ndarray], np.ndarray]

_ROWS = 4096


@dataclass(frozen=True)
class RegionTest:
    """Outcome of `selective_bootstrap`.

    Attributes
    ----------
    pvalue : the selective p-value; `log_pvalue` is its logarithm.
    hypothesis, selection : fitted scaling laws of the two regions.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift import selective_bootstrap
    >>> found = selective_bootstrap(
    ...     np.array([2.0, 0.0]), np.eye(2), lambda y: y[:, 0] <= 0, lambda y: y[:, 0] >= 1, random_state=0
    ... )
    >>> found.selection.model
    ('linear',)
    """

    pvalue: float
    log_pvalue: float
    hypothesis: ScalingFit
    selection: ScalingFit


def selective_bootstrap(
    mean: np.ndarray,
    cov: np.ndarray,
    in_hypothesis: Indicator,
    in_selection: Indicator,
    *,
    replicates: int = 10_000,
    scales: np.ndarray | tuple[float, ...] = SCALES,
    model: str = "linear",
    random_state: int | np.random.Generator | None = None,
) -> RegionTest:
    """Test mu in H given that y in S was observed, for regions known only through indicator functions.

    Parameters
    ----------
    mean : the observed vector y, (d,), taken as normal with covariance `cov`.
    cov : (d, d) covariance.
    in_hypothesis, in_selection : functions of an (m, d) array that return m booleans.
    replicates : resampled vectors a scale.
    scales : values of gamma^2 = n / n'.
    model : scaling law, see `kernsift.scaling.fit_scaling_law`.
    random_state : seed or Generator.

    Returns
    -------
    RegionTest, with p = Phibar(phi_H(-1)) / Phibar(phi_H(-1) + phi_S(0)).

    Examples
    --------
    H is {first coordinate <= 0}, S is {first coordinate >= 1}: the p-value is Phibar(2) / Phibar(1) = 0.143.

    >>> import numpy as np
    >>> from kernsift import selective_bootstrap
    >>> outcome = selective_bootstrap(
    ...     np.array([2.0, 0.0]), np.eye(2), lambda y: y[:, 0] <= 0, lambda y: y[:, 0] >= 1, random_state=0
    ... )
    >>> bool(abs(outcome.pvalue - 0.143) < 0.02)
    True
    """
    mean, cov = np.asarray(mean, float), np.asarray(cov, float)
    if mean.ndim != 1 or cov.shape != (len(mean), len(mean)):
        raise InputError(f"cov: needs shape (d, d) with d = len(mean), got {cov.shape} for mean of shape {mean.shape}.")
    if not bool(np.asarray(in_selection(mean[None, :]))[0]):
        raise InputError("in_selection: must hold at mean, as only selected hypotheses are tested; it does not.")
    rng = np.random.default_rng(random_state)
    gamma2 = np.asarray(scales, float)
    hits = np.zeros((2, len(gamma2)))
    noise_source = DenseCovariance(cov)
    for start in range(0, replicates, _ROWS):
        noise = noise_source.sample(min(_ROWS, replicates - start), rng)
        for scale, gamma in enumerate(mirrored(gamma2)):
            sample = mean + gamma * noise
            hits[0, scale] += np.count_nonzero(in_hypothesis(sample))
            hits[1, scale] += np.count_nonzero(in_selection(sample))
    hypothesis, selection = (fit_scaling_law(row[None, :], replicates, gamma2, model) for row in hits)
    # A hypothesis no replicate reached has no law to fit; a flat boundary that gave half a hit at the widest scale is a
    # bound that claims no more than was simulated.
    out_of_reach = -np.sqrt(gamma2.max()) * ndtri(0.5 / replicates)
    z = hypothesis.at_minus_one[0] if hits[0].any() else out_of_reach
    distance = min(selection.at_zero[0], 0.0)
    log_pvalue = float(min(log_ndtr(-z) - log_ndtr(-(z + distance)), 0.0))
    return RegionTest(float(np.exp(log_pvalue)), log_pvalue, hypothesis, selection)
