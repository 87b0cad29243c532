"""
Stimulated and control cells
============================

Blood cells of two donors with and without interferon (Kang et al. 2018, the example subset of the package muscat) in an
``.h5ad`` file: sparse counts of 1,267 genes, and columns of ``obs`` that name arm, donor and cell type. The file is not
part of the project; it is looked for in the folder that ``KERNSIFT_DATA`` names.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt

from kernsift import compare, compare_groups

cells = Path(os.environ["KERNSIFT_DATA"]) / "kang_muscat_counts.h5ad"
result = compare(cells, by="group_id", random_state=0)
print(result)

# %%
# Which genes mark which cell types? Each type is compared with all others, with one correction over all of them.

frame = compare_groups(cells, "cluster_id", random_state=0)
found = frame[frame["rejected"]]
print(found.groupby("group").head(3)[["group", "feature", "effect", "description"]].to_string(index=False))

# %%
best = list(dict.fromkeys(found.groupby("group").head(4)["feature"]))
effects = frame.pivot(index="feature", columns="group", values="effect").loc[best]
figure, ax = plt.subplots(figsize=(6, 5), layout="constrained")
image = ax.imshow(effects, aspect="auto", cmap="viridis", vmin=0, vmax=1)
ax.set_xticks(range(len(effects.columns)), effects.columns, rotation=30, ha="right")
ax.set_yticks(range(len(effects)), effects.index)
figure.colorbar(image, label="effect")
plt.show()
