"""Truncation along curved paths, where the covariance models more than the null slopes.

A path (`kernsift.estimators.scores.Path`) is linear between its knots, so that between two of them the selection rule's
truncation for lines applies. It is evaluated only between knots of which one keeps the feature and the other does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kernsift.distributions.truncated_normal import joined
from kernsift.estimators.scores import CurvedCovariance, Path, Scores

Truncation = Callable[[np.ndarray, np.ndarray, int], np.ndarray]
"""From lines `intercept + slope * t` and a feature: the t for which the feature is kept, as a union of intervals."""

Kept = Callable[[np.ndarray, int], np.ndarray]
"""From many score vectors (g, d), which may be overwritten, and a feature: in which of them it is kept."""


Starts = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""From lines (b, d) of b features: the t from which on each is kept; NaN where that is not all."""


class Event(NamedTuple):
    """The event that a test conditions on: its truncation along lines, and whether it holds for given scores.

    `starts` is the truncation of many features at once, where most of them are kept on a half-line.
    """

    truncation: Truncation
    kept: Kept
    starts: Starts | None = None


def paths_of(scores: Scores, features: np.ndarray, columns: np.ndarray) -> list[Path | None]:
    """The paths of the named features, whose columns of the covariance are given; None for straight lines."""
    if isinstance(scores.cov, CurvedCovariance):
        return scores.cov.paths(features, columns)
    return [None] * len(features)


def truncation_along(
    path: Path | None, event: Event, intercept: np.ndarray, slope: np.ndarray, feature: int
) -> np.ndarray:
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
    if path is None:
        return event.truncation(intercept, slope, feature)
    knots, followers, values = _increasing(path)
    samples = intercept + slope * knots[:, None]
    samples[:, followers] = values.T
    samples[:, feature] = knots
    kept = event.kept(samples, feature)
    edges = np.concatenate([[-np.inf], knots, [np.inf]])
    # Intervals between knots: with both ends kept all of it, with one of them a part.
    whole = np.concatenate([kept[:1], kept[1:] & kept[:-1], kept[-1:]])
    pieces = [np.column_stack([edges[:-1][whole], edges[1:][whole]])]
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
