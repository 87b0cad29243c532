"""The permutation law of T = tr(K L) where rows are exchangeable only within strata, without running a permutation.

K = F'F and L = G'G are Gram matrices of factors centred within strata. Permutations within strata make
C = sum_b F_b P_b G_b' a sum of independent terms, one for each stratum b, with mean 0 and covariances
V_b = S_b (x) R_b / (n_b - 1), where S_b and R_b are the scatter matrices of the two factors in the stratum and n_b is
its number of rows. T = |C|^2 has the moments

    E T   = tr V, with V = sum_b V_b
    Var T = 2 (tr V^2 - sum_b tr V_b^2) + sum_b Var(T_b)
    mu3 T = 8 (tr V^3 - 3 sum_b tr V_b^2 V + 2 sum_b tr V_b^3) + sum_b mu3(T_b)
          + 12 sum_b Cov(T_b, x_b'(V - V_b) x_b)
          + 6 (|sum_b w_b u_b h_b'|^2 - sum_b w_b^2 |u_b|^2 |h_b|^2)
          + 4 (|sum_b w_b M_b (x) N_b|^2 - sum_b w_b^2 |M_b|^2 |N_b|^2)

T_b is the statistic of one stratum, whose moments `kernsift.estimators.null_laws.permutation_law` has, x_b its part of
C, and w_b = n_b / ((n_b - 1)(n_b - 2)), 0 for pairs. u_b = sum_i |f_i|^2 f_i and M_b = sum_i f_i (x) f_i (x) f_i are
third moments of the feature's factor, h_b and N_b those of the response's.

The sums over strata in V are folded into few matrices: the R_b / (n_b - 1) are combinations of matrices
B_k, a single one where the response has one direction, so that V = sum_k A_k (x) B_k with weighted sums A_k of the S_b.
For a response with many directions the third moment leaves out what the first few B_k do not explain.

Rows with equal factors count as one point with a weight. In pairs permutations are random signs, whose law needs fewer
sums (`kernsift.estimators.restricted.sign_flips`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kernsift.estimators.restricted.folded_covariance import (
    ResponseMoments,
    cube_trace,
    row_products,
    second_invariants,
)
from kernsift.estimators.restricted.sign_flips import Flips
from kernsift.estimators.restricted.strata import CACHED, NUMBERS, ROUNDED_VARIANCE, Strata
from kernsift.execution.arrays import slices

# Leading directions whose third moments are summed over strata, for few and for many rows.
_CUBES, _FEW_ROWS, _FEWER_CUBES = 12, 256, 5


def covariance(one: np.ndarray, other: np.ndarray, strata: Strata, response: ResponseMoments) -> np.ndarray:
    """(b,) covariances of T under two views of b features, with factors (b, m, N) and (b, q, N) centred within strata.

    `response` are the moments of the two views of the response in these statistics.
    """
    flips = [Flips.of(part, strata, response) for part in (one, other)]
    if flips[0] is not None and flips[1] is not None:
        return flips[0].covariance(flips[1])
    step = max(1, CACHED // (max(len(strata.sizes), len(response.coefficients)) * one.shape[1] * other.shape[1]))
    parts = slices(0, len(one), step)
    counted = strata.weighted(one)
    found = [_between_and_squares(counted[part], other[part], strata, response.coefficients) for part in parts]
    between, squares = np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])
    diagonal, other_diagonal = (np.einsum("bmn,bmn->bn", part, part) for part in (one, other))
    return _covariance(between, squares, second_invariants(squares, diagonal, other_diagonal, strata), strata, response)


def _covariance(
    between: np.ndarray, squares: np.ndarray, second: np.ndarray, strata: Strata, response: ResponseMoments
) -> np.ndarray:
    """(b,) covariances from sums (b,) of |A_k|^2, |S_s|^2 (b, S) and invariants of second order (b, S, 2)."""
    within = np.einsum("bsi,sij,sj->b", second, strata.moment_matrices(2), response.second, optimize=True)
    total = 2.0 * (between - squares @ response.squares) + within
    scale = 2.0 * (between + squares @ response.squares) + np.abs(within)
    return np.where(total > ROUNDED_VARIANCE * scale, total, 0.0)


def _between_and_squares(
    one: np.ndarray, other: np.ndarray, strata: Strata, coefficients: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sums (b,) of |A_k|^2, and |S_s|^2 (b, S), with A_k the sum of S_s = F_s G_s' with the coefficients (k, S)."""
    b, squares, folded = len(one), np.empty((len(one), len(strata.sizes))), np.zeros(())
    for run in strata.runs(b * one.shape[1] * other.shape[1]):
        first, second = (strata.split(part, *run).transpose(0, 2, 1, 3) for part in (one, other))
        scatter = (first @ second.transpose(0, 1, 3, 2)).reshape(b, run[1] - run[0], -1)
        squares[:, slice(*run)] = np.einsum("bsm,bsm->bs", scatter, scatter)
        folded = folded + coefficients[:, slice(*run)] @ scatter
    return (folded * folded).sum(axis=(1, 2)), squares


class ThirdMoments(NamedTuple):
    """What the variance and the third moment of T need of the factors of b features, or of a response.

    Attributes
    ----------
    folded : (k, b, m, m) the matrices A_k, or B_k of a response, as many as third moments use.
    between : (b,) sums of |A_k|^2 over all k; 0 for a response.
    squares, cubes : (b, S) |S_b|^2 and tr S_b^3.
    second, third : (b, S, 2) and (b, S, 5) invariants of second and third order of each stratum.
    own, other : (b, S, 2) and (k, b, S, 2) mixed invariants of second order of S_b with itself and with A_k.
    crossed : (k, b, S) tr(S_b^2 A_k).
    vectors, tensors : (b, m, S) and (b, q, S) third moments, the latter those of q triples of leading directions.
    factor : (b, m, N) the factors, whose rows or points are in the
    strata : of these features.
    """

    folded: np.ndarray
    between: np.ndarray
    squares: np.ndarray
    cubes: np.ndarray
    second: np.ndarray
    third: np.ndarray
    own: np.ndarray
    other: np.ndarray
    crossed: np.ndarray
    vectors: np.ndarray
    tensors: np.ndarray
    factor: np.ndarray
    strata: Strata

    @classmethod
    def of_features(cls, factor: np.ndarray, strata: Strata, response: ResponseMoments) -> ThirdMoments:
        """From factors (b, m, N) centred within strata, the leading directions first."""
        b, m, _ = factor.shape
        step = max(1, CACHED // (len(strata.sizes) * m * m))
        parts = [cls._of(factor[some], strata.part(some), response) for some in slices(0, b, step)]
        axes = [1 if name in ("folded", "other", "crossed") else 0 for name in cls._fields[:-2]]
        joined = zip(*(part[:-2] for part in parts), strict=True)
        return cls._make([*map(np.concatenate, joined, axes), factor, strata])

    @classmethod
    def of_response(cls, factor: np.ndarray, strata: Strata, response: ResponseMoments) -> ThirdMoments:
        """From a factor (p, N) centred within strata."""
        return cls._of(factor[None], strata, response, response.basis[: response.terms, None])

    @classmethod
    def _of(
        cls, factor: np.ndarray, strata: Strata, response: ResponseMoments, folded: np.ndarray | None = None
    ) -> ThirdMoments:
        """From factors (b, m, N) centred within strata; A_k are the matrices of `folded`, or those of the factors."""
        b, m, rows = factor.shape
        count, counted, runs = len(strata.sizes), strata.weighted(factor), list(strata.runs(b * m * m))
        diagonal = np.einsum("bmn,bmn->bn", factor, factor)

        def split(run: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
            part = strata.split(factor, *run).transpose(0, 2, 1, 3)
            return part, part if counted is factor else strata.split(counted, *run).transpose(0, 2, 1, 3)

        def scatters() -> Iterator[np.ndarray]:
            return (part @ other.transpose(0, 1, 3, 2) for part, other in map(split, runs))

        kept = list(scatters()) if count * b * m * m <= NUMBERS else None
        between = np.zeros(b)
        if folded is None:
            flat = np.zeros((b, len(response.coefficients), m * m))
            for run, scatter in zip(runs, kept or scatters(), strict=True):
                flat += response.coefficients[:, slice(*run)] @ scatter.reshape(b, -1, m * m)
            between, flat = np.einsum("bkm,bkm->b", flat, flat), flat[:, : response.terms]
            folded, flat = flat.reshape(b, -1, m, m).transpose(1, 0, 2, 3), flat.transpose(0, 2, 1)
        else:
            flat = folded.reshape(len(folded), b, -1).transpose(1, 2, 0)
        cubes, squares, cubed, outer = (np.zeros((b, count)) for _ in range(4))
        crossed, inner, weighted = (np.zeros((b, count, len(folded))) for _ in range(3))
        vectors = np.zeros((b, m, count))
        leading = min(m, _CUBES if rows <= _FEW_ROWS else _FEWER_CUBES)
        tensors = np.zeros((b, leading * (leading + 1) // 2 * leading, count))
        for run, scatter in zip(runs, kept or scatters(), strict=True):
            part, other = split(run)
            length, place = strata.split(diagonal, *run), slice(*run)
            squared, scaled = scatter @ scatter, (part * length[:, :, None]) @ other.transpose(0, 1, 3, 2)
            for found, one in ((squares, scatter), (cubes, squared), (outer, scaled)):
                found[:, place] = np.einsum("bsij,bsij->bs", one, scatter)
            for mixed, one in ((inner, scatter), (crossed, squared), (weighted, scaled)):
                mixed[:, place] = one.reshape(b, -1, m * m) @ flat
            vectors[:, :, place] = (other @ length[..., None])[..., 0].transpose(0, 2, 1)
            if strata.sizes[run[1] - 1] > 2:
                lead = part[:, :, :leading]
                tensor = row_products(lead) @ other[:, :, :leading].transpose(0, 1, 3, 2)
                tensors[..., place] = tensor.reshape(b, place.stop - place.start, -1).transpose(0, 2, 1)
                entries = np.einsum("bsij,bsij->bs", tensor, tensor)
                if leading < m:
                    weights = None if strata.weights is None else strata.split(strata.weights, *run)
                    entries += _lost_cubes(part, lead, length, weights, rows <= _FEW_ROWS)
                # Entries of a pair cancel.
                cubed[:, place] = np.where(strata.sizes[place] > 2, entries, 0.0)
        trace, n = strata.sums(diagonal), strata.sizes
        second = second_invariants(squares, diagonal, diagonal, strata)
        third = _third(strata, trace, squares, cubes, cubed, diagonal, outer, vectors)
        own = np.stack([cubes - trace * squares / (n - 1), outer - trace * squares / n], axis=-1)
        crossed, inner, weighted = (found.transpose(2, 0, 1) for found in (crossed, inner, weighted))
        other = np.stack([crossed - trace * inner / (n - 1), weighted - trace * inner / n], axis=-1)
        sums = (folded, between, squares, cubes, second, third, own, other, crossed, vectors, tensors)
        return cls(*sums, factor, strata)

    def variance(self, response: ResponseMoments) -> np.ndarray:
        """(b,) variances of T."""
        return _covariance(self.between, self.squares, self.second, self.strata, response)


def _lost_cubes(
    part: np.ndarray, lead: np.ndarray, length: np.ndarray, weights: np.ndarray | None, entries: bool
) -> np.ndarray:
    """(b, s) sums of K_ij^3 that the leading directions (b, s, l, n) of all (b, s, m, n) leave out.

    Of all `entries`, or only of the diagonal `length` (b, s, n), which is known. With a bandwidth that is small for the
    distances between rows nearly all eigenvalues are equal, and few directions have none of the third moment.
    """
    if not entries:
        lost = length**3 - np.einsum("bsmn,bsmn->bsn", lead, lead) ** 3
        return np.asarray((lost if weights is None else lost * weights).sum(axis=2))
    cubes = [(one.transpose(0, 1, 3, 2) @ one) ** 3 for one in (part, lead)]
    lost = cubes[0] - cubes[1]
    if weights is not None:
        lost *= weights[..., None] * weights[..., None, :]
    return np.asarray(lost.sum(axis=(2, 3)))


def _third(
    strata: Strata,
    trace: np.ndarray,
    squares: np.ndarray,
    cubes: np.ndarray,
    cubed: np.ndarray,
    diagonal: np.ndarray,
    outer: np.ndarray,
    vectors: np.ndarray,
) -> np.ndarray:
    """(b, S, 5) invariants of third order with the trace taken out, as in `permutation_law.invariants`.

    `outer` (b, S) are the sums of K_ii K_ij^2.
    """
    n = strata.sizes
    shift = trace / (n - 1)
    off, level = shift / n, shift * (1 - 1 / n)
    rows = strata.of_row
    rest = diagonal - level[:, rows]
    rest2, rest3 = strata.sums(rest * rest), strata.sums(rest * rest**2)
    mixed = outer - level * squares - 2 * shift * rest2
    cubes_of_rows = strata.sums((diagonal + off[:, rows]) ** 3)
    entries = cubed + 3 * off * squares + n * n * off**3 - cubes_of_rows + rest3
    between = (vectors * vectors).sum(axis=1) - shift * rest2
    power = cubes - 3 * shift * squares + 3 * shift**2 * trace - shift**3 * (n - 1)
    return np.stack([power, rest3, entries, mixed, between], axis=-1)


def third_moment(one: ThirdMoments, other: ThirdMoments, strata: Strata) -> np.ndarray:
    """(b,) third central moments of T, from those of the features and of the response."""
    n = strata.sizes
    rho = 1.0 / (n - 1)
    pairs = n == 2
    w = np.where(pairs, 0.0, n / ((n - 1) * np.where(pairs, 1, n - 2)))
    second = strata.moment_matrices(2)
    total = np.einsum("bsi,sij,tsj->b", one.third, strata.moment_matrices(3), other.third, optimize=True)
    total += 8.0 * _cube(one, other, strata) + 16.0 * (one.cubes * other.cubes * rho**3).sum(axis=1)
    total -= 12.0 * np.einsum("bsi,sij,tsj,s->b", one.own, second, other.own, rho, optimize=True)
    total -= 24.0 * (one.crossed * other.crossed * rho**2).sum(axis=(0, 2))
    total += 12.0 * np.einsum("kbsi,sij,ktsj->b", one.other, second, other.other, optimize=True)
    if pairs.all():
        return np.asarray(total)
    for (ours, theirs), count in (((one.vectors, other.vectors), 6.0), ((one.tensors, other.tensors), 4.0)):
        left, right = (ours * w).reshape(len(total), -1, len(n)), theirs.reshape(-1, len(n))
        # The smaller of two ways to sum squares of products.
        if len(right) < len(n):
            whole = ((left @ right.T) ** 2).sum(axis=(1, 2))
        else:
            whole = ((left.transpose(0, 2, 1) @ left) * (right.T @ right)).sum(axis=(1, 2))
        total += count * (whole - ((left**2).sum(axis=1) * (right**2).sum(axis=0)).sum(axis=1))
    return np.asarray(total)


def _cube(one: ThirdMoments, other: ThirdMoments, strata: Strata) -> np.ndarray:
    """(b,) tr V^3."""

    def pooled(shares: np.ndarray) -> np.ndarray:
        weighted = one.strata.weighted(one.factor * shares[one.strata.of_row])
        return np.asarray(weighted @ one.factor.transpose(0, 2, 1))

    rows = one.factor if one.strata.weights is None else None
    return cube_trace(one.folded, other.folded[:, 0], other.factor[0], pooled, strata, rows)
