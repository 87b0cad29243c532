"""docs/calibration.md and its pictures, from the tables that calibrate.py leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from calibrate import BOOTSTRAP, DEFAULT, KS, QUESTIONS, ROWS, SETTINGS, Cell, D
from calibrate_hard_page import hard_sections

from kernsift.experiments.studies import read_rows, table
from kernsift.inference import TESTS

_ERRORS = 3.0
# Replicates of the default combination below which the page says that it comes from a small run.
_FEW = 300


def verdict(cell: Cell) -> str:
    """Whether the rate at 0.05 is right, above or below: by more than three standard errors."""
    error = cell.error if cell.error > 0 else float(np.sqrt(0.05 * 0.95 / max(cell.counted, 1)))
    if cell.rate > 0.05 + _ERRORS * error:
        return "above"
    return "below" if cell.rate < 0.05 - _ERRORS * error else "right"


def _known(cell: Cell) -> bool:
    return cell.counted > 0


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if not _known(cell):
        return "–"
    marked = {"above": "**{}** ▲", "below": "{} ▼", "right": "{}"}[verdict(cell)]
    return marked.format(f"{cell.rate:.3f}") + f" ± {cell.error:.3f}"


# --- what the grid shows ----------------------------------------------------------------------------------------------

# Why a method is off where it is: conditions on cells, and the reason, the first that fits.
_REASONS: tuple[tuple[str, Callable[[Cell], bool], str], ...] = (
    (
        "naive",
        lambda cell: cell.test == "naive",
        "It ignores that the features were selected for their scores, and is shown for comparison.",
    ),
    (
        "polyhedral, near ties",
        lambda cell: (
            cell.test == "polyhedral" and cell.setting in ("binary", "counts and ties") and verdict(cell) == "above"
        ),
        "Features of few values have scores of few values, and the last feature selected nearly ties with the first "
        "one that is not. Given the whole selected set, the others then have hardly any room to move, and what there "
        'is comes from the grid of values and not from a normal law. `test="exact"` gives each feature all the room '
        "that its own selection leaves. (Exact ties count as no evidence.) The library warns where several features "
        "have two values.",
    ),
    (
        "block, few blocks",
        lambda cell: cell.estimator.startswith("block") and verdict(cell) == "above",
        "Two to four blocks, which is what few rows leave: the spread of so few values is hardly known, and dividing "
        "by it has the heavy tails of Student's t. The library warns below five blocks.",
    ),
    (
        "block, skewed blocks",
        lambda cell: cell.estimator.startswith("block"),
        "The statistic of a block is skewed to the right, and more so the larger the block. Where it comes out high by "
        "chance its sample variance does too, so the ratio is high less often than a normal one. The paper sees rates "
        'below the level at a block size of the root of n (appendix, "Block HSIC", after Zaremba et al. 2013). The '
        "library warns for HSIC with blocks of more than five rows and fewer than a hundred of them.",
    ),
    (
        "multiscale, one winner",
        lambda cell: cell.test == "multiscale" and cell.k == 1 and verdict(cell) == "below",
        "The region in which one feature wins is a cone with d - 1 sides. The bootstrap takes its surface as smooth "
        'and extrapolates from afar, which puts the corner too far away. `test="exact"` computes what is extrapolated '
        "here, and keeps the level. The library warns.",
    ),
    (
        "incomplete, many draws",
        lambda cell: "r=" in cell.estimator and verdict(cell) == "above",
        "With many draws the design no longer matters, and what is left is the complete statistic: a weighted sum of "
        "chi-squares under the null, not a normal (the paper's appendix B shows the histograms for r = 100). The "
        'variance is right, the tail is not. The library warns from r = n/10 on; `estimator="complete"` computes that '
        "law.",
    ),
    (
        "incomplete, linear: few draws",
        lambda cell: cell.estimator.startswith(("incomplete", "linear")) and verdict(cell) == "above",
        "Thirty draws or fewer, down to two where the smaller sample has two rows: Student's law allows for their "
        "rough variance, but not for draws that are skewed or that share rows.",
    ),
    (
        "incomplete HSIC, skewed draws",
        lambda cell: cell.estimator.startswith("incomplete") and cell.question == "relate",
        "The draws of an HSIC are skewed to the right, with most of them near 0: for a class that few rows belong to, "
        "or features with many ties, nearly all. As with blocks, estimate and variance rise together, and the rate "
        "stays below the level. Power is lost, validity is not.",
    ),
    (
        "cross, a small sample",
        lambda cell: (
            cell.estimator == "cross" and cell.setting in ("95/5", "50 against 1000") and verdict(cell) == "above"
        ),
        "Half of a sample of five rows are two, whose mean is skewed where values are, and the largest of many such "
        "means is so more often. The library warns below twelve rows against more than five times as many.",
    ),
    (
        "ties",
        lambda cell: cell.setting in ("binary", "counts and ties") and verdict(cell) == "below",
        "Features with few values have p-values with few values. A test that stays at or below the level at each of "
        "them is below it on average.",
    ),
    (
        "equicorrelated",
        lambda cell: cell.setting == "equicorrelated 0.8" and verdict(cell) == "below",
        "Scores of correlated features are normal one by one but not together: large ones go together more than small "
        "ones do. The tests take their joint law as normal, which errs on the safe side.",
    ),
    (
        "the tail",
        lambda cell: verdict(cell) == "above",
        "Not explained. Cells are flagged at three standard errors, which chance alone reaches in about one of 700.",
    ),
    (
        "the safe side",
        lambda cell: True,
        "Below the level: power is lost, validity is not. The default tests each feature with several kernels whose "
        "scores are normal one by one rather than together, which makes it slightly conservative.",
    ),
)


def _reason(cell: Cell) -> str:
    return next(name for name, applies, _ in _REASONS if applies(cell))


def _summary(cells: Sequence[Cell]) -> str:
    """A row for each question, estimator and test, the plain grid only."""
    rows = []
    for question, statistics in QUESTIONS.items():
        for estimator in statistics:
            for test in TESTS:
                mine = [c for c in cells if (c.question, c.estimator, c.test) == (question, estimator, test)]
                known = [cell for cell in mine if _known(cell)]
                if not known:
                    continue
                off = {kind: [cell for cell in known if verdict(cell) == kind] for kind in ("above", "below")}
                most = max(known, key=lambda cell: cell.rate)
                why = dict.fromkeys(_reason(cell) for kind in off.values() for cell in kind)
                rows.append(
                    [
                        question,
                        estimator + (" (default)" if estimator == DEFAULT and test == "exact" else ""),
                        test,
                        str(len(known)),
                        f"{len(off['above'])}" if off["above"] else "none",
                        f"{len(off['below'])}" if off["below"] else "none",
                        f"{most.rate:.3f} ± {most.error:.3f} ({most.setting}, n={most.n}, k={most.k})",
                        "; ".join(why) if test != "naive" else "naive",
                    ]
                )
    return table(["question", "estimator", "test", "cells", "above", "below", "highest rate", "why off"], rows)


def _explanations(cells: Sequence[Cell]) -> str:
    met = {_reason(cell) for cell in cells if _known(cell) and verdict(cell) != "right"}
    return "\n".join(f"- **{name}**: {why}" for name, _, why in _REASONS if name in met)


def _default_section(cells: Sequence[Cell]) -> str:
    mine = [c for c in cells if c.estimator == DEFAULT and c.test in ("exact", "naive")]
    by_key = {(c.question, c.setting, c.n, c.test, c.k): c for c in mine}
    rows = []
    for question, setting, n in dict.fromkeys((c.question, c.setting, c.n) for c in mine):
        exact = [by_key.get((question, setting, n, "exact", k)) for k in KS]
        naive = by_key.get((question, setting, n, "naive", 1))
        first = exact[0]
        if first is None:
            continue
        if first.refused:
            rows.append([question, setting, str(n), "refused", *[""] * 7])
            continue
        at01 = [f"{c.rate01:.3f} ± {c.error01:.3f}" if c and _known(c) else "–" for c in exact]
        distance = [f"{c.ks:.3f} ({c.ks_p:.2f})" if c and _known(c) else "–" for c in exact[1:2]]
        rows.append(
            [question, setting, str(n), str(first.replicates), *map(_shown, exact), *at01, *distance, _shown(naive)]
        )
    names = ["question", "setting", "n", "replicates", *(f"k={k}" for k in KS), *(f"k={k} at 0.01" for k in KS)]
    body = table([*names, f"KS, k={KS[1]} (p)", "naive, k=1"], rows)
    known = [c for c in mine if c.test == "exact" and _known(c)]
    high = [c for c in known if verdict(c) == "above"]
    said = "It has no cell above 0.05 by more than three standard errors"
    if high:
        listed = "; ".join(f"{c.question}, {c.setting}, n={c.n}, k={c.k}: {c.rate:.3f} ± {c.error:.3f}" for c in high)
        said = f"Above 0.05 by more than three standard errors: {listed}"
    counts = {c.replicates for c in known}
    again = (
        "Cells that were more than two standard errors above had four times as many replicates, to tell chance from a "
        "fault. "
        if len(counts) > 1
        else ""
    )
    if max(counts, default=0) < _FEW:
        again = f"This is a small run: with {max(counts, default=0)} replicates only gross faults show. "
    return f"""### The default combination

`estimator="complete"`, `test="exact"`, adaptive bandwidth. {said}, of {len(known)}. {again}Refused are data with
too few rows for the estimator.

<details><summary>Every cell: rates at 0.05 and 0.01 ± standard errors, Kolmogorov-Smirnov distance, and the naive
rate</summary>

{body}

</details>
"""


def _bounds_section(cells: Sequence[Cell]) -> str:
    swept = [c for c in cells if c.estimator not in QUESTIONS[c.question] or c.estimator in ("incomplete", "block")]
    swept = [c for c in swept if c.test == "exact" and c.setting == "independent"]
    by_key = {(c.question, c.estimator, c.n, c.k): c for c in swept}
    rows = []
    for question, estimator in sorted(dict.fromkeys((c.question, c.estimator) for c in swept), key=_sweep_order):
        shown = [_shown(by_key.get((question, estimator, n, k))) for n in ROWS for k in KS[:2]]
        rows.append(
            [question, {"incomplete": "incomplete r=1", "block": "block, default"}.get(estimator, estimator), *shown]
        )
    body = table(["question", "estimator", *(f"n={n}, k={k}" for n in ROWS for k in KS[:2])], rows)
    return f"""### Where the warnings begin

The exact test on independent null features, with other numbers of draws (`r`) and other sizes of blocks (`block n/10`:
ten blocks). For two samples n counts the rows of both, and `r` and blocks are about the n/2 rows of one.

{body}

A `CalibrationWarning` is raised

- for `incomplete` from more than n/10 draws a row on (n the rows of the shorter sample, or of the table): up to there
  rates stay near 0.06, beyond they rise to 0.2;
- for `block` with fewer than 5 blocks; with fewer than 8 in `compare` and `screen`, where of 6,000 normal and 6,000
  Cauchy columns of 25 v 25 rows 0.004 are rejected at level 0.001;
- for `block` MMD with more than three times as many rows in one sample: of 6,000 columns with 5% ones 0.02 are rejected
  at level 0.05 with 100 v 100 rows, 0.04 with 100 v 200, 0.10 with 50 v 250 and 0.21 with 30 v 300;
- for `block` HSIC with more than 5 rows a block and fewer than 100 blocks, which rejects half as often as it may;
- for `cross` with a sample of fewer than 12 rows, or units, against more than five times as many: of 20,000 Cauchy and
  20,000 lognormal columns 0.0023 and 0.0027 are rejected at level 0.001 with 4 rows against 40, 0.0016 and 0.0015 with
  5 against 60, 0.0014 and 0.0007 with 10 against 300; in a short list with k = 1 of 30 columns, 2,500 calls, 0.0096
  of Cauchy columns with 5 against 60, 0.0028 and 0.0032 with 10 against 300, 0.0016 and 0.0012 with 15 against 70;
- for the multiscale test with k = 1;
- for `complete` with an unbounded kernel and more than 524,288 rows (see [the method](explanation/method.md)).
"""


def _sweep_order(pair: tuple[str, str]) -> tuple[str, str, float]:
    question, estimator = pair
    kind, _, option = estimator.partition(" ")
    number = option.rpartition("=")[2] if "r=" in option else option.rpartition("/")[2]
    return question, kind, (float(number) if number else 0.0) * (-1.0 if "/" in option else 1.0)


# --- the picture ------------------------------------------------------------------------------------------------------


def _places() -> list[tuple[str, int]]:
    return [(name, n) for name, how in SETTINGS.items() for n in (ROWS if how.sizes is None else (sum(how.sizes),))]


def draw_grid(path: Path, question: str, cells: Sequence[Cell]) -> None:
    """Rates at 0.05 in percent: white is right, red above, blue below; a frame where it is beyond three errors."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    places = _places()
    lines = [(estimator, test, k) for estimator in QUESTIONS[question] for test in TESTS for k in KS]
    by_key = {(c.estimator, c.test, c.k, c.setting, c.n): c for c in cells}
    height = 0.2 * len(lines) + 1.6
    figure = Figure(figsize=(11.5, height))
    axes = figure.add_axes((0.17, 0.35 / height, 0.82, 1 - 1.45 / height))
    for down, (estimator, test, k) in enumerate(lines):
        for across, (setting, n) in enumerate(places):
            cell = by_key.get((estimator, test, k, setting, n))
            colour, text, weight, ink = _look(cell)
            hatch = "////" if cell is not None and cell.refused else None
            axes.add_patch(Rectangle((across, down), 1, 1, facecolor=colour, edgecolor="#ffffff", lw=0.5, hatch=hatch))
            axes.text(across + 0.5, down + 0.54, text, ha="center", va="center", fontsize=6.4, color=ink, weight=weight)
            if cell is not None and _known(cell) and verdict(cell) == "above":
                frame = {"facecolor": "none", "edgecolor": "#111111", "lw": 1.1, "zorder": 3}
                axes.add_patch(Rectangle((across + 0.05, down + 0.07), 0.9, 0.86, **frame))
    _label(axes, lines, places)
    figure.text(0.01, 1 - 0.28 / height, _TITLES[question], fontsize=11, weight="bold", va="center")
    figure.text(
        0.17, 0.14 / height,
        "Share of selected null features rejected at 5%, in percent. Framed: more than three standard errors above. "
        "Hatched: refused, too few rows.",
        fontsize=7.5, color="#374151", va="center",
    )  # fmt: skip
    figure.savefig(path, dpi=130, metadata={"Software": None})


_TITLES = {
    "compare": "compare: which features differ between two samples",
    "relate": "relate: which features depend on a response",
    "screen": "screen: which data sets deviate from a reference",
}


def _label(axes: object, lines: Sequence[tuple[str, str, int]], places: Sequence[tuple[str, int]]) -> None:
    axes.set_xlim(0, len(places))
    axes.set_ylim(len(lines), 0)
    axes.set_xticks(np.arange(len(places)) + 0.5, [str(n) for _, n in places], fontsize=6.5)
    axes.xaxis.tick_top()
    axes.set_yticks(np.arange(len(lines)) + 0.5, [f"k={k}" for *_, k in lines], fontsize=6.2)
    axes.tick_params(length=0, pad=2)
    for spine in axes.spines.values():
        spine.set_visible(False)
    names = [name for name, _ in places]
    for name in dict.fromkeys(names):
        at = [place for place, other in enumerate(names) if other == name]
        middle = (at[0] + at[-1] + 1) / 2
        text = name.replace(" with ", "\nwith ").replace(" and ", "\nand ").replace(" against ", "\nagainst ")
        text = text.replace("equicorrelated ", "equicorrelated\n").replace("against ", "against\n")
        axes.text(middle, -1.35, text, ha="center", va="bottom", fontsize=7, weight="bold", linespacing=0.95)
        axes.axvline(at[-1] + 1, color="#ffffff", lw=3)
    for place, (estimator, test, _) in enumerate(lines):
        if place % len(KS) == 0:
            axes.text(-0.75, place + len(KS) / 2, test, ha="right", va="center", fontsize=7.2)
        if place % (len(KS) * len(TESTS)) == 0:
            axes.text(-2.35, place + 0.2, estimator, ha="right", va="top", fontsize=8.5, weight="bold")
            axes.axhline(place, color="#ffffff", lw=4)


def _look(cell: Cell | None) -> tuple[str | tuple[float, ...], str, str, str]:
    """Colour of the ground, text, its weight and its colour."""
    import matplotlib

    if cell is None:
        return "#f9fafb", "", "normal", "#000000"
    if not _known(cell):
        return "#e5e7eb", "", "normal", "#000000"
    far = float(np.clip(np.log2(max(cell.rate, 1e-3) / 0.05) / 2.5, -1, 1))
    ground = matplotlib.colormaps["RdBu_r"](0.5 + 0.5 * far)
    text = f"{100 * cell.rate:.0f}" if cell.rate >= 0.0995 else f"{100 * cell.rate:.1f}"
    off = verdict(cell) != "right"
    return ground, text, "bold" if off else "normal", "#ffffff" if abs(far) > 0.75 else "#111111"


# --- the page ---------------------------------------------------------------------------------------------------------


def _counts(cells: Sequence[Cell]) -> str:
    def most(test: bool) -> str:
        found = sorted({c.replicates for c in cells if c.replicates and (c.estimator == DEFAULT) == test})
        return f"{found[0]} to {found[-1]}" if len(found) > 1 else str(found[0]) if found else "no"

    return f"{most(True)} replicates of each cell of the default estimator and {most(False)} of the others"


def write_page(folder: Path) -> Path:
    """docs/calibration.md, next to the folder of figures."""
    cells = [cell for question in QUESTIONS for cell in read_rows(folder / f"{question}.csv", Cell)]
    hard = hard_sections(folder)
    if not cells and not hard:
        raise SystemExit(f"{folder}: holds no figures yet; run calibrate.py without --page first.")
    text = f"""# Are the p-values and intervals right?

A p-value is right if a null feature gets one at or below 0.05 in at most 5% of the cases in which it is tested, or
selected. A 95% interval is right if it holds the true effect in 95% of the cases. This page measures both. `make
calibrate` writes it anew; the figures are in the CSV files of [calibration/](calibration/), with dates: settings of
one section may be measured on different days.

{hard}
{_grid_sections(cells, folder) if cells else ""}"""
    page = folder.parent / "calibration.md"
    page.write_text(text, encoding="utf-8")
    return page


def _grid_sections(cells: Sequence[Cell], folder: Path) -> str:
    """Every question, estimator and test on a common grid of settings."""
    pictures = []
    for question in QUESTIONS:
        mine = [cell for cell in cells if cell.question == question]
        if mine:
            draw_grid(folder / f"{question}.png", question, mine)
            pictures.append(f"![{_TITLES[question]}]({folder.name}/{question}.png)\n")
    dates = sorted(cell.date for cell in cells)
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    plain = [cell for cell in cells if cell.estimator in QUESTIONS[cell.question]]
    joined = "\n".join(pictures)
    return f"""## The grid: every question, estimator and test

{_counts(plain)} ({span}).

- There are {D} features, of which k = {KS[0]}, {KS[1]} and {KS[2]} are selected. n is the number of rows in
  all: of both samples, of the table, or of the reference and any one candidate. Candidates have three columns.
- Everything is null, except in *correlated with signals*, where three features are true, their mates in blocks of three
  correlate with them at 0.7 and are not, and only null features count.
- *counts and ties* are Poisson(1) counts by turns with counts of which four in five are 0. *95/5* and *50 against 1000*
  are the sizes of the two samples, or classes of the response. For `screen` it is the reference that has 50 rows.
- Rates are shares of all selected null features, with standard errors that take a replicate as one cluster. The
  Kolmogorov-Smirnov distance is that of one p-value a replicate, of a feature chosen at random, from uniform.
- The multiscale test runs with {BOOTSTRAP:,} resampled score vectors a scale in place of 10,000, which is ten times
  faster. On the same scores (200 draws each of incomplete MMD and HSIC and of complete MMD, n = 100) the two gave rates
  that differed by 0.003 at most (2026-11-15).

{joined}
### What it shows

Cells off by more than three standard errors; some of these are chance.

{_summary(plain)}

{_explanations(cells)}

{_default_section(plain)}
{_bounds_section(cells)}"""
