"""Archives and compressed files: what they hold, and refusing those that would fill the memory when unpacked."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence

from kernsift.data.formats.file_stamps import first_line
from kernsift.exceptions import InputError

LARGEST_UNPACKED = 2 << 30
"""Compressed files are unpacked up to this many bytes."""

_LARGEST_RATIO, _RATIO_MATTERS = 200, 100 << 20


def check_unpacked_size(name: str, packed: int, unpacked: int, most: float = LARGEST_UNPACKED) -> None:
    """Refuse a small file that would fill the memory when unpacked."""
    if unpacked > most or (unpacked > _RATIO_MATTERS and unpacked > _LARGEST_RATIO * packed):
        raise InputError(
            f"{name} would unpack from {packed / 1e6:.3g} to {unpacked / 1e6:,.0f} MB or more, which no real table "
            "does; save it as CSV if it is one."
        )


def archive_kind(path: str, name: str) -> str:
    """What a zip archive is: "Excel", "sparse matrix", "NumPy archive", or "text" where it has one member."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise InputError(f"{name} is a broken archive ({first_line(error)}); save or copy it again.") from None
    # Members may overlap, so the packed size is at most that of the file.
    packed = min(os.path.getsize(path), sum(member.compress_size for member in members))
    check_unpacked_size(name, packed, sum(member.file_size for member in members))
    names = [member.filename for member in members]
    if "xl/workbook.xml" in names:
        return "Excel"
    if {"format.npy", "shape.npy", "data.npy"} <= set(names):
        return "sparse matrix"
    if names and all(member.endswith(".npy") for member in names):
        return "NumPy archive"
    if text_member(names):
        return "text"
    raise InputError(f"{name} is a zip archive of {len(names)} files, and one table is needed; unpack it first.")


def text_member(names: Sequence[str]) -> str | None:
    """The only file among the members of a zip archive; None of several. Folders and what macOS adds do not count."""
    files = [name for name in names if not name.endswith("/") and not name.startswith("__MACOSX/")]
    return files[0] if len(files) == 1 else None
