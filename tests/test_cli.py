"""The command line: tables that fit the terminal, one-line errors, exit codes, pipes."""

from __future__ import annotations

import csv
import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kernsift import compare
from kernsift.cli import options
from kernsift.cli.app import app, main
from kernsift.cli.messages import command_line_message
from kernsift.estimators import HSIC, MMD, SCREEN
from kernsift.experiments.configurations import ARTEFACTS
from kernsift.inference import TESTS
from kernsift.inference.multiple_testing import CORRECTIONS
from kernsift.kernels.functions import KERNELS

Run = tuple[int, str, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables with one column each that plainly differs, or that the target plainly depends on."""
    path = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(3)

    def sample(n: int, shift: float) -> pd.DataFrame:
        columns = {"id": np.arange(n), "weight": rng.normal(70 + 30 * shift, 10, n), "unit": "kg"}
        noise = {f"noise {i}": rng.normal(size=n) for i in range(14)}
        return pd.DataFrame(columns | noise | {"city": rng.choice(["Rome", "Oslo"], n)})

    sample(80, 0.0).to_csv(path / "before.csv", index=False)
    sample(60, 1.0).to_csv(path / "after.csv", index=False)
    table = sample(90, 0.0)
    table["outcome"] = table["weight"] ** 2
    table["class"] = np.where(table["weight"] > 70, "heavy", "light")
    table.to_csv(path / "patients.csv", index=False)
    for name, shift in (("reference", 0.0), ("same", 0.0), ("moved", 1.0)):
        np.save(path / f"{name}.npy", rng.normal(size=(70, 3)) + shift)
    np.savez(path / "more.npz", one=rng.normal(size=(70, 3)), two=rng.normal(size=(70, 3)) * 4)
    return path


@pytest.fixture
def kernsift(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run a command in the folder of tables: exit code, standard output, standard error."""
    monkeypatch.chdir(folder)

    def run(*arguments: str) -> Run:
        code = main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def stars(text: str) -> list[str]:
    rows = [line for line in text.splitlines() if line.startswith("* ") and not line.startswith("* significant;")]
    return [line[2:].split("  ")[0].strip() for line in rows if re.search(r"\d\.\d", line)]


# Questions -----------------------------------------------------------------------------------------------------------


def test_compare(kernsift) -> None:
    code, out, err = kernsift("compare", "before.csv", "after.csv", "--k", "4", "--seed", "1")
    assert (code, err) == (0, "")
    assert stars(out) == ["weight"]
    words = " ".join(out.split())
    assert "1 of the 4 selected features, out of 17, significantly differs between the two samples" in words
    assert "(false discovery rate 0.05, BH over all 17 features)" in words
    for said in ("left out: 'id'", "(p = 1): 'unit'", "equality: 'city' (2 values)", "selective p", "BH p"):
        assert said in words
    assert kernsift("compare", "before.csv", "after.csv", "-k4", "--seed", "1")[1] == out


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_table_fits_the_terminal(kernsift, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out = kernsift("compare", "before.csv", "after.csv", "--k", "4")[1]
    assert max(map(len, out.splitlines())) <= width
    assert all(word in out for word in ("effect", "selective p"))


def test_everything_is_tested_by_default(kernsift) -> None:
    _, out, _ = kernsift("compare", "before.csv", "after.csv", "--seed", "1")
    assert "of the 17 features significantly differ" in " ".join(out.split())
    assert stars(out) == ["weight"]
    for every in (["--k", "all"], ["--json"]):
        assert kernsift("compare", "before.csv", "after.csv", "--seed", "1", *every)[0] == 0
    record = json.loads(kernsift("compare", "before.csv", "after.csv", "--json")[1])
    assert (len(record["features"]), record["listed"], record["tested"]) == (17, False, 17)
    arguments = ["--k", "3", "--family", "selected", "--confidence-level", "0.8", "--correction", "bky", "--json"]
    record = json.loads(kernsift("compare", "before.csv", "after.csv", *arguments)[1])
    assert (record["family"], record["confidence_level"], record["correction"]) == ("selected", 0.8, "bky")


def test_the_legend_has_what_the_table_has(kernsift, monkeypatch: pytest.MonkeyPatch) -> None:
    for width, shown in ((50, False), (100, True)):
        monkeypatch.setenv("COLUMNS", str(width))
        out = kernsift("compare", "before.csv", "after.csv", "--seed", "1")[1]
        table, legend = out.split("* significant;")
        assert ("what changed" in table, "after.csv v before.csv" in " ".join(legend.split())) == (shown, shown)


def test_what_would_be_ignored_is_refused(kernsift) -> None:
    """The columns that all files have, of one file; the encoding of a file that is not read; JSON in a .csv."""
    code, _, err = kernsift("relate", "patients.csv", "-t", "class", "--common-columns")
    assert code == 2 and "No such option" in err
    code, _, err = kernsift("compare", "before.csv", "after.csv", "--encoding", "befor.csv=latin-1")
    assert code == 2 and "no file 'befor.csv' is read (did you mean 'before.csv'?)" in err
    code, _, err = kernsift("screen", "reference.npy", "same.npy", "--encoding", "z.csv=latin-1")
    assert code == 2 and "no file 'z.csv' is read" in err
    code, _, err = kernsift("compare", "before.csv", "after.csv", "--json", "-o", "found.csv")
    assert code == 2 and "must end in .json, got 'found.csv'; rename it, or leave out --json." in err


def test_notes_name_files(kernsift, folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("base.csv", "other.csv"):
        pd.DataFrame(rng.normal(size=(30, 2)), columns=["a", "b"]).mask(lambda table: table > 1.5).to_csv(
            folder / name, index=False
        )
    notes = json.loads(kernsift("screen", "base.csv", "other.csv", "--json")[1])["notes"]
    assert [note.split(": ")[0] for note in notes] == ["base.csv", "other"]


def test_relate(kernsift) -> None:
    for target in ("outcome", "class"):
        left_out = "class" if target == "outcome" else "outcome"
        code, out, _ = kernsift("relate", "patients.csv", "--target", target, "--exclude", left_out, "--k", "3")
        assert code == 0
        assert stars(out) == ["weight"]


def test_relate_with_groups_and_several_targets(kernsift) -> None:
    arguments = ["-t", "outcome", "-t", "class", "--feature", "rest=noise*,city,unit", "--k", "all", "--json"]
    code, out, _ = kernsift("relate", "patients.csv", *arguments)
    assert code == 0
    assert {row["feature"] for row in json.loads(out)["features"]} == {"weight", "rest"}


def test_whole_numbers_as_target_are_said(kernsift, folder: Path) -> None:
    table = pd.read_csv(folder / "patients.csv")
    table["grade"] = pd.qcut(table["weight"], 4, labels=False)
    table.to_csv(folder / "graded.csv", index=False)
    assert "--response numeric" in " ".join(kernsift("relate", "graded.csv", "-t", "grade")[1].split())
    assert "--response numeric" not in kernsift("relate", "graded.csv", "-t", "grade", "--response", "numeric")[1]


def test_compare_groups_of_one_file(kernsift, folder: Path) -> None:
    files = {"t0": "before.csv", "t1": "after.csv"}
    both = pd.concat([pd.read_csv(folder / file).assign(when=when) for when, file in files.items()])
    both.to_csv(folder / "both.csv", index=False)
    code, out, err = kernsift("compare", "both.csv", "--by", "when", "--seed", "1", "--json")
    assert (code, err) == (0, "")
    one, two = json.loads(out), json.loads(kernsift("compare", "before.csv", "after.csv", "--seed", "1", "--json")[1])
    shared = {row["feature"]: row["pvalue"] for row in two["features"]}
    assert {row["feature"]: pytest.approx(row["pvalue"]) for row in one["features"]} == shared
    pd.concat([both, both.iloc[::3].assign(when="t2")]).to_csv(folder / "three.csv", index=False)
    code, _, err = kernsift("compare", "three.csv", "--by", "when")
    assert code == 2
    assert all(word in err for word in ("--group t0", "--reference t1", "kernsift relate", "--every-group"))
    for more in (["--group", "t1"], ["--group", "t1", "--reference", "t0"]):
        assert stars(kernsift("compare", "three.csv", "--by", "when", *more)[1]) == ["weight"]


def test_all_columns_that_need_a_decision_are_named_at_once(kernsift, folder: Path) -> None:
    n = 40
    rng = np.random.default_rng(0)
    for name, factor in (("jan.csv", 1.0), ("feb.csv", 2.7)):
        price = rng.lognormal(5, 0.5, n) * factor
        columns = {
            "price": [f"${value:,.2f}" for value in price * 10],
            "share": [f"{value:.1f}%" for value in rng.uniform(0, 99, n)],
            "dose": [*map(str, rng.integers(0, 50, n - 2)), "unknown", "n.a."],
            "seen": [f"{day}/01/2020" for day in rng.integers(1, 28, n)],
            "size": rng.normal(size=n),
        }
        pd.DataFrame(columns).to_csv(folder / name, index=False)
    code, _, err = kernsift("compare", "jan.csv", "feb.csv")
    assert code == 2
    assert all(f"'{name}'" in err for name in ("price", "share", "dose", "seen"))
    assert "--number price,share,dose,seen" in err
    chosen = ["--number", "price,share,dose", "--exclude", "seen", "--seed", "0"]
    code, out, _ = kernsift("compare", "jan.csv", "feb.csv", *chosen)
    assert code == 0
    assert stars(out) == ["price"]
    assert "'unknown'" in out
    frames = [pd.read_csv(folder / name) for name in ("jan.csv", "feb.csv")]
    kinds = {"price": "number", "share": "number", "dose": "number", "seen": "drop"}
    record = json.loads(kernsift("compare", "jan.csv", "feb.csv", *chosen, "--json")[1])
    expected = compare(*frames, kinds=kinds, random_state=0)
    assert record["all_pvalues"] == dict(zip(expected.feature_names, expected.all_pvalues.tolist(), strict=True))


def test_columns_that_files_do_not_share_are_said_however_quiet(kernsift, folder: Path) -> None:
    pd.read_csv(folder / "before.csv").assign(extra=1.5).to_csv(folder / "wider.csv", index=False)
    code, _, err = kernsift("compare", "wider.csv", "after.csv", "--csv", "--quiet")
    assert code == 2 and "'extra'" in err and "--common-columns" in err
    asked, said = ("compare", "wider.csv", "after.csv", "--common-columns"), "'extra' is only in wider.csv."
    for quiet in (("--csv", "--quiet"), ("--json",), ("-o", "drift.md"), ("-q", "--report", "drift.html")):
        code, _, err = kernsift(*asked, *quiet)
        assert code == 0 and said in err, quiet
    assert said in (folder / "drift.md").read_text() and "only in wider.csv" in (folder / "drift.html").read_text()
    code, out, err = kernsift(*asked)
    assert code == 0 and said in " ".join(out.split()) and "extra" not in err


def test_screen(kernsift) -> None:
    code, out, _ = kernsift(
        "screen", "reference.npy", "same.npy", "moved.npy", "more.npz", "--k", "3", "--alpha", "0.001"
    )
    assert code == 0
    assert sorted(stars(out)) == ["moved", "two"]
    assert "2 of the 3 selected data sets, out of 4, significantly deviate" in " ".join(out.split())


def test_standard_input(kernsift, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (folder / "before.csv").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    from_pipe = kernsift("compare", "-", "after.csv", "--seed", "1", "--json")
    assert json.loads(from_pipe[1]) == json.loads(
        kernsift("compare", "before.csv", "after.csv", "--seed", "1", "--json")[1]
    )
    assert kernsift("compare", "-", "-")[0] == 2


def test_demo_tells_fakes_from_measurements(kernsift) -> None:
    code, out, _ = kernsift("demo")
    assert code == 0
    assert "mean concave points" in stars(out)
    seen = " ".join(out.split())
    found = re.search(r"Found: (\d+) of the 10 real measurements", seen)
    assert found is not None
    assert int(found[1]) >= 8
    luck = re.search(r"(\d+) of these have p-values of at most 0.05 if one ignores", seen)
    assert luck is not None
    # By chance 5 % of 190 shuffled columns have such a p-value; the list holds the best of them.
    assert int(luck[1]) > 0
    assert "decided over all columns" in seen


# Output --------------------------------------------------------------------------------------------------------------


def test_json_and_csv_say_the_same(kernsift) -> None:
    answers = [kernsift("compare", "before.csv", "after.csv", "--seed", "2", how)[1] for how in ("--json", "--csv")]
    record, table = json.loads(answers[0]), list(csv.DictReader(io.StringIO(answers[1])))
    assert [row["feature"] for row in record["features"]] == [row["feature"] for row in table]
    assert [row["pvalue"] for row in record["features"]] == [float(row["pvalue"]) for row in table]
    assert record["seed"] == 2
    assert any("'unit'" in note for note in record["notes"])
    assert kernsift("compare", "before.csv", "after.csv", "--json", "--csv")[0] == 2


def test_csv_holds_no_formulas(kernsift, folder: Path) -> None:
    names = ["=1+1", "+a", "-b", "@c", "\td", "e"]
    rng = np.random.default_rng(0)
    for file in ("one.csv", "two.csv"):
        pd.DataFrame(rng.normal(size=(20, 6)), columns=names).to_csv(folder / file, index=False)
    out = kernsift("compare", "one.csv", "two.csv", "--csv")[1]
    cells = {row["feature"] for row in csv.DictReader(io.StringIO(out))}
    assert cells == {"'=1+1", "'+a", "'-b", "'@c", "d", "e"}  # white space around names is dropped when reading


def test_the_seed_gives_the_same_answer_and_is_told(kernsift) -> None:
    arguments = ["compare", "before.csv", "after.csv", "--test", "multiscale", "--estimator", "incomplete"]
    first = kernsift(*arguments)[1]
    seed = re.search(r"--seed (\d+)", first)
    assert seed is not None
    again = kernsift(*arguments, "--seed", seed[1])[1]
    assert again.splitlines()[:11] == first.splitlines()[:11]


def test_quiet_is_only_the_table(kernsift, tmp_path: Path) -> None:
    out = kernsift("compare", "before.csv", "after.csv", "-q", "--k", "10")[1]
    *lines, last = out.splitlines()
    # A long description goes on in the next line.
    assert len([line for line in lines if line[2] != " "]) == 11
    assert last == "Sorted by evidence, strongest first."
    code, out, err = kernsift("compare", "before.csv", "after.csv", "-q", "--report", str(tmp_path / "r.html"))
    assert (code, out, err) == (0, "", "")
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_files_are_written_whole_or_not_at_all(kernsift, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "answer.json"
    target.write_text("old")
    target.chmod(0o640)
    assert kernsift("compare", "before.csv", "after.csv", "--json", "-o", str(target))[:2] == (0, "")
    assert json.loads(target.read_text(encoding="utf-8"))["question"] == "compare"
    assert target.stat().st_mode & 0o777 == 0o640

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    kept = target.read_text(encoding="utf-8")
    monkeypatch.setattr(os, "replace", full)
    code, _, err = kernsift("compare", "before.csv", "after.csv", "--json", "-o", str(target))
    assert code == 2
    assert "No space left" in err
    assert target.read_text(encoding="utf-8") == kept
    assert os.listdir(tmp_path) == ["answer.json"]


def test_options_reach_the_library(kernsift) -> None:
    arguments = ["--k", "20%", "--alpha", "0.2", "--correction", "none", "--estimator", "block", "--test", "naive"]
    arguments += ["--kernel", "laplace", "--bandwidth", "2.5", "--option", "block_size=6", "--columns", "noise*,weight"]
    record = json.loads(kernsift("compare", "before.csv", "after.csv", *arguments, "--json")[1])
    settings = record["settings"]
    assert len(record["features"]) == 3
    assert (record["alpha"], record["correction"]) == (0.2, None)
    assert settings == {
        "k": 3,
        "threshold": None,
        "estimator": "block",
        "test": "naive",
        "kernel": "laplace",
        "bandwidth": 2.5,
        "block_size": 6,
    }
    record = json.loads(kernsift("compare", "before.csv", "after.csv", "--threshold", "2", "--json")[1])
    assert "weight" in [row["feature"] for row in record["features"]]


def test_missing_values(kernsift, folder: Path) -> None:
    table = pd.read_csv(folder / "before.csv")
    table.loc[3, "weight"] = np.nan
    table.to_csv(folder / "gaps.csv", index=False)
    code, _, err = kernsift("compare", "gaps.csv", "after.csv", "--missing", "error")
    assert code == 2
    assert err.startswith("kernsift: gaps.csv: 1 of 80 rows have missing values, in columns 'weight' (1);")
    assert "--missing drop" in err
    assert kernsift("compare", "gaps.csv", "after.csv", "--missing", "drop")[0] == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_long_work_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernsift.execution import progress

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.progress_bar():
        progress.report_progress("scoring features", 40, 40)
    assert terminal.getvalue() == ""  # less than two seconds
    monkeypatch.setattr(progress, "_DELAY", 0)
    with progress.progress_bar():
        progress.report_progress("scoring features", 10, 40)
        time.sleep(0.2)
        progress.report_progress("scoring features", 20, 40)
    assert "scoring features:  50%" in terminal.getvalue() and "20.0/40.0" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")  # and clears the line


def test_a_call_shows_a_bar_where_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from kernsift import SelectMMD, compare
    from kernsift.execution import progress

    monkeypatch.setattr(progress, "_DELAY", 0)
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(20, 7)), rng.normal(size=(20, 7))
    compare(X, Y, random_state=0)
    assert "scoring features" not in capsys.readouterr().err
    compare(X, Y, random_state=0, progress=True)
    assert "scoring features" in capsys.readouterr().err
    SelectMMD(random_state=0, progress=True).fit(np.r_[X, Y], np.repeat([0, 1], 20))
    assert "scoring features" in capsys.readouterr().err


@pytest.mark.parametrize("estimator", ["complete", "cross"])
def test_the_library_tells_how_far_it_is(estimator: str) -> None:
    from kernsift import compare
    from kernsift.execution.progress import progress_callback

    heard: list[tuple[str, int, int]] = []
    rng = np.random.default_rng(0)
    with progress_callback(lambda *said: heard.append(said)):
        compare(rng.normal(size=(20, 7)), rng.normal(size=(20, 7)), k=2, estimator=estimator, random_state=0)
    assert ("scoring features", 7, 7) in heard


# Errors --------------------------------------------------------------------------------------------------------------

WRONG = {
    "no such command": (["comprae"], "Did you mean 'compare'"),
    "no file": (["compare", "before.csv"], "Name two files, or one file and"),
    "no such file": (["compare", "befor.csv", "after.csv"], "did you mean before.csv?"),
    "no target": (["relate", "patients.csv"], "Missing option '--target'"),
    "no such target": (["relate", "patients.csv", "-t", "outcom"], "did you mean 'outcome'?"),
    "no such option": (["compare", "before.csv", "after.csv", "--kk", "1"], "No such option"),
    "k is a word": (["compare", "before.csv", "after.csv", "--k", "ten"], "or 'all', got 'ten'"),
    "k too large": (["compare", "before.csv", "after.csv", "--k", "99"], "--k: at most the number of features, 17"),
    "k and threshold": (["compare", "before.csv", "after.csv", "--k", "2", "--threshold", "1"], "leave out --k 2"),
    "alpha": (["compare", "before.csv", "after.csv", "--alpha", "5"], "--alpha: needs a number between 0 and 1"),
    "level": (["compare", "before.csv", "after.csv", "--confidence-level", "95"], "--confidence-level: needs a number"),
    "feature": (["compare", "before.csv", "after.csv", "--feature", "x"], "needs NAME=column,column"),
    "feature column": (["compare", "before.csv", "after.csv", "--feature", "g=weigth"], "did you mean 'weight'?"),
    "group without by": (["compare", "before.csv", "after.csv", "--group", "a"], "pass --by too"),
    "by and two files": (["compare", "before.csv", "after.csv", "--by", "city"], "Name two files, or one file and"),
    "by is no column": (
        ["compare", "before.csv", "--by", "ctiy"],
        "--by: before.csv has no column 'ctiy'; did you mean",
    ),
    "strata are no column": (
        ["compare", "before.csv", "--by", "city", "--strata", "zz"],
        "--strata: before.csv has no",
    ),
    "target is no column": (["relate", "before.csv", "--target", "ctiy"], "--target: before.csv has no column 'ctiy'"),
    "no such group": (["compare", "before.csv", "--by", "city", "--group", "Roma"], "(did you mean 'Rome'?)"),
    "one group": (["compare", "before.csv", "--by", "unit"], "--by: two groups are needed"),
    "number and category": (
        ["compare", "before.csv", "after.csv", "--number", "weight", "--category", "city,weight"],
        "--category: 'weight' is named by --number as well; name it once",
    ),
    "option": (["compare", "before.csv", "after.csv", "--option", "r"], "needs NAME=VALUE"),
    "unknown option": (["compare", "before.csv", "after.csv", "--option", "r=2"], "--option: r is no option of"),
    "estimator": (["relate", "patients.csv", "-t", "outcome", "--estimator", "linear"], "'linear' is not one of"),
    "words as numbers": (
        ["compare", "before.csv", "after.csv", "--number", "city"],
        "--number: column 'city' cannot be read as numbers, because few of its 2 different texts are numbers; use "
        "--category or --exclude.",
    ),
    "an event of numbers": (
        ["relate", "patients.csv", "--target", "weight", "--event", "class", "--response", "numeric"],
        "--event makes a censored response; leave out --response numeric",
    ),
    "a file like no other": (["compare", "xyz.csv", "after.csv"], "xyz.csv: there is no such file; check"),
    "nowhere to write": (["compare", "before.csv", "after.csv", "--report", "no/where.html"], "cannot be written"),
    "category in screen": (["screen", "before.csv", "after.csv", "--columns", "city"], "holds categories"),
    "seed": (["compare", "before.csv", "after.csv", "--seed", "-1"], "--seed"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_is_one_line_and_exit_code_2(kernsift, case: str) -> None:
    arguments, said = WRONG[case]
    code, out, err = kernsift(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("kernsift: ")
    assert err.count("\n") == 1


def test_an_unexpected_error_is_one_line_unless_debugging(kernsift, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("kernsift.api.compare", broken)
    code, _, err = kernsift("compare", "before.csv", "after.csv")
    assert code == 1
    assert err == "kernsift: unexpected ZeroDivisionError: oh (--debug shows where)\n"
    assert "Traceback" in kernsift("compare", "before.csv", "after.csv", "--debug")[2]


def test_a_missing_package_is_named(kernsift, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    code, _, err = kernsift("compare", "before.csv", "after.csv")
    assert code == 3
    assert (
        err
        == "kernsift: Reading text files needs pandas: pip install '.[all]' in a checkout of kernsift installs it.\n"
    )
    monkeypatch.undo()


def test_an_interruption_is_no_traceback(kernsift, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kernsift.api.compare", interrupted)
    code, out, err = kernsift("compare", "before.csv", "after.csv")
    assert (code, out, err.strip()) == (130, "", "kernsift: interrupted.")


def test_names_cannot_write_on_the_terminal(kernsift, folder: Path) -> None:
    (folder / "odd.csv").write_text("a\x1b[31m,a\x1b[31m\n1,2\n")
    err = kernsift("compare", "odd.csv", "odd.csv")[2]
    assert "\x1b" not in err
    (folder / "odd.csv").write_text("a\x1b[31m,b\n1,2\n2,4\n3,9\n")
    code, out, _ = kernsift("compare", "odd.csv", "odd.csv")
    assert code == 0
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("X: 1 of 2 rows; leave out with missing='drop'.", "a.csv: 1 of 2 rows; leave out with --missing drop."),
        ("k: at most 3; use k=None for all.", "--k: at most 3; use --k all for all."),
        ("k: needs a number, or None, got -1.", "--k: needs a number, or all, got -1."),
        (
            'q: no option of estimator="block" with test="exact".',
            "q: no option of --estimator block with --test exact.",
        ),
        ("random_state: needs a number.", "--seed: needs a number."),
        ("paired: two rows; use strata= for groups.", "--paired: two rows; use --strata for groups."),
        ("group: the column `by` has no value 'b'.", "--group: the column of --by has no value 'b'."),
        ("X: there is no file z.csv; check the path, or pass data.", "a.csv: there is no file z.csv; check the path."),
        ("Rows repeat; use unit='patient id'.", "Rows repeat; use --unit 'patient id'."),
        ("bandwidth: needs estimator='complete' or 'cross'.", "--bandwidth: needs --estimator complete or cross."),
        ("Censored: pass y=('days', 'dead').", "Censored: use --target days --event dead."),
        ("Y: as in X, but 'X' is missing.", "b.csv: as in X, but 'X' is missing. (X is a.csv)"),
        (
            "strata=: takes 9 MB; allow more with memory=, or pass fewer.",
            "--strata: takes 9 MB; allow more with --memory, or pass fewer.",
        ),
        ("no p-value can be significant at alpha=0.05", "no p-value can be significant at --alpha 0.05"),
        ("response: needs 'auto' or 'numeric'", "--response: needs 'auto' or 'numeric'"),
    ],
)
def test_messages_speak_of_files_and_options(message: str, shown: str) -> None:
    assert command_line_message(message, {"X": "a.csv", "Y": "b.csv"}) == shown


# The process ---------------------------------------------------------------------------------------------------------


def process(*arguments: str, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kernsift", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **(pipes | options))  # type: ignore[call-overload]


def test_help_is_there_at_once_and_loads_nothing_that_computes() -> None:
    program = "import sys, kernsift.cli as c; c.main(['--help']); print(sorted({'numpy', 'scipy'} & set(sys.modules)))"
    started = time.perf_counter()
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"
    assert time.perf_counter() - started < 5  # 0.2 s on an idle machine


def test_a_closed_pipe_is_no_error(folder: Path) -> None:
    run = process("compare", "before.csv", "after.csv", "--json", cwd=folder)
    assert run.stdout is not None
    assert run.stderr is not None
    run.stdout.close()
    assert run.stderr.read() == ""
    assert run.wait() == 0
    run.stderr.close()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_ctrl_c(folder: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    # Where the tests run in the background of a shell the signal is ignored, and a child inherits that.
    heed = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    run = process("compare", "before.csv", str(pipe), cwd=folder, **heed)
    with open(pipe, "wb"):  # waits until the other side reads
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert err.strip() == "kernsift: interrupted."


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_process_that_is_told_to_end_removes_its_files(folder: Path, tmp_path: Path) -> None:
    pipe, temporary = tmp_path / "pipe.csv", tmp_path / "tmp"
    os.mkfifo(pipe)
    temporary.mkdir()
    run = process("compare", "before.csv", str(pipe), cwd=folder, env=os.environ | {"TMPDIR": str(temporary)})
    with open(pipe, "wb"):  # waits until the other side reads, into a copy
        assert len(os.listdir(temporary)) == 1
        run.send_signal(signal.SIGTERM)
        _, err = run.communicate(timeout=60)
    assert (run.returncode, err) == (143, "")
    assert os.listdir(temporary) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_named_pipe_is_read_as_a_file(folder: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    run = process("compare", "before.csv", str(pipe), "-q", cwd=folder)
    pipe.write_bytes((folder / "after.csv").read_bytes())
    out, err = run.communicate()
    assert (run.returncode, err) == (0, "")
    assert stars(out) == ["weight"]


def test_completion() -> None:
    environment = os.environ | {
        "_KERNSIFT_COMPLETE": "bash_complete",
        "COMP_WORDS": "kernsift compare --es",
        "COMP_CWORD": "2",
    }
    out = process(env=environment).communicate()[0]
    assert out.split() == ["plain,--estimator"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(kernsift, shell: str) -> None:
    code, out, _ = kernsift("completion", shell)
    assert code == 0
    assert "_KERNSIFT_COMPLETE" in out


# Help ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["compare", "relate", "screen"])
def test_help_has_examples_and_exit_codes(kernsift, command: str) -> None:
    code, out, _ = kernsift(command, "--help")
    assert code == 0
    assert f"kernsift {command} " in out
    assert "Examples:" in out
    assert "130  interrupted" in out
    listed = ("columns", "exclude", "k", "alpha", "correction", "estimator", "test", "seed", "json", "csv", "report")
    assert all(f"--{name} " in out or f"--{name}\n" in out for name in listed)
    assert "\nOther:\n  --debug" in out  # all other options are in a section by what they are about


QUESTIONS = {"compare": set(MMD), "relate": set(HSIC), "screen": set(SCREEN)}


def test_the_choices_are_those_of_the_library() -> None:
    offered = {name: next(p for p in app.commands[name].params if p.name == "estimator") for name in QUESTIONS}
    assert {name: set(option.type.choices) for name, option in offered.items()} == QUESTIONS
    assert set(options.ESTIMATORS) == set(MMD) | set(HSIC) | set(SCREEN)
    assert set(options.TESTS) == set(TESTS)
    assert set(options.CORRECTIONS) == {*CORRECTIONS, "none"}
    assert set(options.KERNELS) == set(KERNELS)


def test_version_and_commands(kernsift) -> None:
    from kernsift import __version__

    assert kernsift("--version")[1] == f"kernsift {__version__}\n"
    assert set(app.commands) == {"compare", "relate", "screen", "demo", "reproduce", "completion"}


def test_reproduce_passes_everything_on(kernsift, monkeypatch: pytest.MonkeyPatch) -> None:
    reproduce = pytest.importorskip("kernsift.experiments.reproduce")
    seen: dict[str, object] = {}
    monkeypatch.setattr(reproduce, "run", lambda **arguments: seen.update(arguments) or 4)
    assert kernsift("reproduce", "fig1", "table1", "--trials", "7", "--data-dir", "d", "--quick", "--seed", "3")[0] == 4
    given = {"names": ("fig1", "table1"), "trials": 7, "data_dir": "d", "quick": True, "seed": 3}
    assert seen.items() >= given.items() and set(seen) == set(inspect.signature(reproduce.reproduce).parameters)


def test_the_list_names_every_artefact(kernsift) -> None:
    code, said, _ = kernsift("reproduce", "--list")
    assert code == 0 and [line.split()[0] for line in said.splitlines()] == list(ARTEFACTS)


@pytest.mark.parametrize("arguments", [("--trials", "0"), ("--workers", "two"), ("--seed", "-1")])
def test_numbers_of_reproduce_that_make_no_sense_are_refused(kernsift, arguments: tuple[str, str]) -> None:
    code, _, said = kernsift("reproduce", *arguments)
    assert code == 2 and said.startswith(f"kernsift: Invalid value for '{arguments[0]}'")
