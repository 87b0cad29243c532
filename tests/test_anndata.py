"""AnnData in, the same answer out as for the tables it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from kernsift import InputError, compare
from kernsift.data.formats.anndata import is_anndata

# anndata 0.13 asks pandas for an option that it is about to lose.
pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")
ABSENT = "no anndata: it is tried from Python 3.12 on, and by make test-oldest"


class FakeAnnData:
    """What `compare` uses of AnnData, so that this is tested where anndata is not installed too."""

    __module__ = "anndata._core.anndata"

    def __init__(self, X: Any, obs: Any, var_names: Any) -> None:
        self.X, self.obs, self.var_names = X, obs, var_names


def real_anndata(X: Any, obs: Any, names: list[str]) -> Any:
    anndata = pytest.importorskip("anndata", reason=ABSENT)
    pandas = pytest.importorskip("pandas")
    obs.index = obs.index.astype(str)
    return anndata.AnnData(X=X, obs=obs, var=pandas.DataFrame(index=names))


def fake_anndata(X: Any, obs: Any, names: list[str]) -> Any:
    return FakeAnnData(X, obs, pytest.importorskip("pandas").Index(names))


MAKERS = [fake_anndata, real_anndata]
NAMES = [f"gene{i}" for i in range(6)]


def cells(labels: Any = None) -> tuple[np.ndarray, Any]:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    X = rng.poisson(2.0, size=(120, 6)).astype(np.float32)
    labels = np.where(np.arange(120) % 3 == 0, "treated", "control") if labels is None else labels
    X[np.asarray(labels) == "treated", 4] += 2
    return X, pandas.DataFrame({"condition": labels})


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("matrix", [np.asarray, sparse.csr_matrix])
def test_groupby_equals_comparing_the_two_tables(make: Any, matrix: Any) -> None:
    X, obs = cells()
    treated = (obs["condition"] == "treated").to_numpy()
    found = compare(make(matrix(X), obs, NAMES), groupby="condition", k=3, random_state=0)
    expected = compare(X[~treated], X[treated], k=3, random_state=0)
    assert found.names[0] == "gene4" and found.rejected[0]
    assert [f"x{name.removeprefix('gene')}" for name in found.names] == list(expected.names)
    np.testing.assert_array_equal(found.pvalues, expected.pvalues)


@pytest.mark.parametrize("matrix", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_what_was_left_in_its_file_is_read(matrix: Any, tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata", reason=ABSENT)
    X, obs = cells()
    whole = real_anndata(matrix(X), obs, NAMES)
    whole.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    found, expected = (compare(data, groupby="condition", k=3, random_state=0) for data in (backed, whole))
    backed.file.close()
    assert found.names == expected.names
    np.testing.assert_array_equal(found.pvalues, expected.pvalues)


@pytest.mark.parametrize("make", MAKERS)
def test_two_objects_are_two_samples(make: Any) -> None:
    X, obs = cells()
    treated = (obs["condition"] == "treated").to_numpy()
    one, two = (make(X[rows], obs[rows].reset_index(drop=True), NAMES) for rows in (~treated, treated))
    whole = compare(make(X, obs, NAMES), groupby="condition", random_state=0)
    np.testing.assert_array_equal(compare(one, two, random_state=0).pvalues, whole.pvalues)


def test_categories_set_the_order_and_unused_ones_do_not_count() -> None:
    pandas = pytest.importorskip("pandas")
    X, obs = cells()
    levels = pandas.CategoricalDtype(["treated", "lost", "control"])
    found = compare(fake_anndata(X, obs.astype({"condition": levels}), NAMES), groupby="condition", random_state=0)
    assert found.names[0] == "gene4"


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["a", "b", "c"] * 40, r"exactly two values, got 3 \('a', 'b', 'c'\)"),
        (["a"] * 120, "exactly two values, got 1"),
        (["a", "b", None] * 40, "40 observations have no value"),
    ],
)
def test_other_than_two_groups_is_an_error(labels: list[str | None], words: str) -> None:
    with pytest.raises(InputError, match=words):
        compare(fake_anndata(*cells(labels), NAMES), groupby="condition")


def test_observations_without_a_label_can_be_dropped() -> None:
    found = compare(fake_anndata(*cells(["a", "b", None] * 40), NAMES), groupby="condition", missing="drop")
    assert len(found.names) == 6


def test_misuse_is_told() -> None:
    X, obs = cells()
    data = fake_anndata(X, obs, NAMES)
    with pytest.raises(InputError, match="groupby: is for AnnData objects, got ndarray"):
        compare(X, groupby="condition")
    with pytest.raises(InputError, match="groupby: makes both samples from X"):
        compare(data, data, groupby="condition")
    with pytest.raises(InputError, match=r"groupby: must be a column of adata\.obs, got 'kind'; there are 'condition'"):
        compare(data, groupby="kind")
    with pytest.raises(InputError, match="Y: a second table is needed"):
        compare(X)
    with pytest.raises(InputError, match="holds no matrix X"):
        compare(fake_anndata(None, obs, NAMES), groupby="condition")


def test_only_anndata_is_taken_for_it() -> None:
    assert not is_anndata(np.zeros(3)) and not is_anndata(cells()[1])
