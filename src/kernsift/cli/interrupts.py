"""Ctrl-C within a second, also while a library computes for long without looking up.

Python turns Ctrl-C into an exception only between two steps of its own, and at its end waits for the threads that
still work. A thread that sees the signal itself waits a moment for the orderly way, and then ends the process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

_PATIENCE = 0.6


def end_soon_when_interrupted() -> None:
    """From now on Ctrl-C ends this process, with one line and code 130; for the process of the command line only."""
    if os.name == "nt":  # where signals wake sockets only
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()


def _watch(reader: int) -> None:
    while signal.SIGINT not in os.read(reader, 64):
        pass
    started = time.monotonic()
    while not _told.wait(0.02) and time.monotonic() - started < _PATIENCE:
        pass
    if not _told.is_set():
        sys.stderr.write("\nkernsift: interrupted.\n")
    sys.stderr.flush()
    os._exit(130)


_told = threading.Event()


def reported() -> None:
    """The user has been told of the interruption: what is left is to end."""
    _told.set()
