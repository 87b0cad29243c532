"""The selective multiscale bootstrap (MultiMMD, MultiHSIC): the paper's test.

For each selected feature the bootstrap probability that it is selected again is simulated at ten scales; the scaling
law read at gamma^2 = 0 gives the signed distance to the selection boundary, phi_S(0), and
p = Phibar(beta_0) / Phibar(beta_0 + phi_S(0)) with beta_0 the standardised score: the hypothesis {score <= 0} is a
half-space, so its own law needs no fit (the paper, section 3.1, algorithm 2).

The same normals serve every scale and every feature: resampled scores are T + gamma E.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr

from kernsift.inference.outcome import Outcome, standardised
from kernsift.progress import tell
from kernsift.scaling import SCALES, fit_scaling_law
from kernsift.scores import Scores
from kernsift.selection import SelectionRule
from kernsift.tables import InputError

# Rows of resampled scores held at a time, in numbers: 2^22 are 32 MB.
_BLOCK = 2**22


def multiscale(
    scores: Scores,
    rule: SelectionRule,
    selected: np.ndarray,
    *,
    rng: np.random.Generator,
    replicates: int = 10_000,
    scales: np.ndarray | tuple[float, ...] = SCALES,
    model: str = "linear",
    resampling: str = "normal",
) -> Outcome:
    """Selective p-values by multiscale bootstrap.

    Parameters
    ----------
    replicates : resampled score vectors a scale, B in the paper.
    scales : values of gamma^2 = n / n'.
    model : the scaling law: "linear", "constant", "quadratic", "singular", or "aic" for the best of them.
    resampling : "normal" draws scores from N(T, gamma^2 cov); "rows" resamples n' rows and computes the scores anew,
        the paper's slow alternative.
    """
    gamma2 = np.asarray(scales, float)
    count = _count_rows if resampling == "rows" else _count_normal
    hits = count(scores, rule, selected, gamma2, replicates, rng)
    fit = fit_scaling_law(hits, replicates, gamma2, model)
    beta = standardised(scores, selected)
    # y lies in S, so the distance to its boundary is not positive; a fit that says otherwise is noise.
    distance = np.minimum(fit.at_zero, 0.0)
    return Outcome(np.minimum(log_ndtr(-beta) - log_ndtr(-(beta + distance)), 0.0), fit=fit)


def _count_normal(
    scores: Scores,
    rule: SelectionRule,
    selected: np.ndarray,
    gamma2: np.ndarray,
    replicates: int,
    rng: np.random.Generator,
) -> np.ndarray:
    hits = np.zeros((len(selected), len(gamma2)))
    block = max(1, _BLOCK // len(scores))
    precision = _precision(scores)
    centre = scores.estimate.astype(precision)
    for start in range(0, replicates, block):
        noise = scores.cov.sample(min(block, replicates - start), rng).astype(precision)
        moved = np.empty_like(noise)
        for scale, gamma in enumerate(np.sqrt(gamma2).astype(precision)):
            np.multiply(noise, gamma, out=moved)
            moved += centre
            hits[:, scale] += np.count_nonzero(rule.keeps(moved, selected), axis=0)
    return hits


def _precision(scores: Scores) -> type[np.floating]:
    """Single precision is ample for counting, and half the memory to move, unless scores dwarf their spread."""
    spread = np.sqrt(scores.cov.diagonal())
    least = spread[spread > 0].min(initial=np.inf)
    most = max(np.abs(scores.estimate).max(), spread.max())
    return np.float32 if least > 1e-20 and most < min(1e20, 1e4 * least) else np.float64


def _count_rows(
    scores: Scores,
    rule: SelectionRule,
    selected: np.ndarray,
    gamma2: np.ndarray,
    replicates: int,
    rng: np.random.Generator,
) -> np.ndarray:
    if scores.resample is None:
        raise InputError(
            'resampling: "rows" needs scores made from data by an estimator that averages draws; '
            'these came without rows to resample. Use resampling="normal".'
        )
    hits = np.zeros((len(selected), len(gamma2)))
    for scale, value in enumerate(gamma2):
        tell("resampling rows", scale, len(gamma2))
        for _ in range(replicates):
            again = scores.resample(1.0 / value, rng)
            hits[:, scale] += rule.keeps(again[None, :], selected)[0]
    return hits
