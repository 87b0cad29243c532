"""The figures that benchmarks/power.py has on record, as tables and plots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pages import span

from kernsift.experiments.studies import read_rows


@dataclass(frozen=True)
class Line:
    """A line of a part's CSV: the mean of a quantity over trials, and its standard error."""

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

    def measured(self) -> str:
        """The numbers of trials and the dates; empty without figures."""
        if not self.lines:
            return ""
        counts = [str(count) for count in sorted({line.trials for line in self.lines})]
        trials = " or ".join([*([", ".join(counts[:-1])] if counts[:-1] else []), counts[-1]])
        return f"{trials} trials ({span(line.date for line in self.lines)})."

    def mean(self, row: str, method: str, quantity: str) -> float:
        line = self.by_key.get((row, method, quantity))
        return float("nan") if line is None else line.mean

    def error(self, row: str, method: str, quantity: str) -> float:
        line = self.by_key.get((row, method, quantity))
        return float("nan") if line is None else line.error

    def means(self, row: str, quantity: str, methods: Iterable[str]) -> dict[str, float]:
        """The means of those methods that have one."""
        found = {method: self.mean(row, method, quantity) for method in methods}
        return {method: mean for method, mean in found.items() if not math.isnan(mean)}

    def shown(self, row: str, method: str, quantity: str) -> str:
        """Mean and standard error; a dash where nothing was counted."""
        mean, error = self.mean(row, method, quantity), self.error(row, method, quantity)
        if math.isnan(mean):
            return "–"
        return f"{mean:.3f}" + ("" if math.isnan(error) else f" ± {error:.3f}")


# --- plots ------------------------------------------------------------------------------------------------------------


def axes_of(height: float) -> tuple[object, object]:
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(8.5, height), layout="constrained")
    axes = canvas.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    return canvas, axes


_MARKERS = "osD^vP*Xph<>"
# The library's methods are blue.
_OWN_COLOURS = ["#0b3c6f", "#1b6ca8", "#5aa2d6", "#9cc8ea"]
_OTHER_COLOURS = ["#d95f02", "#7570b3", "#66a61e", "#e7298a", "#a6761d", "#666666", "#e6ab02", "#1f9e9e"]


def power_plot(path: Path, own: tuple[Figures, Sequence[str]], peers: tuple[Figures, Sequence[str]]) -> None:
    """A line of the plot for each row, a marker for each method, with two standard errors either side.

    `own` and `peers` are the figures and the methods of the library and of other packages.
    """
    rows = own[0].names("row")
    methods = [(figures, method) for figures, names in (own, peers) for method in names]
    colours = [*_OWN_COLOURS[: len(own[1])], *_OTHER_COLOURS]
    canvas, axes = axes_of(0.9 + 0.55 * len(rows))
    for number, (figures, method) in enumerate(methods):
        shift = 0.55 * (number / max(len(methods) - 1, 1) - 0.5)
        lines = [figures.by_key.get((row, method, "tpr")) for row in rows]
        known = [line for line in lines if line is not None and not math.isnan(line.mean)]
        if known:
            axes.errorbar(
                [line.mean for line in known],
                [rows.index(line.row) + shift for line in known],
                xerr=[2 * line.error for line in known],
                marker=_MARKERS[number % len(_MARKERS)],
                color=colours[number],
                label=method,
                linestyle="none",
                markersize=5,
            )
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(-0.03, 1.03)
    axes.set_xlabel("share of the ten true features found (± 2 standard errors)")
    canvas.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    canvas.savefig(path, dpi=130)
