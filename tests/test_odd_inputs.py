"""Every row of the table of odd inputs: the right answer, or one sentence."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from odd_files import FILES, TWICE, File, good
from odd_inputs import PYTHON, Odd

from kernsift import InputError
from kernsift.cli import main


def sentence(error: BaseException) -> str:
    """The message, which has to be one line and one sentence of a length that people read."""
    message = str(error)
    assert "\n" not in message
    assert message.endswith((".", "?"))
    assert len(message) <= 1000
    return message


@pytest.mark.filterwarnings("ignore:.*differ by more than 2.53:UserWarning")
@pytest.mark.parametrize("row", PYTHON, ids=lambda row: row.name)
def test_python(row: Odd) -> None:
    if callable(row.want):
        row.want(row.ask())
        return
    with pytest.raises(InputError) as caught:
        row.ask()
    assert re.search(row.want, sentence(caught.value)), str(caught.value)


# Files and the command line ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", FILES, ids=lambda row: row.name)
def test_command_line(row: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    if sys.platform == "darwin" and not row.file.isprintable():
        pytest.skip("file names are Unicode there")
    monkeypatch.chdir(tmp_path)
    good(tmp_path / "good.csv")
    path = row.make(tmp_path)
    options = [option for option in row.options if option != TWICE[0]]
    other = path if TWICE[0] in row.options else tmp_path / "good.csv"
    before = sorted(os.listdir(tmp_path))
    code = main(["compare", str(path), str(other), "--json", "--seed", "0", *options])
    out, err = capfd.readouterr()
    assert sorted(os.listdir(tmp_path)) == before
    if callable(row.want):
        assert (code, err) == (0, "")
        row.want(json.loads(out))
        return
    assert (code, out) == (2, "")
    assert err.startswith("kernsift: ") and err.count("\n") == 1 and err.endswith((".\n", "?\n", ")\n"))
    assert re.search(row.want, err), err


def test_the_table_is_as_long_as_promised() -> None:
    assert len({row.name for row in PYTHON}) == len(PYTHON)
    assert len({row.name for row in FILES}) == len(FILES)
    assert len(PYTHON) + len(FILES) >= 120
