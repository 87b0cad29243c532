"""Low-rank factors: against dense centred Gram matrices, for every kind of feature."""

import numpy as np
import pytest

from kernsift.factors import fit_factors, fit_looks
from kernsift.kernels import KERNELS, fit_kernels
from kernsift.tables import as_table

RNG = np.random.default_rng(2)
N = 150
COLUMNS = {
    "normal": RNG.normal(size=N),
    "heavy": RNG.standard_t(2, size=N),
    "counts": RNG.poisson(1, N).astype(float),
    "binary": RNG.integers(0, 2, N).astype(float),
    "constant": np.full(N, 3.0),
    "huge": RNG.normal(size=N) * 1e40,
}


def frame(**extra):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame({**COLUMNS, **extra})


def dense(table, kernels, feature):
    own = slice(table.offsets[feature], table.offsets[feature + 1])
    values = table.values[:, own]
    gram = kernels.select(np.array([feature])).matched(values[:, None, :], values[None, :, :])[..., 0]
    gram = gram - gram.mean(axis=0)
    return gram - gram.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("name", ["gaussian", "imq", "linear", "polynomial"])
def test_smooth_kernels_are_reproduced(name):
    table = as_table(frame().drop(columns="huge") if name in ("linear", "polynomial") else frame())
    kernels = fit_kernels(table, name, rng=np.random.default_rng(0))
    factors = fit_factors(table, kernels, rng=np.random.default_rng(0))
    for feature in range(table.d):
        gram = dense(table, kernels, feature)
        [factor] = factors.of(np.array([feature]))
        # Measured in the norm that enters the statistic; an outlier of a heavy tail may stand for itself alone.
        error = np.linalg.norm(factor.T @ factor - gram)
        assert error <= (0.02 if table.names[feature] == "heavy" else 1e-3) * np.linalg.norm(gram) + 1e-9


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_gives_a_positive_kernel_below_the_true_one(name):
    """A Nystroem factor never exceeds the kernel it stands for: K - F'F stays positive semi-definite."""
    table = as_table(frame().drop(columns="huge"))
    kernels = fit_kernels(table, name, rng=np.random.default_rng(0))
    factors = fit_factors(table, kernels, rng=np.random.default_rng(0))
    for feature in range(table.d):
        gram = dense(table, kernels, feature)
        [factor] = factors.of(np.array([feature]))
        rest = np.linalg.eigvalsh(gram - factor.T @ factor)
        assert rest[0] >= -1e-6 * np.abs(gram).max() - 1e-12
        assert np.isfinite(factor).all()


def test_rows_are_orthogonal_leading_first_and_centred():
    table = as_table(frame())
    kernels = fit_kernels(table, rng=np.random.default_rng(0))
    for flat in (False, True):
        factor = fit_factors(table, kernels, flat=flat, rng=np.random.default_rng(0)).of(np.arange(4))
        small = factor @ np.swapaxes(factor, 1, 2)
        size = np.diagonal(small, axis1=1, axis2=2)
        assert (np.diff(size, axis=1) <= 1e-9).all()
        assert np.abs(small - np.apply_along_axis(np.diag, 1, size)).max() < 1e-6 * size.max()
        assert np.abs(factor.sum(axis=2)).max() < 1e-8


def test_flat_factors_are_the_square_root_of_the_gram_matrix():
    table = as_table(frame())
    kernels = fit_kernels(table, rng=np.random.default_rng(0))
    [plain] = fit_factors(table, kernels, rng=np.random.default_rng(0)).of(np.array([0]))
    [root] = fit_factors(table, kernels, flat=True, rng=np.random.default_rng(0)).of(np.array([0]))
    half = root.T @ root
    assert half @ half == pytest.approx(plain.T @ plain, abs=1e-5)


def test_groups_and_categories():
    table = as_table(
        frame(colour=np.array(["red", "blue", "green"])[RNG.integers(0, 3, N)]), groups={"pair": ["normal", "counts"]}
    )
    kernels = fit_kernels(table, rng=np.random.default_rng(0))
    factors = fit_factors(table, kernels, rng=np.random.default_rng(0))
    seen = np.sort(np.concatenate(list(factors.chunks(np.arange(table.d)))))
    assert seen.tolist() == list(range(table.d))
    for name in ("pair", "colour"):
        feature = table.names.index(name)
        [factor] = factors.of(np.array([feature]))
        assert factor.T @ factor == pytest.approx(dense(table, kernels, feature), abs=1e-3)


def test_single_columns_do_not_depend_on_the_order_of_rows():
    values = RNG.normal(size=(400, 3))
    order = RNG.permutation(400)
    results = []
    for rows in (np.arange(400), order):
        table = as_table(values[rows])
        kernels = fit_kernels(table, rng=np.random.default_rng(0))
        results.append([f.of(np.arange(3)) for f in fit_looks(table, kernels, True, rng=np.random.default_rng(0))])
    for one, two in zip(*results, strict=True):
        gram_one = np.swapaxes(one[:, :, order], 1, 2) @ one[:, :, order]
        assert np.swapaxes(two, 1, 2) @ two == pytest.approx(gram_one, abs=1e-8)


def test_memory_is_linear_in_rows():
    import tracemalloc

    n = 30_000
    table = as_table(np.random.default_rng(0).normal(size=(n, 3)))
    kernels = fit_kernels(table, rng=np.random.default_rng(0))
    tracemalloc.start()
    for look in fit_looks(table, kernels, True, rng=np.random.default_rng(0)):
        for chunk in look.chunks(np.arange(3)):
            look.of(chunk)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6 < n * n * 8 / 30
