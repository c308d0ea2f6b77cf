"""Ranks that pause, rewind and enter again, each at its own pace."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

import lazyckpt as lz
from lazyckpt.executors.sharing.executor import shared
from lazyckpt.executors.sharing.meeting import SocketMeeting
from tests.executors.sharing.rank import SECRET
from tests.executors.sharing.ranks import Hub, Nodes, on_ranks, place, shared_by


def some(n: int) -> bool:
    return n % 3 != 1


def dealt(size: int, rank: int) -> lz.Pipeline[int]:
    """Tasks of three kinds: a rank that reads ahead waits for the first, others for the third."""
    items = lz.source(range(90)) | lz.filter(some) | lz.skip(1) | lz.map(abs) | lz.filter(some)
    items = items | lz.skip(1) | lz.map(abs) | lz.filter(some)
    return items | lz.shard(num_shards=size, index=rank, remainder="drop")


@pytest.mark.parametrize("nodes", [(), ((0,), (1, 2))], ids=["ranks", "nodes"])
@pytest.mark.parametrize("paused", [0, 1])
def test_a_rank_may_pause_alone(paused: int, nodes: Nodes) -> None:
    """Also if ranks meet at each item."""

    def work(rank: int) -> list[int]:
        executor, found = shared_by(hub, rank, lz.threads(2, buffer_size=4), chunk_size=1), []
        with lz.run(dealt(3, rank), executor=executor) as run:
            if rank == paused:
                run.pause()
            for item in run:
                found.append(item)
                meet.wait(20)
        return found

    hub, meet = Hub(3, nodes=nodes), threading.Barrier(3)
    assert on_ranks(3, work) == [[*lz.run(dealt(3, rank))] for rank in range(3)]


@pytest.mark.parametrize("is_ahead", [0, 1])
def test_a_rank_may_compute_ahead_alone(is_ahead: int) -> None:
    def work(rank: int) -> list[int]:
        inner = lz.threads(2, buffer_size=4, gated=True)
        with lz.run(dealt(3, rank), executor=shared_by(hub, rank, inner, chunk_size=1)) as run:
            if rank == is_ahead:
                run.unpause()
            return [*run]

    hub = Hub(3)
    assert on_ranks(3, work) == [[*lz.run(dealt(3, rank))] for rank in range(3)]
    assert len(hub.posted) == len({*hub.posted})


def test_ranks_are_gated_alike() -> None:
    def work(rank: int) -> list[int]:
        executor = shared_by(hub, rank, lz.threads(2, gated=rank == 1))
        return [*lz.run(dealt(2, rank), executor=executor)]

    hub = Hub(2, timeout=1)
    assert "differ" in str(on_ranks(2, work))


def text(n: int) -> str:
    return f"{n:300}"  # so long that it stays with its maker


@pytest.mark.parametrize("nodes", [(), ((0,), (1,))])
def test_the_time_limit_of_an_item_does_not_run_while_ranks_come_again(nodes: Nodes) -> None:
    """After a rewind, for which one comes late."""

    def work(rank: int) -> list[str]:
        executor = shared_by(hub, rank, lz.threads(1, timeout=1.0))
        with lz.run(rows(rank), executor=executor) as run:
            before = run.state_dict()
            found = [*islice(run, 20)]
            time.sleep(1.6 * rank)  # longer than the time limit of an item
            run.load_state_dict(before)
            assert [*islice(run, 20)] == found
            return found

    def rows(rank: int) -> lz.Pipeline[str]:
        texts = lz.source(range(400)) | lz.map(text) | lz.filter(len)
        return texts | lz.shard(num_shards=2, index=rank)

    hub = Hub(2, nodes=nodes)
    assert on_ranks(2, work) == [[text(n) for n in range(rank, 40, 2)] for rank in range(2)]


class Slow:
    """An item that is slow to send, and that stays with its maker."""

    def __init__(self, n: int) -> None:
        self.n, self.large = n, bytes(300)

    def __reduce__(self) -> tuple[type[Slow], tuple[int]]:
        time.sleep(1.6 * (self.n == 5))  # longer than the time limit of an item
        return Slow, (self.n,)


@pytest.mark.parametrize("nodes", [(), ((0,), (1,))])
def test_nor_does_it_while_a_rank_sends_an_item(nodes: Nodes) -> None:
    def work(rank: int) -> list[int]:
        items = lz.source(range(21)) | lz.map(Slow) | lz.filter(lambda item: True)
        own = items | lz.skip(1) | lz.shard(num_shards=2, index=rank)  # those that others make
        executor = shared_by(hub, rank, lz.threads(1, timeout=1.0), chunk_size=1)
        return [item.n for item in lz.run(own, executor=executor)]

    hub = Hub(2, nodes=nodes)
    assert on_ranks(2, work) == [[*range(1 + rank, 21, 2)] for rank in range(2)]


def test_a_record_skipped_ahead_of_a_run_that_is_closed_is_counted_where_it_is() -> None:
    goes_on, waits = threading.Event(), threading.Event()

    def read(n: int) -> int:
        if n == 7:
            raise ValueError(n)
        if n == 8:
            waits.set()
            goes_on.wait(20)
        return n

    def work(rank: int) -> list[lz.State]:
        own = items | lz.shard(num_shards=2, index=rank)
        executor = shared_by(hub, rank, lz.threads(1), chunk_size=1)
        with lz.run(own, executor=executor, on_error="skip") as run:
            next(run)
            waits.wait(20)
            come.wait(20)
        come.wait(20)
        goes_on.set()
        with run:
            return [run.state for _ in run]

    items = lz.source(range(20)) | lz.map(read) | lz.filter(lambda n: True)
    hub, come = Hub(2, nodes=((0, 1),)), threading.Barrier(2)
    found = on_ranks(2, work)
    for rank in range(2):
        run = lz.run(items | lz.shard(num_shards=2, index=rank), on_error="skip")
        assert found[rank] == [run.state for _ in run][1:]


def noted(folder: str, n: int) -> int:
    with Path(folder, "made").open("a") as file:
        file.write(f"{n}\n")
    return n


def kills_once(folder: str, n: int) -> int:
    """Kill the worker at each 40th item, the first time."""
    if n % 40 == 7 and not (killed := Path(folder, str(n))).exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return n


@pytest.mark.parametrize("nodes", [(), ((0, 1),)])
def test_a_worker_that_dies_after_shard_has_nothing_made_again(
    nodes: Nodes, tmp_path: Path
) -> None:
    def work(rank: int) -> list[int]:
        items = lz.source(range(200)) | lz.map(partial(noted, str(tmp_path))) | lz.filter(some)
        dealt = items | lz.skip(1) | lz.shard(num_shards=2, index=rank, remainder="drop")
        meeting = SocketMeeting("127.0.0.1", found.port, SECRET, rank, 2, 30.0, nodes)
        inner = lz.processes(2, retries=1, buffer_size=4)
        executor = shared(shared_by, inner, meeting, {"chunk_size": 2, "timeout": 30.0})
        return [*lz.run(dealt | lz.map(partial(kills_once, str(tmp_path))), executor=executor)]

    with place() as found:
        kept = [n for n in range(200) if some(n)][1:]
        ends = len(kept) // 2 * 2
        assert on_ranks(2, work) == [kept[rank:ends:2] for rank in range(2)]
    made = (tmp_path / "made").read_text().split()
    assert sorted(made) == sorted({*made})
