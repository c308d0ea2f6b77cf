"""What ranks compare before they share work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.errors import PipelineError, RankMissing
from lazyckpt.executors.sharing.link import Nodes
from lazyckpt.testing import equal
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


def counted(k: int) -> Callable[[], Any]:
    return lambda: iter(range(k, k + 40))


def other_item(k: int, place: int = 5) -> list[int]:
    return [n + k * (n == place) for n in range(1_000)]


def lengths(k: int) -> Callable[[Any], int]:
    return lambda tokens: len(tokens) + k


DOCUMENTS = [[n] * (n % 5 + 1) for n in range(90)]
# Pipelines of rank k, which read or arrange other items on each.
UNLIKE: dict[str, Callable[[int], lz.Pipeline[Any]]] = {
    "from_generator": lambda k: lz.from_generator(counted(k)),
    "unfold": lambda k: lz.unfold(lambda n, k=k: (n + k, n + 1), 0) | lz.take(50),
    "weights": lambda k: lz.mix(
        [lz.source(range(40)) | lz.filter(bool)] * 2, lambda items, k=k: [1, 1 + k], seed=0
    ),
    "flush": lambda k: lz.source(range(40)) | lz.flat_scan(
        lambda state, n: (state, [n]), 0, flush=lambda state, k=k: [k]
    ),
    "key": lambda k: lz.source(DOCUMENTS) | lz.bucket_batch(
        2, key=lengths(k), window_size=8, seed=0
    ),
    "a list": lambda k: lz.source(other_item(k)),
    "an array": lambda k: lz.source(np.array(other_item(k))),
}  # fmt: skip


def run_by(pipeline: Callable[[int], lz.Pipeline[Any]], nodes: Nodes = ()) -> list[Any]:
    def work(rank: int) -> list[Any]:
        return [*lz.run(pipeline(rank), executor=shared_by(hub, rank, lz.threads()))]

    hub = Hub(2, timeout=1, nodes=nodes)
    return on_ranks(2, work)


def items_of(before: Callable[[int], Any], after: Callable[[int], Any]) -> list[Any]:
    def pipeline(rank: int) -> lz.Pipeline[Any]:
        common = lz.source(range(40)) | lz.filter(bool) | lz.map(before(rank))
        return common | lz.shard(num_shards=2, index=rank, remainder="drop") | lz.map(after(rank))

    return run_by(pipeline)


def sharded(pipeline: lz.Pipeline[Any], rank: int) -> lz.Pipeline[Any]:
    common = pipeline | lz.filter(lambda item: item is not None)
    return common | lz.shard(num_shards=2, index=rank, remainder="drop")


@pytest.mark.parametrize("pipeline", UNLIKE.values(), ids=UNLIKE)
def test_sources_and_functions_that_differ_are_refused(
    pipeline: Callable[[int], lz.Pipeline[Any]],
) -> None:
    assert_refused(run_by(lambda rank: sharded(pipeline(rank), rank)))
    found = run_by(lambda rank: sharded(pipeline(0), rank))
    assert equal(found, [[*lz.run(sharded(pipeline(0), rank))] for rank in range(2)])


# Pipelines of rank k with random access up to shard: ranks have nothing to share.
DIVIDED: dict[str, Callable[[int], lz.Pipeline[int]]] = {
    "seed": lambda k: lz.source(range(40)) | lz.shuffle(seed=k),
    "data": lambda k: lz.source(other_item(k)),
    "function": lambda k: lz.source(range(40)) | lz.map(partial(int.__add__, k)),
}


def divided(pipeline: lz.Pipeline[int], rank: int) -> lz.Pipeline[Any]:
    return pipeline | lz.shard(num_shards=2, index=rank, remainder="drop") | lz.batch(2)


@pytest.mark.parametrize("nodes", [(), ((0, 1),)], ids=["ranks", "node"])
@pytest.mark.parametrize("pipeline", DIVIDED.values(), ids=DIVIDED)
def test_ranks_that_share_nothing_are_compared(
    pipeline: Callable[[int], lz.Pipeline[int]], nodes: Nodes
) -> None:
    alike, unlike = (lambda rank: divided(pipeline(0), rank)), (lambda r: divided(pipeline(r), r))
    assert run_by(alike, nodes) == [[*lz.run(alike(rank))] for rank in range(2)]
    assert_refused(run_by(unlike, nodes))


@pytest.mark.parametrize("nodes", [(), ((0, 1),)], ids=["ranks", "node"])
def test_ranks_that_share_nothing_begin_from_one_state_and_may_rewind_alone(nodes: Nodes) -> None:
    def work(begins: tuple[int, int], rank: int) -> list[Any]:
        pipeline, executor = divided(lz.source(range(40)), rank), shared_by(hub, rank, lz.threads())
        before = lz.run(pipeline)
        before.advance(begins[rank])
        with lz.run(pipeline, before.state, executor=executor) as run:
            found = [next(run), next(run)]
            if rank == 1:
                run.load_state_dict(before.state_dict())
                assert [next(run), next(run)] == found
            return [*found, *run]

    hub = Hub(2, timeout=1, nodes=nodes)
    alone = [[*lz.run(divided(lz.source(range(40)), rank))] for rank in range(2)]
    assert on_ranks(2, partial(work, (3, 3))) == [items[3:] for items in alone]
    assert_refused(on_ranks(2, partial(work, (3, 4))))


@pytest.mark.parametrize("nodes", [(), ((0,),)], ids=["ranks", "node"])
@pytest.mark.parametrize("after", [lz.filter(bool), lz.flat_map(range), lz.map(abs)], ids=repr)
def test_a_group_of_one_rank(after: lz.Stage[Any, Any], nodes: Nodes) -> None:
    own = lz.source(range(40)) | lz.shard(num_shards=1, index=0) | after
    executor = shared_by(Hub(1, nodes=nodes), 0, lz.threads())
    assert [*lz.run(own, executor=executor)] == [*lz.run(own)]


def test_a_class_may_be_the_function_of_a_source() -> None:
    found = run_by(lambda rank: sharded(lz.from_generator(range, 9), rank))
    assert found == [[0, 2, 4, 6], [1, 3, 5, 7]]


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
