"""Sparse matrices: the answer of the dense copy, from any format, in memory and from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from h5ad_files import write_h5ad
from scipy import sparse

from kernsift import InputError, SelectMMD, compare, relate
from kernsift.data.formats.anndata import h5ad_source
from kernsift.data.formats.sparse_matrices import sparse_source
from kernsift.data.inputs import as_table
from kernsift.data.preparation import prepare
from kernsift.data.sparse import SparseTable, StoredColumns
from kernsift.data.tables import stack
from kernsift.kernels.bandwidths import column_medians
from kernsift.kernels.quantisation import fit_grid
from kernsift.kernels.sparse_columns import SortedSparse


def matrix(rows: int, columns: int, density: float, kind: str, seed: int = 0) -> Any:
    """A sparse matrix whose last column is full and whose first is empty; the third differs between the halves."""
    rng = np.random.default_rng(seed)
    found = sparse.random(rows, columns, density, random_state=seed, format="lil")
    found[:, -1] = rng.normal(size=(rows, 1))
    found[:, 0] = 0.0
    found = found.tocsc()
    if kind == "counts":
        found.data = np.where(found.data < 1.0, 1.0 + rng.poisson(0.7, size=found.nnz), found.data)
    elif kind == "negative":
        found.data = found.data - 0.4
    half = found[: rows // 2].tolil()
    half[: rows // 8, 2] = 5.0
    return sparse.vstack([half, found[rows // 2 :]]).tocsc()


CASES = [(600, 0.05, "counts"), (600, 0.4, "negative"), (600, 0.01, "fractions"), (20_000, 0.03, "fractions")]


@pytest.mark.parametrize(("rows", "density", "kind"), CASES)
def test_the_answer_is_that_of_the_dense_copy(rows: int, density: float, kind: str) -> None:
    whole = matrix(rows, 9, density, kind)
    dense, half = whole.toarray(), rows // 2
    expected = compare(dense[:half], dense[half:], random_state=0)
    assert "x2" in expected.names[:2]
    for form in (sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array, sparse.csc_array, sparse.coo_matrix):
        found = compare(form(whole[:half]), form(whole[half:]), random_state=0)
        np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9)
        assert found.notes == expected.notes and found.names == expected.names
    np.testing.assert_allclose(found.raw_effects, expected.raw_effects, rtol=1e-9)
    np.testing.assert_allclose(found.intervals, expected.intervals, rtol=1e-6, atol=1e-9)
    y = np.random.default_rng(1).normal(size=rows)
    for response in (y, np.where(y > 0.5, "a", "b"), np.column_stack([y, y**2])):
        found, expected = (relate(table, response, k=3, random_state=0) for table in (whole, dense))
        np.testing.assert_allclose(found.pvalues, expected.pvalues, rtol=1e-6)
        np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9)


@pytest.mark.parametrize(
    "options", [{"kernel": "laplace"}, {"kernel": "linear"}, {"kernel": "delta"}, {"bandwidth": 1}]
)
def test_every_kernel(options: dict[str, Any]) -> None:
    whole = matrix(300, 6, 0.1, "counts")
    found, expected = (
        compare(table[:150], table[150:], random_state=0, **options) for table in (whole, whole.toarray())
    )
    np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9)


@pytest.mark.parametrize("estimator", ["cross", "incomplete", "linear", "block"])
def test_every_estimator(estimator: str) -> None:
    whole = matrix(300, 6, 0.1, "counts")
    found, expected = (
        compare(table[:150], table[150:], random_state=0, estimator=estimator) for table in (whole, whole.toarray())
    )
    np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9)


def test_groups_types_and_mixtures() -> None:
    whole = matrix(300, 6, 0.1, "counts")
    for dtype in (np.float32, np.int64, np.uint8, bool):
        some = whole[:, :5].astype(dtype)
        found, expected = (compare(table[:150], table[150:], random_state=0) for table in (some, some.toarray()))
        np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9)
    groups = {"both": [1, 2]}
    found, expected = (
        compare(table[:150], table[150:], groups=groups, random_state=0) for table in (whole, whole.toarray())
    )
    np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9)
    expected = compare(whole[:150].toarray(), whole[150:].toarray(), random_state=0)
    found = compare(whole[:150], whole[150:].toarray(), random_state=0)
    np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9)
    chosen = SelectMMD(random_state=0).fit(whole.tocsr(), np.repeat([0, 1], 150))
    np.testing.assert_allclose(chosen.pvalues_, expected.all_pvalues, rtol=1e-9)


def test_entries_that_repeat_add_up_and_stored_zeros_are_zeros() -> None:
    whole = matrix(200, 5, 0.2, "counts").tocsr()
    doubled = sparse.csr_matrix(
        (np.repeat(whole.data / 2, 2), np.repeat(whole.indices, 2), whole.indptr * 2), shape=whole.shape
    )
    zeros = whole.copy()
    zeros.data[::3] = 0.0
    for table in (doubled, zeros):
        before = table.copy()
        found, expected = (compare(one[:100], one[100:], random_state=0) for one in (table, table.toarray()))
        np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9)
        assert table.nnz == before.nnz and (table.data == before.data).all()


@pytest.mark.parametrize("seed", range(3))
def test_medians_and_points_are_those_of_dense_columns(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for rows in (1, 2, 5, 63, 64, 65, 500, 9_000):
        values = np.where(rng.random((rows, 40)) < rng.random(40), rng.normal(size=(rows, 40)).round(1), 0.0)
        values[:, 0] = 0.0
        stored = sparse.csc_matrix(values)
        columns = StoredColumns(stored.data, stored.indices, stored.indptr, rows)
        ordered = SortedSparse.of(columns)
        np.testing.assert_array_equal(ordered.at(np.arange(rows)), np.sort(values, axis=0).T)
        if rows < 2:
            continue
        one, other = as_table(stored), as_table(values)
        assert isinstance(one, SparseTable)
        for ours, theirs in zip(*(column_medians(t, np.arange(40), None) for t in (one, other)), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        sample = None if rows < 100 else np.sort(rng.choice(rows, rows // 2, replace=False))
        for chosen in (None, sample):
            ours, theirs = (fit_grid(table, np.arange(40), chosen) for table in (one, other))
            np.testing.assert_array_equal(ours.points, theirs.points)
            np.testing.assert_array_equal(ours.edges, theirs.edges)


@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.parametrize("memory", [None, "64MB"])
def test_files_have_the_answer_of_the_dense_copy(tmp_path: Path, form: str, memory: str | None) -> None:
    whole, names = matrix(500, 12, 0.1, "counts").asformat(form), [f"gene{i}" for i in range(12)]
    condition = np.where(np.arange(500) % 3 < 2, "b", "a").tolist()
    write_h5ad(tmp_path / "cells.h5ad", whole, pd.DataFrame({"condition": condition}), names)
    first = np.array(condition) == "a"
    dense = whole.toarray()
    expected = compare(dense[first], dense[~first], random_state=0)
    found = compare(tmp_path / "cells.h5ad", by="condition", random_state=0, memory=memory)
    np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9)
    assert found.feature_names == tuple(names)
    assert found.intervals is not None and expected.intervals is not None
    np.testing.assert_allclose(found.intervals, expected.intervals, rtol=1e-6, atol=1e-9)
    related = relate(tmp_path / "cells.h5ad", "condition", random_state=0, memory=memory, k=2)
    np.testing.assert_allclose(related.all_pvalues, expected.all_pvalues, rtol=1e-9)


def test_columns_of_a_file_in_chunks(tmp_path: Path) -> None:
    whole = matrix(300, 40, 0.2, "negative").tocsr()
    obs = pd.DataFrame({"condition": ["a", "b"] * 150})
    write_h5ad(tmp_path / "cells.h5ad", whole, obs, [str(i) for i in range(40)])
    source: Any = h5ad_source(str(tmp_path / "cells.h5ad"), "X", None, False)
    store = source.rows.store
    store._cut(2_000)
    assert len(store._edges) > 5
    for column, (values, rows) in enumerate(store.columns(np.arange(40)[::-1])[::-1]):
        expected = np.zeros(300)
        expected[rows] = values
        np.testing.assert_array_equal(expected, whole[:, [column]].toarray()[:, 0])
    bounds = source.bounds()
    assert (bounds.low == whole.min()).all() and (bounds.high == whole.max()).all()


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_bounds_of_columns_with_odd_numbers_are_their_own(form: str) -> None:
    whole = matrix(100, 6, 0.3, "counts").toarray()
    whole[5, 3], whole[7, 4] = 1e80, -1e90
    found = sparse_source(sparse.csc_matrix(whole).asformat(form), "X").bounds()
    np.testing.assert_array_equal(found.low, np.minimum(whole.min(axis=0), 0.0))
    np.testing.assert_array_equal(found.high, np.maximum(whole.max(axis=0), 0.0))
    with pytest.raises(InputError, match=r"^X: numbers beyond 1e70 in 'x3', 'x4' are too large"):
        compare(sparse.csr_array(whole), sparse.csr_array(whole))


def test_bad_matrices_are_refused_in_one_sentence() -> None:
    whole = matrix(100, 5, 0.2, "counts")
    odd = whole.copy()
    odd.data[3] = np.nan
    with pytest.raises(InputError, match=r"^X: a sparse matrix must hold no missing values, but 'x\d' has some; fill"):
        compare(odd[:50], whole[50:])
    odd.data[3] = np.inf
    with pytest.raises(InputError, match=r"^X: infinite values in 'x\d'"):
        compare(odd[:50], whole[50:])
    with pytest.raises(InputError, match=r"^Y: as many columns as in X are needed"):
        compare(whole[:50], whole[50:, :3])
    with pytest.raises(InputError, match=r"^X: a sparse table is made dense up to"):
        compare(sparse.csr_matrix((30_000, 2_000)), sparse.csr_matrix((30_000, 2_000)), estimator="incomplete")


def test_rows_of_one_matrix_are_not_copied() -> None:
    """Both samples come from one matrix, which stays as it is."""
    whole = matrix(400, 6, 0.2, "counts")
    source = as_table(whole)
    assert isinstance(source, SparseTable)
    keep = np.arange(400) % 3 == 0
    one = sparse_source(whole, "X")
    first, second = prepare([one.where(keep), one.where(~keep)], ["X", "Y"]).tables()
    pooled = stack([first, second])
    assert isinstance(pooled, SparseTable) and len(pooled._matrices) == 1
    dense = whole.toarray()
    np.testing.assert_array_equal(pooled.part(slice(None)), np.concatenate([dense[keep], dense[~keep]]))
    np.testing.assert_array_equal(
        second.part(np.array([2, 1]), np.array([7, 7, 3])), dense[~keep][[7, 7, 3]][:, [2, 1]]
    )
    np.testing.assert_array_equal(pooled.constant, (dense == dense[0]).all(axis=0))


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_files_of_scipy_are_their_matrices(form: str, tmp_path: Path) -> None:
    matrices = [sparse.random(60, 5, 0.4, format=form, random_state=seed) * (1 + seed) for seed in range(2)]
    paths = [tmp_path / f"{seed}.npz" for seed in range(2)]
    for matrix, path in zip(matrices, paths, strict=True):
        sparse.save_npz(path, matrix)
    expected = compare(*matrices, random_state=0).all_pvalues
    np.testing.assert_allclose(compare(*paths, random_state=0).all_pvalues, expected, rtol=1e-12)
    sparse.save_npz(paths[0], sparse.eye(4, format="dia"))
    with pytest.raises(InputError, match=r"X: .*0\.npz is a sparse matrix of format dia.*tocsr"):
        compare(*paths)


def test_indices_out_of_range_in_a_file_are_refused(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "x.npz", format=b"csr", shape=(3, 2), data=np.ones(3), indices=np.array([0, 9, 1]),
        indptr=np.array([0, 1, 2, 3]),
    )  # fmt: skip
    with pytest.raises(InputError, match=r"X: .*x\.npz"):
        compare(tmp_path / "x.npz", tmp_path / "x.npz")
