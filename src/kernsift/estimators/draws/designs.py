"""Random designs of row indices: pairs, quadruples, blocks and halves.

A `size` may be a shape, so that separate designs for d features are `pairs(n, (draws, d), rng)`. Tuples are drawn with
replacement; the rows within a tuple are distinct.
"""

from __future__ import annotations

import numpy as np

Size = int | tuple[int, ...]


def pairs(n: int, size: Size, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Ordered pairs of different rows out of n >= 2, uniformly: two index arrays of shape `size`."""
    first, second = _distinct(n, 2, size, rng)
    return first, second


def quadruples(n: int, size: Size, rng: np.random.Generator) -> np.ndarray:
    """Ordered quadruples of different rows out of n >= 4, uniformly: shape `size` + (4,)."""
    return np.stack(_distinct(n, 4, size, rng), axis=-1)


def _distinct(n: int, arity: int, size: Size, rng: np.random.Generator) -> list[np.ndarray]:
    """`arity` index arrays that differ in every element, uniform over the ordered tuples.

    The t-th index is an integer below n - t, shifted past the rows already taken, smallest first. There is no rejection
    step, so the distribution is exact for n as small as `arity`.
    """
    taken: list[np.ndarray] = []
    for t in range(arity):
        index = rng.integers(n - t, size=size)
        if t == 1:
            index += index >= taken[0]
        elif t > 1:
            for earlier in np.sort(np.stack(taken), axis=0):
                index += index >= earlier
        taken.append(index)
    return taken


def blocks(n: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """A random permutation of n rows split into blocks of `size`; an incomplete last block is dropped."""
    count = n // size
    return rng.permutation(n)[: count * size].reshape(count, size)


def halves(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A random split of n rows into two parts, the first with one row more where n is odd."""
    order = rng.permutation(n)
    return order[: n - n // 2], order[n - n // 2 :]
