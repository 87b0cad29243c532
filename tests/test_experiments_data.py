"""Data files: found, fetched, checked, refused. Nothing here leaves the machine: the test serves its own files."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

from kernsift.experiments import datasets
from kernsift.experiments.datasets import DataError, DataFile, find_file, load

CONTENT = b"\xef\xbb\xbfage, chol,target\r\n63,2.5,1\r\n41,,0\r\n37,1.5,0\r\n"
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """A server of the bytes in a dictionary, `heart` pointed at it, and an empty cache."""
    pages: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = pages.get(self.path)
            self.send_response(200 if found is not None else 404)
            self.send_header("Content-Length", str(len(found or b"")))
            self.end_headers()
            self.wfile.write(found or b"")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    base = f"http://127.0.0.1:{server.server_address[1]}"
    file = DataFile("heart.csv", SHA, "https://example.org/heart", f"{base}/a")
    monkeypatch.setitem(datasets.FILES, "heart", file)
    monkeypatch.setenv("KERNSIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("KERNSIFT_DATA", raising=False)
    yield pages
    server.shutdown()
    thread.join()
    server.server_close()


def zipped(content: bytes) -> bytes:
    """An archive that holds the content beside another file, in a folder and under another name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("folder/readme.txt", b"about")
        archive.writestr("folder/in.csv", content)
    return buffer.getvalue()


def test_a_file_is_downloaded_once_and_read(served: dict[str, bytes], tmp_path: Path) -> None:
    served["/a"] = zipped(CONTENT)
    path = find_file("heart")
    assert path == tmp_path / "cache" / "heart.csv"
    served.clear()
    assert find_file("heart") == path
    table = load("heart")
    assert table.names == ("age", "chol")
    # The row with a missing cell is left out.
    assert np.array_equal(table.X, [[63, 2.5], [37, 1.5]])
    assert table.label.tolist() == [1, 0]


@pytest.mark.parametrize(
    "bad",
    [b"<html>Please sign in</html>", zipped(CONTENT[:-4]), zipped(CONTENT)[:60], CONTENT],
    ids=["other", "short", "cut", "no archive"],
)
def test_wrong_and_truncated_downloads_are_refused_and_not_kept(
    served: dict[str, bytes], tmp_path: Path, bad: bytes
) -> None:
    served["/a"] = bad
    with pytest.raises(DataError, match=r"could not be downloaded .*put the file") as caught:
        find_file("heart")
    said = str(caught.value)
    assert SHA in said
    assert str(tmp_path / "cache") in said
    assert "--data-dir" in said
    assert "\n" not in said
    assert not any((tmp_path / "cache").glob("*"))


def test_a_damaged_cache_is_fetched_again(served: dict[str, bytes], tmp_path: Path) -> None:
    served["/a"] = zipped(CONTENT)
    cached = tmp_path / "cache" / "heart.csv"
    cached.parent.mkdir()
    cached.write_bytes(CONTENT[:-5])
    assert find_file("heart").read_bytes() == CONTENT


@pytest.mark.parametrize("through", ["argument", "environment"])
def test_a_named_folder_comes_first(
    served: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, through: str
) -> None:
    (tmp_path / "heart.csv").write_bytes(CONTENT)
    if through == "environment":
        monkeypatch.setenv("KERNSIFT_DATA", str(tmp_path))
    assert find_file("heart", str(tmp_path) if through == "argument" else None) == tmp_path / "heart.csv"


def test_a_wrong_file_in_a_named_folder_is_refused(served: dict[str, bytes], tmp_path: Path) -> None:
    served["/a"] = zipped(CONTENT)
    (tmp_path / "heart.csv").write_bytes(CONTENT + b"1,1,1\r\n")
    with pytest.raises(DataError, match="is not the file the paper's tables were made from"):
        find_file("heart", str(tmp_path))


def test_offline_says_what_to_put_where(served: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    unreachable = dataclasses.replace(datasets.FILES["heart"], archive="http://127.0.0.1:9/nothing")
    monkeypatch.setitem(datasets.FILES, "heart", unreachable)
    with pytest.raises(DataError, match=r"heart\.csv: is in no folder .* KERNSIFT_DATA"):
        find_file("heart")


def test_files_that_are_far_too_large_are_refused(served: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    served["/a"] = zipped(CONTENT)
    monkeypatch.setattr(datasets, "_LARGEST", 10)
    with pytest.raises(DataError, match="larger than any file"):
        find_file("heart")


needs_data = pytest.mark.skipif(
    not os.environ.get("KERNSIFT_DATA"), reason="KERNSIFT_DATA names no folder with the paper's data sets"
)


@needs_data
@pytest.mark.parametrize(
    ("key", "rows", "features", "ones"),
    [("pulsar", 17_898, 8, 1_639), ("heart", 303, 13, 165), ("wine", 6_463, 12, 1_593), ("divorce", 170, 54, 84)],
)
def test_the_real_tables_have_the_shapes_they_should(key: str, rows: int, features: int, ones: int) -> None:
    table = load(key)
    assert table.X.shape == (rows, features)
    assert len(table.names) == features
    assert int(table.label.sum()) == ones


@needs_data
def test_every_statement_of_the_questionnaire_has_its_text() -> None:
    texts = datasets.divorce_statements()
    assert set(load("divorce").names) == set(texts)
    assert all(texts.values())


def test_statements_are_optional(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere = dataclasses.replace(datasets.FILES["divorce questions"], archive="http://127.0.0.1:9/nothing")
    monkeypatch.setitem(datasets.FILES, "divorce questions", nowhere)
    monkeypatch.setenv("KERNSIFT_CACHE", str(tmp_path))
    monkeypatch.delenv("KERNSIFT_DATA", raising=False)
    assert datasets.divorce_statements() == {}
