"""Covariance matrices of strata, folded into few matrices.

The covariance V of the cross-covariances of a feature and a response within strata is a sum of S_b (x) R_b / (n_b - 1)
over strata b, with the scatter matrices S_b and R_b of their factors. R_b / (n_b - 1) are combinations c_kb of few
orthogonal matrices B_k, so that V = sum_k A_k (x) B_k with A_k = sum_b c_kb S_b.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.linalg import helmert

from kernsift.estimators.restricted.strata import Strata

# Products of the response's scatter matrices below this share of the largest do not count.
_NEGLIGIBLE = 1e-7
# Third moments leave out matrices B_k with less than this share of the squares, and those beyond the first few, or
# beyond as many as make this number with all strata.
_FAINT, _TERMS, _TERMS_BY_STRATA = 1e-14, 48, 2**15
# The largest V whose third power is computed as it is.
_LARGEST = 128
# Fewer products of contrasts than these are summed as they are: in small strata a response of several columns has many
# directions, whose scatter differs from stratum to stratum.
_CONTRASTS = 640


class ResponseMoments(NamedTuple):
    """What the covariance of two statistics needs of their two views of a response, here G and H.

    Attributes
    ----------
    coefficients : (k, S) and
    basis : (k, p, q), orthogonal matrices of length 1: G_b H_b' / (n_b - 1) is the sum of these with the coefficients.
    terms : how many of them third moments use.
    second : (S, 2) invariants of second order of each stratum.
    squares : (S,) |G_b H_b'|^2 / (n_b - 1)^2.
    """

    coefficients: np.ndarray
    basis: np.ndarray
    terms: int
    second: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, one: np.ndarray, other: np.ndarray, strata: Strata) -> ResponseMoments:
        """From factors (p, N) and (q, N) centred within strata."""
        sizes = strata.sizes
        scatter = np.concatenate(
            [
                np.einsum("psn,qsn->spq", strata.split(one, *run), strata.split(other, *run), optimize=True).reshape(
                    run[1] - run[0], -1
                )
                for run in strata.runs(len(one) * len(other))
            ]
        )
        scaled = scatter / (sizes - 1)[:, None]
        left, values, right = np.linalg.svd(scaled, full_matrices=False)
        kept = max(int((values > _NEGLIGIBLE * values[0]).sum()), 1)
        first, last = ((part * part).sum(axis=0) for part in (one, other))
        squares = (scatter * scatter).sum(axis=1)
        basis = right[:kept].reshape(kept, len(one), len(other))
        behind = np.cumsum(values[::-1] ** 2)[::-1]
        terms = min(max(int((behind > _FAINT * behind[0]).sum()), 1), max(_TERMS, _TERMS_BY_STRATA // len(sizes)), kept)
        second = second_invariants(squares, first, last, strata)
        return cls((left[:, :kept] * values[:kept]).T, basis, terms, second, squares / (sizes - 1) ** 2)


def second_invariants(squares: np.ndarray, one: np.ndarray, other: np.ndarray, strata: Strata) -> np.ndarray:
    """(..., S, 2) invariants of second order, from sums of K_ij L_ij (..., S) and diagonals (..., N)."""
    traces, products = strata.sums(one) * strata.sums(other), strata.sums(one * other)
    return np.stack([squares - traces / (strata.sizes - 1), products - traces / strata.sizes], axis=-1)


def row_products(factor: np.ndarray) -> np.ndarray:
    """(..., m (m + 1) / 2, n) products of pairs of rows of factors (..., m, n).

    Inner products are those of the products of all rows with all rows.
    """
    first, second, scale = row_pairs(factor.shape[-2])
    products = np.take(factor, first, axis=-2)
    products *= scale[:, None]
    products *= np.take(factor, second, axis=-2)
    return products


@lru_cache(maxsize=64)
def row_pairs(m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows i <= j of all pairs of m, and 1 for equal ones and sqrt(2) for others, which count twice."""
    first, second = np.triu_indices(m)
    return first, second, np.where(first == second, 1.0, np.sqrt(2.0))


def cube_trace(
    folded: np.ndarray,
    basis: np.ndarray,
    target: np.ndarray,
    pooled: Callable[[np.ndarray], np.ndarray],
    strata: Strata,
    factor: np.ndarray | None = None,
) -> np.ndarray:
    """(b,) tr V^3, from the A_k (k, b, m, m) and B_k (k, p, p), and a factor (p, N) of the response.

    V has the eigenvalues of the smaller of two matrices: V itself, or the products of f (x) g between all pairs of
    contrasts of a stratum, from the `factor` (b, m, N) of rows. If both are large, the leading directions count as they
    are, and the rest as if the response varied alike in all strata: V = A (x) R, with A the sum of S_b with these
    shares (S,), which is `pooled`.
    """
    m, p, free = folded.shape[-1], len(target), strata.sizes - 1
    if len(folded) == 1:
        [own], [theirs] = folded, basis
        return np.asarray(np.einsum("bij,bij->b", own @ own, own) * np.sum((theirs @ theirs) * theirs))
    if factor is not None and (free**2).sum() < min(m * p, _CONTRASTS):
        return _contrast_cube(factor, target, strata)
    q = p if m * p <= _LARGEST else min(p, 8)
    lead = min(m, max(1, _LARGEST // q))
    found = np.empty(folded.shape[1])
    for place, own in enumerate(folded[..., :lead, :lead].transpose(1, 2, 3, 0)):
        products = own @ basis[:, :q, :q].reshape(len(basis), -1)
        whole = products.reshape(lead, lead, q, q).transpose(0, 2, 1, 3).reshape(lead * q, lead * q)
        found[place] = np.vdot(whole @ whole.T, whole)
    if m * p <= _LARGEST:
        return found
    all_of_a = pooled(strata.sums((target * target).sum(axis=0)) / free)
    all_of_r = target @ target.T / (target * target).sum()
    totals = [np.trace(part @ part @ part, axis1=-2, axis2=-1) for part in (all_of_a, all_of_r)]
    leading_parts = (all_of_a[..., :lead, :lead], all_of_r[:q, :q])
    leading = [np.trace(part @ part @ part, axis1=-2, axis2=-1) for part in leading_parts]
    return np.asarray(found + totals[0] * totals[1] - leading[0] * leading[1])


def _contrast_cube(factor: np.ndarray, response: np.ndarray, strata: Strata) -> np.ndarray:
    """(b,) tr V^3 from products of all contrasts within strata."""
    parts: list[list[np.ndarray]] = [[], []]
    first, second, scale, start = [], [], [], 0
    for run in strata.runs(1):
        n = int(strata.sizes[run[0]])
        contrasts = helmert(n).T
        for found, values in zip(parts, (factor, response), strict=True):
            turned = strata.split(values, *run) @ contrasts
            found.append(turned.reshape(*values.shape[:-1], -1))
        for _ in range(*run):
            places = start + np.arange(n - 1)
            first.append(np.repeat(places, n - 1))
            second.append(np.tile(places, n - 1))
            scale.append(np.full((n - 1) ** 2, (n - 1.0) ** -0.5))
            start += n - 1
    own, target = (np.concatenate(found, axis=-1) for found in parts)
    rows, columns, root = np.concatenate(first), np.concatenate(second), np.concatenate(scale)
    own = own[:, :, rows] * root
    between, cubes = (target.T @ target)[np.ix_(columns, columns)], np.empty(len(own))
    for place, feature in enumerate(own):
        products = (feature.T @ feature) * between
        cubes[place] = np.vdot(products @ products, products)
    return cubes
