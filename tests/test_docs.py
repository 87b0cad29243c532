"""The documentation is true: the README prints what it says, and every public name has an example.

python tests/test_docs.py     puts what the README's programs print into the README
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernsift

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
# A program and, in the next block, what it prints.
PROGRAM = re.compile(r"```python\n(?P<code>.*?)```\n\n```text\n(?P<output>.*?)```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)(?P<path>[^)]+)\)")


def printed(code: str) -> str:
    """What a program prints, without spaces at the ends of lines."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


PROGRAMS = [(match["code"], match["output"]) for match in PROGRAM.finditer(README.read_text(encoding="utf-8"))]


def test_the_readme_shows_the_three_functions() -> None:
    called = {name for code, _ in PROGRAMS for name in ("compare", "relate", "screen") if f"{name}(" in code}
    assert called == {"compare", "relate", "screen"}


@pytest.mark.parametrize(("code", "output"), PROGRAMS, ids=["compare", "relate", "screen"][: len(PROGRAMS)])
def test_the_readme_prints_what_it_says(code: str, output: str) -> None:
    pytest.importorskip("pandas")
    assert printed(code) == output, "python tests/test_docs.py brings the README up to date"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_inside_the_project_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [path for path in LINK.findall(text) if not (ROOT / path.partition("#")[0]).exists()] == []


MODULES = ("estimators", "inference")


def public_objects() -> list[Any]:
    """Everything in `kernsift.__all__`, and what the modules for statisticians offer under their own names."""
    found = [getattr(kernsift, name) for name in kernsift.__all__]
    for name in MODULES:
        module = importlib.import_module(f"kernsift.{name}")
        own = [value for key, value in vars(module).items() if not key.startswith("_")]
        inside = [v for v in own if getattr(v, "__module__", "").startswith(f"kernsift.{name}")]
        found += [v for v in inside if inspect.isclass(v) or inspect.isfunction(v)]
    return list(dict.fromkeys(found))


def name_of(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def reference() -> list[Any]:
    """Everything that the API reference lists."""
    found, module = [], ""
    for line in (ROOT / "docs" / "api" / "index.rst").read_text(encoding="utf-8").splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif re.fullmatch(r" {3}\w[\w.]*", line):
            inside, _, name = f"{module}.{line.strip()}".rpartition(".")
            found.append(getattr(importlib.import_module(inside), name))
    return found


def test_the_reference_has_every_public_name() -> None:
    assert {getattr(kernsift, name) for name in kernsift.__all__} <= set(reference())


@pytest.mark.parametrize("value", reference(), ids=name_of)
def test_everything_in_the_reference_has_an_example(value: Any) -> None:
    text = inspect.getdoc(value) or ""
    assert re.search(r"^Examples\n-{8}$", text, re.MULTILINE), "there is no section Examples"
    assert doctest.DocTestParser().get_examples(text), "the section Examples runs nothing"


@pytest.mark.parametrize("value", public_objects(), ids=name_of)
def test_everything_public_is_described(value: Any) -> None:
    assert value.__doc__ and not value.__doc__.startswith(value.__name__ + "("), f"{name_of(value)} has no docstring"


def test_every_parameter_is_described() -> None:
    for name in kernsift.__all__:
        value = getattr(kernsift, name)
        if name in ("Result", "InputError", "CalibrationWarning"):
            continue
        text = inspect.getdoc(value) or ""
        for parameter in inspect.signature(value).parameters:
            assert re.search(rf"^(.*, )?\*{{0,2}}{parameter}(,.*)?( :|$)", text, re.MULTILINE), f"{name}: {parameter}"


def test_the_attributes_of_a_result_are_described() -> None:
    text = inspect.getdoc(kernsift.Result) or ""
    for field in kernsift.Result.__dataclass_fields__:
        assert re.search(rf"\b{field}\b", text), field


def test_the_attributes_of_a_result_have_the_types_that_are_described() -> None:
    rng = np.random.default_rng(0)
    result = kernsift.compare(rng.normal(size=(40, 3)), rng.normal(1.0, size=(40, 3)), distinct=True, random_state=0)
    types = {"ndarray": np.ndarray, "tuple": tuple, "mapping": Mapping, "sequence": Sequence, "bool": bool, "int": int}
    entries = re.findall(r"^(\w+(?:, \w+)*) : (\w+)", inspect.getdoc(kernsift.Result) or "", re.MULTILINE)
    checked = [(name, types[kind]) for names, kind in entries for name in names.split(", ") if kind in types]
    assert len(checked) > 15
    assert [name for name, kind in checked if not isinstance(getattr(result, name), kind)] == []


CASES = sorted(page for page in (ROOT / "docs" / "cases").glob("*.md") if page.stem != "index")


@pytest.mark.parametrize("page", CASES, ids=lambda page: page.stem)
def test_case_studies_are_filled_in(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for part in ("The question", "The data", "The call", "The picture", "What another tool says", "In a paper"):
        assert f"**{part}" in text
    assert "```text\n```" not in text, "python docs/case_studies.py fills in what is printed"
    assert all((page.parent / path).is_file() for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("page", CASES, ids=lambda page: page.stem)
def test_case_studies_print_what_they_say(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "KERNSIFT_DATA" not in os.environ:
        pytest.skip("KERNSIFT_DATA is not set: the data of the case studies are not part of the project")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    run = importlib.import_module("case_studies").run
    copy = tmp_path / page.name
    copy.write_text(page.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.chdir(os.environ["KERNSIFT_DATA"])
    run(copy)
    assert copy.read_text(encoding="utf-8") == page.read_text(encoding="utf-8")


def test_every_example_of_the_gallery_has_a_title_and_a_picture() -> None:
    examples = sorted((ROOT / "examples").glob("plot_*.py"))
    assert len(examples) >= 8
    for example in examples:
        text = example.read_text(encoding="utf-8")
        assert re.match(r'"""\n.+\n=+\n\n', text), example.name
        assert "plt.show()" in text, example.name


def write_readme() -> None:
    """Fill in what the programs print."""
    text = README.read_text(encoding="utf-8")
    filled = PROGRAM.sub(lambda m: f"```python\n{m['code']}```\n\n```text\n{printed(m['code'])}```", text)
    README.write_text(filled, encoding="utf-8")


if __name__ == "__main__":
    write_readme()
