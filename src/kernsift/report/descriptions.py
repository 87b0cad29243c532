"""What changed, in words: the contrast in which the distributions of a feature differ most, with its numbers.

The statistic of a feature is a weighted sum of squared contrasts: orthogonal polynomials of the ranks, such as a shift
(degree 1) or a change of spread (degree 2), and bumps of the narrow kernel. A description names the contrast that is
largest in standard errors. Contrasts in use: degrees 1 and 2, one value that is much more common than its neighbours
(zeros, a code for missing values), and the interval of values whose share changed most, which covers every other
shape.

Where it is known which view of the feature (`kernsift.estimators.views`) has the smallest p-value, contrasts are those
that this view sees: location and spread of the values for "moments", "scale" and "location-scale", and of their ranks
for the others; an interval needs no allowance for the search for it where "narrow" saw it. With a linear kernel the
test sees means, and so the description is about means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kernsift.report.contrasts import (
    NUMERIC,
    DescribedFeature,
    location_and_spread,
    main_contrast,
    polynomial_contrasts,
    pooled_samples,
    share_contrast,
    standardised,
)
from kernsift.report.number_format import format_percent, more_or_fewer, percent_versus, quoted_level, versus


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
        Medians, means where these are equal, or shares of the level that changed most; they tell no direction.
    medians : tuple of float
        Medians of the samples, of dates in days since 1970; empty for categories and for a response.
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


def more_missing(values: np.ndarray, codes: np.ndarray, classes: Sequence[str], found: Description) -> Description:
    """The class whose share of missing values changed most, if it changed more than the other values; else `found`.

    `values` is one column with NaN where a value is missing, `codes` are the classes of its rows.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0] + [np.nan] * 8)
    >>> more_missing(values, np.repeat([0, 1], 8), ["a", "b"], Description()).text
    'more missing in b: 100% v 0%'
    """
    used, gone = np.unique(codes), np.isnan(values)
    two = len(used) == 2
    chosen = used[1:] if two else used
    sizes = [share_contrast(gone, values, codes == one) for one in chosen]
    at = int(np.argmax(sizes))
    # Of two classes `found` is about the same two, and has been compared.
    if sizes[at] <= (0.0 if two else found.size):
        return found
    inside = codes == chosen[at]
    a, b = float(gone[inside].mean()), float(gone[~inside].mean())
    detail = percent_versus(a, b) + ("" if two else " elsewhere")
    return replace(found, change=f"{more_or_fewer(a, b)} missing", where=classes[chosen[at]], detail=detail)


def describe_numbers(
    first: np.ndarray, second: np.ndarray, where: str = "", feature: DescribedFeature = NUMERIC
) -> Description:
    """How a number differs between two samples; only by its mean where the test sees nothing else.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(0, 10, 101)
    >>> describe_numbers(x, x + 3, "Y").text
    'higher in Y: median 8 v 5'
    """
    scale, one, two = feature.scale, float(np.median(first)), float(np.median(second))
    typical, medians = f"median {versus(two, one, scale)}", (scale.number(one), scale.number(two))
    pooled, label = pooled_samples(first, second)
    if pooled.min() == pooled.max():
        return Description(typical=typical, medians=medians)
    averages = float(second.mean()), float(first.mean())
    if one == two:  # which tells nothing about a column that is mostly 0
        typical = f"mean {versus(*averages, scale)}"
    if feature.means:
        change = scale.higher if averages[0] > averages[1] else scale.lower
        detail = f"mean {versus(*averages, scale)}"
        return Description(change, where, detail, detail, medians, size=standardised(pooled, label) ** 2)
    values = np.unique(pooled)
    if len(values) == 2:
        share = [float((sample == values[1]).mean()) for sample in (second, first)]
        detail = percent_versus(*share)
        name = scale.exact(values[1])
        more = "more often" if share[0] > share[1] else "less often"
        return Description(f"{more} {name}", where, detail, f"{name}: {detail}", medians)
    shape = location_and_spread(first, second, label, feature.view, scale)
    found = main_contrast(shape, first, second, feature)
    return Description(found.change, where, found.detail, typical, medians, size=found.size)


def describe_levels(first: np.ndarray, second: np.ndarray, levels: Sequence[str], where: str = "") -> Description:
    """The level whose share changed most between two samples of codes.

    Examples
    --------
    >>> import numpy as np
    >>> describe_levels(np.array([0, 0, 0, 0]), np.array([0, 0, 0, 1]), ["a", "other"], "Y").text
    "new level 'other' in Y: 25%"
    """
    a, b = (np.bincount(codes, minlength=len(levels)) / len(codes) for codes in (second, first))
    pool = (a * len(second) + b * len(first)) / (len(first) + len(second))
    sizes = (a - b) ** 2 / np.maximum(pool * (1.0 - pool), 1e-12)
    at = int(sizes.argmax())
    new = np.flatnonzero((b == 0) & (a > 0) & (sizes >= sizes[at] / 2))
    if len(new):
        at = int(new[sizes[new].argmax()])
    shares = percent_versus(float(a[at]), float(b[at]))
    typical = f"{quoted_level(levels[at])} {shares}"
    if a[at] == b[at]:
        return Description(typical=typical)
    change = "new level" if b[at] == 0 else "no" if a[at] == 0 else more_or_fewer(a[at], b[at])
    detail = format_percent(float(a[at])) if b[at] == 0 else shares
    return Description(f"{change} {quoted_level(levels[at])}", where, detail, typical)


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
    pooled, label = pooled_samples(first, second)
    spread = pooled.std(axis=0)
    standard = (pooled - pooled.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    shifts = np.array([standardised(column, label) for column in standard.T])
    distance = np.sqrt((standard**2).mean(axis=1))
    wider = standardised(polynomial_contrasts(distance)[0], label)
    columns = len(shifts)
    # Under equality the sum of the squared shifts has mean `columns`, and the largest correlation is one of many.
    moved = float((shifts**2).sum()) - columns + 1.0
    together, one, two = _correlations(standard, label)
    if not means and together > max(moved, wider**2) + 2.0 * math.log(max(columns * (columns - 1) / 2, 1.0)):
        detail = f"largest change {one + 0.0:.2f} v {two + 0.0:.2f}"
        return Description("other correlation", where, detail, size=together)
    if not means and wider**2 > moved:
        a, b = float(np.median(distance[label])), float(np.median(distance[~label]))
        change = "wider" if wider > 0 else "narrower"
        return Description(change, where, f"median distance from the centre {versus(a, b)} SD", size=wider**2)
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
