"""What ranks do while others wait for them: they may save for an hour, or have ended."""

from __future__ import annotations

import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.errors import RankMissing
from lazyckpt.executors.sharing import meeting
from lazyckpt.executors.sharing.executor import shared
from lazyckpt.executors.sharing.link import Reach
from lazyckpt.executors.sharing.meeting import SocketMeeting
from lazyckpt.executors.sharing.presence import WORKS, Presence
from lazyckpt.executors.sharing.wire import WAIT, prove, read_json, send_json
from tests.executors.sharing.rank import SECRET, tokens
from tests.executors.sharing.ranks import on_ranks, place
from tests.helpers import until

LIMIT = 2.0  # seconds that ranks wait for one that isn't busy
SAVING = 2.5 * LIMIT  # what a busy rank takes: to sleep is all that it does meanwhile


def finite(rank: int, count: int = 60, slow: Callable[[Any], Any] = tuple) -> lz.Pipeline[Any]:
    """As a stream, so that ranks share its tokens."""
    documents = lz.source(range(count)) | lz.shuffle(seed=1) | lz.map(tokens)
    rows = documents | lz.pack_first_fit(16, num_bins=4)
    return rows | lz.shard(num_shards=2, index=rank) | lz.map(slow)


@contextmanager
def two_ranks(
    inner: lz.Executor | None = None, timeout: float = LIMIT
) -> Iterator[tuple[list[lz.Executor], list[Presence]]]:
    """The executors of two ranks, and how the place knows them."""
    with place(timeout) as found:
        here = "127.0.0.1", found.port
        presences = [Presence(here, SECRET, rank, 30.0) for rank in range(2)]
        executors = [
            shared(
                two_ranks,
                inner or lz.threads(1),
                SocketMeeting(*here, SECRET, rank, 2, 30.0, (), presence),
                {"chunk_size": 4, "timeout": LIMIT},
            )
            for rank, presence in enumerate(presences)
        ]
        try:
            yield executors, presences
        finally:
            for each in presences:
                each.close()


@pytest.mark.parametrize("inner", [lz.threads(2), lz.processes(1, timeout=3)], ids=repr)
@pytest.mark.parametrize("when", ["before the first item", "at the last item", "after it"])
def test_a_rank_that_saves_for_long_is_waited_for(when: str, inner: lz.Executor) -> None:
    with two_ranks(inner) as (executors, _):

        def work(rank: int) -> list[list[Any]]:
            epochs = []
            if rank == 0 and when == "before the first item":
                time.sleep(SAVING)
            with lz.run(finite(rank), executor=executors[rank]) as run:
                for epoch in range(2):
                    rows = [next(run)]
                    for row in run:
                        rows.append(row)
                        is_last = len(rows) == len(alone[rank])
                        if rank == 0 and not epoch and is_last and when == "at the last item":
                            time.sleep(SAVING)
                    if rank == 0 and not epoch and when == "after it":
                        time.sleep(SAVING)
                    epochs.append(rows)
                    run.load_state_dict(lz.init(finite(rank)).to_dict())
            return epochs

        alone = [list(lz.run(finite(rank))) for rank in range(2)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = on_ranks(2, work)
        assert found == [[rows, rows] for rows in alone]


def test_ranks_that_share_nothing_wait_for_one_that_compiles() -> None:
    """Of each time there is a warning, and no two are equal: Python shows these once."""
    with two_ranks() as (executors, _):

        def work(rank: int) -> list[int]:
            own = lz.source(range(20)) | lz.shard(num_shards=2, index=rank)
            for _ in range(2):
                if not rank:
                    time.sleep(SAVING)
                rows = list(lz.run(own, executor=executors[rank]))
            return rows

        with pytest.warns(RuntimeWarning) as told:
            found = on_ranks(2, work)
        assert found == [[*range(0, 20, 2)], [*range(1, 20, 2)]]
        assert len({str(each.message) for each in told}) == 2


def test_a_loop_that_begins_while_another_of_its_pipeline_is_left_waits() -> None:
    with two_ranks() as (executors, _):

        def work(rank: int) -> Any:
            with lz.run(finite(rank), executor=executors[rank]) as train:
                first = [next(train)]
                if rank:
                    time.sleep(SAVING)
                again = list(lz.run(finite(rank), executor=executors[rank]))
                assert again == first + list(train)
            return again

        with pytest.warns(RuntimeWarning, match=r"rank 1 is busy .* by rank 0: all"):
            found = on_ranks(2, work)
        assert found == [list(lz.run(finite(rank))) for rank in range(2)]


def test_ranks_that_come_one_after_another_wait_for_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though they come more often than the place looks after those that wait."""
    monkeypatch.setattr(meeting, "LATE", 1.5)  # they wait for 3.5 s, if they hear nothing from it
    with place(LIMIT) as found, ExitStack() as stack:
        here = "127.0.0.1", found.port

        def work(rank: int) -> Any:
            stack.callback(Presence(here, SECRET, rank, 30.0).close)
            time.sleep(0.7 * rank)  # 4.9 s, for the last one
            return SocketMeeting(*here, SECRET, rank, 8, LIMIT).join({}, Reach(1, 1), lambda: None)

        links = on_ranks(8, work)
        assert [link.rank for link in links] == [*range(8)]
        on_ranks(8, lambda rank: links[rank].close())


def test_who_can_not_connect_tries_again() -> None:
    """As one whose place, or who itself, held the GIL for too long."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        presence = Presence(server.getsockname(), SECRET, 1, 30.0)
        server.accept()[0].close()
        caller, _ = server.accept()
        with caller:
            caller.settimeout(20)
            prove(caller, SECRET, calls=False)
            assert read_json(caller) == {"present": 1}
            for _ in range(2):
                caller.sendall(b"?")
                assert caller.recv(1) == WORKS
            presence.close()
            assert caller.recv(1) == b""


def test_a_rank_that_has_ended_is_told_at_once() -> None:
    with two_ranks(timeout=60.0) as (executors, presences):
        threading.Timer(0.5, presences[1].close).start()
        begun = time.monotonic()
        with pytest.raises(RankMissing, match=r"rank 1 ended, .* while rank 0 waited") as raised:
            next(lz.run(finite(0), executor=executors[0]))
        assert raised.value.ranks == (1,)
        assert time.monotonic() - begun < 20  # a third of the limit


def last(run: lz.Run[Any], is_over: threading.Event) -> Any:
    """The next item or error of a rank, after which the other one goes on."""
    try:
        return next(run)
    finally:
        is_over.set()


def test_a_rank_that_rewinds_alone_is_told_though_others_are_busy() -> None:
    """Before the end of a run nobody else will begin it again."""
    with two_ranks() as (executors, _):
        is_over = threading.Event()

        def work(rank: int) -> Any:
            with lz.run(finite(rank), executor=executors[rank]) as run:
                next(run)
                if not rank:
                    return is_over.wait(30)
                run.load_state_dict(lz.init(finite(rank)).to_dict())
                return last(run, is_over)

        was_told, error = on_ranks(2, work)
        assert isinstance(error, RankMissing)
        assert error.ranks == (0,)
        assert was_told


def test_a_rank_that_waits_for_an_item_is_not_busy() -> None:
    """It may wait for a rank that begins a pipeline which no other rank begins."""
    with two_ranks() as (executors, _), warnings.catch_warnings():
        warnings.simplefilter("error")
        is_over = threading.Event()

        def slow(row: Any) -> Any:
            is_over.wait(30)
            return row

        def work(rank: int) -> Any:
            if rank:
                return next(lz.run(finite(rank, slow=slow), executor=executors[rank]))
            with lz.run(finite(rank), executor=executors[rank]) as train:
                next(train)
                evaluation = lz.run(finite(rank, count=30), executor=executors[rank])
                return last(evaluation, is_over)

        error, _ = on_ranks(2, work)
        assert isinstance(error, RankMissing)
        assert "within 2 s rank 1 did not come to where rank 0 is" in str(error)
        assert "(rank 1 is waiting for an item)" in str(error)


def test_a_rank_that_does_not_answer_is_not_busy() -> None:
    """It is stopped, or cut off."""
    with place(LIMIT) as found:
        here = "127.0.0.1", found.port
        with socket.create_connection(here) as stopped:
            prove(stopped, SECRET, calls=True)
            send_json(stopped, {"present": 1})
            rank = SocketMeeting(*here, SECRET, 0, 2, 30.0)
            with pytest.raises(RankMissing, match="rank 1 did not come"):
                rank.join({}, Reach(1, 1), lambda: None)
            until(lambda: stopped.recv(1) == b"?")


def test_a_place_that_says_nothing_any_more_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that says for long that others are still waited for is not."""
    monkeypatch.setattr(meeting, "LATE", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        rank = SocketMeeting(*server.getsockname(), SECRET, 1, 2, 1.0)
        with ThreadPoolExecutor(1) as pool:
            joining = pool.submit(rank.join, {}, Reach(1, 1), lambda: None)
            caller, _ = server.accept()
            with caller:
                prove(caller, SECRET, calls=False)
                read_json(caller)
                for _ in range(10):
                    time.sleep(0.4)  # 4 s in all; the rank waits for 2
                    caller.sendall(WAIT)
                assert not joining.done()
                with pytest.raises(RankMissing, match=r"rank 0, where ranks meet, .* timed out"):
                    joining.result(20)
