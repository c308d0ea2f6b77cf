"""Messages from a worker to its consumer: pickles in a pipe, large buffers next to it.

A message is pickled with protocol 5. Buffers of at least `LARGE` bytes stay out of the pickle:
the worker copies them into a slot of shared memory. The consumer uses them there, or copies
them if it keeps many. A pickle of at least `LARGE_PICKLE` bytes also goes into the slot, and
is read there. The memory has no name, only a file descriptor that is sent through the pipe, so
nothing remains if a process dies.

A frame has a head, the sizes of all parts, and the parts that travel in the frame:

    "N", number, slot   a message: its pickle and its large buffers, perhaps some in a slot
    "M", size, slots    shared memory; its descriptor is sent with the frame
    "W"                 a warning for the consumer's user, as text
"""

from __future__ import annotations

import array
import errno
import os
import pickle
import socket
import struct
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from mmap import PAGESIZE
from typing import IO, Any, NamedTuple

from lazyckpt.executors.ipc.pickler import Pickler
from lazyckpt.executors.ipc.shared_memory import (
    LINE,
    SharedMemorySlots,
    UnmappedSlots,
    allocate,
    fill,
    room,
    split,
)

LARGE_PICKLE = 1 << 15  # bytes from which a slot is as fast as the pipe; at 256 KiB, twice as fast

_MESSAGE, _MEMORY, _WARNING = b"NMW"
_PIPE = -1  # in place of a slot
_READ = 1 << 16  # bytes to read per call

_SIZE = struct.Struct("=Q")
_HEAD = struct.Struct("=QBqqII")  # frame size, kind, two numbers, parts, parts in the frame
_DESCRIPTOR = socket.CMSG_SPACE(struct.calcsize("i")) if hasattr(socket, "CMSG_SPACE") else 0


class Unwritable(Exception):
    """A message can't be pickled, and nothing was sent.

    Attributes:
        reason: The error of pickling it.
    """

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Message(NamedTuple):
    """A received message.

    Attributes:
        number: The number that its sender has set.
        pickled: Its pickle.
        find_buffers: Function that finds its large buffers.
    """

    number: int
    pickled: memoryview
    find_buffers: Callable[[], Iterable[Any]]

    def open(self) -> Any:
        """Unpickle the message. Its arrays are writable if they were before."""
        return pickle.loads(self.pickled, buffers=self.find_buffers())


class Sender:
    """The sending side of a pipe, for one thread.

    If the pipe, a socket, doesn't block, messages that it has no room for stay in an outbox
    until `flush`. So two sides that both send can't wait for each other.

    Up to `slots` messages lie in shared memory, including at most `LENT_SLOTS` that the
    consumer keeps. Shared memory is allocated for the first large message, for a message larger
    than all before, and after the consumer has forked while it held a message. If no slot is
    free, or if `shared` is False, large messages go through the pipe.
    """

    def __init__(self, pipe: socket.socket, *, slots: int, shared: bool = True) -> None:
        self._pipe = pipe
        self._outbox: deque[tuple[Any, IO[bytes] | None]] = deque()  # bytes, a file to send
        self._slots = slots if shared and hasattr(socket, "send_fds") else 0
        self._memory: SharedMemorySlots | None = None
        self._warned = False

    def send(self, message: Any, number: int = 0) -> None:
        """Pickle and send a message. If the pipe blocks, wait while it is full.

        Args:
            message: The object to pickle.
            number: An int64 to send with it, readable before the message is unpickled.

        Raises:
            Unwritable: If the message can't be pickled. Nothing was sent.
        """
        try:
            pickled, large = Pickler().dump(message)
        except Exception as error:
            raise Unwritable(error) from error
        is_full = self.has_more  # the pipe is full until it reports that it has room
        parts = [pickled, *large]
        in_slot = parts if len(pickled) >= LARGE_PICKLE else large
        slot = self._fill_slot(in_slot) if in_slot else _PIPE
        here = len(parts) if slot == _PIPE else len(parts) - len(in_slot)
        self._put(_MESSAGE, number, slot, parts, here)
        if not is_full:
            self.flush()

    @property
    def has_more(self) -> bool:
        """Whether data wait for room in the pipe."""
        return bool(self._outbox)

    def flush(self) -> None:
        """Send waiting data, as far as the pipe has room."""
        while self._outbox:
            data, file = self._outbox[0]
            try:
                if file is None:
                    sent = self._pipe.send(data)
                else:
                    sent = socket.send_fds(self._pipe, [data], [file.fileno()])
                    file.close()
            except BlockingIOError:
                return
            except OSError:  # the reader is gone
                self.close()
                raise
            if sent == len(data):
                self._outbox.popleft()
            else:
                self._outbox[0] = memoryview(data)[sent:], None

    def _put(
        self,
        kind: int,
        first: int = 0,
        second: int = 0,
        parts: Sequence[Any] = (),
        here: int | None = None,
        file: IO[bytes] | None = None,
    ) -> None:
        """Write a frame to the outbox, with the first `here` of its parts inside the frame."""
        brought = parts[:here]
        sizes = struct.pack(f"={len(parts)}Q", *map(len, parts))
        frame = bytearray(_HEAD.size) + sizes
        for part in brought:
            frame += bytes(-len(frame) % LINE)
            frame += part
        frame += bytes(-len(frame) % LINE)
        _HEAD.pack_into(frame, 0, len(frame), kind, first, second, len(parts), len(brought))
        self._outbox.append((frame, file))

    def _fill_slot(self, parts: Sequence[Any]) -> int:
        """Copy parts into a slot; return its number, or `_PIPE` if none is free."""
        if not self._slots:
            return _PIPE
        size = room(map(len, parts))
        if self._memory is None or size > self._memory.size or self._memory.is_retired:
            size = max(size, self._memory.size if self._memory is not None else 0)
            size = 1 << (max(size, PAGESIZE) - 1).bit_length()  # untouched pages cost nothing
            try:
                file, memory = allocate(size, self._slots)
            except OSError as error:
                self._warn(f"can't allocate {self._slots} slots of {size:,} bytes: {error}")
                self._slots = 0
                return _PIPE
            self._put(_MEMORY, size, self._slots, file=file)
            if self._memory is not None:
                self._memory.close()
            self._memory = memory
        slot = self._memory.take()
        if slot is None:
            self._warn(f"all {self._slots} slots of {self._memory.size:,} bytes are taken")
            return _PIPE
        fill(self._memory[slot], parts)
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

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            text = f"{text}; large messages go through a pipe, which is slower"
            self._put(_WARNING, parts=[text.encode()])


class Receiver:
    """The receiving side of a pipe, for one thread."""

    def __init__(self, pipe: socket.socket) -> None:
        self._pipe = pipe
        self._memory: SharedMemorySlots | UnmappedSlots | None = None
        self._buffer = bytearray(_READ)
        self._begin = self._end = 0  # of the bytes read that aren't in a message yet
        self._descriptors: deque[int] = deque()

    def receive(self) -> Message:
        """Wait for the next message of a blocking pipe; for errors, see `next` and `read`."""
        while (message := self.next()) is None:
            self.read()
        return message

    def read(self) -> bool:
        """Read the pipe once, after `next` returned None; return whether there was anything.

        Raises:
            EOFError: If the sender is gone and everything it sent has been read.
        """
        view = memoryview(self._buffer)[self._end :]
        try:
            count, extra, _, _ = self._pipe.recvmsg_into([view], _DESCRIPTOR)
        except BlockingIOError:
            return False
        except OSError as error:  # closed, or reset
            raise EOFError("the sender is gone") from error
        if not count:
            raise EOFError("the sender is gone")
        for _, _, data in extra:
            self._descriptors.extend(array.array("i", data))
        self._end += count
        return True

    def next(self) -> Message | None:
        """Return the next message if all of it has been read, and None otherwise.

        Raises:
            EOFError: If this receiver is closed.
            OSError: If this process has too many open files.
            RuntimeWarning: If a warning of the sender is turned into an error. The next
                message can still be received.
        """
        self.free_slots()
        while (frame := self._frame()) is not None:
            _, kind, first, second, count, here = _HEAD.unpack_from(frame)
            sizes = struct.unpack_from(f"={count}Q", frame, _HEAD.size)
            brought, away = sizes[:here], sizes[here:]
            parts = split(frame, brought, _HEAD.size + 8 * count)
            if kind == _MESSAGE:
                return self._message(first, second, parts, away)
            if kind == _MEMORY:
                self._map(first, second)
            else:
                warnings.warn(bytes(parts[0]).decode(), RuntimeWarning, stacklevel=3)
        return None

    def _message(
        self, number: int, slot: int, here: list[memoryview], away: Sequence[int]
    ) -> Message:
        if slot == _PIPE:
            return Message(number, here[0], lambda: here[1:])
        if (memory := self._memory) is None:  # a signal handler has closed this
            raise EOFError("the receiver is closed")
        parts = memory.read(slot, away)
        pickled = here[0] if here else memoryview(parts.pop(0))
        return Message(number, pickled, partial(memory.lend, slot, parts))

    def free_slots(self) -> None:
        """Return the slots of dropped messages to the sender."""
        if self._memory is not None:
            self._memory.free_dropped()

    def close(self) -> None:
        """Release the shared memory, but not the pipe, nor received arrays."""
        while self._descriptors:
            os.close(self._descriptors.popleft())
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _frame(self) -> memoryview | None:
        """Return the next frame if all of it has been read; otherwise make room for the rest."""
        begin, end, size = self._begin, self._end, _HEAD.size
        if end - begin >= size:
            (size,) = _SIZE.unpack_from(self._buffer, begin)
        if end - begin >= size:
            self._begin += size
            if size == len(self._buffer):  # the buffer has only this frame: no need to copy
                frame, self._buffer = self._buffer, bytearray(_READ)
                self._begin = self._end = 0
                return memoryview(frame)
            return memoryview(self._buffer[begin : begin + size])
        if begin == end or begin + size > len(self._buffer):
            left = self._buffer[begin:end]
            if size > _READ or len(self._buffer) > _READ:
                self._buffer = bytearray(max(size, _READ))
            self._buffer[: len(left)] = left
            self._begin, self._end = 0, len(left)
        return None

    def _map(self, size: int, slots: int) -> None:
        if not self._descriptors:  # the kernel drops a descriptor beyond the limit of open files
            raise too_many_files()
        memory: SharedMemorySlots | UnmappedSlots
        with open(self._descriptors.popleft(), "r+b") as file:
            try:
                memory = SharedMemorySlots(file, size, slots)
            except OSError as error:
                if error.errno == errno.EMFILE:
                    raise too_many_files() from error
                memory = UnmappedSlots(file, size, slots)  # beyond the limit of the address space
        before, self._memory = self._memory, memory
        if before is not None:  # all its messages have been read
            before.close()


def too_many_files() -> OSError:
    """Return the error of a process that can't open more files, with a remedy."""
    return OSError(
        errno.EMFILE,
        f"{os.strerror(errno.EMFILE)}: each worker needs a few; raise the limit of this process "
        "(ulimit -n), or use fewer workers",
    )
