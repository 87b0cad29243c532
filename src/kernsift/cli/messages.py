"""Messages of the library in the words of the command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping


def command_line_message(message: str, arguments: Mapping[str, str]) -> str:
    """A message of the library in the words of the command line: files for X and Y, options for arguments."""
    message = re.sub(r"^candidates\['(.*?)'\]", r"\1", message)
    first, colon, rest = message.partition(": ")
    if not colon:
        return options_for_arguments(message)
    named = {"random_state": "--seed", "groups": "--feature", "client": "--cluster", **arguments}
    # Text that cannot be read as numbers is an error of --number alone.
    named["kinds"] = "--number" if rest.endswith(("use 'category' or 'drop'.", "or use 'drop'.")) else _EITHER_KIND
    option = f"--{first.replace('_', '-')}" if first in _OPTIONS else options_for_arguments(first)
    first = named.get(first, option)
    for separator in (" ", ": "):  # a file that the library names, too
        rest = rest.removeprefix(f"{first}{separator}")
    rest = rest.replace(f"there is no file {first}", "there is no such file")
    if rest.startswith("is no option of "):
        first, rest = "--option", f"{first} {rest}"
    if first == "--k":
        rest = rest.replace("or None", "or all")
    rest = options_for_arguments(rest)
    meant = [f"{name} is {file}" for name, file in arguments.items() if re.search(rf"(?<!['\w]){name}(?!['\w])", rest)]
    return first + colon + rest + (f" ({', '.join(meant)})" if meant else "")


_EITHER_KIND = "--number or --category"
# Arguments that the command line has as options, and a value in quotes, or one without that is a single word.
_OPTIONS = (
    *("k", "threshold", "alpha", "correction", "family", "confidence_level", "by", "group", "reference", "estimator"),
    *("test", "kernel", "bandwidth", "response", "missing", "memory", "encoding", "layer", "strata", "paired", "unit"),
    *("given", "distinct"),
)
_ARGUMENTS = "|".join(_OPTIONS)
_VALUE = r"""(?:'[^']*'|"[^"]*"|\w[\w.-]*)"""


def _option(found: re.Match[str]) -> str:
    """An argument and its value, or several that are possible, as an option."""
    values = [value.strip("'\"") for value in (found[2], *re.findall(rf" or ({_VALUE})", found[3]))]
    return f"--{found[1].replace('_', '-')} {' or '.join(map(shlex.quote, values))}"


def _target_and_event(found: re.Match[str]) -> str:
    return f"use --target {shlex.quote(found[1])} --event {shlex.quote(found[2])}"


def options_for_arguments(text: str) -> str:
    """Arguments of the library in a sentence as options."""
    text = re.sub(r"\bk=None\b", "--k all", text)
    text = re.sub(r"pass pandas\.read_csv\(path, (encoding='[\w-]+')\)", r"read it with \1", text)
    text = re.sub(r"pass y=\('([^']*)', '([^']*)'\)", _target_and_event, text)
    text = re.sub(rf"\b({_ARGUMENTS})=({_VALUE})((?: or {_VALUE})*)", _option, text)
    text = re.sub(rf"\b({_ARGUMENTS})=(?=\W|$)", r"--\1", text)
    text = text.replace("the column `by`", "the column of --by")
    text = text.replace("use 'category' or 'drop'", "use --category or --exclude").replace(
        "use 'drop'", "use --exclude"
    )
    text = text.replace("pass (time, event)", "name the time with --target and the event with --event")
    text = text.replace("pass a list for a response of two columns", "repeat --target for a response of two columns")
    for words in (", or pass data", ", or data"):  # there are only files here
        text = text.removesuffix(f"{words}.") + "." if text.endswith(f"{words}.") else text
    text = text.replace("relate(table, by)", "`kernsift relate` with that --target")
    text = text.replace("compare_groups(table, by)", "--every-group")

    def decided(found: re.Match[str]) -> str:
        by_kind: dict[str, list[str]] = {}
        for name, kind in re.findall(r"'((?:[^'\\]|\\.)*)': '(\w+)'", found[1]):
            by_kind.setdefault("exclude" if kind == "drop" else kind, []).append(name)
        return " ".join(f"--{kind} {shlex.quote(','.join(names))}" for kind, names in by_kind.items())

    text = re.sub(r"kinds=\{(.*?)\}", decided, text)
    text = text.replace("a 'number', a 'category' or to 'drop'", "a number, a category or to be left out")
    return text.replace("a 'number' or a 'category'", "a number or a category")
