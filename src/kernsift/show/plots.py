"""Pictures of a result: matplotlib axes in, axes out, no global state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernsift.show.wording import clean, things
from kernsift.tables import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kernsift.result import Result

# Told apart in print and by colour-blind readers: dark orange, dark blue, light grey.
STANDS, SELECTED, LEFT = "#c2410c", "#1d4ed8", "#c3c8d0"
_INK = "#444444"
# Bars drawn for features that were not selected, and the most bars in all.
_BESIDE, _MOST_BARS = 10, 60
# p-values below this are drawn at it.
_FLOOR = 1e-12


def _axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes given, or new ones on a figure of their own that pyplot does not know of."""
    if ax is not None:
        return ax
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("plots need matplotlib: pip install 'kernsift[plot]'.") from error
    return Figure(figsize=(width, height), layout="constrained").subplots()


def _tidy(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=8)


def plot_scores(result: Result, ax: Axes | None = None) -> Axes:
    """Scores best first as bars, the selected ones coloured by whether they stand, then the best of the others."""
    others = np.setdiff1d(np.argsort(-result.scores, kind="stable"), result.selected, assume_unique=True)
    kept = min(len(result.selected), _MOST_BARS)
    order = np.concatenate([result.selected[:kept], others[: min(_BESIDE, _MOST_BARS)]])
    ax = _axes(ax, 6.0, 0.21 * len(order) + 1.3)
    state = np.concatenate([np.where(result.rejected[:kept], 2, 1), np.zeros(len(order) - kept, dtype=int)])
    for value, colour, label in (
        (2, STANDS, "selected, stands"),
        (1, SELECTED, "selected, does not stand"),
        (0, LEFT, "not selected"),
    ):
        rows = np.flatnonzero(state == value)
        if len(rows):
            ax.barh(rows, result.scores[order[rows]], height=0.72, color=colour, label=label)
    if 0 < kept < len(order):
        ax.axhline(kept - 0.5, color=_INK, linewidth=1, linestyle="--")
    ax.axvline(0, color=_INK, linewidth=0.8)
    ax.set_yticks(np.arange(len(order)), [_short(result.feature_names[i]) for i in order])
    ax.set_ylim(len(order) - 0.4, -0.6)
    ax.set_xlabel("score")
    ax.set_title(_scores_title(result, len(order)), loc="left", fontsize=10)
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    _tidy(ax)
    ax.tick_params(axis="y", length=0)
    return ax


def _scores_title(result: Result, drawn: int) -> str:
    total, hidden = len(result.selected), len(result.scores) - drawn
    standing = int(result.rejected.sum())
    if total:
        noun = things(result.question, total)
        said = f"{standing} of {total} selected {noun} {'stands' if standing == 1 else 'stand'}"
    else:
        said = f"no {things(result.question, 1)} was selected"
    return said + (f" ({hidden} more not shown)" if hidden else "")


def _short(name: str) -> str:
    name = clean(name).replace("$", r"\$")  # a pair of dollar signs would be read as a formula
    return name if len(name) <= 28 else name[:27] + "…"


def plot_pvalues(result: Result, ax: Axes | None = None) -> Axes:
    """Selective against naive p-values on logarithmic scales, with the diagonal and the level.

    A point above the diagonal lost evidence to the selection; one in the shaded corner would have passed naively.
    """
    ax = _axes(ax, 4.8, 4.6)
    naive, honest = np.maximum(result.naive_pvalues, _FLOOR), np.maximum(result.pvalues, _FLOOR)
    low = min(naive.min(initial=1.0), honest.min(initial=1.0), 0.01) / 3
    high = 1.8
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    ax.fill_between([low, result.alpha], result.alpha, high, color=LEFT, alpha=0.35, linewidth=0)
    ax.plot([low, high], [low, high], color=_INK, linewidth=1)
    ax.axhline(result.alpha, color=_INK, linewidth=1, linestyle="--")
    ax.axvline(result.alpha, color=_INK, linewidth=1, linestyle="--")
    for stands, colour, label in ((True, STANDS, "stands"), (False, SELECTED, "does not stand")):
        rows = result.rejected == stands
        if rows.any():
            ax.scatter(naive[rows], honest[rows], s=30, color=colour, alpha=0.85, linewidth=0, zorder=3, label=label)
    ax.annotate(
        f"only naively below {result.alpha:g}",
        (low, high),
        xytext=(4, -4),
        textcoords="offset points",
        va="top",
        fontsize=8,
        color=_INK,
    )
    ax.set_xlabel("naive p-value (the selection forgotten)")
    ax.set_ylabel("selective p-value")
    total = len(result.selected)
    ax.set_title(f"{total} selected {things(result.question, total)}", loc="left", fontsize=10)
    if total:
        # Not see-through, because the line of the level runs behind it.
        ax.legend(facecolor=ax.get_facecolor(), edgecolor="none", framealpha=1.0, fontsize=8, loc="lower right")
    _tidy(ax)
    return ax


def plot_scaling(result: Result, name: str | None = None, ax: Axes | None = None) -> Axes:
    """The normalised bootstrap z-value against gamma^2 with its fitted law, read at 0."""
    fit = result.outcome.fit
    if fit is None:
        raise InputError(
            'plot_scaling: needs a result of test="multiscale" with a selected feature; this one has no scaling law.'
        )
    if name is not None and name not in result.names:
        raise InputError(f"name: must be one of the selected features, got {name!r}; see result.names.")
    # A feature that was selected in every replicate has no law to show.
    row = int(np.isfinite(fit.at_zero).argmax()) if name is None else result.names.index(name)
    ax = _axes(ax, 5.0, 3.6)
    seen = np.isfinite(fit.psi[row])
    if seen.any():
        ax.scatter(fit.gamma2[seen], fit.psi[row][seen], s=26, color=SELECTED, zorder=3, label="simulated")
    if np.isfinite(fit.at_zero[row]):
        order = np.argsort(fit.gamma2)
        grid = np.concatenate([[0.0], fit.gamma2[order]])
        curve = np.concatenate([[fit.at_zero[row]], fit.curve[row][order]])
        ax.plot(grid, curve, color=_INK, linewidth=1.2, label=f"{fit.model[row]} fit")
        ax.scatter([0.0], [fit.at_zero[row]], s=44, color=STANDS, zorder=4, label="distance to the boundary")
        ax.legend(frameon=False, fontsize=8)
    else:
        text = "selected in every replicate or in none:\nno law to fit"
        ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", fontsize=9, color=_INK)
    ax.axvline(0, color=LEFT, linewidth=1, zorder=1)
    ax.set_xlim(-0.06 * fit.gamma2.max(), 1.05 * fit.gamma2.max())
    ax.set_xlabel(r"$\gamma^2 = n / n'$")
    ax.set_ylabel(r"normalised z-value $\psi$")
    ax.set_title(_short(result.names[row]), loc="left", fontsize=10)
    _tidy(ax)
    return ax
