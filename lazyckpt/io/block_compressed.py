"""Compressed files by the offsets of their content: each piece is decompressed for itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from lazyckpt.errors import ArgumentError, PipelineError
from lazyckpt.io.cache import atomic_writer, cache_errors
from lazyckpt.io.decompress import Damaged, Kind, damaged_error, decompressed_pieces, decompressor
from lazyckpt.io.lru_cache import LRUCache
from lazyckpt.io.mapped_arrays import Uint64Array, map_array, short_digest, write_array
from lazyckpt.io.storage import File, Ranges, relative_path, storage_of

MOST = 1 << 26  # bytes of a piece without compression

_UNREADABLE = b"\0"
_UNSURE = 1 << 20  # last bytes of a piece that is cut, which may be wrong
_KEPT = 1 << 26  # bytes of pieces that are kept without compression
_MOST_KNOWN = 256  # files whose pieces are kept mapped


class BlockCompressedFile:
    """The content of files of pieces, such as zstd files of many frames.

    Where pieces begin is noted when a file is read from the front, so that no table such as that
    of zstd's seekable format is needed. The content of a file that is damaged ends with a byte
    that can't be read: it belongs to a row, whatever the format, and reading that is the error.
    Nothing of a piece that is damaged is read, as only the checksum at its end would tell what is
    right. If the file ends in it, it is likely cut, and the content so far is read, without the
    last MiB: a piece that is damaged there may look the same, but not earlier, where what follows
    would make no sense.

    Args:
        kind: The compression.
        folder: Where it is noted.
    """

    def __init__(self, kind: Kind, folder: str) -> None:
        self.kind, self.folder = kind, folder
        self.bounds = lru_cache(_MOST_KNOWN)(self.read_bounds)
        self.pieces = LRUCache[NDArray[np.uint8]](_KEPT)

    def chunks(self, file: File) -> Iterator[bytes]:
        """Yield the content in order, and note where pieces begin.

        Raises:
            Damaged: A piece can't be decompressed, which is noted: what the piece had so far may
                be wrong, and to ask again yields the content without it.
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
                end, good = file.size, max(first, made - _UNSURE)
            known = [pair for pair in found if pair[1] < good]
            self._note(file, [*known, (end, good), (end, good + len(_UNREADABLE))])
            raise
        self._note(file, [*found, (file.size, made)])

    def check_piece(self, file: File, begin: int, size: int) -> None:
        """Raise an error for a piece that is too large to be read for one row."""
        if size > MOST:
            raise ArgumentError(
                f"{file.path}: its frame from byte {begin:,} on holds more than {MOST:,} bytes, "
                "all of which one row would read; read it as a stream, source(files) | "
                "flat_map(lz.io.iter_text), or compress it in smaller frames, as pzstd does"
            )

    def path(self, file: File) -> str:
        """Return where it is noted where the pieces of a file begin."""
        name = relative_path(self.folder, file.path), str(file.size), file.version, repr(self.kind)
        return os.path.join(self.folder, f"{short_digest(*name)}.pieces")

    def read_bounds(self, file: File) -> Uint64Array:
        """Return where pieces begin, in the file and in its content, and where the last ends."""
        found = self._noted(file)
        if found is None:  # removed since, or damaged
            with suppress(Damaged):
                for _ in self.chunks(file):
                    pass
            found = self._noted(file)
        if found is None:
            raise PipelineError(f"{self.path(file)} was removed while it was made")
        return found

    def _note(self, file: File, found: list[tuple[int, int]]) -> None:
        with cache_errors(self.folder), atomic_writer(self.path(file)) as temporary:
            write_array(temporary, [np.array(found, np.uint64)], 2)

    def _noted(self, file: File) -> Uint64Array | None:
        found = map_array(self.path(file), 2)
        return None if found is None else np.ascontiguousarray(found.T)

    def block_begins(self, file: File) -> Uint64Array:
        """Return the offsets at which what is decompressed together begins."""
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
            piece = self.pieces.get((file, number), partial(self._piece, file, number))
            parts.append(piece[max(0, start - begin) : stop - begin].tobytes())
            number += 1
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _piece(self, file: File, number: int) -> NDArray[np.uint8]:
        (first, last), (begin, end) = self.bounds(file)[:, number : number + 2].tolist()
        if first == last:
            reason = "it is cut" if first == file.size else "what follows can't be read"
            raise damaged_error(file, self.kind, first, reason)
        try:
            made = self.decompress(file, first, last, begin, end)
        except PipelineError:  # of its storage
            raise
        except Exception as error:  # each library's own
            raise damaged_error(file, self.kind, first, error) from error
        if len(made) != end - begin:
            raise damaged_error(file, self.kind, first, "it ends too early")
        return np.frombuffer(made, np.uint8)

    def decompress(self, file: File, first: int, last: int, begin: int, end: int) -> bytes:
        """Return the content from `begin` to `end`: a piece, in bytes `first` to `last`."""
        compressed = storage_of(file.path).read(file, first, last)
        return decompressor(self.kind).decompress(compressed, end - begin)


def good_bytes(bounds: Uint64Array | None) -> int | None:
    """Return how many bytes of a damaged file's content are good; None if all are."""
    if bounds is None or bounds.shape[1] < 2 or bounds[0, -1] != bounds[0, -2]:
        return None
    return int(bounds[1, -2])
