"""A meeting of ranks on any machines: one of them listens at an address that all know."""

from __future__ import annotations

import socket
import threading
from _thread import start_new_thread
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TypeVar
from weakref import finalize

from lazyckpt.core.content import dumps
from lazyckpt.errors import PipelineError, RankMissing
from lazyckpt.executors.sharing.link import Nodes, Reach, Role, least, role_of
from lazyckpt.executors.sharing.mesh import Mesh
from lazyckpt.executors.sharing.wire import prove, read_json, send_json

T = TypeVar("T")
_SETTLED = 1.0  # seconds after which ranks that wait with different settings get an error
_TICK = 0.25  # seconds between two looks whether a rank still waits
_GREETING = 10.0  # time limit of a new connection for its first message, in seconds
_GONE = {"error": "shared: rank 0, where ranks meet, has ended its run", "missing": [0]}


class SocketMeeting(NamedTuple):
    """A meeting at the address of one of the ranks.

    Attributes:
        host: Host of the address.
        port: Port of the address.
        secret: Bytes that only the ranks know.
        rank: The number of this rank.
        size: The number of ranks.
        timeout: Seconds to wait for all ranks.
        nodes: The ranks of each node, if one rank per node reads.
    """

    host: str
    port: int
    secret: bytes
    rank: int
    size: int
    timeout: float
    nodes: Nodes = ()

    @property
    def role(self) -> Role:
        return role_of(self.rank, self.size, self.nodes)

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.size}>"  # without the secret

    def join(self, told: Mapping[str, Any], reach: Reach, look: Callable[[], None]) -> Mesh:
        try:
            return self._join(told, reach, look)
        except PipelineError:
            raise
        except (OSError, ValueError) as error:
            raise PipelineError(f"shared: ranks can't be connected: {error}") from error

    def leave(self) -> None:
        """Nothing: the place is there for all runs."""

    def _join(self, told: Mapping[str, Any], reach: Reach, look: Callable[[], None]) -> Mesh:
        with ExitStack() as opened:
            try:
                mine, answer = self._introduced(told, reach, look, opened)
            except (ConnectionError, TimeoutError) as error:
                text = f"shared: rank 0, where ranks meet, has ended or can't be reached: {error}"
                raise RankMissing(text, [0]) from error
            if "missing" in answer:
                raise RankMissing(answer["error"], answer["missing"])
            if "error" in answer:
                raise PipelineError(answer["error"])
            sockets = self._connected(mine, answer["addresses"], look)
            return Mesh(self.rank, self.role.makers, Reach(*answer["reach"]), sockets)

    def _introduced(
        self, told: Mapping[str, Any], reach: Reach, look: Callable[[], None], opened: ExitStack
    ) -> tuple[socket.socket, Any]:
        """Say where the ranks meet that this one is there; return its listener, and the answer."""
        place = socket.create_connection((self.host, self.port), self.timeout)
        opened.enter_context(place)
        prove(place, self.secret, calls=True)
        here = place.getsockname()[0]  # the interface on which the others reach this one
        mine = socket.create_server((here, 0), family=place.family, backlog=self.size)
        opened.enter_context(mine)
        address = [here, mine.getsockname()[1]]
        mine_told = {"rank": self.rank, "size": self.size, "told": dict(told), "reach": reach}
        send_json(place, {**mine_told, "address": address})
        deadline = monotonic() + self.timeout + _GREETING  # for it answers if it is late
        _patiently(partial(place.recv, 1, socket.MSG_PEEK), place, deadline, look)
        place.settimeout(_GREETING)
        return mine, read_json(place)

    def _connected(
        self, mine: socket.socket, addresses: list[list[Any]], look: Callable[[], None]
    ) -> dict[int, socket.socket]:
        """Connect to all peers: to those before this rank, and from those after it."""
        found: dict[int, socket.socket] = {}
        peers, deadline = self.role.peers(self.rank), monotonic() + self.timeout
        awaited: list[int] = []
        try:
            for rank in [each for each in peers if each < self.rank]:
                awaited = [rank]
                peer = socket.create_connection(tuple(addresses[rank]), _left(deadline))
                found[rank] = peer
                peer.settimeout(_left(deadline))
                prove(peer, self.secret, calls=True)
                send_json(peer, self.rank)
            while awaited := [each for each in peers if each not in found]:
                peer, _ = _patiently(mine.accept, mine, deadline, look)
                try:
                    peer.settimeout(min(_GREETING, _left(deadline)))
                    prove(peer, self.secret, calls=False)
                    found[int(read_json(peer))] = peer
                except (OSError, ValueError, PipelineError):
                    peer.close()  # a stranger, or a rank that is lost, which its peers notice
        except BaseException as error:
            for peer in found.values():
                peer.close()
            if isinstance(error, (ConnectionError, TimeoutError)):
                text = f"shared: {_ranks(awaited)} came, but can't be reached: {error}"
                raise RankMissing(text, awaited) from error
            raise
        return found


def _patiently(
    call: Callable[[], T], sock: socket.socket, deadline: float, look: Callable[[], None]
) -> T:
    """Call a method of a socket, which waits; call `look` again and again meanwhile."""
    while True:
        look()
        sock.settimeout(min(_TICK, _left(deadline)))
        try:
            return call()
        except TimeoutError:
            if monotonic() >= deadline:
                raise


def _left(deadline: float) -> float:
    return max(0.01, deadline - monotonic())


class _Rank(NamedTuple):
    """A rank that waits.

    Attributes:
        caller: The connection on which it waits for the answer.
        address: Its own address.
        reach: Its reach.
    """

    caller: socket.socket
    address: Any
    reach: Sequence[int]

    @property
    def is_gone(self) -> bool:
        """Whether it has hung up: it waits no longer, or its process has ended."""
        self.caller.setblocking(False)
        try:
            return not self.caller.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.caller.settimeout(_GREETING)


class _Gathering:
    """Ranks that wait for others with equal settings.

    Attributes:
        told: The settings that are equal on these ranks.
        size: The number of ranks that are to come.
        ranks: Those that are there, by number.
        answer: The final answer to all of these ranks.
    """

    def __init__(self, told: Mapping[str, Any], size: int) -> None:
        self.told, self.size = told, size
        self.ranks: dict[int, _Rank] = {}
        self.answer: dict[str, Any] | None = None

    def let_go(self, numbers: Sequence[int]) -> None:
        """Wait no longer with those of some ranks that have hung up."""
        for number in numbers:
            if number in self.ranks and self.ranks[number].is_gone:
                del self.ranks[number]


class MeetingPlace:
    """The listener of a meeting: a thread of one of the ranks.

    Attributes:
        port: The port where it listens.
    """

    def __init__(self, host: str, secret: bytes, timeout: float) -> None:
        """Start to listen."""
        self._secret, self._timeout = secret, timeout
        self._changed = threading.Condition()
        self._gatherings: dict[str, _Gathering] = {}
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=socket.SOMAXCONN)
        self.port: int = self._listener.getsockname()[1]
        _begin(self._accept)

    def close_with(self, owner: object) -> None:
        """Close once an object is gone."""
        # In a thread, as a signal that came while Python code runs in a finalizer would be lost.
        finalize(owner, start_new_thread, self.close, ()).atexit = False

    def close(self) -> None:
        """Stop listening, and tell waiting ranks."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        with self._changed:
            self._listener.close()
            self._end([*self._gatherings.values()], _GONE)

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:  # closed
                return
            _begin(self._serve, caller)

    def _serve(self, caller: socket.socket) -> None:
        with caller, suppress(OSError, ValueError, PipelineError):  # its own side knows
            caller.settimeout(_GREETING)
            prove(caller, self._secret, calls=False)
            asked = read_json(caller)
            send_json(caller, self._answer(caller, **asked))

    def _answer(
        self,
        caller: socket.socket,
        rank: int,
        size: int,
        told: Mapping[str, Any],
        reach: Sequence[int],
        address: Any,
    ) -> dict[str, Any]:
        name, deadline = dumps(told), monotonic() + self._timeout
        with self._changed:
            if self._listener.fileno() < 0:  # closed
                return _GONE
            gathering = self._gatherings.setdefault(name, _Gathering(told, size))
            gathering.let_go([rank])
            if rank in gathering.ranks:
                return {"error": f"shared: two processes say that they are rank {rank}"}
            mine = gathering.ranks[rank] = _Rank(caller, address, reach)
            if len(gathering.ranks) == size:
                gathering.let_go(range(size))
            if len(gathering.ranks) == size:
                del self._gatherings[name]
                addresses = [gathering.ranks[each].address for each in range(size)]
                reach = least(each.reach for each in gathering.ranks.values())
                gathering.answer = {"addresses": addresses, "reach": reach}
            self._changed.notify_all()
            while gathering.answer is None:
                if self._changed.wait(min(_SETTLED, max(0.0, deadline - monotonic()))):
                    continue
                gathering.let_go([rank])
                if gathering.ranks.get(rank) is not mine:
                    if not gathering.ranks:
                        self._end([gathering], _GONE)
                    return _GONE  # nobody reads it
                self._tell_difference()
                if gathering.answer is None and monotonic() >= deadline:
                    # To all of them, as this rank doesn't wait any more.
                    self._end([gathering], self._late(gathering))
            return gathering.answer

    def _end(self, gatherings: Sequence[_Gathering], answer: dict[str, Any]) -> None:
        for each in gatherings:
            each.answer = answer
        known = self._gatherings.items()
        self._gatherings = {name: each for name, each in known if each.answer is None}
        self._changed.notify_all()

    def _tell_difference(self) -> None:
        """If every rank waits in one gathering or another, report how the gatherings differ."""
        waiting = [each for each in self._gatherings.values() if each.ranks]
        counts = Counter(rank for each in waiting for rank in each.ranks)
        least_size = min([each.size for each in waiting], default=0)
        if len(waiting) < 2 or len(counts) < least_size or set(counts.values()) != {1}:
            return
        self._end(waiting, {"error": f"shared: {_differing(*waiting[:2])}"})

    def _late(self, gathering: _Gathering) -> dict[str, Any]:
        there = sorted(gathering.ranks)
        missing = sorted({*range(gathering.size)} - {*there})
        elsewhere = {each for other in self._gatherings.values() for each in other.ranks}
        text = (
            f"shared: within {self._timeout:g} s {_ranks(missing)} did not come to where "
            f"{_ranks(there)} {_are(there)}: all ranks open the same pipelines, and begin anew "
            "together"
        )
        if known := sorted(elsewhere & {*missing}):
            text += f" ({_ranks(known)} {_are(known)} at another pipeline or position)"
        return {"error": text, "missing": missing}


def _differing(one: _Gathering, other: _Gathering) -> str:
    """Return the differences of two gatherings as a sentence."""
    told, others = one.told, other.told
    names = [name for name in {**told, **others} if told.get(name) != others.get(name)]
    shown = "; ".join(
        f"{name}: {told.get(name, 'nothing')} and {others.get(name, 'nothing')}"
        for name in names[:3]
    )
    return (
        f"ranks {min(one.ranks)} and {min(other.ranks)} differ, and share no work: "
        f"{shown}; make settings and data equal, and the functions before shard with the values "
        "bound to them"
    )


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _are(ranks: list[int]) -> str:
    return "are" if len(ranks) > 1 else "is"


def _begin(work: Any, *args: Any) -> None:
    thread = threading.Thread(target=work, args=args, name="lazyckpt-meeting", daemon=True)
    thread.start()
