"""The data sets of the paper's tables: found locally or downloaded, and checked by SHA-256.

A file is looked for in the folder that was named (`--data-dir`), then in the folder `KERNSIFT_DATA` names, then in the
cache, and is downloaded into the cache if it is in none of them. The checksum is that of the file the tables were made
from; another file of the same name is refused, because its numbers would not be comparable.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import urllib.request
import zipfile
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from kernsift.exceptions import InputError
from kernsift.execution.files import atomic_path

_TIMEOUT = 30.0
# Files of the paper are far smaller; a response that is not a data set may be larger.
_LARGEST = 64 * 2**20


class DataError(InputError):
    """A data set that cannot be used; the message says which file to put where."""


@dataclass(frozen=True)
class DataFile:
    """One file: its name, checksum, the page that describes it, and the address of a zip archive that holds it."""

    name: str
    sha256: str
    page: str
    archive: str


_KAGGLE = "https://www.kaggle.com/api/v1/datasets/download/"
_UCI = "https://archive.ics.uci.edu/"

FILES = {
    "pulsar": DataFile(
        "pulsar_stars.csv",
        "8c1aac8914b05f384f5abf2e36390a45be7dbb37fcddbfd547c73879cfca14ea",
        _UCI + "dataset/372/htru2",
        _KAGGLE + "pavanraj159/predicting-a-pulsar-star",
    ),
    "heart": DataFile(
        "heart.csv",
        "e31e52eb5ee890c1a11a3baef3df95e8174718d5b94b0a8b77665ec3c07328ff",
        _UCI + "dataset/45/heart+disease",
        _KAGGLE + "ronitf/heart-disease-uci",
    ),
    "wine": DataFile(
        "winequalityN.csv",
        "ae21023e87b1d81f4994c011fbbeead69b5b0a23394e46d6f008d6945525c03c",
        _UCI + "dataset/186/wine+quality",
        _KAGGLE + "rajyellow46/wine-quality",
    ),
    "divorce": DataFile(
        "divorce.csv",
        "eea58215489e3073d6173a3246e14d741a60bab04ccbd47c1d0a9e6467b2af85",
        _UCI + "dataset/497/divorce+predictors+data+set",
        _UCI + "static/public/497/divorce+predictors+data+set.zip",
    ),
    "divorce questions": DataFile(
        "divorce_questions.psv",
        "fc1ab4256958d8266de1a85c8d4c37871a3f6bef7a386b5b2d0bcaabc90ee0d1",
        _UCI + "dataset/497/divorce+predictors+data+set",
        _KAGGLE + "andrewmvd/divorce-prediction",
    ),
}


def find_file(key: str, data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The path of a data file, downloaded if necessary; the message of DataError says how to provide it."""
    wanted = FILES[key]
    for folder in (data_dir, os.environ.get("KERNSIFT_DATA")):
        if folder and (path := Path(folder) / wanted.name).is_file():
            if (found := _checksum(path.read_bytes())) == wanted.sha256:
                return path
            raise DataError(
                f"{path}: is not the file the paper's tables were made from (SHA-256 {wanted.sha256[:12]}... was "
                f"needed, got {found[:12]}...); it may be cut short or another version: fetch it again from "
                f"{wanted.page}, or remove it to have it downloaded."
            )
    cached = cache_folder() / wanted.name
    if cached.is_file() and _checksum(cached.read_bytes()) == wanted.sha256:
        return cached
    # A cached file that fails its checksum was cut short or damaged: it is fetched again.
    return _download(wanted, cached)


def cache_folder() -> Path:
    """Where downloads are kept: KERNSIFT_CACHE, or the user's cache folder."""
    given = os.environ.get("KERNSIFT_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or Path.home() / ".cache"
    return Path(base) / "kernsift"


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _download(wanted: DataFile, target: Path) -> Path:
    try:
        content = _fetch(wanted)
    except (OSError, zipfile.BadZipFile, zlib.error, ValueError) as error:
        raise DataError(
            f"{wanted.name}: is in no folder that was named and could not be downloaded ({wanted.archive}: "
            f"{getattr(error, 'reason', None) or error}); put the file, described at {wanted.page}, into "
            f"{target.parent} or into a folder you name with --data-dir or KERNSIFT_DATA (SHA-256 {wanted.sha256})."
        ) from None
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as part:
        part.write_bytes(content)
    return target


def _fetch(wanted: DataFile) -> bytes:
    """The member of the archive with the checksum, whatever its name there."""
    request = urllib.request.Request(wanted.archive, headers={"User-Agent": "kernsift"})
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as reply:
        content: bytes = reply.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError("is larger than any file of the paper")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in archive.infolist():
            if member.file_size <= _LARGEST and _checksum(found := archive.read(member)) == wanted.sha256:
                return found
    raise ValueError("holds other files")


@dataclass(frozen=True)
class Labelled:
    """Numeric features, a class for each row, and the features' names."""

    X: np.ndarray
    label: np.ndarray
    names: tuple[str, ...]


# file, separator, target column, class of label 1
_LAYOUT = {
    "pulsar": (",", "target_class", "1"),
    "heart": (",", "target", "1"),
    "wine": (",", "type", "red"),
    "divorce": (";", "Class", "1"),
}


def load(key: str, data_dir: str | os.PathLike[str] | None = None) -> Labelled:
    """One of the four tables, rows with missing cells left out."""
    return _read(find_file(key, data_dir), *_LAYOUT[key])


@lru_cache(maxsize=8)
def _read(path: Path, separator: str, target: str, positive: str) -> Labelled:
    with path.open(encoding="utf-8-sig", newline="") as file:
        header, *rows = csv.reader(file, delimiter=separator)
    column = header.index(target)
    rows = [row for row in rows if len(row) == len(header) and all(cell.strip() for cell in row)]
    label = np.array([int(row[column] == positive) for row in rows])
    X = np.array([[float(cell) for i, cell in enumerate(row) if i != column] for row in rows])
    names = tuple(name.strip() for i, name in enumerate(header) if i != column)
    return Labelled(X, label, names)


def divorce_statements(data_dir: str | os.PathLike[str] | None = None) -> dict[str, str]:
    """The statements of the Divorce questionnaire by column name; empty where their file is not available."""
    try:
        path = find_file("divorce questions", data_dir)
    except DataError:
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    parts = (line.split("|", 1) for line in lines if "|" in line)
    return {f"Atr{number.strip()}": text.strip() for number, text in parts}


FEATURES = "celeba_features"


def feature_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The folder with image features as .npy files, one row an image: `ref_smile.npy` real, `gen_smile.npy` fake."""
    for folder in (data_dir, os.environ.get("KERNSIFT_DATA")):
        if folder and (path := Path(folder) / FEATURES).is_dir():
            return path
    raise DataError(
        f"{FEATURES}: the CelebA features of the paper's table 2 cannot be shipped; put ref_smile.npy (real) and "
        f"gen_smile.npy (generated), one row an image, into a folder {FEATURES} in the folder you name with --data-dir."
    )


@lru_cache(maxsize=2)
def load_features(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features of real and of generated images: two matrices with the same columns."""
    matrices = []
    for name in ("ref_smile.npy", "gen_smile.npy"):
        path = folder / name
        try:
            matrix = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(
                f"{path}: needs to be a .npy file of a matrix of numbers, got {error}; save it again."
            ) from error
        if matrix.ndim != 2 or matrix.dtype.kind not in "fiu" or not np.isfinite(matrix).all():
            raise DataError(
                f"{path}: needs a matrix of finite numbers, one row an image, got shape {matrix.shape}; save it again."
            )
        matrices.append(matrix.astype(float))
    real, fake = matrices
    if real.shape[1] != fake.shape[1]:
        raise DataError(
            f"{folder}: both files need the same columns, got {real.shape[1]} and {fake.shape[1]}; make both alike."
        )
    return real, fake
