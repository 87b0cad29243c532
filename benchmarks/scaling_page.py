"""The figures of docs/scaling.md, from the runs on record: docs/scaling/runs.json of scaling.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measure import conditions
from pages import fill, table
from scaling_model import BLOCKS, ROWS, WITHIN, Check, Model, Models, Size, checks, fit, idle, others

from kernsift.estimators.block_sizes import _SHARE

# What follows is assumed; the page says so in words. Tables to predict: name, rows, columns, k.
ASKED = [("10^9 × 1,000", 1e9, 1e3, 50), ("10^6 × 30,000", 1e6, 3e4, 50)]
WORKERS = (1, 10, 100)
# Bytes a second: what one worker gets from storage that grows with them, what one file server has for all of them
# together, and what goes through the caller's network.
PER_WORKER, ONE_SERVER, NETWORK = 0.2e9, 1e9, 1e9
# Bytes for each row that the caller takes to draw the rows: four numbers of eight bytes for every second row, twice.
DRAWN = 32


def in_units(value: float, units: Mapping[str, float], rest: str, scale: float = 1.0, times: float = 1.0) -> str:
    """Three digits in the largest unit of which there are at least `times`, or in the `rest`."""
    unit = next((unit for unit, size in units.items() if value >= times * size), None)
    return f"{value / units[unit]:.3g} {unit}" if unit else f"{value * scale:.3g} {rest}"


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return in_units(seconds, {"d": 86400.0, "h": 3600.0, "min": 60.0}, "s", times=2.0)


def amount(number: float) -> str:
    return in_units(number, {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3}, "B")


def small(seconds: float) -> str:
    return in_units(seconds, {"s": 1.0, "ms": 1e-3, "µs": 1e-6}, "ns", 1e9)


def shown(quantity: str, value: float) -> str:
    return (small if quantity in ("seconds", "processors") else amount)(value) if value else "0"


# The model -----------------------------------------------------------------------------------------------------------

_TITLES = {
    "processors": "Processor seconds",
    "seconds": "Wall-clock seconds",
    "read": "Bytes read from files",
    "peak": "Peak memory of all processes",
    "moved": "Bytes between processes",
}


def _model_section(models: Models) -> str:
    parts = []
    for quantity, title in _TITLES.items():
        kinds = {key: model for key, model in models.items() if key[0] == quantity}
        if not kinds:
            continue
        rows: dict[tuple[str, str], dict[tuple[str, str, bool], str]] = {}
        for key, model in kinds.items():
            for coefficient, (name, size, _) in zip(model.coefficients, model.terms, strict=True):
                rows.setdefault((name, size), {})[key] = shown(quantity, coefficient)
        head = ["", "times", *(_where(key) for key in kinds)]
        body = [[name, size or "1", *(found.get(key, "") for key in kinds)] for (name, size), found in rows.items()]
        worst = ["largest error of a fitted run", "", *(f"{abs(model.errors).max():.0%}" for model in kinds.values())]
        parts.append(f"**{title}**\n\n{table(head, [*body, worst])}\n")
    return "\n".join(parts)


def _where(key: tuple[str, str, bool]) -> str:
    return f"{key[1]}, {'workers' if key[2] else 'one process'}"


# The check -----------------------------------------------------------------------------------------------------------


def _check_section(runs: Sequence[Size], found: Sequence[Check]) -> str:
    held_out = dict.fromkeys((run["n"], run["d"], run["k"]) for run in runs if run.get("held_out"))
    most = max(run["n"] * run["d"] for run in runs if not run.get("held_out"))
    sizes = "\n".join(
        f"- n = {n:,}, d = {d:,}, k = {k}: {n * d / most:.1f} times as many cells" for n, d, k in held_out
    )
    inside = sum(check.within for check in found)
    rows = [
        [
            check.name,
            shown(check.quantity, check.predicted),
            shown(check.quantity, check.measured),
            f"{check.off:+.0%}",
            "" if check.within else "**MISSED**",
        ]
        for check in found
    ]
    return f"""Runs left out of the fit, compared with the largest run that the model was fitted to:

{sizes}

{inside} of {len(found)} predictions are within {WITHIN:.0%}.

{table(["", "predicted", "measured", "off by", ""], rows)}
"""


# Predictions ---------------------------------------------------------------------------------------------------------


def predicted(models: Models, estimator: str, size: Size) -> dict[str, float]:
    """Seconds with storage of either kind, and bytes, on workers with memory for a block of a line of columns."""
    least = 72 * size["n"] / _SHARE if estimator == "incomplete" else 0.0
    size = {**size, "memory": max(0.1e9, least)}
    work: Model = models["processors", estimator, True]
    there = {"n d", "d", "n b", "n d t"}
    parts = {term[1]: c * term[2](size) for c, term in zip(work.coefficients, work.terms, strict=True)}
    divided = sum(value for what, value in parts.items() if what in there) / size["workers"]
    alone = sum(value for what, value in parts.items() if what not in there)
    read, moved = models["read", estimator, True](size), models["moved", estimator, True](size)
    memory: Model = models["peak", estimator, False]
    # The caller reads no blocks where workers do; the rows that it draws take what they take, whatever was fitted.
    costs = {term[0]: c for c, term in zip(memory.coefficients, memory.terms, strict=True)}
    caller = sum(costs[term[0]] * term[2](size) for term in memory.terms if term is not BLOCKS)
    caller += max(0.0, DRAWN - costs[ROWS[0]]) * size["n"] if estimator == "incomplete" else 0.0
    return {
        "seconds": alone + max(divided, read / (PER_WORKER * size["workers"])) + moved / NETWORK,
        "one server": alone + max(divided, read / ONE_SERVER) + moved / NETWORK,
        "caller": caller,
        "worker": size["memory"],
        "read": read,
        "moved": moved,
    }


def _prediction_section(models: Models) -> str:
    rows = []
    for estimator in dict.fromkeys(key[1] for key in models):
        for asked, n, d, k in ASKED:
            for workers in WORKERS:
                found = predicted(models, estimator, {"n": n, "d": d, "k": k, "workers": workers})
                times = [duration(found[name]) for name in ("seconds", "one server")]
                sizes = [amount(found[name]) for name in ("caller", "worker", "read", "moved")]
                rows.append([f"{asked}, {estimator}", str(workers), *times, *sizes])
    head = ["", "workers", "time, storage grows", "time, one server", "memory, caller", "a worker", "read", "moved"]
    return table(head, rows)


def write_page(path: Path, record: Mapping[str, Any]) -> None:
    """Fill the page."""
    runs = record["runs"]
    models = fit(runs)
    clock = "" if idle(runs) else ", so wall-clock seconds are left out"
    about = f"{len(runs)} runs; others used {others(runs):.0%} of the processors meanwhile{clock}."
    parts = {
        "runs": f"{conditions(record)}.\n\n{about}",
        "model": _model_section(models),
        "check": _check_section(runs, checks(runs, models)),
        "predictions": _prediction_section(models),
    }
    fill(path, parts)
