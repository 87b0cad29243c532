"""Memory limits, and their division between reading and results."""

from __future__ import annotations

import os
import re
from functools import cache
from numbers import Real

import numpy as np

from kernsift.exceptions import InputError

SMALLEST_MEMORY = 32 << 20
"""The smallest limit: below it the row groups of ordinary files do not fit."""


def reading_bytes(memory: int) -> int:
    """Bytes of a limit that reading may use for temporary arrays."""
    return memory // 4


def values_bytes(memory: int) -> int:
    """Bytes of a limit that the values that were read may use; the rest is left to the estimators."""
    return memory // 2


def parse_memory(memory: int | float | str | None) -> int:
    """Bytes from a number, a size such as "1GB" or "512MiB", or a share of this machine's memory such as "50%".

    None is a quarter of the machine's memory.

    Examples
    --------
    >>> from kernsift.execution.memory import parse_memory
    >>> parse_memory("1.5GB"), parse_memory("2GiB"), parse_memory(10**9)
    (1500000000, 2147483648, 1000000000)
    """
    if memory is None:
        return max(SMALLEST_MEMORY, machine_memory() // 4)
    found: float | None = None
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]*|%)\s*", memory)
        unit = _UNITS.get(match[2].lower()) if match else None
        if match and match[2] == "%":
            unit = machine_memory() / 100 if float(match[1]) <= 100 else None
        found = float(match[1]) * unit if match and unit is not None else None
    elif isinstance(memory, Real) and not isinstance(memory, bool) and np.isfinite(float(memory)):
        found = float(memory)
    if found is None:
        raise InputError(
            f"memory: a size is needed, got {memory!r}; give it as in '1GB', '512MiB', '50%' (of this machine's "
            "memory) or as a number of bytes."
        )
    if found < SMALLEST_MEMORY:
        raise InputError(
            f"memory: at least {SMALLEST_MEMORY >> 20}MiB are needed to read tables, got {memory!r}; allow more."
        )
    return int(found)


@cache
def machine_memory() -> int:
    """Bytes of memory that this process may use: those of the machine, or of the container it runs in."""
    sizes = []
    try:
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not on every system
        sizes.append(4 << 30)
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(limit) as file:
                sizes.append(int(file.read()))
        except (OSError, ValueError):  # no container, or one without a limit
            continue
    return min(sizes)


_UNITS = {"": 1.0, "b": 1.0}
_UNITS |= {f"{letter}b": 1000.0 ** (i + 1) for i, letter in enumerate("kmgt")}
_UNITS |= {f"{letter}ib": 1024.0 ** (i + 1) for i, letter in enumerate("kmgt")}
_UNITS |= {letter: 1000.0 ** (i + 1) for i, letter in enumerate("kmgt")}
