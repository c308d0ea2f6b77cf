"""Slots in unnamed shared memory: a worker fills them, its consumer frees them."""

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

LENT_SLOTS = 4  # slots that a consumer may keep; it copies the data of others

LINE = 64  # bytes of a cache line


class SharedMemorySlots:
    """Slots of one size, and one byte per slot that is 1 while the slot is taken.

    The worker sets the byte and the consumer clears it; neither waits. A slot that the consumer
    held when it forked is never freed, since the forked process may read it. One more byte is
    set to 1 if there is such a slot: the worker then allocates new memory.
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
        self._lent: set[int] = set()  # held slots that the consumer may keep

    @property
    def is_retired(self) -> bool:
        return self._map[self.count] == 1

    def take(self) -> int | None:
        """Return the number of the first free slot, which is likely to be in the cache."""
        found = self._map.find(b"\0", 0, self.count)
        if found < 0:
            return None
        self._taken[found] = 1
        return found

    def __getitem__(self, number: int) -> memoryview:
        start = self._start + number * self.size
        return self._view[start : start + self.size]

    def read(self, number: int, sizes: Sequence[int]) -> list[Any]:
        """Return the buffers in a slot. After all are dropped, `free_dropped` frees the slot."""
        forks = len(_forks)
        held = np.frombuffer(self[number], np.uint8).view(_SlotBytes)
        # Dropping the buffers must run no Python code: a Ctrl-C in it would be lost.
        found = self._held[number] = _SlotReference(held, self._dropped.append)
        found.number, found.forks = number, forks
        return split(held, sizes)

    def lend(self, number: int, buffers: list[Any]) -> list[memoryview]:
        """Return the buffers of a slot for the consumer to keep, or copies if it keeps too many."""
        self.free_dropped()
        is_forked = self._held[number].forks != len(_forks)  # then a forked process has them too
        if is_forked or len(self._lent) >= min(LENT_SLOTS, self.count // 2):
            buffers = [buffer.copy() for buffer in buffers]
        else:
            self._lent.add(number)
        return [memoryview(buffer) for buffer in buffers]

    def free_dropped(self) -> None:
        """Free the slots whose buffers are all dropped."""
        with suppress(IndexError):  # a different thread took the last one
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
        """Release the memory; buffers that the consumer keeps stay valid."""
        self._taken.release()
        with suppress(BufferError):
            self._view.release()
            self._map.close()


class UnmappedSlots:
    """The reading side of `SharedMemorySlots` that don't fit in the address space."""

    def __init__(self, file: IO[bytes], size: int, count: int) -> None:
        self.size = size
        self._start = _start(count)
        self._map = mmap(file.fileno(), self._start)
        self._file = os.fdopen(os.dup(file.fileno()), "rb", buffering=0)

    def read(self, number: int, sizes: Sequence[int]) -> list[memoryview]:
        """Return copies of the buffers in a slot."""
        try:
            found, begin = list[memoryview](), self._start + number * self.size
            for size in sizes:
                found.append(left := np.empty(size, np.uint8).data)
                self._file.seek(begin)
                while left:
                    left = left[self._file.readinto(left) :]
                begin += room([size])
            return found
        finally:
            self._map[number] = 0

    def lend(self, number: int, buffers: list[memoryview]) -> list[memoryview]:
        """Return the buffers unchanged: they are copies already."""
        return buffers

    def free_dropped(self) -> None:
        """Do nothing: no slot is held."""

    def close(self) -> None:
        self._file.close()
        self._map.close()


# One element per fork of this process, appended by C code: in Python code a Ctrl-C would be lost.
_forks: list[None] = []

os.register_at_fork(before=partial(_forks.append, None))


class _SlotReference(ref["_SlotBytes"]):
    number: int  # of the slot
    forks: int  # before it was held


class _SlotBytes(np.ndarray[tuple[int], np.dtype[np.uint8]]):
    """The bytes of a slot, which all arrays in the slot refer to."""


def allocate(size: int, count: int) -> tuple[IO[bytes], SharedMemorySlots]:
    """Allocate slots in an unnamed file."""
    file = unnamed_file(_start(count) + size * count)
    try:
        return file, SharedMemorySlots(file, size, count)
    except BaseException:
        file.close()
        raise


def unnamed_file(size: int) -> IO[bytes]:
    """Return a file of `size` zeros in memory, which disappears with the processes that use it."""
    if hasattr(os, "memfd_create"):
        file: IO[bytes] = os.fdopen(os.memfd_create("lazyckpt"), "r+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        file.truncate(size)
        return file
    except BaseException:
        file.close()
        raise


def _start(count: int) -> int:
    """Return the offset of the first of `count` slots."""
    return -(-(count + 1) // PAGESIZE) * PAGESIZE


def room(sizes: Iterable[int]) -> int:
    """Return the bytes that buffers of these sizes take, each aligned to a cache line."""
    end = 0
    for size in sizes:
        end += size + -size % LINE
    return end


def fill(memory: Any, buffers: Iterable[Any]) -> None:
    """Copy buffers into memory, each aligned to a cache line."""
    begin = 0
    for buffer in buffers:
        end = begin + len(buffer)
        memory[begin:end] = buffer
        begin = end + -end % LINE


def split(memory: Any, sizes: Iterable[int], begin: int = 0) -> list[Any]:
    """Return the buffers of these sizes that `fill` has copied, from an offset on."""
    found = []
    for size in sizes:
        begin += -begin % LINE
        found.append(memory[begin : begin + size])
        begin += size
    return found
