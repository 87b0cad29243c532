"""
Confidence intervals after selection
====================================

The largest of many estimated effects are too large, and the usual intervals around them miss the true effect too often.
Here it is known: 400 features, all with the same small shift. Eight are selected and their effects reported, with the
selection ignored and conditional on it.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernsift import compare

rng = np.random.default_rng(1)
shift = 0.15


def samples(n, d):
    return rng.normal(size=(n, d)), rng.normal(shift, 1, size=(n, d))


X, Y = samples(150, 400)
selective = compare(X, Y, k=8, estimator="cross", random_state=0)
naive = compare(X, Y, k=8, estimator="cross", test="naive", random_state=0)
# The same feature measured on very many rows, so that chance hardly counts.
truth = float(np.median(compare(*samples(20_000, 20), k=None, estimator="cross", random_state=0).effects))

# %%
# If the selection is ignored, estimates and intervals are too high. Selective intervals cover the true effect, and the
# median-unbiased estimates are as likely to be below it as above.

figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharex=True, sharey=True, layout="constrained")
for ax, result, title in zip(axes, (naive, selective), ("selection ignored", "selective"), strict=True):
    place = np.arange(len(result.names))[::-1]
    low, high = result.intervals.T
    missed = low > truth
    ax.hlines(place, low, high, color=np.where(missed, "#c2410c", "#1d4ed8"), linewidth=2)
    ax.plot(result.effects, place, "o", color="#444", markersize=4)
    ax.axvline(truth, color="#444", linestyle="--", linewidth=1)
    ax.set_yticks(place, result.names)
    ax.set_xlabel("effect size (dashed: truth)")
    ax.set_title(f"{title}: {np.sum(missed)} of {len(missed)} miss", loc="left", fontsize=10)
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
