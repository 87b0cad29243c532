"""The scaling law of bootstrap probabilities, fitted and extrapolated.

At scale gamma a region R has bootstrap probability BP = 1 - Phi(psi(gamma^2) / gamma), where psi, the normalised
z-value, is smooth in gamma^2: psi = beta_0 + beta_1 gamma^2 + ..., with beta_0 the signed distance to the boundary of R
and beta_1 its mean curvature (Shimodaira 2008; the paper, section 2). psi is fitted at scales that can be simulated and
extrapolated to gamma^2 = 0 or -1.

The fit maximises a binomial likelihood (probit), which uses probabilities of exactly 0 or 1; least squares on psi would
have to drop them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtri

# The scales of the paper: n' from 0.5 n to 2 n, ten of them in log space; gamma^2 = n / n'.
SCALES = tuple(1.0 / np.geomspace(0.5, 2.0, 10))

MODELS = ("linear", "constant", "quadratic", "singular", "aic")

# Steps of Newton's method. Each is at most 2 long, so that these reach any z-value that is not clipped, up to 37.
_NEWTON_STEPS = 50
# Curvatures are of order 1; a standard normal prior on them keeps fits finite when almost every replicate hits, and has
# no noticeable effect with 10,000 replicates.
_CURVATURE_PRECISION = 1.0


@dataclass(frozen=True)
class ScalingFit:
    """Fitted scaling laws of several regions.

    Attributes
    ----------
    gamma2 : ndarray of shape (s,)
        The scales.
    psi : ndarray of shape (regions, s)
        Observed normalised z-values; infinite where a probability was 0 or 1.
    at_zero, at_minus_one : ndarray of shape (regions,)
        The fitted psi at gamma^2 = 0 and at -1.
    model : tuple of str
        Name of the model of each region.
    curve : ndarray of shape (regions, s)
        Fitted psi at `gamma2`, for plots.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.stats import norm
    >>> gamma2 = np.array([0.5, 1.0, 2.0])
    >>> hits = 10_000 * norm.sf(1.0 / np.sqrt(gamma2))  # of a half-plane at distance 1
    >>> fit_scaling_law(hits[None, :], 10_000, gamma2).at_zero.round(2)
    array([1.])
    """

    gamma2: np.ndarray
    psi: np.ndarray
    at_zero: np.ndarray
    at_minus_one: np.ndarray
    model: tuple[str, ...]
    curve: np.ndarray


class _Candidate(NamedTuple):
    """One model fitted to all regions."""

    name: str
    parameters: int
    log_likelihood: np.ndarray
    at_zero: np.ndarray
    at_minus_one: np.ndarray
    curve: np.ndarray


def fit_scaling_law(hits: np.ndarray, replicates: int, gamma2: np.ndarray, model: str = "linear") -> ScalingFit:
    """Fit psi to hit counts (regions, scales) out of `replicates` each.

    `model` is "linear" (psi = b0 + b1 gamma^2, the paper's choice), "constant" (flat boundary), "quadratic",
    "singular" (b0 + b1 gamma^2 / (1 + b2 (gamma - 1)), for regions with corners), or "aic": the best of them for each
    region by Akaike's criterion (Shimodaira 2008, section 5).

    Examples
    --------
    At every scale half the replicates lie in a half-plane whose boundary contains the point: its distance is 0.

    >>> import numpy as np
    >>> fit = fit_scaling_law(np.array([[5000, 5000, 5000]]), 10_000, np.array([0.5, 1.0, 2.0]))
    >>> abs(fit.at_zero.round(6)).tolist()
    [0.0]
    """
    hits = np.asarray(hits, float)
    names = MODELS[:-1] if model == "aic" else (model,)
    candidates = [candidate for name in names for candidate in _fit(name, hits, replicates, gamma2)]
    criterion = np.array([2.0 * c.parameters - 2.0 * c.log_likelihood for c in candidates])
    best = np.argmin(criterion, axis=0)
    *_, zeros, minuses, curves = zip(*candidates, strict=True)
    zero, minus, curve = (np.array(values)[best, np.arange(len(hits))] for values in (zeros, minuses, curves))
    # With every replicate inside (or outside) at every scale there is no slope to fit: the distance is infinite.
    for extreme, value in ((hits.min(axis=1) == replicates, -np.inf), (hits.max(axis=1) == 0, np.inf)):
        zero[extreme], minus[extreme] = value, value
    psi = -np.sqrt(gamma2) * ndtri(hits / replicates)
    return ScalingFit(gamma2, psi, zero, minus, tuple(candidates[b].name for b in best), curve)


def mirrored(gamma2: np.ndarray) -> np.ndarray:
    """The scales gamma, half of them negative: + - - + + - - + ...

    Normal noise is symmetric, so that noise E can be used at scale -gamma as well as at gamma. With one sign the errors
    of all scales would be almost equal and bias the fitted line; those of E and -E are almost independent. The order of
    the signs balances them along the line.

    >>> mirrored(np.array([1.0, 1.0, 4.0, 4.0, 9.0]))
    array([ 1., -1., -2.,  2.,  3.])
    """
    sign = 1.0 - 2.0 * ((np.arange(len(gamma2)) + 1) // 2 % 2)
    return np.asarray(sign * np.sqrt(gamma2))


def _fit(name: str, hits: np.ndarray, replicates: int, gamma2: np.ndarray) -> list[_Candidate]:
    """The fits of a model: one, or for "singular" one for each b2 of a grid."""
    gamma = np.sqrt(gamma2)
    degree = {"constant": 0, "linear": 1, "quadratic": 2}.get(name)
    if degree is not None:
        basis = gamma2[:, None] ** np.arange(degree + 1)
        beta, log_likelihood = _probit(hits, replicates, gamma, basis)
        minus = beta @ (-1.0) ** np.arange(degree + 1)
        return [_Candidate(name, degree + 1, log_likelihood, beta[:, 0], minus, beta @ basis.T)]
    found = []
    for bend in np.linspace(0.05, 0.95, 10):
        basis = np.column_stack([np.ones_like(gamma), gamma2 / (1.0 + bend * (gamma - 1.0))])
        beta, log_likelihood = _probit(hits, replicates, gamma, basis)
        # psi(-1) by a Taylor polynomial at gamma^2 = 1, as gamma = i has no meaning. At v = 1,
        # g(v) = v / (1 + b (sqrt(v) - 1)) has g = 1, g' = 1 - b/2, g'' = -3b/4 + b^2/2; v = -1 is 2 away.
        second = -0.75 * bend + 0.5 * bend**2
        minus = beta[:, 0] + beta[:, 1] * (1.0 - 2.0 * (1.0 - 0.5 * bend) + 2.0 * second)
        found.append(_Candidate(name, 3, log_likelihood, beta[:, 0], minus, beta @ basis.T))
    return found


def _probit(hits: np.ndarray, total: int, gamma: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Maximise the binomial likelihood of P(hit) = Phi(-basis @ beta / gamma) for every region at once.

    Newton's method with the exact Hessian: the probit log-likelihood is concave, and this form does not overflow when a
    probability is within rounding of 0 or 1.
    """
    design = -basis / gamma[:, None]
    misses = total - hits
    size = basis.shape[1]
    prior = np.diag([1e-9] + [_CURVATURE_PRECISION] * (size - 1))
    beta = np.linalg.lstsq(design, ndtri((hits + 0.5) / (total + 1.0)).T, rcond=None)[0].T
    for _ in range(_NEWTON_STEPS):
        eta = np.clip(beta @ design.T, -37.0, 37.0)
        up, down = _inverse_mills(eta), _inverse_mills(-eta)
        gradient = (hits * up - misses * down) @ design - beta @ prior
        weight = hits * up * (up + eta) + misses * down * (down - eta)
        hessian = np.einsum("rs,sa,sb->rab", weight, design, design) + prior + 1e-9 * np.eye(size)
        step = np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
        step *= np.minimum(1.0, 2.0 / np.maximum(np.abs(step).max(axis=1, keepdims=True), 1e-300))
        beta = beta + step
        if np.abs(step).max() < 1e-10:
            break
    eta = beta @ design.T
    return beta, (hits * log_ndtr(eta) + misses * log_ndtr(-eta)).sum(axis=1)


def _inverse_mills(eta: np.ndarray) -> np.ndarray:
    """phi(eta) / Phi(eta)."""
    return np.exp(-0.5 * eta**2 - 0.5 * np.log(2.0 * np.pi) - log_ndtr(eta))
