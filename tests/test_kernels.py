from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from by_hand import table
from scipy.spatial.distance import pdist

from kernsift.data.tables import Table
from kernsift.exceptions import InputError
from kernsift.kernels import bandwidths
from kernsift.kernels.bandwidths import column_medians, medians_of_sorted, rows_to_sort
from kernsift.kernels.fitted import FeatureKernels, fit_kernels
from kernsift.kernels.functions import KERNELS, Linear, Polynomial, as_kernel

FORMULAS: dict[str, Callable[[np.ndarray, np.ndarray, float], float]] = {
    "gaussian": lambda x, y, s: float(np.exp(-np.sum((x - y) ** 2) / s**2)),
    "laplace": lambda x, y, s: float(np.exp(-np.sqrt(np.sum((x - y) ** 2)) / s)),
    "imq": lambda x, y, s: float((1 + np.sum((x - y) ** 2) / s**2) ** -0.5),
    "linear": lambda x, y, s: float(x @ y),
    "polynomial": lambda x, y, s: float((1 + x @ y / s**2) ** 3),
    "triangle": lambda x, y, s: float(max(0.0, 1 - np.abs(x - y).sum() / s)),
    "delta": lambda x, y, s: float((x == y).all()),
}


pytestmark = pytest.mark.usefixtures("strict_floating_point")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


def mixed(n: int, rng: np.random.Generator, *, groups: bool = True) -> Table:
    """Features: number, category, pair of columns, number, category, triple (numbers where `groups` is off)."""
    codes = rng.integers(3, size=(n, 2)).astype(float)
    values = rng.normal(size=(n, 9))
    if not groups:
        values = values[:, :6]
        values[:, [1, 4]] = codes
        return table(values, None, [1, 4])
    values[:, [1, 5]] = codes
    return table(values, [1, 1, 2, 1, 1, 3], [1, 4])


def by_hand(data: Table, name: str, a: np.ndarray, b: np.ndarray, s: np.ndarray) -> np.ndarray:
    out = []
    for j in range(data.d):
        own = slice(data.offsets[j], data.offsets[j + 1])
        out.append(FORMULAS["delta" if data.categorical[j] else name](a[own], b[own], s[j]))
    return np.array(out)


@pytest.mark.parametrize("name", KERNELS)
def test_each_kernel_is_its_formula(name: str, rng: np.random.Generator) -> None:
    data = mixed(8, rng, groups=name != "triangle")
    s = rng.uniform(0.5, 2.0, size=data.d)
    kernels = fit_kernels(data, name, s, rng=rng)
    gram = kernels.matched(data.values[:, None], data.values[None])
    assert gram.shape == (8, 8, data.d)
    expected = [[by_hand(data, name, a, b, s) for b in data.values] for a in data.values]
    np.testing.assert_allclose(gram, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(kernels.matched(data.values[0], data.values[1]), gram[0, 1])


@pytest.mark.parametrize("name", KERNELS)
def test_inputs_are_left_alone_and_float32_stays(name: str, rng: np.random.Generator) -> None:
    for data in (table(rng.normal(size=(6, 3))), mixed(6, rng, groups=name != "triangle")):
        single = Table(data.names, data.values.astype(np.float32), data.offsets, data.categorical, data.levels)
        before = single.values.copy()
        exact = fit_kernels(data, name, 1.5, rng=rng).matched(data.values[:3], data.values[3:])
        for bandwidth in ("median", "joint", 1.5):
            kernels = fit_kernels(single, name, bandwidth, rng=rng)
            values = kernels.matched(single.values[:3], single.values[3:])
            assert values.dtype == np.float32
        np.testing.assert_array_equal(single.values, before)
        # Inputs, scales and a handful of operations each carry half a unit of 2^-23, times the cube of values to 5.
        np.testing.assert_allclose(values, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", KERNELS)
def test_selecting_features_selects_their_values(name: str, rng: np.random.Generator) -> None:
    data = mixed(40, rng, groups=name != "triangle")
    kernels = fit_kernels(data, name, rng=rng)
    chosen = np.array([5, 1, 0, 2])
    part, few = kernels.select(chosen), data.select(chosen)
    whole = kernels.matched(data.values[:20], data.values[20:])
    np.testing.assert_array_equal(part.matched(few.values[:20], few.values[20:]), whole[:, chosen])


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("size", [1e-150, 1.0, 1e150])
def test_extreme_magnitudes_raise_no_flag(name: str, size: float, rng: np.random.Generator) -> None:
    values = rng.normal(size=(30, 6)) * size / 5
    values[0] *= 5.0
    data = table(values, [1, 1, 1, 3] if name != "triangle" else None)
    for bandwidth in ("median", "joint", size, 1.0, 1e-10):
        kernels = fit_kernels(data, name, bandwidth, rng=rng)
        gram = kernels.matched(data.values[:, None], data.values[None])
        assert np.isfinite(gram).all()
        if kernels.kernel.kind == "distance":
            assert (gram >= 0).all()
            assert (gram <= 1).all()


def test_an_outlier_does_not_overflow_the_polynomial_kernel(rng: np.random.Generator) -> None:
    values = rng.normal(size=(30, 3))
    values[0] = [1e150, -1e150, 1e150]
    for widths in ([1, 1, 1], [3]):
        gram = fit_kernels(table(values, widths), "polynomial", rng=rng).matched(values[:, None], values[None])
        assert np.isfinite(gram).all()
        assert np.isfinite(gram**2).all()


def test_degree_of_the_polynomial(rng: np.random.Generator) -> None:
    data = table(rng.normal(size=(10, 2)))
    for degree in (1, 2, 5):
        values = fit_kernels(data, Polynomial(degree=degree), 2.0, rng=rng).matched(data.values[:5], data.values[5:])
        np.testing.assert_allclose(values, (1 + data.values[:5] * data.values[5:] / 4) ** degree, rtol=1e-12)
    for degree in (0, 1.5, True):
        with pytest.raises(InputError, match="degree"):
            Polynomial(degree=degree)  # type: ignore[arg-type]


# Bandwidths


def test_the_median_bandwidth_is_the_median_distance(rng: np.random.Generator) -> None:
    for n in (2, 3, 50, 64):
        data = table(rng.normal(size=(n, 4)) * [1, 10, 1e-3, 1e6])
        expected = [np.median(pdist(column[:, None])) for column in data.values.T]
        np.testing.assert_allclose(fit_kernels(data, rng=rng).bandwidth, expected, rtol=1e-12)


@pytest.mark.parametrize("rows", [2, 3, 4, 10, 63, 64])
@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, size: rng.normal(size=size),
        lambda rng, size: rng.normal(size=size).astype(np.float32),
        lambda rng, size: rng.standard_cauchy(size) * 1e60,
        lambda rng, size: np.exp(30 * rng.normal(size=size)),
        lambda rng, size: rng.normal(size=size) * 1e-69,
        lambda rng, size: rng.poisson(3, size) + 1e9,
        lambda rng, size: np.arange(size[1]) % 2 + rng.integers(0, 2, size),
    ],
    ids=["normal", "float32", "large", "uneven", "small", "counts", "few values"],
)
def test_medians_of_sorted_columns_are_those_of_all_distances(
    draw: Callable[..., np.ndarray], rows: int, rng: np.random.Generator
) -> None:
    ordered = np.sort(draw(rng, (70, rows)), axis=1)
    differences = [pdist(column[:, None].astype(float)) for column in ordered]
    expected = [np.median(own) or np.median(own[own > 0]) if own.any() else np.nan for own in differences]
    precision = 1e-6 if ordered.dtype == np.float32 else 1e-13
    np.testing.assert_allclose(medians_of_sorted(ordered)[0], expected, rtol=precision)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("count", [2, 3, 5, 32, 64])
def test_middle_gaps_are_order_statistics_of_all_differences(count: int, dtype: Any, rng: np.random.Generator) -> None:
    values = rng.standard_t(1.2, size=(120, count)) * np.logspace(-8, 8, 120)[:, None]
    values[::3] = np.round(values[::3])
    ordered = np.sort(values.astype(dtype), axis=1)
    low, high = np.triu_indices(count, 1)
    gaps = np.sort(ordered[:, high] - ordered[:, low], axis=1)
    found = bandwidths._middle_gaps(ordered)
    np.testing.assert_array_equal(found, [gaps[:, (gaps.shape[1] - 1) // 2], gaps[:, gaps.shape[1] // 2]])


def test_the_median_bandwidth_of_many_rows_is_close_to_all_pairs(rng: np.random.Generator) -> None:
    # 128 order statistics place every quantile within 1/256; the density of |x - y| near its median is at least 0.1
    # per median distance for these laws, so the median moves by a few per cent at most.
    values = np.column_stack([rng.normal(size=1500), rng.exponential(size=1500), rng.uniform(size=1500)])
    expected = [np.median(pdist(column[:, None])) for column in values.T]
    np.testing.assert_allclose(fit_kernels(table(values), rng=rng).bandwidth, expected, rtol=0.03)


@pytest.mark.parametrize("n", [60, 700])
def test_row_order_does_not_matter(n: int, rng: np.random.Generator) -> None:
    values = rng.normal(size=(n, 5))
    one = fit_kernels(table(values), rng=rng).bandwidth
    np.testing.assert_array_equal(one, fit_kernels(table(rng.permutation(values)), rng=rng).bandwidth)


@pytest.mark.parametrize("name", ["gaussian", "laplace", "imq", "triangle", "polynomial"])
def test_units_and_origin_do_not_matter_with_the_median(name: str, rng: np.random.Generator) -> None:
    widths = [1, 2, 1, 2] if name != "triangle" else None
    values = rng.normal(size=(60, 6))
    moved = values * [1, 1e-6, 1e6, 3, 0.5, 100] + [5, 1e-5, 0, 1, 2, 3]
    one, other = (fit_kernels(table(v, widths), name, rng=rng) for v in (values, moved))
    a, b = one.matched(values[:30], values[30:]), other.matched(moved[:30], moved[30:])
    np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


def test_ties_and_constants(rng: np.random.Generator) -> None:
    n = 1000
    columns = {
        "constant": (np.full(n, 7.0), 1.0),
        "two values, most tied": (np.repeat([0.0, 3.0], [900, 100]), 3.0),
        "a rare value, between all order statistics": (np.repeat([2.0, 2.5], [998, 2]), 0.5),
        "three values": (np.repeat([0.0, 1.0, 9.0], [900, 80, 20]), 1.0),
    }
    values = np.column_stack([column for column, _ in columns.values()])
    expected = [s for _, s in columns.values()]
    np.testing.assert_allclose(fit_kernels(table(values), rng=rng).bandwidth, expected, rtol=1e-12)


def test_one_row_has_bandwidth_one(rng: np.random.Generator) -> None:
    kernels = fit_kernels(table(np.ones((1, 3)), [1, 2]), rng=rng)
    np.testing.assert_array_equal(kernels.bandwidth, 1.0)


def test_many_features_come_in_chunks_with_the_same_result(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.round(rng.normal(size=(150, 300)), 1)
    values[:, ::7] = 0
    data, columns = table(values), np.arange(300)
    whole = column_medians(data, columns, rows_to_sort(data.n))
    monkeypatch.setattr("kernsift.kernels.bandwidths._CHUNK", 20_000)
    for one, other in zip(whole, column_medians(data, columns, rows_to_sort(data.n)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_medians_of_long_tables_come_from_a_part_of_the_rows(rng: np.random.Generator) -> None:
    n = 50_000
    values = np.column_stack([rng.normal(size=n), rng.exponential(size=n), np.full(n, 3.0), np.zeros(n)])
    distances, middles = column_medians(table(values), np.arange(4), rows_to_sort(len(values)))
    # The median of |x - x'| is 0.6745 sqrt 2 for normal numbers and log 2 for exponential ones. That of 2^14 rows errs
    # by about 1 %, the median by 0.01; five times that is allowed.
    np.testing.assert_allclose(distances, [0.6745 * 2**0.5, np.log(2), 1.0, 1.0], rtol=0.08)
    np.testing.assert_allclose(middles, [0.0, np.log(2), 3.0, 0.0], rtol=0, atol=0.1)
    # Rows that are not in the part may be the only ones that differ.
    values[-6:, 3] = [1.0, 1.0, 2.0, 2.0, 2.0, 5.0]
    found = column_medians(table(values), np.arange(4), np.arange(8192))[0]
    np.testing.assert_array_equal(found[2:], [1.0, 2.0])
    np.testing.assert_array_equal(
        found, column_medians(table(values[:8192]), np.arange(4), None)[0] * [1.0, 1.0, 1.0, 2.0]
    )


def test_group_bandwidth_scales_columns_first(rng: np.random.Generator) -> None:
    values = rng.normal(size=(50, 4)) * [1, 1, 1000, 1e-3]
    kernels = fit_kernels(table(values, [1, 3]), rng=rng)
    own = np.array([np.median(pdist(column[:, None])) for column in values.T])
    joint = np.median(pdist(values[:, 1:] / own[1:]))
    np.testing.assert_allclose(kernels.bandwidth, [own[0], joint], rtol=1e-9)
    expected = np.exp(-np.sum(((values[:25] - values[25:])[:, 1:] / own[1:] / joint) ** 2, axis=1))
    np.testing.assert_allclose(kernels.matched(values[:25], values[25:])[:, 1], expected, rtol=1e-9)


def test_joint_bandwidth_is_the_median_distance_of_rows(rng: np.random.Generator) -> None:
    data = mixed(80, rng)
    numeric = np.repeat(~data.categorical, np.diff(data.offsets))
    expected = np.median(pdist(data.values[:, numeric]))
    kernels = fit_kernels(data, "gaussian", "joint", rng=rng)
    np.testing.assert_allclose(kernels.bandwidth[~data.categorical], expected, rtol=1e-9)
    assert np.isnan(kernels.bandwidth[data.categorical]).all()
    again = fit_kernels(data, "gaussian", float(expected), rng=rng)
    np.testing.assert_allclose(
        kernels.matched(data.values[:40], data.values[40:]),
        again.matched(data.values[:40], data.values[40:]),
        rtol=1e-8,
    )


def test_subsampled_bandwidths_repeat_with_the_seed(rng: np.random.Generator) -> None:
    data = table(rng.normal(size=(1500, 3)), [1, 2])
    for bandwidth in ("median", "joint"):
        one, other = (fit_kernels(data, "gaussian", bandwidth, rng=np.random.default_rng(3)) for _ in range(2))
        np.testing.assert_array_equal(one.bandwidth, other.bandwidth)
        # A median over 500 or 1000 rows; its error is far below a tenth for normal rows.
        full = np.median(pdist(data.values)) if bandwidth == "joint" else one.bandwidth[0]
        np.testing.assert_allclose(one.bandwidth[0], full, rtol=0.1)


def test_equal_rows_in_a_group_count_only_when_nothing_else_is_there(rng: np.random.Generator) -> None:
    values = np.repeat([[0.0, 0.0], [3.0, 4.0]], [90, 10], axis=0)
    np.testing.assert_allclose(fit_kernels(table(values, [2]), "gaussian", "joint", rng=rng).bandwidth, 5.0, rtol=1e-9)
    # Off the shared point each column is at its own distance, 3 and 4, so each counts as 1 and the rows as sqrt(2).
    np.testing.assert_allclose(fit_kernels(table(values, [2]), rng=rng).bandwidth, np.sqrt(2), rtol=1e-9)


@pytest.mark.parametrize(
    ("bandwidth", "message"),
    [
        (0.0, "positive"),
        (-1, "positive"),
        (np.nan, "positive"),
        (np.inf, "positive"),
        ([1.0, 0.0, 1.0], "positive"),
        ([1.0, 2.0], "one number per feature"),
        (np.ones((3, 1)), "one number per feature"),
        ("medain", "'median'"),
        (None, "'median'"),
        (True, "'median'"),
        ([], "'median'"),
        ("2", "'median'"),
    ],
)
@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_bad_bandwidths(kernel: str, bandwidth: object, message: str, rng: np.random.Generator) -> None:
    with pytest.raises(InputError, match=message):
        fit_kernels(table(np.ones((4, 3))), kernel, bandwidth, rng=rng)  # type: ignore[arg-type]


def test_numbers_and_arrays_are_used_as_they_are(rng: np.random.Generator) -> None:
    data = table(rng.normal(size=(9, 3)))
    for given in (2, np.float32(2.0), np.array(2.0), [2.0, 2.0, 2.0]):
        np.testing.assert_array_equal(fit_kernels(data, "gaussian", given, rng=rng).bandwidth, 2.0)  # type: ignore[arg-type]


# Names and functions


def test_unknown_names_get_a_suggestion(rng: np.random.Generator) -> None:
    with pytest.raises(InputError, match="did you mean 'gaussian'"):
        as_kernel("Gausian")
    with pytest.raises(InputError, match=r"'gaussian', 'laplace'.*; 'gaussian' is the default"):
        as_kernel("xyzzy")
    for wrong in (3, None, Polynomial):
        with pytest.raises(InputError, match="kernel"):
            as_kernel(wrong)  # type: ignore[arg-type]
    assert isinstance(as_kernel("linear"), Linear)


def test_triangle_refuses_groups(rng: np.random.Generator) -> None:
    with pytest.raises(InputError, match="'f1' has several"):
        fit_kernels(table(np.ones((4, 3)), [1, 2]), "triangle", rng=rng)


def test_a_function_serves_numeric_features_one_by_one(rng: np.random.Generator) -> None:
    data = mixed(10, rng)
    kernels = fit_kernels(data, lambda a, b: np.exp(-((a - b) ** 2).sum(axis=-1)), rng=rng)
    named = fit_kernels(data, "gaussian", 1.0, rng=rng)
    for a, b in ((data.values[:5], data.values[5:]), (data.values[:, None], data.values[None])):
        np.testing.assert_allclose(kernels.matched(a, b), named.matched(a, b), rtol=1e-12)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a, b: a - b, r"shape \(100,\)"),
        (lambda a, b: 1.0, r"shape \(100,\)"),
        (lambda a, b: np.full(a.shape[:-1], np.nan), "finite"),
        (lambda a, b: np.full(a.shape[:-1], "x"), "finite"),
    ],
)
def test_a_bad_function_is_named(function: Callable, message: str, rng: np.random.Generator) -> None:
    data = table(rng.normal(size=(10, 2)))
    with pytest.raises(InputError, match=message):
        fit_kernels(data, function, rng=rng)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a, b: (a * np.abs(b)).sum(axis=-1), "must be symmetric"),
        (lambda a, b: np.exp(-np.abs(a - b).sum(axis=-1)) + 1e-4 * a[..., 0], "must be symmetric"),
        (lambda a, b: -np.abs(a - b).sum(axis=-1), "must be positive semi-definite"),
        (lambda a, b: np.tanh((a * b).sum(axis=-1) - 1.0), "must be positive semi-definite"),
        (lambda a, b: (np.abs(a - b) < 1).all(axis=-1), "must be positive semi-definite"),
    ],
)
def test_a_function_that_is_no_kernel_is_refused(function: Callable, message: str, rng: np.random.Generator) -> None:
    with pytest.raises(InputError, match=f"kernel: the function {message}.*feature 'f0'"):
        fit_kernels(mixed(100, rng), function, rng=rng)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: (a * b).sum(axis=-1),
        lambda a, b: (1 + (a * b).sum(axis=-1)) ** 2,
        lambda a, b: np.abs(a).sum(axis=-1) + np.abs(b).sum(axis=-1) - np.abs(a - b).sum(axis=-1),
        lambda a, b: np.zeros(a.shape[:-1]),
        lambda a, b: (a == b).all(axis=-1),
        lambda a, b: np.exp(-1e-6 * ((a - b) ** 2).sum(axis=-1)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_kernels_with_zero_eigenvalues_are_no_less_kernels(
    function: Callable, dtype: type, rng: np.random.Generator
) -> None:
    data = mixed(100, rng)
    values = data.values.astype(dtype)
    found = fit_kernels(replace(data, values=values), function, rng=rng).matched(values[:50], values[50:])
    np.testing.assert_allclose(found[:, 0], function(values[:50, :1], values[50:, :1]), rtol=1e-5)


def test_only_categories(rng: np.random.Generator) -> None:
    data = table(rng.integers(3, size=(20, 2)).astype(float), None, [0, 1])
    for name in KERNELS:
        for bandwidth in ("median", "joint", 2.0):
            kernels: FeatureKernels = fit_kernels(data, name, bandwidth, rng=rng)
            same = (data.values[:10] == data.values[10:]).astype(float)
            np.testing.assert_array_equal(kernels.matched(data.values[:10], data.values[10:]), same)
