"""Broken files by the thousand: whatever is in a file, reading it gives a table or one sentence.

    python tests/fuzz_readers.py                       # 100,000 inputs, some minutes on one core: `make fuzz`
    python tests/fuzz_readers.py --inputs 700 --seed 1 # what the tests run
    python tests/fuzz_readers.py --guided --formats csv  # atheris looks for inputs that reach new code

Valid small files of every kind are broken at random: bytes, pieces, numbers, and in archives the members before they
are packed. Each result is read as the command line reads a file, without calling the library. Batches run in
processes of their own, so that a reader which takes the process with it is seen as well; what it was given is kept.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import inspect
import io
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kernsift import InputError
from kernsift.cli.inputs import open_candidates
from kernsift.data.formats import archives, excel, numpy_files, open_source, text, text_dialects
from kernsift.data.inputs import as_pair

LONGEST = 10.0
"""Seconds that one small file may take."""

MEMORY = 8 << 30
"""Address space of a batch: a small file that asks for more gets the sentence that it does not fit."""

# Valid files ----------------------------------------------------------------------------------------------------------

_FRAME = pd.DataFrame(
    {
        "id": range(14),
        "size": [0.5, 1.25, -3, 1e-3, 7, 8, 9, 1, 2, 3, 4, 5, 6, 1e9],
        "city": ["Rome", "Oslo", "Bern", "é", "x,y", 'q"t', "Rome"] * 2,
        "gap": [1.0, None, 3.0, 4.0, None, 6.0, 7.0] * 2,
        "on": [True, False] * 7,
    }
)
_DATED = _FRAME.assign(when=pd.date_range("2020", periods=14), kind=pd.Categorical(["u", "v"] * 7))


def _written(write: Callable[[io.BytesIO], object]) -> bytes:
    out = io.BytesIO()
    write(out)
    return out.getvalue()


def seeds() -> dict[str, list[bytes]]:
    """A few valid files of every format."""
    array = _FRAME[["size", "id"]].to_numpy()
    csv = [_FRAME.to_csv(index=False), _FRAME.to_csv(), "1,2\n3,4\n5,6\n", 'a,"b\nc"\n1,"x, y"\n2,z\n']
    tsv = [_FRAME.to_csv(index=False, sep="\t"), _FRAME.to_csv(index=False, sep=";", decimal=","), "a b\n1 2\n3 4\n"]
    return {
        "csv": [*(text.encode() for text in csv), csv[0].encode("utf-16"), csv[0].encode("utf-8-sig")],
        "tsv": [text.encode() for text in tsv],
        "gzip": [gzip.compress(text.encode()) for text in (csv[0], tsv[0])],
        "npy": [
            *(_written(lambda out, a=a: np.save(out, a)) for a in (array, array[:, 0], array.astype("f4").T)),
            _written(lambda out: np.save(out, np.array(["u", "vw"]))),
            _written(lambda out: np.save(out, np.rec.fromarrays(array.T, names="a,b"))),
        ],
        "npz": [
            _written(lambda out: np.savez(out, table=array)),
            _written(lambda out: np.savez_compressed(out, a=array[:, 0], b=array[:, 1].astype("i4"))),
        ],
        "parquet": [
            _written(lambda out: _DATED.to_parquet(out)),
            _written(lambda out: _DATED.to_parquet(out, compression=None)),
            _written(lambda out: _FRAME.to_parquet(out, compression="gzip", index=True)),
        ],
        "feather": [
            _written(lambda out: _DATED.to_feather(out)),
            _written(lambda out: _FRAME.to_feather(out)),
            _written(lambda out: _FRAME.to_feather(out, compression="uncompressed")),
            _written(lambda out: _DATED.to_feather(out, compression="uncompressed")),
        ],
        "xlsx": [_written(lambda out: _DATED.head(5).to_excel(out, index=False))],
    }


# Breaking them --------------------------------------------------------------------------------------------------------

_TOKENS = [
    *[b'"', b"'", b",", b";", b"\t", b"|", b"\n", b"\r", b"\r\n", b"\0", b"\\", b"#", b"=", b"-", b"+", b"@", b" "],
    *[b"nan", b"inf", b"-inf", b"1e999", b"1e-999", b"NA", b"?", b"true", b"0x1f", b"9" * 40, b"1,5", b"1.234,5"],
    *[b"\xef\xbb\xbf", b"\xff\xfe", b"\xc3", b"\xff", "é".encode(), "\u2028".encode(), b"2020-01-01", b"x" * 300],
    *[b"PAR1", b"ARROW1", b"\x93NUMPY", b"PK\x03\x04", b"\x1f\x8b", b"descr", b"fortran_order", b"|O", b"<v>", b"&lt;"],
]
_INTEGERS = [0, 1, 2, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


def broken(data: bytes, random_: random.Random, others: list[bytes]) -> bytes:
    """One to eight random changes."""
    out = bytearray(data)
    for _ in range(random_.choice([1, 1, 1, 2, 3, 5, 8])):
        at, length = random_.randrange(len(out) + 1), random_.choice([1, 1, 2, 4, 8, 30])
        how = random_.randrange(9)
        if how == 0 and out:
            out[at % len(out)] ^= 1 << random_.randrange(8)
        elif how == 1 and out:
            out[at % len(out)] = random_.randrange(256)
        elif how == 2:
            del out[at : at + length]
        elif how == 3:
            out[at:at] = random_.randbytes(length)
        elif how == 4:
            out[at : at + random_.choice([0, length])] = random_.choice(_TOKENS)
        elif how == 5:
            size = random_.choice([1, 2, 4, 8])
            out[at : at + size] = (random_.choice(_INTEGERS) % 256**size).to_bytes(
                size, random_.choice(["little", "big"])
            )
        elif how == 6:
            piece = out[at : at + random_.choice([5, 40])]
            out[at:at] = piece * random_.choice([1, 2, 20])
        elif how == 7:
            other = random_.choice(others)
            start = random_.randrange(len(other))
            out[at : at + length] = other[start : start + length]
        elif random_.random() < 0.3:
            del out[at:]
    return bytes(out)


def _inside(data: bytes, random_: random.Random) -> bytes:
    """An archive with members that were broken before they were packed, so that every checksum is right."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        names = old.namelist()
        wanted = [name for name in names if "sheet1" in name or name.endswith(".npy")] * 5 + names
        chosen = random_.choice(wanted)
        for name in names:
            content = old.read(name)
            new.writestr(name, broken(content, random_, [content]) if name == chosen else content)
    return out.getvalue()


def inputs(kind: str, count: int, seed: int) -> Iterator[bytes]:
    """`count` broken files of one format; the same seed gives the same ones."""
    random_, valid = random.Random(f"{kind} {seed}"), seeds()[kind]
    yield from valid[:count]
    for _ in range(count - len(valid[:count])):
        data = random_.choice(valid)
        if kind in ("xlsx", "npz") and random_.random() < 0.6:
            yield _inside(data, random_)
        elif kind == "gzip" and random_.random() < 0.6:
            yield gzip.compress(broken(gzip.decompress(data), random_, [data]), 1)
        else:
            yield broken(data, random_, valid)


# Reading them ---------------------------------------------------------------------------------------------------------


def attempt(path: Path) -> str:
    """Read the file in every way there is: "read", "refused" with a sentence, or whatever else it raises."""
    reported = [_told(read, path) for read in (_on_the_command_line, read_in_pieces)]
    return "read" if "read" in reported else "refused"


def _told(read: Callable[[Path], None], path: Path) -> str:
    try:
        with _in_time(), warnings.catch_warnings():
            warnings.simplefilter("error")  # a warning would be a second line
            warnings.simplefilter("ignore", DeprecationWarning)  # which nobody sees but developers
            read(path)
    except InputError as error:
        message = str(error)
        if "\n" in message or len(message) > 1000 or not message.endswith((".", "?")) or ": " not in message:
            raise AssertionError(f"no sentence: {message!r}") from error
        return "refused"
    return "read"


def _on_the_command_line(path: Path) -> None:
    open_candidates([str(path)], {"encoding": ()})
    as_pair(str(path), str(path), missing="drop")


def read_in_pieces(path: Path) -> None:
    """As `compare("a.parquet", "b.parquet")` reads what may be larger than memory."""
    source = open_source(str(path), "X")
    for start in range(0, min(source.n, 100), 7):
        source.read(list(range(min(len(source.names), 20))), slice(start, min(start + 7, source.n)))


@contextmanager
def _in_time() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"more than {LONGEST:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _batch(kind: str, count: int, seed: int, folder: Path, tell: Any) -> None:
    if sys.platform == "linux":  # elsewhere addresses cannot be limited
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    found: collections.Counter[str] = collections.Counter()
    path = folder / f"input.{kind}"
    for number, data in enumerate(inputs(kind, count, seed)):
        path.write_bytes(data)
        try:
            found[attempt(path)] += 1
        except BaseException as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            name = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}"
            found[f"CRASH {name}"] += 1
            kept = folder / f"{seed}-{number}.{kind}"
            if found[f"CRASH {name}"] <= 3:
                kept.write_bytes(data)
                tell.send(f"{kept}: {name}: {str(error)[:200]}")
    tell.send(found)


def fuzz(kind: str, count: int, seed: int, folder: Path) -> collections.Counter[str]:
    """The outcomes of `count` broken files, read in a process of their own."""
    context = multiprocessing.get_context("fork")
    hear, tell = context.Pipe(duplex=False)
    process = context.Process(target=_batch, args=(kind, count, seed, folder, tell))
    process.start()
    tell.close()
    outcome: Any = None
    try:
        while not isinstance(outcome, collections.Counter):
            outcome = hear.recv()
            if isinstance(outcome, str):
                print(outcome, flush=True)
    except EOFError:
        process.join()
        kept = folder / f"{seed}-killed.{kind}"
        os.replace(folder / f"input.{kind}", kept)
        print(f"{kept}: the process ended with {process.exitcode}", flush=True)
        return collections.Counter({f"CRASH exit {process.exitcode}": 1})
    process.join()
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=100_000, help="of all formats together")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--formats", default=",".join(seeds()))
    parser.add_argument("--folder", type=Path, help="where crashing inputs are kept; a new one by default")
    parser.add_argument("--guided", action="store_true", help="with atheris, which has to be installed")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="kernsift-fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    kinds = given.formats.split(",")
    if given.guided:
        return _guided(kinds, given.inputs, folder)
    print(f"seed {given.seed}, crashing inputs in {folder}")
    crashes, each = 0, -(-given.inputs // len(kinds))
    for kind in kinds:
        started, total, done, batch = time.monotonic(), collections.Counter[str](), 0, 0
        while done < each:
            size = min(2000, each - done)
            total += fuzz(kind, size, given.seed + 1000 * batch, folder)
            done, batch = done + size, batch + 1
        crashed = {name: count for name, count in total.items() if name.startswith("CRASH")}
        crashes += sum(crashed.values())
        spent = time.monotonic() - started
        print(
            f"{kind:8} {done:7,} inputs, {total['read']:6,} read, {total['refused']:6,} refused, {spent:5.0f} s",
            crashed or "",
        )
    print("no crash" if not crashes else f"{crashes} crashes")
    return int(crashes > 0)


def _guided(kinds: list[str], count: int, folder: Path) -> int:
    """The same through atheris, which keeps what reaches new lines of the readers and breaks it further."""
    import atheris

    corpus = folder / "corpus"
    corpus.mkdir(exist_ok=True)
    for kind in kinds:
        for i, data in enumerate(seeds()[kind]):
            (corpus / f"{kind}-{i}").write_bytes(data)
    path = folder / "input"
    for module in (archives, excel, numpy_files, text, text_dialects):
        for name, function in list(vars(module).items()):
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                setattr(module, name, atheris.instrument_func(function))

    def one(data: bytes) -> None:
        path.write_bytes(data)
        attempt(path)

    atheris.Setup([sys.argv[0], str(corpus), f"-runs={count}", "-max_len=20000", f"-artifact_prefix={folder}/"], one)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
