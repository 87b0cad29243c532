"""The picture of one listed feature, drawn with matplotlib from the counts and quantiles that a result keeps."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from kernsift.exceptions import InputError
from kernsift.report.plots import SELECTED, SIGNIFICANT, _axes, _short, _tidy
from kernsift.report.summaries import Bars, Boxes, Cloud, Histogram
from kernsift.report.text import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kernsift.result import Result

_COLOURS = (SELECTED, "#d97706", "#0f766e", "#7c3aed")


def plot_feature(result: Result, name: str | None = None, ax: Axes | None = None) -> Axes:
    """One listed feature in the samples, or against the response."""
    if not result.pictures:
        raise InputError("plot_feature: this result holds no picture, as no feature is listed.")
    known = result.names[: len(result.pictures)]
    if name is not None and name not in known:
        listed = ", ".join(map(repr, known[:5])) + (", ..." if len(known) > 5 else "")
        raise InputError(f"name: needs one of the listed features ({listed}), got {name!r}.")
    row = 0 if name is None else known.index(name)
    picture = result.pictures[row]
    ax = _axes(ax, 4.8, 3.4)
    if isinstance(picture, Histogram):
        _histogram(picture, ax)
    elif isinstance(picture, Bars):
        _bars(picture, ax)
    elif isinstance(picture, Boxes):
        _boxes(picture, ax)
    else:
        _cloud(picture, ax)
    state = "significant" if result.rejected[row] else "not significant"
    said = result.describe(row)
    # About as many letters as fit above the axes; constrained layout makes room for more lines.
    across = int(ax.get_window_extent().width / ax.figure.dpi * 72.0 / 4.4)
    if isinstance(picture, Bars):
        across -= max(len(line) for level in picture.levels for line in _wrapped(level).split("\n"))
    title = f"{_short(result.names[row], 40)}: {_short(said, 200) if said else state}"
    ax.set_title(textwrap.fill(title, max(across, 24), max_lines=4, placeholder="…"), loc="left", fontsize=9)
    _tidy(ax)
    return ax


def _histogram(picture: Histogram, ax: Axes) -> None:
    for shares, series, colour in zip(picture.shares, picture.series, _COLOURS, strict=False):
        ax.stairs(shares, picture.edges, fill=True, alpha=0.3, color=colour)
        ax.stairs(shares, picture.edges, color=colour, linewidth=1.4, label=_short(series))
    ax.set(xlabel=_wrapped(picture.label, 48), ylabel="share")
    ax.legend(frameon=False, fontsize=8)


def _bars(picture: Bars, ax: Axes) -> None:
    places, height = np.arange(len(picture.levels)), 0.8 / len(picture.shares)
    for i, (shares, series, colour) in enumerate(zip(picture.shares, picture.series, _COLOURS, strict=False)):
        ax.barh(places + (i + 0.5) * height - 0.4, shares, height=0.9 * height, color=colour, label=_short(series))
    ax.set_yticks(places, [_wrapped(level) for level in picture.levels])
    ax.set_ylim(len(places) - 0.5, -0.5)
    ax.set(xlabel="share", ylabel=_wrapped(picture.label, 32))
    ax.legend(frameon=False, fontsize=8)


def _boxes(picture: Boxes, ax: Axes) -> None:
    keys = ("whislo", "q1", "med", "q3", "whishi")
    stats = [dict(zip(keys, row, strict=True)) for row in picture.quantiles]
    places = range(len(stats))
    ax.bxp(stats, showfliers=False, positions=places, medianprops={"color": SIGNIFICANT})
    names = [_wrapped(level) for level in picture.levels]
    ax.set_xticks(places, names)
    if sum(max(map(len, name.split("\n"))) for name in names) > 60:
        ax.tick_params(axis="x", rotation=90)
    ax.set(xlabel=_wrapped(picture.by, 48), ylabel=_wrapped(picture.label, 32))


def _cloud(picture: Cloud, ax: Axes) -> None:
    x, y = np.array(picture.points).T
    low, middle, high = np.array(picture.quartiles).T
    ax.scatter(x, y, s=10, color=SELECTED, alpha=0.4, linewidths=0)
    ax.fill_between(picture.middles, low, high, color=_COLOURS[1], alpha=0.25, linewidth=0)
    ax.plot(picture.middles, middle, color=_COLOURS[1], linewidth=1.8)
    ax.set(xlabel=_wrapped(picture.label, 48), ylabel=_wrapped(picture.against, 32))


def _wrapped(text: str, width: int = 24) -> str:
    """A long name in lines of so many characters, at most three."""
    lines = textwrap.wrap(clean(text), width, max_lines=3, placeholder="…") or [""]
    return "\n".join(lines).replace("$", r"\$")
