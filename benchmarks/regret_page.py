"""The parts of docs/power.md on the regret study, on categories and on real data sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from category_shapes import SHAPES as SHAPES_OF_CATEGORIES
from category_shapes import methods_of
from pages import table
from power_figures import Figures, axes_of
from real_columns import DATA_SETS, METHODS
from regret import OWN
from shapes import ROWS, SHAPES, Shape

_SLOW = "MGC"


@dataclass(frozen=True)
class Row:
    """The powers of one shape at one n, by method."""

    shape: Shape
    n: int
    powers: dict[str, float]
    error: float

    @property
    def peers(self) -> dict[str, float]:
        """The other tests with all trials: a test with few of them would be best by chance too often."""
        return {name: value for name, value in self.powers.items() if name not in (OWN, _SLOW)}

    @property
    def best(self) -> str:
        return max(self.peers, key=self.peers.__getitem__)

    @property
    def regret(self) -> float:
        return self.peers[self.best] - self.powers[OWN]


def rows_of(figures: Figures) -> list[Row]:
    """The rows for which kernsift and another test have figures."""
    rows, methods = [], figures.names("method")
    for key, shape in SHAPES.items():
        for n in ROWS:
            name = f"{key}, n={n}"
            known = figures.means(name, "power", methods)
            if OWN in known and known.keys() - {OWN, _SLOW}:
                rows.append(Row(shape, n, known, figures.error(name, OWN, "power")))
    return rows


def _largest(rows: Sequence[Row], count: int = 1) -> list[Row]:
    return sorted(rows, key=lambda row: -row.regret)[:count]


def _said(row: Row) -> str:
    return (
        f"{row.regret:.2f} ({row.shape.name}, n={row.n}: {row.best} {row.powers[row.best]:.2f}, {row.powers[OWN]:.2f})"
    )


def _powers_table(rows: Sequence[Row], figures: Figures) -> str:
    methods = [name for name in figures.names("method") if any(name in row.powers for row in rows)]

    def shown(row: Row, method: str) -> str:
        if method not in row.powers:
            return "–"
        text = f"{row.powers[method]:.2f}"
        return f"**{text}**" if method == row.best else text

    body = (
        [
            row.shape.name,
            f"{row.shape.amplitudes[row.n]:g}",
            str(row.n),
            *(shown(row, method) for method in methods),
            f"{row.regret:+.2f}",
        ]
        for row in rows
    )
    return table(["shape", "a", "n", *methods, "regret"], body)


def _means_table(rows: Sequence[Row]) -> str:
    """Mean power of each test, and kernsift's over the same shapes, all of them and the monotone ones."""
    names = list(dict.fromkeys(name for row in rows for name in row.powers if name != OWN))
    body = []
    for name in names:
        line = [name]
        for among in (rows, [row for row in rows if row.shape.monotone]):
            mine = [row for row in among if name in row.powers]
            theirs, own = (np.mean([row.powers[m] for row in mine]) if mine else np.nan for m in (name, OWN))
            line += [str(len(mine)), f"{theirs:.2f}", f"{own:.2f}", f"{own - theirs:+.2f}"]
        body.append(line)
    head = ["cells", "mean power", "kernsift", "ahead by"]
    return table(["test", *head, *(f"{name}, monotone" for name in head)], body)


def _slow_sentence(figures: Figures) -> str:
    """Where MGC, which has few trials, is ahead of kernsift on the same trials."""
    leads = [line for line in figures.lines if (line.method, line.quantity) == (_SLOW, "lead")]
    if not leads:
        return ""
    ahead = [f"{one.row} ({one.mean:+.2f} ± {one.error:.2f})" for one in leads if one.mean > 2 * one.error > 0]
    mean = np.mean([one.mean for one in leads])
    said = "; ".join(ahead) if ahead else "no shape"
    trials = leads[0].trials
    sizes = " and ".join(dict.fromkeys(one.row.rpartition("n=")[2] for one in leads))
    return (
        f"MGC has {trials} trials at n = {sizes} and is left out of the regrets. On the same trials its power less\n"
        f"that of kernsift is {mean:+.2f} on average; it is ahead by more than two standard errors on {said}."
    )


def _levels_table(levels: Figures) -> str:
    """Smallest and largest rejection rate of each test over the shapes' nulls."""
    body = []
    for method in levels.names("method"):
        found = [line for line in levels.lines if (line.method, line.quantity) == (method, "power")]
        rates, top = [line.mean for line in found], max(found, key=lambda line: (line.mean, line.error, line.row))
        where = top.row.partition(", n=")[0]
        body.append([method, f"{np.mean(rates):.3f}", f"{min(rates):.3f}", f"{top.mean:.3f} ± {top.error:.3f}", where])
    return table(["test", "mean level", "lowest", "highest", "of"], body)


def regret_parts(figures: Figures, levels: Figures, folder: Path) -> dict[str, str]:
    every = rows_of(figures)
    rows, skewed = ([row for row in every if row.shape.skewed is flag] for flag in (False, True))
    if every:
        _regret_plot(folder / "regret.png", every)
    return {
        "regret": _largest_regrets(figures, rows, skewed) if rows else "",
        "means": f"{_means_table(rows)}\n\n{_slow_sentence(figures)}",
        "numeric": _powers_table([row for row in rows if row.shape.question == "numeric"], figures),
        "samples": _powers_table([row for row in rows if row.shape.question == "samples"], figures),
        "skewed": _powers_table(skewed, figures),
        "levels": f"{levels.measured()}\n\n{_levels_table(levels)}",
    }


def _largest_regrets(figures: Figures, rows: Sequence[Row], skewed: Sequence[Row]) -> str:
    """The largest regrets over all shapes, over the monotone ones and over the skewed ones."""
    groups = {
        "Largest regret over the shapes of the first two tables and n": rows,
        "Over the monotone ones of them": [row for row in rows if row.shape.monotone],
        "Over skewed and heavy-tailed columns, in the third table": skewed,
    }
    lines = [f"- **{name}:** {_said(_largest(among)[0])}." for name, among in groups.items() if among]
    listed = "\n".join(f"- {_said(row)}" for row in _largest(rows, 8))
    own = np.mean([row.powers[OWN] for row in rows])
    about = (
        f"{figures.measured()} At n = 200 and a power of 0.7 a standard error is {_standard_error(figures):.3f}, and "
        "the best of several\ntests is above its true power by about that. "
        f"Mean power of kernsift over all {len(rows)} cells: {own:.2f}."
    )
    head = "The largest regrets (best other test and its power, then kernsift's):"
    return "\n\n".join([about, "\n".join(lines), head, listed])


def _standard_error(figures: Figures) -> float:
    return float(np.sqrt(0.7 * 0.3 / max(line.trials for line in figures.lines)))


def _regret_plot(path: Path, rows: Sequence[Row]) -> None:
    """A line a shape, a pair of markers an n: kernsift's power and the best other test's."""
    names = list(dict.fromkeys((row.shape.question, row.shape.name) for row in rows))
    canvas, axes = axes_of(1.2 + 0.36 * len(names))
    for place, n in enumerate(ROWS):
        mine = [row for row in rows if row.n == n]
        at = [names.index((row.shape.question, row.shape.name)) + 0.25 * (place - 1) for row in mine]
        own, best = [row.powers[OWN] for row in mine], [row.powers[row.best] for row in mine]
        axes.hlines(at, own, best, color="#c8c8c8", linewidth=1.5, zorder=1)
        size = 14 + 12 * place
        axes.scatter(own, at, s=size, color="#1b6ca8", zorder=2, label=f"kernsift, n={n}")
        axes.scatter(best, at, s=size, marker="D", color="#d95f02", zorder=2, label=f"best other test, n={n}")
    axes.set_yticks(range(len(names)), [f"{name} ({question})" for question, name in names], fontsize=8)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel("power at level 0.05")
    canvas.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    canvas.savefig(path, dpi=130)


# --- categories -------------------------------------------------------------------------------------------------------


def categories_parts(figures: Figures) -> dict[str, str]:
    """The power on every change of categories, and the largest regrets."""
    parts: dict[str, list[list[str]]] = {"samples": [], "numbers": [], "classes": []}
    regrets = []
    for row in figures.names("row"):
        name, _, n = row.rpartition(", n=")
        shape, methods = SHAPES_OF_CATEGORIES[name], methods_of(name)
        powers = figures.means(row, "power", methods)
        theirs = {method: power for method, power in powers.items() if method != OWN}
        if OWN not in powers or not theirs:
            continue
        best = max(theirs, key=theirs.__getitem__)
        regret = theirs[best] - powers[OWN]
        regrets.append((regret, f"{regret:.2f} ({row}: {best} {theirs[best]:.2f}, {powers[OWN]:.2f})", best))
        texts = {method: f"{power:.2f}" for method, power in powers.items()} | {best: f"**{powers[best]:.2f}**"}
        shown = [texts.get(method, "–") for method in methods]
        parts[shape.response].append([name, f"{shape.amplitudes[int(n)]:g}", n, *shown, f"{regret:+.2f}"])
    largest = ""
    if regrets:
        others = [found for found in regrets if found[2] != "G test"] or regrets
        largest = f"{figures.measured()} **Largest regret:** {max(regrets)[1]}."
        if max(others) != max(regrets):
            largest += f"\n**Where the best other test is not the G test:** {max(others)[1]}."
    return {"categories": largest} | {
        f"categories, {kind}": table(["change", "a", "n", *methods_of(rows[0][0]), "regret"], rows) if rows else ""
        for kind, rows in parts.items()
    }


# --- real data sets ---------------------------------------------------------------------------------------------------


def _real_table(figures: Figures, names: Iterable[str], numeric: bool, quantity: str) -> str:
    methods = METHODS[numeric]
    body = []
    for name in names:
        means = figures.means(name, quantity, methods)
        theirs = {method: mean for method, mean in means.items() if method != OWN}
        best = max(theirs, key=theirs.__getitem__, default="")
        line = [name]
        for method in methods:
            text = f"{means[method]:.3f}" if method in means else "–"
            line.append(f"**{text}**" if method == best and quantity == "found" else text)
        if quantity == "found":
            behind = theirs[best] - means.get(OWN, np.nan) if best else np.nan
            error = figures.error(name, best, "lead")
            leads = [f"{behind:+.3f}" + ("" if np.isnan(error) else f" ± {error:.3f}")]
            if not numeric:
                leads.append(f"{max((figures.mean(name, one, 'lead, exact') for one in theirs), default=np.nan):+.3f}")
            line += ["–" if lead == "+nan" else lead for lead in leads]
        body.append(line)
    more = ["best other less kernsift", *([] if numeric else ["with exact p-values"])] if quantity == "found" else []
    return table(["data set", *methods, *more], body)


def real_parts(figures: Figures) -> dict[str, str]:
    recorded = figures.names("row")
    kinds = {numeric: [name for name in recorded if DATA_SETS[name].numeric == numeric] for numeric in (False, True)}
    absent = [name for name in DATA_SETS if name not in recorded]
    missing = f" Not available for this run: {', '.join(absent)}." if absent else ""
    wrong = (_real_table(figures, names, numeric, "fdr") for numeric, names in kinds.items())
    return {
        "real": figures.measured() + missing,
        "real, classes": _real_table(figures, kinds[False], False, "found"),
        "real, numbers": _real_table(figures, kinds[True], True, "found"),
        "shuffled": "\n\n".join(wrong),
    }
