"""Censored responses: times until an event as log-rank scores, one number for each row."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernsift.data.columns import Columns, read_columns, side_by_side
from kernsift.exceptions import InputError
from kernsift.execution.arrays import to_numpy

_TRUE, _FALSE = ("true", "yes", "1", "1.0", "event", "dead", "died"), ("false", "no", "0", "0.0", "censored", "alive")


def logrank_scores(time: np.ndarray, event: np.ndarray, strata: np.ndarray | None = None) -> np.ndarray:
    """(n,) log-rank scores: 1 for an event, 0 for a censored time, less the cumulative hazard until then.

    The sum of the scores of a group is its number of events less the number that would be expected if its hazard were
    that of all rows (Peto and Peto 1972). Tied times share the rows at risk; a row that is censored when others have
    their event was at risk. `strata` (n,) are codes of strata, each with a hazard of its own.

    Examples
    --------
    >>> import numpy as np
    >>> logrank_scores(np.array([1.0, 2.0, 3.0]), np.array([True, False, True])).round(3)
    array([ 0.667, -0.333, -0.333])
    """
    time, event = np.asarray(time, float), np.asarray(event, bool)
    if strata is not None:
        scores = np.empty(len(time))
        for stratum in np.unique(strata):
            own = strata == stratum
            scores[own] = logrank_scores(time[own], event[own])
        return scores
    times, place = np.unique(time, return_inverse=True)
    leaving = np.bincount(place, minlength=len(times))
    at_risk = leaving[::-1].cumsum()[::-1]
    hazard = np.cumsum(np.bincount(place, event, len(times)) / at_risk)
    return np.asarray(event - hazard[place])


def is_structured(y: Any) -> bool:
    """Whether a response is a structured array of an event and a time, as scikit-survival has them."""
    return isinstance(y, np.ndarray) and y.dtype.names is not None


def structured_survival(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
            f"{', '.join(f'{name!r} ({y.dtype[name]})' for name in names)}."
        )
    return np.asarray(y[numbers[0]], float), np.asarray(y[truth[0]], bool)


def survival_columns(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Time (n,) and event (n,) from two columns, the time first; NaN where a cell of either is missing.

    The event is a truth value, 0 or 1, or one of two words such as "dead" and "censored".
    """
    if len(columns.names) != 2:
        more = "; left truncation (a time of entry) is not supported" if len(columns.names) == 3 else ""
        raise InputError(
            f"y: a censored response needs two columns, the time and the event, got {len(columns.names)}{more}."
        )
    if 0 in columns.levels:
        raise InputError(
            f"y: the time of a censored response must be numbers, but '{columns.names[0]}' holds categories; pass "
            "(time, event)."
        )
    values = to_numpy(columns.values).astype(float)
    time, event = values[:, 0], values[:, 1]
    if (time < 0).any():
        raise InputError(f"y: times of a censored response must not be negative, got {np.nanmin(time):g}.")
    known = ~np.isnan(event)
    if 1 in columns.levels:
        words = [str(level).strip().lower() for level in columns.levels[1]]
        meaning = [1.0 if word in _TRUE else 0.0 if word in _FALSE else np.nan for word in words]
        used = np.unique(event[known]).astype(int)
        if np.isnan([meaning[code] for code in used]).any():
            raise InputError(
                f"y: the event of a censored response must be truth values, or 0 (censored) and 1 (event), got "
                f"{', '.join(repr(level) for level in columns.levels[1][:5])} in '{columns.names[1]}'; convert it."
            )
        event = np.where(known, np.array(meaning)[np.where(known, event, 0).astype(int)], np.nan)
    elif not np.isin(event[known], (0.0, 1.0)).all():
        found = np.unique(event[known])
        raise InputError(
            f"y: the event of a censored response must be truth values, or 0 (censored) and 1 (event), got "
            f"{', '.join(f'{value:g}' for value in found[:5])} in '{columns.names[1]}'; convert it."
        )
    if known.any() and not (event[known] == 1.0).any():
        raise InputError("y: at least one event is needed, but all times are censored.")
    return time, event


def read_survival(y: Any) -> Columns:
    """A censored response as two columns, the time and the event."""
    if is_structured(y):
        time, event = structured_survival(y)
        return read_columns({"time": time, "event": event.astype(float)}, "y")
    if isinstance(y, tuple) and len(y) == 2:
        parts = [read_columns(part, "y") for part in y]
        if parts[0].n != parts[1].n or any(len(part.names) != 1 for part in parts):
            raise InputError(
                f"y: time and event need one value for each row, got {parts[0].n} and {parts[1].n} rows of "
                f"{len(parts[0].names)} and {len(parts[1].names)} columns."
            )
        return side_by_side(parts, ("time", "event"), "y")
    return read_columns(y, "y")
