"""One row of the speed table: the figure, what it is compared with, and the goal; and runs compared with each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """A figure."""

    # Where it belongs and what it is.
    part: str
    name: str
    # The figure: "s", "MB", or "" for plain numbers.
    value: float
    unit: str = "s"
    # What it is compared with, and that one's figure in the same unit.
    against: str = ""
    other: float | None = None
    ratio: float | None = None  # value over other, measured turn by turn where both took turns
    # What the figure, or the ratio, may be at most; None where there is nothing to reach.
    most_value: float | None = None
    most_ratio: float | None = None
    # What the call adds to the memory of a fresh process that holds its input, at the peak.
    peak_mb: float | None = None
    # The time in units of the yardstick of the same run, for comparison with other runs.
    yardsticks: float | None = None
    note: str = ""  # what has to be known to read the row

    @property
    def key(self) -> str:
        return " | ".join(text for text in (self.part, self.name, self.against) if text)

    @property
    def reached(self) -> bool | None:
        """Whether the figure is as good as wanted; None where nothing was."""
        checks = [(self.value, self.most_value), (self.ratio, self.most_ratio)]
        wanted = [(figure, most) for figure, most in checks if most is not None]
        if not wanted:
            return None
        # NaN does not reach a goal.
        return all(figure is not None and figure <= most for figure, most in wanted)

    @property
    def verdict(self) -> str:
        return {None: "", True: "reached", False: "MISSED"}[self.reached]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "reached": self.reached}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Row:
        return cls(**{name: value for name, value in fields.items() if name != "reached"})


@dataclass(frozen=True)
class LeftOut:
    """A row that could not be measured here, and why."""

    part: str
    name: str
    why: str


# --- in words ---------------------------------------------------------------------------------------------------------


def shown(value: float | None, unit: str) -> str:
    """A figure with its unit, in at most eight characters.

    >>> shown(0.00512, "s"), shown(2.5, "s"), shown(115, "s"), shown(1234.5, "MB"), shown(1.034, "")
    ('5.1 ms', '2.50 s', '115 s', '1,234 MB', '1.03')
    """
    if value is None or value != value:
        return ""
    if unit == "MB":
        return f"{value:,.0f} MB"
    if unit != "s":
        return f"{value:.3g}"
    if value < 1.0:
        return f"{1000 * value:.1f} ms" if value < 0.1 else f"{1000 * value:.0f} ms"
    return f"{value:.2f} s" if value < 100 else f"{value:.0f} s"


def shown_ratio(ratio: float | None) -> str:
    """A ratio; small ones as parts.

    >>> shown_ratio(1.234), shown_ratio(0.5), shown_ratio(0.005)
    ('1.23x', '0.50x', '1/200')
    """
    if ratio is None:
        return ""
    if 0 < ratio < 0.1:
        return f"1/{1 / ratio:.0f}"
    return f"{ratio:.2f}x" if ratio < 100 else f"{ratio:.0f}x"


def goal(row: Row) -> str:
    """The goal of a row.

    >>> goal(Row("", "", 1.0, most_value=60.0)), goal(Row("", "", 1.0, most_ratio=1 / 150))
    ('≤ 60 s', '≤ 1/150')
    """
    if row.most_ratio is not None:
        return f"≤ {row.most_ratio:g}x" if row.most_ratio >= 0.1 else f"≤ {shown_ratio(row.most_ratio)}"
    if row.most_value is None:
        return ""
    if row.unit == "s":
        return f"≤ {row.most_value:g} s" if row.most_value >= 1 else f"≤ {1000 * row.most_value:g} ms"
    return f"≤ {row.most_value / 1000:g} GB" if row.unit == "MB" else f"≤ {row.most_value:g}"


def line(row: Row) -> str:
    """A row as a line of text.

    >>> line(Row("calls", "relate", 2.0, against="hyppo Hsic", ratio=0.01, most_ratio=1 / 150, peak_mb=31.4))
    'relate: 2.00 s, 1/100 of hyppo Hsic, ≤ 1/150 MISSED, 31 MB'
    """
    ratio = f"{shown_ratio(row.ratio)} of {row.against}" if row.ratio is not None else ""
    reached = f"{goal(row)} {row.verdict}" if row.verdict else ""
    parts = (shown(row.value, row.unit), ratio, reached, shown(row.peak_mb, "MB"))
    return f"{row.name}: " + ", ".join(part for part in parts if part)


def closing(rows: Sequence[Row], left_out: Sequence[LeftOut]) -> str:
    """The end of the table: how many goals were reached, which were not, and what is missing."""
    wanted = [row for row in rows if row.reached is not None]
    missed = [row for row in wanted if not row.reached]
    lines = [f"{len(wanted) - len(missed)} of {len(wanted)} goals reached."]
    for row in missed:
        figure = shown_ratio(row.ratio) if row.most_ratio is not None else shown(row.value, row.unit)
        lines.append(f"MISSED: {row.key}: {figure} ({goal(row)})")
    lines += [f"left out: {gone.part}: {gone.name}: {gone.why}" for gone in left_out]
    return "\n".join(lines)


# --- comparison with another run --------------------------------------------------------------------------------------

SLOWER = 1.25
# Less memory than this is within what the allocator does by itself.
_LEAST_MB = 50.0


def comparison(run: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    """What became slower or larger since an earlier run, in yardsticks of each run; nothing about another machine."""
    if before is None or any(before["machine"][name] != run["machine"][name] for name in ("processor", "cores")):
        return "On record: no earlier run on a like machine."
    known = {row.key: row for row in map(Row.from_dict, before["rows"])}
    pairs = [(row, known[row.key]) for row in map(Row.from_dict, run["rows"]) if row.key in known]
    head = f"On record: {len(pairs)} rows compared with {before['date']}, {before['version']}"
    head += f" ({before['commit']})" if before["commit"] else ""
    other = [name for name in ("python", "numpy", "scipy") if before["machine"].get(name) != run["machine"].get(name)]
    head += "".join(f", {name} {before['machine'].get(name)} then" for name in other)
    found = [change for pair in pairs for change in _changes(*pair)]
    return (
        "\n".join([f"{head}:", *(f"  {text}" for text in found)]) if found else f"{head}: none is more than 25% slower."
    )


def _changes(row: Row, before: Row) -> list[str]:
    """A sentence where a row became more than a quarter slower, and one where it became larger."""
    found = []
    measured = (
        ("slower", "yardsticks", row.yardsticks, before.yardsticks, 0.0),
        ("larger", "MB", row.peak_mb, before.peak_mb, _LEAST_MB),
    )
    for word, unit, new, old, least in measured:
        if new is not None and old and new > max(least, SLOWER * old):
            found.append(f"{new / old:.2f} times {word}: {row.key} ({old:.3g} to {new:.3g} {unit})")
    return found
