"""Every group against the rest: the comparisons of `compare`, corrected together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from kernsift import InputError, compare, compare_groups
from kernsift.cli.app import main
from kernsift.groups import group_results
from kernsift.inference.multiple_testing import adjust

OPTIONS: dict[str, Any] = {"random_state": 0}


def table(gaps: bool = False) -> pd.DataFrame:
    """Three sites of 40 rows; `size` is larger in b, `count` in c, and `level` holds text."""
    rng = np.random.default_rng(3)
    site = np.repeat(["a", "b", "c"], 40)
    found = pd.DataFrame(
        {
            "site": site,
            "size": rng.normal(site == "b"),
            "count": rng.poisson(1 + 2 * (site == "c")).astype(float),
            "noise": rng.normal(size=120),
            "level": rng.choice(["low", "high", "none"], 120),
            "batch": np.tile(["x", "y"], 60),
        }
    )
    if gaps:
        found.loc[rng.random(120) < 0.3, "size"] = np.nan
    return found


def expected(X: Any, correction: str | None = "bh", reference: str | None = None, **options: Any) -> pd.DataFrame:
    """What calls of `compare` and one correction give."""
    results = {
        site: compare(X, by="site", group=site, reference=reference, **OPTIONS, **options)
        for site in "abc"
        if site != reference
    }
    frame = pd.DataFrame(
        [
            (site, name, p, n)
            for site, result in results.items()
            for name, p, n in zip(result.feature_names, result.all_pvalues, result.n, strict=True)
        ],
        columns=["group", "feature", "pvalue", "n"],
    )
    return frame.assign(adjusted_pvalue=adjust(frame["pvalue"].to_numpy(), correction))


def assert_same(found: pd.DataFrame, wanted: pd.DataFrame) -> None:
    both = found.merge(wanted, on=["group", "feature"], suffixes=("", "_wanted"))
    assert len(both) == len(found) == len(wanted)
    for name in ("pvalue", "adjusted_pvalue", "n"):
        np.testing.assert_allclose(both[name], both[f"{name}_wanted"], rtol=1e-9)
    np.testing.assert_array_equal(found["rejected"], found["adjusted_pvalue"] <= 0.05)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"correction": "holm"}, {"reference": "a"}, {"strata": "batch"}, {"given": "batch"}, {"estimator": "cross"}],
)
def test_each_group_has_the_pvalues_of_compare(gaps: bool, options: dict[str, Any]) -> None:
    frame = table(gaps and "estimator" not in options)
    assert_same(compare_groups(frame, "site", **OPTIONS, **options), expected(frame, **options))


def test_files_and_sparse_matrices(tmp_path: Path) -> None:
    frame = table(gaps=True)
    frame.to_parquet(tmp_path / "table.parquet")
    frame.to_csv(tmp_path / "table.csv", index=False)
    wanted = expected(frame)
    for path, memory in (("table.csv", "50MB"), ("table.csv", None), ("table.parquet", "50MB")):
        found = compare_groups(tmp_path / path, "site", memory=memory, intervals=path == "table.parquet", **OPTIONS)
        assert_same(found, wanted)
    held = compare_groups(frame, "site", intervals=True, **OPTIONS)
    np.testing.assert_allclose(found[["effect_lower", "effect_upper"]], held[["effect_lower", "effect_upper"]])
    numbers = frame[["count", "noise"]]
    found = compare_groups(sparse.csr_matrix(numbers), frame["site"].to_numpy(), **OPTIONS)
    wanted = expected(numbers.set_axis(["x0", "x1"], axis=1).assign(site=frame["site"]))
    assert_same(found, wanted)


def test_a_short_list_is_corrected_over_all_features_of_all_groups() -> None:
    frame = table()
    found = compare_groups(frame, "site", k=1, **OPTIONS)
    wanted = expected(frame)
    assert found["group"].tolist() == ["a", "b", "c"] and found["feature"].tolist()[1:] == ["size", "count"]
    best = wanted.loc[wanted.groupby("group")["pvalue"].idxmin()]
    listed = adjust(wanted["pvalue"].to_numpy(), "bh", best.index.to_numpy())
    np.testing.assert_allclose(found["adjusted_pvalue"], listed)
    np.testing.assert_allclose(found["unconditional_pvalue"], best["pvalue"])
    alone = compare_groups(frame, "site", k=1, correction=None, **OPTIONS)
    np.testing.assert_array_equal(alone["adjusted_pvalue"], alone["pvalue"])
    assert (alone["pvalue"] > alone["unconditional_pvalue"]).all()


def test_intervals_are_those_of_the_share_of_discoveries_over_all_groups() -> None:
    frame = table()
    found = compare_groups(frame, "site", intervals=True, **OPTIONS)
    assert "effect_lower" not in compare_groups(frame, "site", **OPTIONS)
    level = 1 - 0.05 * found["rejected"].mean()
    for site, part in found.groupby("group"):
        alone = compare(frame, by="site", group=site, correction=None, confidence_level=level, **OPTIONS).to_frame()
        both = part.merge(alone, on="feature", suffixes=("", "_alone"))
        significant = both[both["rejected"]]
        assert len(significant)
        np.testing.assert_allclose(significant["effect_lower"], significant["effect_lower_alone"], rtol=1e-6)
        np.testing.assert_allclose(significant["effect_upper"], significant["effect_upper_alone"], rtol=1e-6)
        assert (both["effect_lower"][~both["rejected"]] == 0).all()


def test_only_the_strongest_features_have_intervals_and_descriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernsift.groups.STRONGEST", 4)
    found = compare_groups(table(), "site", intervals=True, **OPTIONS)
    has = found["effect_lower"].notna()
    assert has.sum() == 4 and found["pvalue"][has].max() < found["pvalue"][~has].min()
    np.testing.assert_array_equal(found["description"] != "", has)


def test_notes_say_which_group_they_are_about() -> None:
    frame = table(gaps=True)
    frame.loc[5, "site"] = None
    frame.loc[frame["site"] == "a", "noise"] = 1.0
    notes = compare_groups(frame, "site", reference="a", **OPTIONS).attrs["notes"]
    assert "by: 1 of 120 rows have no group and are left out." in notes
    assert any(note.startswith("b: ") and "missing values" in note for note in notes)
    assert any("'level' (3 values)" in note for note in notes)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": "level", "reference": "lo"}, r"^reference: the column `by` has no value 'lo' \(did you mean 'low'"),
        ({"by": "one"}, r"^by: two groups are needed, but 'one' has only the value '1'"),
        ({"by": "rare"}, r"^by: at least 2 rows are needed in each group, but 'r' has 1; add rows, or leave it out"),
        ({"alpha": 2}, "^alpha: "),
        ({"correction": "bonferroni"}, "^correction: "),
        ({"kernel": "gausian"}, "^kernel: "),
        ({"backend": "numpy"}, "^backend: "),
        ({"intervals": 1}, "^intervals: needs True or False, got 1"),
        ({"unit": "batch"}, r"^unit: 'x' \(and 1 more\) has rows in both samples.*strata="),
        ({"layer": "counts"}, "^layer: is for AnnData"),
    ],
)
def test_misuse_is_one_sentence_before_anything_is_compared(
    options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = table().assign(one=1, rare=["r", *"s" * 60, *"t" * 59])
    if not {"unit", "kernel"} & options.keys():
        monkeypatch.setattr("kernsift.groups.compare", lambda *_, **__: pytest.fail("a group was compared"))
    with pytest.raises(InputError, match=words):
        compare_groups(frame, **{"by": "site", **options})
    with pytest.raises(TypeError, match="unexpected keyword argument 'familly'"):
        compare_groups(frame, "site", familly="all")  # type: ignore[call-arg]


def test_the_shell_gives_the_same_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame, path = table(gaps=True), str(tmp_path / "table.csv")
    frame.to_csv(path, index=False)
    wanted = compare_groups(frame, "site", intervals=True, **OPTIONS)
    call = ["compare", path, "--by", "site", "--every-group", "--seed", "0"]
    assert main([*call, "--csv"]) == 0
    (tmp_path / "found.csv").write_text(capsys.readouterr().out)
    found = pd.read_csv(tmp_path / "found.csv")
    assert found["group"].tolist() == wanted["group"].tolist()
    np.testing.assert_allclose(found["adjusted_pvalue"], wanted["adjusted_pvalue"])
    assert main([*call, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert list(answer["groups"]) == ["a", "b", "c"] and answer["discoveries"] == wanted["rejected"].sum()
    assert main(call) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{wanted['rejected'].sum()} of 15 comparisons of 3 groups are significant (false discovery")
    found = wanted["rejected"][wanted["group"] == "b"].sum()
    assert f"\nb v not b: {found} of 5 significant\n" in said and "- Text, compared for equality" in said
    assert "BH p: corrected for 15 tests." in " ".join(said.split())
    for suffix in (".txt", ".parquet", ".xlsx"):
        assert main([*call, "--output", str(tmp_path / f"out{suffix}")]) == 0
        assert (tmp_path / f"out{suffix}").stat().st_size
    for wrong in (["--report", "x.html"], ["--group", "a"], ["--family", "selected"], ["-o", "x.md"], ["--distinct"]):
        assert main([*call, *wrong]) == 2
        assert "--every-group" in capsys.readouterr().err


def test_the_printed_text_has_a_table_for_each_group() -> None:
    arguments = {"estimator": "complete", "test": "exact", "kernel": "gaussian", "bandwidth": "auto", "alpha": 0.05}
    arguments |= {"k": None, "threshold": None, "correction": None, "confidence_level": 0.95, "n_jobs": None}
    text = group_results(table(), "site", **arguments, **OPTIONS, progress=False, memory=None, layer=None).to_text()
    assert "each at level 0.05, not corrected" in text
    assert all(f"{site} v not {site}: " in text for site in "abc")


def test_groups_without_a_listed_feature_have_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "table.csv")
    table().to_csv(path, index=False)
    call = ["compare", path, "--by", "site", "--every-group", "--seed", "0", "--threshold"]
    assert main([*call, "1e6"]) == 0
    said = capsys.readouterr().out
    assert "\n\nb v not b: no feature reached the threshold\n\nc v not c: no feature" in said
    assert "* significant" not in said
    # With one table there is its legend, be it that of the first group or of another.
    frame = compare_groups(table(), "site", **OPTIONS)
    largest = frame.loc[frame["score"].idxmax()]
    assert main([*call, str(largest["score"] - 1e-6)]) == 0
    said = capsys.readouterr().out
    assert said.count("no feature reached the threshold") == 2 and said.count("* significant;") == 1
