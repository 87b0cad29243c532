"""Run a question of the command line, and print or write its answer."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kernsift.cli.messages import command_line_message
from kernsift.exceptions import InputError


def show(text: str) -> None:
    """Print a text. A closed pipe, as `head` leaves behind, is not an error."""
    if sys.stdout is None:
        return
    encoding = sys.stdout.encoding or "utf-8"  # a terminal that knows no "…" gets a question mark
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        # Python would report the error again when it closes standard output, which is redirected for that reason.
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)
        if not isinstance(error, BrokenPipeError):  # such as a full disk
            raise InputError(f"standard output: cannot be written ({error.strerror or error}); use --output.") from None


DISCOVERY = 4
"""Exit code of --fail-on-discovery where something is significant."""


def run_question(ask: Callable[[], Any], given: Mapping[str, Any], arguments: Mapping[str, str]) -> None:
    """Ask the question, then print or write the answer."""
    from kernsift.execution.notes import collect_notes
    from kernsift.execution.progress import progress_bar
    from kernsift.report.export import check_format, check_suffix, content_of, write_whole

    if given["as_json"] and given["as_csv"]:
        raise click.UsageError("Choose one of --json and --csv.")
    check_report(given["report"])
    suffix = ".json" if given["as_json"] else ".csv" if given["as_csv"] else ""
    if given["output"] and suffix:
        check_format(given["output"], suffix, "--output", f"leave out --{suffix[1:]}")
    elif given["output"]:
        suffix = check_suffix(given["output"], "--output")
    try:
        with (
            _dask_client(given),
            progress_bar(sys.stderr.isatty() and not given["quiet"]),
            collect_notes() as left_out,
        ):
            result = ask()
            if left_out:
                result = replace(result, notes=(*left_out, *result.notes))
            result = _with_options(result, arguments)
            result.order(given["sort"])
            command = _command(result, given["seed"])
            report = result.to_html(command=command, sort=given["sort"]) if given["report"] else ""
    except InputError as error:
        from kernsift.cli.inputs import with_user_paths

        raise InputError(command_line_message(with_user_paths(str(error)), arguments)) from error
    if given["quiet"] or given["output"] or suffix:  # else these notes are below the table
        for note in left_out:
            click.echo(f"note: {note}", err=True)
    if given["report"]:
        write_whole(given["report"], report)
    if given["output"]:
        write_whole(given["output"], content_of(result, suffix, sort=given["sort"], command=command))
    elif suffix:
        show(str(content_of(result, suffix, sort=given["sort"])))
    elif not (given["quiet"] and given["report"]):
        show(_terminal(result, given) + "\n")
    if given["fail_on_discovery"] and result.rejected.any():
        raise click.exceptions.Exit(DISCOVERY)


def _with_options(result: Any, arguments: Mapping[str, str]) -> Any:
    """The result with files and options in place of arguments in its notes."""
    if hasattr(result, "results"):
        return replace(result, results={name: _with_options(own, arguments) for name, own in result.results.items()})
    return replace(result, notes=tuple(command_line_message(note, arguments) for note in result.notes))


def check_report(path: str | None) -> None:
    """Refuse a name of a report that does not end in .html."""
    if path is not None and Path(path).suffix.lower() not in (".html", ".htm"):
        raise click.BadParameter(
            f"writes HTML, so the file's name must end in .html, got {path!r}; a browser prints it to PDF.",
            param_hint="--report",
        )


@contextmanager
def _dask_client(given: Mapping[str, Any]) -> Iterator[None]:
    """Use the cluster that was asked for, and print the address of its dashboard."""
    from kernsift.execution.dask_workers import client_in_use, connected

    address, count = given.get("cluster"), given.get("workers")
    if address is not None and count is not None:
        raise click.UsageError("Choose one of --cluster and --workers.")
    with connected(address, count) as client, client_in_use(client):
        if client is not None and not given["quiet"]:
            click.echo(f"Dask dashboard: {client.dashboard_link}", err=True)
        yield


def _command(result: Any, seed: int | None) -> str:
    """The command line that reproduces the result, with the seed that was drawn where none was given."""
    return shlex.join(
        ["kernsift", *click.get_current_context().obj, *(["--seed", str(result.seed)] if seed is None else [])]
    )


def _terminal(result: Any, given: Mapping[str, Any]) -> str:
    """The verdict, the table and its legend, notes on what was guessed, and how to reproduce the result."""
    from kernsift.report.text import legend, notes, table_and_order, wrapped_verdict

    width = terminal_width()
    sort = given["sort"]
    tests: int | None = None
    if hasattr(result, "results"):
        one = max(result.results.values(), key=lambda own: len(own.names) > 0)  # the first with a table
        first, rows, tests = result.summary(width), result.tables(width, sort), result.tested
    else:
        one, first, rows = result, wrapped_verdict(result, width), table_and_order(result, width, sort)
    if given["quiet"]:
        return rows
    seed = f"To reproduce: --seed {result.seed}." if given["seed"] is None else ""
    report = f"Report: {given['report']}" if given["report"] else ""
    last = "\n".join(filter(None, [seed, report]))
    explained = legend(one, width, tests=tests) if len(one.names) else ""
    parts = [first, rows, explained, notes(result, width), last]
    return "\n\n".join(filter(None, parts))


def terminal_width() -> int:
    return max(50, min(shutil.get_terminal_size((100, 24)).columns, 120))
