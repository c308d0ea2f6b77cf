"""Where lines begin, and what ends them."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import Unfit
from lazyckpt.io.content import ContentScan
from lazyckpt.io.storage import File

_NEWLINE, _RETURN = 10, 13


@dataclass(frozen=True)
class LineScan(ContentScan):
    """Where lines begin, by a search for newlines.

    With `skips_blank` lines without content are no rows, but a part of the next one's bytes.
    """

    skips_blank: bool = False

    @property
    def name(self) -> str:
        kind = "records" if self.skips_blank else "lines"
        return f"{kind} {self.compression}"

    def __call__(self, file: File) -> Iterator[NDArray[Any]]:
        yield np.zeros(1, np.uint64)
        passed, bound, before = 0, 0, 0  # bytes read, where the line begins, the last byte read
        for chunk in self.content(file).chunks(file):
            values = np.frombuffer(chunk, np.uint8)
            ends = np.flatnonzero(values == _NEWLINE)
            bounds = ends + (passed + 1)
            if len(bounds):
                found = bounds
                if self.skips_blank:
                    found = bounds[~_blank(bounds, bound, values, passed, before)]
                yield found
                bound = int(bounds[-1])
            passed += len(chunk)
            before = chunk[-1] if chunk else before
        is_blank = passed == bound + 1 and before == _RETURN
        if passed > bound and not (self.skips_blank and is_blank):
            yield np.array([passed], np.uint64)


def _blank(
    bounds: NDArray[Any], begin: int, values: NDArray[np.uint8], passed: int, before: int
) -> NDArray[np.bool_]:
    """Which lines have no content, by where they end, the first's beginning, and their bytes."""
    lengths = np.diff(bounds, prepend=begin)
    found: NDArray[np.bool_] = lengths == 1
    for place in np.flatnonzero(lengths == 2):
        at = int(bounds[place]) - 2 - passed
        found[place] = (before if at < 0 else values[at]) == _RETURN
    return found


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
