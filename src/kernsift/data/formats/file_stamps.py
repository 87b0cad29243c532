"""Files that must not change while they are read, and one error sentence for any fault of a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kernsift.exceptions import InputError


@dataclass(frozen=True)
class FileStamp:
    """What a file or folder was like when it was opened."""

    path: str
    size: int
    modified: int

    @classmethod
    def of(cls, path: str, argument: str) -> FileStamp:
        """The state of a file or folder now."""
        try:
            state = os.stat(path)
        except (OSError, ValueError) as error:
            raise InputError(f"{argument}: {path} cannot be read ({first_line(error)}); check the path.") from None
        return cls(path, state.st_size, state.st_mtime_ns)

    def check(self, argument: str) -> None:
        """Raise if the file was removed or changed since."""
        removed = not os.path.exists(self.path)
        if removed or FileStamp.of(self.path, argument) != self:
            raise InputError(
                f"{argument}: {self.path} was {'removed' if removed else 'changed'} while it was being read; start "
                "again when it is complete."
            )


@contextmanager
def guarded(argument: str, name: str, what: str, *stamps: FileStamp) -> Iterator[None]:
    """Read the files in this context; on exit they must be unchanged since they were opened."""
    try:
        yield
    except (InputError, ModuleNotFoundError):
        raise
    except MemoryError:
        raise InputError(f"{argument}: {name} does not fit into memory, or is broken; make it again.") from None
    except Exception as error:  # what the readers raise on a broken file is not listed anywhere
        for stamp in stamps:
            stamp.check(argument)
        raise InputError(
            f"{argument}: {name} could not be read as {what} ({first_line(error)}); save or copy it again."
        ) from error
    for stamp in stamps:
        stamp.check(argument)


def first_line(error: BaseException) -> str:
    """The first line of an error message, without a full stop."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")
