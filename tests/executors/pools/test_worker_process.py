"""What holds workers back, and how far ahead of it they are."""

from __future__ import annotations

from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.executors.pools.progress import gate_flag, shared_cells
from lazyckpt.executors.pools.worker_main import poll
from lazyckpt.executors.pools.worker_process import PipeGate

pytestmark = pytest.mark.usefixtures("watchdog")


@given(st.lists(st.booleans(), min_size=1))
def test_the_flag_and_the_pipe_of_a_gate_agree(opened: list[bool]) -> None:
    flag = gate_flag(shared_cells(get_context("fork"), 3))
    gate = PipeGate(opened[0], flag)
    with gate.reader, gate.writer:
        for is_open in opened:
            gate.open(is_open)
            assert (flag[0] == 1) == bool(poll(gate.reader, 0)) == is_open


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
