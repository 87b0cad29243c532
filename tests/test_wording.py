"""Text of results: true counts, plain grammar, and tables that keep their columns."""

from __future__ import annotations

import dataclasses
import re
import sys
import unicodedata
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kernsift
from kernsift import Result
from kernsift.report.text import (
    _wrapped,
    abbreviations,
    clean,
    legend,
    more,
    notes,
    p_text,
    short,
    table,
    verdict,
    wrapped_verdict,
)

RNG = np.random.default_rng(0)
BASE = kernsift.compare(RNG.normal(size=(40, 6)), RNG.normal(size=(40, 6)), k=3, random_state=0)


def result(adjusted: list[float], everything: list[float], **changes: Any) -> Result:
    """A list of three of six features with these adjusted p-values, and those of all."""
    own, every = np.array(adjusted), np.array(everything)
    order = np.concatenate([BASE.selected, np.setdiff1d(np.arange(6), BASE.selected)])
    kept: dict[str, Any] = {
        "adjusted_pvalues": own,
        "rejected": own <= 0.05,
        "all_adjusted_pvalues": every[np.argsort(order)],
    }
    return dataclasses.replace(BASE, **(kept | changes))


@pytest.mark.parametrize(
    ("adjusted", "everything", "said"),
    [
        (
            [0.01, 0.2, 0.3],
            [0.01, 0.2, 0.3, 0.4, 0.5, 0.6],
            "1 of the 3 selected features, out of 6, significantly dif",
        ),
        ([0.01, 0.2, 0.3], [0.01, 0.2, 0.3, 0.4, 0.5, 0.6], "significantly differs between the two samples"),
        ([0.01, 0.02, 0.3], [0.01, 0.02, 0.3, 0.4, 0.5, 0.6], "significantly differ between the two samples"),
        ([0.01, 0.2, 0.3], [0.01, 0.2, 0.3, 0.4, 0.5, 0.6], "; no other feature is significant when all are tested;"),
        ([0.01, 0.02, 0.03], [0.01, 0.02, 0.03, 0.03, 0.5, 0.6], "; 1 more feature outside the list is significant"),
        ([0.01, 0.02, 0.03], [0.01, 0.02, 0.03, 0.03, 0.04, 0.6], "; 2 more features outside the list are significant"),
        (
            [0.5, 0.5, 0.6],
            [0.5, 0.5, 0.5, 0.6, 0.6, 0.6],
            "None of the 3 selected features, out of 6, significantly differs",
        ),
    ],
)
def test_the_verdict_counts(adjusted: list[float], everything: list[float], said: str) -> None:
    assert said in verdict(result(adjusted, everything))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["age", "sex"], "the two samples given age, sex (false"),
        ([f"measurement {i}" for i in range(9)], "the two samples given 9 confounders (false"),
        (["the longest name of any column of this table"], "the two samples given 1 confounder (false"),
        (["given0", "given1"], "the two samples given 2 confounders (false"),  # as columns of an array are called
        (["given7"], "the two samples given given7 (false"),
        ("data", "the two samples given the confounders (false"),
        (None, "the two samples (false"),
    ],
)
def test_the_verdict_names_what_is_held_fixed(given: Any, said: str) -> None:
    assert said in verdict(dataclasses.replace(BASE, settings=dict(BASE.settings) | {"given": given}))


def test_the_verdict_names_the_error_rate_and_what_it_is_over() -> None:
    ends = {
        "bh": "(false discovery rate 0.05, BH over all 6 features)",
        "bky": "(false discovery rate 0.05, BKY over all 6 features)",
        "holm": "(family-wise error rate 0.05, HOLM over all 6 features)",
        None: "(each at level 0.05, not corrected for the number of tests)",
    }
    for correction, words in ends.items():
        assert words in verdict(dataclasses.replace(BASE, correction=correction))
    assert "BH over the 3 features selected" in verdict(dataclasses.replace(BASE, family="selected"))
    # Without a correction there is no common decision to say how many others it would find.
    assert "outside" not in verdict(dataclasses.replace(BASE, correction=None))


def test_the_verdict_says_what_p_values_are_conditional_on() -> None:
    X, Y = RNG.normal(size=(40, 4)), RNG.normal(size=(40, 4))
    ends = {
        "exact": "each selective p-value is conditional on the selection of that feature.",
        "polyhedral": "each selective p-value is conditional on the whole set of selected features.",
        "naive": "the p-values ignore the selection, after which they are not valid by themselves.",
    }
    for test, words in ends.items():
        assert verdict(kernsift.compare(X, Y, k=2, test=test, random_state=0)).endswith(words)
    everything = kernsift.compare(X, Y, random_state=0)
    assert "select" not in verdict(everything) + legend(everything) + table(everything)


@pytest.mark.parametrize("k", [None, 3])
def test_nothing_is_compared_with_uncorrected_p_values(k: int | None) -> None:
    """The alternative to a selective p-value is a correction over everything, so no text sets it against naive ones."""
    X, Y = RNG.normal(size=(40, 6)), RNG.normal(size=(40, 6)) + 0.5
    found = kernsift.compare(X, Y, k=k, random_state=0)
    for text in (str(found), found._repr_html_(), found.to_html(), legend(found), short(found)):
        assert not re.search(r"\bnaive|believ|\bstands?\b(?! out)", text)


def test_p_values_for_reading() -> None:
    values = [1.0, 0.04999, 0.0001, 9.9e-5, 1e-50, 1e-320]
    assert [p_text(value) for value in values] == ["1.0000", "0.0500", "0.0001", "9.9e-05", "1.0e-50", "<1e-99"]


@pytest.mark.parametrize("width", [50, 60, 80, 100, 120])
def test_the_table_keeps_its_columns_and_its_width(width: int) -> None:
    names = [
        "a",
        "特徴量の名前がとても長い場合でも大丈夫かどうか",
        "x" * 90,
        "tab\there",
        "e\u0301" * 30,
        "\x1b[31mred",
    ]
    X, Y = (pd.DataFrame(RNG.normal(size=(40, 6)), columns=names) for _ in range(2))
    found = kernsift.compare(X, Y, k=5, random_state=0)
    lines = table(found, width).splitlines()
    # A long description goes on in the next line, below its beginning.
    lines = [line for line in lines if line[:10].strip()]
    assert len(lines) == 6
    from kernsift.report.text import _display_width

    # All columns but the last, which is text, end below the end of their heads.
    end = _display_width(lines[0].partition("  what changed")[0])
    for line in lines[1:]:
        [start] = [line[:size] for size in range(len(line) + 1) if _display_width(line[:size]) == end][:1]
        assert re.search(r" [01]\.\d{4}$", start) and line[len(start) :][:2].strip() == ""
    assert max(_display_width(line) for line in lines) <= width
    assert "selective p" in lines[0]
    assert ("interval" in lines[0]) == (width >= 100)
    assert ("what changed" in lines[0]) == (width >= 80)
    assert max(map(len, legend(found, width).splitlines())) <= width


def test_print_keeps_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(40, 5)), rng.normal(1.0, 1.0, size=(40, 5))
    found = kernsift.compare(X, Y, random_state=0)
    assert str(found) == found.to_text()  # captured output is no terminal
    for columns, width in ((200, 100), (80, 80), (10, 50)):
        monkeypatch.setenv("COLUMNS", str(columns))
        with monkeypatch.context() as terminal:
            terminal.setattr(sys.stdout, "isatty", lambda: True, raising=False)
            assert str(found) == found.to_text(width)


def test_p_values_that_condition_on_nothing_are_not_called_selective() -> None:
    X, Y = RNG.normal(size=(20, 3)), RNG.normal(size=(20, 3))
    for options in ({"k": 2, "test": "naive"}, {}):
        found = kernsift.compare(X, Y, random_state=0, **options)  # type: ignore[arg-type]
        assert re.search(r" p +BH p  what changed$", table(found).splitlines()[0])
        assert "selective" not in legend(found)


def test_intervals_are_called_what_they_are() -> None:
    X, Y = RNG.normal(size=(20, 3)), RNG.normal(size=(20, 3))
    heads = [
        table(kernsift.compare(X, Y, random_state=0, confidence_level=0.9, **options)).splitlines()[0]
        for options in ({}, {"correction": None}, {"k": 2})
    ]
    assert ["90% FCR interval" in head for head in heads] == [True, False, False]
    assert all("90% " in head for head in heads)


def test_the_verdict_is_above_the_table_and_notes_are_a_list_below() -> None:
    X, Y = RNG.normal(size=(20, 3)), RNG.normal(size=(20, 3))
    found = dataclasses.replace(kernsift.compare(X, Y, random_state=0), notes=("one", "two " * 40))
    first, middle, last = found.to_text(60).split("\n\n")
    assert first.split() == verdict(found).split()
    order = "Sorted by evidence, strongest first."
    assert (first, middle, last) == (wrapped_verdict(found, 60), f"{table(found, 60)}\n{order}", notes(found, 60))
    assert [line[:2] for line in last.splitlines()] == ["- ", "- ", "  ", "  "]
    assert f"<p>{order}</p>" in found._repr_html_() and order in found.to_markdown()
    assert f'<td style="text-align: right; white-space: nowrap">{p_text(found.pvalues[0])}</td>' in found._repr_html_()
    assert more(found, "name") == "Sorted by name."


def test_an_empty_table_has_a_head() -> None:
    X, Y = RNG.normal(size=(20, 3)), RNG.normal(size=(20, 3))
    nothing = kernsift.compare(X, Y, threshold=1e6, random_state=0)
    assert len(table(nothing).splitlines()) == 1
    assert more(nothing, "p") == ""
    assert verdict(nothing).startswith("No feature reached")


def test_signs_that_move_the_cursor_are_shown_as_signs() -> None:
    assert clean("a\nb\x1b[0m") == "a⏎b�[0m"


def test_long_descriptions_are_not_clipped() -> None:
    rng = np.random.default_rng(0)
    levels = ["Strongly agree with the statement above", "Strongly disagree with everything that was said here"]
    X, Y = (pd.DataFrame({"answer": rng.choice(levels, 100, p=share)}) for share in ([0.8, 0.2], [0.2, 0.8]))
    result = kernsift.compare(X, Y, random_state=0)
    for width in (80, 100, 200):
        text = result.to_text(width)
        assert max(map(len, text.splitlines())) <= width
        assert " ".join(text.split()).count("in Y: ") == 1
        assert result.describe(0) in " ".join(text.split())
    assert levels[0] in result.describe(0) or levels[1] in result.describe(0)
    wide = pd.DataFrame({"answer": ["日本語の長い回答" * 6, "短い"] * 50})
    lines = table(kernsift.compare(wide, wide.assign(answer="短い"), random_state=0), 80).splitlines()
    assert len(lines) > 2
    assert all(len(line) + sum(unicodedata.east_asian_width(sign) == "W" for sign in line) <= 80 for line in lines)


def test_numbers_follow_words_that_take_several_lines() -> None:
    words = "more above 1 and up to 1.4 in cleveland: 11% v 1%"
    assert _wrapped(words, 26).split("\n") == ["more above 1 and up to 1.4", "in cleveland: 11% v 1%"]
    assert _wrapped("lower in cleveland: median 0.1 v 1", 26).split("\n") == ["lower in cleveland:", "median 0.1 v 1"]


def test_one_feature_is_not_all_features() -> None:
    found = verdict(kernsift.compare(np.arange(20.0), np.arange(20.0) + 30, random_state=0))
    assert found.startswith("The feature significantly differs between") and "BH over 1 feature)" in found
    found = verdict(kernsift.compare(np.arange(20.0), np.arange(20.0), random_state=0))
    assert found.startswith("The feature does not significantly differ between the two samples (")
    some = kernsift.compare(np.r_[np.nan, np.arange(20.0)], np.arange(20.0), random_state=0)
    assert some.notes[0].startswith("1 of 1 feature has missing values")


def test_long_names_that_differ_at_their_ends_are_told_apart() -> None:
    names = [f"measurement of the blood pressure at visit {i}" for i in range(3)]
    shown = table(kernsift.compare(*(pd.DataFrame(RNG.normal(size=(20, 3)), columns=names) for _ in "xy")), 60)
    assert all(re.search(rf"measurement .*…re at visit {i} ", shown) for i in range(3))
    response = pd.Series(["mild", "severe"] * 20, name="diagnosis at discharge from the hospital")
    found = kernsift.relate(pd.DataFrame({"x": np.arange(40.0) % 2 + 0.1 * RNG.normal(size=40)}), response)
    assert found.describe(0).startswith("higher in diagnosis at dis…ospital = severe: median")
    assert "diagnosis at dis…ospital = mild" in found.to_html()


def test_a_table_without_discoveries_says_how_many_it_shows() -> None:
    X, Y = RNG.normal(size=(20, 9)), RNG.normal(size=(20, 9))
    nothing = kernsift.compare(X, Y, alpha=1e-9, random_state=0)
    assert more(nothing, "p") == "The best 5 of 9, sorted by evidence, strongest first."
    some = kernsift.compare(X, Y + 5 * (np.arange(9) < 2), random_state=0)
    assert more(some, "p") == "Sorted by evidence, strongest first."


def test_nothing_listed_has_no_table() -> None:
    X, Y = RNG.normal(size=(20, 3)), RNG.normal(size=(20, 3))
    nothing = kernsift.compare(X, Y, threshold=1e6, random_state=0)
    assert nothing.to_text(200) == verdict(nothing)
    assert nothing.to_markdown() == verdict(nothing) + "\n"
    assert nothing._repr_html_() == f"<p>{verdict(nothing)}</p>"


@pytest.mark.parametrize("most", [12, 16, 28, 40])
def test_names_that_differ_in_the_middle_are_told_apart(most: int) -> None:
    names = [f"concentration in serum of metabolite {i}, fasting, second visit [mg/dL]" for i in range(20)]
    names += ["concentration in serum of metabolite 3, fasting, second visit [mg/dL]", "age", "a" * 90, "a" * 45]
    short = abbreviations(names, most)
    assert max(map(len, short)) <= most
    assert len(set(short[:20])) == 20 and short[20] == short[3] and short[21] == "age"


@pytest.mark.parametrize("most", [16, 28, 40])
def test_names_that_differ_in_two_places_are_told_apart(most: int) -> None:
    names = [
        f"concentration of {what} in serum, measured at the first visit in the {when}, in mg"
        for what in ("albumin", "creatinine")
        for when in ("morning", "afternoon", "evening")
    ]
    short = abbreviations(names, most)
    assert max(map(len, short)) <= most and len(set(short)) == 6


@pytest.mark.parametrize(
    "name",
    [
        "a name that is long, number {}, and goes on after the number for a while",
        "長い名前その{}、朝の検査で測定された値と単位、二回目の来院時の記録",  # two cells a character
    ],
)
def test_printed_long_names_differ(name: str) -> None:
    names = [name.format(i) for i in range(3)]
    X = pd.DataFrame(RNG.normal(size=(40, 3)), columns=names)
    found = kernsift.compare(X, X + 9, random_state=0)
    rows = table(found, 80).splitlines()[1:]
    assert len({row.partition("  ")[0] for row in rows}) == 3


@pytest.mark.parametrize("shift", [0.0, 9.0])
def test_a_list_of_one_is_the_selected_feature(shift: float) -> None:
    X, Y = RNG.normal(size=(20, 3)), RNG.normal(size=(20, 3))
    found = verdict(kernsift.compare(X, Y + shift * np.eye(3)[0], k=1, random_state=0))
    differs = "significantly differs" if shift else "does not significantly differ"
    assert found.startswith(f"The selected feature, out of 3, {differs} between the two samples (")


@pytest.mark.parametrize("width", [0, -1, 5, "wide", 80.0])
def test_a_width_of_no_table_is_refused(width: Any) -> None:
    X = RNG.normal(size=(20, 3))
    with pytest.raises(kernsift.InputError, match=r"^width: needs a whole number from 12 on, got .*usual"):
        kernsift.compare(X, X, random_state=0).to_text(width)


@pytest.mark.parametrize(
    ("shifted", "said"), [(0, "no feature is"), (1, "1 feature is"), (2, "2 features are")], ids=["none", "one", "two"]
)
def test_a_list_of_nothing_has_no_others(shifted: int, said: str) -> None:
    X, Y = RNG.normal(size=(40, 3)), RNG.normal(size=(40, 3))
    found = verdict(kernsift.compare(X, Y + 9 * (np.arange(3) < shifted), threshold=1e6, alpha=1e-6, random_state=0))
    assert found == f"No feature reached the threshold, so none is listed; {said} significant when all are tested."
