"""
Before and after
================

Each patient is measured twice. ``paired=True`` takes row i of both tables as one patient and permutes the two
measurements of each: differences between patients do not count, a change of location or of spread does.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernsift import compare

rng = np.random.default_rng(2)
patient = 3.0 * rng.normal(size=(40, 6))
before, after = patient + rng.normal(size=(40, 6)), patient + rng.normal(size=(40, 6))
after[:, 2] += 1.0
unpaired = compare(before, after, random_state=0)
paired = compare(before, after, paired=True, random_state=0)
print("as two samples:", unpaired.all_pvalues.round(3))
print("as pairs:      ", paired.all_pvalues.round(5))

# %%
figure, ax = plt.subplots(figsize=(5, 3), layout="constrained")
for start, end in zip(before[:, 2], after[:, 2], strict=True):
    ax.plot([0, 1], [start, end], color="#2a9d8f" if end > start else "#c0504d", lw=1)
ax.set_xticks([0, 1], ["before", "after"])
ax.set_ylabel("x2")
plt.show()
