"""Moments of draws that are computed in batches and never all in memory, and scores from them.

The draws of a block of features are computed where the block is: in memory with all threads, from a file while the next
block is read, or on a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from kernsift.data.tables import Table
from kernsift.estimators.block_sizes import columns_that_fit, runs_of, sent_columns, whole_lines
from kernsift.estimators.draws.batches import LEARNING, Draws
from kernsift.estimators.feature_blocks import BufferPool, FeatureBlock, map_blocks
from kernsift.estimators.scores import (
    Covariance,
    DenseCovariance,
    FactorCovariance,
    Scores,
    ScoreScales,
    supported_variances,
)
from kernsift.execution import threads
from kernsift.execution.arrays import (
    Array,
    asarray_like,
    batch_numbers,
    column_sums,
    dtype_of,
    namespace,
    on_host,
    slices,
    to_numpy,
)
from kernsift.execution.fused import host_deviations
from kernsift.execution.parallel import worker_threads
from kernsift.kernels.fitted import FeatureKernels

Kind = TypeVar("Kind", bound=Draws)
Item = TypeVar("Item")
Output = TypeVar("Output")

# Elements of arrays of draws: up to the first they are kept for reuse; a larger array than the second is never created.
_KEPT, _MOST = 2**20, 2**25
# Features up to which samples are drawn from the matrix of all covariances.
_FEW = 2000
# Batches per task of a thread, and draws of the pilot mean.
_BATCHES, _PILOT = 16, 16
# Value columns per block: rows of this length are copied at full speed.
_COLUMNS = 2**12
# Draws per row below which sending the rows to workers takes a large part of the time of computing them here.
_WORTH = 32


@dataclass(frozen=True)
class FeatureDraws(Generic[Kind]):
    """An (l, d) array of draws of the features of a table, recomputed whenever it is needed.

    Several samples are stacked in `table`.
    """

    table: Table
    kernels: FeatureKernels
    draws: Kind

    @property
    def count(self) -> int:
        """The number of draws, l."""
        return self.draws.count

    @property
    def in_memory(self) -> bool:
        """Whether the values behind the draws are in memory."""
        return self.table.memory is None

    def of(self, features: slice | np.ndarray, draws: slice) -> Array:
        """Some draws of some features of a table in memory."""
        return self.draws.of(self.block(np.arange(self.table.d)[features]), draws)

    def block(self, features: np.ndarray) -> FeatureBlock:
        """Some of the features."""
        return FeatureBlock(features, self.table, self.kernels, features, all_columns=int(self.table.offsets[-1]))

    def features_at_once(self, workers: int = 0, among: np.ndarray | None = None) -> list[np.ndarray]:
        """Features that are processed together, here or on this many threads of workers; `among` is increasing."""
        tables, prototype = self.table.tables, self.table.prototype
        # A device has room for all of them, unless there are very many.
        most = _COLUMNS if on_host(prototype) else 16 * _COLUMNS
        if not self.in_memory:
            most = min(most, columns_that_fit(tables, self.draws.nbytes, 1 if workers else None))
        if workers:
            most = min(most, sent_columns(self.table, int(self.table.offsets[-1])))
            most = whole_lines(most, dtype_of(prototype).itemsize) if self.table.readable else most
        if among is None:
            return runs_of(self.table.offsets, most)
        offsets = np.concatenate([[0], np.cumsum(np.diff(self.table.offsets)[among])])
        return [among[run] for run in runs_of(offsets, most)]

    def worth_sending(self, count: int) -> bool:
        """Whether `count` draws are worth sending the values to workers."""
        return self.draws.shared and (
            not self.in_memory or count * self.draws.kernel_values >= _WORTH * self.table.tables[0].n
        )

    def blocks(self, among: np.ndarray | None = None) -> Iterator[FeatureBlock]:
        """The features in blocks with their values in memory."""
        blocks = [self.block(features) for features in self.features_at_once(among=among)]
        if self.in_memory:
            yield from blocks
            return
        pool = BufferPool()
        with self.table.reading():
            yield from threads.prefetch(lambda block: block.loaded(pool), blocks)

    def map(
        self, work: Callable[[FeatureBlock], Output], count: int, among: np.ndarray | None = None
    ) -> Iterator[Output]:
        """`work`, which computes `count` of the draws, for each block of all features or of some, in turn."""
        workers, total = worker_threads(), self.table.d if among is None else len(among)
        if not workers or not self.worth_sending(count):
            return map_blocks(work, self.blocks(among), total, local=True)
        blocks = [self.block(features) for features in self.features_at_once(workers, among)]
        return map_blocks(partial(_loaded, work), blocks, total)


def _loaded(work: Callable[[FeatureBlock], Output], block: FeatureBlock) -> Output:
    """The task of a worker, which may have to read the block."""
    return work(block.loaded())


@dataclass(frozen=True)
class Moments:
    """Means of some draws, and sums of squared deviations from them."""

    count: int
    mean: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Moments:
        """From draws (l, d)."""
        mean = values.mean(axis=0)
        return cls(len(values), mean, ((values - mean) ** 2).sum(axis=0))

    @classmethod
    def joined(cls, parts: Sequence[Moments]) -> Moments:
        """The moments of the same draws of all features, from those of some of them at a time."""
        mean, squares = (np.concatenate(each) for each in zip(*((one.mean, one.squares) for one in parts), strict=True))
        return cls(parts[0].count, mean, squares)

    def plus(self, other: Moments) -> Moments:
        """The moments of both sets of draws together."""
        count = self.count + other.count
        if not other.count:
            return self
        gap = other.mean - self.mean
        mean = self.mean + gap * (other.count / count)
        return Moments(count, mean, self.squares + other.squares + gap**2 * (self.count * other.count / count))


def moments_of(draws: FeatureDraws[Any]) -> Moments:
    """Mean and squared deviations of the draws, computed in batches."""
    return Moments.joined(list(draws.map(partial(_block_moments, draws.draws, 0, draws.count), draws.count)))


def _block_moments(draws: Draws, start: int, stop: int, block: FeatureBlock) -> Moments:
    # Deviations are taken from a pilot mean, because squares of the draws would cancel where these vary little.
    some = draws.of(block, slice(start, min(start + _PILOT, stop)))
    pilot = namespace(some).astype(column_sums(some) / some.shape[0], some.dtype, copy=False)
    known = draws.sums(block, slice(start, stop), pilot)
    if known is None:
        found = list(on_threads(partial(_sums, draws, block, pilot), _runs(draws, block, start, stop), block))
        off, squares = (np.sum(part, axis=0) for part in zip(*found, strict=True))
    else:
        off, squares = (to_numpy(part) for part in known)
    count = stop - start
    return Moments(count, to_numpy(pilot).astype(float) + off / count, np.maximum(squares - off**2 / count, 0.0))


def _sums(draws: Draws, block: FeatureBlock, pilot: Array, run: slice) -> tuple[np.ndarray, np.ndarray]:
    """Sums of deviations from the pilot mean and of their squares."""
    total: Array = 0.0
    squares: Array = 0.0
    numbers = draws.count * block.all_columns
    for batch in slices(run.start, run.stop, _batch(draws, block)):
        values = draws.of(block, batch)
        off, square = host_deviations(values, pilot, numbers) or _deviations(values, pilot)
        total, squares = total + off, squares + square
    return to_numpy(total), to_numpy(squares)


def _deviations(values: Array, centre: Array) -> tuple[Array, Array]:
    """Sums by column of the deviations from a centre and of their squares; the values are overwritten."""
    values -= centre
    off = column_sums(values)
    values *= values
    return off, column_sums(values)


def _batch(draws: Draws, block: FeatureBlock) -> int:
    return max(1, batch_numbers(block.table.prototype) // (block.width * draws.kernel_values))


def _runs(draws: Draws, block: FeatureBlock, start: int, stop: int) -> Iterator[slice]:
    """Runs of draws, each of several batches."""
    return slices(start, stop, _BATCHES * _batch(draws, block))


def on_threads(function: Callable[[Item], Output], items: Iterable[Item], block: FeatureBlock) -> Iterator[Output]:
    """`function` of each item, in order: in parallel threads on the host; a device parallelises by itself."""
    return threads.parallel_map(function, items) if on_host(block.table.prototype) else map(function, items)


def _first_draws(draws: Draws, stop: int, block: FeatureBlock) -> np.ndarray:
    """The first draws of some features."""
    out = np.empty((stop, len(block.features)))

    def fill(run: slice) -> None:
        for batch in slices(run.start, run.stop, _batch(draws, block)):
            out[batch] = to_numpy(draws.of(block, batch))

    for _ in on_threads(fill, _runs(draws, block, 0, stop), block):
        pass
    return out


@dataclass(frozen=True)
class _Products:
    """Products of the first draws of features with those of chosen ones, all of them centred."""

    draws: Draws
    first: Moments
    chosen: Array

    def __call__(self, block: FeatureBlock) -> np.ndarray:
        product = partial(self._product, block, self.first.mean[block.features])
        return np.sum(list(on_threads(product, _runs(self.draws, block, 0, self.first.count), block)), axis=0)

    def _product(self, block: FeatureBlock, mean: np.ndarray, run: slice) -> np.ndarray:
        total: Array = 0.0
        for batch in slices(run.start, run.stop, _batch(self.draws, block)):
            values = _centred(self.draws, block, mean, batch)
            total = total + namespace(values).matrix_transpose(values) @ self.chosen[batch, :]
        return to_numpy(total)


def _centred(draws: Draws, block: FeatureBlock, mean: np.ndarray, batch: slice) -> Array:
    """Some draws of some features, less their means."""
    values = draws.of(block, batch)
    values -= namespace(values).astype(asarray_like(mean, values), values.dtype, copy=False)
    return values


@dataclass(frozen=True)
class DrawCovariance:
    """Covariance of means of many draws: variances from all of them, correlations from the first ones.

    No array of size (l, d) is kept: the draws are recomputed when they are needed.
    """

    draws: FeatureDraws[Any]  # where they come from
    first: Moments  # moments of the first draws, which the correlations come from
    variances: np.ndarray  # (d,) the variances of the scores
    # (d,) what a centred draw is multiplied with, so that the squares of the first draws add up to the variance;
    # 0 for a feature that does not vary together with others.
    scale: np.ndarray
    room: int = 0  # bytes of draws of chosen features that may be held while a file is read for those of all others

    def diagonal(self) -> np.ndarray:
        return self.variances.copy()

    def columns(self, features: np.ndarray) -> np.ndarray:
        step = max(1, _MOST // self.first.count)
        if not self.draws.in_memory:
            # Every step reads the whole table.
            step = min(step, max(self._at_once, self.room // (8 * self.first.count)))
        parts = [self._columns(features[some]) for some in slices(0, len(features), step)]
        return np.concatenate(parts, axis=1) if parts else np.empty((len(self.variances), 0))

    @property
    def _at_once(self) -> int:
        """Features that are in memory at a time."""
        return len(self.draws.features_at_once()[0])

    def _columns(self, features: np.ndarray) -> np.ndarray:
        out = np.zeros((len(self.variances), len(features)))
        steps = 1 if self.draws.in_memory else -(-len(features) // self._at_once)
        with self.draws.table.reading():
            parts = [self._chosen(self.draws.block(own).loaded()) for own in np.array_split(features, steps)]
        chosen = namespace(parts[0]).concat(parts, axis=1)
        done = 0
        for product in self.draws.map(_Products(self.draws.draws, self.first, chosen), self.first.count):
            out[done : done + len(product)] = product
            done += len(product)
        out *= self.scale[:, None] * self.scale[features]
        out[features, np.arange(len(features))] = self.variances[features]
        return out

    def _chosen(self, block: FeatureBlock) -> Array:
        """The centred first draws of some features."""
        draws, mean = self.draws.draws, self.first.mean[block.features]
        step = max(1, batch_numbers(block.table.prototype) // max(len(block.features), 1))
        parts = [_centred(draws, block, mean, batch) for batch in slices(0, self.first.count, step)]
        return namespace(parts[0]).concat(parts, axis=0)

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        d, count = len(self.variances), self.first.count
        if d <= _FEW:
            return DenseCovariance(self.columns(np.arange(d))).sample(size, rng)
        normal = rng.standard_normal((size, count))
        out = rng.standard_normal((size, d))
        out *= np.where(self.scale == 0, np.sqrt(self.variances), 0.0)
        for block in self.draws.blocks():
            own = block.features
            for run in _runs(self.draws.draws, block, 0, count):
                values = to_numpy(_centred(self.draws.draws, block, self.first.mean[own], run)) * self.scale[own]
                out[:, own] += normal[:, run] @ values
        return out


MeasureScales = Callable[[FeatureBlock, np.ndarray], ScoreScales]
"""Measures the scales of a block of features with their scores, while its values are in memory."""


def scores_from_batches(
    draws: FeatureDraws[Any],
    measure_scales: MeasureScales | None,
    *,
    variance_factor: float | None,
    resample: Callable[[float, np.random.Generator], np.ndarray] | None,
) -> tuple[Scores, ScoreScales | None]:
    """Scores from draws that are computed in batches on their device: `estimate = mean(H)`, `cov = Cov(H) * factor`.

    `variance_factor` is 1/l by default. Few draws are kept, so that they need not be made again for the correlations.
    Where making them means reading a file again, those that the correlations are learned from are kept, if a fifth of
    the memory holds them, or half of what a worker may use: blocks of columns are then elsewhere. The scales of all
    features are those of `measure_scales`, if that is given.
    """
    count, d = draws.count, draws.table.d
    room = 0 if draws.table.memory is None else draws.table.memory // (2 if worker_threads() else 5)
    few = count * d <= _KEPT
    first = count if few else min(count, LEARNING)
    kept = few or (not draws.in_memory and 8 * first * d <= room)
    found = list(draws.map(partial(_measured, draws.draws, first, kept, measure_scales), count))
    learned, every = Moments.joined([one.first for one in found]), Moments.joined([one.every for one in found])
    factor = 1.0 / count if variance_factor is None else variance_factor
    sampled = every.squares * (factor / max(count - 1, 1))
    variances = supported_variances(sampled, every.mean, count)
    # Features whose draws do not vary are uncorrelated with the others.
    alone = (variances > sampled) | (learned.squares == 0)
    scale = np.where(alone, 0.0, np.sqrt(variances / np.where(alone, 1.0, learned.squares)))
    cov: Covariance
    if kept:
        values = np.concatenate([one.draws for one in found if one.draws is not None], axis=1)
        values -= learned.mean
        values *= scale
        cov = FactorCovariance(values, np.where(alone, variances, 0.0))
    else:
        cov = DrawCovariance(draws, learned, variances, scale, room)
    scores = Scores(draws.table.names, every.mean, cov, draws=float(count), resample=resample)
    return scores, None if measure_scales is None else ScoreScales.joined([one.scales for one in found if one.scales])


class _Measured(NamedTuple):
    """Moments of the first draws and of all, the first draws themselves where they are kept, and scales."""

    first: Moments
    every: Moments
    draws: np.ndarray | None
    scales: ScoreScales | None


def _measured(
    draws: Draws, first: int, keep: bool, measure_scales: MeasureScales | None, block: FeatureBlock
) -> _Measured:
    values = _first_draws(draws, first, block) if keep else None
    some = every = _block_moments(draws, 0, first, block) if values is None else Moments.of(values)
    if draws.count > first:
        every = some.plus(_block_moments(draws, first, draws.count, block))
    return _Measured(some, every, values, None if measure_scales is None else measure_scales(block, every.mean))
