"""docs/power.md and its plots, from the figures that benchmarks/power.py has on record."""

from __future__ import annotations

from csv import DictReader
from pathlib import Path

from power_figures import Figures, power_plot
from regret_page import categories_section, real_section, regret_section

from kernsift.experiments.studies import table

# Problems of the reproduction that are shown here: artefact and setting.
_PAPER = {
    "mean shift 0.5, n=500": ("fig1", "n=500"),
    "logistic, n=500": ("fig3", "n=500"),
    "Pulsar + 30 fakes, n=100 a class": ("table1", "Pulsar"),
    "Heart + 30 fakes, n=138 a class": ("table1", "Heart"),
    "Wine + 30 fakes, n=100 a class": ("table1", "Wine"),
    "Pulsar + 30 fakes, n=100": ("table3", "Pulsar"),
    "Heart + 30 fakes, n=138": ("table3", "Heart"),
    "Wine + 30 fakes, n=200": ("table3", "Wine"),
}
_REPRODUCED = Path(__file__).resolve().parent.parent / "docs" / "reproduction" / "summary.csv"


# --- sections ---------------------------------------------------------------------------------------------------------


def _table(figures: Figures, rows: list[str], quantity: str) -> str:
    """A quantity of every problem and method."""
    methods = figures.names("method")
    body = ([row, *(figures.shown(row, method, quantity) for method in methods)] for row in rows)
    return table(["problem", *methods], body)


def _bh_section(own: Figures, peers: Figures) -> str:
    rows, methods = own.names("row"), own.names("method")
    others = peers.names("method")
    best, wrong, theirs, their_wrong = (
        _table(figures, rows, quantity) for figures in (own, peers) for quantity in ("tpr", "fdr")
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
({own.date()}). `k=None` tests every feature; `k=30` asks for a list of thirty.

{best}

False discovery rate of the same calls; BH promises 5% times the share of nulls, here 0.04:

{wrong}

Other packages on the same data ({peers.trials()} trials). Mutual information has no p-value here: its ten best
features are taken, which uses the number of true features, and its false discovery rate is the rest of the ten.
Knockoffs (Gaussian model-X, lasso coefficients) at q = 0.05 select at least twenty features or none, so with ten true
ones they select none; q = 0.1 is shown beside it. `f_classif` is the analysis of variance, the best test for a mean
shift, and without power where the means agree. "Multi" is the paper's test with k = 30, corrected by BH.

{theirs}

{their_wrong}

![Share of the true features found, by problem and method](power/bh.png)

"Variance × 1.5" and "standard deviation × 1.5" are two problems: a variance ratio of 1.5 changes the standard
deviation by 22%, which no test here finds often among fifty features with 200 rows; a ratio of 2.25 is found.

<details><summary>Time a call</summary>

Processor time of one thread, so that other work on the machine counts for little.

{seconds}

</details>
"""


def _paper_section() -> str:
    """True and false positive rates of the reproduction, and what the paper reports."""
    with _REPRODUCED.open(encoding="utf-8", newline="") as file:
        found = {
            (line["artefact"], line["setting"], line["method"], line["measure"]): line for line in DictReader(file)
        }

    def line_of(problem: str, method: str, measure: str) -> dict[str, str]:
        artefact, setting = _PAPER[problem]
        statistic = "MMD" if artefact in ("fig1", "table1") else "HSIC"
        return found[artefact, setting, f"{method}{statistic}-Inc" if method in ("Multi", "Poly") else method, measure]

    def shown(problem: str, method: str, measure: str) -> str:
        line = line_of(problem, method, measure)
        return f"{float(line['mean']):.3f} ± {float(line['standard_error']):.3f}"

    def reported(problem: str, method: str) -> str:
        return f"{float(line_of(problem, method, 'TPR')['paper']):.3f}"

    methods, theirs = ("Complete, exact", "Cross, exact", "Multi", "Poly"), ("Multi", "Poly")
    power = table(
        ["problem", *methods, *(f"{method}, as reported" for method in theirs)],
        ([row, *(shown(row, m, "TPR") for m in methods), *(reported(row, m) for m in theirs)] for row in _PAPER),
    )
    wrong = table(["problem", *methods], ([row, *(shown(row, m, "FPR") for m in methods)] for row in _PAPER))
    return f"""## The paper's experiments

Thirty features are selected and tested at level 0.05 without a correction. The true positive rate is the share of the
selected true features that is rejected, the false positive rate that of the selected null features (the paper's
appendix A). "Multi" and "Poly" are the paper's two tests, as its authors ran them. Samples have n rows each; with a
response n is the number of rows. The data sets have thirty standard normal columns added, and all their own columns
count as true. The figures are those of `kernsift reproduce`, which has more sizes and methods, and the reason for the
two numbers that differ: [](reproduction/README.md).

{power}

False positive rate:

{wrong}
"""


# --- the page ---------------------------------------------------------------------------------------------------------

_INTRODUCTION = """# How much power

What the tests find, how often they err, and how that compares with other tests. Everything but the last section comes
from `make power`; seeds are fixed, so that the figures come out the same again. The tables behind it are the CSV files
in [power/](power/), with the date of each figure: where a section has two dates, kernsift was measured again and some
of the other tests were not. Tests with the same number of trials have the same data. Error rates under the null and
the coverage of intervals are in [](calibration.md).
"""


def write_page(folder: Path) -> None:
    """docs/power.md, next to the folder of figures; sections without figures are left out."""
    parts = ("regret", "levels", "categories", "real", "bh", "peers")
    figures = {part: Figures(folder / f"{part}.csv") for part in parts}
    sections = [_INTRODUCTION]
    if figures["regret"].lines:
        sections.append(regret_section(figures["regret"], figures["levels"], folder))
    if figures["categories"].lines:
        sections.append(categories_section(figures["categories"]))
    if figures["real"].lines:
        sections.append(real_section(figures["real"]))
    if figures["bh"].lines:
        own, peers = figures["bh"], figures["peers"]
        sections.append(_bh_section(own, peers))
        shown = [name for name in peers.names("method") if "q=0.05" not in name]
        groups = [(own, own.names("method")[:3]), (peers, shown)]
        power_plot(folder / "bh.png", groups, "tpr", 3, "share of the ten true features found (± 2 standard errors)")
    sections.append(_paper_section())
    (folder.parent / "power.md").write_text("\n".join(sections), encoding="utf-8")
