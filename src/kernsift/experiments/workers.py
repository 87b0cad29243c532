"""Who runs the trials: this process, joblib's workers, or a Dask cluster. All call the same function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kernsift.experiments.trials import Task, Values, run_trial

Finished = tuple[Task, Values]


def run_all(tasks: Sequence[Task], workers: int, cluster: str | None) -> Iterator[Finished]:
    """The results of all tasks, as they finish."""
    if cluster is not None:
        return _on_cluster(tasks, cluster)
    if workers == 1:
        return map(run_trial, tasks)
    return _on_processes(tasks, workers)


def _on_processes(tasks: Sequence[Task], workers: int) -> Iterator[Finished]:
    from joblib import Parallel, delayed

    parallel = Parallel(n_jobs=workers, return_as="generator_unordered", pre_dispatch="3*n_jobs", batch_size=1)
    return iter(parallel(delayed(run_trial)(task) for task in tasks))


def _on_cluster(tasks: Sequence[Task], address: str) -> Iterator[Finished]:
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("--cluster needs Dask: pip install 'kernsift[dask]'.") from error
    dask: Any = distributed  # without types
    with dask.Client(address, set_as_default=False) as client:
        # Not pure: Dask would hash every task to find equal ones, and there are none.
        futures = client.map(run_trial, tasks, pure=False)
        for _, result in dask.as_completed(futures, loop=client.loop, with_results=True):
            yield result
