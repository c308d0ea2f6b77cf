"""zstd: frames, of which each is read for itself."""

from __future__ import annotations

from functools import lru_cache

from lazyckpt.errors import ArgumentError
from lazyckpt.io.framed import Framed
from lazyckpt.io.storage import File

MOST = 1 << 26  # bytes of a frame without compression


class Zstd(Framed):
    """Files of frames, as pzstd and the seekable format write them, or of one that isn't large.

    Frames are found when the file is first read, so that the table of the seekable format
    isn't needed, and files of many frames without one have random access too.
    """

    def check_piece(self, file: File, begin: int, size: int) -> None:
        if size > MOST:
            raise ArgumentError(
                f"{file.path}: its frame from byte {begin:,} on holds more than {MOST:,} bytes, "
                "all of which one row would read; read it as a stream, source(files) | "
                "flat_map(lz.io.iter_text), or compress it in smaller frames, as pzstd does"
            )


@lru_cache
def content(folder: str) -> Zstd:
    """What reads zstd files, and keeps in a folder where frames begin."""
    return Zstd("zstd", folder)
