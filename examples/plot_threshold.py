"""
Selecting by a threshold instead of a number
============================================

If the length of the list is not known beforehand, ``threshold=2`` lists every feature with a score of at least two
standard deviations. The p-value of a feature is then conditional on this alone. The correction runs over all features.
"""

import textwrap

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from kernsift import relate

X, y = load_diabetes(return_X_y=True)
rng = np.random.default_rng(0)
table = np.hstack([X, np.column_stack([rng.permutation(X[:, i % 10]) for i in range(190)])])

result = relate(table, y, threshold=2, random_state=0)
print(textwrap.fill(result.summary(), 95))

# %%
# Real columns are the first ten; the rest are shuffled copies, of which two or three in a hundred reach 2 by chance.

figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
found = set(result.selected[result.rejected].tolist())
chosen = set(result.selected.tolist())
colours = ["#c2410c" if i in found else "#1d4ed8" if i in chosen else "#b6bcc6" for i in range(200)]
ax.scatter(np.arange(200), result.scores, s=14, c=colours)
ax.axhline(2, color="#444", linestyle="--", linewidth=1)
ax.axvspan(-2, 9.5, color="#c2410c", alpha=0.08)
ax.set(xlabel="column (shaded: real)", ylabel="score", yscale="symlog", xlim=(-2, 200))
ax.spines[["top", "right"]].set_visible(False)
plt.show()
