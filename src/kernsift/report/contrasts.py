"""Contrasts of two samples: shift, spread, one common value, or the interval whose share changed most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kernsift.report.number_format import (
    NUMBERS,
    NumberScale,
    interquartile_range,
    more_or_fewer,
    percent_versus,
    versus,
)

# Quantiles of the pooled values between which shares are compared.
_CUT_QUANTILES = np.array([0.01, 0.02, 0.05, *np.arange(0.1, 0.95, 0.1), 0.95, 0.98, 0.99])
# The best of all intervals must exceed a contrast fixed in advance by this much, and by this factor.
SEARCH_PENALTY, PREFERENCE_FACTOR = 6.0, 0.75
# An atom has at least this share of one sample, and this many times the share of a usual value.
_ATOM_SHARE, _ATOM_RATIO = 0.02, 5.0
# An atom explains at least this share of the change of the best interval, which may contain it.
_ATOM_PART_OF_INTERVAL = 0.9
# The bandwidth of the view of moments: four median distances of normal values, in their standard deviations.
_MOMENTS_BANDWIDTH = 3.8
# A range is shown instead of a narrower one if its ratio is larger by this factor.
_WIDER_RANGE_FACTOR = 1.3
# The share of the ends of intervals that must differ after rounding.
_DISTINCT_SHARE = 0.75


class Contrast(NamedTuple):
    """A difference in squared standard errors, the phrase for it, and whether it is the share of one far value."""

    size: float
    change: str
    detail: str
    one_value: bool = False


class DescribedFeature(NamedTuple):
    """What the test sees of a feature, and how its values are written."""

    levels: Sequence[str] | None = None  # the levels of a category; None for numbers
    scale: NumberScale = NUMBERS
    means: bool = False  # whether the test sees means alone, as with a linear kernel
    view: str = ""  # the view with the smallest p-value; empty where that is not known
    single_values: bool = True  # whether one value alone may be described; not where rows were repeated to weigh them


NUMERIC = DescribedFeature()


def main_contrast(shape: Contrast, first: np.ndarray, second: np.ndarray, feature: DescribedFeature) -> Contrast:
    """The contrast that is described of two samples, whose shift and spread are `shape`."""
    _, scale, _, view, single_values = feature
    atom = common_value(first, second, scale) if single_values else None
    interval = changed_interval(first, second, scale, single_values)
    found = best_contrast(shape, atom, interval, view)
    if found is interval and not interval.one_value and (up := _apart(first, second)):
        # A few rows beyond nearly all others: an interval has as large a contrast, but says less.
        return Contrast(
            found.size, scale.higher if up > 0 else scale.lower, _shift_phrase(first, second, up > 0, scale)
        )
    return found


def _apart(first: np.ndarray, second: np.ndarray) -> int:
    """1 if nearly all values of the second sample are above nearly all of the first, -1 if below, else 0."""
    (low, high), (other_low, other_high) = (np.quantile(sample, [0.05, 0.95]) for sample in (first, second))
    return int(other_low > high) - int(other_high < low)


def best_contrast(shape: Contrast, atom: Contrast | None, interval: Contrast, view: str) -> Contrast:
    """A single value where that explains more than all others together; then shift and spread; then an interval."""
    if atom is not None and atom.size >= _ATOM_PART_OF_INTERVAL * (interval.size - SEARCH_PENALTY):
        return atom
    if interval.one_value and interval.size > shape.size:
        return interval
    needed = PREFERENCE_FACTOR * (interval.size - search_allowance(view))
    return shape if shape.change and shape.size >= needed else interval


def search_allowance(view: str) -> float:
    """The penalty for searching for an interval; 0 for narrow views, whose kernel makes the same search."""
    return 0.0 if view in ("narrow", "local") else SEARCH_PENALTY


def pooled_samples(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both samples concatenated, and which rows are of the second."""
    return np.concatenate([first, second]), np.repeat([False, True], [len(first), len(second)])


def location_and_spread(
    first: np.ndarray, second: np.ndarray, label: np.ndarray, view: str, scale: NumberScale
) -> Contrast:
    """The shift or the change of spread, or both where both are large."""
    shift, spread = (
        standardised(degree, label) for degree in polynomial_contrasts(np.concatenate([first, second]), view)
    )
    words, details = [], []
    size = shift**2 + spread**2
    if shift**2 >= size / 3:
        words.append(scale.higher if shift > 0 else scale.lower)
        details.append(_shift_phrase(first, second, shift > 0, scale))
    if spread**2 >= size / 3:
        measured = _spread_phrase(first, second, spread > 0, scale)
        if measured:
            words.append("wider" if spread > 0 else "narrower")
            details.append(measured)
        elif not words:
            return Contrast(0.0, "", "")
    return Contrast(size, " and ".join(words), ", ".join(details))


def polynomial_contrasts(values: np.ndarray, view: str = "") -> tuple[np.ndarray, np.ndarray]:
    """Orthogonal contrasts of degree 1 and 2 with mean 0, of values for a view of moments, else of midranks."""
    ordered = np.sort(values)
    # Midranks without scipy.stats, which takes a third of a second to import.
    ranks = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    one = _bounded(values) if view in ("moments", "scale", "location-scale") else ranks / len(values) - 1.0
    one = one - one.mean()
    two = one**2 - (one**2).mean()
    two = two - one * ((one * two).sum() / max(float((one**2).sum()), 1e-300))
    return one, two


def _bounded(values: np.ndarray) -> np.ndarray:
    """Values as a view of moments sees them: in units of its bandwidth, four median distances, and bounded."""
    centre, spread = float(np.median(values)), interquartile_range(values) / 1.349
    spread = spread if spread > 0 else float(values.std())
    return np.clip((values - centre) / (_MOMENTS_BANDWIDTH * spread), -1.0, 1.0) if spread > 0 else values - centre


def standardised(contrast: np.ndarray, label: np.ndarray) -> float:
    """The difference of the means of a contrast, label True less False, in standard errors under equality."""
    spread = float(contrast.std())
    if spread < 1e-9:
        return 0.0
    count = label.sum()
    difference = float(contrast[label].mean() - contrast[~label].mean())
    return difference / (spread * math.sqrt(1.0 / count + 1.0 / (len(label) - count)))


def slices_along(values: np.ndarray, count: int) -> list[np.ndarray]:
    """Rows in at most `count` slices along the values, of similar numbers of rows.

    Rows with the same value are in one slice, so that nothing depends on the order of the rows. A slice has at least
    half as many rows as it would have without ties, unless nearly all rows have one value.

    Examples
    --------
    >>> import numpy as np
    >>> [rows.tolist() for rows in slices_along(np.array([0, 3, 0, 0, 1, 0, 2]), 3)]
    [[0, 2, 3, 5], [4, 6, 1]]
    """
    order = np.argsort(values, kind="stable")
    ordered, count = values[order], min(count, len(order))
    ends = np.cumsum([len(part) for part in np.array_split(order, count)])[:-1]
    before, after = (np.searchsorted(ordered, ordered[ends], side) for side in ("left", "right"))
    ends = np.unique(np.where(ends - before <= after - ends, before, after))
    kept, fewest = [0], len(order) / (2 * count)
    for end in ends.tolist():
        if min(end - kept[-1], len(order) - end) >= fewest:
            kept.append(end)
    return [part for part in np.split(order, kept[1:] or ends) if len(part)]


def _shift_phrase(first: np.ndarray, second: np.ndarray, up: bool, scale: NumberScale) -> str:
    """Medians; where these are equal, the share above the value where the distribution functions differ most."""
    a, b = float(np.median(second)), float(np.median(first))
    if (a > b) if up else (a < b):
        return f"median {versus(a, b, scale)}"
    grid = np.unique(np.concatenate([first, second]))[:-1]
    above = [1.0 - np.searchsorted(np.sort(sample), grid, side="right") / len(sample) for sample in (second, first)]
    difference = above[0] - above[1]
    at = int(difference.argmax() if up else difference.argmin())
    shares = percent_versus(float(above[0][at]), float(above[1][at]))
    return f"{shares} {scale.above} {scale.exact(grid[at])}"


def _spread_phrase(first: np.ndarray, second: np.ndarray, wider: bool, scale: NumberScale) -> str:
    """The interquartile range, or the range of the middle 90% where that changes in the right direction, or more."""
    found, most = "", 1.0
    for low, high, name in ((25, 75, "IQR"), (5, 95, "5-95% range")):
        ranges = (np.subtract(*np.percentile(sample, [high, low])) for sample in (second, first))
        a, b = (float(one) * scale.factor for one in ranges)
        large, small = (a, b) if wider else (b, a)
        if large > most * small:
            found, most = (
                f"{name} {versus(a, b)}{scale.unit}",
                _WIDER_RANGE_FACTOR * large / small if small > 0 else math.inf,
            )
    return found


def common_value(first: np.ndarray, second: np.ndarray, scale: NumberScale = NUMBERS) -> Contrast | None:
    """The share of one value, such as zero, where it changed more than the rest of the distribution."""
    pooled, label = pooled_samples(first, second)
    values, counts = np.unique(pooled, return_counts=True)
    if len(values) < 4:
        return None
    own = np.array([np.searchsorted(np.sort(sample), values, side="right") for sample in (second, first)])
    own = np.diff(own, axis=1, prepend=0) / np.array([[len(second)], [len(first)]])
    common = (own.max(axis=0) >= _ATOM_SHARE) & (counts >= _ATOM_RATIO * np.median(counts))
    if not common.any():
        return None
    at = int(np.where(common, np.abs(own[0] - own[1]), -1.0).argmax())
    shares = own[:, at].tolist()
    size = share_contrast(pooled == values[at], pooled, label)
    if not size:
        return None
    change = f"{more_or_fewer(*shares)} {_values_phrase(float(values[at]), scale)}"
    return Contrast(size, change, percent_versus(*shares), True)


def share_contrast(flags: np.ndarray, pooled: np.ndarray, label: np.ndarray) -> float:
    """The change of the share of some values in squared standard errors; 0 where others changed more."""
    size, others, own = standardised(flags.astype(float), label) ** 2, pooled[~flags], label[~flags]
    rest = (
        [standardised(degree, own) ** 2 for degree in polynomial_contrasts(others)] if len(np.unique(own)) == 2 else []
    )
    return size if size >= max([*rest, 4.0]) else 0.0


def changed_interval(
    first: np.ndarray, second: np.ndarray, scale: NumberScale = NUMBERS, single_values: bool = True
) -> Contrast:
    """The interval of values whose share changed most, in standard errors."""
    pooled = np.concatenate([first, second])
    values = np.unique(pooled)
    few = len(values) <= len(_CUT_QUANTILES)
    cuts, digits = (
        scale.rounded(values, 1.0) if few else scale.rounded(np.quantile(pooled, _CUT_QUANTILES), _DISTINCT_SHARE)
    )
    edges = np.concatenate([[-np.inf], (values[1:] + values[:-1]) / 2 if few else cuts, [np.inf]])
    below = [np.searchsorted(np.sort(sample), edges, side="right") / len(sample) for sample in (second, first)]
    shares = [cumulative[None, :] - cumulative[:, None] for cumulative in below]
    pool = (len(second) * shares[0] + len(first) * shares[1]) / len(pooled)
    variance = pool * (1.0 - pool) * (1.0 / len(first) + 1.0 / len(second))
    inside = np.triu(np.ones_like(pool, dtype=bool), 1) & (variance > 1e-12)
    sizes = np.where(inside, (shares[0] - shares[1]) ** 2 / np.where(inside, variance, 1.0), 0.0)
    low, high = divmod(int(sizes.argmax()), sizes.shape[1])
    a, b = float(shares[0][low, high]), float(shares[1][low, high])
    # The smaller part of the distribution is described.
    outside = a + b > 1.0
    ends, below = (values[[low, high - 1]], values[max(low - 1, 0)]) if few else (edges[[low, high]], edges[low])
    start, end, before = (scale.write(value, digits) for value in (*ends, below))
    # Values at the lower end are not in the interval, and neither is the day of a date there.
    excluded = not few and (scale is not NUMBERS or bool((pooled == edges[low]).any()))
    place = _interval_phrases(start, end, before, low == 0, high == len(edges) - 1, excluded, scale.above)[outside]
    if outside:
        a, b = 1.0 - a, 1.0 - b
    # One of many values, such as a code for missing values that is far from the others.
    within = (values > edges[low]) & (values <= edges[high])
    one = values[~within if outside else within]
    one_value = len(one) == 1 and not few and single_values
    if len(one) == 1 and (few or single_values):
        place = _values_phrase(float(one[0]), scale)
    return Contrast(float(sizes[low, high]), f"{more_or_fewer(a, b)} {place}", percent_versus(a, b), one_value)


def _values_phrase(value: float, scale: NumberScale) -> str:
    return "zeros" if value == 0 and scale is NUMBERS else f"values of {scale.exact(value)}"


def _interval_phrases(
    a: str, b: str, below: str, lowest: bool, highest: bool, excluded: bool, above: str
) -> tuple[str, str]:
    """An interval in words, and what is outside it; `below` is the largest value that is not in it on its left."""
    if a == b:
        return f"values of {a}", f"values other than {a}"
    if lowest:
        return f"up to {b}", f"{above} {b}"
    if highest:
        return f"{above} {below}", f"up to {below}"
    if excluded:
        return f"{above} {a} and up to {b}", f"up to {a} or {above} {b}"
    return f"between {a} and {b}", f"outside {a} to {b}"
