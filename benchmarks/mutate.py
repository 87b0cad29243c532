"""Mutation tests of the statistics: `make mutate`.

mutmut makes the mutants (what is mutated, and which tests are run, is in pyproject.toml under `tool.mutmut`).
There are tens of thousands, so by default a sample is tried: a share of every file's mutants, and enough of small
files. The share of all mutants that would be killed is estimated from it, with a standard error.

    python benchmarks/mutate.py                # 400 of them, some hours on one core; --jobs 2 for two
    python benchmarks/mutate.py --all          # every one, days
    python benchmarks/mutate.py --survivors    # only those that the last run did not kill, and the table again
    python benchmarks/mutate.py --resume       # the rest of an interrupted run

The mutants, the outcome of each and `survivors.diff`, to be read, are left in `mutants/`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from mutmut.configuration import config
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import get_mutant_name

FOLDER = Path("mutants")
LAST = FOLDER / "sample.json"
TO_KILL = 0.85
# Mutants of a small file that are tried, if it has as many.
LEAST = 10
# A mutant that never ends is stopped by mutmut, and is noticed.
KILLED = {"killed", "timeout", "segfault"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=400, help="how many mutants are tried")
    parser.add_argument("--seed", type=int, default=8, help="of the sample")
    parser.add_argument("--jobs", type=int, default=1, help="mutants tried at a time")
    parser.add_argument("--all", action="store_true", help="try every mutant")
    parser.add_argument("--survivors", action="store_true", help="try those again that the last run did not kill")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run")
    given = parser.parse_args()
    mutants = all_mutants()
    if given.survivors or given.resume:
        tried = json.loads(LAST.read_text())
        left = {"not checked"} if given.resume else {"survived", "no tests", "suspicious"}
        again = [name for name, status in outcomes(tried).items() if status in left]
    else:
        tried = mutants if given.all else drawn(mutants, given.sample, given.seed)
        again = [name for names in tried.values() for name in names]
        FOLDER.mkdir(exist_ok=True)
        LAST.write_text(json.dumps(tried, indent=1))
    code = run(again, given.jobs) if again else 0
    return code or report(mutants, tried)


def all_mutants() -> dict[str, list[str]]:
    """Names of mutants by file."""
    found = {}
    for path in map(Path, walk_mutatable_files()):
        if path.suffix == ".py" and config().should_mutate(path):
            names = mutate_file_contents(str(path), path.read_text()).mutant_names
            found[str(path)] = [get_mutant_name(path, name) for name in names]
    return {path: names for path, names in sorted(found.items()) if names}


def drawn(mutants: dict[str, list[str]], size: int, seed: int) -> dict[str, list[str]]:
    """A sample with the same share of every file, and some of every file, however small."""
    rng, total = random.Random(seed), sum(map(len, mutants.values()))
    least = min(LEAST, max(1, size // 40))
    counts = {path: min(len(names), max(least, round(size * len(names) / total))) for path, names in mutants.items()}
    return {path: sorted(rng.sample(names, counts[path])) for path, names in mutants.items()}


def run(names: list[str], jobs: int) -> int:
    alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "SCIPY_ARRAY_API": "1"}
    mutmut = Path(sys.executable).with_name("mutmut")
    return subprocess.run([mutmut, "run", "--max-children", str(jobs), *names], env={**os.environ, **alone}).returncode


def outcomes(tried: dict[str, list[str]]) -> dict[str, str]:
    """The outcome of each mutant."""
    found = {}
    for path, names in tried.items():
        data = SourceFileMutationData(path=Path(path))
        data.load()
        found |= {name: status_by_exit_code[data.exit_code_by_key[name]] for name in names}
    return found


def report(mutants: dict[str, list[str]], tried: dict[str, list[str]]) -> int:
    """The table, and whether enough are killed."""
    status = outcomes(tried)
    print("\n| file | mutants | tried | killed | of these, by time | survived | no test | share killed |")
    print("|---|---|---|---|---|---|---|---|")
    rate, variance, total = 0.0, 0.0, sum(map(len, mutants.values()))
    sums = [0] * 6
    for path, names in tried.items():
        found = [status[name] for name in names]
        killed = sum(one in KILLED for one in found)
        row = [len(mutants[path]), len(names), killed, found.count("timeout")]
        row += [found.count("survived"), found.count("no tests")]
        sums = [a + b for a, b in zip(sums, row, strict=True)]
        print(line(path.removeprefix("src/kernsift/"), row, killed / len(names)))
        # A stratified sample without replacement: every file represents all its mutants.
        weight, share = len(mutants[path]) / total, killed / len(names)
        rate += weight * share
        if len(names) > 1:
            left = 1 - len(names) / len(mutants[path])
            variance += weight**2 * left * share * (1 - share) / (len(names) - 1)
    print(line("all", sums, rate))
    print(f"\nkilled: {rate:.1%} of all mutants, standard error {variance**0.5:.1%}; to reach: {TO_KILL:.0%}")
    survivors = [name for name, one in status.items() if one not in KILLED]
    (FOLDER / "survivors.diff").write_text("\n".join(diffs(survivors, tried)))
    print(f"{len(survivors)} survivors: {FOLDER / 'survivors.diff'}")
    return int(rate < TO_KILL)


def line(name: str, counts: Iterable[int], share: float) -> str:
    return f"| {name} | " + " | ".join(f"{count:,}" for count in counts) + f" | {share:.0%} |"


def diffs(names: list[str], tried: dict[str, list[str]]) -> Iterable[str]:
    home = {name: path for path, own in tried.items() for name in own}
    for name in names:
        yield f"# {name}\n{get_diff_for_mutant(name, path=Path(home[name]))}\n"


if __name__ == "__main__":
    sys.exit(main())
