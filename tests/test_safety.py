"""What SECURITY.md promises: no code from data, nothing written but what was named, and nothing in it that runs."""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import stat
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fuzz_readers import read_in_pieces
from odd_files import FILES, broken_feather, broken_offsets, good, lying_header, million, npy, text
from odd_inputs import XF, YF, X

import kernsift.report.export
from kernsift import InputError, Result, compare, relate
from kernsift.cli import main
from kernsift.data.inputs import as_table
from kernsift.report.export import as_csv, as_json, write_whole

SOURCES = sorted((Path(__file__).resolve().parent.parent / "src" / "kernsift").rglob("*.py"))

# No code from data ----------------------------------------------------------------------------------------------------

MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "jsonpickle"}
CALLS = {"eval", "exec", "compile", "system", "popen", "read_pickle", "load_pickle", "unsafe_load", "literal_eval"}


def dangers(source: str) -> list[str]:
    """What could run code that came with data."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"import {name}" for name in names if name.split(".")[0] in MODULES]
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        owner, _, name = called.rpartition(".")
        given = {word.arg: ast.unparse(word.value) for word in node.keywords}
        if name in CALLS and owner != "re":
            found.append(called)
        if owner in ("np", "numpy") and name == "load" and given.get("allow_pickle") != "False":
            found.append(f"{called} without allow_pickle=False")
        if given.get("allow_pickle", "False") != "False":
            found.append(f"{called} with allow_pickle")
        if given.get("shell", "False") != "False":
            found.append(f"{called} with a shell")
        if called in ("yaml.load", "joblib.load", "torch.load"):
            found.append(called)
    return found


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: "/".join(file.parts[-2:]))
def test_no_source_could_run_code_from_data(file: Path) -> None:
    # What goes to the workers of a Dask cluster is packed as Dask packs it, between machines that trust each other.
    allowed = ["import pickle"] if file.name == "dask_workers.py" else []
    assert dangers(file.read_text(encoding="utf-8")) in ([], allowed)


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "import cloudpickle as c",
        "eval('1')",
        "builtins.exec(x)",
        "os.system('ls')",
        "subprocess.run('ls', shell=True)",
        "np.load(path)",
        "numpy.load(path, allow_pickle=True)",
        "np.lib.format.read_array(f, allow_pickle=True)",
        "yaml.load(f)",
        "pd.read_pickle(f)",
        "joblib.load(f)",
    ],
)
def test_a_danger_is_seen(line: str) -> None:
    assert len(dangers(line)) >= 1


def test_what_is_harmless_passes() -> None:
    assert (
        dangers("np.load(path, allow_pickle=False)\nre.compile('a')\nsubprocess.run(['ls'])\nmodel.evaluate(x)") == []
    )


# Nothing written but what was named -----------------------------------------------------------------------------------

WATCHED = """
import json, os, sys

seen = []
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
EVENTS = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")

def watch(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        path, mode, flags = arguments
        if set(mode or "") & set("wax+") or flags & WRITING:
            seen.append(os.fsdecode(path))
    elif event in EVENTS:
        seen.append(os.fsdecode(arguments[0]))
    elif event.startswith(("socket.connect", "socket.getaddrinfo", "subprocess.", "os.system", "os.exec", "os.posix")):
        seen.append(f"{event} {os.path.basename(str(arguments[0]))}" if event == "subprocess.Popen" else event)

sys.addaudithook(watch)
from kernsift.cli import main
code = main(sys.argv[1:])
print(json.dumps([code, seen]), file=sys.__stderr__)
"""


@pytest.mark.parametrize("outputs", [[], ["--json", "-o", "out/answer.json", "--report", "out/answer.html"]], ids=len)
def test_nothing_is_written_but_the_named_output(outputs: list[str], tmp_path: Path) -> None:
    for folder in ("work/out", "home", "temporary"):
        (tmp_path / folder).mkdir(parents=True)
    YF.to_csv(tmp_path / "work" / "two.csv", index=False)
    XF.to_parquet(tmp_path / "work" / "one.parquet")
    home, temporary = str(tmp_path / "home"), str(tmp_path / "temporary")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "COV_"))}
    environment |= {"HOME": home, "TMPDIR": temporary, "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(
        [sys.executable, "-c", WATCHED, "compare", "one.parquet", "two.csv", *outputs],
        cwd=tmp_path / "work",
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    code, seen = json.loads(run.stderr.splitlines()[-1])
    # Which is how NumPy 2.0 and threadpoolctl 3.2 look at the machine.
    seen = [what for what in seen if what not in ("subprocess.Popen lscpu", "subprocess.Popen ldconfig")]
    assert code == 0
    within = [Path(tmp_path, "work", "out") in Path(tmp_path, "work", path).parents for path in seen]
    assert [path for path, inside in zip(seen, within, strict=True) if not inside and path != os.devnull] == []
    assert any(within) == bool(outputs)
    assert os.listdir(home) == os.listdir(temporary) == []
    assert sorted(os.listdir(tmp_path / "work")) == ["one.parquet", "out", "two.csv"]
    assert sorted(os.listdir(tmp_path / "work" / "out")) == sorted(Path(name).name for name in outputs if "/" in name)


def test_a_file_on_its_way_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    change = os.chmod

    def look(path: str, mode: int, **_: Any) -> None:
        seen.append((stat.S_IMODE(os.stat(path).st_mode), Path(path).read_text(), Path(path).parent))
        change(path, mode)

    monkeypatch.setattr(kernsift.report.export.os, "chmod", look)
    before = os.umask(0o027)
    try:
        write_whole(str(tmp_path / "answer.csv"), "whole")
    finally:
        os.umask(before)
    assert seen == [(0o600, "whole", tmp_path)]
    assert stat.S_IMODE((tmp_path / "answer.csv").stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["answer.csv"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("no/such/folder.csv", "No such file or directory"),
        (".", "is a folder; name a file in it"),
        ("n" * 300, "File name too long"),
        ("/dev/full", "No space left on device"),
        ("file/below.csv", "Not a directory"),
    ],
)
def test_what_cannot_be_written_is_one_sentence(
    path: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    if path.startswith("/dev") and not os.path.exists(path):
        pytest.skip(f"no {path} on this system")
    with pytest.raises(InputError, match=said):
        write_whole(path, "x")
    assert os.listdir() == ["file"]


def test_a_name_as_long_as_names_may_be(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 255)
    write_whole(str(target), "x")
    assert target.read_text() == "x"


@pytest.mark.skipif(sys.platform == "darwin", reason="file names are Unicode there")
def test_a_file_name_that_is_no_unicode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    good(tmp_path / "good.csv")
    odd = os.fsdecode(b"odd\xff.csv")
    Path(odd).write_text(text(sep=";"))  # its name is then said in a note
    for how in ("--json", "--csv"):
        assert main(["compare", odd, "good.csv", how, "-o", "answer", "--report", "answer.html"]) == 0
        Path("answer").read_text(encoding="utf-8")
        assert "semicolons" in Path("answer.html").read_text(encoding="utf-8")


# Nothing in it that runs ----------------------------------------------------------------------------------------------

MARKUP = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><b>",
    "{{ 7*7 }}",
    "a&amp;b",
    "'--><i>",
]


class Tags(HTMLParser):
    """The elements of a page with the names of their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: set[tuple[str, tuple[str, ...]]] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add((tag, tuple(name for name, _ in attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def reports(names: list[str], level: str) -> list[str]:
    columns = dict(zip(names, np.c_[X, X].T, strict=False))
    one = pd.DataFrame(columns | {"kind": ["u", level] * 15})
    two = pd.DataFrame({name: values + 9 for name, values in columns.items()} | {"kind": ["u", "u", level] * 10})
    compared = compare(one, two, random_state=0)
    related = relate(one, "kind", random_state=0)
    shown = compared.to_html(title=level, command=f"kernsift compare {level} b.csv")
    return [shown, related.to_html(), f"<body>{compared._repr_html_()}</body>"]


def test_names_and_levels_are_no_markup() -> None:
    plain = reports([f"name {i}" for i in range(len(MARKUP))], "level")
    odd = reports(MARKUP, MARKUP[0])
    for page, other in zip(plain, odd, strict=True):
        seen = Tags(other)
        assert seen.elements <= Tags(page).elements
        assert MARKUP[0] in seen.text and "{{ 7*7 }}" in seen.text


def named(*names: str) -> Result:
    return compare(XF.set_axis(list(names), axis=1), YF.set_axis(list(names), axis=1), random_state=0)


FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\n=1", "\r=1", "a\r=1", "＝1+1", "=cmd|' /C calc'!A0"]


@pytest.mark.parametrize("name", FORMULAS)
def test_no_spreadsheet_runs_a_name(name: str) -> None:
    # Read as a spreadsheet does, for which any line break outside of quotes ends a row.
    cells = [row["feature"] for row in csv.DictReader(io.StringIO(as_csv(named(name, "b", "c")), newline=""))]
    shown = name.replace("\r", "\n")
    assert sorted(cells) == sorted([shown if shown.startswith("a") else f"'{shown}", "b", "c"])


@pytest.mark.parametrize("name", ["-1", "+2.5", "-.5", "-1e-3", "3", "a-b", "a=1", "-"])
def test_plain_names_and_numbers_stay(name: str) -> None:
    cells = {row["feature"] for row in csv.DictReader(io.StringIO(as_csv(named(name, "b", "c"))))}
    assert cells == {name if name != "-" else "'-", "b", "c"}


def test_negative_numbers_stay_numbers() -> None:
    result = compare(X, X[::-1], random_state=0)
    assert (result.scores < 0).any()
    rows = csv.DictReader(io.StringIO(as_csv(result)))
    assert [float(row["score"]) for row in rows] == result.scores[result.selected].tolist()


def test_json_is_json_whatever_the_names() -> None:
    names = ['"', "\\", "\u2028</script>"]
    assert set(json.loads(as_json(named(*names)))["scores"]) == set(names)


# Within bounds --------------------------------------------------------------------------------------------------------

BOUNDED = """
import json, resource, sys, time
from kernsift import InputError
from kernsift.data.inputs import as_table

unit = 2**20 if sys.platform == "darwin" else 2**10
before = resource.getrusage(resource.RUSAGE_SELF)
said = []
for path in sys.argv[1:]:
    try:
        as_table(path)
        said.append("read")
    except InputError as error:
        said.append(str(error)[:80])
after = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([after.ru_utime - before.ru_utime, (after.ru_maxrss - before.ru_maxrss) / unit, said]))
"""


def bounded(*paths: Path) -> tuple[float, float, list[str]]:
    """Seconds of processor time, megabytes above the imports, and what was said, of reading these files."""
    pytest.importorskip("resource", reason="this system does not tell the memory of a process in this way")
    command = [sys.executable, "-c", BOUNDED, *map(str, paths)]
    seconds, megabytes, said = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return seconds, megabytes, said


def test_bombs_are_refused_before_they_fill_the_memory(tmp_path: Path) -> None:
    wanted = ("bomb", "laughing", "far away", "terabytes")
    paths = []
    for i, row in enumerate(row for row in FILES if any(word in row.name for word in wanted)):
        (tmp_path / str(i)).mkdir()
        paths.append(row.make(tmp_path / str(i)))
    assert len(paths) >= 7
    assert max(path.stat().st_size for path in paths) < 1_000_000
    seconds, megabytes, said = bounded(*paths)
    assert "read" not in [words for words, path in zip(said, paths, strict=True) if "bomb" in path.name]
    assert seconds < 30  # 2 s on an idle core
    assert megabytes < 1000, said


def test_a_million_columns_are_read_in_seconds(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(million(3))
    seconds, megabytes, said = bounded(path)
    assert said == ["read"]
    assert seconds < 60  # 5 s on an idle core; column by column it took minutes
    assert megabytes < 2000


def test_a_million_names_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(million(0))
    with pytest.raises(InputError, match="has column names but no rows"):
        as_table(str(path))


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_is_no_table(device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not os.path.exists(device):
        pytest.skip(f"no {device} on this system")
    good(tmp_path / "good.csv")
    assert main(["compare", device, str(tmp_path / "good.csv")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


BROKEN = {
    "broken offsets": ("t.feather", broken_offsets()),
    "broken metadata": ("t.feather", broken_feather(b'{"index_columns"', b"{index_columns!!")),
    "metadata that is no Unicode": ("t.feather", broken_feather(b'{"index_columns"', b'{"index_column\xff"')),
    "text that is no Unicode": ("t.npy", npy(np.array([["ab"], ["cd"]])).replace("c".encode("utf-32-le"), b" " * 4)),
    "a header that does not end": ("t.npy", npy(X).replace(b"}", b" ", 1)),
    "terabytes promised": ("t.npy", lying_header()),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_that_are_read_in_pieces(case: str, tmp_path: Path) -> None:
    """Found by fuzzing; some of them ended the process."""
    name, data = BROKEN[case]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=r"^X: .*\.$"):
        read_in_pieces(tmp_path / name)


def test_the_readers_survive_broken_files(tmp_path: Path) -> None:
    """A small run of `make fuzz`, always with the same inputs."""
    script = Path(__file__).with_name("fuzz_readers.py")
    command = [sys.executable, str(script), "--inputs", "1600", "--seed", "1", "--folder", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.endswith("no crash\n")
