"""The figures of docs/speed.md: docs/speed/cpu.json of bench.py and docs/speed/gpu.json of gpu.py."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measure import conditions
from pages import fill, table
from speed_rows import Row, goal, shown, shown_ratio

# --- CPU --------------------------------------------------------------------------------------------------------------


def cpu_section(run: Mapping[str, Any]) -> str:
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
    head = [f"{conditions(run)}.\n", f"**{reached} of {len(wanted)} goals are reached.**\n"]
    return "\n".join([*head, *tables, left_out])


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
    return f"""{conditions(run)}.

{agreement}

{ceilings}

{calls}

"Least time" is what the call would take at the measured ceiling if it did nothing but that; the share is how much of
the time that is.
"""


# --- the page ---------------------------------------------------------------------------------------------------------


def write_page(page: Path, folder: Path) -> None:
    """Fill the page with the runs on record."""
    parts = {
        name: section(json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))
        for name, section in (("cpu", cpu_section), ("gpu", gpu_section))
    }
    fill(page, parts)
