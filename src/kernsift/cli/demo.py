"""The demo: real measurements of a data set of scikit-learn, hidden among shuffled copies."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from kernsift.api import compare
from kernsift.report.text import legend, table_and_order, wrapped_verdict
from kernsift.result import Result

_MEASURED, _SHUFFLED, _LISTED = 10, 190, 20


def run(seed: int) -> tuple[Result, Result]:
    """Compare malignant with benign tumours on real and shuffled columns: all of them, and the best as a short list."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    rng = np.random.default_rng(seed)
    real, names = data.data[:, :_MEASURED], [str(name) for name in data.feature_names[:_MEASURED]]
    sources = np.arange(_SHUFFLED) % _MEASURED
    shuffled = np.column_stack([rng.permutation(real[:, source]) for source in sources])
    names += [f"shuffled {names[source]} {i // _MEASURED + 1}" for i, source in enumerate(sources)]
    table = dict(zip(names, np.column_stack([real, shuffled]).T, strict=True))
    samples: dict[str, Any] = {"by": data.target_names[data.target], "reference": "malignant", "group": "benign"}
    result, best = (compare(table, **samples, k=k, random_state=seed) for k in (None, _LISTED))
    return result, best


def explain(result: Result, best: Result, width: int) -> str:
    """The setting, the two tables, and what they show."""
    wide = min(width, 100)
    malignant, benign = result.rows
    found = result.selected[result.rejected]
    real, false = int((found < _MEASURED).sum()), int((found >= _MEASURED).sum())
    fake = best.selected >= _MEASURED
    by_luck = int((fake & (best.unconditional_pvalues <= best.alpha)).sum())
    small = int((fake & (best.pvalues <= best.alpha)).sum())
    setting = (
        f"Which measurements differ between {malignant} malignant and {benign} benign breast tumours? "
        f"{_MEASURED} real measurements are hidden among {_SHUFFLED} copies shuffled over the patients, which "
        "cannot tell the two apart. First every column is tested:"
    )
    tested = (
        f"Found: {real} of the {_MEASURED} real measurements, and {false or 'none'} of the {_SHUFFLED} shuffled "
        f"columns. Now the {_LISTED} columns that look most different, as a short list (k={_LISTED}):"
    )
    selected = (
        f"{int(fake.sum())} of the listed columns are shuffled. {by_luck} of these have p-values of at most "
        f"{best.alpha:g} if one ignores that they are the best of {_SHUFFLED}; {small or 'none'} of their "
        "selective p-values are that small, because these account for the selection. What is significant is decided "
        "over all columns, with and without a list."
    )
    setting, tested, selected = (textwrap.fill(text, wide) for text in (setting, tested, selected))
    whole, short = ([wrapped_verdict(one, wide), table_and_order(one, width)] for one in (result, best))
    return "\n\n".join([setting, *whole, tested, *short, legend(best, wide), selected])
