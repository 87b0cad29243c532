"""The recipes for Spark and Ray in docs/howto/cluster.md, run where these packages are installed."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kernsift import Result, compare

PAGE = Path(__file__).resolve().parent.parent / "docs" / "howto" / "cluster.md"

# The bridges' own: each has something to say about versions.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def recipe(name: str) -> str:
    """The program with this name on the page."""
    (text,) = re.findall(rf"^```\{{code-block\}} python\n:name: {name}\n(.*?)^```$", PAGE.read_text(), re.S | re.M)
    return str(text)


def frames() -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(11)
    january, february = (pd.DataFrame(rng.normal(size=(n, 5)), columns=list("uvwxy")) for n in (900, 800))
    february["w"] += 0.4
    return january, february


def check(given: dict[str, Any], name: str) -> None:
    """The recipe's answers are those of the data frames."""
    expected = compare(*frames(), random_state=0)
    assert expected.names[0] == "w" and expected.pvalues[0] < 1e-6
    exec(compile(recipe(name), f"{PAGE}: {name}", "exec"), given)
    for found in (given["result"], given["small"]):
        assert isinstance(found, Result)
        assert found.names == expected.names
        np.testing.assert_allclose(found.log_pvalues, expected.log_pvalues, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["spark", "ray"])
def test_a_recipe_is_some_ten_lines(name: str) -> None:
    assert 5 <= len([line for line in recipe(name).splitlines() if line.strip()]) <= 12


def test_spark(tmp_path: Path) -> None:
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed: pip install pyspark")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java, and there is none")
    builder = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    # One partition, so that rows keep their order.
    spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "512m").getOrCreate()
    try:
        january, february = (spark.createDataFrame(frame) for frame in frames())
        check({"january": january, "february": february, "folder": str(tmp_path)}, "spark")
    finally:
        spark.stop()


def test_ray() -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install ray")
    pytest.importorskip("ray.data", reason="ray[data] is not installed: pip install 'ray[data]'")
    pytest.importorskip("ray.util.dask", reason="Ray's bridge needs grpcio: pip install grpcio")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000)
    try:
        january, february = (ray.data.from_pandas(frame) for frame in frames())
        check({"january": january, "february": february}, "ray")
    finally:
        ray.shutdown()
