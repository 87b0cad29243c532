"""Median distances, the usual choice of a kernel's bandwidth: pure functions of arrays."""

from __future__ import annotations

import numpy as np

# Order statistics per column behind the median distance: 2016 differences, the same for any row order.
_QUANTILES = 64
# Elements of one temporary array while medians are computed: small enough to stay in the cache.
_CHUNK = 1 << 18


def column_medians(values: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The median distance and the median of each of those columns, whatever the order of the rows.

    The distances are those between at most 64 evenly spaced order statistics; where ties make their median 0, only
    distances above 0 count, and a constant column gets 1.
    """
    n = len(values)
    m = min(n, _QUANTILES)
    order = ((np.arange(m) + 0.5) * n / m).astype(np.intp)
    count = m * (m - 1) // 2
    ranks = ((count - 1) // 2, count // 2)
    distance, middle = np.ones(len(columns)), np.empty(len(columns), dtype=values.dtype)
    step = max(1, _CHUNK // max(n, count))
    for start in range(0, len(columns), step):
        part = slice(start, start + step)
        ordered = np.sort(values[:, columns[part]].T, axis=1)
        middle[part] = _halfway(ordered[:, (n - 1) // 2], ordered[:, n // 2])
        if m > 1:
            gaps = _gaps(ordered[:, order])
            gaps.partition(ranks, axis=1)
            medians = _halfway(gaps[:, ranks[0]], gaps[:, ranks[1]])
            tied = np.flatnonzero(medians == 0)
            if len(tied):
                medians[tied] = _positive_median(gaps[tied])
            tied = tied[medians[tied] == 0]
            if len(tied):
                # All order statistics are equal: then the rows off the median decide, or the column is constant.
                off = _positive_median(np.abs(ordered[tied] - middle[part][tied, None]))
                medians[tied] = np.where(off > 0, off, 1.0)
            distance[part] = medians
    return distance, middle


def _gaps(ordered: np.ndarray) -> np.ndarray:
    """Row by row, the differences of all pairs of ordered values."""
    m = ordered.shape[1]
    gaps = np.empty((len(ordered), m * (m - 1) // 2), dtype=ordered.dtype)
    start = 0
    # Neighbours at one lag after the other: slices, where an index of all pairs would cost more than the median.
    for lag in range(1, m):
        np.subtract(ordered[:, lag:], ordered[:, :-lag], out=gaps[:, start : start + m - lag])
        start += m - lag
    return gaps


def _halfway(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The mean of the two middle values, in a form that cannot overflow."""
    return 0.5 * low + 0.5 * high


def _positive_median(rows: np.ndarray) -> np.ndarray:
    """Row by row, the median of the values above 0; 0 where there are none."""
    rows = np.sort(rows, axis=1)
    zeros = (rows == 0).sum(axis=1)
    count = rows.shape[1] - zeros
    low = np.minimum(zeros + (count - 1) // 2, rows.shape[1] - 1)
    high = np.minimum(zeros + count // 2, rows.shape[1] - 1)
    every = np.arange(len(rows))
    return _halfway(rows[every, low], rows[every, high])


def joint_median(
    values: np.ndarray, columns: np.ndarray, scale: np.ndarray, most: int, rng: np.random.Generator
) -> float:
    """Median Euclidean distance between rows over those columns, each divided by its scale; `most` rows at most."""
    n = len(values)
    rows = np.arange(n) if n <= most else rng.choice(n, most, replace=False)
    points = values[np.ix_(rows, columns)].astype(float) / scale
    points -= np.median(points, axis=0)
    size = float(np.abs(points).max(initial=0.0))
    if size == 0 or len(rows) < 2:
        return 1.0
    points /= size
    gram = points @ points.T
    norms = np.diagonal(gram)
    low, high = np.triu_indices(len(rows), 1)
    total = norms[low] + norms[high]
    squares = total - 2.0 * gram[low, high]
    # Equal rows come out as rounding error instead of 0.
    squares[squares <= 1e-13 * total] = 0.0
    distances = np.sqrt(squares, out=squares)
    median = float(np.median(distances)) or float(_positive_median(distances[None])[0])
    return size * median if median > 0 else 1.0
