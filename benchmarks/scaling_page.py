"""docs/scaling.md from the runs on record: docs/scaling/runs.json of scaling.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measure import conditions
from scaling_model import BLOCKS, ROWS, WITHIN, Check, Model, Models, Size, checks, fit, idle, others

from kernsift.estimators.block_sizes import _SHARE
from kernsift.experiments.studies import table

# Tables to predict: name, rows, columns, k.
ASKED = [("10^9 × 1,000", 1e9, 1e3, 50), ("10^6 × 30,000", 1e6, 3e4, 50)]
WORKERS = (1, 10, 100)
# Bytes a second: what one worker gets from storage that grows with them, what one file server has for all of them
# together, and what goes through the caller's network.
PER_WORKER, ONE_SERVER, NETWORK = 0.2e9, 1e9, 1e9
# Bytes for each row that the caller takes to draw the rows: four numbers of eight bytes for every second row, twice.
DRAWN = 32

_INTRODUCTION = """# Scaling

The cost of a comparison of tables in files: time, memory and bytes sent, as functions of the rows n (of both samples
together), the columns d, the selected features k and the workers w. The model below is fitted to measured runs
and checked on larger ones that were left out of the fit. `make scaling` repeats all of it in twenty minutes.

Every run reads Parquet files of doubles that were pushed out of the system's cache, within {memory} MB of memory, in a
process of its own; a worker is a process with one thread. "Processor seconds" are those of all processes together;
the predictions below use them, because they depend less on other load of the machine than wall-clock seconds.

{machine}.

{runs} runs; others used {others:.0%} of the processors meanwhile{clock}.
"""

_PREDICTIONS = """## Predictions for large tables

k = 50, and r = 1 for the incomplete estimator. Assumptions:

- **A worker** is one core like those of the machine above, with the memory that the table names. It is busy all the
  time: blocks are even, and no worker dies.
- **The caller** does what cannot be divided: drawing rows, reading the selected columns again, and the correlations of
  the selected features with all others.
- **Storage that grows with the workers** gives each of them {per_worker:.1f} GB/s, as disks of their own or an object
  store do. **One file server** has {server:.0f} GB/s for all. Reading and computing overlap, so the slower
  of the two counts.
- **The network** carries {network:.0f} GB/s in and out of the caller, through which all
  communication passes: results and not the table, as workers read their own files.
- Values are doubles that do not compress. These are extrapolations: no cost is assumed that matters only at
  sizes a thousand times larger than those measured, and times are those of busy processors.

{table}

*Memory, caller* is for its process, with at least {drawn} bytes for each row of the table where rows are drawn; *a
worker* is what `memory=` has to allow for one with a single thread, beside 0.3 GB for the process itself. The
incomplete estimator gathers rows of whole columns: a worker holds eight columns of all rows (64 bytes for each row) and
the rows that are drawn (8 bytes for each row of the table at r = 1), which have to fit into {share:.0%} of its memory.
With less it holds fewer columns at a time, down to one (16 bytes for each row in all), and takes several times as long
for each: a vector of numbers is then not filled. The complete one reads along the file and needs none of that.

Conclusions:

- With many rows take `estimator="complete"`: a worker's memory does not grow with them, at the price of two passes
  over the file. With 10^9 rows an incomplete estimator pays for `r=1` with a hundred gigabytes for each
  worker; most of that is columns, and `r=0.01` needs hardly less.
- With many columns either is suitable. The caller keeps about 100 kB for each feature.
- Beyond about ten workers a single file server is the bottleneck.
"""


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
    parts = ["## The model\n\nEach quantity is a sum of costs, each multiplied by the size in the second column.\n"]
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
    if any(key[0] == "seconds" for key in models):
        parts.append(
            "c is w on workers, and 1 for one process, which uses all cores of the machine. b is the number of blocks "
            "of columns\nthat are in memory one after the other: the fewer columns fit, the more of them. t is 1 where "
            "the draws that\ncorrelations come from (0.13 MB for each feature) do not fit into a fifth of the memory, "
            "or half of\na worker's, and columns are read twice.\n"
        )
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
    return f"""## The check

Runs left out of the fit, compared with the largest run that the model was fitted to:

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
    return _PREDICTIONS.format(
        table=table(head, rows),
        per_worker=PER_WORKER / 1e9,
        server=ONE_SERVER / 1e9,
        network=NETWORK / 1e9,
        share=_SHARE,
        drawn=DRAWN,
    )


def write_page(path: Path, record: Mapping[str, Any]) -> None:
    runs = record["runs"]
    models = fit(runs)
    introduction = _INTRODUCTION.format(
        memory=record["memory"] // 10**6,
        machine=conditions(record),
        runs=len(runs),
        others=others(runs),
        clock="" if idle(runs) else ", so wall-clock seconds are left out",
    )
    sections = [introduction, _model_section(models), _check_section(runs, checks(runs, models))]
    path.write_text("\n".join([*sections, _prediction_section(models)]))
