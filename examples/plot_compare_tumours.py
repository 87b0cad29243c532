"""
Which measurements tell two kinds of tumour apart?
==================================================

Thirty real measurements of breast tumours are hidden among 170 copies shuffled over the patients, which cannot tell
malignant from benign. The 40 columns that look most different are kept and tested on the same patients.
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

result = compare(table[data.target == 0], table[data.target == 1], k=40, random_state=0)
print(textwrap.fill(result.summary(), 95))

# %%
# Selective p-values against naive ones. Points on the diagonal are features so far above the cut that being selected
# tells nothing about them; points far above it are the lucky ones among the shuffled copies.

fake = np.array([name.startswith("shuffled") for name in result.names])
figure, ax = plt.subplots(figsize=(5, 4.6), layout="constrained")
result.plot_pvalues(ax)
ax.scatter(result.naive_pvalues[fake], result.pvalues[fake], s=90, facecolor="none", edgecolor="black", zorder=4)
ax.set_title("circled: shuffled columns", loc="left", fontsize=10)
plt.show()

# %%
# The best of the table, as a data frame.

result.to_frame().head(8).round(4)
