"""Which columns of a file are meant: what was asked for, less what cannot be a feature. Every guess is said."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from kernsift.columns import quoted
from kernsift.tables import InputError

if TYPE_CHECKING:
    import pandas as pd

    from kernsift.cli.files import Loaded

# Below this many rows, values that are all different say nothing about what the column is.
_FEW_ROWS = 12
_ID_NAME = re.compile(
    r"(?i:(^|[_\W])(id|ids|uid|uuid|guid|key|index|idx|row|rowid|rownr|nr|no|number)$)|[a-z]I[dD]$|^Unnamed: "
    r"|^\(row names\)$|^__index_level_"
)


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
    notes = [note for file in files for note in file.notes]
    shared, missing = _shared(files)
    wanted = set(match("--columns", columns, shared, files[0].name) if columns else shared)
    unwanted = set(match("--exclude", exclude, [*shared, *missing], files[0].name)) - set(keep)
    for name in keep:
        if name not in shared:
            raise InputError(f"{files[0].name}: has no column '{name}'{nearest(name, shared)}")
    names = [name for name in shared if (name in wanted and name not in unwanted) or name in keep]
    told = [name for name in missing if name not in unwanted and not columns]
    if told:
        notes.append(f"Not in every file, so left out: {quoted(told)}.")
    asked = set(keep) | {name for name in columns if name in shared}
    frames = [_numbers(file, names) for file in files]
    reasons = _reasons(frames, [name for name in names if name not in asked], categories)
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
    first = [str(name) for name in files[0].frame.columns]
    for file in files:
        file.frame.columns = [str(name) for name in file.frame.columns]
        if not (files[0].named and file.named) and file.frame.shape[1] == len(first):
            file.frame.columns = first  # by position, where one of the two has no names
    others = [set(file.frame.columns) for file in files[1:]]
    everywhere = [name for name in first if all(name in known for known in others)]
    if not everywhere:
        other = files[1] if len(files) > 1 else files[0]
        raise InputError(
            f"{other.name}: shares no column with {files[0].name}, which has {quoted(first)} where this file has "
            f"{quoted(other.frame.columns)}."
        )
    anywhere = dict.fromkeys(name for file in files for name in file.frame.columns)
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

    frame = file.frame[names]
    for name in names:
        column = frame[name]
        if not _is_text(column):
            continue
        present = column.dropna()
        numbers = pd.to_numeric(present, errors="coerce")
        odd = present[numbers.isna()]
        if len(present) and 0 < len(odd) < 0.2 * len(present):
            raise InputError(
                f"{file.name}: column '{name}' holds numbers, but also text such as {str(odd.iloc[0])!r:.40} (row "
                f"{int(frame.index.get_loc(odd.index[0])) + 1}); mend or empty these cells, or --exclude '{name}'."
            )
    return frame


def _is_text(column: pd.Series) -> bool:
    import pandas as pd

    return bool(pd.api.types.is_string_dtype(column) or pd.api.types.is_object_dtype(column))


def _reasons(frames: list[pd.DataFrame], names: list[str], categories: bool) -> dict[str, str | None]:
    """Why each column cannot be a feature; fractions, of which there may be thousands, are looked at all at once."""
    kinds = [frame[names].dtypes.to_numpy() for frame in frames]
    fractions = [name for i, name in enumerate(names) if all(kind[i] in (np.float64, np.float32) for kind in kinds)]
    found: dict[str, str | None] = dict.fromkeys(names)
    if fractions:
        values = [frame[fractions].to_numpy() for frame in frames]
        low = np.fmin.reduce([np.fmin.reduce(value, axis=0) for value in values])
        high = np.fmax.reduce([np.fmax.reduce(value, axis=0) for value in values])
        found |= {fractions[i]: "Constant" for i in np.flatnonzero(low == high)}
        found |= {fractions[i]: "Empty" for i in np.flatnonzero(np.isnan(low))}
    done = set(fractions)
    for name in names:
        if name not in done:
            found[name] = _unfit([frame[name] for frame in frames], name, categories)
    return found


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
    if text and not categories:
        return "Text, where numbers are compared"
    if len(column) < _FEW_ROWS:
        return None
    if text:
        return "Text with a different value in most rows" if distinct > 0.5 * len(present) else None
    return "Numbering of the rows" if any(_counts_rows(part, name) for part in parts) else None


def _counts_rows(column: pd.Series, name: str) -> bool:
    """Whole numbers, all different, that go up by one from row to row or whose name says that they are ids."""
    import pandas as pd

    values = column.to_numpy()
    if not pd.api.types.is_integer_dtype(column) or column.isna().any() or len(values) < _FEW_ROWS:
        return False
    if np.all(np.diff(values) == 1):
        return True
    return bool(_ID_NAME.search(name)) and len(np.unique(values)) == len(values)


def _categories(frames: list[pd.DataFrame], names: list[str]) -> list[str]:
    import pandas as pd

    told = []
    for name in names:
        if _is_text(frames[0][name]):
            count = pd.concat([frame[name] for frame in frames]).nunique()
            told.append(f"'{name}' ({count} values)")
    if not told:
        return []
    more = f" and {len(told) - 5} more" if len(told) > 5 else ""
    return [f"Taken as categories: {', '.join(told[:5])}{more}."]
