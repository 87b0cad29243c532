"""Which columns of a file are meant: what was asked for, less what cannot be a feature. Every guess is said."""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from numbers import Number
from typing import TYPE_CHECKING

import numpy as np

from kernsift.data.columns import quoted
from kernsift.exceptions import InputError

if TYPE_CHECKING:
    import pandas as pd

    from kernsift.cli.files import Loaded

# Below this many rows, values that are all different say nothing about what the column is.
_FEW_ROWS = 12
_ID_NAME = re.compile(
    r"(?i:(^|[_\W])(id|ids|uid|uuid|guid|key|index|idx|row|rowid|rownr|nr|no|number)$)|[a-z]I[dD]$|^Unnamed: "
    r"|^\(row names\)$|^__index_level_"
)
# Numbers as people write them: 1,234.5 or 1 234,5 or 1,5 or 12 % or $5. Which sign means what is not for us to guess.
_WRITTEN_NUMBER = re.compile(r"\s*[+-]?\s*[$€£¥]?\s*(\d{1,3}([,.'’ \u00a0\u202f]\d{3})+|\d+)([.,]\d+)?\s*[%€£$]?\s*")


@dataclass(frozen=True)
class Chosen:
    """The frames with the columns to be used, and one sentence for every guess."""

    frames: list[pd.DataFrame]
    notes: tuple[str, ...]


def choose(
    files: Sequence[Loaded],
    *,
    columns: Sequence[str] = (),
    exclude: Sequence[str] = (),
    keep: Collection[str] = (),
    categories: bool = True,
) -> Chosen:
    """The columns all files share and the user wants; `keep` names those that must stay (response, groups)."""
    notes = list(dict.fromkeys(note for file in files for note in file.notes))
    shared, missing = _shared(files)
    wanted = set(match("--columns", columns, shared, files[0].name) if columns else shared)
    unwanted = set(match("--exclude", exclude, [*shared, *missing], files[0].name)) - set(keep)
    for name in keep:
        if name not in shared:
            raise InputError(f"{files[0].name}: has no column '{name}'{nearest(name, shared)}")
    names = [name for name in shared if (name in wanted and name not in unwanted) or name in keep]
    reported = [name for name in missing if name not in unwanted and not columns]
    if reported:
        notes.append(f"Not in every file, so left out: {quoted(reported)}.")
    asked = set(keep) | {name for name in columns if name in shared}
    frames = [_numbers(file, names) for file in files]
    reasons = _reasons(frames, [name for name in names if name not in asked], categories)
    if any(file.source is not None for file in files):
        # The first rows say little about whether a column varies; the tests find out.
        reasons = {name: None if reason in ("Constant", "Empty") else reason for name, reason in reasons.items()}
    left: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        if reason:
            left.setdefault(reason, []).append(name)
    notes += [f"{reason}, so left out: {quoted(out)}." for reason, out in left.items()]
    used = [name for name in names if not reasons.get(name)]
    if not [name for name in used if name not in keep or len(keep) == len(used)]:
        raise InputError(f"{files[0].name}: no column is left to look at. {' '.join(notes)}")
    frames = [frame[used] for frame in frames]
    return Chosen(frames, (*notes, *_categories(frames, used)))


def _shared(files: Sequence[Loaded]) -> tuple[list[str], list[str]]:
    """The columns of all files in the order of the first, and those that are not in all of them."""
    # Names are taken out once: a column index of pandas hands them out one by one, and there may be a million.
    names = [[str(name) for name in file.frame.columns.tolist()] for file in files]
    model = next((own for own, file in zip(names, files, strict=True) if file.named), names[0])
    for i, file in enumerate(files):
        if not file.named and len(names[i]) == len(model):
            names[i] = model  # by position, where it has no names of its own
        file.frame.columns = names[i]
    first, others = names[0], [set(own) for own in names[1:]]
    everywhere = [name for name in first if all(name in known for known in others)] if others else first
    if not everywhere:
        other = 1 if len(files) > 1 else 0
        raise InputError(
            f"{files[other].name}: shares no column with {files[0].name}, which has {quoted(first)} where this file "
            f"has {quoted(names[other])}; rename columns."
        )
    anywhere = dict.fromkeys(name for own in names for name in own)
    known = set(everywhere)
    return everywhere, [name for name in anywhere if name not in known]


def match(option: str, patterns: Iterable[str], names: Sequence[str], where: str) -> list[str]:
    """The columns an option names, exactly or with * and ?."""
    found: dict[str, None] = {}
    for pattern in patterns:
        fits = [pattern] if pattern in names else [name for name in names if fnmatchcase(name, pattern)]
        if not fits:
            raise InputError(f"{option}: {where} has no column '{pattern}'{nearest(pattern, names)}")
        found.update(dict.fromkeys(fits))
    return list(found)


def nearest(name: str, names: Iterable[str]) -> str:
    """A question with the most similar name, or what names there are."""
    known = {other.lower(): other for other in names}
    close = get_close_matches(name.lower(), known, n=1)
    return f"; did you mean '{known[close[0]]}'?" if close else f"; it has {quoted(known.values())}."


def _numbers(file: Loaded, names: list[str]) -> pd.DataFrame:
    """The columns, where text that is nearly always a number is refused rather than taken as categories."""
    import pandas as pd

    frame = file.frame if names == file.frame.columns.tolist() else file.frame[names]
    for i in _text_positions(frame):
        name, column = names[i], frame.iloc[:, i]
        present = column.dropna()
        numbers = pd.to_numeric(present, errors="coerce")
        odd = present[numbers.isna()]
        if 0 < len(odd) < 0.2 * len(present):
            raise InputError(
                f"{file.name}: column '{name}' holds numbers, but also text such as {str(odd.iloc[0])!r:.40} (row "
                f"{int(frame.index.get_loc(odd.index[0])) + 1}); mend or empty these cells, or --exclude '{name}'."
            )
        written = sum(_WRITTEN_NUMBER.fullmatch(str(cell)) is not None for cell in odd)
        if len(odd) and written + len(present) - len(odd) > 0.8 * len(present):
            raise InputError(
                f"{file.name}: column '{name}' holds numbers written as {str(odd.iloc[0])!r:.40}; write them with "
                f"digits and a decimal point only, or --exclude '{name}'."
            )
    return frame


def _text_positions(frame: pd.DataFrame) -> list[int]:
    """The columns that hold text, looked for by their types first: there may be a million columns."""
    import pandas as pd

    kinds = frame.dtypes.to_numpy()
    textual = {
        kind: bool(pd.api.types.is_string_dtype(kind) or pd.api.types.is_object_dtype(kind)) for kind in set(kinds)
    }
    return [i for i, kind in enumerate(kinds) if textual[kind] and _is_text(frame.iloc[:, i])]


def _is_text(column: pd.Series) -> bool:
    import pandas as pd

    if pd.api.types.is_object_dtype(column):
        return any(isinstance(cell, str) for cell in column)
    return bool(pd.api.types.is_string_dtype(column))


def _reasons(frames: list[pd.DataFrame], names: list[str], categories: bool) -> dict[str, str | None]:
    """Why each column cannot be a feature; numbers, of which there may be a million, are looked at all at once."""
    kinds = [frame[names].dtypes.to_numpy() for frame in frames]
    plainly = {kind: isinstance(kind, np.dtype) and kind.kind in "iuf" for row in kinds for kind in set(row)}
    numbers = [all(plainly[kind] for kind in row) for row in zip(*kinds, strict=True)]
    found: dict[str, str | None] = dict.fromkeys(names)
    plain = [name for name, number in zip(names, numbers, strict=True) if number]
    if plain:
        found |= _unfit_numbers([frame[plain].to_numpy() for frame in frames], plain)
    for name, number in zip(names, numbers, strict=True):
        if not number:
            found[name] = _unfit([frame[name] for frame in frames], name, categories)
    return found


def _unfit_numbers(parts: list[np.ndarray], names: list[str]) -> dict[str, str]:
    """Why some of these columns of numbers cannot be features."""
    low = np.fmin.reduce([np.fmin.reduce(part, axis=0) for part in parts if len(part)])
    high = np.fmax.reduce([np.fmax.reduce(part, axis=0) for part in parts if len(part)])
    found: dict[str, str] = {}
    if sum(map(len, parts)) >= _FEW_ROWS:
        ids = np.array([bool(_ID_NAME.search(name)) for name in names])
        for part in parts:
            found |= {names[i]: "Numbering of the rows" for i in np.flatnonzero(_number_rows(part, ids))}
    found |= {names[i]: "Constant" for i in np.flatnonzero(low == high)}
    return found | {names[i]: "Empty" for i in np.flatnonzero(np.isnan(low))}


def _number_rows(values: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Which columns are whole numbers, all different, that go up by one, or whose names say that they are ids."""
    if len(values) < _FEW_ROWS:
        return np.zeros(values.shape[1], dtype=bool)
    with np.errstate(invalid="ignore", over="ignore"):
        counting = (values[1:] - values[:-1] == 1).all(axis=0) & (values[0] == np.floor(values[0]))
        for i in np.flatnonzero(ids & ~counting):
            column = values[:, i]
            counting[i] = bool((column == np.floor(column)).all()) and len(np.unique(column)) == len(column)
    return counting


def _unfit(parts: list[pd.Series], name: str, categories: bool) -> str | None:
    """Why a column cannot be a feature; None if it can."""
    import pandas as pd

    column = pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]
    kinds = pd.api.types
    if kinds.is_datetime64_any_dtype(column) or kinds.is_timedelta64_dtype(column):
        return "Dates and times"
    present = column.dropna()
    try:
        distinct = int(present.nunique())
    except TypeError:
        return "Neither numbers nor categories"
    if distinct <= 1:
        return "Constant" if len(present) else "Empty"
    text = _is_text(column) or isinstance(column.dtype, pd.CategoricalDtype)
    if kinds.is_object_dtype(column) and (odd := _no_feature(present)):
        return odd
    if text and not categories:
        return "Text, where numbers are compared"
    if len(column) < _FEW_ROWS:
        return None
    if text:
        return "Text with a different value in most rows" if distinct > 0.5 * len(present) else None
    return "Numbering of the rows" if any(_counts_rows(part, name) for part in parts) else None


def _no_feature(present: pd.Series) -> str | None:
    """Why Python objects cannot be a feature; None if they are strings or numbers."""
    kinds = {type(cell) for cell in present}
    if any(issubclass(kind, (datetime.date, datetime.time, datetime.timedelta)) for kind in kinds):
        return "Dates and times"
    if all(issubclass(kind, (str, Number, np.generic)) for kind in kinds):
        return None
    return "Neither numbers nor categories"


def _counts_rows(column: pd.Series, name: str) -> bool:
    """The same for a column of another type, such as nullable whole numbers."""
    import pandas as pd

    if not pd.api.types.is_integer_dtype(column) or column.isna().any():
        return False
    values = column.to_numpy(dtype=np.float64)[:, None]
    return bool(_number_rows(values, np.array([bool(_ID_NAME.search(name))]))[0])


def _categories(frames: list[pd.DataFrame], names: list[str]) -> list[str]:
    import pandas as pd

    reported = []
    for i in _text_positions(frames[0]):
        count = pd.concat([frame.iloc[:, i] for frame in frames]).nunique()
        reported.append(f"'{names[i]}' ({count} values)")
    if not reported:
        return []
    more = f" and {len(reported) - 5} more" if len(reported) > 5 else ""
    return [f"Taken as categories: {', '.join(reported[:5])}{more}."]
