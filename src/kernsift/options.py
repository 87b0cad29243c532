"""The options that all questions of the command line share, and how their values are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import click

ESTIMATORS = ["complete", "cross", "incomplete", "block", "linear"]
TESTS = ["exact", "multiscale", "polyhedral", "naive"]
KERNELS = ["gaussian", "laplace", "imq", "linear", "polynomial", "triangle", "delta"]
CORRECTIONS = ["bh", "by", "holm", "none"]


class HowMany(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A number, a share (0.1 or 10%), "all" or "auto"."""

    name = "k"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value is None or isinstance(value, int | float):
            return value
        word = value.strip().lower()
        if word in ("all", "none"):
            return None
        if word == "auto":
            return word
        try:
            number = float(word[:-1]) / 100 if word.endswith("%") else float(word)
        except ValueError:
            self.fail(f"needs a number, a share such as 0.1 or 10%, 'all' or 'auto', got {value!r}.", param, ctx)
        return int(number) if number.is_integer() and not word.endswith("%") else number

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "N"


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


group_option = click.option(
    "--group",
    multiple=True,
    callback=_groups,
    metavar="NAME=COLUMN,...",
    help="Columns that count as one feature; may be repeated.",
)
k_option = HowMany()

_OPTIONS: list[Callable[..., Any]] = [
    click.option("--columns", multiple=True, metavar="NAMES", help="Only these columns (commas; * and ? work)."),
    click.option("--exclude", multiple=True, metavar="NAMES", help="All but these columns."),
    click.option(
        "--k", type=k_option, default="auto", help="Keep this many: 5, 0.1, 10%, all.  [default: 10 or fewer]"
    ),
    click.option("--threshold", type=float, metavar="SD", help="Instead of --k: keep scores of this many deviations."),
    click.option("--alpha", type=float, default=0.05, show_default=True, help="The level of the tests."),
    click.option(
        "--correction",
        type=click.Choice(CORRECTIONS),
        default="bh",
        show_default=True,
        help="For testing several: bh (share of false finds), by (the same, any dependence), holm (no false find).",
    ),
    click.option(
        "--estimator", type=click.Choice(ESTIMATORS), default="complete", show_default=True, help="The score."
    ),
    click.option("--test", type=click.Choice(TESTS), default="exact", show_default=True, help="The p-value."),
    click.option("--kernel", type=click.Choice(KERNELS), default="gaussian", show_default=True, help="What is near."),
    click.option(
        "--bandwidth", default="auto", show_default=True, help="How near: auto, adaptive, median, joint, a number."
    ),
    click.option(
        "--option", multiple=True, metavar="NAME=VALUE", help="Of the estimator or the test: replicates=5000."
    ),
    click.option(
        "--missing",
        type=click.Choice(["error", "drop"]),
        default="error",
        show_default=True,
        help="Rows with missing values: complain, or leave them out.",
    ),
    click.option("--encoding", metavar="NAME", help="Of text files, such as latin-1.  [default: utf-8]"),
    click.option("--seed", type=click.IntRange(min=0), help="The same seed gives the same answer."),
    click.option("--json", "as_json", is_flag=True, help="Print everything as JSON."),
    click.option("--csv", "as_csv", is_flag=True, help="Print the table as CSV."),
    click.option("--output", "-o", type=click.Path(), metavar="FILE", help="Write there instead of printing."),
    click.option("--report", type=click.Path(), metavar="FILE", help="Also write one HTML file to show around."),
    click.option("--quiet", "-q", is_flag=True, help="Only the table; nothing at all beside --report or --output."),
    click.option("--debug", is_flag=True, help="Show where an error came from."),
]


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """All of them, in the order of --help."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
