"""Files of pieces that are compressed each for itself, by the offsets of what is in them."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np

from lazyckpt.errors import PipelineError
from lazyckpt.io.cache import storing, writing
from lazyckpt.io.decompress import damaged, pieces, whole
from lazyckpt.io.locks import ForkLock
from lazyckpt.io.numbers import Numbers, hashed, mapped_numbers, write_numbers
from lazyckpt.io.storage import File, Ranges, storage_of

_KEPT = 1 << 26  # bytes of pieces that are kept without compression
_MOST_KNOWN = 256  # files whose pieces are kept mapped


class Framed:
    """Content of such files. Where pieces begin is noted when a file is read from the front.

    Args:
        kind: The compression.
        folder: Where that is kept.
    """

    def __init__(self, kind: str, folder: str) -> None:
        self.kind, self.folder = kind, folder
        self._bounds: OrderedDict[File, Numbers] = OrderedDict()
        self._made: OrderedDict[tuple[File, int], bytes] = OrderedDict()
        self._kept = 0
        self._lock = ForkLock()

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
        name = hashed(file.path, str(file.size), file.version, self.kind)
        return os.path.join(self.folder, f"{name}.pieces")

    def bounds(self, file: File) -> Numbers:
        """Where pieces begin: in the file, and in what it holds. The last is the end."""
        found = self._bounds.get(file)
        if found is None:
            mapped = mapped_numbers(self.path(file), 2)
            if mapped is None:  # lost since, or damaged
                for _ in self.chunks(file):
                    pass
                mapped = mapped_numbers(self.path(file), 2)
            if mapped is None:
                raise PipelineError(f"{self.path(file)} was removed while it was made")
            found = self._bounds[file] = np.ascontiguousarray(mapped.T)
            if len(self._bounds) > _MOST_KNOWN:
                self._bounds.popitem(last=False)
        return found

    def read_ranges(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        return [self._read(file, start, stop) for start, stop in ranges]

    def _read(self, file: File, start: int, stop: int) -> bytes:
        begins = self.bounds(file)[1]
        number = int(np.searchsorted(begins, np.uint64(start), "right")) - 1
        parts = []
        while number < len(begins) - 1 and begins[number] < stop:
            begin = int(begins[number])
            parts.append(self._piece(file, number)[max(0, start - begin) : stop - begin])
            number += 1
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _piece(self, file: File, number: int) -> bytes:
        key = file, number
        with self._lock:
            if (found := self._made.get(key)) is not None:
                self._made.move_to_end(key)
                return found
        (first, last), (begin, end) = self.bounds(file)[:, number : number + 2].tolist()
        content = storage_of(file.path).read(file, first, last)
        try:
            found = whole(self.kind, content, end - begin)
        except Exception as error:  # each library's own
            raise damaged(file, self.kind, first, error) from error
        if len(found) != end - begin:
            raise damaged(file, self.kind, first, "it ends too early")
        with self._lock:
            if key not in self._made:
                self._kept += len(found)
            self._made[key] = found
            while self._kept > _KEPT and len(self._made) > 1:
                self._kept -= len(self._made.popitem(last=False)[1])
        return found
