"""A Dask cluster on this machine."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what their packages say about each other at import
    from distributed import Client, LocalCluster


@contextmanager
def cluster(workers: int = 2) -> Iterator[Client]:
    """A client of a Dask cluster on this machine."""
    local = LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address=":0", memory_limit=None
    )
    with local, Client(local) as client:
        yield client
