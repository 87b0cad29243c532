"""What changed, in words: the contrast in which the distributions of a feature differ most, with its numbers.

The statistic of a feature is a weighted sum of squared contrasts: orthogonal polynomials of the ranks, such as a shift
(degree 1) or a change of spread (degree 2), and bumps of the narrow kernel. A description names the contrast that is
largest in standard errors. Contrasts in use: degrees 1 and 2, one value that is much more common than its neighbours
(zeros, a code for missing values), and the interval of values whose share changed most, which covers every other
shape.

Where it is known which view of the feature (`kernsift.estimators.views`) has the smallest p-value, contrasts are those
that this view sees: location and spread of the values for "moments" and "scale" and of their ranks for the others; an
interval needs no allowance for the search for it where "narrow" saw it. With a linear kernel the test sees means, and
so the description is about means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from kernsift.report.text import shortened

# Quantiles of the pooled values between which shares are compared.
_CUTS = np.array([0.01, 0.02, 0.05, *np.arange(0.1, 0.95, 0.1), 0.95, 0.98, 0.99])
# The best of all intervals has to beat a contrast that was fixed beforehand by this much, and by this factor.
_SEARCH, _PREFERENCE = 6.0, 0.75
# An atom has at least this share of one sample, and this many times the share of a usual value.
_ATOM_SHARE, _ATOM_RATIO = 0.02, 5.0
# and explains this part of the change of the best interval, which may hold it.
_ATOM_PART = 0.9
# The bandwidth of the view of moments: four median distances of normal values, in their standard deviations.
_WIDE = 3.8
# A range is shown instead of a narrower one if its ratio is larger by this factor.
_CLEARLY = 1.3
_LONGEST_LEVEL = 100
_DIGITS = (3, 4, 5, 6, 8)
"""Significant digits that are tried in turn, until numbers can be told apart."""
# The share of a common value.
_TIED = 0.01
# Digits are enough if they tell this share of the ends of intervals apart.
_APART = 0.75
# A simpler curve is taken where it explains this share of what a more complicated one does.
_MONOTONE = 0.85


@dataclass(frozen=True)
class Description:
    """What changed in one feature.

    Attributes
    ----------
    change : str
        Such as "higher", "wider", "more zeros", "rises"; empty where nothing can be said.
    where : str
        The sample the change is in; empty where there is none to name.
    detail : str
        The numbers behind it: those of the second sample come first, "median 3.1 v 2.4".
    typical : str
        Medians, or shares of the level that changed most, which say nothing about a direction.
    medians : tuple of float
        Medians of the samples; empty for categories and for a response.
    held : str
        What is held fixed, such as "within strata" or "given age"; `typical` and `medians` are of the whole samples.
    size : float
        The change in squared standard errors, where that is known.

    Examples
    --------
    >>> Description("higher", "Y", "median 3.1 v 2.4").text
    'higher in Y: median 3.1 v 2.4'
    """

    change: str = ""
    where: str = ""
    detail: str = ""
    typical: str = ""
    medians: tuple[float, ...] = ()
    held: str = ""
    size: float = field(default=0.0, compare=False)

    @property
    def text(self) -> str:
        """The whole phrase."""
        start = f"{self.change} in {self.where}" if self.where and self.change else self.change
        start = " ".join(filter(None, [start, self.held if self.change else ""]))
        return ": ".join(filter(None, [start, self.detail]))

    def renamed(self, where: str) -> Description:
        """The same about a sample of another name."""
        return replace(self, where=where) if self.where else self


def more_missing(first: np.ndarray, second: np.ndarray, found: Description, where: str) -> Description:
    """The share of missing values, if that changed more than a shift of the values that are there; else `found`.

    `first` and `second` are one column each, with NaN where a value is missing.
    """
    pooled, label = _pool(first, second)
    gone = np.isnan(pooled)
    if not _share_size(gone, pooled, label):
        return found
    a, b = float(gone[label].mean()), float(gone[~label].mean())
    return replace(found, change=f"{_more(a, b)} missing", where=where, detail=_percent_versus(a, b))


_Measures = Sequence[tuple[str, Callable[[np.ndarray], float]]]


class _Contrast(NamedTuple):
    """A difference in squared standard errors, the phrase for it, and whether it is the share of one far value."""

    size: float
    change: str
    detail: str
    one_value: bool = False


# Two samples ---------------------------------------------------------------------------------------------------------


def describe_numbers(
    first: np.ndarray, second: np.ndarray, where: str = "", *, means: bool = False, view: str = ""
) -> Description:
    """How a number differs between two samples; with `means` only by its mean, which is what a linear kernel sees.

    `view` is the view of the feature with the smallest p-value; empty where that is not known.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(0, 10, 101)
    >>> describe_numbers(x, x + 3, "Y").text
    'higher in Y: median 8 v 5'
    """
    if not len(first) or not len(second):
        return Description()
    medians = (float(np.median(first)), float(np.median(second)))
    typical = f"median {_versus(medians[1], medians[0])}"
    pooled, label = _pool(first, second)
    if pooled.min() == pooled.max():
        return Description(typical=typical, medians=medians)
    if means:
        averages = float(second.mean()), float(first.mean())
        change = "higher" if averages[0] > averages[1] else "lower"
        return Description(change, where, f"mean {_versus(*averages)}", typical, medians)
    values = np.unique(pooled)
    if len(values) == 2:
        share = [float((sample == values[1]).mean()) for sample in (second, first)]
        detail = _percent_versus(*share)
        name = _number(values[1])
        more = "more often" if share[0] > share[1] else "less often"
        return Description(f"{more} {name}", where, detail, f"{name}: {detail}", medians)
    shape = _location_and_spread(first, second, label, view)
    found = _best(shape, _atom(first, second), _interval(first, second), view)
    return Description(found.change, where, found.detail, typical, medians, size=found.size)


def _best(shape: _Contrast, atom: _Contrast | None, interval: _Contrast, view: str) -> _Contrast:
    """A single value where that explains more than all others together; then shift and spread; then an interval."""
    if atom is not None and atom.size >= _ATOM_PART * (interval.size - _SEARCH):
        return atom
    if interval.one_value and interval.size > shape.size:
        return interval
    needed = _PREFERENCE * (interval.size - _search(view))
    return shape if shape.change and shape.size >= needed else interval


def _search(view: str) -> float:
    """The allowance for the search for an interval, which the narrow view makes itself."""
    return 0.0 if view in ("narrow", "local") else _SEARCH


def _pool(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both samples one below the other, and which rows are of the second."""
    return np.concatenate([first, second]), np.repeat([False, True], [len(first), len(second)])


def _location_and_spread(first: np.ndarray, second: np.ndarray, label: np.ndarray, view: str = "") -> _Contrast:
    """The shift or the change of spread, or both where both are large."""
    shift, spread = (_standardised(degree, label) for degree in _degrees(np.concatenate([first, second]), view))
    words, details = [], []
    size = shift**2 + spread**2
    if shift**2 >= size / 3:
        words.append("higher" if shift > 0 else "lower")
        details.append(_shifted(first, second, shift > 0))
    if spread**2 >= size / 3:
        measured = _spread(first, second, spread > 0)
        if measured:
            words.append("wider" if spread > 0 else "narrower")
            details.append(measured)
        elif not words:
            return _Contrast(0.0, "", "")
    return _Contrast(size, " and ".join(words), ", ".join(details))


def _degrees(values: np.ndarray, view: str = "") -> tuple[np.ndarray, np.ndarray]:
    """Orthogonal contrasts of degree 1 and 2 with mean 0, of values for a view of moments, else of midranks."""
    from scipy.stats import rankdata  # takes half a second to import

    one = _bounded(values) if view in ("moments", "scale") else 2.0 * (rankdata(values) - 0.5) / len(values) - 1.0
    one = one - one.mean()
    two = one**2 - (one**2).mean()
    two = two - one * ((one * two).sum() / max(float((one**2).sum()), 1e-300))
    return one, two


def _bounded(values: np.ndarray) -> np.ndarray:
    """Values as a view of moments sees them: in units of its bandwidth, four median distances, and bounded."""
    centre, spread = float(np.median(values)), _iqr(values) / 1.349
    spread = spread if spread > 0 else float(values.std())
    return np.clip((values - centre) / (_WIDE * spread), -1.0, 1.0) if spread > 0 else values - centre


def _standardised(contrast: np.ndarray, label: np.ndarray) -> float:
    """The difference of the means of a contrast, label True less False, in standard errors under equality."""
    spread = float(contrast.std())
    if spread < 1e-9:
        return 0.0
    count = label.sum()
    difference = float(contrast[label].mean() - contrast[~label].mean())
    return difference / (spread * math.sqrt(1.0 / count + 1.0 / (len(label) - count)))


def _shifted(first: np.ndarray, second: np.ndarray, up: bool) -> str:
    """Medians; where these are equal, the share above the value where the distribution functions differ most."""
    a, b = float(np.median(second)), float(np.median(first))
    if (a > b) if up else (a < b):
        return f"median {_versus(a, b)}"
    grid = np.unique(np.concatenate([first, second]))[:-1]
    above = [1.0 - np.searchsorted(np.sort(sample), grid, side="right") / len(sample) for sample in (second, first)]
    difference = above[0] - above[1]
    at = int(difference.argmax() if up else difference.argmin())
    return f"{_percent_versus(float(above[0][at]), float(above[1][at]))} above {_number(grid[at])}"


def _spread(first: np.ndarray, second: np.ndarray, wider: bool) -> str:
    """The interquartile range, or the range of the middle 90% where that changes in the right direction, or more."""
    found, most = "", 1.0
    for low, high, name in ((25, 75, "IQR"), (5, 95, "5-95% range")):
        a, b = (float(np.subtract(*np.percentile(sample, [high, low]))) for sample in (second, first))
        large, small = (a, b) if wider else (b, a)
        if large > most * small:
            found, most = f"{name} {_versus(a, b)}", _CLEARLY * large / small if small > 0 else math.inf
    return found


def _atom(first: np.ndarray, second: np.ndarray) -> _Contrast | None:
    """The share of one value, such as zero, where it changed more than the rest of the distribution."""
    pooled, label = _pool(first, second)
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
    size = _share_size(pooled == values[at], pooled, label)
    if not size:
        return None
    return _Contrast(size, f"{_more(*shares)} {_values_of(float(values[at]))}", _percent_versus(*shares), True)


def _share_size(flags: np.ndarray, pooled: np.ndarray, label: np.ndarray) -> float:
    """The change of the share of some values in squared standard errors; 0 where others changed more."""
    size, others, own = _standardised(flags.astype(float), label) ** 2, pooled[~flags], label[~flags]
    rest = [_standardised(degree, own) ** 2 for degree in _degrees(others)] if len(np.unique(own)) == 2 else []
    return size if size >= max([*rest, 4.0]) else 0.0


def _more(one: float, two: float) -> str:
    return "more" if one > two else "fewer"


def _interval(first: np.ndarray, second: np.ndarray) -> _Contrast:
    """The interval of values whose share changed most, in standard errors."""
    pooled = np.concatenate([first, second])
    values = np.unique(pooled)
    few = len(values) <= len(_CUTS)
    cuts, digits = _rounded(values, 1.0) if few else _rounded(np.quantile(pooled, _CUTS), _APART)
    edges = np.concatenate([[-np.inf], (values[1:] + values[:-1]) / 2 if few else cuts, [np.inf]])
    below = [np.searchsorted(np.sort(sample), edges, side="right") / len(sample) for sample in (second, first)]
    shares = [cumulative[None, :] - cumulative[:, None] for cumulative in below]
    pool = (len(second) * shares[0] + len(first) * shares[1]) / len(pooled)
    variance = pool * (1.0 - pool) * (1.0 / len(first) + 1.0 / len(second))
    inside = np.triu(np.ones_like(pool, dtype=bool), 1) & (variance > 1e-12)
    sizes = np.where(inside, (shares[0] - shares[1]) ** 2 / np.where(inside, variance, 1.0), 0.0)
    low, high = divmod(int(sizes.argmax()), sizes.shape[1])
    a, b = float(shares[0][low, high]), float(shares[1][low, high])
    # The smaller part of the distribution is the one to talk about.
    outside = a + b > 1.0
    ends, below = (values[[low, high - 1]], values[max(low - 1, 0)]) if few else (edges[[low, high]], edges[low])
    start, end, before = (_number(value, digits) for value in (*ends, below))
    # A value that is common at the lower end is not in the interval.
    common = not few and float((pooled == edges[low]).mean()) > _TIED
    place = _place(start, end, before, low == 0, high == len(edges) - 1, common)[outside]
    if outside:
        a, b = 1.0 - a, 1.0 - b
    # Of many values one, as a code for missing values that is far from all others.
    within = (values > edges[low]) & (values <= edges[high])
    one = values[~within if outside else within]
    one_value = len(one) == 1 and not few
    if one_value:
        place = _values_of(float(one[0]))
    return _Contrast(float(sizes[low, high]), f"{_more(a, b)} {place}", _percent_versus(a, b), one_value)


def _values_of(value: float) -> str:
    return "zeros" if value == 0 else f"values of {_number(value)}"


def _place(a: str, b: str, below: str, lowest: bool, highest: bool, common: bool) -> tuple[str, str]:
    """An interval in words, and what is outside it; `below` is the largest value that is not in it on its left."""
    if a == b:
        return f"values of {a}", f"values other than {a}"
    if lowest:
        return f"up to {b}", f"above {b}"
    if highest:
        return f"above {below}", f"up to {below}"
    if common:
        return f"above {a} and up to {b}", f"up to {a} or above {b}"
    return f"between {a} and {b}", f"outside {a} to {b}"


def describe_levels(first: np.ndarray, second: np.ndarray, levels: Sequence[str], where: str = "") -> Description:
    """The level whose share changed most between two samples of codes.

    Examples
    --------
    >>> import numpy as np
    >>> describe_levels(np.array([0, 0, 0, 0]), np.array([0, 0, 0, 1]), ["a", "other"], "Y").text
    "new level 'other' in Y: 25%"
    """
    if not len(first) or not len(second):
        return Description()
    a, b = (np.bincount(codes, minlength=len(levels)) / len(codes) for codes in (second, first))
    pool = (a * len(second) + b * len(first)) / (len(first) + len(second))
    sizes = (a - b) ** 2 / np.maximum(pool * (1.0 - pool), 1e-12)
    at = int(sizes.argmax())
    new = np.flatnonzero((b == 0) & (a > 0) & (sizes >= sizes[at] / 2))
    if len(new):
        at = int(new[sizes[new].argmax()])
    shares = _percent_versus(float(a[at]), float(b[at]))
    typical = f"{_quoted(levels[at])} {shares}"
    if a[at] == b[at]:
        return Description(typical=typical)
    change = "new level" if b[at] == 0 else "no" if a[at] == 0 else _more(a[at], b[at])
    detail = _percent(float(a[at])) if b[at] == 0 else shares
    return Description(f"{change} {_quoted(levels[at])}", where, detail, typical)


def describe_columns(first: np.ndarray, second: np.ndarray, where: str = "", *, means: bool = False) -> Description:
    """Several columns that are one feature: a shift of their centre, a change of spread, or of how they vary together.

    With `means` only a shift counts.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> describe_columns(rng.normal(size=(500, 2)), 3 * rng.normal(size=(500, 2)), "Y").change
    'wider'
    """
    if not len(first) or not len(second):
        return Description()
    pooled, label = _pool(first, second)
    spread = pooled.std(axis=0)
    standard = (pooled - pooled.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    shifts = np.array([_standardised(column, label) for column in standard.T])
    distance = np.sqrt((standard**2).mean(axis=1))
    wider = _standardised(_degrees(distance)[0], label)
    columns = len(shifts)
    # Squares of so many shifts have this mean under equality, and the largest correlation is one of many.
    moved = float((shifts**2).sum()) - columns + 1.0
    together, one, two = _correlations(standard, label)
    if not means and together > max(moved, wider**2) + 2.0 * math.log(max(columns * (columns - 1) / 2, 1.0)):
        detail = f"largest change {one + 0.0:.2f} v {two + 0.0:.2f}"
        return Description("other correlation", where, detail, size=together)
    if not means and wider**2 > moved:
        a, b = float(np.median(distance[label])), float(np.median(distance[~label]))
        change = "wider" if wider > 0 else "narrower"
        return Description(change, where, f"median distance from the centre {_versus(a, b)} SD", size=wider**2)
    apart = np.linalg.norm(standard[label].mean(axis=0) - standard[~label].mean(axis=0))
    return Description("shifted", where, f"by {apart / math.sqrt(columns):.2g} SD a column", size=moved)


def _correlations(standard: np.ndarray, label: np.ndarray) -> tuple[float, float, float]:
    """The largest change of a correlation in squared standard errors (Fisher's z), and both correlations."""
    if standard.shape[1] < 2 or min(label.sum(), (~label).sum()) < 5:
        return 0.0, 0.0, 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        two, one = (np.nan_to_num(np.corrcoef(standard[rows].T)) for rows in (label, ~label))
    size = 1.0 / (label.sum() - 3.0) + 1.0 / ((~label).sum() - 3.0)
    change = (np.arctanh(np.clip(two, -0.999, 0.999)) - np.arctanh(np.clip(one, -0.999, 0.999))) ** 2 / size
    np.fill_diagonal(change, 0.0)
    # A column that is nearly constant has a correlation of any size by chance.
    for sample in (standard[label], standard[~label]):
        flat = [np.unique(column, return_counts=True)[1].max() > 0.8 * len(column) for column in sample.T]
        change[flat], change[:, flat] = 0.0, 0.0
    place = np.unravel_index(int(change.argmax()), change.shape)
    return float(change[place]), float(two[place]), float(one[place])


# Against a response --------------------------------------------------------------------------------------------------


def describe_by_level(
    values: np.ndarray,
    codes: np.ndarray,
    levels: Sequence[str],
    what: str = "",
    *,
    means: bool = False,
    view: str = "",
) -> Description:
    """How a number differs between three or more levels of a category; `what` names the number.

    With `means` only by its mean, which is what a linear kernel sees; `view` is as in `describe_numbers`.

    Examples
    --------
    >>> import numpy as np
    >>> describe_by_level(np.arange(9.0), np.repeat([0, 1, 2], 3), ["a", "b", "c"]).text
    'differs by class: highest in c (median 7), lowest in a (1)'
    """
    counts = np.bincount(codes, minlength=len(levels))
    # The extremes of very small classes are chance.
    enough = np.flatnonzero(counts >= max(5, 0.01 * len(values)))
    used = enough if len(enough) > 1 else np.flatnonzero(counts >= min(5, counts.max()))
    if len(used) < 2 or values.min() == values.max():
        return Description()
    start = f"{what} differs by class" if what else "differs by class"
    if len(two := np.unique(values)) == 2:
        shares = np.array([(values[codes == level] == two[1]).mean() for level in used])
        top, bottom = (levels[used[place]] for place in (int(shares.argmax()), int(shares.argmin())))
        high, low = _percent_versus(float(shares.max()), float(shares.min())).split(" v ")
        return Description(start, "", f"{_number(two[1])} most often in {top} ({high}), least in {bottom} ({low})")
    sizes = []
    for degree in _degrees(values, view):
        variance = float(degree.var())
        squares = [degree[codes == level].mean() ** 2 for level in used]
        sizes.append(float(counts[used] @ squares) / variance if variance > 1e-9 else 0.0)
    # One class that differs in some other way from all others together.
    samples = [(values[codes != level], values[codes == level]) for level in used]
    parts = [_best(_Contrast(0.0, "", ""), _atom(*both), _interval(*both), view) for both in samples]
    at = int(np.argmax([part.size for part in parts]))
    size = parts[at].size / _PREFERENCE if parts[at].one_value else _PREFERENCE * (parts[at].size - _search(view))
    if not means and size > max(sizes):
        subject = " ".join(filter(None, [what, parts[at].change]))
        return Description(f"{subject} in {levels[used[at]]}", "", f"{parts[at].detail} elsewhere", size=parts[at].size)
    measures, most, least = _LOCATIONS[1:] if means else _LOCATIONS, "highest", "lowest"
    if not means and sizes[0] < sizes[1]:
        measures, most, least = _SPREADS, "widest", "narrowest"
    measured = {
        name: np.array([float(measure(values[codes == level])) for level in used]) for name, measure in measures
    }
    # The first measure that is not the same in all classes.
    name = next((name for name, found in measured.items() if found.max() > found.min()), measures[-1][0])
    found = measured[name]
    top, bottom = (levels[used[place]] for place in (int(found.argmax()), int(found.argmin())))
    high, low = _pair(float(found.max()), float(found.min()))
    return Description(start, "", f"{most} in {top} ({name} {high}), {least} in {bottom} ({low})", size=max(sizes))


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
    change = f"{_more(inside, outside)} {_quoted(own[level])} in {levels[group]}"
    return Description(change, "", f"{_percent_versus(inside, outside)} elsewhere")


def describe_curve(
    values: np.ndarray, target: np.ndarray, response: str = "y", *, means: bool = False, view: str = ""
) -> Description:
    """How a numeric response goes with a number; with `means` only along a straight line.

    `view` is the view of the response with the smallest p-value; the wide one sees its location before its spread, and
    a linear one nothing but its mean.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(-1, 1, 201)
    >>> describe_curve(x, x**2).change
    'U-shaped'
    """
    if not len(values) or values.min() == values.max() or target.min() == target.max():
        return Description()
    if means:
        slope = float(np.corrcoef(values, target)[0, 1])
        return Description("rises" if slope > 0 else "falls", "", f"correlation {slope:.2f}")
    (x1, x2), (y1, y2) = _degrees(values), _degrees(target)
    if view == "linear":
        y1, y2 = target - target.mean(), np.zeros(len(target))
    n, slices = len(values), _slices(values, 12 if len(values) >= 60 else 5)
    means_of = np.array([y1[part].mean() for part in slices])
    between = sum(len(part) * mean**2 for part, mean in zip(slices, means_of, strict=True)) / max(y1.var(), 1e-300)
    location = max(between - len(slices) + 1, n * _correlation(x1, y1) ** 2, n * _correlation(x2, y1) ** 2)
    spreads = _correlation(x1, y2), _correlation(x2, y2)
    if n * max(spreads[0] ** 2, spreads[1] ** 2) <= location or (view == "wide" and location >= _SEARCH + len(slices)):
        measures = _LOCATIONS[1:] if view == "linear" else _LOCATIONS
        found = _along_curve(values, target, slices, means_of, f"of {response}", measures)
        return replace(found, size=location)
    size = n * max(spreads[0] ** 2, spreads[1] ** 2)
    if abs(spreads[0]) >= abs(spreads[1]):
        fifths = _slices(values, 5)
        word, sign = ("rises", 1) if spreads[0] > 0 else ("falls", -1)
        shown = _shown(target, [fifths[0], fifths[-1]], _SPREADS, lambda a: sign * (a[1] - a[0]) > 0)
        return Description(f"spread of {response} {word}", "", shown, size=size)
    where, sign = ("at the ends", 1) if spreads[1] > 0 else ("in the middle", -1)
    ends = _shown(
        target, _slices(values, 3), _SPREADS, lambda a: min(sign * a[0], sign * a[-1]) > sign * a[len(a) // 2]
    )
    detail = f"{ends} (low, middle, high)" if ends else ""
    return Description(f"spread of {response} largest {where}", "", detail, size=size)


def _along_curve(
    values: np.ndarray,
    target: np.ndarray,
    slices: Sequence[np.ndarray],
    means: np.ndarray,
    of: str,
    measures: _Measures,
) -> Description:
    """The shape of the response along a number, with numbers that show it."""
    shape, turn = _shape(means, np.array([len(part) for part in slices]))
    if shape in ("rises", "falls"):
        fifths, sign = _slices(values, 5), 1 if shape == "rises" else -1
        ends = _shown(target, [fifths[0], fifths[-1]], measures, lambda a: sign * (a[1] - a[0]) > 0, of)
        return Description(shape, "", ends)
    if turn and len(slices) > 2:
        sign = 1 if shape == "U-shaped" else -1
        middle = np.unique(np.clip([turn - 1, turn], 1, len(slices) - 2))
        parts = [
            np.concatenate(some)
            for some in (slices[: middle[0]][:2], [slices[i] for i in middle], slices[middle[-1] + 1 :][-2:])
        ]
        ends = _shown(target, parts, measures, lambda a: min(sign * a[0], sign * a[2]) > sign * a[1], of)
        if ends:
            return Description(shape, "", f"{ends} (low, at {_number(float(np.median(values[parts[1]])))}, high)")
    sixths = _slices(values, 6)
    wave = _shown(target, sixths, measures, lambda a: len(set(np.sign(np.diff(a))) - {0}) == 2, of)
    if wave:
        return Description("goes up and down", "", wave)
    return Description("varies", "", _shown(target, sixths, measures, lambda a: True, of))


def _shape(means: np.ndarray, sizes: np.ndarray) -> tuple[str, int]:
    """The simplest shape that explains most of how these means of so many rows vary, and where it turns.

    Monotone shapes come first, which turn nowhere (0), then those with one turn, then others.
    """
    from sklearn.isotonic import isotonic_regression

    centre = np.average(means, weights=sizes)

    def explained(part: slice, up: bool) -> float:
        fitted = isotonic_regression(means[part], sample_weight=sizes[part], increasing=up)
        return float((sizes[part] * (fitted - centre) ** 2).sum())

    def turning(up: bool, turn: int) -> float:
        return explained(slice(turn), up) + explained(slice(turn, None), not up)

    whole = (sizes * (means - centre) ** 2).sum()
    size, monotone = max((explained(slice(None), up), name) for name, up in (("rises", True), ("falls", False)))
    shapes = (("U-shaped", False), ("inverted U", True))
    most, one_turn, turn = max((turning(up, turn), name, turn) for name, up in shapes for turn in range(1, len(means)))
    if size >= _MONOTONE * most:
        return monotone, 0
    return (one_turn, turn) if most >= _MONOTONE * whole else ("", 0)


def _correlation(one: np.ndarray, two: np.ndarray) -> float:
    size = float(np.sqrt((one**2).sum() * (two**2).sum()))
    return float((one * two).sum()) / size if size > 1e-12 else 0.0


def _slices(values: np.ndarray, count: int) -> list[np.ndarray]:
    """Rows in slices along the values: one for each value where these are few, else of equal numbers of rows."""
    distinct, own = np.unique(values, return_inverse=True)
    if len(distinct) <= count:
        return [np.flatnonzero(own == place) for place in range(len(distinct))]
    order = np.argsort(values, kind="stable")
    return [part for part in np.array_split(order, min(count, len(order))) if len(part)]


def _shown(
    target: np.ndarray,
    parts: Sequence[np.ndarray],
    measures: _Measures,
    holds: Callable[[np.ndarray], bool],
    of: str = "",
) -> str:
    """The first of the measures whose values in some parts of the rows show what is said; empty where none does."""
    for name, measure in measures:
        found = [float(measure(target[part])) for part in parts]
        # As many digits as it takes.
        for digits in _DIGITS:
            shown = [_number(value, digits) for value in found]
            if holds(np.array([float(text.replace(",", "")) for text in shown])):
                return " ".join(filter(None, [name, of, (" to " if len(found) == 2 else ", ").join(shown)]))
    return ""


# Numbers for reading -------------------------------------------------------------------------------------------------


def _iqr(values: np.ndarray) -> float:
    return float(np.subtract(*np.percentile(values, [75, 25])))


_LOCATIONS: _Measures = (("median", np.median), ("mean", np.mean))
_SPREADS: _Measures = (("IQR", _iqr), ("SD", np.std))


def _rounded(values: np.ndarray, apart: float) -> tuple[np.ndarray, int]:
    """Different numbers in as many digits as tell this share of them apart, and how many digits these are."""
    for digits in _DIGITS:
        found = np.unique([float(f"{value:.{digits}g}") for value in values])
        if len(found) >= apart * len(np.unique(values)):
            break
    return found, digits


def _number(value: float, digits: int = 3) -> str:
    """A number in so many significant digits; large ones are whole."""
    value = float(value)
    size = abs(value)
    if value == 0:
        return "0"
    if 1000 <= size < 1e7:
        return f"{value:,.0f}" if digits <= 4 else f"{value:,.{min(digits, 9) - 4}f}".rstrip("0").rstrip(".")
    return f"{value:.{digits}g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")


def _versus(one: float, two: float) -> str:
    return " v ".join(_pair(one, two))


def _pair(
    one: float, two: float, write: Callable[[float, int], str] = _number, tried: Sequence[int] = _DIGITS
) -> tuple[str, str]:
    """Two numbers in as many digits as it takes to tell them apart."""
    for digits in tried:
        a, b = write(one, digits), write(two, digits)
        if a != b or one == two:
            break
    return a, b


def _percent(share: float, digits: int = 0) -> str:
    if 0 < share < 0.005 and digits == 0:
        return f"{100 * share:.1g}%"
    return f"{100 * share:.{digits}f}%"


def _percent_versus(one: float, two: float) -> str:
    return " v ".join(_pair(one, two, _percent, (0, 1, 2, 3)))


def _quoted(level: str) -> str:
    return f"'{shortened(level, _LONGEST_LEVEL)}'"
