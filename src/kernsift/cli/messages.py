"""Messages of the library in the words of the command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping


def command_line_message(message: str, arguments: Mapping[str, str]) -> str:
    """A message of the library in the words of the command line: files for X and Y, options for arguments."""
    message = re.sub(r"^candidates\['(.*?)'\]", r"\1", message)
    first, colon, rest = message.partition(": ")
    named = {"random_state": "--seed", "groups": "--feature", "client": "--cluster", **arguments}
    named["kinds"] = "--number or --category"
    options = {"k", "threshold", "alpha", "correction", "family", "confidence_level", "by", "group", "reference"}
    options |= {"estimator", "test", "kernel", "bandwidth", "missing", "memory", "encoding", "layer", "given"}
    first = named.get(first, f"--{first.replace('_', '-')}" if first in options else first)
    for sign in (" ", ": "):  # a file that the library names, too
        rest = rest.removeprefix(f"{first}{sign}")
    if first == "--k":
        rest = rest.replace("or None", "or all")
    rest = options_for_arguments(rest)
    meant = [f"{name} is {file}" for name, file in arguments.items() if re.search(rf"(?<!['\w]){name}(?!['\w])", rest)]
    return first + colon + rest + (f" ({', '.join(meant)})" if meant else "")


def options_for_arguments(text: str) -> str:
    """Arguments of the library in a sentence as options."""
    text = re.sub(r"\bk=None\b", "--k all", text)
    text = re.sub(r"pass pandas\.read_csv\(path, (encoding='[\w-]+')\)", r"read it with \1", text)
    names = "missing|response|estimator|test|bandwidth|k|group|reference|encoding"
    text = re.sub(rf"\b({names})=(['\"]?)([\w.-]+)\2", r"--\1 \3", text)
    text = re.sub(r"\b(group|reference)=('[^']*')", r"--\1 \2", text)
    text = re.sub(r"\b(layer|by)=(?=\W|$)", r"--\1", text)
    text = text.replace("relate(table, by)", "`kernsift relate` with that --target")
    text = text.replace("compare_groups(table, by)", "--every-group")

    def decided(found: re.Match[str]) -> str:
        by_kind: dict[str, list[str]] = {}
        for name, kind in re.findall(r"'((?:[^'\\]|\\.)*)': '(\w+)'", found[1]):
            by_kind.setdefault("exclude" if kind == "drop" else kind, []).append(name)
        return " ".join(f"--{kind} {shlex.quote(','.join(names))}" for kind, names in by_kind.items())

    text = re.sub(r"kinds=\{(.*?)\}", decided, text)
    return text.replace("a 'number', a 'category' or to 'drop'", "a number, a category or to be left out")
