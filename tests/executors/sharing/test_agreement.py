"""What ranks compare before they share work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.errors import PipelineError, RankMissing
from tests.executors.sharing.ranks import Hub, on_ranks, shared_by


class Cached:
    """A function with a folder of its own on each rank, and so the same result."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, x: int) -> int:
        return x


def added(k: int) -> Callable[[int], int]:
    return lambda x: x + k


BOUND: dict[str, Callable[[int], Any]] = {
    "partial": lambda k: partial(int.__add__, k),
    "keyword": lambda k: partial(lambda x, k: x + k, k=k),
    "closure": added,
    "default": lambda k: lambda x, k=k: x + k,
    "within": lambda k: partial(added(k)),
}


def items_of(before: Callable[[int], Any], after: Callable[[int], Any]) -> list[Any]:
    def work(rank: int) -> list[Any]:
        common = lz.source(range(40)) | lz.filter(bool) | lz.map(before(rank))
        mine = common | lz.shard(num_shards=2, index=rank, remainder="drop") | lz.map(after(rank))
        return [*lz.run(mine, executor=shared_by(hub, rank, lz.threads()))]

    hub = Hub(2, timeout=1)
    return on_ranks(2, work)


@pytest.mark.parametrize("bound", BOUND)
def test_values_bound_to_functions_before_shard_are_equal(bound: str) -> None:
    assert_refused(items_of(BOUND[bound], lambda rank: abs))


def test_functions_before_shard_have_the_same_names() -> None:
    assert_refused(items_of([abs, int].__getitem__, lambda rank: abs))


def assert_refused(errors: list[Any]) -> None:
    assert {type(each) for each in errors} <= {PipelineError, RankMissing}
    assert "differ" in str(errors)


@pytest.mark.parametrize("bound", BOUND)
def test_functions_after_shard_and_objects_may_differ(bound: str) -> None:
    found = items_of(lambda rank: Cached(f"/cache/{rank}"), BOUND[bound])
    assert found == [[*range(1, 39, 2)], [x + 1 for x in range(2, 39, 2)]]
