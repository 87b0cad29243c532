"""Kernels of whole draws in one pass over a GPU's memory, where the array version takes some twenty.

Each function here does what an array version elsewhere does, and says None where it cannot: on the host, and where the
library at hand has no compiler. The array version is its test (benchmarks/gpu.py).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import lru_cache

import array_api_compat as compat

from kernsift.arrays import Array, on_host

# In this order h is exactly 0 where it should be (statistics/ustatistic.py). `c` is minus the squared reciprocal of the
# bandwidth.
_GAUSSIAN_MMD = """
    T p = x - x2, q = x - y2, r = y - y2, s = x2 - y;
    T h = (exp(p * p * c) - exp(q * q * c)) + (exp(r * r * c) - exp(s * s * c));
"""


def gaussian_mmd(x: Array, x2: Array, y: Array, y2: Array, c: Array) -> Array | None:
    """h(x, x', y, y') of single columns under the Gaussian kernel; None where the array version has to do it."""
    if on_host(x):
        return None
    if compat.is_torch_array(x) and x.device.type == "cuda":
        function = _for_torch()
    elif compat.is_cupy_array(x):
        function = _for_cupy()
    else:
        return None
    return None if function is None else function(x, x2, y, y2, c)


@lru_cache(maxsize=1)
def _for_torch() -> Callable[..., Array] | None:
    try:
        jiterator = importlib.import_module("torch.cuda.jiterator")
        text = f"template <typename T> T draw(T x, T x2, T y, T y2, T c) {{ {_GAUSSIAN_MMD} return h; }}"
        return jiterator._create_jit_fn(text)
    except (ImportError, AttributeError):  # not in every release of torch
        return None


@lru_cache(maxsize=1)
def _for_cupy() -> Callable[..., Array] | None:
    cupy = importlib.import_module("cupy")
    return cupy.ElementwiseKernel("T x, T x2, T y, T y2, T c", "T h", _GAUSSIAN_MMD.replace("T h =", "h ="), "draw")
