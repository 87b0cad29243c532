"""Tests of a score truncated to a selection event, along a line or a path.

Split the scores into feature i's own score and a part independent of it: with c = Sigma[:, i] / Sigma[i, i] and
u = T - c T_i, moving T_i to t moves the scores along u + c t while u, the nuisance part, stays as observed.

Where the covariance models more than the null slopes, some scores follow a path (`kernsift.estimators.scores.Path`)
instead. It is linear between its knots, so that between two of them the selection rule's truncation for lines applies.
It is evaluated only between knots of which one keeps the feature and the other does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from kernsift.distributions.truncated_normal import EVERYWHERE, joined, log_survivals
from kernsift.estimators.null_laws.permutation_law import score_of
from kernsift.estimators.scores import CurvedCovariance, Path, Scores
from kernsift.execution.arrays import slices
from kernsift.inference.outcome import Outcome

# Columns of the covariance fetched at a time, at least, and their numbers: 2^24 doubles are 128 MB.
_BATCH, _NUMBERS = 64, 2**24
# Lines of several features that are looked at together, and columns that are turned into rows together: numbers of one
# column lie far apart.
_TOGETHER, _TURNED = 2**16, 32
# Distance from a score to the upper end of its interval, in standard deviations, that counts as rounding error.
_ROOM = 1e-9
# Difference of the log p-values of a discrete score and of the end of its interval that counts as a tie: with a fixed
# end, and with one that another score sets. The line of a correlated score moves a little away from a tie, and p-values
# that are drawn vary.
_TIED, _TIED_LINES = 1e-9, 0.05


class Event(NamedTuple):
    """The event that a test conditions on."""

    # From lines `intercept + slope * t` and a feature: the t for which the feature is kept, as a union of intervals.
    truncation: Callable[[np.ndarray, np.ndarray, int], np.ndarray]
    # From many score vectors (g, d), which may be overwritten, and a feature: in which of them it is kept.
    kept: Callable[[np.ndarray, int], np.ndarray]
    # As `SelectionRule.lowest`; None where a truncation is no half-line as a rule.
    lowest: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray] | None = None


def truncated_test(scores: Scores, selected: np.ndarray, event: Event) -> Outcome:
    """One-sided test of each selected score under its normal distribution truncated to the event."""
    variances, unions = np.zeros(len(selected)), list[np.ndarray]()
    step = max(_BATCH, _NUMBERS // len(scores))
    for part in slices(0, len(selected), step):
        variances[part], some = _unions(scores, selected[part], event)
        unions += some
    return _tail(scores, selected, variances, unions, _TIED_LINES)


def _unions(scores: Scores, selected: np.ndarray, event: Event) -> tuple[np.ndarray, list[np.ndarray]]:
    """Variances of some selected scores, and the union of intervals that the event truncates each of them to."""
    values, columns = scores.estimate[selected], scores.cov.columns(selected)
    variances = columns[selected, np.arange(len(selected))]
    paths: list[Path | None] = [None] * len(selected)
    if isinstance(scores.cov, CurvedCovariance):
        paths = scores.cov.paths(selected, columns)

    unions, varies = [EVERYWHERE] * len(selected), variances > 0
    lowest = _lowest(scores, selected, event, columns, np.where(varies, variances, 1.0))
    half_lines = np.stack([lowest, np.full(len(selected), np.inf)], axis=1)[:, None, :]
    for place in np.flatnonzero(varies).tolist():
        path, value, feature = paths[place], values[place], int(selected[place])
        if path is None and lowest[place] <= value:
            unions[place] = half_lines[place]
            continue
        slope = columns[:, place] / variances[place]
        nuisance = scores.estimate - slope * value
        if path is None:
            pieces = event.truncation(nuisance, slope, feature)
        else:
            pieces = truncation_along(path, event, nuisance, slope, feature)
        if len(pieces) != 1 or pieces[0, 0] > value or pieces[0, 1] < np.inf:
            pieces = _open_at_tie(_containing(pieces, value), value, float(np.sqrt(variances[place])))
            pieces = pieces if path is None else _unbounded_above(pieces, value)
        unions[place] = pieces
    return variances, unions


def _lowest(
    scores: Scores, selected: np.ndarray, event: Event, columns: np.ndarray, variances: np.ndarray
) -> np.ndarray:
    """Where the truncations of selected scores begin that are known to be half-lines; NaN for the others."""
    found, values = np.full(len(selected), np.nan), scores.estimate[selected]
    if event.lowest is None:
        return found
    for part in slices(0, len(selected), _TURNED):
        rows = np.ascontiguousarray(columns[:, part].T)
        for own in slices(0, len(rows), max(1, _TOGETHER // len(scores))):
            some = slice(part.start + own.start, part.start + own.stop)
            slopes = rows[own] / variances[some, None]
            found[some] = event.lowest(scores.estimate - slopes * values[some, None], slopes, selected[some])
    return found


def separate_test(scores: Scores, selected: np.ndarray, unions: Sequence[np.ndarray]) -> Outcome:
    """The same where each score's union of intervals does not depend on the other scores: variances are enough."""
    values = scores.estimate[selected]
    # The rule may round differently from the comparison that selected the feature.
    pairs = zip(unions, values, strict=True)
    unions = [
        union if union is EVERYWHERE or union[0, 0] <= value else _containing(union, value) for union, value in pairs
    ]
    return _tail(scores, selected, scores.cov.diagonal()[selected], unions, _TIED)


def _tail(
    scores: Scores, selected: np.ndarray, variances: np.ndarray, unions: Sequence[np.ndarray], tied: float
) -> Outcome:
    """The tail beyond each value over the mass of its union; a score with variance 0 has p = 1."""
    values, varies = scores.estimate[selected], variances > 0
    if scores.gaps is not None:
        found = zip(unions, scores.gaps[selected], values, strict=True)
        unions = [
            union if gaps is None or union is EVERYWHERE else attained(union, gaps, value, tied)
            for union, gaps, value in found
        ]
    log_pvalues = log_survivals(values, unions, np.sqrt(np.where(varies, variances, 1.0)))
    return Outcome(np.where(varies, log_pvalues, 0.0), tuple(unions))


def attained(pieces: np.ndarray, gaps: np.ndarray, value: float, tied: float = _TIED) -> np.ndarray:
    """Intervals whose normal mass is the probability of the values in them of a score that has few values.

    The normal mass from a value on is its p-value, the probability of all values from there on. So an interval begins
    at the lowest value in it, and ends at the first one beyond it. `gaps` are those between the log p-values that the
    score can have, and `value` is the observed one; log p-values that differ by `tied` are equal. A value at the lower
    end ties with the cut, and whether it is selected depends on the order of the columns: it counts where it is the
    observed one, which then has p = 1, and not where the observed one is above it, as if ties were a selection of their
    own. The value with p = 1 is below any cut: where a feature has it, others may tie with it, but none is below.

    Examples
    --------
    A rare value that occurs with probability 0.01, and selection from the median on:

    >>> import numpy as np
    >>> from scipy.stats import norm
    >>> value, gaps = norm.isf(0.01), np.array([[-np.inf, np.log(0.01)], [np.log(0.01), 0.0]])
    >>> bool(np.allclose(attained(np.array([[0.0, np.inf]]), gaps, value), [[value, np.inf]]))
    True

    A second value that occurs with probability 0.09, which is the mass of any interval with that value only:

    >>> gaps = np.log([[1e-300, 0.01], [0.01, 0.1], [0.1, 1.0]])
    >>> found = attained(norm.isf([[0.2, 0.05]]), gaps, norm.isf(0.1))
    >>> norm.sf(found).round(6)
    array([[0.1 , 0.01]])
    """
    log_pvalues = log_ndtr(-pieces)
    # The first gap that ends beyond an end of an interval or ties with it, if it begins below.
    below = np.append(gaps[:, 0], np.inf)[np.searchsorted(gaps[:, 1], log_pvalues - tied)]
    ends = np.where(below < log_pvalues, score_of(np.minimum(below, -1e-15)), pieces)
    own = (pieces[:, 0] <= value) & (value <= pieces[:, 1])
    ends[own, 0] = np.minimum(ends[own, 0], value)
    return ends


def _unbounded_above(pieces: np.ndarray, value: float) -> np.ndarray:
    """The same intervals below `value`, which is in one of them, and everything above it.

    Ends above the observed score come from kernels with several directions, mostly at scores below 0, where the path is
    an approximation: with one direction there are none among near copies of a feature. The p-value of a score just
    below such an end is too small. With everything above the score in the set it is at least the unconditional one.
    """
    found = pieces[pieces[:, 0] <= value]
    found[-1, 1] = np.inf
    return found


def _open_at_tie(pieces: np.ndarray, value: float, sd: float) -> np.ndarray:
    """The same intervals, unless the one that contains `value` ends there: then the half-line from it, so that p = 1.

    Scores of continuous data lie inside their interval. Where two scores tie at the selection boundary, as those of
    counts do, any increase may swap them; the tail beyond the value is then empty, which is no evidence against the
    null.
    """
    containing = (pieces[:, 0] <= value) & (value <= pieces[:, 1])
    if pieces[containing, 1].max() - value > _ROOM * sd:
        return pieces
    return np.array([[value, np.inf]])


def _containing(pieces: np.ndarray, value: float) -> np.ndarray:
    """The same intervals with `value` inside: a tie at the boundary may fall outside by a rounding error."""
    if len(pieces) == 0:
        return np.array([[value, value + abs(value) * 1e-9 + 1e-300]])
    inside = (pieces[:, 0] <= value) & (value <= pieces[:, 1])
    if not inside.any():
        distance = np.maximum(pieces[:, 0] - value, value - pieces[:, 1])
        nearest = int(np.argmin(distance))
        pieces = pieces.copy()
        pieces[nearest] = min(pieces[nearest, 0], value), max(pieces[nearest, 1], value)
    return pieces


def truncation_along(path: Path, event: Event, intercept: np.ndarray, slope: np.ndarray, feature: int) -> np.ndarray:
    """`event.truncation` where some scores follow the path instead of their lines.

    Examples
    --------
    A second score that is 1 while the first is below 2, and decreases to 0 from there:

    >>> import numpy as np
    >>> from kernsift.inference.selection_rules import TopK
    >>> path = Path(np.array([0.0, 2.0, 3.0]), np.array([1]), np.array([[1.0, 1.0, 0.0]]))
    >>> event = Event(TopK(1).truncation, lambda samples, feature: samples[:, 0] >= samples[:, 1])
    >>> truncation_along(path, event, np.zeros(2), np.array([1.0, 0.5]), 0)
    array([[ 1., inf]])
    """
    knots, followers, values = _increasing(path)
    samples = intercept + slope * knots[:, None]
    samples[:, followers] = values.T
    samples[:, feature] = knots
    kept = event.kept(samples, feature)
    edges = np.concatenate([[-np.inf], knots, [np.inf]])
    # Intervals between knots: with both ends kept all of it, with one of them a part.
    whole = np.concatenate([[False], kept[1:] & kept[:-1], kept[-1:]])
    pieces = [np.column_stack([edges[:-1][whole], edges[1:][whole]])]
    if kept[0]:  # below the first knot, where the feature itself goes on to decrease
        slope[followers], intercept[followers] = 0.0, values[:, 0]
        found = event.truncation(intercept, slope, feature).clip(None, knots[0])
        pieces.append(found[found[:, 1] > found[:, 0]])
    for cell in np.flatnonzero(kept[1:] != kept[:-1]):
        low, high = knots[cell], knots[cell + 1]
        slope[followers] = (values[:, cell + 1] - values[:, cell]) / (high - low)
        intercept[followers] = values[:, cell] - slope[followers] * low
        found = event.truncation(intercept, slope, feature).clip(low, high)
        pieces.append(found[found[:, 1] > found[:, 0]])
    every = np.concatenate(pieces)
    return joined(every[np.argsort(every[:, 0], kind="stable")])


def _increasing(path: Path) -> Path:
    """The path without repeated knots, which rounding may produce."""
    highest = np.maximum.accumulate(path.knots)
    added = np.concatenate([[True], np.diff(highest) > 1e-9 * (1.0 + np.abs(highest[1:]))])
    return path if added.all() else Path(path.knots[added], path.followers, path.values[:, added])
