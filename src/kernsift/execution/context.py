"""Context variables that are set for the duration of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Value = TypeVar("Value")


@contextmanager
def setting(variable: ContextVar[Value], value: Value) -> Iterator[Value]:
    """Set a context variable inside, in the thread or task that runs the block."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)
