"""Tails of laws with few outcomes: p-values, and the intervals of p-values that a feature cannot have.

A selective p-value divides by the probability of selection. This is the normal mass above the cut if a feature can have
nearly any p-value. A column with few nonzero rows cannot, as most outcomes have none of these in the smaller sample;
its probability of selection is that of its outcomes above the cut (`kernsift.inference.lines`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from kernsift.estimators.null_laws.discreteness import log_choose

# Sampled outcomes beyond the observed one that suffice to estimate a tail; with fewer the continuous law extends it.
_BEYOND = 20
# Statistics that differ by less than this share of the largest are equal.
_EQUAL = 1e-9
# Outcomes that are inspected first: the law counts as continuous if fewer of them than the second number are equal, and
# so many equal outcomes of drawn ones are an atom.
_CHECKED, _FEWEST = 2**9, 4
# Neighbouring log p-values with a smaller difference are as those of a continuous law.
_GAP = 0.05


class DiscreteLaws(NamedTuple):
    """Log p-values (b,) of features, and the gaps between those that each may have; None where there are none.

    Gaps (g, 2) are increasing intervals. The lower end is a log p-value that the feature can have, or -inf below the
    smallest one, and the upper end is the next one that it can have.
    """

    log_pvalues: np.ndarray
    gaps: Sequence[np.ndarray | None]


Law = tuple[float, np.ndarray | None]
"""The log p-value of a feature, and the gaps as in `DiscreteLaws`."""


def log_tail(statistics: np.ndarray, log_mass: np.ndarray, shares: np.ndarray, observed: int) -> Law:
    """The law of the smallest weighted p-value of statistics (pairs, N) whose outcomes have these log probabilities."""
    log_tails, tails = log_tails_of(-_smallest(statistics, log_mass, shares), log_mass)
    return float(log_tails[observed]), gaps_between(tails)


def equal_outcomes(statistics: np.ndarray, shares: np.ndarray, drawn: bool) -> np.ndarray | None:
    """The gaps between log p-values of equally probable outcomes (pairs, N); None where few of these are equal."""
    # One number for each outcome, by which equal ones are found.
    scales = np.maximum(statistics.max(axis=1), 1e-300) / np.sqrt(np.arange(2.0, len(statistics) + 2.0))
    number = (1.0 / scales) @ statistics
    first = np.sort(number[:_CHECKED])
    if len(number) > _CHECKED and (first[_FEWEST - 1 :] - first[: 1 - _FEWEST] > _EQUAL).all():
        return None
    order = np.argsort(number)
    last = np.flatnonzero(np.append(np.diff(number[order]) > _EQUAL, True))
    log_mass = np.log(np.diff(last, prepend=-1) / len(number))
    smallest = _smallest(statistics[:, order[last]], log_mass, shares)
    least = (_FEWEST - 0.5) / len(number) if drawn else 0.0
    return gaps_between(log_tails_of(-smallest, log_mass)[1], least)


def gaps_between(log_tails: np.ndarray, least: float = 0.0) -> np.ndarray | None:
    """Gaps between log tails (N,), which increase to 0, before tails that exceed the one before by at least `least`.

    >>> gaps_between(np.log([0.01, 0.0101, 1.0])).round(2)
    array([[ -inf, -4.61],
           [-4.6 ,  0.  ]])
    """
    logs = np.append(-np.inf, log_tails[log_tails > -np.inf])
    apart = (np.diff(logs) > _GAP) & (np.diff(np.exp(logs)) >= least)
    return np.column_stack([logs[:-1][apart], logs[1:][apart]]) if apart.any() else None


def log_tails_of(values: np.ndarray, log_mass: np.ndarray, equal: float = _EQUAL) -> tuple[np.ndarray, np.ndarray]:
    """(N,) log probabilities of values at least as large as each of these, and the different ones, increasing to 0.

    Values that differ by at most `equal` are equal. Everything is in logs, as probabilities may underflow.
    """
    order = np.argsort(-values)
    ordered = values[order]
    ends = np.append(ordered[:-1] - ordered[1:] > equal, True)
    tails = np.logaddexp.accumulate(log_mass[order])[ends]
    tails = np.minimum(tails - tails[-1], 0.0)
    log_tails = np.empty(len(order))
    log_tails[order] = tails[np.cumsum(np.append(False, ends[:-1]))]
    return log_tails, tails


def _smallest(statistics: np.ndarray, log_mass: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """(N,) logs of the smallest weighted p-value of each outcome of the statistics (pairs, N)."""
    equal = _EQUAL * statistics.max(axis=1)
    found = [log_tails_of(one, log_mass, tie)[0] for one, tie in zip(statistics, equal, strict=True)]
    return np.asarray(np.min(found - np.log(shares)[:, None], axis=0))


def log_share(
    statistics: np.ndarray,
    shares: np.ndarray,
    log_tails: np.ndarray | None = None,
    observed: np.ndarray | None = None,
) -> float:
    """As `log_tail`, for outcomes (pairs, N) with equal probabilities; the first is the observed one by default.

    With `log_tails` they are drawn: from the tail with enough draws to that without any, the continuous law takes over
    in proportion to the missing draws.
    """
    count = statistics.shape[1]
    observed = statistics[:, 0] if observed is None else observed
    equal = _EQUAL * statistics.max(axis=1)
    reached = (statistics >= (observed - equal)[:, None]).sum(axis=1)
    # The outcomes that a pair may have in its tail if this is at most the smallest weighted one.
    allowed = np.floor((reached / shares).min() * shares * (1.0 + _EQUAL)).astype(int)
    extreme = np.zeros(count, dtype=bool)
    for one, seen, tie, own, most in zip(statistics, observed, equal, reached, allowed, strict=True):
        if most >= count:
            return 0.0
        bound = np.partition(one, count - 1 - most)[count - 1 - most] + tie
        extreme |= one > bound
        if own == most:
            extreme |= one >= seen - tie
    tail = int(extreme.sum())
    if log_tails is None or tail >= _BEYOND:
        return math.log(tail / count)
    smallest = _smallest(statistics, np.full(count, -math.log(count)), shares)
    edge = np.partition(smallest, _BEYOND)[_BEYOND]
    beyond = math.log(_BEYOND / count) - edge + np.min(log_tails - np.log(shares))
    return float(beyond + (math.log(tail / count) - beyond) * (tail - 1) / (_BEYOND - 1))


def fisher_laws(joint: np.ndarray) -> DiscreteLaws:
    """P-values of b features with two values against a response with two: Fisher's exact tail.

    There T is the squared deviation of one cell of a 2 x 2 table from its mean. All tables that deviate at least as
    much count, as in any permutation test. `joint` (b, G, 2) counts the rows of each value and cell.
    """
    own = joint.astype(int)
    first = own.any(axis=2).argmax(axis=1)
    cells = own[np.arange(len(own)), first]  # the rows of one value, by response
    n, drawn = int(own[0].sum()), int(own[0, :, 0].sum())
    marked, which = np.unique(cells.sum(axis=1), return_inverse=True)
    laws = [_hypergeometric(n, drawn, rows) for rows in marked.tolist()]
    found = zip(which.ravel().tolist(), cells[:, 0].tolist(), strict=True)
    tails = np.array([laws[law].log_tails[seen - laws[law].lowest] for law, seen in found])
    return DiscreteLaws(tails, [laws[law].gaps for law in which.ravel()])


class _Hypergeometric(NamedTuple):
    """For each value from `lowest` on the log probability that one deviates as much from the mean, and the gaps."""

    lowest: int
    log_tails: np.ndarray
    gaps: np.ndarray | None


@lru_cache(maxsize=1024)
def _hypergeometric(n: int, drawn: int, marked: int) -> _Hypergeometric:
    cells = np.arange(max(0, drawn + marked - n), min(drawn, marked) + 1)
    log_mass = (
        log_choose(np.array(marked), cells)
        + log_choose(np.array(n - marked), drawn - cells)
        - log_choose(np.array(n), np.array(drawn))
    )
    log_tails, tails = log_tails_of(np.abs(n * cells - drawn * marked), log_mass)
    return _Hypergeometric(int(cells[0]), log_tails, gaps_between(tails))
