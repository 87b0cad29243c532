"""Families of alternatives, and the moments of T along them.

**Family.** P_t(x | y) is proportional to p(x) exp(t e(x, y)) on the values of the rows, and y keeps its law q. At t = 0
the feature and the response are independent. e is the influence function of the effect up to a factor,

    e(x, y) = f(x)' C g(y) - |C|^2 / 2 (f(x)' S_x f(x) / D_x + g(y)' S_y g(y) / D_y),

at the observed C: the direction in which the effect grows fastest for a given change of the law. It includes the margin
of x, because rare values occur in few rows. It is Efron's (1981) least favourable family, started at independence; the
effect grows from 0 to 1 along it. For two samples the numbers of rows are fixed, and rows of one sample vary around
their own mean; the term of y is then a constant.

**Law of T at t.** The mean over n rows of P_t is nearly normal, with mean C_t and covariance S_t / n, so that T has the
cumulants tr(S)/n + |C|^2, 2 tr(S^2)/n^2 + 4 C'SC/n and 8 tr(S^3)/n^3 + 24 C'S^2C/n^2. The terms without C are those of
the exact permutation moments at t = 0, in proportion to the powers of tr(S). The terms with C include the noise of the
denominator through the influence function. A power of T is then nearly normal (Jensen and Solomon 1972).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from kernsift.estimators.effects.family_laws import FamilyMoments, NullMoments, map_arrays, take_features
from kernsift.estimators.effects.intervals import EffectLaws, Unseen, concatenated
from kernsift.execution.arrays import slices

# Members of a family whose moments are computed, in standard deviations of the influence function under independence,
# and how many members are interpolated from one to the next.
_TILTS = np.concatenate([[0.0], np.geomspace(0.04, 20.0, 17)])
_BETWEEN = 20
# A family may nearly exclude a rare value. With weights that underflow, the feature would be constant and have no law.
_LEAST_EXPONENT = -60.0
# Elements of one array (feature, value, response) of a family.
_NUMBERS = 2**17
# From this score on the sign of the cross-covariance is known, and one family is enough.
_SIGN_KNOWN = 3.0
# With a response of many cells the opposite sign matters for few rows: in simulations with 16 to 30 rows it raises
# upper ends by up to 0.36 (rare values), with 200 rows by less than 0.03 and on average by 0.001.
_FEW_ROWS = 128


def effect_laws(
    factor: np.ndarray,
    response_factor: np.ndarray,
    joint: np.ndarray,
    null: NullMoments,
    score: np.ndarray,
    penalty: np.ndarray,
    *,
    samples: bool,
    extremes: tuple[np.ndarray, float] | None = None,
) -> EffectLaws:
    """The laws of the statistics of b features along their families of alternatives.

    `factor` (b, m, G) are factors of the features on their points, centred over the rows, `response_factor` (p, J) is
    that of the response on its cells, and `joint` (b, G, J) are the rows at each point and cell, scaled up to all rows
    where they represent a subset. Then `extremes` are the largest squared norms of both factors over all rows. `score`
    and `penalty` (b,) are normal scores of T and their corrections for testing several kernels (see `penalties`), and
    `samples` tells whether the response is the label of samples whose sizes are fixed.
    """
    step = max(1, _NUMBERS // (joint.shape[1] * max(joint.shape[2], factor.shape[1])))
    parts = []
    for part in slices(0, len(factor), step):
        alternatives = _Alternatives(factor[part], response_factor, joint[part], take_features(null, part), samples)
        far = extremes and (extremes[0][part], extremes[1])
        parts.append(alternatives.laws(score[part], penalty[part], far))
    return concatenated(parts)


class _Moments(NamedTuple):
    """Moments of a joint law that the law of R depends on, (b,) each; see the formulas in the module docstring."""

    dependence: np.ndarray  # |C|^2
    whole: np.ndarray  # sqrt(D_x D_y)
    unbiased: np.ndarray  # the same, each D without what chance adds to it
    adjusted: np.ndarray  # the same, each D less what chance adds to T if x = y under independence
    trace: np.ndarray  # tr S
    linear: np.ndarray  # variance of the influence function
    third: np.ndarray  # its third central moment


class _Pieces(NamedTuple):
    """Margins of a joint law, factors centred under it, and their covariances."""

    rows: np.ndarray
    columns: np.ndarray
    f: np.ndarray
    g: np.ndarray
    cross: np.ndarray
    own: np.ndarray
    target: np.ndarray

    def witness(self) -> np.ndarray:
        """(b, G, J) f' C g."""
        return _transposed(self.f) @ (self.cross @ self.g)

    def margins(self, samples: bool) -> np.ndarray:
        """The influence of the denominator, times |C|^2; that of given samples is a constant."""
        half = 0.5 * (self.cross**2).sum(axis=(1, 2))
        size_x, size_y = ((part**2).sum(axis=(1, 2)) for part in (self.own, self.target))
        of_x = _ratio(half, size_x)[:, None] * (self.f * (self.own @ self.f)).sum(axis=1)
        if samples:
            return of_x[:, :, None]
        of_y = _ratio(half, size_y)[:, None] * (self.g * (self.target @ self.g)).sum(axis=1)
        return of_x[:, :, None] + of_y[:, None, :]


@dataclass(frozen=True)
class _Alternatives:
    """Families of alternatives of some features: joint laws on their points, and the moments of these."""

    factor: np.ndarray
    response: np.ndarray
    joint: np.ndarray
    null: NullMoments
    samples: bool

    @property
    def n(self) -> int:
        return round(float(self.joint[0].sum()))

    def laws(self, score: np.ndarray, penalty: np.ndarray, far: tuple[np.ndarray, float] | None) -> EffectLaws:
        n = self.n
        shares, points = self.joint[0].sum(axis=0) / n, self.joint.sum(axis=2) / n
        base = points[:, :, None] * shares
        start = self.moments(base)
        same = self.family(base, self.direction(base, 1.0), start)
        unsure = np.flatnonzero((score < _SIGN_KNOWN) & ((len(shares) == 2) | (n <= _FEW_ROWS)))
        opposite = same
        if len(unsure):
            some = self.take(unsure)
            turned = some.direction(base[unsure], -1.0)
            found = some.family(base[unsure], turned, take_features(start, unsure))
            opposite = map_arrays(np.copy, same)
            for into, part in zip(opposite, found, strict=True):
                into[unsure] = part
        scale = np.where(start.whole > 0, start.whole, 1.0)
        statistic = self.null.statistic / n**2 / scale
        whole = _ratio(start.whole, start.adjusted)
        point = np.sqrt(np.clip((statistic - self.null.mean / n**2 / scale) * whole, 0.0, 1.0))
        return EffectLaws(point, statistic, score, penalty, (same, opposite), self.unseen(points, shares, far), whole)

    def take(self, features: np.ndarray) -> _Alternatives:
        factor, joint, null = take_features((self.factor, self.joint, self.null), features)
        return replace(self, factor=factor, joint=joint, null=null)

    def direction(self, base: np.ndarray, sign: float) -> np.ndarray:
        """The influence function at the rows, or that for -C, with variance 1 under independence.

        Where C is 0 it is that of the leading directions of both factors.
        """
        pieces = self.pieces(self.joint / self.n)
        found = sign * pieces.witness() - pieces.margins(self.samples)
        lead = self.factor[:, 0, :, None] * self.response[0] * sign
        none = _variance(base, found) <= 1e-20 * _variance(base, lead) ** 2
        found = np.where(none[:, None, None], lead, found)
        spread = np.sqrt(_variance(base, found))
        found = found / np.where(spread > 0, spread, 1.0)[:, None, None]
        # Exponents are at most 0, and the largest of a cell is 0; points without rows have no weight.
        found = np.where(base > 0, found, -np.inf)
        return np.where(base > 0, found - found.max(axis=1, keepdims=True), 0.0)

    def family(self, base: np.ndarray, direction: np.ndarray, start: _Moments) -> FamilyMoments:
        """The laws along exp(t direction), from those at a few t."""
        at_once = max(1, _NUMBERS // base.size)
        parts = []
        for tilts in np.split(_TILTS, range(at_once, len(_TILTS), at_once)):
            features = np.tile(np.arange(len(base)), len(tilts))
            exponents = np.maximum(tilts[:, None, None, None] * direction, _LEAST_EXPONENT)
            weights = (base * np.exp(exponents)).reshape(-1, *base.shape[1:])
            weights *= (_column_sums(base)[features] / _column_sums(weights))[:, None, :]
            parts.append(
                np.array(self.take(features).law(weights, take_features(start, features))).reshape(5, len(tilts), -1)
            )
        coarse = np.swapaxes(np.concatenate(parts, axis=1), 0, 1)  # (t, 5, b)
        places = np.arange(len(_TILTS), dtype=float)
        fine = np.linspace(0.0, places[-1], (len(_TILTS) - 1) * _BETWEEN + 1)
        from scipy.interpolate import PchipInterpolator  # takes a third of a second to import

        return FamilyMoments(*np.moveaxis(PchipInterpolator(places, coarse)(fine), 0, 2))

    def law(self, joint: np.ndarray, start: _Moments) -> tuple[np.ndarray, ...]:
        """Effect, mean, deviation, skewness and asymmetry of R."""
        n, found = self.n, self.moments(joint)
        varies = start.trace > 0
        growth = np.divide(found.trace, start.trace, out=np.ones(len(joint)), where=varies)
        # The mean of products around estimated means is biased by a factor of 1 - 1/n; sample means are not products.
        kept = 1.0 if self.samples else (1.0 - 1.0 / n) ** 2
        mean = kept * found.dependence + growth * self.null.mean / n**2
        # A statistic that is constant over permutations gets a law that is nearly a point mass.
        sd = np.maximum(self.null.sd, 1e-3 * self.null.mean) / n**2 * growth
        # The spread of n rows around their own mean is too small by a factor of 1 - 1/n.
        linear = 4.0 * found.linear / (n - 1)
        variance = sd**2 + linear
        third = np.where(self.null.sd > 1e-6 * self.null.mean, self.null.skewness, 0.0) * sd**3
        # C' S^2 C as if the rows varied along C alone.
        third = third + 24.0 * _ratio(found.linear**2, found.dependence) / n**2
        root = np.maximum(np.sqrt(variance), 1e-6 * np.where(varies, mean, 1.0))
        scale = np.where(found.whole > 0, found.whole, 1.0)
        effect = np.sqrt(np.clip(_ratio(found.dependence, found.unbiased), 0.0, 1.0))
        mean = np.where(varies, mean, 1.0)
        return effect, mean / scale, root / scale, third / root**3, 8.0 * found.third / n**2 / root**3

    def pieces(self, joint: np.ndarray) -> _Pieces:
        rows, columns = _row_sums(joint), _column_sums(joint)
        f = self.factor - self.factor @ rows[:, :, None]
        g = self.response[None] - self.response[None] @ columns[:, :, None]
        own = (f * rows[:, None, :]) @ _transposed(f)
        target = (g * columns[:, None, :]) @ _transposed(g)
        return _Pieces(rows, columns, f, g, f @ joint @ _transposed(g), own, target)

    def moments(self, joint: np.ndarray) -> _Moments:
        n, pieces = self.n, self.pieces(joint)
        rows, columns, f, g, *rest = pieces
        dependence, size_x, size_y = ((part**2).sum(axis=(1, 2)) for part in rest)
        diagonal, diagonal_y = (f * f).sum(axis=1), (g * g).sum(axis=1)
        trace = (diagonal * (joint @ diagonal_y[:, :, None])[:, :, 0]).sum(axis=1)
        influence = pieces.witness() - pieces.margins(self.samples)
        weighted = joint * influence
        if self.samples:
            trace = trace - (diagonal_y * _ratio(((f @ joint) ** 2).sum(axis=1), columns)).sum(axis=1)
            influence -= _ratio(_column_sums(weighted), columns)[:, None, :]
        else:
            trace = trace - dependence
            influence -= weighted.sum(axis=(1, 2))[:, None, None]
        np.multiply(joint, influence, out=weighted)
        linear = np.einsum("bij,bij->b", weighted, influence)
        weighted *= influence
        third = np.einsum("bij,bij->b", weighted, influence)
        unbiased = _without_chance(n, size_x, diagonal, rows)
        unbiased = unbiased * (size_y if self.samples else _without_chance(n, size_y, diagonal_y, columns))
        adjusted = (size_x - (rows * diagonal).sum(axis=1) ** 2 / (n - 1)) * (
            size_y - (columns * diagonal_y).sum(axis=1) ** 2 / (n - 1)
        )
        adjusted = np.maximum(adjusted, 0.01 * size_x * size_y)
        return _Moments(
            dependence, np.sqrt(size_x * size_y), np.sqrt(unbiased), np.sqrt(adjusted), trace, linear, third
        )

    def unseen(self, points: np.ndarray, shares: np.ndarray, far: tuple[np.ndarray, float] | None) -> Unseen:
        b, n = len(points), self.n
        own = (self.factor * points[:, None, :]) @ _transposed(self.factor)
        size = np.sqrt((own**2).sum(axis=(1, 2)))
        # The scale of a constant feature is arbitrary.
        distance = np.where(points > 0, (self.factor**2).sum(axis=1), 0.0)
        largest, target = far or (distance.max(axis=1), (self.response**2).sum(axis=0).max())
        extreme = np.where(size > 0, largest, 1.0)
        if self.samples:
            zero = np.zeros(b)
            return Unseen(np.tile(shares * n, (b, 1)), np.tile(shares, (b, 1)), extreme, size, zero, zero)
        spread = np.sqrt((((self.response * shares) @ self.response.T) ** 2).sum())
        return Unseen(np.full((b, 1), float(n)), np.ones((b, 1)), extreme, size, np.full(b, target), np.full(b, spread))


def _without_chance(n: int, size: np.ndarray, diagonal: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """tr(S^2) of a factor without its bias: the U-statistic over distinct rows, from the V-statistic.

    With few rows pairs of a row with itself dominate the V-statistic. The result is clipped to at least a tenth of it,
    as the U-statistic can be negative, and to at most all of it, so that an effect of 1 is preserved.
    """
    if n < 4:
        return size
    first, second = (weights * diagonal).sum(axis=1), (weights * diagonal**2).sum(axis=1)
    found = n * size - second * n / (n - 2) + n * first**2 / ((n - 1) * (n - 2))
    return np.clip(found / (n - 3), 0.1 * size, size)


def _variance(joint: np.ndarray, values: np.ndarray) -> np.ndarray:
    mean = (joint * values).sum(axis=(1, 2))
    return np.maximum((joint * (values - mean[:, None, None]) ** 2).sum(axis=(1, 2)), 0.0)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.zeros(above.shape), where=below > 0)


def _row_sums(joint: np.ndarray) -> np.ndarray:
    """Sums over the last axis; products with ones are faster where that axis is short."""
    return joint @ np.ones(joint.shape[2])


def _column_sums(joint: np.ndarray) -> np.ndarray:
    return np.ones(joint.shape[1]) @ joint


def _transposed(values: np.ndarray) -> np.ndarray:
    return np.swapaxes(values, -1, -2)
