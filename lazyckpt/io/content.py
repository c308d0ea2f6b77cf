"""The bytes of a file, without its compression, by their offsets."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, Protocol, TypeAlias

import numpy as np

from lazyckpt.core.checks import Check, one_of
from lazyckpt.errors import ArgumentError
from lazyckpt.io.decompress import check_plain, compression_of
from lazyckpt.io.numbers import Numbers
from lazyckpt.io.storage import File, Ranges, storage_of

Compression: TypeAlias = Literal["infer", "none", "gzip", "zstd"]

CHUNK = 1 << 20  # bytes that are read at once

_MODULES = {"gzip": "lazyckpt.io.gzip", "zstd": "lazyckpt.io.zstd"}

compression_check: Check = one_of("infer", "none", "gzip", "zstd")


class Content(Protocol):
    """The bytes of files, by their offsets."""

    def chunks(self, file: File) -> Iterator[bytes]:
        """All of them, in order; seek points found on the way are kept."""

    def read_ranges(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        """Those of several ranges."""

    def block_begins(self, file: File) -> Numbers:
        """The offsets at which what is decompressed together begins."""


class Summed(Iterator[bytes]):
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
        storage = storage_of(file.path)
        for start in range(0, file.size, CHUNK):
            yield storage.read(file, start, min(start + CHUNK, file.size))

    def read_ranges(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        return storage_of(file.path).read_ranges(file, ranges)

    def block_begins(self, file: File) -> Numbers:
        return np.zeros(1, np.uint64)


_plain = _Plain()


def content_of(path: str, compression: str, folder: str) -> Content:
    """How a file is read, by its compression; `folder` is where seek points are kept."""
    kind = inferred(path) if compression == "infer" else compression
    if kind == "none":
        return _plain
    made: Content = import_module(_MODULES[kind]).content(folder)
    return made


@dataclass(frozen=True)
class ContentScan:
    """A `Scan` of what files hold, by the offsets at which rows begin, and the last one ends."""

    compression: str
    folder: str  # where seek points are kept
    columns = 1
    is_bounds = True

    def content(self, file: File) -> Content:
        """What a file holds."""
        return content_of(file.path, self.compression, self.folder)

    def text_chunks(self, file: File) -> Iterator[bytes]:
        """All of what a file of text holds, which no compressed one is by mistake."""
        chunks = self.content(file).chunks(file)
        if (first := next(chunks, None)) is not None:
            check_plain(file, first)
            yield first
            yield from chunks


def inferred(path: str) -> str:
    """The compression that a name says."""
    kind = compression_of(path) or "none"
    if kind not in ("none", *_MODULES):
        raise ArgumentError(
            f"{path}: .{path.rpartition('.')[2]} has no random access; read it as a stream: "
            "source(files) | flat_map(lz.io.iter_text), or convert it to .gz or .zst"
        )
    return kind
