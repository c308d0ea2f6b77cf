"""The threads of torch in workers."""

from __future__ import annotations

import torch

import lazyckpt as lz
from lazyckpt.executors.executor import Executor
from tests.executors.faults import each
from tests.executors.pools.test_worker_start import library_threads, use_one_thread


def threads(item: int) -> set[int]:
    return {torch.get_num_threads(), *library_threads(item)}


@each({"fork": lz.processes(start_method="fork"), "spawn": lz.processes(start_method="spawn")})
def test_libraries_use_one_thread(executor: Executor) -> None:
    use_one_thread(threads, executor)
