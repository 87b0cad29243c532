"""
Cells of donors
===============

Thousands of cells come from a handful of donors, and the treatment was given to donors. ``unit=`` permutes donors, and
represents each by the distribution of its cells, so that changes of spread and shape count as well as shifts.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from kernsift import compare

rng = np.random.default_rng(0)
donor = np.repeat(np.arange(16), 200)
treated = donor % 2
genes = 0.5 * rng.normal(size=(16, 30))[donor] + rng.normal(size=(3200, 30))
genes[:, 0] += 1.5 * treated  # a shift
genes[:, 1] *= np.where(treated, 1.8, 1.0)  # a change of spread
cells = pd.DataFrame(genes, columns=[f"gene {i}" for i in range(30)]).assign(donor=donor, treated=treated)

alone = compare(cells.drop(columns="donor"), by="treated", random_state=0)
result = compare(cells, by="treated", unit="donor", random_state=0)
print(f"{alone.rejected.sum()} of 30 genes if cells count as independent")
print(result)

# %%
# P-values of the 28 genes without an effect: of cells as if they were independent, and of donors.

figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
expected = (np.arange(28) + 0.5) / 28
ax.plot(expected, np.sort(alone.all_pvalues[2:]), "o", label="cells as if independent")
ax.plot(expected, np.sort(result.all_pvalues[2:]), "o", label="unit='donor'")
ax.plot([0, 1], [0, 1], color="grey", lw=1)
ax.set_xlabel("expected p-value")
ax.set_ylabel("p-value")
ax.legend()
plt.show()
