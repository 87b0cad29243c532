"""The same numbers from every array library: NumPy against array-api-strict, and torch where it is installed.

array-api-strict has nothing but what the standard promises, and it has devices that refuse to mix: what runs on its
second device runs on a GPU, as far as the code is concerned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from kernsift import Incomplete, InputError, Multiscale, Result, compare, relate, screen
from kernsift.data.inputs import as_pair, as_table, as_xy
from kernsift.data.tables import stack
from kernsift.estimators.draws import moments as moments_module
from kernsift.estimators.draws.batches import MMDDraws
from kernsift.estimators.draws.moments import FeatureDraws
from kernsift.execution.arrays import accumulator_dtype, dtype_of, namespace, to_numpy
from kernsift.kernels.fitted import fit_kernels
from kernsift.kernels.functions import KERNELS

# Small samples make some estimators warn about their calibration, which is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:estimator=:UserWarning")


class Library(NamedTuple):
    """An array library, as a way into it."""

    name: str
    array: Callable[[np.ndarray], Any]


def strict(device: str) -> Library:
    xp = pytest.importorskip("array_api_strict", reason="array-api-strict is not installed")
    return Library("array_api_strict", lambda values: xp.asarray(values, device=xp.Device(device)))


def torch() -> Library:
    library = pytest.importorskip("torch", reason="torch is not installed")
    return Library("torch", library.tensor)


# A device that is not the host: what is made on the wrong side fails there.
LIBRARIES: dict[str, Callable[[], Library]] = {"strict": lambda: strict("device1"), "torch": torch}


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Library:
    return LIBRARIES[request.param]()


# The estimators that average draws; whoever adds one adds it here.
MMD: dict[str, dict[str, Any]] = {
    "complete": {"estimator": "complete"},
    "complete, one look": {"estimator": "complete", "bandwidth": "median"},
    "cross": {"estimator": "cross"},
    "incomplete": {"estimator": Incomplete(r=2)},
    "independent": {"estimator": Incomplete(design="independent")},
    "linear": {"estimator": "linear"},
    "block": {"estimator": "block"},
}
HSIC = {name: options for name, options in MMD.items() if name != "linear"}
TOLERANCE = {np.float64: 1e-6, np.float32: 1e-3}


def two_samples(dtype: Any = np.float64) -> tuple[np.ndarray, np.ndarray]:
    """Samples of unequal sizes with a constant column, one of few values, and one of few values that differ."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 7)), rng.normal(size=(85, 7))
    Y[:, 2] += 1.0
    for values in (X, Y):
        values[:, 3] = 0.25
        values[:, 4] = np.round(values[:, 4])
        values[:, 5] = np.abs(values[:, 5]) > 2.2
    return X.astype(dtype), Y.astype(dtype)


def agree(found: Result, expected: Result, dtype: Any) -> None:
    """The same scores, the same selection, and what follows from them."""
    rtol = TOLERANCE[dtype]
    assert found.scores.dtype == np.float64
    # A score that is zero but for what cancels is compared with the others.
    atol = rtol * 1e-2 * np.abs(expected.scores).max()
    np.testing.assert_allclose(found.scores, expected.scores, rtol=rtol, atol=atol)
    np.testing.assert_array_equal(found.selected, expected.selected)
    np.testing.assert_allclose(found.pvalues, expected.pvalues, rtol=0, atol=10 * rtol)
    np.testing.assert_allclose(found.effects, expected.effects, rtol=0, atol=10 * rtol)
    assert found.notes == expected.notes
    assert tuple(found.pictures) == tuple(expected.pictures)
    assert found.names == expected.names


@pytest.mark.parametrize(("kernel", "dtype"), [*((kernel, np.float64) for kernel in KERNELS), ("gaussian", np.float32)])
@pytest.mark.parametrize("options", MMD.values(), ids=MMD)
def test_compare(library: Library, options: dict[str, Any], kernel: str, dtype: Any) -> None:
    X, Y = two_samples(dtype)
    settings = {"kernel": kernel, "k": 3, "random_state": 1, **options}
    agree(compare(library.array(X), library.array(Y), **settings), compare(X, Y, **settings), dtype)


@pytest.mark.parametrize(("kernel", "dtype"), [*((kernel, np.float64) for kernel in KERNELS), ("gaussian", np.float32)])
@pytest.mark.parametrize("options", HSIC.values(), ids=HSIC)
def test_relate(library: Library, options: dict[str, Any], kernel: str, dtype: Any) -> None:
    X, _ = two_samples(dtype)
    y = X[:, 2] ** 2 + X[:, 0]
    settings = {"kernel": kernel, "k": 3, "random_state": 1, **options}
    agree(relate(library.array(X), library.array(y), **settings), relate(X, y, **settings), dtype)


@pytest.mark.parametrize("kernel", ["gaussian", "polynomial", "delta"])
@pytest.mark.parametrize("options", MMD.values(), ids=MMD)
def test_groups(library: Library, options: dict[str, Any], kernel: str) -> None:
    X, Y = two_samples()
    groups = {"pair": [1, 2], "rest": [4, 6, 5]}
    settings = {"kernel": kernel, "groups": groups, "k": 2, "random_state": 1, **options}
    agree(compare(library.array(X), library.array(Y), **settings), compare(X, Y, **settings), np.float64)
    if options["estimator"] != "linear":
        y = np.stack([X[:, 2] + X[:, 1], X[:, 0]], axis=1)
        agree(relate(library.array(X), library.array(y), **settings), relate(X, y, **settings), np.float64)


@pytest.mark.parametrize("options", HSIC.values(), ids=HSIC)
@pytest.mark.parametrize("kind", ["labels", "truth values", "two columns of labels"])
def test_categorical_response(library: Library, options: dict[str, Any], kind: str) -> None:
    X, _ = two_samples()
    codes = np.digitize(X[:, 2], [-0.5, 0.7])
    y = {"labels": codes, "truth values": codes > 1, "two columns of labels": np.stack([codes, codes[::-1]], axis=1)}
    settings = {
        "k": 3,
        "random_state": 1,
        "response": "auto" if kind == "truth values" else "category",
        **options,
    }
    agree(relate(library.array(X), library.array(y[kind]), **settings), relate(X, y[kind], **settings), np.float64)


@pytest.mark.parametrize("kernel", ["gaussian", "linear", "polynomial", "laplace"])
@pytest.mark.parametrize("options", MMD.values(), ids=MMD)
def test_screen(library: Library, options: dict[str, Any], kernel: str) -> None:
    X, Y = two_samples()
    rng = np.random.default_rng(2)
    candidates = {"good": rng.permutation(X)[:50], "odd": Y, "other": X + 0.3}
    settings = {"kernel": kernel, "k": 2, "random_state": 1, **options}
    found = screen(library.array(X), {name: library.array(data) for name, data in candidates.items()}, **settings)
    agree(found, screen(X, candidates, **settings), np.float64)


@pytest.mark.parametrize("bandwidth", ["joint", 0.7, [1.0, 2.0, 0.5, 1.0, 3.0, 1.0, 1.0]])
def test_bandwidths(library: Library, bandwidth: Any) -> None:
    X, Y = two_samples()
    settings = {"bandwidth": bandwidth, "estimator": "incomplete", "k": 3, "random_state": 1}
    agree(compare(library.array(X), library.array(Y), **settings), compare(X, Y, **settings), np.float64)


@pytest.mark.parametrize("options", MMD.values(), ids=MMD)
def test_many_draws(library: Library, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    # The way of draws that are not kept: moments batch by batch, correlations from draws made again.
    monkeypatch.setattr(moments_module, "_KEPT", 0)
    monkeypatch.setattr(moments_module, "LEARNING", 20)
    monkeypatch.setattr(moments_module, "batch_numbers", lambda like: 100)
    X, Y = two_samples()
    for test in ("exact", Multiscale(replicates=100)):
        settings: dict[str, Any] = {"k": 3, "random_state": 1, "test": test, **options}
        agree(compare(library.array(X), library.array(Y), **settings), compare(X, Y, **settings), np.float64)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("options", [{}, {"k": 2}, {"estimator": "cross"}, {"bandwidth": "median"}], ids=str)
def test_long_columns(library: Library, options: dict[str, Any], dtype: Any) -> None:
    # Points of more than 16,384 rows come from a sample, and columns with common values have points of their own.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 5))
    X[:, 1], X[:, 2] = np.round(X[:, 1]), np.where(rng.random(len(X)) < 0.9, 0.0, X[:, 2])
    X[:, 3], y = np.round(X[:, 3], 2), X[:, 0] + 20 * rng.normal(size=len(X))
    X, y = X.astype(dtype), y.astype(dtype)
    halves = X[:9_000] + np.array([0, 0, 0.05, 0, 0.1], dtype=dtype), X[9_000:]
    found = compare(*map(library.array, halves), random_state=1, **options)
    agree(found, compare(*halves, random_state=1, **options), dtype)
    found = relate(library.array(X), library.array(y), random_state=1, **options)
    agree(found, relate(X, y, random_state=1, **options), dtype)


def test_resampled_rows(library: Library) -> None:
    X, Y = two_samples()
    test = Multiscale(resampling="rows", replicates=5)
    settings: dict[str, Any] = {"estimator": "incomplete", "test": test, "k": 3, "random_state": 1}
    agree(compare(library.array(X), library.array(Y), **settings), compare(X, Y, **settings), np.float64)


def test_a_kernel_function_gets_the_users_arrays(library: Library) -> None:
    X, Y = two_samples()
    seen = []

    def own(A: Any, B: Any) -> Any:
        seen.append(type(A).__module__.partition(".")[0])
        return 1.0 / (1.0 + namespace(A).sum(namespace(A).abs(A - B), axis=-1))

    settings = {"kernel": own, "estimator": "incomplete", "groups": {"pair": [0, 1]}, "k": 3, "random_state": 1}
    found = compare(library.array(X), library.array(Y), **settings)
    assert set(seen) == {library.name}
    agree(found, compare(X, Y, **settings), np.float64)


def test_values_stay_where_they_are(library: Library) -> None:
    X, Y = (library.array(values) for values in two_samples())
    one, two = as_pair(X, Y)
    kernels = fit_kernels(stack([one, two]), rng=np.random.default_rng(0))
    rows = np.arange(20)
    made = MMDDraws((rows, rows + 1, rows, rows + 1))
    draws = FeatureDraws(stack([one, two]), kernels, made).of(slice(0, 7), slice(0, 20))
    for values in (one.values, stack([one, two]).values, kernels.inverse, draws, one.part(np.array([2, 0]), rows)):
        assert type(values) is type(X)
        assert values.device == X.device


def test_missing_rows_are_dropped(library: Library) -> None:
    X, Y = two_samples()
    X[3, 1] = np.nan
    message = "X: 1 of 60 rows have missing values, in columns 'x1' \\(1\\); fill them in"
    with pytest.raises(InputError, match=message):
        compare(library.array(X), library.array(Y), missing="error")
    settings = {"estimator": "incomplete", "missing": "drop", "k": 3, "random_state": 1}
    agree(compare(library.array(X), library.array(Y), **settings), compare(X, Y, **settings), np.float64)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("int32", np.float64),
        ("int64", np.float64),
        ("uint8", np.float64),
        ("bool", np.float64),
        ("float32", np.float32),
    ],
)
def test_number_types(library: Library, given: str, kept: Any) -> None:
    values = (np.arange(12).reshape(6, 2) % 5).astype(given)
    table = as_table(library.array(values))
    assert dtype_of(table.values) == kept
    np.testing.assert_array_equal(to_numpy(table.values), values.astype(kept))


@pytest.mark.parametrize("given", ["float16", "bfloat16"])
def test_half_precision_becomes_single(given: str) -> None:
    library = pytest.importorskip("torch", reason="torch is not installed")
    values = library.tensor([[0.5, 1.0], [1.5, -2.0], [3.0, 0.25]], dtype=getattr(library, given))
    assert as_table(values).values.dtype == library.float32


def test_a_tensor_with_a_gradient_is_detached() -> None:
    library = pytest.importorskip("torch", reason="torch is not installed")
    X, Y = two_samples()
    settings = {"estimator": "incomplete", "k": 3, "random_state": 1}
    found = compare(library.tensor(X, requires_grad=True), library.tensor(Y, requires_grad=True), **settings)
    agree(found, compare(X, Y, **settings), np.float64)


def test_a_device_without_float64() -> None:
    xp = pytest.importorskip("array_api_strict", reason="array-api-strict is not installed")
    X, Y = two_samples(np.float32)
    device = xp.Device("no_float64")
    one, two = (xp.asarray(values, dtype=xp.float32, device=device) for values in (X, Y))
    assert accumulator_dtype(one) == xp.float32
    whole = xp.asarray(np.arange(8, dtype=np.int32).reshape(4, 2), device=device)
    assert as_table(whole).values.dtype == xp.float32
    for options in MMD.values():
        settings = {"k": 3, "random_state": 1, **options}
        found, expected = compare(one, two, **settings), compare(X, Y, **settings)
        # All of it in float32, which the spectra of the complete estimator feel: a hundredth of a standard deviation.
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-3, atol=0.01)
        np.testing.assert_array_equal(found.selected, expected.selected)


# What is refused -----------------------------------------------------------------------------------------------------


def test_libraries_do_not_mix(library: Library) -> None:
    X, Y = two_samples()
    mixed = library.array(X)
    with pytest.raises(InputError, match=f"^Y: an array of the same library .* X is in {library.name} on .* in NumPy"):
        compare(mixed, Y, estimator="incomplete")
    with pytest.raises(InputError, match=f"^Y: .* X is in NumPy and Y in {library.name} on .*; convert or move"):
        compare(X, library.array(Y), estimator="incomplete")
    with pytest.raises(InputError, match=r"^y: an array of the same library and on the same device as X is needed"):
        as_xy(mixed, X[:, 0])
    with pytest.raises(InputError, match=r"^candidates\['a'\]: .* reference is in .* and candidates\['a'\] in NumPy"):
        screen(mixed, {"a": Y}, estimator="incomplete")


def test_devices_do_not_mix() -> None:
    one, other = strict("CPU_DEVICE"), strict("device1")
    X, Y = two_samples()
    with pytest.raises(InputError, match=r"^Y: .* same device as X .* array_api_strict.Device\('CPU_DEVICE'\) and Y"):
        compare(one.array(X), other.array(Y), estimator="incomplete")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ones((3, 2, 2)), r"X: a table with rows and columns is needed, got .* with shape \(3, 2, 2\); pass a 2-D"),
        (np.ones((3, 2), dtype=complex), "X: column 'x0' has type complex128, but numbers or categories are needed"),
        (np.ones((3, 0)), r"X: at least one column is needed, got a table of shape \(3, 0\)"),
        (np.ones((1, 2)), "X: at least 2 rows are needed, got 1"),
        (np.array([[1.0], [np.inf], [2.0]]), "X: infinite values in 'x0'"),
        (np.array([[1e80], [1.0], [2.0]]), "X: numbers beyond 1e70 in 'x0'"),
    ],
)
def test_what_cannot_be_used_is_said(library: Library, values: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_table(library.array(values))


def test_sparse_tensors_are_refused() -> None:
    library = pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(InputError, match=r"X: a dense tensor is needed, got torch\.sparse_coo; call \.to_dense"):
        as_table(library.eye(3).to_sparse())


# Row designs ---------------------------------------------------------------------------------------------------------

# With many rows in few strata these are counted point by point.
DESIGNS: dict[str, Callable[[int], dict[str, Any]]] = {
    "units": lambda n: {"unit": (np.arange(n) % 15, 15 + np.arange(n) % 15)},
    "units of different sizes": lambda n: {"unit": (np.minimum(np.arange(n) % 20, 14), 15 + np.arange(n) % 15)},
    "units in strata": lambda n: {
        "unit": (np.arange(n) % 15, 15 + np.arange(n) % 15),
        "strata": (np.arange(n) % 15 % 3, np.arange(n) % 15 % 3),
    },
    "strata": lambda n: {"strata": (np.arange(n) % 4,) * 2},
    "pairs": lambda n: {"paired": (np.arange(n),) * 2},
}


@pytest.mark.parametrize(
    ("design", "n"), [*((design, 120) for design in DESIGNS), ("strata", 2_100), ("units", 2_100)], ids=str
)
@pytest.mark.parametrize("k", [None, 2])
def test_designs_agree_with_numpy(library: Library, design: str, n: int, k: int | None) -> None:
    rng = np.random.default_rng(n)
    X, Y = rng.normal(size=(n, 5)), rng.normal(size=(n, 5))
    Y[:, 1] += 0.5
    X[:, 3], Y[:, 3] = np.round(X[:, 3]), np.round(Y[:, 3])
    options = {**DESIGNS[design](n), "k": k, "random_state": 0}
    here = compare(X, Y, **options)
    there = compare(library.array(X), library.array(Y), **options)
    assert there.scores == pytest.approx(here.scores, abs=1e-8)
    assert there.pvalues == pytest.approx(here.pvalues, abs=1e-8)
    assert there.intervals == pytest.approx(here.intervals, abs=1e-6)
