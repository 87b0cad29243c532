"""Tests that are skipped for want of a package fail where KERNSIFT_REQUIRE names it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

def test_that_passes():
    pass

def test_that_needs_a_package():
    pytest.importorskip("no_such_package")

def test_that_needs_another_system():
    pytest.skip("this system has no such device")
"""
MODULE = 'import pytest\n\npytest.importorskip("no_such_package", reason="No_Such_Package is not installed")\n'


@pytest.mark.parametrize(
    ("required", "failures", "errors", "skipped"),
    [("", 0, 0, 3), ("other_package", 0, 0, 3), ("other_package,no_such_package", 1, 1, 1)],
)
def test_skips_of_required_packages_fail(
    tmp_path: Path, required: str, failures: int, errors: int, skipped: int
) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_module.py").write_text(MODULE)
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "no:randomly"]
    command += ["-p", "no:cacheprovider", "--continue-on-collection-errors", str(tmp_path)]
    environment = os.environ | {"KERNSIFT_REQUIRE": required}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == (1 if failures else 0), run.stdout
    summary = run.stdout.splitlines()[-1]
    assert f"{skipped} skipped" in summary and "1 passed" in summary
    assert (f"{failures} failed" in summary) == (failures > 0) and (f"{errors} error" in summary) == (errors > 0)
