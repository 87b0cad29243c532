"""The figures and plots of docs/power.md, from what benchmarks/power.py has on record."""

from __future__ import annotations

from csv import DictReader
from pathlib import Path

from pages import DOCS, fill, table
from power_figures import Figures, power_plot
from regret_page import categories_parts, real_parts, regret_parts

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
_REPRODUCED = DOCS / "reproduction" / "summary.csv"


# --- sections ---------------------------------------------------------------------------------------------------------


def _table(figures: Figures, rows: list[str], quantity: str) -> str:
    """A quantity of every problem and method."""
    methods = figures.names("method")
    body = ([row, *(figures.shown(row, method, quantity) for method in methods)] for row in rows)
    return table(["problem", *methods], body)


def _bh_parts(own: Figures, peers: Figures) -> dict[str, str]:
    """Power, false discovery rates and times of kernsift and of other packages."""
    rows = own.names("row")
    seconds = (
        [method, *(f"{figures.mean(row, method, 'seconds'):.3f}" for row in rows)]
        for figures in (own, peers)
        for method in figures.names("method")
    )
    return {
        "power": f"{own.measured()}\n\n{_table(own, rows, 'tpr')}",
        "false discoveries": _table(own, rows, "fdr"),
        "power of others": f"{peers.measured()}\n\n{_table(peers, rows, 'tpr')}",
        "false discoveries of others": _table(peers, rows, "fdr"),
        "seconds": table(["seconds a call", *rows], seconds),
    }


def _paper_parts() -> dict[str, str]:
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
    return {"true positives": power, "false positives": wrong}


# --- the page ---------------------------------------------------------------------------------------------------------


def write_page(folder: Path) -> None:
    """Fill docs/power.md, next to the folder of figures, and draw its plots."""
    names = ("regret", "levels", "categories", "real", "bh", "peers")
    figures = {name: Figures(folder / f"{name}.csv") for name in names}
    own, peers = figures["bh"], figures["peers"]
    parts = regret_parts(figures["regret"], figures["levels"], folder) | categories_parts(figures["categories"])
    parts |= real_parts(figures["real"]) | _bh_parts(own, peers) | _paper_parts()
    fill(folder.parent / "power.md", parts)
    if own.lines:
        shown = [name for name in peers.names("method") if "q=0.05" not in name]
        power_plot(folder / "bh.png", (own, own.names("method")[:3]), (peers, shown))
