"""A file of any storage, as Python has files."""

from __future__ import annotations

import io
from typing import Any

from lazyckpt.io.storage import File, storage_of


class StoredFile(io.RawIOBase):
    """A file of any storage, as Python has files; its bytes are those of the listing."""

    def __init__(self, file: File) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        place = offset + (0, self._at, self._file.size)[whence]
        if place < 0:
            raise ValueError(f"negative seek position {place}")
        self._at = place
        return place

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._file.size - self._at)
        count = left if size is None or size < 0 else min(size, left)
        if not count:
            return b""
        found = storage_of(self._file.path).read(self._file, self._at, self._at + count)
        self._at += count
        return found

    def readinto(self, buffer: Any) -> int:
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)
