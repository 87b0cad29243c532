"""The table of bad and odd files: for each its name, how it is made, the command's options, and the expected result.

Each file is compared with `good.csv`, which has columns a, b and c, of which b plainly differs from what is written
here. What must happen is the right answer (b stands) or one sentence, as in `odd_inputs.py`.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
from odd_inputs import NAMES, ROWS, XF, YF, X

Record = dict[str, Any]
Check = Callable[[Record], None]


class File(NamedTuple):
    """One row: a sentence is expected where `want` is a pattern, else `want` looks at the answer, read from JSON."""

    name: str
    file: str
    write: bytes | str | Callable[[Path], object]
    want: str | Check
    options: tuple[str, ...] = ()

    def make(self, folder: Path) -> Path:
        path = folder / self.file
        if isinstance(self.write, bytes):
            path.write_bytes(self.write)
        elif isinstance(self.write, str):
            path.write_bytes(self.write.encode())
        else:
            self.write(path)
        return path


def good(path: Path) -> None:
    YF.to_csv(path, index=False)


# Checks ---------------------------------------------------------------------------------------------------------------


def stands(record: Record) -> set[str]:
    for row in record["features"]:
        assert 0 < row["pvalue"] <= 1
    return {row["feature"] for row in record["features"] if row["rejected"]}


def finds(*names: str, says: str = "", over: tuple[str, ...] = ()) -> Check:
    """These stand, of these columns if they are named, and the notes say this."""

    def check(record: Record) -> None:
        assert stands(record) == set(names)
        assert says in " ".join(record["notes"]), record["notes"]
        assert not over or set(record["scores"]) == set(over)

    return check


same = finds("b", over=tuple(NAMES))


# Makers ---------------------------------------------------------------------------------------------------------------


def text(frame: pd.DataFrame = XF, **options: Any) -> str:
    return frame.to_csv(index=False, **options)


def with_column(values: Any, name: str = "z") -> str:
    """As CSV, and good.csv has no such column: the command is asked with the file twice."""
    return text(XF.assign(**{name: values}))


def parquet(frame: pd.DataFrame = XF, **options: Any) -> bytes:
    out = io.BytesIO()
    frame.to_parquet(out, **options)
    return out.getvalue()


def feather(frame: pd.DataFrame = XF) -> bytes:
    out = io.BytesIO()
    frame.to_feather(out)
    return out.getvalue()


def broken_feather(old: bytes, new: bytes) -> bytes:
    """Three names, unpacked, so that bytes can be found and changed."""
    out = io.BytesIO()
    pd.DataFrame({"city": ["Rome", "Oslo", "Bern"]}).to_feather(out, compression="uncompressed")
    assert old in out.getvalue()
    return out.getvalue().replace(old, new)


def broken_offsets() -> bytes:
    """Where the texts begin and end: the second would end gigabytes behind the file."""
    ends = np.array([0, 4, 8, 12])
    for kind in (np.int64, np.int32):  # depending on the version of pandas
        try:
            return broken_feather(ends.astype(kind).tobytes(), np.array([0, 4, 2**31 - 1, 12]).astype(kind).tobytes())
        except AssertionError:
            continue
    raise AssertionError("no offsets found")


def excel(*rows: list[Any]) -> bytes:
    book, out = openpyxl.Workbook(), io.BytesIO()
    for row in rows or [NAMES, *X.tolist()]:
        book.active.append(row)
    book.save(out)
    return out.getvalue()


def far_corner() -> bytes:
    """A sheet of a few hundred bytes with one cell at either end: 17 billion empty ones in between."""
    book, out = openpyxl.Workbook(), io.BytesIO()
    book.active["A1"], book.active["XFD1048576"] = "a", 1
    book.save(out)
    return out.getvalue()


def replaced(data: bytes, member: str, change: Callable[[bytes], bytes]) -> bytes:
    """The archive with one member changed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, change(old.read(name)) if name == member else old.read(name))
    return out.getvalue()


def laughing(sheet: bytes) -> bytes:
    """Entities within entities: a billion times the text of the first, if anybody expands them."""
    entities = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
    head = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY l0 "laugh">{entities}]>'.encode()
    return head + sheet.replace(b"<v>", b"<v>&l9;", 1)


def bomb(member: str) -> Callable[[Path], None]:
    """Zeros by the hundred megabytes in an archive of some kilobytes."""

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("xl/workbook.xml" if path.suffix == ".xlsx" else "a.npy", "x")
            with archive.open(member, "w", force_zip64=True) as file:
                for _ in range(130):
                    file.write(bytes(1 << 20))

    return write


def gzip_bomb(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(20):
            file.write(b"1,2,3\n" * (1 << 20))


def parquet_bomb(path: Path) -> None:
    """Two billion rows of one value: some kilobytes, thanks to run lengths."""
    schema = pa.schema([("a", pa.int64())])
    piece = pa.table({"a": pa.array(np.zeros(1 << 20, dtype=np.int64))}, schema)
    out = io.BytesIO()
    with pa.parquet.ParquetWriter(out, schema, compression="zstd", use_dictionary=True) as writer:
        writer.write_table(piece, row_group_size=1 << 20)
    # The count of rows in the metadata is what a reader believes: 2**20 becomes 2**40.
    data = out.getvalue()
    few, many = _varint(2 << 20), _varint(2 << 40)
    assert few in data
    path.write_bytes(_with_longer_footer(data, few, many))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _with_longer_footer(data: bytes, old: bytes, new: bytes) -> bytes:
    size = int.from_bytes(data[-8:-4], "little")
    body, footer = data[: -8 - size], data[-8 - size : -8].replace(old, new)
    return body + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def npy(array: np.ndarray, **options: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, **options)
    return out.getvalue()


def npz(**arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def zipped(**members: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


class Evil:
    """What would run code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("pwned",)


def pickled_npy() -> bytes:
    return npy(np.array([Evil(), 1], dtype=object), allow_pickle=True)


def lying_header() -> bytes:
    """A header that promises two terabytes."""
    return npy(np.zeros((4, 3))).replace(b"(4, 3)", b"(%d, 3)" % 10**11, 1).replace(b" " * 11 + b"\n", b"\n", 1)


def million(rows: int) -> str:
    cells = [",".join(f"c{i}" for i in range(10**6))]
    return "\n".join(cells + [",".join([str(row + 0.5)] * 10**6) for row in range(rows)]) + "\n"


TWICE = ("--twice",)
"""Not an option of the command: the file is to be compared with itself."""

TEXT = [
    File("plain", "t.csv", text(), same),
    File("UTF-8 with a mark", "t.csv", b"\xef\xbb\xbf" + text().encode(), same),
    File("UTF-16 with a mark", "t.csv", text().encode("utf-16"), same),
    File("UTF-16 without a mark", "t.csv", text().encode("utf-16-le"), "looks like UTF-16.*--encoding utf-16-le"),
    File("UTF-16 without a mark, told", "t.csv", text().encode("utf-16-le"), finds(over=tuple(NAMES)), ("--encoding", "utf-16-le", *TWICE)),
    File("UTF-16 big end first, no mark", "t.csv", text().encode("utf-16-be"), "looks like UTF-16.*utf-16-be"),
    File("UTF-16 cut in two", "t.csv", text().encode("utf-16")[:-1], "is no UTF-16.* text.*--encoding"),
    File("UTF-32 with a mark", "t.csv", text().encode("utf-32"), same),
    File("latin-1", "t.csv", text(XF.assign(é=1)).encode("latin-1"), "is no UTF-8 text .*0xe9 in line 1.*--encoding latin"),
    File("text of Windows", "t.csv", text(XF.assign(é="5 €")).encode("cp1252"), "is no UTF-8 text .*0xe9 in line 1.*--encoding cp1252 if it is text of Windows"),
    File("latin-1, told", "t.csv", text(XF.assign(é=1)).encode("latin-1"), same, ("--encoding", "latin-1", "--exclude", "é")),
    File("latin-1 in gzip, told", "t.csv.gz", gzip.compress(text(XF.assign(é=1)).encode("latin-1")), same, ("--encoding", "latin-1", "--exclude", "é")),
    File("unknown encoding", "t.csv", text(), "--encoding: 'martian' is unknown; utf-8", ("--encoding", "martian")),
    File("encoding that is none of text", "t.csv", text(), "--encoding: 'hex' is unknown; utf-8", ("--encoding", "hex")),
    File("encoding that always fails", "t.csv", text(), "--encoding: 'undefined' is unknown", ("--encoding", "undefined")),
    File("empty encoding", "t.csv", text(), "--encoding: '' is unknown; utf-8", ("--encoding", "")),
    File("lines of old Macintoshes", "t.csv", text(lineterminator="\r"), same),
    File("lines of Windows", "t.csv", text(lineterminator="\r\n"), same),
    File("no line break at the end", "t.csv", text().rstrip(), same),
    File("blank lines", "t.csv", text().replace("\n", "\n\n"), same),
    File("spaces after commas", "t.csv", text().replace(",", ", "), same),
    File("tabs in a .csv", "t.csv", text(sep="\t"), finds("b", says="separated by tabs")),
    File("semicolons", "t.csv", text(sep=";"), finds("b", says="separated by semicolons")),
    File("everything quoted", "t.csv", text(quoting=1), same),
    File("no header", "t.csv", text(header=False), finds("b", says="first line holds numbers")),
    File("only a header", "t.csv", "a,b,c\n", "has column names but no rows; add some"),
    File("one row", "t.csv", "a,b,c\n1,2,3\n", "at least 2 rows are needed, got 1; pass more data"),
    File("two rows", "t.csv", "a,b,c\n1,2,3\n2,4,5\n", lambda record: None),
    File("one column", "t.csv", text(XF[["b"]]), "every file needs the same columns, but 'a', 'c' are only in .*good.csv; .*--common-columns"),
    File("row names of R", "t.csv", XF.to_csv(), finds("b", says="without a name")),
    File("header shorter than the rows", "t.csv", "a,b\n" + "1,2,3\n" * 9, "every row needs 2 fields.*line 2 has 3; mend"),
    File("comment lines on top", "t.csv", "# made today\n" + text(), "every row needs 1 field .*remove the comment lines"),
    File("a title on top", "t.csv", "Report 2024\n\n" + text(), "every row needs 1 field .*line 3 has 3; remove lines above the column names"),
    File("a short row", "t.csv", text() + "1,2\n", "every row needs 3 fields.*line 32 has 2; mend that line"),
    File("a long row", "t.csv", text() + "1,2,3,4\n", "every row needs 3 fields.*line 32 has 4; mend that line"),
    File("a comma after each row", "t.csv", text().replace("\n", ",\n"), finds("b", says="without a name")),
    File("a quotation mark left open", "t.csv", text() + '1,2,"3\n4,5,6\n', "quotation mark in about line 32 is never"),
    File("a quotation mark open for long", "t.csv", 'a,b,c\n1,2,"3\n' + "4,5,6\n" * 40000, "a cell in line 2 is longer.*clos"),
    File("a quotation mark closed late", "t.csv", 'a,b,c\n1,"2,3\n4,5,6\n1,2",3,4\n', "mark in line 2 is open until line 4; cl"),
    File("a very long cell", "t.csv", text() + f"1,2,{'9' * 200_000}\n", "a cell in line 32 is longer than 131,072.*shorten"),
    File("a very long name", "t.csv", f"{'a' * 200_000},b,c\n1,2,3\n", "a cell in line 1 is longer than 131,072.*shorten"),
    File("empty file", "t.csv", "", "is empty; a table with a line of column names is needed"),
    File("nothing but blanks", "t.csv", " \n\n  \n", "is empty; a table with a line of column names is needed"),
    File("only a mark", "t.csv", b"\xef\xbb\xbf", "is empty; a table"),
    File("zero bytes at the start", "t.csv", bytes(9) + text().encode(), "is no text.*save it as CSV"),
    File("a zero byte far in", "t.csv", (text() + "1,2,3\n" * 20_000).encode() + b"1,\x00,3\n", "line 20032 holds a zero byte.*mend"),
    File("a zero byte in latin-1", "t.csv", b"a,b,c\n1,\x00,3\n", "line 2 holds a zero byte.*mend", ("--encoding", "latin-1")),
    File("noise", "t.csv", np.random.default_rng(0).bytes(5000), "is no (UTF-8 )?text"),
    File("repeated names", "t.csv", "a,b,a\n1,2,3\n", "column names must be unique, but 'a' occurs.*rename one"),
    File("an empty name", "t.csv", text().replace("a,b", ",b", 1), "t.csv: every file.* 'a' is only in .*--common-columns"),
    File("markup in names", "t.csv", text(XF.rename(columns={"a": "<script>x</script>"})), "good.csv: every file.*'<script>x</script>' is only in .*t.csv and 'a' is only in .*good.csv; .*--common-columns"),
    File("a line break in a name", "t.csv", text(XF.rename(columns={"a": "a\nz"})), "good.csv: every file needs.*'a z' is only in .*t.csv and 'a' is only in .*good.csv; .*--common-columns"),
    File("other names", "t.csv", "p,q\n1,2\n2,3\n", "good.csv: shares no column with .*t.csv"),
    File("missing cells", "t.csv", text(XF.mask(XF > 8)), "rows have missing values.*--missing drop", ("--missing", "error")),
    File("missing cells left out", "t.csv", text(XF.mask(XF > 8)), same, ("--missing", "drop")),
    File("question marks", "t.csv", text(XF.mask(XF > 8), na_rep="?"), same, ("--missing", "drop")),
    File("a column of nothing", "t.csv", text(XF.assign(a=np.nan)), "30 of 30 rows have missing values, in columns 'a' .30.", ("--missing", "error")),
    File("infinity", "t.csv", text(XF.replace(9, np.inf)), "infinite values in 'a'.*; replace or remove"),
    File("a number beyond float64", "t.csv", text().replace("\n9.0", "\n1e999", 1), "infinite values in 'a'; replace"),
    File("times 1e300", "t.csv", text(XF * 1e300), "numbers beyond 1e70 in 'a', 'b', 'c'.*rescale"),
    File("times 1e-300, both", "t.csv", text(XF * 1e-300), "differ by less than 1e-70.*rescale", TWICE),
    File("times 1e60, both", "t.csv", text(XF * 1e60), finds(over=tuple(NAMES)), TWICE),
    File("integers beyond 64 bits", "t.csv", with_column([10**25 * (i % 7) for i in range(ROWS)]), finds(over=(*NAMES, "z")), TWICE),
    File("decimal commas", "t.csv", text(XF + 0.5, sep=";", decimal=","), finds("b", says="decimal commas")),
    File("decimal commas in quotes", "t.csv", text(XF.map(lambda v: f"{v:.1f}".replace(".", ","))), "3 columns need.*'a', 'b', 'c' hold numbers written as '.*,0'.*--number a,b,c"),
    File("thousands with commas", "t.csv", with_column([f"{1000 + i:,}.5" for i in range(ROWS)]), "'z' holds numbers written as '1,000.5'.*--number z", TWICE),
    File("thousands with points", "t.csv", text(XF.assign(z=[f"1.{i:03},5" for i in range(ROWS)]), sep=";"), "'z' holds numbers written as '1.000,5'.*--number z", TWICE),
    File("per cent", "t.csv", with_column([f"{i}%" for i in range(ROWS)]), "'z' holds numbers written as '0%'.*--number z", TWICE),
    File("money", "t.csv", with_column([f"${i}.50" for i in range(ROWS)]), "'z' holds numbers written as '\\$0.50'.*--number z", TWICE),
    File("numbers and a word", "t.csv", with_column(["n.a.", *map(str, range(29))]), "'z' holds numbers as text and also text such as 'n.a.'.*--number z", TWICE),
    File("dates", "t.csv", with_column(pd.date_range("2020", periods=ROWS).astype(str)), finds(says="'z'"), TWICE),
    File("truth values", "t.csv", with_column(np.arange(ROWS) % 2 == 0), finds(over=(*NAMES, "z")), TWICE),
    File("constants", "t.csv", "a,b,c\n" + "1,1,1\n" * 9, finds(says="(p = 1): 'a'"), TWICE),
    File("a number for each row", "t.csv", with_column(range(ROWS), "nr"), finds(says="Row numbers, so left out: 'nr'"), TWICE),
    File("the same, in whole fractions", "t.csv", with_column(np.arange(ROWS) * 1.0, "nr"), finds(says="Row numbers"), TWICE),
]  # fmt: skip

KINDS = [
    File("gzip", "t.csv.gz", gzip.compress(text().encode()), same),
    File("gzip without its name", "t.csv", gzip.compress(text().encode()), same),
    File("gzip in gzip", "t.csv.gz", gzip.compress(gzip.compress(text().encode())), "is no text.*save it"),
    File("gzip cut short", "t.csv.gz", gzip.compress(text().encode())[:-12], "could not be read as separated values.*save or copy"),
    File("gzip of nothing", "t.csv.gz", gzip.compress(b""), "is empty; a table with a line of column names"),
    File("gzip bomb", "t.csv.gz", gzip_bomb, "would unpack from 0.* to 1.* MB or more, which no real table.*CSV"),
    File("Parquet", "t.parquet", parquet(), same),
    File("Parquet called .csv", "t.csv", parquet(), same),
    File("CSV called .parquet", "t.parquet", text(), same),
    File("CSV called .xlsx", "t.xlsx", text(), same),
    File("CSV called .npy", "t.npy", text(), same),
    File("Parquet with an index", "t.parquet", parquet(XF.set_index(pd.Index(range(ROWS), name="row"))), same),
    File("Parquet cut short", "t.parquet", parquet()[:-20], "could not be read as a Parquet file.*save or copy"),
    File("Parquet of nothing", "t.parquet", parquet(XF[:0]), "at least 2 rows are needed, got 0|no column is left"),
    File("Parquet without columns", "t.parquet", parquet(pd.DataFrame()), "shares no column|at least one column|holds no col"),
    File("Parquet bomb", "t.parquet", parquet_bomb, "would unpack from .* which no real table"),
    File("Parquet with lists", "t.parquet", parquet(XF.assign(z=[[1]] * ROWS)), "'z' holds values of type list.*--exclude z", TWICE),
    File("Parquet with records", "t.parquet", parquet(XF.assign(z=[{"q": 1}] * ROWS)), "'z' holds values of type struct.*--exclude z", TWICE),
    File("Parquet with bytes", "t.parquet", parquet(XF.assign(z=[b"u", b"v"] * 15)), "'z' holds values of type binary.*--exclude z", TWICE),
    File("Parquet with dates", "t.parquet", parquet(XF.assign(z=pd.date_range("2020", periods=ROWS, tz="UTC"))), finds(says="Dates, compared in days: 'z'"), TWICE),
    File("Parquet with nullable integers", "t.parquet", parquet(XF.astype("Int64").mask(XF > 8)), "rows have missing values.*--missing drop", ("--missing", "error")),
    File("Parquet with repeated names", "t.parquet", lambda path: pa.parquet.write_table(pa.table([[1, 2], [3, 4]], names=["a", "a"]), path), "column names must be unique, but 'a'.*rename"),
    File("Feather", "t.feather", feather(), same),
    File("Feather cut short", "t.feather", feather()[:-30], "could not be read as a Feather file.*save or copy"),
    File("Feather of version 1", "t.feather", b"FEA1" + bytes(50), "Feather file of version 1; save it again"),
    File("Excel", "t.xlsx", excel(), same),
    File("Excel with blank rows", "t.xlsx", excel([], NAMES, *[row for values in X.tolist() for row in ([], values)]), same),
    File("Excel with repeated names", "t.xlsx", excel(["a", "a"], [1, 2], [3, 4]), "column names must be unique, but 'a'.*rename"),
    File("Excel with errors in cells", "t.xlsx", excel(NAMES, *[["#DIV/0!", 2, 3]] * 5), "5 of 5 rows have missing", ("--missing", "error")),
    File("Excel with gaps", "t.xlsx", excel(NAMES, [None, 1, 2], *X.tolist()), "1 of 31 rows have missing values, in columns 'a'", ("--missing", "error")),
    File("Excel with formulas never computed", "t.xlsx", excel(NAMES, *[[i, f"=A{i + 2}*2", i % 4] for i in range(20)]), "20 of 20 rows have missing values, in columns 'b'", ("--missing", "error")),
    File("Excel with dates", "t.xlsx", excel([*NAMES, "z"], *[[*row, pd.Timestamp("2020")] for row in X.tolist()]), finds(says="'z'"), TWICE),
    File("Excel with numbers as names", "t.xlsx", excel([1, 2, 3], *X.tolist()), "good.csv: shares no column with"),
    File("Excel with an empty sheet", "t.xlsx", lambda path: openpyxl.Workbook().save(path), "first sheet, 'Sheet', holds no table; move"),
    File("Excel with only a header", "t.xlsx", excel(NAMES), "first sheet, 'Sheet', holds no table; move"),
    File("Excel cut short", "t.xlsx", excel()[:-40], "is a broken archive.*save or copy it again"),
    File("Excel with its sheet cut short", "t.xlsx", replaced(excel(), "xl/worksheets/sheet1.xml", lambda xml: xml[:300]), "could not be read as an Excel file.*save or copy"),
    File("Excel bomb", "t.xlsx", bomb("xl/worksheets/sheet1.xml"), "would unpack from .* to 136 MB or more, which no real"),
    File("Excel with a cell far away", "t.xlsx", far_corner(), "at least 2 rows are needed|every file needs the same columns"),
    File("Excel with laughing entities", "t.xlsx", replaced(excel(), "xl/worksheets/sheet1.xml", laughing), "could not be read as an Excel file.*save or copy"),
    File("old Excel", "t.xls", b"\xd0\xcf\x11\xe0" + bytes(50), "Excel file of the old kind .* save it as .xlsx or CSV"),
    File("a zip archive of nothing", "t.zip", zipped(), "zip archive of 0 files, and one table is needed; unpack it"),
    File("zip that says PK and no more", "t.zip", b"PK\x03\x04", "is a broken archive.*save or copy"),
    File("NumPy", "t.npy", npy(X), same),
    File("NumPy, other byte order", "t.npy", npy(X.astype(">f8")), same),
    File("NumPy, one dimension", "t.npy", npy(X[:, 1]), "shares no column|as many columns|by position"),
    File("NumPy, three dimensions", "t.npy", npy(np.ones((4, 3, 2))), "rows and columns is needed, but .*t.npy has shape .4, 3, 2.; reshape"),
    File("NumPy, no dimension", "t.npy", npy(np.array(1.0)), "rows and columns is needed, but .*t.npy has shape ..; reshape"),
    File("NumPy, no rows", "t.npy", npy(X[:0]), "at least 2 rows are needed, got 0|no column is left"),
    File("NumPy with fields", "t.npy", npy(np.rec.fromarrays(X.T, names="a,b,c")), same),
    File("NumPy with fields in two dimensions", "t.npy", npy(np.zeros((2, 2), dtype=[("a", "f8")])), "rows and columns is needed, but .*t.npy has shape .2, 2.; reshape"),
    File("NumPy, complex", "t.npy", npy(X * 1j), "'a', 'b', 'c' hold values of type complex128.*--exclude a,b,c"),
    File("NumPy, dates", "t.npy", npy(X.astype("M8[D]")), "no column is left to look at. Dates and times|same kind|no column"),
    File("NumPy, text", "t.npy", npy(np.array([["u", "v", "w"]] * 9)), "same kind as in|column .* categories|no column is left"),
    File("NumPy, text that is no Unicode", "t.npy", npy(np.array([["ab"], ["cd"]])).replace("c".encode("utf-32-le"), b" " * 4), "holds text that is no Unicode; write its file again", TWICE),
    File("NumPy, text with half a character", "t.npy", npy(np.array([["ab"], ["cd"]])).replace("c".encode("utf-32-le"), b"\0\xd8\0\0"), "holds text that is no Unicode; write its file again", TWICE),
    File("Feather with text that is no Unicode", "t.feather", broken_feather(b"Oslo", b"Os\xfflo"[:4]), "could not be read as a .*save", TWICE),
    File("Feather with broken offsets", "t.feather", broken_offsets(), "could not be read as a .*save", TWICE),
    File("NumPy with pickled objects", "t.npy", pickled_npy(), "holds pickled Python objects.*never opened; save numbers"),
    File("NumPy archive with pickled objects", "t.npz", lambda path: np.savez(path, a=np.array([Evil()], dtype=object), allow_pickle=True), "holds pickled Python objects.*never opened; save"),
    File("NumPy cut short", "t.npy", npy(X)[:-9], "is a broken NumPy file.*save or copy"),
    File("NumPy with half a header", "t.npy", npy(X)[:20], "is a broken NumPy file.*save or copy"),
    File("NumPy of a later version", "t.npy", b"\x93NUMPY\x09\x00" + npy(X)[8:], "is a broken NumPy file.*save or copy"),
    File("NumPy with code for a header", "t.npy", npy(X).replace(b"{'descr'", b"__import__", 1), "(is a broken NumPy file|could not be read as).*save"),
    File("NumPy that promises terabytes", "t.npy", lying_header(), "broken NumPy|does not fit into memory"),
    File("NumPy archive", "t.npz", npz(a=X[:, 0], b=X[:, 1], c=X[:, 2]), same),
    File("NumPy archive of one table", "t.npz", npz(table=X), same),
    File("NumPy archive of several tables", "t.npz", npz(p=X, q=X), "one table, or columns of one length.*save one table"),
    File("NumPy archive of nothing", "t.npz", npz(), "zip archive of 0 files, and one table is needed"),
    File("NumPy archive bomb", "t.npz", bomb("b.npy"), "would unpack from .* MB or more, which no real"),
    File("NumPy archive with a bad sum", "t.npz", npz(a=X).replace(X[:1].tobytes(), (X[:1] + 1).tobytes(), 1), "could not be read as a NumPy archive.*CRC.*save"),
    File("a pickle", "t.csv", pickle.dumps(Evil()), "Python pickle, which could run code and is never opened; save it"),
    File("HDF5", "t.h5", b"\x89HDF\r\n\x1a\n" + bytes(50), "could not be read as an HDF5 file"),
    File("PDF", "t.pdf", b"%PDF-1.7\n" + bytes(50), "is a PDF; export the table as CSV"),
    File("JSON", "t.jsonl", b'{"a":1}\n{"a":2}\n', "is JSON; save it as CSV or Parquet"),
    File("indented JSON", "t.json", b'[\n  {\n    "a": 1\n  },\n  {\n    "a": 2\n  }\n]\n', "is JSON; save it as CSV or Parquet"),
    File("an error page", "t.csv", b"\n<!DOCTYPE html>\n<html><title>Not found</title></html>\n", "is HTML or XML; export or download the table as CSV"),
    File("Matrix Market", "t.mtx.gz", gzip.compress(b"%%MatrixMarket matrix coordinate real general\n%\n2 1 2\n1 1 1\n2 1 3\n"), "is a Matrix Market file; save scipy.io.mmread of it with scipy.sparse.save_npz"),
    File("pointer to a large file", "t.csv", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "is a pointer to a file in Git LFS; fetch the file with git lfs pull"),
    File("text packed by bzip2", "t.csv.bz2", bz2.compress(text().encode()), same),
    File("text packed by xz", "t.csv.xz", lzma.compress(text().encode()), same),
    File("text packed by bzip2, cut short", "t.csv.bz2", bz2.compress(text().encode())[:-12], "could not be read as separated values.*save or copy"),
    File("text packed by xz, cut short", "t.csv.xz", lzma.compress(text().encode())[:-12], "could not be read as separated values.*save or copy"),
    File("text in a zip archive", "t.csv.zip", zipped(**{"t/": "", "t/t.csv": text(), "__MACOSX/t/._t.csv": "x"}), same),
    File("texts in a zip archive", "t.csv.zip", zipped(a=text(), b=text()), "zip archive of 2 files, and one table is needed; unpack it"),
    File("a picture in a zip archive", "t.csv.zip", zipped(a="\x89PNG\0\0\0"), "is no text.*save it as CSV"),
    File("a picture", "t.png", b"\x89PNG\r\n\x1a\n" + bytes(50), "is no text.*save it as CSV"),
    File("a program", "t.csv", b"\x7fELF" + bytes(50), "is no text.*save it as CSV"),
    File("a folder", "t.csv", lambda path: path.mkdir(), "the folder .* holds no Parquet or Arrow files and no Zarr array; name a file in it"),
    File("nothing", "t.csv", lambda path: None, "there is no such file; check the path"),
    File("a name too long", "t" * 300, lambda path: None, "cannot be opened .File name too long.; check its name"),
    File("a link to itself", "t.csv", lambda path: path.symlink_to(path), "cannot be opened .*; check its name"),
    File("a file that is not Unicode by name", os.fsdecode(b"t\xff.csv"), text(), same),
    File("a name with a line break", "t\nt.csv", text(sep=";"), finds("b", says="separated by semicolons")),
    File("a name with markup", "<b>t.csv", text(sep=";"), finds("b", says="<b>t.csv")),
]  # fmt: skip

FILES = [*TEXT, *KINDS]
