"""T = |sum_i vec(r_i s_i')|^2 of residuals of a feature and of a response: its law over random signs, and its effect.

The formulas are at the head of `kernsift.estimators.conditional.estimator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kernsift.estimators.effects.family_laws import FamilyMoments
from kernsift.estimators.effects.intervals import EffectLaws, Unseen
from kernsift.estimators.null_laws.permutation_law import limit_weights, spectral_score

# Effects at which the law of T is computed.
_EFFECTS = np.linspace(0.0, 1.0, 201)
# With a standard normal z and skewness g of C / sd, a division of z by 1 + a g z / 2 has the tails of a normal up to
# g^2 for a = (1 - 1 / z^2) / 3; a is 1 for C over its observed spread and 0 over the expected one.
_SKEWNESS_SHARE = 2.0 / 3.0


class ResidualView(NamedTuple):
    """Residuals of the directions of one view."""

    values: np.ndarray  # (n, m)
    # (m,) degrees of freedom that the regression used up, n - tr((I - S)^2) with its smoother S; with units, in sums
    # over these.
    spent: np.ndarray

    def after(self, spent: np.ndarray | float) -> ResidualView:
        """The same, with at least the degrees of freedom that a regression before this one used up."""
        return self._replace(spent=np.maximum(self.spent, spent))

    @property
    def scatter(self) -> np.ndarray:
        """(m, m) sums over rows of products of residuals."""
        return self.values.T @ self.values


class PairStatistic(NamedTuple):
    """T of one feature under one pair of views, and its law over random signs."""

    statistic: float
    mean: float
    sd: float
    skewness: float
    products: np.ndarray  # (u, D) products of residuals of rows or units, scaled for degrees of freedom
    total: np.ndarray  # (D,) sum of the products over all rows, as they are
    diagonal: np.ndarray  # (u,) squared lengths of `products`
    gram: np.ndarray  # (D, D) products.T @ products
    scale: float  # all rows over the rows in `products`


def pair_statistic(
    feature: ResidualView,
    response: ResidualView,
    units: np.ndarray | None = None,
    law_rows: np.ndarray | None = None,
) -> PairStatistic:
    """T and its moments from the residuals of a feature and of a response."""
    n = len(feature.values)
    total = (feature.values.T @ response.values).ravel()
    r, s = (part.values if law_rows is None else part.values[law_rows] for part in (feature, response))
    freedom = n / np.maximum(n - np.minimum(feature.spent[:, None], response.spent), 1.0)
    scale = n / len(r)
    freedom *= _expected_over_observed(feature.values, response.values, total, units)
    if law_rows is not None:
        # Where values are rare, a few rows have most of the sum of squares: these may not be among the law rows.
        a, b = (_squares(part.values) for part in (feature, response))
        freedom *= float(a @ b) / max(scale * float(a[law_rows] @ b[law_rows]), 1e-300)
    products = (r[:, :, None] * s[:, None, :]).reshape(len(r), -1) * np.sqrt(freedom).ravel()
    if units is not None:
        size = int(units.max()) + 1
        products = np.column_stack([np.bincount(units, column, size) for column in products.T])
    diagonal = (products**2).sum(axis=1)
    gram = products.T @ products
    # Over the law rows; all of it is then in proportion to the rows, but for the diagonal's share of the variance.
    variance = 2.0 * (scale**2 * (gram**2).sum() - scale * (diagonal**2).sum())
    between = ((products @ gram) * products).sum(axis=1)
    third = 8.0 * (
        scale**3 * np.trace(gram @ gram @ gram)
        - 3.0 * scale**2 * (diagonal * between).sum()
        + 2.0 * scale * (diagonal**3).sum()
    )
    sd = float(np.sqrt(max(variance, 0.0)))
    skewness = float(third / sd**3) if sd > 0 else 0.0
    statistic, mean = float(total @ total), float(scale * diagonal.sum())
    return PairStatistic(statistic, mean, sd, skewness, products, total, diagonal, gram, scale)


def _squares(rows: np.ndarray) -> np.ndarray:
    """(n,) squared lengths of rows."""
    return np.einsum("ij,ij->i", rows, rows)


def _expected_over_observed(r: np.ndarray, s: np.ndarray, total: np.ndarray, units: np.ndarray | None) -> float:
    """The ratio of the expected to the observed sum_i |v_i|^2, if residuals of both sides are skew.

    The sum is then correlated with C = sum_i v_i: if two rare values never coincide, all products are small, and any C
    seems large. Under the null E[v |v|^2] = E[r |r|^2] E[s |s|^2]', which gives the regression of sum_i |v_i|^2 on C; a
    share of it makes tails of C right to the first order. The ratio is at most that of independent residuals, and at
    least 1: with few products the law would be too narrow otherwise.
    """
    if units is not None:
        counts = np.bincount(units)[:, None]
        r = np.column_stack([np.bincount(units, column) for column in r.T])
        s = np.column_stack([np.bincount(units, column) for column in s.T]) / counts
    n, cross = len(r), total.reshape(r.shape[1], -1)
    a, b = _squares(r), _squares(s)
    observed, independent = float(a @ b), float(a.sum() * b.sum() / n)
    if not 0 < observed < independent:
        return 1.0
    spread = float((cross * ((r.T @ r) @ cross @ (s.T @ s))).sum())
    along = float((r.T @ a) @ cross @ (s.T @ b)) * float((cross**2).sum()) / max(spread, 1e-300)
    return max(1.0, min(1.0 - _SKEWNESS_SHARE * along / observed, independent / observed))


def normal_scores(statistics: Sequence[PairStatistic]) -> np.ndarray:
    """(pairs,) normal scores of T; 0 where T cannot vary."""
    out = np.zeros(len(statistics))
    for place, one in enumerate(statistics):
        if one.sd > 0:
            weights, counts = limit_weights(np.linalg.eigvalsh(one.gram)[None, ::-1].clip(0.0), np.ones(1))
            standardised = np.array([(one.statistic - one.mean) / one.sd])
            out[place] = spectral_score(standardised, np.array([one.skewness]), weights, counts)[0]
    return out


def correlations(statistics: Sequence[PairStatistic]) -> np.ndarray:
    """(pairs, pairs) correlations of T over the same random signs; negative ones count as 0."""
    count = len(statistics)
    out = np.eye(count)
    for i, one in enumerate(statistics):
        for j, other in enumerate(statistics[:i]):
            if one.sd > 0 and other.sd > 0:
                inner = one.products.T @ other.products
                covariance = 2.0 * (one.scale**2 * (inner**2).sum() - one.scale * (one.diagonal * other.diagonal).sum())
                out[i, j] = out[j, i] = np.clip(covariance / (one.sd * other.sd), 0.0, 1.0)
    return out


def _sizes(view: ResidualView) -> tuple[float, float]:
    """tr(S^2) of the residuals' scatter S, and the same less what chance adds to it."""
    scatter, n = view.scatter, len(view.values)
    square = float((scatter**2).sum())
    return square, max(square - float(np.trace(scatter)) ** 2 / (n - 1), 0.01 * square)


def point_effect(one: PairStatistic, feature: ResidualView, response: ResidualView) -> float:
    whole = np.sqrt(_sizes(feature)[1] * _sizes(response)[1])
    return float(np.sqrt(np.clip((one.statistic - one.mean) / whole, 0.0, 1.0))) if one.sd > 0 else 0.0


def effect_law(
    one: PairStatistic,
    feature: ResidualView,
    response: ResidualView,
    score: np.ndarray,
    penalty: np.ndarray,
    units: np.ndarray | None,
) -> EffectLaws:
    """The law of R = T / (n^2 sqrt(D_x D_y)) at every effect along the observed residual cross-covariance."""
    n = len(feature.values)
    (size_x, less_x), (size_y, less_y) = _sizes(feature), _sizes(response)
    scale = max(np.sqrt(size_x * size_y), 1e-300)  # n^2 sqrt(D_x D_y)
    whole = scale / max(np.sqrt(less_x * less_y), 1e-300)
    statistic = one.statistic / scale
    mean, sd = one.mean / scale, max(one.sd, 1e-3 * one.mean) / scale
    if not one.sd > 0:
        mean, sd = max(mean, 1e-6), 1e-6
    linear, third = _influence(one, feature, response, units)
    dependence = _EFFECTS**2 / whole
    observed = max(statistic - mean, 1e-3 * mean, 1e-300)
    growth = dependence / observed
    variance = sd**2 + linear * growth
    root = np.sqrt(variance)
    cubes = one.skewness * sd**3 + 1.5 * (linear * growth) ** 2 / np.maximum(dependence, 1e-300)
    moments = FamilyMoments(
        _EFFECTS[None],
        (mean + dependence)[None],
        root[None],
        (cubes / root**3)[None],
        (third * growth**1.5 / root**3)[None],
    )
    # Of a constant feature the unseen value may have any distance, as the effect does not depend on its unit. A value
    # that all rows of a unit have is unseen in all of them, or in none.
    largest = [(part.values**2).sum(axis=1).max() or 1.0 for part in (feature, response)]
    unseen = Unseen(
        np.array([[float(n if units is None else units.max() + 1)]]),
        np.ones((1, 1)),
        *(np.array([part]) for part in (largest[0], np.sqrt(size_x) / n, largest[1], np.sqrt(size_y) / n)),
    )
    point = np.sqrt(np.clip(np.array([(statistic - mean) * whole]), 0.0, 1.0))
    return EffectLaws(point, np.array([statistic]), score, penalty, (moments, moments), unseen, np.array([whole]))


def _influence(
    one: PairStatistic, feature: ResidualView, response: ResidualView, units: np.ndarray | None
) -> tuple[float, float]:
    """Variance of R from the rows' influence on it, and the third central moment, at the observed law.

    A row counts 2 C'v - |C|^2 (r'S_x r / D_x + s'S_y s / D_y), with the centred sums over rows in place of means.
    """
    (size_x, _), (size_y, _) = _sizes(feature), _sizes(response)
    if not one.sd > 0 or size_x == 0 or size_y == 0:
        return 0.0, 0.0
    cross = one.total.reshape(feature.values.shape[1], -1)
    along = ((feature.values @ cross) * response.values).sum(axis=1)
    own = ((feature.values @ feature.scatter) * feature.values).sum(axis=1) / size_x
    target = ((response.values @ response.scatter) * response.values).sum(axis=1) / size_y
    influence = 2.0 * along - one.statistic * (own + target)
    if units is not None:
        influence = np.bincount(units, influence)
    influence = (influence - influence.mean()) / np.sqrt(size_x * size_y)
    return float((influence**2).sum()), float((influence**3).sum())
