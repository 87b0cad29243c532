"""One picture an artefact, as PNG and SVG: our numbers filled, the paper's hollow."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import stats

from kernsift.exceptions import required
from kernsift.execution.files import atomic_path
from kernsift.experiments.configurations import Artefact
from kernsift.experiments.datasets import divorce_statements, load
from kernsift.experiments.summary import Reproduction, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK = "#1f2937"
_LEVEL: Any = {"color": _INK, "linewidth": 0.9, "linestyle": ":"}
_HOLLOW: Any = {"linestyle": "none", "markersize": 9, "markerfacecolor": "none"}


@dataclass(frozen=True)
class Style:
    """How a method is drawn: the colour shows its scores, line and marker its test."""

    colour: str
    line: str
    marker: str


def style_of(method: str) -> Style:
    """The style of a method, from its name."""
    if method.startswith("Complete"):
        return Style("#15803d", "-", "D")
    if method.startswith("Cross"):
        return Style("#7e22ce", ":", "v")
    if method.startswith(("Incomplete", "Block")):
        return Style("#c2410c", "-", "D")
    colour = "#0891b2" if "shared" in method else "#db2777" if "authors" in method else "#1d4ed8"
    if "Lin" in method or "Blo" in method:
        colour = "#64748b"
    if "bandwidth 1" in method:
        colour = "#d97706"
    return Style(colour, "-", "o") if method.startswith("Multi") else Style(colour, "--", "s")


def draw(artefact: Artefact, result: Reproduction, folder: Path) -> None:
    """Write `NAME.png` and `NAME.svg`."""
    matplotlib = required("matplotlib", "The figures need matplotlib")
    Figure = required("matplotlib.figure", "The figures need matplotlib").Figure
    drawing = {"rates": _rates, "screen": _screen, "law": _laws, "pvalues": _pvalues}[artefact.kind]
    # Fixed identifiers and no date: equal results are equal files. Text stays text, which is a third of the size.
    quiet: Any = {
        "svg.hashsalt": "kernsift",
        "svg.fonttype": "none",
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.edgecolor": _INK,
    }
    with matplotlib.rc_context(quiet):
        figure = Figure(layout="constrained")
        drawing(figure, artefact, result)
        figure.suptitle(artefact.title, x=0.01, ha="left", fontsize=11, fontweight="bold", color=_INK)
        for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            with atomic_path(folder / f"{artefact.name}.{suffix}") as part:
                figure.savefig(part, format=suffix, dpi=130, metadata=metadata)


def _tidy(ax: Axes, axis: Literal["x", "y"] = "y") -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis=axis, color="#e5e7eb", linewidth=0.8)
    ax.set_axisbelow(True)


def _methods(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row.method for row in rows))


def _rates(figure: Figure, artefact: Artefact, result: Reproduction) -> None:
    rows = result.rows_of(artefact)
    if artefact.settings[0].x is None:
        _rate_table(figure, artefact, rows)
        return
    figure.set_size_inches(9.6, 4.0)
    axes = figure.subplots(1, 2)
    places = {setting.label: float(setting.x or 0) for setting in artefact.settings}
    for ax, measure in zip(axes, ("TPR", "FPR"), strict=True):
        for method in _methods(rows):
            own = [row for row in rows if row.method == method and row.measure == measure]
            _curve(ax, [places[row.setting] for row in own], own, method)
        _tidy(ax)
        ax.set_xlabel(artefact.x_label)
        ax.set_title({"TPR": "true positive rate", "FPR": "false positive rate"}[measure], loc="left")
        ax.set_xticks(list(places.values()))
    axes[0].set_ylim(-0.02, 1.04)
    axes[1].axhline(artefact.alpha, **_LEVEL)
    axes[1].set_ylim(0.0, max(0.12, axes[1].get_ylim()[1]))
    _legend(figure, axes[0], any(row.paper is not None for row in rows))


def _curve(ax: Axes, x: list[float], rows: list[Row], method: str) -> None:
    style = style_of(method)
    mean, error = [row.mean for row in rows], [row.standard_error for row in rows]
    ax.errorbar(
        x, mean, error, color=style.colour, linestyle=style.line, marker=style.marker, markersize=4.5, linewidth=1.4,
        capsize=2, label=method,
    )  # fmt: skip
    printed = [(place, row.paper) for place, row in zip(x, rows, strict=True) if row.paper is not None]
    if printed:
        places, values = zip(*printed, strict=True)
        ax.plot(places, values, marker=style.marker, markeredgecolor=style.colour, markeredgewidth=1.1, **_HOLLOW)


def _legend(figure: Figure, ax: Axes, paper: bool) -> None:
    from matplotlib.lines import Line2D

    handles, labels = ax.get_legend_handles_labels()
    if paper:
        handles.append(Line2D([], [], marker="o", markeredgecolor=_INK, **_HOLLOW))
        labels.append("hollow: the paper")
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8.5)


def _rate_table(figure: Figure, artefact: Artefact, rows: list[Row]) -> None:
    """A column a data set, the methods below each other, a dot for each rate."""
    methods = _methods(rows)
    figure.set_size_inches(9.6, 1.6 + 0.46 * len(methods))
    axes = figure.subplots(2, len(artefact.settings), sharey=True, sharex="row", squeeze=False)
    for column, setting in enumerate(artefact.settings):
        for ax, measure in zip(axes[:, column], ("TPR", "FPR"), strict=True):
            own = {row.method: row for row in rows if (row.setting, row.measure) == (setting.label, measure)}
            for place, method in enumerate(methods):
                if method in own:
                    _dot(ax, own[method], place)
            _tidy(ax, "x")
            ax.set_xlabel(measure)
        axes[0, column].set_title(f"{setting.label}, n = {setting.size['n']:.0f}", loc="left")
        axes[0, column].set_xlim(0, 1.04)
        axes[1, column].axvline(artefact.alpha, **_LEVEL)
        axes[1, column].set_xlim(0, 0.12)
    axes[0, 0].set_yticks(range(len(methods)), methods)
    axes[0, 0].set_ylim(len(methods) - 0.4, -0.6)
    figure.supxlabel("filled: this run, with standard errors; hollow: the paper", fontsize=8.5, color="#4b5563")


def _dot(ax: Axes, row: Row, place: int) -> None:
    """A rate with its standard error, and the paper's number if there is one."""
    style = style_of(row.method)
    ax.errorbar(
        row.mean, place, xerr=row.standard_error, color=style.colour, marker=style.marker, markersize=5, capsize=2
    )
    if row.paper is not None:
        ax.plot(
            row.paper, place, marker=style.marker, markersize=9.5, markerfacecolor="none",
            markeredgecolor=style.colour, markeredgewidth=1.1,
        )  # fmt: skip


def _screen(figure: Figure, artefact: Artefact, result: Reproduction) -> None:
    rows = result.rows_of(artefact)
    figure.set_size_inches(8.4, 3.8)
    ax = figure.subplots()
    for method in _methods(rows):
        own = [row for row in rows if row.method == method]
        _curve(ax, [float(row.measure.split("%")[0]) for row in own], own, method)
    _tidy(ax)
    ax.axhline(artefact.alpha, **_LEVEL)
    ax.set(xlabel="share of fakes in the data set, %", ylim=(-0.03, 1.04))
    ax.set_title("share of trials in which the data set was selected and rejected", loc="left")
    _legend(figure, ax, paper=True)


def _laws(figure: Figure, artefact: Artefact, result: Reproduction) -> None:
    finished = result.finished[artefact.name]
    across = len({setting.x for setting in artefact.settings})
    down = len(artefact.settings) // across
    figure.set_size_inches(8.6, 1.9 * down + 0.5)
    axes = figure.subplots(down, across)
    for ax, setting in zip(axes.flat, artefact.settings, strict=True):
        name = setting.methods[0].name
        sample = np.concatenate([values[name]["statistics"] for _, values in finished[setting.label]])
        mean, sd = sample.mean(), sample.std(ddof=1)
        heights, edges = np.histogram(sample, bins=60, range=(mean - 4.5 * sd, mean + 4.5 * sd), density=True)
        ax.stairs(heights, edges, fill=True, color="#bfdbfe")
        grid = np.linspace(mean - 4.5 * sd, mean + 4.5 * sd, 300)
        ax.plot(grid, stats.norm.pdf(grid, mean, sd), color="#1d4ed8", linewidth=1.3)
        ax.set_title(setting.label, loc="left", fontsize=9)
        ax.text(
            0.98, 0.93, f"skewness {stats.skew(sample):.2f}", transform=ax.transAxes, ha="right", va="top", fontsize=8,
            color=_INK,
        )  # fmt: skip
        ax.set_yticks([])
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(axis="x", labelsize=7.5)
    figure.supxlabel("statistic times the root of its number of draws; curve: normal", fontsize=8.5, color="#4b5563")


def _pvalues(figure: Figure, artefact: Artefact, result: Reproduction) -> None:
    """The first trial: the statements MultiHSIC selected, and what every method on the same scores says of them."""
    statements = statements_of(artefact, result)
    figure.set_size_inches(9.6, 1.5 + 0.36 * len(statements))
    ax = figure.subplots()
    methods = [method.name for method in artefact.settings[0].methods if "shared" not in method.name]
    methods = [method for method in methods if any(method in p for _, p in statements)]
    for number, method in enumerate(methods):
        style = style_of(method)
        # One below the other, so that equal p-values do not hide each other.
        shift = 0.8 * (number - (len(methods) - 1) / 2) / len(methods)
        points = [(max(p[method], 1e-6), place + shift) for place, (_, p) in enumerate(statements) if method in p]
        x, y = zip(*points, strict=True)
        ax.plot(x, y, linestyle="none", color=style.colour, marker=style.marker, markersize=4.5, label=method)
    ax.axvline(artefact.alpha, **_LEVEL)
    labels = ["\n".join(textwrap.wrap(text, 62)) for text, _ in statements]
    ax.set_yticks(range(len(labels)), labels, fontsize=7.5)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.set(xscale="log", xlim=(7e-7, 1.5), xlabel="selective p-value, trial 0 (smaller ones at the left edge)")
    _tidy(ax)
    figure.legend(loc="outside lower center", ncols=len(methods), frameon=False, fontsize=8.5)


def statements_of(artefact: Artefact, result: Reproduction) -> list[tuple[str, dict[str, float]]]:
    """The statements selected in trial 0 and their p-values by method, the first method's smallest first."""
    [setting] = artefact.settings
    names = load("divorce", result.data_dir).names
    texts = divorce_statements(result.data_dir)
    _, values = result.finished[artefact.name][setting.label][0]
    by_method: dict[str, dict[int, float]] = {
        method: dict(zip(found["selected"], found["pvalues"], strict=True)) for method, found in values.items()
    }
    first = by_method[setting.methods[0].name]
    order = sorted(first, key=lambda feature: (first[feature], feature))

    def pvalues(feature: int) -> dict[str, float]:
        return {method: p[feature] for method, p in by_method.items() if feature in p}

    return [(texts.get(names[feature], names[feature]), pvalues(feature)) for feature in order]
