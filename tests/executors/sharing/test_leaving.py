"""Ranks that leave, fail or can't be reached at awkward moments."""

from __future__ import annotations

import gc
import os
import signal
import socket
import threading
import time
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.executors.sharing.executor import shared
from lazyckpt.executors.sharing.meeting import SocketMeeting
from lazyckpt.executors.sharing.wire import prove, send_json
from tests.executors.sharing.rank import SECRET
from tests.executors.sharing.ranks import Hub, Nodes, on_ranks, place, shared_by
from tests.executors.sharing.test_meeting import REACH, TOLD
from tests.executors.sharing.test_sockets import is_any, job
from tests.helpers import until


def executor(port: int, rank: int, nodes: tuple[tuple[int, ...], ...] = ()) -> lz.Executor:
    meeting = SocketMeeting("127.0.0.1", port, SECRET, rank, 2, 30.0, nodes)
    return shared(executor, lz.threads(1), meeting, {"chunk_size": 4, "timeout": 30.0})


class Slow:
    """An item that is slow to pickle."""

    def __init__(self, n: int) -> None:
        self.n, self.large = n, bytes(1_000)

    def __reduce__(self) -> Any:
        time.sleep(0.05)
        return Slow, (self.n,)


def slow_ones(rank: int) -> lz.Pipeline[Slow]:
    items = lz.source(range(40)) | lz.map(Slow) | lz.filter(is_any)
    return items | lz.shard(num_shards=2, index=rank)


@pytest.mark.parametrize(("leaver", "nodes"), [(1, ()), (0, ((0, 1),))])
def test_an_error_of_a_signal_handler_while_a_rank_leaves_is_no_loss(
    leaver: int, nodes: tuple[tuple[int, ...], ...]
) -> None:
    """It sends what it holds nevertheless, and says that it leaves."""

    class Boom(Exception):
        pass

    def boom(*_: object) -> None:
        raise Boom

    before = signal.signal(signal.SIGUSR1, boom)
    try:
        with place() as found:
            items, reader = list[int](), 1 - leaver

            def read() -> None:
                own = executor(found.port, reader, nodes)
                with lz.run(slow_ones(reader), executor=own) as run:
                    items.extend(item.n for item in run)

            other = threading.Thread(target=read)
            other.start()
            run = lz.run(slow_ones(leaver), executor=executor(found.port, leaver, nodes))
            next(run)
            threading.Timer(0.05, partial(os.kill, os.getpid(), signal.SIGUSR1)).start()
            with pytest.raises(Boom):
                run.close()
            other.join(30)
            assert items == [*range(reader, 40, 2)]
            until(lambda: not [t for t in threading.enumerate() if t.name == "lazyckpt-link"])
            run.close()
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("nodes", [(), ((0, 1),)])
def test_runs_that_are_closed_and_entered_again_go_on(nodes: Nodes) -> None:
    """Though their ranks had computed different numbers of items ahead."""
    items = lz.source(range(400)) | lz.map(abs) | lz.filter(is_any)
    hub, come = Hub(2, nodes=nodes), threading.Barrier(2)

    def work(rank: int) -> list[int]:
        executor, found = shared_by(hub, rank, lz.threads(2, buffer_size=1 + 40 * rank)), []
        run = lz.run(items | lz.shard(num_shards=2, index=rank), executor=executor)
        for _ in range(3):
            with run:
                found += islice(run, 20)
                until(lambda: run.stats.ready > 10 * rank)
                come.wait(20)  # so that no rank leaves while the other one waits for its items
        return found

    assert on_ranks(2, work) == [[*range(rank, 120, 2)] for rank in range(2)]


@pytest.mark.parametrize("nodes", [(), ((0, 1),)])
@pytest.mark.parametrize("before", [lz.filter(is_any), lz.map(is_any)], ids=["shared", "divided"])
@pytest.mark.parametrize(
    ("shards", "missing"),
    [([(2, 0), (2, 0)], "index=1 of num_shards=2"), ([(6, 0), (6, 1)], "2, 3, 4, ...")],
)
def test_an_index_that_no_rank_has_is_refused(
    shards: list[tuple[int, int]], missing: str, before: lz.Stage[Any, Any], nodes: Nodes
) -> None:
    """Otherwise its items would be lost."""
    with place() as found:

        def work(rank: int) -> None:
            size, index = shards[rank]
            items = lz.source(range(90)) | before | lz.shard(num_shards=size, index=index)
            own = executor(found.port, rank, nodes)
            with lz.run(items, executor=own) as run, pytest.raises(lz.PipelineError, match=missing):
                next(run)

        assert on_ranks(2, work) == [None, None]


@pytest.mark.parametrize("nodes", [(), ((0, 1),)])
@pytest.mark.parametrize("inner", [lz.threads(1), lz.processes(1)], ids=["threads", "processes"])
def test_an_interrupted_wait_for_others_is_over(inner: lz.Executor, nodes: Nodes) -> None:
    """The rank that comes later meets the one that asks again, not the wait that was given up."""

    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    def run(rank: int) -> Any:
        items = lz.source(range(60)) | lz.filter(is_any) | lz.shard(num_shards=2, index=rank)
        meeting = SocketMeeting("127.0.0.1", found.port, SECRET, rank, 2, 30.0, nodes)
        more = {"chunk_size": 4, "timeout": 30.0}
        return lz.run(items, executor=shared(executor, inner, meeting, more))

    def come() -> None:
        with run(1) as other:
            theirs.extend(other)

    theirs, before = list[int](), signal.signal(signal.SIGALRM, interrupt)
    other = threading.Thread(target=come)
    with place() as found, run(0) as own:
        try:
            signal.setitimer(signal.ITIMER_REAL, 3.0)  # a reader process waits for others by then
            with pytest.raises(Interrupted):
                next(own)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        other.start()
        assert [*own] == [*range(0, 60, 2)]
        other.join(30)
    assert theirs == [*range(1, 60, 2)]


def failing(n: int) -> int:
    if n == 30:
        raise ValueError(n)
    return n


@pytest.mark.parametrize("nodes", [(), ((0, 1),)])
def test_runs_that_failed_and_are_dropped_end(nodes: tuple[tuple[int, ...], ...]) -> None:
    with place() as found:

        def work(rank: int) -> None:
            items = lz.source(range(90)) | lz.map(failing) | lz.filter(is_any)
            own = items | lz.shard(num_shards=2, index=rank)
            run = lz.run(own, executor=executor(found.port, rank, nodes))
            with pytest.raises(ValueError, match="30"):
                list(run)

        assert on_ranks(2, work) == [None, None]

        def are_gone() -> bool:
            gc.collect()  # each time, as a thread may just hold an error, with the frames of a run
            ours = ("lazyckpt-link", "lazyckpt-shared", "lazyckpt-follower")
            return not [t for t in threading.enumerate() if t.name.startswith(ours)]

        until(are_gone)


def test_a_rank_that_can_not_be_reached_is_not_mistaken_for_one_that_misses_it() -> None:
    """Who misses it stays connected to the others, and can name it."""
    nodes = ((0, 1, 2),)
    with place() as found, socket.create_connection(("127.0.0.1", found.port)) as caller:
        prove(caller, SECRET, calls=True)
        told = {"rank": 1, "size": 3, "told": TOLD, "reach": REACH, "address": None}
        send_json(caller, told)  # it comes, and never connects
        left: dict[int, list[tuple[int, str]]] = {0: [], 2: []}

        def work(number: int) -> Any:
            rank = 2 * number
            meeting = SocketMeeting("127.0.0.1", found.port, SECRET, rank, 3, 3.0, nodes)
            link = meeting.join(TOLD, REACH, lambda: None)
            link.open(lambda rank, message: None, lambda *gone: left[rank].append(gone))
            return link

        links = on_ranks(2, work)
        until(lambda: left[0])
        assert [(rank, why.partition(":")[0]) for rank, why in left[0]] == [
            (1, "came, but can't be reached")
        ]
        assert left[2] == []
        on_ranks(2, lambda number: links[number].close())


def test_a_rank_whose_program_ends_while_ranks_come_is_no_loss() -> None:
    found = job(3, steps=[20] * 3, where=["main", "ending", "main"], waits=[1.5, 0, 1.5])
    assert [len(found[0]), len(found[2])] == [20, 20]
    assert [each[-1][:2] for each in (found[0], found[2]) if len(each[-1]) > 2] == []


def stops_once(folder: str, total: int, n: int) -> tuple[int, int]:
    """The first process that comes to item 60 stops, as by SIGSTOP."""
    if n == 60:
        with suppress(FileExistsError):
            Path(folder, "stopped").touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGSTOP)
    return total + n, n


def test_a_reading_process_that_stops_is_told_at_the_time_limit(tmp_path: Path) -> None:
    with place() as found:

        def work(rank: int) -> tuple[type[Exception], float]:
            items = lz.source(range(900)) | lz.filter(is_any)
            items |= lz.scan(partial(stops_once, str(tmp_path)), 0)
            own = items | lz.shard(num_shards=2, index=rank)
            meeting = SocketMeeting("127.0.0.1", found.port, SECRET, rank, 2, 30.0, ())
            more = {"chunk_size": 4, "timeout": 3.0}
            reader = shared(executor, lz.processes(1, timeout=3, buffer_size=4), meeting, more)
            with lz.run(own, executor=reader) as run:
                with pytest.raises((lz.errors.WorkerTimeout, lz.errors.RankMissing)) as raised:
                    list(run)
                return raised.type, time.time() - (tmp_path / "stopped").stat().st_mtime

        kinds, seconds = zip(*on_ranks(2, work), strict=True)
        assert {*kinds} == {lz.errors.WorkerTimeout, lz.errors.RankMissing}
        assert max(seconds) < 10  # not the 16 s in which it could end
