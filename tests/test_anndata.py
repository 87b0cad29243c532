"""AnnData objects and .h5ad files give the results of the tables that they hold."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from h5ad_files import write_h5ad
from scipy import sparse

from kernsift import InputError, compare, relate, screen
from kernsift.cli.app import main
from kernsift.data.formats import open_table
from kernsift.data.formats.anndata import is_anndata
from kernsift.data.formats.in_memory import loaded
from kernsift.data.formats.sparse_matrices import SparseSource
from kernsift.data.rows.samples import as_samples

# anndata 0.13 asks pandas for an option that it is about to lose.
pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")
ABSENT = "no anndata: it is tried from Python 3.12 on, and by make test-oldest"


class FakeAnnData:
    """What is used of AnnData, so that this is tested where anndata is not installed too."""

    __module__ = "anndata._core.anndata"

    def __init__(self, X: Any, obs: Any, var_names: Any, layers: Any = None, raw: Any = None) -> None:
        self.X, self.obs, self.var_names, self.layers, self.raw = X, obs, var_names, layers or {}, raw


def real_anndata(X: Any, obs: Any, names: list[str], **more: Any) -> Any:
    anndata = pytest.importorskip("anndata", reason=ABSENT)
    obs.index = obs.index.astype(str)
    return anndata.AnnData(X=X, obs=obs, var=pd.DataFrame(index=names), **more)


def fake_anndata(X: Any, obs: Any, names: list[str], **more: Any) -> Any:
    return FakeAnnData(X, obs, pd.Index(names), **more)


MAKERS = [fake_anndata, real_anndata]
NAMES = [f"gene{i}" for i in range(6)]


def cells(labels: Any = None) -> tuple[np.ndarray, pd.DataFrame]:
    """Counts in which gene4 is raised where the label is "treated", and an age that gene2 follows."""
    rng = np.random.default_rng(0)
    X = rng.poisson(2.0, size=(120, 6)).astype(np.float32)
    labels = np.where(np.arange(120) % 3 == 0, "treated", "control") if labels is None else labels
    X[np.asarray(labels) == "treated", 4] += 2
    return X, pd.DataFrame({"condition": labels, "age": 20 + 3 * X[:, 2] + rng.normal(size=120)})


MATRICES = [np.asarray, sparse.csr_matrix, sparse.csc_matrix]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("matrix", MATRICES)
def test_by_equals_comparing_the_two_tables(make: Any, matrix: Any) -> None:
    X, obs = cells()
    treated = (obs["condition"] == "treated").to_numpy()
    found = compare(make(matrix(X), obs, NAMES), by="condition", k=3, random_state=0)
    expected = compare(X[~treated], X[treated], k=3, random_state=0)
    assert found.names[0] == "gene4" and found.rejected[0]
    assert found.rows == (80, 40)
    assert [f"x{name.removeprefix('gene')}" for name in found.names] == list(expected.names)
    np.testing.assert_allclose(found.pvalues, expected.pvalues, rtol=1e-9)


@pytest.mark.parametrize("memory", [None, "100MB"])
@pytest.mark.parametrize("matrix", MATRICES)
def test_a_file_gives_the_answer_of_the_object(matrix: Any, memory: str | None, tmp_path: Path) -> None:
    X, obs = cells()
    path = write_h5ad(tmp_path / "cells.h5ad", matrix(X), obs, NAMES)
    data = fake_anndata(X, obs, NAMES)
    for ask in (
        lambda data, **options: compare(data, by="condition", random_state=0, **options),
        lambda data, **options: relate(data, "age", random_state=0, **options),
        lambda data, **options: relate(data, "condition", k=2, random_state=0, **options),
    ):
        found, expected = ask(path, memory=memory), ask(data)
        assert found.feature_names == expected.feature_names == tuple(NAMES)
        np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9)
    assert relate(path, "age", random_state=0).names[0] == "gene2"


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("matrix", MATRICES[:2])
def test_confounders_and_times_are_columns_of_obs(make: Any, matrix: Any, tmp_path: Path) -> None:
    X, obs = cells()
    rng = np.random.default_rng(1)
    time = rng.exponential(np.exp(-X[:, 4] / 2)) + 0.01
    obs = obs.assign(months=np.minimum(time, 1.0), status=np.where(time <= 1.0, "dead", "alive"))
    table = pd.DataFrame(X, columns=NAMES)
    path = write_h5ad(tmp_path / "cells.h5ad", matrix(X), obs, NAMES)
    for data in (make(matrix(X), obs, NAMES), path):
        found = relate(data, "age", given="condition", random_state=0)
        expected = relate(table, obs["age"], given=obs["condition"], random_state=0)
        np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-6)
        found = relate(data, ("months", "status"), given=["age", "condition"], random_state=0)
        expected = relate(table, (obs["months"], obs["status"]), given=obs[["age", "condition"]], random_state=0)
        np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-6)
        assert found.names[0] == "gene4" and found.rejected[0]
        with pytest.raises(InputError, match="given: 'age', 'gene1' are partly columns of obs"):
            relate(data, "condition", given=["age", "gene1"])


@pytest.mark.parametrize("matrix", MATRICES[1:])
def test_sparse_files_are_read_in_pieces(matrix: Any, tmp_path: Path) -> None:
    X, obs = cells()
    source = open_table(write_h5ad(tmp_path / "t.h5ad", matrix(X), obs, NAMES), "X", memory="1GB")
    assert isinstance(source, SparseSource) and not source.in_memory
    np.testing.assert_array_equal(source.read([4, 1], slice(3, 77)).values, X[3:77, [4, 1]])
    np.testing.assert_array_equal(source.read([0, 5], np.array([2, 2, 90])).values, X[[2, 2, 90]][:, [0, 5]])
    kept = source.where(obs["condition"].to_numpy() == "treated")
    np.testing.assert_array_equal(loaded(kept).columns.values, X[obs["condition"] == "treated"])


@pytest.mark.parametrize("matrix", MATRICES)
def test_what_was_left_in_its_file_is_read(matrix: Any, tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata", reason=ABSENT)
    X, obs = cells()
    whole = real_anndata(matrix(X), obs, NAMES)
    whole.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    asked = (backed, whole, tmp_path / "cells.h5ad")
    found = [compare(data, by="condition", k=3, random_state=0) for data in asked]
    backed.file.close()
    for other in found[1:]:
        assert found[0].names == other.names
        np.testing.assert_allclose(found[0].pvalues, other.pvalues, rtol=1e-9)


@pytest.mark.parametrize("make", MAKERS)
def test_layers_and_raw(make: Any, tmp_path: Path) -> None:
    X, obs = cells()
    other = X[:, ::-1].copy()
    data = make(X, obs, NAMES, layers={"flipped": other})
    path = write_h5ad(tmp_path / "t.h5ad", X, obs, NAMES, {"flipped": other})
    for table in (data, path):
        assert compare(table, by="condition", layer="flipped", random_state=0).names[0] == "gene1"
        assert relate(table, "age", layer="flipped", random_state=0).names[0] == "gene3"
    assert compare(path, by="condition", layer="raw", random_state=0).feature_names == tuple(NAMES[:3])
    raw = fake_anndata(X, obs, NAMES, raw=fake_anndata(X[:, :3], None, NAMES[:3]))
    assert compare(raw, by="condition", layer="raw", random_state=0).feature_names == tuple(NAMES[:3])
    result = screen(data, {"same": data, "path": path}, layer="flipped", random_state=0)
    assert set(result.feature_names) == {"same", "path"}
    for table in (data, path):
        with pytest.raises(InputError, match=r"^layer: X has no layer 'counts'; it has 'flipped'.*\.$"):
            compare(table, by="condition", layer="counts")
    with pytest.raises(
        InputError, match=r"^layer: is for AnnData objects and \.h5ad files, got DataFrame; leave it out\.$"
    ):
        compare(pd.DataFrame(X), pd.DataFrame(X), layer="counts")


@pytest.mark.parametrize("make", MAKERS)
def test_two_objects_are_two_samples(make: Any) -> None:
    X, obs = cells()
    treated = (obs["condition"] == "treated").to_numpy()
    one, two = (make(X[rows], obs[rows].reset_index(drop=True), NAMES) for rows in (~treated, treated))
    whole = compare(make(X, obs, NAMES), by="condition", random_state=0)
    np.testing.assert_array_equal(compare(one, two, random_state=0).pvalues, whole.pvalues)


@pytest.mark.parametrize("memory", [None, "100MB"])
@pytest.mark.parametrize("matrix", MATRICES)
def test_variables_are_matched_by_name(
    matrix: Any, memory: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    X, obs = cells()
    treated, order = (obs["condition"] == "treated").to_numpy(), [3, 1, 5, 0, 4, 2]
    one, two = obs[~treated], obs[treated]
    names = [NAMES[i] for i in order]
    expected = compare(X[~treated], X[treated], random_state=0)
    first = write_h5ad(tmp_path / "one.h5ad", matrix(X[~treated]), one, NAMES)
    second = write_h5ad(tmp_path / "two.h5ad", matrix(X[treated][:, order]), two, names)
    other = fake_anndata(matrix(X[treated][:, order]), two, names)
    for pair in ((first, second), (fake_anndata(matrix(X[~treated]), one, NAMES), other), (first, other)):
        found = compare(*pair, memory=memory, random_state=0)
        assert found.feature_names == tuple(NAMES)
        np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9)
        np.testing.assert_allclose(found.raw_effects, expected.raw_effects, rtol=1e-9)
    fewer = write_h5ad(tmp_path / "fewer.h5ad", matrix(X[treated][:, order[:4]]), two, names[:4])
    assert main(["compare", first, fewer, "--common-columns", "--seed", "0", "--json"]) == 0
    pvalues = json.loads(capsys.readouterr().out)["all_pvalues"]
    assert pvalues == {NAMES[i]: pytest.approx(expected.all_pvalues[i]) for i in sorted(order[:4])}


def test_unused_categories_do_not_count() -> None:
    X, obs = cells()
    levels = pd.CategoricalDtype(["treated", "lost", "control"])
    found = compare(fake_anndata(X, obs.astype({"condition": levels}), NAMES), by="condition", random_state=0)
    assert found.names[0] == "gene4"


def test_columns_of_obs_stay_with_their_rows() -> None:
    X, obs = cells()
    samples = as_samples(fake_anndata(X, obs, NAMES), None, "condition")
    for source, label in zip(samples[:2], samples.labels, strict=True):
        assert source.annotations is not None
        ages = source.annotations.column("age", "y").values[:, 0]
        np.testing.assert_array_equal(ages, obs.loc[obs["condition"] == label, "age"])


def test_observations_without_a_label_are_left_out_and_said() -> None:
    found = compare(fake_anndata(*cells(["a", "b", None] * 40), NAMES), by="condition")
    assert found.rows == (40, 40)
    assert "by: 40 of 120 rows have no group and are left out." in found.notes


def test_misuse_is_told() -> None:
    X, obs = cells()
    data = fake_anndata(X, obs, NAMES)
    with pytest.raises(InputError, match="by: makes both samples from X"):
        compare(data, data, by="condition")
    with pytest.raises(
        InputError, match=r"by: X has no column 'kind'; its obs has 'condition'.*; pass a column name of X, or data"
    ):
        compare(data, by="kind")
    with pytest.raises(InputError, match="holds no matrix X"):
        compare(fake_anndata(None, obs, NAMES), by="condition")
    with pytest.raises(InputError, match=r"names of variables must be unique, but 'gene0' occurs .*make_unique"):
        compare(fake_anndata(X, obs, ["gene0", *NAMES[:-1]]), by="condition")


def test_categories_as_old_files_have_them(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    X, obs = cells()
    path = write_h5ad(tmp_path / "t.h5ad", X, obs, NAMES)
    with h5py.File(path, "a") as file:
        frame = file["obs"]
        levels, codes = frame["condition"]["categories"][:], frame["condition"]["codes"][:]
        del frame["condition"]
        frame.create_dataset("__categories/condition", data=levels, dtype=h5py.string_dtype())
        frame.create_dataset("condition", data=codes).attrs["categories"] = frame["__categories/condition"].ref
    found = compare(path, by="condition", random_state=0)
    assert found.labels == ("control", "treated") and found.names[0] == "gene4"


def test_names_of_observations_must_be_unique(tmp_path: Path) -> None:
    X, obs = cells()
    obs.index = ["célula", *obs.index[1:-1].astype(str), "célula"]
    path = write_h5ad(tmp_path / "t.h5ad", sparse.csr_matrix(X), obs, NAMES)
    data = fake_anndata(X, obs, NAMES)
    data.obs_names = obs.index
    words = r"^X: names of observations must be unique, but 'célula' occurs more than once; call adata.obs_names_make"
    for table in (data, path):
        with pytest.raises(InputError, match=words):
            compare(table, by="condition")


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("matrix", MATRICES)
def test_a_variable_can_be_the_response(make: Any, matrix: Any) -> None:
    X, obs = cells()
    frame = pd.DataFrame(X, columns=NAMES)
    found = relate(make(matrix(X), obs, NAMES), "gene2", random_state=0)
    np.testing.assert_allclose(found.all_pvalues, relate(frame, "gene2", random_state=0).all_pvalues, rtol=1e-9)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("matrix", MATRICES[:2])
def test_chunks_of_dask(make: Any, matrix: Any) -> None:
    dask = pytest.importorskip("dask.array")
    X, obs = cells()
    chunked = dask.from_array(matrix(X), chunks=(50, 6), asarray=False)
    found, expected = (compare(make(part, obs, NAMES), by="condition", random_state=0) for part in (chunked, X))
    assert found.names[0] == "gene4"
    np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9)


@pytest.mark.parametrize("matrix", MATRICES)
def test_views_in_memory_and_of_files(matrix: Any, tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata", reason=ABSENT)
    X, obs = cells()
    whole = real_anndata(matrix(X), obs, NAMES, layers={"twice": matrix(2 * X)})
    whole.raw = whole.copy()
    whole.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    some = np.arange(120) < 90
    for layer in (None, "twice", "raw"):
        dense = pd.DataFrame(X[some] * (2 if layer == "twice" else 1), columns=NAMES)
        expected = compare(dense, by=obs["condition"][some].to_numpy(), random_state=0)
        for view in (whole[some], backed[some]):
            found = compare(view, by="condition", layer=layer, random_state=0)
            assert found.rows == expected.rows and found.names == expected.names
            np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9)
    backed.file.close()


@pytest.mark.skipif("KERNSIFT_DATA" not in os.environ, reason="needs KERNSIFT_DATA")
def test_stimulated_cells_have_the_answer_of_their_dense_copy() -> None:
    h5py = pytest.importorskip("h5py")
    path = Path(os.environ["KERNSIFT_DATA"]) / "kang_muscat_counts.h5ad"
    with h5py.File(path) as file:
        X, arm = file["X"], file["obs"]["group_id"]
        counts = sparse.csr_matrix((X["data"][:], X["indices"][:], X["indptr"][:]), shape=tuple(X.attrs["shape"]))
        names = file["var"][file["var"].attrs["_index"]][:].astype(str)
        arms = arm["categories"][:].astype(str)[arm["codes"][:]]
    found = compare(path, by="group_id", random_state=0)
    expected = compare(counts.toarray(), by=arms, random_state=0)
    assert found.feature_names == tuple(names) and found.names[0] == "ISG15"
    np.testing.assert_allclose(found.all_pvalues, expected.all_pvalues, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(found.raw_effects, expected.raw_effects, rtol=1e-9)


def test_the_command_line_reads_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, obs = cells()
    path = write_h5ad(tmp_path / "t.h5ad", sparse.csr_matrix(X), obs, NAMES, {"flipped": X[:, ::-1].copy()})
    for arguments, first in (
        (["compare", path, "--by", "condition"], "gene4"),
        (["compare", path, "--by", "condition", "--layer", "flipped"], "gene1"),
        (["relate", path, "--target", "age"], "gene2"),
    ):
        assert main([*arguments, "--seed", "0", "--csv"]) == 0
        assert capsys.readouterr().out.splitlines()[1].startswith(f"{first},")
    assert main(["compare", path, "--by", "condition", "--layer", "counts"]) == 2
    assert capsys.readouterr().err.startswith("kernsift: --layer: X has no layer 'counts'; it has 'flipped'")


def test_only_anndata_is_taken_for_it() -> None:
    assert not is_anndata(np.zeros(3)) and not is_anndata(cells()[1])
