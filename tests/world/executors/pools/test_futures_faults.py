"""loky's pools and Dask's clusters that break."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import lazyckpt as lz
from tests.executors.cases import Stream, until_error
from tests.executors.pools.test_futures_faults import Deadly, breaks

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what their packages say about each other at import
    import dask
    import loky
from tests.world.executors.pool_cases import cluster


@pytest.mark.parametrize("source", [range(12), Stream(12)], ids=["seekable", "stream"])
def test_a_pool_that_breaks(source: Any, tmp_path: Path) -> None:
    breaks(lambda: loky.ProcessPoolExecutor(1), source, tmp_path)


def test_dask_mends_itself(tmp_path: Path) -> None:
    pipeline = lz.source(range(12)) | lz.map(Deadly(tmp_path / "died"))
    with cluster(1) as client:
        run = lz.run(pipeline, executor=lz.futures(client.get_executor(), buffer_size=2))
        assert list(run) == [*range(12)]


def test_dask_gives_up_and_the_run_goes_on(tmp_path: Path) -> None:
    pipeline = lz.source(range(12)) | lz.map(Deadly(tmp_path / "died"))
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), cluster(1) as client:
        run = lz.run(pipeline, executor=lz.futures(client.get_executor(), buffer_size=2))
        items, error = until_error(run)
        assert type(error) is lz.WorkerDied
        assert type(error.__cause__).__name__ == "KilledWorker"
        assert items + list(run) == [*range(12)]
