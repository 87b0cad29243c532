"""benchmarks/history.jsonl: one line a run, in units that are comparable between days and machines.

Times are kept in yardsticks of their own run, and a run is compared with the last one on the same kind of machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from speed_rows import Row

SLOWER = 1.25
# Less memory than this is within what the allocator does by itself.
_LEAST_MB = 50.0


def entry(run: Mapping[str, Any]) -> dict[str, Any]:
    """The line of one run."""
    figures: dict[str, dict[str, float]] = {}
    for fields in run["rows"]:
        row = Row.from_dict(dict(fields))
        kept = {"yardsticks": row.yardsticks, "ratio": row.ratio, "peak_mb": row.peak_mb}
        if row.unit != "s":
            kept["value"] = row.value
        figures[row.key] = {name: float(f"{value:.4g}") for name, value in kept.items() if _is_number(value)}
    return {name: run[name] for name in ("date", "version", "commit", "machine")} | {"figures": figures}


def _is_number(value: float | None) -> bool:
    return value is not None and value == value


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def append(path: Path, line: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def last_like(lines: Sequence[Mapping[str, Any]], machine: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The last run on the same kind of processor with as many cores."""
    like = [line for line in lines if all(line["machine"][name] == machine[name] for name in ("processor", "cores"))]
    return like[-1] if like else None


def changes(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """A sentence for every row that became more than a quarter slower, or larger."""
    found = []
    for key, figures in now["figures"].items():
        old = before["figures"].get(key, {})
        for name, word, least in (("yardsticks", "slower", 0.0), ("peak_mb", "larger", _LEAST_MB)):
            if name in figures and old.get(name, 0.0) > 0 and figures[name] > least:
                change = figures[name] / old[name]
                if change > SLOWER:
                    sizes = f"{old[name]:.3g} to {figures[name]:.3g} {'MB' if name == 'peak_mb' else name}"
                    found.append(f"{change:.2f} times {word}: {key} ({sizes})")
    return found


def comparison(now: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> str:
    """What the history says about a run."""
    before = last_like(lines, now["machine"])
    if before is None:
        return "History: no earlier run on a like machine."
    same = sum(key in before["figures"] for key in now["figures"])
    head = f"History: {same} rows compared with {before['date']}, {before['version']}"
    head += f" ({before['commit']})" if before["commit"] else ""
    other = [n for n in ("python", "numpy", "scipy") if before["machine"].get(n) != now["machine"].get(n)]
    head += "".join(f", {name} {before['machine'].get(name)} then" for name in other)
    found = changes(now, before)
    if not found:
        return f"{head}: none is more than 25% slower."
    return "\n".join([f"{head}:", *(f"  {text}" for text in found)])
