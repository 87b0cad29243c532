"""Pairs of a view of the feature and a view of the response that are tested, and their shares of the level.

Each response has its own pairs. Their shares are based on the study in docs/power.md.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np

# The share of the level of the first pair for classes that goes to the balanced view, where there are more than two.
_BALANCED_SHARE = 0.7


class Pair(NamedTuple):
    """A view of the feature, a view of the response, and the share of the level that their statistic has."""

    feature: str
    response: str
    weight: float


PLAIN = (Pair("plain", "plain", 1.0),)
CLASSES = (
    Pair("rank-scores", "plain", 0.58),
    Pair("location-scale", "plain", 0.3),
    Pair("narrow", "plain", 0.12),
)
"""Pairs for two samples, and responses with two values."""


def for_several_classes(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """The pairs of two classes for more: the first one also with the balanced view, as a class may be rare."""
    first, *others = pairs
    shares = (("plain", 1.0 - _BALANCED_SHARE), ("balanced", _BALANCED_SHARE))
    return (*(Pair(first.feature, name, share * first.weight) for name, share in shares), *others)


SEVERAL_CLASSES = for_several_classes(CLASSES)
"""Pairs for a response of several classes."""
NUMBERS = (
    Pair("wide", "wide", 0.3),
    Pair("normal-scores", "normal-scores", 0.43),
    Pair("narrow", "wide", 0.08),
    Pair("wide", "location-scale", 0.05),
    Pair("local", "local", 0.14),
)
"""Pairs for a response of numbers."""
SCORES = (
    Pair("wide", "plain", 0.65),
    Pair("smooth", "plain", 0.2),
    Pair("narrow", "plain", 0.15),
)
"""Pairs for a response with a linear kernel, as log-rank scores: a hazard that grows with the feature comes first."""


def merged(pairs: Sequence[Pair], same: Callable[[Pair], Hashable]) -> tuple[Pair, ...]:
    """The pairs without those that are the same as earlier ones, which have their shares of the level as well.

    Examples
    --------
    >>> merged((Pair("smooth", "plain", 0.5), Pair("scale", "plain", 0.3), Pair("narrow", "plain", 0.2)), len)
    (Pair(feature='smooth', response='plain', weight=1.0),)
    """
    found: dict[Hashable, Pair] = {}
    for pair in pairs:
        known = found.setdefault(same(pair), pair._replace(weight=0.0))
        found[same(pair)] = known._replace(weight=known.weight + pair.weight)
    return tuple(found.values())


def chosen_pairs(pairs: Sequence[Pair], winner: np.ndarray) -> np.ndarray:
    """(b,) the pairs with these numbers, as objects."""
    found = np.empty(len(pairs), dtype=object)
    for place, pair in enumerate(pairs):
        found[place] = pair
    return found[winner]
