"""The picture in the README and on the first page: docs/images/result.png.

python docs/readme_picture.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer

from kernsift import compare

REAL, SHUFFLED, KEPT = 10, 190, 24


def draw() -> Figure:
    """The best of 200 columns, 190 of them shuffled: naive p-values left, selective ones right of each line."""
    data = load_breast_cancer()
    rng = np.random.default_rng(0)
    real = data.data[:, :REAL]
    table = np.hstack([real, np.column_stack([rng.permutation(real[:, i % REAL]) for i in range(SHUFFLED)])])
    names = [*map(str, data.feature_names[:REAL]), *(f"shuffled {i + 1}" for i in range(SHUFFLED))]
    result = compare(table[data.target == 0], table[data.target == 1], k=KEPT, random_state=0)

    figure = Figure(figsize=(9, 5.2), layout="constrained")
    ax = figure.subplots()
    place = np.arange(KEPT)[::-1]
    naive, selective = (np.maximum(values, 1e-6) for values in (result.naive_pvalues, result.pvalues))
    colour = np.where(result.rejected, "#c2410c", "#1d4ed8")
    ax.axvspan(1e-7, 0.05, color="#c2410c", alpha=0.06, linewidth=0)
    ax.axvline(0.05, color="#444", linewidth=1, linestyle="--")
    ax.hlines(place, naive, selective, color="#b6bcc6", linewidth=1.5)
    ax.scatter(naive, place, s=30, facecolor="white", edgecolor="#6b7280", zorder=3, label="naive p-value")
    ax.scatter(selective, place, s=34, color=colour, zorder=4)
    ax.scatter([], [], s=34, color="#c2410c", label="selective p-value, stands")
    ax.scatter([], [], s=34, color="#1d4ed8", label="selective p-value, does not stand")
    ax.set_yticks(place, [names[i] for i in result.selected], fontsize=9)
    ax.set(xscale="log", xlim=(4e-7, 1.6), ylim=(-0.8, KEPT - 0.2), xlabel="p-value (smaller ones drawn at 1e-6)")
    ax.set_title(
        f"The {KEPT} of {REAL + SHUFFLED} columns that differ most between two kinds of tumour", loc="left", fontsize=11
    )
    ax.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(0.02, 0.3))
    ax.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    target = Path(__file__).resolve().parent / "images" / "result.png"
    target.parent.mkdir(exist_ok=True)
    draw().savefig(target, dpi=150)
