"""The command line: files in, a table out.

Only click is loaded here; what computes is imported by the command that needs it, so that --help and completion are
immediate.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernsift.cli.interrupts import end_soon_when_interrupted, reported
from kernsift.cli.messages import options_for_arguments
from kernsift.cli.options import (
    ESTIMATORS,
    Question,
    choice_option,
    cluster_options,
    common,
    common_columns_option,
    estimator_option,
    feature_option,
    missing_option,
    option_values,
    row_columns,
    row_options,
    rows_given,
)
from kernsift.cli.output import check_report, run_question, show, terminal_width
from kernsift.exceptions import INSTALL, InputError

if TYPE_CHECKING:
    from kernsift.groups import GroupResults
    from kernsift.result import Result

_POSITIVE = click.IntRange(min=1)
_EXIT_CODES = """\b
Exit codes:
  0    the question was answered, with or without discoveries
  1    unexpected error (please report it; --debug shows where)
  2    wrong usage, or input that cannot be used
  3    an optional package is missing; the message says which
  4    with --fail-on-discovery: something is significant
  130  interrupted with Ctrl-C"""

_GROUP_HELP = """Which features changed, and which matter: kernel tests of every column.

Every column is tested, with a correction for the number of columns. With --k only the best are listed, each with a
p-value, an effect size and an interval that remain valid although the same data chose it.

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
@click.argument("second", type=click.Path(), required=False)
@click.option("--by", metavar="COLUMN", help="Compare the groups in this column of FIRST, without SECOND.")
@click.option("--group", metavar="VALUE", help="With --by: the group to compare with all others, or with --reference.")
@click.option("--reference", metavar="VALUE", help="With --by: the group that --group is compared with.")
@click.option("--every-group", is_flag=True, help="With --by: compare each group with all others, or with --reference.")
@row_options
@feature_option
@common_columns_option
@missing_option
@cluster_options
@estimator_option(ESTIMATORS)
@common
def compare(first: str, second: str | None, **given: Any) -> None:
    """Which columns are distributed differently in FIRST and SECOND, or in the groups of FIRST?

    Both are tables with column names in the first line and one observation in each row: CSV, TSV, Parquet, Feather,
    Excel (first sheet), NumPy (.npy, .npz) or AnnData (.h5ad). The format is recognised by the content. One of the two
    may be - for standard input. The numbers of rows may differ. Separator and decimal sign are guessed, and columns
    that identify the rows are left out; all guesses are reported. Text that is mostly numbers is an error unless
    --number or --category names the column.

    Large files are read in pieces: text above 64 MB, Parquet files and folders of them, Zarr arrays and HDF5 files
    (file.h5::/name selects one of several datasets). With --memory every file is.

    \b
    Examples:
      kernsift compare before.csv after.csv
      kernsift compare train.parquet live.parquet --correction holm --report drift.html
      kernsift compare patients.csv --by treatment
      kernsift compare cells.h5ad --by cell_type --group 'B cells' --layer counts
      kernsift compare cells.h5ad --by cell_type --every-group --csv > markers.csv
      kernsift compare cells.h5ad --by condition --unit donor --strata batch
      kernsift compare before.csv after.csv --paired patient
      kernsift compare a.csv b.csv --exclude 'meta_*' --feature 'position=lat,lon' --number price
      kernsift compare a.csv b.csv --json > answer.json
      kernsift compare january/ february/ --memory 2GB --estimator incomplete
    """
    by = given["by"]
    if (second is None) == (by is None):
        raise click.UsageError("Name two files, or one file and the column of its groups with --by.")
    if first == second == "-":
        raise click.UsageError("Only one of the two files can be standard input.")
    if given["every_group"]:
        _check_every_group(given)
    paths = {"X": first} if second is None else {"X": first, "Y": second}

    def ask() -> Result | GroupResults:
        from kernsift import api

        sources, options = _tables(paths, given, ({} if by is None else {by: "--by"}) | row_columns(given))
        options |= {name: given[name] for name in ("by", "group", "reference", "memory")}
        options |= rows_given(given) | _arguments(given)
        if given["every_group"]:
            from kernsift.groups import group_results

            own = {name: value for name, value in options.items() if name not in ("group", "family", "distinct")}
            return group_results(sources[0], **own, layer=None, n_jobs=None, progress=False, intervals=True)
        result = api.compare(*sources, **options)
        return result if second is None else result.renamed(_labels(first, second))

    run_question(ask, given, {name: _shown(path) for name, path in paths.items()})


@app.command(cls=Question, short_help="What a column of a table depends on.", epilog=_EXIT_CODES)
@click.argument("file", type=click.Path())
@click.option("--target", "-t", required=True, multiple=True, metavar="COLUMN", help="The response; may be repeated.")
@choice_option(
    "--response",
    ["auto", "numeric", "category", "censored"],
    "auto",
    "How to read the response: by default text, and whole numbers with few different values, are categories.",
)
@click.option("--event", metavar="COLUMN", help="--target is a time until this event (1), or until censoring (0).")
@row_options
@feature_option
@missing_option
@cluster_options
@estimator_option([name for name in ESTIMATORS if name != "linear"], "dependence")
@common
def relate(file: str, target: tuple[str, ...], response: str, event: str | None, **given: Any) -> None:
    """Which columns of FILE does the column --target depend on?

    FILE is read as by `kernsift compare`, see there. The target may hold numbers or categories; any form of
    dependence counts, not only a straight line.

    \b
    Examples:
      kernsift relate patients.csv --target outcome
      kernsift relate flats.xlsx --target price --exclude id --report price.html
      kernsift relate wine.csv --target class --response category --k 3
      kernsift relate heart.csv --target disease --given age,sex,site
      kernsift relate trial.csv --target time --event death
    """
    if event is not None and len(target) > 1:
        raise click.UsageError("--event needs one --target, the time.")
    if event is not None and response not in ("auto", "censored"):
        raise click.UsageError(f"--event makes a censored response; leave out --response {response}.")

    def ask() -> Result:
        from kernsift import api

        answer: Any = list(target) if len(target) > 1 else target[0]
        if event is not None:
            answer = (target[0], event)
        named = dict.fromkeys(target, "--target") | ({event: "--event"} if event else {}) | row_columns(given)
        (table,), options = _tables({"X": file}, given, named)
        arguments = {"memory": given["memory"], **rows_given(given), **_arguments(given)}
        return api.relate(table, answer, response=response, **options, **arguments)

    run_question(ask, given, {"X": _shown(file), "y": "--target"})


@app.command(cls=Question, short_help="Which of several data sets deviate from a reference.", epilog=_EXIT_CODES)
@click.argument("reference", type=click.Path())
@click.argument("candidates", type=click.Path(), nargs=-1, required=True)
@common_columns_option
@choice_option(
    "--missing",
    ["column", "drop", "error"],
    "column",
    "Missing values: leave out rows that have any (column and drop are the same here), or refuse them.",
)
@estimator_option(ESTIMATORS)
@common
def screen(reference: str, candidates: tuple[str, ...], **given: Any) -> None:
    """Which of the CANDIDATES, whole data sets, deviate from REFERENCE?

    All columns of a candidate together are compared with those of the reference, so that a change of the dependence
    between columns counts as well. Candidates have the names of their files; an .npz file has one for each array.

    \b
    Examples:
      kernsift screen reference.npy a.npy b.npy
      kernsift screen real.csv generated/*.csv --k 3
    """

    def ask() -> Result:
        from kernsift import api
        from kernsift.cli.inputs import check_encodings, column_kinds, open_candidates, open_files, select_columns

        check_encodings(given["encoding"], (reference, *candidates))
        others = open_candidates(candidates, given)
        first = open_files({"reference": reference}, given)[0]
        found = select_columns([first, *others.values()], [_shown(reference), *others], given)
        wanted = column_kinds(found[0], _shown(reference), given)
        return api.screen(found[0], dict(zip(others, found[1:], strict=True)), kinds=wanted, **_arguments(given))

    run_question(ask, given, {"reference": _shown(reference)})


@app.command(short_help="Run an example, in a few seconds.", epilog=_EXIT_CODES)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Another shuffle.")
@click.option("--report", metavar="FILE", help="Write the result as one HTML file.")
@click.option("--debug", is_flag=True, help="Show where an error came from.")
def demo(seed: int, report: str | None, debug: bool) -> None:
    """Run an example on data that come with scikit-learn: tumour measurements, hidden among shuffled copies."""
    from kernsift.cli.demo import explain, run
    from kernsift.execution.progress import progress_bar
    from kernsift.report.export import write_whole

    check_report(report)
    with progress_bar(sys.stderr.isatty()):
        result, best = run(seed)
    if report:
        write_whole(report, result.to_html(command=f"kernsift demo --seed {seed}"))
    show(explain(result, best, terminal_width()) + (f"\n\nReport: {report}\n" if report else "\n"))


@app.command(short_help="Run the paper's experiments again.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--list", "listed", is_flag=True, help="List the figures and tables.")
@click.option("--trials", type=_POSITIVE, metavar="N", default=100, show_default=True, help="Trials of each setting.")
@click.option("--workers", type=_POSITIVE, metavar="N", help="Use N processes.  [default: one a core]")
@click.option("--out", metavar="DIR", default="reproduction", show_default=True, help="Folder for results.")
@click.option("--data-dir", metavar="DIR", help="Folder with the data files.  [default: KERNSIFT_DATA, or a download]")
@click.option("--quick", is_flag=True, help="Everything in about a minute, with few trials.")
@click.option("--cluster", metavar="ADDRESS", help="Use the Dask cluster at this address.")
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", default=0, show_default=True, help="Seed of everything."
)
@click.option("--tiny", is_flag=True, hidden=True)
@click.pass_context
def reproduce(context: click.Context, /, listed: bool, workers: int | None, **given: Any) -> None:
    """Run the paper's experiments, and put its numbers and ours side by side.

    NAME are figures and tables, by default all of them. A run that was stopped, or killed, continues when the same
    command is given again.

    \b
    Examples:
      kernsift reproduce --quick
      kernsift reproduce fig1 table1 --workers 4
    """
    from kernsift.experiments.reproduce import list_artefacts, run

    if listed:
        list_artefacts()
        return
    context.exit(run(workers=workers or os.cpu_count() or 1, **given))


@app.command(short_help="Set up shell completion.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script with which SHELL completes commands, options and file names.

    \b
    Examples:
      kernsift completion bash >> ~/.bashrc
      kernsift completion zsh >> ~/.zshrc
      kernsift completion fish > ~/.config/fish/completions/kernsift.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None  # `click.Choice` names no others
    click.echo(found(app, {}, "kernsift", "_KERNSIFT_COMPLETE").source())


def _tables(
    paths: Mapping[str, str], given: Mapping[str, Any], keep: Mapping[str, str]
) -> tuple[list[Any], dict[str, Any]]:
    """The tables, and the groups and kinds of their columns; `keep` has the columns that options name, which stay."""
    from kernsift.cli.inputs import check_encodings, column_kinds, matching_names, open_files, select_columns

    check_encodings(given["encoding"], paths.values())
    sources = open_files(paths, given)
    files = [_shown(path) for path in paths.values()]
    names = sources[0].names
    groups = {
        label: matching_names(f"--feature {label}", wanted, names, files[0])
        for label, wanted in given["feature"].items()
    }
    grouped = [name for members in groups.values() for name in members]
    sources = select_columns(sources, files, given, {**dict.fromkeys(grouped, "--feature"), **keep})
    return sources, {"groups": groups, "kinds": column_kinds(sources[0], files[0], given, keep)}


def _shown(path: str) -> str:
    return "standard input" if path == "-" else path


def _arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the library for the options of a command."""
    from kernsift.options import with_options

    estimator, test = with_options(given["estimator"], given["test"], option_values(given["option"]))
    names = ("k", "threshold", "alpha", "family", "confidence_level", "kernel", "bandwidth", "missing")
    return {name: given[name] for name in names} | {
        "estimator": estimator,
        "test": test,
        "correction": None if given["correction"] == "none" else given["correction"],
        "random_state": given["seed"],
    }


def _labels(first: str, second: str) -> tuple[str, str]:
    one, two = (Path(_shown(path)).name for path in (first, second))
    return (one, two) if one != two else (first, second)


def _check_every_group(given: Mapping[str, Any]) -> None:
    if given["by"] is None or given["group"] is not None:
        raise click.UsageError("--every-group needs --by, and compares each of its groups; leave out --group.")
    if given["family"] != "all" or given["distinct"]:
        raise click.UsageError("--every-group corrects over all groups; leave out --family and --distinct.")
    if given["report"] or Path(given["output"] or "").suffix.lower() in (".html", ".htm", ".md"):
        raise click.UsageError("--every-group writes no report; choose one group with --group, or write a .csv.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    debug = "--debug" in arguments
    if argv is None and arguments[:1] != ["reproduce"]:  # which has workers to end first
        end_soon_when_interrupted()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: click.echo(
                f"note: {options_for_arguments(str(message))}", err=True
            )
            code = app.main(arguments or ["--help"], prog_name="kernsift", standalone_mode=False, obj=arguments)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        where = f" (kernsift {context.info_name} --help)" if context is not None and context.parent else ""
        return _report_error(f"{error.format_message()}{where}", 2, debug)
    except (KeyboardInterrupt, click.Abort):
        code = _report_error("interrupted.", 130, False)
        reported.set()
        return code
    except ModuleNotFoundError as error:
        text = str(error)
        return _report_error(text if INSTALL in text else f"{text}: {INSTALL}.", 3, debug)
    except InputError as error:
        return _report_error(str(error), 2, debug)
    except Exception as error:
        return _report_error(f"unexpected {type(error).__name__}: {error} (--debug shows where)", 1, debug)


def _report_error(message: str, code: int, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    # Names come from files: control characters in them must not reach the terminal.
    shown = "".join(char if char.isprintable() else "�" for char in " ".join(message.split()))
    click.echo(f"kernsift: {shown}", err=True)
    return code
