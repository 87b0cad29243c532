"""Other packages' answers to the same question, each as a function from a table and class labels to an answer.

hyppo and knockpy come with the benchmark's extra; nothing here is needed by the library.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.stats import false_discovery_control, ks_2samp
from sklearn.feature_selection import f_classif, mutual_info_classif

LEVEL = 0.05


@dataclass(frozen=True)
class Peer:
    """A way to choose features."""

    name: str  # what the tables call it
    # (x, labels, seed) -> (d,) booleans, the chosen features.
    choose: Callable[[np.ndarray, np.ndarray, int], np.ndarray]
    trials: int  # how many trials are affordable


def bh(pvalues: np.ndarray) -> np.ndarray:
    """Which p-values Benjamini and Hochberg's procedure rejects."""
    return np.asarray(false_discovery_control(np.clip(pvalues, 0.0, 1.0))) <= LEVEL


def kolmogorov_smirnov(x: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    one, two = x[labels == 0], x[labels == 1]
    return bh(np.array([ks_2samp(one[:, j], two[:, j]).pvalue for j in range(x.shape[1])]))


def analysis_of_variance(x: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    return bh(f_classif(x, labels)[1])


def mutual_information(x: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    information = mutual_info_classif(x, labels, random_state=seed)
    chosen = np.zeros(x.shape[1], dtype=bool)
    # Many estimates are exactly 0: such ties are broken at random, or the order of columns would decide.
    chosen[np.lexsort((np.random.default_rng(seed).random(len(information)), -information))[:10]] = True
    return chosen


def _hyppo(test: str, x: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    from hyppo.independence import Dcorr, Hsic

    kind = {"Dcorr": Dcorr, "Hsic": Hsic}[test]
    target = labels.astype(float)[:, None]
    # auto=True is the chi-square null of hyppo: no permutations.
    return bh(np.array([kind().test(x[:, [j]], target, auto=True)[1] for j in range(x.shape[1])]))


def _knockoffs(level: float, x: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    from knockpy.knockoff_filter import KnockoffFilter

    # knockpy draws from NumPy's global state and has no other way to set a seed.
    np.random.seed(seed)  # noqa: NPY002
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Least squares on the label, which for two classes is the discriminant direction: the logistic lasso that
        # knockpy would choose takes minutes a call here.
        chosen = KnockoffFilter(ksampler="gaussian", fstat="lasso", fstat_kwargs={"y_dist": "gaussian"}).forward(
            X=(x - x.mean(axis=0)) / x.std(axis=0), y=labels - labels.mean(), fdr=level
        )
    return np.asarray(chosen).astype(bool)


PEERS = (
    Peer("KS + BH", kolmogorov_smirnov, 200),
    Peer("f_classif + BH", analysis_of_variance, 200),
    Peer("mutual information, top 10", mutual_information, 100),
    Peer("hyppo Dcorr + BH", partial(_hyppo, "Dcorr"), 100),
    Peer("hyppo Hsic + BH", partial(_hyppo, "Hsic"), 100),
    Peer("knockoffs, q=0.05", partial(_knockoffs, 0.05), 60),
    Peer("knockoffs, q=0.1", partial(_knockoffs, 0.1), 60),
)
