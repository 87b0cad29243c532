"""
Which generator makes data that look real?
==========================================

Three generators are fitted to one half of the handwritten digits, and the other half is the reference. `screen`
compares each generated data set, all 64 pixels together, with it. Real digits that were held back are among the
candidates too, and should not be significant.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture

from kernsift import screen

digits = load_digits().data
rng = np.random.default_rng(0)
shuffled = rng.permutation(digits)
reference, known = shuffled[:900], shuffled[900:]

pca = PCA(20, random_state=0).fit(known)
mixture = GaussianMixture(10, covariance_type="diag", random_state=0).fit(pca.transform(known))
noise = rng.normal(size=(800, 20)) * np.sqrt(pca.explained_variance_)
candidates = {
    "real, held back": known[:800],
    "mixture of 10": np.clip(pca.inverse_transform(mixture.sample(800)[0]), 0, 16).round(),
    "one Gaussian": np.clip(pca.inverse_transform(noise), 0, 16).round(),
    "pixels shuffled": rng.permuted(known[:800], axis=0),
}
result = screen(reference, candidates, random_state=0)
print(result)

# %%
# Four pictures of each candidate, and how far each is from the reference.

names = list(candidates)
effects = dict(zip(result.names, result.effects, strict=True))
figure, axes = plt.subplots(4, 5, figsize=(7, 5.4), layout="constrained", width_ratios=[1, 1, 1, 1, 3.2])
for row, name in zip(axes, names, strict=True):
    for ax, picture in zip(row[:4], candidates[name][rng.choice(800, 4, replace=False)], strict=True):
        ax.imshow(picture.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
        ax.axis("off")
    row[4].barh([0], [effects[name]], color="#c2410c" if name in np.array(result.names)[result.rejected] else "#1d4ed8")
    row[4].set(xlim=(0, max(effects.values()) * 1.1), ylim=(-0.8, 0.8), yticks=[])
    row[4].set_title(name, loc="left", fontsize=10)
    row[4].spines[["top", "right", "left"]].set_visible(False)
axes[-1, 4].set_xlabel("effect size (orange: significant)")
plt.show()
