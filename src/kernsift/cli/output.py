"""Answers on their way to a terminal."""

from __future__ import annotations

import os
import sys

from kernsift.exceptions import InputError


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
