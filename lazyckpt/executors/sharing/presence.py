"""The presence of ranks: while others wait for one, its process is asked whether it is busy."""

from __future__ import annotations

import socket
from collections.abc import Hashable, Iterator
from contextlib import suppress
from time import monotonic
from typing import Any

from lazyckpt.core.flow import Chunks
from lazyckpt.errors import PipelineError
from lazyckpt.executors.sharing.door import begin, hang_up
from lazyckpt.executors.sharing.wire import ours, prove, send_json

_WORKS, _WAITS, _REWINDS = b"w", b"i", b"r"
_IDLE = 60  # seconds without a message until the system sends one
_SILENT = 5.0  # seconds without an answer after which a rank may be stopped, or cut off


class Presence:
    """This process, as the place where ranks meet knows it.

    Between runs nothing else connects a rank to the others, and it may save for an hour. So ranks
    that wait for it ask what it does.

    Attributes:
        waiting: The chunks of runs that this process waits for.
        unfinished: The names of runs that have begun, and not come to their end.
    """

    def __init__(self, address: tuple[str, int], secret: bytes, rank: int, timeout: float) -> None:
        """Connect to the place, in a thread that then answers.

        Args:
            address: The host and the port of the place.
            secret: Bytes that only the ranks know.
            rank: The number of this rank.
            timeout: Seconds to connect.
        """
        self.waiting = set[_WatchedChunks]()
        self.unfinished = set[Hashable]()
        self._socket: socket.socket | None = None
        self._is_closed = False
        begin(self._answer, address, secret, rank, timeout)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # another process has none

    def watch(self, name: Hashable, chunks: Chunks[Any]) -> Chunks[Any]:
        """Return the chunks of a run; the place is told if this process waits for one of them."""
        return _WatchedChunks(name, chunks, self)

    def close(self) -> None:
        """Disconnect: this rank comes to no meeting any more. Idempotent."""
        self._is_closed = True
        if self._socket is not None:
            hang_up(self._socket)

    def _answer(self, address: tuple[str, int], secret: bytes, rank: int, timeout: float) -> None:
        with (
            suppress(OSError, PipelineError),  # the place is gone, as the next run finds out
            ours(socket.create_connection(address, timeout)) as sock,
        ):
            self._socket = sock
            _keep_alive(sock)
            prove(sock, secret, calls=True)
            send_json(sock, {"present": rank})
            sock.settimeout(None)
            while not self._is_closed and sock.recv(1):
                waiting = tuple(self.waiting)
                rewinds = any(each.rewinds for each in waiting)
                sock.sendall(_REWINDS if rewinds else _WAITS if waiting else _WORKS)


def _keep_alive(sock: socket.socket) -> None:
    """Keep routers from dropping a connection that is used once in hours."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE)


class _WatchedChunks:
    """The chunks of a run, and whether this process waits for one.

    Attributes:
        rewinds: Whether an earlier run of the same name was left before its end.
    """

    def __init__(self, name: Hashable, chunks: Chunks[Any], presence: Presence) -> None:
        self._name, self._chunks, self._presence = name, chunks, presence
        self._has_begun = self.rewinds = False
        self.end_chunk, self.close = chunks.end_chunk, chunks.close

    def next_chunk(self) -> Iterator[Any] | None:
        waiting, unfinished = self._presence.waiting, self._presence.unfinished
        if not self._has_begun:
            self._has_begun, self.rewinds = True, self._name in unfinished
            unfinished.add(self._name)
        waiting.add(self)
        try:
            found = self._chunks.next_chunk()
        finally:
            waiting.discard(self)
        if found is None:
            unfinished.discard(self._name)
        return found


class Present:
    """The presence of a rank, at the place where ranks meet.

    Attributes:
        is_gone: Whether the process of the rank has ended, or has dropped its executor.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Take its connection over."""
        sock.setblocking(False)
        self._socket, self._does, self._heard = sock, _WORKS, monotonic()
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

    @property
    def is_busy(self) -> bool:
        """Whether it answers, and waits for no item itself: it trains, compiles or saves."""
        answers = not self.is_gone and monotonic() - self._heard < _SILENT
        return answers and self._does == _WORKS

    @property
    def rewinds(self) -> bool:
        """Whether it waits in a run that it has begun once more, before its end."""
        return not self.is_gone and self._does == _REWINDS

    def close(self) -> None:
        self.is_gone = True
        self._socket.close()
