"""Messages from a worker to its consumer: pickles in a pipe, large buffers next to it.

A message is pickled with protocol 5. Buffers of at least `LARGE` bytes stay out
of the pickle: the worker copies them into a slot of shared memory, where the
consumer uses them, or copies them if it keeps many. The memory has no name,
only a file descriptor that is sent through the pipe: whatever dies, nothing
stays behind.

The last byte of a frame says what it is. A pickle ends in "." and ignores what
follows it, so that one without large buffers is sent as it is:

    pickle                          a message
    pickle, sizes, slot, count, "S" a message; its buffers are in a slot
    pickle, sizes, 0, count, "P"    a message; its buffers follow in the pipe
    bytes a slot, slots, "M"        shared memory; its descriptor follows
    text, "W"                       a warning to the consumer's user
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import warnings
from collections.abc import Sequence
from mmap import PAGESIZE
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from lazyckpt.executors.ipc.reducers import reducers
from lazyckpt.executors.ipc.shared_memory import (
    SharedMemorySlots,
    UnmappedSlots,
    allocate,
    starts,
)

LARGE = 1 << 14  # bytes from which a slot is faster than a pickle

_MESSAGE, _IN_SLOT, _IN_PIPE, _MEMORY, _WARNING = b".SPMW"
_SHAPE = struct.Struct("=QI")


class Unreadable(Exception):
    """A message has come that can't be unpickled; `__cause__` is why."""


class Unwritable(Exception):
    """A message can't be pickled, and nothing was sent; `__cause__` is why."""


class Sender:
    """The worker's side, for one thread.

    Up to `slots` messages lie in shared memory, among them at most `LENT_SLOTS` that
    the consumer keeps. It is allocated for the first large buffer, again for a message
    larger than all before, and again once the consumer has forked with some in hand.
    With no slot free, or `shared` false, large buffers go through the pipe.
    """

    def __init__(
        self, connection: Connection[Any, Any], *, slots: int, shared: bool = True
    ) -> None:
        self._connection = connection
        self._slots = slots if shared and hasattr(socket, "send_fds") else 0
        self._memory: SharedMemorySlots | None = None
        self._pickler: _Pickler | None = None
        self._warned = False

    def send(self, message: Any) -> int:
        """Pickle and send a message. Waits while the pipe is full.

        Returns:
            How many bytes it has, large buffers included.

        Raises:
            Unwritable: It can't be pickled; nothing was sent.
        """
        pickler, self._pickler = self._pickler or _Pickler(), None
        try:
            frame, large = pickler.dump(message)
        except Exception as error:
            raise Unwritable(str(error)) from error
        if len(frame) < LARGE:  # else it stays as large as its largest message
            self._pickler = pickler
        if not large:
            self._connection.send_bytes(frame)
            return len(frame)
        sizes = [len(view) for view in large]
        *places, end = starts(sizes)
        slot = self._slot(end)
        kind = _IN_PIPE if slot is None else _IN_SLOT
        frame += struct.pack(f"={len(sizes)}QIIB", *sizes, slot or 0, len(sizes), kind)
        if slot is None:
            self._connection.send_bytes(frame)
            for view in large:
                self._connection.send_bytes(view)
        else:
            assert self._memory is not None
            place = self._memory[slot]
            for view, start, size in zip(large, places, sizes, strict=True):
                place[start : start + size] = view
            self._connection.send_bytes(frame)
        return len(frame) + sum(sizes)

    def close(self) -> None:
        """Release the shared memory; the consumer can still read what was sent."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _slot(self, size: int) -> int | None:
        """A free slot, of new memory if it has to be larger; None if there is none."""
        if not self._slots:
            return None
        if self._memory is None or size > self._memory.size or self._memory.is_retired:
            size = max(size, self._memory.size if self._memory is not None else 0)
            size = 1 << (max(size, PAGESIZE) - 1).bit_length()  # pages not touched cost nothing
            try:
                file, memory = allocate(size, self._slots)
            except OSError as error:
                self._warn(f"no {self._slots} slots of {size:,} bytes of shared memory: {error}")
                self._slots = 0
                return None
            with file, _as_socket(self._connection) as pipe:
                self._connection.send_bytes(_SHAPE.pack(size, self._slots) + b"M")
                socket.send_fds(pipe, [b"M"], [file.fileno()])
            self.close()
            self._memory = memory
        slot = self._memory.take()
        if slot is None:
            self._warn(f"all {self._slots} slots of {self._memory.size:,} bytes are taken")
        return slot

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            text = f"{text}; arrays go through a pipe, which is slower"
            self._connection.send_bytes(text.encode() + b"W")


class Receiver:
    """The consumer's side of one sender, for one thread."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._memory: SharedMemorySlots | UnmappedSlots | None = None

    def receive(self) -> Any:
        """Wait for the next message. Its arrays are writable where they were before.

        Raises:
            EOFError: The sender is gone, and what it sent has been received.
            Unreadable: It can't be unpickled. After that, or a warning made an
                error, the next message can be received. A KeyboardInterrupt may
                leave half of one: close the connection then.
        """
        try:
            frame = self._connection.recv_bytes()
            buffers: Sequence[memoryview] = ()
            if frame[-1] != _MESSAGE:
                frame, buffers = self._with_buffers(frame)
        except OSError as error:
            if error.errno is None or isinstance(error, ConnectionError):
                raise EOFError("the sender is gone") from error
            raise
        try:
            return pickle.loads(frame, buffers=buffers)
        except Exception as error:
            raise Unreadable(str(error)) from error

    def close(self) -> None:
        """Release the shared memory: not the connection, and no array received."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _with_buffers(self, frame: bytes) -> tuple[bytes, Sequence[memoryview]]:
        """The next message, of which this is the first frame, and its large buffers."""
        while (kind := frame[-1]) not in (_IN_SLOT, _IN_PIPE):
            if kind == _MESSAGE:
                return frame, ()
            if kind == _MEMORY:
                self._map(*_SHAPE.unpack_from(frame))
            else:
                warnings.warn(frame[:-1].decode(), RuntimeWarning, stacklevel=3)
            frame = self._connection.recv_bytes()
        slot, count = struct.unpack_from("=II", frame, len(frame) - 9)
        sizes = struct.unpack_from(f"={count}Q", frame, len(frame) - 9 - 8 * count)
        if kind == _IN_PIPE:
            return frame, self._in_pipe(sizes)
        assert self._memory is not None
        return frame, self._memory.read(slot, sizes)

    def _in_pipe(self, sizes: Sequence[int]) -> list[memoryview]:
        buffers = [np.empty(size, np.uint8).data for size in sizes]
        for buffer in buffers:
            self._connection.recv_bytes_into(buffer)
        return buffers

    def _map(self, size: int, slots: int) -> None:
        with _as_socket(self._connection) as pipe:
            _, fds, _, _ = socket.recv_fds(pipe, 1, 1)
        if not fds:
            raise EOFError("the sender is gone, or this process has too many open files")
        memory: SharedMemorySlots | UnmappedSlots
        with open(fds[0], "r+b") as file:
            try:
                memory = SharedMemorySlots(file, size, slots)
            except OSError:  # a limit on the address space
                memory = UnmappedSlots(file, size, slots)
        self.close()  # all that came through it has been read
        self._memory = memory


class _Chunks(list[bytes]):
    """What a pickler writes to."""

    write = list.append


class _Pickler:
    """Kept from message to message: making one takes as long as pickling 100 ints.

    After an error it may not be used again.
    """

    def __init__(self) -> None:
        self._chunks = _Chunks()
        self._large = large = list[memoryview]()

        def small(buffer: pickle.PickleBuffer) -> bool:
            view = buffer.raw()
            if len(view) < LARGE:
                return True
            large.append(view)
            return False

        self._pickler = pickle.Pickler(self._chunks, 5, buffer_callback=small)

    def dump(self, message: Any) -> tuple[bytes, list[memoryview]]:
        """A pickle, and the buffers left out of it."""
        self._pickler.dispatch_table = reducers()
        self._pickler.dump(message)
        self._pickler.clear_memo()
        frame, large = b"".join(self._chunks), self._large.copy()
        self._chunks.clear()
        self._large.clear()
        return frame, large


def _as_socket(connection: Connection[Any, Any]) -> socket.socket:
    return socket.socket(fileno=os.dup(connection.fileno()))
