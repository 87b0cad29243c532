"""Permutation distributions by enumeration, for columns and samples with few distinct outcomes.

A continuous distribution does not fit a statistic with few values: a column with four nonzero rows, or three rows
against three. There the outcomes are enumerated if they are few, and sampled if they are many but few rows of the
column, or of the response, differ from its commonest value. With few rows outliers have the same effect: if one row
dominates the feature and one row the response, T is large exactly when they are matched, with probability 1 / n. With
an unbounded kernel they have it with any number of rows, and permutations of all rows are drawn. Which features these
are is decided in `kernsift.estimators.null_laws.discreteness`.

With several pairs of views the statistic is the smallest weighted p-value, each p-value being the exact tail of its
pair, and its distribution is enumerated along with them (Westfall and Young 1993, within one feature). Outcomes that
tie with the observed one count in full.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from kernsift.estimators.null_laws.discrete_tails import DiscreteLaws, Law, equal_outcomes, log_share, log_tail
from kernsift.estimators.null_laws.discreteness import (
    FEW_ROWS,
    MOST_ENUMERATED,
    OUTLIER_ROWS,
    SMALL_ROWS,
    SPARSE,
    is_sparse,
    log_arrangements,
    log_tables,
)
from kernsift.execution.arrays import slices

# The number of sampled outcomes.
_DRAWN = 2**13
# Outcomes that are sampled where fewer than these of the first sample are beyond the observed one, unless its p-value
# under the continuous law is below the last number.
_DEEP, _ENOUGH, _DEEPEST = 2**16, 50, 1e-5
# The most elements of drawn permutations, and of the factors of features that share them.
_PERMUTED, _TOGETHER = 2**28, 2**24
# Elements of the sampled statistics that are in memory at once, and of one temporary array; and the points whose Gram
# matrix is not computed.
_OUTCOMES, _NUMBERS, _MANY_POINTS = 2**22, 2**21, 2**10


class ViewedFeature(NamedTuple):
    """One feature under several pairs of views."""

    counts: np.ndarray  # (V,) rows of each of its values
    joint: np.ndarray  # (V, J) rows of each value in each cell of the response
    factors: Sequence[np.ndarray]  # the feature's factor (m, V) for each pair
    targets: Sequence[np.ndarray]  # the response's factor (p, J) for each pair
    weights: np.ndarray  # (pairs,) shares of the level
    log_tails: np.ndarray  # (pairs,) log p-values of the observed statistics under the continuous law

    @property
    def transposed(self) -> ViewedFeature:
        """The response in place of the feature, and the feature in place of the response."""
        cells = self.joint.sum(axis=0).astype(int)
        return ViewedFeature(cells, self.joint.T, self.targets, self.factors, self.weights, self.log_tails)

    @property
    def log_probability(self) -> float:
        """Log probability of the observed table over all matchings of rows: no p-value is smaller."""
        margins = gammaln(self.counts + 1).sum() + gammaln(self.joint.sum(axis=0) + 1).sum()
        return float(margins - gammaln(self.counts.sum() + 1) - gammaln(self.joint + 1).sum())

    def law(
        self,
        statistics: np.ndarray,
        log_tails: np.ndarray | None,
        observed: np.ndarray | None = None,
        *,
        drawn: bool = True,
    ) -> Law:
        """The law of equally probable outcomes (pairs, N), all of them or `drawn` ones; see `log_share`."""
        log_pvalue = max(log_share(statistics, self.weights, log_tails, observed), self.log_probability)
        return log_pvalue, equal_outcomes(statistics, self.weights, drawn)


def enumerated_laws(features: Sequence[ViewedFeature], rng_seed: int, rare: bool = False) -> DiscreteLaws:
    """P-values of features with few outcomes and one response, from all outcomes or from a random sample.

    `rare`: whether few rows are outside the response's commonest cell.
    """
    laws: list[Law] = [(0.0, None)] * len(features)
    labelled, drawn = list[int](), list[int]()
    cells, most = features[0].joint.sum(axis=0).astype(int), math.log(MOST_ENUMERATED)
    n, labellings = int(cells.sum()), log_arrangements(cells)
    for place in sorted(range(len(features)), key=lambda place: features[place].counts.tolist()):  # for cached tables
        counts = features[place].counts[None, :]
        if log_tables(counts, cells)[0] <= min(labellings, most):
            laws[place] = _over_tables(features[place])
        else:
            few_labelled = rare and n > OUTLIER_ROWS and not is_sparse(counts)[0]
            (labelled if labellings <= most or few_labelled else drawn).append(place)
    drawn.sort(key=lambda place: _others(features[place]))  # so that columns with few such rows need few draws
    for places, law in ((labelled, _over_labellings), (drawn, _over_draws)):
        _put_laws(laws, features, places, law, rng_seed, _DRAWN)
        # More draws of more rows take too long.
        if labellings > most and (law is _over_labellings or n <= SMALL_ROWS):
            deep = [place for place in places if _needs_more(features[place], laws[place])]
            _put_laws(laws, features, deep, law, rng_seed, _DEEP)
    log_pvalues, gaps = zip(*laws, strict=True)
    return DiscreteLaws(np.array(log_pvalues), gaps)


def _put_laws(
    laws: list[Law],
    features: Sequence[ViewedFeature],
    places: Sequence[int],
    law: Callable[..., Sequence[Law]],
    rng_seed: int,
    draws: int,
) -> None:
    """Compute the laws of the features at some places, a few at a time."""
    step = max(1, _OUTCOMES // (draws * len(features[0].targets)))
    for start in range(0, len(places), step):
        some = places[start : start + step]
        for place, found in zip(some, law([features[place] for place in some], rng_seed, draws), strict=True):
            laws[place] = found


def _needs_more(feature: ViewedFeature, law: Law) -> bool:
    """Whether a sampled tail is imprecise, and not so small that the continuous law replaces it."""
    least = np.min(feature.log_tails - np.log(feature.weights))
    return bool(law[0] < math.log(_ENOUGH / _DRAWN) and least > math.log(_DEEPEST))


def _over_tables(feature: ViewedFeature) -> Law:
    """All tables of the values by the cells with the observed margins."""
    own = feature if len(feature.joint) >= feature.joint.shape[1] else feature.transposed
    tables, log_mass = _tables(tuple(own.counts.tolist()), tuple(own.joint.sum(axis=0).astype(int).tolist()))
    observed = int(np.flatnonzero((tables == own.joint[:, :-1].ravel()).all(axis=1))[0])
    # Both factors are centred, so that the rows of the last cell add up to minus those of the others.
    statistics = np.empty((len(own.factors), len(tables)))
    for pair, (factor, target) in enumerate(zip(own.factors, own.targets, strict=True)):
        products = factor[:, None, :, None] * (target[:, :-1] - target[:, -1:])[:, None, :]
        statistics[pair] = ((tables @ products.reshape(len(factor) * len(target), tables.shape[1]).T) ** 2).sum(axis=1)
    return log_tail(statistics, log_mass, feature.weights, observed)


@lru_cache(maxsize=16)
def _tables(counts: tuple[int, ...], cells: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """All tables (outcomes, V * (J - 1)) with these margins, without the last cell, and their log probabilities."""
    tables, left, log_weight = np.zeros((1, 0), dtype=int), np.array([cells]), np.zeros(1)
    log_factorial = gammaln(np.arange(max(counts) + 1) + 1)
    for count in counts:
        rest = np.full(len(left), count)
        for cell in range(len(cells) - 1):
            least = np.maximum(rest - left[:, cell + 1 :].sum(axis=1), 0)
            ways = np.minimum(rest, left[:, cell]) - least + 1
            before = np.repeat(np.arange(len(left)), ways)
            chosen = np.arange(len(before)) - np.repeat(np.cumsum(ways) - ways, ways) + least[before]
            tables, left, rest = np.column_stack([tables[before], chosen]), left[before], rest[before] - chosen
            left[:, cell] -= chosen
            log_weight = log_weight[before] - log_factorial[chosen]
        left[:, -1] -= rest
        log_weight = log_weight - log_factorial[rest]
    margins = gammaln(np.array(counts + cells) + 1).sum() - gammaln(sum(counts) + 1)
    return tables.astype(float), log_weight + margins


def _over_labellings(features: Sequence[ViewedFeature], rng_seed: int, draws: int) -> list[Law]:
    """All choices of the rows outside the commonest cell of the response, or drawn ones that all features share."""
    cells = features[0].joint.sum(axis=0).astype(int)
    rows, places, drawn = _labellings(tuple(cells.tolist()), draws, rng_seed)
    differences = [target[:, places] - target[:, [cells.argmax()]] for target in features[0].targets]
    statistics = np.empty((len(differences), len(rows) + drawn))
    shared: dict[tuple[int, int], np.ndarray] = {}  # statistics of views that several features or pairs have
    out: list[Law] = []
    for feature in features:
        codes = np.repeat(np.arange(len(feature.counts)), feature.counts)[rows]
        observed = np.empty(len(differences))
        for pair, (factor, target) in enumerate(zip(feature.factors, feature.targets, strict=True)):
            observed[pair] = ((factor @ feature.joint @ target.T) ** 2).sum()
            key = id(factor), id(target)
            if key not in shared:
                shared[key] = _labelled(factor, feature.counts, differences[pair], codes)
            statistics[pair, drawn:] = shared[key]
        if drawn:
            statistics[:, 0] = observed
        out.append(feature.law(statistics, feature.log_tails if drawn else None, observed, drawn=drawn))
    return out


def permuted_laws(features: Sequence[ViewedFeature], rng_seed: int) -> DiscreteLaws:
    """P-values of features with one response from drawn permutations of all rows, which all features share."""
    directions = max(len(factor) for feature in features for factor in feature.factors)
    step = max(1, _TOGETHER // (directions * int(features[0].counts.sum())))
    parts = (features[start : start + step] for start in range(0, len(features), step))
    log_pvalues, gaps = zip(*(law for part in parts for law in _over_permutations(part, rng_seed)), strict=True)
    return DiscreteLaws(np.array(log_pvalues), gaps)


def _over_permutations(features: Sequence[ViewedFeature], rng_seed: int) -> list[Law]:
    cells, targets = features[0].joint.sum(axis=0).astype(int), features[0].targets
    n = int(cells.sum())
    draws, step = min(_DRAWN, _PERMUTED // n), max(1, _NUMBERS // n)
    orders = (
        _permuted(tuple(cells.tolist()), min(step, draws - start), rng_seed, start) for start in range(0, draws, step)
    )
    rows = [[np.repeat(factor, one.counts, axis=1) for factor in one.factors] for one in features]
    observed = [
        [((factor @ one.joint @ target.T) ** 2).sum() for factor, target in zip(one.factors, targets, strict=True)]
        for one in features
    ]
    statistics = np.concatenate([np.array(observed)[:, :, None], reordered_statistics(rows, targets, orders)], axis=2)
    # Matches of outliers, which the moments of the continuous law are made of, are in the draws if these are not fewer
    # than the rows. Otherwise T may be beyond all draws and below its mean, where that law is far from the truth.
    tails = [one.log_tails if n <= draws else None for one in features]
    return [one.law(drawn, tail) for one, drawn, tail in zip(features, statistics, tails, strict=True)]


def reordered_statistics(
    features: Sequence[Sequence[np.ndarray]], targets: Sequence[np.ndarray], orders: Iterable[np.ndarray]
) -> np.ndarray:
    """(features, pairs, draws) T of features, whose factors (m, n) are by row, with the response in other orders.

    `targets` are the response's factors for each pair, and the `orders` (draws, n), in parts, the columns of these that
    the rows get.
    """
    factors = [[one[pair] for one in features] for pair in range(len(targets))]
    rows = [np.vstack(own).T for own in factors]
    starts = [np.cumsum([0] + [len(factor) for factor in own[:-1]]) for own in factors]
    parts = []
    for order in orders:
        squares = [
            sum((direction[order] @ own) ** 2 for direction in target)
            for own, target in zip(rows, targets, strict=True)
        ]
        parts.append([np.add.reduceat(own, start, axis=1).T for own, start in zip(squares, starts, strict=True)])
    return np.concatenate(parts, axis=2).swapaxes(0, 1)


@lru_cache(maxsize=16)
def _permuted(cells: tuple[int, ...], draws: int, rng_seed: int, start: int) -> np.ndarray:
    """(draws, n) the cells of n rows in random orders, from the draw `start` on."""
    places = np.repeat(np.arange(len(cells), dtype=np.min_scalar_type(len(cells))), cells)
    return np.random.default_rng([rng_seed, start]).permuted(np.tile(places, (draws, 1)), axis=1)


def _labelled(factor: np.ndarray, counts: np.ndarray, differences: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """(N,) T = |sum over rows of f (g - g_common)'|^2, for the points (N, R) of the rows outside the commonest cell.

    With the kernel of equality, which has a direction for each point, from the sums of g - g_common at each point; else
    from those of f.
    """
    (draws, size), (directions, points) = codes.shape, factor.shape
    few = directions * size <= points or points > _MANY_POINTS
    weights, out = None if few else _point_weights(factor.T @ factor), np.zeros(draws)
    if weights is None:
        for part in slices(0, draws, max(1, _NUMBERS // (directions * size))):
            out[part] = ((np.take(factor, codes[part], axis=1) @ differences.T) ** 2).sum(axis=(0, 2))
        return out
    places = (codes + np.arange(draws)[:, None] * points).ravel()
    for difference in differences:
        sums = np.bincount(places, np.tile(difference, draws), draws * points).reshape(draws, points)
        sums -= difference.sum() * counts / counts.sum()
        out += sums**2 @ weights
    return out


def _point_weights(gram: np.ndarray) -> np.ndarray | None:
    """Weights w with K = diag(w) up to centring, as of the kernel of equality; None if there are none."""
    diagonal = gram.diagonal()
    apart = diagonal[:, None] + diagonal - 2.0 * gram  # squared distances, w_i + w_j for different points
    if len(apart) < 3:
        return None
    first, second = np.array([1, 0] + [0] * (len(apart) - 2)), np.array([2, 2] + [1] * (len(apart) - 2))
    own = np.arange(len(apart))
    weights = (apart[own, first] + apart[own, second] - apart[first, second]) / 2.0
    error = np.abs(apart - weights[:, None] - weights)
    np.fill_diagonal(error, 0.0)
    return weights if error.max() <= 1e-9 * apart.max() else None


@lru_cache(maxsize=4)
def _labellings(cells: tuple[int, ...], draws: int, rng_seed: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """(N, R) rows outside the commonest cell, (R,) their cells, and whether they are drawn."""
    common, n = int(np.argmax(cells)), sum(cells)
    places = np.delete(np.arange(len(cells)), common)
    places = np.repeat(places, np.array(cells)[places])
    if log_arrangements(np.array(cells)) > math.log(MOST_ENUMERATED):
        return _drawn_rows(n, len(places), draws, rng_seed), places, True
    every = arrangements(cells)
    last = np.where(every == common, len(cells), every)
    return np.argsort(last, axis=1, kind="stable")[:, : len(places)], places, False


@lru_cache(maxsize=4)
def arrangements(cells: tuple[int, ...]) -> np.ndarray:
    """(N, n) all distinct orders of a multiset with these numbers of elements of each kind."""
    found = np.zeros((1, 0), dtype=np.int8)
    left = np.array([cells])
    for _ in range(sum(cells)):
        parts, rests = [], []
        for kind in range(len(cells)):
            some = left[:, kind] > 0
            rest = left[some]
            rest[:, kind] -= 1
            parts.append(np.column_stack([found[some], np.full(int(some.sum()), kind, dtype=np.int8)]))
            rests.append(rest)
        found, left = np.concatenate(parts), np.concatenate(rests)
    return found


def _over_draws(features: Sequence[ViewedFeature], rng_seed: int, draws: int) -> list[Law]:
    """Sampled rows of the response for the rows of columns that differ from their commonest value."""
    cells = features[0].joint.sum(axis=0).astype(int)
    n, targets = int(cells.sum()), features[0].targets
    # Rows that suffice for any column whose outcomes are sampled, and for these.
    most = n - 1 if n <= OUTLIER_ROWS else n // 2 if n <= FEW_ROWS else SPARSE
    size = max(_others(feature) for feature in features)
    weights = list[np.ndarray]()
    statistics = np.empty((len(targets), len(features), draws + 1))
    for pair, target in enumerate(targets):
        # Features with the same view, as of ranks without ties, have the same weights.
        alike = len({id(feature.factors[pair]) for feature in features}) == 1
        weights.append(np.array([_row_weights(one, pair, size) for one in (features[:1] if alike else features)]))
        for place, feature in enumerate(features):
            statistics[pair, place, 0] = ((feature.factors[pair] @ feature.joint @ target.T) ** 2).sum()
    codes, (first, second), points = np.repeat(np.arange(len(cells)), cells), np.triu_indices(size), len(cells)
    grams = [target.T @ target if points <= _MANY_POINTS else None for target in targets]
    step = max(1, _NUMBERS // (16 * len(first)))  # so that products stay in the cache of the processor
    for begin in range(0, draws, _DRAWN):
        rows = codes[_drawn_rows(n, most, _DRAWN, rng_seed + begin)[:, :size]]
        for start in range(0, _DRAWN, step):
            some = rows[start : start + step]
            place, end = some[:, first] * points + some[:, second], begin + start + len(some)
            for pair, (target, gram) in enumerate(zip(targets, grams, strict=True)):
                if gram is None:
                    drawn = target.T[some]
                    products = (drawn @ drawn.transpose(0, 2, 1))[:, first, second]
                else:
                    products = np.take(gram, place, mode="clip")  # skips NumPy's check of bounds
                statistics[pair, :, begin + start + 1 : end + 1] = weights[pair] @ products.T
    return [feature.law(statistics[:, place], feature.log_tails) for place, feature in enumerate(features)]


def _others(feature: ViewedFeature) -> int:
    """The number of rows that differ from the commonest value of a column."""
    return int(feature.counts.sum() - feature.counts.max())


def _row_weights(feature: ViewedFeature, pair: int, size: int) -> np.ndarray:
    """Weights of the products g'g of pairs of rows in T = |sum over the column's other rows of (f - f_common) g'|^2."""
    common = int(feature.counts.argmax())
    others = np.delete(np.arange(len(feature.counts)), common)
    differences = feature.factors[pair][:, others] - feature.factors[pair][:, [common]]
    values = np.repeat(np.arange(len(others)), feature.counts[others])
    products = np.zeros((size, size))
    products[: len(values), : len(values)] = (differences.T @ differences)[np.ix_(values, values)]
    return (2.0 * products - np.diag(products.diagonal()))[np.triu_indices(size)]


@lru_cache(maxsize=4)
def _drawn_rows(n: int, size: int, draws: int, rng_seed: int) -> np.ndarray:
    """(draws, size) row indices, drawn without replacement."""
    rng = np.random.default_rng(rng_seed)
    if size * size > (n if n <= 4 * FEW_ROWS else 4 * n):
        parts = (rng.random((min(_DRAWN, draws - start), n)) for start in range(0, draws, _DRAWN))
        return np.concatenate([np.argsort(part, axis=1)[:, :size].copy() for part in parts])
    return distinct_integers(n, size, draws, rng)


def distinct_integers(n: int, size: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """(draws, size) integers below n, those of a draw different; `size` is at most n / 2.

    Repeated ones are drawn again until all differ. As no integer differs from another in this, all have equal chances.
    """
    found, again = rng.integers(n, size=(draws, size)), np.arange(draws)
    while len(again):
        order = np.argsort(found[again], axis=1, kind="stable")
        ordered = np.take_along_axis(found[again], order, axis=1)
        draw, place = np.nonzero(ordered[:, 1:] == ordered[:, :-1])
        found[again[draw], order[draw, place + 1]] = rng.integers(n, size=len(draw))
        again = again[np.unique(draw)]
    return found
