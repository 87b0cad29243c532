"""
What does the course of diabetes depend on?
===========================================

Ten measurements of 442 patients and the progression of the disease a year later. Kernel dependence sees any form of
relation, not only a straight line; the effect size reads like a correlation.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from kernsift import relate

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
result = relate(X, y, random_state=0)
print(result)

# %%
# Effect sizes of all ten. Of the discoveries' intervals, 95% cover the true effect on average; the intervals of the
# others, in grey, reach down to 0.

place = np.arange(len(result.names))[::-1]
figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
low, high = result.intervals.T
ax.hlines(place, low, high, color=np.where(result.rejected, "#1d4ed8", "#b6bcc6"), linewidth=2)
ax.plot(result.effects, place, "o", color="#c2410c")
ax.set_yticks(place, result.names)
ax.set(xlabel="effect size (0 none, 1 complete)", xlim=(0, 0.8))
ax.spines[["top", "right"]].set_visible(False)
plt.show()
