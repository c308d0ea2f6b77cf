"""gzip: members if they are small, the spans between seek points if one is large.

Both the seek points and what is between them are indexed_gzip's. It doesn't notice a file that
is cut off, so the first pass is zlib's, or isal's where that is installed, which check all of it.
Of rapidgzip a pass from the front takes 0.6 of the CPU time, but it aborts the interpreter where a
file is open at its exit, which forked workers can't help.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lazyckpt.io.block_compressed import BlockCompressedFile, good_bytes
from lazyckpt.io.cache import cache_errors, write_atomically
from lazyckpt.io.decompress import damaged_error
from lazyckpt.io.file_object import FileObject
from lazyckpt.io.lru_cache import LRUCache
from lazyckpt.io.mapped_arrays import Uint64Array, touch
from lazyckpt.io.storage import File, optional_module

SPACING = 1 << 21  # bytes between seek points, each of which has a window of 32 KiB
LARGE = 1 << 22  # bytes of a member from which on it has seek points

_KEPT = 1 << 28  # bytes of seek points that are kept in memory
_WINDOW = 1 << 15
_BUFFER = 1 << 12  # bytes; what is larger is read without a copy


class _Reader(NamedTuple):
    """A file that indexed_gzip reads, with its seek points in memory, which take `size` bytes."""

    opened: Any
    source: FileObject
    size: int


class Gzip(BlockCompressedFile):
    """Files of small members, as bgzip writes them, or of large ones with seek points."""

    def __init__(self, folder: str) -> None:
        super().__init__("gzip", folder)
        self.readers = LRUCache[_Reader](_KEPT)

    def chunks(self, file: File) -> Iterator[bytes]:
        yield from super().chunks(file)
        if _is_large(super().read_bounds(file)):
            self._write_points(file)

    def check_piece(self, file: File, begin: int, size: int) -> None:
        """Accept any: a large one gets seek points."""

    def read_bounds(self, file: File) -> Uint64Array:
        members = super().read_bounds(file)
        if not _is_large(members):
            return members
        last = -1 if good_bytes(members) is None else -2
        end = int(members[1, last])
        points = [point for point in self._reader(file).opened.seek_points() if point[0] < end]
        begins = np.array([*points, *members.T[last:, ::-1]], np.uint64).T[::-1]
        return np.ascontiguousarray(begins)

    def decompress(self, file: File, first: int, last: int, begin: int, end: int) -> bytes:
        if not self.bounds(file)[0, 0]:  # a member; the first seek point is after a header
            return super().decompress(file, first, last, begin, end)
        reader = self._reader(file)
        try:
            found: bytes = reader.opened.pread(end - begin, begin)
        except Exception as error:
            raise reader.source.error or error from error
        return found

    def _reader(self, file: File) -> _Reader:
        return self.readers.get(file, partial(self._open, file))

    def _open(self, file: File) -> _Reader:
        source, opened = self._opened(file, buffer_size=_BUFFER)
        try:
            self._read_points(file, opened)
        except (OSError, zlib.error):  # removed since, or damaged
            self._write_points(file)
            self._read_points(file, opened)
        return _Reader(opened, source, _WINDOW * len([*opened.seek_points()]))

    def _opened(self, file: File, **options: int) -> tuple[FileObject, Any]:
        library = optional_module("indexed_gzip", "gzip", "random access in .gz")
        source = FileObject(file, int(super().read_bounds(file)[0, -1]))  # what isn't damaged
        return source, library.IndexedGzipFile(fileobj=source, **options)

    def _path(self, file: File) -> str:
        return f"{self.path(file)}.points"

    def _read_points(self, file: File, opened: Any) -> None:
        touch(self._path(file))
        opened.import_index(fileobj=BytesIO(zlib.decompress(Path(self._path(file)).read_bytes())))

    def _write_points(self, file: File) -> None:
        source, opened = self._opened(file, spacing=SPACING)
        points = BytesIO()
        try:
            opened.build_full_index()
            opened.export_index(fileobj=points)
        except Exception as error:
            raise source.error or damaged_error(file, self.kind, 0, error) from error
        with cache_errors(self.folder):
            write_atomically(self._path(file), zlib.compress(points.getbuffer()))


def _is_large(members: Uint64Array) -> bool:
    begins = members[1]
    return len(begins) > 1 and int((begins[1:] - begins[:-1]).max()) > LARGE
