"""Numbers on disk: written whole, mapped into memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

Uint64Array = NDArray[np.uint64]

_MAGIC = 0x2_6C7A_636B_7074  # of our files; the first digit is the format
SMALL = 1 << 16  # bytes that are read rather than mapped
_FOOTER = 5  # numbers at a file's end: entries, columns, what they are of, checksum, magic


def write_array(path: str, chunks: Iterable[NDArray[Any]], columns: int) -> None:
    """Write numbers that come some at a time, `columns` of them an entry.

    Args:
        path: The file.
        chunks: The numbers. What a generator returns at its end, a checksum of what they are
            of, is kept with them.
        columns: How many numbers an entry has.
    """
    size, content = 0, None
    found = iter(chunks)
    with open(path, "xb") as out:
        while True:
            try:
                chunk = next(found)
            except StopIteration as end:
                content = end.value
                break
            out.write(chunk.astype("<u8", copy=False).tobytes())
            size += chunk.size
        out.write(_footer(size // columns, columns, content or 0).tobytes())


def _footer(entries: int, columns: int, content: int) -> Uint64Array:
    check = int(short_digest(str(entries), str(columns), str(content))[:12], 16)
    return np.array([entries, columns, content, check, _MAGIC], "<u8")


def array_length(path: str) -> int | None:
    """How many entries a file has; None if there is no such file, or not the whole of it."""
    found = _footer_of(path)
    return None if found is None else found[0]


def stored_checksum(path: str) -> int:
    """The checksum of what the numbers of a file are of; 0 if there is none."""
    found = _footer_of(path)
    return 0 if found is None else found[1]


def _footer_of(path: str) -> tuple[int, int] | None:
    try:
        with open(path, "rb") as file:
            file.seek(-8 * _FOOTER, os.SEEK_END)
            footer = np.frombuffer(file.read(), "<u8")
            size = file.tell()
    except OSError:
        return None
    entries, columns, content = map(int, footer[:3])
    is_whole = size == 8 * (entries * columns + _FOOTER)
    is_ours = is_whole and np.array_equal(footer, _footer(entries, columns, content))
    return (entries, content) if is_ours else None


def map_array(path: str, columns: int) -> Uint64Array | None:
    """The numbers of a file; None if there is no such file, or not the whole of it.

    They are mapped, of which the system keeps a file open, unless they are few.
    """
    entries = array_length(path)
    if entries is None:
        return None
    touch(path)
    is_small = 8 * entries * columns <= SMALL
    whole = np.fromfile(path, "<u8") if is_small else np.memmap(path, "<u8", "r").view(np.ndarray)
    numbers = whole[:-_FOOTER]
    return numbers if columns == 1 else numbers.reshape(entries, columns)


def touch(path: str) -> None:
    """Note that a file is used, as those that aren't may be removed from the cache folder."""
    with suppress(OSError):  # of a folder that can't be written
        os.utime(path)


def short_digest(*texts: str) -> str:
    """A name for texts, of hexadecimal digits."""
    content = "\n\n".join(texts).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(content, digest_size=16).hexdigest()
