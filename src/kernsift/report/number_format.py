"""Numbers, percentages and measures of location and spread as they are written in descriptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernsift.data.columns.cells import MICROSECONDS
from kernsift.data.columns.encoding import date_name
from kernsift.report.text import abbreviated, share_text

_LONGEST_LEVEL = 100
DIGITS = (3, 4, 5, 6, 8, 12)
"""Numbers of significant digits, tried in this order until numbers differ."""

Measures = Sequence[tuple[str, Callable[[np.ndarray], float]]]


def more_or_fewer(one: float, two: float) -> str:
    return "more" if one > two else "fewer"


def interquartile_range(values: np.ndarray) -> float:
    return float(np.subtract(*np.percentile(values, [75, 25])))


LOCATIONS: Measures = (("median", np.median), ("mean", np.mean))
SPREADS: Measures = (("IQR", interquartile_range), ("SD", np.std))


def format_number(value: float, digits: int = 3) -> str:
    """A number with this many significant digits; large ones are rounded to integers.

    Examples
    --------
    >>> format_number(0.012345), format_number(1234567), format_number(1.7e9), format_number(1_700_000_400, 8)
    ('0.0123', '1,234,567', '1.7e9', '1,700,000,400')
    """
    value = float(value)
    size = abs(value)
    if value == 0:
        return "0"
    if 1000 <= size < 1e7:
        return f"{value:,.0f}" if digits <= 4 else f"{value:,.{min(digits, 9) - 4}f}".rstrip("0").rstrip(".")
    if 1e7 <= size < 1e15 and digits > 3:
        return f"{float(f'{value:.{digits}g}'):,.0f}"
    return f"{value:.{digits}g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")


@dataclass(frozen=True)
class NumberScale:
    """How the values of a feature are written, and the words for their order."""

    higher, lower, above, highest, lowest, unit = "higher", "lower", "above", "highest", "lowest", ""
    factor = 1.0
    """By which differences of values are multiplied where they are written."""
    whole = False
    """Whether values are written in whole units, such as days."""

    def write(self, value: float, digits: int = 3) -> str:
        return format_number(value, digits)

    def number(self, value: float) -> float:
        """A value as a number, without an origin that was subtracted from it."""
        return value

    def exact(self, value: float) -> str:
        """A value that occurs in the data, such as a code: with all its digits, where these are few."""
        written = (self.write(value, digits) for digits in DIGITS)
        return next((text for text in written if self.read(text) == value), self.write(value, 6))

    def read(self, text: str) -> float:
        """The number that `write` wrote."""
        return float(text.replace(",", ""))

    def cut(self, value: float, digits: int) -> float:
        """The end of an interval near a value, with this many digits."""
        return float(f"{value:.{digits}g}")

    def rounded(self, values: np.ndarray, apart: float) -> tuple[np.ndarray, int]:
        """Cuts with the fewest digits at which this share of the values differ, and the number of digits."""
        for digits in DIGITS:
            found = np.unique([self.cut(value, digits) for value in values.tolist()])
            if len(found) >= apart * len(np.unique(values)):
                break
        return found, digits


class YearScale(NumberScale):
    """Years, and other integers of four digits in their range, which are written without commas."""

    def write(self, value: float, digits: int = 3) -> str:
        return format_number(value, digits).replace(",", "")

    def cut(self, value: float, digits: int) -> float:
        return float(math.floor(value))


class TruthScale(NumberScale):
    """Truth values, which are 0 and 1."""

    def exact(self, value: float) -> str:
        return str(bool(value)) if value in (0.0, 1.0) else super().exact(value)


@dataclass(frozen=True)
class DateScale(NumberScale):
    """Dates in days since `origin`, which is in days since 1970: days, or minutes and less where these are needed.

    Examples
    --------
    >>> DateScale(19723.0).write(31.5), DateScale(19723.0).write(31.5, 4)
    ('2024-02-01', '2024-02-01 12:00')
    """

    origin: float
    higher, lower, above, highest, lowest, unit = "later", "earlier", "after", "latest", "earliest", " days"
    whole = True

    def write(self, value: float, digits: int = 3) -> str:
        if math.isinf(value):
            return str(value)
        # Two microseconds are added, so that rounding does not lead to the unit before.
        stamp = np.datetime64(math.floor((self.origin + value) * MICROSECONDS) + 2, "us")
        return str(stamp.astype(f"M8[{_UNITS[digits][0]}]")).replace("T", " ")

    def number(self, value: float) -> float:
        return self.origin + value

    def exact(self, value: float) -> str:
        return date_name(self.origin + value).replace("T", " ")

    def read(self, text: str) -> float:
        return float(np.datetime64(text, "us").astype(np.int64))

    def cut(self, value: float, digits: int) -> float:
        """The end of the day or of the minute, so that an interval up to a day includes it."""
        unit = _UNITS[digits][1] / MICROSECONDS
        return (math.floor((self.origin + value) / unit + 1e-9) + 1) * unit - min(unit / 100, 1e-8) - self.origin


@dataclass(frozen=True)
class DurationScale(NumberScale):
    """Times and durations, which are numbers of days, in a unit of which a day has `factor`.

    Examples
    --------
    >>> DurationScale(24.0, " h").write(0.0625), DurationScale(24.0, " h").exact(0.25)
    ('1.5 h', '6 h')
    """

    factor: float
    unit: str

    @classmethod
    def of(cls, values: np.ndarray) -> DurationScale:
        """The largest unit that most of the values reach."""
        size = np.abs(values[np.isfinite(values) & (values != 0)])
        typical = float(np.median(size)) if len(size) else 1.0
        return next((scale for scale in _DURATIONS if typical * scale.factor >= 0.9995), _DURATIONS[-1])

    def write(self, value: float, digits: int = 3) -> str:
        return f"{format_number(value * self.factor, digits)}{self.unit}"

    def read(self, text: str) -> float:
        return super().read(text.removesuffix(self.unit)) / self.factor

    def cut(self, value: float, digits: int) -> float:
        return super().cut(value * self.factor, digits) / self.factor


@dataclass(frozen=True)
class LongScale(NumberScale):
    """Integers beyond 2^53 less `origin`, which are written in full."""

    origin: int
    whole = True

    def write(self, value: float, digits: int = 3) -> str:
        return str(value) if math.isinf(value) else f"{self.origin + math.floor(value):,}"

    def number(self, value: float) -> float:
        return self.origin + value

    def read(self, text: str) -> float:
        return float(int(text.replace(",", "")) - self.origin)

    def cut(self, value: float, digits: int) -> float:
        return float(math.floor(value))


# The unit of a date that is written with this many digits, and its microseconds.
_UNITS = {3: ("D", MICROSECONDS), 4: ("m", 60e6), 5: ("s", 1e6), 6: ("ms", 1e3), 8: ("us", 1.0), 12: ("us", 1.0)}
_DURATIONS = [DurationScale(*unit) for unit in ((1.0, " days"), (24.0, " h"), (1440.0, " min"), (86400.0, " s"))]
NUMBERS = NumberScale()


def scale_of(origin: Any, values: np.ndarray) -> NumberScale:
    """The scale of values by their origin, as in `Table`: an integer, a date in floating point, False or a duration."""
    if origin is None:
        known = values[~np.isnan(values)]
        years = len(known) > 0 and known.min() >= 1500 and known.max() <= 2200 and (known == np.floor(known)).all()
        return YearScale() if years else NUMBERS
    if isinstance(origin, np.timedelta64):
        return DurationScale.of(values)
    if isinstance(origin, bool):
        return TruthScale()
    return LongScale(origin) if isinstance(origin, int) else DateScale(origin)


def versus(one: float, two: float, scale: NumberScale = NUMBERS) -> str:
    """Two numbers with digits enough for their difference.

    >>> versus(20_200_420, 20_200_701), versus(5.044, 5.046)
    ('20,200,400 v 20,200,700', '5.044 v 5.046')
    """
    return " v ".join(format_pair(one, two, scale.write, read=None if scale.whole else scale.read))


def format_pair(
    one: float,
    two: float,
    write: Callable[[float, int], str] = format_number,
    tried: Sequence[int] = DIGITS,
    read: Callable[[str], float] | None = None,
) -> tuple[str, str]:
    """Two numbers with the fewest digits at which they differ; with `read`, by at most twice as much as they do."""
    for digits in tried:
        a, b = write(one, digits), write(two, digits)
        if one == two or (a != b and (read is None or abs(read(a) - read(b)) <= 2 * abs(one - two))):
            break
    return a, b


def format_percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f}%" if digits else share_text(share)


def percent_versus(one: float, two: float) -> str:
    return " v ".join(format_pair(one, two, format_percent, (0, 1, 2, 3)))


def quoted_level(level: str) -> str:
    return f"'{abbreviated(level, _LONGEST_LEVEL)}'"
