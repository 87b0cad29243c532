"""MMD and HSIC estimators against enumeration, exact null variances, and the law of their designs."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, permutations, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from by_hand import table
from scipy import stats

from kernsift import compare
from kernsift.data.tables import Table, stack
from kernsift.estimators import block, block_sizes, incomplete, linear, ustatistic
from kernsift.estimators import feature_blocks as blocks_module
from kernsift.estimators.block import block_hsic, block_mmd
from kernsift.estimators.cross import cross_hsic, cross_mmd
from kernsift.estimators.draws import batches as draws_module
from kernsift.estimators.draws import designs
from kernsift.estimators.draws import moments as moments_module
from kernsift.estimators.draws.batches import LEARNING, HSICDraws, MMDDraws, OwnHSICDraws, OwnMMDDraws
from kernsift.estimators.draws.moments import DrawCovariance, FeatureDraws
from kernsift.estimators.effects import kernel_correlations as effects
from kernsift.estimators.incomplete import incomplete_hsic, incomplete_mmd
from kernsift.estimators.linear import linear_mmd
from kernsift.estimators.null_laws.student import RescaledCovariance
from kernsift.estimators.scores import DiagonalCovariance, Scores
from kernsift.estimators.ustatistic import hsic_null_ratio, hsic_ustat, mmd_null_ratio, mmd_ustat
from kernsift.exceptions import InputError
from kernsift.execution.parallel import parallel_map
from kernsift.execution.threads import thread_limit
from kernsift.kernels.fitted import FeatureKernels, fit_kernels
from kernsift.kernels.functions import KERNELS

MMD = {
    "incomplete": incomplete_mmd,
    "independent": lambda *a, **k: incomplete_mmd(*a, design="independent", **k),
    "linear": linear_mmd,
    "block": block_mmd,
}
HSIC = {
    "incomplete": incomplete_hsic,
    "independent": lambda *a, **k: incomplete_hsic(*a, design="independent", **k),
    "block": block_hsic,
}
# A normal variable exceeds this once in a thousand million.
Z = 6.1


pytestmark = pytest.mark.usefixtures("strict_floating_point")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(30)


def mixed(n: int, rng: np.random.Generator, shift: float = 0.0) -> Table:
    """A number, a category, a pair of columns and another number."""
    values = rng.normal(shift, size=(n, 5))
    values[:, 1] = rng.integers(3, size=n)
    return table(values, [1, 1, 2, 1], [1])


def estimated(scores: Scores) -> Scores:
    """Scores with the covariance that was estimated, before it was widened for Student's law."""
    return replace(scores, cov=scores.cov.cov) if isinstance(scores.cov, RescaledCovariance) else scores


def assert_student_tails(scores: Scores, freedom: float) -> None:
    """The normal tail of each score is that of Student's law at the score in its estimated standard deviations."""
    sd, wide = np.sqrt(estimated(scores).cov.diagonal()), np.sqrt(scores.cov.diagonal())
    varies = sd > 0
    with np.errstate(all="ignore"):
        tails = stats.t.sf(np.abs(scores.estimate) / sd, freedom)[varies]
    np.testing.assert_allclose(stats.norm.sf(np.abs(scores.estimate)[varies] / wide[varies]), tails, rtol=1e-6)


def numeric(n: int, rng: np.random.Generator, d: int = 3, shift: float = 0.0) -> Table:
    return table(rng.normal(shift, size=(n, d)))


def gram(kernels: FeatureKernels, A: Table, B: Table) -> np.ndarray:
    return kernels.matched(A.values[:, None], B.values[None])


# The definitions, term by term ----------------------------------------------------------------------------------------


def mmd_tuples(n: int, m: int) -> list[tuple[int, int, int, int]]:
    return [(i, i2, j, j2) for i, i2 in permutations(range(n), 2) for j, j2 in permutations(range(m), 2)]


def mmd_terms(X: Table, Y: Table, kernels: FeatureKernels) -> np.ndarray:
    xx, yy, xy = gram(kernels, X, X), gram(kernels, Y, Y), gram(kernels, X, Y)
    return np.array([xx[i, i2] + yy[j, j2] - xy[i, j2] - xy[i2, j] for i, i2, j, j2 in mmd_tuples(X.n, Y.n)])


def hsic_term(K: np.ndarray, L: np.ndarray, rows: tuple[int, ...]) -> Any:
    """The paper's kernel of four rows: 24 permutations."""
    return sum(K[s, t] * (L[s, t] + L[u, v] - 2 * L[s, u]) for s, t, u, v in permutations(rows)) / 24


def hsic_by_enumeration(X: Table, y: Table, kernels: FeatureKernels, response: FeatureKernels) -> np.ndarray:
    K, L = gram(kernels, X, X), gram(response, y, y)[..., 0]
    return np.mean([hsic_term(K, L, rows) for rows in combinations(range(X.n), 4)], axis=0)


# Numbers of size 1 to 1e3 (polynomial) are added and cancel: about 1e-16 * 1e3 * terms.
CLOSE = {"rtol": 1e-9, "atol": 1e-11}


@pytest.mark.parametrize("name", [*KERNELS, "function"])
def test_complete_statistics_are_the_mean_over_all_tuples(name: str, rng: np.random.Generator) -> None:
    make = numeric if name == "triangle" else mixed
    kernel: Any = (lambda a, b: 1 / (1 + np.abs(a - b).sum(axis=-1))) if name == "function" else name
    X, Y = make(5, rng), make(7, rng, shift=0.5)
    kernels = fit_kernels(stack([X, Y]), kernel, 1.3, rng=rng)
    np.testing.assert_allclose(mmd_ustat(X, Y, kernels), mmd_terms(X, Y, kernels).mean(axis=0), **CLOSE)
    for y in (
        numeric(5, rng, 1),
        table(rng.normal(size=(5, 2)), [2]),
        table(np.array([[0.0, 1, 1, 2, 0]]).T, None, [0]),
    ):
        response = fit_kernels(y, "laplace", rng=rng)
        np.testing.assert_allclose(
            hsic_ustat(X, y, kernels, response), hsic_by_enumeration(X, y, kernels, response), **CLOSE
        )


def test_complete_statistics_at_the_smallest_sizes(rng: np.random.Generator) -> None:
    X, Y, F = numeric(2, rng), numeric(2, rng), numeric(4, rng)
    kernels = fit_kernels(F, rng=rng)
    y = numeric(4, rng, 1)
    response = fit_kernels(y, rng=rng)
    np.testing.assert_allclose(mmd_ustat(X, Y, kernels), mmd_terms(X, Y, kernels).mean(axis=0), **CLOSE)
    np.testing.assert_allclose(
        hsic_ustat(F, y, kernels, response), hsic_by_enumeration(F, y, kernels, response), **CLOSE
    )


# Incomplete: every draw is the kernel at its tuple, and the full design gives the complete statistic ------------------


@pytest.mark.parametrize("design", ["shared", "independent"])
@pytest.mark.parametrize("name", KERNELS)
def test_incomplete_mmd_over_the_full_design(
    name: str, design: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = numeric if name == "triangle" else mixed
    X, Y = make(4, rng), make(3, rng)
    kernels = fit_kernels(stack([X, Y]), name, 1.3, rng=rng)
    tuples = np.array(mmd_tuples(4, 3))
    sides = iter([tuples[:, :2], tuples[:, 2:]])

    def pairs(n: int, size: Any, rng: Any) -> tuple[np.ndarray, np.ndarray]:
        both = next(sides)
        return tuple(np.broadcast_to(b[:, None], size) if np.ndim(size) else b for b in both.T)  # type: ignore[return-value]

    monkeypatch.setattr(incomplete, "pairs", pairs)
    scores = incomplete_mmd(X, Y, kernels, r=len(tuples) / 3, design=design, rng=rng)
    terms = mmd_terms(X, Y, kernels)
    assert_student_tails(scores, freedom=2)  # three rows in the smaller sample
    scores = estimated(scores)
    np.testing.assert_allclose(scores.estimate, mmd_ustat(X, Y, kernels), **CLOSE)
    count = len(tuples)
    factor = 1 / count + 1 / (1 / mmd_null_ratio(4, 3) - 1)
    np.testing.assert_allclose(scores.cov.diagonal(), terms.var(axis=0, ddof=1) * factor, rtol=1e-9, atol=1e-20)
    between = np.cov(terms.T) * factor
    if design == "independent":
        between = np.diag(np.diag(between))
    np.testing.assert_allclose(
        scores.cov.columns(np.arange(X.d)), between, rtol=1e-9, atol=1e-30 + 1e-11 * between.max()
    )
    assert scores.draws == count
    assert scores.names == X.names


@pytest.mark.parametrize("design", ["shared", "independent"])
@pytest.mark.parametrize("name", KERNELS)
def test_incomplete_hsic_over_the_full_design(
    name: str, design: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = (numeric if name == "triangle" else mixed)(5, rng)
    y = table(rng.normal(size=(5, 2)), [2])
    kernels, response = fit_kernels(X, name, 1.3, rng=rng), fit_kernels(y, rng=rng)
    tuples = np.array(list(permutations(range(5), 4)))

    def quadruples(n: int, size: Any, rng: Any) -> np.ndarray:
        return np.broadcast_to(tuples[:, None], (*size, 4)) if np.ndim(size) else tuples

    monkeypatch.setattr(incomplete, "quadruples", quadruples)
    scores = incomplete_hsic(X, y, kernels, response, r=len(tuples) / 5, design=design, rng=rng)
    K, L = gram(kernels, X, X), gram(response, y, y)[..., 0]
    terms = np.array([hsic_term(K, L, tuple(rows)) for rows in tuples])
    np.testing.assert_allclose(scores.estimate, hsic_ustat(X, y, kernels, response), **CLOSE)
    count = len(tuples)
    factor = 1 / count + 1 / (1 / hsic_null_ratio(5) - 1)
    between = np.cov(terms.T) * factor
    if design == "independent":
        between = np.diag(np.diag(between))
    np.testing.assert_allclose(
        scores.cov.columns(np.arange(X.d)), between, rtol=1e-8, atol=1e-30 + 1e-11 * between.max()
    )


def test_draws_are_the_kernel_at_every_tuple(rng: np.random.Generator) -> None:
    X, y = mixed(5, rng), numeric(5, rng, 1)
    kernels, response = fit_kernels(X, rng=rng), fit_kernels(y, rng=rng)
    tuples = np.array(list(permutations(range(5), 4)))
    draws = FeatureDraws(X, kernels, HSICDraws.at(tuples, y, response))
    K, L = gram(kernels, X, X), gram(response, y, y)[..., 0]
    terms = np.array([hsic_term(K, L, tuple(rows)) for rows in tuples])
    np.testing.assert_allclose(draws.of(slice(0, 4), slice(0, len(tuples))), terms, **CLOSE)
    # Any piece of them, on its own.
    np.testing.assert_allclose(draws.of(slice(1, 3), slice(7, 20)), terms[7:20, 1:3], **CLOSE)
    for features in ([2, 0], [0, 2, 1, 3], [3, 2, 1]):
        np.testing.assert_allclose(draws.of(np.array(features), slice(7, 20)), terms[7:20, features], **CLOSE)


def four_kinds_of_draws(rng: np.random.Generator) -> dict[str, FeatureDraws]:
    X, Y, y = mixed(12, rng), mixed(9, rng, shift=0.5), numeric(12, rng, 1)
    kernels, response = fit_kernels(stack([X, Y]), rng=rng), fit_kernels(y, rng=rng)
    tuples = np.array([rng.permutation(12)[:4] for _ in range(7 * X.d)])
    both = np.concatenate([tuples[:, :2], tuples[:, 2:] % 9], axis=1)
    own = both.reshape(7, X.d, 4)
    return {
        "mmd": FeatureDraws(stack([X, Y]), kernels, MMDDraws(tuple(both[:7].T))),
        "own mmd": FeatureDraws(stack([X, Y]), kernels, OwnMMDDraws(tuple(own[..., a] for a in range(4)))),
        "hsic": FeatureDraws(X, kernels, HSICDraws.at(tuples[:7], y, response)),
        "own hsic": FeatureDraws(X, kernels, OwnHSICDraws(tuples.reshape(7, X.d, 4), y, response)),
    }


@pytest.mark.parametrize("kind", ["mmd", "own mmd", "hsic", "own hsic"])
def test_draws_of_a_block_that_is_sent_are_the_same(kind: str, rng: np.random.Generator) -> None:
    """A worker gets the columns of some features and nothing else, and the rows of the draws."""
    draws = four_kinds_of_draws(rng)[kind]
    whole = draws.of(slice(0, 4), slice(0, 7))
    made = pickle.loads(pickle.dumps(draws.draws))
    for features in (np.array([2, 0]), np.array([1]), np.arange(1, 4)):
        there = pickle.loads(pickle.dumps(draws.block(features)))
        assert there.table.d == there.kernels.d == len(features)
        assert there.table.n == draws.table.n and there.table.names == tuple(draws.table.names[j] for j in features)
        np.testing.assert_allclose(made.of(there, slice(2, 7)), whole[2:, features], **CLOSE)


def test_a_block_that_is_read_leaves_the_one_at_work_alone() -> None:
    sizes = [((5, 2), np.dtype(np.float64)), ((4, 1), np.dtype(np.float32))]
    with thread_limit(2):
        pool = blocks_module.BufferPool()
        one, two, three = (pool.spaces(sizes) for _ in range(3))
        assert [(room.shape, room.dtype) for room in one] == sizes
        assert not any(np.shares_memory(a, b) for a in one for b in two)
        # Room is used again, unless it is too small or of another kind.
        assert all(a.ctypes.data == b.ctypes.data for a, b in zip(one, three, strict=True))
        four = pool.spaces([((11, 1), np.dtype(np.float64)), ((1, 3), np.dtype(np.float32))])
        assert four[0].shape == (11, 1) and four[1].shape == (1, 3) and four[1].ctypes.data == two[1].ctypes.data
        assert pool.spaces([((5, 2), np.dtype(np.float32)), ((4, 1), np.dtype(np.float32))])[0].dtype == np.float32


@pytest.mark.parametrize("jobs", [1, 3])
def test_blocks_that_are_worked_on_one_by_one_are_not_taken_ahead(jobs: int) -> None:
    """The buffer of a block is used again for the block after the next."""
    taken: list[int] = []
    items = (taken.append(item) or item for item in range(5))
    with thread_limit(jobs):
        assert list(parallel_map(lambda item: len(taken), items, most=1)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_a_block_fill_lines_of_memory(dtype: Any) -> None:
    """A row that is gathered brings whole lines: begun in the middle of one, half of what comes is for nothing."""
    in_line = 64 // np.dtype(dtype).itemsize
    for numbers in (1, 1000, 10**6):
        (room,) = blocks_module.BufferPool().spaces([((numbers, 1), np.dtype(dtype))])
        assert room.ctypes.data % 64 == 0 and room.shape == (numbers, 1)
        room[:] = 0

    def fits(columns: float) -> int:
        offsets, n = np.arange(101), 10**4
        memory = int((columns * n * np.dtype(dtype).itemsize + 100) / block_sizes._SHARE) + 1
        table = SimpleNamespace(
            n=n, memory=memory, prototype=np.empty((0, 100), dtype), offsets=offsets, by_column=True
        )
        return block_sizes.columns_that_fit([table], 0)  # type: ignore[list-item]

    assert [fits(k) for k in (1, in_line - 1, in_line, in_line + 1)] == [1, in_line - 1, in_line, in_line]
    assert fits(3.9 * in_line) == 3 * in_line


@pytest.mark.parametrize("n", [100, 2**31, 2**31 + 1])
def test_rows_have_numbers_of_few_bytes(n: int) -> None:
    found = draws_module.index_type(SimpleNamespace(n=50), SimpleNamespace(n=n))  # type: ignore[arg-type]
    assert found.itemsize == (4 if n < 2**31 else 8)
    assert n - 1 <= np.iinfo(found).max


def test_sending_pays_for_many_draws_a_row(rng: np.random.Generator) -> None:
    """So many draws of a feature take as long as to send a row; features with draws of their own are never sent."""
    draws, least = four_kinds_of_draws(rng), moments_module._WORTH * 12
    assert draws["hsic"].worth_sending(least) and not draws["hsic"].worth_sending(least - 1)
    assert not draws["own mmd"].worth_sending(10**9) and not draws["own hsic"].worth_sending(10**9)


@pytest.mark.parametrize("design", ["shared", "independent"])
def test_random_designs_are_unbiased_for_the_complete_statistic(design: Any, rng: np.random.Generator) -> None:
    X, Y = mixed(6, rng), mixed(9, rng, shift=1.0)
    kernels = fit_kernels(stack([X, Y]), rng=rng)
    scores = incomplete_mmd(X, Y, kernels, r=5000, design=design, rng=rng)
    # Given the data the draws are independent, with the spread of all the terms.
    error = mmd_terms(X, Y, kernels).std(axis=0) / np.sqrt(5000 * 6)
    assert (np.abs(scores.estimate - mmd_ustat(X, Y, kernels)) < 1e-15 + Z * error).all()

    X = mixed(6, rng)
    y = table(X.values[:, :1] + rng.normal(size=(6, 1)))
    kernels, response = fit_kernels(X, rng=rng), fit_kernels(y, rng=rng)
    scores = incomplete_hsic(X, y, kernels, response, r=5000, design=design, rng=rng)
    K, L = gram(kernels, X, X), gram(response, y, y)[..., 0]
    terms = np.array([hsic_term(K, L, rows) for rows in combinations(range(6), 4)])
    error = terms.std(axis=0) / np.sqrt(5000 * 6)
    assert (np.abs(scores.estimate - hsic_ustat(X, y, kernels, response)) < 1e-15 + Z * error).all()


# Null variances -------------------------------------------------------------------------------------------------------


def test_hsic_null_components_by_enumerating_a_population(rng: np.random.Generator) -> None:
    # x uniform on three points, y on two, independent: all 6^4 quadruples of rows are the population.
    K3 = np.exp(-(np.subtract.outer([0.0, 1.0, 2.7], [0.0, 1.0, 2.7]) ** 2))
    L2 = np.array([[1.0, 0.3], [0.3, 1.0]])
    states = list(product(range(3), range(2)))
    K = np.array([[K3[a[0], b[0]] for b in states] for a in states])
    L = np.array([[L2[a[1], b[1]] for b in states] for a in states])
    h = np.zeros((6,) * 4)
    one, unit = np.ones((6, 6)), np.ones(6)
    for s, t, u, v in permutations("abcd"):
        h += np.einsum(f"{s}{t},{u}{v}->abcd", K * L, one) + np.einsum(f"{s}{t},{u}{v}->abcd", K, L)
        h -= 2 * np.einsum(f"{s}{t},{s}{u},{v}->abcd", K, L, unit)
    h /= 24
    total = h.var()
    assert abs(h.mean()) < 1e-15
    np.testing.assert_allclose(h.mean(axis=(1, 2, 3)), 0, atol=1e-15)
    np.testing.assert_allclose(h.mean(axis=(2, 3)).var(), total / 18, rtol=1e-10)
    np.testing.assert_allclose(h.mean(axis=3).var(), total / 4, rtol=1e-10)


def test_hsic_null_ratio_by_enumerating_all_samples() -> None:
    # Rows have four equally likely states, so the 4^n samples are the whole law of the statistic.
    states = np.array(list(product([0.0, 1.0], [0.0, 1.0])))

    def law(n: int) -> np.ndarray:
        samples = states[np.array(list(product(range(4), repeat=n)))]
        unit = table(np.array([[0.0], [1.0]]))
        kernels = fit_kernels(unit, "laplace", 0.7, rng=np.random.default_rng(0))
        return np.array([hsic_ustat(table(s[:, :1]), table(s[:, 1:]), kernels, kernels)[0] for s in samples])

    assert hsic_null_ratio(4) == 1
    four = law(4)
    # Two quadruples out of five rows share three or four; out of six rows they may share two.
    for n in (5, 6):
        larger = law(n)
        np.testing.assert_allclose(larger.var() / four.var(), hsic_null_ratio(n), rtol=1e-9)
        np.testing.assert_allclose(larger.mean(), 0, atol=1e-14)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 2), (2, 4), (3, 3)])
def test_mmd_null_ratio_by_enumerating_all_samples(n: int, m: int) -> None:
    def law(n: int, m: int) -> np.ndarray:
        samples = np.array(list(product([0.0, 1.0, 3.0], repeat=n + m))).T
        X, Y = table(samples[:n]), table(samples[n:])
        kernels = fit_kernels(stack([X, Y]), "gaussian", 1.7, rng=np.random.default_rng(0))
        return mmd_ustat(X, Y, kernels)

    # Var(h) from one tuple: all pairs different, one row each.
    samples = np.array(list(product([0.0, 1.0, 3.0], repeat=4)))
    k = lambda a, b: np.exp(-(((a - b) / 1.7) ** 2))  # noqa: E731
    x, x2, y, y2 = samples.T
    h = k(x, x2) + k(y, y2) - k(x, y2) - k(x2, y)
    np.testing.assert_allclose(law(n, m).var() / h.var(), mmd_null_ratio(n, m), rtol=1e-9)


def assert_variance(scores: Scores, ratio: float) -> None:
    """Features are replicates: the spread of their estimates against the mean of their claimed variances."""
    estimate, claimed = scores.estimate, scores.cov.diagonal()
    count = len(estimate)
    squares = estimate**2  # the null mean is 0
    gap = squares.mean() - claimed.mean()
    error = np.hypot(squares.std(), claimed.std()) / np.sqrt(count)
    assert abs(gap) < Z * error
    # And the test could tell: without the part of the complete statistic the claim would be rejected.
    plain = 1 / scores.draws
    bare = claimed.mean() * plain / (plain + ratio / (1 - ratio))
    assert squares.mean() - bare > Z * error


def test_incomplete_mmd_variance_by_simulation(rng: np.random.Generator) -> None:
    X, Y = numeric(8, rng, d=20_000), numeric(12, rng, d=20_000)
    kernels = fit_kernels(stack([X, Y]), "gaussian", 1.0, rng=rng)
    scores = incomplete_mmd(X, Y, kernels, r=5, design="independent", rng=rng)
    assert_variance(estimated(scores), mmd_null_ratio(8, 12))


def test_incomplete_hsic_variance_by_simulation(rng: np.random.Generator) -> None:
    # One response for all features, so several of them, each with its own features, make the replicates.
    estimate, claimed = [], []
    for _ in range(200):
        X, y = numeric(9, rng, d=100), numeric(9, rng, d=1)
        kernels, response = (fit_kernels(t, "gaussian", 1.0, rng=rng) for t in (X, y))
        scores = incomplete_hsic(X, y, kernels, response, r=5, design="independent", rng=rng)
        estimate.append((scores.estimate**2).mean())
        claimed.append(scores.cov.diagonal().mean())
    ratio = hsic_null_ratio(9)
    gaps = np.array(estimate) - np.array(claimed)
    assert abs(gaps.mean()) < Z * gaps.std() / np.sqrt(len(gaps))
    plain = 1 / scores.draws
    bare = np.array(estimate) - np.array(claimed) * plain / (plain + ratio / (1 - ratio))
    assert bare.mean() > Z * bare.std() / np.sqrt(len(bare))


@pytest.mark.parametrize(("n", "m"), [(30, 30), (30, 47)])
def test_linear_and_block_mmd_variances_by_simulation(n: int, m: int, rng: np.random.Generator) -> None:
    X, Y = numeric(n, rng, d=5000), numeric(m, rng, d=5000)
    kernels = fit_kernels(stack([X, Y]), "gaussian", 1.0, rng=rng)
    for scores in (linear_mmd(X, Y, kernels, rng=rng), block_mmd(X, Y, kernels, rng=rng)):
        gap = scores.estimate**2 - scores.cov.diagonal()
        # The design is shared, but given it the features are independent replicates.
        assert abs(gap.mean()) < Z * gap.std() / np.sqrt(len(gap))


# Linear and block -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "n", "m"),
    [("linear", 4, 60), ("linear", 8, 32), ("linear", 20, 20), ("incomplete", 2, 28), ("incomplete", 6, 6)],
)
def test_few_draws_keep_the_level(estimator: str, n: int, m: int) -> None:
    """Independent features without a difference, 200 in each of 30 pairs of samples, whose design they share."""
    rates = []
    for seed in range(30):
        rng = np.random.default_rng([40, seed])
        X, Y = rng.normal(size=(n, 200)), rng.normal(size=(m, 200))
        result = compare(X, Y, k=None, estimator=estimator, correction=None, random_state=seed)
        rates.append(np.mean(result.pvalues <= 0.05))
    assert np.mean(rates) < 0.055 + 3 * np.std(rates) / np.sqrt(30)


def test_linear_mmd_uses_disjoint_pairs(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = mixed(9, rng), mixed(6, rng, shift=1.0)
    kernels = fit_kernels(stack([X, Y]), rng=rng)
    xx, yy, xy = gram(kernels, X, X), gram(kernels, Y, Y), gram(kernels, X, Y)
    scores = linear_mmd(X, Y, kernels, rng=np.random.default_rng(1))
    assert_student_tails(scores, freedom=2)
    scores = estimated(scores)
    again = np.random.default_rng(1)
    i, j = again.permutation(9)[:6].reshape(3, 2), again.permutation(6).reshape(3, 2)
    terms = np.array([xx[a, b] + yy[c, e] - xy[a, e] - xy[b, c] for (a, b), (c, e) in zip(i, j, strict=True)])
    np.testing.assert_allclose(scores.estimate, terms.mean(axis=0), **CLOSE)
    np.testing.assert_allclose(scores.cov.diagonal(), terms.var(axis=0, ddof=1) / 3, rtol=1e-9)


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("name", ["gaussian", "laplace", "imq", "linear", "polynomial", "delta"])
def test_blocks_hold_the_complete_statistic(
    name: str, small: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not small:
        monkeypatch.setattr(block, "_SMALL", 0)  # the way large blocks go
    X, Y = mixed(13, rng), mixed(22, rng, shift=1.0)
    kernels = fit_kernels(stack([X, Y]), name, rng=rng)
    # The longer sample, first or second, is cut into three blocks of seven where the other has three of four.
    for A, B in ((X, Y), (Y, X)):
        scores = block_mmd(A, B, kernels, block_size=4, rng=np.random.default_rng(1))
        again = np.random.default_rng(1)
        i, j = (again.permutation(t.n)[: 3 * (t.n // 3)].reshape(3, -1) for t in (A, B))
        parts = np.array([mmd_terms(A.take(a), B.take(b), kernels).mean(axis=0) for a, b in zip(i, j, strict=True)])
        np.testing.assert_allclose(scores.estimate, parts.mean(axis=0), **CLOSE)
        np.testing.assert_allclose(scores.cov.columns(np.arange(4)), np.cov(parts.T) / 3, rtol=1e-7, atol=1e-12)

    for size in (4, 5, 6):
        y = table(rng.normal(size=(13, 2)), [2])
        response = fit_kernels(y, name, rng=rng)
        scores = block_hsic(X, y, kernels, response, block_size=size, rng=np.random.default_rng(2))
        rows = np.random.default_rng(2).permutation(13)[: 13 // size * size].reshape(-1, size)
        parts = np.array([hsic_by_enumeration(X.take(r), y.take(r), kernels, response) for r in rows])
        np.testing.assert_allclose(scores.estimate, parts.mean(axis=0), **CLOSE)
        expected = np.cov(parts.T) / len(parts)
        np.testing.assert_allclose(scores.cov.columns(np.arange(4)), expected, rtol=1e-7, atol=1e-12)


def test_default_block_sizes(rng: np.random.Generator) -> None:
    for n, m, draws in [(100, 150, 10), (5, 9, 2), (4, 4, 2)]:
        X, Y = numeric(n, rng), numeric(m, rng)
        assert block_mmd(X, Y, fit_kernels(X, rng=rng), rng=rng).draws == draws
    for n, draws in [(50, 10), (52, 10), (8, 2), (9, 2), (10, 2)]:
        X, y = numeric(n, rng), numeric(n, rng, 1)
        scores = block_hsic(X, y, fit_kernels(X, rng=rng), fit_kernels(y, rng=rng), rng=rng)
        assert scores.draws == draws


# Every estimator ------------------------------------------------------------------------------------------------------


def two_samples(rng: np.random.Generator, n: int = 40, m: int = 55, **fit: Any) -> tuple[Table, Table, FeatureKernels]:
    X, Y = mixed(n, rng), mixed(m, rng, shift=0.5)
    return X, Y, fit_kernels(stack([X, Y]), **fit, rng=rng)


def features_and_response(
    rng: np.random.Generator, n: int = 40, **fit: Any
) -> tuple[Table, Table, FeatureKernels, FeatureKernels]:
    X = mixed(n, rng)
    y = table(X.values[:, :1] + rng.normal(size=(n, 1)))
    return X, y, fit_kernels(X, **fit, rng=rng), fit_kernels(y, rng=rng)


def cases(rng: np.random.Generator, **fit: Any) -> list[tuple[Callable[..., Scores], tuple[Any, ...]]]:
    two, joint = two_samples(rng, **fit), features_and_response(rng, **fit)
    return [(f, two) for f in MMD.values()] + [(f, joint) for f in HSIC.values()]  # type: ignore[misc]


def test_a_seed_fixes_every_bit(rng: np.random.Generator) -> None:
    for estimator, data in cases(rng):
        one, same, other = (estimator(*data, rng=np.random.default_rng(s)) for s in (1, 1, 2))
        np.testing.assert_array_equal(one.estimate, same.estimate)
        np.testing.assert_array_equal(one.cov.diagonal(), same.cov.diagonal())
        assert (one.estimate != other.estimate).any()
        assert one.names == data[0].names
        assert len(one) == 4


def test_the_size_of_batches_changes_nothing(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    every = cases(rng)
    two, joint = two_samples(rng), features_and_response(rng)
    whole = [estimator(*data, rng=np.random.default_rng(1)).estimate for estimator, data in every]
    complete = [mmd_ustat(*two), hsic_ustat(*joint)]
    for chunk in (1, 37, 200):
        monkeypatch.setattr(ustatistic, "CHUNK", chunk)
        monkeypatch.setattr(moments_module, "batch_numbers", lambda like, chunk=chunk: chunk)
        monkeypatch.setattr(moments_module, "_COLUMNS", chunk)
        for (estimator, data), expected in zip(every, whole, strict=True):
            found = estimator(*data, rng=np.random.default_rng(1)).estimate
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)
        # Sums of a thousand values of size one, in another order.
        np.testing.assert_allclose(mmd_ustat(*two), complete[0], rtol=0, atol=1e-13)
        np.testing.assert_allclose(hsic_ustat(*joint), complete[1], rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("bandwidth", ["median", "joint", 0.37])
def test_constant_columns_score_exactly_zero(name: str, bandwidth: Any, rng: np.random.Generator) -> None:
    values = rng.normal(size=(41, 6))
    values[:, :5] = [0.1, 1 / 3, np.pi, 1.7, 1.0]
    widths = None if name == "triangle" else [1, 1, 2, 1, 1]
    X = table(values, widths, [3])
    Y = table(np.concatenate([values, values[:13]]), widths, [3])
    y = table(rng.normal(size=(41, 1)))
    kernels, response = fit_kernels(stack([X, Y]), name, bandwidth, rng=rng), fit_kernels(y, rng=rng)
    constant = X.constant
    assert constant.sum() >= 4
    found = [estimator(X, Y, kernels, rng=rng) for estimator in MMD.values()]
    found += [estimator(X, y, kernels, response, rng=rng) for estimator in HSIC.values()]
    for scores in found:
        assert (scores.estimate[constant] == 0).all()
        assert (scores.cov.diagonal()[constant] == 0).all()
        # No two rows of a continuous column are equal, so there delta sees nothing either.
        assert np.isfinite(scores.estimate).all()
        assert name == "delta" or (scores.cov.diagonal()[~constant] > 0).all()
    for complete in (mmd_ustat(X, Y, kernels), hsic_ustat(X, y, kernels, response)):
        assert (complete[constant] == 0).all()


@pytest.mark.parametrize("name", KERNELS)
def test_one_deviating_row_scores_exactly_zero(name: str, rng: np.random.Generator) -> None:
    # Each term then holds the same kernel values with both signs, so what is left of the sums is rounding.
    values = np.full((40, 3), 0.3)
    values[7] = [1.9, 0.31, -1e3]
    X, Y, y = table(values), table(np.full((50, 3), 0.3)), table(rng.normal(size=(40, 1)))
    kernels, response = fit_kernels(stack([X, Y]), name, 1.1, rng=rng), fit_kernels(y, rng=rng)
    found = [estimator(X, Y, kernels, rng=rng) for estimator in MMD.values()]
    found += [estimator(X, y, kernels, response, rng=rng) for estimator in HSIC.values()]
    for scores in found:
        assert (scores.estimate == 0).all()
        assert (scores.cov.diagonal() == 0).all()
    assert (mmd_ustat(X, Y, kernels) == 0).all()
    assert (hsic_ustat(X, y, kernels, response) == 0).all()


@pytest.mark.parametrize("estimator", HSIC.values(), ids=HSIC)
def test_a_constant_response_scores_exactly_zero(estimator: Callable[..., Scores], rng: np.random.Generator) -> None:
    X, y = mixed(30, rng), table(np.full((30, 1), 0.3))
    for name in ("gaussian", "linear", "polynomial"):
        scores = estimator(X, y, fit_kernels(X, rng=rng), fit_kernels(y, name, 0.7, rng=rng), rng=rng)
        assert (scores.estimate == 0).all()
        assert (scores.cov.diagonal() == 0).all()


def test_float32_tables_give_nearly_the_same_scores(rng: np.random.Generator) -> None:
    for estimator, data in cases(rng):
        tables = [t for t in data if isinstance(t, Table)]
        single = [Table(t.names, t.values.astype(np.float32), t.offsets, t.categorical, t.levels) for t in tables]
        pooled = [stack(single)] if len(data) == 3 else single
        fitted = [fit_kernels(t, rng=rng) for t in pooled]
        scores = estimator(*single, *fitted, rng=np.random.default_rng(1))
        exact = estimator(*data, rng=np.random.default_rng(1))
        assert scores.estimate.dtype == float
        np.testing.assert_allclose(scores.estimate, exact.estimate, rtol=0, atol=1e-5)


def test_blocks_of_float32_tables_are_added_up_in_double(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernel values that are 1 but for some 1e-5: their sum keeps digits that single precision has not."""
    X, Y = numeric(400, rng), numeric(400, rng)
    single = [Table(t.names, t.values.astype(np.float32), t.offsets, t.categorical, t.levels) for t in (X, Y)]
    double = [Table(t.names, t.values.astype(float), t.offsets, t.categorical, t.levels) for t in single]
    for small in (16, 0):  # in one go, and block by block
        monkeypatch.setattr(block, "_SMALL", small)
        found, expected = (
            block_mmd(*pair, fit_kernels(stack(pair), bandwidth=300.0, rng=rng), block_size=200, rng=_seeded()).estimate
            for pair in (single, double)
        )
        # 2e4 values of about 1e-5 with errors of 6e-8 each, at random: about 1e-9.
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-8)


def _seeded() -> np.random.Generator:
    return np.random.default_rng(1)


def centred_trace(X: Table, y: Table, kernels: FeatureKernels, response: FeatureKernels) -> np.ndarray:
    """HSIC of the empirical distribution itself."""
    K, L = gram(kernels, X, X), gram(response, y, y)[..., 0]
    H = np.eye(X.n) - 1 / X.n
    return np.einsum("ijf,ij->f", K, H @ L @ H) / X.n**2


def test_resampled_estimates_are_unbiased_for_the_empirical_distributions(rng: np.random.Generator) -> None:
    # Rows drawn with replacement are a sample from the empirical distributions, whose MMD and HSIC are known.
    for fraction in (0.5, 1.5):
        two, joint = two_samples(rng, 20, 26), features_and_response(rng, 20)
        X, Y, kernels = two
        true = (
            gram(kernels, X, X).mean((0, 1)) + gram(kernels, Y, Y).mean((0, 1)) - 2 * gram(kernels, X, Y).mean((0, 1))
        )
        runs = [(f(*two, rng=rng), true) for f in MMD.values()]
        runs += [(f(*joint, rng=rng), centred_trace(*joint)) for f in HSIC.values()]
        for scores, expected in runs:
            assert scores.resample is not None
            values = np.array([scores.resample(fraction, rng) for _ in range(150)])
            assert values.shape == (150, 4)
            assert (np.abs(values.mean(axis=0) - expected) < Z * values.std(axis=0) / np.sqrt(150)).all()
            one, same = (scores.resample(fraction, np.random.default_rng(5)) for _ in range(2))
            np.testing.assert_array_equal(one, same)
            assert np.isfinite(scores.resample(0.01, rng)).all()


def test_half_the_rows_of_two_blocks_are_one_block(rng: np.random.Generator) -> None:
    """However its rows are ordered, one block of all rows has the complete statistic."""
    X, Y, y = numeric(10, rng), numeric(12, rng), numeric(10, rng, 1)
    kernels, own = fit_kernels(X, rng=rng), fit_kernels(y, rng=rng)
    found = block_mmd(X, Y, kernels, block_size=5, rng=rng).resample(0.5, _seeded())  # type: ignore[misc]
    again = _seeded()
    one, two = X.take(again.integers(10, size=5)), Y.take(again.integers(12, size=6))
    np.testing.assert_allclose(found, mmd_ustat(one, two, kernels), **CLOSE)
    found = block_hsic(X, y, kernels, own, block_size=5, rng=rng).resample(0.5, _seeded())  # type: ignore[misc]
    rows = _seeded().integers(10, size=5)
    np.testing.assert_allclose(found, hsic_ustat(X.take(rows), y.take(rows), kernels, own), **CLOSE)


def test_the_dependence_of_a_feature_on_itself(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Frobenius norm of H K H over n, with H the centring matrix; and how it changes with a row's weight."""
    X = mixed(20, rng)
    kernels = fit_kernels(X, rng=rng)
    K = np.moveaxis(gram(kernels, X, X), -1, 0)

    def by_hand(K: np.ndarray, weights: np.ndarray) -> float:
        H = np.eye(20) - weights
        centred = H @ K @ H.T
        return float(np.sqrt(weights @ centred**2 @ weights))

    even, step = np.full(20, 1 / 20), 1e-6
    for j in range(X.d):
        [(_, rows, found, codes)] = effects._self_dependence(X, kernels, np.array([j]))
        assert found.size == pytest.approx(by_hand(K[j], even), rel=1e-9)
        H = np.eye(20) - 1 / 20
        assert found.trace == pytest.approx(np.trace(H @ K[j] @ H) / 20, rel=1e-9)
        more = [by_hand(K[j], (1 - step) * even + step * row) for row in np.eye(20)]
        slope = (np.log(more) - np.log(by_hand(K[j], even))) / step
        np.testing.assert_allclose(found.influence[0, codes[0]], slope, atol=1e-4)
        # From a factor of the kernel it is the same.
        values, vectors = np.linalg.eigh(H @ K[j] @ H)
        factor = (vectors * np.sqrt(np.maximum(values, 0))).T[None]
        same = effects.SelfDependence.of_factor(factor, np.ones((1, 20)))
        assert same.size == pytest.approx(found.size, rel=1e-9)
        np.testing.assert_allclose(same.influence[0], slope, atol=1e-4)
    # Of a long table evenly spaced rows, from the first to the last; of a short one all rows.
    np.testing.assert_array_equal(rows, np.arange(20))
    monkeypatch.setattr(effects, "_POINT_ROWS", 4)
    [(_, rows, _, _)] = effects._self_dependence(X, kernels, np.array([2]))
    np.testing.assert_array_equal(rows, [0, 6, 13, 19])


def test_effects_are_roots_of_shares_of_the_most_there_can_be(rng: np.random.Generator) -> None:
    """Of T - E T over sqrt(tr K^2 tr L^2) - E T, with E T = tr K tr L / (n - 1) over permutations and centred K, L."""
    X, Y, y = numeric(12, rng), numeric(8, rng, shift=1.0), numeric(12, rng, 1)
    kernels, own = fit_kernels(stack([X, Y]), rng=rng), fit_kernels(y, rng=rng)
    scores = Scores(X.names, np.array([0.02, -0.1, 5.0]), DiagonalCovariance(np.array([0.01, 0.04, 0.09])))
    chosen = np.array([2, 0, 1])

    def most(table: Table, L: np.ndarray, kernels: FeatureKernels) -> np.ndarray:
        H = np.eye(table.n) - 1 / table.n
        K, L = H @ np.moveaxis(gram(kernels, table, table), -1, 0) @ H, H @ L @ H
        norms = np.linalg.norm(K, axis=(1, 2)) * np.linalg.norm(L)
        return (norms - np.trace(K, axis1=1, axis2=2) * np.trace(L) / (table.n - 1)) / table.n**2

    def with_scales(table: Table, scales: effects.EffectScales) -> Scores:
        none = OwnMMDDraws((np.empty((0, 3), dtype=int),) * 4)
        return effects.with_effects(scores, FeatureDraws(table, kernels, none), scales)

    label = np.repeat([1.0, 0.0], [12, 8])
    # HSIC with the label is MMD^2 times the squared product of the shares.
    between = most(stack([X, Y]), np.outer(label, label), kernels) / (0.6 * 0.4) ** 2
    for found, whole in (
        (with_scales(stack([X, Y]), effects.MMDScales(12, 20)), between),
        (with_scales(X, effects.HSICScales(y, own)), most(X, gram(own, y, y)[..., 0], kernels)),
    ):
        sizes = found.effects(chosen)  # type: ignore[misc]
        np.testing.assert_allclose(sizes.point, np.sqrt(np.clip(scores.estimate / whole, 0, 1))[chosen], rtol=1e-9)
        assert sizes.point[0] == 1 and 0 < sizes.point[1] < 1 and sizes.point[2] == 0
        half = 0.5 * whole[chosen]
        np.testing.assert_allclose(sizes.at(half), np.sqrt(0.5), rtol=1e-9)
        assert sizes.spread is None


def effect_by_quadrature(shift: float, bandwidth: float) -> float:
    """The effect between N(0, 1) and N(shift, 1) with the Gaussian kernel, from sums over a fine grid."""
    t = np.linspace(-8.0, 8.0 + shift, 1001)
    one, two = (density / density.sum() for density in (np.exp(-(t**2) / 2), np.exp(-((t - shift) ** 2) / 2)))
    both = (one + two) / 2
    K = np.exp(-(((t[:, None] - t) / bandwidth) ** 2))
    H = np.eye(len(t)) - both
    return float(np.sqrt(0.25 * (one - two) @ K @ (one - two) / np.sqrt(both @ (H @ K @ H.T) ** 2 @ both)))


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.8, 2.0])
@pytest.mark.parametrize(
    ("estimator", "rows", "replicates"), [("linear", 400, 300), ("linear", 20_000, 120), ("block", 2_500, 150)]
)
def test_intervals_cover_the_effect(estimator: str, rows: int, replicates: int, shift: float) -> None:
    truth, covered, seen = effect_by_quadrature(shift, 1.5), 0, []
    for seed in range(replicates):
        rng = np.random.default_rng([77, seed])
        X, Y = rng.normal(size=(rows, 1)), rng.normal(shift, size=(rows, 1))
        result = compare(X, Y, k=None, estimator=estimator, bandwidth=1.5, random_state=seed)
        [[low, high]] = result.intervals
        covered += low <= truth <= high
        seen.append(result.effects[0])
    assert np.mean(seen) == pytest.approx(truth, abs=0.01)
    # Three standard errors of a share of 0.95, and one percent for the normal law.
    assert covered / replicates > 0.94 - 3 * np.sqrt(0.05 * 0.95 / replicates)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_influence_of_the_scale_is_part_of_the_spread(
    shift: float, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """h - T (log D)' draw by draw, with the derivative of log D by a small change of each row's weight."""
    monkeypatch.setattr(effects, "_MANY_DRAWS", 23)
    X, Y = numeric(50, rng, 1), numeric(46, rng, 1, shift=shift)
    table_of_both = stack([X, Y])
    kernels = fit_kernels(table_of_both, rng=rng)
    scores = block.block_mmd(X, Y, kernels, block_size=2, rng=np.random.default_rng(5))
    again = np.random.default_rng(5)
    count = 23
    own = designs.blocks(50, 2, again)[:count], 50 + designs.blocks(46, 2, again)[:count]
    K = gram(kernels, table_of_both, table_of_both)[..., 0]

    def log_scale(weights: np.ndarray) -> float:
        H = np.eye(96) - weights
        return 0.5 * float(np.log(weights @ (H @ K @ H.T) ** 2 @ weights))

    even, step = np.full(96, 1 / 96), 1e-6
    slope = np.array([log_scale((1 - step) * even + step * row) - log_scale(even) for row in np.eye(96)]) / step / 96
    slope -= np.where(np.arange(96) < 50, slope[:50].mean(), slope[50:].mean())
    (i, i2), (j, j2) = (part.T for part in own)
    h = K[i, i2] + K[j, j2] - (K[i, j] + K[i, j2] + K[i2, j] + K[i2, j2]) / 2
    mean = h.mean()
    total = h / count - mean * (slope[i] + slope[i2] + slope[j] + slope[j2])
    unused = np.setdiff1d(np.arange(96), np.concatenate([part.ravel() for part in own]))
    variance = total.var(ddof=1) * count + mean**2 * (slope[unused] ** 2).sum()
    spread = scores.effects(np.array([0])).spread  # type: ignore[misc]
    assert spread == pytest.approx(np.sqrt(variance) * stats.t.ppf(0.975, 22) / stats.norm.ppf(0.975), rel=1e-5)


def test_resamples_have_no_fewer_rows_than_the_estimator_needs(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y, y = numeric(40, rng), numeric(40, rng), numeric(40, rng, 1)
    kernels, own = fit_kernels(X, rng=rng), fit_kernels(y, rng=rng)
    drawn: list[int] = []

    def recorded(n: int, *rest: Any) -> np.ndarray:
        rows = bootstrap(n, *rest)
        drawn.append(len(rows))
        return rows

    bootstrap = ustatistic.bootstrap_rows
    monkeypatch.setattr(ustatistic, "bootstrap_rows", recorded)
    # A block of the shorter sample has 6 rows of 40 by default, and HSIC blocks have 5.
    least = {"incomplete": 2, "independent": 2, "linear": 4, "block": 6}
    for name, estimator in MMD.items():
        resample: Any = estimator(X, Y, kernels, rng=rng).resample
        for fraction, rows in ((1e-9, least[name]), (0.5, 20), (2.0, 80)):
            assert np.isfinite(resample(fraction, rng)).all()
            assert drawn[-2:] == [rows, rows]
    least = {"incomplete": 4, "independent": 4, "block": 5}
    for name, estimator in HSIC.items():
        resample = estimator(X, y, kernels, own, rng=rng).resample
        for fraction, rows in ((1e-9, least[name]), (0.5, 20)):
            assert np.isfinite(resample(fraction, rng)).all()
            assert drawn[-1] == rows


def test_room_for_the_rows_is_asked_for_before_they_are_drawn(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A design that does not fit is refused first; what is asked for is at least what its index arrays take."""
    X, Y, y = numeric(40, rng), numeric(40, rng), numeric(40, rng, 1)
    kernels, own = fit_kernels(X, rng=rng), fit_kernels(y, rng=rng)
    asked: list[tuple[int, int]] = []
    for module in (block, incomplete, linear):
        monkeypatch.setattr(module, "columns_that_fit", lambda tables, design: asked.append((len(tables), design)))
    for estimator in MMD.values():
        estimator(X, Y, kernels, rng=rng)
    for estimator in HSIC.values():
        estimator(X, y, kernels, own, rng=rng)
    # Four numbers of four bytes a draw, or one of eight a row; draws of their own are made a few at a time.
    least = {"two": [4 * 40 * 4, 0, 80 * 8, 80 * 8], "joint": [4 * 40 * 4, 0, 40 * 8]}
    expected = [(2, size) for size in least["two"]] + [(1, size) for size in least["joint"]]
    assert [tables for tables, _ in asked] == [tables for tables, _ in expected]
    for (_, found), (_, size) in zip(asked, expected, strict=True):
        assert size <= found <= 2 * size


def test_memory_is_linear_in_rows(rng: np.random.Generator) -> None:
    n = 20_000
    X, Y, y = numeric(n, rng, 4), numeric(n, rng, 4), numeric(n, rng, 1)
    kernels, response = fit_kernels(X, rng=rng), fit_kernels(y, rng=rng)
    tracemalloc.start()
    try:
        for estimator in MMD.values():
            estimator(X, Y, kernels, rng=rng)
        for estimator in HSIC.values():
            estimator(X, y, kernels, response, rng=rng)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Draws, their centred copy, designs of four rows per draw and feature, and batches of a megabyte: far from 3.2 GB.
    assert peak < 32e6


# Many draws ----------------------------------------------------------------------------------------------------------


def shared_cases(rng: np.random.Generator) -> list[tuple[Callable[..., Scores], tuple[Any, ...]]]:
    """The estimators whose scores are correlated."""
    return [case for case in cases(rng) if case[0] not in (MMD["independent"], HSIC["independent"])]


def test_draws_that_are_not_kept_give_the_same_scores(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = shared_cases(rng)
    kept = [estimated(estimator(*data, rng=np.random.default_rng(1))) for estimator, data in every]
    monkeypatch.setattr(moments_module, "_KEPT", 0)
    for (estimator, data), expected in zip(every, kept, strict=True):
        scores = estimated(estimator(*data, rng=np.random.default_rng(1)))
        assert isinstance(scores.cov, DrawCovariance)
        np.testing.assert_allclose(scores.estimate, expected.estimate, rtol=0, atol=1e-15)
        np.testing.assert_allclose(scores.cov.diagonal(), expected.cov.diagonal(), rtol=1e-10)
        chosen = np.array([3, 0])
        size = expected.cov.diagonal().max()
        np.testing.assert_allclose(scores.cov.columns(chosen), expected.cov.columns(chosen), rtol=0, atol=1e-12 * size)
        assert scores.cov.columns(chosen[:0]).shape == (4, 0)
        one, other = (cov.sample(50, np.random.default_rng(2)) for cov in (scores.cov, expected.cov))
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9 * np.sqrt(size))


def test_correlations_from_the_first_draws_and_variances_from_all(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moments_module, "_KEPT", 0)
    monkeypatch.setattr(moments_module, "LEARNING", 12)
    for estimator, data in shared_cases(rng):
        scores = estimated(estimator(*data, rng=np.random.default_rng(1)))
        if scores.draws is None or scores.draws <= 12:
            continue
        assert isinstance(scores.cov, DrawCovariance)
        draws = scores.cov.draws.of(slice(0, 4), slice(0, scores.cov.draws.count))
        np.testing.assert_allclose(scores.estimate, draws.mean(axis=0), rtol=0, atol=1e-15)
        ratio = scores.cov.diagonal() / draws.var(axis=0)
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-9)
        found = scores.cov.columns(np.arange(4))
        np.testing.assert_allclose(np.diag(found), scores.cov.diagonal(), rtol=1e-12)
        sd = np.sqrt(scores.cov.diagonal())
        np.testing.assert_allclose(found / np.outer(sd, sd), np.corrcoef(draws[:12].T), rtol=0, atol=1e-9)
        # The normal draws have that covariance, from the whole matrix or from draws that are made again piece by piece.
        for few in (4, 3):
            monkeypatch.setattr(moments_module, "_FEW", few)
            sample = scores.cov.sample(20_000, rng) / sd
            # A product of two standard normals has a variance of at most 2.
            assert (np.abs(sample.T @ sample / 20_000 - found / np.outer(sd, sd)) < Z * np.sqrt(2 / 20_000)).all()
        assert np.isfinite(scores.resample(0.7, rng)).all()


def test_a_feature_that_varies_only_late_keeps_its_variance(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moments_module, "_KEPT", 0)
    monkeypatch.setattr(moments_module, "LEARNING", 5)
    X, Y = numeric(200, rng), numeric(200, rng)
    X.values[:, 1], Y.values[:, 1] = 0.0, 5.0
    X.values[150:, 2] = Y.values[:, 2] = X.values[:150, 2] = 0.0
    X.values[150:, 2] = rng.normal(size=50)
    kernels = fit_kernels(stack([X, Y]), "gaussian", 0.3, rng=rng)
    # Rows in order, so that the rows that vary in the third feature come late.
    monkeypatch.setattr("kernsift.estimators.linear.blocks", lambda n, size, rng: np.arange(n).reshape(-1, size))
    scores = estimated(linear_mmd(X, Y, kernels, rng=rng))
    draws = scores.cov.draws.of(slice(0, 3), slice(0, 100))
    assert (draws[:5, 2] == 0).all()
    assert np.ptp(draws[:, 1]) == 0
    expected = draws.var(axis=0, ddof=1) / 100
    expected[1] = (draws[0, 1] / 100) ** 2
    np.testing.assert_allclose(scores.cov.diagonal(), expected, rtol=1e-9)
    columns = scores.cov.columns(np.arange(3))
    assert (columns - np.diag(np.diag(columns)) == 0).all()
    for few in (3, 2):
        monkeypatch.setattr(moments_module, "_FEW", few)
        sample = scores.cov.sample(4000, rng) / np.sqrt(scores.cov.diagonal())
        assert (np.abs(sample.T @ sample / 4000 - np.eye(3)) < Z * np.sqrt(2 / 4000)).all()


@pytest.mark.parametrize("jobs", [1, 3])
def test_threads_change_no_bit(jobs: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments_module, "_KEPT", 0)
    monkeypatch.setattr(moments_module, "batch_numbers", lambda like: 20)
    for estimator, data in cases(rng):
        plain = estimator(*data, rng=np.random.default_rng(1))
        expected = plain.cov.columns(np.array([0, 2]))
        with thread_limit(jobs):
            scores = estimator(*data, rng=np.random.default_rng(1))
            found = scores.cov.columns(np.array([0, 2]))
        np.testing.assert_array_equal(scores.estimate, plain.estimate)
        np.testing.assert_array_equal(scores.cov.diagonal(), plain.cov.diagonal())
        np.testing.assert_array_equal(found, expected)


def test_memory_of_many_draws(rng: np.random.Generator) -> None:
    X, Y, y = numeric(300, rng, 700), numeric(300, rng, 700), numeric(300, rng, 1)
    kernels, response = fit_kernels(X, rng=rng), fit_kernels(y, rng=rng)
    count = 4 * LEARNING

    def estimates() -> Iterator[Scores]:
        yield incomplete_mmd(X, Y, kernels, r=count / 300, rng=rng)
        yield incomplete_hsic(X, y, kernels, response, r=count / 300, rng=rng)

    list(estimates())  # what is compiled on first use takes memory of its own
    tracemalloc.start()
    try:
        for scores in estimates():
            assert scores.draws == count
            assert scores.cov.columns(np.arange(20)).shape == (700, 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # All draws would take 367 MB; a design is 2 MB, the draws of the chosen features 2.6 MB.
    assert peak < 30e6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, Y, k: incomplete_mmd(X, Y, k, r=0, rng=None), "r: a positive"),
        (lambda X, Y, k: incomplete_mmd(X, Y, k, r=np.inf, rng=None), "r: a positive"),
        (lambda X, Y, k: incomplete_mmd(X, Y, k, r=np.nan, rng=None), "r: a positive"),
        (lambda X, Y, k: incomplete_hsic(X, X, k, k, r="1", rng=None), "r: a positive"),
        (lambda X, Y, k: incomplete_hsic(X, X, k, k, design="own", rng=None), "design: 'shared'"),
        (lambda X, Y, k: incomplete_mmd(X, Y.take([0]), k, rng=None), "Y: at least 2 rows"),
        (lambda X, Y, k: incomplete_hsic(X.take([0, 1, 2]), Y, k, k, rng=None), "X: at least 4 rows"),
        (lambda X, Y, k: linear_mmd(X, Y.take([0, 1, 2]), k, rng=None), "Y: at least 4 rows"),
        (lambda X, Y, k: block_mmd(X.take([0, 1, 2]), Y, k, rng=None), "X: at least 4 rows"),
        (lambda X, Y, k: block_mmd(X, Y, k, block_size=1, rng=None), "from 2 to 5 "),
        (lambda X, Y, k: block_mmd(X, Y, k, block_size=6, rng=None), "from 2 to 5 "),
        (lambda X, Y, k: block_hsic(X, Y, k, k, block_size=3, rng=None), "from 4 to 5 "),
        (lambda X, Y, k: block_hsic(X, Y, k, k, block_size=4.5, rng=None), "from 4 to 5 "),
        (lambda X, Y, k: block_hsic(X.take(range(7)), Y, k, k, rng=None), "X: at least 8 rows"),
        (lambda X, Y, k: mmd_ustat(X.take([0]), Y, k), "X: at least 2 rows"),
        (lambda X, Y, k: hsic_ustat(X.take([0, 1, 2]), Y, k, k), "X: at least 4 rows"),
    ],
)
def test_what_cannot_be_done_is_said(call: Callable[..., Any], message: str, rng: np.random.Generator) -> None:
    X, Y = numeric(10, rng), numeric(11, rng)
    with pytest.raises(InputError, match=message):
        call(X, Y, fit_kernels(X, rng=rng))


TOO_SHORT = {
    (incomplete_mmd, 2): "at least 2 rows are needed, got 1; estimator='complete' needs 2.",
    (linear_mmd, 4): "at least 4 rows are needed for the linear-time estimator, got 3; estimator='complete' needs 2.",
    (block_mmd, 4): "at least 4 rows are needed for two blocks, got 3; estimator='complete' needs 2.",
    (cross_mmd, 4): "at least 4 rows are needed for the cross estimator, got 3; estimator='complete' needs 2.",
    (
        lambda X, Y, kernels, rng: mmd_ustat(X, Y, kernels),
        2,
    ): "at least 2 rows are needed, got 1; estimator='complete' needs 2.",
}
RELATED_TOO_SHORT = {
    (incomplete_hsic, 4): "X: at least 4 rows are needed, got 3; estimator='complete' needs 2.",
    (block_hsic, 8): "X: at least 8 rows are needed for two blocks, got 7; estimator='complete' needs 2.",
    (cross_hsic, 8): "X: at least 8 rows are needed for the cross estimator, got 7; estimator='complete' needs 2.",
    (
        lambda X, y, kernels, own, rng: hsic_ustat(X, y, kernels, own),
        4,
    ): "X: at least 4 rows are needed, got 3; estimator='complete' needs 2.",
}


@pytest.mark.parametrize(("estimator", "enough", "sentence"), [(*key, text) for key, text in TOO_SHORT.items()])
def test_the_sample_that_is_too_short_is_named(
    estimator: Callable[..., Any], enough: int, sentence: str, rng: np.random.Generator
) -> None:
    X, Y = numeric(10, rng), numeric(11, rng)
    kernels = fit_kernels(X, rng=rng)
    first, short = np.arange(enough), np.arange(enough - 1)
    estimator(X.take(first), Y.take(first), kernels, rng=rng)
    with pytest.raises(InputError) as raised:
        estimator(X.take(short), Y, kernels, rng=rng)
    assert str(raised.value) == f"X: {sentence}"
    with pytest.raises(InputError) as raised:
        estimator(X, Y.take(short), kernels, rng=rng)
    assert str(raised.value) == f"Y: {sentence}"


@pytest.mark.parametrize(("estimator", "enough", "sentence"), [(*key, text) for key, text in RELATED_TOO_SHORT.items()])
def test_a_table_that_is_too_short_is_said(
    estimator: Callable[..., Any], enough: int, sentence: str, rng: np.random.Generator
) -> None:
    X, y = numeric(10, rng), numeric(10, rng, 1)
    kernels, own = fit_kernels(X, rng=rng), fit_kernels(y, rng=rng)
    first, short = np.arange(enough), np.arange(enough - 1)
    estimator(X.take(first), y.take(first), kernels, own, rng=rng)
    with pytest.raises(InputError) as raised:
        estimator(X.take(short), y.take(short), kernels, own, rng=rng)
    assert str(raised.value) == sentence


def test_sizes_of_blocks_that_fit(rng: np.random.Generator) -> None:
    X, Y, y = numeric(10, rng), numeric(11, rng), numeric(10, rng, 1)
    kernels, own = fit_kernels(X, rng=rng), fit_kernels(y, rng=rng)
    for size in (2, np.int64(5)):
        assert block_mmd(X, Y, kernels, block_size=size, rng=rng).draws == 10 // size
    for size in (4, 5):
        assert block_hsic(X, y, kernels, own, block_size=size, rng=rng).draws == 2
    for wrong in (True, 1, 6, 2.0):
        with pytest.raises(InputError) as raised:
            block_mmd(X, Y, kernels, block_size=wrong, rng=rng)
        assert str(raised.value) == (
            "block_size: a whole number from 2 to 5 was needed, so that 10 rows give at least two blocks, "
            f"got {wrong!r}."
        )


def test_designs_that_there_are_not(rng: np.random.Generator) -> None:
    X, Y = numeric(10, rng), numeric(11, rng)
    kernels = fit_kernels(X, rng=rng)
    for wrong in (True, 0, -1, np.inf, np.nan, "1", None):
        with pytest.raises(InputError) as raised:
            incomplete_mmd(X, Y, kernels, r=wrong, rng=rng)
        assert str(raised.value) == (
            f"r: a positive finite number of draws per row was needed, got {wrong!r}; the paper uses 1 to 10."
        )
    with pytest.raises(InputError) as raised:
        incomplete_mmd(X, Y, kernels, design="own", rng=rng)
    assert str(raised.value) == "design: 'shared' or 'independent' was needed, got 'own'."
    for right in (np.float32(0.5), np.int16(2), 1, 0.3):
        assert incomplete_mmd(X, Y, kernels, r=right, rng=rng).draws == max(2, round(float(right) * 10))


def test_smallest_tables_that_are_enough(rng: np.random.Generator) -> None:
    X, Y = numeric(2, rng), numeric(2, rng)
    kernels = fit_kernels(stack([X, Y]), rng=rng)
    assert incomplete_mmd(X, Y, kernels, r=1e-9, rng=rng).draws == 2
    X, Y, y = numeric(4, rng), numeric(4, rng), numeric(4, rng, 1)
    kernels, response = fit_kernels(stack([X, Y]), rng=rng), fit_kernels(y, rng=rng)
    assert linear_mmd(X, Y, kernels, rng=rng).draws == 2
    assert block_mmd(X, Y, kernels, rng=rng).draws == 2
    # All quadruples of four rows are one: the draws agree up to rounding and equal the complete statistic.
    scores = incomplete_hsic(X, y, kernels, response, r=3, rng=rng)
    np.testing.assert_allclose(scores.estimate, hsic_ustat(X, y, kernels, response), **CLOSE)
