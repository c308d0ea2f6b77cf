"""Messages from a worker to its consumer: pickles in a pipe, large buffers next to it.

A message is pickled with protocol 5. Buffers of at least `LARGE` bytes stay out
of the pickle: the worker copies them into a slot of shared memory, where the
consumer uses them, or copies them if it keeps many. So does a pickle of at least
`LARGE_PICKLE` bytes, which is read there. The memory has no name, only a file
descriptor that is sent through the pipe: whatever dies, nothing stays behind.

A pickle ignores what follows it. The last byte of a frame says what it is:

    pickle, number, "N"                     a message
    pickle, sizes, slot, count, number, "S" a message; its buffers are in a slot
    sizes, slot, count, number, "A"         a message; its pickle and buffers are in a slot
    pickle, sizes, 0, count, number, "P"    a message; its buffers follow in the pipe
    bytes a slot, slots, "M"                shared memory; its descriptor follows
    text, "W"                               a warning to the consumer's user
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import warnings
from collections.abc import Iterable
from mmap import PAGESIZE
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import numpy as np

from lazyckpt.executors.ipc.frames import read_frame, write_frame
from lazyckpt.executors.ipc.reducers import reducers
from lazyckpt.executors.ipc.shared_memory import (
    SharedMemorySlots,
    UnmappedSlots,
    allocate,
    starts,
)

LARGE = 1 << 14  # bytes from which a slot is faster than a pickle
LARGE_PICKLE = 1 << 15  # bytes from which a slot takes no longer than the pipe; half, of 256 KiB

_PLAIN, _IN_SLOT, _ALL_IN_SLOT, _IN_PIPE, _MEMORY, _WARNING = b"NSAPMW"
_Pickle: TypeAlias = bytes | bytearray | memoryview

_SHAPE = struct.Struct("=QI")
_TAIL = struct.Struct("=qB")
_PLACE = struct.Struct("=II")


class Unreadable(Exception):
    """A message has come that can't be unpickled; `__cause__` is why."""


class Unwritable(Exception):
    """A message can't be pickled, and nothing was sent; `__cause__` is why."""


class Message:
    """A message as it has come.

    Attributes:
        number: What its sender has given it.
    """

    __slots__ = ("_buffers", "_pickled", "number")

    def __init__(self, number: int, pickled: _Pickle, buffers: Iterable[Any]) -> None:
        self.number = number
        self._pickled, self._buffers = pickled, buffers

    def open(self) -> Any:
        """Unpickle it. Its arrays are writable where they were before.

        Raises:
            Unreadable: It can't be unpickled.
        """
        try:
            return pickle.loads(self._pickled, buffers=self._buffers)
        except Exception as error:
            raise Unreadable(str(error)) from error


class Sender:
    """The worker's side, for one thread.

    Up to `slots` messages lie in shared memory, among them at most `LENT_SLOTS` that
    the consumer keeps. It is allocated for the first large one, again for a message
    larger than all before, and again once the consumer has forked with some in hand.
    With no slot free, or `shared` false, what is large goes through the pipe.
    """

    def __init__(
        self, connection: Connection[Any, Any], *, slots: int, shared: bool = True
    ) -> None:
        self._connection = connection
        self._slots = slots if shared and hasattr(socket, "send_fds") else 0
        self._memory: SharedMemorySlots | None = None
        self._pickler: _Pickler | None = None
        self._warned = False

    def send(self, message: Any, number: int = 0) -> int:
        """Pickle and send a message. Waits while the pipe is full.

        Args:
            message: What to pickle.
            number: An int64 that goes with it, and can be read before that is unpickled.

        Returns:
            How many bytes it has, large buffers included.

        Raises:
            Unwritable: It can't be pickled; nothing was sent.
        """
        pickler, self._pickler = self._pickler or _Pickler(), None
        try:
            pickled, large = pickler.dump(message)
        except Exception as error:
            raise Unwritable(str(error)) from error
        size = sum(map(len, pickled))
        if size < LARGE:  # else it stays as large as its largest message
            self._pickler = pickler
        buffers: list[list[Any]] = [[view] for view in large]
        contents = [pickled, *buffers] if size >= LARGE_PICKLE else buffers
        slot = self._fill_slot(contents) if contents else None
        if slot is None:
            kind, frame, contents = _IN_PIPE if large else _PLAIN, pickled, buffers
        else:
            kind, frame = (_IN_SLOT, pickled) if contents is buffers else (_ALL_IN_SLOT, [])
        if contents:
            sizes = [sum(map(len, each)) for each in contents]
            frame += struct.pack(f"={len(sizes)}Q", *sizes), _PLACE.pack(slot or 0, len(sizes))
        frame.append(_TAIL.pack(number, kind))
        write_frame(self._connection, frame)
        if kind == _IN_PIPE:
            for view in large:
                self._connection.send_bytes(view)
        return size + sum(map(len, large))

    def _fill_slot(self, contents: list[list[Any]]) -> int | None:
        """Copy buffers, each given in parts, into a slot; None if there is none."""
        *places, end = starts([sum(map(len, each)) for each in contents])
        if (slot := self._slot(end)) is None:
            return None
        assert self._memory is not None
        memory = self._memory[slot]
        for place, buffer in zip(places, contents, strict=True):
            for part in buffer:
                memory[place : place + len(part)] = part
                place += len(part)
        return slot

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
                write_frame(self._connection, [_SHAPE.pack(size, self._slots), b"M"])
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
            text = f"{text}; what is large goes through a pipe, which is slower"
            write_frame(self._connection, [text.encode(), b"W"])


class Receiver:
    """The consumer's side of one sender, for one thread."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._memory: SharedMemorySlots | UnmappedSlots | None = None

    def receive(self) -> Message:
        """Wait for the next message.

        Raises:
            EOFError: The sender is gone, and what it sent has been received.
            RuntimeWarning: One of the sender's, made an error. The next message can be
                received. A KeyboardInterrupt may leave half of one: close the
                connection then.
        """
        try:
            while (kind := (frame := read_frame(self._connection))[-1]) in (_MEMORY, _WARNING):
                if kind == _MEMORY:
                    self._map(*_SHAPE.unpack_from(frame))
                else:
                    warnings.warn(frame[:-1].decode(), RuntimeWarning, stacklevel=3)
            number, _ = _TAIL.unpack_from(frame, end := len(frame) - _TAIL.size)
            if kind == _PLAIN:
                return Message(number, frame, ())
            return Message(number, *self._contents(frame, end, kind))
        except OSError as error:
            if error.errno is None or isinstance(error, ConnectionError):
                raise EOFError("the sender is gone") from error
            raise

    def close(self) -> None:
        """Release the shared memory: not the connection, and no array received."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _contents(self, frame: _Pickle, end: int, kind: int) -> tuple[_Pickle, Iterable[Any]]:
        """The pickle and the large buffers of a message, whose sizes and slot end there."""
        slot, count = _PLACE.unpack_from(frame, end := end - _PLACE.size)
        sizes = struct.unpack_from(f"={count}Q", frame, end - 8 * count)
        if kind == _IN_PIPE:
            buffers = [np.empty(size, np.uint8).data for size in sizes]
            for buffer in buffers:
                self._connection.recv_bytes_into(buffer)
            return frame, buffers
        if (memory := self._memory) is None:  # closed by a signal's handler meanwhile
            raise EOFError("the receiver is closed")
        if kind == _ALL_IN_SLOT:
            return memory.read_first(slot, sizes)
        return frame, memory.read(slot, sizes)

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

    def dump(self, message: Any) -> tuple[list[bytes], list[memoryview]]:
        """A pickle in parts, and the buffers left out of it."""
        self._pickler.dispatch_table = reducers()
        self._pickler.dump(message)
        self._pickler.clear_memo()
        parts, large = self._chunks[:], self._large[:]
        self._chunks.clear()
        self._large.clear()
        return parts, large


def _as_socket(connection: Connection[Any, Any]) -> socket.socket:
    return socket.socket(fileno=os.dup(connection.fileno()))
