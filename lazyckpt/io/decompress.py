"""Compressed files from the front, piece by piece: members, frames, streams."""

from __future__ import annotations

import bz2
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Protocol

from lazyckpt.errors import PipelineError
from lazyckpt.io.storage import File, missing, storage_of

_RAW = 1 << 18  # bytes of a file that are read at once
_MADE = 1 << 20  # bytes that are made at once, so that a zip bomb fills no memory


class Decompressor(Protocol):
    """What undoes one piece, as those of `bz2`, `lzma` and `compression.zstd` do."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Inflate:
    """zlib's decompressor, as the others are."""

    def __init__(self, inner: Any) -> None:
        self._inner: Any = inner
        self._is_full = False  # it may have made more than it gave

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof)

    @property
    def needs_input(self) -> bool:
        return not (self._inner.unconsumed_tail or self._is_full or self.eof)

    @property
    def unused_data(self) -> bytes:
        found: bytes = self._inner.unused_data
        return found

    def decompress(self, data: bytes, max_length: int) -> bytes:
        made: bytes = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        self._is_full = len(made) == max_length
        return made


def _gunzip() -> Decompressor:
    """What undoes a gzip member: isal's takes 0.6 of zlib's time, and isn't built everywhere."""
    try:
        isal: Any = import_module("isal.igzip_lib")
    except ImportError:
        return _Inflate(zlib.decompressobj(31))
    made: Decompressor = isal.IgzipDecompressor(isal.DECOMP_GZIP)
    return made


def zstd_module() -> Any:
    """The standard library's zstd, or its backport."""
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    try:
        return import_module(name)
    except ImportError as error:
        raise missing(name, "zstd", "reading .zst") from error


def _unzstd() -> Decompressor:
    made: Decompressor = zstd_module().ZstdDecompressor()
    return made


_KINDS: dict[str, Callable[[], Decompressor]] = {
    "gzip": _gunzip,
    "zstd": _unzstd,
    "xz": lzma.LZMADecompressor,
    "bz2": bz2.BZ2Decompressor,
}
_SUFFIXES = {
    "gz": "gzip", "bgz": "gzip", "zst": "zstd", "zstd": "zstd",
    "xz": "xz", "lzma": "xz", "bz2": "bz2",
}  # fmt: skip
_PADDED = {"gzip", "xz"}  # zeros may stand between pieces


def compression_of(path: str) -> str | None:
    """The compression that the end of a name says, of those that are read from the front."""
    return _SUFFIXES.get(path.rpartition(".")[2])


def decompressor(kind: str) -> Decompressor:
    """What undoes one piece."""
    return _KINDS[kind]()


def pieces(file: File, kind: str) -> Iterator[tuple[bytes, int]]:
    """What a file holds, some of it at a time, each with where in the file its piece begins."""
    begin = 0  # where the piece at hand begins
    inner: Decompressor | None = None
    passed = 0  # bytes of the file that were taken
    for data in _raw(file):
        passed += len(data)
        while data or (inner is not None and not inner.needs_input):
            if inner is None:
                data = data.lstrip(b"\0") if kind in _PADDED and passed > len(data) else data
                if not data:
                    break
                begin, inner = passed - len(data), decompressor(kind)
            try:
                made = inner.decompress(data, _MADE)
            except Exception as error:  # each library's own
                raise damaged(file, kind, begin, error) from error
            data = b""
            if made:
                yield made, begin
            if inner.eof:
                data, inner = inner.unused_data, None
    if inner is not None:
        raise damaged(file, kind, begin, "it ends too early")


def _raw(file: File) -> Iterator[bytes]:
    storage = storage_of(file.path)
    for start in range(0, file.size, _RAW):
        yield storage.read(file, start, min(start + _RAW, file.size))


def damaged(file: File, kind: str, begin: int, reason: object) -> PipelineError:
    """The error of a piece that can't be decompressed."""
    return PipelineError(f"{file.path} is damaged, or no {kind}, from byte {begin:,} on: {reason}")
