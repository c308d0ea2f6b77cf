"""How far ahead of the consumer workers are."""

from __future__ import annotations

import warnings
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.executors.plan.handlers import Handler, Outcome, Reader
from lazyckpt.executors.plan.shares import Share
from lazyckpt.executors.plan.tasks import ChunkSizer
from lazyckpt.executors.pools.pool import PendingTask
from lazyckpt.executors.pools.processes import ProcessPool
from lazyckpt.executors.pools.worker_main import WorkerSettings


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_has_a_large_item_to_make_while_one_is_on_its_way(workers: int) -> None:
    begun = get_context("fork").Semaphore(0)

    def large(x: int) -> Any:
        begun.release()
        return np.empty(1 << 20, np.uint8)

    executor = lz.processes(workers, buffer_size=1, start_method="fork")
    with lz.run(lz.source(range(100)) | lz.map(large), executor=executor) as run:
        next(run)
        for _ in range(1 + workers + 1 + 1):
            assert begun.acquire(timeout=10)
        assert not begun.acquire(timeout=0.05)


def test_what_all_segments_have_under_way_finds_room_in_shared_memory() -> None:
    """Even if one worker makes all of it, while the other is at an item that takes long."""
    workers = buffer_size = 2
    chain = lz.source(range(100)) | lz.map(lambda x: np.full(30_000, x))
    handlers: list[Handler] = [Reader(chain), Reader(chain)]
    settings = WorkerSettings(None, 1, 0, shared_memory=True)
    pool = ProcessPool(handlers, workers, buffer_size, None, "fork", settings)
    sizer = ChunkSizer(workers, pool.in_transit, buffer_size, is_gated=False, share=Share())
    sizer.observe(Outcome([0], item_bytes=1.0, seconds=1.0), 1)  # of small ones there are most
    position, skip = chain.machine.init(0), chain.machine.skip
    assert skip is not None
    pending: list[PendingTask] = []
    for number in range(sizer.limit()):
        for handler in range(len(handlers)):
            task = skip(position, number)[0], 1
            pending.append(pool.submit(handler, task, 1, pending[0] if pending else None))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [pool.result(each).items[0][0] for each in reversed(pending)]
    pool.stop()
    assert found == [number for number in reversed(range(sizer.limit())) for _ in handlers]
