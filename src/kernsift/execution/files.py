"""Files that are written in one step, and temporary files that have to be opened by name."""

from __future__ import annotations

import atexit
import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_paths: dict[str, int] = {}


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path; on exit it replaces `path` in one step, or is removed if the block fails.

    A kill may leave a hidden `.part` file behind. An existing file keeps its permissions.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_path(Path(folder) / "answer.txt") as part:
    ...         _ = part.write_text("42")
    ...     (Path(folder) / "answer.txt").read_text()
    '42'
    """
    # In the same folder: os.replace is atomic within one file system only.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:60]}.", suffix=".part")
    os.close(handle)
    part = Path(name)
    try:
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _umask() -> int:
    # The mask can only be read by setting it.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


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
