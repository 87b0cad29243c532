"""Coverage of the exact interval for two proportions, by enumeration of all pairs of counts.

A column of rare values has few possible outcomes. The exact interval leaves out 0 only where the exact test rejects.
It holds an effect unless, for all pairs of shares with that effect, an observed effect as small, or as large, has a
probability of at most 0.025 (0.05 for as large, where none is that small). Columns that are selected have a score of at
least 1, and all probabilities are those given the selection.
"""

from __future__ import annotations

import numpy as np
from interval_coverage import SIZES
from pages import table
from scipy.stats import binom, hypergeom, norm

# Shares of ones, or of nonzero values, without and with an effect.
SHARES = {"binary": (0.2, 0.5), "5% nonzero": (0.05, 0.15)}
_LEVEL, _CUT = 0.05, float(norm.sf(1.0))
_ROUNDING = 1e-9
# Pooled shares among which the pairs with an effect are searched.
_GRID = 199


def fisher(n: int, m: int) -> np.ndarray:
    """(n + 1, m + 1) p-values of the counts of ones in samples of n and m rows, by their distance from the mean."""
    found = np.ones((n + 1, m + 1))
    for ones in range(n + m + 1):
        first = np.arange(max(0, ones - m), min(n, ones) + 1)
        mass, gap = hypergeom.pmf(first, n + m, ones, n), np.abs(first - n * ones / (n + m))
        found[first, ones - first] = (mass * (gap >= gap[:, None] - _ROUNDING)).sum(axis=1)
    return found


def exact_coverage(n: int, m: int, shares: tuple[float, float], *, selected: bool) -> float:
    """The coverage of the exact interval for samples of n and m rows with these shares of ones."""
    pvalue, keep = fisher(n, m), np.ones((n + 1, m + 1), dtype=bool)
    if selected:
        ones = np.add.outer(np.arange(n + 1), np.arange(m + 1))
        keep = pvalue <= _CUT
        cut = np.zeros(n + m + 1)  # the probability of selection, given the number of ones
        np.maximum.at(cut, ones[keep], pvalue[keep])
        pvalue = pvalue / np.where(keep, cut[ones], 1.0)
    rejected = pvalue[keep] <= _LEVEL * (1.0 + _ROUNDING)
    [chance] = _chances(n, m, np.array([shares]), keep)
    if shares[0] == shares[1]:
        return 1.0 - float(chance[rejected].sum())
    effects, effect = _effects(n, m)[keep], float(_correlation(*np.array(shares), n / (n + m)))
    among = _chances(n, m, np.vstack([shares, _shares_with(effect, n / (n + m))]), keep)
    # The upper end is below the effect for observed effects that are improbably small whatever the shares are.
    small, large = _tail(among, effects), _tail(among, -effects)
    below = small <= 0.5 * _LEVEL
    above = rejected & (large <= (0.5 * _LEVEL if below.any() else _LEVEL))
    return 1.0 - float(chance[below | above].sum())


def _correlation(first: np.ndarray, second: np.ndarray, share: float) -> np.ndarray:
    """The effect: the correlation of value and label, `share` being that of the first sample."""
    pooled = share * first + (1.0 - share) * second
    spread = np.sqrt(share * (1.0 - share) * pooled * (1.0 - pooled))
    gap = share * (1.0 - share) * np.abs(first - second)
    return np.divide(gap, spread, out=np.zeros_like(gap), where=gap > 0)


def _effects(n: int, m: int) -> np.ndarray:
    """(n + 1, m + 1) observed effects."""
    return _correlation(*np.broadcast_arrays(np.arange(n + 1)[:, None] / n, np.arange(m + 1) / m), n / (n + m))


def _shares_with(effect: float, share: float) -> np.ndarray:
    """(r, 2) pairs of shares of ones with this effect."""
    pooled = np.linspace(0.0, 1.0, _GRID + 2)[1:-1]
    gap = effect * np.sqrt(pooled * (1.0 - pooled) / (share * (1.0 - share)))
    pairs = [np.column_stack([pooled + (1.0 - share) * one, pooled - share * one]) for one in (gap, -gap)]
    found = np.concatenate(pairs)
    return found[((found >= 0.0) & (found <= 1.0)).all(axis=1)]


def _chances(n: int, m: int, shares: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """(r, k) probabilities of the outcomes that are kept, given that one of them occurs, for shares (r, 2) of ones."""
    first, second = (binom.pmf(np.arange(size + 1), size, shares[:, [place]]) for place, size in enumerate((n, m)))
    found = (first[:, :, None] * second[:, None, :])[:, keep]
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def _tail(chances: np.ndarray, order: np.ndarray) -> np.ndarray:
    """(k,) the largest probability, over the rows of `chances` (r, k), of an outcome that is at most each in order."""
    values, place = np.unique(np.round(order, 9), return_inverse=True)
    total = np.zeros((len(values), len(chances)))
    np.add.at(total, place, chances.T)
    return np.asarray(np.cumsum(total, axis=0).max(axis=1)[place])


def exact_coverage_table() -> str:
    """The coverage of the exact interval for each pair of sample sizes, with and without an effect and selection."""
    columns = [
        (name, selected, kind, (first, second if kind == "true" else first))
        for name, (first, second) in SHARES.items()
        for selected in (False, True)
        for kind in ("true", "null")
    ]
    head = [f"{name}, {'threshold=1' if selected else 'k=None'}, {kind}" for name, selected, kind, _ in columns]
    body = (
        [f"{n} v {m}", *(f"{exact_coverage(n, m, pair, selected=which):.3f}" for _, which, _, pair in columns)]
        for n, m in SIZES
    )
    return table(["rows", *head], body)


if __name__ == "__main__":
    print(exact_coverage_table())
