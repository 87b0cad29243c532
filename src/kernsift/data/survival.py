"""Censored responses: times until an event as log-rank scores, one number for each row."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.columns.columns import Columns
from kernsift.data.frames import read_columns, side_by_side
from kernsift.data.tables import Table
from kernsift.exceptions import InputError, quoted
from kernsift.execution.arrays import to_numpy
from kernsift.execution.notes import add_note

# Words in the names of columns that hold times until an event, and events.
_TIMES = {"time", "times", "survival", "duration", "tte", "os", "pfs"}
_EVENTS = {"event", "events", "cens", "censored", "censoring", "status", "death", "died", "dead", "deceased"}
_TRUE = ("true", "yes", "1", "1.0", "event", "dead", "died", "deceased")
_FALSE = ("false", "no", "0", "0.0", "censored", "alive", "living")
# Rows in which the values of columns with such names are counted.
_CHECKED_ROWS = 256


def logrank_scores(
    time: np.ndarray, event: np.ndarray, strata: np.ndarray | None = None, weights: np.ndarray | None = None
) -> np.ndarray:
    """(n,) log-rank scores: 1 for an event, 0 for a censored time, less the cumulative hazard until then.

    The sum of the scores of a group is its number of events less the number that would be expected if its hazard were
    that of all rows (Peto and Peto 1972). Tied times share the rows at risk; a row that is censored when others have
    their event was at risk. `strata` (n,) are codes of strata, each with a hazard of its own. The hazard is that of
    rows which count as often as their `weights` (n,) say.

    Examples
    --------
    >>> import numpy as np
    >>> logrank_scores(np.array([1.0, 2.0, 3.0]), np.array([True, False, True])).round(3)
    array([ 0.667, -0.333, -0.333])
    """
    time, event = np.asarray(time, float), np.asarray(event, bool)
    weights = np.ones(len(time)) if weights is None else weights
    if strata is not None:
        scores = np.empty(len(time))
        for stratum in np.unique(strata):
            own = strata == stratum
            scores[own] = logrank_scores(time[own], event[own], None, weights[own])
        return scores
    times, place = np.unique(time, return_inverse=True)
    leaving = np.bincount(place, weights, len(times))
    at_risk = leaving[::-1].cumsum()[::-1]
    hazard = np.cumsum(np.bincount(place, event * weights, len(times)) / at_risk)
    return np.asarray(event - hazard[place])


class Survival(NamedTuple):
    """Times (n,) until an event or until censoring, which (n,) are events, and the name of the times, if any."""

    name: str
    time: np.ndarray
    event: np.ndarray

    def table(self, strata: np.ndarray | None = None, unit: np.ndarray | None = None) -> Table:
        """The log-rank scores as a response of one column; the rows of a `unit` have one time and count as one."""
        scores = logrank_scores(self.time, self.event, strata, None if unit is None else 1.0 / np.bincount(unit)[unit])
        if np.ptp(scores) == 0:
            raise InputError(
                "y: the log-rank scores must vary, but all rows have the same time and event; choose another response."
            )
        name = f"{self.name} (risk score)" if self.name else "risk score"
        return Table((name,), scores[:, None], np.array([0, 1]), np.array([False]), {})


def is_censored(y: Any, response: str) -> bool:
    """Whether a response is a time with an event: a pair of names or columns, or a structured array."""
    if response != "auto":
        return response == "censored"
    if isinstance(y, tuple) and len(y) == 3 and all(isinstance(part, str) or np.ndim(part) for part in y):
        raise InputError(
            "y: a tuple is a censored response (time, event), got three; left truncation (a time of entry) is not "
            "supported; pass a list for a response of three columns."
        )
    return _is_structured(y) or (isinstance(y, tuple) and len(y) == 2)


def hint_at_censoring(table: Table, response: Columns) -> None:
    """Note a time next to an event that is not called a censored response.

    Names alone do not suffice: "MaritalStatus" is no event. A time has more than two different numbers, and an event
    two, or texts with words such as "dead" and "alive".
    """
    words = {name: _words(name) for name in (*table.names, *response.names)}
    events = [name for name, own in words.items() if own & _EVENTS]
    times = [name for name, own in words.items() if own & _TIMES and not own & _EVENTS]
    if not (times and events):
        return
    rows = np.arange(min(table.n, _CHECKED_ROWS))

    def levels_and_count(name: str) -> tuple[tuple[str, ...], int]:
        """The names of categories, and how many different values the first rows have."""
        if name in response.names:
            place = response.names.index(name)
            own, levels = response.values[: len(rows), place], response.levels.get(place)
        else:
            place = table.names.index(name)
            own, levels = table.part(slice(*table.offsets[place : place + 2]), rows), table.levels.get(name)
        values = to_numpy(own)
        return tuple(levels or ()), len(np.unique(values[~np.isnan(values)]))

    found = {name: levels_and_count(name) for name in (*times, *events)}
    times = [name for name in times if not found[name][0] and found[name][1] > 2]
    known = {*_TRUE, *_FALSE}
    events = [
        name
        for name in events
        if found[name][1] <= 2 and all(known & {level.strip().lower(), *_words(level)} for level in found[name][0])
    ]
    if times and events:
        add_note(
            f"'{times[0]}' and '{events[0]}' look like a time until an event and its indicator; for a censored "
            f"response pass y=({times[0]!r}, {events[0]!r})."
        )


def _words(name: str) -> set[str]:
    """The words in a name such as "survival_time" or "survivalTime"."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}


def _is_structured(y: Any) -> bool:
    """Whether a response is a structured array of an event and a time, as scikit-survival has them."""
    return isinstance(y, np.ndarray) and y.dtype.names is not None


def _structured_columns(y: np.ndarray) -> Columns:
    """Time and event of a structured array with one truth value and one number."""
    names = y.dtype.names or ()
    truth = [name for name in names if y.dtype[name].kind == "b"]
    numbers = [name for name in names if y.dtype[name].kind in "iuf"]
    if len(names) > 2:
        raise InputError(
            f"y: a structured array needs the two fields event and time, got {', '.join(map(repr, names))}; left "
            "truncation (a time of entry) is not supported."
        )
    if len(truth) != 1 or len(numbers) != 1:
        raise InputError(
            f"y: a structured array needs one field of truth values, the event, and one of numbers, the time, got "
            f"{', '.join(f'{name!r} ({y.dtype[name]})' for name in names)}; convert one of them."
        )
    return read_columns({"time": y[numbers[0]].astype(float), "event": y[truth[0]].astype(float)}, "y")


def survival_of(columns: Columns) -> Survival:
    """Times and events from two columns without missing cells, the time first.

    The event is a truth value, 0 or 1, or one of two words such as "dead" and "censored".
    """
    if len(columns.names) != 2:
        more = "; left truncation (a time of entry) is not supported" if len(columns.names) == 3 else ""
        raise InputError(
            f"y: a censored response needs two columns, the time and the event, got {len(columns.names)}{more}; pass "
            "(time, event)."
        )
    if 0 in columns.levels:
        raise InputError(
            f"y: the time of a censored response must be numbers, but '{columns.names[0]}' holds text such as "
            f"'{columns.levels[0][0]}'; pass (time, event), with the time first."
        )
    values = to_numpy(columns.values).astype(float)
    time, event = values[:, 0], values[:, 1]
    if (time < 0).any():
        raise InputError(f"y: times of a censored response must not be negative, got {time.min():g}; leave these out.")
    if 1 in columns.levels:
        words = [str(level).strip().lower() for level in columns.levels[1]]
        meaning = [1.0 if word in _TRUE else 0.0 if word in _FALSE else np.nan for word in words]
        event = np.array(meaning)[event.astype(int)]
    if not np.isin(event, (0.0, 1.0)).all():
        found = columns.levels[1] if 1 in columns.levels else [f"{value:g}" for value in np.unique(event)]
        raise InputError(
            f"y: the event of a censored response must be truth values, or 0 (censored) and 1 (event), got "
            f"{quoted(found)} in '{columns.names[1]}'; convert it, or pass a list for a response of two columns."
        )
    if not (event == 1.0).any():
        raise InputError("y: at least one event is needed, but all times are censored; check that 1 means an event.")
    return Survival(columns.names[0] if columns.named else "", time, event == 1.0)


def read_survival(y: Any) -> Columns:
    """A censored response as two columns, the time and the event."""
    if _is_structured(y):
        return _structured_columns(y)
    if isinstance(y, tuple) and len(y) == 2:
        return side_by_side([read_columns(part, "y") for part in y], ["time", "event"], "y")
    return read_columns(y, "y", prefix="y")
