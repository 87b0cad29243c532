"""The store of finished trials: append-only, checksummed, and safe to kill at any moment.

One line a trial, `checksum body`, where the checksum is the start of the SHA-256 of the body, a JSON object. A line is
flushed to the disk before the trial counts as done. A line that was cut off or damaged fails its checksum: it is told
of, and its trial runs again. Numbers are written so that they read back bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from kernsift.experiments.configurations import Artefact, Setting
from kernsift.experiments.trials import Task, Values

FILE = "trials.jsonl"
_DIGITS = 16


@dataclass(frozen=True)
class Key:
    """Which trial of which configuration: `configuration` covers everything that decides the result but its number."""

    artefact: str
    setting: str
    trial: int
    configuration: str


def key_of(task: Task) -> Key:
    """The key of a task's trial."""
    configuration = fingerprint(task.artefact, task.setting, task.seed)
    return Key(task.artefact.name, task.setting.label, task.trial, configuration)


def fingerprint(artefact: Artefact, setting: Setting, seed: int) -> str:
    """Digest of what a trial's result depends on: results of an edited configuration are not mixed with others."""
    size = sorted((name, float(value)) for name, value in setting.size.items())
    parts = (
        artefact.kind,
        artefact.k,
        artefact.alpha,
        artefact.replicates,
        setting.problem,
        size,
        setting.methods,
        seed,
    )
    return _checksum(f"{_version()} {parts!r}".encode())


def _version() -> str:
    try:
        return version("kernsift")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"


def _checksum(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:_DIGITS]


class Records:
    """The finished trials of one output folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.values: dict[Key, Values] = {}
        self.damaged: list[int] = []
        whole = True
        if self.path.exists():
            content = self.path.read_bytes()
            whole = content.endswith(b"\n") or not content
            for number, line in enumerate(content.split(b"\n"), start=1):
                if line:
                    self._read(number, line)
        self._file: BinaryIO = self.path.open("ab")
        if not whole:
            # Half a line was being written when the run was killed: close it, so that the next record starts afresh.
            self._file.write(b"\n")

    def _read(self, number: int, line: bytes) -> None:
        checksum, _, body = line.partition(b" ")
        if checksum.decode("ascii", "replace") != _checksum(body):
            self.damaged.append(number)
            return
        record: dict[str, Any] = json.loads(body)
        # The first one counts; a second of the same key could only differ in its seconds.
        self.values.setdefault(Key(**record["key"]), record["values"])

    def add(self, key: Key, values: Values) -> None:
        """Keep a finished trial; on return it is on the disk."""
        body = json.dumps({"key": vars(key), "values": values}, separators=(",", ":"), allow_nan=False).encode()
        try:
            # One write to a file opened for appending: records of two runs in one folder do not mix.
            self._file.write(_checksum(body).encode() + b" " + body + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        # What is read back is what counts, so that a resumed run cannot differ from this one.
        self.values[key] = json.loads(body)["values"]

    def of(self, artefact: Artefact, setting: Setting, seed: int, trials: int) -> Iterator[tuple[int, Values]]:
        """The finished trials of a setting, in order."""
        configuration = fingerprint(artefact, setting, seed)
        for trial in range(trials):
            found = self.values.get(Key(artefact.name, setting.label, trial, configuration))
            if found is not None:
                yield trial, found

    def __enter__(self) -> Records:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Where the disk is full, what could not be written cannot be written now either.
        with suppress(OSError) if kind is not None else nullcontext():
            self._file.close()
