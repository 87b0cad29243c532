"""The picture in the README and on the first page: docs/images/result.png.

python docs/readme_picture.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer

from kernsift import compare

REAL, SHUFFLED, LISTED = 10, 190, 24
SMALLEST = 1e-6
SIGNIFICANT, NOT_SIGNIFICANT, SELECTIVE, INK = "#c2410c", "#94a3b8", "#1d4ed8", "#374151"


def draw() -> Figure:
    """The best of 200 columns, 190 of them shuffled: p-values that ignore the selection, selective and corrected."""
    data = load_breast_cancer()
    rng = np.random.default_rng(0)
    real = data.data[:, :REAL]
    table = np.hstack([real, np.column_stack([rng.permutation(real[:, i % REAL]) for i in range(SHUFFLED)])])
    names = [*map(str, data.feature_names[:REAL]), *(f"shuffled {i + 1}" for i in range(SHUFFLED))]
    result = compare(table[data.target == 0], table[data.target == 1], k=LISTED, random_state=0)

    figure = Figure(figsize=(9, 5.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[2.2, 1])
    place = np.arange(LISTED)[::-1]
    unconditional, selective, corrected = (
        np.maximum(values, SMALLEST)
        for values in (result.unconditional_pvalues, result.pvalues, result.adjusted_pvalues)
    )
    left.hlines(place, unconditional, selective, color="#cbd5e1", linewidth=1.5)
    left.scatter(
        unconditional,
        place,
        s=30,
        facecolor="white",
        edgecolor=INK,
        zorder=3,
        label="p-value that ignores the selection",
    )
    left.scatter(selective, place, s=32, color=SELECTIVE, zorder=4, label="selective p-value")
    colour = np.where(result.rejected, SIGNIFICANT, NOT_SIGNIFICANT)
    right.scatter(corrected, place, s=34, marker="s", color=colour, zorder=4)
    right.scatter([], [], s=34, marker="s", color=SIGNIFICANT, label="significant")
    right.scatter([], [], s=34, marker="s", color=NOT_SIGNIFICANT, label="not significant")
    for ax, title in (
        (left, f"Each of the {LISTED} best of {REAL + SHUFFLED} columns by itself"),
        (right, f"Corrected over all {REAL + SHUFFLED}"),
    ):
        ax.axvline(0.05, color=INK, linewidth=1, linestyle="--")
        ax.set(xscale="log", xlim=(SMALLEST / 2.5, 1.6), ylim=(-0.8, LISTED - 0.2))
        ax.set_title(title, loc="left", fontsize=11)
        ax.spines[["top", "right"]].set_visible(False)
    left.set_yticks(place, [names[i] for i in result.selected], fontsize=9)
    left.set_xlabel("p-value (smaller ones drawn at 1e-6; dashed: 0.05)")
    right.set_xlabel("Benjamini-Hochberg p-value")
    right.tick_params(axis="y", length=0)
    left.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(0.02, 0.3))
    right.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(0.02, 0.3))
    return figure


if __name__ == "__main__":
    target = Path(__file__).resolve().parent / "images" / "result.png"
    target.parent.mkdir(exist_ok=True)
    draw().savefig(target, dpi=150)
