"""The bytes of a file, without its compression, by their offsets."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from lazyckpt.core.checks import one_of
from lazyckpt.errors import ArgumentError
from lazyckpt.io.block_compressed import BlockCompressedFile
from lazyckpt.io.decompress import Zstd, compression_from_suffix, file_chunks, plain_chunks
from lazyckpt.io.gzip import Gzip
from lazyckpt.io.mapped_arrays import Uint64Array
from lazyckpt.io.storage import File, Ranges, storage_of

Compression: TypeAlias = Literal["infer", "none", "gzip", "zstd"] | Zstd

CHUNK = 1 << 20  # bytes that are read at once

_one_of = one_of("infer", "none", "gzip", "zstd")


def compression_check(value: Any) -> str | Zstd:
    """Accept the name of a compression, or options of zstd."""
    return value if isinstance(value, Zstd) else str(_one_of(value))


class Content(Protocol):
    """The bytes of files, by their offsets."""

    def chunks(self, file: File) -> Iterator[bytes]:
        """All of them, in order; seek points found on the way are kept."""

    def read_ranges(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        """Those of several ranges."""

    def block_begins(self, file: File) -> Uint64Array:
        """The offsets at which what is decompressed together begins."""

    def size(self, file: File) -> int:
        """How many bytes there are, once they were read from the front."""


class ChecksummedChunks(Iterator[bytes]):
    """Chunks, and in `sum` the checksum of those that have come."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self.sum = chunks, 0

    def __next__(self) -> bytes:
        chunk = next(self._chunks)
        self.sum = zlib.crc32(chunk, self.sum)
        return chunk


class _Plain:
    """Files that aren't compressed."""

    def chunks(self, file: File) -> Iterator[bytes]:
        return file_chunks(file, CHUNK)

    def read_ranges(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        return storage_of(file.path).read_ranges(file, ranges)

    def block_begins(self, file: File) -> Uint64Array:
        return np.zeros(1, np.uint64)

    def size(self, file: File) -> int:
        return file.size


_plain = _Plain()


def open_content(path: str, compression: str | Zstd, folder: str) -> Content:
    """How a file is read, by its compression; `folder` is where seek points are kept."""
    kind = infer_compression(path) if compression == "infer" else compression
    return _plain if kind == "none" else _compressed(kind, folder)


@lru_cache
def _compressed(kind: str | Zstd, folder: str) -> Content:
    return Gzip(folder) if kind == "gzip" else BlockCompressedFile(kind, folder)


@dataclass(frozen=True)
class ContentScan:
    """A `Scan` of what files hold, by the offsets at which rows begin, and the last one ends."""

    compression: str | Zstd
    folder: str  # where seek points are kept
    columns = 1
    is_bounds = True

    def content(self, file: File) -> Content:
        """What a file holds."""
        return open_content(file.path, self.compression, self.folder)

    def chunks(self, file: File) -> Iterator[bytes]:
        """All of what a file holds, which isn't compressed by mistake."""
        content = self.content(file)
        return plain_chunks(file, CHUNK) if content is _plain else content.chunks(file)


def infer_compression(path: str) -> str:
    """The compression that a name says."""
    kind = compression_from_suffix(path) or "none"
    if kind not in ("none", "gzip", "zstd"):
        raise ArgumentError(
            f"{path}: .{path.rpartition('.')[2]} has no random access; read it as a stream: "
            "source(files) | flat_map(lz.io.iter_text), or convert it to .gz or .zst"
        )
    return kind
