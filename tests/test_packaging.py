"""What is promised to those who install the package: bounds that were tried, extras that exist, a small core."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Tools for looking after the code: their versions do not change what it does.
TOOLS = {"mypy", "ruff"}


def bounds(requirements: list[str]) -> dict[str, str]:
    """Package names and lower bounds; references to our own extras are left out."""
    others = (text for text in requirements if not text.startswith("kernsift"))
    found = (re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\w.]+)(?:; .+)?", text) for text in others)
    return {match[1]: match[2] for match in found if match}


def release(version: str) -> tuple[int, ...]:
    """Numbers of a version without trailing zeros, so that 1.26 and 1.26.0 are one."""
    numbers = [int(part) for part in version.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def test_the_oldest_versions_are_the_lower_bounds() -> None:
    lines = (ROOT / "tests" / "oldest.txt").read_text(encoding="utf-8").splitlines()
    oldest = dict(re.sub(r"\[\w+\]", "", line).split("==") for line in lines if "==" in line)
    promised = bounds(PROJECT["dependencies"])
    for extra in ("plot", "report", "files", "reproduce", "dask", "scale", "test"):
        promised |= bounds(EXTRAS[extra])
    for name in promised.keys() - TOOLS:
        assert name in oldest, f"{name}: add {name}=={promised[name]} to tests/oldest.txt"
        assert release(oldest[name]) == release(promised[name]), f"{name}: pyproject.toml and tests/oldest.txt differ"


def test_every_requirement_has_a_lower_bound() -> None:
    for requirements in (PROJECT["dependencies"], *EXTRAS.values()):
        outside = [text for text in requirements if not text.startswith("kernsift")]
        assert len(bounds(requirements)) == len(set(outside)), requirements


def test_the_core_is_small() -> None:
    named = {"numpy", "scipy", "scikit-learn", "narwhals", "array-api-compat", "threadpoolctl", "click", "tqdm"}
    assert set(bounds(PROJECT["dependencies"])) == named


@pytest.mark.parametrize(
    "extra", ["all", "plot", "report", "files", "dask", "gpu", "fast", "scale", "docs", "test", "bench"]
)
def test_extras(extra: str) -> None:
    assert EXTRAS[extra]
    named = [re.findall(r"\w+", text.partition("[")[2]) for text in EXTRAS[extra] if text.startswith("kernsift[")]
    assert all(name in EXTRAS for names in named for name in names)


def test_version_and_requirements_are_the_same_everywhere() -> None:
    version = PROJECT["version"]
    recipe = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    assert f'version: "{version}"' in recipe
    assert f"version: {version}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    run = recipe.partition("  run:\n")[2].partition("  run_constraints")[0]
    assert dict(re.findall(r"- ([\w-]+) >=([\w.]+)", run)) == {"python": "3.11", **bounds(PROJECT["dependencies"])}
