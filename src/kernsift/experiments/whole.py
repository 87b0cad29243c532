"""Files that are whole or absent: written beside their place, then moved into it in one step."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write what shall be `path`; it goes there at the end of the block, or nowhere if the block fails.

    A reader sees the old file or the new one, whoever else writes and whenever this process is killed. A kill may
    leave a hidden `.part` file behind.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole(Path(folder) / "answer.txt") as beside:
    ...         _ = beside.write_text("42")
    ...     (Path(folder) / "answer.txt").read_text()
    '42'
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    beside = Path(name)
    try:
        yield beside
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        # A private file so far: it gets the rights of any new file. There is no way to ask for the mask but to set it.
        mask = os.umask(0o022)
        os.umask(mask)
        beside.chmod(0o666 & ~mask)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
