"""Ctrl-C and SIGTERM end the process within a second, also during long computations in compiled code.

Python raises KeyboardInterrupt only between bytecode instructions, and waits for running threads when it exits. A
thread that receives the signal waits for an orderly exit, and then ends the process. Temporary files are removed
either way.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from kernsift.execution.files import remove_all

# Seconds that an orderly exit may take; on SIGTERM it ends worker processes as well.
_PATIENCE = {signal.SIGINT: 0.6, signal.SIGTERM: 3.0}

reported = threading.Event()
"""Set when the interruption has been reported, so that the process may end."""


def end_soon_when_interrupted() -> None:
    """Let Ctrl-C end this process with one line and code 130, and SIGTERM with code 143.

    This is for the process of the command line only.
    """
    if os.name == "nt":  # where signals wake sockets only
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()


def _watch(reader: int) -> None:
    while True:
        numbers = os.read(reader, 64)
        received = next((one for one in _PATIENCE if one in numbers), None)
        if received is not None:
            break
    if not reported.wait(_PATIENCE[received]) and received == signal.SIGINT:
        sys.stderr.write("\nkernsift: interrupted.\n")
    sys.stderr.flush()
    remove_all()
    os._exit(128 + received)
