"""`read_tar`: samples of tar files by number, as WebDataset lays them out."""

from __future__ import annotations

import io
import os
import re
import tarfile
import zlib
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.executors.executor import Executor
from lazyckpt.io.content import Compression, ContentScan, inferred
from lazyckpt.io.files import Files, as_files
from lazyckpt.io.records import MAX_RECORD, Options, Records
from lazyckpt.io.rows import RecordError, Rows
from lazyckpt.io.storage import File, storage_of
from lazyckpt.io.stored_file import StoredFile

_BLOCK = 512
_BEFORE = (b"x", b"g", b"X", b"L", b"K")  # types of what says more of the next member
_MAP = 1 << 16  # bytes in which the map of a sparse member ends
_NAME = re.compile(r"((?:.*/)?[^/.]+)\.([^/]+)", re.DOTALL)
_FLUSH = 1 << 12  # samples whose places are given at once
_SKIPPED = 1 << 20  # bytes of a stream that are passed over at once
_BUFFER = 1 << 13  # bytes that are read at once for a header


class SampleScan(ContentScan):
    """Where samples begin: members in a row of one key, by the headers of all.

    An archive that is cut has a last sample that can't be read; of no bytes, where it is cut
    between two.
    """

    @property
    def name(self) -> str:
        return f"samples {self.compression}"

    def __call__(self, file: File) -> Generator[NDArray[Any], None, int]:
        found = 0
        for bounds in self._entries(file):
            found = zlib.crc32(bounds.tobytes(), found)  # of what members hold nothing is read
            yield bounds
        return found

    def _entries(self, file: File) -> Iterator[NDArray[Any]]:
        known = _energon(file)
        if known is not None:
            yield known
            return
        bounds: list[int] = []
        for bound in self._bounds(file):
            bounds.append(bound)
            if len(bounds) >= _FLUSH:
                yield np.array(bounds, np.uint64)
                bounds.clear()
        yield np.array(bounds, np.uint64)

    def _bounds(self, file: File) -> Iterator[int]:
        source = self._source(file)
        last, end = "", 0
        for member, start, stop in _spans(source):
            key, _ = split_name(member)
            end = stop
            if key and key != last:
                yield start
                last = key
        size = source.drained() if isinstance(source, _Stream) else file.size
        is_ended = size >= end + _BLOCK and self._is_end(file, end)
        if not (end or is_ended):
            raise RecordError(f"{file.path}: it doesn't begin with a header of tar")
        if end <= size:
            yield end
        if not is_ended:
            yield size

    def _is_end(self, file: File, end: int) -> bool:
        """Whether the archive says that it ends, where there is no header."""
        (block,) = self.content(file).read_ranges(file, [(end, end + _BLOCK)])
        return not any(block)

    def _source(self, file: File) -> Any:
        if self.compression == "none" or (self.compression == "infer" and _is_plain(file)):
            return io.BufferedReader(StoredFile(file), _BUFFER)
        return _Stream(self.content(file).chunks(file))


def _is_plain(file: File) -> bool:
    return inferred(file.path) == "none"


def _spans(source: Any) -> Iterator[tuple[tarfile.TarInfo, int, int]]:
    """Members, each with where its first header begins and where its last block ends.

    They end where there is no header, and are not kept, as `TarFile` keeps them.
    """
    stop = 0
    while (found := _header(source)) is not None:
        member, length, left = found
        source.seek(left, io.SEEK_CUR)
        start, stop = stop, stop + length + left
        yield member, start, stop


def _header(source: Any) -> tuple[tarfile.TarInfo, int, int] | None:
    """A member, how many bytes were read of it, and how many are left; None if there is none."""
    content = b""
    try:
        while (member := _block(header := source.read(_BLOCK))).type in _BEFORE:
            content += header + source.read(_padded(member.size))
        size, is_plain = member.size, not content
        content += header
        is_more = member.type == tarfile.GNUTYPE_SPARSE and header[482]
        while is_more:  # of its map
            content += source.read(_BLOCK)
            is_more = content[-8]
        read = 0
        if not is_plain:
            if b" GNU.sparse.major=1\n" in content:
                content += source.read(read := min(_padded(size), _MAP))
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
                named = archive.next()
            member = _checked(named)
            size = int(member.pax_headers.get("size", size))
    except (tarfile.TarError, ValueError, IndexError):
        return None
    is_empty = member.islnk() or member.issym() or member.isdir() or member.isdev()
    return member, len(content), 0 if is_empty else _padded(size) - read


def _block(header: bytes) -> tarfile.TarInfo:
    return _checked(tarfile.TarInfo.frombuf(header, tarfile.ENCODING, "surrogateescape"))


def _checked(member: tarfile.TarInfo | None) -> tarfile.TarInfo:
    if member is None or member.size < 0 or int(member.pax_headers.get("size", 0)) < 0:
        raise tarfile.HeaderError("no header, or a size below 0")
    return member


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


class _Stream:
    """Chunks, as a file that is read from the front."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._left = chunks, b""
        self._passed = 0

    def read(self, size: int) -> bytes:
        parts = [self._left]
        while (missing := size - sum(map(len, parts))) > 0:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            self._passed += len(chunk)
            parts.append(chunk)
        found = b"".join(parts)
        self._left = found[size:] if missing <= 0 else b""
        return found[:size]

    def seek(self, count: int, whence: int) -> None:
        """Go on, from here."""
        while count > 0 and (part := self.read(min(count, _SKIPPED))):
            count -= len(part)

    def drained(self) -> int:
        """How many bytes there are in all."""
        return self._passed + sum(map(len, self._chunks))


def _energon(file: File) -> NDArray[Any] | None:
    """Where samples begin, by the index of Megatron Energon beside a file, if there is one."""
    if not file.path.endswith(".tar"):
        return None
    path = f"{file.path}.idx"
    try:
        index = storage_of(path).stat(path)
    except FileNotFoundError:
        return None
    content = storage_of(path).read(index, 0, index.size)
    found = np.frombuffer(content[: len(content) // 8 * 8], "<i8")
    is_whole = len(found) > 1 and len(content) % 8 == 0 and bool((np.diff(found) > 0).all())
    if not is_whole or found[0] % _BLOCK or found[-1] > file.size:
        raise RecordError(f"{path}: no index of {file.path}, or of another version of it")
    return found


def split_name(member: tarfile.TarInfo) -> tuple[str, str]:
    """The key and the extension of a member, both empty if it is none of a sample."""
    found = _NAME.fullmatch(member.name) if member.isreg() else None
    return (found[1], found[2].lower()) if found else ("", "")


class _Samples(Records[dict[str, Any]]):
    """Samples, as dicts of bytes."""

    reader = "read_tar"

    def __init__(self, files: Files, options: Options) -> None:
        super().__init__(files, SampleScan(options.compression, options.index_dir), options, {})

    def decode(self, record: bytes) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for member, content in _plain_members(record) or _members(record):
            key, extension = split_name(member)
            if not key:
                continue
            found.setdefault("__key__", key)
            if found["__key__"] != key or extension in found:
                raise ValueError(f"{member.name!r} in the sample {found['__key__']!r}")
            if len(content) < member.size:
                raise ValueError(f"{member.name!r} is cut")
            found[extension] = content
        if not found:
            raise ValueError("it is cut: the archive doesn't say that it ends")
        return found


def _plain_members(record: bytes) -> list[tuple[tarfile.TarInfo, bytes]] | None:
    """Members that are files alone, of short names; None if there are others, or damage."""
    found = []
    at = 0
    while at < len(record):
        header = record[at : at + _BLOCK]
        try:
            member = _block(header)
        except tarfile.HeaderError:
            return None
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            return None
        start = at + _BLOCK
        found.append((member, record[start : start + member.size]))
        at = start + _padded(member.size)
    return found if at == len(record) else None


def _members(record: bytes) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Members of whatever kind."""
    with tarfile.open(fileobj=io.BytesIO(record), mode="r:") as archive:
        for member in archive:
            part = archive.extractfile(member) if member.isreg() else None
            yield member, b"" if part is None else part.read()
    if [0, *(stop for *_, stop in _spans(io.BytesIO(record)))][-1] != len(record):
        raise ValueError("a header is damaged, or the archive is cut")


def read_tar(
    files: Any,
    *,
    compression: Compression = "infer",
    max_record_bytes: int = MAX_RECORD,
    index_dir: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> Rows[dict[str, Any]]:
    """The samples of tar files, by number, as WebDataset has them: dicts of bytes.

    Members in a row whose names are alike up to the first dot are a sample: `dir/7.jpg` and
    `dir/7.seg.png` are `{"__key__": "dir/7", "jpg": ..., "seg.png": ...}`, extensions in lower
    case. Members without a dot, folders and links are left out. Decoding is `map`'s. A `.tar.idx`
    of Megatron Energon beside a file is read in place of an index.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Raises:
        RecordError: A file is no tar file; or a sample is cut, or has two members of one extension.

    >>> import lazyckpt as lz
    >>> import io, tarfile
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with tarfile.open(f"{folder}/a.tar", "w") as archive:
    ...         for name in ("1.txt", "1.cls", "2.txt"):
    ...             info = tarfile.TarInfo(name)
    ...             info.size = 2
    ...             archive.addfile(info, io.BytesIO(b"hi"))
    ...     list(lz.io.read_tar(f"{folder}/a.tar", index_dir=folder))
    [{'__key__': '1', 'txt': b'hi', 'cls': b'hi'}, {'__key__': '2', 'txt': b'hi'}]
    """
    options = Options.of("read_tar", compression, max_record_bytes, index_dir, executor, progress)
    return _Samples(as_files(files, "read_tar"), options)
