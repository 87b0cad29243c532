"""Temporary files that have to be opened by name, and are removed however the process ends but for a kill."""

from __future__ import annotations

import atexit
import os
import tempfile
import weakref
from contextlib import suppress
from typing import Any

_paths: dict[str, int] = {}


def named_file(owner: Any = None) -> str:
    """The path of a new file, which is removed when the process ends, or earlier with its `owner`."""
    handle, path = tempfile.mkstemp(prefix="kernsift-")
    os.close(handle)
    _paths[path] = os.getpid()
    if owner is None:
        atexit.register(remove, path)
    else:
        weakref.finalize(owner, remove, path)
    return path


def remove_all() -> None:
    """Remove all files, before the process ends without an orderly exit."""
    for path in list(_paths):
        remove(path)


def remove(path: str) -> None:
    """Remove a file now."""
    # A fork of the process that made it removes nothing.
    if _paths.pop(path, None) == os.getpid():
        with suppress(OSError):
            os.remove(path)
