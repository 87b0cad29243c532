"""The options that all questions of the command line share, and how their values are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import click

ESTIMATORS = ["complete", "cross", "incomplete", "block", "linear"]
TESTS = ["exact", "multiscale", "polyhedral", "naive"]
KERNELS = ["gaussian", "laplace", "imq", "linear", "polynomial", "triangle", "delta"]
CORRECTIONS = ["bh", "by", "bky", "holm", "none"]


def number_or_share(value: str) -> float | None:
    """A number, a share (0.1 or 10%), or "all", which is None."""
    word = value.strip().lower()
    if word in ("all", "none"):
        return None
    try:
        number = float(word[:-1]) / 100 if word.endswith("%") else float(word)
    except ValueError:
        raise click.BadParameter(f"needs a number, a share such as 0.1 or 10%, or 'all', got {value!r}.") from None
    return int(number) if number.is_integer() and not word.endswith("%") else number


def split_names(values: Sequence[str]) -> list[str]:
    """Names separated by commas, from an option that may be repeated; a backslash keeps a comma in a name."""
    marked = [value.replace("\\,", "\0") for value in values]
    return [name.replace("\0", ",").strip() for value in marked for name in value.split(",") if name.strip()]


def number_or_word(value: str) -> float | str:
    """A bandwidth: a number where it reads as one."""
    try:
        return float(value)
    except ValueError:
        return value


def option_values(pairs: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE pairs, where a value that reads as JSON (a number, a list) is that."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"needs NAME=VALUE such as replicates=5000, got {pair!r}.", param_hint="--option")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def _groups(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for value in values:
        name, equals, members = value.partition("=")
        wanted = split_names([members])
        if not equals or not name.strip() or not wanted:
            raise click.BadParameter(f"needs NAME=column,column such as position=lat,lon, got {value!r}.")
        found.setdefault(name.strip(), []).extend(wanted)
    return found


class Question(click.Command):
    """A command whose --help lists its options by what they are about."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {str(option.name): option.get_help_record(ctx) for option in self.get_params(ctx)}
        named = {name for names in _SECTIONS.values() for name in names}
        own = [name for name, parameter in zip(records, self.get_params(ctx), strict=True) if parameter.required]
        rest = [name for name in records if name not in named and name not in own]
        for title, names in {"Required": own, **_SECTIONS, "Other": rest}.items():
            shown = [record for name in names if (record := records.get(name)) is not None and record[0][0] == "-"]
            if shown:
                with formatter.section(title):
                    formatter.write_dl(shown)


_SECTIONS = {
    "Samples": ["by", "group", "reference", "every_group"],
    "Columns": [
        *("columns", "exclude", "common_columns", "number", "category", "feature", "event", "response", "missing"),
        *("encoding", "layer"),
    ],
    "Rows that belong together, and confounders": ["strata", "paired", "unit", "given"],
    "What is tested and listed": ["k", "threshold", "alpha", "correction", "family", "confidence_level", "distinct"],
    "Method": ["estimator", "test", "kernel", "bandwidth", "option", "seed"],
    "Execution": ["cluster", "workers", "memory"],
    "Output": ["as_json", "as_csv", "sort", "output", "report", "fail_on_discovery", "quiet"],
}


def choice_option(name: str, values: Sequence[str], default: str, text: str) -> Callable[..., Any]:
    """An option with these values, whose help shows the default."""
    return click.option(name, type=click.Choice(values), default=default, show_default=True, help=text)


def combine_options(*options: Callable[..., Any]) -> Callable[..., Any]:
    """One decorator for several options, in this order."""
    return lambda command: reduce(lambda found, option: option(found), reversed(options), command)


common_columns_option = click.option("--common-columns", is_flag=True, help="Use only the columns that all files have.")

feature_option = click.option(
    "--feature",
    multiple=True,
    callback=_groups,
    metavar="NAME=COLUMN,...",
    help="Columns that count as one feature, such as position=lat,lon; may be repeated.",
)

missing_option = choice_option(
    "--missing",
    ["column", "value", "drop", "error"],
    "column",
    "Missing values. column: test each feature on the rows that have it. value: treat missing as a value. drop: leave "
    "out rows with any. error: refuse them.",
)

cluster_options = combine_options(
    click.option(
        "--cluster", metavar="ADDRESS", help="Use the Dask cluster at this address, such as tcp://10.0.0.1:8786."
    ),
    click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Use N local processes."),
    click.option(
        "--memory",
        metavar="SIZE",
        help="Read files in pieces within this much memory, such as 1GB or 50%.  [default: large files only, within a "
        "quarter of this machine's]",
    ),
)

row_options = combine_options(
    click.option(
        "--strata",
        multiple=True,
        metavar="NAME,...",
        help="Columns within whose values rows are exchangeable, such as a site.",
    ),
    click.option("--paired", metavar="COLUMN", help="Column that names pairs of rows, such as a patient."),
    click.option(
        "--unit",
        multiple=True,
        metavar="NAME,...",
        help="Columns that name what was sampled, such as the donor of cells.",
    ),
    click.option(
        "--given",
        multiple=True,
        metavar="NAME,...",
        help="Confounders that are held fixed, such as age,sex.",
    ),
    click.option(
        "--distinct", is_flag=True, help="Mark the discoveries that are significant given those marked before them."
    ),
)


def rows_given(given: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of the options above, as the library takes them."""
    found = {name: split_names(given[name]) or None for name in ("strata", "unit", "given")}
    return {**found, "paired": given["paired"], "distinct": given["distinct"]}


def row_columns(given: Mapping[str, Any]) -> dict[str, str]:
    """The names of all these columns, and the option that names each."""
    paired = [given["paired"]] if given["paired"] else []
    names = {name: split_names(given[name]) for name in ("strata", "unit", "given")} | {"paired": paired}
    return {name: f"--{option}" for option, own in names.items() for name in own}


def estimator_option(names: Sequence[str], found: str = "difference") -> Callable[..., Any]:
    """--estimator, with the choices that the question supports."""
    papers = ", ".join(name for name in names if name not in ("complete", "cross"))
    return choice_option(
        "--estimator",
        names,
        "complete",
        "How scores are computed. complete: from all pairs of rows, with the most power. cross: one half of the rows "
        f"finds the {found}, the other measures it. {papers}: the paper's, from some of the pairs.",
    )


common = combine_options(
    click.option(
        "--columns",
        multiple=True,
        metavar="NAME,...",
        help="Only these columns; * and ? stand for any letters. Numbers named here are not left out as identifiers.",
    ),
    click.option("--exclude", multiple=True, metavar="NAME,...", help="All but these columns."),
    click.option(
        "--number",
        multiple=True,
        metavar="NAME,...",
        help="Read text in these columns as numbers or dates, such as $1,037.72, 37% or 2020-12-31, and other text as "
        "missing.",
    ),
    click.option("--category", multiple=True, metavar="NAME,...", help="Compare these columns for equality."),
    click.option("--layer", metavar="NAME", help="Layer of .h5ad files, or raw."),
    click.option(
        "-k",
        "--k",
        type=number_or_share,
        metavar="N",
        help="List only the best: a number or a share (0.1 or 10%). Their p-values, effects and intervals are then "
        "conditional on that selection.  [default: all, which tests everything]",
    ),
    click.option(
        "--threshold", type=float, metavar="SD", help="Instead of --k: list scores of at least this many SDs."
    ),
    click.option("--alpha", type=float, metavar="RATE", default=0.05, show_default=True, help="Error rate to control."),
    choice_option(
        "--correction",
        CORRECTIONS,
        "bh",
        "Correction for multiple tests. bh: of the discoveries at most a share alpha is false on average. by: the "
        "same under any dependence. bky: the same with more power if many differ. holm: with probability 1 - alpha no "
        "discovery is false.",
    ),
    choice_option(
        "--family",
        ["all", "selected"],
        "all",
        "P-values that are corrected: those of everything that was tested, or the selective ones of a short list.",
    ),
    click.option(
        "--confidence-level",
        type=float,
        metavar="LEVEL",
        default=0.95,
        show_default=True,
        help="Level of the intervals.",
    ),
    choice_option(
        "--test",
        TESTS,
        "exact",
        "What p-values of a short list are conditional on. exact: the selection of the feature itself. "
        "multiscale: the same, by the paper's bootstrap. polyhedral: the whole selected set. naive: nothing, which is "
        "not valid after a selection.",
    ),
    choice_option(
        "--kernel",
        KERNELS,
        "gaussian",
        "gaussian, laplace, imq and triangle detect any difference or dependence, linear only means or straight lines, "
        "polynomial the first three moments; delta compares for equality.",
    ),
    click.option(
        "--bandwidth",
        type=number_or_word,
        metavar="WIDTH",
        default="auto",
        show_default=True,
        help="Of the kernel: adaptive (several kernels), median, joint, or a number in the units of the columns.",
    ),
    click.option(
        "--option",
        multiple=True,
        metavar="NAME=VALUE",
        help="Option of the estimator or the test, such as replicates=5000.",
    ),
    click.option(
        "--encoding",
        multiple=True,
        metavar="[FILE=]NAME",
        help="Encoding of text files, or of one of them, such as latin-1.  [default: utf-8]",
    ),
    click.option(
        "--seed",
        type=click.IntRange(min=0),
        metavar="N",
        help="The same seed gives the same result.  [default: random, and printed]",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print everything as JSON."),
    click.option("--csv", "as_csv", is_flag=True, help="Print the table as CSV."),
    choice_option(
        "--sort",
        ["p", "effect", "name"],
        "p",
        "Order of the table: strongest evidence first, largest effect first, or by name.",
    ),
    click.option(
        "--output",
        "-o",
        type=click.Path(),
        metavar="FILE",
        help="Write to FILE instead of printing, in the format of its suffix: .csv, .tsv, .json, .html, .md, .txt, "
        ".parquet or .xlsx.",
    ),
    click.option(
        "--fail-on-discovery",
        is_flag=True,
        help="Exit with code 4 if something is significant, for tests in a pipeline.",
    ),
    click.option("--report", type=click.Path(), metavar="FILE", help="Also write a self-contained HTML report."),
    click.option("--quiet", "-q", is_flag=True, help="Print only the table; with --report or --output, nothing."),
    click.option("--debug", is_flag=True, help="Show where an error came from."),
)
