"""Functions of all arrays of a record, which may contain records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

Arrays = TypeVar("Arrays", bound=tuple[Any, ...])


def each(function: Callable[..., np.ndarray], first: Arrays, *others: Arrays) -> Arrays:
    """A function of the arrays of one or several tuples of the same kind, which may contain tuples."""
    found = [
        each(function, *parts) if isinstance(parts[0], tuple) else function(*parts)
        for parts in zip(first, *others, strict=True)
    ]
    return type(first)(*found) if hasattr(first, "_fields") else type(first)(found)


def taken(arrays: Arrays, features: np.ndarray | slice) -> Arrays:
    """Some of the features, the first axis of all arrays."""
    return each(lambda part: part[features], arrays)
