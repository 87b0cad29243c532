"""Data files of every format: read alike, with errors of one sentence."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from odd_files import bomb

from kernsift import InputError, compare
from kernsift.cli.app import main
from kernsift.cli.inputs import column_kinds, open_candidates, open_files, select_columns
from kernsift.cli.messages import command_line_message
from kernsift.data.columns.columns import Columns
from kernsift.data.formats import Source, open_table
from kernsift.data.formats.in_memory import loaded
from kernsift.execution.notes import collect_notes

FRAME = pd.DataFrame(
    {"height": [1.5, 2.25, -3.0, 4.0], "count": [3, 1, 2, 5], "city": ["Rome", "Oslo", "Rome", "Bern"]}
)


NOTHING: dict[str, object] = {"encoding": (), "columns": (), "exclude": (), "number": (), "category": ()}
"""Options that were not given."""


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


def read(path: Path, **options: str) -> Columns:
    return loaded(open_table(str(path), "X", **options)).columns


def cells(columns: Columns, name: str) -> list[object]:
    """A column with its texts in place of codes, and None in missing cells."""
    i = columns.names.index(name)
    values = columns.values[:, i]
    names = columns.levels.get(i)
    return [None if value != value else names[int(value)] if names else value for value in values.tolist()]


@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_of_file_gives_the_same_table(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](FRAME, path)
    found = read(path)
    assert found.named and found.names == tuple(FRAME.columns)
    for column in FRAME:
        assert cells(found, column) == FRAME[column].tolist()
    assert found.kinds[2] == "text"


def test_what_was_guessed_is_said(tmp_path: Path) -> None:
    german, book, plain = tmp_path / "german.csv", tmp_path / "t.xlsx", tmp_path / "t.csv"
    for path in (german, book, plain):
        WRITERS[path.name](FRAME, path)
    said = "columns are separated by semicolons; numbers have decimal commas."
    assert open_table(german, "X").notes == (f"{german}: {said}",)
    again = tmp_path / "again.csv"
    again.write_bytes(german.read_bytes())
    assert compare(german, again, random_state=0).notes[0] == f"{german}, {again}: {said}"
    assert "the first of 2 sheets" in open_table(book, "X").notes[0]
    assert open_table(plain, "X").notes == ()


def test_text_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("1,2\n3,4\n5,6\n")
    source = open_table(path, "X")
    assert not source.named
    assert cells(read(path), "x1") == [2, 4, 6]
    assert "x0, x1" in source.notes[0]


@pytest.mark.parametrize("memory", [None, "64MB"])
def test_numbers_of_columns_are_their_names(memory: str | None, tmp_path: Path) -> None:
    """pandas writes 0, 1, 2 for columns without names; as a row of data they would be outliers."""
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(2, 40, 3))
    for name, array in zip("ab", arrays, strict=True):
        pd.DataFrame(array).to_csv(tmp_path / f"{name}.csv", index=False)
    found = compare(tmp_path / "a.csv", tmp_path / "b.csv", memory=memory, random_state=0)
    assert found.rows == (40, 40) and found.feature_names == ("0", "1", "2")
    assert any("first line counts the columns" in note for note in found.notes)
    np.testing.assert_allclose(found.all_pvalues, compare(*arrays, random_state=0).all_pvalues, rtol=1e-12)
    # Other numbers, and the values 0 and 1 of two columns, are a row.
    for first in ("0,1\n", "0,1,3\n", "0,1,2.5\n"):
        (tmp_path / "c.csv").write_text(first + first.replace("1", "4") * 9)
        assert compare(tmp_path / "c.csv", tmp_path / "c.csv", memory=memory, random_state=0).rows == (10, 10)


def test_decimal_commas_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("1,5;2,5\n3,5;4,5\n")
    assert read(path).values.tolist() == [[1.5, 2.5], [3.5, 4.5]]


def test_quoted_separators_and_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,"b, with comma"\n1,"x\ny"\n2,"p,q"\n\n3,z\n')
    assert cells(read(path), "b, with comma") == ["x\ny", "p,q", "z"]


def test_one_column(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n2\n")
    assert cells(read(path), "a") == [1, 2]


def test_question_marks_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,x\n?,y\n3,?\n")
    assert (cells(read(path), "a"), cells(read(path), "b")) == ([1, None, 3], ["x", "y", None])


def test_cells_without_a_name_are_called_as_pandas_calls_them(tmp_path: Path) -> None:
    """An index that pandas wrote, and a comma at the end of each line."""
    path = tmp_path / "t.csv"
    path.write_text(",a,\n0,1,\n1,2,\n")
    assert read(path).names == tuple(pd.read_csv(path).columns) == ("Unnamed: 0", "a", "Unnamed: 2")


def test_a_file_gives_the_same_answer_by_path_in_pieces_and_from_pandas(tmp_path: Path) -> None:
    """With an unnamed index, a comma at the end of each line, dates, truth values, text and gaps."""
    rng = np.random.default_rng(1)
    for name, shift in (("a.csv", 0.0), ("b.csv", 1.0)):
        frame = pd.DataFrame(
            {
                "size": rng.normal(shift, size=60),
                "city": rng.choice(["Rome", "Oslo", "Bern"], 60),
                "seen": pd.date_range("2020-01-01", periods=60).strftime("%Y-%m-%d"),
                "flag": rng.integers(0, 2, 60).astype(bool),
                "count": rng.integers(0, 4, 60),
            }
        )
        frame.loc[3, "size"] = None
        (tmp_path / name).write_text(frame.to_csv().replace("\n", ",\n"))
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    asked = [paths, [pd.read_csv(path) for path in paths]]
    results = [compare(*pair, random_state=0) for pair in asked]
    results.append(compare(*paths, random_state=0, memory="100MB"))
    for result in results:
        assert set(result.feature_names) == {"size", "city", "seen", "flag", "count"}
        assert any("'Unnamed: 0'" in note for note in result.notes)
        assert any("'Unnamed: 6'" in note and "Empty" in note for note in result.notes)
        np.testing.assert_allclose(result.all_pvalues, results[0].all_pvalues, rtol=1e-9)


SHIFT = [f"{x:.3f}" for x in np.random.default_rng(2).normal(size=60)]
WAYS: dict[str, Callable[[list[str]], str]] = {
    "currency": lambda cells: "a\n" + "".join(f"${cell}\n" for cell in cells),
    "percent": lambda cells: "a\n" + "".join(f"{cell}%\n" for cell in cells),
    "unit": lambda cells: "a\n" + "".join(f"{cell} kg\n" for cell in cells),
    "thousands": lambda cells: "a,b\n" + "".join(f'"1,{cell[-3:]}.5",2\n' for cell in cells),
    "placeholders": lambda cells: "a\n" + "".join(f"{cell}\n" for cell in ["unknown", "-", *cells]),
    "semicolons": lambda cells: "a;b\n" + "".join(f"{cell.replace('.', ',')};1\n" for cell in cells),
    "index": lambda cells: ",a\n" + "".join(f"{i},{cell}\n" for i, cell in enumerate(cells)),
    "row names": lambda cells: ",a\n" + "".join(f"r{i},{cell}\n" for i, cell in enumerate(cells)),
    "trailing comma": lambda cells: "a,\n" + "".join(f"{cell},\n" for cell in cells),
    "dates": lambda cells: "a,t\n" + "".join(f"{cell},2020-01-{i % 28 + 1:02}\n" for i, cell in enumerate(cells)),
    "local dates": lambda cells: "a,t\n" + "".join(f"{cell},{i % 28 + 1}/01/2020\n" for i, cell in enumerate(cells)),
    "identifiers": lambda cells: "a,id\n" + "".join(f"{cell},{7919 * i % 104729}\n" for i, cell in enumerate(cells)),
    "byte order mark": lambda cells: "\ufeffa\n" + "".join(f"{cell}\n" for cell in cells),
    "accents": lambda cells: "größe\n" + "".join(f"{cell}\n" for cell in cells),
    "line breaks": lambda cells: "a,t\n" + "".join(f'{cell},"x\ny"\n' for cell in cells),
    "same heads": lambda cells: "a,a\n" + "".join(f"{cell},1\n" for cell in cells),
    "empty column": lambda cells: "a,e\n" + "".join(f"{cell},\n" for cell in cells),
    "missing column": lambda cells: "a,e\n" + "".join(f"{cell},NA\n" for cell in cells),
    "infinite": lambda cells: "a\n" + "".join(f"{cell}\n" for cell in ["inf", *cells]),
    "several problems": lambda cells: (
        "a,b,c\n" + "".join(f"${cell},{cell}%,3.{i % 12 + 1}.2020\n" for i, cell in enumerate(cells))
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_file_gives_the_same_answer_in_the_shell(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same features, p-values and notes, or the same complaint with options in place of arguments."""
    monkeypatch.chdir(tmp_path)
    encoding = "latin-1" if way == "accents" else "utf-8"
    for name, cells in (("X.csv", SHIFT), ("Y.csv", [f"{float(cell) + 1:.3f}" for cell in SHIFT])):
        Path(name).write_text(WAYS[way](cells), encoding=encoding)
    code = main(["compare", "X.csv", "Y.csv", "--seed", "0", "--json"])
    said = capsys.readouterr()
    if code == 0:
        found, result = json.loads(said.out), compare("X.csv", "Y.csv", random_state=0)
        pvalues = dict(zip(result.feature_names, result.all_pvalues.tolist(), strict=True))
        assert found["all_pvalues"] == pvalues
        files = {"X": "X.csv", "Y": "Y.csv"}
        assert found["notes"] == [command_line_message(note, files) for note in result.notes]
        return
    with pytest.raises(InputError) as caught:
        compare("X.csv", "Y.csv", random_state=0)
    message = str(caught.value)
    assert code == 2 and said.err == f"kernsift: {command_line_message(message, {'X': 'X.csv', 'Y': 'Y.csv'})}\n"
    for fixes in re.findall(r"kinds=\{(.*)\}", message):
        assert all(option in said.err for option in ("--number", *re.findall(r"'(\w+)':", fixes)))


def test_the_home_folder_has_a_short_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    np.save(tmp_path / "x.npy", np.arange(6.0))
    assert open_table("~/x.npy", "X").n == 6


def test_numpy_files(tmp_path: Path) -> None:
    array = np.arange(6.0).reshape(3, 2)
    np.save(tmp_path / "t.npy", array)
    np.savez(tmp_path / "one.npz", data=array)
    np.savez(tmp_path / "columns.npz", height=array[:, 0], weight=array[:, 1])
    np.savez(tmp_path / "sets.npz", a=array, b=array + 1)
    for name in ("t.npy", "one.npz"):
        found = read(tmp_path / name)
        assert not found.named
        np.testing.assert_array_equal(found.values, array)
    assert read(tmp_path / "columns.npz").names == ("height", "weight")
    assert list(open_candidates([str(tmp_path / "sets.npz")], NOTHING)) == ["a", "b"]
    assert list(open_candidates([str(tmp_path / "one.npz")], NOTHING)) == ["one"]
    with pytest.raises(InputError, match=r"one table, or columns of one length"):
        read(tmp_path / "sets.npz")


def test_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("t.csv", "t.parquet"):
        WRITERS[name](FRAME, tmp_path / name)
        stream = io.TextIOWrapper(io.BytesIO((tmp_path / name).read_bytes()))
        monkeypatch.setattr(sys, "stdin", stream)
        (source,) = open_files({"X": "-"}, NOTHING)
        assert loaded(source).columns.names == tuple(FRAME.columns)


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
    "excel bomb": ("t.xlsx", bomb("xl/worksheets/sheet1.xml"), "no real table"),
    "numpy bomb": ("t.npz", bomb("b.npy"), "no real table"),
    "broken excel": ("t.xlsx", lambda path: _zip(path, "xl/workbook.xml"), "could not be read as an Excel file"),
    "some zip": ("t.zip", lambda path: _zip(path, "a.txt", "b.txt"), "zip archive of 2 files"),
    "broken zip": ("t.xlsx", lambda path: path.write_bytes(b"PK\x03\x04" + bytes(30)), "broken archive"),
    "short parquet": ("t.parquet", lambda path: path.write_bytes(b"PAR1" + bytes(30)), "be read as a Parquet file"),
    "short gzip": ("t.csv.gz", lambda path: path.write_bytes(gzip.compress(b"a\n1\n2\n" * 99)[:-9]), "file ended"),
    "old excel": ("t.xls", lambda path: path.write_bytes(b"\xd0\xcf\x11\xe0" + bytes(30)), "save it as .xlsx"),
    "folder": ("t.csv", lambda path: path.mkdir(), "holds no Parquet"),
    "nothing": ("t.csv", lambda path: None, "there is no file"),
}


def _npy() -> bytes:
    out = io.BytesIO()
    np.save(out, np.arange(9.0))
    return out.getvalue()


def _zip(path: Path, *members: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for member in members:
            archive.writestr(member, "<x")


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_is_one_sentence(case: str, tmp_path: Path) -> None:
    name, write, said = BROKEN[case]
    path = tmp_path / name
    write(path)
    with pytest.raises(InputError) as caught:
        read(path)
    message = str(caught.value)
    assert message.startswith("X: ") and str(path) in message
    assert said in message
    assert "\n" not in message
    assert message.endswith(".")


def test_an_encoding_can_be_given_for_each_file(tmp_path: Path) -> None:
    path, other = tmp_path / "t.csv", tmp_path / "u.csv"
    path.write_bytes("a,b\n1,é\n".encode("latin-1"))
    other.write_text("a,b\n1,é\n")
    assert cells(read(path, encoding="latin-1"), "b") == ["é"]
    with pytest.raises(InputError, match="'nonsense' is unknown"):
        read(path, encoding="nonsense")
    sources = open_files({"X": str(path), "Y": str(other)}, NOTHING | {"encoding": (f"{path}=latin-1",)})
    assert [cells(loaded(source).columns, "b") for source in sources] == [["é"], ["é"]]


def test_a_missing_file_suggests_a_near_name(tmp_path: Path) -> None:
    (tmp_path / "before.csv").write_text("a\n1\n")
    with pytest.raises(InputError, match=r"did you mean .*before\.csv\?$"):
        read(tmp_path / "befor.csv")


# Which columns -------------------------------------------------------------------------------------------------------

ROWS = 40
RNG = np.random.default_rng(0)


def people(**changes: object) -> Source:
    columns = {"size": RNG.normal(size=ROWS), "age": RNG.integers(20, 80, ROWS), "rank": np.arange(1, ROWS + 1)}
    return open_table(pd.DataFrame(columns | changes), "X")


def chosen(*sources: Source, keep: tuple[str, ...] = (), **given: object) -> tuple[str, ...]:
    files = [f"file {i}" for i in range(len(sources))]
    return select_columns(sources, files, NOTHING | given, dict.fromkeys(keep, "--by"))[0].names


def test_patterns_and_exclusion() -> None:
    assert chosen(people(), columns=["*i*"]) == ("size",)
    assert chosen(people(), exclude=["si*,rank"]) == ("age",)
    assert chosen(people(), columns=["age"], keep=("rank",)) == ("age", "rank")
    with pytest.raises(InputError, match="'siez'; did you mean 'size'"):
        chosen(people(), columns=["siez"])
    with pytest.raises(InputError, match="no column is left"):
        chosen(people(), columns=["*"], exclude=["*"])


def test_columns_of_one_file_only_are_an_error_unless_asked_for() -> None:
    one, two = people(extra=RNG.normal(size=ROWS)), people()
    with pytest.raises(InputError, match=r"^file 1: .* 'extra' is only in file 0; .*--common-columns\.$"):
        chosen(one, two)
    with pytest.raises(InputError, match=r"^file 1: .* 'extra' is not in all of them; .*--common-columns\.$"):
        chosen(one, two, one)
    assert chosen(one, two, exclude=["extra"]) == chosen(one, two, columns=["size,age,rank"]) == ("size", "age", "rank")
    other = people(a=RNG.normal(size=ROWS), b=RNG.normal(size=ROWS))
    with collect_notes() as notes:
        assert "extra" not in chosen(one, other, common_columns=True)
    assert notes == ["Left out with --common-columns: 'extra' is only in file 0 and 'a', 'b' are only in file 1."]
    with pytest.raises(InputError, match="shares no column"):
        chosen(one, open_table(pd.DataFrame({"z": [1, 2]}), "Y"))


def test_options_say_what_columns_are() -> None:
    source = people(city=RNG.choice(["Rome", "Oslo"], ROWS))
    given = NOTHING | {"number": ["c*"], "category": ["age"], "columns": ["rank,city"]}
    assert column_kinds(source, "t.csv", given) == {"rank": "number", "city": "number", "age": "category"}
    with pytest.raises(InputError, match=r"--number: t.csv has no column 'agee'; did you mean 'age'"):
        column_kinds(source, "t.csv", NOTHING | {"number": ["agee"]})
