"""Sums over the draws of the MMD kernel on a GPU, compiled by Triton, which comes with torch.

torch makes one pass over the draws for each operation: some 20 of them. Here a program reads the rows of some draws,
evaluates and adds up, for some columns, and nothing of the size of the draws is written. Only `fused` imports this.
"""

from typing import Any

import torch
import triton
import triton.language as tl

# Draws that a program adds up, those that it reads together, and its columns.
_DRAWS, _TOGETHER, _COLUMNS = 2048, 4, 512


@triton.jit
def _rows(table, numbers, stride, columns, inside):  # type: ignore[no-untyped-def]
    return tl.load(table + numbers.to(tl.int64)[:, None] * stride + columns[None, :], mask=inside, other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _sums(  # type: ignore[no-untyped-def]
    X, Y, x_stride, y_stride, rows, exponents, pilot, off, squares, count, width,
    DRAWS: tl.constexpr, TOGETHER: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    own = columns < width
    c = tl.load(exponents + columns, mask=own, other=0.0)[None, :]
    centre = tl.load(pilot + columns, mask=own, other=0.0)[None, :]
    total = tl.zeros((COLUMNS,), X.dtype.element_ty)
    square = tl.zeros((COLUMNS,), X.dtype.element_ty)
    start = tl.program_id(1) * DRAWS
    for first in range(start, start + DRAWS, TOGETHER):
        draws = first + tl.arange(0, TOGETHER)
        inside = (draws < count)[:, None] & own[None, :]
        x = _rows(X, tl.load(rows + draws, mask=draws < count, other=0), x_stride, columns, inside)
        x2 = _rows(X, tl.load(rows + count + draws, mask=draws < count, other=0), x_stride, columns, inside)
        y = _rows(Y, tl.load(rows + 2 * count + draws, mask=draws < count, other=0), y_stride, columns, inside)
        y2 = _rows(Y, tl.load(rows + 3 * count + draws, mask=draws < count, other=0), y_stride, columns, inside)
        # In this order h is exactly 0 when x = y or x' = y'.
        h = tl.exp(c * ((x - x2) * (x - x2))) - tl.exp(c * ((x - y2) * (x - y2)))
        h += tl.exp(c * ((y - y2) * (y - y2))) - tl.exp(c * ((x2 - y) * (x2 - y)))
        h = tl.where(inside, h - centre, 0.0)
        total += tl.sum(h, axis=0)
        square += tl.sum(h * h, axis=0)
    place = tl.program_id(1).to(tl.int64) * width + columns
    tl.store(off + place, total, mask=own)
    tl.store(squares + place, square, mask=own)


def mmd_sums(X: Any, Y: Any, rows: Any, exponents: Any, pilot: Any) -> tuple[Any, Any]:
    """(p,) sums of deviations of h from the pilot, and of their squares; `rows` (4, l) are int32, the tables by row."""
    count, width = rows.shape[1], X.shape[1]
    parts = triton.cdiv(count, _DRAWS)
    off, squares = torch.empty((2, parts, width), dtype=X.dtype, device=X.device)
    tables = (X, Y, X.stride(0), Y.stride(0))
    with torch.cuda.device(X.device):
        _sums[triton.cdiv(width, _COLUMNS), parts](
            *tables, rows, exponents, pilot, off, squares, count, width, _DRAWS, _TOGETHER, _COLUMNS
        )
    return off.sum(0, dtype=torch.float64), squares.sum(0, dtype=torch.float64)
