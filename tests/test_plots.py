"""Plots draw on the given axes, leave no state behind, and show what the result says."""

from __future__ import annotations

import dataclasses
import io
import itertools
from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from kernsift import InputError, Multiscale, Result, compare, relate, screen
from kernsift.report.plots import LEFT, SELECTED, SIGNIFICANT

PLOTS = ["plot", "plot_scores", "plot_pvalues"]


@pytest.fixture(autouse=True)
def no_figure_is_left() -> Iterator[None]:
    yield
    plt.close("all")


def result(d: int = 8, k: Any = 4, names: list[str] | None = None, **options: Any) -> Result:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(80, d)), rng.normal(size=(60, d))
    Y[:, min(1, d - 1)] += 2.0
    columns = names or [f"f{i}" for i in range(d)]
    return compare(pd.DataFrame(X, columns=columns), pd.DataFrame(Y, columns=columns), k=k, random_state=0, **options)


def multiscale(**options: Any) -> Result:
    return result(estimator="incomplete", test=Multiscale(replicates=300), **options)


def rendered(ax: Axes) -> Axes:
    """Draw it, so that bad text or limits show up (warnings are errors), and see that there is something."""
    file = io.BytesIO()
    ax.figure.savefig(file, format="png", dpi=50)
    assert file.tell() > 1000
    return ax


def labels(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_yticklabels()]


def colours(ax: Axes) -> list[str]:
    """Colours of the bars from top to bottom."""
    bars = sorted((bar for bars in ax.containers for bar in bars), key=lambda bar: bar.get_y())
    return [to_hex(bar.get_facecolor()) for bar in bars]


@pytest.mark.parametrize("name", [*PLOTS, "plot_scaling"])
def test_axes_come_back(name: str) -> None:
    drawn = multiscale()
    ax = Figure().subplots()
    assert getattr(drawn, name)(ax=ax) is ax
    rendered(ax)
    own = getattr(drawn, name)()
    assert isinstance(own, Axes)
    assert own.figure is not ax.figure
    rendered(own)


def test_plots_are_figures_of_pyplot_so_that_notebooks_and_show_display_them() -> None:
    for name in ("plot", "plot_scores", "plot_pvalues", "plot_intervals", "plot_scaling", "plot_feature", "plot_best"):
        drawn = result(k=None) if name == "plot_intervals" else multiscale()
        axes = np.ravel(getattr(drawn, name)())
        assert plt.gcf() is axes[0].figure
        out = io.BytesIO()
        plt.savefig(out, format="png")
        assert np.ptp(plt.imread(io.BytesIO(out.getvalue()))) > 0  # no blank page
    assert len(plt.get_fignums()) == 7
    drawn.plot(plt.gca())
    assert len(plt.get_fignums()) == 7


def test_bars_are_the_scores_best_first_in_the_colours_of_their_state() -> None:
    drawn = result(d=20, k=6)
    ax = rendered(drawn.plot_scores())
    assert labels(ax)[:6] == list(drawn.names)
    assert len(labels(ax)) == 16
    left = [i for i in np.argsort(-drawn.scores) if i not in drawn.selected][:10]
    assert labels(ax)[6:] == [drawn.feature_names[i] for i in left]
    expected = [SIGNIFICANT if found else SELECTED for found in drawn.rejected]
    assert colours(ax) == expected + [LEFT] * 10
    widths = {round(bar.get_y() + bar.get_height() / 2): bar.get_width() for bars in ax.containers for bar in bars}
    assert [widths[i] for i in range(6)] == drawn.scores[drawn.selected].tolist()
    assert "4 more not shown" in ax.get_title(loc="left")
    assert f"{drawn.rejected.sum()} of 6 selected features" in ax.get_title(loc="left")


def test_of_everything_the_discoveries_and_the_best_others_are_drawn() -> None:
    drawn = result(d=40, k=None)
    found = int(drawn.rejected.sum())
    assert 0 < found < 30
    ax = rendered(drawn.plot_scores())
    assert labels(ax) == list(drawn.names[: found + 10])
    assert colours(ax) == [SIGNIFICANT] * found + [SELECTED] * 10
    assert f"{found} of 40 features significant; {30 - found} more not shown" == ax.get_title(loc="left")


def test_features_of_a_threshold_come_before_the_others() -> None:
    """By a threshold a lower score may be kept and a higher one left out, as each has its own standard deviation."""
    drawn = result(d=12, k=None, threshold=0.5, estimator="incomplete")
    assert 0 < len(drawn.selected) < 12
    ax = rendered(drawn.plot_scores())
    assert labels(ax)[: len(drawn.selected)] == list(drawn.names)
    assert colours(ax)[len(drawn.selected) :] == [LEFT] * min(10, 12 - len(drawn.selected))


@pytest.mark.parametrize(("d", "k"), [(1, 1), (3, None), (300, 4), (300, 250), (300, None)])
@pytest.mark.parametrize("name", PLOTS)
def test_few_and_many_features(d: int, k: int | None, name: str) -> None:
    ax = rendered(getattr(result(d=d, k=k), name)())
    width, height = ax.figure.get_size_inches()
    assert max(width, height) < 20
    if name == "plot":
        assert len(labels(ax)) <= 70


@pytest.mark.parametrize("name", PLOTS)
@pytest.mark.parametrize("test", ["exact", "multiscale"])
def test_nothing_selected(name: str, test: str) -> None:
    ax = rendered(getattr(result(k=None, threshold=1e6, test=test), name)())
    if name == "plot_scores":
        assert "no feature was selected" in ax.get_title(loc="left")
        assert set(colours(ax)) == {LEFT}


def test_names_are_shortened_and_are_no_formulas() -> None:
    names = ["$x$", "a" * 80, "two\nlines", "100%", "under_score", "ü", "^", "$"]
    ax = rendered(result(names=names, k=None).plot_scores())
    assert max(map(len, labels(ax))) <= 30
    listed = multiscale(names=names)
    rendered(listed.plot_scaling(listed.names[0]))


def points(ax: Axes, *names: str) -> np.ndarray:
    parts = [np.asarray(part.get_offsets()) for part in ax.collections if part.get_label() in names]
    return np.concatenate(parts) if parts else np.empty((0, 2))


@pytest.mark.parametrize("correction", ["bh", "by", "bky", "holm", None])
@pytest.mark.parametrize("k", [None, 6])
def test_points_are_the_pvalues_in_their_order(k: int | None, correction: str | None) -> None:
    drawn = result(d=20, k=k, correction=correction)
    ax = rendered(drawn.plot_pvalues())
    family = drawn.all_pvalues if correction else drawn.pvalues
    every = points(ax, "significant", "not significant", "not selected")
    np.testing.assert_allclose(every[np.argsort(every[:, 0]), 1], np.maximum(np.sort(family), 1e-12))
    found = points(ax, "significant")
    assert len(found) == drawn.rejected.sum() > 0
    if k is None:
        # The dashed line is what the correction asks for: what is significant lies on or below it.
        [line] = [line for line in ax.lines if line.get_linestyle() == "--"]
        limit = np.asarray(line.get_ydata())[found[:, 0].astype(int) - 1]
        assert found[np.argmax(found[:, 0]), 1] <= limit[np.argmax(found[:, 0])] * (1 + 1e-9)
        below = every[np.argsort(every[:, 0]), 1] <= np.asarray(line.get_ydata()) * (1 + 1e-9)
        last = int(np.argmin(below)) if correction == "holm" else int(np.flatnonzero(below).max()) + 1
        assert last == len(found)
    elif correction:
        own = points(ax, "selective p-value")
        np.testing.assert_allclose(np.sort(own[:, 1]), np.sort(np.maximum(drawn.pvalues, 1e-12)))
    assert ax.get_yscale() == "log"


@pytest.mark.parametrize("d", [1, 2, 5])
def test_ranks_are_whole_numbers(d: int) -> None:
    rng = np.random.default_rng(0)
    ax = rendered(compare(rng.normal(size=(30, d)), rng.normal(size=(30, d)), random_state=0).plot_pvalues())
    low, high = ax.get_xlim()
    ticks = [tick for tick in ax.get_xticks() if low <= tick <= high]
    assert ticks and all(tick == round(tick) for tick in ticks)
    [line] = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert np.ptp(line.get_xdata()) > 0  # a bound on one p-value is a line, too


@pytest.mark.parametrize("settings", [{"family": "selected"}, {"correction": None}])
def test_pvalues_of_an_empty_list(settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    nothing = compare(rng.normal(size=(30, 3)), rng.normal(size=(30, 3)), threshold=1e6, random_state=0, **settings)
    assert rendered(nothing.plot_pvalues()).get_title(loc="left") == "no feature was selected"


def test_tiny_pvalues_stay_in_the_picture() -> None:
    rng = np.random.default_rng(0)
    drawn = compare(rng.normal(size=(300, 2)), rng.normal(size=(300, 2)) + 9, random_state=0)
    assert rendered(drawn.plot_pvalues()).get_ylim()[0] > 1e-15


def test_scaling_law_is_read_at_zero() -> None:
    drawn = multiscale()
    fit = drawn.outcome.fit
    assert fit is not None
    for row, name in enumerate(drawn.names):
        ax = rendered(drawn.plot_scaling(name))
        assert ax.get_title(loc="left") == name
        if np.isfinite(fit.at_zero[row]):
            line = next(line for line in ax.lines if line.get_label().endswith("fit"))
            assert (line.get_xdata()[0], line.get_ydata()[0]) == (0.0, fit.at_zero[row])
    with_law = [name for name, there in zip(drawn.names, np.isfinite(fit.at_zero), strict=True) if there]
    assert drawn.plot_scaling().get_title(loc="left") == with_law[0]
    # The best feature was in every replicate: nothing to be seen there, so the picture is of the next one.
    far = np.where(np.arange(len(drawn.names)) == 0, -np.inf, fit.at_zero)
    moved = dataclasses.replace(
        drawn, outcome=dataclasses.replace(drawn.outcome, fit=dataclasses.replace(fit, at_zero=far))
    )
    assert moved.plot_scaling().get_title(loc="left") == next(name for name in with_law if name != drawn.names[0])


def test_a_feature_selected_in_every_replicate_has_no_law() -> None:
    drawn = result(d=8, k=7, estimator="incomplete", test=Multiscale(replicates=5))
    fit = drawn.outcome.fit
    assert fit is not None
    always = next(name for name, there in zip(drawn.names, np.isfinite(fit.at_zero), strict=True) if not there)
    ax = rendered(drawn.plot_scaling(always))
    assert "no law to fit" in ax.texts[0].get_text()


def test_scaling_needs_the_multiscale_test_and_a_selected_feature() -> None:
    with pytest.raises(InputError, match=r'^plot_scaling: needs a result of test="multiscale"'):
        result().plot_scaling()
    with pytest.raises(InputError, match=r'^plot_scaling: needs a result of test="multiscale"'):
        multiscale(k=None, threshold=1e6).plot_scaling()
    with pytest.raises(InputError, match=r"short list \(k or threshold\)"):
        multiscale(k=None).plot_scaling()
    with pytest.raises(InputError, match=r"^name: needs one of the listed features .*, got 'nobody'"):
        multiscale().plot_scaling("nobody")


def test_columns_are_found_by_the_names_of_the_user() -> None:
    rng = np.random.default_rng(0)
    X, Y = (pd.DataFrame(rng.normal([shift, shift, 0], size=(40, 3))) for shift in (0, 3))
    drawn = compare(X, Y, k=2, test=Multiscale(replicates=1000), random_state=0)
    assert rendered(drawn.plot_scaling(0)).get_title(loc="left") == "0"
    assert rendered(drawn.plot_feature(0)).get_title(loc="left").startswith("0: ")


def test_all_questions_can_be_drawn() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    rendered(relate(X, X[:, 1], k=2, random_state=0).plot_scores())
    drawn = screen(X, {"a": rng.normal(size=(50, 4)), "b": rng.normal(size=(50, 4)) + 1}, k=1, random_state=0)
    assert "1 of 1 selected data set significant" in rendered(drawn.plot_scores()).get_title(loc="left")
    rendered(drawn.plot_pvalues())


def test_titles_and_names_do_not_cover_each_other() -> None:
    rng = np.random.default_rng(0)
    names = [f"a feature with quite a long name, number {i}" for i in range(400)]
    X, Y = (pd.DataFrame(rng.normal(size=(50, 400)), columns=names) for _ in range(2))
    Y.iloc[:, :30] += rng.uniform(0.8, 2.0, 30)
    result = compare(X, Y, random_state=0)
    ax = result.plot()
    ax.figure.canvas.draw()
    labels = [text.get_window_extent() for text in ax.texts]
    assert len(labels) >= 5
    assert not any(one.overlaps(two) for i, one in enumerate(labels) for two in labels[:i])
    found = result.rejected
    points = ax.transData.transform(np.column_stack([result.effects, -result.log_pvalues / np.log(10)])[found])
    assert not any(box.contains(*point) for box in labels for point in points)
    axes = result.plot_best()
    axes[0, 0].figure.canvas.draw()
    titles = [ax.title.get_window_extent() for ax in axes.ravel()] + [
        ax._left_title.get_window_extent() for ax in axes.ravel()
    ]
    drawn = [box for box in titles if box.width > 1]
    assert len(drawn) == 9
    assert not any(one.overlaps(two) for i, one in enumerate(drawn) for two in drawn[:i])


def test_evidence_of_very_different_size() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    X = pd.DataFrame({"strong": x, "weak": 0.12 * x + rng.normal(size=2000), "none": rng.normal(size=2000)})
    ax = rendered(relate(X, x + 0.05 * rng.normal(size=2000), random_state=0).plot())
    assert ax.get_yscale() == "symlog"
    assert {text.get_text() for text in ax.texts} >= {"strong", "weak"}


def test_bins_of_whole_numbers_hold_as_many_of_them() -> None:
    rng = np.random.default_rng(0)
    for largest in (20, 90, 10**6):
        X, Y = rng.integers(0, largest, size=(2, 300, 1)).astype(float)
        picture = compare(X, Y, random_state=0).pictures[0]
        edges = np.array(picture.edges)  # type: ignore[union-attr]
        if largest < 1000:  # beyond, six digits are kept
            assert np.allclose(edges % 1, 0.5)
        assert np.allclose(np.diff(edges), np.diff(edges)[0], rtol=1e-3)
        np.testing.assert_allclose(np.sum(picture.shares, axis=1), 1.0, atol=1e-4)


def test_names_of_levels_do_not_touch() -> None:
    """Boxes have names below them, which are turned where they would lie on each other."""
    rng = np.random.default_rng(0)
    for length, count in itertools.product((3, 12, 20, 30), (2, 3, 6)):
        levels = rng.choice([f"{'long name ' * 5}"[:length] + f" {i}" for i in range(count)], 300)
        found = relate(pd.DataFrame({"level": levels}), rng.normal(size=300), random_state=0)
        ax = found.plot_feature("level")
        ax.figure.canvas.draw()
        boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
        assert len(boxes) == count
        assert not any(one.overlaps(two) for one, two in itertools.pairwise(boxes)), (length, count)


def test_titles_name_the_samples_and_the_response() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, 60, 3))
    found = compare(X, Y + 2.0, random_state=0)
    assert found.plot().get_title("left") == "3 of 3 features significant"
    named = found.renamed(("june.csv", "july.csv"))
    for plot in (named.plot, named.plot_pvalues, named.plot_intervals, named.plot_scores):
        title = plot().get_title("left")
        assert " ".join(title.split()) == "3 of 3 features significant between june.csv and july.csv"
    related = relate(X, pd.Series(X[:, 0], name="weight"), random_state=0)
    assert related.plot().get_title("left") == "1 of 3 features significant for weight"


def test_p_values_at_the_floor_are_said_to_be_there() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    assert compare(X, X + 0.01, random_state=0).plot_pvalues().get_ylabel() == "p-value"
    far = compare(X, X + 5.0, random_state=0).plot_pvalues()
    assert far.get_ylabel() == "p-value (smaller ones drawn at 1e-12)"


@pytest.mark.parametrize("correction", ["bh", "by", "bky", "holm", None])
def test_the_overview_separates_what_is_significant(correction: str | None) -> None:
    rng = np.random.default_rng(3)
    X, Y = rng.normal(size=(60, 12)), rng.normal(size=(60, 12)) + np.linspace(0.0, 1.2, 12)
    drawn = compare(X, Y, correction=correction, random_state=0)
    assert 0 < drawn.rejected.sum() < 12
    [line] = drawn.plot().lines
    height = line.get_ydata()[0]
    evidence = -drawn.log_pvalues / np.log(10.0)
    assert np.array_equal(evidence >= height, drawn.rejected)
    # At the limit of the correction, not at the weakest discovery.
    if correction is None:
        assert np.isclose(height, -np.log10(0.05))
    if correction == "bh":
        assert np.isclose(height, -np.log10(0.05 * drawn.rejected.sum() / 12))


def test_the_legend_of_a_forest_covers_no_interval() -> None:
    rng = np.random.default_rng(4)
    X, Y = rng.normal(size=(8, 15)), rng.normal(size=(8, 15))
    Y[:, 0] += 9.0
    ax = rendered(compare(X, Y, random_state=0).plot_intervals())
    legend = ax.get_legend()
    assert legend is not None
    rows = ax.transData.transform([(0.0, row) for row in range(len(labels(ax)))])[:, 1]
    assert legend.get_window_extent().y1 < rows.min()


def test_every_kind_of_small_multiple_has_its_legend() -> None:
    rng = np.random.default_rng(5)
    y = np.repeat(list("abcdef"), 30)
    X = pd.DataFrame({"number": rng.normal(size=180) + 9 * (y == "a"), "word": rng.choice(["u", "v"], 180)})
    drawn = relate(X, y, random_state=0)
    assert drawn.names == ("number", "word")  # boxes, which need no legend, and then bars
    boxes, bars = drawn.plot_best().ravel()
    assert boxes.get_legend() is None
    assert [text.get_text() for text in bars.get_legend().get_texts()] == ["y = a", "y = b", "y = c", "y = d"]


def overlapping(labels: list[Any]) -> bool:
    boxes = [label.get_window_extent() for label in labels if label.get_text()]
    return any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])


@pytest.mark.parametrize("question", ["compare", "relate"])
def test_long_names_of_many_levels_do_not_overlap(question: str) -> None:
    rng = np.random.default_rng(0)
    levels = np.array([f"answer number {i}, in words that fill several lines of a label" for i in range(12)])
    X, Y = (pd.DataFrame({"answer": rng.choice(levels, 300), "other": rng.normal(size=300)}) for _ in range(2))
    drawn = compare(X, Y, random_state=0) if question == "compare" else relate(X, Y["other"], random_state=0)
    ax = rendered(drawn.plot_feature("answer"))
    for axis in (ax.xaxis, ax.yaxis):
        assert not overlapping(axis.get_ticklabels())


@pytest.mark.parametrize("days", [3, 30, 340, 2000])
def test_dates_of_narrow_axes_do_not_overlap(days: int) -> None:
    first = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=400, freq=f"{days * 216}s")})
    axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")[1]
    ax = rendered(compare(first, first + pd.Timedelta(days=1), random_state=0).plot_feature(ax=axes[0]))
    assert len(ax.get_xticks()) >= 2
    assert not overlapping(ax.get_xticklabels())


@pytest.mark.parametrize("sizes", [(1e-7, 0.01, 0.5), (9.0, 700.0, 7e3), (1.7e5, 4.2e5, 8.7e5), (3e5, -3e5, 5e6)])
def test_numbers_of_narrow_axes_do_not_overlap(sizes: tuple[float, ...]) -> None:
    X, Y = (pd.DataFrame({f"x{size}": size * np.linspace(0, 1, 300) ** power for size in sizes}) for power in (1, 2))
    for question in (compare(X, Y, random_state=0), relate(X, X.iloc[:, 0], random_state=0)):
        axes = plt.subplots(3, 3, figsize=(10.8, 8.7), layout="constrained")[1]
        for name, ax in zip(X.columns, axes[0], strict=True):
            question.plot_feature(name, ax)
        rendered(axes[0, 0])
        for ax in axes[0]:
            shown = [label for label in ax.get_xticklabels() if label.get_text()]
            assert len(shown) > 2 and not overlapping(shown), [label.get_text() for label in shown]


def test_values_that_are_not_drawn_are_said() -> None:
    """As in the report: 30 of 600 values are a code that is far from the others."""
    rng = np.random.default_rng(0)
    X, Y = (pd.DataFrame({"x": np.r_[np.full(count, -999.0), rng.normal(size=300 - count)]}) for count in (0, 30))
    result = compare(X, Y, random_state=0)
    assert " ".join(result.plot_feature().get_xlabel().split()) == "x (5% far out, not drawn)"
    assert "5% of the values, far out, not drawn" in result.to_html()


def test_the_legend_covers_no_bar() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"site": rng.choice(list("abcd"), 800), "stage": rng.choice([f"stage {i}" for i in range(4)], 800)}
    )
    ax = rendered(relate(frame, "stage", random_state=0).plot_feature())
    legend = ax.get_legend().get_window_extent()
    assert len(ax.patches) == 16 and not any(legend.overlaps(bar.get_window_extent()) for bar in ax.patches)
