"""Messages from a worker to its consumer: pickles in a pipe, large buffers next to it.

A message is pickled with protocol 5. Buffers of at least `LARGE` bytes stay out
of the pickle: the worker copies them into a slot of shared memory, where the
consumer uses them, or copies them if it keeps many. So does a pickle of at least
`LARGE_PICKLE` bytes, which is read there. The memory has no name, only a file
descriptor that is sent through the pipe: whatever dies, nothing stays behind.

A frame has a head, the sizes of parts, and those of the parts that it brings:

    "N", number, slot   a message: its pickle and its large buffers, the last ones in a slot
    "M", size, slots    shared memory, whose descriptor goes along
    "W"                 a warning to the consumer's user, as text
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
from typing import IO, Any

from lazyckpt.executors.ipc.pickler import LARGE, Pickler
from lazyckpt.executors.ipc.shared_memory import (
    SharedMemorySlots,
    UnmappedSlots,
    allocate,
    fill,
    starts,
)

LARGE_PICKLE = 1 << 15  # bytes from which a slot takes no longer than the pipe; half, of 256 KiB

_MESSAGE, _MEMORY, _WARNING = b"NMW"
_PIPE = -1  # in place of a slot
_READ = 1 << 16  # bytes that are read at once

_SIZE = struct.Struct("=Q")
_HEAD = struct.Struct("=QBqqII")  # bytes of the frame, its kind, two numbers, parts, parts here
_DESCRIPTOR = socket.CMSG_SPACE(struct.calcsize("i")) if hasattr(socket, "CMSG_SPACE") else 0


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
        self, number: int, pickled: memoryview, find_buffers: Callable[[], Iterable[Any]]
    ) -> None:
        self.number = number
        self._pickled, self._find_buffers = pickled, find_buffers

    def open(self) -> Any:
        """Unpickle it. Its arrays are writable if they were before."""
        return pickle.loads(self._pickled, buffers=self._find_buffers())


class Sender:
    """The side of one thread that sends.

    If the pipe, a socket, doesn't block, what it has no room for stays in an outbox until
    `flush`: so two sides that both send can't wait for each other.

    Up to `slots` messages lie in shared memory, among them at most `LENT_SLOTS` that
    the consumer keeps. It is allocated for the first large one, again for a message
    larger than all before, and again once the consumer has forked with some in hand.
    With no slot free, or `shared` false, what is large goes through the pipe.
    """

    def __init__(self, pipe: socket.socket, *, slots: int, shared: bool = True) -> None:
        self._pipe = pipe
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
        if len(pickled) < LARGE:  # else it stays as large as its largest message
            self._pickler = pickler
        is_full = self.has_more  # until the pipe says that it has room
        parts = [pickled, *large]
        in_slot = parts if len(pickled) >= LARGE_PICKLE else large
        slot = self._fill_slot(in_slot) if in_slot else _PIPE
        here = len(parts) if slot == _PIPE else len(parts) - len(in_slot)
        self._put(_MESSAGE, number, slot, parts, here)
        if not is_full:
            self.flush()
        return sum(map(len, parts))

    @property
    def has_more(self) -> bool:
        """Whether something waits for the pipe to have room."""
        return bool(self._outbox)

    def flush(self) -> None:
        """Send what waits, as far as the pipe has room."""
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
            except OSError:  # nobody will read it
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
        """Write a frame, with the first parts `here`, to the outbox."""
        brought = parts[:here]
        sizes = struct.pack(f"={len(parts)}Q", *map(len, parts))
        end = starts([_HEAD.size + len(sizes), *map(len, brought)])[-1]
        head = _HEAD.pack(end, kind, first, second, len(parts), len(brought))
        fill(frame := bytearray(end), [head + sizes, *brought])
        self._outbox.append((frame, file))

    def _fill_slot(self, parts: Sequence[Any]) -> int:
        """Copy parts into a slot; return it, or `_PIPE` for none."""
        if (slot := self._slot(starts(map(len, parts))[-1])) is None:
            return _PIPE
        assert self._memory is not None
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
            self._put(_MEMORY, size, self._slots, file=file)
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
            self._put(_WARNING, parts=[text.encode()])


class Receiver:
    """The consumer's side of one sender, for one thread."""

    def __init__(self, pipe: socket.socket) -> None:
        self._pipe = pipe
        self._memory: SharedMemorySlots | UnmappedSlots | None = None
        self._buffer = bytearray(_READ)
        self._begin = self._end = 0  # of what was read, and is in no message yet
        self._descriptors: deque[int] = deque()

    def receive(self) -> Message:
        """Wait for the next message, from a pipe that blocks; for errors see `next` and `read`."""
        while (message := self.next()) is None:
            self.read()
        return message

    def read(self) -> bool:
        """Read once what has come, after `next` had None; whether that was anything.

        Raises:
            EOFError: The sender is gone, and what it sent has been read.
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
        """The next message, if all of it has been read.

        Raises:
            EOFError: This is closed.
            OSError: This process has too many open files.
            RuntimeWarning: One of the sender's, made an error. The next message can be
                received.
        """
        self.free_slots()
        while (frame := self._frame()) is not None:
            _, kind, first, second, count, here = _HEAD.unpack_from(frame)
            sizes = struct.unpack_from(f"={count}Q", frame, _HEAD.size)
            brought, away = sizes[:here], sizes[here:]
            places = starts([_HEAD.size + 8 * count, *brought])[1:]
            parts = [frame[at : at + size] for at, size in zip(places, brought, strict=False)]
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
        if (memory := self._memory) is None:  # closed by a signal's handler meanwhile
            raise EOFError("the receiver is closed")
        parts = memory.read(slot, away)
        pickled = here[0] if here else memoryview(parts.pop(0))
        return Message(number, pickled, partial(memory.lend, slot, parts))

    def free_slots(self) -> None:
        """Let the sender have the slots of messages that nobody has any more."""
        if self._memory is not None:
            self._memory.free_dropped()

    def close(self) -> None:
        """Release the shared memory: not the pipe, and no array received."""
        while self._descriptors:
            os.close(self._descriptors.popleft())
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _frame(self) -> memoryview | None:
        """The next frame, if all of it has been read; else have room for the rest of it."""
        begin, end, size = self._begin, self._end, _HEAD.size
        if end - begin >= size:
            (size,) = _SIZE.unpack_from(self._buffer, begin)
        if end - begin >= size:
            self._begin += size
            if size == len(self._buffer):  # which is its own, and need not be copied
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
        if not self._descriptors:  # the kernel drops one that there is no room for
            raise too_many_files()
        memory: SharedMemorySlots | UnmappedSlots
        with open(self._descriptors.popleft(), "r+b") as file:
            try:
                memory = SharedMemorySlots(file, size, slots)
            except OSError:  # a limit on the address space
                memory = UnmappedSlots(file, size, slots)
        before, self._memory = self._memory, memory
        if before is not None:  # all that came through it has been read
            before.close()


def too_many_files() -> OSError:
    """The error of a process that can open no more, with what to do about it."""
    return OSError(
        errno.EMFILE,
        f"{os.strerror(errno.EMFILE)}: each worker needs a few; raise the limit of this process "
        "(ulimit -n), or ask for fewer workers",
    )
