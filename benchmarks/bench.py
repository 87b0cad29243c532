"""How fast, and how much memory: everything measured in one run on one machine, as ratios.

    python benchmarks/bench.py                         all parts but growth
    python benchmarks/bench.py --growth                growth too; what `make bench` runs
    python benchmarks/bench.py --quick                 neither growth nor the large tables, and fewer turns
    python benchmarks/bench.py scores calls            some parts
    python benchmarks/bench.py --growth --record       puts the run on record: docs/speed/cpu.json
    python benchmarks/bench.py --page docs/speed.md    the page, from the figures on record

Calls that are compared take turns after a warm-up, and a ratio is the median over the turns. Memory is what a call
adds, at its peak, to a fresh process that holds the input. A run is compared with the one on record if that is of the
same kind of machine, in units of a yardstick, a few milliseconds of NumPy's exp and sort that take turns with the
calls.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import measure
from speed_rows import LeftOut, Row, closing, comparison, line

HERE = Path(__file__).resolve().parent
JSON = HERE.parent / ".benchmarks" / "speed.json"
ON_RECORD = HERE.parent / "docs" / "speed"
LONG = ("large", "growth")


def run_parts(names: Sequence[str], plan: Any) -> tuple[list[Row], list[LeftOut]]:
    """Measure, and print each row as soon as it is there."""
    from speed_parts import PARTS

    rows: list[Row] = []
    left_out: list[LeftOut] = []
    for name in names:
        begun = time.perf_counter()
        title = ""
        try:
            for figure in PARTS[name](plan):
                if isinstance(figure, LeftOut):
                    left_out.append(figure)
                    continue
                if figure.part != title:
                    title = figure.part
                    print(f"\n{title}", flush=True)
                print(f"  {line(figure)}", flush=True)
                rows.append(figure)
        except (MemoryError, RuntimeError) as problem:  # one part that fails must not cost the others
            left_out.append(LeftOut(name, "the rest of the part", str(problem)))
        print(f"({name}: {time.perf_counter() - begun:.0f} s)", flush=True)
    return rows, left_out


def as_run(rows: Sequence[Row], left_out: Sequence[LeftOut]) -> dict[str, Any]:
    """The run as it goes into the JSON file."""
    import kernsift

    return {
        "date": date.today().isoformat(),
        "version": kernsift.__version__,
        "commit": measure.commit(HERE),
        "machine": measure.machine(),
        "rows": [row.as_dict() for row in rows],
        "left_out": [vars(gone) for gone in left_out],
    }


def write_json(path: Path, run: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # JSON has no NaN; null is read back as a missing figure.
    clean = [{name: None if value != value else value for name, value in row.items()} for row in run["rows"]]
    text = json.dumps({**run, "rows": clean}, indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = "scores, calls, error, others, precision, jobs, start, large, growth"
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {known}; all but growth by default")
    parser.add_argument("--growth", action="store_true", help="measure growth too (minutes)")
    parser.add_argument("--quick", action="store_true", help="leave out growth and the large tables; fewer turns")
    parser.add_argument("--json", type=Path, default=JSON, help="where the figures go (.benchmarks/speed.json)")
    parser.add_argument("--record", action="store_true", help="keep the figures in docs/speed/cpu.json")
    parser.add_argument("--on-record", type=Path, default=ON_RECORD, help=argparse.SUPPRESS)
    parser.add_argument("--page", type=Path, help="write this page from the figures on record, and measure nothing")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds a single call of growth may take")
    parser.add_argument("--shrink", type=float, default=1.0, help="divide all sizes, to try the script")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    unknown = set(options.parts) - set(known.split(", "))
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {known}")
    if options.record and options.shrink != 1:
        parser.error("--record: only sizes as they are go on record; leave out --shrink")
    return options


def parts_of(options: argparse.Namespace) -> list[str]:
    from speed_parts import PARTS

    if options.parts:
        return list(options.parts)
    out = set(LONG) if options.quick else set() if options.growth else {"growth"}
    return [name for name in PARTS if name not in out]


def main(given: Sequence[str] | None = None) -> None:
    options = arguments(given)
    if options.page:
        from speed_page import write_page

        write_page(options.page, options.on_record)
        return
    if options.child:
        from speed_cases import child

        print(json.dumps(child(json.loads(options.child))))
        return
    from speed_parts import Plan

    plan = Plan(
        lambda task: measure.run_in_child(Path(__file__), task),
        budget=1.5 if options.quick else 6.0,
        seeds=25 if options.quick else 100,
        patience=options.patience,
        shrink=options.shrink,
    )
    machine = measure.machine()
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    rows, left_out = run_parts(parts_of(options), plan)
    run = as_run(rows, left_out)
    finish(run, rows, left_out, options)


def finish(run: dict[str, Any], rows: list[Row], left_out: list[LeftOut], options: argparse.Namespace) -> None:
    """Print the goals and the comparison with the run on record, and record the figures if asked for."""
    record = options.on_record / "cpu.json"
    print("\n" + closing(rows, left_out))
    if options.shrink != 1:
        print(f"All sizes were divided by {options.shrink:g}: goals reached here say nothing about the real sizes.")
    else:
        print(comparison(run, json.loads(record.read_text(encoding="utf-8")) if record.exists() else None))
    for path in [options.json, *([record] if options.record else [])]:
        write_json(path, run)
        print(f"Figures: {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
