"""Permutation laws within strata by enumeration, for few relabellings and for columns with few different values.

As in `kernsift.estimators.null_laws.enumeration`: a smooth law does not fit a statistic that takes few values. Where
all relabellings of the units are few, or those in the strata in which a column varies, they are enumerated. Two values
against two labels have a law in closed form, the sum of hypergeometric variables of the strata, which for pairs is
McNemar's exact test. Columns in which few units differ from the commonest value get outcomes drawn at random, and with
an unbounded kernel columns with outliers. So do columns whose rows have two values in few units, where T is the square
of one sum of few shares. With more units and two labels those with a small p-value do, as sums of units with equally
many rows tie; and columns with a small p-value where few units of a rare response are expected to meet a rare value.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, log_ndtr

from kernsift.data.rows.exchangeability import Exchangeability
from kernsift.estimators.null_laws.discrete_tails import (
    Law,
    equal_outcomes,
    gaps_between,
    log_share,
    log_tails_of,
)
from kernsift.estimators.null_laws.discreteness import (
    FEW_ROWS,
    MOST_PERMUTED,
    NULL_TAIL,
    SPARSE,
    carried_by_few_rows,
    few_products,
)
from kernsift.estimators.null_laws.enumeration import arrangements, distinct_integers, reordered_statistics
from kernsift.estimators.null_laws.permutation_law import score_of
from kernsift.estimators.restricted.strata import Strata
from kernsift.estimators.restricted.stratified_counts import StratifiedCounts
from kernsift.estimators.statistics import DiscreteScores, FittedStatistic
from kernsift.execution.arrays import Array, asarray_like, namespace, slices, take, to_numpy
from kernsift.kernels.contingency import Tabulation

# The most relabellings that are enumerated, and numbers in a table of them; how many outcomes are drawn.
_MOST, _NUMBERS, _DRAWN = 2**13, 2**22, 2**13
# The most elements of drawn relabellings of all units, and of one part of them.
_PERMUTED, _AT_ONCE = 2**26, 2**21
# Features whose drawn statistics are computed together.
_TOGETHER = 2**7
# The most units that differ from the commonest value or response and are drawn.
_RARE = 2**8
# The most units with two labels for which columns whose rows have two values get drawn relabellings of all units.
_TWO_LABELS = 2**8
# The most rows for which sums of hypergeometric variables are convolved.
_CONVOLVED = 2**13


class FewValues(NamedTuple):
    """The values of b features of a block.

    Attributes
    ----------
    two_valued : (b,) whether each unit has one of two values.
    others : (b,) how many units differ from the commonest value.
    few : (b,) where these are few.
    of_two : (b,) whether rows have two values.
    differing : the units (N,) of one feature that differ, or those that have the second of two values.
    """

    two_valued: np.ndarray
    others: np.ndarray
    few: np.ndarray
    of_two: np.ndarray
    differing: Callable[[int], np.ndarray]


def few_values(known: Tabulation, rows: Exchangeability, strata: Strata, counted: StratifiedCounts | None) -> FewValues:
    """From counts of the rows of a block."""
    counts = known.counts if counted is None else namespace(counted.counts).sum(counted.counts, axis=2)
    xp, b, n = namespace(counts), counts.shape[0], len(strata.order)
    common, largest = to_numpy(xp.argmax(counts, axis=1)), to_numpy(xp.max(counts, axis=1))
    of_two = to_numpy(xp.sum(xp.astype(counts > 0, xp.int64), axis=1)) == 2
    if counted is not None:
        others = n - largest
        few, codes = others <= SPARSE, counted.row_codes
        return FewValues(of_two, others, few, of_two, lambda place: codes(place) != common[place])
    if known.joint is not None:
        at = xp.broadcast_to(asarray_like(common[:, None, None], counts), (b, 1, known.joint.shape[2]))
        at_common = to_numpy(xp.take_along_axis(known.joint, at, axis=1)[:, 0, :])
        differing = rows.unit_sizes - at_common[:, : rows.units]
    else:
        assert known.codes is not None
        differing = to_numpy(known.codes) != common[:, None]
        if rows.unit is not None:
            differing = np.array([np.bincount(rows.unit, own, rows.units)[: rows.units] for own in differing])
    differing, sizes = differing[:, strata.order], rows.unit_sizes[strata.order]
    differs = differing > 0
    count = differs.sum(axis=1)
    few = ((count <= SPARSE) & (2 * count <= n)) | (of_two & (n <= FEW_ROWS))
    alike = rows.unit is None or ((differing == 0) | (differing == sizes)).all(axis=1)
    two_valued = of_two & alike
    return FewValues(two_valued, count, few, of_two, lambda place: differs[place])


def _diagonal_shares(factors: Array) -> np.ndarray:
    """(...) sums of the squared diagonals of Gram matrices F'F over their squared traces, from factors (..., m, N)."""
    xp = namespace(factors)
    diagonal = xp.sum(factors * factors, axis=-2)
    squares, trace = (to_numpy(xp.sum(part, axis=-1)) for part in (diagonal * diagonal, diagonal))
    return np.asarray(squares / np.maximum(trace**2, 1e-300))


def _varying(factor: np.ndarray) -> np.ndarray:
    """The directions of a factor (m, N) that are no rounding errors; two values have one."""
    sizes = np.einsum("mn,mn->m", factor, factor)
    return factor[sizes > 1e-24 * sizes.max()] if sizes.any() else factor[:1]


def _enumerated(factors: Sequence[np.ndarray], relabelled: Sequence[np.ndarray], weights: np.ndarray) -> Law:
    """The law of a feature with these factors (m, N), from the response (p, A, N) of all relabellings."""
    crossed = [target @ factor.T for factor, target in zip(factors, relabelled, strict=True)]
    statistics = np.array([np.einsum("pam,pam->a", cross, cross) for cross in crossed])
    return log_share(statistics, weights), equal_outcomes(statistics, weights, False)


class Relabellings:
    """The relabellings of units that permutations within strata can make."""

    def __init__(self, kinds: np.ndarray, strata: Strata, symmetric: bool) -> None:
        """From the values (N,) of the response, as codes; classes are `symmetric` and may change places."""
        self._kinds = np.unique(kinds, return_inverse=True)[1].ravel()
        self._strata = strata
        self._symmetric = symmetric

    @property
    def _two_kinds(self) -> bool:
        return int(self._kinds.max(initial=0)) == 1

    @cached_property
    def _cells(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The stratum and the kind of units, of each combination that there is, and how many units have it."""
        count = int(self._kinds.max(initial=0)) + 1
        places, sizes = np.unique(self._strata.of_row * count + self._kinds, return_counts=True)
        return places // count, places % count, sizes

    @cached_property
    def _of_second_kind(self) -> np.ndarray:
        """(S,) units of the second kind in each stratum, of two kinds."""
        return self._strata.sums(self._kinds)

    @cached_property
    def _log_arrangements(self) -> np.ndarray:
        """(S,) logs of the numbers of different relabellings of the strata."""
        stratum, _, sizes = self._cells
        return np.asarray(gammaln(self._strata.sizes + 1) - np.bincount(stratum, gammaln(sizes + 1)))

    @cached_property
    def log_count(self) -> float:
        """Log of the number of relabellings that give different statistics.

        Classes with equal numbers in every stratum may change places.
        """
        count = float(self._log_arrangements.sum())
        if not self._symmetric:
            return count
        stratum, kind, sizes = self._cells
        order = np.argsort(kind, kind="stable")
        edges = np.flatnonzero(np.diff(kind[order])) + 1
        of_kinds = Counter(part.tobytes() for part in np.split(np.column_stack([stratum, sizes])[order], edges))
        return count - float(gammaln(np.array([*of_kinds.values()]) + 1).sum())

    @property
    def ceiling(self) -> float:
        """The highest score that a permutation test can give."""
        return float(score_of(np.array([-max(self.log_count, 1e-15)]))[0])

    @cached_property
    def _all(self) -> np.ndarray | None:
        """(A, N) for every relabelling the unit whose response each unit gets, the observed one first."""
        log_count = self.log_count if self._two_alike else self._log_arrangements.sum()
        if log_count > math.log(min(_MOST, _NUMBERS / len(self._kinds))) + 1e-9:
            return None
        found = np.zeros((1, 0), dtype=int)
        for start, size in zip(self._strata.starts, self._strata.sizes, strict=True):
            kinds, own = np.unique(self._kinds[start : start + size], return_inverse=True)
            example = start + np.array([int(np.flatnonzero(own == kind)[0]) for kind in range(len(kinds))])
            orders = example[arrangements(tuple(np.bincount(own).tolist()))]
            if self._two_alike and start == 0:
                # The other half has the two classes in each other's place.
                orders = orders[self._kinds[orders[:, 0]] == self._kinds[0]]
            found = np.hstack([np.repeat(found, len(orders), axis=0), np.tile(orders, (len(found), 1))])
        observed = (self._kinds[found] == self._kinds).all(axis=1)
        return found[np.argsort(~observed, kind="stable")]

    @property
    def _two_alike(self) -> bool:
        """Whether there are two classes, which may change places."""
        return self._symmetric and self._two_kinds and bool((2 * self._of_second_kind == self._strata.sizes).all())

    def scores(
        self,
        statistics: Sequence[FittedStatistic],
        scores: np.ndarray,
        score: np.ndarray,
        weights: np.ndarray,
        values: FewValues,
        seed: int,
        counted: StratifiedCounts | None = None,
        unbounded: bool = False,
    ) -> DiscreteScores:
        """Scores (b,) with those replaced whose law is no smooth one; `scores` (pairs, b) are those of the pairs.

        `unbounded`: whether the kernel is, so that few units may dominate a feature.
        """
        out, every = DiscreteScores(score.copy(), np.full(len(score), None)), self._all
        varies = np.array([statistic.laws.sd > 0 for statistic in statistics]).any(axis=0)
        two_classes = values.two_valued & (self._two_kinds and len(self._kinds) <= _CONVOLVED)
        targets = [to_numpy(statistic.target.factor) for statistic in statistics]
        relabelled = [target[:, every] for target in targets] if every is not None else []
        small_pvalue = log_ndtr(-score) <= math.log(NULL_TAIL)

        def factors_of(place: int) -> list[np.ndarray]:
            factors = [to_numpy(statistic.view.factor[place, ...]) for statistic in statistics]
            if counted is None:
                return factors
            codes = counted.row_codes(place)
            return [self._strata.centred(factor[:, codes]) for factor in factors]

        def carried(places: np.ndarray, rule: Callable[[np.ndarray, np.ndarray, int], np.ndarray]) -> np.ndarray:
            """Those of these features whose statistic few units carry, in one of the pairs."""
            if counted is None:
                own = [_diagonal_shares(take(statistic.view.factor, places, 0)) for statistic in statistics]
            else:
                shares = [[_diagonal_shares(factor) for factor in factors_of(place)] for place in places]
                own = [*np.reshape(shares, (-1, len(targets))).T]
            pairs = zip(own, map(_diagonal_shares, targets), strict=True)
            return places[np.any([rule(*pair, len(self._kinds)) for pair in pairs], axis=0)]

        varying = np.zeros((len(score), len(self._strata.sizes)), dtype=bool)
        if every is None and counted is None and len(self._strata.sizes) > 1:
            places = np.flatnonzero(varies & small_pvalue)
            varying[places] = self._varying(statistics, places)
        fewer = varying.any(axis=1) & (varying @ self._log_arrangements <= math.log(_MOST) + 1e-9)
        permuted = np.zeros(len(score), dtype=bool)
        if every is None and len(self._kinds) <= FEW_ROWS:
            permuted = varies & values.few & ~two_classes & ~fewer
        elif every is None and self._two_kinds and len(self._kinds) <= _TWO_LABELS:
            permuted = varies & small_pvalue & values.of_two & ~two_classes & ~fewer
        known = values.few | two_classes | fewer | permuted | (every is not None)
        rare = np.flatnonzero(self._kinds != np.bincount(self._kinds).argmax())
        small = np.minimum(values.others, len(rare)) <= _RARE
        tried = small & small_pvalue & ~known & (not unbounded)
        drawn_places = carried(np.flatnonzero(varies & tried), few_products)
        if len(self._kinds) <= FEW_ROWS:  # relabellings of all units are as few numbers, and the same for all features
            permuted[drawn_places] = True
        if unbounded and len(self._kinds) <= MOST_PERMUTED:
            permuted[carried(np.flatnonzero(varies & ~known), carried_by_few_rows)] = True
        for part in slices(0, int(permuted.sum()), _TOGETHER):
            places = np.flatnonzero(permuted)[part]
            drawn = self._permuted([factors_of(place) for place in places.tolist()], targets, seed)
            # As in `enumeration`, the continuous law extends the tail if the draws are not fewer than the units.
            tails = log_ndtr(-scores) if len(self._kinds) < drawn.shape[2] else None
            for place, found in zip(places.tolist(), drawn, strict=True):
                log_pvalue = log_share(found, weights, None if tails is None else tails[:, place])
                out.put_one(place, (log_pvalue, equal_outcomes(found, weights, True)))
        single = (varies & known) | np.isin(np.arange(len(score)), drawn_places)
        for place in np.flatnonzero(single & ~permuted).tolist():
            factors = factors_of(place)
            log_tails = log_ndtr(-scores[:, place])
            if every is not None:
                law = _enumerated(factors, relabelled, weights)
            elif two_classes[place]:
                law = self._hypergeometric(values.differing(place))
            elif fewer[place]:
                units, own = self._in_strata(varying[place])
                some = [target[:, units][:, own._all] for target in targets]
                law = _enumerated([factor[:, units] for factor in factors], some, weights)
            elif tried[place] and len(rare) < values.others[place]:
                law = self._drawn(rare, targets, factors, weights, log_tails, seed)
            else:
                others = np.flatnonzero(values.differing(place))
                law = self._drawn(others, factors, targets, weights, log_tails, seed)
            if np.isfinite(law[0]):
                out.put_one(place, law)
        return out

    def _varying(self, statistics: Sequence[FittedStatistic], places: np.ndarray) -> np.ndarray:
        """(k, S) in which strata these features vary under any of their views; elsewhere they are rounding errors."""
        views = {id(one.view): to_numpy(take(one.view.factor, places, 0)) for one in statistics}.values()
        sizes = [self._strata.sums(np.einsum("bmn,bmn->bn", factor, factor)) for factor in views]
        return np.any([size > 1e-24 * size.sum(axis=1, keepdims=True) for size in sizes], axis=0)

    def _in_strata(self, some: np.ndarray) -> tuple[np.ndarray, Relabellings]:
        """The units of some of the strata (S,), and their relabellings."""
        units = np.flatnonzero(some[self._strata.of_row])
        strata = Strata(self._strata.order[units], self._strata.sizes[some])
        return units, Relabellings(self._kinds[units], strata, self._symmetric)

    def _hypergeometric(self, marked: np.ndarray) -> Law:
        """The law of the deviation of the number of marked units with the second label from its mean."""
        from scipy.stats import hypergeom  # takes half a second to import

        law, first = np.ones(1), 0
        in_stratum = self._strata.sums(marked.astype(int))
        for n, k, m in zip(self._strata.sizes, self._of_second_kind, in_stratum, strict=True):
            if 0 < m < n:
                low = max(0, k + m - n)
                cells = np.arange(low, min(k, m) + 1)
                law, first = np.convolve(law, hypergeom.pmf(cells, n, m, k)), first + low
            elif m == n:
                first += int(k)
        cells = first + np.arange(len(law))
        mean = float((in_stratum * self._of_second_kind / self._strata.sizes).sum())
        seen = int(marked[self._kinds == 1].sum()) - first
        with np.errstate(divide="ignore"):
            log_tails, tails = log_tails_of(np.abs(cells - mean), np.log(law))
        return float(log_tails[seen]), gaps_between(tails)

    def _drawn(
        self,
        others: np.ndarray,
        factors: list[np.ndarray],
        targets: list[np.ndarray],
        weights: np.ndarray,
        log_tails: np.ndarray,
        seed: int,
    ) -> Law:
        """Units that differ from the commonest value get responses of units drawn from their strata.

        Or the other way round: units with a rare response get values, with `factors` and `targets` exchanged.
        """
        rows = self._draws(others, np.random.default_rng(seed))
        found = np.empty((len(factors), len(rows)))
        for out, factor, target in zip(found, factors, targets, strict=True):
            # Both are centred within strata, so that the stratum's common value may be taken off.
            own = factor[:, others] - self._common(factor, others)
            for part in slices(0, len(rows), max(1, _AT_ONCE // (len(target) * len(others)))):
                cross = np.einsum("mk,pak->amp", own, target[:, rows[part]], optimize=True)
                out[part] = (cross * cross).sum(axis=(1, 2))
        return log_share(found, weights, log_tails), equal_outcomes(found, weights, True)

    def _permuted(
        self, features: Sequence[Sequence[np.ndarray]], targets: Sequence[np.ndarray], seed: int
    ) -> np.ndarray:
        """(features, pairs, draws) T of features with factors (m, N) for each pair, over drawn relabellings."""
        n = len(self._kinds)
        features = [[_varying(factor) for factor in pairs] for pairs in features]
        directions = sum(
            len(own) * len(target) for pairs in features for own, target in zip(pairs, targets, strict=True)
        )
        if n > FEW_ROWS or 2 * directions <= (n + 1) * len(features) * len(targets):
            return reordered_statistics(features, targets, self._orders(seed, n))
        # T is the sum of the products of two Gram matrices, of which one is permuted: fewer than those of directions.
        first, second = np.triu_indices(n)
        twice = np.where(first == second, 1.0, 2.0)
        own = [[(factor.T @ factor)[first, second] * twice for factor in pairs] for pairs in features]
        grams, own_by_pair = [target.T @ target for target in targets], np.array(own).swapaxes(0, 1)
        parts = []
        for order in self._orders(seed, len(first)):
            rows, columns = order[:, first], order[:, second]
            parts.append([one @ gram[rows, columns].T for one, gram in zip(own_by_pair, grams, strict=True)])
        return np.concatenate(parts, axis=2).swapaxes(0, 1)

    def _orders(self, seed: int, numbers: int) -> Iterator[np.ndarray]:
        """Parts (draws, N) of units permuted within strata, the observed order first; a draw needs so many numbers."""
        n, rng = len(self._kinds), np.random.default_rng(seed)
        draws, step = min(_DRAWN, _PERMUTED // n), max(1, _AT_ONCE // numbers)
        for start in range(0, draws + 1, step):
            order = np.argsort(self._strata.of_row + rng.random((min(step, draws + 1 - start), n)), axis=1)
            if start == 0:
                order[0] = np.arange(n)
            yield order

    def _common(self, factor: np.ndarray, others: np.ndarray) -> np.ndarray:
        """(m, k) the factor at the commonest value, in the strata of these units; all of a stratum may differ."""
        usual = np.ones(factor.shape[1], dtype=bool)
        usual[others] = False
        count = self._strata.sums(usual.astype(int))
        means = self._strata.sums(factor * usual) / np.maximum(count, 1)
        return np.asarray(means[:, self._strata.of_row[others]])

    def _draws(self, others: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(draws + 1, k) units of the same strata, without replacement; the observed ones first."""
        rows = np.empty((_DRAWN + 1, len(others)), dtype=int)
        rows[0] = others
        stratum = self._strata.of_row[others]
        for own in np.unique(stratum):
            here = np.flatnonzero(stratum == own)
            size, start = int(self._strata.sizes[own]), int(self._strata.starts[own])
            if size <= max(4 * FEW_ROWS, 2 * len(here)):
                found = np.argsort(rng.random((_DRAWN, size)), axis=1)[:, : len(here)]
            else:
                found = distinct_integers(size, len(here), _DRAWN, rng)
            rows[1:, here] = start + found
        return rows
