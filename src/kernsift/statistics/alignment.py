"""How the scores of the complete estimator vary together: the alignment of Gram matrices.

The correlation of two null features' T over permutations follows from tr(K_i K_j), which needs the rows of both
features side by side. It is a nuisance parameter, no result, so at most 2^14 rows are asked: its error stays below
0.01 whatever the size of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kernsift.arrays import Array, beside, dtype_of, lookup, most_at_once, namespace, on_host, to_numpy
from kernsift.factors import View
from kernsift.permutation import moment_matrix
from kernsift.progress import tell
from kernsift.scores import DenseCovariance, FactorCovariance
from kernsift.statistics.responses import Response
from kernsift.tabulation import Tabulation
from kernsift.threads import spread

# Rows behind a correlation.
_ROWS = 2**14
# The diagonals of Gram matrices add to a covariance what one row is among all: with more rows than this, nothing.
_FEW_ROWS = 256
# Rows of the sketch that stands for the correlation matrix when samples are drawn (the multiscale test).
_SKETCH = 2000
# Numbers in one temporary array: 2^21 doubles are 16 MB.
_NUMBERS = 2**21
# Directions of a factor with less than this share of tr(K^2) do not count in correlations.
_FAINT = 1e-2


def rows_to_align(n: int, rng: np.random.Generator) -> np.ndarray | None:
    """The rows that correlations are learned from; None for all of them."""
    return None if n <= _ROWS else np.sort(rng.choice(n, _ROWS, replace=False))


class Voice(NamedTuple):
    """The winning factors of features that share a look, cut to the directions that count, and what the rows look up.

    Attributes
    ----------
    features : (b,) which features.
    factor : (b, q, G) their factors on their points, in the precision of the table.
    codes : (b, rows) the point of each row that is asked; None where the points are those rows.
    sizes : (b, q) squared lengths of the directions over those rows; None if only some of all rows are asked.
    """

    features: np.ndarray
    factor: Array
    codes: Array | None
    sizes: Array | None

    @classmethod
    def of(
        cls,
        features: np.ndarray,
        chosen: np.ndarray,
        known: Tabulation,
        view: View,
        rows: np.ndarray | None,
        dtype: Any,
    ) -> Voice:
        """The `chosen` ones of a block of features."""
        xp = namespace(view.factor)
        squares = to_numpy(view.sizes)[chosen] ** 2
        # What is left behind each direction, the largest first.
        behind = squares[:, ::-1].cumsum(axis=1)[:, ::-1] > _FAINT * squares.sum(axis=1, keepdims=True)
        count = max(int(behind.sum(axis=1).max(initial=1)), 1)
        which = beside(chosen, view.factor)
        # Each feature has its own: which others are in the block must not matter.
        own = xp.astype(beside(behind[:, :count], view.factor), dtype)
        factor = xp.astype(xp.take(view.factor[:, :count, :], which, axis=0), dtype) * own[:, :, None]
        sizes = xp.astype(xp.take(view.sizes[:, :count], which, axis=0), dtype) * own if rows is None else None
        if known.codes is None:
            if rows is not None:
                factor = xp.take(factor, beside(rows, factor), axis=2)
            return cls(features[chosen], factor, None, sizes)
        codes = xp.take(known.codes, which, axis=0)
        if rows is not None and codes.shape[1] != len(rows):
            codes = xp.take(codes, beside(rows, codes), axis=1)
        return cls(features[chosen], factor, codes, sizes)

    def rows(self, chosen: slice | np.ndarray) -> _Rows:
        """Some of the features, row by row."""
        xp = namespace(self.factor)
        which = beside(np.arange(len(self.features))[chosen], self.factor)
        factor = xp.take(self.factor, which, axis=0)
        if self.codes is not None:
            factor = lookup(factor, xp.take(self.codes, which, axis=0))
        if self.sizes is not None:
            sizes = xp.take(self.sizes, which, axis=0)
            return _Rows(factor, xp.sum(sizes, axis=1), xp.sum(sizes * sizes, axis=1))
        factor = factor - xp.mean(factor, axis=2, keepdims=True)
        gram = factor @ xp.matrix_transpose(factor)
        return _Rows(factor, xp.linalg.trace(gram), xp.sum(gram * gram, axis=(1, 2)))


class _Rows(NamedTuple):
    """Factors (b, q, rows) row by row, the traces of the Gram matrices K and of their squares."""

    factor: Array
    trace: Array
    square: Array

    def rest(self) -> Array:
        """(b, rows) diagonals of the Gram matrices, their trace taken out."""
        xp = namespace(self.factor)
        return xp.sum(self.factor * self.factor, axis=1) - self.trace[:, None] / self.factor.shape[2]


def _filled(factor: Array, directions: int) -> Array:
    xp, (b, q, rows) = namespace(factor), factor.shape
    if q == directions:
        return factor
    return xp.concat([factor, xp.zeros((b, directions - q, rows), dtype=factor.dtype, device=factor.device)], axis=1)


@dataclass(frozen=True)
class AlignmentCovariance:
    """Correlation of the scores over permutations of the rows; 0 on the diagonal for features that cannot vary."""

    voices: tuple[Voice, ...]
    response: Response
    varies: np.ndarray

    def diagonal(self) -> np.ndarray:
        return self.varies.astype(float)

    def columns(self, features: np.ndarray) -> np.ndarray:
        out = np.zeros((len(self.varies), len(features)))
        chosen, done = self._chosen(features), 0
        pieces = [(voice, start, step) for voice in self.voices for start, step in self._cut(voice, chosen)]

        def correlate(piece: tuple[Voice, int, int]) -> tuple[np.ndarray, np.ndarray]:
            voice, start, step = piece
            part = slice(start, start + step)
            return voice.features[part], self._correlation(voice.rows(part), chosen)

        for named, correlations in spread(correlate, pieces, most_at_once(chosen.factor)):
            out[named] = correlations
            done += len(named)
            tell("correlating features", done, len(self.varies))
        out *= np.outer(self.varies, self.varies[features])
        out[features, np.arange(len(features))] = self.varies[features]
        return out

    def _chosen(self, features: np.ndarray) -> _Rows:
        """The named features side by side, in their order, directions filled up with zeros."""
        parts, places = [], []
        for voice in self.voices:
            here = np.flatnonzero(np.isin(voice.features, features))
            if len(here):
                parts.append(voice.rows(here))
                places.append(voice.features[here])
        found = np.concatenate(places)
        xp, most = namespace(parts[0].factor), max(part.factor.shape[1] for part in parts)
        order = beside(np.argsort(found)[np.searchsorted(np.sort(found), features)], parts[0].factor)
        return _Rows(
            xp.take(xp.concat([_filled(part.factor, most) for part in parts], axis=0), order, axis=0),
            xp.take(xp.concat([part.trace for part in parts]), order),
            xp.take(xp.concat([part.square for part in parts]), order),
        )

    def _cut(self, voice: Voice, chosen: _Rows) -> list[tuple[int, int]]:
        k, q, rows = chosen.factor.shape
        numbers = _NUMBERS if on_host(chosen.factor) else 128 * _NUMBERS
        step = max(1, numbers // (voice.factor.shape[1] * max(rows, k * q)))
        return [(start, step) for start in range(0, len(voice.features), step)]

    def _correlation(self, one: _Rows, other: _Rows) -> np.ndarray:
        xp = namespace(one.factor)
        (b, q, rows), (k, p, _) = one.factor.shape, other.factor.shape
        inner = xp.reshape(one.factor, (b * q, rows)) @ xp.matrix_transpose(xp.reshape(other.factor, (k * p, rows)))
        inner *= inner
        products = xp.sum(xp.sum(xp.reshape(inner, (b, q, k, p)), axis=3), axis=1)
        covariance = products - one.trace[:, None] * other.trace[None, :] / (rows - 1)
        own = [part.square - part.trace**2 / (rows - 1) for part in (one, other)]
        if rows <= _FEW_ROWS:
            share = self._diagonal_share(rows)
            rests = [part.rest() for part in (one, other)]
            covariance += share * (rests[0] @ xp.matrix_transpose(rests[1]))
            own = [part + share * xp.sum(rest * rest, axis=1) for part, rest in zip(own, rests, strict=True)]
        scale = own[0][:, None] * own[1][None, :]
        positive = scale > 0
        correlation = xp.where(positive, covariance / xp.sqrt(xp.where(positive, scale, 1.0)), 0.0)
        return to_numpy(xp.clip(correlation, -1.0, 1.0))

    def _diagonal_share(self, rows: int) -> float:
        """What the diagonals count in the covariance of T_i and T_j, next to tr(K_i K_j)."""
        main, diagonal = moment_matrix(2, rows) @ self.response.own.second
        return float(diagonal / main)

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Normal draws from the correlation matrix, or for many features from a random sketch of it, never larger.

        With a, b normal vectors, a'K_i b has covariance tr(K_i K_j) over features.
        """
        d = len(self.varies)
        if d <= _SKETCH:
            return DenseCovariance(self.columns(np.arange(d))).sample(size, rng)
        sketch = np.empty((_SKETCH, d))
        beginning = self.voices[0].rows(slice(0, 1)).factor
        rows = beginning.shape[2]
        noise = rng.standard_normal((2, rows, _SKETCH)).astype(dtype_of(beginning))
        first, second = (beside(part, beginning) for part in noise)
        for voice in self.voices:
            step = max(1, _NUMBERS // (voice.factor.shape[1] * max(_SKETCH, rows)))
            for start in range(0, len(voice.features), step):
                part = slice(start, start + step)
                factor = voice.rows(part).factor
                products = namespace(factor).sum((factor @ first) * (factor @ second), axis=1)
                sketch[:, voice.features[part]] = to_numpy(products).T
        norm = np.sqrt((sketch**2).sum(axis=0))
        sketch *= np.divide(self.varies, norm, out=np.zeros(d), where=norm > 0)
        return FactorCovariance(sketch).sample(size, rng)
