"""The law of T in pairs, where permutations are random signs.

C = sum_b e_b v_b over pairs b with random signs e_b, and v_b = d_b (x) g_b with the differences of the pair in the
factors of the feature and of the response. T = |C|^2 has mean tr V, variance 2 (tr V^2 - sum_b |v_b|^4) and third
central moment 8 (tr V^3 - 3 sum_b |v_b|^2 v_b' V v_b + 2 sum_b |v_b|^6), with V = sum_b v_b v_b'.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernsift.estimators.restricted.folded_covariance import (
    ResponseMoments,
    cube_trace,
    row_pairs,
    row_products,
)
from kernsift.estimators.restricted.strata import CACHED, NUMBERS, ROUNDED_VARIANCE, Strata
from kernsift.execution.arrays import slices


class Flips(NamedTuple):
    """Differences within pairs.

    Attributes
    ----------
    terms : (b, m, S) the d_b of b features, times those of a response with one direction.
    squares : (b, S) |d_b|^2.
    response : moments of the response, with the g_b g_b'.
    """

    terms: np.ndarray
    squares: np.ndarray
    response: ResponseMoments

    @classmethod
    def of(cls, factor: np.ndarray, strata: Strata, response: ResponseMoments) -> Flips | None:
        """From factors (b, m, N) centred within strata; None where these are no pairs."""
        if not strata.are_pairs:
            return None
        scale = np.full(len(strata.sizes), np.sqrt(2.0))
        if response.basis.shape == (1, 1, 1):
            scale *= np.sqrt(np.abs(response.coefficients[0] * response.basis[0, 0, 0]))
        terms = factor[:, :, ::2] * scale
        return cls(terms, np.einsum("bms,bms->bs", terms, terms), response)

    @property
    def one_direction(self) -> bool:
        """Whether the response has one."""
        return self.response.basis.shape == (1, 1, 1)

    def covariance(self, other: Flips) -> np.ndarray:
        """(b,) covariances of T with the T of other terms."""
        squares = self.squares * other.squares
        if self.one_direction:
            inner = self.terms @ other.terms.transpose(0, 2, 1)
            return _variance((inner * inner).sum(axis=(1, 2)), squares.sum(axis=1))
        (b, m, count), q = self.terms.shape, other.terms.shape[1]
        between, coefficients = np.empty(b), self.response.coefficients
        for some in slices(0, b, max(1, CACHED // (count * min(m * q, count)))):
            if count <= m * q:
                grams = [part.terms[some].transpose(0, 2, 1) @ part.terms[some] for part in (self, other)]
                between[some] = np.einsum("bst,bst,st->b", *grams, coefficients.T @ coefficients)
                continue
            folded = np.zeros((len(self.terms[some]), m * q, len(coefficients)))
            for pairs in slices(0, count, max(1, NUMBERS // (m * q))):
                products = self.terms[some, :, None, pairs] * other.terms[some, None, :, pairs]
                folded += products.reshape(len(folded), m * q, -1) @ coefficients[:, pairs].T
            between[some] = np.einsum("bmk,bmk->b", folded, folded)
        return _variance(between, squares @ self.response.squares)

    def moments(self, target: np.ndarray, strata: Strata) -> tuple[np.ndarray, np.ndarray]:
        """(b,) variances and third central moments of T; `target` (p, N) is the factor of the response."""
        if self.one_direction:
            inner = self.terms @ self.terms.transpose(0, 2, 1)
            turned = np.einsum("bms,bms->bs", inner @ self.terms, self.terms)
            own = (self.squares * (2.0 * self.squares**2 - 3.0 * turned)).sum(axis=1)
            return self.covariance(self), 8.0 * (((inner @ inner) * inner).sum(axis=(1, 2)) + own)
        b, m, count = self.terms.shape
        least = min(m * (m + 1) // 2, count)
        parts = list(slices(0, b, max(1, CACHED // (count * least))))
        moments = self._from_products if count <= m * len(target) else self._from_folded
        variance, third = (
            np.concatenate(part) for part in zip(*(moments(some, target, strata) for some in parts), strict=True)
        )
        return variance, third

    def _from_products(self, some: slice, target: np.ndarray, strata: Strata) -> tuple[np.ndarray, np.ndarray]:
        """From the products of all v_b, for few pairs."""
        terms, own = self.terms[some], np.sqrt(2.0) * target[:, ::2]
        off = (terms.transpose(0, 2, 1) @ terms) * (own.T @ own)
        diagonal = np.einsum("bss->bs", off)
        squares = (diagonal**2).sum(axis=1)
        diagonal[:] = 0.0
        between = np.einsum("bst,bst->b", off, off)
        return _variance(between + squares, squares), 8.0 * np.einsum("bst,bst->b", off @ off, off)

    def _from_folded(self, some: slice, target: np.ndarray, strata: Strata) -> tuple[np.ndarray, np.ndarray]:
        """From the matrices A_k."""
        terms, coefficients = self.terms[some], self.response.coefficients
        _, m, count = terms.shape
        own = self.squares[some] * np.sqrt(self.response.squares)
        folded, turned = np.zeros((2, len(terms), m * (m + 1) // 2, len(coefficients)))
        for pairs in slices(0, count, max(1, NUMBERS // (m * m))):
            products, shares = row_products(terms[:, :, pairs]), coefficients[:, pairs]
            folded += products @ shares.T
            turned += products @ (shares * own[:, None, pairs]).swapaxes(-1, -2)
        variance = _variance(np.einsum("bmk,bmk->b", folded, folded), (own * own).sum(axis=1))
        first, second, scale = row_pairs(m)
        matrices = np.empty((self.response.terms, len(terms), m, m))
        matrices[:, :, first, second] = (folded[:, :, : self.response.terms] / scale[:, None]).transpose(2, 0, 1)
        matrices[:, :, second, first] = matrices[:, :, first, second]

        def pooled(shares: np.ndarray) -> np.ndarray:
            return np.asarray((terms * shares) @ terms.transpose(0, 2, 1))

        cube = cube_trace(matrices, self.response.basis[: len(matrices)], target, pooled, strata)
        between = np.einsum("bmk,bmk->b", folded, turned)
        return variance, 8.0 * (cube - 3.0 * between + 2.0 * (own**3).sum(axis=1))


def _variance(between: np.ndarray, own: np.ndarray) -> np.ndarray:
    """(b,) variances from tr V^2 and the terms of pairs with themselves; 0 for rounding errors."""
    return np.where(between - own > ROUNDED_VARIANCE * (between + own), 2.0 * (between - own), 0.0)
