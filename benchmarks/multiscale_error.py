"""The Monte Carlo error of multiscale p-values over seeds: this library's, and the authors'.

The authors' procedure is algorithm 2 of the paper, written out from it and from what their published code does where
the paper is silent: at each scale B replicates of their own, bootstrap probabilities of 0 and 1 dropped, a straight
line by least squares, p above 1 cut off. Which feature the replicates are for does not matter for the scatter of one
p-value, so all selected features share them here, which saves an hour.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtri

from kernsift.estimators.scores import Scores
from kernsift.inference import multiscale
from kernsift.inference.scaling_law import SCALES
from kernsift.inference.selection_rules import SelectionRule, TopK

REPLICATES = 10_000
# Where every replicate hits, or none, the authors' code takes this for the distance.
_FAR = 1e4


def authors_pvalues(
    scores: Scores, rule: TopK, selected: np.ndarray, rng: np.random.Generator, replicates: int = REPLICATES
) -> np.ndarray:
    """The selective p-values of algorithm 2."""
    gamma2 = np.asarray(SCALES)
    hits = np.empty((len(selected), len(gamma2)))
    for place, gamma in enumerate(np.sqrt(gamma2)):
        resampled = scores.estimate + gamma * scores.cov.sample(replicates, rng)
        # The k largest of every row: a feature is among them if it reaches the k-th largest value.
        least = np.partition(resampled, -rule.k, axis=1)[:, -rule.k]
        hits[:, place] = np.count_nonzero(resampled[:, selected] >= least[:, None], axis=0)
    distance = np.array([_distance(row / replicates, gamma2) for row in hits])
    beta = scores.estimate[selected] / np.sqrt(scores.cov.diagonal()[selected])
    return np.exp(np.minimum(log_ndtr(-beta) - log_ndtr(-(beta + distance)), 0.0))


def _distance(share: np.ndarray, gamma2: np.ndarray) -> float:
    """The line through the normalised z-values, read at gamma^2 = 0."""
    finite = (share > 0) & (share < 1)
    if not finite.any():
        return -_FAR if share[-1] == 1 else _FAR
    psi = -np.sqrt(gamma2[finite]) * ndtri(share[finite])
    if finite.sum() == 1:
        return float(psi[0])
    return float(np.polyfit(gamma2[finite], psi, 1)[1])


@dataclass(frozen=True)
class Scatter:
    """Standard deviations over seeds, one a selected feature, and the means they are about."""

    ours: np.ndarray
    theirs: np.ndarray
    our_mean: np.ndarray
    their_mean: np.ndarray

    def overall(self, below: float = 1.0) -> tuple[float, float]:
        """Root mean squares over the features with p at most `below`: ours, theirs."""
        chosen = self.their_mean <= below
        if not chosen.any():
            return float("nan"), float("nan")
        return _size(self.ours[chosen]), _size(self.theirs[chosen])

    def worst(self) -> float:
        """The largest ratio of ours to theirs of any feature whose p-value scatters at all."""
        moves = self.theirs > 0
        return float((self.ours[moves] / self.theirs[moves]).max(initial=0.0))

    def apart(self) -> float:
        """Root mean square of the difference between the means: the two have to estimate the same thing."""
        return _size(self.our_mean - self.their_mean)


def _size(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def scatter(scores: Scores, rule: SelectionRule, seeds: int, replicates: int = REPLICATES) -> Scatter:
    """Both procedures on the same scores, `seeds` times each; ours as it comes, theirs with B replicates a scale."""
    assert isinstance(rule, TopK)
    selected = rule.select(scores.estimate)
    streams = np.random.SeedSequence(0).spawn(2 * seeds)
    ours = np.array(
        [multiscale(scores, rule, selected, rng=np.random.default_rng(seed)).pvalues for seed in streams[:seeds]]
    )
    theirs = np.array(
        [authors_pvalues(scores, rule, selected, np.random.default_rng(seed), replicates) for seed in streams[seeds:]]
    )
    return Scatter(ours.std(axis=0, ddof=1), theirs.std(axis=0, ddof=1), ours.mean(axis=0), theirs.mean(axis=0))
