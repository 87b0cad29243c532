"""
Which measurements tell two kinds of tumour apart?
==================================================

Thirty real measurements of breast tumours are hidden among 170 copies shuffled over the patients, which cannot tell
malignant from benign. Every column is tested, and the correction runs over all 200.
"""

import textwrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer

from kernsift import compare

data = load_breast_cancer(as_frame=True)
rng = np.random.default_rng(0)
shuffled = pd.DataFrame(
    {f"shuffled {i}": rng.permutation(data.data.iloc[:, i % 30]) for i in range(170)}, index=data.data.index
)
table = pd.concat([data.data, shuffled], axis=1)

malignant, benign = table[data.target == 0], table[data.target == 1]
result = compare(malignant, benign, random_state=0)
print(textwrap.fill(result.summary(), 95))
found = [name for name, significant in zip(result.names, result.rejected, strict=True) if significant]
print(sum(name.startswith("shuffled") for name in found), "of them shuffled")

# %%
# A list of 40 has the same discoveries, as far as they are in the list. Its selective p-values are about each column by
# itself, given that it was selected. The plot has three p-values for each column: ignoring the selection, selective,
# and corrected over all columns. For real columns they hardly differ. Those of the shuffled ones, which are in the
# list by chance, are below 0.05 only if the selection is ignored.

best = compare(malignant, benign, k=40, random_state=0)
place = np.arange(len(best.names))
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
shown = {
    "selection ignored": (best.unconditional_pvalues, "o", "#9ca3af"),
    "selective": (best.pvalues, "o", "#1d4ed8"),
    "corrected over all 200": (best.adjusted_pvalues, "s", "#c2410c"),
}
for label, (pvalues, marker, colour) in shown.items():
    ax.plot(place, np.maximum(pvalues, 1e-12), marker, color=colour, markersize=5, label=label)
fake = np.array([name.startswith("shuffled") for name in best.names])
for row in np.flatnonzero(fake):
    ax.axvspan(row - 0.5, row + 0.5, color="#94a3b8", alpha=0.15, linewidth=0)
ax.axhline(0.05, color="#444", linestyle="--", linewidth=1)
ax.set(yscale="log", xlabel="column, best first (shaded: shuffled)", ylabel="p-value")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The best of the table, as a data frame.

result.to_frame().head(8)[["feature", "effect", "effect_lower", "effect_upper", "adjusted_pvalue", "description"]]
