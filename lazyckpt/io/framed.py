"""Files of pieces that are decompressed each for itself, by the offsets of what is in them."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from lazyckpt.errors import PipelineError
from lazyckpt.io.cache import storing, writing
from lazyckpt.io.decompress import Decompressor, damaged, decompressor, pieces
from lazyckpt.io.numbers import Numbers, hashed, mapped_numbers, write_numbers
from lazyckpt.io.storage import File, Ranges, seen_from, storage_of

_KEPT = 1 << 26  # bytes of pieces that are kept without compression
_MOST_KNOWN = 256  # files whose pieces are kept mapped
_STEP = 1 << 17  # bytes that are made at once


class _HasSize(Protocol):
    @property
    def size(self) -> int: ...


_Sized = TypeVar("_Sized", bound=_HasSize)


class _Piece:
    """What a piece holds, made as far as was asked for."""

    def __init__(self, inner: Decompressor, content: bytes, size: int) -> None:
        self.size = size
        self._inner, self._content, self._made = inner, content, bytearray()
        self._lock = threading.Lock()

    def read(self, start: int, stop: int) -> bytes:
        with self._lock:
            if len(self._made) < stop:
                self._extend(min(self.size, -(-stop // _STEP) * _STEP))
            with memoryview(self._made) as made:
                return bytes(made[start:stop])

    def _extend(self, stop: int) -> None:
        inner, made = self._inner, self._made
        while (missing := stop - len(made)) > 0:
            if inner.eof or (inner.needs_input and not self._content):
                raise ValueError("it ends too early")
            content, self._content = self._content, b""
            made += inner.decompress(content, missing)


class LastUsed(Generic[_Sized]):
    """What was used last, by keys, of so many bytes in all; one in any case."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._renew()

    def _renew(self) -> None:
        self._process, self._lock = os.getpid(), threading.Lock()
        self.kept: OrderedDict[Any, _Sized] = OrderedDict()
        self.size = 0

    def get(self, key: Any, make: Callable[[], _Sized]) -> _Sized:
        """What is kept, or else what `make` gives."""
        if self._process != os.getpid():  # forked, perhaps while a thread held some of it,
            self._forked = self.kept  # to close which would never end
            self._renew()
        with self._lock:
            if (found := self.kept.get(key)) is not None:
                self.kept.move_to_end(key)
                return found
        made = make()
        with self._lock:
            found = self.kept.setdefault(key, made)
            self.size += found.size if found is made else 0
            while self.size > self.most and len(self.kept) > 1:
                self.size -= self.kept.popitem(last=False)[1].size
            return found


class Framed:
    """Content of such files. Where pieces begin is noted when a file is read from the front.

    Args:
        kind: The compression.
        folder: Where that is kept.
    """

    def __init__(self, kind: str, folder: str) -> None:
        self.kind, self.folder = kind, folder
        self._bounds: OrderedDict[File, Numbers] = OrderedDict()
        self.pieces = LastUsed[_Piece](_KEPT)

    def chunks(self, file: File) -> Iterator[bytes]:
        found: list[tuple[int, int]] = []
        made = 0
        for data, begin in pieces(file, self.kind):
            if not found or found[-1][0] != begin:
                found.append((begin, made))
            made += len(data)
            self.check_piece(file, begin, made - found[-1][1])
            yield data
        found.append((file.size, made))
        with storing(self.folder), writing(self.path(file)) as temporary:
            write_numbers(temporary, [np.array(found, np.uint64)], 2)

    def check_piece(self, file: File, begin: int, size: int) -> None:
        """Raises an error for a piece that is too large to be read for one row."""

    def path(self, file: File) -> str:
        """Where it is kept where the pieces of a file begin."""
        name = hashed(seen_from(self.folder, file.path), str(file.size), file.version, self.kind)
        return os.path.join(self.folder, f"{name}.pieces")

    def bounds(self, file: File) -> Numbers:
        """Where pieces begin: in the file, and in what it holds. The last is the end."""
        found = self._bounds.get(file)
        if found is None:
            found = self._bounds[file] = self.noted(file)
            if len(self._bounds) > _MOST_KNOWN:
                self._bounds.popitem(last=False)
        return found

    def noted(self, file: File) -> Numbers:
        """The same, as it was noted; the file is read where that is lost."""
        mapped = mapped_numbers(self.path(file), 2)
        if mapped is None:  # lost since, or damaged
            for _ in self.chunks(file):
                pass
            mapped = mapped_numbers(self.path(file), 2)
        if mapped is None:
            raise PipelineError(f"{self.path(file)} was removed while it was made")
        return np.ascontiguousarray(mapped.T)

    def block_begins(self, file: File) -> Numbers:
        """The offsets at which what is decompressed together begins."""
        return self.bounds(file)[1, :-1]

    def read_ranges(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        return [self._read(file, start, stop) for start, stop in ranges]

    def _read(self, file: File, start: int, stop: int) -> bytes:
        begins = self.bounds(file)[1]
        number = int(np.searchsorted(begins, np.uint64(start), "right")) - 1
        parts = []
        while number < len(begins) - 1 and begins[number] < stop:
            begin, end = begins[number : number + 2].tolist()
            first, last = max(0, start - begin), min(stop, end) - begin
            piece = self._piece(file, number)
            try:
                parts.append(piece.read(first, last))
            except PipelineError:  # of its storage
                raise
            except Exception as error:  # each library's own
                at = int(self.bounds(file)[0, number])
                raise damaged(file, self.kind, at, error) from error
            number += 1
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _piece(self, file: File, number: int) -> _Piece:
        def make() -> _Piece:
            begin, end = self.bounds(file)[1, number : number + 2].tolist()
            return _Piece(*self.begun(file, number), end - begin)

        return self.pieces.get((file, number), make)

    def begun(self, file: File, number: int) -> tuple[Decompressor, bytes]:
        """What decompresses a piece, and what it begins with."""
        first, last = self.bounds(file)[0, number : number + 2].tolist()
        return decompressor(self.kind), storage_of(file.path).read(file, first, last)
