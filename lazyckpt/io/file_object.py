"""A file of any storage, as Python has files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from lazyckpt.io.storage import File, storage_of


class FileObject(io.RawIOBase):
    """A file of any storage, as Python has files; its bytes are those of the listing.

    Args:
        file: The file.
        size: How many of its bytes there are; None for all.

    Attributes:
        error: Why bytes could not be read, which libraries in C lose; None if they could.
    """

    error: Exception | None = None

    def __init__(self, file: File, size: int | None = None) -> None:
        self._file, self._at = file, 0
        self._size = file.size if size is None else size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        place = offset + (0, self._at, self._size)[whence]
        if place < 0:
            raise ValueError(f"negative seek position {place}")
        self._at = place
        return place

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._at)
        count = left if size is None or size < 0 else min(size, left)
        if not count:
            return b""
        try:
            found = storage_of(self._file.path).read(self._file, self._at, self._at + count)
        except Exception as error:
            self.error = error
            raise
        self.error = None
        self._at += count
        return found

    def readinto(self, buffer: Any) -> int:
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


class ChunkStream(io.RawIOBase):
    """Bytes that come some at a time, as Python has files that are read from the front."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._left = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left and (chunk := next(self._chunks, None)) is not None:
            self._left = memoryview(chunk)
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count
