"""The bytes of a file without its compression, by their offsets.

A compressed file is decompressed in independent pieces: frames of zstd, small members of gzip, or
the spans between the seek points of a large member. indexed_gzip finds those seek points and reads
the spans. It doesn't notice a file that is cut, so the first pass uses zlib, or isal if it is
installed, and these check the whole file. rapidgzip would take 0.6 of the CPU time of a pass, but
it aborts the interpreter if a file is open at exit, and forked workers can't avoid that.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import one_of
from lazyckpt.errors import ArgumentError, PipelineError
from lazyckpt.io.cache import (
    LRUCache,
    Uint64Array,
    atomic_writer,
    cache_errors,
    map_array,
    short_digest,
    touch,
    write_array,
    write_atomically,
)
from lazyckpt.io.decompress import (
    Damaged,
    Kind,
    Zstd,
    compression_from_suffix,
    damaged_error,
    decompressed_pieces,
    decompressor,
    file_chunks,
    plain_chunks,
)
from lazyckpt.io.storage import File, FileObject, Ranges, optional_module, relative_path, storage_of

Compression: TypeAlias = Literal["infer", "none", "gzip", "zstd"] | Zstd

CHUNK = 1 << 20  # bytes per read
MOST = 1 << 26  # most bytes of a decompressed piece
SPACING = 1 << 21  # bytes between seek points, each of which has a window of 32 KiB
LARGE = 1 << 22  # bytes above which a member of gzip has seek points

_UNREADABLE = b"\0"
UNSURE = 1 << 20  # last bytes of a piece that is cut; they may be wrong
KEPT = 1 << 26  # bytes of decompressed pieces that are kept
_KEPT_POINTS = 1 << 28  # bytes of seek points that are kept in memory
_TRIES = 4  # attempts to note where pieces begin, if other processes remove the notes
_MOST_KNOWN = 256  # files whose pieces are kept mapped
_WINDOW = 1 << 15
_BUFFER = 1 << 12  # bytes; indexed_gzip reads more than this without a copy

_one_of = one_of("infer", "none", "gzip", "zstd")


def compression_check(value: Any) -> str | Zstd:
    """Accept the name of a compression, or options of zstd."""
    return value if isinstance(value, Zstd) else str(_one_of(value))


class Content(Protocol):
    """The bytes of files, by their offsets."""

    def chunks(self, file: File) -> Iterator[bytes]:
        """Yield all bytes in order; seek points found on the way are kept."""

    def read_ranges(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        """Return the bytes of each range."""

    def block_begins(self, file: File) -> Uint64Array:
        """Return the offsets at which independently decompressed blocks begin."""

    def size(self, file: File) -> int:
        """Return the number of bytes; known only after one read from the front."""


class ChecksummedChunks(Iterator[bytes]):
    """Chunks, with the checksum of those yielded in `sum`."""

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


class BlockCompressedFile:
    """The content of files that consist of pieces, such as zstd files of many frames.

    The first read from the front notes where pieces begin, so no table such as that of zstd's
    seekable format is needed.

    The content of a damaged file ends with one unreadable byte. It belongs to a row, whatever the
    format, and reading that row raises the error. Nothing in a damaged piece is read, because only
    the checksum at its end shows which bytes are right. If the file ends inside the piece, the file
    was probably cut, and the content up to there is read without its last MiB. Damage inside that
    MiB may look like a cut; earlier damage doesn't, because the bytes after it would not decode.

    Args:
        kind: The compression.
        folder: Folder for the notes.
    """

    def __init__(self, kind: Kind, folder: str) -> None:
        self.kind, self.folder = kind, folder
        self.bounds = lru_cache(_MOST_KNOWN)(self.read_bounds)
        self.pieces = LRUCache[NDArray[np.uint8]](KEPT)

    def chunks(self, file: File) -> Iterator[bytes]:
        """Yield the content in order, and note where pieces begin.

        Raises:
            Damaged: If a piece can't be decompressed. This is noted: the bytes of the piece yielded
                before the error may be wrong, and the next call yields the content without them.
        """
        good = good_bytes(self._noted(file))
        if good == 0:
            yield _UNREADABLE
            return
        found: list[tuple[int, int]] = []
        made = 0
        try:
            for data, begin in decompressed_pieces(file, self.kind):
                if not found or found[-1][0] != begin:
                    found.append((begin, made))
                made += len(data)
                self.check_piece(file, begin, made - found[-1][1])
                if good is not None and made >= good:
                    yield data[: len(data) - (made - good)] + _UNREADABLE
                    return
                yield data
        except Damaged as error:
            is_begun = bool(found) and found[-1][0] == error.begin
            first = found[-1][1] if is_begun else made
            end, good = error.begin, first
            if error.is_cut:
                end, good = file.size, max(first, made - UNSURE)
            known = [pair for pair in found if pair[1] < good]
            self._note(file, [*known, (end, good), (end, good + len(_UNREADABLE))])
            raise
        self._note(file, [*found, (file.size, made)])

    def check_piece(self, file: File, begin: int, size: int) -> None:
        """Raise an error if a piece is too large to be read for one row."""
        if size > MOST:
            raise ArgumentError(
                f"{file.path}: its frame from byte {begin:,} on holds more than {MOST:,} bytes, "
                "and reading one row would decompress them all; read it as a stream, "
                "source(files) | flat_map(lz.io.iter_text), or compress it in smaller frames, as "
                "pzstd does"
            )

    def path(self, file: File) -> str:
        """Return the path of the notes on where the pieces of a file begin."""
        name = relative_path(self.folder, file.path), str(file.size), file.version, repr(self.kind)
        return os.path.join(self.folder, f"{short_digest(*name)}.pieces")

    def read_bounds(self, file: File) -> Uint64Array:
        """Return where pieces begin, in the file and in its content, and where the last ends."""
        for _ in range(_TRIES):
            if (found := self._noted(file)) is not None:
                return found
            with suppress(Damaged):
                for _ in self.chunks(file):
                    pass
        raise PipelineError(f"{self.path(file)} is removed each time it is written")

    def _note(self, file: File, found: list[tuple[int, int]]) -> None:
        with cache_errors(self.folder), atomic_writer(self.path(file)) as temporary:
            write_array(temporary, [np.array(found, np.uint64)], 2)

    def _noted(self, file: File) -> Uint64Array | None:
        found = map_array(self.path(file), 2)
        return None if found is None else np.ascontiguousarray(found.T)

    def block_begins(self, file: File) -> Uint64Array:
        """Return the offsets at which pieces begin in the content."""
        return self.bounds(file)[1, :-1]

    def size(self, file: File) -> int:
        return int(self.bounds(file)[1, -1])

    def read_ranges(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        return [self._read(file, start, stop) for start, stop in ranges]

    def _read(self, file: File, start: int, stop: int) -> bytes:
        begins = self.bounds(file)[1]
        number = int(np.searchsorted(begins, np.uint64(start), "right")) - 1
        parts = []
        while number < len(begins) - 1 and begins[number] < stop:
            begin = int(begins[number])
            piece = self.pieces.get((file, number), partial(self.read_piece, file, number))
            parts.append(piece[max(0, start - begin) : stop - begin].tobytes())
            number += 1
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_piece(self, file: File, number: int) -> NDArray[np.uint8]:
        (first, last), (begin, end) = self.bounds(file)[:, number : number + 2].tolist()
        if first == last:
            reason = "it is cut" if first == file.size else "the rest can't be read"
            raise damaged_error(file, self.kind, first, reason)
        try:
            made = self.decompress(file, first, last, begin, end)
        except PipelineError:  # from its storage
            raise
        except Exception as error:  # each library has its own
            raise damaged_error(file, self.kind, first, error) from error
        if len(made) != end - begin:
            raise damaged_error(file, self.kind, first, "it ends too early")
        return np.frombuffer(made, np.uint8)

    def decompress(self, file: File, first: int, last: int, begin: int, end: int) -> bytes:
        """Return the content from `begin` to `end`, a piece stored in bytes `first` to `last`."""
        compressed = storage_of(file.path).read(file, first, last)
        return decompressor(self.kind).decompress(compressed, end - begin)


def good_bytes(bounds: Uint64Array | None) -> int | None:
    """Return the number of readable bytes of a damaged file's content; None if all are."""
    if bounds is None or bounds.shape[1] < 2 or bounds[0, -1] != bounds[0, -2]:
        return None
    return int(bounds[1, -2])


class _Reader(NamedTuple):
    """A file opened by indexed_gzip; its seek points take `size` bytes of memory."""

    opened: Any
    source: FileObject
    size: int


class Gzip(BlockCompressedFile):
    """Files of gzip: of small members, as bgzip writes them, or of large ones with seek points."""

    def __init__(self, folder: str) -> None:
        super().__init__("gzip", folder)
        self.readers = LRUCache[_Reader](_KEPT_POINTS)

    def chunks(self, file: File) -> Iterator[bytes]:
        yield from super().chunks(file)
        if _is_large(super().read_bounds(file)):
            self._write_points(file)

    def check_piece(self, file: File, begin: int, size: int) -> None:
        """Accept any size, because a large member has seek points."""

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
        if not self.bounds(file)[0, 0]:  # a whole member; the first seek point is after a header
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
        except (OSError, zlib.error):  # removed or damaged since
            self._write_points(file)
            self._read_points(file, opened)
        return _Reader(opened, source, _WINDOW * len([*opened.seek_points()]))

    def _opened(self, file: File, **options: int) -> tuple[FileObject, Any]:
        library = optional_module("indexed_gzip", "gzip", "random access in .gz")
        source = FileObject(file, int(super().read_bounds(file)[0, -1]))  # the undamaged part
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


def open_content(path: str, compression: str | Zstd, folder: str) -> Content:
    """Return a reader of a file for its compression; `folder` is where seek points are kept."""
    return content_of(compression_of(path, compression), folder)


def compression_of(path: str, compression: str | Zstd) -> str | Zstd:
    """Return the compression of a file: as given, or inferred from its suffix."""
    return infer_compression(path) if compression == "infer" else compression


def content_of(kind: str | Zstd, folder: str) -> Content:
    """Return the reader of files with a compression."""
    return _plain if kind == "none" else compressed_content(kind, folder)


@lru_cache
def compressed_content(kind: str | Zstd, folder: str) -> Content:
    return Gzip(folder) if kind == "gzip" else BlockCompressedFile(kind, folder)


@dataclass(frozen=True)
class ContentScan:
    """A `Scan` of files' content: the offsets at which rows begin, and where the last ends."""

    compression: str | Zstd
    folder: str  # where seek points are kept
    columns = 1
    is_bounds = True

    def content(self, file: File) -> Content:
        return open_content(file.path, self.compression, self.folder)

    def chunks(self, file: File) -> Iterator[bytes]:
        """Yield the content of a file, and check that an uncompressed one is not compressed."""
        content = self.content(file)
        return plain_chunks(file, CHUNK) if content is _plain else content.chunks(file)


@lru_cache(1 << 12)
def infer_compression(path: str) -> str:
    """Return the compression that the suffix of a path stands for."""
    kind = compression_from_suffix(path) or "none"
    if kind not in ("none", "gzip", "zstd"):
        raise ArgumentError(
            f"{path}: .{path.rpartition('.')[2]} has no random access; read it as a stream: "
            "source(files) | flat_map(lz.io.iter_text), or convert it to .gz or .zst"
        )
    return kind
