from __future__ import annotations

from itertools import permutations, product
from math import perm

import numpy as np
import pytest
from scipy import stats

from kernsift.estimators.draws.designs import blocks, halves, pairs, quadruples


class Enumerating:
    """Stands in for a generator: hands out the columns of a prepared array of independent choices."""

    def __init__(self, choices: np.ndarray) -> None:
        self.columns = iter(choices.T)
        self.high: list[int] = []

    def integers(self, high: int, size: int) -> np.ndarray:
        self.high.append(high)
        return next(self.columns).copy()


@pytest.mark.parametrize(("n", "arity"), [(2, 2), (3, 2), (6, 2), (4, 4), (5, 4), (7, 4)])
def test_every_tuple_of_different_rows_comes_from_exactly_one_choice(n: int, arity: int) -> None:
    sizes = [n - t for t in range(arity)]
    source = Enumerating(np.array(list(product(*map(range, sizes)))))
    draw = pairs if arity == 2 else quadruples
    drawn = np.asarray(draw(n, perm(n, arity), source))  # type: ignore[arg-type]
    tuples = drawn.T if arity == 2 else drawn
    assert source.high == sizes
    assert sorted(map(tuple, tuples.tolist())) == list(permutations(range(n), arity))


# A chi-square test at level 1e-9: with the seed fixed it would take an unlawful design to fail.
def assert_uniform(cells: np.ndarray, count: int) -> None:
    observed = np.bincount(cells, minlength=count)
    statistic = ((observed - observed.mean()) ** 2 / observed.mean()).sum()
    assert len(observed) == count
    assert statistic < stats.chi2(count - 1).isf(1e-9)


@pytest.mark.parametrize("n", [2, 5])
def test_pairs_are_uniform(n: int) -> None:
    i, j = pairs(n, 40_000, np.random.default_rng(1))
    assert (i != j).all()
    code = {pair: c for c, pair in enumerate(permutations(range(n), 2))}
    assert_uniform(np.array([code[pair] for pair in zip(i.tolist(), j.tolist(), strict=True)]), n * (n - 1))


@pytest.mark.parametrize("n", [4, 5])
def test_quadruples_are_uniform(n: int) -> None:
    drawn = quadruples(n, 40_000, np.random.default_rng(2))
    code = {tup: c for c, tup in enumerate(permutations(range(n), 4))}
    assert_uniform(np.array([code[tuple(tup)] for tup in drawn.tolist()]), perm(n, 4))


def test_a_shape_gives_every_feature_its_own_design() -> None:
    rng = np.random.default_rng(3)
    i, j = pairs(6, (500, 3), rng)
    assert i.shape == j.shape == (500, 3)
    assert (i != j).all()
    assert i.min() == 0
    assert i.max() == 5
    four = quadruples(6, (500, 3), rng)
    assert four.shape == (500, 3, 4)
    assert (np.diff(np.sort(four, axis=-1), axis=-1) > 0).all()
    assert (i[:, 0] != i[:, 1]).any()
    assert (four[:, 0] != four[:, 1]).any()


@pytest.mark.parametrize(("n", "size"), [(10, 5), (11, 5), (14, 5), (2, 2), (7, 7), (3, 1)])
def test_blocks_are_disjoint(n: int, size: int) -> None:
    cut = blocks(n, size, np.random.default_rng(4))
    assert cut.shape == (n // size, size)
    assert len(np.unique(cut)) == cut.size
    assert cut.min() >= 0
    assert cut.max() < n


def test_no_row_is_left_out_more_often_than_others() -> None:
    rng = np.random.default_rng(5)
    left = [int(np.setdiff1d(np.arange(5), blocks(5, 2, rng))[0]) for _ in range(5000)]
    assert_uniform(np.array(left), 5)


@pytest.mark.parametrize("n", [2, 3, 10, 11])
def test_halves_share_all_rows(n: int) -> None:
    one, other = halves(n, np.random.default_rng(6))
    assert len(one) - len(other) == n % 2
    assert sorted([*one, *other]) == list(range(n))


def test_the_same_seed_gives_the_same_design() -> None:
    for draw in (
        lambda rng: quadruples(9, 50, rng),
        lambda rng: np.stack(pairs(9, 50, rng)),
        lambda rng: blocks(9, 2, rng),
        lambda rng: halves(8, rng)[0],
    ):
        np.testing.assert_array_equal(draw(np.random.default_rng(7)), draw(np.random.default_rng(7)))
