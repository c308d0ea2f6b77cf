"""The threads and the generators of torch in workers."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from typing import Any

import pytest
import torch

import lazyckpt as lz
from lazyckpt.executors.executor import Executor
from tests.combinators.long_orders import keep_laws
from tests.executors.faults import each
from tests.executors.pools.test_worker_start import library_threads, use_one_thread


def threads(item: int) -> set[int]:
    return {torch.get_num_threads(), *library_threads(item)}


@each({"fork": lz.processes(start_method="fork"), "spawn": lz.processes(start_method="spawn")})
def test_libraries_use_one_thread(executor: Executor) -> None:
    use_one_thread(threads, executor)


def draw(_: int) -> float:
    return float(torch.rand(()))


def drawn(executor: Executor) -> list[float]:
    with lz.run(lz.source(range(24)) | lz.map(draw), executor=executor) as run:
        return [*run]


def test_workers_draw_what_no_other_worker_draws() -> None:
    """Each process of torch begins with the same seed."""
    state = torch.get_rng_state()
    found = [
        number
        for method in ("fork", "forkserver", "spawn")
        for number in drawn(lz.processes(2, start_method=method))
    ]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        found += drawn(lz.futures(pool, buffer_size=4))
    assert len({*found}) == 96
    assert torch.equal(torch.get_rng_state(), state)


def imports_torch(index: int) -> None:
    import_module("torch").manual_seed(index)


@pytest.mark.parametrize("init", [None, imports_torch])
def test_worker_init_has_the_last_word_on_seeds(init: Any) -> None:
    executor = lz.processes(1, start_method="spawn", worker_init=init)
    wanted = torch.rand(24, generator=torch.Generator().manual_seed(0)).tolist()
    assert (drawn(executor) == wanted) == (init is not None)


def test_random_map_draws_from_torch_what_a_resume_repeats() -> None:
    pipeline = (
        lz.source(range(9))
        | lz.random_map(
            lambda rng, x: float(torch.rand((), generator=rng)), seed=3, generator="torch"
        )
        | lz.repeat(2)
    )
    keep_laws(pipeline)
    assert len({*pipeline}) == 18
