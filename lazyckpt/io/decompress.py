"""Decompression from the front, piece by piece: members, frames, streams."""

from __future__ import annotations

import bz2
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from lazyckpt.core.checks import Unfit, at_least, checked
from lazyckpt.errors import ArgumentError, PipelineError
from lazyckpt.io.storage import File, missing_package_error, storage_of

RAW = 1 << 18  # bytes of a file per read
MADE = 1 << 20  # most bytes decompressed per step, so that a zip bomb can't fill memory


class Decompressor(Protocol):
    """A decompressor of one piece, like those of `bz2`, `lzma` and `compression.zstd`."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Inflate:
    """zlib's decompressor, with the interface of the others."""

    def __init__(self, inner: Any) -> None:
        self._inner: Any = inner

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof)

    @property
    def needs_input(self) -> bool:
        # Bytes that it holds back without a tail come with the next input, and a trailer follows.
        return not (self._inner.unconsumed_tail or self.eof)

    @property
    def unused_data(self) -> bytes:
        found: bytes = self._inner.unused_data
        return found

    def decompress(self, data: bytes, max_length: int) -> bytes:
        made: bytes = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        return made


def _gunzip() -> Decompressor:
    """Return a decompressor of one gzip member: isal's takes 0.6 of zlib's time, if installed."""
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
        raise missing_package_error(name, "zstd", "reading .zst") from error


@dataclass(frozen=True)
class Zstd:
    """Options to decompress zstd files, for `compression=` of a reader.

    Args:
        max_window_log: Base-2 logarithm of the largest window in bytes, from 10 to 31. A file
            made by `zstd --long=31` needs 31. Each worker that reads such a file may allocate a
            window of that size, and `iter_text` one per open file.
        dictionary: Content of the dictionary that the files were compressed with, if any.

    >>> import lazyckpt as lz
    >>> lz.io.Zstd(max_window_log=31)
    Zstd(max_window_log=31, dictionary=b'')
    """

    max_window_log: int = 27
    dictionary: bytes = b""

    def __post_init__(self) -> None:
        checked("Zstd", "max_window_log", self.max_window_log, at_least(10, 31))
        checked("Zstd", "dictionary", self.dictionary, _dictionary)

    def decompressor(self) -> Decompressor:
        """Return a decompressor of one frame."""
        zstd = zstd_module()
        made: Decompressor = zstd.ZstdDecompressor(
            self._dictionary(zstd),
            {zstd.DecompressionParameter.window_log_max: self.max_window_log},
        )
        return made

    def _dictionary(self, zstd: Any) -> Any:
        if not self.dictionary:
            return None
        is_raw = not self.dictionary.startswith(_DICTIONARY)
        return zstd.ZstdDict(self.dictionary, is_raw=is_raw)


_DICTIONARY = b"\x37\xa4\x30\xec"  # the first bytes of a trained dictionary


def _dictionary(value: Any) -> bytes:
    if not isinstance(value, bytes) or 0 < len(value) < 8:
        raise Unfit("the bytes of a dictionary, at least 8")
    return value


_NEEDED = {  # words in zstd's errors, and the missing option
    "too much memory": "max_window_log=31",
    "Dictionary mismatch": "dictionary=BYTES",
}

Kind: TypeAlias = str | Zstd


def name_of(kind: Kind) -> str:
    """Return the name of a compression."""
    return kind if isinstance(kind, str) else "zstd"


_KINDS: dict[str, Callable[[], Decompressor]] = {
    "gzip": _gunzip,
    "zstd": Zstd().decompressor,
    "xz": lzma.LZMADecompressor,
    "bz2": bz2.BZ2Decompressor,
}
_SUFFIXES = {
    "gz": "gzip", "bgz": "gzip", "tgz": "gzip", "zst": "zstd", "zstd": "zstd", "tzst": "zstd",
    "xz": "xz", "lzma": "xz", "txz": "xz", "bz2": "bz2", "tbz2": "bz2", "tbz": "bz2",
}  # fmt: skip
_MAGIC = {  # first bytes of files
    "gzip": rb"\x1f\x8b\x08",
    "zstd": rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18",
    "xz": rb"\xfd7zXZ\0",
    "bz2": rb"BZh[1-9](1AY&SY|\x17rE8P\x90)",
}
_OTHERS = {  # unsupported formats: a command that decompresses them, and their first bytes
    "lz4": ("lz4 -dc", rb"\x04\x22\x4d\x18"),
    "br": ("brotli -dc", rb"(?!)"),
    "sz": ("snzip -dc", rb"\xff\x06\0\0sNaPpY"),
    "snappy": ("snzip -dc", rb"(?!)"),
    "Z": ("gzip -dc", rb"\x1f\x9d"),
    "zip": ("unzip -p", rb"PK\x03\x04"),
    "7z": ("7z x -so", rb"7z\xbc\xaf\x27\x1c"),
}
_UNREAD = {name.lower(): name for name in _OTHERS}
_HEAD = 4  # bytes that identify a format
_PADDED = {"gzip", "xz"}  # zeros may stand between pieces


def compression_from_suffix(path: str) -> str | None:
    """Return the compression that a file name ends with, one of those that can be streamed."""
    suffix = path.rpartition(".")[2].lower()
    if suffix in _UNREAD:
        raise ArgumentError(f"{path}: .{suffix} is not supported; {_advice(_UNREAD[suffix], path)}")
    return _SUFFIXES.get(suffix)


def _advice(name: str, path: str) -> str:
    return f"compress it as .gz or .zst instead: {_OTHERS[name][0]} {path} | zstd > NEW.zst"


def check_head(file: File, kind: Kind | None, head: bytes) -> None:
    """Raise an error if the first bytes of a file show a compression other than `kind`."""
    for name, (_, magic) in _OTHERS.items():
        if re.match(magic, head):
            raise ArgumentError(
                f"{file.path}: by its first bytes it is compressed as .{name}, which is not "
                "supported; " + _advice(name, file.path)
            )
    found = next((name for name, magic in _MAGIC.items() if re.match(magic, head)), None)
    wanted = None if kind is None else name_of(kind)
    if found == wanted or (found is None and (wanted == "xz" or len(head) < _HEAD)):
        return
    if found is not None:
        raise ArgumentError(
            f"{file.path}: by its first bytes it is compressed by {found}; rename it with that "
            "suffix" + f', or pass compression="{found}"' * (found in ("gzip", "zstd"))
        )
    raise ArgumentError(
        f"{file.path}: by its first bytes it is not {wanted}; if it isn't compressed, rename it "
        'without that suffix, or pass compression="none"'
    )


def decompressor(kind: Kind) -> Decompressor:
    """Return a decompressor of one piece."""
    return kind.decompressor() if isinstance(kind, Zstd) else _KINDS[kind]()


class Damaged(PipelineError):
    """A compressed file can't be read from some byte on.

    Attributes:
        begin: First byte of the member, frame or stream that can't be read.
        is_cut: True if the file ends in it.
    """

    begin = 0
    is_cut = False


def damaged_error(
    file: File, kind: Kind, begin: int, reason: object, *, is_cut: bool = False
) -> Damaged:
    """Return the error of a piece that can't be decompressed."""
    error = Damaged(
        f"{file.path} is damaged, or not {name_of(kind)}, from byte {begin:,} on: {reason}"
    )
    error.begin, error.is_cut = begin, is_cut
    return error


def decompressed_pieces(file: File, kind: Kind) -> Iterator[tuple[bytes, int]]:
    """Yield the content of a file in parts, each with the offset at which its piece begins.

    A piece is a member of gzip, a frame of zstd, or a stream of xz or bz2.

    Raises:
        Damaged: If a piece can't be decompressed, or is cut.
    """
    begin = passed = 0  # where the current piece begins; bytes of the file that were read
    inner: Decompressor | None = None
    for data in file_chunks(file, RAW):
        if not passed:
            check_head(file, kind, data)
        passed += len(data)
        while data or (inner is not None and not inner.needs_input):
            if inner is None:
                if name_of(kind) in _PADDED and passed > len(data):
                    data = data.lstrip(b"\0")
                if not data:
                    break
                begin, inner = passed - len(data), decompressor(kind)
            try:
                made = inner.decompress(data, MADE)
            except Exception as error:  # each library has its own
                _check_options(file, error)
                raise damaged_error(file, kind, begin, error) from error
            data = b""
            if made:
                yield made, begin
            if inner.eof:
                data, inner = inner.unused_data, None
    if inner is not None:
        raise damaged_error(file, kind, begin, "it ends too early", is_cut=True)


def _check_options(file: File, error: Exception) -> None:
    """Raise an error that names the option if a frame of zstd needs one."""
    for reason, option in _NEEDED.items():
        if reason in f"{error}":
            raise ArgumentError(
                f"{file.path}: {error}; pass compression=lz.io.Zstd({option})"
            ) from error


def file_chunks(file: File, size: int) -> Iterator[bytes]:
    """Yield the bytes of a file, `size` at a time."""
    storage = storage_of(file.path)
    for start in range(0, file.size, size):
        yield storage.read(file, start, min(start + size, file.size))


def plain_chunks(file: File, size: int) -> Iterator[bytes]:
    """Yield the bytes of a file like `file_chunks`, and check that they aren't compressed."""
    for number, chunk in enumerate(file_chunks(file, size)):
        if not number:
            check_head(file, None, chunk)
        yield chunk
