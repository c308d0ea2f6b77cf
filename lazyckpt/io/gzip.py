"""gzip: members where they are small, seek points where one is large.

Seek points are indexed_gzip's. Of rapidgzip a pass from the front takes 0.6 of the CPU time,
but a random row 1.6 times as much; and it aborts the interpreter where a file is open at its
exit, which forked workers can't help. Neither notices a file that is cut off, so that
the first pass is zlib's, which checks all of it.
"""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from lazyckpt.io.cache import storing, writing
from lazyckpt.io.decompress import damaged
from lazyckpt.io.framed import Framed
from lazyckpt.io.storage import File, Ranges, optional_module, storage_of

SPACING = 1 << 20  # bytes between seek points, each of which is 32 KiB in the index
MOST = 1 << 22  # bytes of a member that is read for itself

_BUFFER = 1 << 14
_AHEAD = 1 << 22  # bytes that are read where reads follow one another
_MOST_OPEN = 8  # files whose seek points are in memory


class Gzip(Framed):
    """Files of small members, as bgzip writes them, or of large ones with seek points."""

    def __init__(self, kind: str, folder: str) -> None:
        super().__init__(kind, folder)
        self._open: OrderedDict[tuple[int, File], _Opened] = OrderedDict()

    def chunks(self, file: File) -> Iterator[bytes]:
        yield from super().chunks(file)
        if self._is_large(file):
            self._write_points(file)

    def read_ranges(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        if not self._is_large(file):
            return super().read_ranges(file, ranges)
        opened = self._opened(file)
        return [opened.read(start, stop) for start, stop in ranges]

    def _is_large(self, file: File) -> bool:
        begins = self.bounds(file)[1]
        return len(begins) > 1 and int((begins[1:] - begins[:-1]).max()) > MOST

    def _write_points(self, file: File) -> None:
        with storing(self.folder), writing(self._points(file)) as temporary:
            opened = _library().IndexedGzipFile(fileobj=_Reader(file), spacing=SPACING)
            opened.build_full_index()
            opened.export_index(temporary)

    def _points(self, file: File) -> str:
        return f"{self.path(file)}.points"

    def _opened(self, file: File) -> _Opened:
        key = os.getpid(), file
        with self._lock:
            if (found := self._open.get(key)) is not None:
                self._open.move_to_end(key)
                return found
        if not os.path.exists(self._points(file)):
            self._write_points(file)
        made = _library().IndexedGzipFile(
            fileobj=_Reader(file), spacing=SPACING, readbuf_size=_BUFFER, buffer_size=_BUFFER
        )
        made.import_index(self._points(file))
        opened = _Opened(file, made)
        with self._lock:
            self._open[key] = opened
            if len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
        return opened


class _Opened:
    """A file with seek points. Reads that follow one another read ahead."""

    def __init__(self, file: File, inner: Any) -> None:
        self.file, self.inner = file, inner
        self.last: tuple[int, bytes, int] = 0, b"", -1  # a place, bytes from there, the last end

    def read(self, start: int, stop: int) -> bytes:
        begin, content, end = self.last
        if not begin <= start <= stop <= begin + len(content):
            length = max(stop - start, _AHEAD if start == end else 0)
            begin, content = start, self.inner.pread(length, start)
        self.last = begin, content, stop
        found = content[start - begin : stop - begin]
        if len(found) != stop - start:
            raise damaged(self.file, "gzip", 0, "it ends too early")
        return found


class _Reader(io.RawIOBase):
    """A file of a storage, as Python's files are."""

    def __init__(self, file: File) -> None:
        self.file, self.place = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.place

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self.place, io.SEEK_END: self.file.size}
        self.place = begin[whence] + offset
        return self.place

    def read(self, size: int = -1, /) -> bytes:
        stop = self.file.size if size < 0 else min(self.file.size, self.place + size)
        found = storage_of(self.file.path).read(self.file, self.place, max(stop, self.place))
        self.place += len(found)
        return found


def _library() -> Any:
    return optional_module("indexed_gzip", "gzip", "random access in .gz")


@lru_cache
def content(folder: str) -> Gzip:
    """What reads gzip files, and keeps seek points in a folder."""
    return Gzip("gzip", folder)
