"""
Columns that form one feature
=============================

Length and width of iris petals are strongly dependent. In the second sample one of the two columns is shuffled: every
column by itself is distributed as before, but the dependence is gone. Tests of single columns find nothing; a test of
both as one feature, given by ``groups=``, finds the change.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris

from kernsift import compare

iris = load_iris(as_frame=True).data
rng = np.random.default_rng(0)
rows = rng.permutation(len(iris))
first, second = iris.iloc[rows[:75]], iris.iloc[rows[75:]].copy()
second["petal width (cm)"] = rng.permutation(second["petal width (cm)"])

alone = compare(first, second, random_state=0)
print(alone, "\n")

# %%
# The same data with petals and sepals as one feature each.

groups = {
    "sepal": ["sepal length (cm)", "sepal width (cm)"],
    "petal": ["petal length (cm)", "petal width (cm)"],
}
together = compare(first, second, groups=groups, random_state=0)
print(together)

# %%
figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), sharex=True, sharey=True, layout="constrained")
for ax, sample, title in zip(axes, (first, second), ("first sample", "second sample"), strict=True):
    ax.scatter(sample["petal length (cm)"], sample["petal width (cm)"], s=14)
    ax.set_title(title, loc="left", fontsize=10)
    ax.set_xlabel("petal length (cm)")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("petal width (cm)")
plt.show()
