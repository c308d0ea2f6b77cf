"""A cache of ranges of remote files, on a disk of this machine, shared by all its processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TypeAlias

from lazyckpt.errors import PipelineError
from lazyckpt.io.cache import FULL, exclusive_lock, short_digest, write_atomically

Fetch: TypeAlias = Callable[[Sequence[tuple[int, int]]], Sequence[bytes]]

BLOCK = 1 << 20  # bytes that are fetched and kept together

_WAYS = 16  # most blocks per folder
_AT_ONCE = 32  # most blocks per fetch


@dataclass(frozen=True)
class RangeCache:
    """The most recently used blocks of files, up to a limit, each stored as its own file.

    Blocks are spread over folders, like those of a set-associative processor cache. A block is
    written while its folder is locked, and renamed. So a block is whole or absent, and a kill can't
    make a folder exceed its limit. Without locks, a folder may exceed it.

    Attributes:
        folder: Folder of the cache.
        most: Most bytes that it may take.
    """

    folder: str
    most: int

    def read_ranges(
        self, name: str, size: int, ranges: Sequence[tuple[int, int]], fetch: Fetch
    ) -> list[bytes]:
        """Return ranges of a file, from the cache or else fetched.

        Args:
            name: Identity of the file, including its version.
            size: Number of bytes of the file.
            ranges: Pairs of start and stop.
            fetch: Function that returns the bytes of missing ranges.
        """
        file = _File(self, short_digest(name), size, fetch)
        wanted = [[*_parts(start, stop)] for start, stop in ranges]
        found = {part: file.kept(*part) for parts in wanted for part in parts}
        missing = sorted({part[0] for part, content in found.items() if content is None})
        for first in range(0, len(missing), _AT_ONCE):
            blocks = file.fetched(missing[first : first + _AT_ONCE])
            for (number, start, stop), content in found.items():
                if content is None and number in blocks:
                    found[number, start, stop] = blocks[number][start:stop]
        return [b"".join(found[part] or b"" for part in parts) for parts in wanted]

    @property
    def ways(self) -> int:
        """The most blocks per folder."""
        return min(_WAYS, self.most // BLOCK)

    @property
    def sets(self) -> int:
        """The number of folders."""
        return self.most // BLOCK // self.ways


@dataclass(frozen=True)
class _File:
    """A file with cached blocks."""

    cache: RangeCache
    name: str
    size: int
    fetch: Fetch

    def kept(self, number: int, start: int, stop: int) -> bytes | None:
        """Return part of a block; None if it isn't cached."""
        path = self._path(number)
        try:
            block = os.open(path, os.O_RDONLY)
        except OSError:
            return None
        try:
            if os.fstat(block).st_size != self._length(number):
                return None
            with suppress(OSError):  # another process may have removed it
                os.utime(path)  # the time of last use
            return os.pread(block, stop - start, start)
        finally:
            os.close(block)

    def fetched(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Return blocks: those that another process has cached meanwhile, the others fetched."""
        folders = sorted({self._folder(number) for number in numbers})
        with ExitStack() as stack:
            for folder in folders:  # in a fixed order, to avoid deadlocks
                try:
                    os.makedirs(folder, exist_ok=True)
                    stack.enter_context(exclusive_lock(folder))
                except OSError as error:
                    raise _unwritable(folder, error) from error
            found = {number: self.kept(number, 0, self._length(number)) for number in numbers}
            blocks = {number: block for number, block in found.items() if block is not None}
            missing = [number for number in numbers if number not in blocks]
            ranges = [(n * BLOCK, n * BLOCK + self._length(n)) for n in missing]
            for number, block in zip(missing, self.fetch(ranges) if ranges else (), strict=True):
                blocks[number] = block
                self._keep(number, block)
        return blocks

    def _keep(self, number: int, block: bytes) -> None:
        folder = self._folder(number)
        try:
            self._make_room(folder)
            write_atomically(self._path(number), block)
        except FileNotFoundError:  # without locks, another process may have made room
            pass
        except OSError as error:
            if error.errno not in FULL:  # on a full disk, blocks aren't cached
                raise _unwritable(folder, error) from error

    def _make_room(self, folder: str) -> None:
        with os.scandir(folder) as entries:
            known = sorted(entries, key=lambda entry: entry.stat().st_mtime_ns)
        stale = [entry for entry in known if entry.name.endswith(".tmp")]  # by a killed process
        blocks = [entry for entry in known if entry not in stale]
        for entry in [*stale, *blocks[: max(0, len(blocks) - self.cache.ways + 1)]]:
            os.remove(entry.path)

    def _length(self, number: int) -> int:
        return min(BLOCK, self.size - number * BLOCK)

    def _folder(self, number: int) -> str:
        cache = self.cache
        place = (int(self.name[:12], 16) + number) % cache.sets
        return os.path.join(cache.folder, f"{cache.sets}x{cache.ways}", f"{place:05}")

    def _path(self, number: int) -> str:
        return os.path.join(self._folder(number), f"{self.name}.{number}")


def _parts(start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield the blocks that a range overlaps, each with the start and stop inside it."""
    while start < stop:
        number = start // BLOCK
        end = min(stop, (number + 1) * BLOCK)
        yield number, start - number * BLOCK, end - number * BLOCK
        start = end


def _unwritable(folder: str, error: OSError) -> PipelineError:
    return PipelineError(
        f"the cache can't be written to {folder}: {error}; pass a different cache_dir"
    )
