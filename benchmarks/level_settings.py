"""Hard null settings for the calibration study: calls of `compare` and `relate` in which every counted feature is null.

A setting makes one call with many null columns and returns their p-values by cell. Calls use the public functions
alone, so that they measure what a user gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn import datasets

from kernsift import compare, relate, screen
from kernsift.result import Result

Pvalues = dict[str, np.ndarray]
Law = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


@dataclass(frozen=True)
class Setting:
    """Data without anything to find."""

    group: str  # the table of the page that shows it
    name: str  # its row there
    pvalues: Callable[[np.random.Generator], Pvalues]  # makes one call; p-values of null features by cell
    calls: int  # how many calls the full study makes


def compare_pvalues(x: np.ndarray, first: int, seed: int = 0, **settings: Any) -> np.ndarray:
    """Of all columns, the first sample being the first rows."""
    return np.asarray(compare(x[:first], x[first:], correction=None, random_state=seed, **settings).all_pvalues)


def relate_pvalues(x: np.ndarray, y: np.ndarray, response: str = "auto", seed: int = 0) -> np.ndarray:
    """Of all columns."""
    return np.asarray(relate(x, y, correction=None, response=response, random_state=seed).all_pvalues)


# --- laws -------------------------------------------------------------------------------------------------------------


def normal(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return rng.standard_normal(size)


def lognormal(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return rng.lognormal(0.0, 1.0, size)


def heavy(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return rng.standard_t(2.0, size)


def counts(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return rng.poisson(1.0, size).astype(float)


def binary(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return (rng.random(size) < 0.5).astype(float)


def values(*shares: float) -> Law:
    """The values 0, 1, 2, ... with these shares."""
    return lambda rng, size: rng.choice(len(shares), size, p=shares).astype(float)


def zero_inflated(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """95% zeros, else lognormal."""
    return np.where(rng.random(size) < 0.95, 0.0, rng.lognormal(0.0, 1.0, size))


def nonzeros(rng: np.random.Generator, rows: int, count: int, columns: int, kind: str) -> np.ndarray:
    """Columns of zeros with `count` other values in random rows: ones, small counts, or continuous values."""
    x = np.zeros((rows, columns))
    x[:count] = {
        "binary": np.ones((count, columns)),
        "counts": 1.0 + rng.poisson(0.7, (count, columns)),
        "continuous": rng.lognormal(0.0, 1.0, (count, columns)),
    }[kind]
    return rng.permuted(x, axis=0)


# --- tiny and uneven samples ------------------------------------------------------------------------------------------

SIZES = ((3, 3), (4, 4), (5, 5), (6, 6), (4, 12), (10, 60), (3, 120))
_COLUMNS = 100
_RESPONSE_COLUMNS = 20


def _samples(law: Law, sizes: tuple[int, int], rng: np.random.Generator) -> Pvalues:
    x = law(rng, (sum(sizes), _COLUMNS))
    return {"": compare_pvalues(x, sizes[0], int(rng.integers(2**32)))}


def _classes(law: Law, sizes: tuple[int, ...], rng: np.random.Generator) -> Pvalues:
    y = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    x = law(rng, (sum(sizes), _COLUMNS))
    # Columns of a call share drawn labellings, those of different calls do not.
    return {"": relate_pvalues(x, y, "category", int(rng.integers(2**32)))}


def _response(law: Law, response: Law, n: int, rng: np.random.Generator) -> Pvalues:
    x, y = law(rng, (n, _RESPONSE_COLUMNS)), response(rng, (n, 1))[:, 0]
    return {"": relate_pvalues(x, y, "numeric")}


def _groups(law: Law, sizes: tuple[int, int], rng: np.random.Generator) -> Pvalues:
    """Groups of two columns."""
    x = law(rng, (sum(sizes), 2 * _COLUMNS))
    groups = {f"{place}": [2 * place, 2 * place + 1] for place in range(_COLUMNS)}
    return {"": compare_pvalues(x, sizes[0], groups=groups)}


def _data_set(law: Law, sizes: tuple[int, int], rng: np.random.Generator) -> Pvalues:
    x = law(rng, (sum(sizes), 1))
    found = screen(x[: sizes[0]], {"candidate": x[sizes[0] :]}, correction=None, random_state=0)
    return {"": np.asarray(found.all_pvalues)}


def _several_columns(law: Law, response: Law, n: int, rng: np.random.Generator) -> Pvalues:
    """A response of two columns."""
    x, y = law(rng, (n, _RESPONSE_COLUMNS)), response(rng, (n, 2))
    return {"": relate_pvalues(x, y)}


def _rare_response(nonzero: int, n: int, rng: np.random.Generator) -> Pvalues:
    """A numeric response with few other values than 0, and columns with three outliers."""
    x, y = rng.standard_normal((n, _RESPONSE_COLUMNS)), np.zeros(n)
    x[:3] += 50.0
    y[:nonzero] = rng.standard_cauchy(nonzero)
    return {"": relate_pvalues(rng.permuted(x, axis=0), y, "numeric", int(rng.integers(2**32)))}


_TINY_LAWS: Mapping[str, Law] = {"normal": normal, "lognormal": lognormal, "counts": counts, "binary": binary}


def _tiny() -> Iterator[Setting]:
    for law_name, law in _TINY_LAWS.items():
        for one, two in SIZES:
            yield Setting("tiny", f"compare, {one} v {two}, {law_name}", partial(_samples, law, (one, two)), 30)
    for law_name in ("normal", "binary"):
        law = _TINY_LAWS[law_name]
        for one, two in ((4, 4), (8, 8), (4, 100)):
            name = f"compare, {one} v {two}, groups of two columns, {law_name}"
            yield Setting("tiny", name, partial(_groups, law, (one, two)), 10)
        yield Setting("tiny", f"screen, 5 v 5, {law_name}", partial(_data_set, law, (5, 5)), 1000)
        call = partial(_several_columns, law, heavy, 12)
        yield Setting("tiny", f"relate, response of two columns, n=12, {law_name}", call, 120)
    for sizes in ((5, 5), (4, 12), (3, 3, 3), (4, 4, 20)):
        shown = " v ".join(map(str, sizes))
        yield Setting("tiny", f"relate, classes of {shown}, normal", partial(_classes, normal, sizes), 120)
    for n in (6, 8, 12, 20):
        for law_name, law in (("normal", normal), ("t(2)", heavy)):
            yield Setting("tiny", f"relate, n={n}, {law_name}", partial(_response, law, law, n), 120)


# --- sparse columns and columns of few values -------------------------------------------------------------------------

NONZEROS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15)
_EACH = 12
Call = Callable[[np.random.Generator, np.ndarray], np.ndarray]
"""The p-values of the columns of a table."""


def _sparse(kind: str, rows: int, call: Call, rng: np.random.Generator) -> Pvalues:
    x = np.hstack([nonzeros(rng, rows, count, _EACH, kind) for count in NONZEROS])
    found = call(rng, x)
    return {f"{count}": found[place * _EACH :][:_EACH] for place, count in enumerate(NONZEROS)}


def two_samples(first: int) -> Call:
    return lambda rng, x: compare_pvalues(x, first)


def _against_numbers(law: Law) -> Call:
    return lambda rng, x: relate_pvalues(x, law(rng, (len(x), 1))[:, 0], "numeric")


def _against_classes(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return relate_pvalues(x, np.repeat([0, 1, 2], (50, 30, 20)), "category")


_SPARSE: Mapping[str, tuple[int, Call]] = {
    "compare, 50 v 50": (100, two_samples(50)),
    "compare, 20 v 80": (100, two_samples(20)),
    "relate, three classes": (100, _against_classes),
    "relate, normal response, n=100": (100, _against_numbers(normal)),
    "relate, t(2) response, n=40": (40, _against_numbers(heavy)),
}


def _sparse_settings() -> Iterator[Setting]:
    for kind in ("binary", "counts", "continuous"):
        for name, (rows, call) in _SPARSE.items():
            yield Setting("sparse", f"{name}, {kind}", partial(_sparse, kind, rows, call), 60)
    yield Setting("sparse", "compare, 500 v 500, counts", partial(_sparse, "counts", 1000, two_samples(500)), 40)


_FEW: Mapping[str, Law] = {
    "three values": values(0.6, 0.3, 0.1),
    "four values": values(0.7, 0.2, 0.07, 0.03),
    "two values, 10%": values(0.9, 0.1),
}


def _few_values() -> Iterator[Setting]:
    for name, law in _FEW.items():
        for one, two in ((8, 8), (15, 15), (50, 50), (6, 200)):
            yield Setting("few values", f"compare, {one} v {two}, {name}", partial(_samples, law, (one, two)), 30)
        yield Setting("few values", f"relate, three classes of 20, {name}", partial(_classes, law, (20, 20, 20)), 30)
        for response_name, response in (("normal", normal), ("t(2)", heavy)):
            call = partial(_response, law, response, 40)
            yield Setting("few values", f"relate, {response_name} response, n=40, {name}", call, 100)
    yield Setting(
        "few values", "compare, 6 v 200, four equal values", partial(_samples, values(*4 * [0.25]), (6, 200)), 30
    )
    for nonzero in (3, 10):
        name = f"relate, response with {nonzero} nonzero rows of 150, outliers"
        yield Setting("few values", name, partial(_rare_response, nonzero, 150), 100)
    for n in (12, 40, 64, 66):
        call = partial(_response, binary, binary, n)
        yield Setting("few values", f"relate, two-valued response, n={n}, two values", call, 100)


# --- mates of signals -------------------------------------------------------------------------------------------------

CORRELATIONS = (0.7, 0.9, 0.99)
SIGNALS = {"weak": 0.3, "strong": 0.7}
_MATE_ROWS = 100


def _mate_table(rng: np.random.Generator, d: int, correlation: float) -> np.ndarray:
    """The second column is correlated with the first; the others are independent."""
    x = rng.standard_normal((_MATE_ROWS, d))
    x[:, 1] = correlation * x[:, 0] + np.sqrt(1.0 - correlation**2) * x[:, 1]
    return x


def _mates(question: str, d: int, correlation: float, signal: float, rng: np.random.Generator) -> Pvalues:
    """Selective p-values of the null mate where it is selected, for two lengths of the list."""
    x = _mate_table(rng, d, correlation)
    half = _MATE_ROWS // 2
    y = rng.standard_normal(_MATE_ROWS)
    if question == "compare":
        x[half:, 0] += signal
    else:
        # As visible as the shift is: a correlation of the same size, in the first column alone.
        x[:, 0] += 0.5 * signal * y

    def call(k: int) -> Result:
        options: dict[str, Any] = {"k": k, "correction": None, "random_state": 0}
        if question == "compare":
            return compare(x[:half], x[half:], **options)
        return relate(x, y, response="numeric", **options)

    longer = call(2)
    found = {"k=2": np.asarray(longer.pvalues)[np.asarray(longer.selected) == 1]}
    # The list of one feature is the head of the list of two.
    found["k=1"] = np.asarray(call(1).pvalues) if longer.selected[0] == 1 else np.empty(0)
    return found


def _mate_settings() -> Iterator[Setting]:
    for question in ("compare", "relate"):
        for correlation in CORRELATIONS:
            for strength, signal in SIGNALS.items():
                for d in (2, 5, 20):
                    name = f"{question}, r={correlation}, {strength} signal, d={d}"
                    yield Setting("mates", name, partial(_mates, question, d, correlation, signal), 1000)


# --- many rows --------------------------------------------------------------------------------------------------------


def _rare_ones(ones: int, rows: int, rng: np.random.Generator) -> Pvalues:
    return {"": compare_pvalues(nonzeros(rng, rows, ones, 10, "binary"), rows // 2)}


def _many_rows() -> Iterator[Setting]:
    for n in (16_000, 17_000, 60_000):
        for name, law in (("95% zeros", zero_inflated), ("normal", normal), ("lognormal", lognormal)):
            call = partial(_large_samples, law, n)
            yield Setting("many rows", f"compare, {n // 2:,} v {n // 2:,}, {name}", call, 1_200_000 // n)
    yield Setting("many rows", "compare, 40 ones in 200,000 rows", partial(_rare_ones, 40, 200_000), 40)
    yield Setting("many rows", "relate, n=20,000, 95% zeros", partial(_response, zero_inflated, normal, 20_000), 30)


def _large_samples(law: Law, n: int, rng: np.random.Generator) -> Pvalues:
    return {"": compare_pvalues(law(rng, (n, 20)), n // 2)}


# --- real columns, labels permuted ------------------------------------------------------------------------------------

_REAL: Mapping[str, Callable[[], Any]] = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
    "diabetes": datasets.load_diabetes,
}


@cache
def _real_data(name: str) -> tuple[np.ndarray, np.ndarray]:
    found = _REAL[name]()
    return found.data[:, np.ptp(found.data, axis=0) > 0], found.target


def _real(name: str, call: str, rows: int | None, rng: np.random.Generator) -> Pvalues:
    x, y = _real_data(name)
    chosen = rng.permutation(len(x))[: rows or 600]
    x, y = x[chosen], rng.permutation(y[chosen])
    # A column that is constant in these rows has p = 1 whatever the labels are.
    x = x[:, np.ptp(x, axis=0) > 0]
    if call == "compare":
        return {"": compare_pvalues(x, len(x) // 2)}
    return {"": relate_pvalues(x, y, "numeric" if name == "diabetes" else "category")}


def _real_settings() -> Iterator[Setting]:
    for name in _REAL:
        for rows in (40, None):
            shown, calls = (f"{rows} rows", 150) if rows else ("up to 600 rows", 60)
            for question, labels in (("compare", "random halves"), ("relate", "response permuted")):
                call = partial(_real, name, question, rows)
                yield Setting("real", f"{question}, {name}, {shown}, {labels}", call, calls)


SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for settings in (_tiny(), _sparse_settings(), _few_values(), _mate_settings(), _many_rows(), _real_settings())
    for setting in settings
}
