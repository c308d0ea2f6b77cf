"""Runs that nothing holds any more."""

from __future__ import annotations

import gc
from weakref import ref

import pytest

import lazyckpt as lz
from tests.helpers import until, workers


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_run_that_is_dropped_ends_its_workers_at_once(method: str) -> None:
    gc.disable()
    try:
        pipeline = lz.source(range(99)) | lz.map(abs)
        run = lz.run(pipeline, executor=lz.processes(1, start_method=method))
        assert next(run) == 0
        assert workers()
        dropped = ref(run)
        del run
        assert dropped() is None
        until(lambda: not workers())
    finally:
        gc.enable()
