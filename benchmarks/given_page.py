"""The tables of docs/given.md, from the records of `benchmarks/given.py`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from pages import fill, span, table
from scipy.stats import binom


def _cell(known: pd.DataFrame, name: str) -> str:
    """A share with its standard error; empty for a test that was not run."""
    if name not in known.index:
        return ""
    row = known.loc[name]
    return f"{row.value:.3f} ± {row.sd / row.trials**0.5:.3f}"


def _levels(records: pd.DataFrame) -> str:
    """Methods side by side, the share of data sets with a warning, and where kernsift is clearly above KCI.

    Methods that were run in fewer than half of the rows have a table of their own.
    """
    settings = [(setting, own.set_index("method")) for setting, own in records.groupby(["case", "n", "p"], sort=False)]
    runs = records.method.value_counts()
    methods = list(dict.fromkeys(records.method))
    common, rare = ([name for name in methods if (runs[name] < len(settings) / 2) == few] for few in (False, True))
    lines, rare_lines, above, both = [], [], [], 0
    for (case, n, p), known in settings:
        row = [str(case), f"{n:,}", str(p)]
        cells = [_cell(known, name) for name in common]
        lines.append([*row, *cells, f"{known.note['kernsift']:.2f}", str(known.trials["kernsift"])])
        if any(name in known.index for name in rare):
            rare_lines.append([*row, *(_cell(known, name) for name in rare)])
        if "KCI" in known.index:
            both += 1
            difference = known.value["kernsift"] - known.value["KCI"]
            if difference > 2 * (known.sd**2 / known.trials)[["kernsift", "KCI"]].sum() ** 0.5:
                above.append(f"{', '.join(row)} confounders (by {difference:.3f})")
    head = ["case", "n", "confounders"]
    said = "; ".join(above) if above else "none"
    return "\n\n".join(
        [
            table([*head, *common, "warned", "data sets"], lines),
            f"Rows in which kernsift is above KCI by more than two standard errors, of {both}: {said}.",
            *([table([*head, *rare], rare_lines)] if rare else []),
        ]
    )


def _power(records: pd.DataFrame) -> str:
    """Methods side by side, and how far kernsift is behind the best of those whose level holds."""
    methods = list(dict.fromkeys(records.method))
    null = {
        (case.split(", ")[1], n, p): own.set_index("method")
        for (case, n, p), own in records.groupby(["case", "n", "p"], sort=False)
        if case.endswith(", 0")
    }
    lines = []
    for (case, n, p), own in records.groupby(["case", "n", "p"], sort=False):
        known, levels = own.set_index("method"), null.get((case.split(", ")[1], n, p))
        behind = ""
        if levels is not None and not case.endswith(", 0"):
            found = (levels.value * levels.trials).round()
            holds = dict(zip(levels.index, binom.sf(found - 1, levels.trials, 0.07) > 0.05, strict=True))
            valid = [name for name in methods[1:] if holds.get(name, False) and name in known.index]
            behind = f"{known.value[valid].max() - known.value['kernsift']:+.3f} ({', '.join(valid)})" if valid else "-"
        adjusted = {} if case.endswith(", 0") else known.adjusted.dropna().to_dict()
        size_adjusted = ", ".join(f"{name} {share:.3f}" for name, share in adjusted.items() if len(adjusted) > 1)
        cells = [_cell(known, name) for name in methods]
        lines.append([str(case), f"{n:,}", str(p), *cells, behind, size_adjusted])
    return table(["case", "n", "confounders", *methods, "best valid peer ahead by", "size-adjusted"], lines)


def _times(records: pd.DataFrame) -> str:
    lines = []
    for (case, n), own in records.groupby(["case", "n"], sort=False):
        known = own.set_index("method").value
        ratio = f"{known['KCI'] / known['kernsift']:,.0f}" if "KCI" in known else ""
        seconds = [f"{known[name]:.3g}" if name in known else "" for name in ("kernsift", "KCI")]
        lines.append([str(case), f"{n:,}", *seconds, ratio])
    return table(["seconds for", "n", "kernsift", "KCI", "ratio"], lines)


def _distinct(records: pd.DataFrame) -> str:
    lines = [
        [row.case, row.method, f"{row.value:.2f}", f"{row.note:.2f}", str(row.trials)] for row in records.itertuples()
    ]
    return table(["problem", "method", "precision", "recall", "data sets"], lines)


def _survival(records: pd.DataFrame) -> str:
    methods = list(dict.fromkeys(records.method))
    lines = []
    for case, own in records.groupby("case", sort=False):
        known = own.set_index("method")
        lines.append([str(case), *(f"{known.value[name]:.3f}" for name in methods)])
    return table(["hazard, censored", *methods], lines)


def write_page(folder: Path) -> None:
    """Fill docs/given.md, next to the folder of records."""
    parts = {"levels": _levels, "power": _power, "seconds": _times, "survival": _survival, "distinct": _distinct}
    found = {}
    for name, rows in parts.items():
        records = pd.read_csv(folder / f"{name}.csv")
        own = records[records.method.str.startswith("kernsift")].trials
        count = f"{own.min()} to {own.max()}" if own.min() < own.max() else f"{own.max()}"
        fewer = ", slow tests on fewer" if records.trials.min() < own.min() else ""
        measured = f"Measured {span(records.date)}; kernsift on {count} data sets a row{fewer}."
        found[name] = "\n\n".join([rows(records), *([measured] if name != "seconds" else [])])
    fill(folder.parent / "given.md", found)
