"""A process that runs the command line in forked children, which tests may kill; it reads one request a line.

Everything is imported once, and every child is a fork: it starts at once, so that a kill hits the work and not the
imports. A line in is a JSON object; a line out is the answer.

    {"start": [arguments], ...}    the child's process number; the rest says in what conditions it runs, see `prepare`
    {"wait": number}               the exit code, negative for a signal
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
from typing import Any

from kernsift.cli import main


def prepare(job: dict[str, Any]) -> None:
    """`stdout`, `stderr`: files; `closed`: standard output is a pipe nobody reads; `largest`: bytes a file may have;
    `killed_at`: how many files may be put in their places before the process is killed instead."""
    os.setpgid(0, 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        target = os.open(job.get(name, os.devnull), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(target, number)
    if job.get("closed"):
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 1)
    if "largest" in job:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["largest"], job["largest"]))
    if "killed_at" in job:
        kill_at(job["killed_at"])


def kill_at(count: int) -> None:
    put, left = os.replace, [count]

    def replace(*paths: Any, **options: Any) -> None:
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        put(*paths, **options)

    os.replace = replace  # type: ignore[assignment]


def serve() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        if "wait" in job:
            _, status = os.waitpid(job["wait"], 0)
            answer: Any = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                code = 70
                try:
                    prepare(job)
                    code = main(job["start"])
                    sys.stdout.flush()
                finally:
                    os._exit(code)
        print(json.dumps(answer), flush=True)


def warm_up() -> None:
    """Whatever is loaded on first use is loaded here, and not in every child."""
    output = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with tempfile.TemporaryDirectory() as folder:
        main(["reproduce", "fig1", "--tiny", "--trials", "1", "--workers", "1", "--out", folder])
        for name in "ab":
            with open(f"{folder}/{name}.csv", "w") as file:
                file.write("x,y\n" + "".join(f"{i},{i * i % 7}.5\n" for i in range(20)))
        main(["compare", f"{folder}/a.csv", f"{folder}/b.csv", "--report", f"{folder}/r.html"])
    os.dup2(output, 1)


if __name__ == "__main__":
    warm_up()
    serve()
