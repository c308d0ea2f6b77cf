"""One rank that reads for its node; `test_laws` has what holds for all readers."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.errors import PipelineError, RankMissing
from tests.executors.sharing.ranks import Hub, on_ranks, shared_by
from tests.executors.sharing.test_laws import packed, together


def test_a_node_computes_each_item_once_and_its_ranks_receive_their_own() -> None:
    calls, size, count = Counter[int](), 1 << 14, 60

    def large(n: int) -> bytes:
        calls[n] += 1
        return bytes(size)

    hub = Hub(4, nodes=((0, 1, 2), (3,)))
    items = lz.source(range(count)) | lz.map(large) | lz.filter(len)
    found = together(items, hub, count)
    assert [sum(len(batch) for batch, _ in rank) for rank in found] == [count // 4] * 4
    assert calls == dict.fromkeys(range(count), 1)
    for rank in 1, 2:
        assert hub.received[rank] < 1.1 * count // 4 * size


def test_a_reader_for_a_gated_run_reads_what_is_asked_for() -> None:
    calls, hub = Counter[int](), Hub(2, nodes=((0, 1),))

    def counted(n: int) -> int:
        calls[n] += 1
        return n

    items = lz.source(range(1, 3_000)) | lz.map(counted) | lz.filter(bool)
    together(items, hub, 3, executor=lambda rank: lz.threads(2, gated=True), chunk_size=1)
    assert len(calls) < 30


def test_a_reader_uses_all_of_its_workers_whatever_those_of_its_followers() -> None:
    at_once = threading.Barrier(6)

    def waits(n: int) -> int:
        at_once.wait(5.0)
        return n

    items = lz.source(range(60)) | lz.map(waits) | lz.filter(lambda n: True)
    hub = Hub(2, nodes=((0, 1),))
    threads = [lz.threads(6, buffer_size=1), lz.threads(1, buffer_size=1)]
    found = together(items, hub, 15, executor=threads.__getitem__, chunk_size=1)
    assert [len(rank) for rank in found] == [15, 15]


def test_a_rank_that_stops_is_an_error_once_its_node_waits_for_it() -> None:
    hub = Hub(3, nodes=((0, 1), (2,)))

    def work(rank: int) -> str:
        rows = lz.source(range(1_000)) | lz.map(lambda n: np.zeros(1 << 21)) | lz.filter(len)
        dealt = rows | lz.shard(num_shards=3, index=rank) | lz.map(len)
        with lz.run(dealt, executor=shared_by(hub, rank, lz.threads(1, buffer_size=1))) as run:
            next(run)
            error = ""
            if rank == 1:
                hub.silent[rank] = 11.0  # beyond the time limit
            else:
                with pytest.raises(RankMissing, match=r"rank 1.* has said nothing") as raised:
                    deque(run)
                error = str(raised.value)
            are_told.wait(20)
            return error

    are_told = threading.Barrier(3)
    reader, _, other = on_ranks(3, work)
    assert "which is on this node" in reader
    assert "which is on another node" in other


def test_a_rank_names_the_lost_one_though_its_reader_has_ended() -> None:
    hub, has_ended = Hub(3, nodes=((0, 1), (2,))), threading.Event()

    def work(rank: int) -> str:
        rows = lz.source(range(1_000)) | lz.map(abs) | lz.filter(lambda n: True)
        dealt = rows | lz.shard(num_shards=3, index=rank)
        with lz.run(dealt, executor=shared_by(hub, rank, lz.threads(1, buffer_size=1))) as run:
            next(run)
            if rank == 2:
                hub.silent[rank] = 11.0  # beyond the time limit
                has_ended.wait(20)
                return ""
            if rank == 1:
                has_ended.wait(20)
            with pytest.raises(RankMissing, match=r"rank 2.* has said nothing") as raised:
                deque(run)
        if rank == 0:
            has_ended.set()
        return str(raised.value)

    assert ["another node" in error for error in on_ranks(3, work)] == [False, True, False]


class Sealed:
    """Can't be unpickled."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return int, ("sealed",)


@pytest.mark.parametrize("bad", [Sealed, threading.Lock])
def test_an_item_that_can_not_travel_is_an_error_after_the_items_before_it(
    bad: Callable[[], object],
) -> None:
    items = lz.source(range(400)) | lz.map(lambda n: [n, bad()] if n == 301 else [n])
    hub = Hub(2, nodes=((0, 1),))

    def work(rank: int) -> list[Any]:
        own = items | lz.filter(len) | lz.shard(num_shards=2, index=rank)
        found = list[Any]()
        with lz.run(own, executor=shared_by(hub, rank, lz.threads(2))) as run:
            try:
                found.extend(each[0] for each in run)
            except (TypeError, ValueError) as error:
                found.append(str(error))
                assert run.state.items == 150
        return found

    reader, other = on_ranks(2, work)
    assert reader == [*range(0, 400, 2)]
    assert other[:-1] == [*range(1, 301, 2)]
    assert "sealed" in other[-1] or "pickle" in other[-1]


def test_a_rank_gets_the_items_that_are_there_while_the_next_one_is_made() -> None:
    """Though it asks for many at once, as they came quickly so far."""
    last, has_come = 3_001, threading.Event()

    def waiting(n: int) -> int:
        return n if n <= last or has_come.wait(20) else -1

    items = lz.source(range(3_100)) | lz.map(waiting) | lz.filter(lambda n: True)
    hub = Hub(2, nodes=((0, 1),))

    def work(rank: int) -> list[int]:
        own = items | lz.shard(num_shards=2, index=rank)
        found = list[int]()
        with lz.run(own, executor=shared_by(hub, rank, lz.threads(2), chunk_size=1)) as run:
            for item in run:
                found.append(item)
                if item == last:
                    has_come.set()
        return found

    assert on_ranks(2, work) == [[*range(0, 3_100, 2)], [*range(1, 3_100, 2)]]


def test_pipelines_that_a_node_can_not_read_as_one_are_refused() -> None:
    executor = shared_by(Hub(2, nodes=((0, 1),)), 0, lz.threads(2))
    own = packed() | lz.repeat() | lz.shard(num_shards=2, index=0, remainder="drop")
    with pytest.raises(PipelineError, match="one shard after all joined pipelines"):
        lz.run(lz.mix([own, own], [1, 1], seed=0), executor=executor)
