"""Numbers, dates and times that are written as text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, time

import numpy as np

from kernsift.data.columns.cells import days_since_1970, days_since_midnight

_CURRENCY = "[$€£¥₹]?"
_SPACES = " \u00a0\u202f"
# The sign between thousands and the decimal sign, in the order in which they are tried.
_FORMATS = ((",", "."), (".", ","), (_SPACES + "'’", "."), (_SPACES + "'’", ","))
# A letter right behind a number may be part of a code.
_UNIT = re.compile(r"(?<=\d)(\s+[a-zA-Zµμ°Ω/²³]+|[a-zA-Zµμ°Ω/²³]{2,})\s*$")
LOCAL_DATE = re.compile(
    r"\s*(\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d{2})|\d{4}[./]\d{1,2}[./]\d{1,2})(\s+\d{1,2}:\d\d.*)?\s*"
)
ISO_DATE = re.compile(r"\s*\d{4}-\d\d-\d\d([T ].*)?\s*")
_TIME = re.compile(r"\s*\d{1,2}:\d\d(:\d\d(\.\d+)?)?\s*")
# As pandas ("1 days 02:03:04") and Python ("1 day, 2:03:04") write durations; the time of negative ones is added.
_DURATION = re.compile(r"\s*([+-]?\d+) days?,? \+?(\d{1,2}):(\d\d):(\d\d(?:\.\d+)?)\s*")


# What a number, a date or a duration may begin with.
_BEGINNING = re.compile(r"[\s(+\-−$€£¥₹]*[.,]?\d")


def may_be_numbers(texts: Sequence[str]) -> bool:
    """Whether more than half of some texts begin as numbers, dates or durations do; reading them takes far longer."""
    return 2 * sum(_BEGINNING.match(text) is not None for text in texts) > len(texts)


def is_number(text: str) -> bool:
    """Whether Python reads a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def parse_numbers(texts: Sequence[str]) -> np.ndarray:
    """Numbers as people write them: with signs between thousands, a decimal comma, a currency, a per cent sign, the
    same unit behind each, or in parentheses where they are negative.

    NaN where a text is not a number. One format is chosen for all texts: the one that most of them fit, and in a tie
    the one with decimal points.

    Examples
    --------
    >>> from kernsift.data.columns.written_numbers import parse_numbers
    >>> parse_numbers(["$1,037.72", "12", "unknown", "37.5%"]).tolist()
    [1037.72, 12.0, nan, 0.375]
    >>> parse_numbers(["1.037,72", "0,5"]).tolist()
    [1037.72, 0.5]
    >>> parse_numbers(["12.5 kg", "3 kg"]).tolist(), parse_numbers(["(3.10)", "2.00"]).tolist()
    ([12.5, 3.0], [-3.1, 2.0])
    """
    texts = [re.sub(r"^\s*\(([^-−]*)\)\s*$", r"-\1", text) for text in _without_unit(texts)]
    best = np.full(len(texts), np.nan)
    for thousands, decimal in _FORMATS:
        found = _parsed(texts, thousands, decimal)
        if np.count_nonzero(~np.isnan(found)) > np.count_nonzero(~np.isnan(best)):
            best = found
    return best


def _without_unit(texts: Sequence[str]) -> list[str]:
    """The texts without the unit, if more than half of them have the same one."""
    units = [match[1].strip() if match else "" for match in map(_UNIT.search, texts)]
    unit, count = Counter(units).most_common(1)[0] if units else ("", 0)
    if not unit or 2 * count <= len(texts):
        return list(texts)
    return [_UNIT.sub("", text) if own == unit else text for text, own in zip(texts, units, strict=True)]


def _parsed(texts: Sequence[str], thousands: str, decimal: str) -> np.ndarray:
    point = re.escape(decimal)
    number = re.compile(
        rf"\s*(?P<sign>[+\-−]?)\s*{_CURRENCY}\s*(?P<minus>-?)"
        rf"(?P<whole>\d{{1,3}}(?:[{re.escape(thousands)}]\d{{3}})+|\d*)(?P<part>{point}\d*)?(?P<power>[eE][+-]?\d+)?"
        rf"\s*(?P<unit>%|{_CURRENCY})\s*"
    )
    out = np.full(len(texts), np.nan)
    for i, text in enumerate(texts):
        match = number.fullmatch(text)
        if match is None or not re.search(r"\d", match["whole"] + (match["part"] or "")):  # a power alone is a code
            continue
        whole = re.sub(r"\D", "", match["whole"])
        value = float(f"{whole or '0'}.{(match['part'] or '')[1:] or '0'}{match['power'] or ''}")
        value = -value if (match["sign"] + match["minus"]).strip() in ("-", "−") else value
        out[i] = value / 100 if match["unit"] == "%" else value
    return out


def parse_dates(texts: Sequence[str]) -> np.ndarray:
    """Days since 1970 of dates as ISO 8601 writes them, or days of times and durations; NaN for all else.

    >>> from kernsift.data.columns.written_numbers import parse_dates
    >>> parse_dates(["1970-01-02", "12:00", "1 days 06:00:00", "-1 day, 18:00:00"]).tolist()
    [1.0, 0.5, 1.25, -0.25]
    """
    out = np.full(len(texts), np.nan)
    for i, text in enumerate(texts):
        try:
            if ISO_DATE.fullmatch(text):
                out[i] = days_since_1970(datetime.fromisoformat(text.strip()))
            elif _TIME.fullmatch(text):
                out[i] = days_since_midnight(time.fromisoformat(text.strip().zfill(5)))
            elif match := _DURATION.fullmatch(text):
                days, hours, minutes, seconds = map(float, match.groups())
                out[i] = days + hours / 24 + minutes / 1440 + seconds / 86400
        except ValueError:
            continue
    return out


def parse_local_dates(texts: Sequence[str]) -> np.ndarray:
    """Days since 1970 of dates such as 31/12/2020, 12/31/2020 and 31.12.2020; NaN for all else.

    Whether the day or the month comes first is decided for all texts together; they are NaN where both are possible,
    except for dates with points, which begin with the day.

    >>> from kernsift.data.columns.written_numbers import parse_local_dates
    >>> (parse_local_dates(["02/01/1970", "31/01/1970"]), parse_local_dates(["02/01/1970", "03/01/1970"]))
    (array([ 1., 30.]), array([nan, nan]))
    """
    matches = [LOCAL_DATE.fullmatch(text) for text in texts]
    day_first, month_first = (
        np.array([np.nan if match is None else _day(match, first) for match in matches]) for first in (False, True)
    )
    points = all("." in match[1] for match in matches if match)
    lost = np.isnan(day_first).sum() - np.isnan(month_first).sum()
    if not lost and not points and not np.array_equal(day_first, month_first, equal_nan=True):
        return np.full(len(texts), np.nan)
    return month_first if lost > 0 else day_first


def _day(match: re.Match[str], month_first: bool) -> float:
    parts = [int(part) for part in re.split(r"\D", match[1])]
    if parts[0] > 31:
        year, month, day = parts
    else:
        (month, day) = parts[:2] if month_first else parts[1::-1]
        year = parts[2] if parts[2] > 99 else parts[2] + (1900 if parts[2] > 68 else 2000)
    try:
        clock = parse_dates([(match[3] or "0:00").strip()])[0]
        return float(days_since_1970(date(year, month, day)) + clock)
    except ValueError:
        return np.nan
