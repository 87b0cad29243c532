"""
Patients of several hospitals
=============================

Hospitals differ in what they measure and in how many of their patients are ill. ``strata=`` permutes labels within
hospitals, so that differences between hospitals do not count.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from kernsift import compare

rng = np.random.default_rng(1)
hospital = rng.integers(0, 5, size=600)
ill = (rng.random(600) < np.array([0.1, 0.3, 0.5, 0.7, 0.9])[hospital]).astype(int)
values = rng.normal(size=(600, 15)) + rng.normal(size=(5, 15))[hospital]
values[:, 4] += 0.5 * ill
patients = pd.DataFrame(values, columns=[f"m{i}" for i in range(15)]).assign(hospital=hospital, ill=ill)

plain = compare(patients.drop(columns="hospital"), by="ill", random_state=0)
within = compare(patients, by="ill", strata="hospital", random_state=0)
print(f"{plain.rejected.sum()} of 15 measurements differ if hospitals are ignored")
print(within)

# %%
figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.bar(np.arange(15) - 0.2, -np.log10(plain.all_pvalues), width=0.4, label="hospitals ignored")
ax.bar(np.arange(15) + 0.2, -np.log10(within.all_pvalues), width=0.4, label="strata='hospital'")
ax.set_xlabel("measurement (only m4 has an effect)")
ax.set_ylabel("-log10 p-value")
ax.legend()
plt.show()
