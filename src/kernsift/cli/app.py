"""The command line: files in, a table out.

Only click is loaded here; what computes is imported by the command that needs it, so that --help and completion are
immediate.
"""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernsift.cli.interrupts import end_soon_when_interrupted, reported
from kernsift.cli.options import (
    ESTIMATORS,
    Question,
    cluster_options,
    common,
    estimator_option,
    group_option,
    number_or_word,
    option_values,
    split_names,
)

if TYPE_CHECKING:
    from kernsift.result import Result

_EXIT_CODES = """\b
Exit codes:
  0    an answer was given, whatever it says
  1    something went wrong that should not (please report it; --debug shows where)
  2    wrong usage, or input that cannot be used
  3    an optional package is missing; the message says which
  130  interrupted with Ctrl-C"""

_GROUP_HELP = """Which features changed, and which matter: kernel tests of every column.

Every column is tested, and what is found is corrected over all of them. With --k only the best are listed, each with a
p-value, an effect size and an interval that are valid although the same data chose it.

\b
Examples:
  kernsift demo
  kernsift compare before.csv after.csv
  kernsift relate patients.csv --target outcome --report outcome.html
  kernsift screen real.npy model_a.npy model_b.npy
  zcat big.csv.gz | kernsift relate - --target price --json | jq .features
"""


class InOrder(click.Group):
    """Commands in the order in which they are written here, which is the order of use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=InOrder,
    help=_GROUP_HELP,
    epilog=_EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="kernsift", message="%(prog)s %(version)s")
def app() -> None:
    pass


@app.command(cls=Question, short_help="What differs between two tables.", epilog=_EXIT_CODES)
@click.argument("first", type=click.Path())
@click.argument("second", type=click.Path())
@group_option
@cluster_options
@estimator_option(ESTIMATORS)
@common
def compare(first: str, second: str, **given: Any) -> None:
    """Which columns are distributed differently in FIRST and SECOND?

    Both are tables with a line of column names, one row an observation: CSV, TSV, Parquet, Feather, Excel (first
    sheet) or NumPy (.npy, .npz); what a file is, is told by its content. One of them may be - for standard input. Row
    counts may differ. Separator, decimal comma and categories are guessed; columns that only number the rows, are
    constant, or hold free text are left out. Everything guessed is said.

    Files larger than a quarter of the memory are read in pieces, and so are folders of Parquet files, Zarr arrays and
    HDF5 files (file.h5::/name where there are several datasets), and every file where --memory is given.

    \b
    Examples:
      kernsift compare before.csv after.csv
      kernsift compare train.parquet live.parquet --correction holm --report drift.html
      kernsift compare train.parquet live.parquet --k 5
      kernsift compare a.csv b.csv --exclude 'meta_*' --group 'position=lat,lon'
      kernsift compare a.csv b.csv --json > answer.json
      kernsift compare january/ february/ --memory 2GB --estimator incomplete
    """
    if first == second == "-":
        raise click.UsageError("Only one of the two files can be standard input.")

    def ask() -> Result:
        from kernsift import api

        files = _read({"X": first, "Y": second}, given)
        chosen, groups = _choose(files, given)
        tables, more = _settled(files, chosen, given, [name for members in groups.values() for name in members])
        result = api.compare(*tables, groups=groups, memory=given["memory"], **_arguments(given))
        return _said(result, (*chosen.notes, *more), _labels(first, second))

    _run(ask, f"comparing {first} with {second}", given, {"X": first, "Y": second})


@app.command(cls=Question, short_help="What a column of a table depends on.", epilog=_EXIT_CODES)
@click.argument("file", type=click.Path())
@click.option("--target", "-t", required=True, multiple=True, metavar="COLUMN", help="The response; may be repeated.")
@click.option(
    "--response",
    type=click.Choice(["auto", "numeric", "category"]),
    default="auto",
    show_default=True,
    help="How to take the response: text is always categories; whole numbers may be either.",
)
@group_option
@cluster_options
@estimator_option([name for name in ESTIMATORS if name != "linear"])
@common
def relate(file: str, target: tuple[str, ...], response: str, **given: Any) -> None:
    """Which columns of FILE does the column --target depend on?

    FILE is read as by `kernsift compare`, see there. The target may hold numbers or categories; any form of
    dependence counts, not only a straight line.

    \b
    Examples:
      kernsift relate patients.csv --target outcome
      kernsift relate flats.xlsx --target price --exclude id --report price.html
      kernsift relate wine.csv --target class --response category --k 3
    """

    def ask() -> Result:
        from kernsift import api

        files = _read({"X": file}, given)
        chosen, groups = _choose(files, given, keep=target)
        stay = [*target, *(name for members in groups.values() for name in members)]
        (table,), more = _settled(files, chosen, given, stay)
        answer: Any = list(target) if len(target) > 1 else target[0]
        arguments = {"memory": given["memory"], **_arguments(given)}
        result = api.relate(table, answer, response=response, groups=groups, **arguments)
        return _said(result, (*chosen.notes, *more, *_about_target(chosen.frames[0], target, response)))

    _run(ask, f"relating {file} to {', '.join(target)}", given, {"X": file, "y": "--target"})


@app.command(cls=Question, short_help="Which of several data sets deviate from a reference.", epilog=_EXIT_CODES)
@click.argument("reference", type=click.Path())
@click.argument("candidates", type=click.Path(), nargs=-1, required=True)
@estimator_option(ESTIMATORS)
@common
def screen(reference: str, candidates: tuple[str, ...], **given: Any) -> None:
    """Which of the CANDIDATES, whole data sets, deviate from REFERENCE?

    All columns of a candidate are held together against those of the reference, so that also a change in how columns
    hang together counts. Candidates are called by their file names; an .npz file brings one candidate for each array.

    \b
    Examples:
      kernsift screen reference.npy a.npy b.npy
      kernsift screen real.csv generated/*.csv --k 3
    """

    def ask() -> Result:
        from kernsift import api
        from kernsift.cli.guesses import choose

        names, files = _candidates(reference, candidates, given)
        chosen = choose(
            files,
            columns=split_names(given["columns"]),
            exclude=split_names(given["exclude"]),
            categories=False,
        )
        arguments = _arguments(given)
        others = dict(zip(names, chosen.frames[1:], strict=True))
        return _said(api.screen(chosen.frames[0], others, **arguments), chosen.notes)

    _run(ask, f"screening {len(candidates)} data sets", given, {"reference": reference})


@app.command(short_help="See it at work, in a few seconds.", epilog=_EXIT_CODES)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Another shuffle.")
@click.option("--report", metavar="FILE", help="Write the result as one HTML file.")
@click.option("--debug", is_flag=True, help="Show where an error came from.")
def demo(seed: int, report: str | None, debug: bool) -> None:
    """See it at work on data that comes with scikit-learn: tumour measurements, hidden among shuffled copies."""
    from kernsift.cli.demo import run
    from kernsift.cli.output import show, working, write_whole

    with working("looking for the measurements that differ"):
        shown = run(seed)
    if report:
        write_whole(report, shown.result.to_html(command=f"kernsift demo --seed {seed}"))
    show(shown.text(_width()) + (f"\n\nReport: {report}\n" if report else "\n"))


@app.command(
    short_help="Run the paper's experiments again.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def reproduce(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Run the paper's experiments again; `kernsift reproduce --help` lists them."""
    try:
        from kernsift.experiments.reproduce import main as reproduction
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("kernsift"):
            raise click.ClickException("The experiments are not part of this installation.") from None
        raise

    context.exit(int(reproduction(list(arguments)) or 0))


@app.command(short_help="Make the shell complete commands and options.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes SHELL complete commands, options and file names.

    \b
    Examples:
      kernsift completion bash >> ~/.bashrc
      kernsift completion zsh >> ~/.zshrc
      kernsift completion fish > ~/.config/fish/completions/kernsift.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    click.echo(found(app, {}, "kernsift", "_KERNSIFT_COMPLETE").source())


# Between click and the library ---------------------------------------------------------------------------------------


def _read(paths: Mapping[str, str], given: Mapping[str, Any]) -> list[Any]:
    """The files, by the names that the library has for them."""
    from kernsift.cli.large import read_any

    return [
        read_any(path, argument, encoding=given["encoding"], memory=given["memory"]) for argument, path in paths.items()
    ]


def _settled(
    files: Sequence[Any], chosen: Any, given: Mapping[str, Any], keep: Sequence[str]
) -> tuple[list[Any], list[str]]:
    """The tables that the library gets, and what else was guessed."""
    from kernsift.cli.large import harmonised

    stay = {*keep, *split_names(given["columns"])}
    return harmonised(files, chosen, stay, missing=given["missing"], memory=given["memory"])


def _candidates(reference: str, paths: Sequence[str], given: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
    from kernsift.cli.files import read_arrays, read_file

    files: dict[str, Any] = {}
    for path in paths:
        for name, loaded in read_arrays(path, encoding=given["encoding"]).items():
            files[name if name not in files else f"{path}:{name}" if name not in path else path] = loaded
    return list(files), [read_file(reference, encoding=given["encoding"]), *files.values()]


def _choose(files: list[Any], given: Mapping[str, Any], keep: Sequence[str] = ()) -> tuple[Any, dict[str, list[str]]]:
    from kernsift.cli.guesses import choose, match

    names = [str(name) for name in files[0].frame.columns]
    groups = {
        label: match(f"--group {label}", wanted, names, files[0].name) for label, wanted in given["group"].items()
    }
    grouped = [name for members in groups.values() for name in members]
    columns = split_names(given["columns"])
    chosen = choose(files, columns=columns, exclude=split_names(given["exclude"]), keep=[*keep, *grouped])
    return chosen, groups


def _about_target(frame: Any, target: Sequence[str], response: str) -> list[str]:
    """Few whole numbers may be labels: say how they were taken."""
    said = []
    for name in target:
        values = frame[name].dropna()
        if response == "auto" and values.dtype.kind in "iu" and 2 < values.nunique() <= 10:
            said.append(
                f"Target '{name}' holds {values.nunique()} different whole numbers, taken as amounts; "
                "--response category takes them as labels."
            )
    return said


def _arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the library is called with."""
    from kernsift.options import with_options

    estimator, test = with_options(given["estimator"], given["test"], option_values(given["option"]))
    names = ("k", "threshold", "alpha", "family", "confidence_level", "kernel", "missing")
    return {name: given[name] for name in names} | {
        "estimator": estimator,
        "test": test,
        "bandwidth": number_or_word(given["bandwidth"]),
        "correction": None if given["correction"] == "none" else given["correction"],
        "random_state": given["seed"],
    }


def _said(result: Result, notes: Sequence[str], series: tuple[str, ...] = ()) -> Result:
    """With the guesses among the notes, and the files' names in the pictures."""
    return replace(result.renamed(series) if series else result, notes=(*notes, *result.notes))


def _labels(first: str, second: str) -> tuple[str, str]:
    one, two = ("standard input" if path == "-" else Path(path).name for path in (first, second))
    return (one, two) if one != two else (first, second)


def _run(ask: Callable[[], Result], what: str, given: Mapping[str, Any], arguments: Mapping[str, str]) -> None:
    """Ask, then put the answer where it was wanted."""
    from kernsift.cli.output import as_csv, as_json, show, working, write_whole
    from kernsift.exceptions import InputError

    if given["as_json"] and given["as_csv"]:
        raise click.UsageError("Choose one of --json and --csv.")
    try:
        with _workers(given), working(what, given["quiet"]):
            result = ask()
            report = result.to_html(command=_command(result, given["seed"])) if given["report"] else ""
    except InputError as error:
        raise InputError(in_shell_words(str(error), arguments)) from error
    if given["report"]:
        write_whole(given["report"], report)
    whole = as_json(result) if given["as_json"] else as_csv(result) if given["as_csv"] else None
    if given["output"]:
        write_whole(given["output"], whole or result.to_text() + "\n")
        return
    if whole is None and given["quiet"] and given["report"]:
        return
    show(whole if whole is not None else _terminal(result, given) + "\n")


@contextmanager
def _workers(given: Mapping[str, Any]) -> Iterator[None]:
    """The cluster that was asked for, and where to look at it."""
    address, count = given.get("cluster"), given.get("workers")
    if address is None and count is None:
        yield
        return
    from kernsift.execution.dask_workers import client_in_use, connected

    if address is not None and count is not None:
        raise click.UsageError("Choose one of --cluster and --workers.")
    with connected(address, count) as client, client_in_use(client):
        if not given["quiet"]:
            click.echo(f"Dask dashboard: {client.dashboard_link}", err=True)
        yield


def _command(result: Result, seed: int | None) -> str:
    """The command line that gives the result again, also where chance chose the seed."""
    return shlex.join(["kernsift", *_ARGV, *(["--seed", str(result.seed)] if seed is None else [])])


def _terminal(result: Result, given: Mapping[str, Any]) -> str:
    """What was found; the table; its legend; what was guessed; how to have it again."""
    from kernsift.report.text import legend, more, notes, said, table

    width = _width()
    rows = "\n".join(filter(None, [table(result, width), more(result)]))
    if given["quiet"]:
        return rows
    seed = f"The same numbers again: --seed {result.seed}." if given["seed"] is None else ""
    report = f"Report: {given['report']}" if given["report"] else ""
    last = "\n".join(filter(None, [seed, report]))
    parts = [said(result, width), rows, legend(result, width), notes(result, width), last]
    return "\n\n".join(filter(None, parts))


def _width() -> int:
    import shutil

    return max(50, min(shutil.get_terminal_size((100, 24)).columns, 120))


def in_shell_words(message: str, arguments: Mapping[str, str]) -> str:
    """A message of the library in the words of the command line: files for X and Y, options for arguments."""
    message = re.sub(r"^candidates\['(.*?)'\]", r"\1", message)
    first, colon, rest = message.partition(": ")
    named = {"random_state": "--seed", "groups": "--group", "client": "--cluster", **arguments}
    options = {"k", "threshold", "alpha", "correction", "family", "confidence_level"}
    options |= {"estimator", "test", "kernel", "bandwidth", "missing", "memory"}
    first = named.get(first, f"--{first.replace('_', '-')}" if first in options else first)
    rest = rest.removeprefix(f"{first} ")  # a file that the library names, too
    rest = re.sub(r"\bk=None\b", "--k all", rest)
    if first == "--k":
        rest = rest.replace("or None", "or all")
    rest = re.sub(r"\b(missing|response|estimator|test|bandwidth|k)=(['\"]?)([\w.]+)\2", r"--\1 \3", rest)
    meant = [f"{name} is {file}" for name, file in arguments.items() if re.search(rf"(?<!['\w]){name}(?!['\w])", rest)]
    return first + colon + rest + (f" ({', '.join(meant)})" if meant else "")


# The process ---------------------------------------------------------------------------------------------------------

_ARGV: list[str] = []


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    _ARGV[:] = sys.argv[1:] if argv is None else list(argv)
    debug = "--debug" in _ARGV
    if argv is None and _ARGV[:1] != ["reproduce"]:  # which has workers to end first
        end_soon_when_interrupted()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: click.echo(f"note: {message}", err=True)
            code = app.main(_ARGV or ["--help"], prog_name="kernsift", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        where = f" (kernsift {context.info_name} --help)" if context is not None and context.parent else ""
        return _complain(f"{error.format_message()}{where}", 2, debug)
    except (KeyboardInterrupt, click.Abort):
        code = _complain("interrupted.", 130, False)
        reported()
        return code
    except ModuleNotFoundError as error:
        text = str(error)
        return _complain(text if "pip install" in text else f"{text}: pip install {error.name}.", 3, debug)
    except ValueError as error:
        from kernsift.exceptions import InputError

        code = 2 if isinstance(error, InputError) else 1
        return _complain(str(error) if code == 2 else _unexpected(error), code, debug)
    except Exception as error:
        return _complain(_unexpected(error), 1, debug)


def _unexpected(error: Exception) -> str:
    return f"unexpected {type(error).__name__}: {error} (--debug shows where)"


def _complain(message: str, code: int, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    # Names come from files: what is in them may not move the cursor or colour the screen.
    shown = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in " ".join(message.split()))
    click.echo(f"kernsift: {shown}", err=True)
    return code
