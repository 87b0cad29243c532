"""Numbers, percentages and measures of location and spread as they are written in descriptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kernsift.report.text import shortened

_LONGEST_LEVEL = 100
DIGITS = (3, 4, 5, 6, 8)
"""Numbers of significant digits, tried in this order until numbers differ."""


Measures = Sequence[tuple[str, Callable[[np.ndarray], float]]]


def more_or_fewer(one: float, two: float) -> str:
    return "more" if one > two else "fewer"


def interquartile_range(values: np.ndarray) -> float:
    return float(np.subtract(*np.percentile(values, [75, 25])))


LOCATIONS: Measures = (("median", np.median), ("mean", np.mean))


SPREADS: Measures = (("IQR", interquartile_range), ("SD", np.std))


def rounded(values: np.ndarray, apart: float) -> tuple[np.ndarray, int]:
    """The numbers rounded to the fewest digits at which this share of them differ, and the number of digits."""
    for digits in DIGITS:
        found = np.unique([float(f"{value:.{digits}g}") for value in values])
        if len(found) >= apart * len(np.unique(values)):
            break
    return found, digits


def format_number(value: float, digits: int = 3) -> str:
    """A number with this many significant digits; large ones are rounded to integers."""
    value = float(value)
    size = abs(value)
    if value == 0:
        return "0"
    if 1000 <= size < 1e7:
        return f"{value:,.0f}" if digits <= 4 else f"{value:,.{min(digits, 9) - 4}f}".rstrip("0").rstrip(".")
    return f"{value:.{digits}g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")


def versus(one: float, two: float) -> str:
    return " v ".join(format_pair(one, two))


def format_pair(
    one: float, two: float, write: Callable[[float, int], str] = format_number, tried: Sequence[int] = DIGITS
) -> tuple[str, str]:
    """Two numbers with the fewest digits at which they differ."""
    for digits in tried:
        a, b = write(one, digits), write(two, digits)
        if a != b or one == two:
            break
    return a, b


def format_percent(share: float, digits: int = 0) -> str:
    if 0 < share < 0.005 and digits == 0:
        return f"{100 * share:.1g}%"
    return f"{100 * share:.{digits}f}%"


def percent_versus(one: float, two: float) -> str:
    return " v ".join(format_pair(one, two, format_percent, (0, 1, 2, 3)))


def quoted_level(level: str) -> str:
    return f"'{shortened(level, _LONGEST_LEVEL)}'"
