"""
Beyond what is already known
============================

Blood pressure and six blood values of 442 patients, and the progression of their diabetes a year later. Age, sex and
body mass are known anyway: which of the other measurements are related to the progression *beyond* them? ``given=``
regresses the measurements and the response on the confounders, with nonlinear terms, and tests the residuals.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from kernsift import relate

patients = load_diabetes(as_frame=True, scaled=False).frame
known = ["age", "sex", "bmi"]
plain = relate(patients.drop(columns=known), "target", random_state=0)
beyond = relate(patients, "target", given=known, distinct=True, random_state=0)
print(beyond)

# %%
# The effect is the partial kernel correlation. Measurements that are related to body mass lose most of theirs.

names = list(plain.names)
effects = [dict(zip(result.names, result.effects, strict=True)) for result in (plain, beyond)]
place = np.arange(len(names))[::-1]
figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.hlines(place, [effects[1][name] for name in names], [effects[0][name] for name in names], color="#b6bcc6")
ax.plot([effects[0][name] for name in names], place, "o", color="#b6bcc6", label="by itself")
ax.plot([effects[1][name] for name in names], place, "o", color="#1d4ed8", label="given age, sex and body mass")
ax.set_yticks(place, names)
ax.set(xlabel="effect size (0 none, 1 complete)", xlim=(0, 0.7))
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Some discoveries carry the same information. ``clusters`` groups those whose scores are strongly correlated, and
# ``distinct=True`` marks those that are significant given the ones marked before them.

for members in beyond.clusters:
    print(", ".join(members))
print("distinct:", [name for name, own in zip(beyond.names, beyond.distinct, strict=True) if own])
