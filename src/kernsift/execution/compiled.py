"""Draws of the Gaussian kernel on the host in one pass over memory, compiled by numba where it is installed.

NumPy makes one pass per operation, which costs three times as much as its `exp`. The functions here read the rows of a
draw, evaluate and write. `exponential` is inlined arithmetic, so that the loop over features is vectorised: with
numba's own `exp` a call of `compare` with 100,000 rows a sample, 20 features and r = 10 takes 1.7 times as long.
Prefetching the rows of later draws, which numba does not offer, makes the same call 1.4 times as fast. Only `fused`
imports this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload


def _compile(function: Callable[..., Any]) -> Any:
    # Products may be added in one instruction; the order of sums stays, so that h is exactly 0 where it should be.
    options: dict[str, Any] = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder to keep the machine code in
        return numba.njit(**options)(function)


# log(2) in two parts, of which multiples of the first are exact; adding and subtracting _ROUND rounds to an integer.
_HIGH, _LOW, _ROUND = 0.6931471803691238, 1.9082149292705877e-10, 1.5 * 2.0**52
_HIGH32, _LOW32, _ROUND32 = np.float32(0.693359375), np.float32(-2.12194440e-4), np.float32(1.5 * 2.0**23)
_PER_LOG, _PER_LOG32 = 1.4426950408889634, np.float32(1.4426950408889634)
# Below these exp is negligible; at them 2^k is still a normal number.
_LEAST, _LEAST32 = -708.0, np.float32(-87.0)


def _bits_to_float(context: Any, bits: Any) -> Any:
    """The floating-point number with the bits of an integer."""
    return (types.float64(types.int64) if bits == types.int64 else types.float32(types.int32)), _build_bitcast


def _build_bitcast(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))


bits_to_float: Any = intrinsic(_bits_to_float)

# Rows of up to this many columns are prefetched for a later draw; the processor itself prefetches within longer ones. A
# cache line holds at least `_LINE` numbers.
_NARROW, _AHEAD, _LINE = 64, 8, 8


def _prefetch(context: Any, array: Any, row: Any, column: Any) -> Any:
    """Prefetch the cache line of one element."""
    return types.void(array, types.intp, types.intp), _build_prefetch


def _build_prefetch(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    tools: Any = cgutils  # has no type hints
    kind = signature.args[0]
    array = context.make_array(kind)(context, builder, arguments[0])
    element = tools.get_item_pointer(context, builder, kind, array, list(arguments[1:]), wraparound=False)
    int32, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
    function = ir.FunctionType(ir.VoidType(), [pointer, int32, int32, int32])
    llvm_prefetch = tools.get_or_insert_function(builder.module, function, "llvm.prefetch.p0i8")
    # To read, kept in all levels of the cache, data.
    builder.call(llvm_prefetch, [builder.bitcast(element, pointer), int32(0), int32(3), int32(1)])
    return context.get_dummy_value()


prefetch: Any = intrinsic(_prefetch)


def exponential(t: Any) -> Any:
    """exp(t) for t <= 0 to one or two units in the last place: 2^k times a Taylor polynomial of t - k log(2)."""
    raise NotImplementedError("for compiled functions alone")


@overload(exponential, inline="always")
def _exponential(t: Any) -> Any:
    return _exp_single if t == types.float32 else _exp_double


def _exp_double(t: Any) -> Any:
    t = max(t, _LEAST)
    k = (t * _PER_LOG + _ROUND) - _ROUND
    f = t - k * _HIGH - k * _LOW
    p = 1 / 479001600
    p = p * f + 1 / 39916800
    p = p * f + 1 / 3628800
    p = p * f + 1 / 362880
    p = p * f + 1 / 40320
    p = p * f + 1 / 5040
    p = p * f + 1 / 720
    p = p * f + 1 / 120
    p = p * f + 1 / 24
    p = p * f + 1 / 6
    p = p * f + 0.5
    p = p * f + 1.0
    p = p * f + 1.0
    return p * bits_to_float((np.int64(k) + 1023) << 52)


def _exp_single(t: Any) -> Any:
    t = max(t, _LEAST32)
    k = (t * _PER_LOG32 + _ROUND32) - _ROUND32
    f = t - k * _HIGH32 - k * _LOW32
    p = np.float32(1 / 5040)
    p = p * f + np.float32(1 / 720)
    p = p * f + np.float32(1 / 120)
    p = p * f + np.float32(1 / 24)
    p = p * f + np.float32(1 / 6)
    p = p * f + np.float32(0.5)
    p = p * f + np.float32(1.0)
    p = p * f + np.float32(1.0)
    return p * bits_to_float(np.int32((np.int32(k) + np.int32(127)) << np.int32(23)))


@_compile
def mmd(X: Any, Y: Any, a: Any, b: Any, u: Any, v: Any, start: int, exponents: Any, out: Any) -> None:
    """h of rows a, b of X and u, v of Y, for the columns from `start` on."""
    stop = start + len(exponents)
    for draw in range(len(out)):
        x, x2 = X[a[draw]][start:stop], X[b[draw]][start:stop]
        y, y2 = Y[u[draw]][start:stop], Y[v[draw]][start:stop]
        h = out[draw]
        if len(exponents) <= _NARROW:
            later = min(draw + _AHEAD, len(out) - 1)
            for j in range(start, stop, _LINE):
                prefetch(X, a[later], j)
                prefetch(X, b[later], j)
                prefetch(Y, u[later], j)
                prefetch(Y, v[later], j)
        for j in range(len(exponents)):
            c = exponents[j]
            p, q, r, s = x[j] - x2[j], x[j] - y2[j], y[j] - y2[j], x2[j] - y[j]
            h[j] = (exponential(p * p * c) - exponential(q * q * c)) + (exponential(r * r * c) - exponential(s * s * c))


@_compile
def hsic(X: Any, rows: Any, second: Any, third: Any, start: int, exponents: Any, out: Any) -> None:
    """h of quadruples of rows of X: what the second and third pairing have beyond the first, times their weights."""
    stop = start + len(exponents)
    for draw in range(len(out)):
        a, b = X[rows[draw, 0]][start:stop], X[rows[draw, 1]][start:stop]
        u, v = X[rows[draw, 2]][start:stop], X[rows[draw, 3]][start:stop]
        h = out[draw]
        if len(exponents) <= _NARROW:
            later = min(draw + _AHEAD, len(out) - 1)
            for j in range(start, stop, _LINE):
                for i in range(4):
                    prefetch(X, rows[later, i], j)
        for j in range(len(exponents)):
            c = exponents[j]
            ab, uv, au, bv, av, bu = a[j] - b[j], u[j] - v[j], a[j] - u[j], b[j] - v[j], a[j] - v[j], b[j] - u[j]
            first = exponential(ab * ab * c) + exponential(uv * uv * c)
            h[j] = ((exponential(au * au * c) + exponential(bv * bv * c)) - first) * second[draw] + (
                (exponential(av * av * c) + exponential(bu * bu * c)) - first
            ) * third[draw]


@_compile
def deviations(values: Any, centre: Any, total: Any, squares: Any) -> None:
    """Add the deviations of values from a centre, and their squares, to sums for each column."""
    for i in range(len(values)):
        row = values[i]
        for j in range(len(row)):
            off = np.float64(row[j] - centre[j])
            total[j] += off
            squares[j] += off * off
