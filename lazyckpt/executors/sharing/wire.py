"""Sockets between processes that share a secret; both prove it before any other message."""

from __future__ import annotations

import hmac
import json
import os
import socket
import struct
import threading
from typing import Any
from weakref import ref

from lazyckpt.errors import PipelineError

WAIT, ANSWER = b".", b"!"
"""What the place where ranks meet sends each second to a rank that waits; and before an answer."""

_SIZE = struct.Struct("=I")
_NONCE = 32  # bytes
_MOST = 1 << 24  # bytes of a message

# No WeakSet: the error of a signal handler would be lost in its callback.
_ours: list[ref[socket.socket]] = []
_lock = threading.RLock()


def _close_copies() -> None:
    """Close what a forked child would keep open after the end of this process."""
    global _lock
    _lock = threading.RLock()
    for each in _ours:
        if (sock := each()) is not None:
            sock.close()
    _ours.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_copies)


def ours(sock: socket.socket) -> socket.socket:
    """Return a socket of this process, which children that it forks don't share."""
    with _lock:
        _ours[:] = [*(each for each in _ours if each() is not None), ref(sock)]
    return sock


def prove(sock: socket.socket, secret: bytes, *, calls: bool) -> None:
    """Prove to each other that both sides know the secret: each signs the other's challenge.

    Raises:
        PipelineError: The other side doesn't know it, or isn't one of ours.
    """
    mine, theirs = (b"caller", b"called") if calls else (b"called", b"caller")
    drawn = os.urandom(_NONCE)
    sock.sendall(drawn)
    got = read_exactly(sock, _NONCE)
    sock.sendall(_signed(secret, mine, got, drawn))
    if not hmac.compare_digest(read_exactly(sock, _NONCE), _signed(secret, theirs, drawn, got)):
        raise PipelineError("shared: a connection came from someone who doesn't know the secret")


def _signed(secret: bytes, who: bytes, drawn: bytes, answered: bytes) -> bytes:
    return hmac.digest(secret, who + drawn + answered, "sha256")


def read_exactly(sock: socket.socket, count: int) -> bytes:
    """Read `count` bytes; raise a ConnectionError if there are fewer."""
    found = bytearray()
    while len(found) < count:
        part = sock.recv(count - len(found))
        if not part:
            raise ConnectionError("the connection was closed")
        found += part
    return bytes(found)


def send_json(sock: socket.socket, content: Any) -> None:
    """Send a value that JSON can represent."""
    data = json.dumps(content).encode()
    sock.sendall(_SIZE.pack(len(data)) + data)


def read_json(sock: socket.socket) -> Any:
    """Read a value sent by `send_json`."""
    (size,) = _SIZE.unpack(read_exactly(sock, _SIZE.size))
    if size > _MOST:
        raise ConnectionError(f"a message of {size:,} bytes")
    return json.loads(read_exactly(sock, size))
