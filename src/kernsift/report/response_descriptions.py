"""How a feature depends on a response, in words: classes, cells of a cross table, or a curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from kernsift.report.contrasts import (
    NUMERIC,
    PREFERENCE_FACTOR,
    SEARCH_PENALTY,
    Contrast,
    DescribedFeature,
    main_contrast,
    polynomial_contrasts,
    search_allowance,
    slices_along,
    standardised,
)
from kernsift.report.descriptions import Description
from kernsift.report.number_format import (
    DIGITS,
    LOCATIONS,
    NUMBERS,
    SPREADS,
    Measures,
    NumberScale,
    format_pair,
    more_or_fewer,
    percent_versus,
    quoted_level,
)

# A simpler curve is taken where it explains this share of what a more complicated one does.
_MONOTONE = 0.85


def response_change(name: str, change: str) -> str:
    """A change of a response in the levels of a feature: "y higher", but "y has more zeros"."""
    has = "has " if name and change.startswith(("more", "fewer")) and not change.startswith("more often") else ""
    return f"{name} {has}{change}".strip()


def describe_by_level(
    values: np.ndarray,
    codes: np.ndarray,
    levels: Sequence[str],
    what: str = "",
    feature: DescribedFeature = NUMERIC,
) -> Description:
    """How a number differs between three or more levels of a category; `what` names the number.

    Examples
    --------
    >>> import numpy as np
    >>> describe_by_level(np.arange(9.0), np.repeat([0, 1, 2], 3), ["a", "b", "c"]).text
    'differs by class: highest in c (median 7), lowest in a (1)'
    """
    _, scale, means, view, _ = feature
    counts = np.bincount(codes, minlength=len(levels))
    # Extremes of very small classes are due to chance.
    fewest = max(5, math.ceil(0.01 * len(values)))
    fewest = fewest if (counts >= fewest).sum() > 1 else min(5, int(counts.max()))
    used = np.flatnonzero(counts >= fewest)
    which = f" of {fewest:,} or more rows" if len(used) < np.count_nonzero(counts) else ""
    distinct = np.unique(values)
    if len(used) < 2 or len(distinct) < 2:
        return Description()
    start, groups = f"{what} differs by class{which}".strip(), [values[codes == level] for level in used]
    if len(distinct) == 2:
        shares = np.array([(group == distinct[1]).mean() for group in groups])
        top, bottom = (_with_others(levels, used[shares == share]) for share in (shares.max(), shares.min()))
        high, low = percent_versus(float(shares.max()), float(shares.min())).split(" v ")
        detail = f"{scale.exact(distinct[1])} most often in {top} ({high}), least in {bottom} ({low})"
        upper = (values == distinct[1]).astype(float)
        return Description(start, "", detail, size=max(standardised(upper, codes == level) ** 2 for level in used))
    sizes = []
    for degree in polynomial_contrasts(values, view):
        variance = float(degree.var())
        squares = [degree[codes == level].mean() ** 2 for level in used]
        sizes.append(float(counts[used] @ squares) / variance if variance > 1e-9 else 0.0)
    # One class that differs in some other way from all others together.
    samples = [(values[codes != level], group) for level, group in zip(used, groups, strict=True)]
    parts = [main_contrast(Contrast(0.0, "", ""), *both, feature) for both in samples]
    at = int(np.argmax([part.size for part in parts]))
    best = parts[at]
    size = best.size / PREFERENCE_FACTOR if best.one_value else PREFERENCE_FACTOR * (best.size - search_allowance(view))
    if not means and size > max(sizes):
        change = f"{response_change(what, best.change)} in {levels[used[at]]}"
        return Description(change, "", f"{best.detail} elsewhere", size=best.size)
    measures, (most, least), write, unit = LOCATIONS, (scale.highest, scale.lowest), scale.write, ""
    if means:
        measures = LOCATIONS[1:]
    elif sizes[0] < sizes[1]:
        measures, (most, least), write, unit = SPREADS, ("widest", "narrowest"), NUMBERS.write, scale.unit
        groups = [group * scale.factor for group in groups]
    measured = {name: np.array([float(measure(group)) for group in groups]) for name, measure in measures}
    # The first measure that is not the same in all classes.
    name = next((name for name, found in measured.items() if found.max() > found.min()), measures[-1][0])
    found = measured[name]
    top, bottom = (_with_others(levels, used[found == extreme]) for extreme in (found.max(), found.min()))
    high, low = format_pair(float(found.max()), float(found.min()), write)
    detail = f"{most} in {top} ({name} {high}{unit}), {least} in {bottom} ({low})"
    return Description(start, "", detail, size=max(sizes))


def _with_others(levels: Sequence[str], equal: np.ndarray) -> str:
    """The first of the levels that are equal, and the number of the others."""
    others = len(equal) - 1
    return levels[equal[0]] + (f" and {others} {'other' if others == 1 else 'others'}" if others else "")


def describe_cells(codes: np.ndarray, target: np.ndarray, own: Sequence[str], levels: Sequence[str]) -> Description:
    """The level of a category that is most over- or under-represented in one of several classes.

    Examples
    --------
    >>> import numpy as np
    >>> describe_cells(np.array([0, 0, 1, 1, 1]), np.array([0, 0, 1, 1, 2]), ["a", "b"], ["x", "y", "z"]).text
    "more 'a' in x: 100% v 0% elsewhere"
    """
    table = np.zeros((len(own), len(levels)))
    np.add.at(table, (codes, target), 1.0)
    rows, columns, n = table.sum(axis=1, keepdims=True), table.sum(axis=0, keepdims=True), table.sum()
    expected = rows * columns / n
    variance = expected * (1.0 - rows / n) * (1.0 - columns / n)
    residual = np.where(variance > 0, (table - expected) / np.sqrt(np.where(variance > 0, variance, 1.0)), 0.0)
    # Of cells with equal residuals the one that is over-represented.
    level, group = divmod(int((np.abs(residual) + 1e-9 * residual).argmax()), table.shape[1])
    if residual[level, group] == 0:
        return Description()
    inside = float(table[level, group] / columns[0, group])
    outside = float((rows[level, 0] - table[level, group]) / max(n - columns[0, group], 1.0))
    change = f"{more_or_fewer(inside, outside)} {quoted_level(own[level])} in {levels[group]}"
    return Description(change, "", f"{percent_versus(inside, outside)} elsewhere")


def describe_curve(
    values: np.ndarray,
    target: np.ndarray,
    response: str = "y",
    feature: DescribedFeature = NUMERIC,
    response_scale: NumberScale = NUMBERS,
) -> Description:
    """How a numeric response depends on a number; only its linear trend if the test detects means alone.

    The view of the `feature` is that of the response; the wide one sees its location before its spread, and a linear
    one nothing but its mean. `response_scale` writes the response.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(-1, 1, 201)
    >>> describe_curve(x, x**2).change
    'U-shaped'
    """
    _, scale, means, view, _ = feature
    if not len(values) or values.min() == values.max() or target.min() == target.max():
        return Description()
    if means:
        slope = float(np.corrcoef(values, target)[0, 1])
        return Description(
            "rises" if slope > 0 else "falls", "", f"correlation {slope:.2f}", size=len(values) * slope**2
        )
    (x1, x2), (y1, y2) = polynomial_contrasts(values), polynomial_contrasts(target)
    if view == "linear":
        y1, y2 = target - target.mean(), np.zeros(len(target))
    n, slices = len(values), _slices(values, 12 if len(values) >= 60 else 5)
    sizes, means_of = np.array([len(part) for part in slices]), np.array([y1[part].mean() for part in slices])
    between = float(sizes @ means_of**2) / max(y1.var(), 1e-300)
    location = max(between - len(slices) + 1, n * _correlation(x1, y1) ** 2, n * _correlation(x2, y1) ** 2)
    spreads = _correlation(x1, y2), _correlation(x2, y2)
    if n * max(spreads[0] ** 2, spreads[1] ** 2) <= location or (
        view == "wide" and location >= SEARCH_PENALTY + len(slices)
    ):
        measures = LOCATIONS[1:] if view == "linear" else LOCATIONS
        within = float((y1**2).sum() - sizes @ means_of**2) / max(n - len(slices), 1)
        shape = _shape(means_of, sizes, within)
        found = _describe_shape(values, target, slices, shape, f"of {response}", measures, scale, response_scale)
        return replace(found, size=location)
    size, unit = n * max(spreads[0] ** 2, spreads[1] ** 2), response_scale.unit
    target = target * response_scale.factor
    if abs(spreads[0]) >= abs(spreads[1]):
        fifths = _slices(values, 5)
        word, sign = ("rises", 1) if spreads[0] > 0 else ("falls", -1)
        shown = _shown(target, [fifths[0], fifths[-1]], SPREADS, lambda a: sign * (a[1] - a[0]) > 0) + unit
        return Description(f"spread of {response} {word}", "", shown, size=size)
    where, sign = ("at the ends", 1) if spreads[1] > 0 else ("in the middle", -1)
    ends = _shown(target, _slices(values, 3), SPREADS, lambda a: min(sign * a[0], sign * a[-1]) > sign * a[len(a) // 2])
    detail = f"{ends}{unit} (low, middle, high)" if ends else ""
    return Description(f"spread of {response} largest {where}", "", detail, size=size)


def _describe_shape(
    values: np.ndarray,
    target: np.ndarray,
    slices: Sequence[np.ndarray],
    shape_and_turn: tuple[str, int],
    of: str,
    measures: Measures,
    scale: NumberScale,
    response_scale: NumberScale,
) -> Description:
    """The shape of the response along a number, with numbers that show it."""

    def shown(parts: Sequence[np.ndarray], holds: Callable[[np.ndarray], bool]) -> str:
        return _shown(target, parts, measures, holds, of, response_scale)

    shape, turn = shape_and_turn
    if shape in ("rises", "falls"):
        fifths, sign = _slices(values, 5), 1 if shape == "rises" else -1
        return Description(shape, "", shown([fifths[0], fifths[-1]], lambda a: sign * (a[1] - a[0]) > 0))
    if turn and len(slices) > 2:
        sign = 1 if shape == "U-shaped" else -1
        middle = np.unique(np.clip([turn - 1, turn], 1, len(slices) - 2))
        parts = [
            np.concatenate(some)
            for some in (slices[: middle[0]][:2], [slices[i] for i in middle], slices[middle[-1] + 1 :][-2:])
        ]
        ends = shown(parts, lambda a: min(sign * a[0], sign * a[2]) > sign * a[1])
        if ends:
            return Description(shape, "", f"{ends} (low, at {scale.write(float(np.median(values[parts[1]])))}, high)")
    sixths = _slices(values, 6)
    wave = shown(sixths, lambda a: len(set(np.sign(np.diff(a))) - {0}) == 2)
    if wave:
        return Description("goes up and down", "", wave)
    return Description("varies", "", shown(sixths, lambda a: True))


def _shape(means: np.ndarray, sizes: np.ndarray, variance: float) -> tuple[str, int]:
    """The simplest shape that explains most of the variation of means of `sizes` rows, and where it turns.

    Monotone shapes come first, which turn nowhere (0), then those with one turn, then others. `variance` is that of
    the rows within a slice, whose share in the variation of the means no shape has to explain.
    """
    from sklearn.isotonic import isotonic_regression

    centre = np.average(means, weights=sizes)

    def explained(part: slice, up: bool) -> float:
        fitted = isotonic_regression(means[part], sample_weight=sizes[part], increasing=up)
        return float((sizes[part] * (fitted - centre) ** 2).sum())

    def turning(up: bool, turn: int) -> float:
        return explained(slice(turn), up) + explained(slice(turn, None), not up)

    # The variation between k means of equal expectations is chi-squared with k - 1 degrees of freedom: its mean is due
    # to noise, and a monotone shape, the simplest, is kept unless there are two standard deviations more.
    free = len(means) - 1
    whole = (sizes * (means - centre) ** 2).sum() - variance * free
    size, monotone = max((explained(slice(None), up), name) for name, up in (("rises", True), ("falls", False)))
    shapes = (("U-shaped", False), ("inverted U", True))
    most, one_turn, turn = max((turning(up, turn), name, turn) for name, up in shapes for turn in range(1, len(means)))
    if size >= _MONOTONE * max(most, whole - 2.0 * variance * np.sqrt(2.0 * free)):
        return monotone, 0
    return (one_turn, turn) if most >= _MONOTONE * whole else ("", 0)


def _correlation(one: np.ndarray, two: np.ndarray) -> float:
    size = float(np.sqrt((one**2).sum() * (two**2).sum()))
    return float((one * two).sum()) / size if size > 1e-12 else 0.0


def _slices(values: np.ndarray, count: int) -> list[np.ndarray]:
    """Rows in slices along the values: one for each value where these are few, else of similar numbers of rows."""
    distinct, own = np.unique(values, return_inverse=True)
    if len(distinct) <= count:
        return [np.flatnonzero(own == place) for place in range(len(distinct))]
    return slices_along(values, count)


def _shown(
    target: np.ndarray,
    parts: Sequence[np.ndarray],
    measures: Measures,
    holds: Callable[[np.ndarray], bool],
    of: str = "",
    scale: NumberScale = NUMBERS,
) -> str:
    """The first measure whose values in some parts of the rows satisfy `holds`; empty where none does."""
    for name, measure in measures:
        found = [float(measure(target[part])) for part in parts]
        # The fewest digits that show it.
        for digits in DIGITS:
            shown = [scale.write(value, digits) for value in found]
            if holds(np.array([scale.read(text) for text in shown])):
                return " ".join(filter(None, [name, of, (" to " if len(found) == 2 else ", ").join(shown)]))
    return ""
