"""The presence of ranks: while others wait for one, its process is asked whether it is busy."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic
from typing import Any

from lazyckpt.core.flow import Chunks, Position
from lazyckpt.errors import PipelineError
from lazyckpt.executors.sharing.door import begin, hang_up
from lazyckpt.executors.sharing.wire import ours, prove, send_json

WORKS, WAITS, REWINDS = b"w", b"i", b"r"
"""Answers of a process: it trains or saves; waits for an item; or for one after a rewind."""

_IDLE = 60  # seconds without a message until the system sends one
_AGAIN = 2.0  # seconds until the next attempt to connect


class Presence:
    """This process, as the place where ranks meet knows it.

    Between runs nothing else connects a rank to the others, and it may save for an hour. So ranks
    that wait for it ask what it does.

    Attributes:
        waiting: The chunks of runs that this process waits for.
    """

    def __init__(self, address: tuple[str, int], secret: bytes, rank: int, timeout: float) -> None:
        """Connect to the place, in a thread that then answers.

        Args:
            address: The host and the port of the place.
            secret: Bytes that only the ranks know.
            rank: The number of this rank.
            timeout: Seconds to connect.
        """
        self.waiting = set[_MetChunks]()
        self._address, self._secret, self._rank, self._timeout = address, secret, rank, timeout
        self._socket: socket.socket | None = None
        self._closed = threading.Event()
        begin(self._stay)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # another process has none

    def close(self) -> None:
        """Disconnect: this rank comes to no meeting any more. Idempotent."""
        self._closed.set()
        if self._socket is not None:
            hang_up(self._socket)

    def _stay(self) -> None:
        """Stay connected, whatever the network or a call that holds the GIL does."""
        while not self._closed.is_set():
            with suppress(OSError, PipelineError):
                self._connect()
            self._closed.wait(_AGAIN)

    def _connect(self) -> None:
        with ours(socket.create_connection(self._address, self._timeout)) as sock:
            self._socket = sock
            _keep_alive(sock)
            prove(sock, self._secret, calls=True)
            send_json(sock, {"present": self._rank})
            sock.settimeout(None)
            while not self._closed.is_set() and sock.recv(1):
                waiting = tuple(self.waiting)
                rewinds = any(each.rewinds for each in waiting)
                sock.sendall(REWINDS if rewinds else WAITS if waiting else WORKS)


def _keep_alive(sock: socket.socket) -> None:
    """Keep routers from dropping a connection that is used once in hours."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE)


class MetFlows:
    """The flows of one session, before whose first items ranks meet.

    Attributes:
        waiting: The chunks that this process waits for, of all sessions.
        agree: Called with the position before the first item, until it succeeds; None if no rank
            has to agree.
        is_unfinished: Whether the last flow has yielded items, and not come to its end.
    """

    def __init__(
        self, presence: Presence | None, agree: Callable[[Position], None] | None = None
    ) -> None:
        self.waiting = set() if presence is None else presence.waiting
        self.agree, self.is_unfinished = agree, False

    def __call__(self, chunks: Chunks[Any], position: Position) -> Chunks[Any]:
        """Return the chunks of a flow in place of its own."""
        return _MetChunks(self, chunks, position)


class _MetChunks:
    """The chunks of a flow; it is noted while this process waits for one.

    Attributes:
        rewinds: Whether an earlier flow of the session was left before its end.
    """

    def __init__(self, flows: MetFlows, chunks: Chunks[Any], position: Position) -> None:
        self._flows, self._chunks, self._position = flows, chunks, position
        self.rewinds = flows.is_unfinished
        self.end_chunk, self.close = chunks.end_chunk, chunks.close

    def next_chunk(self) -> Iterator[Any] | None:
        flows = self._flows
        flows.waiting.add(self)
        try:
            if flows.agree is not None:
                flows.agree(self._position)
                flows.agree = None
            found = self._chunks.next_chunk()
        finally:
            flows.waiting.discard(self)
        flows.is_unfinished = found is not None
        return found


class Present:
    """The presence of a rank, at the place where ranks meet.

    Attributes:
        is_gone: Whether the process of the rank has ended, or has dropped its executor.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Take its connection over."""
        sock.setblocking(False)
        self._socket, self._does, self._heard = sock, b"", 0.0
        self.is_gone = False

    def ask(self) -> None:
        """Take in what it has answered, and ask again; don't wait."""
        if self.is_gone:
            return
        try:
            while answers := self._socket.recv(1 << 12):
                self._does, self._heard = answers[-1:], monotonic()
            self.close()
        except BlockingIOError:
            with suppress(OSError):  # it is stopped, and was asked for hours; or it is just gone
                self._socket.send(b"?")
        except OSError:
            self.close()

    def does_since(self, time: float) -> bytes:
        """Return the last answer, if one came after a time."""
        return self._does if self._heard > time else b""

    def close(self) -> None:
        self.is_gone = True
        self._socket.close()
