"""The arguments `strata`, `paired` and `unit`: read from names or values, checked, and turned into codes of rows.

Rows are matched by position, also those of pandas with labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kernsift.data.columns.columns import EXACT, Columns
from kernsift.data.columns.encoding import number_name
from kernsift.data.columns.named_columns import column_names, take_columns
from kernsift.data.formats import Source, open_table
from kernsift.data.rows.exchangeability import Exchangeability, varies
from kernsift.exceptions import InputError, quoted
from kernsift.execution.arrays import to_numpy
from kernsift.execution.notes import add_note


class RowLabels(NamedTuple):
    """One label for each row: its code (n,) is the place in `names` (L,), or -1 where it is missing."""

    names: np.ndarray
    codes: np.ndarray

    @classmethod
    def of(cls, columns: Columns) -> RowLabels:
        """The labels in a column; several columns make one label together."""
        parts = [cls._of_column(columns, place) for place in range(len(columns.names))]
        if len(parts) == 1:
            return parts[0]
        there = np.all([part.codes >= 0 for part in parts], axis=0)
        known, inverse = np.unique([part.codes[there] for part in parts], axis=1, return_inverse=True)
        names = [" / ".join(part.names[code] for part, code in zip(parts, own, strict=True)) for own in known.T]
        codes = np.full(len(there), -1)
        codes[there] = inverse.ravel()
        return _sorted(names, codes)

    @classmethod
    def _of_column(cls, columns: Columns, place: int) -> RowLabels:
        own, levels = to_numpy(columns.values)[:, place], columns.levels.get(place)
        # Integers beyond 2^53, such as hashes, would be rounded as floating-point numbers.
        known, inverse = np.unique(columns.integers.get(place, own), return_inverse=True)
        names = [levels[int(value)] if levels and value == value else number_name(value) for value in known.tolist()]
        return _sorted(names, np.where(np.isnan(own), -1, inverse))

    @classmethod
    def joined(cls, parts: Sequence[RowLabels]) -> RowLabels:
        """The labels of several tables, one below the other."""
        if all(part.names is parts[0].names for part in parts):
            return cls(parts[0].names, np.concatenate([part.codes for part in parts]))
        names = np.unique(np.concatenate([part.names for part in parts]))
        codes = [np.append(names.searchsorted(part.names), -1)[part.codes] for part in parts]
        return cls(names, np.concatenate(codes))

    def take(self, rows: np.ndarray) -> RowLabels:
        """The labels of some rows."""
        return RowLabels(self.names, self.codes[rows])

    def used(self) -> tuple[np.ndarray, np.ndarray]:
        """The labels that occur, and the position (n,) of each row's label among these; none is missing.

        They are in the order of the rows, so that no random choice among units depends on their names.
        """
        known, first, place = np.unique(self.codes, return_index=True, return_inverse=True)
        order = np.argsort(first)
        return self.names[known[order]], np.argsort(order)[place.ravel()]


def _sorted(names: Sequence[str], codes: np.ndarray) -> RowLabels:
    """Labels in alphabetical order, equal ones once."""
    known, place = np.unique(np.array(names, dtype=str), return_inverse=True)
    return RowLabels(known, np.append(place, -1)[codes])


class RowArguments:
    """The arguments `strata`, `paired` and `unit` of a question, taken out of its tables."""

    def __init__(self, question: str, strata: Any, paired: Any, unit: Any) -> None:
        self._question = question
        if isinstance(paired, bool | np.bool_) and not paired:
            paired = None
        self._given = {
            name: value for name, value in (("strata", strata), ("paired", paired), ("unit", unit)) if value is not None
        }
        if "paired" in self._given and len(self._given) > 1:
            other = next(name for name in self._given if name != "paired")
            raise InputError(
                f"paired: pairs are strata of two rows, which cannot be combined with {other}=; use strata= and unit= "
                "for more rows than two."
            )
        self._labels: dict[str, list[RowLabels]] = {name: [] for name in self._given}
        self._sources = dict.fromkeys(self._given, "rows in their order")

    def __bool__(self) -> bool:
        return bool(self._given)

    def __str__(self) -> str:
        return " and ".join(f"{name}=" for name in self._given)

    @property
    def only_units(self) -> bool:
        return set(self._given) == {"unit"}

    def settings(self, rows: Exchangeability) -> dict[str, str]:
        """Where strata, pairs and units come from, and how many of them can be used."""
        units, strata = len(rows.informative), len(rows.informative_strata)
        counts = {"strata": f"{strata:,} strata", "paired": f"{strata:,} pairs", "unit": f"{units:,} units"}
        return {name: f"{source}: {counts[name]}" for name, source in self._sources.items()}

    @property
    def reads_whole_columns(self) -> bool:
        """Whether all rows of a column are needed at once."""
        return "strata" in self._given or "paired" in self._given

    def split_samples(self, X: Any, Y: Any, **options: Any) -> tuple[Any, Any]:
        """The tables without the columns that the arguments name; Y is None where X holds both samples."""
        if Y is None:
            return self.split(X, **options), None
        tables: list[Source] = [open_table(data, name, **options) for data, name in ((X, "X"), (Y, "Y"))]
        for argument, given in self._given.items():
            if given is True:
                if tables[0].n != tables[1].n:
                    raise InputError(
                        f"paired: True pairs the rows of X and Y in their order, but X has {tables[0].n} rows and Y "
                        f"has {tables[1].n}; pass as many, or name the column that identifies pairs."
                    )
                rows = np.arange(tables[0].n)
                self._labels[argument] += 2 * [RowLabels(rows.astype(str), rows)]
                continue
            named = isinstance(given, str | list) and bool(column_names(given))
            if not named and not (isinstance(given, list | tuple) and len(given) == 2):
                raise InputError(
                    f"{argument}: for two tables a column name or a pair of arrays, one for each, is needed, got "
                    f"{type(given).__name__}; pass ({argument}_of_X, {argument}_of_Y)."
                )
            parts = [given, given] if named else list(given)
            for place, part in enumerate(parts):
                tables[place], columns = take_columns(tables[place], part, argument)
                self._add_labels(argument, columns)
        return tables[0], tables[1]

    def split(self, X: Any, **options: Any) -> Source:
        """One table without the columns that the arguments name."""
        source = open_table(X, "X", **options)
        for argument, given in self._given.items():
            if given is True:
                raise InputError(
                    "paired: True pairs the rows of X and Y in their order, but there is one table; name the column "
                    'that identifies pairs, as in paired="patient".'
                )
            source, columns = take_columns(source, given, argument)
            self._add_labels(argument, columns)
        return source

    def _add_labels(self, argument: str, columns: Columns) -> None:
        for place, own in enumerate(to_numpy(columns.values).T):
            if columns.kinds[place] == "integer" and place not in columns.integers and (np.abs(own) >= EXACT).any():
                raise InputError(
                    f"{argument}: integers beyond 2^53 in '{columns.names[place]}' are rounded where a table is read "
                    "in pieces, so that some become equal; store identifiers as text, or load the table first."
                )
        self._labels[argument].append(RowLabels.of(columns))
        self._sources[argument] = " and ".join(columns.names) if columns.named else "given as an array"

    def keep(self, keep: np.ndarray, missing: str, samples: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """Those of the rows that are kept which have a stratum, a unit, and the other row of their pair.

        Parameters
        ----------
        keep : which rows of the concatenated tables are kept.
        samples : which rows of one table are in each of two samples.
        """
        found = keep.copy()
        for argument, labels in self._stacked(samples).items():
            absent = (labels.codes < 0) & keep
            if absent.any():
                if missing == "error":
                    raise InputError(
                        f"{argument}: a value for each row is needed, but {int(absent.sum()):,} of {len(keep):,} have "
                        "none; fill them in, leave these rows out, or use missing='drop'."
                    )
                add_note(f"{argument}: rows without a value are left out: {int(absent.sum()):,} of {len(keep):,}.")
                found &= ~absent
            if argument == "paired" and not keep.all():
                alone = np.isin(labels.codes, labels.codes[~keep]) & found
                if alone.any():
                    count = len(np.unique(labels.codes[alone]))
                    add_note(
                        f"paired: {count:,} pair{'' if count == 1 else 's'} with a missing value in one row "
                        f"{'is' if count == 1 else 'are'} left out."
                    )
                    found &= ~alone
        if not found.any():
            raise InputError(f"{' and '.join(self._given)}: no row is left that has a value; pass other columns.")
        return found

    def codes(self, keep: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Codes of the strata, or pairs, and of the units of the rows of one table that are kept."""
        found = {argument: labels.take(keep).used()[1] for argument, labels in self._stacked(None).items()}
        return found.get("strata", found.get("paired")), found.get("unit")

    def rows(
        self, response: np.ndarray, keep: np.ndarray, samples: Sequence[np.ndarray] | None = None
    ) -> Exchangeability:
        """The strata, pairs and units of the rows that are kept, whose sample or response, as codes, is `response`."""
        found = {argument: labels.take(keep) for argument, labels in self._stacked(samples).items()}
        return _exchangeability(found, response, self._question)

    def _stacked(self, samples: Sequence[np.ndarray] | None) -> dict[str, RowLabels]:
        """The labels of all rows; with `samples` of one table, those of the first and then those of the second."""
        found = self._labels
        if samples is not None:
            found = {argument: [labels[0].take(some) for some in samples] for argument, labels in found.items()}
        return {argument: RowLabels.joined(labels) for argument, labels in found.items()}


def _exchangeability(labels: dict[str, RowLabels], response: np.ndarray, question: str) -> Exchangeability:
    """Codes of strata and units, after checks of what they say about the response."""
    unit = strata = None
    if "unit" in labels:
        names, unit = labels["unit"].used()
        _check_units(names, unit, response, question)
    argument = "paired" if "paired" in labels else "strata"
    if argument in labels:
        known, strata = labels[argument].used()
        if argument == "paired":
            _check_pairs(known, strata, response, question)
    if unit is not None and len(names) == len(unit):
        add_note("unit: each unit has one row, so that rows count as units.")
        unit = None
    rows = Exchangeability(response, strata, unit)
    if strata is not None:
        if unit is not None:
            _check_nested(names, rows)
        _check_strata(known, rows, argument, question)
        if len(known) == 1 and argument == "strata":
            add_note("strata: there is one stratum, which has all rows.")
            rows = replace(rows, stratum=None)
    return rows


def _check_units(names: np.ndarray, unit: np.ndarray, response: np.ndarray, question: str) -> None:
    mixed = np.flatnonzero(varies(unit, response))
    if len(mixed):
        which = _examples(names[mixed])
        raise InputError(
            f"unit: {which} has rows in both samples, but a unit belongs to one; use paired= or strata= for units that "
            "were measured in both."
            if question == "compare"
            else f"unit: the response varies within {which}, but it must belong to the unit; use strata= for "
            "association within units, or aggregate their rows."
        )


def _check_pairs(names: np.ndarray, pair: np.ndarray, response: np.ndarray, question: str) -> None:
    sizes = np.bincount(pair)
    wrong = np.flatnonzero(sizes != 2)
    if question == "compare" and not len(wrong):
        wrong = np.flatnonzero(np.bincount(pair, response) != 1)
    if len(wrong):
        many = int(sizes[wrong[0]])
        needed = "one row in each sample" if question == "compare" else "two rows"
        raise InputError(
            f"paired: each pair needs {needed}, but {_examples(names[wrong])} has {many} row{'s' if many > 1 else ''}"
            f"{' in one sample' if many == 2 else ''}; leave it out, or use strata= for groups of other sizes."
        )


def _check_nested(names: np.ndarray, rows: Exchangeability) -> None:
    assert rows.stratum is not None and rows.unit is not None
    outside = rows.stratum != rows.strata_of_units[rows.unit]
    if outside.any():
        raise InputError(
            f"strata: {_examples(names[np.unique(rows.unit[outside])])} has rows in several strata, but a unit must be "
            "within one; name units by stratum, or leave out strata=."
        )


def _check_strata(names: np.ndarray, rows: Exchangeability, argument: str, question: str) -> None:
    what = "sample" if question == "compare" else "response"
    sizes = np.bincount(rows.strata_of_units, minlength=len(names))
    if sizes.max() < 2:
        thing = "row" if rows.unit is None else "unit"
        raise InputError(
            f"{argument}: each stratum has one {thing}, so that nothing can be exchanged within strata; use unit= if "
            "these are subjects with several rows, or wider strata."
        )
    if not len(rows.informative):
        raise InputError(
            f"{argument}: the {what} is constant within each of the {len(names)} strata, so that nothing can be "
            "exchanged within them; use unit= if these are what was labelled, or other strata."
        )
    lost = np.setdiff1d(np.arange(len(names)), rows.informative_strata)
    if len(lost):
        count = int(rows.unit_sizes[np.isin(rows.strata_of_units, lost)].sum())
        add_note(
            f"The {what} is constant in {len(lost)} of {len(names)} strata ({quoted(names[lost].tolist())}); "
            f"{'its' if len(lost) == 1 else 'their'} {count:,} row{' carries' if count == 1 else 's carry'} no "
            "information."
        )


def _examples(names: np.ndarray) -> str:
    return f"'{names[0]}'" if len(names) == 1 else f"'{names[0]}' (and {len(names) - 1} more)"


def note_row_labels(table: Any, **arguments: Any) -> None:
    """Note which arguments have the row labels of a table in another order: rows are matched by position.

    Only data frames and series of pandas have labels.
    """
    own = _labels(table)
    for argument, value in arguments.items():
        other = _labels(value)
        if own is None or other is None or len(own) != len(other) or own.equals(other):
            continue
        if own.is_unique and own.isin(other).all():
            add_note(
                f"{argument}: its row labels are those of X in another order, but rows are matched by position; sort "
                "one like the other where labels tell which rows belong together."
            )


def _labels(table: Any) -> Any:
    labels = getattr(table, "index", None)
    return labels if type(labels).__module__.partition(".")[0] == "pandas" else None
