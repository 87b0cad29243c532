"""
Any hypothesis, any selection: the paper's algorithm 1
======================================================

`selective_bootstrap` needs only two functions that say whether a vector lies in the hypothesis and whether it would
have been reported. Here a movement in the plane was reported because it was longer than 4.5, and the question is
whether the true movement is longer than 3. Both regions are round, which no polyhedron describes; and because they are
discs, the answer is known in closed form.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import ncx2

from kernsift import selective_bootstrap

y = np.array([4.9, 3.0])
length = np.linalg.norm(y)


def in_hypothesis(points):
    return np.linalg.norm(points, axis=1) <= 3


def in_selection(points):
    return np.linalg.norm(points, axis=1) >= 4.5


outcome = selective_bootstrap(y, np.eye(2), in_hypothesis, in_selection, replicates=50_000, random_state=0)
# The squared length has a noncentral chi-square law, here at the edge of the hypothesis.
naive, selected = ncx2.sf(length**2, 2, 3**2), ncx2.sf(4.5**2, 2, 3**2)
print(f"bootstrap {outcome.pvalue:.3f}, closed form {naive / selected:.3f}, selection ignored {naive:.3f}")

# %%
# How often replicates fall into each region is simulated at ten scales. The law of the hypothesis is read at -1, which
# makes the test correct for its curvature; that of the selection at 0, where it is the distance to its boundary.

figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
for ax, fit, at, value, title in (
    (axes[0], outcome.hypothesis, -1, outcome.hypothesis.at_minus_one[0], "hypothesis, read at -1"),
    (axes[1], outcome.selection, 0, outcome.selection.at_zero[0], "selection, read at 0"),
):
    ends = np.append(fit.gamma2, at), np.append(fit.curve[0], value)
    ax.plot(*ends, color="#444", linewidth=1)
    ax.plot(fit.gamma2, fit.psi[0], "o", color="#1d4ed8", label="simulated")
    ax.plot(at, value, "o", color="#c2410c", markersize=8, label="read off")
    ax.set_title(title, loc="left", fontsize=10)
    ax.set(xlabel=r"$\gamma^2 = n / n'$", ylabel=r"$\psi$, normalised z-value")
    ax.spines[["top", "right"]].set_visible(False)
axes[1].axhline(4.5 - length, color="#c2410c", linestyle=":", label="true distance")
for ax in axes:
    ax.legend(frameon=False, fontsize=8)
plt.show()
