"""Sparse tables: time and memory of `compare`, and of scanpy's Wilcoxon test where scanpy is installed.

    python benchmarks/sparse_tables.py                      # 20,000 cells x 5,000 genes at 5%, counts and logarithms
    python benchmarks/sparse_tables.py --large              # 200,000 x 20,000 at 5%: 2e8 stored values, 1.6 GB
    python benchmarks/sparse_tables.py --large --file DIR  # the same from a .h5ad file, within 1 GB of memory

Counts are negative binomial, by rows as AnnData has them, in float32; logarithms are log(1 + 10,000 x / total of the
row), with many different values. Each call runs in a process of its own, whose memory is read while it runs; what is
there before the call is taken off. With --save the figures go to docs/speed/sparse.json, which the page on sparse
tables shows.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from measure import peak_memory, reset_peak_memory, run_in_child
from scipy import sparse

SMALL, LARGE, DENSITY = (20_000, 5_000), (200_000, 20_000), 0.05
RECORD = Path(__file__).resolve().parent.parent / "docs" / "speed" / "sparse.json"
TARGETS = {"small": 1.0, "large": 60.0, "file": 180.0}
"""Seconds on two idle cores that are to be reached."""
MEMORY = 1_500
"""MB beyond the input, or in all where that is a file."""


def counts(rows: int, columns: int, density: float = DENSITY, seed: int = 0) -> sparse.csr_matrix:
    """Counts by rows; the first tenth of the columns have more in the second half of the rows."""
    rng = np.random.default_rng(seed)
    gap = round(2 / density) - 1
    starts, indices, data = [0], [], []
    for row in range(rows):
        # Increasing columns with gaps of 1 to 2 / density - 1, the mean gap being 1 / density.
        own = np.cumsum(rng.integers(1, gap + 1, size=round(columns * density)), dtype=np.int32) - 1
        own = own[own < columns]
        values = 1.0 + rng.negative_binomial(1, 0.6, size=len(own))
        if row >= rows // 2:
            values[own < columns // 10] += rng.poisson(0.3, size=np.count_nonzero(own < columns // 10))
        indices.append(own)
        data.append(values.astype(np.float32))
        starts.append(starts[-1] + len(own))
    parts = np.concatenate(data), np.concatenate(indices), np.array(starts, dtype=np.int64)
    return sparse.csr_matrix(parts, shape=(rows, columns))


def logarithms(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    """Counts as a share of the row's total, on a logarithmic scale."""
    found, totals = matrix.copy(), np.asarray(matrix.sum(axis=1)).ravel()
    found.data = np.log1p(found.data * np.repeat(1e4 / totals, np.diff(matrix.indptr))).astype(np.float32)
    return found


def write_h5ad(path: Path, matrix: sparse.csr_matrix, condition: np.ndarray) -> None:
    """The parts of an .h5ad file that are read."""
    import h5py

    with h5py.File(path, "w") as file:
        file.attrs["encoding-type"] = "anndata"
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", matrix.shape
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(matrix, name)
        for name, size in (("obs", matrix.shape[0]), ("var", matrix.shape[1])):
            frame = file.create_group(name)
            frame.attrs["_index"], frame.attrs["column-order"] = "_index", ["condition"] if name == "obs" else []
            frame["_index"] = np.array([f"{name}{i}" for i in range(size)], dtype="S")
        file["obs"]["condition"] = condition.astype("S")


def measured(call: Any) -> dict[str, float]:
    """Seconds and MB of a call, beyond what was there before and in all."""
    before = reset_peak_memory()
    start, processor = time.perf_counter(), time.process_time()
    call()
    seconds, own = time.perf_counter() - start, time.process_time() - processor
    peak = peak_memory()
    return {"seconds": seconds, "processor_seconds": own, "beyond": peak - before, "peak": peak}


def run(which: str, path: str) -> dict[str, float]:
    """One measurement, in a process of its own."""
    from kernsift import compare

    warm = counts(400, 200)
    compare(warm[:200], warm[200:], random_state=0)
    if which == "file":
        return measured(lambda: compare(path, by="condition", memory="1GB", random_state=0))
    matrix = counts(*(LARGE if which == "large" else SMALL))
    labels = np.repeat(["a", "b"], matrix.shape[0] // 2)
    if which == "scanpy":
        return _scanpy(matrix)
    if which == "logarithms":
        matrix = logarithms(matrix)
    return measured(lambda: compare(matrix, by=labels, random_state=0))


def _scanpy(matrix: sparse.csr_matrix) -> dict[str, float]:
    import anndata
    import pandas as pd
    import scanpy

    labels = pd.Categorical(np.repeat(["a", "b"], matrix.shape[0] // 2))
    data = anndata.AnnData(matrix, obs=pd.DataFrame({"g": labels}, index=[str(i) for i in range(matrix.shape[0])]))
    scanpy.pp.log1p(data)

    def call() -> None:
        scanpy.tl.rank_genes_groups(data, "g", method="wilcoxon", n_genes=data.shape[1])

    call()
    return measured(call)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="200,000 x 20,000")
    parser.add_argument("--file", type=Path, help="folder for an .h5ad file of 1.6 GB")
    parser.add_argument("--save", action="store_true", help=f"write the figures to docs/speed/{RECORD.name}")
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(run(**given.child)))
        return
    calls, path = ["large"] if given.large else ["small", "logarithms", "scanpy"], None
    if given.file:
        path = given.file / "counts.h5ad"
        if not path.exists():
            matrix = counts(*LARGE)
            write_h5ad(path, matrix, np.repeat(["a", "b"], matrix.shape[0] // 2))
        calls = ["file"]
    found = {}
    for name in calls:
        try:
            found[name] = run_in_child(Path(__file__), {"which": name, "path": str(path)})
        except RuntimeError as error:
            print(f"{name}: {error}")
            continue
        report(name, found)
    if given.save:
        save(found)


def report(name: str, found: dict[str, dict[str, float]]) -> None:
    """Print one measurement, and its ratio to that of scanpy where it is known."""
    own = found[name]
    memory = own["peak"] if name == "file" else own["beyond"]
    target = f", to reach {TARGETS[name]:g} s and {MEMORY} MB" if name in TARGETS else ""
    print(f"{name}: {own['seconds']:.2f} s ({own['processor_seconds']:.2f} s of processors), {memory:,.0f} MB{target}")
    if name == "scanpy" and "small" in found:
        ratio = found["small"]["processor_seconds"] / own["processor_seconds"]
        print(f"small takes {ratio:.2f} of the time of scanpy's Wilcoxon test, to reach 0.5")


def save(found: dict[str, dict[str, float]]) -> None:
    """Put the figures on record, with the day of the run."""
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    record |= {
        name: {"date": today, **{key: round(value, 2) for key, value in own.items()}} for name, own in found.items()
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
