"""The demo: real measurements of a data set of scikit-learn, hidden among shuffled copies."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace

import numpy as np

from kernsift.api import compare
from kernsift.report.text import legend, said, table
from kernsift.result import Result

_MEASURED, _SHUFFLED, _LISTED = 10, 190, 20


@dataclass(frozen=True)
class Demo:
    """Every column tested, the best ones as a short list, and which columns are shuffled copies."""

    result: Result
    best: Result
    malignant: int
    benign: int

    def text(self, width: int) -> str:
        """The setting, the two tables, and what they show."""
        wide = min(width, 100)
        return "\n\n".join(
            [
                _wrapped(self._setting(), wide),
                said(self.result, wide),
                table(self.result, width),
                _wrapped(self._tested(), wide),
                said(self.best, wide),
                table(self.best, width),
                legend(self.best, wide),
                _wrapped(self._selected(), wide),
            ]
        )

    def _setting(self) -> str:
        return (
            f"Which measurements differ between {self.malignant} malignant and {self.benign} benign breast tumours? "
            f"{_MEASURED} real measurements are hidden among {_SHUFFLED} copies shuffled over the patients, which "
            "cannot tell the two apart. First every column is tested:"
        )

    def _tested(self) -> str:
        found = self.result.selected[self.result.rejected]
        real, fake = int((found < _MEASURED).sum()), int((found >= _MEASURED).sum())
        return (
            f"Found: {real} of the {_MEASURED} real measurements, and {fake or 'none'} of the {_SHUFFLED} shuffled "
            f"columns. Now the {_LISTED} columns that look most different, as a short list (k={_LISTED}):"
        )

    def _selected(self) -> str:
        fake = self.best.selected >= _MEASURED
        by_luck = int((fake & (self.best.unconditional_pvalues <= self.best.alpha)).sum())
        small = int((fake & (self.best.pvalues <= self.best.alpha)).sum())
        return (
            f"{int(fake.sum())} of the listed columns are shuffled. {by_luck} of these have p-values of at most "
            f"{self.best.alpha:g} if one forgets that they are the best of {_SHUFFLED}; {small or 'none'} of their "
            "selective p-values are that small, which makes each of these a fair statement about one column. What is "
            "significant is decided over all columns, with and without a list."
        )


def run(seed: int) -> Demo:
    """Compare malignant with benign tumours on real and shuffled columns."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    rng = np.random.default_rng(seed)
    real, names = data.data[:, :_MEASURED], [str(name) for name in data.feature_names[:_MEASURED]]
    sources = np.arange(_SHUFFLED) % _MEASURED
    shuffled = np.column_stack([rng.permutation(real[:, source]) for source in sources])
    values = np.column_stack([real, shuffled])
    names += [f"shuffled {names[source]} {i // _MEASURED + 1}" for i, source in enumerate(sources)]
    first, second = values[data.target == 0], values[data.target == 1]
    result, best = (_named(compare(first, second, k=k, random_state=seed), names) for k in (None, _LISTED))
    return Demo(result, best, len(first), len(second))


def _named(result: Result, names: list[str]) -> Result:
    listed = tuple(names[i] for i in result.selected)
    drawn = tuple(replace(picture, label=name) for picture, name in zip(result.pictures, listed, strict=False))
    named = replace(result, names=listed, feature_names=tuple(names), pictures=drawn)
    return named.renamed(("malignant", "benign"))


def _wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, width))
