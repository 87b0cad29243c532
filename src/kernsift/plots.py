"""Pictures of a result: matplotlib axes in, axes out, no global state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernsift.tables import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kernsift.result import Result

STANDS, SELECTED, LEFT = "#c2410c", "#1d4ed8", "#b6bcc6"
_MOST_LABELS = 40


def _axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes given, or new ones on a figure of their own that pyplot does not know of."""
    if ax is not None:
        return ax
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("plots need matplotlib: pip install 'kernsift[plot]'.") from error
    # Sized by hand: constrained layout would move axes a caller adds later.
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure.subplots()


def _tidy(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)


def plot_scores(result: Result, ax: Axes | None = None) -> Axes:
    """All scores best first, the selected ones coloured by whether they stand."""
    order = np.argsort(-result.scores, kind="stable")
    shown = order[: max(len(result.selected) + 10, _MOST_LABELS)]
    ax = _axes(ax, max(5.0, 0.24 * len(shown) + 1.5), 3.6)
    standing = set(result.selected[result.rejected].tolist())
    chosen = set(result.selected.tolist())
    colours = [STANDS if i in standing else SELECTED if i in chosen else LEFT for i in shown.tolist()]
    ax.bar(np.arange(len(shown)), result.scores[shown], color=colours, width=0.75)
    cut = sum(i in chosen for i in shown.tolist())
    if cut < len(shown):
        ax.axvline(cut - 0.5, color="#444", linewidth=1, linestyle="--")
    ax.set_xticks(np.arange(len(shown)), [_short(result.feature_names[i]) for i in shown], rotation=60, ha="right")
    ax.tick_params(axis="x", labelsize=8)
    ax.set_xlim(-0.7, len(shown) - 0.3)
    ax.set_ylabel("score")
    left = len(order) - len(shown)
    ax.set_title(
        f"{len(standing)} of {len(chosen)} selected features stand" + (f" ({left} more not shown)" if left else ""),
        loc="left",
        fontsize=10,
    )
    parts: list[Any] = [(STANDS, "stands"), (SELECTED, "selected, does not stand")]
    parts += [(LEFT, "not selected")] if cut < len(shown) else []
    handles = [ax.bar([0], [0], color=colour)[0] for colour, _ in parts]
    ax.legend(handles, [text for _, text in parts], frameon=False, fontsize=8)
    _tidy(ax)
    return ax


def _short(name: str) -> str:
    return name if len(name) <= 22 else name[:21] + "…"


def plot_pvalues(result: Result, ax: Axes | None = None) -> Axes:
    """Selective against naive p-values, both on a logarithmic scale, with the diagonal and the level."""
    ax = _axes(ax, 4.6, 4.4)
    floor = 1e-12
    naive, honest = np.maximum(result.naive_pvalues, floor), np.maximum(result.pvalues, floor)
    ax.axline((1, 1), slope=1, color="#888", linewidth=1)
    ax.axhline(result.alpha, color="#444", linewidth=1, linestyle="--")
    ax.axvline(result.alpha, color="#444", linewidth=1, linestyle="--")
    ax.scatter(naive, honest, s=28, color=np.where(result.rejected, STANDS, SELECTED), zorder=3)
    low = min(naive.min(initial=1.0), honest.min(initial=1.0), 0.01) / 3
    ax.set(xscale="log", yscale="log", xlim=(low, 1.5), ylim=(low, 1.5))
    ax.set_xlabel("naive p-value (selection forgotten)")
    ax.set_ylabel("selective p-value")
    _tidy(ax)
    return ax


def plot_scaling(result: Result, name: str | None = None, ax: Axes | None = None) -> Axes:
    """The normalised bootstrap z-value against gamma^2 with its fitted law, read at 0."""
    fit = result.outcome.fit
    if fit is None:
        raise InputError('plot_scaling: needs a result of test="multiscale"; this test has no scaling law.')
    if name is not None and name not in result.names:
        raise InputError(f"name: must be one of the selected features, got {name!r}.")
    row = 0 if name is None else result.names.index(name)
    ax = _axes(ax, 4.8, 3.6)
    seen = np.isfinite(fit.psi[row])
    ax.scatter(fit.gamma2[seen], fit.psi[row][seen], s=26, color=SELECTED, zorder=3, label="simulated")
    if np.isfinite(fit.at_zero[row]):
        order = np.argsort(fit.gamma2)
        grid = np.concatenate([[0.0], fit.gamma2[order]])
        curve = np.concatenate([[fit.at_zero[row]], fit.curve[row][order]])
        ax.plot(grid, curve, color="#444", linewidth=1.2, label=f"{fit.model[row]} fit")
        ax.scatter([0.0], [fit.at_zero[row]], s=40, color=STANDS, zorder=4, label="distance to the boundary")
    ax.axvline(0, color="#bbb", linewidth=1)
    ax.set_xlabel(r"$\gamma^2 = n / n'$")
    ax.set_ylabel(r"$\psi$, normalised z-value")
    ax.set_title(result.names[row], loc="left", fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    _tidy(ax)
    return ax
