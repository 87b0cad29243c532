"""Features whose permutation law is far from continuous: few outcomes, outliers, values on a lattice.

Their laws are computed in `kernsift.estimators.null_laws.enumeration`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln

from kernsift.estimators.null_laws.permutation_law import Invariants
from kernsift.execution.arrays import Array, namespace, take, to_numpy

MOST_ENUMERATED = 5_500
"""The most outcomes that are enumerated; others are sampled."""
# With more values, and more rows outside the commonest cell of the response, there are more tables than these: at least
# 2^13, and at least the 8,568 ways to share out 5 rows among 14 values.
_FEW_KINDS, _FEW_OTHERS = 1 + int(math.log2(MOST_ENUMERATED)), 4
SPARSE, FEW_ROWS = 15, 40
"""A column is sparse if at most this many rows, and at most half of all, differ from its commonest value; so is a
column with two values that has no more rows than the second bound."""
# Labellings are drawn if at most this many rows are outside the commonest cell of the response, with at most this mean
# number of rows a cell; for levels of categories also up to this number and this share of all rows.
_RARE_ROWS, _RARE_CELL = 15, 5
_RARE_LEVELS, _RARE_SHARE = 64, 0.2
FEW_LABELLED = 64
"""Labellings of so few rows outside the commonest cell are drawn where few of them are expected to have rare values."""
NULL_TAIL = 0.17
"""Features with a larger p-value under the continuous law keep it where outcomes are many. That of a score of 1, a
usual threshold of selection, is smaller, so that all selected features have the law of their outcomes."""
OUTLIER_ROWS = 32
"""With more rows a match of outliers is too rare to matter: its probability is one over the number of rows."""
SMALL_ROWS = 16
"""With so few rows, responses with ties or outliers have few distinct outcomes, and these are always drawn."""
# Permutations are drawn if the squares of a feature's diagonal are at least this share of the square of its sum, which
# is one over the effective number of its rows; or if this share times that of the response, times the number of rows,
# is at least the second number. It is nearly the excess kurtosis of a sum of products over permutations.
_FEW_CARRY, _KURTOSIS, _NORMAL_KURTOSIS = 0.1, 0.5, 3.0
MOST_PERMUTED = 2**19
"""Permutations of more rows are not drawn: they would be too few."""


def few_outcomes(counts: Array, cells: np.ndarray) -> np.ndarray:
    """(b,) which features have so few outcomes that these are enumerated or sampled.

    `counts` (b, G) are the rows of each value of the features, 0 for unused ones, `cells` (J,) those of the response.
    """
    used = _used_values(counts)
    if log_arrangements(cells) > math.log(MOST_ENUMERATED) and (used > SPARSE + 1).all():
        return np.zeros(len(used), dtype=bool)  # columns with many values
    outcomes = np.minimum(log_arrangements(cells), log_assignments(counts, 2) if len(cells) == 2 else np.inf)
    few = outcomes <= math.log(MOST_ENUMERATED)
    # Two values against two cells is Fisher's test, which has a closed form.
    return (few | is_sparse(counts)) & ~((used == 2) & (len(cells) == 2))


def lattice_step(counts: Array, cells: np.ndarray, weighted: bool) -> np.ndarray:
    """(b,) distance between neighbouring values of T over its mean, for levels with these counts (b, G) in two cells.

    With the kernel of equality T is in proportion to sum (n a - n_1 c)^2, for a rows of the first n_1 in a level of c
    rows. The sum of a^2 changes by an even number, and the sum of a c not at all if all levels have equally many rows.
    If they have nearly so, values of T are close to those of a lattice, which the spread of the sum of a c blurs: by
    exp(-2 pi^2 s^2), the factor of the first harmonic of a lattice with normal noise of s steps. With equally many rows
    in both cells T is in proportion to the sum of a (a - c), which is even for odd c. If `weighted`, T has the weights
    1 / c of chi-square, and is a sum of a^2 / c. The weights in use are other powers of c. These are nearly equal if
    levels have nearly equally many rows, which is where the lattice matters.
    """
    rows, n, first = to_numpy(counts).astype(float), int(cells.sum()), int(cells[0])
    mean = (rows * (n - rows)).sum(axis=1) * first * (n - first) / (n - 1)
    size = (rows**2).sum(axis=1) / n  # mean of c over the rows
    spread = np.sqrt(np.maximum((rows**3).sum(axis=1) / n - size**2, 0.0) * first * (n - first) / (n - 1))
    noise = spread / (2.0 * size) if weighted else spread * min(first, n - first) / n
    step = n * np.exp(-2.0 * np.pi**2 * noise**2)
    if not weighted:
        odd = ((rows == 0) | (rows % 2 == 1)).all(axis=1) & (n == 2 * first)
        step = np.maximum(step, np.where(odd, n, math.gcd(n, first)))
    return np.divide(2.0 * n * step, mean, out=np.zeros(len(rows)), where=mean > 0)


def few_tables(counts: Array, cells: np.ndarray) -> np.ndarray:
    """(b,) whether features have few tables of their values by the cells, which are then enumerated.

    It takes longer than the continuous law, so that it is done only where that law gives a p-value up to `NULL_TAIL`.
    """
    used = _used_values(counts)
    few = (used <= _FEW_KINDS) | (cells.sum() - cells.max() <= _FEW_OTHERS)
    few &= (used > 2) | (len(cells) > 2)  # Fisher's test has a closed form
    if few.any():
        few[few] = log_tables(take(counts, np.flatnonzero(few), 0), cells) <= math.log(MOST_ENUMERATED)
    return few


def is_sparse(counts: Array) -> np.ndarray:
    xp = namespace(counts)
    n = to_numpy(xp.sum(counts, axis=1))
    rows = n - to_numpy(xp.max(counts, axis=1))
    return ((rows <= SPARSE) & (2 * rows <= n)) | (two_valued(counts) & (n <= FEW_ROWS))


def two_valued(counts: Array) -> np.ndarray:
    """(b,) whether features with these counts (b, G) have two values."""
    return np.asarray(_used_values(counts) == 2)


def _used_values(counts: Array) -> np.ndarray:
    """(b,) numbers of values with rows."""
    xp = namespace(counts)
    return to_numpy(xp.sum(xp.astype(counts > 0, xp.int64), axis=1))


def log_tables(counts: Array, cells: np.ndarray) -> np.ndarray:
    """(b,) a bound on the log number of tables with these margins, the rows of features' values and of the cells."""
    kinds, which = np.unique(_used_values(counts), return_inverse=True)
    of_cells = np.array([log_assignments(cells[None, :], kind)[0] for kind in kinds.tolist()])
    return np.minimum(log_assignments(counts, len(cells)), of_cells[which])


def log_assignments(counts: Array, kinds: int) -> np.ndarray:
    """(b,) log of the number of ways to share out the rows of each value but the commonest among this many kinds."""
    each = log_choose(to_numpy(counts) + kinds - 1, np.array(kinds - 1))
    return np.asarray(each.sum(axis=1) - each.max(axis=1))


def log_arrangements(cells: np.ndarray) -> float:
    return float(gammaln(cells.sum() + 1) - gammaln(cells + 1).sum())


def outliers_match(
    factors: Sequence[np.ndarray], targets: Sequence[np.ndarray], counts: np.ndarray, large: np.ndarray
) -> np.ndarray:
    """(b,) whether under some pair of views T is large if only the largest rows of both factors are matched.

    `factors` (b, m, G) and `targets` (p, J) are those of the features and of the response for each pair, `counts` (b,
    G) the rows of each value of the features, and `large` (pairs, b) the values from which on T is large.
    """
    matched = [
        np.where(counts > 0, (factor**2).sum(axis=1), 0.0).max(axis=1) * (target**2).sum(axis=0).max()
        for factor, target in zip(factors, targets, strict=True)
    ]
    return np.asarray((matched > large).any(axis=0))


def carried_by_few_rows(feature: np.ndarray, response: np.ndarray, n: int) -> np.ndarray:
    """(b,) whether few rows have most of the trace of a feature's Gram matrix, or of the products of both traces.

    The permutation law of T is then nearly that of the places of these rows, and far from its limit. `feature` (b,) and
    `response` are the sums of the squared diagonals over the squared traces, one over the effective number of rows.
    """
    return np.asarray((feature >= _FEW_CARRY) | few_products(feature, response, n))


def few_products(feature: np.ndarray, response: np.ndarray, n: int) -> np.ndarray:
    """(b,) whether few rows have most of the products of both diagonals; arguments as for `carried_by_few_rows`."""
    # With few rows of the response the excess kurtosis of a bounded feature matters too, which is negative.
    return np.asarray(np.maximum(n * feature, _NORMAL_KURTOSIS) * response >= _KURTOSIS)


def diagonal_share(own: Invariants, n: int) -> np.ndarray:
    """The sum of the squared diagonal of a Gram matrix over its squared trace."""
    squared = np.maximum(own.trace.astype(float) ** 2, 1e-300)
    return np.asarray(own.second[..., 1] / squared + 1.0 / n)


def has_rare_rows(cells: np.ndarray, levels: bool) -> bool:
    """Whether so few rows are outside the commonest of these cells of the response that their labellings are drawn.

    There T is a sum over few rows, and far from its limit; that of levels of categories has few values besides.
    """
    rows, others = int(cells.sum() - cells.max()), len(cells) - 1
    if levels and rows <= min(_RARE_LEVELS, _RARE_SHARE * cells.sum()):
        return True
    return rows <= _RARE_ROWS and rows <= _RARE_CELL * others


def log_choose(n: np.ndarray, k: np.ndarray) -> np.ndarray:
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
