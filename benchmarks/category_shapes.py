"""Changes of categorical columns, for docs/power.md: one column at a time, level 0.05.

With two samples a trial is a table of counts of the levels by sample, n rows a sample. Otherwise it is n rows of levels
and of numbers whose means differ between the levels: one of them is the feature, the other one the response. Other
tests of tables have permutation p-values, as many expected counts are small. Amplitudes were chosen by the power of the
other tests alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from peers import LEVEL
from regret import COLUMNS, OWN
from scipy.stats import f_oneway, kruskal

from kernsift import compare, relate

PERMUTATIONS = 499

Change = Callable[[float, np.random.Generator], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class CategoryShape:
    """A change of the shares of levels, or of their means."""

    change: Change  # the shares of the two samples, or the shares and the means of the levels, given the amplitude
    amplitudes: Mapping[int, float]  # the amplitude for each n
    response: str = "samples"  # what the response is: "samples", "numbers" or "classes"


def _zipf(levels: int) -> np.ndarray:
    shares = 1.0 / np.arange(1, levels + 1)
    return shares / shares.sum()


_FIVE = np.array([0.5, 0.2, 0.15, 0.1, 0.05])
_THREE = np.array([0.7, 0.25, 0.05])


def _new(shares: np.ndarray, count: int = 1) -> Change:
    """The second sample has new levels, which share the amplitude."""
    return lambda a, rng: (np.append(shares, np.zeros(count)), np.append(shares * (1 - a), np.full(count, a / count)))


def _more(shares: np.ndarray, level: int) -> Change:
    """One level is more frequent in the second sample, at the cost of all."""
    return lambda a, rng: (shares, shares * (1 - a) + a * (np.arange(len(shares)) == level))


def _moved(shares: np.ndarray) -> Change:
    """Rows move from the first to the second level."""
    return lambda a, rng: (shares, shares + a * np.append([-1.0, 1.0], np.zeros(len(shares) - 2)))


def _all(shares: np.ndarray) -> Change:
    """All shares change in proportion, half of them up and half of them down."""

    def change(a: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        second = shares * (1.0 + a * rng.permutation(np.resize([1.0, -1.0], len(shares))))
        return shares, second / second.sum()

    return change


def _merged(a: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A share of the rows of the fourth level has the third one."""
    first = np.array([0.4, 0.25, 0.15, 0.12, 0.08])
    return first, first + a * first[3] * np.array([0, 0, 1, -1, 0])


def _mean(shares: np.ndarray, level: int) -> Change:
    """The numbers of one level have another mean."""
    return lambda a, rng: (shares, a * (np.arange(len(shares)) == level))


def _means(shares: np.ndarray) -> Change:
    """The numbers of all levels have different means."""
    return lambda a, rng: (shares, a * rng.standard_normal(len(shares)))


SHAPES = {
    "new level, 5 others": CategoryShape(_new(_FIVE), {60: 0.1, 200: 0.04, 1000: 0.01}),
    "new level, 20 others (Zipf)": CategoryShape(_new(_zipf(20)), {60: 0.2, 200: 0.08, 1000: 0.02}),
    "5 new levels, 20 others (Zipf)": CategoryShape(_new(_zipf(20), 5), {60: 0.25, 200: 0.1, 1000: 0.025}),
    "common level of 5 more frequent": CategoryShape(_more(_FIVE, 0), {60: 0.5, 200: 0.25, 1000: 0.12}),
    "rare level of 20 (Zipf) more frequent": CategoryShape(_more(_zipf(20), 15), {60: 0.2, 200: 0.08, 1000: 0.03}),
    "two common levels of 20 (Zipf)": CategoryShape(_moved(_zipf(20)), {60: 0.17, 200: 0.1, 1000: 0.05}),
    "two common levels of 100 (Zipf)": CategoryShape(_moved(_zipf(100)), {60: 0.15, 200: 0.1, 1000: 0.045}),
    "all of 5 equal levels": CategoryShape(_all(np.full(5, 0.2)), {60: 0.6, 200: 0.35, 1000: 0.15}),
    "all of 20 equal levels": CategoryShape(_all(np.full(20, 0.05)), {60: 0.75, 200: 0.4, 1000: 0.18}),
    "all of 100 equal levels": CategoryShape(_all(np.full(100, 0.01)), {60: 1.0, 200: 0.6, 1000: 0.3}),
    "all of 20 levels (Zipf)": CategoryShape(_all(_zipf(20)), {60: 0.75, 200: 0.4, 1000: 0.18}),
    "two levels merged": CategoryShape(_merged, {60: 0.9, 200: 0.6, 1000: 0.3}),
    "two levels": CategoryShape(_moved(np.array([0.7, 0.3])), {60: 0.25, 200: 0.13, 1000: 0.055}),
    "three levels, a rare one": CategoryShape(_more(np.array([0.6, 0.38, 0.02]), 2), {60: 0.15, 200: 0.06, 1000: 0.02}),
    "numbers: mean of a rare level of 5": CategoryShape(_mean(_FIVE, 4), {60: 1.6, 200: 0.9, 1000: 0.4}, "numbers"),
    "numbers: mean of the commonest of 20 (Zipf)": CategoryShape(
        _mean(_zipf(20), 0), {60: 1.0, 200: 0.5, 1000: 0.22}, "numbers"
    ),
    "numbers: means of 20 levels (Zipf)": CategoryShape(_means(_zipf(20)), {60: 0.7, 200: 0.35, 1000: 0.15}, "numbers"),
    "classes: mean of a rare class of 3": CategoryShape(_mean(_THREE, 2), {60: 1.5, 200: 0.9, 1000: 0.4}, "classes"),
    "classes: mean of the commonest of 3": CategoryShape(_mean(_THREE, 0), {60: 0.8, 200: 0.45, 1000: 0.2}, "classes"),
    "classes: mean of the rarest of 10 (Zipf)": CategoryShape(
        _mean(_zipf(10), 9), {60: 2.3, 200: 1.4, 1000: 0.6}, "classes"
    ),
    "classes: mean of the commonest of 10 (Zipf)": CategoryShape(
        _mean(_zipf(10), 0), {60: 0.9, 200: 0.5, 1000: 0.22}, "classes"
    ),
    "classes: means of 10 classes (Zipf)": CategoryShape(
        _means(_zipf(10)), {60: 0.7, 200: 0.35, 1000: 0.15}, "classes"
    ),
    "classes: means of 5 equal classes": CategoryShape(
        _means(np.full(5, 0.2)), {60: 0.5, 200: 0.25, 1000: 0.11}, "classes"
    ),
}


# --- methods ----------------------------------------------------------------------------------------------------------


def _deviations(tables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Observed less expected counts of tables (..., levels, 2) with the same margins, and the expected ones."""
    rows, columns = tables.sum(axis=-1, keepdims=True), tables.sum(axis=-2, keepdims=True)
    expected = rows * columns / rows.sum(axis=-2, keepdims=True)
    return tables - expected, np.maximum(expected, 1e-300)


def _chi_square(tables: np.ndarray) -> np.ndarray:
    away, expected = _deviations(tables)
    return np.asarray((away**2 / expected).sum(axis=(-2, -1)))


def _likelihood_ratio(tables: np.ndarray) -> np.ndarray:
    _, expected = _deviations(tables)
    return np.asarray((tables * np.log(np.where(tables > 0, tables, 1.0) / expected)).sum(axis=(-2, -1)))


def _distance(tables: np.ndarray) -> np.ndarray:
    """Distance covariance of indicators of the levels, which is that of the kernel of equality."""
    return np.asarray((_deviations(tables)[0] ** 2).sum(axis=(-2, -1)))


_OF_TABLES = {"chi-square": _chi_square, "G test": _likelihood_ratio, "Dcorr of indicators": _distance}
_OF_NUMBERS = {"analysis of variance": f_oneway, "Kruskal-Wallis": kruskal}


def methods_of(name: str) -> list[str]:
    return [OWN, *(_OF_TABLES if SHAPES[name].response == "samples" else _OF_NUMBERS)]


def rejections(row: str, method: str, trials: int) -> np.ndarray:
    """Which trials a method rejects; a row is a shape and n. Every method sees the same data."""
    name, _, n = row.rpartition(", n=")
    shape, rng = SHAPES[name], np.random.default_rng(zlib.crc32(row.encode()))
    changes = [shape.change(shape.amplitudes[int(n)], rng) for _ in range(trials)]
    if shape.response == "samples":
        return _table_pvalues(changes, int(n), method, rng) <= LEVEL
    return _numeric_pvalues(changes, int(n), method, rng, shape.response) <= LEVEL


def _table_pvalues(
    changes: list[tuple[np.ndarray, np.ndarray]], n: int, method: str, rng: np.random.Generator
) -> np.ndarray:
    import pandas as pd

    tables = [np.stack([rng.multinomial(n, first), rng.multinomial(n, second)], axis=1) for first, second in changes]
    if method == OWN:
        found = []
        for start in range(0, len(tables), COLUMNS):
            some = tables[start : start + COLUMNS]
            samples = [pd.DataFrame({place: _rows(one[:, k]) for place, one in enumerate(some)}) for k in (0, 1)]
            # Else columns whose values mostly differ are left out as identifiers.
            found += list(compare(*samples, kinds={"*": "category"}, correction=None, random_state=0).all_pvalues)
        return np.array(found)
    found = []
    for one in tables:
        counts = one.sum(axis=1)
        first = rng.multivariate_hypergeometric(counts, n, size=PERMUTATIONS, method="marginals")
        null = _OF_TABLES[method](np.stack([first, counts - first], axis=2))
        found.append((1 + (null >= _OF_TABLES[method](one) * (1 - 1e-9)).sum()) / (PERMUTATIONS + 1))
    return np.array(found)


def _rows(counts: np.ndarray) -> Any:
    import pandas as pd

    levels = [f"level {place}" for place in range(len(counts))]
    return pd.Categorical.from_codes(np.repeat(np.arange(len(counts)), counts), levels)


def _numeric_pvalues(
    changes: list[tuple[np.ndarray, np.ndarray]], n: int, method: str, rng: np.random.Generator, response: str
) -> np.ndarray:
    import pandas as pd

    found = []
    for shares, means in changes:
        codes = rng.choice(len(shares), n, p=shares)
        numbers = means[codes] + rng.standard_normal(n)
        if method == OWN:
            levels = np.array([f"level {code}" for code in codes])
            kind = {"numbers": "numeric", "classes": "category"}[response]
            x, y = (levels, numbers) if response == "numbers" else (numbers, levels)
            found.append(relate(pd.DataFrame({"x": x}), y, k=None, response=kind, random_state=0).pvalues[0])
        else:
            # A level of one row has no variance of its own, but counts among the levels.
            found.append(_OF_NUMBERS[method](*(numbers[codes == code] for code in np.unique(codes))).pvalue)
    return np.array(found)
