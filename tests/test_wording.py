"""A result in words: true counts, plain grammar, and tables that keep their columns."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kernsift
from kernsift import Result
from kernsift.show.wording import clean, fooled, legend, p_text, table, verdict, words

RNG = np.random.default_rng(0)
BASE = kernsift.compare(RNG.normal(size=(40, 6)), RNG.normal(size=(40, 6)), k=3, random_state=0)


def result(selective: list[float], naive: list[float], **changes: Any) -> Result:
    """A result with these p-values and no correction."""
    own, forgetful = np.array(selective), np.array(naive)
    kept: dict[str, Any] = {
        "pvalues": own,
        "naive_pvalues": forgetful,
        "adjusted_pvalues": own,
        "rejected": own <= 0.05,
        "correction": None,
    }
    return dataclasses.replace(BASE, **(kept | changes))


@pytest.mark.parametrize(
    ("selective", "naive", "said"),
    [
        ([0.01, 0.2, 0.3], [0.001, 0.02, 0.03], "1 of the 3 selected features, out of 6, is found to differ"),
        ([0.01, 0.2, 0.3], [0.001, 0.02, 0.03], "3 would have passed, of which 2 do not stand."),
        ([0.01, 0.02, 0.3], [0.001, 0.002, 0.03], "3 would have passed, of which 1 does not stand."),
        ([0.01, 0.02, 0.3], [0.001, 0.002, 0.3], "2 would have passed, and all of these stand."),
        ([0.01, 0.2, 0.3], [0.001, 0.2, 0.3], "1 would have passed, and it stands."),
        ([0.5, 0.5, 0.6], [0.1, 0.2, 0.3], "nor would any have passed by its naive p-value."),
        ([0.5, 0.5, 0.6], [0.1, 0.2, 0.3], "0 of the 3 selected features, out of 6, are found"),
    ],
)
def test_the_verdict_counts(selective: list[float], naive: list[float], said: str) -> None:
    assert said in verdict(result(selective, naive))


def test_naive_p_values_get_the_same_correction() -> None:
    # Holm multiplies the smallest of three by 3: 0.02 no longer passes.
    naive = [0.02, 0.03, 0.04]
    assert fooled(result([0.5, 0.6, 0.7], naive)) == (3, 3)
    assert fooled(result([0.5, 0.6, 0.7], naive, correction="holm")) == (0, 0)


def test_naive_and_unselected_results_claim_nothing_about_selection() -> None:
    X, Y = RNG.normal(size=(40, 4)), RNG.normal(size=(40, 4))
    assert "too small after a selection" in verdict(kernsift.compare(X, Y, k=2, test="naive", random_state=0))
    assert "no selection to correct for" in verdict(kernsift.compare(X, Y, k=None, random_state=0))


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
    found = kernsift.compare(X, Y, k=None, random_state=0)
    lines = table(found, width).splitlines()
    assert len(lines) == 7
    from kernsift.show.wording import _cells

    assert len({_cells(line) for line in lines}) == 1
    assert _cells(lines[0]) <= width
    assert "selective p" in lines[0]
    assert "naive p" in lines[0]
    assert max(map(len, legend(found, width).splitlines())) <= width


def test_naive_p_values_are_not_shown_twice() -> None:
    X, Y = RNG.normal(size=(20, 3)), RNG.normal(size=(20, 3))
    found = kernsift.compare(X, Y, k=2, test="naive", random_state=0)
    assert table(found).splitlines()[0].split()[-3:] == ["p", "BH", "p"]
    assert "naive p" not in table(found)
    assert "selective" not in legend(found)


def test_notes_are_a_list_below_the_verdict() -> None:
    X, Y = RNG.normal(size=(20, 3)), RNG.normal(size=(20, 3))
    found = dataclasses.replace(kernsift.compare(X, Y, random_state=0), notes=("one", "two " * 40))
    said, noted = words(found, 60).split("\n\n")
    assert " ".join(said.split()) == verdict(found)
    assert [line[:2] for line in noted.splitlines()] == ["- ", "- ", "  ", "  "]
    assert "\n" not in words(dataclasses.replace(found, notes=()), 1000)


def test_an_empty_table_has_a_head() -> None:
    X, Y = RNG.normal(size=(20, 3)), RNG.normal(size=(20, 3))
    nothing = kernsift.compare(X, Y, threshold=1e6, random_state=0)
    assert len(table(nothing).splitlines()) == 1
    assert verdict(nothing).startswith("No feature reached")


def test_signs_that_move_the_cursor_are_shown_as_signs() -> None:
    assert clean("a\nb\x1b[0m") == "a⏎b�[0m"
