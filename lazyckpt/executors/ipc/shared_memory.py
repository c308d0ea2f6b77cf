"""Slots in shared memory without a name: a worker fills them, its consumer frees them."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from mmap import PAGESIZE, mmap
from typing import IO, Any
from weakref import ref

import numpy as np

LENT_SLOTS = 4  # that a consumer may keep; it copies what is in others

_LINE = 64  # bytes of a cache line


class SharedMemorySlots:
    """Slots of one size, and a byte for each that is 1 while it is taken.

    The worker sets that byte, the consumer clears it; nobody waits. A slot that the
    consumer held when it forked is never cleared, as the forked process may read it.
    One more byte is 1 once there was such a slot: then the worker takes other memory.
    """

    def __init__(self, file: IO[bytes], size: int, count: int) -> None:
        self.size = size
        self.count = count
        self._start = _start(count)
        self._map = mmap(file.fileno(), self._start + size * count)
        self._view = memoryview(self._map)
        self._taken = self._view[:count]
        self._held: dict[int, _SlotReference] = {}
        self._dropped: deque[_SlotReference] = deque()
        self._lent: set[int] = set()  # of those held

    @property
    def is_retired(self) -> bool:
        return self._map[self.count] == 1

    def take(self) -> int | None:
        """The number of a free slot: the first, which is likely to be in the cache."""
        found = self._map.find(b"\0", 0, self.count)
        if found < 0:
            return None
        self._taken[found] = 1
        return found

    def __getitem__(self, number: int) -> memoryview:
        start = self._start + number * self.size
        return self._view[start : start + self.size]

    def read(self, number: int, sizes: Sequence[int]) -> list[Any]:
        """Return the buffers in a slot; once all of them are dropped, `free_dropped` frees it."""
        forks = len(_forks)
        held = np.frombuffer(self[number], np.uint8).view(_SlotBytes)
        # Whoever drops them runs no Python code by that, in which a Ctrl-C would be lost.
        found = self._held[number] = _SlotReference(held, self._dropped.append)
        found.number, found.forks = number, forks
        places = zip(starts(sizes), sizes, strict=False)
        return [held[start : start + size] for start, size in places]

    def lend(self, number: int, buffers: list[Any]) -> list[memoryview]:
        """Return buffers of a slot that was read, for a consumer to keep: if it may, or copies."""
        self.free_dropped()
        is_forked = self._held[number].forks != len(_forks)  # so that another process has them too
        if is_forked or len(self._lent) >= min(LENT_SLOTS, self.count // 2):
            buffers = [buffer.copy() for buffer in buffers]
        else:
            self._lent.add(number)
        return [memoryview(buffer) for buffer in buffers]

    def free_dropped(self) -> None:
        """Free the slots whose bytes nobody has any more."""
        with suppress(IndexError):  # of the last one another thread was faster
            while self._dropped:
                dropped = self._dropped.popleft()
                self._lent.discard(dropped.number)
                self._held.pop(dropped.number, None)
                with suppress(ValueError):  # closed
                    if dropped.forks == len(_forks):
                        self._taken[dropped.number] = 0
                    else:
                        self._map[self.count] = 1

    def close(self) -> None:
        """Release the memory, except for what is still lent."""
        self._taken.release()
        with suppress(BufferError):
            self._view.release()
            self._map.close()


class UnmappedSlots:
    """What there is to read of `SharedMemorySlots` that don't fit in the address space."""

    def __init__(self, file: IO[bytes], size: int, count: int) -> None:
        self.size = size
        self._start = _start(count)
        self._map = mmap(file.fileno(), self._start)
        self._file = os.fdopen(os.dup(file.fileno()), "rb", buffering=0)

    def read(self, number: int, sizes: Sequence[int]) -> list[memoryview]:
        """The buffers in a slot: copies."""
        try:
            found = [np.empty(size, np.uint8).data for size in sizes]
            for start, left in zip(starts(sizes), found, strict=False):
                self._file.seek(self._start + number * self.size + start)
                while left:
                    left = left[self._file.readinto(left) :]
            return found
        finally:
            self._map[number] = 0

    def lend(self, number: int, buffers: list[memoryview]) -> list[memoryview]:
        """The buffers, as they are copies."""
        return buffers

    def free_dropped(self) -> None:
        """None is held."""

    def close(self) -> None:
        self._file.close()
        self._map.close()


# One for each fork of this process. No Python code adds them: a Ctrl-C would be lost in it.
_forks: list[None] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=partial(_forks.append, None))


class _SlotReference(ref["_SlotBytes"]):
    number: int  # of the slot
    forks: int  # before it was held


class _SlotBytes(np.ndarray[tuple[int], np.dtype[np.uint8]]):
    """A slot's bytes, on which all arrays in it depend."""


def allocate(size: int, count: int) -> tuple[IO[bytes], SharedMemorySlots]:
    """Slots in a file that has no name: whatever dies, nothing stays behind."""
    if hasattr(os, "memfd_create"):
        file: IO[bytes] = os.fdopen(os.memfd_create("lazyckpt"), "r+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        file.truncate(_start(count) + size * count)
        return file, SharedMemorySlots(file, size, count)
    except BaseException:
        file.close()
        raise


def _start(count: int) -> int:
    """Where the first of so many slots begins."""
    return -(-(count + 1) // PAGESIZE) * PAGESIZE


def starts(sizes: Iterable[int]) -> list[int]:
    """Where buffers begin in a slot, each at a cache line, and where the last one ends."""
    found = [0]
    for size in sizes:
        found.append(found[-1] + -(-size // _LINE) * _LINE)
    return found


def fill(memory: Any, buffers: Sequence[Any]) -> None:
    """Copy buffers to where they begin."""
    for place, buffer in zip(starts(map(len, buffers)), buffers, strict=False):
        memory[place : place + len(buffer)] = buffer
