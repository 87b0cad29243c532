"""The HTML report and the records of its pictures; test_report_browser.py opens it in a browser."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
import sys
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import kernsift
from kernsift import InputError, Result
from kernsift.data.tables import spaced_rows
from kernsift.report.html import line_of_code
from kernsift.report.pictures import Bars, Boxes, Cloud, Histogram
from kernsift.report.summaries import MOST_PICTURES
from kernsift.report.svg import draw_picture
from kernsift.report.text import table_columns

HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a & b", "{{ 7 * 7 }}", "two\nlines", "$x$"]
RNG = np.random.default_rng(5)
ROWS = 120


def table(n: int = ROWS, d: int = 6) -> pd.DataFrame:
    names = HOSTILE + [f"f{i}" for i in range(d - len(HOSTILE))]
    return pd.DataFrame(RNG.normal(size=(n, d)), columns=names)


def mixed(n: int = ROWS) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "number": RNG.normal(size=n),
            "stars": RNG.integers(1, 6, n),
            "city": RNG.choice(["Rome", "Oslo", "Bern"], n),
            "x": RNG.normal(size=n),
            "y": RNG.normal(size=n),
        }
    )


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    X, Y, groups = mixed(), mixed(90), {"place": ["x", "y"]}
    Y["number"] += 2
    sets = {name: RNG.normal(size=(50, 3)) * scale for name, scale in (("same", 1), ("wide", 5))}
    numbers, labels = X["number"] * 2, np.where(X["number"] > 0, "up", "down")
    many = pd.qcut(X["number"], 5, labels=list("abcde")).astype(str)
    return {
        "compare": kernsift.compare(X, Y, groups=groups, random_state=1),
        "relate": kernsift.relate(X, numbers, groups=groups, random_state=1),
        "relate to two classes": kernsift.relate(X, labels, groups=groups, random_state=1),
        "relate to five classes": kernsift.relate(X, many, groups=groups, random_state=1),
        "screen": kernsift.screen(RNG.normal(size=(50, 3)), sets, random_state=1),
        "naive": kernsift.compare(X, Y, k=2, test="naive", random_state=1),
        "multiscale": kernsift.compare(X, Y, k=2, test="multiscale", estimator="incomplete", random_state=1),
        "nothing": kernsift.compare(X, Y, threshold=1e6, random_state=1),
        "no effects": dataclasses.replace(
            kernsift.compare(X, Y, random_state=1),
            estimates=SimpleNamespace(effects=None, raw_effects=None, intervals=None, intervals_of=lambda rows: None),
        ),
        "uncorrected": kernsift.compare(X, Y, k=2, correction=None, random_state=np.random.default_rng(0)),
        "hostile": kernsift.compare(table(), table(90), random_state=1),
    }


KINDS = [
    "compare",
    "relate",
    "relate to two classes",
    "relate to five classes",
    "screen",
    "naive",
    "multiscale",
    "nothing",
    "no effects",
    "uncorrected",
    "hostile",
]


class Checker(HTMLParser):
    """Whether every element is closed, and which elements and attributes there are."""

    EMPTY = frozenset({"meta", "link", "input", "br", "img", "circle", "path", "rect"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def checked(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.open == []
    return checker


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_of_every_kind(results: dict[str, Result], kind: str) -> None:
    result = results[kind]
    page = checked(result.to_html())
    assert result.summary() in page.text
    assert all(name in page.text for name in result.names)
    assert line_of_code(result) in page.text
    assert page.tags.count("figure") == len(result.names) + (2 if result.names else 1)
    assert "What the words mean" in page.text


def test_nothing_is_loaded_and_nothing_runs_that_was_not_written_here(results: dict[str, Result]) -> None:
    page = checked(results["hostile"].to_html())
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert not {name for name in page.attributes if name.startswith("on")} | (page.attributes & {"style"})
    assert all(link.startswith("#feature-") or link == "data:," for link in page.links)
    assert all(name in page.text for name in HOSTILE)


def test_the_policy_knows_the_script_and_the_style_by_their_hashes(results: dict[str, Result]) -> None:
    import base64
    import hashlib

    html = results["compare"].to_html()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe" not in policy[1]
    for tag in ("script", "style"):
        body = re.search(rf"<{tag}>(.*)</{tag}>", html, re.DOTALL)
        assert body is not None
        digest = base64.b64encode(hashlib.sha256(body[1].encode()).digest()).decode()
        assert f"{tag}-src &#39;sha256-{digest}&#39;" in policy[1].replace("&#43;", "+")


def test_two_hundred_features_stay_under_two_megabytes() -> None:
    X = RNG.normal(size=(400, 260))
    names = [f"a rather long name of a measurement, number {i}" for i in range(260)]
    result = kernsift.relate(pd.DataFrame(X, columns=names), X[:, 0], k=200, random_state=0)
    assert isinstance(result.pictures[0], Cloud)  # the largest kind
    assert len(result.to_html().encode()) < 2_000_000
    assert len(pickle.dumps(result.pictures)) < 2_000_000


def test_of_thousands_of_features_all_are_in_the_page() -> None:
    X, Y = RNG.normal(size=(12, 1100)), RNG.normal(size=(12, 1100))
    result = kernsift.compare(X, Y, random_state=0)
    html = result.to_html()
    assert html.count("<tr data-rank=") == MOST_PICTURES
    data = re.search(r'<script type="application/json" id="others">(.*?)</script>', html, re.DOTALL)
    assert data is not None
    rows = json.loads(data[1])
    assert [row[0] for row in rows] == list(result.names[MOST_PICTURES:])
    np.testing.assert_allclose([row[3] for row in rows], result.pvalues[MOST_PICTURES:], rtol=1e-3)
    short = kernsift.compare(X, Y, k=3, random_state=0).to_html()
    assert len(json.loads(re.search(r'id="others">(.*?)</script>', short, re.DOTALL)[1])) == 1097  # type: ignore[index]


def test_long_names_of_categories_are_whole() -> None:
    levels = ["a rather long name of a category", "another name that is long"]
    X, Y = (pd.DataFrame({"c": RNG.choice(levels, 60), "x": RNG.normal(size=60)}) for _ in range(2))
    for result in (kernsift.compare(X, Y, random_state=0), kernsift.relate(X, X["x"].rename("z"), random_state=0)):
        picture = draw_picture(result.pictures[result.names.index("c")])
        assert all(f">{level}</text>" in picture for level in levels)


def test_the_page_says_direction_data_and_promise() -> None:
    X, Y = table(60), table(50)
    Y["f0"] = X.loc[:49, "a & b"] + 9
    X["f0"] = X["a & b"]
    X.loc[::4, "f0"] = np.nan
    text = " ".join(checked(kernsift.compare(X, Y, missing="column", random_state=0).to_html()).text.split())
    assert "higher in Y: median" in text
    assert "The data Rows60 in X, 50 in Y Features7 Types7 numbers Missing1 feature, most in f0 (14%)" in text
    assert "at most 5% are false findings on average." in text
    assert "sorted by evidence, strongest first" in text
    holm = kernsift.compare(X, Y, missing="column", correction="holm", random_state=0).to_html()
    assert "With a probability of at least 95%, no feature called significant is a false finding." in holm


def test_small_shares_of_missing_values_are_not_zero() -> None:
    X, Y = table(300), table(300)
    X.loc[0, "a & b"] = np.nan
    result = kernsift.compare(X, Y, random_state=0)
    page, row = result.to_html(), result.names.index("a & b")
    assert re.search(r'data-name="a &amp; b"[^>]* data-missing="0.0017"', page)
    assert "most in a &amp; b (0.2%)" in page
    assert dict(table_columns(result, np.array([row])))["missing"] == ["0.2%"]


def test_shares_of_missing_values_sort_beyond_the_first_rows() -> None:
    """Rows of the page and those that its script makes have shares in the same unit."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(20, 210)), rng.normal(size=(20, 210))
    X[:5] = np.nan
    page = kernsift.compare(X, Y, random_state=0).to_html()
    first = set(re.findall(r'data-missing="([\d.]+)"', page))
    others = re.search(r'id="others"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert others is not None
    assert first == {"0.125"} and {row[7] for row in json.loads(others[1])} == {0.125}


def test_a_short_list_says_what_is_outside() -> None:
    X = RNG.normal(size=(80, 8))
    Y = RNG.normal(size=(80, 8)) + np.r_[np.full(5, 2.0), np.zeros(3)]
    result = kernsift.compare(X, Y, k=2, random_state=0)
    assert result.found_outside >= 3
    text = " ".join(checked(result.to_html()).text.split())
    assert f"{result.found_outside} significant outside the list" in text
    assert "Selective p-value" in text
    text = " ".join(checked(kernsift.compare(X, Y, random_state=0).to_html()).text.split())
    assert "outside the list" not in text
    assert "elective p" not in text


def test_title_and_command(results: dict[str, Result]) -> None:
    html = results["compare"].to_html(title="Drift <in> May", command="kernsift compare 'a b.csv' c.csv")
    assert "<title>Drift &lt;in&gt; May</title>" in html
    assert "kernsift compare &#39;a b.csv&#39; c.csv" in html


def test_the_line_of_code_gives_the_result_again(results: dict[str, Result]) -> None:
    X, Y = table(60), table(50)
    for options in (
        {},
        {"k": 2},
        {"k": 2, "family": "selected", "confidence_level": 0.8},
        {"threshold": 0.5},
        {"estimator": kernsift.Block(block_size=5), "bandwidth": 2.0},
    ):
        result = kernsift.compare(X, Y, random_state=7, **options)  # type: ignore[arg-type]
        again = eval(line_of_code(result), {"kernsift": kernsift, "X": X, "Y": Y})
        assert again.names == result.names
        assert (again.family, again.confidence_level) == (result.family, result.confidence_level)
        np.testing.assert_array_equal(again.pvalues, result.pvalues)
    assert "generator" in line_of_code(results["uncorrected"])


def test_without_jinja(results: dict[str, Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs Jinja2: pip install '\.\[all\]'"):
        results["compare"].to_html()


# Records of features -------------------------------------------------------------------------------------------------


def test_the_kind_of_picture_fits_the_kind_of_data(results: dict[str, Result]) -> None:
    expected = {
        "compare": {"number": Histogram, "stars": Bars, "city": Bars, "place": Histogram},
        "relate": {"number": Cloud, "stars": Boxes, "city": Boxes, "place": Cloud},
        "relate to two classes": {"number": Histogram, "stars": Bars, "city": Bars, "place": Histogram},
        "relate to five classes": {"number": Boxes, "stars": Boxes, "city": Bars, "place": Boxes},
        "screen": {"same": Histogram, "wide": Histogram},
    }
    for kind, kinds in expected.items():
        found = dict(zip(results[kind].names, map(type, results[kind].pictures), strict=True))
        assert found == kinds


def test_histograms_and_bars_are_shares() -> None:
    X = pd.DataFrame({"number": np.r_[np.linspace(0, 1, 99), 1e9], "city": ["Rome", "Oslo"] * 50})
    Y = pd.DataFrame({"number": np.linspace(0.5, 1, 50), "city": ["Rome"] * 40 + ["Oslo"] * 10})
    result = kernsift.compare(X, Y, k=None, random_state=0)
    pictures = dict(zip(result.names, result.pictures, strict=True))
    bars, histogram = pictures["city"], pictures["number"]
    assert isinstance(bars, Bars)
    assert bars.levels == ("Oslo", "Rome")
    assert bars.shares == ((0.5, 0.5), (0.2, 0.8))
    assert isinstance(histogram, Histogram)
    # The far value is not drawn, the rest is; the shares are of each whole sample.
    assert histogram.edges[-1] < 2
    assert [sum(shares) for shares in histogram.shares] == pytest.approx([0.99, 1.0], abs=0.011)
    np.testing.assert_allclose(np.diff(histogram.edges), histogram.edges[1] - histogram.edges[0], rtol=1e-4)


def test_boxes_and_clouds_hold_quantiles() -> None:
    x = np.arange(800.0) / 7  # whole numbers would be taken for row numbers
    level = np.repeat(["low", "high"], 400)
    result = kernsift.relate(pd.DataFrame({"x": x, "level": level}), x * 10, k=None, random_state=0)
    pictures = dict(zip(result.names, result.pictures, strict=True))
    boxes, cloud = pictures["level"], pictures["x"]
    assert isinstance(boxes, Boxes)
    assert boxes.levels == ("high", "low")
    assert boxes.quantiles[1] == pytest.approx(10 * np.quantile(x[:400], [0.05, 0.25, 0.5, 0.75, 0.95]), rel=1e-5)
    assert isinstance(cloud, Cloud)
    assert all(y == pytest.approx(10 * a, rel=1e-4) for a, y in cloud.points)
    assert [q[1] for q in cloud.quartiles] == pytest.approx([10 * m for m in cloud.middles], rel=1e-4)


def test_a_change_of_scale_is_seen_in_whole_data_sets(results: dict[str, Result]) -> None:
    pictures = dict(zip(results["screen"].names, results["screen"].pictures, strict=True))
    assert "distance from the common centre" in pictures["wide"].label


def test_many_levels_are_gathered() -> None:
    levels = [f"level {i}" for i in range(40)]
    X, Y = (pd.DataFrame({"c": RNG.choice(levels, 300)}) for _ in range(2))
    picture = kernsift.compare(X, Y, random_state=0).pictures[0]
    assert isinstance(picture, Bars)
    assert picture.levels[-1].endswith("others")
    assert [sum(shares) for shares in picture.shares] == pytest.approx([1.0, 1.0], abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_records_are_plain_and_drawable(results: dict[str, Result], kind: str) -> None:
    for picture in results[kind].pictures:
        json.dumps(dataclasses.asdict(picture), allow_nan=False)
        assert pickle.loads(pickle.dumps(picture)) == picture
        assert "nan" not in draw_picture(picture)


def test_pictures_stop_at_two_hundred_and_draw_no_random_numbers() -> None:
    X, Y = RNG.normal(size=(20, 230)), RNG.normal(size=(20, 230))
    result = kernsift.compare(X, Y, k=None, random_state=0)
    assert len(result.pictures) == MOST_PICTURES
    assert "30 more are in the table only" in result.to_html()


@pytest.mark.parametrize("values", [[0.0, 1e-60], [1.0, 1.0 + 1e-12], [-1e60, 1e60]])
def test_extreme_numbers_can_be_drawn(values: list[float]) -> None:
    column = np.linspace(values[0], values[1], 40)
    result = kernsift.compare(column[:20], column[20:], random_state=0)
    assert "nan" not in draw_picture(result.pictures[0])
    result = kernsift.relate(column, np.arange(40.0), random_state=0)
    assert "nan" not in draw_picture(result.pictures[0])


# With matplotlib -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "nothing"])
def test_plot_feature(results: dict[str, Result], kind: str) -> None:
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure

    for name in results[kind].names:
        ax = results[kind].plot_feature(name)
        ax.figure.canvas.draw()
        plt.close(ax.figure)
        own = Figure().subplots()
        assert results[kind].plot_feature(name, own) is own


def test_plot_feature_of_nothing_and_of_strangers(results: dict[str, Result]) -> None:
    with pytest.raises(InputError, match="no feature is listed"):
        results["nothing"].plot_feature()
    with pytest.raises(InputError, match="'nmber'"):
        results["compare"].plot_feature("nmber")


def test_the_line_of_code_has_strata_pairs_and_units() -> None:
    rng = np.random.default_rng(0)
    X, Y = (pd.DataFrame(rng.normal(size=(40, 2)), columns=["a", "b"]) for _ in range(2))
    strata, given = [np.repeat(["x", "y"], 20)] * 2, np.arange(80.0) % 7
    for options in (
        {"paired": True},
        {"strata": strata},
        {"given": given},
        {"strata": "site"},
        {"unit": ["site", "day"]},
    ):
        first, second = (table.assign(site=np.arange(40) // 10 + 9 * i, day=i) for i, table in enumerate((X, Y)))
        if "strata" in options:
            first, second = (table.assign(site=np.arange(40) // 10) for table in (X, Y))
        if isinstance(next(iter(options.values())), bool | np.ndarray) or options.get("strata") is strata:
            first, second = X, Y
        result = kernsift.compare(first, second, random_state=0, **options)
        names = {"kernsift": kernsift, "X": first, "Y": second, "strata": strata, "given": given}
        again = eval(line_of_code(result), names)
        np.testing.assert_array_equal(again.pvalues, result.pvalues)
        page = result.to_html()
        name = next(iter(options))
        assert f'<tr><th scope="row">{name.capitalize()}</th><td>{result.settings[name]}</td></tr>' in page.replace(
            "&#39;", "'"
        )


def test_what_is_held_fixed_is_said_and_long_levels_are_whole() -> None:
    rng = np.random.default_rng(0)
    n, long = 300, "Neither agrees nor disagrees with the statement that was read out, or gave no answer at all"
    age = rng.normal(size=n)
    frame = pd.DataFrame({"age": age, "x": age + rng.normal(size=n), "opinion": rng.choice([long, "agrees"], n)})
    frame["y"] = frame["x"] + age + 2.0 * (frame["opinion"] == long) + 0.3 * rng.normal(size=n)
    page = kernsift.relate(frame, "y", given=["age"], distinct=True, random_state=0).to_html()
    assert "the picture holds nothing fixed" in page
    assert "Each is significant given those before it: opinion, x." in page
    assert '<th scope="row">Given</th><td>age</td>' in page
    drawn = re.findall(r"<text[^>]*>([^<]*)</text>", page)
    first = next(place for place, line in enumerate(drawn) if long.startswith(line) and len(line) > 20)
    assert f"{drawn[first]} {drawn[first + 1]}" == long


def test_numbers_that_are_large_beside_their_spread_are_drawn() -> None:
    """Times in seconds since 1970 have bins of equal width, points at their places and ticks with different names."""
    rng = np.random.default_rng(0)
    seconds = 1.7e9 + rng.normal(0.0, 3.0, 400)
    result = kernsift.compare(seconds[:200, None], seconds[200:, None], random_state=0)
    assert isinstance(result.pictures[0], Histogram)
    widths = np.diff(result.pictures[0].edges)
    np.testing.assert_allclose(widths, widths.mean(), rtol=0.01)  # edges have twelve digits: 0.01 of a width of 1
    assert sum(result.pictures[0].shares[0]) == pytest.approx(1.0, abs=0.02)
    cloud = kernsift.relate(seconds[:, None], seconds + rng.normal(size=400), random_state=0).pictures[0]
    assert isinstance(cloud, Cloud)
    np.testing.assert_allclose([x for x, _ in cloud.points], seconds[spaced_rows(400, len(cloud.points))], atol=0.01)
    for picture in (result.pictures[0], cloud):
        # Names of either axis, which are anchored in different ways; those of shares have a "%".
        names = re.findall(r'text-anchor="(\w+)">([\d,.]+)</text>', draw_picture(picture))
        assert names
        assert len(set(names)) == len(names)
        assert all(float(name.replace(",", "")) == pytest.approx(1.7e9, abs=30.0) for _, name in names)


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (1e-5, "2e-5"),
        (1e-3, "0.002"),
        (1e3, "2,000"),
        (1e4, "20,000"),
        (1e5, "200,000"),
        (1e6, "2,000,000"),
        (1e9, "2e9"),
    ],
)
def test_ticks_are_written_as_the_numbers_of_a_description_are(scale: float, expected: str) -> None:
    values = scale * np.linspace(0.5, 3.5, 400)[:, None]
    drawn = draw_picture(kernsift.compare(values[:200], values[200:], random_state=0).pictures[0])
    names = re.findall(r'text-anchor="middle">([^<]+)</text>', drawn)
    assert expected in names
    assert not any(re.search(r"e\+|e-?0", name) for name in names)


def test_dates_of_ten_millennia_are_drawn() -> None:
    """31 December 9999 stands for no end, 1 January of the year 1 for no beginning; 1e9 minutes would not fit."""
    days = np.r_[np.arange(17_000, 17_400), np.full(200, 2_932_896), np.full(200, -719_162)]
    frame = pd.DataFrame({"valid": np.random.default_rng(0).permutation(days).astype("M8[D]").astype("M8[s]")})
    others = np.arange(800) % 2
    for result in (kernsift.compare(frame, by=others, random_state=0), kernsift.relate(frame, days, random_state=0)):
        names = re.findall(r'text-anchor="middle">(\d+)</text>', draw_picture(result.pictures[0]))
        assert 1 < len(names) <= 4
        result.plot_feature("valid").figure.canvas.draw()
    response = kernsift.relate(pd.DataFrame({"x": others, "y": days}), frame["valid"], random_state=0)
    for name in ("x", "y"):
        response.plot_feature(name).figure.canvas.draw()


def test_names_of_ticks_lie_inside_the_picture() -> None:
    """The first tick of numbers that begin at 1,000,000,000 is at the left end of the axis."""
    values = 1e9 + np.linspace(0.0, 600.0, 400)[:, None]
    drawn = draw_picture(kernsift.compare(values[:200], values[200:], random_state=0).pictures[0])
    names = re.findall(r'<text x="([\d.]+)"[^>]*text-anchor="middle">([\d,]+)</text>', drawn)
    assert any(name == "1,000,000,000" for _, name in names)
    # Digits and commas are at most 6.5 units wide, and coordinates are rounded to 0.1.
    assert all(float(x) >= 3.25 * len(name) - 0.05 for x, name in names)
