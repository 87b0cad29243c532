"""P-values of other tests of dependence between one feature and a response, many trials at a time.

Every function takes the trials of `shapes.py` (x and y, or x and class labels) and returns one p-value a trial.
Where a test needs permutations, its null law is one that all trials share: ranks of values without ties have the same
law whatever the data.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.special import ndtri
from shapes import Trials
from sklearn.feature_selection import mutual_info_classif, mutual_info_regression

Peer = Callable[[Trials], np.ndarray]
# Permutations of the null law of mutual information, which trials share; the other two compute their own.
_MI_PERMUTATIONS = 1999
_AD_PERMUTATIONS = 199
_MGC_PERMUTATIONS = 99


def _pairs(trials: Trials) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Feature and response of each trial."""
    for place in range(trials.x.shape[1]):
        yield trials.x[:, place], trials.y if trials.y.ndim == 1 else trials.y[:, place]


def _two(trials: Trials) -> tuple[np.ndarray, np.ndarray]:
    return trials.x[trials.y == 0], trials.x[trials.y == 1]


def pearson(trials: Trials) -> np.ndarray:
    y = trials.y if trials.y.ndim == 2 else np.broadcast_to(trials.y[:, None], trials.x.shape)
    return np.asarray(stats.pearsonr(trials.x, y, axis=0).pvalue)


def spearman(trials: Trials) -> np.ndarray:
    return pearson(Trials(stats.rankdata(trials.x, axis=0), stats.rankdata(trials.y, axis=0)))


# --- distances and kernels --------------------------------------------------------------------------------------------


class _Distances(NamedTuple):
    """Distances of all rows, with zeros on the diagonal, and their sums by row."""

    matrix: np.ndarray
    rows: np.ndarray

    def covariance(self, other: _Distances) -> float:
        """The unbiased distance covariance, up to a factor that a correlation does not have (Szekely, Rizzo 2014)."""
        n = len(self.rows)
        total = self.rows.sum() * other.rows.sum() / ((n - 1) * (n - 2))
        return float(np.vdot(self.matrix, other.matrix) - 2.0 * (self.rows @ other.rows) / (n - 2) + total)


def _differences(values: np.ndarray) -> np.ndarray:
    """All differences in single precision, of values on a scale of about 1."""
    centred = values - np.median(values)
    centred = (centred / (np.abs(centred).mean() or 1.0)).astype(np.float32)
    return centred[:, None] - centred[None, :]


def _absolute(values: np.ndarray) -> _Distances:
    matrix = np.abs(_differences(values))
    return _Distances(matrix, matrix.sum(axis=1, dtype=float))


def _gaussian(values: np.ndarray) -> _Distances:
    """1 - exp(-|u - v|^2 / (2 median^2)), the median distance being that of at most 500 rows, and 1 for labels."""
    few = _differences(values)[:: -(-len(values) // 500), :: -(-len(values) // 500)]
    median = np.median(np.abs(few[np.triu_indices(len(few), 1)])) if len(np.unique(values)) > 2 else 1.0
    matrix = np.square(_differences(values))
    matrix *= -0.5 / (median or 1.0) ** 2
    matrix = -np.expm1(matrix, out=matrix)
    return _Distances(matrix, matrix.sum(axis=1, dtype=float))


def _chi_square_pvalues(trials: Trials, distances: Callable[[np.ndarray], _Distances]) -> np.ndarray:
    """hyppo's fast p-values for correlations of matrices of distances (Shen, Panda and Vogelstein, 2022)."""
    labels = distances(trials.y) if trials.y.ndim == 1 else None
    correlations = []
    for x, y in _pairs(trials):
        one, two = distances(x), distances(y) if labels is None else labels
        scale = np.sqrt(max(one.covariance(one), 0.0) * max(two.covariance(two), 0.0))
        correlations.append(one.covariance(two) / scale if scale > 0 else 0.0)
    return np.asarray(stats.chi2.sf(len(trials.x) * np.array(correlations) + 1.0, 1))


def dcorr(trials: Trials) -> np.ndarray:
    """Distance correlation with hyppo's chi-square null law."""
    return _chi_square_pvalues(trials, _absolute)


def hsic(trials: Trials) -> np.ndarray:
    """HSIC with Gaussian kernels at the median distances of feature and response and hyppo's chi-square null law."""
    return _chi_square_pvalues(trials, _gaussian)


def mgc(trials: Trials) -> np.ndarray:
    """Multiscale graph correlation with 99 permutations."""
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.array(
            [
                stats.multiscale_graphcorr(
                    x[:, None], 1.0 * y[:, None], reps=_MGC_PERMUTATIONS, random_state=rng
                ).pvalue
                for x, y in _pairs(trials)
            ]
        )


# --- mutual information and Chatterjee's coefficient ------------------------------------------------------------------


def _normal_scores(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Normal scores of the ranks, ties broken at random."""
    order = np.lexsort((rng.random(values.shape), values), axis=0)
    return np.asarray(ndtri((np.argsort(order, axis=0) + 0.5) / len(values)))


def _information(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Nearest-neighbour estimates of scikit-learn, one a column; y is numeric with two dimensions, else labels."""
    if y.ndim == 1:
        return np.asarray(mutual_info_classif(x, y, random_state=0))
    columns = range(x.shape[1])
    return np.array([mutual_info_regression(x[:, [j]], y[:, j], random_state=0)[0] for j in columns])


@cache
def _information_null(rows: int, numeric: bool) -> np.ndarray:
    """Estimates with the rows of the response permuted, sorted: the same law for all values without ties."""
    rng = np.random.default_rng(rows)
    scores = ndtri((np.arange(rows) + 0.5) / rows)
    x = rng.permuted(np.repeat(scores[:, None], _MI_PERMUTATIONS, axis=1), axis=0)
    y = np.repeat(scores[:, None], _MI_PERMUTATIONS, axis=1) if numeric else np.repeat([0, 1], rows // 2)
    return np.sort(_information(x, y))


def mutual_information(trials: Trials) -> np.ndarray:
    """Mutual information of the normal scores of feature and response, with a permutation null law."""
    rng = np.random.default_rng(0)
    numeric = trials.y.ndim == 2
    y = _normal_scores(trials.y, rng) if numeric else trials.y
    found = _information(_normal_scores(trials.x, rng), y)
    null = _information_null(len(trials.x), numeric)
    # Many estimates are exactly 0, so ties count against the test.
    above = len(null) - np.searchsorted(null, found - 1e-12)
    return np.asarray((above + 1.0) / (len(null) + 1.0))


def chatterjee(trials: Trials) -> np.ndarray:
    """Chatterjee's xi: whether the response is a function of the feature. Equal features are put in random order."""
    numeric = trials.y.ndim == 2
    order = np.random.default_rng(0).permutation(len(trials.x))
    trials = Trials(trials.x[order], trials.y[order])
    return np.array([stats.chatterjeexi(x, y, y_continuous=numeric).pvalue for x, y in _pairs(trials)])


# --- two samples ------------------------------------------------------------------------------------------------------


def kolmogorov_smirnov(trials: Trials) -> np.ndarray:
    pairs = zip(*(s.T for s in _two(trials)), strict=True)
    with warnings.catch_warnings():
        # Where the exact law is out of reach SciPy says that it takes the asymptotic one.
        warnings.simplefilter("ignore")
        return np.array([stats.ks_2samp(a, b).pvalue for a, b in pairs])


def cramer_von_mises(trials: Trials) -> np.ndarray:
    """The asymptotic p-values: the exact ones take a tenth of a second a column below 20 rows a sample."""
    pairs = zip(*(s.T for s in _two(trials)), strict=True)
    return np.array([stats.cramervonmises_2samp(a, b, method="asymptotic").pvalue for a, b in pairs])


def anderson_darling(trials: Trials) -> np.ndarray:
    """SciPy's p-values, between 0.001 and 0.25; with ties, where they reject 8% at level 0.05, permutations."""
    pairs = zip(*(s.T for s in _two(trials)), strict=True)
    ties = stats.PermutationMethod(n_resamples=_AD_PERMUTATIONS, rng=np.random.default_rng(0))
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one, two in pairs:
            tied = len(np.unique(np.append(one, two))) < len(one) + len(two)
            found.append(stats.anderson_ksamp([one, two], method=ties if tied else None).pvalue)
    return np.array(found)


def mann_whitney(trials: Trials) -> np.ndarray:
    return np.asarray(stats.mannwhitneyu(*_two(trials), axis=0).pvalue)


def analysis_of_variance(trials: Trials) -> np.ndarray:
    return np.asarray(stats.f_oneway(*_two(trials), axis=0).pvalue)


def levene(trials: Trials) -> np.ndarray:
    """The F test of the absolute distances from each sample's median."""
    one, two = _two(trials)
    return np.asarray(stats.f_oneway(abs(one - np.median(one, axis=0)), abs(two - np.median(two, axis=0))).pvalue)


_BOTH = {"Dcorr": dcorr, "Hsic": hsic, "mutual information": mutual_information, "Chatterjee's xi": chatterjee}
PEERS: Mapping[str, Mapping[str, Peer]] = {
    "numeric": {"Pearson": pearson, "Spearman": spearman, **_BOTH},
    "samples": {
        "Kolmogorov-Smirnov": kolmogorov_smirnov,
        "Cramér-von Mises": cramer_von_mises,
        "Anderson-Darling": anderson_darling,
        "Mann-Whitney": mann_whitney,
        "F (t) test": analysis_of_variance,
        "Levene": levene,
        **_BOTH,
    },
}
# Affordable with few rows and trials only.
SLOW_PEERS: Mapping[str, Peer] = {"MGC": mgc}
