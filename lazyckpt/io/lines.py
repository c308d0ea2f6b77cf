"""Where lines begin, and what ends them."""

from __future__ import annotations

import codecs
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import Unfit
from lazyckpt.io.content import ChecksummedChunks, ContentScan
from lazyckpt.io.decompress import Damaged
from lazyckpt.io.rows import RecordError
from lazyckpt.io.storage import File

_NEWLINE = 10
_IS_SPACE = np.isin(np.arange(256), list(b" \t\r\n\v\f"))
_HEAD = 1 << 16  # bytes of a first record that are looked at


@dataclass(frozen=True)
class LineScan(ContentScan):
    """Where lines begin, by a search for newlines.

    Of JSON those without content are no rows, but a part of the next one's bytes, and a file of
    one value over several lines is refused.
    """

    is_json: bool = False

    @property
    def name(self) -> str:
        return f"{'records' if self.is_json else 'lines'} {self.compression}"

    def __call__(self, file: File) -> Generator[NDArray[Any], None, int]:
        yield np.zeros(1, np.uint64)
        chunks = ChecksummedChunks(self.chunks(file))
        first, count = 0, 0  # where the first row ends, and how many there are
        for ends in self._ends(chunks):
            if len(ends):
                first, count = first or int(ends[0]), count + len(ends)
                yield ends
        if self.is_json and first:
            self._check(file, first, count)
        return chunks.sum

    def _ends(self, chunks: Iterator[bytes]) -> Iterator[NDArray[Any]]:
        """Where lines end that are rows."""
        passed, bound = 0, 0  # bytes read, and where the line at hand begins
        is_blank = True  # so far
        for chunk in chunks:
            values = np.frombuffer(chunk, np.uint8)
            ends = kept = np.flatnonzero(values == _NEWLINE) + 1
            if self.is_json and len(ends):
                starts = np.append(0, ends[:-1])
                is_row = ~_IS_SPACE[values[starts]]
                for place in np.flatnonzero(~is_row):
                    is_row[place] = bool(chunk[starts[place] : ends[place]].strip())
                is_row[0] |= not is_blank
                kept = ends[is_row]
            yield kept + passed
            rest = chunk[ends[-1] :] if len(ends) else chunk
            is_blank = (is_blank or len(ends) > 0) and not rest.strip()
            passed += len(chunk)
            bound = passed - len(rest) if len(ends) else bound
        if passed > bound and not (self.is_json and is_blank):
            yield np.array([passed], np.uint64)

    def _check(self, file: File, first: int, count: int) -> None:
        """Raise an error for a file that holds one value, by its first row."""
        try:
            (head,) = self.content(file).read_ranges(file, [(0, min(first, _HEAD))])
        except Damaged:  # which shows when the row is read
            return
        head = head.strip().removeprefix(codecs.BOM_UTF8)
        is_open = count > 1 and first <= _HEAD and head.endswith((b"[", b"{", b","))
        is_array = count == 1 and ".json" in PurePosixPath(file.path).suffixes
        if (is_open and head.startswith((b"[", b"{"))) or (is_array and head.startswith(b"[")):
            raise RecordError(
                f"{file.path}: it is one value of JSON, and no lines of it; json.load reads it, "
                "whose items are data for source, and jq -c '.[]' writes a line for each"
            )


def without_end(record: bytes) -> bytes:
    """A line without the newline at its end."""
    if record.endswith(b"\n"):
        return record[:-2] if record.endswith(b"\r\n") else record[:-1]
    return record


def encoding_check(value: Any) -> str:
    """An encoding in which lines can be told apart."""
    try:
        if b"\n".decode(value) == "\n":
            return str(value)
    except (LookupError, UnicodeError, TypeError):
        pass
    raise Unfit("an encoding in which a newline is one byte, such as 'utf-8'")


def errors_check(value: Any) -> str:
    """What `bytes.decode` takes for `errors`."""
    try:
        codecs.lookup_error(value)
        return str(value)
    except (LookupError, TypeError):
        raise Unfit("one of Python's ways to handle errors, such as 'replace'") from None
