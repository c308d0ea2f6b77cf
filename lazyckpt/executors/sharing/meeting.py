"""A meeting of ranks on any machines: one of them listens at an address that all know."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from lazyckpt.errors import PipelineError, RankMissing
from lazyckpt.executors.sharing.door import Countdown, Door, begin, hang_up
from lazyckpt.executors.sharing.link import SHARDS, Nodes, Reach, Role, role_of
from lazyckpt.executors.sharing.mesh import BEAT, Mesh
from lazyckpt.executors.sharing.presence import Presence
from lazyckpt.executors.sharing.wire import WAIT, ours, prove, read_exactly, read_json, send_json

_TICK = 0.25  # seconds between two looks whether this rank still wants to join
LATE = 10.0  # seconds more for the answer to a rank that has waited for too long
_GOODBYE = 2.0  # seconds to connect nevertheless, to say that this rank leaves


class SocketMeeting(NamedTuple):
    """A meeting at the address of one of the ranks.

    Attributes:
        host: Host of the address.
        port: Port of the address.
        secret: Bytes that only the ranks know.
        rank: The number of this rank.
        size: The number of ranks.
        timeout: Seconds to wait for ranks that aren't busy, and for the place.
        nodes: The ranks of each node, if one rank per node reads.
        presence: The answers to ranks that wait for this one; None if it gives none.
    """

    host: str
    port: int
    secret: bytes
    rank: int
    size: int
    timeout: float
    nodes: Nodes = ()
    presence: Presence | None = None

    @property
    def role(self) -> Role:
        return role_of(self.rank, self.size, self.nodes)

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.size}>"  # without the secret

    def join(self, told: Mapping[str, Any], reach: Reach, look: Callable[[], None]) -> Mesh:
        equal = dict(told)
        own = equal.pop(SHARDS, ())
        joining = _Joining(self, {"told": equal, "reach": reach, "shards": own})
        try:
            return joining.wait(look)
        except PipelineError:
            raise
        except (OSError, ValueError) as error:
            raise PipelineError(f"shared: ranks can't be connected: {error}") from error
        finally:
            joining.end()

    def leave(self) -> None:
        """Nothing: the place is there for all runs."""


class _Joining:
    """One rank joining: threads connect it to its peers, so that `wait` never blocks for long."""

    def __init__(self, meeting: SocketMeeting, told: dict[str, Any]) -> None:
        """Start to connect to the meeting place."""
        self._meeting, self._told = meeting, told
        self._changed = threading.Condition()
        self._in_use = set[socket.socket]()  # by the thread that calls others, which closes them
        self._door: Door | None = None
        self._answer: dict[str, Any] = {}
        self._peers: dict[int, socket.socket] = {}
        self._lost: dict[int, str] = {}  # peers that can't be reached, and why
        self._error: Exception | None = None
        self._is_over = False
        self._left = Countdown(meeting.timeout + LATE)  # again and again, while the place is there
        begin(self._come)

    def wait(self, look: Callable[[], None]) -> Mesh:
        """Wait until this rank is connected to all of its peers."""
        rank, timeout, role = self._meeting.rank, self._meeting.timeout, self._meeting.role
        try:
            self._wait_for(lambda: bool(self._answer), look)
        except (ConnectionError, TimeoutError) as error:
            text = f"shared: rank 0, where ranks meet, has ended or can't be reached: {error}"
            raise RankMissing(text, [0]) from error
        if "missing" in self._answer:
            raise RankMissing(self._answer["error"], self._answer["missing"])
        if "error" in self._answer:
            raise PipelineError(self._answer["error"])
        peers, late = role.peers(rank), Countdown(_GOODBYE)

        def look_late() -> None:
            left = late.left()
            try:
                look()
            except Exception:  # this rank leaves; the others count on it already
                if not left:
                    raise

        def is_known() -> bool:
            return len(self._peers) + len(self._lost) == len(peers)

        self._left = Countdown(timeout - BEAT)  # so that connected peers don't miss this rank too
        with suppress(TimeoutError):
            self._wait_for(is_known, look_late)
        with self._changed:
            found, self._peers = self._peers, {}
            lost = {each: _unreached("timed out") for each in peers if each not in found}
        reach = Reach(*self._answer["reach"])
        return Mesh(rank, role.makers, reach, found, {**lost, **self._lost})

    def _wait_for(self, happens: Callable[[], bool], look: Callable[[], None]) -> None:
        while True:
            look()
            with self._changed:
                self._changed.wait_for(lambda: happens() or self._error, _TICK)
                if happens():
                    return
                if self._error is not None:
                    raise self._error
            if not self._left.left():
                raise TimeoutError("timed out")

    def end(self) -> None:
        """Close all connections that no link uses."""
        with self._changed:
            self._is_over = True
            peers, in_use = [*self._peers.values()], [*self._in_use]
        for sock in in_use:
            hang_up(sock)
        for sock in peers:
            sock.close()
        if self._door is not None:
            self._door.close()

    # In threads.

    def _come(self) -> None:
        """Announce this rank at the meeting place, then connect to the peers before it."""
        try:
            place = self._connected((self._meeting.host, self._meeting.port))
            here = place.getsockname()[0]  # the interface on which the others reach this one
            address = here, self._opened_door(here).port
            rank, size = self._meeting.rank, self._meeting.size
            send_json(place, {"rank": rank, "size": size, "address": address, **self._told})
            while read_exactly(place, 1) == WAIT:
                self._left = Countdown(self._meeting.timeout + LATE)
            answer = read_json(place)
            with self._changed:
                self._answer = answer
                self._changed.notify_all()
            if "addresses" in answer:
                self._call_others(answer["addresses"])
        except Exception as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
        finally:
            for sock in self._in_use:
                sock.close()

    def _call_others(self, addresses: list[list[Any]]) -> None:
        here, role = self._meeting.rank, self._meeting.role
        for rank in [each for each in role.peers(here) if each < here]:
            host, port = addresses[rank]
            try:
                peer = self._connected((host, port))
                send_json(peer, here)
            except OSError as error:
                with self._changed:
                    self._lost[rank] = _unreached(error)
                    self._changed.notify_all()
            else:
                self._enter(peer, rank)

    def _connected(self, address: tuple[str, int]) -> socket.socket:
        """Return a proved connection to an address."""
        sock = ours(socket.create_connection(address, self._meeting.timeout))
        with self._changed:
            self._in_use.add(sock)
            if self._is_over:
                raise ConnectionAbortedError("nobody waits any more")
        sock.settimeout(None)  # whoever waits hangs up in time
        prove(sock, self._meeting.secret, calls=True)
        return sock

    def _opened_door(self, host: str) -> Door:
        door = Door(host, self._meeting.secret, self._meeting.timeout, self._enter)
        with self._changed:
            self._door = door
        if self._is_over:
            door.close()
        return door

    def _enter(self, peer: socket.socket, rank: int) -> None:
        """Keep the connection to a peer."""
        with self._changed:
            self._in_use.discard(peer)
            if not self._is_over:
                self._peers[rank] = peer
                self._changed.notify_all()
                return
        peer.close()


def _unreached(why: object) -> str:
    return f"came, but can't be reached: {why}"
