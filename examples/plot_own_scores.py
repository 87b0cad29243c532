"""
Your own scores
===============

The tests need no more than one score per feature and the covariance of the scores under the null. Here the scores are
the two-sample t statistics of the 64 pixels of handwritten threes and eights, on few images; neighbouring pixels are
correlated, as the covariance shows.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm
from sklearn.datasets import load_digits

from kernsift import topk_pvalues
from kernsift.inference.multiple_testing import adjust

images, labels = load_digits(return_X_y=True)
images = images[:, images.std(axis=0) > 0.5]
rng = np.random.default_rng(0)
threes, eights = (rng.permutation(images[labels == digit])[:25] for digit in (3, 8))

gap = eights.mean(axis=0) - threes.mean(axis=0)
cov = np.cov(eights.T) / 25 + np.cov(threes.T) / 25
sd = np.sqrt(np.diag(cov)) + 1e-9
scores, correlation = gap / sd, cov / np.outer(sd, sd)

selected, pvalues = topk_pvalues(scores, correlation, k=15)
everything = adjust(norm.sf(scores), "bh")
print(f"{np.sum(everything <= 0.05)} of {len(scores)} pixels are significant, Benjamini-Hochberg over all of them")

# %%
# For each of the 15 best pixels by itself: its selective p-value, given that it was selected, and the p-value that
# ignores this. The further a score is above the cut, the less they differ.

figure, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
place = np.arange(15)
unconditional = norm.sf(scores[selected])
ax.vlines(place, unconditional, pvalues, color="#b6bcc6")
ax.plot(place, unconditional, "o", color="#b6bcc6", label="selection ignored")
ax.plot(place, pvalues, "o", color="#c2410c", label="selective")
ax.axhline(0.05, color="#444", linestyle="--", linewidth=1)
ax.set(yscale="log", xlabel="pixel, best first", ylabel="p-value")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()
