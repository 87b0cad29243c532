"""
Drift between training and production, with categories
======================================================

Two polars frames with numbers and strings. The age distribution gets a second mode that does not change its mean, and
one country becomes more frequent; everything else stays the same.
"""

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

from kernsift import compare

rng = np.random.default_rng(0)


def day(n, drifted):
    """Rows as they would come from a log."""
    age = rng.normal(45, 12, n)
    if drifted:
        age = np.where(rng.random(n) < 0.5, rng.normal(35, 6, n), rng.normal(55, 6, n))
    shares = [0.40, 0.30, 0.20, 0.10] if drifted else [0.40, 0.25, 0.20, 0.15]
    numbers = {f"sensor_{i}": rng.normal(size=n) for i in range(12)}
    return pl.DataFrame(
        {
            "age": age,
            "country": rng.choice(["FR", "DE", "IT", "PL"], n, p=shares),
            "browser": rng.choice(["firefox", "chrome", "safari"], n, p=[0.2, 0.6, 0.2]),
            "basket": rng.lognormal(3, 1, n),
            **numbers,
        }
    )


training, production = day(3000, False), day(1500, True)
result = compare(training, production, random_state=0)
result.to_frame("polars").select("feature", "effect", "pvalue", "adjusted_pvalue", "rejected").head(5)

# %%
# The two columns that changed. A test of means would not detect the first.

print(f"mean age {training['age'].mean():.1f} and {production['age'].mean():.1f}")
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
for frame, name in ((training, "training"), (production, "production")):
    left.hist(frame["age"], bins=40, density=True, histtype="step", linewidth=2, label=name)
left.set(xlabel="age", yticks=[])
left.legend(frameon=False)
shares = [frame["country"].value_counts(normalize=True).sort("country") for frame in (training, production)]
for offset, share in zip((-0.2, 0.2), shares, strict=True):
    right.bar(np.arange(4) + offset, share["proportion"], width=0.38)
right.set_xticks(np.arange(4), shares[0]["country"])
right.set_ylabel("share of rows")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
