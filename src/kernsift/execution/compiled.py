"""Loops over draws and over features of the Gaussian kernel on the host, compiled by numba where it is installed.

NumPy makes one pass per operation, which costs three times as much as its `exp`. The functions here read the rows of a
draw, evaluate and write. `exponential` is inlined arithmetic, so that the loop over features is vectorised: with
numba's own `exp` a call of `compare` with 100,000 rows a sample, 20 features and r = 10 takes 1.7 times as long.
Prefetching the rows of later draws, which numba does not offer, makes the same call 1.4 times as fast, and draws of 200
columns twice as fast. Only `fused` imports this module.
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


# Columns whose values are prefetched together, and for which later draw: a processor that prefetches by itself begins
# anew with every row. A cache line holds at least `_LINE` numbers.
_BLOCK, _AHEAD, _LINE = 32, 8, 8


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
    return p * np.int64((np.int64(k) + 1023) << 52).view(np.float64)


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
    return p * np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)


@_compile
def mmd(X: Any, Y: Any, a: Any, b: Any, u: Any, v: Any, start: int, exponents: Any, out: Any) -> None:
    """h of draws of rows a, b of X and u, v of Y, for the columns from `start` on."""
    count = len(exponents)
    for draw in range(len(out)):
        x, x2 = X[a[draw]][start : start + count], X[b[draw]][start : start + count]
        y, y2 = Y[u[draw]][start : start + count], Y[v[draw]][start : start + count]
        h, later = out[draw], min(draw + _AHEAD, len(out) - 1)
        for first in range(0, count, _BLOCK):
            last = min(first + _BLOCK, count)
            for j in range(start + first, start + last, _LINE):
                prefetch(X, a[later], j)
                prefetch(X, b[later], j)
                prefetch(Y, u[later], j)
                prefetch(Y, v[later], j)
            # Unsigned indices never count from the end, and without that case the loop is vectorised.
            for j in range(np.uintp(first), np.uintp(last)):
                c = exponents[j]
                p, q, r, s = x[j] - x2[j], x[j] - y2[j], y[j] - y2[j], x2[j] - y[j]
                h[j] = (exponential(p * p * c) - exponential(q * q * c)) + (
                    exponential(r * r * c) - exponential(s * s * c)
                )


@_compile
def hsic(X: Any, rows: Any, second: Any, third: Any, start: int, exponents: Any, out: Any) -> None:
    """h of quadruples of rows of X: what the second and third pairing have beyond the first, times their weights."""
    count = len(exponents)
    for draw in range(len(out)):
        a, b = X[rows[draw, 0]][start : start + count], X[rows[draw, 1]][start : start + count]
        u, v = X[rows[draw, 2]][start : start + count], X[rows[draw, 3]][start : start + count]
        h, later = out[draw], min(draw + _AHEAD, len(out) - 1)
        for first in range(0, count, _BLOCK):
            last = min(first + _BLOCK, count)
            for j in range(start + first, start + last, _LINE):
                for i in range(4):
                    prefetch(X, rows[later, i], j)
            for j in range(np.uintp(first), np.uintp(last)):
                c = exponents[j]
                ab, uv, au, bv, av, bu = a[j] - b[j], u[j] - v[j], a[j] - u[j], b[j] - v[j], a[j] - v[j], b[j] - u[j]
                common = exponential(ab * ab * c) + exponential(uv * uv * c)
                h[j] = ((exponential(au * au * c) + exponential(bv * bv * c)) - common) * second[draw] + (
                    (exponential(av * av * c) + exponential(bu * bu * c)) - common
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


# Intervals of equal length in which a search among edges begins; columns that share cache lines, and rows at a time.
_INTERVALS, _TOGETHER, _ROWS = 4096, 8, 512


@_compile
def intervals(edges: Any, starts: Any) -> tuple[Any, Any, int]:
    """Set the number of edges before each of `_INTERVALS` intervals; where they begin, their scale, and the most edges.

    They lie between the outer edges or, where that puts several into one interval, between the outer ones but a few,
    which leaves room for long tails. Rounding is monotone, so that an edge in an earlier interval than a value is below
    it.
    """
    finite = 0
    while finite < len(edges) and edges[finite] < np.inf:
        finite += 1
    low, scale, most = edges[0], edges[0], 0
    for outer in (0, finite // 64):
        if outer and most <= 1:
            break
        low, high, most = edges[outer], edges[max(finite - 1 - outer, 0)], 0
        scale = edges.dtype.type(_INTERVALS - 1) / (high - low)
        if not 0 < scale < np.inf:
            low, scale = edges.dtype.type(0), edges.dtype.type(0)
        starts[:] = 0
        for edge in range(finite):
            place = interval_of(edges[edge], low, scale) + 1
            starts[place] += 1
            most = max(most, starts[place])
    for place in range(_INTERVALS):
        starts[place + 1] += starts[place]
    return low, scale, most


@_compile
def interval_of(value: Any, low: Any, scale: Any) -> Any:
    place = (value - low) * scale
    return np.int32(min(max(place, type(place)(0)), type(place)(_INTERVALS - 1)))


@_compile
def aligned(array: Any) -> Any:
    """An array from the first element on that begins a cache line: vectors in two lines take longer."""
    return array[-array.ctypes.data % 64 // array.itemsize :]


@_compile
def count_cells(values: Any, edges: Any, cells: Any, kept: Any, joint: Any, codes: Any) -> None:
    """Add the rows of `values` (n, b) to `joint` (b, G * J), by how many of the edges (b, G - 1) are below and by cell.

    The codes (b, kept) of the increasing rows `kept` are set.
    """
    n, b = values.shape
    size, count = edges.shape[1], joint.shape[1] // (edges.shape[1] + 1)
    starts = np.empty((_TOGETHER, _INTERVALS + 1), dtype=np.int32)
    padded = np.empty((_TOGETHER, 3 * size + 2), dtype=edges.dtype)
    low, scale = np.empty(_TOGETHER, dtype=edges.dtype), np.empty(_TOGETHER, dtype=edges.dtype)
    largest = np.empty(_TOGETHER, dtype=np.int64)
    column, found = aligned(np.empty(_ROWS + 16, dtype=values.dtype)), aligned(np.empty(_ROWS + 16, dtype=np.int32))
    for first in range(0, b, _TOGETHER):
        width = min(_TOGETHER, b - first)
        for j in range(width):
            low[j], scale[j], most = intervals(edges[first + j], starts[j])
            largest[j] = 1
            while 2 * largest[j] <= most:
                largest[j] *= 2
            for edge in range(padded.shape[1]):
                padded[j, edge] = edges[first + j, edge] if edge < size else np.inf
        place = 0
        for begin in range(0, n, _ROWS):
            rows = min(_ROWS, n - begin)
            after = place
            while after < len(kept) and kept[after] < begin + rows:
                after += 1
            for j in range(width):
                upper, start, own = padded[j], starts[j], joint[first + j]
                for i in range(rows):
                    column[i] = values[begin + i, first + j]
                for i in range(rows):
                    found[i] = start[interval_of(column[i], low[j], scale[j])]
                step = largest[j]
                while step:
                    for i in range(rows):
                        found[i] += step if upper[found[i] + step - 1] < column[i] else 0
                    step //= 2
                for i in range(rows):
                    own[found[i] * count + cells[begin + i]] += 1
                for i in range(place, after):
                    codes[first + j, i] = found[kept[i] - begin]
            place = after
