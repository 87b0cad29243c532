"""Plots of a result with matplotlib: on given axes, or on a new figure of pyplot."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kernsift.exceptions import InputError, required
from kernsift.inference.multiple_testing import adjust, rank_limits
from kernsift.report.pictures import Bars, Boxes, Cloud, Histogram
from kernsift.report.text import abbreviated, abbreviations, clean, interval_name, level, noun_for, subject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    from kernsift.result import Result

# Distinguishable in print and by colour-blind readers: dark orange, dark blue, light grey.
SIGNIFICANT, SELECTED, LEFT = "#c2410c", "#1d4ed8", "#c3c8d0"
_INK = "#444444"
_COLOURS = (SELECTED, "#d97706", "#0f766e", "#7c3aed")
# Bars drawn for features that were not selected, and the most bars in all.
_MOST_OTHERS, _MOST_BARS = 10, 60
# p-values below this are drawn at it.
_SMALLEST_P = 1e-12
# Discoveries that get a label, and the offsets of labels that are tried, in points.
_MOST_LABELS = 25
_LABEL_OFFSETS = ((5, 2), (5, -8), (-5, 2), (-5, -8), (5, 10), (-5, 10), (5, -16), (-5, -16), (14, 16), (-14, 16))
_LONGEST_NAME, _LONGEST_LEVEL = 28, 22
# The height of a line of a tick's label, in points.
_LINE = 10.0
# Radius of a point, in points.
_POINT_RADIUS = 2.5
# Evidence beyond the first is drawn on a scale that is linear up to the second, and logarithmic from there.
_LONG_AXIS, _LINEAR = 100.0, 10.0
# Rows of a forest plot, and features of the small multiples.
_MOST_INTERVALS, _MULTIPLES = 40, 9


def _pyplot() -> Any:
    return required("matplotlib.pyplot", "Plots need matplotlib")


def _ticker() -> Any:
    return required("matplotlib.ticker", "Plots need matplotlib")


def _axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes given, or those of a new figure of pyplot, which notebooks and `plt.show()` display."""
    if ax is not None:
        return ax
    return _pyplot().subplots(figsize=(width, height), layout="constrained")[1]


def _without_frame(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=8)


def plot_overview(result: Result, ax: Axes | None = None) -> Axes:
    """All listed features by effect and evidence, with the names of discoveries as far as these fit.

    If every feature is tested, those above the dashed line are significant after the correction.

    Parameters
    ----------
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure, which notebooks and `plt.show()` display.

    Returns
    -------
    matplotlib Axes
    """
    if result.effects is None:
        return plot_scores(result, ax)
    ax = _axes(ax, 6.4, 4.6)
    evidence = -result.log_pvalues / np.log(10.0)
    for rows, colour, label in (
        (~result.rejected, SELECTED if result.listed else LEFT, "not significant"),
        (result.rejected, SIGNIFICANT, "significant"),
    ):
        if rows.any():
            ax.scatter(result.effects[rows], evidence[rows], s=20, color=colour, linewidth=0, label=label, alpha=0.85)
    if not result.listed:  # a short list is decided by other p-values than those shown
        limit = _rank_bounds(result.all_pvalues, result)[max(int(result.rejected.sum()), 1) - 1]
        ax.axhline(-np.log10(limit), color=_INK, linewidth=0.8, linestyle="--", label=level(result))
    ax.set(xlabel="effect", ylabel=f"evidence, -log10({'selective ' if result.listed else ''}p)")
    ax.set_xlim(-0.02, max(0.1, 1.12 * float(result.effects.max(initial=0.0))))
    if float(evidence.max(initial=0.0)) > _LONG_AXIS:
        ax.set_yscale("symlog", linthresh=_LINEAR)
        ax.yaxis.set_major_formatter("{x:g}")
        ax.set_ylim(bottom=-0.5)
    else:
        ax.set_ylim(bottom=-0.03 * max(1.0, float(evidence.max(initial=0.0))))
    _finish(ax, _title(result), "upper left" if result.rejected.any() else "best")
    found = np.flatnonzero(result.rejected)
    names = _short_names([result.names[row] for row in found])
    _label_points(ax, list(zip(result.effects[found], evidence[found], names, strict=True)))
    return ax


def _label_points(ax: Axes, points: list[tuple[float, float, str]]) -> None:
    """Names next to the first points; a name that would cover another, or a point, or leave the axes, is left out."""
    from matplotlib.transforms import Bbox

    ax.figure.canvas.figure.draw_without_rendering()
    inside = ax.get_window_extent()
    taken = [text.get_window_extent() for text in [ax.get_legend()] if text is not None]
    size = ax.figure.dpi / 72.0 * _POINT_RADIUS
    taken += [Bbox([place - size, place + size]) for place in ax.transData.transform([one[:2] for one in points])]
    points = points[:_MOST_LABELS]
    for x, y, name in points:
        for right, up in _LABEL_OFFSETS:
            side = "left" if right > 0 else "right"
            text = ax.annotate(name, (x, y), (right, up), textcoords="offset points", ha=side, fontsize=7.5, color=_INK)
            box = text.get_window_extent()
            free = inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1
            if free and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            text.remove()


def plot_intervals(result: Result, ax: Axes | None = None) -> Axes:
    """Effects of the best features with their confidence intervals (a forest plot).

    Parameters
    ----------
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure, which notebooks and `plt.show()` display.

    Returns
    -------
    matplotlib Axes
    """
    rows = np.arange(min(len(result.names), max(int(result.rejected.sum()) + _MOST_OTHERS, 1), _MOST_INTERVALS))
    intervals = result.estimates.intervals_of(rows)
    if result.effects is None or intervals is None:
        raise InputError(
            f"plot_intervals: estimator={result.settings.get('estimator')!r} has no intervals; "
            "use 'complete' or 'cross'."
        )
    ax = _axes(ax, 6.0, 0.21 * len(rows) + 1.6)
    for found, colour, label in ((True, SIGNIFICANT, "significant"), (False, SELECTED, "not significant")):
        own = rows[result.rejected[rows] == found]
        if len(own):
            ax.hlines(own, *intervals[own].T, color=colour, linewidth=2, alpha=0.6)
            ax.scatter(result.effects[own], own, s=22, color=colour, linewidth=0, zorder=3, label=label)
    _label_rows(ax, [result.names[row] for row in rows])
    ax.set_ylim(bottom=len(rows) + 0.9)  # a line for the legend
    ax.set_xlabel(f"effect, {interval_name(result)}")
    _finish(ax, _title(result, len(result.names) - len(rows)), columns=2)
    return ax


def plot_best(result: Result, count: int = _MULTIPLES) -> np.ndarray:
    """Small multiples of the best features, each drawn by `plot_feature`, three in a row.

    Parameters
    ----------
    count : int, default 9
        Number of features.

    Returns
    -------
    ndarray of matplotlib Axes
    """
    count = min(count, len(result.pictures))
    if count < 1:
        raise InputError("plot_best: this result holds no picture, as no feature is listed; lower the threshold.")
    across = min(count, 3)
    down = -(-count // across)
    _, axes = _pyplot().subplots(down, across, figsize=(3.6 * across, 2.9 * down), layout="constrained", squeeze=False)
    explained: list[str] = []
    for place, ax in enumerate(axes.ravel()):
        if place >= count:
            ax.set_axis_off()
            continue
        plot_feature(result, result.names[place], ax)
        legend = ax.get_legend()
        series = [] if legend is None else [text.get_text() for text in legend.get_texts()]
        if legend is not None and series == explained:
            legend.remove()
        explained = series or explained
    return np.asarray(axes)


def plot_scores(result: Result, ax: Axes | None = None) -> Axes:
    """Scores as bars, best first; a short list is followed by the best of the other features.

    Parameters
    ----------
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure, which notebooks and `plt.show()` display.

    Returns
    -------
    matplotlib Axes
    """
    if result.listed:
        others = np.setdiff1d(np.argsort(-result.scores, kind="stable"), result.selected, assume_unique=True)
        kept = min(len(result.selected), _MOST_BARS)
        order = np.concatenate([result.selected[:kept], others[:_MOST_OTHERS]])
    else:
        # The discoveries, and the best of the others.
        kept = min(int(result.rejected.sum()) + _MOST_OTHERS, len(result.selected), _MOST_BARS)
        order = result.selected[:kept]
    ax = _axes(ax, 6.0, 0.21 * len(order) + 1.3)
    state = np.concatenate([np.where(result.rejected[:kept], 2, 1), np.zeros(len(order) - kept, dtype=int)])
    for value, colour, label in (
        (2, SIGNIFICANT, "significant"),
        (1, SELECTED, "selected, not significant" if result.listed else "not significant"),
        (0, LEFT, "not selected"),
    ):
        rows = np.flatnonzero(state == value)
        if len(rows):
            ax.barh(rows, result.scores[order[rows]], height=0.72, color=colour, label=label)
    if 0 < kept < len(order):
        ax.axhline(kept - 0.5, color=_INK, linewidth=1, linestyle="--")
    _label_rows(ax, [result.feature_names[i] for i in order])
    ax.set_xlabel("score")
    _finish(ax, _title(result, len(result.scores) - len(order)))
    return ax


def _label_rows(ax: Axes, names: Sequence[str]) -> None:
    """Names from top to bottom, and a line at 0."""
    ax.axvline(0, color=_INK, linewidth=0.8)
    ax.set_yticks(range(len(names)), _short_names(names))
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)


def _title(result: Result, hidden: int = 0) -> str:
    total, found = len(result.selected), int(result.rejected.sum())
    rest = f"; {hidden:,} more not shown" if hidden else ""
    if not total:
        return f"no {noun_for(result.question, 1)} was selected{rest}"
    selected = "selected " if result.listed else ""
    about = f" {'between' if result.question == 'compare' else 'for'} {named}" if (named := subject(result)) else ""
    return f"{found:,} of {total:,} {selected}{noun_for(result.question, total)} significant{about}{rest}"


def _finish(
    ax: Axes, title: str, place: Literal["lower right", "upper left", "best"] = "lower right", columns: int = 1
) -> None:
    """A title, a legend where there is something to explain, and no frame."""
    ax.set_title(_wrapped(title, max(40, _letters_across(ax)), 5), loc="left", fontsize=10)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize=8, loc=place, ncols=columns)
    _without_frame(ax)


def _shortened(name: str, most: int = _LONGEST_NAME) -> str:
    """A name that fits; a pair of dollar signs would be read as a formula."""
    return abbreviated(clean(name), most).replace("$", r"\$")


def _short_names(names: Sequence[str], most: int = _LONGEST_NAME) -> list[str]:
    """Different names that fit."""
    return [name.replace("$", r"\$") for name in abbreviations([clean(name) for name in names], most)]


def plot_pvalues(result: Result, ax: Axes | None = None) -> Axes:
    """Sorted p-values with the bounds of the correction; of a short list also the selective p-values.

    Features up to the last p-value on or below the dashed line are significant (for "holm": up to the first one above
    it). With `family="selected"` the selective p-values of the list are sorted.

    Parameters
    ----------
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure, which notebooks and `plt.show()` display.

    Returns
    -------
    matplotlib Axes
    """
    ax = _axes(ax, 5.4, 4.2)
    within = result.listed and (result.family == "selected" or result.correction is None)
    order = result.selected if not within else np.arange(len(result.selected))
    family = result.pvalues if within else result.all_pvalues
    everyone = np.argsort(family, kind="stable")
    found = np.zeros(len(family), dtype=bool)
    found[order] = result.rejected
    ranks = np.arange(1, len(family) + 1)
    values = np.maximum(family[everyone], _SMALLEST_P)
    listed = np.isin(everyone, order)
    for rows, colour, label in (
        (found[everyone], SIGNIFICANT, "significant"),
        (~found[everyone] & listed, SELECTED, "not significant"),
        (~listed, LEFT, "not selected"),
    ):
        if rows.any():
            ax.scatter(ranks[rows], values[rows], s=22, color=colour, linewidth=0, zorder=3, label=label)
    if result.listed and not within:
        rank_of = np.empty(len(family), dtype=int)
        rank_of[everyone] = ranks
        own = np.maximum(result.pvalues, _SMALLEST_P)
        ax.scatter(
            rank_of[result.selected], own, s=26, facecolor="none", edgecolor=_INK, zorder=4, label="selective p-value"
        )
    limit = _rank_bounds(family, result)
    # The bound on a single p-value is a line, too.
    ends = np.array([0.5, 1.5]) if len(ranks) == 1 else ranks
    limit = np.maximum(np.broadcast_to(limit, len(ends)), _SMALLEST_P)
    ax.plot(ends, limit, color=_INK, linewidth=1, linestyle="--", label=level(result))
    floor = f" (smaller ones drawn at {_SMALLEST_P:g})" if (family < _SMALLEST_P).any() else ""
    ax.xaxis.set_major_locator(_ticker().MaxNLocator("auto", integer=True, min_n_ticks=1))
    ax.set(yscale="log", xlabel="rank of the p-value", ylabel=f"p-value{floor}")
    _finish(ax, _title(result), "best")
    return ax


def _rank_bounds(family: np.ndarray, result: Result) -> np.ndarray:
    """The bound on each p-value by its rank; that of "bky" depends on the estimated number of true nulls."""
    if result.correction != "bky":
        return rank_limits(len(family), result.correction, result.alpha)
    first = result.alpha / (1.0 + result.alpha)
    nulls = len(family) - int((adjust(family, "bh") <= first).sum())
    return np.minimum(np.arange(1, len(family) + 1) * first / max(nulls, 1), 1.0)


def _row_of(name: Hashable, listed: Sequence[str]) -> int:
    """The row of a feature, whose name is a text where that of its column is not."""
    if str(name) not in listed:
        few = ", ".join(map(repr, listed[:5])) + (", ..." if len(listed) > 5 else "")
        raise InputError(f"name: needs one of the listed features ({few}), got {name!r}; see result.names.")
    return listed.index(str(name))


def plot_scaling(result: Result, name: Hashable | None = None, ax: Axes | None = None) -> Axes:
    """The scaling law of the multiscale test for one feature, with its value at 0.

    Parameters
    ----------
    name : hashable, optional
        The feature; by default the best that has a scaling law.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib Axes
    """
    fit = result.outcome.fit
    if fit is None:
        raise InputError(
            'plot_scaling: needs a result of test="multiscale" with a short list (k or threshold); '
            "this one has no scaling law."
        )
    # A feature that was selected in every replicate has no law to show.
    row = int(np.isfinite(fit.at_zero).argmax()) if name is None else _row_of(name, result.names)
    ax = _axes(ax, 5.0, 3.6)
    seen = np.isfinite(fit.psi[row])
    if seen.any():
        ax.scatter(fit.gamma2[seen], fit.psi[row][seen], s=26, color=SELECTED, zorder=3, label="simulated")
    if np.isfinite(fit.at_zero[row]):
        order = np.argsort(fit.gamma2)
        grid = np.concatenate([[0.0], fit.gamma2[order]])
        curve = np.concatenate([[fit.at_zero[row]], fit.curve[row][order]])
        ax.plot(grid, curve, color=_INK, linewidth=1.2, label=f"{fit.model[row]} fit")
        ax.scatter([0.0], [fit.at_zero[row]], s=44, color=SIGNIFICANT, zorder=4, label="distance to the boundary")
    else:
        text = "selected in every replicate or in none:\nno law to fit"
        ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", fontsize=9, color=_INK)
    ax.axvline(0, color=LEFT, linewidth=1, zorder=1)
    ax.set_xlim(-0.06 * fit.gamma2.max(), 1.05 * fit.gamma2.max())
    ax.set_xlabel(r"$\gamma^2 = n / n'$")
    ax.set_ylabel(r"normalised z-value $\psi$")
    _finish(ax, _shortened(result.names[row]), "best")
    return ax


# One feature ----------------------------------------------------------------------------------------------------------


def plot_feature(result: Result, name: Hashable | None = None, ax: Axes | None = None) -> Axes:
    """One listed feature in both samples, or against the response.

    Parameters
    ----------
    name : hashable, optional
        The feature; by default the best one.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib Axes
    """
    if not result.pictures:
        raise InputError("plot_feature: this result holds no picture, as no feature is listed; lower the threshold.")
    row = 0 if name is None else _row_of(name, result.names[: len(result.pictures)])
    picture = result.pictures[row]
    ax = _axes(ax, 4.8, 3.4)
    draw: dict[type, Callable[..., None]] = {Histogram: _histogram, Bars: _bars, Boxes: _boxes, Cloud: _cloud}
    draw[type(picture)](picture, ax)
    _within_calendar(ax)
    state = "significant" if result.rejected[row] else "not significant"
    said = result.describe(row)
    # About as many letters as fit above the axes; constrained layout makes room for more lines.
    across = int(_points(ax)[0] / 4.9)
    if isinstance(picture, Bars):
        across -= max(len(line) for label in ax.get_yticklabels() for line in label.get_text().split("\n"))
    title = f"{_shortened(result.names[row], 40)}: {_shortened(said, 200) if said else state}"
    ax.set_title(textwrap.fill(title, max(across, 24), max_lines=4, placeholder="…"), loc="left", fontsize=9)
    _without_frame(ax)
    return ax


def _histogram(picture: Histogram, ax: Axes) -> None:
    edges = _shown_values(ax.xaxis, picture.edges, picture.origin)
    for shares, series, colour in zip(picture.shares, picture.series, _COLOURS, strict=False):
        ax.stairs(shares, edges, fill=True, alpha=0.3, color=colour)
        ax.stairs(shares, edges, color=colour, linewidth=1.4, label=_shortened(series))
    far = f" ({100 * picture.beyond:.2g}% far out, not drawn)" if picture.beyond else ""
    ax.set(xlabel=_wrapped(picture.label + far, _letters_across(ax)), ylabel="share")
    ax.legend(frameon=False, fontsize=8)


def _bars(picture: Bars, ax: Axes) -> None:
    places, height = np.arange(len(picture.levels)), 0.8 / len(picture.shares)
    for i, (shares, series, colour) in enumerate(zip(picture.shares, picture.series, _COLOURS, strict=False)):
        ax.barh(places + (i + 0.5) * height - 0.4, shares, height=0.9 * height, color=colour, label=_shortened(series))
    ax.set_yticks(places, _level_names(picture.levels, _points(ax)[1]))
    ax.set_ylim(len(places) - 0.5, -0.5)
    ax.set(xlabel="share", ylabel=_wrapped(picture.label, 32))
    if len(picture.shares) > 2:  # room for the legend
        ax.set_xlim(right=1.5 * max(map(max, picture.shares)) or None)
    ax.legend(frameon=False, fontsize=8, loc="best" if len(picture.shares) <= 2 else "right")


def _boxes(picture: Boxes, ax: Axes) -> None:
    keys = ("whislo", "q1", "med", "q3", "whishi")
    stats = [dict(zip(keys, row, strict=True)) for row in _shown_values(ax.yaxis, picture.quantiles, picture.origin)]
    places = range(len(stats))
    ax.bxp(stats, showfliers=False, positions=places, medianprops={"color": SIGNIFICANT})
    names = _level_names(picture.levels, _points(ax)[0])
    ax.set_xticks(places, names)
    # Each name has the same part of the axis, in letters that are smaller than those of its label.
    if len(names) * max(1 + len(line) for name in names for line in name.split("\n")) > 1.3 * _letters_across(ax):
        ax.tick_params(axis="x", rotation=90)
    ax.set(xlabel=_wrapped(picture.by, _letters_across(ax)), ylabel=_wrapped(picture.label, 32))


def _cloud(picture: Cloud, ax: Axes) -> None:
    x, y = np.array(picture.points).T
    x, middles = (_shown_values(ax.xaxis, values, picture.origin) for values in (x, picture.middles))
    y, quartiles = (_shown_values(ax.yaxis, values, picture.against_origin) for values in (y, picture.quartiles))
    low, middle, high = quartiles.T
    ax.scatter(x, y, s=10, color=SELECTED, alpha=0.4, linewidths=0)
    ax.fill_between(middles, low, high, color=_COLOURS[1], alpha=0.25, linewidth=0)
    ax.plot(middles, middle, color=_COLOURS[1], linewidth=1.8)
    ax.set(xlabel=_wrapped(picture.label, _letters_across(ax)), ylabel=_wrapped(picture.against, 32))


def _shown_values(axis: Axis, values: Any, origin: float | None) -> np.ndarray:
    """Values as they are drawn on an axis, which is one of dates where `origin` is their first day since 1970."""
    if origin is None:
        values = np.asarray(values)
        if axis is axis.axes.xaxis:  # ticks whose labels, which matplotlib shortens from a million on, do not overlap
            longest = max(len(f"{end:.0f}") for end in (values.min(), values.max()))
            most = _letters_across(axis.axes) // (min(max(longest, 4), 7) + 1)
            axis.set_major_locator(_ticker().MaxNLocator(min(max(most, 2), 9), steps=[1, 2, 5, 10]))
        return values
    dates: Any = required("matplotlib.dates", "Plots need matplotlib")
    most = max(3, _letters_across(axis.axes) // 6) if axis is axis.axes.xaxis else 8
    locator = dates.AutoDateLocator(minticks=min(3, most), maxticks=most)
    axis.set_major_locator(locator)
    axis.set_major_formatter(dates.ConciseDateFormatter(locator))
    return np.asarray(values) + origin - dates.date2num(np.datetime64(0, "D"))


def _within_calendar(ax: Axes) -> None:
    """Matplotlib has no dates before the year 1 and after 9999, where the margin of an axis may end."""
    dates: Any = required("matplotlib.dates", "Plots need matplotlib")
    calendar = dates.date2num(np.array(["0001-01-01", "9999-12-31"], "M8[D]"))
    if isinstance(ax.xaxis.get_major_locator(), dates.AutoDateLocator):
        ax.set_xlim(np.clip(ax.get_xlim(), *calendar))
    if isinstance(ax.yaxis.get_major_locator(), dates.AutoDateLocator):
        ax.set_ylim(np.clip(ax.get_ylim(), *calendar))


def _points(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes in points."""
    box = ax.get_window_extent()
    return box.width / ax.figure.dpi * 72.0, box.height / ax.figure.dpi * 72.0


def _letters_across(ax: Axes) -> int:
    """About as many letters of the usual size as the axes are wide."""
    return max(16, int(_points(ax)[0] / 5.8))


def _level_names(levels: Sequence[str], room: float) -> list[str]:
    """The names of levels side by side in `room` points: in some lines each, or shortened where these are too many."""
    names = [_wrapped(level) for level in levels]
    fits = _LINE * sum(1 + name.count("\n") for name in names) <= room
    return names if fits else _short_names(levels, _LONGEST_LEVEL)


def _wrapped(text: str, width: int = 24, lines: int = 3) -> str:
    """A long text in some lines of `width` characters."""
    found = textwrap.wrap(clean(text), width, max_lines=lines, placeholder="…") or [""]
    return "\n".join(found).replace("$", r"\$")
