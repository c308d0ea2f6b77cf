"""Executors of others: loky, a local Dask cluster; and tensors through a process pool."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import torch

import lazyckpt as lz
from tests.executors.cases import PIPELINES, like_inline
from tests.executors.pools.test_futures import (  # noqa: F401  # tests, run here with these pools
    SPAWN,
    pool,
    test_a_fault_comes_in_its_turn,
    test_a_function_that_cannot_be_sent,
    test_an_item_that_cannot_be_sent,
    test_arrays_can_be_written_to,
    test_functions_are_sent_to_a_worker_once,
    test_large_items_into_tasks,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what their packages say about each other at import
    import loky
from tests.world.executors.pool_cases import cluster


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[str, Any]]:
    with cluster() as client:
        found = loky.ProcessPoolExecutor(2)
        yield {"loky": found, "dask": client.get_executor()}
        found.shutdown(wait=True)


@pytest.fixture(params=["loky", "dask"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("name", PIPELINES)
def test_items_order_and_states_are_those_of_inline(
    name: str, kind: str, pools: dict[str, Any]
) -> None:
    like_inline(PIPELINES[name], lz.futures(pools[kind], buffer_size=3), 4)


def test_tensors() -> None:
    pipeline = lz.source([0, 1]) | lz.map(lambda x: (torch.full((90, 90), x), torch.tensor(x)))
    with ProcessPoolExecutor(2, mp_context=SPAWN) as processes:
        executor = lz.futures(processes, buffer_size=2)
        for number, (large, small) in enumerate(lz.run(pipeline, executor=executor)):
            assert large.eq(number).all()
            assert small.item() == number
            large.add_(1)


def test_a_client_is_no_executor() -> None:
    with cluster(1) as client, pytest.raises(lz.ArgumentError, match=r"get_executor\(\)"):
        lz.futures(client, buffer_size=1)
