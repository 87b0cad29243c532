"""The complete estimator: all rows meet all rows, and the null law needs no resampling.

For every feature T = tr(Kc Lc), with Kc and Lc the centred Gram matrices of the feature and of the response; for two
samples the response is the sample label, which makes T the squared MMD of all rows, so one engine serves MMD and HSIC
and unequal sizes come free. T is turned into a normal score through its permutation law (`kernsift.permutation`). The
correlation between the scores of two null features is that of their T over permutations, which for large n is the
alignment of their Gram matrices.

**Adaptive bandwidth.** One bandwidth misses shapes, so each feature is looked at twice (`kernsift.factors.lenses`). The
larger of the two scores is turned back into one normal score with their bivariate normal law, the correlation again
that over permutations; the kernel that won speaks for the feature from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from kernsift import threads
from kernsift.arrays import Array, beside, namespace, to_numpy
from kernsift.blocks import Block, blocks_of
from kernsift.cluster import spread
from kernsift.factors import GROUP_ROWS, Lens, View, lenses
from kernsift.grids import Grid, blocks_at_once, fit_grid, parts_of, rows_to_sort
from kernsift.kernels import FeatureKernels
from kernsift.permutation import (
    Invariants,
    gamma_score,
    invariants,
    larger_score,
    limit_weights,
    moment_matrix,
    moments,
    score_of,
    spectral_score,
    value_of,
)
from kernsift.progress import tell
from kernsift.scores import EffectSizes, Scores
from kernsift.statistics.alignment import AlignmentCovariance, Voice, rows_to_align
from kernsift.statistics.responses import Meeting, Response, label_response, table_response
from kernsift.tables import Table, stack
from kernsift.tabulation import Tabulation, joined, tabulate

# The spread of a score is estimated; dependence that sits in one direction can make it smaller than 1, but not vanish.
_LEAST_SPREAD = 0.5


def complete_mmd(
    X: Table, Y: Table, kernels: FeatureKernels, *, adaptive: bool = False, rng: np.random.Generator
) -> Scores:
    """Normal scores of the MMD between the samples, from all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.kernels import fit_kernels
    >>> from kernsift.tables import as_table
    >>> rng = np.random.default_rng(0)
    >>> X, Y = as_table(rng.normal(size=(200, 3))), as_table(rng.normal([0, 1, 0], 1, size=(200, 3)))
    >>> scores = complete_mmd(X, Y, fit_kernels(X, rng=rng), rng=rng)
    >>> int(scores.estimate.argmax())
    1
    """
    table = stack([X, Y])
    return _complete(table, label_response(X.n, Y.n, table.like), kernels, adaptive, rng)


def complete_hsic(
    X: Table,
    y: Table,
    kernels: FeatureKernels,
    response_kernels: FeatureKernels,
    *,
    adaptive: bool = False,
    rng: np.random.Generator,
) -> Scores:
    """Normal scores of the HSIC with the response, from all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from kernsift.kernels import fit_kernels
    >>> from kernsift.tables import as_table
    >>> rng = np.random.default_rng(0)
    >>> X = as_table(rng.normal(size=(300, 3)))
    >>> y = as_table(np.abs(X.values[:, [1]]))
    >>> scores = complete_hsic(X, y, fit_kernels(X, rng=rng), fit_kernels(y, rng=rng), rng=rng)
    >>> int(scores.estimate.argmax())
    1
    """
    return _complete(X, table_response(y, response_kernels, rng), kernels, adaptive, rng)


class Laws(NamedTuple):
    """T of some features and what is known of its law.

    `size` is tr(K^2); `influence` the variance of T that the rows' influence 2 f' C g amounts to, C = F G' the
    cross-covariance, which is what T varies by when there is dependence.
    """

    statistic: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    skewness: np.ndarray
    size: np.ndarray
    influence: np.ndarray

    @property
    def standardised(self) -> np.ndarray:
        varies = self.sd > 0
        return np.where(varies, (self.statistic - self.mean) / np.where(varies, self.sd, 1.0), 0.0)


class Look(NamedTuple):
    """One kernel's view of some features: `rest` is the diagonal of its Gram matrices, their trace taken out."""

    view: View
    own: Invariants
    rest: Array
    laws: Laws


def look_at(view: View, counts: Array, meeting: Meeting) -> Look:
    """T of features seen through one lens, and its law."""
    response = meeting.response
    xp, n = namespace(view.factor), response.n
    own, rest = invariants(view, counts, n)
    cross = view.factor @ meeting.sums
    mean, sd, skewness = moments(n, own, response.own)
    # A spread that is rounding error beside the mean is none: constant features, and those without equal rows under a
    # kernel that only knows equality. It is the root of a difference, so that its error is the root of rounding.
    sd = np.where(sd > 1e-6 * mean, sd, 0.0)
    influence = 4.0 * n * to_numpy(meeting.variance(xp.matrix_transpose(view.factor) @ cross))
    statistic = to_numpy(xp.sum(cross**2, axis=(1, 2)))
    laws = Laws(statistic, mean, sd, skewness, own.second[:, 0] + own.trace**2 / (n - 1), influence)
    return Look(view, own, rest, laws)


def scores_of(looks: Sequence[Look], response: Response) -> list[np.ndarray]:
    """Normal scores of T, look by look."""
    weights, counts = [], []
    for look in looks:
        # The eigenvalues; any will do where nothing varies.
        sizes = np.where((look.laws.sd > 0)[:, None], to_numpy(look.view.sizes), 1.0)
        weight, count = limit_weights(sizes, response.sizes)
        weights.append(weight)
        counts.append(count)
    score = spectral_score(
        np.concatenate([look.laws.standardised for look in looks]),
        np.concatenate([look.laws.skewness for look in looks]),
        np.concatenate(weights),
        np.concatenate(counts),
    )
    parts = np.split(score, len(looks))
    return [np.where(look.laws.sd > 0, part, 0.0) for look, part in zip(looks, parts, strict=True)]


def best_of(looks: Sequence[Look], counts: Array, response: Response) -> tuple[np.ndarray, np.ndarray]:
    """One score from one or two looks at each feature, and which of them it comes from (0 wide, 1 narrow)."""
    scores = scores_of(looks, response)
    if len(looks) == 1:
        return scores[0], np.zeros(len(scores[0]), dtype=int)
    wide, narrow = looks
    xp = namespace(counts)
    between = (wide.view.factor * counts[:, None, :]) @ xp.matrix_transpose(narrow.view.factor)
    cross = to_numpy(xp.sum(between**2, axis=(1, 2)))
    shared = to_numpy(xp.sum(counts * wide.rest * narrow.rest, axis=1))
    weight = moment_matrix(2, response.n) @ response.own.second
    covariance = (cross - wide.own.trace * narrow.own.trace / (response.n - 1)) * weight[0] + shared * weight[1]
    varies = (wide.laws.sd > 0) & (narrow.laws.sd > 0)
    scale = np.where(varies, wide.laws.sd * narrow.laws.sd, 1.0)
    correlation = np.clip(np.where(varies, covariance / scale, 1.0), -1.0, 1.0)
    score = larger_score(scores[0], scores[1], correlation)
    # A feature with two values, say, has one centred kernel up to a factor: there was nothing to choose between.
    score = np.where(correlation > 1.0 - 1e-9, np.maximum(scores[0], scores[1]), score)
    return score, (scores[1] > scores[0]).astype(int)


class _Measured(NamedTuple):
    """All that is kept of a block of features."""

    features: np.ndarray
    score: np.ndarray
    laws: np.ndarray
    voices: list[Voice]


@dataclass(frozen=True)
class Measuring:
    """How blocks of features are measured; all that they share, but for the cells of the response's rows."""

    response: Response
    adaptive: bool
    to_align: np.ndarray | None
    landmarks: np.ndarray
    dtype: Any

    def __call__(self, block: Block) -> list[_Measured]:
        grid = self.begin(block)
        return self.finish(block, grid, [self.count(block, grid)])

    def begin(self, block: Block) -> Grid:
        """The points of the features."""
        return fit_grid(block.table, block.own, block.to_sort, rounded=block.kernels.rounds)

    def count(self, block: Block, grid: Grid) -> Tabulation:
        """What the rows of the block amount to."""
        # Without cells every row's code is needed, to look up the response's own row.
        kept = block.within(self.to_align) if block.cells is not None else None
        return tabulate(block.table, block.own, grid, block.cells, self.response.factor.shape[1], kept)

    def finish(self, block: Block, grid: Grid, counted: Sequence[Tabulation]) -> list[_Measured]:
        """The features measured, from what all rows amount to."""
        known, looks = joined(counted), lenses(block.kernels, self.adaptive)
        response = self.response._replace(cells=block.cells)

        def measure(part: slice) -> _Measured:
            places = block.features[part], block.own[part]
            shared = (looks, response, self.landmarks, self.to_align, self.dtype)
            return _measure(grid.part(part), known.part(part), places, *shared)

        rows, memory = (0, None) if block.cells is not None or block.table is None else (response.n, block.table.memory)
        # In a thread of its own these are done one after the other; a block from a file has all threads.
        return list(threads.spread(measure, parts_of(block.features, grid.points, rows, memory)))


def _complete(
    table: Table, response: Response, kernels: FeatureKernels, adaptive: bool, rng: np.random.Generator
) -> Scores:
    to_sort, to_align = rows_to_sort(table.n, rng), rows_to_align(table.n, rng)
    landmarks = np.sort(rng.choice(table.n, min(table.n, GROUP_ROWS), replace=False))
    measuring = Measuring(response._replace(cells=None), adaptive, to_align, landmarks, table.like.dtype)
    blocks = blocks_of(table, kernels, response.cells, to_sort, runs=True)
    score, laws = np.zeros(table.d), np.zeros((len(Laws._fields), table.d))
    voices: list[Voice] = []
    done = 0
    for measured in spread(measuring, blocks, blocks_at_once(table)):
        for part in measured:
            score[part.features], laws[:, part.features] = part.score, part.laws
            voices += part.voices
            done += len(part.features)
        tell("scoring features", done, table.d)
    sd = Laws(*laws).sd
    score = np.where(sd > 0, np.minimum(score, response.ceiling), 0.0)

    def effects(features: np.ndarray) -> EffectSizes:
        return effect_sizes(Laws(*laws[:, features]), score[features], response)

    return Scores(table.names, score, AlignmentCovariance(tuple(voices), response, sd > 0), effects=effects)


def _measure(
    grid: Grid,
    known: Tabulation,
    places: tuple[np.ndarray, np.ndarray],
    looks: Sequence[Lens],
    response: Response,
    landmarks: np.ndarray,
    to_align: np.ndarray | None,
    dtype: Any,
) -> _Measured:
    features, own = places
    meeting = Meeting(known, response)
    views = [lens.view(grid, known.counts, own, landmarks) for lens in looks]
    seen = [look_at(view, known.counts, meeting) for view in views]
    score, winner = best_of(seen, known.counts, response)
    score = two_by_two(known, response, score)
    laws = np.choose(winner, [np.array(look.laws) for look in seen])
    voices = [
        Voice.of(features, np.flatnonzero(winner == which), known, look.view, to_align, dtype)
        for which, look in enumerate(seen)
        if (winner == which).any()
    ]
    return _Measured(features, score, laws, voices)


def two_by_two(known: Tabulation, response: Response, score: np.ndarray) -> np.ndarray:
    """Scores of features with two values against a response with two: Fisher's exact tail.

    There T is the squared deviation of one cell of a 2 x 2 table from its mean, whose law has few atoms, and no smooth
    law does it justice. All tables that deviate at least as much count, as in any permutation test.
    """
    if known.joint is None or known.joint.shape[2] != 2 or len(response.sizes) != 1:
        return score
    xp = namespace(known.counts)
    two = np.flatnonzero(to_numpy(xp.sum(xp.astype(known.counts > 0, xp.int64), axis=1)) == 2)
    if len(two) == 0:
        return score
    joint = to_numpy(xp.take(known.joint, beside(two, known.joint), axis=0)).astype(int)
    first = joint.any(axis=2).argmax(axis=1)
    cells = joint[np.arange(len(two)), first]  # the rows of one value, by response
    counts = np.column_stack([cells.sum(axis=1), cells[:, 0]])
    tables, which = np.unique(counts, axis=0, return_inverse=True)
    drawn = int(joint[0, :, 0].sum())
    tails = np.array([_hypergeometric_tail(response.n, drawn, *pair) for pair in tables.tolist()])
    out = score.copy()
    out[two] = score_of(np.minimum(tails, -1e-15))[which.ravel()]
    return out


def _hypergeometric_tail(n: int, drawn: int, marked: int, seen: int) -> float:
    """Log of the chance that the number marked among the drawn deviates from its mean at least as much as `seen`."""
    cells = np.arange(max(0, drawn + marked - n), min(drawn, marked) + 1)
    log_mass = _log_choose(marked, cells) + _log_choose(n - marked, drawn - cells) - _log_choose(n, np.array(drawn))
    mean = drawn * marked / n
    return float(logsumexp(log_mass[np.abs(cells - mean) >= abs(seen - mean) * (1 - 1e-9)]))


def _log_choose(n: int, k: np.ndarray) -> np.ndarray:
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


def effect_sizes(laws: Laws, score: np.ndarray, response: Response) -> EffectSizes:
    """Kernel correlations, corrected for chance: the root of (T - E T) / (sqrt(tr K^2 tr L^2) - E T).

    A score's mean moves with T through the normal score, whose slope turns the spread of T into the score's. Where
    there is no dependence the rows' influence counts the null variance twice, so it is taken off once.
    """
    varies = laws.sd > 0
    sd = np.where(varies, laws.sd, 1.0)
    target = response.own.second[0] + response.own.trace**2 / (response.n - 1)
    whole = np.sqrt(laws.size * target) - laws.mean
    # The Pearson III law is close enough here, and quick to invert; what it differs by at the observed T goes with it.
    offset = gamma_score(laws.standardised, laws.skewness) - score
    step = 1e-3
    rise = gamma_score(laws.standardised + step, laws.skewness) - gamma_score(laws.standardised - step, laws.skewness)
    spread = rise / (2 * step) * np.sqrt(np.maximum(laws.influence - sd**2, 0.0)) / sd
    centre = gamma_score(np.zeros(len(sd)), laws.skewness)

    def size(standardised: np.ndarray) -> np.ndarray:
        share = np.divide(standardised * sd, whole, out=np.zeros(len(sd)), where=varies & (whole > 0))
        return np.sqrt(np.clip(share, 0.0, 1.0))

    def at(means: np.ndarray) -> np.ndarray:
        # The score of the mean of T exceeds the mean score, by `centre` where there is no dependence and by less and
        # less the further away: so a mean score of 0 is an effect of 0.
        part = np.clip(means / np.maximum(score, 1.0), 0.0, 1.0)
        return size(value_of(means + offset * part + centre / (1.0 + 0.5 * means), laws.skewness))

    return EffectSizes(size(laws.standardised), np.where(varies, np.maximum(spread, _LEAST_SPREAD), 0.0), at)
