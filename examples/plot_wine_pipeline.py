"""
Feature selection inside a scikit-learn pipeline
================================================

`SelectMMD` takes the class label as y. Here it is a step of a pipeline, and a grid search decides how many of the 13
real and 37 shuffled columns the classifier uses. The selection is repeated inside each fold, so that it does
not bias the accuracy.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernsift import SelectMMD

X, y = load_wine(return_X_y=True)
rng = np.random.default_rng(0)
X = np.hstack([X, np.column_stack([rng.permutation(X[:, i % 13]) for i in range(37)])])

pipeline = make_pipeline(StandardScaler(), SelectMMD(random_state=0), KNeighborsClassifier())
grid = {"selectmmd__k": [1, 2, 3, 5, 8, 13, 20, 35, 50]}
search = GridSearchCV(pipeline, grid, cv=StratifiedKFold(5, shuffle=True, random_state=0)).fit(X, y)
print(f"best k: {search.best_params_['selectmmd__k']}, accuracy {search.best_score_:.3f}")

# %%
# Too few columns and too many both cost accuracy.

found = search.cv_results_
figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.errorbar(grid["selectmmd__k"], found["mean_test_score"], found["std_test_score"], marker="o", capsize=3)
ax.set(xlabel="columns kept, k", ylabel="accuracy over five folds")
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Without k every column is tested, and those that are significant after the Benjamini-Hochberg correction are kept, as
# with scikit-learn's ``SelectFdr``.

selector = SelectMMD(random_state=0).fit(X, y)
kept = np.flatnonzero(selector.support_)
print(f"{len(kept)} columns are significant, {np.count_nonzero(kept < 13)} of them real:", kept.tolist())
