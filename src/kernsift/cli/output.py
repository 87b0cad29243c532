"""Answers on their way out: files that are whole or not there, and cells that no spreadsheet runs."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernsift.exceptions import InputError

if TYPE_CHECKING:
    from kernsift.result import Result

# What spreadsheets take for the beginning of a formula, in either width; a plain number with its sign is none.
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\n")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def write_whole(path: str, text: str) -> None:
    """Write a file in one go: a reader sees the old one or the new one, and a failure leaves the old one."""
    try:
        _write_whole(Path(path), text)
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; name a file in it.") from None
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror or error}); name a file in a folder that can be written to."
        ) from None


def _write_whole(target: Path, text: str) -> None:
    # A name that is no Unicode, which file names may be, becomes question marks rather than an error.
    data = text.encode("utf-8", "replace")
    if os.path.isdir(target):
        raise IsADirectoryError
    if os.path.exists(target) and not os.path.isfile(target):  # a device or a pipe cannot be replaced
        target.write_bytes(data)
        return
    # Private until it is whole, and beside the target, because only within one folder is it put in place in one go.
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:60]}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        os.replace(name, target)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


def _umask() -> int:
    # There is no way to ask for it without setting it.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def show(text: str) -> None:
    """Print; a reader who closes the pipe, as `head` does, has had enough, and that is no error."""
    if sys.stdout is None:
        return
    encoding = sys.stdout.encoding or "utf-8"  # a terminal that knows no "…" gets a question mark
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        # Python would complain once more when it closes standard output, so that leads nowhere from here on.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        if not isinstance(error, BrokenPipeError):  # such as a full disk
            raise InputError(f"standard output: cannot be written ({error.strerror or error}).") from None


def as_json(result: Result) -> str:
    """The result as JSON, with null where there is no number."""
    return json.dumps(_finite(result.to_dict()), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _finite(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def as_csv(result: Result) -> str:
    """The table as CSV; a name that a spreadsheet would take for a formula gets an apostrophe in front."""
    columns = result.columns()
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True):
        writer.writerow([_inert(cell) if isinstance(cell, str) else cell for cell in row])
    return out.getvalue()


def _inert(text: str) -> str:
    # A carriage return ends a row for some readers, and what follows it would begin a cell.
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text
