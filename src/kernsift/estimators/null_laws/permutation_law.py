"""The permutation distribution of T = tr(K L), without permutations.

K and L are centred Gram matrices of a feature and of the response. Under independence every matching of their rows is
equally likely, so the null law of T is that of tr(K P L P') over random permutation matrices P. Its first three moments
are exact: they are sums over index patterns, of which few are nonzero for centred matrices (Kazi-Aoual et al. 1995 give
the first two in this way). For large n, T is a weighted sum of chi-squares with the products of the eigenvalues as
weights; that shape, matched to the three exact moments, gives the normal score.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from kernsift.execution.arrays import (
    Array,
    asarray_like,
    at_least,
    bounded,
    computed_at,
    in_place,
    namespace,
    on_host,
    slices,
    to_numpy,
)
from kernsift.kernels.group_views import GroupView
from kernsift.kernels.low_rank import View

# The patterns of the third moment: the number of distinct indices, the sum in terms of the invariants (trace K^3,
# sum K_ii^3, sum K_ij^3, sum K_ii K_ij^2, sum K_ii K_ij K_jj), and the multiplicity. They follow by Moebius inversion
# over the 203 partitions of six indices, which a test repeats.
_THIRD = (
    (1, (0, 1, 0, 0, 0), 1),
    (2, (0, -1, 0, 0, 0), 9),
    (2, (0, -1, 0, 0, 1), 6),
    (2, (0, -1, 0, 1, 0), 12),
    (2, (0, -1, 1, 0, 0), 4),
    (3, (0, 2, -1, -1, 0), 24),
    (3, (0, 2, 0, -2, 0), 6),
    (3, (0, 2, 0, -1, -1), 24),
    (3, (0, 2, 0, -1, 0), 12),
    (3, (0, 2, 0, 0, -1), 12),
    (3, (0, 2, 0, 0, 0), 4),
    (3, (1, 2, 0, -3, 0), 8),
    (4, (-1, -6, 1, 5, 1), 24),
    (4, (0, -6, 0, 0, 2), 3),
    (4, (0, -6, 0, 2, 2), 12),
    (4, (0, -6, 0, 3, 2), 12),
    (4, (0, -6, 2, 3, 0), 8),
    (4, (0, -6, 2, 4, 0), 6),
    (5, (0, 24, 0, -8, -8), 3),
    (5, (2, 24, -4, -16, -4), 12),
    (6, (-8, -120, 16, 72, 24), 1),
)
# Likewise for the second moment, in terms of sum K_ij^2 and sum K_ii^2.
_SECOND = (
    (1, (0, 1), 1),
    (2, (0, -1), 5),
    (2, (1, -1), 2),
    (3, (0, 2), 2),
    (3, (-1, 2), 4),
    (4, (2, -6), 1),
)
# Largest weights of the limit law that are kept; the others are merged.
_WEIGHTS_KEPT = 16
# Skewness below this is replaced by it: the shape of a gamma variable is finite, and the upper tail conservative.
_LEAST_SKEWNESS = 0.05
# The largest share of the squared eigenvalues that directions without third moments may have.
_LEFT_OUT = 0.1
# Points whose products are in memory at a time: a group of columns has one for each row.
_POINTS = 2**15
# Differences of the eigenvalues below these shares of their squares are rounding error, in double and single precision.
_ROUNDING, _ROUNDING32 = 1e-10, 1e-4
# Likewise for the cube of the standard deviation of T, as a share of the terms of its third moment.
_ROUNDING3 = 1e-13


class Invariants(NamedTuple):
    """Sums over a centred Gram matrix, after its trace is removed, that the permutation moments depend on."""

    trace: np.ndarray
    second: np.ndarray
    third: np.ndarray


@lru_cache(maxsize=256)
def moment_matrix(order: int, n: int) -> np.ndarray:
    """M with E (T - E T)^order = k' M l, where k and l are the invariants of that order."""
    patterns = _SECOND if order == 2 else _THIRD
    size = len(patterns[0][1])
    matrix = np.zeros((size, size))
    for indices, sums, multiplicity in patterns:
        if indices <= n:
            matrix += multiplicity * np.outer(sums, sums) / float(math.perm(n, indices))
    return matrix


def invariants(
    view: View | GroupView, counts: Array, n: int, every_direction: bool = False
) -> tuple[Invariants, Array]:
    """The invariants of the Gram matrices of n rows, from factors on points that represent `counts` (b, G) rows each.

    Also returns the diagonals (b, G) of the matrices, after their trace is removed. With `every_direction`, third
    moments are computed from all directions, and not from the leading ones.
    """
    sizes = view.sizes
    xp = namespace(sizes)
    trace, square, cube = (xp.sum(sizes**power, axis=1) for power in (1, 2, 3))
    shift = trace / (n - 1)
    level = (shift * (1 - 1 / n))[:, None]
    spread = square - shift * trace
    kept = np.ones(tuple(sizes.shape), dtype=bool) if every_direction else _leading(sizes, n, to_numpy(spread))
    if isinstance(view, GroupView):
        diagonal, own, leading, along = view.row_sums(kept.shape[1], float(level[0, 0]))
    else:
        entries = view.factor * view.factor
        diagonal = xp.sum(entries, axis=1)
        own = (sizes[:, None, :] @ entries)[:, 0, :]  # diagonal of K^2
        leading = view.factor[:, : kept.shape[1], :]
        along = (view.factor @ (counts * (diagonal - level))[:, :, None])[:, :, 0]
    if not kept.all():
        leading = leading * asarray_like(kept.astype(float), leading)[:, :, None]
    rest = diagonal - level  # diagonal of K - shift H, H the centring matrix
    weighted = counts * rest
    rest2 = xp.sum(weighted * rest, axis=1)
    rest3 = xp.sum(weighted * rest * rest, axis=1)
    mixed = xp.sum(weighted * (own - 2 * shift[:, None] * diagonal + (shift**2 * (1 - 1 / n))[:, None]), axis=1)
    between = xp.sum(along**2, axis=1) - shift * rest2
    off = shift / n
    moved = diagonal + off[:, None]
    cubes = (
        _sum_of_cubes(leading, counts, diagonal)
        + 3 * off * square
        + n * n * off**3
        - xp.sum(counts * (moved * moved * moved), axis=1)
        + rest3
    )
    third = [cube - 3 * shift * square + 3 * shift**2 * trace - shift**3 * (n - 1), rest3, cubes, mixed, between]
    # If all eigenvalues are equal, T is the same for every permutation and its computed variance is rounding error.
    constant = spread <= (_ROUNDING if trace.dtype == xp.float64 else _ROUNDING32) * square
    second = [xp.where(constant, 0.0, spread), xp.where(constant, 0.0, rest2)]
    sums = Invariants(to_numpy(trace), to_numpy(xp.stack(second, axis=1)), to_numpy(xp.stack(third, axis=1)))
    return sums, rest


def _leading(sizes: Array, n: int, spread: np.ndarray) -> np.ndarray:
    """(b, q) bool: the leading directions that third moments are computed from; fewer for more rows, which need fewer.

    Directions with equal eigenvalues are arbitrary within their span, so that a feature has all of them or none.
    `spread` (b,) are the sums of squared eigenvalues without the part that their mean has, from which T varies. With a
    bandwidth that is small for the distances between rows nearly all eigenvalues are equal, and T hardly varies: then
    all directions are needed.
    """
    known = to_numpy(sizes)
    most = known.shape[1]
    least = min(most, 16 if n <= 200 else 8 if n <= 400 else 5)
    asked = np.arange(most) < least
    asked = np.broadcast_to(asked, known.shape).copy()
    if n <= 200:
        asked |= ((known[:, least:] ** 2).sum(axis=1) > _LEFT_OUT * spread)[:, None]
    for place in range(least, most):
        asked[:, place] |= asked[:, place - 1] & (known[:, place] > (1.0 - 1e-6) * known[:, place - 1])
    return asked[:, : max(int(asked.any(axis=0).sum()), 1)]


def _sum_of_cubes(leading: Array, counts: Array, diagonal: Array) -> Array:
    """Sum over i, j of K_ij^3: the squared norm of the third moments of the factor's leading directions.

    It is the one invariant whose cost is cubic in the rank, and the one whose weight decreases fastest with n.
    """
    xp, (_, directions, points) = namespace(leading), leading.shape
    turned = xp.matrix_transpose(leading)
    pieces = list(slices(0, points, _POINTS if on_host(leading) else points))
    if points <= 2 * directions:
        gram = turned @ leading
        cubes = xp.sum(counts * ((gram * gram * gram) @ counts[:, :, None])[:, :, 0], axis=1)
    else:
        cubes, thirds = 0.0, list[Array]([0.0] * directions)
        for some in pieces:
            own, weighted = leading[:, :, some], leading[:, :, some] * counts[:, None, some]
            for i in range(directions):
                thirds[i] = thirds[i] + (weighted[:, i : i + 1, :] * own[:, i:, :]) @ turned[:, some, :]
        for third in thirds:
            cubes = cubes + 2.0 * xp.sum(third * third, axis=(1, 2)) - xp.sum(third[:, 0, :] ** 2, axis=1)
    # The diagonal includes all directions.
    for some in pieces:
        partial, whole = xp.sum(leading[:, :, some] * leading[:, :, some], axis=1), diagonal[:, some]
        cubes = cubes + xp.sum(counts[:, some] * (whole * whole * whole - partial * partial * partial), axis=1)
    return cubes


def moments(n: int, one: Invariants, other: Invariants) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Exact mean, standard deviation and skewness of T over all n! permutations."""
    mean = one.trace * other.trace / (n - 1)
    matrix = moment_matrix(2, n)
    total = ((one.second @ matrix) * other.second).sum(-1)
    # If the terms cancel up to rounding, T is the same for every permutation.
    terms = ((np.abs(one.second) @ np.abs(matrix)) * np.abs(other.second)).sum(-1)
    variance = np.where(total > _ROUNDING * terms, total, 0.0)
    sd = np.sqrt(np.maximum(variance, 0.0))
    matrix = moment_matrix(3, n)
    third, terms = one.third @ matrix @ other.third, np.abs(one.third) @ np.abs(matrix) @ np.abs(other.third)
    # A standard deviation that is small beside the rounding error of the third moment leaves no skewness.
    sd = np.where(sd**3 > _ROUNDING3 * terms, sd, 0.0)
    return mean, sd, third / np.where(sd > 0, sd, 1.0) ** 3


def limit_weights(sizes: Array, response_sizes: Array) -> tuple[Array, Array]:
    """Weights and multiplicities of the limit law sum_ab lambda_a mu_b chi2_1, largest first.

    `sizes` (..., m) and `response_sizes` (p,) are the eigenvalues of the two Gram matrices. The largest weights are
    kept; the others are merged into one gamma variable with their mean and variance.
    """
    xp = namespace(sizes)
    weights = xp.reshape(sizes[..., None] * response_sizes, (*sizes.shape[:-1], -1))
    weights = -xp.sort(-weights, axis=-1)
    missing = _WEIGHTS_KEPT + 1 - weights.shape[-1]
    if missing > 0:
        shape = (*weights.shape[:-1], missing)
        weights = xp.concat([weights, xp.zeros(shape, dtype=weights.dtype, device=weights.device)], axis=-1)
        return weights, xp.ones_like(weights)
    top, rest = weights[..., :_WEIGHTS_KEPT], weights[..., _WEIGHTS_KEPT:]
    total, squares = xp.sum(rest, axis=-1), xp.sum(rest * rest, axis=-1)
    some = squares > 0
    last = xp.where(some, squares / xp.where(some, total, 1.0), 0.0)
    count = xp.where(some, total**2 / xp.where(some, squares, 1.0), 1.0)
    return xp.concat([top, last[..., None]], axis=-1), xp.concat([xp.ones_like(top), count[..., None]], axis=-1)


def spectral_score(standardised: Array, skewness: Array, weights: Array, counts: Array) -> Array:
    """Normal score of (T - mean) / sd under a shifted sum of weighted chi-squares.

    The shape is that of the limit law, with all weights multiplied by c and all multiplicities divided by c^2, where c
    is the exact skewness over that of the limit: mean, variance and skewness are then the exact ones, and the far tail,
    which matters with many features, is that of the limit. With a single weight this is the Pearson III law. The tail
    is the saddlepoint approximation by Barndorff-Nielsen's r*, which is a normal score and cannot underflow. A negative
    skewness is replaced by a small positive one, which is conservative in the upper tail.
    """
    xp = namespace(weights)
    scale = xp.sqrt(2.0 * xp.sum(counts * weights**2, axis=-1, keepdims=True))
    weights = weights / xp.where(scale > 0, scale, 1.0)
    skewness = at_least(skewness, _LEAST_SKEWNESS)
    change = skewness / at_least(8.0 * xp.sum(counts * weights * weights * weights, axis=-1), 1e-12)
    weights, counts = weights * change[..., None], counts / change[..., None] ** 2
    largest = at_least(xp.max(weights, axis=-1), 1e-300)
    relative = weights / largest[..., None]
    mean = xp.sum(counts * weights, axis=-1)
    value = xp.maximum(mean + standardised, 1e-9 * mean)
    # Near the mean v is near 1, and the terms of the exponent nearly cancel: both are computed from v - 1.
    away = xp.expm1(log_saddlepoint(value, mean, weights, counts, relative, largest))
    excess = away[..., None] * relative
    spread = 1.0 + excess
    tilt = -away / (2.0 * largest)
    exponent = tilt * value + 0.5 * xp.sum(counts * xp.log1p(excess), axis=-1)
    r = xp.sign(tilt) * xp.sqrt(at_least(2.0 * exponent, 0.0))
    u = tilt * xp.sqrt(2.0 * xp.sum(counts * (weights / spread) ** 2, axis=-1))
    return _r_star(r, u, standardised, skewness)


def log_saddlepoint(value: Array, mean: Array, weights: Array, counts: Array, relative: Array, largest: Array) -> Array:
    """Log of v = 1 - 2 s max(w) at the root s of K'(s) = sum nu w / (1 - 2 s w) = value, by Newton's method."""
    xp = namespace(weights)
    right = value > mean
    leading = xp.sum(xp.where(relative > 1.0 - 1e-12, counts, 0.0), axis=-1)
    low = xp.where(right, xp.log(xp.clip(leading * largest / value, 0.0, 1.0)), 0.0)
    high = xp.where(right, 0.0, xp.log(xp.sum(counts, axis=-1) * largest / value + 1.0))
    products, target, others = counts * weights, xp.log(value), 1.0 - relative
    log_v = xp.where(right, low, 0.0)
    for _ in range(60):
        v = xp.exp(log_v)
        spread = v[..., None] * relative + others
        shares = products / spread
        total = xp.sum(shares, axis=-1)
        beyond = xp.log(total) - target
        low, high = xp.where(beyond > 0, log_v, low), xp.where(beyond > 0, high, log_v)
        # log K' is nearly linear in log v, so that Newton's method converges fast; outside the bracket, bisect.
        slope = v * xp.sum(shares * relative / spread, axis=-1) / total
        step = beyond / at_least(slope, 1e-300)
        moved = log_v + step
        log_v = xp.where((moved >= low) & (moved <= high), moved, 0.5 * (low + high))
        # The error of a small step is its square.
        if bool(xp.all(xp.abs(step) <= 1e-8)):
            break
    return log_v


def _r_star(r: Array, u: Array, standardised: Array, skewness: Array) -> Array:
    """r + log(u / r) / r; at the mean, where that is 0 / 0, its expansion."""
    xp = namespace(r)
    near = xp.abs(standardised) < 1e-3
    safe = xp.where(near | (r == 0), 1.0, r)
    ratio = at_least(xp.where(near, 1.0, u) / safe, 1e-300)
    return xp.where(near, standardised + skewness / 6.0 * (1.0 - standardised**2), safe + xp.log(ratio) / safe)


def gamma_score(standardised: np.ndarray, skewness: np.ndarray) -> np.ndarray:
    """`spectral_score` with a single weight, the Pearson III law, in closed form."""
    skewness = np.maximum(skewness, _LEAST_SKEWNESS)
    shape = 4.0 / skewness**2
    ratio = np.maximum(1.0 + 0.5 * standardised * skewness, 1e-12)  # value over mean of the gamma variable
    away = ratio - 1.0
    r = np.sign(away) * np.sqrt(np.maximum(2.0 * shape * (away - np.log(ratio)), 0.0))
    return _r_star(r, np.sqrt(shape) * away, standardised, skewness)


# Nodes of the integral in `_joint_tail`: its relative error is 1e-12 up to a correlation of 0.95, and 2e-9 at 0.99.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_ON_HOST = np.empty(0)


def union_score(
    scores: np.ndarray, weights: np.ndarray, correlation: np.ndarray, prototype: Array = _ON_HOST
) -> np.ndarray:
    """One normal score from the smallest of weighted p-values of several correlated normal scores.

    `scores` are normal scores (K, b) of b features under K statistics with null correlations (K, K, b), and `weights`
    (K,) the shares of the level, with sum 1. Joint probabilities are computed on the device of `prototype`.

    With a = min_k p_k / w_k, the p-value is the probability that any of the p_k is at most a w_k. It is bounded by
    Hunter's (1976) inequality: the sum of the single probabilities less the joint ones along the spanning tree with the
    largest sum. The scores are those of quadratic forms, which exceed high levels together more often than normal
    variables with the same correlation. With one direction each, T = x^2 and T' = y^2, and the correlation of T and T'
    is the square of that of x and y; the joint probability of |x| and |y| is used for all of them.
    """
    count = len(scores)
    tails = log_ndtr(-scores)
    smallest = np.min(tails - np.log(weights)[:, None], axis=0)
    tails = np.minimum(smallest + np.log(weights)[:, None], -1e-15)
    if count == 1:
        return score_of(tails[0])
    levels = score_of(tails - math.log(2.0))
    scale = tails.max(axis=0)
    total = np.exp(tails - scale).sum(axis=0)
    trees, (low, high) = _spanning_trees(count)
    joint = computed_at(
        prototype, _joint_tail, levels[high], levels[low], tails[high], tails[low], correlation[high, low], scale
    )
    taken = np.maximum((trees @ joint).max(axis=0), 0.0)
    union = scale + np.log(np.maximum(total - taken, 1.0))
    # Near 1 Hunter's bound exceeds 1; the probability under independence is a bound too (Sidak 1967).
    independent = -np.expm1(np.log1p(-np.exp(tails)).sum(axis=0))
    union = np.minimum(union, np.where(scale > -1.0, np.log(np.maximum(independent, 1e-300)), 0.0))
    return score_of(np.minimum(union, -1e-15))


@lru_cache(maxsize=8)
def _spanning_trees(count: int) -> tuple[np.ndarray, np.ndarray]:
    """All trees (trees, edges) that join `count` nodes, 1 for the edges of each, and the nodes (2, edges) of edges."""
    edges = list(combinations(range(count), 2))
    trees = []
    for chosen in combinations(edges, count - 1):
        joined = {0}
        for _ in range(count):
            joined |= {node for edge in chosen if joined & set(edge) for node in edge}
        if len(joined) == count:
            trees.append([float(edge in chosen) for edge in edges])
    return np.array(trees), np.array(edges).T


def _joint_tail(
    first: Array, second: Array, log_tail: Array, log_second: Array, correlation: Array, log_scale: Array
) -> Array:
    """P(|x| > first, |y| > second) over exp(log_scale), for standard normal x, y with this correlation of squares.

    P(x > h, y > k) = Phibar(h) Phibar(k) + (1 / 2 pi) int_0^asin(r) exp(-(h^2 + k^2 - 2 h k sin t) / (2 cos^2 t)) dt
    (Drezner and Wesolowsky 1990); the sum over the four quadrants is twice that for r and for -r. It is at most the
    smaller of the two single tails, with these logarithms.
    """
    xp = namespace(first)
    bound = xp.exp(xp.minimum(log_tail, log_second) - log_scale)
    angle = xp.asin(xp.sqrt(xp.clip(correlation, 0.0, 1.0 - 1e-12)))
    nodes, weights = (asarray_like(part, first) for part in (_NODES, _WEIGHTS))
    sine = xp.sin(angle[..., None] * (nodes + 1.0) / 2.0)
    h, k = first[..., None], second[..., None]
    apart, both = (h - k) ** 2, 2.0 * h * k
    below = 2.0 * at_least(1.0 - sine * sine, 1e-24)

    def integral(sine: Array) -> Array:
        exponent = -(apart + both * (1.0 - sine)) / below - log_scale[..., None]
        return xp.sum(weights * in_place("exp", bounded(exponent, -1e4, 700.0)), axis=-1)

    joint = xp.exp(log_tail + log_second - log_scale) + (integral(sine) - integral(-sine)) * angle / (2.0 * math.pi)
    return xp.where(correlation > 1.0 - 1e-9, bound, xp.minimum(at_least(joint, 0.0), bound))


def score_of(log_pvalue: np.ndarray) -> np.ndarray:
    """The z with log P(N(0,1) > z) = log_pvalue.

    >>> score_of(np.log([0.5, 0.025])).round(3) + 0.0
    array([0.  , 1.96])
    """
    return np.asarray(-ndtri_exp(log_pvalue))
