"""The figures that benchmarks/power.py has on record, as tables and plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernsift.experiments.studies import read_rows


@dataclass(frozen=True)
class Line:
    """A line of a part's CSV: the mean of a quantity over the trials that counted, and its standard error."""

    row: str
    method: str
    quantity: str
    mean: float
    error: float
    counted: int
    trials: int
    date: str


class Figures:
    """The lines of one CSV by row, method and quantity, in the order in which they were measured."""

    def __init__(self, path: Path) -> None:
        self.lines = read_rows(path, Line)
        self.by_key = {(line.row, line.method, line.quantity): line for line in self.lines}

    def names(self, field: str) -> list[str]:
        return list(dict.fromkeys(getattr(line, field) for line in self.lines))

    def trials(self) -> str:
        counts = sorted({line.trials for line in self.lines})
        return " or ".join([", ".join(map(str, counts[:-1])), *map(str, counts[-1:])]).removeprefix(" or ") or "no"

    def date(self) -> str:
        dates = sorted({line.date for line in self.lines})
        return dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"

    def mean(self, row: str, method: str, quantity: str) -> float:
        line = self.by_key.get((row, method, quantity))
        return float("nan") if line is None else line.mean

    def error(self, row: str, method: str, quantity: str) -> float:
        line = self.by_key.get((row, method, quantity))
        return float("nan") if line is None else line.error

    def shown(self, row: str, method: str, quantity: str, digits: int = 3) -> str:
        """Mean and standard error; a dash where nothing was counted."""
        mean = self.mean(row, method, quantity)
        if mean != mean:
            return "–"
        error = self.error(row, method, quantity)
        return f"{mean:.{digits}f}" + ("" if error != error else f" ± {error:.{digits}f}")


# --- plots ------------------------------------------------------------------------------------------------------------


def axes_of(height: float) -> tuple[object, object]:
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(8.5, height), layout="constrained")
    axes = canvas.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    return canvas, axes


def _rows_plot(
    path: Path,
    rows: Sequence[str],
    series: Sequence[tuple[str, Callable[[str], tuple[float, float]], dict]],
    label: str,
) -> None:
    """One line of the plot a row, one marker a series, with two standard errors either side."""
    canvas, axes = axes_of(0.9 + 0.55 * len(rows))
    for number, (name, figure, style) in enumerate(series):
        shift = 0.55 * (number / max(len(series) - 1, 1) - 0.5)
        points = [(*figure(row), place + shift) for place, row in enumerate(rows)]
        points = [point for point in points if point[0] == point[0]]
        if points:
            x, error, y = zip(*points, strict=True)
            axes.errorbar(x, y, xerr=[2 * e for e in error], linestyle="none", markersize=5, label=name, **style)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(-0.03, 1.03)
    axes.set_xlabel(label)
    canvas.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    canvas.savefig(path, dpi=130)


_SHAPES = "osD^vP*Xph<>"


def _styles(count: int, own: int) -> list[dict]:
    """The library's methods in blue, the others in colours of their own."""
    others = ["#d95f02", "#7570b3", "#66a61e", "#e7298a", "#a6761d", "#666666", "#e6ab02", "#1f9e9e"]
    blues = ["#0b3c6f", "#1b6ca8", "#5aa2d6", "#9cc8ea"]
    colours = [*blues[:own], *others[: count - own]]
    return [{"marker": _SHAPES[place % len(_SHAPES)], "color": colours[place]} for place in range(count)]


def power_plot(
    path: Path, groups: Sequence[tuple[Figures, Sequence[str]]], quantity: str, own: int, label: str
) -> None:
    rows = groups[0][0].names("row")
    methods = [(figures, method) for figures, names in groups for method in names]
    styles = _styles(len(methods), own)

    def reader(figures: Figures, method: str) -> Callable[[str], tuple[float, float]]:
        return lambda row: (figures.mean(row, method, quantity), figures.error(row, method, quantity))

    series = [
        (method, reader(figures, method), style) for (figures, method), style in zip(methods, styles, strict=True)
    ]
    _rows_plot(path, rows, series, label)
