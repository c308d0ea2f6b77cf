"""Messages from a worker to its consumer: pickles in a pipe, large buffers next to it.

A message is pickled with protocol 5. Buffers of at least `LARGE` bytes stay out
of the pickle: the worker copies them into a slot of shared memory, where the
consumer uses them, or copies them if it keeps many. So does a pickle of at least
`LARGE_PICKLE` bytes, which is read there. The memory has no name, only a file
descriptor that is sent through the pipe: whatever dies, nothing stays behind.

Before each frame is its size. A pickle ignores what follows it, and the last byte of a
frame says what it is:

    pickle, sizes, slot, count, number, "N" a message; its large buffers are in a slot
    sizes, slot, count, number, "N"         a message; its pickle and large buffers are in a slot
    pickle, sizes, -1, count, number, "N"   a message; its large buffers follow in the pipe
    bytes a slot, slots, "M"                shared memory; its descriptor follows
    text, "W"                               a warning to the consumer's user
"""

from __future__ import annotations

import errno
import os
import pickle
import select
import socket
import struct
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from mmap import PAGESIZE
from multiprocessing.connection import Connection
from typing import IO, Any, TypeAlias

import numpy as np

from lazyckpt.executors.ipc.pickler import LARGE, Pickler
from lazyckpt.executors.ipc.shared_memory import (
    SharedMemorySlots,
    UnmappedSlots,
    allocate,
    starts,
)

LARGE_PICKLE = 1 << 15  # bytes from which a slot takes no longer than the pipe; half, of 256 KiB

_MESSAGE, _MEMORY, _WARNING = b"NMW"
_PIPE = -1  # in place of a slot
_Pickle: TypeAlias = bytes | bytearray | memoryview

_SIZE = struct.Struct("=Q")
_SHAPE = struct.Struct("=QI")
_TAIL = struct.Struct("=iIqB")


class Unwritable(Exception):
    """A message can't be pickled, and nothing was sent.

    Attributes:
        reason: Why.
    """

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Message:
    """A message as it has come.

    Attributes:
        number: What its sender has given it.
    """

    __slots__ = ("_find_buffers", "_pickled", "number")

    def __init__(
        self, number: int, pickled: _Pickle, find_buffers: Callable[[], Iterable[Any]]
    ) -> None:
        self.number = number
        self._pickled, self._find_buffers = pickled, find_buffers

    def open(self) -> Any:
        """Unpickle it. Its arrays are writable if they were before."""
        return pickle.loads(self._pickled, buffers=self._find_buffers())


class Sender:
    """The side of one thread that sends.

    If the pipe doesn't block, what it has no room for stays in an outbox until `flush`: so
    two sides that both send can't wait for each other.

    Up to `slots` messages lie in shared memory, among them at most `LENT_SLOTS` that
    the consumer keeps. It is allocated for the first large one, again for a message
    larger than all before, and again once the consumer has forked with some in hand.
    With no slot free, or `shared` false, what is large goes through the pipe.
    """

    def __init__(
        self, connection: Connection[Any, Any], *, slots: int, shared: bool = True
    ) -> None:
        self._connection = connection
        self._outbox: deque[tuple[Any, IO[bytes] | None]] = deque()  # bytes, a file that goes along
        self._slots = slots if shared and hasattr(socket, "send_fds") else 0
        self._memory: SharedMemorySlots | None = None
        self._pickler: Pickler | None = None
        self._warned = False

    def send(self, message: Any, number: int = 0) -> int:
        """Pickle and send a message. Waits while the pipe is full, if that blocks.

        Args:
            message: What to pickle.
            number: An int64 that goes with it, and can be read before that is unpickled.

        Returns:
            How many bytes it has, large buffers included.

        Raises:
            Unwritable: It can't be pickled; nothing was sent.
        """
        pickler, self._pickler = self._pickler or Pickler(), None
        try:
            pickled, large = pickler.dump(message)
        except Exception as error:
            raise Unwritable(error) from error
        size = sum(map(len, pickled))
        if size < LARGE:  # else it stays as large as its largest message
            self._pickler = pickler
        buffers: list[list[Any]] = [[view] for view in large]
        contents = [pickled, *buffers] if size >= LARGE_PICKLE else buffers
        slot = self._fill_slot(contents) if contents else _PIPE
        if slot == _PIPE:
            contents = buffers
        sizes = [sum(map(len, each)) for each in contents]
        self._put(
            [
                *(pickled if len(contents) == len(large) else ()),
                struct.pack(f"={len(sizes)}Q", *sizes),
                _TAIL.pack(slot, len(sizes), number, _MESSAGE),
            ]
        )
        if slot == _PIPE:
            self._outbox.extend((view, None) for view in large)
        self.flush()
        if slot == _PIPE and large:  # which may be written to before the rest of it is sent
            self._outbox = deque((bytes(view), file) for view, file in self._outbox)
        return size + sum(map(len, large))

    @property
    def has_more(self) -> bool:
        """Whether something waits for the pipe to have room."""
        return bool(self._outbox)

    def flush(self) -> None:
        """Send what waits, as far as the pipe has room."""
        outbox, fd = self._outbox, self._connection.fileno()
        while outbox:
            data, file = outbox[0]
            try:
                if file is None:
                    sent = os.write(fd, data)
                else:
                    with _as_socket(self._connection) as pipe:
                        sent = socket.send_fds(pipe, [data], [file.fileno()])
                    file.close()
            except BlockingIOError:
                return
            except OSError:  # nobody will read it
                self.close()
                raise
            if sent == len(data):
                outbox.popleft()
            else:
                outbox[0] = memoryview(data)[sent:], None

    def _put(self, frame: list[bytes]) -> None:
        self._outbox.append((b"".join([_SIZE.pack(sum(map(len, frame))), *frame]), None))

    def _fill_slot(self, contents: list[list[Any]]) -> int:
        """Copy buffers, each given in parts, into a slot; return it, or `_PIPE` for none."""
        *places, end = starts([sum(map(len, each)) for each in contents])
        if (slot := self._slot(end)) is None:
            return _PIPE
        assert self._memory is not None
        memory = self._memory[slot]
        for place, buffer in zip(places, contents, strict=True):
            for part in buffer:
                memory[place : place + len(part)] = part
                place += len(part)
        return slot

    def close(self) -> None:
        """Release the shared memory; the consumer can still read what was sent."""
        for _, file in self._outbox:
            if file is not None:
                file.close()
        self._outbox.clear()
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
            self._put([_SHAPE.pack(size, self._slots), b"M"])
            self._outbox.append((b"M", file))
            if self._memory is not None:
                self._memory.close()
            self._memory = memory
        slot = self._memory.take()
        if slot is None:
            self._warn(f"all {self._slots} slots of {self._memory.size:,} bytes are taken")
        return slot

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            text = f"{text}; what is large goes through a pipe, which is slower"
            self._put([text.encode(), b"W"])


class Receiver:
    """The consumer's side of one sender, for one thread."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._memory: SharedMemorySlots | UnmappedSlots | None = None

    def receive(self) -> Message:
        """Wait for the next message; for errors see `receive_ready`."""
        while (message := self.receive_ready()) is None:
            poll(self._connection, None)
        return message

    def receive_ready(self) -> Message | None:
        """The next message if it has begun to come, or if the pipe blocks; else None.

        Raises:
            EOFError: The sender is gone, and what it sent has been received.
            OSError: This process has too many open files.
            RuntimeWarning: One of the sender's, made an error. The next message can be
                received. A KeyboardInterrupt may leave half of one: close the
                connection then.
        """
        self.free_slots()
        try:
            while (frame := self._frame()) is not None and (kind := frame[-1]) != _MESSAGE:
                if kind == _MEMORY:
                    self._map(*_SHAPE.unpack_from(frame))
                else:
                    warnings.warn(frame[:-1].decode(), RuntimeWarning, stacklevel=3)
            if frame is None:
                return None
            slot, count, number, _ = _TAIL.unpack_from(frame, end := len(frame) - _TAIL.size)
            sizes = struct.unpack_from(f"={count}Q", frame, end := end - 8 * count)
            if slot == _PIPE:
                buffers = [np.empty(size, np.uint8).data for size in sizes]
                for buffer in buffers:
                    self._read_into(buffer)
                return Message(number, frame, lambda: buffers)
            if (memory := self._memory) is None:  # closed by a signal's handler meanwhile
                raise EOFError("the receiver is closed")
            parts = memory.read(slot, sizes)
            pickled = frame if end else memoryview(parts.pop(0))
            return Message(number, pickled, partial(memory.lend, slot, parts))
        except OSError as error:
            if error.errno is None or isinstance(error, ConnectionError):
                raise EOFError("the sender is gone") from error
            raise

    def free_slots(self) -> None:
        """Let the sender have the slots of messages that nobody has any more."""
        if self._memory is not None:
            self._memory.free_dropped()

    def close(self) -> None:
        """Release the shared memory: not the connection, and no array received."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _frame(self) -> bytearray | None:
        head = bytearray(_SIZE.size)
        if not self._read_into(head, waits=False):
            return None
        frame = bytearray(_SIZE.unpack(head)[0])
        self._read_into(frame)
        return frame

    def _read_into(self, buffer: Any, *, waits: bool = True) -> bool:
        """Fill a buffer; unless this waits, return False if nothing of it is there."""
        left, fd = memoryview(buffer), self._connection.fileno()
        while left:
            try:
                count = os.readv(fd, [left])
            except BlockingIOError:
                if not waits and len(left) == len(buffer):
                    return False
                poll(fd, None)
                continue
            if not count:
                raise EOFError("the sender is gone")
            left = left[count:]
        return True

    def _map(self, size: int, slots: int) -> None:
        poll(self._connection, None)
        with _as_socket(self._connection) as pipe:
            found, fds, _, _ = socket.recv_fds(pipe, 1, 1)
        if not found:
            raise EOFError("the sender is gone")
        if not fds:  # the kernel drops one that there is no room for
            raise too_many_files()
        memory: SharedMemorySlots | UnmappedSlots
        with open(fds[0], "r+b") as file:
            try:
                memory = SharedMemorySlots(file, size, slots)
            except OSError:  # a limit on the address space
                memory = UnmappedSlots(file, size, slots)
        self.close()  # all that came through it has been read
        self._memory = memory


def too_many_files() -> OSError:
    """The error of a process that can open no more, with what to do about it."""
    return OSError(
        errno.EMFILE,
        f"{os.strerror(errno.EMFILE)}: each worker needs a few; raise the limit of this process "
        "(ulimit -n), or ask for fewer workers",
    )


def _as_socket(connection: Connection[Any, Any]) -> socket.socket:
    """The pipe as a socket; its file descriptor is another, which is closed by itself."""
    return socket.socket(fileno=os.dup(connection.fileno()))


def hang_up(connection: Connection[Any, Any]) -> None:
    """Have whoever waits at either end learn that it is over."""
    with _as_socket(connection) as pipe:
        pipe.shutdown(socket.SHUT_RDWR)


def poll(pipe: Connection[Any, Any] | int, seconds: float | None) -> int:
    """Wait until there is something to read, or the end; the event, or 0 for none.

    A tenth of what `Connection.poll` costs.
    """
    poller = select.poll()
    poller.register(pipe, select.POLLIN)
    found = poller.poll(None if seconds is None else max(0.0, seconds) * 1000)
    return found[0][1] if found else 0
