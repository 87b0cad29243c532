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

Rows with equal factors count as one point with a weight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import helmert

from kernsift.estimators.restricted.strata import NUMBERS, Strata
from kernsift.execution.arrays import slices

# Products of the response's scatter matrices below this share of the largest do not count.
_NEGLIGIBLE = 1e-7
# A variance below this share of its terms is rounding error: T is the same for every permutation.
_ROUNDING = 1e-10
# Leading directions whose third moments are summed over strata, for few and for many rows.
_CUBES, _FEW_ROWS, _FEWER_CUBES = 12, 256, 5
# Third moments leave out matrices B_k with less than this share of the squares, and those beyond the first few.
_FAINT, _TERMS = 1e-14, 48
# The largest V, or matrix with its eigenvalues, whose third power is computed as it is.
_LARGEST = 128


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
        terms = min(max(int((behind > _FAINT * behind[0]).sum()), 1), _TERMS, kept)
        second = _second(squares, first, last, strata)
        return cls((left[:, :kept] * values[:kept]).T, basis, terms, second, squares / (sizes - 1) ** 2)


def _second(squares: np.ndarray, one: np.ndarray, other: np.ndarray, strata: Strata) -> np.ndarray:
    """(..., S, 2) invariants of second order, from sums of K_ij L_ij (..., S) and diagonals (..., N)."""
    traces, products = strata.sums(one) * strata.sums(other), strata.sums(one * other)
    return np.stack([squares - traces / (strata.sizes - 1), products - traces / strata.sizes], axis=-1)


class Flips(NamedTuple):
    """The terms of C = sum_b e_b v_b over random signs e_b: pairs, and a response with one direction.

    T = |C|^2 has mean tr V, variance 2 (tr V^2 - sum_b |v_b|^4) and third central moment
    8 (tr V^3 - 3 sum_b |v_b|^2 v_b' V v_b + 2 sum_b |v_b|^6), with V = sum_b v_b v_b'. `terms` (b, m, S) are the v_b of
    b features, and `squares` (b, S) the |v_b|^2.
    """

    terms: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, factor: np.ndarray, strata: Strata, response: ResponseMoments) -> Flips | None:
        """From factors (b, m, N) centred within strata; None where C is no such sum."""
        if not strata.are_pairs or response.basis.shape != (1, 1, 1):
            return None
        terms = factor[:, :, ::2] * np.sqrt(2.0 * np.abs(response.coefficients[0] * response.basis[0, 0, 0]))
        return cls(terms, np.einsum("bms,bms->bs", terms, terms))

    def covariance(self, other: Flips) -> np.ndarray:
        """(b,) covariances of T with the T of other terms."""
        inner = self.terms @ other.terms.transpose(0, 2, 1)
        between, own = (inner * inner).sum(axis=(1, 2)), (self.squares * other.squares).sum(axis=1)
        return np.where(between - own > _ROUNDING * (between + own), 2.0 * (between - own), 0.0)

    def third_moment(self) -> np.ndarray:
        """(b,) third central moments of T."""
        inner = self.terms @ self.terms.transpose(0, 2, 1)
        turned = np.einsum("bms,bms->bs", inner @ self.terms, self.terms)
        own = (self.squares * (2.0 * self.squares**2 - 3.0 * turned)).sum(axis=1)
        return np.asarray(8.0 * (((inner @ inner) * inner).sum(axis=(1, 2)) + own))


def covariance(one: np.ndarray, other: np.ndarray, strata: Strata, response: ResponseMoments) -> np.ndarray:
    """(b,) covariances of T under two views of b features, with factors (b, m, N) and (b, q, N) centred within strata.

    `response` are the moments of the two views of the response in these statistics.
    """
    flips = [Flips.of(part, strata, response) for part in (one, other)]
    if flips[0] is not None and flips[1] is not None:
        return flips[0].covariance(flips[1])
    step = max(1, NUMBERS // (len(response.coefficients) * one.shape[1] * other.shape[1]))
    parts = slices(0, len(one), step)
    counted = strata.weighted(one)
    found = [_between_and_squares(counted[part], other[part], strata, response.coefficients) for part in parts]
    between, squares = np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])
    diagonal, other_diagonal = ((part * part).sum(axis=1) for part in (one, other))
    second = _second(squares, diagonal, other_diagonal, strata)
    within = np.einsum("bsi,sij,sj->b", second, strata.moment_matrices(2), response.second, optimize=True)
    total = 2.0 * (between - squares @ response.squares) + within
    scale = 2.0 * (between + squares @ response.squares) + np.abs(within)
    return np.where(total > _ROUNDING * scale, total, 0.0)


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
    """What the third moment of T needs of the factors of b features, or of a response.

    Attributes
    ----------
    folded : (k, b, m, m) the matrices A_k, or B_k of a response.
    factor, counted : (b, m, N) the factors, and these times the weights of points.
    strata : of the factors.
    cubes : (b, S) tr S_b^3.
    third : (b, S, 5) invariants of third order of each stratum.
    own, other : (b, S, 2) and (k, b, S, 2) mixed invariants of second order of S_b with itself and with A_k.
    crossed : (k, b, S) tr(S_b^2 A_k).
    vectors, tensors : (b, m, S) and (b, m', m', m', S) third moments.
    """

    folded: np.ndarray
    factor: np.ndarray
    counted: np.ndarray
    strata: Strata
    cubes: np.ndarray
    third: np.ndarray
    own: np.ndarray
    other: np.ndarray
    crossed: np.ndarray
    vectors: np.ndarray
    tensors: np.ndarray

    @classmethod
    def of_features(cls, factor: np.ndarray, strata: Strata, response: ResponseMoments) -> ThirdMoments:
        """From factors (b, m, N) centred within strata, the leading directions first."""
        b, m, _ = factor.shape
        folded = np.zeros((b, response.terms, m * m))
        counted = strata.weighted(factor)
        for run in strata.runs(b * m * m):
            part, other = (strata.split(values, *run).transpose(0, 2, 1, 3) for values in (factor, counted))
            scatter = (part @ other.transpose(0, 1, 3, 2)).reshape(b, -1, m * m)
            folded += response.coefficients[: response.terms, slice(*run)] @ scatter
        return cls.of(factor, folded.reshape(b, -1, m, m).transpose(1, 0, 2, 3), strata)

    @classmethod
    def of_response(cls, factor: np.ndarray, strata: Strata, response: ResponseMoments) -> ThirdMoments:
        """From a factor (p, N) centred within strata."""
        return cls.of(factor[None], response.basis[: response.terms, None], strata)

    @classmethod
    def of(cls, factor: np.ndarray, folded: np.ndarray, strata: Strata) -> ThirdMoments:
        """From factors (b, m, N) centred within strata and the matrices of `folded`."""
        b, m, rows = factor.shape
        count, sizes, counted = len(strata.sizes), strata.sizes, strata.weighted(factor)
        leading = min(m, _CUBES if rows <= _FEW_ROWS else _FEWER_CUBES)
        cubes, squares, cubed = (np.zeros((b, count)) for _ in range(3))
        crossed, inner, outer = (np.zeros((len(folded), b, count)) for _ in range(3))
        vectors, tensors = np.zeros((b, m, count)), np.zeros((b, leading, leading, leading, count))
        diagonal = (factor * factor).sum(axis=1)
        twice = np.empty_like(diagonal)  # diagonal of K^2
        flat = folded.reshape(len(folded), b, -1).transpose(1, 2, 0)
        for run in strata.runs(b * m * m):
            part, other = (strata.split(values, *run).transpose(0, 2, 1, 3) for values in (factor, counted))
            own = strata.split(diagonal, *run)
            place, first = slice(*run), int(strata.starts[run[0]])
            scatter = part @ other.transpose(0, 1, 3, 2)
            turned = scatter @ part
            second = turned @ other.transpose(0, 1, 3, 2)
            twice[:, first : first + own[0].size] = np.einsum("bsmn,bsmn->bsn", part, turned).reshape(b, -1)
            squares[:, place] = np.einsum("bsij,bsij->bs", scatter, scatter)
            cubes[:, place] = np.einsum("bsij,bsij->bs", second, scatter)
            weighted = (part * own[:, :, None]) @ other.transpose(0, 1, 3, 2)
            for found, matrices in ((crossed, second), (inner, scatter), (outer, weighted)):
                found[:, :, place] = (matrices.reshape(b, -1, m * m) @ flat).transpose(2, 0, 1)
            vectors[:, :, place] = (other @ own[..., None])[..., 0].transpose(0, 2, 1)
            if sizes[run[1] - 1] > 2:
                lead = part[:, :, :leading]
                found = np.einsum("bsin,bsjn,bskn->bijks", lead, lead, other[:, :, :leading], optimize=True)
                tensors[..., place] = found
                lost = own**3 - (lead * lead).sum(axis=2) ** 3  # the diagonal is known in full
                if strata.weights is not None:
                    lost *= strata.split(strata.weights, *run)
                # Entries of a pair cancel.
                found = (found * found).sum(axis=(1, 2, 3)) + lost.sum(axis=2)
                cubed[:, place] = np.where(sizes[place] > 2, found, 0.0)
        trace = strata.sums(diagonal)
        third = _third(strata, trace, squares, cubes, cubed, diagonal, twice, vectors)
        twice = strata.sums(diagonal * twice)
        own = np.stack([cubes - trace * squares / (sizes - 1), twice - trace * squares / sizes], axis=-1)
        other = np.stack([crossed - trace * inner / (sizes - 1), outer - trace * inner / sizes], axis=-1)
        return cls(folded, factor, counted, strata, cubes, third, own, other, crossed, vectors, tensors)


def _third(
    strata: Strata,
    trace: np.ndarray,
    squares: np.ndarray,
    cubes: np.ndarray,
    cubed: np.ndarray,
    diagonal: np.ndarray,
    twice: np.ndarray,
    vectors: np.ndarray,
) -> np.ndarray:
    """(b, S, 5) invariants of third order with the trace taken out, as in `permutation_law.invariants`."""
    n = strata.sizes
    shift = trace / (n - 1)
    off = shift / n
    rows = strata.of_row
    rest = diagonal - (shift * (1 - 1 / n))[:, rows]
    rest2, rest3 = strata.sums(rest * rest), strata.sums(rest * rest**2)
    mixed = rest * (twice - 2 * shift[:, rows] * diagonal + (shift**2 * (1 - 1 / n))[:, rows])
    cubes_of_rows = strata.sums((diagonal + off[:, rows]) ** 3)
    entries = cubed + 3 * off * squares + n * n * off**3 - cubes_of_rows + rest3
    between = (vectors * vectors).sum(axis=1) - shift * rest2
    power = cubes - 3 * shift * squares + 3 * shift**2 * trace - shift**3 * (n - 1)
    return np.stack([power, rest3, entries, strata.sums(mixed), between], axis=-1)


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
    """(b,) tr V^3.

    V has the eigenvalues of the smaller of two matrices: V itself, or the products of f (x) g between all pairs of
    contrasts of a stratum. If both are large, the leading directions count as they are, and the rest as if the response
    varied alike in all strata: V = A (x) R.
    """
    m, p = one.folded.shape[-1], other.folded.shape[-1]
    free = strata.sizes - 1
    if len(one.folded) == 1:
        parts = (one.folded[0], other.folded[0])
        return np.asarray(np.prod(np.broadcast_arrays(*(((a @ a) * a).sum(axis=(1, 2)) for a in parts)), axis=0))
    if (free**2).sum() < min(m * p, 2 * _LARGEST) and one.strata.weights is None:
        return _contrast_cube(one.factor, other.factor[0], strata)
    q = p if m * p <= _LARGEST else min(p, 8)
    lead = min(m, max(1, _LARGEST // q))
    whole = np.einsum("kbij,kpq->bipjq", one.folded[..., :lead, :lead], other.folded[:, 0, :q, :q], optimize=True)
    whole = whole.reshape(-1, lead * q, lead * q)
    found = ((whole @ whole) * whole.transpose(0, 2, 1)).sum(axis=(1, 2))
    if m * p <= _LARGEST:
        return np.asarray(found)
    target = other.factor[0]
    shares = strata.sums((target * target).sum(axis=0)) / free
    pooled = (one.factor * shares[one.strata.of_row]) @ one.counted.transpose(0, 2, 1)
    response = target @ target.T / (target * target).sum()
    totals = [np.trace(part @ part @ part, axis1=-2, axis2=-1) for part in (pooled, response)]
    pooled, response = pooled[..., :lead, :lead], response[:q, :q]
    leading = [np.trace(part @ part @ part, axis1=-2, axis2=-1) for part in (pooled, response)]
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
    products = (own.transpose(0, 2, 1) @ own) * (target.T @ target)[np.ix_(columns, columns)]
    return np.asarray(((products @ products) * products).sum(axis=(1, 2)))
