"""Run the programs of the case studies and fill in what they print and draw.

    KERNSIFT_DATA=folder python docs/case_studies.py

The data are public, and not part of the project: each page says where they come from. A block of Python is followed by
a block of text, which is what it prints, or by a picture, which is the current figure.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
BLOCK = re.compile(
    r"```python\n(?P<code>.*?)```\n\n(?P<then>```text\n(?P<output>.*?)```|!\[[^\]]*\]\((?P<picture>[^)]+)\))?",
    re.DOTALL,
)


def run(page: Path) -> None:
    """Run one page's programs, each after the other."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names: dict[str, object] = {"__name__": "__main__"}

    def filled(match: re.Match[str]) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(match["code"], page.name, "exec"), names)
        code = f"```python\n{match['code']}```\n\n"
        if match["picture"]:
            plt.savefig(page.parent / match["picture"], dpi=110)
            plt.close("all")
            return code + match["then"]
        if match["then"]:
            printed = "\n".join(line.rstrip() for line in out.getvalue().splitlines())
            return f"{code}```text\n{printed}\n```"
        return code

    text = page.read_text(encoding="utf-8")
    page.write_text(BLOCK.sub(filled, text), encoding="utf-8")


def main(arguments: list[str]) -> int:
    if "KERNSIFT_DATA" not in os.environ:
        print("KERNSIFT_DATA: needs the folder that holds the data of the case studies.", file=sys.stderr)
        return 2
    warnings.filterwarnings("error", module="kernsift|__main__")
    os.chdir(os.environ["KERNSIFT_DATA"])
    for page in sorted((HERE / "cases").glob("*.md")):
        if page.stem != "index" and (not arguments or page.stem in arguments):
            print(page.name, flush=True)
            run(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
