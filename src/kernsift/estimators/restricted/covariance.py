"""Correlations of scores over permutations within strata."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernsift.data.table_parts import run_of
from kernsift.estimators.covariance.alignment import AlignmentCovariance
from kernsift.estimators.covariance.selected_factor import FactorRows
from kernsift.estimators.restricted.strata import Strata
from kernsift.execution.arrays import asarray_like, namespace, take, to_numpy


@dataclass(frozen=True)
class RestrictedCovariance(AlignmentCovariance):
    """Correlation of the scores over permutations within strata: chance adds to tr(K_i K_j) within strata only."""

    strata: Strata

    def _correlation(self, one: FactorRows, other: FactorRows) -> np.ndarray:
        if len(self.strata.sizes) == 1:
            return super()._correlation(one, other)
        # The strata of the rows in use: of all, of a sample, or of every second or third of these.
        stratum = self.strata.of_row if self.rows is None else self.strata.of_row[self.rows]
        stratum = stratum[:: -(-len(stratum) // one.factor.shape[2])]
        strata = Strata.of(stratum)
        used = strata.order[np.repeat(strata.sizes > 1, strata.sizes)]
        strata = strata._replace(order=used, sizes=strata.sizes[strata.sizes > 1])
        own, theirs = (take(part.factor, run_of(used), 2) for part in (one, other))
        xp, turned = namespace(own), namespace(own).matrix_transpose
        (b, q, _), (k, p, _) = own.shape, theirs.shape
        sizes, free = (xp.astype(asarray_like(part, own), own.dtype) for part in (strata.sizes, strata.sizes - 1))
        sums = [strata.sums(part) for part in (own, theirs)]
        inner = xp.reshape(own, (b * q, -1)) @ turned(xp.reshape(theirs, (k * p, -1)))
        inner -= xp.reshape(sums[0] / sizes, (b * q, -1)) @ turned(xp.reshape(sums[1], (k * p, -1)))
        products = xp.sum(xp.reshape(inner * inner, (b, q, k, p)), axis=(1, 3))
        traces, variances = [], []
        for part, total in zip((own, theirs), sums, strict=True):
            gram = part @ turned(part) - (total / sizes) @ turned(total)
            traces.append(strata.sums(xp.sum(part * part, axis=1)) - xp.sum(total * total, axis=1) / sizes)
            variances.append(to_numpy(xp.sum(gram * gram, axis=(1, 2)) - xp.sum(traces[-1] ** 2 / free, axis=1)))
        found = to_numpy(products - (traces[0] / free) @ turned(traces[1]))
        first, names = str(one.targets[0]), other.targets.tolist()
        main = np.array([self._weights[first, name][0] for name in names])
        scale = np.array([self._weights[name, name][0] for name in names]) * self._weights[first, first][0]
        scale = np.outer(*variances) * scale
        some = scale > 0
        return np.where(some, np.clip(found * main / np.sqrt(np.where(some, scale, 1.0)), -1.0, 1.0), 0.0)
