"""Descriptions of what changed name the change that was made, for every kind of data and of input."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import kernsift
from kernsift import InputError, compare, relate
from kernsift.data.tables import rows_to_show
from kernsift.report.contrasts import Contrast, DescribedFeature, best_contrast, changed_interval
from kernsift.report.descriptions import describe_columns, describe_levels, describe_numbers
from kernsift.report.number_format import DateScale, format_pair
from kernsift.report.pictures import Bars, Boxes
from kernsift.report.response_descriptions import describe_by_level, describe_cells, describe_curve

Rng = np.random.Generator
N = 400
SEEDS = range(10)

# Each makes two samples that differ in one way; the description begins with these words. Each contrast is larger than
# ten standard errors at this size, so that the words do not depend on the seed.
SAMPLES: dict[str, tuple[Callable[[Rng], tuple[np.ndarray, np.ndarray]], str]] = {
    "shift": (lambda r: (r.normal(size=N), r.normal(1.0, 1, N)), "higher in Y: median"),
    "skewed": (lambda r: (r.lognormal(size=N), r.lognormal(-1.0, 1, N)), "lower in Y: median"),
    "spread": (lambda r: (r.normal(size=N), r.normal(0, 2.5, N)), "wider in Y: IQR"),
    "less spread": (lambda r: (r.normal(size=N), r.normal(0, 0.4, N)), "narrower in Y: IQR"),
    "both": (lambda r: (r.normal(size=N), r.normal(1.2, 2.2, N)), "higher and wider in Y: median"),
    "zeros": (
        lambda r: (r.exponential(size=N) * (r.random(N) > 0.1), r.exponential(size=N) * (r.random(N) > 0.5)),
        "more zeros in Y",
    ),
    "a code for missing": (
        lambda r: (r.normal(50, 9, N), np.where(r.random(N) < 0.3, 999.0, r.normal(50, 9, N))),
        "more values of 999 in Y",
    ),
    "a long code for missing": (
        lambda r: (r.normal(50, 9, N), np.where(r.random(N) < 0.3, 99_999_999.0, r.normal(50, 9, N))),
        "more values of 99,999,999 in Y",
    ),
    "zeros among common values": (
        lambda r: (r.integers(55, 95, N) * 1.0, np.where(r.random(N) < 0.3, 0.0, r.integers(55, 95, N))),
        "more zeros in Y",
    ),
    "two modes": (
        lambda r: (r.normal(size=N), r.choice([-0.97, 0.97], N) + r.normal(0, 0.2, N)),
        "fewer between -",
    ),
    "a bump": (
        lambda r: (r.uniform(size=N), np.where(r.random(N) < 0.5, r.uniform(0.3, 0.4, N), r.uniform(size=N))),
        "more between 0.",
    ),
    "yes and no": (
        lambda r: ((r.random(N) < 0.3).astype(float), (r.random(N) < 0.8).astype(float)),
        "more often 1 in Y",
    ),
    "counts": (lambda r: (r.poisson(1.0, N) * 1.0, r.poisson(3.0, N) * 1.0), "higher in Y: median 3 v 1"),
    "ratings": (
        lambda r: (r.integers(1, 6, N) * 1.0, r.choice(5, N, p=[0.02, 0.03, 0.1, 0.35, 0.5]) + 1.0),
        "higher in Y: median",
    ),
    "gene": (lambda r: (r.poisson(0.05, N) * 1.0, r.poisson(0.9, N) * 1.0), "fewer zeros in Y"),
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_number_in_two_samples(kind: str) -> None:
    make, words = SAMPLES[kind]
    for seed in SEEDS:
        first, second = make(np.random.default_rng(seed))
        assert describe_numbers(first, second, "Y").text.startswith(words), (seed, describe_numbers(first, second).text)


def test_the_numbers_are_those_of_the_samples() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=N), rng.normal(1.5, 1, N)
    found = describe_numbers(x, y, "Y")
    assert found.medians == (np.median(x), np.median(y))
    assert found.detail == f"median {np.median(y):.3g} v {np.median(x):.3g}"
    x, y = np.r_[np.zeros(50), np.linspace(1, 2, 350)], np.r_[np.zeros(164), np.linspace(1, 2, 236)]
    assert describe_numbers(x, y, "Y").text == "more zeros in Y: 41% v 12%"
    assert describe_numbers(y, x, "Y").text == "fewer zeros in Y: 12% v 41%"
    y = np.r_[np.linspace(0, 1, 320), np.full(80, 30.0) + np.linspace(0, 1, 80)]
    assert describe_numbers(np.linspace(0, 1, 400), y, "Y").detail in ("20% v 0%", "20.0% v 0.0%")


def test_the_interval_that_changed_holds_the_share_it_says() -> None:
    for seed in SEEDS:
        make, _ = SAMPLES["a bump"]
        first, second = make(np.random.default_rng(seed))
        text = describe_numbers(first, second, "Y").text
        low, high = (float(part) for part in text.split(" in Y")[0].removeprefix("more between ").split(" and "))
        shares = [np.mean((sample > low) & (sample <= high)) for sample in (second, first)]
        assert text.endswith(f"{shares[0]:.0%} v {shares[1]:.0%}")


def test_levels() -> None:
    x = np.repeat([0, 1], [50, 50])
    assert describe_levels(x, np.repeat([0, 1, 2], [50, 41, 9]), ["a", "b", "other"], "Y").text == (
        "new level 'other' in Y: 9%"
    )
    assert describe_levels(x, np.repeat([0, 1], [80, 20]), ["a", "b"], "Y").text == "more 'a' in Y: 80% v 50%"
    assert describe_levels(np.repeat([0, 1, 2], [40, 30, 30]), x, ["a", "b", "c"], "Y").text == (
        "no 'c' in Y: 0% v 30%"
    )


def test_groups_of_columns() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(N, 3))
        assert describe_columns(x, rng.normal(size=(N, 3)) + 1, "Y").text.startswith("shifted in Y: by")
        assert describe_columns(x, 2 * rng.normal(size=(N, 3)), "Y").text.startswith("wider in Y: median distance")
        tied = rng.multivariate_normal([0, 0, 0], [[1, 0.8, 0], [0.8, 1, 0], [0, 0, 1]], N)
        found = describe_columns(x, tied, "Y")
        assert found.text.startswith("other correlation in Y: largest change 0.")


# Each makes a response from a normal feature; the description begins with these words.
CURVES: dict[str, tuple[Callable[[Rng, np.ndarray], np.ndarray], str]] = {
    "rises": (lambda r, x: x + r.normal(size=N), "rises: median of y"),
    "falls": (lambda r, x: np.exp(-x) + r.normal(size=N), "falls: median of y"),
    "a step": (lambda r, x: 4.0 * (x > 0.5) + r.normal(size=N), "rises: median of y"),
    "U": (lambda r, x: x**2 + 0.5 * r.normal(size=N), "U-shaped: median of y"),
    "inverted U": (lambda r, x: -np.abs(x) + 0.3 * r.normal(size=N), "inverted U: median of y"),
    "a wave": (lambda r, x: np.sin(4 * x) + 0.2 * r.normal(size=N), "goes up and down: median of y"),
    "a wave of which a fall explains as much as a U": (
        lambda r, x: np.sin(6 * stats.norm.cdf(x) * 2 - 6) + 0.2 * r.normal(size=N),
        "goes up and down: median of y",
    ),
    "spread": (lambda r, x: np.exp(0.8 * x) * r.normal(size=N), "spread of y rises: IQR"),
    "a cross": (lambda r, x: x * r.choice([-1, 1], N) + 0.2 * r.normal(size=N), "spread of y largest at the ends: IQR"),
}


@pytest.mark.parametrize("kind", CURVES)
def test_a_numeric_response(kind: str) -> None:
    make, words = CURVES[kind]
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=N)
        found = describe_curve(x, make(rng, x))
        assert found.text.startswith(words), (seed, found.text)


def test_several_classes() -> None:
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2], 100)
    higher = describe_by_level(rng.normal([0.0, 3.0, 1.0], 1, (100, 3)).T.ravel(), codes, ["A", "B", "C"]).text
    assert higher.startswith("differs by class: highest in B (median 2.9")
    assert "lowest in A" in higher
    wider = describe_by_level(rng.normal(0, [1.0, 5.0, 2.0], (100, 3)).T.ravel(), codes, ["A", "B", "C"]).text
    assert wider.startswith("differs by class: widest in B (IQR")
    # The largest median is that of a class of few rows, which is left out.
    values = np.concatenate([rng.normal([0.0, 3.0], 1, (100, 2)).T.ravel(), [9.0, 9.0]])
    few = describe_by_level(values, np.repeat([0, 1, 2], [100, 100, 2]), ["A", "B", "C"]).text
    assert few.startswith("differs by class of 5 or more rows: highest in B (median ")
    city = np.where(rng.random(300) < np.array([0.1, 0.9, 0.1])[codes], 1, 0)
    assert describe_cells(city, codes, ["Oslo", "Rome"], ["A", "B", "C"]).text.startswith("more 'Rome' in B: ")


def test_a_feature_without_rows_in_common_with_the_classes_has_no_description():
    response = ["u", "v", "w"] * 4 + [None] * 28
    table = pd.DataFrame({"a": np.arange(40.0), "b": [np.nan] * 12 + list(range(28)), "y": response})
    assert relate(table, "y", random_state=0).to_frame().set_index("feature")["description"]["b"] == ""


def mixed(rng: Rng, changed: bool) -> pd.DataFrame:
    n = 300
    frame = pd.DataFrame({"same": rng.normal(size=n), "age": rng.normal(40 + 9 * changed, 10, n)})
    frame["debt"] = rng.exponential(1000, n) * (rng.random(n) > (0.6 if changed else 0.1))
    frame["city"] = rng.choice(["Rome", "Oslo", "Bern"][: 2 + changed], n)
    frame["member"] = rng.random(n) < (0.9 if changed else 0.4)
    return frame


EXPECTED = {
    "age": "higher in Y: median",
    "debt": "more zeros in Y",
    "city": "new level 'Bern' in Y",
    "member": "more often True in Y",
}


@pytest.mark.parametrize("estimator", ["complete", "cross", "incomplete", "block", "linear"])
def test_every_estimator_describes(estimator: str) -> None:
    rng = np.random.default_rng(3)
    result = kernsift.compare(mixed(rng, False), mixed(rng, True), estimator=estimator, random_state=0)
    for name in result.names:
        if result[name].rejected and name != "same":
            assert result[name].description.startswith(EXPECTED[name])
    assert result["age"].rejected
    # Without a discovery there is no direction to report.
    assert result["same"].rejected or result["same"].description.startswith("median ")


def test_truth_values_are_described_as_such(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    one, two = mixed(rng, False)[["age", "member"]], mixed(rng, True)[["age", "member"]]
    path = tmp_path / "one.parquet"
    one.to_parquet(path)
    for first in (one, str(path)):
        found = kernsift.compare(first, two, memory="1GB", random_state=0)
        assert said(found, "member").startswith("more often True in Y: ")
        picture = found.pictures[found.names.index("member")]
        assert isinstance(picture, Bars) and picture.levels == ("False", "True")
        for second in (two, two.assign(member=two["member"].astype(str))):
            equal = kernsift.compare(first, second, kinds={"member": "category"}, memory="1GB", random_state=0)
            assert re.match(r"(more 'True'|fewer 'False') in Y: ", said(equal, "member"))
            bars = equal.pictures[equal.names.index("member")]
            assert isinstance(bars, Bars) and bars.levels == ("False", "True")
    both = pd.concat([one, two]).assign(y=np.repeat(["a", "b", "c"], 200))
    by_class = kernsift.relate(both, "y", random_state=0)
    assert said(by_class, "member").startswith("differs by class: True most often in y = c (")
    rising = kernsift.relate(both.assign(y=np.arange(600.0)), "y", random_state=0)
    boxes = rising.pictures[rising.names.index("member")]
    assert isinstance(boxes, Boxes) and boxes.levels == ("False", "True")
    # Each of many classes has a bar of its own.
    many = kernsift.relate(both.assign(y=np.repeat(list("abcdef"), 100)), "y", random_state=0)
    drawn = many.pictures[many.names.index("member")]
    assert isinstance(drawn, Bars) and drawn.label == "member = True by y" and drawn.levels == tuple("abcdef")
    shares = [both["member"].iloc[first : first + 100].mean() for first in range(0, 600, 100)]
    np.testing.assert_allclose(drawn.shares[0], shares)


def test_missing_values_that_are_tested_are_described() -> None:
    rng = np.random.default_rng(0)
    X, Y = (pd.DataFrame({"a": rng.normal(size=300), "b": rng.normal(size=300)}) for _ in range(2))
    Y.loc[::3, "a"] = np.nan
    Y["b"] += 1
    assert kernsift.compare(X, Y, missing="value", random_state=0)["a"].description == "more missing in Y: 33% v 0%"
    assert kernsift.compare(X, Y, missing="value", random_state=0)["b"].description.startswith("higher in Y")
    assert kernsift.compare(X, Y, missing="column", random_state=0)["a"].description.startswith("median")


def test_missing_values_that_go_with_a_response_are_described() -> None:
    rng = np.random.default_rng(0)
    y, batch = rng.normal(size=600), rng.integers(0, 3, 600)
    gone = rng.random(600) < np.where(y > 0, 0.5, 0.1)
    X = pd.DataFrame({"a": rng.normal(size=600), "b": y + 0.5 * rng.normal(size=600)}).mask(np.c_[gone, gone])
    two, three = np.where(y > 0, "high", "low"), np.where(y > 1, "top", np.where(y > 0, "high", "low"))
    shares = f"{gone[y <= 0].mean():.0%} v {gone[y > 0].mean():.0%}"
    for more in ({}, {"strata": batch}, {"given": batch}):
        told = partial(kernsift.relate, X, missing="value", random_state=0, **more)
        held = {"strata": " within strata", "given": " given 1 confounder"}.get("".join(more), "")
        # Rows are weighted by what is held fixed.
        seen = shares if not more else ""
        assert told(two)["a"].description.startswith(f"fewer missing in y = low{held}: {seen}")
        assert told(three)["a"].description.startswith(f"fewer missing in y = low{held}: {seen}")
        assert told(three)["a"].description.endswith(" elsewhere")
        assert f" where missing{held}: " in told(y)["a"].description
        # What the values show, where that is more.
        assert told(y)["b"].description.startswith("rises")
        assert "missing" not in told(three)["b"].description
    means = [float(y[rows].mean()) for rows in (gone, ~gone)]
    linear = kernsift.relate(X[["a"]], y, missing="value", kernel="linear", random_state=0)
    assert linear["a"].description == f"y higher where missing: mean {means[0]:.3g} v {means[1]:.3g}"
    # Two values in three classes.
    X["a"] = (X["a"] > 0).where(~gone).astype(float)
    assert kernsift.relate(X, three, missing="value", random_state=0)["a"].description == (
        f"fewer missing in y = low: {shares} elsewhere"
    )


def test_two_medians_without_a_direction_name_the_level_of_the_first() -> None:
    rng = np.random.default_rng(0)
    y, arm = rng.normal(size=200), np.repeat(["drug", "none"], 100)
    X = pd.DataFrame({"arm": arm, "x": rng.normal(size=200)})
    with_numbers, with_classes = relate(X[["arm"]], y, random_state=0), relate(X[["x"]], arm, random_state=0)
    assert not (with_numbers.rejected.any() or with_classes.rejected.any())
    of_y, of_x = (f"median {np.median(v[100:]):.3g} v {np.median(v[:100]):.3g}" for v in (y, X["x"].to_numpy()))
    assert with_numbers["arm"].description == f"in 'none': {of_y}"
    assert with_classes["x"].description == f"in y = none: {of_x}"
    # Samples are named below the table.
    assert compare(X.iloc[:100, 1:], X.iloc[100:, 1:], random_state=0)["x"].description == of_x


def test_a_linear_kernel_sees_means() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(200, 2)), rng.normal(size=(200, 2)) + 1
    result = kernsift.compare(X, Y, kernel="linear", random_state=0)
    assert result["x0"].description == f"higher in Y: mean {Y[:, 0].mean():.3g} v {X[:, 0].mean():.3g}"
    same = kernsift.compare(X[::2], X[1::2], kernel="linear", random_state=0)["x1"]
    assert not same.rejected
    assert same.description == f"mean {X[1::2, 1].mean():.3g} v {X[::2, 1].mean():.3g}"
    found = kernsift.relate(X, X[:, 0] - 5 * X[:, 1], kernel="linear", random_state=0)
    assert found["x1"].description.startswith("falls: correlation -0.9")


def test_files_and_dask_give_the_same_words(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    X, Y = mixed(rng, False), mixed(rng, True)
    X.loc[::3, "age"] = np.nan
    expected = kernsift.compare(X, Y, missing="column", random_state=0)
    for name, frame in (("X", X), ("Y", Y)):
        frame.to_parquet(tmp_path / f"{name}.parquet")
    found = kernsift.compare(tmp_path / "X.parquet", tmp_path / "Y.parquet", missing="column", random_state=0)
    inputs: list[Any] = [found]
    dask = pytest.importorskip("dask.dataframe", reason="no dask: pip install '.[all]'")
    lazy = [dask.from_pandas(frame, npartitions=2) for frame in (X, Y)]
    inputs.append(kernsift.compare(*lazy, missing="column", random_state=0))
    for other in inputs:
        assert tuple(other.descriptions) == tuple(expected.descriptions)
        np.testing.assert_array_equal(other.n, expected.n)
    assert (expected["age"].n, expected["age"].missing) == (500, pytest.approx(1 / 6))


def test_responses_of_every_kind() -> None:
    rng = np.random.default_rng(0)
    X = mixed(rng, False)
    y = X["age"] + rng.normal(size=len(X))
    rising = kernsift.relate(X, y.rename("income"), random_state=0)["age"]
    assert rising.description.startswith("rises: median of income")
    labels = np.where(X["age"] > 45, "old", np.where(X["age"] > 35, "middle", "young"))
    found = kernsift.relate(X, labels, random_state=0)["age"].description
    assert found.startswith("differs by class: highest in y = old")
    # A number with two values is two classes, in words and in pictures.
    two = kernsift.relate(X, (X["age"] > 40).astype(int).rename("old"), random_state=0)
    assert two["age"].description.startswith("higher in old = 1: median")
    assert type(two.pictures[0]).__name__ in ("Histogram", "Bars")
    by_city = kernsift.relate(X, y + 30 * (X["city"] == "Rome"), random_state=0)["city"].description
    assert by_city.startswith("y higher in 'Rome': median")


def test_data_frames_and_records() -> None:
    rng = np.random.default_rng(3)
    result = kernsift.compare(mixed(rng, False), mixed(rng, True), random_state=0)
    frame = result.to_frame()
    assert {"n", "missing", "median_first", "median_second", "description"} <= set(frame.columns)
    assert (frame["n"] == 600).all() and (frame["missing"] == 0).all()
    assert frame.loc[frame["feature"] == "city", ["median_first"]].isna().all().all()
    assert result.to_frame(sort="name")["feature"].tolist() == sorted(result.names)
    assert result.to_frame(sort="effect")["effect"].is_monotonic_decreasing
    assert "age" in result and "agee" not in result and 0 not in result
    with pytest.raises(TypeError, match="not iterable"):
        list(result)  # type: ignore[arg-type]
    record = result["age"]
    assert record == result.feature("age")
    assert (record.n, record.listed, record.rejected) == (600, True, True)
    with pytest.raises(InputError, match="did you mean 'age'"):
        result["agee"]
    with pytest.raises(InputError, match="sort: needs 'p', 'effect' or 'name', got 'size'"):
        result.to_frame(sort="size")
    short = kernsift.compare(mixed(rng, False), mixed(rng, True), k=1, random_state=0)
    outside = next(name for name in short.feature_names if name not in short.names)
    assert (short[outside].listed, short[outside].effect) == (False, None)
    again = pickle.loads(pickle.dumps(result))
    assert again["age"] == record


def test_many_features_are_described_up_to_a_limit() -> None:
    from kernsift.data.tables import MOST_DESCRIBED

    rng = np.random.default_rng(0)
    d = MOST_DESCRIBED + 5
    X, Y = rng.normal(size=(12, d)), rng.normal(size=(12, d))
    Y[:, :3] += 9
    result = kernsift.compare(X, Y, random_state=0)
    assert all(result.describe(row).startswith("higher in Y") for row in range(3))
    assert [result.describe(row) for row in range(MOST_DESCRIBED, d)] == [""] * 5
    assert result.describe(MOST_DESCRIBED - 1).startswith("median")


def test_a_feature_without_values_in_a_sample() -> None:
    X = pd.DataFrame({"a": [np.nan] * 30, "b": np.arange(30.0)})
    Y = pd.DataFrame({"a": np.arange(30.0), "b": np.arange(30.0) + 40})
    result = kernsift.compare(X, Y, missing="column", random_state=0)
    assert result["a"].description == ""
    assert result["b"].description.startswith("higher in Y")
    for picture in result.pictures:
        assert picture.series == ("X", "Y")  # type: ignore[union-attr]


def confounded(rng: Rng, n: int = 1500) -> pd.DataFrame:
    """Columns that differ between the labels in one way overall, and in the other within sites."""
    site = rng.integers(0, 4, n)
    ill = (rng.random(n) < np.array([0.1, 0.4, 0.6, 0.9])[site]).astype(int)
    frame = pd.DataFrame({"site": site, "ill": ill})
    share = np.array([0.2, 0.4, 0.7, 0.95])[site] - 0.15 * ill
    frame["number"] = 3.0 * site - ill + rng.normal(size=n)
    frame["yes"] = (rng.random(n) < share).astype(int)
    frame["level"] = np.where(rng.random(n) < share, "a", rng.choice(["b", "c"], n))
    frame["zeros"] = np.where(rng.random(n) < share, rng.exponential(size=n), 0.0)
    return frame


WITHIN = {"number": "lower", "yes": "less often 1", "level": "fewer 'a'", "zeros": "more zeros"}
OVERALL = {"number": "higher", "yes": "more often 1", "level": "more 'a'", "zeros": "fewer zeros"}


def said(result: kernsift.Result, name: str) -> str:
    """The description of a feature, without the interval that a record has."""
    return result.describe(result.names.index(name))


@pytest.mark.parametrize(
    ("arguments", "words"), [({"strata": "site"}, "within strata"), ({"given": ["site"]}, "given site")]
)
def test_the_direction_is_that_of_what_is_held_fixed(arguments: dict[str, Any], words: str) -> None:
    frame = confounded(np.random.default_rng(0))
    overall = kernsift.compare(frame.drop(columns="site"), by="ill", random_state=0)
    held = kernsift.compare(frame, by="ill", random_state=0, **arguments)
    related = kernsift.relate(frame, "ill", random_state=0, **arguments)
    for name, phrase in WITHIN.items():
        assert said(overall, name).startswith(f"{OVERALL[name]} in ill = 1:"), name
        assert held.rejected[held.names.index(name)]
        assert said(held, name).startswith(f"{phrase} in ill = 1 {words}:"), (name, said(held, name))
        assert said(related, name).startswith(f"{phrase} in ill = 1 {words}:"), name
    # Medians, which data frames have as columns, are those of the whole samples.
    medians = held.descriptions[held.names.index("number")].medians
    assert list(medians) == frame.groupby("ill")["number"].median().tolist()


def test_a_numeric_response_within_strata_and_given_confounders() -> None:
    rng = np.random.default_rng(0)
    frame = confounded(rng)
    frame["y"] = 9.0 * frame["site"] - frame["number"] + 0.5 * rng.normal(size=len(frame))
    frame["y"] += np.where(frame["level"] == "a", -1.0, 0.0)
    assert said(kernsift.relate(frame.drop(columns="site"), "y", random_state=0), "number").startswith("rises")
    for arguments, words in (({"strata": "site"}, "within strata"), ({"given": ["site"]}, "given site")):
        held = kernsift.relate(frame.drop(columns="ill"), "y", random_state=0, **arguments)
        assert said(held, "number").startswith(f"falls {words}: median of y"), said(held, "number")
        assert said(held, "level").startswith(f"y differs by class {words}: highest in ")
        assert "lowest in a" in said(held, "level")


GIVEN: dict[str, tuple[Callable[[Rng, np.ndarray, np.ndarray], np.ndarray], str, dict[str, Any]]] = {
    "higher overall": (lambda r, z, ill: 2 * z - 0.9 * ill + r.normal(size=z.size), "lower in ill = 1 given z", {}),
    "wider": (lambda r, z, ill: z + (1 + ill) * r.normal(size=z.size), "wider in ill = 1 given z", {}),
    # Residuals of adaptive kernels do not show this change: those of a kernel of the values do.
    "up above, down below": (
        lambda r, z, ill: z + ill * np.sign(z) + 0.7 * r.normal(size=z.size),
        "wider in ill = 1 given z",
        {"bandwidth": "median"},
    ),
    "zeros": (
        lambda r, z, ill: np.where(r.random(z.size) < 0.1 + 0.5 * ill, 0.0, np.exp(z + r.normal(size=z.size))),
        "more zeros in ill = 1 given z",
        {},
    ),
    "a spread that follows z": (
        lambda r, z, ill: np.exp(0.5 * z) * r.normal(size=z.size) + ill,
        "higher in ill = 1 given z",
        {},
    ),
}


@pytest.mark.parametrize("kind", GIVEN)
def test_the_relation_that_is_left_given_a_confounder(kind: str) -> None:
    make, words, options = GIVEN[kind]
    for seed in range(3):
        rng = np.random.default_rng(seed)
        z = rng.normal(size=800)
        ill = (rng.random(800) < 1 / (1 + np.exp(-1.5 * z))).astype(int)
        frame = pd.DataFrame({"z": z, "x": make(rng, z, ill), "ill": ill})
        text = said(kernsift.relate(frame, "ill", given="z", random_state=0, **options), "x")
        assert text.startswith(words), (seed, text)


def test_a_large_unit_counts_as_one() -> None:
    rng = np.random.default_rng(0)
    sizes = np.where(np.arange(20) == 3, 600, 20)
    donor = np.repeat(np.arange(20), sizes)
    value = rng.normal(size=20)[donor] * 0.3 + rng.normal(size=len(donor)) - 1.5 * (donor % 2)
    value[donor == 3] += 3.5
    frame = pd.DataFrame({"gene": value, "donor": donor, "treated": donor % 2})
    medians = frame.groupby("treated")["gene"].median()
    assert medians[1] > medians[0]
    by_unit = kernsift.compare(frame, by="treated", unit="donor", random_state=0)
    assert by_unit.rejected.all()
    assert said(by_unit, "gene").startswith("lower in treated = 1: median")


def test_pairs() -> None:
    rng = np.random.default_rng(0)
    before = rng.normal(size=(80, 2)) * [5.0, 1.0]
    after = before + 0.2 * rng.normal(size=(80, 2)) + [0.3, 0.0]
    after[:, 1] *= 2.0
    result = kernsift.compare(before, after, paired=True, random_state=0)
    assert said(result, "x0").startswith("higher in Y within pairs: median")
    assert said(result, "x1").startswith("wider in Y within pairs: ")


def test_the_view_with_the_smallest_p_value_decides() -> None:
    def chosen(shape: float, interval: float, view: str) -> str:
        return best_contrast(Contrast(shape, "higher", ""), None, Contrast(interval, "more between", ""), view).change

    # The narrow view has seen the interval, so that no allowance is made for its being the largest of many.
    assert [chosen(15.0, 30.0, view) for view in ("moments", "", "narrow")] == ["more between"] * 3
    assert [chosen(20.0, 30.0, view) for view in ("moments", "", "narrow")] == ["higher", "higher", "more between"]
    assert [chosen(25.0, 30.0, view) for view in ("moments", "", "narrow")] == ["higher"] * 3


def test_a_value_far_from_all_others() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        pulse, other = rng.normal(70, 10, size=(2, 2000)).round()
        other[rng.random(2000) < 0.05] = 0.0
        for view in ("moments", "fine", ""):
            text = describe_numbers(pulse, other, "Y", DescribedFeature(view=view)).text
            assert text.startswith("more zeros in Y: "), seed
        # A tail that a tenth of the values makes is a matter of its own range.
        tail = np.where(rng.random(2000) < 0.1, 2.2, 1.0) * rng.normal(70, 15, 2000)
        text = describe_numbers(rng.normal(70, 15, 2000), tail, "Y", DescribedFeature(view="moments")).text
        assert re.match("(higher and )?wider in Y: .*5-95% range", text), text


def test_ends_of_intervals_can_be_told_apart() -> None:
    """Values far from 0, and a common value at the lower end, which the interval does not hold."""
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        first, second = rng.normal(size=N), rng.choice([-0.97, 0.97], N) + rng.normal(0, 0.2, N)
        text = describe_numbers(1e6 + first, 1e6 + second, "Y").text
        found = re.fullmatch(r"fewer between ([\d,.]+) and ([\d,.]+) in Y: (\d+)% v (\d+)%", text)
        assert found is not None, text
        low, high = (float(end.replace(",", "")) - 1e6 for end in found.groups()[:2])
        shares = [np.mean((sample > low) & (sample <= high)) for sample in (second, first)]
        np.testing.assert_allclose(100 * np.array(shares), [float(number) for number in found.groups()[2:]], atol=0.501)
        zeros = rng.random((3, N)) < 0.3
        parts = np.where(zeros, 0.0, rng.exponential(size=(3, N)))
        parts[2][~zeros[2]] = np.where(rng.random((~zeros[2]).sum()) < 0.5, rng.uniform(0, 0.2, (~zeros[2]).sum()), 3.0)
        text = describe_by_level(parts.ravel(), np.repeat([0, 1, 2], N), ["a", "b", "c"]).text
        assert "outside 0" not in text and "between 0 and" not in text, text


def test_zeros_of_one_class_of_three() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        values = np.where(rng.random((3, N)) < [[0.3], [0.3], [0.6]], 0.0, rng.exponential(size=(3, N)))
        found = describe_by_level(values.ravel(), np.repeat([0, 1, 2], N), ["a", "b", "c"])
        assert found.text.startswith("more zeros in c: "), found.text


def test_a_linear_kernel_and_three_classes_have_means() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=600) + np.repeat([0, 0, 1], 200), "y": np.repeat(["a", "b", "c"], 200)})
    text = said(kernsift.relate(frame, "y", kernel="linear", random_state=0), "x")
    assert text.startswith("differs by class: highest in y = c (mean "), text


def test_moments_are_those_of_the_values() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        heavy = describe_numbers(rng.normal(size=N), rng.standard_t(1.5, size=N), "Y", DescribedFeature(view="moments"))
        assert heavy.text.startswith("wider in Y: "), heavy.text


def test_results_carry_the_views_to_their_descriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernsift.report import feature_descriptions

    seen: dict[str, str] = {}
    real = feature_descriptions.describe_numbers

    def spy(first: np.ndarray, second: np.ndarray, where: str, feature: DescribedFeature) -> Any:
        seen[where] = feature.view
        return real(first, second, where, feature)

    monkeypatch.setattr(feature_descriptions, "describe_numbers", spy)
    rng = np.random.default_rng(0)
    shifted = rng.normal(size=(300, 1)), rng.normal(0.5, 1, size=(300, 1))
    modes = rng.normal(size=(300, 1)), rng.choice([-0.97, 0.97], (300, 1)) + rng.normal(0, 0.2, (300, 1))
    for samples, expected in ((shifted, {"rank-scores", "location-scale"}), (modes, {"narrow"})):
        assert said(kernsift.compare(*samples, random_state=0), "x0")
        assert seen["Y"] in expected
        gaps = [np.append(sample, np.nan)[:, None] for sample in samples]
        assert said(kernsift.compare(*gaps, random_state=0), "x0")
        assert seen["Y"] in expected
        given = rng.normal(size=600)
        assert said(kernsift.compare(*samples, given=given, random_state=0), "x0")
        assert seen["Y"] in expected
    assert said(kernsift.compare(*shifted, estimator="cross", random_state=0), "x0")
    assert seen["Y"] == ""


def test_one_class_of_another_shape() -> None:
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2], 300)
    values = np.concatenate([rng.normal(size=600), rng.choice([-0.97, 0.97], 300) + rng.normal(0, 0.2, 300)])
    assert describe_by_level(values, codes, ["A", "B", "C"]).text.startswith("fewer between -")
    assert " in C: " in describe_by_level(values, codes, ["A", "B", "C"]).text


def holds(text: str) -> bool:
    """Whether the numbers of a description show what its words say."""
    start, _, detail = text.partition(": ")
    shares = [float(part.replace(",", "")) for part in re.findall(r"(?<![\w.])-?[\d,]*\.?\d+(?:e-?\d+)?(?=%)", detail)]
    found = [
        float(part.replace(",", "")) for part in re.findall(r"(?<![\w.])-?[\d,]*\.?\d+(?:e-?\d+)?(?![\w%])", detail)
    ]
    if not detail:
        return True
    for word, up in (("higher", True), ("lower", False), ("wider", True), ("narrower", False)):
        if re.search(rf"\b{word}\b", start):
            own = detail.split(", ")[1 if word in ("wider", "narrower") and " and " in start else 0]
            first, second = re.findall(r"(-?[\d,]*\.?\d+(?:e-?\d+)?)%? v (-?[\d,]*\.?\d+(?:e-?\d+)?)", own)[0]
            if (float(first.replace(",", "")) > float(second.replace(",", ""))) != up:
                return False
    if start.startswith(("more", "fewer", "less", "new")) and len(shares) == 2:
        return (shares[0] > shares[1]) == start.startswith("more")
    if start.endswith(("rises", "falls")):
        return (found[1] > found[0]) == start.endswith("rises")
    if start in ("U-shaped", "inverted U"):
        return found[1] < min(found[0], found[2]) if start == "U-shaped" else found[1] > max(found[0], found[2])
    if "largest" in start:
        return min(found[0], found[2]) > found[1] if "ends" in start else max(found[0], found[2]) < found[1]
    return True


# Columns of every kind, some of them awkward: ties, rare values, heavy tails, equal medians, few rows.
COLUMNS: dict[str, Callable[[Rng, int], np.ndarray]] = {
    "normal": lambda r, n: r.normal(size=n),
    "shifted": lambda r, n: r.normal(0.4, 1, n),
    "wide": lambda r, n: r.normal(0, 1.5, n),
    "Cauchy": lambda r, n: r.standard_cauchy(n),
    "lognormal": lambda r, n: r.lognormal(0, 1.5, n) - 1,
    "modes": lambda r, n: r.choice([-1.0, 1.0], n) + 0.3 * r.normal(size=n),
    "zeros": lambda r, n: r.normal(size=n) * (r.random(n) < 0.5),
    "rounded": lambda r, n: r.normal(0.2, 1, n).round(),
    "counts": lambda r, n: r.poisson(0.7, n) * 1.0,
    "rare": lambda r, n: (r.random(n) < 0.03) * 1.0,
    "large": lambda r, n: 1e6 + 3e5 * r.normal(size=n),
    "small": lambda r, n: 1e-7 * r.exponential(size=n),
}


@pytest.mark.parametrize("view", ["", "moments", "rank-scores", "smooth", "narrow"])
def test_numbers_show_what_the_words_say_of_two_samples(view: str) -> None:
    for seed, (one, two) in enumerate(product(COLUMNS, COLUMNS)):
        rng = np.random.default_rng(seed)
        for n in (8, 300):
            found = describe_numbers(COLUMNS[one](rng, n), COLUMNS[two](rng, n + 5), "Y", DescribedFeature(view=view))
            assert holds(found.text), (one, two, n, found.text)


def test_numbers_show_what_the_words_say_of_a_response() -> None:
    cases = list(enumerate(product(COLUMNS, COLUMNS, CURVES.values())))
    for seed, (one, two, (make, _)) in cases[::7]:
        rng = np.random.default_rng(seed)
        for n in (8, 40, N):
            x = COLUMNS[one](rng, N)
            standard = (x - np.median(x)) / (np.subtract(*np.percentile(x, [75, 25])) or 1.0)
            y = make(rng, np.clip(standard, -9, 9))[:n]
            y = y + COLUMNS[two](rng, n)
            found = describe_curve(x[:n], y, feature=DescribedFeature(view=["", "wide"][seed % 2]))
            assert holds(found.text), (one, two, n, found.text)


def test_a_number_with_two_values_in_several_classes() -> None:
    codes = np.repeat([0, 1, 2], 10)
    values = np.r_[np.zeros(10), np.repeat([0.0, 1.0], 5), np.ones(10)]
    text = describe_by_level(values, codes, ["A", "B", "C"]).text
    assert text == "differs by class: 1 most often in C (100%), least in A (0%)"


def test_classes_with_the_same_extreme_are_counted() -> None:
    values = np.r_[np.tile([1.0, 2.0, 3.0], 10), np.tile([2.0, 3.0, 4.0], 10), np.tile([2.0, 3.0, 5.0], 10)]
    text = describe_by_level(values, np.repeat([0, 1, 2], 30), ["A", "B", "C"]).text
    assert text == "differs by class: highest in B and 1 other (median 3), lowest in A (2)"
    twice = describe_by_level((values > 1).astype(float), np.repeat([0, 1, 2], 30), ["A", "B", "C"]).text
    assert twice == "differs by class: 1 most often in B and 1 other (100%), least in A (67%)"


def test_curves_do_not_depend_on_the_order_of_rows_with_ties() -> None:
    """Half of the feature is 0, where the response falls along the rows; along the feature it falls."""
    rng = np.random.default_rng(0)
    x = np.repeat([0.0, *range(1, 21)], [200, *[10] * 20])
    y = np.r_[-np.sort(-rng.normal(115, 12, 200)), rng.normal(97, 12, 200)]
    found = describe_curve(x, y)
    assert found.text == f"falls: median of y {np.median(y[:200]):.3g} to {np.median(y[-80:]):.3g}"
    frame = pd.DataFrame({"x": x, "y": y})
    (picture,) = relate(frame, "y", random_state=0).pictures
    for seed in range(5):
        rows = np.random.default_rng(seed).permutation(400)
        assert describe_curve(x[rows], y[rows]) == found
        (other,) = relate(frame.iloc[rows], "y", random_state=0).pictures
        assert (other.middles, other.quartiles) == (picture.middles, picture.quartiles)


def test_one_of_few_values_is_named() -> None:
    """Uniform on 0 to 8 and on 1 to 9: the complement of an interval may be one value, too."""
    first, second = np.repeat(np.arange(9.0), 30), np.repeat(np.arange(1.0, 10.0), 30)
    assert changed_interval(first, second).change in ("fewer zeros", "more values of 9")
    assert changed_interval(first[30:], second).change == "more values of 9"
    assert changed_interval(second, first[30:]).change == "fewer values of 9"
    assert changed_interval(first, second[:-30]).change == "fewer zeros"
    assert changed_interval(first - 3.0, second[:-30] - 3.0).change == "fewer values of -3"


def _share_meant(change: str, values: np.ndarray, low: float, high: float) -> float:
    """The share of the values that a phrase about an interval means."""
    within = {
        f"more between {low:g} and {high:g}": (values >= low) & (values <= high),
        f"more above {low:g} and up to {high:g}": (values > low) & (values <= high),
        f"fewer up to {low:g} or above {high:g}": (values <= low) | (values > high),
    }
    return float(within[change].mean())


@pytest.mark.parametrize("digits", [0, 1, 2])
def test_the_shares_of_an_interval_are_those_of_the_values_in_it(digits: int) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        first = rng.uniform(20, 40, 900).round(digits)
        second = np.where(rng.random(900) < 0.2, rng.uniform(25, 31, 900), rng.uniform(20, 40, 900)).round(digits)
        found = changed_interval(first, second)
        low, high = (float(number) for number in re.findall(r"\d+(?:\.\d+)?", found.change))
        shares = [_share_meant(found.change, values, low, high) for values in (second, first)]
        assert found.detail == " v ".join(f"{share:.0%}" for share in shares), found


def test_features_without_evidence_have_means_where_medians_are_equal() -> None:
    rng = np.random.default_rng(0)
    X, Y = (pd.DataFrame({"counts": rng.poisson(0.2, N), "one": 1.0, "x": rng.normal(size=N)}) for _ in range(2))
    result = compare(X, Y, random_state=0)
    assert not result.rejected.any()
    means = format_pair(float(Y["counts"].mean()), float(X["counts"].mean()))
    assert said(result, "counts") == f"mean {' v '.join(means)}"
    assert said(result, "one") == "median 1 v 1"
    assert said(result, "x").startswith("median ")


def test_medians_of_the_table_have_no_hidden_origin() -> None:
    days = [pd.Series(pd.date_range(start, periods=31, freq="D")) for start in ("2024-01-01", "2024-03-01")]
    codes = [pd.Series(np.arange(31) ** 2 + 2**60 + shift) for shift in (0, 2**40)]
    start = days[0][0]
    X, Y = (pd.DataFrame({"day": days[i], "code": codes[i], "t": days[i] - start}) for i in (0, 1))
    frame = compare(X, Y, random_state=0, kinds={"code": "number"}).to_frame().set_index("feature")
    medians = frame[["median_first", "median_second"]]
    assert pd.to_datetime(medians.loc["day"], unit="D").tolist() == [day.median() for day in days]
    assert medians.loc["t"].tolist() == [15.0, 75.0]
    np.testing.assert_allclose(medians.loc["code"], [code.median() for code in codes], rtol=1e-15)


def test_a_censored_response_has_means() -> None:
    """The kernel of log-rank scores is linear, so that a change of their spread, which has no meaning, is not said."""
    rng = np.random.default_rng(0)
    n = 500
    X = pd.DataFrame({"risk": rng.normal(size=n), "u": rng.normal(size=n), "arm": rng.choice(["a", "b"], n)})
    X["stage"] = rng.choice(["I", "II", "III"], n)
    time = rng.exponential(np.exp(-X["risk"] - X["u"] ** 2 - (X["arm"] == "b") - 1.5 * (X["stage"] == "III")))
    limit = rng.exponential(1.0, n)
    y = np.minimum(time, limit), time <= limit
    for options in ({}, {"strata": rng.integers(0, 2, n)}, {"given": rng.normal(size=n)}):
        result = kernsift.relate(X, y, random_state=0, **options)  # type: ignore[arg-type]
        assert said(result, "risk").startswith("rises"), said(result, "risk")
        assert said(result, "u").startswith("U-shaped"), said(result, "u")
        assert said(result, "arm").startswith("time (risk score) higher in 'b'")
        assert "highest in III (mean" in said(result, "stage")
        assert all("mean" in result.describe(row) for row in range(4))


def test_columns_that_are_one_feature_in_two_classes() -> None:
    """A change of correlation, which no single direction shows, is described alike in all calls."""
    rng = np.random.default_rng(0)
    tied = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], N)
    frame = pd.DataFrame(np.concatenate([rng.normal(size=(N, 2)), tied]), columns=["a", "b"])
    frame["y"] = np.repeat(["no", "yes"], N)
    related = kernsift.relate(frame, "y", groups={"pair": ["a", "b"]}, random_state=0)
    compared = kernsift.compare(frame, by="y", groups={"pair": ["a", "b"]}, random_state=0)
    assert said(related, "pair").startswith("other correlation in y = yes: largest change 0.")
    assert said(compared, "pair").startswith("other correlation in yes: largest change 0.")


def _dated(days: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"when": np.datetime64("2024-01-26", "s") + np.round(days * 86400).astype("m8[s]")})


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (np.arange(61.0), np.arange(61.0) + 29, "later in Y: median 2024-03-25 v 2024-02-25"),
        (np.arange(61.0) + 29, np.arange(61.0), "earlier in Y: median 2024-02-25 v 2024-03-25"),
        # Where days do not differ, minutes do.
        (np.arange(61) / 200, np.arange(61) / 200 + 0.2, "later in Y: median 2024-01-26 08:24 v 2024-01-26 03:36"),
        (np.arange(-60.0, 61.0), 4 * np.arange(-60.0, 61.0), "wider in Y: IQR 240 v 60 days"),
        # The first date of all is not a zero.
        (np.arange(100.0), np.r_[np.zeros(50), np.arange(0.0, 100, 2)], "more values of 2024-01-26 in Y: 51% v 1%"),
        (np.arange(300.0), np.r_[np.arange(0.0, 300, 2), np.arange(60.0, 80).repeat(7)], "more after 2024-03-"),
    ],
)
def test_dates_are_described_as_dates_and_their_spread_in_days(
    first: np.ndarray, second: np.ndarray, said: str, tmp_path: Path
) -> None:
    tables = [_dated(first), _dated(second)]
    result = compare(*tables, random_state=0)
    assert result.describe(0).startswith(said)
    for name, table in zip("ab", tables, strict=True):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    assert compare(tmp_path / "a.csv", tmp_path / "b.csv", random_state=0).describe(0) == result.describe(0)


def test_an_interval_up_to_a_day_includes_the_day() -> None:
    """Of 25 timestamps on each of forty days the second sample has only those of the first ten days."""
    days = np.repeat(np.arange(40.0), 25) + np.tile(np.arange(25) / 26, 40)
    found = changed_interval(days, days[:250], DateScale(19723.0))  # 2024-01-01
    assert (found.change, found.detail) == ("fewer after 2024-01-10", "0% v 75%")


def test_dates_in_responses_and_in_pictures(tmp_path: Path) -> None:
    when, rng = _dated(np.arange(200.0))["when"], np.random.default_rng(0)
    x = np.arange(200.0) + rng.normal(size=200)
    rises = relate(pd.DataFrame({"x": x}), when, random_state=0)
    assert rises.describe(0) == "rises: median of when 2024-02-14 to 2024-07-23"
    classes = relate(pd.DataFrame({"when": when}), np.repeat(["a", "b", "c", "d"], 50), random_state=0)
    assert "latest in y = d (median 2024-07-18), earliest in y = a (2024-02-19)" in classes.describe(0)
    turns = relate(pd.DataFrame({"when": when}), (x - 100) ** 2, random_state=0)
    assert "(low, at 2024-05-0" in turns.describe(0)
    for result, tick in ((rises, "2024-04"), (classes, "2024-04"), (turns, "2024-07")):
        assert f">{tick}</text>" in result.to_html()
    ax = turns.plot_feature()
    ax.figure.canvas.draw()
    assert {"Mar", "May", "Jul"} <= {label.get_text() for label in ax.get_xticklabels()}


def test_dates_of_other_countries_are_described_as_dates() -> None:
    days = [pd.date_range(start, periods=40).strftime("%d.%m.%Y") for start in ("2024-01-01", "2024-06-01")]
    result = compare(*(pd.DataFrame({"when": own}) for own in days), kinds={"when": "number"}, random_state=0)
    assert result.describe(0) == "later in Y: median 2024-06-20 v 2024-01-20"
    assert result.notes == ("Text, read as dates: 'when' (such as '01.01.2024').",)


def test_durations_have_a_unit(tmp_path: Path) -> None:
    """The unit that most values reach, of durations, of times of day and of text, in memory and from files."""
    hours = np.arange(1, 41) / 8

    def table(factor: float) -> pd.DataFrame:
        took = pd.to_timedelta(factor * hours, unit="h")
        clock = [str(one)[-8:] for one in took]
        return pd.DataFrame({"took": took, "text": took.astype(str), "clock": clock, "days": 48 * took})

    X, Y = table(1), table(3)
    for name, part in (("X", X), ("Y", Y)):
        part.to_csv(tmp_path / f"{name}.csv", index=False)
    files = tmp_path / "X.csv", tmp_path / "Y.csv"
    for result in (
        compare(X, Y, random_state=0),
        compare(*files, random_state=0),
        compare(*files, memory="1GB", random_state=0),
    ):
        assert {result[name].description for name in ("took", "text", "clock")} == {
            "higher in Y: median 7.69 h v 2.56 h"
        }
        assert result["days"].description == "higher in Y: median 15.4 days v 5.12 days"
    assert result.pictures[result.names.index("took")].label == "took (h)"
    wide = X.assign(took=X["took"].mean() + 3 * (X["took"] - X["took"].mean()))
    assert compare(X[["took"]], wide[["took"]], random_state=0).describe(0) == "wider in Y: IQR 7.31 v 2.44 h"
    x = pd.DataFrame({"x": np.arange(40.0)})
    result = relate(x, X["took"], random_state=0)
    assert result.describe(0) == "rises: median of took 0.562 h to 4.56 h"
    assert result.pictures[0].against == "took (h)"


def test_a_response_of_few_dates_has_classes_named_by_dates() -> None:
    visit = pd.Series(np.repeat(pd.to_datetime(["2024-01-01", "2024-02-01", "2024-03-01"]), 30), name="visit")
    result = relate(pd.DataFrame({"x": np.repeat([0.0, 5, 1], 30) + np.arange(90) / 90}), visit, random_state=0)
    assert "highest in visit = 2024-02-01 (median 5.49), lowest in visit = 2024-01-01" in result.describe(0)
    assert any(note.startswith("The response holds 3 different dates, taken as classes") for note in result.notes)


def test_years_have_no_commas() -> None:
    years, rng = np.repeat(np.arange(1980, 2020), 5), np.random.default_rng(0)
    one, two = pd.DataFrame({"year": years}), pd.DataFrame({"year": years + 9})
    assert compare(one, two, random_state=0).describe(0) == "higher in Y: median 2008 v 2000"
    bump = pd.DataFrame({"year": np.r_[years, np.repeat(np.arange(1990, 1996), 30)]})
    assert re.match(r"(more|fewer) .*(19[89]\d|20[012]\d)", compare(one, bump, random_state=0).describe(0))
    found = relate(pd.DataFrame({"x": years + rng.normal(size=200)}), pd.Series(years, name="year"), random_state=0)
    assert found.describe(0) == "rises: median of year 1984 to 2016"
    assert compare(one * 10, two * 10, random_state=0).describe(0) == "higher in Y: median 20,085 v 19,995"


def test_confounders_without_a_name_are_counted() -> None:
    rng = np.random.default_rng(0)
    held, group = rng.normal(size=(200, 2)), np.arange(200) % 2
    X = pd.DataFrame({"x": held[:, 0] + 2 * group + rng.normal(size=200)})
    for given, said in ((held[:, 0], "given 1 confounder: "), (held, "given 2 confounders: ")):
        assert said in compare(X, by=group, given=given, random_state=0).describe(0)


def test_several_columns_are_described_by_their_first_component_where_it_shows_something() -> None:
    """Two of three columns are nearly equal, and so are the first component, in the direction in which the first rises.

    What depends on the third column alone is not described by the component, which is independent of it.
    """
    rng = np.random.default_rng(0)
    first, third = rng.normal(size=(2, N))
    columns = np.column_stack([first, -first, third]) + 0.1 * rng.normal(size=(N, 3))
    groups = {"three": [0, 1, 2]}
    noise = 0.5 * rng.normal(size=N)

    def said(X: np.ndarray, y: np.ndarray, **options: Any) -> str:
        result = relate(X, y, random_state=0, **options)
        assert result.rejected[0]
        return result.describe(0)

    assert said(columns, first + noise, groups=groups).startswith("rises along the first component: median of y -")
    assert said(columns, third + noise, groups=groups) == "not seen in the first principal component"
    assert said((first + noise)[:, None], columns).startswith("rises: median of the first component of y -")
    assert said((third + noise)[:, None], columns) == "not seen in the first principal component"
    classes = np.array(["a", "b", "c"])
    of_first, of_third = (classes[np.digitize(column, [-0.5, 0.5])] for column in (first, third))
    assert said(columns, of_first, groups=groups).startswith(
        "differs by class along the first component: highest in y = c"
    )
    assert said(columns, of_third, groups=groups) == "not seen in the first principal component"


def test_a_response_with_more_zeros_in_a_level() -> None:
    rng = np.random.default_rng(0)
    level = rng.choice(["a", "b", "c"], 600)
    y = np.where((level == "b") & (rng.random(600) < 0.5), 0.0, rng.gamma(2.0, size=600))
    of_three = relate(pd.DataFrame({"level": level}), y, random_state=0).describe(0)
    assert of_three.startswith("y has more zeros in b: ")
    of_two = relate(pd.DataFrame({"level": np.where(level == "b", "b", "a")}), y, random_state=0).describe(0)
    assert of_two.startswith("y has more zeros in 'b': ")


def test_strata_and_confounders_are_both_named() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=400), "age": rng.normal(size=400), "site": rng.choice(["e", "w"], 400)})
    table["y"] = table.x + table.age + rng.normal(size=400)
    assert (
        relate(table, "y", strata="site", given="age", random_state=0)
        .describe(0)
        .startswith("rises within strata given age: median of y")
    )


def test_values_in_none_of_the_shown_rows() -> None:
    """Descriptions show some rows of long tables, which may all miss a value."""
    rng, n = np.random.default_rng(0), 6000
    hidden = np.setdiff1d(np.arange(n), rows_to_show(n, 2))[:100]

    def frame(shares: list[float]) -> pd.DataFrame:
        size, level = np.full(n, np.nan), np.full(n, None, dtype=object)
        size[hidden], level[hidden] = rng.normal(shares[0], 0.1, 100), rng.choice(["a", "b", "c"], 100, p=shares)
        return pd.DataFrame({"size": size, "level": level})

    table = frame([0.8, 0.1, 0.1])
    results = [compare(table, frame([0.1, 0.1, 0.8]), random_state=0)]
    results += [relate(table, y, random_state=0) for y in (rng.normal(size=n), rng.choice(["u", "v", "w"], n))]
    assert results[0].rejected.all()
    assert [result.describe(row) for result in results for row in range(2)] == [""] * 6


@pytest.mark.parametrize("seed", range(5))
def test_a_person_who_is_repeated_and_weighs_much_is_no_common_value(seed: int) -> None:
    """The ill are few and mostly old, so that the young among them weigh much, and some people are there repeatedly."""
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 80, 700).astype(float)
    ill = rng.random(700) < 0.4 / (1 + np.exp(-(age - 70) / 8))
    people = pd.DataFrame({"x": 0.05 * age + 0.5 * ill + rng.normal(size=700), "age": age, "ill": ill})
    table = people.sample(1500, replace=True, random_state=seed)
    description = relate(table, "ill", given="age", random_state=0)["x"].description
    assert "given age: " in description and "values of" not in description


@pytest.mark.parametrize("kernel", ["gaussian", "delta"])
@pytest.mark.parametrize("argument", ["strata", "unit"])
@pytest.mark.parametrize("values", [np.arange(40.0), np.resize(["a", "b"], 40), np.resize([0.0, 1.0], 40)])
def test_a_feature_that_only_rows_left_out_have_is_not_described(
    values: np.ndarray, argument: str, kernel: str
) -> None:
    """Its values are in the rows without a stratum, or unit, which are not used."""
    rows = np.arange(40)
    left_out, label = rows >= 30, rows // 3 % 2
    group = np.where(left_out, np.nan, rows // 3 if argument == "unit" else rows % 3)
    frame = pd.DataFrame({"x": np.sin(rows), "late": pd.Series(values).where(left_out), "group": group})
    options: dict[str, Any] = {argument: "group", "kernel": kernel, "random_state": 0}
    for result in (compare(frame, by=label, **options), relate(frame, label, **options)):
        assert result["late"].pvalue == 1 and result.describe(result.names.index("late")) == ""
        assert result.descriptions[result.names.index("late")].text == ""


@pytest.mark.parametrize("few", [8, 30, 300])
def test_a_sample_beyond_the_other_is_higher_or_lower_whatever_its_size(few: int) -> None:
    rng = np.random.default_rng(few)
    first, second = rng.normal(size=(300, 1)), 7 + rng.normal(size=(few, 1))
    middles = f"median {np.median(second):.3g} v"

    def said(one: Any, two: Any) -> str:
        return compare(one, two, random_state=0).descriptions[0].text

    # The spread is named as well where it differs by chance.
    assert re.match(rf"higher (and \w+ )?in Y: {middles}", said(first, second))
    assert re.match(r"lower (and \w+ )?in Y: median -", said(-first, -second))
    days = [np.datetime64("2024-01-01") + (rows * 10).astype("m8[D]")[:, 0] for rows in (first, second)]
    assert re.match(r"later (and \w+ )?in Y: median 2024-", said(*(pd.DataFrame({"day": day}) for day in days)))
    classes = np.repeat(["a", "b", "c"], [150, 150, few])
    [found] = relate(np.vstack([first, second]), classes, random_state=0).descriptions
    assert "highest in y = c" in found.text or found.text.startswith(f"higher in y = c: {middles}")
