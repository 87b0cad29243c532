"""Files by their suffix, from Python and from the command line; exit codes for pipelines."""

from __future__ import annotations

import csv
import gc
import io
import json
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kernsift import InputError, Result, compare, relate, screen
from kernsift.cli import main
from kernsift.report.export import SUFFIXES


@pytest.fixture(scope="module")
def result() -> Result:
    rng = np.random.default_rng(0)
    X, Y = (pd.DataFrame(rng.normal(size=(60, 4)), columns=["a", "=cmd()", "c|d", "*e*"]) for _ in range(2))
    return compare(X, Y.assign(a=Y["a"] + 3), random_state=0)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_suffix_says_what_is_written(result: Result, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"answer{suffix}"
    result.save(path, sort="name")
    data = path.read_bytes()
    assert len(data) > 100
    if suffix in (".csv", ".tsv"):
        rows = list(csv.DictReader(io.StringIO(data.decode()), delimiter="," if suffix == ".csv" else "\t"))
        assert [row["feature"] for row in rows] == ["*e*", "'=cmd()", "a", "c|d"]
        assert rows[2]["description"].startswith("higher in Y: median")
    elif suffix == ".json":
        assert [row["feature"] for row in json.loads(data)["features"]] == sorted(result.names)
    elif suffix == ".parquet":
        frame = pd.read_parquet(path)
        assert frame["feature"].tolist() == sorted(result.names)
        np.testing.assert_array_equal(frame["pvalue"], result.to_frame(sort="name")["pvalue"])
    elif suffix == ".xlsx":
        frame = pd.read_excel(path)
        assert frame["feature"].tolist() == ["*e*", "'=cmd()", "a", "c|d"]
        np.testing.assert_allclose(frame["effect"], result.to_frame(sort="name")["effect"])
    elif suffix == ".md":
        assert "| \\* | a |" in data.decode()
        assert data.decode().startswith("1 of the 4 features significantly differs")
    else:
        assert (b"<!doctype html>" in data) == (suffix in (".html", ".htm"))


def test_markdown_takes_names_as_text() -> None:
    rng = np.random.default_rng(0)
    X, Y = (pd.DataFrame(rng.normal(size=(60, 2)), columns=["c|d", "*e*"]) for _ in range(2))
    text = compare(X, Y, random_state=0).to_markdown()
    assert "| c\\|d |" in text
    assert "| \\*e\\* |" in text


def test_methods_return_or_write_the_same(result: Result, tmp_path: Path) -> None:
    """A method that has written a file returns nothing, which a notebook would show."""
    for name in ("csv", "json", "html", "markdown"):
        path, method = tmp_path / f"x.{name}", getattr(result, f"to_{name}")
        assert method(path) is None
        assert method() == path.read_text(encoding="utf-8")
    result.to_excel(tmp_path / "x.xlsx")
    result.to_parquet(tmp_path / "x.parquet")
    assert pd.read_parquet(tmp_path / "x.parquet")["feature"].tolist() == list(result.names)


@pytest.mark.parametrize(
    ("method", "own", "others"),
    [
        ("to_csv", ".csv", ["x.tsv", "x.html"]),
        ("to_json", ".json", ["x.csv", "x.txt"]),
        ("to_markdown", ".md", ["x.html"]),
        ("to_html", ".html", ["x.csv", "x.TXT"]),
        ("to_excel", ".xlsx", ["x.csv"]),
        ("to_parquet", ".parquet", ["x.csv"]),
    ],
)
def test_the_suffix_of_another_format_is_refused(
    result: Result, method: str, own: str, others: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in others:
        with pytest.raises(
            InputError, match=rf"^path: the name .* must end in \{own}, got '{name}'; rename it, or use save"
        ):
            getattr(result, method)(name)
    assert not list(tmp_path.iterdir())
    getattr(result, method)(f"x{own.upper()}")
    result.to_csv("x.txt")
    result.to_html("x.htm")
    result.to_html("page")
    assert len(list(tmp_path.iterdir())) == 4


def test_an_unknown_suffix_is_an_error(result: Result, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"path: the suffix says what is written and must be one of \.csv, .* got 'x.doc'"
    ):
        result.save("x.doc")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(1)
    monkeypatch.chdir(tmp_path)
    for name, shift in (("before", 0.0), ("same", 0.0), ("after", 2.0)):
        frame = pd.DataFrame(rng.normal(size=(80, 3)), columns=["x", "y", "z"])
        frame["x"] += shift
        frame.to_csv(f"{name}.csv", index=False)
    return tmp_path


def test_output_of_the_command_line(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for suffix in (".csv", ".json", ".html", ".md", ".parquet"):
        assert main(["compare", "before.csv", "after.csv", "-q", "--seed", "1", "-o", f"out{suffix}"]) == 0
    assert pd.read_csv("out.csv")["description"][0].startswith("higher in after.csv: median")
    assert pd.read_parquet("out.parquet")["feature"][0] == "x"
    html = Path("out.html").read_text(encoding="utf-8")
    assert "<title>What differs between before.csv and after.csv</title>" in html
    assert "kernsift compare before.csv after.csv" in html
    assert capsys.readouterr().out == ""
    assert main(["compare", "before.csv", "after.csv", "-o", "out.doc"]) == 2
    assert "--output: the suffix says what is written" in capsys.readouterr().err
    assert main(["compare", "before.csv", "after.csv", "--report", "x.pdf"]) == 2
    assert "--report" in (said := capsys.readouterr().err) and "must end in .html" in said
    assert not Path("x.pdf").exists()


def test_sorting_on_the_command_line(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "before.csv", "after.csv", "--csv", "--sort", "name"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["feature"] for row in rows] == ["x", "y", "z"]
    assert main(["compare", "before.csv", "after.csv", "--sort", "effect"]) == 0
    assert "Sorted by effect, largest first." in capsys.readouterr().out


def test_a_discovery_can_fail_a_pipeline(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "before.csv", "after.csv", "--fail-on-discovery"]) == 4
    assert "higher in after.csv" in capsys.readouterr().out
    assert main(["compare", "before.csv", "after.csv"]) == 0
    assert main(["compare", "before.csv", "same.csv", "--alpha", "1e-6", "--fail-on-discovery"]) == 0


def test_results_are_compared_by_identity(result: Result) -> None:
    assert result == result
    assert result != compare(np.arange(4.0)[:, None], np.ones((4, 1)), random_state=0)
    assert len({result, result}) == 1


def test_the_data_are_freed_once_everything_is_computed() -> None:
    rng = np.random.default_rng(0)
    for estimator in ("complete", "cross", "incomplete"):
        X, Y = rng.normal(size=(200, 5)), rng.normal(size=(200, 5))
        kept = [weakref.ref(X), weakref.ref(Y)]
        result = compare(X, Y, estimator=estimator, random_state=0)
        result.to_frame()
        del X, Y
        gc.collect()
        assert [ref() for ref in kept] == [None, None], estimator
        again = result.to_frame()
        assert len(again) == 5
        assert result.raw_effects is not None and result.summary() and str(result) and result.to_html()


@pytest.mark.parametrize("estimator", ["complete", "cross", "incomplete"])
def test_a_result_does_not_follow_later_changes_of_its_input(estimator: str) -> None:
    rng = np.random.default_rng(0)
    X, Y, y = rng.normal(size=(100, 3)), rng.normal(0.5, 1, size=(100, 3)), rng.normal(size=100)
    for question in (
        lambda: compare(X, Y, estimator=estimator, random_state=0),
        lambda: relate(X, y, estimator=estimator, random_state=0),
        lambda: screen(X, {"a": Y, "b": X[::-1]}, estimator=estimator, random_state=0),
    ):
        expected, later = question(), question()
        expected.to_frame()
        kept = [array.copy() for array in (X, Y, y)]
        for array in (X, Y, y):
            array[:] = rng.permutation(array)
        pd.testing.assert_frame_equal(later.to_frame(), expected.to_frame())
        for array, before in zip((X, Y, y), kept, strict=True):
            array[:] = before


def test_json_round_trip() -> None:
    """Every number is the one of the result, and null stands for NaN and infinities alone."""
    rng = np.random.default_rng(0)
    X, Y = (
        pd.DataFrame({"näme": rng.normal(size=80), "city": rng.choice(["Rome", 'O"slo'], 80), "gone": np.nan})
        for _ in range(2)
    )
    X["constant"] = Y["constant"] = 1.0
    Y["näme"] += 3
    Y["gone"] = rng.normal(size=80)
    result = compare(X, Y, random_state=0)
    plain = json.loads(result.to_json(sort="name"))
    frame = result.to_frame(sort="name")
    assert [row["feature"] for row in plain["features"]] == frame["feature"].tolist()
    for name in frame.columns:
        found, expected = [row[name] for row in plain["features"]], frame[name].tolist()
        same = [(a is None and b != b) or a == b for a, b in zip(found, expected, strict=True)]
        assert all(same), (name, found, expected)
    medians = {row["feature"]: row["median_first"] for row in plain["features"]}
    assert medians["city"] is None and medians["gone"] is None and medians["constant"] == 1.0
    assert plain["scores"] == dict(zip(result.feature_names, result.scores.tolist(), strict=True))
    assert plain["all_pvalues"]["näme"] == result["näme"].pvalue
    assert (plain["seed"], plain["alpha"], plain["rows"], plain["tested"]) == (0, 0.05, [80, 80], 4)
    assert plain["notes"] == list(result.notes)
    assert "näme" in result.to_json()
    # Numbers that JSON does not have.
    odd = replace(result, settings={"threshold": np.float64("inf"), "array": np.array([1.0, -np.inf, np.nan])})
    assert json.loads(odd.to_json())["settings"] == {"threshold": None, "array": [1.0, None, None]}
