"""Where ranks meet, and how they connect."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import islice
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.errors import PipelineError, RankMissing
from lazyckpt.executors.sharing import meeting
from lazyckpt.executors.sharing.executor import shared
from lazyckpt.executors.sharing.link import Reach
from lazyckpt.executors.sharing.meeting import SocketMeeting
from lazyckpt.executors.sharing.mesh import Mesh
from lazyckpt.executors.sharing.wire import ANSWER, prove, read_json, send_json
from tests.executors.sharing.rank import SECRET, pipeline
from tests.executors.sharing.ranks import on_ranks, place
from tests.executors.sharing.test_sockets import alone
from tests.helpers import until

REACH = Reach(1, 1)
TOLD = {"what": "the same"}


def refused(executor: Callable[[SocketMeeting], Any]) -> list[str]:
    """What ranks are told that meet for two seconds."""
    with place(timeout=2.0) as found:
        meetings = [SocketMeeting("127.0.0.1", found.port, SECRET, n, 2, 30.0) for n in range(2)]
        errors = on_ranks(2, lambda rank: executor(meetings[rank]))
        assert all(isinstance(error, PipelineError) for error in errors)
        return [str(error) for error in errors]


UNLIKE: dict[str, tuple[list[Any], list[str]]] = {
    "count": ([1_000, 1_001], ['{"length":1000}', '{"length":1001}']),
    "on_error": (["raise", "skip"], [r"on_error: \w+ and \w+; make"]),
    "chunk_size": ([4, 8], ["chunk_size: ", "make settings and data equal"]),
    "step": ([0, 3], ["position: ", "begin on all ranks from one state"]),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_ranks_are_told_in_what_they_differ(name: str) -> None:
    unlike, told = UNLIKE[name]

    def work(meeting: SocketMeeting) -> None:
        each = {"count": 1_000, "on_error": "raise", "chunk_size": 4, "step": 0}
        each[name] = unlike[meeting.rank]
        own = pipeline(2, meeting.rank, each["count"])
        more = {"chunk_size": each["chunk_size"], "timeout": 3.0}
        executor, state = shared(work, lz.threads(1), meeting, more), lz.state_at(own, each["step"])
        with lz.run(own, state, executor=executor, on_error=each["on_error"]) as run:
            next(run)

    for text in refused(work):
        assert all(re.search(each, text) for each in ["differ, and share no work: ", *told])


def test_pipelines_that_ranks_open_in_unlike_orders_are_refused() -> None:
    def work(meeting: SocketMeeting) -> None:
        executor = shared(work, lz.threads(1), meeting, {"chunk_size": 4, "timeout": 3.0})
        with ExitStack() as stack:
            runs = [
                stack.enter_context(lz.run(pipeline(2, meeting.rank, count), executor=executor))
                for count in (1_000, 500)
            ]
            for run in runs[:: 1 - 2 * meeting.rank]:
                next(run)

    for text in refused(work):
        assert "ranks 0 and 1 differ" in text or "ranks 1 and 0 differ" in text
        assert "begin runs in the same order" in text


def joined(port: int, size: int, nodes: tuple[tuple[int, ...], ...] = ()) -> list[Any]:
    """The results of ranks that join with no pipelines."""
    meetings = [
        SocketMeeting("127.0.0.1", port, SECRET, rank, size, 30.0, nodes) for rank in range(size)
    ]
    return on_ranks(size, lambda rank: meetings[rank].join(TOLD, REACH, lambda: None))


def closed(links: list[Any]) -> None:
    """All at once, as each waits for the others to hang up."""
    on_ranks(len(links), lambda rank: links[rank].close())


def test_strangers_are_turned_away() -> None:
    """A process that doesn't know the secret gets no answer, and keeps no rank from meeting."""
    with place() as found:
        stranger = socket.create_connection(("127.0.0.1", found.port))
        stranger.sendall(b"x" * 100)
        liar = SocketMeeting("127.0.0.1", found.port, b"another", 0, 2, 30.0)
        with pytest.raises(PipelineError, match=r"know the secret|closed|reset"):
            liar.join({}, REACH, lambda: None)
        links = joined(found.port, 2)
        assert [link.rank for link in links] == [0, 1]
        closed(links)
        stranger.close()


def proved(sides: list[tuple[socket.socket, bytes, bool]], rank: int) -> None:
    side, secret, calls = sides[rank]
    prove(side, secret, calls=calls)


def test_both_sides_prove_that_they_know_the_secret() -> None:
    for secrets in (SECRET, b"another"), (b"another", SECRET), (b"", SECRET):
        sides = socket.socketpair()
        each = [*zip(sides, secrets, (False, True), strict=True)]
        errors = on_ranks(2, partial(proved, each))
        assert [type(error) for error in errors] == [PipelineError] * 2
        for side in sides:
            side.close()


@pytest.mark.parametrize("calls", [False, True])
def test_an_echo_proves_nothing(calls: bool) -> None:
    ours, other = socket.socketpair()
    with ours, other:

        def echo() -> None:
            for _ in range(2):
                other.sendall(other.recv(32))

        threading.Thread(target=echo, daemon=True).start()
        with pytest.raises(PipelineError, match="know the secret"):
            prove(ours, SECRET, calls=calls)


def answer_to(caller: socket.socket) -> Any:
    while caller.recv(1) != ANSWER:
        pass
    return read_json(caller)


def test_a_rank_turns_strangers_away_and_listens_where_ranks_are_only() -> None:
    """As the place where they meet does."""
    with place() as found, ExitStack() as stack:

        def connected(host: str, port: int) -> socket.socket:
            return stack.enter_context(socket.create_connection((host, port), 20))

        rank = SocketMeeting("127.0.0.1", found.port, SECRET, 0, 2, 30.0)
        pool = stack.enter_context(ThreadPoolExecutor(1))
        link = pool.submit(rank.join, TOLD, REACH, lambda: None)
        caller = connected("127.0.0.1", found.port)
        prove(caller, SECRET, calls=True)
        told = {"rank": 1, "size": 2, "told": TOLD, "reach": REACH, "address": None}
        send_json(caller, told)
        host, port = answer_to(caller)["addresses"][0]
        for each in found.port, port:  # all of 127.x.x.x is this machine
            with pytest.raises(ConnectionRefusedError):
                connected("127.0.0.2", each)
        _ = [connected(host, port) for _ in range(3)]  # that say nothing
        stranger = connected(host, port)
        send_json(stranger, 1)  # without a proof
        stranger.shutdown(socket.SHUT_WR)
        liar = connected(host, port)
        with pytest.raises((PipelineError, ConnectionError)):
            prove(liar, b"another", calls=True)
        peer = connected(host, port)
        prove(peer, SECRET, calls=True)
        send_json(peer, 1)
        link.result(20).close()


def test_a_rank_does_not_take_a_stranger_for_a_rank() -> None:
    with place() as found, ExitStack() as stack:
        caller = stack.enter_context(socket.create_connection(("127.0.0.1", found.port)))
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        prove(caller, SECRET, calls=True)
        told = {"rank": 0, "size": 2, "told": TOLD, "reach": REACH}
        send_json(caller, {**told, "address": server.getsockname()})

        def pretend() -> None:
            with server.accept()[0] as other:
                other.sendall(b"x" * 64)
                other.recv(1 << 10)

        threading.Thread(target=pretend, daemon=True).start()
        with pytest.raises(PipelineError, match="know the secret"):
            SocketMeeting("127.0.0.1", found.port, SECRET, 1, 2, 30.0).join(
                TOLD, REACH, lambda: None
            )


def test_readers_are_connected_to_each_other_and_other_ranks_to_their_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections = set[tuple[int, int]]()

    def noted(rank: int, makers: Any, reach: Reach, sockets: Any, lost: Any) -> Mesh:
        connections.update((rank, each) for each in sockets)
        return Mesh(rank, makers, reach, sockets, lost)

    monkeypatch.setattr(meeting, "Mesh", noted)
    with place() as found:
        closed(joined(found.port, 6, nodes=((3, 0, 1), (2, 4), (5,))))
    expected = {(2, 3), (2, 5), (3, 5), (0, 3), (1, 3), (2, 4)}
    assert connections == expected | {(there, here) for here, there in expected}


def test_a_rank_that_leaves_sends_what_others_are_slow_to_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        left = socket.create_connection(server.getsockname())
        right, _ = server.accept()
    mesh = Mesh(0, (0, 1), REACH, {1: left})
    mesh.open(lambda rank, message: None, lambda rank, why: None)
    mesh.send(1, bytes(size := 16 << 20))
    closing = threading.Thread(target=mesh.close)
    closing.start()
    received = 0
    while some := right.recv(1 << 22):
        received += len(some)
        time.sleep(0.6)  # some 4 s in all
    closing.join(20)
    assert received > size
    right.close()


def test_only_a_rank_that_does_not_come_is_named() -> None:
    """By all at once: those that came are not missed by those that wait for longer."""
    with place(timeout=2.0) as found:
        meetings = [SocketMeeting("127.0.0.1", found.port, SECRET, n, 3, 4.0) for n in range(2)]

        def work(rank: int) -> Mesh:
            time.sleep(0.5 * rank)
            return meetings[rank].join(TOLD, REACH, lambda: None)

        for error in on_ranks(2, work):
            assert isinstance(error, RankMissing)
            assert "rank 2 did not come to where ranks 0, 1 are" in str(error)
            assert "pass a larger timeout if a rank" in str(error)
            assert error.ranks == (2,)


def test_few_of_many_ranks_are_named() -> None:
    with place(timeout=2.0) as found, pytest.raises(RankMissing) as raised:
        SocketMeeting("127.0.0.1", found.port, SECRET, 0, 2_000, 30.0).join(
            TOLD, REACH, lambda: None
        )
    assert "ranks 1, 2, 3, 4, 5, 6, 7, 8, ... (1,999 in all) did not come" in str(raised.value)
    assert raised.value.ranks == (*range(1, 2_000),)


def test_ranks_that_wait_as_the_place_is_closed_are_told() -> None:
    with place() as found:
        meetings = [SocketMeeting("127.0.0.1", found.port, SECRET, n, 3, 30.0) for n in range(2)]
        threading.Timer(0.5, found.close).start()
        for error in on_ranks(2, lambda rank: meetings[rank].join(TOLD, REACH, lambda: None)):
            assert isinstance(error, RankMissing)
            assert "rank 0, where ranks meet, has ended" in str(error)
            assert error.ranks == (0,)


def test_nobody_comes_twice() -> None:
    with place(timeout=2.0) as found:
        twice = SocketMeeting("127.0.0.1", found.port, SECRET, 0, 3, 2.0)
        errors = on_ranks(2, lambda number: twice.join(TOLD, REACH, lambda: None))
        assert any("two processes say that they are rank 0" in str(error) for error in errors)


class Tired(Exception):
    pass


def tired_once(it_is: threading.Event) -> None:
    if it_is.is_set():
        raise Tired


def wait_a_moment(port: int, rank: int) -> None:
    """Come as a rank, and wait no longer after a look or two."""

    def look() -> None:
        looks.append(rank)
        if len(looks) > 2:
            raise Tired

    looks: list[int] = []
    with pytest.raises(Tired):
        SocketMeeting("127.0.0.1", port, SECRET, rank, 2, 30.0).join(TOLD, REACH, look)


def test_who_waits_no_longer_may_come_again() -> None:
    with place() as found:
        wait_a_moment(found.port, 0)
        links = joined(found.port, 2)
        assert [link.rank for link in links] == [0, 1]
        closed(links)


def test_who_comes_again_before_the_wait_that_it_gave_up_is_over() -> None:
    with place() as found:
        first = threading.Thread(target=wait_a_moment, args=(found.port, 0))
        first.start()

        def come(rank: int) -> Mesh:
            if rank:
                first.join()
            meeting = SocketMeeting("127.0.0.1", found.port, SECRET, rank, 2, 30.0)
            return meeting.join(TOLD, REACH, lambda: None)

        links = on_ranks(2, come)
        assert [link.rank for link in links] == [0, 1]
        closed(links)


def test_who_waits_no_longer_is_missing() -> None:
    with place(timeout=2.0) as found:
        wait_a_moment(found.port, 1)
        with pytest.raises(RankMissing, match="rank 1 did not come to where rank 0 is") as raised:
            SocketMeeting("127.0.0.1", found.port, SECRET, 0, 2, 30.0).join(
                TOLD, REACH, lambda: None
            )
        assert raised.value.ranks == (1,)


def test_who_came_and_can_not_be_reached_is_missing() -> None:
    with place() as found, socket.create_connection(("127.0.0.1", found.port)) as caller:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
        prove(caller, SECRET, calls=True)
        told = {"rank": 0, "size": 2, "told": TOLD, "reach": REACH, "address": address}
        send_json(caller, told)
        link = SocketMeeting("127.0.0.1", found.port, SECRET, 1, 2, 30.0).join(
            TOLD, REACH, lambda: None
        )
        left = list[tuple[int, str]]()
        link.open(lambda rank, message: None, lambda *gone: left.append(gone))
        until(lambda: left)
        link.close()
        [(rank, why)] = left
        assert rank == 0
        assert "came, but can't be reached: " in why


def test_a_run_that_is_closed_while_it_waits_for_ranks_waits_no_longer() -> None:
    """So that another run of the rank can take part."""
    with place() as found:

        def executor(rank: int) -> lz.Executor:
            meeting = SocketMeeting("127.0.0.1", found.port, SECRET, rank, 2, 60.0)
            more = {"chunk_size": 4, "timeout": 3.0}
            return shared(executor, lz.threads(1), meeting, more)

        first = executor(0)
        run = lz.run(pipeline(2, 0), executor=first)
        threading.Timer(0.5, run.close).start()
        with pytest.raises(PipelineError, match="the run is closed"):
            next(run)

        def work(rank: int) -> list[list[str]]:
            with lz.run(pipeline(2, rank), executor=executor(rank) if rank else first) as again:
                return [
                    [repr(item), state.to_json()] for item, state in islice(again.with_state(), 4)
                ]

        assert on_ranks(2, work) == [alone(2, rank, 4) for rank in range(2)]


def met(caller: socket.socket, rank: int, address: Any = None) -> list[Any]:
    """The addresses of two ranks, of which one comes so."""
    prove(caller, SECRET, calls=True)
    told = {"rank": rank, "size": 2, "told": TOLD, "reach": REACH, "address": address}
    send_json(caller, told)
    found: list[Any] = answer_to(caller)["addresses"]
    return found


def test_who_leaves_while_ranks_connect_is_no_loss() -> None:
    """It connects, so that it can say that it leaves."""
    with place() as found, ExitStack() as stack:
        has_met = threading.Event()

        rank = SocketMeeting("127.0.0.1", found.port, SECRET, 0, 2, 30.0)
        pool = stack.enter_context(ThreadPoolExecutor(1))
        joining = pool.submit(rank.join, TOLD, REACH, partial(tired_once, has_met))
        caller = stack.enter_context(socket.create_connection(("127.0.0.1", found.port)))
        host, port = met(caller, 1)[0]
        has_met.set()
        time.sleep(0.5)  # in which it looks, and doesn't give up
        peer = stack.enter_context(socket.create_connection((host, port)))
        prove(peer, SECRET, calls=True)
        send_json(peer, 1)
        left = list[str]()
        link = Mesh(1, (0, 1), REACH, {0: peer})
        link.open(lambda rank, message: None, lambda rank, why: left.append(why))
        joining.result(20).close()  # as it was never opened
        until(lambda: left)
        link.close()
        assert left == [""]


def test_who_leaves_does_not_wait_for_a_rank_that_says_nothing() -> None:
    with (
        place() as found,
        socket.create_server(("127.0.0.1", 0)) as silent,
        socket.create_connection(("127.0.0.1", found.port)) as caller,
        ThreadPoolExecutor(1) as pool,
    ):
        has_met = threading.Event()

        rank = SocketMeeting("127.0.0.1", found.port, SECRET, 1, 2, 30.0)
        joining = pool.submit(rank.join, TOLD, REACH, partial(tired_once, has_met))
        met(caller, 0, silent.getsockname())
        has_met.set()
        with pytest.raises(Tired):
            joining.result(20)


def test_a_rank_that_left_is_not_lost_to_one_that_finds_out_later() -> None:
    """As it was stopped meanwhile, and sends before it reads."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        late = socket.create_connection(server.getsockname())
        left, _ = server.accept()
    link, found = Mesh(0, (0, 1), REACH, {1: late}), list[str]()
    link.send(1, b"before")
    leaving = Mesh(1, (0, 1), REACH, {0: left})
    leaving.close()  # in vain it waits for the other
    for _ in range(2):
        link.send(1, b"after")
        time.sleep(0.1)  # in which the answer comes that nobody listens
    link.open(lambda rank, message: None, lambda rank, why: found.append(why))
    until(lambda: found)
    link.close()
    assert found == [""]


def test_a_place_that_is_gone_is_the_loss_of_rank_0() -> None:
    with place() as found:
        port = found.port
    (first, second) = joined(port, 2)
    for error in first, second:
        assert isinstance(error, RankMissing)
        assert "rank 0, where ranks meet, has ended" in str(error)
        assert error.ranks == (0,)


def test_a_rank_that_waited_for_long_still_connects_to_those_that_come() -> None:
    with place() as found:
        meetings = [
            SocketMeeting("127.0.0.1", found.port, SECRET, n, 2, [2.0, 30.0][n]) for n in range(2)
        ]

        def work(rank: int) -> Mesh:
            time.sleep(2.3 * rank)  # longer than the first connects for, less than it waits for
            return meetings[rank].join(TOLD, REACH, lambda: None)

        links = on_ranks(2, work)
        assert [link.rank for link in links] == [0, 1]
        closed(links)
