"""docs/power.md and its plots, from the figures that benchmarks/power.py has on record."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

# What the paper reports for its own tests: TPR of Multi and of Poly (its figures 1 and 3, tables 1 and 3).
_REPORTED = {
    "mean shift 0.5, n=500": (0.675, 0.42),
    "logistic, n=500": (0.31, 0.21),
    "Pulsar + 30 fakes, n=100 a class": (0.993, 0.746),
    "Heart + 30 fakes, n=138 a class": (0.588, 0.359),
    "Wine + 30 fakes, n=100 a class": (0.749, 0.567),
    "Pulsar + 30 fakes, n=100": (0.705, 0.625),
    "Heart + 30 fakes, n=138": (0.469, 0.410),
    "Wine + 30 fakes, n=200": (0.800, 0.730),
}
_OWN, _OTHER = "#1b6ca8", "#8a8a8a"


class Figures:
    """The lines of one CSV by row, method and quantity, in the order in which they were measured."""

    def __init__(self, path: Path) -> None:
        self.lines: list[dict[str, str]] = []
        if path.exists():
            with path.open(newline="") as file:
                self.lines = list(csv.DictReader(file))
        self.by_key = {(line["row"], line["method"], line["quantity"]): line for line in self.lines}

    def names(self, field: str) -> list[str]:
        return list(dict.fromkeys(line[field] for line in self.lines))

    def trials(self) -> str:
        counts = sorted({int(line["trials"]) for line in self.lines})
        return " or ".join([", ".join(map(str, counts[:-1])), *map(str, counts[-1:])]).removeprefix(" or ") or "no"

    def date(self) -> str:
        return max(line["date"] for line in self.lines)

    def mean(self, row: str, method: str, quantity: str) -> float:
        line = self.by_key.get((row, method, quantity))
        return float("nan") if line is None else float(line["mean"])

    def error(self, row: str, method: str, quantity: str) -> float:
        line = self.by_key.get((row, method, quantity))
        return float("nan") if line is None else float(line["error"])

    def shown(self, row: str, method: str, quantity: str, digits: int = 3) -> str:
        """Mean and standard error; a dash where nothing was counted."""
        mean = self.mean(row, method, quantity)
        if mean != mean:
            return "–"
        error = self.error(row, method, quantity)
        return f"{mean:.{digits}f}" + ("" if error != error else f" ± {error:.{digits}f}")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


# --- sections ---------------------------------------------------------------------------------------------------------


def _bh_section(own: Figures, peers: Figures) -> str:
    rows, methods = own.names("row"), own.names("method")
    others = peers.names("method")
    best = table(
        ["problem", *methods],
        ([row, *(own.shown(row, method, "tpr") for method in methods)] for row in rows),
    )
    wrong = table(
        ["problem", *methods],
        ([row, *(own.shown(row, method, "fdr") for method in methods)] for row in rows),
    )
    theirs = table(
        ["problem", *others],
        ([row, *(peers.shown(row, method, "tpr") for method in others)] for row in rows),
    )
    their_wrong = table(
        ["problem", *others],
        ([row, *(peers.shown(row, method, "fdr") for method in others)] for row in rows),
    )
    seconds = table(
        ["seconds a call", *rows],
        (
            [method, *(f"{figures.mean(row, method, 'seconds'):.3f}" for row in rows)]
            for figures, names in ((own, methods), (peers, others))
            for method in names
        ),
    )
    return f"""## Every feature's answer: BH at 5%

Fifty features, of which ten differ: between two samples of n rows each, or, in the logistic problem, with the class
of n rows. The figure is the share of the ten that is found, ± its standard error, over {own.trials()} trials
({own.date()}). `k=None` tests every feature; `k=30` selects thirty first and corrects over those.

{best}

False discovery rate of the same calls; BH promises 5% times the share of nulls, here 0.04:

{wrong}

The others, on the same data ({peers.trials()} trials). Mutual information has no p-value: its ten best features are
taken, which tells it a number nobody knows, and its false discovery rate is what is left of the ten. Knockoffs
(Gaussian model-X, lasso coefficients) at q = 0.05 can only answer with twenty features or more, or with none, so with
ten true ones they stay silent; q = 0.1 is shown beside it. `f_classif` is the analysis of variance, exact for the mean
shift and blind to what leaves the mean alone. "Multi" is the paper's test with k = 30, corrected by BH.

{theirs}

{their_wrong}

![Share of the true features found, by problem and method](power/bh.png)

"Variance × 1.5" and "standard deviation × 1.5" are two problems: a variance ratio of 1.5 is a change of the standard
deviation by 22%, which hardly anybody finds among fifty features with 200 rows; a ratio of 2.25 is found. There one
bandwidth, the median, would do a little better than two looks, and hyppo's Hsic, which uses it, is level with that.

<details><summary>Time a call</summary>

Processor time of one thread, so that other work on the machine counts for little.

{seconds}

</details>
"""


def _paper_section(figures: Figures) -> str:
    rows, methods = figures.names("row"), figures.names("method")

    def reported(row: str, place: int) -> str:
        return f"{_REPORTED[row][place]:.3f}" if row in _REPORTED else "–"

    power = table(
        ["problem", *methods, "Multi, as reported", "Poly, as reported"],
        (
            [row, *(figures.shown(row, method, "tpr") for method in methods), reported(row, 0), reported(row, 1)]
            for row in rows
        ),
    )
    wrong = table(
        ["problem", *methods],
        ([row, *(figures.shown(row, method, "fpr") for method in methods)] for row in rows),
    )
    missing = "" if any("fakes" in row for row in rows) else "\nThe data sets were not at hand for this run.\n"
    return f"""## The paper's experiments

Thirty features are selected and tested at level 0.05 without a correction. The true positive rate is the share of the
selected true features that is rejected, the false positive rate that of the selected null features (the paper's
appendix A), over {figures.trials()} trials ({figures.date()}). "Multi" and "Poly" are the paper's two tests with its
incomplete estimator (`estimator="incomplete"`, `bandwidth="joint"`, r = 1, and 5 for the data sets with a response).
Samples have n rows each; with a response n is the number of rows. The data sets have thirty standard normal columns
added, and all their own columns count as true.
{missing}
{power}

False positive rate:

{wrong}

![True positive rate by problem and method](power/paper.png)
"""


def _question(row: str) -> str:
    return row.partition(":")[0]


def _high_cells(figures: Figures, method: str) -> str:
    """A sentence on the cells above 0.062 at level 0.05, or above 0.015 at level 0.01."""
    cells = [(row, quantity) for row in figures.names("row") for quantity in figures.names("quantity")]
    cells = [cell for cell in cells if figures.shown(cell[0], method, cell[1]) != "–"]
    found = []
    for row, quantity in cells:
        level = float(quantity.rpartition(" ")[2])
        mean, error = figures.mean(row, method, quantity), figures.error(row, method, quantity)
        if mean > {0.05: 0.062, 0.01: 0.015}[level]:
            found.append(
                f"{row}, {quantity} ({mean:.3f}, {(mean - level) / error:.1f} standard errors above the level)"
            )
    if not found:
        return "No cell is above 0.062, or above 0.015 at level 0.01."
    return f"Above 0.062, or above 0.015 at level 0.01, are, of {len(cells)} cells:\n\n- " + "\n- ".join(found)


def _null_section(figures: Figures) -> str:
    method = figures.names("method")[0]
    quantities = figures.names("quantity")
    rows = sorted(figures.names("row"), key=_question)
    counts = {row: figures.by_key[row, method, quantities[0]]["trials"] for row in rows}
    body = table(
        ["setting", "trials", *quantities],
        ([row, counts[row], *(figures.shown(row, method, quantity) for quantity in quantities)] for row in rows),
    )
    return f"""## When there is nothing to find

The share of selected null features that is rejected, defaults, twenty features, a hundred rows in all unless the
setting says otherwise, ± its standard error ({figures.date()}). Everything is null except in the block settings,
where four features are true and their block mates, correlated with them at 0.7, are not. A dash: no null feature was
ever selected. Settings with more trials than `make power` gives them (`--trials 4000`) are those that were near a
limit in an earlier run.

{body}

![False positive rates under the null](power/null.png)

{_high_cells(figures, method)}

Where rates are below the level:

- *Binary* features against a class have a p-value with few possible values. Fisher's exact tail stays at or below the
  level at each of them, so on average it is below.
- *Correlated* features, and blocks of them, have scores that are normal one by one but not together: large scores go
  together more than small ones do (with equicorrelation 0.8, a correlation of about 0.3 where a score is above 0.5,
  and of about 0.1 where it is below -0.5). The test takes the joint law as normal, which errs on the safe side. A
  correlation measured by permutations in place of the computed one changes nothing.
- The *two looks* at a feature are such a pair themselves, so the default is a little below the level in most settings.
  It comes closest to it against a numeric response, where heavy tails or few rows can put it a few thousandths above.
- At k = 1 there is one p-value a trial, and the standard error shows it.
"""


def _intervals_section(figures: Figures) -> str:
    rows = [(row, method) for row in figures.names("row") for method in figures.names("method")]
    quantities = ["k=10 true", "k=10 null", "k=30 true", "k=30 null", "k=30 true below", "k=30 true above"]
    names = [*quantities[:4], "k=30, target below", "k=30, target above", "k=30, mean width"]
    body = table(
        ["problem", "estimator", *names],
        (
            [
                row,
                method,
                *(figures.shown(row, method, quantity) for quantity in quantities),
                f"{figures.mean(row, method, 'k=30 width'):.3f}",
            ]
            for row, method in rows
            if (row, method, quantities[0]) in figures.by_key
        ),
    )
    return f"""## Intervals for the effect

How often a 95% interval of a selected feature holds the right value, over {figures.trials()} trials ({figures.date()}),
for true and for null features among the k selected. The right value is

- for `complete`, `block` and `linear` the kernel correlation at the population, computed by the same code from 20,000
  rows a sample, for the look (wide or narrow) that spoke for the feature;
- for `cross` the correlation of the learned witness with the label at the population, given the half of the rows it was
  learned on, computed from 40,000 fresh rows a sample;
- 0 for a null feature, so its interval is right exactly when it begins at 0.

"Target below" and "above" are the two ways to miss. `block` gives intervals only from forty blocks on, as the values
of fewer are too skewed. Where power is high nearly all of ten selected features are true ones, so the figures for null
features at k = 10 are rough there, and a dash says that there were none.

{body}

![Coverage of 95% intervals](power/intervals.png)
"""


# --- plots ------------------------------------------------------------------------------------------------------------


def _axes(height: float) -> tuple[object, object]:
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(8.5, height), layout="constrained")
    axes = canvas.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    return canvas, axes


def _rows_plot(
    path: Path,
    rows: Sequence[str],
    series: Sequence[tuple[str, Callable[[str], tuple[float, float]], dict]],
    label: str,
) -> None:
    """One line of the plot a row, one marker a series, with two standard errors either side."""
    canvas, axes = _axes(0.9 + 0.55 * len(rows))
    for number, (name, figure, style) in enumerate(series):
        shift = 0.55 * (number / max(len(series) - 1, 1) - 0.5)
        points = [(*figure(row), place + shift) for place, row in enumerate(rows)]
        points = [point for point in points if point[0] == point[0]]
        if points:
            x, error, y = zip(*points, strict=True)
            axes.errorbar(x, y, xerr=[2 * e for e in error], linestyle="none", markersize=5, label=name, **style)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(-0.03, 1.03)
    axes.set_xlabel(label)
    canvas.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    canvas.savefig(path, dpi=130)


_SHAPES = "osD^vP*Xph<>"


def _styles(count: int, own: int) -> list[dict]:
    """The library's methods in blue, the others in colours of their own."""
    others = ["#d95f02", "#7570b3", "#66a61e", "#e7298a", "#a6761d", "#666666", "#e6ab02", "#1f9e9e"]
    blues = ["#0b3c6f", "#1b6ca8", "#5aa2d6", "#9cc8ea"]
    colours = [*blues[:own], *others[: count - own]]
    return [{"marker": _SHAPES[place % len(_SHAPES)], "color": colours[place]} for place in range(count)]


def _power_plot(
    path: Path, groups: Sequence[tuple[Figures, Sequence[str]]], quantity: str, own: int, label: str
) -> None:
    rows = groups[0][0].names("row")
    methods = [(figures, method) for figures, names in groups for method in names]
    styles = _styles(len(methods), own)

    def reader(figures: Figures, method: str) -> Callable[[str], tuple[float, float]]:
        return lambda row: (figures.mean(row, method, quantity), figures.error(row, method, quantity))

    series = [
        (method, reader(figures, method), style) for (figures, method), style in zip(methods, styles, strict=True)
    ]
    _rows_plot(path, rows, series, label)


def _null_plot(path: Path, figures: Figures) -> None:
    method = figures.names("method")[0]
    rows = sorted(figures.names("row"), key=_question)
    quantities = [name for name in figures.names("quantity") if name.endswith("0.05")]
    canvas, axes = _axes(1.2 + 0.32 * len(rows))
    axes.axvspan(0.038, 0.062, color="#e8f1f8", zorder=0)
    axes.axvline(0.05, color=_OTHER, linewidth=1)
    for number, (quantity, style) in enumerate(zip(quantities, _styles(3, 3), strict=True)):
        for place, row in enumerate(rows):
            mean, error = figures.mean(row, method, quantity), figures.error(row, method, quantity)
            if mean == mean:
                axes.errorbar(
                    mean,
                    place + 0.22 * (number - 1),
                    xerr=2 * error,
                    markersize=4.5,
                    label=quantity.removesuffix(" at 0.05") if place == 0 else None,
                    **style,
                )
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0.0, None)
    axes.set_xlabel("rejected share of the selected null features at level 0.05 (± 2 standard errors)")
    canvas.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    canvas.savefig(path, dpi=130)


def _intervals_plot(path: Path, figures: Figures) -> None:
    methods, rows = figures.names("method"), figures.names("row")
    lines = [(row, method) for row in rows for method in methods if (row, method, "k=30 true") in figures.by_key]
    canvas, axes = _axes(1.2 + 0.24 * len(lines))
    axes.axvspan(0.93, 0.97, color="#e8f1f8", zorder=0)
    axes.axvline(0.95, color=_OTHER, linewidth=1)
    for name, colour, marker, shift in (("true", _OWN, "o", -0.12), ("null", "#d95f02", "s", 0.12)):
        for place, (row, method) in enumerate(lines):
            mean, error = figures.mean(row, method, f"k=30 {name}"), figures.error(row, method, f"k=30 {name}")
            if mean == mean:
                label = f"{name} features" if place == 0 else None
                axes.errorbar(mean, place + shift, 0, 2 * error, color=colour, marker=marker, markersize=4, label=label)
    axes.set_yticks(range(len(lines)), [f"{row}: {method}" for row, method in lines], fontsize=7)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlabel("coverage of 95% intervals, k = 30 (± 2 standard errors)")
    canvas.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    canvas.savefig(path, dpi=130)


# --- the page ---------------------------------------------------------------------------------------------------------

_INTRODUCTION = """# How much power

What the tests find, how often they err, and how that compares with what else one could run. Everything on this page
comes from `make power`, which takes about a quarter of an hour on two idle cores; seeds are fixed, so the figures come
out the same again. The tables behind it are the CSV files in [power/](power/).

In short:

- **Use the defaults** (`estimator="complete"`, `test="exact"`, adaptive bandwidth) unless there is a reason not to.
  They use every row, need no permutations, and look at each feature twice, with a wide and a narrow kernel.
- **Who wants every feature's answer** says `k=None`. Nothing is selected, and BH runs over all features.
- **Who wants the best few** says `k`. Selecting first costs a few percent of power at most where k is well above the
  number of true features. If nobody knows k, `threshold=1` keeps every feature whose score is a standard deviation
  above what chance gives, and k then follows from the data; the p-values know about either rule.
- **A mean shift between two normal samples** is what a t-test is made for, and the default stays within a percent or
  two of it. Everything else (spread, tails, modes, skew) is invisible to it.
"""


def write_page(folder: Path) -> None:
    """docs/power.md beside the folder of figures; sections without figures are left out."""
    figures = {part: Figures(folder / f"{part}.csv") for part in ("bh", "peers", "paper", "null", "intervals")}
    sections = [_INTRODUCTION]
    if figures["bh"].lines:
        own, peers = figures["bh"], figures["peers"]
        sections.append(_bh_section(own, peers))
        shown = [name for name in peers.names("method") if "q=0.05" not in name]
        groups = [(own, own.names("method")[:3]), (peers, shown)]
        _power_plot(folder / "bh.png", groups, "tpr", 3, "share of the ten true features found (± 2 standard errors)")
    if figures["paper"].lines:
        paper = figures["paper"]
        sections.append(_paper_section(paper))
        label = "true positive rate among the selected (± 2 standard errors)"
        _power_plot(folder / "paper.png", [(paper, paper.names("method"))], "tpr", 3, label)
    if figures["null"].lines:
        sections.append(_null_section(figures["null"]))
        _null_plot(folder / "null.png", figures["null"])
    if figures["intervals"].lines:
        sections.append(_intervals_section(figures["intervals"]))
        _intervals_plot(folder / "intervals.png", figures["intervals"])
    (folder.parent / "power.md").write_text("\n".join(sections), encoding="utf-8")
