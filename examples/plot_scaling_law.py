"""
Inside the multiscale bootstrap
===============================

The paper's test (MultiMMD) simulates how often a feature would be selected again at ten scales, fits a law, and reads
it at scale 0. The exact test computes what this approximates, and the polyhedral test conditions on more than needed;
here all three get the same scores, of only 20 patients each.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer

from kernsift import Incomplete, compare

data = load_breast_cancer(as_frame=True)
malignant, benign = (data.data[data.target == label].iloc[:20] for label in (0, 1))
settings = {"k": 10, "correction": None, "estimator": Incomplete(r=2), "random_state": 0}
exact, multiscale, polyhedral = (
    compare(malignant, benign, test=test, **settings) for test in ("exact", "multiscale", "polyhedral")
)
print(f"{'':24}{'exact':>12}{'multiscale':>12}{'polyhedral':>12}")
for name, *pvalues in zip(exact.names, exact.pvalues, multiscale.pvalues, polyhedral.pvalues, strict=True):
    print(f"{name:24}" + "".join(f"{pvalue:12.2g}" for pvalue in pvalues))

# %%
# The scaling law of a feature near the cut.

figure, ax = plt.subplots(figsize=(5.4, 3.6), layout="constrained")
multiscale.plot_scaling(multiscale.names[-3], ax)
plt.show()
