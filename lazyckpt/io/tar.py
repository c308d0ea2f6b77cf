"""`read_tar`: samples of tar files by number, in WebDataset's layout."""

from __future__ import annotations

import io
import os
import re
import tarfile
import zlib
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazyckpt.executors.executor import Executor
from lazyckpt.io.content import Compression, ContentScan, infer_compression
from lazyckpt.io.decompress import Damaged, check_head
from lazyckpt.io.files import Files, as_files
from lazyckpt.io.records import MAX_RECORD, Options, Records
from lazyckpt.io.rows import RecordError, Rows
from lazyckpt.io.storage import ChunkStream, File, FileObject, storage_of

_BLOCK = 512
_PAX = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)  # types of extended headers of the next member
_BEFORE = (*_PAX, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_EMPTY = (  # types without content, whatever the size in their headers
    *(tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE),
    *(tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE),
)
_LONGEST = 1 << 20  # most bytes of an extended header
_NAME = re.compile(r"((?:.*/)?[^/.]+)\.([^/]+)", re.DOTALL)
_FLUSH = 1 << 12  # samples whose offsets are yielded together
_SKIPPED = 1 << 20  # bytes of a stream that are skipped per read
_BUFFER = 1 << 13  # bytes per read of a header


class SampleScan(ContentScan):
    """The offsets of samples: consecutive members with the same key, found by reading all headers.

    An archive ends with a block of zeros, as in `tarfile`, or with its last member. If it is cut
    inside a member or a header, its last sample can't be read.
    """

    @property
    def name(self) -> str:
        return f"samples {self.compression}"

    def __call__(self, file: File) -> Generator[NDArray[Any], None, int]:
        found = 0
        for bounds in self._entries(file):
            found = zlib.crc32(bounds.tobytes(), found)  # the content of members isn't read
            yield bounds
        return found

    def _entries(self, file: File) -> Iterator[NDArray[Any]]:
        known = _energon(file)
        if known is not None:
            yield known
            return
        bounds = self._bounds(file)
        while some := [*islice(bounds, _FLUSH)]:
            yield np.array(some, np.uint64)

    def _bounds(self, file: File) -> Iterator[int]:
        is_plain = self.compression == "none" or (
            self.compression == "infer" and infer_compression(file.path) == "none"
        )
        raw = FileObject(file) if is_plain else ChunkStream(self.content(file).chunks(file))
        source = io.BufferedReader(raw, _BUFFER)
        if is_plain:
            check_head(file, None, source.peek(_BLOCK))
        last, end = "", 0
        for member in _members(source):
            key, _ = split_name(member.name) if member.is_file else ("", "")
            if key and key != last:
                yield member.start
                last = key
            end = member.stop
        if not is_plain:
            _skip(source, 1 << 63)  # the rest, so that the whole file is checked
        size = self.content(file).size(file)
        try:
            is_ended = end == size > 0 or (end < size and self._is_end(file, end, size))
        except Damaged:
            is_ended = False
        else:
            if not (end or is_ended):
                raise RecordError(f"{file.path}: it doesn't begin with a tar header")
        if not (last or is_ended):  # no sample would report the damage
            yield 0
        yield end if is_ended else size  # the last sample may have had more members

    def _is_end(self, file: File, end: int, size: int) -> bool:
        """Return whether a block without a header marks the end of the archive."""
        (block,) = self.content(file).read_ranges(file, [(end, min(end + _BLOCK, size))])
        return not any(block)


class _Member(NamedTuple):
    """A member of an archive.

    - `start`, `data`, `stop`: the offsets of its first header, its content, and its end
    - `size`: bytes of its content as stored
    """

    name: str
    is_file: bool
    is_sparse: bool
    start: int
    data: int
    stop: int
    size: int


def _members(source: io.BufferedIOBase) -> Iterator[_Member]:
    """Yield members until there is no header; unlike `TarFile`, keep none of them."""
    stop = 0
    while (member := _member(source, stop)) is not None:
        _skip(source, member.stop - member.data)
        stop = member.stop
        yield member


def _member(source: io.BufferedIOBase, start: int) -> _Member | None:
    """Return the member whose first header begins here; None if there is none."""
    at, said = start, dict[str, str]()
    try:
        while (header := _header(block := source.read(_BLOCK))).type in _BEFORE:
            if header.size > _LONGEST:
                return None
            content = source.read(_padded(header.size))[: header.size]
            at += _BLOCK + _padded(header.size)
            if header.type in _PAX:
                said |= _pax(content)
            elif header.type == tarfile.GNUTYPE_LONGNAME:
                said["path"] = _text(content.partition(b"\0")[0])
        size = int(said.get("size", header.size))
        at += _BLOCK
        is_more = header.type == tarfile.GNUTYPE_SPARSE and block[482]
        while is_more:  # more blocks of its map
            block = source.read(_BLOCK)
            at += _BLOCK
            is_more = len(block) == _BLOCK and block[504]
    except (tarfile.HeaderError, ValueError):
        return None
    if size < 0:
        return None
    stop = at + (0 if header.type in _EMPTY else _padded(size))
    name = said.get("GNU.sparse.name") or said.get("path") or header.name
    is_sparse = header.type == tarfile.GNUTYPE_SPARSE or any(map(_is_of_sparse, said))
    return _Member(name, header.isreg(), is_sparse, start, at, stop, size)


def _header(block: bytes) -> tarfile.TarInfo:
    found = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    if found.size < 0:
        raise tarfile.HeaderError("a size below 0")
    return found


def _pax(content: bytes) -> dict[str, str]:
    """Return the values of an extended header by name."""
    found = {}
    while content.strip(b"\0"):
        length = int(content.partition(b" ")[0])
        if not 0 < length <= len(content):
            raise ValueError("an invalid length")
        name, _, value = content[:length].partition(b" ")[2].removesuffix(b"\n").partition(b"=")
        found[_text(name)] = _text(value)
        content = content[length:]
    return found


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _is_of_sparse(name: str) -> bool:
    return name.startswith("GNU.sparse.")


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _skip(source: io.BufferedIOBase, count: int) -> None:
    """Skip bytes, or all that are left."""
    if source.seekable():
        source.seek(count, io.SEEK_CUR)
        return
    while count > 0 and (part := source.read(min(count, _SKIPPED))):
        count -= len(part)


def _energon(file: File) -> NDArray[Any] | None:
    """Return the offsets in the Megatron Energon index next to a file; None if there is none."""
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
        raise RecordError(f"{path}: not an index of {file.path}, or of a different version of it")
    return found


def split_name(name: str) -> tuple[str, str]:
    """Return the key and the extension of a member; both are empty if it belongs to no sample."""
    found = _NAME.fullmatch(name)
    return (found[1], found[2].lower()) if found else ("", "")


class _Samples(Records[dict[str, Any]]):
    """Samples as dicts of bytes."""

    reader = "read_tar"

    def __init__(self, files: Files, options: Options) -> None:
        super().__init__(files, SampleScan(options.compression, options.index_dir), options, {})

    def decode(self, record: bytes) -> dict[str, Any]:
        found: dict[str, Any] = {}
        stop, left = 0, self.options.max_record_bytes
        for member in _members(io.BytesIO(record)):
            stop = member.stop
            key, extension = split_name(member.name)
            if not (member.is_file and key):
                continue
            found.setdefault("__key__", key)
            if found["__key__"] != key or extension in found:
                raise ValueError(f"{member.name!r} in the sample {found['__key__']!r}")
            found[extension] = content = self._content_of(member, record, left)
            left -= len(content)
        if stop != len(record) or not found:
            raise ValueError("a header is damaged, or the archive is cut")
        return found

    def _content_of(self, member: _Member, record: bytes, most: int) -> bytes:
        content = record[member.data : member.data + member.size]
        if len(content) < member.size:
            raise ValueError(f"{member.name!r} is cut")
        if not member.is_sparse:
            return content
        packed = io.BytesIO(record[member.start : member.stop])
        with tarfile.open(fileobj=packed, mode="r:") as archive:
            info = archive.getmembers()[0]
            if info.size > most:
                raise ValueError(
                    f"{member.name!r} has {info.size:,} bytes with its holes, and "
                    f"max_record_bytes is {self.options.max_record_bytes:,}"
                )
            part = archive.extractfile(info)
            return b"" if part is None else part.read()


def read_tar(
    files: Any,
    *,
    compression: Compression = "infer",
    max_record_bytes: int = MAX_RECORD,
    index_dir: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> Rows[dict[str, Any]]:
    """Read the samples of tar files in WebDataset's layout, by number, as dicts of bytes.

    Consecutive members whose names agree up to the first dot are a sample: `dir/7.jpg` and
    `dir/7.seg.png` are `{"__key__": "dir/7", "jpg": ..., "seg.png": ...}`, with extensions in lower
    case. Folders and links are skipped, and so is a file whose name has no dot, nothing before its
    first dot (`._7.jpg`), or nothing after it (`7.`). An archive ends at its first block of zeros,
    as in `tarfile`, even if a second archive follows. Decode the bytes with `map`. If a `.tar.idx`
    of Megatron Energon is next to a file, it is used instead of an index.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Raises:
        RecordError: If a file is not a tar file, or a sample is cut or has two members with the
            same extension.

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
