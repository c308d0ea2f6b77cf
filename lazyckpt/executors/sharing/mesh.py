"""A link of sockets, one per other rank, and one thread that serves them all."""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from time import monotonic

from lazyckpt.executors.pools.progress import consumer_of_this
from lazyckpt.executors.sharing.link import Leave, Reach, Receive

_SIZE = struct.Struct("=Q")
_ALIVE, _LEAVES = 0, (1 << 64) - 1  # in place of a size
BEAT = 1.0  # seconds between two messages that this rank is alive
LEAST_PATIENCE = 2 * BEAT  # seconds to wait for one
_LINGER = 2.0  # seconds without progress after which a rank that closes sends no more
_PARTS = 64  # of messages, to send in one call
_AT_ONCE = 1 << 20  # bytes to read from one rank before others have their turn


class _Peer:
    """Another rank.

    Attributes:
        outbox: Messages to send.
        sent: The number of bytes that were sent.
        heard: The time of the last message from it.
        has_left: Whether it has announced that it leaves, or is lost.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.outbox: deque[memoryview] = deque()
        self.sent = 0
        self.heard = monotonic()
        self.has_left = False
        self._head = bytearray(_SIZE.size)
        self._body: bytearray | None = None
        self._wanted = memoryview(self._head)  # the memory to fill next

    def put(self, size: int, message: bytes = b"") -> None:
        self.outbox.append(memoryview(_SIZE.pack(size)))
        if message:
            self.outbox.append(memoryview(message))

    def send(self) -> None:
        """Send as much as fits; raise BlockingIOError if there is no room left."""
        outbox = self.outbox
        while outbox:
            sent = self.sock.sendmsg([*islice(outbox, _PARTS)])
            self.sent += sent
            while outbox and sent >= len(outbox[0]):
                sent -= len(outbox.popleft())
            if sent:
                outbox[0] = outbox[0][sent:]

    def read(self) -> bytearray | int | None:
        """Read a message, or a sign in place of a size; return None if it is incomplete."""
        count = self.sock.recv_into(self._wanted)
        if not count:
            raise ConnectionError("its connection was closed")
        self.heard = monotonic()
        self._wanted = self._wanted[count:]
        if self._wanted:
            return None
        body = self._body
        if body is None:
            (size,) = _SIZE.unpack(self._head)
            if size not in (_ALIVE, _LEAVES):
                self._body = bytearray(size)
                self._wanted = memoryview(self._body)
                return None
        self._body, self._wanted = None, memoryview(self._head)
        return size if body is None else body


def _lost_peer() -> _Peer:
    """Return a peer in place of one that can't be reached."""
    with socket.socket() as sock:
        found = _Peer(sock)
    found.has_left = True
    return found


class Mesh:
    """Sockets between this rank and each of its peers."""

    def __init__(
        self,
        rank: int,
        makers: Sequence[int],
        reach: Reach,
        sockets: Mapping[int, socket.socket],
        lost: Mapping[int, str] = {},
    ) -> None:
        """Take connections over.

        Args:
            rank: The number of this rank.
            makers: The ranks that do the common tasks.
            reach: The least reach of all ranks.
            sockets: The connections, by rank.
            lost: The peers that can't be reached, and why.
        """
        self.rank, self.makers, self.reach, self._lost = rank, makers, reach, lost
        self._peers = {each: _Peer(sock) for each, sock in sockets.items()}
        self._peers |= {each: _lost_peer() for each in lost}
        self._lock = threading.Lock()  # of the outboxes
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        for each, sock in sockets.items():
            self._selector.register(sock, selectors.EVENT_READ, each)
        self._is_running = False
        self._ends: float | None = None  # when this closes, whatever is left
        self._sent = 0  # bytes, to all
        self._looked = monotonic()  # when the thread last looked for messages
        self._thread: threading.Thread | None = None
        self._receive: Receive
        self._leave: Leave

    def open(self, receive: Receive, leave: Leave) -> None:
        self._receive, self._leave = receive, leave
        self._thread = threading.Thread(target=self._run, name="lazyckpt-link", daemon=True)
        self._thread.start()

    def post(self, message: bytes) -> None:
        self._put([rank for rank in self.makers if rank != self.rank], message)

    def send(self, rank: int, message: bytes) -> None:
        self._put([rank], message)

    def _put(self, ranks: Sequence[int], message: bytes) -> None:
        """Send a message; what the sockets have no room for is left to the link's thread."""
        is_left = False
        with self._lock:
            for peer in map(self._peers.__getitem__, ranks):
                if peer.has_left:
                    continue
                is_behind = bool(peer.outbox)  # the thread knows
                peer.put(len(message), message)
                if not is_behind:
                    try:
                        peer.send()
                    except OSError:  # there is no room, or the thread will find out
                        is_left = True
        if is_left:
            self._awake()

    def silence(self, rank: int) -> float:
        return min(monotonic(), self._looked + BEAT) - self._peers[rank].heard

    def close(self) -> None:
        with self._lock:
            if self._ends is None:
                self._ends = monotonic() + _LINGER
                for peer in self._peers.values():
                    peer.put(_LEAVES)
        self._awake()
        self._run()  # if no thread does, as this was never opened, or the interpreter ends
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join()

    def _awake(self) -> None:
        with suppress(OSError):  # full, so that it wakes anyway; or closed
            self._wake.send(b"\0")

    def _run(self) -> None:
        with self._lock:
            if self._is_running:
                return
            self._is_running = True
        if self._ends is None:
            for rank, why in self._lost.items():
                self._leave(rank, why)
        next_beat = monotonic()
        while self._goes_on():
            if (now := monotonic()) - self._looked > 2 * BEAT:  # stopped, it could hear nobody
                for peer in self._peers.values():
                    peer.heard += now - self._looked - BEAT
            self._looked = now
            if now >= next_beat:
                next_beat = now + BEAT
                self._say_alive()
            for rank, peer in self._peers.items():
                self._send(rank, peer)
            for key, _ in self._selector.select(max(0.0, next_beat - monotonic())):
                if key.data is None:
                    with suppress(BlockingIOError):
                        self._woken.recv(1 << 12)
                else:
                    self._read(key.data, self._peers[key.data])
        self._close_sockets()

    def _goes_on(self) -> bool:
        if self._ends is None:
            return True
        sent = sum(each.sent for each in self._peers.values())
        if sent != self._sent:
            self._sent, self._ends = sent, monotonic() + _LINGER
        # Until the others have read what was sent, and hang up: to close first would lose it.
        return monotonic() < self._ends and not all(each.has_left for each in self._peers.values())

    def _say_alive(self) -> None:
        if self._ends is not None or _is_consumer_stopped():
            return
        with self._lock:
            for peer in self._peers.values():
                if not peer.outbox and not peer.has_left:
                    peer.put(_ALIVE)

    def _send(self, rank: int, peer: _Peer) -> None:
        if peer.has_left:
            return
        waits = False
        try:
            with self._lock:
                peer.send()
        except BlockingIOError:
            waits = True
        except OSError:  # `_read` finds that out too, after its last words: perhaps it has left
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if waits else 0)
        if self._selector.get_key(peer.sock).events != wanted:
            self._selector.modify(peer.sock, wanted, rank)

    def _read(self, rank: int, peer: _Peer) -> None:
        left = _AT_ONCE
        try:
            while left > 0 and not peer.has_left:
                found = peer.read()
                if isinstance(found, bytearray):
                    left -= len(found)
                    if self._ends is None:
                        self._receive(rank, memoryview(found))
                elif found == _LEAVES:
                    self._lose(rank, peer, "")
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(rank, peer, f"is lost: {error}")

    def _lose(self, rank: int, peer: _Peer, why: str) -> None:
        """Note that a rank is gone. Its messages have been read."""
        with self._lock:
            peer.has_left = True
            peer.outbox.clear()
        self._selector.unregister(peer.sock)
        peer.sock.close()
        if self._ends is None:
            self._leave(rank, why)

    def _close_sockets(self) -> None:
        for sock in (self._wake, self._woken, *(each.sock for each in self._peers.values())):
            sock.close()
        self._selector.close()


def _is_consumer_stopped() -> bool:
    """Return whether this process works for one that a signal such as SIGSTOP has stopped."""
    with suppress(OSError, IndexError):  # there is none, or no such file
        stat = Path(f"/proc/{consumer_of_this()}/stat").read_text("utf-8")
        return stat.rpartition(")")[2].split()[0] in "Tt"
    return False
