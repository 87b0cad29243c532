"""The paper's algorithm 1: the selective multiscale bootstrap for any hypothesis and any selection region."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_ndtr, ndtri

from kernsift.estimators.scores import Covariance
from kernsift.inference.scaling_law import ScalingFit, fit_scaling_law, mirrored

Indicator = Callable[[np.ndarray], np.ndarray]

# Replicates that are simulated at a time.
_ROWS = 4096
# The share of replicates that must cross a region's boundary at the widest scale before its scaling law is fitted, and
# the most doublings of the scales to reach it.
_REACHED = 0.01
_DOUBLINGS = 40


@dataclass(frozen=True)
class RegionTest:
    """Outcome of `selective_bootstrap`.

    Attributes
    ----------
    pvalue : float
        The selective p-value, at least the smallest normal number.
    log_pvalue : float
        Its natural logarithm.
    hypothesis, selection : ScalingFit
        Fitted scaling laws of the two regions.

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


def region_test(
    mean: np.ndarray,
    cov: Covariance,
    in_hypothesis: Indicator,
    in_selection: Indicator,
    replicates: int,
    scales: np.ndarray,
    model: str,
    rng: np.random.Generator,
) -> RegionTest:
    """The test of `selective_bootstrap`, with these arguments."""
    simulation = _Simulation(mean, cov, replicates, rng)
    hypothesis, selection = simulation.laws((in_hypothesis, in_selection), scales, model)
    # A hypothesis that no replicate reaches at any scale has no law to fit. A flat boundary with half an expected hit
    # at the widest of the given scales is a bound that the simulation supports.
    out_of_reach = -np.sqrt(np.max(scales)) * ndtri(0.5 / replicates)
    z = out_of_reach if np.isposinf(hypothesis.psi).all() else hypothesis.at_minus_one[0]
    distance = min(selection.at_zero[0], 0.0)
    log_pvalue = float(min(log_ndtr(-z) - log_ndtr(-(z + distance)), 0.0))
    pvalue = float(np.exp(max(log_pvalue, np.log(np.finfo(float).tiny))))
    return RegionTest(pvalue, log_pvalue, hypothesis, selection)


@dataclass(frozen=True)
class _Simulation:
    """Replicates of `mean` with normal noise."""

    mean: np.ndarray
    source: Covariance
    replicates: int
    rng: np.random.Generator

    def laws(self, regions: tuple[Indicator, ...], gamma2: np.ndarray, model: str) -> list[ScalingFit]:
        """The scaling law of each region.

        Probabilities within simulation error of 0 or 1 at all scales do not determine the distance of the boundary.
        Such a region is simulated again at scales multiplied by a power of 2, at which replicates cross its boundary;
        the law is a function of the scale, so that it is extrapolated to 0 and -1 as before.
        """
        laws = []
        for region, hits in zip(regions, self._hits(regions, gamma2), strict=True):
            stretch = self._stretch(region, hits[np.argmax(gamma2)], gamma2.max())
            if stretch > 1.0:
                [hits] = self._hits((region,), gamma2 * stretch**2)
            laws.append(_stretched(fit_scaling_law(hits[None, :], self.replicates, gamma2, model), stretch))
        return laws

    def _hits(self, regions: tuple[Indicator, ...], gamma2: np.ndarray) -> np.ndarray:
        """How many replicates lie in each region at each scale."""
        hits = np.zeros((len(regions), len(gamma2)))
        for start in range(0, self.replicates, _ROWS):
            noise = self.source.sample(min(_ROWS, self.replicates - start), self.rng)
            for scale, gamma in enumerate(mirrored(gamma2)):
                sample = self.mean + gamma * noise
                for place, region in enumerate(regions):
                    hits[place, scale] += np.count_nonzero(region(sample))
        return hits

    def _stretch(self, region: Indicator, widest: float, gamma2: float) -> float:
        """The power of 2 at which enough replicates cross the boundary of a region, or the one where most do."""
        most, best = min(widest, self.replicates - widest) / self.replicates, 1.0
        if most >= _REACHED:
            return best
        noise = np.sqrt(gamma2) * self.source.sample(min(_ROWS, self.replicates), self.rng)
        for stretch in 2.0 ** np.arange(1, _DOUBLINGS + 1):
            share = np.count_nonzero(region(self.mean + stretch * noise)) / len(noise)
            if min(share, 1.0 - share) > most:
                most, best = min(share, 1.0 - share), float(stretch)
            if most >= _REACHED:
                break
        return best


def _stretched(fit: ScalingFit, stretch: float) -> ScalingFit:
    """A law that was fitted in units of `stretch` standard deviations, where -1 is at -1 / stretch^2."""
    if stretch == 1.0:
        return fit
    part = stretch**-2
    return replace(
        fit,
        gamma2=fit.gamma2 * stretch**2,
        psi=fit.psi * stretch,
        at_zero=fit.at_zero * stretch,
        at_minus_one=((1.0 - part) * fit.at_zero + part * fit.at_minus_one) * stretch,
        curve=fit.curve * stretch,
    )
