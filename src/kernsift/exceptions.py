"""Exceptions and warnings."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from types import FrameType
from typing import Any

INSTALL = "pip install '.[all]' in a checkout of kernsift installs it"
"""What an error about a missing optional package says."""
_LONGEST_MESSAGE = 1000


def required(module: str, purpose: str) -> Any:
    """Import a module of an optional package; `purpose` says what needs it, such as "Plots need matplotlib"."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{purpose}: {INSTALL}.") from error


class InputError(ValueError):
    """Data or a parameter that cannot be used; the message says which argument, what was needed, and the fix.

    It is a subclass of `ValueError`.

    Examples
    --------
    >>> from kernsift import InputError, compare
    >>> try:
    ...     compare([[1.0], [2.0]], [[1.0], [3.0]], k=2)
    ... except InputError as error:
    ...     print(error)
    k: at most the number of features, 1, can be selected, got 2; use k=None for all.
    """

    def __init__(self, message: str = "") -> None:
        # Names come from data: remove line breaks, and shorten what would be more than a sentence.
        line = " ".join(message.splitlines())
        super().__init__(
            line if len(line) <= _LONGEST_MESSAGE else f"{line[: _LONGEST_MESSAGE - 200]} ... {line[-195:]}"
        )


class HiddenMissingValues(InputError):
    """Missing values that are not in the statistics of a file, found when it was read."""


class CalibrationWarning(UserWarning):
    """Warning that the p-values of a combination of options are known to be off; the message says how.

    Examples
    --------
    To use such a combination on purpose, ignore the warning:

    >>> import warnings
    >>> import numpy as np
    >>> from kernsift import CalibrationWarning, compare
    >>> rng = np.random.default_rng(0)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", CalibrationWarning)
    ...     result = compare(rng.normal(size=(50, 4)), rng.normal(size=(50, 4)), k=1, test="multiscale")
    """


def caller_level() -> int:
    """The `stacklevel` of the first frame outside this package."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "kernsift":
        level, frame = level + 1, frame.f_back
    return level


def listed(items: Sequence[str], most: int = 5) -> str:
    """At most `most` items, then how many more there are."""
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def quoted(names: Iterable[Any], most: int = 5) -> str:
    """The same for names, in quotes."""
    return listed([f"'{text}'" if len(text) <= 60 else f"'{text[:57]}...'" for text in map(str, names)], most)


def suggestion(name: Any, names: Iterable[str], otherwise: str = ".") -> str:
    """The end of a sentence: a question with the most similar name, or `otherwise` where none is similar."""
    lowered = {known.lower(): known for known in names}
    close = get_close_matches(str(name).lower(), lowered, n=1)
    return f"; did you mean '{lowered[close[0]]}'?" if close else otherwise


def nearest(name: str, names: Iterable[str]) -> str:
    """The same in parentheses, in the middle of a sentence; nothing where no name is similar."""
    found = suggestion(name, names, "")
    return f" ({found.removeprefix('; ')})" if found else ""


def check_choice(argument: str, value: Any, choices: Sequence[Any]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        *others, last = map(repr, choices)
        raise InputError(f"{argument}: needs {', '.join(others)} or {last}, got {value!r}; choose one of them.")


def check_unique(argument: str, names: Iterable[Any], what: str = "column names", fix: str = "rename columns") -> None:
    """Refuse names of which some occur more than once."""
    repeated = [name for name, count in Counter(map(str, names)).items() if count > 1]
    if repeated:
        occur = "occurs" if len(repeated) == 1 else "occur"
        raise InputError(f"{argument}: {what} must be unique, but {quoted(repeated)} {occur} more than once; {fix}.")


def check_row_count(argument: str, count: int, rows: int, table: str = "X", fix: str = "") -> None:
    """Refuse values of which there is not one for each row of a table."""
    if count != rows:
        raise InputError(
            f"{argument}: one value for each row of {table} is needed, but {table} has {rows} rows and {argument} has "
            f"{count}; {fix or 'check that both come from the same rows'}."
        )


def check_flag(argument: str, value: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise InputError(f"{argument}: needs True or False, got {value!r}; leave it out for False.")
