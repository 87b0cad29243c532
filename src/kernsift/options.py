"""Options of estimators and tests: records that are accepted in place of a name in `estimator=` and `test=`.

`estimator="incomplete"` is `estimator=Incomplete()`. The records have `get_params` and `set_params`, so that a grid
search reaches their fields, for instance as `estimator__r`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from kernsift.exceptions import InputError, suggestion


@dataclass
class Options:
    """Named fields with defaults, and the parameter methods of a scikit-learn estimator."""

    name: ClassVar[str]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The fields by name; `deep` has no effect, because no field has parameters of its own."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Set fields by name."""
        for name, value in params.items():
            if name not in self.get_params():
                raise InputError(_no_option(name, type(self).__name__, self.get_params()))
            setattr(self, name, value)
        return self


@dataclass
class Incomplete(Options):
    """The incomplete U-statistic, for `estimator=`.

    Parameters
    ----------
    r : float, default 1.0
        Draws per row.
    design : {"shared", "independent"}, default "shared"
        "shared" draws the same rows for all features, which estimates the correlations of their scores; "independent"
        draws rows for each feature.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift import Incomplete, compare
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(200, 4)), rng.normal(size=(200, 4))
    >>> compare(X, Y, estimator=Incomplete(r=5), random_state=0).settings["r"]
    5
    """

    name: ClassVar[str] = "incomplete"
    r: float = 1.0
    design: str = "shared"


@dataclass
class Block(Options):
    """The block U-statistic, for `estimator=`.

    Parameters
    ----------
    block_size : int, optional
        Rows per block; by default the square root of the number of rows in `compare` and `screen`, and 5 in `relate`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift import Block, relate
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 4))
    >>> relate(X, X[:, 1], estimator=Block(block_size=5), random_state=0).names[0]
    'x1'
    """

    name: ClassVar[str] = "block"
    block_size: int | None = None


@dataclass
class Multiscale(Options):
    """The selective multiscale bootstrap, for `test=`.

    Parameters
    ----------
    replicates : int, default 10000
        Bootstrap replicates at each scale.
    scales : sequence of float, optional
        Ratios n / n' of the sample size to that of a replicate; at least three.
    model : {"linear", "constant", "quadratic", "singular", "aic"}, default "linear"
        The scaling law that is fitted; "aic" chooses among the others.
    resampling : {"normal", "rows"}, default "normal"
        Whether replicates are draws from the normal law of the scores, or resampled rows.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift import Multiscale, compare
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(200, 6)), rng.normal(size=(200, 6))
    >>> result = compare(X, Y, k=3, test=Multiscale(replicates=2000), random_state=0)
    >>> len(result.pvalues)
    3
    """

    name: ClassVar[str] = "multiscale"
    replicates: int = 10_000
    scales: Any = None
    model: str = "linear"
    resampling: str = "normal"


ESTIMATOR_OPTIONS: Mapping[str, type[Options]] = {"incomplete": Incomplete, "block": Block}
TEST_OPTIONS: Mapping[str, type[Options]] = {"multiscale": Multiscale}


def resolve(
    argument: str, given: Any, names: Iterable[str], records: Mapping[str, type[Options]]
) -> tuple[str, dict[str, Any]]:
    """The name and the options of an estimator or test that is given as a name or as a record."""
    known = list(names)
    if isinstance(given, Options) and records.get(given.name) is type(given) and given.name in known:
        return given.name, {name: value for name, value in given.get_params().items() if value is not None}
    if isinstance(given, str) and given in known:
        return given, {}
    raise InputError(f"{argument}: needs one of {', '.join(map(repr, known))}, got {given!r}{suggestion(given, known)}")


def with_options(estimator: str, test: str, given: Mapping[str, Any]) -> tuple[Any, Any]:
    """An estimator and a test with options by name, each of which belongs to one of the two."""
    estimator_record, test_record = ESTIMATOR_OPTIONS.get(estimator), TEST_OPTIONS.get(test)
    records = [record() for record in (estimator_record, test_record) if record is not None]
    known = [name for record in records for name in record.get_params()]
    for name, value in given.items():
        if name not in known:
            raise InputError(_no_option(name, f'estimator="{estimator}" with test="{test}"', known))
        for record in records:
            if name in record.get_params():
                record.set_params(**{name: value})
    made = {record.name: record for record in records}
    return made.get(estimator, estimator), made.get(test, test)


def _no_option(name: str, where: str, known: Iterable[str]) -> str:
    taken = ", ".join(sorted(known))
    return f"{name}: is no option of {where}, which takes {f'only {taken}' if taken else 'none'}; leave it out."
