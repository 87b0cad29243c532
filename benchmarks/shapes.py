"""Shapes of dependence between one feature and a response, for the regret study of docs/power.md.

A shape draws many trials at once. With a numeric response a trial is a column of x and the same column of y; with two
samples it is a column of x, and all trials share the labels: n rows of class 0, then n rows of class 1.

The amplitude of a shape depends on n, so that the problem is neither hopeless nor trivial at any n: the best other test
finds it in about 50 to 90% of the trials. Amplitudes were chosen by the power of the other tests alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

Size = tuple[int, int]
Draw = Callable[[np.random.Generator, Size, float], tuple[np.ndarray, np.ndarray]]
"""Feature and response, or the two samples, given the size (n, trials) and the amplitude."""


class Trials(NamedTuple):
    """Trials of one shape."""

    x: np.ndarray  # (rows, trials), the feature
    y: np.ndarray  # (rows, trials), the response; or (rows,), class labels 0 and 1 that all trials share


@dataclass(frozen=True)
class Shape:
    """A way in which a feature and a response depend on each other."""

    name: str  # the formula or description that the tables show
    question: str  # "numeric" for a numeric response, "samples" for two samples
    sample: Draw
    amplitudes: Mapping[int, float]  # the amplitude for each n
    monotone: bool = False  # whether the response increases with the feature, or one sample is stochastically larger
    # Whether it is one of the shapes with skewed or heavy-tailed columns that the page shows by themselves.
    skewed: bool = False

    def draw(self, rng: np.random.Generator, n: int, trials: int, amplitude: float | None = None) -> Trials:
        """`trials` trials with n rows, or n rows a sample."""
        first, second = self.sample(rng, (n, trials), self.amplitudes[n] if amplitude is None else amplitude)
        if self.question == "numeric":
            return Trials(first, second)
        return Trials(np.vstack([first, second]), np.repeat([0, 1], n))


# --- a numeric response -----------------------------------------------------------------------------------------------


def _of_normal(response: Callable[[np.random.Generator, np.ndarray, float], np.ndarray]) -> Draw:
    """A standard normal feature x, and a response drawn from x and the amplitude."""

    def sample(rng: np.random.Generator, size: Size, amplitude: float) -> tuple[np.ndarray, np.ndarray]:
        x = rng.standard_normal(size)
        return x, response(rng, x, amplitude)

    return sample


def _regression(mean: Callable[[np.ndarray], np.ndarray]) -> Draw:
    """y = amplitude * mean(x) + noise, both standard normal."""
    return _of_normal(lambda rng, x, a: a * mean(x) + rng.standard_normal(x.shape))


def _logarithms(rng: np.random.Generator, size: Size, amplitude: float) -> tuple[np.ndarray, np.ndarray]:
    x = rng.standard_normal(size)
    return np.exp(1.5 * x), np.exp(1.5 * (amplitude * x + rng.standard_normal(size)))


def _mostly_zero(rng: np.random.Generator, size: Size, amplitude: float) -> tuple[np.ndarray, np.ndarray]:
    x = np.where(rng.random(size) < 0.6, 0.0, rng.exponential(size=size))
    return x, amplitude * x + rng.standard_normal(size)


def _circle(rng: np.random.Generator, size: Size, amplitude: float) -> tuple[np.ndarray, np.ndarray]:
    """The unit circle times the amplitude, with standard normal noise in both coordinates."""
    angle = rng.uniform(0.0, 2.0 * np.pi, size)
    noise = rng.standard_normal((2, *size))
    return amplitude * np.cos(angle) + noise[0], amplitude * np.sin(angle) + noise[1]


def _checkerboard(rng: np.random.Generator, size: Size, amplitude: float) -> tuple[np.ndarray, np.ndarray]:
    """Uniform on a 4 x 4 board; a share `amplitude` of the rows is on its black fields only."""
    x, y = rng.uniform(0.0, 4.0, size), rng.uniform(0.0, 4.0, size)
    white = (np.floor(x) + np.floor(y)) % 2 == 1
    move = white & (rng.random(size) < amplitude)
    return x, np.where(move, (y + 1.0) % 4.0, y)


_LINE_HEAVY = _of_normal(lambda rng, x, a: a * x + rng.standard_t(3.0, x.shape))
_LINE_SPREAD = _of_normal(lambda rng, x, a: a * x + np.exp(a * x) * rng.standard_normal(x.shape))
_SPREAD = _of_normal(lambda rng, x, a: np.exp(a * x) * rng.standard_normal(x.shape))
_CAUCHY_NOISE = _of_normal(lambda rng, x, a: a * x + rng.standard_cauchy(x.shape))
_PRODUCT = _of_normal(lambda rng, x, a: np.exp(a * x) * rng.exponential(size=x.shape))
_SLOPES = {60: 0.33, 200: 0.18, 1000: 0.08}
NUMERIC = (
    Shape("line: a x + normal", "numeric", _regression(lambda x: x), {60: 0.33, 200: 0.2, 1000: 0.08}, True),
    Shape("line, heavy tails: a x + t(3)", "numeric", _LINE_HEAVY, {60: 0.43, 200: 0.25, 1000: 0.1}, True),
    Shape("exponential: a exp(x) + normal", "numeric", _regression(np.exp), {60: 0.2, 200: 0.12, 1000: 0.05}, True),
    Shape(
        "step: a [x > 0] + normal",
        "numeric",
        _regression(lambda x: 1.0 * (x > 0)),
        {60: 0.8, 200: 0.4, 1000: 0.18},
        True,
    ),
    Shape("line and spread: a x + exp(a x) normal", "numeric", _LINE_SPREAD, {60: 0.33, 200: 0.16, 1000: 0.07}, True),
    Shape("square: a x² + normal", "numeric", _regression(np.square), {60: 0.45, 200: 0.18, 1000: 0.1}),
    Shape(
        "wave: a sin(3x) + normal", "numeric", _regression(lambda x: np.sin(3 * x)), {60: 1.0, 200: 0.45, 1000: 0.25}
    ),
    Shape("spread: exp(a x) normal", "numeric", _SPREAD, {60: 0.45, 200: 0.25, 1000: 0.1}),
    Shape("circle: a (cos t, sin t) + normal", "numeric", _circle, {60: 4.0, 200: 2.7, 1000: 1.7}),
    Shape("checkerboard, share a", "numeric", _checkerboard, {60: 0.85, 200: 0.5, 1000: 0.3}),
    Shape("line of logarithms: log y = a log x + normal", "numeric", _logarithms, _SLOPES, True, True),
    Shape("line, Cauchy noise: a x + Cauchy", "numeric", _CAUCHY_NOISE, {60: 0.75, 200: 0.4, 1000: 0.17}, True, True),
    Shape(
        "line of zeros: a x + normal, x mostly 0",
        "numeric",
        _mostly_zero,
        {60: 0.45, 200: 0.25, 1000: 0.11},
        True,
        True,
    ),
    Shape("product: exp(a x) exponential", "numeric", _PRODUCT, _SLOPES, True, True),
)

# --- two samples ------------------------------------------------------------------------------------------------------


def _shifted(law: str) -> Draw:
    """Two samples of a law of `numpy.random.Generator`, the second one shifted by the amplitude."""

    def samples(rng: np.random.Generator, size: Size, amplitude: float) -> tuple[np.ndarray, np.ndarray]:
        draw = getattr(rng, law)
        return draw(size=size), draw(size=size) + amplitude

    return samples


def _scaled(law: str) -> Draw:
    """Two samples of a law of `numpy.random.Generator`, the second one times exp(amplitude)."""

    def samples(rng: np.random.Generator, size: Size, amplitude: float) -> tuple[np.ndarray, np.ndarray]:
        draw = getattr(rng, law)
        return draw(size=size), np.exp(amplitude) * draw(size=size)

    return samples


def _normal_against(second: Callable[[np.random.Generator, Size, float], np.ndarray]) -> Draw:
    return lambda rng, size, amplitude: (rng.standard_normal(size), second(rng, size, amplitude))


def _tails(rng: np.random.Generator, size: Size, amplitude: float) -> np.ndarray:
    """Normal values to a higher power, with the quartiles of the normal law."""
    quartile = ndtri(0.75)
    values = rng.standard_normal(size) / quartile
    return quartile * np.sign(values) * np.abs(values) ** (1.0 + amplitude)


def _modes(rng: np.random.Generator, size: Size, amplitude: float) -> np.ndarray:
    """Two modes at -amplitude and amplitude; mean 0 and variance 1."""
    side = rng.choice([-1.0, 1.0], size)
    return amplitude * side + np.sqrt(1.0 - amplitude**2) * rng.standard_normal(size)


def _skew(rng: np.random.Generator, size: Size, amplitude: float) -> np.ndarray:
    """A gamma law of skewness 2 * amplitude; mean 0 and variance 1."""
    shape = amplitude**-2
    return (rng.gamma(shape, size=size) - shape) / np.sqrt(shape)


def _cluster(rng: np.random.Generator, size: Size, amplitude: float) -> np.ndarray:
    """A share `amplitude` of the rows is around 4 instead of 0."""
    values = rng.standard_normal(size)
    return np.where(rng.random(size) < amplitude, 4.0 + 0.3 * values, values)


def _zeros(rng: np.random.Generator, size: Size, amplitude: float) -> tuple[np.ndarray, np.ndarray]:
    """Exponential values; half of them are 0 in the first sample, half and `amplitude` in the second."""

    def inflated(share: float) -> np.ndarray:
        return np.where(rng.random(size) < share, 0.0, rng.exponential(size=size))

    return inflated(0.5), inflated(0.5 + amplitude)


def _lognormal(rng: np.random.Generator, size: Size, amplitude: float) -> tuple[np.ndarray, np.ndarray]:
    return rng.lognormal(0.0, 1.0, size), rng.lognormal(amplitude, 1.0, size)


def _counts(rng: np.random.Generator, size: Size, amplitude: float) -> tuple[np.ndarray, np.ndarray]:
    return rng.poisson(2.0, size).astype(float), rng.poisson(2.0 * (1.0 + amplitude), size).astype(float)


_FACTORS = {60: 0.45, 200: 0.25, 1000: 0.11}
SAMPLES = (
    Shape("shift: normal + a", "samples", _shifted("standard_normal"), _FACTORS, True),
    Shape("Cauchy shift: Cauchy + a", "samples", _shifted("standard_cauchy"), {60: 0.8, 200: 0.4, 1000: 0.18}, True),
    Shape("lognormal scale: exp(normal + a)", "samples", _lognormal, _FACTORS, True),
    Shape("zeros, a more of them", "samples", _zeros, {60: 0.22, 200: 0.13, 1000: 0.055}, True),
    Shape("counts: Poisson(2 + 2a)", "samples", _counts, {60: 0.33, 200: 0.18, 1000: 0.09}, True),
    Shape("spread: exp(a) normal", "samples", _scaled("standard_normal"), {60: 0.4, 200: 0.2, 1000: 0.09}),
    Shape("tails: normal to the power 1 + a", "samples", _normal_against(_tails), {60: 0.8, 200: 0.4, 1000: 0.18}),
    Shape("modes: normal around -a and a", "samples", _normal_against(_modes), {60: 0.93, 200: 0.9, 1000: 0.8}),
    Shape("skew: gamma, skewness 2a", "samples", _normal_against(_skew), {60: 1.0, 200: 0.65, 1000: 0.35}),
    Shape("cluster: a share a around 4", "samples", _normal_against(_cluster), {60: 0.12, 200: 0.05, 1000: 0.02}),
    Shape("Laplace shift: Laplace + a", "samples", _shifted("laplace"), {60: 0.55, 200: 0.3, 1000: 0.13}, True, True),
    Shape("exponential scale: exp(a) exponential", "samples", _scaled("exponential"), _FACTORS, True, True),
    Shape("Laplace spread: exp(a) Laplace", "samples", _scaled("laplace"), _FACTORS, False, True),
)

SHAPES = {f"{shape.question}: {shape.name}": shape for shape in (*NUMERIC, *SAMPLES)}
ROWS = (60, 200, 1000)
