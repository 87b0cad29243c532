"""Pictures: axes in, axes out, nothing left behind, and what is drawn is what the result says."""

from __future__ import annotations

import dataclasses
import io
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from kernsift import InputError, Result, compare, relate, screen
from kernsift.show.plots import LEFT, SELECTED, STANDS

PLOTS = ["plot", "plot_pvalues"]


def result(d: int = 8, k: Any = 4, names: list[str] | None = None, **options: Any) -> Result:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(80, d)), rng.normal(size=(60, d))
    Y[:, min(1, d - 1)] += 2.0
    columns = names or [f"f{i}" for i in range(d)]
    return compare(pd.DataFrame(X, columns=columns), pd.DataFrame(Y, columns=columns), k=k, random_state=0, **options)


def multiscale(**options: Any) -> Result:
    return result(estimator="incomplete", test="multiscale", replicates=300, **options)


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


def test_pyplot_is_not_touched() -> None:
    """Without pyplot there is no window system to miss and no list of open figures to grow."""
    program = """
import sys
import numpy as np
from kernsift import compare
rng = np.random.default_rng(0)
result = compare(rng.normal(size=(20, 3)), rng.normal(size=(20, 3)), test="multiscale", replicates=20, random_state=0)
for ax in (result.plot(), result.plot_pvalues(), result.plot_scaling()):
    ax.figure.savefig(sys.stdout.buffer, format="svg")
assert "matplotlib" in sys.modules
assert "matplotlib.pyplot" not in sys.modules
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
    assert run.stdout.count(b"</svg>") == 3


def test_bars_are_the_scores_best_first_in_the_colours_of_their_state() -> None:
    drawn = result(d=20, k=6)
    ax = rendered(drawn.plot())
    assert labels(ax)[:6] == list(drawn.names)
    assert len(labels(ax)) == 16
    left = [i for i in np.argsort(-drawn.scores) if i not in drawn.selected][:10]
    assert labels(ax)[6:] == [drawn.feature_names[i] for i in left]
    expected = [STANDS if stands else SELECTED for stands in drawn.rejected]
    assert colours(ax) == expected + [LEFT] * 10
    widths = {round(bar.get_y() + bar.get_height() / 2): bar.get_width() for bars in ax.containers for bar in bars}
    assert [widths[i] for i in range(6)] == drawn.scores[drawn.selected].tolist()
    assert "4 more not shown" in ax.get_title(loc="left")
    assert f"{drawn.rejected.sum()} of 6 selected features" in ax.get_title(loc="left")


def test_features_of_a_threshold_come_before_the_others() -> None:
    """By a threshold a lower score may be kept and a higher one left out, as each has its own standard deviation."""
    drawn = result(d=12, k=None, threshold=0.5, estimator="incomplete")
    assert 0 < len(drawn.selected) < 12
    ax = rendered(drawn.plot())
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
    if name == "plot":
        assert "no feature was selected" in ax.get_title(loc="left")
        assert set(colours(ax)) == {LEFT}


def test_names_are_shortened_and_are_no_formulas() -> None:
    names = ["$x$", "a" * 80, "two\nlines", "100%", "under_score", "ü", "^", "$"]
    ax = rendered(result(names=names, k=None).plot())
    assert max(map(len, labels(ax))) <= 30
    rendered(multiscale(names=names, k=None).plot_scaling("$x$"))


def test_points_are_the_pvalues() -> None:
    drawn = result(d=20, k=6)
    ax = rendered(drawn.plot_pvalues())
    drawn_points = [part for part in ax.collections if part.get_label() in ("stands", "does not stand")]
    points = np.concatenate([np.asarray(part.get_offsets()) for part in drawn_points])
    expected = np.maximum(np.column_stack([drawn.naive_pvalues, drawn.pvalues]), 1e-12)
    np.testing.assert_allclose(np.sort(points, axis=0), np.sort(expected, axis=0))
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert ax.get_xlim() == ax.get_ylim()
    assert (expected >= ax.get_xlim()[0]).all()


def test_tiny_pvalues_stay_in_the_picture() -> None:
    rng = np.random.default_rng(0)
    drawn = compare(rng.normal(size=(300, 2)), rng.normal(size=(300, 2)) + 9, random_state=0)
    low, high = rendered(drawn.plot_pvalues()).get_xlim()
    assert 1e-14 < low < 1e-12
    assert high > 1


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
    drawn = multiscale(k=None)  # everything is always kept
    ax = rendered(drawn.plot_scaling())
    assert "no law to fit" in ax.texts[0].get_text()


def test_scaling_needs_the_multiscale_test_and_a_selected_feature() -> None:
    with pytest.raises(InputError, match=r'^plot_scaling: needs a result of test="multiscale"'):
        result().plot_scaling()
    with pytest.raises(InputError, match=r'^plot_scaling: needs a result of test="multiscale"'):
        multiscale(k=None, threshold=1e6).plot_scaling()
    with pytest.raises(InputError, match=r"^name: must be one of the selected features, got 'nobody'"):
        multiscale().plot_scaling("nobody")


def test_all_questions_can_be_drawn() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    rendered(relate(X, X[:, 1], k=2, random_state=0).plot())
    drawn = screen(X, {"a": rng.normal(size=(50, 4)), "b": rng.normal(size=(50, 4)) + 1}, k=1, random_state=0)
    assert "1 of 1 selected data set stands" in rendered(drawn.plot()).get_title(loc="left")
    rendered(drawn.plot_pvalues())
