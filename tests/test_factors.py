"""Grids and low-rank factors: against dense centred Gram matrices, for every kind of feature."""

import numpy as np
import pytest

from kernsift import compare, screen
from kernsift.data.inputs import as_table
from kernsift.estimators.block_sizes import feature_blocks
from kernsift.estimators.null_laws.permutation_law import invariants
from kernsift.kernels.bandwidths import rows_to_sort
from kernsift.kernels.contingency import tabulate
from kernsift.kernels.fitted import fit_kernels
from kernsift.kernels.functions import KERNELS
from kernsift.kernels.low_rank import group_views, kernel_views
from kernsift.kernels.quantisation import POINTS, Grid, fit_grid

RNG = np.random.default_rng(2)
N = 90
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


def counted(table, features, rows=None):
    """The points of some features and all that their rows amount to."""
    grid = fit_grid(table, features, rows)
    return grid, tabulate(table, features, grid)


def row_factors(table, features, kernel_view):
    """The factors (b, m, n) of some features, row by row."""
    grid, known = counted(table, features)
    view = kernel_view.view(grid, known.counts, features, np.arange(table.n))
    if known.codes is None:
        return view.factor
    return np.stack([factor[:, codes] for factor, codes in zip(view.factor, known.codes, strict=True)])


def factor_of(table, kernels, feature, *, flat=False):
    """One feature under one kernel, row by row: (m, n)."""
    [kernel_view] = kernel_views(kernels, False)
    return row_factors(table, np.array([feature]), kernel_view._replace(flat=flat))[0]


# Grids ---------------------------------------------------------------------------------------------------------------


def test_a_short_column_and_one_of_few_values_are_left_as_they_are():
    values = np.column_stack([RNG.normal(size=POINTS), RNG.poisson(2, POINTS)])
    grid, known = counted(as_table(values), np.arange(2), None)
    for j in range(2):
        assert (grid.points[known.codes[j], j] == values[:, j]).all()
    counts = RNG.integers(0, POINTS, size=(5000, 3)).astype(float)
    grid, known = counted(as_table(counts), np.arange(3), None)
    for j in range(3):
        assert (grid.points[known.codes[j], j] == counts[:, j]).all()
        assert (known.counts[j] == np.bincount(known.codes[j], minlength=known.counts.shape[1])).all()


@pytest.mark.parametrize(
    "draw", [RNG.normal, lambda size: RNG.standard_t(2, size), lambda size: RNG.gamma(1, size=size)]
)
def test_long_columns_without_ties_are_rounded_by_rank(draw):
    values = draw(size=(3000, 2))
    grid, known = counted(as_table(values), np.arange(2), None)
    assert grid.points.shape == (POINTS, 2)
    np.testing.assert_array_equal(known.counts[0], known.counts[1])
    for j in range(2):
        points = grid.points[:, j]
        assert (np.diff(points) > 0).all()
        assert points[0] == values[:, j].min() and points[-1] == values[:, j].max()
        own = np.sort(values[:, j])
        ends = np.cumsum(known.counts[j]).astype(int)
        for point, start, stop in zip(points, np.r_[0, ends[:-1]], ends, strict=True):
            assert own[start] <= point <= own[stop - 1]
        # A small part of the spread is lost.
        lost = np.abs(values[:, j] - points[known.codes[j]])
        assert np.median(lost) < 0.02 * np.subtract(*np.quantile(values[:, j], [0.75, 0.25]))


def test_long_columns_with_ties_are_rounded_to_the_nearest_of_their_own_values():
    values = RNG.normal(size=(3000, 2)).round(2)
    values[RNG.random(3000) < 0.3, 0] = 0.0
    grid, known = counted(as_table(values), np.arange(2), None)
    points = grid.points[:, 0]
    assert np.isin(points, values[:, 0]).all()
    nearest = np.abs(values[:, 0, None] - points).min(axis=1)
    assert np.abs(values[:, 0] - points[known.codes[0]]) == pytest.approx(nearest, abs=1e-12)


def test_points_of_a_long_table_come_from_some_of_its_rows_and_every_row_finds_one():
    values = RNG.normal(size=(40_000, 2))
    rows = rows_to_sort(len(values))
    assert len(rows) < len(values)
    grid, known = counted(as_table(values), np.arange(2), rows)
    assert (known.counts.sum(axis=1) == len(values)).all()
    assert np.abs(values[:, 0] - grid.points[known.codes[0], 0]).max() < 3.0
    assert rows_to_sort(1000) is None


HEAPED = {
    "integers": lambda rng, n: rng.integers(0, 150, n),
    "waiting times": lambda rng, n: rng.geometric(0.01, n),
    "rounded": lambda rng, n: np.round(rng.standard_cauchy(n), 1),
    "many zeros": lambda rng, n: np.where(rng.random(n) < 0.6, 0, rng.integers(1, 500, n)),
}


@pytest.mark.parametrize("law", HEAPED)
@pytest.mark.parametrize("n", [305, 306, 1000, 1001, 20_000])
def test_points_of_columns_with_ties_keep_their_rows_with_another_sign_or_unit(n, law):
    """Values in the middle of two points went to the lower one, by their rounding errors: p-values moved by a third."""
    for seed in range(3):
        values = HEAPED[law](np.random.default_rng([n, seed]), n).astype(float)

        def rows_together(scale, shift=0.0, values=values):
            table = as_table((values * scale + shift)[:, None])
            codes = fit_grid(table, np.array([0]), rows_to_sort(n)).codes(table.values)[0]
            # The first row of each point, for every row: which rows have the same point.
            return np.unique(codes, return_index=True)[1][np.unique(codes, return_inverse=True)[1]]

        expected = rows_together(1.0)
        for scale, shift in ((-1.0, 0.0), (3.7, 11.3), (-0.1, 256.0)):
            np.testing.assert_array_equal(rows_together(scale, shift), expected)


@pytest.mark.parametrize("kind", ["normal", "lognormal", "cauchy", "zeros"])
def test_seeds_do_not_move_scores_of_long_tables_and_crossing_16384_rows_hardly_does(kind):
    rng = np.random.default_rng(7)
    size = (16_386, 12)
    draw = {
        "normal": rng.normal,
        "lognormal": rng.lognormal,
        "cauchy": lambda size: rng.standard_cauchy(size),
        "zeros": lambda size: np.where(rng.random(size) < 0.5, rng.lognormal(size=size), 0.0),
    }
    values = draw[kind](size=size)
    above, again = (compare(values[:8193], values[8193:], random_state=seed).scores for seed in (0, 1))
    np.testing.assert_array_equal(above, again)
    # One row less in each sample; without rounding the scores of null columns move by some 0.01.
    below = compare(values[:8192], values[8193:-1], random_state=0).scores
    assert np.sqrt(np.mean((above - below) ** 2)) < 0.1
    assert np.median(np.abs(above - below)) < 0.05


def test_rare_values_beyond_all_sampled_rows_keep_a_point_of_their_own():
    values = np.random.default_rng(0).normal(size=(100_000, 1))
    away = np.setdiff1d(np.arange(100_000), rows_to_sort(100_000))[:40]
    values[away] = 100.0 + np.arange(40.0)[:, None]
    grid, known = counted(as_table(values), np.array([0]), rows_to_sort(100_000))
    codes = np.unique(known.codes[0][away])
    assert len(codes) == 1 and known.counts[0, codes[0]] == 40
    assert grid.points[codes[0], 0] > values[rows_to_sort(100_000)].max()


def test_levels_of_a_category_are_never_rounded_together():
    pd = pytest.importorskip("pandas")
    names = np.array([f"level {i:04d}" for i in range(3 * POINTS)])
    table = as_table(pd.DataFrame({"code": names[RNG.integers(0, len(names), 4000)], "x": RNG.normal(size=4000)}))
    blocks = list(feature_blocks(table))
    assert [block.tolist() for block in blocks] == [[1], [0]]
    _, known = counted(table, blocks[1])
    assert (known.codes[0] == table.values[:, 0]).all()


def test_blocks_hold_every_feature_once():
    pd = pytest.importorskip("pandas")
    wide = as_table(pd.DataFrame(RNG.normal(size=(20, 300))).add_prefix("c"), groups={"pair": ["c7", "c9"]})
    blocks = list(feature_blocks(wide))
    assert sorted(np.concatenate(blocks).tolist()) == list(range(wide.d))
    assert blocks[-1].tolist() == [wide.names.index("pair")]


# Factors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gaussian", "imq", "linear", "polynomial"])
def test_smooth_kernels_are_reproduced(name):
    table = as_table(frame().drop(columns="huge") if name in ("linear", "polynomial") else frame())
    kernels = fit_kernels(table, name, rng=np.random.default_rng(0))
    for feature in range(table.d):
        gram = dense(table, kernels, feature)
        factor = factor_of(table, kernels, feature)
        # Measured in the norm that enters the statistic.
        assert np.linalg.norm(factor.T @ factor - gram) <= 5e-3 * np.linalg.norm(gram) + 1e-9


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_gives_a_positive_kernel_below_the_true_one(name):
    """A pivoted Cholesky factor never exceeds the kernel it stands for: K - F'F stays positive semi-definite."""
    table = as_table(frame().drop(columns="huge"))
    kernels = fit_kernels(table, name, rng=np.random.default_rng(0))
    for feature in range(table.d):
        gram = dense(table, kernels, feature)
        factor = factor_of(table, kernels, feature)
        rest = np.linalg.eigvalsh(gram - factor.T @ factor)
        assert rest[0] >= -1e-6 * np.abs(gram).max() - 1e-12
        assert np.isfinite(factor).all()


@pytest.mark.parametrize("flat", [False, True])
def test_rows_are_orthogonal_leading_first_and_centred(flat):
    table = as_table(frame())
    [kernel_view] = kernel_views(fit_kernels(table, rng=np.random.default_rng(0)), False)
    features = np.arange(4)
    grid, known = counted(table, features)
    view = kernel_view._replace(flat=flat).view(grid, known.counts, features, np.arange(N))
    small = (view.factor * known.counts[:, None, :]) @ np.swapaxes(view.factor, 1, 2)
    size = np.diagonal(small, axis1=1, axis2=2)
    assert view.sizes == pytest.approx(size, abs=1e-8 * size.max())
    assert (np.diff(size, axis=1) <= 1e-9).all()
    assert np.abs(small - np.apply_along_axis(np.diag, 1, size)).max() < 1e-6 * size.max()
    assert np.abs((view.factor * known.counts[:, None, :]).sum(axis=2)).max() < 1e-8


def test_flat_factors_are_the_square_root_of_the_gram_matrix():
    table = as_table(frame())
    kernels = fit_kernels(table, rng=np.random.default_rng(0))
    plain, root = (factor_of(table, kernels, 0, flat=flat) for flat in (False, True))
    half = root.T @ root
    assert half @ half == pytest.approx(plain.T @ plain, abs=1e-5)


def test_groups_and_categories():
    table = as_table(
        frame(colour=np.array(["red", "blue", "green"])[RNG.integers(0, 3, N)]), groups={"pair": ["normal", "counts"]}
    )
    kernels = fit_kernels(table, rng=np.random.default_rng(0))
    for name, error in (("pair", 3e-3), ("colour", 1e-10)):
        feature = table.names.index(name)
        factor = factor_of(table, kernels, feature)
        gram = dense(table, kernels, feature)
        assert np.linalg.norm(factor.T @ factor - gram) <= error * np.linalg.norm(gram)


def test_the_most_frequent_levels_get_the_directions():
    """With more levels than directions the rare ones are left out, not the last ones."""
    pd = pytest.importorskip("pandas")
    often = np.repeat([f"z{i}" for i in range(5)], 200)
    seldom = [f"a{i}" for i in range(60)]
    table = as_table(pd.DataFrame({"code": np.concatenate([often, seldom])}))
    kernels = fit_kernels(table, rng=np.random.default_rng(0))
    factor = factor_of(table, kernels, 0)
    gram = dense(table, kernels, 0)
    assert np.linalg.norm(factor.T @ factor - gram) < 0.02 * np.linalg.norm(gram)


def test_single_columns_do_not_depend_on_the_order_of_rows():
    values = RNG.normal(size=(400, 3))
    order = RNG.permutation(400)
    results = []
    for rows in (np.arange(400), order):
        table = as_table(values[rows])
        views = kernel_views(fit_kernels(table, rng=np.random.default_rng(0)), True)
        results.append([row_factors(table, np.arange(3), kernel_view) for kernel_view in views])
    for one, two in zip(*results, strict=True):
        gram_one = np.swapaxes(one[:, :, order], 1, 2) @ one[:, :, order]
        assert np.swapaxes(two, 1, 2) @ two == pytest.approx(gram_one, abs=1e-8)


def test_rounding_changes_the_kernel_little():
    """A column of 2,000 rows on its points against itself unrounded, in the norm that enters the statistic."""
    table = as_table(RNG.normal(size=(2000, 1)))
    for kernel_view in kernel_views(fit_kernels(table, rng=np.random.default_rng(0)), True):
        [factor] = row_factors(table, np.array([0]), kernel_view._replace(flat=False))
        gram = dense(table, kernel_view.kernels, 0)
        assert np.linalg.norm(factor.T @ factor - gram) < 0.05 * np.linalg.norm(gram)


def test_a_kernel_of_equality_sees_no_neighbours_as_equal():
    """More different values than points: rounding would make ties that are not there."""
    numbers = RNG.permutation(np.repeat(np.arange(3 * POINTS), 2)).astype(float)
    table = as_table(numbers[:, None])
    kernels = fit_kernels(table, "delta", rng=np.random.default_rng(0))
    assert not kernels.rounds
    grid = fit_grid(table, np.array([0]), None, rounded=False)
    known = tabulate(table, np.array([0]), grid)
    assert grid.points.shape == (3 * POINTS, 1)
    assert (grid.points[known.codes[0], 0] == numbers).all()
    assert (known.counts == 2).all()


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "imq", "linear"])
def test_views_of_groups_are_those_of_their_whole_factors(kernel, monkeypatch):
    """Kernel values at landmarks, over chunks of rows, give what the factor of all rows gives."""
    rng = np.random.default_rng(3)
    values = rng.standard_t(1.5, size=(300, 4)) + 100.0  # some rows are far from all others
    values[:150, 0] += 1.0
    table = as_table(values, groups={"g": [0, 1, 2, 3]})
    kernels = fit_kernels(table, kernel, rng=rng)
    ones, rows, feature = np.ones((1, 300)), np.sort(rng.choice(300, 100, replace=False)), np.array([0])
    kinds = kernel_views(kernels, kernels.kernel.scaled)
    for limits in ((1024, 8192), (64, 128)):
        for name, limit in zip(("_ROWS", "_STRIP"), limits, strict=True):
            monkeypatch.setattr(f"kernsift.kernels.group_views.{name}", limit)
        found = group_views(kinds, Grid(table.values, None), ones, feature, rows)
        whole = [kind.view(Grid(table.values, None), ones, feature, rows) for kind in kinds]
        for view, expected in zip(found, whole, strict=True):
            np.testing.assert_allclose(view.sizes, expected.sizes, rtol=1e-8)
            gram = expected.factor[0].T @ expected.factor[0]
            np.testing.assert_allclose(view.factor[0].T @ view.factor[0], gram, atol=1e-11 * np.abs(gram).max())
            for one, other in zip(invariants(view, ones, 300), invariants(expected, ones, 300), strict=True):
                for part, same in zip(one, other, strict=True):
                    # Diagonals are sums of up to 100 squares in single precision, with an error of 100 x 6e-8 at most.
                    np.testing.assert_allclose(part, same, rtol=6e-6, atol=6e-6 * np.abs(same).max())
            target = rng.normal(size=(300, 2))
            products = view.products(lambda part, target=target: target[part])
            codes = rng.integers(0, 7, (2, 300))
            summed = view.summed(codes, 7)
            for got, factor in (
                (products[0], view.factor[0] @ target),
                (summed[1], view.factor[0] @ np.eye(7)[codes[1]]),
            ):
                got = got if got.shape == factor.shape else got.T
                np.testing.assert_allclose(got, factor, atol=1e-10 * np.abs(factor).max())
        if len(found) == 2:
            inner = found[0].factor[0] @ found[1].factor[0].T
            np.testing.assert_allclose(found[0].inner(found[1])[0], inner, atol=1e-10 * np.abs(inner).max())


@pytest.mark.parametrize("scale", [1e-69, 1e-40, 1e40, 1e69])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"k": 1},
        {"groups": {"g": ["a", "b"]}},
        {"strata": np.arange(60) % 3},
        {"paired": np.arange(60) // 2},
        {"given": np.arange(60) % 7},
        {"distinct": True},
    ],
    ids=lambda options: "".join(options),
)
def test_a_linear_kernel_in_any_units(options, scale):
    """Sixth powers of the values overflow from 1e52 on, and vanish below 1e-54."""
    rng = np.random.default_rng(0)
    pd = pytest.importorskip("pandas")
    label = np.arange(60) % 2
    X = pd.DataFrame(rng.normal(size=(60, 3)) + 0.5 * label[:, None], columns=list("abc"))
    plain, scaled = (compare(table, by=label, kernel="linear", random_state=0, **options) for table in (X, X * scale))
    np.testing.assert_allclose(scaled.all_pvalues, plain.all_pvalues, rtol=1e-6)
    np.testing.assert_allclose(scaled.effects, plain.effects, atol=1e-6)
    assert plain.pvalues.min() < 0.05


@pytest.mark.parametrize("scale", [1e-69, 1e69])
def test_whole_data_sets_with_a_linear_kernel_in_any_units(scale):
    rng = np.random.default_rng(0)
    reference, one, two = rng.normal(size=(40, 3)), rng.normal(size=(30, 3)) + 1.0, rng.normal(size=(30, 3))
    plain, scaled = (
        screen(reference * unit, {"one": one * unit, "two": two * unit}, kernel="linear", random_state=0)
        for unit in (1.0, scale)
    )
    np.testing.assert_allclose(scaled.all_pvalues, plain.all_pvalues, rtol=1e-6)
    assert plain["one"].rejected
