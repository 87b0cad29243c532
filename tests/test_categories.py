"""Categorical columns: the kernels for rare and for common levels, together."""

from itertools import combinations

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import chi2_contingency, f_oneway, fisher_exact, hypergeom, random_table, skew

from kernsift import compare, relate
from kernsift.data.tables import Table
from kernsift.estimators.complete import complete_hsic, complete_mmd
from kernsift.estimators.pairs import CLASSES, SEVERAL_CLASSES
from kernsift.kernels.fitted import fit_kernels
from kernsift.kernels.low_rank import Levels

pd = pytest.importorskip("pandas")


def column(*counts: int) -> np.ndarray:
    """A column with so many rows of each level."""
    return np.repeat([f"level {place}" for place in range(len(counts))], counts)


def pvalue_of(first: np.ndarray, second: np.ndarray, **settings) -> float:
    frames = [pd.DataFrame({"x": pd.Categorical(part)}) for part in (first, second)]
    return float(compare(*frames, k=None, correction=None, **settings).pvalues[0])


@pytest.mark.parametrize("power", [1.0, 1.15, 0.4])
def test_the_statistic_is_a_weighted_chi_square(power):
    table = np.array([[30, 12], [25, 20], [9, 21], [2, 6], [1, 0], [0, 1], [0, 1]])
    levels = Levels.of(table.sum(axis=1)[None, :].astype(float))
    view = levels.weighted(power)
    n, first = table.sum(), table[:, 0].sum()
    share = first / n
    # The rows of the first sample have the label 1 - share, the others -share.
    sums = table @ np.array([1.0 - share, -share])
    cross = levels.at_points(view.factor)[0] @ sums
    # Levels of one row are pooled.
    pooled = np.vstack([table[:4], table[4:].sum(axis=0)])
    rows = pooled.sum(axis=1)
    parts = (pooled[:, 0] - share * rows) ** 2 / (rows * share * (1.0 - share))
    assert parts.sum() == pytest.approx(chi2_contingency(pooled, correction=False).statistic)
    expected = (parts * rows ** (1.0 - power)).sum()
    assert (cross**2).sum() / (share * (1.0 - share)) == pytest.approx(expected, rel=1e-9)


def test_few_rows_have_the_pvalue_of_all_labellings():
    """Every labelling of ten rows, with the statistics written out."""
    rows = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 3])
    counts = np.bincount(rows)
    statistics = []
    labellings = list(combinations(range(10), 5))
    for chosen in labellings:
        away = np.bincount(rows[list(chosen)], minlength=4) - counts / 2
        # The level of one row is the only one that is pooled, and so remains a level of its own.
        statistics.append([(away**2 / counts**1.15).sum(), (away**2 / counts**0.4).sum()])
    values = np.round(np.array(statistics), 9)
    tails = np.array([[(other >= one).mean() for one in other] for other in values.T])
    rare = CLASSES[0].weight
    smallest = (tails / np.array([rare, 1.0 - rare])[:, None]).min(axis=0)
    expected = np.array([(smallest <= one * (1 + 1e-9)).mean() for one in smallest])
    for place in (0, 17, 60, 251):
        chosen = np.array(labellings[place])
        names = np.array(list("abcd"))[rows]
        found = pvalue_of(names[chosen], np.delete(names, chosen))
        assert found == pytest.approx(expected[place], rel=1e-9)


def test_a_new_rare_level_is_found_like_by_chi_square():
    rng = np.random.default_rng(5)
    usual = np.array([0.45, 0.3, 0.2, 0.05])
    first = np.array(list("abcd"))[rng.choice(4, 1000, p=usual)]
    second = np.array(list("abcde"))[rng.choice(5, 1000, p=[*(0.97 * usual), 0.03])]
    assert "e" in second
    chi_square = chi2_contingency(
        pd.crosstab(np.concatenate([first, second]), np.repeat([0, 1], 1000)), correction=False
    ).pvalue
    found = pvalue_of(first, second)
    # The union of the views costs at most their share of the level; rare levels have more weight than in chi-square.
    assert chi_square < 1e-3
    assert found <= 1.1 * chi_square / CLASSES[0].weight
    assert pvalue_of(first, second, kernel="delta") > 100 * found
    strata = np.tile(["one", "two"], 1000)
    frame = pd.DataFrame({"x": np.concatenate([first, second])})
    label = np.repeat(["before", "after"], 1000)
    assert relate(frame, label, strata=strata, k=None).pvalues[0] < 1e-3
    numbers = rng.normal(size=2000)
    assert relate(frame, label, given=numbers, k=None, random_state=0).pvalues[0] < 0.01


@pytest.mark.parametrize("design", ["rows", "strata", "units", "confounder"])
def test_a_rare_class_is_found_like_by_analysis_of_variance(design):
    rng = np.random.default_rng(2)
    classes = np.repeat(np.array(list("abc")), [1400, 500, 100])
    x = rng.normal(size=(2000, 2))
    x[:, 0] += 0.65 * (classes == "c")
    settings = {"k": None, "correction": None, "random_state": 0}
    if design == "strata":
        settings["strata"] = np.tile(["one", "two"], 1000)
    elif design == "units":
        # The rows of a unit are equal up to a little noise.
        settings["unit"] = np.repeat(np.arange(2000), 2)
        x, classes = np.repeat(x, 2, axis=0) + 0.01 * rng.normal(size=(4000, 2)), np.repeat(classes, 2)
    elif design == "confounder":
        settings["given"] = rng.normal(size=2000)
    found = relate(x, classes, **settings).pvalues
    parts = [x[classes == one, 0][:: 2 if design == "units" else 1] for one in "abc"]
    expected = f_oneway(*parts).pvalue
    assert expected < 1e-5
    assert found.min() < 1e-3
    if design == "rows":
        weight = next(pair.weight for pair in SEVERAL_CLASSES if pair.response == "balanced")
        # Beyond its share of the level the view has five directions, of which one differs.
        assert np.log(found.min()) == pytest.approx(np.log(expected / weight), abs=3.0)


def test_pvalues_of_several_classes_hold_with_rare_ones():
    rng = np.random.default_rng(8)
    classes, columns = np.repeat(np.array(list("abcd")), [3, 5, 60, 92]), 3000
    x = np.hstack([rng.normal(size=(160, columns)), rng.standard_t(2.0, (160, columns))])
    pvalues = relate(x, classes, k=None, correction=None, random_state=0).pvalues
    for level in (0.05, 0.01):
        error = np.sqrt(level * (1.0 - level) / (2 * columns))
        assert (pvalues <= level).mean() <= level + 4.0 * error
        assert (pvalues <= level).mean() >= 0.7 * level


def test_common_levels_are_found_among_many_rare_ones():
    """Chi-square alone has 99 degrees of freedom for a change of two levels."""
    rng = np.random.default_rng(3)
    shares = 1.0 / np.arange(1, 101)
    shares /= shares.sum()
    moved = shares.copy()
    moved[:2] += [-0.1, 0.1]
    names = np.array([f"level {place}" for place in range(100)])
    found, chi_square = [], []
    for _ in range(20):
        first, second = (names[rng.choice(100, 200, p=part)] for part in (shares, moved))
        found.append(pvalue_of(first, second) <= 0.05)
        counts = pd.crosstab(np.concatenate([first, second]), np.repeat([0, 1], 200))
        chi_square.append(chi2_contingency(counts, correction=False).pvalue <= 0.05)
    # Powers of about 0.75 and 0.25: their difference has a standard error of 0.1.
    assert np.mean(found) >= np.mean(chi_square) + 0.2


def test_a_given_equality_kernel_is_the_only_view():
    rng = np.random.default_rng(1)
    first, second = (np.array(list("abcdef"))[rng.choice(6, 80)] for _ in range(2))
    assert pvalue_of(first, second, kernel="delta") == pvalue_of(first, second, bandwidth="median")


def test_values_that_are_all_different_have_pvalue_one():
    names = np.array([f"row {place}" for place in range(120)])
    frames = [pd.DataFrame({"x": pd.Categorical(part)}) for part in (names[:50], names[50:])]
    result = compare(*frames, k=None, kinds={"x": "category"})
    assert result.pvalues.tolist() == [1.0]


def test_few_repeated_values_have_their_exact_law():
    """Three names occur twice, all others once: the pairs alone can differ between the samples."""
    names = np.append(np.repeat(["a", "b", "c"], 2), [f"row {place}" for place in range(34)])
    own = np.append(np.arange(6), np.arange(6, 20))
    frames = [pd.DataFrame({"x": pd.Categorical(part)}) for part in (names[own], np.delete(names, own))]
    found = compare(*frames, k=None, kinds={"x": "category"}).pvalues[0]
    # All six rows in one of two samples of 20 rows is the most extreme outcome.
    assert found == pytest.approx(2 * hypergeom.pmf(6, 40, 6, 20), rel=1e-9)


def test_two_levels_have_fishers_pvalue_in_both_questions():
    first, second = column(18, 2), column(11, 9)
    expected = fisher_exact([[18, 2], [11, 9]]).pvalue
    assert pvalue_of(first, second) == pytest.approx(expected, rel=1e-9)
    frame = pd.DataFrame({"x": np.concatenate([first, second])})
    related = relate(frame, np.repeat(["one", "two"], 20), k=None)
    assert related.pvalues[0] == pvalue_of(first, second)


@pytest.mark.parametrize(
    ("counts", "first"),
    [
        ([196, 80, 60, 40, 20, 4], 340),  # a rare level, uneven samples
        ([188, 80, 60, 40, 20, 12], 200),
        ([60, 30, 20, 15, 12, 10, 8, 7, 6, 5, 4, 4, 3, 3, 2, 2, *[1] * 9], 100),
        ([996, 400, 300, 200, 100, 4], 1900),
    ],
)
def test_the_level_holds_with_rare_levels(counts, first):
    """Permuted copies of one column: the true null. Tolerance: three standard errors of 3,000 permutations, and 10%."""
    rng = np.random.default_rng(len(counts))
    rows = np.repeat(np.arange(len(counts)), counts).astype(float)
    values = rng.permuted(np.broadcast_to(rows[:, None], (len(rows), 3000)), axis=0)
    names = tuple(str(place) for place in range(3000))
    levels = dict.fromkeys(names, tuple(str(place) for place in range(len(counts))))
    layout = (np.arange(3001), np.ones(3000, dtype=bool), levels)
    samples = [Table(names, part, *layout) for part in (values[:first], values[first:])]
    kernels = fit_kernels(Table(names, values, *layout), rng=rng)
    pvalues = ndtr(-complete_mmd(*samples, kernels, adaptive=True, rng=rng).estimate)
    for level in (0.05, 0.01):
        error = np.sqrt(level * (1 - level) / 3000)
        assert (pvalues <= level).mean() <= 1.1 * level + 3 * error
    assert (pvalues <= 0.05).mean() >= 0.03
    assert (pvalues <= 1e-4).sum() <= 4  # 0.3 expected


@pytest.mark.nightly
@pytest.mark.parametrize(("levels", "rows"), [(10, 60), (20, 300)])
def test_two_views_of_categories_share_the_level_as_they_occur_together(levels, rows):
    """Levels by Zipf's law, on which the views of rare and of common levels differ most."""
    rng, columns, calls = np.random.default_rng(7), 2000, 10
    probability = 1.0 / np.arange(1, levels + 1)
    below = 0
    for _ in range(calls):
        values = rng.choice(levels, size=(2 * rows, columns), p=probability / probability.sum())
        result = compare(values[:rows], values[rows:], kinds={"*": "category"}, correction=None, random_state=rng)
        below += (result.all_pvalues <= 0.05).sum()
    count = columns * calls
    # 0.056 to 0.057 if one direction is assumed for each view.
    assert below / count <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / count)


def test_levels_are_not_merged_where_rows_are_odd_in_number() -> None:
    """As many levels as points, in several columns at once: a column has the p-value that it has alone."""
    rng = np.random.default_rng(0)
    codes = [rng.permutation(np.concatenate([np.arange(96), rng.integers(0, 96, 205)])) for _ in range(2)]
    names = [f"level {i}" for i in range(96)]
    table = pd.DataFrame({f"x{j}": pd.Categorical.from_codes(own, names) for j, own in enumerate(codes)})
    both = compare(table[:100], table[100:], random_state=0)
    for name, pvalue in zip(both.names, both.pvalues, strict=True):
        alone = compare(table[[name]][:100], table[[name]][100:], random_state=0)
        assert pvalue == pytest.approx(alone.pvalues[0], rel=1e-9)


@pytest.mark.slow
def test_the_level_holds_with_rare_levels_and_many_classes() -> None:
    """Levels with few rows against 50 classes: two rows of one level in one class are rare and count much.

    The share of p-values at or below 0.01 was 0.015, the mean over many pairs of a column and a response.
    """
    rng, columns, pairs, n = np.random.default_rng(50), 1000, 8, 1500
    found = 0
    for _ in range(pairs):
        levels, classes = (
            np.minimum(rng.geometric(0.12, n), 60),
            np.char.add("class ", rng.integers(0, 50, n).astype(str)),
        )
        names = [f"level {level}" for level in range(61)]
        permuted = (pd.Categorical.from_codes(rng.permutation(levels), names) for _ in range(columns))
        frame = pd.DataFrame({f"c{place}": column for place, column in enumerate(permuted)})
        found += int((relate(frame, classes, correction=None, random_state=0).pvalues <= 0.01).sum())
    count = pairs * columns
    assert found / count <= 0.01 + 4.0 * np.sqrt(0.01 * 0.99 / count)


def test_small_expected_counts_have_the_skewness_of_random_tables():
    """Its leading directions have a skewness of 0.12. The standard error of that of 20,000 tables is 0.02."""
    rng = np.random.default_rng(0)
    margins = [np.bincount(rng.integers(30, size=300), minlength=30) for _ in range(2)]
    tables = random_table(*margins, seed=rng).rvs(20_000, method="boyett")
    statistic = ((tables - np.outer(*margins) / 300) ** 2).sum(axis=(1, 2))
    levels = tuple(map(str, range(30)))
    feature, response = (
        Table((name,), np.repeat(np.arange(30.0), rows)[:, None], np.arange(2), np.ones(1, dtype=bool), {name: levels})
        for name, rows in zip("xy", margins, strict=True)
    )
    kernels = [fit_kernels(table, rng=rng) for table in (feature, response)]
    scores = complete_hsic(feature, response, *kernels, rng=rng)
    assert scores.cov.laws.skewness[0] == pytest.approx(skew(statistic), abs=0.06)
