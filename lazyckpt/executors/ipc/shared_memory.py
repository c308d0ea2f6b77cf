"""Slots in shared memory without a name: a worker fills them, its consumer frees them."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
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

    def read(self, number: int, sizes: Sequence[int]) -> HeldSlot:
        """The buffers in a slot, which is held until all of them are dropped."""
        return HeldSlot(self, number, sizes)

    def read_first(self, number: int, sizes: Sequence[int]) -> tuple[memoryview, HeldSlot]:
        """The first buffer in a slot, which is held until that is dropped too; the others."""
        held = HeldSlot(self, number, sizes)
        return held.pop_first(), held

    def hold(self, number: int) -> _SlotBytes:
        """A slot's bytes; once they are dropped, `free_dropped` frees it."""
        forks = len(_forks)
        held = np.frombuffer(self[number], np.uint8).view(_SlotBytes)
        # Whoever drops them runs no Python code by that, in which a Ctrl-C would be lost.
        found = self._held[number] = _SlotReference(held, self._dropped.append)
        found.number, found.forks = number, forks
        return held

    def lend(self, number: int) -> bool:
        """Whether a consumer may keep a slot that is held; it copies what is in others."""
        self.free_dropped()
        if len(self._lent) >= min(LENT_SLOTS, self.count // 2) or self._is_forked(number):
            return False
        self._lent.add(number)
        return True

    def _is_forked(self, number: int) -> bool:
        """Whether another process has the slot's bytes too."""
        return self._held[number].forks != len(_forks)

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


class HeldSlot:
    """Buffers in a slot. Only who iterates over them is lent the slot, or has copies."""

    def __init__(self, memory: SharedMemorySlots, number: int, sizes: Sequence[int]) -> None:
        self._memory, self._number, self._sizes = memory, number, sizes
        self._bytes: _SlotBytes | None = memory.hold(number)
        self._buffers: list[memoryview] = []
        self._first = 0

    def pop_first(self) -> memoryview:
        """The first buffer, in the slot: the others are left to iterate over."""
        assert self._bytes is not None
        self._first = 1
        found: Any = self._bytes[: self._sizes[0]]
        return memoryview(found)

    def __iter__(self) -> Iterator[memoryview]:
        found = self._bytes
        if found is not None:
            places = [*zip(starts(self._sizes), self._sizes, strict=False)][self._first :]
            parts: Any = [found[start : start + size] for start, size in places]
            if parts and not self._memory.lend(self._number):
                parts = [part.copy() for part in parts]
            self._buffers = [memoryview(part) for part in parts]
            self._bytes = None
        return iter(self._buffers)


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

    def read_first(self, number: int, sizes: Sequence[int]) -> tuple[memoryview, list[memoryview]]:
        first, *others = self.read(number, sizes)
        return first, others

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


def starts(sizes: Sequence[int]) -> Sequence[int]:
    """Where buffers begin in a slot, each at a cache line, and where the last one ends."""
    found = [0]
    for size in sizes:
        found.append(found[-1] + -(-size // _LINE) * _LINE)
    return found
