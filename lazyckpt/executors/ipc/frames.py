"""Frames of bytes in a pipe: as `Connection` has them, at a third of what it takes for each."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

_HEAD = struct.Struct("!i")
_LONG = struct.Struct("!iQ")
_MOST = 0x7FFFFFFF  # bytes that the short head can say


def write_frame(connection: Connection[Any, Any], parts: Sequence[bytes]) -> int:
    """Write parts as one frame, and return its size. Waits while the pipe is full."""
    size = sum(map(len, parts))
    head = _HEAD.pack(size) if size <= _MOST else _LONG.pack(-1, size)
    frame, fd = b"".join([head, *parts]), connection.fileno()
    written = os.write(fd, frame)
    if written < len(frame):
        left = memoryview(frame)[written:]
        while left:
            left = left[os.write(fd, left) :]
    return size


def read_frame(connection: Connection[Any, Any]) -> bytes | bytearray:
    """Wait for the next frame.

    Raises:
        EOFError: The other end is closed, and there is no whole frame left.
    """
    fd = connection.fileno()
    (size,) = _HEAD.unpack(_read(fd, _HEAD.size))
    if size < 0:
        (size,) = struct.unpack("!Q", _read(fd, 8))
    return _read(fd, size)


def _read(fd: int, size: int) -> bytes | bytearray:
    found = os.read(fd, size)
    if len(found) == size:
        return found
    whole = bytearray(size)
    whole[: len(found)] = found
    left = memoryview(whole)[len(found) :]
    while left:
        count = os.readv(fd, [left]) if found else 0
        if not count:
            raise EOFError("the other end is closed")
        left = left[count:]
    return whole
