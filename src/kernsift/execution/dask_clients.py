"""Clients of Dask clusters that are started or connected to by address."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kernsift.exceptions import InputError, required

# Seconds to wait for a connection.
_TO_CONNECT = 10.0


@contextmanager
def connected(address: str | None = None, workers: int | None = None) -> Iterator[Any]:
    """A client of the cluster at an address, or of `workers` processes on this machine, which end with it.

    None where neither is given.
    """
    if address is None and workers is None:
        yield None
        return
    dask = required("distributed", "Working on a cluster needs Dask")
    # An error is reported in one sentence, and not by every part of Dask that hears of it.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if address is None:
        cluster = dask.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
        )
        with cluster, dask.Client(cluster, set_as_default=False) as client:
            yield client
        return
    try:
        client = dask.Client(address, set_as_default=False, timeout=_TO_CONNECT)
    except (OSError, ValueError) as error:
        raise InputError(f"client: no Dask scheduler answers at {address}; start one with `dask scheduler`.") from error
    with client:
        yield client
