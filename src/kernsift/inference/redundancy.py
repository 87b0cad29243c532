"""Redundant discoveries: clusters of similar features, and the features that add to those before them.

**Clusters.** Two features are similar if the null correlation of their scores is at least 0.3: a chance finding in one
of them is likely to be one in the other. All are taken to be tested with the same view of the response, as two copies
may have their smallest p-values under different ones. For jointly normal features and a smooth kernel the correlation
is about their squared correlation, and less for narrow kernels. The best discovery and all that are similar to it are
the first cluster; the best of the rest begins the next. P-values do not depend on clusters.

**Distinct features.** The discoveries are tested in the order of the list, each given all features kept so far
(`kernsift.estimators.conditional.estimator`), and kept if its conditional p-value is at most the level that the
correction asks of the last discovery and that it asks of as many tests as there are discoveries: with "bh" and j of m
kept so far alpha (j + 1) / m, which controls the false discovery rate of tests one after another (Javanmard and
Montanari 2018). The level is not adjusted for the dependence between the order of the list and these tests, so the
guarantee is approximate.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from kernsift.estimators.scores import Covariance

SIMILAR = 0.3
"""The least null correlation of scores with which features are similar."""
# Discoveries that are put into clusters.
_MOST = 500
# Features that are tested together for the next distinct one.
_STEP = 32


class Clusters:
    """Clusters of the discoveries among the listed features.

    Attributes
    ----------
    labels : (k,) the cluster of each listed feature, counted from 0; -1 for features that are no discoveries and for
        discoveries beyond the first 500.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.estimators.scores import DenseCovariance
    >>> cov = DenseCovariance(np.array([[1.0, 0.1, 0.9], [0.1, 1.0, 0.2], [0.9, 0.2, 1.0]]))
    >>> Clusters(cov, np.array([2, 1, 0]), np.array([True, True, True])).labels
    array([0, 1, 0])
    """

    def __init__(self, cov: Covariance, selected: np.ndarray, rejected: np.ndarray) -> None:
        places = np.flatnonzero(rejected)[:_MOST]
        only = getattr(cov, "only", None)
        # The scores of all features need data that a result must not keep.
        self._work: Any = (cov if only is None else only(selected[places]), selected, places)

    @cached_property
    def labels(self) -> np.ndarray:
        cov, selected, places = self._work
        labels = np.full(len(selected), -1)
        if len(places):
            labels[places] = leader_clusters(correlations(cov, selected[places]))
        self._work = None
        return labels

    def within(self, rejected: np.ndarray) -> Clusters:
        """Clusters of some of the discoveries."""
        cov, selected, places = self._work
        return Clusters(cov, selected, rejected & np.isin(np.arange(len(selected)), places))

    def __getstate__(self) -> dict[str, Any]:
        """The state of a pickle: the labels, without the data they are computed from."""
        return {"labels": self.labels, "_work": None}


def correlations(cov: Covariance, features: np.ndarray) -> np.ndarray:
    """(k, k) null correlations of the scores of some features."""
    among = getattr(cov, "among", None)
    found = cov.columns(features)[features] if among is None else among(features)
    sd = np.sqrt(np.maximum(np.diagonal(found), 0.0))
    scale = np.outer(sd, sd)
    return np.divide(found, scale, out=np.zeros_like(found), where=scale > 0)


def leader_clusters(correlation: np.ndarray) -> np.ndarray:
    """(k,) clusters: each feature joins the first representative that it is similar to, or represents a new one."""
    labels = np.full(len(correlation), -1)
    for place in range(len(correlation)):
        if labels[place] < 0:
            similar = (correlation[place] >= SIMILAR) & (labels < 0)
            similar[place] = True
            labels[similar] = labels.max() + 1
    return labels


def keep_distinct(
    order: np.ndarray, levels: np.ndarray, conditional_pvalues: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """The features of a list that are significant given those kept before them.

    `order` (m,) are the discoveries, best first, of which the first is kept; `levels` (m,) the largest p-values, by the
    number of features kept before, with which another one is kept; `conditional_pvalues` those of some given others.
    """
    kept, rest = list(order[:1]), order[1:]
    while len(rest):
        for start in range(0, len(rest), _STEP):
            some = rest[start : start + _STEP]
            significant = np.flatnonzero(conditional_pvalues(some, np.array(kept)) <= levels[len(kept)])
            if len(significant):
                kept.append(some[significant[0]])
                rest = rest[start + significant[0] + 1 :]
                break
        else:
            break
    return np.array(kept, dtype=int)
