"""gzip: members where they are small, the spans between seek points where one is large.

Both the seek points and what is between them are indexed_gzip's. It doesn't notice a file that
is cut off, so the first pass is zlib's, or isal's where that is installed, which check all of it.
Of rapidgzip a pass from the front takes 0.6 of the CPU time, but it aborts the interpreter where a
file is open at its exit, which forked workers can't help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from lazyckpt.io.cache import storing, writing
from lazyckpt.io.decompress import Decompressor
from lazyckpt.io.framed import Framed, LastUsed
from lazyckpt.io.numbers import Numbers
from lazyckpt.io.storage import File, optional_module
from lazyckpt.io.stored_file import StoredFile

SPACING = 1 << 21  # bytes between seek points, each of which takes 32 KiB in the index
MOST = 1 << 22  # bytes of a member that is read for itself

_KEPT = 1 << 28  # bytes of seek points that are kept in memory
_WINDOW = 1 << 15
_BUFFER = 1 << 12  # bytes; what is larger is read without a copy


class _Reader(NamedTuple):
    """A file that indexed_gzip reads, with its seek points in memory, which take `size` bytes."""

    opened: Any
    source: StoredFile
    size: int


class _Span:
    """The `Decompressor` of what is between two seek points, all of which is made at once."""

    eof = needs_input = False
    unused_data = b""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._read = read

    def decompress(self, data: bytes, max_length: int) -> bytes:
        found = self._read()
        self.eof = True
        return found


class Gzip(Framed):
    """Files of small members, as bgzip writes them, or of large ones with seek points."""

    def __init__(self, kind: str, folder: str) -> None:
        super().__init__(kind, folder)
        self.readers = LastUsed[_Reader](_KEPT)

    def chunks(self, file: File) -> Iterator[bytes]:
        yield from super().chunks(file)
        if _is_large(super().noted(file)):
            self._write_points(file)

    def noted(self, file: File) -> Numbers:
        members = super().noted(file)
        if not _is_large(members):
            return members
        end = int(members[1, -1])
        points = [point for point in self._reader(file).opened.seek_points() if point[0] < end]
        begins = np.array([*points, (end, file.size)], np.uint64).T[::-1]
        return np.ascontiguousarray(begins)

    def begun(self, file: File, number: int) -> tuple[Decompressor, bytes]:
        bounds = self.bounds(file)
        if not bounds[0, 0]:  # a member; the first seek point is behind a header
            return super().begun(file, number)
        begin, end = bounds[1, number : number + 2].tolist()
        return _Span(partial(self._read_span, file, begin, end - begin)), b""

    def _read_span(self, file: File, begin: int, size: int) -> bytes:
        reader = self._reader(file)
        try:
            found: bytes = reader.opened.pread(size, begin)
        except Exception as error:
            raise reader.source.error or error from error
        return found

    def _reader(self, file: File) -> _Reader:
        return self.readers.get(file, partial(self._open, file))

    def _open(self, file: File) -> _Reader:
        library = optional_module("indexed_gzip", "gzip", "random access in .gz")
        source = StoredFile(file)
        opened = library.IndexedGzipFile(fileobj=source, buffer_size=_BUFFER)
        try:
            opened.import_index(self._path(file))
        except OSError:  # lost since, or damaged
            self._write_points(file)
            opened.import_index(self._path(file))
        return _Reader(opened, source, _WINDOW * len([*opened.seek_points()]))

    def _path(self, file: File) -> str:
        return f"{self.path(file)}.points"

    def _write_points(self, file: File) -> None:
        library = optional_module("indexed_gzip", "gzip", "random access in .gz")
        with storing(self.folder), writing(self._path(file)) as temporary:
            opened = library.IndexedGzipFile(fileobj=StoredFile(file), spacing=SPACING)
            opened.build_full_index()
            opened.export_index(temporary)


def _is_large(members: Numbers) -> bool:
    begins = members[1]
    return len(begins) > 1 and int((begins[1:] - begins[:-1]).max()) > MOST


@lru_cache
def content(folder: str) -> Gzip:
    """What reads gzip files, and keeps seek points in a folder."""
    return Gzip("gzip", folder)
