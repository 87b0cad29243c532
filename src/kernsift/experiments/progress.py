"""How far a run is: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from types import TracebackType
from typing import Any

from kernsift.experiments.trials import Task


class Progress:
    """Counts finished trials; says something now and then."""

    def __init__(self, tasks: list[Task]) -> None:
        self.left = Counter((task.artefact.name, task.setting.label) for task in tasks)
        self.total, self.done, self.start = len(tasks), 0, time.monotonic()
        self.bar: Any = None
        if sys.stderr.isatty() and tasks:
            try:
                from tqdm import tqdm
            except ModuleNotFoundError:
                return
            self.bar = tqdm(total=self.total, unit="trial", smoothing=0.05, dynamic_ncols=True)

    def advance(self, task: Task) -> None:
        """One more trial is done."""
        place = (task.artefact.name, task.setting.label)
        self.done += 1
        self.left[place] -= 1
        if self.bar is not None:
            self.bar.set_description(f"{place[0]}, {place[1]}")
            self.bar.update()
        elif self.left[place] == 0:
            seconds = time.monotonic() - self.start
            rest = seconds / self.done * (self.total - self.done)
            print(
                f"{place[0]}, {place[1]}: done; {self.done} of {self.total} trials after {seconds:.0f} s, "
                f"about {rest:.0f} s left",
                flush=True,
            )

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.close()
