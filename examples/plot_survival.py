"""
What survival depends on
========================

The German breast cancer study (686 patients, 299 events) and the veterans' lung cancer trial (137 patients). Times are
censored: of many patients only a lower bound of the survival time is known. A tuple ``(time, event)`` or a structured
array of scikit-survival is a censored response: its log-rank scores are tested for any form of dependence.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sksurv.datasets import load_gbsg2, load_veterans_lung_cancer
from sksurv.linear_model import CoxPHSurvivalAnalysis

from kernsift import relate

X, y = load_gbsg2()
result = relate(X, y, random_state=0)
print(result)

# %%
# In Cox's model the log hazard is a line. Age by itself has no slope there, because the youngest and the oldest
# patients have the higher risk. The kernel test detects the curve.

numbers = X.select_dtypes("number")
scaled = (numbers - numbers.mean()) / numbers.std()
slopes = {name: CoxPHSurvivalAnalysis().fit(scaled[[name]], y).coef_[0] for name in scaled}
pvalues = dict(zip(result.feature_names, result.all_pvalues, strict=True))
print(pd.DataFrame({"Cox slope": slopes, "kernel p-value": {name: pvalues[name] for name in slopes}}).round(4))

# %%
# The share of patients without a relapse after four years, by age.

event, time = y["cens"], y["time"]
ages = pd.cut(X["age"], [20, 40, 45, 50, 55, 60, 65, 80])
relapsed = pd.Series(event & (time < 1461)).groupby(ages, observed=True).mean()
figure, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
ax.bar(np.arange(len(relapsed)), relapsed, color="#1d4ed8", width=0.6)
ax.set_xticks(np.arange(len(relapsed)), [f"{one.left}-{one.right}" for one in relapsed.index])
ax.set(xlabel="age", ylabel="relapse within four years")
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The veterans' trial: does the cell type matter beyond the Karnofsky score?

X, y = load_veterans_lung_cancer()
print(relate(X, y, given="Karnofsky_score", random_state=0))
