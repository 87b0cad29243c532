"""What this is about, on data that comes with scikit-learn: real measurements hidden among shuffled copies."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace

import numpy as np

from kernsift.multiplicity import adjust
from kernsift.pictures import renamed
from kernsift.result import Result
from kernsift.select import compare
from kernsift.show.wording import legend, table

_MEASURED, _SHUFFLED, _KEPT = 10, 190, 20


@dataclass(frozen=True)
class Demo:
    """The result, and which of the selected columns are fakes."""

    result: Result
    fake: np.ndarray
    malignant: int
    benign: int

    def text(self, width: int) -> str:
        """What was done, the table, and what is to be seen in it."""
        before, after = (_wrapped(part, width) for part in (self._setting(), self._seen()))
        return "\n".join([before, "", table(self.result, width), "", legend(self.result, min(width, 100)), "", after])

    def _setting(self) -> str:
        return (
            f"Which measurements differ between {self.malignant} malignant and {self.benign} benign breast tumours? "
            f"{_MEASURED} real measurements are hidden among {_SHUFFLED} copies shuffled over the patients, which "
            f"cannot tell the two apart. The {_KEPT} columns that look most different are kept, and then tested on "
            "the same patients."
        )

    def _seen(self) -> str:
        naive = adjust(self.result.naive_pvalues, self.result.correction) <= self.result.alpha
        lies, slips = int((naive & self.fake).sum()), int((self.result.rejected & self.fake).sum())
        kept = int(self.fake.sum())
        real = int((self.result.rejected & ~self.fake).sum())
        return (
            f"Believing the naive p-values, {lies} of the {kept} shuffled columns in the table would count as "
            f"discoveries, although there is nothing to discover: the best of {_SHUFFLED} fakes look good by luck. "
            f"The selective p-values know that the best were picked, and let {slips or 'none'} of them pass, while "
            f"{real} of the {len(self.fake) - kept} real measurements stand."
        )


def run(seed: int) -> Demo:
    """Compare malignant with benign tumours on real and shuffled columns."""
    try:
        from sklearn.datasets import load_breast_cancer
    except ModuleNotFoundError as error:  # a broken installation, as scikit-learn is required
        raise ModuleNotFoundError("The demo needs scikit-learn: pip install scikit-learn.") from error
    data = load_breast_cancer()
    rng = np.random.default_rng(seed)
    real, names = data.data[:, :_MEASURED], [str(name) for name in data.feature_names[:_MEASURED]]
    sources = np.arange(_SHUFFLED) % _MEASURED
    shuffled = np.column_stack([rng.permutation(real[:, source]) for source in sources])
    values = np.column_stack([real, shuffled])
    names += [f"shuffled {names[source]} {i // _MEASURED + 1}" for i, source in enumerate(sources)]
    first, second = values[data.target == 0], values[data.target == 1]
    result = _named(compare(first, second, k=_KEPT, random_state=seed), names)
    return Demo(result, np.array([i >= _MEASURED for i in result.selected]), len(first), len(second))


def _named(result: Result, names: list[str]) -> Result:
    picked = tuple(names[i] for i in result.selected)
    drawn = [replace(picture, label=name) for picture, name in zip(result.pictures, picked, strict=True)]
    pictures = renamed(drawn, ("malignant", "benign"))
    return replace(result, names=picked, feature_names=tuple(names), pictures=pictures)


def _wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, min(width, 100)))
