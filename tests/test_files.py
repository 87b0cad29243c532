"""Files as people keep them: every kind is read alike, and everything wrong with one is said in one sentence."""

from __future__ import annotations

import gzip
import io
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kernsift import InputError
from kernsift.cli.files import Loaded, read_arrays, read_file
from kernsift.cli.guesses import choose

FRAME = pd.DataFrame(
    {"height": [1.5, 2.25, -3.0, 4.0], "count": [3, 1, 2, 5], "city": ["Rome", "Oslo", "Rome", "Bern"]}
)


def excel(frame: pd.DataFrame, path: Path) -> None:
    with pd.ExcelWriter(path, engine="openpyxl") as book:
        frame.to_excel(book, sheet_name="first", index=False)
        frame.to_excel(book, sheet_name="second", index=False)


WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    "t.csv": lambda frame, path: frame.to_csv(path, index=False),
    "t.tsv": lambda frame, path: frame.to_csv(path, sep="\t", index=False),
    "semicolons.csv": lambda frame, path: frame.to_csv(path, sep=";", index=False),
    "bars.txt": lambda frame, path: frame.to_csv(path, sep="|", index=False),
    "german.csv": lambda frame, path: frame.to_csv(path, sep=";", decimal=",", index=False),
    "excel-unicode.txt": lambda frame, path: frame.to_csv(path, sep="\t", encoding="utf-16", index=False),
    "spaces.dat": lambda frame, path: frame.to_csv(path, sep=" ", index=False),
    "bom.csv": lambda frame, path: frame.to_csv(path, encoding="utf-8-sig", index=False),
    "windows.csv": lambda frame, path: frame.to_csv(path, lineterminator="\r\n", index=False),
    "t.csv.gz": lambda frame, path: frame.to_csv(path, index=False),
    "t.parquet": lambda frame, path: frame.to_parquet(path),
    "t.feather": lambda frame, path: frame.to_feather(path),
    "t.xlsx": excel,
    "misnamed.csv": lambda frame, path: frame.to_parquet(path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_of_file_gives_the_same_table(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](FRAME, path)
    loaded = read_file(str(path))
    assert loaded.named
    pd.testing.assert_frame_equal(loaded.frame, FRAME, check_dtype=False)


def test_what_was_guessed_is_said(tmp_path: Path) -> None:
    german, book, plain = tmp_path / "german.csv", tmp_path / "t.xlsx", tmp_path / "t.csv"
    for path in (german, book, plain):
        WRITERS[path.name](FRAME, path)
    assert [note.partition(": ")[2] for note in read_file(str(german)).notes] == [
        "columns are separated by semicolons.",
        "numbers have decimal commas.",
    ]
    assert "the first of 2 sheets" in read_file(str(book)).notes[0]
    assert read_file(str(plain)).notes == ()


def test_text_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("1,2\n3,4\n5,6\n")
    loaded = read_file(str(path))
    assert not loaded.named
    assert loaded.frame["x1"].tolist() == [2, 4, 6]
    assert "x0, x1" in loaded.notes[0]


def test_decimal_commas_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("1,5;2,5\n3,5;4,5\n")
    assert read_file(str(path)).frame.to_numpy().tolist() == [[1.5, 2.5], [3.5, 4.5]]


def test_quoted_separators_and_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,"b, with comma"\n1,"x\ny"\n2,"p,q"\n\n3,z\n')
    frame = read_file(str(path)).frame
    assert list(frame.columns) == ["a", "b, with comma"]
    assert frame.iloc[:, 1].tolist() == ["x\ny", "p,q", "z"]


def test_one_column(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n2\n")
    assert read_file(str(path)).frame["a"].tolist() == [1, 2]


def test_question_marks_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,x\n?,y\n3,?\n")
    frame = read_file(str(path)).frame
    assert frame["a"].isna().tolist() == [False, True, False]
    assert frame["b"].isna().tolist() == [False, False, True]


def test_numpy_files(tmp_path: Path) -> None:
    array = np.arange(6.0).reshape(3, 2)
    np.save(tmp_path / "t.npy", array)
    np.savez(tmp_path / "one.npz", data=array)
    np.savez(tmp_path / "columns.npz", height=array[:, 0], weight=array[:, 1])
    np.savez(tmp_path / "sets.npz", a=array, b=array + 1)
    for name in ("t.npy", "one.npz"):
        loaded = read_file(str(tmp_path / name))
        assert not loaded.named
        np.testing.assert_array_equal(loaded.frame.to_numpy(), array)
    assert list(read_file(str(tmp_path / "columns.npz")).frame.columns) == ["height", "weight"]
    assert list(read_arrays(str(tmp_path / "sets.npz"))) == ["a", "b"]
    assert list(read_arrays(str(tmp_path / "one.npz"))) == ["one"]
    with pytest.raises(InputError, match=r"one table, or columns of one length"):
        read_file(str(tmp_path / "sets.npz"))


def test_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("t.csv", "t.parquet"):
        WRITERS[name](FRAME, tmp_path / name)
        stream = io.TextIOWrapper(io.BytesIO((tmp_path / name).read_bytes()))
        monkeypatch.setattr(sys, "stdin", stream)
        loaded = read_file("-")
        assert loaded.name == "standard input"
        pd.testing.assert_frame_equal(loaded.frame, FRAME, check_dtype=False)


def bomb(path: Path, member: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml" if path.suffix == ".xlsx" else "a.npy", "x")
        with archive.open(member, "w", force_zip64=True) as file:
            for _ in range(130):
                file.write(bytes(1 << 20))


def pickled(path: Path) -> None:
    np.save(path, np.array([{}, 1], dtype=object), allow_pickle=True)


def pickled_archive(path: Path) -> None:
    np.savez(path, a=np.array([{}, 1], dtype=object), allow_pickle=True)


BROKEN: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "empty": ("t.csv", lambda path: path.write_bytes(b""), "is empty"),
    "blank": ("t.csv", lambda path: path.write_bytes(b"\n\n"), "is empty"),
    "no rows": ("t.csv", lambda path: path.write_text("a,b\n"), "no rows"),
    "short row": ("t.csv", lambda path: path.write_text("a,b\n1,2\n3\n"), "line 3 has 1"),
    "long row": ("t.csv", lambda path: path.write_text("a,b\n1,2\n3,4,5\n"), "line 3 has 3"),
    "long rows all through": ("t.csv", lambda path: path.write_text("a,b\n1,2,3\n3,4,5\n"), "line 2 has 3"),
    "repeated name": ("t.csv", lambda path: path.write_text("a,a\n1,2\n"), "'a' occurs more than once"),
    "latin": ("t.csv", lambda path: path.write_bytes("a,b\n1,é\n".encode("latin-1")), "0xe9 in line 2"),
    "program": ("t.csv", lambda path: path.write_bytes(b"\x7fELF" + bytes(100)), "is no text"),
    "pickle": ("t.csv", lambda path: path.write_bytes(pickle.dumps([1])), "pickle"),
    "pickled array": ("t.npy", pickled, "pickled Python objects"),
    "pickled archive": ("t.npz", pickled_archive, "pickled Python objects"),
    "short array": ("t.npy", lambda path: path.write_bytes(_npy()[:-8]), "broken NumPy file"),
    "deep array": ("t.npy", lambda path: np.save(path, np.zeros((2, 2, 2))), "shape (2, 2, 2)"),
    "excel bomb": ("t.xlsx", lambda path: bomb(path, "xl/worksheets/sheet1.xml"), "no honest table"),
    "numpy bomb": ("t.npz", lambda path: bomb(path, "b.npy"), "no honest table"),
    "broken excel": ("t.xlsx", lambda path: _zip(path, "xl/workbook.xml"), "could not be read as Excel"),
    "some zip": ("t.zip", lambda path: _zip(path, "readme.txt"), "something else than a table"),
    "broken zip": ("t.xlsx", lambda path: path.write_bytes(b"PK\x03\x04" + bytes(30)), "broken archive"),
    "short parquet": ("t.parquet", lambda path: path.write_bytes(b"PAR1" + bytes(30)), "could not be read as Parquet"),
    "short gzip": ("t.csv.gz", lambda path: path.write_bytes(gzip.compress(b"a\n1\n2\n" * 99)[:-9]), "as gzip"),
    "old excel": ("t.xls", lambda path: path.write_bytes(b"\xd0\xcf\x11\xe0" + bytes(30)), "save it as .xlsx"),
    "folder": ("t.csv", lambda path: path.mkdir(), "is a folder"),
    "nothing": ("t.csv", lambda path: None, "no such file"),
}


def _npy() -> bytes:
    out = io.BytesIO()
    np.save(out, np.arange(9.0))
    return out.getvalue()


def _zip(path: Path, member: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, "<x")


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_is_one_sentence(case: str, tmp_path: Path) -> None:
    name, write, said = BROKEN[case]
    path = tmp_path / name
    write(path)
    with pytest.raises(InputError) as caught:
        read_file(str(path))
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert said in message
    assert "\n" not in message
    assert message.endswith(".")


def test_an_encoding_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("a,b\n1,é\n".encode("latin-1"))
    assert read_file(str(path), encoding="latin-1").frame["b"].tolist() == ["é"]
    with pytest.raises(InputError, match="'nonsense' is unknown"):
        read_file(str(path), encoding="nonsense")


def test_a_missing_file_suggests_a_near_name(tmp_path: Path) -> None:
    (tmp_path / "before.csv").write_text("a\n1\n")
    with pytest.raises(InputError, match=r"did you mean .*before\.csv\?$"):
        read_file(str(tmp_path / "befor.csv"))


# Which columns -------------------------------------------------------------------------------------------------------

ROWS = 40
RNG = np.random.default_rng(0)


def people(**changes: object) -> Loaded:
    columns = {
        "(row names)": np.arange(ROWS),
        "patient_id": RNG.permutation(1000)[:ROWS],
        "rank": np.arange(1, ROWS + 1),
        "size": RNG.normal(size=ROWS),
        "age": RNG.integers(20, 80, ROWS),
        "city": RNG.choice(["Rome", "Oslo"], ROWS),
        "comment": [f"said {i}" for i in range(ROWS)],
        "unit": "cm",
        "empty": np.nan,
        "seen": pd.date_range("2020-01-01", periods=ROWS),
    }
    return Loaded("people.csv", pd.DataFrame(columns | changes))


def test_columns_that_cannot_be_features_are_left_out_and_named() -> None:
    chosen = choose([people()])
    assert list(chosen.frames[0].columns) == ["size", "age", "city"]
    said = " ".join(chosen.notes)
    assert all(f"'{name}'" in said for name in people().frame.columns if name not in ("size", "age"))
    assert "Taken as categories: 'city' (2 values)." in said


def test_a_measurement_whose_name_ends_in_id_stays() -> None:
    values = RNG.permutation(1000)[:ROWS]
    chosen = choose([people(lipid=values, orderId=values, order_id=values)])
    assert list(chosen.frames[0].columns) == ["size", "age", "city", "lipid"]


def test_a_column_that_is_asked_for_stays() -> None:
    assert list(choose([people()], columns=["patient_id", "age"]).frames[0].columns) == ["patient_id", "age"]
    assert "rank" in choose([people()], keep=["rank"]).frames[0].columns


def test_patterns_and_exclusion() -> None:
    assert list(choose([people()], columns=["*i*"], exclude=["si*"]).frames[0].columns) == ["city"]
    with pytest.raises(InputError, match="'siez'; did you mean 'size'"):
        choose([people()], columns=["siez"])
    with pytest.raises(InputError, match="no column is left"):
        choose([people()], columns=["*"], exclude=["*"])


def test_columns_of_one_file_only_are_left_out_and_named() -> None:
    one, two = people(extra=RNG.normal(size=ROWS)), people()
    chosen = choose([one, two])
    assert "extra" not in chosen.frames[0].columns
    assert any("'extra'" in note for note in chosen.notes)
    with pytest.raises(InputError, match="shares no column"):
        choose([one, Loaded("other.csv", pd.DataFrame({"z": [1, 2]}))])


def test_numbers_with_some_text_are_no_categories() -> None:
    values = [str(i / 7) for i in range(ROWS - 1)] + ["n.a."]
    with pytest.raises(InputError, match=r"'dose' holds numbers, but also text such as 'n\.a\.' \(row 40\)"):
        choose([people(dose=values)])


def test_constant_means_constant_over_all_files() -> None:
    one, two = people(level=1.0), people(level=2.0)
    assert "level" in choose([one, two]).frames[0].columns
