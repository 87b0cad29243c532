"""Draws in one pass over memory agree with the array version; benchmarks/gpu.py tests the same on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from kernsift import Incomplete, compare, relate
from kernsift.data.inputs import as_pair, as_xy
from kernsift.data.tables import stack
from kernsift.estimators.draws.batches import HSICDraws, MMDDraws
from kernsift.estimators.draws.designs import pairs, quadruples
from kernsift.estimators.draws.moments import FeatureDraws, moments_of
from kernsift.execution import fused
from kernsift.execution.arrays import transposed
from kernsift.execution.codes import bincount_rows, search
from kernsift.kernels.fitted import fit_kernels

pytest.importorskip("numba", reason="numba is not installed: pip install 'kernsift[fast]'")

NEVER, ALWAYS = 1 << 60, 0


@pytest.fixture
def worth(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets from how many numbers on draws are made in one pass."""
    return lambda numbers: monkeypatch.setattr(fused, "_WORTH", numbers)


def both(worth: Any, draws: Any, features: slice, some: slice) -> tuple[np.ndarray, np.ndarray]:
    worth(NEVER)
    array = draws.of(features, some)
    worth(ALWAYS)
    return array, draws.of(features, some)


def mmd_draws(x: np.ndarray, y: np.ndarray, count: int, seed: int) -> FeatureDraws:
    rng = np.random.default_rng(seed)
    X, Y = as_pair(x, y)
    kernels = fit_kernels(stack([X, Y]), "gaussian", "median", rng=rng)
    return FeatureDraws(stack([X, Y]), kernels, MMDDraws((*pairs(X.n, count, rng), *pairs(Y.n, count, rng))))


def hsic_draws(x: np.ndarray, y: np.ndarray, count: int, seed: int) -> FeatureDraws:
    rng = np.random.default_rng(seed)
    X, response = as_xy(x, y)
    kernels = [fit_kernels(table, "gaussian", "median", rng=rng) for table in (X, response)]
    return FeatureDraws(X, kernels[0], HSICDraws.at(quadruples(X.n, count, rng), response, kernels[1]))


def values(shape: tuple[int, int], dtype: Any, seed: int) -> np.ndarray:
    """Columns from narrow to far apart, where exp is 0 for nearly all pairs, and with ties."""
    rng = np.random.default_rng(seed)
    x = rng.standard_t(1.2, size=shape)
    x[:, ::3] = np.round(x[:, ::3])
    return (x * np.logspace(-8, 8, shape[1])).astype(dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 4e-15), (np.float32, 2e-6)])
@pytest.mark.parametrize("features", [slice(0, 37), slice(5, 18), slice(36, 37)])
def test_draws_are_those_of_the_array_version(worth: Any, dtype: Any, tolerance: float, features: slice) -> None:
    x, y = values((60, 37), dtype, 1), values((45, 37), dtype, 2)
    for draws in (mmd_draws(x, y, 300, 3), hsic_draws(x, y[:, 0].repeat(2)[:60], 300, 4)):
        array, one_pass = both(worth, draws, features, slice(17, 291))
        assert one_pass.dtype == array.dtype == dtype
        assert one_pass.shape == array.shape
        assert np.abs(array).max() > 0.1
        np.testing.assert_allclose(one_pass, array, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_h_is_exactly_zero_where_it_should_be(worth: Any, dtype: Any) -> None:
    x = np.zeros((40, 9), dtype=dtype)
    x[0] = np.linspace(0.1, 9, 9)  # one row that deviates: of four rows three are always equal
    y = np.zeros((50, 9), dtype=dtype)
    array, one_pass = both(worth, mmd_draws(x, y, 400, 5), slice(0, 9), slice(0, 400))
    assert (array == 0).all()
    assert (one_pass == 0).all()
    response = np.random.default_rng(6).normal(size=40)
    array, one_pass = both(worth, hsic_draws(np.ones((40, 9), dtype=dtype), response, 400, 7), slice(0, 9), slice(0, 9))
    assert (array == 0).all()
    assert (one_pass == 0).all()


@pytest.mark.parametrize(("dtype", "digits"), [(np.float64, 5e-16), (np.float32, 4e-7)])
def test_exp_is_right_to_the_last_digits(worth: Any, dtype: Any, digits: float) -> None:
    # Rows 0 and -t of x, and far away ones of y: h is exp(-t^2 c), everything else is 0.
    t = np.sqrt(np.concatenate([np.geomspace(1e-12, 600 if dtype == np.float64 else 60, 4000), [0.0]]))
    x = np.stack([np.zeros_like(t), -t]).astype(dtype)
    y = np.stack([np.full_like(t, 1e4), np.full_like(t, 3e4)]).astype(dtype)
    X, Y = as_pair(x, y)
    kernels = fit_kernels(stack([X, Y]), "gaussian", 1.0, rng=np.random.default_rng(0))
    one, two = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    worth(ALWAYS)
    h = FeatureDraws(stack([X, Y]), kernels, MMDDraws((one, two, one, two))).of(slice(0, len(t)), slice(0, 1))[0]
    exact = np.exp(-(x[1].astype(float) ** 2))
    # The square is rounded before it is an exponent, and exp has as many times its relative error.
    allowed = digits * (1 + x[1].astype(float) ** 2)
    assert (np.abs(h / exact - 1) <= allowed).all()


def test_sums_are_those_of_the_array_version(worth: Any) -> None:
    draws = mmd_draws(values((200, 11), np.float64, 8), values((150, 11), np.float64, 9), 5000, 10)
    worth(NEVER)
    array = moments_of(draws)
    worth(ALWAYS)
    one_pass = moments_of(draws)
    np.testing.assert_allclose(one_pass.mean, array.mean, rtol=0, atol=1e-14)
    np.testing.assert_allclose(one_pass.squares, array.squares, rtol=1e-11)


@pytest.mark.parametrize("question", [compare, relate])
def test_answers_do_not_depend_on_it(worth: Any, question: Any) -> None:
    rng = np.random.default_rng(11)
    x, y = rng.normal(size=(300, 12)), rng.normal(size=(300, 12))
    y[:, :3] += 0.7
    second = y if question is compare else x[:, 1] + y[:, 0]

    def answer() -> Any:
        return question(x, second, k=5, estimator=Incomplete(r=5), random_state=12)

    worth(NEVER)
    array = answer()
    worth(ALWAYS)
    one_pass = answer()
    assert one_pass.names == array.names
    np.testing.assert_allclose(one_pass.log_pvalues, array.log_pvalues, rtol=1e-9)


@pytest.mark.parametrize("kernel", ["laplace", "imq", "delta"])
def test_other_kernels_and_categories_go_the_other_way(worth: Any, kernel: str) -> None:
    rng = np.random.default_rng(13)
    x, y = rng.integers(4, size=(80, 6)).astype(float), rng.integers(4, size=(80, 6)).astype(float)
    found = []
    for numbers in (NEVER, ALWAYS):
        worth(numbers)
        found.append(compare(x, y, k=2, estimator="incomplete", kernel=kernel, random_state=14))
    assert found[0].names == found[1].names
    np.testing.assert_array_equal(found[0].pvalues, found[1].pvalues)


def test_without_numba_the_array_version_answers(worth: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_for_host", lambda: None)
    worth(ALWAYS)
    draws = mmd_draws(values((30, 4), np.float64, 15), values((30, 4), np.float64, 16), 50, 17)
    assert draws.of(slice(0, 4), slice(0, 50)).shape == (50, 4)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("edges", [1, 2, 95, 385])
def test_counts_are_those_of_a_search(edges: int, dtype: Any) -> None:
    """Also with heavy tails, ties, few values, a constant column, and edges that are infinite or equal."""
    rng = np.random.default_rng(22)
    n = 1300
    table = rng.normal(size=(n, 30)).astype(dtype)
    table[:, 3:6] = rng.standard_cauchy(size=(n, 3)) ** 3
    table[:, 6:9] = np.round(table[:, 6:9], 1)
    table[:, 9], table[:, 10] = table[:, 9] > 0, 2.5
    table[:, 11:13] *= np.array([1e-30, 1e30], dtype=dtype)
    part = table[:, 2:19]
    bounds = np.sort(part[rng.choice(n, edges)].T.astype(float), axis=1)
    bounds[5, edges // 2 :] = np.inf
    bounds[6] = np.inf
    cells, kept = rng.integers(3, size=n), np.sort(rng.choice(n, 200, replace=False))
    joint, codes = fused.host_counts(part, bounds, cells, 3, kept, True) or (None, None)
    expected = search(bounds, transposed(part))
    np.testing.assert_array_equal(codes, expected[:, kept])
    np.testing.assert_array_equal(joint, bincount_rows(expected, edges + 1, cells, 3))


@pytest.mark.parametrize("response", ["number", "class"])
def test_answers_do_not_depend_on_compiled_counts(response: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = values((17_000, 5), np.float64, 23)
    y = x[:, 0] + values((17_000, 1), np.float64, 24)[:, 0]
    found = []
    for numbers in (NEVER, ALWAYS):
        # A table of fewer values is large where the functions are compiled already: the bits must be the same.
        monkeypatch.setattr(fused, "_VALUES", numbers)
        monkeypatch.setattr(fused, "_COMPILED_VALUES", numbers)
        found.append(relate(x, y if response == "number" else y > 0, random_state=0).scores)
    np.testing.assert_array_equal(*found)


_INTERPRETED = """
import contextlib, torch
from kernsift.execution import compiled_triton
torch.cuda.device = lambda device: contextlib.nullcontext()
compiled_triton._DRAWS, compiled_triton._COLUMNS = 16, 8
torch.manual_seed(0)
X, Y = torch.randn(30, 11, dtype=torch.float64), torch.randn(25, 11, dtype=torch.float64)
rows = torch.stack([torch.randint(0, size, (53,)) for size in (30, 30, 25, 25)])
c, pilot = -0.5 - torch.rand(9, dtype=torch.float64), torch.rand(9, dtype=torch.float64)
own = slice(1, 10)
found = compiled_triton.mmd_sums(X[:, own], Y[:, own], rows.int(), c, pilot)
x, x2, y, y2 = (table[one, own] for table, one in zip((X, X, Y, Y), rows))
h = sum(sign * (c * (a - b) ** 2).exp() for sign, a, b in ((1, x, x2), (1, y, y2), (-1, x, y2), (-1, x2, y))) - pilot
torch.testing.assert_close(found[0], h.sum(0))
torch.testing.assert_close(found[1], (h * h).sum(0))
"""


def test_sums_of_draws_on_a_gpu_are_those_of_torch() -> None:
    """Triton interprets its functions without a GPU."""
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("triton", reason="Triton is not installed")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", _INTERPRETED], env=environment, check=True)
