"""The waist: one number per feature, and how those numbers vary together.

Everything before this file turns data into `Scores`; everything after it sees only `Scores`. The covariance is an
operator rather than a matrix, because the tests need its diagonal, the columns of the selected features, and samples,
but never all d x d entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from kernsift.execution import dask_workers
from kernsift.execution.arrays import Array, asarray_like, batch_numbers, column_sums, namespace, on_host, to_numpy
from kernsift.execution.dask_workers import current_workers
from kernsift.execution.fused import host_deviations
from kernsift.execution.progress import report_progress
from kernsift.execution.threads import parallel_map, prefetch

Item = TypeVar("Item")
Answer = TypeVar("Answer")

LEARNING = 2**14
"""Draws that the correlation of scores is learned from; the scores and their variances use all draws."""
# Numbers that are kept: draws up to the first are never made twice, an array above the second is never made.
_KEPT, _MOST = 2**20, 2**25
# Batches that make up one piece of work for a thread, and draws that say roughly where the mean is.
_BATCHES, _PILOT = 16, 16


class Covariance(Protocol):
    """What the tests ask of the covariance of d scores."""

    def diagonal(self) -> np.ndarray:
        """The d variances."""

    def columns(self, features: np.ndarray) -> np.ndarray:
        """The covariance of every score with the named ones: (d, len(features))."""

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Centred normal draws with this covariance: (size, d)."""


class Path(NamedTuple):
    """How scores change with the score of one feature while all that is independent of that feature stays.

    Attributes
    ----------
    knots : (g,) increasing values of the feature's own score.
    followers : (m,) the features whose scores follow a curve; all others follow the line of the null covariance.
    values : (m, g) scores of the followers at the knots; in between they are straight, beyond the ends constant.
    """

    knots: np.ndarray
    followers: np.ndarray
    values: np.ndarray


@runtime_checkable
class CurvedCovariance(Covariance, Protocol):
    """A covariance that knows more than the null covariance about how scores move together.

    The null covariance says how two scores move together when neither feature has an effect. A feature with an effect
    responds differently to a correlated null feature; `paths` describes that for the tests that condition.
    """

    def paths(self, features: np.ndarray, columns: np.ndarray) -> list[Path | None]:
        """The paths of the named features, whose columns (d, len(features)) are given; None for straight lines."""


def _root(matrix: np.ndarray) -> np.ndarray:
    """The symmetric root R of R @ R = matrix; by eigenvectors, as a covariance estimated from few draws is singular.

    The symmetric one, because eigenvectors of equal eigenvalues are arbitrary and would make draws depend on threads.
    """
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.clip(values, 0.0, None))) @ vectors.T)


@dataclass(frozen=True)
class DenseCovariance:
    """A covariance matrix somebody already has.

    Examples
    --------
    >>> import numpy as np
    >>> covariance = DenseCovariance(np.array([[2.0, 1.0], [1.0, 3.0]]))
    >>> covariance.diagonal()
    array([2., 3.])
    >>> covariance.columns(np.array([0]))
    array([[2.],
           [1.]])
    """

    matrix: np.ndarray

    def diagonal(self) -> np.ndarray:
        return np.diagonal(self.matrix).copy()

    def columns(self, features: np.ndarray) -> np.ndarray:
        return self.matrix[:, features]

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((size, len(self.matrix))) @ _root(self.matrix)


@dataclass(frozen=True)
class DiagonalCovariance:
    """Scores that do not vary together.

    Examples
    --------
    >>> import numpy as np
    >>> DiagonalCovariance(np.array([2.0, 3.0])).columns(np.array([1]))
    array([[0.],
           [3.]])
    """

    variances: np.ndarray

    def diagonal(self) -> np.ndarray:
        return self.variances.copy()

    def columns(self, features: np.ndarray) -> np.ndarray:
        out = np.zeros((len(self.variances), len(features)))
        out[features, np.arange(len(features))] = self.variances[features]
        return out

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((size, len(self.variances))) * np.sqrt(self.variances)


@dataclass(frozen=True)
class FactorCovariance:
    """Covariance `factor.T @ factor` with a factor of shape (m, d): the draws themselves, centred and scaled.

    Examples
    --------
    >>> import numpy as np
    >>> factor = np.array([[1.0, 1.0], [1.0, -1.0], [0.0, 2.0]])
    >>> FactorCovariance(factor).diagonal()
    array([2., 6.])
    """

    factor: np.ndarray

    def diagonal(self) -> np.ndarray:
        return np.einsum("ij,ij->j", self.factor, self.factor)

    def columns(self, features: np.ndarray) -> np.ndarray:
        return self.factor.T @ self.factor[:, features]

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        root = self.factor
        if root.shape[0] > root.shape[1]:
            # d rows do the same as m, and are never larger than the draws.
            root = _root(root.T @ root)
        return rng.standard_normal((size, root.shape[0])) @ root


@dataclass(frozen=True)
class WeightedSum:
    """Covariance of a weighted sum of independent score vectors.

    Examples
    --------
    The mean of two independent score vectors has half the variance of one.

    >>> import numpy as np
    >>> one = DiagonalCovariance(np.array([2.0, 3.0]))
    >>> WeightedSum((0.5, 0.5), (one, one)).diagonal()
    array([1. , 1.5])
    """

    weights: tuple[float, ...]
    parts: tuple[Covariance, ...]

    def diagonal(self) -> np.ndarray:
        return np.sum([w**2 * part.diagonal() for w, part in zip(self.weights, self.parts, strict=True)], axis=0)

    def columns(self, features: np.ndarray) -> np.ndarray:
        return np.sum([w**2 * part.columns(features) for w, part in zip(self.weights, self.parts, strict=True)], axis=0)

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return np.sum([w * part.sample(size, rng) for w, part in zip(self.weights, self.parts, strict=True)], axis=0)


@runtime_checkable
class EffectsWithLaws(Protocol):
    """Effect sizes of some features whose statistics have laws of their own at every effect."""

    @property
    def point(self) -> np.ndarray:
        """(b,) the effect sizes, in [0, 1]."""

    def intervals(self, level: float | np.ndarray = 0.95, unions: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """(b, 2) confidence intervals; `unions` are the values of each score with which it would have been selected."""

    def medians(self, unions: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """(b,) median-unbiased effect sizes."""


@dataclass(frozen=True)
class EffectSizes:
    """Some features' scores on a scale people can read: 0 for nothing, 1 for everything, like a correlation.

    Attributes
    ----------
    point : the effect sizes, in [0, 1].
    spread : standard deviations of the scores around their means when these are as large as observed; None where only
        the null variance is known, and then there are no confidence intervals.
    at : effect sizes that belong to given mean scores, one per feature, from 0 upwards; increasing in each.

    Examples
    --------
    Correlations in tenths as scores, without intervals:

    >>> import numpy as np
    >>> sizes = EffectSizes(np.array([0.5]), None, lambda means: np.minimum(means / 10, 1.0))
    >>> sizes.at(np.array([3.0]))
    array([0.3])
    """

    point: np.ndarray
    spread: np.ndarray | None
    at: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Scores:
    """One score per feature and the covariance of the scores under the null.

    Attributes
    ----------
    names : the d feature names.
    estimate : the d scores; larger means more different, or more dependent.
    cov : covariance of `estimate` under the null hypothesis.
    draws : how many draws the estimate averages; None where the scores are no average and cannot be merged.
    resample : `resample(fraction, rng)` recomputes `estimate` on `fraction * n` rows drawn with replacement; None for
        scores that came without their data.
    effects : effect sizes of chosen features; None for scores that came without their data.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.inference import exact
    >>> from kernsift.estimators.scores import DiagonalCovariance, Scores
    >>> from kernsift.inference.selection_rules import TopK
    >>> scores = Scores(("a", "b", "c"), np.array([0.1, 3.2, 0.4]), DiagonalCovariance(np.ones(3)))
    >>> rule = TopK(1)
    >>> selected = rule.select(scores.estimate)
    >>> exact(scores, rule, selected, rng=np.random.default_rng()).pvalues.round(3)
    array([0.002])
    """

    names: tuple[str, ...]
    estimate: np.ndarray
    cov: Covariance
    draws: float | None = None
    resample: Callable[[float, np.random.Generator], np.ndarray] | None = None
    effects: Callable[[np.ndarray], EffectSizes | EffectsWithLaws] | None = None

    def __len__(self) -> int:
        return len(self.estimate)


def supported(factor: np.ndarray, estimate: np.ndarray, count: int) -> np.ndarray:
    """A covariance factor that claims no more than `count` draws can support.

    Draws that are all equal and not zero (two samples without overlap) would claim infinite precision; l draws cannot
    support more than l standard errors. Such features get a row of their own that says so.
    """
    least = (estimate / count) ** 2
    flat = np.flatnonzero(np.einsum("ij,ij->j", factor, factor) < 1e-12 * least)
    if len(flat) == 0:
        return factor
    extra = np.zeros((len(flat), len(estimate)))
    extra[np.arange(len(flat)), flat] = np.sqrt(least[flat])
    return np.vstack([factor, extra])


def scores_from_draws(
    names: Sequence[str],
    draws: np.ndarray,
    *,
    variance_factor: float | None = None,
    shared: bool = True,
    resample: Callable[[float, np.random.Generator], np.ndarray] | None = None,
) -> Scores:
    """Scores from an (l, d) array of draws: `estimate = mean(H)`, `cov = Cov(H) * variance_factor` (1/l by default).

    With `shared=False` every feature had a design of its own, so the scores are taken as uncorrelated.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.estimators.scores import scores_from_draws
    >>> draws = np.random.default_rng(0).normal(size=(400, 3))
    >>> scores = scores_from_draws(["a", "b", "c"], draws)
    >>> bool(np.allclose(scores.cov.diagonal(), draws.var(axis=0, ddof=1) / 400))
    True
    """
    count = len(draws)
    factor = 1.0 / count if variance_factor is None else variance_factor
    estimate = draws.mean(axis=0)
    scaled = (draws - estimate) * np.sqrt(factor / max(count - 1, 1))
    cov: Covariance = FactorCovariance(supported(scaled, estimate, count))
    if not shared:
        cov = DiagonalCovariance(cov.diagonal())
    return Scores(tuple(names), estimate, cov, draws=float(count), resample=resample)


def supported_variances(variances: np.ndarray, estimate: np.ndarray, count: int) -> np.ndarray:
    """The same floor for variances alone."""
    least = (estimate / count) ** 2
    return np.where(variances < 1e-12 * least, least, variances)


class Draws(Protocol):
    """An (l, d) array of draws that is made piece by piece, as often as somebody needs it, and is always the same."""

    @property
    def count(self) -> int:
        """The number of draws, l."""

    @property
    def prototype(self) -> Array:
        """Any array of the library and device that the draws come from."""

    @property
    def blocks(self) -> Sequence[slice]:
        """The features, in runs that are worked on together."""

    def numbers(self, features: slice) -> int:
        """How many numbers it takes to make one draw of these features."""

    @property
    def total(self) -> int:
        """How many numbers the draws of all features have: also where these are some features of a larger table."""

    def of(self, features: slice | np.ndarray, draws: slice) -> Array:
        """Some draws of some features, the caller's to write into."""

    @property
    def in_memory(self) -> bool:
        """Whether the values behind the draws are in memory."""

    def loaded(self, features: slice | np.ndarray) -> Draws:
        """The draws of these features alone, with the values behind them in memory."""

    def reading(self) -> AbstractContextManager[Any]:
        """Inside, files may stay open from one `loaded` to the next."""

    def worth_sending(self, count: int) -> bool:
        """Whether other machines make so many draws faster than the values get there."""

    def parcels(self, least: int) -> list[Any]:
        """The tables and kernels, some features at a time, at least so many parcels where there are features enough."""

    def emptied(self) -> Draws:
        """All the rest."""

    def filled(self, tables: Any) -> Draws:
        """The draws of the features in a parcel, from all the rest."""


@dataclass(frozen=True)
class Moments:
    """Means of some draws, and sums of squared deviations from them."""

    count: int
    mean: np.ndarray
    squares: np.ndarray

    def plus(self, other: Moments) -> Moments:
        """Those of both sets of draws."""
        count = self.count + other.count
        if not other.count:
            return self
        gap = other.mean - self.mean
        mean = self.mean + gap * (other.count / count)
        return Moments(count, mean, self.squares + other.squares + gap**2 * (self.count * other.count / count))


Work = Callable[[Draws, slice, slice | np.ndarray], Answer]
"""What is done with draws of some features: the draws, the features' places in them, and which they are among all."""


def moments_of(draws: Draws, start: int = 0, stop: int | None = None) -> Moments:
    """Mean and squared deviations of a run of draws, all of them by default, batch by batch."""
    stop = draws.count if stop is None else stop
    return _beside(list(_over_blocks(draws, partial(_block_moments, start=start, stop=stop), stop - start)))


def _block_moments(draws: Draws, features: slice, _: slice | np.ndarray, start: int, stop: int) -> Moments:
    # Deviations are taken from a pilot mean, because squares of the draws would cancel where these vary little.
    some = draws.of(features, slice(start, min(start + _PILOT, stop)))
    pilot = namespace(some).astype(column_sums(some) / some.shape[0], some.dtype, copy=False)
    pieces = _work(draws, features, start, stop)
    found = list(_each(partial(_sums, draws, features, pilot), pieces, draws.prototype))
    off, squares = (np.sum(part, axis=0) for part in zip(*found, strict=True))
    count = stop - start
    return Moments(count, to_numpy(pilot).astype(float) + off / count, np.maximum(squares - off**2 / count, 0.0))


def _beside(parts: Sequence[Moments]) -> Moments:
    """Moments of the same draws of all features, from those of some."""
    return Moments(
        parts[0].count, np.concatenate([part.mean for part in parts]), np.concatenate([part.squares for part in parts])
    )


def _sums(draws: Draws, features: slice, pilot: Array, piece: slice) -> tuple[np.ndarray, np.ndarray]:
    """Sums of deviations from the pilot mean and of their squares."""
    total: Array = 0.0
    squares: Array = 0.0
    for part in _cut(piece.start, piece.stop, _batch(draws, features)):
        values = draws.of(features, part)
        off, square = host_deviations(values, pilot, draws.total) or _deviations(values, pilot)
        total, squares = total + off, squares + square
    return to_numpy(total), to_numpy(squares)


def _deviations(values: Array, centre: Array) -> tuple[Array, Array]:
    """Sums of the deviations of values, which are spent, from a centre, and of their squares, for each column."""
    values -= centre
    off = column_sums(values)
    values *= values
    return off, column_sums(values)


def _batch(draws: Draws, features: slice) -> int:
    return max(1, batch_numbers(draws.prototype) // draws.numbers(features))


def _work(draws: Draws, features: slice, start: int, stop: int) -> Iterator[slice]:
    return _cut(start, stop, _BATCHES * _batch(draws, features))


def _cut(start: int, stop: int, step: int) -> Iterator[slice]:
    for low in range(start, stop, step):
        yield slice(low, min(low + step, stop))


def _each(function: Callable[[Item], Answer], items: Iterable[Item], prototype: Array) -> Iterator[Answer]:
    """On threads where these help; a device keeps its own cores busy."""
    return parallel_map(function, items) if on_host(prototype) else map(function, items)


def _over_blocks(draws: Draws, work: Work[Answer], count: int) -> Iterator[Answer]:
    """`work` of the draws of one run of features after the other; on the workers of a cluster where that pays.

    `work` makes `count` of the draws.
    """
    workers = current_workers()
    if workers is None or not draws.worth_sending(count):
        return (work(own, inside, features) for features, own, inside in _in_memory(draws))
    return _from_afar(draws, work, 2 * workers.threads())


def _from_afar(draws: Draws, work: Work[Answer], least: int) -> Iterator[Answer]:
    parcels = draws.parcels(least)
    done, total = 0, sum(len(parcel.features) for parcel in parcels)
    for parcel, answers in zip(parcels, dask_workers.parallel_map(_Sent(draws.emptied(), work), parcels), strict=True):
        yield from answers
        done += len(parcel.features)
        report_progress("scoring features", done, total)


@dataclass(frozen=True)
class _Sent(Generic[Answer]):
    """`work` of draws that lack only their tables."""

    draws: Draws
    work: Work[Answer]

    def __call__(self, tables: Any) -> list[Answer]:
        draws = self.draws.filled(tables)
        return [self.work(own, inside, tables.features[some]) for some, own, inside in _in_memory(draws)]


def _in_memory(draws: Draws) -> Iterator[tuple[slice, Draws, slice]]:
    """Runs of features, draws that have them in memory, and where they are in those.

    From a file the next run is read while one is worked on.
    """
    if draws.in_memory:
        yield from ((features, draws, features) for features in draws.blocks)
        return

    def load(features: slice) -> tuple[slice, Draws]:
        return features, draws.loaded(features)

    blocks = list(draws.blocks)
    with draws.reading():
        for features, own in prefetch(load, blocks):
            yield features, own, slice(0, features.stop - features.start)
            report_progress("scoring features", features.stop, blocks[-1].stop)


def gathered(draws: Draws, stop: int | None = None) -> np.ndarray:
    """The first draws, all of them by default, as one array."""
    stop = draws.count if stop is None else stop
    out = np.empty((stop, draws.blocks[-1].stop))
    for features, own, inside in _in_memory(draws):
        _fill(out[:, features], own, inside)
    return out


def _fill(out: np.ndarray, draws: Draws, features: slice) -> None:
    """Write the first draws of some features into an array."""

    def fill(piece: slice) -> None:
        for part in _cut(piece.start, piece.stop, _batch(draws, features)):
            out[part] = to_numpy(draws.of(features, part))

    for _ in _each(fill, _work(draws, features, 0, len(out)), draws.prototype):
        pass


@dataclass(frozen=True)
class _Products:
    """Products of the first draws of features with those of chosen ones, all of them centred."""

    first: Moments
    chosen: Array

    def __call__(self, draws: Draws, places: slice, features: slice | np.ndarray) -> np.ndarray:
        pieces = _work(draws, places, 0, self.first.count)
        mean = self.first.mean[features]
        return np.sum(list(_each(partial(self._product, draws, places, mean), pieces, draws.prototype)), axis=0)

    def _product(self, draws: Draws, places: slice, mean: np.ndarray, piece: slice) -> np.ndarray:
        total: Array = 0.0
        for part in _cut(piece.start, piece.stop, _batch(draws, places)):
            values = _centred(draws, places, mean, part)
            total = total + namespace(values).matrix_transpose(values) @ self.chosen[part, :]
        return to_numpy(total)


def _centred(draws: Draws, places: slice | np.ndarray, mean: np.ndarray, piece: slice) -> Array:
    """Some draws of some features, less their means."""
    values = draws.of(places, piece)
    values -= namespace(values).astype(asarray_like(mean, values), values.dtype, copy=False)
    return values


@dataclass(frozen=True)
class DrawCovariance:
    """Covariance of means of many draws: variances from all of them, correlations from the first ones.

    Nothing of size (l, d) is kept: the draws are made again when they are needed.

    Attributes
    ----------
    draws : where they come from.
    first : moments of the first draws, which the correlations come from.
    variances : (d,) the variances of the scores.
    scale : (d,) what a centred draw is multiplied with, so that the squares of the first draws add up to the variance;
        0 for a feature that does not vary together with others.
    room : bytes of draws of chosen features that may be held while a file is read for those of all others.
    """

    draws: Draws
    first: Moments
    variances: np.ndarray
    scale: np.ndarray
    room: int = 0

    def diagonal(self) -> np.ndarray:
        return self.variances.copy()

    def columns(self, features: np.ndarray) -> np.ndarray:
        step = max(1, _MOST // self.first.count)
        if not self.draws.in_memory:
            # Every step reads the whole table.
            step = min(step, max(self.draws.blocks[0].stop, self.room // (8 * self.first.count)))
        parts = [self._columns(features[start : start + step]) for start in range(0, len(features), step)]
        return np.concatenate(parts, axis=1) if parts else np.empty((len(self.variances), 0))

    def _columns(self, features: np.ndarray) -> np.ndarray:
        out = np.zeros((len(self.variances), len(features)))
        if self.draws.in_memory:
            chosen = self._chosen(self.draws, features, features)
        else:
            blocks = np.array_split(features, -(-len(features) // self.draws.blocks[0].stop))
            with self.draws.reading():
                parts = [self._chosen(self.draws.loaded(own), np.arange(len(own)), own) for own in blocks]
            chosen = namespace(parts[0]).concat(parts, axis=1)
        done = 0
        for product in _over_blocks(self.draws, _Products(self.first, chosen), self.first.count):
            out[done : done + len(product)] = product
            done += len(product)
        out *= self.scale[:, None] * self.scale[features]
        out[features, np.arange(len(features))] = self.variances[features]
        return out

    def _chosen(self, draws: Draws, places: np.ndarray, features: np.ndarray) -> Array:
        """The centred first draws of some features, which have other places among those that are there."""
        step = max(1, batch_numbers(draws.prototype) // max(len(features), 1))
        parts = [_centred(draws, places, self.first.mean[features], part) for part in _cut(0, self.first.count, step)]
        return namespace(parts[0]).concat(parts, axis=0)

    @cached_property
    def _factor(self) -> np.ndarray:
        """The centred and scaled first draws, and a row for each feature with a variance of its own."""
        factor = gathered(self.draws, self.first.count)
        factor -= self.first.mean
        factor *= self.scale
        alone = np.flatnonzero((self.scale == 0) & (self.variances > 0))
        extra = np.zeros((len(alone), factor.shape[1]))
        extra[np.arange(len(alone)), alone] = np.sqrt(self.variances[alone])
        return np.vstack([factor, extra]) if len(alone) else factor

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        count = self.first.count
        if count * len(self.variances) <= _MOST:
            return FactorCovariance(self._factor).sample(size, rng)
        normal = rng.standard_normal((size, count))
        out = rng.standard_normal((size, len(self.variances)))
        out *= np.where(self.scale == 0, np.sqrt(self.variances), 0.0)
        for block, own, places in _in_memory(self.draws):
            for piece in _work(own, places, 0, count):
                values = to_numpy(_centred(own, places, self.first.mean[block], piece)) * self.scale[block]
                out[:, block] += normal[:, piece] @ values
        return out


def scores_from_batches(
    names: Sequence[str],
    draws: Draws,
    *,
    variance_factor: float | None = None,
    resample: Callable[[float, np.random.Generator], np.ndarray] | None = None,
    keep: int = 0,
) -> Scores:
    """`scores_from_draws` of draws that are made batch by batch, on their device, and never held all at once.

    Few draws are kept, so that they need not be made again for the correlations. Where making them takes another look
    at a file, those that the correlations are learned from are kept, if `keep` bytes hold them.
    """
    d = len(names)
    if draws.count * d <= _KEPT:
        return scores_from_draws(names, gathered(draws), variance_factor=variance_factor, resample=resample)
    count = draws.count
    kept = not draws.in_memory and 8 * min(count, LEARNING) * d <= keep
    moments = list(_over_blocks(draws, partial(_learn, keep=kept), count))
    first, every = _beside([one.first for one in moments]), _beside([one.every for one in moments])
    if kept:
        draws = Remembered(np.concatenate([one.draws for one in moments if one.draws is not None], axis=1))
    factor = 1.0 / count if variance_factor is None else variance_factor
    variances = every.squares * (factor / max(count - 1, 1))
    floored = supported_variances(variances, every.mean, count)
    alone = (floored > variances) | (first.squares == 0)
    variances = floored
    scale = np.where(alone, 0.0, np.sqrt(variances / np.where(alone, 1.0, first.squares)))
    cov = DrawCovariance(draws, first, variances, scale, keep)
    return Scores(tuple(names), every.mean, cov, draws=float(count), resample=resample)


class _Learnt(NamedTuple):
    """Moments of the first draws and of all, and the first draws themselves where they are wanted."""

    first: Moments
    every: Moments
    draws: np.ndarray | None


def _learn(draws: Draws, features: slice, among: slice | np.ndarray, keep: bool) -> _Learnt:
    count = min(draws.count, LEARNING)
    first = _block_moments(draws, features, among, 0, count)
    every = first
    if draws.count > count:
        every = first.plus(_block_moments(draws, features, among, count, draws.count))
    if not keep:
        return _Learnt(first, every, None)
    out = np.empty((count, features.stop - features.start))
    _fill(out, draws, features)
    return _Learnt(first, every, out)


@dataclass(frozen=True)
class Remembered:
    """Draws that are there as an array."""

    values: np.ndarray
    in_memory = True

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def prototype(self) -> Array:
        return self.values

    @property
    def blocks(self) -> Sequence[slice]:
        return [slice(0, self.values.shape[1])]

    def numbers(self, features: slice) -> int:
        return int(features.stop - features.start)

    @property
    def total(self) -> int:
        return int(self.values.size)

    def of(self, features: slice | np.ndarray, draws: slice) -> Array:
        return np.array(self.values[draws, features])

    def loaded(self, features: slice | np.ndarray) -> Remembered:
        return Remembered(self.values[:, features])

    def reading(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def worth_sending(self, count: int) -> bool:
        return False

    def parcels(self, least: int) -> list[Any]:
        raise NotImplementedError

    def emptied(self) -> Remembered:
        raise NotImplementedError

    def filled(self, tables: Any) -> Remembered:
        raise NotImplementedError


def merge_scores(parts: Sequence[Scores]) -> Scores:
    """Scores of disjoint, independent row chunks as one: means weighted by draws, covariances accordingly.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.estimators.scores import merge_scores, scores_from_draws
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(30, 2)), rng.normal(size=(10, 2))
    >>> merged = merge_scores([scores_from_draws("xy", a), scores_from_draws("xy", b)])
    >>> bool(np.allclose(merged.estimate, np.vstack([a, b]).mean(axis=0)))
    True
    """
    if not parts:
        raise ValueError("parts: at least one Scores is needed, got none.")
    if any(part.names != parts[0].names for part in parts):
        raise ValueError("parts: all chunks must have the same feature names in the same order.")
    counts = []
    for part in parts:
        if part.draws is None:
            raise ValueError("parts: these scores are no average over draws and cannot be merged.")
        counts.append(part.draws)
    weights = tuple(count / sum(counts) for count in counts)
    estimate = np.sum([w * part.estimate for w, part in zip(weights, parts, strict=True)], axis=0)
    return Scores(parts[0].names, estimate, WeightedSum(weights, tuple(p.cov for p in parts)), draws=sum(counts))
