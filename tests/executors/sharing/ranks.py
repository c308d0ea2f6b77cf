"""Ranks within one process, that share work over queues; and where other ranks meet."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest

from lazyckpt.errors import PipelineError, RankMissing
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.sharing.executor import shared
from lazyckpt.executors.sharing.link import (
    SHARDS,
    Leave,
    Nodes,
    Reach,
    Receive,
    Role,
    least,
    role_of,
)
from lazyckpt.executors.sharing.meeting_place import MeetingPlace
from tests.executors.sharing.rank import SECRET


class Hub:
    """The meeting of ranks that are threads of this process; it delivers their messages.

    Attributes:
        per_node: The ranks of a node, one of which reads; 0 if each rank reads for itself.
        patience: The seconds to wait for all ranks, if no others are told.
        silent: The seconds since the last message of a rank, if it has stopped.
    """

    per_node = 0
    patience = 20.0

    def __init__(
        self, size: int, *, delay: float = 0.0, timeout: float = 0.0, nodes: Nodes | None = None
    ) -> None:
        self.size, self.delay, self.timeout = size, delay, timeout or self.patience
        self.nodes = nodes_of(size, self.per_node) if nodes is None else nodes
        self.posted: list[bytes] = []  # keys, of all ranks
        self.received = Counter[int]()  # bytes that were sent to one rank only, by rank
        self.silent: dict[int, float] = {}
        self.arrived = Counter[int]()  # all bytes, by rank
        self.links: list[QueueLink] = []
        self._changed = threading.Condition()
        self._gathered: dict[str, dict[int, QueueLink]] = {}

    def meeting(self, rank: int) -> RankMeeting:
        return RankMeeting(self, rank)

    def join(self, rank: int, told: Mapping[str, Any], reach: Reach) -> QueueLink:
        equal = sorted((name, value) for name, value in told.items() if name != SHARDS)
        name, link = repr(equal), QueueLink(self, rank)
        link.reach = reach
        with self._changed:
            gathered = self._gathered.setdefault(name, {})
            assert rank not in gathered, f"rank {rank} comes twice"
            gathered[rank] = link
            self.links.append(link)
            link.peers = gathered
            if len(gathered) == self.size:
                del self._gathered[name]
            self._changed.notify_all()

            def all_came() -> bool:
                came = set(gathered).union(*self._gathered.values())
                return len(came) == self.size

            self._changed.wait_for(all_came, self.timeout)
            if len(gathered) < self.size:
                if len(self._gathered) > 1:
                    raise PipelineError("the ranks differ")
                raise RankMissing("too few ranks", set(range(self.size)) - set(gathered))
            link.reach = least([each.reach for each in gathered.values()])
        return link


def nodes_of(size: int, per_node: int) -> Nodes:
    places = range(0, size, per_node) if per_node else ()
    return tuple([tuple(range(size)[place : place + per_node]) for place in places])


class RankMeeting:
    presence = None

    def __init__(self, hub: Hub, rank: int) -> None:
        self.hub, self.rank, self.nodes = hub, rank, hub.nodes

    @property
    def role(self) -> Role:
        return role_of(self.rank, self.hub.size, self.nodes)

    def join(self, told: Mapping[str, Any], reach: Reach, look: Callable[[], None]) -> QueueLink:
        return self.hub.join(self.rank, told, reach)

    def leave(self) -> None:
        pass


class QueueLink:
    def __init__(self, hub: Hub, rank: int) -> None:
        self._hub, self.rank, self._role = hub, rank, role_of(rank, hub.size, hub.nodes)
        self.makers = self._role.makers
        self.reach: Reach
        self.peers: dict[int, QueueLink] = {}
        self.is_closed = False
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._random = random.Random(rank)

    def open(self, receive: Receive, leave: Leave) -> None:
        def read() -> None:
            while (found := self._inbox.get()) is not None:
                rank, message = found
                if self._hub.delay:
                    time.sleep(self._random.random() * self._hub.delay)
                if isinstance(message, str):
                    leave(rank, message)
                else:
                    receive(rank, memoryview(message))

        threading.Thread(target=read, daemon=True, name=f"link-{self.rank}").start()

    def post(self, message: bytes) -> None:
        if not any(each.is_closed for each in self.peers.values()):  # else it may be made again
            self._hub.posted.append(message[:16])
        self._send(self.makers, message)

    def send(self, rank: int, message: bytes) -> None:
        assert rank in self._role.peers(self.rank)
        self._hub.received[rank] += len(message)
        self._send([rank], message)

    def _send(self, ranks: Sequence[int], message: Any) -> None:
        for rank in ranks:
            if rank != self.rank and not self.peers[rank].is_closed:
                self._hub.arrived[rank] += len(message)
                self.peers[rank]._inbox.put((self.rank, message))

    def silence(self, rank: int) -> float:
        return self._hub.silent.get(rank, 0.0)

    def close(self, why: str = "") -> None:
        if not self.is_closed:
            self.is_closed = True
            self._send(self._role.peers(self.rank), why)
            self._inbox.put(None)


def shared_by(hub: Hub, rank: int, inner: Executor, chunk_size: int = 4) -> Executor:
    more = {"chunk_size": chunk_size, "timeout": 10.0}
    return shared(shared_by, inner, hub.meeting(rank), more)


def on_ranks(size: int, work: Callable[[int], Any]) -> list[Any]:
    """The results of a function on each rank, all in parallel; errors are results, too."""
    found: list[Any] = [None] * size

    def do(rank: int) -> None:
        try:
            found[rank] = work(rank)
        except BaseException as error:
            found[rank] = error

    threads = [threading.Thread(target=do, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    for each in found:
        if isinstance(each, (AssertionError, pytest.fail.Exception)):
            raise each
    return found


@contextmanager
def place(timeout: float = 60.0) -> Iterator[MeetingPlace]:
    """Where ranks meet that are processes."""
    found = MeetingPlace("127.0.0.1", SECRET, timeout)
    try:
        yield found
    finally:
        found.close()
