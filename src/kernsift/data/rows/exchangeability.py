"""Rows that are exchangeable under the null hypothesis: strata, pairs and units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import chdtrc

from kernsift.data.tables import Table
from kernsift.execution.arrays import to_numpy
from kernsift.execution.notes import add_note

# Strata with fewer rows than this on average are small: alignment removes a large part of their variation.
_SMALL = 4
# Noise of units may differ between classes by this factor, and change the mean of T by this share.
_UNEVEN, _BIAS = 1.1, 0.05
# P-value above which noise and classes count as unrelated.
_UNRELATED = 0.3


@dataclass(frozen=True)
class Exchangeability:
    """The strata and units of n rows.

    Attributes
    ----------
    response : (n,) the sample or the value of the response of each row, as codes.
    stratum : (n,) codes 0..S-1 of strata within which units are exchangeable; None for a single one.
    unit : (n,) codes 0..U-1 of units, whose rows are permuted together; None where each row is a unit.
    left_out : rows that belong to no unit; they have the code U.

    Examples
    --------
    >>> import numpy as np
    >>> label = np.array([0, 0, 1, 1, 1])
    >>> rows = Exchangeability(label, np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 2, 3]))
    >>> rows.units, rows.strata_of_units.tolist(), rows.informative.tolist()
    (4, [0, 0, 1, 1], [0, 1])
    """

    response: np.ndarray
    stratum: np.ndarray | None
    unit: np.ndarray | None
    left_out: int = 0

    @property
    def n(self) -> int:
        return len(self.response)

    @property
    def all_exchangeable(self) -> bool:
        """Whether all rows are exchangeable."""
        return self.stratum is None and self.unit is None

    @property
    def units(self) -> int:
        return self.n if self.unit is None else len(self.unit_sizes)

    @cached_property
    def unit_sizes(self) -> np.ndarray:
        """(U,) rows of each unit."""
        if self.unit is None:
            return np.ones(self.n, dtype=int)
        sizes = np.bincount(self.unit)
        return sizes[:-1] if self.left_out else sizes

    @cached_property
    def first_rows(self) -> np.ndarray:
        """(U,) the first row of each unit."""
        return np.arange(self.n) if self.unit is None else np.unique(self.unit, return_index=True)[1][: self.units]

    @cached_property
    def strata_of_units(self) -> np.ndarray:
        """(U,) the stratum of each unit."""
        if self.stratum is None:
            return np.zeros(self.units, dtype=int)
        return self.stratum[self.first_rows]

    @property
    def by_unit(self) -> Exchangeability:
        """The same with one row for each unit."""
        return Exchangeability(self.responses, None if self.stratum is None else self.strata_of_units, None)

    @cached_property
    def small_strata(self) -> bool:
        """Whether the strata in which the response varies have few rows, as pairs do."""
        if self.stratum is None:
            return False
        return int(np.isin(self.stratum, self.informative_strata).sum()) < _SMALL * len(self.informative_strata)

    @property
    def described(self) -> str:
        """The numbers of units and strata that can be used."""
        units, strata = len(self.informative), len(self.informative_strata)
        if self.unit is None and units == 2 * strata:
            return f"{strata:,} pairs"
        what = f"{units:,} {'rows' if self.unit is None else 'units'}"
        return what if self.stratum is None else f"{what} in {strata:,} strat{'um' if strata == 1 else 'a'}"

    @cached_property
    def responses(self) -> np.ndarray:
        """(U,) the response of each unit."""
        return self.response[self.first_rows]

    @cached_property
    def informative(self) -> np.ndarray:
        """The units of strata in which the response varies."""
        return np.flatnonzero(np.isin(self.strata_of_units, self.informative_strata))

    @cached_property
    def informative_strata(self) -> np.ndarray:
        """The strata in which the response varies."""
        return np.flatnonzero(varies(self.strata_of_units, self.responses))

    def evened(self, rng: np.random.Generator, *, whole: bool = True) -> Exchangeability:
        """The same with rows left out at random where units with some responses have more rows than others.

        The mean of few rows is noisier than that of many. Where noise depends on the label, units are not exchangeable
        even if nothing else differs. So within each stratum the largest unit of each class keeps as many rows as the
        smallest of these largest units has, and so on down the order of sizes. Nothing is left out where noise depends
        little on the class, or no more than by chance: units whose sizes have nothing to do with the label are
        exchangeable. A note has the number of rows, unless they are not the `whole` table but those of some features.
        """
        if self.unit is None:
            return self
        sizes, strata = self.unit_sizes, np.unique(self.strata_of_units, return_inverse=True)[1].ravel()
        classes = _classes(self.responses, strata)
        noise = 1.0 / sizes
        if not _is_uneven(noise, classes, strata) or _association(noise, classes, strata) > _UNRELATED:
            return self
        keep = sizes.copy()
        for one in range(strata.max() + 1):
            some = np.flatnonzero(strata == one)
            keep[some] = _even_sizes(sizes[some], classes[some])
        shuffled = rng.permutation(self.n)
        order = shuffled[np.argsort(self.unit[shuffled], kind="stable")]
        rank = np.arange(self.n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        unit = self.unit.copy()
        out = order[rank >= np.repeat(keep, sizes)]
        unit[out] = len(sizes)
        which = f"{len(out):,} of {self.n:,} rows" if whole else "some rows of features with missing values"
        are = "is" if whole and len(out) == 1 else "are"
        add_note(f"unit: {which} {are} left out at random, so that units with different responses are equally noisy.")
        return Exchangeability(self.response, self.stratum, unit, len(out))

    def take(self, rows: np.ndarray) -> Exchangeability:
        """The same for some of the rows."""

        def kept(codes: np.ndarray | None) -> np.ndarray | None:
            return None if codes is None else np.unique(codes[rows], return_inverse=True)[1].ravel()

        return Exchangeability(self.response[rows], kept(self.stratum), kept(self.unit))

    def units_of(self, rows: np.ndarray) -> np.ndarray:
        """The units that some of the rows belong to, in the order in which `take` numbers them."""
        return rows if self.unit is None else np.unique(self.unit[rows])


def varies(group: np.ndarray, response: np.ndarray) -> np.ndarray:
    """(G,) bool: the groups, given as codes of rows, in which the response varies."""
    count = int(group.max()) + 1
    one = np.empty(count, dtype=response.dtype)
    one[group] = response
    return np.bincount(group[response != one[group]], minlength=count) > 0


def _is_uneven(noise: np.ndarray, classes: np.ndarray, strata: np.ndarray) -> bool:
    """Whether the noise of units (U,) depends on their class, other strata having other noise.

    It does where the noise of a class, compared with that of its strata, differs from that of another. It also does
    where classes that are rare in their strata have more noise, be they different ones in different strata (see
    `_lengths`): the mean of T is larger then.
    """
    rows, length = np.bincount(strata), _lengths(classes, strata)
    usual = (np.bincount(strata, noise) / rows)[strata]
    by_class = np.bincount(classes, noise)[classes] / np.bincount(classes, usual)[classes]
    mean = (np.bincount(strata, length) / rows)[strata]
    bias = ((length - mean) * noise).sum() / max((mean * noise).sum(), 1e-300)
    return bool(by_class.max() > _UNEVEN * by_class.min() or abs(bias) > _BIAS)


def _lengths(classes: np.ndarray, strata: np.ndarray) -> np.ndarray:
    """(U,) squared lengths of centred indicators g of classes, which are longest for rare ones; T is |sum of g f|^2."""
    table = np.zeros((strata.max() + 1, classes.max() + 1))
    np.add.at(table, (strata, classes), 1.0)
    share = table / np.bincount(strata)[:, None]
    found: np.ndarray = (1.0 + (share**2).sum(axis=1))[strata] - 2.0 * share[strata, classes]
    return found


def _association(noise: np.ndarray, classes: np.ndarray, strata: np.ndarray) -> float:
    """The p-value of a dependence of the noise of units (U,) on their class, or on how rare this is, within strata.

    The statistic is the squared length of the sums of products of noise, less its mean in the stratum, with indicators
    of classes and with their `_lengths`. In the metric of the covariance of these sums over permutations within strata
    it is chi-squared in the limit (Strasser and Weber 1999).

    Examples
    --------
    Four units of one class have 10 rows, four of the other 100; then sizes that are the same in both classes:

    >>> classes, strata = np.repeat([0, 1], 4), np.zeros(8, dtype=int)
    >>> round(_association(np.repeat([0.1, 0.01], 4), classes, strata), 3)
    0.008
    >>> round(_association(np.tile([0.1, 0.01], 4), classes, strata), 3)
    1.0
    """
    rows = np.bincount(strata)
    columns = np.column_stack([np.equal.outer(classes, np.arange(classes.max() + 1)), _lengths(classes, strata)])
    both = np.column_stack([noise, columns])
    for column in both.T:
        column -= (np.bincount(strata, column) / rows)[strata]
    noise, columns = both[:, 0], both[:, 1:]
    variance = np.bincount(strata, noise**2) / np.maximum(rows - 1, 1)
    values, vectors = np.linalg.eigh((columns * variance[strata, None]).T @ columns)
    kept, sums = values > 1e-9 * values[-1], vectors.T @ (columns.T @ noise)
    return float(chdtrc(kept.sum(), (sums[kept] ** 2 / values[kept]).sum())) if kept.any() else 1.0


def _even_sizes(sizes: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """(U,) numbers of rows of the units to keep, such that they have the same distribution in all classes."""
    members = [np.flatnonzero(classes == one) for one in np.unique(classes)]
    levels = (np.arange(max(map(len, members))) + 0.5) / max(map(len, members))
    ordered = [np.sort(sizes[some]) for some in members]
    least = np.min([own[(levels * len(own)).astype(int)] for own in ordered], axis=0)
    keep = np.empty(len(sizes), dtype=int)
    for some in members:
        place = ((np.arange(len(some)) + 0.5) / len(some) * len(levels)).astype(int)
        keep[some[np.argsort(sizes[some], kind="stable")]] = least[place]
    return np.minimum(keep, sizes)


def _classes(response: np.ndarray, strata: np.ndarray) -> np.ndarray:
    """Codes of classes of a response (N,): its values where these are few, else the quarters of a stratum's order."""
    values, codes = np.unique(response, return_inverse=True)
    if 4 * len(values) <= len(response):
        return codes.ravel()
    order, rows = np.lexsort((response, strata)), np.bincount(strata)
    rank = np.empty(len(response), dtype=int)
    rank[order] = np.arange(len(response)) - np.repeat(np.cumsum(rows) - rows, rows)
    return rank * 4 // rows[strata]


def response_codes(target: Table) -> np.ndarray:
    """(n,) codes of the rows of a response, equal where all its columns are."""
    values = to_numpy(target.values)
    # Rows of several numbers are sorted as records, which takes ten times as long.
    own = values[:, 0] if values.shape[1] == 1 else values
    return np.unique(own, axis=0, return_inverse=True)[1].ravel()
