"""Values that hold for the duration of a block, in the thread or task that runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Value = TypeVar("Value")


@contextmanager
def setting(variable: ContextVar[Value], value: Value) -> Iterator[Value]:
    """Give a context variable a value inside."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)
