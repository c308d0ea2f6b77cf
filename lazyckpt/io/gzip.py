"""gzip: members where they are small, the spans between seek points where one is large.

Seek points are found by indexed_gzip, and kept as it writes them. Of rapidgzip a pass from the
front takes 0.6 of the CPU time, but it aborts the interpreter where a file is open at its exit,
which forked workers can't help. Neither notices a file that is cut off, so that the
first pass is zlib's, which checks all of it; and zlib reads the spans, each as far as is
asked for.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from lazyckpt.errors import PipelineError
from lazyckpt.io.cache import storing, writing
from lazyckpt.io.decompress import Decompressor, Gunzip
from lazyckpt.io.framed import Framed
from lazyckpt.io.numbers import Numbers
from lazyckpt.io.storage import File, optional_module, storage_of
from lazyckpt.io.stored_file import StoredFile

SPACING = 1 << 20  # bytes between seek points, each of which is 32 KiB in the index
MOST = 1 << 22  # bytes of a member that is read for itself

_WINDOW = 1 << 15
# What indexed_gzip writes: a header, a row for each point, and the windows of those that have one.
_HEADER = np.dtype(
    [("magic", "S5"), ("version", "<u2"), ("compressed", "<u8"), ("size", "<u8"),
     ("spacing", "<u4"), ("window", "<u4"), ("points", "<u4")]
)  # fmt: skip
_POINT = np.dtype([("at", "<u8"), ("begin", "<u8"), ("bits", "u1"), ("has_window", "u1")])


class Gzip(Framed):
    """Files of small members, as bgzip writes them, or of large ones with seek points."""

    def chunks(self, file: File) -> Iterator[bytes]:
        yield from super().chunks(file)
        if _is_large(super().noted(file)):
            self._write_points(file)

    def noted(self, file: File) -> Numbers:
        """Where pieces begin. Of spans also how many bits of the byte before, and the window."""
        members = super().noted(file)
        if not _is_large(members):
            return members
        found = _points(self._path(file))
        if found is None:  # lost since, or damaged
            self._write_points(file)
            found = _points(self._path(file))
        if found is None:
            raise PipelineError(f"{self._path(file)} was removed while it was made")
        end = np.array([[file.size], members[1, -1:], [0], [0]], np.uint64)
        return np.append(found, end, axis=1)

    def begun(self, file: File, number: int) -> tuple[Decompressor, bytes]:
        bounds = self.bounds(file)
        if len(bounds) == 2:
            return super().begun(file, number)
        (first, last), (_, _), (bits, _), (window, _) = bounds[:, number : number + 2].tolist()
        content = storage_of(file.path).read(file, first - (bits > 0), last)
        inner = zlib.decompressobj(-15, zdict=self._window(file, window) if window else b"")
        return Gunzip(inner), _shifted(content, 8 - bits) if bits else content

    def _window(self, file: File, at: int) -> bytes:
        """What comes before a span, of which it may repeat parts."""
        with open(self._path(file), "rb") as points:
            points.seek(at)
            return points.read(_WINDOW)

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


def _points(path: str) -> Numbers | None:
    """Seek points: in the file, in what it holds, bits, and where windows are, or 0."""
    try:
        with open(path, "rb") as file:
            header: Any = np.frombuffer(file.read(_HEADER.itemsize), _HEADER)
            is_known = len(header) and header["magic"] == b"GZIDX" and header["version"] == 1
            count = int(header["points"][0]) if is_known else 0
            points: Any = np.frombuffer(file.read(count * _POINT.itemsize), _POINT)
            begin, end = file.tell(), file.seek(0, os.SEEK_END)
    except FileNotFoundError:
        return None
    windows = np.cumsum(points["has_window"], dtype=np.uint64)
    if not count or end != begin + _WINDOW * int(windows[-1]):
        return None
    places = np.where(points["has_window"], begin + (windows - 1) * _WINDOW, 0)
    found = np.stack([points["at"], points["begin"], points["bits"], places]).astype(np.uint64)
    is_more = np.diff(found[1], append=found[1, -1] + 1) > 0  # at the end there may be none
    return np.ascontiguousarray(found[:, is_more])


def _shifted(content: bytes, bits: int) -> bytes:
    """The bytes from bit `bits` of the first one on."""
    found = np.frombuffer(content, np.uint8)
    high = np.append(found[1:], np.uint8(0)) << np.uint8(8 - bits)
    return ((found >> np.uint8(bits)) | high).tobytes()


@lru_cache
def content(folder: str) -> Gzip:
    """What reads gzip files, and keeps seek points in a folder."""
    return Gzip("gzip", folder)
