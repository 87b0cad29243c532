"""Skips of required packages fail, invalid indices raise errors, tests draw the same numbers in any order."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from kernsift.data.formats import opening
from kernsift.execution import arrays

# An index out of range would read the last element in silence.
arrays.INDEX_MODE = "raise"

# Small tables are read in pieces too: they stand for large ones here.
opening.SMALL = 2**62

# Words of skip reasons, separated by commas: `make test` names the packages of the extra "test", .ci/run also those
# that it installs itself. Elsewhere an optional package may be missing.
REQUIRED = [word for word in os.environ.get("KERNSIFT_REQUIRE", "").lower().split(",") if word]

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def without_required_skip(report: Report, required: list[str] = REQUIRED) -> Report:
    """The report, failed where a test or module was skipped for want of a required package."""
    if report.skipped and isinstance(report.longrepr, tuple):
        path, line, reason = report.longrepr
        missing = [word for word in required if word in reason.lower()]
        if missing:
            report.outcome = "failed"
            report.longrepr = f"{path}:{line}: {reason} (KERNSIFT_REQUIRE names {', '.join(missing)})"
    return report


# Generators of test modules, with their states when the modules were imported.
_generators: dict[int, tuple[np.random.Generator, Any]] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for module in {item.getparent(pytest.Module) for item in items} - {None}:
        for value in vars(module.obj).values():
            if isinstance(value, np.random.Generator):
                _generators[id(value)] = value, value.bit_generator.state


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Start each test with the same numbers: which tests ran before depends on the number of workers."""
    for generator, state in _generators.values():
        generator.bit_generator.state = state


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return without_required_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return without_required_skip((yield))


@pytest.fixture
def strict_floating_point() -> Iterator[None]:
    """Overflow, division by zero and invalid operations raise errors."""
    with np.errstate(all="raise", under="ignore"):
        yield


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which temporary files are made."""
    folder = tmp_path / "spool"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder
