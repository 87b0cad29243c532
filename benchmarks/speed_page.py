"""docs/speed.md from the figures on record: docs/speed/cpu.json of bench.py and docs/speed/gpu.json of gpu.py."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measure import conditions
from speed_rows import Row, goal, shown, shown_ratio

from kernsift.experiments.studies import table

_INTRODUCTION = """# How fast

Time and memory of calls, compared with other ways to do the same. Machines differ and are noisy, so everything is
measured in one run on one machine and reported as ratios: calls that are compared take turns after a warm-up, and a
ratio is the median over the turns. Memory is what a call adds, at its peak, to a fresh process that holds its input.

    make bench                                             # everything, with a table at the end
    python benchmarks/bench.py --quick                     # neither growth nor the large tables
    python benchmarks/bench.py scores calls                # some parts
    python benchmarks/bench.py --growth --record           # a run to keep, in benchmarks/history.jsonl
    python benchmarks/bench.py --page docs/speed.md        # this page, from the run that was kept last
    python benchmarks/gpu.py --json docs/speed/gpu.json    # on a machine with a GPU: agreement with NumPy, then times

Every run is compared with the last one on the same kind of machine in `benchmarks/history.jsonl`, and lists the rows
that became more than 25% slower. Times are kept there in units of a yardstick, a few milliseconds of NumPy's `exp` and
`sort` that take turns with the calls.
"""

_READING = """How to read it:

- *compared with*: the ratio is measured time over that one's time; 1/150 means 150 times faster.
- *scores*: the incomplete estimators need 4 (MMD) or 6 (HSIC) values of `exp` a draw and feature. "exp in cache" is
  NumPy's `exp` for as many values on blocks that stay in cache, "exp on arrays" the same number as `np.exp(a, out=b)`
  on arrays as large as the table, both on all cores. The first is the stricter.
- *authors' code*: seconds of the paper's published code for the same call, measured on another machine.
- *scatter of multiscale p-values*: how much a p-value varies with the seed, here and in the authors'
  procedure, which draws its replicates anew at each scale. Root mean squares over the selected features.
- *large, wide, growth*: n counts all rows; two samples have half of them each.
- *growth*: exponents b of time ~ size^b, end to end over the whole range, and fitted by least squares without the
  smallest size, where fixed costs dominate.
- *processors*: NumPy sorts with AVX-512 where the processor has it. On AMD's Zen 4 its sort for AVX2 is two to four
  times as fast. With `NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL"` (the names in NumPy 2.4, see `np.show_config()`)
  set before Python starts, calls took this share of the processor time on such a machine: 0.76 (compare complete,
  n=5,000 d=400), 0.8 (large, k=None), 0.82 (compare incomplete, n=1,000 d=50), 0.91 (relate complete, n=500 d=50). All
  figures above are without it. The last digits of results may differ.
"""


# --- CPU --------------------------------------------------------------------------------------------------------------


def _cpu_section(run: Mapping[str, Any]) -> str:
    rows = [Row.from_dict(dict(fields)) for fields in run["rows"]]
    wanted = [row for row in rows if row.reached is not None]
    reached = sum(bool(row.reached) for row in wanted)
    parts = dict.fromkeys(row.part for row in rows)
    tables = [
        f"### {part[0].upper()}{part[1:]}\n\n{_cpu_table([row for row in rows if row.part == part])}\n"
        for part in parts
    ]
    gone = "\n".join(f"- {fields['part']}: {fields['name']}: {fields['why']}" for fields in run["left_out"])
    left_out = f"Left out of this run:\n\n{gone}\n" if gone else ""
    head = ["## On CPUs\n", f"{conditions(run)}.\n", f"**{reached} of {len(wanted)} goals are reached.**\n"]
    return "\n".join([*head, *tables, left_out, _READING])


def _cpu_table(rows: Sequence[Row]) -> str:
    head = ["", "measured", "compared with", "its figure", "ratio", "to reach", "", "peak memory"]
    body = (
        [
            row.name,
            shown(row.value, row.unit),
            row.against,
            shown(row.other, row.unit),
            shown_ratio(row.ratio),
            goal(row),
            f"**{row.verdict}**" if row.reached is False else row.verdict,
            shown(row.peak_mb, "MB"),
        ]
        for row in rows
    )
    notes: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.note:
            notes.setdefault(row.note, {})[row.name] = None
    lines = [f"- {', '.join(names)}: {note}" for note, names in notes.items()]
    listed = "\n\n" + "\n".join(lines) if lines else ""
    return table(head, body) + listed


# --- GPU --------------------------------------------------------------------------------------------------------------


def gpu_section(run: Mapping[str, Any]) -> str:
    wrong = [check for check in run["checks"] if not check["agrees"]]
    agreement = (
        f"{len(run['checks']) - len(wrong)} of {len(run['checks'])} combinations of question, estimator, kernel or "
        "design, and precision give NumPy's answer (scores to 1e-6 in float64 and 1e-3 in float32, and the same "
        "features selected)."
    )
    if wrong:
        agreement += "\n\nThese do not:\n\n" + "\n".join(f"- {check['name']}: {check['why']}" for check in wrong)
    ceilings = table(
        ["what the device can do", ""], ([c["name"], f"{c['rate']:.3g} {c['unit']}"] for c in run["ceilings"])
    )
    calls = table(
        ["call", "seconds", "to reach", "", "peak device memory", "least time by its limits"],
        (
            [
                call["name"],
                f"{call['seconds']:.3f}",
                f"≤ {call['most']:.3g}" if call["most"] else "",
                "" if not call["most"] else "reached" if call["seconds"] <= call["most"] else "**MISSED**",
                f"{call['peak_gb']:.1f} GB" if call["peak_gb"] is not None else "",
                "; ".join(
                    f"{limit['name']} {limit['seconds']:.3f} s ({limit['share']:.0%})" for limit in call["limits"]
                ),
            ]
            for call in run["calls"]
        ),
    )
    stages = "\n\n".join(
        f"{call['name']}, by stages: "
        + ", ".join(f"{stage['name']} {stage['seconds']:.3f} s" for stage in call["stages"])
        + "."
        for call in run["calls"]
    )
    work = "\n\n".join(_work(call) for call in run["calls"])
    return f"""## On GPUs

{conditions(run)}.

{agreement}

{ceilings}

{calls}

"Least time" is what the call would take at the measured ceiling if it did nothing but that; the share is how much of
the time that is.

{stages}

{work}
"""


def _work(call: Mapping[str, Any]) -> str:
    """What the device was busy with, and at what share of its ceilings."""
    kinds = {kind["name"]: kind["seconds"] for kind in call["device_work"]}
    busy = sum(kinds.values())
    listed = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in kinds.items())
    met = "; ".join(f'{kind["name"]} at {kind["share"]:.0%} of the ceiling "{kind["ceiling"]}"' for kind in call["met"])
    said = f" Shares of what the device can do: {met}." if met else ""
    return (
        f"{call['name']}: the device is busy for {busy:.2f} of {call['seconds']:.2f} s (torch's profiler): {listed}."
        f"{said} The other {1 - busy / call['seconds']:.0%} is the host: starting kernels, null laws, the test."
    )


# --- the page ---------------------------------------------------------------------------------------------------------


def write_page(page: Path, folder: Path) -> None:
    """The page, with a section for every run on record."""
    sections = [_INTRODUCTION]
    for name, section in (("cpu", _cpu_section), ("gpu", gpu_section)):
        path = folder / f"{name}.json"
        if path.exists():
            sections.append(section(json.loads(path.read_text(encoding="utf-8"))))
    if len(sections) == 1:
        sections.append("No run is on record yet.\n")
    page.write_text("\n".join(sections), encoding="utf-8")
