"""The selective multiscale bootstrap (MultiMMD, MultiHSIC): the paper's test.

For each selected feature the bootstrap probability that it is selected again is simulated at ten scales; the scaling
law extrapolated to gamma^2 = 0 gives the signed distance to the selection boundary, phi_S(0), and
p = Phibar(beta_0) / Phibar(beta_0 + phi_S(0)) with beta_0 the standardised score: the hypothesis {score <= 0} is a
half-space, so its scaling law is known (the paper, section 3.1, algorithm 2).

The same normal noise E is used for every scale and every feature: resampled scores are T + gamma E at some scales and
T - gamma E at others. Two variance reductions lower the Monte Carlo error of the p-value. The errors of E and -E are
almost independent, so that they average out along the fitted line. And whether a feature is kept depends mostly on its
own noise, whose distribution is known: replicates are counted separately where that noise exceeds a level and where it
does not, and the two shares are weighted with normal probabilities (post-stratification).
"""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from kernsift.distributions.truncated_normal import EVERYWHERE
from kernsift.estimators.scores import Scores
from kernsift.exceptions import InputError
from kernsift.execution.progress import report_progress
from kernsift.execution.threads import parallel_map
from kernsift.inference.naive import naive
from kernsift.inference.outcome import Outcome, standardised
from kernsift.inference.scaling_law import SCALES, fit_scaling_law, mirrored
from kernsift.inference.selection_rules import Everything, SelectionRule

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
    replicates : int, default=10_000
        Resampled score vectors per scale, B in the paper.
    scales : array_like of float
        Values of gamma^2 = n / n'.
    model : {"linear", "constant", "quadratic", "singular", "aic"}, default="linear"
        The scaling law; "aic" chooses the best of them.
    resampling : {"normal", "rows"}, default="normal"
        "normal" draws scores from N(T, gamma^2 cov); "rows" resamples n' rows and recomputes the scores, the paper's
        slow alternative.

    Examples
    --------
    The larger of two independent scores, 2 and 1, at distance 1 / sqrt(2) from the selection boundary: about the tail
    beyond 2 over that beyond 2 - 1 / sqrt(2), which is 0.232.

    >>> import numpy as np
    >>> from kernsift.estimators.scores import DiagonalCovariance, Scores
    >>> from kernsift.inference.selection_rules import TopK
    >>> scores = Scores(("a", "b"), np.array([2.0, 1.0]), DiagonalCovariance(np.ones(2)))
    >>> multiscale(scores, TopK(1), np.array([0]), rng=np.random.default_rng(0)).pvalues.round(2)
    array([0.23])
    """
    if isinstance(rule, Everything):
        return naive(scores, rule, selected, rng=rng)
    gamma2 = np.asarray(scales, float)
    count = _count_rows if resampling == "rows" else _count_normal
    hits = count(scores, rule, selected, gamma2, replicates, rng)
    fit = fit_scaling_law(hits, replicates, gamma2, model)
    beta = standardised(scores, selected)
    # y lies in S, so the signed distance to its boundary is at most 0; a positive fit is Monte Carlo error.
    distance = np.minimum(fit.at_zero, 0.0)
    log_pvalues = np.minimum(log_ndtr(-beta) - log_ndtr(-(beta + distance)), 0.0)
    return Outcome(log_pvalues, _half_lines(scores, selected, distance), fit)


def _half_lines(scores: Scores, selected: np.ndarray, distance: np.ndarray) -> tuple[np.ndarray, ...]:
    """The half-lines that the p-values condition on: scores down to the distance of the boundary below the observed.

    The test of a mean other than 0 has the same distance to the boundary, so estimates and intervals use it as well.
    """
    sd = np.sqrt(scores.cov.diagonal()[selected])
    bounded = np.isfinite(distance) & (sd > 0)
    starts = scores.estimate[selected] + sd * np.where(bounded, distance, 0.0)
    pairs = zip(starts, bounded, strict=True)
    return tuple(np.array([[start, np.inf]]) if bound else EVERYWHERE for start, bound in pairs)


def _count_normal(
    scores: Scores,
    rule: SelectionRule,
    selected: np.ndarray,
    gamma2: np.ndarray,
    replicates: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Expected hits, (features, scales)."""
    block = max(1, _BLOCK // len(scores))
    precision = _precision(scores)
    centre = scores.estimate.astype(precision)
    sd = np.sqrt(scores.cov.diagonal()[selected])
    gammas = mirrored(gamma2).astype(precision)
    levels: list[np.ndarray | None] = [None] * len(gammas)
    counts = np.zeros((len(gammas), 3, len(selected)))
    for start in range(0, replicates, block):
        noise = scores.cov.sample(min(block, replicates - start), rng).astype(precision)
        count = partial(_count_strata, rule, selected, centre, noise, noise.take(selected, axis=1), sd)
        for scale, (level, found) in enumerate(parallel_map(count, zip(gammas, levels, strict=True))):
            levels[scale] = level
            counts[scale] += found
    return replicates * _weighted(counts, replicates, np.array(levels), sd).T


def _count_strata(
    rule: SelectionRule,
    selected: np.ndarray,
    centre: np.ndarray,
    noise: np.ndarray,
    own: np.ndarray,
    sd: np.ndarray,
    scale: tuple[np.floating, np.ndarray | None],
) -> tuple[np.ndarray, np.ndarray]:
    """A level of each feature's noise; and how many samples keep the feature, exceed the level, and do both."""
    gamma, level = scale
    moved = noise * gamma
    moved += centre
    # As float32: BLAS sums columns faster than NumPy counts them, exactly for blocks of this size.
    kept = rule.keeps(moved, selected).astype(np.float32)
    ones = np.ones(len(noise), np.float32)
    hits = (ones @ kept).astype(float)
    if level is None:
        # Any level is valid. One that is exceeded as often as the feature is kept separates the strata best.
        level = (-sd * ndtri((hits + 0.5) / (len(noise) + 1.0))).astype(own.dtype)
    reached = (own >= level if gamma > 0 else own <= -level).astype(np.float32)
    return level, np.array([hits, ones @ reached, np.einsum("ij,ij->j", kept, reached)])


def _weighted(counts: np.ndarray, replicates: int, levels: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Probabilities of being kept, (scales, features), from the counts in both strata."""
    hits, reached, both = counts[:, 0], counts[:, 1], counts[:, 2]
    split = (reached > 0) & (reached < replicates) & (sd > 0)
    high = both / np.where(split, reached, 1.0)
    low = (hits - both) / np.where(split, replicates - reached, 1.0)
    share = ndtr(-levels / np.where(sd > 0, sd, 1.0))
    # In this form shares of exactly 0 and 1 are reproduced exactly.
    return np.where(split, low + share * (high - low), hits / replicates)


def _precision(scores: Scores) -> type[np.floating]:
    """Single precision suffices for counting, and halves the memory traffic, unless scores far exceed their spread."""
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
        report_progress("resampling rows", scale, len(gamma2))
        for _ in range(replicates):
            again = scores.resample(1.0 / value, rng)
            hits[:, scale] += rule.keeps(again[None, :], selected)[0]
    return hits
